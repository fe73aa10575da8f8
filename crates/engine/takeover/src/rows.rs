//! Rows of a table straight from its SSTables, without a store.
//!
//! Meant for system tables: all rows are held in memory, and the partition key is one column.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use cluster::cidr::IpNet;
use data::command::KeyRange;
use data::{Advance, ColumnRef, Cursor, Item, MergeCursor, MergeMode, RowRef, Slices, TableShape};
use rt::{Fs, Rt};
use schema::Table;
use sstable::{Descriptor, SstableReader, Version};
use stdx::{TimestampMicros, Uuid};
use types::CqlType;
use types::wire::{CollectionKind, Elements, Fields};

use super::{TakeoverError, list, name_of};

/// The live rows of a table and the largest timestamp in its files.
#[derive(Debug)]
pub(super) struct TableRows {
    pub(super) rows: Vec<Row>,
    pub(super) newest: TimestampMicros,
}

/// One row: key columns and cells by column name. Columns of several cells have their paths.
#[derive(Debug)]
pub(super) struct Row {
    table: Arc<Table>,
    values: BTreeMap<Arc<str>, Vec<u8>>,
    paths: BTreeMap<Arc<str>, Vec<Vec<u8>>>,
}

impl Row {
    #[cfg(test)]
    pub(super) fn for_test(table: &Arc<Table>, values: &[(&str, Vec<u8>)]) -> Row {
        let values = values.iter().map(|(name, value)| ((*name).into(), value.clone())).collect();
        Row { table: table.clone(), values, paths: BTreeMap::new() }
    }

    #[cfg(test)]
    pub(super) fn with_paths(mut self, column: &str, paths: &[&str]) -> Row {
        let paths = paths.iter().map(|path| path.as_bytes().to_vec()).collect();
        self.paths.insert(column.into(), paths);
        self
    }

    /// An error about a column of this row.
    pub(super) fn wrong(&self, column: &str, what: &str) -> TakeoverError {
        let key: Vec<String> = self
            .table
            .columns
            .iter()
            .filter(|c| in_key(c.kind))
            .map(|c| self.shown(&c.name))
            .collect();
        TakeoverError::Row {
            table: name_of(&self.table),
            row: key.join(" "),
            what: format!("{column}: {what}"),
        }
    }

    /// A value as text, for messages.
    pub(super) fn shown(&self, column: &str) -> String {
        match (self.bytes(column), self.table.column(column)) {
            (Some(bytes), Some(c)) => c.ty.format_plain(bytes),
            _ => String::new(),
        }
    }

    /// The bytes of a column; `None` for null.
    pub(super) fn bytes(&self, column: &str) -> Option<&[u8]> {
        self.values.get(column).map(Vec::as_slice)
    }

    /// The cell paths of a column of several cells.
    pub(super) fn paths(&self, column: &str) -> impl Iterator<Item = &[u8]> {
        self.paths.get(column).into_iter().flatten().map(Vec::as_slice)
    }

    fn fixed<const N: usize>(&self, column: &str) -> Result<Option<[u8; N]>, TakeoverError> {
        let Some(bytes) = self.bytes(column) else { return Ok(None) };
        let array = bytes.try_into().map_err(|_| self.wrong(column, "wrong length"))?;
        Ok(Some(array))
    }

    fn as_text(&self, column: &str, bytes: &[u8]) -> Result<String, TakeoverError> {
        String::from_utf8(bytes.to_vec()).map_err(|_| self.wrong(column, "not UTF-8"))
    }

    pub(super) fn text(&self, column: &str) -> Result<Option<String>, TakeoverError> {
        self.bytes(column).map(|b| self.as_text(column, b)).transpose()
    }

    pub(super) fn required_text(&self, column: &str) -> Result<String, TakeoverError> {
        self.text(column)?.ok_or_else(|| self.wrong(column, "missing"))
    }

