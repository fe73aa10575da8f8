//! Binding of terms: values in, bytes out.

use std::borrow::Cow;
use std::sync::Arc;

use cql_syntax::ast::BindMarker;
use types::wire::{CollectionKind, Elements, Entries};
use types::wire::{encode_collection, encode_map, encode_tuple, encode_vector};
use types::{Comparator, CqlType};

use super::Binds;
use super::{PlannedCall, PlannedTerm, Receiver, invalid_value, plan_marker};
use crate::context::PlanContext;
use crate::error::PlanError;
use crate::functions::UuidSource;
use crate::functions::sort_entries;
use crate::values::{BindEnv, Bound, BoundValue};

/// Evaluates a term whose parts are all constant.
pub(super) fn fold(term: PlannedTerm, cx: &PlanContext<'_>) -> Result<PlannedTerm, PlanError> {
    if !term.is_foldable() {
        return Ok(term);
    }
    let uuids = UuidSource::new(0);
    let env = BindEnv::of_constants(cx.now, &uuids);
    Ok(match term.bind(&[], &env)? {
        Bound::Null => PlannedTerm::Null,
        Bound::Unset => PlannedTerm::Unset,
        Bound::Value(bytes) => PlannedTerm::Constant(Arc::from(bytes.as_ref())),
    })
}

impl PlannedTerm {
    fn parts(&self, visit: &mut dyn FnMut(&PlannedTerm) -> bool) -> bool {
        match self {
            PlannedTerm::Constant(_)
            | PlannedTerm::Null
            | PlannedTerm::Unset
            | PlannedTerm::Bind { .. } => true,
            PlannedTerm::List(terms)
            | PlannedTerm::Set(terms, _)
            | PlannedTerm::Tuple(terms)
            | PlannedTerm::Udt(terms, _)
            | PlannedTerm::Vector(terms, ..) => terms.iter().all(visit),
            PlannedTerm::Map(entries, _) => entries.iter().all(|(k, v)| visit(k) && visit(v)),
            PlannedTerm::Call(call) => call.args.iter().all(visit),
        }
    }

    /// Plans a bind marker and gives it the receiver's type.
    pub(crate) fn marker(
        marker: &BindMarker,
        receiver: &Receiver<'_>,
        binds: &mut Binds,
    ) -> Result<PlannedTerm, PlanError> {
        plan_marker(marker, receiver, binds)
    }

    /// Only constants directly below.
    fn is_foldable(&self) -> bool {
        !matches!(self, PlannedTerm::Bind { .. })
            && self.parts(&mut |t| {
                matches!(t, PlannedTerm::Constant(_) | PlannedTerm::Null | PlannedTerm::Unset)
            })
    }

    /// Returns true if a bind marker occurs in the term.
    pub fn has_bind(&self) -> bool {
        matches!(self, PlannedTerm::Bind { .. }) || !self.parts(&mut |t| !t.has_bind())
    }

