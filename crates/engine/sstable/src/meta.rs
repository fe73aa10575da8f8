//! Everything about one SSTable except the bytes of Data and Index: decoded, verified, immutable.
//! Pure, so that it is tested on byte slices.

mod blocks;

use std::cell::{Cell, RefCell};

use codec::{Compressor, KeyHash, hash_key};
use data::{ClusteringComparator, Slices};
use schema::Table;
use sst_format::checksums::{
    Binding, CHECKSUM_BLOCK, Checksums, DataCrc, StorageGroup, decode_digest,
};
use sst_format::component::decode_toc;
use sst_format::compression_info::CompressionInfo;
use sst_format::index::sample_entries;
use sst_format::partitions::Footer;
use sst_format::statistics::{Partitioner, Statistics};
use sst_format::summary::SummaryBuilder;
use sst_format::{
    AttachedName, BloomFilter, Component, Descriptor, FormatError, ReadSchema, Summary, Version,
};
use stdx::{DeletionSeconds, FixedMap, Token, Uuid};

use crate::covered::Covered;
use crate::set_files::Sealing;
use crate::{Result, SstableError};

/// Bytes per block of an uncompressed Data file without CRC.db.
const PLAIN_CHUNK_BYTES: u32 = CHECKSUM_BLOCK as u32;

/// The bytes of the small components, as read, and the lengths of the large ones.
#[derive(Debug, Default)]
pub struct Components {
    /// Component and its bytes: all but Data and Index that exist.
    pub small: Vec<(Component, Vec<u8>)>,
    /// Length of Data.db on disk.
    pub data_length: u64,
    /// Length of Index.db or Partitions.db on disk.
    pub index_length: u64,
    /// Length of Rows.db on disk.
    pub rows_length: u64,
    /// The last bytes of Partitions.db: all or [`sst_format::partitions::FOOTER_BYTES_MAX`].
    pub index_tail: Vec<u8>,
    /// Attached components of Checksums.db that exist, with their lengths on disk.
    pub attached: Vec<(AttachedName, u64)>,
    /// True if the file set is encrypted. Lengths are those of plain bytes.
    pub is_sealed: bool,
}

impl Components {
    fn get(&self, component: Component) -> Option<&[u8]> {
        self.small.iter().find(|(c, _)| *c == component).map(|(_, bytes)| bytes.as_slice())
    }
}

/// Tokens of some entries of a stretch of the index, and where in it they begin.
type Marks = Box<[(Token, u32)]>;

/// See the module.
#[derive(Debug)]
pub struct SstableMeta {
    directory: String,
    descriptor: Descriptor,
    statistics: Statistics,
    schema: ReadSchema,
    comparator: ClusteringComparator,
    covered: Covered,
    index: IndexKind,
    filter: Option<BloomFilter>,
    compression: Option<CompressionInfo>,
    checksums: Option<Checksums>,
    data_crc: Option<DataCrc>,
    digest: Option<u32>,
    components: Vec<Component>,
    attached: Vec<(AttachedName, u64)>,
    data_file_length: u64,
    data_length: u64,
    index_length: u64,
    rows_length: u64,
    first: Token,
    last: Token,
    data_file: String,
    index_file: String,
    rows_file: String,
    small_bytes: usize,
    is_sealed: bool,
    decompressor: RefCell<Option<Compressor>>,
    /// By position of a sample of the summary: see [`SstableMeta::search_start`].
    marks: RefCell<FixedMap<u64, Marks>>,
    /// False positives: partitions that its Bloom filter let pass and that are not here.
    misses: Cell<u64>,
    /// Why nothing of it can be read: see [`crate::unreadable`].
    pub(crate) unreadable: Option<Box<str>>,
}

/// The known parts of a file set that cannot be opened.
pub(crate) struct StandIn {
    /// Its own, or such as say nothing.
    pub(crate) statistics: Statistics,
    /// Only their part of the ring is used.
    pub(crate) checksums: Option<Checksums>,
    /// First and last token, or the whole ring.
    pub(crate) span: (Token, Token),
    /// Components that exist.
    pub(crate) components: Vec<Component>,
    pub(crate) data_length: u64,
    pub(crate) small_bytes: usize,
    pub(crate) is_sealed: bool,
    pub(crate) why: String,
}

/// Purpose for which a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To answer queries and be compacted.
    Serve,
    /// Inspection by offline tools.
    Look,
    /// To recover the readable data: lengths need not fit, and components may be missing.
    Salvage,
}

