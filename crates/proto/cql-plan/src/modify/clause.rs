//! The WHERE clause of modifications: their partitions and rows.
//!
//! Source of rules and texts: `cql3.restrictions.*` for statements that are not SELECT.

use std::sync::Arc;

use cql_syntax::ast::{Ident, InValues, Operator, Relation, RelationKind, Term};
use schema::{Column, ColumnKind, Table};

use super::{ModifyKind, existing_column};
use crate::context::PlanContext;
use crate::error::PlanError;
use crate::term::Binds;
use crate::term::{
    PlannedIn, PlannedTerm, PlannedTuple, PlannedTupleIn, Receiver, plan_in, plan_term, plan_tuple,
    plan_tuple_in, text_of,
};

/// Equality or IN on one column.
#[derive(Clone, Debug)]
pub(super) enum KeyPart {
    Equal(Arc<str>, PlannedTerm),
    In(Arc<str>, PlannedIn),
}

/// Equality or IN on one or more clustering columns.
#[derive(Clone, Debug)]
pub(super) enum RowPart {
    One(KeyPart),
    Tuple(Vec<Arc<str>>, PlannedTuple),
    TupleIn(Vec<Arc<str>>, PlannedTupleIn),
    /// One of the last columns of a compact table, left out.
    Absent,
}

impl RowPart {
    fn width(&self) -> usize {
        match self {
            RowPart::One(_) | RowPart::Absent => 1,
            RowPart::Tuple(columns, _) | RowPart::TupleIn(columns, _) => columns.len(),
        }
    }
}

/// One end of a range of values.
#[derive(Clone, Debug)]
pub(super) struct SliceBound {
    pub(super) inclusive: bool,
    pub(super) columns: Vec<Arc<str>>,
    pub(super) value: SliceValue,
}

/// Value that a bound is compared with.
#[derive(Clone, Debug)]
pub(super) enum SliceValue {
    One(PlannedTerm),
    Tuple(PlannedTuple),
}

/// Rows of a partition.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "one per plan")]
pub(super) enum ClusteringPlan {
    /// Parts for a prefix of the clustering columns, `width` columns in all.
    Prefix { parts: Vec<RowPart>, width: usize },
    /// Parts for a prefix, then a range of the next columns, which of those descend.
    Slice {
        parts: Vec<RowPart>,
        lower: Option<SliceBound>,
        upper: Option<SliceBound>,
        reversed: Vec<bool>,
    },
}

/// Restriction of the clustering columns that start at one position.
#[derive(Debug)]
enum Restriction {
    Row(RowPart),
    /// Lower and upper bound as written, in the order of values.
    Slice {
        lower: Option<SliceBound>,
        upper: Option<SliceBound>,
    },
}

impl Restriction {
    fn is_slice(&self) -> bool {
        matches!(self, Restriction::Slice { .. })
    }
}

/// A WHERE clause while its relations are taken in.
pub(super) struct WhereClause<'t> {
    table: &'t Table,
    kind: ModifyKind,
    key: Vec<Option<KeyPart>>,
    /// A relation on the partition key that is neither = nor IN.
    key_slice: bool,
    /// By position of their first column.
    clustering: Vec<Option<Restriction>>,
    others: Vec<Arc<str>>,
}

fn symbol_of(kind: &RelationKind) -> Option<Operator> {
    match kind {
        RelationKind::Column { op, .. }
        | RelationKind::Element { op, .. }
        | RelationKind::Token { op, .. }
        | RelationKind::Tuple { op, .. } => Some(*op),
        _ => None,
    }
}

fn names(columns: &[&Column]) -> Vec<Arc<str>> {
    columns.iter().map(|c| c.name.clone()).collect()
}

impl<'t> WhereClause<'t> {
    pub(super) fn new(table: &'t Table, kind: ModifyKind) -> Self {
        WhereClause {
            table,
            kind,
            key: table.partition_key().iter().map(|_| None).collect(),
            key_slice: false,
            clustering: table.clustering().iter().map(|_| None).collect(),
            others: Vec::new(),
        }
    }

    /// `column = term` of INSERT.
    pub(super) fn equal(&mut self, column: &Column, term: PlannedTerm) -> Result<(), PlanError> {
        self.restrict(column, KeyPart::Equal(column.name.clone(), term))
    }

