//! The `create_statement` of keyspaces, tables, types and functions, byte for byte as Cassandra 5.0 prints it.
//!
//! Source: `KeyspaceMetadata`, `TableMetadata`, `TableParams`, `UserType`, `ColumnMetadata`
//! (`toCqlString`, `appendCqlTo`).

use std::collections::BTreeMap;

use schema::column_order::compare_in_file;
use schema::{
    Column, ColumnKind, ColumnMask, DroppedColumn, INDEX_CLASS, INDEX_TARGET, IndexKind,
    IndexMetadata, Keyspace, Table, TableKind, TableOptions, UserAggregate, UserFunction,
};
use types::name::quote_identifier as quoted;
use types::{CqlType, UdtType};

use crate::java_hash;
use crate::system::rows::bloom_filter_fp_chance;

const LOCATOR: &str = "org.apache.cassandra.locator.";

/// A string literal, quotes doubled.
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn map(entries: &BTreeMap<String, String>) -> String {
    let entries: Vec<String> =
        entries.iter().map(|(k, v)| format!("{}: {}", literal(k), literal(v))).collect();
    format!("{{{}}}", entries.join(", "))
}

/// `CREATE KEYSPACE …`; a virtual keyspace as a comment.
pub(super) fn keyspace(keyspace: &Keyspace) -> String {
    let name = quoted(&keyspace.name);
    if keyspace.is_virtual {
        return format!(
            "/*\nWarning: Keyspace {name} is a virtual keyspace and cannot be recreated with \
             CQL.\nStructure, for reference:\nVIRTUAL KEYSPACE {name};\n*/"
        );
    }
    let replication = &keyspace.params.replication;
    let class = replication.get("class").map_or("", String::as_str);
    // Classes of the locator package are named without it, others in full.
    let class = match class.strip_prefix(LOCATOR) {
        Some(short) if !short.contains('.') => short,
        _ => class,
    };
    let mut map = format!("{{'class': {}", literal(class));
    for (key, value) in replication.iter().filter(|(key, _)| *key != "class") {
        map.push_str(&format!(", {}: {}", literal(key), literal(value)));
    }
    let durable = keyspace.params.durable_writes;
    // Two spaces before AND: Cassandra's.
    format!("CREATE KEYSPACE {name} WITH replication = {map}}}  AND durable_writes = {durable};")
}

/// `CREATE TYPE …`.
pub(super) fn user_type(udt: &UdtType) -> String {
    let fields: Vec<String> =
        udt.fields.iter().map(|(name, ty)| format!("    {} {ty}", quoted(name))).collect();
    let (keyspace, name) = (quoted(&udt.keyspace), quoted(&udt.name));
    format!("CREATE TYPE {keyspace}.{name} (\n{}\n);", fields.join(",\n"))
}

/// `CREATE TABLE …`; with internals also its id, its dropped columns and the statements that drop
/// them; a virtual table as a comment.
/// A type in a signature: tuples are frozen by nature, and that is not said.
fn signature_type(ty: &CqlType) -> String {
    let name = ty.to_cql_name();
    let bare = match ty {
        CqlType::Tuple(_) => name.strip_prefix("frozen<").and_then(|n| n.strip_suffix('>')),
        _ => None,
    };
    bare.map_or(name.clone(), str::to_owned)
}

fn signature_types(types: &[CqlType]) -> String {
    let types: Vec<String> = types.iter().map(signature_type).collect();
    types.join(", ")
}

/// `name(types)`, by which functions are listed. The name is not quoted there.
pub(super) fn signature(name: &str, args: &[CqlType]) -> String {
    format!("{name}({})", signature_types(args))
}

/// Source: `UDFunction.toCqlString`.
pub(super) fn function(f: &UserFunction) -> String {
    let args: Vec<String> = f
        .arg_names
        .iter()
        .zip(&f.args)
        .map(|(name, ty)| format!("{} {}", quoted(name), signature_type(ty)))
        .collect();
    let nulls = if f.called_on_null_input { "CALLED" } else { "RETURNS NULL" };
    format!(
        "CREATE FUNCTION {}.{}({})\n    {nulls} ON NULL INPUT\n    RETURNS {}\n    LANGUAGE {}\n    AS \
         $${}$$;",
        quoted(&f.keyspace),
        quoted(&f.name),
        args.join(", "),
        signature_type(&f.returns),
        f.language,
        f.body
    )
}

/// Source: `UDAggregate.toCqlString`.
pub(super) fn aggregate(a: &UserAggregate) -> String {
    let mut out = format!(
        "CREATE AGGREGATE {}.{}({})\n    SFUNC {}\n    STYPE {}",
        quoted(&a.keyspace),
        quoted(&a.name),
        signature_types(&a.args),
        quoted(&a.state_function),
        signature_type(&a.state_type)
    );
    if let Some(function) = &a.final_function {
        out.push_str(&format!("\n    FINALFUNC {}", quoted(function)));
    }
    if let Some(initial) = &a.initial {
        out.push_str(&format!("\n    INITCOND {}", a.state_type.format_cql_literal(initial)));
    }
    out.push(';');
    out
}

