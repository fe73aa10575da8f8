//! One page of one partition or sub-range: data from the best replica, digests from others,
//! reconciliation and repair when they differ.
//!
//! Sources of the rules: Cassandra `AbstractReadExecutor`, `ReadCallback`, `AbstractReadRepair`,
//! `BlockingReadRepair`, `BlockingPartitionRepair`, `ShortReadRowsProtection`. Different from it:
//! the page that came as data is not asked for again when digests differ; a replica that fails is
//! replaced at once, also when it was the one with the data; a short read ends the page early after
//! [`SHORT_READ_ROUNDS_MAX`] rounds (pages with few rows and a position are legal).
//!
//! Steps: `Reading` (data and digests) → when they differ `Collecting` (data of the replicas that
//! gave digests) → `Merging` (the driver calls [`crate::reconcile()`]) → when rows are missing
//! `Extending` (more from those whose page ended first), back to `Merging` → `Repairing` (the missing
//! data of each replica) → `Done`.
//!
//! A reader with a filter asks for the page filtered: the digest of the whole page comes with those of its rows that
//! pass ([`ReadConfig::filtered`]). While digests agree that is as good as the page. It is never merged: when they
//! differ, its sender is asked for its page like the replicas that gave digests.

use std::time::Duration;

use stdx::Instant;

use crate::digest::PageDigest;
use crate::plan::ReadPlan;
use crate::speculation::Threshold;
use crate::types::{Failures, Outputs, ReplicaError, RequestError, Target, TargetSet, count};

/// Most times that one page asks its replicas for more rows.
pub const SHORT_READ_ROUNDS_MAX: u32 = 4;

/// A table's `read_repair`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadRepair {
    /// The merged rows are written back, as far as the level needs, before the answer.
    Blocking,
    /// Replicas are merged and left as they are.
    None,
}

/// Settings of one read.
#[derive(Clone, Copy, Debug)]
pub struct ReadConfig {
    /// Latest instant of the answer.
    pub deadline: Instant,
    /// Threshold for asking one more replica (`speculative_retry`).
    pub speculate: Threshold,
    /// Handling of differences between replicas.
    pub read_repair: ReadRepair,
    /// Threshold for sending unacknowledged repairs to other replicas (`additional_write_policy`).
    pub additional_write: Threshold,
    /// Live rows wanted of this page, at least 1.
    pub rows: u32,
    /// The reader has a filter that replicas can apply: the page that is shown while digests agree may lack what does
    /// not pass.
    pub filtered: bool,
}

/// Properties of a page that the state machine uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageFacts {
    /// Digest of its bytes; any value when [`ReadRequest::needs_digests`] is false.
    pub digest: PageDigest,
    /// Its live rows.
    pub live_rows: u32,
    /// The replica has no data after the page.
    pub exhausted: bool,
}

/// Events of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadInput {
    /// Begin. The first input.
    Start,
    /// A page came and was accepted by the page parser; the driver keeps it. The answer to `Data`
    /// and to `More`, and to `Filtered` of a replica that does not filter.
    Data {
        /// The replica.
        from: Target,
        /// Its properties.
        page: PageFacts,
    },
    /// The rows of a page that pass the filter arrived, with the properties of the whole page; the
    /// driver keeps them. The answer to `Filtered`.
    Filtered {
        /// The replica.
        from: Target,
        /// Properties of the whole page.
        page: PageFacts,
    },
    /// A digest came.
    Digest {
        /// The replica.
        from: Target,
        /// Digest of the page it would have sent.
        digest: PageDigest,
    },
    /// A replica failed, or its answer is no page.
    Failed {
        /// The replica.
        from: Target,
        /// The reason.
        reason: ReplicaError,
    },
    /// The answer to `Reconcile`.
    Reconciled {
        /// Live rows of the merged page.
        live_rows: u32,
        /// No replica has data after the merged page.
        exhausted: bool,
        /// Replicas with the pages that ended first: asked for more when rows are missing.
        short: TargetSet,
        /// Replicas that miss something of the merged page.
        repairs: TargetSet,
    },
    /// A replica has the repair.
    RepairAck {
        /// The replica.
        from: Target,
    },
    /// A replica does not have the repair.
    RepairFailed {
        /// The replica.
        from: Target,
        /// The reason.
        reason: ReplicaError,
    },
    /// The instant of the last `WakeAt` has come.
    Tick,
}

