//! Binary form of schema definitions, for the metadata log. Version 1; every field is written, in
//! the order of the struct; integers big-endian, strings with a vint length.

use std::collections::BTreeMap;
use std::sync::Arc;

use codec::{DecodeError, DecodeErrorKind, Reader, Writer};
use stdx::{ColumnId, TableId, TimestampMicros, Uuid};
use types::{CqlType, CustomType, UdtType};

use crate::change::SchemaChange;
use crate::column::{Column, ColumnKind};
use crate::column_order::{are_sorted, kind_key, sort_columns};
use crate::functions::{UserAggregate, UserFunction};
use crate::index::{IndexKind, IndexMetadata, IndexRules, IndexTarget, TargetPart};
use crate::model::{
    ColumnMask, CompactForm, DroppedColumn, Keyspace, KeyspaceParams, Table, TableKind,
    TableOptions,
};

/// Deepest nesting of a type that is decoded; CQL itself allows less.
const TYPE_DEPTH_MAX: usize = 64;

fn text(out: &mut Vec<u8>, s: &str) {
    out.put_bytes_vint(s.as_bytes());
}

fn map(out: &mut Vec<u8>, map: &BTreeMap<String, String>) {
    out.put_vint_unsigned(map.len() as u64);
    for (k, v) in map {
        text(out, k);
        text(out, v);
    }
}

fn read_text(r: &mut Reader<'_>) -> Result<String, DecodeError> {
    let bytes = r.bytes_vint()?;
    String::from_utf8(bytes.to_vec()).map_err(|_| r.error(DecodeErrorKind::Utf8))
}

fn read_count(r: &mut Reader<'_>) -> Result<usize, DecodeError> {
    let n = r.vint_unsigned()?;
    let n = usize::try_from(n).unwrap_or(usize::MAX);
    r.check_count(n, 1)
}

fn read_map(r: &mut Reader<'_>) -> Result<BTreeMap<String, String>, DecodeError> {
    let mut out = BTreeMap::new();
    for _ in 0..read_count(r)? {
        let key = read_text(r)?;
        out.insert(key, read_text(r)?);
    }
    Ok(out)
}

const NATIVE: &[CqlType] = &[
    CqlType::Ascii,
    CqlType::Bigint,
    CqlType::Blob,
    CqlType::Boolean,
    CqlType::Counter,
    CqlType::Date,
    CqlType::Decimal,
    CqlType::Double,
    CqlType::Duration,
    CqlType::Empty,
    CqlType::Float,
    CqlType::Inet,
    CqlType::Int,
    CqlType::Smallint,
    CqlType::Text,
    CqlType::Time,
    CqlType::Timestamp,
    CqlType::Timeuuid,
    CqlType::Tinyint,
    CqlType::Uuid,
    CqlType::Varint,
];
const LIST: u8 = 64;
const SET: u8 = 65;
const MAP: u8 = 66;
const TUPLE: u8 = 67;
const UDT: u8 = 68;
const VECTOR: u8 = 69;
const CUSTOM: u8 = 70;

/// Appends a type.
pub fn cql_type(out: &mut Vec<u8>, ty: &CqlType) {
    match ty {
        CqlType::List { element, frozen } => {
            out.put_u8(LIST);
            out.put_bool(*frozen);
            cql_type(out, element);
        }
        CqlType::Set { element, frozen } => {
            out.put_u8(SET);
            out.put_bool(*frozen);
            cql_type(out, element);
        }
        CqlType::Map { key, value, frozen } => {
            out.put_u8(MAP);
            out.put_bool(*frozen);
            cql_type(out, key);
            cql_type(out, value);
        }
        CqlType::Tuple(fields) => {
            out.put_u8(TUPLE);
            out.put_vint_unsigned(fields.len() as u64);
            for field in fields.iter() {
                cql_type(out, field);
            }
        }
        CqlType::Udt(udt) => {
            out.put_u8(UDT);
            user_type(out, udt);
        }
        CqlType::Vector { element, dimension } => {
            out.put_u8(VECTOR);
            out.put_u32(*dimension);
            cql_type(out, element);
        }
        CqlType::Custom(custom) => {
            out.put_u8(CUSTOM);
            text(out, custom.name());
        }
        native => {
            let tag = NATIVE.iter().position(|n| n == native).unwrap_or(usize::MAX);
            stdx::invariant!(tag < NATIVE.len(), "type {native:?} has no tag");
            out.put_u8(tag as u8);
        }
    }
}

