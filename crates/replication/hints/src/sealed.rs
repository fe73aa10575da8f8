//! Encrypted hint files: the mutation of each record is sealed.
//!
//! A file with header version [`crate::format::SEALED_VERSION`] is encrypted. The tag of a record also covers when the
//! hint was written and its `gc_grace_seconds`. The data keys of files are in `key_files`.

use std::rc::Rc;

use at_rest::{DataKey, RECORD_OVERHEAD_BYTES, RecordCipher};

use crate::format::{FileId, HintRef};
use crate::walk::Found;

/// The encryption of one file.
#[derive(Clone)]
pub(crate) struct HintCipher(Rc<RecordCipher>);

impl HintCipher {
    pub(crate) fn new(key: &DataKey, id: FileId) -> HintCipher {
        HintCipher(Rc::new(RecordCipher::new(key, &id.file_name())))
    }

    /// Bytes that sealing adds to a record.
    pub(crate) const OVERHEAD_BYTES: u64 = RECORD_OVERHEAD_BYTES as u64;

    fn fields(hint: &HintRef<'_>) -> [u8; 12] {
        let mut fields = [0; 12];
        let written = hint.written_at.0.to_le_bytes();
        let grace = hint.gc_grace_seconds.to_le_bytes();
        let bytes = written.iter().chain(&grace);
        fields.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        fields
    }

    /// The mutation of a record at that offset, sealed.
    pub(crate) fn seal(&self, offset: u64, hint: &HintRef<'_>) -> Vec<u8> {
        let mut bytes = hint.mutation.to_vec();
        self.0.seal(offset, &HintCipher::fields(hint), &mut bytes);
        bytes
    }

    /// The hint of a record, opened into `plain`. `None`: it was not written by this node like that.
    pub(crate) fn open<'p>(&self, found: &Found<'_>, plain: &'p mut Vec<u8>) -> Option<Found<'p>> {
        plain.clear();
        plain.extend_from_slice(found.hint.mutation);
        self.0.open(found.at, &HintCipher::fields(&found.hint), plain).ok()?;
        let HintRef { written_at, gc_grace_seconds, .. } = found.hint;
        let hint = HintRef { written_at, gc_grace_seconds, mutation: plain };
        Some(Found { at: found.at, next: found.next, hint })
    }
}
