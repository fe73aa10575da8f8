//! SSTables that are sent to another node, or received from one, unmodified.
//!
//! A source [`Transfer::hold`]s its data of ranges: the files that lie in them as a whole, and a view of
//! the rest, whose rows are read. Both are of one moment: a compaction meanwhile removes names, not the
//! held data. Otherwise it could purge a deletion together with its hidden data after a copy of that was
//! sent.
//!
//! A receiver takes the components of a file one after the other ([`Ingest::begin_whole`]), compares
//! them with their Checksums.db, and shows the file with everything else of its [`Ingest`].
//!
//! Writes after the hold are not in it: they must reach the receiver as writes.
//!
//! INV-whole-1: a file is taken only when every byte of every component is verified to be as written,
//! and it lies in the requested ranges and the slice.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use rt::{Buf, File, Fs, OpenOptions};
use sst_format::attached::ATTACHED_MAX;
use sst_format::checksums::{BlockChecksummer, Checksums, ComponentChecksum};
use sst_format::partitions::FOOTER_BYTES_MAX;
use sstable::file_set::{mark_unfinished, unfinished_path};
use sstable::{
    Attached, AttachedName, Component, Components, Descriptor, SstableMeta, Version, WriterOptions,
};
use stdx::{IoError, IoErrorKind, TableId, Token};

use crate::error::StoreError;
use crate::files::held_files::{Held, HeldFile, TakenForms};
use crate::memtable::Memtable;
use crate::tables::table::{InFlight, TableState, TableView};
use crate::tables::table_file::{TableFile, lies_in, map_error};
use crate::transfer::Transfer;
use crate::transfer::row_ingest::{Done, Ingest};

/// Files sent whole at a time: each keeps all its components open.
const FILES_MAX: usize = 128;
/// Largest component that a receiver keeps in memory to verify it: all that are not read in blocks.
const SMALL_BYTES_MAX: u64 = 1 << 30;
/// Bytes of a received file that may wait for the disk before more is accepted.
const WRITING_BYTES_MAX: usize = 8 << 20;
/// Buffers that are kept for the next pieces.
const SPARE_MAX: usize = 8;

impl Transfer {
    /// Returns the versions of files of a table that this node accepts unmodified: all that are written
    /// somewhere, except those with times that it could not rewrite. None of a table whose files are encrypted:
    /// rows are encrypted with a key of this node when they are written.
    pub fn whole_versions(&self, id: TableId) -> Vec<Version> {
        let table = self.tables.table(id);
        let is_sealed =
            |table: Rc<TableState>| self.env.options.sealing.of(&table.version().table).is_sealed();
        if table.is_none_or(is_sealed) {
            return Vec::new();
        }
        let own = self.env.options.sstable_version;
        let takes = |version: &Version| own.has_uint_times() || !version.has_uint_times();
        WriterOptions::VERSIONS.into_iter().filter(takes).collect()
    }

    /// Holds this shard's data of ranges `(start, end]` of a table, ascending and apart from each
    /// other (one that begins with the smallest token holds it). `None`: no file of at least
    /// `bytes_min` bytes of Data, of an accepted form, lies in the ranges as a whole.
    /// such file.
    ///
    /// # Errors
    /// `UnknownTable`, `DiskFull`, `Corrupt`, `Io`, `Stopping`.
    pub async fn hold(
        &self,
        id: TableId,
        ranges: &[(Token, Token)],
        bytes_min: u64,
        taken: &TakenForms,
    ) -> Result<Option<Held>, StoreError> {
        let table = self.files.opened_table(id).await?;
        let goes = |file: &Rc<TableFile>| taken.has(file.reader.meta()) && can_go(file, bytes_min);
        // Without one there is no need of a flush.
        if !table.view().files.iter().any(goes) {
            return Ok(None);
        }
        self.writer.flush(Some(&[id])).await?;
        let view = table.view();
        let mut whole = Vec::new();
        let mut rest = Vec::new();
        for file in &view.files {
            let held = match whole.len() < FILES_MAX && goes(file) && lies_in(file, ranges).await? {
                true => self.open_components(file).await?,
                false => None,
            };
            match held {
                Some(held) => whole.push(held),
                None => rest.push(file.clone()),
            }
        }
        if whole.is_empty() {
            return Ok(None);
        }
        let rest = TableView::new(Rc::new(Memtable::new()), Vec::new(), rest);
        Ok(Some(Held { table: id, files: whole, rest: Rc::new(rest) }))
    }

