//! Byte-comparable forms of keys and clusterings: compared as unsigned bytes they have the order of
//! the values. The tries of format BTI are made of them.
//!
//! Source: `utils.bytecomparable.ByteComparable` (version OSS50) and `asComparableBytes` of the types.

use codec::{Reader, Writer};
use stdx::Token;
use types::custom::CustomKind;
use types::{CqlType, CustomType};

/// In front of each part of a sequence.
const NEXT: u8 = 0x40;
/// In front of a part whose value is empty where its type has no empty values.
const NEXT_EMPTY: u8 = 0x3f;
/// The same in descending order.
const NEXT_EMPTY_REVERSED: u8 = 0x41;
/// Instead of a part that is null.
const NEXT_NULL: u8 = 0x3e;
/// Precedes bytes of a composite that are no component: sorts before all components, after the end.
const NO_COMPONENT: u8 = 0x3a;
/// Behind a whole sequence.
const END: u8 = 0x38;
/// Behind a prefix: before everything with it.
const BEFORE: u8 = 0x20;
/// Behind a prefix: after everything with it.
const AFTER: u8 = 0x60;
/// Deepest nesting of types.
const DEPTH_MAX: usize = 64;

/// Appends a partition key with its token.
pub fn partition_key(token: Token, key: &[u8], out: &mut Vec<u8>) {
    put_token(token, out);
    out.put_u8(NEXT);
    escape(key, out);
    out.put_u8(END);
}

/// Appends the common prefix of the forms of all partition keys of a token, which no other form
/// has.
pub fn partition_token(token: Token, out: &mut Vec<u8>) {
    put_token(token, out);
}

/// How many bytes the forms of two tokens begin with alike: reckoned, as forms that were just made would be waited
/// for.
#[inline]
pub fn shared_of_tokens(a: Token, b: Token) -> usize {
    let alike = usize::try_from((a.0 ^ b.0).leading_zeros() / 8).unwrap_or(0);
    alike.saturating_add(1)
}

/// Appends the place before or after all keys of a token.
pub fn token_bound(token: Token, after: bool, out: &mut Vec<u8>) {
    put_token(token, out);
    out.put_u8(if after { AFTER } else { BEFORE });
}

fn put_token(token: Token, out: &mut Vec<u8>) {
    out.put_u8(NEXT);
    out.put_u64(token.0.cast_unsigned() ^ (1 << 63));
}

/// Position that an encoded clustering stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A row.
    Row,
    /// Before everything with the prefix.
    Before,
    /// After everything with the prefix.
    After,
}

/// Appends a clustering or prefix in `data`'s form. `None`: a type has no such form here, or a
/// value is invalid for its type; the appended bytes are then meaningless.
pub fn clustering(
    prefix: &[u8],
    types: &[(CqlType, bool)],
    place: Place,
    out: &mut Vec<u8>,
) -> Option<()> {
    let mut types = types.iter();
    for value in data::clustering::components(prefix) {
        let (ty, reversed) = types.next()?;
        let Some(value) = value else {
            out.put_u8(NEXT_NULL);
            continue;
        };
        let mark = out.len();
        out.put_u8(NEXT);
        if !put_value(ty, value, 0, out)? {
            out.truncate(mark);
            out.put_u8(if *reversed { NEXT_EMPTY_REVERSED } else { NEXT_EMPTY });
        } else if *reversed {
            let value = out.get_mut(mark.saturating_add(1)..).unwrap_or_default();
            value.iter_mut().for_each(|b| *b = !*b);
        }
    }
    out.put_u8(match place {
        Place::Row => END,
        Place::Before => BEFORE,
        Place::After => AFTER,
    });
    Some(())
}

/// Zeros are escaped, so that a part never looks like one that continues: `00`, then `FE` for each
/// further zero of a run, then `FF`; at the end without the `FF`.
fn escape(bytes: &[u8], out: &mut Vec<u8>) {
    let mut in_zeros = false;
    for byte in bytes {
        match (*byte, in_zeros) {
            (0, false) => out.put_u8(0),
            (0, true) => out.put_u8(0xfe),
            (b, false) => out.put_u8(b),
            (b, true) => {
                out.put_u8(0xff);
                out.put_u8(b);
            }
        }
        in_zeros = *byte == 0;
    }
    out.put_u8(if in_zeros { 0xfe } else { 0 });
}

