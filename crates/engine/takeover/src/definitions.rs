//! From rows of `system_schema` to schema changes.
//!
//! Source: Cassandra `SchemaKeyspace`.

use std::collections::BTreeMap;
use std::sync::Arc;

use cql_plan::functions::{can_mask, check_mask};
use cql_plan::raw_type;
use schema::{
    Column, ColumnKind, ColumnMask, CompactForm, DroppedColumn, KeyspaceParams, Schema,
    SchemaChange, Table, TableKind, TableOptions,
};
use stdx::{ColumnId, TableId, TimestampMicros};
use types::{CqlType, TypeError, UdtType};

use super::TakeoverError;
use super::indexes::TakenIndexes;
use super::left_out::{self, Choice, Kind, LeftOut};
use super::rows::Row;

/// The rows of the tables of `system_schema`.
#[derive(Debug, Default)]
pub(super) struct SchemaRows {
    pub(super) keyspaces: Vec<Row>,
    types: Vec<Row>,
    tables: Vec<Row>,
    columns: Vec<Row>,
    dropped_columns: Vec<Row>,
    views: Vec<Row>,
    indexes: Vec<Row>,
    functions: Vec<Row>,
    aggregates: Vec<Row>,
    triggers: Vec<Row>,
    column_masks: Vec<Row>,
}

