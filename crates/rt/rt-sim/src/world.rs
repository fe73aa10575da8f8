//! [`World`]: virtual time, the processes, and the loop that picks what happens next.

use crate::disk::{CrashKind, Disks};
use crate::env::Env;
use crate::net::{NetEvent, Network};
use crate::trace::Trace;
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;
use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;
use stdx::Instant;

/// Virtual cost of one poll of a task.
const POLL_COST: Duration = Duration::from_micros(1);

/// What the world may do, as ranges of microseconds and chances.
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
    /// Bytes under way or unread per direction of a connection before writes wait.
    pub socket_bytes_max: usize,
    /// Of a million segments, how many reset their connection.
    pub resets_per_million: u64,
    /// After this time without an acknowledgement a machine gives up a connection over which it
    /// sent something. Who only reads waits for ever.
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
    /// Whether the shard's main task is done.
    fn is_finished(&self) -> bool;
    /// Drops all tasks; nothing is polled any more.
    fn end(&self);
}

/// One incarnation of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub(crate) usize);

/// The condition did not come true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// Virtual time when the run was given up.
    pub at: Instant,
    /// Whether nothing could ever happen again (else: time was up).
    pub idle: bool,
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = if self.idle { "nothing left to happen" } else { "time was up" };
        write!(f, "stuck at {} us of virtual time: {why}", self.at.0 / 1000)
    }
}

impl std::error::Error for Stuck {}

/// The simulated world. Clones are the same world.
///
/// With the last of them the world ends: tasks know the world and the world knows them, so without
/// that nothing of a run would ever be freed.
#[derive(Clone)]
pub struct World {
    pub(crate) core: Rc<Core>,
    _last: Rc<LastHandle>,
}

/// Ends the world when the last [`World`] goes.
struct LastHandle(Rc<Core>);

impl Drop for LastHandle {
    fn drop(&mut self) {
        let Ok(mut state) = self.0.state.try_borrow_mut() else { return };
        let mut shards = Vec::new();
        for process in &mut state.processes {
            process.alive = false;
            shards.append(&mut process.shards);
        }
        self.0.schedule.borrow_mut().live.clear();
        let events = std::mem::take(&mut state.events);
        let net = std::mem::take(&mut state.net);
        let disks = std::mem::take(&mut state.disks);
        drop(state);
        // Tasks first: what they hold looks at the state when it is dropped (INV-sim-4).
        for shard in shards.into_iter().flatten() {
            shard.end();
        }
        drop((events, net, disks));
    }
}

pub(crate) struct Core {
    pub(crate) state: RefCell<State>,
    schedule: RefCell<Schedule>,
}

/// The shards that may run, kept from step to step: most processes of a world are clients that have
/// long ended.
#[derive(Default)]
struct Schedule {
    /// In the order of processes and shards, unless [`State::has_new_shards`].
    live: Vec<Live>,
    /// Places in `live` of those with something to do, of one step.
    busy: Vec<usize>,
}

struct Live {
    process: ProcessId,
    shard: u16,
    executor: Rc<dyn Shard>,
}

