//! Plain functions over bytes from outside; none may panic.

use codec::Reader;
use schema::{KeyspaceParams, Schema, SchemaChange, encode};
use stdx::{Epoch, HostId, Token, Uuid, WallMicros};

use crate::{ClusterSnapshot, LocalNode, Member, Transformation};

/// A metadata log file.
pub fn fuzz_metalog(data: &[u8]) {
    let base = Schema::default();
    // Both as it is and after a valid magic, so that mutations reach the entries.
    if let Ok(loaded) = crate::metalog::load(data, &base) {
        assert!(loaded.valid_bytes + loaded.dropped_bytes == data.len() as u64);
    }
    let mut framed = crate::metalog::MAGIC.to_vec();
    framed.extend_from_slice(data);
    let _ = crate::metalog::load(&framed, &base).is_ok();
    let _ = crate::Transformation::decode(data).is_ok();
}

/// A change of the schema, as an entry of the metadata log has it, on a keyspace that exists.
pub fn fuzz_schema_change(data: &[u8]) {
    let mut r = Reader::new(data, "schema change");
    let Ok(change) = encode::read_change(&mut r) else { return };
    let mut again = Vec::new();
    encode::change(&mut again, &change);
    let decoded = encode::read_change(&mut Reader::new(&again, "schema change"));
    assert!(decoded.is_ok_and(|c| c == change), "a change of the schema changes on its way");
    let params = KeyspaceParams { durable_writes: true, replication: Default::default() };
    let keyspace = SchemaChange::CreateKeyspace { name: "ks".into(), params };
    let Ok(schema) = Schema::default().apply(&keyspace) else { return };
    let _ = schema.apply(&change).is_ok();
}

/// A member as other nodes send it.
pub fn fuzz_member(data: &[u8]) {
    let mut r = Reader::new(data, "member");
    if let Ok(member) = Member::decode(&mut r) {
        let mut again = Vec::new();
        member.encode(&mut again);
        let decoded = Member::decode(&mut Reader::new(&again, "member"));
        assert!(decoded.is_ok_and(|m| m == member), "a member changes on its way");
    }
}

/// A sequence of entries, each with a length byte, applied to a cluster of one.
pub fn fuzz_membership(data: &[u8]) {
    let founder = LocalNode {
        host_id: HostId(Uuid::from_u128(1)),
        cluster_name: "fuzz".to_owned(),
        datacenter: "d".to_owned(),
        rack: "r".to_owned(),
        tokens: vec![Token(0)],
        created_at: WallMicros(1),
    };
    let first = Transformation::Bootstrap(founder);
    let Ok(mut snapshot) = crate::metalog::bootstrap(&first, &Schema::default()) else { return };
    let mut rest = data;
    while let Some((length, after)) = rest.split_first() {
        let (payload, after) = after.split_at(usize::from(*length).min(after.len()));
        rest = after;
        let Ok(entry) = Transformation::decode(payload) else { continue };
        if let Ok(next) = snapshot.apply(&entry) {
            assert!(
                next.epoch == Epoch(snapshot.epoch.0 + 1),
                "INV-cluster-1: an epoch was left out"
            );
            assert!(violation(&next).is_none(), "{:?}", violation(&next));
            snapshot = next;
        }
    }
}

/// Returns the first violated invariant of the membership, if any: INV-member-1, INV-member-2,
/// INV-topology-1, INV-topology-2.
pub(crate) fn violation(snapshot: &ClusterSnapshot) -> Option<&'static str> {
    let mut tokens = Vec::new();
    for (host, member) in &snapshot.members {
        let is_ascending = |list: &[Token]| list.windows(2).all(|p| p.first() < p.last());
        if *host != member.host_id {
            return Some("a member stands under another id");
        }
        if !is_ascending(&member.tokens) || !is_ascending(&member.moving_to) {
            return Some("INV-member-1: tokens out of order");
        }
        if (member.state.letter() == 'M') == member.moving_to.is_empty() {
            return Some("INV-member-2: tokens to move to in a wrong state");
        }
        if member.state.letter() != 'J' && member.replaces.is_some() {
            return Some("replaces another one in a wrong state");
        }
        // A node that replaces another one has the same tokens.
        if member.replaces.is_none() {
            tokens.extend(member.tokens.iter().copied());
        }
        tokens.extend(member.moving_to.iter().filter(|t| !member.tokens.contains(t)).copied());
    }
    if has_twice(&mut tokens) {
        return Some("INV-topology-1: a token is held twice");
    }
    for address in [|m: &Member| m.storage, |m: &Member| m.rpc] {
        let mut held: Vec<_> = snapshot.members.values().map(|m| address(m)).collect();
        held.retain(|a| *a != crate::ADDRESS_UNKNOWN);
        if has_twice(&mut held) {
            return Some("INV-topology-1: an address is held twice");
        }
    }
    if snapshot.voters.is_empty() {
        return Some("nobody votes");
    }
    let is_in = |v: &HostId| snapshot.members.contains_key(v);
    (!snapshot.voters.iter().all(is_in)).then_some("INV-topology-2: a voter is out")
}

