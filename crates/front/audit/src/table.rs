//! Destination of events in ScyllaDB's table, and what it is created with.
//!
//! Source: ScyllaDB's documentation of its audit log.

use crate::binlog::{Write, WriteFailure};
use crate::event::{Event, EventRecord, SharedEvent};
use crate::filter::scylla_category;
use cql_wire::{Consistency, ErrorCode, QueryParameters};
use query::{Executor, Failure};
use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use stdx::Uuid;

/// ScyllaDB's keyspace.
pub(crate) const CREATE_KEYSPACE: &str = "CREATE KEYSPACE IF NOT EXISTS audit WITH replication = \
     {'class': 'NetworkTopologyStrategy', 'replication_factor': 3}";
/// ScyllaDB's table.
pub(crate) const CREATE_TABLE: &str = "CREATE TABLE IF NOT EXISTS audit.audit_log (date timestamp, node inet, \
     event_time timeuuid, category text, consistency text, table_name text, keyspace_name text, operation text, \
     source inet, username text, error boolean, PRIMARY KEY ((date, node), event_time))";
/// Bytes of each text of an event that the table refuses as a whole.
const CUT_BYTES: usize = 4 << 10;

/// Returns a writer of rows.
pub(crate) fn writer(executor: &Rc<Executor>, host: SocketAddr) -> Write<EventRecord> {
    let executor = executor.clone();
    // Id of the row that was written last without an answer: another attempt replaces it.
    let unanswered: Rc<Cell<Option<Uuid>>> = Rc::default();
    Box::new(move |records| {
        let records = records.to_vec();
        let (executor, unanswered) = (executor.clone(), unanswered.clone());
        Box::pin(async move {
            for (written, record) in records.iter().enumerate() {
                let id = unanswered.take();
                let id = id.unwrap_or_else(|| Uuid::from_bytes(executor.next_time_uuid()));
                if let Err(failure) = insert(&executor, host, record, id).await {
                    unanswered.set(Some(id));
                    return Err(WriteFailure { written, error: failure.message(host) });
                }
            }
            Ok(())
        })
    })
}

/// Inserts the row of an event. Texts that the table refuses are cut: an event that no attempt can store would hold
/// back all others.
async fn insert(
    executor: &Rc<Executor>,
    host: SocketAddr,
    record: &EventRecord,
    id: Uuid,
) -> Result<(), Failure> {
    let execute = async |record: &EventRecord| {
        let parameters = QueryParameters::new(Consistency::One);
        let text = insert_text(record, host, id);
        query::execute_for_node(executor, &text, &parameters).await.map(drop)
    };
    let Err(failure) = execute(record).await else { return Ok(()) };
    let Some(short) = cut(record).filter(|_| is_refusal(failure.code())) else {
        return Err(failure);
    };
    execute(&short).await?;
    tracing::warn!(
        error = failure.message(host),
        bytes = record.event.operation.len(),
        "audit event stored with texts of {CUT_BYTES} bytes at most: audit.audit_log refuses the whole texts"
    );
    Ok(())
}

/// Returns true for a failure that may be about the event, not about the state of the nodes.
fn is_refusal(code: ErrorCode) -> bool {
    !matches!(
        code,
        ErrorCode::Unavailable
            | ErrorCode::Overloaded
            | ErrorCode::IsBootstrapping
            | ErrorCode::WriteTimeout
    )
}

/// Returns an event with shorter texts; `None` if all are short.
fn cut(record: &EventRecord) -> Option<EventRecord> {
    let short = |text: &Rc<str>| -> Rc<str> {
        match text.get(..text.floor_char_boundary(CUT_BYTES)) {
            Some(begin) if begin.len() < text.len() => format!("{begin}...").into(),
            _ => text.clone(),
        }
    };
    let Event { user, keyspace, scope, operation, .. } = &**record.event;
    let names = [user, keyspace, scope].into_iter().flatten();
    let is_long = |text: &Rc<str>| text.len() > CUT_BYTES;
    if !names.chain([operation]).any(is_long) {
        return None;
    }
    let event = Event {
        user: user.as_ref().map(short),
        keyspace: keyspace.as_ref().map(short),
        scope: scope.as_ref().map(short),
        operation: short(operation),
        ..(**record.event).clone()
    };
    Some(EventRecord { event: SharedEvent::once(event), ..*record })
}

/// The row of an event. All values are literals: texts are quoted.
fn insert_text(record: &EventRecord, host: SocketAddr, id: Uuid) -> String {
    let EventRecord { event, times } = record;
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
    let day = times.logged_millis.div_euclid(86_400_000).saturating_mul(86_400_000);
    format!(
        "INSERT INTO audit.audit_log (date, node, event_time, category, consistency, table_name, keyspace_name, \
         operation, source, username, error) VALUES ({day}, '{}', {id}, {}, {}, {}, {}, {}, '{}', {}, {})",
        host.ip().to_canonical(),
        quoted(scylla_category(event).unwrap_or_default()),
        quoted(event.consistency.map_or("", |level| level.name())),
        quoted(event.scope.as_deref().unwrap_or_default()),
        quoted(event.keyspace.as_deref().unwrap_or_default()),
        quoted(&event.operation),
        event.source.ip().to_canonical(),
        quoted(event.user.as_deref().unwrap_or_default()),
        event.is_error,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::EventType;
    use crate::tests::{event, record};

    #[test]
    fn only_long_texts_of_an_event_are_cut() {
        assert!(cut(&record(event(EventType::Update))).is_none());
        let at_most = Event { operation: "x".repeat(CUT_BYTES).into(), ..event(EventType::Update) };
        assert!(cut(&record(at_most)).is_none());
        // Two bytes each: the limit is in the middle of one.
        let operation = format!("x{}", "\u{e9}".repeat(CUT_BYTES));
        let long = Event { operation: operation.into(), ..event(EventType::Update) };
        let short = cut(&record(long)).unwrap();
        assert_eq!(short.event.operation.len(), CUT_BYTES - 1 + 3);
        assert_eq!(short.event.user.as_deref(), Some("alice"));
    }
}
