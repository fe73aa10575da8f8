//! Things that a body cannot reach, and the limits that end it.

use super::*;

#[test]
fn nothing_of_lua_reaches_outside_or_differs_between_two_runs() {
    for name in [
        "io",
        "os",
        "debug",
        "package",
        "require",
        "load",
        "loadstring",
        "loadfile",
        "dofile",
        "print",
        "collectgarbage",
        "coroutine",
        "xpcall",
        "warn",
        "math.random",
        "math.randomseed",
        "string.dump",
        "_G.os",
        "_ENV.io",
    ] {
        check(&format!("return type({name})"), "nil");
    }
    for (body, expect) in [
        ("return tostring({})", "table"),
        ("return tostring(type)", "function"),
        ("return string.format('%s %d %5.2f %q %%', {}, 7, 1.5, 'a')", "table 7  1.50 \"a\" %"),
        ("return tostring(setmetatable({}, {__tostring = function() return 'own' end}))", "own"),
        ("return tostring(setmetatable({}, {__name = 'named'}))", "named"),
    ] {
        check(body, expect);
    }
    fails("return string.format('%p', {})", "shows addresses");
    fails("return 'x' .. {}", "attempt to concatenate a table value");
    fails("setmetatable({}, {__gc = function() while true do end end})", "'__gc' is not allowed");
    fails("setmetatable({}, {__mode = 'k'})", "'__mode' is not allowed");
    check("local m = getmetatable('') return tostring(m)", "false");
    fails("setmetatable(setmetatable({}, {__metatable = 1}), {})", "protected metatable");
    check("x = 1 return tostring(_G.x) .. tostring(_ENV.x)", "11");
}

