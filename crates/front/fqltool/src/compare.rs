//! Comparison of the answers of several targets to one query, and `fqltool compare`.

use crate::Failure;
use crate::arguments::Compare;
use crate::results::AnswerReader;
use crate::source::{Follow, RecordSource};
use crate::target::{Outcome, Row};
use query_log::{LoggedStatement, QueryRecord};
use std::fmt::Write;
use tool_io::exit;

/// Mismatches that are printed; all are counted.
const PRINTED_MAX: u64 = 1000;
/// Bytes of a text or a value in a report.
const SHOWN_BYTES: usize = 200;

/// How the answers to a query differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// Some targets failed, or failed with another code.
    Failures,
    /// Names or types of columns.
    Columns,
    /// The first row that differs, or that not all have.
    Rows(usize),
}

/// Compares the answers of all targets with the first one. Messages of failures may differ, their codes may not.
pub fn difference(outcomes: &[Outcome]) -> Option<Difference> {
    let (first, others) = outcomes.split_first()?;
    let found = others.iter().filter_map(|other| of_two(first, other));
    found.min_by_key(|difference| match difference {
        Difference::Failures => (0, 0),
        Difference::Columns => (1, 0),
        Difference::Rows(row) => (2, *row),
    })
}

fn of_two(one: &Outcome, other: &Outcome) -> Option<Difference> {
    match (one, other) {
        (Outcome::Failed { code: a, .. }, Outcome::Failed { code: b, .. }) => {
            (a != b).then_some(Difference::Failures)
        }
        (Outcome::Failed { .. }, _) | (_, Outcome::Failed { .. }) => Some(Difference::Failures),
        (
            Outcome::Result { columns, rows, is_cut },
            Outcome::Result { columns: columns_b, rows: rows_b, is_cut: is_cut_b },
        ) => {
            if columns != columns_b {
                return Some(Difference::Columns);
            }
            let common = rows.iter().zip(rows_b).position(|(a, b)| a != b);
            common.map(Difference::Rows).or_else(|| {
                // Answers that were cut are compared in their common rows.
                let shorter = rows.len().min(rows_b.len());
                let shorter_is_cut = match rows.len().cmp(&rows_b.len()) {
                    std::cmp::Ordering::Equal => true,
                    std::cmp::Ordering::Less => *is_cut,
                    std::cmp::Ordering::Greater => *is_cut_b,
                };
                (!shorter_is_cut).then_some(Difference::Rows(shorter))
            })
        }
    }
}

/// Prints differences and counts them.
#[derive(Debug)]
pub struct Report {
    names: Vec<String>,
    /// Queries that were compared.
    pub compared: u64,
    /// Queries whose answers differ.
    pub mismatches: u64,
}

impl Report {
    /// A report about these targets.
    pub fn new(names: Vec<String>) -> Report {
        Report { names, compared: 0, mismatches: 0 }
    }

    /// Compares the answers to a query; returns the text of a difference that is to be printed.
    pub fn add(&mut self, record: &QueryRecord, outcomes: &[Outcome]) -> Option<String> {
        self.compared += 1;
        let difference = difference(outcomes)?;
        self.mismatches += 1;
        match self.mismatches {
            n if n > PRINTED_MAX + 1 => None,
            n if n > PRINTED_MAX => Some("further mismatches are counted only\n".to_owned()),
            _ => Some(self.text(record, outcomes, &difference)),
        }
    }

    fn text(&self, record: &QueryRecord, outcomes: &[Outcome], difference: &Difference) -> String {
        let mut out = String::new();
        let what = match difference {
            Difference::Failures => "MISMATCH".to_owned(),
            Difference::Columns => "COLUMN DEFINITION MISMATCH".to_owned(),
            Difference::Rows(row) => format!("MISMATCH in row {}", row + 1),
        };
        let _ = writeln!(out, "{what} Query = {}", describe(record));
        for (name, outcome) in self.names.iter().zip(outcomes) {
            let _ = writeln!(out, "    {name}: {}", show(outcome, difference));
        }
        out
    }

    /// One line: how many answers differ.
    pub fn line(&self) -> String {
        format!("{} of {} compared answers differ", self.mismatches, self.compared)
    }
}

/// Time, keyspace and text of a record.
pub fn describe(record: &QueryRecord) -> String {
    let text = match &record.statement {
        LoggedStatement::Single { query } => cut(query).into_owned(),
        LoggedStatement::Batch { kind, queries } => {
            let first = queries.first().map_or("", |one| &one.query);
            format!("BATCH {kind} of {} statements, the first: {}", queries.len(), cut(first))
        }
    };
    let keyspace = record.keyspace.as_deref().unwrap_or("-");
    format!("[{}] start {}, keyspace {keyspace}", text.replace('\n', " "), record.start_millis)
}

fn show(outcome: &Outcome, difference: &Difference) -> String {
    match (outcome, difference) {
        (Outcome::Failed { code, message }, _) => format!("failed ({code:#06x}): {}", cut(message)),
        (Outcome::Result { columns, .. }, Difference::Columns) => {
            let columns = columns.iter().map(|(name, kind)| format!("{name} {kind}"));
            cut(&columns.collect::<Vec<String>>().join(", ")).into_owned()
        }
        (Outcome::Result { columns, rows, .. }, Difference::Rows(row)) => match rows.get(*row) {
            Some(row) => show_row(columns, row),
            None => format!("no such row ({} rows)", rows.len()),
        },
        (Outcome::Result { rows, .. }, Difference::Failures) => format!("{} rows", rows.len()),
    }
}

