use super::*;
use crate::member::MemberState;
use crate::testing::{Random, host, member, members, random_members};
use std::collections::BTreeSet;

fn lists(all: &crate::Members, replication: &Replication, token: i64) -> (Vec<u128>, Vec<u128>) {
    let table = Placements::build(all, replication);
    let replicas = table.replicas(Token(token));
    let ids = |m: &Arc<Member>| m.host_id.0.as_u128();
    (replicas.natural().map(ids).collect(), replicas.pending().map(ids).collect())
}

fn with_state(all: &crate::Members, id: u128, state: MemberState) -> crate::Members {
    let mut all = all.clone();
    let m = all.get_mut(&host(id)).unwrap();
    *m = Arc::new(Member { state, ..Member::clone(m) });
    all
}

/// Tokens 10, 20, 30, 40 of nodes 1 to 4.
fn four() -> crate::Members {
    members((1..=4).map(|i| member(i, "d", "r", &[i as i64 * 10])))
}

#[test]
fn pending_are_the_future_replicas_that_are_not_natural() {
    use MemberState as S;
    type Row = (u128, S, i64, &'static [u128], &'static [u128]);
    // RF 2. Token 5 belongs to 1, 2; token 15 to 2, 3; token 35 to 4, 1.
    let table: [Row; 14] = [
        // 2 joins: until then 15 belongs to 3, 4 and 5 to 1, 3.
        (2, S::Joining, 5, &[1, 3], &[2]),
        (2, S::Joining, 15, &[3, 4], &[2]),
        (2, S::Joining, 25, &[3, 4], &[]),
        // Reads go to the new owners, the old ones are still written to.
        (2, S::JoinHandover, 5, &[1, 2], &[3]),
        (2, S::JoinHandover, 15, &[2, 3], &[4]),
        (2, S::JoinHandover, 25, &[3, 4], &[]),
        (2, S::Normal, 15, &[2, 3], &[]),
        // 2 leaves: 3 comes for token 5, 4 for token 15.
        (2, S::Leaving, 5, &[1, 2], &[3]),
        (2, S::Leaving, 15, &[2, 3], &[4]),
        (2, S::Leaving, 35, &[4, 1], &[]),
        (2, S::LeaveHandover, 5, &[1, 3], &[2]),
        (2, S::LeaveHandover, 15, &[3, 4], &[2]),
        // Moves are tested below; a normal ring wraps around.
        (1, S::Normal, 45, &[1, 2], &[]),
        (1, S::Normal, i64::MAX, &[1, 2], &[]),
    ];
    for (id, state, token, natural, pending) in table {
        let all = with_state(&four(), id, state);
        let found = lists(&all, &Replication::Simple(2), token);
        assert_eq!(found, (natural.to_vec(), pending.to_vec()), "{id} {state} {token}");
    }
}

#[test]
fn a_replacement_is_pending_wherever_the_dead_one_is_natural() {
    let mut all = four();
    let mut new = member(5, "d", "r", &[20]);
    new.state = MemberState::Joining;
    new.replaces = Some(host(2));
    all.insert(new.host_id, Arc::new(new));
    let r = Replication::Simple(2);
    assert_eq!(lists(&all, &r, 5), (vec![1, 2], vec![5]));
    assert_eq!(lists(&all, &r, 15), (vec![2, 3], vec![5]));
    assert_eq!(lists(&all, &r, 25), (vec![3, 4], vec![]));
    let all = with_state(&all, 5, MemberState::JoinHandover);
    assert_eq!(lists(&all, &r, 5), (vec![1, 5], vec![2]));
    assert_eq!(lists(&all, &r, 15), (vec![5, 3], vec![2]));
}

#[test]
fn a_move_writes_to_the_owners_by_old_and_by_new_tokens() {
    let mut all = four();
    let m = all.get_mut(&host(2)).unwrap();
    let moving_to = vec![Token(35)];
    *m = Arc::new(Member { moving_to, state: MemberState::Moving, ..Member::clone(m) });
    let r = Replication::Simple(2);
    // Ring then: 10:1 30:3 35:2 40:4.
    assert_eq!(lists(&all, &r, 5), (vec![1, 2], vec![3]));
    assert_eq!(lists(&all, &r, 15), (vec![2, 3], vec![]));
    assert_eq!(lists(&all, &r, 25), (vec![3, 4], vec![2]));
    assert_eq!(lists(&all, &r, 32), (vec![4, 1], vec![2]));
    assert_eq!(lists(&all, &r, 38), (vec![4, 1], vec![]));
    let all = with_state(&all, 2, MemberState::MoveHandover);
    assert_eq!(lists(&all, &r, 32), (vec![2, 4], vec![1]));
}

