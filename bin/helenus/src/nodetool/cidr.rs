//! CIDR groups: `updatecidrgroup`, `dropcidrgroup`, `listcidrgroups` and what else is about them; what is
//! remembered of logins.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::IpAddr;

use admin::model::{CidrFilteringReport, ClusterCommand, ForgetCredentials};
use admin::nodetool as layout;

use super::cluster::bad;
use super::{Failure, Line};
use crate::http::HttpError;

type Groups = BTreeMap<String, Vec<String>>;

/// `None`: another one's command.
pub(super) fn run(line: &Line) -> Option<Result<String, Failure>> {
    Some(match line.verb {
        "updatecidrgroup" => update(line),
        "dropcidrgroup" => drop_group(line),
        "listcidrgroups" => list(line),
        "getcidrgroupsofip" => groups_of(line),
        "cidrfilteringstats" => stats(line),
        // There is nothing to load: a change counts from the next statement on, on every node.
        "reloadcidrgroupscache" => groups(line).map(|_| "Reloaded CIDR groups cache\n".to_owned()),
        "invalidatecredentialscache" => forget_credentials(line),
        "invalidatecidrpermissionscache" => groups(line).map(|_| invalidated(&line.arguments)),
        _ => return None,
    })
}

fn groups(line: &Line) -> Result<Groups, Failure> {
    Ok(line.api.get("/api/v1/cidr_groups")?)
}

fn update(line: &Line) -> Result<String, Failure> {
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

/// What the node refuses ends with 2 here, as with Cassandra's tool.
fn change(line: &Line, command: &ClusterCommand) -> Result<(), Failure> {
    match line.api.command("POST", "/api/v1/cluster", command) {
        Err(HttpError::Refused(400, words)) => Err(Failure::Node(words)),
        other => Ok(other?),
    }
}

fn drop_group(line: &Line) -> Result<String, Failure> {
    let [name] = line.arguments.as_slice() else {
        return Err(bad("dropcidrgroup command requires a cidr group name".to_owned()));
    };
    change(line, &ClusterCommand::DropCidrGroup { name: name.clone() })?;
    Ok(format!("Deleted CIDR group {name}\n"))
}

fn list(line: &Line) -> Result<String, Failure> {
    let groups = groups(line)?;
    Ok(match line.arguments.first().filter(|name| !name.is_empty()) {
        None => layout::names("CIDR Groups", groups.keys().map(String::as_str)),
        Some(name) => {
            let ranges = groups.get(name).into_iter().flatten();
            layout::names("CIDRs", ranges.map(String::as_str))
        }
    })
}

fn groups_of(line: &Line) -> Result<String, Failure> {
    let [address] = line.arguments.as_slice() else {
        return Err(bad("Requires IP address as input".to_owned()));
    };
    let parsed: IpAddr = address.parse().map_err(|_| bad(format!("Invalid IP {address}")))?;
    let groups: Groups = line.api.get(&format!("/api/v1/cidr_groups?address={parsed}"))?;
    Ok(layout::names("CIDR Groups", groups.keys().map(String::as_str)))
}

fn stats(line: &Line) -> Result<String, Failure> {
    let report: CidrFilteringReport = line.api.get("/api/v1/cidr_filtering")?;
    Ok(layout::cidr_filtering_stats(&report))
}

/// As Cassandra's it says nothing, whether there was anything or not.
fn forget_credentials(line: &Line) -> Result<String, Failure> {
    let roles = line.arguments.iter().cloned().map(Some);
    let all = line.arguments.is_empty().then_some(None);
    for role in roles.chain(all) {
        let request = ForgetCredentials { role };
        line.api.command("DELETE", "/api/v1/credentials_cache", &request)?;
    }
    Ok(String::new())
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
