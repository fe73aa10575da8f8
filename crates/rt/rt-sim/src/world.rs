//! [`World`]: virtual time, the processes, and the loop that picks what happens next.

use crate::disk::{CrashKind, Disks};
use crate::env::Env;
use crate::fs::DiskControl;
use crate::link::NetworkControl;
use crate::net::Network;
use crate::state::{
    Core, Event, Live, Process, ProcessId, Schedule, Shard, Skew, State, WorldOptions,
};
use crate::trace::Trace;
use rand_chacha::ChaCha8Rng;
use rand_core::SeedableRng;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;
use stdx::Instant;

/// Virtual cost of one poll of a task.
const POLL_COST: Duration = Duration::from_micros(1);

/// The condition did not come true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// Virtual time when the run was abandoned.
    pub at: Instant,
    /// True if nothing could ever happen again; else the time was up.
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

/// Ends the world when the last [`World`] is dropped.
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

/// Next action of a step.
enum Next {
    Run(ProcessId, u16, Rc<dyn Shard>),
    /// No task runs before that.
    Wait(Option<Instant>),
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
        let env = |shard| Env {
            core: Rc::clone(&self.core),
            process: id,
            name: Rc::clone(&shared_name),
            work_dir: Rc::from(work_dir),
            disk,
            shard,
        };
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

    /// Returns true if the process runs: it was not crashed and some shard's main task is not done.
    pub fn is_alive(&self, process: ProcessId) -> bool {
        self.core.state.borrow().is_alive(process)
    }

    /// Returns the resources that the process holds: open files, then ends of connections.
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

    /// Returns a number from the world's seed, for its driver.
    pub fn random_u64(&self) -> u64 {
        self.core.state.borrow_mut().random()
    }

    /// The disk of the node (or client) of that name, made when there is none yet.
    pub fn disk(&self, name: &str) -> DiskControl {
        DiskControl::new(&self.core, name)
    }

    /// Controls the links between the machines.
    pub fn network(&self) -> NetworkControl {
        NetworkControl::new(&self.core)
    }

    /// Shifts a node's wall clock by `micros` against virtual time, from now on.
    pub fn set_clock_skew(&self, name: &str, micros: i64) {
        let skew = Skew { micros, ..Skew::default() };
        self.core.state.borrow_mut().skews.insert(name.to_string(), skew);
    }

    /// Makes a node's wall clock jump by `micros`, on top of earlier shifts.
    pub fn jump_clock(&self, name: &str, micros: i64) {
        let mut state = self.core.state.borrow_mut();
        let skew = state.skews.entry(name.to_string()).or_default();
        skew.micros = skew.micros.saturating_add(micros);
    }

    /// Makes a node's wall clock run too fast by that many millionths from now on, too slowly below
    /// 0, on top of earlier shifts. 0 ends the drift; the accumulated difference stays.
    pub fn drift_clock(&self, name: &str, millionths: i64) {
        let mut state = self.core.state.borrow_mut();
        let now = state.now;
        let skew = state.skews.entry(name.to_string()).or_default();
        *skew = Skew { micros: skew.at(now), millionths, since: now };
    }

    /// Stops a process's tasks for that long, as SIGSTOP does. Time goes on: its machine accepts
    /// and acknowledges bytes that fit into the buffers of its sockets.
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
        self.core.check_free();
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
        let event = state.events.first_key_value().map(|(key, _)| key.at);
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
        // Only the chosen shard drains its inbox, so the seed orders messages between shards.
        executor.attend(now);
        let ready = executor.ready() as u64;
        let n = {
            let mut state = self.core.state.borrow_mut();
            let n = if ready > 0 { (state.random() % ready) as usize } else { 0 };
            state.note("run", process.0 as u64, (u64::from(shard) << 32) | n as u64);
            state.trace.step();
            n
        };
        self.core.check_free();
        executor.run(n);
        let mut state = self.core.state.borrow_mut();
        state.now = state.now + POLL_COST;
        drop(state);
        if executor.is_finished() {
            self.finish(process, shard);
        }
        self.carry_out_crashes();
    }

    /// Returns true if nothing will ever happen again without outside action.
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
            if first.key().at > now {
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
        self.core.check_free();
        if let Some(executor) = executor {
            executor.end();
        }
        if last {
            self.crash(process, CrashKind::Kill);
        }
    }
}
