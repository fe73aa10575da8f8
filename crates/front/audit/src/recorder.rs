//! From a finished request to its events, as Cassandra makes them.
//!
//! Source: the lines that Cassandra 5.0.9 writes for the statements of `cql-server`'s `testdata`.

use crate::event::{Event, EventTimes, EventType};
use crate::line::escape;
use crate::mask;
use crate::statement::{StatementFacts, facts, without_password};
use cql_wire::ErrorCode;
use query::{
    ClientState, ObservedFailure, ObservedRequest, ObservedStatement, PreparedId, RequestRecord,
};
use std::cell::RefCell;
use std::rc::Rc;
use stdx::{FixedMap, Uuid, WallMicros};

/// Facts about prepared statements that are cached; a full cache is emptied.
const FACTS_MAX: usize = 4096;
/// Bytes of their texts; a longer text is not cached.
const FACTS_BYTES_MAX: usize = 8 << 20;

/// Text of a failed syntax check that could repeat a password. Source: Cassandra's `AuditLogManager`.
const OBSCURED: &str = "Syntax Exception. Obscured for security reasons.";

/// User of clients that did not log in, as Cassandra's `AllowAllAuthenticator` names them.
const ANONYMOUS: &str = "anonymous";

/// Makes events; caches facts about prepared statements.
pub struct Recorder {
    prepared: RefCell<DescribedCache>,
    /// [`ANONYMOUS`], shared by all events.
    anonymous: Rc<str>,
}

impl Default for Recorder {
    fn default() -> Recorder {
        Recorder { prepared: RefCell::default(), anonymous: ANONYMOUS.into() }
    }
}

/// Facts about prepared statements, with bounds.
#[derive(Default)]
struct DescribedCache {
    by_id: FixedMap<PreparedId, Rc<Described>>,
    /// Bytes of the texts.
    bytes: usize,
}

impl DescribedCache {
    fn insert(&mut self, id: PreparedId, described: Rc<Described>) {
        let bytes = described.text.len();
        if bytes > FACTS_BYTES_MAX {
            return;
        }
        if self.by_id.len() >= FACTS_MAX || self.bytes + bytes > FACTS_BYTES_MAX {
            self.by_id.clear();
            self.bytes = 0;
        }
        self.bytes += bytes;
        if let Some(replaced) = self.by_id.insert(id, described) {
            self.bytes -= replaced.text.len();
        }
    }
}

/// A statement as events show it.
struct Described {
    facts: StatementFacts,
    /// The text without the password.
    text: Rc<str>,
}

/// Returns the times of the events of a request.
#[inline]
pub fn times(record: &RequestRecord) -> EventTimes {
    let millis = |at: WallMicros| at.0.div_euclid(1000);
    let at = if record.failure.is_some() { record.answered } else { record.began };
    EventTimes { at_millis: millis(at), logged_millis: millis(record.answered) }
}

impl Recorder {
    /// Makes the events of a request that was answered; `batch` is the id for a batch. All have the times of
    /// [`times`].
    pub fn events(&self, client: &ClientState, record: &RequestRecord, batch: Uuid) -> Vec<Event> {
        let made = Made { client, record, batch, anonymous: &self.anonymous };
        match &record.failure {
            None => self.succeeded(&made),
            Some(failure) => self.failed(&made, failure),
        }
    }

    fn succeeded(&self, made: &Made<'_>) -> Vec<Event> {
        let record = made.record;
        match &record.request {
            ObservedRequest::Login => made.login(),
            ObservedRequest::Query(statement) | ObservedRequest::Execute(statement) => {
                vec![made.statement(&self.described(statement, record))]
            }
            ObservedRequest::Prepare(statement) => {
                let described = self.described(statement, record);
                let (event_type, statement) =
                    (EventType::PrepareStatement, EventType::PrepareStatement);
                // Without the keyspace of the last USE.
                let keyspace = described.facts.keyspace.clone();
                vec![Event { event_type, statement, keyspace, ..made.statement(&described) }]
            }
            ObservedRequest::Batch { statements, .. } => {
                let (id, count) = (made.batch, statements.len());
                let text = format!("BatchId:[{id}] - BATCH of [{count}] statements");
                let parts =
                    statements.iter().map(|one| made.statement(&self.described(one, record)));
                let all = std::iter::once(made.batch(text.into())).chain(parts);
                all.map(|event| Event { batch: Some(id), ..event }).collect()
            }
        }
    }

    fn failed(&self, made: &Made<'_>, failure: &ObservedFailure) -> Vec<Event> {
        let record = made.record;
        match &record.request {
            ObservedRequest::Login => made.login_failure(failure),
            ObservedRequest::Batch { .. } => {
                let level = record.consistency.map_or("", |level| level.name());
                let text = format!("BATCH of {} statements at consistency {level}", record.planned);
                vec![made.failed(made.batch(text.as_str().into()), &text, failure, &text)]
            }
            ObservedRequest::Execute(statement) => {
                let Some(text) = statement.text().cloned() else {
                    return vec![made.failed(made.plain(), "null", failure, "")];
                };
                let described = self.described(statement, record);
                vec![made.failed(made.statement(&described), &described.text, failure, &text)]
            }
            ObservedRequest::Query(statement) | ObservedRequest::Prepare(statement) => {
                let text = statement.text().cloned().unwrap_or_default();
                let described = self.described(statement, record);
                let shown = match record.planned {
                    0 if described.facts.password.is_none() => mask::cut(&text).into(),
                    _ => described.text.clone(),
                };
                // A failure shows the keyspace of the last USE, like in Cassandra.
                let event = Event { statement: described.facts.event_type, ..made.plain() };
                vec![made.failed(event, &shown, failure, &text)]
            }
        }
    }

