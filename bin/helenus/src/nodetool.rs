//! `helenus nodetool`: Cassandra's command line, layouts and exit codes over the admin API.
//!
//! Its grammar is not the one of the other commands (`-h` is the host, `-pp` and `-cf` are options
//! of their own), so that it is parsed here from one table of commands.

mod auth_caches;
mod cidr;
mod cluster;
mod names;
mod query_logs;
mod refused;
mod repair;
mod repaired_set;
mod sampling;
mod settings;
mod snapshots;
mod token_metadata;
mod upkeep;
mod verbs;

use admin::model::{
    CacheReport, CompactionReport, CoordinatorReport, DrainRequest, HistoryReport, NodeReport,
    PlannedReport, TableReport, TablesRequest, UpgradeRequest,
};
use admin::nodetool::{self as layout, HostStyle, TableFilter, TableStatsOptions};

use crate::exit;
use crate::http::{Api, HttpError};
use refused::{REFUSED, refused};
use verbs::{GLOBAL, VERBS, Verb, verb};

/// Wrong usage, or no connection.
const BAD_USE: u8 = 1;
/// The node reported an error.
const FAILED: u8 = 2;
/// Where Cassandra's nodetool connects to.
const JMX_PORT: u16 = 7199;

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

    /// All values of an option that may stand several times.
    fn values(&self, name: &str) -> Vec<String> {
        self.options.iter().filter(|(n, _)| *n == name).map(|(_, v)| v.clone()).collect()
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
            // Cassandra's script hands them to the Java virtual machine, wherever they stand.
            if is_jvm_property(&word) && !only_arguments {
                continue;
            }
            // Tokens below zero are arguments, with or without the `--` that Cassandra's tool needs.
            let is_number = word.parse::<i64>().is_ok();
            if !word.starts_with('-') || word.len() == 1 || only_arguments || is_number {
                match command {
                    // Behind what it does not know Cassandra's tool looks at nothing.
                    None if !unexpected.is_empty() => unexpected.push(word),
                    None => match (verb(&word), refused(&word)) {
                        (Some(found), _) => command = Some(found),
                        (None, Some(why)) => {
                            return Err(format!("{word} is not supported: {why}"));
                        }
                        (None, None) => unexpected.push(word),
                    },
                    Some(_) => line.arguments.push(word),
                }
                continue;
            }
            if command.is_none() && !unexpected.is_empty() {
                unexpected.push(word);
                continue;
            }
            let (name, attached) = match word.split_once('=') {
                Some((name, value)) if name.starts_with("--") => (name, Some(value.to_owned())),
                _ => (word.as_str(), None),
            };
            let own = command.map_or(&[][..], |c| c.flags);
            let Some(flag) = own.iter().chain(GLOBAL).find(|f| f.names.contains(&name)) else {
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
            if line.arguments.is_empty() && !command.required.is_empty() {
                return Err(format!("Required parameters are missing: {}", command.required));
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
            self.api.port = port.parse().map_err(|_| format!("For input string: \"{port}\""))?;
        }
        self.style.port = self.has("--print-port");
        Ok(())
    }
}

/// `-Dname=value`, as runbooks pass it for TLS and the like.
fn is_jvm_property(word: &str) -> bool {
    word.strip_prefix("-D").is_some_and(|property| !property.is_empty())
}

/// How a command ends other than well.
#[derive(Debug)]
enum Failure {
    /// `nodetool: …` and where help is.
    BadUse(String),
    /// A text on standard output as it is.
    Printed(String),
    /// The same on standard error.
    Told(String),
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
        say!("{}", help(name.map(|v| v.name)));
        return exit::OK;
    }
    let line = match Line::parse(arguments) {
        Ok(line) => line,
        Err(message) => return report(&Failure::BadUse(message), None),
    };
    if line.has("--ssl") {
        complain_line!("nodetool: note: the API has no TLS; this connection is not encrypted");
    }
    match run(&line) {
        Ok(text) => {
            say!("{text}");
            exit::OK
        }
        Err(failure) => report(&failure, Some(&line.api)),
    }
}

