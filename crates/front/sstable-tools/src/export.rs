//! `helenus sstable export`: the live rows of a table's files, merged, as CSV, lines of JSON or Parquet.

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::sync::Arc;

use clap::{Args, ValueEnum};
use cql_exec::SelectExec;
use cql_plan::plan::{ExecuteOptions, PlanContext, PlanKind, PlanLimits, UuidSource};
use cql_plan::select::{BoundSelect, SelectPlan};
use data::command::KeyRange;
use data::{Advance, Cursor, Item, MergeCursor, MergeMode, RowRef, Slices, TableShape};
use rt::Rt;
use schema::{ColumnKind, Schema, Table};
use sstable::{Component, SstableError, SstableReader, offline};
use stdx::{TimestampMicros, Token, WallMicros};
use types::CqlType;

use super::out::{Out, Progress};
use super::parquet::{Decimals, FileWriter};
use super::schema_file::{TableInSchema, UnknownColumn};
use super::targets::{Found, Search, Target, find};
use super::{Failure, finish, report, schema_file, wrong_paths};
use tool_io::exit;

/// Forms of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum RowForm {
    /// A line with the names of the columns, then a line for each row
    Csv,
    /// A line of JSON for each row
    Json,
    /// A Parquet file
    Parquet,
}

/// Options of `export`.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct Export {
    /// Form of the rows
    #[arg(long, value_enum, default_value = "json")]
    format: RowForm,
    /// File to write; it must not be there. By default standard output
    #[arg(long, short, value_name = "FILE")]
    output: Option<String>,
    /// Adds a column writetime(NAME) for each column that has one
    #[arg(long)]
    writetime: bool,
    /// Adds a column ttl(NAME) for each column that has one
    #[arg(long)]
    ttl: bool,
    /// Parquet: decimals as DECIMAL(PRECISION,SCALE) and varints as DECIMAL(PRECISION,0), or both as
    /// text
    #[arg(long, default_value = "38,18", value_name = "PRECISION,SCALE|text")]
    decimals: Decimals,
    /// File with the CREATE statements of the table and its types; by default schema.cql beside the
    /// files
    #[arg(long, value_name = "FILE")]
    schema: Option<String>,
    /// Keyspace and table, where the schema has several and the directory of the files does not name one
    /// of them
    #[arg(long, value_name = "KEYSPACE.TABLE")]
    table: Option<String>,
    /// Column that the files have and the schema does not: it was dropped and is left out; may be given
    /// several times
    #[arg(long, value_name = "COLUMN")]
    dropped: Vec<String>,
    /// Partition key to export; may be given several times
    #[arg(short, value_name = "KEY", allow_hyphen_values = true)]
    key: Vec<String>,
    /// Directory of a table, or files of SSTables
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<String>,
}

/// Prints an error in the arguments.
pub(super) fn usage(text: &str) -> u8 {
    complain_line!("helenus sstable: {text}");
    exit::USAGE
}

pub(super) async fn run(rt: &Rt, options: &Export) -> u8 {
    if options.format == RowForm::Parquet
        && options.output.is_none()
        && std::io::stdout().is_terminal()
    {
        return usage("Parquet is not printed on a terminal: say --output FILE");
    }
    let search = Search { snapshots: true, backups: true, ..Search::default() };
    let found = find(&options.paths, search);
    let targets = match found.map_err(|lines| wrong_paths(&lines)).and_then(Found::all) {
        Ok(targets) => targets,
        Err(code) => return code,
    };
    let beside = || targets.first().and_then(|target| schema_file::beside(&target.directory));
    let Some(path) = options.schema.clone().or_else(beside) else {
        return usage("there is no schema.cql beside the files: say --schema FILE");
    };
    let schema = schema_file::read(&path);
    let table = schema.and_then(|schema| {
        let table = schema_file::table_of(&schema, options.table.as_deref(), targets.first())?;
        Ok(TableInSchema { schema, table })
    });
    let table = match table {
        Ok(found) => found,
        Err(text) => return usage(&text),
    };
    let table = match with_dropped(rt, &targets, table, &options.dropped).await {
        Ok(found) => found,
        Err(code) => return code,
    };
    let readers = match open(rt, &targets, &table.table).await {
        Ok(readers) => readers,
        Err(code) => return code,
    };
    if readers.is_empty() {
        complain_line!("helenus sstable: no SSTables in {}, so no rows", options.paths.join(" "));
    }
    let to: Box<dyn Write + Send> = match &options.output {
        Some(path) => match File::create_new(path) {
            Ok(file) => Box::new(file),
            Err(error) => return usage(&format!("{path}: {error}")),
        },
        None => Box::new(std::io::stdout()),
    };
    let done = export(rt, options, &table, &readers, to).await;
    let code = match done {
        Ok(None) => exit::OK,
        Ok(Some(out)) => finish(out),
        Err(error) => report(&schema_file::name_of(&table.table), &error),
    };
    if code != exit::OK
        && let Some(path) = &options.output
        && let Err(error) = std::fs::remove_file(path)
    {
        complain_line!("helenus sstable: {path} is left in part: {error}");
    }
    code
}

