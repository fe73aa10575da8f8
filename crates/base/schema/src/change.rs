//! Schema changes and their application: `Schema` + `SchemaChange` → new `Schema`.
//!
//! A change carries the full new definition of each changed item, already validated by `cql-plan`
//! against the schema it was planned on; [`Schema::apply`] repeats the checks that concurrent
//! changes can break (existence, ids), because changes come out of a log.

use std::collections::BTreeMap;
use std::sync::Arc;

use types::{CqlType, UdtType};

use crate::digest::digest_uuid;
use crate::encode;
use crate::functions::{UserAggregate, UserFunction};
use crate::model::{Keyspace, KeyspaceParams, Schema, Table};
use stdx::Uuid;

/// One change of the schema.
#[derive(Clone, Debug, PartialEq)]
pub enum SchemaChange {
    /// A new keyspace without tables and types.
    CreateKeyspace {
        /// Its name.
        name: Arc<str>,
        /// Its options.
        params: KeyspaceParams,
    },
    /// New options for a keyspace.
    AlterKeyspace {
        /// Its name.
        name: Arc<str>,
        /// All of its options.
        params: KeyspaceParams,
    },
    /// The keyspace is dropped with everything in it.
    DropKeyspace {
        /// Its name.
        name: Arc<str>,
    },
    /// A new table.
    CreateTable(Table),
    /// The table's new definition: same id, version one higher.
    AlterTable(Table),
    /// The table is dropped.
    DropTable {
        /// Its keyspace.
        keyspace: Arc<str>,
        /// Its name.
        table: Arc<str>,
    },
    /// A new user type (stored unfrozen).
    CreateType(UdtType),
    /// The user type's new definition; every table and type that uses it follows.
    AlterType(UdtType),
    /// The user type is dropped.
    DropType {
        /// Its keyspace.
        keyspace: Arc<str>,
        /// Its name.
        name: Arc<str>,
    },
    /// A function, new or in the place of the one with its name and argument types.
    PutFunction(UserFunction),
    /// The function is dropped.
    DropFunction {
        /// Its keyspace.
        keyspace: Arc<str>,
        /// Its name.
        name: Arc<str>,
        /// Types of its arguments.
        args: Vec<CqlType>,
    },
    /// An aggregate, new or in the place of the one with its name and argument types.
    PutAggregate(UserAggregate),
    /// The aggregate is dropped.
    DropAggregate {
        /// Its keyspace.
        keyspace: Arc<str>,
        /// Its name.
        name: Arc<str>,
        /// Types of its arguments.
        args: Vec<CqlType>,
    },
}

/// Why a change does not fit the schema it is applied to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// It exists already.
    #[error("{what} \"{name}\" already exists")]
    AlreadyExists {
        /// `keyspace`, `table`, `type`, `function`, `aggregate` or `index`.
        what: &'static str,
        /// Its name, with the keyspace in front.
        name: String,
    },
    /// It does not exist.
    #[error("{what} \"{name}\" doesn't exist")]
    NotFound {
        /// `keyspace`, `table`, `type`, `function` or `aggregate`.
        what: &'static str,
        /// Its name, with the keyspace in front.
        name: String,
    },
    /// The definition was made for an older version of the table.
    #[error("table \"{name}\" was changed at the same time, run the statement again")]
    Conflict {
        /// Its name, with the keyspace in front.
        name: String,
    },
}

fn full(keyspace: &str, name: &str) -> String {
    format!("{keyspace}.{name}")
}