/// Actions of the driver for a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadOutput {
    /// Ask for a page; answer `Data` or `Failed`.
    Data {
        /// The replica.
        to: Target,
    },
    /// Ask for what passes the filter of a page, and for the digest of the whole page; answer `Filtered`, `Data`
    /// with the whole page, or `Failed`.
    Filtered {
        /// The replica.
        to: Target,
    },
    /// Ask for the digest of a page; answer `Digest` or `Failed`.
    Digest {
        /// The replica.
        to: Target,
    },
    /// Ask for the page after the last one of that replica; answer `Data` or `Failed`.
    More {
        /// The replica.
        to: Target,
        /// Live rows to ask for.
        rows: u32,
    },
    /// Merge the pages of these replicas; answer `Reconciled`.
    Reconcile {
        /// The replicas.
        pages: TargetSet,
    },
    /// Write to that replica the data that all of `of` miss (its own repair, or those of others
    /// when it stands in for them); answer `RepairAck` or `RepairFailed`. No hints.
    Repair {
        /// The replica.
        to: Target,
        /// Replicas that miss the written data.
        of: TargetSet,
    },
    /// Give `Tick` at this instant; replaces the one before.
    WakeAt(Instant),
    /// The page is read, or the read failed.
    Done(Result<ReadOutcome, RequestError>),
}

/// Location of the rows of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowsFrom {
    /// In the page that this replica sent.
    Page(Target),
    /// In the filtered page that this replica sent.
    Filtered(Target),
    /// In the page that the last `Reconcile` built.
    Merged,
}

/// A page that was read at its level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadOutcome {
    /// Location of its rows.
    pub rows: RowsFrom,
    /// Number of live rows; may be fewer than wanted, even none.
    pub live_rows: u32,
    /// No data follows. Otherwise the next page continues at this page's end.
    pub exhausted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Reading,
    Collecting,
    Merging,
    Extending,
    Repairing,
    Done,
}

/// The last merge.
#[derive(Clone, Copy, Debug, Default)]
struct Merge {
    live_rows: u32,
    exhausted: bool,
    repairs: TargetSet,
}

/// One coordinator-side read of one page.
#[derive(Clone, Debug)]
pub struct ReadRequest {
    plan: ReadPlan,
    config: ReadConfig,
    phase: Phase,
    asked_data: TargetSet,
    /// Those asked for filtered pages are in it, too: they give digests with them.
    asked_digest: TargetSet,
    asked_filtered: TargetSet,
    got_data: TargetSet,
    /// Digests that came alone or with filtered pages.
    got_digest: TargetSet,
    failed: TargetSet,
    failures: Failures,
    digest: Option<PageDigest>,
    differ: bool,
    /// The first page, while digests agree.
    first: Option<(RowsFrom, PageFacts)>,
    speculate_at: Option<Instant>,
    rounds: u32,
    /// Those asked for more rows that have not answered.
    awaited: TargetSet,
    /// Someone could not give more rows: the page ends where it is.
    no_more: bool,
    merge: Merge,
    repair_sent: TargetSet,
    repair_acked: TargetSet,
    repair_failed: TargetSet,
}

impl ReadRequest {
    /// A read of one page.
    pub fn new(plan: ReadPlan, config: ReadConfig) -> ReadRequest {
        ReadRequest {
            plan,
            config,
            phase: Phase::Idle,
            asked_data: TargetSet::EMPTY,
            asked_digest: TargetSet::EMPTY,
            asked_filtered: TargetSet::EMPTY,
            got_data: TargetSet::EMPTY,
            got_digest: TargetSet::EMPTY,
            failed: TargetSet::EMPTY,
            failures: Failures::new(),
            digest: None,
            differ: false,
            first: None,
            speculate_at: None,
            rounds: 0,
            awaited: TargetSet::EMPTY,
            no_more: false,
            merge: Merge::default(),
            repair_sent: TargetSet::EMPTY,
            repair_acked: TargetSet::EMPTY,
            repair_failed: TargetSet::EMPTY,
        }
    }

    /// The plan, for the hosts of targets.
    pub fn plan(&self) -> &ReadPlan {
        &self.plan
    }

    /// Returns true if pages must be hashed: not when one answer is enough.
    pub fn needs_digests(&self) -> bool {
        self.plan.block_for() > 1
    }

