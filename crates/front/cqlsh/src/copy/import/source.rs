//! Files of CSV, cut into chunks of whole records.
//!
//! Owns: file names and patterns, headers, rows that are skipped, the rate. Never: fields.

use std::fs::File;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use crate::copy::csv::Dialect;
use crate::copy::options::CopyOptions;
use crate::failure::python_repr;
use crate::input::os_error;

/// Bytes read at once.
const READ_BYTES: usize = 1 << 20;
/// Largest record: a quote that is never closed must not take all memory.
const RECORD_BYTES_MAX: usize = 64 << 20;

/// Whole records.
pub(super) struct Chunk {
    pub(super) bytes: Vec<u8>,
    /// Where each record ends.
    pub(super) ends: Vec<usize>,
}

impl Chunk {
    /// A record, with its line end.
    pub(super) fn record(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).and_then(|before| self.ends.get(before));
        let end = self.ends.get(index).copied().unwrap_or(0);
        self.bytes.get(start.copied().unwrap_or(0)..end).unwrap_or_default()
    }
}

/// Reads the sources one after another.
pub(super) struct Feeder {
    paths: Vec<PathBuf>,
    text: Option<String>,
    refused: Option<String>,
    dialect: Dialect,
    header: bool,
    chunk_rows: usize,
    rows_max: Option<u64>,
    skip_rows: u64,
    rate: Option<u64>,
    rows_read: u64,
    rows_sent: u64,
    start: Instant,
    /// Sources that were opened.
    pub(super) sources: usize,
}

impl Feeder {
    /// Reads files and patterns separated by commas.
    pub(super) fn files(list: &str, options: &CopyOptions) -> Feeder {
        let mut feeder = Feeder::text(String::new(), options);
        feeder.text = None;
        for path in list.split(',').map(str::trim) {
            let path = crate::home::expand_home(path);
            if Path::new(&path).is_file() {
                feeder.paths.push(PathBuf::from(path));
                continue;
            }
            let found = matching(&path);
            if found.is_empty() && feeder.refused.is_none() {
                feeder.refused = Some(format!(
                    "Can't open {} for reading: no matching file found",
                    python_repr(&path)
                ));
            }
            feeder.paths.extend(found);
        }
        feeder
    }

    /// A text that was read already.
    pub(super) fn text(text: String, options: &CopyOptions) -> Feeder {
        Feeder {
            paths: Vec::new(),
            text: Some(text),
            refused: None,
            dialect: options.dialect,
            header: options.header,
            chunk_rows: options.chunk_rows,
            rows_max: options.rows_max,
            skip_rows: options.skip_rows,
            rate: options.ingest_rate,
            rows_read: 0,
            rows_sent: 0,
            start: Instant::now(),
            sources: 0,
        }
    }

    /// Sends all chunks; ends early when the receiver is closed or on `stop`.
    ///
    /// # Errors
    /// A source cannot be read, in words.
    pub(super) fn feed(
        &mut self,
        chunks: &SyncSender<Chunk>,
        stop: &AtomicBool,
    ) -> Result<(), String> {
        if let Some(text) = self.text.take() {
            self.sources = 1;
            return self.feed_one(&mut Cursor::new(text), chunks, stop);
        }
        for path in std::mem::take(&mut self.paths) {
            let shown = python_repr(&path.display().to_string());
            let mut file = File::open(&path).map_err(|error| {
                let why = os_error(&error, &path.display().to_string());
                format!("Can't open {shown} for reading: {why}")
            })?;
            self.sources += 1;
            self.feed_one(&mut file, chunks, stop).map_err(|error| format!("{shown}: {error}"))?;
        }
        self.refused.take().map_or(Ok(()), Err)
    }

    fn feed_one(
        &mut self,
        source: &mut dyn Read,
        chunks: &SyncSender<Chunk>,
        stop: &AtomicBool,
    ) -> Result<(), String> {
        let mut header = self.header;
        let mut buffer: Vec<u8> = Vec::new();
        let mut start = 0;
        let mut ended = false;
        let mut chunk = Chunk { bytes: Vec::new(), ends: Vec::new() };
        loop {
            let rest = buffer.get(start..).unwrap_or_default();
            let end = match self.dialect.record_end(rest) {
                Some(length) => start + length,
                None if ended && rest.is_empty() => break,
                None if ended => buffer.len(),
                None => {
                    buffer.drain(..start);
                    start = 0;
                    if buffer.len() > RECORD_BYTES_MAX {
                        return Err(format!("a record is larger than {RECORD_BYTES_MAX} bytes"));
                    }
                    let before = buffer.len();
                    let mut part = Read::take(&mut *source, READ_BYTES as u64);
                    part.read_to_end(&mut buffer).map_err(|error| error.to_string())?;
                    ended = buffer.len() == before;
                    continue;
                }
            };
            let record = buffer.get(start..end).unwrap_or_default();
            start = end;
            if std::mem::take(&mut header) {
                continue;
            }
            self.rows_read += 1;
            if self.rows_max.is_some_and(|most| self.rows_read > most) {
                break;
            }
            if self.rows_read <= self.skip_rows {
                continue;
            }
            chunk.bytes.extend_from_slice(record);
            chunk.ends.push(chunk.bytes.len());
            if chunk.ends.len() >= self.chunk_rows {
                let full = Chunk { bytes: Vec::with_capacity(chunk.bytes.len()), ends: Vec::new() };
                if !self.send(std::mem::replace(&mut chunk, full), chunks, stop) {
                    return Ok(());
                }
            }
        }
        if !chunk.ends.is_empty() {
            self.send(chunk, chunks, stop);
        }
        Ok(())
    }

