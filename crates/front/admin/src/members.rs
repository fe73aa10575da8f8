//! The members of the cluster as reports: identity from the metadata log, liveness from gossip.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;

use cluster::{ADDRESS_UNKNOWN, ClusterSnapshot, Member};
use membership::Membership;
use stdx::Epoch;

use crate::model::{GossipReport, MemberReport};
use crate::shard_actions::NodeFacts;

/// Schema changes that are remembered: more than a live node ever lags.
const VERSIONS_MAX: usize = 1024;

/// Which version the schema had from which epoch on, since this node started.
#[derive(Clone)]
pub(crate) struct SchemaVersions {
    inner: Rc<RefCell<Versions>>,
}

struct Versions {
    from: BTreeMap<Epoch, String>,
    newest: Epoch,
}

impl SchemaVersions {
    /// Remembers from now on.
    pub(crate) fn follow(membership: &Membership) -> SchemaVersions {
        let now = membership.snapshot();
        let from = BTreeMap::from([(now.epoch, now.schema.version.to_string())]);
        let this =
            SchemaVersions { inner: Rc::new(RefCell::new(Versions { from, newest: now.epoch })) };
        let follower = this.clone();
        membership.on_change(move |before, after| {
            follower.inner.borrow_mut().note(
                after.epoch,
                (before.schema.version != after.schema.version)
                    .then(|| after.schema.version.to_string()),
            );
        });
        this
    }

    /// The version at an epoch; `None` for one before this run, or one that is not here yet.
    pub(crate) fn at(&self, epoch: Epoch) -> Option<String> {
        self.inner.borrow().at(epoch)
    }
}

impl Versions {
    fn note(&mut self, epoch: Epoch, changed: Option<String>) {
        self.newest = epoch;
        if let Some(version) = changed {
            self.from.insert(epoch, version);
            if self.from.len() > VERSIONS_MAX {
                self.from.pop_first();
            }
        }
    }

    fn at(&self, epoch: Epoch) -> Option<String> {
        if epoch > self.newest {
            return None;
        }
        self.from.range(..=epoch).next_back().map(|(_, version)| version.clone())
    }
}

/// All members by address.
pub(crate) fn reports(
    snapshot: &ClusterSnapshot,
    facts: &NodeFacts,
    gossip: Option<&GossipReport>,
) -> Vec<MemberReport> {
    let mut members: Vec<_> = snapshot.members.values().collect();
    members.sort_by_key(|m| (m.storage, m.host_id));
    members.into_iter().map(|m| report(m, snapshot, facts, gossip)).collect()
}

fn report(
    member: &Member,
    snapshot: &ClusterSnapshot,
    facts: &NodeFacts,
    gossip: Option<&GossipReport>,
) -> MemberReport {
    let host_id = member.host_id.to_string();
    let mut report = MemberReport {
        address: member.storage.ip().to_string(),
        storage_port: member.storage.port(),
        rpc_address: shown(member.rpc.ip()),
        rpc_port: member.rpc.port(),
        datacenter: member.datacenter.clone(),
        rack: member.rack.clone(),
        state: member.state.word().to_owned(),
        is_voter: snapshot.voters.contains(&member.host_id),
        tokens: member.tokens.iter().map(|t| t.0).collect(),
        release_version: member.release.clone(),
        ..MemberReport::default()
    };
    if member.host_id == snapshot.local.host_id {
        report.up = true;
        // The facts are of this start; the log has the address of the last one until it is updated.
        report.address.clone_from(&facts.address);
        report.storage_port = facts.storage_port;
        report.release_version.clone_from(&facts.release_version);
        report.schema_version = Some(snapshot.schema.version.to_string());
        // Its load is the sum over all shards, which the server fills in.
    } else {
        let known = gossip.and_then(|g| g.peer(&host_id));
        report.liveness_unknown = gossip.is_none();
        report.up = known.is_some_and(|p| p.is_alive);
        report.load_bytes = known.map(|p| p.load_bytes);
        if let Some(peer) = known.filter(|p| !p.release_version.is_empty()) {
            report.release_version.clone_from(&peer.release_version);
        }
        report.schema_version = known.filter(|p| p.is_alive).and_then(|p| p.schema_version.clone());
    }
    report.host_id = host_id;
    report
}

/// An address that is not known is no address.
fn shown(ip: IpAddr) -> String {
    if ip == ADDRESS_UNKNOWN.ip() { String::new() } else { ip.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_that_of_the_last_change_up_to_the_epoch() {
        let mut versions =
            Versions { from: BTreeMap::from([(Epoch(5), "a".to_owned())]), newest: Epoch(5) };
        versions.note(Epoch(6), None);
        versions.note(Epoch(7), Some("b".to_owned()));
        let at = |epoch| versions.at(Epoch(epoch));
        assert_eq!((at(4), at(8)), (None, None));
        assert_eq!((at(5), at(6), at(7)), (Some("a".into()), Some("a".into()), Some("b".into())));
    }

    #[test]
    fn old_versions_are_forgotten() {
        let mut versions = Versions { from: BTreeMap::new(), newest: Epoch(0) };
        for epoch in 1..=VERSIONS_MAX as u64 + 2 {
            versions.note(Epoch(epoch), Some(epoch.to_string()));
        }
        assert_eq!(versions.from.len(), VERSIONS_MAX);
        assert_eq!((versions.at(Epoch(2)), versions.at(Epoch(3))), (None, Some("3".to_owned())));
    }
}
