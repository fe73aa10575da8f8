//! Any-precision numbers and Java's text forms of numbers.
//!
//! Owns: [`Decimal`] (Java's `BigDecimal`), varint bytes (Java's `BigInteger`), text of floats as
//! `Float.toString`/`Double.toString` print them.

use std::cmp::Ordering;
use std::fmt;

pub use num_bigint::BigInt;
use num_bigint::{BigUint, Sign};

use crate::{CqlType, TypeError};

/// Most decimal digits that an operation may add to bring two scales together. Above it the
/// operation is refused: `1e-2000000000 + 1` would take gigabytes (Cassandra runs out of memory).
pub const DECIMAL_SHIFT_MAX: u64 = 100_000;

/// Longest varint, or unscaled part of a decimal, that is computed with or turned into text. Both take time
/// that grows faster than the number: at this size some milliseconds. Longer ones can be stored and read.
pub const NUMBER_BYTES_MAX: usize = 16 << 10;

/// Most digits of a number in text: as many as always fit into [`NUMBER_BYTES_MAX`].
pub const NUMBER_DIGITS_MAX: usize = 39_456;

/// Digits that are parsed at once; longer numbers are split.
const DIGITS_AT_ONCE: usize = 512;

/// Precision of `+`, `-` and `*` on decimals (`DecimalType.MAX_PRECISION`).
const PRECISION_MAX: u64 = 10_000;

/// How a quotient is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// To nearest, ties away from zero.
    HalfUp,
    /// To nearest, ties to the even digit.
    HalfEven,
}

/// A decimal number: `unscaled × 10^-scale`. `1.0` and `1.00` are equal in order
/// ([`Decimal::compare`]) but not in `==`, as in Java.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Decimal {
    /// The digits as an integer.
    pub unscaled: BigInt,
    /// Digits after the point; negative means trailing zeros.
    pub scale: i32,
}

impl Decimal {
    /// Zero with scale 0.
    pub fn zero() -> Decimal {
        Decimal { unscaled: BigInt::ZERO, scale: 0 }
    }

    /// From wire bytes: i32 scale, then the two's-complement number. `None`: fewer than 4 bytes.
    /// No number bytes at all are read as zero.
    pub fn from_bytes(bytes: &[u8]) -> Option<Decimal> {
        let (scale, unscaled) = bytes.split_first_chunk::<4>()?;
        Some(Decimal {
            unscaled: BigInt::from_signed_bytes_be(unscaled),
            scale: i32::from_be_bytes(*scale),
        })
    }

