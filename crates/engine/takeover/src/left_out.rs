//! Definitions in a directory of Cassandra's that are not taken over, as the CQL that creates them
//! again.
//!
//! Owns: the kinds that an operator may leave out ([`Kind`]), their statements. Never: decides which
//! are left out.
//!
//! Source of the forms: Cassandra's `Index.appendCqlTo`, `UDFunction`, `UDAggregate`, `ViewMetadata`,
//! `TriggerMetadata`.

use std::fmt::Write;

use cql_plan::ddl::IndexSettings;
use cql_syntax::ast::quote_ident as id;

use super::TakeoverError;
use super::rows::Row;
use schema::Schema;

/// Kinds of definitions that Helenus does not support and a directory may be taken over without:
/// nothing in the rows of tables depends on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Functions,
    Views,
    Indexes,
    Triggers,
}

impl Kind {
    /// Its name in the setting `takeover_without`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Functions => "functions",
            Kind::Views => "views",
            Kind::Indexes => "indexes",
            Kind::Triggers => "triggers",
        }
    }
}

/// Definitions that are left out, and those that the operator allows to be.
#[derive(Debug, Default)]
pub(super) struct Choice<'a> {
    /// Kinds of the setting `takeover_without`.
    pub(super) without: &'a [String],
    /// Functions that the metadata log has already are ignored; its indexes are not left out.
    pub(super) known: Option<&'a Schema>,
    /// How indexes are made here.
    pub(super) indexes: IndexSettings,
    pub(super) left_out: Vec<LeftOut>,
}

impl Choice<'_> {
    pub(super) fn allows(&self, kind: Kind) -> bool {
        self.without.iter().any(|name| name == kind.name())
    }

    /// Returns true if the operator leaves indexes out and this one is not one of the metadata log already.
    pub(super) fn omits_index(&self, row: &Row) -> Result<bool, TakeoverError> {
        let keyspace = row.required_text("keyspace_name")?;
        let name = row.text("index_name")?.unwrap_or_default();
        let keyspace = self.known.and_then(|schema| schema.keyspace(&keyspace));
        let is_own = keyspace.is_some_and(|keyspace| keyspace.index(&name).is_some());
        Ok(self.allows(Kind::Indexes) && !is_own)
    }

    /// Returns true if the metadata log has it as a local index. Its row is that of a plain index: a Cassandra has no
    /// other.
    pub(super) fn is_local_index(&self, row: &Row) -> Result<bool, TakeoverError> {
        let keyspace = row.required_text("keyspace_name")?;
        let name = row.text("index_name")?.unwrap_or_default();
        let keyspace = self.known.and_then(|schema| schema.keyspace(&keyspace));
        let Some((table, index)) = keyspace.and_then(|keyspace| keyspace.index(&name)) else {
            return Ok(false);
        };
        let options = row.text_map("options")?.unwrap_or_default().into_iter().collect();
        let is_there = *table.name == *row.required_text("table_name")?;
        Ok(index.is_local() && is_there && *index.cassandra_options() == options)
    }

    /// Returns true if it is a function or aggregate of this node's own.
    pub(super) fn is_own(&self, row: &Row, column: &str) -> Result<bool, TakeoverError> {
        let Some(schema) = self.known else { return Ok(false) };
        let keyspace = schema.keyspace(&row.required_text("keyspace_name")?);
        let name = row.text(column)?.unwrap_or_default();
        Ok(keyspace.is_some_and(|keyspace| match column {
            "function_name" => keyspace.functions.iter().any(|f| *f.name == *name),
            "aggregate_name" => keyspace.aggregates.iter().any(|a| *a.name == *name),
            _ => false,
        }))
    }
}

/// One definition that is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Kind and name, for the log.
    pub what: String,
    /// The statement that creates it.
    pub statement: String,
}

