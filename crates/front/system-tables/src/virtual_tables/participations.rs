//! `system_views.repair_participates` and `repair_validations`: the node's part in repairs, its own
//! and those of others.
//!
//! A validation lasts until the last requested digest. Source: Cassandra's `LocalRepairTables`.

use admin::model::{ParticipationReport, ValidationReport};
use admin::{AdminReply, AdminRequest};
use cql_plan::virtual_row::VirtualRowBuilder;
use schema::Table;
use stdx::Uuid;

use super::course::{Course, Subject, strings, uuid_set};
use super::{Row, Rows, Sources, whole};

/// The first shard knows them; none when the node stops.
async fn reports(sources: &Sources) -> Vec<ParticipationReport> {
    match sources.ask_first(AdminRequest::Participations).await {
        Some(AdminReply::Participations(all)) => all,
        _ => Vec::new(),
    }
}

pub(super) async fn participations(sources: &Sources, table: &Table) -> Rows {
    let now = sources.rt.wall().millis();
    participation_rows(table, &reports(sources).await, now)
}

pub(super) async fn validations(sources: &Sources, table: &Table) -> Rows {
    let now = sources.rt.wall().millis();
    validation_rows(table, &reports(sources).await, now)
}

/// The rows of `repair_participates` at a time in milliseconds since 1970.
pub(super) fn participation_rows(table: &Table, all: &[ParticipationReport], now: i64) -> Rows {
    let mut rows = Vec::new();
    for one in all {
        rows.extend(participation(table, one, now)?);
    }
    Ok(rows)
}

/// The rows of `repair_validations`.
pub(super) fn validation_rows(table: &Table, all: &[ParticipationReport], now: i64) -> Rows {
    let mut rows = Vec::new();
    for repair in all {
        for one in &repair.validations {
            rows.extend(validation(table, repair, one, now)?);
        }
    }
    Ok(rows)
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

/// Returns 100 for a finished validation, else 99 at most.
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
    // A dropped table no longer has a name.
    let Some((keyspace, name)) = &one.table else { return Ok(None) };
    let mut row = VirtualRowBuilder::new(table);
    let phases = [
        ("accept", Some(one.course.began_at)),
        ("start", one.started_at),
        ("sending_trees", one.sent_at),
    ];
    Course::of(&one.course, &phases).put(&mut row, now);
    Subject { repair: repair_id, session, keyspace, table: name, ranges: &one.ranges }
        .put(&mut row);
    row.uuid("id", id)
        .text("initiator", &repair.initiator)
        .float("progress_percentage", progress(one))
        .bigint("bytes_read", whole(one.bytes_read));
    for (column, number) in [
        ("estimated_partitions", one.partitions_estimate),
        ("estimated_total_bytes", one.bytes_estimate),
        ("partitions_processed", one.partitions),
    ] {
        // Like in Cassandra, zero is shown as null.
        if number != 0 {
            row.bigint(column, whole(number));
        }
    }
    row.finish().map(Some)
}
