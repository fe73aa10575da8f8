//! `system_views.streaming`: running streams. Source: Cassandra's `StreamingVirtualTable`.

use std::collections::{BTreeMap, BTreeSet};

use admin::model::{NodeReport, StreamProgress, StreamReport};
use cql_plan::virtual_row::{VirtualRow, VirtualRowBuilder, VirtualRowError};
use schema::Table;
use stdx::Uuid;

use super::{Rows, Sources, whole};

pub(super) async fn rows(sources: &Sources, table: &Table) -> Rows {
    let cluster = sources.cluster().await;
    let sessions = cluster.streaming.map(|s| s.sessions).unwrap_or_default();
    let now = sources.rt.wall().millis();
    match sources.node().await {
        Some(node) => stream_rows(table, &node, &sessions, now),
        None => Ok(Vec::new()),
    }
}

/// Sum over the sessions of one plan.
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

/// Returns the rows of `streaming`: the running streams by plan. The receiver has requested them.
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
    // Cassandra shows at most 99 for an unfinished plan.
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
