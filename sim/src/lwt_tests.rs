//! Good histories pass; each way to spoil them is noticed.

use super::*;

fn call(start: u64, end: u64, request: Request, seen: Seen) -> Call<Operation> {
    let end = if seen == Seen::Unknown { End::Unknown } else { End::Known(end) };
    Call { start, end, operation: Operation { node: 0, request, seen } }
}

fn part(fixed: Option<i64>, rows: [Option<i64>; ROWS]) -> Part {
    Part { fixed, rows }
}

/// Every kind of request and of answer, one after the other.
fn good() -> Vec<Call<Operation>> {
    let insert = |new| Request::Insert { row: 0, new };
    let update = |expect, new| Request::Update { row: 0, expect, new };
    let read = |fixed, row| Seen::Read(part(fixed, [row, None, None]));
    let batch = |expect, new| Request::Batch { expect, row: 1, new };
    vec![
        call(0, 5, Request::Read, read(None, None)),
        call(10, 15, insert(1), Seen::Applied),
        call(20, 25, insert(2), Seen::NotWith(Some(1))),
        call(30, 35, update(1, 3), Seen::Applied),
        call(40, 45, update(1, 4), Seen::NotWith(Some(3))),
        call(50, 55, Request::Read, read(None, Some(3))),
        call(60, 65, Request::Static { expect: None, new: 5 }, Seen::Applied),
        call(70, 75, Request::Static { expect: None, new: 6 }, Seen::NotWith(Some(5))),
        call(80, 85, update(3, 7), Seen::Unknown),
        call(90, 95, Request::Read, read(Some(5), Some(7))),
        call(100, 105, batch(None, 8), Seen::Not),
        call(110, 115, batch(Some(5), 9), Seen::Applied),
        call(120, 125, Request::Read, Seen::Read(part(Some(9), [Some(7), Some(9), None]))),
        call(130, 135, Request::Delete { row: 0 }, Seen::Applied),
        call(140, 145, Request::Delete { row: 0 }, Seen::Not),
        call(150, 155, Request::Read, Seen::Read(part(Some(9), [None, Some(9), None]))),
    ]
}

fn verdict(calls: Vec<Call<Operation>>) -> Verdict {
    linearizable(&Transactions::of(&calls))
}

#[test]
fn a_right_history_is_linearizable() {
    assert_eq!(verdict(good()), Ok(()));
}

#[test]
fn every_answer_that_is_changed_is_noticed() {
    let (mut noticed, mut unchanged) = (0, 0);
    for n in 0.. {
        let Some(spoilt) = corrupted(&good(), n) else { break };
        let at = n / 2;
        if spoilt[at].operation == good()[at].operation {
            unchanged += 1;
            continue;
        }
        let error = verdict(spoilt).expect_err(&format!("way {n}: {:?}", good()[at]));
        assert!(error.contains("not linearizable"), "{error}");
        noticed += 1;
    }
    assert!(noticed >= 16 && unchanged <= 16, "{noticed} {unchanged}");
}

#[test]
fn an_acknowledged_one_that_is_lost_and_one_that_comes_late_are_noticed() {
    for lost in [1, 3, 6, 11, 13] {
        let mut calls = good();
        calls.remove(lost);
        assert!(verdict(calls).is_err(), "without operation {lost}");
    }
    // Refused, and yet there.
    let mut calls = good();
    calls[1].operation.seen = Seen::Refused;
    assert!(verdict(calls).is_err());
    // A read that began after the end of a write and does not see it.
    let mut calls = good();
    calls[5].operation.seen = Seen::Read(part(None, [Some(1), None, None]));
    assert!(verdict(calls).is_err());
}

#[test]
fn answers_are_taken_for_what_they_are() {
    let int = |v: i32| Some(v.to_be_bytes().to_vec());
    let long = |v: i64| Some(v.to_be_bytes().to_vec());
    let (yes, no) = (Some(vec![1]), Some(vec![0]));
    let rows = [vec![int(0), long(4), long(5)], vec![int(2), long(4), long(6)]];
    let all = part(Some(4), [Some(5), None, Some(6)]);
    assert_eq!(seen(Request::Read, &rows), Some(Seen::Read(all)));
    let only_static = [vec![None, long(4), None]];
    let fixed = part(Some(4), [None; ROWS]);
    assert_eq!(seen(Request::Read, &only_static), Some(Seen::Read(fixed)));
    let insert = Request::Insert { row: 0, new: 1 };
    assert_eq!(seen(insert, &[vec![yes]]), Some(Seen::Applied));
    let row = vec![no.clone(), int(1), int(0), None, long(9)];
    assert_eq!(seen(insert, &[row]), Some(Seen::NotWith(Some(9))));
    let update = Request::Update { row: 0, expect: 1, new: 2 };
    assert_eq!(seen(update, &[vec![no.clone(), long(9)]]), Some(Seen::NotWith(Some(9))));
    assert_eq!(seen(update, &[vec![no]]), Some(Seen::NotWith(None)));
    assert_eq!(seen(update, &[]), None);
}

#[test]
fn a_history_becomes_a_line_of_json_for_each_operation() {
    let text = export(&good());
    assert_eq!(text.lines().count(), good().len());
    let line = "{\"call\":20,\"return\":25,\"request\":\"insert\",\"row\":0,\"expect\":null,\
                \"new\":2,\"seen\":\"not-with\",\"fixed\":null,\"rows\":[null,null,null],\
                \"value\":1}";
    assert_eq!(text.lines().nth(2), Some(line));
}
