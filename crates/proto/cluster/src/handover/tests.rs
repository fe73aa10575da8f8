//! Which quorums meet, and what the log takes when.

use std::collections::BTreeMap;

use super::*;
use crate::Members;
use crate::testing::{Random, founded, random_members};

/// Every set of `n` of the first `of` bits.
fn subsets(of: usize, n: usize) -> impl Iterator<Item = u32> {
    (0..1_u32 << of).filter(move |set| set.count_ones() as usize == n)
}

/// Returns the quorums of a row of a placement: bit `i` is member `i`.
fn quorums(replicas: Replicas<'_>, bit: &impl Fn(HostId) -> u32) -> Vec<u32> {
    let natural: Vec<u32> = replicas.natural().map(|m| bit(m.host_id)).collect();
    let pending = replicas.pending().fold(0, |set, m| set | bit(m.host_id));
    let of_set = |set: u32| {
        let chosen = natural.iter().enumerate().filter(|(i, _)| set >> i & 1 == 1);
        chosen.fold(pending, |all, (_, bit)| all | bit)
    };
    subsets(natural.len(), natural.len() / 2 + 1).map(of_set).collect()
}

fn changing(members: &Members, from: &Replication, to: &Replication, stage: Stage) -> Placements {
    let mut snapshot = founded();
    snapshot.members = members.clone();
    let handover = Handover { from: from.clone(), since: Epoch(1), stage };
    snapshot.voting_placements(&handover, to).0
}

/// INV-handover-1.
#[test]
fn quorums_of_stages_that_follow_each_other_meet() {
    let mut random = Random(7);
    for _ in 0..60 {
        let nodes = 2 + random.below(6);
        let members = random_members(&mut random, nodes, 2);
        let mut draw = || -> Replication {
            if random.below(3) == 0 {
                return Replication::Simple(1 + random.below(5) as u32);
            }
            let each = (0..3).map(|dc| (format!("dc{dc}"), random.below(4) as u32));
            Replication::Network(each.collect::<BTreeMap<_, _>>())
        };
        let (from, to) = (draw(), draw());
        let (old, new) = (Placements::build(&members, &from), Placements::build(&members, &to));
        let gaining = changing(&members, &from, &to, Stage::Gaining);
        let losing = changing(&members, &from, &to, Stage::Losing);
        let hosts: Vec<HostId> = members.keys().copied().collect();
        let bit = |host: HostId| 1_u32 << hosts.iter().position(|h| *h == host).unwrap();
        for (range, before, after) in aligned(&old, &new) {
            if before.is_empty() || after.is_empty() {
                continue;
            }
            let (gain, lose) = (gaining.replicas(range.end), losing.replicas(range.end));
            let meet = |a: Replicas<'_>, b: Replicas<'_>, what: &str| {
                for x in quorums(a, &bit) {
                    for y in quorums(b, &bit) {
                        assert_ne!(x & y, 0, "{what}: {from:?} to {to:?}");
                    }
                }
            };
            let (is_gain, is_loss) = (gain.pending_len() > 0, lose.pending_len() > 0);
            if is_gain {
                meet(before, gain, "old and gaining");
            }
            match (is_gain, is_loss) {
                (true, true) => meet(gain, lose, "gaining and losing"),
                (true, false) => meet(gain, after, "gaining and new"),
                (false, true) => meet(before, lose, "old and losing"),
                (false, false) => continue,
            }
            if is_loss {
                meet(lose, after, "losing and new");
            }
        }
    }
}

#[test]
fn every_quorum_of_the_old_replicas_has_one_that_is_alive() {
    let mut snapshot = founded();
    snapshot.members = random_members(&mut Random(1), 6, 2);
    let hosts: Vec<HostId> = snapshot.members.keys().copied().collect();
    for (of, dead, expected) in [(1, 1, false), (3, 1, true), (3, 2, false), (5, 2, true)] {
        for member in snapshot.members.values_mut() {
            let mut same = Member::clone(member);
            same.datacenter = "dc1".to_owned();
            *member = Arc::new(same);
        }
        let is_alive = |host: HostId| hosts.iter().position(|h| *h == host) >= Some(dead);
        assert_eq!(snapshot.knows_all(&hosts[..of], is_alive), expected, "{dead} of {of}");
    }
}

#[test]
fn steps_come_back_from_their_bytes() {
    for done in [None, Some(Epoch(7))] {
        let step = Transformation::HandOver(HandoverStep { keyspace: "ks".to_owned(), done });
        let mut bytes = Vec::new();
        step.encode(&mut bytes);
        assert_eq!(Transformation::decode(&bytes), Ok(step));
        assert!(Transformation::decode(&bytes[..bytes.len() - 1]).is_err());
    }
}
