//! User functions in WebAssembly: a body becomes a [`Function`], which is called with CQL values.
//!
//! Owns: the check of a body against the signature it is declared with, the way values go in and out
//! (the two versions of ScyllaDB's public ABI, [`abi`]), the bounds of a call. Never: IO, clocks,
//! randomness, threads: a module has no imports but stubs that fail, so what a call gives follows from
//! its arguments alone. No state is kept between two calls.
//!
//! Invariants: INV-udf-1: a call ends after the fuel it is given and within the memory of
//! [`Limits`], whatever the module does. INV-udf-2: what a call returns is a valid value of the
//! declared type, or null.
//!
//! Source: ScyllaDB's documentation, "Wasm support for user-defined functions".

pub mod abi;
mod call;
mod compile;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use types::CqlType;

use crate::abi::Passing;

/// Longest body that is compiled, bytes of text.
pub const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// What one call may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Units of fuel, about one per instruction, of one call.
    pub fuel: u64,
    /// Bytes of linear memory.
    pub memory_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { fuel: 10_000_000, memory_bytes: 4 * 1024 * 1024 }
    }
}

/// What a function is declared as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// Name of the export.
    pub name: String,
    /// Types of the arguments.
    pub args: Vec<CqlType>,
    /// Type of the result.
    pub returns: CqlType,
    /// `CALLED ON NULL INPUT`: every value goes through memory, as native numbers have no null.
    pub called_on_null_input: bool,
}

/// Why a body is no such function.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CompileError(pub String);

/// Why a call gave no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// It did not end in time.
    #[error("it used more than its {0} units of fuel, about one per instruction")]
    Fuel(u64),
    /// The module, its start or the function failed.
    #[error("{0}")]
    Trap(String),
    /// It does not do what the ABI says.
    #[error("{0}")]
    Abi(String),
}

/// A compiled function; clones share the code.
#[derive(Clone)]
pub struct Function(Arc<Code>);

struct Code {
    signature: Signature,
    /// How each argument goes in, and how the result comes out.
    args: Vec<Passing>,
    returns: Passing,
    engine: wasmi::Engine,
    module: wasmi::Module,
    memory_bytes: usize,
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Function").field("signature", &self.0.signature).finish_non_exhaustive()
    }
}

impl Function {
    /// Compiles a body: WebAssembly text, or the binary form as hexadecimal digits.
    ///
    /// # Errors
    /// It is no valid module, needs imports, or exports no function of this name and signature.
    pub fn compile(
        signature: Signature,
        body: &str,
        limits: &Limits,
    ) -> Result<Function, CompileError> {
        compile::compile(signature, body, limits).map(|code| Function(Arc::new(code)))
    }

    /// What it was declared as.
    pub fn signature(&self) -> &Signature {
        &self.0.signature
    }

    /// Calls it in a new instance of the module. `fuel` is what may be used, and gets what is left.
    /// A null argument of a function that is not called on null input gives null.
    ///
    /// # Errors
    /// The call used too much, failed, or returned what is no value of the type.
    pub fn call(
        &self,
        args: &[Option<&[u8]>],
        fuel: &mut u64,
    ) -> Result<Option<Vec<u8>>, CallError> {
        let signature = &self.0.signature;
        if args.len() != signature.args.len() {
            return Err(CallError::Abi(format!("{} arguments are needed", signature.args.len())));
        }
        if !signature.called_on_null_input && args.iter().any(Option::is_none) {
            return Ok(None);
        }
        call::call(&self.0, args, fuel)
    }
}
