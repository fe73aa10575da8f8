//! One page of a scan over token ranges: sub-ranges of one replica set each, several at a time,
//! shown in ring order.
//!
//! Sources of the rules: Cassandra `ReplicaPlanMerger`, `RangeCommandIterator`. Each sub-range is a
//! [`ReadRequest`] (data from one replica, digests from others); a sub-range whose page ended at a
//! limit continues in its slot.
//!
//! INV-range-1: `Emit`s come in ring order, and nothing after a sub-range is emitted before it is
//! exhausted.

use std::collections::VecDeque;
use std::time::Duration;

use stdx::{Instant, Token};

use crate::plan::ReadPlan;
use crate::read::{ReadConfig, ReadInput, ReadOutcome, ReadOutput, ReadRequest};
use crate::types::{Outputs, RequestError};

/// Most sub-ranges that one scan reads at a time.
pub const RANGES_IN_FLIGHT_MAX: u16 = 64;

/// Tokens after `after`, up to and including `upto`; never wraps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenRange {
    /// Excluded.
    pub after: Token,
    /// Included.
    pub upto: Token,
}

/// A sub-range of the ring with one set of replicas.
#[derive(Clone, Debug)]
pub struct SubRange {
    /// Its tokens.
    pub range: TokenRange,
    /// Its replicas.
    pub plan: ReadPlan,
    /// Number of the driver's ranges in it, at least 1.
    pub ranges: u32,
}

/// Settings of one page of a scan.
#[derive(Clone, Copy, Debug)]
pub struct RangeConfig {
    /// Settings of each sub-range's read; `rows` are those wanted of the whole page.
    pub read: ReadConfig,
    /// Ranges that the driver will give in all, about: the divisor of the estimates.
    pub ranges_total: u32,
    /// Ranges to begin with, by the driver's estimate of rows per range.
    pub ranges_at_first: u32,
    /// Most sub-ranges at a time, 1 to [`RANGES_IN_FLIGHT_MAX`]. The driver may hold as many pages.
    pub in_flight_max: u16,
    /// Deadline of each page of a sub-range, counted from its request. It replaces the deadline of
    /// `read`: a scan that makes progress may take any time.
    pub page_timeout: Option<Duration>,
}

/// Events of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeInput {
    /// Begin.
    Start,
    /// Something happened to the read of a slot.
    Slot {
        /// The slot.
        slot: u16,
        /// The event; never `Start` or `Tick`.
        input: ReadInput,
    },
    /// The reader stopped at an `Emit`: the driver drops the outputs after it and gives this. The
    /// reader knows where the page ended.
    Enough,
    /// The instant of the last `WakeAt` has come.
    Tick,
}

/// Actions of the driver for a scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RangeOutput {
    /// A slot is used for a sub-range from here on.
    Open {
        /// The slot.
        slot: u16,
        /// The sub-range.
        range: TokenRange,
        /// It continues after the end of the page that it emitted last.
        goes_on: bool,
        /// Live rows to ask of each replica.
        rows: u32,
    },
    /// Do this for the read of a slot; never `WakeAt` or `Done`.
    Slot {
        /// The slot.
        slot: u16,
        /// The action.
        output: ReadOutput,
    },
    /// Show the rows of a slot's page to the reader; they come next in ring order.
    Emit {
        /// The slot.
        slot: u16,
        /// Location of the page.
        outcome: ReadOutcome,
    },
    /// Give `Tick` at this instant; replaces the one before.
    WakeAt(Instant),
    /// The page of the scan is over.
    Done(Result<ScanEnd, RequestError>),
}

/// End of a page of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanEnd {
    /// No data follows.
    Exhausted,
    /// All tokens up to this one are read.
    After(Token),
    /// At the end of the page that was emitted last, or where the reader stopped in it.
    InPage,
}

#[derive(Debug)]
struct Slot {
    sub: SubRange,
    read: ReadRequest,
    result: Option<Result<ReadOutcome, RequestError>>,
    wake: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Running,
    Done,
}

/// The next sub-range, merged with the following ones that its replicas have too. `ahead` holds the one after it.
pub fn next_merged(
    ahead: &mut Option<SubRange>,
    ranges: &mut dyn Iterator<Item = SubRange>,
) -> Option<SubRange> {
    let mut sub = ahead.take().or_else(|| ranges.next())?;
    for next in &mut *ranges {
        let touches = sub.range.upto == next.range.after;
        match sub.plan.merge(&next.plan).filter(|_| touches) {
            Some(plan) => {
                let range = TokenRange { after: sub.range.after, upto: next.range.upto };
                sub = SubRange { range, plan, ranges: sub.ranges.saturating_add(next.ranges) };
            }
            None => {
                *ahead = Some(next);
                break;
            }
        }
    }
    Some(sub)
}

