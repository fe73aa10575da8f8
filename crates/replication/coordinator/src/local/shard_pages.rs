//! The pages of the shards of one read, merged into one stream in ring order: of all shards of this node, or of
//! shards of several nodes, each with ranges of its own.
//!
//! Owns: the order in which pages are shown, the start and row count of each shard's next request, and whether
//! it is sent before the current page is consumed. Never: waits, sends.
//!
//! Each shard has at most two pages in memory: the one that is being shown and, for readers that read to the
//! end, the next one, which the shard builds meanwhile.

use std::collections::VecDeque;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;

use data::FoldState;
use data::command::{KeyRange, Partitions, ReadCommand, ResumePosition, RingBound};
use internode::ErrorReply;
use messaging::MessagingError;
use smallvec::SmallVec;
use stdx::{Epoch, HostId, ShardId, Token};
use store::{Flow, Look, LookedAt, ReadStats, RowSink, StoreError};

use replica::{PackedPage, PackedRead, PageItem, PageLimit, ShardWork, resumed, tokens_of};

/// Rows that a shard is asked for beside its share of what is wanted, as shares are not quite equal: this many
/// and a sixteenth of all.
const ROWS_BESIDE: usize = 32;

/// A page request that is in flight and has not been awaited yet.
pub(crate) type Asked = Pin<Box<dyn Future<Output = Result<PackedPage, PageError>>>>;

/// Why there is no page.
#[derive(Debug)]
pub(crate) enum PageError {
    /// Error of a shard of this node.
    Store(StoreError),
    /// Error of another node.
    Peer(MessagingError),
}

impl From<StoreError> for PageError {
    fn from(error: StoreError) -> PageError {
        PageError::Store(error)
    }
}

impl PageError {
    /// Error for a reply of another node that cannot be decoded as a page.
    pub(crate) fn malformed() -> PageError {
        PageError::Peer(MessagingError::Remote(ErrorReply::Internal("no page".to_owned())))
    }
}

/// Which shard has a part of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The node; `None`: this one.
    pub(crate) peer: Option<HostId>,
    pub(crate) shard: ShardId,
    /// Number of shards of its node.
    pub(crate) shards: u16,
    /// Epoch of the metadata that assigned the part to this shard.
    pub(crate) epoch: Epoch,
}

/// Request for the next page of one shard.
pub(crate) struct PageRequest {
    pub(crate) place: Place,
    pub(crate) read: PackedRead,
}

/// Limits of a read over all its shards together.
pub(crate) struct ShardsWanted {
    /// Rows that are worth fetching; `usize::MAX`: all.
    pub(crate) rows: usize,
    pub(crate) work: Option<ShardWork>,
}

/// Remainder of a part of a read that must be routed to another replica.
pub(crate) struct Rest {
    pub(crate) place: Place,
    /// Ascending.
    pub(crate) ranges: VecDeque<KeyRange>,
    /// Nodes that failed to give its next page.
    pub(crate) tried: SmallVec<[HostId; 2]>,
}

/// Outcome of [`Pages::step`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The sink wants nothing more, or there is nothing.
    Over,
    /// The sink aborts the read.
    Refused,
    /// The next page of this source is needed.
    Fetch(usize),
}

/// See the module.
pub(crate) struct Pages {
    sources: Vec<Source>,
    work: Option<ShardWork>,
    /// A shard could not do the work.
    pub(crate) is_failed: bool,
    limit: PageLimit,
    /// Rows that are worth fetching; `usize::MAX`: all.
    rows_wanted: usize,
    /// The partition that was announced to the sink and not ended.
    open: Option<Open>,
    /// Key of the current partition, or of the last one.
    key: Vec<u8>,
    /// Statistics. Rows and partitions are those shown or filtered out, not all that arrived with a
    /// page.
    pub(crate) stats: ReadStats,
    /// Tombstones, and as many as a page may have for each that ended for them.
    scanned: u32,
    rows_shown: usize,
}

/// A partition that is shown.
#[derive(Clone, Copy)]
struct Open {
    source: usize,
    /// The sink's latest answer.
    flow: Flow,
}

