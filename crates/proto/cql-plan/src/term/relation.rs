//! Right sides of relations that are more than one term: IN lists and tuples of columns.

use std::borrow::Cow;
use std::sync::Arc;

use cql_syntax::ast::{InValues, Term};
use types::CqlType;
use types::wire::{CollectionKind, Elements};

use super::Binds;
use super::{PlannedTerm, Receiver, invalid_value, plan_marker, plan_term, text_of};
use crate::context::PlanContext;
use crate::error::PlanError;
use crate::values::{BindEnv, Bound, BoundValue};

/// The right side of `column IN …`.
#[derive(Clone, Debug)]
pub enum PlannedIn {
    /// `(a, b)`.
    Terms(Vec<PlannedTerm>),
    /// One marker for a list of values.
    Marker(PlannedTerm),
}

/// Types the right side of IN. `receiver` is that of one value.
///
/// # Errors
/// Those of [`plan_term`].
pub fn plan_in(
    values: &InValues,
    receiver: &Receiver<'_>,
    cx: &PlanContext<'_>,
    binds: &mut Binds,
) -> Result<PlannedIn, PlanError> {
    Ok(match values {
        InValues::List(terms) => {
            let planned: Result<Vec<PlannedTerm>, PlanError> =
                terms.iter().map(|t| plan_term(t, receiver, cx, binds)).collect();
            PlannedIn::Terms(planned?)
        }
        InValues::Bind(marker) => {
            PlannedIn::Marker(plan_marker(marker, &receiver.in_list(), binds)?)
        }
    })
}

impl PlannedIn {
    /// The values in the order written; nulls inside are given as they are.
    ///
    /// # Errors
    /// Those of [`PlannedTerm::bind`]; a marker that is null or unset, named by `column`.
    pub fn bind<'v>(
        &'v self,
        column: &str,
        values: &[BoundValue<'v>],
        env: &BindEnv<'_>,
    ) -> Result<Vec<Bound<'v>>, PlanError> {
        match self {
            PlannedIn::Terms(terms) => terms.iter().map(|t| t.bind(values, env)).collect(),
            PlannedIn::Marker(marker) => match marker.bind(values, env)? {
                Bound::Value(Cow::Borrowed(bytes)) => items_of(bytes, Cow::Borrowed),
                // A set in it was not in order.
                Bound::Value(Cow::Owned(bytes)) => {
                    items_of(&bytes, |item| Cow::Owned(item.to_vec()))
                }
                Bound::Unset => {
                    Err(PlanError::invalid(format!("Invalid unset value for column {column}")))
                }
                Bound::Null => {
                    Err(PlanError::invalid(format!("Invalid null value for column {column}")))
                }
            },
        }
    }
}

/// The items of a list; nulls inside are given as they are.
fn items_of<'b, 'v>(
    bytes: &'b [u8],
    take: impl Fn(&'b [u8]) -> Cow<'v, [u8]>,
) -> Result<Vec<Bound<'v>>, PlanError> {
    let mut bound = Vec::new();
    for item in Elements::new(bytes, CollectionKind::List).map_err(invalid_value)? {
        let item = item.map_err(invalid_value)?;
        bound.push(item.map_or(Bound::Null, |item| Bound::Value(take(item))));
    }
    Ok(bound)
}

/// The right side of `(a, b) op …`: a term per column, or a marker for the whole tuple.
#[derive(Clone, Debug)]
pub enum PlannedTuple {
    /// `(x, y)`.
    Terms(Vec<PlannedTerm>),
    /// One marker; its type is the tuple of the columns'.
    Marker(PlannedTerm, Arc<str>),
}

fn tuple_receiver<'a>(receivers: &[Receiver<'a>], open: &str) -> Option<Receiver<'a>> {
    let names: Vec<&str> = receivers.iter().map(|r| &*r.name).collect();
    let ty = CqlType::tuple(receivers.iter().map(|r| r.ty.clone()));
    Some(receivers.first()?.derive(format!("{open}({})", names.join(",")), ty))
}

