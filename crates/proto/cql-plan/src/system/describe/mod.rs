//! Server-side DESCRIBE: objects as rows of text.
//!
//! Owns: the choice and order of elements, result columns, paging by row offset, errors; the text
//! is in [`text`]. Never: IO; the ring is asked through the context.
//!
//! Source: Cassandra 5.0 `DescribeStatement`.

#[cfg(test)]
mod tests;
pub(crate) mod text;

use std::sync::Arc;

use cql_syntax::ast::{Describe, DescribeTarget, FunctionName, Ident, QualifiedName};
use schema::{IndexMetadata, Keyspace, Schema, Table, UserAggregate, UserFunction};
use stdx::{Token, Uuid};
use types::name::quote_identifier;
use types::{CqlType, UdtType, wire};

use crate::error::PlanError;
use crate::system::rows::RELEASE_VERSION;

/// Keyspace that result metadata of DESCRIBE names.
pub const DESCRIBE_KEYSPACE: &str = "system";
/// Table that result metadata of DESCRIBE names.
pub const DESCRIBE_TABLE: &str = "describe";

const PAGING_VERSION: u16 = 1;
const SYSTEM: &[&str] = &[
    "system",
    "system_auth",
    "system_distributed",
    "system_schema",
    "system_traces",
    "system_views",
    "system_virtual_schema",
];

/// A range's end and the nodes that own it, each as `/127.0.0.1:7000`.
pub type RangeOwners = Vec<(Token, Vec<String>)>;

/// Input of DESCRIBE.
pub struct DescribeContext<'a> {
    /// Everything that exists.
    pub schema: &'a Schema,
    /// The session's keyspace.
    pub keyspace: Option<&'a str>,
    /// `cluster_name`.
    pub cluster_name: &'a str,
    /// Class of the snitch; the locator package in front is cut off.
    pub snitch: &'a str,
    /// Ranges of a keyspace and their owners; asked by DESCRIBE CLUSTER in a user's keyspace.
    pub range_owners: &'a dyn Fn(&str) -> RangeOwners,
    /// Rows per page; `None` and 0 = all in one.
    pub page_size: Option<u32>,
    /// End of the previous page.
    pub paging_state: Option<&'a [u8]>,
}

/// A page of DESCRIBE. Columns belong to [`DESCRIBE_KEYSPACE`]`.`[`DESCRIBE_TABLE`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribeResult {
    /// Names and types of the columns.
    pub columns: Vec<(&'static str, CqlType)>,
    /// Values in the order of the columns, none of them null.
    pub rows: Vec<Vec<Vec<u8>>>,
    /// Position of the next page. As in Cassandra a full page always has one, also the last.
    pub paging_state: Option<Vec<u8>>,
}

/// A DESCRIBE statement. It has no bind markers.
#[derive(Clone, Debug)]
pub struct DescribePlan {
    statement: Describe,
}

