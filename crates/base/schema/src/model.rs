//! The schema's plain data.

use std::collections::BTreeMap;
use std::sync::Arc;

use stdx::{ColumnId, FixedMap, TableId, TimestampMicros, Uuid};
use types::name::quote_identifier;
use types::{CqlType, UdtType};

use crate::column::{Column, ColumnKind};
use crate::column_order::sort_columns;
use crate::functions::{UserAggregate, UserFunction};
use crate::index::IndexMetadata;

/// Everything that exists, at one epoch. Shared as `Arc<Schema>`; never edited in place.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    /// Keyspaces by name, virtual ones included.
    pub keyspaces: BTreeMap<Arc<str>, Arc<Keyspace>>,
    /// Tables by id, for mutations and files.
    pub tables_by_id: FixedMap<TableId, Arc<Table>>,
    /// The version that drivers compare in `system.local` and `system.peers`: a digest of all
    /// keyspaces that are not local to a node.
    pub version: Uuid,
}

impl Schema {
    /// The keyspace of that exact name.
    pub fn keyspace(&self, name: &str) -> Option<&Arc<Keyspace>> {
        self.keyspaces.get(name)
    }

    /// The table of that exact name.
    pub fn table(&self, keyspace: &str, table: &str) -> Option<&Arc<Table>> {
        self.keyspaces.get(keyspace)?.tables.get(table)
    }

    /// The table of that id.
    pub fn table_by_id(&self, id: TableId) -> Option<&Arc<Table>> {
        self.tables_by_id.get(&id)
    }
}

/// One keyspace with its tables, user types and functions.
#[derive(Clone, Debug)]
pub struct Keyspace {
    /// Name, case kept.
    pub name: Arc<str>,
    /// Replication and durability.
    pub params: KeyspaceParams,
    /// Tables by name.
    pub tables: BTreeMap<Arc<str>, Arc<Table>>,
    /// User types by name.
    pub types: BTreeMap<Arc<str>, Arc<UdtType>>,
    /// User functions, ordered as INV-schema-5 says.
    pub functions: Vec<Arc<UserFunction>>,
    /// User aggregates, ordered alike.
    pub aggregates: Vec<Arc<UserAggregate>>,
    /// True for `system_views` and `system_virtual_schema`: computed, not stored.
    pub is_virtual: bool,
}

/// Options of a keyspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyspaceParams {
    /// False: writes skip the commit log.
    pub durable_writes: bool,
    /// The replication map as stored: `class` is the full Java class name, as in `system_schema`.
    pub replication: BTreeMap<String, String>,
}

/// Purpose of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableKind {
    /// A user's or system table, stored.
    Regular,
    /// Computed on read.
    Virtual,
    /// Stored, made WITH COMPACT STORAGE.
    Compact(CompactForm),
}

/// Form in which a table made WITH COMPACT STORAGE stores its rows. Every form has at least one
/// clustering column and one regular column. Its rows have no markers: a row exists while it has a
/// cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompactForm {
    /// No clustering column was declared: the declared columns are static; the clustering column
    /// and the regular column are hidden. Flags: none.
    Static,
    /// One clustering column. Flag `dense`.
    Dense,
    /// Several clustering columns, the last of which may be null in a row. Flags `dense`, `compound`.
    DenseCompound,
}

/// One table.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Identity; also in the directory name.
    pub id: TableId,
    /// Keyspace name.
    pub keyspace: Arc<str>,
    /// Table name, case kept.
    pub name: Arc<str>,
    /// Stored or computed.
    pub kind: TableKind,
    /// All columns, ordered as INV-schema-2 says.
    pub columns: Vec<Column>,
    /// How many of `columns` are partition key, clustering and static; the rest is regular.
    pub partition_key_count: usize,
    /// See `partition_key_count`.
    pub clustering_count: usize,
    /// See `partition_key_count`.
    pub static_count: usize,
    /// Options of `WITH …`.
    pub options: TableOptions,
    /// Columns that were dropped, by name, newest drop of each name.
    pub dropped: BTreeMap<Arc<str>, DroppedColumn>,
    /// Masks of columns that have one (INV-schema-4).
    pub masks: BTreeMap<ColumnId, ColumnMask>,
    /// Secondary indexes, ordered by name (INV-schema-6).
    pub indexes: Arc<[Arc<IndexMetadata>]>,
    /// Grows by one at every ALTER of this table; written into mutations, 1 at CREATE.
    pub version: u64,
    /// The next column id to assign: above every id ever used in this table.
    pub next_column_id: u16,
}

