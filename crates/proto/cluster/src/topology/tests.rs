use super::*;
use crate::fuzz::violation;
use crate::metalog::{self, MetaLogError, Transformation};
use crate::snapshot::LocalNode;
use crate::testing::{host, member};
use schema::{KeyspaceParams, Schema, SchemaChange};
use stdx::{Epoch, WallMicros};

use MemberState as S;
use Transformation as T;

fn founder() -> LocalNode {
    LocalNode {
        host_id: host(1),
        cluster_name: "Test Cluster".to_owned(),
        datacenter: "d".to_owned(),
        rack: "r".to_owned(),
        tokens: vec![Token(10)],
        created_at: WallMicros(1_700_000_000_000_000),
    }
}

pub(super) fn alone() -> ClusterSnapshot {
    metalog::bootstrap(&T::Bootstrap(founder()), &Schema::default()).unwrap()
}

fn keyspace(name: &str, factor: u32) -> (std::sync::Arc<str>, KeyspaceParams) {
    let replication = [("class", "SimpleStrategy"), ("replication_factor", &factor.to_string())]
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .into();
    (name.into(), KeyspaceParams { durable_writes: true, replication })
}

fn create(name: &str, factor: u32) -> T {
    let (name, params) = keyspace(name, factor);
    T::Schema(Box::new(SchemaChange::CreateKeyspace { name, params }))
}

fn joining(id: u128, tokens: &[i64]) -> Member {
    Member { state: S::Joining, ..member(id, "d", "r", tokens) }
}

fn join(id: u128, tokens: &[i64]) -> T {
    T::Join { member: Arc::new(joining(id, tokens)) }
}

pub(super) fn state(id: u128, state: MemberState) -> T {
    T::SetState { host: host(id), state }
}

fn replace(old: u128, new: u128, tokens: &[i64]) -> T {
    let member = Member { replaces: Some(host(old)), ..joining(new, tokens) };
    T::Replace { old: host(old), member: Arc::new(member) }
}

fn address(id: u128, last: u8) -> Address {
    let at = |port| SocketAddr::from(([127, 0, 0, last], port));
    Address { host: host(id), storage: at(7000), rpc: at(9042) }
}

fn all(snapshot: &ClusterSnapshot, entries: impl IntoIterator<Item = T>) -> ClusterSnapshot {
    entries.into_iter().fold(snapshot.clone(), |s, e| {
        let next = s.apply(&e).unwrap_or_else(|error| panic!("{e:?}: {error}"));
        assert_eq!(violation(&next), None);
        next
    })
}

fn refused(snapshot: &ClusterSnapshot, entry: &T) -> MembershipError {
    match snapshot.apply(entry) {
        Err(MetaLogError::Membership(e)) => e,
        other => panic!("{entry:?} gave {other:?}"),
    }
}

fn joined(id: u128, tokens: &[i64]) -> [T; 3] {
    [join(id, tokens), state(id, S::JoinHandover), state(id, S::Normal)]
}

/// Nodes 1 to `n` at tokens 10, 20, …, one keyspace with that factor.
fn cluster(n: u128, factor: u32) -> ClusterSnapshot {
    let mut snapshot = all(&alone(), [T::Readdress { changes: vec![address(1, 1)] }]);
    for id in 2..=n {
        snapshot = all(&snapshot, joined(id, &[id as i64 * 10]));
    }
    all(&snapshot, [create("k", factor)])
}

fn states(snapshot: &ClusterSnapshot) -> Vec<(u128, MemberState)> {
    snapshot.members.values().map(|m| (m.host_id.0.as_u128(), m.state)).collect()
}

#[test]
fn the_founder_is_the_first_member_and_voter() {
    let s = alone();
    assert_eq!(s.voters, [host(1)]);
    let m = s.local_member().unwrap();
    assert_eq!((m.state, &m.tokens[..], m.storage), (S::Normal, &[Token(10)][..], ADDRESS_UNKNOWN));
    // The id depends on the founder and the time, and on nothing later.
    let later = LocalNode { created_at: WallMicros(5), ..founder() };
    let other = metalog::bootstrap(&T::Bootstrap(later), &Schema::default()).unwrap();
    assert_ne!(other.cluster_id, s.cluster_id);
    assert_eq!(cluster(3, 1).cluster_id, s.cluster_id);
    assert_eq!(s.cluster_id.get_version_num(), 8);
}