    /// Wire bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = self.scale.to_be_bytes().to_vec();
        out.extend_from_slice(&self.unscaled.to_signed_bytes_be());
        out
    }

    /// Parses Java's `BigDecimal` text: sign, digits with an optional point, optional exponent. `None` also for more
    /// than [`NUMBER_DIGITS_MAX`] digits.
    pub fn parse(text: &str) -> Option<Decimal> {
        let (mantissa, exponent) = match text.find(['e', 'E']) {
            Some(at) => {
                let (mantissa, rest) = text.split_at_checked(at)?;
                let exponent = rest.get(1..)?;
                let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
                if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
                    return None;
                }
                (mantissa, exponent.parse::<i64>().ok()?)
            }
            None => (text, 0),
        };
        let (negative, mantissa) = match mantissa.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, mantissa.strip_prefix('+').unwrap_or(mantissa)),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = [whole, fraction].concat();
        let unscaled = parse_digits(&digits)?;
        let scale = i64::try_from(fraction.len()).ok()?.checked_sub(exponent)?;
        let sign = if negative { Sign::Minus } else { Sign::Plus };
        Some(Decimal {
            unscaled: BigInt::from_biguint(sign, unscaled),
            scale: i32::try_from(scale).ok()?,
        })
    }

    /// A whole number with scale 0.
    pub fn from_bigint(value: BigInt) -> Decimal {
        Decimal { unscaled: value, scale: 0 }
    }

    /// `BigDecimal.valueOf(double)`: the value of the double's shortest text. `None`: not finite.
    pub fn from_f64(value: f64) -> Option<Decimal> {
        value.is_finite().then(|| Decimal::parse(&java_f64(value))).flatten()
    }

    /// The value of the float's shortest text. `None`: not finite.
    pub fn from_f32(value: f32) -> Option<Decimal> {
        value.is_finite().then(|| Decimal::parse(&java_f32(value))).flatten()
    }

    /// Nearest double; infinite when out of range.
    pub fn to_f64(&self) -> f64 {
        self.to_string().parse().unwrap_or(f64::NAN)
    }

    /// Nearest float; infinite when out of range.
    pub fn to_f32(&self) -> f32 {
        self.to_string().parse().unwrap_or(f32::NAN)
    }

    /// The whole part.
    ///
    /// # Errors
    /// More than [`DECIMAL_SHIFT_MAX`] digits.
    pub fn to_bigint(&self) -> Result<BigInt, TypeError> {
        if self.is_zero() {
            return Ok(BigInt::ZERO);
        }
        let shift = self.scale.unsigned_abs();
        if self.scale > 0 {
            if u64::from(shift) > self.precision() {
                return Ok(BigInt::ZERO);
            }
            return Ok(&self.unscaled / pow10(u64::from(shift))?);
        }
        Ok(&self.unscaled * pow10(u64::from(shift))?)
    }

    /// Low 64 bits of the whole part (`BigDecimal.longValue`): wraps.
    pub fn to_i64_wrapping(&self) -> i64 {
        // 10^64 and above is a multiple of 2^64, so the low bits are zero.
        if self.scale <= -64 {
            return 0;
        }
        self.to_bigint().map_or(0, |value| bigint_low_i64(&value))
    }

    /// True for zero of any scale.
    pub fn is_zero(&self) -> bool {
        self.unscaled.sign() == Sign::NoSign
    }

    /// Number of digits of the unscaled value, at least 1.
    pub fn precision(&self) -> u64 {
        digit_count(self.unscaled.magnitude())
    }

    /// Numeric order: `1.0` equals `1.00`.
    pub fn compare(&self, other: &Decimal) -> Ordering {
        let (a, b) = (self.unscaled.sign(), other.unscaled.sign());
        if a != b || a == Sign::NoSign {
            return a.cmp(&b);
        }
        let order = compare_magnitudes(
            self.unscaled.magnitude(),
            self.scale,
            other.unscaled.magnitude(),
            other.scale,
        );
        if a == Sign::Minus { order.reverse() } else { order }
    }

    /// Exact sum; scale is the larger of the two.
    ///
    /// # Errors
    /// Scales differ by more than [`DECIMAL_SHIFT_MAX`].
    pub fn add(&self, other: &Decimal) -> Result<Decimal, TypeError> {
        let (a, b, scale) = align(self, other)?;
        Ok(Decimal { unscaled: a + b, scale })
    }

    /// Exact difference; scale is the larger of the two.
    ///
    /// # Errors
    /// As [`Decimal::add`].
    pub fn subtract(&self, other: &Decimal) -> Result<Decimal, TypeError> {
        let (a, b, scale) = align(self, other)?;
        Ok(Decimal { unscaled: a - b, scale })
    }

    /// Exact product.
    ///
    /// # Errors
    /// The scale leaves 32 bits.
    pub fn multiply(&self, other: &Decimal) -> Result<Decimal, TypeError> {
        let scale = self.scale.checked_add(other.scale).ok_or_else(scale_overflow)?;
        Ok(Decimal { unscaled: &self.unscaled * &other.unscaled, scale })
    }

    /// Quotient with `scale` digits after the point.
    ///
    /// # Errors
    /// Division by zero, or more than [`DECIMAL_SHIFT_MAX`] digits to add.
    pub fn divide(
        &self,
        other: &Decimal,
        scale: i32,
        rounding: Rounding,
    ) -> Result<Decimal, TypeError> {
        if other.is_zero() {
            return Err(TypeError::Arithmetic("BigInteger divide by zero".to_owned()));
        }
        // self / other = (a / b) · 10^(bs − as); times 10^scale for the wanted digits.
        let raise = i64::from(scale)
            .saturating_add(i64::from(other.scale))
            .saturating_sub(i64::from(self.scale));
        let factor = pow10(raise.unsigned_abs())?;
        let (dividend, divisor) = if raise >= 0 {
            (&self.unscaled * factor, other.unscaled.clone())
        } else {
            (self.unscaled.clone(), &other.unscaled * factor)
        };
        Ok(Decimal { unscaled: divide_rounded(&dividend, &divisor, rounding), scale })
    }

    /// The CQL operator `+`.
    ///
    /// # Errors
    /// As [`Decimal::add`].
    pub fn cql_add(&self, other: &Decimal) -> Result<Decimal, TypeError> {
        self.add(other)?.rounded()
    }

    /// The CQL operator `-`.
    ///
    /// # Errors
    /// As [`Decimal::subtract`].
    pub fn cql_subtract(&self, other: &Decimal) -> Result<Decimal, TypeError> {
        self.subtract(other)?.rounded()
    }

    /// The CQL operator `*`.
    ///
    /// # Errors
    /// As [`Decimal::multiply`].
    pub fn cql_multiply(&self, other: &Decimal) -> Result<Decimal, TypeError> {
        self.multiply(other)?.rounded()
    }

    /// The CQL operator `/`: 32 significant digits, at least 32 and at most 1000 after the point,
    /// trailing zeros removed. Source: `DecimalType.divide`.
    ///
    /// # Errors
    /// Division by zero.
    pub fn cql_divide(&self, other: &Decimal) -> Result<Decimal, TypeError> {
        let position = |d: &Decimal| {
            i64::try_from(d.precision()).unwrap_or(i64::MAX).saturating_sub(i64::from(d.scale))
        };
        let first_digit = position(self).saturating_sub(position(other));
        let scale = 32i64
            .saturating_sub(first_digit)
            .max(i64::from(self.scale))
            .max(i64::from(other.scale))
            .clamp(32, 1000);
        let scale = i32::try_from(scale).map_err(|_| scale_overflow())?;
        Ok(self.divide(other, scale, Rounding::HalfUp)?.strip_trailing_zeros())
    }

    /// The CQL operator `%`: `self - other × whole part of (self / other)`.
    ///
    /// # Errors
    /// Division by zero, or scales too far apart.
    pub fn cql_remainder(&self, other: &Decimal) -> Result<Decimal, TypeError> {
        if other.is_zero() {
            let text = if self.is_zero() { "Division undefined" } else { "Division by zero" };
            return Err(TypeError::Arithmetic(text.to_owned()));
        }
        let (a, b, scale) = align(self, other)?;
        let quotient = &a / &b;
        let rest = Decimal { unscaled: a % b, scale };
        // The scale is that of `self - other × quotient`, where the quotient has as few zeros at its
        // end as the difference of both scales asks for. Source: `BigDecimal.remainder`.
        let wanted = i64::from(self.scale).saturating_sub(i64::from(other.scale));
        let zeros = i64::try_from(trailing_zeros(&quotient)).unwrap_or(i64::MAX);
        let of_quotient = match quotient.sign() == Sign::NoSign {
            true => wanted,
            false => wanted.max(zeros.saturating_neg()),
        };
        let of_product = of_quotient.saturating_add(i64::from(other.scale));
        let scale = of_product.max(i64::from(self.scale));
        let scale = i32::try_from(scale).map_err(|_| scale_overflow())?;
        if scale >= rest.scale {
            return Ok(rest);
        }
        let zeros = pow10(u64::from(rest.scale.abs_diff(scale)))?;
        Ok(Decimal { unscaled: rest.unscaled / zeros, scale })
    }

    /// The number with opposite sign.
    #[must_use]
    pub fn negate(&self) -> Decimal {
        Decimal { unscaled: -&self.unscaled, scale: self.scale }
    }

    /// The same number with the fewest digits; zero becomes `0`.
    #[must_use]
    pub fn strip_trailing_zeros(&self) -> Decimal {
        if self.is_zero() {
            return Decimal::zero();
        }
        let digits = self.unscaled.magnitude().to_str_radix(10);
        let kept = digits.trim_end_matches('0');
        let zeros = digits.len().saturating_sub(kept.len());
        // The scale may not leave i32; keep the zeros that would not fit.
        let room = i64::from(self.scale).saturating_sub(i64::from(i32::MIN));
        let zeros = i64::try_from(zeros).unwrap_or(i64::MAX).min(room);
        let keep = digits.len().saturating_sub(usize::try_from(zeros).unwrap_or(0));
        let magnitude = digits.get(..keep).and_then(digits_to_number).unwrap_or_default();
        let scale = i64::from(self.scale).saturating_sub(zeros);
        Decimal {
            unscaled: BigInt::from_biguint(self.unscaled.sign(), magnitude),
            scale: i32::try_from(scale).unwrap_or(self.scale),
        }
    }

    /// Rounds half up to [`PRECISION_MAX`] digits.
    fn rounded(self) -> Result<Decimal, TypeError> {
        let excess = self.precision().saturating_sub(PRECISION_MAX);
        if excess == 0 {
            return Ok(self);
        }
        let shift = i32::try_from(excess).map_err(|_| scale_overflow())?;
        let scale = self.scale.checked_sub(shift).ok_or_else(scale_overflow)?;
        let unscaled = divide_rounded(&self.unscaled, &pow10(excess)?, Rounding::HalfUp);
        // 99…9 may have rounded up to one digit more, which ends in zero.
        Decimal { unscaled, scale }.rounded()
    }
}

