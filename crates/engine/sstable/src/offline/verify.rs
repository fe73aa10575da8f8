//! Full check of one SSTable, and Checksums.db for files that came without.

use std::cmp::Ordering;
use std::sync::Arc;

use codec::checksum::Crc32;
use codec::token_of;
use data::clustering::check as check_clustering;
use data::command::KeyRange;
use data::{Advance, ClusteringComparator, Cursor, Item, Slices};
use rt::Fs;
use sst_format::checksums::{BlockChecksummer, Checksums, StorageGroup};
use sst_format::component::{encode_toc, other_names_in_toc};
use sst_format::index::IndexEntry;
use sst_format::partitions::{Footer, RowsEntry, Target, partition_payload, row_payload};
use sst_format::trie::{Node, Path, Stop, follow};
use sst_format::{Binding, Component, Statistics};

use crate::attached::Attached;
use crate::block::{FilePages, INDEX_BLOCK, INDEX_PAGE_BYTES, ROWS_BLOCK, TriePages};
use crate::meta::{index_component, table_of_directory};
use crate::reader::{SMALL_COMPONENT_BYTES_MAX, TOC_BYTES_MAX};
use crate::sequential::SEQUENTIAL_BYTES;
use crate::set_files::SetFiles;
use crate::{Result, SstableError, SstableReader};

/// Counts of a full check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Partitions in Data, each with its entry in Index.
    pub partitions: u64,
    /// Rows, static ones included.
    pub rows: u64,
    /// Markers of range tombstones.
    pub markers: u64,
    /// Uncompressed bytes of Data.
    pub bytes: u64,
}

/// Reads every byte: checksums of all components, the digest, every partition and row in order,
/// every index entry against the partition it points to, the Bloom filter against every key.
///
/// # Errors
/// `Corrupt` naming file and offset of the first fault; `Io`.
pub async fn verify(reader: &SstableReader) -> Result<VerifyReport> {
    verify_with(reader, &mut |_, _| {}).await
}

/// The same; `at` is called repeatedly with the bytes done and their total.
///
/// # Errors
/// Those of [`verify`].
pub async fn verify_with(
    reader: &SstableReader,
    at: &mut dyn FnMut(u64, u64),
) -> Result<VerifyReport> {
    let meta = reader.meta().clone();
    // First all files for their checksums, then the content of Data.
    let raw = meta.disk_bytes();
    let total = raw.saturating_add(meta.data_length());
    let mut done = 0u64;
    let mut step = async |bytes| {
        done = done.saturating_add(bytes);
        at(done.min(raw), total);
        true
    };
    verify_checksums_with(reader, &mut step).await?;
    let comparator = meta.comparator();
    let corrupt = |component: Component, offset: u64, what: &str| SstableError::Corrupt {
        file: meta.file(component),
        offset,
        what: what.to_owned(),
    };
    let mut report = VerifyReport { bytes: meta.data_length(), ..VerifyReport::default() };
    let mut blocks = reader.sequential();
    let mut cursor = reader.range_cursor(0, KeyRange::all(), Arc::new(Slices::all()), None);
    let index = index_component(meta.version());
    let mut entries = match meta.footer() {
        None => Entries::Index(IndexWalk::new(reader)),
        Some(footer) => Entries::Tries(TrieWalk::new(reader, footer)),
    };
    // Format BTI: offsets of the partition's blocks of rows, the next one last.
    let mut row_blocks: Vec<u64> = Vec::new();
    let mut last: Option<Place> = None;
    loop {
        match cursor.advance()? {
            Advance::NeedBlock(request) => {
                let chunk = blocks.load_block(request.block).await?;
                cursor.feed(request.block, chunk);
                at(raw.saturating_add(cursor.position()), total);
                continue;
            }
            Advance::End => break,
            Advance::Item => {}
        }
        let start_of_item = cursor.item_start();
        let position = match cursor.item() {
            Item::Partition { key, token, .. } => {
                report.partitions += 1;
                last = None;
                let start = cursor.partition_start();
                row_blocks.clear();
                let pointed = match &mut entries {
                    Entries::Index(entries) => entries.points_to(key, start).await?,
                    Entries::Tries(entries) => {
                        entries.points_to(key, start, &mut row_blocks).await?
                    }
                };
                if !pointed {
                    let what = "the index entry does not point to the partition in its place";
                    return Err(corrupt(index, entries.position(), what));
                }
                row_blocks.reverse();
                let hash = codec::hash_key(key);
                stdx::debug_invariant!(meta.token_of(key) == token, "token of a key");
                if !meta.may_contain(&hash) {
                    let what = "a key of the file is not in the filter or the summary's range";
                    return Err(corrupt(Component::Filter, 0, what));
                }
                None
            }
            Item::Static(_) => {
                report.rows += 1;
                None
            }
            Item::Row { clustering, .. } => {
                report.rows += 1;
                Some((clustering, true, false))
            }
            Item::Marker(marker) => {
                report.markers += 1;
                Some((marker.position.prefix, false, marker.position.after))
            }
            Item::PartitionEnd => {
                // The last position of a row index is the end of the rows.
                if row_blocks.len() > 1 {
                    let what = "a block of the row index begins where no row does";
                    return Err(corrupt(Component::Rows, 0, what));
                }
                None
            }
        };
        if position.is_some()
            && row_blocks
                .last()
                .is_some_and(|next| cursor.partition_start() + next == start_of_item)
        {
            row_blocks.pop();
        }
        let Some((prefix, is_row, after)) = position else { continue };
        if check_clustering(prefix, comparator.len()).is_none() {
            return Err(corrupt(
                Component::Data,
                start_of_item,
                "a clustering with too many values",
            ));
        }
        let place = Place { prefix: prefix.to_vec(), is_row, after };
        if let Some(before) = &last {
            let order = before.compare(&place, comparator);
            if order.is_ge() {
                return Err(corrupt(Component::Data, start_of_item, "rows do not ascend"));
            }
        }
        last = Some(place);
    }
    let more = match &mut entries {
        Entries::Index(entries) => entries.next().await?.is_some(),
        Entries::Tries(entries) => entries.is_more(report.partitions).await?,
    };
    if more {
        let what = "the index has more entries than Data has partitions";
        return Err(corrupt(index, entries.position(), what));
    }
    Ok(report)
}

