//! `helenus sstable write`: rows in CSV, lines of JSON or Parquet become the SSTables of a table, as
//! Cassandra's `CQLSSTableWriter` makes them: sorted, in files of about `--buffer`.
//!
//! The rows go through a store of their own, as those of a node do: what has the same key is merged.

mod columns;
mod statics;

use std::io::{BufRead, BufReader};
use std::sync::Arc;

use clap::Args;
use cql_plan::modify::ModifyPlan;
use cql_plan::plan::{BoundValue, ExecuteOptions, PlanContext, PlanKind, PlanLimits, UuidSource};
use data::MutationRef;
use rt::Rt;
use schema::{Schema, Table};
use stdx::{HostId, TimestampMicros, Uuid};
use store::{Store, StoreOptions, Version};
use types::CqlType;

use super::export::{RowForm, json_name, usage};
use super::parquet::FileReader;
use super::{schema_file, written_version};
use crate::exit;

/// Longest row of input, bytes.
const LINE_BYTES_MAX: usize = 256 << 20;

/// What `write` is told.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct Write {
    /// Form of the rows. In CSV the first line names the columns; an empty cell without quotes, and a
    /// null of Parquet, is left out
    #[arg(long, value_enum, default_value = "json")]
    format: RowForm,
    /// File with the CREATE statements of the table and its types
    #[arg(long, value_name = "FILE")]
    schema: String,
    /// Keyspace and table, where the schema has several
    #[arg(long, value_name = "KEYSPACE.TABLE")]
    table: Option<String>,
    /// Version of the files: me (Cassandra 3.11, Scylla), nb (Cassandra 4), oa (5, BIG) or da (5, BTI)
    #[arg(long, default_value = "nb", value_name = "VERSION")]
    sstable_version: String,
    /// Timestamp of all rows in microseconds; by default the time of the start
    #[arg(long, value_name = "MICROSECONDS", allow_negative_numbers = true)]
    timestamp: Option<i64>,
    /// Time to live of all rows in seconds
    #[arg(long, value_name = "SECONDS")]
    ttl: Option<u32>,
    /// Memory for rows, after which a file is written
    #[arg(long, default_value_t = 128, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=65_536))]
    buffer: u64,
    /// Directory for KEYSPACE/TABLE-ID; the table's directory must be empty or not there
    #[arg(long, short, value_name = "DIR")]
    output: String,
    /// Files with rows; - is standard input, but not for Parquet
    #[arg(required = true, value_name = "FILE")]
    inputs: Vec<String>,
}

pub(super) async fn run(rt: &Rt, options: &Write) -> u8 {
    if options.format == RowForm::Parquet && options.inputs.iter().any(|path| path == "-") {
        return usage("Parquet is read from its end: give a file instead of -");
    }
    let Some(version) = written_version(&options.sstable_version) else {
        let name = &options.sstable_version;
        return usage(&format!("\"{name}\" is not a version that is written: me, nb, oa or da"));
    };
    let found = schema_file::read(&options.schema).and_then(|schema| {
        let table = schema_file::table(&schema, options.table.as_deref())?;
        Ok((schema, table))
    });
    let (schema, table) = match found {
        Ok(found) => found,
        Err(text) => return usage(&text),
    };
    let directory = format!("{}/{}/{}", options.output, table.keyspace, table.directory_name());
    // What lies there may be a node's, and a store takes what is incomplete for its own leftovers.
    if std::fs::read_dir(&directory).is_ok_and(|mut entries| entries.next().is_some()) {
        return usage(&format!("{directory} is not empty"));
    }
    match write(rt, options, version, &schema, &table).await {
        Ok(rows) => {
            eprintln!("{rows} rows written to {directory}");
            exit::OK
        }
        Err(text) => {
            // Nothing was there before: half of the rows are of no use.
            let removed = std::fs::remove_dir_all(&directory);
            if removed.is_err_and(|error| error.kind() != std::io::ErrorKind::NotFound) {
                eprintln!("helenus sstable: {directory} is left in part");
            }
            eprintln!("helenus sstable: {text}");
            exit::FAILED
        }
    }
}

