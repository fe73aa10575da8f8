//! Placements as text: members and a replication in, every range with its replicas out (`testdata/placement`).

use std::fmt::Write as _;

use stdx::{Epoch, HostId, Token};
use testkit::cases::{Case, check};

use super::{Placements, Replicas};
use crate::Members;
use crate::member::{Member, MemberState};
use crate::place_history::PlaceHistory;
use crate::ranges::TokenRange;
use crate::replication::Replication;
use crate::testing::{host, member, members};

/// `3`, `dc1:2,dc2:1` or `local`.
fn replication(text: &str) -> Replication {
    if text == "local" {
        return Replication::Local;
    }
    match text.parse() {
        Ok(factor) => Replication::Simple(factor),
        Err(_) => {
            let factors = text.split(',').map(|part| part.split_once(':').expect("name:factor"));
            let factors = factors.map(|(name, n)| (name.to_owned(), n.parse().expect("a factor")));
            Replication::Network(factors.collect())
        }
    }
}

fn tokens(text: &str) -> Vec<Token> {
    let tokens = text.split(',').filter(|t| *t != "-");
    tokens.map(|t| Token(t.parse().expect("a token"))).collect()
}

/// `1 dc1/r1 0,100 [joining | … | moving to=50] [replaces=2]`.
fn member_of(line: &str) -> Member {
    let mut words = line.split_whitespace();
    let mut word = || words.next().expect("id, place, tokens");
    let (id, place, owned) = (word(), word(), word());
    let (datacenter, rack) = place.split_once('/').expect("datacenter/rack");
    let mut member = member(id.parse().expect("an id"), datacenter, rack, &[]);
    member.tokens = tokens(owned);
    for word in words {
        match word.split_once('=') {
            Some(("to", to)) => member.moving_to = tokens(to),
            Some(("replaces", old)) => member.replaces = Some(host(old.parse().expect("an id"))),
            _ => {
                member.state = match word {
                    "joining" => MemberState::Joining,
                    "join_handover" => MemberState::JoinHandover,
                    "leaving" => MemberState::Leaving,
                    "leave_handover" => MemberState::LeaveHandover,
                    "moving" => MemberState::Moving,
                    "move_handover" => MemberState::MoveHandover,
                    other => panic!("unknown word {other}"),
                }
            }
        }
    }
    member
}

/// The members after each epoch: `@5` begins one, lines change members, `-3` removes one.
fn history_of(case: &Case) -> (Members, PlaceHistory) {
    let mut current = Members::default();
    let mut history: Option<PlaceHistory> = None;
    let mut before = Members::default();
    let mut epoch = Epoch(1);
    let close = |history: &mut Option<PlaceHistory>, epoch, before: &Members, after: &Members| {
        match history {
            Some(history) => history.follow(epoch, before, after),
            None => *history = Some(PlaceHistory::since(epoch)),
        }
    };
    for line in case.input.lines() {
        if let Some(number) = line.strip_prefix('@') {
            if !current.is_empty() {
                close(&mut history, epoch, &before, &current);
                before = current.clone();
            }
            epoch = Epoch(number.parse().expect("an epoch"));
        } else if let Some(id) = line.strip_prefix('-') {
            current.remove(&host(id.parse().expect("an id")));
        } else {
            current.extend(members([member_of(line)]));
        }
    }
    close(&mut history, epoch, &before, &current);
    (current, history.expect("one epoch"))
}

fn id(host: HostId) -> u128 {
    host.0.as_u128()
}

fn replicas_text(replicas: Replicas<'_>) -> String {
    let list = |all: &mut dyn Iterator<Item = HostId>| {
        all.map(|host| id(host).to_string()).collect::<Vec<_>>().join(" ")
    };
    let mut text = list(&mut replicas.natural().map(|m| m.host_id));
    if text.is_empty() {
        text.push_str("no replica");
    }
    if replicas.pending_len() > 0 {
        let _ = write!(text, "  pending {}", list(&mut replicas.pending().map(|m| m.host_id)));
    }
    if replicas.is_moving() {
        let moving = (0..replicas.len()).filter(|at| replicas.moves(*at));
        let moving = moving.filter_map(|at| replicas.get(at)).map(|m| m.host_id);
        let _ = write!(text, "  moving {}", list(&mut moving.into_iter()));
    }
    text
}

/// All that must hold of any table.
fn check_table(case: &Case, table: &Placements) {
    let ranges: Vec<(TokenRange, Replicas<'_>)> = table.ranges().collect();
    for (n, (range, replicas)) in ranges.iter().enumerate() {
        // INV-placement-1: each range begins where the one before it ends.
        let before = ranges[(n + ranges.len() - 1) % ranges.len()].0;
        assert_eq!(range.start, before.end, "{}: gap before {range:?}", case.place);
        // INV-placement-2: no node stands twice.
        let mut hosts: Vec<HostId> = replicas.members().map(|m| m.host_id).collect();
        hosts.sort_unstable();
        hosts.dedup();
        assert_eq!(hosts.len(), replicas.len(), "{}: {range:?}", case.place);
        // INV-placement-4: a pending replica moves.
        let pending = replicas.natural_len()..replicas.len();
        assert!(pending.into_iter().all(|at| replicas.moves(at)), "{}: {range:?}", case.place);
    }
}

fn table_text(table: &Placements, dated: bool) -> String {
    let mut out = String::new();
    for (range, replicas) in table.ranges() {
        let _ = write!(out, "({}, {}] {}", range.start.0, range.end.0, replicas_text(replicas));
        if dated {
            let moved = table.moved(range.end);
            let _ = write!(out, "  moved {} before {}", moved.at.0, moved.before.0);
        }
        out.push('\n');
    }
    if out.is_empty() { "no range\n".to_owned() } else { out }
}

fn run(case: &Case) -> String {
    let of = |name: &str| replication(case.value(name).expect("a replication"));
    match case.command.as_str() {
        "table" => {
            let (members, _) = history_of(case);
            let table = Placements::build(&members, &of("rf"));
            check_table(case, &table);
            table_text(&table, false)
        }
        "token" => {
            let (members, _) = history_of(case);
            let table = Placements::build(&members, &of("rf"));
            let tokens = tokens(case.value("of").expect("tokens"));
            let text = |token: Token| {
                let (range, replicas) = (table.range_of(token), table.replicas(token));
                let replicas = replicas_text(replicas);
                format!("{}: ({}, {}] {replicas}\n", token.0, range.start.0, range.end.0)
            };
            tokens.into_iter().map(text).collect()
        }
        "dated" => {
            let (members, history) = history_of(case);
            let table = Placements::build(&members, &of("rf")).dated(&history, None);
            check_table(case, &table);
            table_text(&table, true)
        }
        "altered" => {
            let (members, _) = history_of(case);
            let (first, second) = (of("from"), of("to"));
            let first = Placements::build(&members, &first);
            let second = Placements::build(&members, &second);
            table_text(&Placements::joined(&first, &second), false)
        }
        other => panic!("{}: unknown command {other}", case.place),
    }
}

#[test]
fn cases_of_placement() {
    check(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/placement"), || run);
}
