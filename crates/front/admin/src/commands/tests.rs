mod upkeep;

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::LocalNode;
use schema::{
    Column, ColumnKind, IndexKind, IndexMetadata, IndexRules, IndexTarget, Keyspace,
    KeyspaceParams, Schema, TableKind, TableOptions, TargetPart,
};
use stdx::{ColumnId, Epoch, Token, WallMicros};
use types::CqlType;

use super::*;
use crate::model::GossipPeerReport;

fn host(n: u128) -> HostId {
    HostId(Uuid::from_u128(n))
}

fn member(n: u128, token: i64) -> Member {
    Member {
        host_id: host(n),
        storage: format!("127.0.0.{n}:7000").parse().unwrap(),
        rpc: format!("127.0.0.{n}:9042").parse().unwrap(),
        datacenter: "dc1".to_owned(),
        rack: "r1".to_owned(),
        tokens: vec![Token(token)],
        moving_to: Vec::new(),
        state: MemberState::Normal,
        replaces: None,
        shards: 1,
        features: 0,
        release: String::new(),
    }
}

fn table(keyspace: &str, name: &str, key: &[CqlType]) -> Arc<Table> {
    let columns = key.iter().enumerate().map(|(i, ty)| Column {
        id: ColumnId(i as u16),
        name: format!("k{i}").into(),
        ty: ty.clone(),
        kind: ColumnKind::PartitionKey(i as u16),
    });
    Arc::new(Table {
        id: TableId(Uuid::from_u128(name.len() as u128)),
        keyspace: keyspace.into(),
        name: name.into(),
        kind: TableKind::Regular,
        columns: columns.collect(),
        partition_key_count: key.len(),
        clustering_count: 0,
        static_count: 0,
        options: TableOptions::default(),
        dropped: BTreeMap::new(),
        masks: BTreeMap::new(),
        indexes: key.get(1).map(|_| index("tt_k1", "k1")).into_iter().collect(),
        version: 1,
        next_column_id: key.len() as u16,
    })
}

fn index(name: &str, column: &str) -> Arc<IndexMetadata> {
    Arc::new(IndexMetadata {
        id: Uuid::from_u128(1),
        name: name.into(),
        kind: IndexKind::Composites,
        options: BTreeMap::new(),
        target: IndexTarget { column: column.into(), part: TargetPart::Simple },
        rules: IndexRules::Legacy,
    })
}

fn keyspace(name: &str, class: &str, factor: u32, tables: Vec<Arc<Table>>) -> Arc<Keyspace> {
    let mut replication =
        BTreeMap::from([("class".to_owned(), format!("org.apache.cassandra.locator.{class}"))]);
    if class == "SimpleStrategy" {
        replication.insert("replication_factor".to_owned(), factor.to_string());
    }
    Arc::new(Keyspace {
        name: name.into(),
        params: KeyspaceParams { durable_writes: true, replication },
        tables: tables.into_iter().map(|t| (t.name.clone(), t)).collect(),
        types: BTreeMap::new(),
        functions: Vec::new(),
        aggregates: Vec::new(),
        is_virtual: false,
    })
}

/// Nodes 1 to `nodes`, seen by 1; keyspace `ks` with tables `t` (int) and `tt` (int, text; index `tt_k1`), RF 2.
fn snapshot(nodes: u128) -> ClusterSnapshot {
    let step = i64::MAX / 4;
    let members = (1..=nodes).map(|n| (host(n), Arc::new(member(n, step * n as i64))));
    let tables =
        vec![table("ks", "t", &[CqlType::Int]), table("ks", "tt", &[CqlType::Int, CqlType::Text])];
    let mut schema = Schema::default();
    for keyspace in [
        keyspace("ks", "SimpleStrategy", 2, tables),
        keyspace("system", "LocalStrategy", 0, vec![table("system", "local", &[CqlType::Text])]),
    ] {
        schema.keyspaces.insert(keyspace.name.clone(), keyspace);
    }
    let schema = Schema::from_keyspaces(schema.keyspaces);
    ClusterSnapshot {
        epoch: Epoch(7),
        cluster_id: Uuid::from_u128(9),
        local: LocalNode {
            host_id: host(1),
            cluster_name: "c".to_owned(),
            datacenter: "dc1".to_owned(),
            rack: "r1".to_owned(),
            tokens: vec![Token(step)],
            created_at: WallMicros(0),
        },
        members: members.collect(),
        voters: vec![host(1)],
        features: 0,
        schema: Arc::new(schema),
        auth: Arc::default(),
        handovers: BTreeMap::new(),
        truncations: BTreeMap::new(),
        places: cluster::PlaceHistory::since(Epoch(7)),
        departed: Default::default(),
    }
}

