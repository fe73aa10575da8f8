//! Comparison with the answers of a Cassandra 5.0.9 for `testdata/schema.cql`.

use super::*;
use crate::ddl::{DdlContext, DdlPlan};
use crate::system::system_schema;
use data::{ColumnRef, MutationRef};
use schema::Table;
use stdx::{DeletionSeconds, HostId, TimestampMicros, WallMicros};

const SCHEMA: &str = include_str!("../../../testdata/schema.cql");
const DESCRIBED: &str = include_str!("../../../testdata/describe.txt");
const SYSTEM_SCHEMA: &str = include_str!("../../../testdata/system_schema.txt");
const VIRTUAL_SCHEMA: &str = include_str!("../../../testdata/virtual_schema.txt");
const LOCAL: &str = include_str!("../../../testdata/local.txt");

const AT: TimestampMicros = TimestampMicros(1_700_000_000_000_000);

fn schema() -> Schema {
    let mut schema = system_schema();
    for statement in cql_syntax::split_statements(SCHEMA) {
        let statement = cql_syntax::parse(statement).unwrap().kind;
        let plan = DdlPlan::new(&statement, None).unwrap().unwrap();
        let mut cx = DdlContext {
            schema: &schema,
            datacenters: &[("datacenter1", 1)],
            moving: &[],
            new_table_id: &mut Uuid::nil,
            now: WallMicros(0),
            watch: None,
            default_factor: 1,
            default_compaction: None,
            drop_compact_storage: true,
            functions: None,
            indexes: &crate::ddl::IndexSettings::default(),
        };
        let outcome = plan.outcome(&mut cx).unwrap();
        for change in &outcome.changes {
            schema = schema.apply(change).unwrap();
        }
    }
    schema
}

fn context<'a>(schema: &'a Schema, keyspace: Option<&'a str>) -> DescribeContext<'a> {
    DescribeContext {
        schema,
        keyspace,
        cluster_name: "peer",
        snitch: "org.apache.cassandra.locator.SimpleSnitch",
        range_owners: &|_| {
            vec![
                (Token(7), vec!["/127.0.0.1:7000".to_owned()]),
                (Token(-1), vec!["/127.0.0.1:7000".to_owned(), "/127.0.0.2:7000".to_owned()]),
            ]
        },
        page_size: None,
        paging_state: None,
    }
}

fn run(cx: &DescribeContext<'_>, query: &str) -> Result<DescribeResult, PlanError> {
    match cql_syntax::parse(query).unwrap().kind {
        cql_syntax::ast::StatementKind::Describe(d) => DescribePlan::new(&d).run(cx),
        other => panic!("{query} is {}", other.name()),
    }
}

fn rendered(schema: &Schema, keyspace: Option<&str>, query: &str) -> String {
    match run(&context(schema, keyspace), query) {
        Err(error) => format!("error 0x2200 {error}\n"),
        Ok(result) => {
            let names: Vec<&str> = result.columns.iter().map(|(name, _)| *name).collect();
            let mut out = format!("columns {}\n", names.join(","));
            for row in result.rows {
                let row: Vec<String> =
                    row.into_iter().map(|v| String::from_utf8(v).unwrap()).collect();
                out.push_str(&format!("row {}\n", row.join("|")));
            }
            out
        }
    }
}

#[test]
fn describe_answers_as_cassandra_did() {
    let schema = schema();
    let (mut count, mut wrong) = (0, Vec::new());
    for section in DESCRIBED.split("=== ").skip(1) {
        let (query, expect) = section.split_once('\n').unwrap();
        let (keyspace, statement) = match query.strip_prefix('[') {
            Some(rest) => {
                let (keyspace, statement) = rest.split_once("] ").unwrap();
                (Some(keyspace), statement)
            }
            None => (None, query),
        };
        let ours = rendered(&schema, keyspace, statement);
        if ours != expect {
            let differ = ours.lines().zip(expect.lines()).find(|(a, b)| a != b);
            wrong.push(format!("{query}: {differ:?}"));
        }
        count += 1;
    }
    assert!(wrong.is_empty(), "(ours, theirs):\n{}", wrong.join("\n"));
    assert!(count > 40);
}

