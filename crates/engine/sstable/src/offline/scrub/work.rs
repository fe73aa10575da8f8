//! The work of a scrub: stretches of Data, and the outcome of each item.

use data::clustering::check as check_clustering;
use data::{Advance, BoundRef, ClusteringComparator, Cursor, DeletionTime, Item, Marker, RowRef};
use rt::Fs;
use schema::Table;
use sst_format::Component;
use stdx::Token;

use super::values::Values;
use super::{Loss, ScrubHost, ScrubOptions, ScrubReport};
use crate::offline::starts::Starts;
use crate::offline::verify::Place;
use crate::repair_state::{RepairState, write_repair_state};
use crate::sequential::SequentialReader;
use crate::writer::{SstableWriter, WriterOptions};
use crate::{Result, SstableCursor, SstableError, SstableReader};

/// Items after which the host is asked if the scrub may continue.
const ITEMS_PER_QUESTION: u32 = 64;

/// One scrub.
pub(super) struct Scrub<'s, H> {
    reader: SstableReader,
    fs: &'s Fs,
    directory: &'s str,
    table: Table,
    /// Those of the next file set, but for its number.
    options: WriterOptions,
    how: ScrubOptions,
    values: Values,
    host: &'s mut H,
    /// The partition written last.
    last: Option<(Token, Vec<u8>)>,
    /// Partitions that are not in order, and where they begin.
    late: Vec<(Token, Vec<u8>, u64)>,
    /// Rows that are not in order in their partition. As many as the damage makes: in memory.
    strays: Vec<Stray>,
    pub(super) report: ScrubReport,
    /// The partition that lost something last.
    last_bad: Option<Vec<u8>>,
    /// Items since the host was asked last.
    items: u32,
}

/// A row that is written to a file set of its own.
struct Stray {
    token: Token,
    key: Vec<u8>,
    clustering: Vec<u8>,
    row: Vec<u8>,
}

/// Why a stretch of Data is over.
enum Stop {
    /// The end, or that of the one partition asked for.
    End,
    /// It cannot be read on: where the partition began, its key if that was read, and why.
    Damage { start: u64, key: Option<Vec<u8>>, what: String },
    /// The same, in a partition that was skipped: it is out of order and will be read again later,
    /// or it is not wanted.
    Passing { start: u64 },
    /// The host stops the scrub.
    GivenUp,
}

/// The partition being written.
struct Open {
    key: Vec<u8>,
    place: Option<Place>,
    /// The range deletion that is open at the current position.
    open: Option<DeletionTime>,
    /// The last marker, until another item is read: it is written with the next item.
    held: Option<Held>,
}

struct Held {
    place: Place,
    close: Option<DeletionTime>,
    open: Option<DeletionTime>,
}

impl Open {
    /// Writes the marker that is held back.
    fn flush(&mut self, writer: &mut SstableWriter) -> Result<()> {
        let Some(Held { place, close, open }) = self.held.take() else { return Ok(()) };
        writer.put(Item::Marker(Marker { position: place.bound(), close, open }))
    }

    /// Cuts the input: an open deletion ends where the reading did.
    fn cut(&mut self) {
        let open = self.open.take();
        match (&mut self.held, open, &self.place) {
            // A marker that opened a range of which nothing was read.
            (Some(held), _, _) => {
                held.open = None;
                if held.close.is_none() {
                    self.held = None;
                }
            }
            (None, Some(open), Some(place)) => {
                let place = Place { prefix: place.prefix.clone(), is_row: false, after: true };
                self.held = Some(Held { place, close: Some(open), open: None });
            }
            (None, _, _) => {}
        }
    }

    /// Writes the end of the partition.
    fn end(mut self, writer: &mut SstableWriter) -> Result<Vec<u8>> {
        if self.held.as_ref().map_or(self.open, |held| held.open).is_some() {
            self.cut();
        }
        self.flush(writer)?;
        writer.put(Item::PartitionEnd)?;
        Ok(self.key)
    }
}

