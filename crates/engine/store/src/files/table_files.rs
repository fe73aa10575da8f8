//! SSTables of a table's directory: which ones this shard opens, and their removal.
//!
//! A file that this node wrote lies in one shard's slice and records that; only that shard opens
//! it. A file that spans slices (Cassandra's, or ours from a run with another shard count) is
//! opened by
//! every shard with a token filter. A shard that needs it no longer leaves a note
//! (`nb-7-big-Released.0of2`); the shard whose note makes them complete removes the file.
//!
//! Removal of a compaction's inputs is atomic by a transaction record
//! (`helenus-txn-<generation>.log`), because a tombstone must not vanish before what it hides:
//!
//! 1. The output is complete and synced.
//! 2. The record, naming the inputs, is written and synced.
//! 3. The view is switched.
//! 4. The inputs are removed.
//! 5. The record is removed. A start that finds a record continues with step 4.
//!
//! The files of an ingest become ones together by a record of another kind: see `row_ingest`.

use std::rc::Rc;

use rt::{Fs, OpenOptions};
use schema::Table;
use sstable::file_set::{is_rebuild_leftover, marked_set, state_of};
use sstable::{
    Component, Descriptor, SetState, SstableError, SstableReader, TokenFilter, Version,
    WriterOptions, list_sstables, open_unreadable, rebuild_toc, remove_sstable,
};
use stdx::{FixedMap, FixedSet, Generation, IoErrorKind, ShardId, TableId, WallMicros};

use crate::error::StoreError;
use crate::files::Files;
use crate::files::damage_marks::DamageEvent;
use crate::tables::table::{InFlight, TableState};
use crate::tables::table_file::{TableFile, map_error};

/// Attempts to open a directory while other shards change it.
const OPEN_ATTEMPTS: u32 = 20;

/// In the name of every note.
const NOTE: &str = "-big-Released.";

/// Notes have this name whatever the version of the file.
fn note_prefix(generation: Generation) -> String {
    format!("nb-{}{NOTE}", generation.0)
}

fn note_name(generation: Generation, shard: u16, shards: u16) -> String {
    format!("{}{shard}of{shards}", note_prefix(generation))
}

fn parse_note(name: &str, generation: Generation) -> Option<(u16, u16)> {
    let (shard, shards) = name.strip_prefix(&note_prefix(generation))?.split_once("of")?;
    Some((shard.parse().ok()?, shards.parse().ok()?))
}

fn txn_name(generation: Generation) -> String {
    format!("helenus-txn-{}.log", generation.0)
}

fn parse_txn_name(name: &str) -> Option<Generation> {
    let digits = name.strip_prefix("helenus-txn-")?.strip_suffix(".log")?;
    digits.parse().ok().map(Generation)
}

/// The record of an ingest.
pub(crate) fn record_path(directory: &str, first: Generation) -> String {
    format!("{directory}/helenus-ingest-{}.log", first.0)
}

fn parse_record_name(name: &str) -> Option<Generation> {
    let digits = name.strip_prefix("helenus-ingest-")?.strip_suffix(".log")?;
    digits.parse().ok().map(Generation)
}

/// Returns true if the name is that of a record of unfinished work.
pub(crate) fn is_record(name: &str) -> bool {
    parse_txn_name(name).is_some() || parse_record_name(name).is_some()
}

/// Returns true if a shard has left a note that it no longer uses a file.
pub(crate) async fn has_note(
    fs: &Fs,
    directory: &str,
    generation: Generation,
) -> Result<bool, StoreError> {
    let entries = fs.read_dir(directory).await?;
    Ok(entries.iter().any(|e| parse_note(&e.name, generation).is_some()))
}

/// Path of a file set's TOC.txt.
pub(crate) fn toc_path(directory: &str, descriptor: Descriptor) -> String {
    format!("{directory}/{}", descriptor.file_name(Component::Toc))
}

/// The record of an ingest: its files. The version is named where it is not `nb`.
pub(crate) fn encode_record(files: &[Descriptor]) -> Vec<u8> {
    let mut text = "helenus-ingest 1\n".to_owned();
    for file in files {
        match file.version {
            Version::Nb => text.push_str(&format!("add {}\n", file.generation.0)),
            version => text.push_str(&format!("add {} {version}\n", file.generation.0)),
        }
    }
    codec::seal_text(text)
}