    /// `None` when a compaction has taken the names away.
    async fn open_components(&self, file: &Rc<TableFile>) -> Result<Option<HeldFile>, StoreError> {
        let (fs, meta) = (self.env.rt.fs(), file.reader.meta());
        let mut components = Vec::new();
        for component in streamed_components(meta) {
            let direct = component.is_large();
            let options = OpenOptions { read: true, direct, ..OpenOptions::default() };
            let opened = match fs.open(&meta.file(component), options).await {
                Ok(opened) => opened,
                Err(error) if error.kind == IoErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            let length = opened.len().await?;
            components.push((component, opened, length));
        }
        let version = meta.version();
        Ok(Some(HeldFile { generation: file.generation, version, components, _file: file.clone() }))
    }
}

/// The components of a file that are sent with it, TOC last: all of a fixed kind, and attached ones
/// according to their lifecycle.
fn streamed_components(meta: &SstableMeta) -> Vec<Component> {
    let is_listed = |c: &Component| *c != Component::Toc && meta.components().contains(c);
    let mut components: Vec<Component> = Component::ALL.into_iter().filter(is_listed).collect();
    let attached = Attached::of(meta);
    for (name, _) in attached.existing() {
        let sum = attached.checksum(*name);
        if sum.is_some_and(|sum| sum.lifecycle.is_streamed()) {
            components.push(Component::Attached(*name));
        }
    }
    components.push(Component::Toc);
    components
}

/// Returns true if another node could use the file unmodified.
fn can_go(file: &Rc<TableFile>, bytes_min: u64) -> bool {
    let meta = file.reader.meta();
    let stats = &meta.statistics().stats;
    // The other node assigns it a name of its own.
    !file.spanning
        // Its key is of this node.
        && !meta.is_sealed()
        && file.filter.is_none()
        && file.hidden.is_empty()
        && meta.checksums().is_some()
        && meta.unreadable().is_none()
        && meta.data_file_length() >= bytes_min
        && stats.pending_repair.is_none()
        && !stats.has_legacy_counter_shards
}

/// A file that is received unmodified.
pub(crate) struct Coming {
    in_flight: InFlight,
    version: Version,
    /// Components and their bytes, TOC last.
    components: Vec<(Component, u64)>,
    /// The component being received, and its bytes handed to the disk.
    at: usize,
    file: Option<File>,
    written: u64,
    writes: Writes,
    /// Components whose bytes are all on their way to be durable.
    syncs: Vec<Syncing>,
    checksummer: BlockChecksummer,
    sums: Vec<ComponentChecksum>,
    /// All that are read as a whole.
    small: Vec<(Component, Vec<u8>)>,
    /// The last bytes of Partitions.
    index_tail: Vec<u8>,
}

/// Work that continues while its task does something else.
enum Begun<T> {
    Done(T),
    UnderWay(Pin<Box<dyn Future<Output = T>>>),
}

impl<T> Begun<T> {
    /// Begins the work: its requests to the disk are submitted now.
    async fn of(work: impl Future<Output = T> + 'static) -> Begun<T> {
        let mut work: Pin<Box<dyn Future<Output = T>>> = Box::pin(work);
        let done = poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => Poll::Ready(None),
        });
        match done.await {
            Some(done) => Begun::Done(done),
            None => Begun::UnderWay(work),
        }
    }

    async fn end(self) -> T {
        match self {
            Begun::Done(done) => done,
            Begun::UnderWay(work) => work.await,
        }
    }
}

/// A file that is becoming durable.
pub(crate) struct Syncing(Begun<Result<(), IoError>>);

impl Syncing {
    pub(crate) async fn end(self) -> Result<(), StoreError> {
        Ok(self.0.end().await?)
    }
}

/// Writes of a file in progress: the next bytes are received while these are written to the disk.
/// Otherwise the disk would wait for the network and the network for the disk.
#[derive(Default)]
struct Writes {
    under_way: VecDeque<Begun<(Buf, Result<(), IoError>)>>,
    bytes: usize,
    spare: Vec<Buf>,
}

