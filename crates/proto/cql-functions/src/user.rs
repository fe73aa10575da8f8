//! User functions: which of them a call may mean, their compiled code, their calls.
//!
//! Owns: the compiled functions of a shard ([`UserFunctions`]), bounds of calls. Never: the definitions
//! (`schema`), the machine that runs them (`udf`).

use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::Arc;

use schema::{Keyspace, Schema, UserAggregate, UserFunction};
use stdx::FixedMap;
use types::CqlType;
pub use udf::Limits as FunctionLimits;
use udf::{Language, Limits, NoLanguage};

use crate::env::EvalEnv;
use crate::error::PlanError;
use crate::native::{Args, NativeFunction};

/// Error while `user_defined_functions_enabled` is false, in Cassandra's words.
pub const DISABLED: &str = "User-defined functions are disabled in cassandra.yaml - set \
                            user_defined_functions_enabled=true to enable";
/// The language that every build has.
pub const LANGUAGE: &str = "wasm";
/// Most compiled functions that a shard keeps; beyond it all are compiled again when they are needed.
const COMPILED_MAX: usize = 500;
/// Fuel that the calls of one SELECT may use together, so that they cannot block a shard for long.
pub const FUEL_PER_REQUEST: u64 = 1_000_000_000;

/// A function or an aggregate of a user's.
#[derive(Clone, Debug, PartialEq)]
pub enum Routine {
    /// A scalar function.
    Function(Arc<UserFunction>),
    /// An aggregate.
    Aggregate(Arc<UserAggregate>),
}

impl Routine {
    /// Its keyspace.
    pub fn keyspace(&self) -> &Arc<str> {
        match self {
            Routine::Function(f) => &f.keyspace,
            Routine::Aggregate(a) => &a.keyspace,
        }
    }

    /// Its name.
    pub fn name(&self) -> &Arc<str> {
        match self {
            Routine::Function(f) => &f.name,
            Routine::Aggregate(a) => &a.name,
        }
    }

    /// Types of its arguments.
    pub fn args(&self) -> &[CqlType] {
        match self {
            Routine::Function(f) => &f.args,
            Routine::Aggregate(a) => &a.args,
        }
    }

    /// Returns true if the schema still has it unchanged.
    pub fn is_in(&self, schema: &Schema) -> bool {
        let Some(keyspace) = schema.keyspace(self.keyspace()) else { return false };
        match self {
            Routine::Function(f) => {
                keyspace.function(&f.name, &f.args).is_some_and(|now| same(now, f))
            }
            Routine::Aggregate(a) => {
                keyspace.aggregate(&a.name, &a.args).is_some_and(|now| same(now, a))
            }
        }
    }
}

fn same<T: PartialEq>(left: &Arc<T>, right: &Arc<T>) -> bool {
    Arc::ptr_eq(left, right) || left == right
}

/// A function with its code.
#[derive(Clone, Debug)]
pub struct Callable {
    /// Its definition.
    pub definition: Arc<UserFunction>,
    code: udf::Function,
    limits: Limits,
}

impl Callable {
    /// Calls it, on the account of the request.
    pub fn call(&self, args: &Args<'_>, env: &EvalEnv<'_>) -> Result<Option<Vec<u8>>, PlanError> {
        let account = env.uuids.function_fuel();
        let given = account.get().unwrap_or(u64::MAX).min(self.limits.fuel);
        let mut left = given;
        let result = self.code.call(args, &mut left);
        if let Some(all) = account.get() {
            account.set(Some(all.saturating_sub(given.saturating_sub(left))));
        }
        result.map_err(|error| failure(&self.definition, &error.to_string()))
    }

    /// Like [`Callable::call`]; an empty value of a type that gives it no meaning is null.
    pub fn call_with_empties(
        &self,
        args: &Args<'_>,
        env: &EvalEnv<'_>,
    ) -> Result<Option<Vec<u8>>, PlanError> {
        let args: Vec<Option<&[u8]>> = args
            .iter()
            .zip(&self.definition.args)
            .map(|(arg, ty)| arg.filter(|b| !b.is_empty() || !ty.is_empty_value_meaningless()))
            .collect();
        self.call(&args, env)
    }
}

fn failure(function: &UserFunction, detail: &str) -> PlanError {
    let types: Vec<String> = function.args.iter().map(CqlType::to_cql_name).collect();
    let text = format!(
        "execution of '{}.{}[{}]' failed: {detail}",
        function.keyspace,
        function.name,
        types.join(", ")
    );
    PlanError::user_function_failure(&function.keyspace, &function.name, types, text)
}

/// An aggregate with the code of its functions.
#[derive(Clone, Debug)]
pub struct CallableAggregate {
    /// Its definition.
    pub definition: Arc<UserAggregate>,
    state: Callable,
    last: Option<Callable>,
}

