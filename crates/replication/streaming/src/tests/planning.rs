//! Fetch plans: ranges and their sources.

use super::*;

const RF1: &[(&str, &str)] = &[("class", "SimpleStrategy"), ("replication_factor", "1")];
const RF3: &[(&str, &str)] = &[("class", "SimpleStrategy"), ("replication_factor", "3")];
const LOCAL: &[(&str, &str)] = &[("class", "LocalStrategy")];

fn cluster_of(count: u8, state: MemberState, schema: Arc<Schema>) -> ClusterSnapshot {
    let members = (1..=count)
        .map(|n| {
            let tokens: Vec<i64> =
                (0..4_i64).map(|i| i64::from(n) * 1000 + i * 100_000 - 200_000).collect();
            member(n, &tokens, if n == count { state } else { MemberState::Normal })
        })
        .collect();
    snapshot(5, members, schema)
}

/// Sources that the plan has for a token of a table.
fn covered(plan: &[FetchRange], table: TableId, token: Token) -> Vec<HostId> {
    let of = plan.iter().filter(|f| f.table == table && f.range.contains(token));
    of.flat_map(|f| f.sources.clone()).collect()
}

/// Tokens on both sides of every end of a range.
fn probes(snapshot: &ClusterSnapshot) -> Vec<Token> {
    let tokens = snapshot.members.values().flat_map(|m| m.tokens.clone());
    tokens.flat_map(|t| [Token(t.0 - 1), t, Token(t.0 + 1)]).chain([Token::MAX]).collect()
}

#[test]
fn a_newcomer_fetches_each_of_its_ranges_from_who_loses_it() {
    let schema = schema_of(&[("a", TABLE, RF3), ("own", LOCAL_TABLE, LOCAL)]);
    let snapshot = cluster_of(5, MemberState::Joining, schema);
    let plan = plan(&snapshot, host(5), |_| true).unwrap();
    assert!(plan.iter().all(|f| f.table == TABLE), "a local table is in the plan");
    let key = cluster::PlacementKey::of_table(&snapshot, TABLE).unwrap();
    let before = key.placements_among(&cluster::topology::unmoved(&snapshot));
    let after = key.placements_among(&cluster::topology::finished(&snapshot, host(5)));
    for token in probes(&snapshot) {
        let (old, new) = (before.replicas(token), after.replicas(token));
        let from = covered(&plan, TABLE, token);
        if !new.is_natural(host(5)) {
            assert_eq!(from, vec![], "{token:?} is not its own");
            continue;
        }
        let loser = old.natural().map(|m| m.host_id).find(|h| !new.is_natural(*h)).unwrap();
        assert_eq!(from, vec![loser], "{token:?}");
    }
}

#[test]
fn a_dead_loser_is_made_good_by_a_quorum_of_the_others() {
    let schema = schema_of(&[("a", TABLE, RF3)]);
    let snapshot = cluster_of(5, MemberState::Joining, schema);
    let all = plan(&snapshot, host(5), |_| true).unwrap();
    let dead = all[0].sources[0];
    let without = plan(&snapshot, host(5), |h| h != dead).unwrap();
    let mut replaced = 0;
    for token in probes(&snapshot) {
        let (one, others) = (covered(&all, TABLE, token), covered(&without, TABLE, token));
        if one == [dead] {
            // Two of the three hold every write that two acknowledged, without the dead one.
            assert_eq!(others.len(), 2, "{token:?}");
            assert!(!others.contains(&dead) && others[0] != others[1]);
            replaced += 1;
        } else {
            assert_eq!(others, one, "{token:?}");
        }
    }
    assert!(replaced > 0);
    // Each copy is a fetch of its own: one of them is not enough.
    assert!(without.iter().all(|f| f.sources.len() == 1));
    let other = if dead == host(2) { host(3) } else { host(2) };
    let two_dead = |h| h != dead && h != other;
    let error = plan(&snapshot, host(5), two_dead).unwrap_err();
    assert!(matches!(error, PlanError::TooFewReplicas { .. }), "{error}");
    assert!(error.to_string().starts_with("too few replicas of \"a\" are alive"), "{error}");
}

#[test]
fn what_nobody_alive_has_is_refused_by_name_and_left_out_when_it_may_lack() {
    let schema = schema_of(&[("a", TABLE, RF1)]);
    let snapshot = cluster_of(5, MemberState::Joining, schema);
    let all = plan(&snapshot, host(5), |_| true).unwrap();
    let dead = all[0].sources[0];
    let lacking = |may_lack| plan_lacking(&snapshot, host(5), host(5), |h| h != dead, may_lack);
    for may_lack in [MayLack::Nothing, MayLack::System] {
        let error = lacking(may_lack).unwrap_err();
        assert!(matches!(&error, PlanError::NoReplica { down, .. } if *down == [dead]), "{error}");
        assert!(error.to_string().contains("in keyspace a with RF=1"), "{error}");
    }
    let left = lacking(MayLack::Anything).unwrap();
    assert_eq!(left.lacks.len(), 1);
    let rest: Vec<FetchRange> = all.into_iter().filter(|f| f.sources != [dead]).collect();
    assert_eq!(left.fetches, rest);
}

#[test]
fn the_third_node_of_three_replicas_may_ask_either_of_the_two() {
    let schema = schema_of(&[("a", TABLE, RF3)]);
    let snapshot = cluster_of(3, MemberState::Joining, schema);
    let plan = plan(&snapshot, host(3), |_| true).unwrap();
    for token in probes(&snapshot) {
        let mut from = covered(&plan, TABLE, token);
        from.sort_unstable();
        assert_eq!(from, vec![host(1), host(2)], "{token:?}");
    }
    assert!(plan.iter().all(|f| f.sources.len() == 2));
}

#[test]
fn who_stays_fetches_what_the_one_that_leaves_has() {
    let schema = schema_of(&[("a", TABLE, RF1), ("own", LOCAL_TABLE, LOCAL)]);
    let snapshot = cluster_of(3, MemberState::Leaving, schema);
    let key = cluster::PlacementKey::of_table(&snapshot, TABLE).unwrap();
    let before = key.placements_among(&cluster::topology::unmoved(&snapshot));
    for token in probes(&snapshot) {
        let mut takers = Vec::new();
        for n in [1, 2] {
            let plan = plan_movement(&snapshot, host(3), host(n), |_| true).unwrap();
            takers.extend(covered(&plan, TABLE, token));
        }
        let leaves = before.replicas(token).is_natural(host(3));
        assert_eq!(takers, if leaves { vec![host(3)] } else { vec![] }, "{token:?}");
    }
}

#[test]
fn a_node_that_is_no_member_and_one_alone_have_no_plan() {
    let schema = schema_of(&[("a", TABLE, RF3)]);
    let snapshot = cluster_of(1, MemberState::Joining, schema);
    assert_eq!(plan(&snapshot, host(9), |_| true), Err(PlanError::NoMember(host(9))));
    assert_eq!(plan(&snapshot, host(1), |_| true), Ok(vec![]));
}
