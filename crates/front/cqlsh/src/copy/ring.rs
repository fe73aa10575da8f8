//! Token ownership: the nodes that COPY connects to.
//!
//! Owns: the nodes of the shell's own data center and their ranges. Never: connections.
//!
//! The server's own account of the ring (`DESCRIBE CLUSTER` in the keyspace) names the replicas, so
//! that no replication strategy is known here. Where a server does not give it, all requests are
//! sent to the node that the shell is connected to.

use std::net::IpAddr;

use cql_client::TokenRing;
use cql_wire::Consistency;

use crate::connection::{Page, Target};
use crate::schema;
use crate::shell::Shell;

/// Nodes and their ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ring {
    /// Names and ports; the first is the one of the shell.
    nodes: Vec<(String, u16)>,
    ranges: TokenRing,
}

impl Ring {
    /// Asks the server of the shell.
    pub(super) fn read(shell: &mut Shell, keyspace: &str) -> Ring {
        let own = (shell.target.host.clone(), shell.target.port);
        let mut ring = Ring { nodes: vec![own], ranges: TokenRing::default() };
        if !shell.server.partitioner.ends_with("Murmur3Partitioner") {
            return ring;
        }
        let mut tokens = Vec::new();
        let mut storage = Vec::new();
        for page in ask(shell, "SELECT * FROM system.local WHERE key = 'local'") {
            let address = page.named(0, "broadcast_address").and_then(address);
            storage.extend(address.map(|address| (address.to_string(), 0)));
            tokens.extend(tokens_of(page.named(0, "tokens").unwrap_or_default()));
        }
        for node in peers(shell) {
            tokens.extend(node.tokens);
            if node.data_center == shell.server.data_center {
                storage.push((node.storage, ring.nodes.len()));
                ring.nodes.push((node.native, node.port));
            }
        }
        let pages = shell.describe_rows("DESCRIBE CLUSTER", Some(keyspace));
        let known = |host: &str| {
            let found = storage.iter().find(|(address, _)| address == bare(host));
            found.map(|(_, node)| *node)
        };
        let mut ranges_of_nodes = Vec::new();
        for (token, hosts) in pages.iter().flat_map(|(pages, _)| pages).flat_map(ranges) {
            let Ok(token) = token.parse() else { continue };
            ranges_of_nodes.push((token, hosts.split(", ").filter_map(known).collect()));
        }
        if ranges_of_nodes.is_empty() {
            // A keyspace that every node has for itself, or an older server.
            ring.nodes.truncate(1);
            ranges_of_nodes = tokens.into_iter().map(|token| (token, Vec::new())).collect();
        }
        ring.ranges = TokenRing::new(ranges_of_nodes);
        ring
    }

    /// Number of nodes.
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// How to reach a node with what reaches the shell's own.
    pub(super) fn target(&self, node: usize, own: &Target) -> Target {
        let (host, port) = self.nodes.get(node).cloned().unwrap_or_default();
        Target { host, port, ..own.clone() }
    }

    /// The ends of all ranges.
    pub(super) fn tokens(&self) -> impl Iterator<Item = i64> {
        self.ranges.tokens()
    }

    /// Which range a token is in.
    pub(super) fn position(&self, token: i64) -> usize {
        self.ranges.position(token)
    }

    /// The replicas of a range in this data center; the shell's own node where there are none.
    pub(super) fn replicas(&self, position: usize) -> &[usize] {
        match self.ranges.replicas(position) {
            [] => &[0],
            nodes => nodes,
        }
    }
}

struct Peer {
    storage: String,
    native: String,
    port: u16,
    data_center: String,
    tokens: Vec<i64>,
}