/// Reads a type.
///
/// # Errors
/// Unknown tag, nesting beyond 64, or bytes that end early.
pub fn read_cql_type(r: &mut Reader<'_>) -> Result<CqlType, DecodeError> {
    read_type(r, TYPE_DEPTH_MAX)
}

fn read_type(r: &mut Reader<'_>, depth: usize) -> Result<CqlType, DecodeError> {
    let tag = r.u8()?;
    let Some(depth) = depth.checked_sub(1) else {
        return Err(r.invalid(i64::from(tag)));
    };
    Ok(match tag {
        LIST => {
            let frozen = r.bool()?;
            CqlType::list(read_type(r, depth)?, frozen)
        }
        SET => {
            let frozen = r.bool()?;
            CqlType::set(read_type(r, depth)?, frozen)
        }
        MAP => {
            let frozen = r.bool()?;
            let key = read_type(r, depth)?;
            CqlType::map(key, read_type(r, depth)?, frozen)
        }
        TUPLE => {
            let mut fields = Vec::new();
            for _ in 0..read_count(r)? {
                fields.push(read_type(r, depth)?);
            }
            CqlType::tuple(fields)
        }
        UDT => CqlType::Udt(Arc::new(read_user_type(r, depth)?)),
        VECTOR => {
            let dimension = r.u32()?;
            CqlType::vector(read_type(r, depth)?, dimension)
        }
        CUSTOM => {
            let name = read_text(r)?;
            match types::parse_marshal(&name) {
                Ok((ty @ CqlType::Custom(_), false)) => ty,
                // A class with parameters that are not understood is kept as it was declared.
                _ => CqlType::custom(CustomType::unknown(&name)),
            }
        }
        tag => match NATIVE.get(usize::from(tag)) {
            Some(native) => native.clone(),
            None => return Err(r.invalid(i64::from(tag))),
        },
    })
}

fn user_type(out: &mut Vec<u8>, udt: &UdtType) {
    text(out, &udt.keyspace);
    text(out, &udt.name);
    out.put_bool(udt.frozen);
    out.put_vint_unsigned(udt.fields.len() as u64);
    for (name, ty) in &udt.fields {
        text(out, name);
        cql_type(out, ty);
    }
}

fn read_user_type(r: &mut Reader<'_>, depth: usize) -> Result<UdtType, DecodeError> {
    let keyspace = read_text(r)?.into();
    let name = read_text(r)?.into();
    let frozen = r.bool()?;
    let mut fields = Vec::new();
    for _ in 0..read_count(r)? {
        let field = read_text(r)?;
        fields.push((field, read_type(r, depth)?));
    }
    Ok(UdtType { keyspace, name, fields, frozen })
}

fn params(out: &mut Vec<u8>, p: &KeyspaceParams) {
    out.put_bool(p.durable_writes);
    map(out, &p.replication);
}

fn read_params(r: &mut Reader<'_>) -> Result<KeyspaceParams, DecodeError> {
    let durable_writes = r.bool()?;
    Ok(KeyspaceParams { durable_writes, replication: read_map(r)? })
}

/// Bit of a column's kind: a mask follows. Columns without one are as they were before there were
/// masks.
const MASKED: u8 = 0x80;
/// Bit of a column's kind beside [`MASKED`]: its mask is a user's function, whose first argument's type
/// comes before the other arguments.
const BY_USERS: u8 = 0x40;

