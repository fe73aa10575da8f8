//! Commands that show or change one setting, and that list clients.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use crate::model::{
    ClientReport, ClusterCommand, CompactionReport, GuardrailReport, GuardrailRequest,
    LogLevelReport, SettingsReport, TableReport,
};
use crate::nodetool as layout;

use super::client::{HttpError, NodeApi};
use super::cluster::{bad, number, report, tell};
use super::line::{Failure, Format, Line, Outcome};
use super::node::node;
use crate::operation::Method;

/// Components of Cassandra's `setlogginglevel` and the corresponding modules.
const COMPONENTS: [(&str, &[&str]); 6] = [
    ("bootstrap", &["topology", "node::cluster", "membership", "hints"]),
    ("compaction", &["store"]),
    ("repair", &["repair"]),
    ("streaming", &["streaming"]),
    ("cql", &["cql_server", "coordinator"]),
    ("ring", &["liveness", "messaging"]),
];

/// The arguments of `setcachecapacity`.
const CAPACITIES: &str = "<key-cache-capacity> <row-cache-capacity> <counter-cache-capacity>";

/// `getbatchlogreplaythrottle`.
pub(super) fn batchlog_throttle(line: &Line) -> Outcome {
    let kib = settings(&line.api)?.batchlog_bytes_per_second >> 10;
    Ok(format!("Batchlog replay throttle: {kib} KB/s\n"))
}

/// `setbatchlogreplaythrottle`.
pub(super) fn set_batchlog_throttle(line: &Line) -> Outcome {
    let kib_per_second = number(&line.first(), "batchlog_replay_throttle")?;
    tell(&line.api, &ClusterCommand::SetBatchlogThrottle { kib_per_second })
}

/// `getcolumnindexsize`.
pub(super) fn column_index_size(line: &Line) -> Outcome {
    let kib = settings(&line.api)?.column_index_bytes >> 10;
    Ok(format!("Current value for column_index_size: {kib} KiB\n"))
}

/// `getsnapshotthrottle`.
pub(super) fn snapshot_throttle(line: &Line) -> Outcome {
    settings(&line.api).map(|settings| snapshot_throttle_text(&settings))
}

/// `getdefaultrf`.
pub(super) fn default_rf(line: &Line) -> Outcome {
    Ok(format!("{}\n", settings(&line.api)?.default_keyspace_rf))
}

/// `invalidatekeycache`: as on a Cassandra whose key cache has no capacity.
pub(super) fn invalidate_key_cache(line: &Line) -> Outcome {
    report(&line.api).map(|_| String::new())
}

/// `getcompactionthroughput`.
pub(super) fn compaction_throughput(line: &Line) -> Outcome {
    let bytes = compactions(&line.api)?.bytes_per_second_max;
    let style = layout::ThroughputStyle { is_precise: line.has("--precise-mib") };
    layout::compaction_throughput(bytes, style).map_err(Failure::Node)
}

/// `setcompactionthroughput`.
pub(super) fn set_compaction_throughput(line: &Line) -> Outcome {
    let bytes_per_second = mib_per_second(&line.first())? << 20;
    tell(&line.api, &ClusterCommand::SetCompactionThroughput { bytes_per_second })
}

/// `getconcurrentcompactors`.
pub(super) fn concurrent_compactors(line: &Line) -> Outcome {
    let count = compactions(&line.api)?.concurrent;
    Ok(format!("Current concurrent compactors in the system is: \n{count}\n"))
}

/// `getcompactionshare`.
pub(super) fn compaction_share(line: &Line) -> Outcome {
    let share = compactions(&line.api)?.share;
    Ok(format!("Current compaction share: {share} of 1000\n"))
}

/// `getseeds`.
pub(super) fn list_seeds(line: &Line) -> Outcome {
    seeds(&line.api, "Current list of seed node IPs")
}

/// `gettraceprobability`.
pub(super) fn trace_probability(line: &Line) -> Outcome {
    let probability = settings(&line.api)?.trace_probability;
    Ok(layout::trace_probability(probability))
}

/// `statusbackup`.
pub(super) fn backup_status(line: &Line) -> Outcome {
    Ok(match settings(&line.api)?.incremental_backups {
        true => "running\n".to_owned(),
        false => "not running\n".to_owned(),
    })
}

/// `join`: a node joins without a command.
pub(super) fn join(line: &Line) -> Outcome {
    Err(bad(match report(&line.api)?.operation_mode.as_str() {
        "JOINING" => "Cannot join the ring until bootstrap completes".to_owned(),
        _ => "This node has already joined the ring.".to_owned(),
    }))
}

/// `stopdaemon`: the node may be gone before it has answered.
pub(super) fn stop_daemon(line: &Line) -> Outcome {
    match tell(&line.api, &ClusterCommand::StopDaemon {}) {
        Err(Failure::Connect(error)) if !is_cut_off(&error) => Err(Failure::Connect(error)),
        _ => Ok(String::new()),
    }
}