impl Table {
    /// Partition-key columns in key order.
    pub fn partition_key(&self) -> &[Column] {
        self.columns.get(..self.partition_key_count).unwrap_or(&[])
    }

    /// Names of the partition-key columns in the form that statements have: `a, "B"`.
    pub fn partition_key_names(&self) -> String {
        let names = self.partition_key().iter().map(|column| quote_identifier(&column.name));
        names.collect::<Vec<_>>().join(", ")
    }

    /// Clustering columns in clustering order.
    pub fn clustering(&self) -> &[Column] {
        let start = self.partition_key_count;
        self.columns.get(start..start + self.clustering_count).unwrap_or(&[])
    }

    /// Static columns, by name.
    pub fn statics(&self) -> &[Column] {
        let start = self.partition_key_count + self.clustering_count;
        self.columns.get(start..start + self.static_count).unwrap_or(&[])
    }

    /// Regular columns, by name.
    pub fn regulars(&self) -> &[Column] {
        let start = self.partition_key_count + self.clustering_count + self.static_count;
        self.columns.get(start..).unwrap_or(&[])
    }

    /// Returns true if it holds counters: then all of its columns outside the key do, dropped ones
    /// included.
    pub fn is_counter(&self) -> bool {
        self.columns
            .iter()
            .chain(self.dropped.values().map(|d| &d.column))
            .any(|c| c.ty.is_counter())
    }

    /// Computed on read.
    pub fn is_virtual(&self) -> bool {
        self.kind == TableKind::Virtual
    }

    /// Returns the form of a table made WITH COMPACT STORAGE.
    pub fn compact_form(&self) -> Option<CompactForm> {
        match self.kind {
            TableKind::Compact(form) => Some(form),
            TableKind::Regular | TableKind::Virtual => None,
        }
    }

    /// Made WITH COMPACT STORAGE, without clustering columns.
    pub fn is_static_compact(&self) -> bool {
        self.kind == TableKind::Compact(CompactForm::Static)
    }

    /// Returns true if statements may not name the column: it exists only for the data of compact
    /// storage. Source: `CompactTableMetadata.isHiddenColumn`.
    pub fn is_hidden(&self, column: &Column) -> bool {
        match self.compact_form() {
            None => false,
            Some(CompactForm::Static) => {
                matches!(column.kind, ColumnKind::Clustering { .. } | ColumnKind::Regular)
            }
            Some(CompactForm::Dense | CompactForm::DenseCompound) => {
                column.kind == ColumnKind::Regular && column.ty == CqlType::Empty
            }
        }
    }

    /// The columns that statements may name, with their places in `columns`.
    pub fn visible(&self) -> impl Iterator<Item = (usize, &Column)> {
        self.columns.iter().enumerate().filter(|(_, c)| !self.is_hidden(c))
    }

    /// The column of that exact name, unless it is hidden.
    pub fn visible_column(&self, name: &str) -> Option<&Column> {
        self.column(name).filter(|c| !self.is_hidden(c))
    }

    /// The column of that exact name.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|c| &*c.name == name)
    }

    /// The column of that id; `None` for dropped ones.
    pub fn column_by_id(&self, id: ColumnId) -> Option<&Column> {
        self.columns.iter().find(|c| c.id == id)
    }

    /// Columns that were dropped and not added again. Their cells that are newer than the drop are hidden, not
    /// gone: they are shown again once the column is added again. A counter column cannot be.
    pub fn hidden(&self) -> impl Iterator<Item = &DroppedColumn> {
        let may_return = !self.is_counter();
        let is_hidden =
            move |d: &&DroppedColumn| may_return && self.column(&d.column.name).is_none();
        self.dropped.values().filter(is_hidden)
    }

    /// The table with hidden columns as columns of it, as files are written that keep their cells; `None` when
    /// `keep` chooses none.
    pub fn with_hidden(&self, keep: impl Fn(&DroppedColumn) -> bool) -> Option<Table> {
        let kept: Vec<Column> =
            self.hidden().filter(|d| keep(d)).map(|d| d.column.clone()).collect();
        if kept.is_empty() {
            return None;
        }
        let mut table = self.clone();
        let statics = kept.iter().filter(|c| c.kind == ColumnKind::Static).count();
        table.static_count = table.static_count.saturating_add(statics);
        table.columns.extend(kept);
        sort_columns(&mut table.columns);
        Some(table)
    }

    /// The mask of a column.
    pub fn mask_of(&self, column: &Column) -> Option<&ColumnMask> {
        self.masks.get(&column.id)
    }

    /// `name-<id without dashes>`: the table's directory below its keyspace's.
    pub fn directory_name(&self) -> String {
        format!("{}-{}", self.name, self.id.to_hex())
    }
}

