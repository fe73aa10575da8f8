//! One mutation: sent to all its replicas, answered when its level is met.
//!
//! Source of the rules: Cassandra `StorageProxy.sendToHintedReplicas`,
//! `AbstractWriteResponseHandler` and its kinds. Different from it: a write whose level cannot be
//! met any more is answered at once, also when the missing replicas are known to be dead
//! (Cassandra counts only failures and waits for the deadline); a forwarding node that refuses
//! does not take its datacenter along.

use smallvec::SmallVec;
use stdx::Instant;

use crate::plan::WritePlan;
use crate::types::{Failures, Outputs, ReplicaError, RequestError, Target, TargetSet};

/// Events of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteInput {
    /// Begin. The first input.
    Start,
    /// The replica has the mutation.
    Ack {
        /// The replica.
        from: Target,
    },
    /// The replica does not have it.
    Failed {
        /// The replica.
        from: Target,
        /// The reason.
        reason: ReplicaError,
    },
    /// The hint is stored (as durable as a write).
    HintStored {
        /// The replica.
        to: Target,
    },
    /// The hint could not be stored.
    HintFailed {
        /// The replica.
        to: Target,
    },
    /// The instant of the last `WakeAt` has come.
    Tick,
}

/// Actions of the driver for a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteOutput {
    /// Apply the mutation on this node; answer `Ack` or `Failed` with that target.
    ApplyLocal {
        /// This node.
        target: Target,
    },
    /// Send the mutation.
    Send {
        /// The replica.
        to: Target,
        /// Replicas of its datacenter to which it passes the mutation on; they answer to the
        /// coordinator.
        forward: SmallVec<[Target; 4]>,
    },
    /// Store a hint; answer `HintStored` or `HintFailed`.
    StoreHint {
        /// The replica.
        to: Target,
    },
    /// Give `Tick` at this instant; replaces the one before.
    WakeAt(Instant),
    /// Answer the client.
    Done(Result<(), RequestError>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Waiting,
    /// Answered; acknowledgements still spare hints.
    Lingering,
    Finished,
}

/// One coordinator-side write.
#[derive(Clone, Debug)]
pub struct WriteRequest {
    plan: WritePlan,
    deadline: Instant,
    random: u64,
    phase: Phase,
    /// Sent to, directly or by forwarding, or applied here.
    sent: TargetSet,
    acked: TargetSet,
    failed: TargetSet,
    failures: Failures,
    hinted: TargetSet,
    hints_stored: TargetSet,
    hints_failed: TargetSet,
    /// The targets that each forwarding node forwards to.
    forwards: SmallVec<[(Target, SmallVec<[Target; 4]>); 2]>,
}

impl WriteRequest {
    /// A write to be answered before `deadline`. `random` picks the forwarding nodes.
    pub fn new(plan: WritePlan, deadline: Instant, random: u64) -> WriteRequest {
        WriteRequest {
            plan,
            deadline,
            random,
            phase: Phase::Idle,
            sent: TargetSet::EMPTY,
            acked: TargetSet::EMPTY,
            failed: TargetSet::EMPTY,
            failures: Failures::new(),
            hinted: TargetSet::EMPTY,
            hints_stored: TargetSet::EMPTY,
            hints_failed: TargetSet::EMPTY,
            forwards: SmallVec::new(),
        }
    }

    /// The plan, for the hosts of targets.
    pub fn plan(&self) -> &WritePlan {
        &self.plan
    }

    /// Returns true if no further outputs follow: the driver may drop it.
    pub fn is_finished(&self) -> bool {
        self.phase == Phase::Finished
    }

    /// The level is met.
    pub fn is_met(&self) -> bool {
        self.plan.is_met_by(self.acked)
            || (self.plan.takes_hints() && !self.hints_stored.is_empty())
    }

    /// Returns true if every replica of the write has it, or a stored hint. Dead ones for which no
    /// hint may be stored do not count.
    pub fn is_everywhere(&self) -> bool {
        let wanted = self.sent.union(self.hinted);
        wanted.minus(self.acked).minus(self.hints_stored).is_empty()
    }

    /// Advances by one event and appends the driver's actions.
    ///
    /// Pre: `now` never decreases. Post: after `Done` only hints follow; it is answered and
    /// finished at the deadline's step at the latest.
    pub fn step(&mut self, now: Instant, input: WriteInput, out: &mut Outputs<WriteOutput>) {
        match (self.phase, input) {
            // Those of the deadline's step are stored after it.
            (Phase::Finished, WriteInput::HintStored { to }) if self.hinted.contains(to) => {
                self.hints_stored.insert(to);
                return;
            }
            (Phase::Finished, _) => return,
            (Phase::Idle, WriteInput::Start) => self.start(now, out),
            (Phase::Idle, _) => return,
            // An acknowledgement at the deadline is too late for the answer, but saves a hint.
            (_, WriteInput::Ack { from }) if self.sent.contains(from) => {
                self.acked.insert(from);
            }
            (_, WriteInput::Failed { from, reason }) => self.fail(now, from, reason, out),
            (_, WriteInput::HintStored { to }) if self.hinted.contains(to) => {
                self.hints_stored.insert(to);
            }
            (_, WriteInput::HintFailed { to }) if self.hinted.contains(to) => {
                self.hints_failed.insert(to);
            }
            _ => {}
        }
        self.settle(now, out);
    }

