//! The one stream of rows that the reads by name of an indexed read make: as if one scan had read them.

use data::RowRef;
use index_format::{Frontier, Matches};
use replica::{PackedPage, PageItem};
use stdx::Token;
use store::{Flow, Look, LookedAt, RowSink};

/// Shows rows of consecutive reads to a sink. Consecutive reads of one partition are one partition for the sink.
pub(super) struct RowStream<'a, S> {
    sink: &'a mut S,
    /// The partition that was announced and not ended.
    open: Option<Open>,
    /// The sink has enough.
    is_stopped: bool,
}

struct Open {
    key: Vec<u8>,
    /// The sink wants nothing more of it.
    is_skipped: bool,
}

impl<'a, S: RowSink> RowStream<'a, S> {
    pub(super) fn new(sink: &'a mut S) -> RowStream<'a, S> {
        RowStream { sink, open: None, is_stopped: false }
    }

    /// Returns true if the sink has enough.
    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// Returns true if nothing more of a partition is wanted.
    pub(super) fn skips(&self, key: &[u8]) -> bool {
        self.open.as_ref().is_some_and(|open| open.is_skipped && open.key == key)
    }

    fn note(&mut self, flow: Flow) -> Flow {
        match flow {
            Flow::Continue => {}
            Flow::SkipPartition => {
                if let Some(open) = &mut self.open {
                    open.is_skipped = true;
                }
            }
            Flow::Stop => self.is_stopped = true,
        }
        flow
    }

    /// Shows the rows of a page.
    pub(super) fn page(&mut self, page: &PackedPage) {
        let (mut at, mut skips) = (0, false);
        while let Some((item, next)) = page.item(at).filter(|_| !self.is_stopped) {
            at = next;
            match item {
                PageItem::Partition { token, key, static_row } => {
                    skips = self.partition(token, key, static_row) != Flow::Continue;
                }
                PageItem::Row { clustering, row } if !skips => {
                    skips = self.row(clustering, row) != Flow::Continue;
                }
                PageItem::Row { .. } => {}
            }
        }
    }

    /// Ends the partition that is open: nothing more of it comes.
    pub(super) fn finish(&mut self) {
        if self.open.take().is_some() && !self.is_stopped && self.sink.partition_end() == Flow::Stop
        {
            self.is_stopped = true;
        }
    }

    /// Reports to the sink the position up to which everything was read.
    pub(super) fn look(&mut self, matches: &Matches, tombstones: u32) -> Look {
        let last = matches.partitions.last();
        let (token, key, clustering) = match &matches.frontier {
            Frontier::Done => return Look::Continue,
            Frontier::After { token, key } => (*token, key, None),
            Frontier::Inside { token, key, clustering } => {
                (*token, key, Some(clustering.as_slice()))
            }
            Frontier::Before { .. } => match last {
                Some(last) => (last.token, &last.key, None),
                None => return Look::Continue,
            },
        };
        let goes_on = clustering.is_some() && self.open.as_ref().is_some_and(|o| o.key == *key);
        if !goes_on {
            self.finish();
        }
        if self.is_stopped {
            return Look::Stop;
        }
        let scanned = tombstones;
        let look = self.sink.looked_at(LookedAt { token, key, clustering, tombstones, scanned });
        self.is_stopped |= look != Look::Continue;
        look
    }
}

impl<S: RowSink> RowSink for RowStream<'_, S> {
    fn partition(&mut self, token: Token, key: &[u8], static_row: Option<RowRef<'_>>) -> Flow {
        if let Some(open) = self.open.as_ref().filter(|open| open.key == key) {
            return if open.is_skipped { Flow::SkipPartition } else { Flow::Continue };
        }
        self.finish();
        if self.is_stopped {
            return Flow::Stop;
        }
        self.open = Some(Open { key: key.to_vec(), is_skipped: false });
        let flow = self.sink.partition(token, key, static_row);
        self.note(flow)
    }

    fn row(&mut self, clustering: &[u8], row: RowRef<'_>) -> Flow {
        let flow = self.sink.row(clustering, row);
        self.note(flow)
    }

    /// Only reads of whole partitions come here, so the partition is complete. The sink must know before the position
    /// after it is reported: the sink may end its page there, and would never show the static row alone.
    fn partition_end(&mut self) -> Flow {
        self.finish();
        if self.is_stopped { Flow::Stop } else { Flow::Continue }
    }

    fn looked_at(&mut self, upto: LookedAt<'_>) -> Look {
        let look = self.sink.looked_at(upto);
        self.is_stopped |= look != Look::Continue;
        look
    }

    fn tombstones_per_look(&self) -> u32 {
        self.sink.tombstones_per_look()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Notes the calls in their order.
    #[derive(Default)]
    struct Noted(Vec<&'static str>);

    impl RowSink for Noted {
        fn partition(&mut self, _: Token, _: &[u8], _: Option<RowRef<'_>>) -> Flow {
            self.0.push("partition");
            Flow::Continue
        }

        fn row(&mut self, _: &[u8], _: RowRef<'_>) -> Flow {
            self.0.push("row");
            Flow::Continue
        }

        fn partition_end(&mut self) -> Flow {
            self.0.push("end");
            Flow::Continue
        }

        fn looked_at(&mut self, _: LookedAt<'_>) -> Look {
            self.0.push("looked at");
            Look::Stop
        }
    }

    /// A sink shows a static row alone at the end of its partition, and may end the page at the position after it.
    #[test]
    fn a_whole_partition_ends_before_the_position_after_it_is_reported() {
        let mut sink = Noted::default();
        let mut stream = RowStream::new(&mut sink);
        assert_eq!(stream.partition(Token(1), b"k", None), Flow::Continue);
        assert_eq!(stream.partition_end(), Flow::Continue);
        let upto =
            LookedAt { token: Token(1), key: b"k", clustering: None, tombstones: 3, scanned: 3 };
        assert_eq!(stream.looked_at(upto), Look::Stop);
        stream.finish();
        assert_eq!(sink.0, ["partition", "end", "looked at"]);
    }
}
