//! Rows built by the program: computed tables and the node's own writes.
//!
//! Owns: typed setters by column name over the packed row format, serialised keys of such rows.
//! Never: decides which rows exist, IO, clocks.
//!
//! Source of the value encodings: Cassandra 5.0 `db.marshal`; of the composite partition key:
//! `CompositeType`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use data::clustering::push_component;
use data::{CellRef, DeletionTime, Liveness, RowBuilder};
use schema::{Column, Table};
use stdx::{DeletionSeconds, TimestampMicros, Uuid};
use types::wire::{self, CollectionKind};
use types::{CqlType, TypeError};

/// One row of a virtual table, packed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtualRow {
    /// Serialised partition key.
    pub key: Vec<u8>,
    /// Serialised clustering.
    pub clustering: Vec<u8>,
    /// The packed row.
    pub row: Vec<u8>,
}

/// Why a row could not be made; all but `Value` are mistakes in the caller's column names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VirtualRowError {
    /// The table has no such column.
    #[error("table {table} has no column {column}")]
    UnknownColumn {
        /// `keyspace.table`.
        table: String,
        /// The name given.
        column: String,
    },
    /// The setter does not fit the column's type.
    #[error("column {column} of table {table} has the type {ty}")]
    WrongType {
        /// `keyspace.table`.
        table: String,
        /// The column.
        column: String,
        /// Its type.
        ty: CqlType,
    },
    /// A partition-key or clustering column got no value.
    #[error("column {column} of table {table} has no value")]
    MissingKey {
        /// `keyspace.table`.
        table: String,
        /// The column.
        column: String,
    },
    /// A value is longer than its encoding allows.
    #[error(transparent)]
    Value(#[from] TypeError),
}

/// Builds one row by column name. Setters remember the first mistake, [`finish`](Self::finish)
/// returns it; a column not set is null.
#[derive(Clone, Debug)]
pub struct VirtualRowBuilder<'t> {
    table: &'t Table,
    timestamp: TimestampMicros,
    /// By position in `table.columns`.
    values: Vec<Option<Vec<u8>>>,
    error: Option<VirtualRowError>,
}

impl<'t> VirtualRowBuilder<'t> {
    /// A row of a computed table, written at timestamp 0.
    pub fn new(table: &'t Table) -> Self {
        VirtualRowBuilder::at(table, TimestampMicros(0))
    }

    /// A row whose cells have the given timestamp. Multi-cell columns replace their previous
    /// contents: they carry a deletion one microsecond older.
    pub fn at(table: &'t Table, timestamp: TimestampMicros) -> Self {
        let values = vec![None; table.columns.len()];
        VirtualRowBuilder { table, timestamp, values, error: None }
    }

    fn table_name(&self) -> String {
        format!("{}.{}", self.table.keyspace, self.table.name)
    }

    fn put(
        &mut self,
        name: &str,
        fits: impl FnOnce(&CqlType) -> bool,
        value: Option<Vec<u8>>,
    ) -> &mut Self {
        let table = self.table;
        let Some(at) = table.columns.iter().position(|c| &*c.name == name) else {
            let column = name.to_owned();
            let error = VirtualRowError::UnknownColumn { table: self.table_name(), column };
            self.error.get_or_insert(error);
            return self;
        };
        if let (Some(column), Some(slot)) = (table.columns.get(at), self.values.get_mut(at)) {
            if fits(&column.ty) {
                *slot = value;
            } else {
                let (name, ty) = (name.to_owned(), column.ty.clone());
                let error =
                    VirtualRowError::WrongType { table: self.table_name(), column: name, ty };
                self.error.get_or_insert(error);
            }
        }
        self
    }

    fn put_encoded(
        &mut self,
        name: &str,
        fits: impl FnOnce(&CqlType) -> bool,
        value: Result<Vec<u8>, TypeError>,
    ) -> &mut Self {
        match value {
            Ok(value) => self.put(name, fits, Some(value)),
            Err(error) => {
                self.error.get_or_insert(VirtualRowError::Value(error));
                self
            }
        }
    }

    /// A value serialised already, for a column of any type; multi-cell columns take the
    /// serialisation of the frozen type, in its order.
    pub fn bytes(&mut self, name: &str, value: Vec<u8>) -> &mut Self {
        self.put(name, |_| true, Some(value))
    }

    /// `text` or `ascii`.
    pub fn text(&mut self, name: &str, value: &str) -> &mut Self {
        let fits = |t: &CqlType| matches!(t, CqlType::Text | CqlType::Ascii);
        self.put(name, fits, Some(value.as_bytes().to_vec()))
    }

