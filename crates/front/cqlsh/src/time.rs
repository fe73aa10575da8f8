//! Points in time as Python's `strftime` prints them.
//!
//! Owns: calendar fields, the directives of a format, zones. Never: the clock.

use std::fmt::Write as _;

use types::temporal::{civil_from_days, days_from_civil};

/// Default format of cqlsh.
pub(crate) const DEFAULT_FORMAT: &str = "%Y-%m-%d %H:%M:%S.%f%z";

/// Zone of printed timestamps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Zone {
    /// An offset from UTC that never changes.
    Fixed {
        /// Name for `%Z`.
        name: String,
        /// Seconds east of Greenwich.
        offset: i64,
    },
    /// A zone of the database of zones: that of the system, else the one in this program.
    Rules(jiff::tz::TimeZone),
}

impl Default for Zone {
    fn default() -> Self {
        Zone::Fixed { name: "UTC".to_owned(), offset: 0 }
    }
}

impl Zone {
    /// `UTC` and its names, `Etc/GMT±n`, `±hh:mm`, and names of the database of zones
    /// (`Europe/Berlin`). `None`: no such zone.
    pub(crate) fn parse(name: &str) -> Option<Zone> {
        let utc = ["utc", "etc/utc", "gmt", "etc/gmt", "z", "zulu", "etc/zulu", "universal"];
        if utc.iter().any(|known| name.eq_ignore_ascii_case(known)) {
            return Some(Zone::default());
        }
        if let Some(hours) = name.strip_prefix("Etc/GMT") {
            // POSIX signs: Etc/GMT+5 is west of Greenwich.
            let hours: i64 = hours.parse().ok().filter(|hours| (-14..=12).contains(hours))?;
            return Some(Zone::Fixed { name: format!("{:+03}", -hours), offset: -hours * 3600 });
        }
        let sign = match name.chars().next()? {
            '+' => 1,
            '-' => -1,
            _ => return jiff::tz::TimeZone::get(name).ok().map(Zone::Rules),
        };
        let (hours, minutes) = name.get(1..)?.split_once(':')?;
        let (hours, minutes): (i64, i64) = (hours.parse().ok()?, minutes.parse().ok()?);
        if !(0..=14).contains(&hours) || !(0..=59).contains(&minutes) {
            return None;
        }
        Some(Zone::Fixed { name: name.to_owned(), offset: sign * (hours * 3600 + minutes * 60) })
    }

    /// Seconds east of Greenwich and the name for `%Z` at a time, seconds since 1970.
    fn at(&self, seconds: i64) -> (i64, String) {
        match self {
            Zone::Fixed { name, offset } => (*offset, name.clone()),
            Zone::Rules(zone) => match jiff::Timestamp::from_second(seconds) {
                Ok(time) => {
                    let info = zone.to_offset_info(time);
                    (i64::from(info.offset().seconds()), info.abbreviation().to_owned())
                }
                Err(_) => (0, "UTC".to_owned()),
            },
        }
    }
}

/// A point in time that Python's `datetime` can hold: years 1 to 9999.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    /// Seconds since 1970 in UTC.
    seconds: i64,
    /// Microseconds of the second.
    micros: u32,
}

const YEAR_ONE: i64 = -62_135_596_800;
const YEAR_TEN_THOUSAND: i64 = 253_402_300_800;

impl Moment {
    /// From milliseconds since 1970, through a double of seconds as the driver does. `None` when
    /// the year is not 1 to 9999.
    pub(crate) fn of_millis(millis: i64) -> Option<Moment> {
        #[expect(clippy::cast_precision_loss, reason = "so does the Python driver")]
        let seconds = millis as f64 / 1000.0;
        let whole = seconds.trunc();
        let scaled = (seconds - whole) * 1_000_000.0;
        #[expect(clippy::cast_possible_truncation, reason = "milliseconds of an i64 fit")]
        let micros = whole as i128 * 1_000_000
            + scaled.trunc() as i128
            + (scaled - scaled.trunc()).round_ties_even() as i128;
        Moment::of_micros(i64::try_from(micros).ok()?)
    }

