//! Dates, times of day and timestamps: calendar arithmetic, text forms, conversions.
//!
//! All calendar work is on the proleptic Gregorian calendar, as in Cassandra's serializers. The zone
//! of a literal without zone is UTC (Cassandra takes the server's zone, which is UTC on any
//! sane server).

use crate::TypeError;
use crate::inet::regular_number;
use crate::zones::{Local, offset_seconds};

/// Milliseconds of a day.
pub const MILLIS_PER_DAY: i64 = 86_400_000;

/// Nanoseconds of a day; a `time` is below it.
pub const NANOS_PER_DAY: i64 = 86_400_000_000_000;

/// Wire value of the date 1970-01-01.
pub const DATE_EPOCH: u32 = 1 << 31;

/// Year, month (1..=12) and day (1..=31) of a day count since 1970-01-01.
pub fn civil_from_days(days: i64) -> (i64, u32, u32) {
    // Days since 0000-03-01, so that the leap day ends a year; eras of 400 years.
    let z = days.saturating_add(719_468);
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1_460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = doy - (153 * mp + 2) / 5 + 1;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    let year = yoe + era * 400 + i64::from(month <= 2);
    (year, u32::try_from(month).unwrap_or(1), u32::try_from(day).unwrap_or(1))
}

/// Day count since 1970-01-01 of a year, month (1..=12) and day. Wraps for years beyond 10^15.
pub fn days_from_civil(year: i64, month: u32, day: u32) -> i64 {
    let year = year.wrapping_sub(i64::from(month <= 2));
    let era = year.div_euclid(400);
    let yoe = year.rem_euclid(400);
    let month = i64::from(month.clamp(1, 12));
    let mp = if month > 2 { month - 3 } else { month + 9 };
    let doy = (153 * mp + 2) / 5 + i64::from(day) - 1;
    let doe = yoe * 365 + yoe / 4 - yoe / 100 + doy;
    era.wrapping_mul(146_097).wrapping_add(doe).wrapping_sub(719_468)
}

