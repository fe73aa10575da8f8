//! Conditions of `IF`: from syntax to typed conditions, and these with their values.
//!
//! Source of rules and texts: `cql3.conditions.ColumnCondition` (`Raw.prepare`, `bind`).

use std::borrow::Cow;
use std::sync::Arc;

use cql_syntax::ast::{Comparison, Condition, ConditionTarget, Conditions, Operator};
use schema::{Column, ColumnKind, Table};
use stdx::ColumnId;
use types::CqlType;
use types::wire::{CollectionKind, Elements};

use crate::context::PlanContext;
use crate::error::PlanError;
use crate::tables::existing_column;
use crate::term::Binds;
use crate::term::{PlannedIn, PlannedTerm, Receiver, invalid_value, plan_in, plan_term, sorted};
use crate::values::{BindEnv, Bound, BoundValue};

/// Planned IF conditions of one statement.
#[derive(Clone, Debug, Default)]
pub(crate) enum PlannedConditions {
    /// No IF.
    #[default]
    None,
    /// `IF NOT EXISTS`.
    NotExists,
    /// `IF EXISTS`.
    Exists,
    /// At least one; those on regular columns before those on static ones.
    Columns(Vec<PlannedCondition>),
}

/// One condition on one column.
#[derive(Clone, Debug)]
pub(crate) struct PlannedCondition {
    pub(crate) column: ConditionColumn,
    pub(crate) is_static: bool,
    target: Target,
    /// The operator on each value; for IN it is `=`.
    op: Operator,
    right: Right,
}

/// Properties of a column that evaluation needs.
#[derive(Clone, Debug)]
pub(crate) struct ConditionColumn {
    pub(crate) id: ColumnId,
    pub(crate) ty: CqlType,
    /// True for a column of many cells.
    pub(crate) is_complex: bool,
}

#[derive(Clone, Debug)]
enum Target {
    Whole,
    Element(PlannedTerm),
    Field(usize),
}

#[derive(Clone, Debug)]
enum Right {
    One(PlannedTerm),
    /// With the type of one value.
    In(PlannedIn, CqlType),
}

/// A condition with its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundCondition {
    /// The column.
    pub id: ColumnId,
    /// Its type.
    pub ty: CqlType,
    /// True for a column of many cells.
    pub is_complex: bool,
    /// Part of the column that is compared.
    pub target: BoundTarget,
    /// The operator; of IN `=`.
    pub op: Operator,
    /// One satisfied value is enough; several only of IN. `None` is null.
    pub values: Vec<Option<Vec<u8>>>,
}

/// Part of a column that is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BoundTarget {
    /// The whole value.
    Whole,
    /// A list's index or a map's key; null is refused at evaluation.
    Element(Option<Vec<u8>>),
    /// A field of a user type, by position.
    Field(usize),
}

impl PlannedConditions {
    /// Plans IF of UPDATE and DELETE.
    pub(crate) fn plan(
        conditions: &Conditions,
        has_timestamp: bool,
        table: &Table,
        cx: &PlanContext<'_>,
        binds: &mut Binds,
    ) -> Result<PlannedConditions, PlanError> {
        let conditions = match conditions {
            Conditions::None => return Ok(PlannedConditions::None),
            Conditions::IfExists => return Ok(PlannedConditions::Exists),
            Conditions::If(conditions) => conditions,
        };
        if has_timestamp {
            return Err(custom_timestamp());
        }
        let mut planned = Vec::with_capacity(conditions.len());
        for condition in conditions {
            planned.push(PlannedCondition::plan(condition, table, cx, binds)?);
        }
        planned.sort_by_key(|c: &PlannedCondition| c.is_static);
        Ok(PlannedConditions::Columns(planned))
    }

    pub(crate) fn is_none(&self) -> bool {
        matches!(self, PlannedConditions::None)
    }

    pub(crate) fn columns(&self) -> &[PlannedCondition] {
        match self {
            PlannedConditions::Columns(conditions) => conditions,
            _ => &[],
        }
    }

    pub(crate) fn on_regulars(&self) -> bool {
        self.columns().iter().any(|c| !c.is_static)
    }

    pub(crate) fn on_statics(&self) -> bool {
        self.columns().iter().any(|c| c.is_static)
    }
}

/// Error for a conditional statement with `USING TIMESTAMP`.
pub(crate) fn custom_timestamp() -> PlanError {
    PlanError::invalid("Cannot provide custom timestamp for conditional updates")
}

fn check_duration(ty: &CqlType, op: Operator) -> Result<(), PlanError> {
    let is_slice = matches!(op, Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq);
    if !is_slice || !ty.contains_duration() {
        return Ok(());
    }
    Err(PlanError::invalid(if ty.is_collection() {
        "Slice conditions are not supported on collections containing durations".to_owned()
    } else if ty.is_udt() {
        "Slice conditions are not supported on UDTs containing durations".to_owned()
    } else if ty.is_tuple() {
        "Slice conditions are not supported on tuples containing durations".to_owned()
    } else {
        format!("Slice conditions ( {} ) are not supported on durations", op.symbol())
    }))
}

