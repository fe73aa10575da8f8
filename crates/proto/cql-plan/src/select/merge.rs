//! Restrictions of the same columns made one, or refused with Cassandra's words.
//!
//! Source: `RestrictionSet.mergeRestrictions`, `SingleRestriction.mergeWith`.

use schema::Table;

use super::relations::list;
use super::restrictions::{Condition, Restriction};
use crate::error::PlanError;

/// One side of two slices: at most one of them may have it.
pub(crate) fn merge_limit<L>(
    old: Option<L>,
    new: Option<L>,
    side: &str,
    columns: impl Fn() -> String,
) -> Result<Option<L>, PlanError> {
    if old.is_some() && new.is_some() {
        return Err(PlanError::invalid(format!(
            "More than one restriction was found for the {side} bound on {}",
            columns()
        )));
    }
    Ok(old.or(new))
}

/// Adds a restriction to a set ordered by column, merging it with those of the same columns.
pub(crate) fn merge_into(
    table: &Table,
    set: &mut Vec<Restriction>,
    mut new: Restriction,
) -> Result<(), PlanError> {
    while let Some(at) = set.iter().position(|old| old.overlaps(&new)) {
        let old = set.remove(at);
        new = merge(table, old, new)?;
    }
    let at = set.partition_point(|r| r.first < new.first);
    set.insert(at, new);
    Ok(())
}

fn merge(table: &Table, old: Restriction, new: Restriction) -> Result<Restriction, PlanError> {
    let refuse = |text: String| Err(PlanError::invalid(text));
    let common = || {
        let (start, end) =
            (old.first.max(new.first), (old.first + old.count).min(new.first + new.count));
        list(table.columns.get(start..end).unwrap_or(&[]), " ,")
    };
    match (old.condition.clone(), new.condition.clone()) {
        // Analysed conditions come after merging.
        (Condition::Eq(_) | Condition::Analyzed(..), _) => refuse(format!(
            "{} cannot be restricted by more than one relation if it includes an Equal",
            common()
        )),
        (Condition::In(_), _) => refuse(format!(
            "{} cannot be restricted by more than one relation if it includes a IN",
            common()
        )),
        (Condition::Like(..), _) => refuse(format!(
            "{} cannot be restricted by more than one relation if it includes a LIKE",
            common()
        )),
        (Condition::Slice { start, end }, Condition::Slice { start: new_start, end: new_end }) => {
            if old.first != new.first {
                let column = if old.multi { new.first } else { old.first };
                return refuse(format!(
                    "Column \"{}\" cannot be restricted by two inequalities not starting with the \
                     same column",
                    table.columns.get(column).map_or("", |c| &*c.name)
                ));
            }
            Ok(Restriction {
                first: old.first,
                count: old.count.max(new.count),
                multi: old.multi || new.multi,
                condition: Condition::Slice {
                    start: merge_limit(start, new_start, "start", common)?,
                    end: merge_limit(end, new_end, "end", common)?,
                },
            })
        }
        (Condition::Slice { .. }, _) => refuse(format!(
            "Column \"{}\" cannot be restricted by both an equality and an inequality relation",
            common()
        )),
        (
            Condition::Contains { mut values, mut keys, mut entries },
            Condition::Contains { values: v, keys: k, entries: e },
        ) => {
            values.extend(v);
            keys.extend(k);
            entries.extend(e);
            Ok(Restriction { condition: Condition::Contains { values, keys, entries }, ..old })
        }
        (Condition::Contains { .. }, _) => refuse(format!(
            "Collection column {} can only be restricted by CONTAINS, CONTAINS KEY, or map-entry \
             equality",
            common()
        )),
    }
}