impl Writes {
    /// Begins to write; waits while too much is under way. An error may be that of an earlier write.
    async fn write(&mut self, file: &File, bytes: &[u8], at: u64) -> Result<(), StoreError> {
        while self.bytes > 0 && self.bytes.saturating_add(bytes.len()) > WRITING_BYTES_MAX {
            self.end_one().await?;
        }
        let mut buf = self.spare.pop().unwrap_or_default();
        buf.clear();
        buf.extend_from_slice(bytes);
        self.bytes += buf.len();
        let file = file.clone();
        let write = async move { file.write_at(buf, at).await };
        self.under_way.push_back(Begun::of(write).await);
        Ok(())
    }

    async fn end_one(&mut self) -> Result<(), StoreError> {
        let Some(write) = self.under_way.pop_front() else { return Ok(()) };
        let (buf, written) = write.end().await;
        self.bytes = self.bytes.saturating_sub(buf.len());
        written?;
        if self.spare.len() < SPARE_MAX {
            self.spare.push(buf);
        }
        Ok(())
    }

    async fn end(&mut self) -> Result<(), StoreError> {
        while !self.under_way.is_empty() {
            self.end_one().await?;
        }
        Ok(())
    }
}

impl Coming {
    /// Aborts the stream. Returns the files that have to be removed.
    pub(crate) fn give_up(self) -> InFlight {
        self.in_flight
    }

    fn descriptor(&self) -> Descriptor {
        Descriptor::new(self.version, self.in_flight.generation())
    }

    /// The list of checksums that came, with the name that the file set has here in its binding.
    fn rebound(&mut self, table: TableId) -> Result<Vec<u8>, StoreError> {
        let id = self.descriptor().id();
        let Some((_, bytes)) = self.small.iter_mut().find(|(c, _)| *c == Component::Checksums)
        else {
            return Err(StoreError::Invalid("a file that came: it has no checksums".to_owned()));
        };
        let list = Checksums::decode(bytes);
        let mut list =
            list.map_err(|error| StoreError::Invalid(format!("a file that came: {error}")))?;
        list.rebind(table.0, id);
        *bytes = list.encode();
        Ok(bytes.clone())
    }

    fn attached(&self) -> Vec<(AttachedName, u64)> {
        let attached = self.components.iter().filter_map(|(component, length)| match component {
            Component::Attached(name) => Some((*name, *length)),
            _ => None,
        });
        attached.collect()
    }

    fn length_of(&self, component: Component) -> u64 {
        let found = self.components.iter().find(|(c, _)| *c == component);
        found.map_or(0, |(_, length)| *length)
    }
}

impl Ingest {
    /// Begins a file of that version that is received unmodified, with the bytes of its components,
    /// TOC last.
    ///
    /// # Errors
    /// `Invalid`: these cannot be the components of a file, or the version is not one of
    /// [`Transfer::whole_versions`]; `DiskFull`, `Io`, `Stopping`.
    pub async fn begin_whole(
        &mut self,
        version: Version,
        components: Vec<(Component, u64)>,
    ) -> Result<(), StoreError> {
        self.check_alive()?;
        let invalid = |what: &str| Err(StoreError::Invalid(what.to_owned()));
        if self.coming.is_some() {
            return invalid("a file begins before the one before has ended");
        }
        if !self.store.whole_versions(self.table.id).contains(&version) {
            return invalid("a file of a version that is not taken as it is");
        }
        let mut named: Vec<Component> = components.iter().map(|(c, _)| *c).collect();
        if named.last() != Some(&Component::Toc) {
            return invalid("a file whose last component is not its TOC.txt");
        }
        if named.contains(&Component::Encryption) {
            return invalid("a file that is encrypted with a key of another node");
        }
        if named.len() > Component::ALL.len() + ATTACHED_MAX {
            return invalid("a file with too many components");
        }
        named.sort_unstable();
        named.dedup();
        let large: &[Component] = match version.is_bti() {
            false => &[Component::Data, Component::Index],
            true => &[Component::Data, Component::Partitions, Component::Rows],
        };
        let is_complete = named.iter().filter(|c| c.is_large()).eq(large.iter())
            && named.contains(&Component::Checksums);
        if named.len() != components.len() || !is_complete {
            return invalid("a file without all of its components, or with others");
        }
        if components.iter().any(|(c, n)| c.is_small() && *n > SMALL_BYTES_MAX) {
            return invalid("a component that is too large");
        }
        let bytes = components.iter().fold(0_u64, |sum, (_, n)| sum.saturating_add(*n));
        let options = &self.store.env.options;
        let free = self.store.files.directories.free_bytes().await?;
        if free < bytes.saturating_add(options.disk_reserve_bytes) {
            let detail = format!("a file of {bytes} bytes comes, {free} are free");
            return Err(StoreError::DiskFull { detail });
        }
        self.check_alive()?;
        let generation = self.store.files.next_generation(&self.table);
        self.coming = Some(Coming {
            in_flight: self.table.in_flight(generation),
            version,
            components,
            at: 0,
            file: None,
            written: 0,
            writes: Writes::default(),
            syncs: Vec::new(),
            checksummer: BlockChecksummer::default(),
            sums: Vec::new(),
            small: Vec::new(),
            index_tail: Vec::new(),
        });
        Ok(())
    }

