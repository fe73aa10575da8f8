//! Descriptions of columns: of results and of bind markers.

use crate::error::Result;
use crate::primitive::{
    bytes, check_count, put_bytes, put_count, put_short_bytes, put_string, short_bytes, string,
};
use crate::types::WireType;
use crate::version::{Negotiated, ProtocolVersion};
use codec::{Reader, Writer};

/// All columns are of one table, named once.
pub(crate) const GLOBAL_TABLE_SPEC: u32 = 0x01;
/// A paging state follows.
pub(crate) const HAS_MORE_PAGES: u32 = 0x02;
/// No columns follow.
pub(crate) const NO_METADATA: u32 = 0x04;
/// A new result metadata id follows.
pub(crate) const METADATA_CHANGED: u32 = 0x08;

/// One column or bind marker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnSpec<'a> {
    /// Keyspace of its table.
    pub keyspace: &'a str,
    /// Its table.
    pub table: &'a str,
    /// Its name, or the marker's.
    pub name: &'a str,
    /// Its type.
    pub kind: WireType,
}

/// Columns encoded once (for example at PREPARE) and copied into each response that describes them.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ColumnsBlock {
    count: u32,
    global: bool,
    bytes: Vec<u8>,
}

impl ColumnsBlock {
    /// Encodes columns for one version; keyspace and table come once when all columns share them.
    ///
    /// # Errors
    /// `TooLong`.
    pub fn encode(columns: &[ColumnSpec<'_>], version: ProtocolVersion) -> Result<ColumnsBlock> {
        let global = match columns {
            [] => false,
            [first, rest @ ..] => {
                rest.iter().all(|c| c.keyspace == first.keyspace && c.table == first.table)
            }
        };
        // The count is written in four bytes, but no table has more columns than fit into two.
        check_count(columns.len(), "columns")?;
        // Two lengths and a type of two bytes; types with parts only grow it.
        let add = |sum: usize, text: &str| sum.saturating_add(text.len()).saturating_add(4);
        let shared = columns.first().map_or(0, |c| add(add(0, c.keyspace), c.table));
        let mut bytes = Vec::with_capacity(columns.iter().fold(shared, |sum, c| add(sum, c.name)));
        if let (true, Some(first)) = (global, columns.first()) {
            put_string(&mut bytes, first.keyspace)?;
            put_string(&mut bytes, first.table)?;
        }
        for column in columns {
            if !global {
                put_string(&mut bytes, column.keyspace)?;
                put_string(&mut bytes, column.table)?;
            }
            put_string(&mut bytes, column.name)?;
            column.kind.encode(version, &mut bytes)?;
        }
        Ok(ColumnsBlock { count: u32::try_from(columns.len()).unwrap_or(u32::MAX), global, bytes })
    }

    /// Number of columns.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The encoded columns, without flags and count: the input of a result metadata id.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn is_global(&self) -> bool {
        self.global
    }
}

fn columns<'a>(r: &mut Reader<'a>, global: bool, count: usize) -> Result<Vec<ColumnSpec<'a>>> {
    let shared = if global { Some((string(r)?, string(r)?)) } else { None };
    // Name and type take two bytes each at least.
    let mut columns = Vec::with_capacity(r.check_count(count, 4)?);
    for _ in 0..count {
        let (keyspace, table) = match shared {
            Some(names) => names,
            None => (string(r)?, string(r)?),
        };
        let name = string(r)?;
        columns.push(ColumnSpec { keyspace, table, name, kind: WireType::decode(r)? });
    }
    Ok(columns)
}

/// Description of a result, as a client sees it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ResultMetadata<'a> {
    /// Values per row.
    pub column_count: u32,
    /// Position of the next page; present when there are more pages.
    pub paging_state: Option<&'a [u8]>,
    /// The new id when the columns changed since PREPARE.
    pub new_metadata_id: Option<&'a [u8]>,
    /// The columns; `None` when they were skipped.
    pub columns: Option<Vec<ColumnSpec<'a>>>,
}

