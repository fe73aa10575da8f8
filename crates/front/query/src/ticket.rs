//! A running request: its trace, and the limits that it is checked against.

use crate::trace::Trace;
use coordinator::RequestTrace;
use cql_plan::guardrails::Watch;
use std::rc::Rc;
use stdx::Uuid;

/// One request, as far as its execution and its answer need it.
#[derive(Clone, Default)]
pub struct Ticket {
    /// Number of the connection, so that writes of different ones start in turn; 0: no connection.
    pub connection: u64,
    /// Its trace, if it has one.
    pub trace: Option<Rc<Trace>>,
    /// Limits on the client, and the warnings they gave.
    pub watch: Option<Rc<Watch>>,
}

impl Ticket {
    /// Id of the trace that the client asked for.
    pub fn tracing_id(&self) -> Option<Uuid> {
        self.trace.as_ref().filter(|t| t.is_asked_for()).map(|t| t.id())
    }

    /// Id of the trace, requested by the client or by sampling.
    pub(crate) fn trace_session(&self) -> Option<Uuid> {
        self.trace.as_ref().map(|t| t.id())
    }

    /// The trace as the coordinator takes it.
    pub(crate) fn request_trace(&self) -> Option<Rc<RequestTrace>> {
        let trace = self.trace.as_ref()?.clone();
        Some(Rc::new(RequestTrace::new(trace.id(), move |activity| trace.note(activity))))
    }

    /// The limits on the client.
    pub fn watch(&self) -> Option<&Watch> {
        self.watch.as_deref()
    }

    /// Returns true if a limit gave a warning, which the answer must carry.
    pub fn is_warned(&self) -> bool {
        self.watch.as_ref().is_some_and(|watch| watch.count() > 0)
    }

    /// The warnings of limits.
    pub fn warnings(&self) -> Vec<String> {
        self.watch.as_ref().map(|watch| watch.warnings()).unwrap_or_default()
    }

    /// Notes an event of the trace, if there is one.
    pub(crate) fn note(&self, activity: impl FnOnce() -> String) {
        if let Some(trace) = &self.trace {
            trace.note(activity());
        }
    }
}