enum Element<'s> {
    Keyspace(&'s Keyspace),
    Type(&'s UdtType),
    Function(&'s UserFunction),
    Aggregate(&'s UserAggregate),
    Table(&'s Table),
    Index(&'s Table, &'s IndexMetadata),
}

impl Element<'_> {
    /// Keyspace, kind and name, quoted where needed.
    fn head(&self) -> [String; 3] {
        let (keyspace, kind, name) = match self {
            Element::Function(f) => {
                let name = text::signature(&f.name, &f.args);
                return [quote_identifier(&f.keyspace), "function".to_owned(), name];
            }
            Element::Aggregate(a) => {
                let name = text::signature(&a.name, &a.args);
                return [quote_identifier(&a.keyspace), "aggregate".to_owned(), name];
            }
            Element::Keyspace(k) => (&k.name, "keyspace", &k.name),
            Element::Type(t) => (&t.keyspace, "type", &t.name),
            Element::Table(t) => (&t.keyspace, "table", &t.name),
            Element::Index(t, i) => (&t.keyspace, "index", &i.name),
        };
        [quote_identifier(keyspace), kind.to_owned(), quote_identifier(name)]
    }

    fn text(&self, with_internals: bool) -> String {
        match self {
            Element::Keyspace(k) => text::keyspace(k),
            Element::Type(t) => text::user_type(t),
            Element::Function(f) => text::function(f),
            Element::Aggregate(a) => text::aggregate(a),
            Element::Table(t) => text::table(t, with_internals),
            Element::Index(t, i) => text::index(t, i),
        }
    }
}

impl DescribePlan {
    /// Takes a parsed statement; everything is checked when it runs, as in Cassandra.
    pub fn new(statement: &Describe) -> DescribePlan {
        DescribePlan { statement: statement.clone() }
    }

    /// One page of the result.
    ///
    /// # Errors
    /// Invalid: no keyspace, the described object does not exist, the schema changed since the page
    /// before. Protocol: the paging state is not one of DESCRIBE.
    pub fn run(&self, cx: &DescribeContext<'_>) -> Result<DescribeResult, PlanError> {
        let offset = match cx.paging_state {
            Some(state) if !state.is_empty() => decode_paging(state, cx.schema.version)?,
            _ => 0,
        };
        if self.statement.target == DescribeTarget::Cluster {
            return cluster(cx, offset);
        }
        let (with_text, elements) = self.elements(cx)?;
        let mut columns = vec![
            ("keyspace_name", CqlType::Text),
            ("type", CqlType::Text),
            ("name", CqlType::Text),
        ];
        if with_text {
            columns.push(("create_statement", CqlType::Text));
        }
        let rows = page(elements, cx.page_size, offset).map(|element| {
            let mut row: Vec<Vec<u8>> = element.head().map(String::into_bytes).into();
            if with_text {
                row.push(element.text(self.statement.with_internals).into_bytes());
            }
            row
        });
        let rows: Vec<_> = rows.collect();
        let paging_state = next_page(rows.len(), offset, cx);
        Ok(DescribeResult { columns, rows, paging_state })
    }

    /// Returns all elements of the result, and true if the rows have the statements' text.
    fn elements<'s>(
        &self,
        cx: &DescribeContext<'s>,
    ) -> Result<(bool, Vec<Element<'s>>), PlanError> {
        let all = || by_name(cx.schema.keyspaces.values(), |k| &k.name);
        Ok(match &self.statement.target {
            // `run` answers it before.
            DescribeTarget::Cluster => (false, Vec::new()),
            DescribeTarget::Keyspaces => {
                (false, all().into_iter().map(Element::Keyspace).collect())
            }
            DescribeTarget::Tables => (false, listed(cx, tables_of)?),
            DescribeTarget::Types => {
                let types = |k: &'s Keyspace| by_name(k.types.values(), |t| &t.name);
                (false, listed(cx, |k| types(k).into_iter().map(Element::Type).collect())?)
            }
            DescribeTarget::Functions => (false, listed(cx, |k| functions_of(k, None))?),
            DescribeTarget::Aggregates => (false, listed(cx, |k| aggregates_of(k, None))?),
            DescribeTarget::Schema { full } => {
                let shown = all().into_iter().filter(|k| *full || !SYSTEM.contains(&&*k.name));
                (true, shown.flat_map(keyspace_elements).collect())
            }
            DescribeTarget::Keyspace { only, name } => {
                let keyspace = keyspace(cx, name.as_ref())?;
                if *only {
                    (true, vec![Element::Keyspace(keyspace)])
                } else {
                    (true, keyspace_elements(keyspace))
                }
            }
            DescribeTarget::Table(name) => (true, table_elements(table(cx, name)?)),
            DescribeTarget::Type(name) => {
                let keyspace = keyspace(cx, name.keyspace.as_ref())?;
                let name = name.name.text.as_str();
                let udt = keyspace.types.get(name);
                let missing = || missing("User defined type", name, keyspace);
                (true, vec![Element::Type(udt.ok_or_else(missing)?)])
            }
            DescribeTarget::Index(name) => {
                let keyspace = keyspace(cx, name.keyspace.as_ref())?;
                let name = name.name.text.as_str();
                let missing = || missing("Table for existing index", name, keyspace);
                let (table, index) = keyspace.index(name).ok_or_else(missing)?;
                (true, vec![Element::Index(table, index)])
            }
            DescribeTarget::View(name) => {
                let keyspace = keyspace(cx, name.keyspace.as_ref())?;
                return Err(missing("Materialized view", &name.name.text, keyspace));
            }
            DescribeTarget::Function(name) => {
                (true, named_functions(cx, "User defined function", name, functions_of)?)
            }
            DescribeTarget::Aggregate(name) => {
                (true, named_functions(cx, "User defined aggregate", name, aggregates_of)?)
            }
            DescribeTarget::Generic(name) => (true, generic(cx, name)?),
        })
    }
}

/// Sorted by name, letters of either case alike, as Cassandra lists.
fn by_name<'s, T: 's>(
    items: impl Iterator<Item = &'s Arc<T>>,
    name: impl Fn(&T) -> &str,
) -> Vec<&'s T> {
    let mut items: Vec<&'s T> = items.map(|item| &**item).collect();
    items.sort_by_cached_key(|item| name(item).to_lowercase());
    items
}

/// Lists elements of the session's keyspace, or of all keyspaces when none is in use.
fn listed<'s>(
    cx: &DescribeContext<'s>,
    of: impl Fn(&'s Keyspace) -> Vec<Element<'s>>,
) -> Result<Vec<Element<'s>>, PlanError> {
    match cx.keyspace {
        Some(name) => Ok(of(named_keyspace(cx.schema, name)?)),
        None => {
            let keyspaces = by_name(cx.schema.keyspaces.values(), |k| &k.name);
            Ok(keyspaces.into_iter().flat_map(of).collect())
        }
    }
}

