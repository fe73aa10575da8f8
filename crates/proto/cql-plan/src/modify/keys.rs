//! Which partitions and rows a statement names: keys, clustering prefixes and bounds in the scratch
//! buffer.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use data::clustering::push_component;
use data::mutation::KEY_BYTES_MAX;
use data::writable::{Unwritable, check_prefix};
use data::{ClusteringComparator, Slice, Slices, TableShape};
use schema::Table;
use smallvec::SmallVec;

use super::clause::{ClusteringPlan, KeyPart, RowPart, SliceBound, SliceValue};
use super::write::slice;
use crate::column_source::key_component;
use crate::error::PlanError;
use crate::expansion::Combinations;
use crate::functions::{KeyForm, push_key_component};
use crate::slices::{half_space, intersect, ordered};
use crate::values::{BindEnv, Bound, BoundValue};

/// Partitions or rows that one statement may name by combinations of several IN relations. The values of one relation
/// alone are no more than the request has.
pub(super) const COMBINATIONS_MAX: usize = 65_535;

/// Partitions and rows that a modification names.
#[derive(Clone, Debug)]
pub(super) struct NamedRows {
    pub(super) table: Arc<Table>,
    pub(super) shape: TableShape,
    /// Per partition-key column.
    pub(super) key: Vec<KeyPart>,
    pub(super) clustering: ClusteringPlan,
}

impl NamedRows {
    /// Some clustering column is restricted.
    pub(super) fn has_clustering(&self) -> bool {
        !matches!(&self.clustering, ClusteringPlan::Prefix { width: 0, .. })
    }

    /// The whole primary key is given, by equality or IN.
    pub(super) fn has_whole_keys(&self) -> bool {
        let count = self.shape.clustering().len();
        matches!(&self.clustering, ClusteringPlan::Prefix { width, .. } if *width == count)
    }