/// Returns the schema with those columns dropped that files have and it does not, if they are
/// named. The error is the exit code; the cause is printed.
async fn with_dropped(
    rt: &Rt,
    targets: &[Target],
    mut of: TableInSchema,
    dropped: &[String],
) -> Result<TableInSchema, u8> {
    for target in targets {
        let data = target.file(Component::Data);
        let plain = SstableReader::open(&rt.fs(), &target.directory, target.set, None).await;
        let plain = plain.map_err(|error| report(&data, &error.into()))?;
        let header = &plain.meta().statistics().header;
        let statics = header.statics.iter().map(|column| (column, true));
        for (column, is_static) in statics.chain(header.regulars.iter().map(|c| (c, false))) {
            let name = column.name.as_str();
            let table = &of.table;
            if table.column(name).is_some() || table.dropped.contains_key(name) {
                continue;
            }
            if !dropped.iter().any(|known| known == name) {
                return Err(usage(&format!(
                    "{data} has a column \"{name}\" ({}) that the schema of {} does not have: if it was \
                     dropped say --dropped {name}, or add \"ALTER TABLE ... DROP\" to the statements",
                    column.ty,
                    schema_file::name_of(table)
                )));
            }
            let column = UnknownColumn { name, ty: &column.ty, is_static };
            of = schema_file::dropped(&of, &column).map_err(|e| usage(&e))?;
        }
    }
    Ok(of)
}

/// Opens the files, each of which must be of the table. The error is the exit code; the cause is
/// printed.
async fn open(rt: &Rt, targets: &[Target], table: &Table) -> Result<Vec<SstableReader>, u8> {
    let mut readers = Vec::new();
    for target in targets {
        let data = target.file(Component::Data);
        let failed = |error: SstableError| report(&data, &error.into());
        let (fs, directory) = (rt.fs(), &target.directory);
        let plain = SstableReader::open(&fs, directory, target.set, None).await.map_err(failed)?;
        // With other types every value would be something else, or nothing.
        if let Err(error) = plain.meta().statistics().header.check_types(table) {
            let name = schema_file::name_of(table);
            return Err(report(&data, &Failure::Key(format!("not a file of {name}: {error}"))));
        }
        let opened = SstableReader::open_to_look(&fs, directory, target.set, table).await;
        readers.push(opened.map_err(failed)?);
    }
    if let Err(error) = offline::check_order(&readers) {
        return Err(report(&schema_file::name_of(table), &error.into()));
    }
    Ok(readers)
}

/// Writes the rows; the text that is not flushed yet, if it is text.
async fn export(
    rt: &Rt,
    options: &Export,
    of: &TableInSchema,
    readers: &[SstableReader],
    to: Box<dyn Write + Send>,
) -> Result<Option<Out>, Failure> {
    let TableInSchema { schema, table } = of;
    let mut ranges = Vec::new();
    for text in &options.key {
        let Some(reader) = readers.first() else { break };
        let header = &reader.meta().statistics().header;
        let key = offline::key_of_text(header, text);
        let key = key.map_err(|error| Failure::Key(error.to_string()))?;
        ranges.push((reader.meta().token_of(&key), key));
    }
    ranges.sort();
    ranges.dedup();
    let mut ranges: Vec<KeyRange> =
        ranges.iter().map(|(token, key)| offline::range_of_key(*token, key)).collect();
    if options.key.is_empty() {
        ranges.push(KeyRange::all());
    }
    let mut rows = Rows::new(rt.wall(), schema, table, options).map_err(Failure::Key)?;
    let mut sink = match options.format {
        RowForm::Parquet => {
            let columns = rows.plan.result_columns().iter();
            let columns: Vec<(String, CqlType)> =
                columns.map(|column| (column.name.to_string(), column.ty.clone())).collect();
            let to = Box::new(std::io::BufWriter::with_capacity(1 << 20, to));
            Sink::Parquet(Box::new(FileWriter::new(to, &table.name, &columns, options.decimals)?))
        }
        form => Sink::Text(Out::to(to), form),
    };
    if let Sink::Text(out, RowForm::Csv) = &mut sink {
        out.print(&rows.head());
    }
    let what = format!("export {}", schema_file::name_of(table));
    let mut progress = match options.output {
        Some(_) => Progress::new(&what),
        None => Progress::beside_output(&what),
    };
    for range in ranges {
        rows.export(readers, range, &mut sink, &mut progress).await?;
    }
    match sink {
        Sink::Text(out, _) => Ok(Some(out)),
        Sink::Parquet(file) => file.finish().map(|()| None),
    }
}

