//! A worker of COPY TO: reads ranges from one node.
//!
//! Owns: its connection, the pages in flight, CSV of a page. Never: files, the console.
//!
//! A range whose node fails is continued after its last page, which the paging state names: no row
//! is exported twice.

use std::fmt::Write as _;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use cql_wire::{Consistency, QueryParameters, Request};
use types::CqlType;

use crate::connection::{Answer, Connection, Page, Target};
use crate::copy::export::News;
use crate::copy::export::queue::{Queue, Work};
use crate::copy::options::CopyOptions;
use crate::copy::ring::Ring;
use crate::copy::{Subject, name_list};
use crate::failure::Failure;
use crate::format::Style;
use crate::interrupt::Interrupt;
use crate::schema::Role;

/// Between two tries to reach a node that does not answer.
const REST: Duration = Duration::from_secs(1);
/// Interval at which a worker without a range checks for Ctrl-C.
const IDLE: Duration = Duration::from_millis(100);

/// State that all workers share.
pub(super) struct Job<'j> {
    pub(super) subject: &'j Subject,
    pub(super) options: &'j CopyOptions,
    pub(super) target: &'j Target,
    pub(super) ring: &'j Ring,
    pub(super) style: &'j Style,
    pub(super) consistency: Consistency,
    pub(super) queue: &'j Queue,
    pub(super) interrupt: &'j Interrupt,
}

/// Reads ranges of a node until all ranges are done, also those of others: they may come back.
pub(super) fn work(job: &Job<'_>, node: usize, news: &SyncSender<News>) {
    let target = job.ring.target(node, job.target);
    while job.queue.is_open() && !job.interrupt.is_set() {
        let failure = match Connection::open(&target) {
            Ok(connection) => {
                job.queue.set_down(node, false);
                match read(job, node, connection, news) {
                    Ok(()) => return,
                    Err(failure) => failure,
                }
            }
            Err(failure) => failure,
        };
        job.queue.set_down(node, true);
        for work in job.queue.take_without_replicas(node) {
            give_up_or_retry(job, news, work, &failure);
        }
        let until = Instant::now() + REST;
        while Instant::now() < until && job.queue.is_open() && !job.interrupt.is_set() {
            job.queue.wait(IDLE);
        }
    }
}

/// Reads until all is done. The error is that of the connection; ranges in progress are enqueued
/// again.
fn read(
    job: &Job<'_>,
    node: usize,
    mut connection: Connection,
    news: &SyncSender<News>,
) -> Result<(), Failure> {
    let mut slots: Vec<Option<Work>> = Vec::new();
    slots.resize_with(job.options.ranges_at_once, || None);
    while !job.interrupt.is_set() {
        let turned = fill(job, node, &mut connection, &mut slots).and_then(|()| {
            if slots.iter().all(Option::is_none) {
                job.queue.wait(IDLE);
                return Ok(());
            }
            turn(job, &mut connection, &mut slots, news)
        });
        if let Err(failure) = turned {
            for work in slots.into_iter().flatten() {
                give_up_or_retry(job, news, work, &failure);
            }
            return Err(failure);
        }
        if !job.queue.is_open() {
            return Ok(());
        }
    }
    Ok(())
}

/// Asks for the first pages of ranges that wait for this node.
fn fill(
    job: &Job<'_>,
    node: usize,
    connection: &mut Connection,
    slots: &mut [Option<Work>],
) -> Result<(), Failure> {
    for (stream, slot) in slots.iter_mut().enumerate() {
        if slot.is_some() {
            continue;
        }
        let Some(work) = job.queue.take(node) else { break };
        let asked = ask(job, connection, &work, stream);
        *slot = Some(work);
        asked?;
    }
    Ok(())
}

/// Sends queued requests and receives one answer.
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
    let mut asked = Ok(());
    let last = work.paging_state.is_none();
    if !last {
        // The server reads the next page while this one is formatted.
        asked = ask(job, connection, &work, index).and_then(|()| connection.flush());
        *slot = Some(work);
    }
    if page.len() > 0 {
        let (csv, ends) = csv(job, &page);
        // The receiver is dropped only when the shell ends.
        let _ = news.send(News::Rows { csv, ends });
    }
    if last {
        job.queue.close();
        let _ = news.send(News::RangeDone);
    }
    asked
}

