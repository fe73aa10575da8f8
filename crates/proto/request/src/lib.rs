//! Coordinator side of reads and writes, as machines without IO.
//!
//! Owns: the decisions of one request: the replicas to send to, the instant and contents of the
//! answer, the hints to store, the instant to ask another replica, the differences between
//! replicas. Never: IO, clocks, randomness, payloads (outputs name them, the driver in
//! `coordinator` holds them), rings (a plan comes in as data).
//!
//! A machine is driven by `step(now, input, out)`; `now` never decreases. `Tick` is due at the
//! instant of the last `WakeAt`.
//!
//! Invariants: INV-request-1: `Done` comes at most once, and not after the deadline's step.
//! INV-request-2: an answer `Ok` means that the consistency level was met. INV-request-3: when the
//! level cannot be met, nothing is sent. INV-request-4: nothing is sent to a replica that has
//! acknowledged. INV-request-5: after `Done` come hints only. INV-request-6: each thing
//! that a read shows is on as many replicas as its level needs (with blocking read repair), so that
//! later reads of the level show it too.
//!
//! Reading order: [`types`], [`plan`], [`write`], [`batchlog`], [`batch`], [`speculation`],
//! [`read`], [`range`], [`search`], [`reconcile`]; [`window`] is about one replica and all writes to it.

pub mod batch;
pub mod batchlog;
pub mod digest;
pub mod fuzz;
pub mod plan;
pub mod range;
pub mod read;
pub mod reconcile;
pub mod search;
pub mod speculation;
#[cfg(test)]
mod tests;
pub mod types;
pub mod window;
pub mod write;

pub use batch::{BatchInput, BatchOutput, BatchPlan, BatchRequest};
pub use digest::{PageDigest, digest_of};
pub use plan::{Factors, Need, PlanError, ReadPlan, ReplicaInfo, WritePlan};
pub use range::{RangeConfig, RangeInput, RangeOutput, RangeRequest, SubRange, TokenRange};
pub use read::{
    PageFacts, ReadConfig, ReadInput, ReadOutcome, ReadOutput, ReadRepair, ReadRequest,
};
pub use reconcile::{ReconcileCommand, Reconciled, reconcile};
pub use search::{SearchConfig, SearchInput, SearchOutput, SearchRequest};
pub use speculation::{SpeculationError, SpeculativeRetry, Threshold};
pub use types::{Outputs, ReplicaError, RequestError, Target, TargetSet, WriteType};
pub use window::{ReplicaWindow, Room, WindowSettings};
pub use write::{WriteInput, WriteOutput, WriteRequest};