/// `getlogginglevels`.
pub(super) fn logging_levels(line: &Line) -> Outcome {
    levels(&line.api).map(|levels| layout::logging_levels(&levels))
}

fn is_cut_off(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset)
}

pub(super) fn settings(api: &NodeApi) -> Result<SettingsReport, Failure> {
    let settings = report(api)?.settings;
    settings.ok_or_else(|| Failure::Node("the node does not tell its settings".to_owned()))
}

/// Changes a setting by its name in cassandra.yaml.
pub(super) fn set(api: &NodeApi, name: &str, value: &str) -> Outcome {
    let (name, value) = (name.to_owned(), value.to_owned());
    tell(api, &ClusterCommand::SetSetting { name, value })
}

/// A Java `int`.
pub(super) fn int(text: &str, title: &str) -> Result<i32, Failure> {
    text.parse().map_err(|_| bad(format!("{title}: can not convert \"{text}\" to a Integer")))
}

/// Where there is no limit Cassandra has the largest Java `long`.
fn snapshot_throttle_text(settings: &SettingsReport) -> String {
    let links = match settings.snapshot_links_per_second {
        0 => i64::MAX as u64,
        links => links,
    };
    format!("Current snapshot throttle: {links} links/s\n")
}

/// `setsnapshotthrottle`.
pub(super) fn set_snapshot_throttle(line: &Line) -> Outcome {
    let (api, text) = (&line.api, &*line.first());
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

/// `setcolumnindexsize`.
pub(super) fn set_column_index_size(line: &Line) -> Outcome {
    let (api, text) = (&line.api, &*line.first());
    match u64::try_from(int(text, "column_index_size")?) {
        Ok(kib) => set(api, "column_index_size", &(kib << 10).to_string()),
        Err(_) => Err(bad("Invalid data storage: value must be non-negative".to_owned())),
    }
}

/// `setdefaultrf`.
pub(super) fn set_default_rf(line: &Line) -> Outcome {
    let (api, text) = (&line.api, &*line.first());
    match int(text, "default_rf")? {
        ..=0 => Err(bad("default_keyspace_rf cannot be less than 1".to_owned())),
        factor => set(api, "default_keyspace_rf", &factor.to_string()),
    }
}

/// The arguments of `setcachekeystosave`.
const KEYS_TO_SAVE: &str =
    "<key-cache-keys-to-save> <row-cache-keys-to-save> <counter-cache-keys-to-save>";

/// `setcachekeystosave`.
pub(super) fn set_keys_to_save(line: &Line) -> Outcome {
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
    // The key cache is never saved, whatever its limit.
    for (cache, keys) in [("row", rows), ("counter", counters)] {
        let name = format!("{cache}_cache_keys_to_save");
        set(&line.api, &name, &(*keys).max(0).to_string())?;
    }
    Ok(String::new())
}

/// `setcachecapacity`, with the text of Cassandra's `SetCacheCapacity` when there are not three.
pub(super) fn set_cache_capacity(line: &Line) -> Outcome {
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

fn compactions(api: &NodeApi) -> Result<CompactionReport, Failure> {
    Ok(api.get("/api/v1/compactions")?)
}

fn levels(api: &NodeApi) -> Result<Vec<LogLevelReport>, Failure> {
    Ok(api.get("/api/v1/log")?)
}

/// `getguardrailsconfig`.
pub(super) fn guardrails(line: &Line) -> Outcome {
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

/// `setguardrailsconfig`.
pub(super) fn set_guardrail(line: &Line) -> Outcome {
    let [name, values @ ..] = line.arguments.as_slice() else {
        return Err(bad("No arguments.".to_owned()));
    };
    let change = GuardrailRequest { name: name.clone(), values: values.to_vec() };
    match line.api.command(Method::Put, "/api/v1/guardrails", &change) {
        Ok(()) => Ok(String::new()),
        Err(HttpError::Refused(kind, words)) if kind.is_argument() => Err(bad(words)),
        Err(error) => Err(error.into()),
    }
}

/// `clientstats`.
pub(super) fn clients(line: &Line) -> Outcome {
    let clients: Vec<ClientReport> = line.api.get("/api/v1/clients")?;
    let (all, with_options) = (line.has("--all"), line.has("--client-options"));
    Ok(layout::client_stats(&clients, layout::ClientStatsStyle { all, with_options }))
}

/// `datapaths`.
pub(super) fn data_paths(line: &Line) -> Outcome {
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

/// `rangekeysample`.
pub(super) fn key_samples(line: &Line) -> Outcome {
    let api = &line.api;
    let tokens: Vec<String> = api.get("/api/v1/key_samples")?;
    let lines = tokens.iter().map(|token| format!("\t{token}\n"));
    Ok(std::iter::once("RangeKeySample: \n".to_owned()).chain(lines).collect())
}

/// `reloadseeds`.
pub(super) fn reload_seeds(line: &Line) -> Outcome {
    let api = &line.api;
    match tell(api, &ClusterCommand::ReloadSeeds {}) {
        Ok(_) => seeds(api, "Updated seed node IP list"),
        // Cassandra's tool prints the first sentence only and ends with 0.
        Err(Failure::Node(why)) => {
            Err(Failure::Printed(format!("Failed to reload the seed node list. {why}\n")))
        }
        Err(other) => Err(other),
    }
}

/// `reloadssl`.
pub(super) fn reload_ssl(line: &Line) -> Outcome {
    tell(&line.api, &ClusterCommand::ReloadSsl {}).map(|_| String::new())
}

/// `reloadkeys`.
pub(super) fn reload_file_keys(line: &Line) -> Outcome {
    tell(&line.api, &ClusterCommand::ReloadFileKeys {}).map(|_| String::new())
}

/// Prints the seeds after these words.
fn seeds(api: &NodeApi, what: &str) -> Outcome {
    let (seeds, node) = (settings(api)?.seeds, node(api)?);
    let me = node.nodes.iter().find(|n| n.host_id == node.host_id);
    // Cassandra's form: with a slash and the port.
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

/// Parses a rate in the form of Cassandra's setting.
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

/// `setconcurrentcompactors`.
pub(super) fn set_concurrent_compactors(line: &Line) -> Outcome {
    let (api, text) = (&line.api, &*line.first());
    match number(text, "concurrent_compactors")?.try_into() {
        Ok(count @ 1..) => tell(api, &ClusterCommand::SetConcurrentCompactors { count }),
        _ => Err(bad("concurrent_compactors should be great than 0.".to_owned())),
    }
}

/// `setcompactionshare`.
pub(super) fn set_compaction_share(line: &Line) -> Outcome {
    let (api, text) = (&line.api, &*line.first());
    let share = match text {
        "auto" => None,
        number => match number.parse() {
            Ok(share @ 1..=1000) => Some(share),
            _ => return Err(bad("compaction_share should be 1 to 1000, or auto.".to_owned())),
        },
    };
    tell(api, &ClusterCommand::SetCompactionShare { share })
}

/// `settraceprobability`.
pub(super) fn set_trace_probability(line: &Line) -> Outcome {
    let (api, text) = (&line.api, &*line.first());
    let probability: f64 = text
        .parse()
        .map_err(|_| bad(format!("trace_probability: can not convert \"{text}\" to a Double")))?;
    if !(0.0..=1.0).contains(&probability) {
        return Err(bad("Trace probability must be between 0 and 1".to_owned()));
    }
    let per_million = (probability * 1e6).round() as u32;
    tell(api, &ClusterCommand::SetTraceProbability { per_million })
}

/// `setlogginglevel`.
pub(super) fn set_level(line: &Line) -> Outcome {
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
        match line.api.command(Method::Put, "/api/v1/log", &body) {
            Ok(()) => {}
            Err(HttpError::Refused(kind, words)) if kind.is_argument() => return Err(bad(words)),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(String::new())
}

#[cfg(test)]
mod tests {
    use super::super::tests::parse;
    use super::*;

    /// Recorded from a Cassandra 5.0.9.
    #[test]
    fn settings_that_cassandra_does_not_take_are_refused_in_its_words() {
        let refused = |text: &str| match super::super::run(&parse(text).unwrap()) {
            Err(Failure::BadUse(text)) => text,
            other => panic!("{other:?}"),
        };
        let text = refused("setcolumnindexsize -- -3");
        assert_eq!(text, "Invalid data storage: value must be non-negative");
        let text = refused("setsnapshotthrottle -- -5");
        assert_eq!(text, "Invalid throttle for snapshot_links_per_second: must be positive");
        let text = refused("setsnapshotthrottle -- x");
        assert_eq!(text, "setsnapshotthrottle: can not convert \"x\" to a Long");
        let throttle = |snapshot_links_per_second| {
            let settings =
                SettingsReport { snapshot_links_per_second, ..SettingsReport::default() };
            snapshot_throttle_text(&settings)
        };
        assert_eq!(throttle(100), "Current snapshot throttle: 100 links/s\n");
        assert_eq!(throttle(0), "Current snapshot throttle: 9223372036854775807 links/s\n");
        let text = refused("setdefaultrf -- 0");
        assert_eq!(text, "default_keyspace_rf cannot be less than 1");
        let text = refused("setdefaultrf -- x");
        assert_eq!(text, "default_rf: can not convert \"x\" to a Integer");
        assert!(
            refused("setcachekeystosave 1").starts_with("setcachekeystosave requires key-cache-")
        );
        assert_eq!(
            refused("setcachekeystosave a 2 3"),
            format!("{KEYS_TO_SAVE}: can not convert \"a\" to a Integer")
        );
        let asked = super::super::run(&parse("setdefaultrf 3").unwrap());
        assert!(matches!(asked, Err(Failure::Connect(_))));
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
