//! The side that has the data: pages and files for peers.

mod hold;

pub(crate) use hold::file_name;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use cluster::PlacementKey;
use data::clustering;
use internode::{ErrorReply, Verb};
use messaging::{Request, Responder};
use rt::Group;
use stdx::{HostId, ShardMap, TableId};
use store::{StoreError, StreamRead, TokenFilter};

use crate::env::Env;
use crate::settings::StreamSettings;
use crate::stats::SessionKey;
use crate::throttle::Throttle;
use hold::Holds;

use crate::wire::{self, ChunkRequest, FetchAnswer, FetchRequest, OpenRequest};

/// Minimum bytes of a page, however slow the throttle.
const PAGE_BYTES_MIN: usize = 4096;

/// Gives peers what they fetch.
pub(crate) struct Source {
    env: Rc<Env>,
    /// Limit of the bytes sent to all peers.
    throttle: RefCell<Throttle>,
    /// Limit of the bytes sent to peers in other datacenters.
    inter_dc: RefCell<Throttle>,
    /// Pages being made.
    serving: Cell<usize>,
    /// Data held for peers.
    holds: Holds,
}

/// A shard's share of the node's rate; at least 1, because 0 is no limit.
fn share_of(rate: u64, shards: u16) -> u64 {
    if rate == 0 { 0 } else { (rate / u64::from(shards.max(1))).max(1) }
}

/// The rates of a shard, bytes per second; 0 = no limit.
pub(crate) struct Rates {
    pub(crate) all: u64,
    pub(crate) inter_dc: u64,
}

impl Source {
    pub(crate) fn new(env: Rc<Env>) -> Source {
        let (shards, settings): (u16, &StreamSettings) = (env.rt.shard_count(), &env.settings);
        let all = Throttle::new(share_of(settings.outbound_bytes_per_second, shards));
        let inter_dc = Throttle::new(share_of(settings.inter_dc_bytes_per_second, shards));
        Source {
            throttle: RefCell::new(all),
            inter_dc: RefCell::new(inter_dc),
            serving: Cell::new(0),
            holds: Holds::default(),
            env,
        }
    }

    /// Changes the node's rate to all peers.
    pub(crate) fn set_rate(&self, bytes_per_second: u64) {
        let rate = share_of(bytes_per_second, self.env.rt.shard_count());
        self.throttle.borrow_mut().set_rate(rate);
    }

    /// Changes the node's rate to other datacenters.
    pub(crate) fn set_inter_dc_rate(&self, bytes_per_second: u64) {
        let rate = share_of(bytes_per_second, self.env.rt.shard_count());
        self.inter_dc.borrow_mut().set_rate(rate);
    }

    pub(crate) fn rates(&self) -> Rates {
        Rates { all: self.throttle.borrow().rate(), inter_dc: self.inter_dc.borrow().rate() }
    }

    /// Releases all holds.
    pub(crate) fn clear(&self) {
        self.holds.clear();
    }

    /// Serves a peer's request; gives the responder back when the request is another one.
    pub(crate) fn serve(
        self: &Rc<Self>,
        request: Request<'_>,
        responder: Responder,
    ) -> Option<Responder> {
        let work = match request.verb {
            Verb::StreamFetch => self.admit(&request).map(Work::Page),
            Verb::StreamOpen => self.admit_open(&request).map(Work::Open),
            Verb::StreamChunk => self.admit_chunk(&request).map(Work::Chunk),
            Verb::StreamClose => {
                if let Ok(hold) = wire::read_close(request.payload) {
                    self.holds.end(hold, request.from);
                }
                return None;
            }
            _ => return Some(responder),
        };
        match work {
            Ok(work) => {
                let (env, from) = (&self.env, request.from);
                self.serving.set(self.serving.get() + 1);
                let serving = Serving(self.clone());
                let task = async move {
                    match work {
                        Work::Page(fetch) => serving.answer(from, fetch, responder).await,
                        Work::Open(open) => serving.open(from, open, responder).await,
                        Work::Chunk(chunk) => serving.chunk(from, chunk, responder).await,
                    }
                };
                // A closed gate means that this node stops: the dropped responder notifies the
                // peer.
                let _ = env.gate.spawn(&env.rt, Group::Stream, "stream-serve", task);
            }
            Err(error) => {
                self.env.counts.refused.inc();
                responder.fail(&error);
            }
        }
        None
    }

