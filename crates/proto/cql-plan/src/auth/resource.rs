//! Resources of permissions: stored names, displayed texts, parents.
//!
//! Source: Cassandra 5.0's `DataResource`, `RoleResource`, `FunctionResource`, `JMXResource`.

use std::fmt;

use cluster::{Permission, PermissionSet};
use cql_syntax::ast;
use schema::Schema;
use types::CqlType;
use types::marshal::parse_marshal;

use crate::error::PlanError;
use crate::tables::keyspace_of;

/// A resource that permissions apply to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resource {
    /// All keyspaces with their contents.
    AllKeyspaces,
    /// A keyspace with its contents.
    Keyspace(String),
    /// All tables of a keyspace.
    AllTables(String),
    /// A table.
    Table {
        /// Its keyspace.
        keyspace: String,
        /// Its name.
        table: String,
    },
    /// All roles.
    AllRoles,
    /// A role.
    Role(String),
    /// All user functions.
    AllFunctions,
    /// All functions of a keyspace.
    KeyspaceFunctions(String),
    /// A function.
    Function {
        /// Its keyspace.
        keyspace: String,
        /// Its name.
        name: String,
        /// Types of its arguments, as they are shown.
        arguments: Vec<String>,
        /// The same as they are kept: class names with `^` between them.
        classes: String,
    },
    /// All MBeans.
    AllMbeans,
    /// An MBean, or all that a pattern means.
    Mbean(String),
}

const OF_KEYSPACES: PermissionSet = PermissionSet::of(&[
    Permission::Create,
    Permission::Alter,
    Permission::Drop,
    Permission::Select,
    Permission::Modify,
    Permission::Authorize,
    Permission::Unmask,
    Permission::SelectMasked,
]);

const OF_TABLES: PermissionSet = PermissionSet::of(&[
    Permission::Alter,
    Permission::Drop,
    Permission::Select,
    Permission::Modify,
    Permission::Authorize,
    Permission::Unmask,
    Permission::SelectMasked,
]);
const OF_ROLE: PermissionSet = PermissionSet::of(&[
    Permission::Alter,
    Permission::Drop,
    Permission::Authorize,
    Permission::Describe,
]);
const OF_FUNCTION: PermissionSet = PermissionSet::of(&[
    Permission::Alter,
    Permission::Drop,
    Permission::Authorize,
    Permission::Execute,
]);
const OF_MBEANS: PermissionSet = PermissionSet::of(&[
    Permission::Authorize,
    Permission::Describe,
    Permission::Execute,
    Permission::Modify,
    Permission::Select,
]);

impl Resource {
    /// A table.
    pub fn table(keyspace: &str, table: &str) -> Resource {
        Resource::Table { keyspace: keyspace.to_owned(), table: table.to_owned() }
    }

    /// A user's function or aggregate.
    pub fn function(keyspace: &str, name: &str, args: &[CqlType]) -> Resource {
        let classes: Vec<String> = args.iter().map(CqlType::to_marshal_name).collect();
        Resource::Function {
            keyspace: keyspace.to_owned(),
            name: name.to_owned(),
            arguments: args.iter().map(CqlType::to_cql_name).collect(),
            classes: classes.join("^"),
        }
    }

    /// Returns the resource that a statement names; `session` is the keyspace in use.
    ///
    /// # Errors
    /// A table without keyspace when none is in use; a function without one; an unknown type.
    pub fn of_statement(
        resource: &ast::Resource,
        session: Option<&str>,
    ) -> Result<Resource, PlanError> {
        Ok(match resource {
            ast::Resource::AllKeyspaces => Resource::AllKeyspaces,
            ast::Resource::Keyspace(name) => Resource::Keyspace(name.text.clone()),
            ast::Resource::AllTables(name) => Resource::AllTables(name.text.clone()),
            ast::Resource::Table(name) => Resource::Table {
                keyspace: keyspace_of(name, session)?,
                table: name.name.text.clone(),
            },
            ast::Resource::AllRoles => Resource::AllRoles,
            ast::Resource::Role(name) => Resource::Role(name.text.clone()),
            ast::Resource::AllFunctions => Resource::AllFunctions,
            ast::Resource::KeyspaceFunctions(name) => {
                Resource::KeyspaceFunctions(name.text.clone())
            }
            ast::Resource::Function(name, arguments) => {
                let Some(keyspace) = &name.keyspace else {
                    return Err(PlanError::invalid(
                        "In this context function name must be explictly qualified by a keyspace",
                    ));
                };
                let none = std::collections::BTreeMap::new();
                let types: Result<Vec<CqlType>, PlanError> = arguments
                    .iter()
                    .map(|ty| crate::raw_type::resolve(ty, &keyspace.text, &none))
                    .collect();
                match types {
                    Ok(types) => Resource::function(&keyspace.text, &name.name.text, &types),
                    // User types are looked up when it runs ([`Resource::in_schema`]).
                    Err(_) => Resource::Function {
                        keyspace: keyspace.text.clone(),
                        name: name.name.text.clone(),
                        arguments: arguments.iter().map(ToString::to_string).collect(),
                        classes: String::new(),
                    },
                }
            }
            ast::Resource::AllMbeans => Resource::AllMbeans,
            ast::Resource::Mbean(name) | ast::Resource::Mbeans(name) => {
                Resource::Mbean(name.clone())
            }
        })
    }

