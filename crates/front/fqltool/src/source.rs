//! Sources of records: a directory of a full query log, or one of its files.
//!
//! Owns: which files are read in which order, reading piece by piece. Never: what a record is.
//!
//! A damaged file is reported and ends there; the next one follows.

use crate::Failure;
use crate::chronicle_log::{ChronicleLog, LogError, is_chronicle};
use crate::frame_file::{FrameDefect, FrameFile, Piece};
use query_log::QueryRecord;
use query_log::chronicle::{EXTENSION as CHRONICLE, LoggedRecord, UnsupportedRecord};
use query_log::format::{EXTENSION, QUERY_LOG, read_payload};
use query_log::framing::FrameError;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A source of records, in the order in which they were written.
pub enum RecordSource {
    /// Files of Helenus.
    Own(OwnFiles),
    /// Files of a real Cassandra.
    Cassandra(CassandraFiles),
}

impl RecordSource {
    /// Opens a directory or a file. With `follow` a file may grow, and more may come.
    ///
    /// # Errors
    /// It does not exist, or holds no log.
    pub fn open(path: &Path, follow: Follow) -> Result<RecordSource, Failure> {
        let names = names_in(path)?;
        let has = |extension: &str| names.iter().any(|name| name.ends_with(extension));
        match (has(CHRONICLE), has(EXTENSION)) {
            (true, true) => {
                let text = "files of Helenus (.fql) and of Cassandra (.cq4) in one directory; name the files";
                return Err(Failure::new(format!("{}: {text}", path.display())));
            }
            (true, false) => {
                let log = ChronicleLog::new(path);
                return Ok(RecordSource::Cassandra(CassandraFiles { log, damaged: 0 }));
            }
            (false, _) => {}
        }
        if !has(EXTENSION) && follow == Follow::No {
            let text = "no files of a full query log";
            return Err(Failure::new(format!("{}: {text}", path.display())));
        }
        Ok(RecordSource::Own(OwnFiles::new(path, follow)))
    }

    /// Returns the next record; `None` at the end, where more may come later if the source is followed.
    ///
    /// # Errors
    /// The directory or a file cannot be read.
    pub fn next_record(&mut self) -> Result<Option<QueryRecord>, Failure> {
        match self {
            RecordSource::Own(files) => {
                let next = files.next()?;
                if next.is_some() || !files.is_untouched() || !is_chronicle(&files.path) {
                    return Ok(next);
                }
                // The directory was empty when it was opened to be followed.
                let log = ChronicleLog::new(&files.path);
                *self = RecordSource::Cassandra(CassandraFiles { log, damaged: 0 });
                self.next_record()
            }
            RecordSource::Cassandra(files) => files.next(),
        }
    }

    /// Number of files that were damaged.
    pub fn damaged(&self) -> usize {
        match self {
            RecordSource::Own(files) => files.damaged,
            RecordSource::Cassandra(files) => files.damaged,
        }
    }
}

/// Behaviour at the end of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// The end is the end.
    No,
    /// More records may come.
    Yes,
}

fn names_in(path: &Path) -> Result<Vec<String>, Failure> {
    let failed = |error: io::Error| Failure::new(format!("{}: {error}", path.display()));
    if !fs::metadata(path).map_err(failed)?.is_dir() {
        return Ok(vec![path.to_string_lossy().into_owned()]);
    }
    let entries = fs::read_dir(path).map_err(failed)?;
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    names.collect::<io::Result<_>>().map_err(failed)
}

/// Files of a real Cassandra.
pub struct CassandraFiles {
    log: ChronicleLog,
    damaged: usize,
}

impl CassandraFiles {
    fn next(&mut self) -> Result<Option<QueryRecord>, Failure> {
        loop {
            let found = match self.log.next_record() {
                Ok(None) => return Ok(None),
                Ok(Some(found)) => found,
                Err(error @ LogError::Io(..)) => return Err(Failure::new(error.to_string())),
                Err(error @ LogError::Damaged(..)) => {
                    complain_line!("fqltool: {error}");
                    self.damaged += 1;
                    continue;
                }
            };
            return match found.record {
                LoggedRecord::Query(query) => Ok(Some(query)),
                LoggedRecord::Audit(_) => Err(unsupported_type(&found.file, found.offset, "audit")),
                LoggedRecord::Unsupported(UnsupportedRecord::Type(kind)) => {
                    Err(unsupported_type(&found.file, found.offset, &kind))
                }
                LoggedRecord::Unsupported(why) => Err(unsupported(&found.file, found.offset, &why)),
            };
        }
    }
}

/// Failure of a record of another type, in the words of Cassandra's tool.
fn unsupported_type(file: &Path, offset: u64, kind: &str) -> Failure {
    let text = format!(
        "Unsupported record type field [{kind}] - supported record types are [single-query, batch]"
    );
    unsupported(file, offset, &text)
}

