//! Attached indexes of an open file set: `Index+Rows.db`, and `Index+<id>.db` for each index.
//!
//! A file set without a component of an index, or with one that is damaged, is served: its rows are then read as if
//! no index existed. So nothing here fails an opening.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

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
    /// Terms of the index of that id.
    Terms(Uuid),
}

impl IndexComponent {
    /// Its name.
    ///
    /// # Panics
    /// Never: the names are valid.
    pub fn name(self) -> AttachedName {
        let parsed = match self {
            IndexComponent::Rows => AttachedName::parse(ROWS),
            IndexComponent::Terms(id) => {
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
        Uuid::try_parse(id).ok().map(IndexComponent::Terms).filter(|found| found.name() == name)
    }

    pub(crate) fn attached(self) -> AttachedKind {
        AttachedKind { name: self.name(), lifecycle: Lifecycle::Derived }
    }

    fn kind(self) -> ComponentKind {
        match self {
            IndexComponent::Rows => ComponentKind::Rows,
            IndexComponent::Terms(_) => ComponentKind::Terms,
        }
    }

    fn id(self) -> Uuid {
        match self {
            IndexComponent::Rows => Uuid::nil(),
            IndexComponent::Terms(id) => id,
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

/// Summaries of one index of a file set: what a search begins with.
#[derive(Clone, Debug)]
pub struct OpenIndex {
    /// Terms of the index in this file.
    pub summary: Rc<IndexSummary>,
    /// Rows of this file.
    pub rows: Arc<RowsSummary>,
    /// Definition of the index that the component was written for: [`index_format::TableIndex::definition`].
    pub definition: u32,
}

/// An open component of terms.
struct OpenTerms {
    id: Uuid,
    definition: u32,
    summary: Rc<IndexSummary>,
}

/// The components of indexes that a file set has.
#[derive(Default)]
pub(crate) struct OpenIndexes {
    rows: Option<Arc<RowsSummary>>,
    terms: Vec<OpenTerms>,
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
            let read =
                read_summary(component, file, &path).await.and_then(|(definition, block)| {
                    let offset = block.at().offset;
                    let added = indexes.add(component, definition, block);
                    added.map_err(|error| of_index(&path, offset, &error))
                });
            if let Err(error) = read {
                indexes.damaged.get_mut().push((component, error));
            }
        }
        is_any.then(|| Rc::new(indexes))
    }

    fn add(
        &mut self,
        component: IndexComponent,
        definition: u32,
        block: Block,
    ) -> std::result::Result<(), IndexError> {
        match component {
            IndexComponent::Rows => self.rows = Some(Arc::new(RowsSummary::read(block)?)),
            IndexComponent::Terms(id) => {
                let summary = Rc::new(IndexSummary::read(block)?);
                self.terms.push(OpenTerms { id, definition, summary });
            }
        }
        Ok(())
    }

    /// See [`crate::SstableReader::index`].
    pub(crate) fn get(&self, id: Uuid) -> Option<OpenIndex> {
        let rows = self.rows.as_ref()?;
        let terms = self.terms.iter().find(|terms| terms.id == id)?;
        let (summary, definition) = (&terms.summary, terms.definition);
        let is_used = |component| !self.is_damaged(component);
        let is_whole = is_used(IndexComponent::Rows) && is_used(IndexComponent::Terms(id));
        // Ids of another count of rows would name other rows.
        (is_whole && summary.rows == rows.rows).then(|| OpenIndex {
            summary: summary.clone(),
            rows: rows.clone(),
            definition,
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

/// Verifies both ends of a component and reads its definition and summary.
async fn read_summary(
    component: IndexComponent,
    file: &ComponentFile,
    path: &str,
) -> Result<(u32, Block)> {
    let length = file.len().await?;
    let kind = component.kind();
    let of = |offset| move |error: IndexError| of_index(path, offset, &error);
    let header = read_exact(file, path, 0, HEADER_BYTES).await?;
    let (id, definition) = read_header(kind, &header).map_err(of(0))?;
    if id != component.id() {
        let what = "header of another index".to_owned();
        return Err(SstableError::Corrupt { file: path.to_owned(), offset: 0, what });
    }
    let end = length.saturating_sub(FOOTER_BYTES as u64);
    let footer = read_exact(file, path, end, FOOTER_BYTES).await?;
    let footer = Footer::read(kind, &footer, length).map_err(of(end))?;
    Ok((definition, read_block(file, path, footer.summary).await?))
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
        for component in [IndexComponent::Rows, IndexComponent::Terms(id)] {
            let name = component.name();
            assert_eq!(IndexComponent::of_name(name), Some(component));
            let file = set.file_name(Component::Attached(name));
            assert_eq!(file.split('-').count(), 4, "{file}");
        }
        let name = IndexComponent::Terms(id).name();
        assert_eq!(name.as_str(), "Index+1f438b753810311ca63e173ffefa3be2.db");
        let other = AttachedName::parse("Index+1f438b75-3810-311c-a63e-173ffefa3be2.db").unwrap();
        assert_eq!(IndexComponent::of_name(other), None, "an index has one name only");
    }
}
