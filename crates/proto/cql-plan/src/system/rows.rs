//! Schema definitions and the node itself as rows of `system_schema.*` and `system.local`.
//!
//! Owns: which rows and values Cassandra 5.0 writes for a keyspace with its tables and types, so
//! that drivers read them and Cassandra can open the directory. Never: reads them back (the
//! metadata log is the truth), IO, clocks.
//!
//! INV-system-rows-1: applying the mutations of a keyspace leaves exactly its rows in all tables of
//! `system_schema`, whatever older rows were there: each is a deletion one microsecond older than
//! the rows.
//!
//! Source: Cassandra 5.0 `SchemaKeyspace`, `SystemKeyspace.persistLocalMetadata`.

use std::collections::BTreeMap;
use std::net::IpAddr;

use data::{DeletionTime, MutationBuilder, RowRef};
use schema::{
    Column, ColumnKind, CompactForm, IndexMetadata, Keyspace, Schema, Table, TableOptions,
};
use stdx::{DeletionSeconds, HostId, TableId, TimestampMicros, Token, Uuid};
use types::{CqlType, wire};

use crate::virtual_row::{VirtualRow, VirtualRowBuilder, VirtualRowError};

/// `cql_version` of `system.local`: the CQL version of Cassandra 5.0.
pub const CQL_VERSION: &str = "3.4.7";
/// `release_version` of `system.local`: what drivers decide compatibility by.
pub const RELEASE_VERSION: &str = "5.0.9";
/// `native_protocol_version` of `system.local`.
pub const NATIVE_PROTOCOL_VERSION: &str = "5";
/// `partitioner` of `system.local`.
pub const PARTITIONER: &str = "org.apache.cassandra.dht.Murmur3Partitioner";

/// Tables of `system_schema`; all have the keyspace name as the partition key.
pub const SCHEMA_TABLES: [&str; 11] = [
    "columns",
    "column_masks",
    "triggers",
    "dropped_columns",
    "views",
    "types",
    "functions",
    "aggregates",
    "indexes",
    "tables",
    "keyspaces",
];

/// One mutation ready to be applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedMutation {
    /// The table it changes.
    pub table: TableId,
    /// Token of its partition.
    pub token: Token,
    /// The encoding of [`data::mutation`].
    pub bytes: Vec<u8>,
}

/// This node's row of `system.local`.
#[derive(Clone, Debug)]
pub struct LocalRow<'a> {
    /// `host_id`.
    pub host_id: HostId,
    /// `cluster_name`.
    pub cluster_name: &'a str,
    /// `data_center`.
    pub datacenter: &'a str,
    /// `rack`.
    pub rack: &'a str,
    /// `tokens`.
    pub tokens: &'a [Token],
    /// `schema_version`.
    pub schema_version: Uuid,
    /// `listen_address`.
    pub listen_address: IpAddr,
    /// `broadcast_address`.
    pub broadcast_address: IpAddr,
    /// `rpc_address`.
    pub rpc_address: IpAddr,
    /// `listen_port` and `broadcast_port`.
    pub storage_port: u16,
    /// `rpc_port`.
    pub native_transport_port: u16,
    /// `gossip_generation`: start of this run, in seconds.
    pub gossip_generation: i32,
}

/// The mutations that make `system_schema` show one keyspace: in every table of `system_schema` a
/// deletion of the keyspace's partition at `at - 1` (made at `now`), and the rows at `at`.
///
/// `schema` has the built-in keyspaces; `keyspace` is usually one of its own.
pub fn keyspace_mutations(
    schema: &Schema,
    keyspace: &Keyspace,
    at: TimestampMicros,
    now: DeletionSeconds,
) -> Vec<EncodedMutation> {
    let before = TimestampMicros(at.0.saturating_sub(1));
    let deletion = DeletionTime { timestamp: before, local: now };
    let key = keyspace.name.as_bytes();
    SCHEMA_TABLES
        .iter()
        .map(|name| {
            let table = schema_table(schema, "system_schema", name);
            match rows(table, keyspace, at) {
                Ok(rows) => encode(table, key, Some(deletion), &rows),
                Err(error) => stdx::invariant::broken(format_args!("{error}")),
            }
        })
        .collect()
}

/// The mutations that take a keyspace out of `system_schema`: deletions at `at`, made at `now`.
pub fn drop_keyspace_mutations(
    schema: &Schema,
    keyspace: &str,
    at: TimestampMicros,
    now: DeletionSeconds,
) -> Vec<EncodedMutation> {
    let deletion = DeletionTime { timestamp: at, local: now };
    SCHEMA_TABLES
        .iter()
        .map(|name| {
            let table = schema_table(schema, "system_schema", name);
            encode(table, keyspace.as_bytes(), Some(deletion), &[])
        })
        .collect()
}

