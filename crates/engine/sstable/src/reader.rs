//! Open files of one SSTable.

use std::rc::Rc;
use std::sync::Arc;

use codec::KeyHash;
use data::Slices;
use data::command::KeyRange;
use index_format::{Block, BlockRef};
use rt::{Buf, Fs};
use schema::Table;
use sst_format::checksums::{CHECKSUM_BLOCK, Checksums};
use sst_format::component::{attached_in_toc, decode_toc};
use sst_format::partitions::FOOTER_BYTES_MAX;
use sst_format::{AttachedName, Component, Descriptor};
use stdx::{IoErrorKind, Token, Uuid};

use crate::attached::Attached;
use crate::block::{Chunk, INDEX_BLOCK, ROWS_BLOCK};
use crate::cursor::{CursorBuffers, SstableCursor, TokenFilter};
use crate::indexes::{IndexComponent, OpenIndex, OpenIndexes, read_block};
use crate::meta::{BlockFile, Components, Purpose, SstableMeta, index_component};
use crate::sequential::{ReadAhead, SequentialReader};
use crate::set_files::{ComponentFile, SetFiles};
use crate::{Result, SstableError};

/// Largest small component read at open, bytes.
pub(crate) const SMALL_COMPONENT_BYTES_MAX: usize = 2 << 30;
/// Largest TOC.txt read, bytes.
pub(crate) const TOC_BYTES_MAX: usize = 1 << 20;
/// An open SSTable. Clones share the files, which close with the last one.
#[derive(Clone)]
pub struct SstableReader {
    pub(crate) meta: Rc<SstableMeta>,
    pub(crate) data: ComponentFile,
    index: ComponentFile,
    rows: Option<ComponentFile>,
    /// See [`Attached::existing`].
    attached: Rc<[(AttachedName, ComponentFile)]>,
    indexes: Option<Rc<OpenIndexes>>,
}

impl SstableReader {
    /// Opens the files and verifies every small component. `table`: see [`SstableMeta::open`].
    ///
    /// # Errors
    /// `Missing` when TOC.txt or a component that it lists is missing; `Corrupt`, `Unsupported`,
    /// `Io`.
    pub async fn open(
        fs: &Fs,
        directory: &str,
        descriptor: Descriptor,
        table: Option<&Table>,
    ) -> Result<SstableReader> {
        let purpose = if table.is_some() { Purpose::Serve } else { Purpose::Look };
        SstableReader::open_for(purpose, fs, directory, descriptor, table).await
    }

    /// Like [`SstableReader::open`] of a table, for an offline tool. It opens also files that a
    /// node does not serve, such as files in the order of other partitioners.
    ///
    /// # Errors
    /// Those of [`SstableReader::open`].
    pub async fn open_to_look(
        fs: &Fs,
        directory: &str,
        descriptor: Descriptor,
        table: &Table,
    ) -> Result<SstableReader> {
        SstableReader::open_for(Purpose::Look, fs, directory, descriptor, Some(table)).await
    }

    /// Like [`SstableReader::open`]; a file opened only for inspection need not be fit for serving.
    pub(crate) async fn open_for(
        purpose: Purpose,
        fs: &Fs,
        directory: &str,
        descriptor: Descriptor,
        table: Option<&Table>,
    ) -> Result<SstableReader> {
        let files = SetFiles::open(fs, directory, descriptor).await?;
        let loaded = Loaded::load(&files, descriptor).await?;
        let Loaded { components, data, index, rows, attached } = loaded;
        let meta = SstableMeta::open_for(purpose, directory, descriptor, table, &components)?;
        let indexes = OpenIndexes::open(&meta, &attached).await;
        let (meta, attached) = (Rc::new(meta), attached.into());
        Ok(SstableReader { meta, data, index, rows, attached, indexes })
    }

    /// Builds a reader from files that an offline tool opened separately.
    pub(crate) fn of_parts(
        meta: SstableMeta,
        data: ComponentFile,
        index: ComponentFile,
        rows: Option<ComponentFile>,
    ) -> SstableReader {
        let (meta, attached) = (Rc::new(meta), Rc::default());
        SstableReader { meta, data, index, rows, attached, indexes: None }
    }

    /// The decoded components.
    pub fn meta(&self) -> &Rc<SstableMeta> {
        &self.meta
    }

    /// Returns true if the partition may be in this file. See [`SstableMeta::may_contain`].
    #[inline]
    pub fn may_contain(&self, hash: &KeyHash) -> bool {
        self.meta.may_contain(hash)
    }

    /// A cursor over one partition. Ask [`SstableReader::may_contain`] first. `source` is the
    /// number that its block requests carry.
    pub fn partition_cursor(
        &self,
        source: u32,
        token: Token,
        key: &[u8],
        slices: Arc<Slices>,
        reversed: bool,
        buffers: CursorBuffers,
    ) -> SstableCursor {
        SstableCursor::partition(self.meta.clone(), source, token, key, slices, reversed, buffers)
    }

