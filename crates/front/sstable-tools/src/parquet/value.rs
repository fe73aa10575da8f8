//! Values of Parquet, and their conversion to values of CQL.

use std::net::IpAddr;

use parquet::basic::{ConvertedType, LogicalType, TimeUnit, Type as Physical};
use parquet::schema::types::Type;
use types::CqlType;
use types::compare::Comparator;
use types::duration::Duration;
use types::number::{BigInt, Decimal, varint_to_bytes};
use types::wire::{encode_collection, encode_map, encode_tuple, encode_vector};

/// A value as a file has it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Int(i128),
    Float(f32),
    Double(f64),
    Decimal(BigInt, i32),
    Text(String),
    Bytes(Vec<u8>),
    /// Days since 1970.
    Date(i32),
    /// Nanoseconds since midnight.
    Time(i64),
    /// Milliseconds since 1970, truncated.
    Timestamp(i64),
    /// Months, days, nanoseconds.
    Duration(i32, i32, i64),
    Group(Vec<(String, Value)>),
    List(Vec<Value>),
    Map(Vec<(Value, Value)>),
}

/// How the bytes of a leaf are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    Plain,
    Unsigned,
    Text,
    Decimal(i32),
    Date,
    /// Nanoseconds of one unit.
    Time(i64),
    /// Units of a second.
    Timestamp(i64),
    Half,
    Interval,
}

/// Returns the meaning of a leaf's values.
///
/// # Errors
/// A type of Parquet that is not read.
pub(super) fn meaning(leaf: &Type) -> Result<Meaning, String> {
    let Type::PrimitiveType { basic_info, physical_type, type_length, scale, .. } = leaf else {
        return Err(format!("{} is a group", leaf.name()));
    };
    let per_second = |unit: &TimeUnit| match unit {
        TimeUnit::MILLIS => 1_000,
        TimeUnit::MICROS => 1_000_000,
        TimeUnit::NANOS => 1_000_000_000,
    };
    let refused = |what: &dyn std::fmt::Debug| {
        Err(format!("column {}: type {what:?} of Parquet is not read", leaf.name()))
    };
    let is_number = matches!(physical_type, Physical::INT32 | Physical::INT64);
    let of_logical = match basic_info.logical_type_ref() {
        None => None,
        Some(LogicalType::String | LogicalType::Json | LogicalType::Enum) => Some(Meaning::Text),
        Some(LogicalType::Decimal(decimal)) => Some(Meaning::Decimal(decimal.scale)),
        Some(LogicalType::Date) => Some(Meaning::Date),
        Some(LogicalType::Time(time)) => {
            Some(Meaning::Time(1_000_000_000 / per_second(&time.unit)))
        }
        Some(LogicalType::Timestamp(time)) => Some(Meaning::Timestamp(per_second(&time.unit))),
        Some(LogicalType::Integer(integer)) if !integer.is_signed => Some(Meaning::Unsigned),
        Some(LogicalType::Float16) => Some(Meaning::Half),
        Some(
            LogicalType::Integer(_) | LogicalType::Uuid | LogicalType::Bson | LogicalType::Unknown,
        ) => Some(Meaning::Plain),
        Some(other) => return refused(other),
    };
    if let Some(meaning) = of_logical {
        return Ok(meaning);
    }
    Ok(match basic_info.converted_type() {
        ConvertedType::UTF8 | ConvertedType::ENUM | ConvertedType::JSON => Meaning::Text,
        ConvertedType::DECIMAL => Meaning::Decimal(*scale),
        ConvertedType::DATE => Meaning::Date,
        ConvertedType::TIME_MILLIS => Meaning::Time(1_000_000),
        ConvertedType::TIME_MICROS => Meaning::Time(1_000),
        ConvertedType::TIMESTAMP_MILLIS => Meaning::Timestamp(1_000),
        ConvertedType::TIMESTAMP_MICROS => Meaning::Timestamp(1_000_000),
        ConvertedType::UINT_8
        | ConvertedType::UINT_16
        | ConvertedType::UINT_32
        | ConvertedType::UINT_64
            if is_number =>
        {
            Meaning::Unsigned
        }
        ConvertedType::INTERVAL if *type_length == 12 => Meaning::Interval,
        ConvertedType::INT_8
        | ConvertedType::INT_16
        | ConvertedType::INT_32
        | ConvertedType::INT_64
        | ConvertedType::BSON
        | ConvertedType::NONE => Meaning::Plain,
        other => return refused(&other),
    })
}

