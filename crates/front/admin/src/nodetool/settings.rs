//! Output of nodetool about single settings, and about clients.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::format::{Table, java_double};
use crate::model::{ClientReport, LogLevelReport};

/// Java's output for an unknown value.
const UNDEFINED: &str = "undefined";

/// How `nodetool getcompactionthroughput` prints the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThroughputStyle {
    /// `-d`: with a fraction.
    pub is_precise: bool,
}

/// `nodetool getcompactionthroughput`, exactly (`-d`) or as a whole number.
///
/// # Errors
/// A whole number of MiB is requested and the limit is none. The message is that of Cassandra's
/// tool.
pub fn compaction_throughput(bytes: u64, style: ThroughputStyle) -> Result<String, String> {
    let is_precise = style.is_precise;
    let mib = bytes as f64 / f64::from(1 << 20);
    match (is_precise, mib.fract() == 0.0) {
        (true, _) => Ok(format!("Current compaction throughput: {} MiB/s\n", java_double(mib))),
        (false, true) => Ok(format!("Current compaction throughput: {mib} MB/s\n")),
        (false, false) => {
            let text = "Use the -d flag to quiet this error and get the exact throughput in MiB/s";
            Err(text.to_owned())
        }
    }
}

/// `nodetool gettraceprobability`.
pub fn trace_probability(probability: f64) -> String {
    // It is stored in units of 2^-32.
    let rounded = (probability * 1e6).round() / 1e6;
    format!("Current trace probability: {}\n", java_double(rounded))
}

/// Names and values in two columns, as `nodetool getauditlog` prints them.
pub fn pairs(rows: &[(String, String)]) -> String {
    let mut table = Table::new(" ");
    for (name, value) in rows {
        table.add(&[name, value]);
    }
    let mut out = String::new();
    table.print(&mut out);
    out
}

/// `nodetool getlogginglevels`.
pub fn logging_levels(levels: &[LogLevelReport]) -> String {
    let mut out = format!("\n{:<50}{:>10}\n", "Logger Name", "Log Level");
    for LogLevelReport { logger, level } in levels {
        let _ = writeln!(out, "{logger:<50}{level:>10}");
    }
    out
}

/// Directories by keyspace and table.
type Paths = BTreeMap<String, BTreeMap<String, Vec<String>>>;

/// `nodetool datapaths`.
pub fn data_paths(paths: &Paths) -> String {
    let mut out = String::new();
    for (keyspace, tables) in paths {
        let _ = writeln!(out, "Keyspace: {keyspace}");
        for (table, directories) in tables {
            let _ = writeln!(out, "\tTable: {table}\n\tPaths:");
            for directory in directories {
                let _ = writeln!(out, "\t\t{directory}");
            }
            out.push('\n');
        }
    }
    out
}

/// `nodetool datapaths -F json`.
pub fn data_paths_json(paths: &Paths) -> String {
    format!("{}\n", serde_json::json!(paths))
}

/// Columns of `nodetool clientstats`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientStatsStyle {
    /// `--all`: each connection.
    pub all: bool,
    /// `--client-options`: each with its options.
    pub with_options: bool,
}

/// `nodetool clientstats`, with `--all` and `--client-options`.
pub fn client_stats(clients: &[ClientReport], style: ClientStatsStyle) -> String {
    let ClientStatsStyle { all, with_options } = style;
    let mut out = String::new();
    let titles = [
        "Address",
        "SSL",
        "Cipher",
        "Protocol",
        "Version",
        "User",
        "Keyspace",
        "Requests",
        "Driver-Name",
        "Driver-Version",
        "Client-Options",
    ];
    for has_options in [false, true] {
        let is_wanted = if has_options { with_options } else { all };
        if !is_wanted || clients.is_empty() {
            continue;
        }
        let mut table = Table::new(" ");
        let columns = if has_options { titles.len() } else { titles.len() - 1 };
        table.add(titles.get(..columns).unwrap_or(&titles));
        for client in clients {
            let options: Vec<String> =
                client.options.iter().map(|(key, value)| format!("{key}={value}")).collect();
            let mut cells = vec![
                format!("/{}:{}", client.address, client.port),
                client.ssl_protocol.is_some().to_string(),
                client.ssl_cipher_suite.clone().unwrap_or_else(|| UNDEFINED.to_owned()),
                client.ssl_protocol.clone().unwrap_or_else(|| UNDEFINED.to_owned()),
                client.protocol_version.to_string(),
                client.user.clone(),
                client.keyspace.clone(),
                client.requests.to_string(),
                client.driver_name.clone().unwrap_or_else(|| UNDEFINED.to_owned()),
                client.driver_version.clone().unwrap_or_else(|| UNDEFINED.to_owned()),
            ];
            if has_options {
                cells.push(options.join(", "));
            }
            table.add(&cells.iter().map(String::as_str).collect::<Vec<_>>());
        }
        table.print(&mut out);
        out.push('\n');
    }
    let mut by_user: BTreeMap<&str, usize> = BTreeMap::new();
    for client in clients {
        *by_user.entry(&client.user).or_default() += 1;
    }
    let _ = writeln!(out, "Total connected clients: {}\n", clients.len());
    let mut table = Table::new(" ");
    table.add(&["User", "Connections"]);
    for (user, count) in by_user {
        table.add(&[user, &count.to_string()]);
    }
    table.print(&mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throughput_of_compactions_is_cassandras() {
        let of = |bytes, precise| {
            compaction_throughput(bytes, ThroughputStyle { is_precise: precise }).unwrap()
        };
        assert_eq!(of(64 << 20, false), "Current compaction throughput: 64 MB/s\n");
        assert_eq!(of(3 << 19, true), "Current compaction throughput: 1.5 MiB/s\n");
        assert!(compaction_throughput(3 << 19, ThroughputStyle::default()).is_err());
        assert_eq!(trace_probability(0.2), "Current trace probability: 0.2\n");
    }

    #[test]
    fn clients_are_counted_by_user() {
        let client = |user: &str, port| ClientReport {
            address: "127.0.0.1".to_owned(),
            port,
            user: user.to_owned(),
            protocol_version: 5,
            ..ClientReport::default()
        };
        let clients = [client("anonymous", 1), client("anonymous", 2), client("me", 3)];
        assert_eq!(
            client_stats(&clients, ClientStatsStyle::default()),
            "Total connected clients: 3\n\nUser      Connections\nanonymous 2          \nme        1          \n"
        );
        let all = client_stats(&clients[..1], ClientStatsStyle { all: true, with_options: false });
        assert!(
            all.starts_with("Address      SSL   Cipher    Protocol  Version User      Keyspace")
        );
        assert!(all.contains("/127.0.0.1:1 false undefined undefined 5       anonymous"));
    }
}
