//! [`Nemesis`]: breaks things by the seed, one after the other or several at once, and heals them.

use std::collections::BTreeMap;
use std::time::Duration;

use rt::sim::{CrashKind, LinkOptions, SimNode};
use stdx::{Instant, IoErrorKind};

use crate::checks::Loss;
use crate::encrypted::{self, Keys};
use crate::key_provider::KeyServer;
use crate::nodes::{Member, name, usual_links};
use crate::operator::{self, giving_up, giving_up::RemovalAbort};
use crate::rotting::rot;
use crate::run::{Pending, Run};
use crate::scenario::Fault;
use crate::schedule;

/// How long a node may be late after a trouble: it starts, or works off what piled up.
const AFTERMATH: Duration = Duration::from_secs(3);

/// Upper bound of the time that an aborted operation has run.
const GIVE_UP_MICROS: u64 = 4_000_000;

/// How often another fault is drawn when one is not possible, and after how long.
const STRIKES: u32 = 12;
const STRIKE_AGAIN: Duration = Duration::from_millis(100);

/// Least time that a node is dead before a new one replaces it: the others must have noticed.
const REPLACE_AFTER: Duration = Duration::from_secs(25);

/// How long a node may take to come to the file call in which it ends.
const CRASH_WAIT: Duration = Duration::from_secs(1);

/// How long a node may take to write hints, in one of how many changes of their files it ends.
const HINT_WAIT: Duration = Duration::from_secs(11);
const HINT_CHANGES: u64 = 2;

/// Action that ends a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Undo {
    Restart(usize),
    Heal(Vec<(usize, usize)>),
    Links(usize),
    Disk(usize),
    /// A clock runs at the right speed again.
    Drift(usize),
    /// A node has keys of its cluster again.
    Keys(usize),
    KeyProvider,
    /// The disk, bad since that time, is good again, and the node restarts on it.
    GoodDisk(usize, Instant),
    /// Bits by path are flipped back; the node starts again.
    Unrot(usize, Vec<(String, u64)>),
    /// A newcomer starts in its place.
    Replace(usize),
    /// Its operation is aborted: leaving, moving, joining.
    GiveUp(usize),
    /// A dead host is removed through a node; the removal is aborted there, or by another one.
    OrderRemoval(String, usize),
    GiveUpRemoval(RemovalAbort, usize),
    GiveUpRebuild(usize),
}

/// Longer than it takes until all nodes consider a dead node down.
pub const KNOWN_AS_DOWN: Duration = Duration::from_secs(60);

/// Longer than it usually takes until one node does.
const NOTICED_AS_DOWN: Duration = Duration::from_secs(20);

/// A fault that is to happen now.
#[derive(Clone, Copy)]
struct Hit {
    fault: Fault,
    node: usize,
    /// Another node; the same one in a cluster of one.
    other: usize,
    /// How long it lasts.
    length: Duration,
    until: Instant,
}

/// The faults of a run.
pub struct Nemesis {
    /// Faults that happened, by name.
    pub counts: BTreeMap<&'static str, u64>,
    undo: Vec<(Instant, Undo)>,
    end: Instant,
}

impl Nemesis {
    /// Nothing is broken yet.
    pub fn new(run: &Run) -> Nemesis {
        let end = run.nodes.world.now() + run.nodes.scenario.safety;
        Nemesis { counts: BTreeMap::new(), undo: Vec::new(), end }
    }

    /// Runs the world until the clients have finished or the phase is over.
    ///
    /// # Errors
    /// None of its own; a node that ended unexpectedly is found later.
    pub fn run(&mut self, run: &mut Run) -> Result<(), String> {
        let scenario = run.nodes.scenario.clone();
        for n in 1..=scenario.faults {
            // Spread over the requests, without faults in the last ones.
            let ended = scenario.operations * n / (scenario.faults + 2);
            self.wait(run, ended);
            if run.nodes.world.now() >= self.end {
                break;
            }
            if n == 1 + scenario.faults / 3 {
                self.join(run);
            }
            for _ in 0..STRIKES {
                if self.strike(run) {
                    break;
                }
                run.nodes.world.run_for(STRIKE_AGAIN);
            }
            operator::note_epochs(run);
        }
        self.wait(run, scenario.operations);
        Ok(())
    }

