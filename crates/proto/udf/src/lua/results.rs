//! Values of Lua's as CQL values: the results of functions.
//!
//! Types that Lua turns into one another are accepted as it would do it. Metatables of tables are not
//! asked. Source: ScyllaDB's documentation, "CQL to Lua type mapping".

use std::cell::Cell;

use mlua::{Integer, Lua, Table, Value};
use types::number::{bigint_to_f64, parse_varint, varint_to_bytes};
use types::temporal::{days_from_civil, month_length, parse_date, parse_time, parse_timestamp};
use types::wire::{encode_collection, encode_map, encode_tuple, encode_vector};
use types::{CqlType, Decimal, Duration, TypeError, UdtType, inet, timeuuid};

use super::number::{self, Big};
use super::{order, text_of};

/// Reason why a value does not fit the type.
pub(super) type Refusal = String;

type Converted<T> = Result<T, Refusal>;

fn refused(error: &TypeError) -> Refusal {
    error.to_string()
}

/// The name of the type of a value, as Lua's `type` gives it.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Integer(_) => "number",
        other => other.type_name(),
    }
}

/// Takes the values of one result.
pub(super) struct Taker<'a> {
    lua: &'a Lua,
    bytes_max: usize,
    /// Bytes that the result may still have: one table may stand in another many times.
    left: Cell<usize>,
}