/// Where a row or marker stands in its partition.
pub(super) struct Place {
    pub(super) prefix: Vec<u8>,
    pub(super) is_row: bool,
    /// True for a marker after all clusterings that begin with the prefix.
    pub(super) after: bool,
}

impl Place {
    pub(super) fn bound(&self) -> data::BoundRef<'_> {
        data::BoundRef { prefix: &self.prefix, after: self.after }
    }

    /// The order of two rows or markers.
    pub(super) fn compare(&self, other: &Place, comparator: &ClusteringComparator) -> Ordering {
        match (self.is_row, other.is_row) {
            (true, true) => comparator.compare(&self.prefix, &other.prefix),
            (true, false) => comparator.compare_to_bound(&self.prefix, other.bound()),
            (false, true) => comparator.compare_to_bound(&other.prefix, self.bound()).reverse(),
            (false, false) => comparator.compare_bounds(self.bound(), other.bound()),
        }
    }
}

/// Reads every byte of the large components and of the attached ones with checksums, and compares
/// it with the digest and Checksums.db. Does not decode the content.
///
/// # Errors
/// `Corrupt` naming file and offset of the first fault; `Io`.
pub async fn verify_checksums(reader: &SstableReader) -> Result<()> {
    verify_checksums_with(reader, &mut async |_| true).await.map(|_| ())
}