async fn write(
    rt: &Rt,
    options: &Write,
    version: Version,
    schema: &Arc<Schema>,
    table: &Arc<Table>,
) -> Result<u64, String> {
    // Nothing is written to it: it is there because a store has one.
    let log = format!("{}/.helenus-write-{}", options.output, std::process::id());
    let rows = write_with_log(rt, options, version, (schema, table), &log).await;
    let removed = std::fs::remove_dir_all(&log);
    let rows = rows?;
    removed.map_err(|e| format!("{log}: {e}"))?;
    Ok(rows)
}

async fn write_with_log(
    rt: &Rt,
    options: &Write,
    version: Version,
    (schema, table): (&Arc<Schema>, &Arc<Table>),
    log: &str,
) -> Result<u64, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let bytes = options.buffer << 20;
    let run = u64::try_from(rt.wall().0).unwrap_or(1);
    let mut of_store = StoreOptions::new(
        options.output.clone(),
        log.to_owned(),
        HostId(Uuid::nil()),
        run,
        cluster::shard_of_token,
        cql_plan::describe::schema_text,
    );
    of_store.sstable_version = version;
    of_store.memtable_bytes_max = usize::try_from(bytes.saturating_mul(8)).unwrap_or(usize::MAX);
    let uncompacted = without_compaction(schema, table)?;
    let opened = Store::open(rt.clone(), of_store, uncompacted).await;
    let (store, _) = opened.map_err(|e| text(&e))?;
    let rows = Rows::new(rt, options, schema, table)?.write(&store, bytes).await;
    let drained = store.drain().await;
    store.stop().await;
    let rows = rows?;
    drained.map_err(|e| text(&e))?;
    Ok(rows)
}

/// The schema with the one table, which is not compacted by itself.
fn without_compaction(schema: &Schema, table: &Table) -> Result<Arc<Schema>, String> {
    let mut of_store = table.clone();
    of_store.options.compaction.insert("enabled".to_owned(), "false".to_owned());
    of_store.version = of_store.version.saturating_add(1);
    let mut only = schema.clone();
    only.tables_by_id.retain(|id, _| *id == table.id);
    for keyspace in only.keyspaces.values_mut() {
        Arc::make_mut(keyspace).tables.retain(|_, other| other.id == table.id);
    }
    let change = schema::SchemaChange::AlterTable(of_store);
    only.apply(&change).map(Arc::new).map_err(|e| e.to_string())
}

/// Rows of input to mutations, by the plans of `INSERT`.
struct Rows<'o> {
    options: &'o Write,
    schema: &'o Arc<Schema>,
    table: &'o Arc<Table>,
    /// The schema in which the table has its partition key and static columns only.
    schema_of_statics: Option<Arc<Schema>>,
    uuids: UuidSource,
    now: stdx::WallMicros,
}

/// How rows of the same columns are written.
struct Plans {
    plan: ModifyPlan,
    /// For rows of static columns only.
    of_statics: Option<ModifyPlan>,
}

