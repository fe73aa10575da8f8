//! Attached indexes of an open file set: `Index+Rows.db`, and `Index+<id>.db` for each index.
//!
//! A file set without a component of an index, or with one that is damaged, is served: its rows are then read as if
//! no index existed. So nothing here fails an opening.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use ann::{VectorDirectory, VectorSummary};
use bytes::Bytes;
use index_format::summary::{ComponentKind, FOOTER_BYTES, HEADER_BYTES, read_header};
use index_format::{Block, BlockRef, Footer, IndexError, IndexSummary, RowsSummary};
use rt::Buf;
use sst_format::{AttachedKind, AttachedName, Component, Lifecycle};
use stdx::Uuid;

use crate::meta::SstableMeta;
use crate::set_files::ComponentFile;
use crate::{Result, SstableError};

/// Begins the names of all components of indexes.
const PREFIX: &str = "Index+";
/// The name of the component that all indexes of a file set share.
const ROWS: &str = "Index+Rows.db";
/// Follows the id of an index in the name of its component.
const SUFFIX: &str = ".db";

/// A component of the indexes of a file set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IndexComponent {
    /// Positions of the rows, for all indexes.
    Rows,
    /// Terms or vectors of the index of that id.
    Entries(Uuid),
}

impl IndexComponent {
    /// Its name.
    ///
    /// # Panics
    /// Never: the names are valid.
    pub fn name(self) -> AttachedName {
        let parsed = match self {
            IndexComponent::Rows => AttachedName::parse(ROWS),
            IndexComponent::Entries(id) => {
                // Without dashes: a Cassandra does not start on a directory with a name of more than four parts.
                AttachedName::parse(&format!("{PREFIX}{}{SUFFIX}", id.simple()))
            }
        };
        match parsed {
            Some(name) => name,
            None => stdx::invariant::broken(format_args!("name of an index component")),
        }
    }

    /// The component of that name. `None`: it belongs to no index.
    pub fn of_name(name: AttachedName) -> Option<IndexComponent> {
        if name.as_str() == ROWS {
            return Some(IndexComponent::Rows);
        }
        let id = name.as_str().strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
        Uuid::try_parse(id).ok().map(IndexComponent::Entries).filter(|found| found.name() == name)
    }

    pub(crate) fn attached(self) -> AttachedKind {
        AttachedKind { name: self.name(), lifecycle: Lifecycle::Derived }
    }

    /// Its kind, which the header tells.
    fn kind(self, header: &[u8]) -> ComponentKind {
        match (self, ComponentKind::of_header(header)) {
            (IndexComponent::Rows, _) => ComponentKind::Rows,
            (IndexComponent::Entries(_), Some(ComponentKind::Vectors)) => ComponentKind::Vectors,
            (IndexComponent::Entries(_), _) => ComponentKind::Terms,
        }
    }

    fn id(self) -> Uuid {
        match self {
            IndexComponent::Rows => Uuid::nil(),
            IndexComponent::Entries(id) => id,
        }
    }
}

/// Turns an error about a component into one that names its file.
pub(crate) fn of_index(file: &str, offset: u64, error: &IndexError) -> SstableError {
    match error {
        IndexError::Version { .. } | IndexError::Input { .. } => {
            SstableError::Unsupported { file: file.to_owned(), what: error.to_string() }
        }
        IndexError::Decode(_) | IndexError::Checksum { .. } | IndexError::Invalid { .. } => {
            SstableError::Corrupt { file: file.to_owned(), offset, what: error.to_string() }
        }
    }
}

/// Entries of one index of a file set: what a search begins with.
#[derive(Clone, Debug)]
pub enum IndexEntries {
    /// Terms.
    Terms(Rc<IndexSummary>),
    /// Vectors, by segments.
    Vectors(Rc<[Arc<VectorSummary>]>),
}

/// Summaries of one index of a file set.
#[derive(Clone, Debug)]
pub struct OpenIndex {
    /// The entries of the index in this file.
    pub entries: IndexEntries,
    /// Rows of this file.
    pub rows: Arc<RowsSummary>,
    /// Definition of the index that the component was written for: [`index_format::TableIndex::definition`].
    pub definition: u32,
}