/// Remainder of one shard's part of a read.
struct Source {
    place: Place,
    /// Its range is the first of the remaining ones.
    command: ReadCommand,
    /// The ranges after the command's, ascending.
    further: VecDeque<KeyRange>,
    /// Lower bound of its tokens; `None`: unknown.
    begins: Option<Token>,
    /// Nodes that failed to send the current page.
    tried: SmallVec<[HostId; 2]>,
    page: PackedPage,
    /// Offset of the next item in the page.
    at: usize,
    asked: Option<Asked>,
    /// The rest of this partition is not wanted.
    passes: Option<Vec<u8>>,
    /// Fold state after the pages so far.
    state: Option<FoldState>,
    /// The encoded fold state, for a part that other nodes may continue.
    encoded: Option<Vec<u8>>,
}

/// Returns an empty page with the flag that there is more.
fn nothing_yet() -> PackedPage {
    PackedPage { more: true, ..PackedPage::default() }
}

impl Pages {
    /// Creates the sources of this node's shards; no page is requested yet.
    pub(crate) fn new(
        shards: Range<u16>,
        command: &ReadCommand,
        wanted: ShardsWanted,
        limit: PageLimit,
    ) -> Pages {
        let count = shards.end;
        let epoch = Epoch(0);
        let place = |shard| Place { peer: None, shard: ShardId(shard), shards: count, epoch };
        let sources = shards.map(|shard| Source {
            begins: None,
            ..Source::new(place(shard), command.clone(), VecDeque::new())
        });
        Pages::of_sources(sources.collect(), wanted, limit)
    }

    /// Creates the sources of shards of several nodes. Each part has its own sub-ranges of the
    /// command's ranges. No page is requested yet.
    pub(crate) fn of_parts(
        parts: impl Iterator<Item = (Place, VecDeque<KeyRange>)>,
        command: &ReadCommand,
        wanted: ShardsWanted,
        limit: PageLimit,
    ) -> Pages {
        let sources = parts.filter_map(|(place, ranges)| Source::of_part(place, command, ranges));
        Pages::of_sources(sources.collect(), wanted, limit)
    }

    fn of_sources(
        sources: Vec<Source>,
        ShardsWanted { rows: rows_wanted, work }: ShardsWanted,
        limit: PageLimit,
    ) -> Pages {
        Pages {
            sources,
            work,
            is_failed: false,
            limit,
            rows_wanted: rows_wanted.max(1),
            open: None,
            key: Vec::new(),
            stats: ReadStats::default(),
            scanned: 0,
            rows_shown: 0,
        }
    }

    /// Returns the number of shards that take part.
    pub(crate) fn sources(&self) -> usize {
        self.sources.len()
    }

    /// Returns the place of a source.
    pub(crate) fn place(&self, source: usize) -> Option<Place> {
        self.sources.get(source).map(|s| s.place)
    }

    /// Returns true if the reader reads to the end, so that all sources may start at once.
    pub(crate) fn wants_all(&self) -> bool {
        self.rows_wanted == usize::MAX
    }

    /// Sources that are not asked and of which nothing is shown before a place where this one may have something.
    pub(crate) fn beside(&self, source: usize) -> Vec<usize> {
        let begin = |s: &Source| if s.page.is_empty() { s.known_up_to() } else { None };
        let Some(here) = self.sources.get(source).and_then(begin) else { return Vec::new() };
        let is_beside =
            |s: &Source| s.page.more && s.asked.is_none() && begin(s).is_some_and(|at| at <= here);
        let all = self.sources.iter().enumerate();
        all.filter(|(at, s)| *at != source && is_beside(s)).map(|(at, _)| at).collect()
    }

    /// Returns the next request of a source; `None`: the source is exhausted, or a request is in
    /// flight.
    pub(crate) fn next_request(&mut self, source: usize) -> Option<PageRequest> {
        let limit = PageLimit { rows: self.rows_of_a_page(), ..self.limit };
        let source = self.sources.get_mut(source)?;
        if !source.page.more || source.asked.is_some() || !source.move_behind_page() {
            return None;
        }
        let read = PackedRead {
            command: source.command.clone(),
            further: source.further.iter().cloned().collect(),
            limit,
            work: self.work.clone(),
            state: source.state.take(),
        };
        Some(PageRequest { place: source.place, read })
    }

