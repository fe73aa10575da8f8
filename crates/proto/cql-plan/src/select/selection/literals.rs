//! Collections, tuples and typed constants that are written out in a selection.

use cql_syntax::ast::{RawType, Selector};
use types::{Comparator, CqlType};

use super::{Planned, Planner, refuse};
use crate::error::PlanError;
use crate::select::arguments::{constant_term, is_untyped, text_of_selector};
use crate::select::expr::Expr;
use crate::term::{Binds, resolve_hint, test_assignment};

/// Expressions and names of elements, and their common type.
type ElementsPlanned = (Vec<Expr>, Vec<String>, Option<CqlType>);

impl Planner<'_, '_> {
    /// Returns true if constants after a type in parentheses are of that type. A wrong number of
    /// elements of a vector is reported by another error.
    fn constants_fit(&self, selector: &Selector, ty: &CqlType) -> bool {
        if let (Selector::List(items, _), CqlType::Vector { element, .. }) = (selector, ty) {
            return items.iter().all(|item| self.constants_fit(item, element));
        }
        let Some(term) = constant_term(selector) else { return true };
        test_assignment(&term, &self.receiver("[selection]", ty.clone()), self.cx).is_assignable()
    }

    /// A value with its type in parentheses before it.
    pub(super) fn hinted(
        &mut self,
        raw: &RawType,
        inner: &Selector,
        binds: &mut Binds,
    ) -> Result<Planned, PlanError> {
        let ty = resolve_hint(raw, &self.table.keyspace, self.cx)?;
        let hint = hint_text(raw, &self.table.keyspace);
        let wrong = |text: &str| {
            // Collections of selectors are frozen.
            let of = match ty.to_cql_name() {
                name if ty.is_collection() && ty.is_multi_cell() => {
                    format!("frozen<{name}>")
                }
                name => name,
            };
            refuse(format!("Cannot assign value ({hint}){text} to ({hint}){text} of type {of}"))
        };
        if !self.constants_fit(inner, &ty) {
            return wrong(&text_of_selector(inner));
        }
        let planned = self.selector(inner, Some(&ty), binds)?;
        if !planned.ty.test_assignment(&ty).is_assignable() {
            return wrong(&planned.name);
        }
        Ok(Planned { name: format!("({hint}){}", planned.name), expr: planned.expr, ty })
    }

    /// `None`: its type cannot be inferred.
    pub(super) fn list(
        &mut self,
        items: &[Selector],
        expected: Option<&CqlType>,
        binds: &mut Binds,
    ) -> Result<Option<Planned>, PlanError> {
        if let Some(CqlType::Vector { element, dimension }) = expected {
            let count = u32::try_from(items.len()).unwrap_or(u32::MAX);
            if count != *dimension {
                return refuse(format!(
                    "Unable to create a vector selector of type {} from {count} elements",
                    CqlType::vector((**element).clone(), *dimension).to_cql_name()
                ));
            }
            let (exprs, names, _) = self.items(items, Some(element), binds)?;
            return Ok(Some(Planned {
                expr: Expr::Vector(exprs, (**element).clone(), *dimension),
                ty: CqlType::vector((**element).clone(), *dimension),
                name: format!("[{}]", names.join(", ")),
            }));
        }
        let wanted = match expected {
            Some(CqlType::List { element, .. }) => Some(&**element),
            _ => None,
        };
        let (exprs, names, ty) = self.items(items, wanted, binds)?;
        let Some(ty) = ty else { return Ok(None) };
        Ok(Some(Planned {
            expr: Expr::List(exprs),
            ty: CqlType::list(ty, is_frozen(expected)),
            name: format!("[{}]", names.join(", ")),
        }))
    }

    /// `None`: its type cannot be inferred.
    pub(super) fn set(
        &mut self,
        items: &[Selector],
        expected: Option<&CqlType>,
        binds: &mut Binds,
    ) -> Result<Option<Planned>, PlanError> {
        if let (Some(CqlType::Map { key, value, .. }), true) = (expected, items.is_empty()) {
            return Ok(Some(Planned {
                expr: Expr::Map(Vec::new(), Comparator::for_type(key)),
                ty: CqlType::map((**key).clone(), (**value).clone(), is_frozen(expected)),
                name: "{}".to_owned(),
            }));
        }
        let wanted = match expected {
            Some(CqlType::Set { element, .. }) => Some(&**element),
            _ => None,
        };
        let (exprs, names, ty) = self.items(items, wanted, binds)?;
        let Some(ty) = ty else { return Ok(None) };
        Ok(Some(Planned {
            expr: Expr::Set(exprs, Comparator::for_type(&ty)),
            ty: CqlType::set(ty, is_frozen(expected)),
            name: format!("{{{}}}", names.join(", ")),
        }))
    }

    /// Expressions, names and the common type of elements.
    fn items(
        &mut self,
        items: &[Selector],
        expected: Option<&CqlType>,
        binds: &mut Binds,
    ) -> Result<ElementsPlanned, PlanError> {
        // Each element is planned once: first those that have a type of their own, then the others.
        // When no type is expected, the first of these gives the type of all.
        let mut ty = expected.cloned();
        let mut planned: Vec<Option<Planned>> = Vec::with_capacity(items.len());
        for item in items {
            let own = match is_untyped(item) {
                true => None,
                false => Some(self.selector(item, expected, binds)?),
            };
            if let (None, Some(own)) = (&ty, &own) {
                ty = Some(own.ty.clone());
            }
            planned.push(own);
        }
        if ty.is_none() {
            // Literals alone: the type of the collection is unknown.
            return Ok((Vec::new(), Vec::new(), None));
        }
        let (mut exprs, mut names) = (Vec::new(), Vec::new());
        for (item, own) in items.iter().zip(planned) {
            let planned = match own {
                Some(planned) => planned,
                None => self.selector(item, ty.as_ref(), binds)?,
            };
            if let Some(ty) = &ty
                && !planned.ty.test_assignment(ty).is_assignable()
            {
                return Err(PlanError::function_call(format!(
                    "Type error: {} cannot be passed as element of type {}",
                    planned.name,
                    ty.to_cql_name()
                )));
            }
            exprs.push(planned.expr);
            names.push(planned.name);
        }
        Ok((exprs, names, ty))
    }

