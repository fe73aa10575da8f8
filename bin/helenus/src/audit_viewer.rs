//! `helenus auditlogviewer`: prints binary audit logs, ours and those of a real Cassandra, with the options of
//! Cassandra's tool.
//!
//! Source: the output of Cassandra 5.0.9's `auditlogviewer`.

use crate::exit;
use audit::binary::{AUDIT_LOG, Record, read_payload};
use fqltool::chronicle_log::{ChronicleLog, LogError, is_chronicle};
use fqltool::frame_file::{FrameDefect, FrameFile, Piece};
use query_log::chronicle::{LoggedRecord, UnsupportedRecord};
use query_log::framing::FrameError;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often `--follow` looks for more.
const POLL: Duration = Duration::from_millis(200);

const USAGE: &str = "usage: auditlogviewer <path1> [<path2>...<pathN>] [options]
--
View the audit log contents in human readable format
--
Options are:
 -f,--follow             Upon reaching the end of the log continue
                         indefinitely waiting for more records
 -h,--help               display this help message
 -i,--ignore             Silently ignore unsupported records
 -r,--roll_cycle <arg>   Accepted: the names of files tell when they were
                         rolled. (MINUTELY, HOURLY, DAILY). Default HOURLY.
";

#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    paths: Vec<PathBuf>,
    follow: bool,
    ignore: bool,
}

/// Runs the tool; returns its exit code.
pub fn main(arguments: &[String]) -> u8 {
    let options = match parse(arguments) {
        Ok(Some(options)) => options,
        Ok(None) => {
            say!("{USAGE}");
            return exit::OK;
        }
        Err(message) => {
            complain!("{message}\n{USAGE}");
            return exit::USAGE;
        }
    };
    let mut reader = LogReader { ignore: options.ignore, ..LogReader::default() };
    loop {
        for path in &options.paths {
            let printed =
                reader.print(path, options.follow).and_then(|()| reader.print_queue(path));
            if let Err((code, message)) = printed {
                complain_line!("auditlogviewer: {message}");
                return code;
            }
        }
        if !options.follow {
            return if reader.damaged.is_empty() { exit::OK } else { exit::DAMAGED };
        }
        std::thread::sleep(POLL);
    }
}

fn parse(arguments: &[String]) -> Result<Option<Options>, String> {
    let mut options = Options::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "-h" | "--help" => return Ok(None),
            "-f" | "--follow" => options.follow = true,
            "-i" | "--ignore" => options.ignore = true,
            "-r" | "--roll_cycle" => {
                let name = rest.next().ok_or("Missing argument for option: r")?;
                conf::RollCycle::of_name(name)
                    .map_err(|form| format!("{name}: expected {form}"))?;
            }
            flag if flag.starts_with('-') => return Err(format!("Unrecognized option: {flag}")),
            path => options.paths.push(PathBuf::from(path)),
        }
    }
    if options.paths.is_empty() {
        return Err("Audit log files directory path is a required argument.".to_owned());
    }
    Ok(Some(options))
}

/// Prints records once.
#[derive(Default)]
struct LogReader {
    ignore: bool,
    /// Files with the offset of the next record.
    read: Vec<(PathBuf, u64)>,
    /// Paths that have files of a real Cassandra.
    queues: Vec<(PathBuf, ChronicleLog)>,
    /// Files that cannot be read further, with the reason. A crash cuts off the last record of a file.
    damaged: Vec<(PathBuf, String)>,
}

impl LogReader {
    /// Prints what is new in our files of a directory, or in one file. With `follow` a record that is cut off may be
    /// completed later.
    fn print(&mut self, path: &Path, follow: bool) -> Result<(), (u8, String)> {
        let failed = |error: std::io::Error| (exit::FAILED, format!("{}: {error}", path.display()));
        let mut files = vec![path.to_owned()];
        if !path.is_dir() && is_chronicle(path) {
            files.clear();
        }
        if path.is_dir() {
            let entries = fs::read_dir(path).map_err(failed)?;
            let entries = entries.map(|entry| entry.map(|entry| entry.path()));
            files = entries.collect::<Result<_, _>>().map_err(failed)?;
            files.retain(|file| file.extension().is_some_and(|extension| extension == "audit"));
            files.sort_by_key(|file| order(file));
        }
        for file in files {
            if self.damaged.iter().any(|(known, _)| *known == file) {
                continue;
            }
            match self.print_file(&file, follow) {
                Err((exit::DAMAGED, message)) => {
                    complain_line!("auditlogviewer: {message}");
                    self.damaged.push((file, message));
                }
                result => result?,
            }
        }
        Ok(())
    }