    /// Returns the encoded fold state of a source.
    pub(crate) fn encoded(&self, source: usize) -> Option<Vec<u8>> {
        self.sources.get(source)?.encoded.clone()
    }

    /// Stores the fold state that arrived with a page of a source.
    pub(crate) fn set_encoded(&mut self, source: usize, state: Option<Vec<u8>>) {
        if let Some(source) = self.sources.get_mut(source) {
            source.encoded = state;
            source.tried.clear();
        }
    }

    /// Returns the remainder of a source whose page did not arrive or is useless: it must be read
    /// elsewhere. `by` has failed.
    pub(crate) fn rest_of(&mut self, source: usize, by: Option<HostId>) -> Option<Rest> {
        let source = self.sources.get_mut(source)?;
        source.tried.extend(by);
        let Partitions::Range(first) = &source.command.partitions else { return None };
        let ranges = std::iter::once(first).chain(&source.further).cloned().collect();
        Some(Rest { place: source.place, ranges, tried: source.tried.clone() })
    }

    /// Replaces a source by others that read its remainder; the first of them continues at its
    /// position.
    pub(crate) fn replace(
        &mut self,
        source: usize,
        parts: impl Iterator<Item = (Place, VecDeque<KeyRange>)>,
    ) {
        for (number, (place, ranges)) in parts.enumerate() {
            let Some(old) = self.sources.get_mut(source) else { return };
            if number == 0 {
                let mut ranges = ranges;
                let Some(first) = ranges.pop_front() else { continue };
                old.begins = Some(tokens_of(&first).after);
                old.command.partitions = Partitions::Range(first);
                (old.place, old.further) = (place, ranges);
                (old.at, old.page) = (0, nothing_yet());
                continue;
            }
            let command = ReadCommand { resume: None, ..old.command.clone() };
            let tried = old.tried.clone();
            if let Some(new) = Source::of_part(place, &command, ranges) {
                self.sources.push(Source { tried, ..new });
            }
        }
    }

    /// A shard's share of what is still wanted.
    fn rows_of_a_page(&self) -> usize {
        if self.rows_wanted == usize::MAX {
            return usize::MAX;
        }
        let left = self.rows_wanted.saturating_sub(self.rows_shown).max(1);
        let share = left / self.sources.len().max(1);
        left.min(share.saturating_add(left / 16).saturating_add(ROWS_BESIDE))
    }

    /// The request was sent.
    pub(crate) fn set_asked(&mut self, source: usize, asked: Asked) {
        if let Some(source) = self.sources.get_mut(source) {
            source.asked = Some(asked);
        }
    }

    /// Returns the page in flight to await; `None`: the source is exhausted.
    pub(crate) fn take_asked(&mut self, source: usize) -> Option<Asked> {
        let source = self.sources.get_mut(source)?;
        (source.at, source.page) = (0, PackedPage::default());
        source.asked.take()
    }

    /// Stores a page that arrived. Returns true if the page after it is worth requesting at once.
    pub(crate) fn put_page(&mut self, source: usize, mut page: PackedPage) -> bool {
        self.stats.tombstones = self.stats.tombstones.saturating_add(page.stats.tombstones);
        self.scanned = self.scanned.saturating_add(page.scanned.max(page.stats.tombstones));
        let (filtered, folds) = (page.stats.filtered, self.folds());
        self.stats.filtered.add(&filtered);
        let (rows, partitions) = match folds {
            true => (page.stats.rows, page.stats.partitions),
            false => (filtered.rows, filtered.partitions),
        };
        self.stats.rows = self.stats.rows.saturating_add(rows);
        self.stats.partitions = self.stats.partitions.saturating_add(partitions);
        self.is_failed |= page.is_failed;
        // The page ended at a scan limit, not because it was full.
        let is_thin = (folds || filtered.rows > 0) && page.rows < self.rows_of_a_page() / 2;
        let Some(source) = self.sources.get_mut(source) else { return false };
        source.state = page.state.take();
        (source.at, source.page) = (0, page);
        self.rows_wanted == usize::MAX || is_thin
    }

