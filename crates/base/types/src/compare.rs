//! The order of values: Cassandra's `AbstractType.compare`, in two forms.
//!
//! [`CqlType::compare`] walks the type; [`Comparator`] is the type compiled for the hot path. Both
//! use the same leaf functions and neither allocates (decimals above 12 bytes excepted).
//!
//! INV-compare-1: each is a total preorder over *all* byte strings, not only over valid values, so
//! that a damaged value cannot make a sorted structure inconsistent. Where Cassandra would throw
//! (a length the type does not have), the value orders after empty and before all valid values, by
//! its bytes.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::custom::CustomKind;
use crate::number::{compare_decimal_bytes, compare_varint_bytes};
use crate::timeuuid::reorder;
use crate::validate::DEPTH_MAX;
use crate::wire::{CollectionKind, Elements, VectorElements, split_value};
use crate::{CqlType, CustomType};

/// A type compiled for comparison: one branch to the leaf function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Comparator {
    /// Unsigned bytes: text, ascii, blob, date, time, duration, inet, unknown classes.
    UnsignedBytes,
    /// 4-byte signed: int.
    Signed4,
    /// 8-byte signed: bigint, timestamp, counter.
    Signed8,
    /// First byte signed, others unsigned: tinyint, smallint.
    SignedFirstByte,
    /// False before true.
    Boolean,
    /// Java's `Float.compare`.
    Float,
    /// Java's `Double.compare`.
    Double,
    /// Version, then time for version 1 and bytes for others.
    Uuid,
    /// Time, then signed bytes.
    Timeuuid,
    /// Numeric order of two's-complement numbers of any length.
    Varint,
    /// Numeric order of decimals.
    Decimal,
    /// All values equal: empty.
    Equal,
    /// Element by element: list, set.
    Elements(Box<Comparator>),
    /// Key, value, key, value, …: map.
    Entries(Box<[Comparator; 2]>),
    /// Field by field, null first: tuple, user type.
    Fields(Box<[Comparator]>),
    /// Vector elements with their fixed length, if any, and the dimension.
    Vector(Box<Comparator>, Option<usize>, u32),
    /// Lexical UUIDs and composites.
    Custom(Arc<CustomType>),
    /// The opposite order (descending clustering): empty values are last.
    Reversed(Box<Comparator>),
}

impl Comparator {
    /// The comparator of a type.
    pub fn for_type(ty: &CqlType) -> Comparator {
        match ty {
            CqlType::Ascii
            | CqlType::Blob
            | CqlType::Date
            | CqlType::Duration
            | CqlType::Inet
            | CqlType::Text
            | CqlType::Time => Comparator::UnsignedBytes,
            CqlType::Custom(custom) => match custom.kind() {
                CustomKind::Unknown => Comparator::UnsignedBytes,
                _ => Comparator::Custom(custom.clone()),
            },
            CqlType::Int => Comparator::Signed4,
            CqlType::Bigint | CqlType::Counter | CqlType::Timestamp => Comparator::Signed8,
            CqlType::Smallint | CqlType::Tinyint => Comparator::SignedFirstByte,
            CqlType::Boolean => Comparator::Boolean,
            CqlType::Decimal => Comparator::Decimal,
            CqlType::Double => Comparator::Double,
            CqlType::Float => Comparator::Float,
            CqlType::Empty => Comparator::Equal,
            CqlType::Timeuuid => Comparator::Timeuuid,
            CqlType::Uuid => Comparator::Uuid,
            CqlType::Varint => Comparator::Varint,
            CqlType::List { element, .. } | CqlType::Set { element, .. } => {
                Comparator::Elements(Box::new(Comparator::for_type(element)))
            }
            CqlType::Map { key, value, .. } => Comparator::Entries(Box::new([
                Comparator::for_type(key),
                Comparator::for_type(value),
            ])),
            CqlType::Tuple(fields) => {
                Comparator::Fields(fields.iter().map(Comparator::for_type).collect())
            }
            CqlType::Udt(udt) => Comparator::Fields(
                udt.fields.iter().map(|(_, t)| Comparator::for_type(t)).collect(),
            ),
            CqlType::Vector { element, dimension } => Comparator::Vector(
                Box::new(Comparator::for_type(element)),
                element.fixed_len(),
                *dimension,
            ),
        }
    }

