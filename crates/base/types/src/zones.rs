//! Time zones by name, as timestamp literals use them: `CET`, `PDT`, `Europe/Berlin`,
//! `Central European Time`.
//!
//! Owns: the names and the zones they stand for, offsets of local times. Never: the zone database of
//! the machine; the rules are those compiled into the program, so that every node reads a literal
//! the same way.
//!
//! `zone_names.txt` has a line per name, sorted by bytes: the name, and after a tab the zone it
//! stands for when that is another one. The names are those that the patterns ` z` and ` zzzz` of
//! `java.time` accept in English on Java 17, with the zones Java resolves them to (`IST` is
//! Africa/Abidjan there, `BST` Pacific/Bougainville). Left out are Java's `SystemV` zones with
//! daylight saving time, which the database does not have.

use jiff::civil::DateTime;
use jiff::tz::{TimeZone, TimeZoneDatabase};

const NAMES: &str = include_str!("zone_names.txt");

/// Years in which the database is asked: local times outside are moved into them by whole cycles
/// of the calendar, before the first transition or among those of the last rule.
const YEARS: std::ops::Range<i64> = -4000..6000;
/// Years after which the calendar repeats, weekdays included.
const CYCLE_YEARS: i64 = 400;

/// Identifier of the zone that a name stands for.
fn zone_id(name: &str) -> Option<&'static str> {
    let (mut low, mut high) = (0usize, NAMES.len());
    while low < high {
        let middle = low.checked_add(high)? / 2;
        let before = NAMES.as_bytes().get(..middle)?;
        let start = before.iter().rposition(|b| *b == b'\n').map_or(0, |at| at.saturating_add(1));
        let line = NAMES.get(start..)?.lines().next()?;
        let (found, id) = line.split_once('\t').unwrap_or((line, line));
        match name.cmp(found) {
            std::cmp::Ordering::Equal => return Some(id),
            std::cmp::Ordering::Less => high = start,
            std::cmp::Ordering::Greater => low = start.checked_add(line.len())?.checked_add(1)?,
        }
    }
    None
}

fn zone(name: &str) -> Option<TimeZone> {
    TimeZoneDatabase::bundled().get(zone_id(name)?).ok()
}

/// A local date and time of day.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Local {
    /// Year, any.
    pub year: i64,
    /// 1 to 12.
    pub month: u32,
    /// 1 to the length of the month.
    pub day: u32,
    /// Second of the day, below 86,400.
    pub second: i64,
}

/// Seconds east of Greenwich at a local time in the zone of that name. A local time that the zone
/// skips has the offset from before the gap; of one that it has twice the earlier is meant.
/// `None`: no such name.
pub(crate) fn offset_seconds(name: &str, local: Local) -> Option<i64> {
    let zone = zone(name)?;
    let mut year = local.year;
    if year >= YEARS.end {
        year = YEARS.end.checked_sub(CYCLE_YEARS)?.checked_add(year.rem_euclid(CYCLE_YEARS))?;
    } else if year < YEARS.start {
        year = YEARS.start.checked_add(year.rem_euclid(CYCLE_YEARS))?;
    }
    let time = DateTime::new(
        i16::try_from(year).ok()?,
        i8::try_from(local.month).ok()?,
        i8::try_from(local.day).ok()?,
        i8::try_from(local.second / 3600).ok()?,
        i8::try_from(local.second / 60 % 60).ok()?,
        i8::try_from(local.second % 60).ok()?,
        0,
    )
    .ok()?;
    let moment = zone.to_ambiguous_timestamp(time).compatible().ok()?;
    let utc = TimeZone::UTC.to_timestamp(time).ok()?;
    utc.as_second().checked_sub(moment.as_second())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_and_each_zone_is_in_the_database() {
        let lines: Vec<&str> = NAMES.lines().collect();
        assert!(lines.len() > 1200);
        let mut previous = "";
        for line in lines {
            let (name, id) = line.split_once('\t').unwrap_or((line, line));
            assert!(previous < name, "{name}");
            assert_eq!(zone_id(name), Some(id), "{name}");
            assert!(TimeZoneDatabase::bundled().get(id).is_ok(), "{id}");
            previous = name;
        }
        for unknown in
            ["", "pst", "europe/berlin", "PSTx", "Europe", "XYZ", "Europe/Berlin\t", "\n"]
        {
            assert_eq!(zone_id(unknown), None, "{unknown:?}");
        }
    }

    #[test]
    fn offsets_follow_the_rules_of_the_zone() {
        let at =
            |year, month, day, hour: i64| Local { year, month, day, second: hour * 3600 + 1800 };
        let check = |name: &str, local: Local, seconds: i64| {
            assert_eq!(offset_seconds(name, local), Some(seconds), "{name} {local:?}");
        };
        check("CET", at(2024, 1, 15, 12), 3600);
        check("CET", at(2024, 7, 15, 12), 7200);
        check("PDT", at(2024, 1, 15, 12), -8 * 3600);
        check("Pacific Standard Time", at(2024, 7, 15, 12), -7 * 3600);
        // Skipped, and twice.
        check("Europe/Berlin", at(2024, 3, 31, 2), 3600);
        check("Europe/Berlin", at(2024, 10, 27, 2), 7200);
        // Before the first transition and after the last, also outside the database's years.
        check("Europe/Berlin", at(1800, 1, 1, 0), 53 * 60 + 28);
        check("Europe/Berlin", at(-100_000, 1, 1, 0), 53 * 60 + 28);
        check("Europe/Berlin", at(12_024, 7, 15, 12), 7200);
        check("Europe/Berlin", at(999_999_999, 1, 15, 12), 3600);
        assert_eq!(offset_seconds("Nowhere", at(2024, 1, 1, 0)), None);
    }
}
