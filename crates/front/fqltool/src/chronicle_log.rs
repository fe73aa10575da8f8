//! Directories of a real Cassandra's full query log or binary audit log: files of a Chronicle queue, in the order of
//! their names.
//!
//! Reading order: [`ChronicleLog`].

use query_log::chronicle::{
    ChronicleError, EXTENSION, Excerpt, LoggedRecord, QueueCursor, QueueEnd, Step, WORD_BYTES,
    decode_record,
};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Why a file is not read, or not further. The next call goes on with the next file.
#[derive(Debug)]
pub enum LogError {
    /// The file or directory cannot be read.
    Io(PathBuf, io::Error),
    /// The file is damaged, or none of a queue.
    Damaged(PathBuf, ChronicleError),
}

impl std::fmt::Display for LogError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LogError::Io(path, error) => write!(f, "{}: {error}", path.display()),
            LogError::Damaged(path, error) => write!(f, "{}: {error}", path.display()),
        }
    }
}

/// A record, and the file that it was read from.
#[derive(Debug, PartialEq, Eq)]
pub struct FoundRecord {
    /// The file.
    pub file: PathBuf,
    /// Offset of the record in it.
    pub offset: u64,
    /// The record.
    pub record: LoggedRecord,
}

/// Records of a directory, or of one file.
#[derive(Debug)]
pub struct ChronicleLog {
    path: PathBuf,
    /// Files up to this one are read.
    done: Option<PathBuf>,
    current: Option<CurrentFile>,
}

#[derive(Debug)]
struct CurrentFile {
    path: PathBuf,
    file: File,
    cursor: QueueCursor,
    /// Offset of the end after which only zeros were found.
    checked_end: Option<u64>,
}

/// Bytes that are read at once to find what follows the end.
const SCAN_BYTES: usize = 256 << 10;

/// Returns true if the path is a file of a queue, or a directory with one.
pub fn is_chronicle(path: &Path) -> bool {
    if path.is_dir() {
        files_of(path).is_ok_and(|files| !files.is_empty())
    } else {
        is_queue_file(path)
    }
}

fn is_queue_file(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().ends_with(EXTENSION.as_bytes()))
}

/// Returns the files of a queue in the order of their cycles.
fn files_of(path: &Path) -> io::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = fs::read_dir(path)?.map(|entry| entry.map(|entry| entry.path()));
    let mut files = entries.collect::<io::Result<Vec<_>>>()?;
    files.retain(|file| is_queue_file(file));
    files.sort();
    Ok(files)
}

impl ChronicleLog {
    /// Returns a reader of the records at `path`.
    pub fn new(path: &Path) -> ChronicleLog {
        ChronicleLog { path: path.to_owned(), done: None, current: None }
    }

    /// Returns the next record; `None` after the last one. A later call returns what was appended since then, also to
    /// new files.
    ///
    /// # Errors
    /// A file that cannot be read further. The next call goes on with the next one.
    pub fn next_record(&mut self) -> Result<Option<FoundRecord>, LogError> {
        loop {
            if let Some(found) = self.next_of_current()? {
                return Ok(Some(found));
            }
            self.check_end_of_current()?;
            let Some(next) = self.next_file()? else { return Ok(None) };
            // Records appended before the writer began the next file.
            if let Some(found) = self.next_of_current()? {
                return Ok(Some(found));
            }
            self.finish_current();
            let file = File::open(&next).map_err(|error| {
                self.done = Some(next.clone());
                LogError::Io(next.clone(), error)
            })?;
            let (cursor, checked_end) = (QueueCursor::default(), None);
            self.current = Some(CurrentFile { path: next, file, cursor, checked_end });
        }
    }

    fn next_of_current(&mut self) -> Result<Option<FoundRecord>, LogError> {
        let Some(current) = &mut self.current else { return Ok(None) };
        let result = current.next_record();
        if result.is_err() {
            self.finish_current();
        }
        result
    }

    fn check_end_of_current(&mut self) -> Result<(), LogError> {
        let Some(current) = &mut self.current else { return Ok(()) };
        let result = current.check_end();
        if result.is_err() {
            self.finish_current();
        }
        result
    }

    fn finish_current(&mut self) {
        if let Some(current) = self.current.take() {
            self.done = Some(current.path);
        }
    }

    /// Returns the first file after the current one.
    fn next_file(&self) -> Result<Option<PathBuf>, LogError> {
        let files = files_of(&self.path);
        let files = files.map_err(|error| LogError::Io(self.path.clone(), error))?;
        let last = self.current.as_ref().map(|current| &current.path).or(self.done.as_ref());
        Ok(files.into_iter().find(|file| last.is_none_or(|last| file > last)))
    }
}

