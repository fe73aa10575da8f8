//! Order in which the entries of a table are iterated.
//!
//! Lua's own order follows from addresses and a seed that is another in each state. Here it is: numbers,
//! strings by their bytes, false, true, large numbers. Keys that are tables or functions have no order
//! but their addresses, so an iteration over them is refused.

use std::cmp::Ordering;

use mlua::{Error, Table, Value};

use super::number::Big;

fn rank(key: &Value) -> Option<u8> {
    match key {
        Value::Integer(_) | Value::Number(_) => Some(0),
        Value::String(_) => Some(1),
        Value::Boolean(_) => Some(2),
        Value::UserData(data) if data.is::<Big>() => Some(3),
        _ => None,
    }
}

/// Checks that keys of this kind have an order.
///
/// # Errors
/// They have none.
pub(super) fn check(key: &Value) -> mlua::Result<()> {
    match rank(key) {
        Some(_) => Ok(()),
        None => Err(Error::runtime(format!("keys of type {} have no order", key.type_name()))),
    }
}

/// The order of two keys; what has none comes last.
pub(super) fn compare(a: &Value, b: &Value) -> Ordering {
    let kinds = (rank(a).unwrap_or(u8::MAX), rank(b).unwrap_or(u8::MAX));
    match (a, b) {
        (Value::Integer(a), Value::Integer(b)) => a.cmp(b),
        (Value::Number(a), Value::Number(b)) => a.total_cmp(b),
        // A key that is a float has a fraction or is out of the integers' range.
        (Value::Integer(a), Value::Number(b)) => (*a as f64).total_cmp(b).then(Ordering::Less),
        (Value::Number(a), Value::Integer(b)) => a.total_cmp(&(*b as f64)).then(Ordering::Greater),
        (Value::String(a), Value::String(b)) => (*a.as_bytes()).cmp(&*b.as_bytes()),
        (Value::Boolean(a), Value::Boolean(b)) => a.cmp(b),
        (Value::UserData(a), Value::UserData(b)) => match (a.borrow::<Big>(), b.borrow::<Big>()) {
            (Ok(a), Ok(b)) => {
                a.value.compare(&b.value).then_with(|| a.value.scale.cmp(&b.value.scale))
            }
            _ => Ordering::Equal,
        },
        _ => kinds.0.cmp(&kinds.1),
    }
}

/// All entries of a table, in order, without its metatable.
///
/// # Errors
/// A key has no order, or there is no memory.
pub(super) fn entries(table: &Table) -> mlua::Result<Vec<(Value, Value)>> {
    let mut all = Vec::new();
    table.for_each(|key: Value, value: Value| {
        check(&key)?;
        all.push((key, value));
        Ok(())
    })?;
    all.sort_by(|(a, _), (b, _)| compare(a, b));
    Ok(all)
}
