//! Schema changes in the protocol's words, and the difference between two schemas as events.

use cql_plan::{SchemaEvent, SchemaEventKind, SchemaEventTarget};
use cql_wire::{SchemaChange, SchemaChangeKind, SchemaTarget};
use schema::{Keyspace, Schema, UserAggregate, UserFunction};
use std::sync::Arc;
use types::CqlType;

/// A schema event in the protocol's words.
pub(crate) fn as_wire(event: &SchemaEvent) -> SchemaChange<'_> {
    SchemaChange {
        kind: match event.kind {
            SchemaEventKind::Created => SchemaChangeKind::Created,
            SchemaEventKind::Updated => SchemaChangeKind::Updated,
            SchemaEventKind::Dropped => SchemaChangeKind::Dropped,
        },
        keyspace: &event.keyspace,
        target: match &event.target {
            SchemaEventTarget::Keyspace => SchemaTarget::Keyspace,
            SchemaEventTarget::Table => SchemaTarget::Table(&event.name),
            SchemaEventTarget::Type => SchemaTarget::Type(&event.name),
            SchemaEventTarget::Function(args) => {
                SchemaTarget::Function(&event.name, args.iter().map(String::as_str).collect())
            }
            SchemaEventTarget::Aggregate(args) => {
                SchemaTarget::Aggregate(&event.name, args.iter().map(String::as_str).collect())
            }
        },
    }
}

/// One difference between two schemas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    kind: SchemaChangeKind,
    keyspace: Arc<str>,
    target: Target,
}

/// The changed part of a keyspace.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    Keyspace,
    Table(Arc<str>),
    Type(Arc<str>),
    Function(Arc<str>, Vec<String>),
    Aggregate(Arc<str>, Vec<String>),
}

impl Target {
    fn function(function: &UserFunction) -> Target {
        Target::Function(function.name.clone(), types_of(&function.args))
    }

    fn aggregate(aggregate: &UserAggregate) -> Target {
        Target::Aggregate(aggregate.name.clone(), types_of(&aggregate.args))
    }
}

fn types_of(args: &[CqlType]) -> Vec<String> {
    args.iter().map(CqlType::to_cql_name).collect()
}

impl Difference {
    pub(crate) fn as_wire(&self) -> SchemaChange<'_> {
        let texts = |args| Vec::from_iter(<[String]>::iter(args).map(String::as_str));
        let target = match &self.target {
            Target::Keyspace => SchemaTarget::Keyspace,
            Target::Table(name) => SchemaTarget::Table(name),
            Target::Type(name) => SchemaTarget::Type(name),
            Target::Function(name, args) => SchemaTarget::Function(name, texts(args)),
            Target::Aggregate(name, args) => SchemaTarget::Aggregate(name, texts(args)),
        };
        SchemaChange { kind: self.kind, keyspace: &self.keyspace, target }
    }
}

/// Differences by kind.
#[derive(Default)]
struct Differences {
    created: Vec<Difference>,
    updated: Vec<Difference>,
    dropped: Vec<Difference>,
}

impl Differences {
    fn add(&mut self, kind: SchemaChangeKind, keyspace: &Arc<str>, target: Target) {
        let of_kind = match kind {
            SchemaChangeKind::Created => &mut self.created,
            SchemaChangeKind::Updated => &mut self.updated,
            SchemaChangeKind::Dropped => &mut self.dropped,
        };
        of_kind.push(Difference { kind, keyspace: keyspace.clone(), target });
    }

    /// Adds everything that is new in `new` or differs from `old`.
    fn compare(&mut self, old: Option<&Keyspace>, new: &Keyspace) {
        let name = &new.name;
        for (t, udt) in &new.types {
            let target = Target::Type(t.clone());
            match old.and_then(|o| o.types.get(t)) {
                None => self.add(SchemaChangeKind::Created, name, target),
                Some(o) if o != udt => self.add(SchemaChangeKind::Updated, name, target),
                Some(_) => {}
            }
        }
        for (t, table) in &new.tables {
            let target = Target::Table(t.clone());
            match old.and_then(|o| o.tables.get(t)) {
                Some(o) if o.id != table.id => {
                    self.add(SchemaChangeKind::Dropped, name, target.clone());
                    self.add(SchemaChangeKind::Created, name, target);
                }
                None => self.add(SchemaChangeKind::Created, name, target),
                Some(o) if o != table => self.add(SchemaChangeKind::Updated, name, target),
                Some(_) => {}
            }
        }
        for (kind, target) in new_routines(old, new) {
            self.add(kind, name, target);
        }
    }

    /// Adds everything of `old` that is missing in `new`.
    fn compare_dropped(&mut self, old: &Keyspace, new: Option<&Keyspace>) {
        let mut gone = |target| self.add(SchemaChangeKind::Dropped, &old.name, target);
        for f in &old.functions {
            if new.is_none_or(|n| n.function(&f.name, &f.args).is_none()) {
                gone(Target::function(f));
            }
        }
        for a in &old.aggregates {
            if new.is_none_or(|n| n.aggregate(&a.name, &a.args).is_none()) {
                gone(Target::aggregate(a));
            }
        }
        for t in old.tables.keys().filter(|t| new.is_none_or(|n| !n.tables.contains_key(*t))) {
            gone(Target::Table(t.clone()));
        }
        for t in old.types.keys().filter(|t| new.is_none_or(|n| !n.types.contains_key(*t))) {
            gone(Target::Type(t.clone()));
        }
        if new.is_none() {
            gone(Target::Keyspace);
        }
    }
}

/// Returns the events for clients when `before` becomes `after`: first creations, then alterations,
/// then drops. As in Cassandra, the tables and types of a dropped keyspace precede it.
pub(crate) fn events(before: &Schema, after: &Schema) -> Vec<Difference> {
    let mut found = Differences::default();
    for (name, new) in &after.keyspaces {
        let old = before.keyspaces.get(name);
        match old {
            Some(old) if Arc::ptr_eq(old, new) => continue,
            None => found.add(SchemaChangeKind::Created, name, Target::Keyspace),
            Some(old) if old.params != new.params => {
                found.add(SchemaChangeKind::Updated, name, Target::Keyspace);
            }
            Some(_) => {}
        }
        found.compare(old.map(|old| &**old), new);
    }
    for (name, old) in &before.keyspaces {
        found.compare_dropped(old, after.keyspaces.get(name).map(|new| &**new));
    }
    let Differences { created, updated, dropped } = found;
    created.into_iter().chain(updated).chain(dropped).collect()
}

/// Functions and aggregates that are new or were replaced.
fn new_routines(old: Option<&Keyspace>, new: &Keyspace) -> Vec<(SchemaChangeKind, Target)> {
    let kind = |is_there: bool, is_same: bool| match (is_there, is_same) {
        (_, true) => None,
        (true, false) => Some(SchemaChangeKind::Updated),
        (false, false) => Some(SchemaChangeKind::Created),
    };
    let mut found = Vec::new();
    for function in &new.functions {
        let before = old.and_then(|old| old.function(&function.name, &function.args));
        let kind = kind(before.is_some(), before == Some(function));
        found.extend(kind.map(|kind| (kind, Target::function(function))));
    }
    for aggregate in &new.aggregates {
        let before = old.and_then(|old| old.aggregate(&aggregate.name, &aggregate.args));
        let kind = kind(before.is_some(), before == Some(aggregate));
        found.extend(kind.map(|kind| (kind, Target::aggregate(aggregate))));
    }
    found
}
