//! COPY TO: token ranges in parallel, pages to CSV.
//!
//! Owns: the ranges of the ring, the workers that read them, the output files. Never: retries a
//! range of which rows were already written, which would double them.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Instant;

use cql_wire::{Consistency, QueryParameters, Request};

use crate::connection::{Answer, Connection, Page, Target};
use crate::copy::meter::{Meter, interval};
use crate::copy::options::CopyOptions;
use crate::copy::{Subject, name_list, starting};
use crate::failure::{Failure, python_repr};
use crate::format::Style;
use crate::input::os_error;
use crate::interrupt::Interrupt;
use crate::schema::{self, Role};
use crate::shell::Shell;

/// Pages of CSV that wait for the writer, per worker.
const PAGES_WAITING: usize = 16;

/// Tokens behind `from` up to `to`; `None` is the end of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    from: Option<i64>,
    to: Option<i64>,
}

impl std::fmt::Display for Range {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let end = |end: Option<i64>| end.map_or_else(|| "None".to_owned(), |end| end.to_string());
        write!(f, "({}, {})", end(self.from), end(self.to))
    }
}

/// What a worker tells the shell's thread.
enum News {
    Rows { csv: Vec<u8>, ends: Vec<usize> },
    RangeDone,
    Error(String),
}

/// A range in work.
struct Work {
    range: Range,
    attempts: u32,
    rows: u64,
    paging_state: Option<Vec<u8>>,
}

/// What all workers share.
struct Job<'j> {
    subject: &'j Subject,
    options: &'j CopyOptions,
    target: &'j Target,
    style: &'j Style,
    consistency: Consistency,
    ranges: &'j Mutex<VecDeque<Work>>,
    interrupt: &'j Interrupt,
}

/// Exports the columns. The error is for the user.
///
/// # Errors
/// Nothing was exported, and why.
pub(crate) fn run(
    shell: &mut Shell,
    subject: &Subject,
    path: Option<&str>,
    options: &CopyOptions,
) -> Result<(), String> {
    let start = Instant::now();
    let ranges = ranges(shell, options)?;
    let mut output = Output::open(path, subject, options).map_err(|(name, error)| {
        let why = os_error(&error, &name);
        format!("Can't open {} for writing: {why}", python_repr(&name))
    })?;
    if path.is_none() && options.output_rows_max.is_some() {
        return Err("MAXOUTPUTSIZE: cannot be used with STDOUT".to_owned());
    }
    if path.is_some() {
        shell.say(&starting(subject, &subject.columns));
    }
    shell.flush();
    let total = ranges.len();
    let queue: VecDeque<Work> = ranges
        .into_iter()
        .map(|range| Work { range, attempts: 0, rows: 0, paging_state: None })
        .collect();
    let queue = Mutex::new(queue);
    let style = style(options);
    let interrupt = shell.target.interrupt.clone();
    // Workers end between two pages, not within one.
    let target = Target {
        version: Some(shell.connection.version()),
        interrupt: Interrupt::default(),
        ..shell.target.clone()
    };
    let job = Job {
        subject,
        options,
        target: &target,
        style: &style,
        consistency: shell.consistency,
        ranges: &queue,
        interrupt: &interrupt,
    };
    let mut meter = Meter::new(options.report_every, path.is_none(), options.rate_file.clone());
    let (sender, receiver) = sync_channel(PAGES_WAITING * options.workers);
    let done = std::thread::scope(|scope| {
        for _ in 0..options.workers {
            let sender = sender.clone();
            let job = &job;
            scope.spawn(move || work(job, &sender));
        }
        drop(sender);
        collect(shell, &receiver, &mut output, &mut meter)
    });
    let written = output.close();
    if let Err(error) = written {
        shell.print_error(&format!("The output could not be written: {error}"));
    }
    if done < total {
        shell.print_error(&format!(
            "Exported {done} ranges out of {total} total ranges, some records might be missing"
        ));
    }
    let rows = meter.finish();
    if path.is_some() {
        shell.say(&format!(
            "\n{rows} rows exported to {} files in {}.",
            output.files,
            interval(start.elapsed())
        ));
    }
    Ok(())
}

