//! Values of the commit log: its compressor, and Cassandra's `commitlog_archiving.properties`.
//!
//! Owns: their grammar. Never: opens a file, runs a command.
//! Source: `CommitLogArchiver`, `ParameterizedClass` of Cassandra 5.0.

use crate::options::Options;
use crate::snitch::property;
use crate::value::{Range, Refusal, Value, class_name};
use crate::yaml::{Node, NodeKind};

/// Name of the file with the settings of archiving.
pub const ARCHIVING: &str = "commitlog_archiving.properties";

/// How commit-log segments are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CommitLogCompression {
    /// LZ4.
    Lz4,
    /// Snappy.
    Snappy,
    /// Deflate.
    Deflate,
    /// Zstandard.
    Zstd,
}

impl CommitLogCompression {
    const ALL: [(CommitLogCompression, &'static str); 4] = [
        (CommitLogCompression::Lz4, "LZ4Compressor"),
        (CommitLogCompression::Snappy, "SnappyCompressor"),
        (CommitLogCompression::Deflate, "DeflateCompressor"),
        (CommitLogCompression::Zstd, "ZstdCompressor"),
    ];
}

impl Value for CommitLogCompression {
    fn read(node: &Node, _: Range) -> Result<Self, Refusal> {
        // Cassandra writes a list of one class.
        let class = match &node.kind {
            NodeKind::List(items) => match items.as_slice() {
                [class] => class,
                _ => return Err(Refusal::Form),
            },
            _ => node,
        };
        let has_parameters = class.get("parameters").is_some_and(|parameters| {
            !matches!(&parameters.kind, NodeKind::List(items) if items.is_empty())
                && !parameters.is_null()
        });
        if has_parameters {
            return Err(Refusal::Form);
        }
        let name = class_name(class).ok_or(Refusal::Form)?;
        let found = CommitLogCompression::ALL.iter().find(|(_, class)| *class == name);
        found.map(|(compression, _)| *compression).ok_or(Refusal::Form)
    }
    fn form() -> String {
        let names: Vec<&str> = CommitLogCompression::ALL.iter().map(|(_, name)| *name).collect();
        format!("one of {}, as class_name without parameters", names.join(", "))
    }
    fn render(&self) -> String {
        let found = CommitLogCompression::ALL.iter().find(|(compression, _)| compression == self);
        found.map_or_else(String::new, |(_, name)| (*name).to_owned())
    }
}

/// A moment in GMT, to the second, millisecond or microsecond.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestorePoint {
    text: String,
    /// Microseconds since 1970.
    pub micros: i64,
}

impl RestorePoint {
    /// Reads `2012:04:30 20:43:12`, `2012:04:30 20:43:12.633` or `2012:04:30 20:43:12.633222`. A
    /// day after the end of its month becomes the last one, as in Java's formatter.
    pub fn parse(text: &str) -> Option<RestorePoint> {
        let text = text.trim();
        let (date, time) = text.split_once(' ')?;
        let mut date = date.split(':');
        let year = number(date.next()?, 4)?;
        let month = number(date.next()?, 2).filter(|m| (1..=12).contains(m))?;
        let day = number(date.next()?, 2).filter(|d| (1..=31).contains(d))?;
        let (time, fraction) = time.split_once('.').unwrap_or((time, "000"));
        let mut time = time.split(':');
        let hour = number(time.next()?, 2).filter(|h| *h < 24)?;
        let minute = number(time.next()?, 2).filter(|m| *m < 60)?;
        let second = number(time.next()?, 2).filter(|s| *s < 60)?;
        if date.next().is_some() || time.next().is_some() || year == 0 {
            return None;
        }
        let micros = match fraction.len() {
            3 => number(fraction, 3)? * 1000,
            6 => number(fraction, 6)?,
            _ => return None,
        };
        let days = days_of(year, month, day.min(month_days(year, month)));
        let seconds = days * 86_400 + hour * 3600 + minute * 60 + second;
        Some(RestorePoint { text: text.to_owned(), micros: seconds * 1_000_000 + micros })
    }
}

/// Parses a number of exactly this many digits.
fn number(text: &str, digits: usize) -> Option<i64> {
    let all_digits = text.len() == digits && text.bytes().all(|b| b.is_ascii_digit());
    all_digits.then(|| text.parse().ok())?
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn month_days(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if is_leap(year) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Returns the days since 1970-01-01, in years 1 to 9999.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let before = year - 1;
    let years = before * 365 + before / 4 - before / 100 + before / 400;
    let months: i64 = (1..month).map(|m| month_days(year, m)).sum();
    years + months + day - 1 - 719_162
}

impl Value for RestorePoint {
    fn read(node: &Node, _: Range) -> Result<Self, Refusal> {
        node.text().and_then(RestorePoint::parse).ok_or(Refusal::Form)
    }
    fn form() -> String {
        "a moment in GMT such as 2012:04:30 20:43:12, .633 or .633222 behind it".into()
    }
    fn render(&self) -> String {
        self.text.clone()
    }
}

/// Settings of archiving and of restore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Archiving {
    /// Where finished segments are linked, else copied.
    pub archive_directory: Option<String>,
    /// Directories whose segments are copied into the commit log at start.
    pub restore_directories: Vec<String>,
    /// Mutations with a later timestamp are not replayed, microseconds since 1970.
    pub restore_point: Option<i64>,
    /// Microseconds of one unit of the timestamps that clients write.
    pub unit_micros: i64,
}

