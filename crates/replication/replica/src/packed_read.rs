//! Packed pages of one shard: of its rows, or of the results of work on them.

use std::rc::Rc;
use std::sync::Arc;

use data::command::{KeyRange, Partitions, ReadCommand};
use data::{FoldState, RowFilter, RowFold};
use schema::Table;
use store::{ReadStats, RowSink, StoreError};

use crate::env::Env;
use crate::folded_page::FoldSink;
use crate::packed_page::{PackedPage, PageLimit, PageWriter};
use crate::shard_reads;

/// Work that a shard does on the rows of a read, instead of sending all of them.
#[derive(Clone, Debug)]
pub enum ShardWork {
    /// Filters out unwanted rows.
    Filter(Arc<dyn RowFilter>),
    /// Folds the rows to results.
    Fold(Arc<dyn RowFold>),
}

/// Decodes the work on rows of a table that another node's front end requests, or returns the
/// reason for refusing it.
pub type ScanPlanner = Rc<dyn Fn(&[u8], &Arc<Table>) -> Result<ShardWork, String>>;

/// A read of one page of one shard.
#[derive(Debug)]
pub struct PackedRead {
    /// Command to execute; the owner restricts its partitions to its own.
    pub command: ReadCommand,
    /// For a range: further ranges that are read after it, ascending.
    pub further: Vec<KeyRange>,
    /// Limits at which the page stops.
    pub limit: PageLimit,
    /// Work done on the rows there; `None`: all rows are returned unmodified.
    pub work: Option<ShardWork>,
    /// State of the fold at the end of the page before.
    pub state: Option<FoldState>,
}

impl PackedRead {
    /// Reads the page on this shard.
    ///
    /// # Errors
    /// Those of [`store::Store::read`].
    pub async fn read(self, env: &Env) -> Result<PackedPage, StoreError> {
        let PackedRead { command, further, limit, work, state } = self;
        let ranges = Ranges { command: &command, further: &further };
        let filter = match &work {
            Some(ShardWork::Fold(fold)) => {
                env.folded.inc();
                let (on_shard, mut out) = (fold.on_shard(), Vec::new());
                let mut sink = FoldSink::new(on_shard.begin(state, &mut out), limit);
                let stats = ranges.read(env, &mut sink, FoldSink::is_full).await?;
                return Ok(sink.finish(stats));
            }
            Some(ShardWork::Filter(filter)) => Some(&**filter as &dyn RowFilter),
            None => None,
        };
        let mut writer = PageWriter::new(limit).filtered(filter, &command);
        let stats = ranges.read(env, &mut writer, PageWriter::is_full).await?;
        Ok(writer.finish(stats))
    }
}

/// A command and the ranges after its own.
struct Ranges<'a> {
    command: &'a ReadCommand,
    further: &'a [KeyRange],
}

impl Ranges<'_> {
    /// Reads the command and, until the sink is full, the same of the further ranges.
    async fn read<S: RowSink>(
        &self,
        env: &Env,
        sink: &mut S,
        is_full: impl Fn(&S) -> bool,
    ) -> Result<ReadStats, StoreError> {
        let mut stats = env.store.read(self.command, sink).await?;
        if self.further.is_empty() {
            return Ok(stats);
        }
        let mut next = ReadCommand { resume: None, ..self.command.clone() };
        for range in self.further {
            if is_full(sink) {
                break;
            }
            next.partitions = Partitions::Range(range.clone());
            shard_reads::add(&mut stats, &env.store.read(&next, sink).await?);
            env.rt.yield_if_due().await;
        }
        Ok(stats)
    }
}
