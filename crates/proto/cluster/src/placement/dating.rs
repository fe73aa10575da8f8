//! Epochs of the last movements of each range of a table.
//!
//! INV-placement-5: of a dated table, a sender at `moved(token).at` or later has the replicas that the
//! table has for the token, in the same order and with the same of them natural and moving; one at
//! `moved(token).before` or later has those or the ones before the last change. So the quorums of
//! sender and table meet ([`crate::topology`]), whatever moved elsewhere on the ring.

use stdx::{Epoch, Token};

use super::Placements;
use crate::place_history::{Moved, PlaceHistory};
use crate::ranges::aligned;

impl Placements {
    /// The same table with the epochs at which its ranges moved. `known`, a dated table of the same
    /// replication and of an earlier time, spares the tables between, and its numbers are exact over
    /// more changes than are kept.
    #[must_use]
    pub fn dated(mut self, history: &PlaceHistory, known: Option<&Placements>) -> Placements {
        let known = known.filter(|k| k.replication == self.replication);
        let since = known.and_then(|k| Some((k, history.after(k.dated?)?)));
        let steps = since.map_or(history.steps(), |(_, steps)| steps);
        let at_first = || {
            let members = steps.first().map(|step| &*step.before);
            let mut first = members.map_or_else(
                || self.clone(),
                |members| Placements::build(members, &self.replication),
            );
            first.moved = vec![history.floor(); first.rows.len()];
            first
        };
        let mut last = since.map_or_else(at_first, |(known, _)| known.clone());
        for (at, step) in steps.iter().enumerate() {
            let mut next = match steps.get(at + 1) {
                Some(later) => Placements::build(&later.before, &self.replication),
                None => self.clone(),
            };
            next.moved = next.moved_since(&last, step.epoch);
            last = next;
        }
        self.moved = last.moved;
        self.dated = Some(history.last());
        self
    }

    /// The numbers of its ranges when `before` became this table at `epoch`.
    fn moved_since(&self, before: &Placements, epoch: Epoch) -> Vec<Moved> {
        let mut moved = vec![Moved::default(); self.rows.len()];
        for (range, old, new) in aligned(before, self) {
            let known = before.moved(range.end);
            let part = if old.same_as(new) { known } else { known.again(epoch) };
            if let Some(whole) = moved.get_mut(self.index_of(range.end)) {
                *whole = whole.of_both(part);
            }
        }
        moved
    }

    /// Returns the epochs of the last movements of a token's range; `UNKNOWN` when the table is not
    /// dated.
    pub fn moved(&self, token: Token) -> Moved {
        self.moved.get(self.index_of(token)).copied().unwrap_or(Moved::UNKNOWN)
    }
}
