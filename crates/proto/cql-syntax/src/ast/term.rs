//! Values and types as written.

use uuid::Uuid;

use super::{Ident, QualifiedName, Span};

/// A value: literal, bind marker, collection, function call or arithmetic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Term {
    /// A constant.
    Literal(Literal),
    /// `NULL`.
    Null(Span),
    /// `?` or `:name`.
    Bind(BindMarker),
    /// `[a, b]`: a list, or a vector when the receiver is one.
    List(Vec<Term>, Span),
    /// `{a, b}`; `{}` is always this, and also stands for the empty map.
    Set(Vec<Term>, Span),
    /// `{a: b}`.
    Map(Vec<(Term, Term)>, Span),
    /// `{field: value}` with bare names as keys. Never empty; a name may occur twice (the last
    /// one counts, as in Cassandra).
    Udt(Vec<(Ident, Term)>, Span),
    /// `(a, b)`, at least one element. `(a)` is a tuple of one.
    Tuple(Vec<Term>, Span),
    /// `name(args)`.
    FunctionCall {
        /// The function.
        name: FunctionName,
        /// The arguments.
        args: Vec<Term>,
        /// Position in the text.
        span: Span,
    },
    /// `(type) term`: sets the type of a literal or marker, converts nothing.
    TypeHint {
        /// The type in parentheses.
        ty: RawType,
        /// The term that the hint applies to.
        term: Box<Term>,
        /// Position in the text.
        span: Span,
    },
    /// `CAST(term AS type)`: converts.
    Cast {
        /// The term to convert.
        term: Box<Term>,
        /// The type it is converted to.
        ty: NativeType,
        /// Position in the text.
        span: Span,
    },
    /// `- term`. `-1` is a literal, not this.
    Negate(Box<Term>, Span),
    /// `left op right`.
    Binary {
        /// The operator.
        op: ArithmeticOp,
        /// Left operand.
        left: Box<Term>,
        /// Right operand.
        right: Box<Term>,
        /// Position in the text.
        span: Span,
    },
}

impl Term {
    /// Position of the term in the text.
    pub fn span(&self) -> Span {
        match self {
            Term::Literal(literal) => literal.span,
            Term::Bind(marker) => marker.span,
            Term::Null(span)
            | Term::List(_, span)
            | Term::Set(_, span)
            | Term::Map(_, span)
            | Term::Udt(_, span)
            | Term::Tuple(_, span)
            | Term::FunctionCall { span, .. }
            | Term::TypeHint { span, .. }
            | Term::Cast { span, .. }
            | Term::Negate(_, span)
            | Term::Binary { span, .. } => *span,
        }
    }
}

/// A constant and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Literal {
    /// The constant.
    pub kind: LiteralKind,
    /// The letters that it was written with, where its kind does not keep them.
    pub written: Option<Box<str>>,
    /// Position in the text.
    pub span: Span,
}

impl Literal {
    /// Returns the term as written, texts without quotes.
    pub fn written(&self) -> String {
        self.written.as_deref().map_or_else(|| self.raw_text(), str::to_owned)
    }

    /// The text without quotes, as a property value is taken from it. Source: `getRawText` of
    /// Cassandra's literals.
    pub fn raw_text(&self) -> String {
        match &self.kind {
            LiteralKind::String(text)
            | LiteralKind::Integer(text)
            | LiteralKind::Float(text)
            | LiteralKind::Duration(text) => text.clone(),
            LiteralKind::Boolean(true) => "true".to_owned(),
            LiteralKind::Boolean(false) => "false".to_owned(),
            LiteralKind::Uuid(uuid) => uuid.to_string(),
            LiteralKind::Hex(digits) => format!("0x{digits}"),
        }
    }
}

/// The kinds of constants. Numbers stay text, because their size is the receiver's business.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LiteralKind {
    /// `'…'` or `$$…$$`, unescaped.
    String(String),
    /// `-?[0-9]+`, any length.
    Integer(String),
    /// Digits with point or exponent as written, or `NaN`, `Infinity`, `-Infinity`.
    Float(String),
    /// `true`, `false`.
    Boolean(bool),
    /// A duration as written: `1h30m`, `-P1Y2M`, `PT3S`, `P2W`, `P0001-02-03T04:05:06`.
    Duration(String),
    /// A UUID.
    Uuid(Uuid),
    /// Hex digits of a blob without the leading `0x`; their count may be odd (to be refused by the
    /// planner, as Cassandra does).
    Hex(String),
}

/// `?` or `:name`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BindMarker {
    /// Index into [`super::Statement::bind_markers`].
    pub index: usize,
    /// The name of `:name`, case-folded unless quoted.
    pub name: Option<String>,
    /// Position in the text.
    pub span: Span,
}

/// `[keyspace.]function`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionName {
    /// The keyspace, when written.
    pub keyspace: Option<Ident>,
    /// The function; lower case unless quoted.
    pub name: Ident,
}

/// Arithmetic between two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after the operation")]
pub enum ArithmeticOp {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
}

impl ArithmeticOp {
    /// The operator as written.
    pub fn symbol(self) -> char {
        match self {
            ArithmeticOp::Add => '+',
            ArithmeticOp::Subtract => '-',
            ArithmeticOp::Multiply => '*',
            ArithmeticOp::Divide => '/',
            ArithmeticOp::Modulo => '%',
        }
    }
}

/// A type as written; user types are not resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RawType {
    /// A built-in simple type.
    Native(NativeType),
    /// `list<t>`.
    List(Box<RawType>),
    /// `set<t>`.
    Set(Box<RawType>),
    /// `map<k, v>`.
    Map(Box<RawType>, Box<RawType>),
    /// `tuple<t, …>`, at least one.
    Tuple(Vec<RawType>),
    /// `vector<t, n>`; the planner refuses n < 1.
    Vector(Box<RawType>, i32),
    /// `frozen<t>`.
    Frozen(Box<RawType>),
    /// `[keyspace.]name`.
    UserDefined(QualifiedName),
    /// `'org.apache.cassandra.db.marshal.…'`.
    Custom(String),
}

macro_rules! native_types {
    ($($variant:ident $name:literal),* $(,)?) => {
        /// Built-in simple types; their names are unreserved keywords. `varchar` is kept apart
        /// from `text`, because the grammar does.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[expect(missing_docs, reason = "named after the type")]
        pub enum NativeType { $($variant),* }

        impl NativeType {
            /// Every type, in alphabetical order.
            pub const ALL: &'static [NativeType] = &[$(NativeType::$variant),*];

            /// The CQL name.
            pub fn name(self) -> &'static str {
                match self { $(NativeType::$variant => $name),* }
            }
        }
    };
}

native_types! {
    Ascii "ascii", Bigint "bigint", Blob "blob", Boolean "boolean", Counter "counter",
    Date "date", Decimal "decimal", Double "double", Duration "duration", Float "float",
    Inet "inet", Int "int", Smallint "smallint", Text "text", Time "time",
    Timestamp "timestamp", Timeuuid "timeuuid", Tinyint "tinyint", Uuid "uuid",
    Varchar "varchar", Varint "varint",
}
