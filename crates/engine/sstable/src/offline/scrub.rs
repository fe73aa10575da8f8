//! A damaged file set written anew with all that can be read of it.
//!
//! Data is read from front to back. Where it cannot be read on, the partition at hand ends with
//! what was read of it, and the reading goes on where the index says that the next partition
//! begins. Rows and partitions that are not in order come into further file sets. Everything that is
//! left out is told. Source of the idea: `io.sstable.format.SortedTableScrubber`, which gives a
//! partition up as a whole.

use data::clustering::check as check_clustering;
use data::{Advance, BoundRef, ClusteringComparator, Cursor, DeletionTime, Item, Marker, RowRef};
use rt::Fs;
use sst_format::Descriptor;
use stdx::{Generation, Token};

use super::salvage::{self, Salvaged};
use super::starts::Starts;
use super::upgrade::{options_like, written_version};
use super::verify::Place;
use crate::reader::SequentialReader;
use crate::writer::{SstableWriter, WriterOptions, Written};
use crate::{Result, SstableCursor, SstableError, SstableReader};

/// Something that could not be saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Partition key as text, where it is known.
    pub key: Option<String>,
    /// Where in (uncompressed) Data.
    pub position: u64,
    /// What is lost and why.
    pub what: String,
}

/// What a scrub did.
#[derive(Clone, Debug, Default)]
pub struct ScrubReport {
    /// The new file sets, in the directory of the old one.
    pub written: Vec<Written>,
    /// Partitions written, whole ones or parts.
    pub partitions: u64,
    /// Rows written, static ones included.
    pub rows: u64,
    /// Of these partitions, those that were not in order.
    pub out_of_order: u64,
    /// Of these rows, those that were not in order in their partition.
    pub rows_out_of_order: u64,
    /// How often something was lost.
    pub losses: u64,
    /// Components that are damaged and were made anew, with what is wrong.
    pub bad_components: Vec<String>,
}

/// Writes what can be read of a file set to new ones in the same directory, with the numbers from
/// `first` on. The old one stays. `tell` gets every loss as it is met.
///
/// # Errors
/// `Missing`, `Corrupt`, `Unsupported`: Data, Statistics or CompressionInfo are of no use, so that
/// nothing can be read. `Io`, `AlreadyExists` among them, of writing. What was written is removed
/// then.
pub async fn scrub(
    fs: &Fs,
    directory: &str,
    set: Descriptor,
    first: Generation,
    tell: &mut dyn FnMut(&Loss),
) -> Result<ScrubReport> {
    let Salvaged { reader, has_index, bad } = salvage::open(fs, directory, set).await?;
    let table = super::table_of_header(&reader.meta().statistics().header);
    let mut options = options_like(&reader, &table, first)?;
    options.version = written_version(set.version);
    let report = ScrubReport { bad_components: bad, ..ScrubReport::default() };
    let mut scrub = Scrub {
        reader: reader.clone(),
        fs,
        directory,
        table,
        options,
        last: None,
        late: Vec::new(),
        strays: Vec::new(),
        report,
        tell,
    };
    match scrub.run(has_index).await {
        Ok(()) => Ok(scrub.report),
        Err(error) => {
            for written in &scrub.report.written {
                drop(crate::remove_sstable(fs, directory, written.descriptor).await);
            }
            Err(error)
        }
    }
}

struct Scrub<'s> {
    reader: SstableReader,
    fs: &'s Fs,
    directory: &'s str,
    table: schema::Table,
    /// Those of the next file set.
    options: WriterOptions,
    /// The partition written last.
    last: Option<(Token, Vec<u8>)>,
    /// Partitions that are not in order, and where they begin.
    late: Vec<(Token, Vec<u8>, u64)>,
    /// Rows that are not in order in their partition. As many as the damage makes: in memory.
    strays: Vec<Stray>,
    report: ScrubReport,
    tell: &'s mut dyn FnMut(&Loss),
}

/// A row that goes to a file set of its own.
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
    /// The same, of a partition that was passed over and is read again in its turn.
    Passing { start: u64 },
}

/// The partition being written.
struct Open {
    key: Vec<u8>,
    place: Option<Place>,
    /// The range deletion that is open in what was read.
    open: Option<DeletionTime>,
    /// The last marker, when nothing was read behind it: it is written with what follows.
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

