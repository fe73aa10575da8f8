//! INSERT, UPDATE, DELETE, BATCH, TRUNCATE, USE.

use super::{BindMarker, Ident, InValues, Literal, Operator, QualifiedName, Relation, Span, Term};

/// `USING …`. Each an integer literal or bind marker. Written twice, the last one counts, as in
/// Cassandra.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Using {
    /// `TIMESTAMP`, microseconds.
    pub timestamp: Option<Term>,
    /// `TTL`, seconds. Never in DELETE. In BATCH it is parsed, and refused by the planner.
    pub ttl: Option<Term>,
    /// `TIMEOUT` (ScyllaDB's extension): a duration literal or a bind marker.
    pub timeout: Option<Term>,
}

/// `INSERT …`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Insert {
    /// The table.
    pub table: QualifiedName,
    /// The values to insert.
    pub values: InsertValues,
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// `USING`.
    pub using: Using,
}

/// The two forms of INSERT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InsertValues {
    /// `(columns) VALUES (terms)`. The counts may differ, which the planner refuses.
    Columns {
        /// At least one.
        columns: Vec<Ident>,
        /// At least one.
        values: Vec<Term>,
    },
    /// `JSON value [DEFAULT NULL | UNSET]`.
    Json {
        /// The document.
        value: JsonValue,
        /// `DEFAULT UNSET`: columns that are not named stay as they are.
        default_unset: bool,
    },
}

/// The document of INSERT JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JsonValue {
    /// A string literal.
    Literal(Literal),
    /// A bind marker.
    Bind(BindMarker),
}

/// `UPDATE …`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// The table.
    pub table: QualifiedName,
    /// `USING`.
    pub using: Using,
    /// `SET`, at least one.
    pub assignments: Vec<Assignment>,
    /// `WHERE`, at least one.
    pub relations: Vec<Relation>,
    /// `IF`.
    pub conditions: Conditions,
}

/// One assignment of SET.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The column.
    pub column: Ident,
    /// The operation on the column.
    pub operation: Operation,
    /// Position in the text.
    pub span: Span,
}

/// Operation of an assignment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// `c = term`.
    Set(Term),
    /// `c = c + term`, `c += term`, and `c = c -3` (which adds minus three).
    Add(Term),
    /// `c = c - term`, `c -= term`.
    Subtract(Term),
    /// `c = term + c`.
    Prepend(Term),
    /// `c[key] = value`.
    SetElement {
        /// Key or index.
        key: Term,
        /// The value.
        value: Term,
    },
    /// `c.field = value`.
    SetField {
        /// The field.
        field: Ident,
        /// The value.
        value: Term,
    },
}

/// `IF …` of UPDATE, DELETE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conditions {
    /// No IF.
    None,
    /// `IF EXISTS`.
    IfExists,
    /// `IF a AND b`, at least one.
    If(Vec<Condition>),
}

/// One condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The column.
    pub column: Ident,
    /// Part of the column that is compared.
    pub target: ConditionTarget,
    /// The comparison.
    pub comparison: Comparison,
    /// Position in the text.
    pub span: Span,
}

/// Part of a column that a condition compares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConditionTarget {
    /// The whole value.
    Column,
    /// `c[key]`.
    Element(Term),
    /// `c.field`.
    Field(Ident),
}

/// Right side of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `op value`; CONTAINS and CONTAINS KEY only on [`ConditionTarget::Column`], never LIKE.
    Operator(Operator, Term),
    /// `IN …`.
    In(InValues),
}

/// `DELETE …`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delete {
    /// Columns and elements to delete; empty for whole rows.
    pub targets: Vec<DeleteTarget>,
    /// The table.
    pub table: QualifiedName,
    /// `USING` without TTL.
    pub using: Using,
    /// `WHERE`, at least one.
    pub relations: Vec<Relation>,
    /// `IF`.
    pub conditions: Conditions,
}

/// Target of a DELETE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeleteTarget {
    /// `c`.
    Column(Ident),
    /// `c[key]`.
    Element(Ident, Term),
    /// `c.field`.
    Field(Ident, Ident),
}

/// `BEGIN … BATCH … APPLY BATCH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Kind of the batch.
    pub kind: BatchKind,
    /// `USING`.
    pub using: Using,
    /// The statements; may be none.
    pub statements: Vec<BatchEntry>,
}

/// One statement of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant is named after its statement")]
pub enum BatchEntry {
    Insert(Insert),
    Update(Update),
    Delete(Delete),
}

/// Kinds of batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after the keyword")]
pub enum BatchKind {
    Logged,
    Unlogged,
    Counter,
}

/// `TRUNCATE [TABLE] name`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Truncate {
    /// The table.
    pub table: QualifiedName,
    /// `USING TIMEOUT` (ScyllaDB's extension): a duration literal or a bind marker.
    pub timeout: Option<Term>,
}

/// `USE keyspace`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Use {
    /// The keyspace.
    pub keyspace: Ident,
}
