//! Plans and bound plans, as text.

use std::fmt::Write as _;
use std::ops::Bound as RangeBound;

use data::command::{Partitions, RingBound};
use data::{BoundRef, Slice};
use index_format::TermFilter;
use index_format::search::IndexPredicate;
use schema::{Column, Table};
use stdx::Token;

use crate::column_source::{Source, key_component};
use crate::error::{PlanError, PlanErrorCode};
use crate::plan::Plan;
use crate::select::restrictions::{Condition, KeyAccess, Restriction, TokenCondition};
use crate::select::{BoundSelect, Filter, SelectPlan, Shaping, Test, UNLIMITED};

/// `plan error 0x2200: message`.
pub(super) fn error(when: &str, error: &PlanError) -> String {
    let code = match &error.code {
        PlanErrorCode::Syntax => "0x2000 syntax".to_owned(),
        PlanErrorCode::Unauthorized => "0x2100 unauthorized".to_owned(),
        PlanErrorCode::Invalid => "0x2200 invalid".to_owned(),
        PlanErrorCode::Config => "0x2300 config".to_owned(),
        PlanErrorCode::AlreadyExists { .. } => "0x2400 already exists".to_owned(),
        PlanErrorCode::Protocol => "0x000A protocol".to_owned(),
        PlanErrorCode::FunctionFailure { function, .. } => format!("0x1400 failure of {function}"),
    };
    format!("{when} error {code}\n{}\n", error.message)
}

/// The bind markers and what drivers route by.
pub(super) fn markers(plan: &Plan) -> String {
    let mut out = String::new();
    if plan.inputs.binds.is_empty() {
        return out;
    }
    let binds: Vec<String> =
        plan.inputs.binds.iter().map(|b| format!("{} {}", b.name, b.ty)).collect();
    let _ = writeln!(out, "markers: {}", binds.join(", "));
    if let Some(key) = plan.inputs.pk_bind_indices() {
        let _ = writeln!(out, "partition key markers: {key:?}");
    }
    out
}

/// The access path, the restrictions and what becomes of the rows.
pub(super) fn select(select: &SelectPlan, out: &mut String) {
    let (table, results) = (&**select.table(), select.results());
    let r = select.restrictions();
    let access = match r.access {
        KeyAccess::Keys => "partitions by key",
        KeyAccess::Range => "a range of the ring",
    };
    let _ = writeln!(out, "access: {access}");
    for restriction in &r.partition {
        let filtered = if r.filters_partition_key { " (filtered)" } else { "" };
        let _ = writeln!(out, "partition key: {}{filtered}", condition(restriction, table));
    }
    match &r.token {
        None => {}
        Some(TokenCondition::Eq(_)) => out.push_str("token: =\n"),
        Some(TokenCondition::Slice { start, end }) => {
            let start = start.as_ref().map(|l| if l.inclusive { ">=" } else { ">" });
            let end = end.as_ref().map(|l| if l.inclusive { "<=" } else { "<" });
            let sides: Vec<&str> = start.into_iter().chain(end).collect();
            let _ = writeln!(out, "token: {}", sides.join(" and "));
        }
    }
    let how = r.clustering_sliced.iter().zip(&r.clustering_filtered);
    for (restriction, (sliced, filtered)) in r.clustering.iter().zip(how) {
        let how = match (sliced, filtered) {
            (true, false) => "",
            (true, true) => " (and filtered)",
            _ => " (filtered)",
        };
        let _ = writeln!(out, "clustering: {}{how}", condition(restriction, table));
    }
    for restriction in &r.other {
        let _ = writeln!(out, "filtered: {}", condition(restriction, table));
    }
    if let Some(plan) = select.index_plan() {
        let names: Vec<String> = plan
            .predicates()
            .iter()
            .map(|p| format!("{} of {}", p.index().name, p.column()))
            .collect();
        let all = if plan.answers_all_filters() { ", all filters" } else { "" };
        let key = if select.scans_by_index() { ", without a key" } else { "" };
        let _ = writeln!(out, "indexes: {}{all}{key}", names.join(", "));
    }
    let shaping = match &results.shaping {
        Shaping::Plain { .. } => "columns as they are".to_owned(),
        Shaping::Expressions => "expressions".to_owned(),
        Shaping::Groups { prefix: None } => "one group".to_owned(),
        Shaping::Groups { prefix: Some(0) } => "a group for each partition".to_owned(),
        Shaping::Groups { prefix: Some(n) } => format!("groups by {n} clustering columns"),
    };
    let marks = [
        (results.json.is_some(), ", as JSON"),
        (results.distinct, ", distinct"),
        (results.reversed, ", reversed"),
        (!results.sort.is_empty(), ", sorted after reading"),
        (results.static_alone, ", static rows alone"),
        (select.folds(), ", shards may fold"),
        (results.group_function.is_some(), ", by a function"),
    ];
    let marks: String = marks.iter().filter(|(set, _)| *set).map(|(_, mark)| *mark).collect();
    let _ = writeln!(out, "rows: {shaping}{marks}");
    let columns: Vec<String> =
        select.result_columns().iter().map(|c| format!("{} {}", c.name, c.ty)).collect();
    let _ = writeln!(out, "result: {}", columns.join(", "));
    if let Some(warning) = select.warning() {
        let _ = writeln!(out, "warning: {warning}");
    }
}

