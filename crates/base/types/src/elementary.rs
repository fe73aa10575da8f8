//! `exp`, `log` and `log10` of any-precision numbers.
//!
//! Owns: results with as many digits as the argument has, at least 32 and at most 10,000, rounded half
//! to even. Never: more work than for 10,000 digits. Numbers are integers in units of `10^-digits`
//! while they are computed, with digits to spare.
//!
//! Source: `DecimalType.exp`, `log`, `log10`.

use std::cmp::Ordering;

use num_bigint::BigInt;

use crate::TypeError;
use crate::number::{Decimal, Rounding, divide_rounded, pow10};

const DIGITS_MIN: u64 = 32;
const DIGITS_MAX: u64 = 10_000;
/// Digits that are computed and not given.
const DIGITS_SPARE: u64 = 40;
/// `exp` sums its series for the argument divided by two this many times.
const HALVINGS: u32 = 64;

/// Digits of the result for an argument.
fn digits_of(number: &Decimal) -> Result<u64, TypeError> {
    match number.precision() {
        wide if wide > DIGITS_MAX => {
            Err(TypeError::Arithmetic(format!("number with more than {DIGITS_MAX} digits")))
        }
        digits => Ok(digits.max(DIGITS_MIN)),
    }
}

fn overflow() -> TypeError {
    TypeError::Arithmetic("Overflow".to_owned())
}

/// `number` in units of `10^-digits`, cut off.
fn fixed(number: &Decimal, digits: u64) -> Result<BigInt, TypeError> {
    let raise = i64::try_from(digits).unwrap_or(i64::MAX).saturating_sub(i64::from(number.scale));
    if raise >= 0 {
        return Ok(&number.unscaled * pow10(raise.unsigned_abs())?);
    }
    if raise.unsigned_abs() > number.precision() {
        return Ok(BigInt::ZERO);
    }
    Ok(&number.unscaled / pow10(raise.unsigned_abs())?)
}

/// `numerator / denominator` in the unit of both.
fn quotient(numerator: &BigInt, denominator: &BigInt, unit: &BigInt) -> BigInt {
    numerator * unit / denominator
}

/// The natural logarithm of 10: 46 artanh(1/31) + 34 artanh(1/49) + 20 artanh(1/161).
fn log_ten(unit: &BigInt) -> BigInt {
    let artanh = |of: u32| {
        let square = of.saturating_mul(of);
        let mut power = unit / of;
        let mut sum = power.clone();
        let mut odd = 3_u32;
        while power != BigInt::ZERO {
            power /= square;
            sum += &power / odd;
            odd = odd.saturating_add(2);
        }
        sum
    };
    artanh(31) * 46 + artanh(49) * 34 + artanh(161) * 20
}

/// `e^x` for |x| below 4.
fn exp_small(x: &BigInt, unit: &BigInt) -> BigInt {
    // The squarings below double the error each time: about 20 digits.
    let spare = BigInt::from(10).pow(24);
    let unit = unit * &spare;
    let reduced = (x * &spare) >> HALVINGS;
    let (mut term, mut sum, mut count) = (unit.clone(), unit.clone(), 1_u32);
    loop {
        term = term * &reduced / &unit / count;
        if term == BigInt::ZERO || term == BigInt::from(-1) {
            break;
        }
        sum += &term;
        count = count.saturating_add(1);
    }
    for _ in 0..HALVINGS {
        sum = &sum * &sum / &unit;
    }
    sum / spare
}

/// Rounds to this many digits, half to even.
fn rounded(number: Decimal, digits: u64) -> Result<Decimal, TypeError> {
    let excess = number.precision().saturating_sub(digits);
    if excess == 0 {
        return Ok(number);
    }
    let scale = i64::from(number.scale).saturating_sub(i64::try_from(excess).unwrap_or(i64::MAX));
    let unscaled = divide_rounded(&number.unscaled, &pow10(excess)?, Rounding::HalfEven);
    let shorter = Decimal { unscaled, scale: i32::try_from(scale).map_err(|_| overflow())? };
    // 9.99 has become 10.0.
    if shorter.precision() > digits { rounded(shorter, digits) } else { Ok(shorter) }
}

fn scaled(unscaled: BigInt, scale: i64) -> Result<Decimal, TypeError> {
    Ok(Decimal { unscaled, scale: i32::try_from(scale).map_err(|_| overflow())? })
}

fn signed(digits: u64) -> i64 {
    i64::try_from(digits).unwrap_or(i64::MAX)
}

/// `e` to the power of a number.
///
/// # Errors
/// The result has an exponent beyond 32 bits; the argument has more than 10,000 digits.
pub fn exp(number: &Decimal) -> Result<Decimal, TypeError> {
    if number.is_zero() {
        return Ok(Decimal::from_bigint(1.into()));
    }
    let digits = digits_of(number)?;
    // Above 10^10 the exponent of the result leaves 32 bits.
    let whole = signed(number.precision()).saturating_sub(i64::from(number.scale));
    if whole > 11 {
        return Err(overflow());
    }
    let working = digits.saturating_add(DIGITS_SPARE);
    let unit = pow10(working)?;
    let x = fixed(number, working)?;
    let ten = log_ten(&unit);
    let mut exponent = &x / &ten;
    let mut rest = x - &exponent * &ten;
    if rest < BigInt::ZERO {
        exponent -= 1;
        rest += &ten;
    }
    let exponent = i64::try_from(exponent).map_err(|_| overflow())?;
    let scale = signed(working).checked_sub(exponent).ok_or_else(overflow)?;
    rounded(scaled(exp_small(&rest, &unit), scale)?, digits)
}

