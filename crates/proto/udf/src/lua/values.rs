//! CQL values as values of Lua's.
//!
//! Source: ScyllaDB's documentation, "CQL to Lua type mapping".

use std::rc::Rc;

use mlua::{Error, IntoLua, Lua, Value};
use types::number::varint_from_bytes;
use types::wire::{CollectionKind, Elements, Entries, Fields, VectorElements};
use types::{CqlType, Decimal, Duration, TypeError, inet, timeuuid};

use super::meter::Meter;
use super::number;

/// Returns the reason why values of a type cannot be passed to Lua or taken from it.
pub(super) fn refusal(ty: &CqlType) -> Option<String> {
    match ty {
        CqlType::Empty | CqlType::Custom(_) => {
            Some(format!("values of type {ty} have no form in Lua"))
        }
        CqlType::List { element, .. } | CqlType::Vector { element, .. } => refusal(element),
        CqlType::Set { element, .. } => refusal_of_key(ty, element),
        CqlType::Map { key, value, .. } => refusal_of_key(ty, key).or_else(|| refusal(value)),
        CqlType::Tuple(fields) => fields.iter().find_map(refusal),
        CqlType::Udt(udt) => udt.fields.iter().find_map(|(_, ty)| refusal(ty)),
        _ => None,
    }
}

/// A key that is a table is found by its address only, and has no order but that.
fn refusal_of_key(ty: &CqlType, key: &CqlType) -> Option<String> {
    let table = key.is_collection()
        || key.is_tuple()
        || key.is_udt()
        || key.is_vector()
        || *key == CqlType::Duration;
    if table {
        return Some(format!("{ty} has no form in Lua: its keys would be tables"));
    }
    refusal(key)
}

fn error(error: &TypeError) -> Error {
    Error::runtime(error.to_string())
}

fn fixed<const N: usize>(ty: &CqlType, bytes: &[u8]) -> mlua::Result<[u8; N]> {
    bytes.try_into().map_err(|_| Error::runtime(format!("{} bytes are no {ty}", bytes.len())))
}

/// Makes values for one call.
pub(super) struct Pusher<'a> {
    pub(super) lua: &'a Lua,
    pub(super) meter: &'a Rc<Meter>,
}

