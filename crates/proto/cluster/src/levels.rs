//! Consistency levels: the number of replicas that each needs, and the check that so many are
//! alive.
//!
//! Owns: the numbers ([`Levels`]), [`Shortage`] with what an Unavailable error carries, and which
//! level a kind of request takes. Never: which replicas are asked (that is the request's plan).
//!
//! Source: `ConsistencyLevel.java`, `ReplicaPlans.assureSufficientLiveReplicas*`,
//! `ReplicaPlans.forPaxos` of Cassandra 5.0.

use std::collections::BTreeMap;

use crate::member::Member;
use crate::placement::Replicas;
use crate::replication::{Consistency, Replication, ReplicationError, Unavailable};

impl Consistency {
    /// Every level, in the order of the protocol's numbers.
    pub const ALL: [Consistency; 12] = [
        Consistency::Any,
        Consistency::One,
        Consistency::Two,
        Consistency::Three,
        Consistency::Quorum,
        Consistency::All,
        Consistency::LocalQuorum,
        Consistency::EachQuorum,
        Consistency::Serial,
        Consistency::LocalSerial,
        Consistency::LocalOne,
        Consistency::NodeLocal,
    ];

    /// Returns the name in CQL: `LOCAL_QUORUM`.
    pub fn name(self) -> &'static str {
        match self {
            Consistency::Any => "ANY",
            Consistency::One => "ONE",
            Consistency::Two => "TWO",
            Consistency::Three => "THREE",
            Consistency::Quorum => "QUORUM",
            Consistency::All => "ALL",
            Consistency::LocalQuorum => "LOCAL_QUORUM",
            Consistency::EachQuorum => "EACH_QUORUM",
            Consistency::Serial => "SERIAL",
            Consistency::LocalSerial => "LOCAL_SERIAL",
            Consistency::LocalOne => "LOCAL_ONE",
            Consistency::NodeLocal => "NODE_LOCAL",
        }
    }

    /// Returns true if only replicas of the coordinator's datacenter count.
    pub fn is_datacenter_local(self) -> bool {
        matches!(
            self,
            Consistency::LocalQuorum
                | Consistency::LocalSerial
                | Consistency::LocalOne
                | Consistency::NodeLocal
        )
    }

    /// SERIAL or LOCAL_SERIAL.
    pub fn is_serial(self) -> bool {
        matches!(self, Consistency::Serial | Consistency::LocalSerial)
    }

    /// # Errors
    /// `Invalid`, in Cassandra's words, when a read does not take it.
    pub fn validate_for_read(self) -> Result<(), ReplicationError> {
        match self {
            Consistency::Any => invalid("ANY ConsistencyLevel is only supported for writes"),
            _ => self.validate_not_node_local(),
        }
    }

    /// # Errors
    /// `Invalid`, in Cassandra's words, when a write without conditions does not take it.
    pub fn validate_for_write(self) -> Result<(), ReplicationError> {
        if self.is_serial() {
            return invalid("You must use conditional updates for serializable writes");
        }
        self.validate_not_node_local()
    }

    /// # Errors
    /// `Invalid`, in Cassandra's words, when it is not the serial level of a conditional update.
    pub fn validate_for_cas(self) -> Result<(), ReplicationError> {
        if self.is_serial() {
            return Ok(());
        }
        invalid("Invalid consistency for conditional update. Must be one of SERIAL or LOCAL_SERIAL")
    }

    /// # Errors
    /// `Invalid`, in Cassandra's words, when a conditional update cannot be committed at it.
    pub fn validate_for_cas_commit(
        self,
        replication: &Replication,
    ) -> Result<(), ReplicationError> {
        if self.is_serial() {
            return invalid(format!(
                "{} is not supported as conditional update commit consistency. Use ANY if you mean \
                 \"make sure it is accepted but I don't care how many replicas commit it for \
                 non-SERIAL reads\"",
                self.name()
            ));
        }
        let class = match replication {
            Replication::Network(_) => return self.validate_not_node_local(),
            Replication::Simple(_) => "SimpleStrategy",
            Replication::Local => "LocalStrategy",
        };
        if self == Consistency::EachQuorum {
            return invalid(format!(
                "consistency level EACH_QUORUM not compatible with replication strategy \
                 (org.apache.cassandra.locator.{class})"
            ));
        }
        self.validate_not_node_local()
    }

    /// # Errors
    /// `Invalid`, in Cassandra's words, when a write to counter table `table` does not take it.
    pub fn validate_for_counter_write(self, table: &str) -> Result<(), ReplicationError> {
        if self == Consistency::Any {
            return invalid(format!(
                "Consistency level ANY is not yet supported for counter table {table}"
            ));
        }
        if self.is_serial() {
            return invalid("Counter operations are inherently non-serializable");
        }
        self.validate_not_node_local()
    }

    /// Refuses NODE_LOCAL, as Cassandra does unless it is started with NODE_LOCAL enabled.
    fn validate_not_node_local(self) -> Result<(), ReplicationError> {
        if self == Consistency::NodeLocal {
            return invalid(
                "NODE_LOCAL consistency level is highly dangerous and should be used only for \
                 debugging purposes",
            );
        }
        Ok(())
    }
}

