//! Reads of real pages: replicas that have diverged, messages that are late, refused or lost.

use std::collections::BTreeMap;

use cluster::Consistency;
use data::page_cursor::PageChain;
use data::replica_page::{PageLimits, ReplicaPage};
use proptest::prelude::*;
use stdx::Instant;

use super::reads::{after, config, plan};
use super::world::{From, NOW, Replica, RowSpec, Write, chain, encode, shape, spread, write};
use super::writes::{DEADLINE, replica};
use crate::digest::{PageDigest, digest_of};
use crate::read::{
    PageFacts, ReadConfig, ReadInput, ReadOutcome, ReadOutput, ReadRequest, RowsFrom,
};
use crate::reconcile::{ReconcileCommand, reconcile};
use crate::speculation::Threshold;
use crate::types::{Outputs, ReplicaError, RequestError, Target, TargetSet};

/// Fate of one message.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Answered,
    Refused,
    Lost,
}

/// How a simulated run is bent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bend {
    Straight,
    /// Repairs are acknowledged and not applied.
    LoseRepairs,
    /// Digests are always equal.
    BlindDigests,
}

struct Sim {
    replicas: Vec<Replica>,
    /// By time, then by number.
    queue: BTreeMap<(u64, u32), Message>,
    number: u32,
    state: u64,
    pages: BTreeMap<u8, Vec<Vec<u8>>>,
    /// Whole pages that were sent filtered.
    filtered: BTreeMap<u8, Vec<u8>>,
    merged: Option<Vec<u8>>,
    repairs: BTreeMap<u8, Vec<Vec<u8>>>,
    limits: PageLimits,
    bend: Bend,
    trouble: u64,
    wake: Option<u64>,
    reached: Reached,
}

/// Rare paths that a run came through.
#[derive(Clone, Copy, Debug, Default)]
struct Reached {
    merged: u32,
    extended: u32,
    /// Asked more replicas than the level needs.
    speculated: u32,
    /// A replica that was not read got a repair.
    stood_in: u32,
    timed_out: u32,
    failed: u32,
    /// Pages whose rows were shown filtered; pages that were merged although a filtered page was
    /// requested.
    filtered: u32,
    merged_filtered: u32,
}

#[derive(Clone)]
enum Message {
    Data(u8, From, PageLimits),
    Filtered(u8),
    Digest(u8),
    Repair(u8, Vec<Vec<u8>>),
    Write(Vec<u8>, u32),
}