/// Java's `BigDecimal.toString`: plain when the exponent is small, else scientific.
impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.unscaled.magnitude().to_str_radix(10);
        if self.unscaled.sign() == Sign::Minus {
            f.write_str("-")?;
        }
        if self.scale == 0 {
            return f.write_str(&digits);
        }
        let len = i64::try_from(digits.len()).unwrap_or(i64::MAX);
        let adjusted = len.saturating_sub(1).saturating_sub(i64::from(self.scale));
        if self.scale >= 0 && adjusted >= -6 {
            let point = len.saturating_sub(i64::from(self.scale));
            return match usize::try_from(point) {
                Ok(point) if point > 0 => {
                    let (whole, fraction) = digits.split_at_checked(point).unwrap_or((&digits, ""));
                    write!(f, "{whole}.{fraction}")
                }
                _ => {
                    let zeros = usize::try_from(point.unsigned_abs()).unwrap_or(0);
                    write!(f, "0.{}{digits}", "0".repeat(zeros))
                }
            };
        }
        let (first, rest) = digits.split_at_checked(1).unwrap_or((&digits, ""));
        f.write_str(first)?;
        if !rest.is_empty() {
            write!(f, ".{rest}")?;
        }
        if adjusted != 0 {
            write!(f, "E{adjusted:+}")?;
        }
        Ok(())
    }
}

fn scale_overflow() -> TypeError {
    TypeError::Arithmetic("Scale too high".to_owned())
}

/// 10^exponent.
///
/// # Errors
/// Above [`DECIMAL_SHIFT_MAX`].
pub(crate) fn pow10(exponent: u64) -> Result<BigInt, TypeError> {
    match u32::try_from(exponent) {
        Ok(small) if exponent <= DECIMAL_SHIFT_MAX => Ok(BigInt::from(10).pow(small)),
        _ => Err(TypeError::Arithmetic(format!(
            "decimal needs more than {DECIMAL_SHIFT_MAX} more digits"
        ))),
    }
}

