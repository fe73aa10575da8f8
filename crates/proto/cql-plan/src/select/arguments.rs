//! Selectors as arguments of functions that are being resolved.

use cql_syntax::ast::{Selector, Term};
use types::CqlType;
use types::compat::Assignment;

use super::selection::Planned;
use crate::functions::Argument;
use crate::term::{literal_type, test_literal, text_of};

/// A selector of constants alone as a term; `None` for any other, and for bind markers, which fit every
/// type.
pub(super) fn constant_term(selector: &Selector) -> Option<Term> {
    let all = |items: &[Selector]| items.iter().map(constant_term).collect::<Option<Vec<Term>>>();
    Some(match selector {
        Selector::Literal(literal) => Term::Literal(literal.clone()),
        Selector::Null(span) => Term::Null(*span),
        Selector::Tuple(items, span) => Term::Tuple(all(items)?, *span),
        Selector::List(items, span) => Term::List(all(items)?, *span),
        Selector::Set(items, span) => Term::Set(all(items)?, *span),
        Selector::MapOrUdt(entries, span) => {
            let values = entries.iter().map(|(_, value)| constant_term(value));
            let values: Vec<Term> = values.collect::<Option<_>>()?;
            let names: Option<Vec<_>> = entries
                .iter()
                .map(|(key, _)| match key {
                    Selector::Column(name) => Some(name.clone()),
                    _ => None,
                })
                .collect();
            match names {
                Some(names) => Term::Udt(names.into_iter().zip(values).collect(), *span),
                None => {
                    let keys: Vec<Term> =
                        entries.iter().map(|(key, _)| constant_term(key)).collect::<Option<_>>()?;
                    Term::Map(keys.into_iter().zip(values).collect(), *span)
                }
            }
        }
        _ => return None,
    })
}

/// Selectors that take their type from where they stand.
pub(super) fn is_untyped(selector: &Selector) -> bool {
    match selector {
        Selector::Literal(_) | Selector::Null(_) | Selector::Bind(_) => true,
        Selector::Tuple(items, _) | Selector::List(items, _) | Selector::Set(items, _) => {
            items.is_empty() || items.iter().all(is_untyped)
        }
        Selector::MapOrUdt(entries, _) => {
            entries.iter().all(|(k, v)| is_untyped(k) || is_untyped(v))
        }
        _ => false,
    }
}

/// A selector as text in names and messages.
pub(super) fn text_of_selector(selector: &Selector) -> String {
    match selector {
        Selector::Literal(literal) => text_of(&Term::Literal(literal.clone())),
        Selector::Bind(_) => "?".to_owned(),
        Selector::Null(_) => "NULL".to_owned(),
        other => other.to_string(),
    }
}

/// A selector as an argument of a function that is being resolved.
pub(super) struct SelectorArgument<'s> {
    pub(super) selector: &'s Selector,
    pub(super) planned: Option<Planned>,
}

impl Argument for SelectorArgument<'_> {
    fn test(&self, ty: &CqlType) -> Assignment {
        match (&self.planned, self.selector) {
            (Some(planned), _) => planned.ty.test_assignment(ty),
            (None, Selector::Literal(literal)) => test_literal(literal, ty),
            (None, Selector::Null(_) | Selector::Bind(_)) => Assignment::Weak,
            (None, Selector::List(..)) => {
                fits(matches!(ty, CqlType::List { .. } | CqlType::Vector { .. }))
            }
            (None, Selector::Set(items, _)) => fits(
                matches!(ty, CqlType::Set { .. })
                    || (items.is_empty() && matches!(ty, CqlType::Map { .. })),
            ),
            (None, Selector::MapOrUdt(..)) => {
                fits(matches!(ty, CqlType::Map { .. } | CqlType::Udt(_)))
            }
            (None, Selector::Tuple(items, _)) => {
                fits(matches!(ty, CqlType::Tuple(_)) || items.len() == 1)
            }
            (None, _) => Assignment::No,
        }
    }

    fn exact_type(&self) -> Option<CqlType> {
        self.planned.as_ref().map(|p| p.ty.clone())
    }

    fn compatible_type(&self) -> Option<CqlType> {
        match (&self.planned, self.selector) {
            (Some(planned), _) => Some(planned.ty.clone()),
            (None, Selector::Literal(literal)) => Some(literal_type(literal)),
            _ => None,
        }
    }

    fn text(&self) -> String {
        match &self.planned {
            Some(planned) => planned.name.clone(),
            None => text_of_selector(self.selector),
        }
    }

    fn is_marker(&self) -> bool {
        matches!(self.selector, Selector::Bind(_))
    }

    fn vector_dimension(&self) -> Option<u32> {
        match self.selector {
            Selector::List(items, _) => u32::try_from(items.len()).ok(),
            _ => None,
        }
    }
}

fn fits(yes: bool) -> Assignment {
    if yes { Assignment::Weak } else { Assignment::No }
}
