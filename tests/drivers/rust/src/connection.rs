//! Connecting, compression, the metadata of the cluster and of the schema, tracing.

use std::collections::BTreeMap;
use std::sync::Arc;

use scylla::cluster::metadata::{
    CollectionType, ColumnKind, ColumnType, NativeType, Strategy, Table,
};
use scylla::frame::Compression;
use scylla::statement::unprepared::Statement;

use crate::{Context, builder};

crate::tests![
    connects_and_reads_system_local,
    cluster_has_one_node_and_tokens,
    every_compression_carries_small_and_large_messages,
    a_keyspace_that_is_not_there_is_refused,
    schema_metadata_of_a_table_is_complete,
    schema_metadata_of_user_types,
    indexes_are_in_the_schema_tables,
    schema_metadata_follows_changes,
    schema_agreement_is_reached,
    tracing_gives_events,
];

async fn connects_and_reads_system_local(context: Arc<Context>) {
    let cql = "SELECT key, release_version, cql_version, partitioner FROM system.local";
    let rows: Vec<(String, String, String, String)> = context.rows(cql, ()).await;
    let expected = ["local", "5.0.9", "3.4.7", "org.apache.cassandra.dht.Murmur3Partitioner"]
        .map(String::from);
    let [key, release, language, partitioner] = expected;
    assert_eq!(rows, [(key, release, language, partitioner)]);
}

async fn cluster_has_one_node_and_tokens(context: Arc<Context>) {
    let state = context.session.get_cluster_state();
    let nodes = state.get_nodes_info();
    assert_eq!(nodes.len(), 1);
    assert!(nodes[0].datacenter.is_some() && nodes[0].rack.is_some());
    assert!(state.replica_locator().ring().len() >= 1);
    context.define("CREATE TABLE ring (k int PRIMARY KEY)").await;
    context.session.refresh_metadata().await.unwrap();
    let state = context.session.get_cluster_state();
    let replicas = state.get_endpoints(&context.keyspace, "ring", &(1,)).unwrap();
    assert_eq!(replicas.len(), 1);
}

async fn every_compression_carries_small_and_large_messages(context: Arc<Context>) {
    context.define("CREATE TABLE packed (k int PRIMARY KEY, v blob)").await;
    // Bytes that do not compress, from a multiplicative generator.
    let mut state = 7_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    })
    .take(400_000)
    .collect();
    for compression in [None, Some(Compression::Lz4), Some(Compression::Snappy)] {
        let session = builder()
            .compression(compression)
            .use_keyspace(&context.keyspace, false)
            .build()
            .await
            .unwrap();
        let insert = session.prepare("INSERT INTO packed (k, v) VALUES (?, ?)").await.unwrap();
        let select = session.prepare("SELECT v FROM packed WHERE k = ?").await.unwrap();
        let values = [Vec::new(), vec![b'x'; 100], vec![b'x'; 300_000], noise.clone()];
        for (key, value) in (0_i32..).zip(values) {
            session.execute_unpaged(&insert, (key, &value)).await.unwrap();
            let result = session.execute_unpaged(&select, (key,)).await.unwrap();
            let rows = result.into_rows_result().unwrap();
            let (read,) = rows.single_row::<(Vec<u8>,)>().unwrap();
            assert!(read == value, "{compression:?}: {} bytes differ", value.len());
        }
    }
}

async fn a_keyspace_that_is_not_there_is_refused(context: Arc<Context>) {
    assert!(context.session.use_keyspace("no_such_keyspace_at_all", false).await.is_err());
    let rows: Vec<(String,)> = context.rows("SELECT key FROM system.local", ()).await;
    assert_eq!(rows.len(), 1);
}

/// The driver's copy of a table's metadata, read anew.
async fn table(context: &Context, name: &str) -> Option<Table> {
    context.session.refresh_metadata().await.unwrap();
    let state = context.session.get_cluster_state();
    state.get_keyspace(&context.keyspace).unwrap().tables.get(name).cloned()
}

