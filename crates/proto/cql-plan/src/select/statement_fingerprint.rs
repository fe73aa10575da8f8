//! The fingerprint of a statement: a paging state of another statement is refused by it.

use std::cell::OnceCell;
use std::sync::Arc;

use cql_syntax::ast::Statement;
use schema::Table;

/// A statement's text, however it is spelled. Its digest is computed at the first page that does not end
/// the result: most statements have none, and one that is not prepared would pay for it each time.
#[derive(Clone, Debug)]
pub struct StatementFingerprint {
    text: Arc<str>,
    digest: OnceCell<u64>,
}

impl StatementFingerprint {
    pub(super) fn of(statement: &Statement) -> StatementFingerprint {
        StatementFingerprint { text: statement.text.0.clone(), digest: OnceCell::new() }
    }

    /// Digest of the statement as it is printed, and of the table.
    pub fn digest(&self, table: &Table) -> u64 {
        *self.digest.get_or_init(|| {
            // It was parsed before; what cannot be parsed is no other statement's text either.
            let printed = cql_syntax::parse(&self.text).map(|statement| statement.to_string());
            let mut bytes = printed.unwrap_or_else(|_| self.text.to_string()).into_bytes();
            bytes.extend_from_slice(table.id.0.as_bytes());
            codec::xxh3_64(&bytes)
        })
    }
}
