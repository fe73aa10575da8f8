//! Checks that an imported file was written for a table of these types.

use schema::{ColumnKind, Table};
use types::CqlType;

use crate::header::SerializationHeader;
use crate::{FormatError, Result};

impl SerializationHeader {
    /// Compares the types of a file with those of the table that is to receive it: a file of
    /// another table may have columns of the same names. Columns that neither has are skipped: see
    /// [`SerializationHeader::read_schema`].
    ///
    /// # Errors
    /// `Unsupported`, with the column and both types.
    pub fn check_types(&self, table: &Table) -> Result<()> {
        let differs = |column: &str, file: &str, own: &str| {
            let value = match file == own {
                // User types have their name only, and may have got fields since.
                true => format!("{column} {file}, which has other parts in the table"),
                false => format!("{column} {file}, which is {own} in the table"),
            };
            Err(FormatError::Unsupported { what: "column", value })
        };
        let key = table.partition_key();
        let whole = self.whole_key_type();
        let key_types = match (key, &whole) {
            // The name of a composite of one column is that of a key of several.
            ([one], Some(whole)) if one.ty.is_composite() && self.key_types.len() > 1 => {
                std::slice::from_ref(whole)
            }
            _ => self.key_types.as_slice(),
        };
        if key_types.len() != key.len() {
            let (file, own) = (key_types.len().to_string(), key.len().to_string());
            return differs("partition key of columns:", &file, &own);
        }
        for (column, ty) in key.iter().zip(key_types) {
            if !reads(&column.ty, ty) {
                return differs(&column.name, &ty.to_string(), &column.ty.to_string());
            }
        }
        if self.clustering_types.len() != table.clustering().len() {
            let (file, own) = (self.clustering_types.len(), table.clustering().len());
            return differs("clustering columns:", &file.to_string(), &own.to_string());
        }
        for (column, (ty, reversed)) in table.clustering().iter().zip(&self.clustering_types) {
            let is_reversed = matches!(column.kind, ColumnKind::Clustering { reversed: true, .. });
            if !orders(&column.ty, ty) || is_reversed != *reversed {
                let order = |ty: &CqlType, descends: bool| {
                    format!("{ty} {}", if descends { "DESC" } else { "ASC" })
                };
                let (file, own) = (order(ty, *reversed), order(&column.ty, is_reversed));
                return differs(&column.name, &file, &own);
            }
        }
        for column in self.statics.iter().chain(&self.regulars) {
            // A column that was dropped and added again, perhaps with another type, is
            // distinguished by its times.
            let current = table.column(&column.name);
            let current = current.filter(|_| !table.dropped.contains_key(column.name.as_str()));
            if let Some(own) = current.filter(|own| !reads(&own.ty, &column.ty)) {
                return differs(&own.name, &column.ty.to_string(), &own.ty.to_string());
            }
        }
        Ok(())
    }
}

/// Values of the second type are values of the first, in the same order.
fn orders(own: &CqlType, file: &CqlType) -> bool {
    fits(own, file, CqlType::is_compatible_with)
}

/// Values of the second type are values of the first, in as many cells.
pub(crate) fn reads(own: &CqlType, file: &CqlType) -> bool {
    own.is_multi_cell() == file.is_multi_cell()
        && fits(own, file, CqlType::is_value_compatible_with)
}

/// Compares types part by part: below the top, headers do not show which types are frozen. A user
/// type may be of another keyspace or have more fields.
fn fits(own: &CqlType, file: &CqlType, leaf: fn(&CqlType, &CqlType) -> bool) -> bool {
    use CqlType::{List, Map, Set, Tuple, Udt, Vector};
    let is_same_form = match (own, file) {
        (List { .. }, List { .. }) | (Set { .. }, Set { .. }) | (Map { .. }, Map { .. }) => true,
        (Tuple(_) | Udt(_), Tuple(_) | Udt(_)) => true,
        (Vector { dimension: a, .. }, Vector { dimension: b, .. }) => a == b,
        _ => return leaf(own, file),
    };
    let (own, file) = (own.sub_types(), file.sub_types());
    is_same_form
        && own.len() >= file.len()
        && own.iter().zip(&file).all(|(own, file)| fits(own, file, leaf))
}

