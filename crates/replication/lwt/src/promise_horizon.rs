//! Promise horizon: the ballot up to which this shard's acceptors promise without a record.
//!
//! Owns: `metadata/paxos-horizon/<shard>` of the work directory, and the time at which promises without a
//! record are appended. A promise that is not newer than the *horizon* is in memory only. A start that
//! finds a horizon in a file behaves as if that ballot had been promised to a write of every partition
//! ([`paxos::AcceptorState::promised_to_all`]), so no promise is forgotten. It costs the clients of such
//! a node an extra round for the first serial read of a partition, and refuses ballots for as long as the
//! horizon was ahead of the clock. A clean stop appends the promises in memory and removes the horizon
//! from the file.
//!
//! INV-serial-7: the horizon in use is never beyond the one in the file. An acceptor is evicted from
//! memory, or its row is sent to another node, only when its promises are appended, or when all of them
//! are below the promise to every partition.
//!
//! File ([`crate::checkpoint_file`]): `micros <the horizon>`, `forgotten <the promise of a start to every
//! partition>`; microseconds since 1970, 0 for none. A node may be started with other shards: the newest
//! of all files counts for each.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use codec::SmallForm;
use paxos::Ballot;
use rt::sync::Semaphore;
use rt::{Fs, Rt};
use stdx::{IoError, ShardId, WallMicros};
use store::StoreError;

use crate::acceptors::Acceptors;
use crate::ballot_floor::at;
use crate::checkpoint_file::Kept;
use crate::paxos_row::Partition;
use crate::shards::{ShardReply, ShardRequest, Shards, mesh_error};
use replica::{Origin, ReplicaMutation};

const FILE: Kept<2> = Kept {
    form: SmallForm { kind: "paxos-horizon", version: 2 },
    old_title: "helenus paxos horizon 1",
    names: ["micros", "forgotten"],
    advice: "remove it if this node's clock was never set back; it is rebuilt from the clock",
};

/// Lead of the horizon over the clock. The cost of a crash grows with it: for so long the restarted
/// replica refuses ballots.
const AHEAD: Duration = Duration::from_secs(1);
/// Promises with records before the horizon is moved on: a node with few conditional statements
/// writes no file for each.
const PROMISES: u32 = 8;
/// Acceptors whose promises are appended in one batch.
const IN_ONE_GO: usize = 256;

/// The horizon of a shard.
pub(crate) struct Horizon {
    until: Cell<Ballot>,
    /// The horizon in the file; `until` is never beyond.
    in_file: Cell<Ballot>,
    forgotten: Cell<Ballot>,
    /// Directory of the file; without one there is no horizon.
    directory: RefCell<Option<String>>,
    /// One file at a time.
    writing: Semaphore,
    is_moving: Cell<bool>,
    is_closed: Cell<bool>,
    /// Promises since the horizon was moved that were near or beyond it.
    promises: Cell<u32>,
}

impl Default for Horizon {
    fn default() -> Horizon {
        Horizon {
            until: Cell::new(Ballot::ZERO),
            in_file: Cell::new(Ballot::ZERO),
            forgotten: Cell::new(Ballot::ZERO),
            directory: RefCell::default(),
            writing: Semaphore::new(1),
            is_moving: Cell::default(),
            is_closed: Cell::default(),
            promises: Cell::default(),
        }
    }
}

fn ahead_of(now: WallMicros, by: Duration) -> Ballot {
    let now = u64::try_from(now.0).unwrap_or(0);
    at(now.saturating_add(u64::try_from(by.as_micros()).unwrap_or(u64::MAX)))
}

impl Horizon {
    /// Promises up to here need no record.
    pub(crate) fn until(&self) -> Ballot {
        self.until.get()
    }

    /// Returns the ballot that every partition has been promised.
    pub(crate) fn forgotten(&self) -> Ballot {
        self.forgotten.get()
    }

    /// Promises this ballot to every partition that is loaded from now on.
    pub(crate) fn forget(&self, ballot: Ballot) {
        self.forgotten.set(self.forgotten.get().max(ballot));
    }

    #[cfg(feature = "testing")]
    pub(crate) fn forget_all(&self) {
        self.forgotten.set(Ballot::ZERO);
    }

    /// Loads the horizons that earlier runs have persisted, and persists this shard's there from
    /// now on.
    ///
    /// # Errors
    /// A file cannot be read, or is damaged.
    pub(crate) async fn load(&self, rt: &Rt, work_dir: &str) -> Result<(), IoError> {
        let directory = format!("{}/metadata/paxos-horizon", work_dir.trim_end_matches('/'));
        let (all, has_own) = FILE.load(rt, &directory).await?;
        for [until, forgotten] in all {
            let newest = until.max(forgotten);
            if newest > 0 {
                self.forget(at(newest));
            }
        }
        // So that a lost file is noticed.
        if !has_own
            && let Err(error) = FILE.store(rt, &directory, [0, self.forgotten.get().micros()]).await
        {
            tracing::warn!(%error, "cannot persist the horizon of Paxos promises");
        }
        *self.directory.borrow_mut() = Some(directory);
        Ok(())
    }

    /// Notes a promise. Whether the horizon is to be moved on.
    fn is_wanted(&self, now: WallMicros) -> bool {
        let until = self.until.get();
        let is_idle = !self.is_closed.get() && !self.is_moving.get();
        // Far enough, and not so far that the clock must have been set back.
        let is_well = until.is_newer_than(ahead_of(now, AHEAD / 2))
            && !until.is_newer_than(ahead_of(now, AHEAD * 2));
        if is_well || !is_idle || self.directory.borrow().is_none() {
            return false;
        }
        self.promises.set(self.promises.get() + 1);
        self.promises.get() >= PROMISES
    }

