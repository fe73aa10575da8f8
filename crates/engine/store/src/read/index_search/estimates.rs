//! Estimates: counts of the candidates of predicates, without reading them.

use index_format::Counts;
use index_format::cursor::{Estimate, EstimateStep};
use index_format::search::{Frontier, Matches};
use sstable::IndexComponent;

use super::{Searching, Stopped, rows_of};

impl Searching<'_> {
    /// Sums what each file and memtable holds of each predicate: exactly of files that have the index, all rows of
    /// others. A filter of terms is left out, since each term would be read: then the sum is an upper bound.
    pub(super) async fn estimate(&mut self) -> Result<Matches, Stopped> {
        let mut estimates = Vec::new();
        for number in 0..self.search.predicates.len() {
            estimates.push(self.estimate_of(number).await?);
        }
        let rows = self.table_rows();
        Ok(Matches { partitions: Vec::new(), frontier: Frontier::Done, estimates, rows })
    }

    async fn estimate_of(&mut self, number: usize) -> Result<u64, Stopped> {
        let (asked, _) = self.asked(number)?;
        let mut sum = 0u64;
        let view = self.view.clone();
        for file in view.files.iter().filter(|file| self.may_have(file)).collect::<Vec<_>>() {
            let open = file.reader.index(asked.index);
            let rows = match open.and_then(|open| open.terms().cloned()) {
                None => rows_of(file),
                Some(summary) => {
                    let mut estimate = Estimate::new(&summary, asked.ranges.clone());
                    self.counts(file, IndexComponent::Entries(asked.index), &mut estimate)
                        .await?
                        .ids
                }
            };
            sum = sum.saturating_add(rows);
        }
        for memtable in view.memtables() {
            let indexed = memtable.with_index(asked.index, |index| match asked.filter {
                None => index.estimate(asked.ranges.clone()).ids,
                Some(_) => index.counts().ids,
            });
            sum = sum.saturating_add(indexed.unwrap_or(memtable.mutation_count()));
        }
        Ok(sum)
    }

    async fn counts(
        &mut self,
        file: &crate::tables::table_file::TableFile,
        component: IndexComponent,
        estimate: &mut Estimate,
    ) -> Result<Counts, Stopped> {
        loop {
            match estimate.advance() {
                Ok(EstimateStep::Counts(counts)) => return Ok(counts),
                Ok(EstimateStep::NeedBlock(at)) => {
                    let block = self.block(file, component, at).await?;
                    estimate.feed(block);
                }
                Err(error) => {
                    let IndexComponent::Entries(_) = component else { return Err(Stopped::Again) };
                    let path =
                        file.reader.meta().file(sstable::Component::Attached(component.name()));
                    let what = error.to_string();
                    let error = sstable::SstableError::Corrupt { file: path, offset: 0, what };
                    return Err(self.lose(file, component, &error));
                }
            }
        }
    }
}
