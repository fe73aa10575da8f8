//! Good input passes; each way to spoil it is noticed, and named for what it is.

use super::*;
use crate::history::Scan;

fn moment(millis: u64) -> Instant {
    Instant(millis * 1_000_000)
}

fn event(action: Action, begin: u64, end: u64, ending: Ending) -> Event {
    Event { node: 0, action, scope: Scope::Quorum, begin: moment(begin), end: moment(end), ending }
}

fn write(stamp: i64, begin: u64, end: u64, ending: Ending) -> Event {
    event(Action::Write { key: 1, stamp }, begin, end, ending)
}

fn delete(stamp: i64, begin: u64, end: u64, ending: Ending) -> Event {
    event(Action::Delete { key: 1, stamp }, begin, end, ending)
}

fn read(begin: u64, end: u64, value: Option<i64>) -> Event {
    event(Action::Read { key: 1 }, begin, end, Ending::Found(value))
}

fn unknown() -> Ending {
    Ending::Unknown("timeout".to_owned())
}

fn registers_of(history: &History) -> Verdict {
    registers(history, &[])
}

fn history(events: &[Event]) -> History {
    let mut history = History::default();
    history.events = events.to_vec();
    history
}

/// Every kind of event, with a read after each.
fn good() -> Vec<Event> {
    vec![
        read(0, 5, None),
        write(1, 10, 20, Ending::Done),
        read(21, 25, Some(1)),
        write(2, 30, 40, unknown()),
        read(41, 45, Some(2)),
        write(3, 50, 60, Ending::Refused),
        read(61, 65, Some(2)),
        delete(4, 70, 80, Ending::Done),
        read(81, 85, None),
        write(5, 90, 110, Ending::Done),
        // At the same time as the write: both are right, but not the second before the first.
        read(91, 95, None),
        read(96, 112, Some(5)),
        delete(6, 120, 130, unknown()),
        read(131, 135, Some(5)),
        write(7, 140, 150, unknown()),
        read(151, 155, None),
    ]
}

/// The good history with the read at `index` seeing something else.
fn spoilt(index: usize, value: Option<i64>) -> String {
    let mut events = good();
    events[index].ending = Ending::Found(value);
    registers_of(&history(&events)).unwrap_err()
}

#[test]
fn a_right_history_passes() {
    assert_eq!(registers_of(&history(&good())), Ok(()));
}

#[test]
fn lost_old_invented_refused_and_deleted_values_are_seen() {
    assert!(spoilt(2, None).contains("no row, but value 1 was acknowledged"));
    assert!(spoilt(2, Some(9)).contains("value 9 was never written"));
    assert!(spoilt(2, Some(2)).contains("written only later"));
    assert!(spoilt(6, Some(1)).contains("value 1 is older than 2, which was read"));
    assert!(spoilt(6, Some(3)).contains("value 3 was refused"));
    assert!(spoilt(8, Some(2)).contains("value 2 came back: deletion 4 was acknowledged"));
    assert!(spoilt(8, Some(4)).contains("value 4 is that of a deletion"));
}

#[test]
fn a_read_that_goes_back_behind_a_read_is_seen_also_while_the_write_is_under_way() {
    let mut events = good();
    events[10].ending = Ending::Found(Some(5));
    assert_eq!(registers_of(&history(&events)), Ok(()));
    events[11].ending = Ending::Found(None);
    let error = registers_of(&history(&events)).unwrap_err();
    assert!(error.contains("no row, but value 5 was read"), "{error}");
    // Reads at the same time may differ.
    events[11].begin = events[10].begin;
    assert_eq!(registers_of(&history(&events)), Ok(()));
}

