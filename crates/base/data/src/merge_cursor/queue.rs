//! Which sources of a merge have the next partition, when there are many: found without looking at all of them.
//!
//! INV-queue-1: while it is known, every source that stands at the start of a partition is in the order once, with
//! that partition's token, but those that were taken last and were not moved on since.

use smallvec::SmallVec;
use stdx::Token;

/// Up to so many sources are looked at one by one: that is as quick.
const FEW: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Somebody else has moved sources.
    Unknown,
    /// The same, but what was named last was taken: it may be worth knowing.
    Taken,
    Known,
}

/// Sources by the tokens of the partitions that they stand at.
#[derive(Debug)]
pub(super) struct Queue {
    state: State,
    /// Token and number of each source; the next ones are the last.
    order: Vec<(Token, usize)>,
    /// Sources that have to be moved on.
    taken: SmallVec<[usize; 8]>,
}

impl Queue {
    pub(super) fn new() -> Queue {
        Queue { state: State::Unknown, order: Vec::new(), taken: SmallVec::new() }
    }

    /// Sources are moved by somebody else.
    #[inline]
    pub(super) fn forget(&mut self) {
        self.state = State::Unknown;
    }

    #[inline]
    pub(super) fn is_known(&self) -> bool {
        self.state == State::Known
    }

    /// Whether so many sources should be put in order, now that all of them stand at a partition or at their end.
    #[inline]
    pub(super) fn is_wanted(&self, sources: usize) -> bool {
        self.state == State::Taken && sources > FEW
    }

    /// Puts all sources in order.
    pub(super) fn fill(&mut self, sources: impl Iterator<Item = (Token, usize)>) {
        self.taken.clear();
        self.order.clear();
        self.order.extend(sources);
        self.order.sort_unstable_by(|a, b| b.cmp(a));
        self.state = State::Known;
    }

    /// A source that was taken and is to be moved on, while the order is known.
    #[inline]
    pub(super) fn to_move(&self) -> Option<usize> {
        self.taken.last().copied().filter(|_| self.is_known())
    }

    /// It stands at a partition with that token, or (`None`) at its end.
    #[inline]
    pub(super) fn moved(&mut self, to: Option<Token>) {
        let Some(source) = self.taken.pop() else { return };
        if let Some(token) = to {
            // By tokens alone, which are compared without a branch that nobody could foretell.
            let mut at = self.order.partition_point(|(other, _)| *other > token);
            while self.order.get(at).is_some_and(|other| *other > (token, source)) {
                at = at.wrapping_add(1);
            }
            self.order.insert(at, (token, source));
        }
    }

    /// The sources with the smallest token, ascending.
    #[inline]
    pub(super) fn next(&self, members: &mut SmallVec<[usize; 8]>) {
        let mut next = self.order.iter().rev();
        let Some((first, source)) = next.next() else { return };
        members.push(*source);
        for (_, source) in next.take_while(|(token, _)| token == first) {
            members.push(*source);
        }
    }

    /// What `next` named last was taken.
    #[inline]
    pub(super) fn took(&mut self, members: &[usize]) {
        if self.state == State::Known {
            self.order.truncate(self.order.len().saturating_sub(members.len()));
            members.iter().for_each(|source| self.taken.push(*source));
        } else {
            self.state = State::Taken;
        }
    }
}