    /// `text` or null.
    pub fn text_or_null(&mut self, name: &str, value: Option<&str>) -> &mut Self {
        match value {
            Some(value) => self.text(name, value),
            None => self.put(name, |t| matches!(t, CqlType::Text | CqlType::Ascii), None),
        }
    }

    /// `int`.
    pub fn int(&mut self, name: &str, value: i32) -> &mut Self {
        self.put(name, |t| *t == CqlType::Int, Some(value.to_be_bytes().to_vec()))
    }

    /// `bigint`.
    pub fn bigint(&mut self, name: &str, value: i64) -> &mut Self {
        self.put(name, |t| *t == CqlType::Bigint, Some(value.to_be_bytes().to_vec()))
    }

    /// `double`.
    pub fn double(&mut self, name: &str, value: f64) -> &mut Self {
        self.put(name, |t| *t == CqlType::Double, Some(value.to_be_bytes().to_vec()))
    }

    /// `float`.
    pub fn float(&mut self, name: &str, value: f32) -> &mut Self {
        self.put(name, |t| *t == CqlType::Float, Some(value.to_be_bytes().to_vec()))
    }

    /// `boolean`.
    pub fn boolean(&mut self, name: &str, value: bool) -> &mut Self {
        self.put(name, |t| *t == CqlType::Boolean, Some(vec![u8::from(value)]))
    }

    /// `uuid` or `timeuuid`.
    pub fn uuid(&mut self, name: &str, value: Uuid) -> &mut Self {
        let fits = |t: &CqlType| matches!(t, CqlType::Uuid | CqlType::Timeuuid);
        self.put(name, fits, Some(value.as_bytes().to_vec()))
    }

    /// `inet`.
    pub fn inet(&mut self, name: &str, value: IpAddr) -> &mut Self {
        self.put(name, |t| *t == CqlType::Inet, Some(inet_bytes(value)))
    }

    /// `timestamp`, in milliseconds since the Unix epoch.
    pub fn timestamp_millis(&mut self, name: &str, value: i64) -> &mut Self {
        self.put(name, |t| *t == CqlType::Timestamp, Some(value.to_be_bytes().to_vec()))
    }

    /// `blob`.
    pub fn blob(&mut self, name: &str, value: &[u8]) -> &mut Self {
        self.put(name, |t| *t == CqlType::Blob, Some(value.to_vec()))
    }

