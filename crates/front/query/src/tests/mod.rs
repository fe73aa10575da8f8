//! What tests of this crate share.

use cluster::{ClusterSnapshot, LocalNode, Member, MemberState, Transformation, metalog};
use rt::Rt;
use rt::sim::{World, WorldOptions};
use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use stdx::{HostId, Token, Uuid, WallMicros};

/// A normal member at 127.0.0.`n`.
pub(crate) fn member(n: u8) -> Member {
    Member {
        host_id: HostId(Uuid::from_u128(n.into())),
        storage: format!("127.0.0.{n}:7000").parse().unwrap(),
        rpc: format!("127.0.0.{n}:9042").parse().unwrap(),
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

/// A cluster of members 1 to `n`, as the first of them sees it.
pub(crate) fn several_members(n: u8) -> ClusterSnapshot {
    let local = LocalNode {
        host_id: member(1).host_id,
        cluster_name: "Test Cluster".to_owned(),
        datacenter: "datacenter1".to_owned(),
        rack: "rack1".to_owned(),
        tokens: vec![Token(0)],
        created_at: WallMicros(1_700_000_000_000_000),
    };
    let first = Transformation::Bootstrap(local);
    let mut snapshot = metalog::bootstrap(&first, &cql_plan::system::system_schema()).unwrap();
    snapshot.members = (1..=n).map(|n| (member(n).host_id, Arc::new(member(n)))).collect();
    snapshot
}

/// Runs `main` as the only shard of a node.
pub(crate) fn run<F: Future<Output = ()> + 'static>(main: impl FnOnce(Rt) -> F + 'static) {
    let world = World::new(11, WorldOptions::default());
    let done = Rc::new(Cell::new(false));
    let seen = done.clone();
    world.client("n1", move |rt| async move {
        main(rt).await;
        seen.set(true);
    });
    world.run_until(|| done.get(), Duration::from_secs(3600)).unwrap();
}
