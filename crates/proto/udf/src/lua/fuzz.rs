//! Any bytes as a value of any type, to Lua and back.

use types::{CqlType, parse_marshal};

use crate::{Function, Language, Limits, Signature};

/// Splits the input at its first byte into a type's marshal name and a value. A valid value of the
/// type comes back unchanged or is refused, and nothing panics.
pub(super) fn fuzz_lua_value(data: &[u8]) {
    let Some((len, rest)) = data.split_first() else { return };
    let Some((name, value)) = rest.split_at_checked(usize::from(*len)) else { return };
    let Ok((ty, _)) = parse_marshal(&String::from_utf8_lossy(name)) else { return };
    let signature = Signature {
        name: "f".to_owned(),
        arg_names: vec!["a".to_owned()],
        args: vec![ty.clone()],
        returns: ty.clone(),
        called_on_null_input: true,
    };
    let made = Function::compile(Language::Lua, signature, "return a", &Limits::default());
    let Ok(function) = made else { return };
    if let Ok(Some(result)) = function.call(&[Some(value)], &mut 1_000_000) {
        assert_eq!(ty.validate(&result), Ok(()), "INV-udf-2: {ty}");
        let exact = matches!(
            ty,
            CqlType::Ascii | CqlType::Text | CqlType::Blob | CqlType::Int | CqlType::Bigint
        );
        assert!(!exact || result == value, "{ty} {value:?}");
    }
}

#[cfg(test)]
mod tests {
    use types::wire::{encode_collection, encode_map, encode_tuple};

    use super::*;

    /// A number that follows from the one before (Knuth's constants).
    fn step(state: &mut u64) -> usize {
        *state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(*state >> 33).unwrap()
    }

    #[test]
    fn values_survive_mutation() {
        let list = encode_collection([[0, 0, 0, 1], [0, 0, 0, 2]]).unwrap();
        let map = encode_map([("a", [1]), ("b", [2])]).unwrap();
        let tuple = encode_tuple([Some(vec![0, 0, 0, 1]), None]).unwrap();
        let seeds = [
            (CqlType::Int, vec![0, 0, 0, 1]),
            (CqlType::Text, b"text".to_vec()),
            (CqlType::Decimal, vec![0, 0, 0, 2, 5]),
            (CqlType::Varint, vec![0x7f, 0xff]),
            (CqlType::Duration, vec![2, 4, 6]),
            (CqlType::Inet, vec![127, 0, 0, 1]),
            (CqlType::Timeuuid, vec![0x11; 16]),
            (CqlType::list(CqlType::Int, false), list.clone()),
            (CqlType::set(CqlType::Int, false), list),
            (CqlType::map(CqlType::Text, CqlType::Tinyint, false), map),
            (CqlType::tuple([CqlType::Int, CqlType::Text]), tuple),
            (CqlType::vector(CqlType::Float, 2), vec![0; 8]),
        ];
        let mut state = 7;
        for (ty, value) in seeds {
            let name = ty.to_marshal_name().replace("org.apache.cassandra.db.marshal.", "");
            let mut seed = vec![u8::try_from(name.len()).unwrap()];
            seed.extend(name.as_bytes());
            seed.extend(value);
            fuzz_lua_value(&seed);
            for _ in 0..850 {
                let mut input = seed.clone();
                // Mostly in the value, which is the shorter part.
                let from = if step(&mut state) % 4 == 0 { 0 } else { name.len() + 1 };
                for _ in 0..=step(&mut state) % 3 {
                    let at = from + step(&mut state) % (input.len() - from).max(1);
                    match step(&mut state) % 3 {
                        0 if at < input.len() => input[at] = step(&mut state) as u8,
                        1 => input.insert(at.min(input.len()), step(&mut state) as u8),
                        _ if at < input.len() && input.len() > from + 1 => drop(input.remove(at)),
                        _ => {}
                    }
                }
                fuzz_lua_value(&input);
            }
        }
    }
}
