//! Ballot floor: the newest ballot that this shard's acceptors always refuse.
//!
//! Owns: `metadata/paxos-floor/<shard>` of the work directory: the ballot up to which rows of
//! `system.paxos` may have been deleted ([`crate::paxos_cleanup`]). Never: chooses the rows to delete.
//!
//! INV-serial-6: a row is deleted only when all of it is at most as new as the floor in the file of its
//! shard, and the floor never moves back, whatever the wall clock does. So ballots that a deleted row
//! would have refused are still refused.
//!
//! File ([`crate::checkpoint_file`]): `micros <microseconds since 1970>`. A node may be started with
//! other shards: the newest of all files counts for each.

use std::cell::{Cell, RefCell};

use codec::SmallForm;
use paxos::{Ballot, Scope};
use rt::Rt;
use std::time::Duration;

use stdx::{IoError, WallMicros};

use crate::checkpoint_file::Kept;

/// Ballots that are this much older than a replica's clock are refused.
const FLOOR_AGE: Duration = Duration::from_secs(12 * 3600);

const FILE: Kept<1> = Kept {
    form: SmallForm { kind: "paxos-floor", version: 2 },
    old_title: "helenus paxos floor 1",
    names: ["micros"],
    advice: "remove it if this node's clock was never set back by more than 12 hours",
};

/// The floor of a shard.
pub(crate) struct Floor {
    newest: Cell<Ballot>,
    /// Directory of the file; `None` before [`Floor::load`].
    directory: RefCell<Option<String>>,
}

impl Default for Floor {
    fn default() -> Floor {
        Floor { newest: Cell::new(Ballot::ZERO), directory: RefCell::default() }
    }
}

impl Floor {
    /// The newest ballot that is refused at a time.
    pub(crate) fn at(&self, now: WallMicros) -> Ballot {
        let (by_clock, kept) = (before(now, FLOOR_AGE), self.newest.get());
        if kept.is_newer_than(by_clock) { kept } else { by_clock }
    }

    /// Loads the floor that earlier runs have persisted, and persists it there from now on.
    ///
    /// # Errors
    /// A file cannot be read, or is damaged.
    pub(crate) async fn load(&self, rt: &Rt, work_dir: &str) -> Result<(), IoError> {
        let directory = format!("{}/metadata/paxos-floor", work_dir.trim_end_matches('/'));
        let (all, has_own) = FILE.load(rt, &directory).await?;
        for [micros] in all {
            self.raise_to(at(micros));
        }
        // So that a lost file is noticed.
        if !has_own
            && let Err(error) = FILE.store(rt, &directory, [self.newest.get().micros()]).await
        {
            tracing::warn!(%error, "cannot persist the floor of Paxos ballots");
        }
        *self.directory.borrow_mut() = Some(directory);
        Ok(())
    }

    fn raise_to(&self, floor: Ballot) {
        if floor.is_newer_than(self.newest.get()) {
            self.newest.set(floor);
        }
    }

    /// Refuses ballots up to `floor` from now on, durably when it returns.
    ///
    /// # Errors
    /// It cannot be persisted; the ballots are refused all the same until the node ends.
    pub(crate) async fn raise(&self, rt: &Rt, floor: Ballot) -> Result<(), IoError> {
        self.raise_to(floor);
        let directory = self.directory.borrow().clone();
        let Some(directory) = directory else { return Ok(()) };
        FILE.store(rt, &directory, [self.newest.get().micros()]).await
    }
}

/// The last ballot of a microsecond.
pub(crate) fn at(micros: u64) -> Ballot {
    Ballot::new(micros, Scope::Global, u64::MAX)
}

/// The last ballot that was so old at a time.
pub(crate) fn before(now: WallMicros, age: Duration) -> Ballot {
    let now = u64::try_from(now.0).unwrap_or(0);
    let age = u64::try_from(age.as_micros()).unwrap_or(u64::MAX);
    at(now.saturating_sub(age))
}
