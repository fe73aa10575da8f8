//! Order in which the conditions of a row are evaluated.
//!
//! The first that does not hold ends the statement, so the order decides if an invalid comparison is
//! reported. Cassandra's order is that of a hash table; it is the same here. Source:
//! `CQL3CasRequest.ColumnsConditions` (a `HashMultimap` by column and element), `Pair.hashCode`,
//! `java.util.HashMap`.

use schema::Table;

use crate::conditions::{BoundCondition, BoundTarget};
use crate::java_hash;

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
        let hash = 31_u32.wrapping_add(java_hash::hash(name.as_bytes())).wrapping_mul(31);
        java_hash::slot(hash.wrapping_add(element.map_or(0, java_hash::hash)), slots)
    };
    let slots: Vec<u32> = keys.iter().map(slot_of).collect();
    let mut placed: Vec<((Option<u32>, usize), BoundCondition)> = places
        .into_iter()
        .map(|at| (slots.get(at).copied(), at))
        .zip(std::mem::take(conditions))
        .collect();
    placed.sort_by_key(|(place, _)| *place);
    conditions.extend(placed.into_iter().map(|(_, condition)| condition));
}