    /// The opposite order.
    #[must_use]
    pub fn reversed(self) -> Comparator {
        match self {
            Comparator::Reversed(inner) => *inner,
            other => Comparator::Reversed(Box::new(other)),
        }
    }

    /// Order of two values.
    #[inline]
    pub fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        match self {
            Comparator::UnsignedBytes => a.cmp(b),
            Comparator::Signed4 => signed4(a, b),
            Comparator::Signed8 => signed8(a, b),
            Comparator::Timeuuid => timeuuid(a, b),
            Comparator::Reversed(inner) => inner.compare(b, a),
            other => other.compare_rare(a, b),
        }
    }

    #[inline(never)]
    fn compare_rare(&self, a: &[u8], b: &[u8]) -> Ordering {
        match self {
            Comparator::UnsignedBytes => a.cmp(b),
            Comparator::Signed4 | Comparator::Signed8 | Comparator::SignedFirstByte => {
                signed_first_byte(a, b)
            }
            Comparator::Boolean => boolean(a, b),
            Comparator::Float => float(a, b),
            Comparator::Double => double(a, b),
            Comparator::Uuid => uuid(a, b),
            Comparator::Timeuuid => timeuuid(a, b),
            Comparator::Varint => varint(a, b),
            Comparator::Decimal => decimal(a, b),
            Comparator::Equal => Ordering::Equal,
            Comparator::Elements(element) => {
                sequences(a, b, CollectionKind::List, |_, x, y| element.compare(x, y))
            }
            Comparator::Entries(pair) => {
                let [key, value] = &**pair;
                sequences(a, b, CollectionKind::Map, |i, x, y| {
                    if i % 2 == 0 { key.compare(x, y) } else { value.compare(x, y) }
                })
            }
            Comparator::Fields(types) => fields(a, b, types.iter(), |ty, x, y| ty.compare(x, y)),
            Comparator::Vector(element, fixed, dimension) => {
                vectors(a, b, *fixed, *dimension, |x, y| element.compare(x, y))
            }
            Comparator::Custom(custom) => custom.compare(a, b, 0),
            Comparator::Reversed(inner) => inner.compare(b, a),
        }
    }
}

impl CqlType {
    /// Order of two values of the type (`compareForCQL`). Empty values come first. For repeated use
    /// compile a [`Comparator`].
    pub fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        self.compare_at(a, b, 0)
    }

    pub(crate) fn compare_at(&self, a: &[u8], b: &[u8], depth: u32) -> Ordering {
        if depth > DEPTH_MAX {
            return a.cmp(b);
        }
        let depth = depth.saturating_add(1);
        match self {
            CqlType::Ascii
            | CqlType::Blob
            | CqlType::Date
            | CqlType::Duration
            | CqlType::Inet
            | CqlType::Text
            | CqlType::Time => a.cmp(b),
            CqlType::Custom(custom) => custom.compare(a, b, depth),
            CqlType::Int => signed4(a, b),
            CqlType::Bigint | CqlType::Counter | CqlType::Timestamp => signed8(a, b),
            CqlType::Smallint | CqlType::Tinyint => signed_first_byte(a, b),
            CqlType::Boolean => boolean(a, b),
            CqlType::Decimal => decimal(a, b),
            CqlType::Double => double(a, b),
            CqlType::Float => float(a, b),
            CqlType::Empty => Ordering::Equal,
            CqlType::Timeuuid => timeuuid(a, b),
            CqlType::Uuid => uuid(a, b),
            CqlType::Varint => varint(a, b),
            CqlType::List { element, .. } | CqlType::Set { element, .. } => {
                sequences(a, b, CollectionKind::List, |_, x, y| element.compare_at(x, y, depth))
            }
            CqlType::Map { key, value, .. } => sequences(a, b, CollectionKind::Map, |i, x, y| {
                let ty = if i % 2 == 0 { key } else { value };
                ty.compare_at(x, y, depth)
            }),
            CqlType::Tuple(types) => {
                fields(a, b, types.iter(), |ty, x, y| ty.compare_at(x, y, depth))
            }
            CqlType::Udt(udt) => {
                fields(a, b, udt.fields.iter(), |(_, ty), x, y| ty.compare_at(x, y, depth))
            }
            CqlType::Vector { element, dimension } => {
                vectors(a, b, element.fixed_len(), *dimension, |x, y| {
                    element.compare_at(x, y, depth)
                })
            }
        }
    }
}

