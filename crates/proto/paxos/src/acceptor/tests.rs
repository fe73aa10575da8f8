use super::cells::{Column, RowError, VALUE_VERSION};
use super::*;
use crate::ballot::{Ballot, Scope};
use crate::value::{Accepted, Commit};
use proptest::prelude::*;
use stdx::WallMicros;

type V = Vec<u8>;

fn b(micros: u64) -> Ballot {
    Ballot::new(micros, Scope::Global, 1)
}

fn admission() -> Admission {
    Admission {
        now: WallMicros(1_000),
        skew_max_micros: 100,
        floor: Ballot::ZERO,
        horizon: Ballot::ZERO,
    }
}

fn prepare(micros: u64, write: bool) -> Request<V> {
    Request::Prepare { ballot: b(micros), write }
}

fn propose(micros: u64) -> Request<V> {
    Request::Propose(Accepted::first(b(micros), Some(vec![1])))
}

fn commit(micros: u64) -> Commit<V> {
    Accepted::first(b(micros), Some(vec![1])).into_commit()
}

fn reply(state: &mut AcceptorState<V>, request: Request<V>) -> Reply<V> {
    state.handle(admission(), request).reply.unwrap()
}

fn rejected(reply: &Reply<V>) -> Option<Rejection> {
    match reply {
        Reply::Rejected { why, .. } => Some(*why),
        _ => None,
    }
}

fn permit(reply: &Reply<V>) -> Permit {
    match reply {
        Reply::Promise(promise) => promise.permit,
        other => panic!("{other:?}"),
    }
}

/// INV-paxos-1.
#[test]
fn an_older_ballot_gets_neither_promise_nor_acceptance() {
    let mut s = AcceptorState::default();
    assert_eq!(permit(&reply(&mut s, prepare(10, true))), Permit::Promised);
    let newer = Some(Rejection::Newer(b(10)));
    assert_eq!(rejected(&reply(&mut s, prepare(9, true))), newer);
    assert_eq!(rejected(&reply(&mut s, propose(9))), newer);
    assert_eq!(reply(&mut s, propose(10)), Reply::Accepted { ballot: b(10) });
    // A prepare of another proposer in the same microsecond.
    let twin = Ballot::new(10, Scope::Global, 2);
    let twin = Request::Prepare { ballot: twin, write: true };
    assert_eq!(rejected(&reply(&mut s, twin)), newer);
    assert_eq!(permit(&reply(&mut s, prepare(11, true))), Permit::Promised);
}

#[test]
fn reads_pass_newer_reads_but_not_newer_writes() {
    let mut s = AcceptorState::default();
    reply(&mut s, prepare(10, true));
    reply(&mut s, prepare(20, false));
    let read_only = Permit::ReadOnly { newest: b(20) };
    assert_eq!(permit(&reply(&mut s, prepare(15, false))), read_only);
    assert_eq!(permit(&reply(&mut s, prepare(15, true))), read_only);
    assert!(rejected(&reply(&mut s, prepare(9, false))).is_some());
    assert!(rejected(&reply(&mut s, propose(15))).is_some());
    assert_eq!((s.promised, s.promised_write), (b(20), b(10)));
}

#[test]
fn a_commit_ends_older_proposals_and_is_taken_in_any_order() {
    let mut s = AcceptorState::default();
    reply(&mut s, propose(10));
    assert!(s.handle(admission(), Request::Commit(commit(20))).record.is_some());
    assert_eq!((s.accepted.clone(), s.promised), (None, b(20)));
    // Late, but its mutation may be missing here; it is recorded once.
    assert!(s.handle(admission(), Request::Commit(commit(15))).record.is_some());
    assert_eq!(s.committed, Some(commit(20)));
    assert!(s.handle(admission(), Request::Commit(commit(20))).record.is_none());
    assert!(s.handle(admission(), propose(20)).record.is_none());
}

#[test]
fn a_refresh_says_whether_the_promise_stands() {
    let mut s = AcceptorState::default();
    reply(&mut s, prepare(20, true));
    let refresh = |micros| Request::Refresh { ballot: b(micros), commit: commit(5) };
    let standing = Reply::Refreshed { ballot: b(20), superseded: None };
    assert_eq!(reply(&mut s, refresh(20)), standing);
    reply(&mut s, prepare(21, false));
    let gone = Reply::Refreshed { ballot: b(20), superseded: Some(b(21)) };
    assert_eq!(reply(&mut s, refresh(20)), gone);
}

