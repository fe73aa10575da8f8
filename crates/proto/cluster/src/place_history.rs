//! History of members' places in the ring: the epochs by which ranges are dated.
//!
//! Owns: [`PlaceHistory`], the last changes with the members before each, and [`Moved`], the number of
//! one range. Derived from the entries of the log by the fold, never encoded. Never: which ranges a
//! change moves (that is `Placements::dated`).
//!
//! INV-place-history-1: between two neighbouring steps, and after the last one, no member changed its
//! place; before the first step none did since `floor.at`.

use std::sync::Arc;

use stdx::Epoch;

use crate::Members;
use crate::member::Member;

/// Most changes that are kept with the members before them. Movements run side by side, so a sender
/// may lack a step of each without lacking two of any range; numbers of older changes are rounded up.
pub(crate) const STEPS_KEPT: usize = 4;

/// The epochs of the last two changes of a range's replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Moved {
    /// Epoch of the last change, or a later one. A sender at this epoch knows the present replicas.
    pub at: Epoch,
    /// Epoch of the change before it, or a later one. A sender at this epoch lacks one change at
    /// most.
    pub before: Epoch,
}

impl Moved {
    /// A table that was not dated: no sender is known to have its replicas.
    pub const UNKNOWN: Moved = Moved { at: Epoch(u64::MAX), before: Epoch(u64::MAX) };

    /// The epochs after a further change at `epoch`.
    pub(crate) fn again(self, epoch: Epoch) -> Moved {
        Moved { at: epoch, before: self.at }
    }

    /// Combines two ranges that became one: no sender is accepted that either would refuse.
    pub(crate) fn of_both(self, other: Moved) -> Moved {
        Moved { at: self.at.max(other.at), before: self.before.max(other.before) }
    }
}

/// A change of members' places.
#[derive(Clone, Debug)]
pub(crate) struct PlaceStep {
    /// The entry that made it.
    pub(crate) epoch: Epoch,
    /// The members until then.
    pub(crate) before: Arc<Members>,
}

/// The last changes of members' places, up to one epoch.
#[derive(Clone, Debug)]
pub struct PlaceHistory {
    /// The last change before the steps that are kept, and the one before that.
    floor: Moved,
    /// Oldest first.
    steps: Vec<PlaceStep>,
}

impl PlaceHistory {
    /// History of members whose places have not changed since `epoch`, or for longer. Before that
    /// one entry is assumed to be one change at most.
    pub fn since(epoch: Epoch) -> PlaceHistory {
        let before = Epoch(epoch.0.saturating_sub(1));
        PlaceHistory { floor: Moved { at: epoch, before }, steps: Vec::new() }
    }

    /// Returns the epoch of the last change of any place. A node at this epoch knows the replicas
    /// of every range.
    #[inline]
    pub fn last(&self) -> Epoch {
        self.steps.last().map_or(self.floor.at, |step| step.epoch)
    }

    /// Upper bound of the epochs of every range that no kept step moves.
    pub(crate) fn floor(&self) -> Moved {
        self.floor
    }

    /// The steps after `epoch`, oldest first; `None` when some of them are not kept.
    pub(crate) fn after(&self, epoch: Epoch) -> Option<&[PlaceStep]> {
        let known = self.steps.partition_point(|step| step.epoch <= epoch);
        self.steps.get(known..).filter(|_| epoch >= self.floor.at)
    }

    /// All that are kept, oldest first.
    pub(crate) fn steps(&self) -> &[PlaceStep] {
        &self.steps
    }

    /// Follows an entry that made `after` of `before`.
    pub fn follow(&mut self, epoch: Epoch, before: &Members, after: &Members) {
        if are_in_place(before, after) {
            return;
        }
        self.steps.push(PlaceStep { epoch, before: Arc::new(before.clone()) });
        if self.steps.len() > STEPS_KEPT {
            let oldest = self.steps.remove(0);
            self.floor = self.floor.again(oldest.epoch);
        }
    }
}

/// Returns true if placements are the same with both, whatever the replication.
fn are_in_place(before: &Members, after: &Members) -> bool {
    let is_same = |(a, b): (&Arc<Member>, &Arc<Member>)| {
        Arc::ptr_eq(a, b)
            || a.host_id == b.host_id
                && a.state == b.state
                && a.tokens == b.tokens
                && a.moving_to == b.moving_to
                && a.replaces == b.replaces
                && a.datacenter == b.datacenter
                && a.rack == b.rack
    };
    before.len() == after.len() && before.values().zip(after.values()).all(is_same)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_that_two_became_refuses_whom_either_would() {
        let moved = |at, before| Moved { at: Epoch(at), before: Epoch(before) };
        assert_eq!(moved(10, 1).of_both(moved(8, 7)), moved(10, 7));
        assert_eq!(moved(8, 7).of_both(moved(10, 1)), moved(10, 7));
        assert_eq!(moved(3, 2).again(Epoch(9)), moved(9, 3));
    }
}