/// `(a, b), v`: what a statement has in brackets for ScyllaDB's local index.
fn local_target(table: &Table, index: &IndexMetadata) -> String {
    format!("({}), {}", table.partition_key_names(), index.target)
}

/// `CREATE INDEX …`. Source: `IndexMetadata.appendCqlTo`.
pub(super) fn index(table: &Table, index: &IndexMetadata) -> String {
    let option = |name: &str| index.options.get(name).map_or("", String::as_str);
    let custom = if index.kind == IndexKind::Custom { "CUSTOM " } else { "" };
    let mut out = format!(
        "CREATE {custom}INDEX {} ON {}.{} ({})",
        quoted(&index.name),
        quoted(&table.keyspace),
        quoted(&table.name),
        if index.is_local() { local_target(table, index) } else { option(INDEX_TARGET).to_owned() }
    );
    if index.kind == IndexKind::Custom {
        out.push_str(&format!(" USING {}", literal(option(INDEX_CLASS))));
        let others = index
            .options
            .iter()
            .filter(|(k, _)| ![INDEX_TARGET, INDEX_CLASS].contains(&k.as_str()));
        let others: BTreeMap<String, String> =
            others.map(|(k, v)| (k.clone(), v.clone())).collect();
        if !others.is_empty() {
            out.push_str(&format!(" WITH OPTIONS = {}", map(&others)));
        }
    }
    out.push(';');
    out
}

pub(super) fn table(table: &Table, with_internals: bool) -> String {
    let name = format!("{}.{}", quoted(&table.keyspace), quoted(&table.name));
    let is_virtual = table.kind == TableKind::Virtual;
    let dropped = if with_internals { java_order(&table.dropped) } else { Vec::new() };
    let mut out = String::new();
    if table.compact_form().is_some() {
        out.push_str(&format!(
            "/*\nWarning: Table {name} omitted because it has constructs not compatible with CQL \
             (was created via legacy API).\nApproximate structure, for reference:\n(this should not \
             be used to reproduce this schema)\n\n"
        ));
    }
    if is_virtual {
        out.push_str(&format!(
            "/*\nWarning: Table {name} is a virtual table and cannot be recreated with CQL.\n\
             Structure, for reference:\n"
        ));
    }
    out.push_str(if is_virtual { "VIRTUAL" } else { "CREATE" });
    out.push_str(&format!(" TABLE {name} (\n"));
    push_columns(&mut out, table, &dropped);
    let mut options = Vec::new();
    if table.compact_form().is_some() {
        options.push("COMPACT STORAGE".to_owned());
    }
    if with_internals {
        options.push(format!("ID = {}", table.id));
    }
    if !table.clustering().is_empty() {
        options.push(format!("CLUSTERING ORDER BY ({})", clustering_order(table)));
    }
    if is_virtual {
        options.push(format!("comment = {}", literal(&table.options.comment)));
    } else {
        options.extend(option_lines(&table.options));
    }
    out.push_str(&format!(") WITH {};", options.join("\n    AND ")));
    if is_virtual {
        out.push_str("\n*/");
    }
    for DroppedColumn { column, dropped_at } in dropped {
        let column_name = quoted(&column.name);
        out.push_str(&format!(
            "\nALTER TABLE {name} DROP {column_name} USING TIMESTAMP {};",
            dropped_at.0
        ));
        if let Some(added) = table.column(&column.name) {
            out.push_str(&format!("\nALTER TABLE {name} ADD {};", definition(table, added)));
        }
    }
    if table.compact_form().is_some() {
        out.push_str("\n*/");
    }
    out
}

fn definition(table: &Table, column: &Column) -> String {
    // A static column of a compact table is shown as it was written.
    let is_shown = table.column(&column.name).is_none() || !table.is_static_compact();
    let suffix = if column.kind == ColumnKind::Static && is_shown { " static" } else { "" };
    let mask = table.mask_of(column).map(|m| mask(table, m)).unwrap_or_default();
    format!("{} {}{suffix}{mask}", quoted(&column.name), column.ty)
}

/// ` MASKED WITH …`.
fn mask(table: &Table, mask: &ColumnMask) -> String {
    let value = |(ty, value): &(CqlType, Option<Vec<u8>>)| match value {
        Some(value) => ty.format_cql_literal(value),
        None => "null".to_owned(),
    };
    let args: Vec<String> = mask.args.iter().map(value).collect();
    let (keyspace, function) = (mask.keyspace(table), &mask.function);
    let function = format!("{}.{}", quoted(keyspace), quoted(function));
    format!(" MASKED WITH {function}({})", args.join(", "))
}

/// Key columns by position; then statics and regulars, in each those of one cell first.
fn create_order(table: &Table) -> Vec<&Column> {
    let mut out: Vec<&Column> = table.partition_key().iter().chain(table.clustering()).collect();
    for columns in [table.statics(), table.regulars()] {
        let mut in_file: Vec<&Column> = columns.iter().collect();
        in_file.sort_by(|a, b| compare_in_file(a, b));
        out.extend(in_file);
    }
    out.retain(|column| !table.is_hidden(column));
    out
}