fn trailing_zeros(number: &BigInt) -> usize {
    let digits = number.magnitude().to_str_radix(10);
    digits.len() - digits.trim_end_matches('0').len()
}

fn align(a: &Decimal, b: &Decimal) -> Result<(BigInt, BigInt, i32), TypeError> {
    let apart = u64::from(a.scale.abs_diff(b.scale));
    Ok(match a.scale.cmp(&b.scale) {
        Ordering::Equal => (a.unscaled.clone(), b.unscaled.clone(), a.scale),
        Ordering::Less if a.is_zero() => (BigInt::ZERO, b.unscaled.clone(), b.scale),
        Ordering::Greater if b.is_zero() => (a.unscaled.clone(), BigInt::ZERO, a.scale),
        Ordering::Less => (&a.unscaled * pow10(apart)?, b.unscaled.clone(), b.scale),
        Ordering::Greater => (a.unscaled.clone(), &b.unscaled * pow10(apart)?, a.scale),
    })
}

pub(crate) fn divide_rounded(dividend: &BigInt, divisor: &BigInt, rounding: Rounding) -> BigInt {
    let quotient = dividend / divisor;
    let remainder = dividend - &quotient * divisor;
    let twice = remainder.magnitude() * 2u32;
    let up = match twice.cmp(divisor.magnitude()) {
        Ordering::Less => false,
        Ordering::Greater => true,
        Ordering::Equal => match rounding {
            Rounding::HalfUp => true,
            Rounding::HalfEven => quotient.bit(0),
        },
    };
    if !up {
        return quotient;
    }
    if (dividend.sign() == Sign::Minus) == (divisor.sign() == Sign::Minus) {
        quotient + 1
    } else {
        quotient - 1
    }
}

fn digit_count(magnitude: &BigUint) -> u64 {
    if let Ok(small) = u64::try_from(magnitude) {
        return u64::from(small.checked_ilog10().unwrap_or(0)).saturating_add(1);
    }
    let log = log10(magnitude);
    let nearest = log.round();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a logarithm of a number in memory: positive, below 2^40"
    )]
    if (log - nearest).abs() > LOG_ERROR_MAX {
        log.floor() as u64 + 1
    } else {
        // Too near to a power of ten for an estimate.
        let power = u32::try_from(nearest as u64).unwrap_or(u32::MAX);
        let reaches = *magnitude >= BigUint::from(10_u32).pow(power);
        u64::from(power) + u64::from(reaches)
    }
}

/// Most that [`log10`] is off by.
const LOG_ERROR_MAX: f64 = 1e-5;

/// The decimal logarithm of a positive number, from its highest bits.
fn log10(magnitude: &BigUint) -> f64 {
    let bits = magnitude.bits();
    let shift = bits.saturating_sub(64);
    let top = u64::try_from(magnitude >> shift).unwrap_or(u64::MAX);
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    let (top, shift) = (top as f64, shift as f64);
    top.log10() + shift * std::f64::consts::LOG10_2
}

/// Bits from which two numbers are compared by their first digits before they are brought to one
/// scale.
const ESTIMATED_BITS_MIN: u64 = 4096;

/// Order of two positive numbers `a × 10^-a_scale` and `b × 10^-b_scale`.
fn compare_magnitudes(a: &BigUint, a_scale: i32, b: &BigUint, b_scale: i32) -> Ordering {
    if a_scale == b_scale {
        return a.cmp(b);
    }
    // Place of the first digit decides; only when equal are the scales brought together, and then
    // the shorter number grows to the digits of the longer one, not further.
    let place = |m: &BigUint, scale: i32| {
        i64::try_from(digit_count(m)).unwrap_or(i64::MAX).saturating_sub(i64::from(scale))
    };
    place(a, a_scale).cmp(&place(b, b_scale)).then_with(|| {
        if a.bits().max(b.bits()) > ESTIMATED_BITS_MIN {
            let apart = (log10(a) - f64::from(a_scale)) - (log10(b) - f64::from(b_scale));
            if apart.abs() > LOG_ERROR_MAX * 4.0 {
                return apart.total_cmp(&0.0);
            }
        }
        let factor = BigUint::from(10u32).pow(a_scale.abs_diff(b_scale));
        if a_scale < b_scale { (a * factor).cmp(b) } else { a.cmp(&(b * factor)) }
    })
}