    /// Takes in one relation.
    pub(super) fn add(
        &mut self,
        relation: &Relation,
        cx: &PlanContext<'_>,
        binds: &mut Binds,
    ) -> Result<(), PlanError> {
        let refuse = |text: String| Err(PlanError::invalid(text));
        if let Some(op @ (Operator::Contains | Operator::ContainsKey)) = symbol_of(&relation.kind) {
            return refuse(format!("Cannot use {} with {}", self.kind.name(), op.symbol()));
        }
        match &relation.kind {
            RelationKind::Column { column, op, value } => {
                self.column_relation(column, *op, value, cx, binds)
            }
            RelationKind::ColumnIn { column, values } => self.column_in(column, values, cx, binds),
            RelationKind::Tuple { columns, op, value } => {
                let written = format!(" {} {}", op.symbol(), text_of(value));
                let columns = self.tuple_columns(columns, &written)?;
                if matches!(op, Operator::NotEq | Operator::Like) {
                    return refuse(format!(
                        "{} cannot be used for multi-column relations",
                        op.symbol()
                    ));
                }
                let planned = plan_tuple(value, &self.receivers(&columns), cx, binds)?;
                if *op == Operator::Eq {
                    self.restrict_row(&columns, RowPart::Tuple(names(&columns), planned))
                } else {
                    self.slice(&columns, *op, SliceValue::Tuple(planned))
                }
            }
            RelationKind::TupleIn { columns, values } => {
                let written = match values {
                    InValues::List(terms) => {
                        let terms: Vec<String> = terms.iter().map(text_of).collect();
                        format!(" IN ({})", terms.join(", "))
                    }
                    InValues::Bind(_) => " IN ?".to_owned(),
                };
                let columns = self.tuple_columns(columns, &written)?;
                let planned = plan_tuple_in(values, &self.receivers(&columns), cx, binds)?;
                self.restrict_row(&columns, RowPart::TupleIn(names(&columns), planned))
            }
            RelationKind::Token { .. } | RelationKind::TokenBetween { .. } => refuse(format!(
                "The token function cannot be used in WHERE clauses for {} statements",
                self.kind.name()
            )),
            RelationKind::Element { column, .. } => {
                let column = existing_column(self.table, &column.text)?;
                refuse(format!("Non PRIMARY KEY columns found in where clause: {} ", column.name))
            }
            RelationKind::IsNotNull { column } => {
                refuse(format!("Unsupported restriction: {} IS NOT NULL", column.to_cql()))
            }
            RelationKind::Between { .. } => {
                Err(PlanError::unsupported("BETWEEN in a modification"))
            }
            RelationKind::Index { .. } => refuse(
                "Custom index expressions cannot be used in WHERE clauses for UPDATE or DELETE \
                 statements"
                    .to_owned(),
            ),
        }
    }

    fn column_relation(
        &mut self,
        ident: &Ident,
        op: Operator,
        value: &Term,
        cx: &PlanContext<'_>,
        binds: &mut Binds,
    ) -> Result<(), PlanError> {
        let column = existing_column(self.table, &ident.text)?;
        let receiver = Receiver::column(self.table, column);
        if op == Operator::Like {
            plan_term(value, &receiver, cx, binds)?;
            return Err(PlanError::invalid(format!(
                "LIKE restriction is only supported on properly indexed columns. {} LIKE {} is \
                 not valid.",
                ident.to_cql(),
                text_of(value)
            )));
        }
        check_restrictable(column, op.symbol())?;
        match op {
            Operator::NotEq => Err(PlanError::invalid(format!(
                "Unsupported \"!=\" relation: {} != {}",
                types::name::quote_identifier(&column.name),
                text_of(value)
            ))),
            Operator::Eq => {
                let term = plan_term(value, &receiver, cx, binds)?;
                self.restrict(column, KeyPart::Equal(column.name.clone(), term))
            }
            _ => {
                check_sliceable(column)?;
                let term = plan_term(value, &receiver, cx, binds)?;
                self.slice(&[column], op, SliceValue::One(term))
            }
        }
    }

    fn column_in(
        &mut self,
        ident: &Ident,
        values: &InValues,
        cx: &PlanContext<'_>,
        binds: &mut Binds,
    ) -> Result<(), PlanError> {
        let column = existing_column(self.table, &ident.text)?;
        check_restrictable(column, "IN")?;
        let receiver = Receiver::column(self.table, column);
        let part = match plan_in(values, &receiver, cx, binds)? {
            PlannedIn::Terms(mut terms) if terms.len() == 1 => {
                KeyPart::Equal(column.name.clone(), terms.remove(0))
            }
            planned => KeyPart::In(column.name.clone(), planned),
        };
        self.restrict(column, part)
    }

