//! Cutting a script into statements, for tools.

use crate::lexer::Lexer;
use crate::token::Tok;

/// Cuts a script at the semicolons between statements. Semicolons in strings, quoted names and
/// comments do not count, nor those inside a batch; pieces of white space and comments alone are
/// left out. Each piece is trimmed and has no semicolon at its end.
///
/// Takes any text: invalid parts (an unterminated string, a stray character) stay in their piece,
/// so that parsing the piece reports them.
pub fn split_statements(text: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut lexer = Lexer::new(text);
    let mut start = 0;
    let mut first: Option<Tok> = None;
    let mut is_batch = false;
    let mut apply_seen = false;
    loop {
        let kind = match lexer.next() {
            Ok(token) if token.kind == Tok::Hidden => {
                if first.is_none() {
                    start = lexer.position();
                }
                continue;
            }
            Ok(token) => token.kind,
            Err(error) => {
                // On past the stray character, or to the end when a quote is never closed.
                let stray = text.get(lexer.position()..).and_then(|t| t.chars().next());
                let next = lexer.position() + stray.map_or(0, char::len_utf8);
                lexer.set_position(if error.offset >= text.len() { text.len() } else { next });
                Tok::LexFailure
            }
        };
        match kind {
            Tok::Eof => break,
            // BEGIN … BATCH ends with the semicolon after APPLY.
            Tok::Semicolon if is_batch && !apply_seen => {}
            Tok::Semicolon => {
                if first.is_some() {
                    pieces.push(text.get(start..lexer.position() - 1).unwrap_or("").trim());
                }
                start = lexer.position();
                first = None;
                is_batch = false;
                apply_seen = false;
            }
            other => {
                if first.is_none() {
                    first = Some(other);
                    is_batch = other == Tok::Begin;
                }
                apply_seen |= other == Tok::Apply;
            }
        }
    }
    if first.is_some() {
        pieces.push(text.get(start..).unwrap_or("").trim());
    }
    pieces
}