fn report(failure: &Failure, api: Option<&Api>) -> u8 {
    match failure {
        // Cassandra's tool looks for the table itself.
        Failure::BadUse(message) if message.starts_with("ColumnFamilyStore for ") => {
            complain_line!("{message}");
            BAD_USE
        }
        Failure::BadUse(message) => {
            say_line!("nodetool: {message}");
            say_line!("See 'nodetool help' or 'nodetool help <command>'.");
            BAD_USE
        }
        Failure::Printed(text) => {
            say!("{text}");
            BAD_USE
        }
        Failure::Told(text) => {
            complain!("{text}");
            BAD_USE
        }
        Failure::Connect(error) => {
            let (host, port) = api.map_or(("", 0), |a| (a.host.as_str(), a.port));
            let kind = match error.kind() {
                std::io::ErrorKind::ConnectionRefused => "ConnectException",
                std::io::ErrorKind::TimedOut => "SocketTimeoutException",
                _ => "IOException",
            };
            let text = error.to_string();
            // As Java words it, without the system's number.
            let cause = text.split_once(" (os error").map_or(text.as_str(), |(cause, _)| cause);
            complain_line!("nodetool: Failed to connect to '{host}:{port}' - {kind}: '{cause}'.");
            if let Some(hint) = hint_at_the_port(port) {
                complain_line!("{hint}");
            }
            BAD_USE
        }
        Failure::Node(message) => {
            complain_line!("error: {message}");
            FAILED
        }
    }
}

/// Runbooks name the port of JMX, where no node listens.
fn hint_at_the_port(port: u16) -> Option<&'static str> {
    (port == JMX_PORT).then_some(
        "7199 is the port of Cassandra's JMX. Nodes of Helenus serve nodetool on their API port, 10000 \
         unless \"api_port\" names another: leave \"-p 7199\" out.",
    )
}

fn run(line: &Line) -> Result<String, Failure> {
    let api = &line.api;
    let keyspace = line.arguments.first().map(String::as_str);
    match line.verb {
        "help" => Ok(help(keyspace)),
        "status" => layout::status(&shown(line)?, keyspace, line.style).map_err(Failure::Printed),
        "ring" => layout::ring(&shown(line)?, keyspace, line.style).map_err(Failure::Printed),
        "info" => info(line),
        "version" => Ok(layout::version(&node(api)?)),
        "describecluster" => {
            Ok(layout::describe_cluster(&node(api)?, &cluster::report(api)?, line.style))
        }
        "flush" => tables_command(line, "/api/v1/flush"),
        "compact" => upkeep::compact(line),
        "upgradesstables" => upgrade_sstables(line),
        "drain" => {
            api.command("POST", "/api/v1/drain", &DrainRequest {})?;
            Ok(String::new())
        }
        "snapshot" => snapshots::take(line),
        "listsnapshots" => snapshots::list(line),
        "clearsnapshot" => snapshots::clear(line),
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
            let format = Format::of(line, "json,yaml")?;
            let history: Vec<HistoryReport> = api.get("/api/v1/compactions/history")?;
            Ok(format.choose(
                || layout::compaction_history(&history),
                || layout::compaction_history_json(&history),
            ))
        }
        "compactionplan" => compaction_plan(line),
        "compactionstats" => {
            let report: CompactionReport = api.get("/api/v1/compactions")?;
            let style = layout::CompactionStatsStyle {
                human_readable: line.has("--human-readable"),
                as_table: line.has("--vtable"),
            };
            Ok(layout::compaction_stats(&report, style))
        }
        // As Cassandra's tool does: it has no command without another word.
        "bootstrap" if line.arguments.is_empty() => Ok(help(None)),
        "repair" => repair::run(line),
        "repair_admin" => repair::admin(line),
        "autorepairstatus" => repair::auto_status(line),
        "getautorepairconfig" => repair::auto_config(line),
        "setautorepairconfig" => repair::set_auto(line),
        "sstablerepairedset" => repaired_set::run(line),
        "checktokenmetadata" => token_metadata::run(api),
        _ => {
            match upkeep::run(line)
                .or_else(|| sampling::run(line))
                .or_else(|| auth_caches::run(line))
                .or_else(|| cidr::run(line))
                .or_else(|| query_logs::run(line))
                .or_else(|| settings::run(line))
            {
                Some(done) => done,
                None => cluster::run(line),
            }
        }
    }
}

