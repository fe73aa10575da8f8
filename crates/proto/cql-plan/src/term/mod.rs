//! Terms: literals, bind markers, collections, function calls and arithmetic as typed values.
//!
//! [`plan_term`] types a term by its receiver and folds constants; [`PlannedTerm::bind`] gives the
//! bytes, validated against the receiver's type. Source of every rule and text: Cassandra 5.0's
//! `cql3.Constants`, `Lists`, `Sets`, `Maps`, `Tuples`, `UserTypes`, `Vectors`, `TypeCast`,
//! `functions.FunctionCall`.

mod bind;
mod binds;
mod call;
mod relation;

use std::sync::Arc;

use cql_syntax::ast::{BindMarker, Ident, Literal, LiteralKind, RawType, Term};
use types::arithmetic::Operator;
use types::compat::Assignment;
use types::{Comparator, CqlType, Decimal, TypeError, UdtType};

use crate::context::PlanContext;
use crate::error::PlanError;
use crate::functions::{self, NativeFunction};
use crate::java_hash;
use crate::raw_type;

pub(crate) use bind::sorted;
pub use relation::{PlannedIn, PlannedTuple, PlannedTupleIn, plan_in, plan_tuple, plan_tuple_in};

pub use binds::{BindSpec, Binds};

use bind::fold;
pub(crate) use call::resolve_behind;
use call::{Callee, call_parts, plan_call, resolve_call};

/// Target of a term: its type and name. The name is used for the bind marker and in error texts.
#[derive(Clone, Debug)]
pub struct Receiver<'a> {
    /// Keyspace, in which functions and user types of the term are looked up, too.
    pub keyspace: &'a str,
    /// Table.
    pub table: &'a str,
    /// Column name, or what Cassandra calls it: `value(c)`, `in(c)`, `[ttl]`.
    pub name: Arc<str>,
    /// Type.
    pub ty: CqlType,
}

impl<'a> Receiver<'a> {
    /// The receiver of a column's value.
    pub fn column(table: &'a schema::Table, column: &schema::Column) -> Receiver<'a> {
        Receiver {
            keyspace: &table.keyspace,
            table: &table.name,
            name: column.name.clone(),
            ty: column.ty.clone(),
        }
    }

    /// Another receiver of the same table.
    pub fn derive(&self, name: impl Into<Arc<str>>, ty: CqlType) -> Receiver<'a> {
        Receiver { keyspace: self.keyspace, table: self.table, name: name.into(), ty }
    }

    /// Elements of a list, set or vector, values of a map.
    pub fn value_of(&self, ty: &CqlType) -> Receiver<'a> {
        self.derive(format!("value({})", self.name), ty.clone())
    }

    /// Keys of a map.
    pub fn key_of(&self, ty: &CqlType) -> Receiver<'a> {
        self.derive(format!("key({})", self.name), ty.clone())
    }

    /// A field of a user type.
    pub fn field_of(&self, field: &str, ty: &CqlType) -> Receiver<'a> {
        self.derive(format!("{}.{field}", self.name), ty.clone())
    }

    /// A component of a tuple.
    fn component_of(&self, index: usize, ty: &CqlType) -> Receiver<'a> {
        self.derive(format!("{}[{index}]", self.name), ty.clone())
    }

    /// `l[index]` of a list.
    pub(crate) fn index_of(&self, column: &schema::Column) -> Receiver<'a> {
        self.derive(format!("idx({})", column.name), CqlType::Int)
    }

    /// The list after `IN`, as a marker.
    pub fn in_list(&self) -> Receiver<'a> {
        self.derive(format!("in({})", self.name), CqlType::list(self.ty.clone(), true))
    }
}