fn column(out: &mut Vec<u8>, c: &Column, mask: Option<&ColumnMask>) {
    out.put_u16(c.id.0);
    text(out, &c.name);
    cql_type(out, &c.ty);
    let masked = match mask {
        None => 0,
        Some(ColumnMask { users: None, .. }) => MASKED,
        Some(ColumnMask { users: Some(_), .. }) => MASKED | BY_USERS,
    };
    match c.kind {
        ColumnKind::PartitionKey(position) => {
            out.put_u8(masked);
            out.put_u16(position);
        }
        ColumnKind::Clustering { position, reversed } => {
            out.put_u8(masked | if reversed { 2 } else { 1 });
            out.put_u16(position);
        }
        ColumnKind::Static => out.put_u8(masked | 3),
        ColumnKind::Regular => out.put_u8(masked | 4),
    }
    let Some(ColumnMask { function, users, args }) = mask else { return };
    text(out, function);
    if let Some(ty) = users {
        cql_type(out, ty);
    }
    out.put_vint_unsigned(args.len() as u64);
    for (ty, value) in args {
        cql_type(out, ty);
        out.put_bool(value.is_some());
        if let Some(value) = value {
            out.put_bytes_vint(value);
        }
    }
}

fn read_mask(r: &mut Reader<'_>, by_users: bool) -> Result<ColumnMask, DecodeError> {
    let function = read_text(r)?.into();
    let users = if by_users { Some(read_cql_type(r)?) } else { None };
    let mut args = Vec::new();
    for _ in 0..read_count(r)? {
        let ty = read_cql_type(r)?;
        let value = if r.bool()? { Some(r.bytes_vint()?.to_vec()) } else { None };
        args.push((ty, value));
    }
    Ok(ColumnMask { function, users, args })
}

fn read_column(r: &mut Reader<'_>) -> Result<(Column, Option<ColumnMask>), DecodeError> {
    let id = ColumnId(r.u16()?);
    let name = read_text(r)?.into();
    let ty = read_cql_type(r)?;
    let tag = r.u8()?;
    if tag & (MASKED | BY_USERS) == BY_USERS {
        return Err(r.invalid(i64::from(tag)));
    }
    let kind = match tag & !(MASKED | BY_USERS) {
        0 => ColumnKind::PartitionKey(r.u16()?),
        1 => ColumnKind::Clustering { position: r.u16()?, reversed: false },
        2 => ColumnKind::Clustering { position: r.u16()?, reversed: true },
        3 => ColumnKind::Static,
        4 => ColumnKind::Regular,
        _ => return Err(r.invalid(i64::from(tag))),
    };
    let by_users = tag & BY_USERS != 0;
    let mask = if tag & MASKED != 0 { Some(read_mask(r, by_users)?) } else { None };
    Ok((Column { id, name, ty, kind }, mask))
}

fn options(out: &mut Vec<u8>, o: &TableOptions) {
    text(out, &o.additional_write_policy);
    out.put_bool(o.allow_auto_snapshot);
    out.put_bool(o.bloom_filter_fp_chance.is_some());
    out.put_f64(o.bloom_filter_fp_chance.unwrap_or(0.0));
    map(out, &o.caching);
    out.put_bool(o.cdc);
    text(out, &o.comment);
    map(out, &o.compaction);
    map(out, &o.compression);
    out.put_f64(o.crc_check_chance);
    out.put_i32(o.default_time_to_live);
    out.put_vint_unsigned(o.extensions.len() as u64);
    for (name, bytes) in &o.extensions {
        text(out, name);
        out.put_bytes_vint(bytes);
    }
    out.put_i32(o.gc_grace_seconds);
    out.put_bool(o.incremental_backups);
    out.put_i32(o.max_index_interval);
    out.put_bool(o.memtable.is_some());
    text(out, o.memtable.as_deref().unwrap_or(""));
    out.put_i32(o.memtable_flush_period_in_ms);
    out.put_i32(o.min_index_interval);
    text(out, &o.read_repair);
    text(out, &o.speculative_retry);
}

