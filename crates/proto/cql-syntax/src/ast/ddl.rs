//! Statements that change or describe the schema.

use super::{
    FunctionName, Ident, Literal, Order, QualifiedName, RawType, Relation, Selection, Span, Term,
};

/// `name = value` after WITH. Names are unique within one statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Property {
    /// The name.
    pub name: Ident,
    /// The value.
    pub value: PropertyValue,
    /// Position in the text.
    pub span: Span,
}

/// Value of a property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PropertyValue {
    /// A constant.
    Literal(Literal),
    /// `{'k': 'v'}`; keys are unique, `{}` is the empty map.
    Map(Vec<(Literal, Literal)>),
    /// A bare word, which must be an unreserved keyword.
    Id(Ident),
}

/// `WITH …` of a table or view.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableOptions {
    /// `name = value`, `id = uuid` among them.
    pub properties: Vec<Property>,
    /// `CLUSTERING ORDER BY (…)`; may name a column twice, which the planner refuses.
    pub clustering_order: Vec<(Ident, Order)>,
    /// `COMPACT STORAGE`; never on a view (the parser refuses it).
    pub compact_storage: bool,
}

impl TableOptions {
    /// The property of that name.
    pub fn property(&self, name: &str) -> Option<&PropertyValue> {
        self.properties.iter().find(|p| p.name.text == name).map(|p| &p.value)
    }
}

/// `CREATE KEYSPACE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateKeyspace {
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// The keyspace.
    pub keyspace: Ident,
    /// `WITH`, at least one.
    pub properties: Vec<Property>,
}

/// `ALTER KEYSPACE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlterKeyspace {
    /// `IF EXISTS`.
    pub if_exists: bool,
    /// The keyspace.
    pub keyspace: Ident,
    /// `WITH`, at least one.
    pub properties: Vec<Property>,
}

/// `DROP KEYSPACE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropKeyspace {
    /// `IF EXISTS`.
    pub if_exists: bool,
    /// The keyspace.
    pub keyspace: Ident,
}

/// `CREATE TABLE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateTable {
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// The table.
    pub table: QualifiedName,
    /// The columns as written; a name may occur twice, which the planner refuses.
    pub columns: Vec<ColumnDefinition>,
    /// Every `PRIMARY KEY (…)` clause; the planner wants exactly one key, here or inline.
    pub primary_keys: Vec<PrimaryKey>,
    /// `WITH`.
    pub options: TableOptions,
}

/// `CREATE TABLE [IF NOT EXISTS] table LIKE source [WITH …]`, which Cassandra has from 6.0 on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyTable {
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// The new table.
    pub table: QualifiedName,
    /// The table whose columns and options it gets.
    pub source: QualifiedName,
    /// `WITH`: options that it has otherwise.
    pub properties: Vec<Property>,
}

/// One column of CREATE TABLE or ALTER TABLE … ADD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnDefinition {
    /// The name.
    pub name: Ident,
    /// The type.
    pub ty: RawType,
    /// `STATIC`.
    pub is_static: bool,
    /// `MASKED WITH`.
    pub mask: Option<Mask>,
    /// `PRIMARY KEY` after the column; never in ALTER TABLE.
    pub primary_key: bool,
}

/// `MASKED WITH …`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mask {
    /// `DEFAULT`.
    Default,
    /// `function(terms)`.
    Function {
        /// The function.
        name: FunctionName,
        /// Its arguments after the column.
        args: Vec<Term>,
    },
}

/// `PRIMARY KEY ((partition), clustering)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrimaryKey {
    /// At least one.
    pub partition: Vec<Ident>,
    /// May be empty.
    pub clustering: Vec<Ident>,
}

/// `ALTER TABLE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlterTable {
    /// `IF EXISTS` after TABLE.
    pub if_exists: bool,
    /// The table.
    pub table: QualifiedName,
    /// The change.
    pub change: AlterTableChange,
}

