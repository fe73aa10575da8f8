//! Waiting requests of one connection, by stream: the source of `system_views.queries`.
//!
//! A request is listed from its first wait to its end: one that is answered in the turn in which it arrives is never
//! listed. An entry costs no allocation for EXECUTE; texts are stored in recycled buffers. Descriptions are built
//! when the table is read.
//!
//! Source: Cassandra's `QueriesTable`, `Dispatcher.RequestProcessor` and `toString` of its messages.

use crate::client_info::QueryInfo;
use cql_wire::{BatchQuery, Consistency, Request};
use query::{PreparedId, without_password};
use std::cell::RefCell;
use stdx::{FixedMap, Instant};

/// Bytes of a statement, or of a batch's list, that are stored; the rest is not shown.
const TEXT_BYTES_MAX: usize = 16 << 10;

/// The part of a request that the table shows.
#[derive(Debug)]
pub(crate) enum Task {
    /// No statement, or one that was not recorded.
    Unknown,
    /// A statement as text.
    Query { text: Vec<u8>, page_size: i32, consistency: Consistency },
    /// A statement to be prepared.
    Prepare { text: Vec<u8> },
    /// A prepared statement.
    Execute { id: PreparedId, values: usize, consistency: Consistency },
    /// The statements of a batch, each with the number of its values.
    Batch { list: Vec<u8>, consistency: Consistency },
}

/// A waiting request.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) task: Task,
    /// When its bytes arrived.
    pub(crate) arrived: Instant,
    /// When the turn that runs it began.
    pub(crate) began: Instant,
}

/// The requests of a connection that wait, at most one for each stream.
#[derive(Debug, Default)]
pub(crate) struct RunningRequests {
    by_stream: RefCell<FixedMap<i16, Running>>,
}

impl Task {
    /// Records the part of a request that is shown. `buffer` supplies the memory for texts.
    pub(crate) fn of(request: &Request<'_>, buffer: impl FnOnce() -> Vec<u8>) -> Task {
        match request {
            Request::Query { query, parameters } => Task::Query {
                text: kept(query, buffer()),
                page_size: parameters.page_size.unwrap_or(-1),
                consistency: parameters.consistency,
            },
            Request::Prepare { query, .. } => Task::Prepare { text: kept(query, buffer()) },
            Request::Execute { id, parameters, .. } => match PreparedId::try_from(*id) {
                Ok(id) => Task::Execute {
                    id,
                    values: parameters.values.len(),
                    consistency: parameters.consistency,
                },
                Err(_) => Task::Unknown,
            },
            Request::Batch(batch) => {
                let mut list = buffer();
                for (i, statement) in batch.statements.iter().enumerate() {
                    if i > 0 {
                        list.extend_from_slice(b", ");
                    }
                    if list.len() > TEXT_BYTES_MAX {
                        list.extend_from_slice(b"...");
                        break;
                    }
                    match statement.query {
                        BatchQuery::Text(text) => list = kept(text, list),
                        BatchQuery::Prepared(id) => push_hex(&mut list, id),
                    }
                    let values = format_args!(" with {} values", statement.values.len());
                    // Writing to memory does not fail.
                    let _ = std::io::Write::write_fmt(&mut list, values);
                }
                Task::Batch { list, consistency: batch.parameters.consistency }
            }
            Request::Startup(_)
            | Request::Options
            | Request::Register(_)
            | Request::AuthResponse(_) => Task::Unknown,
        }
    }

    /// Returns the buffer that it holds, for reuse.
    pub(crate) fn into_buffer(self) -> Option<Vec<u8>> {
        match self {
            Task::Query { text, .. } | Task::Prepare { text } | Task::Batch { list: text, .. } => {
                Some(text)
            }
            Task::Unknown | Task::Execute { .. } => None,
        }
    }

    /// Describes the request as Cassandra does, but without passwords.
    fn description(&self) -> Option<String> {
        match self {
            Task::Unknown => None,
            Task::Query { text, page_size, consistency } => {
                let (text, at) = (shown(text), consistency.name());
                Some(format!("QUERY {text} [pageSize = {page_size}] at consistency {at}"))
            }
            Task::Prepare { text } => Some(format!("PREPARE {}", shown(text))),
            Task::Execute { id, values, consistency } => {
                let mut hex = Vec::new();
                push_hex(&mut hex, id);
                let (id, at) = (String::from_utf8_lossy(&hex), consistency.name());
                Some(format!("EXECUTE {id} with {values} values at consistency {at}"))
            }
            Task::Batch { list, consistency } => {
                let (list, at) = (String::from_utf8_lossy(list), consistency.name());
                Some(format!("BATCH of [{list}] at consistency {at}"))
            }
        }
    }
}