/// The node, with names for addresses where `-r` asks for them.
fn shown(line: &Line) -> Result<NodeReport, Failure> {
    let mut node = node(&line.api)?;
    if line.has("--resolve-ip") {
        let names = names::of(&node)?;
        for member in &mut node.nodes {
            if let Some(name) = names.get(&member.address) {
                member.address.clone_from(name);
            }
        }
    }
    Ok(node)
}

fn node(api: &Api) -> Result<NodeReport, Failure> {
    Ok(api.get("/api/v1/node")?)
}

fn info(line: &Line) -> Result<String, Failure> {
    let node = node(&line.api)?;
    let tables: Vec<TableReport> = line.api.get("/api/v1/tables")?;
    let caches: Vec<CacheReport> = line.api.get("/api/v1/caches")?;
    let cluster = cluster::report(&line.api)?;
    Ok(layout::info(&node, &cluster, &tables, &caches, line.has("--tokens")))
}

/// Keyspaces and tables that a command names; none: all.
fn keyspaces_and_tables(line: &Line) -> Result<(Vec<String>, Vec<String>), Failure> {
    let Some((keyspace, tables)) = line.arguments.split_first() else {
        return Ok((Vec::new(), Vec::new()));
    };
    let node = node(&line.api)?;
    if !node.keyspaces.iter().any(|k| k.name == *keyspace) {
        return Err(Failure::BadUse(format!("Keyspace [{keyspace}] does not exist.")));
    }
    Ok((vec![keyspace.clone()], tables.to_vec()))
}

fn tables_command(line: &Line, path: &str) -> Result<String, Failure> {
    let (keyspaces, tables) = keyspaces_and_tables(line)?;
    line.api.command("POST", path, &TablesRequest { keyspaces, tables })?;
    Ok(String::new())
}

fn compaction_plan(line: &Line) -> Result<String, Failure> {
    let (keyspaces, tables) = keyspaces_and_tables(line)?;
    if let (Some(keyspace), false) = (keyspaces.first(), tables.is_empty()) {
        let node = node(&line.api)?;
        let known = node.keyspace(keyspace).map_or(&[][..], |k| k.tables.as_slice());
        if let Some(missing) = tables.iter().find(|table| !known.contains(table)) {
            let text = format!("Unknown keyspace/cf pair ({keyspace}.{missing})");
            return Err(Failure::BadUse(text));
        }
    }
    let mut plans: Vec<PlannedReport> = line.api.get("/api/v1/compactions/plan")?;
    plans.retain(|plan| {
        (keyspaces.is_empty() || keyspaces.contains(&plan.keyspace))
            && (tables.is_empty() || tables.contains(&plan.table))
    });
    Ok(layout::compaction_plan(&plans, line.has("--human-readable")))
}

fn upgrade_sstables(line: &Line) -> Result<String, Failure> {
    upkeep::check_jobs(line)?;
    let (keyspaces, tables) = keyspaces_and_tables(line)?;
    let all = line.has("--include-all-sstables");
    let written_by = match line.value("--max-timestamp") {
        None => None,
        Some(text) => Some(text.parse().map_err(|_| {
            Failure::BadUse(format!("max_timestamp: can not convert \"{text}\" to a long"))
        })?),
    };
    let request = UpgradeRequest { keyspaces, tables, all, written_by };
    line.api.command("POST", "/api/v1/upgradesstables", &request)?;
    Ok(String::new())
}

fn millis_now() -> u128 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |d| d.as_millis())
}

/// The output that `-F` asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Text,
    Json,
    Yaml,
}

impl Format {
    /// `known` is how Cassandra's command names the two in its refusal.
    fn of(line: &Line, known: &str) -> Result<Format, Failure> {
        match line.value("--format") {
            None => Ok(Format::Text),
            Some("json") => Ok(Format::Json),
            Some("yaml") => Ok(Format::Yaml),
            Some(_) => Err(Failure::BadUse(format!("arguments for -F are {known} only."))),
        }
    }