impl Sim {
    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z ^ (z >> 31)
    }

    fn fate(&mut self) -> Fate {
        match self.random() % 100 {
            n if n < self.trouble => Fate::Refused,
            n if n < 2 * self.trouble => Fate::Lost,
            _ => Fate::Answered,
        }
    }

    fn post(&mut self, now: u64, message: Message) {
        let at = now + 1 + self.random() % 120;
        self.number += 1;
        self.queue.insert((at, self.number), message);
    }

    fn facts(&self, page: &[u8]) -> PageFacts {
        let view = ReplicaPage::parse(page, &shape(), false).unwrap();
        let digest = self.digest(page);
        PageFacts { digest, live_rows: view.live_rows(), exhausted: view.is_exhausted() }
    }

    fn digest(&self, page: &[u8]) -> PageDigest {
        if self.bend == Bend::BlindDigests { PageDigest(0) } else { digest_of(page) }
    }

    /// Delivers a message; the input it leads to.
    fn deliver(&mut self, message: Message) -> Option<ReadInput> {
        let fate = self.fate();
        self.meet(fate, message)
    }

    fn deliver_now(&mut self, message: Message) -> Option<ReadInput> {
        self.meet(Fate::Answered, message)
    }

    fn meet(&mut self, fate: Fate, message: Message) -> Option<ReadInput> {
        let reason = ReplicaError::Overloaded;
        let whole = self.limits;
        match message {
            Message::Write(mutation, at) => {
                for (n, replica) in self.replicas.iter_mut().enumerate() {
                    if at & (1 << n) != 0 {
                        replica.mutations.push(mutation.clone());
                    }
                }
                None
            }
            Message::Data(n, ..) | Message::Filtered(n) | Message::Digest(n)
                if fate == Fate::Refused =>
            {
                Some(ReadInput::Failed { from: Target(n), reason })
            }
            Message::Repair(n, _) if fate == Fate::Refused => {
                Some(ReadInput::RepairFailed { from: Target(n), reason })
            }
            _ if fate == Fate::Lost => None,
            Message::Data(n, from, limits) => {
                let page = self.replicas[usize::from(n)].read(false, &from, limits);
                if from == From::Start && self.pages.contains_key(&n) {
                    // It gave the whole page when it was asked to filter it.
                    return None;
                }
                let facts = self.facts(&page);
                self.pages.entry(n).or_default().push(page);
                Some(ReadInput::Data { from: Target(n), page: facts })
            }
            // A node of an earlier build.
            Message::Filtered(n) if self.random().is_multiple_of(4) => {
                self.deliver_now(Message::Data(n, From::Start, whole))
            }
            Message::Filtered(n) => {
                let page = self.replicas[usize::from(n)].read(false, &From::Start, whole);
                let facts = self.facts(&page);
                self.filtered.insert(n, page);
                Some(ReadInput::Filtered { from: Target(n), page: facts })
            }
            Message::Digest(n) => {
                let page = self.replicas[usize::from(n)].read(false, &From::Start, whole);
                Some(ReadInput::Digest { from: Target(n), digest: self.digest(&page) })
            }
            Message::Repair(n, mutations) => {
                if self.bend != Bend::LoseRepairs {
                    self.replicas[usize::from(n)].mutations.extend(mutations);
                }
                Some(ReadInput::RepairAck { from: Target(n) })
            }
        }
    }

    fn reconcile(&mut self, pages: TargetSet) -> ReadInput {
        let shape = shape();
        let command = ReconcileCommand {
            reversed: false,
            now: NOW,
            rows_per_partition: u32::MAX,
            counts_static: true,
        };
        let sources: Vec<(Target, PageChain<'_>)> =
            pages.iter().map(|t| (t, chain(&self.pages[&t.0], &shape, false))).collect();
        let merged = reconcile(&shape, &command, &sources).unwrap();
        drop(sources);
        let repairs = merged.needs_repair();
        self.repairs = merged.repairs.into_iter().map(|(t, m)| (t.0, m)).collect();
        self.merged = Some(merged.page);
        let (live_rows, exhausted, short) = (merged.live_rows, merged.exhausted, merged.short);
        ReadInput::Reconciled { live_rows, exhausted, short, repairs }
    }

    /// Executes the machine's actions; returns the result when it is done.
    fn run(
        &mut self,
        request: &mut ReadRequest,
    ) -> Result<(u64, Result<ReadOutcome, RequestError>), &'static str> {
        let mut now = 0;
        let mut inputs = vec![ReadInput::Start];
        let mut done: Option<(u64, Result<ReadOutcome, RequestError>)> = None;
        let (mut asked, mut asked_filtered) = (TargetSet::EMPTY, TargetSet::EMPTY);
        loop {
            while !inputs.is_empty() {
                let input = inputs.remove(0);
                let mut out = Outputs::new();
                request.step(Instant(now), input, &mut out);
                for output in out {
                    if done.is_some() {
                        return Err("INV-request-5: an output after the answer");
                    }
                    match output {
                        ReadOutput::Data { to } => {
                            if !asked.insert(to) {
                                return Err("one replica is asked for its page twice");
                            }
                            self.post(now, Message::Data(to.0, From::Start, self.limits));
                        }
                        ReadOutput::Filtered { to } => {
                            if !asked_filtered.insert(to) {
                                return Err("one replica is asked to filter its page twice");
                            }
                            self.post(now, Message::Filtered(to.0));
                        }
                        ReadOutput::Digest { to } => self.post(now, Message::Digest(to.0)),
                        ReadOutput::More { to, rows } => {
                            self.reached.extended += 1;
                            let from = From::end_of(self.pages[&to.0].last().unwrap()).unwrap();
                            let limits = PageLimits { rows, ..self.limits };
                            self.post(now, Message::Data(to.0, from, limits));
                        }
                        ReadOutput::Reconcile { pages } => inputs.push(self.reconcile(pages)),
                        ReadOutput::Repair { to, of } => {
                            self.reached.stood_in += u32::from(!of.contains(to));
                            let all = of.iter().filter_map(|t| self.repairs.get(&t.0));
                            let mutations = all.flatten().cloned().collect();
                            self.post(now, Message::Repair(to.0, mutations));
                        }
                        ReadOutput::WakeAt(at) => self.wake = Some(at.0),
                        ReadOutput::Done(result) => done = Some((now, result)),
                    }
                }
            }
            let next = self.queue.keys().next().copied();
            match (next, self.wake) {
                (Some((at, _)), wake) if wake.is_none_or(|w| at <= w) => {
                    now = now.max(at);
                    let message = self.queue.pop_first().unwrap().1;
                    inputs.extend(self.deliver(message));
                }
                (_, Some(wake)) if done.is_none() => {
                    now = now.max(wake);
                    self.wake = None;
                    inputs.push(ReadInput::Tick);
                }
                (None, _) => break,
                (Some(_), _) => self.wake = None,
            }
            if now > 2 * DEADLINE.0 {
                return Err("INV-request-1: a request outlives its deadline");
            }
        }
        done.ok_or("never answered")
    }

    /// INV-request-6: of any `N - block_for + 1` replicas, one has each thing that the answer shows;
    /// that is, each thing is on `block_for` of them.
    fn is_kept(&self, outcome: &ReadOutcome, block_for: usize) -> bool {
        let shape = shape();
        let shown = match outcome.rows {
            RowsFrom::Page(n) => &self.pages[&n.0][0],
            RowsFrom::Filtered(n) => &self.filtered[&n.0],
            RowsFrom::Merged => self.merged.as_ref().unwrap(),
        };
        let command = ReconcileCommand {
            reversed: false,
            now: NOW,
            rows_per_partition: u32::MAX,
            counts_static: true,
        };
        let wholes: Vec<Vec<u8>> = self.replicas.iter().map(|r| r.whole(false)).collect();
        let few = self.replicas.len() + 1 - block_for;
        let merge = |pages: &[&Vec<u8>]| {
            let chain = |p| chain(std::slice::from_ref(p), &shape, false);
            let sources: Vec<_> = (0..).map(Target).zip(pages.iter().copied().map(chain)).collect();
            reconcile(&shape, &command, &sources).unwrap()
        };
        (0..1_u32 << N).filter(|s| s.count_ones() as usize == few).all(|subset| {
            let some: Vec<&Vec<u8>> = (0..)
                .zip(&wholes)
                .filter(|(n, _)| subset & (1 << n) != 0)
                .map(|(_, w)| w)
                .collect();
            let together = merge(&some).page;
            !merge(&[shown, &together]).needs_repair().contains(Target(1))
        })
    }
}

