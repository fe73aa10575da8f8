//! The command line, `cqlshrc`, the credentials file and the environment, put together.
//!
//! Owns: names of options, which source wins (command line, environment, file, default), what is
//! refused because this shell does not do it. Never: connects.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cql_wire::ProtocolVersion;

use crate::config::Config;
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
    /// Set while somebody at a terminal may press Ctrl-C.
    pub(crate) interrupt: Interrupt,
    pub(crate) float_precision: i32,
    pub(crate) double_precision: i32,
    pub(crate) field_size_limit: usize,
    pub(crate) config: Config,
    pub(crate) config_path: PathBuf,
    /// Lines for standard error before anything else.
    pub(crate) notices: Vec<String>,
}

/// What the command line asks for.
#[derive(Debug)]
pub(crate) enum Asked {
    /// Run with these.
    Run(Box<Options>),
    /// Print this and end well.
    Print(String),
}

/// What the process offers.
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

/// Long name, short name, takes a value.
const KNOWN: &[(&str, &str, bool)] = &[
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
    ("insecure-password-without-warning", "", false),
    ("disable-history", "", false),
    ("json", "", false),
];

fn parse_line(arguments: &[String]) -> Result<Line, String> {
    let mut line = Line::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if argument == "--" {
            line.positional.extend(rest.by_ref().cloned());
            break;
        }
        if let Some(long) = argument.strip_prefix("--") {
            let (name, inline) = match long.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (long, None),
            };
            let (name, takes) = long_option(name)?;
            let value = match (takes, inline) {
                (true, Some(value)) => value,
                (true, None) => {
                    rest.next().cloned().ok_or_else(|| format!("--{name} needs a value"))?
                }
                (false, None) => String::new(),
                (false, Some(_)) => return Err(format!("--{name} takes no value")),
            };
            line.values.push((name, value));
            continue;
        }
        let Some(short) = argument.strip_prefix('-').filter(|short| !short.is_empty()) else {
            line.positional.push(argument.clone());
            continue;
        };
        for (at, sign) in short.char_indices() {
            let found = KNOWN.iter().find(|(_, known, _)| *known == sign.to_string());
            let Some((name, _, takes)) = found else {
                return Err(format!("unknown option -{sign}"));
            };
            if !takes {
                line.values.push((name, String::new()));
                continue;
            }
            let inline = short.get(at + sign.len_utf8()..).unwrap_or_default();
            let value = match inline.is_empty() {
                true => rest.next().cloned().ok_or_else(|| format!("-{sign} needs a value"))?,
                false => inline.to_owned(),
            };
            line.values.push((name, value));
            break;
        }
    }
    Ok(line)
}

