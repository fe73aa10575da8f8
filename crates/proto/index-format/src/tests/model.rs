use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, RangeBounds};

use testkit::Random;

use super::component::InMemory;
use crate::*;

type Model = BTreeMap<Vec<u8>, BTreeSet<u32>>;

fn build(model: &Model, rows: u32) -> InMemory {
    let pairs = model.iter().flat_map(|(term, ids)| ids.iter().map(|id| (term.as_slice(), *id)));
    InMemory::build(rows, pairs)
}

fn expect(model: &Model, ranges: &[TermRange]) -> BTreeSet<u32> {
    model
        .iter()
        .filter(|(term, _)| is_in(ranges, term))
        .flat_map(|(_, ids)| ids.iter().copied())
        .collect()
}

/// By the standard library's bounds.
fn is_in(ranges: &[TermRange], term: &Vec<u8>) -> bool {
    ranges.iter().any(|range| (range.lower.clone(), range.upper.clone()).contains(term))
}

fn random_bound(model: &Model, random: &mut Random) -> Bound<Vec<u8>> {
    let at = random.below(model.len() + 1);
    let Some(term) = model.keys().nth(at) else { return Bound::Unbounded };
    let mut term = term.clone();
    match random.below(4) {
        0 => term.push(random.byte()),
        1 => drop(term.pop()),
        _ => {}
    }
    match random.below(5) {
        0 => Bound::Unbounded,
        1 | 2 => Bound::Excluded(term),
        _ => Bound::Included(term),
    }
}

fn random_ranges(model: &Model, random: &mut Random) -> Vec<TermRange> {
    let mut range = || {
        if random.below(3) == 0 {
            let at = random.below(model.len().max(1));
            let term = model.keys().nth(at).cloned().unwrap_or_default();
            let short = random.below(term.len() + 1);
            return if random.below(2) == 0 {
                TermRange::equal(&term)
            } else {
                TermRange::prefix(&term[..short])
            };
        }
        TermRange { lower: random_bound(model, random), upper: random_bound(model, random) }
    };
    let count = if range().lower == Bound::Unbounded { 3 } else { 1 };
    (0..count).map(|_| range()).collect()
}

fn random_filter(model: &Model, random: &mut Random) -> TermFilter {
    let at = random.below(model.len().max(1));
    let term = model.keys().nth(at).cloned().unwrap_or_default();
    let start = random.below(term.len() + 1);
    let end = start + random.below(term.len() - start + 1);
    match random.below(2) {
        0 => TermFilter::EndsWith(term[start..].to_vec()),
        _ => TermFilter::Contains(term[start..end].to_vec()),
    }
}

/// The terms that pass a filter have the rows of a map in memory, in a component and in a memtable.
fn check_filter(
    model: &Model,
    component: &mut InMemory,
    ranges: &[TermRange],
    random: &mut Random,
) {
    let filter = random_filter(model, random);
    let ranges = if random.below(2) == 0 { vec![TermRange::all()] } else { ranges.to_vec() };
    let passes = |term: &Vec<u8>| match &filter {
        TermFilter::EndsWith(text) => term.ends_with(text),
        TermFilter::Contains(text) => {
            text.is_empty() || term.windows(text.len()).any(|window| window == text)
        }
    };
    let all = model.iter().filter(|(term, _)| is_in(&ranges, term) && passes(term));
    let expected: BTreeSet<u32> = all.flat_map(|(_, ids)| ids.iter().copied()).collect();
    let expected: Vec<u32> = expected.into_iter().collect();
    let found = component.filtered(ranges.clone(), Some(filter.clone())).unwrap();
    assert!(found == expected, "{ranges:?} {filter:?}: {} {}", found.len(), expected.len());
    if model.len() > 5_000 {
        return;
    }
    let mut index = MemtableIndex::default();
    for (term, ids) in model {
        for id in ids {
            index.insert(term, *id);
        }
    }
    let mut walk = FilteredWalk::new(ranges.clone(), filter.clone());
    let count = 1 + random.below(50);
    let most = ranges.len() + model.len() * ranges.len() / count;
    let steps = (0..=most).take_while(|_| !index.walk(&mut walk, count)).count();
    assert!(steps <= most, "{steps} steps of {count} terms");
    let mut rows = walk.finish();
    let mut found = Vec::new();
    while let Some(row) = rows.current() {
        found.push(*row);
        rows.advance();
    }
    assert_eq!(found, expected, "{ranges:?} {filter:?} in parts of {count}");
}

