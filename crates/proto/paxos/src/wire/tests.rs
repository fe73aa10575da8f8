use super::*;
use crate::ballot::Scope;
use crate::fuzz::fuzz_paxos_message;

fn b(micros: u64) -> Ballot {
    Ballot::new(micros, Scope::Global, 0x8000_0000_0000_0007)
}

fn messages() -> Vec<Message<Vec<u8>>> {
    let commit = |value: Option<&[u8]>| Commit {
        ballot: b(3),
        origin: b(2),
        value: value.map(<[u8]>::to_vec),
    };
    let accepted = |value: Option<&[u8]>| Accepted {
        ballot: b(5),
        origin: b(4),
        value: value.map(<[u8]>::to_vec),
    };
    let host = |n: u8| HostId(Uuid::from_bytes([n; 16]));
    let requests = [
        (Request::Prepare { ballot: b(1), write: true }, b"read".to_vec()),
        (Request::Prepare { ballot: b(1), write: false }, Vec::new()),
        (Request::Propose(accepted(Some(b"mutation"))), Vec::new()),
        (Request::Propose(accepted(None)), Vec::new()),
        (Request::Commit(commit(Some(b"mutation"))), Vec::new()),
        (Request::Refresh { ballot: b(9), commit: commit(None) }, Vec::new()),
        (Request::Prune { ballot: b(3) }, Vec::new()),
    ];
    let all = requests.into_iter().map(|(request, read)| Message {
        table: TableId(Uuid::from_u128(7)),
        key: b"key".to_vec(),
        epoch: Epoch(12),
        electorate: Electorate {
            natural: [host(1), host(2), host(3)].into_iter().collect(),
            pending: [host(4)].into_iter().collect(),
        },
        request,
        read,
    });
    all.collect()
}

fn answers() -> Vec<Answer<Vec<u8>>> {
    let value = Some(b"mutation".to_vec());
    let full = Promise {
        ballot: b(9),
        permit: Permit::ReadOnly { newest: b(11) },
        accepted: Some(Accepted { ballot: b(5), origin: b(4), value: value.clone() }),
        committed: Some(Commit { ballot: b(3), origin: b(3), value }),
        promised_write: b(8),
    };
    let empty = Promise {
        ballot: b(9),
        permit: Permit::Promised,
        accepted: None,
        committed: None,
        promised_write: Ballot::ZERO,
    };
    let rejected = |why| Reply::Rejected { ballot: b(1), why };
    let replies = [
        Reply::Promise(full),
        Reply::Promise(empty),
        Reply::Accepted { ballot: b(1) },
        Reply::Committed { ballot: b(1) },
        Reply::Refreshed { ballot: b(1), superseded: None },
        Reply::Refreshed { ballot: b(1), superseded: Some(b(2)) },
        rejected(Rejection::Newer(b(2))),
        rejected(Rejection::TooFarAhead { ahead_micros: 5, max_micros: 4 }),
        rejected(Rejection::Overloaded),
    ];
    let mut all: Vec<_> =
        replies.into_iter().map(|reply| Answer::Reply { reply, page: b"page".to_vec() }).collect();
    all.push(Answer::WrongEpoch { ballot: b(1), epoch: Epoch(3) });
    all
}

#[test]
fn all_messages_and_answers_come_back() {
    for message in messages() {
        let mut out = Vec::new();
        message.encode(&mut out);
        assert_eq!(Message::decode(&out), Ok(message));
    }
    for answer in answers() {
        let mut out = Vec::new();
        answer.encode(&mut out);
        assert_eq!(Answer::decode(&out), Ok(answer));
    }
}

#[test]
fn an_electorate_is_compared_as_a_set() {
    let host = |n: u8| HostId(Uuid::from_bytes([n; 16]));
    let of = |natural: &[u8], pending: &[u8]| Electorate {
        natural: natural.iter().map(|n| host(*n)).collect(),
        pending: pending.iter().map(|n| host(*n)).collect(),
    };
    assert!(of(&[1, 2, 3], &[4]).is_same(&of(&[3, 1, 2], &[4])));
    assert!(!of(&[1, 2, 3], &[4]).is_same(&of(&[1, 2, 4], &[3])));
    assert!(!of(&[1, 2, 3], &[]).is_same(&of(&[1, 2], &[])));
}

#[test]
fn no_bytes_make_decoding_panic() {
    let mut seeds: Vec<Vec<u8>> = Vec::new();
    for message in messages() {
        let mut out = vec![0];
        message.encode(&mut out);
        seeds.push(out);
    }
    for answer in answers() {
        let mut out = vec![1];
        answer.encode(&mut out);
        seeds.push(out);
    }
    let mut accepted = 0;
    testkit::Mutations::of(seeds).rounds(20_000).edits(1).run(|data| {
        accepted += usize::from(fuzz_paxos_message_accepts(data));
    });
    assert!(accepted > 5_000, "{accepted}: most inputs should be near to valid ones");
}

fn fuzz_paxos_message_accepts(data: &[u8]) -> bool {
    fuzz_paxos_message(data);
    match data.split_first() {
        Some((tag, rest)) if tag & 1 == 0 => Message::<Vec<u8>>::decode(rest).is_ok(),
        Some((_, rest)) => Answer::<Vec<u8>>::decode(rest).is_ok(),
        None => false,
    }
}

#[test]
fn prunes_read_back_up_to_their_bound_and_damaged_ones_are_refused() {
    let ballot = |n| Ballot::new(n, Scope::Global, 7);
    let table = TableId(Uuid::from_u128(3));
    let mut prunes = Prunes::default();
    assert!(prunes.is_empty() && Prunes::decode(prunes.as_bytes()).is_err());
    prunes.push(table, b"key", ballot(5));
    prunes.push(table, b"", ballot(6));
    let bytes = prunes.as_bytes().to_vec();
    assert_eq!(
        Prunes::decode(&bytes).unwrap(),
        [
            Prune { table, key: b"key", ballot: ballot(5) },
            Prune { table, key: b"", ballot: ballot(6) }
        ]
    );
    let whole = 1 + 16 + 2 + 3 + 16;
    for cut in (0..bytes.len()).filter(|cut| *cut != whole) {
        assert!(Prunes::decode(&bytes[..cut]).is_err(), "{cut}");
    }
    let mut other = bytes.clone();
    other[0] = VERSION + 1;
    assert!(Prunes::decode(&other).is_err());
    for _ in 2..PRUNES_MAX {
        prunes.push(table, b"k", ballot(7));
    }
    assert_eq!(Prunes::decode(prunes.as_bytes()).unwrap().len(), PRUNES_MAX);
    prunes.push(table, b"k", ballot(7));
    assert!(Prunes::decode(prunes.as_bytes()).is_err());
}