/// Order of two serialised decimals of at least four bytes each; no allocation when both unscaled
/// numbers fit 12 bytes.
pub(crate) fn compare_decimal_bytes(a: &[u8], b: &[u8]) -> Option<Ordering> {
    let (a_scale, a_digits) = a.split_first_chunk::<4>()?;
    let (b_scale, b_digits) = b.split_first_chunk::<4>()?;
    let (a_scale, b_scale) = (i32::from_be_bytes(*a_scale), i32::from_be_bytes(*b_scale));
    let (Some(x), Some(y)) = (small_i128(a_digits), small_i128(b_digits)) else {
        return Some(Decimal::from_bytes(a)?.compare(&Decimal::from_bytes(b)?));
    };
    if x.signum() != y.signum() || x == 0 || a_scale == b_scale {
        return Some(x.cmp(&y));
    }
    let (m, n) = (x.unsigned_abs(), y.unsigned_abs());
    let place = |m: u128, scale: i32| {
        i64::from(m.checked_ilog10().unwrap_or(0)).saturating_sub(i64::from(scale))
    };
    let order = place(m, a_scale).cmp(&place(n, b_scale)).then_with(|| {
        // Same first place: the scales differ by at most 29 digits and the product stays below
        // 10^29, the most that 12 bytes hold.
        let factor = 10u128.checked_pow(a_scale.abs_diff(b_scale)).unwrap_or(u128::MAX);
        if a_scale < b_scale {
            m.saturating_mul(factor).cmp(&n)
        } else {
            m.cmp(&n.saturating_mul(factor))
        }
    });
    Some(if x < 0 { order.reverse() } else { order })
}

/// Value of at most 12 two's-complement bytes.
fn small_i128(bytes: &[u8]) -> Option<i128> {
    if bytes.len() > 12 {
        return None;
    }
    let negative = bytes.first().is_some_and(|b| *b >= 0x80);
    let start: i128 = if negative { -1 } else { 0 };
    Some(bytes.iter().fold(start, |value, b| (value << 8) | i128::from(*b)))
}

/// Order of two serialised varints, neither empty; no allocation.
pub(crate) fn compare_varint_bytes(a: &[u8], b: &[u8]) -> Ordering {
    let negative = |bytes: &[u8]| bytes.first().is_some_and(|b| *b >= 0x80);
    match (negative(a), negative(b)) {
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
        (both, _) => {
            // Without leading sign bytes a longer number is further from zero.
            let sign = if both { 0xff } else { 0 };
            let (a, b) = (strip_sign(a, sign), strip_sign(b, sign));
            let by_len = a.len().cmp(&b.len());
            (if both { by_len.reverse() } else { by_len }).then_with(|| a.cmp(b))
        }
    }
}

fn strip_sign(mut bytes: &[u8], sign: u8) -> &[u8] {
    while let [first, rest @ ..] = bytes {
        if *first != sign {
            break;
        }
        bytes = rest;
    }
    bytes
}

/// Varint of wire bytes; no bytes are zero.
pub fn varint_from_bytes(bytes: &[u8]) -> BigInt {
    BigInt::from_signed_bytes_be(bytes)
}

/// Wire bytes of a varint: two's complement, as short as possible, at least one byte.
pub fn varint_to_bytes(value: &BigInt) -> Vec<u8> {
    value.to_signed_bytes_be()
}

/// Parses Java's `BigInteger` text: optional sign and ASCII digits. `None` also for more than
/// [`NUMBER_DIGITS_MAX`] of them.
pub fn parse_varint(text: &str) -> Option<BigInt> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let magnitude = parse_digits(digits)?;
    let sign = if text.starts_with('-') { Sign::Minus } else { Sign::Plus };
    Some(BigInt::from_biguint(sign, magnitude))
}

/// A number of at least one ASCII digit and at most [`NUMBER_DIGITS_MAX`].
fn parse_digits(digits: &str) -> Option<BigUint> {
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    if !is_number || digits.len() > NUMBER_DIGITS_MAX {
        return None;
    }
    digits_to_number(digits)
}

/// The number of some ASCII digits. Long ones by halves: one after the other takes time that grows with the square.
fn digits_to_number(digits: &str) -> Option<BigUint> {
    if digits.len() <= DIGITS_AT_ONCE {
        return BigUint::parse_bytes(digits.as_bytes(), 10);
    }
    let mut low = DIGITS_AT_ONCE;
    // 10^low of each step: the squares of the one before.
    let mut powers = vec![BigUint::from(10_u32).pow(512)];
    while low.saturating_mul(2) < digits.len() {
        low = low.saturating_mul(2);
        let square = powers.last().map(|power| power * power)?;
        powers.push(square);
    }
    join_digits(digits, &powers)
}

/// Digits of at most twice the length of the last power.
fn join_digits(digits: &str, powers: &[BigUint]) -> Option<BigUint> {
    let Some((power, rest)) = powers.split_last() else {
        return BigUint::parse_bytes(digits.as_bytes(), 10);
    };
    let low = DIGITS_AT_ONCE.checked_shl(u32::try_from(rest.len()).ok()?)?;
    let Some(at) = digits.len().checked_sub(low).filter(|at| *at > 0) else {
        return join_digits(digits, rest);
    };
    let (high, low) = digits.split_at_checked(at)?;
    Some(join_digits(high, rest)? * power + join_digits(low, rest)?)
}

/// Returns the error for a text with more digits than a number may have. `None`: the text has
/// another error.
pub fn too_many_digits(text: &str) -> Option<TypeError> {
    if text.len() <= NUMBER_DIGITS_MAX {
        return None;
    }
    let digits = text.bytes().take_while(|b| !b"eE".contains(b)).filter(u8::is_ascii_digit).count();
    (digits > NUMBER_DIGITS_MAX).then(|| {
        TypeError::Marshal(format!(
            "a number of {digits} digits is longer than the maximum of {NUMBER_DIGITS_MAX}"
        ))
    })
}

