//! Properties of keyspaces: `durable_writes` and `replication`, validated as Cassandra does.

use std::collections::BTreeMap;

use cql_syntax::ast::Property;
use schema::KeyspaceParams;

use crate::error::PlanError;
use crate::properties::Properties;

const LOCATOR: &str = "org.apache.cassandra.locator.";

type ReplicationProperty = Option<BTreeMap<String, String>>;

/// Returns the properties of a keyspace and its replication. It checks only those errors that need
/// no evaluation of the replication. Source: `KeyspaceAttributes.validate`.
fn keyspace_properties(
    properties: &[Property],
) -> Result<(Properties<'_>, ReplicationProperty), PlanError> {
    let p = Properties::new(properties)?;
    p.only(&["durable_writes", "replication"])?;
    let replication = p.map("replication")?;
    if let Some(map) = &replication
        && !map.is_empty()
        && !map.contains_key("class")
    {
        return Err(PlanError::config("Missing replication strategy class"));
    }
    Ok((p, replication))
}

/// Checks of CREATE KEYSPACE that precede the error of an existing keyspace.
pub(crate) fn check_keyspace_properties(properties: &[Property]) -> Result<(), PlanError> {
    match keyspace_properties(properties)? {
        (_, Some(_)) => Ok(()),
        (_, None) => Err(PlanError::invalid("Missing mandatory option 'replication'")),
    }
}

/// Input of replication beside its options.
#[derive(Clone, Copy)]
pub(crate) struct Cluster<'a> {
    /// The datacenters and how many nodes each has.
    pub(crate) datacenters: &'a [(&'a str, u32)],
    /// The factor where none is given.
    pub(crate) default_factor: u32,
}

/// The parameters of CREATE KEYSPACE (`before` = `None`) or ALTER KEYSPACE.
pub(crate) fn keyspace_params(
    properties: &[Property],
    before: Option<&KeyspaceParams>,
    cluster: Cluster<'_>,
    keyspace: &str,
) -> Result<KeyspaceParams, PlanError> {
    let (p, replication) = keyspace_properties(properties)?;
    let durable_writes =
        p.boolean("durable_writes")?.unwrap_or_else(|| before.is_none_or(|b| b.durable_writes));
    let replication = match (replication, before) {
        (Some(map), _) if map.contains_key("class") => {
            replication_map(map, before.map(|b| &b.replication), cluster, keyspace)?
        }
        (_, Some(before)) => before.replication.clone(),
        (None, None) => {
            return Err(PlanError::invalid("Missing mandatory option 'replication'"));
        }
        (Some(_), None) => return Err(PlanError::config("Missing replication strategy class")),
    };
    Ok(KeyspaceParams { durable_writes, replication })
}

/// A factor as it is written, `3` or `3/0`. Source: `ReplicationFactor.fromString`.
fn factor(text: &str) -> Result<u32, PlanError> {
    let int = |text: &str| {
        text.parse::<i32>().map_err(|_| PlanError::config(format!("For input string: \"{text}\"")))
    };
    let all = match text.split_once('/') {
        None => int(text)?,
        Some((_, transient)) if transient.is_empty() || transient.contains('/') => {
            return Err(PlanError::config(
                "Replication factor format is <replicas> or <replicas>/<transient>",
            ));
        }
        Some((all, transient)) => {
            let (all, transient) = (int(all)?, int(transient)?);
            if transient != 0 {
                return Err(PlanError::config("Transient replication is not enabled on this node"));
            }
            all
        }
    };
    u32::try_from(all).map_err(|_| {
        PlanError::config(format!("Replication factor must be non-negative, found {all}"))
    })
}

