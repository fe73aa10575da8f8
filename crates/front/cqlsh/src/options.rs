//! The command line, `cqlshrc`, the credentials file and the environment, combined.
//!
//! Owns: names of options, precedence of sources (command line, environment, file, default),
//! refusals of options that this shell does not support. Never: connects.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cql_wire::ProtocolVersion;

use crate::config::Config;
use crate::failure::python_repr as repr;
use crate::interrupt::Interrupt;
use crate::time;
use crate::tls::Tls;

/// The version of Cassandra's cqlsh that this shell behaves like.
pub(crate) const VERSION: &str = "6.2.0";

/// The text of `--help`.
pub(crate) const HELP: &str = "\
Usage: helenus cqlsh [options] [host [port]]

CQL shell

options:
  -h, --help            show this help message and exit
  -v, --version         show the version and exit
  -C, --color           Always use color output
  --no-color            Never use color output
  --ssl                 Use SSL
  -u, --username NAME   Authenticate as user.
  -p, --password TEXT   Authenticate using password.
  -k, --keyspace NAME   Use the given keyspace.
  -f, --file FILE       Execute commands from FILE, then exit
  -e, --execute TEXT    Execute the statement and quit.
  --json                Print rows as JSON objects, one per line
  --browser BROWSER     Program that shows the page of a HELP topic; %s in it is the address
  --debug               Show additional debugging information
  --encoding NAME       Encoding of output; only utf-8
  --cqlshrc FILE        Specify an alternative cqlshrc file location.
  --credentials FILE    Specify an alternative credentials file location.
  --cqlversion VERSION  CQL version to ask for
  --protocol-version N  Protocol version to speak: 3, 4 or 5
  --connect-timeout N   Connection timeout in seconds (default: 5)
  --request-timeout N   Request timeout in seconds (default: 10)
  -t, --tty             Force tty mode (command prompt).
  --disable-history     Do not save history

Connects to 127.0.0.1:9042 by default. These defaults can be changed by setting
$CQLSH_HOST and/or $CQLSH_PORT. When a host (and optional port number) are given
on the command line, they take precedence over any defaults.
";

/// Everything that is known before the first connection.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) username: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) keyspace: Option<String>,
    pub(crate) file: Option<String>,
    pub(crate) execute: Option<String>,
    /// `None`: when standard output is a terminal.
    pub(crate) color: Option<bool>,
    pub(crate) tty: bool,
    pub(crate) json: bool,
    pub(crate) debug: bool,
    /// Program that shows the page of a topic of HELP.
    pub(crate) browser: Option<String>,
    pub(crate) history: bool,
    pub(crate) version: Option<ProtocolVersion>,
    /// The CQL version to ask for.
    pub(crate) cql_version: Option<String>,
    /// `None`: in the clear.
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) connect_timeout: Duration,
    pub(crate) request_timeout: Duration,
    pub(crate) trace_wait: Duration,
    pub(crate) time_format: String,
    pub(crate) zone: time::Zone,
    /// Set while a user at a terminal may press Ctrl-C.
    pub(crate) interrupt: Interrupt,
    pub(crate) float_precision: i32,
    pub(crate) double_precision: i32,
    pub(crate) field_size_limit: usize,
    pub(crate) config: Config,
    pub(crate) config_path: PathBuf,
    /// Lines for standard error before anything else.
    pub(crate) notices: Vec<String>,
    /// Lines for standard output before anything else, where cqlsh prints them.
    pub(crate) remarks: Vec<String>,
}

/// Action that the command line asks for.
#[derive(Debug)]
pub(crate) enum Asked {
    /// Run with these.
    Run(Box<Options>),
    /// Print this and end well.
    Print(String),
}

/// Environment of the process.
pub(crate) struct Environment<'e> {
    /// A variable.
    pub(crate) variable: &'e dyn Fn(&str) -> Option<String>,
    /// The text of a file.
    pub(crate) read: &'e dyn Fn(&Path) -> Option<String>,
    /// Others may read the file.
    pub(crate) is_open_to_others: &'e dyn Fn(&Path) -> bool,
    /// Standard input is a terminal.
    pub(crate) stdin_is_terminal: bool,
}

