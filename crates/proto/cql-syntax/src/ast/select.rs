//! SELECT and the parts that it shares: selectors, relations, orderings.

use super::{
    ArithmeticOp, BindMarker, FunctionName, Ident, Literal, NativeType, QualifiedName, RawType,
    Span, Term,
};

/// `SELECT …`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Select {
    /// `SELECT JSON`.
    pub json: bool,
    /// `SELECT DISTINCT`.
    pub distinct: bool,
    /// The selection.
    pub selection: Selection,
    /// The table or view read.
    pub table: QualifiedName,
    /// `WHERE`, all joined by AND; empty without one.
    pub relations: Vec<Relation>,
    /// `GROUP BY`.
    pub group_by: Vec<Selector>,
    /// `ORDER BY`.
    pub order_by: Vec<OrderBy>,
    /// `PER PARTITION LIMIT`: an integer literal or a bind marker.
    pub per_partition_limit: Option<Term>,
    /// `LIMIT`: an integer literal or a bind marker.
    pub limit: Option<Term>,
    /// `ALLOW FILTERING`.
    pub allow_filtering: bool,
    /// `BYPASS CACHE` (ScyllaDB's extension).
    pub bypass_cache: bool,
    /// `USING TIMEOUT` (ScyllaDB's extension): a duration literal or a bind marker.
    pub timeout: Option<Term>,
}

/// `*` or a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// `*`.
    Wildcard,
    /// At least one.
    Items(Vec<SelectItem>),
}

/// One selected expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectItem {
    /// The selector.
    pub selector: Selector,
    /// `AS alias`.
    pub alias: Option<Ident>,
    /// Position of the selector in the text, without the alias.
    pub span: Span,
}

/// An expression in a selection or GROUP BY.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// A column.
    Column(Ident),
    /// A constant.
    Literal(Literal),
    /// `NULL`.
    Null(Span),
    /// `?` or `:name`.
    Bind(BindMarker),
    /// `COUNT(*)`.
    CountRows(Span),
    /// `WRITETIME(x)`, `MAXWRITETIME(x)`, `TTL(x)`.
    Metadata {
        /// Kind of metadata.
        kind: MetadataKind,
        /// A column, or fields and elements of one.
        target: Box<Selector>,
        /// Position in the text.
        span: Span,
    },
    /// `CAST(x AS type)`.
    Cast {
        /// The value to convert.
        selector: Box<Selector>,
        /// The type it is converted to.
        ty: NativeType,
        /// Position in the text.
        span: Span,
    },
    /// `name(args)`.
    FunctionCall {
        /// The function.
        name: FunctionName,
        /// The arguments.
        args: Vec<Selector>,
        /// Position in the text.
        span: Span,
    },
    /// `x.field`.
    Field {
        /// The user type value.
        receiver: Box<Selector>,
        /// The field.
        field: Ident,
    },
    /// `x[key]`.
    Element {
        /// The collection.
        receiver: Box<Selector>,
        /// Key or index.
        key: Box<Term>,
    },
    /// `x[from..to]`; at least one bound.
    Slice {
        /// The collection.
        receiver: Box<Selector>,
        /// Lower bound, inclusive.
        from: Option<Box<Term>>,
        /// Upper bound, inclusive.
        to: Option<Box<Term>>,
    },
    /// `(type) x`.
    TypeHint {
        /// The type in parentheses.
        ty: RawType,
        /// The value that the hint applies to.
        selector: Box<Selector>,
        /// Position in the text.
        span: Span,
    },
    /// `(a)` or `(a, b)`: parentheses when there is one and no tuple is expected, else a tuple.
    Tuple(Vec<Selector>, Span),
    /// `[a, b]`.
    List(Vec<Selector>, Span),
    /// `{a, b}` or `{}`.
    Set(Vec<Selector>, Span),
    /// `{a: b}`; a user type value when the keys are plain names of its fields.
    MapOrUdt(Vec<(Selector, Selector)>, Span),
    /// `- x`.
    Negate(Box<Selector>, Span),
    /// `left op right`.
    Binary {
        /// The operator.
        op: ArithmeticOp,
        /// Left operand.
        left: Box<Selector>,
        /// Right operand.
        right: Box<Selector>,
    },
}

/// Metadata of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetadataKind {
    /// `WRITETIME`.
    WriteTime,
    /// `MAXWRITETIME`.
    MaxWriteTime,
    /// `TTL`.
    Ttl,
}