#[test]
fn a_power_cut_takes_back_what_was_only_read_and_nothing_else() {
    let acknowledged = [write(1, 0, 5, Ending::Done), write(2, 10, 90, unknown())];
    let after = |value| {
        let events = [&acknowledged[..], &[read(20, 25, Some(2)), read(50, 55, value)]].concat();
        move |losses: &[u64]| {
            let losses: Vec<Loss> = losses.iter().map(|n| Loss::power_cut(moment(*n))).collect();
            registers(&history(&events), &losses)
        }
    };
    assert!(after(Some(1))(&[]).is_err());
    assert_eq!(after(Some(1))(&[30]), Ok(()));
    assert!(after(Some(1))(&[10]).is_err(), "before the read");
    assert_eq!(after(Some(1))(&[22]), Ok(()), "while its answer was under way");
    assert!(after(Some(1))(&[60]).is_err(), "after the later read");
    assert_eq!(after(Some(2))(&[30]), Ok(()));
    assert!(after(None)(&[30]).is_err(), "the acknowledged one is not lost");
}

#[test]
fn a_kill_takes_back_what_was_only_read_shortly_before() {
    let written = [write(1, 0, 5, Ending::Done), write(2, 10, 15_000, unknown())];
    let check = |value, killed, later| {
        let reads = [read(20, 25, Some(2)), read(later, later + 5, value)];
        registers(&history(&[&written[..], &reads].concat()), &[Loss::kill(moment(killed))])
    };
    assert_eq!(check(Some(1), 30, 50), Ok(()));
    assert_eq!(check(Some(1), 10_000, 10_050), Ok(()));
    assert!(check(Some(1), 10_100, 10_150).is_err(), "it had its sync");
    assert!(check(Some(1), 60, 50).is_err(), "killed only later");
    assert!(check(None, 30, 50).is_err(), "the acknowledged one is not lost");
}

#[test]
fn a_bad_disk_takes_back_what_was_only_read_while_it_was_bad() {
    let acknowledged = [write(1, 0, 5, Ending::Done), write(2, 10, 90, unknown())];
    let check = |value, since, until| {
        let events = [&acknowledged[..], &[read(20, 25, Some(2)), read(50, 55, value)]].concat();
        registers(&history(&events), &[Loss::bad_disk(moment(since), moment(until))])
    };
    assert_eq!(check(Some(1), 15, 40), Ok(()));
    assert_eq!(check(Some(1), 22, 60), Ok(()), "the node ended by itself before");
    assert!(check(Some(1), 30, 60).is_err(), "read before");
    assert!(check(Some(1), 10, 15).is_err(), "read after");
    assert!(check(None, 15, 40).is_err(), "the acknowledged one is not lost");
}

#[test]
fn a_read_of_several_keys_is_a_read_of_each_and_of_those_that_are_missing() {
    let both = |begin: u64, rows: &[(i32, i64)]| {
        let action = Action::Partition { partition: 0, reversed: false };
        event(action, begin, begin + 5, Ending::Listed(rows.iter().copied().collect()))
    };
    let other =
        |stamp, begin| event(Action::Write { key: 3, stamp }, begin, begin + 5, Ending::Done);
    let check = |rows: &[(i32, i64)]| {
        let written = [write(1, 0, 5, Ending::Done), other(1, 10), other(2, 20)];
        registers_of(&history(&[&written[..], &[both(30, rows)]].concat()))
    };
    assert_eq!(check(&[(1, 1), (3, 2)]), Ok(()));
    assert!(check(&[(1, 1), (3, 1)]).unwrap_err().contains("key 3"));
    assert!(check(&[(1, 1)]).unwrap_err().contains("no row, but value 2"));
    assert!(check(&[(1, 1), (3, 2), (5, 1)]).unwrap_err().contains("never written"));
    assert!(check(&[(1, 1), (3, 2), (4, 1)]).unwrap_err().contains("does not cover"));
    assert!(check(&[(1, 1), (3, 2), (17, 1)]).unwrap_err().contains("does not cover"));
    // Keys of the other table are not expected in a partition, nor the reverse.
    let even = event(Action::Write { key: 2, stamp: 1 }, 0, 5, Ending::Done);
    assert_eq!(registers_of(&history(&[even.clone(), both(10, &[])])), Ok(()));
    let table = event(Action::Table { how: Scan::Groups }, 10, 15, Ending::Listed(BTreeMap::new()));
    assert!(registers_of(&history(&[even, table.clone()])).is_err());
    assert_eq!(registers_of(&history(&[write(1, 0, 5, Ending::Done), table])), Ok(()));
}