impl CurrentFile {
    fn next_record(&mut self) -> Result<Option<FoundRecord>, LogError> {
        let io = |error| LogError::Io(self.path.clone(), error);
        let damaged = |error| LogError::Damaged(self.path.clone(), error);
        loop {
            let at = self.cursor.offset();
            let word = read_at(&self.file, at, WORD_BYTES).map_err(io)?;
            // After the word: a writer extends the file before it appends.
            let bytes = self.file.metadata().map_err(io)?.len();
            match self.cursor.step(&word, bytes).map_err(damaged)? {
                Step::Header(excerpt) => {
                    let payload = self.payload(excerpt)?;
                    self.cursor.open(excerpt, &payload).map_err(damaged)?;
                }
                Step::Record(excerpt) => {
                    let record = decode_record(&self.payload(excerpt)?, excerpt.offset);
                    let (file, offset) = (self.path.clone(), excerpt.offset);
                    return Ok(Some(FoundRecord {
                        file,
                        offset,
                        record: record.map_err(damaged)?,
                    }));
                }
                Step::Skipped => {}
                Step::End(QueueEnd::Closed | QueueEnd::Open) => return Ok(None),
            }
        }
    }

    /// Checks that nothing follows the zeros at the end of the file: records after a hole would be missed silently.
    fn check_end(&mut self) -> Result<(), LogError> {
        let at = self.cursor.offset();
        if self.checked_end == Some(at) || !self.is_zero_word(at)? {
            return Ok(());
        }
        let mut from = at.saturating_add(WORD_BYTES as u64);
        loop {
            let bytes = read_at(&self.file, from, SCAN_BYTES);
            let bytes = bytes.map_err(|error| LogError::Io(self.path.clone(), error))?;
            if let Some(found) = bytes.iter().position(|byte| *byte != 0) {
                let next = from.saturating_add(found as u64);
                // Otherwise a writer has appended meanwhile.
                return match self.is_zero_word(at)? {
                    true => {
                        let error = ChronicleError::Hole { offset: at, next };
                        Err(LogError::Damaged(self.path.clone(), error))
                    }
                    false => Ok(()),
                };
            }
            if bytes.len() < SCAN_BYTES {
                self.checked_end = Some(at);
                return Ok(());
            }
            from = from.saturating_add(SCAN_BYTES as u64);
        }
    }

    /// Returns true for a header word of zeros, false at the end of the file.
    fn is_zero_word(&self, at: u64) -> Result<bool, LogError> {
        let word = read_at(&self.file, at, WORD_BYTES);
        let word = word.map_err(|error| LogError::Io(self.path.clone(), error))?;
        Ok(word == [0; WORD_BYTES])
    }

    fn payload(&self, excerpt: Excerpt) -> Result<Vec<u8>, LogError> {
        let payload = read_at(&self.file, excerpt.begin, excerpt.length);
        let payload = payload.map_err(|error| LogError::Io(self.path.clone(), error))?;
        if payload.len() < excerpt.length {
            let (needed, available) = (excerpt.length as u64, payload.len() as u64);
            let error = ChronicleError::Cut { offset: excerpt.offset, needed, available };
            return Err(LogError::Damaged(self.path.clone(), error));
        }
        Ok(payload)
    }
}

