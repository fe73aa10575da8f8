//! Runs the blocks of a file against a server and compares or records.
//!
//! Owns the expected lines: how an answer is written down. Invariant: the lines name everything of
//! an answer that a client can see, apart from what `@mask` hides and from ids.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::client::{
    Answer, Bound, Client, Parameters, Prepared, Response, Rows, ServerError, consistency_code,
};
use crate::file::{Action, Block, File, Item, Options};
use crate::value::{Column, encode_all, quote, render};

/// Pages of one statement that are fetched at most.
const PAGES_MAX: usize = 10_000;

/// A block with an unexpected answer.
#[derive(Debug)]
pub struct Difference {
    /// Line of the statement in the file.
    pub line: usize,
    /// The statement as written.
    pub source: Vec<String>,
    /// Lines of the file.
    pub expected: Vec<String>,
    /// Lines of the answer.
    pub got: Vec<String>,
}

impl Difference {
    /// Returns lines for a reader: position, statement, the lines that only the expected answer has
    /// and those that only the actual one has.
    #[must_use]
    pub fn lines(&self, path: &Path) -> Vec<String> {
        let mut lines = vec![format!("  {}:{}", path.display(), self.line)];
        lines.extend(self.source.iter().map(|line| format!("      {line}")));
        let without = |these: &[String], those: &[String], mark: &str| -> Vec<String> {
            let only = these.iter().filter(|line| !those.contains(line));
            only.map(|line| format!("    {mark} {line}")).collect()
        };
        lines.extend(without(&self.expected, &self.got, "-"));
        lines.extend(without(&self.got, &self.expected, "+"));
        lines
    }
}

/// Results of one file.
#[derive(Debug, Default)]
pub struct Report {
    /// Blocks that were compared.
    pub checked: usize,
    /// Those whose answer is neither Cassandra's nor our documented one.
    pub differences: Vec<Difference>,
    /// Number of answers that match our documented ones.
    pub known: usize,
    /// Lines of blocks that answer as Cassandra, though another answer is named as ours.
    pub outlived: Vec<usize>,
}

/// Mode of a run: compare answers with the file or write them into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Compare.
    Check,
    /// Replace the expected lines: for a real Cassandra.
    Record,
    /// Replace our answers where a difference is named; a difference that has disappeared is
    /// removed.
    RecordOurs,
}

/// Runs all blocks of a file in order, in fresh keyspaces.
///
/// `$ks` in the file stands for `keyspace`, which exists and is in use at the first block; `${ks}_2`
/// and `${ks}_3` are names a file may use for further ones. All three are dropped before and after.
///
/// # Errors
/// The connection fails, or a block is not well formed. A wrong answer is not an error.
pub fn run(file: &mut File, connect: &Connect<'_>, keyspace: &str, mode: Mode) -> Result<Report> {
    let user = file.user.clone();
    let user = user.as_ref().map(|(name, password)| (name.as_str(), password.as_str()));
    let client = &mut connected(connect, user)?;
    for item in &file.items {
        let Item::Block(block) = item else { continue };
        let texts = match &block.action {
            Action::Query(text) | Action::Prepare(_, text) => std::slice::from_ref(text),
            Action::Batch(texts) => texts.as_slice(),
            Action::Execute(..) | Action::Login(..) => &[],
        };
        for text in texts {
            guard(text).with_context(|| format!("line {}: {text}", block.line))?;
        }
    }
    let names = [keyspace.to_owned(), format!("{keyspace}_2"), format!("{keyspace}_3")];
    for name in &names {
        must(client, &format!("DROP KEYSPACE IF EXISTS {name}"))?;
    }
    must(
        client,
        &format!(
            "CREATE KEYSPACE {keyspace} WITH replication = \
             {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
        ),
    )?;
    let own = connected(connect, user)?;
    let mut state = State { client: own, connect, keyspace, prepared: BTreeMap::new() };
    must(&mut state.client, &format!("USE {keyspace}"))?;
    let mut report = Report::default();
    for item in &mut file.items {
        let Item::Block(block) = item else { continue };
        let got = state
            .block(block)
            .with_context(|| format!("line {}: {}", block.line, block.source.join(" ")))?;
        report.checked += 1;
        let unordered = block.options.unordered;
        match mode {
            Mode::Record => block.expected = got,
            Mode::RecordOurs if equal(&block.expected, &got, unordered) => block.differs = None,
            Mode::RecordOurs => {
                if let Some(differs) = &mut block.differs {
                    differs.ours = got;
                }
            }
            Mode::Check => match (equal(&block.expected, &got, unordered), &block.differs) {
                (true, None) => {}
                (true, Some(_)) => report.outlived.push(block.line),
                (false, Some(differs)) if equal(&differs.ours, &got, unordered) => {
                    report.known += 1;
                }
                (false, differs) => {
                    let expected = differs.as_ref().map_or(&block.expected, |d| &d.ours).clone();
                    let source = block.source.clone();
                    report.differences.push(Difference { line: block.line, source, expected, got });
                }
            },
        }
    }
    for name in &names {
        must(client, &format!("DROP KEYSPACE IF EXISTS {name}"))?;
    }
    Ok(report)
}

