//! Completion: the words that may follow in the input.
//!
//! Owns: which words stand for a term of the grammar. Never: the line editor, the walk over the
//! grammar (`grammar`), the queries for names (`names`).
//!
//! The names are asked from the server when the shell starts, after each of its own schema changes
//! and, at a prompt, when another client has changed the schema.

mod grammar;
mod names;

use cql_wire::Consistency;
use types::name::quote_identifier;

use crate::help;
use crate::lex::{self, Kind, Token};
pub(crate) use grammar::Grammar;
use grammar::{Expected, InSight, Term};
pub(crate) use names::Names;

/// The words that may follow.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// Begin of the word that is completed, in bytes of the line.
    pub(crate) start: usize,
    pub(crate) words: Vec<String>,
}

/// Functions that every server has.
const FUNCTIONS: &[&str] = &[
    "abs",
    "avg",
    "blobasint",
    "blobastext",
    "cast",
    "count",
    "currentdate",
    "currenttimestamp",
    "currenttimeuuid",
    "exp",
    "from_json",
    "log",
    "log10",
    "map_keys",
    "map_values",
    "max",
    "max_timeuuid",
    "min",
    "min_timeuuid",
    "now",
    "round",
    "similarity_cosine",
    "sum",
    "to_date",
    "to_json",
    "to_timestamp",
    "to_unix_timestamp",
    "token",
    "ttl",
    "uuid",
    "writetime",
];

/// The grammar of `cql.grammar`. A test reads it, so it cannot fail here; without a grammar nothing
/// would be suggested.
pub(crate) fn grammar() -> Grammar {
    Grammar::parse(include_str!("complete/cql.grammar")).unwrap_or_default()
}

/// The words that may stand at the end of `line`, after the lines `before` of the statement.
pub(crate) fn complete(grammar: &Grammar, before: &str, line: &str, names: &Names) -> Found {
    let is_part = |sign: char| sign.is_alphanumeric() || matches!(sign, '_' | '"');
    let word_at = line.char_indices().rev().take_while(|(_, sign)| is_part(*sign)).last();
    let start = word_at.map_or(line.len(), |(at, _)| at);
    let source = format!("{before}{}", line.get(..start).unwrap_or_default());
    let nothing = Found { start, words: Vec::new() };
    let Ok(split) = lex::split(&source) else { return nothing };
    let tokens = split
        .statements
        .last()
        .filter(|tokens| !split.complete && !tokens.is_empty())
        .map_or(&[][..], Vec::as_slice);
    match tokens.split_last() {
        Some((open, tokens)) if open.kind == Kind::OpenText => {
            let expected = grammar.expected(tokens, &source);
            let text = format!("{}{}", open.text(&source), line.get(start..).unwrap_or_default());
            complete_text(&expected, text.trim_start_matches('\''), line, names)
        }
        Some((open, _)) if is_open(open) => nothing,
        _ => {
            let expected = grammar.expected(tokens, &source);
            let partial = line.get(start..).unwrap_or_default();
            complete_word(&expected, partial, start, names)
        }
    }
}

fn is_open(token: &Token) -> bool {
    matches!(token.kind, Kind::OpenName | Kind::OpenDollarText | Kind::OpenComment)
}

fn complete_word(expected: &[Expected], partial: &str, start: usize, names: &Names) -> Found {
    let known = partial.trim_start_matches('"').to_lowercase();
    let mut words: Vec<String> = expected.iter().flat_map(|term| words_of(term, names)).collect();
    words.retain(|word| word.trim_start_matches('"').to_lowercase().starts_with(&known));
    words.sort();
    words.dedup();
    if let ([], "", [Expected { term: Term::Sign(sign), .. }]) = (&*words, partial, expected) {
        words.push(sign.clone());
    }
    Found { start, words }
}

/// Completes inside of an open text: files only where a file is expected.
fn complete_text(expected: &[Expected], text: &str, line: &str, names: &Names) -> Found {
    let is_file = |term: &Expected| term.term == Term::Kind("file".to_owned());
    if expected.iter().any(is_file) {
        return files(text, line);
    }
    let mut words: Vec<String> = expected.iter().flat_map(|term| texts_of(term, names)).collect();
    words.retain(|word| word.to_lowercase().starts_with(&text.to_lowercase()));
    words.sort();
    words.dedup();
    let words = words.into_iter().map(|word| format!("{word}'")).collect();
    Found { start: line.len().saturating_sub(text.len()), words }
}

