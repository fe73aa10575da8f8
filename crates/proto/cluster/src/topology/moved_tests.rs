//! Which senders a replica accepts by the numbers of a range, while several members move.

use std::sync::Arc;

use schema::{KeyspaceParams, SchemaChange};
use stdx::{Epoch, HostId, Token};

use super::quorum_tests::overlap_of;
use super::tests::{alone, state};
use crate::levels::Levels;
use crate::member::{Member, MemberState as S};
use crate::metalog::Transformation as T;
use crate::placement::Placements;
use crate::replication::{Consistency, Replication, replication_of_params};
use crate::snapshot::ClusterSnapshot;
use crate::testing::{Random, host, member, random_members};

/// A log in which members move side by side.
struct Log {
    random: Random,
    steps: Vec<ClusterSnapshot>,
    /// The remaining steps of each movement.
    movements: Vec<(HostId, Vec<T>)>,
    next_id: u128,
    params: KeyspaceParams,
}

impl Log {
    fn new(seed: u64) -> Log {
        let mut random = Random(seed);
        let count = 4 + random.below(6);
        let mut base = alone();
        base.members = random_members(&mut random, count, 4);
        // None of the members votes, so that every member may leave.
        base.voters = vec![host(999)];
        let factor = 1 + random.below(4);
        let map: &[(&str, usize)] = match random.below(2) {
            0 => &[("class", 0), ("replication_factor", factor)],
            _ => &[("class", 1), ("dc0", factor), ("dc1", 2), ("dc2", 1)],
        };
        let classes = ["SimpleStrategy", "NetworkTopologyStrategy"];
        let text = |(key, value): &(&str, usize)| match *key {
            "class" => ("class".to_owned(), classes[*value].to_owned()),
            key => (key.to_owned(), value.to_string()),
        };
        let params =
            KeyspaceParams { durable_writes: true, replication: map.iter().map(text).collect() };
        let name = "k".into();
        let change = SchemaChange::CreateKeyspace { name, params: params.clone() };
        let steps = vec![base.apply(&T::Schema(Box::new(change))).unwrap()];
        Log { random, steps, movements: Vec::new(), next_id: 100, params }
    }

    fn last(&self) -> &ClusterSnapshot {
        self.steps.last().unwrap()
    }

    fn append(&mut self, entry: &T) {
        let next = self.last().apply(entry);
        self.steps.push(next.unwrap_or_else(|error| panic!("{entry:?}: {error}")));
    }

    /// Begins a movement, unless it overlaps another one.
    fn begin(&mut self) {
        let now = self.last().clone();
        let chosen = self.random.below(now.members.len());
        let old = now.members.values().nth(chosen).unwrap().clone();
        if old.state != S::Normal {
            return;
        }
        let newcomer = host(self.next_id);
        let fresh = |random: &mut Random| {
            let mut tokens: Vec<Token> =
                (0..1 + random.below(3)).map(|_| Token(random.next() as i64)).collect();
            tokens.sort_unstable();
            tokens
        };
        let joining = |tokens: Vec<Token>| Member {
            state: S::Joining,
            tokens,
            ..member(newcomer.0.as_u128(), &old.datacenter, &old.rack, &[])
        };
        let set = |host: HostId, state| T::SetState { host, state };
        let (mover, entries) = match self.random.below(4) {
            0 => {
                let member = Arc::new(joining(fresh(&mut self.random)));
                (newcomer, vec![T::Join { member }, set(newcomer, S::JoinHandover)])
            }
            1 => {
                let replaces = Some(old.host_id);
                let member = Arc::new(Member { replaces, ..joining(old.tokens.clone()) });
                let replace = T::Replace { old: old.host_id, member };
                (newcomer, vec![replace, set(newcomer, S::JoinHandover)])
            }
            2 => {
                let steps = [S::Leaving, S::LeaveHandover];
                (old.host_id, steps.map(|step| set(old.host_id, step)).to_vec())
            }
            _ => {
                let tokens = fresh(&mut self.random);
                let begin = T::Move { host: old.host_id, tokens };
                (old.host_id, vec![begin, set(old.host_id, S::MoveHandover)])
            }
        };
        let end = match entries.last() {
            Some(T::SetState { state: S::LeaveHandover, .. }) => T::Leave { host: mover },
            _ => set(mover, S::Normal),
        };
        let Some((first, rest)) = entries.split_first() else { return };
        // Not before the log has what it is made from: two of one range are refused.
        let Ok(next) = now.apply(first) else { return };
        self.steps.push(next);
        self.next_id += 1;
        self.movements.push((mover, rest.iter().cloned().chain([end]).collect()));
    }