/// Refuses a text that could change a system keyspace.
///
/// The server may be shared, and a real Cassandra does accept TRUNCATE, INSERT, UPDATE and DELETE
/// on `system` and `system_schema` tables: after that drivers no longer connect and it does not
/// restart. Statements that a server is expected to refuse are rejected here too, because a server
/// that accepts them would be damaged. Nothing is stored in the virtual keyspaces, and a further
/// type does no harm, so these may be named.
///
/// # Errors
/// The text is not a plain read and names a system keyspace.
fn guard(cql: &str) -> Result<()> {
    let text = cql.trim_start().to_ascii_lowercase().replace('"', "");
    let first = text.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
    let reads = matches!(first, "select" | "describe" | "desc" | "use");
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let words =
        words.replace("system_views", "virtual").replace("system_virtual_schema", "virtual");
    let words = words.replace("create type system.", "create type ");
    // A function or an aggregate that is named there is one of those that are built in.
    let words = words.replace("drop function system.", "").replace("drop aggregate system.", "");
    if !reads
        && ["system.", "system_", "system .", "keyspace system", "exists system"]
            .iter()
            .any(|name| words.contains(name))
    {
        bail!("refused: it would change a system keyspace");
    }
    Ok(())
}

/// Syntax errors are compared up to the place (`line L:C`), everything else as a whole.
fn equal(expected: &[String], got: &[String], unordered: bool) -> bool {
    if unordered {
        let sorted = |lines: &[String]| {
            let mut lines = lines.to_vec();
            lines.sort();
            lines
        };
        return sorted(expected) == sorted(got);
    }
    expected == got
}

fn must(client: &mut Client, cql: &str) -> Result<()> {
    match client.query(cql, &Parameters::default())?.answer {
        Answer::Error(error) => bail!("{cql}: {}", error.message),
        _ => Ok(()),
    }
}

/// A connection, or the server's refusal.
pub type Connected = std::result::Result<Client, ServerError>;

/// Makes a connection, as a user when one is given; the inner error is the server's answer to it.
pub type Connect<'a> = dyn Fn(Option<(&str, &str)>) -> Result<Connected> + 'a;

fn connected(connect: &Connect<'_>, user: Option<(&str, &str)>) -> Result<Client> {
    connect(user)?.map_err(|error| anyhow::anyhow!("the server refuses the connection: {error:?}"))
}

struct State<'a> {
    client: Client,
    connect: &'a Connect<'a>,
    keyspace: &'a str,
    prepared: BTreeMap<String, Prepared>,
}