impl Default for Archiving {
    fn default() -> Archiving {
        Archiving {
            archive_directory: None,
            restore_directories: Vec::new(),
            restore_point: None,
            unit_micros: 1,
        }
    }
}

impl Archiving {
    /// Reads commitlog_archiving.properties. Commands are not run: the ones of Cassandra's examples
    /// (`ln` and `cp` of one file) are recognised and done without a process, others are rejected.
    ///
    /// # Errors
    /// An unsupported command or a wrong value, as text that follows the file's name; in
    /// Cassandra's words where it has them.
    pub fn parse(text: &str) -> Result<Archiving, String> {
        let find = |wanted: &str| {
            let values = text.lines().filter_map(property).filter(|(name, _)| *name == wanted);
            // The last one wins, as in Java.
            values.map(|(_, value)| value).next_back().filter(|value| !value.is_empty())
        };
        let mut archiving = Archiving::default();
        if let Some(command) = find("archive_command") {
            let directory = copied(command, "%path").and_then(|to| to.strip_suffix("/%name"));
            let directory = directory.filter(|d| !d.is_empty() && !d.contains('%'));
            archiving.archive_directory =
                Some(directory.ok_or_else(|| refused("archive_command", command))?.to_owned());
        }
        if let Some(directories) = find("restore_directories") {
            let all = directories.split(',').map(str::trim).filter(|d| !d.is_empty());
            archiving.restore_directories = all.map(str::to_owned).collect();
            if let Some(command) = find("restore_command")
                && copied(command, "%from") != Some("%to")
            {
                return Err(refused("restore_command", command));
            }
        }
        if let Some(time) = find("restore_point_in_time") {
            let point = RestorePoint::parse(time);
            let point =
                point.ok_or_else(|| format!("Unable to parse restore target time: {time}"))?;
            archiving.restore_point = Some(point.micros);
        }
        if find("snapshot_commitlog_position").is_some() {
            return Err(
                "sets \"snapshot_commitlog_position\", which is not there: each shard has a \
                        commit log of its own"
                    .to_owned(),
            );
        }
        if let Some(precision) = find("precision") {
            archiving.unit_micros = unit_micros(precision)?;
        }
        Ok(archiving)
    }

    /// Applies the settings of the same meaning; they take precedence over the file.
    #[must_use]
    pub fn with_settings(mut self, options: &Options) -> Archiving {
        if let Some(directory) = &options.commitlog_archive_directory {
            self.archive_directory = Some(directory.clone());
        }
        if !options.commitlog_restore_directories.is_empty() {
            self.restore_directories.clone_from(&options.commitlog_restore_directories);
        }
        if let Some(point) = &options.commitlog_restore_point_in_time {
            self.restore_point = Some(point.micros);
        }
        self
    }
}

/// Returns the target of `cp` or `ln` of the one file `from`, if the command does nothing else.
fn copied<'a>(command: &'a str, from: &str) -> Option<&'a str> {
    let mut words = command.split(' ').filter(|word| !word.is_empty()).peekable();
    let program = words.next()?;
    let options: &[&str] = match program.rsplit('/').next()? {
        "cp" => &["-f", "-p", "-a", "-n"],
        "ln" => &["-f"],
        _ => return None,
    };
    while words.next_if(|word| options.contains(word)).is_some() {}
    (words.next()? == from).then_some(())?;
    let to = words.next()?;
    words.next().is_none().then_some(to)
}

fn refused(name: &str, command: &str) -> String {
    let example = match name {
        "archive_command" => "/bin/ln %path /backup/%name",
        _ => "/bin/cp -f %from %to",
    };
    format!(
        "has the {name} \"{command}\"; commands are not run here, only cp and ln of one file are \
         done, such as {example}"
    )
}