impl MetadataKind {
    /// The function's name, lower case.
    pub fn name(self) -> &'static str {
        match self {
            MetadataKind::WriteTime => "writetime",
            MetadataKind::MaxWriteTime => "maxwritetime",
            MetadataKind::Ttl => "ttl",
        }
    }
}

/// One term of a WHERE clause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relation {
    /// The relation.
    pub kind: RelationKind,
    /// Position in the text.
    pub span: Span,
}

/// The forms of a relation. Parentheses around a relation leave no trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RelationKind {
    /// `column op value`, CONTAINS, CONTAINS KEY and LIKE among the operators.
    Column {
        /// The column; may be the empty name of a dense table's value.
        column: Ident,
        /// The operator.
        op: Operator,
        /// The value.
        value: Term,
    },
    /// `column IN …`.
    ColumnIn {
        /// The column.
        column: Ident,
        /// The values.
        values: InValues,
    },
    /// `column[key] op value`.
    Element {
        /// The map.
        column: Ident,
        /// The key.
        key: Term,
        /// Comparison only.
        op: Operator,
        /// The value.
        value: Term,
    },
    /// `column IS NOT NULL`.
    IsNotNull {
        /// The column.
        column: Ident,
    },
    /// `column BETWEEN low AND high`. Not in Cassandra 5.0's grammar (it came with 5.1).
    Between {
        /// The column.
        column: Ident,
        /// Lower bound, inclusive.
        low: Term,
        /// Upper bound, inclusive.
        high: Term,
    },
    /// `token(columns) op value`.
    Token {
        /// The partition key columns, at least one.
        columns: Vec<Ident>,
        /// Comparison only.
        op: Operator,
        /// The value.
        value: Term,
    },
    /// `token(columns) BETWEEN low AND high`. Not in Cassandra 5.0's grammar.
    TokenBetween {
        /// The partition key columns, at least one.
        columns: Vec<Ident>,
        /// Lower bound, inclusive.
        low: Term,
        /// Upper bound, inclusive.
        high: Term,
    },
    /// `(a, b) op value`.
    Tuple {
        /// The clustering columns, at least one.
        columns: Vec<Ident>,
        /// Comparison only.
        op: Operator,
        /// [`Term::Tuple`] or [`Term::Bind`].
        value: Term,
    },
    /// `(a, b) IN …`.
    TupleIn {
        /// The clustering columns, at least one.
        columns: Vec<Ident>,
        /// The values: each [`Term::Tuple`], or each [`Term::Bind`].
        values: InValues,
    },
    /// `expr(index, value)`.
    Index {
        /// The index.
        index: Ident,
        /// The value that the index interprets.
        value: Term,
    },
}

/// Right side of IN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InValues {
    /// `(a, b)`; may be empty.
    List(Vec<Term>),
    /// One marker for the whole list.
    Bind(BindMarker),
}

/// Comparison operators of relations and conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after the operation")]
pub enum Operator {
    Eq,
    NotEq,
    Lt,
    LtEq,
    Gt,
    GtEq,
    Contains,
    ContainsKey,
    Like,
}

impl Operator {
    /// The operator as written.
    pub fn symbol(self) -> &'static str {
        match self {
            Operator::Eq => "=",
            Operator::NotEq => "!=",
            Operator::Lt => "<",
            Operator::LtEq => "<=",
            Operator::Gt => ">",
            Operator::GtEq => ">=",
            Operator::Contains => "CONTAINS",
            Operator::ContainsKey => "CONTAINS KEY",
            Operator::Like => "LIKE",
        }
    }
}

/// One ordering.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderBy {
    /// The column.
    pub column: Ident,
    /// `ANN OF term`: nearest first.
    pub ann_of: Option<Term>,
    /// Direction, ascending when not written.
    pub order: Order,
}

/// Direction of an ordering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after the keyword")]
pub enum Order {
    Asc,
    Desc,
}

/// `PRUNE MATERIALIZED VIEW name WHERE …` (ScyllaDB's extension).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PruneView {
    /// The view.
    pub view: QualifiedName,
    /// Restrictions of the rows; empty for all.
    pub relations: Vec<Relation>,
    /// `USING TIMEOUT`: a duration literal or a bind marker.
    pub timeout: Option<Term>,
}
