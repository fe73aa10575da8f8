//! Commands about the node's part in its cluster.

use admin::model::{ClusterCommand, ClusterReport, EndpointsReport};
use admin::nodetool::{self as layout, ThroughputUnit};

use super::upkeep::{check_jobs, of_key};
use super::{Failure, Format, Line, names, node};
use crate::http::{Api, HttpError};

/// What the node says of its part in the cluster.
pub(super) fn report(api: &Api) -> Result<ClusterReport, Failure> {
    Ok(api.get("/api/v1/cluster")?)
}

pub(super) fn run(line: &Line) -> Result<String, Failure> {
    let api = &line.api;
    let first = || line.arguments.first().cloned().unwrap_or_default();
    let style = line.style;
    match line.verb {
        "describering" => {
            let node = node(api)?;
            if node.keyspace(&first()).is_none() {
                say!("Schema Version:{}\nTokenRange: \n", node.schema_version);
                return Err(Failure::Node(format!("No such keyspace: {}", first())));
            }
            layout::describe_ring(&node, &first(), style).map_err(Failure::BadUse)
        }
        "getendpoints" => get_endpoints(line),
        "gossipinfo" => {
            let (node, cluster) = (node(api)?, report(api)?);
            let text = layout::gossip_info(&node, cluster.gossip.as_ref(), style);
            let text = text.map_err(Failure::Node)?;
            match line.has("--resolve-ip") {
                true => Ok(names::titled(&text, &names::of(&node)?)),
                false => Ok(text),
            }
        }
        "failuredetector" => {
            let (node, cluster) = (node(api)?, report(api)?);
            layout::failure_detector(&node, cluster.gossip.as_ref(), style).map_err(Failure::Node)
        }
        "statusgossip" => {
            layout::status_gossip(report(api)?.gossip.as_ref()).map_err(Failure::Node)
        }
        "statusbinary" => Ok(layout::status_binary(&node(api)?)),
        "statushandoff" => {
            layout::status_handoff(report(api)?.hints.as_ref()).map_err(Failure::Node)
        }
        "getmaxhintwindow" => {
            layout::max_hint_window(report(api)?.hints.as_ref()).map_err(Failure::Node)
        }
        "listpendinghints" => {
            let (node, cluster) = (node(api)?, report(api)?);
            layout::pending_hints(&node, cluster.hints.as_ref()).map_err(Failure::Node)
        }
        "netstats" => {
            let (node, cluster) = (node(api)?, report(api)?);
            Ok(layout::net_stats(&node, &cluster, style, line.has("--human-readable")))
        }
        "tpstats" => {
            let format = Format::of(line, "json,yaml")?;
            let cluster = report(api)?;
            Ok(format.choose(|| layout::tp_stats(&cluster), || layout::tp_stats_json(&cluster)))
        }
        "getstreamthroughput" | "getinterdcstreamthroughput" => {
            let unit = match (line.has("--mib"), line.has("--precise-mbit")) {
                (true, true) => {
                    let text = "You cannot use more than one flag with this command";
                    return Err(Failure::BadUse(text.to_owned()));
                }
                (true, false) => ThroughputUnit::MebibytesPerSecond,
                (false, true) => ThroughputUnit::PreciseMegabits,
                (false, false) => ThroughputUnit::Megabits,
            };
            let show = match line.verb {
                "getstreamthroughput" => layout::stream_throughput,
                _ => layout::inter_dc_stream_throughput,
            };
            show(report(api)?.streaming.as_ref(), unit).map_err(Failure::Node)
        }
        "gettimeout" => match line.arguments.as_slice() {
            [kind] => layout::get_timeout(&report(api)?, kind).map_err(Failure::BadUse),
            _ => Err(Failure::BadUse(format!(
                "gettimeout requires a timeout type, one of ({})",
                admin::commands::TIMEOUTS_TEXT
            ))),
        },
        "removenode" if first() == "status" => {
            let (node, cluster) = (node(api)?, report(api)?);
            let status = layout::removal_status(&node, &cluster, style);
            let progress = layout::removal_progress(&node, &cluster, style);
            Ok(format!("RemovalStatus: {status}\n{progress}"))
        }
        "removenode" if first() == "force" => {
            let (node, cluster) = (node(api)?, report(api)?);
            say_line!("RemovalStatus: {}", layout::removal_status(&node, &cluster, style));
            tell(api, &ClusterCommand::ForceRemoval {})
        }
        "decommission" => decommission(line),
        // A node that joins goes on by itself.
        "bootstrap" if first() == "resume" => Ok(match report(api)?.operation_mode.as_str() {
            "JOINING" => "The node is bootstrapping; after a stop it goes on when it is started.\n",
            _ => "Node is already bootstrapped.\n",
        }
        .to_owned()),
        "abortbootstrap" => match (line.value("--node"), line.value("--ip")) {
            (Some(node), None) | (None, Some(node)) => {
                tell(api, &ClusterCommand::AbortBootstrap { node: node.to_owned() })
            }
            _ => Err(bad("Either --node or --ip needs to be set".to_owned())),
        },
        "cleanup" => cleanup(line),
        "truncatehints" => truncate_hints(line),
        _ => tell(api, &setting(line)?),
    }
}