/// A number of a leaf.
pub(super) fn of_int32(meaning: Meaning, number: i32) -> Value {
    match meaning {
        Meaning::Unsigned => Value::Int(i128::from(number.cast_unsigned())),
        Meaning::Date => Value::Date(number),
        _ => of_int64(meaning, i64::from(number)),
    }
}

/// A number of a leaf.
pub(super) fn of_int64(meaning: Meaning, number: i64) -> Value {
    match meaning {
        Meaning::Unsigned => Value::Int(i128::from(number.cast_unsigned())),
        Meaning::Decimal(scale) => Value::Decimal(BigInt::from(number), scale),
        Meaning::Time(nanos) => Value::Time(number.saturating_mul(nanos)),
        Meaning::Timestamp(per_second) => {
            Value::Timestamp(number.div_euclid((per_second / 1_000).max(1)))
        }
        _ => Value::Int(i128::from(number)),
    }
}

/// Parses the bytes of a leaf.
///
/// # Errors
/// They do not match the leaf's type.
pub(super) fn of_bytes(meaning: Meaning, bytes: &[u8]) -> Result<Value, String> {
    let number = |at: usize| {
        let four = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
        four.map(|four| u32::from_le_bytes(*four))
    };
    Ok(match meaning {
        Meaning::Text => {
            let text = String::from_utf8(bytes.to_vec());
            Value::Text(text.map_err(|_| "a text that is not UTF-8".to_owned())?)
        }
        Meaning::Decimal(scale) => Value::Decimal(BigInt::from_signed_bytes_be(bytes), scale),
        Meaning::Half => match bytes.first_chunk::<2>() {
            Some(half) => Value::Float(half_float(u16::from_le_bytes(*half))),
            None => return Err("a half float of other than 2 bytes".to_owned()),
        },
        Meaning::Interval => match (number(0), number(4), number(8)) {
            (Some(months), Some(days), Some(millis)) => {
                let small = |number| i32::try_from(number).map_err(|_| "an interval too long");
                Value::Duration(small(months)?, small(days)?, i64::from(millis) * 1_000_000)
            }
            _ => return Err("an interval of other than 12 bytes".to_owned()),
        },
        _ => Value::Bytes(bytes.to_vec()),
    })
}

/// A number of 1 sign bit, 5 of exponent, 10 of fraction.
fn half_float(bits: u16) -> f32 {
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let fraction = f32::from(bits & 0x3ff);
    match (bits >> 10) & 0x1f {
        0 => sign * fraction * 2f32.powi(-24),
        0x1f if fraction == 0.0 => sign * f32::INFINITY,
        0x1f => f32::NAN,
        exponent => sign * (1.0 + fraction / 1024.0) * 2f32.powi(i32::from(exponent) - 15),
    }
}

/// Deepest nesting of a column.
const DEPTH_MAX: u32 = 64;

/// The bytes of a value of a CQL type; `None`: null.
///
/// # Errors
/// It is not a value of that type: too large, of another kind, of other fields.
pub(crate) fn to_cql(value: &Value, ty: &CqlType) -> Result<Option<Vec<u8>>, String> {
    let bytes = convert(value, ty, 0)?;
    if let Some(bytes) = &bytes {
        ty.validate(bytes).map_err(|e| e.to_string())?;
    }
    Ok(bytes)
}

