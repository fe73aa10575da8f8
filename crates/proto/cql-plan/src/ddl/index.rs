//! CREATE INDEX and DROP INDEX.
//!
//! Owns: the checks in Cassandra's order and words, names of indexes without a name, the new definition of the table.
//! Never: builds an index, decides which query uses one.
//!
//! The rules of a class are in `sai` and `sasi`, those of targets, which all classes share, in `target`, ScyllaDB's form of a
//! statement in `local`.
//!
//! Source: `CreateIndexStatement`, `DropIndexStatement`, `IndexMetadata`.

mod class;
mod local;
mod sai;
mod sasi;
mod target;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use cql_syntax::ast::{CreateIndex, DropIndex, PropertyValue};
use schema::{
    ColumnKind, INDEX_CLASS, INDEX_TARGET, IndexKind, IndexMetadata, IndexRules, IndexTarget,
    Keyspace, Table, index_id,
};
use types::name::quote_identifier;

use self::class::IndexClass;
pub(crate) use self::sai::may_index;
use super::{DdlContext, DdlOutcome, On, absent, check_not_replicated_system, find_keyspace};
use crate::error::PlanError;
use crate::java_hash;
use crate::properties::Properties;
use crate::tables::full_name;

/// True: the engine answers queries by indexes. With false CREATE INDEX is refused after all checks.
pub const INDEXES_AVAILABLE: bool = true;

/// Class of an index whose statement names none.
const LEGACY: &str = "legacy_local_table";
/// Longest name in bytes: Cassandra puts names into names of directories and files, and stops where one is too long.
const NAME_BYTES_MAX: usize = 200;

/// Settings of CREATE INDEX.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexSettings {
    /// See [`INDEXES_AVAILABLE`].
    pub available: bool,
    /// Class of an index whose statement names none (`default_secondary_index`); `None`: the statement is refused
    /// (`default_secondary_index_enabled: false`).
    pub default_class: Option<String>,
    /// True if statements may name the class of SASI (`sasi_indexes_enabled`).
    pub sasi: bool,
}

impl Default for IndexSettings {
    fn default() -> IndexSettings {
        IndexSettings {
            available: INDEXES_AVAILABLE,
            default_class: Some(LEGACY.to_owned()),
            sasi: false,
        }
    }
}

/// Class, kind and options of an index as the statement has them.
struct Attributes {
    kind: IndexKind,
    /// The class of a custom index as the statement has it.
    class: Option<String>,
    options: BTreeMap<String, String>,
    /// Keys of the options in the order of the statement.
    written: Vec<String>,
}

impl Attributes {
    /// Source: `CreateIndexStatement.Raw.prepare`, `IndexAttributes.validate`.
    fn read(statement: &CreateIndex, settings: &IndexSettings) -> Result<Attributes, PlanError> {
        let class = statement.class.as_deref().or(settings.default_class.as_deref());
        let Some(class) = class else {
            return Err(PlanError::invalid("Must specify index implementation via USING"));
        };
        // A local index is a kind of its own, of which there is one class.
        let is_local = statement.partition_key.is_some() && statement.class.is_none();
        let class = if is_local { LEGACY } else { class };
        let is_legacy = !statement.custom && class.eq_ignore_ascii_case(LEGACY);
        let properties = Properties::new(&statement.properties)?;
        properties.only(&["options"])?;
        if is_legacy {
            if !statement.properties.is_empty() {
                return Err(PlanError::invalid("Cannot specify options for a non-CUSTOM index"));
            }
            return Ok(Attributes {
                kind: IndexKind::Composites,
                class: None,
                options: BTreeMap::new(),
                written: Vec::new(),
            });
        }
        let options = properties.map("options")?.unwrap_or_default();
        for reserved in [INDEX_CLASS, INDEX_TARGET] {
            if options.contains_key(reserved) {
                return Err(PlanError::invalid(format!(
                    "Cannot specify {reserved} as a CUSTOM option"
                )));
            }
        }
        let written = statement.properties.iter().flat_map(|property| match &property.value {
            PropertyValue::Map(entries) => entries.iter().map(|(key, _)| key.raw_text()).collect(),
            PropertyValue::Literal(_) | PropertyValue::Id(_) => Vec::new(),
        });
        let written = written.collect();
        Ok(Attributes { kind: IndexKind::Custom, class: Some(class.to_owned()), options, written })
    }

    /// The options that `system_schema.indexes` shows.
    fn stored(&self, target: String) -> BTreeMap<String, String> {
        let mut options = self.options.clone();
        if let Some(class) = &self.class {
            options.insert(INDEX_CLASS.to_owned(), class.clone());
        }
        options.insert(INDEX_TARGET.to_owned(), target);
        options
    }
}

