use super::*;
use crate::placement::Placements;
use crate::replication::Replication;
use crate::testing::{Random, host, member};
use std::sync::Arc;

/// Nodes join one by one at the given (datacenter, rack); gives the members after the last.
fn grow(order: &[(&str, &str)], count: u16, factor: u32, seed: u64) -> Members {
    let mut members = Members::new();
    for (i, (datacenter, rack)) in order.iter().enumerate() {
        let wanted = Allocation {
            members: &members,
            datacenter,
            rack,
            count,
            replication_factor: factor,
            seed: model::mix(seed, i as u64),
        };
        let tokens = allocate(&wanted);
        assert_eq!(allocate(&wanted), tokens, "the same again");
        assert_eq!(tokens.len(), usize::from(count));
        assert!(tokens.windows(2).all(|p| p[0] < p[1]));
        let taken = members.values().flat_map(|m: &Arc<crate::Member>| m.tokens.iter());
        assert!({ taken }.all(|t| !tokens.contains(t)));
        let mut m = member(i as u128 + 1, datacenter, rack, &[]);
        m.tokens = tokens;
        members.insert(m.host_id, Arc::new(m));
    }
    members
}

/// Smallest and largest effective ownership over the nodes of a datacenter, in percent.
fn spread(members: &Members, datacenter: &str, factor: u32) -> (f64, f64) {
    let replication = Replication::Network([(datacenter.to_owned(), factor)].into());
    let owned = Placements::build(members, &replication).ownership();
    let here = members.values().filter(|m| m.datacenter == datacenter);
    let shares: Vec<f64> = here.map(|m| owned[&m.host_id] * 100.0).collect();
    let total: f64 = shares.iter().sum();
    assert!((total - 100.0 * f64::from(factor.min(shares.len() as u32))).abs() < 1e-6);
    let low = shares.iter().copied().fold(f64::MAX, f64::min);
    (low, shares.iter().copied().fold(0.0, f64::max))
}

fn assert_within(range: (f64, f64), low: f64, high: f64, what: &str) {
    assert!(low <= range.0 && range.1 <= high, "{what}: {range:?} is not within {low}..{high}");
}

#[test]
fn nine_nodes_three_racks_four_tokens_factor_three_own_31_to_36_percent_each() {
    let racks = ["r1", "r2", "r3"];
    let mut random = Random(1);
    for seed in 0..24 {
        let mut order: Vec<(&str, &str)> = match seed % 3 {
            // Rack by rack, in turn, shuffled.
            0 => (0..9).map(|i| ("dc1", racks[i / 3])).collect(),
            _ => (0..9).map(|i| ("dc1", racks[i % 3])).collect(),
        };
        if seed % 3 == 2 {
            for i in (1..9).rev() {
                order.swap(i, random.below(i + 1));
            }
        }
        let members = grow(&order, 4, 3, seed);
        let what = format!("seed {seed}, {order:?}");
        assert_within(spread(&members, "dc1", 3), 31.0, 36.0, &what);
    }
}

#[test]
fn sixteen_tokens_are_more_even_still() {
    for seed in 0..6 {
        let order: Vec<_> = (0..9).map(|i| ("dc1", ["r1", "r2", "r3"][i % 3])).collect();
        let members = grow(&order, 16, 3, seed);
        assert_within(spread(&members, "dc1", 3), 32.5, 34.2, &format!("seed {seed}"));
    }
}

#[test]
fn six_nodes_of_one_rack_own_half_each() {
    for seed in 0..6 {
        for (count, low, high) in [(4, 46.0, 54.0), (16, 48.5, 51.5)] {
            let members = grow(&[("dc1", "r1"); 6], count, 3, seed);
            let what = format!("seed {seed}, {count} tokens");
            assert_within(spread(&members, "dc1", 3), low, high, &what);
        }
    }
}

#[test]
fn two_datacenters_are_even_each_by_itself() {
    for seed in 0..4 {
        let order: Vec<_> =
            (0..12).map(|i| (["east", "west"][i % 2], ["r1", "r2", "r3"][i / 2 % 3])).collect();
        let members = grow(&order, 8, 3, seed);
        for datacenter in ["east", "west"] {
            let what = format!("seed {seed}, {datacenter}");
            assert_within(spread(&members, datacenter, 3), 48.0, 52.0, &what);
        }
    }
}

#[test]
fn in_a_ring_of_which_only_a_sample_is_looked_at_a_new_node_gets_its_share() {
    let mut random = Random(2);
    let mut members = Members::new();
    for i in 0..140_u128 {
        let mut m = member(i + 1, "dc1", ["r1", "r2", "r3"][i as usize % 3], &[]);
        m.tokens = (0..16).map(|_| Token(random.next() as i64)).collect();
        m.tokens.sort_unstable();
        members.insert(m.host_id, Arc::new(m));
    }
    const { assert!(140 * 16 > RANGES_LOOKED_AT_MAX) };
    let wanted = Allocation {
        members: &members,
        datacenter: "dc1",
        rack: "r2",
        count: 16,
        replication_factor: 3,
        seed: 8,
    };
    let mut m = member(900, "dc1", "r2", &[]);
    m.tokens = allocate(&wanted);
    members.insert(m.host_id, Arc::new(m));
    let replication = Replication::Network([("dc1".to_owned(), 3)].into());
    let owned = Placements::build(&members, &replication).ownership()[&host(900)];
    // 48 nodes in its rack of three: one part of 48, and some more because the random tokens of the
    // others left many with too much.
    assert!((owned * 48.0 - 1.1).abs() < 0.3, "{owned}");
}

#[test]
fn a_single_token_per_node_still_splits_the_largest_ranges() {
    // Doubling is the best that one token can do: 8 nodes, none owns over twice another.
    let members = grow(&[("dc1", "r1"); 8], 1, 1, 3);
    let (low, high) = spread(&members, "dc1", 1);
    assert!(high / low < 2.5, "{low} {high}");
}

#[test]
fn random_tokens_would_fail_these_bounds() {
    // The corruptor of the checks above: without allocation the spread is far outside.
    let mut random = Random(5);
    let mut members = grow(&[("dc1", "r1"); 6], 4, 3, 0);
    for m in members.values_mut() {
        let mut tokens: Vec<Token> = (0..4).map(|_| Token(random.next() as i64)).collect();
        tokens.sort_unstable();
        *m = Arc::new(crate::Member { tokens, ..crate::Member::clone(m) });
    }
    let (low, high) = spread(&members, "dc1", 3);
    assert!(low < 46.0 || high > 54.0, "{low} {high}");
}

#[test]
fn a_node_that_leaves_does_not_count_and_its_tokens_are_not_reused() {
    let mut members = grow(&[("dc1", "r1"); 3], 4, 1, 9);
    let gone = members.get_mut(&host(2)).unwrap();
    let tokens = gone.tokens.clone();
    *gone = Arc::new(crate::Member {
        state: crate::MemberState::Leaving,
        ..crate::Member::clone(gone)
    });
    let wanted = Allocation {
        members: &members,
        datacenter: "dc1",
        rack: "r1",
        count: 4,
        replication_factor: 1,
        seed: 1,
    };
    let new = allocate(&wanted);
    assert!(new.iter().all(|t| !tokens.contains(t)));
    let mut after = members.clone();
    after.remove(&host(2));
    let mut m = member(9, "dc1", "r1", &[]);
    m.tokens = new;
    after.insert(m.host_id, Arc::new(m));
    assert_within(spread(&after, "dc1", 1), 30.0, 37.0, "two left and one new");
}
