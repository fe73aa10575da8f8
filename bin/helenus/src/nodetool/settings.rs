//! Commands that show one setting or change it, and who is connected.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use admin::model::{
    ClientReport, ClusterCommand, CompactionReport, GuardrailReport, GuardrailRequest,
    LogLevelReport, SettingsReport, TableReport,
};
use admin::nodetool as layout;

use super::cluster::{bad, number, report, tell};
use super::{Failure, Format, Line, node};
use crate::http::Api;

/// Components of Cassandra's `setlogginglevel` and the modules that do here what is meant.
const COMPONENTS: [(&str, &[&str]); 6] = [
    ("bootstrap", &["node::cluster", "membership", "hints"]),
    ("compaction", &["store"]),
    ("repair", &["repair"]),
    ("streaming", &["streaming"]),
    ("cql", &["cql_server", "coordinator"]),
    ("ring", &["liveness", "messaging"]),
];

/// The arguments of `setcachecapacity`.
const CAPACITIES: &str = "<key-cache-capacity> <row-cache-capacity> <counter-cache-capacity>";

/// `None`: another one's command.
pub(super) fn run(line: &Line) -> Option<Result<String, Failure>> {
    let api = &line.api;
    let first = || line.arguments.first().cloned().unwrap_or_default();
    Some(match line.verb {
        "clientstats" => clients(line),
        "datapaths" => data_paths(line),
        "getbatchlogreplaythrottle" => settings(api).map(|s| {
            format!("Batchlog replay throttle: {} KB/s\n", s.batchlog_bytes_per_second >> 10)
        }),
        "setbatchlogreplaythrottle" => {
            number(&first(), "batchlog_replay_throttle").and_then(|kib| {
                tell(api, &ClusterCommand::SetBatchlogThrottle { kib_per_second: kib })
            })
        }
        "getcolumnindexsize" => settings(api).map(|s| {
            format!("Current value for column_index_size: {} KiB\n", s.column_index_bytes >> 10)
        }),
        "setcolumnindexsize" => set_column_index_size(api, &first()),
        "getsnapshotthrottle" => settings(api).map(|s| snapshot_throttle(&s)),
        "setsnapshotthrottle" => set_snapshot_throttle(api, &first()),
        "getdefaultrf" => settings(api).map(|s| format!("{}\n", s.default_keyspace_rf)),
        "setdefaultrf" => set_default_rf(api, &first()),
        "enableoldprotocolversions" => set(api, "native_transport_allow_older_protocols", "true"),
        "disableoldprotocolversions" => set(api, "native_transport_allow_older_protocols", "false"),
        // As on a Cassandra whose key cache has no capacity.
        "invalidatekeycache" => report(api).map(|_| String::new()),
        "setcachekeystosave" => set_keys_to_save(line),
        "setcachecapacity" => set_cache_capacity(line),
        "invalidaterowcache" => tell(api, &ClusterCommand::InvalidateRowCache {}),
        "invalidatecountercache" => tell(api, &ClusterCommand::InvalidateCounterCache {}),
        "getcompactionthroughput" => compactions(api).and_then(|report| {
            let bytes = report.bytes_per_second_max;
            layout::compaction_throughput(bytes, line.has("--precise-mib")).map_err(Failure::Node)
        }),
        "setcompactionthroughput" => mib_per_second(&first()).and_then(|mib| {
            let bytes_per_second = mib << 20;
            tell(api, &ClusterCommand::SetCompactionThroughput { bytes_per_second })
        }),
        "getconcurrentcompactors" => compactions(api).map(|report| {
            format!("Current concurrent compactors in the system is: \n{}\n", report.concurrent)
        }),
        "setconcurrentcompactors" => set_concurrent_compactors(api, &first()),
        "getcompactionshare" => compactions(api)
            .map(|report| format!("Current compaction share: {} of 1000\n", report.share)),
        "setcompactionshare" => set_compaction_share(api, &first()),
        "rangekeysample" => key_samples(api),
        "getseeds" => seeds(api, "Current list of seed node IPs"),
        "reloadseeds" => reload_seeds(api),
        "gettraceprobability" => {
            settings(api).map(|s| layout::trace_probability(s.trace_probability))
        }
        "settraceprobability" => set_trace_probability(api, &first()),
        "statusbackup" => settings(api).map(|s| match s.incremental_backups {
            true => "running\n".to_owned(),
            false => "not running\n".to_owned(),
        }),
        "join" => report(api).and_then(|report| {
            Err(bad(match report.operation_mode.as_str() {
                "JOINING" => "Cannot join the ring until bootstrap completes".to_owned(),
                _ => "This node has already joined the ring.".to_owned(),
            }))
        }),
        // It may be gone before it has answered.
        "stopdaemon" => match tell(api, &ClusterCommand::StopDaemon {}) {
            Err(Failure::Connect(error)) if !is_cut_off(&error) => Err(Failure::Connect(error)),
            _ => Ok(String::new()),
        },
        "getguardrailsconfig" => guardrails(line),
        "setguardrailsconfig" => set_guardrail(line),
        "getlogginglevels" => levels(api).map(|levels| layout::logging_levels(&levels)),
        "setlogginglevel" => set_level(line),
        _ => return None,
    })
}

