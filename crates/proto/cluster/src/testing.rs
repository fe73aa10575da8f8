//! Members and rings for tests, and a small seeded generator.

use std::sync::Arc;

use schema::Schema;
use stdx::{HostId, Token, Uuid, WallMicros};

use crate::member::{Member, MemberState};
use crate::{ClusterSnapshot, LocalNode, Transformation};

/// `SplitMix64`: enough for tests and the same in every run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

pub(crate) fn host(id: u128) -> HostId {
    HostId(Uuid::from_u128(id))
}

/// A normal member at 127.0.0.`id`, ports 7000 and 9042.
pub(crate) fn member(id: u128, datacenter: &str, rack: &str, tokens: &[i64]) -> Member {
    Member {
        host_id: host(id),
        storage: format!("127.0.0.{}:7000", id % 256).parse().unwrap(),
        rpc: format!("127.0.0.{}:9042", id % 256).parse().unwrap(),
        datacenter: datacenter.to_owned(),
        rack: rack.to_owned(),
        tokens: tokens.iter().map(|t| Token(*t)).collect(),
        moving_to: Vec::new(),
        state: MemberState::Normal,
        replaces: None,
        shards: 1,
        features: 0,
        release: String::new(),
    }
}

pub(crate) use crate::Members;

pub(crate) fn members(all: impl IntoIterator<Item = Member>) -> Members {
    all.into_iter().map(|m| (m.host_id, Arc::new(m))).collect()
}

/// A ring of random tokens: datacenters and racks drawn, all normal.
pub(crate) fn random_members(random: &mut Random, nodes: usize, vnodes: usize) -> Members {
    let dcs = 1 + random.below(3);
    let racks = 1 + random.below(4);
    members((0..nodes).map(|i| {
        let dc = format!("dc{}", random.below(dcs));
        let rack = format!("r{}", random.below(racks));
        let mut tokens: Vec<i64> = (0..1 + random.below(vnodes))
            .map(|_| (random.next() as i64 & !0xff) | i as i64)
            .collect();
        tokens.sort_unstable();
        tokens.dedup();
        member(i as u128 + 1, &dc, &rack, &tokens)
    }))
}

/// A table without columns, `k.t`.
pub(crate) fn table() -> schema::Table {
    schema::Table {
        id: stdx::TableId(Uuid::from_u128(9)),
        keyspace: "k".into(),
        name: "t".into(),
        kind: schema::TableKind::Regular,
        columns: Vec::new(),
        partition_key_count: 0,
        clustering_count: 0,
        static_count: 0,
        options: schema::TableOptions::default(),
        dropped: Default::default(),
        masks: Default::default(),
        indexes: Default::default(),
        version: 1,
        next_column_id: 0,
    }
}

/// A cluster of one after its first entry.
pub(crate) fn founded() -> ClusterSnapshot {
    let founder = LocalNode {
        host_id: host(1),
        cluster_name: "test".to_owned(),
        datacenter: "d".to_owned(),
        rack: "r".to_owned(),
        tokens: vec![Token(0)],
        created_at: WallMicros(1),
    };
    crate::metalog::bootstrap(&Transformation::Bootstrap(founder), &Schema::default()).unwrap()
}