/// Gives a command and waits until it is done. Wrong arguments end with 1, as everything that
/// Cassandra's tool takes for one.
pub(super) fn tell(api: &Api, command: &ClusterCommand) -> Result<String, Failure> {
    match api.command("POST", "/api/v1/cluster", command) {
        Ok(()) => Ok(String::new()),
        Err(HttpError::Refused(400, words)) => Err(Failure::BadUse(words)),
        Err(error) => Err(error.into()),
    }
}

/// The commands that set one thing.
fn setting(line: &Line) -> Result<ClusterCommand, Failure> {
    let first = || line.arguments.first().cloned().unwrap_or_default();
    let only = |what: &str| match line.arguments.as_slice() {
        [only] => Ok(only.clone()),
        _ => Err(Failure::BadUse(format!("{} requires exactly one {what}", line.verb))),
    };
    Ok(match line.verb {
        "assassinate" => ClusterCommand::Assassinate { address: first() },
        "removenode" => ClusterCommand::RemoveNode { host_id: first() },
        "abortdecommission" | "abortmove" => ClusterCommand::AbortMovement {},
        "abortrebuild" => ClusterCommand::AbortRebuild {},
        "abortremovenode" => {
            ClusterCommand::AbortRemoval { host_id: line.arguments.first().cloned() }
        }
        // A token below zero may be written with a backslash.
        "move" => ClusterCommand::Move { token: first().replace('\\', "") },
        "rebuild" => {
            let value = |name: &str| line.value(name).map(str::to_owned);
            ClusterCommand::Rebuild {
                datacenter: line.arguments.first().cloned(),
                keyspace: value("--keyspace"),
                tokens: value("--tokens"),
                sources: value("--sources"),
                exclude_local_dc: line.has("--exclude-local-dc"),
            }
        }
        "disablebinary" => ClusterCommand::SetNativeTransport { enabled: false },
        "enablebinary" => ClusterCommand::SetNativeTransport { enabled: true },
        "disablegossip" => ClusterCommand::SetGossip { enabled: false },
        "enablegossip" => ClusterCommand::SetGossip { enabled: true },
        "disablehandoff" => ClusterCommand::SetHintedHandoff { enabled: false },
        "enablehandoff" => ClusterCommand::SetHintedHandoff { enabled: true },
        "disablehintsfordc" | "enablehintsfordc" => {
            let enabled = line.verb == "enablehintsfordc";
            ClusterCommand::SetHintsForDatacenter { datacenter: only("data center")?, enabled }
        }
        "pausehandoff" => ClusterCommand::PauseHints { paused: true },
        "resumehandoff" => ClusterCommand::PauseHints { paused: false },
        "sethintedhandoffthrottlekb" => {
            let kib_per_second = number(&first(), "throttle_in_kb")?;
            ClusterCommand::SetHintThrottle { kib_per_second }
        }
        "setmaxhintwindow" => {
            ClusterCommand::SetHintWindow { millis: number(&first(), "max_hint_window")? }
        }
        "setstreamthroughput" => {
            let bytes_per_second = throughput(line, "stream_throughput")?;
            ClusterCommand::SetStreamThroughput { bytes_per_second }
        }
        "setinterdcstreamthroughput" => {
            let bytes_per_second = throughput(line, "inter_dc_stream_throughput")?;
            ClusterCommand::SetInterDcStreamThroughput { bytes_per_second }
        }
        "disablebackup" => ClusterCommand::SetIncrementalBackups { enabled: false },
        "replaybatchlog" => ClusterCommand::ReplayBatchlog {},
        "refreshsizeestimates" => ClusterCommand::RefreshSizeEstimates {},
        "enablebackup" => ClusterCommand::SetIncrementalBackups { enabled: true },
        "settimeout" => match line.arguments.as_slice() {
            [kind, millis] => {
                let millis = match millis.parse::<i64>() {
                    Ok(millis) => u64::try_from(millis)
                        .map_err(|_| bad("timeout must be non-negative".to_owned()))?,
                    Err(_) => return Err(bad(format!("For input string: \"{millis}\""))),
                };
                ClusterCommand::SetTimeout { kind: kind.clone(), millis }
            }
            _ => {
                return Err(bad(format!(
                    "Timeout type followed by value in ms (0 disables socket streaming timeout). \
                     Type should be one of ({})",
                    admin::commands::TIMEOUTS_TEXT
                )));
            }
        },
        other => return Err(bad(format!("Found unexpected parameters: [{other}]"))),
    })
}

