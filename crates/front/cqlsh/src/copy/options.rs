//! Options of COPY.
//!
//! Owns: their names, defaults, sources (command, then `cqlshrc` or CONFIGFILE) and checks. Never:
//! their effects. An option without an effect is refused.

use std::time::Duration;

use crate::config::Config;
use crate::copy::csv::Dialect;
use crate::failure::python_repr;
use crate::options::Options as ShellOptions;
use crate::time;

/// From or to files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    From,
    To,
}

impl Direction {
    /// The keyword.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Direction::From => "FROM",
            Direction::To => "TO",
        }
    }
}

/// All options, checked.
#[derive(Clone, Debug)]
pub(crate) struct CopyOptions {
    pub(crate) dialect: Dialect,
    pub(crate) null: String,
    pub(crate) header: bool,
    pub(crate) timestamp_format: String,
    pub(crate) attempts_max: u32,
    pub(crate) report_every: Duration,
    pub(crate) decimal_separator: String,
    pub(crate) thousands_separator: String,
    pub(crate) booleans: (String, String),
    pub(crate) workers: usize,
    pub(crate) rate_file: Option<String>,
    // COPY FROM
    pub(crate) chunk_rows: usize,
    /// Rows per second; `None`: unlimited.
    pub(crate) ingest_rate: Option<u64>,
    pub(crate) batch_rows_min: usize,
    pub(crate) batch_rows_max: usize,
    pub(crate) rows_max: Option<u64>,
    pub(crate) skip_rows: u64,
    pub(crate) skip_columns: Vec<String>,
    pub(crate) parse_errors_max: Option<u64>,
    pub(crate) insert_errors_max: Option<u64>,
    pub(crate) error_file: String,
    pub(crate) ttl: Option<u32>,
    /// Rows are bound to a prepared statement; otherwise their fields are literals of statements.
    pub(crate) prepared_statements: bool,
    /// Requests in flight per connection.
    pub(crate) in_flight_max: usize,
    /// Pauses that a batch is given when the server has too much to do, before that is an attempt.
    pub(crate) backoff_max: u32,
    pub(crate) request_timeout: Duration,
    /// Chunks that wait for a worker, per worker.
    pub(crate) chunks_waiting: usize,
    /// COPY FROM ends when nothing is heard of the workers for so long; `None`: it waits. A low INGESTRATE
    /// is silent between two chunks.
    pub(crate) silence_max: Option<Duration>,
    // COPY TO
    pub(crate) page_rows: i32,
    pub(crate) page_timeout: Duration,
    pub(crate) begin_token: Option<i64>,
    pub(crate) end_token: Option<i64>,
    pub(crate) output_rows_max: Option<u64>,
    /// Token ranges that a worker reads at the same time.
    pub(crate) ranges_at_once: usize,
    pub(crate) float_precision: i32,
    pub(crate) double_precision: i32,
    /// Names that are no options of this direction.
    pub(crate) unrecognized: Vec<String>,
}

/// Lines that COPY prints before it begins.
pub(crate) type Lines = Vec<String>;

struct Given(Vec<(String, String)>);

impl Given {
    fn take(&mut self, name: &str) -> Option<String> {
        let mut found = None;
        self.0.retain(|(known, value)| {
            let same = known == name;
            if same {
                found = Some(value.clone());
            }
            !same
        });
        found
    }

    fn number<T: std::str::FromStr>(&mut self, name: &str, default: T) -> Result<T, String> {
        match self.take(name) {
            None => Ok(default),
            Some(text) => text.trim().parse().map_err(|_| {
                format!("{}: {} is no number", name.to_uppercase(), python_repr(&text))
            }),
        }
    }

    /// A number where -1 stands for no limit.
    fn limit(&mut self, name: &str, default: i64) -> Result<Option<u64>, String> {
        Ok(u64::try_from(self.number(name, default)?).ok())
    }

    fn positive(&mut self, name: &str, default: usize) -> Result<usize, String> {
        match self.number(name, default)? {
            0 => Err(format!("{}: must be at least 1", name.to_uppercase())),
            number => Ok(number),
        }
    }

