//! Reads of candidates by name: several at a time into memory, shown in ring order.
//!
//! A read of some rows of a partition is collected, up to a limit of bytes; what is left of it is read again. A whole
//! partition may be large: its rows are streamed to the sink.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use data::command::ReadCommand;
use index_format::MatchedPartition;
use index_read::{NamedRead, Remainder};
use replica::{PackedPage, PageLimit, PageWriter};
use store::{ReadStats, RowSink};

use super::{IndexOrder, IndexRead, IndexReadError, IndexReads, Wants};
use crate::local::Wanted;
use crate::replicated::read::ReadOptions;
use crate::shared::ReplicatedRead;

/// Reads by name at a time.
const READS_IN_FLIGHT: usize = 32;
/// Bytes of rows after which a read by name that is collected ends.
const READ_BYTES: usize = 256 << 10;

type Collecting<'a> = Pin<Box<dyn Future<Output = Result<PackedPage, IndexReadError>> + 'a>>;

/// A read that runs, or its page.
enum Running<'a> {
    Waits(Collecting<'a>),
    Ended(Result<PackedPage, IndexReadError>),
}

/// The reads in flight, in ring order.
#[derive(Default)]
struct Window<'a>(VecDeque<(NamedRead, Running<'a>)>);

impl Window<'_> {
    /// The page of the first read.
    async fn first(&mut self) -> Option<(NamedRead, Result<PackedPage, IndexReadError>)> {
        poll_fn(|cx| self.poll(cx)).await;
        match self.0.pop_front()? {
            (read, Running::Ended(page)) => Some((read, page)),
            (_, Running::Waits(_)) => None,
        }
    }

    /// Ready when the first one has ended; the others get on meanwhile.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        for (_, running) in &mut self.0 {
            if let Running::Waits(read) = running
                && let Poll::Ready(page) = read.as_mut().poll(cx)
            {
                *running = Running::Ended(page);
            }
        }
        match self.0.front() {
            Some((_, Running::Waits(_))) => Poll::Pending,
            Some((_, Running::Ended(_))) | None => Poll::Ready(()),
        }
    }
}

impl IndexReads {
    /// Reads one command at the level of the statement.
    pub(super) async fn read_command<S: RowSink>(
        &self,
        command: &ReadCommand,
        order: &IndexOrder<'_>,
        sink: &mut S,
    ) -> Result<ReadStats, IndexReadError> {
        let IndexOrder { replicas, trace, .. } = *order;
        let Some(replicas) = replicas else {
            let (local, wanted) = (self.local(), Wanted::rows(usize::MAX));
            return Ok(match trace {
                Some(trace) => local.read_noted(command, wanted, trace.shards(), sink).await?,
                None => local.read_filtered(command, wanted, sink).await?,
            });
        };
        let replicas = ReplicatedRead { rows_wanted: usize::MAX, ..replicas.clone() };
        let options = ReadOptions { trace, filter: None };
        Ok(self.inner.reads.read_traced(command, &replicas, options, sink).await?)
    }

    /// Reads one command into memory.
    async fn collect(
        &self,
        command: ReadCommand,
        order: &IndexOrder<'_>,
    ) -> Result<PackedPage, IndexReadError> {
        let limit = PageLimit {
            rows: usize::MAX,
            bytes: READ_BYTES,
            left_out: usize::MAX,
            tombstones: u32::MAX,
        };
        let mut writer = PageWriter::new(limit);
        let stats = self.read_command(&command, order, &mut writer).await?;
        Ok(writer.finish(stats))
    }
}

impl<S: RowSink> IndexRead<'_, S> {
    /// Reads candidates and shows their rows in order.
    pub(super) async fn read_named(
        &mut self,
        partitions: Vec<MatchedPartition>,
    ) -> Result<Wants, IndexReadError> {
        let mut queue = VecDeque::from(self.named.of(partitions));
        let mut window = Window::default();
        loop {
            let most = usize::try_from(self.missing()).unwrap_or(usize::MAX);
            while window.0.len() < READS_IN_FLIGHT.min(most) {
                let Some(next) = queue.pop_front_if(|next| !self.named.is_large(next)) else {
                    break;
                };
                if self.stream.skips(&next.key) {
                    continue;
                }
                let (this, order) = (self.this, self.order);
                let collecting = this.collect(self.named.command(&next), order);
                window.0.push_back((next, Running::Waits(Box::pin(collecting))));
            }
            match window.first().await {
                Some((read, page)) => self.show_page(read, page?).await?,
                None => match queue.pop_front() {
                    Some(large) => self.read_large(&large).await?,
                    None => return Ok(Wants::More),
                },
            }
            if self.stream.is_stopped() {
                return Ok(Wants::Nothing);
            }
            self.this.local().env().rt.yield_if_due().await;
        }
    }

    /// Shows a page, and what did not fit into it.
    async fn show_page(
        &mut self,
        mut read: NamedRead,
        mut page: PackedPage,
    ) -> Result<(), IndexReadError> {
        loop {
            let stats = page.stats;
            self.add_stats(&stats);
            self.stream.page(&page);
            let end = page.end.as_ref();
            let Some(end) = end.filter(|_| !self.stream.is_stopped()) else { return Ok(()) };
            match self.named.after(&read, end.clustering.as_deref()) {
                Remainder::Nothing => return Ok(()),
                Remainder::Read(rest) => read = rest,
            }
            if self.stream.skips(&read.key) {
                return Ok(());
            }
            page = self.this.collect(self.named.command(&read), self.order).await?;
        }
    }

    /// Streams a whole partition to the sink.
    async fn read_large(&mut self, read: &NamedRead) -> Result<(), IndexReadError> {
        let command = self.named.command(read);
        let (this, order) = (self.this, self.order);
        let stats = Box::pin(this.read_command(&command, order, &mut self.stream)).await?;
        self.add_stats(&stats);
        Ok(())
    }
}
