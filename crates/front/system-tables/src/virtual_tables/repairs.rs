//! `system_views.repairs`, `repair_sessions` and `repair_jobs`: repairs that this node coordinates.
//!
//! Replicas of a repair do not send a tree but digests of stretches, which are compared, and sent
//! where they differ, in a pipeline: a job's rows may be sent before all of it is compared.
//!
//! Source: Cassandra's `LocalRepairTables`.

use std::collections::BTreeSet;

use admin::model::{
    RepairCommand, RepairDetails, RepairJobReport, RepairReport, RepairSessionReport,
};
use admin::{AdminReply, AdminRequest};
use cql_plan::virtual_row::{VirtualRowBuilder, VirtualRowError};
use schema::Table;
use stdx::Uuid;
use types::wire::encode_collection;

use super::course::{Course, Subject, strings, uuid_set};
use super::{Row, Rows, Sources};

/// Repairs are coordinated by the first shard; none when the node stops.
async fn reports(sources: &Sources) -> Vec<RepairReport> {
    match sources.ask_first(AdminRequest::Repair(RepairCommand::Details)).await {
        Some(AdminReply::Repairs(all)) => all,
        _ => Vec::new(),
    }
}

pub(super) async fn repairs(sources: &Sources, table: &Table) -> Rows {
    let now = sources.rt.wall().millis();
    repair_rows(table, &reports(sources).await, now)
}

pub(super) async fn sessions(sources: &Sources, table: &Table) -> Rows {
    let now = sources.rt.wall().millis();
    session_rows(table, &reports(sources).await, now)
}

pub(super) async fn jobs(sources: &Sources, table: &Table) -> Rows {
    let now = sources.rt.wall().millis();
    job_rows(table, &reports(sources).await, now)
}

/// Returns the repairs with known details.
fn detailed(all: &[RepairReport]) -> impl Iterator<Item = (&RepairReport, &RepairDetails)> {
    all.iter().filter_map(|report| Some((report, report.details.as_deref()?)))
}

/// The rows of `repairs` at a time in milliseconds since 1970.
pub(super) fn repair_rows(table: &Table, all: &[RepairReport], now: i64) -> Rows {
    let mut rows = Vec::new();
    for (report, details) in detailed(all) {
        rows.extend(repair(table, report, details, now)?);
    }
    Ok(rows)
}

/// The rows of `repair_sessions`.
pub(super) fn session_rows(table: &Table, all: &[RepairReport], now: i64) -> Rows {
    let mut rows = Vec::new();
    for (report, details) in detailed(all) {
        for one in &details.sessions {
            rows.extend(session(table, report, details, one, now)?);
        }
    }
    Ok(rows)
}

/// The rows of `repair_jobs`.
pub(super) fn job_rows(table: &Table, all: &[RepairReport], now: i64) -> Rows {
    let mut rows = Vec::new();
    for (report, details) in detailed(all) {
        for session in &details.sessions {
            for one in &session.jobs {
                rows.extend(job(table, report, session, one, now)?);
            }
        }
    }
    Ok(rows)
}

/// `frozen<list<frozen<list<text>>>>`.
fn lists<'a>(all: impl Iterator<Item = &'a Vec<String>>) -> Result<Vec<u8>, VirtualRowError> {
    let lists: Result<Vec<Vec<u8>>, _> = all.map(|list| encode_collection(strings(list))).collect();
    Ok(encode_collection(lists?)?)
}

