//! `helenus nodetool`: Cassandra's command line, layouts and exit codes over the admin API.
//!
//! Its grammar is not the one of the other commands (`-h` is the host, `-pp` and `-cf` are options
//! of their own), so that it is parsed here from one table of commands.

use admin::model::{
    ClearRequest, CompactionReport, CoordinatorReport, DrainRequest, HistoryReport, NodeReport,
    SnapshotReport, SnapshotRequest, TableReport, TablesRequest,
};
use admin::nodetool::{self as layout, HostStyle, TableFilter, TableStatsOptions};

use crate::exit;
use crate::http::{Api, HttpError};

/// Wrong usage, or no connection.
const BAD_USE: u8 = 1;
/// The node reported an error.
const FAILED: u8 = 2;

/// One option of a command.
struct Flag {
    /// As it is written, the long form last.
    names: &'static [&'static str],
    /// Name of its value; `None` for a switch.
    value: Option<&'static str>,
    help: &'static str,
}

/// One command.
struct Verb {
    name: &'static str,
    help: &'static str,
    flags: &'static [Flag],
    /// Positional arguments, as the help shows them; empty: none.
    arguments: &'static str,
    arguments_help: &'static str,
    arguments_max: usize,
}

const fn switch(names: &'static [&'static str], help: &'static str) -> Flag {
    Flag { names, value: None, help }
}

const fn valued(names: &'static [&'static str], value: &'static str, help: &'static str) -> Flag {
    Flag { names, value: Some(value), help }
}

const GLOBAL: &[Flag] = &[
    valued(&["-h", "--host"], "host", "Node hostname or ip address"),
    valued(&["-p", "--port"], "port", "Port of the node's API"),
    switch(&["-pp", "--print-port"], "Show hosts with their port"),
];

/// Options of Cassandra's tool that ask for something that is not there: refused by name.
const REFUSED_GLOBAL: &[&str] =
    &["-u", "--username", "-pw", "--password", "-pwf", "--password-file"];

const TABLES: &str = "[<keyspace> <tables>...]";
const TABLES_HELP: &str = "The keyspace followed by one or many tables";

