//! Functions of `string` whose time grows with their arguments, with fuel.

use std::cell::Cell;
use std::rc::Rc;

use mlua::{Error, Function, Integer, Lua, LuaString, MultiValue, Table, Value};

use super::library::to_text;
use super::meter::Meter;
use super::pattern::{Captured, Matcher, find_plain, is_plain};

/// Bytes that are copied for one unit.
const COPIED_PER_UNIT: usize = 16;

fn refuse<T>(text: impl Into<String>) -> mlua::Result<T> {
    Err(Error::runtime(text.into()))
}

fn no_memory() -> Error {
    Error::MemoryError("not enough memory".to_owned())
}

/// Appends to a text that is being made, which is not in Lua's memory yet.
///
/// # Errors
/// It is larger than the function's memory, or the fuel is used up.
pub(super) fn append(out: &mut Vec<u8>, bytes: &[u8], meter: &Meter) -> mlua::Result<()> {
    if out.len().saturating_add(bytes.len()) > meter.memory_bytes() {
        return Err(no_memory());
    }
    meter.spend_steps(bytes.len() / COPIED_PER_UNIT)?;
    out.extend_from_slice(bytes);
    Ok(())
}

/// Puts our functions into the library.
///
/// # Errors
/// Lua has no memory.
pub(super) fn replace(lua: &Lua, string: &Table, meter: &Rc<Meter>) -> mlua::Result<()> {
    string.raw_set("dump", Value::Nil)?;
    let m = meter.clone();
    string.raw_set(
        "find",
        lua.create_function(move |lua, (s, p, init, plain): Search| {
            search(lua, &s, &p, init, Kind::of(plain.unwrap_or(false)), &m)
        })?,
    )?;
    let m = meter.clone();
    string.raw_set(
        "match",
        lua.create_function(move |lua, (s, p, init): (LuaString, LuaString, Option<Integer>)| {
            search(lua, &s, &p, init, Kind::Match, &m)
        })?,
    )?;
    let m = meter.clone();
    string.raw_set(
        "gmatch",
        lua.create_function(move |lua, (s, p, init): (LuaString, LuaString, Option<Integer>)| {
            all_matches(lua, s, p, init, m.clone())
        })?,
    )?;
    let m = meter.clone();
    string.raw_set(
        "gsub",
        lua.create_function(move |lua, args: (LuaString, LuaString, Value, Option<Integer>)| {
            substitute(lua, &args, &m)
        })?,
    )?;
    let m = meter.clone();
    string.raw_set(
        "rep",
        lua.create_function(
            move |lua, (s, n, between): (LuaString, Integer, Option<LuaString>)| {
                repeat(lua, &s, n, between, &m)
            },
        )?,
    )?;
    let (m, original): (_, Function) = (meter.clone(), string.raw_get("format")?);
    string.raw_set(
        "format",
        lua.create_function(move |lua, (form, args): (LuaString, MultiValue)| {
            format(lua, form, args, &original, &m)
        })?,
    )
}

type Search = (LuaString, LuaString, Option<Integer>, Option<bool>);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Find,
    Plain,
    Match,
}

impl Kind {
    fn of(plain: bool) -> Kind {
        if plain { Kind::Plain } else { Kind::Find }
    }
}

/// A place from 0; `None` when it is past the end.
fn start(init: Option<Integer>, len: usize) -> Option<usize> {
    let init = init.unwrap_or(1);
    let from = match usize::try_from(init) {
        Ok(0) => 0,
        Ok(init) => init - 1,
        Err(_) => len.saturating_sub(usize::try_from(init.unsigned_abs()).unwrap_or(usize::MAX)),
    };
    (from <= len).then_some(from)
}

fn place(at: usize) -> Value {
    Value::Integer(Integer::try_from(at).unwrap_or(Integer::MAX).saturating_add(1))
}

/// The last place before an end, counted from 1.
fn end_place(end: usize) -> Value {
    Value::Integer(Integer::try_from(end).unwrap_or(Integer::MAX))
}

fn value_of(lua: &Lua, text: &[u8], captured: Captured) -> mlua::Result<Value> {
    match captured {
        Captured::Place(at) => Ok(place(at)),
        Captured::Text(from, to) => {
            lua.create_string(text.get(from..to).unwrap_or_default()).map(Value::String)
        }
    }
}

fn values_of(lua: &Lua, text: &[u8], all: Vec<Captured>) -> mlua::Result<MultiValue> {
    all.into_iter().map(|captured| value_of(lua, text, captured)).collect()
}

