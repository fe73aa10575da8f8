//! Statements that change or describe the schema.

use std::fmt::{self, Display, Formatter};

use super::rows::where_clause;
use super::terms::{function_ident, type_name};
use super::{commas, join, string, when};
use crate::ast::{
    AlterKeyspace, AlterTable, AlterTableChange, AlterType, AlterTypeChange, AlterView,
    ColumnDefinition, CopyTable, CreateAggregate, CreateFunction, CreateIndex, CreateKeyspace,
    CreateTable, CreateTrigger, CreateType, CreateView, Describe, DescribeTarget, DropAggregate,
    DropFunction, DropIndex, DropKeyspace, DropTable, DropTrigger, DropType, DropView, Ident,
    IndexTarget, IndexTargetKind, Literal, Mask, Order, PrimaryKey, Property, PropertyValue,
    RawType, TableOptions,
};

const IF_EXISTS: &str = "IF EXISTS ";
const IF_NOT_EXISTS: &str = "IF NOT EXISTS ";

/// Writes `{'k': 'v'}`.
pub(super) fn property_map(f: &mut Formatter<'_>, map: &[(Literal, Literal)]) -> fmt::Result {
    f.write_str("{")?;
    join(f, map, ", ", |f, (key, value)| write!(f, "{key}: {value}"))?;
    f.write_str("}")
}

/// Writes ` WITH a = b AND …`, or nothing.
fn with(f: &mut Formatter<'_>, properties: &[Property]) -> fmt::Result {
    when(f, !properties.is_empty(), " WITH ")?;
    join(f, properties, " AND ", |f, property| property.fmt(f))
}

fn type_list(f: &mut Formatter<'_>, types: &[RawType]) -> fmt::Result {
    f.write_str("(")?;
    commas(f, types)?;
    f.write_str(")")
}

fn renames(f: &mut Formatter<'_>, renames: &[(Ident, Ident)]) -> fmt::Result {
    join(f, renames, " AND ", |f, (from, to)| write!(f, "{from} TO {to}"))
}

impl Display for Property {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} = ", self.name)?;
        match &self.value {
            PropertyValue::Literal(literal) => literal.fmt(f),
            PropertyValue::Map(map) => property_map(f, map),
            PropertyValue::Id(word) => word.fmt(f),
        }
    }
}

impl Display for TableOptions {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut before = " WITH ";
        if self.compact_storage {
            write!(f, "{before}COMPACT STORAGE")?;
            before = " AND ";
        }
        if !self.clustering_order.is_empty() {
            write!(f, "{before}CLUSTERING ORDER BY (")?;
            join(f, &self.clustering_order, ", ", |f, (column, order)| match order {
                Order::Asc => write!(f, "{column} ASC"),
                Order::Desc => write!(f, "{column} DESC"),
            })?;
            f.write_str(")")?;
            before = " AND ";
        }
        for property in &self.properties {
            write!(f, "{before}{property}")?;
            before = " AND ";
        }
        Ok(())
    }
}

impl Display for CreateKeyspace {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("CREATE KEYSPACE ")?;
        when(f, self.if_not_exists, IF_NOT_EXISTS)?;
        self.keyspace.fmt(f)?;
        with(f, &self.properties)
    }
}

impl Display for AlterKeyspace {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("ALTER KEYSPACE ")?;
        when(f, self.if_exists, IF_EXISTS)?;
        self.keyspace.fmt(f)?;
        with(f, &self.properties)
    }
}

impl Display for DropKeyspace {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("DROP KEYSPACE ")?;
        when(f, self.if_exists, IF_EXISTS)?;
        self.keyspace.fmt(f)
    }
}

impl Display for CreateTable {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("CREATE TABLE ")?;
        when(f, self.if_not_exists, IF_NOT_EXISTS)?;
        write!(f, "{} (", self.table)?;
        commas(f, &self.columns)?;
        when(f, !self.columns.is_empty() && !self.primary_keys.is_empty(), ", ")?;
        commas(f, &self.primary_keys)?;
        write!(f, "){}", self.options)
    }
}

impl Display for CopyTable {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("CREATE TABLE ")?;
        when(f, self.if_not_exists, IF_NOT_EXISTS)?;
        write!(f, "{} LIKE {}", self.table, self.source)?;
        with(f, &self.properties)
    }
}

impl Display for ColumnDefinition {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.ty)?;
        when(f, self.is_static, " STATIC")?;
        if let Some(mask) = &self.mask {
            write!(f, " {mask}")?;
        }
        when(f, self.primary_key, " PRIMARY KEY")
    }
}

impl Display for Mask {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Mask::Default => f.write_str("MASKED WITH DEFAULT"),
            Mask::Function { name, args } => {
                write!(f, "MASKED WITH {name}(")?;
                commas(f, args)?;
                f.write_str(")")
            }
        }
    }
}

impl Display for PrimaryKey {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("PRIMARY KEY (")?;
        match self.partition.as_slice() {
            [single] => single.fmt(f)?,
            several => {
                f.write_str("(")?;
                commas(f, several)?;
                f.write_str(")")?;
            }
        }
        for column in &self.clustering {
            write!(f, ", {column}")?;
        }
        f.write_str(")")
    }
}

