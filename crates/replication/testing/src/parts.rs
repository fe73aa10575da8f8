//! Parts of a node: its identity, its members, its store, its connections.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use cluster::{ClusterSnapshot, LocalNode, Member, MemberState, PlaceHistory};
use internode::{Features, Identity, VersionRange};
use messaging::{Handler, Messaging, MessagingMesh, Peer, Settings};
use rt::Rt;
use schema::Schema;
use stdx::{Epoch, HostId, ShardId, ShardMap, Token, Uuid, WallMicros};
use store::{Store, StoreOptions};

use crate::Random;

/// Port on which every node listens for others.
pub const PORT: u16 = 7000;
const CLUSTER: Uuid = Uuid::from_bytes([0xcc; 16]);
const CLUSTER_NAME: &str = "Test";

/// The id of a node.
pub fn host(n: u8) -> HostId {
    HostId(Uuid::from_bytes([n; 16]))
}

/// The name of a node in its world.
pub fn name(n: u8) -> String {
    format!("n{n}")
}

/// A normal member of one shard without tokens.
pub fn member(n: u8, address: SocketAddr) -> Member {
    Member {
        host_id: host(n),
        storage: address,
        rpc: address,
        datacenter: "dc".to_owned(),
        rack: "r".to_owned(),
        tokens: Vec::new(),
        moving_to: Vec::new(),
        state: MemberState::Normal,
        replaces: None,
        shards: 1,
        features: 0,
        release: String::new(),
    }
}

/// Returns members n1, n2, … with their numbers of shards and so many random tokens each.
pub fn ring(seed: u64, addresses: &[SocketAddr], shards: &[u16], tokens: usize) -> Vec<Member> {
    let mut random = Random(seed);
    let places = addresses.iter().zip(shards).zip(1..);
    let members = places.map(|((address, shards), n)| {
        let mut tokens: Vec<Token> = (0..tokens).map(|_| Token(random.next() as i64)).collect();
        tokens.sort_unstable();
        Member { tokens, shards: *shards, ..member(n, *address) }
    });
    members.collect()
}

/// The cluster of those members as the first one, a voter, sees it.
pub fn snapshot(epoch: u64, members: Vec<Member>, schema: Arc<Schema>) -> ClusterSnapshot {
    let first = members.first().expect("a cluster has members").clone();
    ClusterSnapshot {
        epoch: Epoch(epoch),
        cluster_id: CLUSTER,
        local: LocalNode {
            host_id: first.host_id,
            cluster_name: CLUSTER_NAME.to_owned(),
            datacenter: first.datacenter,
            rack: first.rack,
            tokens: first.tokens,
            created_at: WallMicros(1),
        },
        voters: vec![first.host_id],
        members: members.into_iter().map(|m| (m.host_id, Arc::new(m))).collect(),
        features: 0,
        schema,
        auth: Arc::default(),
        handovers: BTreeMap::new(),
        truncations: BTreeMap::new(),
        places: PlaceHistory::since(Epoch(epoch)),
        departed: Default::default(),
    }
}

/// A node of the cluster as it presents itself.
pub fn identity(n: u8, incarnation: u64, shard_count: u16) -> Identity {
    Identity {
        cluster_id: Some(CLUSTER),
        cluster_name: CLUSTER_NAME.to_owned(),
        host_id: host(n),
        incarnation,
        shard_count,
        joining: false,
        versions: VersionRange::THIS,
        features: Features::LZ4,
    }
}

/// Messaging of one shard that knows the members of a snapshot.
pub fn messaging(
    rt: &Rt,
    identity: Identity,
    settings: Settings,
    mesh: Arc<MessagingMesh>,
    known: &ClusterSnapshot,
) -> Messaging {
    let messaging = Messaging::new(rt, identity, Arc::new(settings), mesh);
    for member in known.members.values() {
        let peer = Peer { address: member.storage, shard_count: member.shards };
        messaging.set_peer(member.host_id, peer);
    }
    messaging.set_epoch(known.epoch);
    messaging
}

/// Serves on this shard; shard 0 listens.
pub async fn serve(rt: &Rt, messaging: &Messaging, handler: Rc<dyn Handler>) {
    messaging.serve(handler);
    if rt.shard() == ShardId(0) {
        let any = SocketAddr::from(([0, 0, 0, 0], PORT));
        messaging.listen(any).await.expect("the port is free");
    }
}

/// The store of one shard: small segments, no reserve on the disk.
pub async fn store(
    rt: &Rt,
    n: u8,
    run: u64,
    schema: Arc<Schema>,
    change: impl FnOnce(&mut StoreOptions),
) -> Store {
    let map = ShardMap::ByTokenHash { shards: rt.shard_count() };
    let mut options =
        StoreOptions::new("data".into(), "commitlog".into(), host(n), run, map, |t| {
            format!("CREATE TABLE {}", t.name)
        });
    options.segment_bytes = 1 << 20;
    options.disk_reserve_bytes = 0;
    change(&mut options);
    let (store, _) = Store::open(rt.clone(), options, schema).await.expect("the store opens");
    store
}
