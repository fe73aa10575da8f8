//! Purging: the rules by which a tombstone or a whole file may be dropped.
//!
//! A tombstone may be dropped when it is old enough that every replica has it (`gc_before`), and
//! when no data that it shadows can be anywhere else: in a file that is not part of the compaction
//! or in a memtable. Dropping it earlier brings deleted data back. Source: Cassandra 5.0
//! CompactionController.

use stdx::{DeletionSeconds, Generation, TimestampMicros, WallMicros};

use crate::SstableInfo;

/// The time before which tombstones are old enough: `now` minus `gc_grace_seconds`.
pub fn gc_before(now: WallMicros, gc_grace_seconds: u32) -> DeletionSeconds {
    DeletionSeconds(now.seconds().0.saturating_sub(i64::from(gc_grace_seconds)))
}

/// Input of [`fully_expired`].
#[derive(Clone, Copy, Debug)]
pub struct FullyExpired<'a> {
    /// Files, some of which may be dropped.
    pub compacting: &'a [SstableInfo],
    /// Live files outside of it that overlap any of them.
    pub overlapping: &'a [SstableInfo],
    /// Smallest timestamp in any memtable; `None` when all are empty.
    pub memtable_min_timestamp: Option<TimestampMicros>,
    /// See [`gc_before`].
    pub gc_before: DeletionSeconds,
    /// `only_purge_repaired_tombstones` of the table.
    pub only_purge_repaired: bool,
    /// Drop without regard to other files: `unsafe_aggressive_sstable_expiration`.
    pub ignore_overlaps: bool,
}

/// Files that can be dropped without being read, in the order given: all they hold is expired or
/// deleted long enough ago, and it is older than everything alive elsewhere.
pub fn fully_expired(state: &FullyExpired<'_>) -> Vec<Generation> {
    let is_repaired = state.compacting.iter().all(SstableInfo::is_repaired);
    if state.only_purge_repaired && !is_repaired {
        return Vec::new();
    }
    let gone = |file: &&SstableInfo| file.max_local_deletion_time < state.gc_before;
    let candidates = state.compacting.iter().filter(gone);
    if state.ignore_overlaps {
        return candidates.map(|f| f.generation).collect();
    }
    // Files that are expired themselves hold nothing that a tombstone must keep away.
    let alive = state.overlapping.iter().chain(state.compacting).filter(|f| !gone(f));
    let oldest_alive = alive.map(|f| f.min_timestamp).chain(state.memtable_min_timestamp).min();
    candidates
        .filter(|f| oldest_alive.is_none_or(|oldest| f.max_timestamp < oldest))
        .map(|f| f.generation)
        .collect()
}

#[cfg(test)]
mod tests {
    use stdx::Token;

    use super::*;

    fn file(generation: u64, timestamps: (i64, i64), deletion: i64) -> SstableInfo {
        SstableInfo {
            generation: Generation(generation),
            size_bytes: 1,
            level: 0,
            min_timestamp: TimestampMicros(timestamps.0),
            max_timestamp: TimestampMicros(timestamps.1),
            max_local_deletion_time: DeletionSeconds(deletion),
            droppable_tombstone_ratio: 0.0,
            first_token: Token::MIN,
            last_token: Token::MAX,
            repaired_at: 0,
            pending_repair: None,
            run: None,
            windows: None,
            created_at: WallMicros(0),
            hotness: 0.0,
        }
    }

    #[test]
    fn gc_before_is_the_grace_before_now() {
        assert_eq!(gc_before(WallMicros(864_001_999_999), 864_000), DeletionSeconds(1));
        assert_eq!(gc_before(WallMicros(0), 10), DeletionSeconds(-10));
    }

    /// Scenario rows: (min timestamp, max timestamp, latest deletion) of each file.
    fn check(
        compacting: &[(i64, i64, i64)],
        overlapping: &[(i64, i64, i64)],
        memtable: Option<i64>,
        expect: &[u64],
    ) {
        let build = |rows: &[(i64, i64, i64)], from: u64| -> Vec<SstableInfo> {
            rows.iter().zip(from..).map(|(r, g)| file(g, (r.0, r.1), r.2)).collect()
        };
        let dropped = fully_expired(&FullyExpired {
            compacting: &build(compacting, 1),
            overlapping: &build(overlapping, 100),
            memtable_min_timestamp: memtable.map(TimestampMicros),
            gc_before: DeletionSeconds(50),
            only_purge_repaired: false,
            ignore_overlaps: false,
        });
        let dropped: Vec<u64> = dropped.iter().map(|g| g.0).collect();
        assert_eq!(dropped, expect, "{compacting:?} {overlapping:?} {memtable:?}");
    }

    #[test]
    fn a_file_goes_whole_when_all_in_it_is_gone_and_older_than_what_lives() {
        let never = i64::MAX;
        check(&[(1, 5, 49)], &[], None, &[1]);
        check(&[(1, 5, 50)], &[], None, &[]);
        check(&[(1, 5, never)], &[], None, &[]);
        // Something alive overlaps: it must be newer than all of the file.
        check(&[(1, 5, 49)], &[(6, 9, never)], None, &[1]);
        check(&[(1, 5, 49)], &[(5, 9, never)], None, &[]);
        // The overlapping file is expired too and needs no tombstone.
        check(&[(1, 5, 49)], &[(1, 9, 49)], None, &[1]);
        // A memtable counts as alive.
        check(&[(1, 5, 49)], &[], Some(6), &[1]);
        check(&[(1, 5, 49)], &[], Some(5), &[]);
        // Files of the same compaction count too.
        check(&[(1, 5, 49), (3, 9, never), (1, 2, 10)], &[], None, &[3]);
    }

    #[test]
    fn nothing_goes_whole_while_only_repaired_tombstones_may() {
        let mut file = file(1, (1, 5), 49);
        let dropped = |file: &SstableInfo| {
            fully_expired(&FullyExpired {
                compacting: core::slice::from_ref(file),
                overlapping: &[],
                memtable_min_timestamp: None,
                gc_before: DeletionSeconds(50),
                only_purge_repaired: true,
                ignore_overlaps: false,
            })
        };
        assert_eq!(dropped(&file), []);
        file.repaired_at = 1;
        assert_eq!(dropped(&file), [Generation(1)]);
    }
}
