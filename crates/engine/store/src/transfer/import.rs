//! Import: SSTables that an operator put into a directory become files of a table, on every shard.
//!
//! One shard takes them in ([`Transfer::import`], [`Transfer::refresh`]); then every shard adopts the files
//! in its slice ([`Transfer::adopt`]), as a start opens files of a foreign number of shards.
//!
//! Order: 1. every file set is read where it is; 2. its components are linked, or copied, into the
//! table's directory under a new generation and synced, its TOC.txt as `TOC.txt.tmp`; the level and
//! repair state in its Statistics are rewritten, never in place: the source keeps its own;
//! 3. when there are several a record, as of an ingest, names them all; 4. the TOC files get their
//!    names; 5. the record is removed; 6. the names in the source directory are removed, TOC.txt
//!    first; 7. every shard takes its slice into the view. A crash before 3 (4 for a single file)
//!    leaves leftovers that the next start removes, and the source as it was. After it the next
//!    start opens all of the files.
//!
//! INV-import-1: a file set whose directory is refused is left as it was, names and bytes.
//! INV-import-2: after a crash all files of an import are in use or none is.
//! INV-import-3: no truncation names a file before it is adopted: a concurrent one counts as before
//! the import.

use std::collections::BTreeMap;
use std::rc::Rc;

use data::command::KeyRange;
use rt::{Buf, Fs, OpenOptions};
use sst_format::checksums::Checksums;
use sstable::file_set::{mark_unfinished, marked_set, unfinished_path};
use sstable::offline::{Detail, PartitionScan, ScanClock, verify};
use sstable::repair_state::restated;
use sstable::{
    Attached, Component, Descriptor, SetFiles, SetState, SstableMeta, SstableReader, list_sstables,
    rebuild_toc,
};
use stdx::{DeletionSeconds, IoErrorKind, TableId, Token, Uuid};

use crate::compact::cleanup::OwnedRanges;
use crate::error::StoreError;
use crate::files::table_files::{encode_record, is_record, record_path, remove_if_there, toc_path};
use crate::tables::table::{TableState, TableView};
use crate::tables::table_file::{TableFile, map_error};
use crate::transfer::Transfer;

/// Bytes of one step of a copy.
const COPY_BYTES: usize = 1 << 20;
/// Directories of one import.
pub(crate) const DIRECTORIES_MAX: usize = 1024;
/// Largest TOC.txt, bytes.
const TOC_BYTES_MAX: usize = 1 << 20;
/// Largest Checksums.db, bytes.
const CHECKSUMS_BYTES_MAX: usize = 2 << 30;
/// File sets of one import: their record is read as a whole.
const FILE_SETS_MAX: usize = 100_000;

/// Options of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportOptions {
    /// The level in the files stays; else it becomes 0.
    pub keep_level: bool,
    /// The repair state of the files stays (except of a repair under way); else they become
    /// unrepaired.
    pub keep_repaired: bool,
    /// Every byte is compared with its checksums, every row is read.
    pub verify: bool,
    /// The source keeps its files; else they are moved.
    pub copy: bool,
    /// Every partition must lie in these. `None`: any may.
    pub owned: Option<OwnedRanges>,
}

/// Result of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// The new files: durable, and seen by a shard when it has adopted them.
    pub files: Vec<Descriptor>,
    /// Directories that were refused, and why.
    pub failed: Vec<(String, StoreError)>,
    /// Files that were taken in and could not be removed from where they were.
    pub left: Vec<String>,
}

/// A complete file set of a source directory.
#[derive(Clone, Debug)]
struct FileSet {
    directory: String,
    descriptor: Descriptor,
    /// TOC last, with their bytes.
    components: Vec<(Component, u64)>,
}

impl FileSet {
    fn path(&self, component: Component) -> String {
        format!("{}/{}", self.directory, self.descriptor.file_name(component))
    }

    /// The attached components that have checksums are taken too. Those of other programs are not.
    fn add_attached(&mut self, meta: &SstableMeta) {
        let at = self.components.len().saturating_sub(1);
        let attached = Attached::of(meta).existing().iter();
        let attached = attached.map(|(name, length)| (Component::Attached(*name), *length));
        self.components.splice(at..at, attached);
    }
}

/// A file set that has its new names, but for its TOC.txt.
struct Placed {
    from: FileSet,
    descriptor: Descriptor,
}

