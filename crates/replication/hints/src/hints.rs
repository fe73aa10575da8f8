//! [`Hints`]: the object of a shard, what others call.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cluster::ClusterSnapshot;
use data::MutationRef;
use messaging::Messaging;
use rt::sync::{Notify, Semaphore};
use rt::{Gate, Group, Rt};
use stdx::{HostId, Instant, TableId, Token, WallMicros};

use crate::catalog::{Host, Kept, PendingHints, State};
use crate::counters::Counters;
use crate::delivery::Route;
use crate::error::HintsError;
use crate::files::{Directory, Listing};
use crate::policy::{self, Dropped, Refusal, Situation, TableFacts};
use crate::settings::HintsSettings;

/// The hints of one shard. Clones are the same object.
#[derive(Clone)]
pub struct Hints {
    pub(crate) inner: Rc<Inner>,
}

/// Dependencies of hints.
pub struct HintsParts {
    /// The shard's messaging; hints are sent by it.
    pub messaging: Messaging,
    /// Returns the current cluster snapshot.
    pub snapshot: Rc<dyn Fn() -> Arc<ClusterSnapshot>>,
}

/// A write that a node missed which has left since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missed {
    /// The node that left.
    pub target: HostId,
    /// The table.
    pub table: TableId,
    /// Token of the partition.
    pub token: Token,
    /// When the write was made.
    pub written_at: WallMicros,
    /// The encoded mutation.
    pub mutation: Vec<u8>,
}

/// Gives a missed write to the present owners of its token. True: it is applied, or kept as hints;
/// false: try again later.
pub type Redistribute = Rc<dyn Fn(Missed) -> Pin<Box<dyn Future<Output = bool>>>>;

/// No hints for replicas that are there.
const NEVER: Instant = Instant(u64::MAX);

pub(crate) struct Inner {
    pub(crate) rt: Rt,
    pub(crate) gate: Gate,
    pub(crate) directory: Directory,
    pub(crate) parts: HintsParts,
    pub(crate) redistribute: RefCell<Option<Redistribute>>,
    pub(crate) state: RefCell<State>,
    pub(crate) counters: Counters,
    /// Held by the task that writes or removes files; one permit.
    pub(crate) writer: Semaphore,
    /// One permit per delivery that may run.
    pub(crate) deliveries: Semaphore,
    /// Wakes the main task before its time.
    pub(crate) wake: Notify,
    /// When hints for replicas that are there are written and delivered.
    pub(crate) live_due: Cell<Instant>,
    /// A flush was asked for because the buffer is half full.
    pub(crate) early: Cell<bool>,
}

impl Hints {
    /// Opens the directory (made if missing), finds the hints of earlier runs and starts the task
    /// that writes and delivers. Nothing is delivered to a replica before [`Hints::set_up`].
    ///
    /// # Errors
    /// `Setting`; `Io`: the directory cannot be made or listed.
    pub async fn open(
        rt: &Rt,
        parts: HintsParts,
        settings: HintsSettings,
    ) -> Result<Hints, HintsError> {
        settings.check()?;
        let (directory, listing) = Directory::open(rt, &settings.directory).await?;
        let Listing { files, aside_bytes } = listing;
        let after = files.iter().map(|(id, _)| id.sequence.saturating_add(1)).max().unwrap_or(0);
        let mut hosts: BTreeMap<HostId, Host> = BTreeMap::new();
        for (id, file) in files {
            let host = hosts.entry(id.target).or_default();
            host.throttled = true;
            host.files.insert(id, file);
        }
        let deliveries = Semaphore::new(settings.deliveries_max);
        let state = State {
            settings,
            hosts,
            aside_bytes,
            next_sequence: after,
            disk_full: false,
            paused: false,
            transfers: 0,
            closed: false,
        };
        let inner = Inner {
            rt: rt.clone(),
            gate: rt.gate("hints"),
            directory,
            parts,
            redistribute: RefCell::new(None),
            counters: Counters::new(&rt.telemetry()),
            state: RefCell::new(state),
            writer: Semaphore::new(1),
            deliveries,
            wake: Notify::new(),
            live_due: Cell::new(NEVER),
            early: Cell::new(false),
        };
        let hints = Hints { inner: Rc::new(inner) };
        hints.inner.show();
        let ending = hints.clone();
        rt.at_end(move || drop(ending.inner.redistribute.take()));
        let main = hints.clone();
        let task = async move { main.run().await };
        // A closed gate is impossible here, an ending shard keeps no hints.
        let _ = hints.inner.gate.spawn(rt, Group::Admin, "hints", task);
        Ok(hints)
    }