#[test]
fn a_log_written_before_there_were_members_reads_as_a_cluster_of_one() {
    // Bootstrap of host 7, as the first release wrote it.
    let payload = "0100000000000000000000000000000007\
                   0c5465737420436c7573746572\
                   0b6461746163656e74657231057261636b31\
                   0200000000000000010000000000000002\
                   00060a24181e4000";
    let bytes: Vec<u8> = (0..payload.len() / 2)
        .map(|i| u8::from_str_radix(&payload[2 * i..2 * i + 2], 16).unwrap())
        .collect();
    let entry = T::decode(&bytes).unwrap();
    let s = metalog::bootstrap(&entry, &Schema::default()).unwrap();
    let m = s.local_member().unwrap();
    assert_eq!(m.host_id, host(7));
    assert_eq!((m.datacenter.as_str(), m.rack.as_str()), ("datacenter1", "rack1"));
    assert_eq!(m.tokens, [Token(1), Token(2)]);
    assert_eq!(s.local.created_at, WallMicros(1_700_000_000_000_000));
    let s = all(&s, [T::Locate { datacenter: "east".to_owned(), rack: "a".to_owned() }]);
    assert_eq!((s.local.datacenter.as_str(), s.local.rack.as_str()), ("east", "a"));
    assert_eq!(s.local_member().unwrap().datacenter, "east");
}

/// INV-cluster-3.
#[test]
fn a_snapshot_is_the_same_on_every_node_but_for_local() {
    let shared = cluster(3, 2);
    let two = shared.with_local(host(2)).unwrap();
    assert_eq!((two.local.host_id, &two.local.tokens[..]), (host(2), &[Token(20)][..]));
    assert_eq!(two.local.cluster_name, "Test Cluster");
    assert_eq!(two.system_timestamp(), shared.system_timestamp());
    assert!(shared.with_local(host(9)).is_none());
    // It stays so, and follows the membership.
    let entries = [
        T::Move { host: host(2), tokens: vec![Token(25)] },
        state(2, S::MoveHandover),
        state(2, S::Normal),
    ];
    let two = all(&two, entries.clone());
    let shared = all(&shared, entries);
    assert_eq!((two.local.host_id, &two.local.tokens[..]), (host(2), &[Token(25)][..]));
    assert_eq!(shared.local.host_id, host(1));
    assert_eq!(two.members, shared.members);
    assert_eq!(two.epoch, shared.epoch);
    // A node that is not a member yet sees the same with its own plans.
    let plan = LocalNode { host_id: host(9), cluster_name: "?".to_owned(), ..founder() };
    let nine = shared.seen_by(plan);
    assert!(nine.local_member().is_none() && nine.local.cluster_name == "Test Cluster");
    let nine = all(&nine, [join(9, &[90])]);
    assert_eq!(nine.local.tokens, [Token(90)]);
    assert_eq!(nine.local_member().unwrap().state, S::Joining);
}

#[test]
fn every_change_of_state_is_taken_or_refused_as_the_table_says() {
    // From, how to get there, and where it may go by SetState.
    let moved = || T::Move { host: host(2), tokens: vec![Token(25)] };
    let table: [(S, Vec<T>, &[S]); 7] = [
        (S::Joining, vec![join(4, &[40])], &[S::JoinHandover]),
        (
            S::JoinHandover,
            vec![join(4, &[40]), state(4, S::JoinHandover)],
            &[S::Joining, S::Normal],
        ),
        (S::Normal, vec![], &[S::Leaving]),
        (S::Leaving, vec![state(2, S::Leaving)], &[S::LeaveHandover, S::Normal]),
        (S::LeaveHandover, vec![state(2, S::Leaving), state(2, S::LeaveHandover)], &[S::Leaving]),
        (S::Moving, vec![moved()], &[S::MoveHandover, S::Normal]),
        (S::MoveHandover, vec![moved(), state(2, S::MoveHandover)], &[S::Moving, S::Normal]),
    ];
    for (from, way, to) in table {
        let id = if matches!(from, S::Joining | S::JoinHandover) { 4 } else { 2 };
        let s = all(&cluster(3, 2), way);
        assert_eq!(s.members[&host(id)].state, from);
        for next in S::ALL {
            let entry = state(id, next);
            if to.contains(&next) {
                assert_eq!(all(&s, [entry]).members[&host(id)].state, next);
            } else {
                let error = MembershipError::IllegalState { host: host(id), from, to: next };
                assert_eq!(refused(&s, &entry), error);
            }
        }
        // Out: from `Joining` and `LeaveHandover` only.
        let leave = T::Leave { host: host(id) };
        if matches!(from, S::Joining | S::LeaveHandover) {
            assert!(!all(&s, [leave]).members.contains_key(&host(id)));
        } else {
            let error = MembershipError::NotLeft { host: host(id), state: from };
            assert_eq!(refused(&s, &leave), error);
        }
    }
}