/// Returns the microseconds of one of Java's time units.
fn unit_micros(unit: &str) -> Result<i64, String> {
    Ok(match unit {
        "MICROSECONDS" => 1,
        "MILLISECONDS" => 1000,
        "SECONDS" => 1_000_000,
        "MINUTES" => 60_000_000,
        "HOURS" => 3_600_000_000,
        "DAYS" => 86_400_000_000,
        "NANOSECONDS" => return Err("NANOSECONDS level precision is not supported.".to_owned()),
        _ => return Err(format!("Unable to parse precision of value {unit}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml::parse;

    #[test]
    fn a_compressor_is_read_as_cassandra_writes_it_and_never_half() {
        let read = |text| CommitLogCompression::read(&parse(text).unwrap(), Range::ALL);
        for (text, expect) in [
            ("[{class_name: LZ4Compressor}]", CommitLogCompression::Lz4),
            ("- class_name: SnappyCompressor\n  parameters:\n", CommitLogCompression::Snappy),
            ("{class_name: DeflateCompressor, parameters: []}", CommitLogCompression::Deflate),
            ("ZstdCompressor", CommitLogCompression::Zstd),
            (
                "[{class_name: org.apache.cassandra.io.compress.ZstdCompressor}]",
                CommitLogCompression::Zstd,
            ),
        ] {
            assert_eq!(read(text), Ok(expect), "{text}");
            let again = Node::scalar(expect.render());
            assert_eq!(CommitLogCompression::read(&again, Range::ALL), Ok(expect));
        }
        for text in [
            "[]",
            "[{class_name: NoopCompressor}]",
            "[LZ4Compressor, SnappyCompressor]",
            "[{class_name: LZ4Compressor, parameters: [{lz4_compressor_type: fast}]}]",
            "{parameters: []}",
        ] {
            assert_eq!(read(text), Err(Refusal::Form), "{text}");
        }
    }

    #[test]
    fn moments_have_three_precisions() {
        for (text, micros) in [
            ("1970:01:01 00:00:00", 0),
            ("2012:04:30 20:43:12", 1_335_818_592_000_000),
            ("2012:04:31 20:43:12", 1_335_818_592_000_000),
            ("2012:04:30 20:43:12.633", 1_335_818_592_633_000),
            ("2012:04:30 20:43:12.633222", 1_335_818_592_633_222),
            ("2000:02:29 23:59:59", 951_868_799_000_000),
            ("1969:12:31 23:59:59.999999", -1),
        ] {
            assert_eq!(RestorePoint::parse(text).map(|p| p.micros), Some(micros), "{text}");
        }
        for text in [
            "",
            "2012:04:30",
            "2012-04-30 20:43:12",
            "2012:13:01 00:00:00",
            "2012:04:32 00:00:00",
            "2012:04:30 24:00:00",
            "2012:04:30 20:60:12",
            "2012:04:30 20:43:12.6",
            "2012:04:30 20:43:12.6332222",
            "2012:4:30 20:43:12",
            "0000:04:30 20:43:12",
        ] {
            assert_eq!(RestorePoint::parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_file_with_cassandras_examples_is_understood() {
        assert_eq!(
            Archiving::parse("# nothing\narchive_command=\nprecision=MICROSECONDS\n"),
            Ok(Archiving::default())
        );
        let text = "archive_command=/bin/ln %path /backup/%name\n\
                    restore_command=/bin/cp -f %from %to\n\
                    restore_directories=/backup, /more\n\
                    restore_point_in_time=1970:01:01 00:00:01\n\
                    precision=MILLISECONDS\n";
        let expect = Archiving {
            archive_directory: Some("/backup".to_owned()),
            restore_directories: vec!["/backup".to_owned(), "/more".to_owned()],
            restore_point: Some(1_000_000),
            unit_micros: 1000,
        };
        assert_eq!(Archiving::parse(text), Ok(expect.clone()));
        // Settings take precedence.
        let options = Options {
            commitlog_archive_directory: Some("/other".to_owned()),
            commitlog_restore_point_in_time: RestorePoint::parse("1970:01:01 00:00:02"),
            ..Options::default()
        };
        let both = expect.with_settings(&options);
        assert_eq!(both.archive_directory.as_deref(), Some("/other"));
        assert_eq!((both.restore_point, both.restore_directories.len()), (Some(2_000_000), 2));
    }

    #[test]
    fn what_is_not_done_is_refused_by_name() {
        for (text, part) in [
            ("archive_command=/usr/bin/archive.sh %path", "archive_command \"/usr/bin/archive.sh"),
            ("archive_command=/bin/ln -s %path /backup/%name", "archive_command"),
            ("archive_command=/bin/cp %path /backup/%name.old", "archive_command"),
            ("archive_command=/bin/cp %path /b%name/%name", "archive_command"),
            ("archive_command=/bin/cp %path /backup/%name && true", "archive_command"),
            ("restore_directories=/b\nrestore_command=gunzip %from", "restore_command"),
            ("restore_point_in_time=yesterday", "Unable to parse restore target time"),
            ("snapshot_commitlog_position=1, 2", "snapshot_commitlog_position"),
            ("precision=NANOSECONDS", "NANOSECONDS level precision is not supported."),
            ("precision=FORTNIGHTS", "Unable to parse precision of value FORTNIGHTS"),
        ] {
            let error = Archiving::parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
