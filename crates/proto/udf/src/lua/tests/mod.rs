//! Bodies in Lua: signatures, arguments, results.

mod bounds;
mod library;
mod values;

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

/// Runs a body without arguments and returns its result as text.
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

/// Runs a body on a value and returns its result as text.
fn map(from: CqlType, value: Option<&[u8]>, to: CqlType, body: &str) -> Result<String, String> {
    let function = compile(&[from], to.clone(), body).unwrap();
    match call(&function, &[value]) {
        Ok(Some(bytes)) => Ok(to.format_cql_literal(&bytes)),
        Ok(None) => Ok("null".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Checks the result of a body without arguments, as a value of the type.
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
