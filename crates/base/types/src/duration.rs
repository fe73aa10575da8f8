//! The `duration` value: months, days and nanoseconds.

use std::fmt;

use codec::Reader;

use crate::TypeError;
use crate::temporal::{MILLIS_PER_DAY, civil_from_days, days_from_civil, month_length};
use crate::wire::put_vint_signed;

const NANOS_PER_MICRO: u64 = 1_000;
const NANOS_PER_MILLI: u64 = 1_000_000;
const NANOS_PER_SECOND: u64 = 1_000_000_000;
const NANOS_PER_MINUTE: u64 = 60 * NANOS_PER_SECOND;
const NANOS_PER_HOUR: u64 = 60 * NANOS_PER_MINUTE;

/// A period. The three parts have the same sign (or are zero).
///
/// Wire form: three signed vints. Source: `cql3.Duration`, `DurationSerializer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Duration {
    months: i32,
    days: i32,
    nanos: i64,
}

impl Duration {
    /// A duration of the parts.
    ///
    /// # Errors
    /// Parts of different signs.
    pub fn new(months: i32, days: i32, nanos: i64) -> Result<Duration, TypeError> {
        let positive = months >= 0 && days >= 0 && nanos >= 0;
        let negative = months <= 0 && days <= 0 && nanos <= 0;
        if positive || negative {
            Ok(Duration { months, days, nanos })
        } else {
            Err(TypeError::Marshal(format!(
                "The duration months, days and nanoseconds must be all of the same sign ({months}, {days}, {nanos})"
            )))
        }
    }

    /// Months.
    pub fn months(&self) -> i32 {
        self.months
    }

    /// Days, not counted into months: a month has no fixed number of days.
    pub fn days(&self) -> i32 {
        self.days
    }

    /// Nanoseconds, not counted into days: a day with a change of clocks has no fixed length.
    pub fn nanos(&self) -> i64 {
        self.nanos
    }

    /// True if a part is negative.
    pub fn is_negative(&self) -> bool {
        self.months < 0 || self.days < 0 || self.nanos < 0
    }

    /// True if there is nothing below days.
    pub fn has_day_precision(&self) -> bool {
        self.nanos == 0
    }

    /// From wire bytes. Bytes after the third number are ignored, as in Cassandra.
    ///
    /// # Errors
    /// `DurationSerializer.validate`'s.
    pub fn from_bytes(bytes: &[u8]) -> Result<Duration, TypeError> {
        let too_short = || {
            TypeError::Marshal(format!(
                "Expected at least 3 bytes for a duration ({})",
                bytes.len()
            ))
        };
        if bytes.len() < 3 {
            return Err(too_short());
        }
        let mut reader = Reader::new(bytes, "duration");
        let mut part = || reader.vint_signed().map_err(|_| too_short());
        let (months, days, nanos) = (part()?, part()?, part()?);
        let small = |value: i64, what: &str| {
            i32::try_from(value).map_err(|_| {
                TypeError::Marshal(format!(
                    "The duration {what} must be a 32 bits integer but was: {value}"
                ))
            })
        };
        Duration::new(small(months, "months")?, small(days, "days")?, nanos)
    }

    /// Wire bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(9);
        put_vint_signed(&mut out, i64::from(self.months));
        put_vint_signed(&mut out, i64::from(self.days));
        put_vint_signed(&mut out, self.nanos);
        out
    }

    /// Parses `1y2mo3w4d5h6m7s8ms9us10ns`, ISO 8601 `P1Y2M3DT4H5M6S`, `P2W` and
    /// `P0001-02-03T04:05:06`, each with an optional leading `-`.
    ///
    /// # Errors
    /// Cassandra's `Duration.from` texts.
    pub fn parse(text: &str) -> Result<Duration, TypeError> {
        let (negative, source) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let refused = || TypeError::DurationFormat(source.to_owned());
        let mut builder = Builder::default();
        let parsed = if let Some(iso) = source.strip_prefix('P') {
            if let Some(weeks) = iso.strip_suffix('W') {
                is_digits(weeks) && {
                    builder.add_text(Unit::Weeks, weeks)?;
                    true
                }
            } else if iso.contains('-') {
                parse_iso_alternative(iso, &mut builder)?
            } else {
                parse_iso(iso, &mut builder)?
            }
        } else {
            parse_standard(source, &mut builder)?
        };
        if !parsed {
            return Err(refused());
        }
        let (months, days, nanos) = (builder.months, builder.days, builder.nanos);
        Ok(if negative {
            // All are 0..=MAX, so their negatives exist.
            Duration {
                months: months.wrapping_neg(),
                days: days.wrapping_neg(),
                nanos: nanos.wrapping_neg(),
            }
        } else {
            Duration { months, days, nanos }
        })
    }

    /// Millis since the epoch plus the duration (UTC; the day of the month is cut to the month's
    /// length). Wraps outside 64 bits, as Java does.
    pub fn add_to_millis(&self, millis: i64) -> i64 {
        shift_millis(millis, i64::from(self.months), i64::from(self.days), self.nanos)
    }

    /// Millis since the epoch minus the duration.
    pub fn subtract_from_millis(&self, millis: i64) -> i64 {
        shift_millis(
            millis,
            -i64::from(self.months),
            -i64::from(self.days),
            self.nanos.wrapping_neg(),
        )
    }
}

