//! Virtual tables about data on the move: repairs that this node coordinates, its part in those and in the
//! repairs of other nodes, and streams.
//!
//! Replicas of a repair are not asked for a tree but for digests of stretches, which are compared and sent
//! where they differ as it goes on: a validation lasts until the last of them, and a job's rows may be sent
//! before it is all compared. Streams are shown while they are under way.
//!
//! Source: Cassandra's `LocalRepairTables`, `CoordinatorState`, `StreamingVirtualTable`.

use std::collections::{BTreeMap, BTreeSet};

use admin::model::{
    CourseReport, NodeReport, ParticipationReport, RepairCommand, RepairDetails, RepairJobReport,
    RepairReport, RepairSessionReport, StreamProgress, StreamReport, ValidationReport,
};
use admin::{AdminReply, AdminRequest};
use cql_plan::virtual_row::{VirtualRow, VirtualRowBuilder, VirtualRowError};
use schema::Table;
use stdx::{ShardId, Uuid};
use types::wire::encode_collection;

use super::{NodeViews, Rows, whole};

type Row = Result<Option<VirtualRow>, VirtualRowError>;

impl NodeViews {
    /// `repairs`, `repair_sessions` and `repair_jobs`. Repairs are coordinated by the first shard.
    pub(super) async fn repairs(&self, table: &Table) -> Rows {
        let ask = AdminRequest::Repair(RepairCommand::Details);
        let now = self.rt.wall().millis();
        match self.admin.call(&self.rt, ShardId(0), ask).await {
            Ok(AdminReply::Repairs(all)) => repair_rows(table, &all, now),
            _ => Ok(Vec::new()),
        }
    }

    /// `repair_participates` and `repair_validations`, which the first shard knows.
    pub(super) async fn participations(&self, table: &Table) -> Rows {
        let now = self.rt.wall().millis();
        match self.admin.call(&self.rt, ShardId(0), AdminRequest::Participations).await {
            Ok(AdminReply::Participations(all)) => participation_rows(table, &all, now),
            _ => Ok(Vec::new()),
        }
    }

    pub(super) async fn streams(&self, table: &Table) -> Rows {
        let cluster = self.cluster_report().await;
        let sessions = cluster.streaming.map(|s| s.sessions).unwrap_or_default();
        let now = self.rt.wall().millis();
        match self.admin.call(&self.rt, ShardId(0), AdminRequest::Node).await {
            Ok(AdminReply::Node(node)) => stream_rows(table, &node, &sessions, now),
            _ => Ok(Vec::new()),
        }
    }
}

/// The rows of `repairs`, `repair_sessions` or `repair_jobs`, at a time in milliseconds since 1970.
pub(super) fn repair_rows(table: &Table, all: &[RepairReport], now: i64) -> Rows {
    let mut rows: Vec<VirtualRow> = Vec::new();
    for report in all {
        let Some(details) = report.details.as_deref() else { continue };
        if &*table.name == "repairs" {
            rows.extend(repair(table, report, details, now)?);
            continue;
        }
        for one in &details.sessions {
            match &*table.name {
                "repair_jobs" => {
                    for of in &one.jobs {
                        rows.extend(job(table, report, one, of, now)?);
                    }
                }
                _ => rows.extend(session(table, report, details, one, now)?),
            }
        }
    }
    Ok(rows)
}

/// Microseconds to milliseconds.
fn millis(at: i64) -> i64 {
    at.div_euclid(1000)
}

/// What Cassandra shows of everything that ends: when it began, what it came to.
struct Course<'a> {
    /// When it was made, microseconds since 1970.
    init: i64,
    /// When something happened last that is none of its phases.
    updated: Option<i64>,
    /// Its phases with their times, in order.
    phases: &'a [(&'static str, Option<i64>)],
    /// When and how it ended.
    ended: Option<(i64, bool)>,
    message: Option<&'a str>,
}

