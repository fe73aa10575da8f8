//! Files without any live data, and others that keep them from being dropped whole.
//! Source: `tools.SSTableExpiredBlockers`.

use stdx::DeletionSeconds;

use crate::SstableMeta;

/// Statistics that decide if a file can be dropped whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expiry {
    /// Smallest write timestamp, microseconds.
    pub min_timestamp: i64,
    /// Largest.
    pub max_timestamp: i64,
    /// Largest local deletion time; `NONE` when something lives for ever.
    pub max_local_deletion: DeletionSeconds,
}

impl Expiry {
    /// Reads the statistics of a file.
    pub fn of(meta: &SstableMeta) -> Expiry {
        let stats = &meta.statistics().stats;
        Expiry {
            min_timestamp: stats.min_timestamp.0,
            max_timestamp: stats.max_timestamp.0,
            max_local_deletion: stats.max_local_deletion,
        }
    }
}

/// Positions of blockers, each with those of the expired files that it blocks: it has data that
/// may be older than theirs and is not expired itself.
pub fn expired_blockers(files: &[Expiry], gc_before: DeletionSeconds) -> Vec<(usize, Vec<usize>)> {
    let mut found = Vec::new();
    for (i, blocker) in files.iter().enumerate() {
        if blocker.max_local_deletion <= gc_before {
            continue;
        }
        let blocked: Vec<usize> = (0..files.len())
            .filter(|j| {
                files.get(*j).is_some_and(|file| {
                    *j != i
                        && file.max_local_deletion < gc_before
                        && blocker.min_timestamp <= file.max_timestamp
                })
            })
            .collect();
        if !blocked.is_empty() {
            found.push((i, blocked));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_older_data_that_lives_blocks_expired_ones_and_a_newer_one_does_not() {
        let file = |min_timestamp, max_timestamp, dies: i64| Expiry {
            min_timestamp,
            max_timestamp,
            max_local_deletion: DeletionSeconds(dies),
        };
        let (expired, other) = (file(10, 20, 99), file(30, 40, 50));
        let (old, new) = (file(20, 90, i64::MAX), file(41, 90, i64::MAX));
        // Exactly as old as the limit: neither expired nor blocking.
        let edge = file(0, 90, 100);
        let files = [expired, old, other, new, edge];
        let before = DeletionSeconds(100);
        assert_eq!(expired_blockers(&files, before), [(1, vec![0, 2])]);
        assert_eq!(expired_blockers(&files, DeletionSeconds(99)), [(1, vec![2]), (4, vec![2])]);
        assert!(expired_blockers(&files, DeletionSeconds(0)).is_empty());
    }
}
