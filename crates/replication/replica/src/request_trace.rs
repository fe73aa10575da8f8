//! The trace of a request that a client of this node wants traced, for the code that carries the request out.
//!
//! Owns: the trace's id, which is sent to other nodes, the destination of events, and the names of peers in them.
//! Texts are Cassandra's where it has the step. Never: writes traces. A request that is not traced has no value of
//! this type.

use std::fmt;

use internode::Verb;
use messaging::{Completion, MessagingError};
use request::RequestError;
use stdx::{HostId, Uuid};

use crate::cluster_view::ClusterView;

/// A request that is traced.
pub struct RequestTrace {
    id: Uuid,
    note: Box<dyn Fn(String)>,
}

impl fmt::Debug for RequestTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RequestTrace").field(&self.id).finish()
    }
}

impl RequestTrace {
    /// Creates the trace with this id; `note` adds an event to it.
    pub fn new(id: Uuid, note: impl Fn(String) + 'static) -> RequestTrace {
        RequestTrace { id, note: Box::new(note) }
    }

    /// The trace's id.
    pub fn id(&self) -> Uuid {
        self.id
    }

    /// Adds an event.
    #[cold]
    pub fn note(&self, activity: impl FnOnce() -> String) {
        (self.note)(activity());
    }

    /// Records that a message of so many bytes is sent to a peer.
    #[cold]
    pub fn note_sent(&self, cluster: &ClusterView, host: HostId, verb: Verb, bytes: usize) {
        self.note(|| {
            let (verb, to) = (name_of(verb), cluster.shown(host));
            format!("Sending {verb} message to {to} message size {bytes} bytes")
        });
    }

    /// Records that the answer of a peer has arrived.
    #[cold]
    pub fn note_answer(&self, cluster: &ClusterView, host: HostId, completion: &Completion<'_>) {
        self.note_response(cluster, host, completion.verb, &completion.result);
    }

    /// Like [`RequestTrace::note_answer`], for a request of this verb.
    #[cold]
    pub fn note_response<T>(
        &self,
        cluster: &ClusterView,
        host: HostId,
        verb: Verb,
        result: &Result<T, MessagingError>,
    ) {
        let name = match result {
            Ok(_) => name_of(verb).replace("_REQ", "_RSP"),
            Err(MessagingError::Remote(_)) => "FAILURE_RSP".to_owned(),
            // No answer arrived.
            Err(_) => return,
        };
        let from = cluster.shown(host);
        self.note(|| format!("{name} message received from {from}"));
        self.note(|| format!("Processing response from {from}"));
    }

    /// Records that the request fails.
    #[cold]
    pub fn note_error(&self, error: &RequestError) {
        self.note(|| match error {
            RequestError::Unavailable { .. } | RequestError::UnavailableIn { .. } => {
                "Unavailable".to_owned()
            }
            RequestError::WriteTimeout { received, block_for, .. } => {
                format!("Write timeout; received {received} of {block_for} required replies")
            }
            RequestError::WriteFailure { received, block_for, failures, .. } => format!(
                "Write failure; received {received} of {block_for} required replies, failed {} \
                 requests",
                failures.len()
            ),
            RequestError::ReadTimeout { received, block_for, data_present, .. } => {
                let data = of_data(*received, *data_present);
                format!("Timed out; received {received} of {block_for} responses{data}")
            }
            RequestError::ReadFailure { received, block_for, data_present, .. } => {
                let data = of_data(*received, *data_present);
                format!("Failed; received {received} of {block_for} responses{data}")
            }
        });
    }
}

fn of_data(received: u32, data_present: bool) -> &'static str {
    match (received, data_present) {
        (0, _) => "",
        (_, true) => " (including data)",
        (_, false) => " (only digests)",
    }
}

/// Verbs as Cassandra names them.
pub fn name_of(verb: Verb) -> &'static str {
    match verb {
        Verb::Mutation | Verb::MutationForward => "MUTATION_REQ",
        Verb::Hint => "HINT_REQ",
        Verb::BatchStore => "BATCH_STORE_REQ",
        Verb::BatchRemove => "BATCH_REMOVE_REQ",
        Verb::Read => "READ_REQ",
        Verb::RangeRead | Verb::FilteredRead => "RANGE_REQ",
        Verb::CounterMutation => "COUNTER_MUTATION_REQ",
        Verb::PaxosPrepare => "PAXOS_PREPARE_REQ",
        Verb::PaxosPropose => "PAXOS_PROPOSE_REQ",
        Verb::PaxosCommit => "PAXOS_COMMIT_REQ",
        other => other.name(),
    }
}