impl<'o> Rows<'o> {
    fn new(
        rt: &Rt,
        options: &'o Write,
        schema: &'o Arc<Schema>,
        table: &'o Arc<Table>,
    ) -> Result<Rows<'o>, String> {
        let now = rt.wall();
        let schema_of_statics = statics::schema_of_statics(schema, table).map(Arc::new);
        let uuids = UuidSource::new(rt.random_u64());
        let rows = Rows { options, schema, table, schema_of_statics, uuids, now };
        // What cannot be written at all is refused before any file is read.
        rows.plan(schema, "JSON ?").map(|_| rows)
    }

    /// The plan of an INSERT of these columns and values.
    fn plan(&self, schema: &Arc<Schema>, what: &str) -> Result<ModifyPlan, String> {
        let mut text = format!("INSERT INTO {} {what}", schema_file::quoted_name(self.table));
        if what.starts_with("JSON") {
            text.push_str(" DEFAULT UNSET");
        }
        let timestamp = self.options.timestamp.unwrap_or(self.now.0);
        text.push_str(&format!(" USING TIMESTAMP {timestamp}"));
        if let Some(ttl) = self.options.ttl {
            text.push_str(&format!(" AND TTL {ttl}"));
        }
        let statement = cql_syntax::parse(&text).map_err(|e| e.to_string())?;
        let (now, limits) = (self.now, PlanLimits::default());
        let context = PlanContext { schema, keyspace: None, limits: &limits, now, functions: None };
        match cql_plan::plan::plan(&statement, &context).map_err(|e| e.to_string())?.kind {
            PlanKind::Modify(plan) => Ok(plan),
            _ => Err("not a write".to_owned()),
        }
    }

    async fn write(&self, store: &Store, buffer: u64) -> Result<u64, String> {
        let (mut rows, mut bytes) = (0_u64, 0_u64);
        let of_statics = self.schema_of_statics.as_ref();
        let of_statics = of_statics.map(|schema| self.plan(schema, "JSON ?")).transpose()?;
        let plans = Plans { plan: self.plan(self.schema, "JSON ?")?, of_statics };
        for path in &self.options.inputs {
            if self.options.format == RowForm::Parquet {
                let mut file = FileReader::open(path).map_err(|e| format!("{path}: {e}"))?;
                let columns = columns::Columns::new(self, &file);
                let columns = columns.map_err(|e| format!("{path}: {e}"))?;
                let of_file = rows;
                let at = |rows: u64, e: String| format!("{path}, row {}: {e}", rows - of_file + 1);
                while let Some(row) = file.row().map_err(|e| at(rows, e))? {
                    bytes += columns.write(self, store, &row).map_err(|e| at(rows, e))?;
                    rows += 1;
                    if bytes >= buffer {
                        bytes = 0;
                        store.flush(None).await.map_err(|e| e.to_string())?;
                    }
                }
                continue;
            }
            let input: Box<dyn BufRead> = match path.as_str() {
                "-" => Box::new(BufReader::new(std::io::stdin())),
                path => {
                    let file = std::fs::File::open(path).map_err(|e| format!("{path}: {e}"))?;
                    Box::new(BufReader::with_capacity(1 << 20, file))
                }
            };
            let mut input = Input { input, line: 0 };
            let columns = match self.options.format {
                RowForm::Csv => self.columns(path, &mut input)?,
                _ => Vec::new(),
            };
            loop {
                let at = input.line + 1;
                let wrong = |text: String| format!("{path}, line {at}: {text}");
                let json = match self.options.format {
                    RowForm::Csv => {
                        input.record().map_err(wrong)?.map(|cells| document(&columns, &cells))
                    }
                    _ => input.text().map_err(wrong)?.map(Ok),
                };
                let Some(json) = json else { break };
                let json = json.map_err(wrong)?;
                if json.trim().is_empty() {
                    continue;
                }
                bytes += self.row(store, &plans, &json).map_err(wrong)?;
                rows += 1;
                if bytes >= buffer {
                    bytes = 0;
                    store.flush(None).await.map_err(|e| e.to_string())?;
                }
            }
        }
        Ok(rows)
    }

    /// The columns that the first line names.
    fn columns(&self, path: &str, input: &mut Input) -> Result<Vec<(String, CqlType)>, String> {
        let names = input.record().map_err(|e| format!("{path}: {e}"))?.unwrap_or_default();
        let mut columns = Vec::new();
        for name in names.into_iter().map(|cell| cell.unwrap_or_default()) {
            let found = self.table.column(&name);
            let found = found.ok_or_else(|| {
                format!("{path}: {} has no column \"{name}\"", schema_file::name_of(self.table))
            })?;
            columns.push((json_name(&name), found.ty.clone()));
        }
        Ok(columns)
    }

    /// Writes a row; its bytes.
    fn row(&self, store: &Store, plans: &Plans, json: &str) -> Result<u64, String> {
        let is_of_statics = plans.of_statics.is_some() && statics::is_of_statics(self.table, json)?;
        self.bound(store, plans, is_of_statics, &[BoundValue::Bytes(json.as_bytes())])
    }

    /// Writes what a plan makes of values; its bytes.
    fn bound(
        &self,
        store: &Store,
        plans: &Plans,
        is_of_statics: bool,
        values: &[BoundValue<'_>],
    ) -> Result<u64, String> {
        let options = ExecuteOptions {
            now: self.now,
            default_timestamp: TimestampMicros(self.now.0),
            page_size: None,
            paging_state: None,
            protocol_version: 5,
            uuids: &self.uuids,
            watch: None,
        };
        let mut bytes = Vec::new();
        let of_statics = plans.of_statics.as_ref().filter(|_| is_of_statics);
        let plan = of_statics.unwrap_or(&plans.plan);
        let mutations = plan.bind(values, &options, &mut bytes).map_err(|e| e.to_string())?;
        for mutation in &mutations {
            let mutation = bytes.get(mutation.range.clone()).unwrap_or_default();
            let mut mutation = MutationRef::open(mutation).ok_or("a mutation that is none")?;
            let of_partition = of_statics.map(|_| statics::static_mutation(&mutation));
            if let Some(bytes) = &of_partition {
                mutation = MutationRef::open(bytes).ok_or("a mutation that is none")?;
            }
            store.apply(&mutation, false).map_err(|e| e.to_string())?;
        }
        Ok(bytes.len() as u64)
    }
}

