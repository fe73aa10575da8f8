//! User functions in Lua 5.4.
//!
//! Owns: the body as a chunk whose locals are the arguments, the state of a call, CQL values in Lua and
//! back. Never: IO, clocks, randomness, bytecode, state between calls. Each call has a state of its
//! own, in which the body is compiled again: what one call leaves nowhere reaches another.
//!
//! Invariants: INV-udf-1 and INV-udf-2 as in the crate. A unit of fuel is an instruction of Lua's when
//! little memory is in use; see [`meter`]. INV-udf-3: nothing that a function sees follows from
//! addresses or the order of a hash table; see [`order`].
//!
//! Reading order: [`meter`], [`library`], [`values`], [`results`], [`pattern`].

#[cfg(test)]
mod fuzz;
mod library;
mod meter;
mod number;
mod order;
mod pattern;
mod results;
mod strings;
#[cfg(test)]
mod tests;
mod values;

use std::rc::Rc;

use mlua::chunk::ChunkMode;
use mlua::debug::HookTriggers;
use mlua::{Error, Function, Lua, LuaOptions, MultiValue, StdLib, Table, Value};

use self::library::Metatables;
use self::meter::Meter;
use self::results::Taker;
use self::values::Pusher;
use crate::{CallError, CompileError, Limits, Signature};

/// Longest body, bytes: it is compiled at each call.
pub const LUA_BODY_BYTES_MAX: usize = 64 * 1024;
/// Fuel that a call uses before its first instruction, beside one unit for each byte of the body: what
/// making a state costs.
const CALL_FUEL: u64 = 2_000;

/// Words that are no names in Lua.
const RESERVED: [&str; 22] = [
    "and", "break", "do", "else", "elseif", "end", "false", "for", "function", "goto", "if", "in",
    "local", "nil", "not", "or", "repeat", "return", "then", "true", "until", "while",
];

/// A body that compiles.
pub(crate) struct Code {
    pub(crate) signature: Signature,
    chunk: String,
    memory_bytes: usize,
}

/// The text of an error without the picture of the stack.
fn text_of(error: &Error) -> String {
    match error {
        Error::CallbackError { cause, .. } | Error::WithContext { cause, .. } => text_of(cause),
        Error::RuntimeError(text) | Error::SyntaxError { message: text, .. } => {
            let end = text.find("\nstack traceback:").unwrap_or(text.len());
            text.get(..end).unwrap_or_default().to_owned()
        }
        Error::MemoryError(_) | Error::StackError => "not enough memory".to_owned(),
        other => other.to_string(),
    }
}

fn is_memory(error: &Error) -> bool {
    match error {
        Error::CallbackError { cause, .. } | Error::WithContext { cause, .. } => is_memory(cause),
        other => matches!(other, Error::MemoryError(_) | Error::StackError),
    }
}

fn check_name(name: &str) -> Result<(), CompileError> {
    let mut bytes = name.bytes();
    let letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    let fits = bytes.next().is_some_and(letter)
        && bytes.all(|byte| letter(byte) || byte.is_ascii_digit())
        && !RESERVED.contains(&name);
    if fits {
        return Ok(());
    }
    Err(CompileError(format!("the argument \"{name}\" has a name that is none in Lua")))
}

pub(crate) fn compile(
    signature: Signature,
    body: &str,
    limits: &Limits,
) -> Result<Code, CompileError> {
    if body.len() > LUA_BODY_BYTES_MAX {
        return Err(CompileError(format!(
            "the body has more than {LUA_BODY_BYTES_MAX} bytes, as it is compiled at each call"
        )));
    }
    signature.arg_names.iter().try_for_each(|name| check_name(name))?;
    let types = signature.args.iter().chain([&signature.returns]);
    if let Some(refusal) = types.filter_map(values::refusal).next() {
        return Err(CompileError(refusal));
    }
    let chunk = match signature.arg_names.as_slice() {
        [] => body.to_owned(),
        // On the line of the body, so that messages name its lines.
        names => format!("local {} = ...; {body}", names.join(", ")),
    };
    let code = Code { signature, chunk, memory_bytes: limits.memory_bytes };
    let meter = Meter::new(u64::MAX, limits.memory_bytes);
    let state = State::new(&meter).map_err(|error| CompileError(text_of(&error)))?;
    match state.load(&code) {
        Ok(_) => Ok(code),
        Err(error) => Err(CompileError(text_of(&error))),
    }
}