#[test]
fn describe_cluster_shows_ranges_only_in_a_users_keyspace() {
    let schema = schema();
    let names = |keyspace| -> Vec<&str> {
        let result = run(&context(&schema, keyspace), "DESCRIBE CLUSTER").unwrap();
        assert_eq!(result.rows.len(), 1);
        result.columns.into_iter().map(|(name, _)| name).collect()
    };
    assert_eq!(names(None), ["cluster", "partitioner", "snitch"]);
    assert_eq!(names(Some("system")), ["cluster", "partitioner", "snitch"]);
    assert_eq!(names(Some("desc_h")), ["cluster", "partitioner", "snitch", "range_ownership"]);
    let result = run(&context(&schema, Some("desc_h")), "DESC CLUSTER").unwrap();
    let [cluster, partitioner, snitch, owners] = result.rows[0].as_slice() else { panic!() };
    assert_eq!(cluster, b"peer");
    assert_eq!(partitioner, b"Murmur3Partitioner");
    assert_eq!(snitch, b"SimpleSnitch");
    assert_eq!(
        result.columns[3].1.format_cql_literal(owners),
        "{'-1': ['/127.0.0.1:7000', '/127.0.0.2:7000'], '7': ['/127.0.0.1:7000']}"
    );
}

#[test]
fn pages_of_describe_join_to_the_whole_and_a_full_page_has_a_next_one() {
    let schema = schema();
    let query = "DESCRIBE FULL SCHEMA";
    let whole = run(&context(&schema, None), query).unwrap();
    assert_eq!(whole.paging_state, None);
    let mut rows = Vec::new();
    let mut state: Option<Vec<u8>> = None;
    loop {
        let mut cx = context(&schema, None);
        cx.page_size = Some(7);
        cx.paging_state = state.as_deref();
        let page = run(&cx, query).unwrap();
        assert_eq!(page.paging_state.is_some(), page.rows.len() == 7);
        rows.extend(page.rows);
        match page.paging_state {
            Some(next) => state = Some(next),
            None => break,
        }
    }
    assert_eq!(rows, whole.rows);
}

#[test]
fn a_paging_state_of_another_schema_or_of_no_describe_is_refused() {
    let schema = schema();
    let check = |state: &[u8], expect: Result<u64, &str>| {
        let decoded = decode_paging(state, schema.version).map_err(|e| e.message);
        assert_eq!(decoded, expect.map_err(str::to_owned));
    };
    let good = encode_paging(12, schema.version);
    check(&good, Ok(12));
    check(&good[..good.len() - 1], Err("Invalid value for the paging state"));
    check(b"", Err("Invalid value for the paging state"));
    check(b"\x00\x02", Err("Incompatible paging state"));
    check(
        b"\x00\x01\x00\x025x",
        Err("The server version of the paging state 5x is different from the one of the server \
             5.0.9"),
    );
    check(
        &encode_paging(12, Uuid::nil()),
        Err("The schema has changed since the previous page of the DESCRIBE statement result. \
             Please retry the DESCRIBE statement."),
    );
}

