//! CIDR groups: `updatecidrgroup`, `dropcidrgroup`, `listcidrgroups` and related verbs; caches of
//! credentials.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::IpAddr;

use crate::model::{CidrFilteringReport, ClusterCommand, ForgetCredentials};
use crate::nodetool as layout;

use super::client::HttpError;
use super::cluster::bad;
use super::line::{Failure, Line, Outcome};
use crate::operation::Method;

type Groups = BTreeMap<String, Vec<String>>;

fn groups(line: &Line) -> Result<Groups, Failure> {
    Ok(line.api.get("/api/v1/cidr_groups")?)
}

/// `updatecidrgroup`.
pub(super) fn update(line: &Line) -> Outcome {
    let [name, cidrs @ ..] = line.arguments.as_slice() else { return Err(too_few()) };
    if cidrs.is_empty() {
        return Err(too_few());
    }
    let (name, cidrs) = (name.clone(), cidrs.to_vec());
    change(line, &ClusterCommand::PutCidrGroup { name, cidrs })?;
    Ok(String::new())
}

fn too_few() -> Failure {
    bad("updatecidrgroup command requires a cidr group name and atleast one CIDR".to_owned())
}

/// A refusal by the node ends with status 2, as with Cassandra's tool.
fn change(line: &Line, command: &ClusterCommand) -> Result<(), Failure> {
    match line.api.command(Method::Post, "/api/v1/cluster", command) {
        Err(HttpError::Refused(kind, words)) if kind.is_argument() => Err(Failure::Node(words)),
        other => Ok(other?),
    }
}

/// `dropcidrgroup`.
pub(super) fn drop_group(line: &Line) -> Outcome {
    let [name] = line.arguments.as_slice() else {
        return Err(bad("dropcidrgroup command requires a cidr group name".to_owned()));
    };
    change(line, &ClusterCommand::DropCidrGroup { name: name.clone() })?;
    Ok(format!("Deleted CIDR group {name}\n"))
}

/// `listcidrgroups`.
pub(super) fn list(line: &Line) -> Outcome {
    let groups = groups(line)?;
    Ok(match line.arguments.first().filter(|name| !name.is_empty()) {
        None => layout::names("CIDR Groups", groups.keys().map(String::as_str)),
        Some(name) => {
            let ranges = groups.get(name).into_iter().flatten();
            layout::names("CIDRs", ranges.map(String::as_str))
        }
    })
}

/// `getcidrgroupsofip`.
pub(super) fn groups_of(line: &Line) -> Outcome {
    let [address] = line.arguments.as_slice() else {
        return Err(bad("Requires IP address as input".to_owned()));
    };
    let parsed: IpAddr = address.parse().map_err(|_| bad(format!("Invalid IP {address}")))?;
    let groups: Groups = line.api.get(&format!("/api/v1/cidr_groups?address={parsed}"))?;
    Ok(layout::names("CIDR Groups", groups.keys().map(String::as_str)))
}

/// `cidrfilteringstats`.
pub(super) fn stats(line: &Line) -> Outcome {
    let report: CidrFilteringReport = line.api.get("/api/v1/cidr_filtering")?;
    Ok(layout::cidr_filtering_stats(&report))
}

/// `invalidatecredentialscache`. Like Cassandra's it prints nothing, whether or not an entry
/// existed.
pub(super) fn forget_credentials(line: &Line) -> Outcome {
    let roles = line.arguments.iter().cloned().map(Some);
    let all = line.arguments.is_empty().then_some(None);
    for role in roles.chain(all) {
        let request = ForgetCredentials { role };
        line.api.command(Method::Delete, "/api/v1/credentials_cache", &request)?;
    }
    Ok(String::new())
}

/// `reloadcidrgroupscache`. Nothing is to be loaded: a change counts from the next statement on, on every node.
pub(super) fn reload_groups(line: &Line) -> Outcome {
    groups(line).map(|_| "Reloaded CIDR groups cache\n".to_owned())
}

/// `invalidatecidrpermissionscache`.
pub(super) fn invalidate(line: &Line) -> Outcome {
    groups(line).map(|_| invalidated(&line.arguments))
}

/// No permissions are remembered beyond the next change of any.
fn invalidated(roles: &[String]) -> String {
    let mut out = String::new();
    if roles.is_empty() {
        out.push_str("Invalidated CIDR permissions cache\n");
    }
    for role in roles {
        let _ =
            writeln!(out, "Not found role {role} in CIDR permissions cache, nothing to invalidate");
    }
    out
}
