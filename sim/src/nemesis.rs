//! [`Nemesis`]: breaks things by the seed, one after the other or several at once, and heals them.

use std::collections::BTreeMap;
use std::time::Duration;

use rt::sim::{CrashKind, LinkOptions, SimNode};
use stdx::{Instant, IoErrorKind};

use crate::checks::{Loss, Trouble};
use crate::cluster::{Member, Run};
use crate::operator::Pending;
use crate::scenario::Fault;

/// How long a node may be late after a trouble: it starts, or works off what piled up.
const AFTERMATH: Duration = Duration::from_secs(3);

/// What is given up has gone on for less than so long.
const GIVE_UP_MICROS: u64 = 4_000_000;

/// How often another fault is drawn when one is not possible, and after how long.
const STRIKES: u32 = 12;
const STRIKE_AGAIN: Duration = Duration::from_millis(100);

/// How long a dead node is dead at least before a new one takes its place: the others must have
/// noticed.
const REPLACE_AFTER: Duration = Duration::from_secs(25);

/// How long a node may take to come to the file call in which it ends.
const CRASH_WAIT: Duration = Duration::from_secs(1);

/// How long a node may take to write hints, in one of how many changes of their files it ends.
const HINT_WAIT: Duration = Duration::from_secs(11);
const HINT_CHANGES: u64 = 2;

/// What ends a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Undo {
    Restart(usize),
    Heal(Vec<(usize, usize)>),
    Links(usize),
    Disk(usize),
    /// A clock goes at the right speed again.
    Drift(usize),
    /// The disk, bad since then, is good again; the node starts again on it.
    GoodDisk(usize, Instant),
    /// Bits by path are flipped back; the node starts again.
    Unrot(usize, Vec<(String, u64)>),
    /// A newcomer starts in its place.
    Replace(usize),
    /// What it does is given up: leaving, moving, joining.
    GiveUp(usize),
    /// A dead host is taken out through a node; given up there, or by another one.
    OrderRemoval(String, usize),
    GiveUpRemoval(String, usize, bool),
    GiveUpRebuild(usize),
}

/// Longer than it takes until all hold a dead node for dead.
pub const KNOWN_AS_DOWN: Duration = Duration::from_secs(60);

/// Longer than it usually takes until one does.
const NOTICED_AS_DOWN: Duration = Duration::from_secs(20);

/// The faults of a run.
pub struct Nemesis {
    /// What happened, by name of the fault.
    pub counts: BTreeMap<&'static str, u64>,
    undo: Vec<(Instant, Undo)>,
    end: Instant,
}

impl Nemesis {
    /// Nothing is broken yet.
    pub fn new(run: &Run) -> Nemesis {
        let end = run.world.now() + run.scenario.safety;
        Nemesis { counts: BTreeMap::new(), undo: Vec::new(), end }
    }

    /// Runs the world until the clients are through or the phase is over.
    ///
    /// # Errors
    /// None of its own; a node that ended by itself is found later.
    pub fn run(&mut self, run: &mut Run) -> Result<(), String> {
        let scenario = run.scenario.clone();
        for n in 1..=scenario.faults {
            // Spread over the requests, the last of which are left in peace.
            let ended = scenario.operations * n / (scenario.faults + 2);
            self.wait(run, ended);
            if run.world.now() >= self.end {
                break;
            }
            if n == 1 + scenario.faults / 3 {
                self.join(run);
            }
            for _ in 0..STRIKES {
                if self.strike(run) {
                    break;
                }
                run.world.run_for(STRIKE_AGAIN);
            }
            run.note_epochs();
        }
        self.wait(run, scenario.operations);
        Ok(())
    }

    /// Starts the nodes that join; some of them are to be given up.
    fn join(&mut self, run: &mut Run) {
        let first = run.members.len();
        run.join();
        for number in first..run.members.len() {
            if run.scenario.has(Fault::Abort) && run.world.random_u64().is_multiple_of(2) {
                self.give_up_soon(run, number);
            }
        }
        if run.scenario.even {
            // At the same moment a member leaves, which is refused where their ranges meet.
            let number = 1 + (run.world.random_u64() % (first as u64 - 1).max(1)) as usize;
            let moves = |p: &Pending| matches!(p, Pending::Move(n) if *n == number);
            let is_well = run.members.get(number).is_some_and(|m| m.is_up && !m.may_end);
            if is_well && !run.pending.iter().any(moves) {
                run.begin_decommission(number);
            }
        }
    }