const VERBS: &[Verb] = &[
    Verb {
        name: "clearsnapshot",
        help: "Remove the snapshot with the given name from the given keyspaces",
        flags: &[
            valued(&["-t"], "snapshot_name", "Remove the snapshot with a given name"),
            switch(&["--all"], "Removes all snapshots"),
        ],
        arguments: "[<keyspaces>...]",
        arguments_help: "Remove snapshots from the given keyspaces",
        arguments_max: usize::MAX,
    },
    Verb {
        name: "compact",
        help: "Force a (major) compaction on one or more tables",
        flags: &[],
        arguments: TABLES,
        arguments_help: TABLES_HELP,
        arguments_max: usize::MAX,
    },
    Verb {
        name: "compactionhistory",
        help: "Print history of compaction",
        flags: &[valued(&["-F", "--format"], "format", "Output format (json)")],
        arguments: "",
        arguments_help: "",
        arguments_max: 0,
    },
    Verb {
        name: "compactionstats",
        help: "Print statistics on compactions",
        flags: &[switch(
            &["-H", "--human-readable"],
            "Display bytes in human readable form, i.e. KiB, MiB, GiB, TiB",
        )],
        arguments: "",
        arguments_help: "",
        arguments_max: 0,
    },
    Verb {
        name: "describecluster",
        help: "Print the name, snitch, partitioner and schema version of a cluster",
        flags: &[],
        arguments: "",
        arguments_help: "",
        arguments_max: 0,
    },
    Verb {
        name: "drain",
        help: "Drain the node (stop accepting writes and flush all tables)",
        flags: &[],
        arguments: "",
        arguments_help: "",
        arguments_max: 0,
    },
    Verb {
        name: "flush",
        help: "Flush one or more tables",
        flags: &[],
        arguments: TABLES,
        arguments_help: TABLES_HELP,
        arguments_max: usize::MAX,
    },
    Verb {
        name: "help",
        help: "Display help information",
        flags: &[],
        arguments: "[<command>]",
        arguments_help: "The command",
        arguments_max: 1,
    },
    Verb {
        name: "info",
        help: "Print node information (uptime, load, ...)",
        flags: &[switch(&["-T", "--tokens"], "Display all tokens")],
        arguments: "",
        arguments_help: "",
        arguments_max: 0,
    },
    Verb {
        name: "listsnapshots",
        help: "Lists all the snapshots along with the size on disk and true size",
        flags: &[],
        arguments: "",
        arguments_help: "",
        arguments_max: 0,
    },
    Verb {
        name: "proxyhistograms",
        help: "Print statistic histograms for network operations",
        flags: &[],
        arguments: "",
        arguments_help: "",
        arguments_max: 0,
    },
    Verb {
        name: "ring",
        help: "Print information about the token ring",
        flags: &[],
        arguments: "[<keyspace>]",
        arguments_help: "Specify a keyspace for accurate ownership information",
        arguments_max: 1,
    },
    Verb {
        name: "snapshot",
        help: "Take a snapshot of specified keyspaces or a snapshot of the specified table",
        flags: &[
            valued(
                &["-cf", "--column-family", "--table"],
                "table",
                "The table name (you must specify one and only one keyspace for using this option)",
            ),
            valued(&["-t", "--tag"], "tag", "The name of the snapshot"),
            switch(
                &["-sf", "--skip-flush"],
                "Do not flush memtables before snapshotting (snapshot will not contain unflushed \
                 data)",
            ),
        ],
        arguments: "[<keyspaces...>]",
        arguments_help: "List of keyspaces. By default, all keyspaces",
        arguments_max: usize::MAX,
    },
    Verb {
        name: "status",
        help: "Print cluster information (state, load, IDs, ...)",
        flags: &[],
        arguments: "[<keyspace>]",
        arguments_help: "The keyspace name",
        arguments_max: 1,
    },
    Verb {
        name: "tablehistograms",
        help: "Print statistic histograms for a given table",
        flags: &[],
        arguments: "[<keyspace> <table> | <keyspace.table>]",
        arguments_help: "The keyspace and table name",
        arguments_max: usize::MAX,
    },
    Verb {
        name: "tablestats",
        help: "Print statistics on tables",
        flags: &[
            valued(&["-F", "--format"], "format", "Output format (json)"),
            switch(
                &["-H", "--human-readable"],
                "Display bytes in human readable form, i.e. KiB, MiB, GiB, TiB",
            ),
            switch(&["-i"], "Ignore the list of tables and display the remaining tables"),
            switch(
                &["-l", "--sstable-location-check"],
                "Check whether or not the SSTables are in the correct location.",
            ),
        ],
        arguments: "[<keyspace.table>...]",
        arguments_help: "List of tables (or keyspace) names",
        arguments_max: usize::MAX,
    },
    Verb {
        name: "version",
        help: "Print cassandra version",
        flags: &[],
        arguments: "",
        arguments_help: "",
        arguments_max: 0,
    },
];

fn verb(name: &str) -> Option<&'static Verb> {
    let name = match name {
        "cfstats" => "tablestats",
        "cfhistograms" => "tablehistograms",
        other => other,
    };
    VERBS.iter().find(|v| v.name == name)
}

/// A command line that was understood.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    api: Api,
    style: HostStyle,
    verb: &'static str,
    /// Options by their last name.
    options: Vec<(&'static str, String)>,
    arguments: Vec<String>,
}

impl Line {
    fn has(&self, name: &str) -> bool {
        self.options.iter().any(|(n, _)| *n == name)
    }

    fn value(&self, name: &str) -> Option<&str> {
        self.options.iter().rev().find(|(n, _)| *n == name).map(|(_, v)| v.as_str())
    }