fn style(options: &CopyOptions) -> Style {
    Style {
        color: false,
        null: options.null.clone(),
        timestamp_format: options.timestamp_format.clone(),
        // As in cqlsh, COPY does not use the zone of the display.
        zone: crate::time::Zone::default(),
        float_precision: options.float_precision,
        double_precision: options.double_precision,
        decimal_separator: options.decimal_separator.clone(),
        thousands_separator: options.thousands_separator.clone(),
        booleans: options.booleans.clone(),
        milliseconds: true,
        raw: true,
    }
}

/// Writes what the workers send. Returns how many ranges were done.
fn collect(
    shell: &mut Shell,
    receiver: &Receiver<News>,
    output: &mut Output<'_>,
    meter: &mut Meter,
) -> usize {
    let mut done = 0;
    let mut broken = false;
    for news in receiver {
        match news {
            News::Rows { csv, ends } => {
                let rows = u64::try_from(ends.len()).unwrap_or(0);
                if broken {
                    continue;
                }
                if let Err(error) = output.write(&csv, &ends) {
                    shell.print_error(&format!("The output could not be written: {error}"));
                    broken = true;
                }
                meter.add(rows);
            }
            News::RangeDone => done += 1,
            News::Error(text) => shell.print_error(&text),
        }
    }
    done
}

/// The stretches of the ring between the tokens of all nodes, cut to the tokens of the options.
fn ranges(shell: &mut Shell, options: &CopyOptions) -> Result<Vec<Range>, String> {
    let (begin, end) = (options.begin_token, options.end_token);
    if let (Some(begin), Some(end)) = (begin, end)
        && begin > end
    {
        return Err(format!("Begin token {begin} must be smaller than end token {end}"));
    }
    let whole = Range { from: begin, to: end };
    if !shell.server.partitioner.ends_with("Murmur3Partitioner") {
        return Ok(vec![whole]);
    }
    let mut tokens: Vec<i64> = Vec::new();
    for query in ["SELECT tokens FROM system.local", "SELECT tokens FROM system.peers"] {
        let timeout = shell.options.request_timeout;
        let pages = schema::rows(&mut shell.connection, query, Consistency::One, timeout)
            .map_err(|failure| failure.to_string())?;
        for page in &pages {
            for row in 0..page.len() {
                tokens.extend(tokens_of(page.value(row, 0).unwrap_or_default()));
            }
        }
    }
    tokens.sort_unstable();
    tokens.dedup();
    Ok(cut(&tokens, begin, end))
}

fn tokens_of(value: &[u8]) -> Vec<i64> {
    let Ok(elements) = types::wire::Elements::new(value, types::wire::CollectionKind::Set) else {
        return Vec::new();
    };
    elements.filter_map(|token| std::str::from_utf8(token.ok()??).ok()?.parse().ok()).collect()
}

fn cut(tokens: &[i64], begin: Option<i64>, end: Option<i64>) -> Vec<Range> {
    let inside = |token: &&i64| {
        **token != i64::MIN
            && begin.is_none_or(|begin| **token > begin)
            && end.is_none_or(|end| **token < end)
    };
    let mut from = begin;
    let mut ranges = Vec::new();
    for token in tokens.iter().filter(inside) {
        ranges.push(Range { from, to: Some(*token) });
        from = Some(*token);
    }
    ranges.push(Range { from, to: end });
    ranges
}

