//! Schedule of automatic repairs: the next pieces to repair, and the pace. Decisions from known facts,
//! nothing else.
//!
//! Each node repairs its primary ranges, so that one node is responsible for each range of the ring.
//! Ranges are cut into *pieces* of some hundred MiB. Each completed piece is recorded, so that an
//! interrupted repair continues after it. The piece that has used up most of its window goes first, with
//! others of its table, as much as one job takes.
//!
//! **When.** A piece is due at half of its window. Nodes take turns by the clock, so that one replica set
//! after the other is busy; a table that was begun in a turn is completed. At three quarters, or when the
//! pace is above half of its limit, a piece does not wait for its node's turn.
//!
//! **How fast.** Everything shall be done in half of the time that is left to it. Pieces are ordered by
//! the ends of their windows. The first n pieces need their bytes divided by half of the time until the
//! end of the n-th. The pace is the maximum over n, at least [`Limits::floor`] (a job shall end while the
//! cluster is what it was), at most [`Limits::ceiling`]. Half, because nodes that are down and repairs
//! that fail take the other half. If more than the ceiling is needed, the node is behind.

/// Part of the primary ranges of a table that this node has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Which table: pieces of one have the same number.
    pub table: usize,
    /// When the least recently repaired of its tokens was, seconds since 1970; `None`: never.
    pub repaired_at: Option<i64>,
    /// Since when this node knows that it is to be repaired, seconds since 1970.
    pub known_since: i64,
    /// Seconds within which it is to be repaired; above 0.
    pub window_seconds: i64,
    /// Bytes of this node that are read for it; an estimate.
    pub bytes: u64,
    /// Its table failed recently.
    pub resting: bool,
}

impl Piece {
    /// When its window began. What was never repaired is due at once: half of it counts as gone.
    fn since(&self) -> i64 {
        let never = self.known_since.saturating_sub(self.window_seconds / 2);
        self.repaired_at.unwrap_or(never)
    }

    /// Share of its window that is used up, in millionths.
    fn used(&self, now: i64) -> i64 {
        let age = now.saturating_sub(self.since()).max(0);
        age.saturating_mul(1_000_000) / self.window_seconds.max(1)
    }

    /// Seconds to the end of its window; below 0: since it.
    fn left(&self, now: i64) -> i64 {
        self.since().saturating_add(self.window_seconds).saturating_sub(now)
    }

    /// Returns true if it is to be repaired in one of the next turns.
    pub fn is_due(&self, now: i64) -> bool {
        self.used(now) >= DUE
    }

    /// Returns true if its window is over.
    pub fn is_late(&self, now: i64) -> bool {
        self.left(now) < 0
    }
}

/// Millionths of its window at which a piece is due, and at which it waits for no turn.
const DUE: i64 = 500_000;
const PRESSED: i64 = 750_000;

/// Maximum bytes of a job's pieces, unless a single piece has more.
pub const JOB_BYTES: u64 = 256 << 20;
/// Maximum number of a job's pieces.
pub const JOB_PIECES: usize = 256;

/// Limits of the pace, bytes per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Minimum pace; slower jobs would last for hours.
    pub floor: u64,
    /// Not to be exceeded; `u64::MAX`: no bound.
    pub ceiling: u64,
}

impl Limits {
    /// The limits below a ceiling; 0 = no bound.
    pub fn below(ceiling: u64) -> Limits {
        let ceiling = if ceiling == 0 { u64::MAX } else { ceiling };
        Limits { floor: (ceiling / 64).clamp(64 << 10, 1 << 20).min(ceiling), ceiling }
    }
}

/// Pace of automatic repairs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// Bytes per second.
    pub bytes_per_second: u64,
    /// Pace that would be needed without the limits.
    pub needed: u64,
    /// Pieces whose window is over.
    pub late: u64,
    /// More is needed than is allowed, or a window is over.
    pub is_behind: bool,
}

/// The pace for all pieces of a node.
pub fn pace(pieces: &[Piece], now: i64, limits: Limits) -> Pace {
    let mut order: Vec<(i64, u64)> = pieces.iter().map(|p| (p.left(now), p.bytes)).collect();
    order.sort_unstable();
    let (mut bytes, mut needed) = (0_u64, 0_u64);
    for (left, more) in order {
        bytes = bytes.saturating_add(more);
        let seconds = u64::try_from(left / 2).unwrap_or(0).max(1);
        needed = needed.max(bytes.div_ceil(seconds));
    }
    let late = pieces.iter().filter(|p| p.is_late(now)).count() as u64;
    Pace {
        bytes_per_second: needed.clamp(limits.floor, limits.ceiling),
        needed,
        late,
        is_behind: late > 0 || needed > limits.ceiling,
    }
}

/// The moment, and the node's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Seconds since 1970.
    pub now: i64,
    /// Position of this node among all that take turns, from 0.
    pub position: u64,
    /// Number of nodes that take turns.
    pub nodes: u64,
    /// Length of a turn, seconds; above 0.
    pub turn_seconds: i64,
    /// The pace is above half of its bound.
    pub is_pressed: bool,
    /// The table that was begun in a turn.
    pub begun: Option<usize>,
}

