//! A batch: its log first, then its mutations, then the log's removal.
//!
//! Source of the rules: Cassandra `StorageProxy.mutateAtomically`, `BatchlogResponseHandler`. The
//! log is removed when every mutation has met its level; else it stays, and its nodes replay it.
//! An unlogged batch over several partitions is the same without a log.

use cluster::Consistency;
use smallvec::SmallVec;
use stdx::{HostId, Instant};

use crate::plan::WritePlan;
use crate::types::{Failures, Outputs, ReplicaError, RequestError, WriteType, count};
use crate::write::{WriteInput, WriteOutput, WriteRequest};

/// Most mutations (partitions) of one batch; a batch statement cannot have more statements.
pub const BATCH_MUTATIONS_MAX: usize = 65_535;

/// Input of a batch.
#[derive(Clone, Debug)]
pub struct BatchPlan {
    /// One plan per mutation, with `WriteType::Batch` or `UnloggedBatch`.
    pub mutations: Vec<WritePlan>,
    /// The nodes that keep the log (see [`crate::batchlog::choose_log_nodes`]); `None`: unlogged.
    pub log: Option<SmallVec<[HostId; 2]>>,
}

/// Events of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchInput {
    /// Begin.
    Start,
    /// A node has the log; its place in the plan's list.
    LogStored {
        /// Place in the list.
        from: u8,
    },
    /// A node does not have the log.
    LogFailed {
        /// Place in the list.
        from: u8,
        /// The reason.
        reason: ReplicaError,
    },
    /// Something happened to a mutation.
    Mutation {
        /// Index of the mutation.
        index: u16,
        /// The event.
        input: WriteInput,
    },
    /// The instant of the last `WakeAt` has come.
    Tick,
}

/// Actions of the driver for a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BatchOutput {
    /// Store the whole batch in the log of that node (which may be this one).
    StoreLog {
        /// Place in the plan's list.
        to: u8,
    },
    /// Remove it there; no answer is wanted.
    RemoveLog {
        /// Place in the plan's list.
        to: u8,
    },
    /// Do this for a mutation; never `WakeAt` or `Done`.
    Mutation {
        /// Index of the mutation.
        index: u16,
        /// The action.
        output: WriteOutput,
    },
    /// Give `Tick` at this instant; replaces the one before.
    WakeAt(Instant),
    /// Answer the client.
    Done(Result<(), RequestError>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Logging,
    Writing,
    Lingering,
    Finished,
}

/// A batch that cannot be driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// More mutations than can be numbered.
    #[error("a batch has {0} mutations, at most {BATCH_MUTATIONS_MAX} are supported")]
    TooManyMutations(usize),
}

/// One coordinator-side batch.
#[derive(Clone, Debug)]
pub struct BatchRequest {
    mutations: Vec<WriteRequest>,
    log: SmallVec<[HostId; 2]>,
    is_logged: bool,
    deadline: Instant,
    phase: Phase,
    /// Bit per node of the log.
    log_stored: u32,
    log_failed: Failures,
    /// Mutations whose level is met.
    met: usize,
    /// Mutations without further events.
    finished: usize,
}

impl BatchRequest {
    /// A batch to be answered before `deadline`. `random` picks forwarding nodes.
    ///
    /// # Errors
    /// `TooManyMutations`.
    pub fn new(
        plan: BatchPlan,
        deadline: Instant,
        random: u64,
    ) -> Result<BatchRequest, BatchError> {
        if plan.mutations.len() > BATCH_MUTATIONS_MAX {
            return Err(BatchError::TooManyMutations(plan.mutations.len()));
        }
        let mutations = (0_u64..)
            .zip(plan.mutations)
            .map(|(i, plan)| WriteRequest::new(plan, deadline, random.wrapping_add(i)))
            .collect();
        let is_logged = plan.log.is_some();
        let mut log = plan.log.unwrap_or_default();
        log.truncate(2);
        Ok(BatchRequest {
            mutations,
            log,
            is_logged,
            deadline,
            phase: Phase::Idle,
            log_stored: 0,
            log_failed: Failures::new(),
            met: 0,
            finished: 0,
        })
    }

    /// The request of one mutation, for the hosts of its targets.
    pub fn mutation(&self, index: u16) -> Option<&WriteRequest> {
        self.mutations.get(usize::from(index))
    }

    /// The host of a log node.
    pub fn log_host(&self, place: u8) -> Option<HostId> {
        self.log.get(usize::from(place)).copied()
    }

    /// Returns true if no further outputs follow: the driver may drop it.
    pub fn is_finished(&self) -> bool {
        self.phase == Phase::Finished
    }

    /// Returns true if [`WriteRequest::is_everywhere`] holds for all mutations.
    pub fn is_everywhere(&self) -> bool {
        self.mutations.iter().all(WriteRequest::is_everywhere)
    }