    fn parse(words: Vec<String>) -> Result<Line, String> {
        let mut line = Line {
            api: Api { host: "127.0.0.1".to_owned(), port: 10_000 },
            style: HostStyle::default(),
            verb: "help",
            options: Vec::new(),
            arguments: Vec::new(),
        };
        let mut command: Option<&'static Verb> = None;
        let mut unexpected = Vec::new();
        let mut only_arguments = false;
        let mut rest = words.into_iter();
        while let Some(word) = rest.next() {
            if word == "--" && !only_arguments {
                only_arguments = true;
                continue;
            }
            if !word.starts_with('-') || word.len() == 1 || only_arguments {
                match command {
                    None => match verb(&word) {
                        Some(found) => command = Some(found),
                        None => unexpected.push(word),
                    },
                    Some(_) => line.arguments.push(word),
                }
                continue;
            }
            let (name, attached) = match word.split_once('=') {
                Some((name, value)) if name.starts_with("--") => (name, Some(value.to_owned())),
                _ => (word.as_str(), None),
            };
            if REFUSED_GLOBAL.contains(&name) {
                return Err(format!(
                    "{name} is not supported: the API has no users; it is protected by the \
                     address that it listens on"
                ));
            }
            let own = command.map_or(&[][..], |c| c.flags);
            let Some(flag) = GLOBAL.iter().chain(own).find(|f| f.names.contains(&name)) else {
                unexpected.push(word);
                continue;
            };
            let last = flag.names.last().copied().unwrap_or("");
            let value = match flag.value {
                None => String::new(),
                Some(title) => attached
                    .or_else(|| rest.next())
                    .ok_or_else(|| format!("Required values for option '{title}' not provided"))?,
            };
            line.options.push((last, value));
        }
        if !unexpected.is_empty() {
            return Err(format!("Found unexpected parameters: [{}]", unexpected.join(", ")));
        }
        if let Some(command) = command {
            line.verb = command.name;
            if line.arguments.len() > command.arguments_max {
                let extra = line.arguments.split_off(command.arguments_max);
                return Err(format!("Found unexpected parameters: [{}]", extra.join(", ")));
            }
        }
        line.take_global()?;
        Ok(line)
    }

    fn take_global(&mut self) -> Result<(), String> {
        if let Some(host) = self.value("--host") {
            self.api.host = host.to_owned();
        }
        if let Some(port) = self.value("--port") {
            self.api.port = port
                .parse()
                .map_err(|_| format!("port: can not convert \"{port}\" to a port number"))?;
        }
        self.style.port = self.has("--print-port");
        Ok(())
    }
}

/// How a command ends other than well.
#[derive(Debug)]
enum Failure {
    /// `nodetool: …` and where help is.
    BadUse(String),
    /// A text on standard output as it is.
    Printed(String),
    /// The API was not reached.
    Connect(std::io::Error),
    /// `error: …`.
    Node(String),
}

impl From<HttpError> for Failure {
    fn from(error: HttpError) -> Failure {
        match error {
            HttpError::Connect(error) => Failure::Connect(error),
            HttpError::Refused(_, words) | HttpError::Strange(words) => Failure::Node(words),
        }
    }
}

/// Runs nodetool; the exit code.
pub fn main(arguments: Vec<String>) -> u8 {
    let wants_help = |a: &String| a == "--help" || a == "-?";
    if arguments.iter().any(wants_help) {
        let name = arguments.iter().find_map(|a| verb(a));
        print!("{}", help(name.map(|v| v.name)));
        return exit::OK;
    }
    let line = match Line::parse(arguments) {
        Ok(line) => line,
        Err(message) => return report(&Failure::BadUse(message), None),
    };
    match run(&line) {
        Ok(text) => {
            print!("{text}");
            exit::OK
        }
        Err(failure) => report(&failure, Some(&line.api)),
    }
}

fn report(failure: &Failure, api: Option<&Api>) -> u8 {
    match failure {
        Failure::BadUse(message) => {
            println!("nodetool: {message}");
            println!("See 'nodetool help' or 'nodetool help <command>'.");
            BAD_USE
        }
        Failure::Printed(text) => {
            print!("{text}");
            BAD_USE
        }
        Failure::Connect(error) => {
            let (host, port) = api.map_or(("", 0), |a| (a.host.as_str(), a.port));
            let kind = match error.kind() {
                std::io::ErrorKind::ConnectionRefused => "ConnectException",
                std::io::ErrorKind::TimedOut => "SocketTimeoutException",
                _ => "IOException",
            };
            eprintln!("nodetool: Failed to connect to '{host}:{port}' - {kind}: '{error}'.");
            BAD_USE
        }
        Failure::Node(message) => {
            eprintln!("error: {message}");
            FAILED
        }
    }
}