    /// Something happens.
    fn go_on(&mut self) {
        let moving = self.movements.len();
        match self.random.below(10) {
            0..4 => self.begin(),
            4..8 if moving > 0 => {
                let at = self.random.below(moving);
                let entry = self.movements[at].1.remove(0);
                self.append(&entry);
                self.movements.retain(|(_, rest)| !rest.is_empty());
            }
            // It is aborted before its ring is used for reads.
            8 if moving > 0 => {
                let at = self.random.below(moving);
                if self.movements[at].1.len() < 2 {
                    return;
                }
                let (mover, _) = self.movements.remove(at);
                let entry = match self.last().members[&mover].state {
                    S::Joining => T::Leave { host: mover },
                    _ => T::SetState { host: mover, state: S::Normal },
                };
                self.append(&entry);
            }
            _ => self.append(&T::Features { enable: 0 }),
        }
    }
}

/// Faults that make the numbers of a table wrong.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    Nothing,
    /// A change of places is not noted.
    ForgetsAStep,
    /// A sender may lack two changes of a range.
    AcceptsOneMore,
}

#[derive(Default)]
struct Found {
    /// Senders that the last two changes anywhere on the ring would have refused.
    accepted_more: usize,
    refused: usize,
    /// Reads and writes whose quorums need not meet.
    lost: usize,
    /// Senders that were taken for up to date and were not.
    mistaken: usize,
}

/// Every sender against every later replica, token by token.
fn check(seed: u64, fault: Fault, found: &mut Found) {
    let mut log = Log::new(seed);
    for _ in 0..40 {
        log.go_on();
    }
    let replication = replication_of_params(&log.params);
    // A node looks often, or so seldom that not all steps are kept.
    let mut known: [Option<Placements>; 2] = [None, None];
    let mut tables: Vec<Vec<Placements>> = Vec::new();
    for snapshot in &log.steps {
        let plain = snapshot.placements(&replication);
        let mut all = vec![plain.clone().dated(&snapshot.places, None)];
        for (known, seldom) in known.iter_mut().zip([1, 15]) {
            if log.random.below(seldom) == 0 {
                let next = plain.clone().dated(&snapshot.places, known.as_ref());
                *known = Some(next.clone());
                all.push(next);
            }
        }
        tables.push(all);
    }
    let tokens: Vec<Token> = {
        let ends: Vec<Token> = tables.iter().flat_map(|t| t[0].ends().to_vec()).collect();
        let random = &mut log.random;
        let at_end = (0..8).map(|_| ends[random.below(ends.len())]).collect::<Vec<_>>();
        at_end.into_iter().chain((0..4).map(|_| Token(random.next() as i64))).collect()
    };
    let levels = Levels { replication: &replication, local_datacenter: "dc0" };
    for (at, snapshot) in log.steps.iter().enumerate() {
        for (table, token) in tables[at].iter().flat_map(|t| tokens.iter().map(move |k| (t, *k))) {
            let moved = match fault {
                Fault::ForgetsAStep => tables[at.saturating_sub(1)][0].moved(token),
                _ => table.moved(token),
            };
            let least = match fault {
                Fault::AcceptsOneMore => {
                    let earlier = log.steps.iter().rposition(|s| s.epoch < moved.before);
                    earlier.map_or(Epoch(0), |at| tables[at][0].moved(token).at)
                }
                _ => moved.before,
            };
            let replicas = table.replicas(token);
            for (sender, theirs) in log.steps.iter().zip(&tables).take(at + 1) {
                let theirs = theirs[0].replicas(token);
                let is_same = theirs.same_as(replicas);
                found.mistaken += usize::from(sender.epoch >= moved.at && !is_same);
                if sender.epoch < least {
                    found.refused += 1;
                    continue;
                }
                let steps = snapshot.places.steps().iter().rev();
                let anywhere = steps.map(|step| step.epoch).nth(1);
                found.accepted_more += usize::from(anywhere.is_some_and(|e| sender.epoch < e));
                for level in [Consistency::Quorum, Consistency::LocalQuorum] {
                    let (ours, theirs) = (replicas, theirs);
                    let meets = overlap_of(theirs, ours, &levels, level) > 0
                        && overlap_of(ours, theirs, &levels, level) > 0;
                    found.lost += usize::from(!meets);
                }
            }
        }
    }
}

