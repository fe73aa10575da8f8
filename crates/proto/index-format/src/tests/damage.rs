//! No bytes panic (INV-index-format-1), and no flipped byte stays unnoticed.

use bytes::Bytes;
use testkit::{Mutations, Random};

use super::component::InMemory;
use super::rows;
use crate::fuzz::{fuzz_index_rows, fuzz_index_terms};
use crate::*;

fn component(rows: u32, distinct: usize, length: usize) -> InMemory {
    let mut random = Random::new(4);
    let mut pairs: Vec<(Vec<u8>, u32)> = (0..rows)
        .map(|row| (random.below(distinct).to_be_bytes()[8 - length..].to_vec(), row))
        .collect();
    pairs.sort();
    InMemory::build(rows, pairs.iter().map(|(term, row)| (term.as_slice(), *row)))
}

fn read_all(bytes: Vec<u8>) -> Result<Vec<u32>, IndexError> {
    InMemory::open(bytes.into())?.rows(vec![TermRange::all()])
}

#[test]
fn every_flipped_byte_of_an_index_is_found() {
    // One leaf with all forms of lists; several levels would double what is read.
    let whole = component(20_000, 3, 2);
    let expected = read_all(whole.bytes.to_vec()).unwrap();
    assert_eq!(expected.len(), 20_000);
    for at in 0..whole.bytes.len() {
        let mut bytes = whole.bytes.to_vec();
        bytes[at] ^= 1 << (at % 8);
        assert!(read_all(bytes).is_err(), "byte {at}");
    }
    for cut in [0, 10, 31, 63, 64, 1_000, whole.bytes.len() - 1] {
        let bytes = Bytes::copy_from_slice(&whole.bytes[..cut]);
        assert!(InMemory::open(bytes).is_err(), "cut at {cut}");
    }
}

#[test]
fn every_flipped_byte_of_rows_is_found() {
    let (places, empty) = rows::random_rows(1_500, 5, 3);
    let whole = rows::build(&places, &empty);
    for at in 0..whole.len() {
        let mut bytes = whole.to_vec();
        bytes[at] ^= 1 << (at % 8);
        let bytes = Bytes::from(bytes);
        let read = rows::open(&bytes).and_then(|summary| {
            let mut reader = RowsReader::new(summary.clone().into());
            (0..summary.rows)
                .try_for_each(|id| rows::ask(&bytes, &mut reader, |r| r.place(id)).map(|_| ()))
        });
        assert!(read.is_err(), "byte {at}");
    }
}

#[test]
fn a_block_of_another_offset_is_found() {
    let mut whole = component(20_000, 3, 2);
    let root = whole.summary.root.unwrap();
    let payload = whole.block(root).unwrap();
    let start = root.offset as usize;
    let bytes = whole.bytes.slice(start..start + root.length as usize);
    let moved = BlockRef { offset: root.offset + 1, ..root };
    assert!(matches!(Block::open(moved, bytes), Err(IndexError::Checksum { .. })));
    assert_eq!(payload.kind(), BlockKind::Node);
}

#[test]
fn any_bytes_as_an_index_never_panic() {
    let small = component(300, 40, 2).bytes;
    let lists = component(30_000, 2, 1).bytes;
    let levels = component(3_000, 1 << 40, 5).bytes;
    Mutations::of([small]).run(fuzz_index_terms);
    Mutations::of([lists, levels]).rounds(500).run(fuzz_index_terms);
}

#[test]
fn any_bytes_as_rows_never_panic() {
    let corpus = [(100, 1), (1_500, 5)].map(|(count, wide)| {
        let (places, empty) = rows::random_rows(count, wide, 3);
        rows::build(&places, &empty)
    });
    Mutations::of(corpus).run(fuzz_index_rows);
}