impl CallableAggregate {
    /// The state after a row. Source: `UDAggregate.newAggregate`.
    pub fn add(
        &self,
        state: &mut Option<Vec<u8>>,
        args: &Args<'_>,
        env: &EvalEnv<'_>,
    ) -> Result<(), PlanError> {
        let nulls = self.state.definition.called_on_null_input;
        let is_null = |(arg, ty): (&Option<&[u8]>, &CqlType)| {
            arg.is_none_or(|b| b.is_empty() && ty.is_empty_value_meaningless())
        };
        // A row with a null leaves the state as it is.
        if !nulls && args.iter().zip(&self.definition.args).any(is_null) {
            return Ok(());
        }
        let before = state.take();
        let mut all = vec![before.as_deref()];
        all.extend(args);
        *state = self.state.call_with_empties(&all, env)?;
        Ok(())
    }

    /// The result of the last state.
    pub fn result(
        &self,
        state: Option<&[u8]>,
        env: &EvalEnv<'_>,
    ) -> Result<Option<Vec<u8>>, PlanError> {
        match &self.last {
            Some(last) => last.call(&[state], env),
            None => Ok(state.map(<[u8]>::to_vec)),
        }
    }
}

/// A user's function as the candidate of a call.
#[derive(Clone, Debug)]
pub enum Callee {
    /// A scalar function.
    Function(Callable),
    /// An aggregate.
    Aggregate(CallableAggregate),
}

/// Compiled functions of a shard, and the rules for them.
pub struct UserFunctions {
    enabled: bool,
    limits: Limits,
    compiled: RefCell<FixedMap<String, Callable>>,
    /// Functions that the statement being planned calls.
    used: RefCell<Vec<Routine>>,
    /// Functions that the masks of the columns in its result call.
    masks: RefCell<Vec<Routine>>,
    /// Number of compilations.
    compilations: Cell<u64>,
}

impl fmt::Debug for UserFunctions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserFunctions")
            .field("enabled", &self.enabled)
            .field("compiled", &self.compiled.borrow().len())
            .finish_non_exhaustive()
    }
}

impl UserFunctions {
    /// With none compiled.
    pub fn new(limits: Limits) -> UserFunctions {
        UserFunctions {
            enabled: true,
            limits,
            compiled: RefCell::default(),
            used: RefCell::default(),
            masks: RefCell::default(),
            compilations: Cell::new(0),
        }
    }

    /// Creates the functions of a node without `user_defined_functions_enabled`.
    pub fn disabled(limits: Limits) -> UserFunctions {
        UserFunctions { enabled: false, ..UserFunctions::new(limits) }
    }

    /// # Errors
    /// User functions are switched off.
    pub fn check_enabled(&self) -> Result<(), PlanError> {
        if self.enabled { Ok(()) } else { Err(PlanError::invalid(DISABLED)) }
    }

    /// Number of compilations.
    pub fn compilations(&self) -> u64 {
        self.compilations.get()
    }

    /// Checks that a definition is a function.
    ///
    /// # Errors
    /// Its body does not compile or does not fit the definition.
    pub fn check(&self, function: &UserFunction) -> Result<(), PlanError> {
        self.compile(function).map(drop)
    }

    fn compile(&self, function: &UserFunction) -> Result<udf::Function, PlanError> {
        let language = language(&function.language)?;
        self.compilations.set(self.compilations.get() + 1);
        let signature = udf::Signature {
            name: function.name.to_string(),
            arg_names: function.arg_names.iter().map(ToString::to_string).collect(),
            args: function.args.clone(),
            returns: function.returns.clone(),
            called_on_null_input: function.called_on_null_input,
        };
        let compiled = udf::Function::compile(language, signature, &function.body, &self.limits);
        compiled.map_err(|error| {
            PlanError::invalid(format!(
                "Could not compile function '{}.{}' from {}: {error}",
                function.keyspace,
                function.name,
                language.title()
            ))
        })
    }

    /// A function with its code.
    ///
    /// # Errors
    /// Users' functions are switched off; it does not compile.
    pub fn callable(&self, definition: &Arc<UserFunction>) -> Result<Callable, PlanError> {
        self.check_enabled()?;
        let types: Vec<String> = definition.args.iter().map(CqlType::to_cql_name).collect();
        let key = format!("{}.{}({})", definition.keyspace, definition.name, types.join(","));
        if let Some(known) = self.compiled.borrow().get(&key)
            && same(&known.definition, definition)
        {
            return Ok(known.clone());
        }
        let code = self.compile(definition)?;
        let callable = Callable { definition: definition.clone(), code, limits: self.limits };
        let mut compiled = self.compiled.borrow_mut();
        if compiled.len() >= COMPILED_MAX {
            compiled.clear();
        }
        compiled.insert(key, callable.clone());
        Ok(callable)
    }

    /// An aggregate of a keyspace with the code of its functions.
    ///
    /// # Errors
    /// Those of [`UserFunctions::callable`]; one of its functions was dropped.
    pub fn aggregate(
        &self,
        keyspace: &Keyspace,
        definition: &Arc<UserAggregate>,
    ) -> Result<CallableAggregate, PlanError> {
        let find = |name: &str, args: &[CqlType]| match keyspace.function(name, args) {
            Some(function) => self.callable(function),
            None => Err(PlanError::invalid(format!(
                "function {name} of aggregate {}.{} does not exist",
                definition.keyspace, definition.name
            ))),
        };
        let state = find(&definition.state_function, &definition.state_args())?;
        let last = match &definition.final_function {
            Some(name) => Some(find(name, std::slice::from_ref(&definition.state_type))?),
            None => None,
        };
        Ok(CallableAggregate { definition: definition.clone(), state, last })
    }

