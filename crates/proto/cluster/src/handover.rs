//! Lightweight transactions while a keyspace gets other replicas (ALTER KEYSPACE).
//!
//! Owns: [`Handover`], its part of the snapshot, its steps, and the placements that conditional statements use
//! meanwhile. Never: plain reads and writes, which use the new replication at once (as in Cassandra); the copies
//! (a driver makes them).
//!
//! | stage | votes and is read | also votes | ends when |
//! | --- | --- | --- | --- |
//! | `Gaining` | the old replicas | those that are new | those that are new have data and registers |
//! | `Losing` | the new replicas | those that are none any more | the new ones have the registers |
//!
//! INV-handover-1: of two consecutive electorates (old, `Gaining`, `Losing`, new; a stage that changes no member
//! is left out) any two quorums, each with all that also vote, share a node.
//! INV-handover-2: while there is a handover no node joins, leaves or moves, and its keyspace does not change its
//! replication again.

use std::collections::BTreeSet;
use std::sync::Arc;

use codec::{DecodeError, Reader, Writer};
use schema::{Keyspace, SchemaChange};
use stdx::{Epoch, HostId, TableId};

use crate::member::Member;
use crate::metalog::{Transformation, read_text, text};
use crate::placement::{Placements, Replicas};
use crate::ranges::{TokenRange, aligned};
use crate::replication::{Replication, replication_of_params};
use crate::snapshot::ClusterSnapshot;
use crate::topology::MembershipError;

/// Stage of a handover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// New replicas take over.
    Gaining,
    /// The new replicas take over the registers that only the former replicas know.
    Losing,
}

/// A keyspace whose conditional statements do not use its new replication alone yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handover {
    /// Before the change.
    pub from: Replication,
    /// Epoch at which this stage began.
    pub since: Epoch,
    /// The stage.
    pub stage: Stage,
}

/// A step of a handover in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandoverStep {
    /// The keyspace.
    pub keyspace: String,
    /// `None`: the handover begins, with the change of replication after it in the same entry.
    /// Otherwise the stage that began at that epoch is over.
    pub done: Option<Epoch>,
}

impl HandoverStep {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        text(out, &self.keyspace);
        out.put_bool(self.done.is_some());
        if let Some(epoch) = self.done {
            out.put_u64(epoch.0);
        }
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<HandoverStep, DecodeError> {
        let keyspace = read_text(r)?;
        let done = if r.bool()? { Some(Epoch(r.u64()?)) } else { None };
        Ok(HandoverStep { keyspace, done })
    }
}

/// Part of the ring that one node takes over in a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inheritance {
    /// The range.
    pub range: TokenRange,
    /// All old replicas, with their datacenters.
    pub from: Vec<HostId>,
}

/// Returns true if a range has a replica in `after` that was none in `before`.
fn gains(before: &Placements, after: &Placements) -> bool {
    aligned(before, after).any(|(_, old, new)| new.natural().any(|m| !old.is_natural(m.host_id)))
}

impl ClusterSnapshot {
    /// The handover of a table's keyspace.
    pub fn handover_of_table(&self, table: TableId) -> Option<&Handover> {
        if self.handovers.is_empty() {
            return None;
        }
        self.handovers.get(&*self.schema.table_by_id(table)?.keyspace)
    }

