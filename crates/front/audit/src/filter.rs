//! Filters of events: Cassandra's inclusion and exclusion, and ScyllaDB's lists.
//!
//! Source: the rules of Cassandra 5.0's `AuditLogFilter`; ScyllaDB's documentation.

use crate::event::{Category, Event, EventType};
use conf::AuditOptions;
use conf::audit::{NameList, ScyllaCategories};
use std::collections::BTreeSet;

/// Names that are included and excluded; exclusion takes precedence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Names {
    included: BTreeSet<String>,
    excluded: BTreeSet<String>,
}

impl Names {
    fn new(included: &str, excluded: &str) -> Names {
        let (included, excluded) = (set(included), set(excluded));
        Names { included: included.difference(&excluded).cloned().collect(), excluded }
    }

    /// A missing name is excluded only by a list of inclusion.
    fn passes(&self, name: Option<&str>) -> bool {
        let is_in = |set: &BTreeSet<String>| name.is_some_and(|name| set.contains(name));
        !is_in(&self.excluded) && (self.included.is_empty() || is_in(&self.included))
    }
}

fn set(list: &str) -> BTreeSet<String> {
    let names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}

/// Decides which events are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filter {
    /// By `audit_logging_options`.
    Cassandra(CassandraFilter),
    /// By `audit_categories`, `audit_tables` and `audit_keyspaces`.
    Scylla(ScyllaFilter),
}

/// Filter of `audit_logging_options`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CassandraFilter {
    keyspaces: Names,
    categories: Names,
    users: Names,
}

/// Filter of ScyllaDB's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScyllaFilter {
    categories: BTreeSet<String>,
    tables: BTreeSet<String>,
    keyspaces: BTreeSet<String>,
}

impl Filter {
    /// The filter of `audit_logging_options`.
    pub fn cassandra(options: &AuditOptions) -> Filter {
        let names = |included: &str, excluded: &str| Names::new(included, excluded);
        Filter::Cassandra(CassandraFilter {
            keyspaces: names(&options.included_keyspaces, &options.excluded_keyspaces),
            categories: names(&options.included_categories, &options.excluded_categories),
            users: names(&options.included_users, &options.excluded_users),
        })
    }

    /// The filter of ScyllaDB's settings.
    pub fn scylla(
        categories: &ScyllaCategories,
        tables: &NameList,
        keyspaces: &NameList,
    ) -> Filter {
        Filter::Scylla(ScyllaFilter {
            categories: set(&categories.0),
            tables: set(&tables.0),
            keyspaces: set(&keyspaces.0),
        })
    }

    /// Returns true if the event is written.
    pub fn passes(&self, event: &Event) -> bool {
        match self {
            Filter::Cassandra(filter) => {
                filter.keyspaces.passes(event.keyspace.as_deref())
                    && filter.categories.passes(Some(event.event_type.category().name()))
                    && filter.users.passes(event.user.as_deref())
            }
            Filter::Scylla(filter) => filter.passes(event),
        }
    }
}

impl ScyllaFilter {
    fn passes(&self, event: &Event) -> bool {
        let Some(category) = scylla_category(event) else { return false };
        if !self.categories.contains(category) {
            return false;
        }
        if matches!(category, "AUTH" | "ADMIN" | "DCL") {
            return true;
        }
        let Some(keyspace) = event.keyspace.as_deref() else { return false };
        let table = event.scope.as_deref().unwrap_or_default();
        self.keyspaces.contains(keyspace) || self.tables.contains(&format!("{keyspace}.{table}"))
    }
}

/// Returns ScyllaDB's category of an event; `None` if it has none. A failure has that of its statement.
pub fn scylla_category(event: &Event) -> Option<&'static str> {
    let statement = match event.event_type {
        EventType::RequestFailure | EventType::UnauthorizedAttempt => event.statement,
        other => other,
    };
    match statement.category() {
        Category::Query => Some("QUERY"),
        Category::Dml => Some("DML"),
        Category::Ddl => Some("DDL"),
        Category::Dcl => Some("DCL"),
        Category::Auth => Some("AUTH"),
        Category::Admin => Some("ADMIN"),
        Category::Other | Category::Error | Category::Prepare => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::event;

    #[test]
    fn exclusion_takes_precedence_and_a_missing_name_is_in_no_list() {
        let check = |included: &str, excluded: &str, name: Option<&str>, passes: bool| {
            let names = Names::new(included, excluded);
            assert_eq!(names.passes(name), passes, "{included:?} {excluded:?} {name:?}");
        };
        check("", "", Some("a"), true);
        check("", "", None, true);
        check("", "a, b", Some("b"), false);
        check("", "a", None, true);
        check("a", "", Some("b"), false);
        check("a", "", None, false);
        check("a", "a", Some("a"), false);
        // The list of inclusion is empty once exclusion took its only name.
        check("a", "a", Some("b"), true);
    }

    #[test]
    fn keyspace_category_and_user_must_all_pass() {
        let options = AuditOptions {
            included_categories: "DML".to_owned(),
            excluded_users: "bob".to_owned(),
            ..AuditOptions::default()
        };
        let filter = Filter::cassandra(&options);
        let mut one = event(EventType::Update);
        assert!(filter.passes(&one));
        one.keyspace = Some("system".into());
        assert!(!filter.passes(&one));
        let mut one = event(EventType::Update);
        one.user = Some("bob".into());
        assert!(!filter.passes(&one));
        assert!(!filter.passes(&event(EventType::Select)));
    }

    #[test]
    fn scyllas_lists_of_tables_apply_to_statements_on_tables_only() {
        let filter = |categories: &str, tables: &str, keyspaces: &str| {
            let list = |text: &str| NameList(text.to_owned());
            Filter::scylla(
                &ScyllaCategories(categories.to_owned()),
                &list(tables),
                &list(keyspaces),
            )
        };
        let select = event(EventType::Select);
        assert!(filter("QUERY", "ks.t", "").passes(&select));
        assert!(filter("QUERY", "", "ks").passes(&select));
        assert!(!filter("QUERY", "ks.other", "").passes(&select));
        assert!(!filter("DML", "", "ks").passes(&select));
        assert!(filter("DCL,AUTH", "", "").passes(&event(EventType::Grant)));
        assert!(filter("AUTH", "", "").passes(&event(EventType::LoginError)));
        assert!(
            !filter("AUTH,DML,DDL,DCL,QUERY,ADMIN", "", "ks")
                .passes(&event(EventType::PrepareStatement))
        );
        let failed = Event { event_type: EventType::RequestFailure, ..select };
        assert!(filter("QUERY", "", "ks").passes(&failed));
    }
}