    /// Prints what is new in Cassandra's files of a directory, or in one of its files.
    fn print_queue(&mut self, path: &Path) -> Result<(), (u8, String)> {
        let known = self.queues.iter().position(|(known, _)| known == path);
        let index = match known {
            Some(index) => index,
            None if is_chronicle(path) => {
                self.queues.push((path.to_owned(), ChronicleLog::new(path)));
                self.queues.len().saturating_sub(1)
            }
            None => return Ok(()),
        };
        let Some((_, log)) = self.queues.get_mut(index) else { return Ok(()) };
        loop {
            let (file, record) = match log.next_record() {
                Ok(None) => return Ok(()),
                Ok(Some(found)) => (found.file, found.record),
                Err(error @ LogError::Io(..)) => return Err((exit::FAILED, error.to_string())),
                Err(LogError::Damaged(file, reason)) => {
                    complain_line!("auditlogviewer: {}: {reason}", file.display());
                    self.damaged.push((file, reason.to_string()));
                    continue;
                }
            };
            let unsupported = match record {
                LoggedRecord::Audit(line) => {
                    say_line!("Type: audit\nLogMessage: {line}");
                    continue;
                }
                LoggedRecord::Query(query) => unsupported_type(query.kind()),
                LoggedRecord::Unsupported(UnsupportedRecord::Type(kind)) => unsupported_type(&kind),
                LoggedRecord::Unsupported(why) => why.to_string(),
            };
            if !self.ignore {
                return Err((exit::DAMAGED, format!("{}: {unsupported}", file.display())));
            }
        }
    }

    /// Prints what is new in a file. Its records are read one by one.
    fn print_file(&mut self, file: &Path, follow: bool) -> Result<(), (u8, String)> {
        let named = |what: &dyn std::fmt::Display| format!("{}: {what}", file.display());
        let failed = |error: io::Error| (exit::FAILED, named(&error));
        let known = self.read.iter().position(|(path, _)| path == file);
        let at = known.and_then(|index| self.read.get(index)).map_or(0, |(_, at)| *at);
        if at > 0 && fs::metadata(file).map_err(failed)?.len() == at {
            return Ok(());
        }
        let mut frames = FrameFile::open(file, AUDIT_LOG, at).map_err(failed)?;
        let ended = self.print_frames(&mut frames, follow);
        let at = frames.offset();
        match known.and_then(|index| self.read.get_mut(index)) {
            Some(entry) => entry.1 = at,
            None if at > 0 && ended.is_ok() => self.read.push((file.to_owned(), at)),
            None => {}
        }
        ended
    }

    fn print_frames(&self, frames: &mut FrameFile, follow: bool) -> Result<(), (u8, String)> {
        let file = frames.path().to_owned();
        let named = |what: &dyn std::fmt::Display| format!("{}: {what}", file.display());
        loop {
            match frames.next_frame() {
                Ok(Piece::Frame { offset, payload }) => {
                    let record = read_payload(&payload, offset);
                    let record = record.map_err(|error| (exit::DAMAGED, named(&error)))?;
                    self.print_record(&file, record)?;
                }
                Ok(Piece::End) => return Ok(()),
                Ok(Piece::Cut(_)) if follow => return Ok(()),
                Ok(Piece::Cut(offset)) => {
                    return Err((exit::DAMAGED, named(&FrameError::Cut { offset })));
                }
                Err(FrameDefect::Damage(error)) => return Err((exit::DAMAGED, named(&error))),
                Err(FrameDefect::Io(error)) => return Err((exit::FAILED, named(&error))),
            }
        }
    }

    fn print_record(&self, file: &Path, record: Record<'_>) -> Result<(), (u8, String)> {
        match record {
            Record::Line { line, .. } => say_line!("Type: audit\nLogMessage: {line}"),
            Record::Unknown(_) if self.ignore => {}
            Record::Unknown(kind) => {
                let text = format!("{}: unsupported record of kind {kind}", file.display());
                return Err((exit::DAMAGED, text));
            }
        }
        Ok(())
    }
}

/// Text of Cassandra's tool for a record of another type.
fn unsupported_type(kind: &str) -> String {
    format!("Unsupported record type field [{kind}] - supported type is [audit]")
}