    fn sign(&mut self, name: &str, default: u8) -> Result<u8, String> {
        match self.take(name) {
            None => Ok(default),
            Some(text) => match text.as_bytes() {
                [sign] => Ok(*sign),
                _ => Err(format!("\"{name}\" must be a 1-character string")),
            },
        }
    }

    fn switch(&mut self, name: &str, default: bool) -> bool {
        self.take(name).map_or(default, |text| text.eq_ignore_ascii_case("true"))
    }
}

/// Options from the sections of the file that are for this table, then those of the command.
fn merge(
    direction: Direction,
    table: &str,
    mut command: Vec<(String, String)>,
    shell: &ShellOptions,
    said: &mut Lines,
) -> Result<Vec<(String, String)>, String> {
    let file = command.iter().rposition(|(name, _)| name == "configfile");
    let file = file.map(|at| command.remove(at).1).filter(|path| !path.is_empty());
    let (config, path) = match &file {
        None => (shell.config.clone(), shell.config_path.display().to_string()),
        Some(path) => {
            let path = crate::home::expand_home(path);
            let text = std::fs::read_to_string(&path)
                .map_err(|error| format!("CONFIGFILE {path}: {error}"))?;
            (Config::parse(&text).map_err(|error| format!("CONFIGFILE {path}: {error}"))?, path)
        }
    };
    let way = direction.name().to_lowercase();
    let mut all: Vec<(String, String)> = Vec::new();
    for section in [
        "copy".to_owned(),
        format!("copy-{way}"),
        format!("copy:{table}"),
        format!("copy-{way}:{table}"),
    ] {
        if config.has(&section) {
            let options = config.section(&section);
            said.push(format!("Reading options from {path}:[{section}]: {}", python_dict(options)));
            all.extend(options.iter().cloned());
        }
    }
    if !command.is_empty() && !all.is_empty() {
        said.push(format!("Reading options from the command line: {}", python_dict(&command)));
    }
    all.extend(command);
    Ok(all)
}

fn python_dict(options: &[(String, String)]) -> String {
    let entries: Vec<String> = options
        .iter()
        .map(|(name, value)| format!("{}: {}", python_repr(name), python_repr(value)))
        .collect();
    format!("{{{}}}", entries.join(", "))
}

/// The words for true and false.
fn boolean_words(style: Option<String>) -> Result<(String, String), String> {
    let style = style.unwrap_or_else(|| "True, False".to_owned());
    let words: Vec<String> = style.split(',').map(|word| word.trim().to_owned()).collect();
    match words.as_slice() {
        [yes, no] if yes != no && !yes.is_empty() && !no.is_empty() => {
            Ok((yes.clone(), no.clone()))
        }
        _ => {
            let words: Vec<String> = words.iter().map(|word| python_repr(word)).collect();
            Err(format!("Invalid boolean styles [{}]", words.join(", ")))
        }
    }
}

/// How times are written; COPY FROM must be able to read them.
fn timestamp_format(
    direction: Direction,
    given: Option<String>,
    shell: &ShellOptions,
) -> Result<String, String> {
    let format = given.unwrap_or_else(|| shell.time_format.clone());
    if direction == Direction::From && !time::can_parse(&format) {
        let text = python_repr(&format);
        return Err(format!("DATETIMEFORMAT: {text} has directives that cannot be read"));
    }
    Ok(format)
}

