//! [`Streaming`]: the object of a shard; builds the rooms and hands commands to them.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use cluster::ClusterSnapshot;
use messaging::{Messaging, Request, Responder};
use rt::Rt;
use rt::sync::Notify;
use stdx::Uuid;
use store::Store;

use crate::env::Env;
use crate::error::StreamError;
use crate::fetch::{Fetcher, Keep, Operation};
use crate::orders::StreamMesh;
use crate::plan::FetchRange;
use crate::report::{FetchProgress, FetchReport};
use crate::settings::StreamSettings;
use crate::source::Source;
use crate::stats::{Counts, StreamStats};

/// Dependencies of a shard's streaming.
pub struct StreamParts {
    /// The shard.
    pub rt: Rt,
    /// Its data; tokens belong to shards by its options' map.
    pub store: Store,
    /// Messaging with peers.
    pub messaging: Messaging,
    /// Mesh to the other shards.
    pub mesh: Arc<StreamMesh>,
    /// The newest snapshot that this node has applied.
    pub snapshot: Rc<dyn Fn() -> Arc<ClusterSnapshot>>,
    /// The same on all shards.
    pub settings: StreamSettings,
}

/// Streams of one shard. Clones are the same object.
#[derive(Clone)]
pub struct Streaming {
    pub(crate) env: Rc<Env>,
    source: Rc<Source>,
    fetcher: Rc<Fetcher>,
}

impl Streaming {
    /// Creates the streaming of the shard of `parts.rt`. It serves the mesh from now on, and peers
    /// by [`Streaming::serve_peer`].
    pub fn new(parts: StreamParts) -> Streaming {
        let StreamParts { rt, store, messaging, mesh, snapshot, settings } = parts;
        let env = Rc::new(Env {
            gate: rt.gate("streaming"),
            counts: Counts::new(&rt.telemetry()),
            stopping: Cell::new(false),
            aborted: RefCell::default(),
            stop: Notify::new(),
            abort: Notify::new(),
            rt,
            store,
            messaging,
            snapshot,
            settings,
        });
        let source = Rc::new(Source::new(env.clone()));
        let fetcher = Rc::new(Fetcher::new(env.clone(), mesh));
        fetcher.serve();
        Streaming { env, source, fetcher }
    }

    /// Fetches ranges into SSTables of this node, on all of its shards, table after table. The data
    /// becomes visible as its parts become durable. Tables that are dropped meanwhile count as
    /// fetched. `operation` names it for `nodetool netstats`: `Bootstrap`, `Rebuild` and so on.
    ///
    /// Before this call a movement's writes must reach this node: every coordinator has applied the
    /// entry that made it a pending replica, and writes that began before are over.
    ///
    /// # Errors
    /// `Incomplete`: everything else was fetched; `Store`, `Stopping`.
    pub async fn fetch(
        &self,
        operation: &str,
        plan: Vec<FetchRange>,
        progress: &dyn Fn(&FetchProgress),
    ) -> Result<FetchReport, StreamError> {
        let keep: &Keep<'_> = &|_| Box::pin(std::future::ready(()));
        let operation = Operation { name: operation, plan: self.new_plan() };
        self.fetcher.fetch(operation, plan, progress, keep).await
    }

    /// Like [`Streaming::fetch`], under an id of [`Streaming::new_plan`] by which it can be
    /// aborted. After each table `keep` is called with the table's ranges that are fetched now, in
    /// their requested form, and is awaited. The ranges that it persists need not be fetched again
    /// after a crash.
    ///
    /// # Errors
    /// Those of [`Streaming::fetch`]; `Aborted`.
    pub async fn fetch_keeping(
        &self,
        operation: Operation<'_>,
        plan: Vec<FetchRange>,
        progress: &dyn Fn(&FetchProgress),
        keep: &Keep<'_>,
    ) -> Result<FetchReport, StreamError> {
        self.fetcher.fetch(operation, plan, progress, keep).await
    }

    /// Serves a peer's request; gives the responder back when the request is another one.
    pub fn serve_peer(&self, request: Request<'_>, responder: Responder) -> Option<Responder> {
        self.source.serve(request, responder)
    }

    /// Changes the bytes per second that this node gives to peers, all shards together; 0 = no limit.
    /// To be called on every shard.
    pub fn set_throughput(&self, bytes_per_second: u64) {
        self.source.set_rate(bytes_per_second);
    }

    /// Like [`Streaming::set_throughput`], for data sent to other datacenters.
    pub fn set_inter_dc_throughput(&self, bytes_per_second: u64) {
        self.source.set_inter_dc_rate(bytes_per_second);
    }

    /// Returns the statistics of this shard's streams.
    pub fn stats(&self) -> StreamStats {
        let (receiving, sending) = self.env.counts.stats(self.env.rt.now());
        let rates = self.source.rates();
        StreamStats {
            bytes_per_second_max: rates.all,
            inter_dc_bytes_per_second_max: rates.inter_dc,
            receiving,
            sending,
        }
    }

    /// A name for an operation that [`Streaming::abort`] may end: a time UUID, as Cassandra's plans have.
    pub fn new_plan(&self) -> Uuid {
        let mut random = [0; 16];
        self.env.rt.random_fill(&mut random);
        let random = u128::from_be_bytes(random);
        let low = types::timeuuid::clock_seq_and_node((random >> 64) as u16, random as u64);
        Uuid::from_bytes(types::timeuuid::from_micros(self.env.rt.wall().0, low))
    }

    /// Has a fetch that this shard has begun end with `Aborted` as soon as every shard has heard of
    /// it; false: none of that name runs. Tables that are here stay.
    pub fn abort(&self, plan: Uuid) -> bool {
        self.fetcher.abort(plan)
    }

    /// Ends what runs and refuses the rest.
    pub async fn stop(&self) {
        self.env.stopping.set(true);
        self.env.stop.notify_waiters();
        self.source.clear();
        self.env.gate.close().await;
    }
}
