//! Full check of one SSTable, and Checksums.db for files that came without.

use std::rc::Rc;

use codec::checksum::Crc32;
use codec::token_of;
use data::clustering::check as check_clustering;
use data::command::KeyRange;
use data::{Advance, Cursor, Item, Slices};
use rt::{Fs, OpenOptions};
use sst_format::Component;
use sst_format::checksums::{BlockChecksummer, Checksums, StorageGroup};
use sst_format::component::encode_toc;
use sst_format::index::IndexEntry;

use crate::reader::SEQUENTIAL_BYTES;
use crate::{Result, SstableError, SstableReader};

/// What a full check saw.
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
    verify_raw(reader).await?;
    let meta = reader.meta().clone();
    let comparator = meta.comparator();
    let corrupt = |component: Component, offset: u64, what: &str| SstableError::Corrupt {
        file: meta.file(component),
        offset,
        what: what.to_owned(),
    };
    let mut report = VerifyReport { bytes: meta.data_length(), ..VerifyReport::default() };
    let mut blocks = reader.sequential();
    let mut cursor = reader.range_cursor(0, KeyRange::all(), Rc::new(Slices::all()), None);
    let mut entries = IndexWalk::new(reader);
    let mut last: Option<(Vec<u8>, bool, bool)> = None;
    loop {
        match cursor.advance()? {
            Advance::NeedBlock(request) => {
                let chunk = blocks.load_block(request.block).await?;
                cursor.feed(request.block, chunk);
                continue;
            }
            Advance::End => break,
            Advance::Item => {}
        }
        let at = cursor.item_start();
        let position = match cursor.item() {
            Item::Partition { key, token, .. } => {
                report.partitions += 1;
                last = None;
                let start = cursor.partition_start();
                match entries.next().await? {
                    Some((k, position)) if k == key && position == start => {}
                    _ => {
                        let what = "the index entry does not point to the partition in its place";
                        return Err(corrupt(Component::Index, entries.position, what));
                    }
                }
                let hash = codec::hash_key(key);
                stdx::debug_invariant!(hash.token == token, "token of a key");
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
            Item::PartitionEnd => None,
        };
        let Some((prefix, is_row, after)) = position else { continue };
        if check_clustering(prefix, comparator.len()).is_none() {
            return Err(corrupt(Component::Data, at, "a clustering with too many values"));
        }
        if let Some((before, before_is_row, before_after)) = &last {
            let bound = |prefix, after| data::BoundRef { prefix, after };
            let order = match (*before_is_row, is_row) {
                (true, true) => comparator.compare(before, prefix),
                (true, false) => comparator.compare_to_bound(before, bound(prefix, after)),
                (false, true) => {
                    comparator.compare_to_bound(prefix, bound(before, *before_after)).reverse()
                }
                (false, false) => {
                    comparator.compare_bounds(bound(before, *before_after), bound(prefix, after))
                }
            };
            if order.is_ge() {
                return Err(corrupt(Component::Data, at, "rows do not ascend"));
            }
        }
        last = Some((prefix.to_vec(), is_row, after));
    }
    if entries.next().await?.is_some() {
        let what = "the index has more entries than Data has partitions";
        return Err(corrupt(Component::Index, entries.position, what));
    }
    let summary = meta.summary();
    if token_of(&summary.first) > token_of(&summary.last) {
        return Err(corrupt(Component::Summary, 0, "the first key is behind the last"));
    }
    Ok(report)
}

/// Checksums over the raw bytes of Data and Index: the digest and Checksums.db.
async fn verify_raw(reader: &SstableReader) -> Result<()> {
    let meta = reader.meta();
    for component in [Component::Data, Component::Index] {
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
    Ok(())
}

/// Index entries in order.
struct IndexWalk<'r> {
    reader: &'r SstableReader,
    bytes: Vec<u8>,
    position: u64,
    next: u64,
    key: Vec<u8>,
}

impl<'r> IndexWalk<'r> {
    fn new(reader: &'r SstableReader) -> Self {
        IndexWalk { reader, bytes: Vec::new(), position: 0, next: 0, key: Vec::new() }
    }

    async fn next(&mut self) -> Result<Option<(&[u8], u64)>> {
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
            // More bytes: from the entry on, one request.
            let buf = self.reader.read_raw(Component::Index, self.next, SEQUENTIAL_BYTES).await?;
            if buf.as_slice().len() <= bytes.len() {
                return Err(SstableError::Corrupt {
                    file: self.reader.meta().index_file().to_owned(),
                    offset: self.next,
                    what: "an index entry is cut short".to_owned(),
                });
            }
            self.bytes.clear();
            self.bytes.extend_from_slice(buf.as_slice());
            self.position = self.next;
        }
    }
}

/// Gives a file that came without Checksums.db (from Cassandra) one, after [`verify`] passed: the
/// component first, then the new TOC.txt in one step. Nothing is done when it is there.
///
/// # Errors
/// Those of [`verify`]; `Io`.
pub async fn add_checksums(fs: &Fs, reader: &SstableReader, shard_count: u16) -> Result<()> {
    let meta = reader.meta();
    if meta.checksums().is_some() {
        return Ok(());
    }
    verify(reader).await?;
    let mut components = Vec::new();
    for component in meta.components() {
        if matches!(component, Component::Toc | Component::Checksums) {
            continue;
        }
        let path = meta.file(*component);
        let file = fs.open(&path, OpenOptions { read: true, ..OpenOptions::default() }).await?;
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
    let mut toc: Vec<Component> = components.iter().map(|c| c.component).collect();
    toc.extend([Component::Checksums, Component::Toc]);
    let toc = encode_toc(&toc);
    components.push(BlockChecksummer::of(Component::Toc, &toc));
    let group = StorageGroup {
        shard: None,
        shard_count,
        first: meta.first_token(),
        last: meta.last_token(),
    };
    let bytes = Checksums { group, components }.encode();
    fs.write_atomic(&meta.file(Component::Checksums), bytes).await?;
    fs.write_atomic(&meta.file(Component::Toc), toc).await?;
    Ok(())
}