fn give_up_or_retry(job: &Job<'_>, news: &SyncSender<News>, work: Work, failure: &Failure) {
    let (attempts, most) = (work.attempts, job.options.attempts_max);
    let range = work.range;
    let text = if attempts < most {
        format!("Error for {range}: {failure} (will try again later attempt {attempts} of {most})")
    } else {
        format!(
            "Error for {range}: {failure} (permanently given up after {} rows and {attempts} \
             attempts)",
            work.rows
        )
    };
    let _ = news.send(News::Error(text));
    if attempts < most {
        job.queue.put_back(work);
    } else {
        job.queue.close();
    }
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
    let mut cells = vec![String::new(); page.columns.len()];
    for row in 0..page.len() {
        for (at, (column, cell)) in page.columns.iter().zip(&mut cells).enumerate() {
            cell.clear();
            fill_cell(job.style, &column.kind, page.value(row, at), cell);
        }
        job.options.dialect.write(cells.iter().map(String::as_str), &mut out);
        ends.push(out.len());
    }
    (out, ends)
}

/// Appends the text of a value; the types of most columns without a buffer for each value.
fn fill_cell(style: &Style, kind: &CqlType, value: Option<&[u8]>, cell: &mut String) {
    // An empty value of a type that is no text counts as null.
    let value = value.filter(|value| !value.is_empty() || is_text(kind));
    let number = match (kind, value) {
        (CqlType::Text | CqlType::Ascii, Some(bytes)) => {
            if let Ok(text) = std::str::from_utf8(bytes) {
                return cell.push_str(text);
            }
            None
        }
        (CqlType::Int, Some(bytes)) => bytes.try_into().ok().map(i32::from_be_bytes).map(i64::from),
        (CqlType::Bigint, Some(bytes)) => bytes.try_into().ok().map(i64::from_be_bytes),
        (CqlType::Double, Some(bytes)) => {
            if let Ok(bytes) = bytes.try_into() {
                let number = f64::from_be_bytes(bytes);
                return cell.push_str(&style.float(number, style.double_precision));
            }
            None
        }
        _ => None,
    };
    match number {
        Some(number) if style.thousands_separator.is_empty() => {
            // Writing to a string cannot fail.
            let _ = write!(cell, "{number}");
        }
        _ => cell.push_str(&style.cell(kind, value).text),
    }
}

fn is_text(kind: &CqlType) -> bool {
    matches!(kind, CqlType::Text | CqlType::Ascii | CqlType::Blob)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_ways_of_common_types_print_what_the_style_prints() {
        let check = |style: &Style, kind: CqlType, value: Option<&[u8]>, expect: &str| {
            let mut cell = String::new();
            fill_cell(style, &kind, value, &mut cell);
            assert_eq!(cell, expect, "{kind:?} {value:?}");
            let value = value.filter(|value| !value.is_empty() || is_text(&kind));
            assert_eq!(style.cell(&kind, value).text, expect, "{kind:?} {value:?}");
        };
        let plain = Style { raw: true, null: "N".to_owned(), ..Style::default() };
        let grouped = Style { thousands_separator: ".".to_owned(), ..plain.clone() };
        let million = &1_000_000_i32.to_be_bytes()[..];
        check(&plain, CqlType::Int, Some(million), "1000000");
        check(&grouped, CqlType::Int, Some(million), "1.000.000");
        check(&plain, CqlType::Bigint, Some(&(-5_i64).to_be_bytes()), "-5");
        check(&plain, CqlType::Double, Some(&1234.5_f64.to_be_bytes()), "1234.5");
        check(&grouped, CqlType::Double, Some(&1234.5_f64.to_be_bytes()), "1.234.5");
        check(&plain, CqlType::Double, Some(&f64::NAN.to_be_bytes()), "NaN");
        check(&plain, CqlType::Double, Some(b"short"), "b'short'");
        check(&plain, CqlType::Int, None, "N");
        check(&plain, CqlType::Int, Some(b""), "N");
        check(&plain, CqlType::Text, Some(b"a\\b\n'"), "a\\b\n'");
        check(&plain, CqlType::Text, Some(b""), "");
        check(&plain, CqlType::Text, None, "N");
    }
}