    pub(super) fn tuple(
        &mut self,
        items: &[Selector],
        expected: Option<&CqlType>,
        binds: &mut Binds,
    ) -> Result<Planned, PlanError> {
        let fields: Option<&[CqlType]> = match expected {
            Some(CqlType::Tuple(fields)) => Some(fields),
            _ => None,
        };
        if let ([inner], None) = (items, fields) {
            let planned = self.selector(inner, expected, binds)?;
            return Ok(Planned { name: format!("({})", planned.name), ..planned });
        }
        let (mut exprs, mut names, mut types) = (Vec::new(), Vec::new(), Vec::new());
        for (index, item) in items.iter().enumerate() {
            let planned = self.selector(item, fields.and_then(|f| f.get(index)), binds)?;
            exprs.push(planned.expr);
            names.push(planned.name);
            types.push(planned.ty);
        }
        Ok(Planned {
            expr: Expr::Tuple(exprs),
            ty: CqlType::tuple(types),
            name: format!("({})", names.join(", ")),
        })
    }

    pub(super) fn map_or_udt(
        &mut self,
        entries: &[(Selector, Selector)],
        expected: Option<&CqlType>,
        binds: &mut Binds,
    ) -> Result<Option<Planned>, PlanError> {
        if let Some(ty @ CqlType::Udt(udt)) = expected {
            let mut fields: Vec<Expr> = udt.fields.iter().map(|_| Expr::Null).collect();
            let mut names = Vec::new();
            for (key, value) in entries {
                let Selector::Column(field) = key else {
                    return refuse(format!(
                        "{} is not a valid field identifier of type {} ",
                        text_of_selector(key),
                        udt.name
                    ));
                };
                let Some(index) = udt.field_position(&field.text) else {
                    return refuse(format!(
                        "Unknown field '{}' in value of user defined type {}",
                        field.text, udt.name
                    ));
                };
                let ty = udt.fields.get(index).map(|(_, ty)| ty);
                let planned = self.selector(value, ty, binds)?;
                names.push(format!("{}: {}", field.text, planned.name));
                if let Some(slot) = fields.get_mut(index) {
                    *slot = planned.expr;
                }
            }
            return Ok(Some(Planned {
                expr: Expr::Tuple(fields),
                ty: ty.clone(),
                name: format!("{{{}}}", names.join(", ")),
            }));
        }
        // Without an expected type a map has none, whatever its entries are.
        let Some(CqlType::Map { key, value, .. }) = expected else { return Ok(None) };
        let (key_ty, value_ty) = (Some(&**key), Some(&**value));
        let (keys, values): (Vec<Selector>, Vec<Selector>) = entries.iter().cloned().unzip();
        let (keys, key_names, key_ty) = self.items(&keys, key_ty, binds)?;
        let (values, value_names, value_ty) = self.items(&values, value_ty, binds)?;
        let (Some(key_ty), Some(value_ty)) = (key_ty, value_ty) else { return Ok(None) };
        let names: Vec<String> =
            key_names.iter().zip(&value_names).map(|(k, v)| format!("{k}: {v}")).collect();
        Ok(Some(Planned {
            expr: Expr::Map(keys.into_iter().zip(values).collect(), Comparator::for_type(&key_ty)),
            ty: CqlType::map(key_ty, value_ty, is_frozen(expected)),
            name: format!("{{{}}}", names.join(", ")),
        }))
    }
}

/// Returns true if a frozen collection is expected; a literal then becomes frozen.
fn is_frozen(expected: Option<&CqlType>) -> bool {
    expected.is_some_and(CqlType::is_frozen_collection)
}

/// A type hint as column names show it: user types with their keyspace.
fn hint_text(raw: &RawType, keyspace: &str) -> String {
    let text = |raw: &RawType| hint_text(raw, keyspace);
    match raw {
        RawType::UserDefined(name) if name.keyspace.is_none() => format!(
            "{}.{}",
            types::name::quote_identifier(keyspace),
            types::name::quote_identifier(&name.name.text)
        ),
        RawType::List(element) => format!("list<{}>", text(element)),
        RawType::Set(element) => format!("set<{}>", text(element)),
        RawType::Map(key, value) => format!("map<{}, {}>", text(key), text(value)),
        RawType::Tuple(fields) => {
            let fields: Vec<String> = fields.iter().map(text).collect();
            format!("tuple<{}>", fields.join(", "))
        }
        RawType::Vector(element, dimension) => format!("vector<{}, {dimension}>", text(element)),
        // Vectors are always frozen, and shown without.
        RawType::Frozen(inner) if matches!(**inner, RawType::Vector(..)) => text(inner),
        RawType::Frozen(inner) => format!("frozen<{}>", text(inner)),
        RawType::Custom(class) => format!("'{}'", crate::raw_type::full_class(class)),
        RawType::Native(_) | RawType::UserDefined(_) => raw.to_string(),
    }
}
