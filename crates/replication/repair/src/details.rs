//! What a repair is made of and when its phases began, for the virtual tables of repairs.
//!
//! Owns: the times and names. Never: what they mean for data, how they are shown.

use std::cell::Ref;
use std::net::SocketAddr;

use stdx::{Uuid, WallMicros};

use crate::job::{Job, RepairState};
use crate::repair::Inner;
use crate::scope::{RepairOptions, Scope, Session, text_of};

/// A repair with its parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairDetails {
    /// What was asked for.
    pub options: RepairOptions,
    /// Its tables; empty until it is known what is to be done.
    pub tables: Vec<String>,
    /// Ranges that the same nodes hold, before dead replicas were left out (`-force`).
    pub unfiltered: Vec<Vec<String>>,
    /// Its sessions, in the order in which they are carried out.
    pub sessions: Vec<SessionDetails>,
    /// When it was known what is to be done.
    pub planned_at: Option<WallMicros>,
    /// When replicas began to be compared.
    pub compared_from: Option<WallMicros>,
    /// When all of them had been.
    pub compared_upto: Option<WallMicros>,
    /// When it ended.
    pub ended_at: Option<WallMicros>,
    /// What it said at its end.
    pub message: Option<String>,
}

/// Ranges that the same nodes hold, compared in one go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionDetails {
    /// A time UUID when there is who makes them.
    pub id: Uuid,
    /// As `(1,2]`.
    pub ranges: Vec<String>,
    /// The other replicas.
    pub participants: Vec<SocketAddr>,
    /// When it was known.
    pub planned_at: WallMicros,
    /// When it began.
    pub started_at: Option<WallMicros>,
    /// When it ended, and with which error.
    pub ended: Option<(WallMicros, Option<String>)>,
    /// Its tables as far as they were begun.
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

fn texts(session: &Session) -> Vec<String> {
    session.ranges.iter().map(|range| text_of(*range)).collect()
}

impl Job {
    /// The details as they are now.
    pub(crate) fn details(&self) -> RepairDetails {
        RepairDetails { options: self.options.clone(), ..self.details.borrow().clone() }
    }

    /// Its session of that number.
    pub(crate) fn session_of(&self, number: usize) -> Uuid {
        let sessions = Ref::map(self.details.borrow(), |d| &d.sessions);
        sessions.get(number).map_or(self.session, |session| session.id)
    }

    pub(crate) fn note_session_began(&self, number: usize, at: WallMicros) {
        if let Some(session) = self.details.borrow_mut().sessions.get_mut(number) {
            session.started_at = Some(at);
        }
    }

    pub(crate) fn note_session_ended(&self, number: usize, at: WallMicros, error: Option<String>) {
        if let Some(session) = self.details.borrow_mut().sessions.get_mut(number) {
            session.ended = Some((at, error));
        }
    }

    /// A session begins with a table.
    pub(crate) fn note_job(&self, number: usize, id: Uuid, table: &str, at: WallMicros) {
        let (compared_from, sent_from, compared_upto) = (None, None, None);
        if let Some(session) = self.details.borrow_mut().sessions.get_mut(number) {
            session.jobs.push(JobDetails {
                id,
                table: table.to_owned(),
                started_at: at,
                compared_from,
                sent_from,
                compared_upto,
                ended: None,
            });
        }
    }

    /// Something about it is known.
    pub(crate) fn change_job(&self, number: usize, id: Uuid, change: impl FnOnce(&mut JobDetails)) {
        let mut details = self.details.borrow_mut();
        let jobs = details.sessions.get_mut(number).into_iter().flat_map(|s| &mut s.jobs);
        if let Some(job) = jobs.into_iter().find(|job| job.id == id) {
            change(job);
        }
    }

    /// It is over; a session that was under way ended with it.
    pub(crate) fn note_end(&self, state: RepairState, at: WallMicros, message: String) {
        self.state.set(state);
        let mut details = self.details.borrow_mut();
        details.ended_at = Some(at);
        details.message = Some(message);
    }
}

impl Inner {
    /// What is to be done is known.
    pub(crate) fn note_plan(&self, job: &Job, scope: &Scope) {
        let snapshot = (self.snapshot)();
        let name = |id| snapshot.schema.table_by_id(id).map(|t| t.name.to_string());
        let mut details = job.details.borrow_mut();
        details.tables = scope.tables.iter().filter_map(|id| name(*id)).collect();
        details.unfiltered = scope.sessions.iter().map(texts).collect();
        details.planned_at = Some(self.rt.wall());
    }

    /// Which sessions will be carried out.
    pub(crate) fn note_sessions(&self, job: &Job, sessions: &[Session]) {
        let planned_at = self.rt.wall();
        let of = |session: &Session| SessionDetails {
            id: self.session_id(),
            ranges: texts(session),
            participants: session.peers.iter().map(|host| self.address(*host)).collect(),
            planned_at,
            started_at: None,
            ended: None,
            jobs: Vec::new(),
        };
        let sessions = sessions.iter().map(of).collect();
        job.details.borrow_mut().sessions = sessions;
    }
}
