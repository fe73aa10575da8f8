//! In which order the conditions of a row are looked at.
//!
//! The first that does not hold ends the statement, so that the order says whether a comparison that
//! makes no sense is told or not. Cassandra's order is that of a hash table; it is the same here.
//! Source: `CQL3CasRequest.ColumnsConditions` (a `HashMultimap` by column and element),
//! `Pair.hashCode`, `ColumnIdentifier.hashCode`, `java.nio.ByteBuffer.hashCode`, `java.util.HashMap`.

use schema::Table;

use super::conditions::{BoundCondition, BoundTarget};

/// Slots of the table before it grows: `HashMultimap` expects 12 keys.
const SLOTS: usize = 32;

/// Orders the conditions of one row. Of several on the same column and element the first stays first;
/// in Cassandra their order is another one each time.
pub(super) fn order(conditions: &mut Vec<BoundCondition>, table: &Table) {
    if conditions.len() < 2 {
        return;
    }
    let mut keys: Vec<(&str, Option<&[u8]>)> = Vec::new();
    let mut places = Vec::with_capacity(conditions.len());
    for condition in conditions.iter() {
        let name = table.column_by_id(condition.id).map_or("", |column| &*column.name);
        let element = match &condition.target {
            BoundTarget::Element(element) => element.as_deref(),
            BoundTarget::Whole | BoundTarget::Field(_) => None,
        };
        let key = (name, element);
        let seen = keys.iter().position(|known| *known == key);
        places.push(seen.unwrap_or(keys.len()));
        if seen.is_none() {
            keys.push(key);
        }
    }
    let mut slots = SLOTS;
    while keys.len() > slots / 4 * 3 {
        slots *= 2;
    }
    let slot_of = |(name, element): &(&str, Option<&[u8]>)| {
        let hash = 31_u32.wrapping_add(hash(name.as_bytes())).wrapping_mul(31);
        let hash = hash.wrapping_add(element.map_or(0, self::hash));
        usize::try_from(hash ^ (hash >> 16)).unwrap_or(0) & (slots - 1)
    };
    let slots: Vec<usize> = keys.iter().map(slot_of).collect();
    let mut placed: Vec<((Option<usize>, usize), BoundCondition)> = places
        .into_iter()
        .map(|at| (slots.get(at).copied(), at))
        .zip(std::mem::take(conditions))
        .collect();
    placed.sort_by_key(|(place, _)| *place);
    conditions.extend(placed.into_iter().map(|(_, condition)| condition));
}

/// `ByteBuffer.hashCode`.
fn hash(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(1, |hash: u32, byte| {
        hash.wrapping_mul(31).wrapping_add_signed(i32::from(byte.cast_signed()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_hashed_as_java_does() {
        // `ByteBuffer.wrap("r0".getBytes()).hashCode()`, an empty buffer and a negative byte.
        assert_eq!(hash(b"r0"), 2_563);
        assert_eq!(hash(b""), 1);
        assert_eq!(hash(&[0xff]), 30);
    }
}