fn all(fault: Fault) -> Found {
    let mut found = Found::default();
    for seed in 0..100 {
        let before = (found.lost, found.mistaken);
        check(seed, fault, &mut found);
        if fault == Fault::Nothing {
            assert_eq!((found.lost, found.mistaken), before, "seed {seed}");
        }
    }
    found
}

/// INV-placement-5, INV-place-history-1.
#[test]
fn who_a_range_accepts_loses_no_write_whatever_moves_elsewhere() {
    let found = all(Fault::Nothing);
    assert!(found.accepted_more > 10_000 && found.refused > 10_000, "{}", found.accepted_more);
    // The check can fail.
    let forgetful = all(Fault::ForgetsAStep);
    assert!(forgetful.mistaken > 100 && forgetful.lost > 10, "{}", forgetful.lost);
    assert!(all(Fault::AcceptsOneMore).lost > 100);
}

#[test]
fn numbers_that_follow_a_known_table_are_no_larger_than_those_of_the_kept_steps() {
    let (mut exact, mut rounded) = (0, 0);
    for seed in 100..130 {
        let mut log = Log::new(seed);
        for _ in 0..40 {
            log.go_on();
        }
        let replication = replication_of_params(&log.params);
        let mut known: Option<Placements> = None;
        for snapshot in &log.steps {
            let plain = snapshot.placements(&replication);
            let followed = plain.clone().dated(&snapshot.places, known.as_ref());
            let alone = plain.dated(&snapshot.places, None);
            for token in (0..20).map(|_| Token(log.random.next() as i64)) {
                let (f, a) = (followed.moved(token), alone.moved(token));
                assert!(f.at <= a.at && f.before <= a.before, "{f:?} {a:?}");
                assert!(f.before <= f.at && a.at <= snapshot.places.last(), "{f:?} {a:?}");
                exact += usize::from(f == a);
                rounded += usize::from(f != a);
            }
            known = Some(followed);
        }
    }
    assert!(exact > 1_000 && rounded > 1_000, "{exact} {rounded}");
}

#[test]
fn a_range_that_did_not_move_keeps_its_number() {
    let mut snapshot = alone();
    snapshot.members = crate::testing::members([
        member(1, "d", "r", &[0]),
        member(2, "d", "r", &[1_000]),
        member(3, "d", "r", &[2_000]),
    ]);
    let replication = Replication::Simple(1);
    let dated = |s: &ClusterSnapshot| s.placements(&replication).dated(&s.places, None);
    let newcomer = Member { state: S::Joining, ..member(4, "d", "r", &[500]) };
    let begun = snapshot.apply(&T::Join { member: Arc::new(newcomer) }).unwrap();
    let read = begun.apply(&T::Features { enable: 0 }).unwrap();
    let read = read.apply(&state(4, S::JoinHandover)).unwrap();
    let number = |s: &ClusterSnapshot, token: i64| {
        let moved = dated(s).moved(Token(token));
        (moved.at.0, moved.before.0)
    };
    assert_eq!([100, 700, 1_500].map(|t| number(&begun, t)), [(2, 1), (1, 0), (1, 0)]);
    assert_eq!([100, 700, 1_500].map(|t| number(&read, t)), [(4, 2), (1, 0), (1, 0)]);
    assert_eq!((read.places.last(), snapshot.places.last()), (Epoch(4), Epoch(1)));
    // Where the newcomer's token was, two ranges are one again.
    let gone = begun.apply(&T::Leave { host: host(4) }).unwrap();
    assert_eq!([100, 700, 1_500].map(|t| number(&gone, t)), [(3, 2), (3, 2), (1, 0)]);
    let undated = read.placements(&replication);
    assert_eq!(undated.moved(Token(1)), crate::Moved::UNKNOWN);
}
