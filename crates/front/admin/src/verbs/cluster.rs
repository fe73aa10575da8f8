//! Verbs about the node's part in its cluster.

use super::client::{HttpError, NodeApi};
use super::line::{Failure, Format, Line, Outcome};
use super::names;
use super::node::node;
use super::upkeep::{check_jobs, of_key};
use crate::model::{ClusterCommand, ClusterReport, EndpointsReport, ErrorKind, NodeReport};
use crate::nodetool as layout;
use crate::operation::{CLUSTER, Method};

/// Fetches the node's report about its part in the cluster.
pub(super) fn report(api: &NodeApi) -> Result<ClusterReport, Failure> {
    Ok(api.get(CLUSTER)?)
}

/// Fetches the members, and the node's report about its part.
fn both(api: &NodeApi) -> Result<(NodeReport, ClusterReport), Failure> {
    Ok((node(api)?, report(api)?))
}

/// `describering`.
pub(super) fn describe_ring(line: &Line) -> Outcome {
    let node = node(&line.api)?;
    let keyspace = line.first();
    if node.keyspace(&keyspace).is_none() {
        let version = &node.schema_version;
        line.api.print(format_args!("Schema Version:{version}\nTokenRange: \n"));
        return Err(Failure::Node(format!("No such keyspace: {keyspace}")));
    }
    layout::describe_ring(&node, &keyspace, line.style).map_err(Failure::BadUse)
}

/// `gossipinfo`.
pub(super) fn gossip_info(line: &Line) -> Outcome {
    let (node, cluster) = both(&line.api)?;
    let text = layout::gossip_info(&node, cluster.gossip.as_ref(), line.style);
    let text = text.map_err(Failure::Node)?;
    match line.has("--resolve-ip") {
        true => Ok(names::titled(&text, &names::of(&line.api, &node)?)),
        false => Ok(text),
    }
}

/// `failuredetector`.
pub(super) fn failure_detector(line: &Line) -> Outcome {
    let (node, cluster) = both(&line.api)?;
    layout::failure_detector(&node, cluster.gossip.as_ref(), line.style).map_err(Failure::Node)
}

/// `statusgossip`.
pub(super) fn gossip_status(line: &Line) -> Outcome {
    layout::status_gossip(report(&line.api)?.gossip.as_ref()).map_err(Failure::Node)
}

/// `statusbinary`.
pub(super) fn binary_status(line: &Line) -> Outcome {
    Ok(layout::status_binary(&node(&line.api)?))
}

/// `netstats`.
pub(super) fn net_stats(line: &Line) -> Outcome {
    let (node, cluster) = both(&line.api)?;
    let sizes = layout::SizeStyle { human_readable: line.has("--human-readable") };
    Ok(layout::net_stats(&node, &cluster, line.style, sizes))
}

/// `tpstats`.
pub(super) fn tp_stats(line: &Line) -> Outcome {
    let format = Format::of(line, "json,yaml")?;
    let cluster = report(&line.api)?;
    Ok(format.choose(|| layout::tp_stats(&cluster), || layout::tp_stats_json(&cluster)))
}

/// `removenode`: of a node, or `status` or `force`.
pub(super) fn remove_node(line: &Line) -> Outcome {
    let first = line.first();
    if first != "status" && first != "force" {
        return tell(&line.api, &ClusterCommand::RemoveNode { host_id: first });
    }
    let (node, cluster) = both(&line.api)?;
    let status = layout::removal_status(&node, &cluster, line.style);
    if first == "status" {
        let progress = layout::removal_progress(&node, &cluster, line.style);
        return Ok(format!("RemovalStatus: {status}\n{progress}"));
    }
    line.api.print(format_args!("RemovalStatus: {status}\n"));
    tell(&line.api, &ClusterCommand::ForceRemoval {})
}

