//! `system_views.system_logs`: the last records of the node's log.
//!
//! Source: Cassandra's `LogMessagesTable`. The logger is the module that a record comes from.

use std::cmp::Reverse;
use std::sync::Arc;

use cql_plan::virtual_row::VirtualRowBuilder;
use schema::Table;

use super::{Rows, Sources};

/// One record of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// When it was written, in milliseconds since the Unix epoch.
    pub at_millis: i64,
    /// `ERROR`, `WARN`, `INFO`, `DEBUG`, `TRACE`.
    pub level: &'static str,
    /// The module that wrote it.
    pub logger: &'static str,
    /// Its text, followed by its fields.
    pub message: String,
}

/// The log of a program that runs a node.
pub trait NodeLog: admin::LogControl {
    /// The last records, oldest first; a bounded number.
    fn records(&self) -> Vec<Arc<LogRecord>>;

    /// Forgets all records so far.
    fn clear(&self);
}

pub(super) async fn rows(sources: &Sources, table: &Table) -> Rows {
    let records = sources.log.as_ref().map(|log| log.records()).unwrap_or_default();
    record_rows(table, records)
}

/// Newest first; records of one millisecond are numbered, the newest is 0.
pub(super) fn record_rows(table: &Table, mut records: Vec<Arc<LogRecord>>) -> Rows {
    records.reverse();
    // The clock may have been set back: a millisecond that came twice must not number twice.
    records.sort_by_key(|record| Reverse(record.at_millis));
    let mut rows = Vec::with_capacity(records.len());
    for same in records.chunk_by(|a, b| a.at_millis == b.at_millis) {
        for (order, record) in (0..).zip(same) {
            let row = VirtualRowBuilder::new(table)
                .timestamp_millis("timestamp", record.at_millis)
                .int("order_in_millisecond", order)
                .text("level", record.level)
                .text("logger", record.logger)
                .text("message", &record.message)
                .finish()?;
            rows.push(row);
        }
    }
    Ok(rows)
}
