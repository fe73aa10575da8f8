//! Indexes of a table version, compiled: the entries that a row has in each of them.
//!
//! Writers of files and memtables use the same function ([`TableIndexes::visit_row`]), so a row has equal entries
//! wherever it is. Cells that are tombstones have none; expired cells keep theirs, as a reader checks the row.

use std::sync::Arc;

use codec::crc32;
use data::{CellRef, ColumnRef, RowRef};
use schema::{Column, ColumnKind, IndexMetadata, IndexRules, Table, TargetPart};
use sst_format::byte_order::{self, Place};
use stdx::{ColumnId, Token};
use types::CqlType;
use uuid::Uuid;

use crate::analysis::Analysis;
use crate::sasi::SasiOptions;
use crate::sources::{RowKey, Scope};
use crate::terms::{Target, TermEncoder};
use crate::text::TextOptions;
use crate::vectors::VectorIndex;

/// Part of a primary key or column that an index has the values of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexedPart {
    /// Part of the partition key, by position.
    PartitionKey(usize),
    /// Clustering column, by position.
    Clustering(usize),
    /// Static column.
    Static(ColumnId),
    /// Regular column.
    Regular(ColumnId),
}

impl IndexedPart {
    fn of_column(column: &Column) -> IndexedPart {
        match column.kind {
            ColumnKind::PartitionKey(position) => IndexedPart::PartitionKey(position.into()),
            ColumnKind::Clustering { position, .. } => IndexedPart::Clustering(position.into()),
            ColumnKind::Static => IndexedPart::Static(column.id),
            ColumnKind::Regular => IndexedPart::Regular(column.id),
        }
    }

    /// Unit that an entry names.
    pub fn scope(self) -> Scope {
        match self {
            IndexedPart::PartitionKey(_) | IndexedPart::Static(_) => Scope::Partition,
            IndexedPart::Clustering(_) | IndexedPart::Regular(_) => Scope::Row,
        }
    }
}

/// One index, compiled.
#[derive(Clone, Debug)]
pub struct TableIndex {
    /// Its id, which its components bear.
    pub id: Uuid,
    /// Its name.
    pub name: Arc<str>,
    /// Source of its values.
    pub part: IndexedPart,
    /// The form of its entries.
    pub values: IndexedValues,
    /// Checksum over what decides its entries: column, part, type, options of text, similarity. Ids repeat when a table is made again
    /// with its old id, and a file of the first may then be imported; its component has the entries of another index.
    pub definition: u32,
}

/// Form of the entries of an index.
#[derive(Clone, Debug)]
pub enum IndexedValues {
    /// Terms, by this encoder for rows and for predicates.
    Terms(TermEncoder),
    /// Vectors.
    Vectors(VectorIndex),
}

/// A row as it is written. `clustering`: serialised as in mutations; `None`: the static row.
#[derive(Clone, Copy, Debug)]
pub struct IndexedRow<'a> {
    /// Partition key.
    pub key: &'a [u8],
    /// Clustering; `None`: the static row.
    pub clustering: Option<&'a [u8]>,
    /// The row.
    pub row: RowRef<'a>,
    /// First row of its partition in the file or mutation: it stands for the partition in an index of a part of the
    /// partition key.
    pub is_first: bool,
}

/// All indexes of one table version.
#[derive(Clone, Debug)]
pub struct TableIndexes {
    indexes: Vec<TableIndex>,
    /// Types of the clustering columns, and which descend.
    clustering: Vec<(CqlType, bool)>,
    /// The partition key has several columns.
    is_composite: bool,
}

