//! The order of terms is the order of the values.

use std::cmp::Ordering;

use testkit::Random;
use types::CqlType;

use crate::terms::{Encoded, Target, TermEncoder};
use crate::text::TextOptions;
use crate::writer::TERM_BYTES_MAX;

const PLAIN: TextOptions =
    TextOptions { ignores_case: false, normalizes: false, folds_to_ascii: false };

fn bytes(random: &mut Random, length: usize) -> Vec<u8> {
    let byte = |random: &mut Random| [0, 1, 0x7f, 0x80, 0xff, random.byte()][random.below(6)];
    (0..length).map(|_| byte(random)).collect()
}

/// A valid value of a type that an index takes.
fn value(ty: &CqlType, random: &mut Random) -> Vec<u8> {
    match ty {
        CqlType::Ascii | CqlType::Text => {
            let parts = ["", "\0", "a", "ab", "ä", "z", "\u{1f600}", "\u{7f}"];
            (0..random.below(4)).flat_map(|_| parts[random.below(8)].bytes()).collect()
        }
        CqlType::Boolean => vec![random.byte() & 1],
        CqlType::Tinyint => bytes(random, 1),
        CqlType::Smallint => bytes(random, 2),
        CqlType::Int | CqlType::Float | CqlType::Date => bytes(random, 4),
        CqlType::Bigint | CqlType::Double | CqlType::Timestamp => bytes(random, 8),
        CqlType::Time => (random.next_u64() % 86_400_000_000_000).to_be_bytes().to_vec(),
        CqlType::Inet => {
            let length = [4, 16][random.below(2)];
            bytes(random, length)
        }
        CqlType::Uuid | CqlType::Timeuuid => {
            let mut uuid = bytes(random, 16);
            let version = if *ty == CqlType::Timeuuid { 1 } else { 1 + random.byte() % 8 };
            uuid[6] = version << 4 | uuid[6] & 15;
            uuid[8] = uuid[8] & 0x3f | 0x80;
            uuid
        }
        CqlType::Blob => {
            let length = random.below(5);
            bytes(random, length)
        }
        CqlType::Varint => {
            let most = [2, 4, 12, 30][random.below(4)];
            let length = 1 + random.below(most);
            bytes(random, length)
        }
        CqlType::Decimal => {
            let scale = match random.below(8) {
                0 => i32::MAX - random.below(3) as i32,
                1 => i32::MIN + random.below(3) as i32,
                _ => random.below(9) as i32 - 4,
            };
            let mut out = scale.to_be_bytes().to_vec();
            let most = [2, 4, 12][random.below(3)];
            let length = 1 + random.below(most);
            out.extend(bytes(random, length));
            out
        }
        _ => unreachable!("{ty:?}"),
    }
}

fn term(encoder: &TermEncoder, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    assert_eq!(encoder.value(value, &mut out), Encoded::Term, "{value:02x?}");
    out
}

const TYPES: [CqlType; 20] = [
    CqlType::Ascii,
    CqlType::Bigint,
    CqlType::Blob,
    CqlType::Boolean,
    CqlType::Date,
    CqlType::Decimal,
    CqlType::Double,
    CqlType::Float,
    CqlType::Inet,
    CqlType::Int,
    CqlType::Smallint,
    CqlType::Text,
    CqlType::Time,
    CqlType::Timestamp,
    CqlType::Timeuuid,
    CqlType::Tinyint,
    CqlType::Uuid,
    CqlType::Varint,
    CqlType::Decimal,
    CqlType::Varint,
];

#[test]
fn terms_have_the_order_of_their_values() {
    for ty in &TYPES {
        let encoder = TermEncoder::new(ty, Target::Whole, PLAIN).unwrap();
        let mut random = Random::new(11);
        let values: Vec<Vec<u8>> = (0..250).map(|_| value(ty, &mut random)).collect();
        let terms: Vec<Vec<u8>> = values.iter().map(|value| term(&encoder, value)).collect();
        let mut equal = 0;
        for (a, of_a) in values.iter().zip(&terms) {
            for (b, of_b) in values.iter().zip(&terms) {
                let order = ty.compare(a, b);
                equal += usize::from(order == Ordering::Equal && a != b);
                assert_eq!(of_a.cmp(of_b), order, "{ty:?} {a:02x?} {b:02x?}");
            }
        }
        if matches!(ty, CqlType::Decimal | CqlType::Varint) {
            assert!(equal > 0, "{ty:?}: no two spellings of a number");
        }
    }
}