/// `None` when it is not a record that this code wrote.
pub(crate) fn decode_record(bytes: &[u8]) -> Option<Vec<Descriptor>> {
    let lines = codec::open_text(bytes, "helenus-ingest 1\n")?.lines();
    let file = |line: &str| {
        let line = line.strip_prefix("add ")?;
        let (number, version) = match line.split_once(' ') {
            Some((number, letters)) => (number, Version::from_letters(letters)?),
            None => (line, Version::Nb),
        };
        Some(Descriptor::new(version, Generation(number.parse().ok()?)))
    };
    lines.map(file).collect()
}

/// The generation in the name of a half-written `.tmp` file of a file set or record; not of the
/// mark of an unfinished write, which is removed after everything else of the set.
fn leftover_of(name: &str) -> Option<Generation> {
    if marked_set(name).is_some() {
        return None;
    }
    let name = name.strip_suffix(".tmp")?;
    let record = parse_txn_name(name).or_else(|| parse_record_name(name));
    record.or_else(|| Descriptor::parse(name).map(|(d, _)| d.generation))
}

/// Inputs of a compaction whose output is complete.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Transaction {
    pub(crate) shard: u16,
    pub(crate) shards: u16,
    /// Generation, and whether the file spans slices.
    pub(crate) inputs: Vec<(Generation, bool)>,
}

impl Transaction {
    fn encode(&self) -> Vec<u8> {
        let mut text = format!("helenus-txn 1\nslice {} of {}\n", self.shard, self.shards);
        for (generation, spanning) in &self.inputs {
            let word = if *spanning { "release" } else { "remove" };
            text.push_str(&format!("{word} {}\n", generation.0));
        }
        codec::seal_text(text)
    }

    /// `None` when it is not a record that this code wrote.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Transaction> {
        let mut lines = codec::open_text(bytes, "helenus-txn 1\n")?.lines();
        let (shard, shards) = lines.next()?.strip_prefix("slice ")?.split_once(" of ")?;
        let (shard, shards) = (shard.parse().ok()?, shards.parse().ok()?);
        let mut inputs = Vec::new();
        for line in lines {
            let (word, generation) = line.split_once(' ')?;
            let spanning = match word {
                "release" => true,
                "remove" => false,
                _ => return None,
            };
            inputs.push((Generation(generation.parse().ok()?), spanning));
        }
        Some(Transaction { shard, shards, inputs })
    }
}

fn is_gone(error: &SstableError) -> bool {
    match error {
        SstableError::Missing { .. } => true,
        SstableError::Io(error) => error.kind == IoErrorKind::NotFound,
        _ => false,
    }
}