/// The same; after each request `step` receives the number of bytes read, and returns false to
/// stop. Returns false if `step` did.
///
/// # Errors
/// Those of [`verify_checksums`].
pub async fn verify_checksums_with(
    reader: &SstableReader,
    step: &mut impl AsyncFnMut(u64) -> bool,
) -> Result<bool> {
    let meta = reader.meta();
    let large = meta.components().iter().copied().filter(Component::is_large);
    let attached = Attached::of(meta).existing().iter().map(|(name, _)| Component::Attached(*name));
    for component in large.chain(attached) {
        let list = meta.checksums().and_then(|c| c.component(component));
        let file = meta.file(component);
        let mut digest = Crc32::new();
        let mut offset = 0u64;
        loop {
            let buf = reader.read_raw(component, offset, SEQUENTIAL_BYTES).await?;
            let bytes = buf.as_slice();
            if bytes.is_empty() {
                break;
            }
            digest.update(bytes);
            if let Some(list) = list {
                let block = sst_format::checksums::CHECKSUM_BLOCK;
                let first = usize::try_from(offset / block as u64).unwrap_or(usize::MAX);
                for (i, part) in bytes.chunks(block).enumerate() {
                    list.verify_block(first + i, part)
                        .map_err(|e| SstableError::of_format(&file, 0, &e))?;
                }
            }
            offset += bytes.len() as u64;
            if !step(bytes.len() as u64).await {
                return Ok(false);
            }
            if bytes.len() < SEQUENTIAL_BYTES {
                break;
            }
        }
        if let (Component::Data, Some(expected)) = (component, meta.digest())
            && digest.value() != expected
        {
            let what = format!("the file has the digest {} instead of {expected}", digest.value());
            return Err(SstableError::Corrupt { file, offset: 0, what });
        }
    }
    Ok(true)
}

/// How the index is walked beside Data.
enum Entries<'r> {
    Index(IndexWalk),
    Tries(TrieWalk<'r>),
}

impl Entries<'_> {
    fn position(&self) -> u64 {
        match self {
            Entries::Index(walk) => walk.position,
            Entries::Tries(walk) => walk.path.node().unwrap_or(0),
        }
    }
}

/// Index entries in order.
pub(super) struct IndexWalk {
    reader: SstableReader,
    /// Data read is verified against its checksums.
    is_verified: bool,
    bytes: Vec<u8>,
    position: u64,
    next: u64,
    key: Vec<u8>,
}

impl IndexWalk {
    pub(super) fn new(reader: &SstableReader) -> Self {
        IndexWalk {
            reader: reader.clone(),
            is_verified: false,
            bytes: Vec::new(),
            position: 0,
            next: 0,
            key: Vec::new(),
        }
    }

    /// One for a tool that verifies nothing else.
    pub(super) fn verified(reader: &SstableReader) -> Self {
        IndexWalk { is_verified: true, ..IndexWalk::new(reader) }
    }

    /// Returns true if the next entry is that partition's.
    async fn points_to(&mut self, key: &[u8], start: u64) -> Result<bool> {
        Ok(self.next().await?.is_some_and(|(k, position)| k == key && position == start))
    }

    /// The next entry's key and its position in Data.
    pub(super) async fn next(&mut self) -> Result<Option<(&[u8], u64)>> {
        loop {
            if self.next >= self.reader.meta().index_length() {
                return Ok(None);
            }
            let skip = usize::try_from(self.next - self.position).unwrap_or(usize::MAX);
            let bytes = self.bytes.get(skip..).unwrap_or(&[]);
            if let Ok(entry) = IndexEntry::decode(bytes) {
                let length = entry.end() as u64;
                self.key.clear();
                self.key.extend_from_slice(entry.key);
                let at = entry.position;
                self.next += length;
                return Ok(Some((&self.key, at)));
            }
            // More bytes, from the entry on.
            let more = self.read().await?;
            if more.len() <= self.bytes.len().saturating_sub(skip) {
                return Err(SstableError::Corrupt {
                    file: self.reader.meta().index_file().to_owned(),
                    offset: self.next,
                    what: "an index entry is cut short".to_owned(),
                });
            }
            self.bytes = more;
            self.position = self.next;
        }
    }

    /// Reads one request's worth of bytes from the next entry on.
    async fn read(&self) -> Result<Vec<u8>> {
        if !self.is_verified {
            let read = self.reader.read_raw(Component::Index, self.next, SEQUENTIAL_BYTES);
            return Ok(read.await?.as_slice().to_vec());
        }
        let mut bytes = Vec::new();
        let mut at = self.next / INDEX_PAGE_BYTES * INDEX_PAGE_BYTES;
        while at < self.reader.meta().index_length() && bytes.len() < SEQUENTIAL_BYTES {
            let page = self.reader.load_block(INDEX_BLOCK | (at / INDEX_PAGE_BYTES)).await?;
            bytes.extend_from_slice(page.bytes());
            at += INDEX_PAGE_BYTES;
        }
        let skip = usize::try_from(self.next % INDEX_PAGE_BYTES).unwrap_or(usize::MAX);
        bytes.drain(..skip.min(bytes.len()));
        Ok(bytes)
    }
}

