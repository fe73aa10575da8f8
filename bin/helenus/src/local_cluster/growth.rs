//! Nodes that come later: one more, or one in the place of a dead one.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use admin::model::NodeReport;
use blocking_client::api::ApiAccess;

use super::file::{ClusterDir, ClusterFile, NodeFile};
use super::{API_PORT, Failure, STEP, start};
use crate::nodetool::api_of;

/// Most nodes of a local cluster.
pub(super) const NODES_MAX: u16 = 100;

/// The address of a node, counted on from that of node 1.
pub(super) fn address_of(base: Ipv4Addr, number: u16) -> Result<Ipv4Addr, Failure> {
    let [a, b, c, first] = base.octets();
    let last = u16::from(first) + number.saturating_sub(1);
    match u8::try_from(last) {
        Ok(last @ 1..=254) => Ok(Ipv4Addr::new(a, b, c, last)),
        _ => Err(Failure::usage(format!(
            "node {number} has no address: counted on from {base} it is {a}.{b}.{c}.{last}; begin \
             with a smaller one (--address)"
        ))),
    }
}

/// The address that node 1 has, as the nodes of a cluster are numbered.
fn base_of(file: &ClusterFile) -> Result<Ipv4Addr, Failure> {
    let first = file.nodes.first().map_or("", |node| node.address.as_str());
    first.parse().map_err(|_| Failure::failed(format!("node 1 has no IPv4 address: \"{first}\"")))
}

/// One more node: in this data centre and rack, or where there are fewest.
pub(super) fn next_node(
    file: &ClusterFile,
    datacenter: Option<&str>,
    rack: Option<&str>,
) -> Result<NodeFile, Failure> {
    let number = file.nodes.iter().map(|node| node.number).max().unwrap_or(0) + 1;
    if number > NODES_MAX {
        return Err(Failure::usage(format!("a local cluster has {NODES_MAX} nodes at most")));
    }
    for name in [datacenter, rack].into_iter().flatten() {
        start::check_name(name)?;
    }
    let fewest = |names: &mut dyn Iterator<Item = &str>| {
        let mut counts: Vec<(String, usize)> = Vec::new();
        for name in names {
            match counts.iter_mut().find(|(known, _)| known == name) {
                Some((_, count)) => *count += 1,
                None => counts.push((name.to_owned(), 1)),
            }
        }
        // Ties go to the first node in order.
        counts.iter().min_by_key(|(_, count)| *count).map(|(name, _)| name.clone())
    };
    let datacenter = match datacenter {
        Some(name) => name.to_owned(),
        None => fewest(&mut file.nodes.iter().map(|n| n.datacenter.as_str())).unwrap_or_default(),
    };
    let rack = match rack {
        Some(name) => name.to_owned(),
        None => {
            let here = || file.nodes.iter().filter(|n| n.datacenter == datacenter);
            let known = fewest(&mut here().map(|n| n.rack.as_str()));
            known.unwrap_or_else(|| "rack1".to_owned())
        }
    };
    Ok(NodeFile {
        number,
        address: address_of(base_of(file)?, number)?.to_string(),
        datacenter,
        rack,
        process: None,
        replaces: false,
        is_replacing: false,
        is_out: false,
    })
}

/// Starts one more node and waits until it serves clients; its number.
pub(super) fn add(
    dir: &ClusterDir,
    file: &mut ClusterFile,
    datacenter: Option<&str>,
    rack: Option<&str>,
    timeout: u64,
) -> Result<u16, Failure> {
    let node = next_node(file, datacenter, rack)?;
    let number = node.number;
    if !file.nodes.iter().any(|n| file.runs(n.number)) {
        let text = "no node runs that another one could join; \"helenus cluster start\" first";
        return Err(Failure::failed(text));
    }
    // Before it is written down: what cannot listen is no node.
    start::check_addresses(std::slice::from_ref(&node))?;
    file.nodes.push(node);
    dir.save(file)?;
    start::start_nodes(dir, file, &[number], timeout).map_err(|failure| {
        // It may be about to join; only its own start can tell.
        let hint = format!("try again with \"helenus cluster start-node {number}\"");
        Failure { text: format!("{}\n{hint}", failure.text), ..failure }
    })?;
    Ok(number)
}

/// Asks a node that runs which nodes are members and marks those that are out; returns true if that changed. Without an
/// answer nothing changes.
pub(super) fn learn_members(access: &ApiAccess, file: &mut ClusterFile) -> bool {
    let stopped = |n: &NodeFile| !file.runs(n.number);
    if !file.nodes.iter().any(stopped) {
        return false;
    }
    let report = file.nodes.iter().filter(|n| !stopped(n)).find_map(|node| {
        start::answers(&node.address).then_some(())?;
        api_of(&node.address, API_PORT, access).get::<NodeReport>("/api/v1/node").ok()
    });
    let Some(report) = report else { return false };
    let addresses: Vec<String> = report.nodes.into_iter().map(|member| member.address).collect();
    file.mark_members(&addresses)
}