impl State<'_> {
    fn block(&mut self, block: &Block) -> Result<Vec<String>> {
        let options = &block.options;
        let Some((name, first, last)) = &options.repeat else {
            return self.action(&block.action, options);
        };
        let mut lines: Option<Vec<String>> = None;
        for number in *first..=*last {
            let from = format!("${name}");
            let replace = |text: &String| text.replace(&from, &number.to_string());
            let action = match &block.action {
                Action::Query(text) => Action::Query(replace(text)),
                Action::Batch(texts) => Action::Batch(texts.iter().map(replace).collect()),
                Action::Prepare(name, text) => Action::Prepare(name.clone(), replace(text)),
                Action::Execute(name, text) => Action::Execute(name.clone(), replace(text)),
                Action::Login(name, password) => Action::Login(replace(name), password.clone()),
            };
            let mut options = options.clone();
            options.bind = options.bind.as_ref().map(replace);
            let got = self.action(&action, &options)?;
            if lines.get_or_insert_with(|| got.clone()) != &got {
                bail!("the answer for {number} is another one: {}", got.join(" "));
            }
        }
        Ok(lines.unwrap_or_default())
    }

    fn action(&mut self, action: &Action, options: &Options) -> Result<Vec<String>> {
        let mut parameters = self.parameters(options)?;
        let mut lines = Vec::new();
        match action {
            Action::Query(text) => {
                let text = self.name_in(text);
                if let Some(values) = &options.bind {
                    let response = self.client.prepare(&text, parameters.keyspace.as_deref())?;
                    let Answer::Prepared(prepared) = response.answer else {
                        return Ok(self.lines(&response, options, None));
                    };
                    parameters.values = self.values(&prepared, values)?;
                    self.bound_lines(&mut lines, &prepared.bound, &prepared.key_indexes);
                    let mut prepared = prepared;
                    self.pages(&mut lines, options, &mut parameters, &mut prepared)?;
                } else {
                    for page in 0..PAGES_MAX {
                        let response = self.client.query(&text, &parameters)?;
                        if page > 0 {
                            lines.push("+ page".to_owned());
                        }
                        lines.extend(self.lines(&response, options, None));
                        parameters.paging_state = next_page(&response);
                        if parameters.paging_state.is_none() {
                            break;
                        }
                    }
                }
            }
            Action::Batch(texts) => {
                let kind = match options.batch.as_deref() {
                    None | Some("logged") => 0,
                    Some("unlogged") => 1,
                    Some("counter") => 2,
                    Some(other) => bail!("unknown kind of batch {other}"),
                };
                let texts: Vec<String> = texts.iter().map(|text| self.name_in(text)).collect();
                let response = self.client.batch(kind, &texts, &parameters)?;
                lines.extend(self.lines(&response, options, None));
            }
            Action::Prepare(name, text) => {
                let text = self.name_in(text);
                let response = self.client.prepare(&text, parameters.keyspace.as_deref())?;
                if let Answer::Prepared(prepared) = &response.answer {
                    self.bound_lines(&mut lines, &prepared.bound, &prepared.key_indexes);
                    if !prepared.result.columns.is_empty() {
                        self.column_lines(&mut lines, &prepared.result.columns, "= prepared");
                    } else {
                        lines.push("= prepared".to_owned());
                    }
                    self.prepared.insert(name.clone(), prepared.clone());
                } else {
                    lines.extend(self.lines(&response, options, None));
                }
            }
            Action::Login(name, password) => {
                match (self.connect)(Some((&self.name_in(name), password)))? {
                    Ok(client) => {
                        self.client = client;
                        must(&mut self.client, &format!("USE {}", self.keyspace))?;
                        lines.push("= ready".to_owned());
                    }
                    Err(error) => lines.push(self.name_out(&error_line(&error))),
                }
            }
            Action::Execute(name, values) => {
                let Some(mut prepared) = self.prepared.remove(name) else {
                    bail!("nothing was prepared as {name}");
                };
                parameters.values = self.values(&prepared, values)?;
                self.pages(&mut lines, options, &mut parameters, &mut prepared)?;
                self.prepared.insert(name.clone(), prepared);
            }
        }
        Ok(lines)
    }

    /// Executes a prepared statement page by page, with the result columns of PREPARE on v5.
    fn pages(
        &mut self,
        lines: &mut Vec<String>,
        options: &Options,
        parameters: &mut Parameters,
        prepared: &mut Prepared,
    ) -> Result<()> {
        for page in 0..PAGES_MAX {
            parameters.skip_metadata =
                self.client.version() >= 5 && !prepared.result.columns.is_empty();
            let response = self.client.execute(prepared, parameters)?;
            if page > 0 {
                lines.push("+ page".to_owned());
            }
            if let Answer::Rows(Rows { metadata, .. }) = &response.answer
                && let Some(id) = &metadata.new_id
            {
                lines.push("+ metadata changed".to_owned());
                prepared.result_id.clone_from(id);
                prepared.result.columns.clone_from(&metadata.columns);
            }
            lines.extend(self.lines(&response, options, Some(&prepared.result.columns)));
            parameters.paging_state = next_page(&response);
            if parameters.paging_state.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn parameters(&self, options: &Options) -> Result<Parameters> {
        let mut parameters = Parameters {
            page_size: options.page_size,
            timestamp: options.timestamp,
            now_in_seconds: options.now_in_seconds,
            keyspace: options.keyspace.as_ref().map(|name| self.name_in(name)),
            ..Parameters::default()
        };
        if let Some(name) = &options.consistency {
            parameters.consistency = consistency_code(name)?;
        }
        if let Some(name) = &options.serial_consistency {
            parameters.serial_consistency = Some(consistency_code(name)?);
        }
        Ok(parameters)
    }

    fn values(&self, prepared: &Prepared, text: &str) -> Result<Vec<Bound>> {
        encode_all(&prepared.bound, &self.name_in(text))
    }

    fn name_in(&self, text: &str) -> String {
        text.replace("${ks}", self.keyspace).replace("$ks", self.keyspace)
    }

    fn name_out(&self, text: &str) -> String {
        text.replace(self.keyspace, "${ks}")
    }

    fn bound_lines(&self, lines: &mut Vec<String>, columns: &[Column], key_indexes: &[u16]) {
        for (index, column) in columns.iter().enumerate() {
            let key = key_indexes.iter().position(|i| usize::from(*i) == index);
            let mark = key.map_or(String::new(), |at| format!(" (partition key {at})"));
            lines.push(self.name_out(&format!("? {} {}{mark}", column.name, column.kind)));
        }
    }

    fn column_lines(&self, lines: &mut Vec<String>, columns: &[Column], head: &str) {
        let table = columns.first().map(|column| format!(" {}.{}", column.keyspace, column.table));
        lines.push(self.name_out(&format!("{head}{}", table.unwrap_or_default())));
        for column in columns {
            lines.push(self.name_out(&format!(": {} {}", column.name, column.kind)));
        }
    }

    fn lines(
        &self,
        response: &Response,
        options: &Options,
        known: Option<&Vec<Column>>,
    ) -> Vec<String> {
        let mut lines = Vec::new();
        for warning in &response.warnings {
            lines.push(self.name_out(&format!("! {}", quote(warning))));
        }
        match &response.answer {
            Answer::Void => lines.push("= void".to_owned()),
            Answer::SetKeyspace(name) => lines.push(self.name_out(&format!("= keyspace {name}"))),
            Answer::SchemaChange(change, target, names) => {
                lines.push(
                    self.name_out(&format!("= schema {change} {target} {}", names.join(" "))),
                );
            }
            Answer::Prepared(_) => lines.push("= prepared".to_owned()),
            Answer::Error(error) => lines.push(self.name_out(&error_line(error))),
            Answer::Rows(rows) => {
                let columns = match known {
                    Some(known) if rows.metadata.skipped => known,
                    _ => &rows.metadata.columns,
                };
                self.column_lines(&mut lines, columns, "= rows");
                for row in &rows.rows {
                    let mut line = String::new();
                    for (column, cell) in columns.iter().zip(row) {
                        line.push_str("| ");
                        if options.mask.contains(&column.name) {
                            line.push('*');
                        } else {
                            line.push_str(&render(&column.kind, cell.as_deref()));
                        }
                        line.push(' ');
                    }
                    lines.push(self.name_out(line.trim_end()));
                }
            }
        }
        lines
    }
}

fn next_page(response: &Response) -> Option<Vec<u8>> {
    match &response.answer {
        Answer::Rows(rows) => rows.metadata.paging_state.clone(),
        _ => None,
    }
}

/// Formats `= error CODE "message" field=value`; for a syntax error only the position is retained.
fn error_line(error: &ServerError) -> String {
    let code = match error.code {
        0x0000 => "SERVER_ERROR",
        0x000a => "PROTOCOL_ERROR",
        0x0100 => "BAD_CREDENTIALS",
        0x1000 => "UNAVAILABLE",
        0x1001 => "OVERLOADED",
        0x1002 => "IS_BOOTSTRAPPING",
        0x1003 => "TRUNCATE_ERROR",
        0x1100 => "WRITE_TIMEOUT",
        0x1200 => "READ_TIMEOUT",
        0x1300 => "READ_FAILURE",
        0x1400 => "FUNCTION_FAILURE",
        0x1500 => "WRITE_FAILURE",
        0x2000 => "SYNTAX_ERROR",
        0x2100 => "UNAUTHORIZED",
        0x2200 => "INVALID",
        0x2300 => "CONFIG_ERROR",
        0x2400 => "ALREADY_EXISTS",
        0x2500 => "UNPREPARED",
        _ => "UNKNOWN",
    };
    if error.code == 0x2000
        && let Some((place, _)) = error.message.split_once(' ').and_then(|(line, rest)| {
            let (place, rest) = rest.split_once(' ')?;
            (line == "line").then(|| (format!("line {place}"), rest))
        })
    {
        return format!("= error {code} {place}");
    }
    let mut line = format!("= error {code} {}", quote(&sort_signatures(&error.message)));
    for field in &error.fields {
        line.push(' ');
        line.push_str(field);
    }
    line
}

/// Cassandra lists function signatures in the order of a hash set, another one in every process.
fn sort_signatures(message: &str) -> String {
    let Some((head, list)) = message.split_once("signatures: ") else { return message.to_owned() };
    let Some((list, tail)) = list.rsplit_once(')') else { return message.to_owned() };
    // "(… signatures: a, b): use type casts": the last bracket may belong to the last signature
    let (list, tail) = match message.split_once("): use type casts") {
        Some((whole, rest)) => (
            whole.split_once("signatures: ").map_or(list, |(_, list)| list),
            format!("): use type casts{rest}"),
        ),
        None => (list, format!("){tail}")),
    };
    let mut items: Vec<&str> =
        list.split(", system.").map(|s| s.trim_start_matches("system.")).collect();
    items.sort_unstable();
    format!("{head}signatures: system.{}{tail}", items.join(", system."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(code: i32, message: &str) -> String {
        error_line(&ServerError { code, message: message.to_owned(), fields: Vec::new() })
    }

    #[test]
    fn syntax_errors_keep_their_place_only() {
        assert_eq!(
            error(0x2000, "line 1:7 no viable alternative"),
            "= error SYNTAX_ERROR line 1:7"
        );
        assert_eq!(error(0x2000, "Failed parsing"), "= error SYNTAX_ERROR 'Failed parsing'");
        assert_eq!(error(0x2200, "line 1:7 of x"), "= error INVALID 'line 1:7 of x'");
    }

    #[test]
    fn signature_lists_are_compared_without_their_order() {
        for tail in [")", "): use type casts to disambiguate"] {
            let one =
                format!("Call (known signatures: system.f : (int) -> x, system.f : (a) -> y{tail}");
            let two =
                format!("Call (known signatures: system.f : (a) -> y, system.f : (int) -> x{tail}");
            assert_eq!(sort_signatures(&one), sort_signatures(&two));
            assert_eq!(sort_signatures(&two), two);
        }
    }

    #[test]
    fn only_reads_may_name_a_system_keyspace() {
        for refused in [
            "TRUNCATE system.local",
            "truncate table \"system\".local",
            "UPDATE system.local SET cluster_name = 'x' WHERE key = 'local'",
            "INSERT INTO system_schema.keyspaces (keyspace_name) VALUES ('x')",
            "/* c */ DELETE FROM system_schema.tables WHERE keyspace_name = 'x'",
            "BEGIN BATCH DELETE FROM system.peers WHERE peer = '::1'; APPLY BATCH",
            "DROP KEYSPACE IF EXISTS  system",
        ] {
            assert!(guard(refused).is_err(), "{refused}");
        }
        for allowed in ["SELECT * FROM system.local", "DESCRIBE TABLE system.peers", "TRUNCATE t"] {
            assert!(guard(allowed).is_ok(), "{allowed}");
        }
    }

    #[test]
    fn order_counts_unless_the_block_says_otherwise() {
        let (a, b) =
            (vec!["| 1".to_owned(), "| 2".to_owned()], vec!["| 2".to_owned(), "| 1".to_owned()]);
        assert!(!equal(&a, &b, false));
        assert!(equal(&a, &b, true));
        assert!(!equal(&a, &b[..1], true));
    }
}
