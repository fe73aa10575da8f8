//! User functions and aggregates.

use std::sync::Arc;

use types::{CqlType, UdtType};

use crate::change::SchemaError;
use crate::model::{ColumnMask, Keyspace};

/// A function of a user's (`CREATE FUNCTION`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserFunction {
    /// Keyspace name.
    pub keyspace: Arc<str>,
    /// Name, case kept. Functions of one name differ in the types of their arguments.
    pub name: Arc<str>,
    /// Names of the arguments.
    pub arg_names: Vec<Arc<str>>,
    /// Types of the arguments, as many.
    pub args: Vec<CqlType>,
    /// Type of the result.
    pub returns: CqlType,
    /// `CALLED ON NULL INPUT`; else null for a null argument without a call.
    pub called_on_null_input: bool,
    /// `LANGUAGE`, lower case.
    pub language: Arc<str>,
    /// The body as it was given.
    pub body: Arc<str>,
}

/// An aggregate of a user's (`CREATE AGGREGATE`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserAggregate {
    /// Keyspace name.
    pub keyspace: Arc<str>,
    /// Name, case kept.
    pub name: Arc<str>,
    /// Types of the arguments.
    pub args: Vec<CqlType>,
    /// Type of the result.
    pub returns: CqlType,
    /// Name of the function that takes the state and the arguments and returns the next state.
    pub state_function: Arc<str>,
    /// Type of the state.
    pub state_type: CqlType,
    /// Name of the function that makes the result of the last state.
    pub final_function: Option<Arc<str>>,
    /// First state, serialised; `None` is null.
    pub initial: Option<Vec<u8>>,
}

/// Returns true if two lists of argument types mean the same function; `frozen` makes no
/// difference.
pub fn same_arguments(left: &[CqlType], right: &[CqlType]) -> bool {
    left.len() == right.len() && left.iter().zip(right).all(|(l, r)| l.freeze() == r.freeze())
}

/// `name(types)`, by which functions are ordered in their keyspace and in DESCRIBE.
fn order_key(name: &str, args: &[CqlType]) -> (String, Vec<String>) {
    (name.to_owned(), args.iter().map(CqlType::to_cql_name).collect())
}

impl UserFunction {
    /// The state function's signature of an aggregate: the state in front of its arguments.
    pub fn takes(&self, args: &[CqlType]) -> bool {
        same_arguments(&self.args, args)
    }

    fn uses(&self, udt: &str) -> bool {
        self.args.iter().chain([&self.returns]).any(|ty| ty.references_udt(udt))
    }
}

impl UserAggregate {
    /// Types of the arguments of the state function.
    pub fn state_args(&self) -> Vec<CqlType> {
        [&self.state_type].into_iter().chain(&self.args).cloned().collect()
    }

    /// Returns true if it calls the function.
    pub fn calls(&self, function: &UserFunction) -> bool {
        let state = self.state_function == function.name && function.takes(&self.state_args());
        let last = self.final_function.as_ref() == Some(&function.name)
            && function.takes(std::slice::from_ref(&self.state_type));
        state || last
    }

    fn uses(&self, udt: &str) -> bool {
        self.args.iter().chain([&self.returns, &self.state_type]).any(|ty| ty.references_udt(udt))
    }
}

impl Keyspace {
    /// The functions of a name.
    pub fn functions_named(&self, name: &str) -> impl Iterator<Item = &Arc<UserFunction>> {
        self.functions.iter().filter(move |f| &*f.name == name)
    }

    /// The aggregates of a name.
    pub fn aggregates_named(&self, name: &str) -> impl Iterator<Item = &Arc<UserAggregate>> {
        self.aggregates.iter().filter(move |a| &*a.name == name)
    }

    /// The function of that name and those argument types.
    pub fn function(&self, name: &str, args: &[CqlType]) -> Option<&Arc<UserFunction>> {
        self.functions_named(name).find(|f| same_arguments(&f.args, args))
    }

    /// Names of the tables that have a function as a mask.
    pub fn tables_masked_by(&self, function: &UserFunction) -> Vec<Arc<str>> {
        let is_it = |mask: &ColumnMask| {
            mask.function == function.name
                && mask.users_arguments().is_some_and(|args| function.takes(&args))
        };
        let tables = self.tables.values().filter(|table| table.masks.values().any(is_it));
        tables.map(|table| table.name.clone()).collect()
    }

    /// The aggregate of that name and those argument types.
    pub fn aggregate(&self, name: &str, args: &[CqlType]) -> Option<&Arc<UserAggregate>> {
        self.aggregates_named(name).find(|a| same_arguments(&a.args, args))
    }

    /// Names of functions and aggregates whose signatures have a user type.
    pub fn functions_using_type(&self, udt: &str) -> Vec<Arc<str>> {
        let functions = self.functions.iter().filter(|f| f.uses(udt)).map(|f| f.name.clone());
        let aggregates = self.aggregates.iter().filter(|a| a.uses(udt)).map(|a| a.name.clone());
        functions.chain(aggregates).collect()
    }

    pub(crate) fn put_function(&mut self, function: &UserFunction) {
        self.functions
            .retain(|f| f.name != function.name || !same_arguments(&f.args, &function.args));
        self.functions.push(Arc::new(function.clone()));
        self.functions.sort_by_cached_key(|f| order_key(&f.name, &f.args));
    }

    pub(crate) fn put_aggregate(&mut self, aggregate: &UserAggregate) {
        self.aggregates
            .retain(|a| a.name != aggregate.name || !same_arguments(&a.args, &aggregate.args));
        self.aggregates.push(Arc::new(aggregate.clone()));
        self.aggregates.sort_by_cached_key(|a| order_key(&a.name, &a.args));
    }

    pub(crate) fn drop_function(
        &mut self,
        name: &str,
        args: &[CqlType],
    ) -> Result<(), SchemaError> {
        let before = self.functions.len();
        self.functions.retain(|f| &*f.name != name || !same_arguments(&f.args, args));
        if self.functions.len() == before {
            return Err(self.no_routine("function", name));
        }
        Ok(())
    }

    pub(crate) fn drop_aggregate(
        &mut self,
        name: &str,
        args: &[CqlType],
    ) -> Result<(), SchemaError> {
        let before = self.aggregates.len();
        self.aggregates.retain(|a| &*a.name != name || !same_arguments(&a.args, args));
        if self.aggregates.len() == before {
            return Err(self.no_routine("aggregate", name));
        }
        Ok(())
    }

    fn no_routine(&self, what: &'static str, name: &str) -> SchemaError {
        SchemaError::NotFound { what, name: format!("{}.{name}", self.name) }
    }

    /// Puts the new definition of a user type into all signatures.
    pub(crate) fn replace_type_in_functions(&mut self, udt: &UdtType) {
        let name = &*udt.name;
        for function in self.functions.iter_mut().filter(|f| f.uses(name)) {
            let function = Arc::make_mut(function);
            for ty in function.args.iter_mut().chain([&mut function.returns]) {
                *ty = ty.with_updated_udt(udt);
            }
        }
        for aggregate in self.aggregates.iter_mut().filter(|a| a.uses(name)) {
            let aggregate = Arc::make_mut(aggregate);
            let others = [&mut aggregate.returns, &mut aggregate.state_type];
            for ty in aggregate.args.iter_mut().chain(others) {
                *ty = ty.with_updated_udt(udt);
            }
        }
    }
}