/// Bytes per second, from megabits or MiB.
fn throughput(line: &Line, title: &str) -> Result<u64, Failure> {
    let text = line.arguments.first().map_or("", String::as_str);
    let value: i32 =
        text.parse().map_err(|_| bad(format!("{title}: can not convert \"{text}\" to a int")))?;
    let value = u64::try_from(value)
        .map_err(|_| bad("Invalid data rate: value must be non-negative".to_owned()))?;
    Ok(value.saturating_mul(if line.has("--mib") { 1 << 20 } else { 1_000_000 / 8 }))
}

pub(super) fn bad(text: String) -> Failure {
    Failure::BadUse(text)
}

/// A whole number that is not negative: Cassandra's are 32 bits wide.
pub(super) fn number(text: &str, title: &str) -> Result<u64, Failure> {
    let number: i32 = text
        .parse()
        .map_err(|_| bad(format!("{title}: can not convert \"{text}\" to a Integer")))?;
    u64::try_from(number).map_err(|_| bad(format!("{title} must be non-negative")))
}

fn decommission(line: &Line) -> Result<String, Failure> {
    match report(&line.api)?.operation_mode.as_str() {
        "LEAVING" => return Ok("This node is still decommissioning.\n".to_owned()),
        "DECOMMISSIONED" => return Ok("Node was already decommissioned.\n".to_owned()),
        _ => {}
    }
    tell(&line.api, &ClusterCommand::Decommission { force: line.has("--force") })
}

fn cleanup(line: &Line) -> Result<String, Failure> {
    check_jobs(line)?;
    let node = node(&line.api)?;
    let (keyspaces, tables) = match line.arguments.split_first() {
        Some((keyspace, _)) if node.keyspace(keyspace).is_none() => {
            return Err(bad(format!("Keyspace [{keyspace}] does not exist.")));
        }
        Some((keyspace, tables)) => (vec![keyspace.clone()], tables.to_vec()),
        None => {
            let replicated = node.keyspaces.iter().filter(|k| k.strategy() != "LocalStrategy");
            (replicated.map(|k| k.name.clone()).collect(), Vec::new())
        }
    };
    for keyspace in keyspaces {
        let tables = tables.clone();
        match tell(&line.api, &ClusterCommand::Cleanup { keyspace, tables }) {
            // A table that is not there.
            Err(Failure::BadUse(words)) => return Err(Failure::Node(words)),
            other => other?,
        };
    }
    Ok(String::new())
}