#[test]
fn no_bytes_of_a_paging_state_panic() {
    let good = encode_paging(3, Uuid::nil());
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..10_000 {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        let mut bytes = good.clone();
        let at = usize::try_from(seed % good.len() as u64).unwrap();
        bytes[at] ^= seed.to_le_bytes()[5];
        bytes.truncate(good.len() - usize::from(seed.to_le_bytes()[6] % 8));
        super::fuzz_describe_paging(&bytes);
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn cell(table: &Table, id: stdx::ColumnId, value: ColumnRef<'_>) -> String {
    let column = table.column_by_id(id).unwrap();
    let bytes = match value {
        ColumnRef::Simple(cell) => cell.value.to_vec(),
        ColumnRef::Complex(complex) => {
            assert_eq!(complex.deletion.timestamp, TimestampMicros(AT.0 - 1));
            wire::encode_collection(complex.cells().map(|(path, _)| path)).unwrap()
        }
    };
    format!("{}={}", column.name, hex(&bytes))
}

/// A packed row as the recordings have it: `table name=hex …`, names sorted.
fn row_text(table: &Table, key: &[u8], clustering: &[u8], row: data::RowRef<'_>) -> String {
    let mut parts = vec![format!("{}={}", table.partition_key()[0].name, hex(key))];
    for (c, v) in table.clustering().iter().zip(data::clustering::components(clustering)) {
        parts.push(format!("{}={}", c.name, hex(v.unwrap())));
    }
    parts.extend(row.columns().map(|(id, value)| cell(table, id, value)));
    // Cassandra writes `cdc` only where it is enabled for the node; the recording one had it off.
    parts.retain(|part| part != "cdc=01");
    parts.sort();
    format!("{} {}", table.name, parts.join(" "))
}

fn recorded(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text
        .lines()
        .map(|line| {
            let (table, rest) = line.split_once(' ').unwrap();
            let mut parts: Vec<&str> = rest.split(' ').collect();
            parts.sort_unstable();
            format!("{table} {}", parts.join(" "))
        })
        .collect();
    lines.sort();
    lines
}

#[test]
fn system_schema_rows_are_those_cassandra_writes() {
    let schema = schema();
    let mut lines = Vec::new();
    for keyspace in ["desc_h", "Desc_H2", "system_auth"] {
        let keyspace = schema.keyspace(keyspace).unwrap();
        let mutations =
            crate::system::rows::keyspace_mutations(&schema, keyspace, AT, DeletionSeconds(9));
        assert_eq!(mutations.len(), 11);
        for mutation in mutations {
            let table = schema.table_by_id(mutation.table).unwrap();
            let parsed = MutationRef::parse(&mutation.bytes, table.clustering_count).unwrap();
            assert_eq!(parsed.deletion.timestamp, TimestampMicros(AT.0 - 1));
            assert_eq!(parsed.deletion.local, DeletionSeconds(9));
            assert_eq!(mutation.token, codec::token_of(parsed.key));
            let comparator = data::ClusteringComparator::for_table(table);
            let clusterings: Vec<&[u8]> = parsed.rows().map(|(c, _)| c).collect();
            assert!(clusterings.is_sorted_by(|a, b| comparator.compare(a, b).is_lt()));
            for (clustering, row) in parsed.rows() {
                assert_eq!(row.liveness().timestamp, AT);
                lines.push(row_text(table, parsed.key, clustering, row));
            }
        }
    }
    lines.sort();
    let expect = recorded(SYSTEM_SCHEMA);
    for (ours, theirs) in lines.iter().zip(&expect) {
        assert_eq!(ours, theirs);
    }
    assert_eq!(lines.len(), expect.len());
}

#[test]
fn functions_and_aggregates_are_rows_of_system_schema_in_order() {
    let mut schema = schema();
    let function = |args: &[CqlType]| schema::UserFunction {
        keyspace: "desc_h".into(),
        name: "f".into(),
        arg_names: args.iter().map(|_| "x".into()).collect(),
        args: args.to_vec(),
        returns: CqlType::Text,
        called_on_null_input: true,
        language: "wasm".into(),
        body: "(module)".into(),
    };
    let list = CqlType::list(CqlType::Int, false);
    for args in [&[CqlType::Text][..], &[CqlType::Int, CqlType::Int], &[list], &[]] {
        schema = schema.apply(&schema::SchemaChange::PutFunction(function(args))).unwrap();
    }
    let aggregate = schema::UserAggregate {
        keyspace: "desc_h".into(),
        name: "a".into(),
        args: vec![CqlType::Int],
        returns: CqlType::Text,
        state_function: "f".into(),
        state_type: CqlType::Int,
        final_function: Some("f".into()),
        initial: Some(vec![0, 0, 0, 7]),
    };
    schema = schema.apply(&schema::SchemaChange::PutAggregate(aggregate)).unwrap();
    let keyspace = schema.keyspace("desc_h").unwrap();
    let mutations =
        crate::system::rows::keyspace_mutations(&schema, keyspace, AT, DeletionSeconds(9));
    let rows_of = |name: &str| {
        let table = schema.table("system_schema", name).unwrap();
        let mutation = mutations.iter().find(|m| m.table == table.id).unwrap();
        let parsed = MutationRef::parse(&mutation.bytes, table.clustering_count).unwrap();
        let comparator = data::ClusteringComparator::for_table(table);
        let clusterings: Vec<&[u8]> = parsed.rows().map(|(c, _)| c).collect();
        assert!(clusterings.is_sorted_by(|a, b| comparator.compare(a, b).is_lt()));
        let rows = parsed.rows().map(|(c, row)| row_text(table, parsed.key, c, row));
        rows.collect::<Vec<String>>()
    };
    let functions = rows_of("functions");
    assert_eq!(functions.len(), 4);
    for text in ["(module)", "wasm", "text"] {
        assert!(functions.iter().all(|row| row.contains(&hex(text.as_bytes()))), "{functions:?}");
    }
    assert!(functions.iter().any(|row| row.contains(&hex(b"list<int>"))), "{functions:?}");
    let aggregates = rows_of("aggregates");
    assert_eq!(aggregates.len(), 1);
    // INITCOND as CQL.
    assert!(aggregates.iter().all(|row| row.contains(&hex(b"7"))), "{aggregates:?}");
}

#[test]
fn a_dropped_keyspace_is_deleted_from_every_table_of_system_schema() {
    let schema = schema();
    let all =
        crate::system::rows::drop_keyspace_mutations(&schema, "desc_h", AT, DeletionSeconds(9));
    assert_eq!(all.len(), schema.keyspace("system_schema").unwrap().tables.len());
    for mutation in all {
        let parsed = MutationRef::parse(&mutation.bytes, 3).unwrap();
        assert_eq!(parsed.key, b"desc_h");
        assert_eq!(parsed.deletion.timestamp, AT);
        assert_eq!(parsed.rows().count(), 0);
    }
}

#[test]
fn system_local_has_every_column_that_cassandra_fills() {
    let schema = schema();
    let recorded_row = recorded(LOCAL).remove(0);
    let value = |name: &str| -> Vec<u8> {
        let prefix = format!("{name}=");
        let part = recorded_row.split(' ').find_map(|p| p.strip_prefix(&prefix)).unwrap();
        (0..part.len() / 2)
            .map(|i| u8::from_str_radix(&part[i * 2..i * 2 + 2], 16).unwrap())
            .collect()
    };
    let uuid = |name: &str| Uuid::from_slice(&value(name)).unwrap();
    let text = |name: &str| String::from_utf8(value(name)).unwrap();
    let int = |name: &str| i32::from_be_bytes(value(name).try_into().unwrap());
    let address = |name: &str| std::net::IpAddr::from(<[u8; 4]>::try_from(value(name)).unwrap());
    let tokens_bytes = value("tokens");
    let tokens: Vec<Token> = wire::Elements::new(&tokens_bytes, wire::CollectionKind::Set)
        .unwrap()
        .map(|t| Token(std::str::from_utf8(t.unwrap().unwrap()).unwrap().parse().unwrap()))
        .collect();
    let row = crate::system::rows::LocalRow {
        host_id: HostId(uuid("host_id")),
        cluster_name: &text("cluster_name"),
        datacenter: &text("data_center"),
        rack: &text("rack"),
        tokens: &tokens,
        schema_version: uuid("schema_version"),
        listen_address: address("listen_address"),
        broadcast_address: address("broadcast_address"),
        rpc_address: address("rpc_address"),
        storage_port: u16::try_from(int("listen_port")).unwrap(),
        native_transport_port: u16::try_from(int("rpc_port")).unwrap(),
        gossip_generation: int("gossip_generation"),
    };
    let mutation = crate::system::rows::local_mutation(&schema, &row, AT);
    let table = schema.table_by_id(mutation.table).unwrap();
    let parsed = MutationRef::parse(&mutation.bytes, 0).unwrap();
    let rows: Vec<_> = parsed.rows().collect();
    let ours = row_text(table, parsed.key, rows[0].0, rows[0].1);
    let expect: Vec<&str> =
        recorded_row.split(' ').filter(|p| !p.starts_with("truncated_at=")).collect();
    assert_eq!(ours, expect.join(" "));
    assert_eq!(rows.len(), 1);
}

#[test]
fn virtual_schema_rows_are_those_cassandra_computes() {
    let schema = schema();
    let mut lines = Vec::new();
    for table in schema.keyspace("system_virtual_schema").unwrap().tables.values() {
        let rows = crate::system::virtual_schema::rows(&schema, table).unwrap();
        assert!(rows.is_sorted_by_key(|r| codec::token_of(&r.key)));
        for row in rows {
            let packed = data::RowRef::parse(&row.row).unwrap();
            lines.push(row_text(table, &row.key, &row.clustering, packed));
        }
    }
    lines.sort();
    let expect = recorded(VIRTUAL_SCHEMA);
    for (ours, theirs) in lines.iter().zip(&expect) {
        assert_eq!(ours, theirs);
    }
    assert_eq!(lines.len(), expect.len());
}

#[test]
fn a_virtual_row_needs_its_keys_and_the_types_of_its_columns() {
    use crate::virtual_row::{VirtualRowBuilder, VirtualRowError};
    let schema = schema();
    let table = schema.table("system_views", "sstable_tasks").unwrap();
    let mut row = VirtualRowBuilder::new(table);
    row.text("keyspace_name", "k").text("table_name", "t").int("sstables", 3);
    assert!(matches!(row.finish(), Err(VirtualRowError::MissingKey { column, .. })
        if column == "task_id"));
    let made = row.uuid("task_id", Uuid::nil()).double("completion_ratio", 0.5).finish().unwrap();
    assert_eq!(made.key, b"k");
    assert_eq!(data::clustering::components(&made.clustering).count(), 2);
    assert_eq!(data::RowRef::parse(&made.row).unwrap().columns().count(), 2);
    assert!(matches!(row.clone().int("kind", 1).finish(),
        Err(VirtualRowError::WrongType { column, .. }) if column == "kind"));
    assert!(matches!(row.int("nope", 1).finish(),
        Err(VirtualRowError::UnknownColumn { column, .. }) if column == "nope"));
}

#[test]
fn a_key_of_several_columns_is_cassandras_composite() {
    use crate::virtual_row::partition_key;
    assert_eq!(partition_key(&[b"ab"]).unwrap(), b"ab");
    assert_eq!(partition_key(&[b"ab", b""]).unwrap(), b"\x00\x02ab\x00\x00\x00\x00");
    let long = vec![0; 65_536];
    assert!(partition_key(&[&long[1..], b"x"]).is_ok());
    assert!(partition_key(&[&long, b"x"]).is_err());
}
