//! Orders to copy: their form on the wire, and the operations in progress on a node.
//!
//! Payload of the verb `TakeOver`: the host that leaves (16 bytes), the epoch at which it began to (u64). For a
//! keyspace that gets other replicas (`replication_change`): a host of zeros, the epoch, and its name. The answer:
//! [`copy_progress`](crate::copy_progress).

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use cluster::ClusterSnapshot;
use codec::{DecodeError, Reader, Writer};
use stdx::{Epoch, HostId, Uuid};

use crate::copy_progress::{Copies, CopyProgress, Rebuilding};

type Result<T> = std::result::Result<T, String>;

/// Data that a decommission may lose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    /// Nothing.
    Nothing,
    /// Hints that no member accepts.
    LoseHints,
}

/// Cause of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A member leaves, or moves.
    Member(HostId),
    /// A keyspace gets other replicas.
    Keyspace(String),
}

impl What {
    pub(crate) fn key(&self) -> String {
        match self {
            What::Member(host) => host.to_string(),
            What::Keyspace(name) => format!("keyspace {name}"),
        }
    }
}

/// An order to copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Its cause.
    pub what: What,
    /// Epoch of the cause.
    pub epoch: Epoch,
}

/// State of a copy.
#[derive(Clone)]
pub(crate) enum Job {
    Running,
    Done,
    Failed(String),
}

/// Copies for others, and the removal that this node carries out.
#[derive(Default)]
pub struct Orders {
    /// The newest copy of each member that leaves, or of each keyspace, with the epoch of its
    /// order.
    pub(crate) jobs: RefCell<BTreeMap<String, (Epoch, Job)>>,
    /// How often each of them failed without interruption.
    pub(crate) failures: RefCell<BTreeMap<String, u32>>,
    /// The leaving node, and the nodes that have not copied yet.
    pub(crate) removal: RefCell<Option<(HostId, BTreeSet<HostId>)>>,
    /// The copies are not waited for.
    pub(crate) forced: Cell<bool>,
    /// The movement is to be aborted.
    pub(crate) aborted: Cell<bool>,
    /// All is copied, and the movement cannot be aborted any more.
    decided: Cell<bool>,
    /// Epoch at which the state of the leaving node changed last.
    pub(crate) changed_at: Cell<Epoch>,
    /// This node copies what it owns.
    pub(crate) rebuilding: Rebuilding,
    /// Progress of copies.
    pub(crate) copies: Copies,
    /// This node was leaving, and the others have decided that it is out.
    pub(crate) put_out: Cell<bool>,
    /// The decommission continues when hints cannot be handed over.
    pub(crate) loses_hints: Cell<bool>,
    /// Description of the hints that the decommission lost, for the operator.
    pub(crate) lost_hints: RefCell<Option<String>>,
    /// The last decommission of this node in this run has failed.
    pub(crate) decommission_failed: Cell<bool>,
}

impl Orders {
    /// Counts a failed copy. Returns the count if it is to be logged: the sender of the order repeats it each
    /// second, so the first failure is, and then each power of two.
    pub(crate) fn count_failure(&self, key: &str) -> Option<u32> {
        let mut all = self.failures.borrow_mut();
        let count = all.entry(key.to_owned()).or_default();
        *count = count.saturating_add(1);
        Some(*count).filter(|count| count.is_power_of_two())
    }

    /// Ends the count of failures of a copy.
    pub(crate) fn forget_failures(&self, key: &str) {
        self.failures.borrow_mut().remove(key);
    }

    /// The removal in progress: the leaving node, and the nodes that still copy.
    pub fn removal(&self) -> Option<(HostId, Vec<HostId>)> {
        let removal = self.removal.borrow();
        removal.as_ref().map(|(host, waiting)| (*host, waiting.iter().copied().collect()))
    }

    /// Progress of the nodes that copy on this node's order.
    pub fn copies_of_others(&self) -> Vec<(HostId, CopyProgress)> {
        self.copies.others()
    }

    /// Returns true if this node was leaving, and the others have completed its removal.
    pub fn is_put_out(&self) -> bool {
        self.put_out.get()
    }

    /// Returns true if the last decommission of this node in this run has failed.
    pub fn has_decommission_failed(&self) -> bool {
        self.decommission_failed.get()
    }

    /// Takes the description of the hints that the decommission lost, for the operator. Returns it
    /// once.
    pub fn take_lost_hints(&self) -> Option<String> {
        self.lost_hints.take()
    }

    /// The member whose removal this node carries out.
    pub(crate) fn removes(&self, me: HostId) -> Option<HostId> {
        self.removal().map(|(host, _)| host).filter(|host| *host != me)
    }
}