fn shift_millis(millis: i64, months: i64, days: i64, nanos: i64) -> i64 {
    let mut millis = millis;
    if months != 0 {
        let day = millis.div_euclid(MILLIS_PER_DAY);
        let in_day = millis.rem_euclid(MILLIS_PER_DAY);
        let (year, month, dom) = civil_from_days(day);
        let index = year
            .wrapping_mul(12)
            .wrapping_add(i64::from(month))
            .wrapping_sub(1)
            .wrapping_add(months);
        let (year, month) = (index.div_euclid(12), index.rem_euclid(12).wrapping_add(1));
        let month = u32::try_from(month).unwrap_or(1);
        let dom = dom.min(month_length(year, month));
        millis =
            days_from_civil(year, month, dom).wrapping_mul(MILLIS_PER_DAY).wrapping_add(in_day);
    }
    millis.wrapping_add(days.wrapping_mul(MILLIS_PER_DAY)).wrapping_add(nanos / 1_000_000)
}

/// The format of `Duration.toString`: `1y2mo3d4h5m6s7ms8us9ns`, without parts that are zero; the
/// zero duration is empty text.
impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_negative() {
            f.write_str("-")?;
        }
        let months = u64::from(self.months.unsigned_abs());
        let nanos = self.nanos.unsigned_abs();
        let parts = [
            (months / 12, "y"),
            (months % 12, "mo"),
            (u64::from(self.days.unsigned_abs()), "d"),
            (nanos / NANOS_PER_HOUR, "h"),
            (nanos % NANOS_PER_HOUR / NANOS_PER_MINUTE, "m"),
            (nanos % NANOS_PER_MINUTE / NANOS_PER_SECOND, "s"),
            (nanos % NANOS_PER_SECOND / NANOS_PER_MILLI, "ms"),
            (nanos % NANOS_PER_MILLI / NANOS_PER_MICRO, "us"),
            (nanos % NANOS_PER_MICRO, "ns"),
        ];
        for (value, unit) in parts {
            if value > 0 {
                write!(f, "{value}{unit}")?;
            }
        }
        Ok(())
    }
}

/// Units from large to small; a literal names them in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Unit {
    Years,
    Months,
    Weeks,
    Days,
    Hours,
    Minutes,
    Seconds,
    Millis,
    Micros,
    Nanos,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Unit::Years => "years",
            Unit::Months => "months",
            Unit::Weeks => "weeks",
            Unit::Days => "days",
            Unit::Hours => "hours",
            Unit::Minutes => "minutes",
            Unit::Seconds => "seconds",
            Unit::Millis => "milliseconds",
            Unit::Micros => "microseconds",
            Unit::Nanos => "nanoseconds",
        }
    }
}

#[derive(Default)]
struct Builder {
    months: i32,
    days: i32,
    nanos: i64,
    last: Option<Unit>,
}

impl Builder {
    fn add_text(&mut self, unit: Unit, digits: &str) -> Result<(), TypeError> {
        // Java's Long.parseLong fails on more than 63 bits; any such number is over every limit.
        self.add(unit, digits.parse().unwrap_or(i64::MAX))
    }