impl<'s, H: ScrubHost> Scrub<'s, H> {
    pub(super) fn new(
        fs: &'s Fs,
        directory: &'s str,
        reader: &SstableReader,
        table: Table,
        options: WriterOptions,
        how: ScrubOptions,
        host: &'s mut H,
    ) -> Self {
        Scrub {
            reader: reader.clone(),
            fs,
            directory,
            values: Values::new(&table, reader.meta().version(), how),
            table,
            options,
            how,
            host,
            last: None,
            late: Vec::new(),
            strays: Vec::new(),
            report: ScrubReport::default(),
            last_bad: None,
            items: 0,
        }
    }

    /// `None`: aborted.
    async fn next_writer(&mut self) -> Result<Option<SstableWriter>> {
        let Some(generation) = self.host.next_generation() else {
            self.report.given_up = true;
            return Ok(None);
        };
        let options = WriterOptions { generation, ..self.options.clone() };
        // Only the first may keep its level and run, whose files do not overlap.
        self.options.level = 0;
        self.options.run = None;
        self.last = None;
        SstableWriter::create(self.fs, self.directory, &self.table, options).await.map(Some)
    }

    pub(super) async fn run(&mut self, has_index: bool) -> Result<()> {
        let reader = self.reader.clone();
        let Some(mut writer) = self.next_writer().await? else { return Ok(()) };
        let done = self.all(&mut Starts::new(&reader, has_index), &mut writer).await;
        self.end(done, writer).await?;
        // Two of one key cannot be in one file set.
        while !self.late.is_empty() && !self.report.given_up {
            self.late.sort();
            let Some(mut writer) = self.next_writer().await? else { return Ok(()) };
            let done = self.late_ones(&mut writer).await;
            self.end(done, writer).await?;
        }
        let comparator = self.reader.meta().comparator().clone();
        while !self.strays.is_empty() && !self.report.given_up {
            self.strays.sort_by(|a, b| {
                let by_key = (a.token, &a.key).cmp(&(b.token, &b.key));
                by_key.then_with(|| comparator.compare(&a.clustering, &b.clustering))
            });
            let Some(mut writer) = self.next_writer().await? else { return Ok(()) };
            let done = self.stray_ones(&comparator, &mut writer).await;
            self.end(done, writer).await?;
        }
        self.forget_repair().await
    }

    /// After a loss the rest counts as not repaired: the next repair restores the missing data.
    async fn forget_repair(&self) -> Result<()> {
        if self.report.losses == 0 || self.options.repaired_at == 0 || self.report.given_up {
            return Ok(());
        }
        let state = RepairState { repaired_at: 0, pending: self.options.pending_repair };
        for written in &self.report.written {
            let (fs, set) = (self.fs, written.descriptor);
            let new = SstableReader::open(fs, self.directory, set, None).await?;
            write_repair_state(fs, new.meta(), state).await?;
        }
        Ok(())
    }

    /// Rows that were not in order, one of each clustering.
    async fn stray_ones(
        &mut self,
        comparator: &ClusteringComparator,
        writer: &mut SstableWriter,
    ) -> Result<()> {
        let mut before: Option<Stray> = None;
        for stray in std::mem::take(&mut self.strays) {
            let same = before.as_ref().is_some_and(|before| before.key == stray.key);
            if let Some(before) = &before {
                if same && comparator.compare(&before.clustering, &stray.clustering).is_eq() {
                    self.strays.push(stray);
                    continue;
                }
                if !same {
                    writer.put(Item::PartitionEnd)?;
                }
            }
            if !same {
                writer.partition(&stray.key, DeletionTime::LIVE)?;
            }
            writer.row(&stray.clustering, RowRef::trusted(&stray.row))?;
            if writer.is_full() {
                writer.write_full().await?;
            }
            self.report.rows += 1;
            self.report.rows_out_of_order += 1;
            before = Some(stray);
        }
        if before.is_some() {
            writer.put(Item::PartitionEnd)?;
        }
        Ok(())
    }