    /// A cursor over a range of partitions, in order.
    pub fn range_cursor(
        &self,
        source: u32,
        range: KeyRange,
        slices: Arc<Slices>,
        filter: Option<TokenFilter>,
    ) -> SstableCursor {
        SstableCursor::range(self.meta.clone(), source, range, slices, filter)
    }

    /// Reads, verifies and decompresses one block, for the caller's cache and
    /// [`SstableCursor::feed`].
    ///
    /// # Errors
    /// `Corrupt`, `Io`.
    pub async fn load_block(&self, block: u64) -> Result<Rc<Chunk>> {
        self.check_readable()?;
        let location = self.meta.locate(block).ok_or_else(|| self.no_block(block))?;
        let file = self.file_of(location.file);
        let (buf, result) = file.read_at(Buf::new(), location.offset, location.length).await;
        let read = result?;
        let chunk = self.meta.decode_block(block, buf.as_slice().get(..read).unwrap_or(&[]))?;
        Ok(Rc::new(chunk))
    }

    pub(crate) fn check_readable(&self) -> Result<()> {
        match self.meta.unreadable() {
            None => Ok(()),
            Some(why) => Err(SstableError::Corrupt {
                file: self.meta.data_file().to_owned(),
                offset: 0,
                what: why.to_owned(),
            }),
        }
    }

    fn file_of(&self, file: BlockFile) -> &ComponentFile {
        match (file, &self.rows) {
            (BlockFile::Index, _) => &self.index,
            (BlockFile::Rows, Some(rows)) => rows,
            _ => &self.data,
        }
    }

    fn file_of_component(&self, component: Component) -> &ComponentFile {
        match component {
            Component::Index | Component::Partitions => self.file_of(BlockFile::Index),
            Component::Rows => self.file_of(BlockFile::Rows),
            Component::Attached(name) => {
                let found = self.attached.iter().find(|(there, _)| *there == name);
                found.map_or(&self.data, |(_, file)| file)
            }
            _ => self.file_of(BlockFile::Data),
        }
    }

    /// Block `block` of an attached component, [`CHECKSUM_BLOCK`] bytes (fewer at its end), compared with its
    /// checksum.
    ///
    /// # Errors
    /// `Missing`: it is lost, or the file set never had it; `Corrupt` naming its file and the offset; `Io`.
    pub async fn load_attached(&self, name: AttachedName, block: u64) -> Result<Buf> {
        let file = self.meta.file(Component::Attached(name));
        let there = self.attached.iter().find(|(there, _)| *there == name);
        let (Some((_, opened)), Some(sums)) = (there, Attached::of(&self.meta).checksum(name))
        else {
            return Err(SstableError::Missing { file });
        };
        let offset = block.saturating_mul(CHECKSUM_BLOCK as u64);
        let (mut buf, result) = opened.read_at(Buf::new(), offset, CHECKSUM_BLOCK).await;
        let read = result?;
        buf.resize(read);
        let index = usize::try_from(block).unwrap_or(usize::MAX);
        let verified = sums.verify_block(index, buf.as_slice());
        verified.map_err(|error| SstableError::of_format(&file, 0, &error))?;
        Ok(buf)
    }

    /// The index of that id in this file. `None`: the file was written without it, or its components are lost or
    /// damaged; its rows are then to be read as if there was no index.
    pub fn index(&self, id: Uuid) -> Option<OpenIndex> {
        self.indexes.as_ref()?.get(id)
    }

    /// Bytes of a component of an index on disk; 0 if the file set lacks it.
    pub fn index_bytes(&self, component: IndexComponent) -> u64 {
        let name = component.name();
        let found = self.meta.attached_lengths().iter().find(|(found, _)| *found == name);
        found.map_or(0, |(_, length)| *length)
    }

    /// Reads and verifies a block of a component of an index.
    ///
    /// # Errors
    /// `Missing`, `Corrupt` naming its file and the offset; `Io`.
    pub async fn load_index_block(&self, component: IndexComponent, at: BlockRef) -> Result<Block> {
        let name = component.name();
        let path = self.meta.file(Component::Attached(name));
        match self.attached.iter().find(|(found, _)| *found == name) {
            Some((_, file)) => read_block(file, &path, at).await,
            None => Err(SstableError::Missing { file: path }),
        }
    }

    /// Stops using a component of an index that turned out damaged, in all clones of this reader. False: it was not
    /// used any more.
    pub fn mark_index_damaged(&self, component: IndexComponent, error: &SstableError) -> bool {
        self.indexes.as_ref().is_some_and(|indexes| indexes.mark_damaged(component, error))
    }

    /// Errors of components of indexes that are not used because of them.
    pub fn damaged_indexes(&self) -> Vec<SstableError> {
        self.indexes.as_ref().map_or(Vec::new(), |indexes| indexes.damaged())
    }

