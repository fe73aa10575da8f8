//! WHERE clauses of SELECT: relations merged per column and checked with Cassandra's words.
//!
//! Owns: which restrictions are answered by keys and slices and which by filtering. Never: values;
//! they come at bind ([`super::bind`]); the planned WHERE clause ([`super::restricted`]).
//!
//! Source: `cql3.restrictions.StatementRestrictions` and its parts, `SingleColumnRelation`,
//! `MultiColumnRelation`, `TokenRelation`.

use std::sync::Arc;

use cql_syntax::ast::{Ident, InValues, Operator, Relation, RelationKind, Term};
use schema::{Column, ColumnKind, Table};
use types::CqlType;

use super::clause::Clause;
use super::index::expression::refusal;
use super::index::like::LikeIndexes;
use super::index::support::has_supporting_index;
use super::merge::{merge_into, merge_limit};
use super::nearest::AnnColumn;
use super::restrictions::{
    Condition, InRows, Limit, Restriction, Restrictions, Row, TokenCondition, TokenLimit,
};
use crate::context::PlanContext;
use crate::error::PlanError;
use crate::term::Binds;
use crate::term::{PlannedTerm, Receiver, plan_term, text_of};

/// Cassandra's refusal of a query that would filter.
pub(crate) const NEEDS_FILTERING: &str = "Cannot execute this query as it might involve data \
    filtering and thus may have unpredictable performance. If you want to execute this query \
    despite the performance unpredictability, use ALLOW FILTERING";

/// Parts of the rest of the statement that affect its WHERE clause.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WhereContext {
    pub(crate) allow_filtering: bool,
    /// The table is virtual: filtering needs no permission.
    pub(crate) filters_freely: bool,
    pub(crate) selects_only_statics: bool,
    /// The rows are ordered by the distance of this column.
    pub(crate) ann: Option<AnnColumn>,
}

/// The column of that name with its index, or Cassandra's refusal.
pub(crate) fn existing_column<'t>(
    table: &'t Table,
    name: &Ident,
) -> Result<(usize, &'t Column), PlanError> {
    let named = table.columns.iter().enumerate().find(|(_, c)| *c.name == *name.text);
    named.filter(|(_, c)| !table.is_hidden(c)).ok_or_else(|| {
        PlanError::invalid(format!(
            "Undefined column name {} in table {}",
            name,
            crate::tables::full_name(table)
        ))
    })
}

/// Plans the relations of a SELECT.
pub(crate) fn plan_where<'a>(
    relations: &'a [Relation],
    table: &'a Table,
    context: WhereContext,
    cx: &'a PlanContext<'_>,
    binds: &mut Binds,
) -> Result<Restrictions, PlanError> {
    let mut planner = Planner {
        table,
        cx,
        binds,
        context,
        partition: Vec::new(),
        clustering: Vec::new(),
        other: Vec::new(),
        token: None,
        expressions: Vec::new(),
    };
    for relation in relations {
        planner.relation(relation)?;
    }
    planner.finish()
}

struct Planner<'a, 'b, 'c> {
    table: &'a Table,
    cx: &'a PlanContext<'c>,
    binds: &'b mut Binds,
    context: WhereContext,
    partition: Vec<Restriction>,
    clustering: Vec<Restriction>,
    other: Vec<Restriction>,
    token: Option<TokenCondition>,
    /// Indexes of `expr(…)`.
    expressions: Vec<&'a Ident>,
}

/// The error for wrong arguments of `token()`, which are these columns of the table.
#[cold]
fn wrong_token_columns(given: &[usize], keys: &[Column]) -> PlanError {
    if !(0..keys.len()).all(|k| given.contains(&k)) {
        return PlanError::invalid(
            "The token() function must be applied to all partition key components or \
             none of them",
        );
    }
    let mut unique = given.to_vec();
    unique.sort_unstable();
    unique.dedup();
    if unique.len() != given.len() {
        return PlanError::invalid(
            "The token() function contains duplicate partition key components",
        );
    }
    if given.len() > keys.len() {
        return PlanError::invalid(
            "The token() function must contains only partition key components",
        );
    }
    PlanError::invalid(format!(
        "The token function arguments must be in the partition key order: {}",
        names(keys)
    ))
}

