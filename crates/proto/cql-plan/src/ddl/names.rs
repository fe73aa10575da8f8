//! Lengths of names and numbers of parts that the schema tables and the protocol can hold.
//!
//! Names are clustering values of `system_schema` and strings with two bytes of length on the wire. Cassandra fails
//! with a server error in the middle of the change where it could not flush such a row, and accepts field names
//! whose tables no client can read. Here all of them are refused before anything is changed.

use data::writable::CLUSTERING_BYTES_MAX;
use schema::SchemaChange;
use types::CqlType;

use crate::error::PlanError;

/// Most elements of a tuple and fields of a user type: two bytes on the wire, signed in paths of cells.
const PARTS_MAX: usize = i16::MAX as usize;

/// Bytes of the count of a serialised list, and of the length of each element.
const LIST_LENGTH_BYTES: usize = 4;

/// Checks one change before it is applied.
///
/// # Errors
/// A name that is too long, a type with too many parts.
pub(super) fn check(change: &SchemaChange) -> Result<(), PlanError> {
    match change {
        SchemaChange::CreateTable(table) | SchemaChange::AlterTable(table) => {
            for column in &table.columns {
                // Together they are the clustering of the row that shows the column.
                let max = CLUSTERING_BYTES_MAX.saturating_sub(table.name.len());
                check_name("Column", &column.name, max)?;
                check_type(&column.ty)?;
            }
            Ok(())
        }
        SchemaChange::CreateType(udt) | SchemaChange::AlterType(udt) => {
            check_name("Type", &udt.name, CLUSTERING_BYTES_MAX)?;
            for (field, ty) in &udt.fields {
                check_name("Field", field, CLUSTERING_BYTES_MAX)?;
                check_type(ty)?;
            }
            check_parts("Type", udt.fields.len())
        }
        SchemaChange::PutFunction(function) => {
            for name in &function.arg_names {
                check_name("Argument", name, CLUSTERING_BYTES_MAX)?;
            }
            check_type(&function.returns)?;
            check_signature("Function", &function.name, &function.args)
        }
        SchemaChange::PutAggregate(aggregate) => {
            check_signature("Aggregate", &aggregate.name, &aggregate.args)
        }
        _ => Ok(()),
    }
}

fn check_name(what: &str, name: &str, max: usize) -> Result<(), PlanError> {
    match name.len() {
        bytes if bytes > max => Err(PlanError::invalid(format!(
            "{what} name of {bytes} bytes is longer than maximum of {max}"
        ))),
        _ => Ok(()),
    }
}

/// Name and argument types are together the clustering of the row that shows the function.
fn check_signature(what: &str, name: &str, args: &[CqlType]) -> Result<(), PlanError> {
    check_name(what, name, CLUSTERING_BYTES_MAX)?;
    args.iter().try_for_each(check_type)?;
    let of_types = args.iter().map(|ty| LIST_LENGTH_BYTES.saturating_add(ty.to_string().len()));
    let bytes = of_types.fold(LIST_LENGTH_BYTES, usize::saturating_add).saturating_add(name.len());
    match bytes {
        ..=CLUSTERING_BYTES_MAX => Ok(()),
        _ => Err(PlanError::invalid(format!(
            "{what} signature of {bytes} bytes is longer than maximum of {CLUSTERING_BYTES_MAX}"
        ))),
    }
}

fn check_parts(what: &str, count: usize) -> Result<(), PlanError> {
    match count {
        ..=PARTS_MAX => Ok(()),
        _ => Err(PlanError::invalid(format!(
            "{what} of {count} elements has more than maximum of {PARTS_MAX}"
        ))),
    }
}

/// Tuples at any depth. User types were checked when they were made.
fn check_type(ty: &CqlType) -> Result<(), PlanError> {
    match ty {
        CqlType::Tuple(elements) => {
            check_parts("Tuple", elements.len())?;
            elements.iter().try_for_each(check_type)
        }
        CqlType::List { element, .. } | CqlType::Set { element, .. } => check_type(element),
        CqlType::Map { key, value, .. } => check_type(key).and_then(|()| check_type(value)),
        CqlType::Vector { element, .. } => check_type(element),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use schema::Schema;
    use stdx::{Uuid, WallMicros};

    use super::*;
    use crate::ddl::{DdlContext, DdlPlan};

    fn run(schema: &Schema, text: &str) -> Result<Vec<SchemaChange>, PlanError> {
        let plan = DdlPlan::new(&cql_syntax::parse(text).unwrap().kind, Some("ks")).unwrap()?;
        let outcome = plan.outcome(&mut DdlContext {
            schema,
            datacenters: &[("dc1", 1)],
            moving: &[],
            new_table_id: &mut || Uuid::from_u128(text.len() as u128),
            now: WallMicros(0),
            watch: None,
            default_factor: 1,
            default_compaction: None,
            drop_compact_storage: true,
            functions: None,
            indexes: &crate::ddl::IndexSettings::default(),
        })?;
        Ok(outcome.changes)
    }

    fn schema() -> Schema {
        let mut schema: Schema = crate::system::system_schema();
        for text in [
            "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
            "CREATE TYPE ty (a int)",
            "CREATE TABLE t (k int, c int, PRIMARY KEY (k, c))",
        ] {
            for change in run(&schema, text).unwrap() {
                schema = schema.apply(&change).unwrap();
            }
        }
        schema
    }

    #[test]
    fn names_that_no_schema_table_can_hold_are_refused_and_the_longest_accepted() {
        let schema = schema();
        for (text, what, max) in [
            ("CREATE TYPE \"X\" (a int)", "Type", 65_535),
            ("CREATE TYPE ty1 (\"X\" int)", "Field", 65_535),
            ("ALTER TYPE ty ADD \"X\" int", "Field", 65_535),
            ("ALTER TYPE ty RENAME a TO \"X\"", "Field", 65_535),
            ("CREATE TABLE t1 (k int PRIMARY KEY, \"X\" int)", "Column", 65_533),
            ("CREATE TABLE t1 (\"X\" int PRIMARY KEY)", "Column", 65_533),
            ("ALTER TABLE t ADD \"X\" int", "Column", 65_534),
            ("ALTER TABLE t RENAME c TO \"X\"", "Column", 65_534),
        ] {
            let named = |bytes: usize| run(&schema, &text.replace('X', &"x".repeat(bytes)));
            let changes = named(max).unwrap();
            assert_eq!(changes.len(), 1, "{text}");
            let told = format!("{what} name of {} bytes is longer than maximum of {max}", max + 1);
            assert_eq!(named(max + 1), Err(PlanError::invalid(told)), "{text}");
        }
    }

    #[test]
    fn tuples_types_and_signatures_have_as_many_parts_as_the_protocol_can_say() {
        let tuple = |count: usize| {
            let ints = vec![CqlType::Int; count];
            check_type(&CqlType::list(CqlType::Tuple(ints.into()), true))
        };
        assert_eq!(tuple(32_767), Ok(()));
        let told = "Tuple of 32768 elements has more than maximum of 32767";
        assert_eq!(tuple(32_768), Err(PlanError::invalid(told)));
        // Each type is 3 bytes and its length; the count and the name are there once.
        let signature = |count: usize| check_signature("Function", "f", &vec![CqlType::Int; count]);
        assert_eq!(signature(9_361), Ok(()));
        let told = "Function signature of 65539 bytes is longer than maximum of 65535";
        assert_eq!(signature(9_362), Err(PlanError::invalid(told)));
    }
}
