//! Completion: which words may stand at a place of the input.
//!
//! Owns: the words by their context, names of the live schema. Never: the line editor.
//!
//! The names are asked from the server when the shell starts and after each of its own schema
//! changes.

use std::sync::Arc;

use cql_wire::Consistency;
use types::name::quote_identifier;

use crate::help;
use crate::lex::{self, Kind, Token};
use crate::schema;
use crate::shell::Shell;

/// Names of the schema.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    /// The keyspace in use.
    pub(crate) current: Option<String>,
    pub(crate) keyspaces: Vec<String>,
    /// Keyspace and name.
    pub(crate) tables: Vec<(String, String)>,
    pub(crate) types: Vec<(String, String)>,
    pub(crate) functions: Vec<(String, String)>,
    pub(crate) aggregates: Vec<(String, String)>,
    /// Keyspace, table and name.
    pub(crate) columns: Vec<(String, String, String)>,
}

/// What may stand at a place.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// Where the word begins that is completed, in bytes of the line.
    pub(crate) start: usize,
    pub(crate) words: Vec<String>,
}

const STATEMENTS: &[&str] = &[
    "ALTER",
    "APPLY",
    "BEGIN",
    "CAPTURE",
    "CLEAR",
    "CONSISTENCY",
    "COPY",
    "CREATE",
    "DELETE",
    "DESCRIBE",
    "DROP",
    "EXIT",
    "EXPAND",
    "GRANT",
    "HELP",
    "HISTORY",
    "INSERT",
    "LIST",
    "LOGIN",
    "OUTPUT",
    "PAGING",
    "QUIT",
    "REVOKE",
    "SELECT",
    "SERIAL",
    "SHOW",
    "SOURCE",
    "TRACING",
    "TRUNCATE",
    "UPDATE",
    "USE",
];
const DESCRIBE: &[&str] = &[
    "AGGREGATE",
    "AGGREGATES",
    "CLUSTER",
    "FULL",
    "FUNCTION",
    "FUNCTIONS",
    "INDEX",
    "KEYSPACE",
    "KEYSPACES",
    "MATERIALIZED",
    "ONLY",
    "SCHEMA",
    "TABLE",
    "TABLES",
    "TYPE",
    "TYPES",
];
const OBJECTS: &[&str] = &[
    "AGGREGATE",
    "CUSTOM",
    "FUNCTION",
    "INDEX",
    "KEYSPACE",
    "MATERIALIZED",
    "OR",
    "ROLE",
    "TABLE",
    "TYPE",
    "USER",
];
const COPY_OPTIONS: &[&str] = &[
    "BEGINTOKEN",
    "BOOLSTYLE",
    "CHUNKSIZE",
    "CONFIGFILE",
    "DATETIMEFORMAT",
    "DECIMALSEP",
    "DELIMITER",
    "DOUBLEPRECISION",
    "ENCODING",
    "ENDTOKEN",
    "ERRFILE",
    "ESCAPE",
    "FLOATPRECISION",
    "HEADER",
    "INGESTRATE",
    "MAXATTEMPTS",
    "MAXBATCHSIZE",
    "MAXINSERTERRORS",
    "MAXOUTPUTSIZE",
    "MAXPARSEERRORS",
    "MAXREQUESTS",
    "MAXROWS",
    "MINBATCHSIZE",
    "NULL",
    "NUMPROCESSES",
    "PAGESIZE",
    "PAGETIMEOUT",
    "PREPAREDSTATEMENTS",
    "QUOTE",
    "RATEFILE",
    "REPORTFREQUENCY",
    "SKIPCOLS",
    "SKIPROWS",
    "THOUSANDSSEP",
    "TTL",
];
/// Words of a statement behind its first, which is the first here.
const CLAUSES: &[(&str, &[&str])] = &[
    (
        "select",
        &[
            "ALLOW",
            "AND",
            "AS",
            "ASC",
            "BY",
            "CONTAINS",
            "DESC",
            "DISTINCT",
            "FILTERING",
            "FROM",
            "GROUP",
            "IN",
            "JSON",
            "KEY",
            "LIMIT",
            "ORDER",
            "PARTITION",
            "PER",
            "WHERE",
        ],
    ),
    (
        "insert",
        &["AND", "EXISTS", "IF", "INTO", "JSON", "NOT", "TIMESTAMP", "TTL", "USING", "VALUES"],
    ),
    ("update", &["AND", "EXISTS", "IF", "IN", "SET", "TIMESTAMP", "TTL", "USING", "WHERE"]),
    ("delete", &["AND", "EXISTS", "FROM", "IF", "IN", "TIMESTAMP", "USING", "WHERE"]),
    ("begin", &["APPLY", "BATCH", "COUNTER", "DELETE", "INSERT", "UNLOGGED", "UPDATE", "USING"]),
    ("apply", &["BATCH"]),
    (
        "create",
        &[
            "AND",
            "CLUSTERING",
            "EXISTS",
            "IF",
            "KEY",
            "NOT",
            "ORDER",
            "PRIMARY",
            "STATIC",
            "WITH",
            "replication",
            "compaction",
            "compression",
            "frozen",
        ],
    ),
    ("alter", &["ADD", "AND", "DROP", "EXISTS", "IF", "NOT", "RENAME", "TO", "WITH"]),
    ("drop", &["EXISTS", "IF"]),
    ("copy", &["AND", "FROM", "STDIN", "STDOUT", "TO", "WITH"]),
    ("grant", &["ALL", "ON", "PERMISSIONS", "TO"]),
    ("revoke", &["ALL", "FROM", "ON", "PERMISSIONS"]),
    ("list", &["ALL", "OF", "PERMISSIONS", "ROLES", "USERS"]),
];