    /// Returns true if a write that `host` misses would be kept. A coordinator asks this to decide
    /// whether a write at ANY may begin. Does not inspect the write.
    pub fn may_hint(&self, host: HostId) -> bool {
        match self.inner.check(host) {
            Ok(()) => true,
            Err(refusal) => {
                self.inner.counters.refused(refusal);
                false
            }
        }
    }

    /// Keeps a write that `host` missed: in memory now, on the disk within the flush period (or
    /// [`Hints::flush`]). False: it is not kept, and counted by its reason; a write never fails or
    /// waits because of that. `written_at` is when the write was made.
    pub fn store(&self, host: HostId, mutation: &[u8], written_at: WallMicros) -> bool {
        match self.inner.store(host, mutation, written_at) {
            Ok(()) => {
                self.inner.counters.stored.inc();
                true
            }
            Err(refusal) => {
                self.inner.counters.refused(refusal);
                false
            }
        }
    }

    /// Notes that the replica is up: its hints are delivered.
    pub fn set_up(&self, host: HostId) {
        let is_member = (self.inner.parts.snapshot)().members.contains_key(&host);
        let mut state = self.inner.state.borrow_mut();
        let entry = state.hosts.entry(host).or_default();
        entry.up = true;
        entry.down_since = None;
        entry.throttled &= !entry.is_empty();
        entry.retry_at = Instant::ZERO;
        if is_member {
            entry.left = false;
        }
        drop(state);
        self.inner.wake.notify_one();
    }

    /// The replica has been down since then: nothing is delivered, and its window runs.
    pub fn set_down(&self, host: HostId, since: Instant) {
        let mut state = self.inner.state.borrow_mut();
        let entry = state.hosts.entry(host).or_default();
        entry.up = false;
        entry.throttled |= !entry.is_empty();
        // The first of several reports counts.
        entry.down_since.get_or_insert(since);
    }

    /// The replica left the cluster: nothing more is kept for it or sent to it. What is kept is
    /// handed to [`Hints::set_redistribute`]'s function, else dropped, in the background.
    pub fn forget(&self, host: HostId) {
        if let Some(entry) = self.inner.state.borrow_mut().hosts.get_mut(&host) {
            entry.left = true;
        }
        self.inner.wake.notify_one();
    }

    /// Sets the recipient of the hints of replicas that left. Without it they are dropped.
    pub fn set_redistribute(&self, redistribute: Redistribute) {
        *self.inner.redistribute.borrow_mut() = Some(redistribute);
    }

    /// Tries to deliver now what is kept for replicas that are up, not only with the next period.
    pub fn deliver_now(&self) {
        self.inner.wake.notify_one();
    }

    /// Stops deliveries (`nodetool pausehandoff`); running ones end after the hints in flight.
    /// Hints are still kept.
    pub fn pause(&self) {
        self.inner.state.borrow_mut().paused = true;
    }

    /// Goes on with deliveries (`nodetool resumehandoff`).
    pub fn resume(&self) {
        self.inner.state.borrow_mut().paused = false;
        self.inner.wake.notify_one();
    }

    /// Returns true if deliveries are paused.
    pub fn is_paused(&self) -> bool {
        self.inner.state.borrow().paused
    }

    /// Returns the current settings.
    pub fn settings(&self) -> HintsSettings {
        self.inner.state.borrow().settings.clone()
    }

    /// Hints are kept, or not (`nodetool enablehandoff`, `disablehandoff`).
    pub fn set_enabled(&self, enabled: bool) {
        self.inner.state.borrow_mut().settings.enabled = enabled;
    }

    /// Hints are kept for nodes of a datacenter, or not (`nodetool enablehintsfordc`).
    pub fn set_datacenter_enabled(&self, datacenter: &str, enabled: bool) {
        let disabled = &mut self.inner.state.borrow_mut().settings.disabled_datacenters;
        if enabled {
            disabled.remove(datacenter);
        } else {
            disabled.insert(datacenter.to_owned());
        }
    }

    /// Replaces "max_hint_window" (`nodetool setmaxhintwindow`).
    pub fn set_window(&self, window: Duration) {
        self.inner.state.borrow_mut().settings.window = window;
    }

    /// Replaces "hinted_handoff_throttle", bytes per second, 0 = no bound
    /// (`nodetool sethintedhandoffthrottlekb`); running deliveries follow.
    pub fn set_throttle(&self, bytes_per_second: u64) {
        self.inner.state.borrow_mut().settings.throttle_bytes_per_second = bytes_per_second;
    }

    /// Returns the pending hints, by host id (`nodetool listpendinghints`).
    pub fn pending(&self) -> Vec<PendingHints> {
        self.inner.state.borrow().pending()
    }

