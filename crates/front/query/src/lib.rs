//! Statements, from their text or id to their result, below every front.
//!
//! Owns: prepared statements, planning and execution, checks of access and of limits, schema and role changes,
//! conditional writes, DESCRIBE, virtual tables, the failures of all of these as values. A front (the server of CQL
//! connections, the node itself) supplies the client ([`ClientState`]) and the destination of results
//! ([`ResultSink`]). Never: sockets, frames of requests, sessions; parses statements (`cql-syntax`), decides what a
//! statement means (`cql-plan`), stores anything (`coordinator`, `membership`).
//!
//! INV-prepared-1 and -2: see `prepared`. INV-account-1 and -2: see `account`.
//!
//! Reading order: `settings`, `executor` (what statements share), `client`, `sink`, `context`, `execute`, `select`,
//! `write`, `mutations`, `conditional`, `outbound`, `forwarded`, `replicas`, `schema_change`, `role_change`, `access`,
//! `guardrails`, `prepared`, `failure`. Modules depend on `executor`, never on the crate's root.

mod access;
mod account;
mod client;
mod conditional;
mod consistency;
mod context;
mod counter_write;
mod counters;
mod describe;
mod description;
mod disk_usage;
mod execute;
mod executor;
mod failure;
mod forwarded;
mod guardrail_limits;
mod guardrails;
mod internal_queries;
mod latency;
mod list_write;
mod modification;
mod mutations;
mod node_queries;
mod observed;
mod observers;
mod outbound;
mod owned_values;
mod password;
mod prepare;
mod prepared;
mod read_deadline;
mod read_strategy;
mod remote_fold;
mod replica_disks;
mod replicas;
mod role_change;
mod row_write;
mod rows_sink;
mod schema_change;
mod select;
mod settings;
mod shard_calls;
mod sink;
mod stored_statements;
mod ticket;
mod tombstones;
mod trace;
mod truncate_table;
mod users;
mod virtual_source;
mod virtual_tables;
mod write;

pub use account::{Account, AnswerSizes, Charge, ConnectionLoad, REQUEST_BYTES};
pub use client::{ClientState, same_text};
pub use context::{Cx, HeldWrite, Step, Waiting};
pub use counters::Counters;
pub use description::{Description, Encoded, FLAGS_LOW_BYTE_AT, PAGING_STATE_AT};
pub use execute::{batch, execute, query};
pub use executor::{Executor, ExecutorParts};
pub use failure::{
    CasFailed, FailedKind, FailedReplica, Failure, Internal, ReplicasFailed, Result,
};
pub use forwarded::serve as serve_forwarded;
pub use guardrail_limits::{Guardrails, TimestampGuardrails};
pub use guardrails::watch;
pub use internal_queries::{write_peer_trace, write_trace};
pub use latency::{Ended, Kind as RequestKind, Latencies, TableLatencies, Timing, Touched};
pub use node_queries::{as_store_error, execute_for_node, select_for_node};
pub use observed::{note_generated, note_planned, observe};
pub use observers::{
    ObservedFailure, ObservedRequest, ObservedStatement, ObservedValue, Observers, RequestDetails,
    RequestObserver, RequestRecord, Taken,
};
pub use password::without_password;
pub use prepare::{prepare, prepare_here};
pub use prepared::{
    Compiled, CompiledHeader, CompiledPlan, Planning, Prepared, PreparedCache, PreparedId,
    ReadPlan, id_of, term_bytes,
};
pub use remote_fold::install as serve_scans;
pub use replica_disks::ReplicaDisks;
pub use role_change::hash_password;
pub use row_write::{Content, RowWrite, encode_row};
pub use rows_sink::{MemoryPage, MemoryResult, Outcome, Row, Rows, RowsSink};
pub use settings::{QuerySettings, Timeout, Timeouts};
pub use shard_calls::{ShardCall, ShardCalls};
pub use sink::{Describe, MadeRows, PageEnd, ResultPage, ResultSink};
pub use stored_statements::load_prepared;
pub use ticket::Ticket;
pub use trace::{Trace, TraceOrigin, inet};
pub use virtual_source::{NoVirtualSource, VirtualRow, VirtualRows, VirtualSource};

#[cfg(test)]
mod tests;