    /// The next bytes of the file being received, never of two components at once. The pieces are
    /// multiples of 4 KiB except the last one of a component, where the page cache is to be
    /// bypassed.
    ///
    /// # Errors
    /// `Invalid`: not the next ones; `DiskFull`, `Io`, `Stopping`. Drop the ingest then.
    pub async fn whole_bytes(
        &mut self,
        component: Component,
        bytes: &[u8],
    ) -> Result<(), StoreError> {
        self.check_alive()?;
        let result = self.take_bytes(component, bytes).await;
        self.store.files.note_write_result(&result);
        result
    }

    async fn take_bytes(&mut self, component: Component, bytes: &[u8]) -> Result<(), StoreError> {
        let fs = self.store.env.rt.fs();
        let directory = self.directory.clone();
        let Some(coming) = &mut self.coming else {
            return Err(StoreError::Invalid("bytes of no file".to_owned()));
        };
        let descriptor = coming.descriptor();
        let is_next = coming.components.get(coming.at).is_some_and(|(next, length)| {
            let left = length.saturating_sub(coming.written);
            *next == component && bytes.len() as u64 <= left
        });
        if !is_next {
            return Err(StoreError::Invalid("bytes of a file that are not the next".to_owned()));
        }
        let file = match &coming.file {
            Some(file) => file.clone(),
            None => {
                if coming.at == 0 {
                    mark_unfinished(&fs, &directory, descriptor).await.map_err(map_error)?;
                }
                let file = match component {
                    Component::Toc => reopen(&fs, &unfinished_path(&directory, descriptor)).await?,
                    other => {
                        let path = format!("{directory}/{}", descriptor.file_name(other));
                        create(&fs, &path, other == Component::Data).await?
                    }
                };
                if component == Component::Data {
                    // Writes that extend a file are done one after the other.
                    file.set_len(coming.length_of(component)).await?;
                }
                coming.file = Some(file.clone());
                file
            }
        };
        coming.checksummer.update(bytes);
        // The list of checksums is written when it is whole, under the name that the file set has here.
        if component != Component::Checksums {
            coming.writes.write(&file, bytes, coming.written).await?;
        }
        if component == Component::Partitions {
            let from = coming.length_of(component).saturating_sub(FOOTER_BYTES_MAX as u64);
            let skip = usize::try_from(from.saturating_sub(coming.written)).unwrap_or(usize::MAX);
            coming.index_tail.extend_from_slice(bytes.get(skip..).unwrap_or(&[]));
        }
        coming.written += bytes.len() as u64;
        if component.is_small() {
            match coming.small.last_mut().filter(|(c, _)| *c == component) {
                Some((_, all)) => all.extend_from_slice(bytes),
                None => coming.small.push((component, bytes.to_vec())),
            }
        }
        if coming.written < coming.length_of(component) {
            return Ok(());
        }
        if component == Component::Checksums {
            let list = coming.rebound(self.version.table.id)?;
            coming.writes.write(&file, &list, 0).await?;
        }
        coming.writes.end().await?;
        let sync = async move { file.sync_data().await };
        coming.syncs.push(Syncing(Begun::of(sync).await));
        coming.sums.push(std::mem::take(&mut coming.checksummer).finish(component));
        coming.file = None;
        coming.written = 0;
        coming.at += 1;
        Ok(())
    }