/// Refuses to compute with a varint or decimal longer than [`NUMBER_BYTES_MAX`], or to show it as text.
///
/// # Errors
/// `Arithmetic`.
#[inline]
pub fn check_length(ty: &CqlType, bytes: &[u8]) -> Result<(), TypeError> {
    // The sign and a decimal's scale are not counted.
    if bytes.len() <= NUMBER_BYTES_MAX + 5 || !matches!(ty, CqlType::Varint | CqlType::Decimal) {
        return Ok(());
    }
    Err(TypeError::Arithmetic(format!(
        "a {ty} of {} bytes is longer than the maximum of {NUMBER_BYTES_MAX} for computing with it",
        bytes.len()
    )))
}

/// Low 64 bits of the two's-complement number (`BigInteger.longValue`).
pub fn bigint_low_i64(value: &BigInt) -> i64 {
    let low = value.magnitude().iter_u64_digits().next().unwrap_or(0).cast_signed();
    if value.sign() == Sign::Minus { low.wrapping_neg() } else { low }
}

/// Whole numbers of more bits are infinite as doubles.
const FLOAT_BITS_MAX: u64 = 1100;

/// Nearest double of a big integer.
pub fn bigint_to_f64(value: &BigInt) -> f64 {
    if value.bits() > FLOAT_BITS_MAX {
        return if value.sign() == Sign::Minus { f64::NEG_INFINITY } else { f64::INFINITY };
    }
    value.to_string().parse().unwrap_or(f64::NAN)
}

/// Nearest float of a big integer.
pub fn bigint_to_f32(value: &BigInt) -> f32 {
    if value.bits() > FLOAT_BITS_MAX {
        return if value.sign() == Sign::Minus { f32::NEG_INFINITY } else { f32::INFINITY };
    }
    value.to_string().parse().unwrap_or(f32::NAN)
}

/// `Double.toString`: shortest digits that read back, plain from 10^-3 to below 10^7, else
/// scientific. Digits are those of JDK 19 and later; older ones print a digit more in rare cases.
pub fn java_f64(value: f64) -> String {
    let mut shortest = format!("{value:e}");
    // Where one digit is enough, the nearest of those with two is shown: another one below 1e-322 only.
    if value.is_subnormal() && !shortest.contains('.') {
        shortest = format!("{value:.1e}");
    }
    java_float(value.is_nan(), value.is_infinite(), value.is_sign_negative(), &shortest)
}

/// `Float.toString`, by the rules of [`java_f64`].
pub fn java_f32(value: f32) -> String {
    let mut shortest = format!("{value:e}");
    if value.is_subnormal() && !shortest.contains('.') {
        shortest = format!("{value:.1e}");
    }
    java_float(value.is_nan(), value.is_infinite(), value.is_sign_negative(), &shortest)
}

fn java_float(nan: bool, infinite: bool, negative: bool, scientific: &str) -> String {
    if nan {
        return "NaN".to_owned();
    }
    let sign = if negative { "-" } else { "" };
    if infinite {
        return format!("{sign}Infinity");
    }
    let scientific = scientific.strip_prefix('-').unwrap_or(scientific);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (first, rest) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if mantissa == "0" {
        return format!("{sign}0.0");
    }
    if !(-3..7).contains(&exponent) {
        let rest = if rest.is_empty() { "0" } else { rest };
        return format!("{sign}{first}.{rest}E{exponent}");
    }
    let digits = format!("{first}{rest}");
    match usize::try_from(exponent) {
        Ok(places) => {
            let point = places.saturating_add(1);
            if digits.len() <= point {
                let zeros = "0".repeat(point.saturating_sub(digits.len()));
                format!("{sign}{digits}{zeros}.0")
            } else {
                let (whole, fraction) = digits.split_at_checked(point).unwrap_or((&digits, "0"));
                format!("{sign}{whole}.{fraction}")
            }
        }
        Err(_) => {
            let zeros = usize::try_from(exponent.unsigned_abs()).unwrap_or(1).saturating_sub(1);
            format!("{sign}0.{}{digits}", "0".repeat(zeros))
        }
    }
}