fn simple_strategy(
    map: &mut BTreeMap<String, String>,
    before: Option<&BTreeMap<String, String>>,
    cluster: Cluster<'_>,
    keyspace: &str,
) -> Result<(), PlanError> {
    let previous = before
        .filter(|b| b.get("class").is_some_and(|c| c.ends_with("SimpleStrategy")))
        .and_then(|b| b.get("replication_factor"));
    map.entry("replication_factor".to_owned())
        .or_insert_with(|| previous.cloned().unwrap_or_else(|| cluster.default_factor.to_string()));
    for (name, value) in map.iter() {
        if name != "replication_factor" {
            return Err(PlanError::config(format!(
                "Unrecognized strategy option {{{name}}} passed to SimpleStrategy for keyspace \
                 {keyspace}"
            )));
        }
        if factor(value)? == 0 {
            return Err(PlanError::config(format!(
                "Replication factor must be greater than zero; found {value}"
            )));
        }
    }
    Ok(())
}

fn network_topology_strategy(
    map: &mut BTreeMap<String, String>,
    before: Option<&BTreeMap<String, String>>,
    cluster: Cluster<'_>,
    keyspace: &str,
) -> Result<(), PlanError> {
    let Cluster { datacenters, default_factor } = cluster;
    // Source: `NetworkTopologyStrategy.prepareOptions`.
    let previous = || before.into_iter().flatten();
    let of_simple = || before.and_then(|b| b.get("replication_factor")).cloned();
    let shorthand = match map.remove("replication_factor") {
        None if map.is_empty() => Some(of_simple().unwrap_or_else(|| default_factor.to_string())),
        shorthand => shorthand,
    };
    if let Some(value) = shorthand {
        // For safety datacenters that were named before keep their factor.
        for (datacenter, n) in previous() {
            if datacenter != "class" && datacenter != "replication_factor" {
                map.entry(datacenter.clone()).or_insert_with(|| n.clone());
            }
        }
        // A wrong one is skipped there: the exception of `prepareOptions` is only logged.
        let expanded = factor(&value).is_ok();
        for (datacenter, _) in datacenters.iter().filter(|_| expanded) {
            map.entry((*datacenter).to_owned()).or_insert_with(|| value.clone());
        }
    }
    map.retain(|_, n| n != "0");
    for value in map.values() {
        factor(value)?;
    }
    if map.is_empty() {
        return Err(PlanError::config("Configuration for at least one datacenter must be present"));
    }
    for name in map.keys() {
        if !datacenters.iter().any(|(datacenter, _)| datacenter == name) {
            return Err(PlanError::config(format!(
                "Unrecognized strategy option {{{name}}} passed to NetworkTopologyStrategy for \
                 keyspace {keyspace}"
            )));
        }
    }
    if keyspace == "system_auth" {
        let without = datacenters.iter().map(|(datacenter, _)| *datacenter);
        let without: Vec<&str> = without.filter(|dc| !map.contains_key(*dc)).collect();
        if !without.is_empty() {
            return Err(PlanError::config(format!(
                "Following datacenters have active nodes and must be present in replication \
                 options for keyspace system_auth: [{}]",
                without.join(", ")
            )));
        }
    }
    Ok(())
}

fn replication_map(
    mut map: BTreeMap<String, String>,
    before: Option<&BTreeMap<String, String>>,
    cluster: Cluster<'_>,
    keyspace: &str,
) -> Result<BTreeMap<String, String>, PlanError> {
    let class = map.remove("class").unwrap_or_default();
    let short = class.strip_prefix(LOCATOR).unwrap_or(&class).to_owned();
    match short.as_str() {
        "SimpleStrategy" => simple_strategy(&mut map, before, cluster, keyspace)?,
        "NetworkTopologyStrategy" => {
            network_topology_strategy(&mut map, before, cluster, keyspace)?;
        }
        "LocalStrategy" => {
            return Err(PlanError::invalid(
                "Unable to use given strategy class: LocalStrategy is reserved for internal use.",
            ));
        }
        "OldNetworkTopologyStrategy" => {
            return Err(PlanError::config(
                "The support for the OldNetworkTopologyStrategy has been removed in C* version \
                 4.0. The keyspace strategy should be switch to NetworkTopologyStrategy",
            ));
        }
        _ => {
            let full = if class.contains('.') { class } else { format!("{LOCATOR}{class}") };
            return Err(PlanError::config(format!(
                "Unable to find replication strategy class '{full}'"
            )));
        }
    }
    map.insert("class".to_owned(), format!("{LOCATOR}{short}"));
    Ok(map)
}