/// The forms of ALTER TABLE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AlterTableChange {
    /// `ALTER column TYPE type`; the planner refuses it as Cassandra does.
    ColumnType {
        /// The column.
        column: Ident,
        /// The new type.
        ty: RawType,
    },
    /// `ALTER [IF EXISTS] column MASKED WITH … | DROP MASKED`.
    ColumnMask {
        /// `IF EXISTS` before the column.
        if_exists: bool,
        /// The column.
        column: Ident,
        /// `None` for DROP MASKED.
        mask: Option<Mask>,
    },
    /// `ADD`.
    Add {
        /// `IF NOT EXISTS` before the columns.
        if_not_exists: bool,
        /// At least one.
        columns: Vec<ColumnDefinition>,
    },
    /// `DROP`.
    Drop {
        /// `IF EXISTS` before the columns.
        if_exists: bool,
        /// At least one.
        columns: Vec<Ident>,
        /// `USING TIMESTAMP`, microseconds.
        timestamp: Option<i64>,
    },
    /// `RENAME`.
    Rename {
        /// `IF EXISTS` before the columns.
        if_exists: bool,
        /// From, to; at least one.
        columns: Vec<(Ident, Ident)>,
    },
    /// `DROP COMPACT STORAGE`.
    DropCompactStorage,
    /// `WITH`, at least one.
    With(Vec<Property>),
}

/// `DROP TABLE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropTable {
    /// `IF EXISTS`.
    pub if_exists: bool,
    /// The table.
    pub table: QualifiedName,
}

/// `CREATE TYPE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateType {
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// The type.
    pub name: QualifiedName,
    /// At least one; a name may occur twice, which the planner refuses.
    pub fields: Vec<(Ident, RawType)>,
}

/// `ALTER TYPE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlterType {
    /// `IF EXISTS`.
    pub if_exists: bool,
    /// The type.
    pub name: QualifiedName,
    /// The change.
    pub change: AlterTypeChange,
}

/// The forms of ALTER TYPE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AlterTypeChange {
    /// `ALTER field TYPE type`; the planner refuses it as Cassandra does.
    FieldType {
        /// The field.
        field: Ident,
        /// The new type.
        ty: RawType,
    },
    /// `ADD field type`.
    Add {
        /// `IF NOT EXISTS` before the field.
        if_not_exists: bool,
        /// The field.
        field: Ident,
        /// Its type.
        ty: RawType,
    },
    /// `RENAME`.
    Rename {
        /// `IF EXISTS` before the fields.
        if_exists: bool,
        /// From, to; at least one.
        fields: Vec<(Ident, Ident)>,
    },
}

/// `DROP TYPE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropType {
    /// `IF EXISTS`.
    pub if_exists: bool,
    /// The type.
    pub name: QualifiedName,
}

/// `CREATE [CUSTOM] INDEX`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateIndex {
    /// `CUSTOM`.
    pub custom: bool,
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// The index, when named.
    pub name: Option<Ident>,
    /// The table.
    pub table: QualifiedName,
    /// The columns in the inner brackets of ScyllaDB's local index, `((a, b), c)`.
    pub partition_key: Option<Vec<Ident>>,
    /// The columns; the grammar allows none, for custom indexes.
    pub targets: Vec<IndexTarget>,
    /// `USING 'class'`; since 5.0 also without CUSTOM.
    pub class: Option<String>,
    /// `WITH`.
    pub properties: Vec<Property>,
}

/// Target of an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexTarget {
    /// Part of the column.
    pub kind: IndexTargetKind,
    /// The column.
    pub column: Ident,
}

/// Part of a column that an index covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after the keyword")]
pub enum IndexTargetKind {
    /// The bare column.
    Simple,
    Values,
    Keys,
    Entries,
    Full,
}

/// `DROP INDEX`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropIndex {
    /// `IF EXISTS`.
    pub if_exists: bool,
    /// The index.
    pub name: QualifiedName,
}

/// `CREATE MATERIALIZED VIEW`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateView {
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// The view.
    pub view: QualifiedName,
    /// The selection.
    pub selection: Selection,
    /// The table it follows.
    pub base: QualifiedName,
    /// `WHERE`; empty without one.
    pub relations: Vec<Relation>,
    /// `PRIMARY KEY`.
    pub primary_key: PrimaryKey,
    /// `WITH`.
    pub options: TableOptions,
}