fn condition(restriction: &Restriction, table: &Table) -> String {
    let columns = &table.columns[restriction.first..restriction.first + restriction.count];
    let names: Vec<&str> = columns.iter().map(|c| &*c.name).collect();
    let names = match restriction.multi {
        true => format!("({})", names.join(", ")),
        false => names.join(", "),
    };
    format!("{names} {}", operators(&restriction.condition))
}

fn operators(condition: &Condition) -> String {
    match condition {
        Condition::Eq(_) => "=".to_owned(),
        Condition::In(_) => "IN".to_owned(),
        Condition::Slice { start, end } => {
            let start = start.as_ref().map(|l| if l.inclusive { ">=" } else { ">" });
            let end = end.as_ref().map(|l| if l.inclusive { "<=" } else { "<" });
            start.into_iter().chain(end).collect::<Vec<_>>().join(" and ")
        }
        Condition::Contains { values, keys, entries } => {
            let all = [(values, "CONTAINS"), (keys, "CONTAINS KEY")];
            let mut all: Vec<&str> = all
                .iter()
                .flat_map(|(terms, word)| std::iter::repeat_n(*word, terms.len()))
                .collect();
            all.extend(std::iter::repeat_n("[key] =", entries.len()));
            all.join(" and ")
        }
        Condition::Like(..) => "LIKE".to_owned(),
        Condition::Analyzed(_, condition) => format!("{} (analysed)", operators(condition)),
    }
}

/// Describes the reads, the filters and the limits.
pub(super) fn bound(select: &SelectPlan, bound: &BoundSelect) -> String {
    let table = &**select.table();
    let mut out = String::new();
    if bound.reads().is_empty() {
        out.push_str("reads nothing\n");
    }
    for read in bound.reads() {
        let slices: Vec<String> = read.slices.0.iter().map(|s| slice(s, table)).collect();
        let what = match &read.partitions {
            Partitions::Key(bytes) => format!("key ({})", key(bytes, table)),
            Partitions::Range(range) => {
                format!("ring {} .. {}", ring(&range.start), ring(&range.end))
            }
        };
        let columns = match &read.columns {
            None => String::new(),
            Some(ids) => {
                let names: Vec<&str> =
                    ids.iter().filter_map(|id| Some(&*table.column_by_id(*id)?.name)).collect();
                format!(", columns ({})", names.join(", "))
            }
        };
        let reversed = if read.reversed { ", reversed" } else { "" };
        let _ = writeln!(out, "read {what}: {}{columns}{reversed}", slices.join(" "));
    }
    if let Some(filters) = &bound.filters {
        for filter in filters.key.iter().chain(&filters.statics).chain(&filters.row) {
            let _ = writeln!(out, "filter {}", test(filter, table));
        }
    }
    let limits = [
        (bound.limit, "limit"),
        (bound.per_partition, "per partition"),
        (bound.page_rows, "rows of a page"),
    ];
    for (rows, what) in limits.into_iter().filter(|(rows, _)| *rows != UNLIMITED) {
        let _ = writeln!(out, "{what}: {rows}");
    }
    out
}