/// Reads `length` bytes at an offset; fewer at the end of the file.
fn read_at(file: &File, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset.saturating_add(filled as u64)) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const HEADER: &[u8] = b"\xb9\x06header\xb6\x08SCQStore\x82\x0d\0\0\0\xcadataFormat\xa1\x01";
    const HEADER_WORD: u32 = 0x4000_0000;

    /// A file of a queue with these records, and an end mark if it is closed.
    pub(crate) fn queue_file(records: &[Vec<u8>], is_closed: bool) -> Vec<u8> {
        let mut out = Vec::new();
        let header = (HEADER.len() as u32 | HEADER_WORD, HEADER.to_vec());
        let records = records.iter().map(|record| (record.len() as u32, record.clone()));
        for (word, payload) in std::iter::once(header).chain(records) {
            out.extend_from_slice(&word.to_le_bytes());
            out.extend_from_slice(&payload);
            out.resize(out.len().next_multiple_of(WORD_BYTES), 0);
        }
        if is_closed {
            out.extend_from_slice(&0xc000_0000u32.to_le_bytes());
        }
        out
    }

    /// A record of the audit log.
    pub(crate) fn audit_record(line: &str) -> Vec<u8> {
        let mut out = b"\xc7version\xa1\x00\xc4type\xe5audit\xc7message\xb8".to_vec();
        out.push(u8::try_from(line.len()).unwrap());
        out.extend_from_slice(line.as_bytes());
        out
    }

    /// A record of the full query log: `SELECT 1` without values at consistency ONE, without a generated timestamp.
    pub(crate) fn query_record(millis: u8) -> Vec<u8> {
        let mut out =
            b"\xc7version\xa1\x00\xc4type\xecsingle-query\xd0query-start-time\xa1".to_vec();
        out.push(millis);
        out.extend_from_slice(
            b"\xd0protocol-version\xa1\x05\xcdquery-options\x80\x07\x8a\0\x01\0\0\0\0",
        );
        out.extend_from_slice(
            b"\xd3generated-timestamp\x90\0\0\0\xdf\xd8generated-now-in-seconds\xa6\0\0\0\x80",
        );
        out.extend_from_slice(b"\xc8keyspace\xbb\xc5query\xe8SELECT 1");
        out
    }

    fn lines(log: &mut ChronicleLog) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            match log.next_record() {
                Ok(None) => return lines,
                Ok(Some(FoundRecord { record: LoggedRecord::Audit(line), .. })) => lines.push(line),
                Ok(Some(other)) => panic!("{other:?}"),
                Err(error) => {
                    let text = error.to_string();
                    lines.push(text.rsplit_once('/').unwrap().1.to_owned());
                }
            }
        }
    }

    fn write(directory: &Path, name: &str, bytes: &[u8]) {
        fs::write(directory.join(name), bytes).unwrap();
    }

    #[test]
    fn files_are_read_in_the_order_of_their_names_and_others_are_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let of = |names: &[&str]| {
            let records: Vec<_> = names.iter().map(|name| audit_record(name)).collect();
            queue_file(&records, names.len() > 1)
        };
        write(path, "20261128-15.cq4", &of(&["c"]));
        write(path, "20261128-14.cq4", &of(&["a", "b"]));
        write(path, "metadata.cq4t", b"\xff\xff\xff\x01table");
        write(path, "notes.txt", b"\xff\xff\xff\x01");
        assert!(is_chronicle(path));
        assert!(is_chronicle(&path.join("20261128-14.cq4")));
        assert!(!is_chronicle(&path.join("metadata.cq4t")));
        assert_eq!(lines(&mut ChronicleLog::new(path)), ["a", "b", "c"]);
        let one = path.join("20261128-14.cq4");
        assert_eq!(lines(&mut ChronicleLog::new(&one)), ["a", "b"]);
        let empty = tempfile::tempdir().unwrap();
        assert!(!is_chronicle(empty.path()));
        assert_eq!(lines(&mut ChronicleLog::new(empty.path())), [""; 0]);
        let missing = empty.path().join("missing");
        let error = ChronicleLog::new(&missing).next_record().unwrap_err();
        assert!(matches!(error, LogError::Io(path, _) if path == missing));
    }

    #[test]
    fn a_damaged_file_is_named_with_its_offset_and_the_next_one_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let whole = queue_file(&[audit_record("a"), audit_record("b")], false);
        let mut bytes = whole.clone();
        let second = bytes.len() - audit_record("b").len().next_multiple_of(WORD_BYTES);
        bytes[second] = 0xff;
        write(path, "20261128-14.cq4", &bytes);
        write(path, "20261128-15.cq4", b"HELAUDIT");
        write(path, "20261128-16.cq4", &whole);
        let found = lines(&mut ChronicleLog::new(path));
        let damage = format!(
            "20261128-14.cq4: the excerpt at offset {} is not readable: record has the invalid value 255 at byte 0",
            second - WORD_BYTES
        );
        let other = "20261128-15.cq4: not a file of a Chronicle queue: the excerpt at offset 0 is no header";
        assert_eq!(found, ["a", &damage, other, "a", "b"]);
    }

    #[test]
    fn records_after_a_hole_are_an_error_and_zeros_at_the_end_are_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let one = queue_file(&[audit_record("a")], false);
        let filled = [one.clone(), vec![0; 2 * SCAN_BYTES]].concat();
        write(path, "1.cq4", &filled);
        let mut holed = filled.clone();
        let at = one.len() + SCAN_BYTES + 100;
        holed[at] = 7;
        write(path, "2.cq4", &holed);
        write(path, "3.cq4", &one);
        let hole = format!(
            "2.cq4: zeros at offset {}, where an excerpt or the end is expected, and data again at offset {at}",
            one.len()
        );
        assert_eq!(lines(&mut ChronicleLog::new(path)), ["a", "a", &hole, "a"]);
        // Also in the last file.
        let last = ChronicleLog::new(&path.join("2.cq4"));
        assert_eq!(lines(&mut { last }), ["a", &hole]);
    }

    /// The state of `--follow`.
    #[test]
    fn appended_records_and_new_files_are_read_by_later_calls() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let mut log = ChronicleLog::new(path);
        assert_eq!(lines(&mut log), [""; 0]);
        write(path, "1.cq4", &[0; 64]);
        assert_eq!(lines(&mut log), [""; 0]);
        let one = [queue_file(&[audit_record("a")], false), vec![0; 64]].concat();
        write(path, "1.cq4", &one);
        assert_eq!(lines(&mut log), ["a"]);
        // The second is read although a third file was begun meanwhile.
        write(path, "1.cq4", &queue_file(&[audit_record("a"), audit_record("b")], true));
        write(path, "2.cq4", &queue_file(&[audit_record("c")], false));
        assert_eq!(lines(&mut log), ["b", "c"]);
        assert_eq!(lines(&mut log), [""; 0]);
    }
}
