//! Cutting the links between nodes, and healing them. Nodes of one machine share its loopback
//! device, so the nodes themselves drop messages over a cut link. Nodes that start later get the
//! list with their options.

use admin::model::ClusterCommand;
use admin::operation::{CLUSTER, Method};
use admin::verbs::HttpError;
use blocking_client::api::ApiAccess;
use tool_io::api_flags::ApiFlags;

use super::file::{ClusterFile, NodeFile};
use super::process::State;
use super::{API_PORT, Failure, Place, known, open};
use crate::exit;
use crate::nodetool::api_of;

/// The groups of a command line: `1,2 3`. One group alone is cut off from all the others.
pub(super) fn groups(file: &ClusterFile, words: &[String]) -> Result<Vec<Vec<u16>>, Failure> {
    let mut groups: Vec<Vec<u16>> = Vec::new();
    for word in words {
        let mut group = Vec::new();
        for part in word.split(',') {
            let number = part.parse().map_err(|_| {
                Failure::usage(format!("\"{word}\" is no list of nodes such as 1,2"))
            })?;
            known(file, number)?;
            if group.contains(&number) || groups.iter().flatten().any(|n| *n == number) {
                return Err(Failure::usage(format!("node {number} is named twice")));
            }
            group.push(number);
        }
        groups.push(group);
    }
    if let [alone] = groups.as_slice() {
        let named = |n: &u16| alone.contains(n);
        let rest: Vec<u16> = file.nodes.iter().map(|n| n.number).filter(|n| !named(n)).collect();
        if rest.is_empty() {
            return Err(Failure::usage("all nodes are in one group: nothing would be cut"));
        }
        groups.push(rest);
    }
    Ok(groups)
}

/// Cuts the links between the groups and heals all others; no group heals all.
pub(super) fn partition(place: &Place, login: &ApiFlags, words: &[String]) -> Result<u8, Failure> {
    let (dir, mut file) = open(place)?;
    let access = login.open().map_err(Failure::usage)?;
    let groups = groups(&file, words)?;
    let state = |node: &NodeFile| node.process.as_ref().map_or(State::Gone, |p| p.state());
    if let Some(paused) = file.nodes.iter().find(|n| state(n) == State::Paused) {
        return Err(Failure::failed(format!(
            "node {0} is paused; run \"helenus cluster resume {0}\" first",
            paused.number
        )));
    }
    // Saved first: a node that starts from now on gets it from its options, a running one by the
    // command below.
    file.cut = groups;
    dir.save(&file)?;
    for node in file.nodes.iter().filter(|n| state(n) == State::Running) {
        tell(&access, node, file.cut_off_from(node.number))?;
    }
    say_line!("{}", shown(&file));
    Ok(exit::OK)
}

fn tell(access: &ApiAccess, node: &NodeFile, addresses: Vec<String>) -> Result<(), Failure> {
    let api = api_of(&node.address, API_PORT, access);
    let number = node.number;
    let told = api.command(Method::Post, CLUSTER, &ClusterCommand::CutLinks { addresses });
    told.map_err(|error| {
        Failure::failed(match error {
            HttpError::Connect(error) => format!("cannot reach node {number}: {error}"),
            HttpError::Refused(_, words) | HttpError::Strange(words) => {
                format!("node {number} was not cut: {words}")
            }
        })
    })
}

/// Returns the cut links as text for the user.
pub(super) fn shown(file: &ClusterFile) -> String {
    if file.cut.is_empty() {
        return "no link is cut".to_owned();
    }
    let group = |g: &Vec<u16>| g.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let groups: Vec<String> = file.cut.iter().map(group).collect();
    format!("cut off from each other: {}", groups.join(" | "))
}
