//! Verbs about the node and the members of its cluster.

use super::client::NodeApi;
use super::cluster;
use super::line::{Failure, Line, Outcome};
use super::names;
use crate::model::{CacheReport, DrainRequest, NodeReport, TableReport, TablesRequest};
use crate::nodetool as layout;
use crate::operation::Method;

/// The node, with names for addresses where `-r` asks for them.
fn shown(line: &Line) -> Result<NodeReport, Failure> {
    let mut node = node(&line.api)?;
    if line.has("--resolve-ip") {
        let names = names::of(&line.api, &node)?;
        for member in &mut node.nodes {
            if let Some(name) = names.get(&member.address) {
                member.address.clone_from(name);
            }
        }
    }
    Ok(node)
}

/// The node and the members that it knows.
pub(super) fn node(api: &NodeApi) -> Result<NodeReport, Failure> {
    Ok(api.get("/api/v1/node")?)
}

/// For verbs that have nothing to do here: the node must answer, as it would have to if it had something to do.
pub(super) fn asked(line: &Line) -> Outcome {
    node(&line.api).map(|_| String::new())
}

/// `help`.
pub(super) fn help(line: &Line) -> Outcome {
    Err(Failure::Help(line.arguments.first().cloned()))
}

/// `status`.
pub(super) fn status(line: &Line) -> Outcome {
    let keyspace = line.arguments.first().map(String::as_str);
    layout::status(&shown(line)?, keyspace, line.style).map_err(Failure::Printed)
}

/// `ring`.
pub(super) fn ring(line: &Line) -> Outcome {
    let keyspace = line.arguments.first().map(String::as_str);
    layout::ring(&shown(line)?, keyspace, line.style).map_err(Failure::Printed)
}

/// `version`.
pub(super) fn version(line: &Line) -> Outcome {
    Ok(layout::version(&node(&line.api)?))
}

/// `describecluster`.
pub(super) fn describe_cluster(line: &Line) -> Outcome {
    let (node, cluster) = (node(&line.api)?, cluster::report(&line.api)?);
    Ok(layout::describe_cluster(&node, &cluster, line.style))
}

/// `info`.
pub(super) fn info(line: &Line) -> Outcome {
    let node = node(&line.api)?;
    let tables: Vec<TableReport> = line.api.get("/api/v1/tables")?;
    let caches: Vec<CacheReport> = line.api.get("/api/v1/caches")?;
    let cluster = cluster::report(&line.api)?;
    Ok(layout::info(
        &node,
        &cluster,
        &tables,
        &caches,
        layout::InfoStyle { all_tokens: line.has("--tokens") },
    ))
}

/// `drain`.
pub(super) fn drain(line: &Line) -> Outcome {
    line.api.command(Method::Post, "/api/v1/drain", &DrainRequest {})?;
    Ok(String::new())
}

/// `flush`.
pub(super) fn flush(line: &Line) -> Outcome {
    let (keyspaces, tables) = keyspaces_and_tables(line)?;
    line.api.command(Method::Post, "/api/v1/flush", &TablesRequest { keyspaces, tables })?;
    Ok(String::new())
}

/// Keyspaces and tables that a command names; none: all.
pub(super) fn keyspaces_and_tables(line: &Line) -> Result<(Vec<String>, Vec<String>), Failure> {
    let Some((keyspace, tables)) = line.arguments.split_first() else {
        return Ok((Vec::new(), Vec::new()));
    };
    let node = node(&line.api)?;
    if !node.keyspaces.iter().any(|k| k.name == *keyspace) {
        return Err(Failure::BadUse(format!("Keyspace [{keyspace}] does not exist.")));
    }
    Ok((vec![keyspace.clone()], tables.to_vec()))
}