/// A row of cells as JSON.
fn document(columns: &[(String, CqlType)], cells: &[Option<String>]) -> Result<String, String> {
    if cells.len() != columns.len() {
        return Err(format!("{} cells for {} columns", cells.len(), columns.len()));
    }
    let mut out = "{".to_owned();
    for ((name, ty), cell) in columns.iter().zip(cells) {
        let Some(cell) = cell else { continue };
        if out.len() > 1 {
            out.push_str(", ");
        }
        types::format::push_json_string(&mut out, name);
        out.push_str(": ");
        match ty {
            CqlType::List { .. }
            | CqlType::Set { .. }
            | CqlType::Map { .. }
            | CqlType::Udt(_)
            | CqlType::Tuple(_)
            | CqlType::Vector { .. } => out.push_str(cell),
            _ => types::format::push_json_string(&mut out, cell),
        }
    }
    out.push('}');
    Ok(out)
}

/// Lines of a file, counted.
struct Input {
    input: Box<dyn BufRead>,
    /// Lines read.
    line: u64,
}

impl Input {
    /// The next line with its end; `None`: there is none.
    fn raw(&mut self) -> Result<Option<String>, String> {
        let mut line = String::new();
        let mut limited = std::io::Read::take(&mut self.input, LINE_BYTES_MAX as u64 + 1);
        let read = limited.read_line(&mut line).map_err(|e| e.to_string())?;
        if read > LINE_BYTES_MAX {
            return Err(format!("longer than {LINE_BYTES_MAX} bytes"));
        }
        self.line += 1;
        Ok((read > 0).then_some(line))
    }

    fn text(&mut self) -> Result<Option<String>, String> {
        self.raw()
    }

    /// The next record of CSV: cells in quotes may hold ends of lines and doubled quotes. `None` as
    /// a cell: empty without quotes.
    fn record(&mut self) -> Result<Option<Vec<Option<String>>>, String> {
        let Some(mut text) = self.raw()? else { return Ok(None) };
        // A quote in a cell is doubled, so a record has an even number of them.
        while text.bytes().filter(|b| *b == b'"').count() % 2 == 1 {
            let Some(more) = self.raw()? else { return Err("a quote is not closed".to_owned()) };
            text.push_str(&more);
            if text.len() > LINE_BYTES_MAX {
                return Err(format!("longer than {LINE_BYTES_MAX} bytes"));
            }
        }
        cells_of(text.trim_end_matches(['\n', '\r'])).map(Some)
    }
}

fn cells_of(record: &str) -> Result<Vec<Option<String>>, String> {
    let mut cells = Vec::new();
    let mut rest = record;
    loop {
        let (cell, behind) = match rest.strip_prefix('"') {
            Some(inner) => quoted(inner)?,
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                let (cell, behind) = rest.split_at(end);
                if cell.contains('"') {
                    return Err("a quote in a cell that does not begin with one".to_owned());
                }
                ((!cell.is_empty()).then(|| cell.to_owned()), behind)
            }
        };
        cells.push(cell);
        if behind.is_empty() {
            return Ok(cells);
        }
        let next = behind.strip_prefix(',');
        rest = next.ok_or_else(|| "something behind a closing quote".to_owned())?;
    }
}

