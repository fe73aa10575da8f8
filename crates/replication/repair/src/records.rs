//! Records of repairs for operators' scripts: their beginning and end, which the node writes as
//! Cassandra's rows of `system_distributed.parent_repair_history` and `repair_history`, and steps of
//! traced repairs.
//!
//! Owns: which records exist, and when. Never: rows, tables, where they are written.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use cluster::TokenRange;
use stdx::{Uuid, WallMicros};

/// The beginning or end of a repair, or of one range of one table in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RepairRecord {
    /// A repair begins.
    Started {
        /// Its session, a time UUID.
        parent: Uuid,
        /// Keyspace.
        keyspace: String,
        /// Tables.
        tables: Vec<String>,
        /// Options in Cassandra's spelling.
        options: BTreeMap<String, String>,
        /// All ranges.
        ranges: Vec<String>,
        /// When.
        at: WallMicros,
    },
    /// It has ended.
    Ended {
        /// Its session.
        parent: Uuid,
        /// Ranges that were repaired.
        ranges: Vec<String>,
        /// Why it failed.
        error: Option<String>,
        /// When.
        at: WallMicros,
    },
    /// A range of a table begins.
    RangeStarted {
        /// A time UUID of its own.
        id: Uuid,
        /// The repair that it belongs to.
        parent: Uuid,
        /// Keyspace.
        keyspace: String,
        /// Table.
        table: String,
        /// Which.
        range: TokenRange,
        /// The other replicas.
        participants: Vec<SocketAddr>,
        /// When.
        at: WallMicros,
    },
    /// It has ended.
    RangeEnded {
        /// The id that the record of its beginning has.
        id: Uuid,
        /// Keyspace.
        keyspace: String,
        /// Table.
        table: String,
        /// Why it failed.
        error: Option<String>,
        /// When.
        at: WallMicros,
    },
    /// A traced repair begins.
    TraceStarted {
        /// Session of the trace, a time UUID.
        trace: Uuid,
        /// Keyspace.
        keyspace: String,
        /// Its tables.
        tables: Vec<String>,
        /// When.
        at: WallMicros,
    },
    /// A step of it.
    Traced {
        /// Session of the trace.
        trace: Uuid,
        /// A time UUID of its own.
        id: Uuid,
        /// Description of the step.
        activity: String,
        /// Since the beginning.
        elapsed: Duration,
    },
    /// It has ended.
    TraceEnded {
        /// Session of the trace.
        trace: Uuid,
        /// Its duration.
        took: Duration,
    },
}

/// Writes records; a record that cannot be written is dropped, as in Cassandra.
pub trait RepairRecords {
    /// A new time UUID.
    fn time_uuid(&self) -> Uuid;
    /// To be written soon.
    fn record(&self, record: RepairRecord);
}