#[test]
fn a_filter_hides_what_may_have_a_value_that_does_not_pass_and_nothing_else() {
    let of =
        |stamp, begin, ending| event(Action::Write { key: 2, stamp }, begin, begin + 5, ending);
    let written = [of(1, 0, Ending::Done), of(2, 10, Ending::Done), of(3, 20, unknown())];
    let check = |how, rows: &[(i32, i64)]| {
        let found = Ending::Listed(rows.iter().copied().collect());
        let read = event(Action::Table { how }, 30, 35, found);
        registers_of(&history(&[&written[..], &[read]].concat()))
    };
    // It has 2 or 3.
    assert_eq!(check(Scan::Above(2), &[(2, 2)]), Ok(()));
    assert_eq!(check(Scan::Above(3), &[(2, 3)]), Ok(()));
    assert_eq!(check(Scan::Above(3), &[]), Ok(()));
    assert!(check(Scan::Above(2), &[]).unwrap_err().contains("no row, but value 2"));
    assert!(check(Scan::Above(3), &[(2, 2)]).unwrap_err().contains("does not pass"));
    assert_eq!(check(Scan::Below(3), &[(2, 2)]), Ok(()));
    assert_eq!(check(Scan::Below(2), &[]), Ok(()));
    assert_eq!(check(Scan::Below(3), &[]), Ok(()));
    assert!(check(Scan::Below(4), &[]).unwrap_err().contains("no row, but value 2"));
    // It was overwritten.
    assert!(check(Scan::Below(2), &[(2, 1)]).unwrap_err().contains("value 1 is older than 2"));
}

#[test]
fn without_a_deletion_under_way_no_row_may_be_missing() {
    let mut events = good();
    events.retain(|e| !matches!(e.action, Action::Delete { stamp: 6, .. }));
    events.pop();
    events.push(read(160, 165, None));
    let error = registers_of(&history(&events)).unwrap_err();
    assert!(error.contains("no row, but value 5 was read"), "{error}");
    // The final read of a run is a read like the others: durability.
    let mut events = vec![write(1, 0, 10, Ending::Done), write(2, 20, 30, unknown())];
    for (value, is_right) in [(Some(1), true), (Some(2), true), (None, false), (Some(3), false)] {
        events.truncate(2);
        events.push(read(1000, 1010, value));
        assert_eq!(registers_of(&history(&events)).is_ok(), is_right, "{value:?}");
    }
}

fn bytes(n: i32) -> Option<Vec<u8>> {
    Some(n.to_be_bytes().to_vec())
}

#[test]
fn replicas_that_differ_in_a_row_a_value_a_write_time_or_a_table_are_seen() {
    let rows = || {
        let row = |n: i32| (vec![bytes(n)], vec![bytes(n * 10), bytes(7)]);
        Rows::from([row(1), row(2)])
    };
    let tables = || BTreeMap::from([("a".to_owned(), rows()), ("b".to_owned(), rows())]);
    let good = || {
        let mut all: Vec<_> = (1..=3).map(|n| (format!("n{n}"), tables())).collect();
        all[1].1.insert("empty".to_owned(), Rows::new());
        all
    };
    assert_eq!(converged(&good()), Ok(()));
    type Spoil = fn(&mut BTreeMap<String, Rows>);
    let spoils: [Spoil; 5] = [
        |t| drop(t.get_mut("a").unwrap().remove(&vec![bytes(1)])),
        |t| drop(t.get_mut("a").unwrap().insert(vec![bytes(3)], vec![None, None])),
        |t| t.get_mut("b").unwrap().get_mut(&vec![bytes(2)]).unwrap()[0] = None,
        |t| t.get_mut("b").unwrap().get_mut(&vec![bytes(2)]).unwrap()[1] = bytes(8),
        |t| drop(t.remove("a")),
    ];
    for (i, spoil) in spoils.iter().enumerate() {
        for replica in 0..3 {
            let mut all = good();
            spoil(&mut all[replica].1);
            assert!(converged(&all).is_err(), "{i} {replica}");
        }
    }
}

