//! The part of Lua that functions can use: nothing that reaches outside, remembers, or differs between
//! two runs.
//!
//! Owns: the list of supported functions, and replacements for those of Lua's library that have
//! another order each time (`pairs`, `next`), show addresses (`tostring`), have no bound
//! (`table.move`, `insert`, `remove`, `sort`, `concat`), or evade the meter (`pcall`, finalizers by
//! `setmetatable`). Not supported: `io`, `os`, `debug`, `package`, `coroutine`, `load` and its like,
//! `print`, `xpcall`, `collectgarbage`, `math.random`, `math.randomseed`, `string.dump`.

use std::cell::Cell;
use std::rc::Rc;

use mlua::{Error, Function, Integer, Lua, LuaString, MultiValue, Table, Value};

use super::meter::Meter;
use super::number::Big;
use super::{order, strings, text_of};

/// Functions of the base library that are Lua's own.
const BASE: [&str; 12] = [
    "_VERSION",
    "assert",
    "error",
    "getmetatable",
    "ipairs",
    "rawequal",
    "rawget",
    "rawlen",
    "rawset",
    "select",
    "tonumber",
    "type",
];
/// Units of fuel for a key that is brought into order.
const ORDERED: usize = 8;
/// Units of fuel for a protected call, and for an error that it catches: its picture of the stack was
/// made.
const PROTECTED: u64 = 50;
const CAUGHT: u64 = 2_000;

fn refuse<T>(text: impl Into<String>) -> mlua::Result<T> {
    Err(Error::runtime(text.into()))
}

/// Metatables that a function has set.
///
/// When a hook fails, Lua closes the variables that are to be closed while no hook runs: their
/// `__close` could run for ever. It is therefore disabled before.
#[derive(Clone, Debug)]
pub(super) struct Metatables {
    /// The metatables as weak keys: unreferenced ones are collected.
    known: Table,
    /// A function that does nothing.
    nothing: Function,
}

impl Metatables {
    pub(super) fn new(lua: &Lua) -> mlua::Result<Metatables> {
        let (known, weak) = (lua.create_table()?, lua.create_table()?);
        weak.raw_set("__mode", "k")?;
        known.set_metatable(Some(weak))?;
        Ok(Metatables { known, nothing: lua.globals().raw_get("type")? })
    }

    /// Nothing is called any more when a variable is closed.
    ///
    /// # Errors
    /// Lua has no memory, which cannot be while there is no limit.
    pub(super) fn forget_closing(&self, lua: &Lua) -> mlua::Result<()> {
        let limit = lua.set_memory_limit(0)?;
        let done = self.known.for_each(|metatable: Table, _: Value| {
            match metatable.raw_get::<Value>("__close")?.is_nil() {
                true => Ok(()),
                false => metatable.raw_set("__close", &self.nothing),
            }
        });
        lua.set_memory_limit(limit)?;
        done
    }
}

/// The globals of a function.
///
/// # Errors
/// Lua has no memory.
pub(super) fn globals(
    lua: &Lua,
    meter: &Rc<Meter>,
    metatables: &Metatables,
) -> mlua::Result<Table> {
    let all = lua.globals();
    let seen = lua.create_table()?;
    for name in BASE {
        seen.raw_set(name, all.raw_get::<Value>(name)?)?;
    }
    let math: Table = all.raw_get("math")?;
    for name in ["random", "randomseed"] {
        math.raw_set(name, Value::Nil)?;
    }
    let string: Table = all.raw_get("string")?;
    let table: Table = all.raw_get("table")?;
    seen.raw_set("math", math)?;
    seen.raw_set("utf8", all.raw_get::<Value>("utf8")?)?;
    strings::replace(lua, &string, meter)?;
    seen.raw_set("string", string)?;
    tables(lua, &table, meter)?;
    seen.raw_set("table", table)?;
    base(lua, &seen, all.raw_get("pcall")?, meter)?;
    let known = metatables.known.clone();
    seen.raw_set(
        "setmetatable",
        lua.create_function(move |_, (table, metatable): (Table, Value)| {
            set_metatable(table, metatable, &known)
        })?,
    )?;
    seen.raw_set("_G", &seen)?;
    if let Some(metatable) = lua.type_metatable::<LuaString>() {
        metatable.raw_set("__metatable", false)?;
    }
    Ok(seen)
}

