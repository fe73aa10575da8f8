//! Parts of values in a selection: fields, elements, slices.

use cql_syntax::ast::{Selector, Term};
use types::{Comparator, CqlType};

use super::{Planned, Planner, refuse};
use crate::error::PlanError;
use crate::select::expr::Expr;
use crate::term::{Binds, plan_term, text_of};

impl Planner<'_, '_> {
    pub(super) fn field(
        &mut self,
        receiver: &Selector,
        field: &str,
        binds: &mut Binds,
    ) -> Result<Planned, PlanError> {
        let receiver = self.selector(receiver, None, binds)?;
        let (index, ty, count) = field_of(&receiver, field)?;
        Ok(Planned {
            expr: Expr::Field(Box::new(receiver.expr), index, count),
            ty,
            name: format!("{}.{field}", receiver.name),
        })
    }

    pub(super) fn element(
        &mut self,
        receiver: &Selector,
        key: &Term,
        binds: &mut Binds,
    ) -> Result<Planned, PlanError> {
        let receiver = self.selector(receiver, None, binds)?;
        let (key_ty, ty, map) = keyed(&receiver, "Element")?;
        let key_index = self.key_term(&receiver, key, &key_ty, map, binds)?;
        self.plan.element_keys.push((key_index, receiver.name.clone()));
        Ok(Planned {
            name: format!("{}[{}]", receiver.name, text_of(key)),
            expr: Expr::Element {
                receiver: Box::new(receiver.expr),
                key: key_index,
                order: Comparator::for_type(&key_ty),
                map,
            },
            ty,
        })
    }

    pub(super) fn slice(
        &mut self,
        receiver: &Selector,
        from: &Option<Box<Term>>,
        to: &Option<Box<Term>>,
        binds: &mut Binds,
    ) -> Result<Planned, PlanError> {
        let receiver = self.selector(receiver, None, binds)?;
        let (key_ty, _, map) = keyed(&receiver, "Slice")?;
        let mut bound = |planner: &mut Self, term: &Option<Box<Term>>| {
            term.as_ref().map(|t| planner.key_term(&receiver, t, &key_ty, map, binds)).transpose()
        };
        let (from_index, to_index) = (bound(self, from)?, bound(self, to)?);
        for index in from_index.iter().chain(&to_index) {
            self.plan.slice_keys.push((*index, receiver.name.clone()));
        }
        let text = |t: &Option<Box<Term>>| t.as_deref().map(text_of).unwrap_or_default();
        Ok(Planned {
            name: format!("{}[{}..{}]", receiver.name, text(from), text(to)),
            expr: Expr::Slice {
                from: from_index,
                to: to_index,
                order: Comparator::for_type(&key_ty),
                map,
                multi_cell: receiver.ty.is_multi_cell(),
                receiver: Box::new(receiver.expr),
            },
            ty: receiver.ty,
        })
    }

    fn key_term(
        &mut self,
        receiver: &Planned,
        key: &Term,
        ty: &CqlType,
        map: bool,
        binds: &mut Binds,
    ) -> Result<usize, PlanError> {
        let what = if map { "key" } else { "value" };
        let target = self.receiver(format!("{what}({})", receiver.name), ty.clone());
        let planned = plan_term(key, &target, self.cx, binds)?;
        Ok(self.add_term(planned))
    }
}

fn field_of(receiver: &Planned, field: &str) -> Result<(usize, CqlType, usize), PlanError> {
    let CqlType::Udt(udt) = &receiver.ty else {
        return refuse(format!(
            "Invalid field selection: {} of type {} is not a user type",
            receiver.name,
            receiver.ty.to_cql_name()
        ));
    };
    match udt.field_position(field).and_then(|i| Some((i, udt.fields.get(i)?))) {
        Some((index, (_, ty))) => Ok((index, ty.clone(), udt.fields.len())),
        None => refuse(format!(
            "{} of type {} has no field {field}",
            receiver.name,
            receiver.ty.to_cql_name()
        )),
    }
}

/// Returns the key type, the element type, and true for a map.
fn keyed(receiver: &Planned, what: &str) -> Result<(CqlType, CqlType, bool), PlanError> {
    match &receiver.ty {
        CqlType::Map { key, value, .. } => Ok(((**key).clone(), (**value).clone(), true)),
        CqlType::Set { element, .. } => Ok(((**element).clone(), (**element).clone(), false)),
        CqlType::List { .. } => refuse(format!(
            "{what} selection is only allowed on sets and maps, but {} is a list",
            receiver.name
        )),
        ty if what == "Slice" => refuse(format!(
            "Invalid slice selection: {} of type {} is not a collection",
            receiver.name,
            ty.to_cql_name()
        )),
        ty => refuse(format!(
            "Invalid element selection: {} is of type {} is not a collection",
            receiver.name,
            ty.to_cql_name()
        )),
    }
}