/// A typed term. Constants are folded to their bytes.
#[derive(Clone, Debug)]
pub enum PlannedTerm {
    /// A value.
    Constant(Arc<[u8]>),
    /// Null.
    Null,
    /// A column that INSERT JSON DEFAULT UNSET leaves out.
    Unset,
    /// A marker.
    Bind {
        /// Index of the marker in the statement.
        index: u16,
        /// Type of the value.
        ty: CqlType,
    },
    /// `[…]` of a list with something in it that is not constant.
    List(Vec<PlannedTerm>),
    /// `{…}` of a set, with the order of the elements.
    Set(Vec<PlannedTerm>, Comparator),
    /// `{k: v}`, with the order of the keys.
    Map(Vec<(PlannedTerm, PlannedTerm)>, Comparator),
    /// `(…)`.
    Tuple(Vec<PlannedTerm>),
    /// `{field: v}`, one term per field of the type, in order.
    Udt(Vec<PlannedTerm>, Arc<UdtType>),
    /// `[…]` of a vector: elements, element type and dimension.
    Vector(Vec<PlannedTerm>, Arc<CqlType>, u32),
    /// A call, an operator, a cast.
    Call(Box<PlannedCall>),
}

/// A function with its arguments.
#[derive(Clone, Debug)]
pub struct PlannedCall {
    /// The function.
    pub function: NativeFunction,
    /// Its arguments, in their number.
    pub args: Vec<PlannedTerm>,
    /// Where its result stands among the values of an execution that has evaluated it, see
    /// [`crate::plan::PlanInputs::evaluate_calls`]; `None` for functions that give the same for the same arguments.
    pub slot: Option<u16>,
}

/// Converts a value error to the client's error.
pub(crate) fn invalid_value(error: TypeError) -> PlanError {
    PlanError::from(error)
}

/// Types a term by its receiver, and sets the receivers of its bind markers.
///
/// # Errors
/// The term cannot be assigned to the receiver; an unknown function or type; all with Cassandra's
/// texts.
pub fn plan_term(
    term: &Term,
    receiver: &Receiver<'_>,
    cx: &PlanContext<'_>,
    binds: &mut Binds,
) -> Result<PlannedTerm, PlanError> {
    match term {
        Term::Literal(literal) => plan_literal(literal, receiver, cx),
        Term::Null(_) => {
            if receiver.ty.is_counter() {
                return Err(PlanError::invalid(
                    "Invalid null value for counter increment/decrement",
                ));
            }
            Ok(PlannedTerm::Null)
        }
        Term::Bind(marker) => plan_marker(marker, receiver, binds),
        Term::List(elements, _) => match &receiver.ty {
            CqlType::Vector { element, dimension } => {
                plan_vector(elements, element, *dimension, receiver, cx, binds)
            }
            CqlType::List { element, .. } => {
                let element = receiver.value_of(element);
                check_elements("list", elements, &element, receiver, cx)?;
                let planned = plan_elements("list", elements, &element, receiver, cx, binds)?;
                fold(PlannedTerm::List(planned), cx)
            }
            other => Err(not_array(other)),
        },
        Term::Set(elements, _) => match &receiver.ty {
            CqlType::Map { .. } if elements.is_empty() => Ok(constant(vec![0; 4])),
            CqlType::Set { element, .. } => {
                let order = Comparator::for_type(element);
                let element = receiver.value_of(element);
                check_elements("set", elements, &element, receiver, cx)?;
                let planned = plan_elements("set", elements, &element, receiver, cx, binds)?;
                fold(PlannedTerm::Set(planned, order), cx)
            }
            other => Err(PlanError::invalid(format!(
                "Invalid set literal for {} of type {other}",
                receiver.name
            ))),
        },
        Term::Map(entries, _) => plan_map(entries, receiver, cx, binds),
        Term::Udt(fields, _) => plan_udt(fields, receiver, cx, binds),
        Term::Tuple(elements, _) => plan_tuple_literal(elements, receiver, cx, binds),
        Term::FunctionCall { name, args, .. } => {
            let args: Vec<&Term> = args.iter().collect();
            plan_call(&Callee::Named(name), &args, receiver, cx, binds)
        }
        Term::Negate(inner, _) => {
            plan_call(&Callee::Negate, &[inner.as_ref()], receiver, cx, binds)
        }
        Term::Binary { op, left, right, .. } => {
            plan_call(&Callee::Operator(operator(*op)), &[left, right], receiver, cx, binds)
        }
        Term::Cast { term, ty, .. } => {
            plan_call(&Callee::Cast(*ty), &[term.as_ref()], receiver, cx, binds)
        }
        Term::TypeHint { ty, term: inner, .. } => {
            check_hint(term, inner, ty, receiver, cx)?;
            plan_term(inner, receiver, cx, binds)
        }
    }
}