    /// Ends the received file: verified, and shown with the rest of the ingest when it is durable.
    ///
    /// # Errors
    /// `Invalid`: it is incomplete, or differs from the written file, or is of another shard or
    /// range; `Io`.
    /// Drop the ingest then.
    pub async fn end_whole(&mut self) -> Result<(), StoreError> {
        self.check_alive()?;
        let Some(coming) = self.coming.take() else {
            return Err(StoreError::Invalid("no file comes".to_owned()));
        };
        match self.verify(&coming) {
            Ok(partitions) => {
                self.report.files += 1;
                self.report.partitions += partitions;
                self.report.disk_bytes += coming.components.iter().map(|(_, n)| n).sum::<u64>();
                let descriptor = coming.descriptor();
                let Coming { in_flight, syncs, .. } = coming;
                self.done.push(Done { in_flight, descriptor, is_whole: true });
                // The next file is received while this one becomes durable.
                let before = std::mem::replace(&mut self.syncing, syncs);
                let synced = self.synced(before).await;
                self.store.files.note_write_result(&synced);
                synced
            }
            Err(error) => {
                self.coming = Some(coming);
                Err(error)
            }
        }
    }

    /// Waits until files that came as they are are durable.
    pub(crate) async fn synced(&self, files: Vec<Syncing>) -> Result<(), StoreError> {
        for file in files {
            file.end().await?;
        }
        Ok(())
    }

    fn verify(&self, coming: &Coming) -> Result<u64, StoreError> {
        let invalid = |what: String| StoreError::Invalid(format!("a file that came: {what}"));
        if coming.at < coming.components.len() {
            return Err(invalid("it is not whole".to_owned()));
        }
        let list = coming.small.iter().find(|(c, _)| *c == Component::Checksums);
        let list = list.map(|(_, bytes)| Checksums::decode(bytes));
        let list = match list {
            Some(Ok(list)) => list,
            Some(Err(error)) => return Err(invalid(error.to_string())),
            None => return Err(invalid("it has no checksums".to_owned())),
        };
        for sum in coming.sums.iter().filter(|sum| sum.component != Component::Checksums) {
            let listed = list.component(sum.component);
            // Statistics has checksums of its own, which are compared below (none in `me`, where
            // nothing proves that it is as written; it was received in frames that have some).
            if listed.is_none() && sum.component == Component::Statistics {
                continue;
            }
            if !listed.is_some_and(|listed| listed.is_same_content(sum)) {
                return Err(invalid(format!("{} has another checksum", sum.component)));
            }
        }
        let came = |c| coming.sums.iter().any(|sum| sum.component == c);
        let may_miss =
            |c: &ComponentChecksum| c.component.is_attached() && c.lifecycle.is_rebuilt();
        if !list.components.iter().all(|listed| came(listed.component) || may_miss(listed)) {
            return Err(invalid("components are missing".to_owned()));
        }
        let (shard, shards) = self.store.env.shard();
        let is_own = list.group.shard == Some(shard) && list.group.shard_count == shards;
        if shards > 1 && !is_own {
            return Err(invalid("it is of another shard".to_owned()));
        }
        let components = Components {
            small: coming.small.clone(),
            data_length: coming.length_of(Component::Data),
            index_length: coming.length_of(match coming.version.is_bti() {
                false => Component::Index,
                true => Component::Partitions,
            }),
            rows_length: coming.length_of(Component::Rows),
            index_tail: coming.index_tail.clone(),
            attached: coming.attached(),
            is_sealed: false,
        };
        let descriptor = coming.descriptor();
        let table = Some(&*self.version.table);
        let meta = SstableMeta::open(&self.directory, descriptor, table, &components);
        let meta = meta.map_err(|error| invalid(error.to_string()))?;
        self.store.files.check_times(&meta)?;
        if meta.statistics().stats.pending_repair.is_some() {
            return Err(invalid("a repair of it is under way".to_owned()));
        }
        for token in [meta.first_token(), meta.last_token()] {
            if self.store.env.options.shard_map.shard_of(self.table.id, token).0 != shard {
                return Err(invalid("it is of another shard".to_owned()));
            }
            if !self.is_wanted(token) {
                return Err(invalid("it is of another range".to_owned()));
            }
        }
        Ok(meta.estimated_partitions())
    }
}

async fn reopen(fs: &Fs, path: &str) -> Result<File, StoreError> {
    let options =
        OpenOptions { write: true, create: true, truncate: true, ..OpenOptions::default() };
    Ok(fs.open(path, options).await?)
}

async fn create(fs: &Fs, path: &str, direct: bool) -> Result<File, StoreError> {
    let options = OpenOptions { write: true, create_new: true, direct, ..OpenOptions::default() };
    Ok(fs.open(path, options).await?)
}