fn convert(value: &Value, ty: &CqlType, depth: u32) -> Result<Option<Vec<u8>>, String> {
    if depth > DEPTH_MAX {
        return Err("nested too deep".to_owned());
    }
    let inner = |value: &Value, ty: &CqlType| convert(value, ty, depth.saturating_add(1));
    let whole = |value: &Value, ty: &CqlType| {
        inner(value, ty)?.ok_or_else(|| "a null in a collection".to_owned())
    };
    let text = |error: types::TypeError| error.to_string();
    let bytes = match (ty, value) {
        (_, Value::Null) => return Ok(None),
        (CqlType::List { element, .. }, Value::List(values)) => {
            let elements = values.iter().map(|value| whole(value, element));
            encode_collection(elements.collect::<Result<Vec<_>, _>>()?).map_err(text)?
        }
        (CqlType::Set { element, .. }, Value::List(values)) => {
            let elements = values.iter().map(|value| whole(value, element));
            let mut elements = elements.collect::<Result<Vec<_>, _>>()?;
            let order = Comparator::for_type(element);
            elements.sort_by(|a, b| order.compare(a, b));
            elements.dedup();
            encode_collection(elements).map_err(text)?
        }
        (CqlType::Vector { element, dimension }, Value::List(values)) => {
            let elements = values.iter().map(|value| whole(value, element));
            let elements = elements.collect::<Result<Vec<_>, _>>()?;
            encode_vector(element, *dimension, elements).map_err(text)?
        }
        (CqlType::Map { key, value: of_value, .. }, Value::Map(entries)) => {
            let entries = entries.iter().map(|(k, v)| Ok((whole(k, key)?, whole(v, of_value)?)));
            let mut entries = entries.collect::<Result<Vec<_>, String>>()?;
            let order = Comparator::for_type(key);
            entries.sort_by(|(a, _), (b, _)| order.compare(a, b));
            // The later one of two entries with the same key wins.
            entries.reverse();
            entries.dedup_by(|(a, _), (b, _)| a == b);
            entries.reverse();
            encode_map(entries).map_err(text)?
        }
        (CqlType::Tuple(types), Value::Group(fields)) => {
            if fields.len() != types.len() {
                let (has, wants) = (fields.len(), types.len());
                return Err(format!("a group of {has} fields for a tuple of {wants}"));
            }
            let fields = fields.iter().zip(types.iter()).map(|((_, value), ty)| inner(value, ty));
            encode_tuple(fields.collect::<Result<Vec<_>, _>>()?).map_err(text)?
        }
        (CqlType::Udt(udt), Value::Group(fields)) => {
            let mut values = vec![None; udt.fields.len()];
            for (name, value) in fields {
                let place = udt.field_position(name);
                let place = place.and_then(|at| Some((values.get_mut(at)?, udt.fields.get(at)?)));
                let (to, (_, ty)) =
                    place.ok_or_else(|| format!("type {} has no field \"{name}\"", udt.name))?;
                *to = inner(value, ty)?;
            }
            encode_tuple(values).map_err(text)?
        }
        _ => scalar(value, ty)?,
    };
    Ok(Some(bytes))
}