fn plan_tuple_literal(
    elements: &[Term],
    receiver: &Receiver<'_>,
    cx: &PlanContext<'_>,
    binds: &mut Binds,
) -> Result<PlannedTerm, PlanError> {
    match (tuple_types(&receiver.ty), elements) {
        (Some(types), _) => {
            check_tuple(elements, &types, receiver, cx)?;
            let mut planned = Vec::with_capacity(elements.len());
            for (i, (term, ty)) in elements.iter().zip(types.iter()).enumerate() {
                planned.push(plan_term(term, &receiver.component_of(i, ty), cx, binds)?);
            }
            fold(PlannedTerm::Tuple(planned), cx)
        }
        (None, [one]) => plan_term(one, receiver, cx, binds),
        (None, _) => Err(not_tuple(receiver, &receiver.ty)),
    }
}

/// A type in parentheses before a term: the term fits the type, and the type what receives it.
fn check_hint(
    term: &Term,
    inner: &Term,
    ty: &RawType,
    receiver: &Receiver<'_>,
    cx: &PlanContext<'_>,
) -> Result<(), PlanError> {
    let hinted = resolve_hint(ty, receiver.keyspace, cx)?;
    let hint = receiver.derive(text_of(term), hinted.clone());
    if !test(inner, &hint, cx).is_assignable() {
        return Err(PlanError::invalid(format!(
            "Cannot cast value {} to type {ty}",
            text_of(inner)
        )));
    }
    if !hint_fits(&hinted, &receiver.ty).is_assignable() {
        return Err(PlanError::invalid(format!(
            "Cannot assign value {} to {} of type {}",
            text_of(term),
            receiver.name,
            receiver.ty
        )));
    }
    Ok(())
}

/// How a term fits a type. Source: `testAssignment` of Cassandra's raw terms.
pub fn test_assignment(term: &Term, receiver: &Receiver<'_>, cx: &PlanContext<'_>) -> Assignment {
    test(term, receiver, cx)
}

/// A term as text, as Cassandra's messages show it.
pub fn text_of(term: &Term) -> String {
    fn list(terms: &[Term], open: char, close: char) -> String {
        let texts: Vec<String> = terms.iter().map(text_of).collect();
        format!("{open}{}{close}", texts.join(", "))
    }
    match term {
        Term::Literal(literal) => match &literal.kind {
            LiteralKind::String(text) => format!("'{text}'"),
            _ => literal.written(),
        },
        Term::Null(_) => "NULL".to_owned(),
        Term::Bind(_) => "?".to_owned(),
        Term::List(elements, _) => list(elements, '[', ']'),
        Term::Set(elements, _) => list(elements, '{', '}'),
        Term::Tuple(elements, _) => list(elements, '(', ')'),
        Term::Map(entries, _) => {
            let texts: Vec<String> =
                entries.iter().map(|(k, v)| format!("{}: {}", text_of(k), text_of(v))).collect();
            format!("{{{}}}", texts.join(", "))
        }
        Term::Udt(fields, _) => {
            let mut fields: Vec<_> = fields.iter().collect();
            // In the order of a hash map of their names.
            let slots = java_hash::slots_of(fields.len());
            let hash = |name: &str| java_hash::hash(name.as_bytes());
            fields.sort_by_key(|(name, _)| java_hash::slot(hash(&name.text), slots));
            let texts: Vec<String> =
                fields.iter().map(|(k, v)| format!("{}: {}", k.to_cql(), text_of(v))).collect();
            format!("{{{}}}", texts.join(", "))
        }
        Term::FunctionCall { name, args, .. } => {
            format!("{}{}", functions::name_text(name), list(args, '(', ')'))
        }
        Term::Negate(inner, _) => format!("system.\"_negate\"({})", text_of(inner)),
        Term::Binary { op, left, right, .. } => format!(
            "system.\"{}\"({}, {})",
            functions::operator_name(operator(*op)),
            text_of(left),
            text_of(right)
        ),
        Term::Cast { term, ty, .. } => {
            let to = raw_type::native(*ty);
            format!("system.{}({})", functions::cast_name(&to), text_of(term))
        }
        Term::TypeHint { ty, term, .. } => format!("({ty}){}", text_of(term)),
    }
}