    /// From microseconds since 1970.
    pub(crate) fn of_micros(micros: i64) -> Option<Moment> {
        let seconds = micros.div_euclid(1_000_000);
        if !(YEAR_ONE..YEAR_TEN_THOUSAND).contains(&seconds) {
            return None;
        }
        Some(Moment { seconds, micros: u32::try_from(micros.rem_euclid(1_000_000)).unwrap_or(0) })
    }

    /// By a strftime format. Directives that are not known stay as they are, as glibc does.
    pub(crate) fn format(&self, format: &str, zone: &Zone) -> String {
        let (offset, zone_name) = zone.at(self.seconds);
        let local = self.seconds.saturating_add(offset);
        let days = local.div_euclid(86_400);
        let second = local.rem_euclid(86_400);
        let (year, month, day) = civil_from_days(days);
        let (hour, minute) = (second / 3600, second / 60 % 60);
        let weekday = (days + 4).rem_euclid(7);
        let weekday_index = usize::try_from(weekday).unwrap_or(0);
        let month_index = usize::try_from(month).unwrap_or(1).saturating_sub(1);
        let day_of_year = days - days_from_civil(year, 1, 1) + 1;
        let twelve = (hour + 11) % 12 + 1;
        let mut out = String::new();
        let mut signs = format.chars();
        while let Some(sign) = signs.next() {
            if sign != '%' {
                out.push(sign);
                continue;
            }
            let done = match signs.next() {
                Some('Y') => write!(out, "{year}"),
                Some('y') => write!(out, "{:02}", year.rem_euclid(100)),
                Some('C') => write!(out, "{:02}", year.div_euclid(100)),
                Some('m') => write!(out, "{month:02}"),
                Some('d') => write!(out, "{day:02}"),
                Some('e') => write!(out, "{day:2}"),
                Some('H') => write!(out, "{hour:02}"),
                Some('I') => write!(out, "{twelve:02}"),
                Some('M') => write!(out, "{minute:02}"),
                Some('S') => write!(out, "{:02}", second % 60),
                Some('f') => write!(out, "{:06}", self.micros),
                Some('p') => write!(out, "{}", if hour < 12 { "AM" } else { "PM" }),
                Some('j') => write!(out, "{day_of_year:03}"),
                Some('w') => write!(out, "{weekday}"),
                Some('u') => write!(out, "{}", if weekday == 0 { 7 } else { weekday }),
                Some('s') => write!(out, "{local}"),
                Some('a') => write!(out, "{:.3}", name(&WEEKDAYS, weekday_index)),
                Some('A') => write!(out, "{}", name(&WEEKDAYS, weekday_index)),
                Some('b' | 'h') => write!(out, "{:.3}", name(&MONTHS, month_index)),
                Some('B') => write!(out, "{}", name(&MONTHS, month_index)),
                Some('F') => write!(out, "{year}-{month:02}-{day:02}"),
                Some('T') => write!(out, "{hour:02}:{minute:02}:{:02}", second % 60),
                Some('R') => write!(out, "{hour:02}:{minute:02}"),
                Some('D') => write!(out, "{month:02}/{day:02}/{:02}", year.rem_euclid(100)),
                Some('n') => out.write_char('\n'),
                Some('t') => out.write_char('\t'),
                Some('z') => {
                    let (sign, east) = (if offset < 0 { '-' } else { '+' }, offset.abs());
                    write!(out, "{sign}{:02}{:02}", east / 3600, east / 60 % 60)
                }
                Some('Z') => write!(out, "{zone_name}"),
                Some('%') => write!(out, "%"),
                Some(other) => write!(out, "%{other}"),
                None => write!(out, "%"),
            };
            let _ = done;
        }
        out
    }

    /// Python's `str(datetime)`: microseconds only when there are some.
    pub(crate) fn plain(&self) -> String {
        let format = if self.micros == 0 { "%Y-%m-%d %H:%M:%S" } else { "%Y-%m-%d %H:%M:%S.%f" };
        self.format(format, &Zone::default())
    }
}

/// Returns true if [`parse`] knows every directive of the format.
pub(crate) fn can_parse(format: &str) -> bool {
    let mut signs = format.chars();
    while let Some(sign) = signs.next() {
        if sign == '%'
            && !matches!(
                signs.next(),
                Some('Y' | 'y' | 'm' | 'd' | 'H' | 'M' | 'S' | 'f' | 'z' | '%')
            )
        {
            return false;
        }
    }
    true
}

