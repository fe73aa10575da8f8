//! Attached components of a file set that is being written: the files that an index builder adds to it.

use sst_format::attached::ATTACHED_MAX;
use sst_format::{AttachedKind, Component, ComponentChecksum};

use super::SstableWriter;
use super::indexing::IndexBuild;
use super::output::Output;
use crate::{Result, SstableError};

/// Attached components of a file set that is being written.
#[derive(Default)]
pub(super) struct Attachments {
    /// Checksums, by order of beginning; `None` until a component is finished.
    begun: Vec<(AttachedKind, Option<ComponentChecksum>)>,
    /// Components of the table's indexes.
    pub(super) indexes: Option<Box<IndexBuild>>,
}

/// An attached component that is written beside Data, from front to back. After each
/// [`AttachedWriter::put`], [`AttachedWriter::write_full`] when [`AttachedWriter::is_full`]. At its end
/// [`AttachedWriter::finish`], before that of the file set.
pub struct AttachedWriter {
    kind: AttachedKind,
    output: Output,
}

impl AttachedWriter {
    /// Begins an attached component of a file set that is being written. [`SstableWriter::finish`] wants all of
    /// them finished.
    ///
    /// # Errors
    /// `Unsupported`: the file set has a component of that name, or too many; `Io`.
    pub async fn begin(writer: &mut SstableWriter, kind: AttachedKind) -> Result<AttachedWriter> {
        let file = writer.file(Component::Attached(kind.name));
        let refused = match () {
            () if writer.attached.begun.iter().any(|(known, _)| known.name == kind.name) => {
                Some("it was attached before".to_owned())
            }
            () if writer.attached.begun.len() >= ATTACHED_MAX => {
                Some(format!("a file set has at most {ATTACHED_MAX} attached components"))
            }
            () => None,
        };
        if let Some(what) = refused {
            return Err(SstableError::Unsupported { file, what });
        }
        let component = Component::Attached(kind.name);
        let output = Output::create(&writer.files, component, false).await?;
        writer.attached.begun.push((kind, None));
        Ok(AttachedWriter { kind, output })
    }

    /// Returns the kind of the component.
    pub fn kind(&self) -> AttachedKind {
        self.kind
    }

    /// Bytes so far.
    pub fn length(&self) -> u64 {
        self.output.length()
    }

    /// Takes the next bytes.
    pub fn put(&mut self, bytes: &[u8]) {
        self.output.pending.extend_from_slice(bytes);
    }

    /// Returns true if [`AttachedWriter::write_full`] has a full request to write.
    pub fn is_full(&self) -> bool {
        self.output.is_full()
    }

    /// Writes all full requests.
    ///
    /// # Errors
    /// `Io`; the writer of the file set should then be aborted.
    pub async fn write_full(&mut self) -> Result<()> {
        self.output.write_full().await
    }

    /// Writes the rest, syncs it, and passes its checksums to the writer of the file set.
    ///
    /// # Errors
    /// `Io`; the writer should then be aborted.
    pub async fn finish(mut self, writer: &mut SstableWriter) -> Result<()> {
        let AttachedKind { name, lifecycle } = self.kind;
        let sum = self.output.finish(Component::Attached(name)).await?;
        let begun = writer.attached.begun.iter_mut().find(|(known, _)| known.name == name);
        stdx::invariant!(
            begun.as_ref().is_some_and(|(_, done)| done.is_none()),
            "sstable writer: an attached component of another file set"
        );
        if let Some((_, done)) = begun {
            *done = Some(ComponentChecksum { lifecycle, ..sum });
        }
        Ok(())
    }
}

impl SstableWriter {
    /// The checksums of the attached components, sorted by name, as TOC.txt lists them.
    pub(super) fn take_attached(&mut self) -> Vec<ComponentChecksum> {
        let begun = std::mem::take(&mut self.attached.begun);
        let count = begun.len();
        let mut sums: Vec<ComponentChecksum> =
            begun.into_iter().filter_map(|(_, done)| done).collect();
        stdx::invariant!(sums.len() == count, "sstable writer: an attached component is open");
        sums.sort_unstable_by_key(|sum| sum.component);
        sums
    }
}