#[cfg(test)]
mod tests {
    use schema::{Column, TableKind, TableOptions};
    use stdx::{ColumnId, TableId, Uuid};

    use super::*;
    use crate::header::HeaderColumn;

    fn table(v: CqlType) -> Table {
        let columns = [
            ("k", CqlType::Int, ColumnKind::PartitionKey(0)),
            ("c", CqlType::Text, ColumnKind::Clustering { position: 0, reversed: true }),
            ("v", v, ColumnKind::Regular),
        ];
        let columns = (0..).zip(columns).map(|(id, (name, ty, kind))| Column {
            id: ColumnId(id),
            name: name.into(),
            ty,
            kind,
        });
        Table {
            id: TableId(Uuid::nil()),
            keyspace: "ks".into(),
            name: "t".into(),
            kind: TableKind::Regular,
            columns: columns.collect(),
            partition_key_count: 1,
            clustering_count: 1,
            static_count: 0,
            options: TableOptions::default(),
            dropped: Default::default(),
            masks: Default::default(),
            indexes: Default::default(),
            version: 1,
            next_column_id: 3,
        }
    }

    fn header(key: CqlType, clustering: (CqlType, bool), v: CqlType) -> SerializationHeader {
        SerializationHeader {
            stats: crate::header::EncodingStats::NONE,
            key_types: vec![key],
            clustering_types: vec![clustering],
            statics: Vec::new(),
            regulars: vec![HeaderColumn { name: "v".to_owned(), ty: v }],
        }
    }

    #[test]
    fn a_column_of_a_system_table_that_has_another_type_in_the_file_is_passed_over() {
        let file = header(CqlType::Int, (CqlType::Text, true), CqlType::Text);
        let id = |keyspace: &str, v| {
            let table = Table { keyspace: keyspace.into(), ..table(v) };
            let schema = file.read_schema(&table, crate::Version::Nb).unwrap();
            schema.regulars.columns.first().unwrap().id
        };
        assert_eq!(id("system", CqlType::Text), Some(ColumnId(2)));
        assert_eq!(id("system", CqlType::Int), None);
        // Files of users' tables are refused before they are taken in.
        assert_eq!(id("ks", CqlType::Int), Some(ColumnId(2)));
    }

    #[test]
    fn a_dropped_column_is_read_when_its_type_can_be_written_again() {
        let id = |of_file: CqlType, dropped: CqlType, again: Option<CqlType>| {
            let file = header(CqlType::Int, (CqlType::Text, true), of_file);
            let mut table = table(dropped);
            let column = table.columns.pop().unwrap();
            let dropped_at = stdx::TimestampMicros(5);
            let dropped = schema::DroppedColumn { column: column.clone(), dropped_at };
            table.dropped.insert(column.name.clone(), dropped);
            table.columns.extend(again.map(|ty| Column { ty, id: ColumnId(3), ..column }));
            let schema = file.read_schema(&table, crate::Version::Nb).unwrap();
            let read = schema.regulars.columns.first().unwrap();
            assert_eq!(read.dropped_at, dropped_at);
            read.id
        };
        let set = |frozen| CqlType::set(CqlType::Int, frozen);
        for again in [None, Some(CqlType::Text), Some(CqlType::Blob)] {
            let expect = Some(ColumnId(if again.is_some() { 3 } else { 2 }));
            assert_eq!(id(CqlType::Text, CqlType::Text, again.clone()), expect, "{again:?}");
            // For example from an import, or from before a release that rejects other types.
            assert_eq!(id(set(false), CqlType::Text, again.clone()), None, "{again:?}");
        }
        assert_eq!(id(CqlType::Int, CqlType::Text, None), None);
        assert_eq!(id(CqlType::Int, CqlType::Text, Some(CqlType::Text)), None);
        assert_eq!(id(set(false), set(false), None), Some(ColumnId(2)));
        assert_eq!(id(CqlType::Counter, CqlType::Counter, None), None, "it cannot be added again");
    }