/// Places of the partition index in order, with the tries of rows that they lead to.
pub(super) struct TrieWalk<'r> {
    reader: &'r SstableReader,
    root: u64,
    count: u64,
    path: Path,
    started: bool,
    pages: TriePages,
}

impl<'r> TrieWalk<'r> {
    pub(super) fn new(reader: &'r SstableReader, footer: &Footer) -> Self {
        TrieWalk {
            reader,
            root: footer.root,
            count: footer.count,
            path: Path::default(),
            started: false,
            pages: TriePages::default(),
        }
    }

    /// Repeats a walk in one of the files until all its pages are in memory.
    async fn walk<T>(
        &mut self,
        mark: u64,
        mut step: impl FnMut(&FilePages<'_>, &mut Path) -> std::result::Result<T, Stop>,
    ) -> Result<T> {
        let meta = self.reader.meta();
        let length = if mark == INDEX_BLOCK { meta.index_length() } else { meta.rows_length() };
        loop {
            let done = step(&self.pages.of(mark, length), &mut self.path);
            match self.pages.walked(mark, done) {
                Ok(Ok(found)) => return Ok(found),
                Ok(Err(block)) => {
                    let chunk = self.reader.load_block(block).await?;
                    self.pages.feed(block, chunk);
                }
                Err(offset) => {
                    return Err(SstableError::Corrupt {
                        file: meta.file_of_block(mark).to_owned(),
                        offset,
                        what: "not a node of a trie".to_owned(),
                    });
                }
            }
        }
    }

    /// The next place of the partition index.
    async fn next(&mut self) -> Result<Option<(Option<u8>, Target)>> {
        let (root, started) = (self.root, std::mem::replace(&mut self.started, true));
        self.walk(INDEX_BLOCK, |pages, path| {
            let mut to = path.clone();
            match started {
                true => to.next(pages)?,
                false => to = Path::first(pages, root)?,
            }
            let found = match to.node() {
                None => None,
                Some(at) => partition_payload(&Node::read(pages, at)?, at)?,
            };
            *path = to;
            Ok(found)
        })
        .await
    }

    fn rows_entry<'b>(&self, buf: &'b rt::Buf, at: u64) -> Result<RowsEntry<'b>> {
        let version = self.reader.meta().version();
        RowsEntry::decode(buf.as_slice(), at, version).map_err(|e| {
            let file = self.reader.meta().rows_file();
            SstableError::of_format(file, at, &sst_format::FormatError::Decode(e))
        })
    }

    /// The next partition's position in Data, with its key where the index has it whole.
    pub(super) async fn next_start(&mut self) -> Result<Option<(u64, Option<Vec<u8>>)>> {
        let at = match self.next().await? {
            None => return Ok(None),
            Some((_, Target::Data(position))) => return Ok(Some((position, None))),
            Some((_, Target::Rows(at))) => at,
        };
        let buf = self.reader.read_raw(Component::Rows, at, usize::from(u16::MAX) + 64).await?;
        let entry = self.rows_entry(&buf, at)?;
        Ok(Some((entry.position, Some(entry.key.to_vec()))))
    }

    /// Returns true if the next position leads to that partition. Appends the offsets of its blocks
    /// of rows, with the end of the rows.
    async fn points_to(&mut self, key: &[u8], start: u64, blocks: &mut Vec<u64>) -> Result<bool> {
        let Some((hash, target)) = self.next().await? else { return Ok(false) };
        let own = codec::hash_key(key).bloom.base.to_be_bytes()[7];
        if hash.is_some_and(|hash| hash != own) {
            return Ok(false);
        }
        // A look-up must reach the same position.
        let mut form = Vec::new();
        sst_format::byte_order::partition_key(token_of(key), key, &mut form);
        let root = self.root;
        let looked_up = self.walk(INDEX_BLOCK, |pages, _| match follow(pages, root, &form)? {
            Some(node) => partition_payload(&node, root),
            None => Ok(None),
        });
        if looked_up.await? != Some((hash, target)) {
            return Ok(false);
        }
        let at = match target {
            Target::Data(position) => return Ok(position == start),
            Target::Rows(at) => at,
        };
        let version = self.reader.meta().version();
        let buf = self.reader.read_raw(Component::Rows, at, key.len() + 64).await?;
        let entry = self.rows_entry(&buf, at)?;
        if entry.key != key || entry.position != start {
            return Ok(false);
        }
        let (rows_root, count) = (entry.root, entry.blocks);
        let partition_path = std::mem::take(&mut self.path);
        let mut first = true;
        loop {
            let block = self
                .walk(ROWS_BLOCK, |pages, path| {
                    let mut to = path.clone();
                    match first {
                        true => to = Path::first(pages, rows_root)?,
                        false => to.next(pages)?,
                    }
                    let found = match to.node() {
                        None => None,
                        Some(at) => row_payload(&Node::read(pages, at)?, at, version)?,
                    };
                    *path = to;
                    Ok(found)
                })
                .await?;
            first = false;
            let Some(block) = block else { break };
            if blocks.last().is_some_and(|before| *before >= block.offset) {
                return Ok(false);
            }
            blocks.push(block.offset);
        }
        self.path = partition_path;
        Ok(blocks.len() as u64 == count.saturating_add(1))
    }

    /// Returns true if entries follow the last partition.
    async fn is_more(&mut self, partitions: u64) -> Result<bool> {
        Ok(self.count != partitions || self.next().await?.is_some())
    }
}

