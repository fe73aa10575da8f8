//! Streaming: moves ranges of tables between nodes.
//!
//! Owns: [`plan()`] (the ranges that a node must copy, and their sources), [`Streaming`]: the side that sends
//! pages of its data and the side that fetches them into SSTables. Never: decides ownership
//! (`cluster::ranges`), waits for a membership change, writes through a memtable.
//!
//! SSTables that lie completely in the ranges are sent verbatim (`source::hold`, `pull::files`). Everything
//! else is sent as replica pages with nothing purged (`docs/formats/replica-page.md`), one request of verb
//! `StreamFetch` per page. Each shard fetches the data that it will own, directly from the shards that have
//! it; no data crosses shards here. See `docs/internals/streaming.md`.
//!
//! Invariants:
//! INV-stream-1: a range is reported as done only when all of it, from one source per position, is in durable
//! SSTables of this node.
//! INV-stream-2: the fetched data is exactly the source's data at the time of the request: timestamps,
//! deletions and expired cells are preserved.
//! INV-stream-3: a page that does not follow the previous one, holds foreign tokens or cannot be decoded is
//! never written.
//! INV-stream-4: whole files and the rows sent beside them are of one moment, and become visible together.
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
