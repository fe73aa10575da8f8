//! Events, outputs and outcomes of the proposer.

use std::time::Duration;

use stdx::{Epoch, Instant, WallMicros};

use crate::acceptor::Reply;
use crate::ballot::{Ballot, BallotClock, Scope, TooFarAhead};
use crate::plan::{Plan, Target, TargetSet};
use crate::value::{Accepted, Commit};

/// The kind of the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A conditional write.
    Write,
    /// A read at SERIAL or LOCAL_SERIAL.
    Read,
}

/// Limits of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Options {
    /// Deadline of the answer while nothing is decided (`cas_contention_timeout`).
    pub deadline: Instant,
    /// Deadline of the commit's acknowledgements (`write_request_timeout`). Replicas that have not
    /// acknowledged by then get a hint.
    pub commit_deadline: Instant,
    /// Longest time of one phase of the first round before a new round replaces it: lost messages,
    /// slow replicas. It doubles with each further round, so that slower replicas are not outrun
    /// for ever.
    pub round_timeout: Duration,
    /// Shortest wait after a lost round.
    pub backoff_min: Duration,
    /// Longest.
    pub backoff_max: Duration,
    /// Scope of the replicas that the plan asks.
    pub scope: Scope,
}

impl Options {
    /// Returns the longest time of a phase after `rounds` earlier rounds.
    pub(crate) fn patience(&self, rounds: u32) -> Duration {
        self.round_timeout.saturating_mul(1 << rounds.min(16))
    }
}

/// Time, randomness and the shard's ballot clock, for one step.
#[derive(Debug)]
pub struct Context<'a> {
    /// Now.
    pub now: Instant,
    /// Wall time, for ballots. The driver passes at least its last write timestamp, so that an LWT
    /// is not ordered before a plain write that this coordinator answered earlier.
    pub wall: WallMicros,
    /// A fresh random number.
    pub random: u64,
    /// Generator of this shard's ballots.
    pub clock: &'a mut BallotClock,
}

/// Event for a proposer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input<V> {
    /// Begin.
    Start,
    /// A replica answered.
    Reply {
        /// Which.
        from: Target,
        /// What.
        reply: Reply<V>,
    },
    /// A replica will not answer: connection lost, error, out of its range.
    Failed {
        /// Which.
        from: Target,
        /// The round, or commit, of the message that failed.
        ballot: Ballot,
    },
    /// A replica knows another electorate for the token, from this epoch. It did not promise or
    /// accept; a commit it has applied.
    WrongEpoch {
        /// Which.
        from: Target,
        /// The round, or commit, of the message.
        ballot: Ballot,
        /// Its epoch.
        epoch: Epoch,
    },
    /// The plan that [`Output::Replan`] asked for. From now on the driver drops replies to commits
    /// sent under the old one: their targets mean other replicas.
    Plan(Plan),
    /// There is none: not enough replicas are alive.
    NoPlan,
    /// The answer to [`Output::Decide`].
    Decided(Decision<V>),
    /// The time of [`Output::WakeAt`] is reached.
    Tick,
}

/// The driver's decision on the reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision<V> {
    /// Nothing is to be written: a read, or a condition that is false.
    NoOp,
    /// The condition is true; this is the encoded mutation, with [`Ballot::timestamp`] of the
    /// round as its write timestamp.
    Value(V),
    /// The reads do not suffice (cut short by a limit): prepare again, with a wider read.
    ReadAgain,
    /// Abort: evaluation failed. Nothing is written.
    Abort,
}

/// An instruction to the driver. Sets of replicas refer to the plan in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output<V> {
    /// Send prepare.
    Prepare {
        /// Receivers.
        to: TargetSet,
        /// Receivers that also read.
        readers: TargetSet,
        /// The round.
        ballot: Ballot,
        /// True if the operation may write.
        write: bool,
        /// Epoch of the plan.
        epoch: Epoch,
    },
    /// Send a commit that the replies lacked, asking whether the promise still stands.
    Refresh {
        /// Receivers.
        to: TargetSet,
        /// The round.
        ballot: Ballot,
        /// The commit.
        commit: Commit<V>,
    },
    /// Evaluate: merge the reads of this round from those of `replies` that were asked to read.
    Decide {
        /// The round.
        ballot: Ballot,
        /// Replicas that answered.
        replies: TargetSet,
    },
    /// Send the proposal.
    Propose {
        /// Receivers.
        to: TargetSet,
        /// What.
        proposal: Accepted<V>,
        /// Epoch of the plan.
        epoch: Epoch,
    },
    /// Send the proposal to those whose acceptance decides it: they commit it in the same step.
    Conclude {
        /// Receivers.
        to: TargetSet,
        /// What.
        proposal: Accepted<V>,
        /// Epoch of the plan.
        epoch: Epoch,
    },
    /// Send a commit.
    Commit {
        /// Receivers.
        to: TargetSet,
        /// What.
        commit: Commit<V>,
    },
    /// Tell the replicas that all of them have the commit.
    Prune {
        /// Receivers.
        to: TargetSet,
        /// Ballot of the commit.
        ballot: Ballot,
    },
    /// Make a new plan from a snapshot of at least this epoch, and give it as [`Input::Plan`].
    Replan {
        /// The epoch.
        at_least: Epoch,
    },
    /// Give [`Input::Tick`] then. Replaces the time asked for before.
    WakeAt(Instant),
    /// This operation makes no more ballots: the next one of the partition may start. Comes after
    /// the commit was sent, so its prepare finds the commit applied.
    SlotFree,
    /// Answer the client.
    Done(Outcome),
    /// These replicas did not acknowledge the commit in time.
    Hint {
        /// Which.
        to: TargetSet,
        /// The commit.
        commit: Commit<V>,
    },
    /// The machine can be dropped. Nothing comes after it.
    Finished,
}

/// Outcome of the operation when the client is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The condition was true and the write is committed at the commit consistency level.
    Applied,
    /// The condition was false, and no round of this operation can take effect any more.
    NotApplied,
    /// The read of the last [`Output::Decide`] is linearizable.
    Read,
    /// See there.
    Failed(Failure),
}

/// An operation that did not come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The reason.
    pub kind: FailureKind,
    /// Effect of the write.
    pub effect: Effect,
    /// Replicas that answered in the last phase.
    pub received: usize,
    /// Replicas whose answers it needed.
    pub required: usize,
    /// Rounds lost to other proposers.
    pub contentions: u32,
}

/// Effect of a failed operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It does not and will not: trying again is safe.
    None,
    /// It may have, or may later (CAS_WRITE_UNKNOWN).
    Unknown,
    /// It does: the value is chosen, and only the commit was not acknowledged as asked for.
    Chosen,
}

/// Reason why an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The deadline passed.
    Timeout,
    /// Too many replicas failed or refused.
    Replicas,
    /// A value of ours was proposed and later rounds hide what became of it.
    Superseded,
    /// The ballot would be too far in the future.
    ClockSkew(TooFarAhead),
    /// No plan for the new electorate.
    Unavailable,
    /// The driver gave up ([`Decision::Abort`]).
    Aborted,
}
