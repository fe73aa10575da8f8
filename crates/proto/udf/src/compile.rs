//! From a body to code that was checked against its signature.

use types::CqlType;
use wasmi::{Config, Engine, ExternType, FuncType, Module, ValType};

use crate::abi::{ABI, MALLOC, Passing};
use crate::{BODY_BYTES_MAX, Code, CompileError, Limits, Signature};

/// Imports of this module are allowed, so that what compilers make for WASI can be used; calling one
/// fails.
pub(crate) const WASI: &str = "wasi_snapshot_preview1";

fn error<T>(text: impl Into<String>) -> Result<T, CompileError> {
    Err(CompileError(text.into()))
}

/// The binary form of a body.
fn binary(body: &str) -> Result<Vec<u8>, CompileError> {
    let trimmed = body.trim();
    let digits = trimmed.strip_prefix("0x").unwrap_or(trimmed);
    // The magic number of the binary form; no text begins so.
    if !digits.get(..8).is_some_and(|magic| magic.eq_ignore_ascii_case("0061736d")) {
        return wat::parse_str(body).map_err(|e| CompileError(first_line(&e.to_string())));
    }
    let digits: Option<Vec<u8>> = digits.chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect();
    match digits {
        Some(digits) if digits.len().is_multiple_of(2) => {
            let byte = |pair: &[u8]| pair.iter().fold(0, |all, digit| all << 4 | digit);
            Ok(digits.chunks(2).map(byte).collect())
        }
        _ => error("the hexadecimal digits of the module are not complete"),
    }
}

/// Returns the error without the excerpt of the source below it.
fn first_line(text: &str) -> String {
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default().trim();
    match lines.find_map(|line| line.trim().strip_prefix("-->")) {
        Some(place) => format!("{first} at {}", place.trim().trim_start_matches("<anon>:")),
        None => first.to_owned(),
    }
}

pub(crate) fn compile(
    signature: Signature,
    body: &str,
    limits: &Limits,
) -> Result<Code, CompileError> {
    if body.len() > BODY_BYTES_MAX {
        return error(format!("the body has more than {BODY_BYTES_MAX} bytes"));
    }
    let wasm = binary(body)?;
    let mut config = Config::default();
    config.consume_fuel(true).wasm_multi_memory(false);
    let engine = Engine::new(&config);
    let module =
        Module::new(&engine, &wasm).map_err(|e| CompileError(first_line(&e.to_string())))?;
    for import in module.imports() {
        let allowed = import.module() == WASI && matches!(import.ty(), ExternType::Func(_));
        if !allowed {
            return error(format!(
                "the module imports {}.{}, and functions have no imports",
                import.module(),
                import.name()
            ));
        }
    }
    let passing = |ty: &CqlType| match signature.called_on_null_input {
        // No native number stands for null.
        true => Passing::Memory,
        false => Passing::of(ty),
    };
    let args: Vec<Passing> = signature.args.iter().map(passing).collect();
    let returns = passing(&signature.returns);
    check_export(&module, &signature, &args, returns)?;
    if args.contains(&Passing::Memory) || returns == Passing::Memory {
        check_memory(&module)?;
    }
    Ok(Code { signature, args, returns, engine, module, memory_bytes: limits.memory_bytes })
}

fn check_export(
    module: &Module,
    signature: &Signature,
    args: &[Passing],
    returns: Passing,
) -> Result<(), CompileError> {
    let name = &signature.name;
    let found = match module.get_export(name) {
        Some(ExternType::Func(ty)) => ty,
        Some(_) => return error(format!("the export \"{name}\" is no function")),
        None => {
            let exports: Vec<&str> = module
                .exports()
                .filter(|e| matches!(e.ty(), ExternType::Func(_)))
                .map(|e| e.name())
                .collect();
            return error(format!(
                "the module exports no function \"{name}\" (it exports: {})",
                exports.join(", ")
            ));
        }
    };
    let params: Vec<ValType> = args.iter().map(|arg| arg.wasm()).collect();
    if found.params() != params || found.results() != [returns.wasm()] {
        return error(format!(
            "the exported function \"{name}\" is {}, but its declaration needs {}",
            text_of(&found),
            text_of(&FuncType::new(params, [returns.wasm()]))
        ));
    }
    Ok(())
}

/// Checks the exports that values in memory need.
fn check_memory(module: &Module) -> Result<(), CompileError> {
    match module.get_export(ABI) {
        Some(ExternType::Global(global)) if global.content() == ValType::I32 => {}
        _ => {
            return error(format!(
                "the module must export the i32 global \"{ABI}\", the address of the version of its \
                 ABI, as values of these types go through memory"
            ));
        }
    }
    let memory = module.exports().any(|e| matches!(e.ty(), ExternType::Memory(_)));
    if !memory {
        return error("the module must export its memory, as values of these types go through it");
    }
    match module.get_export(MALLOC) {
        None => Ok(()),
        Some(ExternType::Func(ty))
            if ty.params() == [ValType::I32] && ty.results() == [ValType::I32] =>
        {
            Ok(())
        }
        Some(_) => error(format!("the export \"{MALLOC}\" must be (param i32) (result i32)")),
    }
}

fn text_of(ty: &FuncType) -> String {
    let list = |what: &str, types: &[ValType]| -> String {
        let types: Vec<String> =
            types.iter().map(|ty| format!("{ty:?}").to_ascii_lowercase()).collect();
        format!("({what} {})", types.join(" "))
    };
    format!("{} {}", list("param", ty.params()), list("result", ty.results()))
}