/// The logarithm in units, with `digits` correct digits after the point, and that of 10.
fn log_fixed(number: &Decimal, working: u64) -> Result<(BigInt, BigInt), TypeError> {
    let unit = pow10(working)?;
    let ten = log_ten(&unit);
    // number = mantissa · 10^exponent, where the mantissa is from 1 to 10.
    let places = number.precision().saturating_sub(1);
    let exponent = signed(places).saturating_sub(i64::from(number.scale));
    let mantissa = Decimal {
        unscaled: number.unscaled.clone(),
        scale: i32::try_from(places).map_err(|_| overflow())?,
    };
    let start = mantissa.to_f64().ln();
    let mantissa = fixed(&mantissa, working)?;
    let start = Decimal::from_f64(start).unwrap_or_else(Decimal::zero);
    let mut log = fixed(&start, working)?;
    // y + 2 (m - e^y) / (m + e^y) triples the correct digits; a double starts with 15.
    let mut right = 14_u64;
    loop {
        let power = exp_small(&log, &unit);
        log += quotient(&(2 * (&mantissa - &power)), &(&mantissa + &power), &unit);
        if right > working {
            break;
        }
        right = right.saturating_mul(3);
    }
    Ok((log + &ten * exponent, ten))
}

/// Digits to work with, so that those of a number next to 1 are right too.
fn log_digits(number: &Decimal, digits: u64) -> u64 {
    let places = number.precision();
    digits.saturating_add(places).saturating_add(DIGITS_SPARE)
}

/// The natural logarithm.
///
/// # Errors
/// The number is not positive, or has more than 10,000 digits.
pub fn log(number: &Decimal) -> Result<Decimal, TypeError> {
    if number.compare(&Decimal::zero()) != Ordering::Greater {
        return Err(TypeError::Arithmetic("Natural log of number zero or less".to_owned()));
    }
    if number.compare(&Decimal::from_bigint(1.into())) == Ordering::Equal {
        return Ok(Decimal::zero());
    }
    let digits = digits_of(number)?;
    let working = log_digits(number, digits);
    let (log, _) = log_fixed(number, working)?;
    rounded(scaled(log, signed(working))?, digits)
}

/// The logarithm to base 10.
///
/// # Errors
/// The number is not positive, or has more than 10,000 digits.
pub fn log10(number: &Decimal) -> Result<Decimal, TypeError> {
    if number.compare(&Decimal::zero()) != Ordering::Greater {
        return Err(TypeError::Arithmetic("Log10 of number zero or less".to_owned()));
    }
    let stripped = number.strip_trailing_zeros();
    if stripped.unscaled == BigInt::from(1) {
        let exponent = i64::from(stripped.scale).saturating_neg();
        return Ok(Decimal::from_bigint(exponent.into()).strip_trailing_zeros());
    }
    let digits = digits_of(number)?;
    let working = log_digits(number, digits);
    let (log, ten) = log_fixed(number, working)?;
    let unit = pow10(working)?;
    rounded(scaled(quotient(&log, &ten, &unit), signed(working))?, digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Decimal {
        Decimal::parse(text).unwrap()
    }

    #[test]
    fn results_have_the_digits_of_the_argument_and_at_least_32() {
        let check = |found: Result<Decimal, TypeError>, wanted: &str| {
            assert_eq!(found.unwrap(), of(wanted));
        };
        check(exp(&of("1")), "2.7182818284590452353602874713527");
        check(exp(&of("-123.25")), "29730697999099974118340536468346E-85");
        check(log(&of("2")), "0.69314718055994530941723212145818");
        check(log(&of("0.99999")), "-0.000010000050000333335833353333500001");
        check(log10(&of("0.001")), "-3");
        check(log10(&of("2000")), "3.3010299956639811952137388947245");
        let wide = of("3.1415926535897932384626433832795028841971693993751");
        check(exp(&wide), "23.140692632779269005729086367948547380266106242600");
    }

    #[test]
    fn what_has_no_bound_is_refused() {
        let text = |found: Result<Decimal, TypeError>| found.unwrap_err().to_string();
        assert_eq!(text(exp(&of("1E+12"))), "Overflow");
        assert_eq!(text(exp(&of("-1E+2000000000"))), "Overflow");
        assert_eq!(exp(&of("1E-2000000000")).unwrap().to_f64(), 1.0);
        assert_eq!(text(log(&of("0"))), "Natural log of number zero or less");
        assert_eq!(text(log10(&of("-1"))), "Log10 of number zero or less");
        assert_eq!(log(&of("1E+2000000000")).unwrap().to_f64(), 2e9 * 10f64.ln());
        let digits = "7".repeat(10_001);
        assert_eq!(text(log(&of(&digits))), "number with more than 10000 digits");
    }
}
