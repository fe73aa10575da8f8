//! The row that a statement of a conditional write names.
//!
//! Source: `ModificationStatement.makeCasRequest`, `BatchStatement.makeCasRequest`.

use super::clause::{ClusteringPlan, KeyPart, RowPart};
use super::operations::ColumnOperations;
use super::write::slice;
use super::{ModifyKind, ModifyPlan, lists};
use crate::error::PlanError;
use crate::term::PlannedTupleIn;
use crate::values::{BindEnv, BoundValue, ExecuteOptions};
use stdx::{ColumnId, Token};

/// Part of the partition that a statement applies to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    /// The static row.
    Static,
    /// One row, by serialised clustering (empty without clustering columns).
    Row(Vec<u8>),
    /// Several rows or all of them; never with IF.
    Range,
}

impl ModifyPlan {
    /// The one partition.
    ///
    /// # Errors
    /// Those of [`ModifyPlan::bind`] for the values; several partitions.
    pub(crate) fn one_key(
        &self,
        values: &[BoundValue<'_>],
        env: &BindEnv<'_>,
        in_batch: bool,
    ) -> Result<Vec<u8>, PlanError> {
        let mut scratch = Vec::new();
        let keys =
            self.with_document(values, env, |values| self.rows.keys(values, env, &mut scratch))?;
        if self.rows.key.iter().any(|part| matches!(part, KeyPart::In(..))) {
            return Err(PlanError::invalid(match in_batch {
                true => "Batch with conditions cannot span multiple partitions (you cannot use IN \
                         on the partition key)"
                    .to_owned(),
                false => format!(
                    "IN on the partition key is not supported with conditional {}",
                    self.plural()
                ),
            }));
        }
        Ok(keys.first().map(|key| slice(&scratch, key).to_vec()).unwrap_or_default())
    }

    /// The tokens of the partitions, ascending by their keys; which nodes they are of can be asked
    /// before anything is bound.
    ///
    /// # Errors
    /// Those of [`ModifyPlan::bind`] for the values of the partition key.
    pub fn partition_tokens(
        &self,
        values: &[BoundValue<'_>],
        options: &ExecuteOptions<'_>,
    ) -> Result<Vec<Token>, PlanError> {
        let mut scratch = Vec::new();
        // Limits are checked when it is bound.
        let env = BindEnv { watch: None, ..options.env() };
        let keys =
            self.with_document(values, &env, |values| self.rows.keys(values, &env, &mut scratch))?;
        Ok(keys.iter().map(|key| codec::token_of(slice(&scratch, key))).collect())
    }

    /// Looks at the partition keys alone.
    ///
    /// # Errors
    /// Those of [`ModifyPlan::bind`] for their values.
    pub(crate) fn check_keys(
        &self,
        values: &[BoundValue<'_>],
        env: &BindEnv<'_>,
        scratch: &mut Vec<u8>,
    ) -> Result<(), PlanError> {
        self.with_document(values, env, |values| self.rows.keys(values, env, scratch)).map(drop)
    }

    /// The row in its partition.
    ///
    /// # Errors
    /// Those of [`ModifyPlan::bind`] for the values; IN on clustering columns.
    pub(crate) fn named(
        &self,
        values: &[BoundValue<'_>],
        env: &BindEnv<'_>,
    ) -> Result<Named, PlanError> {
        let (ClusteringPlan::Prefix { parts, .. } | ClusteringPlan::Slice { parts, .. }) =
            &self.rows.clustering;
        let has_in = parts.iter().any(|part| match part {
            RowPart::One(KeyPart::In(..)) => true,
            RowPart::TupleIn(_, PlannedTupleIn::Tuples(tuples)) => tuples.len() != 1,
            RowPart::TupleIn(_, PlannedTupleIn::Marker(..)) => true,
            RowPart::One(KeyPart::Equal(..)) | RowPart::Tuple(..) | RowPart::Absent => false,
        });
        if has_in {
            return Err(PlanError::invalid(format!(
                "IN on the clustering key columns is not supported with conditional {}",
                self.plural()
            )));
        }
        if self.is_about_statics() {
            return Ok(Named::Static);
        }
        let mut scratch = Vec::new();
        if !self.rows.has_whole_keys() {
            self.rows.count_named(values, env, &mut scratch)?;
            return Ok(Named::Range);
        }
        let rows = self
            .with_document(values, env, |values| self.rows.prefixes(values, env, &mut scratch))?;
        Ok(Named::Row(rows.first().map(|row| slice(&scratch, row).to_vec()).unwrap_or_default()))
    }

    fn plural(&self) -> &'static str {
        // Cassandra's `StatementType.isUpdate` is true of UPDATE alone.
        if self.kind == ModifyKind::Update { "updates" } else { "deletions" }
    }

    /// Operations and conditions on static columns only, and no row is named.
    fn is_about_statics(&self) -> bool {
        let on_regulars = !self.regulars.is_empty()
            || (self.kind == ModifyKind::Delete && self.statics.is_empty());
        !on_regulars
            && !self.conditions.on_regulars()
            && (!self.statics.is_empty() || self.conditions.on_statics())
            && !self.rows.has_clustering()
    }

    /// Rows (not only the static one) are written. Source: `updatesRegularRows`.
    pub(crate) fn updates_rows(&self) -> bool {
        self.shape().clustering().is_empty() || self.rows.has_clustering()
    }

    /// Static columns are written. Source: `updatesStaticRow`.
    pub(crate) fn updates_statics(&self) -> bool {
        !self.statics.is_empty()
    }

    /// The columns that conditions and operations read. Source: `conditionColumns`.
    pub(crate) fn looks_at(&self) -> Vec<ColumnId> {
        let conditions = self.conditions.columns().iter().map(|c| c.column.id);
        let operations = |columns: &[ColumnOperations]| lists::reading(columns);
        conditions.chain(operations(&self.statics)).chain(operations(&self.regulars)).collect()
    }
}
