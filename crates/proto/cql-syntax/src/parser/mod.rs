//! Recursive descent from tokens to the tree.
//!
//! Owns the grammar, the numbering of bind markers and the refusals that Cassandra's grammar makes
//! while it reads. Never resolves a name.
//!
//! INV-parser-1: recursion is bounded by [`NESTING_MAX`], in the parser and in the tree it builds. INV-parser-2:
//! no token is read again after it was taken, except those of a selection: three times at most after JSON and
//! DISTINCT, and once for each type hint around them that does not fit, up to a limit. So time is linear.
//! Lookahead is bounded by a constant.
//!
//! Source: Cassandra 5.0, `Parser.g`. Beyond it: BETWEEN, `USING TIMEOUT`, `BYPASS CACHE`,
//! `PRUNE MATERIALIZED VIEW`.

mod auth;
mod ddl;
mod dml;
mod mbeans;
mod names;
mod properties;
mod relations;
mod routines;
mod select;
mod terms;
mod types;

use crate::SyntaxError;
use crate::ast::{RawType, SourceText, Span, Statement, StatementKind, Term};
use crate::error::Misfit;
use crate::lexer::{LexError, lex};
use crate::token::{Tok, Token};

/// Deepest nesting of terms, selectors, types and parentheses that is accepted, and the most
/// arithmetic operators, accessors and negations in one expression. The tree of both together is
/// parsed, cloned, printed and dropped within 1 MiB of stack even without optimisation; Cassandra
/// has no limit but its stack.
pub const NESTING_MAX: usize = 128;

pub(crate) type Result<T> = std::result::Result<T, SyntaxError>;

/// Parses one statement. Trailing `;` are allowed.
///
/// # Errors
/// [`SyntaxError`] when it is not CQL, or nested deeper than [`NESTING_MAX`].
pub fn parse(text: &str) -> Result<Statement> {
    let mut parser = Parser::new(text)?;
    let kind = parser.statement()?;
    while parser.eat(Tok::Semicolon) {}
    parser.expect(Tok::Eof)?;
    Ok(Statement { kind, bind_markers: parser.bind_markers, text: SourceText(text.into()) })
}

/// Parses a type alone, for example `map<text, frozen<list<int>>>`.
///
/// # Errors
/// [`SyntaxError`] when it is not a type or something follows it.
pub fn parse_type(text: &str) -> Result<RawType> {
    let mut parser = Parser::new(text)?;
    let ty = parser.raw_type()?;
    parser.expect(Tok::Eof)?;
    Ok(ty)
}

/// Parses a value alone. Its bind markers are numbered from 0.
///
/// # Errors
/// [`SyntaxError`] when it is not a term or something follows it.
pub fn parse_term(text: &str) -> Result<Term> {
    let mut parser = Parser::new(text)?;
    let term = parser.term()?;
    parser.expect(Tok::Eof)?;
    Ok(term)
}

/// The cursor over the tokens of one text.
pub(crate) struct Parser<'t> {
    text: &'t str,
    tokens: Vec<Token>,
    lex_error: Option<LexError>,
    /// The last error stands: for the depth of a term, or a place that was decided.
    is_final: bool,
    /// Index of a misplaced bracket: it was decided that it does not continue the selector before
    /// it.
    misplaced: Option<usize>,
    /// Index of the current token; never past the last one.
    at: usize,
    /// Farthest token that was read; the snippet of an error message ends there.
    reached: usize,
    /// Current nesting of terms, selectors, types and parentheses.
    nesting: usize,
    /// Type hints around the current selector.
    hints: usize,
    /// Operators of the current outermost expression; they nest in the tree like parentheses.
    operators: usize,
    bind_markers: Vec<Option<String>>,
}