#[test]
fn those_move_that_have_a_range_on_one_side_of_a_movement_only() {
    use MemberState as S;
    let of = |all: &crate::Members, replication, token| {
        let table = Placements::build(all, replication);
        let replicas = table.replicas(Token(token));
        let moving: BTreeSet<u128> = (0..replicas.len())
            .filter(|at| replicas.moves(*at))
            .filter_map(|at| Some(replicas.get(at)?.host_id.0.as_u128()))
            .collect();
        assert_eq!(replicas.is_moving(), !moving.is_empty());
        moving.into_iter().collect::<Vec<u128>>()
    };
    let two = &Replication::Simple(2);
    for (begun, handed_over) in [(S::Joining, S::JoinHandover), (S::Leaving, S::LeaveHandover)] {
        for state in [begun, handed_over] {
            let all = with_state(&four(), 2, state);
            assert_eq!(of(&all, two, 5), [2, 3], "{state}");
            assert_eq!(of(&all, two, 15), [2, 4], "{state}");
            assert_eq!(of(&all, two, 35), [0; 0], "{state}");
        }
    }
    // With one node more than there were replicas, a joining node takes no other node's place.
    let all = with_state(&four(), 2, S::Joining);
    assert_eq!(of(&all, &Replication::Simple(4), 15), [2]);
    assert_eq!(of(&four(), two, 15), [0; 0]);
    let mut all = four();
    let mut new = member(5, "d", "r", &[20]);
    new.state = S::Joining;
    new.replaces = Some(host(2));
    all.insert(new.host_id, Arc::new(new));
    assert_eq!(of(&all, two, 5), [2, 5]);
}

#[test]
fn a_table_without_tokens_or_factor_has_nobody() {
    let none = members([member(1, "d", "r", &[])]);
    let r = Replication::Simple(3);
    assert_eq!(lists(&none, &r, 0), (vec![], vec![]));
    assert_eq!(Placements::build(&none, &r).range_of(Token(0)), TokenRange::FULL);
    assert!(Placements::build(&four(), &Replication::Simple(0)).replicas(Token(1)).is_empty());
    let one = Placements::of_one(Arc::new(member(1, "d", "r", &[])));
    for token in [Token::MIN, Token(0), Token::MAX] {
        assert_eq!(one.replicas(token).get(0).map(|m| m.host_id), Some(host(1)));
        assert_eq!(one.range_of(token), TokenRange::FULL);
    }
}

#[test]
fn rows_are_indexed_over_natural_then_pending() {
    let all = with_state(&four(), 2, MemberState::Leaving);
    let table = Placements::build(&all, &Replication::Simple(2));
    let replicas = table.replicas(Token(15));
    assert_eq!((replicas.natural_len(), replicas.pending_len(), replicas.len()), (2, 1, 3));
    for (index, id) in [2, 3, 4].into_iter().enumerate() {
        assert_eq!(replicas.get(index).unwrap().host_id, host(id));
        assert_eq!(replicas.position(host(id)), Some(index));
        assert_eq!(replicas.is_natural(host(id)), index < 2);
    }
    assert!(replicas.get(3).is_none() && replicas.position(host(1)).is_none());
}

#[test]
fn every_row_of_random_rings_in_motion_holds_the_invariants() {
    let mut random = Random(11);
    let mut moving_rows = 0;
    for _ in 0..300 {
        let count = 2 + random.below(9);
        let mut all = random_members(&mut random, count, 5);
        for m in all.values_mut() {
            if random.below(4) == 0 {
                let state = [
                    MemberState::Joining,
                    MemberState::JoinHandover,
                    MemberState::Leaving,
                    MemberState::LeaveHandover,
                ][random.below(4)];
                *m = Arc::new(Member { state, ..Member::clone(m) });
            }
        }
        let map = (0..3).map(|i| (format!("dc{i}"), random.below(5) as u32)).collect();
        let replication = [Replication::Simple(random.below(5) as u32), Replication::Network(map)]
            [random.below(2)]
        .clone();
        let table = Placements::build(&all, &replication);
        // INV-placement-1.
        let total: u128 = table.ranges().map(|(range, _)| range.width()).sum();
        assert!(total == 1 << 64 || table.ranges().len() == 0);
        for pair in table.ranges().collect::<Vec<_>>().windows(2) {
            assert_eq!(pair[0].0.end, pair[1].0.start);
        }
        let before = crate::topology::tests_support::resolve(&all, false);
        let after = crate::topology::tests_support::resolve(&all, true);
        let (before, after) =
            (Placements::build(&before, &replication), Placements::build(&after, &replication));
        for (range, replicas) in table.ranges() {
            // INV-placement-2.
            let hosts: Vec<HostId> = replicas.members().map(|m| m.host_id).collect();
            let distinct: BTreeSet<HostId> = hosts.iter().copied().collect();
            assert_eq!(distinct.len(), hosts.len());
            // INV-placement-3, and no other node.
            moving_rows += usize::from(replicas.pending_len() > 0);
            let old = before.replicas(range.end);
            let new = after.replicas(range.end);
            let natural: BTreeSet<HostId> = replicas.natural().map(|m| m.host_id).collect();
            let both: BTreeSet<HostId> =
                old.natural().chain(new.natural()).map(|m| m.host_id).collect();
            assert_eq!(distinct, both.union(&natural).copied().collect());
            // The row is right for a token inside the range too.
            let inside =
                Token(range.end.0.wrapping_sub((random.next() as u128 % range.width()) as i64));
            assert!(range.contains(inside));
            assert!(table.replicas(inside).same_as(replicas));
        }
    }
    assert!(moving_rows > 500, "{moving_rows}");
}