    pub(super) fn boolean(&self, column: &str) -> Result<Option<bool>, TakeoverError> {
        Ok(self.fixed::<1>(column)?.map(|[b]| b != 0))
    }

    pub(super) fn int(&self, column: &str) -> Result<Option<i32>, TakeoverError> {
        Ok(self.fixed(column)?.map(i32::from_be_bytes))
    }

    pub(super) fn bigint(&self, column: &str) -> Result<Option<i64>, TakeoverError> {
        Ok(self.fixed(column)?.map(i64::from_be_bytes))
    }

    pub(super) fn double(&self, column: &str) -> Result<Option<f64>, TakeoverError> {
        Ok(self.fixed(column)?.map(f64::from_be_bytes))
    }

    pub(super) fn required_uuid(&self, column: &str) -> Result<Uuid, TakeoverError> {
        let bytes = self.fixed::<16>(column)?.ok_or_else(|| self.wrong(column, "missing"))?;
        Ok(Uuid::from_bytes(bytes))
    }

    fn elements(
        &self,
        column: &str,
        kind: CollectionKind,
    ) -> Result<Option<Vec<&[u8]>>, TakeoverError> {
        let Some(bytes) = self.bytes(column) else { return Ok(None) };
        let elements =
            Elements::new(bytes, kind).map_err(|e| self.wrong(column, &e.to_string()))?;
        let mut out = Vec::new();
        for element in elements {
            let element = element.map_err(|e| self.wrong(column, &e.to_string()))?;
            out.push(element.ok_or_else(|| self.wrong(column, "a null element"))?);
        }
        Ok(Some(out))
    }

    /// A frozen list or set of text; empty for null.
    pub(super) fn text_list(&self, column: &str) -> Result<Vec<String>, TakeoverError> {
        let kind = match self.table.column(column).map(|c| &c.ty) {
            Some(CqlType::Set { .. }) => CollectionKind::Set,
            _ => CollectionKind::List,
        };
        let elements = self.elements(column, kind)?.unwrap_or_default();
        elements.into_iter().map(|e| self.as_text(column, e)).collect()
    }

    /// Addresses and prefixes of a frozen set of `tuple<inet, smallint>`; empty for null.
    pub(super) fn ranges(&self, column: &str) -> Result<Vec<IpNet>, TakeoverError> {
        let elements = self.elements(column, CollectionKind::Set)?.unwrap_or_default();
        let mut ranges = Vec::new();
        for element in elements {
            let mut fields = Fields::new(element, 2);
            let mut field = || match fields.next() {
                Some(Ok(Some(bytes))) => Ok(bytes),
                _ => Err(self.wrong(column, "a range without address or prefix")),
            };
            let (address, prefix) = (field()?, field()?);
            let address = <[u8; 4]>::try_from(address)
                .map(IpAddr::from)
                .or_else(|_| <[u8; 16]>::try_from(address).map(IpAddr::from));
            let prefix = <[u8; 2]>::try_from(prefix).map(i16::from_be_bytes).ok();
            let prefix = prefix.and_then(|prefix| u8::try_from(prefix).ok());
            let range = address.ok().zip(prefix).and_then(|(a, p)| IpNet::new(a, p).ok());
            ranges.push(range.ok_or_else(|| self.wrong(column, "no range of addresses"))?.trunc());
        }
        Ok(ranges)
    }

    /// A frozen list of booleans; empty for null.
    pub(super) fn boolean_list(&self, column: &str) -> Result<Vec<bool>, TakeoverError> {
        let elements = self.elements(column, CollectionKind::List)?.unwrap_or_default();
        Ok(elements.into_iter().map(|e| e != [0]).collect())
    }

    /// A frozen map from text to bytes.
    pub(super) fn bytes_map(
        &self,
        column: &str,
    ) -> Result<Option<BTreeMap<String, Vec<u8>>>, TakeoverError> {
        let Some(elements) = self.elements(column, CollectionKind::Map)? else { return Ok(None) };
        let mut map = BTreeMap::new();
        for entry in elements.chunks_exact(2) {
            if let [key, value] = entry {
                map.insert(self.as_text(column, key)?, value.to_vec());
            }
        }
        Ok(Some(map))
    }

