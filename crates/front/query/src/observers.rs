//! Finished requests, as observers see them: the one place for logs of requests.
//!
//! Owns: the description of a request from its arrival to its answer ([`RequestRecord`]), the interface of observers
//! ([`RequestObserver`]). Never: which requests an observer writes down, or where. A front makes a record only while
//! an observer is installed ([`crate::observed`]), and calls each observer once for each request that a client sent; statements that
//! another node forwarded, and those of the node itself, are not observed.

use crate::client::ClientState;
use crate::failure::{Failure, Result};
use crate::prepared::{Prepared, PreparedCache, PreparedId};
use cql_wire::{BatchKind, Consistency, ErrorCode};
use rt::Rt;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use stdx::{Instant, WallMicros};

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
    /// Keyspace that the request itself names.
    pub(crate) own_keyspace: Option<Rc<str>>,
    /// Consistency level; `None` for requests without one.
    pub consistency: Option<Consistency>,
    /// Values and options, if an observer asked for them.
    pub details: Option<Box<RequestDetails>>,
    /// When it arrived: when the turn of its connection began.
    pub began: WallMicros,
    /// When its answer was ready. That of a request that did not wait is ready in the turn in which it arrived.
    pub answered: WallMicros,
    /// Number of its statements before the first one that cannot be planned.
    pub planned: usize,
    /// Failure that was answered; `None` for a result.
    pub failure: Option<Box<ObservedFailure>>,
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

/// How long the wall clock is computed from the other clock before it is read again: a jump of it shows after this.
const WALL_NANOS_MAX: u64 = 1_000_000_000;
/// Statements that are found without the map of all prepared ones; a power of two.
const RECENT: usize = 64;

/// Observers of one shard's requests.
#[derive(Default)]
pub struct Observers {
    list: RefCell<Vec<Rc<dyn RequestObserver>>>,
    is_on: Cell<bool>,
    wants_details: Cell<bool>,
    /// One instant by both clocks.
    clocks: Cell<Option<(Instant, WallMicros)>>,
    recent: RefCell<RecentStatements>,
}

/// Prepared statements that observed requests executed, at a place that their id gives.
#[derive(Default)]
struct RecentStatements {
    /// Empty, or [`RECENT`] places.
    places: Vec<Option<Rc<Prepared>>>,
    /// Number of removals from the prepared statements when the places were filled.
    removals: u64,
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
        self.note_change();
    }

    /// Removes an observer. Requests that were recorded before do not reach it.
    pub fn remove(&self, observer: &Rc<dyn RequestObserver>) {
        self.list.borrow_mut().retain(|known| !Rc::ptr_eq(known, observer));
        self.note_change();
    }

    fn note_change(&self) {
        let list = self.list.borrow();
        self.is_on.set(!list.is_empty());
        self.wants_details.set(list.iter().any(|observer| observer.wants_details()));
        *self.recent.borrow_mut() = RecentStatements::default();
    }

    /// Returns true if all observers can take another request.
    pub fn admit(&self) -> bool {
        self.list.borrow().iter().all(|observer| observer.admits())
    }

    /// Returns true if records need values and options.
    #[inline]
    pub fn want_details(&self) -> bool {
        self.wants_details.get()
    }

    /// Returns the time of an instant that the caller has already, without reading a clock, but for once in
    /// a second.
    #[inline]
    pub fn wall_at(&self, rt: &Rt, at: Instant) -> WallMicros {
        if let Some((known, wall)) = self.clocks.get() {
            // An instant before the known one is far off, too.
            let since = at.0.wrapping_sub(known.0);
            if since < WALL_NANOS_MAX {
                return WallMicros(wall.0.saturating_add((since / 1000).cast_signed()));
            }
        }
        self.read_clocks(rt, at)
    }

    #[inline(never)]
    fn read_clocks(&self, rt: &Rt, at: Instant) -> WallMicros {
        let (now, wall) = (rt.now(), rt.wall());
        let ago = i64::try_from(now.since(at).as_micros()).unwrap_or(0);
        let of_instant = WallMicros(wall.0.saturating_sub(ago));
        self.clocks.set(Some((at, of_instant)));
        of_instant
    }

    /// Returns the prepared statement of an id, as [`PreparedCache::get`] does.
    #[inline]
    pub(crate) fn prepared(&self, all: &PreparedCache, id: &[u8]) -> Option<Rc<Prepared>> {
        let id: &PreparedId = id.try_into().ok()?;
        let place = usize::from(id[0]) & (RECENT - 1);
        let recent = self.recent.borrow();
        if recent.removals == all.removals()
            && let Some(Some(known)) = recent.places.get(place)
            && known.id == *id
        {
            return Some(known.clone());
        }
        drop(recent);
        self.look_up(all, id, place)
    }

    #[inline(never)]
    fn look_up(&self, all: &PreparedCache, id: &PreparedId, place: usize) -> Option<Rc<Prepared>> {
        let mut recent = self.recent.borrow_mut();
        if recent.removals != all.removals() || recent.places.is_empty() {
            *recent = RecentStatements { places: vec![None; RECENT], removals: all.removals() };
        }
        let found = all.get(id);
        if let Some(slot) = recent.places.get_mut(place) {
            slot.clone_from(&found);
        }
        found
    }

    /// Passes a request whose answer is ready to each observer. Returns what the answer has to wait for.
    pub fn finish(&self, client: &ClientState, record: &RequestRecord) -> Option<Taken> {
        let list = self.list.borrow();
        let mut waits: Vec<Taken> = Vec::new();
        for observer in &*list {
            waits.extend(observer.finished(client, record));
        }
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
    /// Keyspace that its names without one belong to: its own, or that of the last USE.
    pub fn keyspace(&self) -> Option<&Rc<str>> {
        self.own_keyspace.as_ref().or(self.session_keyspace.as_ref())
    }

    /// Records the failure that is answered.
    pub fn fail(&mut self, failure: &Failure, node: SocketAddr) {
        let (code, message) = (failure.code(), failure.message(node));
        self.failure = Some(Box::new(ObservedFailure { code, message }));
    }
}