    #[test]
    fn a_key_of_one_composite_column_is_told_from_one_of_several_columns() {
        let composite = |count: usize| {
            let types = std::iter::repeat_n((CqlType::Int, false), count).collect();
            types::CustomType::composite(types).map(CqlType::custom).unwrap()
        };
        for count in [1, 2, 3] {
            let mut table = table(CqlType::Text);
            table.columns[0].ty = composite(count);
            let written = header(composite(count), (CqlType::Text, true), CqlType::Text);
            let mut bytes = Vec::new();
            written.encode(&mut bytes);
            let read = SerializationHeader::decode(&bytes).unwrap();
            assert_eq!(read.check_types(&table), Ok(()), "{count}");
            assert_eq!(read.key_type_name(), written.key_type_name());
            table.columns[0].ty = composite(count + 1);
            let other = header(CqlType::Int, (CqlType::Text, true), CqlType::Text);
            assert!(other.check_types(&table).is_err());
        }
    }

    #[test]
    fn a_file_of_other_types_is_refused_and_the_column_is_named() {
        use CqlType::{Ascii, Bigint, Blob, Int, Text};
        let cases = [
            (header(Int, (Text, true), Text), None),
            // Types that can be read as the table's type are accepted.
            (header(Int, (Ascii, true), Ascii), None),
            (header(Bigint, (Text, true), Text), Some("k bigint, which is int in the table")),
            (header(Int, (Text, false), Text), Some("c text ASC, which is text DESC in the table")),
            (header(Int, (Int, true), Text), Some("c int DESC, which is text DESC in the table")),
            (header(Int, (Text, true), Blob), Some("v blob, which is text in the table")),
        ];
        for (header, wrong) in cases {
            let result = header.check_types(&table(Text)).map_err(|error| error.to_string());
            match wrong {
                None => assert_eq!(result, Ok(())),
                Some(text) => {
                    assert!(result.as_ref().is_err_and(|e| e.contains(text)), "{result:?}, {text}")
                }
            }
        }
        // With fewer columns or more it is another table, even if the types of the first ones
        // match.
        for clustering_types in [vec![], vec![(Text, true), (Text, true)]] {
            let file = SerializationHeader { clustering_types, ..header(Int, (Text, true), Text) };
            let error = file.check_types(&table(Text)).unwrap_err().to_string();
            assert!(error.contains("clustering columns: "), "{error}");
        }
        // A field that the table's type does not have would be lost; one that the file's does not is null.
        let udt = |fields: usize| {
            let names = ["a", "b"].iter().take(fields).map(|name| ((*name).to_owned(), Int));
            let (keyspace, name) = ("ks".into(), "u".into());
            CqlType::Udt(std::sync::Arc::new(types::UdtType {
                keyspace,
                name,
                fields: names.collect(),
                frozen: true,
            }))
        };
        let file = header(Int, (Text, true), udt(2));
        let error = file.check_types(&table(udt(1))).unwrap_err().to_string();
        assert!(error.contains("v frozen<u>, which has other parts in the table"), "{error}");
        assert!(header(Int, (Text, true), udt(1)).check_types(&table(udt(2))).is_ok());
        // Below the top, the header does not show which types are frozen.
        let nested = |frozen| CqlType::set(CqlType::list(Int, frozen), true);
        assert!(header(Int, (Text, true), nested(false)).check_types(&table(nested(true))).is_ok());
        let list = CqlType::List { element: std::sync::Arc::new(Int), frozen: false };
        assert!(header(Int, (Text, true), list.clone()).check_types(&table(Text)).is_err());
        assert!(header(Int, (Text, true), list.clone()).check_types(&table(list)).is_ok());
    }
}
