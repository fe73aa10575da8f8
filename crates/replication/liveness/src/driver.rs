//! Shard 0's part: the machine, its rounds and its messages.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use gossip::{AppState, Config, DiskUsage, Event, Flags, Gossip, Input, Member, Message, Output};
use internode::Verb;
use messaging::{LinkFailure, Messaging, Outgoing};
use rt::Group;
use rt::sync::Notify;
use stdx::{Epoch, FixedMap, HostId, Instant, ShardId};
use telemetry::{Counter, Gauge};

use crate::{Liveness, PeerRow, Start, generation};

/// A message that could not be sent for so many rounds is obsolete.
const MESSAGE_ROUNDS: u32 = 3;

pub(crate) struct Driver {
    liveness: Liveness,
    messaging: Messaging,
    machine: RefCell<Gossip>,
    app: RefCell<AppState>,
    work_dir: String,
    round: Duration,
    on_epoch: Box<dyn Fn(HostId, Epoch)>,
    wake_at: Cell<Instant>,
    wake: Notify,
    /// Not taking part for now.
    is_paused: Cell<bool>,
    is_stopped: Cell<bool>,
    /// A shard has not received the latest picture.
    is_stale: Cell<bool>,
    counters: Counters,
}

struct Counters {
    alive: Gauge,
    ups: Counter,
    downs: Counter,
    unreadable: Counter,
}

impl Driver {
    pub(crate) fn new(liveness: Liveness, start: Start) -> Driver {
        let rt = &liveness.inner.rt;
        let config = Config {
            round: start.round,
            phi_convict_threshold: start.phi_convict_threshold,
            wall: rt.wall(),
            ..Config::new(liveness.inner.host, start.generation)
        };
        let telemetry = rt.telemetry();
        let change = |to| {
            let labels = [("to", to)];
            telemetry.counter("gossip_changes_total", "nodes that went up or down", &labels)
        };
        let counters = Counters {
            alive: telemetry.gauge("gossip_live_peers", "other nodes that are up", &[]),
            ups: change("up"),
            downs: change("down"),
            unreadable: telemetry.counter(
                "gossip_unreadable_messages_total",
                "messages of peers that cannot be read",
                &[],
            ),
        };
        Driver {
            machine: RefCell::new(Gossip::new(config, start.state.clone())),
            app: RefCell::new(start.state),
            messaging: start.messaging,
            work_dir: start.work_dir,
            round: start.round,
            on_epoch: start.on_epoch,
            wake_at: Cell::new(Instant::ZERO),
            wake: Notify::new(),
            is_paused: Cell::new(false),
            is_stopped: Cell::new(false),
            is_stale: Cell::new(false),
            counters,
            liveness,
        }
    }

    /// The rounds, until [`Driver::stop`].
    pub(crate) async fn run(&self) {
        let rt = self.liveness.inner.rt.clone();
        while !self.is_stopped.get() {
            if self.is_paused.get() {
                self.wake.notified().await;
                continue;
            }
            self.wake_at.set(rt.now() + self.round);
            self.step(Input::Tick { wall: rt.wall() });
            if self.is_stale.replace(false) {
                self.publish();
            }
            // The end of the wait is checked above, whatever ended it.
            let _ = rt.timeout(self.wake_at.get(), self.wake.notified()).await;
        }
    }

    fn step(&self, input: Input) {
        let rt = &self.liveness.inner.rt;
        let mut out = Vec::new();
        let is_round = matches!(input, Input::Tick { .. });
        self.machine.borrow_mut().step(rt.now(), rt.random_u64(), input, &mut out);
        let mut is_changed = false;
        for output in out {
            match output {
                Output::Send { to, message } => self.send(to, &message),
                Output::WakeAt(at) => {
                    self.wake_at.set(at);
                    if !is_round {
                        // The rounds wait for a later time: they look again.
                        self.wake.notify_one();
                    }
                }
                Output::Event(event) => is_changed |= self.happened(event),
            }
        }
        if is_changed {
            self.publish();
        }
    }

    /// Acts on an event; true when the picture may be another one.
    fn happened(&self, event: Event) -> bool {
        match event {
            Event::Up { host } => {
                self.counters.ups.inc();
                tracing::info!(%host, "node is up");
                true
            }
            Event::Down { host, reason } => {
                self.counters.downs.inc();
                tracing::info!(%host, ?reason, "node is down");
                true
            }
            Event::Restarted { .. } => false,
            Event::StateChanged { host } => {
                let epoch = self.machine.borrow().peer(host).map(|peer| peer.app.epoch);
                if let Some(epoch) = epoch {
                    (self.on_epoch)(host, epoch);
                }
                true
            }
            Event::GenerationRaised { generation } => {
                tracing::warn!(
                    generation,
                    "peers know a later start of this node than its disk does; continuing with a \
                    higher generation. Was the disk restored from a copy?"
                );
                self.keep_generation(generation);
                false
            }
            Event::Impostor { generation } => {
                tracing::error!(
                    generation,
                    "another node runs with this node's host id: a data \
                    directory was copied; stop one of them"
                );
                false
            }
            Event::Unbelievable { host, generation } => {
                tracing::warn!(
                    %host,
                    generation,
                    "ignoring gossip with an impossible generation; check the clock of that node"
                );
                false
            }
        }
    }