fn is_cut_off(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset)
}

pub(super) fn settings(api: &Api) -> Result<SettingsReport, Failure> {
    let settings = report(api)?.settings;
    settings.ok_or_else(|| Failure::Node("the node does not tell its settings".to_owned()))
}

/// Changes a setting by its name in cassandra.yaml.
pub(super) fn set(api: &Api, name: &str, value: &str) -> Result<String, Failure> {
    let (name, value) = (name.to_owned(), value.to_owned());
    tell(api, &ClusterCommand::SetSetting { name, value })
}

/// A Java `int`.
pub(super) fn int(text: &str, title: &str) -> Result<i32, Failure> {
    text.parse().map_err(|_| bad(format!("{title}: can not convert \"{text}\" to a Integer")))
}

/// Where there is no limit Cassandra has the largest Java `long`.
fn snapshot_throttle(settings: &SettingsReport) -> String {
    let links = match settings.snapshot_links_per_second {
        0 => i64::MAX as u64,
        links => links,
    };
    format!("Current snapshot throttle: {links} links/s\n")
}

fn set_snapshot_throttle(api: &Api, text: &str) -> Result<String, Failure> {
    let title = "setsnapshotthrottle";
    let links: i64 =
        text.parse().map_err(|_| bad(format!("{title}: can not convert \"{text}\" to a Long")))?;
    match u64::try_from(links) {
        Ok(links) => set(api, "snapshot_links_per_second", &links.to_string()),
        Err(_) => {
            let text = "Invalid throttle for snapshot_links_per_second: must be positive";
            Err(bad(text.to_owned()))
        }
    }
}

fn set_column_index_size(api: &Api, text: &str) -> Result<String, Failure> {
    match u64::try_from(int(text, "column_index_size")?) {
        Ok(kib) => set(api, "column_index_size", &(kib << 10).to_string()),
        Err(_) => Err(bad("Invalid data storage: value must be non-negative".to_owned())),
    }
}

fn set_default_rf(api: &Api, text: &str) -> Result<String, Failure> {
    match int(text, "default_rf")? {
        ..=0 => Err(bad("default_keyspace_rf cannot be less than 1".to_owned())),
        factor => set(api, "default_keyspace_rf", &factor.to_string()),
    }
}

/// The arguments of `setcachekeystosave`.
const KEYS_TO_SAVE: &str =
    "<key-cache-keys-to-save> <row-cache-keys-to-save> <counter-cache-keys-to-save>";