    fn give_up_soon(&mut self, run: &Run, number: usize) {
        let after = micros(run, GIVE_UP_MICROS);
        self.undo.push((run.world.now() + after, Undo::GiveUp(number)));
    }

    /// A node dies for good. Where things are given up its removal is ordered while others break, when it
    /// is known to be dead, and given up.
    fn remove(&mut self, run: &mut Run, node: usize) -> bool {
        if !run.begin_removal(node) {
            return false;
        }
        let dead = run.pending.iter().find_map(|pending| match pending {
            Pending::Remove(host) => Some(host.clone()),
            _ => None,
        });
        if let Some(host) = dead.filter(|_| run.scenario.has(Fault::Abort)) {
            let staying: Vec<usize> = (0..run.members.len())
                .filter(|n| run.members.get(*n).is_some_and(|m| m.is_up && !m.has_left))
                .collect();
            let draw = || staying.get(run.world.random_u64() as usize % staying.len().max(1));
            let (by, given_up_at) = (draw().copied().unwrap_or(0), draw().copied().unwrap_or(0));
            let begins = run.world.now() + NOTICED_AS_DOWN + micros(run, GIVE_UP_MICROS);
            let ends = begins + micros(run, GIVE_UP_MICROS);
            let by_host = given_up_at != by;
            self.undo.push((begins, Undo::OrderRemoval(host.clone(), by)));
            self.undo.push((ends, Undo::GiveUpRemoval(host, given_up_at, by_host)));
        }
        true
    }

    /// Until that many requests have ended; meanwhile heals what is due.
    fn wait(&mut self, run: &mut Run, ended: u64) {
        loop {
            let due = self.undo.iter().map(|(at, _)| *at).min().unwrap_or(self.end).min(self.end);
            let shared = run.shared.clone();
            let reached = || {
                let shared = shared.borrow();
                shared.history.ended() >= ended || shared.running == 0
            };
            let left = due.since(run.world.now());
            let is_reached = run.world.run_until(reached, left).is_ok();
            self.undo_due(run);
            if is_reached || run.world.now() >= self.end {
                return;
            }
        }
    }

    fn undo_due(&mut self, run: &mut Run) {
        let now = run.world.now();
        let (due, rest) = self.undo.drain(..).partition(|(at, _)| *at <= now);
        self.undo = rest;
        let due: Vec<(Instant, Undo)> = due;
        for (_, undo) in due {
            self.undo(run, undo);
        }
    }

    fn undo(&self, run: &mut Run, undo: Undo) {
        match undo {
            Undo::Restart(node) => run.restart(node),
            Undo::Heal(pairs) => {
                let cut = |pair: &(usize, usize)| {
                    let still = |(_, undo): &(Instant, Undo)| match undo {
                        Undo::Heal(others) => {
                            others.contains(pair) || others.contains(&(pair.1, pair.0))
                        }
                        _ => false,
                    };
                    self.undo.iter().any(still)
                };
                for (a, b) in pairs.into_iter().filter(|pair| !cut(pair)) {
                    run.world.heal(&name(a), &name(b));
                }
            }
            Undo::Links(node) => {
                usual_links(run, node);
            }
            Undo::Disk(node) => run.world.disk(&name(node)).set_slow(None),
            Undo::GoodDisk(node, since) => {
                run.losses.push(Loss::bad_disk(since, run.world.now()));
                let disk = run.world.disk(&name(node));
                disk.set_free_bytes(None);
                disk.clear_faults();
                self.start_again(run, node);
            }
            Undo::Unrot(node, bits) => {
                for (path, bit) in bits {
                    run.world.disk(&name(node)).flip_bit(&path, bit);
                }
                self.start_again(run, node);
            }
            Undo::Drift(node) => run.world.drift_clock(&name(node), 0),
            Undo::Replace(node) => run.replace(node),
            Undo::GiveUp(node) => run.give_up(node),
            Undo::OrderRemoval(host, at) => run.order_removal(at, &host),
            Undo::GiveUpRemoval(host, at, by_host) => run.give_up_removal(at, &host, by_host),
            Undo::GiveUpRebuild(node) => run.give_up_rebuild(node),
        }
    }