/// One run: replicas that have diverged, further writes in flight, lost and refused messages.
#[derive(Clone, Debug)]
struct Case {
    writes: Vec<(Vec<u8>, u32)>,
    later: Vec<(Vec<u8>, u32)>,
    seed: u64,
    level: Consistency,
    speculate: Threshold,
    rows: u32,
    trouble: u64,
    filtered: bool,
}

const N: u32 = 4;

fn cases() -> impl Strategy<Value = Case> {
    let level = prop_oneof![
        1 => Just(Consistency::One),
        1 => Just(Consistency::Two),
        3 => Just(Consistency::Quorum),
        1 => Just(Consistency::All)
    ];
    let speculate = prop_oneof![
        1 => Just(Threshold::Never),
        1 => Just(Threshold::Always),
        2 => (1..300_u64).prop_map(after)
    ];
    let later = proptest::collection::vec((write(), 1..1_u32 << N), 0..3)
        .prop_map(|writes| writes.into_iter().map(|((pk, w), at)| (encode(pk, &w), at)).collect());
    // Rows that all have, most of them deleted on some: short reads.
    let deleted = proptest::option::of(1..1_u32 << N);
    let filtered = any::<bool>();
    (spread(N), later, deleted, any::<u64>(), level, speculate, 1..6_u32, 0..25_u64, filtered)
        .prop_map(
            |(mut writes, later, deleted, seed, level, speculate, rows, trouble, filtered)| {
                if let Some(at) = deleted {
                    let row = |n| encode(1, &Write::Row(n, RowSpec::inserted(20)));
                    writes.extend((0..8).map(|n| (row(n), (1 << N) - 1)));
                    let (from_after, to_after) = (false, false);
                    let gone = Write::Range { from: 0, from_after, to: 7, to_after, timestamp: 21 };
                    writes.push((encode(1, &gone), at));
                }
                Case { writes, later, seed, level, speculate, rows, trouble, filtered }
            },
        )
}

