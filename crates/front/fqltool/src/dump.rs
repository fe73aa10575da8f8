//! `fqltool dump`: records as text. Source: the layout of Cassandra 5.0's `fqltool dump`.

use crate::Failure;
use crate::arguments::Dump;
use crate::source::{Follow, RecordSource};
use crate::target::options_of;
use cql_wire::BoundValue;
use query_log::{LoggedStatement, LoggedValue, QueryRecord};
use std::fmt::Write;
use std::time::Duration;
use tool_io::exit;

/// How often `--follow` polls for more.
const POLL: Duration = Duration::from_millis(100);
/// Bytes of a value that are printed.
const VALUE_BYTES_MAX: usize = 1024;
/// Bytes of a line.
const WIDTH: usize = 16;

/// Prints the records of all paths.
///
/// # Errors
/// A path cannot be read.
pub fn run(options: &Dump) -> Result<u8, Failure> {
    let follow = if options.follow { Follow::Yes } else { Follow::No };
    let opened = options.paths.iter().map(|path| RecordSource::open(path, follow));
    let mut sources = opened.collect::<Result<Vec<_>, _>>()?;
    let mut damaged = 0;
    loop {
        for source in &mut sources {
            while let Some(record) = source.next_record()? {
                match text(&record) {
                    Ok(text) => say!("{text}"),
                    Err(error) => {
                        complain_line!("fqltool: record with unreadable query options: {error}");
                        damaged += 1;
                    }
                }
            }
        }
        if follow == Follow::No {
            let damaged = damaged + sources.iter().map(RecordSource::damaged).sum::<usize>();
            return Ok(if damaged == 0 { exit::OK } else { exit::DAMAGED });
        }
        std::thread::sleep(POLL);
    }
}

/// Returns the text of a record.
///
/// # Errors
/// Its query options cannot be read; in words.
pub fn text(record: &QueryRecord) -> Result<String, String> {
    let parameters = options_of(record)?;
    let mut out = String::new();
    let _ = writeln!(out, "Type: {}", record.kind());
    let _ = writeln!(out, "Query start time: {}", record.start_millis);
    let _ = writeln!(out, "Protocol version: {}", record.protocol_version);
    let _ = writeln!(out, "Generated timestamp:{}", record.generated_timestamp);
    let _ = writeln!(out, "Generated nowInSeconds:{}", record.generated_now);
    match &record.statement {
        LoggedStatement::Single { query } => {
            let values = parameters.values.values().map(|value| match value {
                BoundValue::Null => Shown::Word("null"),
                BoundValue::Unset => Shown::Word("unset"),
                BoundValue::Bytes(bytes) => Shown::Bytes(bytes),
            });
            push_query(&mut out, query, values);
        }
        LoggedStatement::Batch { kind, queries } => {
            let _ = writeln!(out, "Batch type: {kind}");
            for one in queries {
                let values = one.values.iter().map(|value| match value {
                    LoggedValue::Null => Shown::Word("null"),
                    LoggedValue::Unset => Shown::Word("unset"),
                    LoggedValue::Bytes(bytes) => Shown::Bytes(bytes),
                });
                push_query(&mut out, &one.query, values);
            }
        }
    }
    out.push('\n');
    Ok(out)
}

/// A value as it is printed.
enum Shown<'r> {
    Word(&'static str),
    Bytes(&'r [u8]),
}

fn push_query<'r>(out: &mut String, query: &str, values: impl Iterator<Item = Shown<'r>>) {
    let _ = writeln!(out, "Query: {query}");
    out.push_str("Values: \n");
    for value in values {
        match value {
            Shown::Word(word) => {
                out.push_str(word);
                out.push('\n');
            }
            Shown::Bytes(bytes) => {
                push_hex(out, bytes.get(..VALUE_BYTES_MAX).unwrap_or(bytes));
                if bytes.len() > VALUE_BYTES_MAX {
                    out.push_str("... truncated\n");
                }
            }
        }
        out.push_str("-----\n");
    }
}

/// Lines of 16 bytes: offset, hexadecimal digits, characters. Repeated lines but the last are left out.
fn push_hex(out: &mut String, bytes: &[u8]) {
    let mut previous: Option<&[u8]> = None;
    let mut is_left_out = false;
    let mut lines = bytes.chunks(WIDTH).enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        if lines.peek().is_some() {
            if previous == Some(line) {
                is_left_out = true;
                continue;
            }
            previous = Some(line);
        }
        if std::mem::take(&mut is_left_out) {
            out.push_str("........\n");
        }
        let _ = write!(out, "{:08x}", number * WIDTH);
        for at in 0..WIDTH {
            if at == WIDTH / 2 {
                out.push(' ');
            }
            match line.get(at) {
                Some(byte) => {
                    let _ = write!(out, " {byte:02X}");
                }
                None => out.push_str("   "),
            }
        }
        out.push(' ');
        for at in 0..WIDTH {
            if at == WIDTH / 2 {
                out.push(' ');
            }
            out.push(match line.get(at) {
                Some(byte @ b' '..=126) => char::from(*byte),
                Some(_) => '\u{b7}',
                None => ' ',
            });
        }
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::tests::record;
    use query_log::{BatchKind, BatchQuery};

    #[test]
    fn a_record_is_printed_as_cassandras_tool_does() {
        let mut one = record(1_795_875_915_121, "SELECT * FROM t WHERE k = ? AND c = ?");
        // Flag of values, two of them: an int and a text.
        one.options = vec![0, 1, 0, 0, 0, 1, 0, 2, 0, 0, 0, 4, 0, 0, 0, 7, 0, 0, 0, 1, b'x'];
        assert_eq!(
            text(&one).unwrap(),
            "Type: single-query\nQuery start time: 1795875915121\nProtocol version: 5\n\
             Generated timestamp:-9223372036854775808\nGenerated nowInSeconds:-2147483648\n\
             Query: SELECT * FROM t WHERE k = ? AND c = ?\nValues: \n\
             00000000 00 00 00 07                                      \u{b7}\u{b7}\u{b7}\u{b7}             \n\
             -----\n\
             00000000 78                                               x                \n\
             -----\n\n"
        );
        one.options.pop();
        assert!(text(&one).is_err());
    }

    #[test]
    fn a_batch_is_printed_with_the_values_of_each_statement() {
        let mut one = record(1, "");
        let query = |query: &str, values| BatchQuery { query: query.to_owned(), values };
        one.statement = LoggedStatement::Batch {
            kind: BatchKind::Logged,
            queries: vec![
                query("a", vec![LoggedValue::Null, LoggedValue::Unset]),
                query("b", vec![]),
            ],
        };
        let printed = text(&one).unwrap();
        let end = "Batch type: LOGGED\nQuery: a\nValues: \nnull\n-----\nunset\n-----\nQuery: b\nValues: \n\n";
        assert!(printed.ends_with(end), "{printed}");
        assert!(printed.starts_with("Type: batch\n"));
    }

    #[test]
    fn long_values_are_cut_and_repeated_lines_left_out() {
        let mut out = String::new();
        push_query(&mut out, "q", [Shown::Bytes(&[0; 1025])].into_iter());
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines.len(), 7, "{out}");
        assert!(lines[2].starts_with("00000000 00 00"));
        assert_eq!(lines[3], "........");
        assert!(lines[4].starts_with("000003f0 00"));
        assert_eq!(lines[5..], ["... truncated", "-----"]);
    }
}