/// `find` and `match`.
fn search(
    lua: &Lua,
    text: &LuaString,
    pattern: &LuaString,
    init: Option<Integer>,
    kind: Kind,
    meter: &Meter,
) -> mlua::Result<MultiValue> {
    let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
    let (text, pattern): (&[u8], &[u8]) = (&text, &pattern);
    let nothing = MultiValue::from_iter([Value::Nil]);
    let Some(from) = start(init, text.len()) else { return Ok(nothing) };
    if kind == Kind::Plain || kind == Kind::Find && is_plain(pattern) {
        let found = find_plain(text, pattern, from, meter)?;
        let ends = |at: usize| [place(at), end_place(at + pattern.len())];
        return Ok(found.map_or(nothing, |at| MultiValue::from_iter(ends(at))));
    }
    let (pattern, anchored) = match pattern.strip_prefix(b"^") {
        Some(rest) => (rest, true),
        None => (pattern, false),
    };
    let mut matcher = Matcher::new(text, pattern, meter);
    let last = if anchored { from } else { text.len() };
    for at in from..=last {
        let Some(end) = matcher.match_at(at)? else { continue };
        if kind == Kind::Match {
            return values_of(lua, text, matcher.captured(at, end)?);
        }
        let mut found = MultiValue::from_iter([place(at), end_place(end)]);
        found.extend(values_of(lua, text, matcher.groups()?)?);
        return Ok(found);
    }
    Ok(nothing)
}

/// `gmatch`.
fn all_matches(
    lua: &Lua,
    text: LuaString,
    pattern: LuaString,
    init: Option<Integer>,
    meter: Rc<Meter>,
) -> mlua::Result<Function> {
    let len = text.as_bytes().len();
    let at = Cell::new(start(init, len).unwrap_or(len + 1));
    let last_end: Cell<Option<usize>> = Cell::new(None);
    lua.create_function(move |lua, ()| {
        let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
        let mut matcher = Matcher::new(&text, &pattern, &meter);
        for from in at.get()..=text.len() {
            if let Some(end) = matcher.match_at(from)?
                && last_end.get() != Some(end)
            {
                at.set(end);
                last_end.set(Some(end));
                return values_of(lua, &text, matcher.captured(from, end)?);
            }
        }
        at.set(text.len() + 1);
        Ok(MultiValue::from_iter([Value::Nil]))
    })
}

/// `gsub`.
fn substitute(
    lua: &Lua,
    (text, pattern, by, most): &(LuaString, LuaString, Value, Option<Integer>),
    meter: &Meter,
) -> mlua::Result<(LuaString, Integer)> {
    let by = match by {
        Value::Integer(_) | Value::Number(_) => &Value::String(to_text(lua, by)?),
        Value::String(_) | Value::Table(_) | Value::Function(_) => by,
        other => {
            return refuse(format!(
                "bad argument #3 to 'gsub' (string/function/table expected, got {})",
                other.type_name()
            ));
        }
    };
    let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
    let (text, pattern): (&[u8], &[u8]) = (&text, &pattern);
    let (pattern, anchored) = match pattern.strip_prefix(b"^") {
        Some(rest) => (rest, true),
        None => (pattern, false),
    };
    let most = most.unwrap_or(Integer::MAX);
    let mut matcher = Matcher::new(text, pattern, meter);
    let (mut out, mut at, mut count, mut last_end) = (Vec::new(), 0, 0, None);
    while count < most {
        match matcher.match_at(at)? {
            Some(end) if last_end != Some(end) => {
                count += 1;
                let found = Match { lua, text, from: at, to: end, matcher: &matcher };
                found.replaced(by, &mut out, meter)?;
                (at, last_end) = (end, Some(end));
            }
            _ => match text.get(at) {
                Some(byte) => {
                    append(&mut out, &[*byte], meter)?;
                    at += 1;
                }
                None => break,
            },
        }
        if anchored {
            break;
        }
    }
    append(&mut out, text.get(at..).unwrap_or_default(), meter)?;
    Ok((lua.create_string(out)?, count))
}

struct Match<'a> {
    lua: &'a Lua,
    text: &'a [u8],
    from: usize,
    to: usize,
    matcher: &'a Matcher<'a>,
}

