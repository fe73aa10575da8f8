//! `USING …`: timestamp and time to live of a statement's writes.

use schema::Table;
use stdx::{DeletionSeconds, TimestampMicros, TtlSeconds};

use super::Attributes;
use crate::error::PlanError;
use crate::values::{BindEnv, Bound, BoundValue};

/// Timestamp of a statement's writes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stamp {
    /// That of USING, else this one.
    Default(TimestampMicros),
    /// The ballot's, of a conditional write. Deletions end up a microsecond earlier: those of ranges
    /// and partitions at once, those of rows and cells ([`super::age_row`]) when the statements of a
    /// batch were merged. So a range that a batch deletes does not hide the rows that it writes, but
    /// a deleted row or cell does, as in Cassandra (`PartitionUpdate.Builder`, then
    /// `Row.updateAllTimestamp`).
    Ballot(TimestampMicros),
}

impl Attributes {
    /// The timestamp of `USING`, else the given one.
    pub(crate) fn timestamp(
        &self,
        default: TimestampMicros,
        values: &[BoundValue<'_>],
        env: &BindEnv<'_>,
    ) -> Result<TimestampMicros, PlanError> {
        let timestamp = self.own_timestamp(values, env)?.unwrap_or(default);
        if timestamp == TimestampMicros::NONE {
            return Err(PlanError::invalid(format!(
                "Out of bound timestamp, must be in [{}, {}]",
                i64::MIN + 1,
                i64::MAX
            )));
        }
        Ok(timestamp)
    }

    /// The timestamp of `USING`, any that a client may write.
    pub(crate) fn own_timestamp(
        &self,
        values: &[BoundValue<'_>],
        env: &BindEnv<'_>,
    ) -> Result<Option<TimestampMicros>, PlanError> {
        let Some(term) = &self.timestamp else { return Ok(None) };
        let null = || PlanError::invalid("Invalid null value of timestamp");
        match term.bind(values, env)? {
            Bound::Unset => Ok(None),
            Bound::Null => Err(null()),
            Bound::Value(bytes) => match (*bytes).try_into() {
                Ok(bytes) => Ok(Some(TimestampMicros(i64::from_be_bytes(bytes)))),
                Err(_) => Err(null()),
            },
        }
    }

    /// Returns the expiry of cells that are written now with this time to live.
    #[inline]
    pub(super) fn expiry(&self, now: DeletionSeconds, ttl: TtlSeconds) -> DeletionSeconds {
        match ttl {
            TtlSeconds::NONE => DeletionSeconds::NONE,
            // Later only where the table's TTL was taken in place of an unset one, which is not
            // refused. Source: `ExpirationDateOverflowHandling.computeLocalExpirationTime`.
            ttl => DeletionSeconds(now.0.saturating_add(i64::from(ttl.0))).min(self.expiry_max),
        }
    }

    /// The TTL of `USING`, else the table's.
    pub(super) fn ttl(
        &self,
        table: &Table,
        now: DeletionSeconds,
        values: &[BoundValue<'_>],
        env: &BindEnv<'_>,
    ) -> Result<TtlSeconds, PlanError> {
        let default = table.options.default_time_to_live;
        let ttl = match &self.ttl {
            None => return self.checked_ttl(table, default, now, "default "),
            Some(term) => match term.bind(values, env)? {
                Bound::Unset => return Ok(TtlSeconds(default)),
                Bound::Null => 0,
                Bound::Value(bytes) if bytes.is_empty() => 0,
                Bound::Value(bytes) => match (*bytes).try_into() {
                    Ok(bytes) => i32::from_be_bytes(bytes),
                    Err(_) => return Err(PlanError::invalid("Invalid TTL value")),
                },
            },
        };
        if ttl < 0 {
            return Err(PlanError::invalid(format!(
                "A TTL must be greater or equal to 0, but was {ttl}"
            )));
        }
        if ttl > TtlSeconds::MAX.0 {
            return Err(PlanError::invalid(format!(
                "ttl is too large. requested ({ttl}) maximum ({})",
                TtlSeconds::MAX.0
            )));
        }
        self.checked_ttl(table, ttl, now, "")
    }

    /// Refuses writes that would expire after the last second that is allowed. Source:
    /// `ExpirationDateOverflowHandling` with the policy REJECT, which is Cassandra's unless a
    /// system property sets another.
    fn checked_ttl(
        &self,
        table: &Table,
        ttl: i32,
        now: DeletionSeconds,
        which: &str,
    ) -> Result<TtlSeconds, PlanError> {
        if ttl != 0 && now.0.saturating_add(i64::from(ttl)) > self.expiry_max.0 {
            let last = match self.expiry_max {
                DeletionSeconds::MAX_SIGNED => "2038-01-19T03:14:06+00:00",
                _ => "2106-02-07T06:28:13+00:00",
            };
            return Err(PlanError::invalid(format!(
                "Request on table {}.{} with {which}ttl of {ttl} seconds exceeds maximum supported \
                 expiration date of {last}. In order to avoid this use a lower TTL, change the \
                 expiration date overflow policy or upgrade to a version where this limitation is \
                 fixed. See CASSANDRA-14092 and CASSANDRA-14227 for more details.",
                table.keyspace, table.name
            )));
        }
        Ok(TtlSeconds(ttl))
    }
}