impl Transfer {
    /// Takes the SSTables of directories in. On one shard; then [`Transfer::adopt`] on every shard. What
    /// a refused directory has is not taken.
    ///
    /// # Errors
    /// `Invalid`: a directory does not exist or cannot be read: nothing was done; `UnknownTable`,
    /// `DiskFull`, `Io`, `Stopping`: no file was taken.
    pub async fn import(
        &self,
        id: TableId,
        directories: &[String],
        options: &ImportOptions,
    ) -> Result<Imported, StoreError> {
        let table = self.importing(id).await?;
        if directories.len() > DIRECTORIES_MAX {
            let text = format!("at most {DIRECTORIES_MAX} directories are imported at a time");
            return Err(StoreError::Invalid(text));
        }
        let fs = self.env.rt.fs();
        let mut listed: BTreeMap<String, Result<Vec<FileSet>, StoreError>> = BTreeMap::new();
        for directory in directories {
            let directory = trimmed(directory);
            if !listed.contains_key(directory) {
                listed.insert(directory.to_owned(), self.list(&fs, directory).await?);
            }
        }
        let mut done = Imported::default();
        let mut good = Vec::new();
        // 1. All of them before any is touched.
        for (directory, sets) in listed {
            match self.examine(&fs, &table, sets, options).await {
                Ok(sets) => good.push((directory, sets)),
                Err(StoreError::Stopping) => return Err(StoreError::Stopping),
                Err(error) => done.failed.push((directory, error)),
            }
        }
        // 2.
        let mut placed = Vec::new();
        for (directory, sets) in good {
            match self.place(&fs, &table, sets, options).await {
                Ok(of_it) => placed.extend(of_it),
                Err(StoreError::Stopping) => {
                    self.unplace(&table, placed).await;
                    return Err(StoreError::Stopping);
                }
                Err(error) => done.failed.push((directory, error)),
            }
        }
        self.commit_import(&fs, &table, placed, options.copy, &mut done).await?;
        Ok(done)
    }

    /// Takes in the files that an operator put into the table's own directory: those that
    /// [`Transfer::claim_new_files`] of all shards named. As [`Transfer::import`], without reading
    /// their rows.
    ///
    /// # Errors
    /// Those of [`Transfer::import`], and an error of a file: then none is taken in.
    pub async fn refresh(&self, id: TableId, files: &[Descriptor]) -> Result<Imported, StoreError> {
        let table = self.importing(id).await?;
        let fs = self.env.rt.fs();
        let own = self.files.directories.directory_of(&table.version().table);
        let mut sets = Vec::new();
        for directory in self.files.directories.everywhere(&fs, &own).await? {
            sets.extend(file_sets(&fs, &directory).await?);
        }
        sets.retain(|set| files.contains(&set.descriptor));
        let options = ImportOptions { keep_repaired: true, ..ImportOptions::default() };
        let sets = self.examine(&fs, &table, Ok(sets), &options).await?;
        let placed = self.place(&fs, &table, sets, &options).await?;
        let mut done = Imported::default();
        self.commit_import(&fs, &table, placed, false, &mut done).await?;
        Ok(done)
    }

    /// Files in the table's directory that this node has neither written nor opened, as far as
    /// their names fall to this shard: those with a number by it, those with a UUID to the first.
    /// Their numbers are not assigned to other files from now on. A number that this node has
    /// assigned already is treated as one of its own files.
    ///
    /// # Errors
    /// `Invalid`: files of a truncation are still being removed; `UnknownTable`, `Io`, `Stopping`.
    pub async fn claim_new_files(&self, id: TableId) -> Result<Vec<Descriptor>, StoreError> {
        let table = self.importing(id).await?;
        // The view and the notes know all files with a UUID: no compaction is between the two.
        let _own = self.files.slots.own_table(&table).await;
        let is_being_removed = table.pins.borrow().iter().any(|pin| !pin.is_removed);
        if is_being_removed || table.replayed_removals.get() > 0 {
            let text = "files of a truncation are still being removed, try again later";
            return Err(StoreError::Invalid(text.to_owned()));
        }
        let fs = self.env.rt.fs();
        let own = self.files.directories.directory_of(&table.version().table);
        let (shard, shards) = self.env.shard();
        let mut found = Vec::new();
        let mut sets = Vec::new();
        for directory in self.files.directories.everywhere(&fs, &own).await? {
            self.rebuild_tocs(&fs, &table, &directory).await?;
            sets.extend(file_sets(&fs, &directory).await?);
        }
        for set in sets {
            let generation = set.descriptor.generation;
            if generation.0 & Descriptor::UUID_GENERATION != 0 {
                let is_known = table.view().files.iter().any(|f| f.generation == generation)
                    || crate::files::table_files::has_note(&fs, &set.directory, generation).await?;
                if shard == 0 && !is_known {
                    found.push(set.descriptor);
                }
            } else if generation.0 % u64::from(shards) == u64::from(shard)
                && generation > table.generation.get()
            {
                found.push(set.descriptor);
            }
        }
        let numbers = found.iter().map(|d| d.generation);
        let highest = numbers.filter(|g| g.0 & Descriptor::UUID_GENERATION == 0).max();
        if let Some(highest) = highest.filter(|g| *g > table.generation.get()) {
            table.generation.set(highest);
        }
        Ok(found)
    }

