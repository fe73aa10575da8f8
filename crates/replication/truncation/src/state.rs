//! Truncation state of a shard: the known truncations, and the outcome of each on this node.

use crate::records::{Known, Records};
use crate::shards::AskShard;
use cluster::ClusterSnapshot;
use coordinator::Coordinator;
use membership::Membership;
use rt::sync::Semaphore;
use rt::{Gate, Rt};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;
use stdx::{Epoch, HostId, TableId, WallMicros};
use store::StoreError;

/// Interval between polls of how far a truncation has come.
pub(crate) const POLL: Duration = Duration::from_millis(20);

/// Parts that [`Truncations`] are built of.
pub struct TruncationParts {
    /// The shard.
    pub rt: Rt,
    /// Access to all data of the node.
    pub coordinator: Coordinator,
    /// The metadata log.
    pub membership: Membership,
    /// Owner of the background tasks.
    pub gate: Gate,
    /// Address of this node for other nodes, by which a failure names it.
    pub storage_address: SocketAddr,
    /// Time that TRUNCATE has: [`Truncations::set_timeout`].
    pub timeout: Duration,
    /// Asks the [`Truncations`] of another shard of this node.
    pub ask: AskShard,
    /// Called for each failure of the store; writes the log line.
    pub on_failure: Rc<dyn Fn(&StoreError)>,
}

/// The truncations of one shard; those of shard 0 record the truncations that the node has carried
/// out. Clones share.
#[derive(Clone)]
pub struct Truncations {
    pub(crate) inner: Rc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) rt: Rt,
    pub(crate) coordinator: Coordinator,
    pub(crate) membership: Membership,
    pub(crate) gate: Gate,
    pub(crate) storage_address: SocketAddr,
    pub(crate) timeout: Cell<Duration>,
    /// The node accepts no more requests.
    pub(crate) is_stopping: Cell<bool>,
    pub(crate) ask: AskShard,
    pub(crate) on_failure: Rc<dyn Fn(&StoreError)>,
    /// Truncations carried out on all shards; `None` before the file was read.
    pub(crate) carried_out: RefCell<Option<Records>>,
    /// Part of `carried_out` that the file has, durably.
    pub(crate) recorded: RefCell<Known>,
    /// Truncations that could not be completed so far, and why.
    pub(crate) failed: RefCell<BTreeMap<TableId, (WallMicros, String)>>,
    /// Truncations that were too late and are not carried out here.
    pub(crate) expired: RefCell<BTreeMap<TableId, WallMicros>>,
    /// When this run began to carry out truncations.
    pub(crate) began: Cell<WallMicros>,
    /// One application at a time.
    pub(crate) applying: Semaphore,
    pub(crate) is_retrying: Cell<bool>,
    pub(crate) applied_epochs: RefCell<Option<AppliedEpochs>>,
    pub(crate) of_others: RefCell<Option<OfOthers>>,
}

/// State of a truncation on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TruncationState {
    /// It has not been carried out yet.
    Pending,
    /// Nothing is left.
    Done,
    /// Some data could not be removed; the node's log has the reason.
    Failed,
}

impl TruncationState {
    /// On the wire (`docs/formats/internode.md`).
    pub const fn code(self) -> u8 {
        match self {
            TruncationState::Pending => 0,
            TruncationState::Done => 1,
            TruncationState::Failed => 2,
        }
    }

    /// Returns the state with this code.
    pub const fn from_code(code: u8) -> Option<TruncationState> {
        match code {
            0 => Some(TruncationState::Pending),
            1 => Some(TruncationState::Done),
            2 => Some(TruncationState::Failed),
            _ => None,
        }
    }
}

/// Asks a member how a truncation went there; `None`: no answer.
type OfOthers = Rc<
    dyn Fn(HostId, TableId, WallMicros) -> Pin<Box<dyn Future<Output = Option<TruncationState>>>>,
>;

/// Which entry of the metadata a member has applied last.
type AppliedEpochs = Rc<dyn Fn(HostId) -> Option<Epoch>>;

