//! A cursor over replica pages: those of one replica, one after the other, up to where all
//! replicas of a read have answered.
//!
//! Owns: [`PageChain`] (pages that continue each other), [`PageStops`] (where the merge of several
//! replicas ends), [`PageCursor`]. A range deletion that a page had to close at its end and the
//! next one opened again is shown as one.

use std::cmp::Ordering;

use stdx::Token;

use crate::clustering::BoundRef;
use crate::cursor::{Advance, Cursor, CursorError, Item, Marker};
use crate::deletion::DeletionTime;
use crate::replica_page::{
    PageEnd, PageError, RawItem, RawItems, ReplicaPage, behind, compare_raw, in_order,
};
use crate::row::RowRef;
use crate::shape::TableShape;

/// Pages of one replica, each going on where the one before ended.
#[derive(Clone, Debug, Default)]
pub struct PageChain<'p> {
    first: Option<ReplicaPage<'p>>,
    // Seldom used, so that a chain of one page allocates nothing.
    others: Vec<ReplicaPage<'p>>,
}

/// Where a partition was cut by the limit per partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionStop<'p> {
    /// Its token.
    pub token: Token,
    /// Serialised key.
    pub key: &'p [u8],
    /// The last row that counts, in read order.
    pub clustering: &'p [u8],
}

impl PartitionStop<'_> {
    fn place(&self) -> (Token, &[u8]) {
        (self.token, self.key)
    }
}

impl<'p> PageChain<'p> {
    /// A chain of one page.
    pub fn new(page: ReplicaPage<'p>) -> PageChain<'p> {
        PageChain { first: Some(page), others: Vec::new() }
    }

    /// Adds the page that the replica sent for the data after the end of the last one.
    ///
    /// # Errors
    /// `Malformed` when it begins before that end.
    pub fn push(
        &mut self,
        page: ReplicaPage<'p>,
        shape: &TableShape,
        reversed: bool,
    ) -> Result<(), PageError> {
        if self.first.is_none() {
            self.first = Some(page);
            return Ok(());
        }
        if !goes_on(&self.end(), &page, shape, reversed) {
            return Err(PageError::Malformed("it begins before the end of the page before it"));
        }
        self.others.push(page);
        Ok(())
    }

    /// Up to where the replica has answered.
    pub fn end(&self) -> PageEnd<'p> {
        self.others.last().or(self.first.as_ref()).map_or(PageEnd::Exhausted, ReplicaPage::end)
    }

    /// The pages.
    pub fn pages(&self) -> impl Iterator<Item = &ReplicaPage<'p>> {
        self.first.iter().chain(&self.others)
    }

    fn page(&self, number: usize) -> Option<&ReplicaPage<'p>> {
        match number.checked_sub(1) {
            None => self.first.as_ref(),
            Some(number) => self.others.get(number),
        }
    }

    /// Adds the places where partitions were cut to `stops`, in ring order.
    pub fn cut_partitions(&self, stops: &mut Vec<PartitionStop<'p>>) {
        for page in self.pages().filter(|p| p.has_cut_partitions()) {
            let mut items = page.items();
            let (mut partition, mut last) = ((Token::MIN, &[][..]), &[][..]);
            while let Some(item) = items.read() {
                match item {
                    RawItem::Partition { token, key, .. } => partition = (token, key),
                    RawItem::Row { clustering, .. } => last = clustering,
                    RawItem::Marker { .. } => {}
                    RawItem::Cut => {
                        let (token, key) = partition;
                        stops.push(PartitionStop { token, key, clustering: last });
                    }
                }
            }
        }
    }
}

/// Returns true if all of `page` lies after `end`.
fn goes_on(end: &PageEnd<'_>, page: &ReplicaPage<'_>, shape: &TableShape, reversed: bool) -> bool {
    let Some(place) = end.partition() else { return false };
    let mut items = page.items();
    let Some(RawItem::Partition { token, key, .. }) = items.read() else { return true };
    match (token, key).cmp(&place) {
        Ordering::Less => return false,
        Ordering::Greater => return true,
        Ordering::Equal => {}
    }
    let PageEnd::Inside { clustering, .. } = end else { return false };
    // The end as a row: the next item must come after it; a marker may directly follow it.
    let bound =
        RawItem::Marker { position: behind(clustering, reversed), open: DeletionTime::LIVE };
    match items.read() {
        Some(item @ (RawItem::Row { .. } | RawItem::Marker { .. })) => {
            in_order(compare_raw(shape, &bound, &item), reversed) != Ordering::Greater
        }
        _ => true,
    }
}

