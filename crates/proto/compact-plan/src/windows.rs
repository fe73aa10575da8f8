//! Windows of the first clustering column, into which cluster-key compaction sorts rows.
//!
//! A window is a range of values of one width. The windows cover all values of the column's type, one
//! after the other, with ascending numbers. Values are whole numbers, so every window has a first and a
//! last one.

use crate::strategy::OptionsError;

/// Types of a first clustering column that has windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyType {
    /// One byte.
    TinyInt,
    /// Two bytes.
    SmallInt,
    /// Four bytes.
    Int,
    /// Eight bytes.
    BigInt,
    /// Milliseconds since 1970, eight bytes.
    Timestamp,
}

impl KeyType {
    /// By the name that CQL has for it; `None`: a type without windows.
    pub fn from_cql(name: &str) -> Option<KeyType> {
        Some(match name {
            "tinyint" => KeyType::TinyInt,
            "smallint" => KeyType::SmallInt,
            "int" => KeyType::Int,
            "bigint" => KeyType::BigInt,
            "timestamp" => KeyType::Timestamp,
            _ => return None,
        })
    }

    /// Bytes of a serialised value.
    fn bytes(self) -> usize {
        match self {
            KeyType::TinyInt => 1,
            KeyType::SmallInt => 2,
            KeyType::Int => 4,
            KeyType::BigInt | KeyType::Timestamp => 8,
        }
    }

    fn smallest(self) -> i64 {
        match self {
            KeyType::TinyInt => i64::from(i8::MIN),
            KeyType::SmallInt => i64::from(i16::MIN),
            KeyType::Int => i64::from(i32::MIN),
            KeyType::BigInt | KeyType::Timestamp => i64::MIN,
        }
    }

    /// In two's complement.
    fn largest(self) -> i64 {
        -1 - self.smallest()
    }
}

/// Unit of a moving window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WindowUnit {
    /// This many milliseconds of a timestamp.
    Millis(i64),
    /// This many units of a number.
    Numbers(i64),
}

impl WindowUnit {
    /// Names of the units of time.
    pub const OF_TIME: &'static str = "SECONDS, MINUTES, HOURS, DAYS";
    /// Names of the units of numbers.
    pub const OF_NUMBERS: &'static str = "ONES, TENS, HUNDREDS, THOUSANDS, MILLIONS";

    /// By its name in `compaction_window_unit`.
    pub fn from_name(name: &str) -> Option<WindowUnit> {
        Some(match name {
            "SECONDS" => WindowUnit::Millis(1_000),
            "MINUTES" => WindowUnit::Millis(60_000),
            "HOURS" => WindowUnit::Millis(3_600_000),
            "DAYS" => WindowUnit::Millis(86_400_000),
            "ONES" => WindowUnit::Numbers(1),
            "TENS" => WindowUnit::Numbers(10),
            "HUNDREDS" => WindowUnit::Numbers(100),
            "THOUSANDS" => WindowUnit::Numbers(1_000),
            "MILLIONS" => WindowUnit::Numbers(1_000_000),
            _ => return None,
        })
    }
}

/// Width of the windows of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowRule {
    /// So many units: old windows empty as their data expires, new ones come.
    Moving {
        /// `compaction_window_unit`.
        unit: WindowUnit,
        /// `compaction_window_size`, 1 or more.
        size: u32,
    },
    /// All values of the type in this many windows (`window_count`).
    Static {
        /// [`STATIC_MIN`] to [`STATIC_MAX`].
        count: u32,
    },
}

/// Fewest static windows.
pub const STATIC_MIN: u32 = 2;
/// Most static windows.
pub const STATIC_MAX: u32 = 1024;

/// The windows of one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    key: KeyType,
    /// A value with which a window begins.
    origin: i64,
    /// Values of a window: 1 to 2^63.
    width: i128,
}

impl Windows {
    /// The windows of a rule for a column.
    ///
    /// # Errors
    /// A unit of time for a number, or the reverse.
    pub fn new(rule: WindowRule, key: KeyType) -> Result<Windows, OptionsError> {
        let (unit, size) = match rule {
            WindowRule::Static { count } => {
                let values = i128::from(key.largest()) - i128::from(key.smallest()) + 1;
                let count = i128::from(count.clamp(STATIC_MIN, STATIC_MAX));
                let width = values / count + i128::from(values % count != 0);
                return Ok(Windows { key, origin: key.smallest(), width });
            }
            WindowRule::Moving { unit, size } => (unit, i128::from(size.max(1))),
        };
        let (values, units) = match (unit, key == KeyType::Timestamp) {
            (WindowUnit::Millis(values), true) | (WindowUnit::Numbers(values), false) => {
                return Ok(Windows { key, origin: 0, width: i128::from(values) * size });
            }
            (_, true) => ("a timestamp", WindowUnit::OF_TIME),
            (_, false) => ("a number", WindowUnit::OF_NUMBERS),
        };
        Err(OptionsError::new(format!(
            "compaction_window_unit must be one of {units}, as the first clustering column is {values}"
        )))
    }

