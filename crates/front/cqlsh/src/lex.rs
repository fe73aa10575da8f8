//! Tokens of shell input and its split into statements.
//!
//! Owns: the end of a statement (`;`, or the end of the line for shell commands), comments, the
//! kinds of quotes, `BEGIN … APPLY BATCH`. Never: the meaning of a statement; the text is sent to
//! the server as it was typed.
//!
//! Source: the lexical rules of Cassandra's cqlsh 6.2 (`cql3handling.py`, `cqlhandling.py`).

/// Kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Letters, digits and underscores, beginning with a letter.
    Word,
    /// `'…'`, closed.
    Text,
    /// `$$…$$`, closed.
    DollarText,
    /// `"…"`, closed.
    Name,
    /// `'…` up to the end of the input.
    OpenText,
    /// `$$…` up to the end of the input.
    OpenDollarText,
    /// `"…` up to the end of the input.
    OpenName,
    /// `/*…` up to the end of the input.
    OpenComment,
    /// Digits, a fraction, `0x…` or a UUID.
    Number,
    /// `;`, or the end of the line of a shell command.
    End,
    /// A line's end anywhere else; dropped by [`split`].
    Line,
    /// Any other single sign (comparisons may have two).
    Sign,
}

/// One token: kind, and place in the input as byte offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Token {
    /// Its text.
    pub(crate) fn text<'s>(&self, source: &'s str) -> &'s str {
        source.get(self.start..self.end).unwrap_or_default()
    }
}

/// A character that begins no token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LexError {
    /// Line of the input, from 1.
    pub(crate) line: usize,
    /// Column in characters, from 1.
    pub(crate) column: usize,
    /// That line.
    pub(crate) text: String,
}

/// Shell commands that end with their line.
const LINE_COMMANDS: [&str; 18] = [
    "help",
    "?",
    "consistency",
    "serial",
    "describe",
    "desc",
    "show",
    "source",
    "capture",
    "login",
    "debug",
    "tracing",
    "expand",
    "paging",
    "exit",
    "quit",
    "clear",
    "cls",
];

fn is_line_command(word: &str) -> bool {
    LINE_COMMANDS.iter().chain(&["history", "output"]).any(|known| word.eq_ignore_ascii_case(known))
}

/// Cuts the input into tokens; white space and comments are dropped.
pub(crate) fn tokens(source: &str) -> Result<Vec<Token>, LexError> {
    let bytes = source.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let rest = source.get(at..).unwrap_or_default();
        if matches!(byte, b' ' | b'\t' | b'\r' | 0x0c | 0x0b) {
            at += 1;
            continue;
        }
        if rest.starts_with("--") || rest.starts_with("//") {
            at += rest.find(['\n', '\r']).map_or(rest.len(), |length| length + 1);
            continue;
        }
        if rest.starts_with("/*") {
            match rest.get(2..).and_then(|inner| inner.find("*/")) {
                Some(length) => {
                    at += length + 4;
                    continue;
                }
                None => {
                    found.push(Token { kind: Kind::OpenComment, start: at, end: source.len() });
                    break;
                }
            }
        }
        let (kind, length) = token(rest, byte).ok_or_else(|| error_at(source, at))?;
        found.push(Token { kind, start: at, end: at + length });
        at += length;
    }
    Ok(found)
}

fn token(rest: &str, byte: u8) -> Option<(Kind, usize)> {
    Some(match byte {
        b'\n' => (Kind::Line, 1),
        b'\'' => quoted(rest, '\'', Kind::Text, Kind::OpenText),
        b'"' => quoted(rest, '"', Kind::Name, Kind::OpenName),
        b'$' if rest.starts_with("$$") => match rest.get(2..).and_then(|inner| inner.find("$$")) {
            Some(length) => (Kind::DollarText, length + 4),
            None => (Kind::OpenDollarText, rest.len()),
        },
        b';' => (Kind::End, 1),
        b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => word_or_number(rest, byte),
        b'<' | b'>' | b'!' => {
            (Kind::Sign, if rest.as_bytes().get(1) == Some(&b'=') { 2 } else { 1 })
        }
        b'-' | b'+' | b'=' | b'%' | b'/' | b',' | b'(' | b')' | b'.' | b':' | b'*' | b'['
        | b']' | b'{' | b'}' | b'?' => (Kind::Sign, 1),
        _ => return None,
    })
}

