//! LIKE: the indexes that answer it on a column, by the form of the pattern, and its refusals.
//!
//! Patterns are read when values are bound, so a plan has an index for every form.
//!
//! Source: `SingleColumnRestriction.LikeRestriction`, `RowFilter.SimpleExpression`.

use std::sync::Arc;

use index_format::like::{LikeKind, LikePattern, TOKENS_MAX};
use index_format::sasi::SasiOptions;
use index_format::{Analysis, indexed};
use schema::{Column, IndexMetadata, IndexRules, Table};

use super::support::{IndexOperator, answers};
use crate::error::PlanError;

/// The index that answers LIKE patterns of a form.
#[derive(Clone, Debug)]
pub(crate) struct LikeIndex {
    pub(crate) index: Arc<IndexMetadata>,
    /// Analysis of its values, and so of patterns.
    analysis: Analysis,
}

/// Indexes of a column by the form of the pattern, in the order of [`LikeKind::ALL`].
#[derive(Clone, Debug)]
pub(crate) struct LikeIndexes([Option<LikeIndex>; 4]);

impl LikeIndexes {
    /// The indexes of a column; `None`: none answers LIKE. Those of SASI are preferred, as storage-attached ones answer
    /// LIKE in no Cassandra.
    pub(crate) fn of(table: &Table, column: &Column) -> Option<LikeIndexes> {
        let answering = |rules: IndexRules| {
            let of_column = table.indexes_of(column).filter(move |index| index.rules == rules);
            of_column.filter(|index| answers(index, column, IndexOperator::Like))
        };
        let indexes = || answering(IndexRules::Sasi).chain(answering(IndexRules::Sai));
        indexes().next()?;
        let of_kind = |kind| {
            let index = indexes().find(|index| answers_kind(index, column, kind))?;
            let analysis = indexed::analysis(index, &column.ty);
            Some(LikeIndex { index: index.clone(), analysis })
        };
        Some(LikeIndexes(LikeKind::ALL.map(of_kind)))
    }

    /// Any of them.
    pub(crate) fn first(&self) -> Option<&Arc<IndexMetadata>> {
        self.0.iter().flatten().map(|found| &found.index).next()
    }

    fn get(&self, kind: LikeKind) -> Option<&LikeIndex> {
        let at = LikeKind::ALL.iter().position(|other| *other == kind)?;
        self.0.get(at)?.as_ref()
    }

    /// The index for a bound pattern, and the pattern as it analyzes it.
    ///
    /// # Errors
    /// The pattern is empty or has too many tokens, or no index of the column answers its form.
    pub(crate) fn pattern(
        &self,
        column: &str,
        pattern: &[u8],
    ) -> Result<(&LikeIndex, LikePattern), PlanError> {
        let Some((kind, text)) = LikeKind::parse(pattern) else {
            return Err(empty());
        };
        let Some(found) = self.get(kind) else {
            return Err(PlanError::invalid(format!(
                "{column} LIKE '{}' {} is only supported on properly indexed columns",
                shown(kind),
                String::from_utf8_lossy(text)
            )));
        };
        let pattern = LikePattern::new(kind, text, found.analysis);
        match pattern.parts.len() {
            0..=TOKENS_MAX => Ok((found, pattern)),
            count => Err(PlanError::invalid(format!(
                "LIKE pattern has {count} tokens, more than maximum of {TOKENS_MAX}"
            ))),
        }
    }
}

/// The refusal of a pattern without a text.
pub(crate) fn empty() -> PlanError {
    PlanError::invalid("LIKE value can't be empty.")
}

fn answers_kind(index: &IndexMetadata, column: &Column, kind: LikeKind) -> bool {
    match index.rules {
        IndexRules::Sasi => SasiOptions::of(index, &column.ty).answers_like(kind),
        IndexRules::Sai => true,
        IndexRules::Legacy => false,
    }
}

/// The form as error texts show it.
fn shown(kind: LikeKind) -> &'static str {
    match kind {
        LikeKind::Matches => "<term>",
        LikeKind::Prefix => "<term>%",
        LikeKind::Suffix => "%<term>",
        LikeKind::Contains => "%<term>%",
    }
}