    /// `frozen<list<text>>`.
    pub fn text_list<'v>(
        &mut self,
        name: &str,
        values: impl IntoIterator<Item = &'v str>,
    ) -> &mut Self {
        let fits = |t: &CqlType| matches!(t, CqlType::List { element, frozen: true } if **element == CqlType::Text);
        self.put_encoded(name, fits, wire::encode_collection(values))
    }

    /// `set<text>`, frozen or not.
    pub fn text_set<'v>(
        &mut self,
        name: &str,
        values: impl IntoIterator<Item = &'v str>,
    ) -> &mut Self {
        let fits =
            |t: &CqlType| matches!(t, CqlType::Set { element, .. } if **element == CqlType::Text);
        let sorted: BTreeSet<&str> = values.into_iter().collect();
        self.put_encoded(name, fits, wire::encode_collection(sorted))
    }

    /// `set<frozen<tuple<inet, smallint>>>`: ranges of addresses.
    pub fn range_set(
        &mut self,
        name: &str,
        ranges: impl IntoIterator<Item = (IpAddr, i16)>,
    ) -> &mut Self {
        let element = CqlType::tuple([CqlType::Inet, CqlType::Smallint]);
        let fits = |t: &CqlType| matches!(t, CqlType::Set { element: of, .. } if **of == element);
        let tuple = |(address, prefix): (IpAddr, i16)| {
            wire::encode_tuple([Some(inet_bytes(address)), Some(prefix.to_be_bytes().to_vec())])
        };
        let tuples: Result<Vec<Vec<u8>>, TypeError> = ranges.into_iter().map(tuple).collect();
        let set = tuples.and_then(|mut tuples| {
            tuples.sort_by(|a, b| element.compare(a, b));
            wire::encode_collection(tuples)
        });
        self.put_encoded(name, fits, set)
    }

    /// `map<text, text>`, frozen or not.
    pub fn text_map<'v>(
        &mut self,
        name: &str,
        values: impl IntoIterator<Item = (&'v str, &'v str)>,
    ) -> &mut Self {
        let fits = |t: &CqlType| match t {
            CqlType::Map { key, value, .. } => **key == CqlType::Text && **value == CqlType::Text,
            _ => false,
        };
        let sorted: BTreeMap<&str, &str> = values.into_iter().collect();
        self.put_encoded(name, fits, wire::encode_map(sorted))
    }

    /// `frozen<map<text, frozen<map<text, text>>>>`.
    pub fn text_map_map(
        &mut self,
        name: &str,
        values: BTreeMap<&'static str, BTreeMap<&'static str, String>>,
    ) -> &mut Self {
        let map = |value: CqlType| CqlType::Map {
            key: CqlType::Text.into(),
            value: value.into(),
            frozen: true,
        };
        let fits = |t: &CqlType| *t == map(map(CqlType::Text));
        let inner = values.into_iter().map(|(key, value)| Ok((key, wire::encode_map(value)?)));
        let encoded: Result<Vec<(&str, Vec<u8>)>, TypeError> = inner.collect();
        self.put_encoded(name, fits, encoded.and_then(wire::encode_map))
    }

    /// The row with its keys.
    ///
    /// # Errors
    /// The first mistake of the setters; `MissingKey`.
    pub fn finish(&mut self) -> Result<VirtualRow, VirtualRowError> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        let table = self.table;
        let keys = table.partition_key_count + table.clustering_count;
        let missing = table.columns.iter().zip(&self.values).take(keys).find(|(_, v)| v.is_none());
        if let Some((column, _)) = missing {
            let column = column.name.to_string();
            return Err(VirtualRowError::MissingKey { table: self.table_name(), column });
        }
        let mut values = self.values.iter().flatten().take(keys);
        let parts: Vec<&[u8]> =
            values.by_ref().take(table.partition_key_count).map(Vec::as_slice).collect();
        let key = partition_key(&parts)?;
        let mut clustering = Vec::new();
        for value in values {
            push_component(&mut clustering, Some(value));
        }
        Ok(VirtualRow { key, clustering, row: self.packed()? })
    }

    fn packed(&self) -> Result<Vec<u8>, VirtualRowError> {
        let keys = self.table.partition_key_count + self.table.clustering_count;
        let mut cells: Vec<(&Column, &[u8])> = self
            .table
            .columns
            .iter()
            .zip(&self.values)
            .skip(keys)
            .filter_map(|(column, value)| Some((column, value.as_deref()?)))
            .collect();
        cells.sort_by_key(|(column, _)| column.id);
        let mut out = Vec::new();
        let liveness = Liveness::new(self.timestamp);
        let mut row = RowBuilder::new(&mut out, liveness, DeletionTime::LIVE, self.timestamp);
        for (column, value) in cells {
            if column.is_complex() {
                self.complex(&mut row, column, value)?;
            } else {
                row.cell(column.id, &CellRef::live(self.timestamp, value));
            }
        }
        row.finish();
        Ok(out)
    }

    fn complex(
        &self,
        row: &mut RowBuilder<'_>,
        column: &Column,
        value: &[u8],
    ) -> Result<(), VirtualRowError> {
        let before = DeletionTime {
            timestamp: TimestampMicros(self.timestamp.0.saturating_sub(1)),
            local: DeletionSeconds(self.timestamp.0.div_euclid(1_000_000)),
        };
        row.begin_complex(column.id, before);
        match &column.ty {
            CqlType::Set { .. } => {
                for element in wire::Elements::new(value, CollectionKind::Set)? {
                    let path = element?.unwrap_or_default();
                    row.complex_cell(path, &CellRef::live(self.timestamp, &[]));
                }
            }
            CqlType::Map { .. } => {
                for entry in wire::Entries::new(value)? {
                    let (key, value) = entry?;
                    row.complex_cell(key, &CellRef::live(self.timestamp, value));
                }
            }
            ty => {
                let (column, ty) = (column.name.to_string(), ty.clone());
                return Err(VirtualRowError::WrongType { table: self.table_name(), column, ty });
            }
        }
        row.end_complex();
        Ok(())
    }
}

fn inet_bytes(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

/// Serialised partition key of the components: the value itself, or Cassandra's composite (length
/// as two bytes, value, zero byte) when there are several.
///
/// # Errors
/// A component of a composite longer than 65,535 bytes.
pub fn partition_key(parts: &[&[u8]]) -> Result<Vec<u8>, TypeError> {
    if let [single] = parts {
        return Ok(single.to_vec());
    }
    let mut key = Vec::new();
    for part in parts {
        let length = u16::try_from(part.len())
            .map_err(|_| TypeError::Marshal("key component over 65535 bytes".to_owned()))?;
        key.extend_from_slice(&length.to_be_bytes());
        key.extend_from_slice(part);
        key.push(0);
    }
    Ok(key)
}
