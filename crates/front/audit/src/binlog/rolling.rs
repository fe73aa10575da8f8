//! Names of log files, when they roll, and which old ones are surplus.
//!
//! Source: the names that Chronicle Queue gives for a roll cycle (`20261128-14`), and the example of Cassandra's
//! `logback.xml` for `audit.log` (`audit.log.2026-11-28.0`).

use conf::RollCycle;
use std::collections::BTreeSet;
use std::time::Duration;
use stdx::WallMicros;

/// Name of the file that lines are appended to.
pub const TEXT_NAME: &str = "audit.log";
/// A text file that is longer rolls.
pub const TEXT_BYTES_MAX: u64 = 50 << 20;
const DAY: Duration = Duration::from_secs(86_400);

/// Binary files of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BinaryFiles {
    /// When they roll.
    pub cycle: RollCycle,
    /// Their extension, with its dot.
    pub extension: &'static str,
    /// First bytes of each.
    pub header: [u8; 16],
}

/// What happens to finished files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finished {
    /// They stay until they are deleted as surplus.
    Stay,
    /// An archive command moves them away.
    MovedAway,
}

/// Kind of files and when they roll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Binary files, one or more for each cycle.
    Binary(BinaryFiles),
    /// `audit.log`, renamed each day and at a size.
    Text,
}

impl Layout {
    fn period(self) -> i64 {
        let period = match self {
            Layout::Binary(files) => files.cycle.period,
            Layout::Text => DAY,
        };
        i64::try_from(period.as_secs()).unwrap_or(i64::MAX).max(1)
    }

    /// Number of the period that a time is in.
    pub fn cycle(self, now: WallMicros) -> i64 {
        now.0.div_euclid(1_000_000).div_euclid(self.period())
    }

    /// Returns true if a file of that cycle and length must not be appended to.
    pub fn must_roll(self, cycle: i64, length: u64, now: WallMicros) -> bool {
        cycle != self.cycle(now) || (self == Layout::Text && length >= TEXT_BYTES_MAX)
    }

    /// Returns the first number that a name of that cycle may have: 0; where finished files are moved away, the seconds
    /// since the cycle began, so that no name is used again when the earlier file is not in the directory any more.
    pub fn first_number(self, cycle: i64, now: WallMicros, finished: Finished) -> usize {
        let since = now.0.div_euclid(1_000_000) - cycle.saturating_mul(self.period());
        match finished {
            Finished::Stay => 0,
            Finished::MovedAway => usize::try_from(since).unwrap_or(0),
        }
    }

    /// Returns the name for a file that begins now, none of `existing`, with a number from `first` on.
    pub fn new_name(self, now: WallMicros, existing: &[String], first: usize) -> String {
        match self {
            Layout::Text => TEXT_NAME.to_owned(),
            Layout::Binary(BinaryFiles { extension, .. }) => {
                let stamp = self.stamp(self.cycle(now));
                free_name(existing, first, |n| match n {
                    0 => format!("{stamp}{extension}"),
                    n => format!("{stamp}.{n}{extension}"),
                })
            }
        }
    }

    /// Returns the name that a finished file of that cycle gets, with a number from `first` on; `None` if it keeps its
    /// name.
    pub fn rolled_name(self, cycle: i64, existing: &[String], first: usize) -> Option<String> {
        match self {
            Layout::Binary(_) => None,
            Layout::Text => {
                let (year, month, day) = civil(cycle);
                let date = format!("{TEXT_NAME}.{year:04}-{month:02}-{day:02}");
                Some(free_name(existing, first, |n| format!("{date}.{n}")))
            }
        }
    }

    /// Returns the place of a finished file in the order of age; `None` for other files.
    fn age(self, name: &str) -> Option<(String, u64)> {
        match self {
            Layout::Binary(files) => {
                let stem = name.strip_suffix(files.extension)?;
                let (stamp, number) = stem.split_once('.').unwrap_or((stem, "0"));
                let is_stamp = stamp.bytes().all(|b| b.is_ascii_digit() || b == b'-');
                let number = number.parse().ok()?;
                let is_date = stamp.starts_with("20");
                (is_stamp && is_date && stamp.len() >= 8).then(|| (stamp.to_owned(), number))
            }
            Layout::Text => {
                let (date, number) = name.strip_prefix("audit.log.")?.split_once('.')?;
                let is_date =
                    date.len() == 10 && date.bytes().all(|b| b.is_ascii_digit() || b == b'-');
                let number = number.parse().ok()?;
                is_date.then(|| (date.to_owned(), number))
            }
        }
    }

    /// Returns the names of finished files, oldest first.
    pub fn finished(self, files: &[(String, u64)], current: &str) -> Vec<(String, u64)> {
        let others = files.iter().filter(|(name, _)| name != current);
        let mut aged: Vec<_> = others.filter_map(|file| Some((self.age(&file.0)?, file))).collect();
        aged.sort();
        aged.into_iter().map(|(_, file)| file.clone()).collect()
    }

    /// Returns the finished files to delete, oldest first, so that all together have at most `bytes_max`.
    pub fn surplus(self, files: &[(String, u64)], current: &str, bytes_max: u64) -> Vec<String> {
        let finished = self.finished(files, current);
        let of_current = files.iter().find(|(name, _)| name == current).map_or(0, |file| file.1);
        let mut total: u64 = finished.iter().map(|file| file.1).sum::<u64>() + of_current;
        let mut surplus = Vec::new();
        for (name, bytes) in finished {
            if total <= bytes_max {
                break;
            }
            total -= bytes;
            surplus.push(name);
        }
        surplus
    }

