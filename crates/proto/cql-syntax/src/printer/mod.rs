//! From the tree back to CQL.
//!
//! INV-printer-1: the text parses to an equal tree. The text is canonical: keywords upper case,
//! names quoted only where they must be, strings in single quotes, one space between words.

mod auth;
mod ddl;
mod rows;
mod terms;

use std::fmt::{self, Display, Formatter, Write};

use crate::ast::{FunctionName, Ident, QualifiedName, Statement, StatementKind};

/// Writes `items` with a separator between them.
fn join<T>(
    f: &mut Formatter<'_>,
    items: &[T],
    separator: &str,
    mut write: impl FnMut(&mut Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            f.write_str(separator)?;
        }
        write(f, item)?;
    }
    Ok(())
}

/// Writes items that know how to write themselves, with commas.
fn commas<T: Display>(f: &mut Formatter<'_>, items: &[T]) -> fmt::Result {
    join(f, items, ", ", |f, item| item.fmt(f))
}

/// Writes a string literal.
fn string(f: &mut Formatter<'_>, text: &str) -> fmt::Result {
    f.write_char('\'')?;
    for (index, part) in text.split('\'').enumerate() {
        if index > 0 {
            f.write_str("''")?;
        }
        f.write_str(part)?;
    }
    f.write_char('\'')
}

/// Writes `words` when `condition` holds.
fn when(f: &mut Formatter<'_>, condition: bool, words: &str) -> fmt::Result {
    if condition { f.write_str(words) } else { Ok(()) }
}

impl Display for Ident {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_cql())
    }
}

impl Display for QualifiedName {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(keyspace) = &self.keyspace {
            write!(f, "{keyspace}.")?;
        }
        self.name.fmt(f)
    }
}

impl Display for FunctionName {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(keyspace) = &self.keyspace {
            write!(f, "{keyspace}.")?;
        }
        terms::function_ident(f, &self.name)
    }
}

impl Display for Statement {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

impl Display for StatementKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            StatementKind::Select(s) => s.fmt(f),
            StatementKind::Insert(s) => s.fmt(f),
            StatementKind::Update(s) => s.fmt(f),
            StatementKind::Delete(s) => s.fmt(f),
            StatementKind::Batch(s) => s.fmt(f),
            StatementKind::Truncate(s) => s.fmt(f),
            StatementKind::Use(s) => s.fmt(f),
            StatementKind::CreateKeyspace(s) => s.fmt(f),
            StatementKind::AlterKeyspace(s) => s.fmt(f),
            StatementKind::DropKeyspace(s) => s.fmt(f),
            StatementKind::CreateTable(s) => s.fmt(f),
            StatementKind::CopyTable(s) => s.fmt(f),
            StatementKind::AlterTable(s) => s.fmt(f),
            StatementKind::DropTable(s) => s.fmt(f),
            StatementKind::CreateType(s) => s.fmt(f),
            StatementKind::AlterType(s) => s.fmt(f),
            StatementKind::DropType(s) => s.fmt(f),
            StatementKind::CreateIndex(s) => s.fmt(f),
            StatementKind::DropIndex(s) => s.fmt(f),
            StatementKind::CreateView(s) => s.fmt(f),
            StatementKind::AlterView(s) => s.fmt(f),
            StatementKind::DropView(s) => s.fmt(f),
            StatementKind::CreateTrigger(s) => s.fmt(f),
            StatementKind::DropTrigger(s) => s.fmt(f),
            StatementKind::CreateFunction(s) => s.fmt(f),
            StatementKind::DropFunction(s) => s.fmt(f),
            StatementKind::CreateAggregate(s) => s.fmt(f),
            StatementKind::DropAggregate(s) => s.fmt(f),
            StatementKind::CreateRole(s) => s.fmt(f),
            StatementKind::AlterRole(s) => s.fmt(f),
            StatementKind::DropRole(s) => s.fmt(f),
            StatementKind::CreateUser(s) => s.fmt(f),
            StatementKind::AlterUser(s) => s.fmt(f),
            StatementKind::DropUser(s) => s.fmt(f),
            StatementKind::GrantPermissions(s) => s.fmt(f),
            StatementKind::RevokePermissions(s) => s.fmt(f),
            StatementKind::GrantRole(s) => s.fmt(f),
            StatementKind::RevokeRole(s) => s.fmt(f),
            StatementKind::ListPermissions(s) => s.fmt(f),
            StatementKind::ListRoles(s) => s.fmt(f),
            StatementKind::ListUsers => f.write_str("LIST USERS"),
            StatementKind::AddIdentity(s) => s.fmt(f),
            StatementKind::DropIdentity(s) => s.fmt(f),
            StatementKind::Describe(s) => s.fmt(f),
            StatementKind::PruneView(s) => s.fmt(f),
        }
    }
}