/// Gossip that knows these nodes to be alive and 3 to be down.
fn gossip(alive: &[u128]) -> GossipReport {
    let peer = |n: u128, is_alive| GossipPeerReport {
        host_id: host(n).to_string(),
        is_alive,
        ..GossipPeerReport::default()
    };
    let mut peers: Vec<_> = alive.iter().map(|n| peer(*n, true)).collect();
    if !alive.contains(&3) {
        peers.push(peer(3, false));
    }
    GossipReport { active: true, peers }
}

fn check(nodes: u128, command: ClusterCommand, expect: Result<ClusterAction, &str>) {
    let result = resolve(command.clone(), &snapshot(nodes), Some(&gossip(&[1, 2])));
    let result = result.map_err(|e| e.to_string());
    assert_eq!(result, expect.map_err(str::to_owned), "{command:?}");
}

#[test]
fn a_node_leaves_only_when_enough_stay() {
    let ask = |force| ClusterCommand::Decommission { force };
    check(3, ask(false), Ok(ClusterAction::Decommission { force: false }));
    check(2, ask(true), Ok(ClusterAction::Decommission { force: true }));
    check(
        2,
        ask(false),
        Err("Unsupported operation: Not enough live nodes to maintain replication factor in \
             keyspace ks (RF = 2, N = 2). Perform a forceful decommission to ignore."),
    );
    check(
        1,
        ask(true),
        Err("Unsupported operation: no other normal nodes in the ring; decommission would be \
             pointless"),
    );
}

/// Cassandra names one keyspace an attempt.
#[test]
fn a_refused_decommission_names_every_keyspace_with_too_few_nodes() {
    let mut snapshot = snapshot(2);
    let mut keyspaces = snapshot.schema.keyspaces.clone();
    for (name, factor) in [("system_distributed", 3), ("once", 1)] {
        keyspaces.insert(name.into(), keyspace(name, "SimpleStrategy", factor, Vec::new()));
    }
    snapshot.schema = Arc::new(Schema::from_keyspaces(keyspaces));
    let refused = check_decommission(&snapshot, false).unwrap_err().to_string();
    let named = "in keyspace ks (RF = 2, N = 2), system_distributed (RF = 3, N = 2). Perform";
    assert!(refused.contains(named), "{refused}");
}

#[test]
fn only_dead_nodes_are_removed() {
    let remove = |id: String| ClusterCommand::RemoveNode { host_id: id };
    let id = |n| host(n).to_string();
    check(3, remove(id(3)), Ok(ClusterAction::RemoveNode { host: host(3) }));
    check(3, remove(id(1)), Err("Cannot remove self"));
    check(3, remove(id(4)), Err("Host ID not found."));
    check(3, remove("x".to_owned()), Err("Invalid UUID string: x"));
    check(
        3,
        remove(id(2)),
        Err("Node /127.0.0.2:7000 is alive and owns this ID. Use decommission command to remove \
             it from the ring"),
    );
    // Without gossip no node is known to be dead.
    let result = resolve(remove(id(3)), &snapshot(3), None);
    assert!(matches!(result, Err(ActionError::Failed(_))), "{result:?}");
}

