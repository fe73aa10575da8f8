//! Operations that an operator gives up while data is copied: a rebuild of this node, the removal of a
//! dead one. And how far copies for another member are, which is told to who ordered them.
//!
//! Giving up never undoes what is decided: an order is taken back in the metadata, as long as it can
//! be, and then every node that copies for it ends by itself ([`ClusterShard::end_copies`]). What was
//! copied for nothing goes by `cleaning`.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use cluster::{ClusterSnapshot, MemberState};
use codec::{DecodeError, Reader, Writer};
use stdx::{HostId, Uuid};
use streaming::FetchProgress;

use super::leaving::Orders;
use super::leaving::TOO_LATE;
use super::member::ClusterShard;

type Result<T> = std::result::Result<T, String>;

/// How far a copy is, as its node says; counted by table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CopyProgress {
    /// Ranges of tables that are to be copied.
    pub(crate) ranges: u64,
    /// Those that are here.
    pub(crate) ranges_done: u64,
    /// Bytes that came.
    pub(crate) bytes: u64,
}

impl From<&FetchProgress> for CopyProgress {
    fn from(of: &FetchProgress) -> CopyProgress {
        CopyProgress { ranges: of.ranges, ranges_done: of.done.ranges, bytes: of.done.bytes }
    }
}

/// An answer to an order to take over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    /// All is copied.
    pub(crate) is_done: bool,
    /// Nothing but zeros from a node of an older version.
    pub(crate) progress: CopyProgress,
}

/// Payload of an answer.
pub(crate) fn put_taken(taken: &Taken, out: &mut Vec<u8>) {
    out.put_u8(u8::from(taken.is_done));
    let CopyProgress { ranges, ranges_done, bytes } = taken.progress;
    for number in [ranges, ranges_done, bytes] {
        out.put_u64(number);
    }
}

/// Reads what [`put_taken`] wrote; also the first byte alone.
pub(crate) fn read_taken(payload: &[u8]) -> std::result::Result<Taken, DecodeError> {
    let r = &mut Reader::new(payload, "answer of who takes over");
    let is_done = r.u8()? == 1;
    let mut progress = CopyProgress::default();
    if r.remaining() > 0 {
        progress = CopyProgress { ranges: r.u64()?, ranges_done: r.u64()?, bytes: r.u64()? };
    }
    r.finish()?;
    Ok(Taken { is_done, progress })
}

/// What this node copies for others, and how far others are that copy on its order.
#[derive(Default)]
pub(crate) struct Copies {
    /// The fetches of its own copies, by the member that goes.
    fetches: RefCell<BTreeMap<HostId, Uuid>>,
    /// How far its own copies are, by the key of their order.
    own: RefCell<BTreeMap<String, CopyProgress>>,
    /// How far the others are.
    others: RefCell<BTreeMap<HostId, CopyProgress>>,
}

impl Copies {
    /// A fetch for `mover` begins.
    pub(super) fn begin(&self, mover: HostId, plan: Uuid) {
        self.fetches.borrow_mut().insert(mover, plan);
    }

    /// It is over.
    pub(super) fn end(&self, mover: HostId) {
        self.fetches.borrow_mut().remove(&mover);
    }

    pub(super) fn note_own(&self, key: &str, progress: CopyProgress) {
        self.own.borrow_mut().insert(key.to_owned(), progress);
    }

    pub(super) fn own(&self, key: &str) -> CopyProgress {
        self.own.borrow().get(key).copied().unwrap_or_default()
    }

    pub(super) fn note_other(&self, host: HostId, progress: CopyProgress) {
        self.others.borrow_mut().insert(host, progress);
    }

    pub(super) fn forget_others(&self) {
        self.others.borrow_mut().clear();
    }

    /// How far those are that copy on this node's order.
    pub(crate) fn others(&self) -> Vec<(HostId, CopyProgress)> {
        self.others.borrow().iter().map(|(host, progress)| (*host, *progress)).collect()
    }
}

/// A rebuild of this node.
#[derive(Default)]
pub(crate) struct Rebuilding {
    is_running: Cell<bool>,
    aborted: Cell<bool>,
    plan: Cell<Option<Uuid>>,
}

impl Rebuilding {
    /// # Errors
    /// One runs, in Cassandra's words.
    pub(super) fn begin(&self) -> Result<()> {
        if self.is_running.replace(true) {
            return Err("Node is still rebuilding. Check nodetool netstats.".to_owned());
        }
        Ok(())
    }

    pub(super) fn end(&self) {
        self.is_running.set(false);
        self.aborted.set(false);
        self.plan.set(None);
    }

    /// Its fetch begins.
    ///
    /// # Errors
    /// It was given up before.
    pub(super) fn fetches(&self, plan: Uuid) -> Result<()> {
        if self.aborted.get() {
            return Err(GIVEN_UP.to_owned());
        }
        self.plan.set(Some(plan));
        Ok(())
    }
}