#[test]
fn a_ballot_from_the_far_future_and_one_below_the_floor_are_refused() {
    let mut s = AcceptorState::default();
    let too_far = Rejection::TooFarAhead { ahead_micros: 101, max_micros: 100 };
    assert_eq!(rejected(&reply(&mut s, prepare(1_101, true))), Some(too_far));
    assert_eq!(rejected(&reply(&mut s, propose(1_101))), Some(too_far));
    assert_eq!(permit(&reply(&mut s, prepare(1_100, true))), Permit::Promised);
    let mut s = AcceptorState::<V>::default();
    let at_floor = Admission { floor: b(50), ..admission() };
    for request in [prepare(50, true), prepare(50, false), propose(50)] {
        let below = s.handle(at_floor, request).reply.unwrap();
        assert_eq!(rejected(&below), Some(Rejection::Newer(b(50))));
    }
    let above = s.handle(at_floor, prepare(51, true)).reply.unwrap();
    assert_eq!(permit(&above), Permit::Promised);
}

#[test]
fn only_a_settled_row_can_be_dropped() {
    let mut s = AcceptorState::<V>::default();
    reply(&mut s, prepare(10, false));
    assert!(s.is_droppable(b(10)) && !s.is_droppable(b(9)));
    reply(&mut s, prepare(11, true));
    assert!(!s.is_droppable(b(99)), "the promised write may be accepted elsewhere");
    let empty = Accepted::first(b(12), None);
    s.handle(admission(), Request::Propose(empty));
    assert!(!s.is_droppable(b(99)), "the empty proposal may bury another one");
    s.handle(admission(), Request::Commit(commit(13)));
    assert!(!s.is_droppable(b(99)), "a replica may lack the commit");
    assert!(s.handle(admission(), Request::Prune { ballot: b(12) }).record.is_none());
    assert!(s.handle(admission(), Request::Prune { ballot: b(13) }).record.is_some());
    assert!(s.is_droppable(b(13)) && !s.is_droppable(b(12)));
}

fn request(acceptor: &mut Acceptor<V>, to: u64, request: Request<V>) -> Vec<Output<V>> {
    let mut out = Vec::new();
    acceptor.step(admission(), Input::Request { to: ReplyTo(to), request }, &mut out);
    out
}