    fn keep_generation(&self, generation: u64) {
        let (rt, work_dir) = (self.liveness.inner.rt.clone(), self.work_dir.clone());
        let of_task = rt.clone();
        let task = async move {
            if let Err(error) = generation::write(&of_task, &work_dir, generation).await {
                tracing::warn!(%error, "cannot persist the gossip generation");
            }
        };
        let _ = self.liveness.inner.gate.spawn(&rt, Group::Gossip, "generation", task);
    }

    fn send(&self, host: HostId, message: &Message) {
        let is_last = self.app.borrow().flags.has(Flags::SHUTTING_DOWN);
        let verb = match message {
            Message::Syn { .. } | Message::Echo { .. } => Verb::GossipSyn,
            Message::Ack { .. } | Message::EchoReply { .. } => Verb::GossipAck,
            Message::Ack2 { .. } if is_last => Verb::GossipShutdown,
            Message::Ack2 { .. } => Verb::GossipAck2,
        };
        let deadline = self.liveness.inner.rt.now() + self.round * MESSAGE_ROUNDS;
        let to = Outgoing { host, shard: ShardId(0), verb, deadline, trace: None };
        if let Err(error) = self.messaging.send_one_way(&to, |out| message.encode(out)) {
            tracing::trace!(%host, %error, "gossip not sent");
        }
    }

    pub(crate) fn received(&self, from: HostId, payload: &[u8]) {
        if self.is_paused.get() || self.is_stopped.get() {
            return;
        }
        match Message::decode(payload) {
            Ok(message) => self.step(Input::Received { from, message }),
            Err(error) => {
                self.counters.unreadable.inc();
                tracing::debug!(host = %from, %error, "discarding unreadable gossip");
            }
        }
    }

    /// A connection to a peer failed.
    pub(crate) fn link_failed(&self, host: HostId, failure: LinkFailure) {
        if self.is_paused.get() || self.is_stopped.get() {
            return;
        }
        self.step(match failure {
            LinkFailure::Lost => Input::Lost { host },
            LinkFailure::Refused => Input::Refused { host },
        });
    }

    /// Shows the machine's present knowledge to every shard.
    pub(crate) fn publish(&self) {
        let (mut alive, mut disks) = (FixedMap::default(), FixedMap::default());
        let mut wrong_clocks = Vec::new();
        if self.app.borrow().flags.has(Flags::WRONG_CLOCK) {
            wrong_clocks.push(self.liveness.inner.host);
        }
        {
            let machine = self.machine.borrow();
            for host in machine.hosts() {
                let peer = machine.peer(host).filter(|_| host != self.liveness.inner.host);
                let Some(peer) = peer else { continue };
                let flags = peer.app.flags;
                if peer.is_alive {
                    alive.insert(host, flags.has(Flags::CQL_READY));
                }
                if flags.has(Flags::WRONG_CLOCK) {
                    wrong_clocks.push(host);
                }
                if flags.disk_usage() != DiskUsage::NotAvailable {
                    disks.insert(host, flags.disk_usage());
                }
            }
        }
        self.counters.alive.set(i64::try_from(alive.len()).unwrap_or(i64::MAX));
        self.liveness.publish(alive, disks, wrong_clocks);
    }

    pub(crate) fn publish_again(&self) {
        stdx::reached!("liveness-mesh-full");
        self.is_stale.set(true);
    }

    pub(crate) fn set_members(&self, members: Vec<Member>) {
        self.step(Input::Members(members));
        // A removed node is not alive any more.
        self.publish();
    }

    pub(crate) fn update(&self, change: impl FnOnce(&mut AppState)) {
        let app = {
            let mut app = self.app.borrow_mut();
            change(&mut app);
            app.clone()
        };
        self.step(Input::Update(app));
    }

    pub(crate) fn announce(&self) {
        self.step(Input::Announce);
    }

    pub(crate) fn is_gossiping(&self) -> bool {
        !self.is_paused.get()
    }

    pub(crate) fn set_gossiping(&self, on: bool) {
        if on == self.is_gossiping() {
            return;
        }
        self.is_paused.set(false);
        self.update(|app| {
            app.flags = match on {
                true => app.flags.without(Flags::SHUTTING_DOWN),
                false => app.flags.with(Flags::SHUTTING_DOWN),
            };
        });
        self.announce();
        self.is_paused.set(!on);
        self.wake.notify_one();
    }

    pub(crate) fn row(&self, host: HostId) -> Option<PeerRow> {
        let now = self.liveness.inner.rt.now();
        let machine = self.machine.borrow();
        let peer = machine.peer_at(host, now)?;
        Some(PeerRow {
            host,
            generation: peer.generation,
            version: peer.version,
            app: peer.app.clone(),
            is_alive: peer.is_alive,
            phi: peer.phi,
        })
    }

    pub(crate) fn rows(&self) -> Vec<PeerRow> {
        let hosts = self.machine.borrow().hosts();
        hosts.into_iter().filter_map(|host| self.row(host)).collect()
    }

    pub(crate) fn stop(&self) {
        if !self.is_paused.get() {
            self.update(|app| {
                // Its disk usage is kept while it is down.
                app.flags = app.flags.without(Flags::CQL_READY).with(Flags::SHUTTING_DOWN);
            });
            self.announce();
        }
        self.is_stopped.set(true);
        self.wake.notify_one();
    }
}
