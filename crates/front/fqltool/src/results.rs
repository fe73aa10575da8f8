//! Files of answers that a replay stored, and of the queries in the same order.
//!
//! Format (docs/formats/query-log.md): frames as in the query log. An answer is a frame of columns, a frame for each row
//! and an end, or a failure. A reader holds one answer in memory (INV-fqltool-1).

use crate::Failure;
use crate::target::{Outcome, Row};
use codec::{DecodeError, Reader};
use query_log::framing::{
    FRAME_HEADER_BYTES, FileFormat, FrameError, FrameHead, HEADER_BYTES, push_frame,
};
use std::fs::{File, OpenOptions};
use std::io::{BufReader, BufWriter, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

/// Files of answers.
pub const ANSWERS: FileFormat =
    FileFormat { magic: *b"HELANSWR", version: 1, name: "file of replayed answers" };
/// Name of the file of answers in its directory.
pub const ANSWERS_NAME: &str = "answers.fqr";
/// Name of the file of queries in its directory.
pub const QUERIES_NAME: &str = "00000000.fql";
/// Bytes of an answer that a reader accepts.
const ANSWER_BYTES_MAX: u64 = 1 << 30;

const COLUMNS: u8 = 1;
const ROW: u8 = 2;
const END: u8 = 3;
const FAILED: u8 = 4;

/// A file that is written from its beginning.
pub struct NewFile {
    path: PathBuf,
    file: BufWriter<File>,
}

impl NewFile {
    /// Creates a file in a directory, which is created too.
    ///
    /// # Errors
    /// It exists: results of an earlier replay are not overwritten. Or the system's.
    pub fn create(directory: &Path, name: &str, format: &FileFormat) -> Result<NewFile, Failure> {
        let path = directory.join(name);
        let failed = |error: std::io::Error| Failure::new(format!("{}: {error}", path.display()));
        std::fs::create_dir_all(directory).map_err(failed)?;
        let opened = OpenOptions::new().write(true).create_new(true).open(&path);
        let file = opened.map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => Failure::new(format!(
                "{} exists: an earlier replay is not overwritten",
                path.display()
            )),
            _ => failed(error),
        })?;
        let mut new = NewFile { path: path.clone(), file: BufWriter::new(file) };
        new.write(&format.header())?;
        Ok(new)
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// The system's.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let written = self.file.write_all(bytes);
        written.map_err(|error| Failure::new(format!("{}: {error}", self.path.display())))
    }

    /// Writes what is buffered, to the disk.
    ///
    /// # Errors
    /// The system's.
    pub fn close(mut self) -> Result<(), Failure> {
        let closed = self.file.flush().and_then(|()| self.file.get_ref().sync_all());
        closed.map_err(|error| Failure::new(format!("{}: {error}", self.path.display())))
    }
}

/// Appends an answer.
pub fn push_answer(out: &mut Vec<u8>, outcome: &Outcome) {
    match outcome {
        Outcome::Failed { code, message } => push_frame(out, |out| {
            out.push(FAILED);
            out.extend_from_slice(&code.to_le_bytes());
            push_bytes(out, message.as_bytes());
        }),
        Outcome::Result { columns, rows, is_cut } => {
            push_frame(out, |out| {
                out.push(COLUMNS);
                push_count(out, columns.len());
                for (name, kind) in columns {
                    push_bytes(out, name.as_bytes());
                    push_bytes(out, kind.as_bytes());
                }
            });
            for row in rows {
                push_frame(out, |out| push_row(out, row));
            }
            push_frame(out, |out| out.extend_from_slice(&[END, u8::from(*is_cut)]));
        }
    }
}

fn push_row(out: &mut Vec<u8>, row: &Row) {
    out.push(ROW);
    push_count(out, row.len());
    for value in row {
        match value {
            None => out.extend_from_slice(&(-1_i32).to_le_bytes()),
            Some(bytes) => push_bytes(out, bytes),
        }
    }
}

fn push_count(out: &mut Vec<u8>, count: usize) {
    // Answers are shorter than 2 GiB.
    out.extend_from_slice(&i32::try_from(count).unwrap_or(i32::MAX).to_le_bytes());
}

fn push_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    push_count(out, bytes.len());
    out.extend_from_slice(bytes);
}

/// Reads answers in their order.
pub struct AnswerReader<R> {
    name: String,
    file: R,
    offset: u64,
}

impl AnswerReader<BufReader<File>> {
    /// Opens the file of a directory.
    ///
    /// # Errors
    /// It cannot be read, or is none.
    pub fn open(directory: &Path) -> Result<Self, Failure> {
        let path = directory.join(ANSWERS_NAME);
        let opened = File::open(&path);
        let file = opened.map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
        AnswerReader::new(path.display().to_string(), BufReader::new(file))
    }
}