    /// Makes everything that was stored so far durable. A caller that deletes data because a hint
    /// was stored calls this before.
    ///
    /// # Errors
    /// `DiskFull`, `Io`: the hints stay in memory and are written later.
    pub async fn flush(&self) -> Result<(), HintsError> {
        self.inner.flush_all().await
    }

    /// Drops everything that is kept, of one replica or of all (`nodetool truncatehints`).
    ///
    /// # Errors
    /// `Io`: a file could not be removed; it is still kept.
    pub async fn truncate(&self, host: Option<HostId>) -> Result<(), HintsError> {
        self.inner.truncate(host).await
    }

    /// Writes and syncs the hints in memory, ends deliveries and persists their progress. No hint
    /// is accepted afterwards.
    ///
    /// # Errors
    /// Those of [`Hints::flush`]: hints that are not on the disk are lost.
    pub async fn close(&self) -> Result<(), HintsError> {
        self.inner.state.borrow_mut().closed = true;
        self.inner.wake.notify_one();
        self.inner.gate.close().await;
        *self.inner.redistribute.borrow_mut() = None;
        self.inner.flush_all().await
    }

    /// The main task: writes with every period, then looks what can be delivered or goes.
    async fn run(&self) {
        let inner = &self.inner;
        let mut due = inner.rt.now();
        let mut failing = false;
        while !inner.is_closed() {
            // While writing fails it is not tried more often.
            let next = if failing { due } else { due.min(inner.live_due.get()) };
            // Either may come first, then the loop looks which.
            let _ = inner.rt.timeout(next, inner.wake.notified()).await;
            if inner.is_closed() {
                break;
            }
            let now = inner.rt.now();
            let is_early = inner.early.get() || now >= inner.live_due.get();
            if now >= due || (is_early && !failing) {
                due = now + inner.state.borrow().settings.flush_period;
                inner.early.set(false);
                inner.live_due.set(NEVER);
                // Logged where it failed; tried again with the next period.
                failing = inner.flush_all().await.is_err();
                inner.notice_departures();
            }
            self.start_tasks();
        }
    }

    /// Starts a task for every replica that something can be done for.
    fn start_tasks(&self) {
        let hosts: Vec<(HostId, bool)> = {
            let mut state = self.inner.state.borrow_mut();
            let paused = state.paused || state.transfers > 0;
            // A host that left may only be forgotten when nothing of it is left.
            state.hosts.retain(|_, h| !(h.left && h.is_empty() && !h.busy));
            let now = self.inner.rt.now();
            let may = |h: &Host| h.up && !paused && now >= h.retry_at;
            let due = |h: &Host| !h.busy && !h.is_empty() && (h.left || may(h));
            // Hosts that are not due yet are checked again later.
            let waits = |h: &&Host| h.up && !h.left && !h.busy && !h.throttled && !h.is_empty();
            let later = state.hosts.values().filter(waits).map(|h| h.retry_at);
            if let Some(at) = later.filter(|at| *at > now).min() {
                self.inner.live_due.set(self.inner.live_due.get().min(at));
            }
            state
                .hosts
                .iter_mut()
                .filter(|(_, h)| due(h))
                .map(|(host, h)| {
                    h.busy = true;
                    (*host, h.left)
                })
                .collect()
        };
        for (host, left) in hosts {
            let hints = self.clone();
            let task = async move {
                let mut retry_in = hints.settings().live_delay;
                if left {
                    hints.inner.clear_departed(host).await;
                } else {
                    let _permit = hints.inner.deliveries.acquire(1).await;
                    let route = Route { target: host, via: host, is_transfer: false };
                    if !hints.inner.deliver_to(route).await {
                        retry_in = hints.settings().live_retry;
                    }
                }
                let mut state = hints.inner.state.borrow_mut();
                if let Some(entry) = state.hosts.get_mut(&host) {
                    entry.busy = false;
                    entry.throttled &= !entry.is_empty();
                    if entry.up && !entry.left && !entry.throttled && !entry.is_empty() {
                        entry.retry_at = hints.inner.rt.now() + retry_in;
                        hints.inner.deliver_by(entry.retry_at);
                    }
                    if entry.left && !left {
                        // The replica left meanwhile, and the caller that reported it waits for the
                        // delivery's end.
                        hints.inner.wake.notify_one();
                    }
                }
            };
            let inner = &self.inner;
            if inner.gate.spawn(&inner.rt, Group::Admin, "hints-delivery", task).is_err()
                && let Some(entry) = inner.state.borrow_mut().hosts.get_mut(&host)
            {
                entry.busy = false;
            }
        }
    }
}

