//! The text format of a `.cqltest` file: parse and print.
//!
//! Owns the line syntax. Never talks to a server and never judges a result. Printing a parsed file
//! gives the same text back, so that recording changes only the expected lines.

use anyhow::{Result, bail};

/// One file: a list of blocks in order.
#[derive(Debug, Default)]
pub struct File {
    /// The protocol version that the file asks for with `@protocol N` before the first block.
    pub protocol: Option<u8>,
    /// User and password for the login, from `@user NAME PASSWORD` before the first block.
    pub user: Option<(String, String)>,
    /// Comments and statements in the order of the file.
    pub items: Vec<Item>,
}

/// A comment, a blank line or a block.
#[derive(Debug)]
pub enum Item {
    /// Retained verbatim.
    Text(String),
    /// A statement with its expected answer.
    Block(Box<Block>),
}

/// Action of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// `> CQL`: QUERY, or PREPARE and EXECUTE when there is a `@bind`.
    Query(String),
    /// `> CQL` followed by `>& CQL`: one BATCH message of these texts.
    Batch(Vec<String>),
    /// `prepare NAME> CQL`
    Prepare(String, String),
    /// `execute NAME> literals`
    Execute(String, String),
    /// `login> NAME PASSWORD`: a new connection for the blocks that follow.
    Login(String, String),
}

/// Options of one block, written as `@name value` lines above it.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// `@unordered`: rows are compared as a multiset (a scan is in token order anyway).
    pub unordered: bool,
    /// `@page-size N`: all pages are fetched; `+ page` stands between two of them.
    pub page_size: Option<i32>,
    /// `@consistency NAME`; LOCAL_ONE without it.
    pub consistency: Option<String>,
    /// `@serial-consistency NAME`
    pub serial_consistency: Option<String>,
    /// `@timestamp MICROS`: client timestamp of the request.
    pub timestamp: Option<i64>,
    /// `@keyspace NAME`: keyspace of the request (protocol v5).
    pub keyspace: Option<String>,
    /// `@now SECONDS`: `now_in_seconds` of the request (protocol v5).
    pub now_in_seconds: Option<i32>,
    /// `@bind LITERALS`: prepare, then execute with these values.
    pub bind: Option<String>,
    /// `@mask COLUMN COLUMN`: values that differ between two runs print as `*`.
    pub mask: Vec<String>,
    /// `@batch logged|unlogged`: kind of a BATCH message.
    pub batch: Option<String>,
    /// `@for NAME FIRST LAST`: run once per number, `$NAME` replaced; all must answer the same.
    pub repeat: Option<(String, i64, i64)>,
}

/// How a block answers otherwise than in Cassandra.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Differs {
    /// The name of the difference in `differences.txt`.
    pub name: String,
    /// Our answer.
    pub ours: Vec<String>,
}

/// A statement, its options and the expected lines.
#[derive(Debug)]
pub struct Block {
    /// Line number of the statement, from 1.
    pub line: usize,
    /// The `@` lines and the statement lines as written.
    pub source: Vec<String>,
    /// Parsed `@` lines.
    pub options: Options,
    /// Message to send.
    pub action: Action,
    /// Expected lines; empty when nothing was recorded yet.
    pub expected: Vec<String>,
    /// Our answer, if it differs: `~ NAME`, then our lines, each after a `~`.
    pub differs: Option<Differs>,
}