    /// Complete file sets in the table's directory, as `<directory>/<prefix>`, with a number that this node
    /// has assigned or passed, and that this shard neither shows nor writes nor removes. A set that no shard
    /// knows was put there by someone else, and [`Transfer::claim_new_files`] does not name it. To be called
    /// before that.
    ///
    /// # Errors
    /// `UnknownTable`, `Io`, `Stopping`.
    pub async fn unknown_files(&self, id: TableId) -> Result<Vec<String>, StoreError> {
        let table = self.importing(id).await?;
        let _own = self.files.slots.own_table(&table).await;
        let fs = self.env.rt.fs();
        let own = self.files.directories.directory_of(&table.version().table);
        let mut unknown = Vec::new();
        for directory in self.files.directories.everywhere(&fs, &own).await? {
            for set in file_sets(&fs, &directory).await? {
                let generation = set.descriptor.generation;
                let is_passed = generation.0 & Descriptor::UUID_GENERATION == 0
                    && generation <= table.generation.get();
                let is_own = table.view().files.iter().any(|f| f.generation == generation)
                    || table.generations_in_flight().contains(&generation);
                if is_passed
                    && !is_own
                    && !crate::files::table_files::has_note(&fs, &directory, generation).await?
                {
                    unknown.push(format!("{directory}/{}", set.descriptor.prefix()));
                }
            }
        }
        Ok(unknown)
    }

    /// Writes TOC.txt of complete file sets of the table's directory that have none.
    async fn rebuild_tocs(
        &self,
        fs: &Fs,
        table: &TableState,
        directory: &str,
    ) -> Result<(), StoreError> {
        let version = table.version();
        for (set, state) in list_sstables(fs, directory).await.map_err(map_error)? {
            if state == SetState::WithoutToc {
                let suffix = self.env.shard().0.to_string();
                let rebuilt = rebuild_toc(fs, directory, set, &version.table, &suffix).await;
                rebuilt.map_err(map_error)?;
            }
        }
        Ok(())
    }

    /// Shows this shard's part of files that were taken in, in one step. Returns how many.
    ///
    /// # Errors
    /// `UnknownTable`: it was dropped, and the files with it; `Corrupt`, `Io`, `Stopping`: the next
    /// start opens them.
    pub async fn adopt(&self, id: TableId, files: &[Descriptor]) -> Result<u64, StoreError> {
        let Some(table) = self.tables.table(id) else { return Err(StoreError::UnknownTable(id)) };
        let (fs, version) = (self.env.rt.fs(), table.version());
        // The shard that took them in has another data directory, maybe.
        let directories = self
            .files
            .directories
            .everywhere(&fs, &self.files.directories.directory_of(&version.table))
            .await?;
        let mut opened: Vec<Rc<TableFile>> = Vec::with_capacity(files.len());
        for descriptor in files {
            if table.view().files.iter().any(|f| f.generation == descriptor.generation) {
                continue;
            }
            let mut directory = directories.first().map_or("", String::as_str);
            for other in directories.iter().skip(1) {
                if fs.exists(&crate::files::table_files::toc_path(other, *descriptor)).await? {
                    directory = other;
                }
            }
            let reader = SstableReader::open(&fs, directory, *descriptor, Some(&version.table));
            let reader = reader.await.map_err(map_error)?;
            opened.extend(self.files.file_of(table.id, reader, Vec::new()).map(Rc::new));
        }
        for file in &opened {
            self.files.links.back_up(&table, file).await;
        }
        self.observer.keep_waiting(&table, &opened).await;
        if table.dropped.get() {
            for file in &opened {
                self.files.remove_file(file).await?;
            }
            return Err(StoreError::UnknownTable(id));
        }
        // No wait from here on.
        self.observer.look_through(&table, opened.iter());
        let view = table.view();
        let adopted = opened.len() as u64;
        let mut all = view.files.clone();
        all.extend(opened);
        table.set_view(TableView::new(view.active.clone(), view.flushing.clone(), all));
        self.files.slots.changed.notify_waiters();
        Ok(adopted)
    }

