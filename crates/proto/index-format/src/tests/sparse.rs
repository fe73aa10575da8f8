//! Intersections of a file with several pages of blocks of rows, in which the rows of a predicate are blocks and pages apart.

use std::collections::BTreeSet;

use bytes::Bytes;
use stdx::Token;
use testkit::Random;

use super::component::{InMemory, read};
use super::rows;
use crate::*;

/// Rows of a block, and of a page of 256 blocks.
const BLOCK: u32 = 1024;
const PAGE: u32 = 256 * BLOCK;
/// Rows of the file, each a partition: two pages and a half.
const ROWS: u32 = 2 * PAGE + PAGE / 2;
/// More blocks than any of these intersections may read.
const READS_MAX: usize = 5_000;

fn file() -> Bytes {
    let place = |row: u32| {
        let offset = u64::from(row) * 10;
        let token = Token(i64::from(row) * 1_000);
        RowPlace { token, partition: row, partition_offset: offset, row_offset: offset + 5 }
    };
    rows::build(&(0..ROWS).map(place).collect::<Vec<_>>(), &[])
}

/// Rows in both lists, and how many blocks were read.
fn intersect(file: &Bytes, lists: [&[u32]; 2]) -> (Vec<u32>, usize) {
    let build = |ids: &[u32]| InMemory::build(ROWS, ids.iter().map(|id| (&b"x"[..], *id)));
    let mut order = [0, 1];
    order.sort_by_key(|at: &usize| lists[*at].len());
    let indexes = lists.map(build);
    let predicates = indexes.iter().zip(lists).map(|(index, ids)| {
        let cursor = IndexCursor::new(&index.summary, vec![TermRange::equal(b"x")]);
        let reader = RowsReader::new(rows::open(file).unwrap().into());
        let source = Source::file(0, cursor, reader);
        Predicate::new(Scope::Row, ids.len() as u64, vec![source])
    });
    let mut set = Intersection::new(predicates.collect());
    let (mut found, mut reads) = (Vec::new(), 0);
    loop {
        match set.advance().unwrap() {
            SetStep::End => return (found, reads),
            SetStep::Pause => {}
            SetStep::Row(row) => found.push(row.row),
            SetStep::Need(need) => {
                reads += 1;
                assert!(reads <= READS_MAX, "after {found:?}: an intersection without end");
                let fed = match need.wanted {
                    Wanted::IndexBlock(at) => {
                        let index = &indexes[order[need.predicate]];
                        Fed::IndexBlock(read(&index.bytes, at).unwrap())
                    }
                    Wanted::RowsBlock(at) => Fed::RowsBlock(read(file, at).unwrap()),
                    wanted => panic!("{wanted:?} in an intersection of one file"),
                };
                set.feed(need, fed);
            }
        }
    }
}

#[test]
fn the_next_row_of_a_predicate_may_be_pages_after_the_sought_one() {
    let last = ROWS - 5;
    // The second predicate is sought again after each block that was fed.
    let (a, b) = ([10, 20, last], [15, 2 * PAGE + 9, 2 * PAGE + 2_000, last]);
    let (found, reads) = intersect(&file(), [&a, &b]);
    assert_eq!(found, [last]);
    // For each row: a page and a block for its token, a page and a block of the next row.
    assert!(reads <= 4 * (a.len() + b.len()), "{reads} blocks for {} rows", a.len() + b.len());
}

#[test]
fn random_rows_that_are_blocks_and_pages_apart_are_found() {
    let file = file();
    let mut hits = 0;
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let both: Vec<u32> =
            (0..random.below(20)).map(|_| random.below(ROWS as usize) as u32).collect();
        let mut list = || {
            let alone = [1, 30, 1_000][random.below(3)];
            let alone = (0..alone).map(|_| random.below(ROWS as usize) as u32);
            alone.chain(both.iter().copied()).collect::<BTreeSet<u32>>()
        };
        let (a, b) = (list(), list());
        let expected: Vec<u32> = a.intersection(&b).copied().collect();
        let (a, b) = (Vec::from_iter(a), Vec::from_iter(b));
        let (found, reads) = intersect(&file, [&a, &b]);
        assert_eq!(found, expected, "seed {seed}");
        let sparser = a.len().min(b.len());
        assert!(reads <= 20 + 8 * sparser, "seed {seed}: {reads} blocks for {sparser} rows");
        hits += found.len();
    }
    assert!(hits > 300, "{hits} rows");
}