fn base(lua: &Lua, seen: &Table, pcall: Function, meter: &Rc<Meter>) -> mlua::Result<()> {
    let m = meter.clone();
    seen.raw_set(
        "pcall",
        lua.create_function(move |lua, args: MultiValue| protected(lua, &pcall, args, &m))?,
    )?;
    let m = meter.clone();
    seen.raw_set("pairs", lua.create_function(move |lua, value: Value| pairs(lua, value, &m))?)?;
    let m = meter.clone();
    seen.raw_set(
        "next",
        lua.create_function(move |_, (table, key): (Table, Value)| next(&table, &key, &m))?,
    )?;
    seen.raw_set(
        "tostring",
        lua.create_function(|lua, value: Value| to_text(lua, &value).map(Value::String))?,
    )
}

/// `pcall`, which catches all errors but that the fuel is used up.
fn protected(
    lua: &Lua,
    pcall: &Function,
    args: MultiValue,
    meter: &Meter,
) -> mlua::Result<MultiValue> {
    meter.spend(PROTECTED)?;
    let results: MultiValue = pcall.call(args)?;
    // Once the fuel is used up this fails, even if the function caught the error.
    let caught = results.front().is_none_or(|ok| ok.as_boolean() != Some(true));
    meter.spend(if caught { CAUGHT } else { 0 })?;
    let as_text = |value: Value| match value {
        // Errors of functions that are not Lua's are texts, as Lua's are.
        Value::Error(error) => lua.create_string(text_of(&error)).map(Value::String),
        other => Ok(other),
    };
    results.into_iter().map(as_text).collect()
}

/// `pairs`: a function that gives the entries in order, skipping those that were removed before
/// their turn.
fn pairs(lua: &Lua, value: Value, meter: &Rc<Meter>) -> mlua::Result<MultiValue> {
    let own = match &value {
        Value::Table(table) => match table.metatable() {
            Some(metatable) => metatable.raw_get::<Value>("__pairs")?,
            None => Value::Nil,
        },
        other => {
            return refuse(format!(
                "bad argument #1 to 'pairs' (table expected, got {})",
                other.type_name()
            ));
        }
    };
    if let Value::Function(own) = own {
        let mut results: MultiValue = own.call(value)?;
        results.truncate(3);
        return Ok(results);
    }
    let Value::Table(table) = value else { return refuse("no table") };
    meter.make_room(lua)?;
    let entries = order::entries(&table)?;
    meter.spend_steps(entries.len().saturating_mul(ORDERED))?;
    let keys = lua.create_sequence_from(entries.into_iter().map(|(key, _)| key))?;
    let (seen, at) = (table.clone(), Cell::new(0));
    let step = lua.create_function(move |_, ()| {
        loop {
            at.set(at.get() + 1_i64);
            let key: Value = keys.raw_get(at.get())?;
            if key.is_nil() {
                return Ok((Value::Nil, Value::Nil));
            }
            let value: Value = seen.raw_get(key.clone())?;
            if !value.is_nil() {
                return Ok((key, value));
            }
        }
    })?;
    Ok(MultiValue::from_iter([Value::Function(step), Value::Table(table), Value::Nil]))
}

/// `next`: the entry whose key follows in the order.
fn next(table: &Table, key: &Value, meter: &Meter) -> mlua::Result<(Value, Value)> {
    let mut found: Option<(Value, Value)> = None;
    if !key.is_nil() {
        order::check(key)?;
    }
    let mut seen = 0_usize;
    table.for_each(|k: Value, v: Value| {
        order::check(&k)?;
        seen += 1;
        let follows = key.is_nil() || order::compare(&k, key).is_gt();
        let first = found.as_ref().is_none_or(|(best, _)| order::compare(&k, best).is_lt());
        if follows && first {
            found = Some((k, v));
        }
        Ok(())
    })?;
    meter.spend_steps(seen)?;
    Ok(found.unwrap_or_default())
}

