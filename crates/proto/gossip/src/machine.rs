//! The gossiping node as a machine: time, randomness and messages in, messages and events out.
//!
//! Each round (1 s) a node raises its heartbeat and sends a SYN with digests of all it knows to one live peer, by
//! chance to one that is down, and to a seed unless the first was one. In its first round it sends to all
//! ([`GREETED_MAX`]), so that it learns at once which peers are up. The ACK carries the news that the sender lacks
//! and requests those that it has; ACK2 answers that. A peer whose heartbeat advances while it is down is asked
//! directly (ECHO) before it counts as up. A peer whose machine refuses connections twice ([`REFUSED_AGAIN`]
//! apart), while no peer has news of it, is down without waiting for phi.
//!
//! Source: `Gossiper.java` of Cassandra 5.0 (choice of peers, digests, status check);
//! `FailureDetector.interpret` (no conviction after a pause of this node itself).

use std::collections::BTreeMap;
use std::time::Duration;

use stdx::{HostId, Instant, WallMicros};

use crate::api::{Config, DownReason, Event, Input, Member, Output, PeerView};
use crate::detector::Detector;
use crate::message::{ENTRIES_MAX, Message};
use crate::state::{AppState, Digest, Flags, PeerState};

/// Upper bound of a generation, whichever peer sent it: the year 36,812.
pub const GENERATION_MAX: u64 = 1 << 40;
/// A generation further than this in the future of all that is known is a peer's fault: a year.
pub const GENERATION_AHEAD_MAX: u64 = 365 * 86_400;

/// A refused connection is repeated after this; refused again, and nothing heard meanwhile, the peer is
/// down. Longer than the news of a live peer take that is only between its old and its new socket.
pub const REFUSED_AGAIN: Duration = Duration::from_millis(600);

/// Peers that a node that starts turns to at once. Those of larger clusters are met by and by.
pub const GREETED_MAX: usize = 64;

#[derive(Debug)]
struct Peer {
    is_seed: bool,
    generation: u64,
    version: u64,
    app: AppState,
    is_alive: bool,
    /// Nonce of the ECHO for the present downtime.
    nonce: u64,
    detector: Detector,
    refused: Option<Refusal>,
}

/// Connections to a live peer are refused.
#[derive(Clone, Copy, Debug)]
struct Refusal {
    since: Instant,
    /// The peer's heartbeat then: a later one proves that it lives.
    heartbeat: (u64, u64),
    /// Time of the next connection attempt; `None`: that was done.
    probe_at: Option<Instant>,
}

/// See the module.
#[derive(Debug)]
pub struct Gossip {
    config: Config,
    generation: u64,
    version: u64,
    app: AppState,
    peers: BTreeMap<HostId, Peer>,
    wall: WallMicros,
    last_round: Option<Instant>,
    /// No peer is convicted before this.
    lenient_until: Instant,
    was_raised: bool,
    draw: Draw,
}

/// `SplitMix64`, reseeded with each step's random number.
#[derive(Debug)]
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn pick<'a>(&mut self, list: &[(&'a HostId, &'a Peer)]) -> Option<(&'a HostId, &'a Peer)> {
        let count = list.len().max(1) as u64;
        list.get(usize::try_from(self.next() % count).unwrap_or(0)).copied()
    }

    /// True in `part` of `whole` cases.
    fn chance(&mut self, part: usize, whole: usize) -> bool {
        self.next() % (whole.max(1) as u64) < part as u64
    }
}

impl Gossip {
    /// Creates a node that knows no peer yet.
    pub fn new(config: Config, app: AppState) -> Gossip {
        Gossip {
            generation: config.generation,
            version: 1,
            app: AppState { version: 1, ..app },
            peers: BTreeMap::new(),
            wall: config.wall,
            last_round: None,
            lenient_until: Instant::ZERO,
            was_raised: false,
            draw: Draw(0),
            config,
        }
    }