/// How partitions are looked up.
#[derive(Debug)]
enum IndexKind {
    /// By a sample of Index.db.
    Summary(Summary),
    /// By the trie in Partitions.db.
    Trie(Footer),
}

/// The file that a block lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockFile {
    /// Data.db.
    Data,
    /// Index.db or Partitions.db.
    Index,
    /// Rows.db.
    Rows,
}

/// Where the bytes of a block lie on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockLocation {
    /// The file.
    pub file: BlockFile,
    /// Offset in the file.
    pub offset: u64,
    /// Bytes there, checksum included.
    pub length: usize,
}

impl SstableMeta {
    /// Decodes and verifies the small components. `table` gives column ids by name; columns of the
    /// file that it neither has nor had are refused. `None`: the table is made up from the file's
    /// own header, for offline tools. With a table the file is one to be served: its partitions
    /// must be in the order of Murmur3. The caller checks whether its times can be rewritten
    /// ([`SstableMeta::check_times`]).
    ///
    /// # Errors
    /// `Corrupt` with file and offset, `Missing`, `Unsupported`.
    pub fn open(
        directory: &str,
        descriptor: Descriptor,
        table: Option<&Table>,
        components: &Components,
    ) -> Result<SstableMeta> {
        let purpose = if table.is_some() { Purpose::Serve } else { Purpose::Look };
        SstableMeta::open_for(purpose, directory, descriptor, table, components)
    }

    /// Like [`SstableMeta::open`]; a file opened only for inspection need not be fit for serving.
    pub(crate) fn open_for(
        purpose: Purpose,
        directory: &str,
        descriptor: Descriptor,
        table: Option<&Table>,
        components: &Components,
    ) -> Result<SstableMeta> {
        let file = |c: Component| format!("{directory}/{}", descriptor.file_name(c));
        let at = |c: Component| move |e: FormatError| SstableError::of_format(&file(c), 0, &e);
        let required =
            |c: Component| components.get(c).ok_or_else(|| SstableError::Missing { file: file(c) });
        let toc = decode_toc(required(Component::Toc)?).map_err(at(Component::Toc))?;
        let checksums = match components.get(Component::Checksums) {
            Some(bytes) => Some(Checksums::decode(bytes).map_err(at(Component::Checksums))?),
            None if toc.contains(&Component::Checksums) && purpose != Purpose::Salvage => {
                return Err(SstableError::Missing { file: file(Component::Checksums) });
            }
            None => None,
        };
        if let Some(list) = &checksums {
            verify_listed(list, purpose, components, &file)?;
        }
        for c in &toc {
            let is_wanted = c.is_small() && purpose != Purpose::Salvage;
            if is_wanted && components.get(*c).is_none() {
                return Err(SstableError::Missing { file: file(*c) });
            }
        }
        let version = descriptor.version;
        let bytes = required(Component::Statistics)?;
        let statistics = Statistics::decode(bytes, version).map_err(at(Component::Statistics))?;
        if let Some(binding) = checksums.as_ref().and_then(|list| list.binding.as_ref()) {
            check_identity(binding, bytes, version).map_err(at(Component::Statistics))?;
        }
        let is_served = purpose == Purpose::Serve;
        if is_served && statistics.partitioner != Partitioner::Murmur3 {
            let value = statistics.partitioner.class_name().to_owned();
            let error = FormatError::Unsupported { what: "partitioner", value };
            return Err(at(Component::Statistics)(error));
        }
        let made_up;
        let table = match table {
            Some(table) => table,
            None => {
                made_up = crate::header_table::table_of_header(&statistics.header);
                &made_up
            }
        };
        let schema =
            statistics.header.read_schema(table, version).map_err(at(Component::Statistics))?;
        let index = if version.is_bti() {
            let footer = Footer::decode(&components.index_tail, components.index_length);
            IndexKind::Trie(footer.map_err(at(Component::Partitions))?)
        } else {
            let summary = Summary::decode(required(Component::Summary)?, statistics.partitioner);
            IndexKind::Summary(summary.map_err(at(Component::Summary))?)
        };
        let (first, last) = index.key_range();
        let filter = components.get(Component::Filter);
        let filter = filter.map(|bytes| BloomFilter::decode(bytes, version)).transpose();
        let filter = filter.map_err(at(Component::Filter))?;
        let keys = [first, last].map(|key| hash_key(key).bloom);
        let filter = filter.map(|filter| filter.settled(version, &keys));
        let compression = components.get(Component::CompressionInfo);
        let compression = compression.map(|bytes| CompressionInfo::decode(bytes, version));
        let compression = compression.transpose().map_err(at(Component::CompressionInfo))?;
        let data_crc = components.get(Component::Crc).map(DataCrc::decode).transpose();
        let data_crc = data_crc.map_err(at(Component::Crc))?;
        let digest = components.get(Component::Digest).map(decode_digest).transpose();
        let digest = digest.map_err(at(Component::Digest))?;
        let data_length =
            compression.as_ref().map_or(components.data_length, |info| info.data_length);
        let comparator = ClusteringComparator::for_table(table);
        let meta = SstableMeta {
            directory: directory.to_owned(),
            descriptor,
            covered: Covered::new(&statistics.stats, schema.has_static(), &comparator),
            comparator,
            first: statistics.partitioner.token_of(first),
            last: statistics.partitioner.token_of(last),
            statistics,
            schema,
            index,
            filter,
            compression,
            checksums,
            data_crc,
            digest,
            components: toc,
            attached: components.attached.clone(),
            data_file_length: components.data_length,
            data_length,
            index_length: components.index_length,
            rows_length: components.rows_length,
            data_file: file(Component::Data),
            index_file: file(index_component(version)),
            rows_file: file(Component::Rows),
            small_bytes: components.small.iter().map(|(_, b)| b.len()).sum(),
            is_sealed: components.is_sealed,
            decompressor: RefCell::new(None),
            marks: RefCell::default(),
            misses: Cell::new(0),
            unreadable: None,
        };
        if purpose != Purpose::Salvage {
            meta.verify_lengths()?;
        }
        Ok(meta)
    }

