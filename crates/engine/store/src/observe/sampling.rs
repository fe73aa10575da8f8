//! Sampling on request: `nodetool profileload`.

use std::time::Duration;

use stdx::TableId;

use crate::error::StoreError;
use crate::observe::Observer;
use crate::tables::sampling::{Sample, Sampler};

impl Observer {
    /// Samples a table for this duration, each sampler with a capacity of this many entries.
    ///
    /// # Errors
    /// `UnknownTable`; `Invalid`: one of them is on already.
    pub fn begin_sampling(
        &self,
        id: TableId,
        samplers: &[Sampler],
        capacity: usize,
        duration: Duration,
    ) -> Result<(), StoreError> {
        let Some(table) = self.tables.table(id) else { return Err(StoreError::UnknownTable(id)) };
        let now = self.env.rt.now();
        table.counters.sampling.begin(samplers, capacity, now, duration)
    }

    /// Stops samplers, and returns the first entries of each, largest first; none where it was not
    /// on.
    pub fn finish_sampling(
        &self,
        id: TableId,
        samplers: &[Sampler],
        count: usize,
    ) -> Vec<(Sampler, Vec<Sample>)> {
        let table = self.tables.table(id);
        table.map_or_else(Vec::new, |table| table.counters.sampling.finish(samplers, count))
    }

    /// Reports that a conditional write met `count` contending ones.
    #[inline]
    pub fn note_contentions(&self, id: TableId, key: &[u8], contentions: u64) {
        if contentions > 0
            && let Some(table) = self.tables.table(id)
            && table.counters.sampling.is_on()
        {
            table.counters.sampling.note_contentions(self.env.rt.now(), key, contentions);
        }
    }
}