#[test]
fn addresses_name_members_with_and_without_port() {
    let truncate =
        |address: &str| ClusterCommand::TruncateHints { address: Some(address.to_owned()) };
    let hints_of_2 = Ok(ClusterAction::TruncateHints { host: Some(host(2)) });
    check(3, truncate("127.0.0.2"), hints_of_2.clone());
    check(3, truncate("127.0.0.2:7000"), hints_of_2);
    check(
        3,
        truncate("127.0.0.2:7001"),
        Err("no node of the cluster has the address 127.0.0.2:7001"),
    );
    check(3, truncate("two"), Err("two is not an IP address"));
    let kill = |address: &str| ClusterCommand::Assassinate { address: address.to_owned() };
    check(3, kill("127.0.0.3"), Ok(ClusterAction::Assassinate { host: host(3) }));
    for alive in ["127.0.0.1", "127.0.0.2"] {
        let text = format!(
            "Endpoint still alive: /{alive}:7000 heartbeat changed while trying to assassinate it"
        );
        check(3, kill(alive), Err(text.as_str()));
    }
}

#[test]
fn cleanup_is_for_tables_that_are_replicated() {
    let clean = |keyspace: &str, tables: &[&str]| ClusterCommand::Cleanup {
        keyspace: keyspace.to_owned(),
        tables: tables.iter().map(|t| (*t).to_owned()).collect(),
    };
    let id = |n| TableId(Uuid::from_u128(n));
    check(1, clean("ks", &[]), Ok(ClusterAction::Cleanup { tables: vec![id(1), id(2)] }));
    check(1, clean("ks", &["tt"]), Ok(ClusterAction::Cleanup { tables: vec![id(2)] }));
    check(1, clean("system", &[]), Ok(ClusterAction::Cleanup { tables: Vec::new() }));
    check(1, clean("ks", &["x"]), Err("Unknown keyspace/cf pair (ks.x)"));
    check(1, clean("no", &[]), Err("Keyspace [no] does not exist."));
}

#[test]
fn what_is_not_there_cannot_be_set() {
    let timeout = |kind: &str| ClusterCommand::SetTimeout { kind: kind.to_owned(), millis: 5 };
    let set = ClusterAction::SetTimeout { kind: "read".to_owned(), millis: 5 };
    check(1, timeout("read"), Ok(set));
    let refused = format!("Timeout type requires one of ({TIMEOUTS_TEXT})");
    check(1, timeout("reed"), Err(refused.as_str()));
    let hints = |datacenter: &str| ClusterCommand::SetHintsForDatacenter {
        datacenter: datacenter.to_owned(),
        enabled: false,
    };
    let cut = |text: &str| ClusterCommand::CutLinks { addresses: vec![text.to_owned()] };
    let addresses = [[127, 0, 0, 3].into()].into();
    check(1, cut("127.0.0.3"), Ok(ClusterAction::CutLinks { addresses }));
    check(1, cut("node3"), Err("node3 is not an IP address"));
    check(3, hints("dc2"), Err("There is no data center 'dc2', there are: dc1"));
}

#[test]
fn endpoints_are_the_replicas_of_the_keys_token() {
    let snapshot = snapshot(3);
    let ask = |table: &str, key: &str| {
        endpoints(&snapshot, "ks", table, key).map_err(|error| error.to_string())
    };
    // Cassandra's token() of the int 1.
    let found = ask("t", "1").unwrap();
    assert_eq!(found.token, -4_069_959_284_402_364_209);
    assert_eq!(found.host_ids, [host(1), host(2)].map(|host| host.to_string()));
    assert!(ask("tt", "1:a").is_ok());
    assert_eq!(ask("tt", "1:a:b").unwrap_err(), {
        "the partition key of ks.tt has 2 components separated by ':', not 3"
    });
    assert!(ask("tt", r"1:a\:b").is_ok());
    assert!(ask("t", "one").is_err());
    assert_eq!(ask("x", "1").unwrap_err(), "Unknown table 'x' in keyspace 'ks'");
    assert_eq!(components(r"a\:b:\c"), ["a:b", r"\c"]);
}

#[test]
fn what_a_node_does_for_itself_goes_to_one_shard() {
    assert!(ClusterCommand::Decommission { force: false }.is_for_one_shard());
    assert!(!ClusterCommand::PauseHints { paused: true }.is_for_one_shard());
}