#[test]
fn a_move_changes_tokens_when_finished_and_not_when_given_up() {
    let s = all(&cluster(3, 2), [T::Move { host: host(2), tokens: vec![Token(25)] }]);
    let given_up = all(&s, [state(2, S::Normal)]);
    assert_eq!(given_up.members[&host(2)].tokens, [Token(20)]);
    assert!(given_up.members[&host(2)].moving_to.is_empty());
    let done = all(&s, [state(2, S::MoveHandover), state(2, S::Normal)]);
    assert_eq!(done.members[&host(2)].tokens, [Token(25)]);
    assert_eq!(finished(&s, host(2))[&host(2)].tokens, [Token(25)]);
    assert_eq!(unmoved(&s)[&host(2)].tokens, [Token(20)]);
}

#[test]
fn a_replacement_takes_tokens_and_address_and_the_old_one_goes_at_the_end() {
    let s = cluster(3, 2);
    let same_address = {
        let m = Member {
            replaces: Some(host(2)),
            storage: s.members[&host(2)].storage,
            rpc: s.members[&host(2)].rpc,
            ..joining(5, &[20])
        };
        T::Replace { old: host(2), member: Arc::new(m) }
    };
    let begun = all(&s, [same_address]);
    assert_eq!(begun.members[&host(2)].storage, ADDRESS_UNKNOWN);
    assert_eq!(states(&begun)[1..], [(2, S::Normal), (3, S::Normal), (5, S::Joining)]);
    let planned = finished(&begun, host(5));
    assert!(!planned.contains_key(&host(2)) && planned[&host(5)].tokens == [Token(20)]);
    let done = all(&begun, [state(5, S::JoinHandover), state(5, S::Normal)]);
    assert_eq!(states(&done), [(1, S::Normal), (3, S::Normal), (5, S::Normal)]);
    assert_eq!(done.members[&host(5)].replaces, None);
    let given_up = all(&begun, [T::Leave { host: host(5) }]);
    assert_eq!(states(&given_up), states(&s));

    let by = host(5);
    let old = host(2);
    let already = MembershipError::AlreadyReplaced { old, by };
    for entry in [
        replace(2, 6, &[20]),
        state(2, S::Leaving),
        T::Move { host: old, tokens: vec![Token(1)] },
        T::Evict { host: old },
    ] {
        assert_eq!(refused(&begun, &entry), already, "{entry:?}");
    }
    let tokens = MembershipError::ReplaceTokens { old, new: host(6) };
    assert_eq!(refused(&s, &replace(2, 6, &[21])), tokens);
    let elsewhere =
        Member { replaces: Some(old), state: S::Joining, ..member(6, "d", "other", &[20]) };
    let place =
        MembershipError::ReplacePlace { old, datacenter: "d".to_owned(), rack: "r".to_owned() };
    let entry = T::Replace { old, member: Arc::new(elsewhere) };
    assert_eq!(refused(&s, &entry), place);
    assert_eq!(refused(&s, &replace(9, 6, &[20])), MembershipError::Unknown { host: host(9) });
    let leaving = all(&s, [state(2, S::Leaving)]);
    let busy = MembershipError::Busy { host: old, state: S::Leaving };
    assert_eq!(refused(&leaving, &replace(2, 6, &[20])), busy);
    // A voter's place among the voters is given to others first.
    let voting = all(&begun, [T::SetVoters { hosts: vec![old, host(1)] }]);
    let voting = all(&voting, [state(5, S::JoinHandover)]);
    assert_eq!(refused(&voting, &state(5, S::Normal)), MembershipError::IsVoter { host: old });
}