impl Schema {
    /// The schema after `change`.
    ///
    /// # Errors
    /// `AlreadyExists`, `NotFound`, `Conflict`: the change was made for another schema.
    pub fn apply(&self, change: &SchemaChange) -> Result<Schema, SchemaError> {
        let mut keyspaces = self.keyspaces.clone();
        match change {
            SchemaChange::CreateKeyspace { name, params } => {
                if keyspaces.contains_key(name) {
                    let name = name.to_string();
                    return Err(SchemaError::AlreadyExists { what: "keyspace", name });
                }
                let keyspace = Keyspace {
                    name: name.clone(),
                    params: params.clone(),
                    tables: BTreeMap::new(),
                    types: BTreeMap::new(),
                    functions: Vec::new(),
                    aggregates: Vec::new(),
                    is_virtual: false,
                };
                keyspaces.insert(name.clone(), Arc::new(keyspace));
            }
            SchemaChange::AlterKeyspace { name, params } => {
                edit(&mut keyspaces, name)?.params = params.clone();
            }
            SchemaChange::DropKeyspace { name } => {
                if keyspaces.remove(name).is_none() {
                    let name = name.to_string();
                    return Err(SchemaError::NotFound { what: "keyspace", name });
                }
            }
            SchemaChange::CreateTable(table) => {
                let name = full(&table.keyspace, &table.name);
                let keyspace = edit(&mut keyspaces, &table.keyspace)?;
                if keyspace.tables.contains_key(&table.name)
                    || self.tables_by_id.contains_key(&table.id)
                {
                    return Err(SchemaError::AlreadyExists { what: "table", name });
                }
                keyspace.check_index_names(table)?;
                keyspace.tables.insert(table.name.clone(), Arc::new(table.clone()));
            }
            SchemaChange::AlterTable(table) => {
                edit(&mut keyspaces, &table.keyspace)?.alter_table(table)?;
            }
            SchemaChange::DropTable { keyspace, table } => {
                if edit(&mut keyspaces, keyspace)?.tables.remove(table).is_none() {
                    let name = full(keyspace, table);
                    return Err(SchemaError::NotFound { what: "table", name });
                }
            }
            SchemaChange::CreateType(udt) => {
                edit(&mut keyspaces, &udt.keyspace)?.create_type(udt)?
            }
            SchemaChange::AlterType(udt) => edit(&mut keyspaces, &udt.keyspace)?.alter_type(udt)?,
            SchemaChange::DropType { keyspace, name } => {
                edit(&mut keyspaces, keyspace)?.drop_type(name)?;
            }
            SchemaChange::PutFunction(function) => {
                edit(&mut keyspaces, &function.keyspace)?.put_function(function);
            }
            SchemaChange::DropFunction { keyspace, name, args } => {
                edit(&mut keyspaces, keyspace)?.drop_function(name, args)?;
            }
            SchemaChange::PutAggregate(aggregate) => {
                edit(&mut keyspaces, &aggregate.keyspace)?.put_aggregate(aggregate);
            }
            SchemaChange::DropAggregate { keyspace, name, args } => {
                edit(&mut keyspaces, keyspace)?.drop_aggregate(name, args)?;
            }
        }
        Ok(Schema::from_keyspaces(keyspaces))
    }

    /// A schema of these keyspaces, its table index and version computed.
    pub fn from_keyspaces(keyspaces: BTreeMap<Arc<str>, Arc<Keyspace>>) -> Schema {
        let mut schema = Schema { keyspaces, ..Schema::default() };
        for keyspace in schema.keyspaces.values() {
            for table in keyspace.tables.values() {
                schema.tables_by_id.insert(table.id, table.clone());
            }
        }
        schema.version = version_of(&schema.keyspaces);
        schema
    }
}

impl Keyspace {
    fn alter_table(&mut self, table: &Table) -> Result<(), SchemaError> {
        let name = || full(&table.keyspace, &table.name);
        match self.tables.get(&table.name) {
            None => return Err(SchemaError::NotFound { what: "table", name: name() }),
            Some(old) if old.id != table.id || old.version + 1 != table.version => {
                return Err(SchemaError::Conflict { name: name() });
            }
            Some(_) => {}
        }
        self.check_index_names(table)?;
        self.tables.insert(table.name.clone(), Arc::new(table.clone()));
        Ok(())
    }