impl Schedule {
    fn renew(&mut self, processes: &[Process]) {
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

/// What a step may do.
enum Next {
    Run(ProcessId, u16, Rc<dyn Shard>),
    /// No task runs before that.
    Wait(Option<Instant>),
}

/// How a wall clock differs from virtual time.
#[derive(Clone, Copy, Default)]
pub(crate) struct Skew {
    /// At `since`.
    micros: i64,
    /// Of the time that passes since then.
    millionths: i64,
    since: Instant,
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
    events: BTreeMap<(Instant, u64), Event>,
    last_event: u64,
    pub(crate) processes: Vec<Process>,
    /// Shards came or went since the schedule was made.
    pub(crate) has_new_shards: bool,
    /// The last of all pauses ends then.
    paused_until: Instant,
    pub(crate) disks: Disks,
    pub(crate) net: Network,
    addresses: BTreeMap<String, IpAddr>,
    names: BTreeMap<IpAddr, Rc<str>>,
    pub(crate) skews: BTreeMap<String, Skew>,
    pub(crate) crashes: Vec<(ProcessId, CrashKind)>,
}

pub(crate) struct Process {
    pub(crate) name: Rc<str>,
    pub(crate) ip: IpAddr,
    /// False from the moment of its death, also while its tasks are still being dropped.
    pub(crate) alive: bool,
    /// Its tasks do not run before.
    paused_until: Instant,
    open_files: u64,
    shards: Vec<Option<Rc<dyn Shard>>>,
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

    pub(crate) fn schedule(&mut self, at: Instant, event: Event) -> (Instant, u64) {
        self.last_event += 1;
        let key = (at, self.last_event);
        self.events.insert(key, event);
        key
    }

    pub(crate) fn cancel(&mut self, key: (Instant, u64)) -> Option<Event> {
        self.events.remove(&key)
    }

    pub(crate) fn has_event(&mut self, key: (Instant, u64)) -> Option<&mut Event> {
        self.events.get_mut(&key)
    }

    fn paused_until(&self, process: ProcessId) -> Instant {
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

    fn address(&mut self, name: &str) -> IpAddr {
        if let Some(ip) = self.addresses.get(name) {
            return *ip;
        }
        let n = u32::try_from(self.addresses.len()).unwrap_or(0) + 1;
        let ip = IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + n));
        self.addresses.insert(name.to_string(), ip);
        self.names.insert(ip, Rc::from(name));
        ip
    }

    /// Whose address that is.
    pub(crate) fn name_of(&self, ip: IpAddr) -> Option<Rc<str>> {
        self.names.get(&ip).cloned()
    }
}

impl World {
    /// A world without processes at virtual time zero.
    pub fn new(seed: u64, options: WorldOptions) -> World {
        let state = State {
            now: Instant::ZERO,
            options,
            rng: ChaCha8Rng::seed_from_u64(seed),
            trace: Trace::default(),
            events: BTreeMap::new(),
            last_event: 0,
            processes: Vec::new(),
            has_new_shards: false,
            paused_until: Instant::ZERO,
            disks: Disks::default(),
            net: Network::default(),
            addresses: BTreeMap::new(),
            names: BTreeMap::new(),
            skews: BTreeMap::new(),
            crashes: Vec::new(),
        };
        let core = Rc::new(Core { state: RefCell::new(state), schedule: RefCell::default() });
        World { _last: Rc::new(LastHandle(Rc::clone(&core))), core }
    }

    /// Begins a process; its disk and address belong to its name. The environments are for its
    /// shards, which [`World::attach`] adds.
    pub fn add_process(&self, name: &str, shards: u16, work_dir: &str) -> (ProcessId, Vec<Env>) {
        let mut guard = self.core.state.borrow_mut();
        let state = &mut *guard;
        let ip = state.address(name);
        let id = ProcessId(state.processes.len());
        let shared_name: Rc<str> = Rc::from(name);
        let empty = (0..shards).map(|_| None).collect();
        let paused_until = Instant::ZERO;
        let name_of = Rc::clone(&shared_name);
        let process =
            Process { name: name_of, ip, alive: true, paused_until, open_files: 0, shards: empty };
        state.processes.push(process);
        let disk = state.disks.number(name);
        if let Some(disk) = state.disks.get_mut(disk) {
            disk.make_work_dir(work_dir);
        }
        state.note("start", id.0 as u64, u64::from(shards));
        let mut wakers = Vec::new();
        if !state.net.links.is_powered(name) {
            state.net.links.set_powered(name, true);
            crate::net::paths_changed(state);
            wakers = std::mem::take(&mut state.net.links.waiters);
        }
        drop(guard);
        for waker in wakers {
            waker.wake();
        }
        let env = |shard| Env::new(&self.core, id, &shared_name, work_dir, (disk, shard));
        (id, (0..shards).map(env).collect())
    }

    /// Gives the process its `shard`-th executor.
    pub fn attach(&self, process: ProcessId, shard: u16, executor: Rc<dyn Shard>) {
        let mut state = self.core.state.borrow_mut();
        let slot =
            state.processes.get_mut(process.0).and_then(|p| p.shards.get_mut(usize::from(shard)));
        if let Some(slot) = slot {
            *slot = Some(executor);
            state.has_new_shards = true;
        }
    }

    /// Whether the process runs: it was not crashed and some shard's main task is not done.
    pub fn is_alive(&self, process: ProcessId) -> bool {
        self.core.state.borrow().is_alive(process)
    }

    /// What the process holds of its machine: open files, then ends of connections.
    pub fn holds(&self, process: ProcessId) -> (u64, u64) {
        let state = self.core.state.borrow();
        let files = state.processes.get(process.0).map_or(0, |p| p.open_files);
        (files, state.net.count_of(process))
    }

    /// Virtual time.
    pub fn now(&self) -> Instant {
        self.core.state.borrow().now
    }

    /// The address of a node or client by name.
    pub fn ip(&self, name: &str) -> IpAddr {
        self.core.state.borrow_mut().address(name)
    }

