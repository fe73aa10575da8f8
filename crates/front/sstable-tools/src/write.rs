//! `helenus sstable write`: rows in CSV, lines of JSON or Parquet become the SSTables of a table, as
//! Cassandra's `CQLSSTableWriter` makes them: sorted, in files of about `--buffer`.
//!
//! The rows go through a store of their own, as those of a node do: what has the same key is merged.

mod columns;
mod lines;
mod statics;
mod times;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use clap::Args;
use cql_plan::modify::ModifyPlan;
use cql_plan::plan::{BoundValue, ExecuteOptions, PlanContext, PlanKind, PlanLimits, UuidSource};
use data::MutationRef;
use rt::Rt;
use schema::{Schema, Table};
use stdx::{DeletionSeconds, HostId, ShardMap, TimestampMicros, Uuid};
use store::{FlushCompression, Store, StoreOptions, Version};

use lines::{Input, document};
use times::Lives;

use super::export::{RowForm, usage};
use super::out::Progress;
use super::parquet::FileReader;
use super::{schema_file, written_version};
use tool_io::exit;

/// Options of `write`.
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
    /// Version of the files: me (Cassandra 3.11, ScyllaDB), nb (Cassandra 4), oa (5, BIG) or da (5, BTI)
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
    // Files there may be a node's, and a store removes incomplete ones as its own leftovers.
    if std::fs::read_dir(&directory).is_ok_and(|mut entries| entries.next().is_some()) {
        return usage(&format!("{directory} is not empty"));
    }
    // Nothing is begun with a file that is not whole.
    if options.format == RowForm::Parquet
        && let Err(text) = options.inputs.iter().try_for_each(|path| read_through(path))
    {
        complain_line!("helenus sstable: {text}");
        return exit::FAILED;
    }
    let made = not_there([
        options.output.clone(),
        format!("{}/{}", options.output, table.keyspace),
        directory.clone(),
    ]);
    match write(rt, options, version, &schema, &table).await {
        Ok(rows) => {
            complain_line!("{rows} rows written to {directory}");
            exit::OK
        }
        Err(text) => {
            // Nothing was there before: half of the rows are of no use.
            let removed = std::fs::remove_dir_all(&directory);
            if removed.is_err_and(|error| error.kind() != std::io::ErrorKind::NotFound) {
                complain_line!("helenus sstable: {directory} is left in part");
            }
            remove_made(&directory, &made);
            complain_line!("helenus sstable: {text}");
            exit::FAILED
        }
    }
}

/// Reads all rows of a Parquet file.
fn read_through(path: &str) -> Result<(), String> {
    let mut file = FileReader::open(path).map_err(|e| format!("{path}: {e}"))?;
    let mut rows = 1_u64;
    while file.row().map_err(|e| format!("{path}, row {rows}: {e}"))?.is_some() {
        rows += 1;
    }
    Ok(())
}

/// Returns those of the directories, each in the one before it, that do not exist yet.
fn not_there(directories: [String; 3]) -> Vec<String> {
    directories.into_iter().filter(|path| !std::fs::exists(path).unwrap_or(true)).collect()
}