fn run(line: &Line) -> Result<String, Failure> {
    let api = &line.api;
    let keyspace = line.arguments.first().map(String::as_str);
    match line.verb {
        "help" => Ok(help(keyspace)),
        "status" => layout::status(&node(api)?, keyspace, line.style).map_err(Failure::Printed),
        "ring" => layout::ring(&node(api)?, keyspace, line.style).map_err(Failure::Printed),
        "info" => info(line),
        "version" => Ok(layout::version(&node(api)?)),
        "describecluster" => Ok(layout::describe_cluster(&node(api)?, line.style)),
        "flush" => tables_command(line, "/api/v1/flush"),
        "compact" => tables_command(line, "/api/v1/compact"),
        "drain" => {
            api.command("POST", "/api/v1/drain", &DrainRequest {})?;
            Ok(String::new())
        }
        "snapshot" => snapshot(line),
        "listsnapshots" => {
            let snapshots: Vec<SnapshotReport> = api.get("/api/v1/snapshots")?;
            Ok(layout::list_snapshots(&snapshots))
        }
        "clearsnapshot" => clear_snapshot(line),
        "tablestats" => table_stats(line),
        "tablehistograms" => {
            let tables: Vec<TableReport> = api.get("/api/v1/tables")?;
            layout::table_histograms(&tables, &line.arguments).map_err(Failure::BadUse)
        }
        "proxyhistograms" => {
            let report: CoordinatorReport = api.get("/api/v1/latencies")?;
            Ok(layout::proxy_histograms(&report))
        }
        "compactionhistory" => {
            let json = wants_json(line)?;
            let history: Vec<HistoryReport> = api.get("/api/v1/compactions/history")?;
            Ok(match json {
                true => layout::compaction_history_json(&history),
                false => layout::compaction_history(&history),
            })
        }
        "compactionstats" => {
            let report: CompactionReport = api.get("/api/v1/compactions")?;
            Ok(layout::compaction_stats(&report, line.has("--human-readable")))
        }
        other => Err(Failure::BadUse(format!("Found unexpected parameters: [{other}]"))),
    }
}

fn node(api: &Api) -> Result<NodeReport, Failure> {
    Ok(api.get("/api/v1/node")?)
}

fn info(line: &Line) -> Result<String, Failure> {
    let node = node(&line.api)?;
    let tables: Vec<TableReport> = line.api.get("/api/v1/tables")?;
    let used = tables.iter().map(|t| t.memtable_bytes + t.metadata_bytes).sum();
    Ok(layout::info(&node, used, line.has("--tokens")))
}

fn tables_command(line: &Line, path: &str) -> Result<String, Failure> {
    let (keyspaces, tables) = match line.arguments.split_first() {
        None => (Vec::new(), Vec::new()),
        Some((keyspace, tables)) => {
            let node = node(&line.api)?;
            if !node.keyspaces.iter().any(|k| k.name == *keyspace) {
                return Err(Failure::BadUse(format!("Keyspace [{keyspace}] does not exist.")));
            }
            (vec![keyspace.clone()], tables.to_vec())
        }
    };
    line.api.command("POST", path, &TablesRequest { keyspaces, tables })?;
    Ok(String::new())
}