impl Inner {
    pub(crate) fn is_closed(&self) -> bool {
        self.state.borrow().closed
    }

    fn check(&self, host: HostId) -> Result<(), Refusal> {
        let snapshot = (self.parts.snapshot)();
        let member = snapshot.members.get(&host).filter(|_| host != snapshot.local.host_id);
        let state = self.state.borrow();
        let entry = state.hosts.get(&host);
        let oldest = entry.and_then(Host::oldest);
        let age = oldest.map(|at| {
            let micros = self.rt.wall().0.saturating_sub(at.0);
            Duration::from_micros(u64::try_from(micros).unwrap_or(0))
        });
        let down_since = entry.and_then(|e| e.down_since);
        let situation = Situation {
            is_peer: member.is_some() && !entry.is_some_and(|e| e.left),
            datacenter: member.map_or("", |m| &m.datacenter),
            down_for: down_since.map(|since| self.rt.now().since(since)),
            oldest_age: age,
            host_bytes: entry.map_or(0, Host::bytes),
            total_bytes: state.total_bytes(),
            buffered_bytes: state.buffered_bytes(),
            disk_full: state.disk_full,
            closed: state.closed,
            shards: self.rt.shard_count(),
        };
        policy::may_hint(&state.settings, &situation)
    }

    fn store(&self, host: HostId, mutation: &[u8], at: WallMicros) -> Result<(), Refusal> {
        self.check(host)?;
        let table = MutationRef::open(mutation).map(|m| m.table).ok_or(Refusal::Pointless)?;
        let table = self.table(table).ok_or(Refusal::Pointless)?;
        if table.gc_grace_seconds == 0 {
            return Err(Refusal::Pointless);
        }
        let mut state = self.state.borrow_mut();
        if mutation.len() as u64 > state.settings.mutation_bytes_max() {
            return Err(Refusal::TooLarge);
        }
        let gc_grace_seconds = table.gc_grace_seconds;
        let kept = Kept { written_at: at, gc_grace_seconds, mutation: mutation.into() };
        let entry = state.hosts.entry(host).or_default();
        entry.waiting_bytes += kept.bytes();
        entry.waiting.push_back(kept);
        entry.throttled |= !entry.up;
        let is_live = entry.up && !entry.throttled && !entry.busy;
        let live_delay = state.settings.live_delay;
        let shards = u64::from(self.rt.shard_count().max(1));
        let buffered = state.buffered_bytes();
        let half = state.settings.buffer_bytes_max / shards / 2;
        drop(state);
        self.counters.buffered_bytes.set(i64::try_from(buffered).unwrap_or(i64::MAX));
        if is_live {
            self.deliver_by(self.rt.now() + live_delay);
        }
        if buffered > half && !self.early.replace(true) {
            self.wake.notify_one();
        }
        Ok(())
    }

    /// Sets the deadline by which hints for live replicas are written and delivered.
    fn deliver_by(&self, at: Instant) {
        if at < self.live_due.get() {
            self.live_due.set(at);
            self.wake.notify_one();
        }
    }

    /// Returns the facts of a table; `None` if there is no such table.
    pub(crate) fn table(&self, id: TableId) -> Option<TableFacts> {
        let snapshot = (self.parts.snapshot)();
        let table = snapshot.schema.table_by_id(id)?;
        let gc_grace_seconds = u32::try_from(table.options.gc_grace_seconds).unwrap_or(0);
        let truncated_at = snapshot.truncations.get(&id).map(|t| t.truncated_at);
        Some(TableFacts { gc_grace_seconds, truncated_at })
    }

    /// Marks replicas as left that are members no more: a restart may have come between the entry
    /// that removed them and [`Hints::forget`].
    fn notice_departures(&self) {
        let snapshot = (self.parts.snapshot)();
        // A node that left itself does not know the current members.
        if !snapshot.members.contains_key(&snapshot.local.host_id) {
            return;
        }
        for (host, entry) in &mut self.state.borrow_mut().hosts {
            if !entry.left && !snapshot.members.contains_key(host) {
                tracing::info!(host = %host.0, "storing hints for a node that is not a member");
                entry.left = true;
            }
        }
    }

    pub(crate) fn dropped(&self, why: Dropped, hints: u64) {
        self.counters.dropped(why, hints);
    }

    /// Sets the gauges.
    pub(crate) fn show(&self) {
        let state = self.state.borrow();
        let buffered = state.buffered_bytes();
        let gauge = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        self.counters.buffered_bytes.set(gauge(buffered));
        self.counters.bytes.set(gauge(state.total_bytes().saturating_sub(buffered)));
        self.counters.files.set(gauge(state.files() as u64));
    }
}
