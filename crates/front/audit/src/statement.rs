//! Facts about a statement that events show: type, keyspace, scope, and its password.
//!
//! Source: the lines that Cassandra 5.0.9 writes, see `testdata/cassandra-5.0.9.txt` of `cql-server`.

use crate::event::EventType;
use crate::mask;
use cql_plan::auth::Resource;
use cql_syntax::ast::{self, QualifiedName, RoleOption, StatementKind, UserPassword};
use std::borrow::Cow;
use std::rc::Rc;

/// Replaces the password of a statement that was parsed. A text whose password is still not the mask, because another
/// part of it looked like the password, is cut.
pub fn without_password<'t>(text: &'t str, password: &str) -> Cow<'t, str> {
    let masked = mask::mask(text, password);
    let is_masked = password.is_empty()
        || cql_syntax::parse(&masked)
            .is_ok_and(|parsed| facts(&parsed.kind, None).password.as_deref() == Some(mask::MASK));
    if is_masked { masked } else { mask::cut(text) }
}

/// Facts about a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatementFacts {
    /// Its type.
    pub event_type: EventType,
    /// Keyspace that it names, or that its names without one belong to.
    pub keyspace: Option<Rc<str>>,
    /// Table, type, function, role.
    pub scope: Option<Rc<str>>,
    /// Its password, or the hash of one.
    pub password: Option<String>,
}

impl StatementFacts {
    fn of(event_type: EventType) -> StatementFacts {
        StatementFacts { event_type, keyspace: None, scope: None, password: None }
    }

    fn in_keyspace(event_type: EventType, keyspace: &ast::Ident) -> StatementFacts {
        StatementFacts {
            keyspace: Some(keyspace.text.as_str().into()),
            ..StatementFacts::of(event_type)
        }
    }

    fn named(
        event_type: EventType,
        keyspace: Option<&ast::Ident>,
        name: &str,
        used: Option<&Rc<str>>,
    ) -> StatementFacts {
        let keyspace = keyspace.map(|keyspace| keyspace.text.as_str().into());
        StatementFacts {
            keyspace: keyspace.or_else(|| used.cloned()),
            scope: Some(name.into()),
            ..StatementFacts::of(event_type)
        }
    }

    fn with_password(event_type: EventType, password: Option<&str>) -> StatementFacts {
        let password = password.map(str::to_owned);
        StatementFacts { password, ..StatementFacts::of(event_type) }
    }

    /// Facts about a statement on the resource of a permission.
    fn on_resource(
        event_type: EventType,
        resource: &ast::Resource,
        used: Option<&Rc<str>>,
    ) -> StatementFacts {
        let Ok(resource) = Resource::of_statement(resource, used.map(|used| &**used)) else {
            return StatementFacts::of(event_type);
        };
        let scope = resource.name();
        // Cassandra shows the name of the parent as the keyspace.
        let keyspace = resource.parent().map_or_else(|| scope.clone(), |parent| parent.name());
        StatementFacts {
            keyspace: Some(keyspace.into()),
            scope: Some(scope.into()),
            ..StatementFacts::of(event_type)
        }
    }
}

/// Returns the facts about a statement; `used` is the keyspace of names without one.
pub fn facts(kind: &StatementKind, used: Option<&Rc<str>>) -> StatementFacts {
    use EventType as T;
    let of_table = |event_type, name: &QualifiedName| of_name(event_type, name, used);
    match kind {
        StatementKind::Select(select) => of_table(T::Select, &select.table),
        StatementKind::Insert(insert) => of_table(T::Update, &insert.table),
        StatementKind::Update(update) => of_table(T::Update, &update.table),
        StatementKind::Delete(delete) => of_table(T::Delete, &delete.table),
        StatementKind::PruneView(prune) => of_table(T::Select, &prune.view),
        StatementKind::Batch(_) => StatementFacts::of(T::Batch),
        StatementKind::Truncate(truncate) => of_table(T::Truncate, &truncate.table),
        StatementKind::Use(one) => StatementFacts::in_keyspace(T::UseKeyspace, &one.keyspace),
        StatementKind::Describe(_) => StatementFacts::of(T::Describe),
        _ => schema_facts(kind, used)
            .or_else(|| routine_facts(kind, used))
            .unwrap_or_else(|| role_facts(kind, used)),
    }
}

fn of_name(event_type: EventType, name: &QualifiedName, used: Option<&Rc<str>>) -> StatementFacts {
    StatementFacts::named(event_type, name.keyspace.as_ref(), &name.name.text, used)
}