/// Reads a file.
///
/// # Errors
/// Names the line that is not part of the format.
pub fn parse(text: &str) -> Result<File> {
    let mut file = File::default();
    let mut source = Vec::new();
    let mut options = Options::default();
    let mut open: Option<Block> = None;
    for (index, line) in text.lines().enumerate() {
        let number = index.saturating_add(1);
        let first = line.chars().next();
        if matches!(first, Some('=' | '|' | ':' | '?' | '!' | '+')) {
            match &mut open {
                Some(block) => block.expected.push(line.to_owned()),
                None => bail!("line {number}: an expected line without a statement"),
            }
            continue;
        }
        if let Some(ours) = line.strip_prefix('~') {
            let Some(block) = &mut open else { bail!("line {number}: `~` without a statement") };
            match (ours.strip_prefix(' '), &mut block.differs) {
                (Some(name), None) => {
                    let name = name.trim().to_owned();
                    block.differs = Some(Differs { name, ours: Vec::new() });
                }
                (None, Some(differs)) => differs.ours.push(ours.to_owned()),
                _ => bail!("line {number}: `~ NAME` stands once, before the lines of our answer"),
            }
            continue;
        }
        if let Some(more) = line.strip_prefix(">>") {
            extend(&mut open, number, line, |action| match action {
                Action::Query(text) | Action::Prepare(_, text) => {
                    text.push('\n');
                    text.push_str(more.trim_start());
                    Ok(())
                }
                Action::Batch(_) | Action::Execute(..) | Action::Login(..) => {
                    bail!("line {number}: nothing to continue")
                }
            })?;
            continue;
        }
        if let Some(more) = line.strip_prefix(">&") {
            extend(&mut open, number, line, |action| {
                match action {
                    Action::Query(text) => {
                        *action = Action::Batch(vec![std::mem::take(text), more.trim().to_owned()]);
                    }
                    Action::Batch(list) => list.push(more.trim().to_owned()),
                    Action::Prepare(..) | Action::Execute(..) | Action::Login(..) => {
                        bail!("line {number}: only a plain statement starts a batch")
                    }
                }
                Ok(())
            })?;
            continue;
        }
        if let Some(block) = open.take() {
            file.items.push(Item::Block(Box::new(block)));
        }
        if let Some(option) = line.strip_prefix('@') {
            if let Some(user) = option.strip_prefix("user ") {
                let Some((name, password)) = user.trim().split_once(' ') else {
                    bail!("line {number}: @user takes a name and a password");
                };
                file.user = Some((name.to_owned(), password.trim().to_owned()));
                file.items.push(Item::Text(line.to_owned()));
            } else if let Some(version) = option.strip_prefix("protocol ") {
                file.protocol = Some(version.trim().parse()?);
                file.items.push(Item::Text(line.to_owned()));
            } else {
                parse_option(&mut options, option)
                    .map_err(|error| error.context(format!("line {number}")))?;
                source.push(line.to_owned());
            }
        } else if line.trim().is_empty() || line.starts_with('#') {
            if !source.is_empty() {
                bail!("line {number}: options without a statement");
            }
            file.items.push(Item::Text(line.to_owned()));
        } else {
            source.push(line.to_owned());
            let action = parse_action(line, number)?;
            open = Some(Block {
                line: number,
                source: std::mem::take(&mut source),
                options: std::mem::take(&mut options),
                action,
                expected: Vec::new(),
                differs: None,
            });
        }
    }
    if let Some(block) = open.take() {
        file.items.push(Item::Block(Box::new(block)));
    }
    if !source.is_empty() {
        bail!("the last options have no statement");
    }
    Ok(file)
}

fn extend(
    open: &mut Option<Block>,
    number: usize,
    line: &str,
    change: impl FnOnce(&mut Action) -> Result<()>,
) -> Result<()> {
    let Some(block) = open else { bail!("line {number}: nothing to continue") };
    if !block.expected.is_empty() || block.differs.is_some() {
        bail!("line {number}: a statement goes on after its expected lines");
    }
    change(&mut block.action)?;
    block.source.push(line.to_owned());
    Ok(())
}

fn parse_action(line: &str, number: usize) -> Result<Action> {
    if let Some(cql) = line.strip_prefix('>') {
        return Ok(Action::Query(cql.trim().to_owned()));
    }
    if let Some((name, cql)) = line.strip_prefix("prepare ").and_then(|rest| rest.split_once('>')) {
        return Ok(Action::Prepare(name.trim().to_owned(), cql.trim().to_owned()));
    }
    if let Some((name, values)) = line.strip_prefix("execute ").and_then(|r| r.split_once('>')) {
        return Ok(Action::Execute(name.trim().to_owned(), values.trim().to_owned()));
    }
    if let Some((name, password)) =
        line.strip_prefix("login> ").and_then(|rest| rest.trim().split_once(' '))
    {
        return Ok(Action::Login(name.to_owned(), password.to_owned()));
    }
    bail!("line {number}: not a comment, option, statement or expected line: {line}")
}

