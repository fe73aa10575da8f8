//! `USING …`: timestamp and time to live of what a statement writes.

use schema::Table;
use stdx::{DeletionSeconds, TimestampMicros, TtlSeconds};

use super::Attributes;
use crate::error::PlanError;
use crate::plan::{BindEnv, Bound, BoundValue};

/// Last second an expiring cell may expire at: Cassandra 5.0 as shipped writes files that older
/// versions read (`storage_compatibility_mode`), whose deletion times end in 2038.
const EXPIRY_MAX: i64 = i32::MAX as i64 - 1;

/// Which timestamp a statement writes with.
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
            None => return checked_ttl(table, default, now, "default "),
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
        checked_ttl(table, ttl, now, "")
    }
}

/// Refuses what would expire beyond the last representable second. Source:
/// `ExpirationDateOverflowHandling` with the policy REJECT.
fn checked_ttl(
    table: &Table,
    ttl: i32,
    now: DeletionSeconds,
    which: &str,
) -> Result<TtlSeconds, PlanError> {
    if ttl != 0 && now.0.saturating_add(i64::from(ttl)) > EXPIRY_MAX {
        return Err(PlanError::invalid(format!(
            "Request on table {}.{} with {which}ttl of {ttl} seconds exceeds maximum supported \
             expiration date of 2038-01-19T03:14:06+00:00. In order to avoid this use a lower TTL, \
             change the expiration date overflow policy or upgrade to a version where this \
             limitation is fixed. See CASSANDRA-14092 and CASSANDRA-14227 for more details.",
            table.keyspace, table.name
        )));
    }
    Ok(TtlSeconds(ttl))
}