pub(crate) fn operator(op: cql_syntax::ast::ArithmeticOp) -> Operator {
    use cql_syntax::ast::ArithmeticOp;
    match op {
        ArithmeticOp::Add => Operator::Add,
        ArithmeticOp::Subtract => Operator::Subtract,
        ArithmeticOp::Multiply => Operator::Multiply,
        ArithmeticOp::Divide => Operator::Divide,
        ArithmeticOp::Modulo => Operator::Modulo,
    }
}

fn constant(bytes: Vec<u8>) -> PlannedTerm {
    PlannedTerm::Constant(Arc::from(bytes))
}

fn not_array(ty: &CqlType) -> PlanError {
    PlanError::invalid(format!(
        "Unexpected receiver type '{ty}'; only list and vector are expected"
    ))
}

fn not_tuple(receiver: &Receiver<'_>, ty: &CqlType) -> PlanError {
    PlanError::invalid(format!("Invalid tuple type literal for {} of type {ty}", receiver.name))
}

pub(crate) fn resolve_hint(
    ty: &RawType,
    keyspace: &str,
    cx: &PlanContext<'_>,
) -> Result<CqlType, PlanError> {
    let none = std::collections::BTreeMap::new();
    let types = cx.schema.keyspace(keyspace).map_or(&none, |k| &k.types);
    raw_type::resolve(ty, keyspace, types)
}

fn hint_fits(hinted: &CqlType, receiver: &CqlType) -> Assignment {
    if hinted == receiver {
        Assignment::Exact
    } else if receiver.is_value_compatible_with(hinted) {
        Assignment::Weak
    } else {
        Assignment::No
    }
}

/// Name of a literal's kind in messages.
fn kind_name(kind: &LiteralKind) -> &'static str {
    match kind {
        LiteralKind::String(_) => "STRING",
        LiteralKind::Integer(_) => "INTEGER",
        LiteralKind::Float(_) => "FLOAT",
        LiteralKind::Boolean(_) => "BOOLEAN",
        LiteralKind::Duration(_) => "DURATION",
        LiteralKind::Uuid(_) => "UUID",
        LiteralKind::Hex(_) => "HEX",
    }
}

/// The type a literal has without any hint (`getPreferedTypeFor`).
pub fn literal_type(literal: &Literal) -> CqlType {
    match &literal.kind {
        LiteralKind::String(text) if text.is_ascii() => CqlType::Ascii,
        LiteralKind::String(_) => CqlType::Text,
        LiteralKind::Integer(text) => {
            if text.parse::<i32>().is_ok() {
                CqlType::Int
            } else if text.parse::<i64>().is_ok() {
                CqlType::Bigint
            } else {
                CqlType::Varint
            }
        }
        LiteralKind::Float(text) => match (Decimal::parse(text), text.parse::<f64>()) {
            (Some(exact), Ok(double))
                if Decimal::from_f64(double).is_none_or(|d| d.compare(&exact).is_ne()) =>
            {
                CqlType::Decimal
            }
            _ => CqlType::Double,
        },
        LiteralKind::Boolean(_) => CqlType::Boolean,
        LiteralKind::Duration(_) => CqlType::Duration,
        LiteralKind::Uuid(uuid) if uuid.get_version_num() == 1 => CqlType::Timeuuid,
        LiteralKind::Uuid(_) => CqlType::Uuid,
        // Cassandra returns tinyint here, which lets a hex constant into a tinyint column
        // unchecked.
        LiteralKind::Hex(_) => CqlType::Blob,
    }
}