impl OpenIndex {
    /// Different values, and pairs of a value and a row. Each vector counts as a value of its own.
    pub fn counts(&self) -> (u64, u64) {
        match &self.entries {
            IndexEntries::Terms(summary) => (summary.counts.terms, summary.counts.ids),
            IndexEntries::Vectors(segments) => {
                let vectors = segments.iter().map(|segment| u64::from(segment.nodes)).sum();
                (vectors, vectors)
            }
        }
    }

    /// The summary of its terms. `None`: it is an index of vectors.
    pub fn terms(&self) -> Option<&Rc<IndexSummary>> {
        match &self.entries {
            IndexEntries::Terms(summary) => Some(summary),
            IndexEntries::Vectors(_) => None,
        }
    }

    /// The segments of its vectors. `None`: it is an index of terms.
    pub fn vectors(&self) -> Option<&Rc<[Arc<VectorSummary>]>> {
        match &self.entries {
            IndexEntries::Terms(_) => None,
            IndexEntries::Vectors(segments) => Some(segments),
        }
    }
}

/// An open component of entries.
struct OpenEntries {
    id: Uuid,
    definition: u32,
    /// Rows of the file, as the component has them.
    rows: u32,
    entries: IndexEntries,
}

/// The components of indexes that a file set has.
#[derive(Default)]
pub(crate) struct OpenIndexes {
    rows: Option<Arc<RowsSummary>>,
    entries: Vec<OpenEntries>,
    /// Components that are not used, and why.
    damaged: RefCell<Vec<(IndexComponent, SstableError)>>,
}

impl OpenIndexes {
    /// Opens those of the attached components that belong to indexes. `None`: none does.
    pub(crate) async fn open(
        meta: &SstableMeta,
        attached: &[(AttachedName, ComponentFile)],
    ) -> Option<Rc<OpenIndexes>> {
        let mut indexes = OpenIndexes::default();
        let mut is_any = false;
        for (name, file) in attached {
            let Some(component) = IndexComponent::of_name(*name) else { continue };
            is_any = true;
            let path = meta.file(Component::Attached(*name));
            if let Err(error) = indexes.add(component, file, &path).await {
                indexes.damaged.get_mut().push((component, error));
            }
        }
        is_any.then(|| Rc::new(indexes))
    }

    async fn add(
        &mut self,
        component: IndexComponent,
        file: &ComponentFile,
        path: &str,
    ) -> Result<()> {
        let Ends { kind, definition, summary: block } = read_ends(component, file, path).await?;
        let offset = block.at().offset;
        let of = |error: IndexError| of_index(path, offset, &error);
        let IndexComponent::Entries(id) = component else {
            self.rows = Some(Arc::new(RowsSummary::read(block).map_err(of)?));
            return Ok(());
        };
        let (rows, entries) = if kind == ComponentKind::Vectors {
            let directory = VectorDirectory::read(block).map_err(of)?;
            let mut segments = Vec::with_capacity(directory.segments.len());
            for at in &directory.segments {
                let block = read_block(file, path, *at).await?;
                let segment = VectorSummary::read(block, &directory);
                segments.push(Arc::new(segment.map_err(|e| of_index(path, at.offset, &e))?));
            }
            (directory.rows, IndexEntries::Vectors(segments.into()))
        } else {
            let summary = IndexSummary::read(block).map_err(of)?;
            (summary.rows, IndexEntries::Terms(Rc::new(summary)))
        };
        self.entries.push(OpenEntries { id, definition, rows, entries });
        Ok(())
    }