/// The row `local` of `system.local`, every column but `truncated_at`.
pub fn local_mutation(schema: &Schema, row: &LocalRow<'_>, at: TimestampMicros) -> EncodedMutation {
    let table = schema_table(schema, "system", "local");
    match local_row(table, row, at) {
        Ok(row) => encode(table, b"local", None, &[row]),
        Err(error) => stdx::invariant::broken(format_args!("{error}")),
    }
}

fn schema_table<'s>(schema: &'s Schema, keyspace: &str, name: &str) -> &'s Table {
    match schema.table(keyspace, name) {
        Some(table) => table,
        // The definitions are part of the program (`crate::system`).
        None => stdx::invariant::broken(format_args!("no built-in table {keyspace}.{name}")),
    }
}

fn encode(
    table: &Table,
    key: &[u8],
    deletion: Option<DeletionTime>,
    rows: &[VirtualRow],
) -> EncodedMutation {
    let mut bytes = Vec::new();
    let mut builder = MutationBuilder::new(&mut bytes, table.id, table.version, key);
    if let Some(deletion) = deletion {
        builder.deletion(deletion);
    }
    builder.rows(rows.iter().map(|r| (r.clustering.as_slice(), RowRef::trusted(&r.row))));
    builder.finish();
    EncodedMutation { table: table.id, token: codec::token_of(key), bytes }
}

fn local_row(
    table: &Table,
    row: &LocalRow<'_>,
    at: TimestampMicros,
) -> Result<VirtualRow, VirtualRowError> {
    let tokens: Vec<String> = row.tokens.iter().map(Token::to_string).collect();
    let storage_port = i32::from(row.storage_port);
    VirtualRowBuilder::at(table, at)
        .text("key", "local")
        .text("bootstrapped", "COMPLETED")
        .inet("broadcast_address", row.broadcast_address)
        .int("broadcast_port", storage_port)
        .text("cluster_name", row.cluster_name)
        .text("cql_version", CQL_VERSION)
        .text("data_center", row.datacenter)
        .int("gossip_generation", row.gossip_generation)
        .uuid("host_id", row.host_id.0)
        .inet("listen_address", row.listen_address)
        .int("listen_port", storage_port)
        .text("native_protocol_version", NATIVE_PROTOCOL_VERSION)
        .text("partitioner", PARTITIONER)
        .text("rack", row.rack)
        .text("release_version", RELEASE_VERSION)
        .inet("rpc_address", row.rpc_address)
        .int("rpc_port", i32::from(row.native_transport_port))
        .uuid("schema_version", row.schema_version)
        .text_set("tokens", tokens.iter().map(String::as_str))
        .finish()
}

/// The rows of one keyspace in one table of `system_schema`, in clustering order.
fn rows(
    table: &Table,
    keyspace: &Keyspace,
    at: TimestampMicros,
) -> Result<Vec<VirtualRow>, VirtualRowError> {
    match &*table.name {
        "keyspaces" => Ok(vec![keyspace_row(table, keyspace, at)?]),
        "tables" => keyspace.tables.values().map(|t| table_row(table, t, at)).collect(),
        "columns" => {
            let each = keyspace.tables.values().flat_map(|t| by_name(t).map(move |c| (t, c)));
            each.map(|(t, c)| {
                let mut row = VirtualRowBuilder::at(table, at);
                column_values(&mut row, t, c);
                row.finish()
            })
            .collect()
        }
        "column_masks" => mask_rows(table, keyspace, at),
        "dropped_columns" => dropped_rows(table, keyspace, at),
        "types" => type_rows(table, keyspace, at),
        "functions" => function_rows(table, keyspace, at),
        "aggregates" => aggregate_rows(table, keyspace, at),
        "indexes" => index_rows(table, keyspace, at),
        // Views and triggers cannot be made here.
        _ => Ok(Vec::new()),
    }
}

/// The rows of `system_schema.indexes` as they are stored: Cassandra can open them.
fn index_rows(
    table: &Table,
    keyspace: &Keyspace,
    at: TimestampMicros,
) -> Result<Vec<VirtualRow>, VirtualRowError> {
    let each = keyspace.tables.values().flat_map(|t| t.indexes.iter().map(move |i| (t, i)));
    each.map(|(t, i)| index_row(table, (t, i), &i.cassandra_options(), at)).collect()
}