/// Up to where the pages of several replicas may be merged: each of them has answered up to there.
#[derive(Clone, Debug)]
pub struct PageStops<'p> {
    /// Inside partitions, in ring order, each partition once.
    pub partitions: Vec<PartitionStop<'p>>,
    /// The end of all.
    pub end: PageEnd<'p>,
}

impl<'p> PageStops<'p> {
    /// No stops: a cursor shows all of its pages.
    pub const NONE: PageStops<'static> =
        PageStops { partitions: Vec::new(), end: PageEnd::Exhausted };

    /// The first end of all chains and the first cut of each partition.
    pub fn of<'c>(
        chains: impl IntoIterator<Item = &'c PageChain<'p>>,
        shape: &TableShape,
        reversed: bool,
    ) -> PageStops<'p>
    where
        'p: 'c,
    {
        let mut stops = PageStops { partitions: Vec::new(), end: PageEnd::Exhausted };
        for chain in chains {
            let end = chain.end();
            if end.compare(&stops.end, shape, reversed) == Ordering::Less {
                stops.end = end;
            }
            chain.cut_partitions(&mut stops.partitions);
        }
        if let PageEnd::Inside { token, key, clustering } = stops.end {
            stops.partitions.push(PartitionStop { token, key, clustering });
        }
        let cmp = shape.clustering();
        stops.partitions.sort_by(|a, b| {
            let order = a.place().cmp(&b.place());
            order.then_with(|| in_order(cmp.compare(a.clustering, b.clustering), reversed))
        });
        stops.partitions.dedup_by(|later, first| later.place() == first.place());
        stops
    }

    /// Where to stop in this partition.
    pub fn within(&self, token: Token, key: &[u8]) -> Option<&'p [u8]> {
        let at = self.partitions.binary_search_by(|s| s.place().cmp(&(token, key))).ok()?;
        self.partitions.get(at).map(|s| s.clustering)
    }

    /// Returns true if a partition lies after the end.
    fn is_behind(&self, token: Token, key: &[u8]) -> bool {
        self.end.partition().is_some_and(|end| (token, key) > end)
    }
}

/// Item to show before the next one is read.
#[derive(Clone, Copy)]
enum Due<'p> {
    Nothing,
    Static(RowRef<'p>),
    PartitionEnd,
}

/// Cursor over the pages of one replica; see [`Cursor`] for the order of items. Never asks for
/// blocks and never fails.
pub struct PageCursor<'c, 'p> {
    shape: &'c TableShape,
    reversed: bool,
    stops: &'c PageStops<'p>,
    chain: &'c PageChain<'p>,
    next_page: usize,
    items: Option<RawItems<'p>>,
    peeked: Option<RawItem<'p>>,
    /// The last partition read, also between its pages.
    partition: Option<(Token, &'p [u8])>,
    stop: Option<&'p [u8]>,
    in_partition: bool,
    open: DeletionTime,
    due: Due<'p>,
    current: Item<'p>,
    finished: bool,
}

impl<'c, 'p> PageCursor<'c, 'p> {
    /// A cursor over a chain, up to the stops.
    pub fn new(
        shape: &'c TableShape,
        reversed: bool,
        chain: &'c PageChain<'p>,
        stops: &'c PageStops<'p>,
    ) -> PageCursor<'c, 'p> {
        PageCursor {
            shape,
            reversed,
            stops,
            chain,
            next_page: 0,
            items: None,
            peeked: None,
            partition: None,
            stop: None,
            in_partition: false,
            open: DeletionTime::LIVE,
            due: Due::Nothing,
            current: Item::PartitionEnd,
            finished: false,
        }
    }

    /// The item that the last [`Advance::Item`] announced, for as long as the pages live.
    pub fn current(&self) -> Item<'p> {
        self.current
    }

