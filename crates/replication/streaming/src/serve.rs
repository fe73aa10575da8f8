//! Who has the data: pages for peers.

use cluster::PlacementKey;
use data::clustering;
use internode::{ErrorReply, Verb};
use messaging::{Request, Responder};
use rt::Group;
use stdx::{HostId, ShardMap, TableId};
use store::{StoreError, StreamRead, TokenFilter};

use crate::streaming::Streaming;
use crate::wire::{self, ChunkRequest, FetchAnswer, FetchRequest, OpenRequest};

/// A page may always have so many bytes, however slow the throttle.
pub(crate) const PAGE_BYTES_MIN: usize = 4096;

impl Streaming {
    /// Serves a peer's request; gives the responder back when the request is another one.
    pub fn serve_peer(&self, request: Request<'_>, responder: Responder) -> Option<Responder> {
        let work = match request.verb {
            Verb::StreamFetch => self.admit(&request).map(Work::Page),
            Verb::StreamOpen => self.admit_open(&request).map(Work::Open),
            Verb::StreamChunk => self.admit_chunk(&request).map(Work::Chunk),
            Verb::StreamClose => {
                if let Ok(hold) = wire::read_close(request.payload) {
                    self.inner.holds.end(hold, request.from);
                }
                return None;
            }
            _ => return Some(responder),
        };
        match work {
            Ok(work) => {
                let (inner, from) = (self.inner.clone(), request.from);
                inner.serving.set(inner.serving.get() + 1);
                let serving = Serving(self.clone());
                let task = async move {
                    match work {
                        Work::Page(fetch) => serving.answer(from, fetch, responder).await,
                        Work::Open(open) => serving.open(from, open, responder).await,
                        Work::Chunk(chunk) => serving.chunk(from, chunk, responder).await,
                    }
                };
                // A closed gate: the responder is dropped and says that this node is stopping.
                let _ = inner.gate.spawn(&inner.rt, Group::Stream, "stream-serve", task);
            }
            Err(error) => {
                self.inner.counts.refused.inc();
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
        match &self.inner {
            inner if inner.stopping.get() => Err(ErrorReply::Stopping),
            inner if inner.serving.get() >= inner.settings.serving_max => {
                Err(ErrorReply::Overloaded)
            }
            _ => Ok(()),
        }
    }

    /// Columns of the clustering of a table that may be streamed.
    fn check_table(&self, request: &Request<'_>, id: TableId) -> Result<usize, ErrorReply> {
        let snapshot = (self.inner.snapshot)();
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

/// What a peer asks for.
enum Work {
    Page(FetchRequest),
    Open(OpenRequest),
    Chunk(ChunkRequest),
}

/// An answer being made; counted until it is dropped.
pub(crate) struct Serving(pub(crate) Streaming);

impl Drop for Serving {
    fn drop(&mut self) {
        let serving = &self.0.inner.serving;
        serving.set(serving.get().saturating_sub(1));
    }
}

impl Serving {
    async fn answer(self, from: HostId, fetch: FetchRequest, responder: Responder) {
        let inner = &self.0.inner;
        let shards = inner.rt.shard_count();
        if fetch.peer_shards != shards {
            responder.respond(|out| FetchAnswer { shards, page: &[] }.encode(out));
            return;
        }
        let wanted = usize::try_from(fetch.bytes).unwrap_or(usize::MAX);
        let wanted = wanted.min(inner.settings.page_bytes);
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
            None => inner.store.reader().read_stream(stream).await,
            Some(number) => match inner.holds.find(number, from, inner.rt.now()) {
                Some(hold) => inner.store.reader().read_held(&hold.held, stream).await,
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
        inner.counts.sent_bytes.add(bytes);
        let id = (fetch.plan, from);
        inner.counts.sending(id, &fetch.operation, inner.rt.now(), |session| {
            session.bytes += bytes;
            session.partitions += read.stats.partitions;
        });
        responder.respond(|out| FetchAnswer { shards, page: &read.page }.encode(out));
    }
}

impl Serving {
    /// Tells a peer that the store cannot.
    pub(crate) fn fail(&self, error: &StoreError, responder: Responder) {
        let inner = &self.0.inner;
        inner.store.note_failure(error);
        inner.counts.refused.inc();
        responder.fail(&error_reply(error));
    }

    /// Whether a peer is in another datacenter; one that is no member is taken for a near one, as
    /// Cassandra does.
    fn is_far(&self, peer: HostId) -> bool {
        let snapshot = (self.0.inner.snapshot)();
        let datacenter = |host| snapshot.members.get(&host).map(|member| &member.datacenter);
        match (datacenter(snapshot.local.host_id), datacenter(peer)) {
            (Some(own), Some(other)) => own != other,
            _ => false,
        }
    }

    /// Bytes that a page for this peer may have so that it goes within about a second.
    pub(crate) fn page_bytes(&self, peer: HostId, wanted: usize) -> usize {
        let inner = &self.0.inner;
        if stdx::chaos!("stream-small-page") {
            return wanted.min(PAGE_BYTES_MIN);
        }
        let bytes = inner.throttle.borrow().page_bytes(wanted, PAGE_BYTES_MIN);
        match self.is_far(peer) {
            true => inner.inter_dc.borrow().page_bytes(bytes, PAGE_BYTES_MIN),
            false => bytes,
        }
    }

    /// Waits until so many bytes may go to this peer; `None` when nobody waits for them any more.
    pub(crate) async fn pace(
        &self,
        peer: HostId,
        bytes: usize,
        responder: Responder,
    ) -> Option<Responder> {
        let inner = &self.0.inner;
        let now = inner.rt.now();
        let mut due = inner.throttle.borrow_mut().due(now, bytes);
        if self.is_far(peer) {
            due = due.max(inner.inter_dc.borrow_mut().due(now, bytes));
        }
        if due > inner.rt.now() && inner.unless_stopped(inner.rt.sleep_until(due)).await.is_err() {
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
        StoreError::Invalid(what) => ErrorReply::Invalid(what.clone()),
        other => ErrorReply::Internal(other.to_string()),
    }
}
