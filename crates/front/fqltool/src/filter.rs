//! Which records are replayed.

use audit::event::{Category, EventType};
use audit::statement::facts;
use query_log::{LoggedStatement, QueryRecord};
use std::rc::Rc;

/// Keyspaces whose rows are about the node that is asked.
const SYSTEM: [&str; 5] =
    ["system", "system_schema", "system_views", "system_virtual_schema", "system_traces"];
/// Text in a log instead of a password.
const MASK: &str = "*******";

/// Which records are replayed.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Keyspace of records; those without one pass.
    pub keyspace: Option<String>,
    /// Statements that change the schema pass.
    pub replays_ddl: bool,
    /// Statements on system keyspaces pass.
    pub replays_system: bool,
}

/// Reason why a record is not replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Skip {
    /// Another keyspace.
    Keyspace,
    /// A change of the schema.
    Ddl,
    /// A statement on a system keyspace.
    System,
    /// Its password is masked. INV-fqltool-2.
    Masked,
    /// It continues a result: the replay of its first page reads all pages.
    LaterPage,
    /// Its query options cannot be read.
    Options,
}

impl Skip {
    /// All reasons.
    pub const ALL: [Skip; 6] =
        [Skip::Keyspace, Skip::Ddl, Skip::System, Skip::Masked, Skip::LaterPage, Skip::Options];

    /// In words, for the report.
    pub fn words(self) -> &'static str {
        match self {
            Skip::Keyspace => "another keyspace",
            Skip::Ddl => "DDL (see --replay-ddl-statements)",
            Skip::System => "system keyspaces (see --replay-system-statements)",
            Skip::Masked => "masked passwords",
            Skip::LaterPage => "later pages of a result",
            Skip::Options => "unreadable query options",
        }
    }
}

impl Filter {
    /// Returns why a record is not replayed; `None` if it is. `is_later_page` tells that it continues a result.
    pub fn skips(&self, record: &QueryRecord, is_later_page: LaterPage) -> Option<Skip> {
        if let (Some(wanted), Some(keyspace)) = (&self.keyspace, &record.keyspace)
            && wanted != keyspace
        {
            return Some(Skip::Keyspace);
        }
        // Batches have neither DDL nor passwords.
        let LoggedStatement::Single { query } = &record.statement else { return None };
        let Ok(parsed) = cql_syntax::parse(query) else {
            // The targets say what they think of it. A text that was cut at its password is not sent.
            return query.contains(MASK).then_some(Skip::Masked);
        };
        let used = record.keyspace.as_deref().map(Rc::from);
        let facts = facts(&parsed.kind, used.as_ref());
        if facts.password.is_some_and(|password| password.contains(MASK)) {
            return Some(Skip::Masked);
        }
        let is_ddl =
            facts.event_type.category() == Category::Ddl && facts.event_type != EventType::Truncate;
        if is_ddl && !self.replays_ddl {
            return Some(Skip::Ddl);
        }
        let is_system = facts.keyspace.is_some_and(|name| SYSTEM.contains(&&*name));
        if is_system && !self.replays_system {
            return Some(Skip::System);
        }
        (is_later_page == LaterPage::Yes).then_some(Skip::LaterPage)
    }
}

/// Position of a record in its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaterPage {
    /// It has a paging state.
    Yes,
    /// It begins a result.
    No,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::tests::record;

    fn skip(filter: &Filter, keyspace: Option<&str>, query: &str) -> Option<Skip> {
        let record = QueryRecord { keyspace: keyspace.map(str::to_owned), ..record(1, query) };
        filter.skips(&record, LaterPage::No)
    }

    #[test]
    fn records_pass_by_keyspace_kind_and_page() {
        let all = Filter::default();
        assert_eq!(skip(&all, None, "SELECT * FROM ks.t"), None);
        assert_eq!(skip(&all, None, "SELEC"), None);
        assert_eq!(skip(&all, None, "TRUNCATE ks.t"), None);
        assert_eq!(skip(&all, None, "CREATE TABLE ks.t (k int PRIMARY KEY)"), Some(Skip::Ddl));
        assert_eq!(skip(&all, None, "SELECT * FROM system.local"), Some(Skip::System));
        assert_eq!(skip(&all, Some("system"), "SELECT * FROM local"), Some(Skip::System));
        let open = Filter { replays_ddl: true, replays_system: true, ..Filter::default() };
        assert_eq!(skip(&open, None, "DROP TABLE ks.t"), None);
        assert_eq!(skip(&open, None, "SELECT * FROM system.local"), None);
        let of_ks = Filter { keyspace: Some("ks".to_owned()), ..Filter::default() };
        assert_eq!(skip(&of_ks, Some("other"), "SELECT * FROM t"), Some(Skip::Keyspace));
        assert_eq!(skip(&of_ks, Some("ks"), "SELECT * FROM t"), None);
        assert_eq!(skip(&of_ks, None, "SELECT * FROM ks.t"), None);
        let later = all.skips(&record(1, "SELECT * FROM ks.t"), LaterPage::Yes);
        assert_eq!(later, Some(Skip::LaterPage));
    }

    /// INV-fqltool-2.
    #[test]
    fn a_masked_password_is_never_set() {
        let open = Filter { replays_ddl: true, replays_system: true, ..Filter::default() };
        for text in [
            "ALTER ROLE r WITH PASSWORD = '*******'",
            "CREATE ROLE r WITH PASSWORD = '*******' AND LOGIN = true",
            "CREATE USER u WITH PASSWORD *******",
        ] {
            assert_eq!(skip(&open, None, text), Some(Skip::Masked), "{text}");
        }
        assert_eq!(skip(&open, None, "ALTER ROLE r WITH LOGIN = true"), None);
    }
}
