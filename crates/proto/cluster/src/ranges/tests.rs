use super::*;
use crate::Members;
use crate::member::{Member, MemberState};
use crate::testing::{Random, host, member, members, random_members};
use std::collections::BTreeSet;
use std::sync::Arc;

fn range(start: i64, end: i64) -> TokenRange {
    TokenRange { start: Token(start), end: Token(end) }
}

#[test]
fn a_range_holds_its_end_not_its_start_and_may_wrap() {
    let table: [(TokenRange, i64, bool); 12] = [
        (range(1, 5), 1, false),
        (range(1, 5), 2, true),
        (range(1, 5), 5, true),
        (range(1, 5), 6, false),
        (range(5, 1), 5, false),
        (range(5, 1), 6, true),
        (range(5, 1), i64::MAX, true),
        (range(5, 1), i64::MIN, true),
        (range(5, 1), 1, true),
        (range(5, 1), 2, false),
        (range(3, 3), 3, true),
        (TokenRange::FULL, 0, true),
    ];
    for (range, token, expect) in table {
        assert_eq!(range.contains(Token(token)), expect, "{range:?} {token}");
    }
    assert_eq!(range(-5, 5).width(), 10);
    assert_eq!(range(5, -5).width(), (1 << 64) - 10);
    assert_eq!(TokenRange::FULL.width(), 1 << 64);
}

#[test]
fn neighbours_merge_and_a_wrap_is_unwrapped() {
    let min = i64::MIN;
    let table: [(&[TokenRange], &[TokenRange]); 7] = [
        (&[], &[]),
        (&[range(1, 5), range(5, 9)], &[range(1, 9)]),
        (&[range(5, 9), range(1, 4)], &[range(1, 4), range(5, 9)]),
        (&[range(9, 1), range(1, 3)], &[range(9, 3)]),
        (&[range(9, 1), range(1, 9)], &[TokenRange::FULL]),
        (&[range(7, 7)], &[TokenRange::FULL]),
        (&[range(min, 4)], &[range(min, 4)]),
    ];
    for (given, expect) in table {
        assert_eq!(merge(given.iter().copied()), expect, "{given:?}");
    }
    let parts: Vec<TokenRange> = range(5, 1).unwrapped().collect();
    assert_eq!(parts, [range(5, i64::MAX), range(min, 1)]);
    assert_eq!(range(1, 5).unwrapped().collect::<Vec<_>>(), [range(1, 5)]);
    assert_eq!(range(5, min).unwrapped().collect::<Vec<_>>(), [range(5, i64::MAX)]);
}

#[test]
fn primary_ranges_split_the_ring_among_all_and_within_each_datacenter() {
    let mut random = Random(21);
    for _ in 0..100 {
        let count = 1 + random.below(8);
        let all = random_members(&mut random, count, 6);
        let dcs: BTreeSet<&str> = all.values().map(|m| m.datacenter.as_str()).collect();
        let map: BTreeMap<String, u32> =
            dcs.iter().map(|dc| ((*dc).to_owned(), 1 + random.below(3) as u32)).collect();
        let table = Placements::build(&all, &Replication::Network(map.clone()));
        let sum = |of: &dyn Fn(HostId) -> Vec<TokenRange>, dc: Option<&str>| -> u128 {
            let mine = all.values().filter(|m| dc.is_none_or(|dc| m.datacenter == dc));
            mine.flat_map(|m| of(m.host_id)).map(TokenRange::width).sum()
        };
        assert_eq!(sum(&|h| table.primary_ranges(h), None), 1 << 64);
        for dc in dcs {
            assert_eq!(sum(&|h| table.primary_ranges_in_datacenter(h), Some(dc)), 1 << 64);
            let nodes = all.values().filter(|m| m.datacenter == dc).count() as u128;
            let factor = u128::from(map[dc]).min(nodes);
            // Every range has as many replicas there as its factor says.
            assert_eq!(sum(&|h| table.ranges_of(h), Some(dc)), factor << 64);
        }
        let owned: f64 = table.ownership().values().sum();
        let expect: u32 = map
            .iter()
            .map(|(dc, n)| (*n).min(all.values().filter(|m| m.datacenter == *dc).count() as u32))
            .sum();
        assert!((owned - f64::from(expect)).abs() < 1e-9, "{owned} {expect}");
    }
}

/// Two tables and what changed between them: a random node more, fewer, or other tokens.
fn random_change(random: &mut Random) -> (Members, Members) {
    let count = 3 + random.below(7);
    let before = random_members(random, count, 4);
    let mut after = before.clone();
    let id = host(1 + random.below(count) as u128);
    match random.below(3) {
        0 => {
            after.remove(&id);
            (before, after)
        }
        1 => {
            after.remove(&id);
            (after, before)
        }
        _ => {
            let m = after.get_mut(&id).unwrap();
            let tokens = vec![Token(random.next() as i64)];
            *m = Arc::new(Member { tokens, ..Member::clone(m) });
            (before, after)
        }
    }
}

