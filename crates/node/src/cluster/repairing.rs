//! Repairs as administration orders and reports them.

use std::sync::Arc;

use admin::ActionError;
use admin::model::{
    AutoRepairReport, AutoRepairTable, CourseReport, ParticipationReport, RepairCommand,
    RepairDetails, RepairJobReport, RepairLineReport, RepairOrder, RepairReport,
    RepairSessionReport, RepairSummary, RepairSummaryQuery, ValidationReport,
};
use cluster::{ClusterSnapshot, Replication};
use repair::{Automatic, Kind, Repair, RepairOptions, RepairState, RepairStatus};
use schema::Keyspace;
use stdx::{Token, WallMicros};
use store::{ReadScope, Store};

/// Carries out a command on the shard's repairs.
///
/// # Errors
/// `Argument`: invalid options.
pub(crate) fn carry_out(
    repair: &Repair,
    command: RepairCommand,
) -> Result<Vec<RepairReport>, ActionError> {
    Ok(match command {
        RepairCommand::Start(order) => {
            let id = repair.start(options_of(order)).map_err(ActionError::Argument)?;
            vec![RepairReport { id, ..RepairReport::default() }]
        }
        RepairCommand::Status { id, from } => {
            repair.status(id, from).into_iter().map(report_of).collect()
        }
        RepairCommand::List => repair.list().into_iter().map(report_of).collect(),
        RepairCommand::Details => {
            let all = repair.list_details().into_iter();
            all.map(|(status, details)| {
                let details = Some(Box::new(details_of(details)));
                RepairReport { details, ..report_of(status) }
            })
            .collect()
        }
        RepairCommand::Abort { id } => {
            repair.abort(id);
            Vec::new()
        }
    })
}

/// The same of a node that has no others.
///
/// # Errors
/// `Argument`; `Failed`: the keyspace has replicas that are nowhere.
pub(crate) fn alone(
    snapshot: &ClusterSnapshot,
    command: RepairCommand,
) -> Result<Vec<RepairReport>, ActionError> {
    let RepairCommand::Start(order) = command else { return Ok(Vec::new()) };
    let options = options_of(order);
    repair::scope::check(snapshot, &options).map_err(ActionError::Argument)?;
    let is_replicated = repair::scope::is_replicated(snapshot, &options.keyspace);
    if is_replicated && !options.ignore_unreplicated {
        let text =
            format!("Nothing to repair in {}: no other node has a replica", options.keyspace);
        return Err(ActionError::Failed(text));
    }
    Ok(vec![RepairReport::default()])
}

fn options_of(order: RepairOrder) -> RepairOptions {
    // Named one by one, so that a new option cannot be forgotten here.
    let RepairOrder {
        keyspace,
        tables,
        primary_range,
        ranges,
        datacenters,
        hosts,
        preview,
        sequential,
        job_threads,
        incremental,
        ignore_unreplicated,
        validate,
        datacenter_parallel,
        force,
        pull,
        paxos_only,
        skip_paxos,
        trace,
    } = order;
    RepairOptions {
        keyspace,
        tables,
        primary_range,
        ranges: ranges.into_iter().map(|(start, end)| (Token(start), Token(end))).collect(),
        datacenters,
        hosts,
        preview,
        sequential,
        job_threads,
        incremental,
        ignore_unreplicated,
        validate,
        datacenter_parallel,
        force,
        pull,
        paxos_only,
        skip_paxos,
        trace,
        bytes_per_second: 0,
    }
}

/// Source of the times when ranges were repaired.
#[derive(Clone, Copy)]
pub(crate) enum RepairedParts<'a> {
    /// The first shard of a node with others.
    Of(&'a Repair),
    /// The first shard of a node without others: nothing was.
    Never,
    /// Another shard reports it.
    OtherShard,
}

