//! Members on loopback addresses, as the fronts' tests show them to clients.

use std::sync::Arc;

use cluster::{ClusterSnapshot, LocalNode, Member, MemberState, Transformation, metalog};
use schema::Schema;
use stdx::{HostId, Token, Uuid, WallMicros};

/// A normal member at 127.0.0.`n`.
pub fn member(n: u8) -> Member {
    Member {
        host_id: HostId(Uuid::from_u128(n.into())),
        storage: format!("127.0.0.{n}:7000").parse().expect("an address"),
        rpc: format!("127.0.0.{n}:9042").parse().expect("an address"),
        datacenter: "datacenter1".to_owned(),
        rack: "rack1".to_owned(),
        tokens: vec![Token(i64::from(n) * 1_000)],
        moving_to: Vec::new(),
        state: MemberState::Normal,
        replaces: None,
        shards: 1,
        features: 0,
        release: String::new(),
    }
}

/// A cluster of members 1 to `n`, as the first of them sees it. `system` has the built-in keyspaces.
pub fn several_members(n: u8, system: &Schema) -> ClusterSnapshot {
    let local = LocalNode {
        host_id: member(1).host_id,
        cluster_name: "Test Cluster".to_owned(),
        datacenter: "datacenter1".to_owned(),
        rack: "rack1".to_owned(),
        tokens: vec![Token(0)],
        created_at: WallMicros(1_700_000_000_000_000),
    };
    let first = Transformation::Bootstrap(local);
    let mut snapshot = metalog::bootstrap(&first, system).expect("a first entry");
    snapshot.members = (1..=n).map(|n| (member(n).host_id, Arc::new(member(n)))).collect();
    snapshot
}
