//! Who has the data: pages for peers.

use cluster::Replication;
use data::clustering;
use internode::{ErrorReply, Verb};
use messaging::{Request, Responder};
use rt::Group;
use stdx::HostId;
use store::{StoreError, StreamRead, TokenFilter};

use crate::streaming::Streaming;
use crate::wire::{FetchAnswer, FetchRequest};

/// A page may always have so many bytes, however slow the throttle.
const PAGE_BYTES_MIN: usize = 4096;

impl Streaming {
    /// Serves a peer's request for a page; gives the responder back when the request is another one.
    pub fn serve_peer(&self, request: Request<'_>, responder: Responder) -> Option<Responder> {
        if request.verb != Verb::StreamFetch {
            return Some(responder);
        }
        match self.admit(&request) {
            Ok(fetch) => {
                let (inner, from) = (self.inner.clone(), request.from);
                let streaming = self.clone();
                inner.serving.set(inner.serving.get() + 1);
                let serving = Serving(streaming);
                let task = async move { serving.answer(from, fetch, responder).await };
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

    fn admit(&self, request: &Request<'_>) -> Result<FetchRequest, ErrorReply> {
        let inner = &self.inner;
        if inner.stopping.get() {
            return Err(ErrorReply::Stopping);
        }
        let fetch = FetchRequest::decode(request.payload)
            .map_err(|error| ErrorReply::Invalid(error.to_string()))?;
        let snapshot = (inner.snapshot)();
        // Before this node knows of the peer's movement it may not have all writes: those that go
        // to the peer as a pending replica begin with it.
        if request.epoch > snapshot.epoch {
            return Err(ErrorReply::EpochTooNew { known: snapshot.epoch });
        }
        let Some(table) = snapshot.schema.table_by_id(fetch.table) else {
            return Err(ErrorReply::UnknownTable(fetch.table));
        };
        if matches!(snapshot.replication_of_table(fetch.table), None | Some(Replication::Local)) {
            let what = format!("\"{}\" is each node's own and is not streamed", table.keyspace);
            return Err(ErrorReply::Invalid(what));
        }
        let columns = table.clustering_count;
        let clustering = fetch.position.as_ref().and_then(|p| p.clustering.as_deref());
        if clustering.is_some_and(|c| clustering::check(c, columns) != Some(columns)) {
            return Err(ErrorReply::Invalid("the position is no row of the table".to_owned()));
        }
        if inner.serving.get() >= inner.settings.serving_max {
            return Err(ErrorReply::Overloaded);
        }
        Ok(fetch)
    }
}

/// A page being made; counted until it is dropped.
struct Serving(Streaming);

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
        let bytes = inner.throttle.borrow().page_bytes(wanted, PAGE_BYTES_MIN);
        let stream = StreamRead {
            table: fetch.table,
            ranges: fetch.key_ranges(),
            behind: fetch.position.as_ref().and_then(|p| p.clustering.clone()),
            slice: fetch.slice.map(|(shard, shard_count)| TokenFilter {
                shard_of: cluster::shard_of_token,
                shard,
                shard_count,
            }),
            bytes,
        };
        let read = match inner.store.read_stream(stream).await {
            Ok(read) => read,
            Err(error) => {
                inner.store.note_failure(&error);
                inner.counts.refused.inc();
                responder.fail(&error_reply(&error));
                return;
            }
        };
        let due = inner.throttle.borrow_mut().due(inner.rt.now(), read.page.len());
        if due > inner.rt.now() && inner.unless_stopped(inner.rt.sleep_until(due)).await.is_err() {
            responder.fail(&ErrorReply::Stopping);
            return;
        }
        if responder.is_cancelled() {
            return;
        }
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

fn error_reply(error: &StoreError) -> ErrorReply {
    match error {
        StoreError::UnknownTable(table) => ErrorReply::UnknownTable(*table),
        StoreError::Stopping => ErrorReply::Stopping,
        StoreError::Corrupt { .. } => ErrorReply::Corrupt,
        StoreError::DiskFull { .. } => ErrorReply::DiskFull,
        StoreError::Overloaded { .. } | StoreError::QueueFull => ErrorReply::Overloaded,
        StoreError::Invalid(what) => ErrorReply::Invalid(what.clone()),
        other => ErrorReply::Internal(other.to_string()),
    }
}