/// Both values as `N` bytes, or the order of values of which one has another length.
#[inline]
fn fixed<const N: usize>(a: &[u8], b: &[u8]) -> Result<([u8; N], [u8; N]), Ordering> {
    match (<[u8; N]>::try_from(a), <[u8; N]>::try_from(b)) {
        (Ok(a), Ok(b)) => Ok((a, b)),
        (Ok(_), Err(_)) => Err(Ordering::Greater),
        (Err(_), Ok(_)) => Err(Ordering::Less),
        // Empty is the least byte string.
        (Err(_), Err(_)) => Err(a.cmp(b)),
    }
}

#[inline]
fn signed4(a: &[u8], b: &[u8]) -> Ordering {
    match fixed::<4>(a, b) {
        Ok((a, b)) => i32::from_be_bytes(a).cmp(&i32::from_be_bytes(b)),
        Err(order) => order,
    }
}

#[inline]
fn signed8(a: &[u8], b: &[u8]) -> Ordering {
    match fixed::<8>(a, b) {
        Ok((a, b)) => i64::from_be_bytes(a).cmp(&i64::from_be_bytes(b)),
        Err(order) => order,
    }
}

fn signed_first_byte(a: &[u8], b: &[u8]) -> Ordering {
    match (a.split_first(), b.split_first()) {
        (Some((x, a)), Some((y, b))) => {
            x.cast_signed().cmp(&y.cast_signed()).then_with(|| a.cmp(b))
        }
        _ => a.len().cmp(&b.len()),
    }
}

fn boolean(a: &[u8], b: &[u8]) -> Ordering {
    // None (empty) < false < true.
    a.first().map(|x| *x != 0).cmp(&b.first().map(|x| *x != 0))
}

/// Java's order of doubles: -0.0 before 0.0, all NaN equal and last.
fn double(a: &[u8], b: &[u8]) -> Ordering {
    match fixed::<8>(a, b) {
        Ok((a, b)) => {
            let (a, b) = (f64::from_be_bytes(a), f64::from_be_bytes(b));
            a.is_nan()
                .cmp(&b.is_nan())
                .then_with(|| if a.is_nan() { Ordering::Equal } else { a.total_cmp(&b) })
        }
        Err(order) => order,
    }
}

fn float(a: &[u8], b: &[u8]) -> Ordering {
    match fixed::<4>(a, b) {
        Ok((a, b)) => {
            let (a, b) = (f32::from_be_bytes(a), f32::from_be_bytes(b));
            a.is_nan()
                .cmp(&b.is_nan())
                .then_with(|| if a.is_nan() { Ordering::Equal } else { a.total_cmp(&b) })
        }
        Err(order) => order,
    }
}

#[inline]
fn halves(bytes: [u8; 16]) -> (u64, u64) {
    let both = u128::from_be_bytes(bytes);
    let low = u64::try_from(both & u128::from(u64::MAX)).unwrap_or(0);
    (u64::try_from(both >> 64).unwrap_or(0), low)
}

fn uuid(a: &[u8], b: &[u8]) -> Ordering {
    match fixed::<16>(a, b) {
        Ok((a, b)) => {
            let ((ah, al), (bh, bl)) = (halves(a), halves(b));
            let version = |high: u64| high >> 12 & 0xf;
            version(ah)
                .cmp(&version(bh))
                .then_with(|| {
                    if version(ah) == 1 { reorder(ah).cmp(&reorder(bh)) } else { ah.cmp(&bh) }
                })
                .then(al.cmp(&bl))
        }
        Err(order) => order,
    }
}

#[inline]
fn timeuuid(a: &[u8], b: &[u8]) -> Ordering {
    match fixed::<16>(a, b) {
        Ok((a, b)) => {
            let ((ah, al), (bh, bl)) = (halves(a), halves(b));
            // The low half orders by signed bytes: flipping the sign bit of bytes 1..=7 makes the
            // whole a signed number.
            let low = |half: u64| (half ^ 0x0080_8080_8080_8080).cast_signed();
            reorder(ah)
                .cast_signed()
                .cmp(&reorder(bh).cast_signed())
                .then_with(|| low(al).cmp(&low(bl)))
        }
        Err(order) => order,
    }
}

fn varint(a: &[u8], b: &[u8]) -> Ordering {
    if a.is_empty() || b.is_empty() {
        return a.len().cmp(&b.len());
    }
    compare_varint_bytes(a, b)
}

