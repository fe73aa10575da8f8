//! [`Env`]: the environment that all parts of a shard's repair share.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use cluster::ClusterSnapshot;
use coordinator::Coordinator;
use messaging::Messaging;
use rt::sync::Notify;
use rt::{Gate, Rt};
use stdx::{HostId, TableId, Token, Uuid};

use crate::error::RepairError;
use crate::job::Job;
use crate::metrics::Counts;
use crate::ranges::width;
use crate::records::RepairRecords;
use crate::settings::RepairSettings;
use crate::throttle::Throttle;

/// The shard, the ways to data and to peers, and how work of this shard ends.
pub(crate) struct Env {
    pub(crate) rt: Rt,
    pub(crate) coordinator: Coordinator,
    pub(crate) messaging: Messaging,
    pub(crate) snapshot: Rc<dyn Fn() -> Arc<ClusterSnapshot>>,
    pub(crate) is_alive: Rc<dyn Fn(HostId) -> bool>,
    pub(crate) records: Option<Rc<dyn RepairRecords>>,
    pub(crate) settings: RepairSettings,
    pub(crate) counts: Counts,
    pub(crate) throttle: Throttle,
    pub(crate) gate: Gate,
    pub(crate) stopping: Cell<bool>,
    pub(crate) stop: Notify,
}

impl Env {
    /// The address of a member, for messages.
    pub(crate) fn address(&self, host: HostId) -> SocketAddr {
        let snapshot = (self.snapshot)();
        let known = snapshot.members.get(&host).map(|m| m.storage);
        known.unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)))
    }

    /// False when the node stops.
    pub(crate) async fn pause(&self, time: Duration) -> bool {
        if self.stopping.get() {
            return false;
        }
        let until = self.rt.now() + time;
        self.rt.timeout(until, self.stop.notified()).await.is_err() && !self.stopping.get()
    }

    /// The outcome of `work`, unless the repair is cancelled or the node stops first.
    pub(crate) async fn unless_ended<T>(
        &self,
        job: &Job,
        work: impl Future<Output = T>,
    ) -> Result<T, RepairError> {
        let (stop, abort) = (self.stop.notified(), job.abort.notified());
        if self.stopping.get() {
            return Err(RepairError::Stopping);
        }
        if job.aborted.get() {
            return Err(RepairError::Aborted);
        }
        let (mut work, mut stop, mut abort) = (pin!(work), pin!(stop), pin!(abort));
        poll_fn(|cx| {
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                return Poll::Ready(Ok(done));
            }
            if stop.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(RepairError::Stopping));
            }
            abort.as_mut().poll(cx).map(|()| Err(RepairError::Aborted))
        })
        .await
    }

    /// Waits until so many more bytes may be read.
    pub(crate) async fn pace(&self, job: &Job, bytes: usize) -> Result<(), RepairError> {
        let now = self.rt.now();
        let start = self.throttle.spend(now, job, bytes);
        if start > now {
            self.unless_ended(job, self.rt.sleep_until(start)).await?;
        }
        Ok(())
    }

    /// A time UUID when records are written, as Cassandra names sessions; else a random one.
    pub(crate) fn session_id(&self) -> Uuid {
        match &self.records {
            Some(records) => records.time_uuid(),
            None => self.random_uuid(),
        }
    }

    fn random_uuid(&self) -> Uuid {
        let mut bytes = [0; 16];
        self.rt.random_fill(&mut bytes);
        // A random one by RFC 9562, section 5.4.
        bytes[6] = (bytes[6] & 0x0f) | 0x40;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        Uuid::from_bytes(bytes)
    }

    /// Estimates this node's bytes of a table between tokens from the number of tokens in its
    /// ranges. Assumes that data is spread evenly over shards and over the tokens of a shard.
    pub(crate) fn bytes_of(
        &self,
        table: TableId,
        owned: u128,
    ) -> impl Fn(Token, Token) -> u64 + use<> {
        let stats = self.coordinator.store().table_stats(table);
        let of_shard = stats.uncompressed_bytes.saturating_add(stats.memtable_bytes);
        let bytes = u128::from(of_shard) * u128::from(self.rt.shard_count());
        move |start, end| {
            let bytes = bytes.saturating_mul(width(start, end)) / owned.max(1);
            u64::try_from(bytes).unwrap_or(u64::MAX)
        }
    }

    /// Refuses when any of these nodes is not alive.
    pub(crate) fn check_alive(
        &self,
        hosts: impl Iterator<Item = HostId>,
    ) -> Result<(), RepairError> {
        let mut dead: Vec<HostId> = hosts.filter(|h| !(self.is_alive)(*h)).collect();
        dead.sort_unstable();
        dead.dedup();
        match dead.is_empty() {
            true => Ok(()),
            false => {
                Err(RepairError::NotAlive(dead.into_iter().map(|h| self.address(h)).collect()))
            }
        }
    }
}