#[derive(Default)]
struct Line {
    values: Vec<(&'static str, String)>,
    positional: Vec<String>,
}

impl Line {
    fn get(&self, name: &str) -> Option<&str> {
        self.values.iter().rev().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }
}

/// An option of the command line: long name, short name, true if it takes a value.
type Known = (&'static str, &'static str, bool);

/// In the order of cqlsh, which is that of its error texts.
const KNOWN: &[Known] = &[
    ("help", "h", false),
    ("version", "v", false),
    ("color", "C", false),
    ("no-color", "", false),
    ("browser", "", true),
    ("ssl", "", false),
    ("username", "u", true),
    ("password", "p", true),
    ("keyspace", "k", true),
    ("file", "f", true),
    ("debug", "", false),
    ("coverage", "", false),
    ("encoding", "", true),
    ("cqlshrc", "", true),
    ("credentials", "", true),
    ("cqlversion", "", true),
    ("protocol-version", "", true),
    ("execute", "e", true),
    ("connect-timeout", "", true),
    ("request-timeout", "", true),
    ("tty", "t", false),
    ("disable-history", "", false),
    ("insecure-password-without-warning", "", false),
    ("json", "", false),
];

/// Kind of an argument, as Python's argparse sees it.
enum Argument {
    /// A place, or the value of the option before it.
    Value,
    /// An option with the text after its `=`, or after its letter.
    Option(&'static Known, Option<String>),
}

/// How argparse names an option in its errors.
fn display((long, short, _): &Known) -> String {
    if short.is_empty() { format!("--{long}") } else { format!("-{short}/--{long}") }
}

fn classify(argument: &str) -> Result<Argument, String> {
    let Some(name) = argument.strip_prefix('-').filter(|name| !name.is_empty()) else {
        return Ok(Argument::Value);
    };
    let (head, tail) = match argument.split_once('=') {
        Some((head, tail)) => (head, Some(tail.to_owned())),
        None => (argument, None),
    };
    if let Some(known) = KNOWN.iter().find(|(long, short, _)| {
        head.strip_prefix("--") == Some(*long)
            || !short.is_empty() && head.strip_prefix('-') == Some(*short)
    }) {
        return Ok(Argument::Option(known, tail));
    }
    if let Some(prefix) = head.strip_prefix("--") {
        let mut matching = KNOWN.iter().filter(|(long, ..)| long.starts_with(prefix));
        if let (false, Some(known)) = (prefix.is_empty(), matching.next()) {
            let others: Vec<String> = matching.map(|(long, ..)| format!(", --{long}")).collect();
            return match others.is_empty() {
                true => Ok(Argument::Option(known, tail)),
                false => Err(format!(
                    "ambiguous option: {argument} could match --{}{}",
                    known.0,
                    others.concat()
                )),
            };
        }
    } else if let Some(known) =
        KNOWN.iter().find(|(_, short, _)| !short.is_empty() && name.starts_with(*short))
    {
        return Ok(Argument::Option(known, name.get(1..).map(str::to_owned)));
    }
    let is_number = name.parse::<f64>().is_ok() && name.starts_with(|c: char| c.is_ascii_digit());
    match is_number || argument.contains(' ') {
        true => Ok(Argument::Value),
        false => Err(format!("unrecognized arguments: {argument}")),
    }
}

fn parse_line(arguments: &[String]) -> Result<Line, String> {
    let mut line = Line::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if argument == "--" {
            line.positional.extend(rest.by_ref().cloned());
            break;
        }
        let (mut known, mut inline) = match classify(argument)? {
            Argument::Value => {
                line.positional.push(argument.clone());
                continue;
            }
            Argument::Option(known, inline) => (known, inline),
        };
        // Letters of options without values may stand together.
        while !known.2 {
            line.values.push((known.0, String::new()));
            let Some(text) = inline.take() else { break };
            let ignored = || {
                format!("argument {}: ignored explicit argument {}", display(known), repr(&text))
            };
            if argument.starts_with("--") {
                return Err(ignored());
            }
            let mut letters = text.chars();
            let letter = letters.next().map(String::from);
            let next = KNOWN.iter().find(|(_, short, _)| Some(*short) == letter.as_deref());
            known = next.ok_or_else(ignored)?;
            inline = Some(letters.as_str().to_owned()).filter(|text| !text.is_empty());
            if inline.is_none() && !known.2 {
                line.values.push((known.0, String::new()));
                break;
            }
        }
        if known.2 {
            let value = match inline {
                Some(value) => Some(value),
                None => match rest.clone().next() {
                    Some(next) if matches!(classify(next), Ok(Argument::Value)) => {
                        rest.next().cloned()
                    }
                    _ => None,
                },
            };
            let missing = || format!("argument {}: expected one argument", display(known));
            line.values.push((known.0, value.ok_or_else(missing)?));
        }
    }
    Ok(line)
}

/// A wrong command line in the words of argparse.
fn usage(text: &str) -> String {
    format!("usage: Usage: cqlsh [options] [host [port]]\ncqlsh: error: {text}")
}

fn expand_home(path: &str, environment: &Environment<'_>) -> PathBuf {
    match (path.strip_prefix("~/"), (environment.variable)("HOME")) {
        (Some(rest), Some(home)) => Path::new(&home).join(rest),
        _ => PathBuf::from(path),
    }
}

fn seconds(text: &str, what: &str) -> Result<Duration, String> {
    text.parse::<u64>()
        .map(Duration::from_secs)
        .map_err(|_| format!("\"{text}\" is not a valid {what} timeout."))
}

/// Puts the sources together.
///
/// # Errors
/// A usage error, in words.
pub(crate) fn read(arguments: &[String], environment: &Environment<'_>) -> Result<Asked, String> {
    let line = parse_line(arguments).map_err(|error| usage(&error))?;
    if line.has("help") {
        return Ok(Asked::Print(HELP.to_owned()));
    }
    if line.has("version") {
        return Ok(Asked::Print(format!("cqlsh {VERSION}\n")));
    }
    let mut notices = Vec::new();
    let mut remarks = Vec::new();
    let default_path = expand_home("~/.cassandra/cqlshrc", environment);
    let mut config_path = default_path.clone();
    if let Some(path) = line.get("cqlshrc") {
        config_path = expand_home(path, environment);
        if (environment.read)(&config_path).is_none() {
            remarks.push(format!(
                "\nWarning: Specified cqlshrc location `{}` does not exist.  Using `{}` instead.\n",
                config_path.display(),
                default_path.display()
            ));
            config_path = default_path;
        }
    }
    let config = match (environment.read)(&config_path) {
        Some(text) => Config::parse(&text).map_err(|error| wrong(&config_path, &error))?,
        None => Config::default(),
    };
    refuse(&line, &config).map_err(|error| usage(&error))?;
    let (username, password) =
        credentials(&line, &config, &config_path, environment, &mut notices)?;
    let variable = |name: &str| (environment.variable)(name).filter(|value| !value.is_empty());
    let option = |name: &str| line.get(name).map(str::to_owned);
    let host = line.positional.first().cloned().or_else(|| variable("CQLSH_HOST"));
    let host = host
        .or_else(|| config.get("connection", "hostname").map(str::to_owned))
        .unwrap_or_else(|| "127.0.0.1".to_owned());
    let port = line.positional.get(1).cloned().or_else(|| variable("CQLSH_PORT"));
    let port = port
        .or_else(|| config.get("connection", "port").map(str::to_owned))
        .unwrap_or_else(|| "9042".to_owned());
    if let Some(extra) = line.positional.get(2) {
        return Err(usage(&format!("unrecognized arguments: {extra}")));
    }
    let in_file = |error: String| wrong(&config_path, &error);
    let timeout = |name: &str, setting: &str, what: &str, default: u64| match line.get(name) {
        Some(text) => seconds(text, what).map_err(|error| usage(&error)),
        None => config
            .number("connection", setting)
            .map(|seconds| Duration::from_secs(seconds.unwrap_or(default)))
            .map_err(in_file),
    };
    let file = option("file");
    let execute = option("execute").filter(|text| !text.is_empty()).map(|text| ended(&text));
    let color = line.values.iter().rev().find(|(name, _)| name.ends_with("color"));
    let color = match color {
        Some((name, _)) => Some(*name == "color"),
        None => config.switch("ui", "color").map_err(in_file)?.or(file.is_some().then_some(false)),
    };
    let tty = match config.switch("ui", "tty").map_err(in_file)? {
        _ if file.is_some() || execute.is_some() => false,
        _ if line.has("tty") => true,
        Some(tty) => tty,
        None => environment.stdin_is_terminal,
    };
    let ssl =
        line.has("ssl") || config.switch("connection", "ssl").map_err(in_file)?.unwrap_or(false);
    let tls = ssl.then(|| Arc::new(Tls::read(&config, &config_path, environment.variable)));
    let trace_wait: f64 =
        config.number("tracing", "max_trace_wait").map_err(in_file)?.unwrap_or(10.0);
    Ok(Asked::Run(Box::new(Options {
        host,
        port: port
            .trim()
            .parse()
            .map_err(|_| usage(&format!("{} is not a valid port number.", repr(&port))))?,
        username,
        password,
        keyspace: option("keyspace")
            .or_else(|| config.get("authentication", "keyspace").map(str::to_owned)),
        file,
        execute,
        color,
        tty,
        json: line.has("json"),
        debug: line.has("debug"),
        browser: option("browser")
            .or_else(|| config.get("ui", "browser").map(str::to_owned))
            .filter(|browser| !browser.is_empty()),
        history: !(line.has("disable-history")
            || config.switch("history", "disabled").map_err(in_file)?.unwrap_or(false)),
        version: protocol_version(&line, &config).map_err(|error| usage(&error))?,
        cql_version: line
            .get("cqlversion")
            .or_else(|| config.get("cql", "version"))
            .map(full_version),
        tls,
        connect_timeout: timeout("connect-timeout", "timeout", "connect", 5)?,
        request_timeout: timeout("request-timeout", "request_timeout", "request", 10)?,
        trace_wait: Duration::try_from_secs_f64(trace_wait).map_err(|_| {
            in_file(format!("[tracing] max_trace_wait: {trace_wait} is no duration"))
        })?,
        time_format: config
            .get("ui", "time_format")
            .map(str::to_owned)
            .or_else(|| variable("CQLSH_DEFAULT_TIMESTAMP_FORMAT"))
            .unwrap_or_else(|| time::DEFAULT_FORMAT.to_owned()),
        zone: zone(&config, environment, &mut notices),
        interrupt: Interrupt::default(),
        float_precision: config.number("ui", "float_precision").map_err(in_file)?.unwrap_or(5),
        double_precision: config.number("ui", "double_precision").map_err(in_file)?.unwrap_or(5),
        field_size_limit: config
            .number("csv", "field_size_limit")
            .map_err(in_file)?
            .unwrap_or(131_072),
        config,
        config_path,
        notices,
        remarks,
    })))
}

/// Formats an error in a settings file.
fn wrong(path: &Path, error: &str) -> String {
    format!("cqlsh: error: {}: {error}", path.display())
}

/// Rejects options that this shell does not support.
fn refuse(line: &Line, config: &Config) -> Result<(), String> {
    if line.has("coverage") {
        return Err("--coverage: it measures Python code, and there is none here".to_owned());
    }
    let encoding = line.get("encoding").or_else(|| config.get("ui", "encoding"));
    if let Some(name) = encoding
        && !["utf8", "utf-8"].iter().any(|known| name.eq_ignore_ascii_case(known))
    {
        return Err(format!("--encoding {name}: only utf-8 is supported"));
    }
    let version = line.get("cqlversion").or_else(|| config.get("cql", "version"));
    if let Some(version) = version.map(full_version)
        && version.split('.').next().and_then(|major| major.parse::<u32>().ok()) < Some(3)
    {
        return Err(format!("{} is not a supported CQL version.", repr(&version)));
    }
    let provider = config.get("auth_provider", "classname").unwrap_or("PlainTextAuthProvider");
    if provider != "PlainTextAuthProvider" {
        return Err(format!("[auth_provider] {provider}: only PlainTextAuthProvider is supported"));
    }
    let key = config.get("ui", "completekey").unwrap_or("tab");
    if !matches!(key, "tab" | "\t") {
        return Err(format!("[ui] completekey {key}: only tab is supported"));
    }
    Ok(())
}

fn credentials(
    line: &Line,
    config: &Config,
    config_path: &Path,
    environment: &Environment<'_>,
    notices: &mut Vec<String>,
) -> Result<(Option<String>, Option<String>), String> {
    let own = |name: &str| config.get("authentication", name).map(str::to_owned);
    if own("username").is_some() || own("password").is_some() {
        let mut notice = String::new();
        if own("password").is_some() && (environment.is_open_to_others)(config_path) {
            notice.push_str(
                "\nWarning: Password is found in an insecure cqlshrc file. The file is owned or \
                 readable by other users on the system.",
            );
        }
        notice.push_str(
            "\nNotice: Credentials in the cqlshrc file is deprecated and will be ignored in the \
             future.\nPlease use a credentials file to specify the username and password.\n",
        );
        notices.push(notice);
    }
    let path = match line.get("credentials").or_else(|| config.get("authentication", "credentials"))
    {
        Some(path) => expand_home(path, environment),
        None => config_path.with_file_name("credentials"),
    };
    let mut stored = Config::default();
    if let Some(text) = (environment.read)(&path) {
        if (environment.is_open_to_others)(&path) {
            notices.push(format!(
                "\nWarning: Credentials file '{}' exists but is not used, because:\n  a. the file \
                 owner is not the current user; or\n  b. the file is readable by group or \
                 other.\nPlease ensure the file is owned by the current user and is not readable \
                 by group or other.\nOn a Linux or UNIX-like system, you often can do this by using \
                 the `chown` and `chmod` commands:\n  chown YOUR_USERNAME credentials\n  chmod 600 \
                 credentials\n",
                path.display()
            ));
        } else {
            stored = Config::parse(&text).map_err(|error| wrong(&path, &error))?;
        }
    }
    let provider = ["plain_text_auth", "PlainTextAuthProvider"];
    let kept = |name: &str| {
        provider.iter().find_map(|section| stored.get(section, name)).map(str::to_owned)
    };
    let username = line.get("username").map(str::to_owned);
    let username = username
        .or_else(|| kept("username"))
        .or_else(|| own("username"))
        .or_else(|| config.get("auth_provider", "username").map(str::to_owned));
    if line.has("password") && !line.has("insecure-password-without-warning") {
        notices.push(
            "\nWarning: Using a password on the command line interface can be insecure.\
             \nRecommendation: use the credentials file to securely provide the password.\n"
                .to_owned(),
        );
    }
    let password = line.get("password").map(str::to_owned);
    Ok((username, password.or_else(|| kept("password")).or_else(|| own("password"))))
}

/// `3` and `3.4` as `3.0.0` and `3.4.0`.
fn full_version(text: &str) -> String {
    format!("{text}{}", ".0".repeat(2_usize.saturating_sub(text.matches('.').count())))
}

fn protocol_version(line: &Line, config: &Config) -> Result<Option<ProtocolVersion>, String> {
    let number = match line.get("protocol-version") {
        Some(text) => Some(text.parse::<u8>().map_err(|_| {
            format!("argument --protocol-version: invalid int value: {}", repr(text))
        })?),
        None => config.number("protocol", "version")?,
    };
    number
        .map(|number| {
            ProtocolVersion::from_number(number)
                .map_err(|_| format!("--protocol-version {number}: only 3, 4 and 5 are supported"))
        })
        .transpose()
}

fn zone(config: &Config, environment: &Environment<'_>, notices: &mut Vec<String>) -> time::Zone {
    let mut zone = time::Zone::default();
    let variable = (environment.variable)("TZ").filter(|name| !name.is_empty());
    let named = [
        (config.get("ui", "timezone").map(str::to_owned), "specified in cqlshrc"),
        (variable, "from environment value TZ"),
    ];
    for (name, source) in named {
        let Some(name) = name else { continue };
        match time::Zone::parse(&name) {
            Some(known) => zone = known,
            None => {
                notices.push(format!("Warning: could not recognize timezone '{name}' {source}\n"))
            }
        }
    }
    zone
}

/// Appends the semicolon that the last statement lacks.
fn ended(text: &str) -> String {
    match text.trim_end() {
        done if done.is_empty() || done.ends_with(';') => done.to_owned(),
        open => format!("{open};"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(line: &str, cqlshrc: &'static str) -> Result<Options, String> {
        let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let environment = Environment {
            variable: &|name| (name == "HOME").then(|| "h".to_owned()),
            read: &|path| (path.ends_with("cqlshrc")).then(|| cqlshrc.to_owned()),
            is_open_to_others: &|_| false,
            stdin_is_terminal: true,
        };
        match read(&arguments, &environment)? {
            Asked::Run(options) => Ok(*options),
            Asked::Print(text) => Err(text),
        }
    }

    #[test]
    fn statements_of_execute_end_with_one_semicolon_whatever_blanks_follow() {
        let execute = |text: &str| {
            let words = ["-e".to_owned(), text.to_owned()];
            let environment = Environment {
                variable: &|_| None,
                read: &|_| None,
                is_open_to_others: &|_| false,
                stdin_is_terminal: true,
            };
            match read(&words, &environment).unwrap() {
                Asked::Run(options) => options.execute,
                Asked::Print(text) => panic!("{text}"),
            }
        };
        for text in ["SELECT 1", "SELECT 1;", "SELECT 1; ", "SELECT 1;\n\t "] {
            assert_eq!(execute(text).as_deref(), Some("SELECT 1;"), "{text:?}");
        }
        // Like cqlsh, which then reads standard input.
        assert_eq!(execute(""), None);
        assert_eq!(execute(" \n").as_deref(), Some(""));
    }

    #[test]
    fn the_command_line_wins_over_the_file() {
        let file = "[connection]\nhostname = there\nport = 1\ntimeout = 7\n[ui]\ncolor = on\n";
        let options = run("", file).unwrap();
        assert_eq!((options.host.as_str(), options.port, options.color), ("there", 1, Some(true)));
        assert_eq!(options.connect_timeout, Duration::from_secs(7));
        assert!(options.tty);
        let options = run("--no-color -k ks -e SELECT here 2 --conn=9", file).unwrap();
        assert_eq!((options.host.as_str(), options.port, options.color), ("here", 2, Some(false)));
        assert_eq!(options.execute.as_deref(), Some("SELECT;"));
        assert_eq!(options.keyspace.as_deref(), Some("ks"));
        assert_eq!(options.connect_timeout, Duration::from_secs(9));
        assert!(!options.tty);
    }

    #[test]
    fn what_is_not_done_is_refused_by_name() {
        // INV-cqlsh-2
        for (line, file, word) in [
            ("--encoding latin1", "", "latin1"),
            ("--coverage", "", "Python"),
            ("--nonsense", "", "unrecognized arguments: --nonsense"),
            ("-z", "", "unrecognized arguments: -z"),
            ("a b", "", "'b' is not a valid port number."),
            ("a 1 c", "", "unrecognized arguments: c"),
            ("--protocol-version 9", "", "9"),
            ("--connect-timeout x", "", "\"x\""),
            ("", "[auth_provider]\nclassname = Kerberos\n", "Kerberos"),
        ] {
            let error = run(line, file).unwrap_err();
            assert!(error.contains(word), "{line}: {error}");
        }
        assert!(run("--encoding UTF-8", "").is_ok());
    }

    #[test]
    fn arguments_are_taken_as_argparse_takes_them() {
        let options = run("-Ckks -eSELECT --no-col", "").unwrap();
        assert_eq!((options.keyspace.as_deref(), options.color), (Some("ks"), Some(false)));
        assert_eq!(options.execute.as_deref(), Some("SELECT;"));
        let tail = |line: &str| {
            let error = run(line, "").unwrap_err();
            let (usage, error) = error.split_once("\ncqlsh: error: ").unwrap();
            assert_eq!(usage, "usage: Usage: cqlsh [options] [host [port]]");
            error.to_owned()
        };
        assert_eq!(tail("-e"), "argument -e/--execute: expected one argument");
        assert_eq!(tail("-e -x"), "argument -e/--execute: expected one argument");
        assert_eq!(tail("--ssl=1"), "argument --ssl: ignored explicit argument '1'");
        assert_eq!(tail("-Cx"), "argument -C/--color: ignored explicit argument 'x'");
        assert_eq!(tail("--cq"), "ambiguous option: --cq could match --cqlshrc, --cqlversion");
        assert_eq!(tail("--cqlversion 2"), "'2.0.0' is not a supported CQL version.");
    }

    #[test]
    fn version_is_printed_as_the_python_shell_prints_it() {
        assert_eq!(run("--version", "").unwrap_err(), "cqlsh 6.2.0\n");
    }
}