impl Taker<'_> {
    pub(super) fn new(lua: &Lua, bytes_max: usize) -> Taker<'_> {
        Taker { lua, bytes_max, left: Cell::new(bytes_max) }
    }

    /// A value of the type; nil is null.
    ///
    /// # Errors
    /// It does not fit, or is larger than a result may be.
    pub(super) fn take(&self, ty: &CqlType, value: &Value) -> Converted<Option<Vec<u8>>> {
        self.spend(4)?;
        if value.is_nil() {
            return Ok(None);
        }
        let bytes = match ty {
            CqlType::List { .. }
            | CqlType::Set { .. }
            | CqlType::Map { .. }
            | CqlType::Vector { .. }
            | CqlType::Tuple(_)
            | CqlType::Udt(_) => self.composed(ty, self.table(ty, value)?)?,
            _ => {
                let bytes = self.simple(ty, value)?;
                self.spend(bytes.len())?;
                bytes
            }
        };
        Ok(Some(bytes))
    }

    fn spend(&self, bytes: usize) -> Converted<()> {
        match self.left.get().checked_sub(bytes) {
            Some(left) => {
                self.left.set(left);
                Ok(())
            }
            None => Err(format!("it has more than {} bytes", self.bytes_max)),
        }
    }

    fn unfit(ty: &CqlType, value: &Value) -> Refusal {
        format!("a {} is no {ty}", kind(value))
    }

    fn table<'v>(&self, ty: &CqlType, value: &'v Value) -> Converted<&'v Table> {
        value.as_table().ok_or_else(|| Self::unfit(ty, value))
    }

    fn simple(&self, ty: &CqlType, value: &Value) -> Converted<Vec<u8>> {
        Ok(match ty {
            CqlType::Ascii | CqlType::Text | CqlType::Blob => self.bytes(ty, value)?,
            CqlType::Boolean => match value {
                Value::Boolean(b) => vec![u8::from(*b)],
                _ => return Err(Self::unfit(ty, value)),
            },
            // A value that is too large loses its upper bits.
            CqlType::Tinyint => (self.integer(ty, value)? as i8).to_be_bytes().to_vec(),
            CqlType::Smallint => (self.integer(ty, value)? as i16).to_be_bytes().to_vec(),
            CqlType::Int => (self.integer(ty, value)? as i32).to_be_bytes().to_vec(),
            CqlType::Bigint | CqlType::Counter => self.integer(ty, value)?.to_be_bytes().to_vec(),
            CqlType::Float => (self.float(ty, value)? as f32).to_be_bytes().to_vec(),
            CqlType::Double => self.float(ty, value)?.to_be_bytes().to_vec(),
            CqlType::Varint => {
                let number = self.number(ty, value)?;
                let whole = number::whole_of(&number)
                    .ok_or_else(|| format!("{} is no whole number", Self::shown(&number)))?;
                varint_to_bytes(&whole)
            }
            CqlType::Decimal => self.number(ty, value)?.to_bytes(),
            CqlType::Date => self.date(ty, value)?.to_be_bytes().to_vec(),
            CqlType::Time => self.time(ty, value, parse_time)?.to_be_bytes().to_vec(),
            CqlType::Timestamp => {
                self.time(ty, value, |text| parse_timestamp(text, None))?.to_be_bytes().to_vec()
            }
            CqlType::Duration => self.duration(ty, value)?.to_bytes(),
            CqlType::Inet => {
                inet::parse_inet(&self.text(ty, value)?).map_err(|error| refused(&error))?
            }
            CqlType::Uuid | CqlType::Timeuuid => {
                let text = self.text(ty, value)?;
                let uuid = timeuuid::parse_uuid(&text);
                uuid.ok_or_else(|| format!("'{text}' is no {ty}"))?.to_vec()
            }
            _ => return Err(Self::unfit(ty, value)),
        })
    }

    /// The text of a number for a message.
    fn shown(number: &Decimal) -> String {
        if number.precision() <= 40 { number.to_string() } else { "it".to_owned() }
    }

    fn bytes(&self, ty: &CqlType, value: &Value) -> Converted<Vec<u8>> {
        if let Some(big) = value.as_userdata().and_then(|data| data.borrow::<Big>().ok()) {
            return big.text().map(String::into_bytes).map_err(|error| text_of(&error));
        }
        let text = self.lua.coerce_string(value.clone()).map_err(|error| text_of(&error))?;
        text.map(|text| text.as_bytes().to_vec()).ok_or_else(|| Self::unfit(ty, value))
    }

    fn text(&self, ty: &CqlType, value: &Value) -> Converted<String> {
        match value {
            Value::String(text) => {
                String::from_utf8(text.as_bytes().to_vec()).map_err(|_| Self::unfit(ty, value))
            }
            _ => Err(Self::unfit(ty, value)),
        }
    }

    fn integer(&self, ty: &CqlType, value: &Value) -> Converted<Integer> {
        if let Some(big) = value.as_userdata().and_then(|data| data.borrow::<Big>().ok()) {
            return match number::whole_of(&big.value) {
                Some(whole) => Ok(Decimal::from_bigint(whole).to_i64_wrapping()),
                None => Err(format!("{} is no whole number", Self::shown(&big.value))),
            };
        }
        if let Value::Number(n) = value
            && n.fract() != 0.0
        {
            return Err(format!("{n} is no whole number"));
        }
        let found = self.lua.coerce_integer(value.clone()).map_err(|error| text_of(&error))?;
        found.ok_or_else(|| Self::unfit(ty, value))
    }

    fn float(&self, ty: &CqlType, value: &Value) -> Converted<f64> {
        match value {
            Value::Integer(n) => Ok(*n as f64),
            Value::UserData(data) => match data.borrow::<Big>() {
                Ok(big) if big.whole => Ok(bigint_to_f64(&big.value.unscaled)),
                Ok(big) => Ok(big.value.to_f64()),
                Err(_) => Err(Self::unfit(ty, value)),
            },
            _ => {
                let found = self.lua.coerce_number(value.clone()).map_err(|e| text_of(&e))?;
                found.ok_or_else(|| Self::unfit(ty, value))
            }
        }
    }

    fn number(&self, ty: &CqlType, value: &Value) -> Converted<Decimal> {
        let unfit = || Self::unfit(ty, value);
        match value {
            Value::Integer(n) => Ok(Decimal::from_bigint((*n).into())),
            // A whole float is the number that it is, not the shortest text that means it.
            Value::Number(n) if n.is_finite() && n.fract() == 0.0 => {
                parse_varint(&format!("{n:.0}")).map(Decimal::from_bigint).ok_or_else(unfit)
            }
            Value::Number(n) => Decimal::from_f64(*n).ok_or_else(|| format!("{n} is no {ty}")),
            Value::String(_) => {
                let text = self.text(ty, value)?;
                number::parse(&text).map(|(value, _)| value).ok_or_else(|| {
                    let shown: String = text.chars().take(40).collect();
                    format!("'{shown}' is no {ty}")
                })
            }
            Value::UserData(data) => {
                data.borrow::<Big>().map(|big| big.value.clone()).map_err(|_| unfit())
            }
            _ => Err(unfit()),
        }
    }

    /// Days since the epoch, which is 2^31: such a number, a literal, or a table of year, month and
    /// day.
    fn date(&self, ty: &CqlType, value: &Value) -> Converted<u32> {
        match value {
            Value::String(_) => parse_date(&self.text(ty, value)?).map_err(|error| refused(&error)),
            Value::Table(table) => {
                let [year, month, day] = self.fields(ty, table, ["year", "month", "day"])?;
                let month = u32::try_from(month).ok().filter(|m| (1..=12).contains(m));
                let date = month.and_then(|month| {
                    let day = u32::try_from(day).ok()?;
                    let year = Some(year).filter(|y| y.unsigned_abs() < 10_000_000)?;
                    let fits = (1..=month_length(year, month)).contains(&day);
                    fits.then(|| days_from_civil(year, month, day))
                });
                let date = date.and_then(|days| u32::try_from(days.checked_add(1 << 31)?).ok());
                date.ok_or_else(|| "there is no such date".to_owned())
            }
            _ => {
                let days = self.integer(ty, value)?;
                u32::try_from(days).map_err(|_| format!("{days} is no {ty}"))
            }
        }
    }

    fn time(
        &self,
        ty: &CqlType,
        value: &Value,
        parse: impl Fn(&str) -> Result<i64, TypeError>,
    ) -> Converted<i64> {
        match value {
            Value::String(_) => parse(&self.text(ty, value)?).map_err(|error| refused(&error)),
            _ => self.integer(ty, value),
        }
    }

    fn duration(&self, ty: &CqlType, value: &Value) -> Converted<Duration> {
        let duration = match value {
            Value::String(_) => Duration::parse(&self.text(ty, value)?),
            _ => {
                let table = self.table(ty, value)?;
                let names = ["months", "days", "nanoseconds"];
                let [months, days, nanos] = self.fields(ty, table, names)?;
                let small = |n: i64| i32::try_from(n).map_err(|_| format!("{n} is too large"));
                Duration::new(small(months)?, small(days)?, nanos)
            }
        };
        duration.map_err(|error| refused(&error))
    }

    /// Whole numbers of a table that has these fields and no others.
    fn fields<const N: usize>(
        &self,
        ty: &CqlType,
        table: &Table,
        names: [&str; N],
    ) -> Converted<[i64; N]> {
        self.only(ty, table, &names)?;
        let mut out = [0; N];
        for (name, out) in names.iter().zip(&mut out) {
            let value: Value = table.raw_get(*name).map_err(|error| text_of(&error))?;
            if value.is_nil() {
                return Err(format!("a {ty} needs the field '{name}'"));
            }
            *out = self.integer(&CqlType::Bigint, &value)?;
        }
        Ok(out)
    }

    /// Refuses keys that are not among the names.
    fn only(&self, ty: &CqlType, table: &Table, names: &[&str]) -> Converted<()> {
        for (key, _) in self.entries(table)? {
            let known = match &key {
                Value::String(key) => names.iter().any(|name| key.as_bytes() == name.as_bytes()),
                _ => false,
            };
            if !known {
                let shown = match &key {
                    Value::String(key) => format!("'{}'", key.to_string_lossy()),
                    other => format!("a {}", kind(other)),
                };
                return Err(format!("{ty} has no field {shown}"));
            }
        }
        Ok(())
    }

    fn entries(&self, table: &Table) -> Converted<Vec<(Value, Value)>> {
        order::entries(table).map_err(|error| text_of(&error))
    }

    fn composed(&self, ty: &CqlType, table: &Table) -> Converted<Vec<u8>> {
        let encoded = match ty {
            CqlType::List { element, .. } => encode_collection(self.sequence(ty, element, table)?),
            CqlType::Vector { element, dimension } => {
                let elements = self.sequence(ty, element, table)?;
                if u32::try_from(elements.len()) != Ok(*dimension) {
                    return Err(format!("{} elements are no {ty}", elements.len()));
                }
                encode_vector(element, *dimension, elements)
            }
            CqlType::Set { element, .. } => {
                let mut keys = Vec::new();
                for (key, value) in self.entries(table)? {
                    if value.as_boolean() != Some(true) {
                        return Err(format!("in a {ty} each key has the value true"));
                    }
                    keys.push((self.present(ty, element, &key)?, ()));
                }
                sort(element, ty, &mut keys)?;
                encode_collection(keys.into_iter().map(|(key, ())| key))
            }
            CqlType::Map { key, value, .. } => {
                let mut entries = Vec::new();
                for (k, v) in self.entries(table)? {
                    entries.push((self.present(ty, key, &k)?, self.present(ty, value, &v)?));
                }
                sort(key, ty, &mut entries)?;
                encode_map(entries)
            }
            CqlType::Tuple(fields) => encode_tuple(self.tuple(ty, fields, table)?),
            CqlType::Udt(udt) => encode_tuple(self.user_type(ty, udt, table)?),
            other => return Err(format!("{other} has no form in Lua")),
        };
        encoded.map_err(|error| refused(&error))
    }

    fn present(&self, collection: &CqlType, ty: &CqlType, value: &Value) -> Converted<Vec<u8>> {
        self.take(ty, value)?.ok_or_else(|| format!("nil is no element of {collection}"))
    }

    /// The elements of a table that has the keys 1 to n and no others.
    fn sequence(&self, ty: &CqlType, element: &CqlType, table: &Table) -> Converted<Vec<Vec<u8>>> {
        let entries = self.entries(table)?;
        let mut out = Vec::with_capacity(entries.len());
        for ((key, value), at) in entries.iter().zip(1_i64..) {
            if key.as_integer() != Some(at) {
                return Err(format!("the table is no sequence, as a {ty} is"));
            }
            out.push(self.present(ty, element, value)?);
        }
        Ok(out)
    }

    fn tuple(
        &self,
        ty: &CqlType,
        fields: &[CqlType],
        table: &Table,
    ) -> Converted<Vec<Option<Vec<u8>>>> {
        for (key, _) in self.entries(table)? {
            let position = key.as_integer().and_then(|at| usize::try_from(at).ok());
            if !position.is_some_and(|at| (1..=fields.len()).contains(&at)) {
                return Err(format!("a {ty} has the elements 1 to {}", fields.len()));
            }
        }
        let field = |(field, at): (&CqlType, i64)| {
            let value: Value = table.raw_get(at).map_err(|error| text_of(&error))?;
            self.take(field, &value)
        };
        fields.iter().zip(1_i64..).map(field).collect()
    }

    fn user_type(
        &self,
        ty: &CqlType,
        udt: &UdtType,
        table: &Table,
    ) -> Converted<Vec<Option<Vec<u8>>>> {
        let names: Vec<&str> = udt.fields.iter().map(|(name, _)| name.as_str()).collect();
        self.only(ty, table, &names)?;
        let field = |(name, field): &(String, CqlType)| {
            let value: Value = table.raw_get(name.as_str()).map_err(|error| text_of(&error))?;
            self.take(field, &value)
        };
        udt.fields.iter().map(field).collect()
    }
}

/// Brings keys into the order of their type.
fn sort<V>(key: &CqlType, ty: &CqlType, entries: &mut [(Vec<u8>, V)]) -> Converted<()> {
    entries.sort_by(|(a, _), (b, _)| key.compare(a, b));
    let twice = entries.windows(2).any(|pair| match pair {
        [(a, _), (b, _)] => key.compare(a, b).is_eq(),
        _ => false,
    });
    if twice { Err(format!("two keys are the same in a {ty}")) } else { Ok(()) }
}