    /// Ends a node that may have ended by itself, and starts it.
    fn start_again(&self, run: &mut Run, node: usize) {
        let Some(member) = run.members.get(node) else { return };
        let (life, is_up) = (member.life.clone(), member.is_up);
        if is_up {
            run.world.kill(&life);
            run.ended(node);
        }
        run.restart(node);
        let from = run.world.now();
        run.note_trouble(node, from);
        if let Some(member) = run.members.get_mut(node) {
            member.may_end = false;
        }
    }

    /// Ends everything that is broken.
    pub fn heal(&mut self, run: &mut Run) {
        let mut replacements = Vec::new();
        for (_, undo) in std::mem::take(&mut self.undo) {
            match undo {
                Undo::GoodDisk(..) | Undo::Unrot(..) => self.undo(run, undo),
                Undo::Replace(_) => replacements.push(undo),
                Undo::Heal(_)
                | Undo::Links(_)
                | Undo::Disk(_)
                | Undo::Drift(_)
                | Undo::Restart(_)
                | Undo::GiveUp(_)
                | Undo::OrderRemoval(..)
                | Undo::GiveUpRemoval(..)
                | Undo::GiveUpRebuild(_) => {}
            }
        }
        run.world.heal_all();
        run.world.clear_links();
        for number in 0..run.members.len() {
            run.world.disk(&name(number)).clear_faults();
            run.world.set_clock_skew(&name(number), 0);
            usual_links(run, number);
            if let Some(member) = run.members.get(number) {
                run.world.resume(&member.life);
            }
        }
        if !replacements.is_empty() {
            // Only who is known to be down is replaced.
            run.world.run_for(KNOWN_AS_DOWN);
        }
        for undo in replacements {
            self.undo(run, undo);
        }
        run.healed();
    }

    /// One fault by the seed; false when it is not possible just now.
    fn strike(&mut self, run: &mut Run) -> bool {
        let total: u64 = run.scenario.kinds.iter().map(|(_, share)| share).sum();
        let mut n = run.world.random_u64() % total.max(1);
        let mut kinds = run.scenario.kinds.iter();
        let kind = kinds.find_map(|(fault, share)| {
            let is_it = n < *share;
            n = n.saturating_sub(*share);
            is_it.then_some(*fault)
        });
        let Some(fault) = kind else { return false };
        let count = run.members.len();
        let node = (run.world.random_u64() % count as u64) as usize;
        let step = 1 + (run.world.random_u64() % (count as u64 - 1).max(1)) as usize;
        let other = (node + step) % count;
        let is_hint_cut = fault == Fault::PowerCut && run.scenario.hint_cuts;
        let node = if is_hint_cut { with_hints(run).unwrap_or(node) } else { node };
        let most = run.scenario.fault_length_max.as_micros() as u64;
        let length = Duration::from_micros(100_000 + run.world.random_u64() % most.max(1));
        if run.members.get(node).is_none_or(|m| m.has_left) {
            return false;
        }
        let is_done = self.carry_out(run, fault, (node, other), length);
        if is_done {
            *self.counts.entry(fault.name()).or_default() += 1;
        }
        is_done
    }

    /// Whether something ends a node, or keeps it from starting, already.
    fn is_in_repair(&self, node: usize) -> bool {
        self.undo.iter().any(|(_, undo)| match undo {
            Undo::GoodDisk(n, _) | Undo::Unrot(n, _) | Undo::Replace(n) | Undo::Restart(n) => {
                *n == node
            }
            Undo::Heal(_)
            | Undo::Links(_)
            | Undo::Disk(_)
            | Undo::Drift(_)
            | Undo::GiveUp(_)
            | Undo::OrderRemoval(..)
            | Undo::GiveUpRemoval(..)
            | Undo::GiveUpRebuild(_) => false,
        })
    }