/// An index that passed the checks which do not depend on its class.
struct NewIndex<'s> {
    table: &'s Arc<Table>,
    name: String,
    targets: Vec<IndexTarget>,
    /// With target and class.
    options: BTreeMap<String, String>,
}

pub(super) fn create(
    statement: &CreateIndex,
    keyspace_name: &str,
    cx: &DdlContext<'_>,
) -> Result<DdlOutcome, PlanError> {
    let table_name = statement.table.name.text.as_str();
    check_not_replicated_system(keyspace_name, "ALTER", On::Table(table_name))?;
    let attributes = Attributes::read(statement, cx.indexes)?;
    if let Some(watch) = cx.watch {
        watch.secondary_indexes()?;
    }
    let class = attributes.class.as_deref().map(IndexClass::of);
    if class == Some(IndexClass::Sasi) && !cx.indexes.sasi {
        return Err(PlanError::invalid(
            "SASI indexes are disabled. Enable in cassandra.yaml to use.",
        ));
    }
    let keyspace = find_keyspace(cx.schema, keyspace_name)?;
    let Some(table) = keyspace.tables.get(table_name) else {
        return Err(PlanError::invalid(format!("Table '{table_name}' doesn't exist")));
    };
    let Some(index) = new_index(statement, keyspace, table, &attributes, cx)? else {
        return Ok(DdlOutcome::nothing());
    };
    let rules = match &class {
        None => {
            check_name(&index.name)?;
            IndexRules::Legacy
        }
        Some(class) => check_custom(class, &attributes, &index)?,
    };
    check_supported(&index, rules, statement, cx)?;
    let NewIndex { name, mut targets, options, .. } = index;
    let Some(target) = targets.pop() else {
        return Err(PlanError::invalid("Missing target column"));
    };
    let mut changed = Table::clone(table);
    changed.version = changed.version.saturating_add(1);
    let id = index_id(table.id, &name, changed.version);
    let kind = attributes.kind;
    let made = IndexMetadata { id, name: name.into(), kind, options, target, rules };
    changed.indexes = changed.indexes_with(made);
    let mut outcome = super::table::updated(changed);
    if rules == IndexRules::Sasi {
        outcome.warnings.push(sasi::WARNING.to_owned());
    }
    Ok(outcome)
}

/// The checks up to those of the class, in Cassandra's order; `None`: IF NOT EXISTS, and it does.
fn new_index<'s>(
    statement: &CreateIndex,
    keyspace: &'s Keyspace,
    table: &'s Arc<Table>,
    attributes: &Attributes,
    cx: &DdlContext<'_>,
) -> Result<Option<NewIndex<'s>>, PlanError> {
    let name = statement.name.as_ref().map(|name| name.text.as_str());
    if let Some(name) = name.filter(|name| keyspace.index(name).is_some()) {
        return if statement.if_not_exists {
            Ok(None)
        } else {
            Err(PlanError::invalid(format!("Index '{name}' already exists")))
        };
    }
    if table.is_counter() {
        return Err(PlanError::invalid("Secondary indexes on counter tables aren't supported"));
    }
    if let Some(watch) = cx.watch {
        watch.secondary_indexes_per_table(name, &table.name, table.indexes.len() + 1)?;
    }
    if let Some(columns) = &statement.partition_key {
        local::check_partition_key(columns, table)?;
    }
    let targets = target::resolve(&statement.targets, table)?;
    target::check_number(&targets, attributes.kind)?;
    for target in &targets {
        target::check(target, table, attributes.kind)?;
        if statement.partition_key.is_some() {
            local::check_target(target, table)?;
        }
    }
    let name = match name {
        Some(name) => name.to_owned(),
        None => available_name(keyspace, table, &targets),
    };
    let options = attributes.stored(match &statement.partition_key {
        Some(_) => local::json(table, &targets),
        None => targets.iter().map(IndexTarget::to_string).collect::<Vec<_>>().join(", "),
    });
    let is_equal =
        |other: &&Arc<IndexMetadata>| other.kind == attributes.kind && other.options == options;
    if let Some(equal) = table.indexes.iter().find(is_equal) {
        return if statement.if_not_exists {
            Ok(None)
        } else {
            Err(PlanError::invalid(format!(
                "Index {name} is a duplicate of existing index {}",
                equal.name
            )))
        };
    }
    Ok(Some(NewIndex { table, name, targets, options }))
}

