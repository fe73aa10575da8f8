//! `abs`, `exp`, `log`, `log10`, `round`. Source: `MathFcts`, `NumberType`.

use types::arithmetic::Number;
use types::number::{Decimal, Rounding, check_length, varint_to_bytes};
use types::{CqlType, TypeError, elementary};

use crate::env::EvalEnv;
use crate::error::PlanError;
use crate::native::{Args, NUMBERS, NativeFunction};

/// Adds the functions of that name.
pub(crate) fn candidates(name: &str, out: &mut Vec<NativeFunction>) {
    if matches!(name, "abs" | "exp" | "log" | "log10" | "round") {
        for ty in &NUMBERS {
            out.push(NativeFunction::new(name, std::slice::from_ref(ty), ty.clone(), eval));
        }
    }
}

fn eval(
    f: &NativeFunction,
    args: &Args<'_>,
    _: &EvalEnv<'_>,
) -> Result<Option<Vec<u8>>, PlanError> {
    let ty = &f.returns;
    if let Some(bytes) = f.arg(args, 0) {
        check_length(ty, bytes).map_err(PlanError::from)?;
    }
    let Some(number) = f.arg(args, 0).and_then(|bytes| Number::from_value(ty, bytes)) else {
        return Ok(None);
    };
    let value = match (&*f.name, &number) {
        ("abs", n) => absolute(ty, n),
        ("round", Number::Float(n)) => {
            Some(java_round(f64::from(*n), i64::from(i32::MIN), i64::from(i32::MAX), ty))
        }
        ("round", Number::Double(n)) => Some(java_round(*n, i64::MIN, i64::MAX, ty)),
        ("round", Number::Decimal(n)) => {
            let one = Decimal::from_bigint(1.into());
            Some(n.divide(&one, 0, Rounding::HalfUp).map_err(PlanError::from)?.to_bytes())
        }
        ("round", _) => f.arg(args, 0).map(<[u8]>::to_vec),
        (name, Number::Decimal(n)) => {
            Some(elementary(name, n).map_err(PlanError::from)?.to_bytes())
        }
        (name, Number::Varint(n)) => {
            let whole = elementary(name, &Decimal::from_bigint(n.clone()))
                .and_then(|result| result.to_bigint())
                .map_err(PlanError::from)?;
            Some(varint_to_bytes(&whole))
        }
        (name, n) => {
            let x = n.to_f64();
            let y = match name {
                "exp" => x.exp(),
                "log" => x.ln(),
                _ => x.log10(),
            };
            from_double(ty, y)?
        }
    };
    Ok(value)
}

/// Computes a function of any-precision numbers, with 32 digits or more.
fn elementary(name: &str, number: &Decimal) -> Result<Decimal, TypeError> {
    match name {
        "exp" => elementary::exp(number),
        "log" => elementary::log(number),
        _ => elementary::log10(number),
    }
}

fn absolute(ty: &CqlType, number: &Number) -> Option<Vec<u8>> {
    Some(match (ty, number) {
        (CqlType::Tinyint, n) => n.to_i8().wrapping_abs().to_be_bytes().to_vec(),
        (CqlType::Smallint, n) => n.to_i16().wrapping_abs().to_be_bytes().to_vec(),
        (CqlType::Int, n) => n.to_i32().wrapping_abs().to_be_bytes().to_vec(),
        (_, Number::Integer(n)) => n.wrapping_abs().to_be_bytes().to_vec(),
        (_, Number::Float(n)) => n.abs().to_be_bytes().to_vec(),
        (_, Number::Double(n)) => n.abs().to_be_bytes().to_vec(),
        (_, Number::Varint(n)) => {
            varint_to_bytes(&if *n < 0.into() { -n.clone() } else { n.clone() })
        }
        (_, Number::Decimal(n)) => {
            let negative = n.compare(&Decimal::zero()).is_lt();
            if negative { n.negate().to_bytes() } else { n.to_bytes() }
        }
    })
}

/// `Math.round`: half up, clamped to the integer range of the type's width, zero for NaN.
fn java_round(value: f64, min: i64, max: i64, ty: &CqlType) -> Vec<u8> {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "`as` saturates and maps NaN to 0, as Java"
    )]
    let rounded = ((value + 0.5).floor() as i64).clamp(min, max);
    #[expect(clippy::cast_precision_loss, reason = "Java converts back the same way")]
    match ty {
        CqlType::Float => (rounded as f32).to_be_bytes().to_vec(),
        _ => (rounded as f64).to_be_bytes().to_vec(),
    }
}

/// A double in a number type, as Java narrows it.
fn from_double(ty: &CqlType, value: f64) -> Result<Option<Vec<u8>>, PlanError> {
    types::cast::cast(&CqlType::Double, counter_as_bigint(ty), Some(&value.to_be_bytes()))
        .map_err(PlanError::from)
}

fn counter_as_bigint(ty: &CqlType) -> &CqlType {
    if ty.is_counter() { &CqlType::Bigint } else { ty }
}