/// One coordinator-side page of a scan. The sub-ranges come from an iterator of the driver's, in
/// ring order, adjacent ones touching. Each step gets the iterator, so that no list of the ring's
/// ranges is ever built.
#[derive(Debug)]
pub struct RangeRequest {
    config: RangeConfig,
    phase: Phase,
    slots: Vec<Option<Slot>>,
    /// Slots in ring order.
    order: VecDeque<u16>,
    ahead: Option<SubRange>,
    ranges_read: u32,
    concurrency: u32,
    rows: u32,
    /// End of the emitted part.
    end: Option<ScanEnd>,
    wake: Option<Instant>,
}

impl RangeRequest {
    /// A page of a scan.
    pub fn new(mut config: RangeConfig) -> RangeRequest {
        config.in_flight_max = config.in_flight_max.clamp(1, RANGES_IN_FLIGHT_MAX);
        config.read.rows = config.read.rows.max(1);
        RangeRequest {
            config,
            phase: Phase::Idle,
            slots: Vec::new(),
            order: VecDeque::new(),
            ahead: None,
            ranges_read: 0,
            concurrency: config.ranges_at_first.max(1),
            rows: 0,
            end: None,
            wake: None,
        }
    }

    /// The read of a slot, for the hosts of its targets.
    pub fn slot(&self, slot: u16) -> Option<&ReadRequest> {
        self.slots.get(usize::from(slot))?.as_ref().map(|s| &s.read)
    }

    /// Returns true if it is answered; the driver may drop it.
    pub fn is_finished(&self) -> bool {
        self.phase == Phase::Done
    }

    /// Advances by one event and appends the driver's actions. `ranges` yields the sub-ranges after
    /// those that it yielded before.
    ///
    /// Pre: `now` never decreases. Post: after `Done` nothing follows; it is done at the deadline's
    /// step at the latest. If each page has a deadline, that of the page that is shown next counts.
    pub fn step(
        &mut self,
        now: Instant,
        input: RangeInput,
        ranges: &mut dyn Iterator<Item = SubRange>,
        out: &mut Outputs<RangeOutput>,
    ) {
        match (self.phase, input) {
            (Phase::Done, _) => return,
            (Phase::Idle, RangeInput::Start) => {
                self.phase = Phase::Running;
                self.next_batch(now, ranges, out);
            }
            (Phase::Idle, _) => return,
            (_, RangeInput::Start) => {}
            (_, RangeInput::Slot { slot, input }) => self.step_slot(now, slot, input, out),
            (_, RangeInput::Enough) => return self.done(Ok(ScanEnd::InPage), out),
            (_, RangeInput::Tick) => {
                self.wake = None;
                self.tick(now, out);
            }
        }
        if self.config.page_timeout.is_none() && now >= self.config.read.deadline {
            // The first sub-range that is not read gives the answer.
            self.tick(now, out);
        }
        self.emit(now, ranges, out);
        self.rearm(out);
    }

    fn done(&mut self, result: Result<ScanEnd, RequestError>, out: &mut Outputs<RangeOutput>) {
        stdx::debug_invariant!(self.phase != Phase::Done, "INV-request-1: a scan answers twice");
        self.phase = Phase::Done;
        out.push(RangeOutput::Done(result));
    }

    fn tick(&mut self, now: Instant, out: &mut Outputs<RangeOutput>) {
        for slot in 0..u16::try_from(self.slots.len()).unwrap_or(u16::MAX) {
            self.step_slot(now, slot, ReadInput::Tick, out);
        }
    }

    /// Opens as many sub-ranges as the estimate asks for; done when none is left.
    fn next_batch(
        &mut self,
        now: Instant,
        ranges: &mut dyn Iterator<Item = SubRange>,
        out: &mut Outputs<RangeOutput>,
    ) {
        let mut batch: Vec<SubRange> = Vec::new();
        let mut covered = 0_u32;
        while covered < self.concurrency && batch.len() < usize::from(self.config.in_flight_max) {
            let Some(sub) = next_merged(&mut self.ahead, ranges) else { break };
            if let Err(error) = sub.plan.check() {
                // Before anything of this batch is sent.
                return self.done(Err(error), out);
            }
            covered = covered.saturating_add(sub.ranges.max(1));
            batch.push(sub);
        }
        if batch.is_empty() {
            return self.done(Ok(ScanEnd::Exhausted), out);
        }
        self.ranges_read = self.ranges_read.saturating_add(covered);
        self.slots.clear();
        for sub in batch {
            let slot = u16::try_from(self.slots.len()).unwrap_or(u16::MAX);
            self.slots.push(None);
            self.order.push_back(slot);
            self.open(now, slot, sub, false, out);
        }
    }

    /// Returns the deadline of a page that is requested now.
    pub fn page_deadline(&self, now: Instant) -> Instant {
        self.config.page_timeout.map_or(self.config.read.deadline, |timeout| now + timeout)
    }