    /// Returns true if the pages hold fold results instead of rows.
    fn folds(&self) -> bool {
        matches!(self.work, Some(ShardWork::Fold(_)))
    }

    /// Returns the encoded fold states.
    pub(crate) fn encoded_states(&self) -> impl Iterator<Item = &[u8]> {
        self.sources.iter().filter_map(|source| source.encoded.as_deref())
    }

    /// Returns the final fold states of all shards.
    pub(crate) fn into_states(self) -> impl Iterator<Item = FoldState> {
        self.sources.into_iter().filter_map(|source| source.state)
    }

    /// Shows the rows of the current pages.
    pub(crate) fn step<S: RowSink>(&mut self, sink: &mut S) -> Step {
        loop {
            if let Some(open) = self.open {
                match self.step_inside(open, sink) {
                    Some(step) => return step,
                    None => continue,
                }
            }
            let mut first: Option<(Token, usize)> = None;
            // Among the consumed pages, choose the one that ends first; a source that has no page
            // yet precedes all.
            let mut used_up: Option<(Option<Token>, usize)> = None;
            for index in 0..self.sources.len() {
                let Some(source) = self.sources.get_mut(index) else { continue };
                source.pass();
                match source.head() {
                    // Keys of one token are of one shard.
                    Some((token, _)) if first.is_none_or(|(so_far, _)| token < so_far) => {
                        first = Some((token, index));
                    }
                    Some(_) => {}
                    None if source.page.more => {
                        let end = source.known_up_to();
                        if used_up.is_none_or(|(so_far, _)| end < so_far) {
                            used_up = Some((end, index));
                        }
                    }
                    None => {}
                }
            }
            if let Some((end, index)) = used_up
                && first.zip(end).is_none_or(|((token, _), end)| token >= end)
            {
                return match self.is_first(index) {
                    true => self.tell_looked_at(index, sink),
                    false => Step::Fetch(index),
                };
            }
            let Some((_, index)) = first else { return Step::Over };
            if self.begin(index, sink) == Flow::Stop {
                return Step::Over;
            }
        }
    }

    /// Returns true if all other sources have been scanned up to the end of this source's page.
    fn is_first(&self, index: usize) -> bool {
        let end = |index: usize| self.sources.get(index).and_then(|s| s.page.end.as_ref());
        let Some(here) = end(index) else { return false };
        (0..self.sources.len()).filter(|other| *other != index).all(|other| {
            let Some(source) = self.sources.get(other) else { return true };
            match source.head() {
                Some((token, _)) => token > here.token,
                None if source.page.more && source.page.end.is_none() => {
                    source.begins.is_some_and(|begin| begin >= here.token)
                }
                None if source.page.more => end(other).is_some_and(|end| end.token > here.token),
                None => true,
            }
        })
    }

    /// Notifies the sink that everything up to the end of this source's page was scanned, and
    /// continues after it.
    fn tell_looked_at<S: RowSink>(&self, index: usize, sink: &mut S) -> Step {
        let end = self.sources.get(index).and_then(|source| source.page.end.as_ref());
        let Some(end) = end else { return Step::Fetch(index) };
        let upto = LookedAt {
            token: end.token,
            key: &end.key,
            clustering: end.clustering.as_deref(),
            tombstones: self.stats.tombstones,
            scanned: self.scanned,
        };
        match sink.looked_at(upto) {
            Look::Continue => Step::Fetch(index),
            Look::Stop => Step::Over,
            Look::Refuse => Step::Refused,
        }
    }

    /// Announces the partition that a source is at.
    fn begin<S: RowSink>(&mut self, index: usize, sink: &mut S) -> Flow {
        let Some(source) = self.sources.get_mut(index) else { return Flow::Stop };
        let Some((PageItem::Partition { token, key, static_row }, next)) =
            source.page.item(source.at)
        else {
            stdx::invariant::broken(format_args!("page: a row without a partition"))
        };
        if !matches!(self.work, Some(ShardWork::Fold(_))) {
            self.stats.partitions = self.stats.partitions.saturating_add(1);
        }
        self.key.clear();
        self.key.extend_from_slice(key);
        let flow = sink.partition(token, key, static_row);
        source.at = next;
        self.open = Some(Open { source: index, flow });
        flow
    }