/// INV-udf-3.
#[test]
fn entries_are_seen_in_one_order() {
    let body = "local t = {c = 1, a = 2, [3] = 3, [1] = 4, [2.5] = 5, [-1] = 6, [true] = 7, b = 8}
                local seen = {}
                for k, v in pairs(t) do seen[#seen + 1] = tostring(k) .. '=' .. v end
                return table.concat(seen, ' ')";
    check(body, "-1=6 1=4 2.5=5 3=3 a=2 b=8 c=1 true=7");
    let body = "local t = {c = 1, a = 2, [3] = 3, b = 4}
                local seen, k = {}, nil
                repeat k = next(t, k) seen[#seen + 1] = tostring(k) until k == nil
                return table.concat(seen, ' ')";
    check(body, "3 a b c nil");
    check("return tostring(next({}))", "nil");
    // An entry removed during the iteration is not seen; an existing one may be changed.
    let body = "local t, seen = {a = 1, b = 2, c = 3}, ''
                for k, v in pairs(t) do seen = seen .. k .. v t.b = nil t.c = 9 end
                return seen";
    check(body, "a1c9");
    check(
        "for k in pairs(setmetatable({}, {__pairs = function() return function(_, k) if not k then \
           return 'own' end end end})) do return k end",
        "own",
    );
    fails("for k in pairs({[{}] = 1}) do end", "keys of type table have no order");
    fails("return next({[type] = 1})", "keys of type function have no order");
    fails("for k in pairs(nil) do end", "table expected, got nil");
    let varints = CqlType::set(CqlType::Varint, true);
    let value = encode_collection([[9], [5], [7]]).unwrap();
    let body = "local s = '' for k in pairs(a) do s = s .. k end return s";
    assert_eq!(map(varints, Some(&value), CqlType::Text, body).unwrap(), "'579'");
}

#[test]
fn nothing_is_kept_between_two_calls() {
    let body = "counter = (counter or 0) + 1
                string.counter = (string.counter or 0) + 1
                return counter + string.counter";
    let function = compile(&[], CqlType::Int, body).unwrap();
    for _ in 0..3 {
        assert_eq!(call(&function, &[]), Ok(Some(int(2))));
    }
}

#[test]
fn errors_are_told_with_their_place_and_can_be_caught() {
    fails("\n\nreturn nothing.x", "f:3: attempt to index a nil value (global 'nothing')");
    fails("error('mine')", "f:1: mine");
    fails("error('mine', 0)", "mine");
    assert!(!eval("error('mine')").unwrap_err().contains("stack traceback"));
    check("local ok, e = pcall(error, 'mine') return tostring(ok) .. e", "falsemine");
    check("local ok, e = pcall(error, {code = 7}) return e.code", "7");
    check("local ok, e = pcall(string.rep) return type(e)", "string");
    check("local ok, a, b = pcall(function(x, y) return y, x end, 1, 2) return a .. b", "21");
    fails("error({})", "");
}

/// Every way of going on without an end that was found: INV-udf-1.
#[test]
fn an_endless_function_ends_with_its_fuel() {
    for body in [
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "local function f() pcall(f) pcall(f) end f()",
        "local t = setmetatable({}, {__index = function(t, k) return t[k + 1] end}) pcall(function() return t[1] end) while true do end",
        "goto again ::again:: goto again",
        "local x <close> = setmetatable({}, {__close = function() while true do end end}) while true do end",
        "table.move({}, 1, 1 << 60, 2, {})",
        "while true do string.rep('x', 1 << 20) end",
        "string.find(string.rep('a', 100000), '.-.-.-.-b')",
        "string.rep('a', 30000):match(('a-'):rep(30) .. 'b')",
        "string.rep('a', 1000000):find(string.rep('a', 500000) .. 'b', 1, true)",
        "string.gsub(string.rep('a', 1000000), '[' .. string.rep('b', 1000) .. ']', '')",
        "for s in string.gmatch(string.rep('(', 100000), '%b()') do end",
        "string.rep('ab', 30000):gsub('(%w+)%1%1x', '')",
        "local t = {} for i = 1, 20000 do t[i] = i end for i = 1, 1e9 do table.insert(t, 1, i) end",
        "local t = {} for i = 1, 20000 do t[i] = i end while true do table.remove(t, 1) t[#t + 1] = 1 end",
        "local t = {} for i = 1, 20000 do t[i] = i end while true do table.sort(t) end",
        "local t = {} for i = 1, 20000 do t['x' .. i] = i end while true do for k in pairs(t) do break end end",
        "local t = {} for i = 1, 20000 do t['x' .. i] = i end while true do next(t) end",
        "local s = string.rep('x', 1 << 20) while true do local a = s .. 'y' end",
        "local s = string.rep('x', 1 << 20) local a, b = s .. 'y', s .. 'z' while true do local c = a < b end",
        "local t = {} for i = 1, 30000 do t[i] = i end local function f(...) return f(...) end f(table.unpack(t))",
        "repeat until string.format('%s', setmetatable({}, {__tostring = function() return 'x' end})) == 'y'",
    ] {
        let function = compile(&[], CqlType::Text, body).unwrap();
        let mut fuel = FUEL;
        assert_eq!(function.call(&[], &mut fuel), Err(CallError::Fuel(FUEL)), "{body}");
        assert_eq!(fuel, 0);
    }
    // Calls that loop as often as a number says, in Lua.
    check("return string.rep('', 1 << 60)", "");
    let all =
        "table.concat(setmetatable({}, {__index = function() return '' end}), '', 1, 1 << 60)";
    fails(all, "invalid value (at index 1) in table for 'concat': a nil");
    fails(
        "table.sort(setmetatable({}, {__len = function() return 1 << 30 end}), math.type)",
        "cannot be sorted",
    );
}

#[test]
fn memory_and_stack_fail_the_call_only() {
    const MEMORY: &str = "it used more than its 4194304 bytes of memory";
    for body in [
        "local t = {} while true do t[#t + 1] = ('x'):rep(50000) .. #t end",
        "return string.rep('x', 5000000)",
        "local s = 'x' while true do s = s .. s end",
        "return (string.rep('x', 1 << 20):gsub('x', 'xxxxxxxx'))",
        "return table.concat({string.rep('x', 2 << 20), 'y'}, string.rep('z', 3 << 20))",
    ] {
        assert_eq!(eval(body).unwrap_err(), MEMORY, "{body}");
    }
    // Garbage does not count.
    check("for i = 1, 2000 do local t = string.rep('x', 10000) end return 'done'", "done");
    check("local s = '' for i = 1, 3000 do s = s .. 'x' end return #s", "3000");
    fails("return string.rep('x', 1 << 62, 'y')", "memory");
    fails("return table.unpack({}, 1, 1e7)", "too many results to unpack");
    let text = vec![b'x'; 5 * 1024 * 1024];
    let blob = map(CqlType::Blob, Some(&text), CqlType::Int, "return 1");
    assert_eq!(blob.unwrap_err(), MEMORY);
    // One table in another many times is as large as it is written.
    let lists = CqlType::list(CqlType::list(CqlType::Text, true), true);
    let body = "local inner, outer = {}, {}
                for i = 1, 1000 do inner[i] = 'abcdefghij' end
                for i = 1, 1000 do outer[i] = inner end
                return outer";
    returns(
        lists,
        body,
        "error: it returned no valid frozen<list<frozen<list<text>>>>: it has more than 4194304 bytes",
    );
}

#[test]
fn deep_nesting_fails_before_the_stack_of_the_shard_does() {
    for body in [
        "local function f(s) return (s:gsub('x', f)) end return f('x')",
        "local function f() local ok, e = pcall(f) error(e, 0) end return f()",
        "local t = setmetatable({}, {}) getmetatable(t).__index = function(t, k) return t[k] end return t.x",
        "local function f(a, b) table.sort({1, 2, 3}, f) return a < b end f(1, 2)",
        "local m = {} m.__tostring = function(t) return tostring(t) end return tostring(setmetatable({}, m))",
        "local m = {} m.__concat = function(a, b) return a .. b end local t = setmetatable({}, m) return t .. t",
        "return string.rep('a', 100000):match(string.rep('(a', 10) .. string.rep('a?', 5000))",
    ] {
        let body = body.to_owned();
        let outcome = std::thread::Builder::new()
            .stack_size(2 << 20)
            .spawn(move || eval(&body))
            .unwrap()
            .join();
        let outcome = outcome.unwrap();
        assert!(outcome.is_err(), "{outcome:?}");
    }
    for body in [
        format!("return {}1{}", "(".repeat(30_000), ")".repeat(30_000)),
        format!("return {}1", "not ".repeat(15_000)),
        format!("return {}{}", "{".repeat(30_000), "}".repeat(30_000)),
        "do ".repeat(20_000),
        "x = function() ".repeat(4_000),
        format!("return {}", "a..".repeat(20_000)),
    ] {
        let refused = std::thread::Builder::new()
            .stack_size(2 << 20)
            .spawn(move || compile(&[], CqlType::Int, &body).is_err())
            .unwrap()
            .join();
        assert!(refused.unwrap());
    }
}

#[test]
fn a_call_pays_for_its_state_and_its_body() {
    let spent = |body: &str| {
        let function = compile(&[], CqlType::Int, body).unwrap();
        let mut fuel = FUEL;
        function.call(&[], &mut fuel).unwrap();
        FUEL - fuel
    };
    assert_eq!(spent("return 1"), 2_008);
    assert_eq!(spent("return 1 --"), 2_011);
    let loops = spent("for i = 1, 100000 do end return 1");
    assert!((100_000..110_000).contains(&loops), "{loops}");
    // The same call with much in memory costs more.
    let heavy = spent("local s = string.rep('x', 1 << 20) for i = 1, 20000 do end return 1");
    assert!(heavy > 1_000_000, "{heavy}");
    let function = compile(&[], CqlType::Int, "return 1").unwrap();
    assert_eq!(function.call(&[], &mut 1_000), Err(CallError::Fuel(1_000)));
}

#[test]
fn equal_calls_use_equal_fuel_and_give_equal_results() {
    let body = "local t = {}
                for i = 1, 500 do t['key' .. i * 7 % 501] = i end
                local s = {}
                for k, v in pairs(t) do s[#s + 1] = k .. v end
                return table.concat(s, ',')";
    let function = compile(&[], CqlType::Text, body).unwrap();
    let mut first = FUEL;
    let expect = function.call(&[], &mut first).unwrap();
    for _ in 0..20 {
        let mut fuel = FUEL;
        assert_eq!(function.call(&[], &mut fuel).unwrap(), expect);
        assert_eq!(fuel, first);
    }
}