    fn send(&mut self, chunk: Chunk, chunks: &SyncSender<Chunk>, stop: &AtomicBool) -> bool {
        if stop.load(Ordering::Relaxed) {
            return false;
        }
        if let Some(rate) = self.rate {
            let due = Duration::from_millis(self.rows_sent.saturating_mul(1000) / rate.max(1));
            std::thread::sleep(due.saturating_sub(self.start.elapsed()));
        }
        self.rows_sent += u64::try_from(chunk.ends.len()).unwrap_or(0);
        chunks.send(chunk).is_ok()
    }
}

/// Files of a pattern with `*`, `?` and `[…]`, sorted by name.
fn matching(pattern: &str) -> Vec<PathBuf> {
    let absolute = pattern.starts_with('/');
    let mut found = vec![PathBuf::from(if absolute { "/" } else { "" })];
    for part in pattern.split('/').filter(|part| !part.is_empty()) {
        let mut next = Vec::new();
        for base in found {
            if !part.contains(['*', '?', '[']) {
                next.push(base.join(part));
                continue;
            }
            let directory = if base.as_os_str().is_empty() { Path::new(".") } else { &base };
            let Ok(entries) = std::fs::read_dir(directory) else { continue };
            for entry in entries.flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                let hidden = name.starts_with('.') && !part.starts_with('.');
                let signs: Vec<char> = name.chars().collect();
                if !hidden && matches(&part.chars().collect::<Vec<_>>(), &signs) {
                    next.push(base.join(name));
                }
            }
        }
        found = next;
    }
    found.retain(|path| path.is_file());
    found.sort();
    found
}

fn matches(pattern: &[char], name: &[char]) -> bool {
    match (pattern, name) {
        ([], []) => true,
        (['*', rest @ ..], _) => {
            (0..=name.len()).any(|skip| matches(rest, name.get(skip..).unwrap_or_default()))
        }
        (['?', rest @ ..], [_, tail @ ..]) => matches(rest, tail),
        (['[', rest @ ..], [sign, tail @ ..]) => {
            let Some(close) = rest.iter().skip(1).position(|sign| *sign == ']').map(|at| at + 1)
            else {
                return *sign == '[' && matches(rest, tail);
            };
            let (set, behind) = rest.split_at_checked(close).unwrap_or((rest, &[]));
            let (negated, set) = match set {
                ['!', set @ ..] => (true, set),
                set => (false, set),
            };
            let mut inside = false;
            let mut at = 0;
            while let Some(from) = set.get(at) {
                match (set.get(at + 1), set.get(at + 2)) {
                    (Some('-'), Some(to)) => {
                        inside |= (from..=to).contains(&sign);
                        at += 3;
                    }
                    _ => {
                        inside |= from == sign;
                        at += 1;
                    }
                }
            }
            inside != negated && matches(behind.get(1..).unwrap_or_default(), tail)
        }
        ([wanted, rest @ ..], [sign, tail @ ..]) => wanted == sign && matches(rest, tail),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn glob(pattern: &str, name: &str) -> bool {
        matches(&pattern.chars().collect::<Vec<_>>(), &name.chars().collect::<Vec<_>>())
    }

    #[test]
    fn patterns_match_as_in_a_shell() {
        assert!(glob("*.csv", "a.csv") && !glob("*.csv", "a.tsv"));
        assert!(glob("a?[0-9].csv", "ab7.csv") && !glob("a?[0-9].csv", "abc.csv"));
        assert!(glob("[!a]", "b") && !glob("[!a]", "a"));
        assert!(glob("*a*b*", "xaxbx") && !glob("*a*b*", "xbxa"));
        assert!(glob("[", "[") && !glob("", "a"));
    }
}