    /// Persists the file. With a goal, the horizon is at the goal afterwards.
    async fn keep(&self, rt: &Rt, goal: Option<Ballot>) -> Result<(), IoError> {
        let directory = self.directory.borrow().clone();
        let Some(directory) = directory else { return Ok(()) };
        let _one = self.writing.acquire(1).await;
        let until = goal.unwrap_or(self.in_file.get());
        FILE.store(rt, &directory, [until.micros(), self.forgotten.get().micros()]).await?;
        self.in_file.set(until);
        if let (Some(goal), false) = (goal, self.is_closed.get()) {
            self.until.set(goal);
        }
        Ok(())
    }
}

/// Writes the file of a shard that has lost its own: every ballot up to a moment ahead of `now` counts as promised
/// to every partition. No horizon was farther ahead, unless the clock was set back.
///
/// # Errors
/// `Io`.
pub async fn rebuild_horizon(fs: &Fs, path: &str, now: WallMicros) -> Result<(), IoError> {
    let until = ahead_of(now, AHEAD * 2).micros();
    fs.write_small(FILE.form, path, &FILE.encode([until, 0])).await
}

impl<N: Shards> Acceptors<N> {
    /// Notes that an acceptor is asked for a promise, and moves the horizon on when it is near.
    pub(crate) fn note_promise(&self, now: WallMicros) {
        let horizon = &self.inner.horizon;
        if !horizon.is_wanted(now) {
            return;
        }
        horizon.promises.set(0);
        horizon.is_moving.set(true);
        let this = self.clone();
        self.env().spawn_or_drop("paxos-horizon", async move {
            let horizon = &this.inner.horizon;
            if let Err(error) = this.move_horizon().await {
                tracing::warn!(
                    %error,
                    "cannot move the horizon of Paxos promises: each promise is logged separately"
                );
            }
            horizon.is_moving.set(false);
        });
    }

    async fn move_horizon(&self) -> Result<(), StoreError> {
        let horizon = &self.inner.horizon;
        let goal = ahead_of(self.env().rt.wall(), AHEAD);
        if horizon.until.get().is_newer_than(goal) {
            // The clock was set back. After a crash every partition would be refused until the
            // clock reaches the old horizon. When the horizon moves back, all promises are in
            // records.
            horizon.until.set(Ballot::ZERO);
            self.write_promises().await?;
            self.env().store.sync().await?;
        }
        Ok(horizon.keep(&self.env().rt, Some(goal)).await?)
    }

    /// Appends the promises of this shard's acceptors that have no records, so that their rows show
    /// them. They are not durable yet, and need not be.
    pub(crate) async fn write_promises(&self) -> Result<(), StoreError> {
        let acceptors = &self.inner.registers;
        let waiting = acceptors.with_unwritten();
        for some in waiting.chunks(IN_ONE_GO) {
            for partition in some {
                self.write_promises_of(partition)?;
            }
            self.env().rt.yield_if_due().await;
        }
        Ok(())
    }

    /// Like [`Acceptors::write_promises`], for one partition.
    pub(crate) fn write_promises_of(&self, partition: &Partition) -> Result<(), StoreError> {
        let acceptors = &self.inner.registers;
        let Some((table, records)) = acceptors.unwritten_of(partition) else { return Ok(()) };
        let now = self.env().rt.wall().seconds();
        for record in records {
            let mutation = table.mutation(partition, &record.to_update(), now);
            let mutation = ReplicaMutation::durable(partition.token(), mutation);
            self.env().replica.admit_and_apply(&mutation, Origin::Paxos)?;
        }
        acceptors.are_written(partition);
        Ok(())
    }

    /// Makes the rows of this node show all promises, and has its shards promise `raise` to every
    /// partition, durably. Gives what every partition of this node has been promised.
    pub(crate) async fn show_promises(&self, raise: Ballot) -> Result<Ballot, StoreError> {
        let (rt, own) = (&self.env().rt, self.env().rt.shard());
        let others: Vec<_> = (0..rt.shard_count())
            .map(ShardId)
            .filter(|shard| *shard != own)
            .map(|shard| self.inner.node.lwt(shard, ShardRequest::Promises(raise)))
            .collect();
        let mut newest = self.show_own_promises(raise).await?;
        for other in others {
            match other.await {
                Ok(ShardReply::Promises(promised)) => newest = newest.max(promised?),
                Ok(other) => {
                    stdx::invariant::broken(format_args!("promises answered by {other:?}"))
                }
                Err(error) => return Err(mesh_error(error)),
            }
        }
        Ok(newest)
    }

    /// Like [`Acceptors::show_promises`], for this shard.
    pub(crate) async fn show_own_promises(&self, raise: Ballot) -> Result<Ballot, StoreError> {
        let horizon = &self.inner.horizon;
        if raise > horizon.forgotten.get() {
            horizon.forget(raise);
            self.inner.registers.promised_to_all(raise);
            horizon.keep(&self.env().rt, None).await?;
        }
        self.write_promises().await?;
        Ok(horizon.forgotten.get())
    }

    /// Writes all promises to their rows, so that the next start finds them there. Must be called
    /// when no request is served any more and the store is still open.
    pub(crate) async fn close_horizon(&self) {
        let horizon = &self.inner.horizon;
        horizon.is_closed.set(true);
        if horizon.until.replace(Ballot::ZERO).is_zero() {
            return;
        }
        let closed = async {
            self.write_promises().await?;
            self.env().store.sync().await?;
            horizon.keep(&self.env().rt, Some(Ballot::ZERO)).await.map_err(StoreError::from)
        };
        if let Err(error) = closed.await {
            tracing::warn!(
                %error,
                "cannot write Paxos promises to system.paxos: the next start assumes that all \
                were given"
            );
        }
    }
}
