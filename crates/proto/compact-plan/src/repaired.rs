//! Limits of purging after repairs: when ranges of a table were repaired ([`RepairTimes`]), and the
//! rule by which tombstones are old enough, per token ([`GcPolicy`]).
//!
//! INV-repaired-1: the time of a token is never later than the begin of a repair that compared all
//! replicas of it and ended well.

use stdx::{DeletionSeconds, Token};

/// No tombstone was made before it. Above the smallest value, which stands for no purge at all.
pub const NEVER: DeletionSeconds = DeletionSeconds(i64::MIN + 1);

/// When ranges were repaired for the last time. Ranges `(start, end]` without wrap; one that begins
/// with the smallest token holds it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairTimes(Vec<(Token, Token, i64)>);

impl RepairTimes {
    /// Records a successful repair of the range that began at this second since 1970. Later times
    /// of parts of it stay.
    pub fn note(&mut self, start: Token, end: Token, seconds: i64) {
        if start >= end {
            return;
        }
        let mut all = Vec::with_capacity(self.0.len() + 2);
        let mut reached = start;
        for (from, upto, was) in std::mem::take(&mut self.0) {
            if upto <= start || from >= end {
                all.push((from, upto, was));
                continue;
            }
            if from < start {
                all.push((from, start, was));
            }
            let (inner_from, inner_upto) = (from.max(start), upto.min(end));
            if reached < inner_from {
                all.push((reached, inner_from, seconds));
            }
            all.push((inner_from, inner_upto, was.max(seconds)));
            reached = inner_upto;
            if upto > end {
                all.push((end, upto, was));
            }
        }
        if reached < end {
            all.push((reached, end, seconds));
        }
        all.sort_unstable();
        for (from, upto, at) in all {
            match self.0.last_mut() {
                Some(last) if last.1 == from && last.2 == at => last.1 = upto,
                _ => self.0.push((from, upto, at)),
            }
        }
    }

    /// The earliest time in a range; `None`: a part of it was never repaired.
    pub fn least_within(&self, start: Token, end: Token) -> Option<i64> {
        let mut reached = start;
        let mut least: Option<i64> = None;
        for (from, upto, at) in &self.0 {
            if *upto <= reached {
                continue;
            }
            if *from > reached || reached >= end {
                break;
            }
            least = Some(least.map_or(*at, |l| l.min(*at)));
            reached = *upto;
        }
        least.filter(|_| reached >= end)
    }

    /// The parts of a range with their times, in order; parts that were never repaired are left
    /// out.
    pub fn parts_within(&self, start: Token, end: Token) -> Vec<(Token, Token, i64)> {
        let within = self.0.iter().filter(|(from, upto, _)| *upto > start && *from < end);
        within.map(|(from, upto, at)| ((*from).max(start), (*upto).min(end), *at)).collect()
    }

    /// All ranges with their times, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Token, Token, i64)> + '_ {
        self.0.iter().copied()
    }

    /// Returns true if nothing was ever repaired.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Rule for the age at which tombstones of a table may be purged. In every mode but `Immediate`
/// they are older than `gc_grace_seconds` too: a hint lives as long and may bring back the data
/// that they shadow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum GcPolicy {
    /// After `gc_grace_seconds`.
    #[default]
    Timeout,
    /// At once.
    Immediate,
    /// Never.
    Disabled,
    /// When they were made before what holds for their range; elsewhere never. Ranges ascend and lie
    /// apart from each other. See [`GcPolicy::repaired`].
    Repaired {
        /// Ranges and limits.
        ranges: Vec<(Token, Token, DeletionSeconds)>,
        /// The smallest of the limits; [`NEVER`] when there are no ranges.
        least: DeletionSeconds,
    },
}

impl GcPolicy {
    /// Mode repair: each range with the time before which everything that was written to it has
    /// reached all replicas.
    pub fn repaired(mut ranges: Vec<(Token, Token, DeletionSeconds)>) -> GcPolicy {
        ranges.sort_unstable();
        let least = ranges.iter().map(|(_, _, limit)| *limit).min().unwrap_or(NEVER);
        GcPolicy::Repaired { ranges, least }
    }

    fn bounded(&self, limit: DeletionSeconds, now: DeletionSeconds, grace: i32) -> DeletionSeconds {
        let grace = i64::from(grace.max(0));
        limit.min(DeletionSeconds(now.0.saturating_sub(grace))).max(NEVER)
    }

