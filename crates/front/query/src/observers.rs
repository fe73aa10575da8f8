//! Finished requests, as observers see them: the one place for logs of requests.
//!
//! Owns: the description of a request from its arrival to its answer ([`RequestRecord`]), the interface of observers
//! ([`RequestObserver`]). Never: which requests an observer writes down, or where. A front makes a record only while
//! an observer is installed ([`crate::observed`]), and calls each observer once for each request that a client sent; statements that
//! another node forwarded, and those of the node itself, are not observed.

use crate::client::ClientState;
use crate::failure::{Failure, Result};
use crate::prepared::{Prepared, PreparedId};
use cql_wire::{BatchKind, Consistency, ErrorCode};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use stdx::WallMicros;

/// A statement of a request.
#[derive(Clone)]
pub enum ObservedStatement {
    /// Sent as text.
    Text(Rc<str>),
    /// Sent by id.
    Prepared(Rc<Prepared>),
    /// Sent by an id that is not prepared here.
    Unknown,
}

impl ObservedStatement {
    /// Returns the text; `None` for an unknown id.
    pub fn text(&self) -> Option<&Rc<str>> {
        match self {
            ObservedStatement::Text(text) => Some(text),
            ObservedStatement::Prepared(prepared) => Some(&prepared.text),
            ObservedStatement::Unknown => None,
        }
    }

    /// Returns the id of a prepared statement.
    pub fn prepared_id(&self) -> Option<&PreparedId> {
        match self {
            ObservedStatement::Prepared(prepared) => Some(&prepared.id),
            ObservedStatement::Text(_) | ObservedStatement::Unknown => None,
        }
    }
}

/// Kind and statements of a request.
pub enum ObservedRequest {
    /// STARTUP or AUTH_RESPONSE.
    Login,
    /// QUERY.
    Query(ObservedStatement),
    /// PREPARE.
    Prepare(ObservedStatement),
    /// EXECUTE.
    Execute(ObservedStatement),
    /// BATCH.
    Batch {
        /// Kind of the batch.
        kind: BatchKind,
        /// Its statements.
        statements: Vec<ObservedStatement>,
    },
}

/// A failure as the client gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedFailure {
    /// Its code.
    pub code: ErrorCode,
    /// Its message.
    pub message: String,
}

/// A request from its arrival to its answer.
pub struct RequestRecord {
    /// Kind and statements.
    pub request: ObservedRequest,
    /// Keyspace of the last USE, when it arrived.
    pub session_keyspace: Option<Rc<str>>,
    /// Keyspace that its names without one belong to: its own, or that of the last USE.
    pub keyspace: Option<Rc<str>>,
    /// Consistency level; `None` for requests without one.
    pub consistency: Option<Consistency>,
    /// Values and options, if an observer asked for them.
    pub details: Option<Box<RequestDetails>>,
    /// When it arrived.
    pub began: WallMicros,
    /// Number of its statements before the first one that cannot be planned.
    pub planned: usize,
    /// Failure that was answered; `None` for a result.
    pub failure: Option<ObservedFailure>,
}

/// Values and options of a request: what is needed, with its texts, to execute it again.
pub struct RequestDetails {
    /// Version of the native protocol that `options` are encoded in.
    pub protocol_version: u8,
    /// Query options: consistency, flags, values of a single statement, and what the flags announce.
    pub options: Vec<u8>,
    /// Values of each statement of a batch.
    pub batch_values: Vec<Vec<ObservedValue>>,
    /// Timestamp that this node generated because the request had none.
    pub generated_timestamp: Option<i64>,
    /// The request has no timestamp.
    pub(crate) lacks_timestamp: bool,
    /// Last timestamp that the shard had generated when the request arrived.
    pub(crate) timestamp_before: i64,
    /// The request has no time by which expiry is judged.
    pub lacks_now: bool,
}

/// Bound value of a statement in a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObservedValue {
    /// Null.
    Null,
    /// Unset.
    Unset,
    /// Bytes in the encoding of the native protocol.
    Bytes(Vec<u8>),
}

/// Waits until an observer has taken a request.
///
/// # Errors
/// The failure to answer instead of the result: the observer could not take it.
pub type Taken = Pin<Box<dyn Future<Output = Result<()>>>>;

/// Part of the node that sees each finished request of a shard.
pub trait RequestObserver {
    /// Returns true if records need values and options.
    fn wants_details(&self) -> bool {
        false
    }

    /// Returns false while no more requests may begin, because their events could not be taken.
    fn admits(&self) -> bool {
        true
    }

    /// Takes a request whose answer is ready. The answer is sent at once, or after the returned future.
    fn finished(&self, client: &ClientState, record: &RequestRecord) -> Option<Taken>;
}

/// Observers of one shard's requests.
#[derive(Default)]
pub struct Observers {
    list: RefCell<Vec<Rc<dyn RequestObserver>>>,
    is_on: Cell<bool>,
}

impl Observers {
    /// Returns true if requests are to be recorded.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.get()
    }

    /// Installs an observer.
    pub fn add(&self, observer: Rc<dyn RequestObserver>) {
        self.list.borrow_mut().push(observer);
        self.is_on.set(true);
    }

    /// Removes an observer. Requests that were recorded before do not reach it.
    pub fn remove(&self, observer: &Rc<dyn RequestObserver>) {
        let mut list = self.list.borrow_mut();
        list.retain(|known| !Rc::ptr_eq(known, observer));
        self.is_on.set(!list.is_empty());
    }

    /// Returns true if all observers can take another request.
    pub fn admit(&self) -> bool {
        self.list.borrow().iter().all(|observer| observer.admits())
    }

    /// Returns true if records need values and options.
    pub fn want_details(&self) -> bool {
        self.list.borrow().iter().any(|observer| observer.wants_details())
    }

    /// Passes a request whose answer is ready to each observer. Returns what the answer has to wait for.
    pub fn finish(&self, client: &ClientState, record: &RequestRecord) -> Option<Taken> {
        let list = self.list.borrow();
        let waits = list.iter().filter_map(|observer| observer.finished(client, record));
        let waits: Vec<Taken> = waits.collect();
        if waits.is_empty() {
            return None;
        }
        Some(Box::pin(async move {
            let mut result = Ok(());
            for wait in waits {
                result = result.and(wait.await);
            }
            result
        }))
    }
}

impl RequestRecord {
    /// Records the failure that is answered.
    pub fn fail(&mut self, failure: &Failure, node: SocketAddr) {
        self.failure =
            Some(ObservedFailure { code: failure.code(), message: failure.message(node) });
    }
}