/// Returns what a shard knows of repairs of tables: its files that take part in sessions, and when
/// ranges were repaired.
///
/// # Errors
/// `Argument`: there is no such keyspace or table.
pub(crate) fn summary(
    snapshot: &ClusterSnapshot,
    store: &Store,
    repaired: RepairedParts<'_>,
    query: &RepairSummaryQuery,
) -> Result<Vec<RepairSummary>, ActionError> {
    let schema = &snapshot.schema;
    let keyspaces: Vec<&Keyspace> = match &query.keyspace {
        Some(name) => {
            let found = schema.keyspace(name).filter(|k| !k.is_virtual);
            let missing =
                || ActionError::UnknownKeyspace(format!("Keyspace [{name}] does not exist."));
            vec![found.ok_or_else(missing)?]
        }
        None => {
            let is_replicated = |k: &&Arc<Keyspace>| {
                !k.is_virtual && snapshot.replication_of(k) != Replication::Local
            };
            schema.keyspaces.values().filter(is_replicated).map(|k| &**k).collect()
        }
    };
    let mut summaries = Vec::new();
    for keyspace in keyspaces {
        if let Some(name) =
            query.tables.iter().find(|name| !keyspace.tables.contains_key(name.as_str()))
        {
            let text = format!("Unknown keyspace/cf pair ({}.{name})", keyspace.name);
            return Err(ActionError::UnknownTable(text));
        }
        let ranges = match query.range {
            Some((start, end)) => vec![(Token(start), Token(end))],
            None => repair::history::owned(snapshot, keyspace),
        };
        let is_meant =
            |name: &str| query.tables.is_empty() || query.tables.iter().any(|t| t == name);
        for table in keyspace.tables.values().filter(|t| is_meant(&t.name)) {
            let pending = store.repair().pending_files(table.id, &ranges);
            let mut sessions: Vec<String> = pending.iter().map(|(id, _)| id.to_string()).collect();
            sessions.sort_unstable();
            sessions.dedup();
            let parts = match repaired {
                RepairedParts::OtherShard => Vec::new(),
                RepairedParts::Of(repair) => repair.repaired_parts(table.id, &ranges),
                RepairedParts::Never => {
                    ranges.iter().map(|(start, end)| (*start, *end, 0)).collect()
                }
            };
            let millis =
                |(start, end, at): (Token, Token, i64)| (start.0, end.0, at.saturating_mul(1000));
            summaries.push(RepairSummary {
                keyspace: keyspace.name.to_string(),
                table: table.name.to_string(),
                pending_bytes: pending.iter().fold(0, |sum: u64, (_, n)| sum.saturating_add(*n)),
                pending_files: pending.len() as u64,
                pending_sessions: sessions,
                repaired: parts.into_iter().map(millis).collect(),
            });
        }
    }
    Ok(summaries)
}

/// Switches automatic repairs on or off if a value is given, and returns their state.
pub(crate) fn auto(repair: &Repair, enabled: Option<bool>) -> AutoRepairReport {
    if let Some(enabled) = enabled {
        let automatic = if enabled { Automatic::On } else { Automatic::Off };
        repair.set_automatic(automatic);
    }
    let status = repair.auto_status();
    let table = |t: repair::AutoTable| AutoRepairTable {
        state: match (t.is_running, t.is_late, t.is_due) {
            (true, _, _) => "RUNNING",
            (false, true, _) => "LATE",
            (false, false, true) => "DUE",
            (false, false, false) => "DONE",
        }
        .to_owned(),
        keyspace: t.keyspace,
        table: t.name,
        repaired_at: t.repaired_at,
        window_seconds: t.window_seconds,
    };
    AutoRepairReport {
        enabled: status.enabled,
        bytes_per_second: status.bytes_per_second,
        pace_bytes_per_second: status.pace.bytes_per_second,
        needed_bytes_per_second: status.pace.needed,
        late_parts: status.pace.late,
        is_behind: status.pace.is_behind,
        last_error: status.last_error,
        tables: status.tables.into_iter().map(table).collect(),
        config: None,
    }
}

fn report_of(status: RepairStatus) -> RepairReport {
    let counts = status.counts;
    let state = match status.state {
        RepairState::Running => "RUNNING",
        RepairState::Successful => "SUCCESSFUL",
        RepairState::Failed => "FAILED",
    };
    let lines = status.lines.into_iter();
    RepairReport {
        id: status.id,
        session: status.session.to_string(),
        keyspace: status.keyspace,
        state: state.to_owned(),
        percent: status.percent,
        started_at: status.started_at.0,
        bytes_read: counts.bytes_read,
        stretches: counts.segments,
        differing: counts.differing,
        mutations: counts.mutations,
        mutation_bytes: counts.mutation_bytes,
        lines: lines
            .map(|l| RepairLineReport { number: l.number, at: l.at.0, text: l.text })
            .collect(),
        details: None,
    }
}

