use std::sync::Arc;

use proptest::prelude::*;
use types::wire::{encode_collection, encode_map, encode_tuple, encode_vector};
use types::{CqlType, Duration, UdtType};

use crate::lua::LUA_BODY_BYTES_MAX;
use crate::{CallError, CompileError, Function, Language, Limits, Signature};

const FUEL: u64 = 10_000_000;

/// Arguments are named a, b, c and so on.
fn signature(args: &[CqlType], returns: CqlType) -> Signature {
    Signature {
        name: "f".to_owned(),
        arg_names: ('a'..).take(args.len()).map(String::from).collect(),
        args: args.to_vec(),
        returns,
        called_on_null_input: true,
    }
}

fn compile(args: &[CqlType], returns: CqlType, body: &str) -> Result<Function, CompileError> {
    Function::compile(Language::Lua, signature(args, returns), body, &Limits::default())
}

fn call(function: &Function, args: &[Option<&[u8]>]) -> Result<Option<Vec<u8>>, CallError> {
    function.call(args, &mut { FUEL })
}

/// What a body without arguments returns as text.
fn eval(body: &str) -> Result<String, String> {
    let function = compile(&[], CqlType::Text, body).map_err(|error| error.to_string())?;
    match call(&function, &[]) {
        Ok(Some(bytes)) => Ok(String::from_utf8(bytes).unwrap()),
        Ok(None) => Ok("null".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

#[track_caller]
fn check(body: &str, expect: &str) {
    assert_eq!(eval(body).as_deref(), Ok(expect), "{body}");
}

#[track_caller]
fn fails(body: &str, expect: &str) {
    let error = eval(body).unwrap_err();
    assert!(error.contains(expect), "{body}: {error}");
}

/// What a body makes of a value.
fn map(from: CqlType, value: Option<&[u8]>, to: CqlType, body: &str) -> Result<String, String> {
    let function = compile(&[from], to.clone(), body).unwrap();
    match call(&function, &[value]) {
        Ok(Some(bytes)) => Ok(to.format_cql_literal(&bytes)),
        Ok(None) => Ok("null".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// What a body without arguments returns as a value of the type.
#[track_caller]
fn returns(to: CqlType, body: &str, expect: &str) {
    let got = map(CqlType::Int, None, to, body);
    match expect.strip_prefix("error: ") {
        Some(expect) => assert_eq!(got.unwrap_err(), expect, "{body}"),
        None => assert_eq!(got.as_deref(), Ok(expect), "{body}"),
    }
}

fn udt() -> CqlType {
    CqlType::Udt(Arc::new(UdtType {
        keyspace: "ks".into(),
        name: "point".into(),
        fields: vec![("x".to_owned(), CqlType::Int), ("label".to_owned(), CqlType::Text)],
        frozen: true,
    }))
}

fn int(n: i32) -> Vec<u8> {
    n.to_be_bytes().to_vec()
}

#[test]
fn arguments_are_locals_and_what_is_returned_is_the_result() {
    let function = compile(&[CqlType::Int, CqlType::Int], CqlType::Int, "return a * b").unwrap();
    assert_eq!(call(&function, &[Some(&int(6)), Some(&int(7))]), Ok(Some(int(42))));
    let fibonacci =
        "local function fib(n) if n < 2 then return n end return fib(n-1) + fib(n-2) end
                     return fib(a)";
    let function = compile(&[CqlType::Int], CqlType::Bigint, fibonacci).unwrap();
    assert_eq!(call(&function, &[Some(&int(15))]), Ok(Some(610_i64.to_be_bytes().to_vec())));
    check("return 'a', 'b'", "a");
    check("local x = 'nothing is returned'", "null");
    check("return nil", "null");
}

#[test]
fn null_is_nil_unless_the_function_says_that_nulls_give_null() {
    let body = "if a == nil then return 'nil' end return 'not nil'";
    assert_eq!(map(CqlType::Int, None, CqlType::Text, body).as_deref(), Ok("'nil'"));
    let mut signature = signature(&[CqlType::Int], CqlType::Text);
    signature.called_on_null_input = false;
    let f = Function::compile(Language::Lua, signature, body, &Limits::default()).unwrap();
    assert_eq!(call(&f, &[None]), Ok(None));
    assert_eq!(call(&f, &[Some(&int(1))]), Ok(Some(b"not nil".to_vec())));
}

#[test]
fn a_body_that_is_no_lua_is_refused_with_its_place() {
    let refused = |body: &str| compile(&[CqlType::Int], CqlType::Int, body).unwrap_err().0;
    assert_eq!(refused("return a +"), "f:1: unexpected symbol near <eof>");
    assert_eq!(refused("return 1\n\nend"), "f:3: <eof> expected near 'end'");
    assert_eq!(refused("(module"), "f:1: ')' expected near <eof>");
    assert_eq!(refused("goto nowhere"), "f:1: no visible label 'nowhere' for <goto> at line 1");
    assert!(refused("\u{1b}Lua\u{54}").contains("unexpected symbol"), "bytecode");
    let none = compile(&[], CqlType::Int, "\u{1b}LuaT\0").unwrap_err().0;
    assert!(none.contains("attempt to load a binary chunk"), "{none}");
    let long = format!("--{}\nreturn 1", " ".repeat(LUA_BODY_BYTES_MAX));
    assert!(refused(&long).contains("more than 65536 bytes"));
    assert!(compile(&[], CqlType::Int, &long[..LUA_BODY_BYTES_MAX]).is_ok());
}

#[test]
fn names_and_types_without_a_form_in_lua_are_refused() {
    for (name, fits) in [
        ("val", true),
        ("_1", true),
        ("End", true),
        ("end", false),
        ("goto", false),
        ("1a", false),
        ("a b", false),
        ("ä", false),
        ("", false),
        ("a = os; --", false),
    ] {
        let mut signature = signature(&[CqlType::Int], CqlType::Int);
        signature.arg_names = vec![name.to_owned()];
        let made = Function::compile(Language::Lua, signature, "return 1", &Limits::default());
        let expect = format!("the argument \"{name}\" has a name that is none in Lua");
        assert_eq!(made.err().map(|error| error.0), (!fits).then_some(expect));
    }
    let refused = |ty: CqlType| compile(&[ty], CqlType::Int, "return 1").err().map(|e| e.0);
    for element in [
        CqlType::Duration,
        udt(),
        CqlType::tuple([CqlType::Int]),
        CqlType::list(CqlType::Int, true),
        CqlType::vector(CqlType::Float, 2),
    ] {
        let map = CqlType::map(element.clone(), CqlType::Int, false);
        let text = format!("{map} has no form in Lua: its keys would be tables");
        assert_eq!(refused(map), Some(text));
        assert_eq!(refused(CqlType::map(CqlType::Int, element, false)), None);
    }
    let custom = CqlType::custom(types::CustomType::unknown("com.example.T"));
    assert!(refused(CqlType::list(custom, true)).unwrap().contains("have no form in Lua"));
    assert!(compile(&[], CqlType::Empty, "return 1").is_err());
}

#[test]
fn simple_values_are_numbers_strings_and_booleans() {
    let double = (-2.5_f64).to_be_bytes();
    for (ty, value, lua) in [
        (CqlType::Int, int(-7), "integer -7"),
        (CqlType::Tinyint, vec![0x80], "integer -128"),
        (CqlType::Smallint, vec![0, 9], "integer 9"),
        (CqlType::Bigint, i64::MIN.to_be_bytes().to_vec(), "integer -9223372036854775808"),
        (CqlType::Counter, 5_i64.to_be_bytes().to_vec(), "integer 5"),
        (CqlType::Float, 1.5_f32.to_be_bytes().to_vec(), "float 1.5"),
        (CqlType::Double, double.to_vec(), "float -2.5"),
        (CqlType::Boolean, vec![1], "nil true"),
        (CqlType::Text, "grüß".into(), "nil grüß"),
        (CqlType::Blob, b"a\0b".to_vec(), "nil a\0b"),
        (CqlType::Date, (1_u32 << 31).to_be_bytes().to_vec(), "integer 2147483648"),
        (CqlType::Time, 90_i64.to_be_bytes().to_vec(), "integer 90"),
        (CqlType::Timestamp, 1_000_i64.to_be_bytes().to_vec(), "integer 1000"),
        (CqlType::Inet, vec![127, 0, 0, 1], "nil 127.0.0.1"),
        (CqlType::Uuid, vec![0x11; 16], "nil 11111111-1111-1111-1111-111111111111"),
        (CqlType::Varint, vec![1, 0], "nil 256"),
        (CqlType::Decimal, vec![0, 0, 0, 1, 15], "nil 1.5"),
    ] {
        let body = "return tostring(math.type(a)) .. ' ' .. tostring(a)";
        let function = compile(&[ty.clone()], CqlType::Text, body).unwrap();
        assert_eq!(call(&function, &[Some(&value)]), Ok(Some(lua.into())), "{ty}");
    }
    // What is empty is no number.
    assert_eq!(map(CqlType::Int, Some(b""), CqlType::Text, "return type(a)").unwrap(), "'nil'");
    assert_eq!(map(CqlType::Text, Some(b""), CqlType::Text, "return type(a)").unwrap(), "'string'");
}

#[test]
fn numbers_and_texts_are_made_of_each_other_as_lua_does_it() {
    for (body, expect) in [
        ("return 42", "42"),
        ("return 42.0", "42"),
        ("return '42'", "42"),
        ("return ' 0x2a '", "42"),
        ("return 3000000000", "-1294967296"),
        ("return 1.5", "error: it returned no valid int: 1.5 is no whole number"),
        ("return 'x'", "error: it returned no valid int: a string is no int"),
        ("return {}", "error: it returned no valid int: a table is no int"),
        ("return true", "error: it returned no valid int: a boolean is no int"),
        ("return print", "null"),
        ("return type", "error: it returned no valid int: a function is no int"),
    ] {
        returns(CqlType::Int, body, expect);
    }
    returns(CqlType::Tinyint, "return 200", "-56");
    returns(CqlType::Smallint, "return 65537", "1");
    returns(CqlType::Bigint, "return 2^53", "9007199254740992");
    returns(
        CqlType::Bigint,
        "return 1e300",
        "error: it returned no valid bigint: a number is no bigint",
    );
    returns(CqlType::Double, "return '0.5'", "0.5");
    returns(CqlType::Double, "return 1/0", "Infinity");
    returns(CqlType::Float, "return 1e300", "Infinity");
    returns(CqlType::Double, "return 9007199254740993", "9.007199254740992E15");
    returns(CqlType::Text, "return 12", "'12'");
    returns(CqlType::Text, "return 0.25", "'0.25'");
    returns(CqlType::Blob, "return 'ab\\255'", "0x6162ff");
    returns(CqlType::Boolean, "return false", "false");
    returns(
        CqlType::Boolean,
        "return 0",
        "error: it returned no valid boolean: a number is no boolean",
    );
    let bad = map(CqlType::Int, None, CqlType::Text, "return '\\255'").unwrap_err();
    assert!(bad.starts_with("it returned no valid text: "), "{bad}");
    let bad = map(CqlType::Int, None, CqlType::Ascii, "return 'ü'").unwrap_err();
    assert!(bad.starts_with("it returned no valid ascii: "), "{bad}");
}

#[test]
fn times_addresses_and_ids_are_read_from_texts_too() {
    returns(CqlType::Date, "return 2147483649", "'1970-01-02'");
    returns(CqlType::Date, "return '2024-02-29'", "'2024-02-29'");
    returns(CqlType::Date, "return {year = 2024, month = 2, day = 29}", "'2024-02-29'");
    returns(
        CqlType::Date,
        "return {year = 2023, month = 2, day = 29}",
        "error: it returned no valid date: there is no such date",
    );
    returns(
        CqlType::Date,
        "return {year = 2023, month = 2, day = 1, hour = 1}",
        "error: it returned no valid date: date has no field 'hour'",
    );
    returns(
        CqlType::Date,
        "return {year = 2023, month = 2}",
        "error: it returned no valid date: a date needs the field 'day'",
    );
    returns(CqlType::Date, "return -1", "error: it returned no valid date: -1 is no date");
    returns(CqlType::Time, "return '01:02:03'", "'01:02:03.000000000'");
    returns(CqlType::Time, "return 1000000000", "'00:00:01.000000000'");
    returns(CqlType::Timestamp, "return '1970-01-01T00:00:01Z'", "'1970-01-01T00:00:01.000Z'");
    returns(CqlType::Timestamp, "return 1000.0", "'1970-01-01T00:00:01.000Z'");
    // There is no clock.
    assert!(map(CqlType::Int, None, CqlType::Timestamp, "return 'now'").is_err());
    returns(CqlType::Inet, "return '::1'", "'0:0:0:0:0:0:0:1'");
    returns(CqlType::Inet, "return 'localhost'", "'127.0.0.1'");
    assert!(map(CqlType::Int, None, CqlType::Inet, "return 'no host'").is_err());
    let id = "5132b130-ae79-11e4-ab27-0800200c9a66";
    returns(CqlType::Timeuuid, &format!("return '{id}'"), id);
    returns(CqlType::Uuid, &format!("return '{id}'"), id);
    returns(CqlType::Uuid, "return 'x'", "error: it returned no valid uuid: 'x' is no uuid");
    let other = "return '11111111-1111-4111-8111-111111111111'";
    assert!(map(CqlType::Int, None, CqlType::Timeuuid, other).is_err());
    returns(CqlType::Duration, "return '1mo2d3ns'", "1mo2d3ns");
    returns(CqlType::Duration, "return {months = 1, days = 2, nanoseconds = 3}", "1mo2d3ns");
    returns(
        CqlType::Duration,
        "return {months = 1, days = 2}",
        "error: it returned no valid duration: a duration needs the field 'nanoseconds'",
    );
    assert!(
        map(
            CqlType::Int,
            None,
            CqlType::Duration,
            "return {months = 1, days = -2, nanoseconds = 0}"
        )
        .is_err()
    );
    let duration = Duration::new(1, 2, 3).unwrap().to_bytes();
    let body = "return a.months .. '/' .. a.days .. '/' .. a.nanoseconds";
    assert_eq!(map(CqlType::Duration, Some(&duration), CqlType::Text, body).unwrap(), "'1/2/3'");
}

#[test]
fn large_numbers_calculate_and_convert() {
    let big = "return a * a * a * a * a";
    let nine =
        types::number::varint_to_bytes(&types::number::parse_varint("999999999999").unwrap());
    assert_eq!(
        map(CqlType::Varint, Some(&nine), CqlType::Varint, big).unwrap(),
        "999999999995000000000009999999999990000000000004999999999999"
    );
    let varint = |body: &str, to: CqlType| map(CqlType::Varint, Some(&[0xf9]), to, body); // -7
    for (body, expect) in [
        ("return a + 1", "-6"),
        ("return 1 - a", "8"),
        ("return a // 2", "-4"),
        ("return a % 2", "1"),
        ("return a // -2", "3"),
        ("return a % -2", "-1"),
        ("return -a", "7"),
        ("return a * '2'", "-14"),
        ("return a < 0 and a <= a and a == a + 0 and not (a > 5) and 1 or 0", "1"),
        ("return a < 1/0 and -1/0 < a and 1 or 0", "1"),
        ("return #(a .. 'x')", "3"),
    ] {
        assert_eq!(varint(body, CqlType::Varint).as_deref(), Ok(expect), "{body}");
    }
    assert_eq!(varint("return a / 2", CqlType::Decimal).as_deref(), Ok("-3.5"));
    assert_eq!(varint("return a + 0.25", CqlType::Decimal).as_deref(), Ok("-6.75"));
    assert_eq!(varint("return a", CqlType::Double).as_deref(), Ok("-7.0"));
    for ty in [CqlType::Tinyint, CqlType::Int, CqlType::Bigint, CqlType::Decimal] {
        assert_eq!(varint("return a", ty).as_deref(), Ok("-7"));
    }
    assert_eq!(varint("return a", CqlType::Text).as_deref(), Ok("'-7'"));
    assert_eq!(varint("return string.format('%s', a)", CqlType::Text).as_deref(), Ok("'-7'"));
    assert!(varint("return a // 0", CqlType::Varint).unwrap_err().contains("n//0"));
    assert!(varint("return a / 0", CqlType::Varint).is_err());
    assert!(
        varint("return a + {}", CqlType::Varint).unwrap_err().contains("arithmetic on a table")
    );
    assert!(varint("return a < 'x'", CqlType::Boolean).is_err());
    assert!(varint("return a < 0/0", CqlType::Boolean).is_err());
    returns(
        CqlType::Varint,
        "return '123456789012345678901234567890'",
        "123456789012345678901234567890",
    );
    returns(CqlType::Varint, "return 1e23", "99999999999999991611392");
    returns(CqlType::Decimal, "return 0.1", "0.1");
    returns(CqlType::Decimal, "return '1.50'", "1.50");
    returns(
        CqlType::Varint,
        "return 1.5",
        "error: it returned no valid varint: 1.5 is no whole number",
    );
    returns(CqlType::Varint, "return 1/0", "error: it returned no valid varint: inf is no varint");
    returns(
        CqlType::Varint,
        "return 'abc'",
        "error: it returned no valid varint: 'abc' is no varint",
    );
}

#[test]
fn large_numbers_are_bounded() {
    let varint = |body: &str| map(CqlType::Varint, Some(&[2]), CqlType::Varint, body).unwrap_err();
    assert_eq!(varint("while true do a = a * a end"), "a number has more than 16384 bytes");
    let kept = "for i = 1, 13 do a = a * a end local all = {} for i = 1, 1e6 do all[i] = a + i end";
    assert_eq!(varint(kept), "it used more than its 4194304 bytes of memory");
    // What is not kept goes.
    let dropped = "for i = 1, 13 do a = a * a end for i = 1, 8000 do local x = a + i end return 1";
    assert_eq!(map(CqlType::Varint, Some(&[2]), CqlType::Varint, dropped).as_deref(), Ok("1"));
    let slow = "for i = 1, 15 do a = a * a end while true do local x = a * a / a end";
    let got = varint(slow);
    assert!(got.contains("units of fuel"), "{got}");
    let far = vec![0x7f, 0xff, 0xff, 0xff, 1];
    let got = map(CqlType::Decimal, Some(&far), CqlType::Decimal, "return a + 1");
    assert!(got.is_err(), "{got:?}");
    let large = vec![1; 20_000];
    let got = map(CqlType::Varint, Some(&large), CqlType::Int, "return 1");
    assert_eq!(got.unwrap_err(), "a number has more than 16384 bytes");
}

#[test]
fn collections_are_tables() {
    let list = CqlType::list(CqlType::Int, false);
    let value = encode_collection([int(3), int(1)]).unwrap();
    let body = "table.sort(a) a[#a + 1] = 9 return a";
    assert_eq!(map(list.clone(), Some(&value), list.clone(), body).unwrap(), "[1, 3, 9]");
    let set = CqlType::set(CqlType::Text, false);
    let value = encode_collection(["b", "c"]).unwrap();
    let body = "a.c = nil a.a = true return a";
    assert_eq!(map(set.clone(), Some(&value), set.clone(), body).unwrap(), "{'a', 'b'}");
    let map_type = CqlType::map(CqlType::Text, CqlType::Int, false);
    let value = encode_map([("x", int(1)), ("y", int(2))]).unwrap();
    let body = "a.x = a.x + a.y a.b = 5 return a";
    assert_eq!(
        map(map_type.clone(), Some(&value), map_type.clone(), body).unwrap(),
        "{'b': 5, 'x': 3, 'y': 2}"
    );
    let vector = CqlType::vector(CqlType::Float, 2);
    let value =
        encode_vector(&CqlType::Float, 2, [1_f32.to_be_bytes(), 2_f32.to_be_bytes()]).unwrap();
    let body = "return {a[2], a[1]}";
    assert_eq!(map(vector.clone(), Some(&value), vector.clone(), body).unwrap(), "[2.0, 1.0]");
    for (ty, body, expect) in [
        (&list, "return {}", "[]"),
        (
            &list,
            "return {1, nil, 3}",
            "error: it returned no valid list<int>: the table is no sequence, as a list<int> is",
        ),
        (
            &list,
            "return {x = 1}",
            "error: it returned no valid list<int>: the table is no sequence, as a list<int> is",
        ),
        (&list, "return {1, 'x'}", "error: it returned no valid list<int>: a string is no int"),
        (
            &set,
            "return {'x'}",
            "error: it returned no valid set<text>: in a set<text> each key has the value true",
        ),
        (
            &set,
            "return {[1] = true, ['1'] = true}",
            "error: it returned no valid set<text>: two keys are the same in a set<text>",
        ),
        (
            &map_type,
            "return {a = {}}",
            "error: it returned no valid map<text, int>: a table is no int",
        ),
        (
            &map_type,
            "return {[type] = 1}",
            "error: it returned no valid map<text, int>: keys of type function have no order",
        ),
        (
            &vector,
            "return {1}",
            "error: it returned no valid vector<float, 2>: 1 elements are no vector<float, 2>",
        ),
    ] {
        returns(ty.clone(), body, expect);
    }
    // Metatables are not asked.
    returns(list, "return setmetatable({1}, {__index = function() return 2 end})", "[1]");
}

#[test]
fn tuples_and_user_types_are_tables_with_nil_for_null() {
    let tuple = CqlType::tuple([CqlType::Int, CqlType::Text, CqlType::Int]);
    let value = encode_tuple([Some(int(1)), None, Some(int(3))]).unwrap();
    assert_eq!(
        map(tuple.clone(), Some(&value), tuple.clone(), "return a").unwrap(),
        "(1, null, 3)"
    );
    let body = "return {a[3], tostring(a[2])}";
    assert_eq!(map(tuple.clone(), Some(&value), tuple.clone(), body).unwrap(), "(3, 'nil', null)");
    returns(
        tuple,
        "return {1, 'x', 3, 4}",
        "error: it returned no valid frozen<tuple<int, text, int>>: a frozen<tuple<int, text, int>> has the elements 1 to 3",
    );
    let value = encode_tuple([Some(int(1)), None]).unwrap();
    assert_eq!(map(udt(), Some(&value), udt(), "return a").unwrap(), "{x: 1, label: null}");
    let body = "a.label = 'x is ' .. a.x return a";
    assert_eq!(map(udt(), Some(&value), udt(), body).unwrap(), "{x: 1, label: 'x is 1'}");
    let got = map(CqlType::Int, None, udt(), "return {x = 1, lable = 'a'}").unwrap_err();
    assert!(got.contains("has no field 'lable'"), "{got}");
    let got = map(CqlType::Int, None, udt(), "return {1}").unwrap_err();
    assert!(got.contains("has no field a number"), "{got}");
}

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
    // What is removed on the way is not seen; what is there already may be changed.
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

/// Every way of going on without an end that was found.
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
    // What would take as long as a number says, in Lua.
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

/// What Lua 5.4.8 prints for these.
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

/// Values of a type that have a form in Lua, and what they are afterwards.
fn typed_value() -> impl Strategy<Value = (CqlType, Vec<u8>)> {
    let bytes = |ty: CqlType, len: usize| {
        proptest::collection::vec(any::<u8>(), len).prop_map(move |value| (ty.clone(), value))
    };
    let simple = prop_oneof![
        bytes(CqlType::Tinyint, 1),
        bytes(CqlType::Smallint, 2),
        bytes(CqlType::Int, 4),
        bytes(CqlType::Bigint, 8),
        bytes(CqlType::Counter, 8),
        bytes(CqlType::Timestamp, 8),
        bytes(CqlType::Date, 4),
        bytes(CqlType::Uuid, 16),
        bytes(CqlType::Inet, 4),
        bytes(CqlType::Inet, 16),
        any::<bool>().prop_map(|b| (CqlType::Boolean, vec![u8::from(b)])),
        (0..86_400_000_000_000_i64).prop_map(|n| (CqlType::Time, n.to_be_bytes().to_vec())),
        any::<i64>()
            .prop_map(|n| (CqlType::Timeuuid, types::timeuuid::from_micros(n >> 16, 7).to_vec())),
        "\\PC{0,12}".prop_map(|text| (CqlType::Text, text.into_bytes())),
        "[ -~]{0,12}".prop_map(|text| (CqlType::Ascii, text.into_bytes())),
        proptest::collection::vec(any::<u8>(), 0..12).prop_map(|value| (CqlType::Blob, value)),
        // A NaN may lose its payload, and zero is one key, whatever its sign.
        any::<f64>().prop_map(|n| (CqlType::Double, (n + 0.0).to_be_bytes().to_vec())),
        any::<f32>().prop_map(|n| (CqlType::Float, (n + 0.0).to_be_bytes().to_vec())),
        any::<i128>().prop_map(|n| (CqlType::Varint, types::number::varint_to_bytes(&n.into()))),
        (any::<i128>(), any::<i32>()).prop_map(|(n, scale)| {
            (CqlType::Decimal, types::Decimal { unscaled: n.into(), scale }.to_bytes())
        }),
        (0..i32::MAX, 0..i32::MAX, 0..i64::MAX).prop_map(|(months, days, nanos)| {
            (CqlType::Duration, Duration::new(months, days, nanos).unwrap().to_bytes())
        }),
    ];
    simple.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            (inner.clone(), 0..4_usize).prop_map(|((ty, value), n)| {
                let value = encode_collection(vec![value; n]).unwrap();
                (CqlType::list(ty, true), value)
            }),
            (inner.clone(), 1..4_u32).prop_map(|((ty, value), n)| {
                let vector = encode_vector(&ty, n, vec![value; n as usize]).unwrap();
                (CqlType::vector(ty, n), vector)
            }),
            proptest::collection::vec((inner.clone(), any::<bool>()), 1..4).prop_map(|fields| {
                let value = encode_tuple(fields.iter().map(|((_, v), some)| some.then_some(v)));
                (CqlType::tuple(fields.into_iter().map(|((ty, _), _)| ty)), value.unwrap())
            }),
            proptest::collection::btree_set(any::<i32>(), 0..5).prop_flat_map(move |keys| {
                inner.clone().prop_map(move |(ty, value)| {
                    let entries = keys.iter().map(|k| (k.to_be_bytes(), value.clone()));
                    let value = encode_map(entries).unwrap();
                    (CqlType::map(CqlType::Int, ty, true), value)
                })
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn values_survive_the_way_through_lua((ty, value) in typed_value()) {
        let function = compile(std::slice::from_ref(&ty), ty.clone(), "return a").unwrap();
        let got = call(&function, &[Some(&value)]).unwrap().unwrap();
        // NaN is the only value that is not itself.
        if ty.format_cql_literal(&value).contains("NaN") {
            prop_assert_eq!(ty.format_cql_literal(&got), ty.format_cql_literal(&value));
        } else {
            prop_assert_eq!(got, value, "{}", ty);
        }
    }

    #[test]
    fn sets_survive_the_way_through_lua(
        numbers in proptest::collection::btree_set(any::<i64>(), 0..9),
        texts in proptest::collection::btree_set("[a-z]{0,5}", 0..9),
        doubles in proptest::collection::vec(-1e18..1e18_f64, 0..9),
    ) {
        let mut doubles: Vec<[u8; 8]> = doubles.into_iter().map(|n| (n + 0.0).to_be_bytes()).collect();
        doubles.sort_by(|a, b| CqlType::Double.compare(a, b));
        doubles.dedup();
        for (element, value) in [
            (CqlType::Bigint, encode_collection(numbers.iter().map(|n| n.to_be_bytes()))),
            (CqlType::Varint, encode_collection(
                numbers.iter().map(|n| types::number::varint_to_bytes(&(*n).into())))),
            (CqlType::Text, encode_collection(&texts)),
            (CqlType::Double, encode_collection(&doubles)),
        ] {
            let (ty, value) = (CqlType::set(element, true), value.unwrap());
            let function = compile(std::slice::from_ref(&ty), ty.clone(), "return a").unwrap();
            prop_assert_eq!(call(&function, &[Some(&value)]), Ok(Some(value)));
        }
    }

    #[test]
    fn no_body_panics(body in "[ -~]{0,80}", inside in "[a-z(){}\\[\\]=.,;:'+*#0-9 ]{0,60}") {
        for body in [&body, &format!("return {inside}")] {
            if let Ok(function) = compile(&[CqlType::Int], CqlType::Text, body) {
                let _ = function.call(&[Some(&[0, 0, 0, 1])], &mut 100_000);
            }
        }
    }
}
