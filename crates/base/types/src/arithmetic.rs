//! The CQL operators on values, and numbers as Java's `Number` converts them.
//!
//! Source: `cql3.functions.OperationFcts` and the `NumberType`s.

use crate::number::{
    BigInt, Decimal, bigint_low_i64, bigint_to_f32, bigint_to_f64, check_length, varint_from_bytes,
    varint_to_bytes,
};
use crate::temporal::{date_of_millis, millis_of_date};
use crate::{CqlType, Duration, TypeError};

/// A number of any CQL type, widened where that loses nothing.
#[derive(Clone, Debug, PartialEq)]
pub enum Number {
    /// tinyint, smallint, int, bigint, counter.
    Integer(i64),
    /// varint.
    Varint(BigInt),
    /// float.
    Float(f32),
    /// double.
    Double(f64),
    /// decimal.
    Decimal(Decimal),
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "Java's narrowing: integers wrap, floats saturate"
)]
impl Number {
    /// The number in a value of a numeric type. `None`: the empty value, or not a number.
    pub fn from_value(ty: &CqlType, bytes: &[u8]) -> Option<Number> {
        Some(match ty {
            CqlType::Tinyint => Number::Integer(i8::from_be_bytes(bytes.try_into().ok()?).into()),
            CqlType::Smallint => Number::Integer(i16::from_be_bytes(bytes.try_into().ok()?).into()),
            CqlType::Int => Number::Integer(i32::from_be_bytes(bytes.try_into().ok()?).into()),
            CqlType::Bigint | CqlType::Counter => {
                Number::Integer(i64::from_be_bytes(bytes.try_into().ok()?))
            }
            CqlType::Varint if bytes.is_empty() => return None,
            CqlType::Varint => Number::Varint(varint_from_bytes(bytes)),
            CqlType::Float => Number::Float(f32::from_be_bytes(bytes.try_into().ok()?)),
            CqlType::Double => Number::Double(f64::from_be_bytes(bytes.try_into().ok()?)),
            CqlType::Decimal => Number::Decimal(Decimal::from_bytes(bytes)?),
            _ => return None,
        })
    }

    /// `longValue`: integers wrap, floats saturate.
    pub fn to_i64(&self) -> i64 {
        match self {
            Number::Integer(n) => *n,
            Number::Varint(n) => bigint_low_i64(n),
            Number::Float(n) => *n as i64,
            Number::Double(n) => *n as i64,
            Number::Decimal(n) => n.to_i64_wrapping(),
        }
    }

    /// `intValue`: integers wrap, floats saturate at 32 bits.
    pub fn to_i32(&self) -> i32 {
        match self {
            Number::Float(n) => *n as i32,
            Number::Double(n) => *n as i32,
            other => other.to_i64() as i32,
        }
    }

    /// `shortValue`: the low 16 bits of the int.
    pub fn to_i16(&self) -> i16 {
        self.to_i32() as i16
    }

    /// `byteValue`: the low 8 bits of the int.
    pub fn to_i8(&self) -> i8 {
        self.to_i32() as i8
    }

    /// `doubleValue`: nearest.
    #[expect(clippy::cast_precision_loss, reason = "nearest double is what is asked for")]
    pub fn to_f64(&self) -> f64 {
        match self {
            Number::Integer(n) => *n as f64,
            Number::Varint(n) => bigint_to_f64(n),
            Number::Float(n) => f64::from(*n),
            Number::Double(n) => *n,
            Number::Decimal(n) => n.to_f64(),
        }
    }

    /// `floatValue`: nearest.
    #[expect(clippy::cast_precision_loss, reason = "nearest float is what is asked for")]
    pub fn to_f32(&self) -> f32 {
        match self {
            Number::Integer(n) => *n as f32,
            Number::Varint(n) => bigint_to_f32(n),
            Number::Float(n) => *n,
            Number::Double(n) => *n as f32,
            Number::Decimal(n) => n.to_f32(),
        }
    }

    /// The integer for operators: exact for varint, else `longValue`.
    pub fn to_bigint(&self) -> BigInt {
        match self {
            Number::Varint(n) => n.clone(),
            other => BigInt::from(other.to_i64()),
        }
    }

    /// The decimal for operators: exact for varint and decimal, else that of the double.
    ///
    /// # Errors
    /// NaN and infinities.
    pub fn to_decimal(&self) -> Result<Decimal, TypeError> {
        match self {
            Number::Decimal(n) => Ok(n.clone()),
            Number::Varint(n) => Ok(Decimal::from_bigint(n.clone())),
            other => {
                let double = other.to_f64();
                Decimal::from_f64(double).ok_or_else(|| {
                    TypeError::Arithmetic(
                        if double.is_nan() {
                            "A NaN cannot be converted into a decimal"
                        } else {
                            "An infinite number cannot be converted into a decimal"
                        }
                        .to_owned(),
                    )
                })
            }
        }
    }
}

