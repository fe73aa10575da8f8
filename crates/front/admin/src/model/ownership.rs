//! Ownership of the ring by node: computed from a [`NodeReport`] alone, so that the tool and the
//! server agree.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use cluster::replication::replication_of_params;
use cluster::{Member, MemberState, Members, Placements, Replication};
use schema::KeyspaceParams;
use stdx::{HostId, Token, Uuid};

use super::{KeyspaceReport, NodeReport};

/// Keyspaces of Cassandra itself: they do not count when ownership is worked out.
const SYSTEM_KEYSPACES: &[&str] =
    &["system", "system_schema", "system_auth", "system_distributed", "system_traces"];
/// The class of keyspaces that are local to each node.
const LOCAL_STRATEGY: &str = "LocalStrategy";
/// Keyspace for ownership if there are no user keyspaces.
const DEFAULT_KEYSPACE: &str = "system_traces";

/// How much of the ring each member is a replica of.
#[derive(Clone, Debug, PartialEq)]
pub struct Ownership {
    /// Per member, in the order of [`NodeReport::nodes`]: 0.0..=1.0; `None` when it means nothing.
    pub effective: Option<Vec<f64>>,
    /// Why it means nothing.
    pub note: Option<String>,
}

/// A range of the ring and its owners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeReport {
    /// Exclusive.
    pub start: i64,
    /// Inclusive.
    pub end: i64,
    /// Places in [`NodeReport::nodes`], natural replicas in their order.
    pub nodes: Vec<usize>,
}

impl NodeReport {
    /// Effective ownership for a keyspace, or for all of the users' when they are replicated alike.
    ///
    /// # Errors
    /// In Cassandra's words: there is no such keyspace.
    pub fn ownership(&self, keyspace: Option<&str>) -> Result<Ownership, String> {
        let meaningless =
            |note: &str| Ok(Ownership { effective: None, note: Some(note.to_owned()) });
        let shown = match keyspace {
            Some(name) => match self.keyspace(name) {
                None => return Err(format!("The keyspace {name}, does not exist")),
                Some(k) if k.strategy() == LOCAL_STRATEGY => {
                    return meaningless(
                        "Ownership values for keyspaces with LocalStrategy are meaningless",
                    );
                }
                Some(k) => Some(k),
            },
            None => {
                let is_users = |k: &&KeyspaceReport| !SYSTEM_KEYSPACES.contains(&k.name.as_str());
                let mut users = self.keyspaces.iter().filter(is_users);
                let first = users.next();
                if users.any(|k| Some(&k.replication) != first.map(|f| &f.replication)) {
                    return meaningless(
                        "Non-system keyspaces don't have the same replication settings, \
                         effective ownership information is meaningless",
                    );
                }
                first.or_else(|| self.keyspace(DEFAULT_KEYSPACE))
            }
        };
        let replication = match shown {
            Some(keyspace) => replication_of(keyspace),
            None => Replication::Simple(1),
        };
        let owned = self.placements(&replication).ownership();
        let effective = owned_by_place(&owned, self.nodes.len());
        Ok(Ownership { effective: Some(effective), note: None })
    }

    /// Returns the ring of the nodes that are not joining, as Cassandra's tools see it.
    fn placements(&self, replication: &Replication) -> Placements {
        let unknown = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        let mut members = Members::new();
        for (place, node) in self.nodes.iter().enumerate().filter(|(_, n)| n.state != "Joining") {
            let host_id = host_of(place);
            let mut tokens: Vec<Token> = node.tokens.iter().map(|t| Token(*t)).collect();
            tokens.sort_unstable();
            let member = Member {
                host_id,
                storage: unknown,
                rpc: unknown,
                datacenter: node.datacenter.clone(),
                rack: node.rack.clone(),
                tokens,
                moving_to: Vec::new(),
                state: MemberState::Normal,
                replaces: None,
                shards: 0,
                features: 0,
                release: String::new(),
            };
            members.insert(host_id, Arc::new(member));
        }
        Placements::build(&members, replication)
    }