/// A cell behind its opening quote, and what is behind its closing one.
fn quoted(inner: &str) -> Result<(Option<String>, &str), String> {
    let mut cell = String::new();
    let mut rest = inner;
    loop {
        let (before, behind) = rest.split_once('"').ok_or("a quote is not closed")?;
        cell.push_str(before);
        match behind.strip_prefix('"') {
            Some(more) => {
                cell.push('"');
                rest = more;
            }
            None => return Ok((Some(cell), behind)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes rows of JSON or CSV to a directory below a new one and verifies the files.
    fn written(name: &str, format: &str, rows: &str) -> (u8, usize) {
        use clap::Parser;

        #[derive(Parser)]
        struct Line {
            #[command(subcommand)]
            command: crate::sstable_tools::Command,
        }
        let work = std::env::temp_dir().join(format!("helenus-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&work).unwrap();
        let path = |name: &str| work.join(name).to_string_lossy().into_owned();
        let schema = "CREATE TABLE ks.t (k int, c text, s int static, l list<text>, v blob, \
                      PRIMARY KEY (k, c)) WITH id = 5bc52802-de25-35ed-aeab-188eecebb090";
        std::fs::write(path("schema.cql"), schema).unwrap();
        std::fs::write(path("rows"), rows).unwrap();
        let (schema, rows, output) = (path("schema.cql"), path("rows"), path("out"));
        let words = ["sstable", "write", "--schema", &schema, "--format", format];
        let words =
            words.into_iter().chain(["--sstable-version", "da", "--output", &output, &rows]);
        let code = crate::sstable_tools::main(Line::parse_from(words).command);
        let table = work.join("out/ks/t-5bc52802de2535edaeab188eecebb090");
        let files = std::fs::read_dir(&table).into_iter().flatten().flatten();
        let files: Vec<String> = files
            .map(|entry| entry.path().to_string_lossy().into_owned())
            .filter(|path| path.ends_with("-bti-Data.db"))
            .collect();
        for file in &files {
            let verify = crate::sstable_tools::Command::Verify { files: vec![file.clone()] };
            assert_eq!(crate::sstable_tools::main(verify), exit::OK);
        }
        let log = std::fs::read_dir(work.join("out")).into_iter().flatten().count();
        assert!(log <= 1, "the log is left");
        std::fs::remove_dir_all(&work).unwrap();
        (code, files.len())
    }

    #[test]
    fn rows_become_files_and_what_is_no_row_is_refused_with_nothing_written() {
        let json = "{\"k\": 1, \"c\": \"b\", \"l\": [\"x\"], \"v\": \"0x01\"}\n\
                    {\"k\": 1, \"c\": \"a\", \"s\": 5}\n\n";
        assert_eq!(written("json", "json", json), (exit::OK, 1));
        assert_eq!(written("csv", "csv", "c,k,l\na,1,\"[\"\"x\"\"]\"\n\"\",2,\n"), (exit::OK, 1));
        assert_eq!(written("none", "json", ""), (exit::OK, 0));
        assert_eq!(written("key", "json", "{\"c\": \"b\"}"), (exit::FAILED, 0));
        let of_partition = "{\"K\": 2, \"s\": 6}\n";
        assert_eq!(written("static", "json", of_partition), (exit::OK, 1));
        assert_eq!(written("statics", "csv", "k,c,s\n1,,5\n1,a,\n"), (exit::OK, 1));
        let of_row = format!("{json}{{\"k\": 2, \"s\": 6, \"v\": \"0x01\"}}");
        assert_eq!(written("of-row", "json", &of_row), (exit::FAILED, 0));
        assert_eq!(written("cells", "csv", "c,k\na\n").0, exit::FAILED);
        assert_eq!(written("column", "csv", "c,x\na,1\n").0, exit::FAILED);
        assert_eq!(written("parquet", "parquet", "PAR1"), (exit::FAILED, 0));
    }

    #[test]
    fn records_have_cells_in_quotes_over_several_lines_and_nulls() {
        let input = "a,\"b\"\"\nc\",,\"\"\n1,2\r\n\"x";
        let mut input = Input { input: Box::new(std::io::Cursor::new(input)), line: 0 };
        let text = |text: &str| Some(text.to_owned());
        let first = vec![text("a"), text("b\"\nc"), None, text("")];
        assert_eq!(input.record(), Ok(Some(first)));
        assert_eq!(input.record(), Ok(Some(vec![text("1"), text("2")])));
        assert_eq!(input.record(), Err("a quote is not closed".to_owned()));
        assert_eq!(cells_of("").unwrap(), [None]);
        assert_eq!(cells_of(",").unwrap(), [None, None]);
        assert!(cells_of("\"a\"b").is_err() && cells_of("a\"b").is_err());
    }
}