    /// False when it is not possible just now.
    fn carry_out(
        &mut self,
        run: &mut Run,
        fault: Fault,
        (node, other): (usize, usize),
        length: Duration,
    ) -> bool {
        let until = run.world.now() + length;
        let Some(member) = run.members.get(node) else { return false };
        let (life, is_up, alone) = (member.life.clone(), member.is_up, node == other);
        let is_well = is_up && !member.may_end && !self.is_in_repair(node);
        match fault {
            Fault::Kill | Fault::PowerCut => {
                if !is_up || self.is_in_repair(node) {
                    return false;
                }
                end_process(run, fault, &name(node), &life);
                if run.scenario.replication == 1 {
                    let now = run.world.now();
                    run.losses.push(match fault {
                        Fault::PowerCut => Loss::power_cut(now),
                        _ => Loss::kill(now),
                    });
                }
                run.ended(node);
                let until = run.world.now() + length;
                self.trouble(run, node, until);
                self.undo.push((until, Undo::Restart(node)));
            }
            Fault::Pause => {
                if !is_up {
                    return false;
                }
                run.world.pause(&life, length);
                self.trouble(run, node, until);
            }
            Fault::Isolate => {
                let others = (0..run.members.len()).filter(|other| *other != node);
                let pairs: Vec<(usize, usize)> = others.map(|other| (node, other)).collect();
                for (a, b) in &pairs {
                    run.world.partition(&name(*a), &name(*b));
                }
                self.undo.push((until, Undo::Heal(pairs)));
            }
            Fault::Partition | Fault::OneWay | Fault::Reset if alone => return false,
            Fault::Partition => {
                run.world.partition(&name(node), &name(other));
                self.undo.push((until, Undo::Heal(vec![(node, other)])));
            }
            Fault::OneWay => {
                run.world.clog(&name(node), &name(other));
                self.undo.push((until, Undo::Heal(vec![(node, other)])));
            }
            Fault::Reset => run.world.reset_connections(&name(node), &name(other)),
            Fault::ClientReset => {
                for client in 0..run.scenario.clients {
                    run.world.reset_connections(&name(node), &format!("c{client}"));
                }
            }
            Fault::SlowLink | Fault::LossyLink | Fault::ThinLink => {
                let link = bad_link(run, fault);
                set_links(run, node, &link);
                self.undo.push((until, Undo::Links(node)));
            }
            Fault::ClockJump => {
                let micros = (run.world.random_u64() % 40_000_000) as i64 - 20_000_000;
                run.world.jump_clock(&name(node), micros);
            }
            Fault::ClockDrift => {
                let millionths = (run.world.random_u64() % 400_000) as i64 - 200_000;
                run.world.drift_clock(&name(node), millionths);
                self.undo.push((until, Undo::Drift(node)));
            }
            Fault::SlowDisk => {
                run.world.disk(&name(node)).set_slow(Some(5_000..50_000));
                self.trouble(run, node, until);
                self.undo.push((until, Undo::Disk(node)));
            }
            Fault::SlowNode => {
                run.world.disk(&name(node)).set_slow(Some(1_000..20_000));
                let link =
                    LinkOptions { latency_micros: Some(20_000..200_000), ..LinkOptions::default() };
                set_links(run, node, &link);
                self.trouble(run, node, until);
                self.undo.push((until, Undo::Disk(node)));
                self.undo.push((until, Undo::Links(node)));
            }
            Fault::Datacenters => {
                let pairs = between_datacenters(run);
                if pairs.is_empty() {
                    return false;
                }
                for (a, b) in &pairs {
                    run.world.partition(&name(*a), &name(*b));
                }
                self.undo.push((until, Undo::Heal(pairs)));
            }
            // One node at a time may lose what is on its disk, or not take more.
            Fault::DiskFull | Fault::BadDisk | Fault::BitRot => {
                if !is_well || self.is_one_broken(run) {
                    return false;
                }
                let disk = run.world.disk(&name(node));
                let undo = match fault {
                    Fault::BitRot => {
                        let bits = rot(run, node);
                        if bits.is_empty() {
                            return false;
                        }
                        Undo::Unrot(node, bits)
                    }
                    Fault::DiskFull => {
                        disk.set_free_bytes(Some(run.world.random_u64() % 65_536));
                        Undo::GoodDisk(node, run.world.now())
                    }
                    _ => {
                        let one_in = 2 + run.world.random_u64() % 50;
                        disk.set_failing_reads(Some((one_in, IoErrorKind::Device)));
                        if run.world.random_u64().is_multiple_of(2) {
                            disk.set_failing(Some(IoErrorKind::Device));
                        }
                        Undo::GoodDisk(node, run.world.now())
                    }
                };
                if let Some(member) = run.members.get_mut(node) {
                    member.may_end = true;
                }
                self.trouble(run, node, until);
                self.undo.push((until, undo));
            }
            Fault::RollingRestart => {
                if self.is_one_broken(run) {
                    return false;
                }
                run.rolling_restart();
            }
            Fault::SwapAddresses => {
                let others = run.members.get(other).is_some_and(|m| m.is_up && !m.may_end);
                if alone || !is_well || !others || self.is_in_repair(other) {
                    return false;
                }
                run.swap_addresses(node, other);
            }
            Fault::Replace => {
                // The seed finds the others.
                if node == 0 || !is_well || self.is_one_broken(run) || !run.pending.is_empty() {
                    return false;
                }
                run.world.power_cut(&life);
                run.ended(node);
                let until = until + REPLACE_AFTER;
                self.trouble(run, node, until + REPLACE_AFTER);
                self.undo.push((until, Undo::Replace(node)));
            }
            Fault::Decommission | Fault::Remove => {
                let is_last = self.counts.contains_key(fault.name());
                if node == 0 || !is_well || is_last || self.is_one_broken(run) {
                    return false;
                }
                let needed = run.scenario.replication * run.scenario.datacenters;
                let there = run.members.iter().filter(|m| !m.has_left && !m.may_end).count() as u64;
                if there <= needed {
                    return false;
                }
                self.trouble(run, node, self.end);
                if fault == Fault::Remove {
                    return self.remove(run, node);
                }
                run.begin_decommission(node);
            }
            Fault::Abort => {
                if node == 0 || !is_well || self.is_one_broken(run) {
                    return false;
                }
                let there = run.members.iter().filter(|m| !m.has_left && !m.may_end).count() as u64;
                let may_leave = there > run.scenario.replication * run.scenario.datacenters;
                if run.world.random_u64().is_multiple_of(2) && run.begin_move(node) {
                    self.give_up_soon(run, node);
                } else if may_leave {
                    self.trouble(run, node, self.end);
                    run.begin_decommission(node);
                    self.give_up_soon(run, node);
                } else {
                    return false;
                }
            }
            Fault::AlterKeyspace => {
                if !is_well || !run.world.is_alive(&life) {
                    return false;
                }
                let least = run.scenario.replication;
                let most = run.scenario.nodes;
                let replicas = least + run.world.random_u64() % (most + 1 - least);
                run.change_replicas(node, replicas);
            }
            Fault::Unschedule => {
                return is_well && run.world.is_alive(&life) && run.interrupt_schedule(node);
            }
            Fault::Compact | Fault::Rebuild | Fault::Move | Fault::Repair => {
                if !is_well || !run.world.is_alive(&life) {
                    return false;
                }
                match fault {
                    Fault::Rebuild => {
                        run.begin_rebuild(node);
                        if run.scenario.has(Fault::Abort) {
                            let after = micros(run, GIVE_UP_MICROS);
                            self.undo.push((run.world.now() + after, Undo::GiveUpRebuild(node)));
                        }
                    }
                    Fault::Repair => run.begin_repair(node),
                    Fault::Move => return run.pending.is_empty() && run.begin_move(node),
                    _ => run.begin_compaction(node),
                }
            }
        }
        true
    }