    /// Shows rows of the partition that is open; `None`: it is over.
    fn step_inside<S: RowSink>(&mut self, open: Open, sink: &mut S) -> Option<Step> {
        let Open { source: index, mut flow } = open;
        let folds = self.folds();
        let Some(source) = self.sources.get_mut(index) else { return Some(Step::Over) };
        loop {
            match source.page.item(source.at) {
                Some((PageItem::Row { clustering, row }, next)) => {
                    source.at = next;
                    if flow == Flow::Continue {
                        let rows = u64::from(!folds);
                        self.stats.rows = self.stats.rows.saturating_add(rows);
                        self.rows_shown = self.rows_shown.saturating_add(1);
                        flow = sink.row(clustering, row);
                        if flow == Flow::Stop {
                            return Some(Step::Over);
                        }
                    }
                }
                // The partition continues from the previous page.
                Some((PageItem::Partition { key, .. }, next))
                    if source.at == 0 && key == self.key =>
                {
                    source.at = next;
                }
                None if flow == Flow::Continue && source.may_go_on(&self.key) => {
                    self.open = Some(Open { source: index, flow });
                    let is_told = source.page.end.is_some();
                    return Some(match is_told {
                        // Everything before the partition was shown earlier.
                        true => self.tell_looked_at(index, sink),
                        false => Step::Fetch(index),
                    });
                }
                Some((PageItem::Partition { .. }, _)) | None => break,
            }
        }
        if flow == Flow::SkipPartition && source.at >= source.page.len() && source.page.more {
            source.passes = Some(self.key.clone());
        }
        self.open = None;
        (sink.partition_end() == Flow::Stop).then_some(Step::Over)
    }
}

impl Source {
    fn new(place: Place, command: ReadCommand, further: VecDeque<KeyRange>) -> Source {
        Source {
            place,
            command,
            further,
            begins: None,
            tried: SmallVec::new(),
            page: nothing_yet(),
            at: 0,
            asked: None,
            passes: None,
            state: None,
            encoded: None,
        }
    }

    /// `None`: a part without ranges.
    fn of_part(
        place: Place,
        command: &ReadCommand,
        mut ranges: VecDeque<KeyRange>,
    ) -> Option<Source> {
        let first = ranges.pop_front()?;
        let begins = tokens_of(&first).after;
        let mut command = command.clone();
        // Only the range in which the previous page ended resumes inside a partition.
        let is_first = |whole: &KeyRange| whole.start == first.start;
        if !matches!(&command.partitions, Partitions::Range(whole) if is_first(whole)) {
            command.resume = None;
        }
        command.partitions = Partitions::Range(first);
        Some(Source { begins: Some(begins), ..Source::new(place, command, ranges) })
    }

    /// Returns a lower bound of the tokens that are not shown yet.
    fn known_up_to(&self) -> Option<Token> {
        self.page.end.as_ref().map(|end| end.token).or(self.begins)
    }

    /// The partition that begins next in the page.
    #[inline]
    fn head(&self) -> Option<(Token, &[u8])> {
        match self.page.item(self.at)?.0 {
            PageItem::Partition { token, key, .. } => Some((token, key)),
            PageItem::Row { .. } => None,
        }
    }

    /// Returns true if the next page may continue the partition that this page ends with.
    fn may_go_on(&self, key: &[u8]) -> bool {
        let end = self.page.end.as_ref();
        self.page.more && end.is_none_or(|end| end.key == key && end.clustering.is_some())
    }

    /// Skips the rest of a partition that is not wanted and continues in this page.
    #[inline]
    fn pass(&mut self) {
        if self.passes.is_none() || self.at > 0 {
            return;
        }
        if self.head().map(|(_, key)| key) != self.passes.as_deref() {
            if !self.page.is_empty() {
                self.passes = None;
            }
            return;
        }
        let mut next = self.page.item(self.at).map_or(self.at, |(_, next)| next);
        while let Some((PageItem::Row { .. }, behind)) = self.page.item(next) {
            next = behind;
        }
        self.at = next;
        if self.at < self.page.len() {
            self.passes = None;
        }
    }