fn named_keyspace<'s>(schema: &'s Schema, name: &str) -> Result<&'s Keyspace, PlanError> {
    match schema.keyspace(name) {
        Some(keyspace) => Ok(keyspace),
        None => Err(PlanError::invalid(format!("'{name}' not found in keyspaces"))),
    }
}

fn keyspace<'s>(cx: &DescribeContext<'s>, name: Option<&Ident>) -> Result<&'s Keyspace, PlanError> {
    let name = name.map(|name| name.text.as_str()).or(cx.keyspace);
    let name =
        name.ok_or_else(|| PlanError::invalid("No keyspace specified and no current keyspace"))?;
    named_keyspace(cx.schema, name)
}

fn table<'s>(cx: &DescribeContext<'s>, name: &QualifiedName) -> Result<&'s Table, PlanError> {
    let keyspace = keyspace(cx, name.keyspace.as_ref())?;
    let name = name.name.text.as_str();
    match keyspace.tables.get(name) {
        Some(table) => Ok(table),
        None => Err(PlanError::invalid(format!(
            "Table '{name}' not found in keyspace '{}'",
            keyspace.name
        ))),
    }
}

fn missing(what: &str, name: &str, keyspace: &Keyspace) -> PlanError {
    PlanError::invalid(format!("{what} '{name}' not found in '{}'", keyspace.name))
}

/// All functions or aggregates of a name.
fn named_functions<'s>(
    cx: &DescribeContext<'s>,
    what: &str,
    name: &FunctionName,
    of: impl Fn(&'s Keyspace, Option<&str>) -> Vec<Element<'s>>,
) -> Result<Vec<Element<'s>>, PlanError> {
    let keyspace = keyspace(cx, name.keyspace.as_ref())?;
    let found = of(keyspace, Some(&name.name.text));
    if found.is_empty() {
        return Err(missing(what, &name.name.text, keyspace));
    }
    Ok(found)
}

/// The functions of a keyspace, of one name when one is given.
fn functions_of<'s>(keyspace: &'s Keyspace, name: Option<&str>) -> Vec<Element<'s>> {
    let all = keyspace.functions.iter().filter(|f| name.is_none_or(|name| *f.name == *name));
    let mut all: Vec<&'s UserFunction> = all.map(|f| &**f).collect();
    all.sort_by_cached_key(|f| text::signature(&f.name, &f.args).to_lowercase());
    all.into_iter().map(Element::Function).collect()
}

/// The aggregates of a keyspace, of one name when one is given.
fn aggregates_of<'s>(keyspace: &'s Keyspace, name: Option<&str>) -> Vec<Element<'s>> {
    let all = keyspace.aggregates.iter().filter(|a| name.is_none_or(|name| *a.name == *name));
    let mut all: Vec<&'s UserAggregate> = all.map(|a| &**a).collect();
    all.sort_by_cached_key(|a| text::signature(&a.name, &a.args).to_lowercase());
    all.into_iter().map(Element::Aggregate).collect()
}

