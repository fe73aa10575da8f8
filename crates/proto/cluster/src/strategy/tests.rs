use super::*;
use crate::testing::{Members, Random, member, members, random_members};
use std::collections::BTreeSet;

fn ring(all: &Members) -> Ring {
    let nodes: Vec<Arc<Member>> = all.values().cloned().collect();
    Ring::new(&nodes, &|_| false)
}

/// Last digit of the host ids of the replicas of `token`.
fn ids(all: &Members, replication: &Replication, token: i64) -> Vec<u128> {
    let ring = ring(all);
    let mut out = Vec::new();
    ring.replicas_at(replication, ring.first_at(Token(token)), &mut Walk::default(), &mut out);
    let hosts: Vec<u128> = all.keys().map(|h| h.0.as_u128()).collect();
    out.into_iter().map(|n| hosts[usize::from(n)]).collect()
}

fn network(map: &[(&str, u32)]) -> Replication {
    Replication::Network(map.iter().map(|(dc, n)| ((*dc).to_owned(), *n)).collect())
}

#[test]
fn simple_takes_the_next_distinct_nodes_and_wraps() {
    // Tokens 10:n1 20:n2 30:n1 40:n3.
    let all = members([
        member(1, "a", "r", &[10, 30]),
        member(2, "b", "r", &[20]),
        member(3, "a", "r", &[40]),
    ]);
    let table: [(i64, u32, &[u128]); 9] = [
        (5, 1, &[1]),
        (10, 1, &[1]),
        (11, 1, &[2]),
        (20, 2, &[2, 1]),
        (30, 2, &[1, 3]),
        (41, 2, &[1, 2]),
        (i64::MAX, 3, &[1, 2, 3]),
        (25, 5, &[1, 3, 2]),
        (25, 0, &[]),
    ];
    for (token, factor, expect) in table {
        assert_eq!(ids(&all, &Replication::Simple(factor), token), expect, "{token} RF {factor}");
    }
}

#[test]
fn network_takes_one_node_of_each_rack_before_any_second() {
    // One datacenter, walked from token 0: n1(r1) n2(r1) n3(r2) n4(r1) n5(r2) n6(r3).
    let all = members([
        member(1, "d", "r1", &[10]),
        member(2, "d", "r1", &[20]),
        member(3, "d", "r2", &[30]),
        member(4, "d", "r1", &[40]),
        member(5, "d", "r2", &[50]),
        member(6, "d", "r3", &[60]),
    ]);
    let table: [(i64, u32, &[u128]); 9] = [
        (0, 1, &[1]),
        (0, 2, &[1, 3]),
        // Three racks, three replicas: n2, n4, n5 are skipped.
        (0, 3, &[1, 3, 6]),
        // One repeat allowed: the first one met, n2.
        (0, 4, &[1, 2, 3, 6]),
        (0, 5, &[1, 2, 3, 4, 6]),
        (0, 6, &[1, 2, 3, 4, 5, 6]),
        // More than there are nodes.
        (0, 9, &[1, 2, 3, 4, 5, 6]),
        (45, 3, &[5, 6, 1]),
        (61, 3, &[1, 3, 6]),
    ];
    for (token, factor, expect) in table {
        assert_eq!(ids(&all, &network(&[("d", factor)]), token), expect, "{token} RF {factor}");
    }
}

#[test]
fn network_fills_each_datacenter_by_itself_in_the_order_of_the_walk() {
    // 10:n1(x) 20:n4(y) 30:n2(x) 40:n5(y) 50:n3(x); rack names are the same in both.
    let all = members([
        member(1, "x", "r1", &[10]),
        member(2, "x", "r1", &[30]),
        member(3, "x", "r2", &[50]),
        member(4, "y", "r1", &[20]),
        member(5, "y", "r2", &[40]),
    ]);
    type Row = (i64, &'static [(&'static str, u32)], &'static [u128]);
    let table: [Row; 6] = [
        (0, &[("x", 2), ("y", 1)], &[1, 4, 3]),
        (0, &[("x", 3), ("y", 2)], &[1, 4, 2, 5, 3]),
        (25, &[("x", 2), ("y", 2)], &[2, 5, 3, 4]),
        // A factor of 0, a datacenter without nodes, one that is not named.
        (25, &[("x", 0), ("y", 1)], &[5]),
        (25, &[("z", 3), ("y", 1)], &[5]),
        (25, &[], &[]),
    ];
    for (token, map, expect) in table {
        assert_eq!(ids(&all, &network(map), token), expect, "{token} {map:?}");
    }
}