fn decimal(a: &[u8], b: &[u8]) -> Ordering {
    match (a.len() >= 4, b.len() >= 4) {
        (true, true) => compare_decimal_bytes(a, b).unwrap_or(Ordering::Equal),
        (false, false) => a.cmp(b),
        (left, right) => left.cmp(&right),
    }
}

/// Lexicographic order of the values of two collections, then by declared count. A damaged
/// collection is the sequence of values before the damage.
fn sequences(
    a: &[u8],
    b: &[u8],
    kind: CollectionKind,
    mut compare: impl FnMut(usize, &[u8], &[u8]) -> Ordering,
) -> Ordering {
    let (Ok(mut left), Ok(mut right)) = (Elements::new(a, kind), Elements::new(b, kind)) else {
        // Too short for a count, the empty value among them: before all others, by bytes.
        return match (a.len() >= 4, b.len() >= 4) {
            (false, false) => a.cmp(b),
            (left, right) => left.cmp(&right),
        };
    };
    let counts = left.declared_count().cmp(&right.declared_count());
    let mut i = 0usize;
    loop {
        let order = match (left.next_quiet(), right.next_quiet()) {
            (None, None) => return counts,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(Some(x)), Some(Some(y))) => compare(i, x, y),
            (Some(x), Some(y)) => x.is_some().cmp(&y.is_some()),
        };
        if order.is_ne() {
            return order;
        }
        i = i.wrapping_add(1);
    }
}

/// Order of two tuples: empty first, then field by field with null and missing fields first.
fn fields<T>(
    a: &[u8],
    b: &[u8],
    types: impl Iterator<Item = T>,
    mut compare: impl FnMut(T, &[u8], &[u8]) -> Ordering,
) -> Ordering {
    if a.is_empty() || b.is_empty() {
        return (!a.is_empty()).cmp(&!b.is_empty());
    }
    let (mut left, mut right) = (a, b);
    for ty in types {
        let order = match (next_field(&mut left), next_field(&mut right)) {
            (Some(x), Some(y)) => compare(ty, x, y),
            (x, y) => x.is_some().cmp(&y.is_some()),
        };
        if order.is_ne() {
            return order;
        }
    }
    Ordering::Equal
}

/// The next field; null, missing and damaged fields are `None`, and after damage all are.
#[inline]
fn next_field<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    match split_value(rest) {
        Some(field) => field,
        None => {
            *rest = &[];
            None
        }
    }
}

