//! Lines of input: JSON as they are, records of CSV as JSON.

use std::io::{BufRead, BufReader};

use schema::Table;
use types::CqlType;

use super::times::fact_of;
use crate::export::json_name;
use crate::schema_file;

/// Longest row of input, bytes.
const LINE_BYTES_MAX: usize = 256 << 20;

/// Returns the columns that the first line of CSV names, as `INSERT JSON` does, and the times of
/// columns.
///
/// # Errors
/// A name that is neither; an error in the line.
pub(super) fn columns(
    table: &Table,
    path: &str,
    input: &mut Input,
) -> Result<Vec<(String, CqlType)>, String> {
    let names = input.record().map_err(|e| format!("{path}: {e}"))?.unwrap_or_default();
    let mut columns = Vec::new();
    for name in names.into_iter().map(|cell| cell.unwrap_or_default()) {
        // Times stand in a document as they are: numbers, or lists of them.
        let times = || fact_of(table, &name).map(|_| CqlType::list(CqlType::Bigint, false));
        let ty = table.column(&name).map(|column| column.ty.clone()).or_else(times);
        let ty = ty.ok_or_else(|| {
            format!("{path}: {} has no column \"{name}\"", schema_file::name_of(table))
        })?;
        columns.push((json_name(&name), ty));
    }
    Ok(columns)
}

/// A row of cells as JSON.
pub(super) fn document(
    columns: &[(String, CqlType)],
    cells: &[Option<String>],
) -> Result<String, String> {
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
pub(super) struct Input {
    input: Box<dyn BufRead>,
    /// Lines read.
    line: u64,
    /// The line that the last row begins at.
    pub(super) begin: u64,
    /// Bytes read, and of how many; 0 when that is not known.
    pub(super) bytes: u64,
    pub(super) length: u64,
}

impl Input {
    /// A file's path; `-` is standard input.
    pub(super) fn open(path: &str) -> Result<Input, String> {
        let mut length = 0;
        let input: Box<dyn BufRead> = match path {
            "-" => Box::new(BufReader::new(std::io::stdin())),
            path => {
                let file = std::fs::File::open(path).map_err(|e| format!("{path}: {e}"))?;
                // A pipe has no length.
                length = file.metadata().map_or(0, |metadata| metadata.len());
                Box::new(BufReader::with_capacity(1 << 20, file))
            }
        };
        Ok(Input { input, line: 0, begin: 0, bytes: 0, length })
    }

    /// The next line with its end; `None`: there is none.
    fn raw(&mut self) -> Result<Option<String>, String> {
        let mut line = String::new();
        let mut limited = std::io::Read::take(&mut self.input, LINE_BYTES_MAX as u64 + 1);
        let read = limited.read_line(&mut line).map_err(|e| e.to_string())?;
        if read > LINE_BYTES_MAX {
            return Err(format!("longer than {LINE_BYTES_MAX} bytes"));
        }
        // Programs on Windows begin a text with a byte order mark.
        if self.line == 0 && line.starts_with('\u{feff}') {
            line.remove(0);
        }
        self.line += 1;
        self.bytes += read as u64;
        Ok((read > 0).then_some(line))
    }

    pub(super) fn text(&mut self) -> Result<Option<String>, String> {
        self.begin = self.line + 1;
        self.raw()
    }

    /// Returns the next record of CSV. Cells in quotes may hold ends of lines and doubled quotes;
    /// empty lines are skipped. `None` as a cell: empty without quotes.
    pub(super) fn record(&mut self) -> Result<Option<Vec<Option<String>>>, String> {
        let mut text = loop {
            self.begin = self.line + 1;
            match self.raw()? {
                None => return Ok(None),
                Some(line) if line.trim_end_matches(['\n', '\r']).is_empty() => {}
                Some(line) => break line,
            }
        };
        // A quote in a cell is doubled, so a record has an even number of them.
        let is_odd = |text: &str| text.bytes().filter(|b| *b == b'"').count() % 2 == 1;
        let mut is_open = is_odd(&text);
        while is_open {
            let Some(more) = self.raw()? else { return Err("a quote is not closed".to_owned()) };
            is_open ^= is_odd(&more);
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

/// Parses a quoted cell after its opening quote; returns it and the text after its closing quote.
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

    #[test]
    fn records_have_cells_in_quotes_over_several_lines_and_nulls() {
        let input = "\u{feff}a,\"b\"\"\n\nc\",,\"\"\n\r\n\n1,2\r\n\"x";
        let input = Box::new(std::io::Cursor::new(input));
        let mut input = Input { input, line: 0, begin: 0, bytes: 0, length: 0 };
        let text = |text: &str| Some(text.to_owned());
        let first = vec![text("a"), text("b\"\n\nc"), None, text("")];
        assert_eq!(input.record(), Ok(Some(first)));
        assert_eq!(input.begin, 1);
        assert_eq!(input.record(), Ok(Some(vec![text("1"), text("2")])));
        assert_eq!(input.begin, 6);
        assert_eq!(input.record(), Err("a quote is not closed".to_owned()));
        assert_eq!(cells_of("").unwrap(), [None]);
        assert_eq!(cells_of(",").unwrap(), [None, None]);
        assert!(cells_of("\"a\"b").is_err() && cells_of("a\"b").is_err());
    }
}
