use proptest::prelude::*;
use types::CqlType;

use super::*;

fn signature(name: &str, args: &[CqlType], returns: CqlType, nullable: bool) -> Signature {
    Signature {
        name: name.to_owned(),
        arg_names: (0..args.len()).map(|i| format!("a{i}")).collect(),
        args: args.to_vec(),
        returns,
        called_on_null_input: nullable,
    }
}

fn compile(
    args: &[CqlType],
    returns: CqlType,
    nullable: bool,
    body: &str,
) -> Result<Function, CompileError> {
    let signature = signature("f", args, returns, nullable);
    Function::compile(Language::Wasm, signature, body, &Limits::default())
}

fn run(function: &Function, args: &[Option<&[u8]>]) -> Result<Option<Vec<u8>>, CallError> {
    function.call(args, &mut 1_000_000)
}

const FIB: &str = r#"(module
    (func $fib (param $n i64) (result i64)
        (if (i64.lt_s (local.get $n) (i64.const 2)) (then (return (local.get $n))))
        (i64.add
            (call $fib (i64.sub (local.get $n) (i64.const 1)))
            (call $fib (i64.sub (local.get $n) (i64.const 2)))))
    (export "f" (func $fib)))"#;

/// Gives its argument back, counting calls in memory, which must not be seen by the next call.
fn echo(version: u8) -> String {
    format!(
        r#"(module
        (memory (export "memory") 1)
        (global (export "_scylla_abi") i32 (i32.const 1024))
        (data (i32.const 1024) "\{version:02}")
        (global $next (mut i32) (i32.const 2048))
        (func (export "_scylla_malloc") (param i32) (result i32)
            (global.get $next)
            (global.set $next (i32.add (global.get $next) (local.get 0))))
        (func (export "_scylla_free") (param i32))
        (func (export "f") (param i64) (result i64)
            (i32.store (i32.const 0) (i32.add (i32.load (i32.const 0)) (i32.const 1)))
            (if (i32.ne (i32.load (i32.const 0)) (i32.const 1)) (then unreachable))
            (local.get 0)))"#
    )
}

#[test]
fn numbers_go_in_and_out_as_numbers() {
    let fib = compile(&[CqlType::Bigint], CqlType::Bigint, false, FIB).unwrap();
    let twelve = 12_i64.to_be_bytes();
    assert_eq!(run(&fib, &[Some(&twelve)]), Ok(Some(144_i64.to_be_bytes().to_vec())));
    assert_eq!(run(&fib, &[None]), Ok(None));
    for (ty, wasm, value) in [
        (CqlType::Int, "i32", (-5_i32).to_be_bytes().to_vec()),
        (CqlType::Smallint, "i32", (-300_i16).to_be_bytes().to_vec()),
        (CqlType::Tinyint, "i32", vec![0x80]),
        (CqlType::Boolean, "i32", vec![1]),
        (CqlType::Float, "f32", 1.5_f32.to_be_bytes().to_vec()),
        (CqlType::Double, "f64", (-2.5_f64).to_be_bytes().to_vec()),
    ] {
        let body =
            format!("(module (func (export \"f\") (param {wasm}) (result {wasm}) (local.get 0)))");
        let same = compile(std::slice::from_ref(&ty), ty.clone(), false, &body).unwrap();
        assert_eq!(run(&same, &[Some(&value)]), Ok(Some(value)));
    }
}

#[test]
fn other_values_go_through_memory_in_both_versions() {
    for version in [1, 2] {
        let body = echo(version);
        let same = compile(&[CqlType::Text], CqlType::Text, false, &body).unwrap();
        for _ in 0..2 {
            assert_eq!(run(&same, &[Some("grüß".as_bytes())]), Ok(Some("grüß".into())));
        }
        assert_eq!(run(&same, &[Some(b"")]), Ok(Some(Vec::new())));
        let nullable = compile(&[CqlType::Int], CqlType::Int, true, &body).unwrap();
        assert_eq!(run(&nullable, &[None]), Ok(None));
        assert_eq!(run(&nullable, &[Some(&[0, 0, 0, 7])]), Ok(Some(vec![0, 0, 0, 7])));
    }
    let unknown = compile(&[CqlType::Text], CqlType::Text, false, &echo(3)).unwrap();
    let error = run(&unknown, &[Some(b"")]).unwrap_err();
    assert_eq!(error.to_string(), "version 3 of the ABI is not known");
}