    /// Hash over everything that happened.
    pub fn trace_hash(&self) -> u64 {
        self.core.state.borrow().trace.hash()
    }

    /// The hash at every 1000th scheduling step.
    pub fn trace_checkpoints(&self) -> Vec<u64> {
        self.core.state.borrow().trace.checkpoints().to_vec()
    }

    /// A number from the world's seed, for whoever drives it.
    pub fn random_u64(&self) -> u64 {
        self.core.state.borrow_mut().random()
    }

    /// Shifts a node's wall clock by `micros` against virtual time, from now on.
    pub fn set_clock_skew(&self, name: &str, micros: i64) {
        let skew = Skew { micros, ..Skew::default() };
        self.core.state.borrow_mut().skews.insert(name.to_string(), skew);
    }

    /// Lets a node's wall clock jump by `micros`, on top of what it was shifted before.
    pub fn jump_clock(&self, name: &str, micros: i64) {
        let mut state = self.core.state.borrow_mut();
        let skew = state.skews.entry(name.to_string()).or_default();
        skew.micros = skew.micros.saturating_add(micros);
    }

    /// From now on a node's wall clock goes too fast by that many millionths, too slowly below 0, on top
    /// of what it was shifted before; 0 ends it, and what it has gathered stays.
    pub fn drift_clock(&self, name: &str, millionths: i64) {
        let mut state = self.core.state.borrow_mut();
        let now = state.now;
        let skew = state.skews.entry(name.to_string()).or_default();
        *skew = Skew { micros: skew.at(now), millionths, since: now };
    }

    /// Stops a process's tasks for that long, as SIGSTOP does: time goes on, its machine takes and
    /// acknowledges what fits into the buffers of its sockets.
    pub fn pause(&self, process: ProcessId, duration: Duration) {
        let mut state = self.core.state.borrow_mut();
        let until = state.now + duration;
        let Some(p) = state.processes.get_mut(process.0) else { return };
        p.paused_until = until;
        state.paused_until = state.paused_until.max(until);
        state.note("pause", process.0 as u64, until.0);
    }

    /// Ends a pause.
    pub fn resume(&self, process: ProcessId) {
        self.pause(process, Duration::ZERO);
    }

    /// Ends a process at once; a power cut ends all processes of its machine.
    pub fn crash(&self, process: ProcessId, kind: CrashKind) {
        let machine = if kind == CrashKind::Kill { Vec::new() } else { self.same_machine(process) };
        self.end(process, kind);
        for other in machine {
            self.end(other, kind);
        }
    }

    fn same_machine(&self, process: ProcessId) -> Vec<ProcessId> {
        let state = self.core.state.borrow();
        let Some(name) = state.processes.get(process.0).map(|p| Rc::clone(&p.name)) else {
            return Vec::new();
        };
        let all = state.processes.iter().enumerate();
        let others = all.filter(|(i, p)| *i != process.0 && p.alive && p.name == name);
        others.map(|(i, _)| ProcessId(i)).collect()
    }

    fn end(&self, process: ProcessId, kind: CrashKind) {
        let shards = {
            let mut state = self.core.state.borrow_mut();
            let Some(p) = state.processes.get_mut(process.0) else { return };
            // Dead before its tasks are dropped, so that their drops have no effect (INV-sim-2).
            p.alive = false;
            let shards = std::mem::take(&mut p.shards);
            if shards.is_empty() {
                return;
            }
            let name = Rc::clone(&p.name);
            state.has_new_shards = true;
            state.note("crash", process.0 as u64, kind as u64);
            if kind != CrashKind::Kill {
                state.net.links.set_powered(&name, false);
            }
            crate::net::process_died(&mut state, process, kind);
            crate::fs::process_died(&mut state, &name, process, kind);
            shards
        };
        self.core.schedule.borrow_mut().live.clear();
        for shard in shards.into_iter().flatten() {
            shard.end();
        }
    }

    /// Lets one thing happen, not later than `limit`. False when nothing can happen before that;
    /// then virtual time stands at `limit` (or where it was, when nothing can happen at all).
    pub fn step(&self, limit: Instant) -> bool {
        self.carry_out_crashes();
        crate::net::close_abandoned(&mut self.core.state.borrow_mut());
        self.fire_events();
        let wait = match self.next() {
            Next::Run(process, shard, executor) => {
                self.run(process, shard, &*executor);
                return true;
            }
            Next::Wait(until) => until,
        };
        let mut state = self.core.state.borrow_mut();
        let event = state.events.first_key_value().map(|((at, _), _)| *at);
        match wait.into_iter().chain(event).min() {
            Some(at) if at <= limit => {
                state.now = state.now.max(at);
                true
            }
            Some(_) => {
                state.now = state.now.max(limit);
                false
            }
            None => false,
        }
    }