fn read_options(r: &mut Reader<'_>) -> Result<TableOptions, DecodeError> {
    let additional_write_policy = read_text(r)?;
    let allow_auto_snapshot = r.bool()?;
    let has_chance = r.bool()?;
    let chance = r.f64()?;
    let caching = read_map(r)?;
    let cdc = r.bool()?;
    let comment = read_text(r)?;
    let compaction = read_map(r)?;
    let compression = read_map(r)?;
    let crc_check_chance = r.f64()?;
    let default_time_to_live = r.i32()?;
    let mut extensions = BTreeMap::new();
    for _ in 0..read_count(r)? {
        let name = read_text(r)?;
        extensions.insert(name, r.bytes_vint()?.to_vec());
    }
    let gc_grace_seconds = r.i32()?;
    let incremental_backups = r.bool()?;
    let max_index_interval = r.i32()?;
    let has_memtable = r.bool()?;
    let memtable = read_text(r)?;
    Ok(TableOptions {
        additional_write_policy,
        allow_auto_snapshot,
        bloom_filter_fp_chance: has_chance.then_some(chance),
        caching,
        cdc,
        comment,
        compaction,
        compression,
        crc_check_chance,
        default_time_to_live,
        extensions,
        gc_grace_seconds,
        incremental_backups,
        max_index_interval,
        memtable: has_memtable.then_some(memtable),
        memtable_flush_period_in_ms: r.i32()?,
        min_index_interval: r.i32()?,
        read_repair: read_text(r)?,
        speculative_retry: read_text(r)?,
    })
}

/// Returns true if all column ids are unique, dropped columns included, and none is an id that is
/// still to be assigned. A column that was dropped and added again may have its own id twice.
fn has_unique_ids(t: &Table) -> bool {
    let is_again =
        |name: &str, id: ColumnId| t.columns.iter().any(|c| c.id == id && *c.name == *name);
    let dropped = t.dropped.values().map(|dropped| &dropped.column);
    let dropped = dropped.filter(|c| !is_again(&c.name, c.id)).map(|c| c.id);
    let mut ids: Vec<ColumnId> = t.columns.iter().map(|c| c.id).chain(dropped).collect();
    ids.sort_unstable();
    ids.is_sorted_by(|a, b| a < b) && ids.last().is_none_or(|last| last.0 < t.next_column_id)
}

/// Bit of a table's kind: indexes follow at its end.
const INDEXED: u8 = 1 << 7;

fn index(out: &mut Vec<u8>, index: &IndexMetadata) {
    out.put_bytes(index.id.as_bytes());
    text(out, &index.name);
    out.put_u8(match index.kind {
        IndexKind::Keys => 0,
        IndexKind::Composites => 1,
        IndexKind::Custom => 2,
    });
    map(out, &index.options);
    text(out, &index.target.column);
    out.put_u8(index.target.part.code());
    out.put_u8(match index.rules {
        IndexRules::Legacy => 0,
        IndexRules::Sai => 1,
        IndexRules::Sasi => 2,
    });
}

fn read_index(r: &mut Reader<'_>) -> Result<IndexMetadata, DecodeError> {
    let id = Uuid::from_bytes(r.array::<16>()?);
    let name = read_text(r)?.into();
    let kind = match r.u8()? {
        0 => IndexKind::Keys,
        1 => IndexKind::Composites,
        2 => IndexKind::Custom,
        other => return Err(r.invalid(i64::from(other))),
    };
    let options = read_map(r)?;
    let column = read_text(r)?.into();
    let part = r.u8()?;
    let part = TargetPart::of_code(part).ok_or_else(|| r.invalid(i64::from(part)))?;
    let rules = match r.u8()? {
        0 => IndexRules::Legacy,
        1 => IndexRules::Sai,
        2 => IndexRules::Sasi,
        other => return Err(r.invalid(i64::from(other))),
    };
    let target = IndexTarget { column, part };
    Ok(IndexMetadata { id, name, kind, options, target, rules })
}

