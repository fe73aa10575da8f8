//! [`Recording`]: writes the records and the trace of one repair.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;

use cluster::TokenRange;
use stdx::Uuid;

use crate::env::Env;
use crate::job::Job;
use crate::records::{RepairRecord, RepairRecords};
use crate::scope::{Kind, Scope, Session, text_of};

/// Maximum number of ranges of one session and table with a record each; the others are only in the
/// parent's record.
const RANGES_MAX: usize = 1024;

fn options_of(job: &Job) -> BTreeMap<String, String> {
    let o = &job.options;
    let pairs = [
        ("parallelism", o.parallelism().to_owned()),
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

/// The records and the trace of one repair.
#[derive(Clone, Copy)]
pub(crate) struct Recording<'a> {
    env: &'a Env,
    job: &'a Job,
}

impl<'a> Recording<'a> {
    pub(crate) fn new(env: &'a Env, job: &'a Job) -> Recording<'a> {
        Recording { env, job }
    }

    /// Returns the writer of records; `None` for a preview.
    fn records(&self) -> Option<&'a Rc<dyn RepairRecords>> {
        let is_preview = matches!(self.job.options.kind(), Kind::Preview(_));
        self.env.records.as_ref().filter(|_| !is_preview)
    }

    pub(crate) fn start(&self, scope: &Scope) {
        let Some(records) = self.records() else {
            return;
        };
        let snapshot = (self.env.snapshot)();
        let name = |id| snapshot.schema.table_by_id(id).map(|t| t.name.to_string());
        records.record(RepairRecord::Started {
            parent: self.job.session,
            keyspace: self.job.options.keyspace.clone(),
            tables: scope.tables.iter().filter_map(|id| name(*id)).collect(),
            options: options_of(self.job),
            ranges: texts(&scope.sessions),
            at: self.env.rt.wall(),
        });
    }

    /// The trace of a repair begins, when it is traced.
    pub(crate) fn start_trace(&self) {
        let (Some(records), Some(trace)) = (&self.env.records, self.job.trace) else { return };
        let snapshot = (self.env.snapshot)();
        let named = &self.job.options.tables;
        let keyspace = snapshot.schema.keyspace(&self.job.options.keyspace);
        let all = keyspace.into_iter().flat_map(|k| k.tables.keys());
        let tables = all.map(ToString::to_string).filter(|t| named.is_empty() || named.contains(t));
        records.record(RepairRecord::TraceStarted {
            trace,
            keyspace: self.job.options.keyspace.clone(),
            tables: tables.collect(),
            at: self.job.started_at,
        });
    }

    /// A step of a repair, when it is traced.
    pub(crate) fn trace(&self, activity: &str) {
        let (Some(records), Some(trace)) = (&self.env.records, self.job.trace) else { return };
        records.record(RepairRecord::Traced {
            trace,
            id: records.time_uuid(),
            activity: activity.to_owned(),
            elapsed: self.env.rt.now().since(self.job.began),
        });
    }

    /// Records an activity, and prints it as a line of output.
    pub(crate) fn line(&self, activity: impl FnOnce() -> String) {
        if self.job.options.trace {
            let activity = activity();
            self.trace(&activity);
            self.job.say(self.env.rt.wall(), activity);
        }
    }

    /// The trace ends.
    pub(crate) fn end_trace(&self) {
        let (Some(records), Some(trace)) = (&self.env.records, self.job.trace) else { return };
        let took = self.env.rt.now().since(self.job.began);
        records.record(RepairRecord::TraceEnded { trace, took });
    }

    pub(crate) fn end(&self, repaired: &[Session], error: Option<String>) {
        if let Some(records) = self.records() {
            let (parent, ranges) = (self.job.session, texts(repaired));
            records.record(RepairRecord::Ended { parent, ranges, error, at: self.env.rt.wall() });
        }
    }

    /// Records that a table's ranges begin; the ids of the records.
    pub(crate) fn start_ranges(&self, session: &Session, table: &str) -> Vec<Uuid> {
        let Some(records) = self.records() else {
            return Vec::new();
        };
        let participants: Vec<SocketAddr> =
            session.peers.iter().map(|h| self.env.address(*h)).collect();
        let begin = |range: &TokenRange| {
            let id = records.time_uuid();
            records.record(RepairRecord::RangeStarted {
                id,
                parent: self.job.session,
                keyspace: self.job.options.keyspace.clone(),
                table: table.to_owned(),
                range: *range,
                participants: participants.clone(),
                at: self.env.rt.wall(),
            });
            id
        };
        session.ranges.iter().take(RANGES_MAX).map(begin).collect()
    }

    pub(crate) fn end_ranges(&self, table: &str, ids: Vec<Uuid>, error: Option<&str>) {
        let Some(records) = &self.env.records else { return };
        for id in ids {
            records.record(RepairRecord::RangeEnded {
                id,
                keyspace: self.job.options.keyspace.clone(),
                table: table.to_owned(),
                error: error.map(str::to_owned),
                at: self.env.rt.wall(),
            });
        }
    }
}