/// Texts, without quotes, that stand for a term.
fn texts_of(expected: &Expected, names: &Names) -> Vec<String> {
    match &expected.term {
        Term::Text(text) | Term::ExactText(text) => vec![text.clone()],
        Term::Kind(kind) if kind == "data_center" => names.data_centers.clone(),
        Term::Kind(_) | Term::Keyword(_) | Term::Unsuggested(_) | Term::Sign(_) => Vec::new(),
    }
}

/// Words that stand for a term.
fn words_of(expected: &Expected, names: &Names) -> Vec<String> {
    let kind = match &expected.term {
        Term::Keyword(word) => return vec![word.clone()],
        Term::Unsuggested(_) | Term::Sign(_) => return Vec::new(),
        Term::Text(_) | Term::ExactText(_) => "data_center",
        Term::Kind(kind) => kind.as_str(),
    };
    let levels = || Consistency::ALL.iter().map(|level| level.name().to_owned());
    match kind {
        "data_center" => texts_of(expected, names).iter().map(|text| format!("'{text}'")).collect(),
        "keyspace" => quoted(&names.keyspaces),
        "qualifier" => quoted(&names.keyspaces).iter().map(|name| format!("{name}.")).collect(),
        "table" => objects(&names.tables, &expected.names, names),
        "type" => objects(&names.types, &expected.names, names),
        "user_function" => objects(&names.functions, &expected.names, names),
        "user_aggregate" => objects(&names.aggregates, &expected.names, names),
        "function" => {
            let users = names.functions.iter().chain(&names.aggregates).cloned();
            let mut words = objects(&users.collect::<Vec<_>>(), &expected.names, names);
            words.extend(FUNCTIONS.iter().map(|name| (*name).to_owned()));
            words
        }
        "column" => columns(&expected.names, names),
        "level" => levels().collect(),
        "serial_level" => levels().filter(|level| level.contains("SERIAL")).collect(),
        "topic" => help::names(),
        "file" => vec!["'".to_owned()],
        _ => Vec::new(),
    }
}

fn quoted(names: &[String]) -> Vec<String> {
    names.iter().map(|name| quote_identifier(name)).collect()
}

/// Names of the keyspace before the dot, or of the keyspace in use.
fn objects(of: &[(String, String)], in_sight: &InSight, names: &Names) -> Vec<String> {
    let keyspace = in_sight.qualifier.as_ref().or(names.current.as_ref());
    let inside = of.iter().filter(|(known, _)| Some(known) == keyspace);
    inside.map(|(_, name)| quote_identifier(name)).collect()
}

/// Columns of the statement's table; before it is named, of the keyspace in use.
fn columns(in_sight: &InSight, names: &Names) -> Vec<String> {
    let (keyspace, table) = match &in_sight.table {
        Some((keyspace, table)) => (keyspace.as_ref(), Some(table)),
        None => (None, None),
    };
    let keyspace = keyspace.or(names.current.as_ref());
    let matching = names.columns.iter().filter(|(known, in_table, _)| {
        Some(known) == keyspace && table.is_none_or(|table| table == in_table)
    });
    matching.map(|(.., name)| quote_identifier(name)).collect()
}

/// Files that begin with the path; the start is where its last part begins.
fn files(path: &str, line: &str) -> Found {
    let (directory, partial) = path
        .rsplit_once('/')
        .map_or(("", path), |(head, tail)| (if head.is_empty() { "/" } else { head }, tail));
    let directory = crate::home::expand_home(if directory.is_empty() { "." } else { directory });
    let mut words = Vec::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let mut name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with(partial) || (partial.is_empty() && name.starts_with('.')) {
            continue;
        }
        if entry.path().is_dir() {
            name.push('/');
        }
        words.push(name);
    }
    words.sort();
    Found { start: line.len().saturating_sub(partial.len()), words }
}

#[cfg(test)]
mod tests;