impl CopyOptions {
    /// Checks the options of a command for the table `keyspace.table`.
    ///
    /// # Errors
    /// The error, with its option.
    pub(crate) fn read(
        direction: Direction,
        keyspace: &str,
        table: &str,
        command: Vec<(String, String)>,
        shell: &ShellOptions,
        said: &mut Lines,
    ) -> Result<CopyOptions, String> {
        let all = merge(direction, &format!("{keyspace}.{table}"), command, shell, said)?;
        let mut given = Given(all);
        let quote = given.sign("quote", b'"')?;
        let escape = given.sign("escape", b'\\')?;
        let dialect = Dialect {
            delimiter: given.sign("delimiter", b',')?,
            quote,
            escape: (escape != quote).then_some(escape),
        };
        let booleans = boolean_words(given.take("boolstyle"))?;
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let report: f64 = given.number("reportfrequency", 0.25)?;
        let timestamp_format = timestamp_format(direction, given.take("datetimeformat"), shell)?;
        let mut options = CopyOptions {
            dialect,
            null: given.take("null").unwrap_or_default(),
            header: given.switch("header", false),
            timestamp_format,
            attempts_max: given.number("maxattempts", 5)?,
            report_every: Duration::try_from_secs_f64(report)
                .map_err(|_| format!("REPORTFREQUENCY: {report} is no duration"))?,
            decimal_separator: given.take("decimalsep").unwrap_or_else(|| ".".to_owned()),
            thousands_separator: given.take("thousandssep").unwrap_or_default(),
            booleans,
            workers: given.positive("numprocesses", cores.saturating_sub(1).clamp(1, 16))?,
            rate_file: given.take("ratefile").filter(|path| !path.is_empty()),
            chunk_rows: 5000,
            ingest_rate: None,
            batch_rows_min: 10,
            batch_rows_max: 20,
            rows_max: None,
            skip_rows: 0,
            skip_columns: Vec::new(),
            parse_errors_max: None,
            insert_errors_max: Some(1000),
            error_file: format!("import_{keyspace}_{table}.err"),
            ttl: None,
            prepared_statements: true,
            in_flight_max: 512,
            backoff_max: 12,
            request_timeout: Duration::from_secs(60),
            chunks_waiting: 4,
            silence_max: None,
            page_rows: 1000,
            page_timeout: Duration::from_secs(10),
            begin_token: None,
            end_token: None,
            output_rows_max: None,
            ranges_at_once: 6,
            float_precision: 5,
            double_precision: 12,
            unrecognized: Vec::new(),
        };
        match direction {
            Direction::From => options.read_from(&mut given)?,
            Direction::To => options.read_to(&mut given)?,
        }
        options.unrecognized = given.0.into_iter().map(|(name, _)| name).collect();
        Ok(options)
    }

    fn read_from(&mut self, given: &mut Given) -> Result<(), String> {
        self.chunk_rows = given.positive("chunksize", self.chunk_rows)?;
        self.ingest_rate = match given.positive("ingestrate", usize::MAX)? {
            usize::MAX => None,
            rate => u64::try_from(rate).ok(),
        };
        self.batch_rows_max = given.positive("maxbatchsize", self.batch_rows_max)?.min(65_535);
        self.batch_rows_min = given.number("minbatchsize", self.batch_rows_min)?;
        self.rows_max = given.limit("maxrows", -1)?;
        self.skip_rows = given.number("skiprows", 0)?;
        let columns = given.take("skipcols").unwrap_or_default();
        self.skip_columns = columns.split(',').map(|name| name.trim().to_owned()).collect();
        self.parse_errors_max = given.limit("maxparseerrors", -1)?;
        self.insert_errors_max = given.limit("maxinserterrors", 1000)?;
        if let Some(path) = given.take("errfile").filter(|path| !path.is_empty()) {
            self.error_file = crate::home::expand_home(&path);
        }
        self.prepared_statements = given.switch("preparedstatements", true);
        self.ttl = given.limit("ttl", -1)?.and_then(|seconds| u32::try_from(seconds).ok());
        self.in_flight_max = given.positive("maxinflightmessages", self.in_flight_max)?.min(32_000);
        self.backoff_max = given.number("maxbackoffattempts", self.backoff_max)?;
        let seconds: u64 = given.number("requesttimeout", 60)?;
        self.request_timeout = Duration::from_secs(seconds);
        self.chunks_waiting = given.positive("maxpendingchunks", self.chunks_waiting)?.min(1024);
        self.silence_max = match given.positive("childtimeout", usize::MAX)? {
            usize::MAX => None,
            seconds => u64::try_from(seconds).ok().map(Duration::from_secs),
        };
        Ok(())
    }

