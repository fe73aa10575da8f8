//! Drives the machine of a scan (a read of one partition is a scan of one sub-range).

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::rc::Rc;

use data::command::{KeyRange, Partitions, ReadCommand, RingBound};
use data::replica_page::{PageError, PageLimits};
use data::{MutationRef, TableShape};
use internode::{Mutation, MutationFlags, ReadLimits, Verb};
use messaging::Outgoing;
use request::range::ScanEnd;
use request::read::{ReadInput, ReadOutcome, ReadOutput, RowsFrom};
use request::{
    Outputs, RangeConfig, RangeInput, RangeOutput, RangeRequest, ReadConfig, ReplicaError,
    ReplicaInfo, RequestError, SubRange, Target, TargetSet, TokenRange, digest_of,
};
use stdx::{Epoch, HostId, Instant, ShardId, TableId};
use store::{Look, ReadStats, RowSink};

use replica::{
    NodeRead, Origin, PageRows, ReplicaMutation, ReplicaQuery, Shown, Topology, go_on, has_moved,
    part_of, replica_error, resumed, tokens_of,
};

use super::asking::{ToPeer, note_needed};
use super::calls::{Answer, AnswerFuture, Asked, Calls, Event, What};
use super::filtered::{Filtered, Filtering};
use super::plan::Plan;
use super::progress::{last_place, page_scanned, skip_partition};
use super::ring_walk::RingWalk;
use super::slot::{NewSlot, Slot};
use super::{
    FILTERED_BYTES_MAX, RANGE_BYTES_MAX, RANGES_AT_FIRST, RANGES_IN_FLIGHT, Reads, store_failure,
};
use crate::shared::{ReadTrace, ReplicatedRead};

/// The sink's demand after a page.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wants {
    More,
    Nothing,
    /// The remainder must be read with newer metadata.
    NewPlan,
    /// It has met more tombstones than allowed.
    Refuses,
}

/// Next step after an output of the machine.
enum Step {
    Next,
    /// The machine is done.
    Page,
    /// The sink has enough.
    Stop,
}

/// Parameters of a read.
pub(super) struct ReadTerms {
    pub(super) plan: Plan,
    pub(super) trace: Option<Rc<ReadTrace>>,
    /// Set for a read whose pages replicas filter.
    pub(super) filtering: Option<Filtering>,
}

/// A read that runs.
pub(super) struct Reader<'a, S> {
    reads: &'a Reads,
    plan: Rc<Plan>,
    /// The plan is of this epoch.
    epoch: Epoch,
    /// Up to this epoch the rest of the read has not moved, unless `needed` is newer.
    seen: Cell<Epoch>,
    /// A replica refused the plan: the plan's metadata is older than this epoch.
    needed: Rc<Cell<Epoch>>,
    trace: Option<Rc<ReadTrace>>,
    /// Set for a read whose pages replicas filter.
    filtering: Option<Filtering>,
    /// Replicas that were asked for a digest of the page, and whether the trace records their
    /// mismatch. Used by traced reads only.
    digests: TargetSet,
    told_mismatch: bool,
    order: &'a ReplicatedRead,
    shape: Rc<TableShape>,
    sink: &'a mut S,
    show: PageRows,
    calls: Calls,
    slots: Vec<Option<Slot>>,
    uses: u32,
    /// The part of the command that is not shown yet.
    rest: ReadCommand,
    /// Nothing is.
    is_over: bool,
    began: Instant,
}

