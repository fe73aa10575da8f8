//! Traces of single requests: the rows of `TRACING ON`.
//!
//! Events are collected while the request runs and written with the session when it ends, before its
//! answer. Other nodes get the trace's id with their requests and write their own events. These may
//! appear a moment later, as in Cassandra.

use crate::row_write::{Content, RowWrite};
use data::ClusteringBuf;
use std::cell::{Cell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use stdx::{Instant, Uuid, WallMicros};

/// Most events of one trace; later ones are left out.
const EVENTS_MAX: usize = 1000;
/// Longest text of a value or activity, as in Cassandra.
const TEXT_BYTES_MAX: usize = 1000;

/// Reason why a request is traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceOrigin {
    /// Its client asked for it.
    Client,
    /// `settraceprobability` chose it; the client does not learn of it.
    Sampled,
    /// Another node traces it, where its session is written.
    Peer,
}

/// One running trace.
pub struct Trace {
    id: [u8; 16],
    origin: TraceOrigin,
    is_written: Cell<bool>,
    started: Instant,
    started_at: WallMicros,
    clock: rt::Rt,
    session: RefCell<SessionRow>,
    events: RefCell<Vec<Event>>,
}

#[derive(Default)]
struct SessionRow {
    request: &'static str,
    parameters: Vec<(String, String)>,
}

struct Event {
    activity: String,
    elapsed_micros: i32,
    at: WallMicros,
}

impl Trace {
    /// Begins one. `id` is a time UUID.
    pub fn new(rt: &rt::Rt, id: [u8; 16], origin: TraceOrigin) -> Trace {
        Trace {
            id,
            origin,
            is_written: Cell::new(false),
            started: rt.now(),
            started_at: rt.wall(),
            clock: rt.clone(),
            session: RefCell::default(),
            events: RefCell::default(),
        }
    }

    /// Creates the trace of this node's part of a request that another node traces.
    pub(crate) fn of_peer(rt: &rt::Rt, id: Uuid) -> Trace {
        Trace::new(rt, id.into_bytes(), TraceOrigin::Peer)
    }

    /// Returns true if the session belongs to another node.
    pub(crate) fn is_of_peer(&self) -> bool {
        self.origin == TraceOrigin::Peer
    }

    /// Returns true if its rows were handed to the tables of traces.
    pub fn is_written(&self) -> bool {
        self.is_written.get()
    }

    /// Notes that its rows are being written.
    pub(crate) fn set_written(&self) {
        self.is_written.set(true);
    }

    /// Its id, for the client.
    pub fn id(&self) -> Uuid {
        Uuid::from_bytes(self.id)
    }

    /// Returns true if the client asked for the trace.
    pub fn is_asked_for(&self) -> bool {
        self.origin == TraceOrigin::Client
    }

    /// Describes the traced request, in Cassandra's words.
    pub(crate) fn describe(&self, request: &'static str, parameters: Vec<(String, String)>) {
        let cut = |text: String| match text.get(..TEXT_BYTES_MAX) {
            Some(head) if text.len() > TEXT_BYTES_MAX => format!("{head}..."),
            _ => text,
        };
        let parameters = parameters.into_iter().map(|(k, v)| (k, cut(v))).collect();
        *self.session.borrow_mut() = SessionRow { request, parameters };
    }

    /// Notes an event.
    pub fn note(&self, activity: String) {
        let mut events = self.events.borrow_mut();
        if events.len() < EVENTS_MAX {
            let elapsed_micros = self.elapsed_micros();
            events.push(Event { activity, elapsed_micros, at: self.clock.wall() });
        }
    }

    fn elapsed_micros(&self) -> i32 {
        let micros = self.clock.now().since(self.started).as_micros();
        i32::try_from(micros).unwrap_or(i32::MAX)
    }

    /// The row of `system_traces.sessions`.
    pub(crate) fn session_row(&self, client: IpAddr, node: SocketAddr) -> RowWrite {
        let session = self.session.borrow();
        let mut parameters = session.parameters.clone();
        parameters.sort();
        parameters.dedup_by(|a, b| a.0 == b.0);
        let value = |name, bytes: &[u8]| (name, Content::Value(bytes.to_vec()));
        RowWrite {
            key: self.id.to_vec(),
            clustering: Vec::new(),
            columns: vec![
                value("client", &inet(client)),
                value("command", b"QUERY"),
                value("coordinator", &inet(node.ip())),
                value("coordinator_port", &i32::from(node.port()).to_be_bytes()),
                value("duration", &self.elapsed_micros().to_be_bytes()),
                ("parameters", Content::Texts(parameters)),
                value("request", session.request.as_bytes()),
                value("started_at", &self.started_at.millis().to_be_bytes()),
            ],
        }
    }

    /// The rows of `system_traces.events`. `next_id` makes time UUIDs.
    pub(crate) fn event_rows(
        &self,
        node: SocketAddr,
        thread: &str,
        mut next_id: impl FnMut(WallMicros) -> [u8; 16],
    ) -> Vec<RowWrite> {
        let events = self.events.borrow();
        events
            .iter()
            .map(|event| {
                let elapsed =
                    Duration::from_micros(u64::try_from(event.elapsed_micros).unwrap_or(0));
                let row = EventRow {
                    session: &self.id,
                    id: next_id(event.at),
                    activity: &event.activity,
                    elapsed,
                    node,
                    thread,
                };
                row.content()
            })
            .collect()
    }
}

/// A row of `system_traces.events`.
pub(crate) struct EventRow<'e> {
    pub(crate) session: &'e [u8],
    /// A time UUID.
    pub(crate) id: [u8; 16],
    /// Description of the event.
    pub(crate) activity: &'e str,
    /// Time since its node started the request.
    pub(crate) elapsed: Duration,
    pub(crate) node: SocketAddr,
    /// Thread of the node.
    pub(crate) thread: &'e str,
}

impl EventRow<'_> {
    /// Returns the row to write.
    pub(crate) fn content(&self) -> RowWrite {
        let value = |name, bytes: &[u8]| (name, Content::Value(bytes.to_vec()));
        let micros = i32::try_from(self.elapsed.as_micros()).unwrap_or(i32::MAX);
        RowWrite {
            key: self.session.to_vec(),
            clustering: ClusteringBuf::from_components([self.id.as_slice()]).0,
            columns: vec![
                value("activity", self.activity.as_bytes()),
                value("source", &inet(self.node.ip())),
                value("source_elapsed", &micros.to_be_bytes()),
                value("source_port", &i32::from(self.node.port()).to_be_bytes()),
                value("thread", self.thread.as_bytes()),
            ],
        }
    }
}

/// An address as CQL's `inet` holds it.
pub fn inet(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}