/// Every query of random ranges gives the rows, in order and each once, and the counts of a map in memory.
fn check(model: &Model, rows: u32, queries: usize, seed: u64) {
    let mut random = Random::new(seed);
    let mut component = build(model, rows);
    let ids: usize = model.values().map(BTreeSet::len).sum();
    assert_eq!(component.summary.counts.ids, ids as u64, "seed {seed}");
    for _ in 0..queries {
        let ranges = random_ranges(model, &mut random);
        let expected = expect(model, &ranges);
        let found = component.rows(ranges.clone()).unwrap();
        let expected: Vec<u32> = expected.into_iter().collect();
        assert!(found == expected, "seed {seed}, {ranges:?}: {} {}", found.len(), expected.len());
        let counted = model.iter().filter(|(term, _)| is_in(&ranges, term));
        let (terms, pairs) = counted.fold((0, 0), |(t, p), (_, ids)| (t + 1, p + ids.len() as u64));
        let counts = component.count(ranges.clone()).unwrap();
        assert_eq!((counts.terms, counts.ids), (terms, pairs), "seed {seed}, {ranges:?}");
        check_filter(model, &mut component, &ranges, &mut random);
        // Seeks.
        let mut cursor = IndexCursor::new(&component.summary, ranges.clone());
        let mut bound = 0;
        loop {
            let next = component.next(&mut cursor).unwrap();
            let expected = expected.iter().copied().find(|id| *id >= bound);
            assert_eq!(next, expected, "seed {seed}, {ranges:?} from {bound}");
            let Some(row) = next else { break };
            let distance = [1, 1, 2, 100, 1_000, 70_000][random.below(6)];
            bound = row + 1 + random.below(distance) as u32;
            cursor.seek(bound);
        }
    }
}

fn random_term(random: &mut Random) -> Vec<u8> {
    let length = [0, 1, 2, 4, 8, 30][random.below(6)];
    (0..length).map(|_| [0, 1, b'a', b'b', 0xff, random.byte()][random.below(6)]).collect()
}

#[test]
fn random_terms_and_rows_come_back() {
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let rows = [1, 300, 5_000, 200_000][random.below(4)];
        let mut model = Model::new();
        for _ in 0..random.below(3_000) {
            let copies = if random.below(50) == 0 { random.below(2_000) } else { 1 };
            let term = random_term(&mut random);
            let ids = model.entry(term).or_default();
            (0..copies.max(1)).for_each(|_| {
                ids.insert(random.below(rows as usize) as u32);
            });
        }
        check(&model, rows, 20, seed);
    }
}

#[test]
fn trees_of_several_levels_come_back() {
    // Unique terms: three levels.
    let rows = 200_000;
    let mut model = Model::new();
    let mut random = Random::new(3);
    for row in 0..rows {
        model.entry(random.next_u64().to_be_bytes().to_vec()).or_default().insert(row);
    }
    check(&model, rows, 10, 1);
}

#[test]
fn long_lists_come_back() {
    let rows = 400_000;
    let mut model = Model::new();
    let mut random = Random::new(3);
    for row in 0..rows {
        // Dense, half, sparse, clustered.
        model.entry(vec![0]).or_default().insert(row);
        let term = match random.below(16) {
            0..8 => vec![1],
            8 => vec![2, 7],
            9 => vec![3, (row / 50_000) as u8],
            at => vec![4, at as u8],
        };
        model.entry(term).or_default().insert(row);
    }
    check(&model, rows, 12, 2);
}

#[test]
fn an_index_without_rows_is_empty() {
    let mut component = build(&Model::new(), 0);
    assert_eq!(component.summary.root, None);
    assert_eq!(component.rows(vec![TermRange::all()]).unwrap(), []);
    assert_eq!(component.reads, 0);
}

#[test]
fn a_writer_refuses_what_is_out_of_order_or_too_long() {
    let mut writer = IndexWriter::new(super::component::ID, 10);
    writer.push(b"b", 3).unwrap();
    writer.push(b"b", 3).unwrap();
    let input = |what| Err(IndexError::Input { what });
    assert_eq!(writer.push(b"b", 2), input("rows of a term do not ascend"));
    assert_eq!(writer.push(b"a", 4), input("terms do not ascend"));
    assert_eq!(writer.push(b"c", 10), input("row id beyond the rows of the file"));
    let long = vec![b'c'; writer::TERM_BYTES_MAX + 1];
    assert_eq!(writer.push(&long, 4), input("term is too long"));
    writer.push(&long[1..], 4).unwrap();
    assert_eq!(writer.finish().unwrap().counts.ids, 2);
}

#[test]
fn a_wide_range_reads_lists_of_subtrees_instead_of_leaves() {
    let rows = 300_000u32;
    let terms: Vec<[u8; 4]> = (0..rows).map(u32::to_be_bytes).collect();
    let pairs = terms.iter().zip(0..).map(|(term, at)| {
        let row = (u64::from(at as u32) * 7_919 % u64::from(rows)) as u32;
        (term.as_slice(), row)
    });
    let mut component = InMemory::build(rows, pairs);
    assert_eq!(component.rows(vec![TermRange::all()]).unwrap().len(), rows as usize);
    let wide = component.reads;
    let leaves = component.summary.counts.ids * 7 / 4_000;
    assert!(wide < 150, "{wide} blocks of about {leaves} leaves");
    let before = component.reads;
    assert_eq!(component.rows(vec![TermRange::equal(&5_000u32.to_be_bytes())]).unwrap().len(), 1);
    assert!(component.reads - before <= 3, "{}", component.reads - before);
    let before = component.reads;
    let range = TermRange {
        lower: Bound::Included(1_000u32.to_be_bytes().to_vec()),
        upper: Bound::Excluded(290_000u32.to_be_bytes().to_vec()),
    };
    assert_eq!(component.count(vec![range]).unwrap().ids, 289_000);
    assert!(component.reads - before <= 5, "{}", component.reads - before);
}
