//! The one error of this crate, and the formatting of its text.

use crate::lexer::{LexError, lex_all};
use crate::token::{Tok, Token};

/// A text that is not CQL.
///
/// The message has Cassandra's shape: `line L:C description (…snippet with the [token]…)`. Line is
/// 1-based, column 0-based in UTF-16 units, as ANTLR counts; the end of the text is `line 0:-1`.
/// Errors that Cassandra reports without a position have none here either.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SyntaxError {
    /// The whole text for the client (code 0x2000).
    pub message: Box<str>,
    /// Byte offset of the offending text, for tools that point at it.
    pub offset: usize,
}

impl SyntaxError {
    /// A refusal without a position.
    pub(crate) fn plain(message: impl Into<String>, offset: usize) -> SyntaxError {
        SyntaxError { message: message.into().into_boxed_str(), offset }
    }

    /// A text of our own at a byte offset.
    pub(crate) fn at(text: &str, offset: usize, what: &str) -> SyntaxError {
        let (line, column) = line_column(text, offset);
        SyntaxError::plain(format!("line {line}:{column} {what}"), offset)
    }

    /// A character that starts no token.
    pub(crate) fn lexical(text: &str, error: &LexError) -> SyntaxError {
        SyntaxError::at(text, error.offset, &error.what)
    }

    /// A token that does not fit.
    pub(crate) fn grammatical(text: &str, tokens: &Misfit, expected: Option<&str>) -> SyntaxError {
        let Misfit { decision, failed, reached } = tokens;
        let offset = failed.start as usize;
        let what = match expected {
            Some(name) => format!("mismatched input {} expecting {name}", display(text, failed)),
            None => format!("no viable alternative at input {}", display(text, failed)),
        };
        if failed.kind == Tok::Eof {
            return SyntaxError::plain(format!("line 0:-1 {what}"), offset);
        }
        let (line, column) = line_column(text, offset);
        let mut message = format!("line {line}:{column} {what}");
        if let Some(snippet) = snippet(text, decision, reached) {
            message.push_str(&snippet);
        }
        SyntaxError::plain(message, offset)
    }
}

/// The expected tokens of a production that cannot continue.
pub(crate) struct Misfit {
    /// First token of the production; the marked token.
    pub(crate) decision: Token,
    /// The token that did not fit.
    pub(crate) failed: Token,
    /// The last token that was read.
    pub(crate) reached: Token,
}

/// Tokens before the marked one that a snippet shows; white space counts. Source: Cassandra's
/// `ErrorCollector`.
const SNIPPET_TOKENS_BEFORE: usize = 10;
/// Tokens after the marked one that a snippet shows.
const SNIPPET_TOKENS_AFTER: usize = 2;

/// Line (from 1) and column (from 0, UTF-16 units) of a byte offset.
fn line_column(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.bytes().filter(|b| *b == b'\n').count() + 1;
    let last = before.rsplit('\n').next().unwrap_or("");
    (line, utf16_len(last))
}

fn utf16_len(text: &str) -> usize {
    text.chars().map(char::len_utf16).sum()
}

/// The token in quotes as ANTLR shows it: line ends and tabs escaped, strings without their quotes.
fn display(text: &str, token: &Token) -> String {
    if token.kind == Tok::Eof {
        return "'<EOF>'".to_owned();
    }
    let shown = token.value(text);
    format!("'{}'", shown.replace('\n', "\\n").replace('\r', "\\r").replace('\t', "\\t"))
}

/// ` (…text around the marked token…)`. The end of the marked and of the last token is counted by
/// the length of the token's value, so that of a string falls short, as it does in Cassandra.
fn snippet(text: &str, decision: &Token, reached: &Token) -> Option<String> {
    if decision.kind == Tok::Eof {
        return None;
    }
    let all = lex_all(text);
    let index = all.iter().position(|t| t.start == decision.start)?;
    let reached = all.iter().position(|t| t.start == reached.start).unwrap_or(all.len() - 1);
    let from = all.get(index.saturating_sub(SNIPPET_TOKENS_BEFORE))?;
    let to = all.get(reached.max(index).min(index + SNIPPET_TOKENS_AFTER))?;
    if to.kind == Tok::Eof {
        return None;
    }
    let mark_start = decision.start as usize;
    let mark_end = shown_end(text, decision);
    let to_end = shown_end(text, to).max(mark_end);
    let head = text.get(from.start as usize..mark_start)?;
    let marked = text.get(mark_start..mark_end)?;
    let tail = text.get(mark_end..to_end)?;
    let dots_before = if from.start == 0 { "" } else { "..." };
    let dots_after = if text.get(to_end..)?.trim_end_matches('\n').is_empty() { "" } else { "..." };
    let body = format!("{dots_before}{head}[{marked}]{tail}{dots_after}").replace('\n', "");
    Some(format!(" ({body})"))
}

/// Byte offset where the token ends when as many characters as its value has are counted.
fn shown_end(text: &str, token: &Token) -> usize {
    let start = token.start as usize;
    let rest = text.get(start..token.end as usize).unwrap_or("");
    let count = token.value(text).chars().count();
    rest.char_indices().nth(count).map_or(start + rest.len(), |(at, _)| start + at)
}
