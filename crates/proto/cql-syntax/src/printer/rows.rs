//! Statements on rows.

use std::fmt::{self, Display, Formatter};

use super::{commas, join, when};
use crate::ast::{
    Assignment, Batch, BatchEntry, BatchKind, Comparison, Condition, ConditionTarget, Conditions,
    Delete, DeleteTarget, InValues, Insert, InsertValues, JsonValue, Operation, Order, OrderBy,
    PruneView, Relation, RelationKind, Select, SelectItem, Selection, Term, Truncate, Update, Use,
    Using,
};

/// Writes `[WHERE a AND b]`.
pub(super) fn where_clause(f: &mut Formatter<'_>, relations: &[Relation]) -> fmt::Result {
    when(f, !relations.is_empty(), " WHERE ")?;
    join(f, relations, " AND ", |f, relation| relation.fmt(f))
}

fn timeout(f: &mut Formatter<'_>, timeout: Option<&Term>) -> fmt::Result {
    match timeout {
        Some(term) => write!(f, " USING TIMEOUT {term}"),
        None => Ok(()),
    }
}

impl Display for Select {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("SELECT ")?;
        when(f, self.json, "JSON ")?;
        when(f, self.distinct, "DISTINCT ")?;
        write!(f, "{} FROM {}", self.selection, self.table)?;
        where_clause(f, &self.relations)?;
        when(f, !self.group_by.is_empty(), " GROUP BY ")?;
        commas(f, &self.group_by)?;
        when(f, !self.order_by.is_empty(), " ORDER BY ")?;
        commas(f, &self.order_by)?;
        if let Some(limit) = &self.per_partition_limit {
            write!(f, " PER PARTITION LIMIT {limit}")?;
        }
        if let Some(limit) = &self.limit {
            write!(f, " LIMIT {limit}")?;
        }
        when(f, self.allow_filtering, " ALLOW FILTERING")?;
        when(f, self.bypass_cache, " BYPASS CACHE")?;
        timeout(f, self.timeout.as_ref())
    }
}

impl Display for PruneView {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "PRUNE MATERIALIZED VIEW {}", self.view)?;
        where_clause(f, &self.relations)?;
        timeout(f, self.timeout.as_ref())
    }
}

impl Display for Selection {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Selection::Wildcard => f.write_str("*"),
            Selection::Items(items) => commas(f, items),
        }
    }
}

impl Display for SelectItem {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.selector.fmt(f)?;
        match &self.alias {
            Some(alias) => write!(f, " AS {alias}"),
            None => Ok(()),
        }
    }
}

impl Display for OrderBy {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.column.fmt(f)?;
        if let Some(term) = &self.ann_of {
            write!(f, " ANN OF {term}")?;
        }
        when(f, self.order == Order::Desc, " DESC")
    }
}

impl Display for InValues {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            InValues::Bind(marker) => marker.fmt(f),
            InValues::List(terms) => {
                f.write_str("(")?;
                commas(f, terms)?;
                f.write_str(")")
            }
        }
    }
}

impl Display for Relation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.kind {
            RelationKind::Column { column, op, value } => {
                write!(f, "{column} {} {value}", op.symbol())
            }
            RelationKind::ColumnIn { column, values } => write!(f, "{column} IN {values}"),
            RelationKind::Element { column, key, op, value } => {
                write!(f, "{column}[{key}] {} {value}", op.symbol())
            }
            RelationKind::IsNotNull { column } => write!(f, "{column} IS NOT NULL"),
            RelationKind::Between { column, low, high } => {
                write!(f, "{column} BETWEEN {low} AND {high}")
            }
            RelationKind::Token { columns, op, value } => {
                f.write_str("token(")?;
                commas(f, columns)?;
                write!(f, ") {} {value}", op.symbol())
            }
            RelationKind::TokenBetween { columns, low, high } => {
                f.write_str("token(")?;
                commas(f, columns)?;
                write!(f, ") BETWEEN {low} AND {high}")
            }
            RelationKind::Tuple { columns, op, value } => {
                f.write_str("(")?;
                commas(f, columns)?;
                write!(f, ") {} {value}", op.symbol())
            }
            RelationKind::TupleIn { columns, values } => {
                f.write_str("(")?;
                commas(f, columns)?;
                write!(f, ") IN {values}")
            }
            RelationKind::Index { index, value } => write!(f, "expr({index}, {value})"),
        }
    }
}