/// The content of the file that keeps them.
pub(crate) fn file_text(all: &[LeftOut]) -> String {
    let mut text = String::from(
        "-- Definitions of Cassandra that Helenus left out when it took over this directory. Back on\n\
         -- Cassandra these statements create them again; indexes and views are rebuilt then.\n",
    );
    for one in all {
        let _ = write!(text, "\n-- {}\n{}\n", one.what, one.statement);
    }
    text
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn map(entries: &[(String, String)]) -> String {
    let each: Vec<String> =
        entries.iter().map(|(k, v)| format!("{}: {}", quoted(k), quoted(v))).collect();
    format!("{{{}}}", each.join(", "))
}

/// `keyspace.name`.
fn full(row: &Row, column: &str) -> Result<String, TakeoverError> {
    let (keyspace, name) = (row.required_text("keyspace_name")?, row.required_text(column)?);
    Ok(format!("{}.{}", id(&keyspace), id(&name)))
}

pub(super) fn function(row: &Row) -> Result<String, TakeoverError> {
    let (names, types) = (row.text_list("argument_names")?, row.text_list("argument_types")?);
    let arguments: Vec<String> =
        names.iter().zip(&types).map(|(name, ty)| format!("{} {ty}", id(name))).collect();
    let on_null = match row.boolean("called_on_null_input")? {
        Some(true) => "CALLED",
        _ => "RETURNS NULL",
    };
    let body = row.text("body")?.unwrap_or_default();
    let body = if body.contains("$$") { quoted(&body) } else { format!("$${body}$$") };
    Ok(format!(
        "CREATE FUNCTION {}({})\n    {on_null} ON NULL INPUT\n    RETURNS {}\n    LANGUAGE {}\n    AS {body};",
        full(row, "function_name")?,
        arguments.join(", "),
        row.required_text("return_type")?,
        row.required_text("language")?,
    ))
}

pub(super) fn aggregate(row: &Row) -> Result<String, TakeoverError> {
    let mut text = format!(
        "CREATE AGGREGATE {}({})\n    SFUNC {}\n    STYPE {}",
        full(row, "aggregate_name")?,
        row.text_list("argument_types")?.join(", "),
        id(&row.required_text("state_func")?),
        row.required_text("state_type")?,
    );
    if let Some(function) = row.text("final_func")? {
        let _ = write!(text, "\n    FINALFUNC {}", id(&function));
    }
    if let Some(initial) = row.text("initcond")? {
        let _ = write!(text, "\n    INITCOND {initial}");
    }
    Ok(text + ";")
}

/// `partition_key`: the names of its columns, if it is to be a local index.
pub(super) fn index(row: &Row, partition_key: Option<&str>) -> Result<String, TakeoverError> {
    let name = id(&row.required_text("index_name")?);
    let table = full(row, "table_name")?;
    let mut options: Vec<_> = row.text_map("options")?.unwrap_or_default().into_iter().collect();
    let mut take = |key: &str| {
        let at = options.iter().position(|(name, _)| name == key)?;
        Some(options.remove(at).1)
    };
    // Already as a statement has it: `values(m)`, `"V"`.
    let target = take("target").unwrap_or_default();
    let class = take("class_name");
    Ok(match class {
        Some(class) if row.text("kind")?.as_deref() == Some("CUSTOM") => {
            let with = match options.is_empty() {
                true => String::new(),
                false => format!(" WITH OPTIONS = {}", map(&options)),
            };
            format!(
                "CREATE CUSTOM INDEX {name} ON {table} ({target}) USING {}{with};",
                quoted(&class)
            )
        }
        _ => match partition_key {
            Some(key) => format!("CREATE INDEX {name} ON {table} (({key}), {target});"),
            None => format!("CREATE INDEX {name} ON {table} ({target});"),
        },
    })
}

pub(super) fn trigger(row: &Row) -> Result<String, TakeoverError> {
    let class = row.text_map("options")?.and_then(|mut options| options.remove("class"));
    Ok(format!(
        "CREATE TRIGGER {} ON {} USING {};",
        id(&row.required_text("trigger_name")?),
        full(row, "table_name")?,
        quoted(&class.unwrap_or_default()),
    ))
}

/// `columns`: the rows of `system_schema.columns` of the view.
pub(super) fn view<'r>(
    row: &Row,
    columns: impl Iterator<Item = &'r Row>,
) -> Result<String, TakeoverError> {
    let (mut selected, mut partition, mut clustering) = (Vec::new(), Vec::new(), Vec::new());
    for column in columns {
        let name = id(&column.required_text("column_name")?);
        let position = column.int("position")?.unwrap_or(0);
        match column.required_text("kind")?.as_str() {
            "partition_key" => partition.push((position, name.clone())),
            "clustering" => {
                let order = column.required_text("clustering_order")?.to_uppercase();
                clustering.push((position, name.clone(), order));
            }
            _ => {}
        }
        selected.push(name);
    }
    partition.sort();
    clustering.sort();
    let keyspace = id(&row.required_text("keyspace_name")?);
    let selected = match row.boolean("include_all_columns")? {
        Some(true) => "*".to_owned(),
        _ => selected.join(", "),
    };
    let partition: Vec<String> = partition.into_iter().map(|(_, name)| name).collect();
    let mut key = format!("({})", partition.join(", "));
    for (_, name, _) in &clustering {
        let _ = write!(key, ", {name}");
    }
    let mut with = Vec::new();
    if !clustering.is_empty() {
        let orders: Vec<String> =
            clustering.iter().map(|(_, name, order)| format!("{name} {order}")).collect();
        with.push(format!("CLUSTERING ORDER BY ({})", orders.join(", ")));
    }
    for option in ["caching", "compaction", "compression"] {
        if let Some(value) = row.text_map(option)? {
            let entries: Vec<_> = value.into_iter().collect();
            with.push(format!("{option} = {}", map(&entries)));
        }
    }
    if let Some(comment) = row.text("comment")?.filter(|comment| !comment.is_empty()) {
        with.push(format!("comment = {}", quoted(&comment)));
    }
    if let Some(seconds) = row.int("gc_grace_seconds")? {
        with.push(format!("gc_grace_seconds = {seconds}"));
    }
    let with = match with.is_empty() {
        true => String::new(),
        false => format!("\n    WITH {}", with.join("\n    AND ")),
    };
    Ok(format!(
        "CREATE MATERIALIZED VIEW {}\n    AS SELECT {selected}\n    FROM {keyspace}.{}\n    WHERE {}\n    \
         PRIMARY KEY ({key}){with};",
        full(row, "view_name")?,
        id(&row.required_text("base_table_name")?),
        row.required_text("where_clause")?,
    ))
}
