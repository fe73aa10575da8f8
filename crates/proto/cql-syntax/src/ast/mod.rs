//! The syntax tree of one CQL statement, as written: names are case-folded, nothing is resolved.
//!
//! Owns the shapes only. Never knows a schema: the planner decides if `a` is a column, and if `{}`
//! is a set or a map.
//!
//! Two conventions hold for every type here:
//! - [`Span`] never takes part in equality, so two trees are equal when they mean the same.
//! - [`Ident`] is equal by text alone; `quoted` only remembers how it was written.
//!
//! Reading order: this file, `term`, `dml`, `select`, `ddl`, `auth`.

mod auth;
mod ddl;
mod dml;
mod select;
mod term;

pub use auth::*;
pub use ddl::*;
pub use dml::*;
pub use select::*;
pub use term::*;

use std::sync::Arc;

use crate::token::is_reserved;

/// Byte range of a piece of the statement text, `start..end`. Not part of equality.
#[derive(Clone, Copy, Debug, Default)]
pub struct Span {
    /// Offset of the first byte.
    pub start: u32,
    /// Offset one past the last byte.
    pub end: u32,
}

impl Span {
    /// The text the span was taken from, or the empty string when `text` is another text.
    pub fn of<'t>(&self, text: &'t str) -> &'t str {
        let (start, end) = (self.start as usize, self.end as usize);
        text.get(start..end).unwrap_or("")
    }
}

impl PartialEq for Span {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Span {}

/// A name. Unquoted names are already lower case.
#[derive(Clone, Debug)]
pub struct Ident {
    /// The name itself, without quotes.
    pub text: String,
    /// True if it was written in double quotes.
    pub quoted: bool,
    /// Position in the text.
    pub span: Span,
}

impl Ident {
    /// A name that was not read from a text. It is taken as it is, without case folding.
    pub fn new(text: impl Into<String>) -> Ident {
        Ident { text: text.into(), quoted: false, span: Span::default() }
    }

