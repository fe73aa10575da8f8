//! Small pure values that every other crate shares.
//!
//! Owns: typed ids and units, the two clock types, IO errors as values, fixed-seed hash maps, the
//! three grades of broken invariant, rare-path probes and fault points, which shard owns a token. Never: IO,
//! clocks, randomness, threads.
//!
//! Reading order: [`ids`], [`time`], [`io`], [`map`], [`invariant`], [`probe`], [`mod@chaos`],
//! [`shard_map`].

pub mod chaos;
pub mod ids;
pub mod invariant;
pub mod io;
pub mod map;
pub mod probe;
pub mod shard_map;
pub mod time;

pub use ids::{ColumnId, Epoch, Generation, HostId, ShardId, TableId, Token};
pub use invariant::{Bug, BugReport};
pub use io::{IoError, IoErrorKind};
pub use map::{FixedHasher, FixedMap, FixedSet};
pub use shard_map::ShardMap;
pub use time::{DeletionSeconds, Instant, TimestampMicros, TtlSeconds, WallMicros};
pub use uuid::Uuid;