pub(crate) async fn remove_if_there(fs: &Fs, path: &str) -> Result<(), StoreError> {
    match fs.remove_file(path).await {
        Err(error) if error.kind != IoErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

/// Changes that a start made to file sets of a table's directories.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OpenedSets {
    /// Leftovers of unfinished operations that were removed.
    pub(crate) removed: Vec<String>,
    /// File sets that had lost their TOC.txt and have it again.
    pub(crate) rebuilt: Vec<String>,
    /// Data files that were written under other names, or for other tables.
    pub(crate) moved: Vec<String>,
    /// Damaged small files of tables, with their treatment.
    pub(crate) bad_marks: Vec<String>,
}

/// Knowledge about files before they are opened.
struct Gone {
    /// Inputs of compactions of other shards.
    dead: FixedSet<Generation>,
    /// Slices of inputs that span slices.
    released: FixedMap<Generation, Vec<(u16, u16)>>,
    /// Highest existing generation.
    highest: Generation,
}

impl Files {
    /// Opens this shard's files of a table, and finishes work that a crash interrupted, which is
    /// noted in `done`.
    pub(crate) async fn open_files(
        &self,
        table: &Table,
        done: &mut OpenedSets,
    ) -> Result<(Vec<Rc<TableFile>>, Generation), StoreError> {
        let fs = self.env.rt.fs();
        fs.create_dir_durably(&self.directories.directory_of(table)).await?;
        for _ in 0..OPEN_ATTEMPTS {
            if let Some(opened) = self.try_open_files(&fs, table, done).await? {
                return Ok(opened);
            }
        }
        Err(StoreError::Corrupt {
            file: self.directories.directory_of(table),
            what: "files vanished repeatedly while they were opened".to_owned(),
        })
    }

    /// `None`: another shard removed a file meanwhile.
    async fn try_open_files(
        &self,
        fs: &Fs,
        table: &Table,
        done: &mut OpenedSets,
    ) -> Result<Option<(Vec<Rc<TableFile>>, Generation)>, StoreError> {
        let directories =
            self.directories.everywhere(fs, &self.directories.directory_of(table)).await?;
        let mut gone = Gone {
            dead: FixedSet::default(),
            released: FixedMap::default(),
            highest: Generation(0),
        };
        // Records of one directory may name files in another.
        for directory in &directories {
            self.finish_records(fs, directory, &mut gone).await?;
        }
        let mut files: Vec<Rc<TableFile>> = Vec::new();
        for directory in &directories {
            let found = self.open_directory(fs, table, directory, &mut gone, done).await?;
            let Some(found) = found else {
                return Ok(None);
            };
            for file in &found {
                if let Some(other) = files.iter().find(|f| f.generation == file.generation) {
                    return Err(StoreError::Invalid(format!(
                        "{} and {} have the same generation: one of them was copied there; move \
                         it away and import it",
                        other.reader.meta().file(Component::Data),
                        file.reader.meta().file(Component::Data)
                    )));
                }
            }
            files.extend(found);
        }
        Ok(Some((files, gone.highest)))
    }

    /// Finishes the work of a directory's records.
    async fn finish_records(
        &self,
        fs: &Fs,
        directory: &str,
        gone: &mut Gone,
    ) -> Result<(), StoreError> {
        let mine = |generation: Generation| self.env.is_mine(generation);
        let entries = fs.read_dir(directory).await?;
        // First, on every shard: the files that a record names are no leftovers below, and of an
        // import every shard opens its slice.
        for record in entries.iter().filter(|e| parse_record_name(&e.name).is_some()) {
            finish_ingest(fs, directory, &record.name).await?;
        }
        for entry in entries {
            if let Some(generation) = parse_txn_name(&entry.name) {
                let path = format!("{directory}/{}", entry.name);
                let Some(txn) = read_txn(fs, &path).await? else { continue };
                if mine(generation) {
                    self.finish_txn(fs, directory, generation, &txn).await?;
                } else {
                    // For an input that spans slices, only that shard's slice is dead; its note may
                    // not exist yet.
                    for (input, spanning) in &txn.inputs {
                        if *spanning {
                            let slice = (txn.shard, txn.shards);
                            gone.released.entry(*input).or_default().push(slice);
                        } else {
                            gone.dead.insert(*input);
                        }
                    }
                }
            } else if leftover_of(&entry.name).is_some_and(mine)
                || is_rebuild_leftover(&entry.name, &self.env.shard().0.to_string())
            {
                remove_if_there(fs, &format!("{directory}/{}", entry.name)).await?;
            } else if entry.name.ends_with("-Data.db") && Descriptor::parse(&entry.name).is_none() {
                return Err(StoreError::Invalid(format!(
                    "{directory}/{} is an SSTable of a version or naming that cannot be read here",
                    entry.name
                )));
            }
        }
        Ok(())
    }

    /// Opens this shard's files of one directory.
    async fn open_directory(
        &self,
        fs: &Fs,
        table: &Table,
        directory: &str,
        gone: &mut Gone,
        done: &mut OpenedSets,
    ) -> Result<Option<Vec<Rc<TableFile>>>, StoreError> {
        let mut names = fs.read_dir(directory).await?;
        let written: FixedMap<Descriptor, WallMicros> = names
            .iter()
            .filter_map(|entry| match Descriptor::parse(&entry.name)? {
                (descriptor, Component::Data) => Some((descriptor, entry.modified)),
                _ => None,
            })
            .collect();
        // Few of the names are notes, and each file asks for its own among them.
        names.retain(|entry| entry.name.contains(NOTE));
        let mut files = Vec::new();
        for (descriptor, state) in list_sstables(fs, directory).await.map_err(map_error)? {
            let generation = descriptor.generation;
            // Names with a UUID count for none of ours.
            if generation.0 & Descriptor::UUID_GENERATION == 0 {
                gone.highest = gone.highest.max(generation);
            }
            if state == SetState::Unfinished {
                // Another shard may be writing it right now; its own leftovers it finds itself.
                if self.env.is_mine(generation) {
                    remove_sstable(fs, directory, descriptor).await.map_err(map_error)?;
                    done.removed.push(format!("{directory}/{}", descriptor.prefix()));
                }
                continue;
            }
            let mut notes: Vec<(u16, u16)> =
                names.iter().filter_map(|e| parse_note(&e.name, generation)).collect();
            notes.extend(gone.released.remove(&generation).unwrap_or_default());
            if gone.dead.contains(&generation) || notes.contains(&self.env.shard()) {
                continue;
            }
            let opened = match state {
                SetState::WithoutToc => {
                    self.open_without_toc(fs, table, directory, descriptor, done).await
                }
                _ => SstableReader::open(fs, directory, descriptor, Some(table)).await,
            };
            let reader = match opened {
                Ok(reader) => reader,
                Err(error) => {
                    let now = state_of(fs, directory, descriptor).await.map_err(map_error)?;
                    if is_gone(&error) && !matches!(now, Some(s) if s == state) {
                        return Ok(None);
                    }
                    self.open_damaged(fs, table, directory, descriptor, error).await?
                }
            };
            self.check_times(reader.meta())?;
            if self.env.is_mine(generation) && !reader.meta().is_in_place(table.id.0) {
                done.moved.push(reader.meta().file(Component::Data));
            }
            if let Some(mut file) = self.file_of(table.id, reader, notes) {
                file.written_at = written.get(&descriptor).copied().unwrap_or(file.written_at);
                files.push(Rc::new(file));
            }
        }
        Ok(Some(files))
    }

    /// Writes TOC.txt of a file set that lost it, and opens that.
    async fn open_without_toc(
        &self,
        fs: &Fs,
        table: &Table,
        directory: &str,
        descriptor: Descriptor,
        done: &mut OpenedSets,
    ) -> sstable::Result<SstableReader> {
        let suffix = self.env.shard().0.to_string();
        rebuild_toc(fs, directory, descriptor, table, &suffix).await?;
        if self.env.is_mine(descriptor.generation) {
            done.rebuilt.push(format!("{directory}/{}", descriptor.file_name(Component::Toc)));
        }
        SstableReader::open(fs, directory, descriptor, Some(table)).await
    }

    /// Opens a substitute for a file that cannot be opened, when the node starts with such files
    /// ([`crate::damage::quarantine`]).
    async fn open_damaged(
        &self,
        fs: &Fs,
        table: &Table,
        directory: &str,
        descriptor: Descriptor,
        error: SstableError,
    ) -> Result<SstableReader, StoreError> {
        if !error.is_damage() || !self.env.options.starts_with_damaged_files {
            return Err(map_error(error));
        }
        open_unreadable(fs, directory, descriptor, table, &error).await.map_err(map_error)
    }

    /// Checks that the version written here can represent all times of a file.
    pub(crate) fn check_times(&self, meta: &sstable::SstableMeta) -> Result<(), StoreError> {
        meta.check_times(self.env.options.sstable_version).map_err(map_error)
    }

    /// Wraps an open file for this shard; `None` when it lies in another shard's slice.
    pub(crate) fn file_of(
        &self,
        table: TableId,
        reader: SstableReader,
        notes: Vec<(u16, u16)>,
    ) -> Option<TableFile> {
        self.file_cached_as(table, self.cache.next_file(), reader, notes)
    }

    /// The same for a file whose blocks may be in the chunk cache already, under this number.
    pub(crate) fn file_cached_as(
        &self,
        table: TableId,
        id: u64,
        reader: SstableReader,
        notes: Vec<(u16, u16)>,
    ) -> Option<TableFile> {
        for error in reader.damaged_indexes() {
            self.tell_damage(DamageEvent::Index { error: error.to_string() });
        }
        let (shard, shards) = self.env.shard();
        let group = reader.meta().group();
        let spanning = match group {
            Some(group) if group.shard_count == shards && group.shard.is_some() => {
                if group.shard != Some(shard) {
                    return None;
                }
                false
            }
            _ => shards > 1,
        };
        let filter = spanning.then_some(TokenFilter {
            map: self.env.options.shard_map,
            table,
            shard: ShardId(shard),
        });
        Some(TableFile {
            id,
            table,
            generation: reader.meta().descriptor().generation,
            spanning,
            filter,
            hidden: notes.into(),
            created_at: self.env.rt.wall(),
            written_at: self.env.rt.wall(),
            reader,
        })
    }

    /// Writes the record of step 2.
    pub(crate) async fn write_txn(
        &self,
        directory: &str,
        output: Generation,
        inputs: &[Rc<TableFile>],
    ) -> Result<Transaction, StoreError> {
        let (shard, shards) = self.env.shard();
        let inputs = inputs.iter().map(|f| (f.generation, f.spanning)).collect();
        let txn = Transaction { shard, shards, inputs };
        let path = format!("{directory}/{}", txn_name(output));
        self.env.rt.fs().write_atomic(&path, txn.encode()).await?;
        Ok(txn)
    }

    /// Removes the possible remains of a failed flush or compaction. Failed removals are remembered
    /// and retried by [`Files::retry_orphans`].
    pub(crate) async fn discard(&self, table: &TableState, output: InFlight) {
        if self.directories.misses_directories()
            || self.try_discard(table, output.generation()).await.is_err()
        {
            table.orphans.borrow_mut().push(output);
        }
    }

    /// Like [`Files::discard`] for all outputs of one compaction; the first names the record. The
    /// others stay while the record may exist, or a start would remove the inputs and miss them.
    pub(crate) async fn discard_all(&self, table: &TableState, outputs: Vec<InFlight>) {
        table.orphans.borrow_mut().extend(outputs);
        self.retry_orphans(table).await;
    }

    async fn try_discard(
        &self,
        table: &TableState,
        generation: Generation,
    ) -> Result<(), StoreError> {
        let fs = self.env.rt.fs();
        let own = self.directories.directory_of(&table.version().table);
        for directory in self.directories.everywhere(&fs, &own).await? {
            // The record first: a start that finds it without the output would remove the inputs.
            remove_if_there(&fs, &format!("{directory}/{}", txn_name(generation))).await?;
            fs.sync_dir(&directory).await?;
            remove_generation(&fs, &directory, generation).await?;
            fs.sync_dir(&directory).await?;
        }
        Ok(())
    }

    /// Retries failed removals, in order, and stops at the first that fails. Files that may be in a
    /// directory that is out of service wait for a start.
    pub(crate) async fn retry_orphans(&self, table: &TableState) {
        while !self.directories.misses_directories() {
            let first = table.orphans.borrow().first().map(InFlight::generation);
            let Some(generation) = first else { return };
            if self.try_discard(table, generation).await.is_err() {
                return;
            }
            table.orphans.borrow_mut().retain(|orphan| orphan.generation() != generation);
        }
    }

    /// Steps 4 and 5; may be repeated.
    pub(crate) async fn finish_txn(
        &self,
        fs: &Fs,
        directory: &str,
        output: Generation,
        txn: &Transaction,
    ) -> Result<(), StoreError> {
        self.links.wait_for_links().await;
        let places = self.directories.everywhere(fs, directory).await?;
        for (generation, spanning) in &txn.inputs {
            if !*spanning {
                remove_wherever(fs, &places, *generation).await?;
                continue;
            }
            for place in &places {
                let slice = (txn.shard, txn.shards);
                self.release_spanning(fs, place, *generation, slice).await?;
            }
        }
        for place in &places {
            fs.sync_dir(place).await?;
        }
        remove_if_there(fs, &format!("{directory}/{}", txn_name(output))).await
    }

    /// Removes a file this shard uses no longer, or leaves the note that it does not.
    pub(crate) async fn remove_file(&self, file: &TableFile) -> Result<(), StoreError> {
        self.links.wait_for_links().await;
        let fs = self.env.rt.fs();
        let directory = file.reader.meta().directory();
        self.cache.forget(file.id);
        if file.spanning {
            return self.release_spanning(&fs, directory, file.generation, self.env.shard()).await;
        }
        let descriptor = file.reader.meta().descriptor();
        remove_sstable(&fs, directory, descriptor).await.map_err(map_error)
    }

    pub(crate) async fn release_spanning(
        &self,
        fs: &Fs,
        directory: &str,
        generation: Generation,
        slice: (u16, u16),
    ) -> Result<(), StoreError> {
        let (shard, shards) = slice;
        let found = find_generation(fs, directory, generation).await?;
        if found.is_some_and(|(_, state)| state != SetState::Unfinished) {
            let options = OpenOptions { write: true, create: true, ..OpenOptions::default() };
            fs.open(&format!("{directory}/{}", note_name(generation, shard, shards)), options)
                .await?;
            fs.sync_dir(directory).await?;
        }
        let names = fs.read_dir(directory).await?;
        let has = |s: u16| {
            let name = note_name(generation, s, shards);
            names.iter().any(|e| e.name == name)
        };
        if (0..shards).all(has) {
            remove_generation(fs, directory, generation).await?;
            // The notes are removed last: without them the file would reappear whole.
            fs.sync_dir(directory).await?;
            for entry in names.iter().filter(|e| parse_note(&e.name, generation).is_some()) {
                remove_if_there(fs, &format!("{directory}/{}", entry.name)).await?;
            }
        }
        Ok(())
    }

    /// The next generation of this shard in a table: generations of a shard are congruent to its
    /// number, so no two shards ever assign the same.
    pub(crate) fn next_generation(&self, table: &TableState) -> Generation {
        let (shard, shards) = self.env.shard();
        let (shard, shards) = (u64::from(shard), u64::from(shards));
        let after = table.generation.get().0;
        let mut next = after - after % shards + shard;
        if next <= after {
            next += shards;
        }
        table.generation.set(Generation(next));
        Generation(next)
    }
}

/// The file set of a generation in a directory, and its state.
async fn find_generation(
    fs: &Fs,
    directory: &str,
    generation: Generation,
) -> Result<Option<(Descriptor, SetState)>, StoreError> {
    let files = list_sstables(fs, directory).await.map_err(map_error)?;
    Ok(files.into_iter().find(|(descriptor, _)| descriptor.generation == generation))
}

/// Removes the file set of a generation, of whatever version it is.
async fn remove_generation(
    fs: &Fs,
    directory: &str,
    generation: Generation,
) -> Result<(), StoreError> {
    let found = find_generation(fs, directory, generation).await?;
    let Some((descriptor, _)) = found else {
        // The remains of a nearly removed file set have one of this build's own names.
        for version in WriterOptions::VERSIONS {
            let descriptor = Descriptor::new(version, generation);
            remove_sstable(fs, directory, descriptor).await.map_err(map_error)?;
        }
        return Ok(());
    };
    remove_sstable(fs, directory, descriptor).await.map_err(map_error)
}

/// The same where it may be in any of some directories.
async fn remove_wherever(
    fs: &Fs,
    places: &[String],
    generation: Generation,
) -> Result<(), StoreError> {
    if places.len() > 1 {
        for place in places {
            if find_generation(fs, place, generation).await?.is_some() {
                return remove_generation(fs, place, generation).await;
            }
        }
    }
    for place in places {
        remove_generation(fs, place, generation).await?;
    }
    Ok(())
}

/// Names the files of an ingest that a crash left with its record, then removes that.
async fn finish_ingest(fs: &Fs, directory: &str, name: &str) -> Result<(), StoreError> {
    let path = format!("{directory}/{name}");
    let bytes = match fs.read(&path, 1 << 24).await {
        // Another shard was first.
        Err(error) if error.kind == IoErrorKind::NotFound => return Ok(()),
        bytes => bytes?,
    };
    let Some(files) = decode_record(&bytes) else {
        return Err(StoreError::Corrupt { file: path, what: "not an ingest record".to_owned() });
    };
    for descriptor in files {
        let toc = toc_path(directory, descriptor);
        match fs.rename(&format!("{toc}.tmp"), &toc).await {
            // Named before the crash.
            Err(error) if error.kind == IoErrorKind::NotFound => {}
            done => done?,
        }
    }
    fs.sync_dir(directory).await?;
    remove_if_there(fs, &path).await?;
    Ok(fs.sync_dir(directory).await?)
}

async fn read_txn(fs: &Fs, path: &str) -> Result<Option<Transaction>, StoreError> {
    match fs.read(path, 1 << 24).await {
        Ok(bytes) => match Transaction::decode(&bytes) {
            Some(txn) => Ok(Some(txn)),
            None => Err(StoreError::Corrupt {
                file: path.to_owned(),
                what: "not a transaction record".to_owned(),
            }),
        },
        Err(error) if error.kind == IoErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

impl Files {
    /// Returns true if a file lies in `own`, the data directory to which this shard writes the
    /// table's files, and, with several directories, belongs to this shard alone.
    pub(crate) fn is_placed(&self, own: &str, file: &TableFile) -> bool {
        let is_alone = self.env.options.data_directories.len() == 1;
        file.reader.meta().directory() == own && (is_alone || !file.spanning)
    }

    /// Forgets the blocks of a file that is in no view any more; a large one's in small steps.
    pub(crate) async fn forget_blocks(&self, file: &TableFile) {
        let mut blocks = file.reader.meta().blocks().peekable();
        while blocks.peek().is_some() {
            self.cache.forget_blocks(file.id, blocks.by_ref().take(BLOCKS_PER_LOOK));
            if self.env.rt.is_yield_due() {
                self.env.rt.yield_if_due().await;
            }
        }
    }
}

/// Blocks that are removed between two checks of the clock.
const BLOCKS_PER_LOOK: usize = 128;