/// Appends a table.
pub fn table(out: &mut Vec<u8>, t: &Table) {
    stdx::debug_invariant!(
        has_unique_ids(t),
        "INV-schema-1: a column id of {}.{} is given twice",
        t.keyspace,
        t.name
    );
    stdx::debug_invariant!(
        are_sorted(&t.columns),
        "INV-schema-2: columns of {}.{} out of order",
        t.keyspace,
        t.name
    );
    stdx::debug_invariant!(
        t.masks.keys().all(|id| t.columns.iter().any(|c| c.id == *id)),
        "INV-schema-4: {}.{} has a mask of a column that it does not have",
        t.keyspace,
        t.name
    );
    stdx::debug_invariant!(
        t.has_valid_indexes(),
        "INV-schema-6: indexes of {}.{} out of order, or of a column that it does not have",
        t.keyspace,
        t.name
    );
    out.put_bytes(t.id.0.as_bytes());
    text(out, &t.keyspace);
    text(out, &t.name);
    let indexed = if t.has_indexes() { INDEXED } else { 0 };
    out.put_u8(
        indexed
            | match t.kind {
                TableKind::Regular => 0,
                TableKind::Virtual => 1,
                TableKind::Compact(CompactForm::Static) => 2,
                TableKind::Compact(CompactForm::Dense) => 3,
                TableKind::Compact(CompactForm::DenseCompound) => 4,
            },
    );
    out.put_vint_unsigned(t.columns.len() as u64);
    let mut columns: Vec<&Column> = t.columns.iter().collect();
    columns.sort_by(|a, b| stored_key(a).cmp(&stored_key(b)));
    for c in columns {
        column(out, c, t.mask_of(c));
    }
    options(out, &t.options);
    out.put_vint_unsigned(t.dropped.len() as u64);
    for d in t.dropped.values() {
        column(out, &d.column, None);
        out.put_i64(d.dropped_at.0);
    }
    out.put_u64(t.version);
    out.put_u16(t.next_column_id);
    if t.has_indexes() {
        out.put_vint_unsigned(t.indexes.len() as u64);
        for i in t.indexes.iter() {
            index(out, i);
        }
    }
}

/// Reads a table.
///
/// # Errors
/// Anything that is not a table in this form, columns or indexes out of order included.
pub fn read_table(r: &mut Reader<'_>) -> Result<Table, DecodeError> {
    let id = TableId(Uuid::from_bytes(r.array::<16>()?));
    let keyspace = read_text(r)?.into();
    let name = read_text(r)?.into();
    let tag = r.u8()?;
    let kind = match tag & !INDEXED {
        0 => TableKind::Regular,
        1 => TableKind::Virtual,
        2 => TableKind::Compact(CompactForm::Static),
        3 => TableKind::Compact(CompactForm::Dense),
        4 => TableKind::Compact(CompactForm::DenseCompound),
        other => return Err(r.invalid(i64::from(other))),
    };
    let mut columns = Vec::new();
    let mut masks = BTreeMap::new();
    for _ in 0..read_count(r)? {
        let (column, mask) = read_column(r)?;
        if let Some(mask) = mask {
            masks.insert(column.id, mask);
        }
        columns.push(column);
    }
    let options = read_options(r)?;
    let mut dropped = BTreeMap::new();
    for _ in 0..read_count(r)? {
        let (column, _) = read_column(r)?;
        let dropped_at = TimestampMicros(r.i64()?);
        dropped.insert(column.name.clone(), DroppedColumn { column, dropped_at });
    }
    let version = r.u64()?;
    let next_column_id = r.u16()?;
    let mut indexes = Vec::new();
    if tag & INDEXED != 0 {
        for _ in 0..read_count(r)? {
            indexes.push(Arc::new(read_index(r)?));
        }
    }
    let count = |f: fn(&ColumnKind) -> bool| columns.iter().filter(|c| f(&c.kind)).count();
    let partition_key_count = count(|k| matches!(k, ColumnKind::PartitionKey(_)));
    let clustering_count = count(|k| matches!(k, ColumnKind::Clustering { .. }));
    let static_count = count(|k| matches!(k, ColumnKind::Static));
    if !columns.iter().map(stored_key).is_sorted() {
        return Err(r.invalid(0));
    }
    sort_columns(&mut columns);
    let table = Table {
        id,
        keyspace,
        name,
        kind,
        columns,
        partition_key_count,
        clustering_count,
        static_count,
        options,
        dropped,
        masks,
        indexes: indexes.into(),
        version,
        next_column_id,
    };
    // INV-schema-1 and INV-schema-6.
    if !has_unique_ids(&table)
        || !table.has_valid_indexes()
        || tag & INDEXED != 0 && !table.has_indexes()
    {
        return Err(r.invalid(0));
    }
    Ok(table)
}