/// Days of a month of the year; 31 for a month that does not exist.
pub fn month_length(year: i64, month: u32) -> u32 {
    match month {
        2 if year.rem_euclid(4) == 0
            && (year.rem_euclid(100) != 0 || year.rem_euclid(400) == 0) =>
        {
            29
        }
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// The wire date of a timestamp. Millis before 1970 are rounded towards 1970, as Cassandra does:
/// one millisecond before the epoch is 1970-01-01 (`SimpleDateSerializer.timeInMillisToDay`).
pub fn date_of_millis(millis: i64) -> u32 {
    let days = millis.div_euclid(1000) / 86_400;
    low_u32(days.wrapping_add(i64::from(DATE_EPOCH)))
}

/// Millis since the epoch at the start of a wire date.
pub fn millis_of_date(date: u32) -> i64 {
    (i64::from(date) - i64::from(DATE_EPOCH)) * MILLIS_PER_DAY
}

/// Low 32 bits.
fn low_u32(value: i64) -> u32 {
    let [.., a, b, c, d] = value.to_be_bytes();
    u32::from_be_bytes([a, b, c, d])
}

/// Text of a wire date: `2024-02-29`; years above 9999 have a `+`, before 0 a `-`.
pub fn format_date(date: u32) -> String {
    let (year, month, day) = civil_from_days(i64::from(date) - i64::from(DATE_EPOCH));
    let year = match year {
        10_000.. => format!("+{year}"),
        0..10_000 => format!("{year:04}"),
        _ => format!("-{:04}", year.unsigned_abs()),
    };
    format!("{year}-{month:02}-{day:02}")
}

/// Reads a `date` literal: `yyyy-mm-dd`, or days as an unsigned number with the epoch at 2^31.
///
/// # Errors
/// Cassandra's `SimpleDateSerializer.dateStringToDays` texts.
pub fn parse_date(source: &str) -> Result<u32, TypeError> {
    if is_raw_number(source) {
        let raw = source.parse::<i64>().ok().and_then(|raw| u32::try_from(raw).ok());
        // 2^31-1 and above lose 2^32 in Cassandra, which is the same 32 bits.
        return raw.ok_or_else(|| {
            TypeError::Marshal(format!("Unable to make unsigned int (for date) from: '{source}'"))
        });
    }
    let refused =
        || TypeError::Marshal(format!("Unable to coerce '{source}' to a formatted date (long)"));
    let mut scan = Scan(source);
    let (year, month, day) = scan.iso_date().ok_or_else(refused)?;
    if !scan.0.is_empty() || day > month_length(year, month) {
        return Err(refused());
    }
    let days = days_from_civil(year, month, day);
    if days < i64::from(i32::MIN) {
        return Err(TypeError::Marshal(format!(
            "Input date {source} is less than min supported date -5877641-06-23T00:00Z"
        )));
    }
    if days > i64::from(i32::MAX) {
        return Err(TypeError::Marshal(format!(
            "Input date {source} is greater than max supported date +5881580-07-11T00:00Z"
        )));
    }
    Ok(low_u32(days.wrapping_add(i64::from(DATE_EPOCH))))
}

/// Text of a time of day in nanoseconds: `hh:mm:ss.nnnnnnnnn`. Values outside a day, which the
/// server never accepts from text but does from the wire, wrap into it.
pub fn format_time(nanos: i64) -> String {
    let nanos = nanos.rem_euclid(NANOS_PER_DAY);
    let (seconds, fraction) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{hours:02}:{minutes:02}:{seconds:02}.{fraction:09}")
}

/// Reads a `time` literal: `hh:mm:ss[.fffffffff]`, or nanoseconds since midnight.
///
/// # Errors
/// Cassandra's `TimeSerializer.timeStringToLong` texts.
pub fn parse_time(source: &str) -> Result<i64, TypeError> {
    if is_raw_number(source) {
        return source.parse::<i64>().ok().filter(|n| (0..NANOS_PER_DAY).contains(n)).ok_or_else(
            || TypeError::Marshal(format!("Unable to make long (for time) from: '{source}'")),
        );
    }
    time_of_day(source.trim_matches(|c: char| c <= ' ')).ok_or_else(|| {
        TypeError::Marshal(format!(
            "(TimeType) Unable to coerce '{source}' to a formatted time (long)"
        ))
    })
}

fn time_of_day(text: &str) -> Option<i64> {
    let (hour, rest) = text.split_once(':')?;
    let (minute, rest) = rest.split_once(':')?;
    let (second, fraction) = match rest.split_once('.') {
        Some((second, fraction)) => (second, Some(fraction)),
        None => (rest, None),
    };
    // Java's Integer.parseInt takes a sign.
    let number = |text: &str, limit: i64| {
        text.parse::<i32>().ok().map(i64::from).filter(|n| (0..limit).contains(n))
    };
    let (hour, minute, second) = (number(hour, 24)?, number(minute, 60)?, number(second, 60)?);
    let nanos = match fraction {
        None => 0,
        Some(digits) => {
            if digits.is_empty() || digits.len() > 9 || !digits.bytes().all(|b| b.is_ascii_digit())
            {
                return None;
            }
            let scale = 10i64.checked_pow(9u32.checked_sub(u32::try_from(digits.len()).ok()?)?)?;
            digits.parse::<i64>().ok()?.checked_mul(scale)?
        }
    };
    Some(((hour * 60 + minute) * 60 + second) * 1_000_000_000 + nanos)
}

/// Text of a timestamp as CQL literals and `CAST(… AS text)` have it: `2024-02-29T12:34:56.789Z`.
pub fn format_timestamp(millis: i64) -> String {
    format_millis(millis, 'T')
}

/// Text of a timestamp as JSON has it: `2024-02-29 12:34:56.789Z`.
pub fn format_timestamp_json(millis: i64) -> String {
    format_millis(millis, ' ')
}

/// Returns true if the texts of a timestamp parse back to it: those before the year 1 have the year
/// of their era only, those after 9999 a `+`, which the parser rejects.
pub fn is_four_digit_year(millis: i64) -> bool {
    let (year, ..) = civil_from_days(millis.div_euclid(MILLIS_PER_DAY));
    (1..=9999).contains(&year)
}

fn format_millis(millis: i64, separator: char) -> String {
    let (year, month, day) = civil_from_days(millis.div_euclid(MILLIS_PER_DAY));
    // The pattern letter is year of era: the year before 1 is again 1.
    let year = if year < 1 { 1 - year } else { year };
    let plus = if year > 9999 { "+" } else { "" };
    let in_day = millis.rem_euclid(MILLIS_PER_DAY);
    let (hour, minute) = (in_day / 3_600_000, in_day / 60_000 % 60);
    let (second, fraction) = (in_day / 1000 % 60, in_day % 1000);
    format!(
        "{plus}{year:04}-{month:02}-{day:02}{separator}{hour:02}:{minute:02}:{second:02}.{fraction:03}Z"
    )
}

/// Reads a `timestamp` literal: millis since the epoch, or a date with optional time and zone in any
/// of Cassandra's forms (`2024-2-9 1:02:03.5+0100`, `2024-02-09T01:02Z`, `2024-02-09`,
/// `2024-02-09+0100`, …). `now` in any case is the given current time.
///
/// Zones: `Z`, `±hh`, `±hhmm`, `±hh:mm`, and after a blank also `UTC`, `GMT`, `UT` with an optional
/// offset, and the names of regions, their abbreviations and long names (`Europe/Berlin`, `PST`,
/// `Pacific Standard Time`), in this case only.
///
/// # Errors
/// Cassandra's `TimestampSerializer.dateStringToTimestamp` texts.
pub fn parse_timestamp(source: &str, now_millis: Option<i64>) -> Result<i64, TypeError> {
    if source.eq_ignore_ascii_case("now") {
        return now_millis.ok_or_else(|| {
            TypeError::marshal("'now' has no value here: no current time is given")
        });
    }
    if is_raw_number(source) {
        return source.parse().map_err(|_| {
            TypeError::Marshal(format!("Unable to make long (for date) from: '{source}'"))
        });
    }
    parse_timestamp_text(source)
        .ok_or_else(|| TypeError::Marshal(format!("Unable to parse a date/time from '{source}'")))
}

fn parse_timestamp_text(source: &str) -> Option<i64> {
    with_time(source).or_else(|| without_time(source))
}

/// `y-M-d'T'H:m[:s][.fraction][zone]`, `T` or one blank between.
fn with_time(source: &str) -> Option<i64> {
    let mut scan = Scan(source);
    let year = scan.number(1, 19)?;
    scan.byte(b'-')?;
    let month = scan.number(1, 19)?;
    scan.byte(b'-')?;
    let day = scan.number(1, 19)?;
    scan.byte(b'T').or_else(|| scan.byte(b' '))?;
    let hour = scan.number(1, 19)?;
    scan.byte(b':')?;
    let minute = scan.number(1, 19)?;
    let mut second = 0;
    let mut ahead = scan;
    if ahead.byte(b':').is_some()
        && let Some(number) = ahead.number(1, 19)
    {
        second = number;
        scan = ahead;
    }
    let mut millis = 0;
    if scan.byte(b'.').is_some() {
        let digits = scan.digits(9);
        let mut scale = 100;
        for digit in digits.bytes() {
            millis += i64::from(digit - b'0') * scale;
            scale /= 10;
        }
    }
    let zone = scan.zone()?;
    let valid = (1..=999_999_999).contains(&year)
        && (0..60).contains(&minute)
        && (0..60).contains(&second)
        // 24:00 is the next midnight.
        && ((0..24).contains(&hour) || (hour == 24 && minute == 0 && second == 0 && millis == 0));
    if !valid {
        return None;
    }
    let days = smart_days(year, month, day)?;
    let in_day = ((hour * 60 + minute) * 60 + second) * 1000 + millis;
    in_zone(days.checked_mul(MILLIS_PER_DAY)?.checked_add(in_day)?, zone)
}

/// `yyyy-MM-dd[zone]`.
fn without_time(source: &str) -> Option<i64> {
    let mut scan = Scan(source);
    let (year, month, day) = scan.iso_date()?;
    let rest = scan.0;
    let zone = scan.zone()?;
    // A zone after a date: the ISO form takes none or one without blank; the others need year 1 on.
    if year < 1 && !rest.is_empty() {
        return None;
    }
    let days = smart_days(year, i64::from(month), i64::from(day))?;
    in_zone(days.checked_mul(MILLIS_PER_DAY)?, zone)
}

/// Millis since the epoch of a local time in a zone, itself given as if it were UTC.
fn in_zone(local: i64, zone: Zone<'_>) -> Option<i64> {
    let offset = match zone {
        Zone::Offset(seconds) => seconds,
        Zone::Named(name) => {
            let (year, month, day) = civil_from_days(local.div_euclid(MILLIS_PER_DAY));
            let second = local.rem_euclid(MILLIS_PER_DAY) / 1000;
            offset_seconds(name, Local { year, month, day, second })?
        }
    };
    local.checked_sub(offset.checked_mul(1000)?)
}

/// Day count of a date whose day may be up to 31 in any month: it is cut to the month's length, as
/// Java's smart resolver does.
fn smart_days(year: i64, month: i64, day: i64) -> Option<i64> {
    let month = u32::try_from(month).ok().filter(|m| (1..=12).contains(m))?;
    let day = u32::try_from(day).ok().filter(|d| (1..=31).contains(d))?;
    Some(days_from_civil(year, month, day.min(month_length(year, month))))
}

/// `^-?\d+$`
fn is_raw_number(source: &str) -> bool {
    let digits = source.strip_prefix('-').unwrap_or(source);
    regular_number(digits)
}

/// The zone of a literal.
#[derive(Clone, Copy)]
enum Zone<'a> {
    /// Seconds east of Greenwich.
    Offset(i64),
    /// A name, perhaps of no zone.
    Named(&'a str),
}

/// The unread rest of a literal.
#[derive(Clone, Copy)]
struct Scan<'a>(&'a str);

impl<'a> Scan<'a> {
    fn byte(&mut self, byte: u8) -> Option<()> {
        self.0 = self.0.strip_prefix(char::from(byte))?;
        Some(())
    }

    /// Up to `max` digits, perhaps none.
    fn digits(&mut self, max: usize) -> &'a str {
        let len = self.0.bytes().take(max).take_while(u8::is_ascii_digit).count();
        let (digits, rest) = self.0.split_at_checked(len).unwrap_or(("", self.0));
        self.0 = rest;
        digits
    }

    /// `min..=max` digits.
    fn number(&mut self, min: usize, max: usize) -> Option<i64> {
        let digits = self.digits(max);
        if digits.len() < min { None } else { digits.parse().ok() }
    }

    /// Year of 4 digits, or more with a sign, month and day of two digits each.
    fn iso_date(&mut self) -> Option<(i64, u32, u32)> {
        let (plus, minus) = (self.byte(b'+').is_some(), self.byte(b'-').is_some());
        let start = self.0.len();
        let year = self.number(4, 10)?;
        let len = start.saturating_sub(self.0.len());
        // A plus sign only where it is needed; a minus zero does not exist.
        let signs_fit = match (plus, minus) {
            (true, true) => false,
            (true, false) => len > 4,
            (false, true) => year != 0,
            (false, false) => len == 4,
        };
        if !signs_fit || year > 999_999_999 {
            return None;
        }
        self.byte(b'-')?;
        let month = self.number(2, 2).filter(|m| (1..=12).contains(m))?;
        self.byte(b'-')?;
        let day = self.number(2, 2).filter(|d| (1..=31).contains(d))?;
        let year = if minus { -year } else { year };
        Some((year, u32::try_from(month).ok()?, u32::try_from(day).ok()?))
    }

    /// The rest of the text as a zone. Nothing is UTC.
    fn zone(&mut self) -> Option<Zone<'a>> {
        if self.0.is_empty() {
            return Some(Zone::Offset(0));
        }
        let after_blank = self.byte(b' ').is_some();
        if !after_blank {
            return offset(self.0, false).map(Zone::Offset);
        }
        if self.0.starts_with(['+', '-']) {
            return offset(self.0, true).map(Zone::Offset);
        }
        // `GMT0` is a zone's name.
        for name in ["UTC", "GMT", "UT"] {
            if let Some(rest) = self.0.strip_prefix(name)
                && self.0 != "GMT0"
            {
                let seconds = if rest.is_empty() { Some(0) } else { offset(rest, true) };
                return seconds.map(Zone::Offset);
            }
        }
        Some(if self.0 == "Z" { Zone::Offset(0) } else { Zone::Named(self.0) })
    }
}

