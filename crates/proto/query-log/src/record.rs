//! The record: one request that succeeded. Its fields are those of Cassandra's full query log.

use cql_wire::BatchKind;

/// Value of [`QueryRecord::generated_timestamp`] for "none was generated" (`Long.MIN_VALUE` in Cassandra).
pub const NO_TIMESTAMP: i64 = i64::MIN;
/// Value of [`QueryRecord::generated_now`] for "none was generated" (`Integer.MIN_VALUE` in Cassandra).
pub const NO_NOW: i64 = i32::MIN as i64;

/// A request that succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryRecord {
    /// When the request began, milliseconds since 1970.
    pub start_millis: i64,
    /// Version of the native protocol: the version of `options`.
    pub protocol_version: u8,
    /// Query options in the encoding of that version: consistency, flags, values and the fields that flags announce.
    pub options: Vec<u8>,
    /// Timestamp that the server generated, microseconds since 1970; [`NO_TIMESTAMP`] if none.
    pub generated_timestamp: i64,
    /// Time of expiry that the server generated, seconds since 1970; [`NO_NOW`] if none.
    pub generated_now: i64,
    /// Keyspace of the session (`USE`).
    pub keyspace: Option<String>,
    /// The executed statement, or batch.
    pub statement: LoggedStatement,
}

/// Statement or batch of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoggedStatement {
    /// A statement, plain or prepared. Its values are in the options.
    Single {
        /// The text.
        query: String,
    },
    /// A batch message.
    Batch {
        /// Kind of the batch.
        kind: BatchKind,
        /// Its statements, in order.
        queries: Vec<BatchQuery>,
    },
}

/// A statement of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchQuery {
    /// The text.
    pub query: String,
    /// Its bound values.
    pub values: Vec<LoggedValue>,
}

/// A bound value of a batch. Cassandra's files store unset as empty bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoggedValue {
    /// Null.
    Null,
    /// Unset.
    Unset,
    /// Bytes in the encoding of the native protocol.
    Bytes(Vec<u8>),
}

impl QueryRecord {
    /// Kind of the record, as Cassandra's `type` field has it.
    pub fn kind(&self) -> &'static str {
        match self.statement {
            LoggedStatement::Single { .. } => "single-query",
            LoggedStatement::Batch { .. } => "batch",
        }
    }
}