/// `setmetatable`, without finalizers, which run where no hook does, and weak tables, whose entries go
/// when garbage is collected.
fn set_metatable(table: Table, metatable: Value, known: &Table) -> mlua::Result<Table> {
    let metatable = match metatable {
        Value::Nil => None,
        Value::Table(metatable) => Some(metatable),
        _ => return refuse("bad argument #2 to 'setmetatable' (nil or table expected)"),
    };
    if let Some(old) = table.metatable()
        && !old.raw_get::<Value>("__metatable")?.is_nil()
    {
        return refuse("cannot change a protected metatable");
    }
    if let Some(metatable) = &metatable {
        for name in ["__gc", "__mode"] {
            if !metatable.raw_get::<Value>(name)?.is_nil() {
                return refuse(format!("a metatable with '{name}' is not allowed in a function"));
            }
        }
        known.raw_set(metatable, true)?;
    }
    table.set_metatable(metatable)?;
    Ok(table)
}

/// The text of a value as `tostring` gives it, without addresses.
///
/// # Errors
/// A `__tostring` fails, or there is no memory.
pub(super) fn to_text(lua: &Lua, value: &Value) -> mlua::Result<LuaString> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(_) | Value::Number(_) => match lua.coerce_string(value.clone())? {
            Some(text) => Ok(text),
            None => lua.create_string("number"),
        },
        Value::Boolean(b) => lua.create_string(if *b { "true" } else { "false" }),
        Value::Table(table) => {
            let Some(metatable) = table.metatable() else { return lua.create_string("table") };
            match metatable.raw_get::<Value>("__tostring")? {
                Value::Nil => {}
                own => {
                    let own = own.as_function().cloned();
                    let own = own.ok_or_else(|| Error::runtime("'__tostring' is no function"))?;
                    return own.call::<LuaString>(table);
                }
            }
            match metatable.raw_get::<Value>("__name")? {
                Value::String(name) => Ok(name),
                _ => lua.create_string("table"),
            }
        }
        Value::UserData(data) => match data.borrow::<Big>() {
            Ok(big) => lua.create_string(big.text()?),
            Err(_) => lua.create_string("userdata"),
        },
        Value::Error(error) => lua.create_string(text_of(error)),
        other => lua.create_string(other.type_name()),
    }
}

fn length(table: &Table) -> Integer {
    Integer::try_from(table.raw_len()).unwrap_or(Integer::MAX)
}

fn tables(lua: &Lua, table: &Table, meter: &Rc<Meter>) -> mlua::Result<()> {
    let m = meter.clone();
    table.raw_set(
        "concat",
        lua.create_function(
            move |lua, args: (Table, Option<LuaString>, Option<Integer>, Option<Integer>)| {
                concat(lua, args, &m)
            },
        )?,
    )?;
    let m = meter.clone();
    table.raw_set(
        "insert",
        lua.create_function(move |_, (list, args): (Table, MultiValue)| insert(&list, args, &m))?,
    )?;
    let m = meter.clone();
    table.raw_set(
        "remove",
        lua.create_function(move |_, (list, at): (Table, Option<Integer>)| remove(&list, at, &m))?,
    )?;
    let m = meter.clone();
    table.raw_set(
        "move",
        lua.create_function(
            move |_, (from, f, e, t, to): (Table, Integer, Integer, Integer, Option<Table>)| {
                move_elements(from, f..=e, t, to, &m)
            },
        )?,
    )?;
    let (m, original): (_, Function) = (meter.clone(), table.raw_get("sort")?);
    table.raw_set(
        "sort",
        lua.create_function(move |_, (list, less): (Table, Value)| {
            sort(list, less, &original, &m)
        })?,
    )
}