impl Display for Using {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let parts =
            [("TIMESTAMP", &self.timestamp), ("TTL", &self.ttl), ("TIMEOUT", &self.timeout)];
        let mut before = " USING ";
        for (name, term) in parts {
            if let Some(term) = term {
                write!(f, "{before}{name} {term}")?;
                before = " AND ";
            }
        }
        Ok(())
    }
}

impl Display for Insert {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "INSERT INTO {}", self.table)?;
        match &self.values {
            InsertValues::Columns { columns, values } => {
                f.write_str(" (")?;
                commas(f, columns)?;
                f.write_str(") VALUES (")?;
                commas(f, values)?;
                f.write_str(")")?;
            }
            InsertValues::Json { value, default_unset } => {
                match value {
                    JsonValue::Literal(literal) => write!(f, " JSON {literal}")?,
                    JsonValue::Bind(marker) => write!(f, " JSON {marker}")?,
                }
                when(f, *default_unset, " DEFAULT UNSET")?;
            }
        }
        when(f, self.if_not_exists, " IF NOT EXISTS")?;
        self.using.fmt(f)
    }
}

impl Display for Update {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "UPDATE {}{} SET ", self.table, self.using)?;
        commas(f, &self.assignments)?;
        where_clause(f, &self.relations)?;
        self.conditions.fmt(f)
    }
}

impl Display for Assignment {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let column = &self.column;
        match &self.operation {
            Operation::Set(value) => write!(f, "{column} = {value}"),
            Operation::Add(value) => write!(f, "{column} = {column} + {value}"),
            Operation::Subtract(value) => write!(f, "{column} = {column} - {value}"),
            Operation::Prepend(value) => write!(f, "{column} = {value} + {column}"),
            Operation::SetElement { key, value } => write!(f, "{column}[{key}] = {value}"),
            Operation::SetField { field, value } => write!(f, "{column}.{field} = {value}"),
        }
    }
}

impl Display for Conditions {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Conditions::None => Ok(()),
            Conditions::IfExists => f.write_str(" IF EXISTS"),
            Conditions::If(conditions) => {
                f.write_str(" IF ")?;
                join(f, conditions, " AND ", |f, condition| condition.fmt(f))
            }
        }
    }
}

impl Display for Condition {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.column.fmt(f)?;
        match &self.target {
            ConditionTarget::Column => {}
            ConditionTarget::Element(key) => write!(f, "[{key}]")?,
            ConditionTarget::Field(field) => write!(f, ".{field}")?,
        }
        match &self.comparison {
            Comparison::Operator(op, value) => write!(f, " {} {value}", op.symbol()),
            Comparison::In(values) => write!(f, " IN {values}"),
        }
    }
}

impl Display for DeleteTarget {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            DeleteTarget::Column(column) => column.fmt(f),
            DeleteTarget::Element(column, key) => write!(f, "{column}[{key}]"),
            DeleteTarget::Field(column, field) => write!(f, "{column}.{field}"),
        }
    }
}

impl Display for Delete {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("DELETE ")?;
        commas(f, &self.targets)?;
        when(f, !self.targets.is_empty(), " ")?;
        write!(f, "FROM {}{}", self.table, self.using)?;
        where_clause(f, &self.relations)?;
        self.conditions.fmt(f)
    }
}

impl Display for Batch {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            BatchKind::Logged => "BEGIN BATCH",
            BatchKind::Unlogged => "BEGIN UNLOGGED BATCH",
            BatchKind::Counter => "BEGIN COUNTER BATCH",
        })?;
        self.using.fmt(f)?;
        for statement in &self.statements {
            match statement {
                BatchEntry::Insert(s) => write!(f, " {s};")?,
                BatchEntry::Update(s) => write!(f, " {s};")?,
                BatchEntry::Delete(s) => write!(f, " {s};")?,
            }
        }
        f.write_str(" APPLY BATCH")
    }
}

impl Display for Truncate {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "TRUNCATE TABLE {}", self.table)?;
        timeout(f, self.timeout.as_ref())
    }
}

impl Display for Use {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "USE {}", self.keyspace)
    }
}