/// Restores the directories as they were, unless other files were put into them. A directory that
/// existed, and was empty, is created again.
fn remove_made(directory: &str, made: &[String]) {
    if !made.iter().any(|path| path == directory)
        && let Err(error) = std::fs::create_dir(directory)
        && error.kind() != std::io::ErrorKind::AlreadyExists
    {
        complain_line!("helenus sstable: {directory}: {error}");
    }
    for path in made.iter().rev() {
        let removed = std::fs::remove_dir(path);
        if let Err(error) = removed.map_err(|error| error.kind())
            && !matches!(
                error,
                std::io::ErrorKind::NotFound | std::io::ErrorKind::DirectoryNotEmpty
            )
        {
            complain_line!("helenus sstable: {path} is left: {error}");
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
    // Stays empty: it exists because a store needs one.
    let log = format!("{}/.helenus-write-{}", options.output, std::process::id());
    let rows = write_with_log(rt, options, version, schema, table, &log).await;
    let removed = std::fs::remove_dir_all(&log);
    let rows = rows?;
    removed.map_err(|e| format!("{log}: {e}"))?;
    Ok(rows)
}

async fn write_with_log(
    rt: &Rt,
    options: &Write,
    version: Version,
    schema: &Arc<Schema>,
    table: &Arc<Table>,
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
        ShardMap::ByTokenHash { shards: rt.shard_count() },
        cql_plan::describe::schema_text,
    );
    of_store.commitlog_inventories = Some(format!("{log}/inventories"));
    of_store.sstable_version = version;
    // Nothing compacts these files before they are loaded, and no client waits for a flush.
    of_store.flush_compression = FlushCompression::Table;
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

/// Returns the schema with only this table, and its automatic compactions turned off.
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
    /// Last second at which a value may expire in files of the version that is written.
    expiry_max: DeletionSeconds,
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
        let version = written_version(&options.sstable_version);
        let expiry_max = match version.is_some_and(Version::has_uint_times) {
            true => DeletionSeconds::MAX_UNSIGNED,
            false => DeletionSeconds::MAX_SIGNED,
        };
        let rows = Rows { options, schema, table, schema_of_statics, uuids, now, expiry_max };
        // Data that can never be written is refused before any file is read.
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
        let (now, expiry_max) = (self.now, self.expiry_max);
        let limits = PlanLimits { expiry_max, ..PlanLimits::default() };
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
                let mut progress = Progress::new(&format!("write {path}"));
                let at = |rows: u64, e: String| format!("{path}, row {}: {e}", rows - of_file + 1);
                while let Some(row) = file.row().map_err(|e| at(rows, e))? {
                    bytes += columns.write(self, store, &row).map_err(|e| at(rows, e))?;
                    rows += 1;
                    progress.at(rows - of_file, file.rows());
                    if bytes >= buffer {
                        bytes = 0;
                        store.flush(None).await.map_err(|e| e.to_string())?;
                    }
                }
                continue;
            }
            let mut input = Input::open(path)?;
            let mut progress = Progress::new(&format!("write {path}"));
            let columns = match self.options.format {
                RowForm::Csv => lines::columns(self.table, path, &mut input)?,
                _ => Vec::new(),
            };
            loop {
                let row = match self.options.format {
                    RowForm::Csv => {
                        input.record().map(|cells| cells.map(|cells| document(&columns, &cells)))
                    }
                    _ => input.text().map(|text| text.map(Ok)),
                };
                let at = input.begin;
                let wrong = |text: String| format!("{path}, line {at}: {text}");
                let Some(json) = row.map_err(wrong)? else { break };
                let json = json.map_err(wrong)?;
                if json.trim().is_empty() {
                    continue;
                }
                bytes += self.row(store, &plans, &json).map_err(wrong)?;
                rows += 1;
                progress.at(input.bytes, input.length);
                if bytes >= buffer {
                    bytes = 0;
                    store.flush(None).await.map_err(|e| e.to_string())?;
                }
            }
        }
        Ok(rows)
    }

    /// Writes a row; its bytes.
    fn row(&self, store: &Store, plans: &Plans, json: &str) -> Result<u64, String> {
        let (without_times, times) = times::taken_of_json(self.table, json)?;
        let json = without_times.as_deref().unwrap_or(json);
        let is_of_statics = plans.of_statics.is_some() && statics::is_of_statics(self.table, json)?;
        let row = Row { values: &[BoundValue::Bytes(json.as_bytes())], is_of_statics, times };
        self.bound(store, plans, &row)
    }

    /// Writes what a plan makes of values; its bytes.
    fn bound(&self, store: &Store, plans: &Plans, row: &Row<'_>) -> Result<u64, String> {
        let options = ExecuteOptions {
            now: self.now,
            clock: self.now,
            default_timestamp: TimestampMicros(self.now.0),
            page_size: None,
            paging_state: None,
            protocol_version: 5,
            uuids: &self.uuids,
            watch: None,
        };
        let mut bytes = Vec::new();
        let of_statics = plans.of_statics.as_ref().filter(|_| row.is_of_statics);
        let plan = of_statics.unwrap_or(&plans.plan);
        let mutations = plan.bind(row.values, &options, &mut bytes).map_err(|e| e.to_string())?;
        for mutation in &mutations {
            let mutation = bytes.get(mutation.range.clone()).unwrap_or_default();
            let mut mutation = MutationRef::open(mutation).ok_or("a mutation that is none")?;
            let of_partition = of_statics.map(|_| statics::static_mutation(&mutation));
            if let Some(bytes) = &of_partition {
                mutation = MutationRef::open(bytes).ok_or("a mutation that is none")?;
            }
            let timed = match row.times.is_empty() {
                true => None,
                false => {
                    let lives = Lives { now: self.now.seconds(), expiry_max: self.expiry_max };
                    Some(row.times.applied(self.table, &mutation, lives)?)
                }
            };
            if let Some(bytes) = &timed {
                mutation = MutationRef::open(bytes).ok_or("a mutation that is none")?;
            }
            store.apply(&mutation, false).map_err(|e| e.to_string())?;
        }
        Ok(bytes.len() as u64)
    }
}

/// A row to be written.
struct Row<'v> {
    values: &'v [BoundValue<'v>],
    is_of_statics: bool,
    times: times::Times,
}
