//! A scalar function with one of its signatures: [`NativeFunction`]; names of functions, operators and casts.

use std::sync::Arc;

use cql_syntax::ast::FunctionName;
use types::CqlType;
use types::arithmetic::Operator;
use types::compat::Assignment;

use crate::env::EvalEnv;
use crate::error::PlanError;
use crate::user;

/// An argument of a call before it is planned: a term or a selector.
pub trait Argument {
    /// Tests if it fits a parameter's type.
    fn test(&self, ty: &CqlType) -> Assignment;
    /// Its type, when it has exactly one (`getExactTypeIfKnown`).
    fn exact_type(&self) -> Option<CqlType>;
    /// A type that can hold it (`getCompatibleTypeIfKnown`).
    fn compatible_type(&self) -> Option<CqlType> {
        self.exact_type()
    }
    /// Its text in messages.
    fn text(&self) -> String;
    /// A bare bind marker.
    fn is_marker(&self) -> bool {
        false
    }
    /// Number of elements of a `[…]` literal.
    fn vector_dimension(&self) -> Option<u32> {
        None
    }
}

/// Arguments of a call as bytes; `None` is null.
pub type Args<'a> = [Option<&'a [u8]>];

pub(crate) type Eval =
    fn(&NativeFunction, &Args<'_>, &EvalEnv<'_>) -> Result<Option<Vec<u8>>, PlanError>;

/// One native function with the types of one of its signatures.
#[derive(Clone, Debug)]
pub struct NativeFunction {
    /// Name without keyspace.
    pub name: Arc<str>,
    /// Parameter types.
    pub args: Vec<CqlType>,
    /// Type of the result.
    pub returns: CqlType,
    /// Gives the same for the same arguments.
    pub pure: bool,
    /// Its signature was built from the types of the arguments.
    pub from_factory: bool,
    /// Keyspace and definition of a user's function or aggregate.
    pub(crate) keyspace: Option<Arc<str>>,
    pub(crate) routine: Option<user::Routine>,
    /// The code of a user's function or aggregate, once it was picked.
    pub callee: Option<user::Callee>,
    pub(crate) eval: Eval,
}

impl NativeFunction {
    pub(crate) fn new(
        name: &str,
        args: &[CqlType],
        returns: CqlType,
        eval: Eval,
    ) -> NativeFunction {
        NativeFunction {
            name: Arc::from(name),
            args: args.to_vec(),
            returns,
            pure: true,
            from_factory: false,
            keyspace: None,
            routine: None,
            callee: None,
            eval,
        }
    }

    pub(crate) fn made(
        name: &str,
        args: &[CqlType],
        returns: CqlType,
        eval: Eval,
    ) -> NativeFunction {
        NativeFunction { from_factory: true, ..NativeFunction::new(name, args, returns, eval) }
    }

    /// `system.name`, or with the keyspace of a user's function.
    pub fn full_name(&self) -> String {
        format!("{}.{}", self.keyspace(), self.name)
    }

    /// Its keyspace.
    pub fn keyspace(&self) -> &str {
        self.keyspace.as_deref().unwrap_or("system")
    }

    /// Returns true for a user's function or aggregate.
    pub fn is_users(&self) -> bool {
        self.routine.is_some()
    }

    /// Returns true for a user's aggregate.
    pub fn is_aggregate(&self) -> bool {
        matches!(self.routine, Some(user::Routine::Aggregate(_)))
    }

    /// The result for arguments that are valid for the parameters' types.
    ///
    /// # Errors
    /// The function cannot be computed for these arguments.
    pub fn eval(&self, args: &Args<'_>, env: &EvalEnv<'_>) -> Result<Option<Vec<u8>>, PlanError> {
        (self.eval)(self, args, env)
    }

    /// The name of a selected column: `system.name(a, b)`, `a + b`, `-a`, `cast(a as int)`.
    pub fn column_name(&self, args: &[String]) -> String {
        let first = args.first().map_or("", String::as_str);
        if let Some(op) = operator_of(&self.name) {
            return format!("{first} {} {}", op.symbol(), args.get(1).map_or("", String::as_str));
        }
        if &*self.name == NEGATE {
            return format!("-{first}");
        }
        if self.name.starts_with(CAST) {
            return format!("cast({first} as {})", self.returns);
        }
        format!("{}({})", self.full_name(), args.join(", "))
    }