#[test]
fn a_module_may_be_given_in_its_binary_form() {
    let hex = "0061736d010000000105016000017f03020100070501016600000a06010400412a0b";
    for body in [hex.to_owned(), format!("0x{}", hex.to_uppercase())] {
        let answer = compile(&[], CqlType::Int, false, &body).unwrap();
        assert_eq!(run(&answer, &[]), Ok(Some(vec![0, 0, 0, 42])));
    }
    assert!(compile(&[], CqlType::Int, false, &hex[..hex.len() - 1]).is_err());
}

#[test]
fn a_body_that_does_not_fit_is_refused_with_the_reason() {
    let refused = |args: &[CqlType], returns: CqlType, nullable: bool, body: &str| {
        compile(args, returns, nullable, body).unwrap_err().to_string()
    };
    assert_eq!(
        refused(&[CqlType::Bigint], CqlType::Int, false, FIB),
        "the exported function \"f\" is (param i64) (result i64), but its declaration needs (param \
         i64) (result i32)"
    );
    let other = FIB.replace("export \"f\"", "export \"fib\"");
    assert_eq!(
        refused(&[CqlType::Bigint], CqlType::Bigint, false, &other),
        "the module exports no function \"f\" (it exports: fib)"
    );
    assert!(
        refused(&[CqlType::Bigint], CqlType::Bigint, true, FIB)
            .starts_with("the module must export the i32 global \"_scylla_abi\"")
    );
    let imports = "(module (import \"env\" \"now\" (func)) (func (export \"f\")))";
    assert_eq!(
        refused(&[], CqlType::Int, false, imports),
        "the module imports env.now, and functions have no imports"
    );
    assert!(refused(&[], CqlType::Int, false, "(module (func").contains("at 1:"));
    assert!(refused(&[], CqlType::Int, false, "return 1;").contains("at 1:1"));
    assert_eq!(
        refused(&[], CqlType::Int, false, &" ".repeat(BODY_BYTES_MAX + 1)),
        "the body has more than 4194304 bytes"
    );
}

#[test]
fn an_endless_function_ends_with_its_fuel() {
    let body = "(module (func (export \"f\") (result i32) (loop (br 0)) (i32.const 1)))";
    let endless = compile(&[], CqlType::Int, false, body).unwrap();
    let mut fuel = 100_000;
    assert_eq!(endless.call(&[], &mut fuel), Err(CallError::Fuel(100_000)));
    assert!(fuel < 1_000, "{fuel} are left");
    let start = "(module (func $s (loop (br 0))) (start $s) (func (export \"f\") (result i32) \
                 (i32.const 1)))";
    let endless = compile(&[], CqlType::Int, false, start).unwrap();
    assert_eq!(endless.call(&[], &mut 100_000), Err(CallError::Fuel(100_000)));
}

#[test]
fn memory_stack_and_traps_fail_the_call_only() {
    let deep = "(module (func $f (export \"f\") (result i32) (call $f)))";
    let deep = compile(&[], CqlType::Int, false, deep).unwrap();
    assert_eq!(
        deep.call(&[], &mut 10_000_000),
        Err(CallError::Trap("call stack exhausted".to_owned()))
    );
    let large = "(module (memory 1000) (func (export \"f\") (result i32) (i32.const 1)))";
    let large = compile(&[], CqlType::Int, false, large).unwrap();
    assert!(matches!(run(&large, &[]), Err(CallError::Trap(_))));
    // A module may try to grow, and gets the answer that it cannot.
    let grow = "(module (memory 1) (func (export \"f\") (result i32) (memory.grow (i32.const \
                1000))))";
    let grow = compile(&[], CqlType::Int, false, grow).unwrap();
    assert_eq!(run(&grow, &[]), Ok(Some(vec![0xff; 4])));
    let text = vec![b'x'; 5 * 1024 * 1024];
    let echo = compile(&[CqlType::Blob], CqlType::Blob, false, &echo(1)).unwrap();
    let error = run(&echo, &[Some(&text)]).unwrap_err();
    assert_eq!(error.to_string(), "arguments of 5242880 bytes do not fit its memory");
    let trap = "(module (func (export \"f\") (result i32) unreachable))";
    let trap = compile(&[], CqlType::Int, false, trap).unwrap();
    assert!(matches!(run(&trap, &[]), Err(CallError::Trap(_))));
}

