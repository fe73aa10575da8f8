//! Replay of old commit-log segments into memtables.

use std::time::Duration;

use commitlog::{Record, ReplaySummary, SegmentHeader};
use data::MutationRef;

use crate::error::StoreError;
use crate::store::Store;

/// What replay did, for the log line at start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayReport {
    /// Segments of earlier runs.
    pub segments: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Mutations in them, of all shards.
    pub mutations: u64,
    /// Mutations applied by this shard.
    pub applied: u64,
    /// Mutations of tables that do not exist any more.
    pub dropped_tables: u64,
    /// Tails lost in a crash: file, offset of the first byte dropped, bytes dropped.
    pub tails: Vec<(String, u64, u64)>,
    /// Leftovers of unfinished writes that were removed.
    pub removed_files: Vec<String>,
    /// How long it took.
    pub took: Duration,
}

impl Store {
    pub(crate) async fn replay(&self) -> Result<ReplayReport, StoreError> {
        let began = self.inner.rt.now();
        let mut report = ReplayReport::default();
        let visit = |_: &SegmentHeader, record: Record<'_>| match record {
            Record::Mutation(bytes) => self.replay_mutation(bytes, &mut report),
            Record::Truncation(truncation) => {
                self.replay_truncation(&truncation);
                Ok(())
            }
            Record::Descriptor(_) | Record::Marker(_) => Ok(()),
        };
        let summary: ReplaySummary = self.inner.log.replay(visit).await?;
        report.segments = summary.segments;
        report.bytes = summary.bytes;
        report.mutations = summary.mutations;
        report.tails = summary.tails;
        report.took = self.inner.rt.now().since(began);
        Ok(report)
    }

    /// An acknowledged mutation that cannot be read is an error, not a warning: the start is refused.
    fn replay_mutation(&self, bytes: &[u8], report: &mut ReplayReport) -> Result<(), &'static str> {
        const UNREADABLE: &str = "its checksum is right, but it is no mutation of this version";
        let opened = MutationRef::open(bytes).ok_or(UNREADABLE)?;
        let token = codec::token_of(opened.key);
        let (shard, shards) = (self.inner.rt.shard(), self.inner.rt.shard_count());
        if (self.inner.options.shard_of)(token, shards) != shard {
            return Ok(());
        }
        let Some(table) = self.table(opened.table) else {
            report.dropped_tables += 1;
            return Ok(());
        };
        let clustering = table.version().table.clustering_count;
        let mutation = MutationRef::parse(bytes, clustering).ok_or(UNREADABLE)?;
        self.apply_to_memtable(&table, &mutation, token, None);
        table.view.borrow().active.set_replayed();
        report.applied += 1;
        Ok(())
    }
}