    /// Returns true if it is answered; the driver may drop it (running repairs need no one to wait
    /// for them).
    pub fn is_finished(&self) -> bool {
        self.phase == Phase::Done
    }

    /// Advances by one event and appends the driver's actions.
    ///
    /// Pre: `now` never decreases. Post: after `Done` nothing follows; it is done at the deadline's
    /// step at the latest.
    pub fn step(&mut self, now: Instant, input: ReadInput, out: &mut Outputs<ReadOutput>) {
        match (self.phase, input) {
            (Phase::Done, _) => return,
            (Phase::Idle, ReadInput::Start) => {
                if let Err(error) = self.plan.check() {
                    return self.done(Err(error), out);
                }
                self.phase = Phase::Reading;
                if now < self.config.deadline {
                    self.start(now, out);
                }
            }
            (Phase::Idle, _) => return,
            _ if now >= self.config.deadline => {}
            (_, ReadInput::Data { from, page }) => self.data(now, from, page, out),
            (_, ReadInput::Filtered { from, page }) => self.filtered(now, from, page, out),
            (_, ReadInput::Digest { from, digest }) => self.digest(now, from, digest, out),
            (_, ReadInput::Failed { from, reason }) => self.fail(now, from, reason, out),
            (Phase::Merging, ReadInput::Reconciled { live_rows, exhausted, short, repairs }) => {
                self.merge = Merge { live_rows, exhausted, repairs };
                self.merged(now, short, out);
            }
            (Phase::Repairing, ReadInput::RepairAck { from }) => {
                if self.repair_sent.contains(from) && !self.repair_failed.contains(from) {
                    self.repair_acked.insert(from);
                }
                self.settle_repairs(out);
            }
            (Phase::Repairing, ReadInput::RepairFailed { from, reason }) => {
                self.repair_failure(from, reason, out);
            }
            (_, ReadInput::Tick) => self.tick(now, out),
            _ => {}
        }
        if self.phase != Phase::Done && now >= self.config.deadline {
            let error = self.timeout();
            self.done(Err(error), out);
        }
    }

    fn done(&mut self, result: Result<ReadOutcome, RequestError>, out: &mut Outputs<ReadOutput>) {
        stdx::debug_invariant!(self.phase != Phase::Done, "INV-request-1: a read answers twice");
        self.phase = Phase::Done;
        out.push(ReadOutput::Done(result));
    }

    fn start(&mut self, now: Instant, out: &mut Outputs<ReadOutput>) {
        let always = self.config.speculate == Threshold::Always && self.plan.may_replace();
        let contacts = self.plan.contacts().len() + usize::from(always);
        let mut data = if always { 2 } else { 1 };
        for at in 0..contacts {
            let order =
                if self.plan.may_replace() { self.plan.candidates() } else { self.plan.contacts() };
            let Some(to) = order.get(at).copied() else { break };
            if data > 0 {
                data -= 1;
                self.ask_page(to, out);
            } else {
                self.ask_digest(to, out);
            }
        }
        self.arm(now, self.config.speculate, out);
    }

    fn ask_data(&mut self, to: Target, out: &mut Outputs<ReadOutput>) {
        self.asked_data.insert(to);
        out.push(ReadOutput::Data { to });
    }

    /// Asks for the page that is shown when digests agree.
    fn ask_page(&mut self, to: Target, out: &mut Outputs<ReadOutput>) {
        if !self.config.filtered {
            return self.ask_data(to, out);
        }
        self.asked_digest.insert(to);
        self.asked_filtered.insert(to);
        out.push(ReadOutput::Filtered { to });
    }

    /// Returns the replicas that were asked for a page, whole or filtered.
    fn asked_pages(&self) -> TargetSet {
        self.asked_data.union(self.asked_filtered)
    }

    fn ask_digest(&mut self, to: Target, out: &mut Outputs<ReadOutput>) {
        self.asked_digest.insert(to);
        out.push(ReadOutput::Digest { to });
    }