    /// Returns the electorate of a keyspace's conditional statements during its handover, and which
    /// of the two replications the natural replicas belong to.
    pub fn voting_placements<'a>(
        &self,
        handover: &'a Handover,
        to: &'a Replication,
    ) -> (Placements, &'a Replication) {
        let (old, new) = (self.placements(&handover.from), self.placements(to));
        match handover.stage {
            Stage::Gaining => (Placements::joined(&old, &new), &handover.from),
            Stage::Losing => (Placements::joined(&new, &old), to),
        }
    }

    /// Puts before each change of a keyspace's replication the entry that has its lightweight
    /// transactions handed over, where that is needed: tables of users, several nodes, other replicas.
    pub fn with_handovers(&self, entries: Vec<Transformation>) -> Vec<Transformation> {
        let mut all = Vec::with_capacity(entries.len());
        for entry in entries {
            if let Transformation::Schema(change) = &entry
                && let SchemaChange::AlterKeyspace { name, params } = &**change
                && let Some(keyspace) = self.schema.keyspace(name)
                && self.must_hand_over(keyspace, &replication_of_params(params))
            {
                let keyspace = keyspace.name.to_string();
                all.push(Transformation::HandOver(HandoverStep { keyspace, done: None }));
            }
            all.push(entry);
        }
        all
    }

    /// Returns true if a change must wait because its keyspace is being handed over.
    pub fn waits_for_handover(&self, entries: &[Transformation]) -> bool {
        !self.handovers.is_empty()
            && entries.iter().any(|entry| match entry {
                Transformation::Schema(change) => match &**change {
                    SchemaChange::AlterKeyspace { name, params } => {
                        let known = self.schema.keyspace(name).map(|k| self.replication_of(k));
                        self.handovers.contains_key(&**name)
                            && known != Some(replication_of_params(params))
                    }
                    _ => false,
                },
                _ => false,
            })
    }

    fn must_hand_over(&self, keyspace: &Keyspace, to: &Replication) -> bool {
        let from = self.replication_of(keyspace);
        if keyspace.name.starts_with("system")
            || keyspace.tables.is_empty()
            || self.members.len() < 2
            || [&from, to].contains(&&Replication::Local)
        {
            return false;
        }
        let (old, new) = (self.placements(&from), self.placements(to));
        // With no replica before, nothing was decided; with none after, no heir exists.
        let exist = |p: &Placements| p.ranges().any(|(_, replicas)| !replicas.is_empty());
        exist(&old) && exist(&new) && (gains(&old, &new) || gains(&new, &old))
    }

    pub(crate) fn hand_over(&mut self, step: &HandoverStep) -> Result<(), MembershipError> {
        let refused = || MembershipError::NoHandover { keyspace: step.keyspace.clone() };
        let keyspace = self.schema.keyspace(&step.keyspace).ok_or_else(refused)?;
        let present = self.replication_of(keyspace);
        let name: Arc<str> = Arc::from(step.keyspace.as_str());
        let Some(done) = step.done else {
            if self.handovers.contains_key(&name) {
                let keyspace = step.keyspace.clone();
                return Err(MembershipError::HandingOver { keyspace });
            }
            // `settle_handovers` corrects the stage once the change is applied.
            let handover = Handover { from: present, since: self.epoch, stage: Stage::Gaining };
            self.handovers.insert(name, handover);
            return Ok(());
        };
        let known = self.handovers.get(&name).filter(|h| h.since == done).ok_or_else(refused)?;
        let (old, new) = (self.placements(&known.from), self.placements(&present));
        if known.stage == Stage::Gaining && gains(&new, &old) {
            let next = Handover { since: self.epoch, stage: Stage::Losing, ..known.clone() };
            self.handovers.insert(name, next);
        } else {
            self.handovers.remove(&name);
        }
        Ok(())
    }

    /// Follows a change of the schema. A dropped keyspace is not handed over any more, and a
    /// keyspace that only loses replicas skips `Gaining`.
    pub(crate) fn settle_handovers(&mut self) {
        let mut handovers = std::mem::take(&mut self.handovers);
        handovers.retain(|name, handover| {
            let Some(keyspace) = self.schema.keyspace(name) else { return false };
            if handover.since == self.epoch && handover.stage == Stage::Gaining {
                let to = self.replication_of(keyspace);
                if !gains(&self.placements(&handover.from), &self.placements(&to)) {
                    handover.stage = Stage::Losing;
                }
            }
            true
        });
        self.handovers = handovers;
    }

    /// Checks that no keyspace is handed over: the quorums of a handover were counted for the ring
    /// as it is.
    pub(crate) fn check_no_handover(&self) -> Result<(), MembershipError> {
        match self.handovers.keys().next() {
            Some(keyspace) => Err(MembershipError::HandingOver { keyspace: keyspace.to_string() }),
            None => Ok(()),
        }
    }

    /// Returns the heirs: the nodes that take ranges over in the present stage of a keyspace's
    /// handover.
    pub fn heirs(&self, keyspace: &str) -> BTreeSet<HostId> {
        let mut heirs = BTreeSet::new();
        self.each_inheritance(keyspace, |_, host, _| {
            heirs.insert(host);
        });
        heirs
    }

    /// Returns the ranges that a node takes over in the present stage of a keyspace's handover.
    pub fn inherits(&self, keyspace: &str, host: HostId) -> Vec<Inheritance> {
        let mut all = Vec::new();
        self.each_inheritance(keyspace, |range, heir, before| {
            if heir == host {
                let from = before.natural().map(|m| m.host_id).collect();
                all.push(Inheritance { range, from });
            }
        });
        all
    }

    fn each_inheritance(
        &self,
        keyspace: &str,
        mut each: impl FnMut(TokenRange, HostId, Replicas<'_>),
    ) {
        let Some((handover, to)) = self.handover(keyspace) else { return };
        let (old, new) = (self.placements(&handover.from), self.placements(&to));
        for (range, before, after) in aligned(&old, &new).filter(|(_, old, _)| !old.is_empty()) {
            let loses = before.natural().any(|m| !after.is_natural(m.host_id));
            for heir in after.natural().map(|m| m.host_id) {
                let takes = match handover.stage {
                    Stage::Gaining => !before.is_natural(heir),
                    Stage::Losing => loses,
                };
                if takes {
                    each(range, heir, before);
                }
            }
        }
    }

    /// Returns true if a stage may end although these heirs have not taken over. The other replicas
    /// of each range must still meet every quorum of the new ones, over all datacenters and in each
    /// that had replicas before. While the old replicas stay, a quorum of them counts too.
    pub fn may_end_without(&self, keyspace: &str, lacking: &BTreeSet<HostId>) -> bool {
        let Some((handover, to)) = self.handover(keyspace) else { return true };
        let (old, new) = (self.placements(&handover.from), self.placements(&to));
        let quorum = |n: usize| n / 2 + 1;
        let suffices = |before: usize, after: usize, lack: usize| {
            let unheard = match handover.stage {
                Stage::Gaining => before - quorum(before).min(before),
                Stage::Losing => 0,
            };
            before == 0 || unheard + lack < quorum(after)
        };
        aligned(&old, &new).all(|(_, before, after)| {
            let lacks = |m: &Member| {
                lacking.contains(&m.host_id)
                    && (handover.stage == Stage::Losing || !before.is_natural(m.host_id))
            };
            let count = |dc: Option<&str>| {
                let here = |m: &&Arc<Member>| dc.is_none_or(|dc| m.datacenter == dc);
                let lack = after.natural().filter(here).filter(|m| lacks(m)).count();
                (before.natural().filter(here).count(), after.natural().filter(here).count(), lack)
            };
            let of = |dc: Option<&str>| {
                let (before, after, lack) = count(dc);
                after == 0 || suffices(before, after, lack)
            };
            of(None) && after.natural().all(|m| of(Some(&m.datacenter)))
        })
    }

    /// The handover of a keyspace, with the replication that it goes to.
    pub fn handover(&self, keyspace: &str) -> Option<(&Handover, Replication)> {
        let handover = self.handovers.get(keyspace)?;
        Some((handover, self.replication_of(self.schema.keyspace(keyspace)?)))
    }

    /// Returns true if so many of the old replicas are alive that every quorum of them has a live
    /// member, over all datacenters and in each.
    pub fn knows_all(&self, from: &[HostId], is_alive: impl Fn(HostId) -> bool) -> bool {
        let covers = |hosts: &[HostId]| {
            let alive = hosts.iter().filter(|h| is_alive(**h)).count();
            hosts.len() - alive < hosts.len() / 2 + 1
        };
        let datacenter = |h: &HostId| self.members.get(h).map(|m| m.datacenter.clone());
        let datacenters: BTreeSet<Option<String>> = from.iter().map(datacenter).collect();
        let each = |dc: &Option<String>| -> bool {
            let hosts: Vec<HostId> =
                from.iter().copied().filter(|h| datacenter(h) == *dc).collect();
            covers(&hosts)
        };
        covers(from) && datacenters.iter().all(each)
    }
}

#[cfg(test)]
mod tests;