impl<'a> Planner<'a, '_, '_> {
    fn relation(&mut self, relation: &'a Relation) -> Result<(), PlanError> {
        match &relation.kind {
            RelationKind::Column { column, op, value } => self.column(relation, column, *op, value),
            RelationKind::ColumnIn { column, values } => self.column_in(column, values),
            RelationKind::Element { column, key, op, value } => {
                self.element(column, key, *op, value)
            }
            RelationKind::IsNotNull { column } => {
                existing_column(self.table, column)?;
                Err(PlanError::invalid(format!("Unsupported restriction: {relation}")))
            }
            RelationKind::Between { .. } | RelationKind::TokenBetween { .. } => {
                Err(PlanError::unsupported("BETWEEN"))
            }
            RelationKind::Token { columns, op, value } => self.token(columns, *op, value),
            RelationKind::Tuple { columns, op, value } => self.tuple(relation, columns, *op, value),
            RelationKind::TupleIn { columns, values } => self.tuple_in(relation, columns, values),
            RelationKind::Index { index, .. } => {
                self.expressions.push(index);
                Ok(())
            }
        }
    }

    fn term(
        &mut self,
        term: &Term,
        name: &Arc<str>,
        ty: &CqlType,
    ) -> Result<PlannedTerm, PlanError> {
        let receiver = Receiver {
            keyspace: &self.table.keyspace,
            table: &self.table.name,
            name: name.clone(),
            ty: ty.clone(),
        };
        plan_term(term, &receiver, self.cx, self.binds)
    }

    fn column(
        &mut self,
        relation: &Relation,
        name: &Ident,
        op: Operator,
        value: &Term,
    ) -> Result<(), PlanError> {
        let refuse = |text: String| Err(PlanError::invalid(text));
        if op == Operator::NotEq {
            return refuse(not_equal(&name.to_string(), value));
        }
        let (index, column) = existing_column(self.table, name)?;
        match op {
            Operator::Like => {
                check_restrictable(column, op)?;
                let term = self.term(value, &column.name, &column.ty)?;
                let Some(indexes) = LikeIndexes::of(self.table, column) else {
                    return refuse(format!(
                        "LIKE restriction is only supported on properly indexed columns. \
                         {relation} is not valid."
                    ));
                };
                let condition = Condition::Like(term, indexes);
                return self.add(Restriction { first: index, count: 1, multi: false, condition });
            }
            Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq
                if column.ty.contains_duration() =>
            {
                let what = match &column.ty {
                    ty if ty.is_collection() => "collections containing durations",
                    ty if ty.is_tuple() => "tuples containing durations",
                    ty if ty.is_udt() => "UDTs containing durations",
                    _ => "duration columns",
                };
                return refuse(format!("Slice restrictions are not supported on {what}"));
            }
            _ => {}
        }
        check_restrictable(column, op)?;
        if let Operator::Contains | Operator::ContainsKey = op {
            let (ty, receiver) = contained(column, op);
            let term = self.term(value, &receiver, &ty)?;
            let (mut values, mut keys) = (Vec::new(), Vec::new());
            if op == Operator::Contains { &mut values } else { &mut keys }.push(term);
            let condition = Condition::Contains { values, keys, entries: Vec::new() };
            return self.add(Restriction { first: index, count: 1, multi: false, condition });
        }
        let row = Row::Each(vec![self.term(value, &column.name, &column.ty)?]);
        self.add(Restriction { first: index, count: 1, multi: false, condition: compare(op, row) })
    }

    fn column_in(&mut self, name: &Ident, values: &InValues) -> Result<(), PlanError> {
        let (index, column) = existing_column(self.table, name)?;
        if column.ty.is_udt() || column.ty.is_collection() {
            check_multi_cell(column, "IN")?;
        }
        let condition = match values {
            InValues::List(terms) => {
                let mut rows = Vec::with_capacity(terms.len());
                for term in terms {
                    rows.push(Row::Each(vec![self.term(term, &column.name, &column.ty)?]));
                }
                in_condition(rows)
            }
            InValues::Bind(marker) => {
                let name: Arc<str> = format!("in({})", column.name).into();
                let ty = CqlType::list(column.ty.clone(), false);
                let term = self.term(&Term::Bind(marker.clone()), &name, &ty)?;
                Condition::In(InRows::Marker(term, None))
            }
        };
        self.add(Restriction { first: index, count: 1, multi: false, condition })
    }