    fn open(
        &mut self,
        now: Instant,
        slot: u16,
        sub: SubRange,
        goes_on: bool,
        out: &mut Outputs<RangeOutput>,
    ) {
        let rows = self.config.read.rows.saturating_sub(self.rows).max(1);
        out.push(RangeOutput::Open { slot, range: sub.range, goes_on, rows });
        let deadline = self.page_deadline(now);
        let config = ReadConfig { rows, deadline, ..self.config.read };
        let read = ReadRequest::new(sub.plan.clone(), config);
        match self.slots.get_mut(usize::from(slot)) {
            Some(place) => *place = Some(Slot { sub, read, result: None, wake: None }),
            None => stdx::invariant!(false, "scan: sub-range {slot} would be left out"),
        }
        self.step_slot(now, slot, ReadInput::Start, out);
    }

    fn step_slot(
        &mut self,
        now: Instant,
        slot: u16,
        input: ReadInput,
        out: &mut Outputs<RangeOutput>,
    ) {
        let Some(Some(place)) = self.slots.get_mut(usize::from(slot)) else { return };
        let mut outputs = Outputs::new();
        place.read.step(now, input, &mut outputs);
        for output in outputs.drain(..) {
            match output {
                ReadOutput::WakeAt(at) => place.wake = Some(at),
                ReadOutput::Done(result) => place.result = Some(result),
                output => out.push(RangeOutput::Slot { slot, output }),
            }
        }
    }

    /// Emits the pages that were read, in ring order, and continues.
    fn emit(
        &mut self,
        now: Instant,
        ranges: &mut dyn Iterator<Item = SubRange>,
        out: &mut Outputs<RangeOutput>,
    ) {
        while self.phase == Phase::Running {
            let Some(slot) = self.order.front().copied() else {
                self.concurrency = self.next_concurrency();
                self.next_batch(now, ranges, out);
                continue;
            };
            let place = self.slots.get_mut(usize::from(slot)).and_then(Option::as_mut);
            let Some(result) = place.and_then(|s| s.result.take()) else { return };
            let outcome = match result {
                Ok(outcome) => outcome,
                Err(error) => return self.done(Err(error), out),
            };
            self.rows = self.rows.saturating_add(outcome.live_rows);
            out.push(RangeOutput::Emit { slot, outcome });
            let Some(Slot { sub, .. }) =
                self.slots.get_mut(usize::from(slot)).and_then(Option::take)
            else {
                return;
            };
            if let Some(ScanEnd::After(emitted)) = self.end {
                stdx::invariant!(
                    sub.range.after >= emitted,
                    "INV-range-1: the sub-range after {} is emitted behind {}",
                    sub.range.after.0,
                    emitted.0
                );
            }
            self.end = Some(if outcome.exhausted {
                ScanEnd::After(sub.range.upto)
            } else {
                ScanEnd::InPage
            });
            if outcome.exhausted {
                self.order.pop_front();
            }
            if self.rows >= self.config.read.rows {
                let is_last = self.order.is_empty() && outcome.exhausted && {
                    self.ahead = self.ahead.take().or_else(|| ranges.next());
                    self.ahead.is_none()
                };
                let end = if is_last { Some(ScanEnd::Exhausted) } else { self.end };
                return self.done(Ok(end.unwrap_or(ScanEnd::InPage)), out);
            }
            if !outcome.exhausted {
                self.open(now, slot, sub, true, out);
            }
        }
    }

    /// Ranges to read at a time from here on: as many as should give the rows that are missing.
    /// Source: `RangeCommandIterator.computeConcurrencyFactor`.
    fn next_concurrency(&self) -> u32 {
        let left = self.config.ranges_total.saturating_sub(self.ranges_read);
        let most = left.clamp(1, u32::from(self.config.in_flight_max));
        if self.rows == 0 {
            return most;
        }
        let missing = u64::from(self.config.read.rows.saturating_sub(self.rows));
        let read = u64::from(self.ranges_read.max(1));
        // missing / (rows / ranges), rounded.
        let rows = u64::from(self.rows);
        let factor = (missing.saturating_mul(read).saturating_add(rows / 2)) / rows;
        u32::try_from(factor).unwrap_or(u32::MAX).clamp(1, most)
    }

    /// Sets the timer to the first one of the slots.
    fn rearm(&mut self, out: &mut Outputs<RangeOutput>) {
        if self.phase != Phase::Running {
            return;
        }
        let wakes = self.slots.iter().flatten().filter(|s| s.result.is_none());
        let first = wakes.filter_map(|s| s.wake).min().unwrap_or(self.config.read.deadline);
        if self.wake != Some(first) {
            self.wake = Some(first);
            out.push(RangeOutput::WakeAt(first));
        }
    }
}