    async fn end(&mut self, done: Result<()>, writer: SstableWriter) -> Result<()> {
        match done {
            Ok(()) if self.report.given_up => {
                writer.abort().await;
                Ok(())
            }
            Ok(()) => {
                self.report.written.extend(writer.finish().await?);
                Ok(())
            }
            Err(error) => {
                writer.abort().await;
                Err(error)
            }
        }
    }

    /// All of Data.
    async fn all(&mut self, starts: &mut Starts<'_>, writer: &mut SstableWriter) -> Result<()> {
        let (mut at, mut tried) = (0, None);
        loop {
            let (start, key, what) = match self.stretch(at, false, writer).await? {
                Stop::End => return Ok(()),
                Stop::Damage { start, key, what } => (start, key, Some(what)),
                Stop::Passing { start } => (start, None, None),
                Stop::GivenUp => return Ok(()),
            };
            // An error that stops the reading of one partition may be none for a fresh start at
            // `start`.
            let is_new = what.is_some() && key.is_none() && start != at && tried != Some(start);
            if is_new {
                tried = Some(start);
                at = start;
                continue;
            }
            let next = starts.behind(start).await;
            let part = if key.is_some() { "the rest of the partition" } else { "the partition" };
            let key = key.or_else(|| starts.key_at(start));
            let is_of_others = key.as_deref().is_some_and(|key| !self.is_wanted(key));
            if let Some(what) = what.filter(|_| !is_of_others) {
                self.lose(key.as_deref(), start, format!("{part} is lost: {what}"))?;
            }
            match (next, &starts.end) {
                (Some(next), _) => at = next,
                (None, Some(Err(error))) => {
                    let what = format!(
                        "everything after it is lost: the start of the next partition is unknown \
                        ({error})"
                    );
                    return self.lose(None, start, what);
                }
                (None, _) => return Ok(()),
            }
        }
    }

    /// Those that were not in order, one of each key.
    async fn late_ones(&mut self, writer: &mut SstableWriter) -> Result<()> {
        for (token, key, start) in std::mem::take(&mut self.late) {
            let last = self.last.as_ref().map(|(token, key)| (*token, key.as_slice()));
            if last.is_some_and(|last| last >= (token, key.as_slice())) {
                self.late.push((token, key, start));
                continue;
            }
            self.report.out_of_order += 1;
            match self.stretch(start, true, writer).await? {
                Stop::Damage { what, .. } => {
                    let what = format!("the rest of the partition is lost: {what}");
                    self.lose(Some(&key), start, what)?;
                }
                Stop::GivenUp => return Ok(()),
                Stop::End | Stop::Passing { .. } => {}
            }
        }
        Ok(())
    }

    fn is_wanted(&self, key: &[u8]) -> bool {
        self.host.is_wanted(self.reader.meta().token_of(key))
    }

    /// # Errors
    /// `Corrupt`: a counter would count less.
    fn lose(&mut self, key: Option<&[u8]>, position: u64, what: String) -> Result<()> {
        self.report.losses += 1;
        if key.is_none() || self.last_bad.as_deref() != key {
            self.report.bad_partitions += 1;
            self.last_bad = key.map(<[u8]>::to_vec);
        }
        let types = &self.reader.meta().statistics().header.key_types;
        let key = key.map(|key| crate::offline::key_text(types, key));
        let loss = Loss { key, position, what };
        self.host.tell(&loss);
        if self.table.is_counter() && !self.how.skip_corrupted {
            // In the words of Cassandra's scrubber.
            return Err(SstableError::Corrupt {
                file: self.reader.meta().file(Component::Data),
                offset: position,
                what: format!(
                    "{}. Skipping corrupt data in counter tables will result in undercounts for \
                     the affected counters, so by default the scrub will stop at this point. If you \
                     would like to skip the row anyway and continue scrubbing, re-run the scrub with \
                     the --skip-corrupted option",
                    loss.what
                ),
            });
        }
        Ok(())
    }