    fn choose(self, text: impl FnOnce() -> String, json: impl FnOnce() -> String) -> String {
        match self {
            Format::Text => text(),
            Format::Json => json(),
            Format::Yaml => layout::yaml_of_json(&json()),
        }
    }
}

fn table_stats(line: &Line) -> Result<String, Failure> {
    let format = line.value("--format").unwrap_or_default();
    if !["", "json", "yaml"].contains(&format) {
        return Err(Failure::BadUse("arguments for -F are json,yaml only.".to_owned()));
    }
    let sort = line.value("--sort").map(layout::SortKey::parse).transpose();
    let sort = sort.map_err(Failure::BadUse)?;
    let top: i32 = match line.value("--top") {
        None => 0,
        Some(text) => text
            .parse()
            .map_err(|_| Failure::BadUse(format!("top: can not convert \"{text}\" to a int")))?,
    };
    if top > 0 && sort.is_none() {
        let text = "cannot filter top K tables without specifying a sort key.";
        return Err(Failure::BadUse(text.to_owned()));
    }
    let top = usize::try_from(top)
        .map_err(|_| Failure::BadUse("argument for top must be a positive integer.".to_owned()))?;
    let filter = TableFilter { ignore: line.has("-i"), names: line.arguments.clone() };
    let options = TableStatsOptions {
        human_readable: line.has("--human-readable"),
        location_check: line.has("--sstable-location-check"),
        sort,
        top,
    };
    let tables: Vec<TableReport> = line.api.get("/api/v1/tables")?;
    let text = match format {
        "json" => layout::table_stats_json(&tables, &filter, options),
        "yaml" => layout::table_stats_yaml(&tables, &filter, options),
        _ => layout::table_stats(&tables, &filter, options),
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
            out.push_str(&format!("    {:<34}{}\n", verb.name, verb.help));
        }
        out.push_str(
            "\nOf Cassandra's commands these are refused; 'nodetool help <command>' says why:\n",
        );
        for (name, _) in REFUSED {
            out.push_str(&format!("    {name}\n"));
        }
        out.push_str(
            "\nSee 'nodetool help <command>' for more information on a specific command.\n",
        );
        return out;
    };
    let Some(verb) = verb(name) else {
        return match refused(name) {
            Some(why) => format!("{name} is not supported: {why}\n\n"),
            None => format!("Unknown command {name}\n\n"),
        };
    };
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

    pub(super) fn parse(text: &str) -> Result<Line, String> {
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

    /// Recorded from a Cassandra 5.0.9.
    #[test]
    fn lines_that_are_not_understood_are_refused_in_cassandras_words() {
        let thresholds = "<keyspace> <table> <minthreshold> <maxthreshold>";
        for (text, expected) in [
            ("nosuch x", "Found unexpected parameters: [nosuch, x]".to_owned()),
            ("-x flush", "Found unexpected parameters: [-x, flush]".to_owned()),
            ("-x -h flush", "Found unexpected parameters: [-x, -h, flush]".to_owned()),
            ("drain x", "Found unexpected parameters: [x]".to_owned()),
            ("-p x flush", "For input string: \"x\"".to_owned()),
            ("compact -st", "Required values for option 'start_token' not provided".to_owned()),
            ("setcompactionthreshold", format!("Required parameters are missing: {thresholds}")),
        ] {
            assert_eq!(parse(text).unwrap_err(), expected, "{text}");
        }
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
            ("removenode", "Required parameters are missing: remove_operation"),
            ("assassinate", "Required parameters are missing: ip address"),
            ("snapshot -t", "Required values for option 'tag' not provided"),
        ];
        for (text, expected) in refused {
            assert_eq!(parse(text).unwrap_err(), expected, "{text}");
        }
    }

    #[test]
    fn options_of_runbooks_are_accepted() {
        for text in [
            "-Dcom.sun.x=1 -h ::1 status -r",
            "-u me -pw secret -h ::1 status -r",
            "-h ::1 status -r -pwf /no/such/file -u me",
            "--ssl -h ::1 -Djavax.net.ssl.trustStore=/t status -Dx -r",
            "--username=me --password=x -h ::1 status -r",
        ] {
            let line = parse(text).unwrap();
            assert_eq!((line.verb, line.api.host.as_str()), ("status", "::1"), "{text}");
            assert!(line.has("--resolve-ip") && line.arguments.is_empty(), "{text}");
            assert_eq!(line.has("--ssl"), text.contains("--ssl"));
        }
        assert_eq!(parse("-u").unwrap_err(), "Required values for option 'username' not provided");
        assert_eq!(parse("flush -- -Dks").unwrap().arguments, ["-Dks"]);
        assert_eq!(parse("-D status").unwrap_err(), "Found unexpected parameters: [-D, status]");
    }

    #[test]
    fn a_refused_connection_at_the_port_of_jmx_hints_at_that_of_the_api() {
        assert!(hint_at_the_port(7199).unwrap().contains("10000"));
        assert_eq!(hint_at_the_port(10_000), None);
    }

    #[test]
    fn the_order_of_tablestats_is_checked_before_anybody_is_asked() {
        let refused = [
            ("tablestats -F xml", "arguments for -F are json,yaml only."),
            ("tablestats -t 3", "cannot filter top K tables without specifying a sort key."),
            ("tablestats -s reads -t -3", "argument for top must be a positive integer."),
            ("tablestats -s reads -t x", "top: can not convert \"x\" to a int"),
            ("tablestats -s dropped_mutations", "Unsupported sort key: dropped_mutations"),
        ];
        for (text, expected) in refused {
            match table_stats(&parse(text).unwrap()) {
                Err(Failure::BadUse(message)) => assert_eq!(message, expected, "{text}"),
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    #[test]
    fn every_command_is_carried_out_and_has_help() {
        let nobody = Api { host: "127.0.0.1".to_owned(), port: 1 };
        for verb in VERBS {
            let text = help(Some(verb.name));
            assert!(text.starts_with(&format!("NAME\n        nodetool {} - ", verb.name)));
            assert!(help(None).contains(&format!("\n    {} ", verb.name)));
            let arguments = match verb.name {
                "getendpoints" | "getsstables" => "ks t 1",
                "gettimeout" => "read",
                "settimeout" => "read 5",
                "setguardrailsconfig" => "group_by_enabled true",
                "disablehintsfordc" | "enablehintsfordc" => "dc1",
                "bootstrap" => "resume",
                "dropcidrgroup" => "g",
                "setcachecapacity" => "0 1 0",
                "setcachekeystosave" => "0 1 0",
                "getcidrgroupsofip" => "127.0.0.1",
                "updatecidrgroup" => "g 10.0.0.0/8",
                "import" => "ks t /directory",
                "forcecompact" => "ks t 5",
                "getcompactionthreshold" | "refresh" => "ks t",
                "setcompactionthreshold" => "ks t 4 32",
                "setautorepairconfig" => "enabled true",
                _ if verb.required.is_empty() => "",
                _ => "7",
            };
            let line = parse(&format!("{} {arguments}", verb.name)).unwrap();
            match run(&Line { api: nobody.clone(), ..line }) {
                // The second one says which of two options it wants.
                Ok(_) => assert!(["help", "sstablerepairedset"].contains(&verb.name)),
                Err(Failure::Connect(_)) => {}
                // They want one of two options, or a number that 7 is not.
                Err(Failure::BadUse(_)) => {
                    let of_their_own = [
                        "abortbootstrap",
                        "clearsnapshot",
                        "getauthcacheconfig",
                        "setauthcacheconfig",
                        "settraceprobability",
                    ];
                    assert!(of_their_own.contains(&verb.name));
                }
                Err(other) => panic!("{}: {other:?}", verb.name),
            }
        }
        assert_eq!(help(Some("foo")), "Unknown command foo\n\n");
        let text = parse("rebuild_index ks").unwrap_err();
        assert!(text.starts_with("rebuild_index is not supported: "), "{text}");
        assert_eq!(parse("move -5").unwrap().arguments, ["-5"]);
        // An option of the command comes before one of all.
        let line = parse("-p 9 import -p ks t /d").unwrap();
        assert_eq!((line.api.port, line.has("--copy-data")), (9, true));
    }
}