#[test]
fn frozen_values_are_equal_as_a_whole() {
    let list = CqlType::list(CqlType::Int, true);
    let encoder = TermEncoder::new(&list, Target::Whole, PLAIN).unwrap();
    let of = |elements: &[i32]| {
        let mut out = (elements.len() as i32).to_be_bytes().to_vec();
        for element in elements {
            out.extend(4i32.to_be_bytes());
            out.extend(element.to_be_bytes());
        }
        out
    };
    let lists = [&[][..], &[-1], &[1], &[1, 2], &[1, 3], &[2]].map(of);
    for a in &lists {
        for b in &lists {
            assert_eq!(term(&encoder, a).cmp(&term(&encoder, b)), list.compare(a, b));
        }
    }
}

#[test]
fn entries_are_ordered_by_key_then_value_and_never_mixed() {
    let map = CqlType::map(CqlType::Text, CqlType::Int, false);
    let encoder = TermEncoder::new(&map, Target::Entries, PLAIN).unwrap();
    let mut random = Random::new(2);
    let pairs: Vec<(Vec<u8>, Vec<u8>)> = (0..150)
        .map(|_| (value(&CqlType::Text, &mut random), value(&CqlType::Int, &mut random)))
        .collect();
    let entry = |(key, value): &(Vec<u8>, Vec<u8>)| {
        let mut out = Vec::new();
        assert_eq!(encoder.cell(key, value, &mut out), Encoded::Term);
        out
    };
    for a in &pairs {
        for b in &pairs {
            let order = CqlType::Text.compare(&a.0, &b.0).then(CqlType::Int.compare(&a.1, &b.1));
            assert_eq!(entry(a).cmp(&entry(b)), order, "{a:02x?} {b:02x?}");
        }
    }
}

#[test]
fn cells_of_collections_give_what_the_target_names() {
    let check = |ty: &CqlType, target, expected: &[u8]| {
        let mut out = Vec::new();
        let encoder = TermEncoder::new(ty, target, PLAIN).unwrap();
        assert_eq!(encoder.cell(b"path", b"value", &mut out), Encoded::Term);
        assert_eq!(out, expected, "{ty:?} {target:?}");
    };
    check(&CqlType::list(CqlType::Text, false), Target::Values, b"value");
    check(&CqlType::set(CqlType::Text, false), Target::Values, b"path");
    let map = CqlType::map(CqlType::Text, CqlType::Text, false);
    check(&map, Target::Values, b"value");
    check(&map, Target::Keys, b"path");
    check(&map, Target::Entries, b"path\0\0value");
    check(&CqlType::Text, Target::Whole, b"value");
}

#[test]
fn what_has_no_term_is_named() {
    let new = |ty: &CqlType, target| TermEncoder::new(ty, target, PLAIN);
    let map = CqlType::map(CqlType::Text, CqlType::Int, false);
    for (ty, target) in [
        (&map, Target::Whole),
        (&CqlType::Int, Target::Values),
        (&CqlType::set(CqlType::Int, false), Target::Keys),
        (&CqlType::Counter, Target::Whole),
        (&CqlType::Duration, Target::Whole),
        (&CqlType::list(CqlType::Duration, true), Target::Whole),
    ] {
        assert!(new(ty, target).is_err(), "{ty:?} {target:?}");
    }
    let mut out = b"kept".to_vec();
    let int = new(&CqlType::Int, Target::Whole).unwrap();
    assert_eq!(int.value(b"", &mut out), Encoded::Skipped);
    assert_eq!(int.value(b"12", &mut out), Encoded::Invalid);
    let text = new(&CqlType::Text, Target::Whole).unwrap();
    assert_eq!(text.value(b"\xff", &mut out), Encoded::Invalid);
    assert_eq!(out, b"kept");
    assert_eq!(text.value(b"", &mut out), Encoded::Term, "empty text is a value");
    let long = vec![b'x'; TERM_BYTES_MAX + 1];
    assert_eq!(text.value(&long[1..], &mut out), Encoded::Term);
    assert_eq!(text.value(&long, &mut out), Encoded::Cut);
    assert_eq!(out.len(), 4 + 2 * TERM_BYTES_MAX);
}

#[test]
fn filters_of_text_apply_to_terms() {
    let text = TextOptions { ignores_case: true, ..PLAIN };
    let encoder = TermEncoder::new(&CqlType::Text, Target::Whole, text).unwrap();
    assert_eq!(term(&encoder, b"MiXed"), b"mixed");
}