    fn described(&self, statement: &ObservedStatement, record: &RequestRecord) -> Rc<Described> {
        let Some(id) = statement.prepared_id() else {
            return Rc::new(Described::new(statement, record));
        };
        if let Some(known) = self.prepared.borrow().by_id.get(id) {
            return known.clone();
        }
        let described = Rc::new(Described::new(statement, record));
        self.prepared.borrow_mut().insert(*id, described.clone());
        described
    }
}

impl Described {
    fn new(statement: &ObservedStatement, record: &RequestRecord) -> Described {
        let text = statement.text().cloned().unwrap_or_default();
        let keyspace = match statement {
            ObservedStatement::Prepared(prepared) => prepared.keyspace(),
            ObservedStatement::Text(_) | ObservedStatement::Unknown => record.keyspace(),
        };
        match cql_syntax::parse(&text) {
            Ok(parsed) => {
                let facts = facts(&parsed.kind, keyspace);
                let text = match &facts.password {
                    Some(password) => without_password(&text, password).into(),
                    None => text,
                };
                Described { facts, text }
            }
            Err(_) => {
                let event_type = EventType::RequestFailure;
                let facts =
                    StatementFacts { event_type, keyspace: None, scope: None, password: None };
                Described { facts, text: mask::cut(&text).into() }
            }
        }
    }
}

/// The request that events are made of.
struct Made<'r> {
    client: &'r ClientState,
    record: &'r RequestRecord,
    batch: Uuid,
    anonymous: &'r Rc<str>,
}

impl Made<'_> {
    fn used(&self) -> Option<Rc<str>> {
        self.record.session_keyspace.clone()
    }

    /// An event without a statement.
    fn plain(&self) -> Event {
        Event {
            event_type: EventType::RequestFailure,
            statement: EventType::RequestFailure,
            user: Some(self.client.user().unwrap_or_else(|| self.anonymous.clone())),
            source: self.client.peer,
            batch: None,
            keyspace: self.used(),
            scope: None,
            operation: "".into(),
            consistency: self.record.consistency,
            is_error: false,
        }
    }

    fn statement(&self, described: &Described) -> Event {
        let facts = &described.facts;
        Event {
            event_type: facts.event_type,
            statement: facts.event_type,
            keyspace: facts.keyspace.clone().or_else(|| self.used()),
            scope: facts.scope.clone(),
            operation: described.text.clone(),
            ..self.plain()
        }
    }

    fn batch(&self, operation: Rc<str>) -> Event {
        let (event_type, statement) = (EventType::Batch, EventType::Batch);
        Event { event_type, statement, operation, ..self.plain() }
    }

    /// No event for a connection that is ready without a login.
    fn login(&self) -> Vec<Event> {
        if self.client.user().is_none() {
            return Vec::new();
        }
        let (event_type, statement) = (EventType::LoginSuccess, EventType::LoginSuccess);
        let operation = "LOGIN SUCCESSFUL".into();
        let keyspace = None;
        vec![Event { event_type, statement, operation, keyspace, ..self.plain() }]
    }

    /// No event for a malformed STARTUP, which is no attempt to log in.
    fn login_failure(&self, failure: &ObservedFailure) -> Vec<Event> {
        if failure.code != ErrorCode::BadCredentials {
            return Vec::new();
        }
        let event = Event { statement: EventType::LoginError, user: None, ..self.plain() };
        // The message repeats the name that the client claims.
        let message = escape(&failure.message).into_owned();
        let failure = ObservedFailure { code: failure.code, message };
        vec![self.failed(event, "LOGIN FAILURE", &failure, "")]
    }

    /// Makes the event of a failure. `text` is the statement as it was sent.
    fn failed(&self, event: Event, shown: &str, failure: &ObservedFailure, text: &str) -> Event {
        let event_type = match failure.code {
            ErrorCode::Unauthorized => EventType::UnauthorizedAttempt,
            ErrorCode::BadCredentials => EventType::LoginError,
            _ => EventType::RequestFailure,
        };
        let message = match failure.code {
            ErrorCode::SyntaxError if mask::has_word(text) => OBSCURED.into(),
            _ => mask::cut(&failure.message),
        };
        let operation = match (shown.is_empty(), message.trim().is_empty()) {
            (_, true) => shown.into(),
            (true, false) => message.as_ref().into(),
            (false, false) => format!("{shown}; {message}").into(),
        };
        Event { event_type, operation, is_error: true, ..event }
    }
}