impl<'a, S: RowSink> Reader<'a, S> {
    pub(super) fn new(
        reads: &'a Reads,
        terms: ReadTerms,
        command: &ReadCommand,
        order: &'a ReplicatedRead,
        sink: &'a mut S,
    ) -> Reader<'a, S> {
        let resumed = resumed(command).map(|(key, rows)| (key.to_vec(), rows));
        let ReadTerms { plan, trace, filtering } = terms;
        Reader {
            reads,
            shape: plan.table.shape.clone(),
            plan: Rc::new(plan),
            epoch: order.snapshot.epoch,
            seen: Cell::new(order.snapshot.epoch),
            needed: Rc::new(Cell::new(order.snapshot.epoch)),
            trace,
            filtering,
            digests: TargetSet::EMPTY,
            told_mismatch: false,
            order,
            sink,
            show: PageRows::new(command, resumed),
            calls: Calls::default(),
            slots: Vec::new(),
            uses: 0,
            rest: command.clone(),
            is_over: false,
            began: reads.env().rt.now(),
        }
    }

    /// Shows everything, until the sink has enough.
    pub(super) async fn run(mut self) -> Result<ReadStats, RequestError> {
        loop {
            // A machine reads the wanted number of rows; the sink may take more than it announced.
            match self.run_machine().await? {
                Wants::Nothing | Wants::Refuses => return Ok(self.show.stats),
                Wants::NewPlan => {
                    self.plan_again().await?;
                    continue;
                }
                Wants::More => {}
            }
            if self.is_over {
                self.show.finish(self.sink);
                return Ok(self.show.stats);
            }
        }
    }

    /// Returns true if the remaining ranges have other replicas than the plan lists. A replica
    /// reports it, or this node has learnt it. Messages carry the node's epoch, not the plan's, so
    /// replicas would not notice.
    fn is_outdated(&self) -> bool {
        let cluster = &self.plan.cluster;
        let now = (cluster.parts.snapshot)();
        if now.epoch > self.seen.get() {
            self.seen.set(now.epoch);
            let has_moved =
                |topology: Rc<Topology>| has_moved(&topology, self.epoch, &self.rest.partitions);
            if now.places.last() > self.epoch
                && cluster.topology(&now, self.rest.table).is_none_or(has_moved)
            {
                self.needed.set(self.needed.get().max(now.epoch));
            }
        }
        self.needed.get() > self.epoch
    }

    /// Waits for the metadata that a replica has, and plans what is not shown yet with it.
    async fn plan_again(&mut self) -> Result<(), RequestError> {
        let reads = self.reads;
        let (needed, deadline) = (self.needed.get(), self.order.deadline_of(reads.env().rt.now()));
        reads.inner.replanned.inc();
        let parts = self.plan.cluster.parts.clone();
        let is_there = match &parts.epoch_wait {
            Some(wait) => wait(needed, deadline).await,
            None => (parts.snapshot)().epoch >= needed,
        };
        let consistency = self.order.consistency;
        if !is_there {
            let block_for = u32::try_from(self.plan.block_for()).unwrap_or(u32::MAX);
            let (received, data_present) = (0, false);
            return Err(RequestError::ReadTimeout {
                consistency,
                received,
                block_for,
                data_present,
            });
        }
        let snapshot = (parts.snapshot)();
        let table = self.plan.table.table.id;
        let Some(plan) = self.reads.plan_read(&snapshot, table, consistency) else {
            let me = snapshot.local.host_id;
            return Err(super::failed(self.order, me, ReplicaError::IncompatibleSchema));
        };
        self.shape = plan.table.shape.clone();
        self.plan = Rc::new(plan);
        self.epoch = snapshot.epoch;
        self.seen.set(snapshot.epoch);
        self.needed.set(snapshot.epoch);
        Ok(())
    }

    fn limits(&self, rows: u32) -> PageLimits {
        let rows_per_partition = self.order.limits.rows_per_partition.max(1);
        let tombstones = self.reads.env().tombstones_of_pages();
        let mut limits =
            PageLimits { rows, rows_per_partition, tombstones, ..PageLimits::default() };
        if matches!(self.rest.partitions, Partitions::Range(_)) {
            limits.bytes = match &self.filtering {
                Some(filtering) if !filtering.is_wary.get() => FILTERED_BYTES_MAX,
                _ => RANGE_BYTES_MAX,
            };
        }
        limits
    }

    async fn run_machine(&mut self) -> Result<Wants, RequestError> {
        if self.is_outdated() {
            return Ok(Wants::NewPlan);
        }
        // Pages that the previous machine read ahead are read again, with the limits of this one.
        self.calls.forget_questions();
        self.slots.clear();
        let rows = u32::try_from(self.order.rows_wanted).unwrap_or(u32::MAX).max(1);
        let now = self.reads.env().rt.now();
        let (plan, reads) = (self.plan.clone(), self.reads);
        let plan = &*plan;
        let (tokens, ranges_total) = match &self.rest.partitions {
            Partitions::Key(key) => (one_token(key), 1),
            Partitions::Range(range) => (tokens_of(range), plan.ranges()),
        };
        let is_scan = matches!(self.rest.partitions, Partitions::Range(_));
        let filtered = self.filtering.is_some();
        let read = ReadConfig { filtered, ..plan.config(now, self.order, rows, is_scan) };
        let mut request = RangeRequest::new(RangeConfig {
            read,
            ranges_total,
            ranges_at_first: RANGES_AT_FIRST,
            in_flight_max: RANGES_IN_FLIGHT,
            page_timeout: self.order.page_timeout,
        });
        let of_token = |token| plan.of_token(token);
        let mut walk = RingWalk::new(plan.placements(), tokens, of_token);
        // A read of one partition reads one token, however the ring is split.
        let mut one = match &self.rest.partitions {
            Partitions::Key(_) => {
                Some(SubRange { range: tokens, plan: plan.of_token(tokens.upto), ranges: 1 })
            }
            Partitions::Range(_) => None,
        };
        let mut one = std::iter::from_fn(|| one.take());
        let ranges: &mut dyn Iterator<Item = SubRange> = if is_scan { &mut walk } else { &mut one };
        let mut inputs = VecDeque::from([RangeInput::Start]);
        loop {
            while let Some(input) = inputs.pop_front() {
                let now = self.reads.env().rt.now();
                let mut outputs = Outputs::new();
                request.step(now, input, ranges, &mut outputs);
                let is_tick = input == RangeInput::Tick;
                for output in outputs.drain(..) {
                    match self.obey(&request, output, is_tick, &mut inputs)? {
                        Step::Next => {}
                        Step::Page => return Ok(Wants::More),
                        Step::Stop => return Ok(Wants::Nothing),
                    }
                }
                reads.env().rt.yield_if_due().await;
            }
            inputs.extend(self.next_input().await);
            if self.is_outdated() {
                return Ok(Wants::NewPlan);
            }
        }
    }

    /// Does what the machine wants.
    fn obey(
        &mut self,
        request: &RangeRequest,
        output: RangeOutput,
        is_tick: bool,
        inputs: &mut VecDeque<RangeInput>,
    ) -> Result<Step, RequestError> {
        match output {
            RangeOutput::Open { slot, range, goes_on, rows } => {
                self.open(request, slot, range, goes_on, rows);
            }
            RangeOutput::Slot { slot, output } => {
                if is_tick && !matches!(output, ReadOutput::Repair { .. }) {
                    self.reads.inner.speculations.inc();
                    if self.trace.is_some() {
                        self.note_speculation(slot, &output);
                    }
                }
                let answer = self.perform(slot, output);
                inputs.extend(answer.map(|input| RangeInput::Slot { slot, input }));
            }
            RangeOutput::Emit { slot, outcome } => match self.emit(slot, outcome) {
                Wants::Nothing => return Ok(Step::Stop),
                Wants::Refuses => return Err(self.refused(slot, outcome.rows)),
                Wants::More | Wants::NewPlan => {}
            },
            RangeOutput::WakeAt(at) => self.calls.wake_at(&self.reads.env().rt, at),
            RangeOutput::Done(result) => {
                self.is_over |= result? == ScanEnd::Exhausted;
                return Ok(Step::Page);
            }
        }
        Ok(Step::Next)
    }

    /// Returns the next input of the machine; `None`: the event does not concern the machine any
    /// more.
    async fn next_input(&mut self) -> Option<RangeInput> {
        let (asked, answer) = match self.calls.next().await {
            Event::Tick => {
                self.note_silence();
                return Some(RangeInput::Tick);
            }
            Event::Answer(asked, answer) => (asked, answer),
        };
        let Asked { slot: number, number: use_of_slot, target: from, what, .. } = asked;
        let slot = self.slots.get_mut(usize::from(number)).and_then(Option::as_mut);
        let slot = slot.filter(|s| s.number == use_of_slot)?;
        if matches!(what, What::Page | What::Filtered) && slot.has_page_of(from) {
            // It sent its whole page although it was asked to filter it.
            return None;
        }
        let taken = |taken: Result<ReadInput, PageError>, slot: &Slot| {
            taken.unwrap_or_else(|error| {
                let host = slot.replicas.get(from).map(|r| r.host);
                tracing::warn!(?host, %error, "discarding a page of a replica");
                ReadInput::Failed { from, reason: ReplicaError::Unknown }
            })
        };
        let input = match (answer, what) {
            (Ok(Answer::Page { bytes, is_own }), _) => {
                taken(slot.take_page(from, bytes, is_own), slot)
            }
            (Ok(Answer::Filtered(filtered)), _) => taken(slot.take_filtered(from, filtered), slot),
            (Ok(Answer::Digest(digest)), _) => ReadInput::Digest { from, digest },
            (Ok(Answer::Repaired), _) => ReadInput::RepairAck { from },
            (Err(reason), What::Repair) => ReadInput::RepairFailed { from, reason },
            (Err(reason), What::Page | What::Filtered | What::More | What::Digest) => {
                ReadInput::Failed { from, reason }
            }
        };
        Some(RangeInput::Slot { slot: number, input })
    }

    /// Records a latency for each replica that has not answered by the time another one is asked.
    fn note_silence(&self) {
        let now = self.reads.env().rt.now();
        for asked in self.calls.asked() {
            if asked.what != What::Repair {
                self.plan.cluster.latencies.note(asked.host, now.since(asked.at));
            }
        }
    }

    fn open(
        &mut self,
        request: &RangeRequest,
        slot: u16,
        range: TokenRange,
        goes_on: bool,
        rows: u32,
    ) {
        let Some(read) = request.slot(slot) else { return };
        let at = usize::from(slot);
        if self.slots.len() <= at {
            self.slots.resize_with(at + 1, || None);
        }
        let Some(place) = self.slots.get_mut(at) else { return };
        let command = match place {
            // Its command was advanced when its page was shown.
            Some(before) if goes_on => ReadCommand::clone(&before.command),
            _ => {
                let mut command = self.rest.clone();
                if let Partitions::Range(whole) = &mut command.partitions {
                    if range.after != tokens_of(whole).after {
                        command.resume = None;
                    }
                    *whole = part_of(whole, range);
                }
                command
            }
        };
        self.uses = self.uses.wrapping_add(1);
        (self.digests, self.told_mismatch) = (TargetSet::EMPTY, false);
        let (replicas, needs_digests) = (read.plan().replicas.clone(), read.needs_digests());
        let shape = self.shape.clone();
        let limits = self.limits(rows);
        let number = self.uses;
        let of = NewSlot { number, range, command, limits, replicas, needs_digests };
        let new = Slot::new(of, shape);
        self.calls.forget_slot(slot);
        if let Some(place) = self.slots.get_mut(at) {
            *place = Some(new);
        }
    }

    /// Does what the read of a slot wants; its answer, when there is one at once.
    fn perform(&mut self, slot: u16, output: ReadOutput) -> Option<ReadInput> {
        let reading = &self.reads.inner;
        let number = slot;
        let slot = self.slots.get_mut(usize::from(slot))?.as_mut()?;
        let (to, what, command, limits) = match output {
            ReadOutput::Data { to } => (to, What::Page, slot.command.clone(), slot.limits),
            ReadOutput::Filtered { to } => (to, What::Filtered, slot.command.clone(), slot.limits),
            ReadOutput::Digest { to } => (to, What::Digest, slot.command.clone(), slot.limits),
            ReadOutput::More { to, rows } => {
                reading.short_reads.inc();
                let reason = ReplicaError::Unknown;
                let Some(command) = slot.more(to, rows) else {
                    return Some(ReadInput::Failed { from: to, reason });
                };
                if let (Some(trace), Some(replica)) = (&self.trace, slot.replicas.get(to)) {
                    let from = self.plan.cluster.shown(replica.host);
                    trace.note(format!(
                        "Requesting {rows} extra rows from {from} for short read protection"
                    ));
                }
                (to, What::More, Rc::new(command), PageLimits { rows, ..slot.limits })
            }
            ReadOutput::Reconcile { pages } => {
                reading.mismatches.inc();
                if let Some(filtering) = &self.filtering {
                    filtering.is_wary.set(true);
                }
                if let Some(trace) = self.trace.as_ref().filter(|_| !self.told_mismatch) {
                    self.told_mismatch = true;
                    note_mismatch(trace, &slot.command);
                }
                return Some(slot.reconcile(pages));
            }
            ReadOutput::Repair { to, of } => {
                self.send_repair(number, to, of);
                return None;
            }
            // The machine of the scan keeps these to itself.
            ReadOutput::WakeAt(_) | ReadOutput::Done(_) => return None,
        };
        let replica = slot.replicas.get(to).copied()?;
        let asked = self.asked(number, to, what, &replica)?;
        if let Some(trace) = &self.trace {
            if what == What::Digest {
                self.digests.insert(to);
            } else if what == What::Page && self.digests.contains(to) && !self.told_mismatch {
                self.told_mismatch = true;
                note_mismatch(trace, &command);
            }
            trace.note(self.describe_asking(to, &replica, &command, what));
        }
        let future = match replica.is_self {
            true => self.read_here(&command, limits, what),
            false => self.read_there(&replica, command, limits, what),
        };
        self.calls.add(asked, future);
        None
    }

    /// Records the requests in Cassandra's words.
    #[cold]
    fn describe_asking(
        &self,
        to: Target,
        replica: &ReplicaInfo,
        command: &ReadCommand,
        what: What,
    ) -> String {
        let kind = if what == What::Digest { "digest" } else { "data" };
        let address = self.plan.cluster.shown(replica.host);
        match (&command.partitions, replica.is_self) {
            (Partitions::Key(_), false) if what == What::Page && self.digests.contains(to) => {
                format!("Enqueuing full data read to {address}")
            }
            (Partitions::Key(_), true) => format!("reading {kind} locally"),
            (Partitions::Key(_), false) => format!("reading {kind} from {address}"),
            (Partitions::Range(_), true) => format!("reading {kind} of a range locally"),
            (Partitions::Range(_), false) => format!("Enqueuing request to {address}"),
        }
    }

    /// Another replica is asked because one is slow.
    #[cold]
    fn note_speculation(&self, slot: u16, output: &ReadOutput) {
        let (ReadOutput::Data { to } | ReadOutput::Filtered { to } | ReadOutput::Digest { to }) =
            output
        else {
            return;
        };
        let slot = self.slots.get(usize::from(slot)).and_then(Option::as_ref);
        let replica = slot.and_then(|slot| slot.replicas.get(*to));
        if let (Some(trace), Some(replica)) = (&self.trace, replica) {
            let on = self.plan.cluster.shown(replica.host);
            trace.note(format!("speculating read retry on {on}"));
        }
    }

    fn asked(&self, slot: u16, target: Target, what: What, replica: &ReplicaInfo) -> Option<Asked> {
        let number = self.slots.get(usize::from(slot))?.as_ref()?.number;
        let at = self.reads.env().rt.now();
        Some(Asked { slot, number, target, what, host: replica.host, at })
    }

    /// Returns the filter to ask for with this page; `None`: the whole page is requested.
    fn filtering(&self, what: What, host: HostId, is_self: bool) -> Option<&Filtering> {
        let filtering = self.filtering.as_ref().filter(|_| what == What::Filtered)?;
        let may_ask = is_self || filtering.may_ask(self.reads, host);
        (may_ask && !filtering.is_wary.get()).then_some(filtering)
    }

    fn read_here(&self, command: &ReadCommand, limits: PageLimits, what: What) -> AnswerFuture {
        let query = ReplicaQuery {
            command: command.clone(),
            limits,
            purge_before: self.plan.table.purge_before(&self.reads.env().store, command.now),
            scope: store::ReadScope::All,
        };
        let (this, shape) = (self.reads.clone(), self.shape.clone());
        let trace = self.trace.clone();
        let me = self.order.snapshot.local.host_id;
        let filter = self.filtering(what, me, true).map(|filtering| filtering.filter.clone());
        Box::pin(async move {
            let notes = trace.as_ref().map(|trace| trace.shards());
            let read = NodeRead::new(&shape, query).noted(notes).filtered(filter.as_deref());
            let page = read.read(this.local()).await;
            let page = page.map_err(|error| store_failure(&this, error))?;
            Ok(match (what, filter) {
                (What::Digest, _) => Answer::Digest(digest_of(&page.page)),
                (_, None) => Answer::Page { bytes: page.page, is_own: true },
                (_, Some(_)) => {
                    let filtered = Filtered::own(page).ok_or(ReplicaError::Unknown)?;
                    Answer::Filtered(Box::new(filtered))
                }
            })
        })
    }

    fn outgoing(&self, replica: &ReplicaInfo, verb: Verb, shard: ShardId) -> Outgoing {
        Outgoing {
            host: replica.host,
            shard,
            verb,
            deadline: self.order.deadline_of(self.reads.env().rt.now()),
            trace: self.trace.as_ref().map(|trace| trace.id()),
        }
    }

    fn read_there(
        &self,
        replica: &ReplicaInfo,
        command: Rc<ReadCommand>,
        limits: PageLimits,
        what: What,
    ) -> AnswerFuture {
        let (verb, shard) = match &command.partitions {
            Partitions::Key(key) => {
                let token = codec::token_of(key);
                let map = self.plan.cluster.shard_map_of(replica.host);
                (Verb::Read, map.shard_of(command.table, token))
            }
            Partitions::Range(_) => {
                // All shards of the replica take part; any of them asks the others.
                let shards = self.plan.shards_of(replica.host);
                let own = self.reads.env().rt.shard().0;
                (Verb::RangeRead, ShardId(own.checked_rem(shards).unwrap_or(0)))
            }
        };
        let peer = ToPeer {
            cluster: self.plan.cluster.clone(),
            host: replica.host,
            shard,
            verb,
            deadline: self.order.deadline_of(self.reads.env().rt.now()),
            command,
            limits: ReadLimits {
                rows: u64::from(limits.rows),
                bytes: limits.bytes as u64,
                rows_per_partition: limits.rows_per_partition,
            },
            needed: self.needed.clone(),
            trace: self.trace.clone(),
        };
        match self.filtering(what, replica.host, false) {
            Some(filtering) => filtering.ask(self.reads, peer),
            None => peer.ask(what),
        }
    }

    /// Returns true if the table was truncated since the read began.
    fn is_truncated(&self, table: TableId) -> bool {
        let now = (self.plan.cluster.parts.snapshot)();
        now.epoch > self.order.snapshot.epoch
            && now.truncations.get(&table) != self.order.snapshot.truncations.get(&table)
    }

    /// Writes to a replica what it misses; it has it when it has all of it.
    fn send_repair(&mut self, number: u16, to: Target, of: TargetSet) {
        let Some(Some(slot)) = self.slots.get(usize::from(number)) else { return };
        let Some(replica) = slot.replicas.get(to).copied() else { return };
        let mut mutations = slot.repairs_of(of);
        if self.is_truncated(slot.command.table) {
            // The rows that were read are truncated and must not be resurrected.
            mutations.clear();
        }
        let Some(asked) = self.asked(number, to, What::Repair, &replica) else { return };
        self.reads.inner.repairs.add(mutations.len() as u64);
        if let Some(trace) = self.trace.as_ref().filter(|_| !mutations.is_empty()) {
            let to = self.plan.cluster.shown(replica.host);
            trace.note(format!("Sending read-repair-mutation to {to}"));
        }
        let durable = self.plan.table.durable;
        let future: AnswerFuture = if replica.is_self {
            let this = self.reads.clone();
            Box::pin(async move {
                for mutation in mutations {
                    let Some(token) = token_of(&mutation) else { continue };
                    let mutation = ReplicaMutation { token, bytes: mutation, durable };
                    let applied = this.local().apply(mutation, Origin::ReadRepair).await;
                    applied.map_err(|error| store_failure(&this, error))?;
                }
                Ok(Answer::Repaired)
            })
        } else {
            let map = self.plan.cluster.shard_map_of(replica.host);
            let table = self.plan.table.table.id;
            let send = |bytes: &Vec<u8>| {
                let shard = map.shard_of(table, token_of(bytes)?);
                let outgoing = self.outgoing(&replica, Verb::Mutation, shard);
                let flags = MutationFlags::READ_REPAIR;
                let messaging = &self.plan.cluster.parts.messaging;
                Some(messaging.request(&outgoing, |out| Mutation { flags, bytes }.encode(out)))
            };
            let sent: Vec<_> = mutations.iter().filter_map(send).collect();
            let needed = self.needed.clone();
            Box::pin(async move {
                for answer in sent {
                    answer.await.map_err(|error| {
                        note_needed(&needed, &error);
                        replica_error(&error)
                    })?;
                }
                Ok(Answer::Repaired)
            })
        };
        self.calls.add(asked, future);
    }

    /// Marks the replica whose page exceeds the sink's tombstone limit as failed, as in Cassandra.
    #[cold]
    fn refused(&self, slot: u16, from: RowsFrom) -> RequestError {
        let slot = self.slots.get(usize::from(slot)).and_then(Option::as_ref);
        let hosts = slot.into_iter().flat_map(|slot| slot.hosts_of(from));
        let failures = hosts.map(|host| (host, ReplicaError::TooManyTombstones)).collect();
        let consistency = self.order.consistency;
        let block_for = u32::try_from(self.plan.block_for()).unwrap_or(u32::MAX);
        RequestError::ReadFailure {
            consistency,
            received: 0,
            block_for,
            failures,
            data_present: false,
        }
    }

    /// Shows a slot's page, and advances the slot and the rest of the read past it.
    fn emit(&mut self, slot: u16, outcome: ReadOutcome) -> Wants {
        let now = self.reads.env().rt.now();
        let slot = self.slots.get_mut(usize::from(slot)).and_then(Option::as_mut);
        let Some(slot) = slot else { return Wants::More };
        let Some(page) = slot.shown(outcome.rows) else {
            stdx::invariant::broken(format_args!("the page to show is missing"))
        };
        if slot.is_of_one_partition() {
            let took = now.since(self.began);
            self.plan.cluster.note_read(slot.command.table, took);
            self.began = now;
        }
        let filtered = slot.filtered(outcome.rows);
        let before = self.show.stats;
        let shown = match self.show.page(&self.shape, page, self.sink) {
            Ok(shown) => shown,
            Err(error) => stdx::invariant::broken(format_args!("a page that was checked: {error}")),
        };
        if let Some(filtering) = &self.filtering
            && outcome.rows != RowsFrom::Merged
        {
            filtering.is_wary.set(false);
        }
        if let Some(filtered) = filtered {
            self.reads.inner.filtered.inc();
            self.show.count_filtered(&before, &filtered.page.whole);
        }
        if shown == Shown::Stop {
            return Wants::Nothing;
        }
        let mut command = ReadCommand::clone(&slot.command);
        let end = page.end();
        self.show.scan(page_scanned(&page, slot, outcome.rows));
        let last_place = match filtered {
            Some(filtered) => filtered.last_place(end),
            None => last_place(&page),
        };
        match self.show.tell(&last_place, self.sink) {
            Look::Continue => {}
            Look::Stop => return Wants::Nothing,
            Look::Refuse => return Wants::Refuses,
        }
        let mut goes_on = go_on(&mut command, &end, self.show.rows_of(end.partition()));
        if shown == Shown::NextPartition {
            goes_on &= skip_partition(&mut command);
        }
        if outcome.exhausted || !goes_on {
            match &mut self.rest.partitions {
                Partitions::Key(_) => self.is_over = true,
                Partitions::Range(rest) => {
                    rest.start = RingBound::Token { token: slot.range.upto, after: true };
                    self.rest.resume = None;
                }
            }
            // A read of one partition wants no more, whatever the machine has.
            return if self.is_over && shown == Shown::NextPartition {
                Wants::Nothing
            } else {
                Wants::More
            };
        }
        if let (Partitions::Range(rest), Partitions::Range(KeyRange { start, .. })) =
            (&mut self.rest.partitions, &command.partitions)
        {
            rest.start = start.clone();
        }
        self.rest.resume.clone_from(&command.resume);
        slot.command = Rc::new(command);
        Wants::More
    }
}

fn token_of(mutation: &[u8]) -> Option<stdx::Token> {
    MutationRef::open(mutation).map(|m| codec::token_of(m.key))
}

/// Replicas have a partition differently. Source: `AbstractReadExecutor.awaitResponses`,
/// `DecoratedKey.toString`.
#[cold]
fn note_mismatch(trace: &ReadTrace, command: &ReadCommand) {
    let Partitions::Key(key) = &command.partitions else { return };
    let mut text =
        format!("Digest mismatch: Mismatch for key DecoratedKey({}, ", codec::token_of(key).0);
    for byte in key {
        let _ = write!(text, "{byte:02x}");
    }
    text.push(')');
    trace.note(text);
}

/// The sub-range that holds one key's token.
fn one_token(key: &[u8]) -> TokenRange {
    let token = codec::token_of(key);
    TokenRange { after: stdx::Token(token.0.saturating_sub(1)), upto: token }
}
