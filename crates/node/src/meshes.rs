//! Channels between the shards of one node.

use std::sync::Arc;

use ::audit::AuditMesh;
use admin::AdminMesh;
use coordinator::ShardMesh;
use cql_server::ServerMesh;
use liveness::LivenessMesh;
use membership::MetaMesh;
use messaging::MessagingMesh;
use query_logger::QueryLogMesh;
use repair::RepairMesh;
use streaming::StreamMesh;
use topology::HintsMesh;

use crate::boot::BootMesh;
use crate::cluster::member::ClusterMeshes;
use crate::disk_usage::DiskMesh;
use crate::policy::PolicyMesh;

/// Most waiting requests for one shard, per kind of request.
const MESH_CAPACITY: usize = 4096;

/// Channels between the shards of one node.
#[derive(Clone)]
pub struct Meshes {
    pub(crate) boot: Arc<BootMesh>,
    pub(crate) data: Arc<ShardMesh>,
    pub(crate) metadata: Arc<MetaMesh>,
    pub(crate) server: Arc<ServerMesh>,
    pub(crate) admin: Arc<AdminMesh>,
    pub(crate) policy: Arc<PolicyMesh>,
    pub(crate) messaging: Arc<MessagingMesh>,
    pub(crate) liveness: Arc<LivenessMesh>,
    pub(crate) streaming: Arc<StreamMesh>,
    pub(crate) hints: Arc<HintsMesh>,
    pub(crate) repair: Arc<RepairMesh>,
    pub(crate) disks: Arc<DiskMesh>,
    pub(crate) audit: AuditMesh,
    pub(crate) query_log: QueryLogMesh,
}

impl Meshes {
    /// Creates the channels between that many shards.
    pub fn new(shards: u16) -> Meshes {
        Meshes {
            boot: Arc::new(BootMesh::new(shards, MESH_CAPACITY)),
            data: Arc::new(ShardMesh::new(shards, MESH_CAPACITY)),
            metadata: Arc::new(MetaMesh::new(shards, MESH_CAPACITY)),
            server: Arc::new(ServerMesh::new(shards, MESH_CAPACITY)),
            admin: Arc::new(AdminMesh::new(shards, MESH_CAPACITY)),
            policy: Arc::new(PolicyMesh::new(shards, MESH_CAPACITY)),
            messaging: Arc::new(MessagingMesh::new(shards)),
            liveness: Arc::new(LivenessMesh::new(shards, MESH_CAPACITY)),
            streaming: Arc::new(streaming::new_mesh(shards)),
            hints: Arc::new(HintsMesh::new(shards, 8)),
            repair: Arc::new(repair::new_mesh(shards)),
            disks: Arc::new(DiskMesh::new(shards, 8)),
            audit: AuditMesh::new(shards, MESH_CAPACITY),
            query_log: QueryLogMesh::new(shards, MESH_CAPACITY),
        }
    }

    pub(crate) fn of_cluster(&self) -> ClusterMeshes<'_> {
        ClusterMeshes {
            liveness: &self.liveness,
            streaming: &self.streaming,
            hints: &self.hints,
            repair: &self.repair,
        }
    }
}