impl<'a> ResultMetadata<'a> {
    pub(crate) fn decode(r: &mut Reader<'a>, negotiated: Negotiated) -> Result<ResultMetadata<'a>> {
        let flags = r.u32()?;
        let count = r.len_i32()?;
        let has = |flag| flags & flag != 0;
        let paging_state = if has(HAS_MORE_PAGES) { bytes(r)? } else { None };
        let changed = has(METADATA_CHANGED) && negotiated.has_metadata_id();
        let new_metadata_id = if changed { Some(short_bytes(r)?) } else { None };
        let columns =
            if has(NO_METADATA) { None } else { Some(columns(r, has(GLOBAL_TABLE_SPEC), count)?) };
        Ok(ResultMetadata {
            column_count: u32::try_from(count).unwrap_or(u32::MAX),
            paging_state,
            new_metadata_id,
            columns,
        })
    }
}

/// Appends the description of a result. Returns where a paging state would be put.
pub(crate) fn put_result_metadata(
    out: &mut Vec<u8>,
    block: &ColumnsBlock,
    skip: bool,
    new_metadata_id: Option<&[u8]>,
    paging_state: Option<&[u8]>,
) -> Result<usize> {
    let mut flags = 0;
    for (present, flag) in [
        (block.global, GLOBAL_TABLE_SPEC),
        (paging_state.is_some(), HAS_MORE_PAGES),
        (skip, NO_METADATA),
        (new_metadata_id.is_some(), METADATA_CHANGED),
    ] {
        flags |= if present { flag } else { 0 };
    }
    out.put_u32(flags);
    out.put_u32(block.count);
    let paging_at = out.len();
    if paging_state.is_some() {
        put_bytes(out, paging_state)?;
    }
    if let Some(id) = new_metadata_id {
        put_short_bytes(out, id)?;
    }
    if !skip {
        out.put_bytes(&block.bytes);
    }
    Ok(paging_at)
}

/// Description of a statement's bind markers, as a client sees it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct PreparedMetadata<'a> {
    /// All flags, for bits agreed on by extensions.
    pub flags: u32,
    /// Positions of the markers that make up the partition key, in its order; empty when not all are bound, and
    /// before v4.
    pub partition_key_indexes: Vec<u16>,
    /// The markers.
    pub columns: Vec<ColumnSpec<'a>>,
}

impl<'a> PreparedMetadata<'a> {
    pub(crate) fn decode(
        r: &mut Reader<'a>,
        version: ProtocolVersion,
    ) -> Result<PreparedMetadata<'a>> {
        let flags = r.u32()?;
        let count = r.len_i32()?;
        let mut partition_key_indexes = Vec::new();
        if version >= ProtocolVersion::V4 {
            let indexes = r.len_i32()?;
            partition_key_indexes.reserve(r.check_count(indexes, 2)?);
            for _ in 0..indexes {
                partition_key_indexes.push(r.u16()?);
            }
        }
        let columns = columns(r, flags & GLOBAL_TABLE_SPEC != 0, count)?;
        Ok(PreparedMetadata { flags, partition_key_indexes, columns })
    }
}

/// Appends the description of bind markers. `extra_flags` carries the mark of [`crate::scylla`] where agreed.
pub(crate) fn put_prepared_metadata(
    out: &mut Vec<u8>,
    block: &ColumnsBlock,
    partition_key_indexes: &[u16],
    extra_flags: u32,
    version: ProtocolVersion,
) -> Result<()> {
    out.put_u32(extra_flags | if block.is_global() { GLOBAL_TABLE_SPEC } else { 0 });
    out.put_u32(block.count);
    if version >= ProtocolVersion::V4 {
        // Markers of several tables have no one partition key.
        let indexes = if block.is_global() { partition_key_indexes } else { &[] };
        out.put_u16(0);
        put_count(out, indexes.len(), "partition key")?;
        for index in indexes {
            out.put_u16(*index);
        }
    }
    out.put_bytes(&block.bytes);
    Ok(())
}