fn repair(table: &Table, report: &RepairReport, details: &RepairDetails, now: i64) -> Row {
    let Ok(id) = Uuid::parse_str(&report.session) else { return Ok(None) };
    let order = &details.order;
    let mut row = VirtualRowBuilder::new(table);
    let course = Course {
        init: report.started_at,
        updated: None,
        // Nothing is prepared at the replicas before their data is compared.
        phases: &[
            ("setup", Some(report.started_at)),
            ("start", details.planned_at),
            ("repair_start", details.compared_from),
            ("repair_complete", details.compared_upto),
        ],
        ended: details.ended_at.map(|at| (at, report.state == "SUCCESSFUL")),
        message: details.message.as_deref(),
    };
    course.put(&mut row, now);
    let parallelism = match (order.sequential, order.datacenter_parallel) {
        (true, _) => "SEQUENTIAL",
        (false, true) => "DATACENTER_AWARE",
        (false, false) => "PARALLEL",
    };
    let preview = match details.kind.as_str() {
        "preview full" => "ALL",
        "preview repaired" => "REPAIRED",
        "preview unrepaired" => "UNREPAIRED",
        _ => "NONE",
    };
    row.uuid("id", id)
        .int("command_id", i32::try_from(report.id).unwrap_or(i32::MAX))
        .text("keyspace_name", &report.keyspace)
        .text("type", &details.kind)
        .text("options_parallelism", parallelism)
        .boolean("options_primary_range", order.primary_range)
        .boolean("options_incremental", details.kind == "incremental")
        .boolean("options_trace", order.trace)
        .int("options_job_threads", i32::from(order.job_threads))
        .boolean("options_subrange_repair", !order.ranges.is_empty())
        .boolean("options_pull_repair", order.pull)
        .boolean("options_force_repair", order.force)
        .text("options_preview_kind", preview)
        .boolean("options_optimise_streams", false)
        .boolean("options_ignore_unreplicated_keyspaces", order.ignore_unreplicated)
        .text_set("options_column_families", strings(&order.tables))
        .text_set("options_data_centers", strings(&order.datacenters))
        .text_set("options_hosts", strings(&order.hosts));
    if details.planned_at.is_some() {
        let unfiltered = &details.unfiltered_ranges;
        row.text_set("options_ranges", unfiltered.iter().flat_map(|ranges| strings(ranges)))
            .text_list("table_names", strings(&details.tables))
            .bytes("unfiltered_ranges", lists(unfiltered.iter())?);
    }
    if details.compared_from.is_some() {
        let sessions = &details.sessions;
        let ids = sessions.iter().filter_map(|s| Uuid::parse_str(&s.id).ok());
        let participants: BTreeSet<&str> =
            sessions.iter().flat_map(|s| strings(&s.participants)).collect();
        row.bytes("sessions", encode_collection(ids.map(|id| *id.as_bytes()))?)
            .bytes("ranges", lists(sessions.iter().map(|s| &s.ranges))?)
            .text_list("participants", participants);
    }
    row.finish().map(Some)
}

fn session(
    table: &Table,
    report: &RepairReport,
    details: &RepairDetails,
    one: &RepairSessionReport,
    now: i64,
) -> Row {
    let ids = (Uuid::parse_str(&one.id), Uuid::parse_str(&report.session));
    let (Ok(id), Ok(repair)) = ids else { return Ok(None) };
    let mut row = VirtualRowBuilder::new(table);
    let course = Course {
        init: one.planned_at,
        updated: None,
        // Its tables begin at once.
        phases: &[("start", one.started_at), ("jobs_start", one.started_at)],
        ended: one.ended_at.map(|at| (at, one.error.is_none())),
        message: one.error.as_deref(),
    };
    course.put(&mut row, now);
    row.uuid("id", id)
        .uuid("repair_id", repair)
        .text("keyspace_name", &report.keyspace)
        .text_list("table_names", strings(&details.tables))
        .text_list("ranges", strings(&one.ranges))
        .text_list("participants", strings(&one.participants));
    // Empty until its tables begin, as in Cassandra.
    let jobs = one.jobs.iter().filter_map(|job| Uuid::parse_str(&job.id).ok());
    row.bytes("jobs", uuid_set(jobs)?);
    row.finish().map(Some)
}

fn job(
    table: &Table,
    report: &RepairReport,
    session: &RepairSessionReport,
    one: &RepairJobReport,
    now: i64,
) -> Row {
    let parse = |id: &str| Uuid::parse_str(id).ok();
    let ids = (parse(&one.id), parse(&report.session), parse(&session.id));
    let (Some(id), Some(repair), Some(of)) = ids else { return Ok(None) };
    let mut row = VirtualRowBuilder::new(table);
    let course = Course {
        init: one.started_at,
        updated: None,
        // In the order in which they come here.
        phases: &[
            ("start", Some(one.started_at)),
            ("validation_start", one.compared_from),
            ("stream_start", one.sent_from),
            ("validation_complete", one.compared_upto),
        ],
        ended: one.ended_at.map(|at| (at, one.error.is_none())),
        message: one.error.as_deref(),
    };
    course.put(&mut row, now);
    Subject {
        repair,
        session: of,
        keyspace: &report.keyspace,
        table: &one.table,
        ranges: &session.ranges,
    }
    .put(&mut row);
    row.uuid("id", id).text_list("participants", strings(&session.participants));
    row.finish().map(Some)
}