impl Display for AlterTable {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("ALTER TABLE ")?;
        when(f, self.if_exists, IF_EXISTS)?;
        self.table.fmt(f)?;
        match &self.change {
            AlterTableChange::ColumnType { column, ty } => {
                write!(f, " ALTER {column} TYPE {ty}")
            }
            AlterTableChange::ColumnMask { if_exists, column, mask } => {
                f.write_str(" ALTER ")?;
                when(f, *if_exists, IF_EXISTS)?;
                match mask {
                    Some(mask) => write!(f, "{column} {mask}"),
                    None => write!(f, "{column} DROP MASKED"),
                }
            }
            AlterTableChange::Add { if_not_exists, columns } => {
                f.write_str(" ADD ")?;
                when(f, *if_not_exists, IF_NOT_EXISTS)?;
                one_or_list(f, columns)
            }
            AlterTableChange::Drop { if_exists, columns, timestamp } => {
                f.write_str(" DROP ")?;
                when(f, *if_exists, IF_EXISTS)?;
                match columns.as_slice() {
                    // Bare, a column called like this would start DROP COMPACT STORAGE.
                    [single] if single.text != "compact" => single.fmt(f)?,
                    several => {
                        f.write_str("(")?;
                        commas(f, several)?;
                        f.write_str(")")?;
                    }
                }
                match timestamp {
                    Some(timestamp) => write!(f, " USING TIMESTAMP {timestamp}"),
                    None => Ok(()),
                }
            }
            AlterTableChange::Rename { if_exists, columns } => {
                f.write_str(" RENAME ")?;
                when(f, *if_exists, IF_EXISTS)?;
                renames(f, columns)
            }
            AlterTableChange::DropCompactStorage => f.write_str(" DROP COMPACT STORAGE"),
            AlterTableChange::With(properties) => with(f, properties),
        }
    }
}

fn one_or_list<T: Display>(f: &mut Formatter<'_>, items: &[T]) -> fmt::Result {
    match items {
        [single] => single.fmt(f),
        several => {
            f.write_str("(")?;
            commas(f, several)?;
            f.write_str(")")
        }
    }
}

impl Display for DropTable {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("DROP TABLE ")?;
        when(f, self.if_exists, IF_EXISTS)?;
        self.table.fmt(f)
    }
}

impl Display for CreateType {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("CREATE TYPE ")?;
        when(f, self.if_not_exists, IF_NOT_EXISTS)?;
        type_name(f, &self.name)?;
        f.write_str(" (")?;
        join(f, &self.fields, ", ", |f, (field, ty)| write!(f, "{field} {ty}"))?;
        f.write_str(")")
    }
}

impl Display for AlterType {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("ALTER TYPE ")?;
        when(f, self.if_exists, IF_EXISTS)?;
        type_name(f, &self.name)?;
        match &self.change {
            AlterTypeChange::FieldType { field, ty } => write!(f, " ALTER {field} TYPE {ty}"),
            AlterTypeChange::Add { if_not_exists, field, ty } => {
                f.write_str(" ADD ")?;
                when(f, *if_not_exists, IF_NOT_EXISTS)?;
                write!(f, "{field} {ty}")
            }
            AlterTypeChange::Rename { if_exists, fields } => {
                f.write_str(" RENAME ")?;
                when(f, *if_exists, IF_EXISTS)?;
                renames(f, fields)
            }
        }
    }
}

impl Display for DropType {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("DROP TYPE ")?;
        when(f, self.if_exists, IF_EXISTS)?;
        type_name(f, &self.name)
    }
}

impl Display for IndexTarget {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let column = &self.column;
        match self.kind {
            IndexTargetKind::Simple => column.fmt(f),
            IndexTargetKind::Values => write!(f, "VALUES({column})"),
            IndexTargetKind::Keys => write!(f, "KEYS({column})"),
            IndexTargetKind::Entries => write!(f, "ENTRIES({column})"),
            IndexTargetKind::Full => write!(f, "FULL({column})"),
        }
    }
}

impl Display for CreateIndex {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("CREATE ")?;
        when(f, self.custom, "CUSTOM ")?;
        f.write_str("INDEX ")?;
        when(f, self.if_not_exists, IF_NOT_EXISTS)?;
        if let Some(name) = &self.name {
            write!(f, "{name} ")?;
        }
        write!(f, "ON {} (", self.table)?;
        if let Some(columns) = &self.partition_key {
            f.write_str("(")?;
            commas(f, columns)?;
            f.write_str("), ")?;
        }
        commas(f, &self.targets)?;
        f.write_str(")")?;
        if let Some(class) = &self.class {
            f.write_str(" USING ")?;
            string(f, class)?;
        }
        with(f, &self.properties)
    }
}

impl Display for DropIndex {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("DROP INDEX ")?;
        when(f, self.if_exists, IF_EXISTS)?;
        self.name.fmt(f)
    }
}

