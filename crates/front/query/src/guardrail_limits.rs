//! Limits of a node on statements, and which timestamps they allow.
//!
//! A value with a timestamp of next year cannot be overwritten or deleted until then, so such
//! timestamps are refused by default. Source of names and texts: Cassandra's `Guardrails`
//! (`maximumAllowableTimestamp`, `minimumAllowableTimestamp`, `userTimestampsEnabled`).

use std::sync::Arc;
use std::time::Duration;
use stdx::{TimestampMicros, WallMicros};

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
    pub(crate) fn is_idle(&self) -> bool {
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