    /// A frozen map from text to text.
    pub(super) fn text_map(
        &self,
        column: &str,
    ) -> Result<Option<BTreeMap<String, String>>, TakeoverError> {
        let Some(map) = self.bytes_map(column)? else { return Ok(None) };
        let each = map.into_iter().map(|(k, v)| Ok((k, self.as_text(column, &v)?)));
        each.collect::<Result<_, _>>().map(Some)
    }
}

fn in_key(kind: schema::ColumnKind) -> bool {
    use schema::ColumnKind::{Clustering, PartitionKey};
    matches!(kind, PartitionKey(_) | Clustering { .. })
}

/// The complete SSTables of a table with their directories, after a check of all other files there.
///
/// # Errors
/// `Format`, `Unfinished`: see [`TakeoverError`].
pub(super) async fn sstables(
    fs: &Fs,
    data: &[String],
    table: &Table,
) -> Result<Vec<(String, Descriptor)>, TakeoverError> {
    let mut all = Vec::new();
    for data in data {
        let data = data.trim_end_matches('/');
        let directory = format!("{data}/{}/{}", table.keyspace, table.directory_name());
        let found = sstables_of(fs, &directory, table).await?;
        all.extend(found.into_iter().map(|descriptor| (directory.clone(), descriptor)));
    }
    Ok(all)
}

async fn sstables_of(
    fs: &Fs,
    directory: &str,
    table: &Table,
) -> Result<Vec<Descriptor>, TakeoverError> {
    let file = |name: &str| format!("{directory}/{name}");
    let entries = list(fs, directory).await?;
    for entry in entries.iter().filter(|e| !e.is_dir) {
        // Records of Cassandra's compactions and flushes, removed when these are done.
        if entry.name.contains("_txn_") && entry.name.ends_with(".log") {
            let table = name_of(table);
            return Err(TakeoverError::Unfinished { table, file: file(&entry.name) });
        }
        if entry.name.ends_with("-Data.db") && Descriptor::parse(&entry.name).is_none() {
            return Err(TakeoverError::Format { table: name_of(table), file: file(&entry.name) });
        }
    }
    if entries.is_empty() {
        return Ok(Vec::new());
    }
    let mut complete = Vec::new();
    for (descriptor, state) in sstable::list_sstables(fs, directory).await? {
        if state != sstable::SetState::Complete {
            let name = descriptor.file_name(sstable::Component::Data);
            return Err(TakeoverError::Unfinished { table: name_of(table), file: file(&name) });
        }
        complete.push(descriptor);
    }
    Ok(complete)
}

/// Like [`sstables`], and opens those of other versions than `nb`. So files that cannot be served
/// where files are written in this version are refused before anything is changed.
///
/// # Errors
/// Those of [`sstables`]; `Sstable`.
pub(super) async fn check_sstables(
    fs: &Fs,
    data: &[String],
    table: &Table,
    written: Version,
) -> Result<(), TakeoverError> {
    for (directory, descriptor) in sstables(fs, data, table).await? {
        if descriptor.version != Version::Nb {
            let reader = SstableReader::open(fs, &directory, descriptor, Some(table)).await?;
            reader.meta().check_times(written)?;
        }
    }
    Ok(())
}