fn has_twice<T: Ord>(list: &mut [T]) -> bool {
    list.sort_unstable();
    list.windows(2).any(|pair| pair.first() == pair.last())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, host, member};
    use crate::{Address, MemberState};
    use schema::{
        Column, ColumnKind, IndexKind, IndexMetadata, IndexRules, IndexTarget, Table, TableKind,
        TableOptions, TargetPart, index_id,
    };
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use stdx::{ColumnId, TableId};
    use types::CqlType;

    fn marker(epoch: u64, bytes: &mut Vec<u8>) {
        crate::metalog::encode_marker(Epoch(epoch), bytes);
    }

    /// A table with a legacy index and storage-attached ones of each part of a column.
    fn indexed() -> Table {
        let id = TableId(Uuid::from_u128(42));
        let column =
            |id, name: &str, kind, ty| Column { id: ColumnId(id), name: name.into(), ty, kind };
        let index = |name: &str, column: &str, part, rules| {
            let kind = match rules {
                IndexRules::Legacy => IndexKind::Composites,
                IndexRules::Sai | IndexRules::Sasi => IndexKind::Custom,
            };
            Arc::new(IndexMetadata {
                id: index_id(id, name, 1),
                name: name.into(),
                kind,
                options: BTreeMap::from([("target".to_owned(), column.to_owned())]),
                target: IndexTarget { column: column.into(), part },
                rules,
            })
        };
        Table {
            id,
            keyspace: "ks".into(),
            name: "t".into(),
            kind: TableKind::Regular,
            columns: vec![
                column(0, "k", ColumnKind::PartitionKey(0), CqlType::Int),
                column(
                    1,
                    "c",
                    ColumnKind::Clustering { position: 0, reversed: false },
                    CqlType::Text,
                ),
                column(2, "s", ColumnKind::Static, CqlType::Int),
                column(3, "f", ColumnKind::Regular, CqlType::list(CqlType::Int, true)),
                column(
                    4,
                    "m",
                    ColumnKind::Regular,
                    CqlType::map(CqlType::Text, CqlType::Int, false),
                ),
            ],
            partition_key_count: 1,
            clustering_count: 1,
            static_count: 1,
            options: TableOptions::default(),
            dropped: BTreeMap::new(),
            masks: BTreeMap::new(),
            indexes: [
                index("a", "s", TargetPart::Simple, IndexRules::Legacy),
                index("b", "m", TargetPart::Values, IndexRules::Sai),
                index("c", "m", TargetPart::Keys, IndexRules::Sai),
                index("d", "m", TargetPart::Entries, IndexRules::Sai),
                index("e", "f", TargetPart::Full, IndexRules::Sai),
            ]
            .into(),
            version: 1,
            next_column_id: 5,
        }
    }

    fn change_bytes(change: &SchemaChange) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode::change(&mut bytes, change);
        bytes
    }

    /// A log of four entries with their markers, and where each entry ends.
    fn log() -> (Vec<u8>, Vec<usize>) {
        let mut bytes = crate::metalog::MAGIC.to_vec();
        let node = LocalNode {
            host_id: HostId(Uuid::from_u128(7)),
            cluster_name: "Test Cluster".to_owned(),
            datacenter: "datacenter1".to_owned(),
            rack: "rack1".to_owned(),
            tokens: vec![Token(1), Token(2)],
            created_at: stdx::WallMicros(1_700_000_000_000_000),
        };
        let mut ends = vec![bytes.len()];
        Transformation::Bootstrap(node).encode_entry(Epoch(1), &mut bytes);
        ends.push(bytes.len());
        marker(1, &mut bytes);
        for (i, name) in ["a", "b"].into_iter().enumerate() {
            let params = KeyspaceParams { durable_writes: true, replication: Default::default() };
            let change = SchemaChange::CreateKeyspace { name: name.into(), params };
            let change = Transformation::Schema(Box::new(change));
            let epoch = Epoch(i as u64 + 2);
            if i == 0 {
                change.encode_entry(epoch, &mut bytes);
            } else {
                let mut payload = Vec::new();
                Transformation::Group(vec![change]).encode(&mut payload);
                let origin = Some(Uuid::from_u128(5));
                crate::metalog::encode_frame(epoch, origin, &payload, &mut bytes);
            }
            ends.push(bytes.len());
            marker(i as u64 + 2, &mut bytes);
        }
        let table = Table { keyspace: "a".into(), ..indexed() };
        let change = Transformation::Schema(Box::new(SchemaChange::CreateTable(table)));
        change.encode_entry(Epoch(4), &mut bytes);
        ends.push(bytes.len());
        marker(4, &mut bytes);
        (bytes, ends)
    }

    #[test]
    fn a_frame_of_the_log_is_found_by_its_place() {
        let (bytes, _) = log();
        let loaded = crate::metalog::load(&bytes, &Schema::default()).unwrap();
        assert_eq!(loaded.places.len(), 4);
        for (i, (offset, length)) in loaded.places.into_iter().enumerate() {
            let frame = &bytes[offset as usize..][..length as usize];
            let framed = crate::metalog::decode_frame(frame).unwrap();
            assert_eq!(framed.epoch, Epoch(i as u64 + 1));
            assert_eq!(framed.origin, (i == 2).then(|| Uuid::from_u128(5)));
            assert!(Transformation::decode(framed.payload).is_ok());
        }
        assert!(crate::metalog::decode_frame(&bytes[8..]).is_err());
    }

    #[test]
    fn a_torn_last_marker_is_a_tail() {
        let (bytes, ends) = log();
        let last = ends[4];
        for zeros in 1..16 {
            let mut torn = bytes.clone();
            torn[last..last + zeros].fill(0);
            let loaded = crate::metalog::load(&torn, &Schema::default()).unwrap();
            assert_eq!(loaded.valid_bytes, last as u64, "{zeros} zeros");
            assert_eq!(loaded.snapshot.unwrap().epoch, Epoch(4));
        }
    }

    #[test]
    fn a_group_happens_whole_or_not_at_all() {
        let (bytes, _) = log();
        let before = crate::metalog::load(&bytes, &Schema::default()).unwrap().snapshot.unwrap();
        let keyspace = |name: &str| {
            let params = KeyspaceParams { durable_writes: true, replication: Default::default() };
            let change = SchemaChange::CreateKeyspace { name: name.into(), params };
            Transformation::Schema(Box::new(change))
        };
        let after =
            before.apply(&Transformation::Group(vec![keyspace("x"), keyspace("y")])).unwrap();
        assert_eq!(after.epoch, Epoch(5));
        assert!(after.schema.keyspace("x").is_some() && after.schema.keyspace("y").is_some());
        assert!(before.apply(&Transformation::Group(vec![keyspace("x"), keyspace("a")])).is_err());
        let nested = Transformation::Group(vec![Transformation::Group(vec![])]);
        assert!(before.apply(&nested).is_err());
        let mut payload = Vec::new();
        nested.encode(&mut payload);
        assert!(Transformation::decode(&payload).is_err());
    }

    #[test]
    fn a_log_cut_at_any_length_loses_only_its_last_entry() {
        let (bytes, ends) = log();
        for cut in 0..=bytes.len() {
            let loaded = crate::metalog::load(&bytes[..cut], &Schema::default());
            let loaded = loaded.unwrap_or_else(|e| panic!("cut at {cut}: {e}"));
            let entries = ends.iter().filter(|e| **e <= cut).count().saturating_sub(1);
            assert_eq!(loaded.snapshot.map_or(0, |s| s.epoch.0), entries as u64, "cut at {cut}");
        }
    }

    #[test]
    fn a_flip_of_any_bit_never_loses_a_marked_entry_silently() {
        let (bytes, ends) = log();
        let last_marker = *ends.last().unwrap();
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut bad = bytes.clone();
                bad[at] ^= 1 << bit;
                match crate::metalog::load(&bad, &Schema::default()) {
                    Err(_) => assert!(at < last_marker, "flip at {at}"),
                    // Only the last marker itself can go unseen: it holds no data.
                    Ok(loaded) => {
                        assert!(at >= last_marker, "flip at {at} bit {bit} was not seen");
                        assert_eq!(loaded.snapshot.map(|s| s.epoch.0), Some(4));
                    }
                }
            }
        }
    }

    #[test]
    fn ten_thousand_mutations_never_panic() {
        testkit::mutate([log().0], fuzz_metalog);
    }

    #[test]
    fn mutated_tables_with_indexes_never_panic_and_keep_their_form() {
        let create = change_bytes(&SchemaChange::CreateTable(indexed()));
        let alter = change_bytes(&SchemaChange::AlterTable(indexed()));
        testkit::mutate([create, alter], fuzz_schema_change);
    }

    /// Without the checksum of its entry: what is accepted has the same indexes when it is written again.
    #[test]
    fn a_flip_of_any_bit_of_a_table_with_indexes_is_refused_or_another_valid_table() {
        let bytes = change_bytes(&SchemaChange::CreateTable(indexed()));
        let without = Table { indexes: Default::default(), ..indexed() };
        let first = change_bytes(&SchemaChange::CreateTable(without)).len();
        let (mut refused, mut others) = (0, 0);
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut bad = bytes.clone();
                bad[at] ^= 1 << bit;
                fuzz_schema_change(&bad);
                match encode::read_change(&mut Reader::new(&bad, "schema change")) {
                    Err(_) => refused += 1,
                    Ok(SchemaChange::CreateTable(table)) => {
                        // A boolean before the indexes may have several bytes for true.
                        let is_same = at >= first && table == indexed();
                        assert!(!is_same, "flip at {at} bit {bit} was not seen");
                        others += 1;
                    }
                    Ok(_) => others += 1,
                }
            }
        }
        assert!(refused > 100 && others > 100, "{refused} refused, {others} others");
    }

    /// Entries of every kind about members; joins, a move, a replacement, in a legal order.
    fn life() -> Vec<Transformation> {
        let mut two = member(2, "d", "r", &[100]);
        two.state = MemberState::Joining;
        let mut three = member(3, "d", "r", &[100]);
        three.state = MemberState::Joining;
        three.replaces = Some(host(2));
        let state = |id, state| Transformation::SetState { host: host(id), state };
        let at = |id, port| Address {
            host: host(id),
            storage: format!("127.0.0.1:{port}").parse().unwrap(),
            rpc: "[::1]:9042".parse().unwrap(),
        };
        vec![
            Transformation::Readdress { changes: vec![at(1, 7000)] },
            Transformation::Join { member: Arc::new(two) },
            state(2, MemberState::JoinHandover),
            state(2, MemberState::Normal),
            Transformation::Describe {
                host: host(2),
                shards: 4,
                features: 0,
                release: "5.0.9".to_owned(),
            },
            Transformation::Features { enable: 0 },
            Transformation::SetVoters { hosts: vec![host(2), host(1)] },
            Transformation::Move { host: host(1), tokens: vec![Token(0), Token(7)] },
            state(1, MemberState::MoveHandover),
            state(1, MemberState::Normal),
            Transformation::SetVoters { hosts: vec![host(1)] },
            Transformation::Replace { old: host(2), member: Arc::new(three) },
            state(3, MemberState::JoinHandover),
            state(3, MemberState::Normal),
            state(3, MemberState::Leaving),
            state(3, MemberState::LeaveHandover),
            Transformation::Leave { host: host(3) },
            Transformation::Locate { datacenter: "e".to_owned(), rack: "s".to_owned() },
        ]
    }

    fn framed(entries: &[Transformation]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for entry in entries {
            let mut payload = Vec::new();
            entry.encode(&mut payload);
            assert_eq!(&Transformation::decode(&payload).unwrap(), entry);
            bytes.push(u8::try_from(payload.len()).unwrap());
            bytes.extend_from_slice(&payload);
        }
        bytes
    }

    #[test]
    fn mutated_lives_of_members_never_break_an_invariant() {
        let bytes = framed(&life());
        fuzz_membership(&bytes);
        let mut random = Random(3);
        for _ in 0..20_000 {
            let mut bad = bytes.clone();
            for _ in 0..1 + random.below(4) {
                let at = random.below(bad.len());
                bad[at] = match random.below(3) {
                    0 => random.next() as u8,
                    1 => random.below(8) as u8,
                    _ => bad[at] ^ (1 << random.below(8)),
                };
            }
            fuzz_membership(&bad);
            fuzz_member(&bad[random.below(bad.len())..]);
        }
    }

    #[test]
    fn each_invariant_is_seen_to_break() {
        let joined = |s, id| with(&s, member(id, "d", "r", &[id as i64]));
        let mut snapshot = [2, 3].into_iter().fold(start(), joined);
        assert_eq!(violation(&snapshot), None);
        let good = snapshot.clone();
        let two = Member::clone(&good.members[&host(2)]);
        let table: [(Member, &str); 7] = [
            (Member { host_id: host(9), ..two.clone() }, "a member stands under another id"),
            (
                Member { tokens: vec![Token(5), Token(4)], ..two.clone() },
                "INV-member-1: tokens out of order",
            ),
            (
                Member { state: MemberState::Moving, ..two.clone() },
                "INV-member-2: tokens to move to in a wrong state",
            ),
            (
                Member { replaces: Some(host(1)), ..two.clone() },
                "replaces another one in a wrong state",
            ),
            (
                Member { tokens: vec![Token(3)], ..two.clone() },
                "INV-topology-1: a token is held twice",
            ),
            (
                Member { storage: good.members[&host(3)].storage, ..two.clone() },
                "INV-topology-1: an address is held twice",
            ),
            (
                Member { rpc: good.members[&host(3)].rpc, ..two },
                "INV-topology-1: an address is held twice",
            ),
        ];
        for (bad, what) in table {
            snapshot.members = good.members.clone();
            snapshot.members.insert(host(2), Arc::new(bad));
            assert_eq!(violation(&snapshot), Some(what));
        }
        snapshot.members = good.members.clone();
        snapshot.voters = vec![host(9)];
        assert_eq!(violation(&snapshot), Some("INV-topology-2: a voter is out"));
        snapshot.voters = vec![];
        assert_eq!(violation(&snapshot), Some("nobody votes"));
    }

    fn start() -> ClusterSnapshot {
        let founder = LocalNode {
            host_id: host(1),
            cluster_name: "fuzz".to_owned(),
            datacenter: "d".to_owned(),
            rack: "r".to_owned(),
            tokens: vec![Token(0)],
            created_at: WallMicros(1),
        };
        let first = Transformation::Bootstrap(founder);
        crate::metalog::bootstrap(&first, &Schema::default()).unwrap()
    }

    fn with(snapshot: &ClusterSnapshot, member: Member) -> ClusterSnapshot {
        let mut next = snapshot.clone();
        next.members.insert(member.host_id, Arc::new(member));
        next
    }

    #[test]
    fn a_whole_life_is_taken_entry_by_entry() {
        let mut snapshot = start();
        for entry in life() {
            snapshot = snapshot.apply(&entry).unwrap_or_else(|e| panic!("{entry:?}: {e}"));
            assert_eq!(violation(&snapshot), None);
        }
        assert_eq!(snapshot.epoch, Epoch(1 + life().len() as u64));
    }

    #[test]
    fn shuffled_lives_of_members_never_break_an_invariant() {
        let mut random = Random(4);
        for _ in 0..3_000 {
            let all = life();
            let picked: Vec<_> = (0..40).map(|_| all[random.below(all.len())].clone()).collect();
            fuzz_membership(&framed(&picked));
        }
    }
}
