//! Details of repairs, for their virtual tables: the parts of a repair and the times of its phases.
//!
//! Owns: the times and names. Never: what they mean for data, how they are shown.

use std::net::SocketAddr;

use stdx::{Uuid, WallMicros};

use crate::scope::{RepairOptions, Session, text_of};

/// A repair with its parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairDetails {
    /// The requested options.
    pub options: RepairOptions,
    /// Its tables; empty until the plan is known.
    pub tables: Vec<String>,
    /// Ranges that the same nodes hold, before dead replicas were left out (`-force`).
    pub unfiltered: Vec<Vec<String>>,
    /// Its sessions, in the order of their execution.
    pub sessions: Vec<SessionDetails>,
    /// When it was known what is to be done.
    pub planned_at: Option<WallMicros>,
    /// When replicas began to be compared.
    pub compared_from: Option<WallMicros>,
    /// When all of them had been.
    pub compared_upto: Option<WallMicros>,
    /// When it ended.
    pub ended_at: Option<WallMicros>,
    /// The final message.
    pub message: Option<String>,
}

/// Ranges that the same nodes hold, compared in one pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionDetails {
    /// A time UUID when there is who makes them.
    pub id: Uuid,
    /// Ranges in the form `(1,2]`.
    pub ranges: Vec<String>,
    /// The other replicas.
    pub participants: Vec<SocketAddr>,
    /// When it was known.
    pub planned_at: WallMicros,
    /// When it began.
    pub started_at: Option<WallMicros>,
    /// When it ended, and with which error.
    pub ended: Option<(WallMicros, Option<String>)>,
    /// Its tables that were begun.
    pub jobs: Vec<JobDetails>,
}

/// The ranges of a session in one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobDetails {
    /// Every replica's comparison for it has the same id.
    pub id: Uuid,
    /// Name of the table.
    pub table: String,
    /// When it began.
    pub started_at: WallMicros,
    /// When replicas began to be compared.
    pub compared_from: Option<WallMicros>,
    /// When the first row was sent that one of them lacked.
    pub sent_from: Option<WallMicros>,
    /// When all of it had been compared, and sent where it was missing.
    pub compared_upto: Option<WallMicros>,
    /// When it ended, and with which error.
    pub ended: Option<(WallMicros, Option<String>)>,
}

pub(crate) fn texts(session: &Session) -> Vec<String> {
    session.ranges.iter().map(|range| text_of(*range)).collect()
}