    /// For a partition of that token.
    pub fn at(&self, token: Token, now: DeletionSeconds, grace: i32) -> DeletionSeconds {
        match self {
            GcPolicy::Timeout => self.bounded(DeletionSeconds(i64::MAX), now, grace),
            GcPolicy::Immediate => now,
            GcPolicy::Disabled => NEVER,
            GcPolicy::Repaired { ranges, .. } => {
                let at = ranges.partition_point(|(_, end, _)| *end < token);
                let found =
                    ranges.get(at).filter(|(start, _, _)| *start < token || *start == Token::MIN);
                found.map_or(NEVER, |(_, _, limit)| self.bounded(*limit, now, grace))
            }
        }
    }

    /// For any partition of the ranges of the table.
    pub fn least(&self, now: DeletionSeconds, grace: i32) -> DeletionSeconds {
        match self {
            GcPolicy::Repaired { least, .. } => self.bounded(*least, now, grace),
            other => other.at(Token::MAX, now, grace),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(notes: &[(i64, i64, i64)]) -> RepairTimes {
        let mut times = RepairTimes::default();
        for (start, end, at) in notes {
            times.note(Token(*start), Token(*end), *at);
        }
        times
    }

    #[test]
    fn a_later_repair_covers_an_earlier_one_and_not_the_other_way() {
        let all = |notes: &[(i64, i64, i64)]| {
            times(notes).iter().map(|(a, b, t)| (a.0, b.0, t)).collect::<Vec<_>>()
        };
        assert_eq!(all(&[(0, 10, 5)]), [(0, 10, 5)]);
        assert_eq!(all(&[(0, 10, 5), (3, 6, 8)]), [(0, 3, 5), (3, 6, 8), (6, 10, 5)]);
        assert_eq!(all(&[(0, 10, 8), (3, 6, 5)]), [(0, 10, 8)]);
        assert_eq!(all(&[(0, 4, 5), (6, 10, 7), (2, 8, 6)]), [(0, 2, 5), (2, 6, 6), (6, 10, 7)]);
        assert_eq!(all(&[(0, 4, 5), (4, 8, 5)]), [(0, 8, 5)]);
        assert_eq!(all(&[(4, 4, 5), (8, 4, 5)]), []);
    }

    #[test]
    fn random_notes_agree_with_a_token_by_token_model() {
        let mut state = 7_u64;
        let mut below = |n: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % n) as i64
        };
        for _ in 0..300 {
            let mut times = RepairTimes::default();
            let mut model = [None::<i64>; 24];
            for _ in 0..12 {
                let (a, b, at) = (below(24), below(25), below(50));
                times.note(Token(a), Token(b), at);
                for token in a + 1..=b {
                    let slot = &mut model[token as usize - 1];
                    *slot = Some(slot.map_or(at, |was| was.max(at)));
                }
            }
            for a in 0..24_i64 {
                for b in a + 1..=24 {
                    let part = &model[a as usize..b as usize];
                    let expected = part.iter().copied().collect::<Option<Vec<_>>>();
                    let expected = expected.and_then(|all| all.into_iter().min());
                    let found = times.least_within(Token(a), Token(b));
                    assert_eq!(found, expected, "INV-repaired-1: {a} {b}");
                }
            }
        }
    }

    #[test]
    fn tombstones_wait_for_the_repair_of_their_range_and_for_their_age() {
        let ranges = vec![
            (Token::MIN, Token(0), DeletionSeconds(500)),
            (Token(0), Token(10), DeletionSeconds(2000)),
            (Token(10), Token(20), NEVER),
        ];
        let policy = GcPolicy::repaired(ranges);
        let at = |token: i64| policy.at(Token(token), DeletionSeconds(1100), 100).0;
        assert_eq!((at(i64::MIN), at(-5), at(0)), (500, 500, 500));
        assert_eq!((at(1), at(10)), (1000, 1000));
        assert_eq!((at(11), at(21)), (NEVER.0, NEVER.0));
        assert_eq!(policy.least(DeletionSeconds(1100), 100), NEVER);
        assert_eq!(GcPolicy::repaired(Vec::new()).least(DeletionSeconds(5), 0), NEVER);
        let now = DeletionSeconds(1100);
        assert_eq!(GcPolicy::Timeout.at(Token(1), now, 100).0, 1000);
        assert_eq!(GcPolicy::Immediate.least(now, 100), now);
        assert_eq!(GcPolicy::Disabled.least(now, 0), NEVER);
    }
}
