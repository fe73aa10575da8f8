//! Types and deterministic random values for tests and fuzz functions.

use std::sync::Arc;

use crate::custom::CustomKind;
use crate::wire::{encode_collection, encode_map, encode_tuple, put_vint_unsigned};
use crate::{CqlType, CustomType, UdtType};

/// The types without parts.
pub(crate) fn simple_types() -> Vec<CqlType> {
    vec![
        CqlType::Ascii,
        CqlType::Bigint,
        CqlType::Blob,
        CqlType::Boolean,
        CqlType::Counter,
        CqlType::Date,
        CqlType::Decimal,
        CqlType::Double,
        CqlType::Duration,
        CqlType::Empty,
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
    ]
}

/// The simple types and some of each kind of compound.
pub(crate) fn all_types() -> Vec<CqlType> {
    let udt = CqlType::Udt(Arc::new(UdtType {
        keyspace: "ks".into(),
        name: "point".into(),
        fields: vec![
            ("x".to_owned(), CqlType::Int),
            ("Label".to_owned(), CqlType::Text),
            ("more".to_owned(), CqlType::list(CqlType::Varint, true)),
        ],
        frozen: true,
    }));
    let mut types = simple_types();
    types.extend([
        CqlType::list(CqlType::Int, false),
        CqlType::list(CqlType::Text, true),
        CqlType::set(CqlType::Timeuuid, true),
        CqlType::map(CqlType::Text, CqlType::list(CqlType::Decimal, true), false),
        CqlType::map(CqlType::Int, udt.clone(), true),
        CqlType::tuple([CqlType::Boolean, CqlType::Uuid, CqlType::list(CqlType::Int, true)]),
        udt,
        CqlType::vector(CqlType::Float, 3),
        CqlType::vector(CqlType::Text, 2),
        CqlType::vector(CqlType::tuple([CqlType::Int, CqlType::Double]), 2),
        CqlType::vector(CqlType::Boolean, 4),
        CqlType::custom(CustomType::unknown("org.example.Strange")),
        CqlType::custom(CustomType::lexical_uuid()),
        CqlType::custom(
            CustomType::composite(vec![(CqlType::Int, false), (CqlType::Text, true)])
                .expect("two components"),
        ),
        CqlType::custom(CustomType::dynamic_composite(vec![
            (b'i', CqlType::Int, false),
            (b'r', CqlType::Int, true),
            (b's', CqlType::Text, false),
        ])),
    ]);
    types
}

/// SplitMix64.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() >> 33).unwrap_or(0) % limit.max(1)
    }
}

/// Up to `limit` bytes, many of them small, 0x80 or 0xff.
pub(crate) fn arbitrary_bytes(random: &mut Random, limit: usize) -> Vec<u8> {
    (0..random.below(limit)).map(|_| byte(random)).collect()
}

fn byte(random: &mut Random) -> u8 {
    let raw = random.next().to_be_bytes();
    match raw[0] % 4 {
        0 => raw[1] % 4,
        1 => 0xff,
        2 => 0x80,
        _ => raw[1],
    }
}

fn put_component(out: &mut Vec<u8>, value: &[u8]) {
    out.extend((value.len() as u16).to_be_bytes());
    out.extend(value);
    out.push(0);
}

/// Bytes that are a value of the type.
pub(crate) fn plausible_value(ty: &CqlType, random: &mut Random) -> Vec<u8> {
    fn bytes(random: &mut Random, len: usize) -> Vec<u8> {
        (0..len).map(|_| byte(random)).collect()
    }
    if ty.allows_empty_value() && random.below(8) == 0 {
        return Vec::new();
    }
    let count = random.below(4);
    let mut inner = |ty: &CqlType| plausible_value(ty, random);
    match ty {
        CqlType::List { element, .. } | CqlType::Set { element, .. } => {
            encode_collection((0..count).map(|_| inner(element))).expect("small")
        }
        CqlType::Map { key, value, .. } => {
            encode_map((0..count).map(|_| (inner(key), inner(value)))).expect("small")
        }
        CqlType::Tuple(types) => {
            encode_tuple(types.iter().take(count).map(|t| Some(inner(t)))).expect("small")
        }
        CqlType::Udt(udt) => encode_tuple(
            udt.fields.iter().enumerate().map(|(i, (_, t))| (i != count).then(|| inner(t))),
        )
        .expect("small"),
        CqlType::Vector { element, dimension } => {
            let fixed = element.fixed_len();
            let mut out = Vec::new();
            for _ in 0..*dimension {
                let mut value = inner(element);
                while fixed.is_some_and(|len| value.len() != len) {
                    value = inner(element);
                }
                if fixed.is_none() {
                    put_vint_unsigned(&mut out, value.len() as u64);
                }
                out.extend(value);
            }
            out
        }
        CqlType::Ascii | CqlType::Text => {
            (0..count).map(|_| b'a' + (random.next() % 3) as u8).collect()
        }
        CqlType::Custom(custom) => match custom.kind() {
            CustomKind::Unknown => bytes(random, count),
            CustomKind::LexicalUuid => bytes(random, 16),
            CustomKind::Composite(components) => {
                let mut out = if count == 3 { vec![0xff, 0xff] } else { Vec::new() };
                for component in components.iter().take(count) {
                    put_component(&mut out, &inner(&component.ty));
                }
                out
            }
            CustomKind::DynamicComposite(aliases) => {
                let mut out = Vec::new();
                for at in 0..count {
                    let (alias, component) = &aliases[at % aliases.len()];
                    match alias {
                        b's' => out.extend(b"\x00\x08UTF8Type"),
                        _ => out.extend([0x80, *alias]),
                    }
                    put_component(&mut out, &inner(&component.ty));
                }
                out
            }
        },
        CqlType::Blob => bytes(random, count),
        CqlType::Empty => Vec::new(),
        CqlType::Varint => bytes(random, count + 1),
        CqlType::Decimal => {
            let scale = random.below(9) as i32 - 4;
            let mut out = scale.to_be_bytes().to_vec();
            let len = if count == 3 { 14 } else { count + 1 };
            out.extend(bytes(random, len));
            out
        }
        CqlType::Boolean | CqlType::Tinyint => bytes(random, 1),
        CqlType::Smallint => bytes(random, 2),
        CqlType::Int | CqlType::Float | CqlType::Date => bytes(random, 4),
        CqlType::Inet => bytes(random, if count < 2 { 4 } else { 16 }),
        CqlType::Bigint
        | CqlType::Counter
        | CqlType::Double
        | CqlType::Time
        | CqlType::Timestamp => bytes(random, 8),
        CqlType::Uuid => bytes(random, 16),
        CqlType::Timeuuid => {
            let mut out = bytes(random, 16);
            out[6] = 0x10 | (out[6] & 0x0f);
            out
        }
        CqlType::Duration => crate::duration::Duration::new(
            random.below(5) as i32,
            random.below(5) as i32,
            random.below(5) as i64,
        )
        .expect("positive")
        .to_bytes(),
    }
}