fn parse_option(options: &mut Options, text: &str) -> Result<()> {
    let (name, value) = text.split_once(' ').unwrap_or((text, ""));
    let value = value.trim();
    match name {
        "unordered" => options.unordered = true,
        "page-size" => options.page_size = Some(value.parse()?),
        "consistency" => options.consistency = Some(value.to_owned()),
        "serial-consistency" => options.serial_consistency = Some(value.to_owned()),
        "timestamp" => options.timestamp = Some(value.parse()?),
        "keyspace" => options.keyspace = Some(value.to_owned()),
        "now" => options.now_in_seconds = Some(value.parse()?),
        "bind" => options.bind = Some(value.to_owned()),
        "mask" => options.mask = value.split_whitespace().map(str::to_owned).collect(),
        "batch" => options.batch = Some(value.to_owned()),
        "for" => {
            let mut words = value.split_whitespace();
            match (words.next(), words.next(), words.next(), words.next()) {
                (Some(name), Some(first), Some(last), None) => {
                    options.repeat = Some((name.to_owned(), first.parse()?, last.parse()?));
                }
                _ => bail!("@for takes a name, a first and a last number"),
            }
        }
        _ => bail!("unknown option @{name}"),
    }
    Ok(())
}

/// Writes a file back.
#[must_use]
pub fn print(file: &File) -> String {
    let mut out = String::new();
    for item in &file.items {
        match item {
            Item::Text(line) => {
                out.push_str(line);
                out.push('\n');
            }
            Item::Block(block) => {
                for line in block.source.iter().chain(&block.expected) {
                    out.push_str(line);
                    out.push('\n');
                }
                if let Some(differs) = &block.differs {
                    out.push_str("~ ");
                    out.push_str(&differs.name);
                    for line in &differs.ours {
                        out.push_str("\n~");
                        out.push_str(line);
                    }
                    out.push('\n');
                }
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "# title\n@protocol 4\n@user me secret\n\n> CREATE TABLE t (k int\n>> PRIMARY KEY)\n= void\n\
        @for i 1 3\n> INSERT INTO t (k) VALUES ($i)\n= void\n> a\n>& b\nprepare p> SELECT 1\n\
        ? k int\nexecute p> 1, 'x'\n= rows $ks.t\n: k int\n| 1\n\
        login> $ks_a pw\n= ready\n~ other-words\n~= error INVALID 'x'\n";

    #[test]
    fn printing_a_parsed_file_gives_the_same_text() {
        let file = parse(SAMPLE).expect("sample parses");
        assert_eq!(print(&file), SAMPLE);
        assert_eq!(file.protocol, Some(4));
        assert_eq!(file.user, Some(("me".into(), "secret".into())));
    }

    #[test]
    fn continuation_and_batch_lines_belong_to_the_statement_above() {
        let file = parse(SAMPLE).expect("sample parses");
        let actions: Vec<_> = file
            .items
            .iter()
            .filter_map(|item| match item {
                Item::Block(block) => Some(block.action.clone()),
                Item::Text(_) => None,
            })
            .collect();
        assert_eq!(actions[0], Action::Query("CREATE TABLE t (k int\nPRIMARY KEY)".into()));
        assert_eq!(actions[2], Action::Batch(vec!["a".into(), "b".into()]));
        assert_eq!(actions[4], Action::Execute("p".into(), "1, 'x'".into()));
        let last = file.items.last();
        let Some(Item::Block(last)) = last else { panic!("not a block: {last:?}") };
        let ours = vec!["= error INVALID 'x'".to_owned()];
        assert_eq!(last.differs, Some(Differs { name: "other-words".into(), ours }));
        assert_eq!(actions[5], Action::Login("$ks_a".into(), "pw".into()));
    }

    #[test]
    fn lines_outside_the_format_are_refused_with_their_number() {
        for (text, place) in [
            ("SELECT 1\n", "line 1"),
            ("= void\n", "line 1"),
            ("\n@what 1\n> x\n", "line 2"),
            ("@unordered\n\n> x\n", "line 2"),
            ("@user me\n", "line 1"),
            ("~ name\n", "line 1"),
            ("> x\n= void\n~= void\n", "line 3"),
            ("> x\n= void\n~ one\n~ two\n", "line 4"),
            ("login> me\n", "line 1"),
        ] {
            let error = parse(text).expect_err("must be refused");
            assert!(format!("{error:#}").contains(place), "{error:#}");
        }
    }
}