    fn admit_chunk(&self, request: &Request<'_>) -> Result<ChunkRequest, ErrorReply> {
        self.check_room()?;
        ChunkRequest::decode(request.payload)
            .map_err(|error| ErrorReply::Invalid(error.to_string()))
    }

    fn admit_open(&self, request: &Request<'_>) -> Result<OpenRequest, ErrorReply> {
        self.check_room()?;
        let open = OpenRequest::decode(request.payload)
            .map_err(|error| ErrorReply::Invalid(error.to_string()))?;
        self.check_table(request, open.table)?;
        Ok(open)
    }

    fn check_room(&self) -> Result<(), ErrorReply> {
        if self.env.stopping.get() {
            return Err(ErrorReply::Stopping);
        }
        match self.serving.get() < self.env.settings.serving_max {
            true => Ok(()),
            false => Err(ErrorReply::Overloaded),
        }
    }

    /// Columns of the clustering of a table that may be streamed.
    fn check_table(&self, request: &Request<'_>, id: TableId) -> Result<usize, ErrorReply> {
        let snapshot = (self.env.snapshot)();
        // Before this node knows of the peer's movement it may not have all writes: those that go
        // to the peer as a pending replica begin with it.
        if request.epoch > snapshot.epoch {
            stdx::reached!("stream-epoch-too-new");
            return Err(ErrorReply::EpochTooNew { known: snapshot.epoch });
        }
        let Some(table) = snapshot.schema.table_by_id(id) else {
            return Err(ErrorReply::UnknownTable(id));
        };
        if PlacementKey::of_table(&snapshot, id).is_none_or(|key| key.is_local()) {
            let what = format!("\"{}\" is each node's own and is not streamed", table.keyspace);
            return Err(ErrorReply::Invalid(what));
        }
        Ok(table.clustering_count)
    }

    fn admit(&self, request: &Request<'_>) -> Result<FetchRequest, ErrorReply> {
        self.check_room()?;
        let fetch = FetchRequest::decode(request.payload)
            .map_err(|error| ErrorReply::Invalid(error.to_string()))?;
        let columns = self.check_table(request, fetch.table)?;
        let clustering = fetch.position.as_ref().and_then(|p| p.clustering.as_deref());
        if clustering.is_some_and(|c| clustering::check(c, columns) != Some(columns)) {
            return Err(ErrorReply::Invalid("the position is no row of the table".to_owned()));
        }
        Ok(fetch)
    }
}

/// Request of a peer.
enum Work {
    Page(FetchRequest),
    Open(OpenRequest),
    Chunk(ChunkRequest),
}

/// An answer being made; counted until it is dropped.
struct Serving(Rc<Source>);

impl Drop for Serving {
    fn drop(&mut self) {
        let serving = &self.0.serving;
        serving.set(serving.get().saturating_sub(1));
    }
}