fn snapshot(line: &Line) -> Result<String, Failure> {
    let tag = match line.value("--tag") {
        Some(tag) => tag.to_owned(),
        None => millis_now().to_string(),
    };
    let skip_flush = line.has("--skip-flush");
    // Printed before the attempt, as Cassandra does: scripts read it also after a failure.
    println!(
        "Requested creating snapshot(s) for [{}] with snapshot name [{tag}] and options \
         {{skipFlush={skip_flush}}}",
        all_or(&line.arguments)
    );
    let tables = line.value("--table").map(str::to_owned).into_iter().collect();
    let keyspaces = line.arguments.clone();
    let body = SnapshotRequest { tag: tag.clone(), keyspaces, tables, skip_flush };
    match line.api.command("POST", "/api/v1/snapshots", &body) {
        Ok(()) => Ok(format!("Snapshot directory: {tag}\n")),
        Err(HttpError::Refused(400, words)) => Err(Failure::BadUse(words)),
        Err(error) => Err(error.into()),
    }
}

fn all_or(keyspaces: &[String]) -> String {
    if keyspaces.is_empty() { "all keyspaces".to_owned() } else { keyspaces.join(", ") }
}

fn millis_now() -> u128 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |d| d.as_millis())
}

fn clear_snapshot(line: &Line) -> Result<String, Failure> {
    let (tag, all) = (line.value("-t"), line.has("--all"));
    let with = match tag {
        None if !all => {
            return Err(Failure::BadUse("Specify snapshot name or --all".to_owned()));
        }
        Some(_) if all => {
            return Err(Failure::BadUse("Specify only one of snapshot name or --all".to_owned()));
        }
        None => "[all snapshots]".to_owned(),
        Some(tag) => format!("snapshot name [{tag}]"),
    };
    println!("Requested clearing snapshot(s) for [{}] with {with}", all_or(&line.arguments));
    let body = ClearRequest { tag: tag.map(str::to_owned), keyspaces: line.arguments.clone() };
    line.api.command("DELETE", "/api/v1/snapshots", &body)?;
    Ok(String::new())
}

/// Whether `-F json` was given.
fn wants_json(line: &Line) -> Result<bool, Failure> {
    match line.value("--format") {
        None => Ok(false),
        Some("json") => Ok(true),
        Some("yaml") => Err(Failure::BadUse("-F yaml is not supported, -F json is".to_owned())),
        Some(_) => Err(Failure::BadUse("arguments for -F are json,yaml only.".to_owned())),
    }
}

fn table_stats(line: &Line) -> Result<String, Failure> {
    let json = wants_json(line)?;
    let filter = TableFilter { ignore: line.has("-i"), names: line.arguments.clone() };
    let options = TableStatsOptions {
        human_readable: line.has("--human-readable"),
        location_check: line.has("--sstable-location-check"),
    };
    let tables: Vec<TableReport> = line.api.get("/api/v1/tables")?;
    let text = if json {
        layout::table_stats_json(&tables, &filter, options)
    } else {
        layout::table_stats(&tables, &filter, options)
    };
    text.map_err(Failure::BadUse)
}