/// Milliseconds since 1970 of a text in a strptime format; without `%z` it is UTC. `None` when the
/// text is not of the format.
pub(crate) fn parse(text: &str, format: &str) -> Option<i64> {
    let (mut year, mut month, mut day) = (1900, 1, 1);
    let (mut hour, mut minute, mut second, mut micros, mut offset) = (0, 0, 0, 0, 0);
    let mut rest = text;
    let mut signs = format.chars();
    while let Some(sign) = signs.next() {
        if sign.is_whitespace() {
            rest = rest.trim_start();
            continue;
        }
        if sign != '%' {
            rest = rest.strip_prefix(sign)?;
            continue;
        }
        match signs.next()? {
            'Y' => year = digits(&mut rest, 4, 4)?,
            'y' => {
                let short = digits(&mut rest, 2, 2)?;
                year = if short < 69 { 2000 + short } else { 1900 + short };
            }
            'm' => month = digits(&mut rest, 1, 2)?,
            'd' => day = digits(&mut rest, 1, 2)?,
            'H' => hour = digits(&mut rest, 1, 2)?,
            'M' => minute = digits(&mut rest, 1, 2)?,
            'S' => second = digits(&mut rest, 1, 2)?,
            'f' => {
                let before = rest.len();
                let number = digits(&mut rest, 1, 6)?;
                let places = u32::try_from(before - rest.len()).unwrap_or(6);
                micros = number * 10_i64.pow(6_u32.saturating_sub(places));
            }
            'z' => offset = parse_offset(&mut rest)?,
            '%' => rest = rest.strip_prefix('%')?,
            _ => return None,
        }
    }
    let (month_u, day_u) = (u32::try_from(month).ok()?, u32::try_from(day).ok()?);
    let real = rest.is_empty()
        && (1..=12).contains(&month)
        && day_u >= 1
        && day_u <= types::temporal::month_length(year, month_u)
        && hour < 24
        && minute < 60
        && second < 62;
    let seconds =
        days_from_civil(year, month_u, day_u) * 86_400 + hour * 3600 + minute * 60 + second;
    real.then(|| (seconds - offset) * 1000 + micros / 1000)
}

fn digits(rest: &mut &str, least: usize, most: usize) -> Option<i64> {
    let count = rest.bytes().take(most).take_while(u8::is_ascii_digit).count();
    let (number, tail) = rest.split_at_checked(count).filter(|_| count >= least)?;
    *rest = tail;
    number.parse().ok()
}

fn parse_offset(rest: &mut &str) -> Option<i64> {
    if let Some(tail) = rest.strip_prefix('Z') {
        *rest = tail;
        return Some(0);
    }
    let sign = if rest.starts_with('-') { -1 } else { 1 };
    *rest = rest.strip_prefix(['+', '-'])?;
    let hours = digits(rest, 2, 2)?;
    *rest = rest.strip_prefix(':').unwrap_or(rest);
    let minutes = digits(rest, 2, 2).filter(|minutes| *minutes < 60)?;
    Some(sign * (hours * 3600 + minutes * 60))
}

const WEEKDAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

fn name<'n>(names: &[&'n str], index: usize) -> &'n str {
    names.get(index).copied().unwrap_or_default()
}

/// Cuts the last fraction of one to six digits after a point to milliseconds.
pub(crate) fn round_fraction(text: &str) -> String {
    let Some(point) = text.rfind('.') else { return text.to_owned() };
    let (head, tail) = (text.get(..point).unwrap_or_default(), text.get(point + 1..).unwrap_or(""));
    let digits = tail.bytes().take_while(u8::is_ascii_digit).count().min(6);
    let (fraction, rest) = tail.split_at_checked(digits).unwrap_or((tail, ""));
    if digits == 0 {
        return text.to_owned();
    }
    format!("{head}.{:0<3.3}{rest}", fraction)
}

