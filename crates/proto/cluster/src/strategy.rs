//! Cassandra's replication strategies as walks around a ring of tokens.
//!
//! Owns: [`Ring`], the tokens of one moment with the datacenter and rack of each node, and
//! [`Ring::replicas_at`]. Never: liveness, pending replicas (that is [`crate::placement`]).
//!
//! Source: `SimpleStrategy.calculateNaturalReplicas`, `NetworkTopologyStrategy
//! .calculateNaturalReplicas` of Cassandra 5.0.

use std::collections::BTreeMap;
use std::sync::Arc;

use stdx::Token;

use crate::member::Member;
use crate::replication::Replication;

/// Index of a node among the members in the order of their host ids.
pub(crate) type NodeIndex = u16;

/// The owner of each token at one moment, and the owners' datacenters and racks.
#[derive(Clone, Debug)]
pub(crate) struct Ring {
    /// Ascending and distinct.
    pub(crate) tokens: Vec<(Token, NodeIndex)>,
    /// Per node: its datacenter and rack as small numbers; racks are distinct across datacenters.
    sites: Vec<Site>,
    /// Per datacenter: its name, nodes with tokens and racks with such nodes.
    datacenters: Vec<Datacenter>,
}

#[derive(Clone, Copy, Debug)]
struct Site {
    datacenter: u16,
    rack: u16,
}

#[derive(Clone, Debug)]
struct Datacenter {
    name: String,
    nodes: u32,
    racks: u32,
}

/// Room for one walk, kept between walks so that building a table allocates once.
#[derive(Default)]
pub(crate) struct Walk {
    racks_seen: Vec<u16>,
    fills: Vec<Fill>,
}

struct Fill {
    datacenter: u16,
    left: u32,
    repeats: i64,
}

impl Ring {
    /// The ring in which the movements that `finished` names are done and the others not begun.
    ///
    /// Only nodes that own a token there count for the size of a datacenter and its racks, as in
    /// Cassandra's topology.
    pub(crate) fn new(nodes: &[Arc<Member>], finished: &dyn Fn(&Member) -> bool) -> Ring {
        let mut replaced: Vec<_> = Vec::new();
        for node in nodes {
            if let Some(old) = node.replaces
                && finished(node)
            {
                replaced.push(old);
            }
        }
        let owned = nodes.iter().map(|node| {
            let gone = replaced.contains(&node.host_id);
            let tokens = if gone { &[][..] } else { node.tokens_when(finished(node)) };
            (node.datacenter.as_str(), node.rack.as_str(), tokens)
        });
        Ring::of(owned)
    }

    /// The ring of nodes given as datacenter, rack and tokens.
    pub(crate) fn of<'a>(nodes: impl Iterator<Item = (&'a str, &'a str, &'a [Token])>) -> Ring {
        let mut racks: BTreeMap<(u16, &str), u16> = BTreeMap::new();
        let mut ring = Ring { tokens: Vec::new(), sites: Vec::new(), datacenters: Vec::new() };
        let mut by_name: BTreeMap<&str, u16> = BTreeMap::new();
        for (index, (name, rack, tokens)) in nodes.enumerate() {
            let datacenter = *by_name.entry(name).or_insert_with(|| {
                let entry = Datacenter { name: name.to_owned(), nodes: 0, racks: 0 };
                ring.datacenters.push(entry);
                (ring.datacenters.len() - 1) as u16
            });
            let rack_next = racks.len() as u16;
            let mut is_new = false;
            // A node without tokens gets a site, but its rack does not exist for others.
            let rack = if tokens.is_empty() {
                racks.get(&(datacenter, rack)).copied().unwrap_or(u16::MAX)
            } else {
                *racks.entry((datacenter, rack)).or_insert_with(|| {
                    is_new = true;
                    rack_next
                })
            };
            if let Some(entry) = ring.datacenters.get_mut(usize::from(datacenter))
                && !tokens.is_empty()
            {
                entry.nodes += 1;
                entry.racks += u32::from(is_new);
            }
            ring.sites.push(Site { datacenter, rack });
            ring.tokens.extend(tokens.iter().map(|t| (*t, index as NodeIndex)));
        }
        ring.tokens.sort_unstable();
        ring
    }

    /// Index of the first token that is not below `token`; the first of all when there is none.
    pub(crate) fn first_at(&self, token: Token) -> usize {
        let at = self.tokens.partition_point(|(t, _)| *t < token);
        if at == self.tokens.len() { 0 } else { at }
    }

    /// Appends the replicas of the range that ends at the token of index `start`, in Cassandra's
    /// order: the owner of the token first.
    pub(crate) fn replicas_at(
        &self,
        replication: &Replication,
        start: usize,
        walk: &mut Walk,
        out: &mut Vec<NodeIndex>,
    ) {
        match replication {
            Replication::Local => {}
            Replication::Simple(factor) => self.simple(*factor, start, out),
            Replication::Network(map) => self.network(map, start, walk, out),
        }
    }

    fn around(&self, start: usize) -> impl Iterator<Item = NodeIndex> + '_ {
        let (before, after) = self.tokens.split_at(start.min(self.tokens.len()));
        after.iter().chain(before).map(|(_, node)| *node)
    }

    fn simple(&self, factor: u32, start: usize, out: &mut Vec<NodeIndex>) {
        let first = out.len();
        let full = factor as usize;
        for node in self.around(start) {
            let found = out.get(first..).unwrap_or(&[]);
            if found.len() >= full {
                return;
            }
            if !found.contains(&node) {
                out.push(node);
            }
        }
    }

    fn network(
        &self,
        map: &BTreeMap<String, u32>,
        start: usize,
        walk: &mut Walk,
        out: &mut Vec<NodeIndex>,
    ) {
        let first = out.len();
        walk.racks_seen.clear();
        walk.fills.clear();
        for (index, datacenter) in self.datacenters.iter().enumerate() {
            let factor = map.get(&datacenter.name).copied().unwrap_or(0);
            if factor == 0 || datacenter.nodes == 0 {
                continue;
            }
            walk.fills.push(Fill {
                datacenter: index as u16,
                // Too few nodes: their number is the factor.
                left: factor.min(datacenter.nodes),
                // Too few racks: one node of each, and the rest are the first nodes met.
                repeats: i64::from(factor) - i64::from(datacenter.racks),
            });
        }
        let mut open = walk.fills.len();
        for node in self.around(start) {
            if open == 0 {
                return;
            }
            let Some(site) = self.sites.get(usize::from(node)).copied() else { continue };
            let Some(fill) = walk.fills.iter_mut().find(|f| f.datacenter == site.datacenter) else {
                continue;
            };
            if fill.left == 0 || out.get(first..).unwrap_or(&[]).contains(&node) {
                continue;
            }
            if walk.racks_seen.contains(&site.rack) {
                if fill.repeats <= 0 {
                    // The replicas that are left must stand in racks not yet seen.
                    continue;
                }
                fill.repeats -= 1;
            } else {
                walk.racks_seen.push(site.rack);
            }
            out.push(node);
            fill.left -= 1;
            if fill.left == 0 {
                open -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests;