impl RunningRequests {
    /// Returns true if a request of this stream waits.
    pub(crate) fn has(&self, stream: i16) -> bool {
        self.by_stream.borrow().contains_key(&stream)
    }

    /// Records a request that has to wait.
    pub(crate) fn begin(&self, stream: i16, running: Running) {
        self.by_stream.borrow_mut().insert(stream, running);
    }

    /// Removes a completed request. Returns its task, if it was listed.
    pub(crate) fn end(&self, stream: i16) -> Option<Task> {
        self.by_stream.borrow_mut().remove(&stream).map(|running| running.task)
    }

    /// Appends the statements, under `<name>-<stream>`, in no order.
    pub(crate) fn list(&self, name: &str, now: Instant, into: &mut Vec<QueryInfo>) {
        for (stream, running) in &*self.by_stream.borrow() {
            let Some(task) = running.task.description() else { continue };
            into.push(QueryInfo {
                thread_id: format!("{name}-{stream}"),
                queued: running.began.since(running.arrived),
                running: now.since(running.began),
                task,
            });
        }
    }
}

/// Appends the beginning of a statement to a buffer.
fn kept(text: &str, mut buffer: Vec<u8>) -> Vec<u8> {
    let whole = text.get(..text.floor_char_boundary(TEXT_BYTES_MAX)).unwrap_or_default();
    buffer.extend_from_slice(whole.as_bytes());
    if whole.len() < text.len() {
        buffer.extend_from_slice(b"...");
    }
    buffer
}

fn shown(text: &[u8]) -> String {
    without_password(&String::from_utf8_lossy(text)).into_owned()
}

fn push_hex(out: &mut Vec<u8>, bytes: &[u8]) {
    let digit = |n: u8| if n < 10 { b'0' + n } else { b'a' + n - 10 };
    out.extend(bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::value_list;
    use cql_wire::QueryParameters;

    fn check(request: &Request<'_>, expected: Option<&str>) {
        let task = Task::of(request, Vec::new);
        assert_eq!(task.description().as_deref(), expected);
    }

    #[test]
    fn requests_are_described_as_cassandra_prints_them() {
        let values = value_list(&[b"a", b"b"]);
        let parameters = QueryParameters {
            values: values.values(),
            ..QueryParameters::new(Consistency::LocalQuorum)
        };
        let query = "SELECT v FROM ks.t";
        check(
            &Request::Query { query, parameters },
            Some("QUERY SELECT v FROM ks.t [pageSize = -1] at consistency LOCAL_QUORUM"),
        );
        let id: &[u8] = &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0xab, 11, 12, 13, 14, 255];
        let execute = |id| Request::Execute { id, result_metadata_id: None, parameters };
        check(
            &execute(id),
            Some(
                "EXECUTE 00010203040506070809ab0b0c0d0eff with 2 values at consistency LOCAL_QUORUM",
            ),
        );
        check(&execute(&id[..15]), None);
        check(&Request::Prepare { query, keyspace: None }, Some("PREPARE SELECT v FROM ks.t"));
        check(&Request::Options, None);
    }

    #[test]
    fn passwords_are_left_out_and_long_texts_are_cut() {
        let parameters = QueryParameters::new(Consistency::One);
        let query = "CREATE ROLE r WITH PASSWORD = 'secret'";
        check(
            &Request::Query { query, parameters },
            Some("QUERY CREATE ROLE r WITH PASSWORD ******* [pageSize = -1] at consistency ONE"),
        );
        let fits = "é".repeat(TEXT_BYTES_MAX / 2);
        check(&Request::Prepare { query: &fits, keyspace: None }, Some(&format!("PREPARE {fits}")));
        let longer = format!("{fits}é");
        check(
            &Request::Prepare { query: &longer, keyspace: None },
            Some(&format!("PREPARE {fits}...")),
        );
    }
}