    /// Starts the nodes that join; some of these joins are to be aborted.
    fn join(&mut self, run: &mut Run) {
        let first = run.nodes.members.len();
        operator::join(run);
        for number in first..run.nodes.members.len() {
            if run.nodes.scenario.has(Fault::Abort)
                && run.nodes.world.random_u64().is_multiple_of(2)
            {
                self.give_up_soon(run, number);
            }
        }
        if run.nodes.scenario.even {
            // At the same moment a member leaves, which is refused where their ranges meet.
            let number = 1 + (run.nodes.world.random_u64() % (first as u64 - 1).max(1)) as usize;
            let moves = |p: &Pending| matches!(p, Pending::Move(n) if *n == number);
            let is_well = run.nodes.members.get(number).is_some_and(|m| m.is_up && !m.may_end);
            if is_well && !run.operations.pending.iter().any(moves) {
                operator::begin_decommission(run, number);
            }
        }
    }

    fn give_up_soon(&mut self, run: &Run, number: usize) {
        let after = micros(run, GIVE_UP_MICROS);
        self.undo.push((run.nodes.world.now() + after, Undo::GiveUp(number)));
    }

    /// A node dies for good. In scenarios with aborts its removal is ordered during other faults,
    /// when it is known to be dead, and then aborted.
    fn remove(&mut self, run: &mut Run, node: usize) -> bool {
        if !operator::begin_removal(run, node) {
            return false;
        }
        let dead = run.operations.pending.iter().find_map(|pending| match pending {
            Pending::Remove(host) => Some(host.clone()),
            _ => None,
        });
        if let Some(host) = dead.filter(|_| run.nodes.scenario.has(Fault::Abort)) {
            let staying: Vec<usize> = (0..run.nodes.members.len())
                .filter(|n| run.nodes.members.get(*n).is_some_and(|m| m.is_up && !m.has_left))
                .collect();
            let draw = || staying.get(run.nodes.world.random_u64() as usize % staying.len().max(1));
            let (by, given_up_at) = (draw().copied().unwrap_or(0), draw().copied().unwrap_or(0));
            let begins = run.nodes.world.now() + NOTICED_AS_DOWN + micros(run, GIVE_UP_MICROS);
            let ends = begins + micros(run, GIVE_UP_MICROS);
            let abort = RemovalAbort { host_id: host.clone(), names_host: given_up_at != by };
            self.undo.push((begins, Undo::OrderRemoval(host, by)));
            self.undo.push((ends, Undo::GiveUpRemoval(abort, given_up_at)));
        }
        true
    }

    /// Waits until that many requests have ended; meanwhile heals faults that are due.
    fn wait(&mut self, run: &mut Run, ended: u64) {
        loop {
            let due = self.undo.iter().map(|(at, _)| *at).min().unwrap_or(self.end).min(self.end);
            let (shared, progress) = (run.clients.shared.clone(), run.clients.progress.clone());
            let reached = || shared.borrow().history.ended() >= ended || progress.is_over();
            let left = due.since(run.nodes.world.now());
            let is_reached = run.nodes.world.run_until(reached, left).is_ok();
            self.undo_due(run);
            if is_reached || run.nodes.world.now() >= self.end {
                return;
            }
        }
    }

    fn undo_due(&mut self, run: &mut Run) {
        let now = run.nodes.world.now();
        let (due, rest) = self.undo.drain(..).partition(|(at, _)| *at <= now);
        self.undo = rest;
        let due: Vec<(Instant, Undo)> = due;
        for (_, undo) in due {
            self.undo(run, undo);
        }
    }

