//! The state of a simulated world: processes, events in their order, the machines' parts.

use crate::disk::{CrashKind, Disks};
use crate::net::{NetEvent, Network};
use crate::trace::Trace;
use rand_chacha::ChaCha8Rng;
use rand_core::Rng;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;
use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;
use stdx::Instant;

/// Behaviour of the world, as ranges of microseconds and chances.
#[derive(Clone, Debug)]
pub struct WorldOptions {
    /// One-way delay of a segment between two nodes, microseconds.
    pub latency_micros: Range<u64>,
    /// One-way delay within a node.
    pub loopback_micros: Range<u64>,
    /// Time of a disk call that waits.
    pub io_micros: Range<u64>,
    /// Time of offloaded work.
    pub offload_micros: Range<u64>,
    /// Service time of a request.
    pub service_micros: Range<u64>,
    /// Requests per million that a service drops unanswered.
    pub service_failures_per_million: u64,
    /// Bytes in flight or unread per direction of a connection before writes wait.
    pub socket_bytes_max: usize,
    /// Segments per million that reset their connection.
    pub resets_per_million: u64,
    /// After this time without an acknowledgement a machine aborts a connection over which it sent
    /// something. An end that only reads waits forever.
    pub silent_peer_timeout: Duration,
    /// One in this many calls finds a yield due; 0 = never.
    pub yield_one_in: u64,
    /// Wall clock at virtual time zero, microseconds since the Unix epoch.
    pub wall_start_micros: i64,
}

impl Default for WorldOptions {
    fn default() -> WorldOptions {
        WorldOptions {
            latency_micros: 200..1_500,
            loopback_micros: 5..50,
            io_micros: 50..500,
            offload_micros: 50..2_000,
            service_micros: 100..20_000,
            service_failures_per_million: 0,
            socket_bytes_max: 256 * 1024,
            resets_per_million: 0,
            silent_peer_timeout: Duration::from_secs(10),
            yield_one_in: 8,
            wall_start_micros: 1_767_225_600_000_000,
        }
    }
}

/// One executor of a simulated shard, as the world sees it.
pub trait Shard {
    /// When it has something to do: [`Instant::ZERO`] when tasks are ready or woken or rings wait,
    /// else when its next timer is due. Asked of every shard at every step; does not call the world.
    fn next_due(&self) -> Option<Instant>;
    /// Fires due timers, serves rings, queues woken tasks.
    fn attend(&self, now: Instant);
    /// Number of tasks that could run, as of the last `attend`.
    fn ready(&self) -> usize;
    /// Polls the `n`-th of them.
    fn run(&self, n: usize);
    /// Returns true if the shard's main task is done.
    fn is_finished(&self) -> bool;
    /// Drops all tasks; none is polled afterwards.
    fn end(&self);
}

/// One incarnation of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub(crate) usize);

pub(crate) struct Core {
    pub(crate) state: RefCell<State>,
    pub(crate) schedule: RefCell<Schedule>,
}

impl Core {
    /// Nothing of the world is borrowed: a task may now run or be dropped.
    pub(crate) fn check_free(&self) {
        stdx::debug_invariant!(
            self.state.try_borrow_mut().is_ok() && self.schedule.try_borrow_mut().is_ok(),
            "INV-sim-4: the world's state is borrowed while a task runs or is dropped"
        );
    }
}

/// The shards that may run, cached between steps: most processes of a world are clients that have
/// long ended.
#[derive(Default)]
pub(crate) struct Schedule {
    /// In the order of processes and shards, unless [`State::has_new_shards`].
    pub(crate) live: Vec<Live>,
    /// Places in `live` of those with something to do, of one step.
    pub(crate) busy: Vec<usize>,
}

pub(crate) struct Live {
    pub(crate) process: ProcessId,
    pub(crate) shard: u16,
    pub(crate) executor: Rc<dyn Shard>,
}

impl Schedule {
    pub(crate) fn renew(&mut self, processes: &[Process]) {
        self.live.clear();
        for (i, process) in processes.iter().enumerate().filter(|(_, process)| process.alive) {
            for (shard, executor) in (0u16..).zip(&process.shards) {
                if let Some(executor) = executor {
                    let executor = Rc::clone(executor);
                    self.live.push(Live { process: ProcessId(i), shard, executor });
                }
            }
        }
    }
}

/// How a wall clock differs from virtual time.
#[derive(Clone, Copy, Default)]
pub(crate) struct Skew {
    /// At `since`.
    pub(crate) micros: i64,
    /// Drift: millionths of the time since `since`.
    pub(crate) millionths: i64,
    pub(crate) since: Instant,
}