    /// Begins with a statement that calls nothing yet.
    pub fn begin(&self) {
        self.used.borrow_mut().clear();
        self.masks.borrow_mut().clear();
    }

    /// Takes the functions that the statement calls.
    pub fn take_used(&self) -> Vec<Routine> {
        std::mem::take(&mut *self.used.borrow_mut())
    }

    /// Takes the functions that the masks of the columns in its result call.
    pub fn take_masks(&self) -> Vec<Routine> {
        std::mem::take(&mut *self.masks.borrow_mut())
    }
}

/// Scope of the lookup of users' functions.
#[derive(Clone, Copy)]
pub struct FunctionScope<'a> {
    /// Their definitions.
    pub schema: &'a Schema,
    /// Their code; `None`: they are switched off.
    pub functions: Option<&'a UserFunctions>,
}

/// The language of a name.
///
/// # Errors
/// Functions in it cannot be created; the text names the alternatives.
pub fn language(name: &str) -> Result<Language, PlanError> {
    let text = match Language::of(name) {
        Ok(language) => return Ok(language),
        Err(NoLanguage::NotBuilt(feature)) => format!(
            "Functions in language {name} are not in this build of Helenus: build it with the feature \
             {feature} (cargo build --release --features {feature}) on every node, or use LANGUAGE \
             {LANGUAGE}"
        ),
        Err(NoLanguage::Unknown) => format!(
            "Functions in language {name} are not supported by this version of Helenus: write them in \
             Rust, C or AssemblyScript, compile them to WebAssembly and use LANGUAGE {LANGUAGE}"
        ),
    };
    Err(PlanError::invalid(text))
}

fn eval(
    f: &NativeFunction,
    args: &Args<'_>,
    env: &EvalEnv<'_>,
) -> Result<Option<Vec<u8>>, PlanError> {
    match &f.callee {
        Some(Callee::Function(callable)) => callable.call_with_empties(args, env),
        _ => Err(PlanError::invalid(format!("{} is no scalar function", f.full_name()))),
    }
}

/// All functions and aggregates of a name in a keyspace, without code.
pub(crate) fn candidates(keyspace: &Keyspace, name: &str, out: &mut Vec<NativeFunction>) {
    let mut push = |routine: Routine, returns: &CqlType| {
        out.push(NativeFunction {
            pure: false,
            keyspace: Some(keyspace.name.clone()),
            routine: Some(routine.clone()),
            ..NativeFunction::new(name, routine.args(), returns.clone(), eval)
        });
    };
    for function in keyspace.functions_named(name) {
        push(Routine::Function(function.clone()), &function.returns);
    }
    for aggregate in keyspace.aggregates_named(name) {
        push(Routine::Aggregate(aggregate.clone()), &aggregate.returns);
    }
}

/// Returns the function that is a column's mask, with its code. It is recorded separately, because
/// no permission is needed to see its result.
///
/// # Errors
/// It cannot be called.
pub(crate) fn mask(
    keyspace: &str,
    name: &str,
    args: &[CqlType],
    scope: FunctionScope<'_>,
) -> Result<NativeFunction, PlanError> {
    let functions = scope.functions.ok_or_else(|| PlanError::invalid(DISABLED))?;
    let found = scope.schema.keyspace(keyspace).and_then(|keyspace| keyspace.function(name, args));
    let definition = found.ok_or_else(|| {
        PlanError::invalid(format!("function {keyspace}.{name} of a mask does not exist"))
    })?;
    let routine = Routine::Function(definition.clone());
    let mut masks = functions.masks.borrow_mut();
    if !masks.contains(&routine) {
        masks.push(routine.clone());
    }
    let callable = functions.callable(definition)?;
    Ok(NativeFunction {
        pure: false,
        keyspace: Some(definition.keyspace.clone()),
        routine: Some(routine),
        callee: Some(Callee::Function(callable)),
        ..NativeFunction::new(name, args, definition.returns.clone(), eval)
    })
}

/// Puts the code into the function that was picked, and notes that the statement calls it.
pub(crate) fn load(
    function: &mut NativeFunction,
    functions: Option<&UserFunctions>,
    schema: &Schema,
) -> Result<(), PlanError> {
    let Some(routine) = &function.routine else { return Ok(()) };
    let functions = functions.ok_or_else(|| PlanError::invalid(DISABLED))?;
    function.callee = Some(match routine {
        Routine::Function(definition) => Callee::Function(functions.callable(definition)?),
        Routine::Aggregate(definition) => match schema.keyspace(&definition.keyspace) {
            Some(keyspace) => Callee::Aggregate(functions.aggregate(keyspace, definition)?),
            None => return Err(PlanError::invalid("the keyspace of the aggregate is gone")),
        },
    });
    let mut used = functions.used.borrow_mut();
    if !used.contains(routine) {
        used.push(routine.clone());
    }
    Ok(())
}
