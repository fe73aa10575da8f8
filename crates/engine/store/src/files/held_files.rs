//! Files that are held open for another node.

use std::rc::Rc;

use rt::{Buf, File};
use sst_format::Checksums;
use sstable::{Component, SstableMeta, Version};
use stdx::{Generation, TableId};

use crate::error::StoreError;
use crate::tables::table::TableView;
use crate::tables::table_file::TableFile;

/// Forms of files that a receiver takes as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenForms {
    /// Versions of the format.
    pub versions: Vec<Version>,
    /// Support of attached components.
    pub attached: AttachedTaken,
}

/// Treatment of files whose Checksums.db lists attached components, by a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachedTaken {
    /// It takes them.
    Yes,
    /// It knows only the fixed kinds of components: their rows are sent.
    No,
}

impl TakenForms {
    /// Returns true if a file is of such a form.
    pub(crate) fn has(&self, meta: &SstableMeta) -> bool {
        let mut attached = meta.checksums().into_iter().flat_map(Checksums::attached);
        let takes_attached = self.attached == AttachedTaken::Yes || attached.next().is_none();
        self.versions.contains(&meta.version()) && takes_attached
    }
}

/// Data of a shard in ranges of a table, as of one moment.
pub struct Held {
    pub(crate) table: TableId,
    pub(crate) files: Vec<HeldFile>,
    pub(crate) rest: Rc<TableView>,
}

/// A file that can be sent unmodified.
pub struct HeldFile {
    pub(crate) generation: Generation,
    pub(crate) version: Version,
    /// Component, its open file, its bytes; TOC last.
    pub(crate) components: Vec<(Component, File, u64)>,
    /// Keeps it open for reads.
    pub(crate) _file: Rc<TableFile>,
}

impl Held {
    /// The table.
    pub fn table(&self) -> TableId {
        self.table
    }

    /// The files that lie in the ranges as a whole; everything else is read by
    /// [`crate::Reader::read_held`].
    pub fn files(&self) -> &[HeldFile] {
        &self.files
    }

    pub(crate) fn rest(&self) -> &Rc<TableView> {
        &self.rest
    }
}

impl HeldFile {
    /// Its number here.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Version of its format.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Its components with their bytes, TOC last.
    pub fn components(&self) -> impl Iterator<Item = (Component, u64)> {
        self.components.iter().map(|(component, _, length)| (*component, *length))
    }

    /// Bytes of a component; fewer only at its end.
    ///
    /// # Errors
    /// `Invalid`: it has no such component; `Io`.
    pub async fn read(
        &self,
        component: Component,
        offset: u64,
        bytes: usize,
    ) -> Result<Buf, StoreError> {
        let found = self.components.iter().find(|(c, _, _)| *c == component);
        let Some((_, file, length)) = found else {
            return Err(StoreError::Invalid(format!("the file has no {component}")));
        };
        let left = usize::try_from(length.saturating_sub(offset)).unwrap_or(usize::MAX);
        let (mut buf, read) = file.read_at(Buf::new(), offset, bytes.min(left)).await;
        let read = read?;
        buf.resize(read);
        Ok(buf)
    }
}