fn quoted(rest: &str, quote: char, closed: Kind, open: Kind) -> (Kind, usize) {
    let mut signs = rest.char_indices().skip(1).peekable();
    while let Some((at, sign)) = signs.next() {
        if sign == quote && signs.next_if(|(_, next)| *next == quote).is_none() {
            return (closed, at + 1);
        }
    }
    (open, rest.len())
}

fn word_or_number(rest: &str, first: u8) -> (Kind, usize) {
    let bytes = rest.as_bytes();
    let run = |from: usize, accept: fn(u8) -> bool| {
        bytes.get(from..).unwrap_or_default().iter().take_while(|byte| accept(**byte)).count()
    };
    if is_uuid(bytes) {
        return (Kind::Number, 36);
    }
    if first.is_ascii_alphabetic() {
        return (Kind::Word, run(0, |byte| byte.is_ascii_alphanumeric() || byte == b'_'));
    }
    let digits = run(0, |byte| byte.is_ascii_digit());
    if bytes.get(digits) == Some(&b'.') {
        let fraction = run(digits + 1, |byte| byte.is_ascii_digit());
        if fraction > 0 {
            return (Kind::Number, digits + 1 + fraction);
        }
    }
    if first == b'0' && matches!(bytes.get(1), Some(b'x' | b'X')) {
        let hex = run(2, |byte| byte.is_ascii_hexdigit());
        if hex > 0 {
            return (Kind::Number, 2 + hex);
        }
    }
    (Kind::Number, digits)
}

fn is_uuid(bytes: &[u8]) -> bool {
    bytes.len() >= 36
        && bytes.iter().take(36).enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

fn error_at(source: &str, at: usize) -> LexError {
    let before = source.get(..at).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    let text = source.split('\n').nth(line - 1).unwrap_or_default().to_owned();
    LexError { line, column, text }
}

/// The statements of an input.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Split {
    /// Tokens of each statement, its [`Kind::End`] included; none is empty.
    pub(crate) statements: Vec<Vec<Token>>,
    /// Everything is closed: quotes, batches, and the last statement has its end.
    pub(crate) complete: bool,
}

/// Splits the input. A batch is one statement from BEGIN to the `;` after APPLY BATCH.
pub(crate) fn split(source: &str) -> Result<Split, LexError> {
    let tokens = tokens(source)?;
    let open_dollar = tokens.iter().any(|token| token.kind == Kind::OpenDollarText);
    let mut statements: Vec<Vec<Token>> = Vec::new();
    let mut current: Vec<Token> = Vec::new();
    let mut in_batch = false;
    let mut ends_with_line = false;
    for mut token in tokens {
        if token.kind == Kind::Line {
            if !ends_with_line {
                continue;
            }
            token.kind = Kind::End;
        }
        current.push(token);
        if token.kind == Kind::End {
            ends_with_line = false;
            in_batch = push(&mut statements, std::mem::take(&mut current), source, in_batch);
        } else if current.len() == 1 {
            ends_with_line = is_line_command(token.text(source));
        }
    }
    if !current.is_empty() {
        in_batch = push(&mut statements, current, source, in_batch);
    }
    let ended = statements
        .last()
        .is_none_or(|last| last.last().is_some_and(|token| token.kind == Kind::End));
    Ok(Split { statements, complete: ended && !in_batch && !open_dollar })
}

/// Adds a piece to the last statement when that is an open batch. Returns whether a batch is open.
fn push(statements: &mut Vec<Vec<Token>>, piece: Vec<Token>, source: &str, in_batch: bool) -> bool {
    let word = |index: Option<usize>, expected: &str| {
        index
            .and_then(|index| piece.get(index))
            .is_some_and(|token| token.text(source).eq_ignore_ascii_case(expected))
    };
    let mut open = in_batch;
    if piece.len() > 2 {
        if word(piece.len().checked_sub(3), "APPLY") {
            open = false;
        } else if word(Some(0), "BEGIN") {
            open = true;
        }
    }
    match statements.last_mut().filter(|_| in_batch) {
        Some(batch) => batch.extend(piece),
        None => statements.push(piece),
    }
    open
}