fn push_columns(out: &mut String, table: &Table, dropped: &[&DroppedColumn]) {
    let single_key = table.partition_key_count == 1 && table.clustering_count == 0;
    let mut lines = Vec::new();
    for column in create_order(table) {
        // One that was dropped and added again is created as it was first; DROP and ADD follow.
        if dropped.iter().any(|d| d.column.name == column.name) {
            continue;
        }
        let is_key = matches!(column.kind, ColumnKind::PartitionKey(_));
        let suffix = if single_key && is_key { " PRIMARY KEY" } else { "" };
        lines.push(format!("    {}{suffix}", definition(table, column)));
    }
    for d in dropped {
        let ty = d.column.ty.expand_udts();
        lines.push(format!("    {}", definition(table, &Column { ty, ..d.column.clone() })));
    }
    if !single_key {
        let names = |columns: &[Column]| -> String {
            columns.iter().map(|c| quoted(&c.name)).collect::<Vec<_>>().join(", ")
        };
        let mut key = names(table.partition_key());
        if table.partition_key_count > 1 {
            key = format!("({key})");
        }
        if table.clustering_count > 0 && !table.is_static_compact() {
            key = format!("{key}, {}", names(table.clustering()));
        }
        lines.push(format!("    PRIMARY KEY ({key})"));
    }
    out.push_str(&lines.join(",\n"));
    out.push('\n');
}

fn clustering_order(table: &Table) -> String {
    let parts: Vec<String> = table
        .clustering()
        .iter()
        .map(|c| {
            let reversed = matches!(c.kind, ColumnKind::Clustering { reversed: true, .. });
            format!("{} {}", quoted(&c.name), if reversed { "DESC" } else { "ASC" })
        })
        .collect();
    parts.join(", ")
}

pub(crate) fn option_lines(o: &TableOptions) -> Vec<String> {
    let double = types::number::java_f64;
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let gc = o.tombstone_gc();
    // Shown as the option that it is.
    let encryption = o.encryption();
    let is_shown = |name: &str| {
        gc.is_some() && name == schema::TOMBSTONE_GC
            || encryption.is_some() && name == schema::TABLE_ENCRYPTION
    };
    let extensions: Vec<String> = o
        .extensions
        .iter()
        .filter(|(k, _)| !is_shown(k))
        .map(|(k, v)| format!("{}: 0x{}", literal(k), hex(v)))
        .collect();
    // In Cassandra's order, which is not quite alphabetical.
    let mut all = vec![
        format!("additional_write_policy = {}", literal(&o.additional_write_policy)),
        format!("allow_auto_snapshot = {}", o.allow_auto_snapshot),
        format!("bloom_filter_fp_chance = {}", double(bloom_filter_fp_chance(o))),
        format!("caching = {}", map(&o.caching)),
        format!("cdc = {}", o.cdc),
        format!("comment = {}", literal(&o.comment)),
        format!("compaction = {}", map(&o.compaction)),
        format!("compression = {}", map(&o.compression)),
        format!("memtable = {}", literal(o.memtable.as_deref().unwrap_or("default"))),
        format!("crc_check_chance = {}", double(o.crc_check_chance)),
        format!("default_time_to_live = {}", o.default_time_to_live),
        format!("extensions = {{{}}}", extensions.join(", ")),
        format!("gc_grace_seconds = {}", o.gc_grace_seconds),
        format!("incremental_backups = {}", o.incremental_backups),
        format!("max_index_interval = {}", o.max_index_interval),
        format!("memtable_flush_period_in_ms = {}", o.memtable_flush_period_in_ms),
        format!("min_index_interval = {}", o.min_index_interval),
        format!("read_repair = {}", literal(&o.read_repair)),
        format!("speculative_retry = {}", literal(&o.speculative_retry)),
    ];
    if let Some(gc) = gc {
        let entries = gc.to_map().into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
        all.push(format!("{} = {}", schema::TOMBSTONE_GC, map(&entries)));
    }
    if let Some(encryption) = encryption {
        all.push(format!("{} = {}", schema::TABLE_ENCRYPTION, map(encryption.map())));
    }
    all
}

/// Dropped columns in the order of Cassandra's hash map of them (Java's `HashMap` over
/// `ByteBuffer` names, as it is built when the schema is loaded), because its text has that order.
fn java_order<'t, K>(dropped: &'t BTreeMap<K, DroppedColumn>) -> Vec<&'t DroppedColumn> {
    let mut columns: Vec<&'t DroppedColumn> = dropped.values().collect();
    // `putAll` into an empty map: room for count / 0.75 + 1, a power of two.
    let room = (columns.len().saturating_mul(4) / 3 + 1).next_power_of_two();
    columns.sort_by_key(|d| java_hash::slot(java_hash::hash(d.column.name.as_bytes()), room));
    columns
}