fn invalid(message: impl Into<String>) -> Result<(), ReplicationError> {
    Err(ReplicationError::Invalid(message.into()))
}

/// Too few replicas are alive; nothing was sent. `Display` is Cassandra's message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// The level asked for.
    pub consistency: Consistency,
    /// The datacenter that lacks them, for EACH_QUORUM.
    pub datacenter: Option<String>,
    /// Replicas of a partition that two or more nodes are taking over, which an LWT cannot use.
    pub moving: Option<u32>,
    /// Value of the error's field `required`.
    pub required: u32,
    /// Value of the error's field `alive`.
    pub alive: u32,
}

impl std::fmt::Display for Shortage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(moving) = self.moving {
            return write!(
                f,
                "Cannot perform LWT operation as there is more than one ({moving}) pending range \
                 movement"
            );
        }
        write!(f, "Cannot achieve consistency level {}", self.consistency.name())?;
        match &self.datacenter {
            Some(datacenter) => write!(f, " in DC {datacenter}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Shortage {}

impl From<Shortage> for ReplicationError {
    fn from(s: Shortage) -> ReplicationError {
        let Shortage { consistency, required, alive, datacenter, .. } = s;
        Unavailable { consistency, required, alive, datacenter }.into()
    }
}

/// The numbers for one replication, as a coordinator in one datacenter counts them.
#[derive(Clone, Copy, Debug)]
pub struct Levels<'a> {
    /// The keyspace's replication.
    pub replication: &'a Replication,
    /// The coordinator's datacenter.
    pub local_datacenter: &'a str,
}

/// Participants of a round of Paxos.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SerialQuorum {
    /// Replicas that count, dead ones too: natural and pending, of one datacenter for LOCAL_SERIAL.
    pub participants: u32,
    /// More than half of them.
    pub required: u32,
}