/// `ALTER MATERIALIZED VIEW`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlterView {
    /// `IF EXISTS`.
    pub if_exists: bool,
    /// The view.
    pub view: QualifiedName,
    /// `WITH`, at least one.
    pub properties: Vec<Property>,
}

/// `DROP MATERIALIZED VIEW`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropView {
    /// `IF EXISTS`.
    pub if_exists: bool,
    /// The view.
    pub view: QualifiedName,
}

/// `CREATE TRIGGER`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateTrigger {
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// The trigger.
    pub name: Ident,
    /// The table.
    pub table: QualifiedName,
    /// `USING 'class'`.
    pub class: String,
}

/// `DROP TRIGGER`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropTrigger {
    /// `IF EXISTS`.
    pub if_exists: bool,
    /// The trigger.
    pub name: Ident,
    /// The table.
    pub table: QualifiedName,
}

/// `CREATE FUNCTION`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateFunction {
    /// `OR REPLACE`.
    pub or_replace: bool,
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// The function.
    pub name: FunctionName,
    /// Names and types.
    pub args: Vec<(Ident, RawType)>,
    /// `CALLED ON NULL INPUT`; else `RETURNS NULL ON NULL INPUT`.
    pub called_on_null_input: bool,
    /// `RETURNS`.
    pub return_type: RawType,
    /// `LANGUAGE`, lower case.
    pub language: String,
    /// `AS 'body'`.
    pub body: String,
}

/// `DROP FUNCTION`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropFunction {
    /// `IF EXISTS`.
    pub if_exists: bool,
    /// The function.
    pub name: FunctionName,
    /// Argument types; `None` when no parentheses are written.
    pub args: Option<Vec<RawType>>,
}

/// `CREATE AGGREGATE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateAggregate {
    /// `OR REPLACE`.
    pub or_replace: bool,
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// The aggregate.
    pub name: FunctionName,
    /// Argument types.
    pub args: Vec<RawType>,
    /// `SFUNC`.
    pub state_function: Ident,
    /// `STYPE`.
    pub state_type: RawType,
    /// `FINALFUNC`.
    pub final_function: Option<Ident>,
    /// `INITCOND`.
    pub initial: Option<Term>,
}

/// `DROP AGGREGATE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropAggregate {
    /// `IF EXISTS`.
    pub if_exists: bool,
    /// The aggregate.
    pub name: FunctionName,
    /// Argument types; `None` when no parentheses are written.
    pub args: Option<Vec<RawType>>,
}

/// `DESCRIBE …`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Describe {
    /// The target.
    pub target: DescribeTarget,
    /// `WITH INTERNALS`.
    pub with_internals: bool,
}

/// Target of DESCRIBE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DescribeTarget {
    /// `CLUSTER`.
    Cluster,
    /// `[FULL] SCHEMA`.
    Schema {
        /// System keyspaces too.
        full: bool,
    },
    /// `KEYSPACES`.
    Keyspaces,
    /// `[ONLY] KEYSPACE [name]`.
    Keyspace {
        /// Without its tables and types.
        only: bool,
        /// `None` for the session's keyspace.
        name: Option<Ident>,
    },
    /// `TABLES`.
    Tables,
    /// `TABLE name`.
    Table(QualifiedName),
    /// `INDEX name`.
    Index(QualifiedName),
    /// `MATERIALIZED VIEW name`.
    View(QualifiedName),
    /// `TYPES`.
    Types,
    /// `TYPE name`.
    Type(QualifiedName),
    /// `FUNCTIONS`.
    Functions,
    /// `FUNCTION name`.
    Function(FunctionName),
    /// `AGGREGATES`.
    Aggregates,
    /// `AGGREGATE name`.
    Aggregate(FunctionName),
    /// `name`: a keyspace, table, view or index, whichever is found.
    Generic(QualifiedName),
}