/// The rows of `system_schema.indexes` that statements read: with the targets of local indexes as ScyllaDB has them,
/// where drivers expect them.
///
/// # Errors
/// Those of [`VirtualRowBuilder::finish`]: `table` is another one.
pub fn shown_index_rows(
    schema: &Schema,
    table: &Table,
    at: TimestampMicros,
) -> Result<Vec<VirtualRow>, VirtualRowError> {
    let stored = schema.keyspaces.values().filter(|keyspace| !keyspace.is_virtual);
    let tables = stored.flat_map(|keyspace| keyspace.tables.values());
    let each = tables.flat_map(|t| t.indexes.iter().map(move |i| (t, i)));
    each.map(|(t, i)| index_row(table, (t, i), &i.options, at)).collect()
}

fn index_row(
    table: &Table,
    (of, index): (&Table, &IndexMetadata),
    options: &BTreeMap<String, String>,
    at: TimestampMicros,
) -> Result<VirtualRow, VirtualRowError> {
    VirtualRowBuilder::at(table, at)
        .text("keyspace_name", &of.keyspace)
        .text("table_name", &of.name)
        .text("index_name", &index.name)
        .text("kind", index.kind.name())
        .text_map("options", pairs(options))
        .finish()
}

/// A table's columns by name, which is the clustering order of `columns`.
pub(crate) fn by_name(table: &Table) -> impl Iterator<Item = &Column> + use<'_> {
    let sorted: BTreeMap<&str, &Column> = table.columns.iter().map(|c| (&*c.name, c)).collect();
    sorted.into_values()
}

fn keyspace_row(
    table: &Table,
    keyspace: &Keyspace,
    at: TimestampMicros,
) -> Result<VirtualRow, VirtualRowError> {
    VirtualRowBuilder::at(table, at)
        .text("keyspace_name", &keyspace.name)
        .boolean("durable_writes", keyspace.params.durable_writes)
        .text_map("replication", pairs(&keyspace.params.replication))
        .finish()
}

fn pairs(map: &BTreeMap<String, String>) -> impl Iterator<Item = (&str, &str)> {
    map.iter().map(|(k, v)| (k.as_str(), v.as_str()))
}

/// `flags` of a table: `compound` for every CQL table, `counter` beside it; those of compact tables
/// name their form.
fn flags(table: &Table) -> impl Iterator<Item = &'static str> + use<> {
    let form = table.compact_form();
    let compound = matches!(form, None | Some(CompactForm::DenseCompound));
    let dense = matches!(form, Some(CompactForm::Dense | CompactForm::DenseCompound));
    let all = [(compound, "compound"), (table.is_counter(), "counter"), (dense, "dense")];
    all.into_iter().filter_map(|(is_set, flag)| is_set.then_some(flag))
}

/// `bloom_filter_fp_chance` as shown: the given one or the default of the compaction strategy.
pub(crate) fn bloom_filter_fp_chance(options: &TableOptions) -> f64 {
    let class = options.compaction.get("class").map_or("", String::as_str);
    let default = if class.ends_with("LeveledCompactionStrategy") { 0.1 } else { 0.01 };
    options.bloom_filter_fp_chance.unwrap_or(default)
}

fn table_row(
    schema_table: &Table,
    table: &Table,
    at: TimestampMicros,
) -> Result<VirtualRow, VirtualRowError> {
    let o = &table.options;
    let extensions = wire::encode_map(o.extensions.iter())?;
    let mut row = VirtualRowBuilder::at(schema_table, at);
    row.text("keyspace_name", &table.keyspace)
        .text("table_name", &table.name)
        .text("additional_write_policy", &o.additional_write_policy)
        .double("bloom_filter_fp_chance", bloom_filter_fp_chance(o))
        .text_map("caching", pairs(&o.caching))
        .text("comment", &o.comment)
        .text_map("compaction", pairs(&o.compaction))
        .text_map("compression", pairs(&o.compression))
        .double("crc_check_chance", o.crc_check_chance)
        .double("dclocal_read_repair_chance", 0.0)
        .int("default_time_to_live", o.default_time_to_live)
        .bytes("extensions", extensions)
        .text_set("flags", flags(table))
        .int("gc_grace_seconds", o.gc_grace_seconds)
        .uuid("id", table.id.0)
        .int("max_index_interval", o.max_index_interval)
        .int("memtable_flush_period_in_ms", o.memtable_flush_period_in_ms)
        .int("min_index_interval", o.min_index_interval)
        .text("read_repair", &o.read_repair)
        .double("read_repair_chance", 0.0)
        .text("speculative_retry", &o.speculative_retry);
    // Cassandra leaves these null at their defaults, for nodes of older versions.
    if o.cdc {
        row.boolean("cdc", true);
    }
    if !o.allow_auto_snapshot {
        row.boolean("allow_auto_snapshot", false);
    }
    if !o.incremental_backups {
        row.boolean("incremental_backups", false);
    }
    if let Some(memtable) = o.memtable.as_deref().filter(|name| *name != "default") {
        row.text("memtable", memtable);
    }
    row.finish()
}