    fn start(&mut self, now: Instant, out: &mut Outputs<WriteOutput>) {
        if let Err(error) = self.plan.check() {
            self.phase = Phase::Finished;
            out.push(WriteOutput::Done(Err(error)));
            return;
        }
        self.phase = Phase::Waiting;
        if now >= self.deadline {
            return;
        }
        for to in self.plan.replicas.which(|r| !r.alive && r.hintable).iter() {
            self.hint(to, out);
        }
        self.sent = self.plan.replicas.which(|r| r.alive);
        let mut remote: SmallVec<[u8; 4]> = SmallVec::new();
        for (target, replica) in self.plan.replicas.iter().filter(|(_, r)| r.alive) {
            if replica.is_self {
                out.push(WriteOutput::ApplyLocal { target });
            } else if replica.is_local_dc {
                out.push(WriteOutput::Send { to: target, forward: SmallVec::new() });
            } else if !remote.contains(&replica.dc) {
                remote.push(replica.dc);
            }
        }
        for dc in remote {
            let group = self.plan.replicas.which(|r| r.alive && !r.is_self && r.dc == dc);
            let mut group: SmallVec<[Target; 4]> = group.iter().collect();
            let pick = usize::try_from(self.random % (group.len().max(1) as u64)).unwrap_or(0);
            self.random = self.random.rotate_left(17);
            if pick < group.len() {
                let to = group.remove(pick);
                if !group.is_empty() {
                    self.forwards.push((to, group.clone()));
                }
                out.push(WriteOutput::Send { to, forward: group });
            }
        }
        out.push(WriteOutput::WakeAt(self.deadline));
    }

    fn hint(&mut self, to: Target, out: &mut Outputs<WriteOutput>) {
        if self.hinted.insert(to) {
            out.push(WriteOutput::StoreHint { to });
        }
    }

    fn fail(
        &mut self,
        now: Instant,
        from: Target,
        reason: ReplicaError,
        out: &mut Outputs<WriteOutput>,
    ) {
        if !self.sent.contains(from) || self.acked.contains(from) || !self.failed.insert(from) {
            return;
        }
        let Some(replica) = self.plan.replicas.get(from).copied() else { return };
        self.failures.push((replica.host, reason));
        if replica.hintable {
            self.hint(from, out);
        }
        // It got nothing or passed nothing on: its datacenter is sent to directly.
        let not_passed_on = matches!(
            reason,
            ReplicaError::NodeDown | ReplicaError::Overloaded | ReplicaError::IncompatibleSchema
        );
        if self.phase != Phase::Waiting || now >= self.deadline || !not_passed_on {
            return;
        }
        let Some(at) = self.forwards.iter().position(|(t, _)| *t == from) else { return };
        let (_, group) = self.forwards.remove(at);
        for to in group {
            if !self.acked.contains(to) && !self.failed.contains(to) {
                out.push(WriteOutput::Send { to, forward: SmallVec::new() });
            }
        }
    }

    /// Answers when it can be answered, and ends at the deadline or when all have answered.
    fn settle(&mut self, now: Instant, out: &mut Outputs<WriteOutput>) {
        let late = now >= self.deadline;
        if self.phase == Phase::Waiting {
            if self.is_met() && !late {
                self.phase = Phase::Lingering;
                out.push(WriteOutput::Done(Ok(())));
            } else if late || !self.may_be_met() {
                self.phase = Phase::Lingering;
                out.push(WriteOutput::Done(Err(self.error(late))));
            }
        }
        if self.phase != Phase::Lingering {
            return;
        }
        let silent = self.sent.minus(self.acked).minus(self.failed);
        if late {
            for to in silent.iter() {
                if self.plan.replicas.get(to).is_some_and(|r| r.hintable) {
                    self.hint(to, out);
                }
            }
        }
        if late || silent.is_empty() {
            self.phase = Phase::Finished;
        }
    }

    fn may_be_met(&self) -> bool {
        let hints_under_way = self.hinted.minus(self.hints_failed);
        self.plan.is_met_by(self.sent.minus(self.failed))
            || (self.plan.takes_hints() && !hints_under_way.is_empty())
    }

    fn error(&self, late: bool) -> RequestError {
        let plan = &self.plan;
        let (consistency, write_type) = (plan.consistency, plan.write_type);
        let (received, block_for) = (plan.counted(self.acked), plan.block_for());
        // Failures out of scope (another datacenter's, with LOCAL_*) do not decide the kind, and
        // neither do those that would have left the level possible.
        let in_scope: Failures = self
            .failures
            .iter()
            .filter(|(host, _)| {
                plan.replicas.iter().any(|(t, r)| r.host == *host && plan.counts(t))
            })
            .copied()
            .collect();
        if late && self.may_be_met() || in_scope.is_empty() {
            let received = received.min(block_for.saturating_sub(1));
            return RequestError::WriteTimeout { consistency, received, block_for, write_type };
        }
        match RequestError::write(consistency, received, block_for, &in_scope, write_type) {
            RequestError::WriteFailure { consistency, received, block_for, write_type, .. } => {
                let failures = self.failures.clone();
                RequestError::WriteFailure {
                    consistency,
                    received,
                    block_for,
                    failures,
                    write_type,
                }
            }
            other => other,
        }
    }
}