    /// The value, valid for the receiver's type. Borrows constants and bound values.
    ///
    /// # Errors
    /// A bound value that is not of the type; null where it is not allowed; a function that fails.
    #[inline]
    pub fn bind<'v>(
        &'v self,
        values: &[BoundValue<'v>],
        env: &BindEnv<'_>,
    ) -> Result<Bound<'v>, PlanError> {
        match self {
            PlannedTerm::Bind { index, ty } => bind_marker(*index, ty, values),
            PlannedTerm::Constant(bytes) => Ok(Bound::Value(Cow::Borrowed(bytes))),
            PlannedTerm::Null => Ok(Bound::Null),
            PlannedTerm::Unset => Ok(Bound::Unset),
            _ => self.bind_composite(values, env),
        }
    }

    fn bind_composite<'v>(
        &'v self,
        values: &[BoundValue<'v>],
        env: &BindEnv<'_>,
    ) -> Result<Bound<'v>, PlanError> {
        let in_collection = || PlanError::invalid("null is not supported inside collections");
        let bytes = match self {
            PlannedTerm::List(terms) | PlannedTerm::Set(terms, _) => {
                let mut elements = Vec::with_capacity(terms.len());
                for term in terms {
                    match term.bind(values, env)? {
                        Bound::Value(bytes) => elements.push(bytes),
                        Bound::Null => return Err(in_collection()),
                        Bound::Unset => return Ok(Bound::Unset),
                    }
                }
                if let PlannedTerm::Set(_, order) = self {
                    elements.sort_by(|a, b| order.compare(a, b));
                    elements.dedup_by(|a, b| order.compare(a, b).is_eq());
                }
                encode_collection(&elements)
            }
            PlannedTerm::Map(terms, order) => {
                let mut entries = Vec::with_capacity(terms.len());
                for (key, value) in terms {
                    let key = match key.bind(values, env)? {
                        Bound::Value(bytes) => bytes,
                        Bound::Null => return Err(in_collection()),
                        Bound::Unset => {
                            return Err(PlanError::invalid(
                                "unset value is not supported for map keys",
                            ));
                        }
                    };
                    match value.bind(values, env)? {
                        Bound::Value(bytes) => entries.push((key, bytes)),
                        Bound::Null => return Err(in_collection()),
                        Bound::Unset => return Ok(Bound::Unset),
                    }
                }
                sort_entries(&mut entries, order);
                encode_map(entries)
            }
            PlannedTerm::Tuple(terms) => {
                let mut fields = Vec::with_capacity(terms.len());
                for (i, term) in terms.iter().enumerate() {
                    fields.push(match term.bind(values, env)? {
                        Bound::Value(bytes) => Some(bytes),
                        Bound::Null => None,
                        Bound::Unset => {
                            return Err(PlanError::invalid(format!(
                                "Invalid unset value for tuple field number {i}"
                            )));
                        }
                    });
                }
                encode_tuple(fields)
            }
            PlannedTerm::Udt(terms, udt) => {
                let mut fields = Vec::with_capacity(terms.len());
                for (term, (name, _)) in terms.iter().zip(&udt.fields) {
                    fields.push(match term.bind(values, env)? {
                        Bound::Value(bytes) => Some(bytes),
                        Bound::Null => None,
                        Bound::Unset => {
                            return Err(PlanError::invalid(format!(
                                "Invalid unset value for field '{name}' of user defined type {}",
                                udt.name
                            )));
                        }
                    });
                }
                encode_tuple(fields)
            }
            PlannedTerm::Vector(terms, element, dimension) => {
                let mut elements = Vec::with_capacity(terms.len());
                for term in terms {
                    match term.bind(values, env)? {
                        Bound::Value(bytes)
                            if !(bytes.is_empty() && element.is_empty_value_meaningless()) =>
                        {
                            elements.push(bytes);
                        }
                        _ => {
                            return Err(PlanError::invalid("null is not supported inside vectors"));
                        }
                    }
                }
                encode_vector(element, *dimension, elements)
            }
            PlannedTerm::Call(call) => {
                return match call.slot.and_then(|slot| values.get(usize::from(slot))) {
                    Some(evaluated) => bind_value(evaluated, &call.function.returns),
                    None => call.bind(values, env).map(Bound::owned),
                };
            }
            PlannedTerm::Constant(_)
            | PlannedTerm::Null
            | PlannedTerm::Unset
            | PlannedTerm::Bind { .. } => return self.bind(values, env),
        };
        Ok(Bound::Value(Cow::Owned(bytes.map_err(invalid_value)?)))
    }
}

impl PlannedCall {
    pub(crate) fn bind(
        &self,
        values: &[BoundValue<'_>],
        env: &BindEnv<'_>,
    ) -> Result<Option<Vec<u8>>, PlanError> {
        let mut args = Vec::with_capacity(self.args.len());
        for term in &self.args {
            // Shortens the values' lifetime to that of this call.
            let bound: Bound<'_> = term.bind(values, env)?;
            if bound == Bound::Unset {
                return Err(PlanError::invalid(format!(
                    "Invalid unset value for argument in call to function {}",
                    self.function.name
                )));
            }
            args.push(bound);
        }
        let args: Vec<Option<&[u8]>> = args.iter().map(Bound::value).collect();
        self.function.eval(&args, &env.eval)
    }
}

#[inline]
fn bind_marker<'v>(
    index: u16,
    ty: &CqlType,
    values: &[BoundValue<'v>],
) -> Result<Bound<'v>, PlanError> {
    match values.get(usize::from(index)) {
        Some(value) => bind_value(value, ty),
        None => Err(PlanError::invalid(format!("no value was given for bind marker {index}"))),
    }
}