/// `bootstrap resume`: a node that joins continues automatically.
pub(super) fn bootstrap(line: &Line) -> Outcome {
    match line.first().as_str() {
        // Like Cassandra's tool, which has no command without another word.
        "" if line.arguments.is_empty() => Err(Failure::Help(None)),
        "resume" => Ok(match report(&line.api)?.operation_mode.as_str() {
            "JOINING" => "The node is bootstrapping; after a stop it goes on when it is started.\n",
            _ => "Node is already bootstrapped.\n",
        }
        .to_owned()),
        _ => Err(bad(format!("Found unexpected parameters: [{}]", line.verb))),
    }
}

/// `abortbootstrap`.
pub(super) fn abort_bootstrap(line: &Line) -> Outcome {
    match (line.value("--node"), line.value("--ip")) {
        (Some(node), None) | (None, Some(node)) => {
            tell(&line.api, &ClusterCommand::AbortBootstrap { node: node.to_owned() })
        }
        _ => Err(bad("Either --node or --ip needs to be set".to_owned())),
    }
}

/// `abortdecommission` and `abortmove`.
pub(super) fn abort_movement(line: &Line) -> Outcome {
    tell(&line.api, &ClusterCommand::AbortMovement {})
}

/// `abortremovenode`.
pub(super) fn abort_removal(line: &Line) -> Outcome {
    tell(&line.api, &ClusterCommand::AbortRemoval { host_id: line.arguments.first().cloned() })
}

/// `move`. A token below zero may be written with a backslash.
pub(super) fn move_to(line: &Line) -> Outcome {
    tell(&line.api, &ClusterCommand::Move { token: line.first().replace('\\', "") })
}

/// `rebuild`.
pub(super) fn rebuild(line: &Line) -> Outcome {
    let value = |name: &str| line.value(name).map(str::to_owned);
    let command = ClusterCommand::Rebuild {
        datacenter: line.arguments.first().cloned(),
        keyspace: value("--keyspace"),
        tokens: value("--tokens"),
        sources: value("--sources"),
        exclude_local_dc: line.has("--exclude-local-dc"),
    };
    tell(&line.api, &command)
}

/// Sends a command and waits until it is done. Wrong arguments end with status 1, as everything
/// that Cassandra's tool considers one.
pub(super) fn tell(api: &NodeApi, command: &ClusterCommand) -> Outcome {
    match api.command(Method::Post, CLUSTER, command) {
        Ok(()) => Ok(String::new()),
        Err(HttpError::Refused(kind, words)) if kind.is_argument() => Err(Failure::BadUse(words)),
        Err(error) => Err(error.into()),
    }
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

/// `decommission`.
pub(super) fn decommission(line: &Line) -> Outcome {
    match report(&line.api)?.operation_mode.as_str() {
        "LEAVING" => return Ok("This node is still decommissioning.\n".to_owned()),
        "DECOMMISSIONED" => return Ok("Node was already decommissioned.\n".to_owned()),
        _ => {}
    }
    tell(&line.api, &ClusterCommand::Decommission { force: line.has("--force") })
}

/// `cleanup`.
pub(super) fn cleanup(line: &Line) -> Outcome {
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
            // The table does not exist.
            Err(Failure::BadUse(words)) => return Err(Failure::Node(words)),
            other => other?,
        };
    }
    Ok(String::new())
}

/// `truncatehints`.
pub(super) fn truncate_hints(line: &Line) -> Outcome {
    if line.arguments.is_empty() {
        return tell(&line.api, &ClusterCommand::TruncateHints { address: None });
    }
    for address in &line.arguments {
        tell(&line.api, &ClusterCommand::TruncateHints { address: Some(address.clone()) })?;
    }
    Ok(String::new())
}

/// `getendpoints`.
pub(super) fn get_endpoints(line: &Line) -> Outcome {
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
        Err(HttpError::Refused(ErrorKind::UnknownKeyspace | ErrorKind::UnknownTable, words)) => {
            return Err(bad(words));
        }
        Err(HttpError::Refused(ErrorKind::InvalidKey, words)) => return Err(of_key(words)),
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

    #[test]
    fn keys_pass_through_a_query() {
        assert_eq!(encoded("a:1 é&"), "a%3A1%20%C3%A9%26");
    }
}
