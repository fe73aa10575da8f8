//! Guardrails: who is watched, and what they are held against; timestamps far in the future or the
//! past.
//!
//! Limits on ordinary users are [`cql_plan::guardrails`]'s; a request of one carries a [`Watch`] in
//! its ticket, and every answer the warnings that it gathers. Limits on timestamps, and on dropping
//! tables, hold for everybody.
//!
//! A value with a timestamp of next year cannot be overwritten or deleted until then, so such
//! timestamps are refused by default. Source of names and texts: Cassandra's `Guardrails`
//! (`maximumAllowableTimestamp`, `minimumAllowableTimestamp`, `userTimestampsEnabled`) and
//! `ModificationStatement.validateTimestamp`; Cassandra looks at `USING TIMESTAMP` only, here the
//! timestamp of the request counts too. What peers send is not looked at: their clients were asked,
//! and refusing what one replica has would keep replicas from becoming equal.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cluster::{PlacementKey, Replication};
use cql_plan::guardrails::Watch;
use cql_plan::plan::PlanKind;
use cql_plan::select::{BoundSelect, SelectPlan};
use cql_wire::Consistency;
use schema::TableKind;
use stdx::{TimestampMicros, WallMicros};

use crate::access;
use crate::execute::Modification;
use crate::failure::{Failure, Result};
use crate::server::Server;
use crate::session::Session;
use crate::settings::Authentication;

/// All limits of a node; the same on all its shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guardrails {
    /// On ordinary users.
    pub planned: Arc<cql_plan::guardrails::Guardrails>,
    /// On everybody.
    pub timestamps: TimestampGuardrails,
    /// Whether anybody may drop and truncate tables.
    pub drop_truncate_table_enabled: bool,
}

impl Default for Guardrails {
    fn default() -> Guardrails {
        Guardrails {
            planned: Arc::default(),
            timestamps: TimestampGuardrails::default(),
            drop_truncate_table_enabled: true,
        }
    }
}

/// What a request of this connection is held against; `None` for superusers, and where nobody logs
/// in, as in Cassandra (`ClientState.isOrdinaryUser`).
pub(crate) fn watch(server: &Server, session: &Session) -> Option<Rc<Watch>> {
    if server.settings.authentication == Authentication::AllowAll
        || access::is_superuser(server, session)
    {
        return None;
    }
    Some(Rc::new(Watch::new(server.guardrails.borrow().planned.clone())))
}

/// What is looked at before a SELECT is bound.
///
/// # Errors
/// As all of these: it is refused.
pub(crate) fn check_select(
    watch: &Watch,
    plan: &SelectPlan,
    consistency: Consistency,
) -> Result<()> {
    if plan.groups() {
        watch.group_by()?;
    }
    let keyspace = &*plan.table().keyspace;
    let is_system = keyspace == "system" || keyspace.starts_with("system_");
    if plan.allows_filtering() && !is_system {
        watch.allow_filtering()?;
    }
    watch.read_consistency(consistency.name())?;
    Ok(())
}

/// What is looked at when a SELECT is bound.
pub(crate) fn check_bound_select(
    server: &Server,
    watch: &Watch,
    (plan, bound): (&SelectPlan, &BoundSelect),
    consistency: Consistency,
    page_rows: Option<i32>,
) -> Result<()> {
    let table = plan.table();
    // One replica's answer needs nobody else's.
    let is_of_one = matches!(consistency, Consistency::One | Consistency::LocalOne);
    if plan.intersects() && table.kind != TableKind::Virtual && !is_of_one {
        let key = PlacementKey::of_table(&server.snapshot(), table.id);
        let replicas = match key.as_ref().map(PlacementKey::replication) {
            Some(Replication::Simple(factor)) => *factor,
            Some(Replication::Network(factors)) => factors.values().sum(),
            Some(Replication::Local) | None => 1,
        };
        if replicas > 1 {
            watch.intersect_filtering_query()?;
        }
    }
    if let Some(rows) = page_rows.and_then(|rows| u32::try_from(rows).ok()).filter(|n| *n > 0)
        && bound.exceeds(rows)
    {
        watch.page_size(&table.name, rows)?;
    }
    Ok(())
}

/// The levels of a write.
pub(crate) fn check_write_levels(
    watch: &Watch,
    consistency: Consistency,
    serial: Option<Consistency>,
) -> Result<()> {
    let mut levels = [consistency, serial.unwrap_or(Consistency::Serial)];
    levels.sort_by_key(|level| level.number());
    match levels {
        [a, b] if a == b => watch.write_consistency(&[a.name()])?,
        [a, b] => watch.write_consistency(&[a.name(), b.name()])?,
    }
    Ok(())
}

/// Which timestamps clients may give; zero is no bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimestampGuardrails {
    /// Whether they may give any by USING TIMESTAMP.
    pub user_timestamps_enabled: bool,
    /// Ahead of this node's clock: warned about.
    pub maximum_warn: Duration,
    /// Ahead of this node's clock: refused.
    pub maximum_fail: Duration,
    /// Behind this node's clock: warned about.
    pub minimum_warn: Duration,
    /// Behind this node's clock: refused.
    pub minimum_fail: Duration,
}