/// Describes what indexes are searched for.
pub(super) fn terms(select: &SelectPlan, predicates: &[IndexPredicate]) -> String {
    let hex = |term: &[u8]| -> String { term.iter().map(|byte| format!("{byte:02x}")).collect() };
    let lower = |bound: &RangeBound<Vec<u8>>| match bound {
        RangeBound::Included(term) => format!("[{}", hex(term)),
        RangeBound::Excluded(term) => format!("({}", hex(term)),
        RangeBound::Unbounded => "(".to_owned(),
    };
    let upper = |bound: &RangeBound<Vec<u8>>| match bound {
        RangeBound::Included(term) => format!("{}]", hex(term)),
        RangeBound::Excluded(term) => format!("{})", hex(term)),
        RangeBound::Unbounded => ")".to_owned(),
    };
    let mut out = String::new();
    for predicate in predicates {
        let ranges: Vec<String> = predicate
            .ranges
            .iter()
            .map(|range| format!("{} .. {}", lower(&range.lower), upper(&range.upper)))
            .collect();
        let index = select.table().index_by_id(predicate.index).expect("index of the table");
        let ranges = if ranges.is_empty() { "nothing".to_owned() } else { ranges.join(" or ") };
        let filter = match &predicate.filter {
            None => String::new(),
            Some(TermFilter::EndsWith(text)) => format!(" that ends with {}", hex(text)),
            Some(TermFilter::Contains(text)) => format!(" with {} in it", hex(text)),
        };
        let _ = writeln!(out, "search {}: {ranges}{filter}", index.name);
    }
    if predicates.is_empty() {
        out.push_str("search without terms\n");
    }
    out
}

fn key(bytes: &[u8], table: &Table) -> String {
    let columns = table.partition_key();
    let component = |(at, column): (usize, &Column)| {
        let index = u16::try_from(at).unwrap_or(u16::MAX);
        let value = key_component(bytes, columns.len(), index).unwrap_or_default();
        column.ty.format_cql_literal(value)
    };
    columns.iter().enumerate().map(component).collect::<Vec<_>>().join(", ")
}

fn prefix(bound: BoundRef<'_>, table: &Table) -> String {
    let components = data::clustering::components(bound.prefix).zip(table.clustering());
    let texts: Vec<String> = components
        .map(|(c, column)| c.map_or("null".to_owned(), |c| column.ty.format_cql_literal(c)))
        .collect();
    texts.join(", ")
}

fn slice(slice: &Slice, table: &Table) -> String {
    let (start, end) = (slice.start(), slice.end());
    let (from, to) = (prefix(start, table), prefix(end, table));
    if from == to && !start.after && end.after {
        return if from.is_empty() { "all rows".to_owned() } else { format!("[{from}]") };
    }
    let (open, close) = (if start.after { '(' } else { '[' }, if end.after { ']' } else { ')' });
    format!("{open}{from} .. {to}{close}")
}

fn ring(bound: &RingBound) -> String {
    match bound {
        RingBound::Token { token: Token::MIN, after: false } => "start".to_owned(),
        RingBound::Token { token: Token::MAX, after: true } => "end".to_owned(),
        RingBound::Token { token, after } => {
            format!("{} {}", if *after { "after" } else { "before" }, token.0)
        }
        RingBound::Key { token, after, .. } => {
            format!("{} a key of {}", if *after { "after" } else { "before" }, token.0)
        }
    }
}

fn test(filter: &Filter, table: &Table) -> String {
    let column = table.columns.iter().find(|c| Source::of(c) == filter.source);
    let Some(column) = column else { return "no column".to_owned() };
    let elements = column.ty.sub_types();
    let of = |value: &[u8], ty: Option<&types::CqlType>| {
        ty.unwrap_or(&column.ty).format_cql_literal(value)
    };
    let (analyzed, test) = match filter.test() {
        Test::Analyzed(_, test) => (" (analysed)", &**test),
        test => ("", test),
    };
    let what = match test {
        Test::Analyzed(..) => "analysed twice".to_owned(),
        Test::Like(pattern) => {
            let parts = pattern.parts.iter().map(|part| String::from_utf8_lossy(part));
            format!("LIKE {:?} {}", pattern.kind, parts.collect::<Vec<_>>().join(" and "))
        }
        Test::Eq(value) => format!("= {}", of(value, None)),
        Test::In(values) => {
            let values: Vec<String> = values.iter().map(|value| of(value, None)).collect();
            format!("IN ({})", values.join(", "))
        }
        Test::Range { start, end } => {
            let side = |limit: &Option<(Vec<u8>, bool)>, sign: &str| {
                let (value, inclusive) = limit.as_ref()?;
                Some(format!("{sign}{} {}", if *inclusive { "=" } else { "" }, of(value, None)))
            };
            let sides: Vec<String> = side(start, ">").into_iter().chain(side(end, "<")).collect();
            sides.join(" and ")
        }
        Test::Contains(value) => format!("CONTAINS {}", of(value, elements.last().copied())),
        Test::ContainsKey(key) => format!("CONTAINS KEY {}", of(key, elements.first().copied())),
        Test::Entry(key, value) => format!(
            "[{}] = {}",
            of(key, elements.first().copied()),
            of(value, elements.last().copied())
        ),
    };
    format!("{} {what}{analyzed}", column.name)
}