/// `Z`, `±hh`, `±hhmm`, `±hh:mm`, and with seconds where the zone follows a blank.
fn offset(text: &str, seconds: bool) -> Option<i64> {
    if text == "Z" {
        return Some(0);
    }
    let (sign, digits) = match text.strip_prefix('+') {
        Some(digits) => (1, digits),
        None => (-1, text.strip_prefix('-')?),
    };
    let two = |text: Option<&str>| {
        text.filter(|t| t.len() == 2 && regular_number(t)).and_then(|t| t.parse::<i64>().ok())
    };
    let hours = two(digits.get(..2))?;
    let (minutes, secs) = match digits.get(2..)? {
        "" => (0, 0),
        rest => match rest.strip_prefix(':') {
            Some(rest) if rest.len() == 2 => (two(Some(rest))?, 0),
            Some(rest) if seconds => {
                let (minutes, secs) = rest.split_once(':')?;
                (two(Some(minutes))?, two(Some(secs))?)
            }
            Some(_) => return None,
            None => (two(Some(rest))?, 0),
        },
    };
    let total = hours * 3600 + minutes * 60 + secs;
    (minutes < 60 && secs < 60 && total <= 18 * 3600).then_some(sign * total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calendar_days_read_back_over_the_whole_range() {
        for days in (-2_147_483_648i64..=2_147_483_647).step_by(1_234_567) {
            let (y, m, d) = civil_from_days(days);
            assert_eq!(days_from_civil(y, m, d), days);
            assert!((1..=month_length(y, m)).contains(&d));
        }
        assert_eq!(civil_from_days(0), (1970, 1, 1));
        assert_eq!(civil_from_days(-1), (1969, 12, 31));
        assert_eq!(days_from_civil(2000, 2, 29), 11_016);
    }

    #[test]
    fn dates_print_and_read_back() {
        let check = |text: &str, date: u32| {
            assert_eq!(parse_date(text), Ok(date), "{text}");
            assert_eq!(format_date(date), text);
        };
        check("1970-01-01", 1 << 31);
        check("1969-12-31", (1 << 31) - 1);
        check("-5877641-06-23", 0);
        check("+5881580-07-11", u32::MAX);
        check("0000-01-01", 2_146_764_120);
        assert_eq!(parse_date("2147483648"), Ok(1 << 31));
        assert_eq!(parse_date("4294967295"), Ok(u32::MAX));
        for bad in [
            "4294967296",
            "-1",
            "2020-02-30",
            "2020-2-1",
            "12020-01-01",
            "+2020-01-01",
            "x",
            "2020-01-01 ",
        ] {
            assert!(parse_date(bad).is_err(), "{bad}");
        }
        assert_eq!(
            parse_date("+5881580-07-12").map_err(|e| e.to_string()),
            Err("Input date +5881580-07-12 is greater than max supported date +5881580-07-11T00:00Z".to_owned())
        );
    }

    #[test]
    fn times_print_and_read_back() {
        let check = |text: &str, nanos: i64| assert_eq!(parse_time(text), Ok(nanos), "{text}");
        check("00:00:00", 0);
        check("1:02:03", 3_723_000_000_000);
        check("13:14:15.123456789", 47_655_123_456_789);
        check("13:14:15.5", 47_655_500_000_000);
        check("86399999999999", NANOS_PER_DAY - 1);
        assert_eq!(format_time(47_655_123_456_789), "13:14:15.123456789");
        for bad in [
            "86400000000000",
            "-1",
            "24:00:00",
            "1:60:00",
            "1:2",
            "1:2:3.",
            "1:2:3.0123456789",
            "x",
        ] {
            assert!(parse_time(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn timestamps_are_read_in_every_form_of_cassandra() {
        let noon = days_from_civil(2011, 2, 3) * MILLIS_PER_DAY + (4 * 60 + 5) * 60_000;
        let check = |text: &str, millis: i64| {
            assert_eq!(parse_timestamp(text, None), Ok(millis), "{text}");
        };
        for text in [
            "2011-02-03 04:05+0000",
            "2011-02-03 04:05:00+0000",
            "2011-02-03 04:05:00.000+0000",
            "2011-02-03T04:05+0000",
            "2011-02-03T04:05:00Z",
            "2011-02-03T04:05:00.000+00:00",
            "2011-2-3 4:5",
            "2011-02-03 04:05 UTC",
            "2011-02-03 04:05 GMT",
            "2011-02-03 04:05 +00",
            "2011-02-03 05:05+01",
            "2011-02-03 05:35+0130",
            "2011-02-03 03:05:00.-01:00",
            "2011-02-03 05:05 GMT+01:00",
            "1296705900000",
        ] {
            check(text, noon);
        }
        check("2011-02-03", days_from_civil(2011, 2, 3) * MILLIS_PER_DAY);
        check("2011-02-03+0100", days_from_civil(2011, 2, 3) * MILLIS_PER_DAY - 3_600_000);
        check("2011-02-03 04:05:06.789123", noon + 6_789);
        check("2011-02-31 04:05", noon + 25 * MILLIS_PER_DAY);
        check("2011-02-02 24:00", days_from_civil(2011, 2, 3) * MILLIS_PER_DAY);
        check("-1", -1);
        check("2011-02-02 20:05 PST", noon);
        check("2011-02-02 20:05 Pacific Daylight Time", noon);
        check("2011-02-03T05:05:00.000 Europe/Berlin", noon);
        check("2011-02-03 04:05 GMT0", noon);
        check("2011-02-03 04:05 Zulu", noon);
        check("2011-02-03 CET", days_from_civil(2011, 2, 3) * MILLIS_PER_DAY - 3_600_000);
        check("292278994-01-15 12:00 CET", 9_223_372_018_378_800_000);
        for bad in [
            "",
            "999999999-01-01 00:00 CET",
            "x",
            "2011-02",
            "2011-02-03 25:00",
            "2011-13-03",
            "2011-02-32",
            "2011-02-03  04:05",
            "2011-02-03 04:05 pst",
            "2011-02-03 04:05PST",
            "2011-02-03 04:05  PST",
            "2011-02-03 04:05 europe/berlin",
            "2011-02-03 04:05 UTC+1",
            "2011-02-03 04:05 GMT+0",
            "2011-02-03 04:05 Etc/GMT+5",
            "2011-02-03 04:05+01:00[Europe/Berlin]",
            "2011-02-03PST",
            "-0001-07-15 CET",
            "2011-02-03 04:05:60",
            "2011-02-03 04:05 +1",
            "0-1-1 0:0",
            "9223372036854775808",
            "2011-02-03 04:05x",
        ] {
            assert!(parse_timestamp(bad, None).is_err(), "{bad}");
        }
        assert_eq!(parse_timestamp("Now", Some(7)), Ok(7));
        assert!(parse_timestamp("now", None).is_err());
    }

    #[test]
    fn timestamps_print_with_year_of_era() {
        assert_eq!(format_timestamp(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(format_timestamp(-1), "1969-12-31T23:59:59.999Z");
        assert_eq!(format_timestamp_json(1_296_705_906_789), "2011-02-03 04:05:06.789Z");
        assert_eq!(format_timestamp(i64::MAX), "+292278994-08-17T07:12:55.807Z");
        assert_eq!(format_timestamp(i64::MIN), "+292275056-05-16T16:47:04.192Z");
        assert_eq!(
            format_timestamp(days_from_civil(0, 1, 1) * MILLIS_PER_DAY),
            "0001-01-01T00:00:00.000Z"
        );
    }

    #[test]
    fn a_timestamp_before_the_epoch_becomes_the_date_nearer_to_it() {
        assert_eq!(date_of_millis(0), DATE_EPOCH);
        assert_eq!(date_of_millis(-1), DATE_EPOCH);
        assert_eq!(date_of_millis(-MILLIS_PER_DAY), DATE_EPOCH - 1);
        assert_eq!(date_of_millis(MILLIS_PER_DAY - 1), DATE_EPOCH);
        assert_eq!(millis_of_date(DATE_EPOCH + 1), MILLIS_PER_DAY);
    }
}
