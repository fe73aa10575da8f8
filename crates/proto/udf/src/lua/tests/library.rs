//! The library that bodies have.

use super::*;

#[test]
fn tables_are_worked_on_as_lua_does_it() {
    for (body, expect) in [
        (
            "local t = {1, 2} table.insert(t, 3) table.insert(t, 1, 0) return table.concat(t, ',')",
            "0,1,2,3",
        ),
        (
            "local t = {1, 2, 3} local x = table.remove(t, 1) return x .. ':' .. table.concat(t, ',')",
            "1:2,3",
        ),
        (
            "local t = {1, 2, 3} local x = table.remove(t) return x .. ':' .. table.concat(t, ',')",
            "3:1,2",
        ),
        ("return tostring(table.remove({}))", "nil"),
        (
            "local t = {} return tostring(table.remove(t, 0)) .. tostring(table.remove(t, 1))",
            "nilnil",
        ),
        ("return table.concat(table.move({1, 2, 3}, 1, 3, 2), ',')", "1,1,2,3"),
        ("return table.concat(table.move({1, 2, 3}, 2, 3, 1), ',')", "2,3,3"),
        ("return table.concat(table.move({1, 2, 3}, 1, 3, 3, {9, 8}), ',')", "9,8,1,2,3"),
        ("return table.concat({1, 2.5, 'x'}, '-', 2, 3)", "2.5-x"),
        ("return table.concat({}, 'x')", ""),
        (
            "local t = {3, 1, 2} table.sort(t, function(a, b) return a > b end) return table.concat(t)",
            "321",
        ),
        ("return select('#', table.unpack({1, nil, 3}, 1, 3))", "3"),
        ("return table.pack(1, nil).n", "2"),
        ("return #string.rep('ab', 3, '-') .. string.rep('x', -1) .. string.rep('x', 0)", "8"),
        ("return utf8.char(228) .. utf8.len('äö')", "ä2"),
        ("return ('x'):upper() .. ('%d'):format(3)", "X3"),
    ] {
        check(body, expect);
    }
    fails("table.insert({}, 3, 1)", "position out of bounds");
    fails("table.insert({}, 1, 2, 3)", "wrong number of arguments");
    fails("table.remove({1}, 5)", "position out of bounds");
    fails("table.concat({{}})", "invalid value (at index 1)");
    fails("table.move({}, 1, math.maxinteger, 2)", "units of fuel");
}

/// Expected values are those of Lua 5.4.8.
#[test]
fn patterns_match_as_lua_matches_them() {
    for (call, expect) in [
        ("('hello world'):find('wor')", "7 9"),
        ("('hello world'):find('o', 6)", "8 8"),
        ("('hello'):find('')", "1 0"),
        ("('hello'):find('', 6)", "6 5"),
        ("('hello'):find('', 7)", "nil"),
        ("('hello'):find('l', -2)", "4 4"),
        ("('hello'):find('l', -99)", "3 3"),
        ("('a.b'):find('.', 1, true)", "2 2"),
        ("('a.b'):find('%.')", "2 2"),
        ("('key = value'):match('^(%w+)%s*=%s*(%w+)$')", "key value"),
        ("('key = value'):find('(%w+)%s*=%s*(%w+)')", "1 11 key value"),
        ("('  trim  '):match('^%s*(.-)%s*$') .. '|'", "trim|"),
        ("('2024-02-29'):match('(%d+)-(%d+)-(%d+)')", "2024 02 29"),
        ("('abc'):match('()b()')", "2 3"),
        ("('f(a(b)c)d'):match('%b()')", "(a(b)c)"),
        ("('THE (quick) fox'):find('%((%a+)%)')", "5 11 quick"),
        ("('THE (quick) fox'):gsub('%f[%a]%a+', string.lower)", "the (quick) fox 3"),
        ("('abab'):match('(ab)%1')", "ab"),
        ("('a]b'):match('[]]')", "]"),
        ("('a-b'):match('[a-]+')", "a-"),
        ("('x^y'):match('[%^]')", "^"),
        ("('x^y'):match('[x^]+')", "x^"),
        ("('abc123'):match('[^%d]+')", "abc"),
        ("('abc123'):match('%D+') ", "abc"),
        ("('aaa'):match('a-b')", "nil"),
        ("('aaab'):match('a-b')", "aaab"),
        ("('color colour'):gsub('colou?r', 'x')", "x x 2"),
        ("('abc'):gsub('', '-')", "-a-b-c- 4"),
        ("('abc'):gsub('%w', '%0%0')", "aabbcc 3"),
        ("('hello world'):gsub('(%w+) (%w+)', '%2 %1')", "world hello 1"),
        ("('abc'):gsub('%w', '%%')", "%%% 3"),
        ("('abc'):gsub('b', {b = 'X'})", "aXc 1"),
        ("('abc'):gsub('%w', {b = 1, c = false})", "a1c 3"),
        ("('abc'):gsub('.', function(c) if c == 'b' then return 'B' end end)", "aBc 3"),
        ("('aaa'):gsub('a', 'b', 2)", "bba 2"),
        ("('aaa'):gsub('^a', 'b')", "baa 1"),
        ("('a,b,,c'):gsub(',', ';')", "a;b;;c 3"),
        ("('a b'):gsub('()', '%1')", "1a2 3b4 4"),
        ("('x'):gsub('x', 5)", "5 1"),
        ("('a$'):match('a$')", "nil"),
        ("('a$'):match('a%$')", "a$"),
        ("('\\0a'):match('%z?\\0a') == '\\0a'", "true"),
        ("('ab12'):match('%a+()%d+()')", "3 5"),
    ] {
        check(
            &format!(
                "local r = table.pack({call}) for i = 1, r.n do r[i] = tostring(r[i]) end
                 return table.concat(r, ' ')"
            ),
            expect,
        );
    }
    let words = "local s = '' for k, v in ('a=1, b=2'):gmatch('(%w+)=(%w+)') do s = s .. k .. v end return s";
    check(words, "a1b2");
    check("local n = 0 for _ in ('abc'):gmatch('') do n = n + 1 end return n", "4");
    check("local s = '' for w in ('one two'):gmatch('%a+', 2) do s = s .. w end return s", "netwo");
    for (call, error) in [
        ("('a'):find('[a')", "malformed pattern (missing ']')"),
        ("('a'):find('%')", "malformed pattern (ends with '%')"),
        ("('a'):find('(a')", "unfinished capture"),
        ("('a'):match('a)')", "invalid pattern capture"),
        ("('a'):find('%1')", "invalid capture index %1"),
        ("('a'):find('%f')", "missing '[' after '%f' in pattern"),
        ("('a'):find('%b')", "missing arguments to '%b'"),
        ("('a'):gsub('a', '%2')", "invalid capture index %2 in replacement string"),
        ("('a'):gsub('a', '%x')", "invalid use of '%' in replacement string"),
        ("('a'):gsub('a', function() return {} end)", "invalid replacement value (a table)"),
        ("('a'):gsub('a', true)", "string/function/table expected, got boolean"),
        ("('a'):find(('()'):rep(33))", "too many captures"),
    ] {
        fails(&format!("return {call}"), error);
    }
}