#[test]
fn newcomers_that_collide_are_refused_with_what_to_do() {
    let s = cluster(3, 2);
    let join_of = |m: Member| T::Join { member: Arc::new(m) };
    let five = || joining(5, &[50]);
    let taken = s.members[&host(2)].storage;
    let many: Vec<i64> = (0..=TOKENS_MAX as i64).map(|i| 1_000 + i).collect();
    let table: [(T, MembershipError, &str); 11] = [
        (
            join(2, &[50]),
            MembershipError::DuplicateHost { host: host(2) },
            "start the newcomer with an empty data directory",
        ),
        (
            join(5, &[20, 50]),
            MembershipError::TokenTaken { token: Token(20), by: host(2) },
            "take another initial_token",
        ),
        (join(5, &[]), MembershipError::TokenCount { host: host(5), count: 0 }, "set num_tokens"),
        (
            join(5, &many),
            MembershipError::TokenCount { host: host(5), count: TOKENS_MAX + 1 },
            "1 to 1536",
        ),
        (join(5, &[51, 50]), MembershipError::Malformed { host: host(5) }, "another release"),
        (join(5, &[50, 50]), MembershipError::Malformed { host: host(5) }, "another release"),
        (
            join_of(member(5, "d", "r", &[50])),
            MembershipError::Malformed { host: host(5) },
            "another release",
        ),
        (
            join_of(Member { storage: taken, ..five() }),
            MembershipError::AddressTaken { address: taken, by: host(2) },
            "another address",
        ),
        (
            join_of(Member { rack: String::new(), ..five() }),
            MembershipError::NoPlace { host: host(5) },
            "cassandra-rackdc.properties",
        ),
        (
            join_of(Member { datacenter: "x".repeat(NAME_BYTES_MAX + 1), ..five() }),
            MembershipError::NameTooLong { host: host(5), what: "datacenter" },
            "shorten",
        ),
        (replace(2, 3, &[20]), MembershipError::DuplicateHost { host: host(3) }, "empty data"),
    ];
    for (entry, error, advice) in table {
        let found = refused(&s, &entry);
        assert_eq!(found, error);
        assert!(found.to_string().contains(advice), "{found}");
    }
    // The nearest that are taken.
    all(&s, [join(5, &many[..TOKENS_MAX])]);
    all(&s, [join_of(Member { datacenter: "x".repeat(NAME_BYTES_MAX), ..five() })]);
    // A token that a mover is about to take is taken.
    let moving = all(&cluster(3, 1), [T::Move { host: host(2), tokens: vec![Token(22)] }]);
    let taken = MembershipError::TokenTaken { token: Token(22), by: host(2) };
    assert_eq!(refused(&moving, &join(5, &[22])), taken);
}

#[test]
fn addresses_change_together_so_that_two_nodes_can_swap_them() {
    let s = cluster(3, 2);
    let (two, three) = (s.members[&host(2)].storage, s.members[&host(3)].storage);
    let one_by_one = T::Readdress { changes: vec![address(2, 3)] };
    let taken = MembershipError::AddressTaken { address: three, by: host(3) };
    assert_eq!(refused(&s, &one_by_one), taken);
    let swap = T::Readdress { changes: vec![address(2, 3), address(3, 2)] };
    let swapped = all(&s, [swap]);
    assert_eq!(swapped.members[&host(2)].storage, three);
    assert_eq!(swapped.members[&host(3)].storage, two);
    // The member that starts first records that the other one's address is unknown.
    let unknown = Address { host: host(3), storage: ADDRESS_UNKNOWN, rpc: ADDRESS_UNKNOWN };
    let s = all(&s, [T::Readdress { changes: vec![address(2, 3), unknown] }]);
    let s = all(&s, [T::Readdress { changes: vec![address(3, 2)] }]);
    assert_eq!(s.members[&host(3)].storage, two);
    let twice = T::Readdress { changes: vec![address(2, 8), address(2, 9)] };
    assert_eq!(refused(&s, &twice), MembershipError::Malformed { host: host(2) });
    let nobody = T::Readdress { changes: vec![address(9, 9)] };
    assert_eq!(refused(&s, &nobody), MembershipError::Unknown { host: host(9) });
}