/// `kind`, `position` and `clustering_order` of a column.
fn kind_of(column: &Column) -> (&'static str, i32, &'static str) {
    match column.kind {
        ColumnKind::PartitionKey(position) => ("partition_key", i32::from(position), "none"),
        ColumnKind::Clustering { position, reversed } => {
            ("clustering", i32::from(position), if reversed { "desc" } else { "asc" })
        }
        ColumnKind::Static => ("static", -1, "none"),
        ColumnKind::Regular => ("regular", -1, "none"),
    }
}

/// All columns of a row of `system_schema.columns` or `system_virtual_schema.columns`.
pub(crate) fn column_values(row: &mut VirtualRowBuilder<'_>, table: &Table, column: &Column) {
    let (kind, position, order) = kind_of(column);
    row.text("keyspace_name", &table.keyspace)
        .text("table_name", &table.name)
        .text("column_name", &column.name)
        .text("clustering_order", order)
        .blob("column_name_bytes", column.name.as_bytes())
        .text("kind", kind)
        .int("position", position)
        .text("type", &column.ty.to_cql_name());
}

/// A null argument is an empty text that `function_argument_nulls` marks.
fn mask_rows(
    schema_table: &Table,
    keyspace: &Keyspace,
    at: TimestampMicros,
) -> Result<Vec<VirtualRow>, VirtualRowError> {
    let masked = |table| by_name(table).filter_map(move |c| Some((table, c, table.mask_of(c)?)));
    let each = keyspace.tables.values().flat_map(|t| masked(&**t));
    each.map(|(table, column, mask)| {
        let types: Vec<String> = mask.args.iter().map(|(ty, _)| ty.to_cql_name()).collect();
        let shown = |(ty, value): &(CqlType, Option<Vec<u8>>)| {
            value.as_ref().map_or_else(String::new, |value| ty.format_plain(value))
        };
        let values: Vec<String> = mask.args.iter().map(shown).collect();
        let nulls = mask.args.iter().map(|(_, value)| [u8::from(value.is_none())]);
        VirtualRowBuilder::at(schema_table, at)
            .text("keyspace_name", &table.keyspace)
            .text("table_name", &table.name)
            .text("column_name", &column.name)
            .bytes("function_argument_nulls", wire::encode_collection(nulls)?)
            .text_list("function_argument_types", types.iter().map(String::as_str))
            .text_list("function_argument_values", values.iter().map(String::as_str))
            .text("function_keyspace", mask.keyspace(table))
            .text("function_name", &mask.function)
            .finish()
    })
    .collect()
}

fn dropped_rows(
    schema_table: &Table,
    keyspace: &Keyspace,
    at: TimestampMicros,
) -> Result<Vec<VirtualRow>, VirtualRowError> {
    let each = keyspace.tables.values().flat_map(|t| t.dropped.values().map(move |d| (t, d)));
    each.map(|(table, dropped)| {
        VirtualRowBuilder::at(schema_table, at)
            .text("keyspace_name", &table.keyspace)
            .text("table_name", &table.name)
            .text("column_name", &dropped.column.name)
            .timestamp_millis("dropped_time", dropped.dropped_at.0 / 1_000)
            .text("kind", kind_of(&dropped.column).0)
            .text("type", &dropped.column.ty.expand_udts().to_cql_name())
            .finish()
    })
    .collect()
}

fn type_rows(
    schema_table: &Table,
    keyspace: &Keyspace,
    at: TimestampMicros,
) -> Result<Vec<VirtualRow>, VirtualRowError> {
    let each = keyspace.types.values();
    each.map(|udt| {
        let types: Vec<String> = udt.fields.iter().map(|(_, t)| CqlType::to_cql_name(t)).collect();
        VirtualRowBuilder::at(schema_table, at)
            .text("keyspace_name", &udt.keyspace)
            .text("type_name", &udt.name)
            .text_list("field_names", udt.fields.iter().map(|(name, _)| name.as_str()))
            .text_list("field_types", types.iter().map(String::as_str))
            .finish()
    })
    .collect()
}

fn names_of(types: &[CqlType]) -> Vec<String> {
    types.iter().map(CqlType::to_cql_name).collect()
}