    fn element(
        &mut self,
        name: &Ident,
        key: &Term,
        op: Operator,
        value: &Term,
    ) -> Result<(), PlanError> {
        let (index, column) = existing_column(self.table, name)?;
        let refuse = |text: String| Err(PlanError::invalid(text));
        if op == Operator::NotEq {
            return refuse(not_equal(&format!("{name}[{}]", text_of(key)), value));
        }
        let (key_ty, value_ty) = match &column.ty {
            CqlType::List { .. } => {
                return refuse(format!(
                    "Indexes on list entries ({}[index] = value) are not currently supported.",
                    column.name
                ));
            }
            CqlType::Map { frozen: true, .. } => {
                return refuse(format!(
                    "Map-entry equality predicates on frozen map column {} are not supported",
                    column.name
                ));
            }
            CqlType::Map { key, value, .. } => (key.clone(), value.clone()),
            _ => return refuse(format!("Column {} cannot be used as a map", column.name)),
        };
        if op != Operator::Eq {
            return refuse("Only EQ relations are supported on map entries".to_owned());
        }
        let key = self.term(key, &format!("key({})", column.name).into(), &key_ty)?;
        let value = self.term(value, &format!("value({})", column.name).into(), &value_ty)?;
        let condition = Condition::Contains {
            values: Vec::new(),
            keys: Vec::new(),
            entries: vec![(key, value)],
        };
        self.add(Restriction { first: index, count: 1, multi: false, condition })
    }

    fn token(&mut self, columns: &[Ident], op: Operator, value: &Term) -> Result<(), PlanError> {
        let mut given = Vec::with_capacity(columns.len());
        for name in columns {
            given.push(existing_column(self.table, name)?.0);
        }
        let keys = self.table.partition_key();
        let refuse = |text: String| Err(PlanError::invalid(text));
        if !(0..keys.len()).eq(given.iter().copied()) {
            return Err(wrong_token_columns(&given, keys));
        }
        let term = self.term(value, &Arc::from("partition key token"), &CqlType::Bigint)?;
        let limit = |inclusive| Some(TokenLimit { term: term.clone(), inclusive });
        let new = match op {
            Operator::Eq => TokenCondition::Eq(term.clone()),
            Operator::Gt => TokenCondition::Slice { start: limit(false), end: None },
            Operator::GtEq => TokenCondition::Slice { start: limit(true), end: None },
            Operator::Lt => TokenCondition::Slice { start: None, end: limit(false) },
            Operator::LtEq => TokenCondition::Slice { start: None, end: limit(true) },
            Operator::NotEq => {
                let names: Vec<String> = columns.iter().map(ToString::to_string).collect();
                return refuse(not_equal(&format!("token({})", names.join(", ")), value));
            }
            other => {
                return refuse(format!(
                    "{} cannot be used with the token function",
                    other.symbol()
                ));
            }
        };
        self.token = Some(match (self.token.take(), new) {
            (None, new) => new,
            (Some(TokenCondition::Eq(_)), _) => {
                return refuse(format!(
                    "{} cannot be restricted by more than one relation if it includes an Equal",
                    names(keys)
                ));
            }
            (Some(TokenCondition::Slice { .. }), TokenCondition::Eq(_)) => {
                return refuse(format!(
                    "Columns \"{}\" cannot be restricted by both an equality and an inequality \
                     relation",
                    names(keys)
                ));
            }
            (
                Some(TokenCondition::Slice { start, end }),
                TokenCondition::Slice { start: new_start, end: new_end },
            ) => TokenCondition::Slice {
                start: merge_limit(start, new_start, "start", || names(keys))?,
                end: merge_limit(end, new_end, "end", || names(keys))?,
            },
        });
        Ok(())
    }

    /// The clustering columns of a tuple: first index and count.
    fn tuple_columns(
        &self,
        relation: &Relation,
        columns: &[Ident],
    ) -> Result<(usize, usize), PlanError> {
        let mut indices: Vec<usize> = Vec::with_capacity(columns.len());
        for name in columns {
            let (index, column) = existing_column(self.table, name)?;
            if !matches!(column.kind, ColumnKind::Clustering { .. }) {
                return Err(PlanError::invalid(format!(
                    "Multi-column relations can only be applied to clustering columns but was \
                     applied to: {}",
                    column.name
                )));
            }
            if indices.contains(&index) {
                return Err(PlanError::invalid(format!(
                    "Column \"{}\" appeared twice in a relation: {relation}",
                    column.name
                )));
            }
            if indices.last().is_some_and(|last| index != last + 1) {
                return Err(PlanError::invalid(format!(
                    "Clustering columns must appear in the PRIMARY KEY order in multi-column \
                     relations: {relation}"
                )));
            }
            indices.push(index);
        }
        Ok((indices.first().copied().unwrap_or(0), indices.len()))
    }