/// A side of an operator: a value and its type; `None` is null.
#[derive(Clone, Copy, Debug)]
pub struct Operand<'a> {
    /// The type.
    pub ty: &'a CqlType,
    /// The value.
    pub value: Option<&'a [u8]>,
}

impl<'a> Operand<'a> {
    /// A value and its type.
    pub fn new(ty: &'a CqlType, value: Option<&'a [u8]>) -> Operand<'a> {
        Operand { ty, value }
    }
}

/// A binary operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operator {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
    /// `%`
    Modulo,
}

impl Operator {
    /// The character.
    pub fn symbol(self) -> char {
        match self {
            Operator::Add => '+',
            Operator::Subtract => '-',
            Operator::Multiply => '*',
            Operator::Divide => '/',
            Operator::Modulo => '%',
        }
    }

    /// Type of `left op right`, also for date and timestamp with duration and for text. `None`: the
    /// operator does not take these types.
    pub fn result_type(self, left: &CqlType, right: &CqlType) -> Option<CqlType> {
        match (left, right) {
            (CqlType::Timestamp | CqlType::Date, CqlType::Duration) => {
                matches!(self, Operator::Add | Operator::Subtract).then(|| left.clone())
            }
            (CqlType::Text | CqlType::Ascii, CqlType::Text | CqlType::Ascii) => {
                let ascii = *left == CqlType::Ascii && *right == CqlType::Ascii;
                let text = if ascii { CqlType::Ascii } else { CqlType::Text };
                (self == Operator::Add).then_some(text)
            }
            _ => numeric_result_type(left, right),
        }
    }

    /// Value of `left op right` as [`Operator::result_type`]; null if an operand is null or empty.
    ///
    /// # Errors
    /// `Arithmetic` with the text of Cassandra's `OperationExecutionException`.
    pub fn apply(
        self,
        left: Operand<'_>,
        right: Operand<'_>,
    ) -> Result<Option<Vec<u8>>, TypeError> {
        let Operand { ty: left_type, value: left } = left;
        let Operand { ty: right_type, value: right } = right;
        let failed = |reason: &str| {
            TypeError::Arithmetic(format!(
                "the operation '{left_type} {} {right_type}' failed: {reason}",
                self.symbol()
            ))
        };
        let (Some(left), Some(right)) = (left, right) else {
            return Ok(None);
        };
        let result = self
            .result_type(left_type, right_type)
            .ok_or_else(|| failed("operator is not defined for these types"))?;
        if result == CqlType::Text || result == CqlType::Ascii {
            return Ok(Some([left, right].concat()));
        }
        if left.is_empty() || right.is_empty() {
            return Ok(None);
        }
        for (ty, bytes) in [(left_type, left), (right_type, right)] {
            check_length(ty, bytes).map_err(|error| failed(&error.to_string()))?;
        }
        let value = if *right_type == CqlType::Duration {
            self.shift(left_type, left, right)
        } else {
            let numbers =
                Number::from_value(left_type, left).zip(Number::from_value(right_type, right));
            let (a, b) = numbers.ok_or_else(|| failed("not a number"))?;
            self.compute(&result, &a, &b)
        };
        match value {
            Ok(value) => Ok(Some(value)),
            Err(error) => Err(failed(&error.to_string())),
        }
    }