    async fn importing(&self, id: TableId) -> Result<Rc<TableState>, StoreError> {
        if self.env.stopping.get() || self.env.drained.get() {
            return Err(StoreError::Stopping);
        }
        let Some(table) = self.tables.table(id) else { return Err(StoreError::UnknownTable(id)) };
        self.files.make_directory(&table).await?;
        Ok(table)
    }

    /// Lists the file sets of a directory. The outer error: there is no such directory.
    async fn list(
        &self,
        fs: &Fs,
        directory: &str,
    ) -> Result<Result<Vec<FileSet>, StoreError>, StoreError> {
        let invalid = |text: String| Err(StoreError::Invalid(text));
        match fs.read_dir(directory).await {
            Err(error) if error.kind == IoErrorKind::NotFound => {
                return invalid(format!("Directory {directory} does not exist"));
            }
            Err(error) if error.kind == IoErrorKind::PermissionDenied => {
                return invalid(format!("Insufficient permissions on directory {directory}"));
            }
            entries => drop(entries?),
        }
        if self.is_live(directory) {
            let text = "files that this node uses are not imported";
            let what = format!("{directory} is a directory of a table: {text}");
            return Ok(Err(StoreError::Invalid(what)));
        }
        Ok(file_sets(fs, directory).await)
    }

    /// Returns true if a directory looks like that of a table of this node. Directories reachable
    /// only by another path are recognised after files have been placed.
    fn is_live(&self, directory: &str) -> bool {
        // The directory of a table missing in the schema, such as one that was dropped and
        // restored: nothing uses it.
        if self.tables.strangers.borrow().iter().any(|stranger| stranger == directory) {
            return false;
        }
        self.env.options.data_directories.iter().any(|data| {
            let data = trimmed(data);
            let below = directory.strip_prefix(data).and_then(|rest| rest.strip_prefix('/'));
            below.is_some_and(|rest| rest.split('/').count() <= 2)
        })
    }

    /// Step 1 for one directory.
    async fn examine(
        &self,
        fs: &Fs,
        table: &TableState,
        sets: Result<Vec<FileSet>, StoreError>,
        options: &ImportOptions,
    ) -> Result<Vec<FileSet>, StoreError> {
        let mut sets = sets?;
        for set in &mut sets {
            if self.env.stopping.get() || self.env.drained.get() {
                return Err(StoreError::Stopping);
            }
            let version = table.version();
            let reader =
                SstableReader::open(fs, &set.directory, set.descriptor, Some(&version.table));
            let reader = reader.await.map_err(map_error)?;
            set.add_attached(reader.meta());
            self.files.check_times(reader.meta())?;
            let header = &reader.meta().statistics().header;
            if let Err(error) = header.check_types(&version.table) {
                let file = set.path(Component::Statistics);
                return Err(StoreError::Invalid(format!("{file}: of another table: {error}")));
            }
            if options.verify {
                verify(&reader).await.map_err(map_error)?;
            }
            self.check_slice(table.id, reader.meta())?;
            if let Some(owned) = &options.owned {
                check_owned(&reader, owned).await?;
            }
        }
        Ok(sets)
    }

    /// A file that names one shard of the current number of shards is opened by that shard only.
    fn check_slice(&self, table: TableId, meta: &SstableMeta) -> Result<(), StoreError> {
        let (_, shards) = self.env.shard();
        let Some(group) = meta.group().filter(|group| group.shard_count == shards) else {
            return Ok(());
        };
        let shard_of = |token| self.env.options.shard_map.shard_of(table, token).0;
        let is_of = |shard| [meta.first_token(), meta.last_token()].map(shard_of) == [shard; 2];
        if group.shard.is_none_or(is_of) {
            return Ok(());
        }
        let file = meta.file(Component::Data);
        Err(StoreError::Invalid(format!("{file} has partitions of another shard than it names")))
    }