impl<R: Read> AnswerReader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// It is none.
    pub fn new(name: String, file: R) -> Result<AnswerReader<R>, Failure> {
        let mut reader = AnswerReader { name, file, offset: 0 };
        let mut header = [0; HEADER_BYTES];
        let read = reader.read(&mut header)?;
        let checked = ANSWERS.check_header(header.get(..read).unwrap_or_default());
        checked.map_err(|error| reader.damaged(&error))?;
        reader.offset = HEADER_BYTES as u64;
        Ok(reader)
    }

    /// Returns the next answer; `None` at the end.
    ///
    /// # Errors
    /// The file is damaged, or cannot be read.
    pub fn next_answer(&mut self) -> Result<Option<Outcome>, Failure> {
        let begin = self.offset;
        let Some(payload) = self.frame()? else { return Ok(None) };
        let mut r = Reader::new(&payload, "answer");
        let first = self.decoded(read_first(&mut r))?;
        let columns = match first {
            First::Failed(outcome) => return Ok(Some(outcome)),
            First::Columns(columns) => columns,
        };
        let mut rows = Vec::new();
        loop {
            if self.offset - begin > ANSWER_BYTES_MAX {
                return Err(self.damaged(&format!("an answer above {ANSWER_BYTES_MAX} bytes")));
            }
            let at = self.offset;
            let Some(payload) = self.frame()? else {
                return Err(self.damaged(&FrameError::Cut { offset: at }));
            };
            let mut r = Reader::new(&payload, "answer");
            match self.decoded(read_next(&mut r, columns.len()))? {
                Next::Row(row) => rows.push(row),
                Next::End { is_cut } => {
                    return Ok(Some(Outcome::Result { columns, rows, is_cut }));
                }
            }
        }
    }

    fn frame(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        let offset = self.offset;
        let mut head = [0; FRAME_HEADER_BYTES];
        match self.read(&mut head)? {
            0 => return Ok(None),
            FRAME_HEADER_BYTES => {}
            _ => return Err(self.damaged(&FrameError::Cut { offset })),
        }
        let head = FrameHead::parse(head, offset).map_err(|error| self.damaged(&error))?;
        // Piece by piece: the length is not checked yet.
        let mut payload = Vec::new();
        let length = u64::from(head.length);
        let read = (&mut self.file).take(length).read_to_end(&mut payload);
        read.map_err(|error| Failure::new(format!("{}: {error}", self.name)))?;
        if payload.len() as u64 != length {
            return Err(self.damaged(&FrameError::Cut { offset }));
        }
        head.check(&payload, offset).map_err(|error| self.damaged(&error))?;
        self.offset = offset + FRAME_HEADER_BYTES as u64 + length;
        Ok(Some(payload))
    }

    fn read(&mut self, out: &mut [u8]) -> Result<usize, Failure> {
        let mut read = 0;
        while let Some(rest) = out.get_mut(read..).filter(|rest| !rest.is_empty()) {
            match self.file.read(rest) {
                Ok(0) => break,
                Ok(bytes) => read += bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Failure::new(format!("{}: {error}", self.name))),
            }
        }
        Ok(read)
    }

    fn decoded<T>(&self, result: Result<T, DecodeError>) -> Result<T, Failure> {
        result.map_err(|error| {
            self.damaged(&format!("the record before offset {} is no answer: {error}", self.offset))
        })
    }

    fn damaged(&self, error: &dyn std::fmt::Display) -> Failure {
        Failure::damaged(format!("{}: {error}", self.name))
    }
}

enum First {
    Columns(Vec<(String, String)>),
    Failed(Outcome),
}

enum Next {
    Row(Row),
    End { is_cut: bool },
}

fn read_first(r: &mut Reader<'_>) -> Result<First, DecodeError> {
    let before = *r;
    let first = match r.u8()? {
        COLUMNS => {
            let count = count(r)?;
            let count = r.check_count(count, 8)?;
            let columns = (0..count).map(|_| Ok((text(r)?, text(r)?)));
            First::Columns(columns.collect::<Result<_, _>>()?)
        }
        FAILED => {
            let code = r.i32_le()?;
            First::Failed(Outcome::Failed { code, message: text(r)? })
        }
        kind => return Err(before.invalid(i64::from(kind))),
    };
    r.finish()?;
    Ok(first)
}

fn read_next(r: &mut Reader<'_>, width: usize) -> Result<Next, DecodeError> {
    let before = *r;
    let next = match r.u8()? {
        ROW => {
            let count = count(r)?;
            if count != width {
                return Err(before.invalid(count as i64));
            }
            Next::Row((0..count).map(|_| value(r)).collect::<Result<_, _>>()?)
        }
        END => match r.u8()? {
            flag @ (0 | 1) => Next::End { is_cut: flag == 1 },
            other => return Err(before.invalid(i64::from(other))),
        },
        kind => return Err(before.invalid(i64::from(kind))),
    };
    r.finish()?;
    Ok(next)
}