/// Tests if a literal fits a type.
pub fn test_literal(literal: &Literal, ty: &CqlType) -> Assignment {
    use CqlType as T;
    match ty {
        T::List { .. } | T::Set { .. } | T::Map { .. } | T::Udt(_) | T::Vector { .. } => {
            return Assignment::No;
        }
        T::Custom(_) | T::Tuple(_) => return Assignment::Weak,
        _ => {}
    }
    if *ty == literal_type(literal) {
        return Assignment::Exact;
    }
    let fits = match &literal.kind {
        LiteralKind::String(_) => {
            matches!(ty, T::Ascii | T::Text | T::Inet | T::Date | T::Time | T::Timestamp)
        }
        LiteralKind::Integer(_) => matches!(
            ty,
            T::Bigint
                | T::Counter
                | T::Date
                | T::Decimal
                | T::Double
                | T::Duration
                | T::Float
                | T::Int
                | T::Smallint
                | T::Time
                | T::Timestamp
                | T::Tinyint
                | T::Varint
        ),
        LiteralKind::Uuid(_) => matches!(ty, T::Uuid | T::Timeuuid),
        LiteralKind::Float(_) => matches!(ty, T::Decimal | T::Double | T::Float),
        LiteralKind::Boolean(_) => matches!(ty, T::Boolean),
        LiteralKind::Hex(_) => matches!(ty, T::Blob),
        LiteralKind::Duration(_) => matches!(ty, T::Duration),
    };
    if fits { Assignment::Weak } else { Assignment::No }
}

fn plan_literal(
    literal: &Literal,
    receiver: &Receiver<'_>,
    cx: &PlanContext<'_>,
) -> Result<PlannedTerm, PlanError> {
    let ty = &receiver.ty;
    if !test_literal(literal, ty).is_assignable() {
        return Err(PlanError::invalid(format!(
            "Invalid {} constant ({}) for \"{}\" of type {ty}",
            kind_name(&literal.kind),
            literal.written(),
            receiver.name
        )));
    }
    let bytes = match (&literal.kind, ty) {
        (LiteralKind::Hex(digits), _) => {
            CqlType::Blob.from_string(digits).map_err(invalid_value)?
        }
        (_, CqlType::Counter) => {
            CqlType::Bigint.from_string(&literal.raw_text()).map_err(invalid_value)?
        }
        _ => ty.from_string_at(&literal.raw_text(), cx.now.millis()).map_err(invalid_value)?,
    };
    ty.validate(&bytes).map_err(invalid_value)?;
    Ok(constant(bytes))
}

fn plan_marker(
    marker: &BindMarker,
    receiver: &Receiver<'_>,
    binds: &mut Binds,
) -> Result<PlannedTerm, PlanError> {
    let index = u16::try_from(marker.index)
        .map_err(|_| PlanError::invalid("a statement has more than 65535 bind markers"))?;
    binds.set(marker.index, receiver);
    Ok(PlannedTerm::Bind { index, ty: receiver.ty.clone() })
}

/// Cassandra's check of a list or set literal before its elements are planned.
fn check_elements(
    what: &str,
    elements: &[Term],
    element: &Receiver<'_>,
    receiver: &Receiver<'_>,
    cx: &PlanContext<'_>,
) -> Result<(), PlanError> {
    match elements.iter().find(|e| !test(e, element, cx).is_assignable()) {
        None => Ok(()),
        Some(bad) => Err(PlanError::invalid(format!(
            "Invalid {what} literal for {}: value {} is not of type {}",
            receiver.name,
            text_of(bad),
            element.ty
        ))),
    }
}

fn no_markers(what: &str, receiver: &Receiver<'_>) -> PlanError {
    PlanError::invalid(format!(
        "Invalid {what} literal for {}: bind variables are not supported inside collection literals",
        receiver.name
    ))
}

fn plan_elements(
    what: &str,
    elements: &[Term],
    element: &Receiver<'_>,
    receiver: &Receiver<'_>,
    cx: &PlanContext<'_>,
    binds: &mut Binds,
) -> Result<Vec<PlannedTerm>, PlanError> {
    let mut planned = Vec::with_capacity(elements.len());
    for term in elements {
        let term = plan_term(term, element, cx, binds)?;
        if term.has_bind() {
            return Err(no_markers(what, receiver));
        }
        planned.push(term);
    }
    Ok(planned)
}