impl Course<'_> {
    fn put(&self, row: &mut VirtualRowBuilder<'_>, now: i64) {
        let status = self.put_without_status(row, now);
        row.text("status", status);
    }

    /// The same for tables without a status; what it would be.
    fn put_without_status(&self, row: &mut VirtualRowBuilder<'_>, now: i64) -> &'static str {
        let reached = self.phases.iter().filter_map(|(name, at)| Some((*name, (*at)?)));
        let (phase, at) = reached.clone().next_back().unwrap_or(("init", self.init));
        let init = millis(self.init);
        row.timestamp_millis("state_init_timestamp", init)
            .boolean("completed", self.ended.is_some());
        for (name, at) in reached {
            row.timestamp_millis(&format!("state_{name}_timestamp"), millis(at));
        }
        let (status, updated) = match self.ended {
            None => (phase, self.updated.map_or(at, |updated| updated.max(at))),
            Some((at, true)) => ("success", at),
            Some((at, false)) => ("failure", at),
        };
        let until = if self.ended.is_some() { millis(updated) } else { now };
        row.timestamp_millis("last_updated_at", millis(updated))
            .bigint("duration_millis", until.saturating_sub(init).max(0));
        match self.ended {
            Some((at, true)) => row
                .timestamp_millis("state_success_timestamp", millis(at))
                .text_or_null("success_message", self.message),
            Some((at, false)) => row
                .timestamp_millis("state_failure_timestamp", millis(at))
                .text_or_null("failure_cause", self.message),
            None => row,
        };
        status
    }
}

