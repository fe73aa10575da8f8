//! The native protocol, versions 3, 4 and 5, in both directions.
//!
//! Owns: frame headers, v5 segments, the split of a byte stream into frames, every message body, the numbers and texts
//! that drivers see for protocol errors, and the keys of ScyllaDB's protocol extensions. Never: sockets, clocks, the
//! meaning of a statement or of a value's bytes.
//!
//! INV-wire-1: no bytes from outside cause a panic, or an allocation larger than bytes already received or the
//! limit of [`FrameDecoder::new`]. INV-wire-2: decoding EXECUTE and encoding rows allocate nothing but output.
//!
//! Reading order: `version`, `constants`, `error`, `frame`, `segment`, `decoder`, then `request` with `query`, and
//! `response` with `rows`. Source: native_protocol_v3/v4/v5.spec; texts from Cassandra 5.0.

#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    clippy::expect_used
)]
#![cfg_attr(
    test,
    allow(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        clippy::cast_possible_truncation,
        clippy::unwrap_used,
        clippy::expect_used
    )
)]

pub mod collections;
pub mod compression;
pub mod constants;
pub mod decoder;
pub mod error;
pub mod error_body;
pub mod event;
pub mod frame;
pub mod fuzz;
pub mod metadata;
mod primitive;
pub mod query;
pub mod request;
pub mod response;
pub mod rows;
pub mod scylla;
pub mod segment;
pub mod startup;
pub mod types;
pub mod version;

pub use collections::{BytesMap, StringMap};
pub use compression::Compression;
pub use constants::{BatchKind, Consistency, ErrorCode, FailureReason, Opcode, WriteType};
pub use decoder::{FrameDecoder, Side};
pub use error::{FrameError, WireError};
pub use error_body::{ErrorBody, Failures};
pub use event::{Event, EventKind, EventKinds, SchemaChange, SchemaChangeKind, SchemaTarget};
pub use frame::{Frame, FrameExtras, FrameHeader, ResponseFrame, flags};
pub use metadata::{ColumnSpec, ColumnsBlock, PreparedMetadata, ResultMetadata};
pub use query::{BoundValue, BoundValues, QueryParameters, ValueList};
pub use request::{Batch, BatchQuery, BatchStatement, BatchStatements, Request, RequestFrame};
pub use response::{Prepared, Response, ResponseBody, Rows};
pub use rows::{MetadataMode, RowsEncoder};
pub use segment::{SEGMENT_PAYLOAD_MAX, pack_segments};
pub use startup::StartupOptions;
pub use types::WireType;
pub use version::{Negotiated, ProtocolVersion};

#[cfg(test)]
mod tests;
