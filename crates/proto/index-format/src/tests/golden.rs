//! The bytes of version 1. `docs/formats/index.md` shows them.

use bytes::Bytes;
use stdx::Token;

use super::component::InMemory;
use super::rows;
use crate::*;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn unhex(text: &str) -> Bytes {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

#[test]
fn an_index_of_version_1_has_these_bytes() {
    let many: Vec<u32> = (10..20).map(|n| n * 3).collect();
    let pairs = [(&b"apple"[..], 1), (b"apple", 9), (b"apricot", 300)].into_iter();
    let pairs = pairs.chain(many.iter().map(|row| (&b"fig"[..], *row)));
    let built = InMemory::build(400, pairs);
    let golden = include_str!("golden_terms_v1.hex");
    assert_eq!(hex(&built.bytes), hex(&unhex(golden)));
    let mut read = InMemory::open(unhex(golden)).unwrap();
    assert_eq!(read.rows(vec![TermRange::equal(b"fig")]).unwrap(), many);
    assert_eq!(read.rows(vec![TermRange::prefix(b"ap")]).unwrap(), [1, 9, 300]);
}

#[test]
fn rows_of_version_1_have_these_bytes() {
    let place = |token, partition, partition_offset, row_offset| RowPlace {
        token: Token(token),
        partition,
        partition_offset,
        row_offset,
    };
    let places = [place(-5, 0, 0, 20), place(-5, 0, 0, 60), place(7, 1, 100, 120)];
    let built = rows::build(&places, &[(Token(0), 80)]);
    let golden = include_str!("golden_rows_v1.hex");
    assert_eq!(hex(&built), hex(&unhex(golden)));
    let golden = unhex(golden);
    let summary = rows::open(&golden).unwrap();
    let mut reader = RowsReader::new(summary.clone().into());
    for (id, expected) in places.iter().enumerate() {
        assert_eq!(rows::ask(&golden, &mut reader, |r| r.place(id as u32)).unwrap(), *expected);
    }
}