impl Default for TimestampGuardrails {
    fn default() -> TimestampGuardrails {
        TimestampGuardrails {
            user_timestamps_enabled: true,
            maximum_warn: Duration::ZERO,
            maximum_fail: Duration::from_secs(3 * 86_400),
            minimum_warn: Duration::ZERO,
            minimum_fail: Duration::ZERO,
        }
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

impl TimestampGuardrails {
    fn is_idle(&self) -> bool {
        let bounds = [self.maximum_warn, self.maximum_fail, self.minimum_warn, self.minimum_fail];
        bounds.iter().all(Duration::is_zero)
    }

    /// Checks one timestamp of a write to `table`: a warning, if there is one.
    ///
    /// # Errors
    /// It is refused.
    pub(crate) fn check(
        &self,
        now: WallMicros,
        timestamp: TimestampMicros,
        table: &str,
    ) -> std::result::Result<Option<String>, String> {
        let given = timestamp.0;
        let above = |bound: Duration| {
            let most = now.0.saturating_add(micros(bound));
            (!bound.is_zero() && given > most).then_some(most)
        };
        let below = |bound: Duration| {
            let least = now.0.saturating_sub(micros(bound));
            (!bound.is_zero() && given < least).then_some(least)
        };
        let maximum = |kind, threshold| {
            format!(
                "Guardrail maximum_timestamp violated: The modification to table {table} has a \
                 timestamp {given} after the maximum allowable {kind} threshold {threshold}. \
                 Timestamps too far in the future can lead to data that can't be easily overwritten"
            )
        };
        let minimum = |kind, threshold| {
            format!(
                "Guardrail minimum_timestamp violated: The modification to table {table} has a \
                 timestamp {given} before the minimum allowable {kind} threshold {threshold}. \
                 Timestamps too far in the past can cause writes can be unexpectedly lost"
            )
        };
        if let Some(threshold) = above(self.maximum_fail) {
            return Err(maximum("failure", threshold));
        }
        if let Some(threshold) = below(self.minimum_fail) {
            return Err(minimum("failure", threshold));
        }
        let warning = above(self.maximum_warn).map(|t| maximum("warning", t));
        Ok(warning.or_else(|| below(self.minimum_warn).map(|t| minimum("warning", t))))
    }
}

/// Checks the timestamps of a modification; what is to be warned about.
///
/// # Errors
/// `Invalid`: one is refused, or cannot be read.
pub(crate) fn check_timestamps(server: &Server, request: &Modification<'_>) -> Result<Vec<String>> {
    let has_own = request.statements.iter().any(|(compiled, _)| match &compiled.plan.kind {
        PlanKind::Modify(plan) => plan.has_timestamp(),
        PlanKind::Batch(plan) => plan.has_timestamp(),
        _ => false,
    });
    if !has_own && !request.has_timestamp {
        return Ok(Vec::new());
    }
    check_given(server, request, has_own)
}

#[inline(never)]
fn check_given(server: &Server, request: &Modification<'_>, has_own: bool) -> Result<Vec<String>> {
    let guardrails = server.guardrails.borrow().timestamps;
    if has_own && !guardrails.user_timestamps_enabled {
        return Err(Failure::invalid(
            "Guardrail user_timestamps violated: User provided timestamps (USING TIMESTAMP) is not \
             allowed",
        ));
    }
    let mut warnings = Vec::new();
    if guardrails.is_idle() {
        return Ok(warnings);
    }
    let now = server.rt.wall();
    let mut check = |timestamp, table: &str| -> Result<()> {
        let warning = guardrails.check(now, timestamp, table).map_err(Failure::invalid)?;
        if let Some(warning) = warning
            && !warnings.contains(&warning)
        {
            warnings.push(warning);
        }
        Ok(())
    };
    let options = &request.options;
    let of_request = request.has_timestamp.then_some(options.default_timestamp);
    for (compiled, values) in request.statements {
        match &compiled.plan.kind {
            PlanKind::Modify(plan) => {
                let own = if has_own { plan.timestamp(values, options)? } else { None };
                if let Some(timestamp) = own.or(of_request) {
                    check(timestamp, &plan.table().name)?;
                }
            }
            PlanKind::Batch(batch) => {
                let of_batch = batch.timestamp(values, options)?.or(of_request);
                for plan in batch.statements() {
                    if let Some(timestamp) = plan.timestamp(values, options)?.or(of_batch) {
                        check(timestamp, &plan.table().name)?;
                    }
                }
            }
            _ => {}
        }
    }
    Ok(warnings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_inclusive_and_zero_is_none() {
        let day = Duration::from_secs(86_400);
        let now = WallMicros(1_000_000_000_000_000);
        let at = |offset: i64| TimestampMicros(now.0 + offset);
        let guardrails = TimestampGuardrails {
            maximum_warn: day,
            maximum_fail: 2 * day,
            minimum_warn: day,
            minimum_fail: 2 * day,
            ..TimestampGuardrails::default()
        };
        let day = micros(day);
        for (offset, expect) in [
            (0, "ok"),
            (day, "ok"),
            (day + 1, "maximum warning"),
            (2 * day, "maximum warning"),
            (2 * day + 1, "maximum failure"),
            (-day, "ok"),
            (-day - 1, "minimum warning"),
            (-2 * day - 1, "minimum failure"),
        ] {
            let got = match guardrails.check(now, at(offset), "t") {
                Ok(None) => "ok".to_owned(),
                Ok(Some(text)) | Err(text) => {
                    let which = if text.contains("maximum") { "maximum" } else { "minimum" };
                    let kind = if text.contains("warning") { "warning" } else { "failure" };
                    format!("{which} {kind}")
                }
            };
            assert_eq!(got, expect, "{offset}");
        }
        let fails = guardrails.check(now, at(2 * day + 1), "t").is_err();
        assert!(fails && guardrails.check(now, at(2 * day), "t").is_ok());
        let off = TimestampGuardrails { maximum_fail: Duration::ZERO, ..Default::default() };
        assert!(off.is_idle());
        assert_eq!(off.check(now, TimestampMicros(i64::MAX), "t"), Ok(None));
    }
}