    /// Whether a node has lost its disk, or will, or may not take writes.
    fn is_one_broken(&self, run: &Run) -> bool {
        let is_bad =
            |undo: &Undo| matches!(undo, Undo::GoodDisk(..) | Undo::Unrot(..) | Undo::Replace(_));
        self.undo.iter().any(|(_, undo)| is_bad(undo))
            || run.members.iter().any(|m| m.may_end)
            || !run.pending.is_empty()
    }

    fn trouble(&self, run: &mut Run, node: usize, until: Instant) {
        let from = run.world.now();
        run.troubles.push(Trouble { node, from, until: until + AFTERMATH });
    }
}

/// As drawn, below that many microseconds.
fn micros(run: &Run, below: u64) -> Duration {
    Duration::from_micros(run.world.random_u64() % below)
}

/// A node that has files of hints, and therefore soon writes more.
fn with_hints(run: &Run) -> Option<usize> {
    let on_disk = |member: &Member| -> i64 {
        let snapshot = member.life.telemetry();
        let of_hints = snapshot.metrics.iter().filter(|m| m.name == "hints_bytes");
        let bytes = of_hints.map(|m| match m.value {
            telemetry::Value::Gauge(bytes) => bytes,
            telemetry::Value::Counter(_)
            | telemetry::Value::Histogram(_)
            | telemetry::Value::Latency(_) => 0,
        });
        bytes.sum()
    };
    run.members.iter().position(|m| m.is_up && !m.has_left && on_disk(m) > 0)
}