/// The option of this name, or the only one that begins so.
fn long_option(name: &str) -> Result<(&'static str, bool), String> {
    if let Some((name, _, takes)) = KNOWN.iter().find(|(known, ..)| *known == name) {
        return Ok((name, *takes));
    }
    let mut matching = KNOWN.iter().filter(|(known, ..)| known.starts_with(name));
    match (matching.next(), matching.next()) {
        (Some((name, _, takes)), None) => Ok((name, *takes)),
        (Some(_), Some(_)) => Err(format!("--{name} could be several options")),
        (None, _) => Err(format!("unknown option --{name}")),
    }
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
    let line = parse_line(arguments)?;
    if line.has("help") {
        return Ok(Asked::Print(HELP.to_owned()));
    }
    if line.has("version") {
        return Ok(Asked::Print(format!("cqlsh {VERSION}\n")));
    }
    let mut notices = Vec::new();
    let default_path = expand_home("~/.cassandra/cqlshrc", environment);
    let mut config_path = default_path.clone();
    if let Some(path) = line.get("cqlshrc") {
        config_path = expand_home(path, environment);
        if (environment.read)(&config_path).is_none() {
            notices.push(format!(
                "\nWarning: Specified cqlshrc location `{}` does not exist.  Using `{}` instead.\n",
                config_path.display(),
                default_path.display()
            ));
            config_path = default_path;
        }
    }
    let config = match (environment.read)(&config_path) {
        Some(text) => {
            Config::parse(&text).map_err(|error| format!("{}: {error}", config_path.display()))?
        }
        None => Config::default(),
    };
    refuse(&line, &config)?;
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
        return Err(format!("unexpected argument \"{extra}\""));
    }
    let timeout = |name: &str, setting: &str, what: &str, default: u64| match line.get(name) {
        Some(text) => seconds(text, what),
        None => Ok(Duration::from_secs(config.number("connection", setting)?.unwrap_or(default))),
    };
    let file = option("file");
    let execute = option("execute")
        .filter(|text| !text.is_empty())
        .map(|text| if text.ends_with(';') { text } else { format!("{text};") });
    let color = match (line.has("color"), line.has("no-color")) {
        (true, _) => Some(true),
        (_, true) => Some(false),
        _ => config.switch("ui", "color")?.or(file.is_some().then_some(false)),
    };
    let tty = match config.switch("ui", "tty")? {
        _ if file.is_some() || execute.is_some() => false,
        _ if line.has("tty") => true,
        Some(tty) => tty,
        None => environment.stdin_is_terminal,
    };
    let ssl = line.has("ssl") || config.switch("connection", "ssl")?.unwrap_or(false);
    let tls = ssl.then(|| Arc::new(Tls::read(&config, &config_path, environment.variable)));
    let trace_wait: f64 = config.number("tracing", "max_trace_wait")?.unwrap_or(10.0);
    Ok(Asked::Run(Box::new(Options {
        host,
        port: port.parse().map_err(|_| format!("'{port}' is not a valid port number."))?,
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
        history: !(line.has("disable-history")
            || config.switch("history", "disabled")?.unwrap_or(false)),
        version: protocol_version(&line, &config)?,
        cql_version: line
            .get("cqlversion")
            .or_else(|| config.get("cql", "version"))
            .map(full_version),
        tls,
        connect_timeout: timeout("connect-timeout", "timeout", "connect", 5)?,
        request_timeout: timeout("request-timeout", "request_timeout", "request", 10)?,
        trace_wait: Duration::try_from_secs_f64(trace_wait)
            .map_err(|_| format!("[tracing] max_trace_wait: {trace_wait} is no duration"))?,
        time_format: config
            .get("ui", "time_format")
            .map(str::to_owned)
            .or_else(|| variable("CQLSH_DEFAULT_TIMESTAMP_FORMAT"))
            .unwrap_or_else(|| time::DEFAULT_FORMAT.to_owned()),
        zone: zone(&config, environment, &mut notices),
        interrupt: Interrupt::default(),
        float_precision: config.number("ui", "float_precision")?.unwrap_or(5),
        double_precision: config.number("ui", "double_precision")?.unwrap_or(5),
        field_size_limit: config.number("csv", "field_size_limit")?.unwrap_or(131_072),
        config,
        config_path,
        notices,
    })))
}

/// What this shell does not do.
fn refuse(line: &Line, config: &Config) -> Result<(), String> {
    if line.has("coverage") {
        return Err("--coverage: there is no Python here to measure".to_owned());
    }
    if line.has("browser") {
        return Err("--browser: this shell opens no browser".to_owned());
    }
    let encoding = line.get("encoding").or_else(|| config.get("ui", "encoding"));
    if let Some(name) = encoding
        && !["utf8", "utf-8"].iter().any(|known| name.eq_ignore_ascii_case(known))
    {
        return Err(format!("--encoding {name}: only utf-8 is supported"));
    }
    let version = line.get("cqlversion").or_else(|| config.get("cql", "version"));
    if let Some(version) = version
        && !version.starts_with("3.")
        && version != "3"
    {
        return Err(format!("'{version}' is not a supported CQL version."));
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
        if own("password").is_some() && (environment.is_open_to_others)(config_path) {
            notices.push(
                "\nWarning: Password is found in an insecure cqlshrc file. The file is owned or \
                 readable by other users on the system."
                    .to_owned(),
            );
        }
        notices.push(
            "\nNotice: Credentials in the cqlshrc file is deprecated and will be ignored in the \
             future.\nPlease use a credentials file to specify the username and password.\n"
                .to_owned(),
        );
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
                 by group or other.",
                path.display()
            ));
        } else {
            stored =
                Config::parse(&text).map_err(|error| format!("{}: {error}", path.display()))?;
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
        Some(text) => Some(
            text.parse::<u8>()
                .map_err(|_| format!("--protocol-version: invalid value '{text}'"))?,
        ),
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
        for (line, file, word) in [
            ("--encoding latin1", "", "latin1"),
            ("--nonsense", "", "--nonsense"),
            ("-z", "", "-z"),
            ("a b", "", "'b'"),
            ("a 1 c", "", "\"c\""),
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
    fn version_is_printed_as_the_python_shell_prints_it() {
        assert_eq!(run("--version", "").unwrap_err(), "cqlsh 6.2.0\n");
    }
}