impl SchemaRows {
    /// Each table's name with its rows.
    pub(super) fn tables_mut(&mut self) -> [(&'static str, &mut Vec<Row>); 11] {
        [
            ("keyspaces", &mut self.keyspaces),
            ("types", &mut self.types),
            ("tables", &mut self.tables),
            ("columns", &mut self.columns),
            ("dropped_columns", &mut self.dropped_columns),
            ("views", &mut self.views),
            ("indexes", &mut self.indexes),
            ("functions", &mut self.functions),
            ("aggregates", &mut self.aggregates),
            ("triggers", &mut self.triggers),
            ("column_masks", &mut self.column_masks),
        ]
    }
}

type Types = BTreeMap<Arc<str>, Arc<UdtType>>;

/// The changes that make the schema of these rows from the built-in one.
///
/// # Errors
/// `Unsupported` naming everything that is not supported and that `choice` does not allow to be
/// left out;
/// `Row`.
pub(super) fn changes(
    base: &Schema,
    rows: &SchemaRows,
    choice: &mut Choice<'_>,
) -> Result<Vec<SchemaChange>, TakeoverError> {
    // Without indexes a row that cannot be read is reported after what is not supported.
    let has_indexes = !rows.indexes.is_empty() && choice.indexes.available;
    let tables = if has_indexes { tables(base, rows).unwrap_or_default() } else { Vec::new() };
    let indexes = TakenIndexes::of_rows(base, &tables, &rows.indexes, choice)?;
    let mut kinds = Vec::new();
    let unsupported = unsupported(base, rows, choice, &indexes, &mut kinds)?;
    if !unsupported.is_empty() {
        kinds.dedup();
        return Err(TakeoverError::Unsupported { items: unsupported, kinds });
    }
    let mut changes = self::tables(base, rows)?;
    changes.extend(indexes.changes);
    Ok(changes)
}

/// The changes that make keyspaces, types and tables.
fn tables(base: &Schema, rows: &SchemaRows) -> Result<Vec<SchemaChange>, TakeoverError> {
    let mut changes = Vec::new();
    for row in &rows.keyspaces {
        let name: Arc<str> = row.required_text("keyspace_name")?.into();
        if is_scyllas(&name) {
            continue;
        }
        let params = keyspace_params(row)?;
        if let Some(built_in) = base.keyspace(&name) {
            // Its tables are fixed; its replication may have been altered.
            if built_in.params != params && !is_local(&params) {
                changes.push(SchemaChange::AlterKeyspace { name, params });
            }
            continue;
        }
        changes.push(SchemaChange::CreateKeyspace { name: name.clone(), params });
        let types = user_types(&name, rows, &mut changes)?;
        for row in in_keyspace(&rows.tables, &name) {
            changes.push(SchemaChange::CreateTable(table(row, &name, &types, rows)?));
        }
    }
    Ok(changes)
}

/// Keyspaces that ScyllaDB has for itself: their files are left alone.
fn is_scyllas(keyspace: &str) -> bool {
    matches!(keyspace, "system_distributed_everywhere" | "system_replicated_keys")
}

fn in_keyspace<'r>(rows: &'r [Row], keyspace: &'r str) -> impl Iterator<Item = &'r Row> {
    rows.iter().filter(move |r| r.bytes("keyspace_name") == Some(keyspace.as_bytes()))
}

fn is_local(params: &KeyspaceParams) -> bool {
    params.replication.get("class").is_some_and(|c| c.ends_with(".LocalStrategy"))
}

fn keyspace_params(row: &Row) -> Result<KeyspaceParams, TakeoverError> {
    Ok(KeyspaceParams {
        durable_writes: row.boolean("durable_writes")?.unwrap_or(true),
        replication: row.text_map("replication")?.unwrap_or_default(),
    })
}

/// Everything that cannot be taken over, each by kind and name.
/// `kinds`: those of them that the takeover could go without.
fn unsupported(
    base: &Schema,
    rows: &SchemaRows,
    choice: &mut Choice<'_>,
    indexes: &TakenIndexes,
    kinds: &mut Vec<&'static str>,
) -> Result<Vec<String>, TakeoverError> {
    let mut found = Vec::new();
    let others: [(&[Row], &str, &str, Option<Kind>); 6] = [
        (&rows.views, "materialized view", "view_name", Some(Kind::Views)),
        (&rows.indexes, "index", "index_name", Some(Kind::Indexes)),
        (&rows.functions, "function", "function_name", Some(Kind::Functions)),
        (&rows.aggregates, "aggregate", "aggregate_name", Some(Kind::Functions)),
        (&rows.triggers, "trigger", "trigger_name", Some(Kind::Triggers)),
        // Without its mask a column would be shown to everybody.
        (&rows.column_masks, "mask of column", "column_name", None),
    ];
    for (of_kind, what, column, kind) in others {
        for row in of_kind {
            let mut name = row.shown("keyspace_name");
            // Cassandra has an index on a table of its own: system.paxos.
            if base.keyspace(&name).is_some() {
                continue;
            }
            if column == "column_name" && is_known_mask(row)? {
                continue;
            }
            if !matches!(column, "view_name" | "function_name" | "aggregate_name") {
                name = format!("{name}.{}", row.shown("table_name"));
            }
            if choice.is_own(row, column)? || column == "index_name" && indexes.has(row)? {
                continue;
            }
            let what = format!("{what} {name}.{}", row.shown(column));
            match kind {
                Some(kind) if choice.allows(kind) => {
                    let statement = statement(row, column, rows)?;
                    choice.left_out.push(LeftOut { what, statement });
                }
                Some(kind) => {
                    kinds.push(kind.name());
                    found.push(what);
                }
                None => found.push(what),
            }
        }
    }
    unsupported_keyspaces(base, rows, &mut found)?;
    unsupported_tables(base, rows, &mut found)?;
    Ok(found)
}

fn unsupported_keyspaces(
    base: &Schema,
    rows: &SchemaRows,
    found: &mut Vec<String>,
) -> Result<(), TakeoverError> {
    for row in &rows.keyspaces {
        let name = row.required_text("keyspace_name")?;
        if base.keyspace(&name).is_some() || is_scyllas(&name) {
            continue;
        }
        let replication = keyspace_params(row)?.replication;
        let class = replication.get("class").map_or("", String::as_str);
        let short = class.strip_prefix("org.apache.cassandra.locator.").unwrap_or(class);
        if !matches!(short, "SimpleStrategy" | "NetworkTopologyStrategy") {
            found.push(format!("replication by {class} of keyspace {name}"));
        }
        if replication.values().any(|factor| factor.contains('/')) {
            found.push(format!("transient replication of keyspace {name}"));
        }
    }
    Ok(())
}

fn unsupported_tables(
    base: &Schema,
    rows: &SchemaRows,
    found: &mut Vec<String>,
) -> Result<(), TakeoverError> {
    for row in &rows.tables {
        let keyspace = row.required_text("keyspace_name")?;
        if base.keyspace(&keyspace).is_some() || is_scyllas(&keyspace) {
            continue;
        }
        let name = format!("{keyspace}.{}", row.required_text("table_name")?);
        let flags = row.text_list("flags")?;
        let has = |flag: &str| flags.iter().any(|f| f == flag);
        // DROP COMPACT STORAGE there makes a table of it that can be taken over.
        if has("super") {
            found.push(format!("super columns of table {name}"));
        }
        let classes = [
            ("compaction", "org.apache.cassandra.db.compaction.", COMPACTIONS.as_slice()),
            ("compression", "org.apache.cassandra.io.compress.", COMPRESSORS.as_slice()),
        ];
        for (option, package, known) in classes {
            let map = row.text_map(option)?.unwrap_or_default();
            let Some(class) = map.get("class") else { continue };
            if !known.contains(&class.strip_prefix(package).unwrap_or(class)) {
                found.push(format!("{option} {class} of table {name}"));
            }
        }
    }
    Ok(())
}

/// Returns the statement that creates the definition of a row; `column` names it.
fn statement(row: &Row, column: &str, rows: &SchemaRows) -> Result<String, TakeoverError> {
    match column {
        "view_name" => {
            let (keyspace, name) =
                (row.required_text("keyspace_name")?, row.required_text("view_name")?);
            let of_view = |r: &&Row| r.bytes("table_name") == Some(name.as_bytes());
            left_out::view(row, in_keyspace(&rows.columns, &keyspace).filter(of_view))
        }
        "index_name" => left_out::index(row, None),
        "function_name" => left_out::function(row),
        "aggregate_name" => left_out::aggregate(row),
        _ => left_out::trigger(row),
    }
}

/// Returns true if a row of `column_masks` names a supported function.
fn is_known_mask(row: &Row) -> Result<bool, TakeoverError> {
    let native = row.text("function_keyspace")?.is_some_and(|keyspace| keyspace == "system");
    Ok(native && row.text("function_name")?.is_some_and(|name| can_mask(&name)))
}

const COMPACTIONS: [&str; 7] = [
    "SizeTieredCompactionStrategy",
    "LeveledCompactionStrategy",
    "TimeWindowCompactionStrategy",
    "UnifiedCompactionStrategy",
    "IncrementalCompactionStrategy",
    "DateTieredCompactionStrategy",
    "ClusterKeyCompactionStrategy",
];
const COMPRESSORS: [&str; 5] =
    ["LZ4Compressor", "SnappyCompressor", "DeflateCompressor", "ZstdCompressor", "NoopCompressor"];

/// The type that a column of a schema table names.
fn parse_type(
    row: &Row,
    column: &str,
    text: &str,
    keyspace: &str,
    types: &Types,
) -> Result<CqlType, TakeoverError> {
    // The value of a compact table that declares none; no statement can name it.
    if text == "empty" {
        return Ok(CqlType::Empty);
    }
    let wrong = |detail: String| row.wrong(column, &format!("type {text}: {detail}"));
    let raw = cql_syntax::parse_type(text).map_err(|e| wrong(e.to_string()))?;
    raw_type::resolve(&raw, keyspace, types).map_err(|e| wrong(e.to_string()))
}

/// The user types of a keyspace; those used by others are first in `changes`.
fn user_types(
    keyspace: &Arc<str>,
    rows: &SchemaRows,
    changes: &mut Vec<SchemaChange>,
) -> Result<Types, TakeoverError> {
    let mut types = Types::new();
    let mut waiting: Vec<&Row> = in_keyspace(&rows.types, keyspace).collect();
    while !waiting.is_empty() {
        let mut stuck = None;
        let before = waiting.len();
        let mut still = Vec::new();
        for row in waiting {
            match user_type(row, keyspace, &types) {
                Ok(udt) => {
                    changes.push(SchemaChange::CreateType(udt.clone()));
                    types.insert(udt.name.clone(), Arc::new(udt));
                }
                // A type that it uses may come later: they are ordered by name, not by use.
                Err(error) => {
                    stuck = Some(error);
                    still.push(row);
                }
            }
        }
        if let Some(error) = stuck
            && still.len() == before
        {
            return Err(error);
        }
        waiting = still;
    }
    Ok(types)
}

fn user_type(row: &Row, keyspace: &Arc<str>, types: &Types) -> Result<UdtType, TakeoverError> {
    let names = row.text_list("field_names")?;
    let field_types = row.text_list("field_types")?;
    if names.len() != field_types.len() {
        return Err(row.wrong("field_types", "not as many as names"));
    }
    let mut fields = Vec::with_capacity(names.len());
    for (name, text) in names.into_iter().zip(&field_types) {
        fields.push((name, parse_type(row, "field_types", text, keyspace, types)?));
    }
    let name = row.required_text("type_name")?.into();
    Ok(UdtType { keyspace: keyspace.clone(), name, fields, frozen: false })
}

fn table(
    row: &Row,
    keyspace: &Arc<str>,
    types: &Types,
    rows: &SchemaRows,
) -> Result<Table, TakeoverError> {
    let name = row.required_text("table_name")?;
    let of_table = |r: &&Row| r.bytes("table_name") == Some(name.as_bytes());
    let mut columns = Vec::new();
    for row in in_keyspace(&rows.columns, keyspace).filter(of_table) {
        columns.push(column(row, keyspace, types)?);
    }
    schema::column_order::sort_columns(&mut columns);
    let mut next = number_columns(&mut columns).ok_or_else(|| row.wrong("columns", "too many"))?;
    let mut dropped = BTreeMap::new();
    for row in in_keyspace(&rows.dropped_columns, keyspace).filter(of_table) {
        let mut column = dropped_column(row, keyspace, types)?;
        column.column.id = ColumnId(next);
        next = next.checked_add(1).ok_or_else(|| row.wrong("columns", "too many"))?;
        dropped.insert(column.column.name.clone(), column);
    }
    let mut masks = BTreeMap::new();
    for row in in_keyspace(&rows.column_masks, keyspace).filter(of_table) {
        let name = row.required_text("column_name")?;
        let column = columns.iter().find(|c| *c.name == *name);
        let column = column.ok_or_else(|| row.wrong("column_name", "no such column"))?;
        masks.insert(column.id, mask(row, column, keyspace, types)?);
    }
    let count = |class: u8| columns.iter().filter(|c| class_of(c).0 == class).count();
    let (partition_key_count, clustering_count, static_count) = (count(0), count(1), count(2));
    let in_order = |class: u8| {
        columns.iter().filter(|c| class_of(c).0 == class).zip(0..).all(|(c, n)| class_of(c).1 == n)
    };
    if partition_key_count == 0 || !in_order(0) || !in_order(1) {
        return Err(row.wrong("columns", "the primary key is not complete"));
    }
    Ok(Table {
        id: TableId(row.required_uuid("id")?),
        keyspace: keyspace.clone(),
        name: name.as_str().into(),
        kind: kind(row)?,
        columns,
        partition_key_count,
        clustering_count,
        static_count,
        options: options(row)?,
        dropped,
        masks,
        indexes: Default::default(),
        version: 1,
        next_column_id: next,
    })
}

/// Decodes `flags` of a table that has no super columns.
fn kind(row: &Row) -> Result<TableKind, TakeoverError> {
    let flags = row.text_list("flags")?;
    let has = |flag: &str| flags.iter().any(|f| f == flag);
    Ok(match (has("dense"), has("compound")) {
        (false, true) => TableKind::Regular,
        (false, false) => TableKind::Compact(CompactForm::Static),
        (true, false) => TableKind::Compact(CompactForm::Dense),
        (true, true) => TableKind::Compact(CompactForm::DenseCompound),
    })
}

/// Arguments that are null have an empty text, as that of an empty text has.
fn mask(
    row: &Row,
    column: &Column,
    keyspace: &str,
    types: &Types,
) -> Result<ColumnMask, TakeoverError> {
    let arg_types = row.text_list("function_argument_types")?;
    let values = row.text_list("function_argument_values")?;
    let nulls = row.boolean_list("function_argument_nulls")?;
    if arg_types.len() != values.len() || nulls.len() != values.len() {
        return Err(row.wrong("function_argument_values", "not as many as types"));
    }
    let mut args = Vec::with_capacity(values.len());
    for ((text, value), is_null) in arg_types.iter().zip(&values).zip(nulls) {
        let ty = parse_type(row, "function_argument_types", text, keyspace, types)?;
        let wrong = |e: TypeError| row.wrong("function_argument_values", &e.to_string());
        let value = if is_null { None } else { Some(ty.from_string(value).map_err(wrong)?) };
        args.push((ty, value));
    }
    let mask =
        ColumnMask { function: row.required_text("function_name")?.into(), users: None, args };
    check_mask(column, &mask).map_err(|e| row.wrong("function_name", &e.to_string()))?;
    Ok(mask)
}

/// Class of a column and its position in the key.
fn class_of(column: &Column) -> (u8, u16) {
    match column.kind {
        ColumnKind::PartitionKey(position) => (0, position),
        ColumnKind::Clustering { position, .. } => (1, position),
        ColumnKind::Static => (2, 0),
        ColumnKind::Regular => (3, 0),
    }
}

/// Gives ids in the order of cells in SSTables, as CREATE TABLE does; the next free one. `None`:
/// there are too many.
fn number_columns(columns: &mut [Column]) -> Option<u16> {
    let mut in_file_order: Vec<&mut Column> = columns.iter_mut().collect();
    in_file_order.sort_by(|a, b| schema::column_order::compare_all_in_file(a, b));
    let mut next = 0_u16;
    for column in in_file_order {
        column.id = ColumnId(next);
        next = next.checked_add(1)?;
    }
    Some(next)
}

fn column(row: &Row, keyspace: &str, types: &Types) -> Result<Column, TakeoverError> {
    let position = || {
        let position = row.int("position")?.and_then(|p| u16::try_from(p).ok());
        position.ok_or_else(|| row.wrong("position", "not a position"))
    };
    let kind = row.required_text("kind")?;
    let kind = match kind.as_str() {
        "partition_key" => ColumnKind::PartitionKey(position()?),
        "clustering" => {
            let reversed = row.text("clustering_order")?.is_some_and(|o| o == "desc");
            ColumnKind::Clustering { position: position()?, reversed }
        }
        "static" => ColumnKind::Static,
        "regular" => ColumnKind::Regular,
        other => return Err(row.wrong("kind", &format!("\"{other}\" is not known"))),
    };
    let text = row.required_text("type")?;
    Ok(Column {
        id: ColumnId(0),
        name: row.required_text("column_name")?.into(),
        ty: parse_type(row, "type", &text, keyspace, types)?,
        kind,
    })
}

fn dropped_column(
    row: &Row,
    keyspace: &str,
    types: &Types,
) -> Result<DroppedColumn, TakeoverError> {
    // Cassandra 3 did not note the kind.
    let kind = match row.text("kind")?.as_deref() {
        Some("static") => ColumnKind::Static,
        _ => ColumnKind::Regular,
    };
    let text = row.required_text("type")?;
    let column = Column {
        id: ColumnId(0),
        name: row.required_text("column_name")?.into(),
        ty: parse_type(row, "type", &text, keyspace, types)?,
        kind,
    };
    let millis = row.bigint("dropped_time")?.ok_or_else(|| row.wrong("dropped_time", "missing"))?;
    Ok(DroppedColumn { column, dropped_at: TimestampMicros(millis.saturating_mul(1000)) })
}

/// Cassandra 4's spelling: earlier versions and ScyllaDB wrote `99PERCENTILE` and `99.0PERCENTILE`.
fn speculative_retry(row: &Row) -> Result<Option<String>, TakeoverError> {
    let column = "speculative_retry";
    let Some(text) = row.text(column)? else { return Ok(None) };
    let spelled = cql_plan::options::speculative_retry(&text);
    spelled.map(Some).map_err(|e| row.wrong(column, &e.to_string()))
}

fn options(row: &Row) -> Result<TableOptions, TakeoverError> {
    let default = TableOptions::default();
    Ok(TableOptions {
        additional_write_policy: row
            .text("additional_write_policy")?
            .unwrap_or(default.additional_write_policy),
        allow_auto_snapshot: row.boolean("allow_auto_snapshot")?.unwrap_or(true),
        bloom_filter_fp_chance: row.double("bloom_filter_fp_chance")?,
        caching: row.text_map("caching")?.unwrap_or(default.caching),
        cdc: row.boolean("cdc")?.unwrap_or(false),
        comment: row.text("comment")?.unwrap_or_default(),
        compaction: row.text_map("compaction")?.unwrap_or(default.compaction),
        compression: row.text_map("compression")?.unwrap_or(default.compression),
        crc_check_chance: row.double("crc_check_chance")?.unwrap_or(default.crc_check_chance),
        default_time_to_live: row.int("default_time_to_live")?.unwrap_or(0),
        extensions: row.bytes_map("extensions")?.unwrap_or_default(),
        gc_grace_seconds: row.int("gc_grace_seconds")?.unwrap_or(default.gc_grace_seconds),
        incremental_backups: row.boolean("incremental_backups")?.unwrap_or(true),
        max_index_interval: row.int("max_index_interval")?.unwrap_or(default.max_index_interval),
        memtable: row.text("memtable")?,
        memtable_flush_period_in_ms: row.int("memtable_flush_period_in_ms")?.unwrap_or(0),
        min_index_interval: row.int("min_index_interval")?.unwrap_or(default.min_index_interval),
        read_repair: row.text("read_repair")?.unwrap_or(default.read_repair),
        speculative_retry: speculative_retry(row)?.unwrap_or(default.speculative_retry),
    })
}
