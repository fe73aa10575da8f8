//! Delay before failed work is retried.
//!
//! A read error of a device will hardly be gone in a minute, and every retry reads all of the rest for nothing. So
//! the delay grows. Work that an operator stopped, or that lacked room, waits for the shortest delay.

use std::time::Duration;

use crate::error::StoreError;

/// Number of consecutive failures for which an early retry is useless; 0: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Failures(u32);

impl Failures {
    /// One more.
    pub(crate) fn and(self, error: &StoreError) -> Failures {
        match error {
            StoreError::Io(_) | StoreError::Corrupt { .. } => Failures(self.0.saturating_add(1)),
            _ => Failures(1),
        }
    }

    /// `first` after one failure, doubled after each further one, `most` at last.
    pub(crate) fn wait(self, first: Duration, most: Duration) -> Duration {
        let doubled = self.0.saturating_sub(1).min(16);
        first.saturating_mul(1 << doubled).min(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_files_fail_with_makes_the_wait_longer() {
        let wait = |failures: Failures| {
            failures.wait(Duration::from_secs(60), Duration::from_secs(3_600)).as_secs()
        };
        let corrupt = StoreError::Corrupt { file: "file".to_owned(), what: "is cut".to_owned() };
        let others = [
            StoreError::Invalid("Compaction interrupted".to_owned()),
            StoreError::DiskFull { detail: "no room".to_owned() },
        ];
        let mut failures = Failures::default();
        for expected in [60, 120, 240, 480, 960, 1_920, 3_600, 3_600] {
            failures = failures.and(&corrupt);
            assert_eq!(wait(failures), expected);
        }
        for other in others {
            assert_eq!(wait(failures.and(&other)), 60);
            assert_eq!(wait(failures.and(&other).and(&other).and(&other)), 60);
        }
        for _ in 0..100 {
            failures = failures.and(&corrupt);
        }
        assert_eq!(wait(failures), 3_600);
    }
}