    fn add(&mut self, unit: Unit, number: i64) -> Result<(), TypeError> {
        if let Some(last) = self.last {
            if unit == last {
                return Err(TypeError::Marshal(format!(
                    "Invalid duration. The {} are specified multiple times",
                    unit.name()
                )));
            }
            if unit < last {
                return Err(TypeError::Marshal(format!(
                    "Invalid duration. The {} should be after {}",
                    last.name(),
                    unit.name()
                )));
            }
        }
        self.last = Some(unit);
        let limit = |what: &str| {
            TypeError::Marshal(format!(
                "Invalid duration. The total number of {what} must be less or equal to {}",
                i32::MAX
            ))
        };
        let add_small = |sum: i32, factor: i64| {
            let added = number.checked_mul(factor)?.checked_add(i64::from(sum))?;
            i32::try_from(added).ok()
        };
        let add_nanos = |sum: i64, factor: u64| {
            number.checked_mul(i64::try_from(factor).ok()?)?.checked_add(sum)
        };
        match unit {
            Unit::Years => {
                self.months = add_small(self.months, 12).ok_or_else(|| limit("months"))?
            }
            Unit::Months => {
                self.months = add_small(self.months, 1).ok_or_else(|| limit("months"))?
            }
            Unit::Weeks => self.days = add_small(self.days, 7).ok_or_else(|| limit("days"))?,
            Unit::Days => self.days = add_small(self.days, 1).ok_or_else(|| limit("days"))?,
            Unit::Hours
            | Unit::Minutes
            | Unit::Seconds
            | Unit::Millis
            | Unit::Micros
            | Unit::Nanos => {
                let factor = match unit {
                    Unit::Hours => NANOS_PER_HOUR,
                    Unit::Minutes => NANOS_PER_MINUTE,
                    Unit::Seconds => NANOS_PER_SECOND,
                    Unit::Millis => NANOS_PER_MILLI,
                    Unit::Micros => NANOS_PER_MICRO,
                    _ => 1,
                };
                self.nanos = add_nanos(self.nanos, factor).ok_or_else(|| limit("nanoseconds"))?;
            }
        }
        Ok(())
    }
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// Splits leading digits off.
fn split_digits(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.split_at_checked(end).filter(|(digits, _)| !digits.is_empty())
}

fn parse_standard(source: &str, builder: &mut Builder) -> Result<bool, TypeError> {
    // Longer symbols first, so that "mo" and "ms" are not read as minutes.
    const SYMBOLS: [(&str, Unit); 11] = [
        ("mo", Unit::Months),
        ("ms", Unit::Millis),
        ("us", Unit::Micros),
        ("\u{b5}s", Unit::Micros),
        ("ns", Unit::Nanos),
        ("y", Unit::Years),
        ("w", Unit::Weeks),
        ("d", Unit::Days),
        ("h", Unit::Hours),
        ("s", Unit::Seconds),
        ("m", Unit::Minutes),
    ];
    let mut rest = source;
    while !rest.is_empty() {
        let Some((digits, after)) = split_digits(rest) else {
            return Ok(false);
        };
        let symbol = SYMBOLS.iter().find_map(|(symbol, unit)| {
            let (head, tail) = after.split_at_checked(symbol.len())?;
            head.eq_ignore_ascii_case(symbol).then_some((*unit, tail))
        });
        let Some((unit, tail)) = symbol else {
            return Ok(false);
        };
        builder.add_text(unit, digits)?;
        rest = tail;
    }
    Ok(!source.is_empty())
}

/// Numbers with their unit letters, letters in the order given and each optional. `None`: other text.
fn parse_units<'a>(text: &'a str, letters: &str, units: &[Unit]) -> Option<Vec<(Unit, &'a str)>> {
    let mut rest = text;
    let mut next = 0usize;
    let mut found = Vec::new();
    while !rest.is_empty() {
        let (digits, after) = split_digits(rest)?;
        let letter = after.chars().next()?;
        let at = letters.char_indices().position(|(_, l)| l == letter).filter(|at| *at >= next)?;
        next = at.saturating_add(1);
        found.push((*units.get(at)?, digits));
        rest = after.get(letter.len_utf8()..)?;
    }
    Some(found)
}

fn parse_iso(iso: &str, builder: &mut Builder) -> Result<bool, TypeError> {
    let (date, time) = iso.split_once('T').unwrap_or((iso, ""));
    let date = parse_units(date, "YMD", &[Unit::Years, Unit::Months, Unit::Days]);
    let time = parse_units(time, "HMS", &[Unit::Hours, Unit::Minutes, Unit::Seconds]);
    let (Some(date), Some(time)) = (date, time) else {
        return Ok(false);
    };
    for (unit, digits) in date.into_iter().chain(time) {
        builder.add_text(unit, digits)?;
    }
    Ok(true)
}