    /// Advances by one input and appends what the driver must do. `random` is a fresh number.
    ///
    /// Pre: `now` never goes back. Post: at most one message per member and input.
    pub fn step(&mut self, now: Instant, random: u64, input: Input, out: &mut Vec<Output>) {
        self.draw = Draw(random);
        match input {
            Input::Tick { wall } => {
                self.wall = wall;
                self.tick(now, out);
            }
            Input::Received { from, message } if from != self.config.host => {
                self.received(now, from, message, out);
            }
            Input::Received { .. } => {}
            Input::Members(members) => self.members(&members),
            Input::Update(app) => {
                let next = AppState { version: self.app.version, ..app };
                if next != self.app {
                    self.version += 1;
                    self.app = AppState { version: self.version, ..next };
                }
            }
            Input::Lost { host } => self.probe(host, out),
            Input::Refused { host } => self.refused(now, host, out),
            Input::Announce => self.announce(out),
        }
    }

    /// Returns true if requests may be sent to a node; this one is always up.
    pub fn is_alive(&self, host: HostId) -> bool {
        host == self.config.host || self.peers.get(&host).is_some_and(|p| p.is_alive)
    }

    /// Returns the knowledge of a node, this one too; `None` for a node that is not a member.
    pub fn peer_at(&self, host: HostId, now: Instant) -> Option<PeerView<'_>> {
        if host == self.config.host {
            let (generation, version) = (self.generation, self.version);
            return Some(PeerView {
                generation,
                version,
                app: &self.app,
                is_alive: true,
                phi: 0.0,
            });
        }
        let peer = self.peers.get(&host)?;
        Some(PeerView {
            generation: peer.generation,
            version: peer.version,
            app: &peer.app,
            is_alive: peer.is_alive,
            phi: peer.detector.phi(now),
        })
    }

    /// Like [`Gossip::peer_at`], without the suspicion.
    pub fn peer(&self, host: HostId) -> Option<PeerView<'_>> {
        self.peer_at(host, Instant::ZERO)
    }

    /// Every member that is known, this node too, ascending: `nodetool gossipinfo`.
    pub fn hosts(&self) -> Vec<HostId> {
        let mut hosts: Vec<HostId> = self.peers.keys().copied().collect();
        hosts.push(self.config.host);
        hosts.sort_unstable();
        hosts
    }

    fn members(&mut self, members: &[Member]) {
        let others = members.iter().filter(|m| m.host != self.config.host);
        // One entry of every list is this node's own.
        let others: BTreeMap<HostId, bool> =
            others.take(ENTRIES_MAX - 1).map(|m| (m.host, m.is_seed)).collect();
        self.peers.retain(|host, _| others.contains_key(host));
        for (host, is_seed) in others {
            let nonce = self.draw.next();
            let peer = self.peers.entry(host).or_insert_with(|| Peer {
                is_seed,
                generation: 0,
                version: 0,
                app: AppState::default(),
                is_alive: false,
                nonce,
                detector: Detector::new(self.config.round),
                refused: None,
            });
            peer.is_seed = is_seed;
        }
        stdx::invariant!(
            self.peers.len() < ENTRIES_MAX && self.peers.len() <= members.len(),
            "INV-gossip-3: {} peers, {} members",
            self.peers.len(),
            members.len()
        );
    }

    fn tick(&mut self, now: Instant, out: &mut Vec<Output>) {
        let due = self.last_round.map(|last| last + self.config.round);
        if let Some(due) = due
            && now < due
        {
            self.probe_again(now, out);
            out.push(Output::WakeAt(self.next_probe().map_or(due, |at| at.min(due))));
            return;
        }
        let pause = self.last_round.map_or(Duration::ZERO, |last| now.since(last));
        if pause > self.config.pause_max {
            stdx::reached!("gossip-own-pause");
            // The silence was this node's own: give the peers time to be heard again.
            self.lenient_until = now + self.config.pause_max;
        }
        let is_first = self.last_round.replace(now).is_none();
        self.version += 1;
        if is_first && self.peers.len() <= GREETED_MAX {
            let hosts: Vec<HostId> = self.peers.keys().copied().collect();
            self.greet(&hosts, out);
        } else if !stdx::chaos!("gossip-round-skipped") {
            self.gossip(out);
        }
        if now >= self.lenient_until {
            self.convict(now, out);
        }
        self.probe_again(now, out);
        let due = now + self.config.round;
        out.push(Output::WakeAt(self.next_probe().map_or(due, |at| at.min(due))));
    }

    /// Instructs the driver to connect to a live peer at once.
    fn probe(&self, host: HostId, out: &mut Vec<Output>) {
        if let Some(peer) = self.peers.get(&host).filter(|peer| peer.is_alive) {
            let message = Message::Echo { nonce: peer.nonce };
            out.push(Output::Send { to: host, message });
        }
    }

    /// A connection was refused.
    fn refused(&mut self, now: Instant, host: HostId, out: &mut Vec<Output>) {
        let Some(peer) = self.peers.get_mut(&host).filter(|peer| peer.is_alive) else { return };
        let heartbeat = (peer.generation, peer.version);
        match peer.refused.filter(|refusal| refusal.heartbeat == heartbeat) {
            Some(refusal) if now.since(refusal.since) >= REFUSED_AGAIN => {
                self.down(host, DownReason::Refused, out);
            }
            // Several connections were tried at about the same time.
            Some(_) => {}
            None => {
                let probe_at = now + REFUSED_AGAIN;
                peer.refused = Some(Refusal { since: now, heartbeat, probe_at: Some(probe_at) });
                out.push(Output::WakeAt(probe_at));
            }
        }
    }

    /// Tries those again that refused connections and have been silent since.
    fn probe_again(&mut self, now: Instant, out: &mut Vec<Output>) {
        let mut due = Vec::new();
        for (host, peer) in &mut self.peers {
            let Some(refusal) = &mut peer.refused else { continue };
            if refusal.probe_at.is_some_and(|at| at <= now) {
                refusal.probe_at = None;
                due.push(*host);
            }
        }
        for host in due {
            self.probe(host, out);
        }
    }

    fn next_probe(&self) -> Option<Instant> {
        self.peers.values().filter_map(|peer| peer.refused?.probe_at).min()
    }

    /// Sends this round's SYNs.
    fn gossip(&mut self, out: &mut Vec<Output>) {
        let mut draw = Draw(self.draw.next());
        let (live, down): (Vec<_>, Vec<_>) = self.peers.iter().partition(|(_, p)| p.is_alive);
        let seeds: Vec<_> = self.peers.iter().filter(|(_, p)| p.is_seed).collect();
        let mut targets: Vec<HostId> = Vec::new();
        let first = draw.pick(&live);
        targets.extend(first.map(|(host, _)| *host));
        if draw.chance(down.len(), live.len() + 1) {
            targets.extend(draw.pick(&down).map(|(host, _)| *host));
        }
        // Without this, groups that only know each other would never meet (CASSANDRA-150).
        let to_seed = first.is_some_and(|(_, peer)| peer.is_seed);
        if (!to_seed || live.len() < seeds.len())
            && (live.is_empty() || draw.chance(seeds.len(), live.len() + down.len()))
        {
            targets.extend(draw.pick(&seeds).map(|(host, _)| *host));
        }
        targets.sort_unstable();
        targets.dedup();
        self.greet(&targets, out);
    }

    fn greet(&self, hosts: &[HostId], out: &mut Vec<Output>) {
        for to in hosts {
            let digests = self.digests();
            out.push(Output::Send { to: *to, message: Message::Syn { digests } });
        }
    }

    fn convict(&mut self, now: Instant, out: &mut Vec<Output>) {
        let threshold = self.config.phi_convict_threshold;
        let suspects =
            self.peers.iter().filter(|(_, p)| p.is_alive && p.detector.phi(now) > threshold);
        let convicted: Vec<HostId> = suspects.map(|(host, _)| *host).collect();
        for host in convicted {
            self.down(host, DownReason::Convicted, out);
        }
    }

    fn announce(&self, out: &mut Vec<Output>) {
        for to in self.peers.keys() {
            let states = vec![self.own_state(0)];
            out.push(Output::Send { to: *to, message: Message::Ack2 { states } });
        }
    }

    fn received(&mut self, now: Instant, from: HostId, message: Message, out: &mut Vec<Output>) {
        match message {
            Message::Syn { digests } => {
                let (wanted, states) = self.examine(&digests, out);
                out.push(Output::Send { to: from, message: Message::Ack { wanted, states } });
            }
            Message::Ack { wanted, states } => {
                for state in states {
                    self.learn(now, state, out);
                }
                let states: Vec<PeerState> =
                    wanted.iter().filter_map(|digest| self.news_since(digest)).collect();
                if !states.is_empty() {
                    out.push(Output::Send { to: from, message: Message::Ack2 { states } });
                }
            }
            Message::Ack2 { states } => {
                for state in states {
                    self.learn(now, state, out);
                }
            }
            Message::Echo { nonce } => {
                out.push(Output::Send { to: from, message: Message::EchoReply { nonce } });
            }
            Message::EchoReply { nonce } => self.answered(from, nonce, out),
        }
    }

    /// Compares a peer's digests with this node's knowledge. Returns the digests to request and the
    /// states to send.
    fn examine(
        &mut self,
        digests: &[Digest],
        out: &mut Vec<Output>,
    ) -> (Vec<Digest>, Vec<PeerState>) {
        let mut wanted = Vec::new();
        let mut states = Vec::new();
        for digest in digests {
            if digest.host == self.config.host {
                self.check_own(digest.generation, digest.version, out);
            }
            let Some(known) = self.digest(digest.host) else { continue };
            if digest.generation > known.generation {
                wanted.push(Digest { version: 0, ..*digest });
            } else if digest.generation == known.generation && digest.version > known.version {
                wanted.push(known);
            } else {
                states.extend(self.news_since(digest));
            }
        }
        // No peer knows more of this node than the node itself.
        wanted.retain(|d| d.host != self.config.host);
        (wanted, states)
    }

    /// Returns the state that is newer here than `digest`; all of it when the generation is newer.
    fn news_since(&self, digest: &Digest) -> Option<PeerState> {
        let known = self.digest(digest.host)?;
        let since = if known.generation > digest.generation {
            0
        } else if known.generation == digest.generation && known.version > digest.version {
            digest.version
        } else {
            return None;
        };
        if digest.host == self.config.host {
            return Some(self.own_state(since));
        }
        let peer = self.peers.get(&digest.host)?;
        let app = (peer.app.version > since).then(|| peer.app.clone());
        let Digest { host, generation, version } = known;
        Some(PeerState { host, generation, version, app })
    }

    fn own_state(&self, since: u64) -> PeerState {
        PeerState {
            host: self.config.host,
            generation: self.generation,
            version: self.version,
            app: (self.app.version > since).then(|| self.app.clone()),
        }
    }

    fn digest(&self, host: HostId) -> Option<Digest> {
        if host == self.config.host {
            return Some(Digest { host, generation: self.generation, version: self.version });
        }
        let peer = self.peers.get(&host)?;
        Some(Digest { host, generation: peer.generation, version: peer.version })
    }

    fn digests(&self) -> Vec<Digest> {
        let hosts = self.peers.keys().chain([&self.config.host]);
        hosts.filter_map(|host| self.digest(*host)).collect()
    }

    /// Takes news of a peer when they are newer than what is known.
    fn learn(&mut self, now: Instant, state: PeerState, out: &mut Vec<Output>) {
        let PeerState { host, generation, version, app } = state;
        if host == self.config.host {
            self.check_own(generation, version, out);
            return;
        }
        let seconds = u64::try_from(self.wall.seconds().0).unwrap_or(0);
        let own = self.generation;
        let Some(peer) = self.peers.get_mut(&host) else { return };
        // The first word about a peer is taken whatever this node's own clock says.
        let present = seconds.max(own).max(peer.generation);
        let is_far =
            peer.generation > 0 && generation > present.saturating_add(GENERATION_AHEAD_MAX);
        if is_far || generation > GENERATION_MAX {
            stdx::reached!("gossip-generation-unbelievable");
            out.push(Output::Event(Event::Unbelievable { host, generation }));
            return;
        }
        if (generation, version) <= (peer.generation, peer.version) {
            return;
        }
        let is_new = generation > peer.generation;
        if is_new && peer.generation > 0 {
            out.push(Output::Event(Event::Restarted { host, generation }));
            if peer.is_alive {
                self.down(host, DownReason::Restarted, out);
            }
        }
        let Some(peer) = self.peers.get_mut(&host) else { return };
        if is_new {
            // Another process: its heartbeats say nothing about the old one's.
            peer.detector = Detector::new(self.config.round);
            peer.app = AppState::default();
        }
        stdx::invariant!(
            (generation, version) > (peer.generation, peer.version),
            "INV-gossip-2: news ({generation}, {version}) of a peer are older than ({}, {})",
            peer.generation,
            peer.version
        );
        peer.generation = generation;
        peer.version = version;
        peer.detector.report(now);
        if is_new {
            peer.refused = None;
        } else if let Some(refusal) = &mut peer.refused {
            stdx::reached!("gossip-news-of-a-refusing-peer");
            // It may be on its way since before the peer ended: tried again, not forgotten.
            let probe_at = now + REFUSED_AGAIN;
            let heartbeat = (generation, version);
            *refusal = Refusal { since: now, heartbeat, probe_at: Some(probe_at) };
            out.push(Output::WakeAt(probe_at));
        }
        if let Some(app) = app
            && app.version > peer.app.version
        {
            peer.app = app;
            out.push(Output::Event(Event::StateChanged { host }));
        }
        let is_stopping = peer.app.flags.has(Flags::SHUTTING_DOWN);
        match (peer.is_alive, is_stopping) {
            (true, true) => self.down(host, DownReason::Shutdown, out),
            (false, false) => {
                let message = Message::Echo { nonce: peer.nonce };
                out.push(Output::Send { to: host, message });
            }
            (true, false) | (false, true) => {}
        }
    }

    /// A peer answered an ECHO.
    fn answered(&mut self, from: HostId, nonce: u64, out: &mut Vec<Output>) {
        let Some(peer) = self.peers.get_mut(&from) else { return };
        peer.refused = None;
        let is_stopping = peer.app.flags.has(Flags::SHUTTING_DOWN);
        if !peer.is_alive && peer.nonce == nonce && peer.generation > 0 && !is_stopping {
            peer.is_alive = true;
            out.push(Output::Event(Event::Up { host: from }));
        }
    }

    fn down(&mut self, host: HostId, reason: DownReason, out: &mut Vec<Output>) {
        let nonce = self.draw.next();
        let Some(peer) = self.peers.get_mut(&host) else { return };
        if peer.is_alive {
            peer.is_alive = false;
            peer.refused = None;
            // Answers to questions of before count no more.
            peer.nonce = nonce;
            out.push(Output::Event(Event::Down { host, reason }));
        }
    }

    /// Others know of this node what it has not said (yet).
    fn check_own(&mut self, generation: u64, version: u64, out: &mut Vec<Output>) {
        if (generation, version) <= (self.generation, self.version) {
            return;
        }
        if generation >= GENERATION_MAX {
            out.push(Output::Event(Event::Unbelievable { host: self.config.host, generation }));
        } else if self.was_raised {
            out.push(Output::Event(Event::Impostor { generation }));
        } else {
            self.was_raised = true;
            self.generation = generation + 1;
            out.push(Output::Event(Event::GenerationRaised { generation: self.generation }));
        }
    }
}

#[cfg(test)]
mod case_tests;
#[cfg(test)]
mod tests;