#[test]
fn half_lost_invented_and_refused_batches_are_seen() {
    let batch = |batch, ending| event(Action::Batch { batch }, 0, 10, ending);
    let history = history(&[
        batch(1, Ending::Done),
        batch(2, unknown()),
        batch(3, Ending::Refused),
        batch(4, unknown()),
    ]);
    let found = |parts: &[(i32, usize)]| batches(&history, &parts.iter().copied().collect());
    assert_eq!(found(&[(1, 2), (2, 2)]), Ok(()));
    assert_eq!(found(&[(1, 2)]), Ok(()));
    assert!(found(&[(1, 1)]).unwrap_err().contains("1 of 2"));
    assert!(found(&[(1, 2), (2, 1)]).unwrap_err().contains("1 of 2"));
    assert!(found(&[(2, 2)]).unwrap_err().contains("is gone"));
    assert!(found(&[(1, 2), (3, 2)]).unwrap_err().contains("refused"));
    assert!(found(&[(1, 2), (5, 2)]).unwrap_err().contains("never sent"));
}

#[test]
fn other_versions_other_ids_and_missing_tables_are_seen() {
    let create = |table, ending| event(Action::Create { table }, 0, 10, ending);
    let history = history(&[create(1, Ending::Done), create(2, unknown())]);
    let view = |node: &str| SchemaView {
        node: node.to_owned(),
        version: vec![1],
        tables: BTreeMap::from([("made1".to_owned(), vec![1]), ("t".to_owned(), vec![9])]),
    };
    let good = || vec![view("n1"), view("n2"), view("n3")];
    assert_eq!(schema(&history, &good()), Ok(()));
    type Spoil = fn(&mut SchemaView);
    let spoils: [Spoil; 4] = [
        |v| v.version = vec![2],
        |v| drop(v.tables.insert("made1".to_owned(), vec![2])),
        |v| drop(v.tables.remove("t")),
        |v| drop(v.tables.insert("made2".to_owned(), vec![2])),
    ];
    for spoil in spoils {
        for node in 0..3 {
            let mut views = good();
            spoil(&mut views[node]);
            assert!(schema(&history, &views).is_err());
        }
    }
    let mut views = good();
    views.iter_mut().for_each(|v| drop(v.tables.remove("made1")));
    assert!(schema(&history, &views).unwrap_err().contains("made1 was acknowledged"));
}

#[test]
fn late_requests_are_seen_unless_their_node_was_in_trouble() {
    let allowed = Duration::from_millis(500);
    let late = |end| history(&[write(1, 1_000, end, Ending::Done)]);
    let trouble = |node, from, until| Trouble { node, from: moment(from), until: moment(until) };
    assert_eq!(deadlines(&late(3_500), &[], allowed), Ok(()));
    assert!(deadlines(&late(3_501), &[], allowed).unwrap_err().contains("allowed are 2.5s"));
    assert!(deadlines(&late(4_000), &[trouble(1, 2_000, 3_000)], allowed).is_err());
    assert!(deadlines(&late(4_000), &[trouble(0, 100, 900)], allowed).is_err());
    assert!(deadlines(&late(4_000), &[trouble(0, 4_001, 5_000)], allowed).is_err());
    assert_eq!(deadlines(&late(4_000), &[trouble(0, 100, 1_100)], allowed), Ok(()));
    // A request that never ended.
    let never = history(&[Event { end: Instant(u64::MAX), ..write(1, 1_000, 0, unknown()) }]);
    assert!(deadlines(&never, &[], allowed).is_err());
    // Reads have more time, schema changes even more.
    assert_eq!(deadlines(&history(&[read(0, 5_500, None)]), &[], allowed), Ok(()));
    assert!(deadlines(&history(&[read(0, 5_501, None)]), &[], allowed).is_err());
}