    /// Builds the substitute for a file set that cannot be opened: [`crate::unreadable`].
    pub(crate) fn stand_in(
        directory: &str,
        descriptor: Descriptor,
        table: &Table,
        of: StandIn,
    ) -> Result<SstableMeta> {
        let file = |c: Component| format!("{directory}/{}", descriptor.file_name(c));
        let schema = of.statistics.header.read_schema(table, descriptor.version);
        let schema =
            schema.map_err(|e| SstableError::of_format(&file(Component::Statistics), 0, &e))?;
        let comparator = ClusteringComparator::for_table(table);
        let mut summary = SummaryBuilder::new(128);
        summary.add(&[], 0);
        let (first, last) = of.span;
        Ok(SstableMeta {
            covered: Covered::new(&of.statistics.stats, schema.has_static(), &comparator),
            statistics: of.statistics,
            schema,
            comparator,
            index: IndexKind::Summary(summary.finish(&[])),
            filter: None,
            compression: None,
            checksums: of.checksums,
            data_crc: None,
            digest: None,
            components: of.components,
            attached: Vec::new(),
            data_file_length: of.data_length,
            data_length: of.data_length.max(1),
            index_length: 1,
            rows_length: 0,
            first,
            last,
            data_file: file(Component::Data),
            index_file: file(index_component(descriptor.version)),
            rows_file: file(Component::Rows),
            small_bytes: of.small_bytes,
            is_sealed: of.is_sealed,
            decompressor: RefCell::new(None),
            marks: RefCell::default(),
            misses: Cell::new(0),
            unreadable: Some(of.why.into_boxed_str()),
            directory: directory.to_owned(),
            descriptor,
        })
    }

    /// Data must end where its last chunk does, Index after its last sample.
    fn verify_lengths(&self) -> Result<()> {
        let cut = |file: &str, offset, what: &str| {
            Err(SstableError::Corrupt { file: file.to_owned(), offset, what: what.to_owned() })
        };
        if let Some(info) = &self.compression {
            let last = info.offsets.len().saturating_sub(1);
            if info.chunk(last, self.data_file_length).is_none() {
                let what = "the file ends before its last chunk, or far after it";
                return cut(&self.data_file, self.data_file_length, what);
            }
        }
        let of_keys = match &self.index {
            IndexKind::Summary(summary) => {
                let last_sample = summary.position(summary.len().saturating_sub(1));
                if last_sample.is_none_or(|p| p >= self.index_length) {
                    let what = "the file ends before its last sample";
                    return cut(&self.index_file, self.index_length, what);
                }
                self.file(Component::Summary)
            }
            IndexKind::Trie(_) => self.index_file.clone(),
        };
        if self.first > self.last || self.data_length == 0 {
            return cut(&of_keys, 0, "the first key sorts after the last");
        }
        Ok(())
    }