    /// Sets the timer: for one more replica when that comes before the deadline.
    fn arm(&mut self, now: Instant, threshold: Threshold, out: &mut Outputs<ReadOutput>) {
        self.speculate_at = match threshold {
            Threshold::After(delay) if self.plan.may_replace() => {
                Some(now + delay.max(Duration::from_nanos(1)))
            }
            _ => None,
        };
        self.speculate_at = self.speculate_at.filter(|at| *at < self.config.deadline);
        out.push(ReadOutput::WakeAt(self.speculate_at.unwrap_or(self.config.deadline)));
    }

    fn answered(&self) -> TargetSet {
        self.got_data.union(self.got_digest)
    }

    /// Asked and still expected to answer something in `Reading`.
    fn expected(&self) -> TargetSet {
        self.asked_data.union(self.asked_digest).minus(self.failed)
    }

    /// The best replica that was not asked for its page yet and is not in `but`. Where none may
    /// stand in for another, only one that was asked already.
    fn next_candidate(&self, but: TargetSet) -> Option<Target> {
        let but = but.union(self.failed).union(self.asked_data);
        let may_be = |t: Target| self.plan.may_replace() || self.asked_digest.contains(t);
        self.plan.candidates().iter().copied().find(|t| !but.contains(*t) && may_be(*t))
    }

    fn data(&mut self, now: Instant, from: Target, page: PageFacts, out: &mut Outputs<ReadOutput>) {
        if self.phase == Phase::Extending {
            if self.awaited.remove(from) {
                self.settle_extension(out);
            }
            return;
        }
        if !matches!(self.phase, Phase::Reading | Phase::Collecting)
            || !self.asked_pages().contains(from)
            || self.failed.contains(from)
            || !self.got_data.insert(from)
        {
            return;
        }
        // A replica that answered a filtered request with the whole page is not asked again.
        self.asked_data.insert(from);
        if self.first.is_none() {
            self.first = Some((RowsFrom::Page(from), page));
        }
        self.compare(page.digest);
        self.settle(now, out);
    }

    fn filtered(
        &mut self,
        now: Instant,
        from: Target,
        page: PageFacts,
        out: &mut Outputs<ReadOutput>,
    ) {
        if self.phase != Phase::Reading
            || !self.asked_filtered.contains(from)
            || self.failed.contains(from)
            || self.got_data.contains(from)
        {
            return;
        }
        // It may have given its digest before.
        self.got_digest.insert(from);
        if self.first.is_none() {
            self.first = Some((RowsFrom::Filtered(from), page));
        }
        self.compare(page.digest);
        self.settle(now, out);
    }

    fn digest(
        &mut self,
        now: Instant,
        from: Target,
        digest: PageDigest,
        out: &mut Outputs<ReadOutput>,
    ) {
        if self.phase != Phase::Reading
            || !self.asked_digest.contains(from)
            || self.failed.contains(from)
            || self.got_data.contains(from)
            || !self.got_digest.insert(from)
        {
            return;
        }
        self.compare(digest);
        self.settle(now, out);
    }

    fn compare(&mut self, digest: PageDigest) {
        match self.digest {
            None => self.digest = Some(digest),
            Some(first) => self.differ |= first != digest,
        }
    }

    fn settle(&mut self, now: Instant, out: &mut Outputs<ReadOutput>) {
        match self.phase {
            Phase::Reading => self.settle_reading(now, out),
            Phase::Collecting => self.settle_collecting(out),
            _ => {}
        }
    }

    fn settle_reading(&mut self, now: Instant, out: &mut Outputs<ReadOutput>) {
        if !self.plan.is_met_by(self.answered()) {
            // If the outstanding answers are not enough, other replicas are asked.
            while !self.plan.is_met_by(self.answered().union(self.expected())) {
                let asked = self.asked_data.union(self.asked_digest);
                let Some(to) = self.next_candidate(asked) else { return self.give_up(out) };
                let has_data =
                    self.first.is_some() || !self.asked_pages().minus(self.failed).is_empty();
                if has_data { self.ask_digest(to, out) } else { self.ask_page(to, out) }
            }
            return;
        }
        let Some((rows, page)) = self.first else {
            // Enough digests, but the replica that was to send the page failed or is silent.
            if self.asked_pages().minus(self.failed).is_empty() {
                match self.next_candidate(self.asked_filtered) {
                    Some(to) => self.ask_page(to, out),
                    None => self.give_up(out),
                }
            }
            return;
        };
        if self.differ && self.needs_digests() {
            return self.collect(now, out);
        }
        let (live_rows, exhausted) = (page.live_rows, page.exhausted);
        self.done(Ok(ReadOutcome { rows, live_rows, exhausted }), out);
    }

