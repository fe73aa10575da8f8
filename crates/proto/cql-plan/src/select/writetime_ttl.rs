//! `WRITETIME`, `MAXWRITETIME` and `TTL` of columns, fields and elements.
//!
//! Source: `Selectable.WritetimeOrTTL`.

use cql_syntax::ast::{MetadataKind, Selector};
use schema::Column;
use types::CqlType;

use super::expr::{CellFact, Cells, Expr};
use super::relations::existing_column;
use super::selection::{Planned, Planner, refuse};
use crate::column_source::Source;
use crate::error::PlanError;
use crate::term::Binds;

impl Planner<'_, '_> {
    pub(super) fn metadata(
        &mut self,
        kind: MetadataKind,
        target: &Selector,
        binds: &mut Binds,
    ) -> Result<Planned, PlanError> {
        let fact = match kind {
            MetadataKind::WriteTime => CellFact::WriteTime,
            MetadataKind::MaxWriteTime => CellFact::MaxWriteTime,
            MetadataKind::Ttl => CellFact::Ttl,
        };
        let planned = self.selector(target, None, binds)?;
        let (root, depth) = root_of(target);
        let Some(Selector::Column(name)) = root else {
            return refuse(format!(
                "Cannot use selection function {} on {}",
                kind.name(),
                planned.name
            ));
        };
        let (_, column) = existing_column(self.table, name)?;
        let source = Source::of(column);
        if matches!(source, Source::Key(_) | Source::Clustering(_)) {
            return refuse(format!(
                "Cannot use selection function {} on PRIMARY KEY part {}",
                kind.name(),
                column.name
            ));
        }
        let (cells, many) = cells_of(&planned.expr, column, depth)?;
        let single = match fact {
            CellFact::Ttl => CqlType::Int,
            CellFact::WriteTime | CellFact::MaxWriteTime => CqlType::Bigint,
        };
        let ty = if many && fact != CellFact::MaxWriteTime {
            CqlType::list(single, false)
        } else {
            single
        };
        Ok(Planned {
            expr: Expr::Fact { fact, source, cells },
            ty,
            name: format!("{}({})", kind.name(), planned.name),
        })
    }
}

/// The column that fields and elements are taken from, and how many steps down.
fn root_of(selector: &Selector) -> (Option<&Selector>, usize) {
    let (mut at, mut depth) = (selector, 0);
    loop {
        match at {
            Selector::Column(_) => return (Some(at), depth),
            Selector::Field { receiver, .. }
            | Selector::Element { receiver, .. }
            | Selector::Slice { receiver, .. } => {
                at = receiver;
                depth += 1;
            }
            _ => return (None, depth),
        }
    }
}

/// Returns the cells of the column that an expression over it reads, and true if these may be many.
fn cells_of(expr: &Expr, column: &Column, depth: usize) -> Result<(Cells, bool), PlanError> {
    if !column.is_complex() || depth == 0 {
        return Ok((Cells::All, column.is_complex()));
    }
    // The step next to the column names the cell; those above stay inside it.
    let mut at = expr;
    for _ in 1..depth {
        at = match at {
            Expr::Field(inner, _, _)
            | Expr::Element { receiver: inner, .. }
            | Expr::Slice { receiver: inner, .. } => inner,
            other => other,
        };
    }
    match at {
        Expr::Field(_, index, _) => {
            Ok((Cells::Field(u16::try_from(*index).unwrap_or(u16::MAX)), false))
        }
        Expr::Element { key, order, .. } => Ok((Cells::Element(*key, order.clone()), false)),
        Expr::Slice { from, to, order, .. } => Ok((Cells::Slice(*from, *to, order.clone()), true)),
        _ => refuse(format!("Cannot use selection function on {}", column.name)),
    }
}
