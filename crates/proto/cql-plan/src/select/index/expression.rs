//! `expr(index, value)`: no index takes it, and each is refused in its own words.
//!
//! Source: `StatementRestrictions.processCustomIndexExpressions`, `IndexRestrictions`.

use cql_syntax::ast::Ident;
use schema::{IndexKind, Table};

use crate::error::PlanError;

/// The error of a WHERE clause with these expressions; `None`: it has none.
pub(crate) fn refusal(expressions: &[&Ident], table: &Table) -> Option<PlanError> {
    let (first, rest) = expressions.split_first()?;
    let name = &first.text;
    let text = if !rest.is_empty() {
        "Multiple custom index expressions in a single query are not supported".to_owned()
    } else {
        match table.index(name) {
            None => format!(
                "Invalid index expression, index {name} not found for {}.{}",
                table.keyspace, table.name
            ),
            Some(index) if index.kind != IndexKind::Custom => format!(
                "Only CUSTOM indexes may be used in custom index expressions, {name} is not valid"
            ),
            Some(_) => format!("Index {name} does not support custom expressions"),
        }
    };
    Some(PlanError::invalid(text))
}