fn set_keys_to_save(line: &Line) -> Result<String, Failure> {
    let mut numbers = Vec::new();
    for text in &line.arguments {
        numbers.push(int(text, KEYS_TO_SAVE)?);
    }
    let [_, rows, counters] = numbers.as_slice() else {
        return Err(bad(
            "setcachekeystosave requires key-cache-keys-to-save, row-cache-keys-to-save, and counter-cache-keys-to-save args."
                .to_owned(),
        ));
    };
    // What is saved of the key cache is nothing, however much may be.
    for (cache, keys) in [("row", rows), ("counter", counters)] {
        let name = format!("{cache}_cache_keys_to_save");
        set(&line.api, &name, &(*keys).max(0).to_string())?;
    }
    Ok(String::new())
}

/// Text of Cassandra's `SetCacheCapacity` when there are not three.
fn set_cache_capacity(line: &Line) -> Result<String, Failure> {
    let [key, row, counter] = line.arguments.as_slice() else {
        return Err(bad(
            "setcachecapacity requires key-cache-capacity, row-cache-capacity, and counter-cache-capacity args."
                .to_owned(),
        ));
    };
    let keys = number(key, CAPACITIES)?;
    let bytes_of = |value| {
        let mib = number(value, CAPACITIES)?;
        mib.checked_mul(1 << 20).ok_or_else(|| bad(format!("{mib} MB are too many")))
    };
    let rows = bytes_of(row)?;
    let counters = bytes_of(counter)?;
    if keys != 0 {
        let text = "there is no key cache, its capacity can only be 0; files' blocks and indexes are in the chunk \
                    cache";
        return Err(bad(text.to_owned()));
    }
    let told = tell(&line.api, &ClusterCommand::SetRowCacheCapacity { bytes: rows })?;
    tell(&line.api, &ClusterCommand::SetCounterCacheCapacity { bytes: counters })?;
    Ok(told)
}

fn compactions(api: &Api) -> Result<CompactionReport, Failure> {
    Ok(api.get("/api/v1/compactions")?)
}

fn levels(api: &Api) -> Result<Vec<LogLevelReport>, Failure> {
    Ok(api.get("/api/v1/log")?)
}

fn guardrails(line: &Line) -> Result<String, Failure> {
    let category = line.value("--category").map(str::to_owned);
    if let Some(category) = &category
        && !layout::GUARDRAIL_CATEGORIES.contains(&category.as_str())
    {
        return Err(bad(format!(
            "Error: Illegal value for -c/--category used: '{category}'. Supported values are {}.",
            layout::GUARDRAIL_CATEGORIES.join(",")
        )));
    }
    let name = match (line.arguments.as_slice(), &category) {
        ([_, _, ..], _) => {
            let text = "Specify only one guardrail name to get the configuration of or no name to \
                        get the configuration of all of them.";
            return Err(bad(text.to_owned()));
        }
        ([_], Some(_)) => {
            let text = "Do not specify additional arguments when --category/-c is set.";
            return Err(bad(text.to_owned()));
        }
        (names, _) => names.first().cloned(),
    };
    let all: Vec<GuardrailReport> = line.api.get("/api/v1/guardrails")?;
    let wanted = layout::GuardrailsWanted { category, name, expand: line.has("--expand") };
    layout::guardrails(&all, &wanted).map_err(bad)
}

fn set_guardrail(line: &Line) -> Result<String, Failure> {
    let [name, values @ ..] = line.arguments.as_slice() else {
        return Err(bad("No arguments.".to_owned()));
    };
    let change = GuardrailRequest { name: name.clone(), values: values.to_vec() };
    match line.api.command("PUT", "/api/v1/guardrails", &change) {
        Ok(()) => Ok(String::new()),
        Err(crate::http::HttpError::Refused(400, words)) => Err(bad(words)),
        Err(error) => Err(error.into()),
    }
}

fn clients(line: &Line) -> Result<String, Failure> {
    let clients: Vec<ClientReport> = line.api.get("/api/v1/clients")?;
    Ok(layout::client_stats(&clients, line.has("--all"), line.has("--client-options")))
}