    /// Chronicle's text of a cycle: with hours and minutes where the period needs them.
    fn stamp(self, cycle: i64) -> String {
        let seconds = cycle.saturating_mul(self.period());
        let (year, month, day) = civil(seconds.div_euclid(86_400));
        let of_day = seconds.rem_euclid(86_400);
        let (hour, minute) = (of_day / 3600, of_day / 60 % 60);
        let date = format!("{year:04}{month:02}{day:02}");
        match self.period() {
            86_400.. => date,
            3600.. => format!("{date}-{hour:02}"),
            _ => format!("{date}-{hour:02}{minute:02}"),
        }
    }
}

/// Year, month and day of a number of days since 1970-01-01 in the Gregorian calendar.
pub(crate) fn civil(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let of_era = z.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

fn free_name(existing: &[String], first: usize, name: impl Fn(usize) -> String) -> String {
    let existing: BTreeSet<&str> = existing.iter().map(String::as_str).collect();
    let mut number = first;
    loop {
        let name = name(number);
        if !existing.contains(&*name) {
            return name;
        }
        number += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-28 14:25:15 UTC.
    const NOW: WallMicros = WallMicros(1_795_875_915_000_000);

    fn binary(name: &str) -> Layout {
        crate::binary::layout(RollCycle::of_name(name).unwrap())
    }

    fn later(seconds: i64) -> WallMicros {
        WallMicros(NOW.0 + seconds * 1_000_000)
    }

    #[test]
    fn names_are_those_of_the_cycle_and_never_used_twice() {
        for (cycle, name) in [
            ("HOURLY", "20261128-14.audit"),
            ("MINUTELY", "20261128-1425.audit"),
            ("FIVE_MINUTELY", "20261128-1425.audit"),
            ("SIX_HOURLY", "20261128-12.audit"),
            ("DAILY", "20261128.audit"),
        ] {
            assert_eq!(binary(cycle).new_name(NOW, &[], 0), name);
        }
        let existing = ["20261128-14.audit".to_owned(), "20261128-14.1.audit".to_owned()];
        assert_eq!(binary("HOURLY").new_name(NOW, &existing, 0), "20261128-14.2.audit");
        let cycle = Layout::Text.cycle(NOW);
        assert_eq!(Layout::Text.rolled_name(cycle, &[], 0).unwrap(), "audit.log.2026-11-28.0");
        let existing = ["audit.log.2026-11-28.0".to_owned()];
        assert_eq!(
            Layout::Text.rolled_name(cycle, &existing, 0).unwrap(),
            "audit.log.2026-11-28.1"
        );
        assert_eq!(binary("HOURLY").rolled_name(1, &[], 0), None);
        // Archived files are not in the directory: their names are not used again.
        let first =
            |layout: Layout, now| layout.first_number(layout.cycle(NOW), now, Finished::MovedAway);
        let hourly = binary("HOURLY");
        assert_eq!(hourly.new_name(NOW, &[], first(hourly, NOW)), "20261128-14.1515.audit");
        assert_eq!(first(hourly, later(1)), 1516);
        // Midnight is after the last roll of the day.
        assert_eq!(first(Layout::Text, later(9 * 3600 + 2085)), 86_400);
        assert_eq!(hourly.first_number(hourly.cycle(NOW), NOW, Finished::Stay), 0);
    }

    #[test]
    fn a_file_rolls_with_its_cycle_and_a_text_file_with_its_size_too() {
        let hourly = binary("HOURLY");
        let cycle = hourly.cycle(NOW);
        assert!(!hourly.must_roll(cycle, u64::MAX, later(34 * 60)));
        assert!(hourly.must_roll(cycle, 0, later(35 * 60)));
        let day = Layout::Text.cycle(NOW);
        assert!(!Layout::Text.must_roll(day, TEXT_BYTES_MAX - 1, later(3600)));
        assert!(Layout::Text.must_roll(day, TEXT_BYTES_MAX, NOW));
        assert!(Layout::Text.must_roll(day, 0, later(10 * 3600)));
    }

    #[test]
    fn the_oldest_files_are_surplus_and_others_are_not_touched() {
        let file = |name: &str, bytes| (name.to_owned(), bytes);
        let files = [
            file("20261128-14.10.audit", 10),
            file("20261128-14.9.audit", 10),
            file("20261128-14.audit", 10),
            file("20261127-23.audit", 10),
            file("20261128-15.audit", 5),
            file("notes.audit", 100),
            file("audit.log", 100),
        ];
        let surplus = |max| binary("HOURLY").surplus(&files, "20261128-15.audit", max);
        assert!(surplus(45).is_empty());
        assert_eq!(surplus(44), ["20261127-23.audit"]);
        assert_eq!(surplus(15), ["20261127-23.audit", "20261128-14.audit", "20261128-14.9.audit"]);
        assert_eq!(surplus(0).len(), 4);
        let files = [
            file("audit.log.2026-11-28.10", 1),
            file("audit.log.2026-11-28.9", 1),
            file("audit.log", 1),
        ];
        assert_eq!(Layout::Text.surplus(&files, "audit.log", 2), ["audit.log.2026-11-28.9"]);
    }
}
