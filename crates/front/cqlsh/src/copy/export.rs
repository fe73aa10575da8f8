//! COPY TO: token ranges in parallel, pages to CSV.
//!
//! Owns: the ranges of the ring, the output files. Never: requests (see `worker`), the assignment
//! of ranges to nodes (see `queue`).

mod queue;
mod worker;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Instant;

use crate::copy::export::queue::Queue;
use crate::copy::export::worker::Job;
use crate::copy::meter::{Meter, interval};
use crate::copy::options::CopyOptions;
use crate::copy::ring::Ring;
use crate::copy::{Subject, starting};
use crate::failure::python_repr;
use crate::format::Style;
use crate::input::os_error;
use crate::shell::Shell;

/// Pages of CSV that wait for the writer, per worker.
const PAGES_WAITING: usize = 16;

/// Tokens after `from`, up to and including `to`; `None` is the end of the ring.
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

/// Message from a worker to the shell's thread.
enum News {
    Rows { csv: Vec<u8>, ends: Vec<usize> },
    RangeDone,
    Error(String),
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
    let ring = Ring::read(shell, &subject.keyspace);
    let ranges = ranges(&ring, options)?;
    if let Some(warning) = ignored_size(path, options.output_rows_max) {
        shell.print_error(&warning);
    }
    let mut output = Output::open(path, subject, options).map_err(|(name, error)| {
        let why = os_error(&error, &name);
        format!("Can't open {} for writing: {why}", python_repr(&name))
    })?;
    if path.is_some() {
        shell.say(&starting(subject, &subject.columns));
    }
    shell.flush();
    let total = ranges.len();
    let queue = Queue::new(ranges.into_iter().map(|range| {
        // The last range of the ring belongs with the first.
        let position = range.to.map_or(0, |token| ring.position(token));
        (range, ring.replicas(position).to_vec())
    }));
    let style = style(options);
    let interrupt = shell.target.interrupt.clone();
    let target = shell.target_of_workers();
    let job = Job {
        subject,
        options,
        target: &target,
        ring: &ring,
        style: &style,
        consistency: shell.consistency,
        queue: &queue,
        interrupt: &interrupt,
    };
    let mut meter = Meter::new(options.report_every, path.is_none(), options.rate_file.clone());
    let (sender, receiver) = sync_channel(PAGES_WAITING * options.workers);
    let done = std::thread::scope(|scope| {
        for node in (0..ring.len()).cycle().take(ring.len() * options.workers) {
            let sender = sender.clone();
            let job = &job;
            scope.spawn(move || worker::work(job, node, &sender));
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

/// cqlsh's warning that standard output is not split into files.
fn ignored_size(path: Option<&str>, rows_max: Option<u64>) -> Option<String> {
    let rows = rows_max.filter(|_| path.is_none())?;
    Some(format!("WARNING: maxoutputsize {rows} ignored when writing to STDOUT"))
}

fn style(options: &CopyOptions) -> Style {
    Style {
        color: false,
        null: options.null.clone(),
        timestamp_format: options.timestamp_format.clone(),
        // Like in cqlsh, COPY does not use the zone of the display.
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
fn ranges(ring: &Ring, options: &CopyOptions) -> Result<Vec<Range>, String> {
    let (begin, end) = (options.begin_token, options.end_token);
    if let (Some(begin), Some(end)) = (begin, end)
        && begin > end
    {
        return Err(format!("Begin token {begin} must be smaller than end token {end}"));
    }
    Ok(cut(ring.tokens(), begin, end))
}

fn cut(tokens: impl Iterator<Item = i64>, begin: Option<i64>, end: Option<i64>) -> Vec<Range> {
    let inside = |token: &i64| {
        *token != i64::MIN
            && begin.is_none_or(|begin| *token > begin)
            && end.is_none_or(|end| *token < end)
    };
    let mut from = begin;
    let mut ranges = Vec::new();
    for token in tokens.filter(inside) {
        ranges.push(Range { from, to: Some(token) });
        from = Some(token);
    }
    ranges.push(Range { from, to: end });
    ranges
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
    fn a_size_of_files_is_ignored_for_standard_output_only() {
        let warning = "WARNING: maxoutputsize 5 ignored when writing to STDOUT";
        assert_eq!(ignored_size(None, Some(5)).as_deref(), Some(warning));
        assert_eq!(ignored_size(Some("file"), Some(5)), None);
        assert_eq!(ignored_size(None, None), None);
    }

    #[test]
    fn ranges_cover_the_ring_once() {
        let range = |from, to| Range { from, to };
        assert_eq!(cut([].into_iter(), None, None), [range(None, None)]);
        assert_eq!(
            cut([i64::MIN, -5, 7].into_iter(), None, None),
            [range(None, Some(-5)), range(Some(-5), Some(7)), range(Some(7), None)]
        );
        assert_eq!(
            cut([-5, 0, 7].into_iter(), Some(-5), Some(3)),
            [range(Some(-5), Some(0)), range(Some(0), Some(3))]
        );
        assert_eq!(cut([-5, 7].into_iter(), Some(0), Some(1)), [range(Some(0), Some(1))]);
    }
}