    pub(crate) fn no_block(&self, block: u64) -> SstableError {
        let number = block & !(INDEX_BLOCK | ROWS_BLOCK);
        SstableError::Corrupt {
            file: self.meta.file_of_block(block).to_owned(),
            offset: 0,
            what: format!("a position points to block {number}, which does not exist"),
        }
    }

    /// A reader that fetches Data in runs of 256 KiB, for compaction and other scans that should
    /// not pass through the cache.
    pub fn sequential(&self) -> SequentialReader {
        self.sequential_from(ReadAhead::default())
    }

    /// The same, continuing with the read-ahead of another reader of the same file.
    pub fn sequential_from(&self, ahead: ReadAhead) -> SequentialReader {
        SequentialReader::new(self.clone(), ahead)
    }

    /// Raw bytes of a large or attached component, for verification. Short at the end of the file.
    pub(crate) async fn read_raw(
        &self,
        component: Component,
        offset: u64,
        len: usize,
    ) -> Result<Buf> {
        let file = self.file_of_component(component);
        let (mut buf, result) = file.read_at(Buf::new(), offset, len).await;
        let read = result?;
        buf.resize(read);
        Ok(buf)
    }
}

/// The small components of a file set and its open large ones; nothing is checked yet.
pub(crate) struct Loaded {
    pub(crate) components: Components,
    data: ComponentFile,
    index: ComponentFile,
    rows: Option<ComponentFile>,
    attached: Vec<(AttachedName, ComponentFile)>,
}

impl Loaded {
    /// # Errors
    /// `Missing` for a large component, `Io`.
    pub(crate) async fn load(files: &SetFiles, descriptor: Descriptor) -> Result<Loaded> {
        let mut components = Components::default();
        for component in Component::ALL {
            if !component.is_small() {
                continue;
            }
            match files.read(component, SMALL_COMPONENT_BYTES_MAX).await {
                Ok(bytes) => components.small.push((component, bytes)),
                Err(e) if is_not_found(&e) => {}
                Err(e) => return Err(e),
            }
        }
        components.is_sealed = files.is_sealed();
        let toc = components.small.iter().find(|(c, _)| *c == Component::Toc);
        let listed = toc.and_then(|(_, bytes)| decode_toc(bytes).ok());
        if !files.is_sealed() && listed.is_some_and(|toc| toc.contains(&Component::Encryption)) {
            // The bytes that were read are encrypted.
            return Err(SstableError::Missing { file: files.path(Component::Encryption) });
        }
        let data = open_large(files, Component::Data).await?;
        let index = open_large(files, index_component(descriptor.version)).await?;
        components.data_length = data.len().await?;
        components.index_length = index.len().await?;
        let mut rows = None;
        if descriptor.version.is_bti() {
            let file = open_large(files, Component::Rows).await?;
            components.rows_length = file.len().await?;
            rows = Some(file);
            components.index_tail = read_tail(&index, components.index_length).await?;
        }
        let mut attached = Vec::new();
        for name in listed_attached(&components) {
            match files.open_file(Component::Attached(name), false).await {
                Ok(file) => {
                    components.attached.push((name, file.len().await?));
                    attached.push((name, file));
                }
                // The list of checksums decides if it may be missing.
                Err(e) if is_not_found(&e) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(Loaded { components, data, index, rows, attached })
    }
}

/// The attached components that Checksums.db lists. Those of other programs are not among them.
fn listed_attached(components: &Components) -> Vec<AttachedName> {
    let read = |c| components.small.iter().find(|(found, _)| *found == c).map(|(_, bytes)| bytes);
    if read(Component::Toc).is_some_and(|toc| attached_in_toc(toc).is_empty()) {
        // Most file sets: the list need not be decoded for it.
        return Vec::new();
    }
    let list = read(Component::Checksums).and_then(|bytes| Checksums::decode(bytes).ok());
    list.as_ref().map_or(Vec::new(), |list| list.attached().collect())
}

/// The last bytes of Partitions.db, with the keys and numbers that it ends with.
pub(crate) async fn read_tail(file: &ComponentFile, length: u64) -> Result<Vec<u8>> {
    // Aligned for direct IO.
    let wanted = FOOTER_BYTES_MAX as u64;
    let start = length.saturating_sub(wanted) / 4096 * 4096;
    let count = usize::try_from(length - start).unwrap_or(usize::MAX);
    let (buf, result) = file.read_at(Buf::new(), start, count).await;
    let read = result?;
    Ok(buf.as_slice().get(..read).unwrap_or(&[]).to_vec())
}

async fn open_large(files: &SetFiles, component: Component) -> Result<ComponentFile> {
    match files.open_file(component, true).await {
        Err(e) if is_not_found(&e) => Err(SstableError::Missing { file: files.path(component) }),
        opened => opened,
    }
}

/// Returns true if the file does not exist.
pub(crate) fn is_not_found(error: &SstableError) -> bool {
    matches!(error, SstableError::Io(error) if error.kind == IoErrorKind::NotFound)
}