/// A keyspace, else a table or an index of the session's keyspace (of the keyspace of that name without one).
fn generic<'s>(
    cx: &DescribeContext<'s>,
    name: &QualifiedName,
) -> Result<Vec<Element<'s>>, PlanError> {
    let text = name.name.text.as_str();
    if name.keyspace.is_none()
        && let Some(keyspace) = cx.schema.keyspace(text)
    {
        return Ok(keyspace_elements(keyspace));
    }
    let keyspace = match &name.keyspace {
        Some(keyspace) => keyspace.text.as_str(),
        None => cx.keyspace.unwrap_or(text),
    };
    let keyspace = named_keyspace(cx.schema, keyspace)?;
    if let Some(table) = keyspace.tables.get(text) {
        return Ok(table_elements(table));
    }
    match keyspace.index(text) {
        Some((table, index)) => Ok(vec![Element::Index(table, index)]),
        None => {
            let name = &keyspace.name;
            Err(PlanError::invalid(format!("'{text}' not found in keyspace '{name}'")))
        }
    }
}

/// A table and its indexes.
fn table_elements(table: &Table) -> Vec<Element<'_>> {
    let indexes = by_name(table.indexes.iter(), |index| &index.name);
    let indexes = indexes.into_iter().map(|index| Element::Index(table, index));
    std::iter::once(Element::Table(table)).chain(indexes).collect()
}

fn tables_of(keyspace: &Keyspace) -> Vec<Element<'_>> {
    let tables = by_name(keyspace.tables.values(), |t| &t.name);
    tables.into_iter().map(Element::Table).collect()
}

/// The keyspace, its types (each after those it uses), functions, aggregates, tables with their indexes.
fn keyspace_elements(keyspace: &Keyspace) -> Vec<Element<'_>> {
    let mut types: Vec<&UdtType> = Vec::new();
    for udt in keyspace.types.values() {
        push_type(keyspace, udt, &mut types);
    }
    let mut out = vec![Element::Keyspace(keyspace)];
    out.extend(types.into_iter().map(Element::Type));
    out.extend(functions_of(keyspace, None));
    out.extend(aggregates_of(keyspace, None));
    let tables = by_name(keyspace.tables.values(), |t| &t.name);
    out.extend(tables.into_iter().flat_map(table_elements));
    out
}

fn push_type<'s>(keyspace: &'s Keyspace, udt: &'s UdtType, out: &mut Vec<&'s UdtType>) {
    for (_, field) in &udt.fields {
        push_types_in(keyspace, field, out);
    }
    if !out.iter().any(|t| t.name == udt.name) {
        out.push(udt);
    }
}

fn push_types_in<'s>(keyspace: &'s Keyspace, ty: &CqlType, out: &mut Vec<&'s UdtType>) {
    if let CqlType::Udt(udt) = ty {
        if let Some(udt) = keyspace.types.get(&udt.name) {
            push_type(keyspace, udt, out);
        }
        return;
    }
    for part in ty.sub_types() {
        push_types_in(keyspace, part, out);
    }
}

fn cluster(cx: &DescribeContext<'_>, offset: u64) -> Result<DescribeResult, PlanError> {
    let snitch = cx.snitch.strip_prefix("org.apache.cassandra.locator.").unwrap_or(cx.snitch);
    let mut columns =
        vec![("cluster", CqlType::Text), ("partitioner", CqlType::Text), ("snitch", CqlType::Text)];
    let texts = [cx.cluster_name, "Murmur3Partitioner", snitch];
    let mut row: Vec<Vec<u8>> = texts.into_iter().map(|t| t.as_bytes().to_vec()).collect();
    if let Some(keyspace) = cx.keyspace.filter(|k| !SYSTEM.contains(k)) {
        let owners = CqlType::list(CqlType::Text, false);
        columns.push(("range_ownership", CqlType::map(CqlType::Text, owners, false)));
        row.push(ownership((cx.range_owners)(keyspace))?);
    }
    let rows: Vec<_> = page(vec![row], cx.page_size, offset).collect();
    let paging_state = next_page(rows.len(), offset, cx);
    Ok(DescribeResult { columns, rows, paging_state })
}

fn ownership(ranges: RangeOwners) -> Result<Vec<u8>, PlanError> {
    let failed = |error: types::TypeError| PlanError::invalid(error.to_string());
    let mut entries = Vec::with_capacity(ranges.len());
    for (end, owners) in ranges {
        entries.push((end.to_string(), wire::encode_collection(owners).map_err(failed)?));
    }
    entries.sort();
    wire::encode_map(entries).map_err(failed)
}

fn page<T>(items: Vec<T>, page_size: Option<u32>, offset: u64) -> impl Iterator<Item = T> {
    let size = match page_size {
        None | Some(0) => usize::MAX,
        Some(size) => usize::try_from(size).unwrap_or(usize::MAX),
    };
    items.into_iter().skip(usize::try_from(offset).unwrap_or(usize::MAX)).take(size)
}

