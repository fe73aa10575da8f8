//! Progress of copies: the report to the node that ordered them, and this node's own copies.
//!
//! Answer to the verb `TakeOver`: 0 the copy runs, 1 it is done; then ranges, ranges done and bytes (u64 each).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use codec::{DecodeError, Reader, Writer};
use stdx::{HostId, Uuid};
use streaming::FetchProgress;

type Result<T> = std::result::Result<T, String>;

/// Progress of a copy, as its node reports it; counted by table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyProgress {
    /// Ranges of tables that are to be copied.
    pub ranges: u64,
    /// Those that are here.
    pub ranges_done: u64,
    /// Bytes that came.
    pub bytes: u64,
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
    pub is_done: bool,
    /// Nothing but zeros from a node of an older version.
    pub progress: CopyProgress,
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

/// This node's copies for others, and the progress of other nodes that copy on its order.
#[derive(Default)]
pub(crate) struct Copies {
    /// The fetches of its own copies, by the member that goes.
    pub(crate) fetches: RefCell<BTreeMap<HostId, Uuid>>,
    /// Progress of this node's own copies, by the key of their order.
    own: RefCell<BTreeMap<String, CopyProgress>>,
    /// Progress of the others' copies.
    others: RefCell<BTreeMap<HostId, CopyProgress>>,
}

impl Copies {
    /// A fetch for `mover` begins.
    pub(crate) fn begin(&self, mover: HostId, plan: Uuid) {
        self.fetches.borrow_mut().insert(mover, plan);
    }

    /// It is over.
    pub(crate) fn end(&self, mover: HostId) {
        self.fetches.borrow_mut().remove(&mover);
    }

    pub(crate) fn note_own(&self, key: &str, progress: CopyProgress) {
        self.own.borrow_mut().insert(key.to_owned(), progress);
    }

    pub(crate) fn own(&self, key: &str) -> CopyProgress {
        self.own.borrow().get(key).copied().unwrap_or_default()
    }

    pub(crate) fn note_other(&self, host: HostId, progress: CopyProgress) {
        self.others.borrow_mut().insert(host, progress);
    }

    pub(crate) fn forget_others(&self) {
        self.others.borrow_mut().clear();
    }

    /// Progress of the nodes that copy on this node's order.
    pub(crate) fn others(&self) -> Vec<(HostId, CopyProgress)> {
        self.others.borrow().iter().map(|(host, progress)| (*host, *progress)).collect()
    }
}

/// A rebuild of this node.
#[derive(Default)]
pub(crate) struct Rebuilding {
    pub(crate) is_running: Cell<bool>,
    pub(crate) aborted: Cell<bool>,
    pub(crate) plan: Cell<Option<Uuid>>,
}

impl Rebuilding {
    /// # Errors
    /// One runs, in Cassandra's words.
    pub(crate) fn begin(&self) -> Result<()> {
        if self.is_running.replace(true) {
            return Err("Node is still rebuilding. Check nodetool netstats.".to_owned());
        }
        Ok(())
    }

    pub(crate) fn end(&self) {
        self.is_running.set(false);
        self.aborted.set(false);
        self.plan.set(None);
    }

    /// Its fetch begins.
    ///
    /// # Errors
    /// It was aborted before.
    pub(crate) fn fetches(&self, plan: Uuid) -> Result<()> {
        if self.aborted.get() {
            return Err(GIVEN_UP.to_owned());
        }
        self.plan.set(Some(plan));
        Ok(())
    }
}

const GIVEN_UP: &str = "it was aborted by an operator";

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
