//! User functions in WebAssembly and, with the feature `lua`, in Lua: a body becomes a [`Function`],
//! which is called with CQL values.
//!
//! Owns: the check of a body against the signature it is declared with, the passing of values in and
//! out (the two versions of ScyllaDB's public ABI, [`abi`]; values of Lua's, `lua`), the bounds of a
//! call. Never: IO, clocks, randomness, threads: a module has no imports but stubs that fail, a body
//! in Lua no library that reaches outside, so the result of a call follows from its arguments alone.
//! No state is kept between two calls.
//!
//! Invariants: INV-udf-1: a call ends after the fuel it is given and within the memory of
//! [`Limits`], whatever the body does. INV-udf-2: the result of a call is a valid value of the
//! declared type, or null.
//!
//! Source: ScyllaDB's documentation, "Wasm support for user-defined functions", "CQL to Lua type
//! mapping".

pub mod abi;
mod call;
mod compile;
#[cfg(feature = "lua")]
mod lua;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use types::CqlType;

use crate::abi::Passing;
#[cfg(feature = "lua")]
pub use crate::lua::LUA_BODY_BYTES_MAX;

/// Longest body of WebAssembly that is compiled, bytes of text.
pub const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Limits of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Units of fuel, about one per instruction, of one call.
    pub fuel: u64,
    /// Bytes of linear memory, or of the values of a function in Lua.
    pub memory_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { fuel: 10_000_000, memory_bytes: 4 * 1024 * 1024 }
    }
}

/// Language of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// WebAssembly.
    Wasm,
    /// Lua 5.4.
    #[cfg(feature = "lua")]
    Lua,
}

/// Reason why functions in a language cannot be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoLanguage {
    /// This build has it not: the name of the feature that a build needs.
    NotBuilt(&'static str),
    /// No build has it.
    Unknown,
}

impl Language {
    /// The language of a name as it is written in CREATE FUNCTION, in lower case.
    ///
    /// # Errors
    /// The language is unknown, or not in this build.
    pub fn of(name: &str) -> Result<Language, NoLanguage> {
        match name {
            "wasm" => Ok(Language::Wasm),
            #[cfg(feature = "lua")]
            "lua" => Ok(Language::Lua),
            #[cfg(not(feature = "lua"))]
            "lua" => Err(NoLanguage::NotBuilt("lua")),
            _ => Err(NoLanguage::Unknown),
        }
    }

    /// Its name in prose.
    pub fn title(self) -> &'static str {
        match self {
            Language::Wasm => "WebAssembly",
            #[cfg(feature = "lua")]
            Language::Lua => "Lua",
        }
    }
}

/// Declaration of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// Name of the export; in Lua the name in messages.
    pub name: String,
    /// Names of the arguments, which are locals in Lua and nothing in WebAssembly.
    pub arg_names: Vec<String>,
    /// Types of the arguments.
    pub args: Vec<CqlType>,
    /// Type of the result.
    pub returns: CqlType,
    /// `CALLED ON NULL INPUT`: every value goes through memory, as native numbers have no null.
    pub called_on_null_input: bool,
}

/// Error in the body of a function.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CompileError(pub String);

/// Error of a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// It did not end in time.
    #[error("it used more than its {0} units of fuel, about one per instruction")]
    Fuel(u64),
    /// The module, its start or the function failed.
    #[error("{0}")]
    Trap(String),
    /// It violates the ABI.
    #[error("{0}")]
    Abi(String),
}

/// A compiled function; clones share the code.
#[derive(Clone)]
pub struct Function(Arc<Body>);

enum Body {
    Wasm(Code),
    #[cfg(feature = "lua")]
    Lua(lua::Code),
}

struct Code {
    signature: Signature,
    /// Passing of each argument, and of the result.
    args: Vec<Passing>,
    returns: Passing,
    engine: wasmi::Engine,
    module: wasmi::Module,
    memory_bytes: usize,
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Function").field("signature", self.signature()).finish_non_exhaustive()
    }
}

impl Function {
    /// Compiles a body: WebAssembly text, or the binary form as hexadecimal digits; a block of Lua,
    /// whose locals are the arguments and which returns the result.
    ///
    /// # Errors
    /// It is no valid module, needs imports, or exports no function of this name and signature. It is
    /// no block of Lua, or the signature has a type or a name that has no form there.
    pub fn compile(
        language: Language,
        signature: Signature,
        body: &str,
        limits: &Limits,
    ) -> Result<Function, CompileError> {
        let body = match language {
            Language::Wasm => Body::Wasm(compile::compile(signature, body, limits)?),
            #[cfg(feature = "lua")]
            Language::Lua => Body::Lua(lua::compile(signature, body, limits)?),
        };
        Ok(Function(Arc::new(body)))
    }

    /// Returns its declaration.
    pub fn signature(&self) -> &Signature {
        match &*self.0 {
            Body::Wasm(code) => &code.signature,
            #[cfg(feature = "lua")]
            Body::Lua(code) => &code.signature,
        }
    }

    /// Calls it in a new instance of the module, or a new state of Lua. `fuel` is the limit, and
    /// receives the rest. A null argument of a function that is not called on null input gives
    /// null.
    ///
    /// # Errors
    /// The call used too much, failed, or returned an invalid value of the type.
    pub fn call(
        &self,
        args: &[Option<&[u8]>],
        fuel: &mut u64,
    ) -> Result<Option<Vec<u8>>, CallError> {
        let signature = self.signature();
        if args.len() != signature.args.len() {
            return Err(CallError::Abi(format!("{} arguments are needed", signature.args.len())));
        }
        if !signature.called_on_null_input && args.iter().any(Option::is_none) {
            return Ok(None);
        }
        match &*self.0 {
            Body::Wasm(code) => call::call(code, args, fuel),
            #[cfg(feature = "lua")]
            Body::Lua(code) => lua::call(code, args, fuel),
        }
    }
}