/// The words that may stand at the end of `line`, behind the lines `before` of the statement.
pub(crate) fn complete(before: &str, line: &str, names: &Names) -> Found {
    let is_part = |sign: char| sign.is_alphanumeric() || matches!(sign, '_' | '"');
    let word_at = line.char_indices().rev().take_while(|(_, sign)| is_part(*sign)).last();
    let start = word_at.map_or(line.len(), |(at, _)| at);
    let source = format!("{before}{}", line.get(..start).unwrap_or_default());
    let Ok(split) = lex::split(&source) else { return Found { start, words: Vec::new() } };
    let tokens = split
        .statements
        .last()
        .filter(|tokens| tokens.last().is_some_and(|last| last.kind != Kind::End))
        .map_or(&[][..], Vec::as_slice);
    if let Some(open) = tokens.last().filter(|token| token.kind == Kind::OpenText) {
        let text = format!("{}{}", open.text(&source), line.get(start..).unwrap_or_default());
        return files(text.trim_start_matches('\''), start, line);
    }
    let partial = line.get(start..).unwrap_or_default().trim_start_matches('"').to_lowercase();
    let mut words = candidates(tokens, &source, names);
    words.retain(|word| word.trim_start_matches('"').to_lowercase().starts_with(&partial));
    words.sort();
    words.dedup();
    Found { start, words }
}