#[test]
fn answers_that_should_not_exist_are_told() {
    let wrong = Ending::Wrong("error 0x0000: oops".to_owned());
    let error = answers(&history(&[read(0, 1, None), write(1, 2, 3, wrong)])).unwrap_err();
    assert!(error.contains("oops") && error.contains("Write"), "{error}");
    assert_eq!(answers(&history(&good())), Ok(()));
}

#[test]
fn a_read_in_one_datacenter_is_bound_by_what_is_certain_there() {
    let in_scope = |scope, event: Event| Event { scope, ..event };
    let local = Scope::Local(0);
    let write_of = |scope| in_scope(scope, write(1, 0, 5, Ending::Done));
    let verdict = |events: &[Event]| registers_of(&history(events));
    let late = |scope| in_scope(scope, read(10, 15, None));
    assert!(verdict(&[write_of(Scope::Everywhere), late(local)]).is_err());
    assert!(verdict(&[write_of(Scope::Everywhere), late(Scope::Quorum)]).is_err());
    assert!(verdict(&[write_of(Scope::Quorum), late(Scope::Quorum)]).is_err());
    assert!(verdict(&[write_of(Scope::Quorum), late(local)]).is_ok());
    // A value that was read in a datacenter binds reads there and nowhere else.
    let unsure = || in_scope(Scope::Everywhere, write(1, 0, 5, unknown()));
    let seen = || in_scope(local, read(6, 8, Some(1)));
    assert!(verdict(&[unsure(), seen(), late(local)]).is_err());
    assert!(verdict(&[unsure(), seen(), late(Scope::Local(1))]).is_ok());
}

#[test]
fn levels_that_meet_bind_reads_of_the_same_key_and_what_one_replica_showed_binds_nobody() {
    let in_scope = |scope, event: Event| Event { scope, ..event };
    let verdict = |events: &[Event]| registers_of(&history(events));
    let late = |scope| in_scope(scope, read(10, 15, None));
    let write_of = |scope| in_scope(scope, write(1, 0, 5, Ending::Done));
    assert!(verdict(&[write_of(Scope::Paired), late(Scope::Paired)]).is_err());
    assert!(verdict(&[write_of(Scope::Paired), late(Scope::Quorum)]).is_ok());
    assert!(verdict(&[write_of(Scope::Paired), late(Scope::Last)]).is_err());
    assert!(verdict(&[write_of(Scope::Any), late(Scope::Any)]).is_ok());
    assert!(verdict(&[write_of(Scope::Any), late(Scope::Last)]).is_ok());
    let unsure = || in_scope(Scope::Paired, write(1, 0, 5, unknown()));
    let seen = |scope| in_scope(scope, read(6, 8, Some(1)));
    assert!(verdict(&[unsure(), seen(Scope::Paired), late(Scope::Paired)]).is_ok());
    assert!(verdict(&[unsure(), seen(Scope::Quorum), late(Scope::Quorum)]).is_err());
}

#[test]
fn two_schemas_of_one_epoch_are_found() {
    let said = |node, epoch, version: &str| (node, epoch, version.to_owned());
    let good = [said(0, 7, "a"), said(1, 7, "a"), said(1, 8, "b"), said(0, 8, "b")];
    assert_eq!(epochs(&good), Ok(()));
    let error = epochs(&[&good[..], &[said(2, 7, "b")]].concat()).unwrap_err();
    assert!(error.contains("epoch 7") && error.contains("node 2"), "{error}");
}