    /// Step 2 for one directory; nothing of it stays when it fails.
    async fn place(
        &self,
        fs: &Fs,
        table: &Rc<TableState>,
        sets: Vec<FileSet>,
        options: &ImportOptions,
    ) -> Result<Vec<Placed>, StoreError> {
        let names: Vec<String> = sets.iter().map(|set| set.path(Component::Statistics)).collect();
        let mut placed = Vec::with_capacity(sets.len());
        for set in sets {
            let generation = self.files.next_generation(table);
            let descriptor = Descriptor::new(set.descriptor.version, generation);
            let one = Placed { from: set, descriptor };
            let result = self.place_one(fs, table, &one, options).await;
            // The table's own directory under another name: its files would be moved away.
            let again =
                format!("{}/{}", one.from.directory, descriptor.file_name(Component::Statistics));
            let own = self.files.directories.directory_of(&table.version().table);
            let result = match result {
                Ok(()) if one.from.directory != own && !names.contains(&again) => {
                    match fs.exists(&again).await {
                        Ok(false) => Ok(()),
                        Ok(true) => Err(StoreError::Invalid(format!(
                            "{} is the directory of the table",
                            one.from.directory
                        ))),
                        Err(error) => Err(error.into()),
                    }
                }
                result => result,
            };
            placed.push(one);
            if let Err(error) = result {
                self.unplace(table, placed).await;
                return Err(error);
            }
        }
        Ok(placed)
    }

    async fn place_one(
        &self,
        fs: &Fs,
        table: &TableState,
        one: &Placed,
        options: &ImportOptions,
    ) -> Result<(), StoreError> {
        let Placed { from, descriptor } = one;
        if self.env.stopping.get() || self.env.drained.get() {
            return Err(StoreError::Stopping);
        }
        let version = table.version();
        let directory = self.files.directories.directory_of(&version.table);
        let reader =
            SstableReader::open(fs, &from.directory, from.descriptor, Some(&version.table));
        let reader = reader.await.map_err(map_error)?;
        let files =
            SetFiles::open(fs, &from.directory, from.descriptor).await.map_err(map_error)?;
        let changed = changed_of(fs, reader.meta(), options).await?;
        let table = version.table.id.0;
        let changed = rebound(&files, reader.meta(), changed, table, *descriptor).await?;
        let mut links = !options.copy;
        mark_unfinished(fs, &directory, *descriptor).await.map_err(map_error)?;
        for (component, bytes) in &from.components {
            let to = format!("{directory}/{}", descriptor.file_name(*component));
            if let Some((_, content)) = changed.iter().find(|(c, _)| c == component) {
                write_new(fs, &to, files.stored(*component, content.clone())).await?;
                continue;
            }
            let path = from.path(*component);
            if *component == Component::Toc {
                let content = fs.read(&path, TOC_BYTES_MAX).await?;
                write_over(fs, &unfinished_path(&directory, *descriptor), content).await?;
                continue;
            }
            if links {
                match fs.hard_link(&path, &to).await {
                    Ok(()) => {
                        // The program that put it there may not have synced it.
                        let read = OpenOptions { read: true, ..OpenOptions::default() };
                        fs.open(&to, read).await?.sync_data().await?;
                        continue;
                    }
                    Err(error) if is_final(error.kind) => return Err(error.into()),
                    // Another file system, or one without links.
                    Err(_) => links = false,
                }
            }
            self.check_room(*bytes).await?;
            self.copy(fs, &path, &to).await?;
        }
        Ok(())
    }

    async fn check_room(&self, bytes: u64) -> Result<(), StoreError> {
        let options = &self.env.options;
        let free = self.files.directories.free_bytes().await?;
        if free < bytes.saturating_add(options.disk_reserve_bytes) {
            let detail = format!("a copy needs {bytes} bytes, {free} are free");
            return Err(StoreError::DiskFull { detail });
        }
        Ok(())
    }

    async fn copy(&self, fs: &Fs, from: &str, to: &str) -> Result<(), StoreError> {
        let read = OpenOptions { read: true, ..OpenOptions::default() };
        let source = fs.open(from, read).await?;
        let write = OpenOptions { write: true, create_new: true, ..OpenOptions::default() };
        let target = fs.open(to, write).await?;
        let length = source.len().await?;
        let mut offset = 0;
        while offset < length {
            let step = usize::try_from(length - offset).unwrap_or(COPY_BYTES).min(COPY_BYTES);
            let buf = source.read_exact_at(offset, step).await?;
            let (_, written) = target.write_at(buf, offset).await;
            written?;
            offset += step as u64;
            if self.env.stopping.get() {
                return Err(StoreError::Stopping);
            }
        }
        Ok(target.sync_data().await?)
    }