fn unsupported(file: &Path, offset: u64, why: &dyn std::fmt::Display) -> Failure {
    Failure::damaged(format!("{} at offset {offset}: {why}", file.display()))
}

/// Files of Helenus.
pub struct OwnFiles {
    path: PathBuf,
    follow: Follow,
    /// Files that were read or given up.
    done: Vec<PathBuf>,
    current: Option<FrameFile>,
    damaged: usize,
}

impl OwnFiles {
    fn new(path: &Path, follow: Follow) -> OwnFiles {
        OwnFiles { path: path.to_owned(), follow, done: Vec::new(), current: None, damaged: 0 }
    }

    fn next(&mut self) -> Result<Option<QueryRecord>, Failure> {
        // The file in use is read for the last time: another one follows it.
        let mut is_last = false;
        loop {
            if self.current.is_none() {
                is_last = false;
                let Some(path) = self.next_file()? else { return Ok(None) };
                let file = FrameFile::open(&path, QUERY_LOG, 0);
                let file = file.map_err(|e| Failure::new(format!("{}: {e}", path.display())))?;
                self.current = Some(file);
            }
            let Some(current) = &mut self.current else { return Ok(None) };
            match current.next_frame() {
                Ok(Piece::Frame { offset, payload }) => match read_payload(&payload, offset) {
                    Ok(record) => return Ok(Some(record)),
                    Err(error) => self.report(&error.to_string()),
                },
                Ok(Piece::End | Piece::Cut(_))
                    if self.follow == Follow::Yes && !std::mem::replace(&mut is_last, true) =>
                {
                    if self.next_file()?.is_none() {
                        return Ok(None);
                    }
                    // Records may have been appended before the next file began: once more.
                    continue;
                }
                Ok(Piece::End) => {}
                Ok(Piece::Cut(offset)) => {
                    self.report(&FrameError::Cut { offset }.to_string());
                }
                Err(FrameDefect::Damage(error)) => self.report(&error.to_string()),
                Err(FrameDefect::Io(error)) => {
                    let name = self.current.as_ref().map(|open| open.path().display().to_string());
                    return Err(Failure::new(format!("{}: {error}", name.unwrap_or_default())));
                }
            }
            if let Some(read) = self.current.take() {
                self.done.push(read.path().to_owned());
            }
        }
    }

    /// Returns true if no file was found yet.
    fn is_untouched(&self) -> bool {
        self.current.is_none() && self.done.is_empty()
    }

    fn report(&mut self, text: &str) {
        self.damaged += 1;
        if let Some(open) = &self.current {
            complain_line!("fqltool: {}: {text}", open.path().display());
        }
    }

    /// Returns the oldest file that was not read.
    fn next_file(&self) -> Result<Option<PathBuf>, Failure> {
        let is_new = |path: &PathBuf| {
            !self.done.contains(path)
                && self.current.as_ref().is_none_or(|current| current.path() != path)
        };
        if !self.path.is_dir() {
            return Ok(Some(self.path.clone()).filter(is_new));
        }
        let names = names_in(&self.path)?;
        let mut files: Vec<PathBuf> =
            names.iter().filter(|n| n.ends_with(EXTENSION)).map(|n| self.path.join(n)).collect();
        files.sort_by_key(|file| order(file));
        Ok(files.into_iter().find(is_new))
    }
}