/// Order of files: by cycle, then by number.
fn order(file: &Path) -> (String, u64) {
    let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let (stamp, number) = stem.split_once('.').unwrap_or((stem, "0"));
    (stamp.to_owned(), number.parse().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use audit::binary::push_record;

    fn push(out: &mut Vec<u8>, line: &str) {
        push_record(out, 0, |out| out.extend_from_slice(line.as_bytes()));
    }

    fn parsed(line: &str) -> Result<Option<Options>, String> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<String>>())
    }

    #[test]
    fn options_are_those_of_cassandras_viewer() {
        let options = parsed("-i -f --roll_cycle DAILY /a /b").unwrap().unwrap();
        let paths = vec![PathBuf::from("/a"), PathBuf::from("/b")];
        assert_eq!(options, Options { paths, follow: true, ignore: true });
        assert_eq!(parsed("-h"), Ok(None));
        for (line, message) in [
            ("", "Audit log files directory path is a required argument."),
            ("-z /a", "Unrecognized option: -z"),
            ("/a -r", "Missing argument for option: r"),
        ] {
            assert_eq!(parsed(line), Err(message.to_owned()));
        }
        assert!(parsed("-r FOO /a").unwrap_err().starts_with("FOO: expected a roll cycle"));
    }

    #[test]
    fn files_are_read_in_order_and_damage_names_the_file_and_the_offset() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, lines: &[&str]| {
            let mut bytes = AUDIT_LOG.header().to_vec();
            lines.iter().for_each(|line| push(&mut bytes, line));
            fs::write(directory.path().join(name), &bytes).unwrap();
            bytes
        };
        write("20261128-14.10.audit", &["c"]);
        write("20261128-14.audit", &["a"]);
        let bytes = write("20261128-14.2.audit", &["b", "b2"]);
        let mut reader = LogReader::default();
        reader.print(directory.path(), false).unwrap();
        let names: Vec<(u64, u64)> =
            reader.read.iter().map(|(path, at)| (order(path).1, *at)).collect();
        assert_eq!(names, [(0, 34), (2, bytes.len() as u64), (10, 34)]);
        let cut = directory.path().join("20261128-14.2.audit");
        fs::write(&cut, &bytes[..bytes.len() - 1]).unwrap();
        let mut reader = LogReader::default();
        reader.print(directory.path(), false).unwrap();
        let (of, message) = reader.damaged.first().unwrap();
        assert_eq!(*of, cut);
        assert!(
            message.ends_with("20261128-14.2.audit: the file ends within a record at offset 34"),
            "{message}"
        );
        // The files after it are printed.
        let names: Vec<u64> = reader.read.iter().map(|(path, _)| order(path).1).collect();
        assert_eq!(names, [0, 10]);
        let paths = [directory.path().to_str().unwrap().to_owned()];
        assert_eq!(main(&paths), exit::DAMAGED);
        let mut reader = LogReader::default();
        // A record that is being written is completed later.
        reader.print(&cut, true).unwrap();
        fs::write(&cut, &bytes).unwrap();
        reader.print(&cut, true).unwrap();
        assert_eq!(reader.read.last().unwrap().1, bytes.len() as u64);
    }
    /// A file of a Chronicle queue with these records.
    fn queue_file(records: &[Vec<u8>]) -> Vec<u8> {
        let header = b"\xb9\x06header\xb6\x08SCQStore\x82\x0d\0\0\0\xcadataFormat\xa1\x01";
        let mut out = (header.len() as u32 | 0x4000_0000).to_le_bytes().to_vec();
        out.extend_from_slice(header);
        for record in records {
            out.resize(out.len().next_multiple_of(4), 0);
            out.extend_from_slice(&(record.len() as u32).to_le_bytes());
            out.extend_from_slice(record);
        }
        out
    }

    fn audit_record(line: &str) -> Vec<u8> {
        let mut out = b"\xc7version\xa1\x00\xc4type\xe5audit\xc7message\xb8".to_vec();
        out.push(u8::try_from(line.len()).unwrap());
        out.extend_from_slice(line.as_bytes());
        out
    }

    #[test]
    fn files_of_a_real_cassandra_are_read_beside_ours() {
        let directory = tempfile::tempdir().unwrap();
        let write =
            |name: &str, bytes: &[u8]| fs::write(directory.path().join(name), bytes).unwrap();
        let mut ours = AUDIT_LOG.header().to_vec();
        push(&mut ours, "ours");
        write("20261128-13.audit", &ours);
        write("20261128-14.cq4", &queue_file(&[audit_record("a")]));
        write("metadata.cq4t", b"table");
        let path = directory.path().to_str().unwrap().to_owned();
        assert_eq!(main(std::slice::from_ref(&path)), exit::OK);
        let mut reader = LogReader::default();
        reader.print(directory.path(), false).unwrap();
        reader.print_queue(directory.path()).unwrap();
        assert_eq!((reader.read.len(), reader.queues.len(), reader.damaged.len()), (1, 1, 0));
        // A single file, of either kind.
        assert_eq!(main(&[format!("{path}/20261128-14.cq4")]), exit::OK);
        assert_eq!(main(&[format!("{path}/metadata.cq4t")]), exit::DAMAGED);
        // A record of the full query log, or of a later version.
        let other = b"\xc7version\xa1\x00\xc4type\xecsingle-other".to_vec();
        write("20261128-15.cq4", &queue_file(&[other, audit_record("b")]));
        let mut reader = LogReader::default();
        let (code, message) = reader.print_queue(directory.path()).unwrap_err();
        assert_eq!(code, exit::DAMAGED);
        let expect = "20261128-15.cq4: Unsupported record type field [single-other] - supported type is [audit]";
        assert!(message.ends_with(expect), "{message}");
        assert_eq!(main(&["-i".to_owned(), path.clone()]), exit::OK);
        // Damage is reported, the next file is read.
        write("20261128-12.cq4", b"\xff\0\0\0damaged");
        let mut reader = LogReader { ignore: true, ..LogReader::default() };
        reader.print_queue(directory.path()).unwrap();
        let (file, reason) = reader.damaged.first().unwrap();
        assert!(file.ends_with("20261128-12.cq4"));
        assert!(reason.starts_with("not a file of a Chronicle queue"), "{reason}");
        assert_eq!(main(&["-i".to_owned(), path]), exit::DAMAGED);
    }
}