    fn undo(&self, run: &mut Run, undo: Undo) {
        match undo {
            Undo::Restart(node) => run.nodes.restart(node),
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
                    run.nodes.world.heal(&name(a), &name(b));
                }
            }
            Undo::Links(node) => {
                usual_links(&run.nodes, node);
            }
            Undo::Disk(node) => run.nodes.world.disk(&name(node)).set_slow(None),
            Undo::GoodDisk(node, since) => {
                run.evidence.losses.push(Loss::bad_disk(since, run.nodes.world.now()));
                let disk = run.nodes.world.disk(&name(node));
                disk.set_free_bytes(None);
                disk.clear_faults();
                self.start_again(run, node);
            }
            Undo::Unrot(node, bits) => {
                for (path, bit) in bits {
                    run.nodes.world.disk(&name(node)).flip_bit(&path, bit);
                }
                self.start_again(run, node);
            }
            Undo::Drift(node) => run.nodes.world.drift_clock(&name(node), 0),
            Undo::Keys(node) => encrypted::change_keys(run, node, Keys::Usual),
            Undo::KeyProvider => run.nodes.key_server.iter().for_each(KeyServer::mend),
            Undo::Replace(node) => run.nodes.replace(node),
            Undo::GiveUp(node) => giving_up::give_up(run, node),
            Undo::OrderRemoval(host, at) => giving_up::order_removal(run, at, &host),
            Undo::GiveUpRemoval(abort, at) => giving_up::give_up_removal(run, at, abort),
            Undo::GiveUpRebuild(node) => giving_up::give_up_rebuild(run, node),
        }
    }

    /// Ends a node that may have ended already, and starts it.
    fn start_again(&self, run: &mut Run, node: usize) {
        let Some(member) = run.nodes.members.get(node) else { return };
        let (life, is_up) = (member.life.clone(), member.is_up);
        if is_up {
            run.nodes.world.kill(&life);
            run.nodes.ended(node);
        }
        run.nodes.restart(node);
        let from = run.nodes.world.now();
        operator::note_trouble(run, node, from);
        if let Some(member) = run.nodes.members.get_mut(node) {
            member.may_end = false;
        }
    }

    /// Ends everything that is broken.
    pub fn heal(&mut self, run: &mut Run) {
        let mut replacements = Vec::new();
        for (_, undo) in std::mem::take(&mut self.undo) {
            match undo {
                Undo::GoodDisk(..) | Undo::Unrot(..) | Undo::Keys(_) | Undo::KeyProvider => {
                    self.undo(run, undo)
                }
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
        run.nodes.world.heal_all();
        run.nodes.world.clear_links();
        for number in 0..run.nodes.members.len() {
            run.nodes.world.disk(&name(number)).clear_faults();
            run.nodes.world.set_clock_skew(&name(number), 0);
            usual_links(&run.nodes, number);
            if let Some(member) = run.nodes.members.get(number) {
                run.nodes.world.resume(&member.life);
            }
        }
        if !replacements.is_empty() {
            // Only a node that is known to be down is replaced.
            run.nodes.world.run_for(KNOWN_AS_DOWN);
        }
        for undo in replacements {
            self.undo(run, undo);
        }
        healed(run);
    }

    /// One fault by the seed; false when it is not possible just now.
    fn strike(&mut self, run: &mut Run) -> bool {
        let total: u64 = run.nodes.scenario.kinds.iter().map(|(_, share)| share).sum();
        let mut n = run.nodes.world.random_u64() % total.max(1);
        let mut kinds = run.nodes.scenario.kinds.iter();
        let kind = kinds.find_map(|(fault, share)| {
            let is_it = n < *share;
            n = n.saturating_sub(*share);
            is_it.then_some(*fault)
        });
        let Some(fault) = kind else { return false };
        let count = run.nodes.members.len();
        let node = (run.nodes.world.random_u64() % count as u64) as usize;
        let step = 1 + (run.nodes.world.random_u64() % (count as u64 - 1).max(1)) as usize;
        let other = (node + step) % count;
        let is_hint_cut = fault == Fault::PowerCut && run.nodes.scenario.hint_cuts;
        let node = if is_hint_cut { with_hints(run).unwrap_or(node) } else { node };
        let most = run.nodes.scenario.fault_length_max.as_micros() as u64;
        let length = Duration::from_micros(100_000 + run.nodes.world.random_u64() % most.max(1));
        if run.nodes.members.get(node).is_none_or(|m| m.has_left) {
            return false;
        }
        let until = run.nodes.world.now() + length;
        let is_done = self.carry_out(run, &Hit { fault, node, other, length, until });
        if is_done {
            *self.counts.entry(fault.name()).or_default() += 1;
        }
        is_done
    }

    /// Returns true if a fault has ended a node, or keeps it from starting, already.
    fn is_in_repair(&self, node: usize) -> bool {
        self.undo.iter().any(|(_, undo)| match undo {
            Undo::GoodDisk(n, _) | Undo::Unrot(n, _) | Undo::Replace(n) | Undo::Restart(n) => {
                *n == node
            }
            Undo::Heal(_)
            | Undo::Links(_)
            | Undo::Disk(_)
            | Undo::Drift(_)
            | Undo::Keys(_)
            | Undo::KeyProvider
            | Undo::GiveUp(_)
            | Undo::OrderRemoval(..)
            | Undo::GiveUpRemoval(..)
            | Undo::GiveUpRebuild(_) => false,
        })
    }

    /// Changes the keys of a node, or breaks the provider of the keys of files.
    fn break_keys(&mut self, run: &mut Run, hit: &Hit) {
        let Hit { fault, node, until, .. } = *hit;
        let random = run.nodes.world.random_u64();
        if fault == Fault::BreakKeys {
            run.nodes.key_server.iter().for_each(|server| server.break_it(random));
            self.undo.push((until, Undo::KeyProvider));
            return;
        }
        encrypted::change_keys(run, node, Keys::other(random));
        self.undo.push((until, Undo::Keys(node)));
    }

    /// False when it is not possible just now.
    fn carry_out(&mut self, run: &mut Run, hit: &Hit) -> bool {
        let Hit { fault, node, other, until, .. } = *hit;
        let alone = node == other;
        match fault {
            Fault::Kill | Fault::PowerCut => return self.end(run, hit),
            Fault::Pause => return self.pause(run, hit),
            Fault::Isolate => {
                let others = (0..run.nodes.members.len()).filter(|other| *other != node);
                self.cut_off(run, hit, others.map(|other| (node, other)).collect());
            }
            Fault::Partition | Fault::OneWay | Fault::Reset if alone => return false,
            Fault::Partition => self.cut_off(run, hit, vec![(node, other)]),
            Fault::OneWay => {
                run.nodes.world.clog(&name(node), &name(other));
                self.undo.push((until, Undo::Heal(vec![(node, other)])));
            }
            Fault::Reset => run.nodes.world.reset_connections(&name(node), &name(other)),
            Fault::ClientReset => {
                for client in 0..run.nodes.scenario.clients {
                    run.nodes.world.reset_connections(&name(node), &format!("c{client}"));
                }
            }
            Fault::SlowLink | Fault::LossyLink | Fault::ThinLink => {
                let link = bad_link(run, fault);
                set_links(run, node, &link);
                self.undo.push((until, Undo::Links(node)));
            }
            Fault::ClockJump => {
                let micros = (run.nodes.world.random_u64() % 40_000_000) as i64 - 20_000_000;
                run.nodes.world.jump_clock(&name(node), micros);
            }
            Fault::ClockDrift => {
                let millionths = (run.nodes.world.random_u64() % 400_000) as i64 - 200_000;
                run.nodes.world.drift_clock(&name(node), millionths);
                self.undo.push((until, Undo::Drift(node)));
            }
            Fault::ChangeKeys | Fault::BreakKeys => self.break_keys(run, hit),
            Fault::SlowDisk => self.slow_disk(run, hit, 5_000..50_000),
            Fault::SlowNode => {
                self.slow_disk(run, hit, 1_000..20_000);
                let latency_micros = Some(20_000..200_000);
                set_links(run, node, &LinkOptions { latency_micros, ..LinkOptions::default() });
                self.undo.push((until, Undo::Links(node)));
            }
            Fault::Datacenters => {
                let pairs = between_datacenters(run);
                if pairs.is_empty() {
                    return false;
                }
                self.cut_off(run, hit, pairs);
            }
            Fault::DiskFull | Fault::BadDisk | Fault::BitRot => return self.break_disk(run, hit),
            Fault::RollingRestart if self.is_one_broken(run) => return false,
            Fault::RollingRestart => operator::rolling_restart(run),
            Fault::SwapAddresses => return self.swap_addresses(run, hit),
            Fault::Replace => return self.replace(run, hit),
            Fault::Decommission | Fault::Remove => return self.take_out(run, hit),
            Fault::Abort => return self.begin_and_abort(run, hit),
            Fault::AlterKeyspace
            | Fault::Unschedule
            | Fault::Compact
            | Fault::Rebuild
            | Fault::Move
            | Fault::Repair => return self.order(run, hit),
        }
        true
    }

    /// Returns true if a node is up and healthy, and nothing is about to end it.
    fn is_well(&self, run: &Run, node: usize) -> bool {
        let member = run.nodes.members.get(node);
        member.is_some_and(|m| m.is_up && !m.may_end) && !self.is_in_repair(node)
    }

    /// Ends a node; it starts again after a while.
    fn end(&mut self, run: &mut Run, hit: &Hit) -> bool {
        let Hit { fault, node, length, .. } = *hit;
        let Some(member) = run.nodes.members.get(node) else { return false };
        if !member.is_up || self.is_in_repair(node) {
            return false;
        }
        let life = member.life.clone();
        end_process(run, fault, &name(node), &life);
        if run.nodes.scenario.replication == 1 {
            let now = run.nodes.world.now();
            run.evidence.losses.push(match fault {
                Fault::PowerCut => Loss::power_cut(now),
                _ => Loss::kill(now),
            });
        }
        run.nodes.ended(node);
        let until = run.nodes.world.now() + length;
        self.trouble(run, node, until);
        self.undo.push((until, Undo::Restart(node)));
        true
    }

    fn pause(&mut self, run: &mut Run, hit: &Hit) -> bool {
        let Some(member) = run.nodes.members.get(hit.node).filter(|m| m.is_up) else {
            return false;
        };
        run.nodes.world.pause(&member.life, hit.length);
        self.trouble(run, hit.node, hit.until);
        true
    }

    /// Cuts both ways between nodes.
    fn cut_off(&mut self, run: &Run, hit: &Hit, pairs: Vec<(usize, usize)>) {
        for (a, b) in &pairs {
            run.nodes.world.partition(&name(*a), &name(*b));
        }
        self.undo.push((hit.until, Undo::Heal(pairs)));
    }

    fn slow_disk(&mut self, run: &mut Run, hit: &Hit, micros: std::ops::Range<u64>) {
        run.nodes.world.disk(&name(hit.node)).set_slow(Some(micros));
        self.trouble(run, hit.node, hit.until);
        self.undo.push((hit.until, Undo::Disk(hit.node)));
    }

    /// One node at a time may lose its disk's content, or refuse writes.
    fn break_disk(&mut self, run: &mut Run, hit: &Hit) -> bool {
        let Hit { fault, node, until, .. } = *hit;
        if !self.is_well(run, node) || self.is_one_broken(run) {
            return false;
        }
        let disk = run.nodes.world.disk(&name(node));
        let undo = match fault {
            Fault::BitRot => {
                let bits = rot(&run.nodes, node);
                if bits.is_empty() {
                    return false;
                }
                Undo::Unrot(node, bits)
            }
            Fault::DiskFull => {
                disk.set_free_bytes(Some(run.nodes.world.random_u64() % 65_536));
                Undo::GoodDisk(node, run.nodes.world.now())
            }
            _ => {
                let one_in = 2 + run.nodes.world.random_u64() % 50;
                disk.set_failing_reads(Some((one_in, IoErrorKind::Device)));
                if run.nodes.world.random_u64().is_multiple_of(2) {
                    disk.set_failing(Some(IoErrorKind::Device));
                }
                Undo::GoodDisk(node, run.nodes.world.now())
            }
        };
        if let Some(member) = run.nodes.members.get_mut(node) {
            member.may_end = true;
        }
        self.trouble(run, node, until);
        self.undo.push((until, undo));
        true
    }

    fn swap_addresses(&mut self, run: &mut Run, hit: &Hit) -> bool {
        let Hit { node, other, .. } = *hit;
        if node == other || !self.is_well(run, node) || !self.is_well(run, other) {
            return false;
        }
        operator::swap_addresses(run, node, other);
        true
    }

    /// A node dies for good; another one replaces it.
    fn replace(&mut self, run: &mut Run, hit: &Hit) -> bool {
        let Hit { node, until, .. } = *hit;
        // The seed finds the others.
        let can = node != 0 && self.is_well(run, node) && !self.is_one_broken(run);
        let Some(member) = run.nodes.members.get(node) else { return false };
        if !can || !run.operations.pending.is_empty() {
            return false;
        }
        run.nodes.world.power_cut(&member.life);
        run.nodes.ended(node);
        let until = until + REPLACE_AFTER;
        self.trouble(run, node, until + REPLACE_AFTER);
        self.undo.push((until, Undo::Replace(node)));
        true
    }

    /// Returns true if the keyspace has enough replicas without one of the nodes.
    fn may_shrink(run: &Run) -> bool {
        let needed = run.nodes.scenario.replication * run.nodes.scenario.datacenters;
        let there = run.nodes.members.iter().filter(|m| !m.has_left && !m.may_end).count() as u64;
        there > needed
    }

    /// A node leaves, or dies for good and is removed.
    fn take_out(&mut self, run: &mut Run, hit: &Hit) -> bool {
        let Hit { fault, node, .. } = *hit;
        let is_last = self.counts.contains_key(fault.name());
        if node == 0 || !self.is_well(run, node) || is_last || self.is_one_broken(run) {
            return false;
        }
        if !Nemesis::may_shrink(run) {
            return false;
        }
        self.trouble(run, node, self.end);
        if fault == Fault::Remove {
            return self.remove(run, node);
        }
        operator::begin_decommission(run, node);
        true
    }

    /// A node begins to move or to leave; that is aborted.
    fn begin_and_abort(&mut self, run: &mut Run, hit: &Hit) -> bool {
        let node = hit.node;
        if node == 0 || !self.is_well(run, node) || self.is_one_broken(run) {
            return false;
        }
        let may_leave = Nemesis::may_shrink(run);
        if run.nodes.world.random_u64().is_multiple_of(2) && operator::begin_move(run, node) {
            self.give_up_soon(run, node);
        } else if may_leave {
            self.trouble(run, node, self.end);
            operator::begin_decommission(run, node);
            self.give_up_soon(run, node);
        } else {
            return false;
        }
        true
    }

    /// An order of an administrator to a node that is up and good.
    fn order(&mut self, run: &mut Run, hit: &Hit) -> bool {
        let Hit { fault, node, .. } = *hit;
        let life = run.nodes.members.get(node).map(|m| m.life.clone());
        let is_alive = life.is_some_and(|life| run.nodes.world.is_alive(&life));
        if !self.is_well(run, node) || !is_alive {
            return false;
        }
        match fault {
            Fault::AlterKeyspace => {
                let least = run.nodes.scenario.replication;
                let most = run.nodes.scenario.nodes;
                let replicas = least + run.nodes.world.random_u64() % (most + 1 - least);
                operator::change_replicas(run, node, replicas);
            }
            Fault::Unschedule => return schedule::interrupt_schedule(run, node),
            Fault::Rebuild => {
                operator::begin_rebuild(run, node);
                if run.nodes.scenario.has(Fault::Abort) {
                    let after = micros(run, GIVE_UP_MICROS);
                    let at = run.nodes.world.now() + after;
                    self.undo.push((at, Undo::GiveUpRebuild(node)));
                }
            }
            Fault::Repair => schedule::begin_repair(run, node),
            Fault::Move => {
                return run.operations.pending.is_empty() && operator::begin_move(run, node);
            }
            _ => operator::begin_compaction(run, node),
        }
        true
    }

    /// Returns true if a node has lost its disk, or will, or may not accept writes.
    fn is_one_broken(&self, run: &Run) -> bool {
        let is_bad =
            |undo: &Undo| matches!(undo, Undo::GoodDisk(..) | Undo::Unrot(..) | Undo::Replace(_));
        self.undo.iter().any(|(_, undo)| is_bad(undo))
            || run.nodes.members.iter().any(|m| m.may_end)
            || !run.operations.pending.is_empty()
    }

    fn trouble(&self, run: &mut Run, node: usize, until: Instant) {
        let from = run.nodes.world.now();
        run.trouble(node, from, until + AFTERMATH);
    }
}

/// Draws a duration below that many microseconds.
fn micros(run: &Run, below: u64) -> Duration {
    Duration::from_micros(run.nodes.world.random_u64() % below)
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
    run.nodes.members.iter().position(|m| m.is_up && !m.has_left && on_disk(m) > 0)
}

fn set_links(run: &Run, node: usize, link: &LinkOptions) {
    for other in (0..run.nodes.members.len()).filter(|other| *other != node) {
        run.nodes.world.set_link(&name(node), &name(other), link.clone());
        run.nodes.world.set_link(&name(other), &name(node), link.clone());
    }
}

/// All pairs of nodes of different datacenters.
fn between_datacenters(run: &Run) -> Vec<(usize, usize)> {
    let of = |node: usize| run.nodes.scenario.datacenter(node as u64);
    let count = run.nodes.members.len();
    let pairs = (0..count).flat_map(|a| (a + 1..count).map(move |b| (a, b)));
    pairs.filter(|(a, b)| of(*a) != of(*b)).collect()
}

/// Ends a node: at once, or inside one of its next file calls. Most of these are writes of a commit
/// log, so that requests are interrupted between shards and between nodes.
fn end_process(run: &Run, fault: Fault, name: &str, life: &SimNode) {
    let world = &run.nodes.world;
    let kind = if fault == Fault::Kill { CrashKind::Kill } else { CrashKind::PowerCut };
    if fault == Fault::PowerCut && run.nodes.scenario.hint_cuts && with_hints(run).is_some() {
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
    let random = run.nodes.world.random_u64();
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

/// After healing: nodes whose joins were aborted are started again, and all must succeed now.
pub fn healed(run: &mut Run) {
    // Refused because the old one was considered alive, or aborted before it could ask.
    let is_refused = |run: &Run, member: &Member| {
        let ended = member.is_up && !run.nodes.world.is_alive(&member.life);
        ended && member.may_end && member.options.replace_address_first_boot.is_some()
    };
    if run.nodes.members.iter().any(|member| is_refused(run, member)) {
        // The advice of the refusal: retry once all nodes have noticed that the old one is dead.
        run.nodes.world.run_for(KNOWN_AS_DOWN);
    }
    for number in 0..run.nodes.members.len() {
        let Some(member) = run.nodes.members.get_mut(number) else { return };
        if member.may_end && member.is_up && !run.nodes.world.is_alive(&member.life) {
            run.nodes.probes.bump("node ended by itself and started again", 1);
            run.nodes.ended(number);
        }
        run.nodes.restart(number);
        let may_end = run.operations.pending.iter().any(|p| p.may_end(number));
        if let Some(member) = run.nodes.members.get_mut(number) {
            member.may_end = may_end;
        }
    }
}
