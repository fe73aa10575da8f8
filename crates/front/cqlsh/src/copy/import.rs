//! COPY FROM: records in chunks to workers, which bind and batch them.
//!
//! Owns: the division of work between threads, the counts, the file of failed rows. Never: reads
//! files (`source`), converts (`rows`), sends requests (`worker`, `links`).
//!
//! One thread reads and finds the ends of records; the workers take chunks from it, parse, bind and
//! send; the shell's thread prints and stores the failed rows.

mod links;
mod rows;
mod source;
mod worker;

use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use crate::connection::{Answer, Connection};
use crate::copy::convert::Conversion;
use crate::copy::import::source::{Chunk, Feeder};
use crate::copy::import::worker::{Job, Statement};
use crate::copy::meter::{Meter, interval};
use crate::copy::options::CopyOptions;
use crate::copy::ring::Ring;
use crate::copy::{Subject, name_list, starting};
use crate::failure::Failure;
use crate::schema::Role;
use crate::shell::Shell;
use crate::time::{Moment, Zone};

/// Interval of the checks for Ctrl-C.
const INTERRUPT_PAUSE: Duration = Duration::from_millis(100);

/// Message from a worker or the reader to the shell's thread.
enum News {
    /// Rows are in the table.
    Imported(u64),
    /// Rows that cannot become values: the error's class and text.
    Unreadable { class: &'static str, text: String, records: Vec<Vec<u8>> },
    /// Rows that the server refused.
    Refused { failure: Failure, records: Vec<Vec<u8>>, attempts: u32, last: bool },
    /// The input ends here.
    ReadError(String),
}

/// Imports the columns. The error is for the user.
///
/// # Errors
/// Nothing was imported, and why.
pub(crate) fn run(
    shell: &mut Shell,
    subject: &Subject,
    path: Option<&str>,
    options: &CopyOptions,
) -> Result<(), String> {
    let start = Instant::now();
    let columns = columns_to_write(subject, options)?;
    shell.say(&starting(subject, &columns));
    let statement = statement(shell, subject, &columns, options)?;
    let mut feeder = match path {
        Some(path) => Feeder::files(path, options),
        None => Feeder::text(stdin_text(shell), options),
    };
    shell.flush();
    move_old_errors(&options.error_file);
    let conversion = Conversion::of(options);
    let target = shell.target_of_workers();
    let ring = Ring::read(shell, &subject.keyspace);
    let job = Job {
        options,
        target: &target,
        ring: &ring,
        conversion: &conversion,
        statement: &statement,
        keep: &subject.columns.iter().map(|name| columns.contains(name)).collect::<Vec<_>>(),
        consistency: shell.consistency,
        field_bytes_max: shell.options.field_size_limit,
    };
    let stop = AtomicBool::new(false);
    let mut errors = Errors { options, parse: 0, insert: 0, failed: 0, file: None };
    let mut meter = Meter::new(options.report_every, false, options.rate_file.clone());
    let (news, from_workers) = sync_channel(1024);
    let (chunks, for_workers) = sync_channel::<Chunk>(options.chunks_waiting * options.workers);
    let for_workers = Arc::new(Mutex::new(for_workers));
    std::thread::scope(|scope| {
        for _ in 0..options.workers {
            let (job, stop, news) = (&job, &stop, news.clone());
            let chunks = Arc::clone(&for_workers);
            scope.spawn(move || worker::work(job, &chunks, &news, stop));
        }
        // Without workers the receiver is dropped, so the reader ends too.
        drop(for_workers);
        let (stop, feeder) = (&stop, &mut feeder);
        scope.spawn(move || {
            if let Err(error) = feeder.feed(&chunks, stop) {
                let _ = news.send(News::ReadError(error));
            }
        });
        collect(shell, &from_workers, &mut errors, &mut meter, stop);
    });
    if errors.failed > 0 {
        shell.print_error(&format!(
            "Failed to process {} rows; failed rows written to {}",
            errors.failed, options.error_file
        ));
    }
    let rows = meter.finish().saturating_sub(errors.failed);
    shell.say(&format!(
        "\n{rows} rows imported from {} files in {} ({} skipped).",
        feeder.sources,
        interval(start.elapsed()),
        options.skip_rows
    ));
    Ok(())
}

/// The columns that are written, the whole primary key among them.
fn columns_to_write(subject: &Subject, options: &CopyOptions) -> Result<Vec<String>, String> {
    let columns: Vec<String> = subject
        .columns
        .iter()
        .filter(|name| !options.skip_columns.contains(name))
        .cloned()
        .collect();
    if columns.is_empty() {
        return Err("No valid column specified".to_owned());
    }
    let key_role = |role: Role| matches!(role, Role::Partition | Role::Clustering);
    let keys = subject.layout.columns.iter().filter(|column| key_role(column.role));
    match keys.map(|column| &column.name).find(|name| !columns.contains(*name)) {
        Some(missing) => Err(format!("Primary key column '{missing}' missing or skipped")),
        None => Ok(columns),
    }
}

/// Prepares the statement that is run for each row.
fn statement(
    shell: &mut Shell,
    subject: &Subject,
    columns: &[String],
    options: &CopyOptions,
) -> Result<Statement, String> {
    let kind = |name: &String| subject.layout.column(name).map(|column| column.kind.as_str());
    let counter = columns.iter().any(|name| kind(name) == Some("counter"));
    let quote = |name: &String| types::name::quote_identifier(name);
    let is_key = |name: &&String| {
        let role = subject.layout.column(name).map(|column| column.role);
        matches!(role, Some(Role::Partition | Role::Clustering))
    };
    let mut around = None;
    let (order, query) = if counter {
        if options.ttl.is_some() {
            return Err("TTL: counters do not expire".to_owned());
        }
        let set: Vec<&String> = columns.iter().filter(|name| !is_key(name)).collect();
        let keys: Vec<&String> = columns.iter().filter(is_key).collect();
        let sets: Vec<String> =
            set.iter().map(|name| format!("{0} = {0} + ?", quote(name))).collect();
        let wheres: Vec<String> = keys.iter().map(|name| format!("{} = ?", quote(name))).collect();
        let query = format!(
            "UPDATE {} SET {} WHERE {}",
            subject.quoted(),
            sets.join(", "),
            wheres.join(" AND ")
        );
        (set.into_iter().chain(keys).cloned().collect::<Vec<_>>(), query)
    } else {
        let ttl = options.ttl.map_or_else(String::new, |ttl| format!(" USING TTL {ttl}"));
        let before = format!("INSERT INTO {} ({}) VALUES (", subject.quoted(), name_list(columns));
        let query = format!("{before}{}){ttl}", vec!["?"; columns.len()].join(", "));
        // Increments of counters are always bound: cqlsh has them as literals, to the same end.
        around = (!options.prepared_statements).then(|| (before, format!("){ttl}")));
        (columns.to_vec(), query)
    };
    let prepared = prepare(&mut shell.connection, &query, shell.options.request_timeout)
        .map_err(|failure| failure.to_string())?;
    let place = |name: &String| columns.iter().position(|column| column == name);
    let fields: Vec<usize> = order.iter().filter_map(place).collect();
    let key_fields: Vec<usize> =
        subject.names_of(Role::Partition).iter().filter_map(place).collect();
    let key = match around {
        // After the literals of all columns.
        Some(_) => (0..key_fields.len()).map(|at| columns.len() + at).collect(),
        None => key_fields.clone(),
    };
    let roles: Vec<Option<Role>> =
        columns.iter().map(|name| subject.layout.column(name).map(|column| column.role)).collect();
    let mut kinds = vec![types::CqlType::Blob; columns.len()];
    for (marker, field) in prepared.markers.iter().zip(&fields) {
        if let Some(kind) = kinds.get_mut(*field) {
            kind.clone_from(&marker.kind);
        }
    }
    let columns = columns.to_vec();
    Ok(Statement { query, around, counter, fields, key_fields, key, kinds, roles, columns })
}

/// PREPARE.
fn prepare(
    connection: &mut Connection,
    query: &str,
    timeout: std::time::Duration,
) -> Result<crate::connection::Prepared, Failure> {
    let request = cql_wire::Request::Prepare { query, keyspace: None };
    match connection.request(&request, false, timeout)?.answer {
        Answer::Prepared(prepared) => Ok(prepared),
        _ => Err(Failure::connection("PREPARE was not answered with a statement")),
    }
}

/// Lines up to one with a single dot.
fn stdin_text(shell: &mut Shell) -> String {
    shell.say("[Use . on a line by itself to end input]");
    shell.flush();
    let mut text = String::new();
    while let crate::input::Line::Text(line) = shell.input.line("[copy] ") {
        if matches!(line.trim_end_matches(['\r', '\n']), "." | "\\.") {
            break;
        }
        text.push_str(&line);
        if !line.ends_with('\n') {
            text.push('\n');
        }
    }
    if shell.tty {
        shell.say("");
    }
    text
}

/// Renames an old file of failed rows: the time is appended to its name.
fn move_old_errors(path: &str) {
    if !std::path::Path::new(path).is_file() {
        return;
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let moment = Moment::of_micros(i64::try_from(now.as_micros()).unwrap_or(0));
    let suffix = moment.map(|moment| moment.format(".%Y%m%d_%H%M%S", &Zone::default()));
    // If the rename fails, failed rows are appended to the old ones.
    let _ = std::fs::rename(path, format!("{path}{}", suffix.unwrap_or_default()));
}

/// Failed rows: their counts, limits and file.
struct Errors<'o> {
    options: &'o CopyOptions,
    parse: u64,
    insert: u64,
    failed: u64,
    file: Option<File>,
}

impl Errors<'_> {
    fn keep(&mut self, shell: &mut Shell, records: &[Vec<u8>]) {
        self.failed += u64::try_from(records.len()).unwrap_or(0);
        let path = &self.options.error_file;
        if self.file.is_none() {
            match File::options().append(true).create(true).open(path) {
                Ok(file) => self.file = Some(file),
                Err(error) => return shell.print_error(&format!("Cannot write {path}: {error}")),
            }
        }
        let mut bytes = Vec::new();
        for record in records {
            bytes.extend_from_slice(record);
            if !record.ends_with(b"\n") {
                bytes.extend_from_slice(b"\r\n");
            }
        }
        if let Some(Err(error)) = self.file.as_mut().map(|file| file.write_all(&bytes)) {
            shell.print_error(&format!("Cannot write {path}: {error}"));
        }
    }

