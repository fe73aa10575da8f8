//! Masks of columns: from `MASKED WITH` to the function and its fixed arguments.
//!
//! Source: `cql3.functions.masking.ColumnMask`.

use std::sync::Arc;

use cql_syntax::ast::{FunctionName, Ident, Mask, Term};
use schema::{ColumnMask, Keyspace, Schema};
use stdx::WallMicros;
use types::CqlType;

use super::DdlContext;
use crate::context::{PlanContext, PlanLimits};
use crate::error::PlanError;
use crate::functions::UuidSource;
use crate::functions::masking::{OfType, is_masking};
use crate::functions::user::UserFunctions;
use crate::functions::{self, NativeFunction, plain_name};
use crate::term::Binds;
use crate::term::{Receiver, plan_term, resolve_behind, text_of};
use crate::values::{BindEnv, Bound};

/// Input of mask functions.
#[derive(Clone, Copy)]
pub(super) struct MaskContext<'a> {
    /// Value of `'now'` in the arguments.
    pub(super) now: WallMicros,
    /// Where functions of other keyspaces are looked up, which are refused by name; `None`: nowhere.
    pub(super) schema: Option<&'a Schema>,
    /// Users' functions; `None`: they are switched off.
    pub(super) functions: Option<&'a UserFunctions>,
}

impl<'a> MaskContext<'a> {
    pub(super) fn of(cx: &DdlContext<'a>) -> MaskContext<'a> {
        MaskContext { now: cx.now, schema: Some(cx.schema), functions: cx.functions }
    }
}

/// The column that gets a mask.
pub(super) struct Masked<'a> {
    pub(super) keyspace: &'a Keyspace,
    pub(super) table: &'a str,
    pub(super) name: &'a str,
    pub(super) ty: &'a CqlType,
}

impl Masked<'_> {
    /// Its mask.
    ///
    /// # Errors
    /// Cassandra's: no such function, one that is no mask or gives another type, arguments that do
    /// not fit.
    pub(super) fn mask(&self, mask: &Mask, with: MaskContext<'_>) -> Result<ColumnMask, PlanError> {
        let default =
            FunctionName { keyspace: Some(Ident::new("system")), name: Ident::new("mask_default") };
        let (name, args): (&FunctionName, &[Term]) = match mask {
            Mask::Default => (&default, &[]),
            Mask::Function { name, args } => (name, args),
        };
        let mut schema = with.schema.cloned().unwrap_or_default();
        schema.keyspaces.insert(self.keyspace.name.clone(), Arc::new(self.keyspace.clone()));
        let (schema, now) = (Arc::new(schema), with.now);
        let limits = PlanLimits::default();
        let keyspace = &*self.keyspace.name;
        let cx = PlanContext {
            schema: &schema,
            keyspace: Some(keyspace),
            limits: &limits,
            now,
            functions: with.functions,
        };
        let function = self.function(name, args, &cx)?;
        let uuids = UuidSource::new(0);
        let env = BindEnv::of_constants(now, &uuids);
        let mut fixed = Vec::with_capacity(args.len());
        for (term, ty) in args.iter().zip(function.args.iter().skip(1)) {
            let receiver =
                Receiver { keyspace, table: "--dummy--", name: "(dummy)".into(), ty: ty.clone() };
            let planned = plan_term(term, &receiver, &cx, &mut Binds::new(&[]))?;
            let value = match planned.bind(&[], &env)? {
                Bound::Value(bytes) => Some(bytes.into_owned()),
                Bound::Null | Bound::Unset => None,
            };
            fixed.push((ty.clone(), value));
        }
        let users = if function.is_users() { function.args.first().cloned() } else { None };
        Ok(ColumnMask { function: function.name, users, args: fixed })
    }

    fn function(
        &self,
        name: &FunctionName,
        args: &[Term],
        cx: &PlanContext<'_>,
    ) -> Result<NativeFunction, PlanError> {
        let texts: Vec<String> = args.iter().map(text_of).collect();
        let shown = format!("{}({})", plain_name(name), texts.join(", "));
        let refuse = |text: String| Err(PlanError::invalid(text));
        if args.iter().any(|term| matches!(term, Term::Bind(_))) {
            return refuse(format!("Masking function {shown} cannot have bind variables"));
        }
        let aggregate = || {
            refuse(format!("Aggregate function {shown} cannot be used for masking table columns"))
        };
        if functions::is_aggregate(name) {
            return aggregate();
        }
        let receiver = Receiver {
            keyspace: &self.keyspace.name,
            table: self.table,
            name: self.name.into(),
            ty: self.ty.clone(),
        };
        let found = resolve_behind(name, &OfType(self.ty), args, &receiver, cx)?;
        let Some(function) = found else {
            return refuse(format!(
                "Unable to find masking function for {}, no declared function matches the \
                 signature {shown}",
                self.name
            ));
        };
        if function.is_aggregate() {
            return aggregate();
        }
        if function.is_users() {
            if function.keyspace() != &*self.keyspace.name {
                return refuse(format!(
                    "Masking function {shown} doesn't belong to the same keyspace as the table {}.{}",
                    self.keyspace.name, self.table
                ));
            }
        } else if !is_masking(&function.name) {
            return refuse(format!(
                "Not-masking function {shown} cannot be used for masking table columns"
            ));
        }
        if function.returns != *self.ty {
            return refuse(format!(
                "Masking function {shown} return type is {}. This is different to the type of the \
                 masked column {} of type {}. Masking functions can only be attached to table \
                 columns if they return the same data type as the masked column.",
                function.returns, self.name, self.ty
            ));
        }
        Ok(function)
    }
}

#[cfg(test)]
mod tests;