    /// Asks the host. False: the host stops the scrub.
    async fn goes_on(&mut self, position: u64, writer: &SstableWriter) -> bool {
        self.items = 0;
        let goes_on = self.host.goes_on(position, writer.data_length()).await;
        self.report.given_up |= !goes_on;
        goes_on
    }

    /// Copies partitions from a position on, as far as they can be read.
    async fn stretch(&mut self, at: u64, only: bool, writer: &mut SstableWriter) -> Result<Stop> {
        let meta = self.reader.meta().clone();
        let mut cursor = SstableCursor::from_data(meta, at);
        let mut blocks = self.reader.sequential();
        let mut open: Option<Open> = None;
        let mut unwanted = None;
        loop {
            let what = match step(&self.reader, &mut blocks, &mut cursor).await {
                Ok(false) => return Ok(Stop::End),
                Ok(true) => match self.item(&cursor, &mut open, writer)? {
                    Taken::Yes => None,
                    Taken::Ended if only => return Ok(Stop::End),
                    Taken::Ended => None,
                    Taken::Late => {
                        cursor.skip_partition();
                        None
                    }
                    Taken::Unwanted => {
                        unwanted = Some(cursor.partition_start());
                        cursor.skip_partition();
                        None
                    }
                    Taken::No(what) => Some(what),
                },
                Err(what) => Some(what),
            };
            self.items += 1;
            let is_full = writer.is_full();
            if is_full {
                writer.write_full().await?;
            }
            // Data that cannot be read because the node stops is not lost.
            let is_asked = is_full || what.is_some() || self.items >= ITEMS_PER_QUESTION;
            if is_asked && !self.goes_on(cursor.position(), writer).await {
                return Ok(Stop::GivenUp);
            }
            let Some(what) = what else { continue };
            let begun = cursor.partition_start();
            let Some(mut partition) = open else {
                let is_late = self.late.last().is_some_and(|late| late.2 == begun);
                let is_passing = (is_late || unwanted == Some(begun)) && cursor.position() > begun;
                return Ok(match is_passing {
                    true => Stop::Passing { start: begun },
                    false => Stop::Damage { start: cursor.position(), key: None, what },
                });
            };
            partition.cut();
            let key = Some(partition.end(writer)?);
            return Ok(Stop::Damage { start: begun, key, what });
        }
    }

