//! Rules of SASI indexes.
//!
//! Source: `SASIIndex.validateOptions`, `IndexMode`, the analyzers' `validate`.

use std::collections::BTreeMap;

use schema::{Column, ColumnKind, INDEX_TARGET};
use types::CqlType;

use super::{NewIndex, in_slots};
use crate::error::PlanError;

const ANALYZERS: &str = "org.apache.cassandra.index.sasi.analyzer.";
/// Analyzers by name below [`ANALYZERS`].
const KNOWN: [&str; 4] =
    ["NonTokenizingAnalyzer", "StandardAnalyzer", "DelimiterAnalyzer", "NoOpAnalyzer"];

/// Checks target and options.
pub(super) fn check(
    options: &BTreeMap<String, String>,
    index: &NewIndex<'_>,
) -> Result<(), PlanError> {
    let column = match index.targets.as_slice() {
        [target] => index.table.column(&target.column),
        _ => None,
    };
    let Some(column) = column else {
        let shown = index.options.get(INDEX_TARGET).map_or("", String::as_str);
        return Err(PlanError::config(format!("failed to retrieve target column for: {shown}")));
    };
    if column.is_complex() {
        return Err(PlanError::config("complex columns are not yet supported by SASI"));
    }
    if matches!(column.kind, ColumnKind::PartitionKey(_)) {
        return Err(PlanError::config("partition key columns are not yet supported by SASI"));
    }
    check_analyzer(options, column)?;
    check_mode(options, column, index)
}

fn check_analyzer(options: &BTreeMap<String, String>, column: &Column) -> Result<(), PlanError> {
    let Some(class) = options.get("analyzer_class") else { return Ok(()) };
    let short = class.strip_prefix(ANALYZERS);
    if short == Some("AbstractAnalyzer") {
        return Err(PlanError::config(
            "Unable to initialize analyzer class option specified [AbstractAnalyzer]",
        ));
    }
    let Some(short) = short.filter(|name| KNOWN.contains(name)) else {
        return Err(PlanError::config(format!("Unable to find analyzer class '{class}'")));
    };
    if short != "NoOpAnalyzer" && !is_text(&column.ty) {
        return Err(PlanError::config(format!(
            "{short} does not support type {}",
            column.ty.to_cql_name()
        )));
    }
    let has = |option: &str| options.contains_key(option);
    if short == "NonTokenizingAnalyzer"
        && has("case_sensitive")
        && (has("normalize_lowercase") || has("normalize_uppercase"))
    {
        return Err(PlanError::config(
            "case_sensitive option cannot be specified together with either normalize_lowercase or \
             normalize_uppercase",
        ));
    }
    Ok(())
}

fn check_mode(
    options: &BTreeMap<String, String>,
    column: &Column,
    index: &NewIndex<'_>,
) -> Result<(), PlanError> {
    let mode = options.get("mode").map_or("PREFIX", String::as_str);
    let upper = mode.to_uppercase();
    if !["PREFIX", "CONTAINS", "SPARSE"].contains(&upper.as_str()) {
        return Err(PlanError::config(format!("Incorrect index mode: {mode}")));
    }
    let is_true = |text: &String| text.eq_ignore_ascii_case("true");
    let is_analyzed =
        options.get("analyzed").map_or(options.contains_key("analyzer_class"), is_true);
    let is_literal = options.get("is_literal").map_or(is_text(&column.ty), is_true);
    let memory = options.get("max_compaction_flush_memory_in_mb");
    if memory.is_some_and(|text| text.parse::<i64>().is_err()) {
        let all = &index.options;
        let shown: Vec<String> = in_slots(all.keys().map(String::as_str), 16)
            .into_iter()
            .map(|key| format!("{key}={}", all.get(key).map_or("", String::as_str)))
            .collect();
        return Err(PlanError::config(format!(
            "Failed to validate custom indexer options: {{{}}}",
            shown.join(", ")
        )));
    }
    if upper != "SPARSE" {
        return Ok(());
    }
    if is_literal {
        return Err(PlanError::config("SPARSE mode is only supported on non-literal columns."));
    }
    if is_analyzed {
        return Err(PlanError::config("SPARSE mode doesn't support analyzers."));
    }
    Ok(())
}

fn is_text(ty: &CqlType) -> bool {
    matches!(ty, CqlType::Text | CqlType::Ascii)
}