    /// Takes back the placed files; failed removals are retried in the background.
    async fn unplace(&self, table: &Rc<TableState>, placed: Vec<Placed>) {
        let flights = placed.iter().map(|one| table.in_flight(one.descriptor.generation)).collect();
        self.files.discard_all(table, flights).await;
    }

    /// Steps 3 to 6.
    async fn commit_import(
        &self,
        fs: &Fs,
        table: &Rc<TableState>,
        placed: Vec<Placed>,
        copy: bool,
        done: &mut Imported,
    ) -> Result<(), StoreError> {
        let files: Vec<Descriptor> = placed.iter().map(|one| one.descriptor).collect();
        let Some(first) = files.first() else { return Ok(()) };
        let directory = self.files.directories.directory_of(&table.version().table);
        let record = (files.len() > 1).then(|| record_path(&directory, first.generation));
        if let Err(error) = self.name_placed(fs, table, &directory, &files, record.as_deref()).await
        {
            if let Some(path) = &record {
                // Before the files: a start that finds it would look for all of them.
                remove_if_there(fs, path).await?;
                fs.sync_dir(&directory).await?;
            }
            self.unplace(table, placed).await;
            return Err(error);
        }
        // From here on they are the table's, whatever fails. 5. If the record stays, it names files
        // that have their TOC.txt.
        if let Some(path) = &record {
            self.files.note_write_result(&remove_if_there(fs, path).await);
        }
        done.files = files;
        if !copy {
            // 6.
            for one in &placed {
                remove_source(fs, &one.from, &mut done.left).await;
            }
        }
        Ok(())
    }

    /// Steps 3 and 4.
    async fn name_placed(
        &self,
        fs: &Fs,
        table: &TableState,
        directory: &str,
        files: &[Descriptor],
        record: Option<&str>,
    ) -> Result<(), StoreError> {
        if table.dropped.get() {
            return Err(StoreError::UnknownTable(table.id));
        }
        // Every name is durable before one of a TOC.txt is.
        fs.sync_dir(directory).await?;
        if let Some(path) = record {
            fs.write_atomic(path, encode_record(files)).await?;
        }
        for descriptor in files {
            let toc = toc_path(directory, *descriptor);
            fs.rename(&format!("{toc}.tmp"), &toc).await?;
        }
        Ok(fs.sync_dir(directory).await?)
    }
}

fn trimmed(directory: &str) -> &str {
    match directory.trim_end_matches('/') {
        "" => directory,
        trimmed => trimmed,
    }
}

/// Returns true if a copy would fail like the link that failed with this error.
fn is_final(kind: IoErrorKind) -> bool {
    matches!(
        kind,
        IoErrorKind::NotFound
            | IoErrorKind::AlreadyExists
            | IoErrorKind::NoSpace
            | IoErrorKind::Stopping
    )
}

/// The complete file sets of a directory, without those that are being written or removed.
async fn file_sets(fs: &Fs, directory: &str) -> Result<Vec<FileSet>, StoreError> {
    let mut sets: BTreeMap<Descriptor, Vec<(Component, u64)>> = BTreeMap::new();
    let mut unfinished: Vec<Descriptor> = Vec::new();
    for entry in fs.read_dir(directory).await? {
        unfinished.extend(marked_set(&entry.name));
        let at = || format!("{directory}/{}", entry.name);
        match Descriptor::parse(&entry.name) {
            Some((descriptor, component)) => {
                sets.entry(descriptor).or_default().push((component, entry.len));
            }
            None if entry.name.ends_with("-Data.db") => {
                return Err(StoreError::Invalid(format!(
                    "{} is an SSTable of a version or naming that cannot be read here",
                    at()
                )));
            }
            None if is_record(&entry.name) => {
                return Err(StoreError::Invalid(format!("{} belongs to a node", at())));
            }
            None => {}
        }
    }
    if sets.len() > FILE_SETS_MAX {
        return Err(StoreError::Invalid(format!(
            "{directory} has more than {FILE_SETS_MAX} files"
        )));
    }
    let mut found = Vec::with_capacity(sets.len());
    for (descriptor, mut components) in sets {
        // TOC is last.
        components.sort_unstable_by_key(|(c, _)| (*c == Component::Toc, *c));
        if components.last().is_none_or(|(c, _)| *c != Component::Toc) {
            if unfinished.contains(&descriptor) {
                continue;
            }
            return Err(StoreError::Invalid(format!(
                "{directory}/{} is not complete: it has no TOC.txt; copy that too, or write one that \
                 lists its components, one a line",
                descriptor.prefix()
            )));
        }
        found.push(FileSet { directory: directory.to_owned(), descriptor, components });
    }
    Ok(found)
}