impl Levels<'_> {
    /// Replicas over all datacenters.
    pub fn factor(&self) -> u32 {
        match self.replication {
            Replication::Local => 1,
            Replication::Simple(n) => *n,
            Replication::Network(map) => map.values().fold(0, |sum, n| sum.saturating_add(*n)),
        }
    }

    /// More than half of all replicas.
    pub fn quorum(&self) -> u32 {
        self.factor() / 2 + 1
    }

    /// More than half of the replicas in a datacenter; of all when the strategy knows none.
    pub fn local_quorum(&self, datacenter: &str) -> u32 {
        match self.replication {
            Replication::Network(map) => map.get(datacenter).copied().unwrap_or(0) / 2 + 1,
            Replication::Local | Replication::Simple(_) => self.quorum(),
        }
    }

    /// Acknowledgements that EACH_QUORUM reads need per datacenter; without
    /// `NetworkTopologyStrategy` it is a quorum, under the coordinator's datacenter.
    ///
    /// A datacenter with factor 0 needs one, as in Cassandra: the level cannot be had then.
    pub fn each_quorum_for_read(&self) -> BTreeMap<String, u32> {
        match self.replication {
            Replication::Network(map) => {
                map.keys().map(|dc| (dc.clone(), self.local_quorum(dc))).collect()
            }
            Replication::Local | Replication::Simple(_) => {
                BTreeMap::from([(self.local_datacenter.to_owned(), self.quorum())])
            }
        }
    }

    /// Like [`Levels::each_quorum_for_read`], with one more for each pending replica.
    pub fn each_quorum_for_write(&self, replicas: Replicas<'_>) -> BTreeMap<String, u32> {
        let mut needed = self.each_quorum_for_read();
        for member in replicas.pending() {
            *needed.entry(member.datacenter.clone()).or_default() += 1;
        }
        needed
    }

    /// Replies that a read waits for.
    pub fn block_for(&self, consistency: Consistency) -> u32 {
        match consistency {
            Consistency::Any
            | Consistency::One
            | Consistency::LocalOne
            | Consistency::NodeLocal => 1,
            Consistency::Two => 2,
            Consistency::Three => 3,
            Consistency::Quorum | Consistency::Serial => self.quorum(),
            Consistency::All => self.factor(),
            Consistency::LocalQuorum | Consistency::LocalSerial => {
                self.local_quorum(self.local_datacenter)
            }
            Consistency::EachQuorum => self.each_quorum_for_read().values().sum(),
        }
    }

    /// Returns the number of acknowledgements that a write waits for. Every pending replica adds
    /// one, so that the natural quorum is whole whichever of them is a natural replica in the end.
    pub fn block_for_write(&self, consistency: Consistency, replicas: Replicas<'_>) -> u32 {
        let pending = match consistency {
            Consistency::Any | Consistency::NodeLocal => 0,
            Consistency::LocalOne | Consistency::LocalQuorum | Consistency::LocalSerial => {
                replicas.pending().filter(|m| self.is_local(m)).count()
            }
            _ => replicas.pending_len(),
        };
        self.block_for(consistency) + pending as u32
    }

    /// Returns true if a reply of `member` counts at this level.
    pub fn counts(&self, consistency: Consistency, member: &Member) -> bool {
        !consistency.is_datacenter_local() || self.is_local(member)
    }

    /// Checks that a read can be served; gives the replies it waits for.
    ///
    /// # Errors
    /// `Shortage` with the numbers of Cassandra's Unavailable.
    pub fn check_read(
        &self,
        consistency: Consistency,
        replicas: Replicas<'_>,
        alive: impl Fn(&Member) -> bool,
    ) -> Result<u32, Shortage> {
        let required = self.block_for(consistency);
        let live = replicas.natural().map(AsRef::as_ref).filter(|m: &&Member| alive(m));
        self.check(consistency, live, required)?;
        Ok(required)
    }

    /// Checks that a write can be acknowledged; gives the acknowledgements it waits for. ANY is
    /// always taken: a hint on the coordinator is enough.
    ///
    /// # Errors
    /// `Shortage` with the numbers of Cassandra's Unavailable.
    pub fn check_write(
        &self,
        consistency: Consistency,
        replicas: Replicas<'_>,
        alive: impl Fn(&Member) -> bool,
    ) -> Result<u32, Shortage> {
        let required = self.block_for_write(consistency, replicas);
        let live = replicas.members().map(AsRef::as_ref).filter(|m: &&Member| alive(m));
        self.check(consistency, live, required)?;
        Ok(required)
    }

    /// Checks that a conditional update or a serial read can be decided.
    ///
    /// # Errors
    /// `Shortage`: fewer than half of the participants are alive, or two or more replicas are
    /// pending (CASSANDRA-8346).
    pub fn check_serial(
        &self,
        consistency: Consistency,
        replicas: Replicas<'_>,
        alive: impl Fn(&Member) -> bool,
    ) -> Result<SerialQuorum, Shortage> {
        let counts = |m: &Member| consistency != Consistency::LocalSerial || self.is_local(m);
        let participants = replicas.members().filter(|m| counts(m)).count() as u32;
        let pending = replicas.pending().filter(|m| counts(m)).count();
        let live = replicas.members().filter(|m| counts(m) && alive(m)).count() as u32;
        let required = participants / 2 + 1;
        let shortage = |required, moving| Shortage {
            consistency,
            datacenter: None,
            moving,
            required,
            alive: live,
        };
        if live < required {
            return Err(shortage(required, None));
        }
        if pending > 1 {
            // A number that cannot be reached, so that no client waits for nodes to come back.
            return Err(shortage(participants + 1, Some(participants)));
        }
        Ok(SerialQuorum { participants, required })
    }

    fn check<'m>(
        &self,
        consistency: Consistency,
        live: impl Iterator<Item = &'m Member>,
        required: u32,
    ) -> Result<(), Shortage> {
        let shortage = |datacenter, required, alive| {
            Err(Shortage { consistency, datacenter, moving: None, required, alive })
        };
        match (consistency, self.replication) {
            (Consistency::Any, _) => Ok(()),
            (Consistency::EachQuorum, Replication::Network(map)) => {
                let mut alive: BTreeMap<&str, u32> =
                    map.keys().map(|dc| (dc.as_str(), 0)).collect();
                for member in live {
                    *alive.entry(&member.datacenter).or_default() += 1;
                }
                for (datacenter, alive) in alive {
                    // Pending replicas are not asked for here, only waited for.
                    let required = self.local_quorum(datacenter);
                    if alive < required {
                        return shortage(Some(datacenter.to_owned()), required, alive);
                    }
                }
                Ok(())
            }
            _ => {
                let alive = live.filter(|m| self.counts(consistency, m)).count() as u32;
                if alive >= required {
                    return Ok(());
                }
                // Cassandra names 1 for LOCAL_ONE whatever is pending.
                let named = if consistency == Consistency::LocalOne { 1 } else { required };
                shortage(None, named, alive)
            }
        }
    }

    fn is_local(&self, member: &Member) -> bool {
        member.datacenter == self.local_datacenter
    }
}

#[cfg(test)]
mod tests;