fn candidates(tokens: &[Token], source: &str, names: &Names) -> Vec<String> {
    let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let texts: Vec<String> = tokens.iter().map(|token| token.text(source).to_lowercase()).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let Some(first) = texts.first().copied() else { return owned(STATEMENTS) };
    let last = texts.last().copied().unwrap_or_default();
    if let [.., keyspace, "."] = texts.as_slice() {
        let keyspace = lex::unquote_name(keyspace);
        let tables = names.tables.iter().chain(&names.types).chain(&names.functions);
        let inside = tables.filter(|(known, _)| *known == keyspace);
        return inside.map(|(_, name)| quote_identifier(name)).collect();
    }
    match (first, last) {
        ("use", _) => return quoted(&names.keyspaces),
        ("consistency", _) => {
            return Consistency::ALL.iter().map(|level| level.name().to_owned()).collect();
        }
        ("serial", "serial") => return owned(&["CONSISTENCY"]),
        ("serial", _) => return owned(&["SERIAL", "LOCAL_SERIAL"]),
        ("tracing" | "expand" | "paging", _) => return owned(&["ON", "OFF"]),
        ("output", _) => return owned(&["TABLE", "JSON"]),
        ("capture", _) => return owned(&["OFF", "'"]),
        ("source", _) => return owned(&["'"]),
        ("show", _) => return owned(&["HOST", "REPLICAS", "SESSION", "VERSION"]),
        ("help" | "?", _) => return help::names(),
        ("describe" | "desc", "describe" | "desc") => {
            let mut words = owned(DESCRIBE);
            words.extend(tables(names));
            return words;
        }
        ("create" | "alter" | "drop", word) if word == first => return owned(OBJECTS),
        ("copy", "from" | "to") => return owned(&["'", "STDIN", "STDOUT"]),
        ("copy", "with" | "and") => return owned(COPY_OPTIONS),
        (_, "keyspace") => return quoted(&names.keyspaces),
        (_, "table" | "columnfamily" | "into" | "truncate") => return tables(names),
        ("update" | "copy", word) if word == first => return tables(names),
        ("select" | "delete", "from") => return tables(names),
        (_, "type") => return objects(&names.types, names),
        (_, "function") => return objects(&names.functions, names),
        (_, "aggregate") => return objects(&names.aggregates, names),
        _ => {}
    }
    let clauses =
        CLAUSES.iter().find(|(word, _)| *word == first).map_or(&[][..], |(_, words)| words);
    let mut words = owned(clauses);
    words.extend(columns(tokens, source, names));
    words
}

fn quoted(names: &[String]) -> Vec<String> {
    names.iter().map(|name| quote_identifier(name)).collect()
}

/// Tables of the current keyspace, and keyspaces with a dot.
fn tables(names: &Names) -> Vec<String> {
    objects(&names.tables, names)
}

fn objects(of: &[(String, String)], names: &Names) -> Vec<String> {
    let mine = of.iter().filter(|(keyspace, _)| Some(keyspace) == names.current.as_ref());
    let mut words: Vec<String> = mine.map(|(_, name)| quote_identifier(name)).collect();
    words.extend(names.keyspaces.iter().map(|name| format!("{}.", quote_identifier(name))));
    words
}

/// Columns of the table that the statement names; without one, of the keyspace in use.
fn columns(tokens: &[Token], source: &str, names: &Names) -> Vec<String> {
    let texts: Vec<&str> = tokens.iter().map(|token| token.text(source)).collect();
    let before_table = |word: &&str| {
        ["from", "into", "update", "table", "copy"]
            .iter()
            .any(|known| word.eq_ignore_ascii_case(known))
    };
    let at = texts.iter().rposition(before_table);
    let name = |offset: usize| {
        at.and_then(|at| texts.get(at + offset)).map(|text| lex::unquote_name(text))
    };
    let (keyspace, table) = match name(2).as_deref() {
        Some(".") => (name(1), name(3)),
        _ => (names.current.clone(), name(1)),
    };
    let matching = names.columns.iter().filter(|(of, in_table, _)| {
        Some(of) == keyspace.as_ref() && table.as_ref().is_none_or(|table| table == in_table)
    });
    matching.map(|(.., name)| quote_identifier(name)).collect()
}

