//! Values of `varint` and `decimal` in Lua, which has no numbers of any size.
//!
//! They are userdata with Lua's operators: `+`, `-`, `*`, `/` (a decimal, as CQL's `/` makes it), the
//! comparisons, `..` and `tostring`; `//` and `%` of whole numbers. The other operand may be any
//! number, or a text of one. Equality is between two of them only, as Lua asks no metamethod else.

use std::cmp::Ordering;
use std::rc::Rc;

use mlua::{Error, IntoLua, Lua, MetaMethod, UserData, UserDataMethods, Value};
use types::Decimal;
use types::TypeError;
use types::number::{BigInt, parse_varint};

use super::meter::{Held, Meter};

/// Largest such number, bytes: what operators, arguments, results and texts of numbers may have.
pub(super) const NUMBER_BYTES_MAX: usize = 16 * 1024;
/// Scales that are further apart than this cost no more, as the operators refuse them.
const SHIFT_MAX: u64 = types::number::DECIMAL_SHIFT_MAX;

/// A `varint` or a `decimal`.
pub(super) struct Big {
    /// Its value; of scale 0 when it is whole.
    pub(super) value: Decimal,
    /// True for a `varint`.
    pub(super) whole: bool,
    meter: Rc<Meter>,
    _held: Held,
}

fn bytes_of(value: &Decimal) -> usize {
    usize::try_from(value.unscaled.bits() / 8).unwrap_or(usize::MAX).saturating_add(64)
}

/// A number as a value of Lua's.
///
/// # Errors
/// It is too large, or there is no memory for it.
pub(super) fn push(
    lua: &Lua,
    meter: &Rc<Meter>,
    value: Decimal,
    whole: bool,
) -> mlua::Result<Value> {
    let bytes = bytes_of(&value);
    if bytes > NUMBER_BYTES_MAX {
        return Err(too_large());
    }
    let held = meter.hold(lua, bytes)?;
    lua.create_userdata(Big { value, whole, meter: meter.clone(), _held: held })?.into_lua(lua)
}

fn too_large() -> Error {
    Error::runtime(format!("a number has more than {NUMBER_BYTES_MAX} bytes"))
}

fn arithmetic(error: &TypeError) -> Error {
    Error::runtime(error.to_string())
}

/// Returns a number from its text, and true if it is whole; `None` for any other text.
pub(super) fn parse(text: &str) -> Option<(Decimal, bool)> {
    if text.len() > NUMBER_BYTES_MAX {
        return None;
    }
    let text = text.trim();
    match parse_varint(text) {
        Some(whole) => Some((Decimal::from_bigint(whole), true)),
        None => Decimal::parse(text).map(|value| (value, false)),
    }
}

/// The whole number that a decimal is; `None` when it has a fraction, or more digits than are
/// supported.
pub(super) fn whole_of(value: &Decimal) -> Option<BigInt> {
    let whole = value.to_bigint().ok()?;
    (Decimal::from_bigint(whole.clone()).compare(value) == Ordering::Equal).then_some(whole)
}

/// A number that is calculated with.
struct Operand {
    value: Decimal,
    /// It is an integer to Lua.
    whole: bool,
}

/// An operand as a number.
fn operand(value: &Value) -> mlua::Result<Operand> {
    let found = match value {
        Value::Integer(n) => Some((Decimal::from_bigint((*n).into()), true)),
        Value::Number(n) => Decimal::from_f64(*n).map(|value| (value, false)),
        Value::String(text) => text.to_str().ok().and_then(|text| parse(&text)),
        Value::UserData(data) => {
            data.borrow::<Big>().ok().map(|big| (big.value.clone(), big.whole))
        }
        _ => None,
    };
    found.map(|(value, whole)| Operand { value, whole }).ok_or_else(|| {
        Error::runtime(format!("attempt to perform arithmetic on a {} value", value.type_name()))
    })
}

#[derive(Clone, Copy)]
enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    FloorDivide,
    Modulo,
}

/// Cost of an operation.
fn cost(operator: Operator, a: &Decimal, b: &Decimal) -> u64 {
    let (left, right) = (bytes_of(a) as u64, bytes_of(b) as u64);
    let shift = u64::from(a.scale.abs_diff(b.scale)).min(SHIFT_MAX);
    match operator {
        Operator::Add | Operator::Subtract => (left + right) / 8 + 16 * shift,
        Operator::Multiply => left + right + left * right / 64,
        _ => left + right + left * right / 16 + 16 * shift,
    }
}

/// Quotient and rest, the quotient rounded down, as Lua's are.
fn floor_divide(a: &BigInt, b: &BigInt) -> mlua::Result<(BigInt, BigInt)> {
    if *b == BigInt::ZERO {
        return Err(Error::runtime("attempt to perform 'n//0'"));
    }
    let (quotient, rest) = (a / b, a % b);
    let below = rest != BigInt::ZERO && (rest < BigInt::ZERO) != (*b < BigInt::ZERO);
    Ok(if below { (quotient - 1, rest + b) } else { (quotient, rest) })
}

