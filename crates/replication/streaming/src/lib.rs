//! Moves ranges of tables between nodes.
//!
//! Owns: [`plan()`] (what a node must copy, and from whom), [`Streaming`]: the side that gives pages of
//! its data and the side that fetches them into SSTables. Never: decides who owns what
//! (`cluster::ranges`), waits for a membership change, writes through a memtable.
//!
//! SSTables that lie in the ranges go as they are (`source::hold`, `pull::files`), everything else as replica
//! pages with nothing purged (`docs/formats/replica-page.md`), one request of verb `StreamFetch` per
//! page. Each shard fetches what it will own, straight from the shards that
//! have it; no data crosses shards here. See `docs/internals/streaming.md`.
//!
//! Invariants:
//! INV-stream-1: a range is reported as done only when all of it, from one source per place, is in
//! durable SSTables of this node.
//! INV-stream-2: what is fetched is exactly what the source had when it was asked: timestamps,
//! deletions and expired cells stay as they are.
//! INV-stream-3: a page that does not follow the one before, holds foreign tokens or is no page is
//! never written. INV-stream-4: whole files and rows that go beside them are of one moment, and are
//! seen together.
//!
//! Reading order: [`plan`](mod@plan), [`wire`], `streaming`, `env`, `source`, `orders`, `fetch`, `pull`,
//! `throttle`.

#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod env;
mod error;
mod fetch;
pub mod fuzz;
mod orders;
mod plan;
mod pull;
mod report;
mod settings;
mod source;
mod stats;
mod streaming;
#[cfg(test)]
mod tests;
mod throttle;
pub mod wire;

pub use error::{FailedRange, StreamError};
pub use fetch::{Keep, Operation};
pub use orders::{StreamMesh, new_mesh};
pub use plan::{
    FetchRange, MayLack, Plan, PlanError, Rebuild, plan, plan_inheritance, plan_lacking,
    plan_movement, plan_rebuild,
};
pub use report::{FetchProgress, FetchReport};
pub use settings::StreamSettings;
pub use stats::{FileStats, SessionStats, StreamStats};
pub use streaming::{StreamParts, Streaming};