    /// INV-schema-6: no other table of the keyspace has an index of a name that one of `table` has.
    fn check_index_names(&self, table: &Table) -> Result<(), SchemaError> {
        if !table.has_indexes() {
            return Ok(());
        }
        let others = self.tables.values().filter(|other| other.name != table.name);
        let mut taken = others.flat_map(|other| other.indexes.iter());
        match taken.find(|index| table.index(&index.name).is_some()) {
            None => Ok(()),
            Some(index) => {
                let name = full(&self.name, &index.name);
                Err(SchemaError::AlreadyExists { what: "index", name })
            }
        }
    }

    fn create_type(&mut self, udt: &UdtType) -> Result<(), SchemaError> {
        if self.types.contains_key(&udt.name) {
            let name = full(&udt.keyspace, &udt.name);
            return Err(SchemaError::AlreadyExists { what: "type", name });
        }
        self.types.insert(udt.name.clone(), Arc::new(udt.clone()));
        Ok(())
    }

    fn alter_type(&mut self, udt: &UdtType) -> Result<(), SchemaError> {
        if !self.types.contains_key(&udt.name) {
            let name = full(&udt.keyspace, &udt.name);
            return Err(SchemaError::NotFound { what: "type", name });
        }
        replace_type(self, udt);
        Ok(())
    }

    fn drop_type(&mut self, name: &Arc<str>) -> Result<(), SchemaError> {
        if self.types.remove(name).is_none() {
            let name = full(&self.name, name);
            return Err(SchemaError::NotFound { what: "type", name });
        }
        Ok(())
    }
}

fn edit<'k>(
    keyspaces: &'k mut BTreeMap<Arc<str>, Arc<Keyspace>>,
    name: &Arc<str>,
) -> Result<&'k mut Keyspace, SchemaError> {
    match keyspaces.get_mut(name) {
        Some(keyspace) => Ok(Arc::make_mut(keyspace)),
        None => Err(SchemaError::NotFound { what: "keyspace", name: name.to_string() }),
    }
}

/// Puts the new definition of a user type everywhere it is used in its keyspace.
fn replace_type(keyspace: &mut Keyspace, udt: &UdtType) {
    keyspace.types.insert(udt.name.clone(), Arc::new(udt.clone()));
    for (name, other) in &mut keyspace.types {
        if *name == udt.name || !other.fields.iter().any(|(_, t)| t.references_udt(&udt.name)) {
            continue;
        }
        for (_, field) in &mut Arc::make_mut(other).fields {
            *field = field.with_updated_udt(udt);
        }
    }
    keyspace.replace_type_in_functions(udt);
    for table in keyspace.tables.values_mut() {
        let of_masks = table
            .masks
            .values()
            .flat_map(|mask| mask.args.iter().map(|(ty, _)| ty).chain(&mask.users));
        let mut types = table.columns.iter().map(|c| &c.ty).chain(of_masks);
        if !types.any(|ty| ty.references_udt(&udt.name)) {
            continue;
        }
        let table = Arc::make_mut(table);
        table.version += 1;
        for column in &mut table.columns {
            column.ty = column.ty.with_updated_udt(udt);
        }
        for mask in table.masks.values_mut() {
            for ty in mask.args.iter_mut().map(|(ty, _)| ty).chain(&mut mask.users) {
                *ty = ty.with_updated_udt(udt);
            }
        }
    }
}

/// Keyspaces whose definition is fixed by the program, not by the log: they do not count for
/// schema agreement, as in Cassandra.
pub const LOCAL_KEYSPACES: &[&str] =
    &["system", "system_schema", "system_views", "system_virtual_schema"];

/// Digest of all keyspaces that nodes share, as a version-3-shaped UUID.
fn version_of(keyspaces: &BTreeMap<Arc<str>, Arc<Keyspace>>) -> Uuid {
    let mut bytes = Vec::new();
    for keyspace in keyspaces.values() {
        if !LOCAL_KEYSPACES.contains(&&*keyspace.name) {
            encode::keyspace(&mut bytes, keyspace);
        }
    }
    digest_uuid(bytes)
}