fn next_page(rows: usize, offset: u64, cx: &DescribeContext<'_>) -> Option<Vec<u8>> {
    let size = cx.page_size.filter(|size| *size > 0)?;
    if usize::try_from(size).ok() != Some(rows) {
        return None;
    }
    Some(encode_paging(offset.saturating_add(u64::from(size)), cx.schema.version))
}

/// Version as two bytes, release version with a two-byte length, schema version, offset as eight
/// bytes: what Cassandra has inside its paging state.
fn encode_paging(offset: u64, schema_version: Uuid) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend_from_slice(&PAGING_VERSION.to_be_bytes());
    let length = u16::try_from(RELEASE_VERSION.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(RELEASE_VERSION.as_bytes());
    out.extend_from_slice(schema_version.as_bytes());
    out.extend_from_slice(&offset.to_be_bytes());
    out
}

pub(crate) fn decode_paging(state: &[u8], schema_version: Uuid) -> Result<u64, PlanError> {
    let short = || PlanError::protocol("Invalid value for the paging state");
    let (version, rest) = state.split_first_chunk::<2>().ok_or_else(short)?;
    if u16::from_be_bytes(*version) != PAGING_VERSION {
        return Err(PlanError::invalid("Incompatible paging state"));
    }
    let (length, rest) = rest.split_first_chunk::<2>().ok_or_else(short)?;
    let (release, rest) =
        rest.split_at_checked(usize::from(u16::from_be_bytes(*length))).ok_or_else(short)?;
    if release != RELEASE_VERSION.as_bytes() {
        return Err(PlanError::invalid(format!(
            "The server version of the paging state {} is different from the one of the server \
             {RELEASE_VERSION}",
            String::from_utf8_lossy(release)
        )));
    }
    let (version, rest) = rest.split_first_chunk::<16>().ok_or_else(short)?;
    if version != schema_version.as_bytes() {
        return Err(PlanError::invalid(
            "The schema has changed since the previous page of the DESCRIBE statement result. \
             Please retry the DESCRIBE statement.",
        ));
    }
    let offset: [u8; 8] = rest.try_into().map_err(|_| short())?;
    // Negative offsets start over, as in Cassandra.
    Ok(u64::try_from(i64::from_be_bytes(offset)).unwrap_or(0))
}

/// Fuzz target: no bytes of a paging state may panic.
pub fn fuzz_describe_paging(data: &[u8]) {
    if let Ok(offset) = decode_paging(data, Uuid::nil()) {
        // A negative offset was read as zero; all others come back.
        let again = encode_paging(offset, Uuid::nil());
        stdx::invariant!(
            offset == 0 || again == data,
            "describe: paging state of offset {offset} differs"
        );
    }
}

/// The statements that make a table again with its id and dropped columns, as snapshots keep them in `schema.cql`: the
/// user types that it needs, the table, its indexes.
///
/// Source: `SchemaCQLHelper.reCreateStatementsForSchemaCql`, which leaves out types within others.
pub fn schema_text(table: &schema::Table) -> String {
    let mut types = Vec::new();
    table.columns.iter().for_each(|column| add_user_types(&column.ty, &mut types));
    let mut out = String::new();
    for udt in types {
        let text = text::user_type(udt);
        out.push_str(&text.replacen("CREATE TYPE", "CREATE TYPE IF NOT EXISTS", 1));
        out.push('\n');
    }
    let text = text::table(table, true);
    match text.strip_prefix("CREATE TABLE ") {
        Some(rest) => out.push_str(&format!("CREATE TABLE IF NOT EXISTS {rest}")),
        None => out.push_str(&text),
    }
    for index in table.indexes.iter() {
        let text = text::index(table, index);
        out.push('\n');
        out.push_str(&text.replacen("INDEX ", "INDEX IF NOT EXISTS ", 1));
    }
    out
}

/// The user types that a type consists of, each after its own components.
fn add_user_types<'t>(ty: &'t types::CqlType, out: &mut Vec<&'t types::UdtType>) {
    ty.sub_types().into_iter().for_each(|part| add_user_types(part, out));
    if let types::CqlType::Udt(udt) = ty
        && !out.iter().any(|known| known.name == udt.name)
    {
        out.push(udt);
    }
}