    /// The token by which partitions are ordered, with their keys, in this file.
    #[inline]
    pub fn token_of(&self, key: &[u8]) -> Token {
        self.statistics.partitioner.token_of(key)
    }

    /// The hash that partitions are ordered by, when it is the one of Murmur3.
    #[inline]
    pub(crate) fn hash_of(&self, key: &[u8]) -> Option<KeyHash> {
        (self.statistics.partitioner == Partitioner::Murmur3).then(|| hash_key(key))
    }

    /// Version of the format.
    pub fn version(&self) -> Version {
        self.descriptor.version
    }

    /// First and last partition key.
    pub fn key_range(&self) -> (&[u8], &[u8]) {
        self.index.key_range()
    }

    /// Path of a component.
    pub fn file(&self, component: Component) -> String {
        format!("{}/{}", self.directory, self.descriptor.file_name(component))
    }

    /// Directory of the files.
    pub fn directory(&self) -> &str {
        &self.directory
    }

    /// Version and generation.
    pub fn descriptor(&self) -> Descriptor {
        self.descriptor
    }

    /// The components that TOC.txt lists, attached ones among them. Of those some may be missing:
    /// [`crate::Attached::lost`], and what other programs attached.
    pub fn components(&self) -> &[Component] {
        &self.components
    }

    /// See [`Components::attached`].
    pub(crate) fn attached_lengths(&self) -> &[(AttachedName, u64)] {
        &self.attached
    }

    /// Statistics.db.
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// Why the file could not be opened, when this is its substitute.
    pub fn unreadable(&self) -> Option<&str> {
        self.unreadable.as_deref()
    }

    /// Returns true if some expiry or deletion is after the last one that versions before `oa` can
    /// represent.
    pub fn has_late_times(&self) -> bool {
        let stats = &self.statistics.stats;
        let last = stats.tombstones.points.last().map_or(0, |(point, _)| *point);
        // In a file with data that never expires the largest is "none".
        let largest = match stats.max_local_deletion {
            DeletionSeconds::NONE => 0,
            DeletionSeconds(seconds) => seconds,
        };
        self.version().has_uint_times() && last.max(largest) > DeletionSeconds::MAX_SIGNED.0
    }

    /// Checks that all its times can be written in this version too: the server rewrites its rows
    /// in some later compaction.
    ///
    /// # Errors
    /// `Unsupported`.
    pub fn check_times(&self, written: Version) -> Result<()> {
        if written.has_uint_times() || !self.has_late_times() {
            return Ok(());
        }
        let what = format!(
            "it holds times of expiry or deletion after 2038-01-19, which version {written} \
            cannot store when it is rewritten: set \"storage_compatibility_mode: NONE\", or \
            \"sstable_version\" oa or da"
        );
        Err(SstableError::Unsupported { file: self.file(Component::Statistics), what })
    }

    /// Summary.db; `None` in format BTI.
    pub fn summary(&self) -> Option<&Summary> {
        match &self.index {
            IndexKind::Summary(summary) => Some(summary),
            IndexKind::Trie(_) => None,
        }
    }

    /// The end of Partitions.db; `None` in format BIG.
    pub(crate) fn footer(&self) -> Option<&Footer> {
        match &self.index {
            IndexKind::Summary(_) => None,
            IndexKind::Trie(footer) => Some(footer),
        }
    }

    /// CompressionInfo.db; `None` when Data is not compressed.
    pub fn compression(&self) -> Option<&CompressionInfo> {
        self.compression.as_ref()
    }

    /// Checksums.db; `None` for files that were not written here.
    pub fn checksums(&self) -> Option<&Checksums> {
        self.checksums.as_ref()
    }

    /// Digest.crc32: CRC32 of the whole Data file.
    pub fn digest(&self) -> Option<u32> {
        self.digest
    }

    /// Table and identifier that the file set was written under; `None` for files not written here, and
    /// those of earlier releases.
    pub fn binding(&self) -> Option<&Binding> {
        self.checksums.as_ref().and_then(|list| list.binding.as_ref())
    }