impl Moment {
    /// Returns true if it is this node's turn now.
    fn is_turn(&self) -> bool {
        let turn = self.now.div_euclid(self.turn_seconds.max(1));
        let of = i64::try_from(self.nodes.max(1)).unwrap_or(i64::MAX);
        u64::try_from(turn.rem_euclid(of)).is_ok_and(|n| n == self.position)
    }

    fn lets_begin(&self, piece: &Piece) -> bool {
        let used = piece.used(self.now);
        let has_turn = self.is_turn() || self.is_pressed || self.begun == Some(piece.table);
        !piece.resting && (used >= PRESSED || (used >= DUE && has_turn))
    }
}

/// The pieces to repair now, by their places in the list: the one that has used up most of its window,
/// the first of several, and what of its table is due beside it, in the same order. Empty: nothing.
pub fn next(pieces: &[Piece], moment: &Moment) -> Vec<usize> {
    let now = moment.now;
    let mut order: Vec<usize> = (0..pieces.len()).collect();
    order.sort_by_key(|at| pieces.get(*at).map(|p| -p.used(now)));
    let all = || order.iter().filter_map(|at| Some((*at, pieces.get(*at)?)));
    let Some((_, first)) = all().find(|(_, piece)| moment.lets_begin(piece)) else {
        return Vec::new();
    };
    let mut bytes = 0_u64;
    let of_job = all().filter(|(_, p)| p.table == first.table && p.is_due(now));
    let fits = |(at, piece): (usize, &Piece)| {
        bytes = bytes.saturating_add(piece.bytes);
        (bytes <= JOB_BYTES || bytes == piece.bytes).then_some(at)
    };
    of_job.map_while(fits).take(JOB_PIECES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(table: usize, repaired_at: Option<i64>) -> Piece {
        Piece {
            table,
            repaired_at,
            known_since: 0,
            window_seconds: 1000,
            bytes: 100,
            resting: false,
        }
    }

    fn moment(now: i64, position: u64) -> Moment {
        Moment { now, position, nodes: 3, turn_seconds: 10, is_pressed: false, begun: None }
    }

    #[test]
    fn turns_go_round_and_everybody_has_one() {
        for now in 0..120 {
            let turns = (0..3).filter(|n| moment(now, *n).is_turn()).count();
            assert_eq!(turns, 1, "{now}");
        }
        assert!(moment(25, 2).is_turn() && moment(30, 0).is_turn());
    }

    #[test]
    fn pieces_wait_for_half_of_their_window_and_then_for_a_turn() {
        let all = [piece(0, Some(10_000))];
        assert_eq!(next(&all, &moment(10_490, 1)), [0; 0]);
        assert_eq!(next(&all, &moment(10_500, 0)), [0]);
        assert_eq!(next(&all, &moment(10_500, 1)), [0; 0]);
        let pressed = Moment { is_pressed: true, ..moment(10_500, 1) };
        let begun = |table| Moment { begun: Some(table), ..moment(10_500, 1) };
        assert_eq!(next(&all, &pressed), [0]);
        assert_eq!((next(&all, &begun(0)), next(&all, &begun(1))), (vec![0], vec![]));
        // Late: at once.
        assert_eq!(next(&all, &moment(10_740, 1)), [0; 0]);
        assert_eq!(next(&all, &moment(10_750, 2)), [0]);
    }

    #[test]
    fn what_was_never_repaired_is_due_when_it_is_known_and_goes_before_what_was() {
        let new = Piece { known_since: 10_500, ..piece(0, None) };
        assert_eq!(next(std::slice::from_ref(&new), &moment(10_500, 0)), [0]);
        assert_eq!(next(std::slice::from_ref(&new), &moment(10_510, 0)), [0; 0]);
        // It gets more urgent as others do, even while it is not repaired.
        let all = [new, piece(1, Some(10_200))];
        assert_eq!(next(&all, &moment(10_801, 0)), [0]);
        assert!(!all[0].is_late(11_000) && all[0].is_late(11_001));
    }

    #[test]
    fn the_most_urgent_piece_goes_first_and_a_table_that_failed_rests() {
        let mut all = [piece(0, Some(500)), piece(1, Some(100)), piece(2, Some(300))];
        assert_eq!(next(&all, &moment(1200, 0)), [1]);
        all[1].resting = true;
        assert_eq!(next(&all, &moment(1200, 0)), [2]);
        // A short window is more urgent than an old repair.
        all[0].window_seconds = 100;
        assert_eq!(next(&all, &moment(1200, 0)), [0]);
    }

    #[test]
    fn a_job_takes_what_of_its_table_is_due_oldest_first_up_to_its_bytes() {
        let of = |table, at, bytes| Piece { bytes, ..piece(table, Some(at)) };
        let all = [
            of(0, 300, 7),
            of(0, 100, JOB_BYTES - 7),
            of(1, 150, 1),
            of(0, 200, 6),
            of(0, 900, 1),
            of(0, 250, 2),
        ];
        let now = moment(1000, 1);
        assert_eq!(next(&all, &now), [1, 3]);
        // A piece larger than a job gets a job of its own.
        let large = [of(0, 100, JOB_BYTES + 1), of(0, 200, 1)];
        assert_eq!(next(&large, &now), [0]);
        let many: Vec<Piece> = (0..JOB_PIECES + 9).map(|_| of(0, 100, 0)).collect();
        assert_eq!(next(&many, &now).len(), JOB_PIECES);
    }

    #[test]
    fn the_pace_is_what_is_needed_within_its_limits() {
        let limits = Limits { floor: 10, ceiling: 1000 };
        let of = |at, bytes| Piece { bytes, ..piece(0, Some(at)) };
        let pace = |all: &[Piece], now| pace(all, now, limits);
        // There is time: as slow as it may be.
        assert_eq!(pace(&[], 0).bytes_per_second, 10);
        assert_eq!(
            pace(&[of(1000, 4000)], 1000),
            Pace { bytes_per_second: 10, needed: 8, late: 0, is_behind: false }
        );
        // Twice the bytes, or less time: faster.
        assert_eq!(pace(&[of(1000, 40_000)], 1000).bytes_per_second, 80);
        assert_eq!(pace(&[of(1000, 40_000)], 1500).bytes_per_second, 160);
        // For the first end only its own bytes count, for the last end all.
        assert_eq!(pace(&[of(1000, 40_000), of(1500, 5_000)], 1500).needed, 160);
        assert_eq!(pace(&[of(1000, 40_000), of(1500, 50_000)], 1500).needed, 180);
        // A need above the limit is reported.
        let most = pace(&[of(1000, 250_000)], 1500);
        assert_eq!((most.bytes_per_second, most.needed, most.is_behind), (1000, 1000, false));
        let more = pace(&[of(1000, 250_001)], 1500);
        assert_eq!((more.bytes_per_second, more.needed, more.is_behind), (1000, 1001, true));
        let late = pace(&[of(1000, 5)], 2001);
        assert_eq!((late.late, late.is_behind, late.bytes_per_second), (1, true, 10));
    }

    #[test]
    fn limits_follow_the_setting() {
        assert_eq!(Limits::below(8 << 20), Limits { floor: 128 << 10, ceiling: 8 << 20 });
        assert_eq!(Limits::below(0), Limits { floor: 1 << 20, ceiling: u64::MAX });
        assert_eq!(Limits::below(100), Limits { floor: 100, ceiling: 100 });
    }

    /// Nodes with tables of two pieces each, repairs at the pace, a look every 5 s; the worst age of a
    /// piece, and the bytes of all jobs divided by the seconds that they took.
    fn worst_age(bytes: u64, ceiling: u64) -> (i64, u64) {
        let limits = Limits { floor: 1, ceiling };
        let mut repaired = [[None::<i64>; 4]; 3];
        let (mut busy_until, mut begun) = ([0_i64; 3], [None; 3]);
        let (mut worst, mut read, mut busy) = (0, 0, 0);
        for now in (0..20_000).step_by(5) {
            for node in 0..3 {
                if busy_until[node] > now {
                    continue;
                }
                let of =
                    |(at, time): (usize, &Option<i64>)| Piece { bytes, ..piece(at / 2, *time) };
                let all: Vec<Piece> = repaired[node].iter().enumerate().map(of).collect();
                let pace = pace(&all, now, limits);
                let is_pressed = pace.needed > ceiling / 2;
                let moment = Moment { is_pressed, begun: begun[node], ..moment(now, node as u64) };
                let job = next(&all, &moment);
                begun[node] = job.first().map(|at| at / 2);
                let of_job = bytes * job.len() as u64;
                let seconds = (of_job / pace.bytes_per_second) as i64;
                for at in job {
                    repaired[node][at] = Some(now);
                    busy_until[node] = now + seconds;
                }
                read += of_job;
                busy += seconds;
            }
            if now > 1000 {
                let ages = repaired.iter().flatten().map(|at| now - at.unwrap_or(0));
                worst = worst.max(ages.max().unwrap());
            }
        }
        (worst, read / busy.max(1) as u64)
    }

    #[test]
    fn every_piece_of_every_node_is_repaired_within_its_window_and_no_faster_than_it_must() {
        // 4 pieces of 10,000 bytes in windows of 1,000 s: 40 a second at least.
        for ceiling in [150, 1_000, 1_000_000] {
            let (worst, rate) = worst_age(10_000, ceiling);
            assert!(worst <= 1000, "{worst} at {ceiling}");
            assert!(rate <= 150, "{rate} at {ceiling}");
        }
        let (worst, _) = worst_age(10_000, 20);
        assert!(worst > 1000, "{worst}: that is too slow for it");
    }
}