    /// Advances by one event and appends the driver's actions.
    ///
    /// Pre: `now` never decreases. Post: after `Done` only hints follow.
    pub fn step(&mut self, now: Instant, input: BatchInput, out: &mut Outputs<BatchOutput>) {
        match (self.phase, input) {
            (Phase::Finished, BatchInput::Mutation { index, input }) => {
                if let Some(mutation) = self.mutations.get_mut(usize::from(index)) {
                    // Hints of the deadline's step: nothing is wanted any more.
                    mutation.step(now, input, &mut Outputs::new());
                }
                return;
            }
            (Phase::Finished, _) => return,
            (Phase::Idle, BatchInput::Start) => self.start(now, out),
            (Phase::Idle, _) => return,
            (Phase::Logging, BatchInput::LogStored { from })
                if usize::from(from) < self.log.len() && !self.has_failed(from) =>
            {
                self.log_stored |= 1 << from;
            }
            (Phase::Logging, BatchInput::LogFailed { from, reason }) => {
                if let Some(host) = self.log_host(from)
                    && self.log_stored & (1 << from) == 0
                    && !self.has_failed(from)
                {
                    self.log_failed.push((host, reason));
                }
            }
            (Phase::Writing | Phase::Lingering, BatchInput::Mutation { index, input }) => {
                self.step_mutation(now, index, input, out);
            }
            _ => {}
        }
        self.settle(now, out);
    }

    fn has_failed(&self, place: u8) -> bool {
        let host = self.log_host(place);
        self.log_failed.iter().any(|(h, _)| Some(*h) == host)
    }

    fn fail(&mut self, error: RequestError, out: &mut Outputs<BatchOutput>) {
        let is_writing = self.phase == Phase::Writing;
        self.phase = if is_writing { Phase::Lingering } else { Phase::Finished };
        out.push(BatchOutput::Done(Err(error)));
    }

    fn start(&mut self, now: Instant, out: &mut Outputs<BatchOutput>) {
        if let Some(error) = self.mutations.iter().find_map(|m| m.plan().check().err()) {
            return self.fail(error, out);
        }
        if self.is_logged && self.log.is_empty() {
            // Like Cassandra: a log without nodes needs two.
            let consistency = Consistency::Two;
            return self
                .fail(RequestError::Unavailable { consistency, required: 2, alive: 0 }, out);
        }
        out.push(BatchOutput::WakeAt(self.deadline));
        self.phase = Phase::Logging;
        if now < self.deadline {
            let nodes = u8::try_from(self.log.len()).unwrap_or(2);
            out.extend((0..nodes).map(|to| BatchOutput::StoreLog { to }));
        }
    }

    fn step_mutation(
        &mut self,
        now: Instant,
        index: u16,
        input: WriteInput,
        out: &mut Outputs<BatchOutput>,
    ) {
        let Some(request) = self.mutations.get_mut(usize::from(index)) else { return };
        let was_finished = request.is_finished();
        let mut outputs = Outputs::new();
        request.step(now, input, &mut outputs);
        if request.is_finished() && !was_finished {
            self.finished = self.finished.saturating_add(1);
        }
        for output in outputs.drain(..) {
            match output {
                WriteOutput::WakeAt(_) => {}
                WriteOutput::Done(Ok(())) => self.met = self.met.saturating_add(1),
                WriteOutput::Done(Err(error)) => {
                    if self.phase == Phase::Writing {
                        self.fail(error, out);
                    }
                }
                WriteOutput::Send { .. } if self.phase == Phase::Lingering => {}
                other => out.push(BatchOutput::Mutation { index, output: other }),
            }
        }
    }

    fn each_mutation(&mut self, now: Instant, input: WriteInput, out: &mut Outputs<BatchOutput>) {
        let all = u16::try_from(self.mutations.len()).unwrap_or(u16::MAX);
        for index in 0..all {
            self.step_mutation(now, index, input, out);
        }
    }

    fn log_error(&self) -> RequestError {
        let block_for = count(self.log.len());
        let consistency = if block_for == 1 { Consistency::One } else { Consistency::Two };
        let received = self.log_stored.count_ones();
        RequestError::write(consistency, received, block_for, &self.log_failed, WriteType::BatchLog)
    }

    fn settle(&mut self, now: Instant, out: &mut Outputs<BatchOutput>) {
        let late = now >= self.deadline;
        if self.phase == Phase::Logging {
            if self.is_logged && (late || !self.log_failed.is_empty()) {
                let error = self.log_error();
                return self.fail(error, out);
            }
            if self.log_stored.count_ones() as usize >= self.log.len() {
                self.phase = Phase::Writing;
                self.each_mutation(now, WriteInput::Start, out);
            }
        } else if late {
            self.each_mutation(now, WriteInput::Tick, out);
        }
        if self.phase == Phase::Writing && self.met >= self.mutations.len() {
            self.phase = Phase::Lingering;
            let nodes = u8::try_from(self.log.len()).unwrap_or(2);
            out.extend((0..nodes).map(|to| BatchOutput::RemoveLog { to }));
            out.push(BatchOutput::Done(Ok(())));
        }
        if self.phase == Phase::Lingering && self.finished >= self.mutations.len() {
            self.phase = Phase::Finished;
        }
    }
}
