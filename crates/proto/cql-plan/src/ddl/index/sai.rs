//! Rules of storage-attached indexes.
//!
//! Source: `StorageAttachedIndex.validateOptions`, `NonTokenizingOptions`, `IndexWriterConfig`.

use std::collections::BTreeMap;

use schema::{
    Column, ColumnKind, INDEX_TARGET, IndexKind, IndexRules, IndexTarget, Table, TargetPart,
};
use types::CqlType;
use types::marshal::composite_marshal_name;

use super::target::{is_vector, term_type};
use super::{Attributes, NewIndex, in_slots};
use crate::error::PlanError;

/// Options of text, in the order in which Cassandra checks them.
const TEXT_OPTIONS: [&str; 3] = ["case_sensitive", "ascii", "normalize"];
/// Options of vectors.
const VECTOR_OPTIONS: [&str; 4] =
    ["maximum_node_connections", "construction_beam_width", "similarity_function", "optimize_for"];

/// Option that names the model which made the vectors. Clients write it for other databases; it is kept, and Cassandra
/// refuses it.
const SOURCE_MODEL: &str = "source_model";

/// Checks that the table has no such index of the same part of the column.
pub(super) fn check_unique(index: &NewIndex<'_>) -> Result<(), PlanError> {
    let [target] = index.targets.as_slice() else { return Ok(()) };
    let mut others = index.table.indexes.iter();
    if others.any(|other| other.rules == IndexRules::Sai && other.target == *target) {
        return Err(PlanError::invalid(format!(
            "Cannot create more than one storage-attached index on the same column: {}",
            target.column
        )));
    }
    Ok(())
}

/// Checks options, target and type.
pub(super) fn check(attributes: &Attributes, index: &NewIndex<'_>) -> Result<(), PlanError> {
    check_known(&attributes.written)?;
    let options = &attributes.options;
    let shown = index.options.get(INDEX_TARGET).map_or("", String::as_str);
    let target = match index.targets.as_slice() {
        [target] => target,
        [] => {
            return Err(PlanError::invalid(format!(
                "Failed to retrieve target column for: {shown}"
            )));
        }
        _ => {
            return Err(PlanError::invalid(format!(
                "A storage-attached index cannot be created over multiple columns: {shown}"
            )));
        }
    };
    let Some(column) = index.table.column(&target.column) else {
        return Err(super::undefined(&target.column, index.table));
    };
    let text: Vec<(&str, &str)> = options
        .iter()
        .filter(|(key, _)| TEXT_OPTIONS.contains(&key.as_str()))
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    let mut vector_options = VECTOR_OPTIONS.iter().chain([&SOURCE_MODEL]);
    let of_vector = vector_options.any(|option| options.contains_key(*option));
    check_text_options(&text, column, target.part)?;
    if of_vector {
        check_vector_options(options, column, target.part)?;
    }
    check_type(column, target.part)?;
    match term_type(column, target.part) {
        Some(CqlType::Vector { element, dimension }) => check_vector(element, *dimension, options),
        _ => Ok(()),
    }
}

/// Refuses options that have no meaning, in the order in which Cassandra lists them.
fn check_known(written: &[String]) -> Result<(), PlanError> {
    let is_known = |key: &str| {
        TEXT_OPTIONS.contains(&key) || VECTOR_OPTIONS.contains(&key) || key == SOURCE_MODEL
    };
    let slots = |entries: usize| entries.saturating_mul(4).div_ceil(3).next_power_of_two();
    // The options with the class, copied with room for them, and the target put beside them.
    let copied = (written.len().saturating_add(1).saturating_mul(4) / 3 + 1).next_power_of_two();
    let all = copied.max(slots(written.len().saturating_add(2)));
    let of_statement = in_slots(written.iter().map(String::as_str), 16);
    let options = in_slots(of_statement.into_iter(), all).into_iter();
    let unknown: Vec<&str> = options.filter(|key| !is_known(key)).collect();
    if unknown.is_empty() {
        return Ok(());
    }
    // A map with room for two to begin with.
    let room = slots(unknown.len()).max(2);
    let unknown = in_slots(unknown.into_iter(), room);
    Err(PlanError::config(format!(
        "Properties specified [{}] are not understood by StorageAttachedIndex",
        unknown.join(", ")
    )))
}