/// A worker: takes ranges until there are none.
fn work(job: &Job<'_>, news: &SyncSender<News>) {
    let mut connection = match Connection::open(job.target) {
        Ok(connection) => connection,
        Err(failure) => {
            let _ = news.send(News::Error(failure.to_string()));
            return;
        }
    };
    let mut slots: Vec<Option<Work>> = Vec::new();
    slots.resize_with(job.options.ranges_at_once, || None);
    while !job.interrupt.is_set() {
        for stream in 0..slots.len() {
            let Some(slot) = slots.get_mut(stream).filter(|slot| slot.is_none()) else { continue };
            let Some(mut work) = next_range(job) else { break };
            work.attempts += 1;
            match ask(job, &mut connection, &work, stream) {
                Ok(()) => *slot = Some(work),
                Err(failure) => {
                    give_up_or_retry(job, news, work, &failure);
                    return;
                }
            }
        }
        if slots.iter().all(Option::is_none) {
            return;
        }
        if let Err(failure) = turn(job, &mut connection, &mut slots, news) {
            for work in slots.into_iter().flatten() {
                give_up_or_retry(job, news, work, &failure);
            }
            return;
        }
    }
}

fn next_range(job: &Job<'_>) -> Option<Work> {
    job.ranges.lock().ok()?.pop_front()
}

/// Sends what waits and takes one answer.
fn turn(
    job: &Job<'_>,
    connection: &mut Connection,
    slots: &mut [Option<Work>],
    news: &SyncSender<News>,
) -> Result<(), Failure> {
    connection.flush()?;
    let (stream, reply) = connection.receive(Instant::now() + job.options.page_timeout)?;
    let index = usize::try_from(stream).unwrap_or(usize::MAX);
    let Some(slot) = slots.get_mut(index) else { return Ok(()) };
    let Some(mut work) = slot.take() else { return Ok(()) };
    let page = match reply {
        Ok(reply) => match reply.answer {
            Answer::Rows(page) => page,
            _ => Page::default(),
        },
        Err(failure) => {
            give_up_or_retry(job, news, work, &failure);
            return Ok(());
        }
    };
    work.paging_state.clone_from(&page.paging_state);
    work.rows += u64::try_from(page.len()).unwrap_or(0);
    if work.paging_state.is_some() {
        // The server reads the next page while this one is formatted.
        ask(job, connection, &work, index)?;
        connection.flush()?;
        *slot = Some(work);
    }
    let last = slot.is_none();
    if page.len() > 0 {
        let (csv, ends) = csv(job, &page);
        let _ = news.send(News::Rows { csv, ends });
    }
    if last {
        let _ = news.send(News::RangeDone);
    }
    Ok(())
}

/// A range without rows so far is tried again; nobody listens only when the shell gave up.
fn give_up_or_retry(job: &Job<'_>, news: &SyncSender<News>, work: Work, failure: &Failure) {
    let (attempts, most) = (work.attempts, job.options.attempts_max);
    let range = work.range;
    let text = if attempts < most && work.rows == 0 {
        format!("Error for {range}: {failure} (will try again later attempt {attempts} of {most})")
    } else {
        format!(
            "Error for {range}: {failure} (permanently given up after {} rows and {attempts} \
             attempts)",
            work.rows
        )
    };
    if attempts < most
        && work.rows == 0
        && let Ok(mut ranges) = job.ranges.lock()
    {
        ranges.push_back(work);
    }
    let _ = news.send(News::Error(text));
}

fn ask(
    job: &Job<'_>,
    connection: &mut Connection,
    work: &Work,
    stream: usize,
) -> Result<(), Failure> {
    let Subject { columns, .. } = job.subject;
    let key = name_list(&job.subject.names_of(Role::Partition));
    let mut query = format!("SELECT {} FROM {}", name_list(columns), job.subject.quoted());
    let bounds: Vec<String> = [(">", work.range.from), ("<=", work.range.to)]
        .iter()
        .filter_map(|(sign, token)| Some(format!("token({key}) {sign} {}", (*token)?)))
        .collect();
    if !bounds.is_empty() {
        query.push_str(&format!(" WHERE {}", bounds.join(" AND ")));
    }
    let parameters = QueryParameters {
        page_size: Some(job.options.page_rows),
        paging_state: work.paging_state.as_deref(),
        ..QueryParameters::new(job.consistency)
    };
    let request = Request::Query { query: &query, parameters };
    connection.send(&request, i16::try_from(stream).unwrap_or(i16::MAX), false)
}