/// Checks that every partition lies in the ranges that the node owns.
pub(crate) async fn check_owned(
    reader: &SstableReader,
    owned: &OwnedRanges,
) -> Result<(), StoreError> {
    let meta = reader.meta();
    if owned.covers(meta.first_token(), meta.last_token()) {
        return Ok(());
    }
    let clock = ScanClock { now: DeletionSeconds(0), gc_before: DeletionSeconds(0) };
    let mut scan = PartitionScan::new(reader, KeyRange::all(), clock, Detail::Sizes);
    while let Some(partition) = scan.next().await.map_err(map_error)? {
        let token: Token = partition.token;
        if !owned.contains(token) {
            return Err(StoreError::Invalid(format!(
                "{} has a partition of token {}, which this node does not own",
                meta.file(Component::Data),
                token.0
            )));
        }
    }
    Ok(())
}

/// Components that say something else than those of the source.
async fn changed_of(
    fs: &Fs,
    meta: &SstableMeta,
    options: &ImportOptions,
) -> Result<Vec<(Component, Vec<u8>)>, StoreError> {
    let stats = &meta.statistics().stats;
    let level = if options.keep_level { stats.level } else { 0 };
    let repaired_at = if options.keep_repaired { stats.repaired_at } else { 0 };
    // No session of this cluster knows of the file.
    let is_same =
        (level, repaired_at) == (stats.level, stats.repaired_at) && stats.pending_repair.is_none();
    if is_same {
        return Ok(Vec::new());
    }
    let change = restated(fs, meta, |stats| {
        stats.level = level;
        stats.repaired_at = repaired_at;
        stats.pending_repair = None;
    });
    change.await.map_err(map_error)
}

/// The same with the list of checksums of a file set that gets another name, or another table.
async fn rebound(
    files: &SetFiles,
    meta: &SstableMeta,
    mut changed: Vec<(Component, Vec<u8>)>,
    table: Uuid,
    descriptor: Descriptor,
) -> Result<Vec<(Component, Vec<u8>)>, StoreError> {
    if meta.binding().is_none() {
        return Ok(changed);
    }
    let path = meta.file(Component::Checksums);
    let bytes = files.read(Component::Checksums, CHECKSUMS_BYTES_MAX).await.map_err(map_error)?;
    let mut list = Checksums::decode(&bytes)
        .map_err(|error| StoreError::Corrupt { file: path, what: error.to_string() })?;
    list.rebind(table, descriptor.id());
    changed.retain(|(component, _)| *component != Component::Checksums);
    changed.push((Component::Checksums, list.encode()));
    Ok(changed)
}

async fn write_new(fs: &Fs, path: &str, content: Vec<u8>) -> Result<(), StoreError> {
    let options = OpenOptions { write: true, create_new: true, ..OpenOptions::default() };
    write_with(fs, path, content, options).await
}

async fn write_over(fs: &Fs, path: &str, content: Vec<u8>) -> Result<(), StoreError> {
    let options =
        OpenOptions { write: true, create: true, truncate: true, ..OpenOptions::default() };
    write_with(fs, path, content, options).await
}

async fn write_with(
    fs: &Fs,
    path: &str,
    content: Vec<u8>,
    options: OpenOptions,
) -> Result<(), StoreError> {
    let file = fs.open(path, options).await?;
    let (_, written) = file.write_at(Buf::from(content), 0).await;
    written?;
    Ok(file.sync_data().await?)
}

/// Step 6 for one file set. Components that were not taken (attached by other programs) stay.
async fn remove_source(fs: &Fs, set: &FileSet, left: &mut Vec<String>) {
    for (component, _) in set.components.iter().rev() {
        let path = set.path(*component);
        if remove_if_there(fs, &path).await.is_err() {
            left.push(path);
        }
    }
    // A power cut may restore names: they are of files that are in use under others.
    let _ = fs.sync_dir(&set.directory).await;
}