/// Where rows go.
enum Sink {
    Text(Out, RowForm),
    Parquet(Box<FileWriter>),
}

impl Sink {
    /// Returns true if the output has no reader any more.
    fn is_broken(&self) -> bool {
        matches!(self, Sink::Text(out, _) if out.is_broken())
    }
}

/// Returns the columns to select after those of `SELECT *`.
fn facts(table: &Table, options: &Export) -> Vec<String> {
    let wanted = [("WRITETIME", options.writetime), ("TTL", options.ttl)];
    let has_facts = |kind| matches!(kind, ColumnKind::Static | ColumnKind::Regular);
    let columns = table.columns.iter().filter(|column| has_facts(column.kind));
    let mut facts = Vec::new();
    for column in columns.filter(|column| !column.ty.is_counter()) {
        let name = types::name::quote_identifier(&column.name);
        let named = wanted.iter().filter(|(_, is_wanted)| *is_wanted);
        facts.extend(named.map(|(fact, _)| format!("{fact}({name})")));
    }
    facts
}

/// Rows of a table, by the plan of a query.
struct Rows<'t> {
    table: &'t Arc<Table>,
    plan: SelectPlan,
    bound: BoundSelect,
    now: WallMicros,
    /// The partition that rows come of.
    token: Token,
    key: Vec<u8>,
    static_row: Option<Vec<u8>>,
    has_rows: bool,
    cells: Vec<u8>,
}

