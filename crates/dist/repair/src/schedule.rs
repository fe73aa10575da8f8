//! Which table a node repairs next by itself: a decision from what is known, nothing else.
//!
//! Each node repairs its primary ranges, so that every range of the ring has one node that sees to
//! it. Nodes take turns by the clock: a repair begins in a turn of its node, and then one replica set
//! after the other is busy with it. What has waited too long begins without a turn. A table is taken
//! up at half of its window and is late at three quarters, so that nodes that are down for a while,
//! and repairs that fail, do not push it over the end.

/// A table whose primary ranges this node has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// When the least recently repaired of them was, seconds since 1970; `None`: never.
    pub repaired_at: Option<i64>,
    /// Seconds within which all are to be repaired; above 0.
    pub window_seconds: i64,
    /// It failed a short while ago.
    pub resting: bool,
}

/// The moment, and the node's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Seconds since 1970.
    pub now: i64,
    /// Place of this node among all that take turns, from 0.
    pub position: u64,
    /// How many take turns.
    pub nodes: u64,
    /// Length of a turn, seconds; above 0.
    pub turn_seconds: i64,
}

impl Moment {
    /// Whether this node's turn is now.
    fn is_turn(&self) -> bool {
        let turn = self.now.div_euclid(self.turn_seconds.max(1));
        let of = i64::try_from(self.nodes.max(1)).unwrap_or(i64::MAX);
        u64::try_from(turn.rem_euclid(of)).is_ok_and(|n| n == self.position)
    }
}

/// Share of its window that a table has used up, in thousandths; a table that was never repaired has
/// used up nearly all of it.
fn used_permille(table: &Candidate, now: i64) -> i64 {
    match table.repaired_at {
        None => 749,
        Some(at) => {
            let age = now.saturating_sub(at).max(0);
            age.saturating_mul(1000) / table.window_seconds.max(1)
        }
    }
}

/// Whether a table is to be repaired in one of the next turns.
pub fn is_due(table: &Candidate, now: i64) -> bool {
    used_permille(table, now) >= 500
}

/// The table to repair now, by its place in the list; `None`: none. When one begins, the most urgent of
/// all that wait does: one that was never repaired first, so that late ones, which come back for ever
/// where windows are short for what is to be done, cannot keep it waiting; then the one that has used up
/// most of its window, the first of several.
pub fn next(tables: &[Candidate], moment: &Moment) -> Option<usize> {
    let is_turn = moment.is_turn();
    let begins = |used: i64| used >= 750 || (used >= 500 && is_turn);
    let mut any_begins = false;
    let mut best: Option<(i64, usize)> = None;
    for (at, table) in tables.iter().enumerate() {
        let used = used_permille(table, moment.now);
        if table.resting || used < 500 {
            continue;
        }
        any_begins |= begins(used);
        let urgency = if table.repaired_at.is_none() { i64::MAX } else { used };
        if best.is_none_or(|(most, _)| urgency > most) {
            best = Some((urgency, at));
        }
    }
    best.filter(|_| any_begins).map(|(_, at)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(repaired_at: Option<i64>) -> Candidate {
        Candidate { repaired_at, window_seconds: 1000, resting: false }
    }

    fn moment(now: i64, position: u64) -> Moment {
        Moment { now, position, nodes: 3, turn_seconds: 10 }
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
    fn tables_wait_for_half_of_their_window_and_then_for_a_turn() {
        let all = [table(Some(10_000))];
        assert_eq!(next(&all, &moment(10_490, 1)), None);
        assert_eq!(next(&all, &moment(10_500, 0)), Some(0));
        assert_eq!(next(&all, &moment(10_500, 1)), None);
        // Late: at once.
        assert_eq!(next(&all, &moment(10_750, 2)), Some(0));
        // Never repaired: in the next turn.
        assert_eq!(next(&[table(None)], &moment(10_510, 1)), Some(0));
        assert_eq!(next(&[table(None)], &moment(10_510, 0)), None);
    }

    #[test]
    fn the_most_urgent_table_goes_first_and_one_that_failed_rests() {
        let mut all = [table(Some(500)), table(Some(100)), table(Some(300))];
        assert_eq!(next(&all, &moment(1200, 0)), Some(1));
        all[1].resting = true;
        assert_eq!(next(&all, &moment(1200, 0)), Some(2));
        // A short window is more urgent than an old repair.
        all[0].window_seconds = 100;
        assert_eq!(next(&all, &moment(1200, 0)), Some(0));
    }

    #[test]
    fn a_table_that_was_never_repaired_does_not_wait_for_late_ones() {
        // Windows that are too short for what is to be done: in every turn something is late.
        let mut all = [table(Some(0)), table(None), table(Some(0))];
        all[0].window_seconds = 1;
        all[2].window_seconds = 1;
        assert_eq!(next(&all, &moment(100, 0)), Some(1));
        all[1].resting = true;
        assert_eq!(next(&all, &moment(100, 0)), Some(0));
    }

    #[test]
    fn every_table_of_every_node_is_repaired_within_its_window() {
        // Three nodes with two tables each, repairs that take 20 s, a look every 5 s.
        let mut repaired = [[None::<i64>; 2]; 3];
        let mut busy_until = [0_i64; 3];
        let mut worst = 0;
        for now in (0..20_000).step_by(5) {
            for node in 0..3 {
                if busy_until[node] > now {
                    continue;
                }
                let tables = repaired[node].map(table);
                if let Some(at) = next(&tables, &moment(now, node as u64)) {
                    repaired[node][at] = Some(now);
                    busy_until[node] = now + 20;
                }
            }
            if now > 100 {
                let ages = repaired.iter().flatten().map(|at| now - at.unwrap_or(0));
                worst = worst.max(ages.max().unwrap());
            }
        }
        assert!(worst < 700, "{worst}");
    }
}