    /// The ranges of the ring with their replicas for a keyspace, the one that wraps around first.
    ///
    /// # Errors
    /// In Cassandra's words: there is no such keyspace, or it is local to each node.
    pub fn ranges(&self, keyspace: &str) -> Result<Vec<RangeReport>, String> {
        let Some(found) = self.keyspace(keyspace) else {
            return Err(format!("No such keyspace: {keyspace}"));
        };
        if found.strategy() == LOCAL_STRATEGY {
            return Err(format!("There is no ring for the keyspace: {keyspace}"));
        }
        let placements = self.placements(&replication_of(found));
        let all = placements.ranges().map(|(range, replicas)| RangeReport {
            start: range.start.0,
            end: range.end.0,
            nodes: replicas.natural().map(|m| place_of(m.host_id)).collect(),
        });
        Ok(all.collect())
    }

    /// The keyspace of that name.
    pub fn keyspace(&self, name: &str) -> Option<&KeyspaceReport> {
        self.keyspaces.iter().find(|k| k.name == name)
    }

    /// Tokens of all members.
    pub fn token_count(&self) -> usize {
        self.nodes.iter().map(|n| n.tokens.len()).sum()
    }
}

/// Members stand for their places: reports may hold ids that are none.
fn host_of(place: usize) -> HostId {
    HostId(Uuid::from_u128(place as u128))
}

fn place_of(host: HostId) -> usize {
    usize::try_from(host.0.as_u128()).unwrap_or(usize::MAX)
}

fn owned_by_place(owned: &BTreeMap<HostId, f64>, places: usize) -> Vec<f64> {
    (0..places).map(|place| owned.get(&host_of(place)).copied().unwrap_or(0.0)).collect()
}

fn replication_of(keyspace: &KeyspaceReport) -> Replication {
    replication_of_params(&KeyspaceParams {
        durable_writes: true,
        replication: keyspace.replication.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::MemberReport;
    use crate::model::tests::{NETWORK, SIMPLE, keyspace, one_node, three_nodes};

    #[test]
    fn ownership_is_that_of_the_replicas() {
        let mut node = three_nodes();
        let share = |node: &NodeReport, name: &str| node.ownership(Some(name)).unwrap().effective;
        node.keyspaces.push(keyspace("one", &[("class", SIMPLE), ("replication_factor", "1")]));
        node.keyspaces.push(keyspace("all", &[("class", NETWORK), ("dc1", "3")]));
        node.keyspaces.push(keyspace("far", &[("class", NETWORK), ("dc2", "3")]));
        // Tokens at a quarter, a half and the end of the ring.
        assert_eq!(share(&node, "one"), Some(vec![0.25, 0.25, 0.5]));
        assert_eq!(share(&node, "all"), Some(vec![1.0, 1.0, 1.0]));
        assert_eq!(share(&node, "far"), Some(vec![0.0, 0.0, 0.0]));
    }

    #[test]
    fn a_joining_node_owns_nothing_yet() {
        let mut node = three_nodes();
        node.keyspaces.push(keyspace("one", &[("class", SIMPLE), ("replication_factor", "1")]));
        node.nodes[1].state = "Joining".to_owned();
        let owned = node.ownership(Some("one")).unwrap().effective.unwrap();
        assert_eq!(owned, [0.25, 0.0, 0.75]);
    }

    #[test]
    fn ranges_have_their_replicas_in_order() {
        let mut node = three_nodes();
        node.keyspaces.push(keyspace("two", &[("class", SIMPLE), ("replication_factor", "2")]));
        let ranges = node.ranges("two").unwrap();
        let shown: Vec<_> = ranges.iter().map(|r| (r.start, r.end, r.nodes.clone())).collect();
        let (a, b, c) = (i64::MIN / 2, 0, i64::MAX);
        assert_eq!(shown, [(c, a, vec![0, 1]), (a, b, vec![1, 2]), (b, c, vec![2, 0])]);
        assert_eq!(node.ranges("nosuch").unwrap_err(), "No such keyspace: nosuch");
        let local = node.ranges("system").unwrap_err();
        assert_eq!(local, "There is no ring for the keyspace: system");
    }

    #[test]
    fn without_keyspaces_of_users_the_traces_are_looked_at() {
        let mut node = one_node();
        node.keyspaces.retain(|k| k.name != "adm_h");
        node.nodes.push(MemberReport { tokens: vec![0], ..node.nodes[0].clone() });
        // Replicated twice, on two nodes.
        assert_eq!(node.ownership(None).unwrap().effective, Some(vec![1.0, 1.0]));
    }
}