/// Appends the form of a single value. `Some(false)`: the value is empty and its type gives such values no meaning;
/// `None`: the type has no such form, or the value is invalid for it.
pub fn value(ty: &CqlType, value: &[u8], out: &mut Vec<u8>) -> Option<bool> {
    put_value(ty, value, 0, out)
}

/// `Some(false)`: the value is empty and its type gives such values no meaning.
fn put_value(ty: &CqlType, value: &[u8], depth: usize, out: &mut Vec<u8>) -> Option<bool> {
    if depth > DEPTH_MAX {
        return None;
    }
    match ty {
        CqlType::Ascii | CqlType::Text | CqlType::Blob | CqlType::Inet | CqlType::Duration => {
            escape(value, out);
            return Some(true);
        }
        CqlType::Counter => return None,
        CqlType::Custom(custom) => return put_custom(custom, value, depth, out),
        CqlType::Empty => return Some(false),
        _ if value.is_empty() => return Some(false),
        _ => {}
    }
    match ty {
        CqlType::Int | CqlType::Smallint | CqlType::Tinyint | CqlType::Timestamp => {
            let (first, rest) = value.split_first()?;
            out.put_u8(first ^ 0x80);
            out.put_bytes(rest);
        }
        CqlType::Date | CqlType::Time => out.put_bytes(value),
        CqlType::Boolean => out.put_u8(u8::from(*value.first()? != 0)),
        CqlType::Bigint => {
            put_integer(i64::from_be_bytes(*value.first_chunk()?), out);
        }
        CqlType::Float | CqlType::Double => {
            let negative = value.first()? & 0x80 != 0;
            let start = out.len();
            out.put_bytes(value);
            for (i, byte) in out.get_mut(start..)?.iter_mut().enumerate() {
                if negative {
                    *byte = !*byte;
                } else if i == 0 {
                    *byte ^= 0x80;
                }
            }
        }
        CqlType::Uuid | CqlType::Timeuuid => put_uuid(ty, *value.first_chunk()?, out),
        CqlType::Varint => put_varint(value, out)?,
        CqlType::Decimal => put_decimal(value, out)?,
        CqlType::List { element, .. } | CqlType::Set { element, .. } => {
            let mut r = Reader::new(value, "collection");
            for _ in 0..r.len_i32().ok()? {
                put_part(element, r.bytes_i32().ok(), depth, out)?;
            }
            out.put_u8(END);
        }
        CqlType::Map { key, value: of_map, .. } => {
            let mut r = Reader::new(value, "map");
            for _ in 0..r.len_i32().ok()? {
                put_part(key, Some(r.bytes_i32().ok()?), depth, out)?;
                put_part(of_map, Some(r.bytes_i32().ok()?), depth, out)?;
            }
            out.put_u8(END);
        }
        CqlType::Tuple(fields) => put_fields(fields.iter(), value, depth, out)?,
        CqlType::Udt(udt) => {
            put_fields(udt.fields.iter().map(|(_, ty)| ty), value, depth, out)?;
        }
        CqlType::Vector { element, dimension } => {
            let mut r = Reader::new(value, "vector");
            for _ in 0..*dimension {
                let part = match element.fixed_len() {
                    Some(n) => r.bytes(n).ok()?,
                    None => r.bytes_vint().ok()?,
                };
                put_part(element, Some(part), depth, out)?;
            }
            out.put_u8(END);
        }
        _ => return None,
    }
    Some(true)
}