fn data_paths(line: &Line) -> Result<String, Failure> {
    let format = Format::of(line, "yaml and json")?;
    let roots = settings(&line.api)?.data_directories;
    let tables: Vec<TableReport> = line.api.get("/api/v1/tables")?;
    let wanted = &line.arguments;
    let mut paths: BTreeMap<String, BTreeMap<String, Vec<String>>> = BTreeMap::new();
    for table in tables {
        let name = format!("{}.{}", table.keyspace, table.table);
        if wanted.is_empty() || wanted.contains(&name) || wanted.contains(&table.keyspace) {
            let path = |root: &String| {
                let root = root.trim_end_matches('/');
                format!("{root}/{}/{}-{}", table.keyspace, table.table, table.id)
            };
            let of_table = roots.iter().map(path).collect();
            paths.entry(table.keyspace).or_default().insert(table.table, of_table);
        }
    }
    Ok(format.choose(|| layout::data_paths(&paths), || layout::data_paths_json(&paths)))
}

fn key_samples(api: &Api) -> Result<String, Failure> {
    let tokens: Vec<String> = api.get("/api/v1/key_samples")?;
    let lines = tokens.iter().map(|token| format!("\t{token}\n"));
    Ok(std::iter::once("RangeKeySample: \n".to_owned()).chain(lines).collect())
}

fn reload_seeds(api: &Api) -> Result<String, Failure> {
    match tell(api, &ClusterCommand::ReloadSeeds {}) {
        Ok(_) => seeds(api, "Updated seed node IP list"),
        // Cassandra's tool says the first sentence only and ends with 0.
        Err(Failure::Node(why)) => {
            Err(Failure::Printed(format!("Failed to reload the seed node list. {why}\n")))
        }
        Err(other) => Err(other),
    }
}

/// The seeds behind such words.
fn seeds(api: &Api, what: &str) -> Result<String, Failure> {
    let (seeds, node) = (settings(api)?.seeds, node(api)?);
    let me = node.nodes.iter().find(|n| n.host_id == node.host_id);
    // As Cassandra writes them: with a slash and the port.
    let port = me.map_or(0, |m| m.storage_port);
    let slashed = |seed: &String| match seed.parse::<IpAddr>() {
        Ok(ip) => format!("/{}", SocketAddr::new(ip, port)),
        Err(_) => format!("/{seed}"),
    };
    let own = me.map(|m| slashed(&m.address)).unwrap_or_default();
    let others: Vec<String> = seeds.iter().map(slashed).filter(|seed| *seed != own).collect();
    Ok(match others.as_slice() {
        [] => "Seed node list does not contain any remote node IPs\n".to_owned(),
        others => format!("{what}, excluding the current node's IP: {}\n", others.join(" ")),
    })
}

/// A rate that Cassandra's setting takes.
fn mib_per_second(text: &str) -> Result<u64, Failure> {
    match number(text, "compaction_throughput") {
        Ok(rate) if rate == i32::MAX as u64 => Err(bad(format!(
            "compaction_throughput: {rate} is too large; it should be less than {rate} in MiB/s"
        ))),
        Err(_) if text.parse::<i32>().is_ok() => {
            Err(bad("Invalid data rate: value must be non-negative".to_owned()))
        }
        other => other,
    }
}

fn set_concurrent_compactors(api: &Api, text: &str) -> Result<String, Failure> {
    match number(text, "concurrent_compactors")?.try_into() {
        Ok(count @ 1..) => tell(api, &ClusterCommand::SetConcurrentCompactors { count }),
        _ => Err(bad("concurrent_compactors should be great than 0.".to_owned())),
    }
}

fn set_compaction_share(api: &Api, text: &str) -> Result<String, Failure> {
    let share = match text {
        "auto" => None,
        number => match number.parse() {
            Ok(share @ 1..=1000) => Some(share),
            _ => return Err(bad("compaction_share should be 1 to 1000, or auto.".to_owned())),
        },
    };
    tell(api, &ClusterCommand::SetCompactionShare { share })
}