/// Adds Checksums.db to a file set without one (from Cassandra), after [`verify`] passed: the
/// component first, then the new TOC.txt in one step. Does nothing when the component exists.
///
/// # Errors
/// Those of [`verify`]; `Io`.
pub async fn add_checksums(fs: &Fs, reader: &SstableReader, shard_count: u16) -> Result<()> {
    let meta = reader.meta();
    if meta.checksums().is_some() {
        return Ok(());
    }
    verify(reader).await?;
    let files = SetFiles::open(fs, meta.directory(), meta.descriptor()).await?;
    let mut components = Vec::new();
    for component in meta.components() {
        // The binding covers the constant parts of Statistics; another program may change its
        // attached components.
        let is_other = matches!(component, Component::Checksums | Component::Statistics)
            || component.is_in_the_clear()
            || component.is_attached();
        if is_other {
            continue;
        }
        let file = files.open_file(*component, false).await?;
        let mut checksummer = BlockChecksummer::default();
        let mut offset = 0u64;
        loop {
            let (mut buf, result) = file.read_at(rt::Buf::new(), offset, SEQUENTIAL_BYTES).await;
            let read = result?;
            buf.resize(read);
            checksummer.update(buf.as_slice());
            offset += read as u64;
            if read < SEQUENTIAL_BYTES {
                break;
            }
        }
        components.push(checksummer.finish(*component));
    }
    let listed = meta.components().iter().copied();
    let is_kept = |c: &Component| *c != Component::Toc && !c.is_attached();
    let mut toc: Vec<Component> = listed.filter(is_kept).collect();
    toc.extend([Component::Checksums, Component::Toc]);
    let mut toc = encode_toc(&toc);
    // Attached components stay listed.
    let listed = fs.read(&meta.file(Component::Toc), TOC_BYTES_MAX).await?;
    for name in other_names_in_toc(&listed) {
        toc.extend_from_slice(name.as_bytes());
        toc.push(b'\n');
    }
    components.push(BlockChecksummer::of(Component::Toc, &toc));
    let group = StorageGroup {
        shard: None,
        shard_count,
        first: meta.first_token(),
        last: meta.last_token(),
        run: meta.run(),
    };
    let path = meta.file(Component::Statistics);
    let statistics = files.read(Component::Statistics, SMALL_COMPONENT_BYTES_MAX).await?;
    let statistics = Statistics::identity(&statistics, meta.version())
        .map_err(|e| SstableError::of_format(&path, 0, &e))?;
    let table = table_of_directory(meta.directory());
    let binding = Some(Binding { table, id: meta.descriptor().id(), statistics });
    let bytes = Checksums { group, binding, components }.encode();
    files.replace(Component::Checksums, bytes).await?;
    fs.write_atomic(&meta.file(Component::Toc), toc).await?;
    Ok(())
}