#[test]
fn a_node_without_tokens_is_in_no_count() {
    let mut joining = member(9, "d", "r9", &[5]);
    joining.state = crate::member::MemberState::Joining;
    let all = members([
        member(1, "d", "r1", &[10]),
        member(2, "d", "r1", &[20]),
        member(3, "d", "r2", &[30]),
        joining,
    ]);
    // With r9 counted there would be three racks, no repeat, and only two replicas.
    assert_eq!(ids(&all, &network(&[("d", 3)]), 0), [1, 2, 3]);
}

/// The rule of Cassandra's strategy stated otherwise: go through the nodes in ring order; a node of
/// a rack not yet seen is always taken; of the others the first `RF - racks` are.
fn naive(all: &Members, replication: &Replication, token: i64) -> Vec<u128> {
    let mut tokens: Vec<(i64, &Member)> =
        all.values().flat_map(|m| m.tokens.iter().map(move |t| (t.0, m.as_ref()))).collect();
    tokens.sort_by_key(|(t, _)| *t);
    let split = tokens.iter().filter(|(t, _)| *t < token).count();
    let order: Vec<&Member> =
        tokens[split..].iter().chain(&tokens[..split]).map(|(_, m)| *m).collect();
    let mut distinct: Vec<&Member> = Vec::new();
    for m in order {
        if !distinct.iter().any(|d| d.host_id == m.host_id) {
            distinct.push(m);
        }
    }
    let id = |m: &&Member| m.host_id.0.as_u128();
    match replication {
        Replication::Local => Vec::new(),
        Replication::Simple(n) => distinct.iter().take(*n as usize).map(id).collect(),
        Replication::Network(map) => {
            let mut chosen: BTreeSet<u128> = BTreeSet::new();
            for (dc, factor) in map {
                let here: Vec<&Member> =
                    distinct.iter().copied().filter(|m| m.datacenter == *dc).collect();
                let racks: BTreeSet<&str> = here.iter().map(|m| m.rack.as_str()).collect();
                let mut spare = (*factor as usize).saturating_sub(racks.len());
                let mut seen = BTreeSet::new();
                let mut taken = 0;
                for m in here {
                    let take = seen.insert(m.rack.as_str()) || {
                        let is_spare = spare > 0;
                        spare -= usize::from(is_spare);
                        is_spare
                    };
                    if take && taken < *factor as usize {
                        chosen.insert(id(&m));
                        taken += 1;
                    }
                }
            }
            distinct.iter().map(id).filter(|m| chosen.contains(m)).collect()
        }
    }
}

#[test]
fn a_second_implementation_agrees_on_random_rings() {
    let mut random = Random(7);
    let mut multi_rack = 0;
    for _ in 0..400 {
        let nodes = 1 + random.below(12);
        let all = random_members(&mut random, nodes, 6);
        let replication = if random.below(4) == 0 {
            Replication::Simple(random.below(6) as u32)
        } else {
            let map = (0..3).map(|i| (format!("dc{i}"), random.below(6) as u32)).collect();
            Replication::Network(map)
        };
        let racks: BTreeSet<_> = all.values().map(|m| (&m.datacenter, &m.rack)).collect();
        multi_rack += usize::from(racks.len() > 2);
        for _ in 0..20 {
            let token = random.next() as i64;
            let ours = ids(&all, &replication, token);
            assert_eq!(ours, naive(&all, &replication, token), "{replication:?} {token} {all:?}");
        }
    }
    assert!(multi_rack > 50, "{multi_rack} rings had more than two racks");
}