fn function_rows(
    schema_table: &Table,
    keyspace: &Keyspace,
    at: TimestampMicros,
) -> Result<Vec<VirtualRow>, VirtualRowError> {
    let each = keyspace.functions.iter();
    let mut rows = each
        .map(|function| {
            let types = names_of(&function.args);
            VirtualRowBuilder::at(schema_table, at)
                .text("keyspace_name", &function.keyspace)
                .text("function_name", &function.name)
                .text_list("argument_types", types.iter().map(String::as_str))
                .text_list("argument_names", function.arg_names.iter().map(|name| &**name))
                .text("body", &function.body)
                .boolean("called_on_null_input", function.called_on_null_input)
                .text("language", &function.language)
                .text("return_type", &function.returns.to_cql_name())
                .finish()
        })
        .collect::<Result<Vec<_>, _>>()?;
    in_clustering_order(schema_table, &mut rows);
    Ok(rows)
}

fn aggregate_rows(
    schema_table: &Table,
    keyspace: &Keyspace,
    at: TimestampMicros,
) -> Result<Vec<VirtualRow>, VirtualRowError> {
    let each = keyspace.aggregates.iter();
    let mut rows = each
        .map(|aggregate| {
            let types = names_of(&aggregate.args);
            let mut row = VirtualRowBuilder::at(schema_table, at);
            row.text("keyspace_name", &aggregate.keyspace)
                .text("aggregate_name", &aggregate.name)
                .text_list("argument_types", types.iter().map(String::as_str))
                .text("return_type", &aggregate.returns.to_cql_name())
                .text("state_func", &aggregate.state_function)
                .text("state_type", &aggregate.state_type.to_cql_name());
            if let Some(function) = &aggregate.final_function {
                row.text("final_func", function);
            }
            if let Some(initial) = &aggregate.initial {
                row.text("initcond", &aggregate.state_type.format_cql_literal(initial));
            }
            row.finish()
        })
        .collect::<Result<Vec<_>, _>>()?;
    in_clustering_order(schema_table, &mut rows);
    Ok(rows)
}

/// Sorts rows by clustering; lists of types have their own order.
fn in_clustering_order(table: &Table, rows: &mut [VirtualRow]) {
    let order = data::ClusteringComparator::for_table(table);
    rows.sort_by(|a, b| order.compare(&a.clustering, &b.clustering));
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use data::MutationRef;

    use super::*;

    /// INV-system-rows-1: a deletion and rows that are newer than it leave exactly the rows.
    #[test]
    fn a_keyspace_is_written_over_whatever_was_there() {
        let at = TimestampMicros(1_000);
        let system = crate::system::system_schema();
        let schema = cql_testing::schema_of(cql_testing::TABLES);
        let keyspace = schema.keyspace("ks").unwrap();
        let mutations = keyspace_mutations(&system, keyspace, at, DeletionSeconds(7));
        let tables: BTreeSet<TableId> = mutations.iter().map(|m| m.table).collect();
        assert_eq!((mutations.len(), tables.len()), (SCHEMA_TABLES.len(), SCHEMA_TABLES.len()));
        let mut rows = 0;
        for mutation in &mutations {
            let table = system.table_by_id(mutation.table).unwrap();
            let read = MutationRef::parse(&mutation.bytes, table.clustering_count).unwrap();
            assert_eq!((read.key, read.deletion.timestamp.0), (&b"ks"[..], 999), "{}", table.name);
            for (_, row) in read.rows() {
                rows += 1;
                assert_eq!(row.liveness().timestamp, at, "{}", table.name);
                let cells = row.columns().flat_map(|(_, column)| match column {
                    data::ColumnRef::Simple(cell) => vec![cell.timestamp],
                    data::ColumnRef::Complex(complex) => {
                        complex.cells().map(|(_, cell)| cell.timestamp).collect()
                    }
                });
                assert!(cells.into_iter().all(|timestamp| timestamp == at), "{}", table.name);
            }
        }
        let expected = 1 + keyspace.tables.len() + keyspace.types.len();
        let columns: usize = keyspace.tables.values().map(|table| table.columns.len()).sum();
        assert_eq!(rows, expected + columns);
        let dropped = drop_keyspace_mutations(&system, "ks", at, DeletionSeconds(7));
        assert_eq!(dropped.len(), SCHEMA_TABLES.len());
        for mutation in &dropped {
            let table = system.table_by_id(mutation.table).unwrap();
            let read = MutationRef::parse(&mutation.bytes, table.clustering_count).unwrap();
            assert_eq!((read.deletion.timestamp, read.rows().count()), (at, 0), "{}", table.name);
        }
    }
}