    /// See [`crate::SstableReader::index`].
    pub(crate) fn get(&self, id: Uuid) -> Option<OpenIndex> {
        let rows = self.rows.as_ref()?;
        let found = self.entries.iter().find(|entries| entries.id == id)?;
        let is_used = |component| !self.is_damaged(component);
        let is_whole = is_used(IndexComponent::Rows) && is_used(IndexComponent::Entries(id));
        // Ids of another count of rows would name other rows.
        (is_whole && found.rows == rows.rows).then(|| OpenIndex {
            entries: found.entries.clone(),
            rows: rows.clone(),
            definition: found.definition,
        })
    }

    fn is_damaged(&self, component: IndexComponent) -> bool {
        self.damaged.borrow().iter().any(|(found, _)| *found == component)
    }

    /// Stops using a component. False: it was not used any more.
    pub(crate) fn mark_damaged(&self, component: IndexComponent, error: &SstableError) -> bool {
        let is_new = !self.is_damaged(component);
        if is_new {
            self.damaged.borrow_mut().push((component, error.clone()));
        }
        is_new
    }

    /// See [`crate::SstableReader::damaged_indexes`].
    pub(crate) fn damaged(&self) -> Vec<SstableError> {
        self.damaged.borrow().iter().map(|(_, error)| error.clone()).collect()
    }
}

/// The fields of the header and the footer of a component.
struct Ends {
    kind: ComponentKind,
    definition: u32,
    /// The block that the footer names.
    summary: Block,
}

/// Verifies both ends of a component.
async fn read_ends(component: IndexComponent, file: &ComponentFile, path: &str) -> Result<Ends> {
    let length = file.len().await?;
    let of = |offset| move |error: IndexError| of_index(path, offset, &error);
    let header = read_exact(file, path, 0, HEADER_BYTES).await?;
    let kind = component.kind(&header);
    let (id, definition) = read_header(kind, &header).map_err(of(0))?;
    if id != component.id() {
        let what = "header of another index".to_owned();
        return Err(SstableError::Corrupt { file: path.to_owned(), offset: 0, what });
    }
    let end = length.saturating_sub(FOOTER_BYTES as u64);
    let footer = read_exact(file, path, end, FOOTER_BYTES).await?;
    let footer = Footer::read(kind, &footer, length).map_err(of(end))?;
    let summary = read_block(file, path, footer.summary).await?;
    Ok(Ends { kind, definition, summary })
}

/// Reads and verifies a block of a component.
pub(crate) async fn read_block(file: &ComponentFile, path: &str, at: BlockRef) -> Result<Block> {
    let bytes = read_exact(file, path, at.offset, at.length as usize).await?;
    Block::open(at, bytes).map_err(|error| of_index(path, at.offset, &error))
}

async fn read_exact(file: &ComponentFile, path: &str, offset: u64, length: usize) -> Result<Bytes> {
    let (mut buf, read) = file.read_at(Buf::new(), offset, length).await;
    if read? < length {
        let what = format!("{length} bytes expected, the file is shorter");
        return Err(SstableError::Corrupt { file: path.to_owned(), offset, what });
    }
    buf.resize(length);
    Ok(Bytes::copy_from_slice(buf.as_slice()))
}

#[cfg(test)]
mod tests {
    use sst_format::{Descriptor, Version};
    use stdx::Generation;

    use super::*;

    #[test]
    fn names_have_the_four_parts_that_a_cassandra_expects_of_every_file() {
        let id = Uuid::from_u128(0x1f43_8b75_3810_311c_a63e_173f_fefa_3be2);
        let set = Descriptor::new(Version::Nb, Generation(12));
        for component in [IndexComponent::Rows, IndexComponent::Entries(id)] {
            let name = component.name();
            assert_eq!(IndexComponent::of_name(name), Some(component));
            let file = set.file_name(Component::Attached(name));
            assert_eq!(file.split('-').count(), 4, "{file}");
        }
        let name = IndexComponent::Entries(id).name();
        assert_eq!(name.as_str(), "Index+1f438b753810311ca63e173ffefa3be2.db");
        let other = AttachedName::parse("Index+1f438b75-3810-311c-a63e-173ffefa3be2.db").unwrap();
        assert_eq!(IndexComponent::of_name(other), None, "an index has one name only");
    }
}