impl Display for CreateView {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("CREATE MATERIALIZED VIEW ")?;
        when(f, self.if_not_exists, IF_NOT_EXISTS)?;
        write!(f, "{} AS SELECT {} FROM {}", self.view, self.selection, self.base)?;
        where_clause(f, &self.relations)?;
        write!(f, " {}{}", self.primary_key, self.options)
    }
}

impl Display for AlterView {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("ALTER MATERIALIZED VIEW ")?;
        when(f, self.if_exists, IF_EXISTS)?;
        self.view.fmt(f)?;
        with(f, &self.properties)
    }
}

impl Display for DropView {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("DROP MATERIALIZED VIEW ")?;
        when(f, self.if_exists, IF_EXISTS)?;
        self.view.fmt(f)
    }
}

impl Display for CreateTrigger {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("CREATE TRIGGER ")?;
        when(f, self.if_not_exists, IF_NOT_EXISTS)?;
        write!(f, "{} ON {} USING ", self.name, self.table)?;
        string(f, &self.class)
    }
}

impl Display for DropTrigger {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("DROP TRIGGER ")?;
        when(f, self.if_exists, IF_EXISTS)?;
        write!(f, "{} ON {}", self.name, self.table)
    }
}

impl Display for CreateFunction {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("CREATE ")?;
        when(f, self.or_replace, "OR REPLACE ")?;
        f.write_str("FUNCTION ")?;
        when(f, self.if_not_exists, IF_NOT_EXISTS)?;
        write!(f, "{} (", self.name)?;
        join(f, &self.args, ", ", |f, (name, ty)| write!(f, "{name} {ty}"))?;
        f.write_str(if self.called_on_null_input { ") CALLED" } else { ") RETURNS NULL" })?;
        write!(f, " ON NULL INPUT RETURNS {}", self.return_type)?;
        write!(f, " LANGUAGE {} AS ", self.language)?;
        string(f, &self.body)
    }
}

impl Display for DropFunction {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("DROP FUNCTION ")?;
        when(f, self.if_exists, IF_EXISTS)?;
        self.name.fmt(f)?;
        match &self.args {
            Some(args) => type_list(f, args),
            None => Ok(()),
        }
    }
}

impl Display for CreateAggregate {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("CREATE ")?;
        when(f, self.or_replace, "OR REPLACE ")?;
        f.write_str("AGGREGATE ")?;
        when(f, self.if_not_exists, IF_NOT_EXISTS)?;
        write!(f, "{} ", self.name)?;
        type_list(f, &self.args)?;
        f.write_str(" SFUNC ")?;
        function_ident(f, &self.state_function)?;
        write!(f, " STYPE {}", self.state_type)?;
        if let Some(function) = &self.final_function {
            f.write_str(" FINALFUNC ")?;
            function_ident(f, function)?;
        }
        match &self.initial {
            Some(term) => write!(f, " INITCOND {term}"),
            None => Ok(()),
        }
    }
}

impl Display for DropAggregate {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("DROP AGGREGATE ")?;
        when(f, self.if_exists, IF_EXISTS)?;
        self.name.fmt(f)?;
        match &self.args {
            Some(args) => type_list(f, args),
            None => Ok(()),
        }
    }
}

impl Display for Describe {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("DESCRIBE ")?;
        match &self.target {
            DescribeTarget::Cluster => f.write_str("CLUSTER")?,
            DescribeTarget::Schema { full: true } => f.write_str("FULL SCHEMA")?,
            DescribeTarget::Schema { full: false } => f.write_str("SCHEMA")?,
            DescribeTarget::Keyspaces => f.write_str("KEYSPACES")?,
            DescribeTarget::Keyspace { only, name } => {
                when(f, *only, "ONLY ")?;
                f.write_str("KEYSPACE")?;
                if let Some(name) = name {
                    write!(f, " {name}")?;
                }
            }
            DescribeTarget::Tables => f.write_str("TABLES")?,
            DescribeTarget::Table(name) => write!(f, "TABLE {name}")?,
            DescribeTarget::Index(name) => write!(f, "INDEX {name}")?,
            DescribeTarget::View(name) => write!(f, "MATERIALIZED VIEW {name}")?,
            DescribeTarget::Types => f.write_str("TYPES")?,
            DescribeTarget::Type(name) => {
                f.write_str("TYPE ")?;
                type_name(f, name)?;
            }
            DescribeTarget::Functions => f.write_str("FUNCTIONS")?,
            DescribeTarget::Function(name) => write!(f, "FUNCTION {name}")?,
            DescribeTarget::Aggregates => f.write_str("AGGREGATES")?,
            DescribeTarget::Aggregate(name) => write!(f, "AGGREGATE {name}")?,
            DescribeTarget::Generic(name) => {
                // Quoted, so that no name reads as one of the words above.
                let quote = |ident: &Ident| format!("\"{}\"", ident.text.replace('"', "\"\""));
                if let Some(keyspace) = &name.keyspace {
                    write!(f, "{}.", quote(keyspace))?;
                }
                f.write_str(&quote(&name.name))?;
            }
        }
        when(f, self.with_internals, " WITH INTERNALS")
    }
}