    fn compute(self, ty: &CqlType, a: &Number, b: &Number) -> Result<Vec<u8>, TypeError> {
        let by_zero = || TypeError::Arithmetic("/ by zero".to_owned());
        // Division of the least integer by -1 wraps to itself in Java, as `wrapping_*` does here.
        macro_rules! integers {
            ($convert:ident) => {{
                let (a, b) = (a.$convert(), b.$convert());
                if b == 0 && matches!(self, Operator::Divide | Operator::Modulo) {
                    return Err(by_zero());
                }
                match self {
                    Operator::Add => a.wrapping_add(b),
                    Operator::Subtract => a.wrapping_sub(b),
                    Operator::Multiply => a.wrapping_mul(b),
                    Operator::Divide => a.wrapping_div(b),
                    Operator::Modulo => a.wrapping_rem(b),
                }
                .to_be_bytes()
                .to_vec()
            }};
        }
        macro_rules! floats {
            ($convert:ident) => {{
                let (a, b) = (a.$convert(), b.$convert());
                match self {
                    Operator::Add => a + b,
                    Operator::Subtract => a - b,
                    Operator::Multiply => a * b,
                    Operator::Divide => a / b,
                    Operator::Modulo => a % b,
                }
                .to_be_bytes()
                .to_vec()
            }};
        }
        Ok(match ty {
            CqlType::Tinyint => integers!(to_i8),
            CqlType::Smallint => integers!(to_i16),
            CqlType::Int => integers!(to_i32),
            CqlType::Bigint => integers!(to_i64),
            CqlType::Float => floats!(to_f32),
            CqlType::Double => floats!(to_f64),
            CqlType::Varint => {
                let (a, b) = (a.to_bigint(), b.to_bigint());
                if b == BigInt::ZERO && matches!(self, Operator::Divide | Operator::Modulo) {
                    return Err(TypeError::Arithmetic("BigInteger divide by zero".to_owned()));
                }
                varint_to_bytes(&match self {
                    Operator::Add => a + b,
                    Operator::Subtract => a - b,
                    Operator::Multiply => a * b,
                    Operator::Divide => a / b,
                    Operator::Modulo => a % b,
                })
            }
            _ => {
                let (a, b) = (a.to_decimal()?, b.to_decimal()?);
                match self {
                    Operator::Add => a.cql_add(&b)?,
                    Operator::Subtract => a.cql_subtract(&b)?,
                    Operator::Multiply => a.cql_multiply(&b)?,
                    Operator::Divide => a.cql_divide(&b)?,
                    Operator::Modulo => a.cql_remainder(&b)?,
                }
                .to_bytes()
            }
        })
    }

    /// Timestamp or date plus or minus a duration.
    fn shift(self, ty: &CqlType, left: &[u8], right: &[u8]) -> Result<Vec<u8>, TypeError> {
        let duration = Duration::from_bytes(right)?;
        let moved = |millis: i64| match self {
            Operator::Subtract => duration.subtract_from_millis(millis),
            _ => duration.add_to_millis(millis),
        };
        let wrong = || TypeError::Arithmetic("not a value of the type".to_owned());
        if *ty == CqlType::Date {
            if !duration.has_day_precision() {
                return Err(TypeError::Arithmetic(format!(
                    "The duration must have a day precision. Was: {duration}"
                )));
            }
            let date = u32::from_be_bytes(left.try_into().map_err(|_| wrong())?);
            return Ok(date_of_millis(moved(millis_of_date(date))).to_be_bytes().to_vec());
        }
        if duration.nanos() % 1_000_000 != 0 {
            return Err(TypeError::Arithmetic(format!(
                "The duration must have a millisecond precision. Was: {duration}"
            )));
        }
        let millis = i64::from_be_bytes(left.try_into().map_err(|_| wrong())?);
        Ok(moved(millis).to_be_bytes().to_vec())
    }
}

/// Type of an operation on two numbers: a floating type if one is, of the larger size; counter
/// counts as bigint.
fn numeric_result_type(left: &CqlType, right: &CqlType) -> Option<CqlType> {
    let rank = |ty: &CqlType| {
        Some(match ty {
            CqlType::Tinyint => (false, 1),
            CqlType::Smallint => (false, 2),
            CqlType::Int => (false, 4),
            CqlType::Bigint | CqlType::Counter => (false, 8),
            CqlType::Varint => (false, 16),
            CqlType::Float => (true, 4),
            CqlType::Double => (true, 8),
            CqlType::Decimal => (true, 16),
            _ => return None,
        })
    };
    let ((left_floats, left_size), (right_floats, right_size)) = (rank(left)?, rank(right)?);
    let size: i32 = left_size.max(right_size);
    Some(match (left_floats || right_floats, size) {
        (false, 1) => CqlType::Tinyint,
        (false, 2) => CqlType::Smallint,
        (false, 4) => CqlType::Int,
        (false, 8) => CqlType::Bigint,
        (false, _) => CqlType::Varint,
        (true, ..=4) => CqlType::Float,
        (true, 8) => CqlType::Double,
        (true, _) => CqlType::Decimal,
    })
}