impl Match<'_> {
    fn replaced(&self, by: &Value, out: &mut Vec<u8>, meter: &Meter) -> mlua::Result<()> {
        let whole = self.text.get(self.from..self.to).unwrap_or_default();
        let captured = self.matcher.captured(self.from, self.to)?;
        let result = match by {
            Value::String(template) => {
                return self.filled(&template.as_bytes(), whole, &captured, out, meter);
            }
            Value::Table(table) => {
                let first = captured.first().copied();
                let key = first.unwrap_or(Captured::Text(self.from, self.to));
                table.get::<Value>(value_of(self.lua, self.text, key)?)?
            }
            Value::Function(function) => {
                function.call::<Value>(values_of(self.lua, self.text, captured)?)?
            }
            _ => Value::Nil,
        };
        match &result {
            Value::Nil | Value::Boolean(false) => append(out, whole, meter),
            Value::String(text) => append(out, &text.as_bytes(), meter),
            Value::Integer(_) | Value::Number(_) => {
                append(out, &to_text(self.lua, &result)?.as_bytes(), meter)
            }
            other => refuse(format!("invalid replacement value (a {})", other.type_name())),
        }
    }

    /// A text with `%0` to `%9` in it.
    fn filled(
        &self,
        template: &[u8],
        whole: &[u8],
        captured: &[Captured],
        out: &mut Vec<u8>,
        meter: &Meter,
    ) -> mlua::Result<()> {
        let mut rest = template;
        while let Some(at) = rest.iter().position(|byte| *byte == b'%') {
            append(out, rest.get(..at).unwrap_or_default(), meter)?;
            match rest.get(at + 1) {
                Some(b'%') => append(out, b"%", meter)?,
                Some(b'0') => append(out, whole, meter)?,
                Some(digit) if digit.is_ascii_digit() => {
                    let index = usize::from(digit - b'1');
                    let Some(found) = captured.get(index) else {
                        return refuse(format!(
                            "invalid capture index %{} in replacement string",
                            index + 1
                        ));
                    };
                    match *found {
                        Captured::Text(from, to) => {
                            append(out, self.text.get(from..to).unwrap_or_default(), meter)?;
                        }
                        Captured::Place(at) => {
                            append(out, (at + 1).to_string().as_bytes(), meter)?;
                        }
                    }
                }
                _ => return refuse("invalid use of '%' in replacement string"),
            }
            rest = rest.get(at + 2..).unwrap_or_default();
        }
        append(out, rest, meter)
    }
}

/// `rep`, which in Lua's library loops as often as its number even when the text is empty.
fn repeat(
    lua: &Lua,
    text: &LuaString,
    times: Integer,
    between: Option<LuaString>,
    meter: &Meter,
) -> mlua::Result<LuaString> {
    let Ok(times @ 1..) = usize::try_from(times) else { return lua.create_string("") };
    let text = text.as_bytes();
    let between = between.map(|between| between.as_bytes());
    let between: &[u8] = between.as_deref().unwrap_or_default();
    // Upper bound: counts one separator more than there are.
    let len = text.len().saturating_add(between.len()).saturating_mul(times);
    if len == 0 {
        return lua.create_string("");
    }
    if len.saturating_sub(between.len()) > meter.memory_bytes() {
        return Err(no_memory());
    }
    meter.spend_steps(len / COPIED_PER_UNIT)?;
    let mut out = Vec::with_capacity(len);
    for i in 0..times {
        if i > 0 {
            out.extend_from_slice(between);
        }
        out.extend_from_slice(&text);
    }
    lua.create_string(out)
}

/// `format`, without addresses.
fn format(
    lua: &Lua,
    form: LuaString,
    args: MultiValue,
    original: &Function,
    meter: &Meter,
) -> mlua::Result<LuaString> {
    let mut args = args.into_vec();
    let mut next = 0;
    {
        let bytes = form.as_bytes();
        meter.spend_steps(bytes.len())?;
        let mut rest = bytes.iter();
        while rest.by_ref().any(|byte| *byte == b'%') {
            let flag = |byte: &&u8| byte.is_ascii_digit() || b"-+ #.".contains(byte);
            match rest.by_ref().find(|byte| !flag(byte)) {
                Some(b'%') | None => continue,
                Some(b'p') => {
                    return refuse("'%p' is not allowed in a function: it shows addresses");
                }
                Some(b's') => {
                    if let Some(arg) = args.get_mut(next) {
                        *arg = Value::String(to_text(lua, arg)?);
                    }
                }
                Some(_) => {}
            }
            next += 1;
        }
    }
    original.call((form, MultiValue::from_iter(args)))
}