/// `YYYY-MM-DDThh:mm:ss`.
fn parse_iso_alternative(iso: &str, builder: &mut Builder) -> Result<bool, TypeError> {
    let template = "dddd-dd-ddTdd:dd:dd";
    let fits = iso.len() == template.len()
        && iso
            .bytes()
            .zip(template.bytes())
            .all(|(b, t)| if t == b'd' { b.is_ascii_digit() } else { b == t });
    if !fits {
        return Ok(false);
    }
    let numbers = iso.split(['-', 'T', ':']);
    let units = [Unit::Years, Unit::Months, Unit::Days, Unit::Hours, Unit::Minutes, Unit::Seconds];
    for (unit, digits) in units.into_iter().zip(numbers) {
        builder.add_text(unit, digits)?;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> Result<(i32, i32, i64), TypeError> {
        Duration::parse(text).map(|d| (d.months, d.days, d.nanos))
    }

    #[test]
    fn all_literal_forms_are_read() {
        let check = |text: &str, expect| assert_eq!(parts(text), Ok(expect), "{text}");
        check("1y2mo", (14, 0, 0));
        check("-1y2mo", (-14, 0, 0));
        check("2w3d", (0, 17, 0));
        check("30h", (0, 0, 30 * 3_600_000_000_000));
        check("15M", (0, 0, 900_000_000_000));
        check("10Mo", (10, 0, 0));
        check("1ms2us3ns", (0, 0, 1_002_003));
        check("5\u{b5}s", (0, 0, 5_000));
        check("P1Y2D", (12, 2, 0));
        check("P1Y2M", (14, 0, 0));
        check("P2W", (0, 14, 0));
        check("P1YT2H", (12, 0, 7_200_000_000_000));
        check("-P1Y2M", (-14, 0, 0));
        check("PT1M", (0, 0, 60_000_000_000));
        check("P0001-00-02T30:30:10", (12, 2, 109_810_000_000_000));
    }

    #[test]
    fn bad_literals_are_refused_with_cassandras_text() {
        let check = |text: &str, expect: &str| {
            assert_eq!(parts(text).map_err(|e| e.to_string()), Err(expect.to_owned()), "{text}");
        };
        check("1d2d", "Invalid duration. The days are specified multiple times");
        check("1d2mo", "Invalid duration. The days should be after months");
        check("1x", "Unable to convert '1x' to a duration");
        check("", "Unable to convert '' to a duration");
        check("P0002-00-20T0:0:0", "Unable to convert 'P0002-00-20T0:0:0' to a duration");
        check("PW", "Unable to convert 'PW' to a duration");
        check(
            "2147483648mo",
            "Invalid duration. The total number of months must be less or equal to 2147483647",
        );
    }

    #[test]
    fn durations_print_and_read_back() {
        let check = |months, days, nanos, expect: &str| {
            let duration = Duration::new(months, days, nanos).expect("same signs");
            assert_eq!(duration.to_string(), expect);
            assert_eq!(Duration::from_bytes(&duration.to_bytes()), Ok(duration));
            if !expect.is_empty() {
                assert_eq!(Duration::parse(expect), Ok(duration));
            }
        };
        check(14, 3, 4_005_006_007, "1y2mo3d4s5ms6us7ns");
        check(0, 0, -90_000_000_000, "-1m30s");
        check(0, 0, 0, "");
        assert!(Duration::new(1, -1, 0).is_err());
        assert_eq!(
            Duration::from_bytes(&[0, 0]),
            Err(TypeError::marshal("Expected at least 3 bytes for a duration (2)"))
        );
    }

    #[test]
    fn months_are_cut_to_the_length_of_the_month() {
        let day = |y, m, d| days_from_civil(y, m, d) * MILLIS_PER_DAY;
        let month = Duration::new(1, 0, 0).expect("positive");
        assert_eq!(month.add_to_millis(day(2020, 1, 31)), day(2020, 2, 29));
        assert_eq!(month.subtract_from_millis(day(2021, 3, 31)), day(2021, 2, 28));
        let mixed = Duration::new(0, 1, 1_000_000).expect("positive");
        assert_eq!(mixed.add_to_millis(0), MILLIS_PER_DAY + 1);
    }
}
