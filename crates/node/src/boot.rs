//! Boot protocol: barriers between the shards at start and stop. All requests are sent to shard 0.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use cluster::ClusterSnapshot;
use cql_server::PortEncryption;
use rt::{Mesh, Reply, Rt};
use stdx::{ShardId, TableId};

/// Requests of shards to shard 0.
#[derive(Debug)]
pub enum BootRequest {
    /// Asks for the metadata that shard 0 found or created at start.
    Snapshot,
    /// Reports the arrival at a point; answered when every shard has arrived.
    Arrive(Point, Result<(), ()>),
}

/// Answer to a [`BootRequest`].
#[derive(Debug, Clone)]
pub enum BootReply {
    /// State with which the other shards begin; `None`: the start failed.
    Snapshot(Option<Beginning>),
    /// Every shard arrived; false: one failed.
    Arrived(bool),
}

/// Shard 0's result of opening the work directory, for the other shards.
#[derive(Debug, Clone)]
pub struct Beginning {
    /// The metadata.
    pub snapshot: Arc<ClusterSnapshot>,
    /// Number of this run.
    pub run: u64,
    /// All tables that the metadata log ever had.
    pub tables_ever: Arc<BTreeSet<TableId>>,
    /// The archive of the commit log.
    pub archiving: conf::Archiving,
    /// True if the node has peers.
    pub has_peers: bool,
    /// Encryption of client connections.
    pub encryption: PortEncryption,
}

/// Barriers of the shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// Stores are open.
    Opened,
    /// All parts are built: shards answer each other.
    Made,
    /// Unfinished work of the last run is completed: peers may be served.
    Settled,
    /// Shard 0 listens, or failed to.
    Serving,
    /// Connections are closed.
    Closed,
}

/// Channel to shard 0.
pub type BootMesh = Mesh<BootRequest, BootReply>;

#[derive(Default)]
struct Waiting {
    replies: Vec<Reply<BootReply>>,
    failed: bool,
}

/// Serves the boot protocol on shard 0. `answer` is the reply to requests for the snapshot.
pub fn serve(rt: &Rt, mesh: &BootMesh, answer: Option<Beginning>) {
    let shards = usize::from(rt.shard_count());
    let waiting: Rc<RefCell<Vec<(Point, Waiting)>>> = Rc::default();
    mesh.serve(rt, move |request, reply| match request {
        BootRequest::Snapshot => reply.send(BootReply::Snapshot(answer.clone())),
        BootRequest::Arrive(point, result) => {
            let mut all = waiting.borrow_mut();
            if !all.iter().any(|(p, _)| *p == point) {
                all.push((point, Waiting::default()));
            }
            let Some((_, at)) = all.iter_mut().find(|(p, _)| *p == point) else { return };
            at.failed |= result.is_err();
            at.replies.push(reply);
            if at.replies.len() == shards {
                let ok = !at.failed;
                for reply in at.replies.drain(..) {
                    reply.send(BootReply::Arrived(ok));
                }
            }
        }
    });
}

/// Asks shard 0 for the snapshot; `None` when the start failed.
pub async fn snapshot(rt: &Rt, mesh: &BootMesh) -> Option<Beginning> {
    match mesh.call(rt, ShardId(0), BootRequest::Snapshot).await {
        Ok(BootReply::Snapshot(answer)) => answer,
        Ok(BootReply::Arrived(_)) | Err(_) => None,
    }
}

/// Reports this shard's arrival at `point`, or its failure, and waits for the other shards. Returns
/// false if one of them failed.
pub async fn arrive(rt: &Rt, mesh: &BootMesh, point: Point, result: Result<(), ()>) -> bool {
    match mesh.call(rt, ShardId(0), BootRequest::Arrive(point, result)).await {
        Ok(BootReply::Arrived(all)) => all,
        Ok(BootReply::Snapshot(_)) | Err(_) => false,
    }
}