    /// A serialised value; `None` when it is empty or of another length.
    pub fn value(&self, bytes: &[u8]) -> Option<i64> {
        if bytes.len() != self.key.bytes() {
            return None;
        }
        let (first, rest) = bytes.split_first()?;
        let first = i64::from(i8::from_be_bytes([*first]));
        Some(rest.iter().fold(first, |value, byte| value << 8 | i64::from(*byte)))
    }

    /// Serialises a value of the type.
    pub fn serialized(&self, value: i64) -> Vec<u8> {
        let bytes = value.to_be_bytes();
        bytes.get(bytes.len() - self.key.bytes()..).unwrap_or(&[]).to_vec()
    }

    /// The number of the window that has a value.
    pub fn window_of(&self, value: i64) -> i64 {
        let window = (i128::from(value) - i128::from(self.origin)).div_euclid(self.width);
        // No further from 0 than the value is, or below the count of static windows.
        i64::try_from(window).unwrap_or(i64::MAX)
    }

    /// The first value of a window.
    pub fn first_of(&self, window: i64) -> i64 {
        self.clamped(i128::from(self.origin) + i128::from(window) * self.width)
    }

    /// The last value of a window.
    pub fn last_of(&self, window: i64) -> i64 {
        self.clamped(i128::from(self.origin) + (i128::from(window) + 1) * self.width - 1)
    }

    /// The value before another; `None` before the smallest one.
    pub fn before(&self, value: i64) -> Option<i64> {
        (value > self.key.smallest()).then(|| value - 1)
    }

    /// The value after another; `None` after the largest one.
    pub fn behind(&self, value: i64) -> Option<i64> {
        (value < self.key.largest()).then(|| value + 1)
    }

    fn clamped(&self, value: i128) -> i64 {
        let (smallest, largest) = (self.key.smallest(), self.key.largest());
        i64::try_from(value.clamp(i128::from(smallest), i128::from(largest))).unwrap_or(largest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moving(name: &str, size: u32, key: KeyType) -> Windows {
        let unit = WindowUnit::from_name(name).unwrap();
        Windows::new(WindowRule::Moving { unit, size }, key).unwrap()
    }

    #[test]
    fn every_value_lies_in_the_window_that_begins_and_ends_around_it() {
        let all = [
            moving("TENS", 1, KeyType::TinyInt),
            moving("HUNDREDS", 7, KeyType::SmallInt),
            moving("MILLIONS", u32::MAX, KeyType::Int),
            moving("ONES", 1, KeyType::BigInt),
            moving("DAYS", 30, KeyType::Timestamp),
            Windows::new(WindowRule::Static { count: 3 }, KeyType::TinyInt).unwrap(),
            Windows::new(WindowRule::Static { count: 1024 }, KeyType::BigInt).unwrap(),
            Windows::new(WindowRule::Static { count: 2 }, KeyType::Timestamp).unwrap(),
        ];
        for windows in all {
            let (small, large) = (windows.key.smallest(), windows.key.largest());
            let some = [small, small + 1, -11, -10, -1, 0, 1, 9, 10, 127, large - 1, large];
            for value in some.into_iter().filter(|v| (small..=large).contains(v)) {
                let window = windows.window_of(value);
                let (first, last) = (windows.first_of(window), windows.last_of(window));
                assert!(first <= value && value <= last, "{windows:?} {value}");
                assert_eq!(windows.value(&windows.serialized(value)), Some(value), "{windows:?}");
                // The neighbours of a window have the next numbers.
                if let Some(before) = windows.before(first) {
                    assert_eq!(windows.window_of(before), window - 1, "{windows:?} {value}");
                }
                if let Some(behind) = windows.behind(last) {
                    assert_eq!(windows.window_of(behind), window + 1, "{windows:?} {value}");
                }
            }
        }
    }

    #[test]
    fn static_windows_are_as_many_as_were_asked_for() {
        for (count, key) in [(2, KeyType::BigInt), (7, KeyType::Int), (256, KeyType::TinyInt)] {
            let windows = Windows::new(WindowRule::Static { count }, key).unwrap();
            assert_eq!(windows.window_of(key.smallest()), 0);
            assert_eq!(windows.window_of(key.largest()), i64::from(count) - 1);
        }
    }

    #[test]
    fn units_of_time_are_for_timestamps_and_others_for_numbers() {
        let rule =
            |name: &str| WindowRule::Moving { unit: WindowUnit::from_name(name).unwrap(), size: 1 };
        let wrong = Windows::new(rule("HOURS"), KeyType::Int).unwrap_err();
        assert_eq!(
            wrong.message,
            "compaction_window_unit must be one of ONES, TENS, HUNDREDS, THOUSANDS, MILLIONS, as the \
             first clustering column is a number"
        );
        let wrong = Windows::new(rule("TENS"), KeyType::Timestamp).unwrap_err();
        assert!(wrong.message.contains("one of SECONDS, MINUTES"), "{wrong}");
    }

    #[test]
    fn what_is_empty_or_of_another_length_has_no_window() {
        let windows = moving("TENS", 1, KeyType::Int);
        assert_eq!(windows.value(&[]), None);
        assert_eq!(windows.value(&[0; 8]), None);
        assert_eq!(windows.value(&[0xFF, 0xFF, 0xFF, 0xF6]), Some(-10));
    }
}
