//! Values of an execution: their wire form, and the results of binding terms to them.

use std::borrow::Cow;

use stdx::{TimestampMicros, WallMicros};

use crate::functions::{EvalEnv, UuidSource};
use crate::guardrails::Watch;

/// One bound value as it came on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoundValue<'a> {
    /// Length -1.
    Null,
    /// Length -2 (protocol v4 on): the column keeps its value.
    Unset,
    /// Anything else.
    Bytes(&'a [u8]),
}

/// The values of markers, followed by the results of [`crate::plan::PlanInputs::evaluate_calls`].
pub fn with_results<'v>(
    values: &[BoundValue<'v>],
    results: &'v [Option<Vec<u8>>],
) -> Vec<BoundValue<'v>> {
    let result = |result: &'v Option<Vec<u8>>| match result {
        Some(bytes) => BoundValue::Bytes(bytes),
        None => BoundValue::Null,
    };
    values.iter().copied().chain(results.iter().map(result)).collect()
}

/// Inputs of one execution.
#[derive(Clone, Copy, Debug)]
pub struct ExecuteOptions<'a> {
    /// When it is, for what expires: the client's time in seconds, else the wall clock.
    pub now: WallMicros,
    /// Wall clock of the coordinator, for UUIDs and functions of the time. The client's timestamp
    /// does not change it: otherwise the state of a shard's UUID source would carry it over to all
    /// other clients.
    pub clock: WallMicros,
    /// The client's timestamp, else the coordinator's.
    pub default_timestamp: TimestampMicros,
    /// Rows per page; `None` or 0 = no paging.
    pub page_size: Option<u32>,
    /// End of the last page.
    pub paging_state: Option<&'a [u8]>,
    /// Native protocol version of the connection.
    pub protocol_version: u8,
    /// The shard's maker of UUIDs.
    pub uuids: &'a UuidSource,
    /// Limits for an ordinary user.
    pub watch: Option<&'a Watch>,
}

impl<'a> ExecuteOptions<'a> {
    /// Context that terms need for it.
    pub fn env(&self) -> BindEnv<'a> {
        let ExecuteOptions { now, clock, uuids, protocol_version, watch, .. } = *self;
        BindEnv { eval: EvalEnv { now, clock, uuids, protocol_version }, watch }
    }
}

/// Inputs of the binding of terms.
#[derive(Clone, Copy, Debug)]
pub struct BindEnv<'a> {
    /// For functions.
    pub eval: EvalEnv<'a>,
    /// Limits for an ordinary user.
    pub watch: Option<&'a Watch>,
}

impl<'a> BindEnv<'a> {
    /// Environment of constants, which are evaluated while a statement is planned.
    pub(crate) fn of_constants(now: WallMicros, uuids: &'a UuidSource) -> BindEnv<'a> {
        BindEnv { eval: EvalEnv::of_constants(now, uuids), watch: None }
    }
}

/// Result of binding a term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bound<'v> {
    /// Null.
    Null,
    /// Nothing was given.
    Unset,
    /// A value, valid for its type.
    Value(Cow<'v, [u8]>),
}

impl<'v> Bound<'v> {
    /// The value's bytes; `None` for null and unset.
    pub fn value(&self) -> Option<&[u8]> {
        match self {
            Bound::Value(bytes) => Some(bytes),
            Bound::Null | Bound::Unset => None,
        }
    }

    pub(crate) fn owned(bytes: Option<Vec<u8>>) -> Bound<'v> {
        bytes.map_or(Bound::Null, |bytes| Bound::Value(Cow::Owned(bytes)))
    }
}
