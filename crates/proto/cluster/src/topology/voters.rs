//! Voters of the metadata log.

use std::collections::BTreeMap;
use std::sync::Arc;

use stdx::HostId;

use super::MembershipError;
use crate::Members;
use crate::member::{Member, MemberState};
use crate::snapshot::ClusterSnapshot;

/// Most voters; more only make decisions slower.
pub const VOTERS_MAX: usize = 7;

impl ClusterSnapshot {
    pub(crate) fn set_voters(&mut self, hosts: &[HostId]) -> Result<(), MembershipError> {
        let mut voters = hosts.to_vec();
        voters.sort_unstable();
        voters.dedup();
        if voters.is_empty() || voters.len() > VOTERS_MAX || voters.len() != hosts.len() {
            return Err(MembershipError::VoterCount { count: hosts.len() });
        }
        for host in &voters {
            let state = self.member(*host)?.state;
            if !may_vote(state) {
                return Err(MembershipError::VoterState { host: *host, state });
            }
        }
        self.voters = voters;
        Ok(())
    }
}

fn may_vote(state: MemberState) -> bool {
    match state {
        MemberState::Normal | MemberState::Moving | MemberState::MoveHandover => true,
        MemberState::Joining
        | MemberState::JoinHandover
        | MemberState::Leaving
        | MemberState::LeaveHandover => false,
    }
}

/// Returns the voters that a cluster should have, ascending: one up to two nodes, three up to six,
/// five from seven on, spread over datacenters and racks, with as few changes to `present` as that
/// allows. `usable` selects the candidates: alive, and not about to leave.
///
/// Empty only when no member is usable.
pub fn choose_voters(
    members: &Members,
    present: &[HostId],
    usable: impl Fn(&Member) -> bool,
) -> Vec<HostId> {
    let able = |m: &&Arc<Member>| may_vote(m.state) && usable(m);
    let candidates: Vec<&Arc<Member>> = members.values().filter(able).collect();
    let wanted = match candidates.len() {
        0..=2 => 1,
        3..=6 => 3,
        _ => 5,
    };
    let mut chosen: Vec<&Arc<Member>> = Vec::new();
    while chosen.len() < wanted {
        let mut racks: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        let mut datacenters: BTreeMap<&str, usize> = BTreeMap::new();
        for m in &chosen {
            *racks.entry((&m.datacenter, &m.rack)).or_default() += 1;
            *datacenters.entry(&m.datacenter).or_default() += 1;
        }
        // The emptiest rack first, then the emptiest datacenter, then present voters.
        let best = candidates
            .iter()
            .filter(|m| !chosen.iter().any(|c| c.host_id == m.host_id))
            .min_by_key(|m| {
                let rack = racks.get(&(m.datacenter.as_str(), m.rack.as_str())).copied();
                let datacenter = datacenters.get(m.datacenter.as_str()).copied();
                let is_new = !present.contains(&m.host_id);
                (rack.unwrap_or(0), datacenter.unwrap_or(0), is_new, m.host_id)
            });
        match best {
            Some(m) => chosen.push(m),
            None => break,
        }
    }
    let mut hosts: Vec<HostId> = chosen.iter().map(|m| m.host_id).collect();
    hosts.sort_unstable();
    hosts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{host, member, members};

    #[test]
    fn voters_spread_over_racks_and_change_as_little_as_that_allows() {
        let place = |id: u128, dc: &str, rack: &str| member(id, dc, rack, &[id as i64]);
        let joining = |id| Member { state: MemberState::Joining, ..place(id, "d", "r") };
        let ids = |v: Vec<HostId>| v.iter().map(|h| h.0.as_u128()).collect::<Vec<_>>();
        let grow = |n: u128| members((1..=n).map(|i| place(i, "d", "r")));
        let choose = |m: &Members, present: &[u128]| {
            let present: Vec<HostId> = present.iter().map(|i| host(*i)).collect();
            ids(choose_voters(m, &present, |m| m.host_id != host(99)))
        };
        for (n, count) in [(1, 1), (2, 1), (3, 3), (6, 3), (7, 5), (30, 5)] {
            assert_eq!(choose(&grow(n), &[]).len(), count, "{n} nodes");
        }
        assert_eq!(choose(&grow(6), &[2, 4, 6]), [2, 4, 6]);
        assert_eq!(choose(&grow(2), &[2]), [2]);
        let racks = members((1..=9).map(|i| place(i, "d", ["a", "b", "c"][(i as usize - 1) / 3])));
        let five = choose(&racks, &[1, 2, 3]);
        let in_rack = |r: u128| five.iter().filter(|i| (**i - 1) / 3 == r).count();
        assert!((0..3).all(|r| (1..=2).contains(&in_rack(r))), "{five:?}");
        assert!(five.contains(&1));
        // Dead ones are left out, and so are those that do not own data yet.
        let mut some = grow(3);
        some.insert(host(99), Arc::new(place(99, "d", "z")));
        some.insert(host(4), Arc::new(joining(4)));
        assert_eq!(choose(&some, &[99]), [1, 2, 3]);
        assert!(choose(&members([joining(1)]), &[]).is_empty());
    }
}