/// Returns true if a node knows the one at this address to be down.
pub(super) fn sees_down(report: &NodeReport, address: &str) -> bool {
    let member = report.nodes.iter().find(|member| member.address == address);
    member.is_some_and(|member| !member.up && !member.liveness_unknown)
}

/// Waits until every node that runs knows that this one is dead: until then its place is not given
/// away.
pub(super) fn wait_until_seen_as_dead(
    access: &ApiAccess,
    file: &ClusterFile,
    start::Dead { number, timeout }: start::Dead,
) -> Result<(), Failure> {
    let Some(dead) = file.node(number) else { return Ok(()) };
    let deadline = Instant::now() + Duration::from_secs(timeout);
    let others: Vec<&NodeFile> =
        file.nodes.iter().filter(|n| n.number != number && file.runs(n.number)).collect();
    if others.is_empty() {
        let text = "no other node runs that knows the dead one; start the others first";
        return Err(Failure::failed(text));
    }
    let mut is_told = false;
    loop {
        let unaware: Vec<u16> = others
            .iter()
            .filter(|node| {
                let api = api_of(&node.address, API_PORT, access);
                let report = api.get::<NodeReport>("/api/v1/node");
                !report.is_ok_and(|report| sees_down(&report, &dead.address))
            })
            .map(|node| node.number)
            .collect();
        if unaware.is_empty() {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(Failure::failed(format!(
                "node {} does not see node {number} as dead after {timeout} s",
                super::listed(&unaware)
            )));
        }
        if !std::mem::replace(&mut is_told, true) {
            complain_line!("waiting until node {number} is seen as dead");
        }
        std::thread::sleep(STEP);
    }
}

#[cfg(test)]
mod tests {
    use admin::model::MemberReport;

    use super::*;
    use crate::exit;

    fn file(places: &[(&str, &str)]) -> ClusterFile {
        let mut file = ClusterFile::new("local".into(), 1, "1G".into(), Vec::new());
        for (number, (datacenter, rack)) in (1..).zip(places) {
            file.nodes.push(NodeFile {
                number,
                address: format!("127.0.8.{}", number + 9),
                datacenter: (*datacenter).to_owned(),
                rack: (*rack).to_owned(),
                process: None,
                replaces: false,
                is_replacing: false,
                is_out: false,
            });
        }
        file
    }

    #[test]
    fn one_more_node_goes_where_there_are_fewest() {
        let three = file(&[("d1", "a"), ("d1", "b"), ("d1", "c")]);
        let node = next_node(&three, None, None).unwrap();
        let NodeFile { number, address, datacenter, rack, .. } = node;
        assert_eq!((number, address.as_str()), (4, "127.0.8.13"));
        assert_eq!((datacenter.as_str(), rack.as_str()), ("d1", "a"));
        let two = file(&[("d1", "a"), ("d2", "x"), ("d1", "b")]);
        let node = next_node(&two, None, None).unwrap();
        assert_eq!((node.datacenter.as_str(), node.rack.as_str()), ("d2", "x"));
        let node = next_node(&two, Some("d3"), None).unwrap();
        assert_eq!((node.datacenter.as_str(), node.rack.as_str()), ("d3", "rack1"));
        let node = next_node(&two, Some("d1"), Some("z")).unwrap();
        assert_eq!((node.datacenter.as_str(), node.rack.as_str()), ("d1", "z"));
        assert_eq!(next_node(&two, None, Some("a/b")).unwrap_err().code, exit::USAGE);
    }

    #[test]
    fn addresses_are_counted_on_and_end_with_their_network() {
        let base = Ipv4Addr::new(127, 0, 8, 200);
        assert_eq!(address_of(base, 1).unwrap(), base);
        assert_eq!(address_of(base, 55).unwrap(), Ipv4Addr::new(127, 0, 8, 254));
        assert_eq!(address_of(base, 56).unwrap_err().code, exit::USAGE);
        assert_eq!(address_of(Ipv4Addr::new(127, 0, 8, 0), 1).unwrap_err().code, exit::USAGE);
    }

    #[test]
    fn a_node_is_dead_when_it_is_known_to_be_and_not_before() {
        let member = |up, liveness_unknown| MemberReport {
            address: "127.0.0.3".to_owned(),
            up,
            liveness_unknown,
            ..MemberReport::default()
        };
        for (up, unknown, expected) in
            [(true, false, false), (false, true, false), (false, false, true)]
        {
            let report = NodeReport { nodes: vec![member(up, unknown)], ..NodeReport::default() };
            assert_eq!(sees_down(&report, "127.0.0.3"), expected);
            assert!(!sees_down(&report, "127.0.0.4"));
        }
    }
}