/// The CQL operator `-x`; null for null and empty. Integers wrap at their least value.
///
/// # Errors
/// Not a number.
pub fn negate(ty: &CqlType, value: Option<&[u8]>) -> Result<Option<Vec<u8>>, TypeError> {
    let Some(value) = value.filter(|v| !v.is_empty()) else {
        return Ok(None);
    };
    let number = Number::from_value(ty, value).ok_or_else(|| {
        TypeError::Arithmetic(format!("the operation '- {ty}' failed: not a number"))
    })?;
    Ok(Some(match (ty, &number) {
        (CqlType::Tinyint, n) => n.to_i8().wrapping_neg().to_be_bytes().to_vec(),
        (CqlType::Smallint, n) => n.to_i16().wrapping_neg().to_be_bytes().to_vec(),
        (CqlType::Int, n) => n.to_i32().wrapping_neg().to_be_bytes().to_vec(),
        (_, Number::Integer(n)) => n.wrapping_neg().to_be_bytes().to_vec(),
        (_, Number::Varint(n)) => varint_to_bytes(&-n),
        (_, Number::Float(n)) => (-n).to_be_bytes().to_vec(),
        (_, Number::Double(n)) => (-n).to_be_bytes().to_vec(),
        (_, Number::Decimal(n)) => n.negate().to_bytes(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn eval(
        left: (&CqlType, &str),
        op: Operator,
        right: (&CqlType, &str),
    ) -> Result<String, String> {
        let a = left.0.from_string(left.1).map_err(|e| e.to_string())?;
        let b = right.0.from_string(right.1).map_err(|e| e.to_string())?;
        let result = op.result_type(left.0, right.0).ok_or("no operator")?;
        let value = op
            .apply(Operand::new(left.0, Some(&a)), Operand::new(right.0, Some(&b)))
            .map_err(|e| e.to_string())?;
        Ok(format!(
            "{result} {}",
            value.map_or("null".to_owned(), |v| result.format_cql_literal(&v))
        ))
    }

    #[test]
    fn operators_take_the_wider_type_and_wrap() {
        use CqlType::{
            Bigint, Date, Decimal, Double, Duration, Float, Int, Text, Timestamp, Tinyint, Varint,
        };
        let check = |a, op, b, expect: &str| assert_eq!(eval(a, op, b).as_deref(), Ok(expect));
        check((&Int, "2147483647"), Operator::Add, (&Tinyint, "1"), "int -2147483648");
        check((&Int, "-7"), Operator::Divide, (&Bigint, "2"), "bigint -3");
        check((&Int, "-7"), Operator::Modulo, (&Int, "2"), "int -1");
        check((&Int, "1"), Operator::Divide, (&Float, "2"), "float 0.5");
        check((&Bigint, "1"), Operator::Add, (&Float, "2"), "double 3.0");
        check((&Varint, "10"), Operator::Multiply, (&Int, "-3"), "varint -30");
        check((&Varint, "1"), Operator::Divide, (&Double, "4"), "decimal 0.25");
        check((&Decimal, "1.10"), Operator::Add, (&Decimal, "2"), "decimal 3.10");
        check((&Decimal, "123E5"), Operator::Add, (&Int, "1"), "decimal 12300001.0");
        check((&Decimal, "123E5"), Operator::Divide, (&Int, "3"), "decimal 4.1E+6");
        check((&Double, "1e10"), Operator::Add, (&Varint, "-129"), "decimal 9999999871");
        check((&Int, ""), Operator::Add, (&Int, "1"), "int null");
        check((&Text, "a"), Operator::Add, (&Text, "b"), "text 'ab'");
        check((&Date, "2020-01-31"), Operator::Add, (&Duration, "1mo"), "date '2020-02-29'");
        check(
            (&Timestamp, "1970-01-02"),
            Operator::Subtract,
            (&Duration, "1d1ms"),
            "timestamp '1969-12-31T23:59:59.999Z'",
        );
    }

    #[test]
    fn failures_name_the_operation() {
        use CqlType::{Date, Duration, Int};
        assert_eq!(
            eval((&Int, "1"), Operator::Divide, (&Int, "0")),
            Err("the operation 'int / int' failed: / by zero".to_owned())
        );
        let by_zero = |ty: &CqlType, op| eval((ty, "1"), op, (&Int, "0")).err();
        assert_eq!(
            by_zero(&CqlType::Varint, Operator::Divide).as_deref(),
            Some("the operation 'varint / int' failed: BigInteger divide by zero")
        );
        assert_eq!(
            by_zero(&CqlType::Decimal, Operator::Divide).as_deref(),
            Some("the operation 'decimal / int' failed: BigInteger divide by zero")
        );
        assert_eq!(
            by_zero(&CqlType::Decimal, Operator::Modulo).as_deref(),
            Some("the operation 'decimal % int' failed: Division by zero")
        );
        assert_eq!(
            eval((&Date, "2020-01-01"), Operator::Add, (&Duration, "1h")),
            Err("the operation 'date + duration' failed: \
                 The duration must have a day precision. Was: 1h"
                .to_owned())
        );
        assert_eq!(Operator::Multiply.result_type(&CqlType::Text, &Int), None);
    }

    #[test]
    fn negation_wraps_at_the_least_integer() {
        let least = i32::MIN.to_be_bytes();
        assert_eq!(negate(&CqlType::Int, Some(&least)), Ok(Some(least.to_vec())));
        assert_eq!(negate(&CqlType::Int, None), Ok(None));
        assert!(negate(&CqlType::Text, Some(b"x")).is_err());
    }
}
