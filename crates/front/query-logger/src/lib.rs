//! The full query log of a node: every statement of a client that succeeded, so that it can be executed again.
//!
//! Owns: how finished requests become records ([`recorder`]), the log of each shard and its files on shard 0
//! ([`logger`]). Queues, writers and rolling files are those of the audit log ([`audit::binlog`]), records and bytes those
//! of [`query_log`]. Never: executes a statement, reads the log.
//!
//! Invariants:
//! - INV-querylogger-1: a record is made once for each QUERY, EXECUTE and BATCH that is answered with a result, and for
//!   no other request.
//! - Bounds: those of [`audit::binlog::queue`].
//!
//! Reading order: `recorder`, `logger`.

pub mod logger;
pub mod recorder;

pub use logger::{
    EnableError, QueryLogMesh, QueryLogRequest, QueryLogSettings, QueryLogger, QueryLoggerParts,
};