impl Skew {
    pub(crate) fn at(self, now: Instant) -> i64 {
        let passed = i128::from(now.0.saturating_sub(self.since.0)) / 1000;
        let drifted = passed * i128::from(self.millionths) / 1_000_000;
        self.micros.saturating_add(i64::try_from(drifted).unwrap_or(i64::MAX))
    }
}

pub(crate) struct State {
    pub(crate) now: Instant,
    pub(crate) options: WorldOptions,
    pub(crate) rng: ChaCha8Rng,
    pub(crate) trace: Trace,
    pub(crate) events: BTreeMap<EventKey, Event>,
    pub(crate) last_event: u64,
    pub(crate) processes: Vec<Process>,
    /// Shards came or went since the schedule was made.
    pub(crate) has_new_shards: bool,
    /// The last of all pauses ends then.
    pub(crate) paused_until: Instant,
    pub(crate) disks: Disks,
    pub(crate) net: Network,
    pub(crate) addresses: BTreeMap<String, IpAddr>,
    pub(crate) names: BTreeMap<IpAddr, Rc<str>>,
    pub(crate) skews: BTreeMap<String, Skew>,
    pub(crate) crashes: Vec<(ProcessId, CrashKind)>,
}

pub(crate) struct Process {
    pub(crate) name: Rc<str>,
    pub(crate) ip: IpAddr,
    /// False from the moment of its death, also while its tasks are still being dropped.
    pub(crate) alive: bool,
    /// Its tasks do not run before.
    pub(crate) paused_until: Instant,
    pub(crate) open_files: u64,
    pub(crate) shards: Vec<Option<Rc<dyn Shard>>>,
}

/// Names one event; events happen in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EventKey {
    pub(crate) at: Instant,
    number: u64,
}

pub(crate) enum Event {
    Wake(Waker),
    /// Boxed, since events are moved about in their order.
    Net(Box<NetEvent>),
}

impl State {
    pub(crate) fn random(&mut self) -> u64 {
        self.rng.next_u64()
    }

    /// Uniform in `range`; its start when it is empty.
    pub(crate) fn random_in(&mut self, range: &Range<u64>) -> u64 {
        let width = range.end.saturating_sub(range.start);
        if width == 0 { range.start } else { range.start + self.random() % width }
    }

    pub(crate) fn random_micros(&mut self, range: &Range<u64>) -> Duration {
        Duration::from_micros(self.random_in(range))
    }

    pub(crate) fn schedule(&mut self, at: Instant, event: Event) -> EventKey {
        self.last_event += 1;
        let key = EventKey { at, number: self.last_event };
        self.events.insert(key, event);
        key
    }

    pub(crate) fn cancel(&mut self, key: EventKey) -> Option<Event> {
        self.events.remove(&key)
    }

    pub(crate) fn has_event(&mut self, key: EventKey) -> Option<&mut Event> {
        self.events.get_mut(&key)
    }

    pub(crate) fn paused_until(&self, process: ProcessId) -> Instant {
        self.processes.get(process.0).map_or(Instant::ZERO, |p| p.paused_until)
    }

    pub(crate) fn is_alive(&self, process: ProcessId) -> bool {
        self.processes.get(process.0).is_some_and(|p| p.alive)
    }

    pub(crate) fn note(&mut self, operation: &str, a: u64, b: u64) {
        let now = self.now.0;
        self.trace.add(now);
        self.trace.add_bytes(operation.as_bytes());
        self.trace.add(a);
        self.trace.add(b);
    }

    pub(crate) fn count_file(&mut self, process: ProcessId, is_opened: bool) {
        if let Some(p) = self.processes.get_mut(process.0) {
            p.open_files = match is_opened {
                true => p.open_files.saturating_add(1),
                false => p.open_files.saturating_sub(1),
            };
        }
    }

    pub(crate) fn address(&mut self, name: &str) -> IpAddr {
        if let Some(ip) = self.addresses.get(name) {
            return *ip;
        }
        let n = u32::try_from(self.addresses.len()).unwrap_or(0) + 1;
        let ip = IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + n));
        self.addresses.insert(name.to_string(), ip);
        self.names.insert(ip, Rc::from(name));
        ip
    }

    /// Returns the name of the machine with that address.
    pub(crate) fn name_of(&self, ip: IpAddr) -> Option<Rc<str>> {
        self.names.get(&ip).cloned()
    }
}