/// Mask of a column for roles that may not see its values: a function over the value and fixed
/// further arguments (`MASKED WITH name(arguments)`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnMask {
    /// Name of a native masking function, or of a user's function in the keyspace of the table.
    pub function: Arc<str>,
    /// Type of the first argument, which is the column, of a user's function; `None`: a native
    /// function.
    pub users: Option<CqlType>,
    /// Types and values of its arguments after the first one, which is the column; `None` is null.
    pub args: Vec<(CqlType, Option<Vec<u8>>)>,
}

impl ColumnMask {
    /// Types of all arguments of the user's function that it is; `None`: a native one.
    pub fn users_arguments(&self) -> Option<Vec<CqlType>> {
        let first = self.users.clone()?;
        Some(std::iter::once(first).chain(self.args.iter().map(|(ty, _)| ty.clone())).collect())
    }

    /// The keyspace of its function; `table` is the one whose mask it is.
    pub fn keyspace<'t>(&self, table: &'t Table) -> &'t str {
        if self.users.is_some() { &table.keyspace } else { "system" }
    }
}

/// A column that was dropped: its cells older than the drop are gone, newer ones are hidden until it is added again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DroppedColumn {
    /// The column as it was.
    pub column: Column,
    /// Cells written at or before this are gone.
    pub dropped_at: TimestampMicros,
}

/// Options of a table, with Cassandra 5.0's defaults ([`Default`]). Maps hold the text that
/// `system_schema.tables` shows; classes are full Java names.
#[derive(Clone, Debug, PartialEq)]
pub struct TableOptions {
    /// `additional_write_policy`, default `99p`.
    pub additional_write_policy: String,
    /// `allow_auto_snapshot`, default true.
    pub allow_auto_snapshot: bool,
    /// `bloom_filter_fp_chance`; `None` = the compaction strategy's default (0.01, LCS 0.1).
    pub bloom_filter_fp_chance: Option<f64>,
    /// `caching`: `keys`, `rows_per_partition`.
    pub caching: BTreeMap<String, String>,
    /// `cdc`.
    pub cdc: bool,
    /// `comment`.
    pub comment: String,
    /// `compaction`: `class` and its options.
    pub compaction: BTreeMap<String, String>,
    /// `compression`: `class`, `chunk_length_in_kb` …; `{'enabled': 'false'}` = none.
    pub compression: BTreeMap<String, String>,
    /// `crc_check_chance`, 0..=1.
    pub crc_check_chance: f64,
    /// `default_time_to_live`, seconds, 0 = none.
    pub default_time_to_live: i32,
    /// `extensions`: name to bytes.
    pub extensions: BTreeMap<String, Vec<u8>>,
    /// `gc_grace_seconds`, default 864000.
    pub gc_grace_seconds: i32,
    /// `incremental_backups`, default true.
    pub incremental_backups: bool,
    /// `max_index_interval`, default 2048.
    pub max_index_interval: i32,
    /// `memtable`: name of a configuration; `None` = default.
    pub memtable: Option<String>,
    /// `memtable_flush_period_in_ms`, 0 = never.
    pub memtable_flush_period_in_ms: i32,
    /// `min_index_interval`, default 128.
    pub min_index_interval: i32,
    /// `read_repair`: `BLOCKING` or `NONE`.
    pub read_repair: String,
    /// `speculative_retry`, default `99p`.
    pub speculative_retry: String,
}

fn string_map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

impl Default for TableOptions {
    fn default() -> Self {
        TableOptions {
            additional_write_policy: "99p".to_owned(),
            allow_auto_snapshot: true,
            bloom_filter_fp_chance: None,
            caching: string_map(&[("keys", "ALL"), ("rows_per_partition", "NONE")]),
            cdc: false,
            comment: String::new(),
            compaction: string_map(&[
                ("class", "org.apache.cassandra.db.compaction.SizeTieredCompactionStrategy"),
                ("max_threshold", "32"),
                ("min_threshold", "4"),
            ]),
            compression: string_map(&[
                ("chunk_length_in_kb", "16"),
                ("class", "org.apache.cassandra.io.compress.LZ4Compressor"),
            ]),
            crc_check_chance: 1.0,
            default_time_to_live: 0,
            extensions: BTreeMap::new(),
            gc_grace_seconds: 864_000,
            incremental_backups: true,
            max_index_interval: 2048,
            memtable: None,
            memtable_flush_period_in_ms: 0,
            min_index_interval: 128,
            read_repair: "BLOCKING".to_owned(),
            speculative_retry: "99p".to_owned(),
        }
    }
}