    fn receivers(&self, columns: &[&'t Column]) -> Vec<Receiver<'t>> {
        columns.iter().map(|column| Receiver::column(self.table, column)).collect()
    }

    fn tuple_columns(&self, idents: &[Ident], rest: &str) -> Result<Vec<&'t Column>, PlanError> {
        let mut columns: Vec<&Column> = Vec::new();
        let mut previous: Option<u16> = None;
        for ident in idents {
            let column = existing_column(self.table, &ident.text)?;
            let ColumnKind::Clustering { position, .. } = column.kind else {
                return Err(PlanError::invalid(format!(
                    "Multi-column relations can only be applied to clustering columns but was \
                     applied to: {}",
                    column.name
                )));
            };
            let written: Vec<String> = idents.iter().map(Ident::to_cql).collect();
            let written = format!("({}){rest}", written.join(", "));
            if columns.iter().any(|c| c.name == column.name) {
                return Err(PlanError::invalid(format!(
                    "Column \"{}\" appeared twice in a relation: {written}",
                    column.name
                )));
            }
            if previous.is_some_and(|p| position != p.saturating_add(1)) {
                return Err(PlanError::invalid(format!(
                    "Clustering columns must appear in the PRIMARY KEY order in multi-column \
                     relations: {written}"
                )));
            }
            previous = Some(position);
            columns.push(column);
        }
        Ok(columns)
    }

    fn restrict(&mut self, column: &Column, part: KeyPart) -> Result<(), PlanError> {
        match column.kind {
            ColumnKind::PartitionKey(position) => {
                let Some(slot) = self.key.get_mut(usize::from(position)) else { return Ok(()) };
                match slot {
                    None => *slot = Some(part),
                    Some(KeyPart::Equal(name, _)) => return Err(twice(name, "an Equal")),
                    Some(KeyPart::In(name, _)) => return Err(twice(name, "a IN")),
                }
                Ok(())
            }
            ColumnKind::Clustering { .. } => self.restrict_row(&[column], RowPart::One(part)),
            ColumnKind::Static | ColumnKind::Regular => {
                if !self.others.contains(&column.name) {
                    self.others.push(column.name.clone());
                }
                Ok(())
            }
        }
    }

    /// Merges an equality or IN into the existing restrictions.
    fn restrict_row(&mut self, columns: &[&Column], part: RowPart) -> Result<(), PlanError> {
        let Some(first) = columns.first() else { return Ok(()) };
        let at = position_of(first);
        if let Some(existing) = self.covering(at, part.width()) {
            return Err(self.conflict(existing, columns, false));
        }
        self.check_order(at, false, first)?;
        if let Some(slot) = self.clustering.get_mut(at) {
            *slot = Some(Restriction::Row(part));
        }
        Ok(())
    }

    fn slice(
        &mut self,
        columns: &[&Column],
        op: Operator,
        value: SliceValue,
    ) -> Result<(), PlanError> {
        let Some(first) = columns.first() else { return Ok(()) };
        match first.kind {
            ColumnKind::PartitionKey(_) => {
                self.key_slice = true;
                return self.restrict(first, placeholder(first));
            }
            ColumnKind::Static | ColumnKind::Regular => {
                return self.restrict(first, placeholder(first));
            }
            ColumnKind::Clustering { .. } => {}
        }
        let at = position_of(first);
        let is_lower = matches!(op, Operator::Gt | Operator::GtEq);
        let inclusive = matches!(op, Operator::GtEq | Operator::LtEq);
        let bound = SliceBound { inclusive, columns: names(columns), value };
        if let Some(existing) = self.covering(at, columns.len()) {
            let mergeable = existing == at
                && self
                    .clustering
                    .get(at)
                    .is_some_and(|r| r.as_ref().is_some_and(Restriction::is_slice));
            if !mergeable {
                return Err(self.conflict(existing, columns, true));
            }
        }
        self.check_order(at, true, first)?;
        let Some(slot) = self.clustering.get_mut(at) else { return Ok(()) };
        let restriction = slot.get_or_insert(Restriction::Slice { lower: None, upper: None });
        let Restriction::Slice { lower, upper } = restriction else { return Ok(()) };
        let (end, what) = if is_lower { (lower, "start") } else { (upper, "end") };
        if let Some(earlier) = end {
            let width = earlier.columns.len().min(columns.len());
            let common: Vec<&str> = columns.iter().take(width).map(|c| &*c.name).collect();
            return Err(PlanError::invalid(format!(
                "More than one restriction was found for the {what} bound on {}",
                common.join(" ,")
            )));
        }
        *end = Some(bound);
        Ok(())
    }

    /// Position of a restriction that shares a column with `width` columns from `at` on.
    fn covering(&self, at: usize, width: usize) -> Option<usize> {
        let overlap = |start: usize, restriction: &Restriction| {
            let end = start + restriction_width(restriction);
            start < at + width && at < end
        };
        self.clustering
            .iter()
            .enumerate()
            .find(|(i, r)| r.as_ref().is_some_and(|r| overlap(*i, r)))
            .map(|(i, _)| i)
    }

    fn conflict(&self, existing: usize, columns: &[&Column], new_is_slice: bool) -> PlanError {
        let column_name = columns.first().map_or_else(|| Arc::from(""), |c| c.name.clone());
        let multi: Vec<&str> = columns.iter().map(|c| &*c.name).collect();
        let existing_is_one =
            matches!(self.clustering.get(existing), Some(Some(Restriction::Row(RowPart::One(_)))));
        let name = match self.table.clustering().get(existing) {
            Some(column) if existing_is_one => column.name.to_string(),
            _ => multi.join(" ,"),
        };
        match self.clustering.get(existing).and_then(Option::as_ref) {
            Some(Restriction::Slice { .. }) if new_is_slice => PlanError::invalid(format!(
                "Column \"{column_name}\" cannot be restricted by two inequalities not starting \
                 with the same column"
            )),
            Some(Restriction::Slice { .. }) => PlanError::invalid(format!(
                "Column \"{column_name}\" cannot be restricted by both an equality and an \
                 inequality relation"
            )),
            Some(Restriction::Row(RowPart::One(KeyPart::In(..)) | RowPart::TupleIn(..))) => {
                twice(&name, "a IN")
            }
            _ => twice(&name, "an Equal"),
        }
    }

    /// Source: `ClusteringColumnRestrictions.mergeWith`.
    fn check_order(&self, at: usize, is_slice: bool, new: &Column) -> Result<(), PlanError> {
        let last =
            self.clustering.iter().enumerate().rev().find_map(|(i, r)| r.as_ref().map(|r| (i, r)));
        let Some((last_at, last)) = last else { return Ok(()) };
        let name_at = |i: usize| self.table.clustering().get(i).map_or("", |c| &*c.name);
        if last.is_slice() && at > last_at {
            return Err(PlanError::invalid(format!(
                "Clustering column \"{}\" cannot be restricted (preceding column \"{}\" is \
                 restricted by a non-EQ relation)",
                new.name,
                name_at(last_at)
            )));
        }
        if at < last_at && is_slice {
            return Err(PlanError::invalid(format!(
                "PRIMARY KEY column \"{}\" cannot be restricted (preceding column \"{}\" is \
                 restricted by a non-EQ relation)",
                name_at(at + 1),
                new.name
            )));
        }
        Ok(())
    }

    /// Checks the whole and gives the plans of key and clustering. `only_statics`: the statement
    /// touches static columns and no others.
    pub(super) fn finish(
        self,
        only_statics: bool,
    ) -> Result<(Vec<KeyPart>, ClusteringPlan), PlanError> {
        let refuse = |text: String| Err(PlanError::invalid(text));
        let verb = self.kind.name();
        let missing: Vec<&str> = self
            .table
            .partition_key()
            .iter()
            .zip(&self.key)
            .filter(|(_, part)| part.is_none())
            .map(|(column, _)| &*column.name)
            .collect();
        if !missing.is_empty() {
            return refuse(format!("Some partition key parts are missing: {}", missing.join(", ")));
        }
        if self.key_slice {
            return refuse(format!(
                "Only EQ and IN relation are supported on the partition key (unless you use the \
                 token() function) for {verb} statements"
            ));
        }
        let has_clustering = self.clustering.iter().any(Option::is_some);
        if only_statics && has_clustering && self.kind != ModifyKind::Insert {
            return refuse(format!(
                "Invalid restrictions on clustering columns since the {verb} statement modifies \
                 only static columns"
            ));
        }
        let mut absent = 0;
        if self.kind == ModifyKind::Delete {
            self.check_prefix()?;
        } else {
            let sliced = self.clustering.iter().flatten().any(Restriction::is_slice);
            if sliced {
                return refuse(format!(
                    "Slice restrictions are not supported on the clustering columns in {verb} \
                     statements"
                ));
            }
            let missing = self.unrestricted();
            // INSERT of static columns alone may leave the clustering out, but then all of it.
            if self.table.compact_form().is_some() && has_clustering {
                // The last clustering columns of a compact table may be left out: they are null then.
                self.check_prefix()?;
                absent = missing.len();
            } else if !missing.is_empty() && (!only_statics || has_clustering) {
                return refuse(format!("Some clustering keys are missing: {}", missing.join(", ")));
            }
        }
        if !self.others.is_empty() {
            return refuse(format!(
                "Non PRIMARY KEY columns found in where clause: {} ",
                self.others.join(", ")
            ));
        }
        let key = self.key.into_iter().flatten().collect();
        Ok((key, clustering_plan(self.table, self.clustering, absent)))
    }

    fn unrestricted(&self) -> Vec<&str> {
        let mut missing = Vec::new();
        let mut covered = 0;
        for (i, (column, restriction)) in
            self.table.clustering().iter().zip(&self.clustering).enumerate()
        {
            match restriction {
                Some(restriction) => covered = i + restriction_width(restriction),
                None if i >= covered => missing.push(&*column.name),
                None => {}
            }
        }
        missing
    }

    /// No gap before a restricted column.
    fn check_prefix(&self) -> Result<(), PlanError> {
        let columns = self.table.clustering();
        let mut expected = 0;
        for (i, restriction) in self.clustering.iter().enumerate() {
            let Some(restriction) = restriction else { continue };
            if i != expected {
                let name = |at: usize| columns.get(at).map_or("", |c| &*c.name);
                return Err(PlanError::invalid(format!(
                    "PRIMARY KEY column \"{}\" cannot be restricted as preceding column \"{}\" is \
                     not restricted",
                    name(i),
                    name(expected)
                )));
            }
            expected = i + restriction_width(restriction);
        }
        Ok(())
    }
}

fn placeholder(column: &Column) -> KeyPart {
    KeyPart::Equal(column.name.clone(), PlannedTerm::Null)
}

fn position_of(column: &Column) -> usize {
    match column.kind {
        ColumnKind::Clustering { position, .. } => usize::from(position),
        _ => 0,
    }
}

fn is_reversed(table: &Table, at: usize) -> bool {
    table
        .clustering()
        .get(at)
        .is_some_and(|c| matches!(c.kind, ColumnKind::Clustering { reversed: true, .. }))
}

fn restriction_width(restriction: &Restriction) -> usize {
    match restriction {
        Restriction::Row(part) => part.width(),
        Restriction::Slice { lower, upper } => {
            let width = |b: &Option<SliceBound>| b.as_ref().map_or(0, |b| b.columns.len());
            width(lower).max(width(upper)).max(1)
        }
    }
}

fn twice(name: &str, what: &str) -> PlanError {
    PlanError::invalid(format!(
        "{name} cannot be restricted by more than one relation if it includes {what}"
    ))
}

fn check_restrictable(column: &Column, op: &str) -> Result<(), PlanError> {
    if !column.ty.is_multi_cell() {
        return Ok(());
    }
    Err(PlanError::invalid(if column.ty.is_udt() {
        format!(
            "Non-frozen UDT column '{}' ({}) cannot be restricted by any relation",
            column.name, column.ty
        )
    } else {
        format!(
            "Collection column '{}' ({}) cannot be restricted by a '{op}' relation",
            column.name, column.ty
        )
    }))
}

fn check_sliceable(column: &Column) -> Result<(), PlanError> {
    let ty = &column.ty;
    if !ty.contains_duration() {
        return Ok(());
    }
    let what = if ty.is_collection() {
        "collections containing durations"
    } else if ty.is_tuple() {
        "tuples containing durations"
    } else if ty.is_udt() {
        "UDTs containing durations"
    } else {
        "duration columns"
    };
    Err(PlanError::invalid(format!("Slice restrictions are not supported on {what}")))
}

/// `absent`: number of null columns after the restricted ones.
fn clustering_plan(
    table: &Table,
    restrictions: Vec<Option<Restriction>>,
    absent: usize,
) -> ClusteringPlan {
    let mut parts = Vec::new();
    let mut width = 0;
    for restriction in restrictions.into_iter().flatten() {
        match restriction {
            Restriction::Row(part) => {
                width += part.width();
                parts.push(part);
            }
            Restriction::Slice { lower, upper } => {
                let wide = [&lower, &upper]
                    .into_iter()
                    .flatten()
                    .map(|b| b.columns.len())
                    .max()
                    .unwrap_or(1);
                let reversed = (width..width + wide).map(|at| is_reversed(table, at)).collect();
                return ClusteringPlan::Slice { parts, lower, upper, reversed };
            }
        }
    }
    parts.extend(std::iter::repeat_n(RowPart::Absent, absent));
    ClusteringPlan::Prefix { parts, width: width + absent }
}