/// A date column: `YYYY-MM-DD`, or days since 1970 when the year is not 1 to 9999.
pub(crate) fn date(value: u32) -> String {
    let days = i64::from(value) - (1 << 31);
    let (year, month, day) = civil_from_days(days);
    match year {
        1..=9999 => format!("{year:04}-{month:02}-{day:02}"),
        _ => days.to_string(),
    }
}

/// A time column.
pub(crate) fn time_of_day(nanos: i64) -> String {
    let seconds = nanos / 1_000_000_000;
    format!(
        "{:02}:{:02}:{:02}.{:09}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60,
        nanos % 1_000_000_000
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_have_microseconds_and_an_offset() {
        let moment = Moment::of_millis(1_704_164_645_678).unwrap();
        let zone = Zone::default();
        assert_eq!(moment.format(DEFAULT_FORMAT, &zone), "2024-01-02 03:04:05.678000+0000");
        let west = Zone::parse("-05:30").unwrap();
        assert_eq!(moment.format("%H:%M%z", &west), "21:34-0530");
        assert_eq!(
            moment.format("%a %d %b %y %I%p %j %Q %%", &zone),
            "Tue 02 Jan 24 03AM 002 %Q %"
        );
        assert_eq!(moment.plain(), "2024-01-02 03:04:05.678000");
        assert_eq!(Moment::of_millis(0).unwrap().plain(), "1970-01-01 00:00:00");
        assert_eq!(Moment::of_millis(-1).unwrap().plain(), "1969-12-31 23:59:59.999000");
    }

    #[test]
    fn times_are_read_by_their_format() {
        let millis = 1_704_164_645_678;
        assert_eq!(parse("2024-01-02 03:04:05.678000+0000", DEFAULT_FORMAT), Some(millis));
        assert_eq!(parse("2024-01-02 05:04:05.678+02:00", DEFAULT_FORMAT), Some(millis));
        assert_eq!(parse("2/1/24 3h", "%d/%m/%y %Hh"), Some(1_704_164_400_000));
        assert_eq!(parse("2024-02-30", "%Y-%m-%d"), None);
        assert_eq!(parse("2024-02-29x", "%Y-%m-%d"), None);
        assert_eq!(parse("2024-02-29", DEFAULT_FORMAT), None);
        assert!(can_parse(DEFAULT_FORMAT) && !can_parse("%b %Y"));
    }

    #[test]
    fn years_outside_of_python_have_no_calendar() {
        assert!(Moment::of_millis(253_402_300_799_000).is_some());
        assert!(Moment::of_millis(253_402_300_800_000).is_none());
        assert!(Moment::of_millis(-62_135_596_800_000).is_some());
        assert!(Moment::of_millis(-62_135_596_800_001).is_none());
        assert!(Moment::of_millis(i64::MAX).is_none());
        assert_eq!(date(1 << 31), "1970-01-01");
        assert_eq!(date(u32::MAX), "2147483647");
    }

    #[test]
    fn fractions_are_cut_to_milliseconds() {
        assert_eq!(round_fraction("05.678000+0000"), "05.678+0000");
        assert_eq!(round_fraction("05.6"), "05.600");
        assert_eq!(round_fraction("05"), "05");
    }

    #[test]
    fn zones_have_rules_and_names() {
        assert_eq!(Zone::parse("Etc/UTC"), Some(Zone::default()));
        let shown = |zone: &str, seconds: i64| {
            let moment = Moment::of_micros(seconds * 1_000_000).unwrap();
            moment.format("%Y-%m-%d %H:%M%z %Z", &Zone::parse(zone).unwrap())
        };
        assert_eq!(shown("Etc/GMT+5", 0), "1969-12-31 19:00-0500 -05");
        // The night in which summer time ends: the same hour twice.
        assert_eq!(shown("Europe/Berlin", 1_729_987_200), "2024-10-27 02:00+0200 CEST");
        assert_eq!(shown("Europe/Berlin", 1_729_990_800), "2024-10-27 02:00+0100 CET");
        assert_eq!(shown("america/new_york", 1_720_000_000), "2024-07-03 05:46-0400 EDT");
        assert_eq!(shown("Asia/Kolkata", 1_720_000_000), "2024-07-03 15:16+0530 IST");
        assert_eq!(Zone::parse("Europe/Atlantis"), None);
        assert_eq!(Zone::parse("+25:00"), None);
    }
}
