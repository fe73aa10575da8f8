//! Limits of a node on statements and their timestamps.
//!
//! A value with a timestamp of next year cannot be overwritten or deleted until then, so such
//! timestamps are refused by default. Source of names and texts: Cassandra's `Guardrails`
//! (`maximumAllowableTimestamp`, `minimumAllowableTimestamp`, `userTimestampsEnabled`).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use stdx::{TimestampMicros, WallMicros};

/// All limits of a node; the same on all its shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guardrails {
    /// On ordinary users.
    pub planned: Arc<cql_plan::guardrails::Guardrails>,
    /// Limits for all users.
    pub timestamps: TimestampGuardrails,
    /// True if DROP and TRUNCATE of tables are allowed, for all users.
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

/// Timestamps that clients may give; zero is no bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimestampGuardrails {
    /// True if clients may set timestamps by USING TIMESTAMP.
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

    /// Checks one timestamp of a write to `table`: the bound that it is warned about, if there is one.
    ///
    /// # Errors
    /// It is refused.
    pub(crate) fn check<'t>(
        &self,
        now: WallMicros,
        timestamp: TimestampMicros,
        table: &'t str,
    ) -> std::result::Result<Option<TimestampViolation<'t>>, TimestampViolation<'t>> {
        let given = timestamp.0;
        let above = |bound: Duration| {
            let most = now.0.saturating_add(micros(bound));
            (!bound.is_zero() && given > most).then_some(most)
        };
        let below = |bound: Duration| {
            let least = now.0.saturating_sub(micros(bound));
            (!bound.is_zero() && given < least).then_some(least)
        };
        let violation = |bound, severity| {
            move |threshold| TimestampViolation { table, given, bound, severity, threshold }
        };
        let fails = above(self.maximum_fail)
            .map(violation(TimestampBound::Maximum, Severity::Failure))
            .or_else(|| {
                let least = below(self.minimum_fail);
                least.map(violation(TimestampBound::Minimum, Severity::Failure))
            });
        if let Some(violation) = fails {
            return Err(violation);
        }
        let warning =
            above(self.maximum_warn).map(violation(TimestampBound::Maximum, Severity::Warning));
        Ok(warning.or_else(|| {
            let least = below(self.minimum_warn);
            least.map(violation(TimestampBound::Minimum, Severity::Warning))
        }))
    }
}

/// Bound that a timestamp violates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimestampBound {
    /// Ahead of the clock.
    Maximum,
    /// Behind the clock.
    Minimum,
}

/// Consequence of a timestamp outside of a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    /// The write is executed.
    Warning,
    /// The write is refused.
    Failure,
}

/// A timestamp outside of a bound. Its text is Cassandra's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TimestampViolation<'t> {
    /// The table that is written to.
    table: &'t str,
    /// The timestamp, microseconds.
    given: i64,
    /// The bound.
    bound: TimestampBound,
    /// Consequence for the write.
    severity: Severity,
    /// The bound, microseconds.
    threshold: i64,
}

impl fmt::Display for TimestampViolation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TimestampViolation { table, given, bound, severity, threshold } = self;
        let kind = match severity {
            Severity::Warning => "warning",
            Severity::Failure => "failure",
        };
        match bound {
            TimestampBound::Maximum => write!(
                f,
                "Guardrail maximum_timestamp violated: The modification to table {table} has a \
                 timestamp {given} after the maximum allowable {kind} threshold {threshold}. \
                 Timestamps too far in the future can lead to data that can't be easily overwritten"
            ),
            TimestampBound::Minimum => write!(
                f,
                "Guardrail minimum_timestamp violated: The modification to table {table} has a \
                 timestamp {given} before the minimum allowable {kind} threshold {threshold}. \
                 Timestamps too far in the past can cause writes can be unexpectedly lost"
            ),
        }
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
        let maximum = |severity| Some((TimestampBound::Maximum, severity));
        let minimum = |severity| Some((TimestampBound::Minimum, severity));
        for (offset, expect) in [
            (0, None),
            (day, None),
            (day + 1, maximum(Severity::Warning)),
            (2 * day, maximum(Severity::Warning)),
            (2 * day + 1, maximum(Severity::Failure)),
            (-day, None),
            (-day - 1, minimum(Severity::Warning)),
            (-2 * day - 1, minimum(Severity::Failure)),
        ] {
            let got = match guardrails.check(now, at(offset), "t") {
                Ok(None) => None,
                Ok(Some(violation)) | Err(violation) => Some((violation.bound, violation.severity)),
            };
            assert_eq!(got, expect, "{offset}");
        }
        let text = guardrails.check(now, at(-day - 1), "t").unwrap().unwrap().to_string();
        assert_eq!(
            text,
            format!(
                "Guardrail minimum_timestamp violated: The modification to table t has a timestamp {} before the \
                 minimum allowable warning threshold {}. Timestamps too far in the past can cause writes can be \
                 unexpectedly lost",
                now.0 - day - 1,
                now.0 - day,
            )
        );
        let fails = guardrails.check(now, at(2 * day + 1), "t").is_err();
        assert!(fails && guardrails.check(now, at(2 * day), "t").is_ok());
        let off = TimestampGuardrails { maximum_fail: Duration::ZERO, ..Default::default() };
        assert!(off.is_idle());
        assert_eq!(off.check(now, TimestampMicros(i64::MAX), "t"), Ok(None));
    }
}