/// Order of files: by cycle, then by number.
fn order(file: &Path) -> (String, u64) {
    let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let (stamp, number) = stem.split_once('.').unwrap_or((stem, "0"));
    (stamp.to_owned(), number.parse().unwrap_or(0))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use query_log::LoggedStatement;
    use query_log::format::push_record;
    use query_log::record::{NO_NOW, NO_TIMESTAMP};

    /// A record of a statement without values at consistency ONE.
    pub(crate) fn record(start_millis: i64, query: &str) -> QueryRecord {
        QueryRecord {
            start_millis,
            protocol_version: 5,
            options: vec![0, 1, 0, 0, 0, 0],
            generated_timestamp: NO_TIMESTAMP,
            generated_now: NO_NOW,
            keyspace: None,
            statement: LoggedStatement::Single { query: query.to_owned() },
        }
    }

    pub(crate) fn write(directory: &Path, name: &str, records: &[QueryRecord]) -> Vec<u8> {
        let mut bytes = QUERY_LOG.header().to_vec();
        for record in records {
            push_record(&mut bytes, record);
        }
        fs::write(directory.join(name), &bytes).unwrap();
        bytes
    }

    fn all(source: &mut RecordSource) -> Vec<i64> {
        std::iter::from_fn(|| source.next_record().unwrap())
            .map(|record| record.start_millis)
            .collect()
    }

    #[test]
    fn files_are_read_in_order_and_a_damaged_one_ends_where_it_is_damaged() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        write(at, "20261128-14.10.fql", &[record(5, "e")]);
        write(at, "20261128-14.fql", &[record(1, "a"), record(2, "b")]);
        let mut bytes = write(at, "20261128-14.9.fql", &[record(3, "c"), record(4, "d")]);
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(at.join("20261128-14.9.fql"), &bytes).unwrap();
        fs::write(at.join("notes.txt"), "x").unwrap();
        let mut source = RecordSource::open(at, Follow::No).unwrap();
        assert_eq!(all(&mut source), [1, 2, 3, 5]);
        assert_eq!(source.damaged(), 1);
        let mut one = RecordSource::open(&at.join("20261128-14.fql"), Follow::No).unwrap();
        assert_eq!(all(&mut one), [1, 2]);
    }

    #[test]
    fn a_followed_file_is_read_on_when_it_grows_and_the_next_one_when_it_rolls() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        let mut source = RecordSource::open(at, Follow::Yes).unwrap();
        assert!(all(&mut source).is_empty());
        let bytes = write(at, "20261128-14.fql", &[record(1, "a"), record(2, "b")]);
        let first = write(at, "20261128-14.fql", &[record(1, "a")]).len();
        for cut in [first + 3, first + 9] {
            fs::write(at.join("20261128-14.fql"), &bytes[..cut]).unwrap();
            let read = all(&mut source);
            assert!(read.is_empty() || read == [1], "{read:?}");
        }
        fs::write(at.join("20261128-14.fql"), &bytes).unwrap();
        assert_eq!(all(&mut source), [2]);
        write(at, "20261128-15.fql", &[record(3, "c")]);
        assert_eq!(all(&mut source), [3]);
        assert_eq!(source.damaged(), 0);
    }

    #[test]
    fn a_directory_without_a_log_is_refused_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let refused = |path: &Path| match RecordSource::open(path, Follow::No) {
            Err(failure) => failure.message,
            Ok(_) => panic!("{path:?}"),
        };
        assert!(refused(directory.path()).ends_with("no files of a full query log"));
        assert!(refused(Path::new("/missing")).contains("No such file"));
    }

    #[test]
    fn a_log_of_cassandra_is_read_and_other_logs_of_it_are_refused() {
        use crate::chronicle_log::tests::{audit_record, query_record, queue_file};
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        let queries =
            |millis: &[u8]| millis.iter().map(|one| query_record(*one)).collect::<Vec<_>>();
        fs::write(at.join("20261128-14.cq4"), queue_file(&queries(&[1, 2]), true)).unwrap();
        fs::write(at.join("20261128-15.cq4"), queue_file(&queries(&[3]), false)).unwrap();
        fs::write(at.join("20261128-13.cq4"), b"no queue").unwrap();
        fs::write(at.join("metadata.cq4t"), b"table").unwrap();
        let mut source = RecordSource::open(at, Follow::No).unwrap();
        assert_eq!(source.next_record().unwrap(), Some(record(1, "SELECT 1")));
        assert_eq!(all(&mut source), [2, 3]);
        assert_eq!(source.damaged(), 1);
        // Appended, as a followed one is.
        fs::write(at.join("20261128-15.cq4"), queue_file(&queries(&[3, 4]), false)).unwrap();
        assert_eq!(all(&mut source), [4]);
        let mut one = RecordSource::open(&at.join("20261128-14.cq4"), Follow::No).unwrap();
        assert_eq!(all(&mut one), [1, 2]);
        // Nothing was logged when it was opened.
        let empty = tempfile::tempdir().unwrap();
        let mut followed = RecordSource::open(empty.path(), Follow::Yes).unwrap();
        assert!(all(&mut followed).is_empty());
        fs::write(empty.path().join("1.cq4"), queue_file(&queries(&[5]), false)).unwrap();
        assert_eq!(all(&mut followed), [5]);
        assert!(all(&mut followed).is_empty());
        fs::write(at.join("20261128-13.cq4"), queue_file(&[audit_record("line")], true)).unwrap();
        let failure = RecordSource::open(at, Follow::No).unwrap().next_record().unwrap_err();
        let text = "20261128-13.cq4 at offset 40: Unsupported record type field [audit] - supported record types are \
            [single-query, batch]";
        assert!(failure.message.ends_with(text), "{}", failure.message);
        write(at, "20261128-14.fql", &[record(1, "a")]);
        let both = RecordSource::open(at, Follow::No).err().unwrap();
        assert!(both.message.ends_with("in one directory; name the files"), "{}", both.message);
    }
}