const GIVEN_UP: &str = "it was given up by an operator";

/// Of what is under way elsewhere: the dead member whose removal is to be taken back.
///
/// # Errors
/// There is none, or more than one and none is named, or it lives.
fn removed_elsewhere(
    snapshot: &ClusterSnapshot,
    named: Option<HostId>,
    is_alive: impl Fn(HostId) -> bool,
) -> Result<HostId> {
    let me = snapshot.local.host_id;
    let leavers = snapshot.members.values();
    let leavers = leavers.filter(|m| m.state == MemberState::Leaving && m.host_id != me);
    let mut leavers = leavers.map(|m| m.host_id).filter(|host| named.is_none_or(|n| n == *host));
    let Some(host) = leavers.next() else {
        let is_named = |host: HostId| named.is_none_or(|n| n == host);
        let mut members = snapshot.members.values();
        if members.any(|m| m.state == MemberState::LeaveHandover && is_named(m.host_id)) {
            return Err(TOO_LATE.to_owned());
        }
        return Err("there is no removal in progress that could be given up".to_owned());
    };
    if leavers.next().is_some() {
        return Err("several nodes leave: name one by its host id".to_owned());
    }
    if is_alive(host) {
        return Err(format!("node {host} is alive and leaves by itself: abortdecommission there"));
    }
    Ok(host)
}

impl Orders {
    /// The member whose removal this node carries out.
    fn removes(&self, me: HostId) -> Option<HostId> {
        self.removal().map(|(host, _)| host).filter(|host| *host != me)
    }
}

impl ClusterShard {
    /// Gives up the removal of a dead node: the one that this node carries out, or one that was left
    /// behind by another. Shard 0 only.
    ///
    /// # Errors
    /// There is none, or all is copied and its end is being decided.
    pub(crate) async fn abort_removal(&self, named: Option<HostId>) -> Result<()> {
        let snapshot = self.membership.snapshot();
        let is_named = |host: &HostId| named.is_none_or(|n| n == *host);
        if let Some(host) = self.orders.removes(snapshot.local.host_id).filter(is_named) {
            return self.orders.abort(host);
        }
        let is_alive = |host| self.liveness.is_alive(host);
        let host = removed_elsewhere(&snapshot, named, is_alive)?;
        // The node that carries it out, when it lives, finds that it was taken back.
        let _turn = self.orders.begin(host)?;
        self.take_back(host).await?;
        self.settle_voters();
        Ok(())
    }

    /// Gives up the rebuild of this node; what came stays, and the same command goes on with the rest.
    /// Shard 0 only.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn abort_rebuild(&self) -> Result<()> {
        let rebuilding = &self.orders.rebuilding;
        if !rebuilding.is_running.get() {
            return Err("there is no rebuild in progress that could be given up".to_owned());
        }
        rebuilding.aborted.set(true);
        if let Some(plan) = rebuilding.plan.get() {
            self.streaming.abort(plan);
        }
        Ok(())
    }

    /// Ends copies for members that stay where they were after all. Shard 0 only.
    pub(super) fn end_copies(&self, before: &ClusterSnapshot, after: &ClusterSnapshot) {
        use MemberState as S;
        let fetches: Vec<(HostId, Uuid)> =
            self.orders.copies.fetches.borrow().iter().map(|(h, p)| (*h, *p)).collect();
        for (host, plan) in fetches {
            let state = |of: &ClusterSnapshot| of.members.get(&host).map(|member| member.state);
            let is_taken_back = matches!(
                (state(before), state(after)),
                (Some(S::Leaving | S::Moving), Some(S::Normal))
            );
            if is_taken_back {
                self.streaming.abort(plan);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_comes_back_and_that_of_an_older_version_is_read() {
        let progress = CopyProgress { ranges: 12, ranges_done: 5, bytes: 1 << 40 };
        for is_done in [false, true] {
            let taken = Taken { is_done, progress };
            let mut bytes = Vec::new();
            put_taken(&taken, &mut bytes);
            assert_eq!(read_taken(&bytes), Ok(taken));
            for cut in (2..bytes.len()).chain([0]) {
                assert!(read_taken(&bytes[..cut]).is_err(), "{cut}");
            }
            let old = read_taken(&bytes[..1]);
            assert_eq!(old, Ok(Taken { is_done, progress: CopyProgress::default() }));
        }
    }

    #[test]
    fn a_rebuild_that_is_given_up_before_it_fetches_does_not_begin_to() {
        let rebuilding = Rebuilding::default();
        let plan = Uuid::from_u128(7);
        assert_eq!(rebuilding.begin(), Ok(()));
        assert!(rebuilding.begin().is_err());
        rebuilding.aborted.set(true);
        assert_eq!(rebuilding.fetches(plan), Err(GIVEN_UP.to_owned()));
        rebuilding.end();
        assert_eq!((rebuilding.begin(), rebuilding.fetches(plan)), (Ok(()), Ok(())));
    }
}