fn scalar(value: &Value, ty: &CqlType) -> Result<Vec<u8>, String> {
    let integer = |number: i128| {
        let wide = i64::try_from(number).ok();
        let bytes = match ty {
            CqlType::Tinyint => i8::try_from(number).ok().map(|n| n.to_be_bytes().to_vec()),
            CqlType::Smallint => i16::try_from(number).ok().map(|n| n.to_be_bytes().to_vec()),
            CqlType::Int => i32::try_from(number).ok().map(|n| n.to_be_bytes().to_vec()),
            _ => wide.map(|n| n.to_be_bytes().to_vec()),
        };
        bytes.ok_or_else(|| format!("{number} is out of range for {}", ty.to_cql_name()))
    };
    let is_integer =
        matches!(ty, CqlType::Tinyint | CqlType::Smallint | CqlType::Int | CqlType::Bigint);
    Ok(match (ty, value) {
        (CqlType::Text | CqlType::Ascii, Value::Text(text)) => text.clone().into_bytes(),
        (CqlType::Text | CqlType::Ascii | CqlType::Blob, Value::Bytes(bytes)) => bytes.clone(),
        (CqlType::Boolean, Value::Bool(value)) => vec![u8::from(*value)],
        (_, Value::Int(number)) if is_integer => integer(*number)?,
        (CqlType::Float, Value::Float(value)) => value.to_be_bytes().to_vec(),
        (CqlType::Float, Value::Double(value)) => (*value as f32).to_be_bytes().to_vec(),
        (CqlType::Double, Value::Float(value)) => f64::from(*value).to_be_bytes().to_vec(),
        (CqlType::Double, Value::Double(value)) => value.to_be_bytes().to_vec(),
        (CqlType::Decimal, Value::Int(number)) => {
            Decimal::from_bigint(BigInt::from(*number)).to_bytes()
        }
        (CqlType::Decimal, Value::Decimal(unscaled, scale)) => {
            Decimal { unscaled: unscaled.clone(), scale: *scale }.to_bytes()
        }
        (CqlType::Varint, Value::Int(number)) => varint_to_bytes(&BigInt::from(*number)),
        (CqlType::Varint, Value::Decimal(unscaled, 0)) => varint_to_bytes(unscaled),
        // From signed days to 2^31 for 1970.
        (CqlType::Date, Value::Date(days)) => {
            (days.cast_unsigned() ^ (1 << 31)).to_be_bytes().to_vec()
        }
        (CqlType::Time, Value::Time(nanos)) => nanos.to_be_bytes().to_vec(),
        (CqlType::Timestamp, Value::Timestamp(millis)) => millis.to_be_bytes().to_vec(),
        (CqlType::Uuid | CqlType::Timeuuid, Value::Bytes(bytes)) if bytes.len() == 16 => {
            bytes.clone()
        }
        (CqlType::Inet, Value::Bytes(bytes)) if matches!(bytes.len(), 4 | 16) => bytes.clone(),
        (CqlType::Inet, Value::Text(text)) => match text.parse::<IpAddr>() {
            Ok(IpAddr::V4(address)) => address.octets().to_vec(),
            Ok(IpAddr::V6(address)) => address.octets().to_vec(),
            Err(_) => return Err(format!("\"{text}\" is not an address")),
        },
        (CqlType::Duration, Value::Duration(months, days, nanos)) => {
            Duration::new(*months, *days, *nanos).map_err(|e| e.to_string())?.to_bytes()
        }
        (CqlType::Duration, Value::Group(fields)) => duration(fields)?,
        (CqlType::Counter, _) => return Err("counters cannot be written".to_owned()),
        (CqlType::Custom(_) | CqlType::Empty, _) => return Err(not_a(value, ty)),
        (ty, Value::Text(text)) if ty.sub_types().is_empty() => {
            ty.from_string(text).map_err(|e| e.to_string())?
        }
        _ => return Err(not_a(value, ty)),
    })
}

fn duration(fields: &[(String, Value)]) -> Result<Vec<u8>, String> {
    let field = |name: &str| match fields.iter().find(|(field, _)| field == name) {
        Some((_, Value::Int(number))) => Ok(*number),
        _ => Err(format!("a duration without {name}")),
    };
    let small = |number: i128| i32::try_from(number).map_err(|_| "a duration too long".to_owned());
    let nanos = i64::try_from(field("nanoseconds")?).map_err(|e| e.to_string())?;
    let duration = Duration::new(small(field("months")?)?, small(field("days")?)?, nanos);
    Ok(duration.map_err(|e| e.to_string())?.to_bytes())
}

fn not_a(value: &Value, ty: &CqlType) -> String {
    let what = match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Int(_) => "an integer",
        Value::Float(_) | Value::Double(_) => "a floating-point number",
        Value::Decimal(..) => "a decimal",
        Value::Text(_) => "a text",
        Value::Bytes(_) => "bytes",
        Value::Date(_) => "a date",
        Value::Time(_) => "a time",
        Value::Timestamp(_) => "a timestamp",
        Value::Duration(..) => "an interval",
        Value::Group(_) => "a group",
        Value::List(_) => "a list",
        Value::Map(_) => "a map",
    };
    format!("{what} is not a {}", ty.to_cql_name())
}
