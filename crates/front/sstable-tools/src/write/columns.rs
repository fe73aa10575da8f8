//! Rows that come with the values of columns instead of JSON.

use cql_plan::plan::BoundValue;
use schema::{Column, ColumnKind};
use store::Store;

use super::times::{Fact, Times, fact_of};
use super::{Plans, Row, Rows};
use crate::parquet::{FileReader, Value, to_cql};
use crate::schema_file;

/// The columns of a file and how its rows are written.
pub(super) struct Columns<'o> {
    columns: Vec<&'o Column>,
    /// Meaning of each column of the file, in the order of the file.
    kinds: Vec<Option<(Fact, &'o Column)>>,
    plans: Plans,
}

impl<'o> Columns<'o> {
    /// # Errors
    /// A column that the table does not have, or one of its key that the file does not.
    pub(super) fn new(rows: &Rows<'o>, file: &FileReader) -> Result<Columns<'o>, String> {
        let (mut columns, mut kinds) = (Vec::new(), Vec::new());
        for name in file.names() {
            let fact = fact_of(rows.table, name);
            kinds.push(fact);
            if fact.is_some() {
                continue;
            }
            let column = rows.table.column(name);
            let table = || schema_file::name_of(rows.table);
            columns.push(column.ok_or_else(|| format!("{} has no column \"{name}\"", table()))?);
        }
        let clustering = rows.table.clustering().iter();
        let has_clustering =
            clustering.clone().any(|key| columns.iter().any(|column| column.name == key.name));
        let insert = |of_statics: bool| {
            let columns = columns.iter().filter(|column| !of_statics || is_of_partition(column));
            let names = columns.map(|column| types::name::quote_identifier(&column.name));
            let names: Vec<String> = names.collect();
            format!("({}) VALUES ({})", names.join(", "), vec!["?"; names.len()].join(", "))
        };
        let schema = rows.schema_of_statics.as_ref();
        let of_statics = schema.map(|schema| rows.plan(schema, &insert(true))).transpose()?;
        let plan = match &of_statics {
            // It writes static columns only.
            Some(_) if !has_clustering => rows.plan(schema.unwrap_or(rows.schema), &insert(true)),
            _ => rows.plan(rows.schema, &insert(false)),
        };
        Ok(Columns { columns, kinds, plans: Plans { plan: plan?, of_statics } })
    }

    /// Writes a row; its bytes.
    ///
    /// # Errors
    /// A value that is not of its column's type, a key that is null.
    pub(super) fn write(
        &self,
        rows: &Rows<'_>,
        store: &Store,
        row: &[Value],
    ) -> Result<u64, String> {
        let mut times = Times::default();
        for (kind, value) in self.kinds.iter().zip(row) {
            if let Some((fact, column)) = kind {
                times.put_value(*fact, column, value)?;
            }
        }
        let mut values = Vec::with_capacity(self.columns.len());
        let of_row = self.kinds.iter().zip(row).filter(|(kind, _)| kind.is_none());
        for (column, (_, value)) in self.columns.iter().zip(of_row) {
            let value = to_cql(value, &column.ty);
            values.push(value.map_err(|text| format!("column {}: {text}", column.name))?);
        }
        let given = || self.columns.iter().zip(&values).filter(|(_, value)| value.is_some());
        let is_clustering = |kind| matches!(kind, ColumnKind::Clustering { .. });
        let is_of_statics = self.plans.of_statics.is_some()
            && !given().any(|(column, _)| is_clustering(column.kind));
        if is_of_statics
            && let Some((column, _)) = given().find(|(c, _)| c.kind == ColumnKind::Regular)
        {
            let name = &column.name;
            return Err(format!(
                "column {name} belongs to a row, and no clustering column is given"
            ));
        }
        let wanted = self.columns.iter().zip(&values);
        let wanted = wanted.filter(|(column, _)| !is_of_statics || is_of_partition(column));
        let bound: Vec<BoundValue<'_>> = wanted
            .map(|(column, value)| match (value, column.kind) {
                (Some(value), _) => BoundValue::Bytes(value),
                (None, ColumnKind::Regular | ColumnKind::Static) => BoundValue::Unset,
                // Refused by name where it is bound.
                (None, _) => BoundValue::Null,
            })
            .collect();
        rows.bound(store, &self.plans, &Row { values: &bound, is_of_statics, times })
    }
}

fn is_of_partition(column: &Column) -> bool {
    matches!(column.kind, ColumnKind::PartitionKey(_) | ColumnKind::Static)
}