    /// Replicas differ: requests the pages of all that answered.
    fn collect(&mut self, now: Instant, out: &mut Outputs<ReadOutput>) {
        self.phase = Phase::Collecting;
        for to in self.got_digest.minus(self.asked_data).minus(self.failed).iter() {
            self.ask_data(to, out);
        }
        self.arm(now, self.config.speculate, out);
        self.settle_collecting(out);
    }

    fn settle_collecting(&mut self, out: &mut Outputs<ReadOutput>) {
        while !self.plan.is_met_by(self.got_data.union(self.asked_data.minus(self.failed))) {
            match self.next_candidate(TargetSet::EMPTY) {
                Some(to) => self.ask_data(to, out),
                None => return self.give_up(out),
            }
        }
        // Waits for replicas that differ and may still answer, as far as the level needs them.
        if self.plan.is_met_by(self.got_data) {
            self.reconcile(out);
        }
    }

    fn reconcile(&mut self, out: &mut Outputs<ReadOutput>) {
        self.phase = Phase::Merging;
        self.speculate_at = None;
        out.push(ReadOutput::WakeAt(self.config.deadline));
        out.push(ReadOutput::Reconcile { pages: self.got_data });
    }

    fn merged(&mut self, now: Instant, short: TargetSet, out: &mut Outputs<ReadOutput>) {
        let short = short.intersection(self.got_data);
        let wants_more = !self.merge.exhausted
            && !self.no_more
            && !short.is_empty()
            && self.merge.live_rows < self.config.rows
            && self.rounds < SHORT_READ_ROUNDS_MAX;
        if !wants_more {
            return self.repair(now, out);
        }
        self.rounds += 1;
        self.phase = Phase::Extending;
        self.awaited = short;
        // Twice as many each time: fetching too much costs less than one more round.
        let rows = self.config.rows.saturating_mul(1 << self.rounds.min(16));
        out.extend(short.iter().map(|to| ReadOutput::More { to, rows }));
    }

    fn settle_extension(&mut self, out: &mut Outputs<ReadOutput>) {
        if self.awaited.is_empty() {
            self.reconcile(out);
        }
    }

    fn fail(
        &mut self,
        now: Instant,
        from: Target,
        reason: ReplicaError,
        out: &mut Outputs<ReadOutput>,
    ) {
        match self.phase {
            Phase::Reading | Phase::Collecting => {
                let asked = self.asked_data.union(self.asked_digest).contains(from);
                // One that gave its digest and cannot give its page has failed too.
                let had_page = self.got_data.contains(from);
                if asked && !had_page && self.failed.insert(from) {
                    self.note(from, reason);
                    self.settle(now, out);
                }
            }
            Phase::Extending if self.awaited.contains(from) => {
                self.awaited.remove(from);
                // The merged rows stay valid; the next page tries again.
                self.no_more = true;
                self.settle_extension(out);
            }
            _ => {}
        }
    }

    fn note(&mut self, from: Target, reason: ReplicaError) {
        if let Some(replica) = self.plan.replicas.get(from) {
            let host = replica.host;
            if !self.failures.iter().any(|(h, _)| *h == host) {
                self.failures.push((host, reason));
            }
        }
    }

    /// No replica is left to ask.
    fn give_up(&mut self, out: &mut Outputs<ReadOutput>) {
        let received = match self.phase {
            Phase::Reading => self.answered().minus(self.failed).len(),
            _ => self.got_data.len(),
        };
        let error = self.error(received);
        self.done(Err(error), out);
    }

    fn error(&self, received: usize) -> RequestError {
        let block_for = count(self.plan.block_for());
        let data_present = self.first.is_some();
        let received = count(received).min(block_for);
        RequestError::read(self.plan.consistency, received, block_for, &self.failures, data_present)
    }

    /// The deadline has come. Behind the first answers the fields are those of CASSANDRA-7947.
    fn timeout(&self) -> RequestError {
        let block_for = count(self.plan.block_for());
        let (received, data_present) = match self.phase {
            Phase::Idle | Phase::Reading | Phase::Done => {
                (count(self.answered().len()), self.first.is_some())
            }
            Phase::Collecting | Phase::Merging | Phase::Extending => (block_for, true),
            Phase::Repairing => (count(self.up_to_date().len()), true),
        };
        let received = received.min(block_for.saturating_sub(1));
        let consistency = self.plan.consistency;
        RequestError::ReadTimeout { consistency, received, block_for, data_present }
    }