    /// Returns an error if there are too many errors.
    fn exceeded(&self) -> Option<String> {
        if let Some(most) = self.options.insert_errors_max.filter(|most| self.insert > *most) {
            return Some(format!("Exceeded maximum number of insert errors {most}"));
        }
        let most = self.options.parse_errors_max.filter(|most| self.parse > *most)?;
        Some(format!("Exceeded maximum number of parse errors {most}"))
    }
}

/// Prints and counts until the last thread ends.
fn collect(
    shell: &mut Shell,
    news: &Receiver<News>,
    errors: &mut Errors<'_>,
    meter: &mut Meter,
    stop: &AtomicBool,
) {
    let mut heard = Instant::now();
    loop {
        // Checked also while the server sends nothing.
        if shell.target.interrupt.is_set() {
            stop.store(true, Ordering::Relaxed);
        }
        let next = match news.recv_timeout(INTERRUPT_PAUSE) {
            Ok(next) => next,
            Err(RecvTimeoutError::Timeout) => {
                if let Some(most) = errors.options.silence_max
                    && heard.elapsed() > most
                    && !stop.swap(true, Ordering::Relaxed)
                {
                    let seconds = most.as_secs();
                    let text = format!("No records inserted in {seconds} seconds, aborting");
                    shell.print_error(&text);
                }
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => return,
        };
        heard = Instant::now();
        tell(shell, next, errors, meter);
        if !stop.load(Ordering::Relaxed)
            && let Some(text) = errors.exceeded()
        {
            shell.print_error(&text);
            stop.store(true, Ordering::Relaxed);
        }
    }
}

/// Counts and prints one message of a worker or the reader.
fn tell(shell: &mut Shell, news: News, errors: &mut Errors<'_>, meter: &mut Meter) {
    match news {
        News::Imported(rows) => meter.add(rows),
        News::Unreadable { class, text, records } => {
            let count = u64::try_from(records.len()).unwrap_or(0);
            errors.parse += count;
            shell.print_error(&format!(
                "Failed to import {count} rows: {class} - {text},  given up without retries"
            ));
            errors.keep(shell, &records);
            meter.add(count);
        }
        News::Refused { failure, records, attempts, last } => {
            let count = u64::try_from(records.len()).unwrap_or(0);
            let most = errors.options.attempts_max;
            let fate = match last {
                true => format!("given up after {attempts} attempts"),
                false => format!("will retry later, attempt {attempts} of {most}"),
            };
            let Failure { class, text, .. } = &failure;
            shell.print_error(&format!("Failed to import {count} rows: {class} - {text},  {fate}"));
            if last {
                errors.insert += count;
                errors.keep(shell, &records);
                meter.add(count);
            }
        }
        News::ReadError(text) => {
            shell.print_error(&format!(
                "Failed to import 0 rows: OSError - {text},  given up after 1 attempts"
            ));
        }
    }
}