/// Values of the types that have the name of a class only. Source: `AbstractCompositeType`.
fn put_custom(custom: &CustomType, value: &[u8], depth: usize, out: &mut Vec<u8>) -> Option<bool> {
    let is_dynamic = match custom.kind() {
        CustomKind::Unknown => {
            escape(value, out);
            return Some(true);
        }
        CustomKind::DynamicComposite(_) => true,
        _ if value.is_empty() => return Some(false),
        CustomKind::Composite(_) => false,
        CustomKind::LexicalUuid => {
            // Both halves are signed.
            let bits = u128::from_be_bytes(value.try_into().ok()?);
            out.put_bytes(&(bits ^ (1 << 127 | 1 << 63)).to_be_bytes());
            return Some(true);
        }
    };
    let mut parts = custom.parts(value);
    out.put_u8(if parts.is_static() { NEXT_NULL } else { NEXT });
    while !parts.is_empty() {
        let before = parts.rest();
        let Ok(part) = parts.read() else {
            // Bytes that Cassandra took unchecked: in our order, as they must be written somehow.
            out.put_u8(NO_COMPONENT);
            escape(before, out);
            break;
        };
        let component = &part.component;
        if is_dynamic {
            if component.reversed {
                out.put_u8(NEXT);
                escape(b"ReversedType", out);
            }
            for name in [component.simple_class(), component.class()] {
                out.put_u8(NEXT);
                escape(name.as_bytes(), out);
            }
        }
        let mark = out.len();
        put_part(&component.ty, Some(part.value), depth, out)?;
        if component.reversed && out.get(mark) == Some(&NEXT) {
            let value = out.get_mut(mark.saturating_add(1)..).unwrap_or_default();
            value.iter_mut().for_each(|b| *b = !*b);
        }
        out.put_u8(NEXT);
        out.put_u8(part.end.cast_unsigned() ^ 0x80);
    }
    out.put_u8(END);
    Some(true)
}

/// A part of a sequence inside a value.
fn put_part(ty: &CqlType, value: Option<&[u8]>, depth: usize, out: &mut Vec<u8>) -> Option<()> {
    let mark = out.len();
    out.put_u8(NEXT);
    let there = match value {
        Some(value) => put_value(ty, value, depth.saturating_add(1), out)?,
        None => false,
    };
    if !there {
        out.truncate(mark);
        out.put_u8(NEXT_NULL);
    }
    Some(())
}

/// Fields without nulls at the end.
fn put_fields<'t>(
    types: impl Iterator<Item = &'t CqlType>,
    value: &[u8],
    depth: usize,
    out: &mut Vec<u8>,
) -> Option<()> {
    let mut r = Reader::new(value, "tuple");
    let mut end = out.len();
    for ty in types {
        if r.is_empty() {
            break;
        }
        let length = r.i32().ok()?;
        let field = match usize::try_from(length) {
            Ok(length) => Some(r.bytes(length).ok()?),
            Err(_) => None,
        };
        put_part(ty, field, depth, out)?;
        if field.is_some() {
            end = out.len();
        }
    }
    out.truncate(end);
    out.put_u8(END);
    Some(())
}

/// One to nine bytes: the inverted sign, as many bits like it as bytes follow, a bit unlike it.
#[expect(clippy::arithmetic_side_effects, reason = "lengths of 1 to 9, shifts below 64")]
fn put_integer(value: i64, out: &mut Vec<u8>) {
    let bits = 65 - (value ^ (value >> 63)).leading_zeros();
    let length = bits.div_ceil(7);
    let raw = value.cast_unsigned();
    if length > 8 {
        out.put_u8(if value < 0 { 0 } else { 0xff });
        out.put_u64(raw ^ (1 << 63));
        return;
    }
    let ones = (1u64 << length) - 1;
    let coded = (raw ^ (ones << (7 * length))).to_be_bytes();
    out.put_bytes(coded.get(8 - length as usize..).unwrap_or(&coded));
}

fn put_uuid(ty: &CqlType, bytes: [u8; 16], out: &mut Vec<u8>) {
    let (high, low) = bytes.split_at(8);
    let high = high.iter().fold(0u64, |n, b| n << 8 | u64::from(*b));
    let version = (high >> 12) & 15;
    if version == 1 || *ty == CqlType::Timeuuid {
        out.put_u64(high << 48 | (high << 16) & 0xffff_0000_0000 | high >> 32);
    } else {
        out.put_u64(version << 60 | (high >> 4) & 0x0fff_ffff_ffff_f000 | high & 0xfff);
    }
    let flip = if *ty == CqlType::Timeuuid { 0x80 } else { 0 };
    for byte in low {
        out.put_u8(byte ^ flip);
    }
}