    fn item(
        &mut self,
        cursor: &SstableCursor,
        open: &mut Option<Open>,
        writer: &mut SstableWriter,
    ) -> Result<Taken> {
        let item = cursor.item();
        match (item, open.as_mut()) {
            (Item::Partition { token, key, .. }, _) => {
                let last = self.last.as_ref().map(|(token, key)| (*token, key.as_slice()));
                if !self.host.is_wanted(token) {
                    return Ok(Taken::Unwanted);
                }
                if last.is_some_and(|last| last >= (token, key)) {
                    self.late.push((token, key.to_vec(), cursor.partition_start()));
                    return Ok(Taken::Late);
                }
                writer.put(item)?;
                self.last = Some((token, key.to_vec()));
                *open = Some(Open { key: key.to_vec(), place: None, open: None, held: None });
                self.report.partitions += 1;
            }
            (Item::Static(_) | Item::Row { .. } | Item::Marker(_), None) => {}
            (Item::Static(row), Some(partition)) => {
                let fixed = self.values.fixed(row);
                let item = fixed.as_deref().map_or(item, |row| Item::Static(RowRef::trusted(row)));
                let wrong = self.values.wrong(row);
                match wrong.or_else(|| writer.put(item).err().map(|error| error.to_string())) {
                    None => {
                        self.report.rows += 1;
                        self.report.fixed_rows += u64::from(fixed.is_some());
                    }
                    Some(what) => {
                        let what = format!("the static row is lost: {what}");
                        self.lose(Some(&partition.key), cursor.partition_start(), what)?;
                    }
                }
            }
            (Item::Row { clustering, row }, Some(partition)) => {
                let place = Place { prefix: clustering.to_vec(), is_row: true, after: false };
                let fixed = self.values.fixed(row);
                let row = fixed.as_deref().map_or(row, RowRef::trusted);
                let item = Item::Row { clustering, row };
                let wrong = self.values.wrong_clustering(clustering);
                let wrong = wrong.or_else(|| self.values.wrong(row));
                let lost = match self.out_of_place(partition, &place) {
                    Some(Misplaced::Values) => Some("its clustering has too many values".into()),
                    _ if wrong.is_some() => wrong,
                    Some(Misplaced::Order) => {
                        let (token, key) = (cursor.token(), partition.key.clone());
                        let (clustering, row) = (clustering.to_vec(), row.bytes().to_vec());
                        self.strays.push(Stray { token, key, clustering, row });
                        self.report.fixed_rows += u64::from(fixed.is_some());
                        return Ok(Taken::Yes);
                    }
                    None => {
                        partition.flush(writer)?;
                        writer.put(item).err().map(|error| error.to_string())
                    }
                };
                match lost {
                    None => {
                        self.report.rows += 1;
                        self.report.fixed_rows += u64::from(fixed.is_some());
                        partition.place = Some(place);
                    }
                    Some(what) => {
                        let what = format!("a row is lost: {what}");
                        self.lose(Some(&partition.key), cursor.item_start(), what)?;
                    }
                }
            }
            (Item::Marker(marker), Some(partition)) => {
                let BoundRef { prefix, after } = marker.position;
                let place = Place { prefix: prefix.to_vec(), is_row: false, after };
                if self.out_of_place(partition, &place).is_some() {
                    let what = "a range tombstone is not in its place".to_owned();
                    return Ok(Taken::No(what));
                }
                if marker.close != partition.open {
                    let what = "a range tombstone has no beginning or no end";
                    return Ok(Taken::No(what.to_owned()));
                }
                partition.flush(writer)?;
                partition.open = marker.open;
                let held = Place { prefix: prefix.to_vec(), is_row: false, after };
                partition.held = Some(Held { place: held, close: marker.close, open: marker.open });
                partition.place = Some(place);
            }
            (Item::PartitionEnd, _) => {
                if let Some(partition) = open.take() {
                    partition.end(writer)?;
                }
                return Ok(Taken::Ended);
            }
        }
        Ok(Taken::Yes)
    }

    fn out_of_place(&self, partition: &Open, place: &Place) -> Option<Misplaced> {
        let comparator = self.reader.meta().comparator();
        if check_clustering(&place.prefix, comparator.len()).is_none() {
            return Some(Misplaced::Values);
        }
        let before = partition.place.as_ref()?;
        let is_behind = before.compare(place, comparator).is_lt();
        (!is_behind).then_some(Misplaced::Order)
    }
}

/// Why a row or marker cannot follow the one before.
enum Misplaced {
    /// Its clustering is not one of the table.
    Values,
    /// It is out of order.
    Order,
}

/// Outcome of an item.
enum Taken {
    Yes,
    /// With it the partition is complete.
    Ended,
    /// It begins a partition that is not in order.
    Late,
    /// It begins a partition that the host does not want.
    Unwanted,
    /// The rest of the partition cannot be trusted.
    No(String),
}

/// Advances the cursor; any read error is returned as text.
async fn step(
    reader: &SstableReader,
    blocks: &mut SequentialReader,
    cursor: &mut SstableCursor,
) -> std::result::Result<bool, String> {
    loop {
        match cursor.advance().map_err(|error| error.to_string())? {
            Advance::Item => return Ok(true),
            Advance::End => return Ok(false),
            Advance::NeedBlock(request) => {
                let chunk = match blocks.load_block(request.block).await {
                    // The unreadable block may be another one of the read-ahead.
                    Err(SstableError::Io(_)) => reader.load_block(request.block).await,
                    read => read,
                };
                cursor.feed(request.block, chunk.map_err(|error| error.to_string())?);
            }
        }
    }
}