fn show_row(columns: &[(String, String)], row: &Row) -> String {
    let values = columns.iter().zip(row).map(|((name, _), value)| match value {
        None => format!("{name}=null"),
        Some(bytes) => {
            let shown = bytes.get(..SHOWN_BYTES / 4).unwrap_or(bytes);
            let hex: String = shown.iter().map(|byte| format!("{byte:02x}")).collect();
            let more = if shown.len() < bytes.len() { "…" } else { "" };
            format!("{name}=0x{hex}{more}")
        }
    });
    values.collect::<Vec<String>>().join(", ")
}

fn cut(text: &str) -> std::borrow::Cow<'_, str> {
    match text.char_indices().nth(SHOWN_BYTES) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()).into(),
        None => text.into(),
    }
}

/// Compares stored answers.
///
/// # Errors
/// A file is damaged or cannot be read; the files are not of one replay.
pub fn run(options: &Compare) -> Result<u8, Failure> {
    let mut queries = RecordSource::open(&options.queries, Follow::No)?;
    let opened = options.paths.iter().map(|path| AnswerReader::open(path));
    let mut answers = opened.collect::<Result<Vec<_>, _>>()?;
    let names: Vec<String> = options.paths.iter().map(|path| path.display().to_string()).collect();
    let mut report = Report::new(names.clone());
    while let Some(record) = queries.next_record()? {
        let mut outcomes = Vec::new();
        for (reader, name) in answers.iter_mut().zip(&names) {
            let outcome = reader.next_answer()?;
            outcomes.push(outcome.ok_or_else(|| fewer(name, report.compared))?);
        }
        if let Some(text) = report.add(&record, &outcomes) {
            say!("{text}");
        }
    }
    if queries.damaged() > 0 {
        return Err(Failure::damaged("the queries are damaged; the rest was not compared"));
    }
    for (reader, name) in answers.iter_mut().zip(&names) {
        if reader.next_answer()?.is_some() {
            let text = format!("{name}: more answers than the {} queries", report.compared);
            return Err(Failure::damaged(text));
        }
    }
    say_line!("{}", report.line());
    Ok(if report.mismatches == 0 { exit::OK } else { exit::FAILED })
}

fn fewer(name: &str, answers: u64) -> Failure {
    Failure::damaged(format!(
        "{name}: {answers} answers, fewer than queries; is it of the same replay, and was that complete?"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::{failed, rows};
    use crate::source::tests::record;

    #[test]
    fn answers_differ_in_failures_columns_or_rows() {
        let one = rows(&[&[Some("a"), None], &[Some("b"), Some("1")]]);
        let check = |others: &[&Outcome], expected| {
            let all: Vec<Outcome> =
                std::iter::once(&one).chain(others.iter().copied()).cloned().collect();
            assert_eq!(difference(&all), expected);
        };
        check(&[], None);
        check(&[&one, &one], None);
        check(
            &[&rows(&[&[Some("a"), Some("")], &[Some("b"), Some("1")]])],
            Some(Difference::Rows(0)),
        );
        check(&[&one, &rows(&[&[Some("a"), None]])], Some(Difference::Rows(1)));
        check(&[&rows(&[])], Some(Difference::Rows(0)));
        check(&[&failed(1, "x")], Some(Difference::Failures));
        let void = Outcome::Result { columns: Vec::new(), rows: Vec::new(), is_cut: false };
        check(&[&void], Some(Difference::Columns));
        check(&[&void, &failed(1, "x")], Some(Difference::Failures));
        assert_eq!(difference(&[failed(1, "x"), failed(1, "y")]), None);
        assert_eq!(difference(&[failed(1, "x"), failed(2, "x")]), Some(Difference::Failures));
    }

    #[test]
    fn of_answers_that_were_cut_the_common_rows_are_compared() {
        let cut = |mut outcome: Outcome| {
            if let Outcome::Result { is_cut, .. } = &mut outcome {
                *is_cut = true;
            }
            outcome
        };
        let (short, long) =
            (rows(&[&[Some("a"), None]]), rows(&[&[Some("a"), None], &[None, None]]));
        assert_eq!(difference(&[cut(short.clone()), cut(long.clone())]), None);
        assert_eq!(difference(&[cut(short.clone()), long.clone()]), None);
        assert_eq!(difference(&[long.clone(), cut(short.clone())]), None);
        assert_eq!(difference(&[short, cut(long)]), Some(Difference::Rows(1)));
    }

    #[test]
    fn a_report_names_the_query_and_the_answers_and_counts_all() {
        let mut report = Report::new(vec!["h1".to_owned(), "h2".to_owned()]);
        let query = record(7, "SELECT *\nFROM t");
        let same = [rows(&[]), rows(&[])];
        assert_eq!(report.add(&query, &same), None);
        let differ = [rows(&[&[Some("a"), None]]), failed(0x2200, "unconfigured table t")];
        assert_eq!(
            report.add(&query, &differ).unwrap(),
            "MISMATCH Query = [SELECT * FROM t] start 7, keyspace -\n    h1: 1 rows\n    \
             h2: failed (0x2200): unconfigured table t\n"
        );
        let differ = [rows(&[&[Some("a"), None]]), rows(&[])];
        let text = report.add(&query, &differ).unwrap();
        assert!(text.contains("MISMATCH in row 1"), "{text}");
        assert!(text.contains("h1: k=0x61, v=null\n    h2: no such row (0 rows)"), "{text}");
        assert_eq!(report.line(), "2 of 3 compared answers differ");
        let printed =
            (0..2 * PRINTED_MAX).filter(|_| report.add(&query, &differ).is_some()).count();
        assert_eq!(printed as u64, PRINTED_MAX - 2 + 1);
        assert_eq!(report.mismatches, 2 + 2 * PRINTED_MAX);
    }
}
