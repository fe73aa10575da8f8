//! The sub-ranges of a scan, in ring order, each with the replicas that have it.

use cluster::Placements;
use request::{ReadPlan, SubRange, TokenRange};
use stdx::Token;

/// Walks the ring; nothing is allocated for ranges that are not reached.
pub(crate) struct RingWalk<'a, P> {
    placements: &'a Placements,
    at: Token,
    upto: Token,
    plan: P,
}

impl<'a, P: FnMut(Token) -> ReadPlan> RingWalk<'a, P> {
    /// `plan` gives the plan for the replicas of a token.
    pub(crate) fn new(placements: &'a Placements, tokens: TokenRange, plan: P) -> RingWalk<'a, P> {
        RingWalk { placements, at: tokens.after, upto: tokens.upto, plan }
    }
}

impl<P: FnMut(Token) -> ReadPlan> Iterator for RingWalk<'_, P> {
    type Item = SubRange;

    fn next(&mut self) -> Option<SubRange> {
        if self.at >= self.upto {
            return None;
        }
        // Below `upto`, so it does not overflow.
        let first = Token(self.at.0.saturating_add(1));
        let here = self.placements.range_of(first);
        // The range that wraps around, met at its upper part, ends where the ring ends.
        let end = if here.start < here.end || first <= here.end { here.end } else { Token::MAX };
        let upto = if here.start == here.end { self.upto } else { end.min(self.upto) };
        let range = TokenRange { after: self.at, upto };
        self.at = upto;
        Some(SubRange { range, plan: (self.plan)(first), ranges: 1 })
    }
}
