//! Paxos without IO: lightweight transactions per partition, one instance per metadata-log entry.
//!
//! Owns: ballots and their clock ([`ballot`]), the promise registers of one partition and the records that must be
//! durable before each answer ([`acceptor`]), the rounds of one conditional write or serial read ([`proposer`]),
//! the order of proposers ([`queue`]), the single-decree variant of the metadata log ([`log`]), the bytes of
//! messages ([`wire`]), and a checker of linearizability for histories ([`linear`]). Never: IO, clocks,
//! randomness; payloads are opaque, conditions are evaluated by the driver.
//!
//! Invariants (docs/internals/paxos.md has the proofs):
//! INV-paxos-1: an acceptor never answers an older ballot than it promised with a promise or an
//! acceptance. INV-paxos-2: no answer but a rejection shows state that is not durable.
//! INV-paxos-3: two values accepted by quorums for one partition never share a write timestamp.
//! INV-paxos-4: a new value is proposed only after a quorum has confirmed both the promise of its
//! ballot and the commit before it. INV-paxos-5: `NotApplied` is answered only when no value of the
//! operation can be chosen any more; what is not known is answered as uncertain.
//!
//! Reading order: [`ballot`], [`plan`], [`acceptor::state`], [`acceptor`], [`proposer`], [`log`].

#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::wildcard_enum_match_arm
    )
)]

pub mod acceptor;
pub mod ballot;
pub mod fuzz;
pub mod linear;
pub mod log;
pub mod plan;
pub mod proposer;
pub mod queue;
pub mod value;
pub mod wire;

#[cfg(test)]
mod model;

pub use acceptor::{Acceptor, AcceptorState};
pub use ballot::{Ballot, BallotClock, Scope};
pub use plan::{CommitQuorum, Plan, PlanError, Target, TargetSet};
pub use proposer::Proposer;
pub use queue::PartitionQueues;
pub use value::{Accepted, Commit};