#[test]
fn what_reaches_outside_fails_when_it_is_called() {
    let body = r#"(module
        (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32) (result i32)))
        (func (export "f") (param i32) (result i32)
            (if (result i32) (local.get 0)
                (then (call $write (i32.const 1)))
                (else (i32.const 5)))))"#;
    let f = compile(&[CqlType::Int], CqlType::Int, false, body).unwrap();
    assert_eq!(run(&f, &[Some(&[0; 4])]), Ok(Some(vec![0, 0, 0, 5])));
    let error = run(&f, &[Some(&[0, 0, 0, 1])]).unwrap_err().to_string();
    assert!(error.contains("functions have no input or output"), "{error}");
}

#[test]
fn a_result_that_is_no_value_is_an_error() {
    let constant = |packed: i64| {
        format!(
            r#"(module (memory (export "memory") 1)
            (global (export "_scylla_abi") i32 (i32.const 8))
            (data (i32.const 8) "\01\ff\ff")
            (func (export "f") (result i64) (i64.const {packed})))"#
        )
    };
    let text = |packed| compile(&[], CqlType::Text, false, &constant(packed)).unwrap();
    assert_eq!(run(&text(abi::pack(-1, 0)), &[]), Ok(None));
    assert!(matches!(run(&text(abi::pack(2, 9)), &[]), Err(CallError::Abi(_))));
    assert!(matches!(run(&text(abi::pack(9, 65_530)), &[]), Err(CallError::Abi(_))));
    assert!(matches!(run(&text(abi::pack(i32::MAX, u32::MAX)), &[]), Err(CallError::Abi(_))));
    let uuid = compile(&[], CqlType::Uuid, false, &constant(abi::pack(3, 8))).unwrap();
    assert!(matches!(run(&uuid, &[]), Err(CallError::Abi(_))));
}

/// One instruction that moves much costs as much as many that move little.
#[test]
fn bulk_instructions_cost_fuel_by_their_bytes() {
    let fill = "(memory.fill (i32.const 0) (i32.const 7) (i32.const 65536))";
    let copy = "(memory.copy (i32.const 65536) (i32.const 0) (i32.const 65536))";
    let init = "(memory.init $d (i32.const 0) (i32.const 0) (i32.const 4096))";
    for (bulk, times) in [(fill, 2_000), (copy, 2_000), (init, 30_000)] {
        let body = format!(
            r#"(module (memory 2) (data $d "{}")
            (func (export "f") (result i32) (local $n i32)
                (loop $again {bulk}
                    (local.set $n (i32.add (local.get $n) (i32.const 1)))
                    (br_if $again (i32.lt_u (local.get $n) (i32.const {times}))))
                (local.get $n)))"#,
            "x".repeat(4096)
        );
        let function = compile(&[], CqlType::Int, false, &body).unwrap();
        assert_eq!(run(&function, &[]), Err(CallError::Fuel(1_000_000)), "{bulk}");
    }
}

/// Deeply nested bodies may be refused, but must not overflow the stack of the shard.
#[test]
fn deep_nesting_is_compiled_or_refused() {
    const DEEP: usize = 200_000;
    let blocks = format!(
        "(module (func (export \"f\") (result i32) {} {} i32.const 1))",
        "block ".repeat(DEEP),
        "end ".repeat(DEEP)
    );
    let folded = format!(
        "(module (func (export \"f\") (result i32) {} {} (i32.const 1)))",
        "(block ".repeat(DEEP),
        ")".repeat(DEEP)
    );
    let sum = format!(
        "(module (func (export \"f\") (result i32) {}(i32.const 1){}))",
        "(i32.eqz ".repeat(DEEP),
        ")".repeat(DEEP)
    );
    let comments = format!("{}{} (module)", "(; ".repeat(DEEP), ";)".repeat(DEEP));
    let types = format!("(module {}{})", "(type (func (param ".repeat(DEEP), ")))".repeat(DEEP));
    for body in [blocks, folded, sum, comments, types, "(".repeat(DEEP)] {
        let compiled = std::thread::Builder::new()
            .stack_size(2 << 20)
            .spawn(move || {
                if let Ok(function) = compile(&[], CqlType::Int, false, &body) {
                    let _ = run(&function, &[]);
                }
            })
            .unwrap();
        compiled.join().unwrap();
    }
}

proptest! {
    #[test]
    fn sizes_and_addresses_survive_packing(size in any::<i32>(), address in any::<u32>()) {
        prop_assert_eq!(abi::unpack(abi::pack(size, address)), (size, address));
    }

    #[test]
    fn no_body_panics(body in "[ -~]{0,80}", bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
        let _ = compile(&[], CqlType::Int, false, &body);
        let _ = compile(&[], CqlType::Int, false, &format!("(module {body})"));
        let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        let _ = compile(&[], CqlType::Int, false, &format!("0061736d01000000{hex}"));
    }
}