fn check_text_options(
    options: &[(&str, &str)],
    column: &Column,
    part: TargetPart,
) -> Result<(), PlanError> {
    if options.is_empty() {
        return Ok(());
    }
    let is_key = matches!(column.kind, ColumnKind::PartitionKey(_) | ColumnKind::Clustering { .. });
    if is_key {
        let shown: Vec<String> = options.iter().map(|(k, v)| format!("'{k}': '{v}'")).collect();
        return Err(PlanError::invalid(format!(
            "Analysis options are not supported on primary key columns, but found {{{}}}",
            shown.join(", ")
        )));
    }
    if !matches!(term_type(column, part), Some(CqlType::Text | CqlType::Ascii)) {
        return Err(PlanError::invalid(format!(
            "CQL type {} cannot be analyzed.",
            type_name(column, part)
        )));
    }
    for name in TEXT_OPTIONS {
        match options.iter().find(|(key, _)| *key == name).map(|(_, value)| *value) {
            None => {}
            Some("") => {
                return Err(PlanError::invalid(format!("Empty value for boolean option '{name}'")));
            }
            Some(v) if v.eq_ignore_ascii_case("true") || v.eq_ignore_ascii_case("false") => {}
            Some(v) => {
                return Err(PlanError::invalid(format!(
                    "Illegal value for boolean option '{name}': {v}"
                )));
            }
        }
    }
    Ok(())
}

fn check_vector_options(
    options: &BTreeMap<String, String>,
    column: &Column,
    part: TargetPart,
) -> Result<(), PlanError> {
    if !term_type(column, part).is_some_and(is_vector) {
        return Err(PlanError::invalid(format!(
            "CQL type {} cannot have vector options",
            type_name(column, part)
        )));
    }
    for (option, shown) in [
        ("maximum_node_connections", "Maximum node connections"),
        ("construction_beam_width", "Construction beam width"),
    ] {
        if options.contains_key(option) {
            return Err(PlanError::invalid(format!(
                "{shown} cannot be set without enabling SAI_VECTOR_ALLOW_CUSTOM_PARAMETERS"
            )));
        }
    }
    if let Some(function) = options.get("similarity_function") {
        let function = function.to_uppercase();
        if !["EUCLIDEAN", "DOT_PRODUCT", "COSINE"].contains(&function.as_str()) {
            return Err(PlanError::invalid(format!(
                "Similarity function {function} was not recognized for index null. Valid values \
                 are: EUCLIDEAN, DOT_PRODUCT, COSINE"
            )));
        }
    }
    if let Some(goal) = options.get("optimize_for") {
        let goal = goal.to_uppercase();
        if !["LATENCY", "RECALL"].contains(&goal.as_str()) {
            return Err(PlanError::invalid(format!(
                "optimize_for '{goal}' was not recognized for index null. Valid values are: \
                 LATENCY, RECALL"
            )));
        }
    }
    Ok(())
}

/// Name of the type of the terms: of entries of a map Cassandra shows its class.
fn type_name(column: &Column, part: TargetPart) -> String {
    match (term_type(column, part), &column.ty) {
        (Some(ty), _) => ty.to_cql_name(),
        (None, CqlType::Map { key, value, .. }) => {
            format!("'{}'", composite_marshal_name([&**key, &**value]))
        }
        (None, ty) => ty.to_cql_name(),
    }
}

fn check_type(column: &Column, part: TargetPart) -> Result<(), PlanError> {
    let of_entries = match &column.ty {
        CqlType::Map { key, value, .. } => vec![&**key, &**value],
        ty => vec![ty],
    };
    let types = term_type(column, part).map_or(of_entries, |ty| vec![ty]);
    match types.into_iter().find(|ty| !is_supported(ty)) {
        None => Ok(()),
        Some(ty) => Err(PlanError::invalid(format!("Unsupported type: {}", ty.to_cql_name()))),
    }
}

/// Returns true if an index of that target, other than of vectors, can be created.
pub(crate) fn may_index(table: &Table, target: &IndexTarget) -> bool {
    let Some(column) = table.column(&target.column) else { return false };
    let is_of_vectors = term_type(column, target.part).is_some_and(is_vector);
    let mut indexes = table.indexes.iter();
    let exists = indexes.any(|other| other.rules == IndexRules::Sai && other.target == *target);
    !is_of_vectors
        && !exists
        && !table.is_counter()
        && super::target::check(target, table, IndexKind::Custom).is_ok()
        && check_type(column, target.part).is_ok()
}

fn is_supported(ty: &CqlType) -> bool {
    match ty {
        CqlType::Blob
        | CqlType::Counter
        | CqlType::Duration
        | CqlType::Empty
        | CqlType::Custom(_) => false,
        CqlType::List { .. } | CqlType::Set { .. } | CqlType::Map { .. } | CqlType::Udt(_) => {
            !ty.is_multi_cell()
        }
        _ => true,
    }
}

fn check_vector(
    element: &CqlType,
    dimension: u32,
    options: &BTreeMap<String, String>,
) -> Result<(), PlanError> {
    if *element != CqlType::Float {
        return Err(PlanError::invalid(
            "SAI ANN indexes are only allowed on vector columns with float elements",
        ));
    }
    let function = options.get("similarity_function");
    if dimension == 1 && function.is_none_or(|f| f.eq_ignore_ascii_case("cosine")) {
        return Err(PlanError::invalid(
            "Cosine similarity is not supported for single-dimension vectors",
        ));
    }
    Ok(())
}
