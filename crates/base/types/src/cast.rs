//! `CAST(value AS type)`. Source: `cql3.functions.CastFcts`.

use crate::arithmetic::Number;
use crate::number::{BigInt, Decimal, check_length, varint_to_bytes};
use crate::{CqlType, TypeError, temporal, timeuuid};

/// True if CAST goes from one type to the other. A cast to the same type is the value itself and is
/// allowed for every type.
pub fn can_cast(from: &CqlType, to: &CqlType) -> bool {
    if from == to {
        return true;
    }
    let number = from.is_numeric();
    match to {
        CqlType::Ascii | CqlType::Text => {
            let printable = matches!(
                from,
                CqlType::Inet
                    | CqlType::Boolean
                    | CqlType::Timeuuid
                    | CqlType::Timestamp
                    | CqlType::Date
                    | CqlType::Time
                    | CqlType::Uuid
            );
            number || printable || (*from == CqlType::Ascii && *to == CqlType::Text)
        }
        CqlType::Counter => false,
        to if to.is_numeric() => number,
        CqlType::Date => matches!(from, CqlType::Timeuuid | CqlType::Timestamp),
        CqlType::Timestamp => matches!(from, CqlType::Timeuuid | CqlType::Date),
        _ => false,
    }
}

/// Casts a value. Null, and the empty value of a type where it means nothing, become null.
///
/// # Errors
/// `Arithmetic` if there is no such cast, the bytes are not a value of `from`, or a float that is
/// not a number goes to decimal.
pub fn cast(
    from: &CqlType,
    to: &CqlType,
    value: Option<&[u8]>,
) -> Result<Option<Vec<u8>>, TypeError> {
    let Some(bytes) = value else { return Ok(None) };
    if from == to {
        return Ok(Some(bytes.to_vec()));
    }
    if !can_cast(from, to) {
        return Err(TypeError::Arithmetic(format!("{from} cannot be cast to {to}")));
    }
    if bytes.is_empty() && from.is_empty_value_meaningless() {
        return Ok(None);
    }
    from.validate(bytes)?;
    check_length(from, bytes)?;
    let wrong = || TypeError::Arithmetic(format!("not a value of type {from}"));
    Ok(Some(match to {
        CqlType::Ascii | CqlType::Text if *from == CqlType::Ascii => bytes.to_vec(),
        CqlType::Ascii | CqlType::Text => from.format_unquoted(bytes).into_bytes(),
        CqlType::Date | CqlType::Timestamp => {
            let millis = match from {
                CqlType::Timeuuid => timeuuid::unix_millis(bytes).ok_or_else(wrong)?,
                CqlType::Date => temporal::millis_of_date(u32::from_be_bytes(
                    bytes.try_into().map_err(|_| wrong())?,
                )),
                _ => i64::from_be_bytes(bytes.try_into().map_err(|_| wrong())?),
            };
            if *to == CqlType::Date {
                temporal::date_of_millis(millis).to_be_bytes().to_vec()
            } else {
                millis.to_be_bytes().to_vec()
            }
        }
        _ => cast_number(&Number::from_value(from, bytes).ok_or_else(wrong)?, to)?,
    }))
}

fn cast_number(number: &Number, to: &CqlType) -> Result<Vec<u8>, TypeError> {
    Ok(match to {
        CqlType::Tinyint => number.to_i8().to_be_bytes().to_vec(),
        CqlType::Smallint => number.to_i16().to_be_bytes().to_vec(),
        CqlType::Int => number.to_i32().to_be_bytes().to_vec(),
        CqlType::Float => number.to_f32().to_be_bytes().to_vec(),
        CqlType::Double => number.to_f64().to_be_bytes().to_vec(),
        // Through the 64-bit integer also from decimal: Cassandra loses the high bits, too.
        CqlType::Varint => varint_to_bytes(&BigInt::from(number.to_i64())),
        CqlType::Decimal => {
            let decimal = match number {
                Number::Integer(n) => Some(Decimal::from_bigint(BigInt::from(*n))),
                Number::Varint(n) => Some(Decimal::from_bigint(n.clone())),
                Number::Float(n) => Decimal::from_f32(*n),
                Number::Double(n) => Decimal::from_f64(*n),
                Number::Decimal(n) => Some(n.clone()),
            };
            decimal
                .ok_or_else(|| {
                    TypeError::Arithmetic(
                        "a number that is not finite cannot be cast to decimal".to_owned(),
                    )
                })?
                .to_bytes()
        }
        _ => number.to_i64().to_be_bytes().to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn casts_follow_javas_conversions() {
        use CqlType::{
            Bigint, Boolean, Date, Decimal, Double, Float, Inet, Int, Smallint, Text, Timestamp,
            Timeuuid, Tinyint, Varint,
        };
        let check = |from: &CqlType, text: &str, to: &CqlType, expect: &str| {
            let value = from.from_string(text).unwrap_or_else(|e| panic!("{text}: {e}"));
            let cast = cast(from, to, Some(&value)).map(|v| v.map(|v| to.format_cql_literal(&v)));
            assert_eq!(cast, Ok(Some(expect.to_owned())), "{from} {text} as {to}");
        };
        check(&Int, "300", &Tinyint, "44");
        check(&Double, "1e10", &Int, "2147483647");
        check(&Double, "1e10", &Smallint, "-1");
        check(&Double, "NaN", &Int, "0");
        check(&Double, "-1.9", &Bigint, "-1");
        check(&Float, "1.1", &Decimal, "1.1");
        check(&Float, "1.1", &Double, "1.100000023841858");
        check(&Int, "5", &Decimal, "5");
        check(&Varint, "18446744073709551617", &Decimal, "18446744073709551617");
        check(&Decimal, "18446744073709551617.5", &Varint, "1");
        check(&Int, "5", &Text, "'5'");
        check(&Double, "1", &Text, "'1.0'");
        check(&Boolean, "true", &Text, "'true'");
        check(&Inet, "::1", &Text, "'0:0:0:0:0:0:0:1'");
        check(&Timestamp, "1970-01-02 03:04", &Date, "'1970-01-02'");
        check(&Date, "1970-01-02", &Timestamp, "'1970-01-02T00:00:00.000Z'");
        check(&Timestamp, "0", &Text, "'1970-01-01T00:00:00.000Z'");
        check(
            &Timeuuid,
            "c4fb3e00-2f4a-11e0-8080-808080808080",
            &Timestamp,
            "'2011-02-03T04:05:00.000Z'",
        );
    }

    #[test]
    fn empty_and_null_become_null_and_other_casts_are_refused() {
        assert_eq!(cast(&CqlType::Int, &CqlType::Text, None), Ok(None));
        assert_eq!(cast(&CqlType::Int, &CqlType::Text, Some(&[])), Ok(None));
        assert!(cast(&CqlType::Text, &CqlType::Int, Some(b"1")).is_err());
        assert!(!can_cast(&CqlType::Int, &CqlType::Counter));
        assert!(!can_cast(&CqlType::Blob, &CqlType::Text));
        assert!(can_cast(&CqlType::Blob, &CqlType::Blob));
    }
}
