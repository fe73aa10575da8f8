//! Rules of SASI indexes.
//!
//! Not supported and refused by name: stemming and stop words of the standard analyzer, values that are no text as
//! literals, analyzers of text that is no literal and of clustering columns, vectors.
//!
//! Source: `SASIIndex.validateOptions`, `IndexMode`, the analyzers' `validate`.

use std::collections::BTreeMap;

use index_format::Tokens;
use index_format::sasi::{ANALYZERS, SasiMode, SasiOptions};
use schema::{Column, ColumnKind, INDEX_TARGET};
use types::CqlType;

use super::{NewIndex, in_slots, unsupported};
use crate::error::PlanError;

/// Warning of every statement that makes a SASI index.
pub(super) const WARNING: &str =
    "SASI indexes are experimental and are not recommended for production use.";
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
    check_mode(options, column, index)?;
    check_supported(options, column)
}

/// Refuses what Cassandra accepts and this version does not.
fn check_supported(options: &BTreeMap<String, String>, column: &Column) -> Result<(), PlanError> {
    let read = SasiOptions::read(options, &column.ty);
    if super::target::is_vector(&column.ty) {
        return Err(unsupported("SASI indexes of vectors are"));
    }
    if read.is_literal && !is_text(&column.ty) {
        let ty = column.ty.to_cql_name();
        return Err(unsupported(&format!("SASI indexes with is_literal = true of type {ty} are")));
    }
    if !read.analysis.is_plain() {
        if !read.is_literal {
            return Err(unsupported("SASI indexes with an analyzer and is_literal = false are"));
        }
        if matches!(column.kind, ColumnKind::Clustering { .. }) {
            return Err(unsupported("SASI indexes with an analyzer on clustering columns are"));
        }
    }
    let is_true =
        |option: &str| options.get(option).is_some_and(|text| text.eq_ignore_ascii_case("true"));
    let refused = ["tokenization_enable_stemming", "tokenization_skip_stop_words"];
    match refused.into_iter().find(|option| is_true(option)) {
        Some(option) if read.analysis.tokens == Tokens::Words => {
            Err(unsupported(&format!("SASI indexes with {option} = true are")))
        }
        _ => Ok(()),
    }
}

fn check_analyzer(options: &BTreeMap<String, String>, column: &Column) -> Result<(), PlanError> {
    let Some(class) = options.get("analyzer_class") else {
        let is_analyzed = SasiOptions::read(options, &column.ty).analysis.has_tokens();
        return if is_analyzed { check_cases("StandardAnalyzer", options) } else { Ok(()) };
    };
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
    if let ("DelimiterAnalyzer", Some(delimiter)) = (short, options.get("delimiter"))
        && delimiter.encode_utf16().count() != 1
    {
        return Err(PlanError::config(format!(
            "Only single character delimiters supported, was {delimiter}"
        )));
    }
    if short == "NonTokenizingAnalyzer"
        && has("case_sensitive")
        && (has("normalize_lowercase") || has("normalize_uppercase"))
    {
        return Err(PlanError::config(
            "case_sensitive option cannot be specified together with either normalize_lowercase or \
             normalize_uppercase",
        ));
    }
    check_cases(short, options)
}

/// Refuses options that ask for upper and lower case at once, which Cassandra answers with a server error.
fn check_cases(analyzer: &str, options: &BTreeMap<String, String>) -> Result<(), PlanError> {
    let prefix = match analyzer {
        "NonTokenizingAnalyzer" => "",
        "StandardAnalyzer" => "tokenization_",
        _ => return Ok(()),
    };
    let is_true = |case: &str| {
        let option = options.get(&format!("{prefix}normalize_{case}"));
        option.is_some_and(|text| text.eq_ignore_ascii_case("true"))
    };
    match is_true("lowercase") && is_true("uppercase") {
        true => Err(PlanError::config(
            "Options to normalize terms cannot be both uppercase and lowercase at the same time",
        )),
        false => Ok(()),
    }
}

fn check_mode(
    options: &BTreeMap<String, String>,
    column: &Column,
    index: &NewIndex<'_>,
) -> Result<(), PlanError> {
    let mode = options.get("mode").map_or("PREFIX", String::as_str);
    if SasiMode::of_name(mode).is_none() {
        return Err(PlanError::config(format!("Incorrect index mode: {mode}")));
    }
    let read = SasiOptions::read(options, &column.ty);
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
    if read.mode != SasiMode::Sparse {
        return Ok(());
    }
    if read.is_literal {
        return Err(PlanError::config("SPARSE mode is only supported on non-literal columns."));
    }
    if read.is_analyzed {
        return Err(PlanError::config("SPARSE mode doesn't support analyzers."));
    }
    Ok(())
}

fn is_text(ty: &CqlType) -> bool {
    matches!(ty, CqlType::Text | CqlType::Ascii)
}