    fn tuple_type(&self, first: usize, count: usize) -> CqlType {
        let columns = self.table.columns.get(first..first + count).unwrap_or(&[]);
        CqlType::tuple(columns.iter().map(|c| c.ty.clone()))
    }

    fn tuple_row(&mut self, first: usize, count: usize, value: &Term) -> Result<Row, PlanError> {
        let table = self.table;
        let columns = table.columns.get(first..first + count).unwrap_or(&[]);
        match value {
            Term::Tuple(terms, _) => {
                if terms.len() != count {
                    return Err(PlanError::invalid(format!(
                        "Expected {count} elements in value tuple, but got {}: {value}",
                        terms.len()
                    )));
                }
                let mut row = Vec::with_capacity(count);
                for (term, column) in terms.iter().zip(columns) {
                    row.push(self.term(term, &column.name, &column.ty)?);
                }
                Ok(Row::Each(row))
            }
            other => {
                let name: Arc<str> = format!("({})", list(columns, ",")).into();
                let ty = self.tuple_type(first, count);
                Ok(Row::Packed(self.term(other, &name, &ty)?))
            }
        }
    }

    fn tuple(
        &mut self,
        relation: &Relation,
        columns: &[Ident],
        op: Operator,
        value: &Term,
    ) -> Result<(), PlanError> {
        match op {
            Operator::NotEq => {
                let names: Vec<String> = columns.iter().map(ToString::to_string).collect();
                let text = not_equal(&format!("({})", names.join(", ")), value);
                return Err(PlanError::invalid(text));
            }
            Operator::Contains | Operator::ContainsKey | Operator::Like => {
                return Err(PlanError::invalid(format!(
                    "{} cannot be used for multi-column relations",
                    op.symbol()
                )));
            }
            _ => {}
        }
        let (first, count) = self.tuple_columns(relation, columns)?;
        let row = self.tuple_row(first, count, value)?;
        self.add(Restriction { first, count, multi: true, condition: compare(op, row) })
    }

    fn tuple_in(
        &mut self,
        relation: &Relation,
        columns: &[Ident],
        values: &InValues,
    ) -> Result<(), PlanError> {
        let (first, count) = self.tuple_columns(relation, columns)?;
        let condition = match values {
            InValues::List(terms) => {
                let mut rows = Vec::with_capacity(terms.len());
                for term in terms {
                    rows.push(self.tuple_row(first, count, term)?);
                }
                in_condition(rows)
            }
            InValues::Bind(marker) => {
                let tuple = self.tuple_type(first, count);
                let columns = self.table.columns.get(first..first + count).unwrap_or(&[]);
                let name: Arc<str> = format!("in({})", list(columns, ",")).into();
                let ty = CqlType::list(tuple.clone(), false);
                let term = self.term(&Term::Bind(marker.clone()), &name, &ty)?;
                Condition::In(InRows::Marker(term, Some(tuple)))
            }
        };
        self.add(Restriction { first, count, multi: true, condition })
    }

    fn add(&mut self, new: Restriction) -> Result<(), PlanError> {
        let table = self.table;
        let kind = table.columns.get(new.first).map(|c| c.kind);
        match kind {
            Some(ColumnKind::PartitionKey(_)) => merge_into(table, &mut self.partition, new),
            Some(ColumnKind::Clustering { .. }) => self.add_clustering(new),
            _ => merge_into(table, &mut self.other, new),
        }
    }