impl TableIndex {
    /// Compiles an index of a table. `None`: the table has no such column, or its type has no terms.
    pub fn of(table: &Table, index: &IndexMetadata) -> Option<TableIndex> {
        let column = table.column(&index.target.column)?;
        let (id, name) = (index.id, index.name.clone());
        let (part, ty) = (IndexedPart::of_column(column), column.ty.to_marshal_name());
        if let Some(vectors) = VectorIndex::of(table, index) {
            let definition = format!("({}) {ty} {}", column.name, vectors.similarity.name());
            let definition = crc32(definition.as_bytes());
            let values = IndexedValues::Vectors(vectors);
            return Some(TableIndex { id, name, part, values, definition });
        }
        let target = match index.target.part {
            TargetPart::Simple | TargetPart::Full => Target::Whole,
            TargetPart::Values => Target::Values,
            TargetPart::Keys => Target::Keys,
            TargetPart::Entries => Target::Entries,
        };
        let text = analysis(index, &column.ty);
        let encoder = TermEncoder::new(&column.ty, target, text).ok()?;
        let encoder = match index.rules {
            IndexRules::Sasi => encoder.without_empty(),
            IndexRules::Legacy | IndexRules::Sai => encoder,
        };
        let function = index.target.part.function().unwrap_or_default();
        let sasi = match index.rules {
            IndexRules::Sasi => format!(" {text:?}"),
            IndexRules::Legacy | IndexRules::Sai => String::new(),
        };
        let definition = format!("{function}({}) {ty} {:?}{sasi}", column.name, text.text);
        let definition = crc32(definition.as_bytes());
        Some(TableIndex { id, name, part, values: IndexedValues::Terms(encoder), definition })
    }

    /// Encoder of its terms. `None`: it is one of vectors.
    pub fn encoder(&self) -> Option<&TermEncoder> {
        match &self.values {
            IndexedValues::Terms(encoder) => Some(encoder),
            IndexedValues::Vectors(_) => None,
        }
    }

    /// The definition of an index of vectors. `None`: it is one of terms.
    pub fn vectors(&self) -> Option<&VectorIndex> {
        match &self.values {
            IndexedValues::Terms(_) => None,
            IndexedValues::Vectors(vectors) => Some(vectors),
        }
    }

    /// Shows the entries of a cell.
    fn visit_entries(
        &self,
        path: &[u8],
        value: &[u8],
        scratch: &mut Vec<u8>,
        mut each: impl FnMut(&[u8]),
    ) {
        match &self.values {
            IndexedValues::Terms(encoder) => encoder.visit_cell(path, value, scratch, each),
            IndexedValues::Vectors(vectors) => {
                if vectors.has_value(value) {
                    each(value);
                }
            }
        }
    }
}

/// Analysis of the text of an index of a column of this type.
pub fn analysis(index: &IndexMetadata, ty: &CqlType) -> Analysis {
    match index.rules {
        IndexRules::Sasi => SasiOptions::of(index, ty).analysis,
        IndexRules::Legacy | IndexRules::Sai => text_options(index).into(),
    }
}

/// Filters of the text of a storage-attached index.
pub fn text_options(index: &IndexMetadata) -> TextOptions {
    let is = |option: &str, text: &str| {
        index.options.get(option).is_some_and(|value| value.eq_ignore_ascii_case(text))
    };
    TextOptions {
        ignores_case: is("case_sensitive", "false"),
        normalizes: is("normalize", "true"),
        folds_to_ascii: is("ascii", "true"),
    }
}

impl TableIndexes {
    /// Compiles the indexes of a table. An index whose column has no terms is left out. `None`: there is none.
    pub fn of_table(table: &Table) -> Option<TableIndexes> {
        let indexes: Vec<TableIndex> =
            table.indexes.iter().filter_map(|index| TableIndex::of(table, index)).collect();
        if indexes.is_empty() {
            return None;
        }
        let of_column = |column: &Column| {
            let reversed = matches!(column.kind, ColumnKind::Clustering { reversed: true, .. });
            (column.ty.clone(), reversed)
        };
        let clustering = table.clustering().iter().map(of_column).collect();
        Some(TableIndexes { indexes, clustering, is_composite: table.partition_key_count > 1 })
    }

    /// All of them.
    pub fn all(&self) -> &[TableIndex] {
        &self.indexes
    }