/// Files that begin with the path; the start is where its last part begins.
fn files(path: &str, start: usize, line: &str) -> Found {
    let (directory, partial) = path
        .rsplit_once('/')
        .map_or(("", path), |(head, tail)| (if head.is_empty() { "/" } else { head }, tail));
    let place = crate::commands::expand_home(if directory.is_empty() { "." } else { directory });
    let mut words = Vec::new();
    for entry in std::fs::read_dir(place).into_iter().flatten().flatten() {
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
    // Dots and dashes belong to the file's name, but not to a word.
    let begin = line.len().saturating_sub(partial.len());
    Found { start: begin.min(line.len()).min(start.max(begin)), words }
}

impl Shell {
    /// Asks the server for its names. What it does not tell is not completed.
    pub(crate) fn refresh_names(&mut self) {
        let mut names = Names { current: self.keyspace.clone(), ..Names::default() };
        for schema in ["system_schema", "system_virtual_schema"] {
            names.keyspaces.extend(
                self.texts(&format!("SELECT keyspace_name FROM {schema}.keyspaces"))
                    .into_iter()
                    .map(|[name, ..]| name),
            );
            let pairs =
                self.texts(&format!("SELECT keyspace_name, table_name FROM {schema}.tables"));
            names.tables.extend(pairs.into_iter().map(|[keyspace, name, _]| (keyspace, name)));
            let triples = self.texts(&format!(
                "SELECT keyspace_name, table_name, column_name FROM {schema}.columns"
            ));
            names
                .columns
                .extend(triples.into_iter().map(|[keyspace, table, name]| (keyspace, table, name)));
        }
        for (table, into) in [
            ("SELECT keyspace_name, type_name FROM system_schema.types", &mut names.types),
            (
                "SELECT keyspace_name, function_name FROM system_schema.functions",
                &mut names.functions,
            ),
            (
                "SELECT keyspace_name, aggregate_name FROM system_schema.aggregates",
                &mut names.aggregates,
            ),
        ] {
            into.extend(self.texts(table).into_iter().map(|[keyspace, name, _]| (keyspace, name)));
        }
        self.input.set_names(Arc::new(names));
    }

    /// The first three columns of a query as text; nothing when it fails.
    fn texts(&mut self, query: &str) -> Vec<[String; 3]> {
        let timeout = self.options.request_timeout;
        let pages = schema::rows(&mut self.connection, query, Consistency::One, timeout);
        let text =
            |value: Option<&[u8]>| String::from_utf8_lossy(value.unwrap_or_default()).into_owned();
        let mut rows = Vec::new();
        for page in pages.unwrap_or_default() {
            for row in 0..page.len() {
                rows.push([0, 1, 2].map(|column| text(page.value(row, column))));
            }
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(before: &str, line: &str, start: usize, expect: &[&str]) {
        let own = |text: &str| text.to_owned();
        let names = Names {
            current: Some(own("ks")),
            keyspaces: vec![own("ks"), own("other")],
            tables: vec![(own("ks"), own("users")), (own("other"), own("Things"))],
            types: vec![(own("ks"), own("point"))],
            columns: vec![
                (own("ks"), own("users"), own("id")),
                (own("ks"), own("users"), own("name")),
                (own("other"), own("Things"), own("nature")),
            ],
            ..Names::default()
        };
        let found = complete(before, line, &names);
        assert_eq!(
            (found.start, found.words),
            (start, expect.iter().map(|w| own(w)).collect()),
            "{line}"
        );
    }

    #[test]
    fn the_first_word_is_a_statement_or_command() {
        check("", "sel", 0, &["SELECT"]);
        check("", "DE", 0, &["DELETE", "DESCRIBE"]);
        check("", "SELECT 1; tru", 10, &["TRUNCATE"]);
    }

    #[test]
    fn tables_are_those_of_the_keyspace() {
        check("", "SELECT * FROM ", 14, &["ks.", "other.", "users"]);
        check("SELECT *\n", "FROM us", 5, &["users"]);
        check("", "INSERT INTO other.", 18, &["\"Things\""]);
        check("", "DESC TABLE u", 11, &["users"]);
        check("", "USE o", 4, &["other"]);
        check("", "DROP TYPE p", 10, &["point"]);
    }

    #[test]
    fn columns_are_those_of_the_table() {
        check("", "SELECT * FROM users WHERE na", 26, &["name"]);
        check("", "UPDATE users SET n", 17, &["name"]);
        check("", "SELECT * FROM other.\"Things\" WHERE na", 35, &["nature"]);
        check("", "SELECT na", 7, &["name"]);
    }

    #[test]
    fn commands_have_their_own_words() {
        check("", "CONSISTENCY LOCAL_", 12, &["LOCAL_ONE", "LOCAL_QUORUM", "LOCAL_SERIAL"]);
        check("", "COPY users TO 'f' WITH HEA", 23, &["HEADER"]);
        check("", "SHOW V", 5, &["VERSION"]);
        check("", "# ", 2, &[]);
    }
}