impl<'t> Rows<'t> {
    fn new(
        now: WallMicros,
        schema: &Arc<Schema>,
        table: &'t Arc<Table>,
        options: &Export,
    ) -> Result<Rows<'t>, String> {
        let limits = PlanLimits::default();
        let context = PlanContext { schema, keyspace: None, limits: &limits, now, functions: None };
        let planned = |columns: &str| {
            let text = format!("SELECT {columns} FROM {}", schema_file::quoted_name(table));
            let statement = cql_syntax::parse(&text).map_err(|e| e.to_string())?;
            let plan = cql_plan::plan::plan(&statement, &context).map_err(|e| e.to_string())?;
            match plan.kind {
                PlanKind::Select(plan) => Ok(*plan),
                _ => Err("not a query".to_owned()),
            }
        };
        let mut plan = planned("*")?;
        let facts = facts(table, options);
        if !facts.is_empty() {
            let names = plan.result_columns().iter();
            let names = names.map(|column| types::name::quote_identifier(&column.name));
            plan = planned(&names.chain(facts).collect::<Vec<_>>().join(", "))?;
        }
        let uuids = UuidSource::new(0);
        let options = ExecuteOptions {
            now,
            clock: now,
            default_timestamp: TimestampMicros(now.0),
            page_size: None,
            paging_state: None,
            protocol_version: 5,
            uuids: &uuids,
            watch: None,
        };
        let mut bound = plan.bind(&[], &options).map_err(|e| e.to_string())?;
        bound.unmask();
        Ok(Rows {
            table,
            plan,
            bound,
            now,
            token: Token::MIN,
            key: Vec::new(),
            static_row: None,
            has_rows: false,
            cells: Vec::new(),
        })
    }

    /// Returns the header line of CSV.
    fn head(&self) -> String {
        let names = self.plan.result_columns().iter();
        let names: Vec<String> = names.map(|column| csv_cell(&column.name)).collect();
        format!("{}\n", names.join(","))
    }

    async fn export(
        &mut self,
        readers: &[SstableReader],
        range: KeyRange,
        sink: &mut Sink,
        progress: &mut Progress,
    ) -> Result<(), Failure> {
        let total = readers.iter().map(|reader| reader.meta().data_length()).sum();
        let mut done = vec![0; readers.len()];
        let shape = TableShape::for_table(self.table);
        let slices = Arc::new(Slices::all());
        let cursors = readers.iter().zip(0_u32..).map(|(reader, source)| {
            reader.range_cursor(source, range.clone(), slices.clone(), None)
        });
        let mut blocks: Vec<_> = readers.iter().map(SstableReader::sequential).collect();
        let mode = MergeMode::Live { now: self.now.seconds() };
        let mut cursor = MergeCursor::new(&shape, mode, false, cursors);
        while !sink.is_broken() {
            match cursor.advance().map_err(sstable::SstableError::from)? {
                Advance::End => break,
                Advance::NeedBlock(request) => {
                    let source = usize::try_from(request.source).unwrap_or(usize::MAX);
                    let Some(reader) = blocks.get_mut(source) else { break };
                    let chunk = reader.load_block(request.block).await?;
                    if let Some(of_source) = cursor.source_mut(request.source) {
                        if let Some(done) = done.get_mut(source) {
                            *done = of_source.position();
                        }
                        of_source.feed(request.block, chunk);
                    }
                    progress.at(done.iter().sum(), total);
                }
                Advance::Item => {
                    if self.item(cursor.item()).map_err(Failure::Key)? {
                        self.give(sink)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns true if `cells` now holds a row.
    fn item(&mut self, item: Item<'_>) -> Result<bool, String> {
        match item {
            Item::Partition { token, key, .. } => {
                self.token = token;
                self.key.clear();
                self.key.extend_from_slice(key);
                self.static_row = None;
                self.has_rows = false;
                Ok(false)
            }
            Item::Static(row) => {
                self.static_row = Some(row.bytes().to_vec());
                Ok(false)
            }
            Item::Row { clustering, row } => {
                self.has_rows = true;
                self.row(Some((clustering, row)))
            }
            Item::PartitionEnd if !self.has_rows => self.row(None),
            Item::PartitionEnd | Item::Marker(_) => Ok(false),
        }
    }

    /// A row; `None`: the partition has none, perhaps a static one.
    fn row(&mut self, row: Option<(&[u8], RowRef<'_>)>) -> Result<bool, String> {
        self.cells.clear();
        let mut exec = SelectExec::new(&self.plan, &self.bound, &mut self.cells);
        let static_row = self.static_row.as_deref().map(RowRef::trusted);
        exec.partition(self.token, &self.key, static_row);
        match row {
            Some((clustering, row)) => exec.row(clustering, row),
            None => exec.partition_end(),
        };
        let done = exec.finish().map_err(|e| e.to_string())?;
        Ok(done.rows > 0)
    }

    /// Gives the row in `cells` away.
    fn give(&self, sink: &mut Sink) -> Result<(), Failure> {
        let mut cells = codec::Reader::new(&self.cells, "row");
        let mut values = Vec::with_capacity(self.plan.result_columns().len());
        for _ in self.plan.result_columns().iter() {
            let Ok(length) = cells.i32() else { break };
            values.push(usize::try_from(length).ok().and_then(|length| cells.bytes(length).ok()));
        }
        match sink {
            Sink::Parquet(file) => file.row(&values)?,
            Sink::Text(out, form) => out.print(&self.line(*form, &values)),
        }
        Ok(())
    }

    fn line(&self, form: RowForm, values: &[Option<&[u8]>]) -> String {
        let mut parts = Vec::new();
        for (column, value) in self.plan.result_columns().iter().zip(values) {
            match (form, value) {
                (RowForm::Csv, None) => parts.push(String::new()),
                (RowForm::Csv, Some(value)) => {
                    parts.push(csv_value(&column.ty.to_exact_json(value)))
                }
                (_, None) => {}
                (_, Some(value)) => {
                    let mut part = String::new();
                    types::format::push_json_string(&mut part, &json_name(&column.name));
                    part.push_str(": ");
                    part.push_str(&column.ty.to_exact_json(value));
                    parts.push(part);
                }
            }
        }
        match form {
            RowForm::Csv => format!("{}\n", parts.join(",")),
            _ => format!("{{{}}}\n", parts.join(", ")),
        }
    }
}

/// Returns the name of a column in the form of `INSERT JSON`.
pub(super) fn json_name(name: &str) -> String {
    let plain = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    let plain = plain && !name.starts_with(|c: char| c.is_ascii_digit());
    if plain { name.to_owned() } else { format!("\"{name}\"") }
}

/// A value of a line of CSV: JSON, without quotes around strings.
fn csv_value(json: &str) -> String {
    match serde_json::from_str::<String>(json) {
        Ok(text) => csv_cell(&text),
        Err(_) => csv_cell(json),
    }
}

/// Formats a text as a cell. An empty text is quoted: without quotes it is null.
fn csv_cell(text: &str) -> String {
    let special = |c: char| matches!(c, '"' | ',' | '\n' | '\r');
    if text.is_empty() || text.contains(special) {
        return format!("\"{}\"", text.replace('"', "\"\""));
    }
    text.to_owned()
}