fn plan_vector(
    elements: &[Term],
    element_type: &Arc<CqlType>,
    dimension: u32,
    receiver: &Receiver<'_>,
    cx: &PlanContext<'_>,
    binds: &mut Binds,
) -> Result<PlannedTerm, PlanError> {
    if u32::try_from(elements.len()) != Ok(dimension) {
        return Err(PlanError::invalid(format!(
            "Invalid vector literal for {} of type {}; expected {dimension} elements, but given {}",
            receiver.name,
            receiver.ty,
            elements.len()
        )));
    }
    let element = receiver.value_of(element_type);
    check_elements("vector", elements, &element, receiver, cx)?;
    let mut planned = Vec::with_capacity(elements.len());
    for term in elements {
        planned.push(plan_term(term, &element, cx, binds)?);
    }
    fold(PlannedTerm::Vector(planned, element_type.clone(), dimension), cx)
}

fn plan_map(
    entries: &[(Term, Term)],
    receiver: &Receiver<'_>,
    cx: &PlanContext<'_>,
    binds: &mut Binds,
) -> Result<PlannedTerm, PlanError> {
    let CqlType::Map { key, value, .. } = &receiver.ty else {
        return Err(PlanError::invalid(format!(
            "Invalid map literal for {} of type {}",
            receiver.name, receiver.ty
        )));
    };
    let order = Comparator::for_type(key);
    let (key, value) = (receiver.key_of(key), receiver.value_of(value));
    for (k, v) in entries {
        for (what, term, receiver_of) in [("key", k, &key), ("value", v, &value)] {
            if !test(term, receiver_of, cx).is_assignable() {
                return Err(PlanError::invalid(format!(
                    "Invalid map literal for {}: {what} {} is not of type {}",
                    receiver.name,
                    text_of(term),
                    receiver_of.ty
                )));
            }
        }
    }
    let mut planned = Vec::with_capacity(entries.len());
    for (k, v) in entries {
        let entry = (plan_term(k, &key, cx, binds)?, plan_term(v, &value, cx, binds)?);
        if entry.0.has_bind() || entry.1.has_bind() {
            return Err(no_markers("map", receiver));
        }
        planned.push(entry);
    }
    fold(PlannedTerm::Map(planned, order), cx)
}

fn check_udt(
    fields: &[(Ident, Term)],
    receiver: &Receiver<'_>,
    cx: &PlanContext<'_>,
) -> Result<Arc<UdtType>, PlanError> {
    let CqlType::Udt(udt) = &receiver.ty else {
        return Err(PlanError::invalid(format!(
            "Invalid user type literal for {} of type {}",
            receiver.name, receiver.ty
        )));
    };
    for (name, ty) in &udt.fields {
        let Some((_, term)) = fields.iter().rfind(|(f, _)| f.text == *name) else { continue };
        if !test(term, &receiver.field_of(name, ty), cx).is_assignable() {
            return Err(PlanError::invalid(format!(
                "Invalid user type literal for {}: field {name} is not of type {ty}",
                receiver.name
            )));
        }
    }
    Ok(udt.clone())
}

fn plan_udt(
    fields: &[(Ident, Term)],
    receiver: &Receiver<'_>,
    cx: &PlanContext<'_>,
    binds: &mut Binds,
) -> Result<PlannedTerm, PlanError> {
    let udt = check_udt(fields, receiver, cx)?;
    let mut planned = Vec::with_capacity(udt.fields.len());
    for (name, ty) in &udt.fields {
        planned.push(match fields.iter().rfind(|(f, _)| f.text == *name) {
            None => PlannedTerm::Null,
            Some((_, term)) => plan_term(term, &receiver.field_of(name, ty), cx, binds)?,
        });
    }
    if let Some((unknown, _)) = fields.iter().find(|(f, _)| udt.field_position(&f.text).is_none()) {
        return Err(PlanError::invalid(format!(
            "Unknown field '{}' in value of user defined type {}",
            unknown.text, udt.name
        )));
    }
    fold(PlannedTerm::Udt(planned, udt), cx)
}

/// Component types of a tuple or user type: a tuple literal may stand for both, as in Cassandra.
fn tuple_types(ty: &CqlType) -> Option<Arc<[CqlType]>> {
    match ty {
        CqlType::Tuple(types) => Some(types.clone()),
        CqlType::Udt(udt) => Some(udt.fields.iter().map(|(_, ty)| ty.clone()).collect()),
        _ => None,
    }
}

