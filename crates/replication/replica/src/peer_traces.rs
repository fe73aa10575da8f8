//! Events of this node for a request that another node traces.
//!
//! The request's frame carries the trace's id. The events are collected here, and handed over for
//! `system_traces.events` once the answer is sent. Texts are Cassandra's.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use data::MutationRef;
use internode::Verb;
use rt::Rt;
use stdx::{HostId, Instant, Uuid, WallMicros};

use crate::env::Env;
use crate::request_trace::name_of;
use crate::shard_reads::ShardReads;

/// Most events of one request.
pub const EVENTS_MAX: usize = 64;

/// One event of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracedEvent {
    /// The activity, in words.
    pub activity: String,
    /// Time since this node began with the request.
    pub elapsed: Duration,
    /// When.
    pub at: WallMicros,
}

/// Writes down what was done for the trace with this id.
pub type TraceSink = Rc<dyn Fn(Uuid, Vec<TracedEvent>)>;

/// The events of one request of a peer; given to the sink when it is dropped.
pub struct PeerTrace {
    rt: Rt,
    id: Uuid,
    began: Instant,
    sink: TraceSink,
    events: RefCell<Vec<TracedEvent>>,
}

impl PeerTrace {
    /// Adds an event; the first [`EVENTS_MAX`] are kept.
    pub fn note(&self, activity: String) {
        let mut events = self.events.borrow_mut();
        if events.len() < EVENTS_MAX {
            let elapsed = self.rt.now().since(self.began);
            events.push(TracedEvent { activity, elapsed, at: self.rt.wall() });
        }
    }
}

impl PeerTrace {
    /// Records the reads done for the request, in Cassandra's words and then shard by shard.
    pub(crate) fn note_reads(&self, reads: &ShardReads, is_range: bool) {
        let store::ReadStats { rows, tombstones, sstables, .. } = reads.total();
        if !is_range {
            self.note(format!("Merged data from memtables and {sstables} sstables"));
        }
        self.note(format!("Read {rows} live rows and {tombstones} tombstone cells"));
        reads.lines().into_iter().for_each(|line| self.note(line));
    }
}

impl Drop for PeerTrace {
    fn drop(&mut self) {
        (self.sink)(self.id, self.events.take());
    }
}

impl Env {
    /// A mutation is applied on this node.
    #[cold]
    pub fn note_own_write(&self, mutation: &[u8], note: impl Fn(String)) {
        note("Appending to commitlog".to_owned());
        let table = MutationRef::open(mutation).map(|mutation| mutation.table);
        let cluster = self.cluster();
        let table = table.zip(cluster).and_then(|(table, cluster)| {
            let snapshot = (cluster.parts.snapshot)();
            snapshot.schema.table_by_id(table).map(|table| table.name.to_string())
        });
        note(format!("Adding to {} memtable", table.as_deref().unwrap_or("a")));
    }

    /// Sets `sink` as the receiver of the events for traced requests of peers.
    pub fn on_peer_trace(&self, sink: TraceSink) {
        *self.peer_traces.borrow_mut() = Some(sink);
    }

    /// Starts to collect events if the request is traced and the events have a destination.
    #[cold]
    pub fn peer_trace(&self, request: &messaging::Request<'_>) -> Option<Rc<PeerTrace>> {
        self.peer_trace_of(request.trace?, request.verb, request.from)
    }

    /// Like [`Env::peer_trace`], for a request that is traced with this id.
    #[cold]
    pub fn peer_trace_of(&self, id: Uuid, verb: Verb, from: HostId) -> Option<Rc<PeerTrace>> {
        let sink = self.peer_traces.borrow().clone()?;
        let rt = self.rt.clone();
        let began = rt.now();
        let trace = PeerTrace { rt, id, began, sink, events: RefCell::default() };
        let cluster = self.cluster();
        let from = cluster.map_or_else(|| from.to_string(), |cluster| cluster.shown(from));
        trace.note(format!("{} message received from {from}", name_of(verb)));
        Some(Rc::new(trace))
    }
}