#[cfg(test)]
thread_local! {
    /// Tokens that were taken, each as often as it was.
    pub(crate) static TAKEN: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// A place to go back to.
struct Place {
    at: usize,
    bind_markers: usize,
    operators: usize,
}

impl<'t> Parser<'t> {
    fn new(text: &'t str) -> Result<Parser<'t>> {
        if u32::try_from(text.len()).is_err() {
            return Err(SyntaxError::plain("line 1:0 statement is longer than 4 GiB", 0));
        }
        let (tokens, lex_error) = lex(text);
        Ok(Parser {
            text,
            tokens,
            lex_error,
            is_final: false,
            misplaced: None,
            at: 0,
            reached: 0,
            nesting: 0,
            hints: 0,
            operators: 0,
            bind_markers: Vec::new(),
        })
    }

    /// Any statement.
    fn statement(&mut self) -> Result<StatementKind> {
        match self.kind() {
            Tok::Select => Ok(StatementKind::Select(Box::new(self.select()?))),
            Tok::Insert => Ok(StatementKind::Insert(Box::new(self.insert()?))),
            Tok::Update => Ok(StatementKind::Update(Box::new(self.update()?))),
            Tok::Delete => Ok(StatementKind::Delete(Box::new(self.delete()?))),
            Tok::Begin => Ok(StatementKind::Batch(self.batch()?)),
            Tok::Use => Ok(StatementKind::Use(self.use_keyspace()?)),
            Tok::Truncate => Ok(StatementKind::Truncate(self.truncate()?)),
            Tok::Create => self.create(),
            Tok::Alter => self.alter(),
            Tok::Drop => self.drop(),
            Tok::Grant => self.grant(),
            Tok::Revoke => self.revoke(),
            Tok::List => self.list(),
            Tok::Add => self.add_identity(),
            Tok::Describe | Tok::Desc => Ok(StatementKind::Describe(self.describe()?)),
            Tok::Ident if self.is_word("prune") && self.kind_at(1) == Tok::Materialized => {
                Ok(StatementKind::PruneView(self.prune_view()?))
            }
            _ => Err(self.no_viable()),
        }
    }

    /// Kind of the current token.
    fn kind(&mut self) -> Tok {
        self.kind_at(0)
    }

    /// Kind of the token that is `ahead` further on; the last token repeats for ever.
    fn kind_at(&mut self, ahead: usize) -> Tok {
        self.reached = self.reached.max(self.at + ahead);
        self.token_at(self.at + ahead).kind
    }

    #[inline]
    fn token_at(&self, index: usize) -> Token {
        match self.tokens.get(index) {
            Some(token) => *token,
            None => self.last_token(),
        }
    }

    #[cold]
    fn last_token(&self) -> Token {
        let end = Token { kind: Tok::Eof, start: 0, end: 0 };
        self.tokens.last().copied().unwrap_or(end)
    }

    /// Takes the current token.
    fn bump(&mut self) -> Token {
        #[cfg(test)]
        TAKEN.set(TAKEN.get() + 1);
        let token = self.token_at(self.at);
        if self.at + 1 < self.tokens.len() {
            self.at += 1;
        }
        token
    }

    /// Takes the current token when it is of that kind.
    fn eat(&mut self, kind: Tok) -> bool {
        let fits = self.kind() == kind;
        if fits {
            self.bump();
        }
        fits
    }

    fn expect(&mut self, kind: Tok) -> Result<Token> {
        if self.kind() == kind {
            return Ok(self.bump());
        }
        Err(self.mismatched(kind.name()))
    }

    /// Returns the position of the cursor, for [`Parser::go_back`].
    fn place(&self) -> Place {
        Place { at: self.at, bind_markers: self.bind_markers.len(), operators: self.operators }
    }

    /// Rewinds to a position.
    fn go_back(&mut self, place: &Place) {
        (self.at, self.operators) = (place.at, place.operators);
        self.bind_markers.truncate(place.bind_markers);
        (self.is_final, self.misplaced) = (false, None);
    }

    /// Takes tokens that must all come in this order.
    fn expect_all(&mut self, kinds: &[Tok]) -> Result<()> {
        for kind in kinds {
            self.expect(*kind)?;
        }
        Ok(())
    }

    /// Returns true if the current token is this plain word, which is no keyword of the grammar.
    fn is_word(&self, word: &str) -> bool {
        self.is_word_at(0, word)
    }

    fn is_word_at(&self, ahead: usize, word: &str) -> bool {
        let token = self.token_at(self.at + ahead);
        token.kind == Tok::Ident && token.text(self.text).eq_ignore_ascii_case(word)
    }

    /// `item (',' item)*`.
    fn comma_list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut items = vec![item(self)?];
        while self.eat(Tok::Comma) {
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// `'(' item (',' item)* ')'`.
    fn paren_list<T>(&mut self, item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        self.expect(Tok::ParenOpen)?;
        let items = self.comma_list(item)?;
        self.expect(Tok::ParenClose)?;
        Ok(items)
    }

    /// `'(' [item (',' item)*] ')'`.
    fn paren_list_or_empty<T>(
        &mut self,
        item: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        if self.kind() == Tok::ParenOpen && self.kind_at(1) == Tok::ParenClose {
            self.bump();
            self.bump();
            return Ok(Vec::new());
        }
        self.paren_list(item)
    }

    /// `[IF EXISTS]`.
    fn if_exists(&mut self) -> Result<bool> {
        if !self.eat(Tok::If) {
            return Ok(false);
        }
        self.expect(Tok::Exists)?;
        Ok(true)
    }

    /// `[IF NOT EXISTS]`.
    fn if_not_exists(&mut self) -> Result<bool> {
        if !self.eat(Tok::If) {
            return Ok(false);
        }
        self.expect_all(&[Tok::Not, Tok::Exists])?;
        Ok(true)
    }

    /// The value of a string literal.
    fn string(&mut self) -> Result<String> {
        let token = self.expect(Tok::StringLiteral)?;
        Ok(token.value(self.text).into_owned())
    }

    /// Runs `inner` one level deeper.
    fn nested<T>(&mut self, inner: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.nesting == 0 {
            self.operators = 0;
        }
        if self.nesting >= NESTING_MAX {
            return Err(self.too_deep());
        }
        self.nesting += 1;
        let result = inner(self);
        self.nesting -= 1;
        result
    }

    /// Counts an operator, because a chain of them is a deep tree.
    fn count_operator(&mut self) -> Result<()> {
        if self.operators >= NESTING_MAX {
            return Err(self.too_deep());
        }
        self.operators += 1;
        Ok(())
    }

    fn too_deep(&mut self) -> SyntaxError {
        self.is_final = true;
        let what = format!("expression is nested more than {NESTING_MAX} levels deep");
        SyntaxError::at(self.text, self.start(), &what)
    }

    /// Byte offset of the current token.
    fn start(&self) -> usize {
        self.token_at(self.at).start as usize
    }

    /// Span from a byte offset to the end of the token taken last.
    fn span_from(&self, start: usize) -> Span {
        let end = self.at.checked_sub(1).map_or(0, |last| self.token_at(last).end);
        Span { start: u32::try_from(start).unwrap_or(end), end }
    }

    /// The current token fits none of the alternatives.
    fn no_viable(&mut self) -> SyntaxError {
        self.failure(self.at, 0, None)
    }

    /// The token `ahead` further on fits none of the alternatives of the production that starts at
    /// the token index `decision`.
    fn no_viable_from(&mut self, decision: usize, ahead: usize) -> SyntaxError {
        self.failure(decision, ahead, None)
    }

    /// The current token is not the one that must come.
    fn mismatched(&mut self, expected: &str) -> SyntaxError {
        self.failure(self.at, 0, Some(expected))
    }

    fn failure(&mut self, decision: usize, ahead: usize, expected: Option<&str>) -> SyntaxError {
        let failed = self.token_at(self.at + ahead);
        if failed.kind == Tok::LexFailure
            && let Some(error) = &self.lex_error
        {
            return SyntaxError::lexical(self.text, error);
        }
        let reached = self.token_at(self.reached.max(self.at + ahead));
        let tokens = Misfit { decision: self.token_at(decision), failed, reached };
        SyntaxError::grammatical(self.text, &tokens, expected)
    }

    /// A refusal that Cassandra gives without a position.
    fn refuse(&self, message: impl Into<String>) -> SyntaxError {
        SyntaxError::plain(message, self.start())
    }

    /// Returns Cassandra's error for a number of the grammar that does not fit its Java type.
    fn number_error(&self, number: &str) -> SyntaxError {
        self.number_failure(&format!("For input string: \"{number}\""))
    }

    /// A number that Java's constructors refuse.
    fn number_failure(&self, reason: &str) -> SyntaxError {
        self.refuse(format!(
            "Failed parsing statement: [{}] reason: NumberFormatException {reason}",
            self.text
        ))
    }
}
