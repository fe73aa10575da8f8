//! Columns that the virtual tables of repairs share: the course of an operation and its subject.
//!
//! Source: Cassandra's `LocalRepairTables`, `CoordinatorState`.

use admin::model::CourseReport;
use cql_plan::virtual_row::{VirtualRowBuilder, VirtualRowError};
use stdx::Uuid;
use types::wire::encode_collection;

/// Microseconds to milliseconds.
pub(super) fn millis(at: i64) -> i64 {
    at.div_euclid(1000)
}

/// Course of an operation as Cassandra shows it: its beginning, phases and end.
pub(super) struct Course<'a> {
    /// When it was made, microseconds since 1970.
    pub(super) init: i64,
    /// When something happened last that is none of its phases.
    pub(super) updated: Option<i64>,
    /// Its phases with their times, in order.
    pub(super) phases: &'a [(&'static str, Option<i64>)],
    /// When and how it ended.
    pub(super) ended: Option<(i64, bool)>,
    pub(super) message: Option<&'a str>,
}

impl Course<'_> {
    pub(super) fn put(&self, row: &mut VirtualRowBuilder<'_>, now: i64) {
        let status = self.put_without_status(row, now);
        row.text("status", status);
    }

    /// The same for tables without a status; returns the status.
    pub(super) fn put_without_status(
        &self,
        row: &mut VirtualRowBuilder<'_>,
        now: i64,
    ) -> &'static str {
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

impl<'a> Course<'a> {
    pub(super) fn of(
        course: &'a CourseReport,
        phases: &'a [(&'static str, Option<i64>)],
    ) -> Course<'a> {
        Course {
            init: course.began_at,
            updated: Some(course.updated_at),
            phases,
            ended: course.ended_at.map(|at| (at, course.error.is_none())),
            message: course.error.as_deref(),
        }
    }
}

/// Subject of a job or a validation.
pub(super) struct Subject<'a> {
    pub(super) repair: Uuid,
    pub(super) session: Uuid,
    pub(super) keyspace: &'a str,
    pub(super) table: &'a str,
    pub(super) ranges: &'a [String],
}

impl Subject<'_> {
    pub(super) fn put(&self, row: &mut VirtualRowBuilder<'_>) {
        row.uuid("repair_id", self.repair)
            .uuid("session_id", self.session)
            .text("keyspace_name", self.keyspace)
            .text("table_name", self.table)
            .text_list("ranges", strings(self.ranges));
    }
}

pub(super) fn strings(values: &[String]) -> impl Iterator<Item = &str> {
    values.iter().map(String::as_str)
}

/// `frozen<set<uuid>>`.
pub(super) fn uuid_set(ids: impl Iterator<Item = Uuid>) -> Result<Vec<u8>, VirtualRowError> {
    let mut ids: Vec<[u8; 16]> = ids.map(|id| *id.as_bytes()).collect();
    let uuid = types::CqlType::Uuid;
    ids.sort_unstable_by(|a, b| uuid.compare(a, b));
    ids.dedup();
    Ok(encode_collection(ids)?)
}