    /// The index of that id.
    pub fn get(&self, id: Uuid) -> Option<&TableIndex> {
        self.indexes.iter().find(|index| index.id == id)
    }

    /// The key of a row, or with `None` of the static row, which stands for its partition. `None`: a clustering has no
    /// byte-comparable form, as its type has none or it is no value of its type.
    pub fn row_key(
        &self,
        token: Token,
        partition: &[u8],
        clustering: Option<&[u8]>,
    ) -> Option<RowKey> {
        let mut ordered = Vec::new();
        if let Some(values) = clustering {
            byte_order::clustering(values, &self.clustering, Place::Row, &mut ordered)?;
        }
        Some(RowKey {
            token,
            partition: partition.into(),
            clustering: ordered.into(),
            values: clustering.unwrap_or_default().into(),
        })
    }

    /// The same with only some of the indexes.
    #[must_use]
    pub fn only(&self, ids: &[Uuid]) -> TableIndexes {
        let mut some = self.clone();
        some.indexes.retain(|index| ids.contains(&index.id));
        some
    }

    /// Calls `each` with the number of the index in [`TableIndexes::all`] and the term, or the value of a vector, for every
    /// entry of a row. Values that are not of their type have none.
    pub fn visit_row(
        &self,
        row: &IndexedRow<'_>,
        scratch: &mut Vec<u8>,
        mut each: impl FnMut(usize, &[u8]),
    ) {
        let mut has_data = None;
        for (number, index) in self.indexes.iter().enumerate() {
            let mut put = |path: &[u8], value: &[u8]| {
                index.visit_entries(path, value, scratch, |entry| each(number, entry));
            };
            match index.part {
                IndexedPart::PartitionKey(position) if row.is_first => {
                    let part = match self.is_composite {
                        true => composite_part(row.key, position),
                        false => Some(row.key),
                    };
                    part.into_iter().for_each(|part| put(&[], part));
                }
                IndexedPart::Clustering(position) => {
                    let Some(clustering) = row.clustering else { continue };
                    let value = data::clustering::components(clustering).nth(position).flatten();
                    if let Some(value) = value
                        && *has_data.get_or_insert_with(|| has_any_data(row.row))
                    {
                        put(&[], value);
                    }
                }
                IndexedPart::Static(id) if row.clustering.is_none() => put_column(row, id, put),
                IndexedPart::Regular(id) if row.clustering.is_some() => put_column(row, id, put),
                _ => {}
            }
        }
    }
}

fn put_column(row: &IndexedRow<'_>, id: ColumnId, mut put: impl FnMut(&[u8], &[u8])) {
    match row.row.column(id) {
        Some(ColumnRef::Simple(cell)) if has_value(&cell) => put(&[], cell.value),
        None | Some(ColumnRef::Simple(_)) => {}
        Some(ColumnRef::Complex(complex)) => {
            let cells = complex.cells().filter(|(_, cell)| has_value(cell));
            cells.for_each(|(path, cell)| put(path, cell.value));
        }
    }
}

fn has_value(cell: &CellRef<'_>) -> bool {
    !cell.is_tombstone()
}

/// Returns false for a row of deletions only.
fn has_any_data(row: RowRef<'_>) -> bool {
    let (liveness, _, mut columns) = row.parts();
    !liveness.is_empty()
        || columns.any(|(_, column)| match column {
            ColumnRef::Simple(cell) => has_value(&cell),
            ColumnRef::Complex(complex) => complex.cells().any(|(_, cell)| has_value(&cell)),
        })
}

/// A component of a composite key: each has its length in two bytes before and a zero byte after it.
fn composite_part(mut key: &[u8], position: usize) -> Option<&[u8]> {
    for _ in 0..position {
        let (length, rest) = key.split_first_chunk::<2>()?;
        key = rest.get(usize::from(u16::from_be_bytes(*length)) + 1..)?;
    }
    let (length, rest) = key.split_first_chunk::<2>()?;
    rest.get(..usize::from(u16::from_be_bytes(*length)))
}