#[test]
fn no_answer_leaves_before_what_it_shows_is_durable() {
    let mut a = Acceptor::new(AcceptorState::default());
    let out = request(&mut a, 1, prepare(20, false));
    let [Output::Persist { token: first, sync: true, .. }, Output::TakeReadView { .. }] = out[..]
    else {
        panic!("{out:?}")
    };
    // Without a record of its own, but it shows the one before.
    let out = request(&mut a, 2, prepare(15, false));
    assert_eq!(out, [Output::TakeReadView { to: ReplyTo(2) }]);
    // A rejection does not wait.
    request(&mut a, 3, prepare(30, true));
    let out = request(&mut a, 4, prepare(25, true));
    assert!(matches!(out[..], [Output::Reply { to: ReplyTo(4), .. }]));
    let mut out = Vec::new();
    a.step(admission(), Input::Persisted(first), &mut out);
    let to: Vec<_> = out
        .iter()
        .map(|o| match o {
            Output::Reply { to, .. } => to.0,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(to, [1, 2]);
    assert!(!a.is_idle());
    a.step(admission(), Input::PersistFailed, &mut out);
    assert_eq!(request(&mut a, 5, prepare(1, true)), []);
}

#[test]
fn a_full_acceptor_refuses_rounds_and_takes_commits() {
    let mut a = Acceptor::new(AcceptorState::default());
    for n in 0..HELD_MAX as u64 {
        request(&mut a, n, prepare(n / 2 + 1, true));
    }
    let out = request(&mut a, 9_999, prepare(1_000, true));
    let [Output::Reply { reply, .. }] = &out[..] else { panic!("{out:?}") };
    assert_eq!(rejected(reply), Some(Rejection::Overloaded));
    let out = request(&mut a, 10_000, Request::Commit(commit(1_050)));
    assert!(matches!(out[..], [Output::Persist { .. }]));
}

#[test]
fn a_row_of_another_version_or_without_its_parts_is_refused() {
    let record = Record::Accept(Accepted::first(b(7), Some(vec![1, 2])));
    let update = record.to_update();
    assert_eq!(update.timestamp.0, 7);
    let read = |cells: &[(Column, Option<Vec<u8>>)]| {
        AcceptorState::<V>::from_row(|column| {
            cells.iter().find(|(c, _)| *c == column).and_then(|(_, value)| value.as_deref())
        })
    };
    assert_eq!(
        read(&update.cells).unwrap().accepted,
        Some(Accepted::first(b(7), Some(vec![1, 2])))
    );
    let mut other = update.cells.clone();
    other[2].1 = Some((VALUE_VERSION + 1).to_be_bytes().into());
    assert_eq!(
        read(&other),
        Err(RowError::Version { column: "proposal_version", version: VALUE_VERSION + 1 })
    );
    for cut in 0..3 {
        let mut cells = update.cells.clone();
        cells.remove(cut);
        assert_eq!(read(&cells), Err(RowError::Incomplete { column: "proposal" }));
    }
}

fn any_record() -> impl Strategy<Value = Record<V>> {
    (0..4u8, 1..30u64, 0..3u8).prop_map(|(kind, micros, value)| {
        let ballot = b(micros);
        let accepted = Accepted::first(ballot, (value > 0).then(|| vec![micros as u8]));
        match kind {
            0 => Record::Promise { ballot, write: value > 1 },
            1 => Record::Accept(accepted),
            2 => Record::Commit(commit(micros)),
            _ => Record::Promise { ballot, write: false },
        }
    })
}

proptest! {
    #[test]
    fn records_fold_to_the_same_registers_in_any_order(
        records in prop::collection::vec(any_record(), 0..12), by in 0..12usize,
    ) {
        // One ballot proposes one value.
        let mut records = records;
        let mut seen = Vec::new();
        records.retain(|r| match r {
            Record::Accept(a) => !seen.contains(&a.ballot) && { seen.push(a.ballot); true },
            _ => true,
        });
        let fold = |records: &[Record<V>]| {
            let mut s = AcceptorState::default();
            records.iter().for_each(|r| s.apply(r.clone()));
            s
        };
        let once = fold(&records);
        let by = by.min(records.len());
        records.rotate_left(by);
        prop_assert_eq!(&fold(&records), &once);
        records.reverse();
        prop_assert_eq!(fold(&records), once);
    }
}

fn conclude(micros: u64) -> Request<V> {
    Request::Conclude(Accepted::first(b(micros), Some(vec![1])))
}

#[test]
fn a_conclusion_is_a_vote_and_its_commit_in_one_record() {
    let mut s = AcceptorState::default();
    reply(&mut s, prepare(10, true));
    assert_eq!(rejected(&reply(&mut s, conclude(9))), Some(Rejection::Newer(b(10))));
    assert_eq!(s.committed, None, "nothing is committed without the vote");
    let step = s.handle(admission(), conclude(10));
    assert_eq!(step.reply, Some(Reply::Committed { ballot: b(10) }));
    assert_eq!(step.record, Some(Record::Commit(commit(10))));
    assert_eq!((s.accepted.clone(), s.committed.clone()), (None, Some(commit(10))));
    // The same message again; a proposal of that round is answered too.
    assert_eq!(s.handle(admission(), conclude(10)).record, None);
    assert_eq!(reply(&mut s, propose(10)), Reply::Accepted { ballot: b(10) });
    // A value accepted in time counts, whatever was promised since.
    let mut s = AcceptorState::default();
    reply(&mut s, propose(20));
    reply(&mut s, prepare(30, true));
    assert_eq!(reply(&mut s, conclude(20)), Reply::Committed { ballot: b(20) });
    assert_eq!(rejected(&reply(&mut s, conclude(25))), Some(Rejection::Newer(b(30))));
    let below = Admission { floor: b(40), ..admission() };
    let refused = s.handle(below, conclude(40)).reply.unwrap();
    assert_eq!(rejected(&refused), Some(Rejection::Newer(b(40))));
}

#[test]
fn registers_taken_over_are_durable_before_it_is_said() {
    let mut a = Acceptor::new(AcceptorState::default());
    request(&mut a, 1, prepare(20, true));
    let theirs = AcceptorState {
        promised: b(30),
        promised_write: b(15),
        accepted: Some(Accepted::first(b(12), Some(vec![1]))),
        committed: Some(commit(5)),
    };
    let mut out = Vec::new();
    a.step(admission(), Input::Adopt { to: ReplyTo(2), state: theirs.clone() }, &mut out);
    let tokens: Vec<Token> = out
        .iter()
        .map(|o| match o {
            Output::Persist { token, sync: true, .. } => *token,
            other => panic!("an answer before its records: {other:?}"),
        })
        .collect();
    let s = a.state();
    assert_eq!((s.promised, s.promised_write), (b(30), b(20)));
    assert_eq!(
        (s.accepted.as_ref(), s.committed.as_ref()),
        (theirs.accepted.as_ref(), theirs.committed.as_ref())
    );
    out.clear();
    a.step(admission(), Input::Persisted(*tokens.last().unwrap()), &mut out);
    let last = Output::Reply { to: ReplyTo(2), reply: Reply::Committed { ballot: b(30) } };
    assert_eq!(out.last(), Some(&last));
    assert!(a.is_idle());
}

#[test]
fn promises_up_to_the_horizon_need_no_record_and_commits_settle_them() {
    let within = Admission { horizon: b(30), ..admission() };
    let mut a = Acceptor::new(AcceptorState::default());
    let mut out = Vec::new();
    let mut ask = |a: &mut Acceptor<V>, request| {
        out.clear();
        a.step(within, Input::Request { to: ReplyTo(1), request }, &mut out);
        std::mem::take(&mut out)
    };
    let promise = |micros, write| Record::Promise { ballot: b(micros), write };
    // Answered at once.
    let outputs = ask(&mut a, prepare(20, true));
    assert!(matches!(outputs[..], [Output::TakeReadView { .. }, Output::Reply { .. }]));
    ask(&mut a, prepare(21, false));
    assert!(a.is_idle() && a.has_unwritten());
    let unwritten: Vec<_> = a.unwritten().collect();
    assert_eq!(unwritten, [promise(20, true), promise(21, false)]);
    // An acceptance shows the promise to a read, but not the one to a write.
    ask(&mut a, propose(21));
    assert_eq!(a.unwritten().collect::<Vec<_>>(), [promise(20, true)]);
    // The answer waits for records before it.
    assert!(matches!(ask(&mut a, prepare(22, true))[..], [Output::TakeReadView { .. }]));
    ask(&mut a, Request::Commit(commit(21)));
    assert_eq!(a.unwritten().collect::<Vec<_>>(), [promise(22, true)]);
    ask(&mut a, conclude(22));
    assert!(!a.has_unwritten());
    // Beyond the horizon there is a record, which shows what is older.
    ask(&mut a, prepare(30, true));
    let outputs = ask(&mut a, prepare(31, true));
    assert!(matches!(outputs[..], [Output::Persist { .. }, Output::TakeReadView { .. }]));
    assert!(!a.has_unwritten());
    // Written once, nothing is left.
    ask(&mut a, prepare(40, true));
    let mut a = Acceptor::new(AcceptorState::default());
    ask(&mut a, prepare(25, true));
    a.written();
    assert!(!a.has_unwritten());
}

#[test]
fn a_start_that_forgot_promises_has_given_all_of_them() {
    let mut s = AcceptorState::default();
    reply(&mut s, propose(10));
    let accepted = s.accepted.clone();
    let mut s = s.promised_to_all(b(30));
    assert_eq!((s.promised, s.promised_write, &s.accepted), (b(30), b(30), &accepted));
    assert_eq!(rejected(&reply(&mut s, prepare(29, true))), Some(Rejection::Newer(b(30))));
    assert_eq!(rejected(&reply(&mut s, propose(20))), Some(Rejection::Newer(b(30))));
    // It may still commit the value that it accepted.
    assert_eq!(reply(&mut s, conclude(10)), Reply::Committed { ballot: b(10) });
    let Reply::Promise(promise) = reply(&mut s, prepare(31, false)) else { panic!() };
    assert_eq!(promise.promised_write, b(30), "a read finds that a write may be on its way");
    // Nothing goes back.
    assert_eq!(s.clone().promised_to_all(b(25)), s);
}