fn check_tuple(
    elements: &[Term],
    types: &[CqlType],
    receiver: &Receiver<'_>,
    cx: &PlanContext<'_>,
) -> Result<(), PlanError> {
    for (i, term) in elements.iter().enumerate() {
        let Some(ty) = types.get(i) else {
            return Err(PlanError::invalid(format!(
                "Invalid tuple literal for {}: too many elements. Type {} expects {} but got {}",
                receiver.name,
                receiver.ty,
                types.len(),
                elements.len()
            )));
        };
        if !test(term, &receiver.component_of(i, ty), cx).is_assignable() {
            return Err(PlanError::invalid(format!(
                "Invalid tuple literal for {}: component {i} is not of type {ty}",
                receiver.name
            )));
        }
    }
    Ok(())
}

fn all(assignments: impl IntoIterator<Item = Assignment>) -> Assignment {
    let mut result = Assignment::Exact;
    for assignment in assignments {
        match assignment {
            Assignment::No => return Assignment::No,
            Assignment::Weak => result = Assignment::Weak,
            Assignment::Exact => {}
        }
    }
    result
}

fn weak_if(fits: bool) -> Assignment {
    if fits { Assignment::Weak } else { Assignment::No }
}

fn test(term: &Term, receiver: &Receiver<'_>, cx: &PlanContext<'_>) -> Assignment {
    let ty = &receiver.ty;
    match term {
        Term::Literal(literal) => test_literal(literal, ty),
        Term::Null(_) => weak_if(!ty.is_counter()),
        Term::Bind(_) => Assignment::Weak,
        Term::List(elements, _) => match ty {
            CqlType::List { .. } if elements.is_empty() => Assignment::Weak,
            CqlType::List { element, .. } => {
                let element = receiver.value_of(element);
                all(elements.iter().map(|e| test(e, &element, cx)))
            }
            CqlType::Vector { element, dimension }
                if u32::try_from(elements.len()) == Ok(*dimension) =>
            {
                let element = receiver.value_of(element);
                all(elements.iter().map(|e| test(e, &element, cx)))
            }
            _ => Assignment::No,
        },
        Term::Set(elements, _) => match ty {
            CqlType::Set { .. } | CqlType::Map { .. } if elements.is_empty() => Assignment::Weak,
            CqlType::Set { element, .. } => {
                let element = receiver.value_of(element);
                all(elements.iter().map(|e| test(e, &element, cx)))
            }
            _ => Assignment::No,
        },
        Term::Map(entries, _) => match ty {
            CqlType::Map { key, value, .. } => {
                let (key, value) = (receiver.key_of(key), receiver.value_of(value));
                all(entries.iter().flat_map(|(k, v)| [test(k, &key, cx), test(v, &value, cx)]))
            }
            _ => Assignment::No,
        },
        Term::Udt(fields, _) => weak_if(check_udt(fields, receiver, cx).is_ok()),
        Term::Tuple(elements, _) => match (tuple_types(ty), elements.as_slice()) {
            (Some(types), _) => weak_if(check_tuple(elements, &types, receiver, cx).is_ok()),
            (None, [one]) => test(one, receiver, cx),
            (None, _) => Assignment::No,
        },
        Term::TypeHint { ty: raw, .. } => match resolve_hint(raw, receiver.keyspace, cx) {
            Ok(hinted) => hint_fits(&hinted, ty),
            Err(_) => Assignment::Weak,
        },
        Term::FunctionCall { .. } | Term::Negate(..) | Term::Binary { .. } | Term::Cast { .. } => {
            let function = call_parts(term, |callee, args| {
                resolve_call(&callee, args, Some(ty), receiver, cx)
            });
            match function {
                Some(Ok(Some(function))) if function.from_factory => Assignment::Weak,
                Some(Ok(Some(function))) if function.returns == *ty => Assignment::Exact,
                Some(Ok(Some(function))) => weak_if(ty.is_value_compatible_with(&function.returns)),
                // A wrong call is reported when it is planned, with a better text.
                _ => Assignment::Weak,
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