/// The records of a page, and where each ends.
fn csv(job: &Job<'_>, page: &Page) -> (Vec<u8>, Vec<usize>) {
    let mut out = Vec::with_capacity(page.len() * 64);
    let mut ends = Vec::with_capacity(page.len());
    for row in 0..page.len() {
        let cells: Vec<String> = page
            .columns
            .iter()
            .enumerate()
            .map(|(at, column)| {
                // An empty value of a type that is no text counts as null.
                let value =
                    page.value(row, at).filter(|value| !value.is_empty() || is_text(&column.kind));
                job.style.cell(&column.kind, value).text
            })
            .collect();
        job.options.dialect.write(cells.iter().map(String::as_str), &mut out);
        ends.push(out.len());
    }
    (out, ends)
}

fn is_text(kind: &types::CqlType) -> bool {
    matches!(kind, types::CqlType::Text | types::CqlType::Ascii | types::CqlType::Blob)
}

/// Files, or standard output.
struct Output<'o> {
    path: Option<&'o str>,
    rows_max: Option<u64>,
    writer: Box<dyn Write>,
    rows: u64,
    files: usize,
}

impl<'o> Output<'o> {
    fn open(
        path: Option<&'o str>,
        subject: &Subject,
        options: &CopyOptions,
    ) -> Result<Output<'o>, (String, std::io::Error)> {
        let writer: Box<dyn Write> = match path {
            None => Box::new(BufWriter::new(std::io::stdout())),
            Some(path) => create(path).map_err(|error| (path.to_owned(), error))?,
        };
        let files = usize::from(path.is_some());
        let mut output = Output { path, rows_max: options.output_rows_max, writer, rows: 0, files };
        if options.header {
            let mut line = Vec::new();
            options.dialect.write(subject.columns.iter().map(String::as_str), &mut line);
            let name = path.unwrap_or("standard output").to_owned();
            output.writer.write_all(&line).map_err(|error| (name, error))?;
        }
        Ok(output)
    }

    /// Writes records, each to the file that has room for it.
    fn write(&mut self, csv: &[u8], ends: &[usize]) -> std::io::Result<()> {
        let (Some(most), Some(path)) = (self.rows_max, self.path) else {
            return self.writer.write_all(csv);
        };
        let mut start = 0;
        for end in ends {
            if self.rows == most {
                self.writer.flush()?;
                self.writer = create(&format!("{path}.{}", self.files))?;
                self.files += 1;
                self.rows = 0;
            }
            self.writer.write_all(csv.get(start..*end).unwrap_or_default())?;
            self.rows += 1;
            start = *end;
        }
        Ok(())
    }

    fn close(&mut self) -> std::io::Result<()> {
        self.writer.flush()
    }
}

fn create(path: &str) -> std::io::Result<Box<dyn Write>> {
    Ok(Box::new(BufWriter::with_capacity(1 << 20, File::create(path)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_cover_the_ring_once() {
        let range = |from, to| Range { from, to };
        assert_eq!(cut(&[], None, None), [range(None, None)]);
        assert_eq!(
            cut(&[i64::MIN, -5, 7], None, None),
            [range(None, Some(-5)), range(Some(-5), Some(7)), range(Some(7), None)]
        );
        assert_eq!(
            cut(&[-5, 0, 7], Some(-5), Some(3)),
            [range(Some(-5), Some(0)), range(Some(0), Some(3))]
        );
        assert_eq!(cut(&[-5, 7], Some(0), Some(1)), [range(Some(0), Some(1))]);
    }
}
