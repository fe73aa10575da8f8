//! Counters of the executor of one shard, under the names that are exported.

use crate::latency::{Kind, Latencies};
use cql_syntax::ast::BatchKind;
use cql_wire::ErrorCode;
use std::rc::Rc;

/// The counters; names as exported.
pub struct Counters {
    /// Requests refused for overload.
    pub overloaded: telemetry::Counter,
    pub(crate) reads: StatementCounter,
    pub(crate) writes: StatementCounter,
    pub(crate) batches: StatementCounter,
    pub(crate) schema_changes: telemetry::Counter,
    pub(crate) prepared: telemetry::Counter,
    pub(crate) replanned: telemetry::Counter,
    pub(crate) prepared_executions: telemetry::Counter,
    pub(crate) regular_executions: telemetry::Counter,
    pub(crate) prepared_evicted: telemetry::Counter,
    pub(crate) tombstone_pages: telemetry::Counter,
    pub(crate) memory_pages: telemetry::Counter,
    pub(crate) prepared_statements: telemetry::Gauge,
    batch_partitions: [telemetry::Histogram; 3],
    errors: Vec<(ErrorCode, telemetry::Counter)>,
}

/// Counts statements of a kind whose latency is measured.
pub(crate) struct StatementCounter {
    counter: telemetry::Counter,
    kind: Kind,
    latencies: Rc<Latencies>,
}

impl StatementCounter {
    /// One begins.
    #[inline]
    pub(crate) fn inc(&self) {
        self.counter.inc();
        self.latencies.note_kind(self.kind);
    }
}

impl Counters {
    pub(crate) fn new(shard: &telemetry::Shard, latencies: &Rc<Latencies>) -> Counters {
        let errors = ErrorCode::ALL
            .iter()
            .map(|code| {
                let labels = [("code", code.name())];
                (*code, shard.counter("cql_errors_total", "errors sent to clients", &labels))
            })
            .collect();
        let counter = |name, help| shard.counter(name, help, &[]);
        let statements =
            |kind| shard.counter("cql_statements_total", "statements executed", &[("kind", kind)]);
        let measured = |name, kind| StatementCounter {
            counter: statements(name),
            kind,
            latencies: latencies.clone(),
        };
        Counters {
            overloaded: counter("cql_requests_shed_total", "requests refused for overload"),
            reads: measured("select", Kind::Read),
            writes: measured("modify", Kind::Write),
            batches: measured("batch", Kind::Write),
            schema_changes: statements("schema"),
            prepared: counter("cql_statements_prepared_total", "PREPARE requests that succeeded"),
            replanned: counter(
                "cql_statements_replanned_total",
                "prepared statements planned again because the schema changed",
            ),
            prepared_executions: counter(
                "cql_prepared_executions_total",
                "prepared statements executed",
            ),
            regular_executions: counter(
                "cql_regular_executions_total",
                "statements executed that were sent as text",
            ),
            prepared_evicted: counter(
                "cql_prepared_evicted_total",
                "prepared statements evicted to make room for others",
            ),
            memory_pages: counter(
                "cql_memory_pages_total",
                "pages that ended early because of their size",
            ),
            tombstone_pages: counter(
                "cql_tombstone_pages_total",
                "pages that ended early because they had read many tombstones",
            ),
            prepared_statements: shard.gauge(
                "cql_prepared_statements",
                "prepared statements in the cache now",
                &[],
            ),
            batch_partitions: ["logged", "unlogged", "counter"].map(|kind| {
                let help = "partitions that a batch without conditions writes to";
                shard.histogram("cql_batch_partitions", help, &[("kind", kind)])
            }),
            errors,
        }
    }

    /// Counts a batch without conditions, by its number of partitions.
    pub(crate) fn batch(&self, kind: BatchKind, partitions: usize) {
        let [logged, unlogged, counter] = &self.batch_partitions;
        let histogram = match kind {
            BatchKind::Logged => logged,
            BatchKind::Unlogged => unlogged,
            BatchKind::Counter => counter,
        };
        if partitions > 0 {
            histogram.record(u64::try_from(partitions).unwrap_or(u64::MAX));
        }
    }

    /// An error was sent.
    #[cold]
    pub fn failed(&self, code: ErrorCode) {
        if let Some((_, counter)) = self.errors.iter().find(|(c, _)| *c == code) {
            counter.inc();
        }
    }
}