fn vectors(
    a: &[u8],
    b: &[u8],
    fixed: Option<usize>,
    dimension: u32,
    mut compare: impl FnMut(&[u8], &[u8]) -> Ordering,
) -> Ordering {
    if fixed == Some(0) {
        // Elements without bytes are all equal; do not count to the dimension.
        return Ordering::Equal;
    }
    let mut left = VectorElements::with_fixed_len(a, fixed, dimension);
    let mut right = VectorElements::with_fixed_len(b, fixed, dimension);
    loop {
        let order = match (left.next_quiet(), right.next_quiet()) {
            (Some(x), Some(y)) => compare(x, y),
            (x, y) => return x.is_some().cmp(&y.is_some()),
        };
        if order.is_ne() {
            return order;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, all_types, arbitrary_bytes, plausible_value};

    #[test]
    fn every_order_is_total_and_the_compiled_form_agrees() {
        let mut random = Random::new(7);
        for ty in all_types() {
            let comparator = Comparator::for_type(&ty);
            let values: Vec<Vec<u8>> = (0..24)
                .map(|i| {
                    if i % 3 == 0 {
                        arbitrary_bytes(&mut random, 24)
                    } else {
                        plausible_value(&ty, &mut random)
                    }
                })
                .chain([Vec::new()])
                .collect();
            for a in &values {
                assert_eq!(ty.compare(a, a), Ordering::Equal, "{ty} {a:?}");
                for b in &values {
                    let order = ty.compare(a, b);
                    assert_eq!(order, comparator.compare(a, b), "{ty} {a:?} {b:?}");
                    assert_eq!(order, ty.compare(b, a).reverse(), "{ty} {a:?} {b:?}");
                    assert_eq!(order.reverse(), comparator.clone().reversed().compare(a, b));
                    for c in &values {
                        if order.is_le() && ty.compare(b, c).is_le() {
                            assert!(ty.compare(a, c).is_le(), "{ty} {a:?} {b:?} {c:?}");
                        }
                    }
                }
            }
        }
    }

    /// Checks that the literals are in strictly rising order.
    fn rising(ty: &CqlType, literals: &[&str]) {
        let values: Vec<_> = literals
            .iter()
            .map(|l| ty.from_string(l).unwrap_or_else(|e| panic!("{l}: {e}")))
            .collect();
        for (i, a) in values.iter().enumerate() {
            for (j, b) in values.iter().enumerate() {
                assert_eq!(ty.compare(a, b), i.cmp(&j), "{ty} {} {}", literals[i], literals[j]);
            }
        }
    }

    #[test]
    fn simple_values_order_as_in_cassandra() {
        rising(&CqlType::Int, &["", "-2147483648", "-1", "0", "1", "2147483647"]);
        rising(&CqlType::Tinyint, &["-128", "-1", "0", "127"]);
        rising(&CqlType::Smallint, &["-32768", "-256", "-1", "0", "255", "32767"]);
        rising(&CqlType::Double, &["", "-Infinity", "-1", "-0.0", "0.0", "1", "Infinity", "NaN"]);
        rising(&CqlType::Float, &["", "-Infinity", "-1.5", "-0.0", "0.0", "Infinity", "NaN"]);
        rising(&CqlType::Boolean, &["false", "true"]);
        rising(
            &CqlType::Varint,
            &["", "-256", "-129", "-1", "0", "127", "128", "99999999999999999999"],
        );
        rising(&CqlType::Date, &["-0001-01-01", "1969-12-31", "1970-01-01"]);
        rising(&CqlType::Text, &["", "A", "a", "aa", "é"]);
        rising(&CqlType::Inet, &["", "::1", "1.2.3.4", "10.0.0.1", "200.0.0.1"]);
    }

    #[test]
    fn uuids_order_by_version_and_timeuuids_by_time_and_signed_bytes() {
        rising(
            &CqlType::Uuid,
            &[
                "",
                "ffffffff-0000-1000-0000-000000000000",
                "00000000-0001-1000-0000-000000000000",
                "00000000-0000-1001-0000-000000000000",
                "00000000-0000-4000-0000-000000000000",
                "00000001-0000-4000-8000-000000000000",
                "ffffffff-0000-4000-8000-000000000000",
            ],
        );
        rising(
            &CqlType::Timeuuid,
            &[
                "",
                "00000000-0000-1000-8080-808080808080",
                "00000000-0000-1000-8080-8080808080ff",
                "00000000-0000-1000-8080-808080808000",
                "00000000-0000-1000-0000-000000000000",
                "00000000-0000-1000-7f7f-7f7f7f7f7f7f",
                "00000001-0000-1000-8080-808080808080",
            ],
        );
    }

    #[test]
    fn tuples_order_null_first_and_missing_as_null() {
        let tuple = CqlType::tuple([CqlType::Int, CqlType::Int]);
        let value = |fields: &[Option<i32>]| {
            crate::wire::encode_tuple(fields.iter().map(|f| f.map(i32::to_be_bytes)))
                .expect("small")
        };
        let rising = [
            Vec::new(),
            value(&[None, None]),
            value(&[None, Some(-5)]),
            value(&[Some(-1)]),
            value(&[Some(-1), Some(0)]),
            value(&[Some(2)]),
        ];
        for (i, a) in rising.iter().enumerate() {
            for (j, b) in rising.iter().enumerate() {
                assert_eq!(tuple.compare(a, b), i.cmp(&j), "{i} {j}");
            }
        }
        assert_eq!(tuple.compare(&value(&[Some(1)]), &value(&[Some(1), None])), Ordering::Equal);
    }

    #[test]
    fn lists_order_by_elements_then_size() {
        let list = CqlType::list(CqlType::Int, true);
        let value = |items: &[i32]| {
            crate::wire::encode_collection(items.iter().map(|i| i.to_be_bytes())).expect("small")
        };
        let rising =
            [Vec::new(), value(&[]), value(&[-1, 9]), value(&[1]), value(&[1, -7]), value(&[2])];
        for (i, a) in rising.iter().enumerate() {
            for (j, b) in rising.iter().enumerate() {
                assert_eq!(list.compare(a, b), i.cmp(&j), "{i} {j}");
            }
        }
    }
}