    /// Picks one of the shards that have something to do and are not paused.
    fn next(&self) -> Next {
        let mut schedule = self.core.schedule.borrow_mut();
        let mut state = self.core.state.borrow_mut();
        let Schedule { live, busy } = &mut *self.renewed(&mut schedule, &mut state);
        let now = state.now;
        let is_one_paused = state.paused_until > now;
        let mut wait: Option<Instant> = None;
        busy.clear();
        for (place, shard) in live.iter().enumerate() {
            let resumes = match is_one_paused {
                true => state.paused_until(shard.process),
                false => Instant::ZERO,
            };
            let due = if resumes > now { Some(resumes) } else { shard.executor.next_due() };
            match due {
                Some(due) if due <= now => busy.push(place),
                Some(due) => wait = Some(wait.map_or(due, |first| first.min(due))),
                None => {}
            }
        }
        if busy.is_empty() {
            return Next::Wait(wait);
        }
        let drawn = (state.random() % busy.len() as u64) as usize;
        match busy.get(drawn).and_then(|place| live.get(*place)) {
            Some(Live { process, shard, executor }) => {
                Next::Run(*process, *shard, Rc::clone(executor))
            }
            None => Next::Wait(wait),
        }
    }

    fn renewed<'a>(&self, schedule: &'a mut Schedule, state: &mut State) -> &'a mut Schedule {
        if std::mem::take(&mut state.has_new_shards) {
            schedule.renew(&state.processes);
        }
        schedule
    }

    /// Lets a shard run one of its tasks.
    fn run(&self, process: ProcessId, shard: u16, executor: &dyn Shard) {
        let now = self.now();
        // Only the chosen shard looks at its inbox, so the seed orders what crosses shards.
        executor.attend(now);
        let ready = executor.ready() as u64;
        let n = {
            let mut state = self.core.state.borrow_mut();
            let n = if ready > 0 { (state.random() % ready) as usize } else { 0 };
            state.note("run", process.0 as u64, (u64::from(shard) << 32) | n as u64);
            state.trace.step();
            n
        };
        executor.run(n);
        let mut state = self.core.state.borrow_mut();
        state.now = state.now + POLL_COST;
        drop(state);
        if executor.is_finished() {
            self.finish(process, shard);
        }
        self.carry_out_crashes();
    }

    /// Whether nothing will ever happen by itself again.
    pub fn is_idle(&self) -> bool {
        let mut schedule = self.core.schedule.borrow_mut();
        let mut state = self.core.state.borrow_mut();
        let live = &self.renewed(&mut schedule, &mut state).live;
        let busy = live.iter().any(|shard| shard.executor.next_due().is_some());
        !busy && state.events.is_empty() && state.crashes.is_empty()
    }

    /// Moves virtual time on to `at` when nothing happens before.
    pub fn advance_to(&self, at: Instant) {
        let mut state = self.core.state.borrow_mut();
        state.now = state.now.max(at);
    }

    fn carry_out_crashes(&self) {
        loop {
            let next = self.core.state.borrow_mut().crashes.pop();
            match next {
                Some((process, kind)) => self.crash(process, kind),
                None => return,
            }
        }
    }

    fn fire_events(&self) {
        loop {
            let mut state = self.core.state.borrow_mut();
            let now = state.now;
            let Some(first) = state.events.first_entry() else { return };
            if first.key().0 > now {
                return;
            }
            match first.remove() {
                Event::Wake(waker) => {
                    drop(state);
                    waker.wake();
                }
                Event::Net(event) => {
                    let wakers = crate::net::happen(&mut state, *event);
                    drop(state);
                    for waker in wakers {
                        waker.wake();
                    }
                }
            }
        }
    }

    /// A shard's main task is done; with the last one the process ends like a killed one.
    fn finish(&self, process: ProcessId, shard: u16) {
        let (executor, last) = {
            let mut state = self.core.state.borrow_mut();
            let Some(p) = state.processes.get_mut(process.0) else { return };
            let executor = p.shards.get_mut(usize::from(shard)).and_then(Option::take);
            let is_last = p.shards.iter().all(Option::is_none);
            state.has_new_shards = true;
            (executor, is_last)
        };
        self.core.schedule.borrow_mut().live.clear();
        if let Some(executor) = executor {
            executor.end();
        }
        if last {
            self.crash(process, CrashKind::Kill);
        }
    }
}