fn truncate_hints(line: &Line) -> Result<String, Failure> {
    if line.arguments.is_empty() {
        return tell(&line.api, &ClusterCommand::TruncateHints { address: None });
    }
    for address in &line.arguments {
        tell(&line.api, &ClusterCommand::TruncateHints { address: Some(address.clone()) })?;
    }
    Ok(String::new())
}

fn get_endpoints(line: &Line) -> Result<String, Failure> {
    let [keyspace, table, key] = line.arguments.as_slice() else {
        let text = "getendpoints requires keyspace, table and partition key arguments";
        return Err(bad(text.to_owned()));
    };
    let path = format!(
        "/api/v1/endpoints?keyspace={}&table={}&key={}",
        encoded(keyspace),
        encoded(table),
        encoded(key)
    );
    let found: EndpointsReport = match line.api.get(&path) {
        Ok(found) => found,
        Err(HttpError::Refused(400, words)) if words.starts_with("Unknown ") => {
            return Err(bad(words));
        }
        Err(HttpError::Refused(400, words)) => return Err(of_key(words, false)),
        Err(error) => return Err(error.into()),
    };
    Ok(layout::get_endpoints(&node(&line.api)?, &found, line.style))
}

/// For a query: everything but letters and digits as `%XX`.
pub(super) fn encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(text: &str) -> Result<ClusterCommand, String> {
        let line = Line::parse(text.split_whitespace().map(str::to_owned).collect())?;
        setting(&line).map_err(|failure| match failure {
            Failure::BadUse(text) => text,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn units_are_those_of_the_tool() {
        let stream = |text| match ask(text) {
            Ok(ClusterCommand::SetStreamThroughput { bytes_per_second }) => bytes_per_second,
            other => panic!("{other:?}"),
        };
        assert_eq!(stream("setstreamthroughput 200"), 25_000_000);
        assert_eq!(stream("setstreamthroughput -m 24"), 24 << 20);
        let far = ask("setinterdcstreamthroughput -m 3").unwrap();
        let bytes_per_second = 3 << 20;
        assert_eq!(far, ClusterCommand::SetInterDcStreamThroughput { bytes_per_second });
        let backups = ask("enablebackup").unwrap();
        assert_eq!(backups, ClusterCommand::SetIncrementalBackups { enabled: true });
        let window = ask("setmaxhintwindow 5000").unwrap();
        assert_eq!(window, ClusterCommand::SetHintWindow { millis: 5000 });
    }

    #[test]
    fn what_is_no_number_is_refused() {
        let refused = [
            ("setstreamthroughput x", "stream_throughput: can not convert \"x\" to a int"),
            ("setstreamthroughput -1", "Invalid data rate: value must be non-negative"),
            ("setmaxhintwindow x", "max_hint_window: can not convert \"x\" to a Integer"),
            ("setmaxhintwindow -- -1", "max_hint_window must be non-negative"),
            ("settimeout read x", "For input string: \"x\""),
            ("settimeout read -- -1", "timeout must be non-negative"),
            ("enablehintsfordc", "enablehintsfordc requires exactly one data center"),
        ];
        for (text, expected) in refused {
            assert_eq!(ask(text).unwrap_err(), expected, "{text}");
        }
        assert!(ask("settimeout read").unwrap_err().starts_with("Timeout type followed by value"));
    }

    #[test]
    fn keys_pass_through_a_query() {
        assert_eq!(encoded("a:1 é&"), "a%3A1%20%C3%A9%26");
    }
}