/// The text as Java's `Double.parseDouble` takes it, ready for Rust's parser: blanks trimmed, type
/// suffix removed, `NaN` and `Infinity` in Java's spelling only. Hexadecimal floats are refused.
pub(crate) fn java_float_text(text: &str) -> Option<&str> {
    let text = text.trim_matches(|c: char| c <= ' ');
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if unsigned == "NaN" || unsigned == "Infinity" {
        return Some(text);
    }
    let text = text.strip_suffix(['f', 'F', 'd', 'D']).unwrap_or(text);
    let plain = text.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b));
    (plain && text.bytes().any(|b| b.is_ascii_digit())).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(text: &str) -> Decimal {
        Decimal::parse(text).unwrap_or_else(|| panic!("{text} is a decimal"))
    }

    #[test]
    fn long_numbers_are_parsed_by_halves_as_by_one() {
        let mut seed = 7_u64;
        for length in [1, 511, 512, 513, 1024, 1025, 1536, 2048, 2049, 5000, 20_011] {
            let digits: String = (0..length)
                .map(|_| {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    char::from(b'0' + u8::try_from(seed >> 60).unwrap() % 10)
                })
                .collect();
            let expected = BigUint::parse_bytes(digits.as_bytes(), 10).unwrap();
            assert_eq!(digits_to_number(&digits), Some(expected.clone()), "{length}");
            let count = expected.to_str_radix(10).len() as u64;
            assert_eq!(digit_count(&expected), count, "{length}");
        }
        for power in [19, 20, 40, 511, 512, 4096] {
            let ten = BigUint::from(10_u32).pow(power);
            assert_eq!(digit_count(&ten), u64::from(power) + 1, "10^{power}");
            assert_eq!(digit_count(&(ten - 1_u32)), u64::from(power), "10^{power} - 1");
        }
    }

    #[test]
    fn numbers_of_more_digits_than_the_maximum_are_refused() {
        let most = "9".repeat(NUMBER_DIGITS_MAX);
        assert!(varint_to_bytes(&parse_varint(&most).unwrap()).len() <= NUMBER_BYTES_MAX + 1);
        assert!(Decimal::parse(&most).is_some() && too_many_digits(&format!("-{most}")).is_none());
        assert!(too_many_digits(&format!("{most}E10")).is_none());
        for sign in ["", "-", "+"] {
            let more = format!("{sign}{most}1");
            assert_eq!((parse_varint(&more), Decimal::parse(&more)), (None, None));
            let error = too_many_digits(&more).unwrap().to_string();
            assert_eq!(error, "a number of 39457 digits is longer than the maximum of 39456");
        }
        assert!(Decimal::parse(&format!("0.{most}")).is_none());
        for ty in [CqlType::Varint, CqlType::Decimal] {
            assert_eq!(check_length(&ty, &vec![1; NUMBER_BYTES_MAX + 5]), Ok(()));
            assert!(check_length(&ty, &vec![1; NUMBER_BYTES_MAX + 6]).is_err());
        }
        assert_eq!(check_length(&CqlType::Blob, &vec![1; NUMBER_BYTES_MAX + 6]), Ok(()));
    }

    #[test]
    fn long_decimals_of_different_scales_are_ordered() {
        let ten = |power: u32| BigInt::from(10).pow(power);
        let of = |unscaled: BigInt, scale| Decimal { unscaled, scale };
        let one = of(ten(3000), 3000);
        for (other, expected) in [
            (of(ten(2000), 2000), Ordering::Equal),
            (of(ten(2000) + 1, 2000), Ordering::Less),
            (of(ten(2000) - 1, 2000), Ordering::Greater),
            (of(ten(2000) * 11 / 10, 2000), Ordering::Less),
            (of(ten(2000) * 9 / 10, 2000), Ordering::Greater),
            (of(ten(2001), 2000), Ordering::Less),
        ] {
            assert_eq!(one.compare(&other), expected, "{other}");
            assert_eq!(other.compare(&one), expected.reverse(), "{other}");
        }
    }

    #[test]
    fn decimals_print_as_java_does() {
        let check =
            |text: &str, expect: &str| assert_eq!(decimal(text).to_string(), expect, "{text}");
        check("0", "0");
        check("-0.00", "0.00");
        check("12.50", "12.50");
        check("-1.5", "-1.5");
        check("0.000001", "0.000001");
        check("0.0000001", "1E-7");
        check("123E5", "1.23E+7");
        check("1E+0", "1");
        check(".5", "0.5");
        check("5.", "5");
        check("+7", "7");
        check("1e-10", "1E-10");
        check("0E+3", "0E+3");
        for bad in ["", "-", ".", "1e", "1_0", "1e5.0", "abc", "1e99999999999", "--1", "1-2"] {
            assert_eq!(Decimal::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn decimals_order_by_value_also_when_scales_are_far_apart() {
        let ascending = [
            "-1E+2000000000",
            "-10",
            "-1.01",
            "-1",
            "-1E-2000000000",
            "0",
            "1E-2000000000",
            "0.999",
            "1",
            "1.0000000000000000000000000000000000001",
            "9.99",
            "10",
            "1E+2000000000",
        ];
        for (i, a) in ascending.iter().enumerate() {
            for (j, b) in ascending.iter().enumerate() {
                let (a, b) = (decimal(a), decimal(b));
                assert_eq!(a.compare(&b), i.cmp(&j), "{a} {b}");
                assert_eq!(compare_decimal_bytes(&a.to_bytes(), &b.to_bytes()), Some(i.cmp(&j)));
            }
        }
        assert_eq!(decimal("1.0").compare(&decimal("1.000")), Ordering::Equal);
        assert_ne!(decimal("1.0"), decimal("1.000"));
    }

    #[test]
    fn decimal_operators_follow_cassandra() {
        let divide = |a, b| decimal(a).cql_divide(&decimal(b)).map(|d| d.to_string());
        assert_eq!(divide("1", "3"), Ok("0.33333333333333333333333333333333".to_owned()));
        assert_eq!(divide("10", "4"), Ok("2.5".to_owned()));
        assert_eq!(divide("100", "1"), Ok("1E+2".to_owned()));
        assert!(divide("1", "0.0").is_err());
        let add = decimal("1.25").cql_add(&decimal("2.750"));
        assert_eq!(add.map(|d| d.to_string()), Ok("4.000".to_owned()));
        let remainder = decimal("-7.5").cql_remainder(&decimal("2"));
        assert_eq!(remainder.map(|d| d.to_string()), Ok("-1.5".to_owned()));
        let remainder = |a, b| decimal(a).cql_remainder(&decimal(b)).map(|d| d.to_string());
        assert_eq!(remainder("0", "1.0"), Ok("0".to_owned()));
        assert_eq!(remainder("-256", "1.5"), Ok("-1".to_owned()));
        assert_eq!(remainder("7", "1.5"), Ok("1.0".to_owned()));
        assert_eq!(remainder("2.25", "3"), Ok("2.25".to_owned()));
        assert!(decimal("1e-2000000000").cql_add(&decimal("1")).is_err());
    }

    #[test]
    fn division_rounds_ties_as_asked() {
        let check = |a: &str, b: &str, rounding, expect: &str| {
            let quotient = decimal(a).divide(&decimal(b), 0, rounding).map(|d| d.to_string());
            assert_eq!(quotient, Ok(expect.to_owned()), "{a} / {b}");
        };
        check("5", "2", Rounding::HalfUp, "3");
        check("5", "2", Rounding::HalfEven, "2");
        check("7", "2", Rounding::HalfEven, "4");
        check("-5", "2", Rounding::HalfUp, "-3");
        check("-5", "2", Rounding::HalfEven, "-2");
        check("5", "-2", Rounding::HalfUp, "-3");
        check("100", "3", Rounding::HalfEven, "33");
    }

    #[test]
    fn floats_print_as_java_does() {
        let check = |value: f64, expect: &str| {
            assert_eq!(java_f64(value), expect);
            let back: f64 = java_float_text(expect).and_then(|t| t.parse().ok()).unwrap_or(0.5);
            assert_eq!(back.to_bits(), value.to_bits(), "{expect}");
        };
        check(0.0, "0.0");
        check(-0.0, "-0.0");
        check(1.0, "1.0");
        check(-1.5, "-1.5");
        check(100.0, "100.0");
        check(9_999_999.0, "9999999.0");
        check(1e7, "1.0E7");
        check(12_345_678.9, "1.23456789E7");
        check(0.001, "0.001");
        check(0.000_1, "1.0E-4");
        check(1.0 / 3.0, "0.3333333333333333");
        check(f64::MAX, "1.7976931348623157E308");
        check(f64::INFINITY, "Infinity");
        check(f64::NEG_INFINITY, "-Infinity");
        // The smallest ones, as Java 19 shows them (older ones: 1.0E-323).
        let smallest = [1, 2, 3, 4, 9].map(|bits| java_f64(f64::from_bits(bits)));
        assert_eq!(smallest, ["4.9E-324", "9.9E-324", "1.5E-323", "2.0E-323", "4.4E-323"]);
        let smallest = [1, 2, 5, 7, 8].map(|bits| java_f32(f32::from_bits(bits)));
        assert_eq!(smallest, ["1.4E-45", "2.8E-45", "7.0E-45", "9.8E-45", "1.1E-44"]);
        assert_eq!(java_f64(-f64::from_bits(1)), "-4.9E-324");
        assert_eq!(java_f64(f64::NAN), "NaN");
        assert_eq!(java_f32(1.1), "1.1");
        assert_eq!(java_f32(16_777_216.0), "1.6777216E7");
        for bad in ["inf", "nan", "infinity", "", "0x1p3", "e", "1 2"] {
            assert!(java_float_text(bad).and_then(|t| t.parse::<f64>().ok()).is_none(), "{bad}");
        }
    }

    #[test]
    fn varint_bytes_order_by_value_with_redundant_sign_bytes() {
        let forms: [(&[u8], i64); 10] = [
            (&[0xff, 0x00], -256),
            (&[0x80], -128),
            (&[0xff, 0x80], -128),
            (&[0xff], -1),
            (&[0xff, 0xff], -1),
            (&[0], 0),
            (&[0, 0], 0),
            (&[1], 1),
            (&[0x7f], 127),
            (&[0, 0x80], 128),
        ];
        for (a, x) in forms {
            assert_eq!(varint_from_bytes(a), BigInt::from(x));
            for (b, y) in forms {
                assert_eq!(compare_varint_bytes(a, b), x.cmp(&y), "{x} {y}");
            }
        }
    }

    #[test]
    fn low_bits_wrap_as_java_long_value() {
        let check = |text: &str, expect: i64| {
            assert_eq!(decimal(text).to_i64_wrapping(), expect, "{text}");
        };
        check("9223372036854775808", i64::MIN);
        check("-9223372036854775809", i64::MAX);
        check("18446744073709551617", 1);
        check("-3.9", -3);
        check("1E+70", 0);
        check("1E-2000000000", 0);
    }
}