/// The right to move `host`, one at a time; dropping it returns the right.
pub(crate) struct Turn(Rc<Orders>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Orders {
    /// Begins a movement of `host`, before any other node receives an order. A second order of the
    /// same movement would take back what the first has begun.
    ///
    /// # Errors
    /// One is in progress.
    pub(crate) fn begin(self: &Rc<Self>, host: HostId) -> Result<Turn> {
        let mut removal = self.removal.borrow_mut();
        if removal.is_some() {
            return Err("a node is leaving or moving already; wait until that is done".to_owned());
        }
        *removal = Some((host, BTreeSet::new()));
        Ok(Turn(self.clone()))
    }

    /// Follows the state of the leaving node.
    pub(crate) fn note(&self, before: &ClusterSnapshot, after: &ClusterSnapshot) {
        let Some((host, _)) = &*self.removal.borrow() else { return };
        let state = |of: &ClusterSnapshot| of.members.get(host).map(|member| member.state);
        if state(before) != state(after) {
            self.changed_at.set(after.epoch);
        }
    }

    /// The movement that this node carries out is over.
    fn end(&self) {
        *self.removal.borrow_mut() = None;
        self.changed_at.set(Epoch(0));
        self.forced.set(false);
        self.aborted.set(false);
        self.decided.set(false);
        self.loses_hints.set(false);
        self.copies.forget_others();
    }

    /// All is copied: from here on the movement is not aborted.
    ///
    /// # Errors
    /// It is to be aborted.
    pub(crate) fn decide(&self) -> Result<()> {
        if self.aborted.get() {
            return Err("it was aborted by an operator".to_owned());
        }
        self.decided.set(true);
        Ok(())
    }

    /// Requests the abort of a movement of `host` that this node carries out, while its copies are
    /// made.
    ///
    /// # Errors
    /// There is none, or all is copied.
    pub(crate) fn abort(&self, host: HostId) -> Result<()> {
        match &*self.removal.borrow() {
            Some((mover, _)) if *mover == host && self.decided.get() => {
                Err("too late: all data is copied and the change is being decided".to_owned())
            }
            Some((mover, _)) if *mover == host => {
                self.aborted.set(true);
                Ok(())
            }
            _ => Err("there is nothing in progress to abort".to_owned()),
        }
    }
}

/// Payload of an order.
pub fn put_order(order: &Order, out: &mut Vec<u8>) {
    let host = match &order.what {
        What::Member(host) => host.0,
        What::Keyspace(_) => Uuid::nil(),
    };
    out.put_bytes(host.as_bytes());
    out.put_u64(order.epoch.0);
    if let What::Keyspace(name) = &order.what {
        out.put_bytes_vint(name.as_bytes());
    }
}

/// Reads what [`put_order`] wrote.
pub fn read_order(payload: &[u8]) -> std::result::Result<Order, DecodeError> {
    let r = &mut Reader::new(payload, "order to take over");
    let host = Uuid::from_bytes(r.array::<16>()?);
    let epoch = Epoch(r.u64()?);
    let what = if host.is_nil() {
        let name = String::from_utf8(r.bytes_vint()?.to_vec());
        let name = name.map_err(|_| r.error(codec::DecodeErrorKind::Utf8))?;
        What::Keyspace(name)
    } else {
        What::Member(HostId(host))
    };
    r.finish()?;
    Ok(Order { what, epoch })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_a_copy_are_logged_ever_less_often_until_it_is_done() {
        let orders = Orders::default();
        let logged: Vec<u32> = (0..20).filter_map(|_| orders.count_failure("keyspace a")).collect();
        assert_eq!(logged, [1, 2, 4, 8, 16]);
        assert_eq!(orders.count_failure("keyspace b"), Some(1));
        orders.forget_failures("keyspace a");
        assert_eq!(orders.count_failure("keyspace a"), Some(1));
    }

    #[test]
    fn one_movement_at_a_time_from_the_moment_it_is_ordered() {
        let orders: Rc<Orders> = Rc::default();
        let host = HostId(Uuid::from_u128(1));
        let turn = orders.begin(host).map_err(|_| "refused");
        assert!(turn.is_ok());
        assert_eq!(orders.removal(), Some((host, Vec::new())));
        for other in [host, HostId(Uuid::from_u128(2))] {
            assert!(orders.begin(other).is_err_and(|text| text.contains("leaving or moving")));
        }
        orders.aborted.set(true);
        orders.changed_at.set(Epoch(3));
        drop(turn);
        assert_eq!(orders.removal(), None);
        assert!(!orders.aborted.get());
        assert_eq!(orders.changed_at.get(), Epoch(0));
        assert!(orders.begin(host).is_ok());
    }
}