fn set_trace_probability(api: &Api, text: &str) -> Result<String, Failure> {
    let probability: f64 = text
        .parse()
        .map_err(|_| bad(format!("trace_probability: can not convert \"{text}\" to a Double")))?;
    if !(0.0..=1.0).contains(&probability) {
        return Err(bad("Trace probability must be between 0 and 1".to_owned()));
    }
    let per_million = (probability * 1e6).round() as u32;
    tell(api, &ClusterCommand::SetTraceProbability { per_million })
}

fn set_level(line: &Line) -> Result<String, Failure> {
    let (target, level) = match line.arguments.as_slice() {
        [] => ("", None),
        [target] => (target.as_str(), None),
        [target, level, ..] => (target.as_str(), Some(level.clone())),
    };
    let of_component = COMPONENTS.iter().find(|(name, _)| *name == target);
    let modules = of_component.map_or(vec![target], |(_, modules)| modules.to_vec());
    for module in modules {
        let module = if module == "ROOT" { "" } else { module };
        let body =
            LogLevelReport { logger: module.to_owned(), level: level.clone().unwrap_or_default() };
        match line.api.command("PUT", "/api/v1/log", &body) {
            Ok(()) => {}
            Err(crate::http::HttpError::Refused(400, words)) => return Err(bad(words)),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(String::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded from a Cassandra 5.0.9.
    #[test]
    fn settings_that_cassandra_does_not_take_are_refused_in_its_words() {
        let api = Api { host: "127.0.0.1".to_owned(), port: 1 };
        let refused = |result: Result<String, Failure>| match result {
            Err(Failure::BadUse(text)) => text,
            other => panic!("{other:?}"),
        };
        let text = refused(set_column_index_size(&api, "-3"));
        assert_eq!(text, "Invalid data storage: value must be non-negative");
        let text = refused(set_snapshot_throttle(&api, "-5"));
        assert_eq!(text, "Invalid throttle for snapshot_links_per_second: must be positive");
        let text = refused(set_snapshot_throttle(&api, "x"));
        assert_eq!(text, "setsnapshotthrottle: can not convert \"x\" to a Long");
        let throttle = |snapshot_links_per_second| {
            let settings =
                SettingsReport { snapshot_links_per_second, ..SettingsReport::default() };
            snapshot_throttle(&settings)
        };
        assert_eq!(throttle(100), "Current snapshot throttle: 100 links/s\n");
        assert_eq!(throttle(0), "Current snapshot throttle: 9223372036854775807 links/s\n");
        let text = refused(set_default_rf(&api, "0"));
        assert_eq!(text, "default_keyspace_rf cannot be less than 1");
        let text = refused(set_default_rf(&api, "x"));
        assert_eq!(text, "default_rf: can not convert \"x\" to a Integer");
        let keys =
            |text: &str| refused(set_keys_to_save(&super::super::tests::parse(text).unwrap()));
        assert!(keys("setcachekeystosave 1").starts_with("setcachekeystosave requires key-cache-"));
        assert_eq!(
            keys("setcachekeystosave a 2 3"),
            format!("{KEYS_TO_SAVE}: can not convert \"a\" to a Integer")
        );
        assert!(matches!(set_default_rf(&api, "3"), Err(Failure::Connect(_))));
    }

    /// Recorded from a Cassandra 5.0.9.
    #[test]
    fn rates_that_cassandra_does_not_take_are_refused_in_its_words() {
        for (text, expected) in [
            ("-1", "Invalid data rate: value must be non-negative"),
            ("1.5", "compaction_throughput: can not convert \"1.5\" to a Integer"),
            ("99999999999", "compaction_throughput: can not convert \"99999999999\" to a Integer"),
            (
                "2147483647",
                "compaction_throughput: 2147483647 is too large; it should be less than 2147483647 in MiB/s",
            ),
        ] {
            match mib_per_second(text) {
                Err(Failure::BadUse(found)) => assert_eq!(found, expected),
                other => panic!("{text}: {other:?}"),
            }
        }
        assert_eq!(mib_per_second("2147483646").unwrap(), 2_147_483_646);
    }
}
