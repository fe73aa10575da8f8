//! The reads of one execution of a SELECT.
//!
//! Checks come in Cassandra's order, which shows when more than one of them fails.
//! Source: `SelectStatement.getSliceCommands`, `getRangeCommand`.

use std::sync::Arc;

use data::Slices;
use data::command::{Partitions, ReadCommand, RingBound};
use schema::TableKind;

use super::bind::{self, Values};
use super::filter::BoundFilters;
use super::restrictions::KeyAccess;
use super::{BoundSelect, SelectPlan};
use crate::error::PlanError;
use crate::paging::PagingState;

impl SelectPlan {
    /// Binds keys, slices and filters; no reads where nothing can be found.
    pub(super) fn bind_reads(
        &self,
        v: &Values<'_>,
        state: Option<PagingState>,
        bound: &mut BoundSelect,
    ) -> Result<(), PlanError> {
        if self.restrictions.access == KeyAccess::Range {
            return self.bind_range(v, state, bound);
        }
        bound.filters = self.filters(v, bound)?;
        let mut keys = bind::partition_keys(&self.restrictions, v)?;
        if let Some(watch) = v.env.watch.filter(|_| self.restrictions.key_is_in()) {
            watch.partition_keys_in_select(&self.results.table.name, keys.len())?;
        }
        let mut command = self.command(v, bound)?;
        if keys.is_empty() || command.slices.0.is_empty() {
            return Ok(());
        }
        bind::check_keys(&keys)?;
        if bound.limit == 0 {
            return Ok(());
        }
        let mut resume = None;
        if let Some(state) = state {
            let Some(at) = keys.iter().position(|key| *key == state.key) else {
                return Err(PlanError::protocol("Invalid value for the paging state"));
            };
            let done = if state.clustering.is_some() { at } else { at + 1 };
            keys.drain(..done);
            resume = bound.resume(state);
        }
        let last = keys.len();
        for (index, key) in keys.into_iter().enumerate() {
            if index + 1 == last {
                command.partitions = Partitions::Key(key);
                command.resume = resume.take();
                bound.reads.push(command);
                break;
            }
            let partitions = Partitions::Key(key);
            bound.reads.push(ReadCommand { partitions, resume: resume.take(), ..command.clone() });
        }
        Ok(())
    }

    fn bind_range(
        &self,
        v: &Values<'_>,
        state: Option<PagingState>,
        bound: &mut BoundSelect,
    ) -> Result<(), PlanError> {
        bound.filters = self.filters(v, bound)?;
        let mut command = self.command(v, bound)?;
        let is_empty = command.slices.0.is_empty();
        // Bounds of the ring are ignored then, unless static columns are selected.
        if is_empty && !self.selects_statics {
            return Ok(());
        }
        let range = bind::key_range(&self.restrictions, v)?;
        let nothing = is_empty || bound.limit == 0;
        let (Some(partitions), false) = (range, nothing) else { return Ok(()) };
        command.partitions = partitions;
        if let (Some(state), Partitions::Range(range)) = (state, &mut command.partitions) {
            let token = codec::token_of(&state.key);
            let after = state.clustering.is_none();
            if self.results.table.kind == TableKind::Virtual {
                bound.floor = Some(range.start.clone());
            }
            range.start = RingBound::Key { token, key: state.key.clone(), after };
            command.resume = bound.resume(state);
        }
        bound.reads.push(command);
        Ok(())
    }

    fn filters(
        &self,
        v: &Values<'_>,
        bound: &BoundSelect,
    ) -> Result<Option<Arc<BoundFilters>>, PlanError> {
        let filters = bind::filters(&self.restrictions, v)?;
        let key_columns = self.results.table.partition_key_count;
        let some = |filters| Arc::new(BoundFilters::new(filters, key_columns, bound.now));
        Ok((!filters.is_empty()).then(|| some(filters)))
    }

    /// A read of no partition yet.
    fn command(&self, v: &Values<'_>, bound: &BoundSelect) -> Result<ReadCommand, PlanError> {
        let slices = match self.results.distinct {
            true => Slices::all(),
            false => bind::slices(&self.restrictions, v, &self.results.comparator)?,
        };
        Ok(ReadCommand {
            table: self.results.table.id,
            partitions: Partitions::Key(Vec::new()),
            slices: Arc::new(slices),
            reversed: self.results.reversed,
            columns: self.looked_at.clone(),
            now: bound.now,
            wants_static: self.results.static_alone,
            resume: None,
            bypass_cache: self.bypass_cache,
        })
    }
}