    /// The name as it must be written to be read back: quoted when it is not made of
    /// `[a-z][a-z0-9_]*` or is a reserved word.
    pub fn to_cql(&self) -> String {
        quote_ident(&self.text)
    }
}

impl PartialEq for Ident {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Ident {}

/// Writes a name so that it reads back as itself (see [`Ident::to_cql`]).
pub fn quote_ident(name: &str) -> String {
    let mut bytes = name.bytes();
    let plain = bytes.next().is_some_and(|b| b.is_ascii_lowercase())
        && bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    if plain && !is_reserved(name) {
        return name.to_owned();
    }
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// `[keyspace.]name` of a table, view, index, type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QualifiedName {
    /// The keyspace, when written.
    pub keyspace: Option<Ident>,
    /// The name in the keyspace.
    pub name: Ident,
    /// Position in the text.
    pub span: Span,
}

/// One parsed statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// Kind and contents of the statement.
    pub kind: StatementKind,
    /// The bind markers in order of appearance; `None` for `?`, the name for `:name`. A name may
    /// occur more than once. [`BindMarker::index`] points in here.
    pub bind_markers: Vec<Option<String>>,
    /// The text that was parsed. Not part of equality.
    pub text: SourceText,
}

/// The text of a statement. All are equal, as spans are.
#[derive(Clone, Debug)]
pub struct SourceText(pub Arc<str>);

impl PartialEq for SourceText {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for SourceText {}

/// Every statement the grammar knows. One that we do not execute is still parsed, so that it is
/// refused by name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant is named after its statement")]
pub enum StatementKind {
    Select(Box<Select>),
    Insert(Box<Insert>),
    Update(Box<Update>),
    Delete(Box<Delete>),
    Batch(Batch),
    Truncate(Truncate),
    Use(Use),
    CreateKeyspace(CreateKeyspace),
    AlterKeyspace(AlterKeyspace),
    DropKeyspace(DropKeyspace),
    CreateTable(CreateTable),
    /// CREATE TABLE … LIKE.
    CopyTable(CopyTable),
    AlterTable(AlterTable),
    DropTable(DropTable),
    CreateType(CreateType),
    AlterType(AlterType),
    DropType(DropType),
    CreateIndex(CreateIndex),
    DropIndex(DropIndex),
    CreateView(Box<CreateView>),
    AlterView(AlterView),
    DropView(DropView),
    CreateTrigger(CreateTrigger),
    DropTrigger(DropTrigger),
    CreateFunction(CreateFunction),
    DropFunction(DropFunction),
    CreateAggregate(CreateAggregate),
    DropAggregate(DropAggregate),
    CreateRole(CreateRole),
    AlterRole(AlterRole),
    DropRole(DropRole),
    CreateUser(CreateUser),
    AlterUser(AlterUser),
    DropUser(DropUser),
    GrantPermissions(GrantPermissions),
    RevokePermissions(RevokePermissions),
    GrantRole(GrantRole),
    RevokeRole(RevokeRole),
    ListPermissions(ListPermissions),
    ListRoles(ListRoles),
    ListUsers,
    AddIdentity(AddIdentity),
    DropIdentity(DropIdentity),
    Describe(Describe),
    PruneView(PruneView),
}

impl StatementKind {
    /// The statement's name for logs and refusals, for example `CREATE TABLE`.
    pub fn name(&self) -> &'static str {
        match self {
            StatementKind::Select(_) => "SELECT",
            StatementKind::Insert(_) => "INSERT",
            StatementKind::Update(_) => "UPDATE",
            StatementKind::Delete(_) => "DELETE",
            StatementKind::Batch(_) => "BATCH",
            StatementKind::Truncate(_) => "TRUNCATE",
            StatementKind::Use(_) => "USE",
            StatementKind::CreateKeyspace(_) => "CREATE KEYSPACE",
            StatementKind::AlterKeyspace(_) => "ALTER KEYSPACE",
            StatementKind::DropKeyspace(_) => "DROP KEYSPACE",
            StatementKind::CreateTable(_) => "CREATE TABLE",
            StatementKind::CopyTable(_) => "CREATE TABLE LIKE",
            StatementKind::AlterTable(_) => "ALTER TABLE",
            StatementKind::DropTable(_) => "DROP TABLE",
            StatementKind::CreateType(_) => "CREATE TYPE",
            StatementKind::AlterType(_) => "ALTER TYPE",
            StatementKind::DropType(_) => "DROP TYPE",
            StatementKind::CreateIndex(_) => "CREATE INDEX",
            StatementKind::DropIndex(_) => "DROP INDEX",
            StatementKind::CreateView(_) => "CREATE MATERIALIZED VIEW",
            StatementKind::AlterView(_) => "ALTER MATERIALIZED VIEW",
            StatementKind::DropView(_) => "DROP MATERIALIZED VIEW",
            StatementKind::CreateTrigger(_) => "CREATE TRIGGER",
            StatementKind::DropTrigger(_) => "DROP TRIGGER",
            StatementKind::CreateFunction(_) => "CREATE FUNCTION",
            StatementKind::DropFunction(_) => "DROP FUNCTION",
            StatementKind::CreateAggregate(_) => "CREATE AGGREGATE",
            StatementKind::DropAggregate(_) => "DROP AGGREGATE",
            StatementKind::CreateRole(_) => "CREATE ROLE",
            StatementKind::AlterRole(_) => "ALTER ROLE",
            StatementKind::DropRole(_) => "DROP ROLE",
            StatementKind::CreateUser(_) => "CREATE USER",
            StatementKind::AlterUser(_) => "ALTER USER",
            StatementKind::DropUser(_) => "DROP USER",
            StatementKind::GrantPermissions(_) => "GRANT",
            StatementKind::RevokePermissions(_) => "REVOKE",
            StatementKind::GrantRole(_) => "GRANT ROLE",
            StatementKind::RevokeRole(_) => "REVOKE ROLE",
            StatementKind::ListPermissions(_) => "LIST PERMISSIONS",
            StatementKind::ListRoles(_) => "LIST ROLES",
            StatementKind::ListUsers => "LIST USERS",
            StatementKind::AddIdentity(_) => "ADD IDENTITY",
            StatementKind::DropIdentity(_) => "DROP IDENTITY",
            StatementKind::Describe(_) => "DESCRIBE",
            StatementKind::PruneView(_) => "PRUNE MATERIALIZED VIEW",
        }
    }
}