/// The list of commands, or the help of one.
fn help(name: Option<&str>) -> String {
    let Some(name) = name else {
        let mut out = String::from(
            "usage: helenus nodetool [(-p <port> | --port <port>)] [(-pp | --print-port)]\n        \
             [(-h <host> | --host <host>)] <command> [<args>]\n\nThe nodetool commands are:\n",
        );
        for verb in VERBS {
            out.push_str(&format!("    {:<19}{}\n", verb.name, verb.help));
        }
        out.push_str(
            "\nSee 'nodetool help <command>' for more information on a specific command.\n",
        );
        return out;
    };
    let Some(verb) = verb(name) else { return format!("Unknown command {name}\n\n") };
    let mut out = format!("NAME\n        nodetool {} - {}\n\nSYNOPSIS\n", verb.name, verb.help);
    out.push_str("        nodetool [(-h <host> | --host <host>)] [(-p <port> | --port <port>)]\n");
    out.push_str(&format!("                [(-pp | --print-port)] {}", verb.name));
    for flag in verb.flags {
        let value = flag.value.map(|v| format!(" <{v}>")).unwrap_or_default();
        let names: Vec<String> = flag.names.iter().map(|n| format!("{n}{value}")).collect();
        match names.as_slice() {
            [one] => out.push_str(&format!(" [{one}]")),
            many => out.push_str(&format!(" [({})]", many.join(" | "))),
        }
    }
    if !verb.arguments.is_empty() {
        out.push_str(&format!("\n                [--] {}", verb.arguments));
    }
    out.push_str("\n\nOPTIONS\n");
    for flag in GLOBAL.iter().chain(verb.flags) {
        let value = flag.value.map(|v| format!(" <{v}>")).unwrap_or_default();
        let names: Vec<String> = flag.names.iter().map(|n| format!("{n}{value}")).collect();
        out.push_str(&format!("        {}\n            {}\n\n", names.join(", "), flag.help));
    }
    if !verb.arguments.is_empty() {
        out.push_str(&format!(
            "        {}\n            {}\n\n",
            verb.arguments, verb.arguments_help
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Line, String> {
        Line::parse(text.split_whitespace().map(str::to_owned).collect())
    }

    #[test]
    fn global_options_stand_before_and_behind_the_command() {
        for text in ["-h ::1 -p 10001 -pp status ks", "status -h ::1 ks --port=10001 --print-port"]
        {
            let line = parse(text).unwrap();
            assert_eq!(line.api, Api { host: "::1".to_owned(), port: 10_001 }, "{text}");
            assert_eq!((line.verb, line.style.port), ("status", true), "{text}");
            assert_eq!(line.arguments, ["ks"], "{text}");
        }
        assert_eq!(parse("").unwrap().verb, "help");
        assert_eq!(parse("cfstats").unwrap().verb, "tablestats");
        assert_eq!(parse("cfhistograms ks t").unwrap().verb, "tablehistograms");
    }

    #[test]
    fn options_with_two_letters_are_options_of_their_own() {
        let line = parse("snapshot -t tag1 -cf t -sf ks").unwrap();
        assert_eq!(line.value("--tag"), Some("tag1"));
        assert_eq!(line.value("--table"), Some("t"));
        assert!(line.has("--skip-flush"));
        let line = parse("flush -- -ks").unwrap();
        assert_eq!(line.arguments, ["-ks"]);
    }

    #[test]
    fn wrong_lines_are_refused_in_cassandras_words() {
        let refused = [
            ("foo", "Found unexpected parameters: [foo]"),
            ("info -x", "Found unexpected parameters: [-x]"),
            ("info -H", "Found unexpected parameters: [-H]"),
            ("status a b", "Found unexpected parameters: [b]"),
            ("snapshot -t", "Required values for option 'tag' not provided"),
        ];
        for (text, expected) in refused {
            assert_eq!(parse(text).unwrap_err(), expected, "{text}");
        }
        assert!(parse("-u me status").unwrap_err().starts_with("-u is not supported"));
        assert!(parse("-p x status").unwrap_err().starts_with("port: "));
    }

    #[test]
    fn snapshots_are_cleared_by_name_or_all_not_both() {
        let clear = |text: &str| match clear_snapshot(&parse(text).unwrap()) {
            Err(Failure::BadUse(message)) => message,
            other => panic!("{other:?}"),
        };
        assert_eq!(clear("clearsnapshot"), "Specify snapshot name or --all");
        assert_eq!(clear("clearsnapshot -t a --all"), "Specify only one of snapshot name or --all");
    }

    #[test]
    fn every_command_is_carried_out_and_has_help() {
        let nobody = Api { host: "127.0.0.1".to_owned(), port: 1 };
        for verb in VERBS {
            let text = help(Some(verb.name));
            assert!(text.starts_with(&format!("NAME\n        nodetool {} - ", verb.name)));
            assert!(help(None).contains(&format!("\n    {} ", verb.name)));
            let line = Line { api: nobody.clone(), ..parse(verb.name).unwrap() };
            match run(&line) {
                Ok(_) => assert_eq!(verb.name, "help"),
                Err(Failure::Connect(_)) => {}
                Err(Failure::BadUse(_)) => assert_eq!(verb.name, "clearsnapshot"),
                Err(other) => panic!("{}: {other:?}", verb.name),
            }
        }
        assert_eq!(help(Some("foo")), "Unknown command foo\n\n");
    }
}