fn job_of(job: repair::JobDetails) -> RepairJobReport {
    let micros = |at: Option<WallMicros>| at.map(|at| at.0);
    RepairJobReport {
        id: job.id.to_string(),
        table: job.table,
        started_at: job.started_at.0,
        compared_from: micros(job.compared_from),
        sent_from: micros(job.sent_from),
        compared_upto: micros(job.compared_upto),
        ended_at: job.ended.as_ref().map(|(at, _)| at.0),
        error: job.ended.and_then(|(_, error)| error),
    }
}

/// The node's parts in repairs, its own and those of others.
pub(crate) fn participations(repair: &Repair) -> Vec<ParticipationReport> {
    let course = |course: repair::Course| CourseReport {
        began_at: course.began.0,
        updated_at: course.updated.0,
        ended_at: course.ended.as_ref().map(|(at, _)| at.0),
        error: course.ended.and_then(|(_, ending)| ending.err()),
    };
    let validation = |v: repair::ValidationDetails| ValidationReport {
        id: v.id.to_string(),
        session: v.session.to_string(),
        table: v.table,
        ranges: v.ranges,
        partitions_estimate: v.estimated.0,
        bytes_estimate: v.estimated.1,
        partitions: v.partitions,
        bytes_read: v.bytes_read,
        started_at: v.started.map(|at| at.0),
        sent_at: v.sent.map(|at| at.0),
        course: course(v.course),
    };
    let all = repair.participations().into_iter();
    all.map(|p| ParticipationReport {
        id: p.id.to_string(),
        initiator: format!("/{}", p.initiator),
        tables: p.tables,
        ranges: p.ranges,
        incremental: p.incremental,
        global: p.global,
        preview: p.preview.name().to_owned(),
        repaired_at: p.repaired_at,
        course: course(p.course),
        validations: p.validations.into_iter().map(validation).collect(),
    })
    .collect()
}

fn details_of(details: repair::RepairDetails) -> RepairDetails {
    let kind = match details.options.kind() {
        Kind::Full => "full",
        Kind::Incremental => "incremental",
        Kind::Preview(ReadScope::Unrepaired) => "preview unrepaired",
        Kind::Preview(ReadScope::Repaired) => "preview repaired",
        Kind::Preview(_) => "preview full",
    };
    let session = |s: repair::SessionDetails| RepairSessionReport {
        id: s.id.to_string(),
        ranges: s.ranges,
        participants: s.participants.iter().map(|address| format!("/{address}")).collect(),
        planned_at: s.planned_at.0,
        started_at: s.started_at.map(|at| at.0),
        ended_at: s.ended.as_ref().map(|(at, _)| at.0),
        error: s.ended.and_then(|(_, error)| error),
        jobs: s.jobs.into_iter().map(job_of).collect(),
    };
    RepairDetails {
        order: order_of(details.options),
        kind: kind.to_owned(),
        tables: details.tables,
        unfiltered_ranges: details.unfiltered,
        sessions: details.sessions.into_iter().map(session).collect(),
        planned_at: details.planned_at.map(|at| at.0),
        compared_from: details.compared_from.map(|at| at.0),
        compared_upto: details.compared_upto.map(|at| at.0),
        ended_at: details.ended_at.map(|at| at.0),
        message: details.message,
    }
}

fn order_of(options: RepairOptions) -> RepairOrder {
    let RepairOptions {
        keyspace,
        tables,
        primary_range,
        ranges,
        datacenters,
        hosts,
        preview,
        sequential,
        job_threads,
        incremental,
        ignore_unreplicated,
        validate,
        datacenter_parallel,
        force,
        pull,
        paxos_only,
        skip_paxos,
        trace,
        // Only the schedule sets it; an order cannot.
        bytes_per_second: _,
    } = options;
    RepairOrder {
        keyspace,
        tables,
        primary_range,
        ranges: ranges.into_iter().map(|(start, end)| (start.0, end.0)).collect(),
        datacenters,
        hosts,
        preview,
        sequential,
        job_threads,
        incremental,
        ignore_unreplicated,
        validate,
        datacenter_parallel,
        force,
        pull,
        paxos_only,
        skip_paxos,
        trace,
    }
}