impl PlannedCondition {
    fn plan(
        condition: &Condition,
        table: &Table,
        cx: &PlanContext<'_>,
        binds: &mut Binds,
    ) -> Result<PlannedCondition, PlanError> {
        let column = existing_column(table, &condition.column.text)?;
        if column.ty.is_counter() {
            return Err(PlanError::invalid("Conditions on counters are not supported"));
        }
        let op = match &condition.comparison {
            Comparison::Operator(op, _) => *op,
            Comparison::In(_) => Operator::Eq,
        };
        let whole = Receiver::column(table, column);
        let (target, receiver) = match &condition.target {
            ConditionTarget::Column => (Target::Whole, whole),
            ConditionTarget::Element(key) => {
                let (element, value) = element_receivers(column, &whole)?;
                check_duration(&value.ty, op)?;
                (Target::Element(plan_term(key, &element, cx, binds)?), value)
            }
            ConditionTarget::Field(field) => {
                let CqlType::Udt(udt) = &column.ty else {
                    return Err(PlanError::invalid(format!(
                        "Invalid field access syntax for non-UDT column {}",
                        column.name
                    )));
                };
                let found = udt.field_position(&field.text);
                let found = found.and_then(|at| Some((at, udt.fields.get(at)?)));
                let Some((position, (_, ty))) = found else {
                    return Err(PlanError::invalid(format!(
                        "Unknown field {} for column {}",
                        field.text, column.name
                    )));
                };
                (Target::Field(position), whole.field_of(&field.text, ty))
            }
        };
        check_duration(&receiver.ty, op)?;
        let right = match &condition.comparison {
            Comparison::Operator(op, value) => {
                let receiver = contained(*op, receiver)?;
                Right::One(plan_term(value, &receiver, cx, binds)?)
            }
            Comparison::In(values) => {
                Right::In(plan_in(values, &receiver, cx, binds)?, receiver.ty.clone())
            }
        };
        if matches!(column.kind, ColumnKind::PartitionKey(_) | ColumnKind::Clustering { .. }) {
            return Err(PlanError::invalid(format!(
                "PRIMARY KEY column '{}' cannot have IF conditions",
                column.name
            )));
        }
        Ok(PlannedCondition {
            column: ConditionColumn {
                id: column.id,
                ty: column.ty.clone(),
                is_complex: column.is_complex(),
            },
            is_static: column.kind == ColumnKind::Static,
            target,
            op,
            right,
        })
    }

    /// With its values.
    pub(crate) fn bind(
        &self,
        values: &[BoundValue<'_>],
        env: &BindEnv<'_>,
    ) -> Result<BoundCondition, PlanError> {
        let target = match &self.target {
            Target::Whole => BoundTarget::Whole,
            Target::Element(key) => BoundTarget::Element(one(key.bind(values, env)?)?),
            Target::Field(position) => BoundTarget::Field(*position),
        };
        let mut bound = Vec::new();
        match &self.right {
            Right::One(term) => bound.push(one(term.bind(values, env)?)?),
            Right::In(PlannedIn::Terms(terms), _) => {
                for term in terms {
                    match term.bind(values, env)? {
                        Bound::Unset => {}
                        value => bound.push(one(value)?),
                    }
                }
            }
            Right::In(PlannedIn::Marker(marker), ty) => match marker.bind(values, env)? {
                Bound::Null => {
                    return Err(PlanError::invalid("Invalid null list in IN condition"));
                }
                Bound::Unset => return Err(unset()),
                Bound::Value(bytes) => {
                    for item in
                        Elements::new(&bytes, CollectionKind::List).map_err(invalid_value)?
                    {
                        let item = item.map_err(invalid_value)?;
                        let item = item.map(|bytes| sorted(bytes, ty)).transpose()?;
                        bound.push(item.map(Cow::into_owned));
                    }
                }
            },
        }
        Ok(BoundCondition {
            id: self.column.id,
            ty: self.column.ty.clone(),
            is_complex: self.column.is_complex,
            target,
            op: self.op,
            values: bound,
        })
    }
}

fn unset() -> PlanError {
    PlanError::invalid("Invalid 'unset' value in condition")
}

fn one(bound: Bound<'_>) -> Result<Option<Vec<u8>>, PlanError> {
    match bound {
        Bound::Null => Ok(None),
        Bound::Unset => Err(unset()),
        Bound::Value(bytes) => Ok(Some(bytes.into_owned())),
    }
}

/// Returns the receivers of the key in `c[key]` and of the value that it is compared with.
fn element_receivers<'a>(
    column: &Column,
    whole: &Receiver<'a>,
) -> Result<(Receiver<'a>, Receiver<'a>), PlanError> {
    match &column.ty {
        CqlType::List { element, .. } => Ok((whole.index_of(column), whole.value_of(element))),
        CqlType::Map { key, value, .. } => Ok((whole.key_of(key), whole.value_of(value))),
        CqlType::Set { .. } => Err(PlanError::invalid(format!(
            "Invalid element access syntax for set column {}",
            column.name
        ))),
        _ => Err(PlanError::invalid(format!(
            "Invalid element access syntax for non-collection column {}",
            column.name
        ))),
    }
}

/// The receiver of the right side: for CONTAINS that of an element.
fn contained(op: Operator, receiver: Receiver<'_>) -> Result<Receiver<'_>, PlanError> {
    let name: Arc<str> = receiver.name.clone();
    match (op, &receiver.ty) {
        (Operator::ContainsKey, CqlType::Map { key, .. }) => Ok(receiver.key_of(key)),
        (Operator::ContainsKey, _) => {
            Err(PlanError::invalid(format!("Cannot use CONTAINS KEY on non-map column {name}")))
        }
        (Operator::Contains, CqlType::List { element, .. } | CqlType::Set { element, .. }) => {
            Ok(receiver.value_of(element))
        }
        (Operator::Contains, CqlType::Map { value, .. }) => Ok(receiver.value_of(value)),
        (Operator::Contains, _) => {
            Err(PlanError::invalid(format!("Cannot use CONTAINS on non-collection column {name}")))
        }
        _ => Ok(receiver),
    }
}
