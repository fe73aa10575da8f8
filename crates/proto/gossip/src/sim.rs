//! Many machines in one simulated network: loss, delay, partitions, pauses, crashes, by seed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use stdx::{HostId, Instant, Uuid, WallMicros};

use crate::api::{Config, Event, Input, Member, Output};
use crate::machine::Gossip;
use crate::message::Message;
use crate::state::{AppState, next_generation};

/// `SplitMix64`.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

/// Settings of the network and the nodes.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) nodes: usize,
    pub(crate) seed: u64,
    /// Percent of messages lost.
    pub(crate) loss: usize,
    /// Longest time on the way, milliseconds.
    pub(crate) delay_max: u64,
    /// Longest lateness of a tick, milliseconds.
    pub(crate) lateness_max: u64,
    pub(crate) phi: f64,
    pub(crate) pause_max: Duration,
}

impl Settings {
    pub(crate) fn calm(nodes: usize, seed: u64) -> Settings {
        Settings {
            nodes,
            seed,
            loss: 0,
            delay_max: 20,
            lateness_max: 5,
            phi: 8.0,
            pause_max: Duration::from_secs(5),
        }
    }

    /// Lossy, slow and late, but no node is down.
    pub(crate) fn rough(nodes: usize, seed: u64) -> Settings {
        let calm = Settings::calm(nodes, seed);
        Settings { loss: 15, delay_max: 600, lateness_max: 300, ..calm }
    }
}

enum Happening {
    Tick(usize),
    Deliver { from: usize, to: usize, bytes: Vec<u8> },
}

struct Node {
    gossip: Option<Gossip>,
    /// Survives crashes.
    generation: Option<u64>,
    /// Number of its process: what was sent to another one is not delivered.
    process: u64,
    paused_until: Instant,
    clock_ahead: i64,
}

/// An event with its observer and time.
pub(crate) struct Seen {
    pub(crate) at: Instant,
    pub(crate) by: usize,
    pub(crate) event: Event,
}

pub(crate) struct World {
    pub(crate) settings: Settings,
    pub(crate) now: Instant,
    random: Random,
    nodes: Vec<Node>,
    /// By time and number.
    queue: BTreeMap<(Instant, u64), (u64, Happening)>,
    count: u64,
    /// Messages from the first to the second are lost.
    cut: BTreeSet<(usize, usize)>,
    pub(crate) seen: Vec<Seen>,
    pub(crate) delivered: u64,
}

pub(crate) fn host(node: usize) -> HostId {
    HostId(Uuid::from_u128(node as u128 + 1))
}

pub(crate) fn node_of(host: HostId) -> usize {
    host.0.as_u128() as usize - 1
}

impl World {
    pub(crate) fn new(settings: Settings) -> World {
        let nodes = (0..settings.nodes).map(|_| Node {
            gossip: None,
            generation: None,
            process: 0,
            paused_until: Instant::ZERO,
            clock_ahead: 0,
        });
        let nodes = nodes.collect();
        let mut world = World {
            now: Instant::ZERO,
            random: Random(settings.seed),
            nodes,
            queue: BTreeMap::new(),
            count: 0,
            cut: BTreeSet::new(),
            seen: Vec::new(),
            delivered: 0,
            settings,
        };
        for node in 0..world.settings.nodes {
            world.start(node);
        }
        world
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.now.0 as f64 / 1e9
    }

    fn wall(&self, node: usize) -> WallMicros {
        let now = 1_700_000_000_000_000 + (self.now.0 / 1_000) as i64;
        WallMicros(now + self.nodes[node].clock_ahead * 1_000_000)
    }

    pub(crate) fn start(&mut self, node: usize) {
        let generation = next_generation(self.nodes[node].generation, self.wall(node));
        let config = Config {
            wall: self.wall(node),
            phi_convict_threshold: self.settings.phi,
            pause_max: self.settings.pause_max,
            ..Config::new(host(node), generation)
        };
        let members =
            (0..self.settings.nodes).map(|n| Member { host: host(n), is_seed: n < 2 }).collect();
        self.nodes[node].generation = Some(generation);
        self.nodes[node].gossip = Some(Gossip::new(config, AppState::default()));
        self.step(node, Input::Members(members));
        let after = Duration::from_millis(self.random.below(1_000) as u64);
        self.at(self.now + after, node, Happening::Tick(node));
    }

