//! Lines of a repair's output.

use cluster::TokenRange;
use store::ReadScope;

use crate::job::Job;
use crate::scope::{Kind, text_of};

/// Ranges as Cassandra lists them.
pub(super) fn list_of(ranges: &[TokenRange]) -> String {
    let all: Vec<String> = ranges.iter().map(|r| text_of(*r)).collect();
    format!("[{}]", all.join(", "))
}

pub(super) fn describe(job: &Job, range_count: usize) -> String {
    let o = &job.options;
    let list = |names: &[String]| format!("[{}]", names.join(", "));
    format!(
        "Starting repair command #{} ({}), repairing keyspace {} with repair options (parallelism: \
         {}, primary range: {}, incremental: {}, job threads: {}, ColumnFamilies: {}, \
         dataCenters: {}, hosts: {}, previewKind: {}, # of ranges: {range_count}, pull repair: \
         {}, force repair: {}, optimise streams: false, ignore unreplicated keyspaces: {}, \
         repairPaxos: {}, paxosOnly: {})",
        job.id,
        job.session,
        o.keyspace,
        o.parallelism(),
        o.primary_range,
        o.kind() == Kind::Incremental,
        o.job_threads,
        list(&o.tables),
        list(&o.datacenters),
        list(&o.hosts),
        match o.kind() {
            Kind::Full | Kind::Incremental => "NONE",
            Kind::Preview(ReadScope::Unrepaired) => "UNREPAIRED",
            Kind::Preview(ReadScope::Repaired) => "REPAIRED",
            Kind::Preview(_) => "ALL",
        },
        o.pull,
        o.force,
        o.ignore_unreplicated,
        o.repairs_paxos(),
        o.paxos_only,
    )
}

pub(super) fn summary(job: &Job) -> String {
    let counts = job.counts.get();
    match (matches!(job.options.kind(), Kind::Preview(_)), counts.differing) {
        (false, _) => "Repair completed successfully".to_owned(),
        (true, 0) => "Previewed data was in sync".to_owned(),
        (true, n) => format!(
            "Total estimated streaming: {n} stretches, {} mutations, {} bytes",
            counts.mutations, counts.mutation_bytes
        ),
    }
}