    /// The same, a function's user types looked up.
    #[must_use]
    pub(super) fn in_schema(&self, schema: &Schema) -> Resource {
        let Resource::Function { keyspace, name, arguments, classes } = self else {
            return self.clone();
        };
        let Some(found) = schema.keyspace(keyspace).filter(|_| classes.is_empty()) else {
            return self.clone();
        };
        let functions = found.functions_named(name).map(|f| &f.args);
        let aggregates = found.aggregates_named(name).map(|a| &a.args);
        let mut all = functions.chain(aggregates);
        match all.find(|args| args.iter().map(CqlType::to_cql_name).eq(arguments.iter().cloned())) {
            Some(args) => Resource::function(keyspace, name, args),
            None => self.clone(),
        }
    }

    /// Returns the resource for which [`Resource::name`] gives this name; `None` when no resource
    /// has it.
    pub fn from_name(name: &str) -> Option<Resource> {
        let (root, rest) = match name.split_once('/') {
            Some((root, rest)) => (root, Some(rest)),
            None => (name, None),
        };
        Some(match (root, rest) {
            ("data", None) => Resource::AllKeyspaces,
            ("data", Some(rest)) => match rest.split_once('/') {
                None => Resource::Keyspace(rest.to_owned()),
                Some((keyspace, "*")) => Resource::AllTables(keyspace.to_owned()),
                Some((keyspace, table)) => Resource::table(keyspace, table),
            },
            ("roles", None) => Resource::AllRoles,
            ("roles", Some(role)) => Resource::Role(role.to_owned()),
            ("functions", None) => Resource::AllFunctions,
            ("functions", Some(rest)) => match rest.split_once('/') {
                None => Resource::KeyspaceFunctions(rest.to_owned()),
                Some((keyspace, function)) => {
                    let (name, classes) = function.strip_suffix(']')?.rsplit_once('[')?;
                    let shown = |class: &str| match parse_marshal(class) {
                        Ok((ty, _)) => ty.to_string(),
                        Err(_) => class.to_owned(),
                    };
                    let classes_of = classes.split('^').filter(|class| !class.is_empty());
                    Resource::Function {
                        keyspace: keyspace.to_owned(),
                        name: name.to_owned(),
                        arguments: classes_of.map(shown).collect(),
                        classes: classes.to_owned(),
                    }
                }
            },
            ("mbean", None) => Resource::AllMbeans,
            ("mbean", Some(mbean)) => Resource::Mbean(mbean.to_owned()),
            _ => return None,
        })
    }

    /// The name it is kept by.
    pub fn name(&self) -> String {
        match self {
            Resource::AllKeyspaces => "data".to_owned(),
            Resource::Keyspace(keyspace) => format!("data/{keyspace}"),
            Resource::AllTables(keyspace) => format!("data/{keyspace}/*"),
            Resource::Table { keyspace, table } => format!("data/{keyspace}/{table}"),
            Resource::AllRoles => "roles".to_owned(),
            Resource::Role(role) => format!("roles/{role}"),
            Resource::AllFunctions => "functions".to_owned(),
            Resource::KeyspaceFunctions(keyspace) => format!("functions/{keyspace}"),
            Resource::Function { keyspace, name, classes, .. } => {
                format!("functions/{keyspace}/{name}[{classes}]")
            }
            Resource::AllMbeans => "mbean".to_owned(),
            Resource::Mbean(mbean) => format!("mbean/{mbean}"),
        }
    }

    /// Returns the parent; a permission on the parent applies to this resource, too.
    pub fn parent(&self) -> Option<Resource> {
        match self {
            Resource::AllKeyspaces
            | Resource::AllRoles
            | Resource::AllFunctions
            | Resource::AllMbeans => None,
            Resource::Keyspace(_) => Some(Resource::AllKeyspaces),
            Resource::AllTables(keyspace) => Some(Resource::Keyspace(keyspace.clone())),
            Resource::Table { keyspace, .. } => Some(Resource::AllTables(keyspace.clone())),
            Resource::Role(_) => Some(Resource::AllRoles),
            Resource::KeyspaceFunctions(_) => Some(Resource::AllFunctions),
            Resource::Function { keyspace, .. } => {
                Some(Resource::KeyspaceFunctions(keyspace.clone()))
            }
            Resource::Mbean(_) => Some(Resource::AllMbeans),
        }
    }