/// The order in which columns are encoded: by kind, then by position or the bytes of the name. It is not that of INV-schema-2, so
/// that logs and nodes of builds in which both were the same agree with this one.
fn stored_key(c: &Column) -> (u8, u16, &str) {
    let (class, position) = kind_key(c.kind);
    let is_key = matches!(c.kind, ColumnKind::PartitionKey(_) | ColumnKind::Clustering { .. });
    (class, position, if is_key { "" } else { &c.name })
}

fn type_list(out: &mut Vec<u8>, types: &[CqlType]) {
    out.put_vint_unsigned(types.len() as u64);
    for ty in types {
        cql_type(out, ty);
    }
}

fn read_type_list(r: &mut Reader<'_>) -> Result<Vec<CqlType>, DecodeError> {
    let mut types = Vec::new();
    for _ in 0..read_count(r)? {
        types.push(read_cql_type(r)?);
    }
    Ok(types)
}

fn user_function(out: &mut Vec<u8>, f: &UserFunction) {
    text(out, &f.keyspace);
    text(out, &f.name);
    type_list(out, &f.args);
    stdx::invariant!(
        f.args.len() == f.arg_names.len(),
        "function {}.{} has {} arguments and {} names of arguments",
        f.keyspace,
        f.name,
        f.args.len(),
        f.arg_names.len()
    );
    for name in &f.arg_names {
        text(out, name);
    }
    cql_type(out, &f.returns);
    out.put_bool(f.called_on_null_input);
    text(out, &f.language);
    text(out, &f.body);
}

fn read_user_function(r: &mut Reader<'_>) -> Result<UserFunction, DecodeError> {
    let keyspace = read_text(r)?.into();
    let name = read_text(r)?.into();
    let args = read_type_list(r)?;
    let mut arg_names = Vec::new();
    for _ in &args {
        arg_names.push(read_text(r)?.into());
    }
    Ok(UserFunction {
        keyspace,
        name,
        arg_names,
        args,
        returns: read_cql_type(r)?,
        called_on_null_input: r.bool()?,
        language: read_text(r)?.into(),
        body: read_text(r)?.into(),
    })
}

fn user_aggregate(out: &mut Vec<u8>, a: &UserAggregate) {
    text(out, &a.keyspace);
    text(out, &a.name);
    type_list(out, &a.args);
    cql_type(out, &a.returns);
    text(out, &a.state_function);
    cql_type(out, &a.state_type);
    out.put_bool(a.final_function.is_some());
    text(out, a.final_function.as_deref().unwrap_or(""));
    out.put_bool(a.initial.is_some());
    out.put_bytes_vint(a.initial.as_deref().unwrap_or(&[]));
}

fn read_user_aggregate(r: &mut Reader<'_>) -> Result<UserAggregate, DecodeError> {
    let keyspace = read_text(r)?.into();
    let name = read_text(r)?.into();
    let args = read_type_list(r)?;
    let returns = read_cql_type(r)?;
    let state_function = read_text(r)?.into();
    let state_type = read_cql_type(r)?;
    let has_final = r.bool()?;
    let final_function = read_text(r)?;
    let has_initial = r.bool()?;
    let initial = r.bytes_vint()?.to_vec();
    Ok(UserAggregate {
        keyspace,
        name,
        args,
        returns,
        state_function,
        state_type,
        final_function: has_final.then(|| final_function.into()),
        initial: has_initial.then_some(initial),
    })
}

/// Appends a keyspace with its tables, types and functions. Without functions it is as it was before
/// there were any.
pub fn keyspace(out: &mut Vec<u8>, k: &Keyspace) {
    text(out, &k.name);
    params(out, &k.params);
    out.put_bool(k.is_virtual);
    out.put_vint_unsigned(k.types.len() as u64);
    for udt in k.types.values() {
        user_type(out, udt);
    }
    out.put_vint_unsigned(k.tables.len() as u64);
    for t in k.tables.values() {
        table(out, t);
    }
    if k.functions.is_empty() && k.aggregates.is_empty() {
        return;
    }
    out.put_vint_unsigned(k.functions.len() as u64);
    for f in &k.functions {
        user_function(out, f);
    }
    out.put_vint_unsigned(k.aggregates.len() as u64);
    for a in &k.aggregates {
        user_aggregate(out, a);
    }
}