    fn read_to(&mut self, given: &mut Given) -> Result<(), String> {
        if let Some(name) = given.take("encoding")
            && !["utf8", "utf-8"].iter().any(|known| name.eq_ignore_ascii_case(known))
        {
            return Err(format!("ENCODING={name}: only utf8 is supported"));
        }
        self.page_rows = given.number("pagesize", self.page_rows)?;
        if self.page_rows < 1 {
            return Err("PAGESIZE: must be at least 1".to_owned());
        }
        let seconds = (i64::from(self.page_rows) / 100).max(10);
        let seconds: u64 = given.number("pagetimeout", u64::try_from(seconds).unwrap_or(10))?;
        self.page_timeout = Duration::from_secs(seconds);
        let mut token = |name: &str| -> Result<Option<i64>, String> {
            match given.take(name).filter(|text| !text.is_empty()) {
                None => Ok(None),
                Some(text) => text.parse().map(Some).map_err(|_| {
                    format!("{}: {} is no token", name.to_uppercase(), python_repr(&text))
                }),
            }
        };
        self.begin_token = token("begintoken")?;
        self.end_token = token("endtoken")?;
        self.output_rows_max = given.limit("maxoutputsize", -1)?.filter(|rows| *rows > 0);
        self.ranges_at_once = given.positive("maxrequests", self.ranges_at_once)?.min(1024);
        self.float_precision = given.number("floatprecision", self.float_precision)?;
        self.double_precision = given.number("doubleprecision", self.double_precision)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{Asked, Environment, read};

    fn shell(cqlshrc: &'static str) -> ShellOptions {
        let environment = Environment {
            variable: &|_| None,
            read: &|path| path.ends_with("cqlshrc").then(|| cqlshrc.to_owned()),
            is_open_to_others: &|_| false,
            stdin_is_terminal: false,
        };
        match read(&[], &environment) {
            Ok(Asked::Run(options)) => *options,
            other => panic!("{other:?}"),
        }
    }

    fn check(direction: Direction, command: &[(&str, &str)]) -> Result<CopyOptions, String> {
        let file = "[copy]\nheader = true\nnull = F\n[copy-to:ks.t]\npagesize = 7\n[copy:ks.u]\nnull = U\n";
        let command =
            command.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        CopyOptions::read(direction, "ks", "t", command, &shell(file), &mut Vec::new())
    }

    #[test]
    fn the_command_wins_over_the_sections_of_the_table() {
        let options = check(Direction::To, &[("null", "C"), ("maxoutputsize", "-1")]).unwrap();
        assert_eq!((options.header, options.null.as_str(), options.page_rows), (true, "C", 7));
        assert_eq!(options.output_rows_max, None);
        let options = check(Direction::From, &[("escape", "\""), ("ttl", "60")]).unwrap();
        assert_eq!(
            (options.null.as_str(), options.dialect.escape, options.ttl),
            ("F", None, Some(60))
        );
    }

    #[test]
    fn options_that_would_do_nothing_are_named() {
        let options = check(Direction::From, &[("pagesize", "5"), ("chunksize", "9")]).unwrap();
        assert_eq!(options.unrecognized, ["pagesize"]);
        assert_eq!((options.chunks_waiting, options.silence_max), (4, None));
        let given = [("maxpendingchunks", "24"), ("childtimeout", "7")];
        let options = check(Direction::From, &given).unwrap();
        assert_eq!(
            (options.chunks_waiting, options.silence_max),
            (24, Some(Duration::from_secs(7)))
        );
        assert_eq!(options.unrecognized, [""; 0]);
        for (direction, name, value) in [
            (Direction::From, "datetimeformat", "%b"),
            (Direction::From, "maxbatchsize", "0"),
            (Direction::From, "chunksize", "x"),
            (Direction::To, "encoding", "latin1"),
            (Direction::To, "begintoken", "x"),
            (Direction::To, "delimiter", "ab"),
            (Direction::To, "boolstyle", "a,a"),
        ] {
            assert!(check(direction, &[(name, value)]).is_err(), "{name}={value}");
        }
        assert!(check(Direction::To, &[("datetimeformat", "%b")]).is_ok());
    }
}