    /// Peeks at the next item. Skips the header of a partition that continues from the previous
    /// page.
    fn peek(&mut self) -> Option<RawItem<'p>> {
        if self.peeked.is_none() {
            self.peeked = self.read();
        }
        self.peeked
    }

    fn read(&mut self) -> Option<RawItem<'p>> {
        loop {
            if let Some(items) = &mut self.items
                && let Some(item) = items.read()
            {
                if let RawItem::Partition { token, key, .. } = item {
                    if self.partition == Some((token, key)) {
                        continue;
                    }
                    self.partition = Some((token, key));
                }
                return Some(item);
            }
            let page = self.chain.page(self.next_page)?;
            self.next_page += 1;
            self.items = Some(page.items());
        }
    }

    /// The newest deletion of a partition that may continue in later pages: it may have been
    /// deleted between two of them.
    fn deletion_of(&self, token: Token, key: &[u8], deletion: DeletionTime) -> DeletionTime {
        let place = (token, key);
        let later = self.chain.pages().skip(self.next_page);
        later.fold(deletion, |newest, page| match page.items().read() {
            Some(RawItem::Partition { token, key, deletion, .. }) if (token, key) == place => {
                newest.max(deletion)
            }
            _ => newest,
        })
    }

    fn is_behind_stop(&self, item: &RawItem<'_>) -> bool {
        let Some(stop) = self.stop else { return false };
        let stop =
            RawItem::Marker { position: behind(stop, self.reversed), open: DeletionTime::LIVE };
        in_order(compare_raw(self.shape, item, &stop), self.reversed) != Ordering::Less
    }

    /// Ends the partition at its stop.
    fn stop_here(&mut self) -> Item<'p> {
        while !matches!(self.peek(), None | Some(RawItem::Partition { .. })) {
            self.peeked = None;
        }
        match self.stop {
            Some(stop) if !self.open.is_live() => {
                let close = Some(std::mem::replace(&mut self.open, DeletionTime::LIVE));
                self.due = Due::PartitionEnd;
                let position = behind(stop, self.reversed);
                Item::Marker(Marker { position, close, open: None })
            }
            _ => self.end_partition(),
        }
    }

    fn end_partition(&mut self) -> Item<'p> {
        self.in_partition = false;
        self.due = Due::Nothing;
        Item::PartitionEnd
    }

    /// Takes a marker together with one of the same place in the next page.
    fn marker(&mut self, position: BoundRef<'p>, mut open: DeletionTime) -> Option<Item<'p>> {
        while let Some(RawItem::Marker { position: next, open: then }) = self.peek() {
            if self.shape.clustering().compare_bounds(position, next) != Ordering::Equal {
                break;
            }
            open = then;
            self.peeked = None;
        }
        if open == self.open {
            return None;
        }
        let some = |d: DeletionTime| (!d.is_live()).then_some(d);
        let close = some(std::mem::replace(&mut self.open, open));
        Some(Item::Marker(Marker { position, close, open: some(open) }))
    }

    fn next_item(&mut self) -> Option<Item<'p>> {
        match std::mem::replace(&mut self.due, Due::Nothing) {
            Due::Nothing => {}
            Due::Static(row) => return Some(Item::Static(row)),
            Due::PartitionEnd => return Some(self.end_partition()),
        }
        loop {
            let Some(item) = self.peek() else {
                return self.in_partition.then(|| self.end_partition());
            };
            match item {
                RawItem::Partition { .. } if self.in_partition => {
                    return Some(self.end_partition());
                }
                RawItem::Partition { token, key, deletion, static_row } => {
                    if self.stops.is_behind(token, key) {
                        self.finished = true;
                        return None;
                    }
                    self.peeked = None;
                    self.in_partition = true;
                    self.open = DeletionTime::LIVE;
                    self.stop = self.stops.within(token, key);
                    self.due = static_row.map_or(Due::Nothing, Due::Static);
                    let deletion = self.deletion_of(token, key, deletion);
                    return Some(Item::Partition { token, key, deletion });
                }
                RawItem::Row { .. } | RawItem::Marker { .. } if self.is_behind_stop(&item) => {
                    return Some(self.stop_here());
                }
                RawItem::Row { clustering, row } => {
                    self.peeked = None;
                    return Some(Item::Row { clustering, row });
                }
                RawItem::Marker { position, open } => {
                    self.peeked = None;
                    if let Some(item) = self.marker(position, open) {
                        return Some(item);
                    }
                }
                RawItem::Cut => self.peeked = None,
            }
        }
    }
}

impl Cursor for PageCursor<'_, '_> {
    fn advance(&mut self) -> Result<Advance, CursorError> {
        if self.finished {
            return Ok(Advance::End);
        }
        match self.next_item() {
            Some(item) => {
                self.current = item;
                Ok(Advance::Item)
            }
            None => {
                self.finished = true;
                Ok(Advance::End)
            }
        }
    }

    fn item(&self) -> Item<'_> {
        self.current
    }

    fn skip_partition(&mut self) {
        if !self.in_partition {
            return;
        }
        while !matches!(self.peek(), None | Some(RawItem::Partition { .. })) {
            self.peeked = None;
        }
        self.in_partition = false;
        self.due = Due::Nothing;
    }
}