    /// Returns the resource, its parent, and so on.
    pub fn chain(&self) -> Vec<Resource> {
        let mut chain = vec![self.clone()];
        while let Some(parent) = chain.last().and_then(Resource::parent) {
            chain.push(parent);
        }
        chain
    }

    /// Permissions that there are on such a resource.
    pub fn applicable(&self) -> PermissionSet {
        match self {
            Resource::AllKeyspaces | Resource::Keyspace(_) | Resource::AllTables(_) => OF_KEYSPACES,
            Resource::Table { .. } => OF_TABLES,
            Resource::AllRoles => OF_ROLE.union(PermissionSet::of(&[Permission::Create])),
            Resource::Role(_) => OF_ROLE,
            Resource::AllFunctions | Resource::KeyspaceFunctions(_) => {
                OF_FUNCTION.union(PermissionSet::of(&[Permission::Create]))
            }
            Resource::Function { .. } => OF_FUNCTION,
            Resource::AllMbeans | Resource::Mbean(_) => OF_MBEANS,
        }
    }

    /// The class of Cassandra's that messages name.
    pub(super) fn class(&self) -> &'static str {
        match self {
            Resource::AllKeyspaces
            | Resource::Keyspace(_)
            | Resource::AllTables(_)
            | Resource::Table { .. } => "DataResource",
            Resource::AllRoles | Resource::Role(_) => "RoleResource",
            Resource::AllFunctions | Resource::KeyspaceFunctions(_) | Resource::Function { .. } => {
                "FunctionResource"
            }
            Resource::AllMbeans | Resource::Mbean(_) => "JMXResource",
        }
    }

    /// Returns true if the resource exists. This node has no MBeans: any possible name of one is
    /// accepted, so that scripts for Cassandra run.
    ///
    /// # Errors
    /// Functions of the `system` keyspace, which have no permissions.
    pub(super) fn exists(&self, auth: &cluster::Auth, schema: &Schema) -> Result<bool, PlanError> {
        Ok(match self {
            Resource::AllKeyspaces
            | Resource::AllRoles
            | Resource::AllFunctions
            | Resource::AllMbeans => true,
            Resource::Keyspace(keyspace) | Resource::AllTables(keyspace) => {
                schema.keyspace(keyspace).is_some()
            }
            Resource::Table { keyspace, table } => schema.table(keyspace, table).is_some(),
            Resource::Role(role) => auth.roles.contains_key(role),
            Resource::KeyspaceFunctions(keyspace) | Resource::Function { keyspace, .. }
                if keyspace == "system" =>
            {
                return Err(PlanError::invalid(
                    "Altering permissions on builtin functions is not supported",
                ));
            }
            Resource::KeyspaceFunctions(keyspace) => schema.keyspace(keyspace).is_some(),
            Resource::Function { keyspace, name, arguments, .. } => {
                let same = |args: &[CqlType]| {
                    args.iter().map(CqlType::to_cql_name).eq(arguments.iter().cloned())
                };
                schema.keyspace(keyspace).is_some_and(|k| {
                    k.functions_named(name).any(|f| same(&f.args))
                        || k.aggregates_named(name).any(|a| same(&a.args))
                })
            }
            Resource::Mbean(name) => name.split_once(':').is_some_and(|(_, keys)| !keys.is_empty()),
        })
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Resource::AllKeyspaces => f.write_str("<all keyspaces>"),
            Resource::Keyspace(keyspace) => write!(f, "<keyspace {keyspace}>"),
            Resource::AllTables(keyspace) => write!(f, "<all tables in {keyspace}>"),
            Resource::Table { keyspace, table } => write!(f, "<table {keyspace}.{table}>"),
            Resource::AllRoles => f.write_str("<all roles>"),
            Resource::Role(role) => write!(f, "<role {role}>"),
            Resource::AllFunctions => f.write_str("<all functions>"),
            Resource::KeyspaceFunctions(keyspace) => write!(f, "<all functions in {keyspace}>"),
            Resource::Function { keyspace, name, arguments, .. } => {
                write!(f, "<function {keyspace}.{name}({})>", arguments.join(", "))
            }
            Resource::AllMbeans => f.write_str("<all mbeans>"),
            Resource::Mbean(name) => write!(f, "<mbean {name}>"),
        }
    }
}