/// INV-ranges-1.
#[test]
fn movements_are_exactly_what_the_new_ring_has_and_the_old_has_not() {
    let mut random = Random(31);
    let mut seen = 0;
    for _ in 0..300 {
        let (before, after) = random_change(&mut random);
        let map = (0..3).map(|i| (format!("dc{i}"), random.below(4) as u32)).collect();
        let replication = Replication::Network(map);
        let (old, new) =
            (Placements::build(&before, &replication), Placements::build(&after, &replication));
        let moves = movements(&old, &new);
        seen += moves.len();
        for token in (0..50).map(|_| Token(random.next() as i64)) {
            let gained: BTreeSet<HostId> = new
                .replicas(token)
                .natural()
                .map(|m| m.host_id)
                .filter(|h| !old.replicas(token).is_natural(*h))
                .collect();
            let moved: Vec<&Movement> = moves.iter().filter(|m| m.range.contains(token)).collect();
            assert_eq!(moved.len(), gained.len());
            let losers: Vec<HostId> = moved.iter().filter_map(|m| m.loser).collect();
            assert_eq!(losers.iter().collect::<BTreeSet<_>>().len(), losers.len());
            for m in moved {
                assert!(gained.contains(&m.to));
                let holders: BTreeSet<HostId> =
                    old.replicas(token).natural().map(|m| m.host_id).collect();
                assert_eq!(m.from.iter().copied().collect::<BTreeSet<_>>(), holders);
                assert!(!new.replicas(token).is_natural(m.loser.unwrap_or(host(999))));
            }
        }
    }
    assert!(seen > 300, "{seen}");
}

/// Returns true if every write that `quorum` of `holders` acknowledged is on one of `sources`, when
/// `dead` may have been among the replicas that acknowledged it.
fn covers(holders: &[HostId], quorum: usize, sources: &[HostId]) -> bool {
    let without = holders.iter().filter(|h| !sources.contains(h)).count();
    without < quorum
}

#[test]
fn the_sources_hold_every_acknowledged_write_whoever_is_dead() {
    let mut random = Random(41);
    let (mut by_loser, mut by_quorum, mut refused) = (0, 0, 0);
    for _ in 0..300 {
        let (before, after) = random_change(&mut random);
        let factor = 1 + random.below(4) as u32;
        let map = (0..3).map(|i| (format!("dc{i}"), factor)).collect();
        let replication =
            [Replication::Simple(factor), Replication::Network(map)][random.below(2)].clone();
        let old = Placements::build(&before, &replication);
        let new = Placements::build(&after, &replication);
        for m in movements(&old, &new) {
            let dead: BTreeSet<HostId> =
                m.from.iter().copied().filter(|_| random.below(3) == 0).collect();
            for scope in [WholeCluster::Yes, WholeCluster::No] {
                let Some(sources) = m.sources(|h| !dead.contains(&h), scope) else {
                    refused += 1;
                    continue;
                };
                assert!(sources.iter().all(|s| !dead.contains(s) && m.from.contains(s)));
                if m.loser.is_some() && sources == [m.loser.unwrap()] {
                    by_loser += 1;
                    continue;
                }
                let dc = |h: &HostId| before[h].datacenter.clone();
                let is_near = |h: &&HostId| {
                    scope == WholeCluster::Yes
                        || matches!(replication, Replication::Simple(_))
                        || dc(h) == after[&m.to].datacenter
                };
                let holders: Vec<HostId> = m.from.iter().filter(is_near).copied().collect();
                let all_factor = match &replication {
                    Replication::Simple(n) => *n,
                    _ if scope == WholeCluster::Yes => factor * 3,
                    _ => factor,
                };
                let quorum = all_factor as usize / 2 + 1;
                if holders.len() >= quorum {
                    assert!(covers(&holders, quorum, &sources), "{m:?} {sources:?}");
                    by_quorum += 1;
                }
            }
        }
    }
    // Every way was taken; and the check itself can fail: one of three is not enough.
    assert!(by_loser > 100 && by_quorum > 50 && refused > 20, "{by_loser} {by_quorum} {refused}");
    let three = [host(1), host(2), host(3)];
    assert!(!covers(&three, 2, &[host(1)]) && covers(&three, 2, &[host(1), host(3)]));
}

#[test]
fn a_joining_node_copies_from_the_one_it_takes_the_range_from() {
    // RF 2, tokens 10:1 20:2 30:3 40:4; 5 joins at 25.
    let before = members((1..=4).map(|i| member(i, "d", "r", &[i as i64 * 10])));
    let mut after = before.clone();
    after.insert(host(5), Arc::new(member(5, "d", "r", &[25])));
    let r = Replication::Simple(2);
    let moves = movements(&Placements::build(&before, &r), &Placements::build(&after, &r));
    let got: Vec<(TokenRange, u128, Option<u128>, usize)> = moves
        .iter()
        .map(|m| (m.range, m.to.0.as_u128(), m.loser.map(|h| h.0.as_u128()), m.quorum))
        .collect();
    // (10,20] was on 2, 3; (20,25] on 3, 4.
    assert_eq!(got, [(range(10, 20), 5, Some(3), 1), (range(20, 25), 5, Some(4), 1)]);
    assert_eq!(moves[0].from, [host(3), host(2)]);
    assert_eq!(moves[0].sources(|_| true, WholeCluster::No), Some(vec![host(3)]));
    let three_dead = |h: HostId| h != host(3);
    assert_eq!(moves[0].sources(three_dead, WholeCluster::No), Some(vec![host(2)]));
    assert_eq!(moves[0].sources(|_| false, WholeCluster::No), None);
}

#[test]
fn ranges_written_to_include_the_pending_ones() {
    let mut all = members((1..=4).map(|i| member(i, "d", "r", &[i as i64 * 10])));
    let two = all.get_mut(&host(2)).unwrap();
    *two = Arc::new(Member { state: MemberState::Leaving, ..Member::clone(two) });
    let table = Placements::build(&all, &Replication::Simple(1));
    assert_eq!(table.ranges_of(host(3)), [range(20, 30)]);
    assert_eq!(table.ranges_written_to(host(3)), [range(10, 20), range(20, 30)]);
    assert_eq!(merge(table.ranges_written_to(host(3))), [range(10, 30)]);
}