    /// Nothing more is known: what is open ends where the reading did.
    fn cut(&mut self) {
        let open = self.open.take();
        match (&mut self.held, open, &self.place) {
            // A marker that opened something of which nothing was read.
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

impl Scrub<'_> {
    async fn next_writer(&mut self) -> Result<SstableWriter> {
        let options = self.options.clone();
        self.options.generation = Generation(options.generation.0.saturating_add(1));
        self.last = None;
        SstableWriter::create(self.fs, self.directory, &self.table, options).await
    }

    async fn run(&mut self, has_index: bool) -> Result<()> {
        let mut writer = self.next_writer().await?;
        let reader = self.reader.clone();
        let done = self.all(&mut Starts::new(&reader, has_index), &mut writer).await;
        self.end(done, writer).await?;
        // Two of one key cannot be in one file set.
        while !self.late.is_empty() {
            self.late.sort();
            let mut writer = self.next_writer().await?;
            let done = self.late_ones(&mut writer).await;
            self.end(done, writer).await?;
        }
        let comparator = self.reader.meta().comparator().clone();
        while !self.strays.is_empty() {
            self.strays.sort_by(|a, b| {
                let by_key = (a.token, &a.key).cmp(&(b.token, &b.key));
                by_key.then_with(|| comparator.compare(&a.clustering, &b.clustering))
            });
            let mut writer = self.next_writer().await?;
            let done = self.stray_ones(&comparator, &mut writer).await;
            self.end(done, writer).await?;
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
            };
            // What stands against going on may not stand against beginning there.
            let is_new = what.is_some() && key.is_none() && start != at && tried != Some(start);
            if is_new {
                tried = Some(start);
                at = start;
                continue;
            }
            let next = starts.behind(start).await;
            let part = if key.is_some() { "the rest of the partition" } else { "the partition" };
            let key = key.or_else(|| starts.key_at(start));
            if let Some(what) = what {
                self.lose(key.as_deref(), start, format!("{part} is lost: {what}"));
            }
            match (next, &starts.end) {
                (Some(next), _) => at = next,
                (None, Some(Err(error))) => {
                    let what = format!(
                        "all that follows is lost: where the next partition begins is not known \
                         ({error})"
                    );
                    self.lose(None, start, what);
                    return Ok(());
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
            if let Stop::Damage { what, .. } = self.stretch(start, true, writer).await? {
                self.lose(Some(&key), start, format!("the rest of the partition is lost: {what}"));
            }
        }
        Ok(())
    }

    fn lose(&mut self, key: Option<&[u8]>, position: u64, what: String) {
        self.report.losses += 1;
        let types = &self.reader.meta().statistics().header.key_types;
        let key = key.map(|key| super::key_text(types, key));
        (self.tell)(&Loss { key, position, what });
    }

    /// Copies partitions from a position on, as far as they can be read.
    async fn stretch(&mut self, at: u64, only: bool, writer: &mut SstableWriter) -> Result<Stop> {
        let meta = self.reader.meta().clone();
        let mut cursor = SstableCursor::from_data(meta, at);
        let mut blocks = self.reader.sequential();
        let mut open: Option<Open> = None;
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
                    Taken::No(what) => Some(what),
                },
                Err(what) => Some(what),
            };
            if writer.is_full() {
                writer.write_full().await?;
            }
            let Some(what) = what else { continue };
            let begun = cursor.partition_start();
            let Some(mut partition) = open else {
                let is_late = self.late.last().is_some_and(|late| late.2 == begun);
                let is_passing = is_late && cursor.position() > begun;
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
            (Item::Static(_), Some(partition)) => {
                return match writer.put(item) {
                    Ok(()) => {
                        self.report.rows += 1;
                        Ok(Taken::Yes)
                    }
                    Err(error) => {
                        let what = format!("the static row is lost: {error}");
                        self.lose(Some(&partition.key), cursor.partition_start(), what);
                        Ok(Taken::Yes)
                    }
                };
            }
            (Item::Row { clustering, row }, Some(partition)) => {
                let place = Place { prefix: clustering.to_vec(), is_row: true, after: false };
                let lost = match self.out_of_place(partition, &place) {
                    Some(Misplaced::Order) => {
                        let (token, key) = (cursor.token(), partition.key.clone());
                        let (clustering, row) = (clustering.to_vec(), row.bytes().to_vec());
                        self.strays.push(Stray { token, key, clustering, row });
                        return Ok(Taken::Yes);
                    }
                    Some(Misplaced::Values) => Some("its clustering has too many values".into()),
                    None => {
                        partition.flush(writer)?;
                        writer.put(item).err().map(|error| error.to_string())
                    }
                };
                match lost {
                    None => {
                        self.report.rows += 1;
                        partition.place = Some(place);
                    }
                    Some(what) => {
                        let what = format!("a row is lost: {what}");
                        self.lose(Some(&partition.key), cursor.item_start(), what);
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
                    let what = "a range tombstone ends that did not begin, or the other way round";
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
    /// It does not come behind.
    Order,
}

/// What became of an item.
enum Taken {
    Yes,
    /// With it the partition is complete.
    Ended,
    /// It begins a partition that is not in order.
    Late,
    /// The rest of the partition cannot be trusted.
    No(String),
}

/// Moves on; what cannot be read is told as text, whatever the reason.
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
                    // Nothing but this block may be unreadable of what was to be read ahead.
                    Err(SstableError::Io(_)) => reader.load_block(request.block).await,
                    read => read,
                };
                cursor.feed(request.block, chunk.map_err(|error| error.to_string())?);
            }
        }
    }
}

impl std::fmt::Display for Loss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.key {
            Some(key) => write!(f, "partition '{key}' at {}: {}", self.position, self.what),
            None => write!(f, "at {}: {}", self.position, self.what),
        }
    }
}