fn strings(values: &[String]) -> impl Iterator<Item = &str> {
    values.iter().map(String::as_str)
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

/// `frozen<set<uuid>>`.
fn uuid_set(ids: impl Iterator<Item = Uuid>) -> Result<Vec<u8>, VirtualRowError> {
    let mut ids: Vec<[u8; 16]> = ids.map(|id| *id.as_bytes()).collect();
    let uuid = types::CqlType::Uuid;
    ids.sort_unstable_by(|a, b| uuid.compare(a, b));
    ids.dedup();
    Ok(encode_collection(ids)?)
}

/// What jobs and validations say of what they are about.
fn about(
    row: &mut VirtualRowBuilder<'_>,
    (repair, session): (Uuid, Uuid),
    (keyspace, table): (&str, &str),
    ranges: &[String],
) {
    row.uuid("repair_id", repair)
        .uuid("session_id", session)
        .text("keyspace_name", keyspace)
        .text("table_name", table)
        .text_list("ranges", strings(ranges));
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
    about(&mut row, (repair, of), (&report.keyspace, &one.table), &session.ranges);
    row.uuid("id", id).text_list("participants", strings(&session.participants));
    row.finish().map(Some)
}

/// The rows of `repair_participates` or `repair_validations`.
pub(super) fn participation_rows(table: &Table, all: &[ParticipationReport], now: i64) -> Rows {
    let mut rows: Vec<VirtualRow> = Vec::new();
    for one in all {
        if &*table.name == "repair_participates" {
            rows.extend(participation(table, one, now)?);
            continue;
        }
        for of in &one.validations {
            rows.extend(validation(table, one, of, now)?);
        }
    }
    Ok(rows)
}

impl<'a> Course<'a> {
    fn of(course: &'a CourseReport, phases: &'a [(&'static str, Option<i64>)]) -> Course<'a> {
        Course {
            init: course.began_at,
            updated: Some(course.updated_at),
            phases,
            ended: course.ended_at.map(|at| (at, course.error.is_none())),
            message: course.error.as_deref(),
        }
    }
}

fn participation(table: &Table, one: &ParticipationReport, now: i64) -> Row {
    let Ok(id) = Uuid::parse_str(&one.id) else { return Ok(None) };
    let mut row = VirtualRowBuilder::new(table);
    Course::of(&one.course, &[]).put_without_status(&mut row, now);
    let validations = one.validations.iter().filter_map(|v| Uuid::parse_str(&v.id).ok());
    row.uuid("id", id)
        .text("initiator", &one.initiator)
        .text_set("tables", strings(&one.tables))
        .text_list("ranges", strings(&one.ranges))
        .boolean("incremental", one.incremental)
        .boolean("global", one.global)
        .text("preview_kind", &one.preview)
        .bytes("validations", uuid_set(validations)?);
    if one.repaired_at != 0 {
        row.timestamp_millis("repaired_at", one.repaired_at);
    }
    row.finish().map(Some)
}

/// Of what is done all is done; of the rest 99 at most.
fn progress(one: &ValidationReport) -> f32 {
    if one.course.ended_at.is_some() {
        return 100.0;
    }
    let parts = u128::from(one.partitions) * 10_000;
    let parts = parts.checked_div(u128::from(one.partitions_estimate)).unwrap_or(0).min(9_900);
    f32::from(u16::try_from(parts).unwrap_or(9_900)) / 100.0
}

fn validation(
    table: &Table,
    repair: &ParticipationReport,
    one: &ValidationReport,
    now: i64,
) -> Row {
    let parse = |id: &str| Uuid::parse_str(id).ok();
    let ids = (parse(&one.id), parse(&repair.id), parse(&one.session));
    let (Some(id), Some(repair_id), Some(session)) = ids else { return Ok(None) };
    // A table that is dropped has no name any more.
    let Some((keyspace, name)) = &one.table else { return Ok(None) };
    let mut row = VirtualRowBuilder::new(table);
    let phases = [
        ("accept", Some(one.course.began_at)),
        ("start", one.started_at),
        ("sending_trees", one.sent_at),
    ];
    Course::of(&one.course, &phases).put(&mut row, now);
    about(&mut row, (repair_id, session), (keyspace, name), &one.ranges);
    row.uuid("id", id)
        .text("initiator", &repair.initiator)
        .float("progress_percentage", progress(one))
        .bigint("bytes_read", whole(one.bytes_read));
    for (column, number) in [
        ("estimated_partitions", one.partitions_estimate),
        ("estimated_total_bytes", one.bytes_estimate),
        ("partitions_processed", one.partitions),
    ] {
        // As in Cassandra nothing is not a number.
        if number != 0 {
            row.bigint(column, whole(number));
        }
    }
    row.finish().map(Some)
}

/// What the sessions of one plan come to.
#[derive(Default)]
struct Stream {
    operation: String,
    peers: BTreeSet<String>,
    into: StreamProgress,
    out: StreamProgress,
    is_initiator: bool,
    started: Option<i64>,
    updated: i64,
}

fn add(sum: &mut StreamProgress, more: &StreamProgress) {
    sum.files += more.files;
    sum.files_done += more.files_done;
    sum.bytes += more.bytes;
    sum.bytes_done += more.bytes_done;
}

/// The rows of `streaming`: what is under way, plan by plan. Who receives has asked for it.
pub(super) fn stream_rows(
    table: &Table,
    node: &NodeReport,
    sessions: &[StreamReport],
    now: i64,
) -> Rows {
    let mut plans: BTreeMap<Uuid, Stream> = BTreeMap::new();
    for session in sessions.iter().filter(|s| !s.is_finished()) {
        let Ok(id) = Uuid::parse_str(&session.plan_id) else { continue };
        let plan = plans.entry(id).or_default();
        plan.operation.clone_from(&session.operation);
        if let Some(member) = node.nodes.iter().find(|m| m.host_id == session.host_id) {
            let is_v6 = member.address.contains(':');
            let (open, close) = if is_v6 { ("[", "]") } else { ("", "") };
            let (address, port) = (&member.address, member.storage_port);
            plan.peers.insert(format!("/{open}{address}{close}:{port}"));
        }
        if let Some(progress) = &session.receiving {
            plan.is_initiator = true;
            add(&mut plan.into, progress);
        }
        if let Some(progress) = &session.sending {
            add(&mut plan.out, progress);
        }
        let started = session.started_at_millis;
        plan.started = Some(plan.started.map_or(started, |before| before.min(started)));
        plan.updated = plan.updated.max(session.updated_at_millis);
    }
    plans.iter().map(|(id, plan)| stream(table, *id, plan, now)).collect()
}

fn stream(table: &Table, id: Uuid, plan: &Stream, now: i64) -> Result<VirtualRow, VirtualRowError> {
    let started = plan.started.unwrap_or(0);
    let all = plan.into.bytes.saturating_add(plan.out.bytes);
    let done = plan.into.bytes_done.saturating_add(plan.out.bytes_done);
    // Of what is not at its end Cassandra shows 99 at most.
    let percent = (u128::from(done) * 100).checked_div(u128::from(all)).unwrap_or(0).min(99);
    let mut row = VirtualRowBuilder::new(table);
    row.uuid("id", id)
        .boolean("follower", !plan.is_initiator)
        .text("operation", &plan.operation)
        .text_list("peers", plan.peers.iter().map(String::as_str))
        .text("status", "start")
        .float("progress_percentage", f32::from(u8::try_from(percent).unwrap_or(99)))
        .timestamp_millis("last_updated_at", plan.updated)
        .timestamp_millis("status_init_timestamp", started)
        .timestamp_millis("status_start_timestamp", started)
        .bigint("duration_millis", now.saturating_sub(started).max(0))
        .bigint("bytes_to_receive", whole(plan.into.bytes))
        .bigint("bytes_received", whole(plan.into.bytes_done))
        .bigint("bytes_to_send", whole(plan.out.bytes))
        .bigint("bytes_sent", whole(plan.out.bytes_done))
        .bigint("files_to_receive", whole(plan.into.files))
        .bigint("files_received", whole(plan.into.files_done))
        .bigint("files_to_send", whole(plan.out.files))
        .bigint("files_sent", whole(plan.out.files_done));
    row.finish()
}