async fn schema_metadata_of_a_table_is_complete(context: Arc<Context>) {
    context
        .define(
            "CREATE TABLE meta (a int, b text, c timestamp, d uuid, s int static, v list<int>, \
             m map<text, frozen<set<int>>>, PRIMARY KEY ((a, b), c, d)) \
             WITH CLUSTERING ORDER BY (c DESC, d ASC)",
        )
        .await;
    let table = table(&context, "meta").await.unwrap();
    assert_eq!(table.partition_key, ["a", "b"]);
    assert_eq!(table.clustering_key, ["c", "d"]);
    assert_eq!(table.columns["s"].kind, ColumnKind::Static);
    assert_eq!(table.columns["a"].kind, ColumnKind::PartitionKey);
    assert_eq!(table.columns["a"].typ, ColumnType::Native(NativeType::Int));
    let list = CollectionType::List(Box::new(ColumnType::Native(NativeType::Int)));
    assert_eq!(table.columns["v"].typ, ColumnType::Collection { frozen: false, typ: list });
    let set = CollectionType::Set(Box::new(ColumnType::Native(NativeType::Int)));
    let map = CollectionType::Map(
        Box::new(ColumnType::Native(NativeType::Text)),
        Box::new(ColumnType::Collection { frozen: true, typ: set }),
    );
    assert_eq!(table.columns["m"].typ, ColumnType::Collection { frozen: false, typ: map });
    let state = context.session.get_cluster_state();
    let keyspace = state.get_keyspace(&context.keyspace).unwrap();
    assert!(keyspace.durable_writes);
    assert_eq!(keyspace.strategy, Strategy::SimpleStrategy { replication_factor: 1 });
}

async fn schema_metadata_of_user_types(context: Arc<Context>) {
    context.define("CREATE TYPE inner_t (x int, y text)").await;
    context.define("CREATE TYPE outer_t (i frozen<inner_t>, l list<frozen<inner_t>>)").await;
    context.session.refresh_metadata().await.unwrap();
    let state = context.session.get_cluster_state();
    let types = &state.get_keyspace(&context.keyspace).unwrap().user_defined_types;
    let names: Vec<&str> = types["outer_t"].field_types.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["i", "l"]);
    assert_eq!(types["inner_t"].field_types[0].1, ColumnType::Native(NativeType::Int));
}

/// The driver's own metadata has no indexes.
async fn indexes_are_in_the_schema_tables(context: Arc<Context>) {
    context.define("CREATE TABLE indexed (k int PRIMARY KEY, v int, m map<text, int>)").await;
    context.define("CREATE INDEX ON indexed (v)").await;
    context.define("CREATE INDEX indexed_m ON indexed (entries(m)) USING 'sai'").await;
    let all = "SELECT index_name, kind, options FROM system_schema.indexes \
               WHERE keyspace_name = ? AND table_name = 'indexed'";
    type Row = (String, String, BTreeMap<String, String>);
    let row = |name: &str, kind: &str, options: &[(&str, &str)]| -> Row {
        let options = options.iter().map(|(key, value)| (key.to_string(), value.to_string()));
        (name.to_owned(), kind.to_owned(), options.collect())
    };
    let attached = row("indexed_m", "CUSTOM", &[("class_name", "sai"), ("target", "entries(m)")]);
    let legacy = row("indexed_v_idx", "COMPOSITES", &[("target", "v")]);
    let rows: Vec<Row> = context.rows(all, (&context.keyspace,)).await;
    assert_eq!(rows, [attached, legacy.clone()]);
    assert!(table(&context, "indexed").await.is_some());
    context.define("DROP INDEX indexed_m").await;
    let rows: Vec<Row> = context.rows(all, (&context.keyspace,)).await;
    assert_eq!(rows, [legacy]);
}

async fn schema_metadata_follows_changes(context: Arc<Context>) {
    context.define("CREATE TABLE evolving (k int PRIMARY KEY, a int)").await;
    assert_eq!(table(&context, "evolving").await.unwrap().columns.len(), 2);
    context.define("ALTER TABLE evolving ADD b text").await;
    assert_eq!(table(&context, "evolving").await.unwrap().columns.len(), 3);
    context.define("DROP TABLE evolving").await;
    assert!(table(&context, "evolving").await.is_none());
}

async fn schema_agreement_is_reached(context: Arc<Context>) {
    let version = context.session.await_schema_agreement().await.unwrap();
    assert_eq!(context.session.check_schema_agreement().await.unwrap(), Some(version));
}

async fn tracing_gives_events(context: Arc<Context>) {
    let mut statement = Statement::new("SELECT key FROM system.local");
    statement.set_tracing(true);
    let result = context.session.query_unpaged(statement, ()).await.unwrap();
    let id = result.tracing_id().expect("a tracing id");
    let info = context.session.get_tracing_info(&id).await.unwrap();
    assert!(info.coordinator.is_some());
    assert!(!info.events.is_empty());
}
