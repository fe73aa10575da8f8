//! Rules that hold for every replica page, as checked by [`ReplicaPage::parse`].

use std::cmp::Ordering;

use stdx::Token;

use crate::clustering;
use crate::deletion::DeletionTime;
use crate::mutation::KEY_BYTES_MAX;
use crate::replica_page::{PageEnd, RawItem, ReplicaPage, behind, compare_raw, in_order};
use crate::row::RowRef;
use crate::shape::TableShape;

/// The rules of a page from outside.
pub(crate) struct Check<'s, 'a> {
    shape: &'s TableShape,
    reversed: bool,
    partition: Option<(Token, &'a [u8])>,
    /// The last row or marker of the partition.
    at: Option<RawItem<'a>>,
    last_row: Option<&'a [u8]>,
    open: DeletionTime,
    /// The partition holds something.
    holds: bool,
    cut: bool,
    rows: u64,
    cut_partitions: bool,
}

type Checked = Result<(), &'static str>;

impl<'s, 'a> Check<'s, 'a> {
    pub(crate) fn new(shape: &'s TableShape, reversed: bool) -> Check<'s, 'a> {
        Check {
            shape,
            reversed,
            partition: None,
            at: None,
            last_row: None,
            open: DeletionTime::LIVE,
            holds: true,
            cut: false,
            rows: 0,
            cut_partitions: false,
        }
    }

    pub(crate) fn page(&mut self, page: &ReplicaPage<'a>) -> Checked {
        let mut items = page.items();
        while !items.is_empty() {
            let item = items.read().ok_or("an item is cut short or of no known kind")?;
            self.item(item)?;
        }
        self.partition_over()?;
        if self.cut_partitions != page.has_cut_partitions() {
            return Err("its mark of cut partitions is wrong");
        }
        if u64::from(page.live_rows()) > self.rows {
            return Err("it counts more live rows than it has");
        }
        self.end(page.end())
    }

    fn item(&mut self, item: RawItem<'a>) -> Checked {
        if let RawItem::Partition { token, key, deletion, static_row } = item {
            self.partition_over()?;
            if self.partition.is_some_and(|last| last >= (token, key)) {
                return Err("partitions are out of order");
            }
            if let Some(row) = static_row {
                RowRef::parse(row.bytes()).ok_or("a static row is not a packed row")?;
            }
            self.partition = Some((token, key));
            self.at = None;
            self.last_row = None;
            self.cut = false;
            self.holds = !deletion.is_live() || static_row.is_some();
            // A partition with only a static row may count as one row.
            self.rows = self.rows.saturating_add(1);
            return Ok(());
        }
        if self.partition.is_none() {
            return Err("an item lies outside of a partition");
        }
        if self.cut {
            return Err("an item lies behind the cut of its partition");
        }
        match item {
            RawItem::Row { clustering, row } => {
                let columns = self.shape.clustering().len();
                if clustering::check(clustering, columns) != Some(columns) {
                    return Err("a clustering has the wrong number of components");
                }
                RowRef::parse(row.bytes()).ok_or("a row is not a packed row")?;
                self.last_row = Some(clustering);
                self.rows = self.rows.saturating_add(1);
            }
            RawItem::Marker { position, open } => {
                clustering::check(position.prefix, self.shape.clustering().len())
                    .ok_or("a bound has too many components")?;
                if open == self.open {
                    return Err("a marker changes nothing");
                }
                self.open = open;
            }
            RawItem::Cut => {
                self.cut = true;
                self.cut_partitions = true;
                return self.last_row.map(drop).ok_or("a partition without rows is cut");
            }
            RawItem::Partition { .. } => {}
        }
        self.holds = true;
        if self.at.is_some_and(|at| self.compare(&at, &item) != Ordering::Less) {
            return Err("rows or markers are out of order");
        }
        self.at = Some(item);
        Ok(())
    }

    fn compare(&self, a: &RawItem<'_>, b: &RawItem<'_>) -> Ordering {
        in_order(compare_raw(self.shape, a, b), self.reversed)
    }

    fn partition_over(&mut self) -> Checked {
        if !self.open.is_live() {
            return Err("a partition leaves a range open");
        }
        if !self.holds {
            return Err("a partition holds nothing");
        }
        Ok(())
    }

    fn end(&self, end: PageEnd<'_>) -> Checked {
        let (token, key, clustering) = match end {
            PageEnd::Exhausted => return Ok(()),
            PageEnd::After { token, key } => (token, key, None),
            PageEnd::Inside { token, key, clustering } => (token, key, Some(clustering)),
        };
        let before = "its end lies before its last item";
        if key.len() > KEY_BYTES_MAX {
            return Err("the key of its end is too long");
        }
        let columns = self.shape.clustering().len();
        if let Some(c) = clustering
            && clustering::check(c, columns) != Some(columns)
        {
            return Err("the clustering of its end has the wrong number of components");
        }
        match self.partition.map(|last| last.cmp(&(token, key))) {
            None | Some(Ordering::Less) => Ok(()),
            Some(Ordering::Greater) => Err(before),
            Some(Ordering::Equal) => {
                let (Some(c), Some(at)) = (clustering, self.at) else { return Ok(()) };
                let end = RawItem::Marker {
                    position: behind(c, self.reversed),
                    open: DeletionTime::LIVE,
                };
                if self.compare(&at, &end) == Ordering::Greater { Err(before) } else { Ok(()) }
            }
        }
    }
}