    fn tick(&mut self, now: Instant, out: &mut Outputs<ReadOutput>) {
        if self.speculate_at.is_none_or(|at| now < at) {
            return;
        }
        self.speculate_at = None;
        out.push(ReadOutput::WakeAt(self.config.deadline));
        match self.phase {
            Phase::Reading => {
                let asked = self.asked_data.union(self.asked_digest);
                let enough_digests = self.plan.is_met_by(self.answered());
                if self.first.is_some() {
                    if let Some(to) = self.next_candidate(asked) {
                        self.ask_digest(to, out);
                    }
                } else if let Some(to) = self.next_candidate(asked) {
                    self.ask_page(to, out);
                } else if enough_digests && let Some(to) = self.next_candidate(self.asked_filtered)
                {
                    // All were asked; only the page is missing.
                    self.ask_page(to, out);
                }
            }
            Phase::Collecting => {
                if let Some(to) = self.next_candidate(TargetSet::EMPTY) {
                    self.ask_data(to, out);
                }
            }
            Phase::Repairing => self.speculate_repairs(out),
            _ => {}
        }
    }

    fn outcome(&self) -> ReadOutcome {
        let Merge { live_rows, exhausted, .. } = self.merge;
        ReadOutcome { rows: RowsFrom::Merged, live_rows, exhausted }
    }

    /// Sends what replicas miss and waits until as many have all of it as the level needs.
    fn repair(&mut self, now: Instant, out: &mut Outputs<ReadOutput>) {
        let missing = self.merge.repairs.intersection(self.got_data);
        if self.config.read_repair == ReadRepair::None || missing.is_empty() {
            let outcome = self.outcome();
            return self.done(Ok(outcome), out);
        }
        self.phase = Phase::Repairing;
        for to in missing.iter() {
            self.send_repair(to, TargetSet::from_iter([to]), out);
        }
        if !self.plan.is_met_by(self.up_to_date()) {
            self.arm(now, self.config.additional_write, out);
        }
        self.settle_repairs(out);
    }

    /// Returns the replicas that have all of the merged page.
    fn up_to_date(&self) -> TargetSet {
        let missing = self.merge.repairs.intersection(self.got_data);
        self.got_data.minus(missing).union(self.repair_acked)
    }

    fn send_repair(&mut self, to: Target, of: TargetSet, out: &mut Outputs<ReadOutput>) {
        if self.repair_sent.insert(to) {
            out.push(ReadOutput::Repair { to, of });
        }
    }

    /// Sends unacknowledged repairs to replicas that were not read, in place of the silent ones.
    fn speculate_repairs(&mut self, out: &mut Outputs<ReadOutput>) {
        if !self.plan.may_replace() {
            return;
        }
        let missing = self.merge.repairs.intersection(self.got_data);
        let unacked = missing.minus(self.repair_acked);
        let others = self.plan.repairable().minus(self.got_data).minus(self.repair_sent);
        if !unacked.is_empty() {
            for to in others.iter() {
                self.send_repair(to, unacked, out);
            }
        }
    }

    fn repair_failure(
        &mut self,
        from: Target,
        reason: ReplicaError,
        out: &mut Outputs<ReadOutput>,
    ) {
        if !self.repair_sent.contains(from)
            || self.repair_acked.contains(from)
            || !self.repair_failed.insert(from)
        {
            return;
        }
        self.note(from, reason);
        let is_possible = |read: &ReadRequest| {
            let may_come = read.repair_sent.minus(read.repair_failed);
            read.plan.is_met_by(read.up_to_date().union(may_come))
        };
        if !is_possible(self) {
            self.speculate_repairs(out);
        }
        if !is_possible(self) {
            let error = self.error(self.up_to_date().len());
            self.done(Err(error), out);
        }
    }

    fn settle_repairs(&mut self, out: &mut Outputs<ReadOutput>) {
        if self.phase == Phase::Repairing && self.plan.is_met_by(self.up_to_date()) {
            let outcome = self.outcome();
            self.done(Ok(outcome), out);
        }
    }
}