    /// Moves the command's start past the page. Returns false if nothing can be left.
    fn move_behind_page(&mut self) -> bool {
        let Some(end) = &self.page.end else { return true };
        let is_passed = self.passes.as_deref() == Some(end.key.as_slice());
        let clustering = end.clustering.clone().filter(|_| !is_passed);
        let before = resumed(&self.command).filter(|(key, _)| *key == end.key);
        let rows_in_partition = before.map_or(0, |(_, rows)| rows).max(u32::from(end.is_shown));
        match &mut self.command.partitions {
            Partitions::Key(_) if clustering.is_none() => return false,
            Partitions::Key(_) => {}
            Partitions::Range(range) => {
                // Ranges that end before are over.
                while tokens_of(range).upto < end.token
                    && let Some(next) = self.further.pop_front()
                {
                    *range = next;
                }
                let after = clustering.is_none();
                range.start = RingBound::Key { token: end.token, key: end.key.clone(), after };
            }
        }
        self.command.resume =
            clustering.map(|last| ResumePosition { clustering: Some(last), rows_in_partition });
        true
    }
}

#[cfg(test)]
mod tests {
    use data::RowRef;
    use stdx::{DeletionSeconds, TableId, Uuid};

    use super::*;
    use replica::PageEnd;

    /// Records what the sink is shown.
    #[derive(Default)]
    struct Noted {
        looked_at: Vec<i64>,
        shown: Vec<i64>,
        stops_at: i64,
    }

    impl RowSink for Noted {
        fn partition(&mut self, token: Token, _: &[u8], _: Option<RowRef<'_>>) -> Flow {
            self.shown.push(token.0);
            Flow::Continue
        }

        fn row(&mut self, _: &[u8], _: RowRef<'_>) -> Flow {
            Flow::Continue
        }

        fn partition_end(&mut self) -> Flow {
            Flow::Continue
        }

        fn looked_at(&mut self, upto: LookedAt<'_>) -> Look {
            self.looked_at.push(upto.token.0);
            if upto.token.0 < self.stops_at { Look::Continue } else { Look::Stop }
        }
    }

    /// A page with these partitions that was looked for up to `end`.
    fn page(partitions: &[i64], end: i64) -> PackedPage {
        let mut writer = replica::PageWriter::new(super::super::page_limit());
        for token in partitions {
            writer.partition(Token(*token), &token.to_be_bytes(), None);
            writer.row(b"", RowRef::trusted(&[]));
            writer.partition_end();
        }
        let end =
            PageEnd { token: Token(end), key: b"e".to_vec(), clustering: None, is_shown: false };
        PackedPage { more: true, end: Some(end), ..writer.finish(ReadStats::default()) }
    }

    #[test]
    fn the_page_that_ends_first_goes_on_first_and_tells_how_far_all_were_looked_at() {
        let table = TableId(Uuid::from_u128(1));
        let command =
            ReadCommand::whole(table, Partitions::Range(KeyRange::all()), DeletionSeconds(0));
        let mut pages = Pages::new(
            0..2,
            &command,
            ShardsWanted { rows: usize::MAX, work: None },
            super::super::page_limit(),
        );
        let mut sink = Noted { stops_at: 150, ..Noted::default() };
        assert_eq!(pages.step(&mut sink), Step::Fetch(0));
        pages.put_page(0, page(&[], 100));
        assert_eq!(pages.step(&mut sink), Step::Fetch(1));
        pages.put_page(1, page(&[5, 20], 30));
        // Items before the end of a consumed page are shown first.
        assert_eq!(pages.step(&mut sink), Step::Fetch(1));
        assert_eq!((sink.shown.as_slice(), sink.looked_at.as_slice()), (&[5, 20][..], &[30][..]));
        pages.put_page(1, page(&[120], 200));
        // Not 120, before which the other one may have something.
        assert_eq!(pages.step(&mut sink), Step::Fetch(0));
        assert_eq!((sink.shown.len(), sink.looked_at.as_slice()), (2, &[30, 100][..]));
        pages.put_page(0, page(&[], 160));
        assert_eq!(pages.step(&mut sink), Step::Over);
        assert_eq!(sink.shown, [5, 20, 120]);
        assert_eq!(sink.looked_at, [30, 100, 160]);
    }
}