/// Statements on keyspaces, tables, types, indexes, views.
fn schema_facts(kind: &StatementKind, used: Option<&Rc<str>>) -> Option<StatementFacts> {
    use EventType as T;
    let of_table = |event_type, name: &QualifiedName| of_name(event_type, name, used);
    let of_keyspace = StatementFacts::in_keyspace;
    Some(match kind {
        StatementKind::CreateKeyspace(one) => of_keyspace(T::CreateKeyspace, &one.keyspace),
        StatementKind::AlterKeyspace(one) => of_keyspace(T::AlterKeyspace, &one.keyspace),
        StatementKind::DropKeyspace(one) => of_keyspace(T::DropKeyspace, &one.keyspace),
        StatementKind::CreateTable(one) => of_table(T::CreateTable, &one.table),
        StatementKind::CopyTable(one) => of_table(T::CreateTable, &one.table),
        StatementKind::AlterTable(one) => of_table(T::AlterTable, &one.table),
        StatementKind::DropTable(one) => of_table(T::DropTable, &one.table),
        StatementKind::CreateType(one) => of_table(T::CreateType, &one.name),
        StatementKind::AlterType(one) => of_table(T::AlterType, &one.name),
        StatementKind::DropType(one) => of_table(T::DropType, &one.name),
        StatementKind::CreateIndex(one) => {
            let scope = one.name.as_ref().map(|name| name.text.as_str().into());
            StatementFacts { scope, ..of_table(T::CreateIndex, &one.table) }
        }
        StatementKind::DropIndex(one) => of_table(T::DropIndex, &one.name),
        StatementKind::CreateView(one) => of_table(T::CreateView, &one.view),
        StatementKind::AlterView(one) => of_table(T::AlterView, &one.view),
        StatementKind::DropView(one) => of_table(T::DropView, &one.view),
        _ => return None,
    })
}

/// Statements on triggers, functions, aggregates.
fn routine_facts(kind: &StatementKind, used: Option<&Rc<str>>) -> Option<StatementFacts> {
    use EventType as T;
    let of_function = |event_type, name: &ast::FunctionName| {
        StatementFacts::named(event_type, name.keyspace.as_ref(), &name.name.text, used)
    };
    let of_trigger = |event_type, table: &QualifiedName, name: &ast::Ident| {
        StatementFacts::named(event_type, table.keyspace.as_ref(), &name.text, used)
    };
    Some(match kind {
        StatementKind::CreateTrigger(one) => of_trigger(T::CreateTrigger, &one.table, &one.name),
        StatementKind::DropTrigger(one) => of_trigger(T::DropTrigger, &one.table, &one.name),
        StatementKind::CreateFunction(one) => of_function(T::CreateFunction, &one.name),
        StatementKind::DropFunction(one) => of_function(T::DropFunction, &one.name),
        StatementKind::CreateAggregate(one) => of_function(T::CreateAggregate, &one.name),
        StatementKind::DropAggregate(one) => of_function(T::DropAggregate, &one.name),
        _ => return None,
    })
}

/// Statements on roles, permissions, identities.
fn role_facts(kind: &StatementKind, used: Option<&Rc<str>>) -> StatementFacts {
    use EventType as T;
    match kind {
        StatementKind::CreateRole(one) => {
            StatementFacts::with_password(T::CreateRole, of_options(&one.options))
        }
        StatementKind::AlterRole(one) => {
            StatementFacts::with_password(T::AlterRole, of_options(&one.options))
        }
        StatementKind::CreateUser(one) => {
            StatementFacts::with_password(T::CreateRole, of_user(one.password.as_ref()))
        }
        StatementKind::AlterUser(one) => {
            StatementFacts::with_password(T::AlterRole, of_user(one.password.as_ref()))
        }
        StatementKind::DropRole(_) | StatementKind::DropUser(_) => StatementFacts::of(T::DropRole),
        StatementKind::GrantPermissions(one) => {
            StatementFacts::on_resource(T::Grant, &one.resource, used)
        }
        StatementKind::RevokePermissions(one) => {
            StatementFacts::on_resource(T::Revoke, &one.resource, used)
        }
        StatementKind::GrantRole(_) => StatementFacts::of(T::Grant),
        StatementKind::RevokeRole(_) => StatementFacts::of(T::Revoke),
        StatementKind::ListPermissions(_) => StatementFacts::of(T::ListPermissions),
        StatementKind::ListRoles(_) | StatementKind::ListUsers => StatementFacts::of(T::ListRoles),
        StatementKind::AddIdentity(_) => StatementFacts::of(T::CreateIdentity),
        StatementKind::DropIdentity(_) => StatementFacts::of(T::DropIdentity),
        // All others have their rows above.
        _ => StatementFacts::of(T::RequestFailure),
    }
}

fn of_options(options: &[RoleOption]) -> Option<&str> {
    options.iter().find_map(|option| match option {
        RoleOption::Password(password) | RoleOption::HashedPassword(password) => {
            Some(password.as_str())
        }
        _ => None,
    })
}

fn of_user(password: Option<&UserPassword>) -> Option<&str> {
    password.map(|password| match password {
        UserPassword::Plain(password) | UserPassword::Hashed(password) => password.as_str(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_not_shown_where_another_part_of_the_statement_looks_like_it() {
        let shown = |text: &str, password: &str| without_password(text, password).into_owned();
        let plain = "ALTER ROLE r WITH PASSWORD = 'abc'";
        assert_eq!(shown(plain, "abc"), "ALTER ROLE r WITH PASSWORD = '*******'");
        for (text, password) in [
            ("ALTER ROLE r WITH PASSWORD /* abc */ = 'abc'", "abc"),
            ("/* set password */ ALTER ROLE r WITH PASSWORD = 'word'", "word"),
            ("ALTER ROLE password_x WITH PASSWORD = 'x'", "x"),
            ("ALTER ROLE r WITH PASSWORD = '='", "="),
        ] {
            let parsed = cql_syntax::parse(text).unwrap();
            assert_eq!(facts(&parsed.kind, None).password.as_deref(), Some(password), "{text}");
            let shown = shown(text, password);
            assert!(!shown.contains(&format!("'{password}'")), "{shown}");
        }
    }
}