fn concat(
    lua: &Lua,
    (list, separator, from, to): (Table, Option<LuaString>, Option<Integer>, Option<Integer>),
    meter: &Meter,
) -> mlua::Result<LuaString> {
    let (from, to) = (from.unwrap_or(1), to.unwrap_or_else(|| length(&list)));
    let mut out = Vec::new();
    for at in from..=to {
        meter.spend(1)?;
        let value: Value = list.raw_get(at)?;
        let text = match value {
            Value::String(text) => text,
            Value::Integer(_) | Value::Number(_) => to_text(lua, &value)?,
            other => {
                let kind = other.type_name();
                return refuse(format!(
                    "invalid value (at index {at}) in table for 'concat': a {kind}"
                ));
            }
        };
        strings::append(&mut out, &text.as_bytes(), meter)?;
        if let Some(separator) = &separator
            && at < to
        {
            strings::append(&mut out, &separator.as_bytes(), meter)?;
        }
    }
    lua.create_string(out)
}

fn insert(list: &Table, args: MultiValue, meter: &Meter) -> mlua::Result<()> {
    let end = length(list) + 1;
    let mut args = args.into_iter();
    match (args.next(), args.next(), args.next()) {
        (Some(value), None, None) => list.raw_set(end, value),
        (Some(at), Some(value), None) => {
            let at = at.as_integer().filter(|at| (1..=end).contains(at));
            let Some(at) = at else {
                return refuse("bad argument #2 to 'insert' (position out of bounds)");
            };
            meter.spend(at.abs_diff(end))?;
            for to in (at + 1..=end).rev() {
                list.raw_set(to, list.raw_get::<Value>(to - 1)?)?;
            }
            list.raw_set(at, value)
        }
        _ => refuse("wrong number of arguments to 'insert'"),
    }
}

fn remove(list: &Table, at: Option<Integer>, meter: &Meter) -> mlua::Result<Value> {
    let size = length(list);
    let at = match at {
        None => size,
        Some(at) if size.checked_add(1) == Some(at) || (1..=size).contains(&at) => at,
        Some(at) if size == 0 && at == 0 => at,
        Some(_) => return refuse("bad argument #2 to 'remove' (position out of bounds)"),
    };
    let removed: Value = list.raw_get(at)?;
    meter.spend(at.abs_diff(size))?;
    for to in at..size {
        list.raw_set(to, list.raw_get::<Value>(to + 1)?)?;
    }
    list.raw_set(at.max(size), Value::Nil)?;
    Ok(removed)
}

fn move_elements(
    from: Table,
    elements: std::ops::RangeInclusive<Integer>,
    to: Integer,
    into: Option<Table>,
    meter: &Meter,
) -> mlua::Result<Table> {
    let into = into.unwrap_or_else(|| from.clone());
    let (first, last) = elements.into_inner();
    if last < first {
        return Ok(into);
    }
    meter.spend(first.abs_diff(last).saturating_add(1))?;
    if to.checked_add(last.saturating_sub(first)).is_none() {
        return refuse("bad argument #4 to 'move' (destination wrap around)");
    }
    let step = |at: Integer| into.raw_set(to + (at - first), from.raw_get::<Value>(at)?);
    // Where the ranges are one inside the other, no element is written before it is read.
    if to > first && to <= last && from == into {
        (first..=last).rev().try_for_each(step)?;
    } else {
        (first..=last).try_for_each(step)?;
    }
    Ok(into)
}

fn sort(list: Table, less: Value, original: &Function, meter: &Meter) -> mlua::Result<()> {
    if let Some(metatable) = list.metatable() {
        for name in ["__len", "__index", "__newindex"] {
            if !metatable.raw_get::<Value>(name)?.is_nil() {
                return refuse(format!("a table with '{name}' cannot be sorted"));
            }
        }
    }
    let size = list.raw_len();
    let rounds = usize::try_from(size.checked_ilog2().unwrap_or(0)).unwrap_or(0);
    meter.spend_steps(size.saturating_mul(rounds.saturating_add(1)))?;
    original.call((list, less))
}