    /// `system.name : (types) -> type`, as messages list signatures.
    pub(crate) fn signature(&self) -> String {
        self.partial_signature(&[])
    }

    /// The same, with `(constant)` after the types of arguments that are constants.
    pub fn partial_signature(&self, constants: &[bool]) -> String {
        let args: Vec<String> = self
            .args
            .iter()
            .enumerate()
            .map(|(index, ty)| {
                let name = ty.to_cql_name();
                // Tuples are printed without `frozen<>` here.
                let inner = match ty {
                    CqlType::Tuple(_) => {
                        name.strip_prefix("frozen<").and_then(|n| n.strip_suffix('>'))
                    }
                    _ => None,
                };
                let constant = constants.get(index).copied().unwrap_or(false);
                let suffix = if constant { "(constant)" } else { "" };
                format!("{}{suffix}", inner.unwrap_or(&name))
            })
            .collect();
        let name = types::name::quote_identifier(&self.name);
        let keyspace = self.keyspace.as_deref().map(types::name::quote_identifier);
        let keyspace = keyspace.as_deref().unwrap_or("system");
        format!("{keyspace}.{name} : ({}) -> {}", args.join(", "), self.returns)
    }

    /// Argument at an index; null when it is missing or is an empty value without meaning.
    pub(crate) fn arg<'v>(&self, args: &Args<'v>, index: usize) -> Option<&'v [u8]> {
        let bytes = args.get(index).copied().flatten()?;
        let meaningless = bytes.is_empty()
            && self.args.get(index).is_some_and(CqlType::is_empty_value_meaningless);
        (!meaningless).then_some(bytes)
    }
}

pub(crate) const NEGATE: &str = "_negate";
pub(crate) const CAST: &str = "cast_as_";
const OPERATORS: [Operator; 5] =
    [Operator::Add, Operator::Subtract, Operator::Multiply, Operator::Divide, Operator::Modulo];

/// The function name of an operator.
pub fn operator_name(op: Operator) -> &'static str {
    match op {
        Operator::Add => "_add",
        Operator::Subtract => "_substract",
        Operator::Multiply => "_multiply",
        Operator::Divide => "_divide",
        Operator::Modulo => "_modulo",
    }
}

pub(crate) fn operator_of(name: &str) -> Option<Operator> {
    OPERATORS.into_iter().find(|op| operator_name(*op) == name)
}

/// The function name of a cast.
pub fn cast_name(to: &CqlType) -> String {
    format!("{CAST}{to}")
}

/// Number types in the order Cassandra registers operators for.
pub(crate) const NUMBERS: [CqlType; 9] = [
    CqlType::Tinyint,
    CqlType::Smallint,
    CqlType::Int,
    CqlType::Bigint,
    CqlType::Float,
    CqlType::Double,
    CqlType::Decimal,
    CqlType::Varint,
    CqlType::Counter,
];

/// `[keyspace.]name` for messages.
pub fn plain_name(name: &FunctionName) -> String {
    match &name.keyspace {
        Some(keyspace) => format!("{}.{}", keyspace.text, name.name.text),
        None => name.name.text.clone(),
    }
}

/// `[keyspace.]name` with quotes where needed.
pub fn name_text(name: &FunctionName) -> String {
    match &name.keyspace {
        Some(keyspace) => format!("{}.{}", keyspace.to_cql(), name.name.to_cql()),
        None => name.name.to_cql(),
    }
}

/// The name when it can mean a native function.
pub(crate) fn native_name(name: &FunctionName) -> Option<&str> {
    match &name.keyspace {
        Some(keyspace) if keyspace.text != "system" => None,
        _ => Some(&name.name.text),
    }
}

/// Returns true for the name of the function that gives the token of a key.
pub fn is_token(name: &FunctionName) -> bool {
    native_name(name) == Some("token")
}

/// Returns true for the name of a native aggregate.
pub fn is_aggregate(name: &FunctionName) -> bool {
    native_name(name).is_some_and(|n| matches!(n, "count" | "min" | "max" | "sum" | "avg"))
}