impl Truncations {
    /// Puts the parts together. The hooks to other members are set later, on shard 0.
    pub fn new(parts: TruncationParts) -> Truncations {
        let TruncationParts {
            rt,
            coordinator,
            membership,
            gate,
            storage_address,
            timeout,
            ask,
            on_failure,
        } = parts;
        let at_end = rt.clone();
        let inner = Rc::new(Inner {
            rt,
            coordinator,
            membership,
            gate,
            storage_address,
            timeout: Cell::new(timeout),
            is_stopping: Cell::new(false),
            ask,
            on_failure,
            carried_out: RefCell::default(),
            recorded: RefCell::default(),
            failed: RefCell::default(),
            expired: RefCell::default(),
            began: Cell::new(WallMicros(i64::MIN)),
            applying: Semaphore::new(1),
            is_retrying: Cell::default(),
            applied_epochs: RefCell::default(),
            of_others: RefCell::default(),
        });
        let ending = inner.clone();
        // Breaks reference cycles: the hooks hold the parts that hold this.
        at_end.at_end(move || {
            drop(ending.applied_epochs.take());
            drop(ending.of_others.take());
        });
        Truncations { inner }
    }

    /// Sets the source of the last metadata entry that a member has applied; `None`: unknown. Must
    /// be called on shard 0. TRUNCATE waits until every member has applied its entry; without this
    /// it relies on the metadata log's answer.
    pub fn set_applied_epochs(&self, applied: impl Fn(HostId) -> Option<Epoch> + 'static) {
        *self.inner.applied_epochs.borrow_mut() = Some(Rc::new(applied));
    }

    /// Sets the query of a truncation's state at a member, by its own [`Truncations::state`];
    /// `None`: no answer. Must be called on shard 0. Without this a truncation counts as done where
    /// its entry is applied.
    pub fn set_states_of_others<F>(&self, ask: impl Fn(HostId, TableId, WallMicros) -> F + 'static)
    where
        F: Future<Output = Option<TruncationState>> + 'static,
    {
        let ask = move |host, table, at| -> Pin<Box<dyn Future<Output = _>>> {
            Box::pin(ask(host, table, at))
        };
        *self.inner.of_others.borrow_mut() = Some(Rc::new(ask));
    }

    /// Changes the timeout of truncations that are decided from now on.
    pub fn set_timeout(&self, timeout: Duration) {
        self.inner.timeout.set(timeout);
    }

    /// Notes that the node accepts no more requests: truncations that fail are left to the next
    /// start.
    pub fn stop(&self) {
        self.inner.is_stopping.set(true);
    }

    /// Notes that the node accepts requests again.
    pub fn resume(&self) {
        self.inner.is_stopping.set(false);
    }

    /// Returns the state here of the truncation of that time, or of a later one. Must be called on
    /// shard 0.
    pub fn state(&self, table: TableId, at: WallMicros) -> TruncationState {
        if self.inner.failure(table, at).is_some() {
            TruncationState::Failed
        } else if self.inner.recorded.borrow().get(&table).is_some_and(|done| *done >= at) {
            TruncationState::Done
        } else {
            TruncationState::Pending
        }
    }

    /// Number of truncations that are incomplete here and are retried.
    pub fn failed_count(&self) -> usize {
        self.inner.failed.borrow().len()
    }
}

impl Inner {
    /// Why the truncation of that time is not complete here.
    pub(crate) fn failure(&self, table: TableId, at: WallMicros) -> Option<String> {
        if self.expired.borrow().get(&table) == Some(&at) {
            return Some("this node learned of it too late".to_owned());
        }
        let failed = self.failed.borrow();
        failed.get(&table).filter(|(of, _)| *of >= at).map(|(_, why)| why.clone())
    }

    /// Returns true if a truncation of that time is too late. A quarter of the time that TRUNCATE
    /// has is reserved for clock differences.
    pub(crate) fn is_late(&self, at: WallMicros, now: WallMicros) -> bool {
        let from = at.max(self.began.get());
        let within = i64::try_from(self.timeout.get().as_micros()).unwrap_or(i64::MAX);
        now.0.saturating_sub(from.0) > within.saturating_sub(within / 4)
    }

    /// Returns true if the schema has the table.
    pub(crate) fn has_table(snapshot: &ClusterSnapshot, table: TableId) -> bool {
        snapshot.schema.table_by_id(table).is_some()
    }
}