    /// Returns true if the file set was written under this name for that table. False: the whole
    /// set was copied there.
    pub fn is_in_place(&self, table: Uuid) -> bool {
        self.binding().is_none_or(|binding| {
            let is_of_table = binding.table == table || binding.table.is_nil() || table.is_nil();
            is_of_table && binding.id == self.descriptor.id()
        })
    }

    /// The part of the ring that the file belongs to; `None` for files not written here.
    pub fn group(&self) -> Option<StorageGroup> {
        self.checksums.as_ref().map(|c| c.group)
    }

    /// The run of incremental compaction that the file is a fragment of.
    pub fn run(&self) -> Option<stdx::Uuid> {
        self.group().and_then(|group| group.run)
    }

    pub(crate) fn schema(&self) -> &ReadSchema {
        &self.schema
    }

    pub(crate) fn data_file(&self) -> &str {
        &self.data_file
    }

    pub(crate) fn index_file(&self) -> &str {
        &self.index_file
    }

    pub(crate) fn rows_file(&self) -> &str {
        &self.rows_file
    }

    /// Length of Rows.db.
    pub(crate) fn rows_length(&self) -> u64 {
        self.rows_length
    }

    /// The order of rows.
    pub fn comparator(&self) -> &ClusteringComparator {
        &self.comparator
    }

    /// Token of the first partition.
    pub fn first_token(&self) -> Token {
        self.first
    }

    /// Token of the last partition.
    pub fn last_token(&self) -> Token {
        self.last
    }

    /// Uncompressed bytes of Data.
    pub fn data_length(&self) -> u64 {
        self.data_length
    }

    /// Bytes of all components on disk.
    pub fn disk_bytes(&self) -> u64 {
        let attached: u64 = self.attached.iter().map(|(_, length)| length).sum();
        self.data_file_length
            + self.index_length
            + self.rows_length
            + self.small_bytes as u64
            + attached
    }

    /// Returns true if the file set is encrypted.
    pub fn is_sealed(&self) -> bool {
        self.is_sealed
    }

    /// Encryption that a rewrite of the file set keeps.
    pub fn sealing(&self) -> Sealing {
        if self.is_sealed { Sealing::Sealed } else { Sealing::Plain }
    }

    /// Length of Data.db on disk; of an encrypted one without what encryption adds.
    pub fn data_file_length(&self) -> u64 {
        self.data_file_length
    }

    /// Length of Index.db or Partitions.db.
    pub fn index_length(&self) -> u64 {
        self.index_length
    }

    /// Memory of the Bloom filter.
    pub fn filter_bytes(&self) -> usize {
        self.filter.as_ref().map_or(0, BloomFilter::memory_bytes)
    }

    /// Bytes of Filter.db, which has the number of hashes and the length in front; 0: there is none.
    pub fn filter_file_length(&self) -> usize {
        self.filter.as_ref().map_or(0, |filter| filter.memory_bytes() + 8)
    }

    /// Memory of the sample of the index; 0 where that is a trie.
    pub fn summary_bytes(&self) -> usize {
        match &self.index {
            IndexKind::Summary(summary) => summary.memory_bytes(),
            IndexKind::Trie(_) => 0,
        }
    }

    /// Memory of the offsets of compressed chunks.
    pub fn offsets_bytes(&self) -> usize {
        self.compression.as_ref().map_or(0, |c| c.offsets.len() * 8)
    }

    /// Number of false positives of its Bloom filter.
    pub fn misses(&self) -> u64 {
        self.misses.get()
    }

    #[cold]
    pub(crate) fn note_miss(&self) {
        self.misses.set(self.misses.get().saturating_add(1));
    }

    /// Memory that the decoded components take.
    pub fn memory_bytes(&self) -> usize {
        let (offsets, filter) = (self.offsets_bytes(), self.filter_bytes());
        let marks: usize = self.marks.borrow().values().map(|m| 32 + size_of_val(&**m)).sum();
        let index = match &self.index {
            IndexKind::Summary(summary) => summary.memory_bytes(),
            IndexKind::Trie(footer) => footer.first.len() + footer.last.len(),
        };
        index + offsets + filter + marks + size_of::<Self>()
    }

    /// Estimated partitions, from the histogram of their sizes.
    pub fn estimated_partitions(&self) -> u64 {
        self.statistics.stats.partition_sizes.count()
    }