/// The rows of `system.peers_v2`, or of `system.peers` of an older server.
fn peers(shell: &mut Shell) -> Vec<Peer> {
    let mut pages = ask(shell, "SELECT * FROM system.peers_v2");
    if pages.is_empty() {
        pages = ask(shell, "SELECT * FROM system.peers");
    }
    let own_port = shell.target.port;
    let peer = |page: &Page, row: usize| {
        let storage = page.named(row, "peer").and_then(address)?;
        let native = page.named(row, "native_address").or_else(|| page.named(row, "rpc_address"));
        let native = native.and_then(address)?;
        // Clients reach a node that listens everywhere at its own address.
        let native = if native.is_unspecified() { storage } else { native };
        let port = page.named(row, "native_port").and_then(|port| port.try_into().ok());
        let port = port.and_then(|port| u16::try_from(i32::from_be_bytes(port)).ok());
        Some(Peer {
            storage: storage.to_string(),
            native: native.to_string(),
            port: port.unwrap_or(own_port),
            data_center: page.text(row, "data_center"),
            tokens: tokens_of(page.named(row, "tokens").unwrap_or_default()),
        })
    };
    let rows = |page| (0..Page::len(page)).filter_map(move |row| peer(page, row));
    pages.iter().flat_map(rows).collect()
}

/// Returns rows of a table that only some servers have; none when it is missing.
fn ask(shell: &mut Shell, query: &str) -> Vec<Page> {
    let timeout = shell.options.request_timeout;
    schema::rows(&mut shell.connection, query, Consistency::One, timeout).unwrap_or_default()
}

fn address(value: &[u8]) -> Option<IpAddr> {
    if let Ok(four) = <[u8; 4]>::try_from(value) {
        return Some(IpAddr::from(four));
    }
    <[u8; 16]>::try_from(value).ok().map(IpAddr::from)
}

fn tokens_of(value: &[u8]) -> Vec<i64> {
    let Ok(elements) = types::wire::Elements::new(value, types::wire::CollectionKind::Set) else {
        return Vec::new();
    };
    elements.filter_map(|token| std::str::from_utf8(token.ok()??).ok()?.parse().ok()).collect()
}

/// Tokens and hosts of the column `range_ownership`.
pub(crate) fn ranges(page: &Page) -> Vec<(String, String)> {
    let value = page.named(0, "range_ownership").unwrap_or_default();
    let Ok(entries) = types::wire::Entries::new(value) else { return Vec::new() };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    entries
        .filter_map(Result::ok)
        .map(|(token, hosts)| {
            let kind = types::wire::CollectionKind::List;
            let hosts: Vec<String> = types::wire::Elements::new(hosts, kind)
                .into_iter()
                .flatten()
                .filter_map(|host| host.ok().flatten().map(text))
                .collect();
            (text(token), hosts.join(", "))
        })
        .collect()
}

/// An address without its port and the slash that Java puts before it.
pub(crate) fn bare(host: &str) -> &str {
    let host = host.trim_start_matches('/');
    match host.rsplit_once(':') {
        Some((address, _)) if !address.contains(':') || address.ends_with(']') => address,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_belongs_to_the_first_end_that_is_not_below_it() {
        let ring = Ring {
            nodes: vec![("a".to_owned(), 1), ("b".to_owned(), 2)],
            ranges: TokenRing::new(vec![(-5, vec![0, 1]), (7, vec![1]), (9, vec![])]),
        };
        let replicas = |token| ring.replicas(ring.position(token));
        assert_eq!(replicas(-6), [0, 1]);
        assert_eq!(replicas(-5), [0, 1]);
        assert_eq!(replicas(-4), [1]);
        assert_eq!(replicas(7), [1]);
        assert_eq!(replicas(8), [0], "no replica here: the shell's own node");
        assert_eq!(replicas(10), [0, 1], "around the ring");
        assert_eq!(Ring::default().replicas(0), [0]);
    }

    #[test]
    fn addresses_have_four_or_sixteen_bytes() {
        assert_eq!(address(&[127, 0, 0, 1]).unwrap().to_string(), "127.0.0.1");
        assert_eq!(address(&[0; 16]).unwrap().to_string(), "::");
        assert_eq!(address(&[1, 2, 3]), None);
    }
}