fn count(r: &mut Reader<'_>) -> Result<usize, DecodeError> {
    let before = *r;
    let count = r.i32_le()?;
    usize::try_from(count).map_err(|_| before.invalid(i64::from(count)))
}

fn text(r: &mut Reader<'_>) -> Result<String, DecodeError> {
    let bytes = count(r)?;
    Ok(r.utf8(bytes)?.to_owned())
}

fn value(r: &mut Reader<'_>) -> Result<Option<Vec<u8>>, DecodeError> {
    let before = *r;
    match r.i32_le()? {
        -1 => Ok(None),
        length => match usize::try_from(length) {
            Ok(bytes) => Ok(Some(r.bytes(bytes)?.to_vec())),
            Err(_) => Err(before.invalid(i64::from(length))),
        },
    }
}

/// Reads a file of answers: no bytes panic, and an answer that is read is written back as it was.
pub fn fuzz_replayed_answers(data: &[u8]) {
    let Ok(mut reader) = AnswerReader::new("fuzz".to_owned(), data) else { return };
    let mut again = ANSWERS.header().to_vec();
    while let Ok(Some(outcome)) = reader.next_answer() {
        push_answer(&mut again, &outcome);
        assert_eq!(data.get(..again.len()), Some(again.as_slice()));
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn rows(of: &[&[Option<&str>]]) -> Outcome {
        let value = |value: &Option<&str>| value.map(|text| text.as_bytes().to_vec());
        Outcome::Result {
            columns: vec![("k".to_owned(), "text".to_owned()), ("v".to_owned(), "int".to_owned())],
            rows: of.iter().map(|row| row.iter().map(value).collect()).collect(),
            is_cut: false,
        }
    }

    pub(crate) fn failed(code: i32, message: &str) -> Outcome {
        Outcome::Failed { code, message: message.to_owned() }
    }

    fn outcomes() -> Vec<Outcome> {
        let void = Outcome::Result { columns: Vec::new(), rows: Vec::new(), is_cut: true };
        vec![rows(&[&[Some("a"), None], &[Some(""), Some("b")]]), failed(0x2200, "bad"), void]
    }

    fn file(outcomes: &[Outcome]) -> Vec<u8> {
        let mut bytes = ANSWERS.header().to_vec();
        outcomes.iter().for_each(|outcome| push_answer(&mut bytes, outcome));
        bytes
    }

    fn read(bytes: &[u8]) -> Result<Vec<Outcome>, Failure> {
        let mut reader = AnswerReader::new("f".to_owned(), bytes)?;
        let mut outcomes = Vec::new();
        while let Some(outcome) = reader.next_answer()? {
            outcomes.push(outcome);
        }
        Ok(outcomes)
    }

    const GOLDEN: &[&str] = &[
        "48454c414e53575201000000d2a204621e000000b6a7929e0102000000010000",
        "006b0400000074657874010000007603000000696e740e0000007fc696920202",
        "0000000100000061ffffffff0e000000e685d861020200000000000000010000",
        "0062020000006b5327d703000c0000007b8ab54f040022000003000000626164",
        "050000005178fe91010000000002000000fd6320a00301",
    ];

    #[test]
    fn a_file_is_the_same_in_every_version() {
        let bytes = file(&outcomes());
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, GOLDEN.concat());
        assert_eq!(read(&bytes).unwrap(), outcomes());
    }

    #[test]
    fn every_changed_byte_and_every_cut_is_noticed() {
        let bytes = file(&outcomes());
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x10;
            assert!(read(&changed).is_err(), "byte {at}");
        }
        let whole: Vec<usize> = (0..=3).map(|count| file(&outcomes()[..count]).len()).collect();
        for length in 0..bytes.len() {
            assert_eq!(read(&bytes[..length]).is_ok(), whole.contains(&length), "{length} bytes");
        }
    }

    #[test]
    fn no_bytes_panic() {
        testkit::mutate([file(&outcomes())], fuzz_replayed_answers);
    }

    #[test]
    fn an_earlier_replay_is_not_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path().join("new");
        NewFile::create(&at, ANSWERS_NAME, &ANSWERS).unwrap().close().unwrap();
        assert_eq!(AnswerReader::open(&at).unwrap().next_answer(), Ok(None));
        let Err(refused) = NewFile::create(&at, ANSWERS_NAME, &ANSWERS) else { panic!() };
        assert!(refused.message.ends_with("an earlier replay is not overwritten"));
    }
}