#[inline]
fn bind_value<'v>(value: &BoundValue<'v>, ty: &CqlType) -> Result<Bound<'v>, PlanError> {
    match value {
        BoundValue::Bytes(bytes) => {
            ty.validate_bound(bytes).map_err(invalid_value)?;
            match ty {
                CqlType::Set { .. } | CqlType::Map { .. } | CqlType::List { .. } => {
                    Ok(Bound::Value(sorted(bytes, ty)?))
                }
                _ => Ok(Bound::Value(Cow::Borrowed(bytes))),
            }
        }
        BoundValue::Null => Ok(Bound::Null),
        BoundValue::Unset => Ok(Bound::Unset),
    }
}

/// Returns true if the type contains a set or map, which clients may send in another order. Those
/// inside tuples and user types stay as they are, as in Cassandra.
fn has_order(ty: &CqlType) -> bool {
    match ty {
        CqlType::Set { .. } | CqlType::Map { .. } => true,
        CqlType::List { element, .. } => has_order(element),
        _ => false,
    }
}

/// A collection as clients send it, each set and map in it in the order of its elements and without
/// doubles. Borrowed when it was so already. Source: `CollectionSerializer`, which reads and writes
/// every element.
pub(crate) fn sorted<'v>(bytes: &'v [u8], ty: &CqlType) -> Result<Cow<'v, [u8]>, PlanError> {
    let is_borrowed = |part: &Cow<'_, [u8]>| matches!(part, Cow::Borrowed(_));
    let sorted = match ty {
        CqlType::Set { element, .. } => {
            let order = Comparator::for_type(element);
            let mut elements = Vec::new();
            for item in Elements::new(bytes, CollectionKind::Set).map_err(invalid_value)? {
                let Some(item) = item.map_err(invalid_value)? else { continue };
                elements.push(sorted(item, element)?);
            }
            if elements.iter().all(is_borrowed)
                && elements.is_sorted_by(|a, b| order.compare(a, b).is_lt())
            {
                return Ok(Cow::Borrowed(bytes));
            }
            elements.sort_by(|a, b| order.compare(a, b));
            elements.dedup_by(|a, b| order.compare(a, b).is_eq());
            encode_collection(&elements)
        }
        CqlType::Map { key, value, .. } => {
            let order = Comparator::for_type(key);
            let mut entries = Vec::new();
            for entry in Entries::new(bytes).map_err(invalid_value)? {
                let (of_key, of_value) = entry.map_err(invalid_value)?;
                entries.push((sorted(of_key, key)?, sorted(of_value, value)?));
            }
            if entries.iter().all(|(key, value)| is_borrowed(key) && is_borrowed(value))
                && entries.is_sorted_by(|a, b| order.compare(&a.0, &b.0).is_lt())
            {
                return Ok(Cow::Borrowed(bytes));
            }
            sort_entries(&mut entries, &order);
            encode_map(entries)
        }
        CqlType::List { element, .. } if has_order(element) => {
            let mut elements = Vec::new();
            for item in Elements::new(bytes, CollectionKind::List).map_err(invalid_value)? {
                // The code that splits the list reports a null, which IN may have.
                let Some(item) = item.map_err(invalid_value)? else {
                    return Ok(Cow::Borrowed(bytes));
                };
                elements.push(sorted(item, element)?);
            }
            if elements.iter().all(is_borrowed) {
                return Ok(Cow::Borrowed(bytes));
            }
            encode_collection(&elements)
        }
        _ => return Ok(Cow::Borrowed(bytes)),
    };
    sorted.map(Cow::Owned).map_err(invalid_value)
}
