//! Names of every kind.

use super::{Parser, Result};
use crate::ast::{FunctionName, Ident, QualifiedName, Span};
use crate::token::{Class, Tok, Token};

impl Parser<'_> {
    /// A token as a name: folded to lower case unless quoted.
    pub(super) fn ident_of(&self, token: Token) -> Ident {
        let span = Span { start: token.start, end: token.end };
        if token.kind == Tok::Ident {
            let mut text = token.text(self.text).to_owned();
            text.make_ascii_lowercase();
            return Ident { text, quoted: false, span };
        }
        let value = token.value(self.text);
        match token.kind {
            Tok::QuotedName | Tok::EmptyQuotedName | Tok::StringLiteral => {
                Ident { text: value.into_owned(), quoted: true, span }
            }
            _ => Ident { text: value.to_ascii_lowercase(), quoted: false, span },
        }
    }

    /// A name of anything but a column of a statement on rows.
    pub(super) fn ident(&mut self) -> Result<Ident> {
        if !self.kind().is_name() {
            return Err(self.no_viable());
        }
        let token = self.bump();
        Ok(self.ident_of(token))
    }

    /// Returns true if the token can be a column's name. The empty name is the value column of old
    /// dense tables.
    pub(super) fn is_column_at(&mut self, ahead: usize) -> bool {
        let kind = self.kind_at(ahead);
        kind == Tok::EmptyQuotedName || kind.is_name()
    }

    /// A column's name in a statement on rows.
    pub(super) fn column(&mut self) -> Result<Ident> {
        if !self.is_column_at(0) {
            return Err(self.no_viable());
        }
        let token = self.bump();
        Ok(self.ident_of(token))
    }

    fn object_name(&mut self, what: &str) -> Result<Ident> {
        if self.kind() == Tok::Qmark {
            return Err(self.refuse(format!("Bind variables cannot be used for {what} names")));
        }
        self.ident()
    }

    pub(super) fn keyspace_name(&mut self) -> Result<Ident> {
        self.object_name("keyspace")
    }

    pub(super) fn index_name(&mut self) -> Result<Ident> {
        self.object_name("index")
    }

    /// `[keyspace.]table`.
    pub(super) fn table_name(&mut self) -> Result<QualifiedName> {
        if self.kind() == Tok::Qmark && self.kind_at(1) != Tok::Dot && !self.ends_table_at(1) {
            return Err(self.no_viable_from(self.at, 1));
        }
        self.qualified_name("table")
    }

    /// Returns true if a token may follow a table's name in any statement. Cassandra's parser
    /// checks it before it reports that a `?` cannot be a table.
    fn ends_table_at(&mut self, ahead: usize) -> bool {
        matches!(
            self.kind_at(ahead),
            Tok::Eof
                | Tok::Semicolon
                | Tok::ParenOpen
                | Tok::Add
                | Tok::Allow
                | Tok::Alter
                | Tok::As
                | Tok::Drop
                | Tok::From
                | Tok::Group
                | Tok::Json
                | Tok::Limit
                | Tok::Norecursive
                | Tok::Of
                | Tok::Order
                | Tok::Per
                | Tok::Primary
                | Tok::Rename
                | Tok::Set
                | Tok::To
                | Tok::Using
                | Tok::Where
                | Tok::With
        )
    }

    /// `[keyspace.]what`.
    pub(super) fn qualified_name(&mut self, what: &str) -> Result<QualifiedName> {
        let start = self.start();
        let mut keyspace = None;
        if self.is_keyspace_with_dot() {
            keyspace = Some(self.keyspace_name()?);
            self.expect(Tok::Dot)?;
        }
        let name = self.object_name(what)?;
        Ok(QualifiedName { keyspace, name, span: self.span_from(start) })
    }

    fn is_keyspace_with_dot(&mut self) -> bool {
        let named = self.kind().is_name() || self.kind() == Tok::Qmark;
        named && self.kind_at(1) == Tok::Dot
    }

    /// Returns true if a function's name with its opening parenthesis starts `ahead` tokens on.
    pub(super) fn is_function_at(&mut self, ahead: usize) -> bool {
        let first = self.kind_at(ahead);
        if first.is_function_name() && self.kind_at(ahead + 1) == Tok::ParenOpen {
            return true;
        }
        first.is_name() && self.is_function_behind_keyspace(ahead)
    }

    /// The same after a keyspace, which may be any token here.
    pub(super) fn is_function_behind_keyspace(&mut self, ahead: usize) -> bool {
        self.kind_at(ahead + 1) == Tok::Dot
            && self.kind_at(ahead + 2).is_function_name()
            && self.kind_at(ahead + 3) == Tok::ParenOpen
    }

    /// `[keyspace.]function`.
    pub(super) fn function_name(&mut self) -> Result<FunctionName> {
        let mut keyspace = None;
        if self.is_keyspace_with_dot() {
            keyspace = Some(self.keyspace_name()?);
            self.expect(Tok::Dot)?;
        }
        Ok(FunctionName { keyspace, name: self.bare_function_name()? })
    }

    /// A function's name without keyspace.
    pub(super) fn bare_function_name(&mut self) -> Result<Ident> {
        if !self.kind().is_function_name() {
            return Err(self.no_viable());
        }
        let token = self.bump();
        let mut name = self.ident_of(token);
        // Cassandra takes a keyword here as it is written.
        if token.kind.class() == Some(Class::Basic) {
            name.text = token.value(self.text).into_owned();
        }
        Ok(name)
    }

    /// A role's name; a string keeps its case like a quoted name.
    pub(super) fn role_name(&mut self) -> Result<Ident> {
        if self.kind() == Tok::StringLiteral {
            let token = self.bump();
            return Ok(self.ident_of(token));
        }
        self.object_name("role")
    }
}