fn set_links(run: &Run, node: usize, link: &LinkOptions) {
    for other in (0..run.members.len()).filter(|other| *other != node) {
        run.world.set_link(&name(node), &name(other), link.clone());
        run.world.set_link(&name(other), &name(node), link.clone());
    }
}

/// Makes the links of a node what they are when nothing is broken: long between datacenters.
pub fn usual_links(run: &Run, node: usize) {
    let scenario = &run.scenario;
    for other in (0..run.members.len().max(node)).filter(|other| *other != node) {
        let is_near = scenario.datacenter(node as u64) == scenario.datacenter(other as u64);
        let latency_micros = if is_near { None } else { Some(15_000..25_000) };
        let link = LinkOptions { latency_micros, ..LinkOptions::default() };
        run.world.set_link(&name(node), &name(other), link.clone());
        run.world.set_link(&name(other), &name(node), link);
    }
}

/// All pairs of nodes of different datacenters.
fn between_datacenters(run: &Run) -> Vec<(usize, usize)> {
    let of = |node: usize| run.scenario.datacenter(node as u64);
    let count = run.members.len();
    let pairs = (0..count).flat_map(|a| (a + 1..count).map(move |b| (a, b)));
    pairs.filter(|(a, b)| of(*a) != of(*b)).collect()
}

/// Flips bits of data files of the workload's tables; which.
pub fn rot(run: &Run, node: usize) -> Vec<(String, u64)> {
    let disk = run.world.disk(&name(node));
    let of_data = |path: &String| path.contains("/ks/") && path.ends_with("-Data.db");
    let files: Vec<String> = disk.list().into_iter().filter(of_data).collect();
    let mut bits = Vec::new();
    for path in files {
        let bytes = disk.read(&path).map_or(0, |content| content.len() as u64);
        let bit = run.world.random_u64() % (8 * bytes).max(1);
        if run.world.random_u64().is_multiple_of(2) && disk.flip_bit(&path, bit) {
            bits.push((path, bit));
        }
    }
    bits
}

/// Ends a node: at once, or inside one of its next file calls, most of which are writes of a commit
/// log, so that requests are cut between shards and between nodes.
fn end_process(run: &Run, fault: Fault, name: &str, life: &SimNode) {
    let world = &run.world;
    let kind = if fault == Fault::Kill { CrashKind::Kill } else { CrashKind::PowerCut };
    if fault == Fault::PowerCut && run.scenario.hint_cuts && with_hints(run).is_some() {
        let n = 1 + world.random_u64() % HINT_CHANGES;
        world.disk(name).crash_at_nth_change_below("/hints/", n, kind);
        let _ = world.run_until(|| !world.is_alive(life), HINT_WAIT);
    } else if world.random_u64().is_multiple_of(2) {
        world.disk(name).crash_at_nth_io(1 + world.random_u64() % 40, kind);
        // Stuck: it has nothing to do with its files; then it ends like the others.
        let _ = world.run_until(|| !world.is_alive(life), CRASH_WAIT);
    }
    match kind {
        CrashKind::Kill => world.kill(life),
        CrashKind::PowerCut | CrashKind::PowerCutLosingAll => world.power_cut(life),
    }
}

fn bad_link(run: &Run, fault: Fault) -> LinkOptions {
    let random = run.world.random_u64();
    let usual = LinkOptions::default();
    match fault {
        Fault::SlowLink => {
            let most = 20_000 + random % 400_000;
            LinkOptions { latency_micros: Some(most / 4..most), ..usual }
        }
        Fault::LossyLink => LinkOptions {
            losses_per_million: 10_000 + random % 150_000,
            resets_per_million: Some(random % 3_000),
            ..usual
        },
        _ => LinkOptions { bytes_per_second: Some(2_000 + random % 60_000), ..usual },
    }
}

/// The name of a node by its number from 0.
pub fn name(number: usize) -> String {
    format!("n{}", number + 1)
}