    fn add_clustering(&mut self, new: Restriction) -> Result<(), PlanError> {
        let table = self.table;
        let name = |index: usize| table.columns.get(index).map_or("", |c| &*c.name);
        let last = self.clustering.last().map(|last| (last.first, last.is_slice()));
        let (first, is_slice) = (new.first, new.is_slice());
        let is_indexed = has_supporting_index(table, &new);
        merge_into(table, &mut self.clustering, new)?;
        let Some((last_first, last_is_slice)) = last else { return Ok(()) };
        if self.context.allow_filtering || is_indexed {
            return Ok(());
        }
        if last_is_slice && first > last_first {
            return Err(PlanError::invalid(format!(
                "Clustering column \"{}\" cannot be restricted (preceding column \"{}\" is \
                 restricted by a non-EQ relation)",
                name(first),
                name(last_first)
            )));
        }
        if first < last_first && is_slice {
            let next = self.clustering.iter().map(|r| r.first).find(|f| *f > first);
            return Err(PlanError::invalid(format!(
                "PRIMARY KEY column \"{}\" cannot be restricted (preceding column \"{}\" is \
                 restricted by a non-EQ relation)",
                name(next.unwrap_or(last_first)),
                name(first)
            )));
        }
        Ok(())
    }

    fn finish(self) -> Result<Restrictions, PlanError> {
        let Planner { table, context, partition, clustering, other, token, expressions, .. } = self;
        if let Some(refusal) = refusal(&expressions, table) {
            return Err(refusal);
        }
        if let Some(ann) = &context.ann {
            ann.check(table, partition.iter().chain(&clustering).chain(&other))?;
        }
        Clause { table, context, partition, clustering, other, token }.finish()
    }
}

/// Checks the restrictions of collections and user types.
fn check_restrictable(column: &Column, op: Operator) -> Result<(), PlanError> {
    if op == Operator::ContainsKey && !matches!(column.ty, CqlType::Map { .. }) {
        return Err(PlanError::invalid(format!(
            "Cannot use CONTAINS KEY on non-map column {}",
            column.name
        )));
    }
    if op == Operator::Contains && !column.ty.is_collection() {
        return Err(PlanError::invalid(format!(
            "Cannot use CONTAINS on non-collection column {}",
            column.name
        )));
    }
    if matches!(op, Operator::Contains | Operator::ContainsKey) {
        return Ok(());
    }
    check_multi_cell(column, op.symbol())
}

fn check_multi_cell(column: &Column, op: &str) -> Result<(), PlanError> {
    if !column.ty.is_multi_cell() {
        return Ok(());
    }
    Err(PlanError::invalid(if column.ty.is_udt() {
        format!(
            "Non-frozen UDT column '{}' ({}) cannot be restricted by any relation",
            column.name,
            column.ty.to_cql_name()
        )
    } else {
        format!(
            "Collection column '{}' ({}) cannot be restricted by a '{op}' relation",
            column.name,
            column.ty.to_cql_name()
        )
    }))
}

/// Type and receiver name of a collection's elements.
fn contained(column: &Column, op: Operator) -> (CqlType, Arc<str>) {
    let key = op == Operator::ContainsKey;
    let ty = match &column.ty {
        CqlType::List { element, .. } | CqlType::Set { element, .. } => (**element).clone(),
        CqlType::Map { key: ty, .. } if key => (**ty).clone(),
        CqlType::Map { value, .. } => (**value).clone(),
        other => other.clone(),
    };
    let what = if key { "key" } else { "value" };
    (ty, format!("{what}({})", column.name).into())
}

fn compare(op: Operator, row: Row) -> Condition {
    let limit = |inclusive| Some(Limit { row: row.clone(), inclusive });
    match op {
        Operator::Gt => Condition::Slice { start: limit(false), end: None },
        Operator::GtEq => Condition::Slice { start: limit(true), end: None },
        Operator::Lt => Condition::Slice { start: None, end: limit(false) },
        Operator::LtEq => Condition::Slice { start: None, end: limit(true) },
        _ => Condition::Eq(row),
    }
}

/// IN of one value is an equality, as in Cassandra.
fn in_condition(mut rows: Vec<Row>) -> Condition {
    if rows.len() == 1
        && let Some(row) = rows.pop()
    {
        return Condition::Eq(row);
    }
    Condition::In(InRows::List(rows))
}

pub(crate) fn list(columns: &[Column], separator: &str) -> String {
    columns.iter().map(|c| &*c.name).collect::<Vec<_>>().join(separator)
}

pub(crate) fn names(columns: &[Column]) -> String {
    list(columns, ", ")
}

fn not_equal(what: &str, value: &Term) -> String {
    format!("Unsupported \"!=\" relation: {what} != {}", text_of(value))
}