fn simulate(case: &Case, bend: Bend) -> Result<Reached, &'static str> {
    let mut sim = Sim {
        replicas: vec![Replica::default(); N as usize],
        queue: BTreeMap::new(),
        number: 0,
        state: case.seed,
        pages: BTreeMap::new(),
        filtered: BTreeMap::new(),
        merged: None,
        repairs: BTreeMap::new(),
        limits: PageLimits { rows: case.rows, ..PageLimits::default() },
        bend,
        trouble: case.trouble,
        wake: None,
        reached: Reached::default(),
    };
    for (mutation, at) in &case.writes {
        for (n, replica) in sim.replicas.iter_mut().enumerate() {
            if at & (1 << n) != 0 {
                replica.mutations.push(mutation.clone());
            }
        }
    }
    for (mutation, at) in &case.later {
        sim.post(0, Message::Write(mutation.clone(), *at));
    }
    let infos: Vec<_> = (0..4).map(|n| replica(n, 0)).collect();
    let plan = plan(case.level, &infos);
    let block_for = plan.block_for();
    let config = ReadConfig {
        rows: case.rows,
        additional_write: after(150),
        filtered: case.filtered,
        ..config(case.speculate)
    };
    let mut request = ReadRequest::new(plan, config);
    let (at, result) = sim.run(&mut request)?;
    if at > DEADLINE.0 || (at == DEADLINE.0 && result.is_ok()) {
        return Err("INV-request-1: a request outlives its deadline");
    }
    let mut reached = sim.reached;
    reached.speculated = u32::from(sim.pages.len() > block_for);
    match &result {
        Ok(outcome) => {
            reached.merged = u32::from(outcome.rows == RowsFrom::Merged);
            reached.filtered = u32::from(matches!(outcome.rows, RowsFrom::Filtered(_)));
            reached.merged_filtered = reached.merged * u32::from(!sim.filtered.is_empty());
        }
        Err(RequestError::ReadTimeout { .. }) => reached.timed_out = 1,
        Err(_) => reached.failed = 1,
    }
    match result {
        Ok(outcome) if !sim.is_kept(&outcome, block_for) => Err("shown, and on too few replicas"),
        _ => Ok(reached),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn what_a_read_shows_is_on_as_many_replicas_as_its_level_needs(case in cases()) {
        prop_assert_eq!(simulate(&case, Bend::Straight).err(), None);
    }
}

/// The checker is seen to fail: with repairs that are lost and digests that see nothing.
#[test]
fn the_checker_sees_lost_repairs_and_blind_digests_and_rare_paths_are_reached() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let (mut seen, mut reached) = ([0, 0, 0], Reached::default());
    for _ in 0..400 {
        let case = cases().new_tree(&mut runner).unwrap().current();
        for (count, bend) in
            seen.iter_mut().zip([Bend::Straight, Bend::LoseRepairs, Bend::BlindDigests])
        {
            match simulate(&case, bend) {
                Err("shown, and on too few replicas") => *count += 1,
                Err(other) => panic!("{other}"),
                Ok(run) if bend == Bend::Straight => {
                    reached.merged += run.merged;
                    reached.extended += run.extended;
                    reached.speculated += run.speculated;
                    reached.stood_in += run.stood_in;
                    reached.timed_out += run.timed_out;
                    reached.failed += run.failed;
                    reached.filtered += run.filtered;
                    reached.merged_filtered += run.merged_filtered;
                }
                Ok(_) => {}
            }
        }
    }
    assert_eq!(seen[0], 0);
    assert!(seen[1] > 10 && seen[2] > 10, "{seen:?}");
    let Reached { merged, extended, speculated, stood_in, timed_out, failed, .. } = reached;
    let filtered = [reached.filtered, reached.merged_filtered];
    let others = [merged, extended, speculated, stood_in, timed_out, failed];
    let least = others.into_iter().chain(filtered).min();
    assert!(least > Some(3), "{reached:?}");
}