/// The same for a user's table, whose files may have been put there manually: their columns must
/// have the types of the table's. Errors of files of a version that is written here are left to the
/// store.
///
/// # Errors
/// Those of [`check_sstables`]; `OtherTypes`.
pub(super) async fn check_user_sstables(
    fs: &Fs,
    data: &[String],
    table: &Table,
    written: Version,
) -> Result<(), TakeoverError> {
    check_sstables(fs, data, table, written).await?;
    for (directory, descriptor) in sstables(fs, data, table).await? {
        let reader = match SstableReader::open(fs, &directory, descriptor, None).await {
            Ok(reader) => reader,
            Err(_) if descriptor.version == Version::Nb => continue,
            Err(error) => return Err(error.into()),
        };
        if let Err(error) = reader.meta().statistics().header.check_types(table) {
            let name = descriptor.file_name(sstable::Component::Data);
            return Err(TakeoverError::OtherTypes {
                table: name_of(table),
                file: format!("{directory}/{name}"),
                what: error.to_string(),
            });
        }
    }
    Ok(())
}

/// All live rows of a table, merged from its SSTables.
///
/// # Errors
/// Those of [`sstables`]; `Sstable`, `Io`.
pub(super) async fn read_table(
    rt: &Rt,
    data: &[String],
    table: &Arc<Table>,
) -> Result<TableRows, TakeoverError> {
    let fs = rt.fs();
    let mut readers = Vec::new();
    let mut newest = TimestampMicros::NONE;
    for (directory, descriptor) in sstables(&fs, data, table).await? {
        let reader = SstableReader::open(&fs, &directory, descriptor, Some(table)).await?;
        let largest = reader.meta().statistics().stats.max_timestamp;
        // For a file without timestamps Cassandra notes the largest number possible.
        if largest.0 != i64::MAX {
            newest = newest.max(largest);
        }
        readers.push(reader);
    }
    let slices = Arc::new(Slices::all());
    let cursors: Vec<_> = readers
        .iter()
        .zip(0_u32..)
        .map(|(reader, source)| reader.range_cursor(source, KeyRange::all(), slices.clone(), None))
        .collect();
    let mut blocks: Vec<_> = readers.iter().map(SstableReader::sequential).collect();
    let shape = TableShape::for_table(table);
    let mode = MergeMode::Live { now: rt.wall().seconds() };
    let mut cursor = MergeCursor::new(&shape, mode, false, cursors);
    let mut key = Vec::new();
    let mut rows = Vec::new();
    loop {
        match cursor.advance().map_err(sstable::SstableError::from)? {
            Advance::End => break,
            Advance::NeedBlock(request) => {
                let source = usize::try_from(request.source).unwrap_or(usize::MAX);
                let Some(reader) = blocks.get_mut(source) else { break };
                let chunk = reader.load_block(request.block).await?;
                if let Some(source) = cursor.source_mut(request.source) {
                    source.feed(request.block, chunk);
                }
            }
            Advance::Item => match cursor.item() {
                Item::Partition { key: k, .. } => {
                    key.clear();
                    key.extend_from_slice(k);
                }
                Item::Row { clustering, row } => {
                    rows.push(row_of(table, &key, clustering, row));
                }
                Item::Static(_) | Item::Marker(_) | Item::PartitionEnd => {}
            },
        }
    }
    Ok(TableRows { rows, newest })
}

fn row_of(table: &Arc<Table>, key: &[u8], clustering: &[u8], row: RowRef<'_>) -> Row {
    let mut out = Row { table: table.clone(), values: BTreeMap::new(), paths: BTreeMap::new() };
    if let Some(column) = table.partition_key().first() {
        out.values.insert(column.name.clone(), key.to_vec());
    }
    for (column, value) in table.clustering().iter().zip(data::clustering::components(clustering)) {
        if let Some(value) = value {
            out.values.insert(column.name.clone(), value.to_vec());
        }
    }
    for (id, column) in row.columns() {
        let Some(name) = table.column_by_id(id).map(|c| c.name.clone()) else { continue };
        match column {
            ColumnRef::Simple(cell) if cell.is_tombstone() => {}
            ColumnRef::Simple(cell) => {
                out.values.insert(name, cell.value.to_vec());
            }
            ColumnRef::Complex(complex) => {
                let paths = complex.cells().map(|(path, _)| path.to_vec()).collect();
                out.paths.insert(name, paths);
            }
        }
    }
    out
}