/// Appends a schema change: kind byte, then its parts.
pub fn change(out: &mut Vec<u8>, change: &SchemaChange) {
    match change {
        SchemaChange::CreateKeyspace { name, params: p } => {
            out.put_u8(1);
            text(out, name);
            params(out, p);
        }
        SchemaChange::AlterKeyspace { name, params: p } => {
            out.put_u8(2);
            text(out, name);
            params(out, p);
        }
        SchemaChange::DropKeyspace { name } => {
            out.put_u8(3);
            text(out, name);
        }
        SchemaChange::CreateTable(t) => {
            out.put_u8(4);
            table(out, t);
        }
        SchemaChange::AlterTable(t) => {
            out.put_u8(5);
            table(out, t);
        }
        SchemaChange::DropTable { keyspace, table } => {
            out.put_u8(6);
            text(out, keyspace);
            text(out, table);
        }
        SchemaChange::CreateType(udt) => {
            out.put_u8(7);
            user_type(out, udt);
        }
        SchemaChange::AlterType(udt) => {
            out.put_u8(8);
            user_type(out, udt);
        }
        SchemaChange::DropType { keyspace, name } => {
            out.put_u8(9);
            text(out, keyspace);
            text(out, name);
        }
        SchemaChange::PutFunction(f) => {
            out.put_u8(10);
            user_function(out, f);
        }
        SchemaChange::DropFunction { keyspace, name, args } => {
            out.put_u8(11);
            text(out, keyspace);
            text(out, name);
            type_list(out, args);
        }
        SchemaChange::PutAggregate(a) => {
            out.put_u8(12);
            user_aggregate(out, a);
        }
        SchemaChange::DropAggregate { keyspace, name, args } => {
            out.put_u8(13);
            text(out, keyspace);
            text(out, name);
            type_list(out, args);
        }
    }
}

/// Reads a schema change.
///
/// # Errors
/// Unknown kind, or bytes that [`change`] cannot have written.
pub fn read_change(r: &mut Reader<'_>) -> Result<SchemaChange, DecodeError> {
    Ok(match r.u8()? {
        1 => {
            let name = read_text(r)?.into();
            SchemaChange::CreateKeyspace { name, params: read_params(r)? }
        }
        2 => {
            let name = read_text(r)?.into();
            SchemaChange::AlterKeyspace { name, params: read_params(r)? }
        }
        3 => SchemaChange::DropKeyspace { name: read_text(r)?.into() },
        4 => SchemaChange::CreateTable(read_table(r)?),
        5 => SchemaChange::AlterTable(read_table(r)?),
        6 => {
            let keyspace = read_text(r)?.into();
            SchemaChange::DropTable { keyspace, table: read_text(r)?.into() }
        }
        7 => SchemaChange::CreateType(read_user_type(r, TYPE_DEPTH_MAX)?),
        8 => SchemaChange::AlterType(read_user_type(r, TYPE_DEPTH_MAX)?),
        9 => {
            let keyspace = read_text(r)?.into();
            SchemaChange::DropType { keyspace, name: read_text(r)?.into() }
        }
        10 => SchemaChange::PutFunction(read_user_function(r)?),
        11 => {
            let keyspace = read_text(r)?.into();
            let name = read_text(r)?.into();
            SchemaChange::DropFunction { keyspace, name, args: read_type_list(r)? }
        }
        12 => SchemaChange::PutAggregate(read_user_aggregate(r)?),
        13 => {
            let keyspace = read_text(r)?.into();
            let name = read_text(r)?.into();
            SchemaChange::DropAggregate { keyspace, name, args: read_type_list(r)? }
        }
        other => return Err(r.invalid(i64::from(other))),
    })
}
