//! Every legal result of a read passes; every other is noticed.

use super::*;

const VALUE: Cell = Cell::Value(1);

fn at(millis: u64) -> Instant {
    Instant(millis * 1_000_000)
}

/// Writes of one partition, each 10 ms long and 100 ms apart.
fn part(writes: &[(Request, bool)]) -> Part {
    let write = |(n, (request, is_known)): (usize, &(Request, bool))| {
        let sent = at(100 * (n as u64 + 1));
        let end = match is_known {
            true => End::Acknowledged(at(100 * (n as u64 + 1) + 10)),
            false => End::Unknown,
        };
        Write { request: *request, sent, end }
    };
    Part { writes: writes.iter().enumerate().map(write).collect(), reads: Vec::new() }
}

fn verdict(writes: &[(Request, bool)], millis: u64, cell: Cell, found: Option<i64>) -> Verdict {
    let found = found.map(|value| (cell, value)).into_iter().collect();
    may_be(&part(writes), &Read { node: 0, begin: at(millis), end: at(millis + 5), found }, cell)
}

#[test]
fn the_newest_certain_write_or_a_newer_one_is_shown() {
    let set = (Request::Set(VALUE), true);
    let unknown = (Request::Set(VALUE), false);
    assert!(verdict(&[set, set], 300, VALUE, Some(2)).is_ok());
    for wrong in [None, Some(1), Some(3), Some(7)] {
        assert!(verdict(&[set, set], 300, VALUE, wrong).is_err(), "{wrong:?}");
    }
    // Between two writes, and while the second is under way.
    assert!(verdict(&[set, set], 150, VALUE, Some(1)).is_ok());
    assert!(verdict(&[set, set], 150, VALUE, Some(2)).is_err());
    assert!(verdict(&[set, set], 202, VALUE, Some(1)).is_ok());
    assert!(verdict(&[set, set], 202, VALUE, Some(2)).is_ok());
    // Without an answer: it happened or not; what is older than a certain one did not matter.
    for either in [Some(1), Some(2)] {
        assert!(verdict(&[set, unknown], 300, VALUE, either).is_ok());
    }
    assert!(verdict(&[unknown, set], 300, VALUE, Some(1)).is_err());
    assert!(verdict(&[unknown], 300, VALUE, None).is_ok());
}

#[test]
fn what_was_deleted_in_any_way_does_not_come_back() {
    let element = Cell::Element(1, 1);
    let deletions = [
        Request::Unset(element),
        Request::Map(1),
        Request::Row(1),
        Request::Range(0, 2),
        Request::Partition,
    ];
    for deletion in deletions {
        let writes = [(Request::Set(element), true), (deletion, true)];
        assert!(verdict(&writes, 300, element, None).is_ok(), "{deletion:?}");
        let error = verdict(&writes, 300, element, Some(1)).unwrap_err();
        assert!(error.contains("Some(1) instead of 2"), "{error}");
    }
    // Cells outside the range, and cells that only a partition's deletion covers.
    let beside = [(Request::Set(VALUE), true), (Request::Range(2, 4), true)];
    assert!(verdict(&beside, 300, VALUE, Some(1)).is_ok());
    assert!(verdict(&beside, 300, VALUE, None).is_err());
    let fixed = [(Request::Set(Cell::Static), true), (Request::Range(0, 4), true)];
    assert!(verdict(&fixed, 300, Cell::Static, Some(1)).is_ok());
    let whole = [(Request::Set(Cell::Static), true), (Request::Partition, true)];
    assert!(verdict(&whole, 300, Cell::Static, Some(1)).is_err());
}

#[test]
fn an_expired_value_hides_older_ones_and_does_not_stay() {
    let writes = [(Request::Set(VALUE), true), (Request::Expiring(1), true)];
    assert!(verdict(&writes, 300, VALUE, Some(2)).is_ok());
    assert!(verdict(&writes, 300, VALUE, None).is_err());
    assert!(verdict(&writes, 9_000, VALUE, None).is_ok());
    assert!(verdict(&writes, 9_000, VALUE, Some(2)).is_err());
    assert!(verdict(&writes, 9_000, VALUE, Some(1)).is_err());
}

#[test]
fn a_refused_write_is_never_seen() {
    let mut part = part(&[(Request::Set(VALUE), true), (Request::Set(VALUE), true)]);
    part.writes[1].end = End::Refused;
    let read = |value| Read {
        node: 0,
        begin: at(300),
        end: at(305),
        found: BTreeMap::from([(VALUE, value)]),
    };
    part.reads = vec![read(1)];
    assert!(newest(&Cells(BTreeMap::from([(1, part.clone())]))).is_ok());
    part.reads = vec![read(2)];
    assert!(newest(&Cells(BTreeMap::from([(1, part)]))).is_err());
}

#[test]
fn rows_are_taken_apart() {
    let mut map = 2i32.to_be_bytes().to_vec();
    for (key, value) in [(0i32, 5i64), (1, 6)] {
        map.extend(4i32.to_be_bytes());
        map.extend(key.to_be_bytes());
        map.extend(8i32.to_be_bytes());
        map.extend(value.to_be_bytes());
    }
    let long = |v: i64| Some(v.to_be_bytes().to_vec());
    let row = vec![Some(2i32.to_be_bytes().to_vec()), long(7), None, Some(map)];
    let found = cells_of(&[row]).unwrap();
    let expected = [(Cell::Static, 7), (Cell::Element(2, 0), 5), (Cell::Element(2, 1), 6)];
    assert_eq!(found, BTreeMap::from(expected));
    assert_eq!(cells_of(&[vec![None, long(3), None, None]]).unwrap().len(), 1);
    assert!(cells_of(&[vec![None]]).is_none());
}
