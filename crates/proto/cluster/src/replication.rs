//! Replication strategies and consistency-level arithmetic.

use std::collections::BTreeMap;

use schema::{Keyspace, KeyspaceParams};

use crate::snapshot::ClusterSnapshot;

/// A consistency level. The numbers are the native protocol's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
#[expect(missing_docs, reason = "the names are the protocol's own")]
pub enum Consistency {
    Any = 0,
    One = 1,
    Two = 2,
    Three = 3,
    Quorum = 4,
    All = 5,
    LocalQuorum = 6,
    EachQuorum = 7,
    Serial = 8,
    LocalSerial = 9,
    LocalOne = 10,
    NodeLocal = 11,
}

/// Not enough replicas are alive; checked before anything is sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Cannot achieve consistency level {consistency:?}")]
pub struct Unavailable {
    /// The level asked for.
    pub consistency: Consistency,
    /// Replicas needed.
    pub required: u32,
    /// Replicas alive.
    pub alive: u32,
    /// The datacenter that lacks them, for EACH_QUORUM.
    pub datacenter: Option<String>,
}

/// A consistency level that this kind of request does not take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplicationError {
    /// Message in Cassandra's words.
    #[error("{0}")]
    Invalid(String),
    /// Not enough replicas.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

/// Replicas per datacenter that a keyspace asks for; `SimpleStrategy` has them all under "".
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Replication {
    /// Every node for itself (`LocalStrategy`, virtual keyspaces).
    Local,
    /// Around the ring, whatever the datacenter.
    Simple(u32),
    /// By datacenter.
    Network(BTreeMap<String, u32>),
}

/// Reads a keyspace's replication map; a factor such as `3/1` (transient) counts its full part.
pub fn replication_of(keyspace: &Keyspace) -> Replication {
    replication_of_params(&keyspace.params)
}

/// Like [`replication_of`], for a keyspace's options.
pub fn replication_of_params(params: &KeyspaceParams) -> Replication {
    let map = &params.replication;
    let class = map.get("class").map_or("", String::as_str);
    let factor = |text: &String| -> u32 {
        text.split('/').next().and_then(|n| n.trim().parse().ok()).unwrap_or(0)
    };
    match class.rsplit('.').next().unwrap_or("") {
        "SimpleStrategy" => Replication::Simple(map.get("replication_factor").map_or(1, factor)),
        "NetworkTopologyStrategy" => Replication::Network(
            map.iter()
                .filter(|(k, _)| *k != "class" && *k != "replication_factor")
                .map(|(dc, n)| (dc.clone(), factor(n)))
                .collect(),
        ),
        _ => Replication::Local,
    }
}

impl ClusterSnapshot {
    /// Checks that enough replicas of a keyspace's data are alive, when this node is the whole
    /// cluster. `write` decides whether ANY is allowed.
    ///
    /// # Errors
    /// `Invalid` for a level that the request does not take, with Cassandra's words;
    /// `Unavailable` when more replicas are needed than there are.
    pub fn check_consistency(
        &self,
        keyspace: &Keyspace,
        consistency: Consistency,
        write: bool,
    ) -> Result<(), ReplicationError> {
        let replication = replication_of(keyspace);
        let (total, local) = match &replication {
            Replication::Local => return Ok(()),
            Replication::Simple(n) => (*n, *n),
            Replication::Network(map) => {
                (map.values().sum(), map.get(&self.local.datacenter).copied().unwrap_or(0))
            }
        };
        let alive_all = match &replication {
            Replication::Network(_) => local.min(1),
            Replication::Simple(_) | Replication::Local => total.min(1),
        };
        let alive_local = local.min(1);
        let quorum = |n: u32| n / 2 + 1;
        let (required, alive) = match consistency {
            Consistency::Any if write => return Ok(()),
            Consistency::Any => {
                return Err(ReplicationError::Invalid(
                    "ANY ConsistencyLevel is only supported for writes".to_owned(),
                ));
            }
            Consistency::Serial | Consistency::LocalSerial if write => {
                return Err(ReplicationError::Invalid(
                    "You must use conditional updates for serializable writes".to_owned(),
                ));
            }
            Consistency::One => (1, alive_all),
            Consistency::LocalOne | Consistency::NodeLocal => (1, alive_local),
            Consistency::Two => (2, alive_all),
            Consistency::Three => (3, alive_all),
            Consistency::Quorum | Consistency::Serial => (quorum(total), alive_all),
            Consistency::All => (total, alive_all),
            Consistency::LocalQuorum | Consistency::LocalSerial => (quorum(local), alive_local),
            Consistency::EachQuorum => match &replication {
                Replication::Network(map) => {
                    for (datacenter, n) in map {
                        let here = if *datacenter == self.local.datacenter { 1 } else { 0 };
                        let alive = (*n).min(here);
                        if quorum(*n) > alive {
                            let required = quorum(*n);
                            let datacenter = Some(datacenter.clone());
                            let error = Unavailable { consistency, required, alive, datacenter };
                            return Err(error.into());
                        }
                    }
                    return Ok(());
                }
                Replication::Simple(_) | Replication::Local => (quorum(total), alive_all),
            },
        };
        if required > alive {
            let datacenter = None;
            return Err(Unavailable { consistency, required, alive, datacenter }.into());
        }
        Ok(())
    }
}