    /// Serialised partition keys, each once, ascending by their values: the error is that of the
    /// first invalid one. Source: `PartitionKeySingleRestrictionSet.values`.
    pub(super) fn keys(
        &self,
        values: &[BoundValue<'_>],
        env: &BindEnv<'_>,
        scratch: &mut Vec<u8>,
    ) -> Result<SmallVec<[Range<usize>; 1]>, PlanError> {
        let form = KeyForm::of(self.key.len());
        let start = scratch.len();
        let mut keys = SmallVec::new();
        if self.key.iter().all(|part| matches!(part, KeyPart::Equal(..))) {
            let mut bytes = 0_usize;
            for part in &self.key {
                let KeyPart::Equal(column, term) = part else { continue };
                let bound = term.bind(values, env)?;
                let value = key_value(column, &bound)?;
                bytes = bytes.saturating_add(value.len());
                // The message is about the values of all columns.
                if bytes <= KEY_BYTES_MAX {
                    push_key_component(scratch, value, form)?;
                }
            }
            check_length(bytes)?;
            check_key(scratch.len().saturating_sub(start))?;
            keys.push(start..scratch.len());
            return Ok(keys);
        }
        let mut combined: Vec<Vec<u8>> = vec![Vec::new()];
        for part in &self.key {
            let (mut next, mut size) = (Vec::new(), Combinations::new());
            for_each_value(part, values, env, &mut |bytes| {
                for prefix in &combined {
                    let mut key = prefix.clone();
                    push_key_component(&mut key, bytes, form)?;
                    push_combination(&mut next, key, combined.len(), &mut size)?;
                }
                Ok(())
            })?;
            if let Some(watch) = env.watch {
                watch.combinations("partition key", next.len())?;
            }
            combined = next;
        }
        combined.sort_by(|a, b| self.compare_keys(a, b));
        combined.dedup_by(|a, b| self.compare_keys(a, b).is_eq());
        for key in combined {
            check_key(key.len())?;
            let at = scratch.len();
            scratch.extend_from_slice(&key);
            keys.push(at..scratch.len());
        }
        Ok(keys)
    }

    fn compare_keys(&self, a: &[u8], b: &[u8]) -> Ordering {
        let columns = self.table.partition_key();
        let mut all = (0_u16..).zip(columns).map(|(index, column)| {
            let of = |key| key_component(key, columns.len(), index).unwrap_or_default();
            column.ty.compare(of(a), of(b))
        });
        all.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    }

    /// Serialised clusterings or prefixes, ascending, each once. Cassandra checks the length of whole clusterings,
    /// and not in conditional statements; longer prefixes it takes and cannot flush.
    pub(super) fn prefixes(
        &self,
        values: &[BoundValue<'_>],
        env: &BindEnv<'_>,
        scratch: &mut Vec<u8>,
    ) -> Result<SmallVec<[Range<usize>; 1]>, PlanError> {
        let (ClusteringPlan::Prefix { parts, .. } | ClusteringPlan::Slice { parts, .. }) =
            &self.clustering;
        let start = scratch.len();
        let mut prefixes = SmallVec::new();
        if parts.iter().all(|p| matches!(p, RowPart::One(KeyPart::Equal(..)))) {
            for part in parts {
                let RowPart::One(KeyPart::Equal(column, term)) = part else { continue };
                let bound = term.bind(values, env)?;
                push_component(scratch, Some(key_value(column, &bound)?));
            }
            check_prefix(slice(scratch, &(start..scratch.len()))).map_err(too_long)?;
            prefixes.push(start..scratch.len());
            return Ok(prefixes);
        }
        let mut combined: Vec<Vec<u8>> = vec![Vec::new()];
        for part in parts {
            let (mut next, mut size) = (Vec::new(), Combinations::new());
            for_each_row_value(part, values, env, &mut |components| {
                for prefix in &combined {
                    let mut clustering = prefix.clone();
                    clustering.extend_from_slice(components);
                    push_combination(&mut next, clustering, combined.len(), &mut size)?;
                }
                Ok(())
            })?;
            if let Some(watch) = env.watch {
                watch.combinations("clustering key", next.len())?;
            }
            combined = next;
        }
        let comparator = self.shape.clustering();
        combined.sort_by(|a, b| comparator.compare(a, b));
        combined.dedup_by(|a, b| comparator.compare(a, b).is_eq());
        for prefix in combined {
            check_prefix(&prefix).map_err(too_long)?;
            let at = scratch.len();
            scratch.extend_from_slice(&prefix);
            prefixes.push(at..scratch.len());
        }
        Ok(prefixes)
    }

    /// The ranges of rows that bounds name below every prefix.
    pub(super) fn ranges(
        &self,
        bounds: Bounds<'_>,
        reversed: &[bool],
        values: &[BoundValue<'_>],
        env: &BindEnv<'_>,
        scratch: &mut Vec<u8>,
    ) -> Result<Vec<Slice>, PlanError> {
        let (mut ranges, mut size) = (Vec::new(), Combinations::new());
        for prefix in self.prefixes(values, env, scratch)? {
            let prefix = slice(scratch, &prefix).to_vec();
            let order = self.shape.clustering();
            for range in pieces(&prefix, bounds, reversed, order, values, env)?.0 {
                size.add(range.start.len() + range.end.len())?;
                ranges.push(range);
            }
        }
        // Cassandra takes longer bounds and cannot flush them.
        for range in &ranges {
            check_prefix(&range.start).and_then(|()| check_prefix(&range.end)).map_err(too_long)?;
        }
        Ok(ranges)
    }

    /// Looks at the values that name rows; how many rows or ranges they name.
    ///
    /// # Errors
    /// Those of [`super::ModifyPlan::bind`] for them.
    #[cold]
    pub(super) fn count_named(
        &self,
        values: &[BoundValue<'_>],
        env: &BindEnv<'_>,
        scratch: &mut Vec<u8>,
    ) -> Result<usize, PlanError> {
        match &self.clustering {
            ClusteringPlan::Slice { lower, upper, reversed, .. } => {
                let bounds = Bounds { lower: lower.as_ref(), upper: upper.as_ref() };
                Ok(self.ranges(bounds, reversed, values, env, scratch)?.len())
            }
            ClusteringPlan::Prefix { .. } => Ok(self.prefixes(values, env, scratch)?.len()),
        }
    }
}

/// `prefixes`: how many the values of this relation are combined with, one after the other.
fn push_combination(
    combined: &mut Vec<Vec<u8>>,
    one: Vec<u8>,
    prefixes: usize,
    size: &mut Combinations,
) -> Result<(), PlanError> {
    size.add(one.len())?;
    let is_product = prefixes > 1 && combined.len() >= prefixes;
    if is_product && combined.len() >= COMBINATIONS_MAX {
        return Err(PlanError::invalid(format!(
            "IN relations of one statement name more than {COMBINATIONS_MAX} keys"
        )));
    }
    combined.push(one);
    Ok(())
}

#[cold]
fn too_long(error: Unwritable) -> PlanError {
    PlanError::invalid(error.to_string())
}

fn check_key(len: usize) -> Result<(), PlanError> {
    if len == 0 {
        return Err(PlanError::invalid("Key may not be empty"));
    }
    check_length(len)
}

fn check_length(len: usize) -> Result<(), PlanError> {
    if len > KEY_BYTES_MAX {
        return Err(PlanError::invalid(format!(
            "Key length of {len} is longer than maximum of {KEY_BYTES_MAX}"
        )));
    }
    Ok(())
}

/// A key component, which must be there.
fn key_value<'b>(column: &Arc<str>, bound: &'b Bound<'_>) -> Result<&'b [u8], PlanError> {
    match bound {
        Bound::Value(bytes) => Ok(bytes),
        Bound::Null => {
            Err(PlanError::invalid(format!("Invalid null value in condition for column {column}")))
        }
        Bound::Unset => Err(PlanError::invalid(format!("Invalid unset value for column {column}"))),
    }
}

type Visit<'f> = dyn FnMut(&[u8]) -> Result<(), PlanError> + 'f;

fn for_each_value(
    part: &KeyPart,
    values: &[BoundValue<'_>],
    env: &BindEnv<'_>,
    visit: &mut Visit<'_>,
) -> Result<(), PlanError> {
    match part {
        KeyPart::Equal(column, term) => visit(key_value(column, &term.bind(values, env)?)?),
        KeyPart::In(column, planned) => {
            for bound in planned.bind(column, values, env)? {
                visit(key_value(column, &bound)?)?;
            }
            Ok(())
        }
    }
}

fn tuple_components(columns: &[Arc<str>], bound: &[Bound<'_>]) -> Result<Vec<u8>, PlanError> {
    let mut components = Vec::new();
    for (column, value) in columns.iter().zip(bound) {
        let bytes = value
            .value()
            .ok_or_else(|| PlanError::invalid(format!("Invalid null value for column {column}")))?;
        push_component(&mut components, Some(bytes));
    }
    Ok(components)
}

/// Like [`for_each_value`] for clustering columns; gives serialised components.
fn for_each_row_value(
    part: &RowPart,
    values: &[BoundValue<'_>],
    env: &BindEnv<'_>,
    visit: &mut Visit<'_>,
) -> Result<(), PlanError> {
    match part {
        RowPart::One(part) => for_each_value(part, values, env, &mut |bytes| {
            let mut component = Vec::new();
            push_component(&mut component, Some(bytes));
            visit(&component)
        }),
        RowPart::Absent => {
            let mut component = Vec::new();
            push_component(&mut component, None);
            visit(&component)
        }
        RowPart::Tuple(columns, planned) => {
            let bound = planned.bind(columns.len(), values, env)?;
            visit(&tuple_components(columns, &bound)?)
        }
        RowPart::TupleIn(columns, planned) => {
            for bound in planned.bind(columns.len(), values, env)? {
                visit(&tuple_components(columns, &bound)?)?;
            }
            Ok(())
        }
    }
}

/// The bounds of a range of rows; `None` is no bound.
#[derive(Clone, Copy)]
pub(super) struct Bounds<'b> {
    pub(super) lower: Option<&'b SliceBound>,
    pub(super) upper: Option<&'b SliceBound>,
}

/// The slices of a range of values below `prefix`, ascending: one where all columns go in one
/// direction, more where some descend.
pub(super) fn pieces(
    prefix: &[u8],
    bounds: Bounds<'_>,
    reversed: &[bool],
    comparator: &ClusteringComparator,
    values: &[BoundValue<'_>],
    env: &BindEnv<'_>,
) -> Result<Slices, PlanError> {
    let mut sides = Vec::new();
    for (bound, greater) in [(bounds.lower, true), (bounds.upper, false)] {
        let Some(bound) = bound else { continue };
        match bound_row(bound, values, env)? {
            Some(row) => {
                let reversed = reversed.get(..row.len()).unwrap_or(reversed);
                sides.push(half_space(prefix, &row, reversed, greater, bound.inclusive));
            }
            // Null is less than every value.
            None if greater => {}
            None => return Ok(Slices(Vec::new())),
        }
    }
    let mut out = Vec::new();
    match sides.as_slice() {
        [a, b] => {
            for a in a {
                out.extend(b.iter().map(|b| intersect(a, b, comparator)));
            }
        }
        [side] => out.clone_from(side),
        _ => out.push(Slice::prefix(prefix.to_vec())),
    }
    Ok(ordered(out, comparator))
}

/// The values of a bound; `None` is the null of one column.
fn bound_row(
    bound: &SliceBound,
    values: &[BoundValue<'_>],
    env: &BindEnv<'_>,
) -> Result<Option<Vec<Option<Vec<u8>>>>, PlanError> {
    let mut row = Vec::with_capacity(bound.columns.len());
    match &bound.value {
        SliceValue::One(term) => {
            let value = term.bind(values, env)?;
            if matches!(value, Bound::Null) {
                return Ok(None);
            }
            let column = bound.columns.first().cloned().unwrap_or_else(|| Arc::from(""));
            row.push(Some(key_value(&column, &value)?.to_vec()));
        }
        SliceValue::Tuple(planned) => {
            for (column, value) in
                bound.columns.iter().zip(planned.bind(bound.columns.len(), values, env)?)
            {
                row.push(Some(key_value(column, &value)?.to_vec()));
            }
        }
    }
    Ok(Some(row))
}