    /// The process is gone; what it had not made durable too.
    pub(crate) fn crash(&mut self, node: usize) {
        self.nodes[node].gossip = None;
        self.nodes[node].process += 1;
    }

    /// Pauses a node, like SIGSTOP: its messages and ticks wait.
    pub(crate) fn pause(&mut self, node: usize, duration: Duration) {
        self.nodes[node].paused_until = self.now + duration;
    }

    pub(crate) fn set_clock(&mut self, node: usize, seconds_ahead: i64) {
        self.nodes[node].clock_ahead = seconds_ahead;
    }

    /// Messages between the two sides are lost, both ways.
    pub(crate) fn partition(&mut self, side: &[usize]) {
        for a in side {
            for b in (0..self.settings.nodes).filter(|b| !side.contains(b)) {
                self.cut.insert((*a, b));
                self.cut.insert((b, *a));
            }
        }
    }

    pub(crate) fn cut_one_way(&mut self, from: usize, to: usize) {
        self.cut.insert((from, to));
    }

    pub(crate) fn heal(&mut self) {
        self.cut.clear();
    }

    pub(crate) fn is_running(&self, node: usize) -> bool {
        self.nodes[node].gossip.is_some()
    }

    pub(crate) fn gossip(&self, node: usize) -> &Gossip {
        self.nodes[node].gossip.as_ref().expect("it runs")
    }

    pub(crate) fn input(&mut self, node: usize, input: Input) {
        self.step(node, input);
    }

    pub(crate) fn draw(&mut self, n: usize) -> usize {
        self.random.below(n)
    }

    /// Advances the time by `seconds`.
    pub(crate) fn run(&mut self, seconds: f64) {
        let end = self.now + Duration::from_secs_f64(seconds);
        while let Some(entry) = self.queue.first_entry() {
            let (at, number) = *entry.key();
            if at > end {
                break;
            }
            let (process, happening) = entry.remove();
            self.now = self.now.max(at);
            let node = match &happening {
                Happening::Tick(node) => *node,
                Happening::Deliver { to, .. } => *to,
            };
            if self.nodes[node].process != process {
                continue;
            }
            if self.nodes[node].paused_until > self.now {
                let later = self.nodes[node].paused_until;
                self.queue.insert((later, number), (process, happening));
                continue;
            }
            match happening {
                Happening::Tick(node) => {
                    let wall = self.wall(node);
                    self.step(node, Input::Tick { wall });
                }
                Happening::Deliver { from, to, bytes } => {
                    self.delivered += 1;
                    let message = Message::decode(&bytes).expect("our own message");
                    self.step(to, Input::Received { from: host(from), message });
                }
            }
        }
        self.now = end;
    }

    fn at(&mut self, at: Instant, node: usize, happening: Happening) {
        self.count += 1;
        self.queue.insert((at, self.count), (self.nodes[node].process, happening));
    }

    fn step(&mut self, node: usize, input: Input) {
        let random = self.random.next();
        let now = self.now;
        let Some(gossip) = self.nodes[node].gossip.as_mut() else { return };
        let mut out = Vec::new();
        gossip.step(now, random, input, &mut out);
        for output in out {
            match output {
                Output::Send { to, message } => self.send(node, node_of(to), &message),
                Output::Event(event) => self.seen.push(Seen { at: now, by: node, event }),
                Output::WakeAt(at) => {
                    let late = self.random.below(self.settings.lateness_max as usize + 1);
                    let late = Duration::from_millis(late as u64);
                    self.at(at.max(now) + late, node, Happening::Tick(node));
                }
            }
        }
    }

    fn send(&mut self, from: usize, to: usize, message: &Message) {
        let is_lost = self.random.below(100) < self.settings.loss;
        let delay = self.random.below(self.settings.delay_max as usize + 1) as u64;
        if is_lost || self.cut.contains(&(from, to)) || !self.is_running(to) {
            return;
        }
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        let at = self.now + Duration::from_millis(1 + delay);
        self.at(at, to, Happening::Deliver { from, to, bytes });
    }
}

mod check;
mod tests;