#[test]
fn voters_are_members_that_own_data_and_leave_only_after_others_are_chosen() {
    let s = cluster(3, 2);
    let set = |ids: &[u128]| T::SetVoters { hosts: ids.iter().map(|i| host(*i)).collect() };
    let three = all(&s, [set(&[3, 1, 2])]);
    assert_eq!(three.voters, [host(1), host(2), host(3)]);
    let voter_count = |count| MembershipError::VoterCount { count };
    assert_eq!(refused(&s, &set(&[])), voter_count(0));
    assert_eq!(refused(&s, &set(&[1, 1])), voter_count(2));
    assert_eq!(refused(&s, &set(&[1, 2, 3, 4, 5, 6, 7, 8])), voter_count(8));
    assert_eq!(refused(&s, &set(&[9])), MembershipError::Unknown { host: host(9) });
    let joins = all(&s, [join(4, &[40])]);
    let error = MembershipError::VoterState { host: host(4), state: S::Joining };
    assert_eq!(refused(&joins, &set(&[1, 4])), error);
    let left = all(&three, [state(2, S::Leaving), state(2, S::LeaveHandover)]);
    let leave = T::Leave { host: host(2) };
    assert_eq!(refused(&left, &leave), MembershipError::IsVoter { host: host(2) });
    all(&left, [set(&[1]), leave]);
    assert_eq!(
        refused(&three, &T::Evict { host: host(3) }),
        MembershipError::IsVoter { host: host(3) }
    );
}

#[test]
fn features_come_on_when_every_member_has_them() {
    let s = cluster(2, 1);
    let describe = |id, features| T::Describe {
        host: host(id),
        shards: 2,
        features,
        release: "5.0.9".to_owned(),
    };
    let s = all(&s, [describe(1, 0b111)]);
    let missing = MembershipError::MissingFeatures { host: host(2), missing: 0b010 };
    assert_eq!(refused(&s, &T::Features { enable: 0b010 }), missing);
    let s = all(&s, [describe(2, 0b011), T::Features { enable: 0b010 }]);
    assert_eq!(s.features, 0b010);
    let s = all(&s, [T::Features { enable: 0b001 }]);
    assert_eq!(s.features, 0b011);
    // A node that lacks an enabled feature neither joins nor goes back to an old release.
    let missing = |id, missing| MembershipError::MissingFeatures { host: host(id), missing };
    assert_eq!(refused(&s, &join(3, &[30])), missing(3, 0b011));
    assert_eq!(refused(&s, &describe(2, 0b001)), missing(2, 0b010));
    assert_eq!(s.members[&host(2)].shards, 2);
}

#[test]
fn the_last_owner_stays_and_eviction_takes_the_others_out_at_once() {
    let s = cluster(1, 1);
    assert_eq!(refused(&s, &state(1, S::Leaving)), MembershipError::LastMember);
    let s = all(&cluster(3, 2), [T::Evict { host: host(3) }]);
    assert_eq!(states(&s), [(1, S::Normal), (2, S::Normal)]);
    let s = all(&s, [join(4, &[40]), T::Evict { host: host(4) }]);
    assert_eq!(states(&s), [(1, S::Normal), (2, S::Normal)]);
    let s = all(&s, [T::SetVoters { hosts: vec![host(2)] }, T::Evict { host: host(1) }]);
    assert_eq!(refused(&s, &state(2, S::Leaving)), MembershipError::LastMember);
}

#[test]
fn a_rack_changes_only_while_the_node_is_alone() {
    let locate = T::Locate { datacenter: "e".to_owned(), rack: "s".to_owned() };
    assert_eq!(refused(&cluster(2, 1), &locate), MembershipError::Relocated);
    let s = all(&cluster(1, 1), [locate]);
    assert_eq!(s.members[&host(1)].rack, "s");
}

/// INV-topology-3.
#[test]
fn movements_of_the_same_ranges_wait_for_each_other_and_others_do_not() {
    // RF 1: a token's data is on one node; 8 nodes at 10 … 80.
    let one = cluster(8, 1);
    let two = cluster(8, 2);
    let begun = |s: &ClusterSnapshot| all(s, [join(11, &[15])]);
    // The other half of the ring is free.
    all(&begun(&one), [join(12, &[55]), state(7, S::Leaving)]);
    all(&begun(&two), [join(12, &[55])]);
    // The same range is not, nor is the node that gives it away.
    let overlap = |id| MembershipError::Overlap { host: host(id), other: host(11) };
    assert_eq!(refused(&begun(&one), &join(12, &[16])), overlap(12));
    assert_eq!(refused(&begun(&one), &state(2, S::Leaving)), overlap(2));
    // With two replicas the neighbour's range is not free either; with one it is.
    all(&begun(&one), [join(12, &[25])]);
    assert_eq!(refused(&begun(&two), &join(12, &[25])), overlap(12));
    // 2 and 3 leave: 3 gets nothing from 2 with RF 1 only if it stays.
    let leaving = all(&one, [state(2, S::Leaving)]);
    let error = MembershipError::Overlap { host: host(3), other: host(2) };
    assert_eq!(refused(&leaving, &state(3, S::Leaving)), error);
    // At most four, and a new keyspace counts.
    let four = all(&one, [1, 3, 5].map(|i| join(20 + i as u128, &[i * 10 + 5])));
    let four = all(&four, [join(30, &[75])]);
    let full = MembershipError::TooManyMovements { host: host(31) };
    assert_eq!(refused(&four, &join(31, &[25])), full);
    assert!(matches!(refused(&four, &create("wide", 4)), MembershipError::Overlap { .. }));
    all(&four, [create("narrow", 1)]);
}

