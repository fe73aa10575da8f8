//! What operators' scripts read about repairs: records of their beginning and end, which the node writes
//! as Cassandra's rows of `system_distributed.parent_repair_history` and `repair_history`, and steps of
//! traced repairs.
//!
//! Owns: which records there are, and when. Never: rows, tables, where they are written.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use cluster::TokenRange;
use stdx::{Uuid, WallMicros};

use crate::drive::parallelism;
use crate::job::Job;
use crate::repair::Inner;
use crate::scope::{Kind, Scope, Session, text_of};

/// Ranges of one session and table that get a record each; of the others only the parent tells.
const RANGES_MAX: usize = 1024;

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
        /// Of which repair.
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
        /// As at its beginning.
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
        /// What was done.
        activity: String,
        /// Since the beginning.
        elapsed: Duration,
    },
    /// It has ended.
    TraceEnded {
        /// Session of the trace.
        trace: Uuid,
        /// How long it took.
        took: Duration,
    },
}

/// Takes records; what cannot be written is lost, as in Cassandra.
pub trait RepairRecords {
    /// A new time UUID.
    fn time_uuid(&self) -> Uuid;
    /// To be written soon.
    fn record(&self, record: RepairRecord);
}

fn options_of(job: &Job) -> BTreeMap<String, String> {
    let o = &job.options;
    let pairs = [
        ("parallelism", parallelism(o).to_owned()),
        ("primaryRange", o.primary_range.to_string()),
        ("incremental", (o.kind() == Kind::Incremental).to_string()),
        ("jobThreads", o.job_threads.to_string()),
        ("dataCenters", o.datacenters.join(",")),
        ("hosts", o.hosts.join(",")),
        ("columnFamilies", o.tables.join(",")),
        ("trace", o.trace.to_string()),
        ("pullRepair", o.pull.to_string()),
        ("forceRepair", o.force.to_string()),
        ("previewKind", "NONE".to_owned()),
        ("repairPaxos", o.repairs_paxos().to_string()),
        ("paxosOnly", o.paxos_only.to_string()),
    ];
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

fn texts(sessions: &[Session]) -> Vec<String> {
    sessions.iter().flat_map(|s| s.ranges.iter().map(|r| text_of(*r))).collect()
}

impl Inner {
    fn keeps_records(&self, job: &Job) -> bool {
        !matches!(job.options.kind(), Kind::Preview(_))
    }

    pub(crate) fn record_start(&self, job: &Job, scope: &Scope) {
        let Some(records) = self.records.as_ref().filter(|_| self.keeps_records(job)) else {
            return;
        };
        let snapshot = (self.snapshot)();
        let name = |id| snapshot.schema.table_by_id(id).map(|t| t.name.to_string());
        records.record(RepairRecord::Started {
            parent: job.session,
            keyspace: job.options.keyspace.clone(),
            tables: scope.tables.iter().filter_map(|id| name(*id)).collect(),
            options: options_of(job),
            ranges: texts(&scope.sessions),
            at: self.rt.wall(),
        });
    }

    /// The trace of a repair begins, when it is traced.
    pub(crate) fn trace_start(&self, job: &Job) {
        let (Some(records), Some(trace)) = (&self.records, job.trace) else { return };
        let snapshot = (self.snapshot)();
        let named = &job.options.tables;
        let keyspace = snapshot.schema.keyspace(&job.options.keyspace);
        let all = keyspace.into_iter().flat_map(|k| k.tables.keys());
        let tables = all.map(ToString::to_string).filter(|t| named.is_empty() || named.contains(t));
        records.record(RepairRecord::TraceStarted {
            trace,
            keyspace: job.options.keyspace.clone(),
            tables: tables.collect(),
            at: job.started_at,
        });
    }

    /// A step of a repair, when it is traced.
    pub(crate) fn trace(&self, job: &Job, activity: &str) {
        let (Some(records), Some(trace)) = (&self.records, job.trace) else { return };
        records.record(RepairRecord::Traced {
            trace,
            id: records.time_uuid(),
            activity: activity.to_owned(),
            elapsed: self.rt.now().since(job.began),
        });
    }

    /// The same, and a line of its output.
    pub(crate) fn tell_trace(&self, job: &Job, activity: impl FnOnce() -> String) {
        if job.options.trace {
            let activity = activity();
            self.trace(job, &activity);
            job.say(self.rt.wall(), activity);
        }
    }

    /// The trace ends.
    pub(crate) fn trace_end(&self, job: &Job) {
        let (Some(records), Some(trace)) = (&self.records, job.trace) else { return };
        let took = self.rt.now().since(job.began);
        records.record(RepairRecord::TraceEnded { trace, took });
    }

    pub(crate) fn record_end(&self, job: &Job, repaired: &[Session], error: Option<String>) {
        if let Some(records) = self.records.as_ref().filter(|_| self.keeps_records(job)) {
            let (parent, ranges) = (job.session, texts(repaired));
            records.record(RepairRecord::Ended { parent, ranges, error, at: self.rt.wall() });
        }
    }

    /// Records that a table's ranges begin; the ids of the records.
    pub(crate) fn record_ranges(&self, job: &Job, session: &Session, table: &str) -> Vec<Uuid> {
        let Some(records) = self.records.as_ref().filter(|_| self.keeps_records(job)) else {
            return Vec::new();
        };
        let participants: Vec<SocketAddr> =
            session.peers.iter().map(|h| self.address(*h)).collect();
        let begin = |range: &TokenRange| {
            let id = records.time_uuid();
            records.record(RepairRecord::RangeStarted {
                id,
                parent: job.session,
                keyspace: job.options.keyspace.clone(),
                table: table.to_owned(),
                range: *range,
                participants: participants.clone(),
                at: self.rt.wall(),
            });
            id
        };
        session.ranges.iter().take(RANGES_MAX).map(begin).collect()
    }

    pub(crate) fn record_ranges_end(
        &self,
        job: &Job,
        table: &str,
        ids: Vec<Uuid>,
        error: Option<&str>,
    ) {
        let Some(records) = &self.records else { return };
        for id in ids {
            records.record(RepairRecord::RangeEnded {
                id,
                keyspace: job.options.keyspace.clone(),
                table: table.to_owned(),
                error: error.map(str::to_owned),
                at: self.rt.wall(),
            });
        }
    }
}