fn apply(operator: Operator, left: Operand, right: Operand) -> mlua::Result<Operand> {
    let whole = left.whole && right.whole;
    let (a, b) = (left.value, right.value);
    let exact = |value: Decimal| Ok(Operand { value, whole: true });
    match operator {
        Operator::Add if whole => exact(Decimal::from_bigint(a.unscaled + b.unscaled)),
        Operator::Subtract if whole => exact(Decimal::from_bigint(a.unscaled - b.unscaled)),
        Operator::Multiply if whole => exact(Decimal::from_bigint(a.unscaled * b.unscaled)),
        Operator::FloorDivide if whole => {
            exact(Decimal::from_bigint(floor_divide(&a.unscaled, &b.unscaled)?.0))
        }
        Operator::Modulo if whole => {
            exact(Decimal::from_bigint(floor_divide(&a.unscaled, &b.unscaled)?.1))
        }
        Operator::FloorDivide | Operator::Modulo => {
            Err(Error::runtime("attempt to perform '//' or '%' on a decimal"))
        }
        other => {
            let result = match other {
                Operator::Add => a.cql_add(&b),
                Operator::Subtract => a.cql_subtract(&b),
                Operator::Multiply => a.cql_multiply(&b),
                _ => a.cql_divide(&b),
            };
            let result = result.map(|value| Operand { value, whole: false });
            result.map_err(|error| arithmetic(&error))
        }
    }
}

/// The account that one of two operands is on.
fn meter_of(values: [&Value; 2]) -> mlua::Result<Rc<Meter>> {
    let of = |value: &Value| {
        value.as_userdata().and_then(|data| data.borrow::<Big>().ok()).map(|big| big.meter.clone())
    };
    values.into_iter().find_map(of).ok_or_else(|| Error::runtime("no number"))
}

fn calculate(lua: &Lua, operator: Operator, a: &Value, b: &Value) -> mlua::Result<Value> {
    let meter = meter_of([a, b])?;
    let (left, right) = (operand(a)?, operand(b)?);
    meter.spend(cost(operator, &left.value, &right.value))?;
    let Operand { value, whole } = apply(operator, left, right)?;
    push(lua, &meter, value, whole)
}

fn compare(a: &Value, b: &Value) -> mlua::Result<Ordering> {
    // A text is no number where Lua compares.
    if a.is_string() || b.is_string() {
        return Err(Error::runtime("attempt to compare number with string"));
    }
    // Infinity is no decimal; NaN has no order, and is refused as an operand.
    let infinite = |value: &Value| value.as_number().filter(|n| n.is_infinite());
    if let Some(n) = infinite(a) {
        return Ok(if n > 0.0 { Ordering::Greater } else { Ordering::Less });
    }
    if let Some(n) = infinite(b) {
        return Ok(if n > 0.0 { Ordering::Less } else { Ordering::Greater });
    }
    let (left, right) = (operand(a)?.value, operand(b)?.value);
    meter_of([a, b])?.spend(cost(Operator::Add, &left, &right))?;
    Ok(left.compare(&right))
}

impl UserData for Big {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        for (name, operator) in [
            (MetaMethod::Add, Operator::Add),
            (MetaMethod::Sub, Operator::Subtract),
            (MetaMethod::Mul, Operator::Multiply),
            (MetaMethod::Div, Operator::Divide),
            (MetaMethod::IDiv, Operator::FloorDivide),
            (MetaMethod::Mod, Operator::Modulo),
        ] {
            methods.add_meta_function(name, move |lua, (a, b): (Value, Value)| {
                calculate(lua, operator, &a, &b)
            });
        }
        methods.add_meta_method(MetaMethod::Unm, |lua, this, ()| {
            push(lua, &this.meter, this.value.negate(), this.whole)
        });
        methods.add_meta_function(MetaMethod::Eq, |_, (a, b): (Value, Value)| {
            Ok(compare(&a, &b)? == Ordering::Equal)
        });
        methods.add_meta_function(MetaMethod::Lt, |_, (a, b): (Value, Value)| {
            Ok(compare(&a, &b)? == Ordering::Less)
        });
        methods.add_meta_function(MetaMethod::Le, |_, (a, b): (Value, Value)| {
            Ok(compare(&a, &b)? != Ordering::Greater)
        });
        methods.add_meta_method(MetaMethod::ToString, |_, this, ()| this.text());
        methods.add_meta_function(MetaMethod::Concat, |lua, (a, b): (Value, Value)| {
            let part = |value: Value| -> mlua::Result<Vec<u8>> {
                if let Some(big) = value.as_userdata().and_then(|data| data.borrow::<Big>().ok()) {
                    return Ok(big.text()?.into_bytes());
                }
                let kind = value.type_name();
                let text = lua.coerce_string(value)?.ok_or_else(|| {
                    Error::runtime(format!("attempt to concatenate a {kind} value"))
                })?;
                Ok(text.as_bytes().to_vec())
            };
            let both = [part(a)?, part(b)?].concat();
            lua.create_string(both)
        });
    }
}

impl Big {
    /// Its text.
    ///
    /// # Errors
    /// The fuel is used up.
    pub(super) fn text(&self) -> mlua::Result<String> {
        let bytes = bytes_of(&self.value) as u64;
        self.meter.spend(bytes + bytes * bytes / 64)?;
        Ok(self.value.to_string())
    }
}