/// The text of a statement as it was typed, from its first token to its last.
pub(crate) fn original<'s>(tokens: &[Token], source: &'s str) -> &'s str {
    match (tokens.first(), tokens.last()) {
        (Some(first), Some(last)) => source.get(first.start..last.end).unwrap_or_default(),
        _ => "",
    }
}

/// Returns true if a token can be an identifier: in double quotes, or a word that is not reserved.
pub(crate) fn is_name(token: &Token, source: &str) -> bool {
    match token.kind {
        Kind::Name => true,
        Kind::Word => !types::name::is_reserved_keyword(token.text(source)),
        _ => false,
    }
}

/// A name without its quotes; unquoted ones in lower case.
pub(crate) fn unquote_name(text: &str) -> String {
    match text.strip_prefix('"').and_then(|inner| inner.strip_suffix('"')) {
        Some(inner) => inner.replace("\"\"", "\""),
        None => text.to_lowercase(),
    }
}

/// A literal without its quotes; other text stays.
pub(crate) fn unquote_text(text: &str) -> String {
    if let Some(inner) = text.strip_prefix('\'').and_then(|inner| inner.strip_suffix('\'')) {
        return inner.replace("''", "'");
    }
    match text.strip_prefix("$$").and_then(|inner| inner.strip_suffix("$$")) {
        Some(inner) => inner.to_owned(),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, expect: &[&str], complete: bool) {
        let split = split(source).unwrap();
        let texts: Vec<&str> =
            split.statements.iter().map(|tokens| original(tokens, source)).collect();
        assert_eq!(texts, expect, "{source:?}");
        assert_eq!(split.complete, complete, "{source:?}");
    }

    #[test]
    fn statements_end_at_semicolons_outside_of_quotes() {
        check("SELECT 1; SELECT 2;\n", &["SELECT 1;", "SELECT 2;"], true);
        check("INSERT 'a;b' \"c;d\" $$e;f$$;", &["INSERT 'a;b' \"c;d\" $$e;f$$;"], true);
        check("INSERT 'it''s;';", &["INSERT 'it''s;';"], true);
        check("SELECT 1", &["SELECT 1"], false);
        check("SELECT 'a;", &["SELECT 'a;"], false);
        check("SELECT $$a;", &["SELECT $$a;"], false);
    }

    #[test]
    fn comments_belong_to_no_statement() {
        check("-- a; b\nSELECT 1; // c;\n/* d; */ SELECT 2;", &["SELECT 1;", "SELECT 2;"], true);
        check("SELECT /* ; */ 1;", &["SELECT /* ; */ 1;"], true);
        check("/* open ;", &["/* open ;"], false);
        check("-- only\n", &[], true);
    }

    #[test]
    fn shell_commands_end_with_their_line() {
        check("CONSISTENCY ONE\nSELECT 1;", &["CONSISTENCY ONE\n", "SELECT 1;"], true);
        check("desc tables\n", &["desc tables\n"], true);
        check("SELECT\n1;", &["SELECT\n1;"], true);
        check("COPY t\nTO 'x';", &["COPY t\nTO 'x';"], true);
    }

    #[test]
    fn a_batch_is_one_statement() {
        let batch = "BEGIN BATCH INSERT 1; INSERT 2; APPLY BATCH;";
        check(&format!("{batch} SELECT 1;"), &[batch, "SELECT 1;"], true);
        check("BEGIN UNLOGGED BATCH INSERT 1;", &["BEGIN UNLOGGED BATCH INSERT 1;"], false);
    }

    #[test]
    fn a_sign_that_begins_no_token_is_named_by_its_place() {
        assert_eq!(
            split("SELECT 1;\nSELECT #;").unwrap_err(),
            LexError { line: 2, column: 8, text: "SELECT #;".to_owned() }
        );
        assert!(split("SELECT '#';").is_ok());
        assert!(split("SELECT _a;").is_err());
        assert!(split("SELECT a_;").is_ok());
    }

    #[test]
    fn quotes_come_off_names_and_literals() {
        assert_eq!(unquote_name("Ab"), "ab");
        assert_eq!(unquote_name("\"A\"\"b\""), "A\"b");
        assert_eq!(unquote_text("'it''s'"), "it's");
        assert_eq!(unquote_text("$$it's$$"), "it's");
        assert_eq!(unquote_text("true"), "true");
    }
}
