//! Entry points for fuzzers: none of them may panic on any input.

use crate::arithmetic::Operand;
use crate::{Comparator, CqlType, parse_marshal};

/// Splits the input at its first byte into a type's marshal name and two values, then validates,
/// orders and prints them.
pub fn fuzz_values(data: &[u8]) {
    let Some((name_len, rest)) = data.split_first() else {
        return;
    };
    let Some((name, values)) = rest.split_at_checked(usize::from(*name_len)) else {
        return;
    };
    let Ok((ty, _)) = parse_marshal(&String::from_utf8_lossy(name)) else {
        return;
    };
    let (a, b) = values.split_at_checked(values.len() / 2).unwrap_or((values, &[]));
    check_type(&ty, a, b);
}

/// Every function over two arbitrary byte strings as values of a type.
pub fn check_type(ty: &CqlType, a: &[u8], b: &[u8]) {
    let order = ty.compare(a, b);
    assert_eq!(order, Comparator::for_type(ty).compare(a, b), "INV-compare-1: {ty}");
    assert_eq!(order, ty.compare(b, a).reverse(), "INV-compare-1: {ty}");
    for value in [a, b] {
        let valid = ty.validate(value).is_ok();
        let literal = ty.format_cql_literal(value);
        let plain = ty.format_plain(value);
        let json = ty.to_json(value);
        assert!(!json.is_empty() && (!literal.is_empty() || *ty == CqlType::Duration || !valid));
        let reads_back = matches!(
            ty,
            CqlType::Int
                | CqlType::Bigint
                | CqlType::Varint
                | CqlType::Uuid
                | CqlType::Date
                | CqlType::Inet
        );
        if valid && reads_back && !value.is_empty() {
            let back = ty.from_string(&plain).unwrap_or_default();
            assert!(ty.compare(&back, value).is_eq() || *ty == CqlType::Inet, "{ty} {plain}");
        }
        for to in
            [CqlType::Text, CqlType::Varint, CqlType::Decimal, CqlType::Timestamp, CqlType::Tinyint]
        {
            drop(crate::cast::cast(ty, &to, Some(value)));
        }
        for op in [
            crate::arithmetic::Operator::Add,
            crate::arithmetic::Operator::Divide,
            crate::arithmetic::Operator::Modulo,
        ] {
            drop(op.apply(Operand::new(ty, Some(a)), Operand::new(ty, Some(b))));
            drop(op.apply(Operand::new(ty, Some(a)), Operand::new(&CqlType::Duration, Some(b))));
        }
    }
}

/// The marshal name parser: an accepted name prints to a name that parses to the same type.
pub fn fuzz_marshal_name(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    drop(crate::marshal::parse_marshal_components(&text));
    if let Ok((ty, _)) = parse_marshal(&text) {
        drop(ty.to_cql_name());
        drop(parse_marshal(&ty.to_marshal_name()));
    }
}

/// The literal parser of the type that the first byte picks: an accepted literal is a valid value.
pub fn fuzz_literal(data: &[u8]) {
    const TYPES: [CqlType; 21] = [
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
    ];
    let Some((pick, text)) = data.split_first() else {
        return;
    };
    let text = String::from_utf8_lossy(text);
    let Some(ty) = TYPES.get(usize::from(*pick) % TYPES.len()) else {
        return;
    };
    if let Ok(value) = ty.from_string_at(&text, 1_700_000_000_000) {
        let hex = matches!(ty, CqlType::Counter);
        let empty = value.is_empty();
        assert!(hex || empty || ty.validate(&value).is_ok(), "{ty} {text:?}");
        drop(ty.format_cql_literal(&value));
    }
    drop(crate::CqlType::tuple(TYPES).from_string(&text));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, all_types, arbitrary_bytes, plausible_value};

    /// Runs `check` over the corpus and 10,000 mutations of it.
    fn mutations(seed: u64, corpus: &[Vec<u8>], check: impl Fn(&[u8])) {
        let mut random = Random::new(seed);
        corpus.iter().for_each(|input| check(input));
        for _ in 0..10_000 {
            let mut input = corpus[random.below(corpus.len())].clone();
            for _ in 0..=random.below(3) {
                let at = random.below(input.len().max(1));
                match random.below(4) {
                    0 => input.truncate(at),
                    1 => input.insert(at.min(input.len()), random.next() as u8),
                    2 if at < input.len() => drop(input.remove(at)),
                    _ if at < input.len() => input[at] = random.next() as u8,
                    _ => {}
                }
            }
            check(&input);
        }
    }

    #[test]
    fn values_of_every_type_survive_mutation() {
        let mut random = Random::new(11);
        let mut corpus = Vec::new();
        for ty in all_types() {
            let name = ty.to_marshal_name();
            for _ in 0..3 {
                if let Ok(len) = u8::try_from(name.len()) {
                    let mut input = vec![len];
                    input.extend(name.as_bytes());
                    let value = plausible_value(&ty, &mut random);
                    input.extend(&value);
                    input.extend(plausible_value(&ty, &mut random));
                    corpus.push(input);
                }
            }
            for _ in 0..200 {
                let a = plausible_value(&ty, &mut random);
                assert_eq!(ty.validate(&a), Ok(()), "{ty} {a:?}");
                check_type(&ty, &a, &arbitrary_bytes(&mut random, 40));
            }
        }
        mutations(1, &corpus, fuzz_values);
    }

    #[test]
    fn marshal_names_survive_mutation() {
        let corpus: Vec<Vec<u8>> = all_types()
            .iter()
            .map(|ty| {
                ty.to_marshal_name().replace("org.apache.cassandra.db.marshal.", "").into_bytes()
            })
            .collect();
        mutations(2, &corpus, fuzz_marshal_name);
    }

    #[test]
    fn literals_survive_mutation() {
        let texts = [
            "abc",
            "-123",
            "0xcafe",
            "true",
            "2011-02-03 04:05:06.789+0100",
            "2011-02-03",
            "1.5e-7",
            "NaN",
            "1y2mo3d4h5m6s7ms8us9ns",
            "P1Y2M3DT4H5M6S",
            "P0001-02-03T04:05:06",
            "::ffff:1.2.3.4",
            "10.1",
            "13:14:15.123456789",
            "c4fb3e00-2f4a-11e0-8080-808080808080",
            "",
            "99999999999999999999",
            "-5877641-06-23",
            "a:b\\:c:@",
        ];
        let corpus: Vec<Vec<u8>> =
            (0..21u8).flat_map(|pick| texts.map(|t| [&[pick], t.as_bytes()].concat())).collect();
        mutations(3, &corpus, fuzz_literal);
    }
}
