use super::kind::KINDS;
use super::model::Partition;
use super::operation::{Action, Operation, writer_of};
use super::read::Read;
use super::table::{Shape, Table};
use crate::fuzz::random::Random;

#[test]
fn values_have_the_order_of_their_ranks_and_give_their_numbers_back() {
    let mut random = Random::new(7);
    for kind in KINDS {
        for number in (0..300).map(|n| if n < 100 { n } else { random.bits() }) {
            let masked = number & (u64::MAX >> (64 - kind.bits()));
            let bytes = kind.bytes(masked);
            assert_eq!(kind.number(&bytes), Some(masked), "{kind:?} {masked} {bytes:x?}");
        }
        assert_eq!(kind.number(&[0, 0, 1]), None, "{kind:?}");
    }
    assert_eq!(super::kind::Kind::Int.literal(0), i32::MIN.to_string());
    assert_eq!(super::kind::Kind::Int.bytes(0), i32::MIN.to_be_bytes());
}

fn operations(table: &Table, count: u64) -> Vec<Operation> {
    (1..=count).map(|number| Operation::of(table, 0, number)).collect()
}

#[test]
fn every_kind_of_operation_comes_up_and_timestamps_are_unique() {
    let mut seen = [0; 5];
    for seed in 0..20 {
        let table = Table::of("ks.t", seed);
        let operations = operations(&table, 100);
        let mut stamps: Vec<i64> = operations.iter().map(|o| o.stamp).collect();
        stamps.sort_unstable();
        stamps.dedup();
        assert_eq!(stamps.len(), operations.len());
        for operation in &operations {
            let kind = match operation.action {
                Action::Insert(..) => 0,
                Action::Update(..) => 1,
                Action::Statics(_) => 2,
                Action::Rows(_) => 3,
                Action::Partition => 4,
            };
            seen[kind] += 1;
        }
    }
    assert!(seen.iter().all(|count| *count > 20), "{seen:?}");
}

/// Returns the answer of a server that has carried out these operations only.
fn answer(table: &Table, read: &Read, operations: &[Operation]) -> Vec<super::model::Cells> {
    read.expected(table, &Partition::of(table, operations))
}

#[test]
fn an_operation_that_is_lost_is_found() {
    let (mut lost, mut found) = (0, 0);
    for seed in 0..40 {
        let table = Table::of("ks.t", seed);
        let all = operations(&table, 30);
        let whole = Read::default();
        assert_eq!(whole.wrong(&table, &all, &answer(&table, &whole, &all)), None);
        for without in 0..all.len() {
            let mut less = all.clone();
            less.remove(without);
            lost += 1;
            found +=
                usize::from(whole.wrong(&table, &all, &answer(&table, &whole, &less)).is_some());
        }
    }
    // Most are written over later; the last ones are not.
    assert!(found * 8 > lost, "{found} of {lost}");
}

#[test]
fn what_is_wrong_names_the_operation_that_wrote_it() {
    let tables = (0..).map(|seed| Table::of("ks.t", seed));
    let is_wide = |table: &Table| {
        table.columns.iter().all(|column| {
            matches!(column.shape, Shape::Plain(kind) if kind.bits() >= 32) && !column.is_static
        })
    };
    let table = tables.into_iter().find(is_wide).unwrap();
    let all = operations(&table, 40);
    let whole = Read::default();
    let mut rows = answer(&table, &whole, &all);
    let keys = table.clustering.len();
    let cell = rows.iter_mut().find_map(|row| row[keys].as_mut()).unwrap();
    let Shape::Plain(kind) = table.columns[0].shape else { unreachable!() };
    let writer = writer_of(kind.number(cell).unwrap());
    *cell = kind.bytes(kind.number(cell).unwrap() + 64);
    let text = whole.wrong(&table, &all, &rows).unwrap();
    assert!(text.contains(&format!("(of operation {})", writer + 1)), "{text}");
    assert!(text.contains(&format!("(of operation {writer})")), "{text}");
}