/// The checks of a custom index.
fn check_custom(
    class: &IndexClass,
    attributes: &Attributes,
    index: &NewIndex<'_>,
) -> Result<IndexRules, PlanError> {
    if *class == IndexClass::Sai {
        // Cassandra checks all indexes of the new table, the new one last.
        sai::check_unique(index)?;
    }
    check_name(&index.name)?;
    match class {
        IndexClass::Sai => {
            sai::check(attributes, index)?;
            Ok(IndexRules::Sai)
        }
        IndexClass::Sasi => {
            sasi::check(&attributes.options, index)?;
            Ok(IndexRules::Sasi)
        }
        IndexClass::Internal(name) => Err(unsupported(&format!("Index class '{name}' is"))),
        IndexClass::Unknown(name) => {
            Err(PlanError::config(format!("Unable to find custom indexer class '{name}'")))
        }
    }
}

fn unsupported(what: &str) -> PlanError {
    PlanError::invalid(format!("{what} not supported by this version of Helenus"))
}

/// Refuses what Cassandra accepts and this version does not.
fn check_supported(
    index: &NewIndex<'_>,
    rules: IndexRules,
    statement: &CreateIndex,
    cx: &DdlContext<'_>,
) -> Result<(), PlanError> {
    if statement.partition_key.is_some() && rules != IndexRules::Legacy {
        return Err(unsupported("Local indexes of a class are"));
    }
    for target in &index.targets {
        let Some(column) = index.table.column(&target.column) else { continue };
        let ty = target::term_type(column, target.part);
        if rules == IndexRules::Sai
            && ty.is_some_and(target::is_vector)
            && (column.kind != ColumnKind::Regular || !target::is_vector(&column.ty))
        {
            return Err(unsupported(
                "Storage-attached indexes of vectors in static columns, keys and collections are",
            ));
        }
        if column.ty.any(&mut target::has_no_terms) {
            return Err(unsupported(&format!(
                "Indexes of columns of type {} are",
                column.ty.to_cql_name()
            )));
        }
    }
    let bytes = index.name.len();
    if bytes > NAME_BYTES_MAX {
        return Err(PlanError::invalid(format!(
            "Index name of {bytes} bytes is longer than maximum of {NAME_BYTES_MAX}"
        )));
    }
    if !cx.indexes.available {
        let name = if statement.custom { "CREATE CUSTOM INDEX" } else { "CREATE INDEX" };
        return Err(PlanError::unsupported(name));
    }
    Ok(())
}

fn check_name(name: &str) -> Result<(), PlanError> {
    if super::is_valid_name(name) {
        return Ok(());
    }
    Err(PlanError::config(format!("Illegal index name {name}")))
}

/// Source: `IndexMetadata.generateDefaultIndexName`, `KeyspaceMetadata.findAvailableIndexName`.
fn available_name(keyspace: &Keyspace, table: &Table, targets: &[IndexTarget]) -> String {
    let base = match targets {
        [target] => format!("{}_{}_idx", table.name, target.column),
        _ => format!("{}_idx", table.name),
    };
    let base: String = base.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
    let mut name = base.clone();
    let mut next = 1_u64;
    while keyspace.index(&name).is_some() {
        name = format!("{base}_{next}");
        next = next.saturating_add(1);
    }
    name
}

/// Keys in the order of a Java `HashMap` of this many slots.
fn in_slots<'k>(keys: impl Iterator<Item = &'k str>, slots: usize) -> Vec<&'k str> {
    let mut keys: Vec<&str> = keys.collect();
    keys.sort_by_key(|key| java_hash::slot(java_hash::string_hash(key), slots));
    keys
}

/// Removes an index.
pub(super) fn drop(
    statement: &DropIndex,
    keyspace_name: &str,
    cx: &DdlContext<'_>,
) -> Result<DdlOutcome, PlanError> {
    let name = statement.name.name.text.as_str();
    let found = cx.schema.keyspace(keyspace_name).and_then(|keyspace| keyspace.index(name));
    let Some((table, _)) = found else {
        // The quotation mark too many is Cassandra's.
        return absent(
            statement.if_exists,
            format!("Index '{keyspace_name}.{name}' doesn't exist'"),
        );
    };
    let mut changed = Table::clone(table);
    changed.version = changed.version.saturating_add(1);
    changed.indexes = changed.indexes_without(name);
    Ok(super::table::updated(changed))
}

/// Names of the indexes that name a column, for error texts; `None`: none does. Cassandra's order depends on addresses of
/// objects; here they are ordered by name.
pub(super) fn dependent(table: &Table, column: &str) -> Option<String> {
    // The target of a local index names the partition key.
    let in_key = table.partition_key().iter().any(|key| &*key.name == column);
    let names = table
        .indexes
        .iter()
        .filter(|index| &*index.target.column == column || in_key && index.is_local());
    let names: Vec<&str> = names.map(|index| &*index.name).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// The column of a statement that the table does not have.
fn undefined(column: &str, table: &Table) -> PlanError {
    PlanError::invalid(format!(
        "Undefined column name {} in table {}",
        quote_identifier(column),
        full_name(table)
    ))
}