impl Pusher<'_> {
    /// A value, or null, in Lua. An empty value of a type without empty text is nil.
    ///
    /// # Errors
    /// The bytes are invalid for the type, or there is no memory.
    pub(super) fn push(&self, ty: &CqlType, value: Option<&[u8]>) -> mlua::Result<Value> {
        let texts = matches!(ty, CqlType::Ascii | CqlType::Text | CqlType::Blob);
        match value {
            None => Ok(Value::Nil),
            Some([]) if !texts && !ty.is_tuple() && !ty.is_udt() => Ok(Value::Nil),
            Some(bytes) => self.present(ty, bytes),
        }
    }

    fn present(&self, ty: &CqlType, bytes: &[u8]) -> mlua::Result<Value> {
        let integer = |n: i64| Ok(Value::Integer(n));
        match ty {
            CqlType::Ascii | CqlType::Text | CqlType::Blob => self.text(bytes),
            CqlType::Boolean => Ok(Value::Boolean(fixed::<1>(ty, bytes)? != [0])),
            CqlType::Tinyint => integer(i8::from_be_bytes(fixed(ty, bytes)?).into()),
            CqlType::Smallint => integer(i16::from_be_bytes(fixed(ty, bytes)?).into()),
            CqlType::Int => integer(i32::from_be_bytes(fixed(ty, bytes)?).into()),
            CqlType::Bigint | CqlType::Counter | CqlType::Time | CqlType::Timestamp => {
                integer(i64::from_be_bytes(fixed(ty, bytes)?))
            }
            CqlType::Date => integer(u32::from_be_bytes(fixed(ty, bytes)?).into()),
            CqlType::Float => Ok(Value::Number(f32::from_be_bytes(fixed(ty, bytes)?).into())),
            CqlType::Double => Ok(Value::Number(f64::from_be_bytes(fixed(ty, bytes)?))),
            CqlType::Varint => {
                let value = Decimal::from_bigint(varint_from_bytes(bytes));
                number::push(self.lua, self.meter, value, true)
            }
            CqlType::Decimal => {
                let value = Decimal::from_bytes(bytes)
                    .ok_or_else(|| Error::runtime("too few bytes for a decimal"))?;
                number::push(self.lua, self.meter, value, false)
            }
            CqlType::Inet => {
                let text = inet::format_inet(bytes)
                    .ok_or_else(|| Error::runtime("the bytes are no inet"))?;
                self.text(text.as_bytes())
            }
            CqlType::Uuid | CqlType::Timeuuid => {
                self.text(timeuuid::format_uuid(&fixed(ty, bytes)?).as_bytes())
            }
            CqlType::Duration => self.duration(bytes),
            _ => self.composed(ty, bytes),
        }
    }

    fn text(&self, bytes: &[u8]) -> mlua::Result<Value> {
        self.lua.create_string(bytes).map(Value::String)
    }

    fn duration(&self, bytes: &[u8]) -> mlua::Result<Value> {
        let duration = Duration::from_bytes(bytes).map_err(|e| error(&e))?;
        let table = self.lua.create_table()?;
        table.raw_set("months", duration.months())?;
        table.raw_set("days", duration.days())?;
        table.raw_set("nanoseconds", duration.nanos())?;
        table.into_lua(self.lua)
    }

    fn composed(&self, ty: &CqlType, bytes: &[u8]) -> mlua::Result<Value> {
        let table = self.lua.create_table()?;
        match ty {
            CqlType::List { element, .. } => {
                let elements = Elements::new(bytes, CollectionKind::List).map_err(|e| error(&e))?;
                for item in elements {
                    let item = item.map_err(|e| error(&e))?;
                    table.raw_push(self.element(ty, element, item)?)?;
                }
            }
            CqlType::Vector { element, dimension } => {
                for item in VectorElements::new(bytes, element, *dimension) {
                    let item = item.map_err(|e| error(&e))?;
                    table.raw_push(self.element(ty, element, Some(item))?)?;
                }
            }
            CqlType::Set { element, .. } => {
                let elements = Elements::new(bytes, CollectionKind::Set).map_err(|e| error(&e))?;
                for item in elements {
                    let item = item.map_err(|e| error(&e))?;
                    table.raw_set(self.key(ty, element, item)?, true)?;
                }
            }
            CqlType::Map { key, value, .. } => {
                for entry in Entries::new(bytes).map_err(|e| error(&e))? {
                    let (k, v) = entry.map_err(|e| error(&e))?;
                    let value = self.element(ty, value, Some(v))?;
                    table.raw_set(self.key(ty, key, Some(k))?, value)?;
                }
            }
            CqlType::Tuple(fields) => {
                for ((field, at), ty) in
                    Fields::new(bytes, fields.len()).zip(1_i64..).zip(&**fields)
                {
                    let field = field.map_err(|e| error(&e))?;
                    table.raw_set(at, self.push(ty, field)?)?;
                }
            }
            CqlType::Udt(udt) => {
                for (field, (name, ty)) in Fields::new(bytes, udt.fields.len()).zip(&udt.fields) {
                    let field = field.map_err(|e| error(&e))?;
                    table.raw_set(self.text(name.as_bytes())?, self.push(ty, field)?)?;
                }
            }
            other => {
                let text = refusal(other).unwrap_or_else(|| format!("{other} has no form in Lua"));
                return Err(Error::runtime(text));
            }
        }
        table.into_lua(self.lua)
    }

    /// Returns an element of a collection, which cannot hold nil.
    fn element(
        &self,
        collection: &CqlType,
        ty: &CqlType,
        bytes: Option<&[u8]>,
    ) -> mlua::Result<Value> {
        match self.push(ty, bytes)? {
            Value::Nil => Err(Error::runtime(format!(
                "a {collection} with an empty {ty} in it has no form in Lua"
            ))),
            value => Ok(value),
        }
    }

    fn key(&self, collection: &CqlType, ty: &CqlType, bytes: Option<&[u8]>) -> mlua::Result<Value> {
        match self.element(collection, ty, bytes)? {
            Value::Number(n) if n.is_nan() => Err(Error::runtime(format!(
                "a {collection} with NaN in it has no form in Lua: it is no key"
            ))),
            key => Ok(key),
        }
    }
}