impl Serving {
    async fn answer(self, from: HostId, fetch: FetchRequest, responder: Responder) {
        let (source, env) = (&self.0, &self.0.env);
        let shards = env.rt.shard_count();
        if fetch.peer_shards != shards {
            responder.respond(|out| FetchAnswer { shards, page: &[] }.encode(out));
            return;
        }
        let wanted = usize::try_from(fetch.bytes).unwrap_or(usize::MAX);
        let wanted = wanted.min(env.settings.page_bytes);
        let bytes = self.page_bytes(from, wanted);
        let stream = StreamRead {
            table: fetch.table,
            ranges: fetch.key_ranges(),
            behind: fetch.position.as_ref().and_then(|p| p.clustering.clone()),
            slice: fetch.slice.map(|(shard, shards)| TokenFilter {
                map: ShardMap::ByTokenHash { shards },
                table: fetch.table,
                shard,
            }),
            bytes,
        };
        let read = match fetch.hold {
            None => env.store.reader().read_stream(stream).await,
            Some(number) => match source.holds.find(number, from, env.rt.now()) {
                Some(hold) => env.store.reader().read_held(&hold.held, stream).await,
                None => {
                    responder.respond(|out| FetchAnswer { shards, page: &[] }.encode(out));
                    return;
                }
            },
        };
        let read = match read {
            Ok(read) => read,
            Err(error) => return self.fail(&error, responder),
        };
        let Some(responder) = self.pace(from, read.page.len(), responder).await else { return };
        let bytes = read.page.len() as u64;
        env.counts.sent_bytes.add(bytes);
        let id = SessionKey { plan: fetch.plan, host: from };
        env.counts.sending(id, &fetch.operation, env.rt.now(), |session| {
            session.bytes += bytes;
            session.partitions += read.stats.partitions;
        });
        responder.respond(|out| FetchAnswer { shards, page: &read.page }.encode(out));
    }
}

impl Serving {
    /// Tells a peer that the store cannot.
    fn fail(&self, error: &StoreError, responder: Responder) {
        let env = &self.0.env;
        env.store.note_failure(error);
        env.counts.refused.inc();
        responder.fail(&error_reply(error));
    }

    /// Returns true if a peer is in another datacenter. As in Cassandra, a peer that is no member
    /// is treated as local.
    fn is_far(&self, peer: HostId) -> bool {
        let snapshot = (self.0.env.snapshot)();
        let datacenter = |host| snapshot.members.get(&host).map(|member| &member.datacenter);
        match (datacenter(snapshot.local.host_id), datacenter(peer)) {
            (Some(own), Some(other)) => own != other,
            _ => false,
        }
    }

    /// Bytes that a page for this peer may have so that it goes within about a second.
    fn page_bytes(&self, peer: HostId, wanted: usize) -> usize {
        let source = &self.0;
        if stdx::chaos!("stream-small-page") {
            return wanted.min(PAGE_BYTES_MIN);
        }
        let bytes = source.throttle.borrow().page_bytes(wanted, PAGE_BYTES_MIN);
        match self.is_far(peer) {
            true => source.inter_dc.borrow().page_bytes(bytes, PAGE_BYTES_MIN),
            false => bytes,
        }
    }

    /// Waits until so many bytes may be sent to this peer. `None`: the peer does not wait for them
    /// any more.
    async fn pace(&self, peer: HostId, bytes: usize, responder: Responder) -> Option<Responder> {
        let (source, env) = (&self.0, &self.0.env);
        let now = env.rt.now();
        let mut due = source.throttle.borrow_mut().due(now, bytes);
        if self.is_far(peer) {
            due = due.max(source.inter_dc.borrow_mut().due(now, bytes));
        }
        if due > env.rt.now() && env.unless_stopped(env.rt.sleep_until(due)).await.is_err() {
            responder.fail(&ErrorReply::Stopping);
            return None;
        }
        (!responder.is_cancelled()).then_some(responder)
    }
}

fn error_reply(error: &StoreError) -> ErrorReply {
    match error {
        StoreError::UnknownTable(table) => ErrorReply::UnknownTable(*table),
        StoreError::Stopping => ErrorReply::Stopping,
        StoreError::Corrupt { .. } => ErrorReply::Corrupt,
        StoreError::DiskFull { .. } => ErrorReply::DiskFull,
        StoreError::Overloaded { .. } | StoreError::QueueFull | StoreError::Unflushable { .. } => {
            ErrorReply::Overloaded
        }
        StoreError::Invalid(what) | StoreError::Unsupported(what) => {
            ErrorReply::Invalid(what.clone())
        }
        other => ErrorReply::Internal(other.to_string()),
    }
}