/// Lua for one call.
struct State {
    lua: Lua,
    globals: Table,
}

impl State {
    fn new(meter: &Rc<Meter>) -> mlua::Result<State> {
        let libraries = StdLib::MATH | StdLib::STRING | StdLib::TABLE | StdLib::UTF8;
        let lua = Lua::new_with(libraries, LuaOptions::default())?;
        let metatables = Metatables::new(&lua)?;
        let globals = library::globals(&lua, meter, &metatables)?;
        let hook = meter.clone();
        let triggers = HookTriggers::new().every_nth_instruction(meter::STRIDE);
        lua.set_hook(triggers, move |lua, _| {
            hook.tick(lua).or_else(|error| metatables.forget_closing(lua).and(Err(error)))
        })?;
        meter.begin(&lua)?;
        Ok(State { lua, globals })
    }

    fn load(&self, code: &Code) -> mlua::Result<Function> {
        let chunk = self.lua.load(code.chunk.as_str());
        chunk
            .set_name(format!("={}", code.signature.name.replace('\0', "?")))
            .set_mode(ChunkMode::Text)
            .set_environment(self.globals.clone())
            .into_function()
    }

    /// The first result, or nil.
    fn run(&self, code: &Code, args: &[Option<&[u8]>], meter: &Rc<Meter>) -> mlua::Result<Value> {
        let function = self.load(code)?;
        let pusher = Pusher { lua: &self.lua, meter };
        let types = code.signature.args.iter();
        let values: mlua::Result<MultiValue> =
            types.zip(args).map(|(ty, arg)| pusher.push(ty, *arg)).collect();
        let mut results: MultiValue = function.call(values?)?;
        Ok(results.pop_front().unwrap_or_default())
    }
}

pub(crate) fn call(
    code: &Code,
    args: &[Option<&[u8]>],
    fuel: &mut u64,
) -> Result<Option<Vec<u8>>, CallError> {
    let given = *fuel;
    let meter = Meter::new(given, code.memory_bytes);
    let result = run(code, args, &meter);
    *fuel = meter.left();
    // Whatever became of it: nothing may hide that the fuel was used up.
    if meter.is_empty() { Err(CallError::Fuel(given)) } else { result }
}

fn run(
    code: &Code,
    args: &[Option<&[u8]>],
    meter: &Rc<Meter>,
) -> Result<Option<Vec<u8>>, CallError> {
    let failed = |error: Error| match is_memory(&error) {
        true => {
            CallError::Trap(format!("it used more than its {} bytes of memory", code.memory_bytes))
        }
        false => CallError::Trap(text_of(&error)),
    };
    let body = u64::try_from(code.chunk.len()).unwrap_or(u64::MAX);
    meter.spend(CALL_FUEL.saturating_add(body)).map_err(failed)?;
    let state = State::new(meter).map_err(failed)?;
    let value = state.run(code, args, meter).map_err(failed)?;
    let returns = &code.signature.returns;
    let invalid =
        |detail: String| CallError::Abi(format!("it returned no valid {returns}: {detail}"));
    let bytes = Taker::new(&state.lua, code.memory_bytes).take(returns, &value).map_err(invalid)?;
    if let Some(bytes) = &bytes {
        returns.validate_bound(bytes).map_err(|error| invalid(error.to_string()))?;
    }
    Ok(bytes)
}