/// Types the right side of a relation on several columns.
///
/// # Errors
/// Those of [`plan_term`]; a tuple of another length.
pub fn plan_tuple(
    term: &Term,
    receivers: &[Receiver<'_>],
    cx: &PlanContext<'_>,
    binds: &mut Binds,
) -> Result<PlannedTuple, PlanError> {
    match term {
        Term::Tuple(elements, _) => {
            if elements.len() != receivers.len() {
                return Err(PlanError::invalid(format!(
                    "Expected {} elements in value tuple, but got {}: {}",
                    receivers.len(),
                    elements.len(),
                    text_of(term)
                )));
            }
            let mut planned = Vec::with_capacity(elements.len());
            for (element, receiver) in elements.iter().zip(receivers) {
                planned.push(plan_term(element, receiver, cx, binds)?);
            }
            Ok(PlannedTuple::Terms(planned))
        }
        Term::Bind(marker) => {
            let receiver = tuple_receiver(receivers, "")
                .ok_or_else(|| PlanError::invalid("a relation on no columns"))?;
            let planned = plan_marker(marker, &receiver, binds)?;
            Ok(PlannedTuple::Marker(planned, receiver.name))
        }
        other => Err(PlanError::invalid(format!(
            "Invalid tuple type literal for tuple of size {}: {}",
            receivers.len(),
            text_of(other)
        ))),
    }
}

impl PlannedTuple {
    /// One value per column, missing trailing fields as null.
    ///
    /// # Errors
    /// Those of [`PlannedTerm::bind`]; an unset tuple or field.
    pub fn bind<'v>(
        &'v self,
        columns: usize,
        values: &[BoundValue<'v>],
        env: &BindEnv<'_>,
    ) -> Result<Vec<Bound<'v>>, PlanError> {
        match self {
            PlannedTuple::Terms(terms) => {
                let mut bound = Vec::with_capacity(terms.len());
                for (i, term) in terms.iter().enumerate() {
                    match term.bind(values, env)? {
                        Bound::Unset => {
                            return Err(PlanError::invalid(format!(
                                "Invalid unset value for tuple field number {i}"
                            )));
                        }
                        value => bound.push(value),
                    }
                }
                Ok(bound)
            }
            PlannedTuple::Marker(marker, name) => match marker.bind(values, env)? {
                Bound::Value(Cow::Borrowed(bytes)) => split_tuple(bytes, columns),
                Bound::Unset => {
                    Err(PlanError::invalid(format!("Invalid unset value for tuple {name}")))
                }
                _ => Err(PlanError::invalid(format!("Invalid null value for {name}"))),
            },
        }
    }
}

fn split_tuple(bytes: &[u8], columns: usize) -> Result<Vec<Bound<'_>>, PlanError> {
    let mut bound = Vec::with_capacity(columns.min(bytes.len() + 1));
    for field in types::wire::Fields::new(bytes, columns) {
        let field = field.map_err(invalid_value)?;
        bound.push(field.map_or(Bound::Null, |b| Bound::Value(Cow::Borrowed(b))));
    }
    Ok(bound)
}

/// The right side of `(a, b) IN …`.
#[derive(Clone, Debug)]
pub enum PlannedTupleIn {
    /// `((…), ?)`.
    Tuples(Vec<PlannedTuple>),
    /// One marker for a list of tuples, with the receiver's name.
    Marker(PlannedTerm, Arc<str>),
}

/// Types the right side of IN on several columns.
///
/// # Errors
/// Those of [`plan_tuple`].
pub fn plan_tuple_in(
    values: &InValues,
    receivers: &[Receiver<'_>],
    cx: &PlanContext<'_>,
    binds: &mut Binds,
) -> Result<PlannedTupleIn, PlanError> {
    match values {
        InValues::List(terms) => {
            let planned: Result<Vec<PlannedTuple>, PlanError> =
                terms.iter().map(|t| plan_tuple(t, receivers, cx, binds)).collect();
            Ok(PlannedTupleIn::Tuples(planned?))
        }
        InValues::Bind(marker) => {
            let receiver = tuple_receiver(receivers, "in")
                .ok_or_else(|| PlanError::invalid("a relation on no columns"))?;
            let list =
                receiver.derive(receiver.name.clone(), CqlType::list(receiver.ty.clone(), true));
            let planned = plan_marker(marker, &list, binds)?;
            Ok(PlannedTupleIn::Marker(planned, receiver.name))
        }
    }
}

impl PlannedTupleIn {
    /// The tuples in the order written, one value per column each.
    ///
    /// # Errors
    /// Those of [`PlannedTuple::bind`].
    pub fn bind<'v>(
        &'v self,
        columns: usize,
        values: &[BoundValue<'v>],
        env: &BindEnv<'_>,
    ) -> Result<Vec<Vec<Bound<'v>>>, PlanError> {
        match self {
            PlannedTupleIn::Tuples(tuples) => {
                tuples.iter().map(|t| t.bind(columns, values, env)).collect()
            }
            PlannedTupleIn::Marker(marker, name) => match marker.bind(values, env)? {
                Bound::Value(Cow::Borrowed(bytes)) => {
                    let mut tuples = Vec::new();
                    for item in Elements::new(bytes, CollectionKind::List).map_err(invalid_value)? {
                        let item = item.map_err(invalid_value)?.ok_or_else(|| {
                            PlanError::invalid("Invalid null value in condition for columns")
                        })?;
                        tuples.push(split_tuple(item, columns)?);
                    }
                    Ok(tuples)
                }
                Bound::Unset => Err(PlanError::invalid(format!("Invalid unset value for {name}"))),
                _ => Err(PlanError::invalid(format!("Invalid null value for {name}"))),
            },
        }
    }
}