fn put_varint(value: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let first = *value.first()?;
    let sign = if first & 0x80 != 0 { 0xff } else { 0 };
    let mut digits = value;
    if first == sign {
        let behind = value.iter().position(|b| *b != sign);
        let behind = behind.unwrap_or(value.len().saturating_sub(1));
        digits = value.get(behind..)?;
    }
    if digits.len() < 7 {
        let extended = [sign; 8];
        let start = 8usize.checked_sub(digits.len())?;
        let mut word = extended;
        word.get_mut(start..)?.copy_from_slice(digits);
        put_integer(i64::from_be_bytes(word), out);
        return Some(());
    }
    out.put_u8(!sign);
    let start = out.len();
    out.put_vint_unsigned(digits.len().checked_sub(7)? as u64);
    out.get_mut(start..)?.iter_mut().for_each(|b| *b ^= sign);
    out.put_bytes(digits);
    Some(())
}

/// Sign and length of a base-100 exponent, the exponent, base-100 digits, an end.
fn put_decimal(value: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let (scale, unscaled) = value.split_first_chunk::<4>()?;
    let scale = i64::from(i32::from_be_bytes(*scale));
    let text = CqlType::Varint.format_plain(unscaled);
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.as_str()),
    };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    if digits == "0" {
        out.put_u8(0x80);
        return Some(());
    }
    let precision = i64::try_from(digits.len()).ok()?;
    // The mantissa is below 1, and its exponent even, for whole base-100 digits.
    let shifted = scale.checked_sub(precision)? & !1;
    let exponent = i32::try_from(shifted.checked_neg()? >> 1).ok()?;
    let modulated = if negative { exponent.checked_neg()? } else { exponent };
    let length =
        4u8.checked_sub(u8::try_from(modulated.unsigned_abs().leading_zeros() / 8).ok()?)?;
    let base = if negative { 0x40u8 } else { 0xc0 };
    out.put_u8(if modulated < 0 { base.checked_sub(length)? } else { base.checked_add(length)? });
    let bytes = modulated.to_be_bytes();
    out.put_bytes(bytes.get(4usize.checked_sub(usize::from(length))?..)?);
    // An odd number of places before the digits: a zero goes in front.
    let mut places: Vec<u8> = Vec::with_capacity(digits.len().saturating_add(2));
    if scale.checked_sub(shifted)? > precision {
        places.push(0);
    }
    places.extend(digits.trim_end_matches('0').bytes().map(|b| b.wrapping_sub(b'0')));
    if places.len() % 2 == 1 {
        places.push(0);
    }
    let pairs = places.as_chunks::<2>().0;
    let last = pairs.len().checked_sub(1)?;
    for (i, [high, low]) in pairs.iter().enumerate() {
        let pair = high.checked_mul(10)?.checked_add(*low)?;
        // Rounded down each time: what remains of a negative number is positive.
        out.put_u8(match (negative, i == 0, i == last) {
            (false, ..) => 0x80u8.checked_add(pair)?,
            (true, true, true) => 0x80u8.checked_sub(pair)?,
            (true, true, false) => 0x7fu8.checked_sub(pair)?,
            (true, false, true) => 0x80u8.checked_add(100u8.checked_sub(pair)?)?,
            (true, false, false) => 0x80u8.checked_add(99u8.checked_sub(pair)?)?,
        });
    }
    out.put_u8(0);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coded(ty: &CqlType, value: &[u8]) -> String {
        let mut out = Vec::new();
        assert_eq!(put_value(ty, value, 0, &mut out), Some(true));
        out.iter().map(|b| format!("{b:02X}")).collect()
    }

    #[test]
    fn forms_of_tokens_begin_alike_as_far_as_it_is_reckoned() {
        let form = |token| {
            let mut out = Vec::new();
            partition_token(token, &mut out);
            out
        };
        let near =
            (0..64).flat_map(|bit| [1i64 << bit, !(1 << bit), (1i64 << bit).wrapping_sub(1)]);
        let tokens: Vec<Token> = near.chain([0, -1, i64::MIN, i64::MAX]).map(Token).collect();
        for a in &tokens {
            for b in tokens.iter().filter(|b| *b != a) {
                let alike = crate::trie_write::shared(&form(*a), &form(*b));
                assert_eq!(shared_of_tokens(*a, *b), alike, "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn numbers_have_the_forms_of_cassandras_paper() {
        let bigint = |n: i64| coded(&CqlType::Bigint, &n.to_be_bytes());
        for (n, form) in [
            (1, "81"),
            (-1, "7F"),
            (0, "80"),
            (63, "BF"),
            (-64, "40"),
            (64, "C040"),
            (-65, "3FBF"),
            (8191, "DFFF"),
            (8192, "E02000"),
            (i64::from(i32::MAX), "F87FFFFFFF"),
            (i64::MIN, "000000000000000000"),
        ] {
            assert_eq!(bigint(n), form, "{n}");
        }
        let varint = |bytes: &[u8]| coded(&CqlType::Varint, bytes);
        assert_eq!(varint(&[0]), "80");
        assert_eq!(varint(&[0, 0xff]), "C0FF");
        assert_eq!(varint(&[0xff, 0]), "3F00");
        assert_eq!(varint(&[1, 0, 0]), "E10000");
        assert_eq!(varint(&[0xff, 0, 0, 0, 0]), "0700000000");
        assert_eq!(varint(&[1, 0, 0, 0, 0, 0, 0, 0]), "FF010100000000000000");
        assert_eq!(
            varint(&[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
            "00FEFEFFFFFFFFFFFFFF"
        );
        assert_eq!(coded(&CqlType::Int, &1i32.to_be_bytes()), "80000001");
        assert_eq!(coded(&CqlType::Float, &1f32.to_be_bytes()), "BF800000");
        assert_eq!(coded(&CqlType::Float, &(-1f32).to_be_bytes()), "407FFFFF");
        let uuid = |text: &str| {
            let digits: Vec<u8> = text.bytes().filter(|b| *b != b'-').collect();
            let bytes: Vec<u8> = digits
                .chunks(2)
                .map(|c| u8::from_str_radix(std::str::from_utf8(c).unwrap(), 16).unwrap())
                .collect();
            coded(&CqlType::Uuid, &bytes).to_lowercase()
        };
        assert_eq!(
            uuid("cc520882-9507-44fb-8fc9-b349ecdee658"),
            "4cc52088295074fb8fc9b349ecdee658"
        );
        assert_eq!(
            uuid("2a92d750-d8dc-11e6-a2de-cf8ecd4cf053"),
            "11e6d8dc2a92d750a2decf8ecd4cf053"
        );
    }

    #[test]
    fn decimals_have_the_forms_of_cassandras_paper() {
        for (scale, unscaled, form) in [
            (1i32, 11i16, "C101818A00"),
            (0, 1, "C1018100"),
            (2, 1, "C08100"),
            (0, 0, "80"),
            // The paper's table has 81 here, against its own rule and Cassandra's code.
            (2, -1, "407F00"),
            (0, -1, "3FFF7F00"),
            (1, -11, "3FFF7EDA00"),
            (1, -989, "3FFF1D8A00"),
            (0, -99, "3FFF1D00"),
            (1, -999, "3FFF1C8A00"),
            (-1999, -81, "3EFC1777DA00"),
            (2001, 81, "BEFC19888A00"),
            (-1999, 81, "C203E9888A00"),
        ] {
            let mut value = scale.to_be_bytes().to_vec();
            value.extend_from_slice(&unscaled.to_be_bytes());
            assert_eq!(coded(&CqlType::Decimal, &value), form, "{unscaled}e-{scale}");
        }
    }

    /// Results of `asComparableBytes` of a Cassandra 5.0.9.
    #[test]
    fn values_of_class_types_have_cassandras_forms() {
        let check = |name: &str, value: &str, form: &str| {
            let (ty, _) = types::parse_marshal(name).unwrap();
            let value = CqlType::Blob.from_string(value).unwrap();
            assert_eq!(coded(&ty, &value), form.to_uppercase(), "{name} {value:02x?}");
        };
        let hex = |text: &str| text.bytes().map(|b| format!("{b:02x}")).collect::<String>();
        let class = |simple: &str| {
            let full = hex(&format!("org.apache.cassandra.db.marshal.{simple}"));
            format!("40{}0040{full}00", hex(simple))
        };
        let lexical = "LexicalUUIDType";
        check(lexical, "12345678123412341234123456789012", "92345678123412349234123456789012");
        check(lexical, "f2345678123412348234123456789012", "72345678123412340234123456789012");
        let composite = "CompositeType(Int32Type,UTF8Type)";
        check(composite, "00040000000100", "404080000001408038");
        check(composite, "000400000001ff", "404080000001407f38");
        check(composite, "0004000000010000016101", "4040800000014080406100408138");
        check(composite, "000000", "403e408038");
        check(composite, "000000000000", "403e40804000408038");
        check(composite, "ffff00040000000100", "3e4080000001408038");
        let reversed = "CompositeType(UTF8Type,ReversedType(Int32Type))";
        check(reversed, "0001610000040000000500", "404061004080407ffffffa408038");
        check(reversed, "00016100000000", "4040610040803e408038");
        let dynamic = "DynamicCompositeType(s=>UTF8Type,i=>Int32Type,r=>ReversedType(Int32Type))";
        let (text, int) = (class("UTF8Type"), class("Int32Type"));
        check(dynamic, "807300016100", &format!("40{text}406100408038"));
        check(dynamic, "806900040000000100", &format!("40{int}4080000001408038"));
        check(dynamic, "0008555446385479706500016100", &format!("40{text}406100408038"));
        check(
            dynamic,
            "807200040000000500",
            &format!("4040{}00{int}407ffffffa408038", hex("ReversedType")),
        );
        check(
            dynamic,
            "807300016100806900040000000101",
            &format!("40{text}4061004080{int}4080000001408138"),
        );
        check(dynamic, "", "4038");
        // Bytes that are no component; Cassandra has no form for them.
        check(composite, "0004000000010000", "40408000000140803a00fe38");
    }

    #[test]
    fn sequences_have_the_forms_of_cassandras_paper() {
        let of = |values: &[Option<&[u8]>], types: &[(CqlType, bool)], place| {
            let mut prefix = Vec::new();
            values.iter().for_each(|v| data::clustering::push_component(&mut prefix, *v));
            let mut out = Vec::new();
            clustering(&prefix, types, place, &mut out).unwrap();
            out.iter().map(|b| format!("{b:02X}")).collect::<String>()
        };
        let (blob, small) = ((CqlType::Blob, false), (CqlType::Smallint, false));
        let one: Option<&[u8]> = Some(&[0, 0]);
        assert_eq!(
            of(&[Some(&[0x22]), one], &[blob.clone(), small], Place::Row),
            "402200408000".to_owned() + "38"
        );
        assert_eq!(
            of(&[Some(&[0x22, 0])], std::slice::from_ref(&blob), Place::Before),
            "402200FE20"
        );
        assert_eq!(
            of(&[Some(&[0x22, 0, 0])], std::slice::from_ref(&blob), Place::After),
            "402200FEFE60"
        );
        assert_eq!(of(&[Some(&[0x22, 0, 0, 0x33])], &[blob], Place::After), "402200FEFF330060");
        let reversed = (CqlType::Int, true);
        assert_eq!(of(&[Some(b"")], std::slice::from_ref(&reversed), Place::Row), "4138");
        assert_eq!(of(&[None], std::slice::from_ref(&reversed), Place::Row), "3E38");
        assert_eq!(of(&[Some(&[0, 0, 0, 1])], &[reversed], Place::Row), "407FFFFFFE38");
        let mut out = Vec::new();
        partition_key(Token(-1), b"a", &mut out);
        assert_eq!(out, [0x40, 0x7f, 255, 255, 255, 255, 255, 255, 255, 0x40, b'a', 0, 0x38]);
    }
}
