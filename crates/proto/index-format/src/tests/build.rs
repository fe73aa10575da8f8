//! Builds from pairs in any order, with and without spills, and the index of a memtable.

use std::collections::BTreeSet;
use std::ops::{Bound, RangeBounds};

use bytes::Bytes;
use testkit::{Mutations, Random};

use super::component::{ID, InMemory, read};
use crate::fuzz::fuzz_index_run;
use crate::runs::{Fill, MergeStep, Run, RunBuilder, RunMerger};
use crate::*;

fn random_pairs(count: usize, rows: usize, seed: u64) -> Vec<(Vec<u8>, u32)> {
    let mut random = Random::new(seed);
    (0..count)
        .map(|_| {
            let length = [0, 3, 7, 8, 9, 20][random.below(6)];
            let term = (0..length).map(|_| [0, 0, 1, 0xff][random.below(4)]).collect();
            (term, random.below(rows) as u32)
        })
        .collect()
}

/// Spills whenever the builder is full. Returns the component and the number of runs.
fn build(pairs: &[(Vec<u8>, u32)], rows: u32, budget: usize) -> (Bytes, usize) {
    let mut builder = RunBuilder::new(budget);
    let mut spilled = b"something before".to_vec();
    let base = 100;
    let mut runs: Vec<Run> = Vec::new();
    let spill = |builder: &mut RunBuilder, spilled: &mut Vec<u8>, runs: &mut Vec<Run>| {
        runs.push(builder.spill(base, spilled).unwrap());
        assert!(builder.is_empty());
    };
    for (term, row) in pairs {
        if builder.push(term, *row).unwrap() == Fill::Full {
            spill(&mut builder, &mut spilled, &mut runs);
        }
        assert!(builder.memory_bytes() < budget + 100);
    }
    let mut writer = IndexWriter::new(ID, rows);
    let count = runs.len();
    if runs.is_empty() {
        builder.write_to(&mut writer).unwrap();
    } else {
        spill(&mut builder, &mut spilled, &mut runs);
        let spilled = Bytes::from([vec![0; base as usize], spilled].concat());
        let mut merger = RunMerger::new(runs);
        loop {
            match merger.advance().unwrap() {
                MergeStep::NeedBlock(at) => merger.feed(read(&spilled, at).unwrap()),
                MergeStep::Pair => {
                    let (term, row) = merger.pair();
                    writer.push(term, row).unwrap();
                }
                MergeStep::End => break,
            }
        }
    }
    writer.finish().unwrap();
    (writer.take_output().into(), count)
}

#[test]
fn pairs_in_any_order_give_the_same_bytes_as_in_order() {
    for seed in 0..20 {
        let rows = 5_000;
        let pairs = random_pairs(20_000, rows, seed);
        let sorted: BTreeSet<(Vec<u8>, u32)> = pairs.iter().cloned().collect();
        let sorted =
            InMemory::build(rows as u32, sorted.iter().map(|(term, row)| (term.as_slice(), *row)));
        let (whole, none) = build(&pairs, rows as u32, 64 << 20);
        let (spilled, some) = build(&pairs, rows as u32, 100_000);
        assert!(none == 0 && some > 3, "{none} {some}");
        assert!(whole == sorted.bytes, "seed {seed}");
        assert!(spilled == sorted.bytes, "seed {seed}, with spills");
    }
}

#[test]
fn flipped_bytes_of_a_run_are_found_and_any_bytes_do_not_panic() {
    let mut builder = RunBuilder::new(1 << 20);
    for (term, row) in random_pairs(300, 1_000, 1) {
        builder.push(&term, row).unwrap();
    }
    let mut out = Vec::new();
    let run = builder.spill(0, &mut out).unwrap();
    let at = run.blocks[0];
    assert_eq!((run.blocks.len(), at.length as usize), (1, out.len()));
    for byte in 0..out.len() {
        let mut damaged = out.clone();
        damaged[byte] ^= 1 << (byte % 8);
        assert!(read(&damaged.into(), at).is_err(), "byte {byte}");
    }
    Mutations::of([out]).run(fuzz_index_run);
}

#[test]
fn the_index_of_a_memtable_gives_the_rows_of_a_map() {
    for seed in 0..30 {
        let mut random = Random::new(seed);
        let pairs = random_pairs(random.clone().below(3_000), 500, seed);
        let mut index = MemtableIndex::default();
        let mut grown = 0;
        for (term, row) in &pairs {
            grown += index.insert(term, *row);
        }
        assert_eq!(index.bytes(), grown);
        for _ in 0..50 {
            let mut bound = || {
                let term = pairs.get(random.below(pairs.len() + 1)).map(|(term, _)| term.clone());
                match (term, random.below(3)) {
                    (None, _) | (_, 0) => Bound::Unbounded,
                    (Some(term), 1) => Bound::Included(term),
                    (Some(term), _) => Bound::Excluded(term),
                }
            };
            let range = TermRange { lower: bound(), upper: bound() };
            let bounds = (range.lower.clone(), range.upper.clone());
            let hits = pairs.iter().filter(|(term, _)| bounds.contains(term));
            let expected: BTreeSet<u32> = hits.clone().map(|(_, row)| *row).collect();
            let mut rows = index.rows(vec![range.clone()]);
            assert_eq!(rows.left(), expected.len());
            let estimate = index.estimate(vec![range.clone()]);
            assert!(estimate.ids as usize >= expected.len());
            assert!(estimate.ids as usize <= hits.count());
            let mut from = 0;
            loop {
                let next = expected.iter().copied().find(|row| *row >= from);
                assert_eq!(rows.current().copied(), next, "seed {seed}, {range:?}");
                let Some(row) = next else { break };
                from = row + 1 + random.below(3) as u32;
                rows.skip_while(|row| *row < from);
            }
        }
    }
}

#[test]
fn a_memtable_counts_what_it_stores() {
    let mut index = MemtableIndex::default();
    let first = index.insert(b"12345678", 1u32);
    assert!(first >= 40, "{first}");
    assert_eq!(index.insert(b"12345678", 1), 0, "the same row again");
    assert_eq!(index.insert(b"1234567890", 1) - first, 2, "bytes behind the first eight");
    assert!(index.insert(b"12345678", 2) > 0, "an overwritten row stays");
    assert_eq!(index.counts(), Counts { terms: 2, ids: 3 });
}