    /// Returns true if the partition may be in the file, by token range and Bloom filter.
    #[inline]
    pub fn may_contain(&self, hash: &KeyHash) -> bool {
        let in_range = hash.token >= self.first && hash.token <= self.last;
        (in_range || self.statistics.partitioner != Partitioner::Murmur3)
            && self.filter.as_ref().is_none_or(|f| f.may_contain(hash.bloom))
    }

    /// Returns the offset at which a lookup of a token may begin in the stretch of the index from
    /// `from` on. `None`: no cursor has walked it yet. About 0.7 bytes of memory per key, where
    /// keys are looked up.
    pub(crate) fn search_start(&self, from: u64, token: Token) -> Option<u64> {
        let marks = self.marks.borrow();
        let marks = marks.get(&from)?;
        // Entries of the token itself may lie before a mark that has it.
        let behind = marks.partition_point(|(t, _)| *t < token);
        let offset = behind.checked_sub(1).and_then(|i| marks.get(i)).map_or(0, |m| m.1);
        Some(from.saturating_add(u64::from(offset)))
    }

    /// Keeps marks for [`SstableMeta::search_start`] from all entries of a stretch.
    pub(crate) fn mark_stretch(&self, from: u64, entries: &[u8]) {
        if let Some(marks) = sample_entries(entries) {
            self.marks.borrow_mut().insert(from, marks.into_boxed_slice());
        }
    }

    /// Returns true if rows in the slices may be in the file, by the smallest and largest
    /// clustering. False only when the file can also hold no deletion of whole partitions (which
    /// statistics before `oa` do not distinguish from other tombstones) and no static row.
    #[inline]
    pub fn may_intersect(&self, slices: &Slices) -> bool {
        self.covered.meets(&self.comparator, slices)
    }
}

/// The component by which partitions are looked up.
pub(crate) fn index_component(version: Version) -> Component {
    if version.is_bti() { Component::Partitions } else { Component::Index }
}

impl IndexKind {
    fn key_range(&self) -> (&[u8], &[u8]) {
        match self {
            IndexKind::Summary(summary) => (&summary.first, &summary.last),
            IndexKind::Trie(footer) => (&footer.first, &footer.last),
        }
    }
}

/// Compares Statistics.db with the one that the file set was written with: integers in Data are differences
/// to its minima, so that of another file set would change times of rows.
pub(crate) fn check_identity(
    binding: &Binding,
    statistics: &[u8],
    version: Version,
) -> std::result::Result<(), FormatError> {
    if Statistics::identity(statistics, version)? == binding.statistics {
        return Ok(());
    }
    Err(FormatError::Invalid {
        what: "it belongs to another file set: Checksums.db was written with another Statistics.db",
        offset: 0,
    })
}

/// The id of a table by the name of its directory, `<name>-<id>`; nil when it has none.
pub(crate) fn table_of_directory(directory: &str) -> Uuid {
    let name = directory.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let id = name.rsplit_once('-').map(|(_, id)| Uuid::parse_str(id));
    id.and_then(std::result::Result::ok).unwrap_or_default()
}

/// Compares small components, and the lengths of the others, with Checksums.db.
fn verify_listed(
    list: &Checksums,
    purpose: Purpose,
    components: &Components,
    file: &impl Fn(Component) -> String,
) -> Result<()> {
    for entry in &list.components {
        let c = entry.component;
        let large = match c {
            Component::Data => Some(components.data_length),
            Component::Index | Component::Partitions => Some(components.index_length),
            Component::Rows => Some(components.rows_length),
            Component::Attached(name) => {
                let there = components.attached.iter().find(|(there, _)| *there == name);
                // No row needs them.
                let may_miss = entry.lifecycle.is_rebuilt() || purpose == Purpose::Salvage;
                if there.is_none() && may_miss {
                    continue;
                }
                there.map(|(_, length)| *length)
            }
            _ => None,
        };
        match (large, components.get(c)) {
            (Some(length), _) if length != entry.length => {
                return Err(SstableError::Corrupt {
                    file: file(c),
                    offset: length.min(entry.length),
                    what: format!("the file has {length} bytes instead of {}", entry.length),
                });
            }
            (Some(_), _) => {}
            (None, Some(bytes)) => {
                entry.verify_all(bytes).map_err(|e| SstableError::of_format(&file(c), 0, &e))?;
            }
            (None, None) => return Err(SstableError::Missing { file: file(c) }),
        }
    }
    Ok(())
}