#[test]
fn replication_changes_only_when_nothing_moves() {
    let s = all(&cluster(3, 2), [join(4, &[40])]);
    let alter = |factor| {
        let (name, params) = keyspace("k", factor);
        T::Schema(Box::new(SchemaChange::AlterKeyspace { name, params }))
    };
    let error = refused(&s, &alter(3));
    assert_eq!(
        error.to_string(),
        "Cannot alter RF while some endpoints are not in normal state (no range movements): \
         [/127.0.0.4:7000]"
    );
    all(&s, [alter(2)]);
    all(&s, [state(4, S::JoinHandover), state(4, S::Normal), alter(3)]);
}

#[test]
fn a_log_of_a_whole_life_reads_back_to_the_same_cluster() {
    let entries = [
        vec![T::Readdress { changes: vec![address(1, 1)] }, create("k", 2)],
        joined(2, &[20]).to_vec(),
        joined(3, &[30]).to_vec(),
        vec![T::SetVoters { hosts: vec![host(1), host(2), host(3)] }, join(4, &[40])],
    ]
    .concat();
    let mut bytes = metalog::MAGIC.to_vec();
    T::Bootstrap(founder()).encode_entry(Epoch(1), &mut bytes);
    for (i, entry) in entries.iter().enumerate() {
        entry.encode_entry(Epoch(i as u64 + 2), &mut bytes);
    }
    let loaded = metalog::load(&bytes, &Schema::default()).unwrap().snapshot.unwrap();
    let direct = all(&alone(), entries);
    assert_eq!(loaded.members, direct.members);
    assert_eq!(loaded.voters, direct.voters);
    assert_eq!(loaded.cluster_id, direct.cluster_id);
    assert_eq!(loaded.epoch, direct.epoch);
}

/// INV-handover-2.
#[test]
fn a_keyspace_that_is_handed_over_keeps_its_replication_and_the_ring() {
    let table = crate::testing::table();
    let alter = |factor| {
        let (name, params) = keyspace("k", factor);
        T::Schema(Box::new(SchemaChange::AlterKeyspace { name, params }))
    };
    let changed = |s: &ClusterSnapshot, factor| {
        s.apply(&T::Group(s.with_handovers(vec![alter(factor)]))).unwrap()
    };
    let stage = |s: &ClusterSnapshot| s.handovers.get("k").map(|h| (h.stage, h.since));
    let step =
        |done| T::HandOver(crate::HandoverStep { keyspace: "k".to_owned(), done: Some(done) });
    let empty = cluster(3, 1);
    assert_eq!(stage(&changed(&empty, 3)), None, "nothing was decided without a table");
    let s = all(&empty, [T::Schema(Box::new(SchemaChange::CreateTable(table)))]);
    assert_eq!(stage(&changed(&s, 1)), None, "nobody is new");
    let gaining = changed(&s, 3);
    assert_eq!(stage(&gaining), Some((crate::Stage::Gaining, gaining.epoch)));
    assert_eq!(gaining.heirs("k").len(), 3);
    for entry in [alter(2), join(4, &[40]), state(2, S::Leaving)] {
        let error = refused(&gaining, &entry);
        assert!(matches!(error, MembershipError::HandingOver { .. }), "{entry:?}: {error}");
    }
    assert!(gaining.waits_for_handover(&[alter(2)]) && !gaining.waits_for_handover(&[alter(3)]));
    let error = refused(&gaining, &step(Epoch(gaining.epoch.0 - 1)));
    assert!(matches!(error, MembershipError::NoHandover { .. }), "{error}");
    let done = all(&gaining, [alter(3), step(gaining.epoch)]);
    assert_eq!(stage(&done), None);
    all(&done, joined(4, &[40]));
    let losing = changed(&done, 1);
    assert_eq!(stage(&losing), Some((crate::Stage::Losing, losing.epoch)));
    assert_eq!(stage(&all(&losing, [step(losing.epoch)])), None);
}
