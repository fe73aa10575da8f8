//! Encrypted hint files: the mutation of each record is sealed.
//!
//! The data key of a file is in `<file>.key`, a record of [`at_rest::KeyRecord`], which is durable before the file
//! exists and is removed after it. A file with header version [`SEALED_VERSION`] is encrypted. The tag of a record also
//! covers when the hint was written and its `gc_grace_seconds`.

use std::rc::Rc;

use at_rest::{DataKey, KeyRecord, KeySource, RECORD_OVERHEAD_BYTES, RecordCipher};
use rt::damaged;
use stdx::{IoError, IoErrorKind};

use crate::files::Directory;
use crate::format::{FileId, HintRef};
use crate::walk::Found;

/// Form of new hint files: encrypted or plain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum HintSealing {
    /// Mutations are stored as they are.
    #[default]
    Plain,
    /// With a data key of its own, under the active key of the node.
    Sealed,
}

/// Added to the name of a hint file for the record of its key.
pub(crate) const KEY_SUFFIX: &str = ".key";

/// The encryption of one file.
#[derive(Clone)]
pub(crate) struct HintCipher(Rc<RecordCipher>);

impl HintCipher {
    fn new(key: &DataKey, id: FileId) -> HintCipher {
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

impl Directory {
    pub(crate) fn key_path(&self, id: FileId) -> String {
        format!("{}{KEY_SUFFIX}", self.path_of(id))
    }

    /// A new data key for a file that does not exist yet; its record is durable. `source`: the named key of a provider
    /// that wraps it.
    pub(crate) async fn new_cipher(
        &self,
        id: FileId,
        source: Option<&KeySource>,
    ) -> Result<HintCipher, IoError> {
        let path = self.key_path(id);
        let (key, record) = self.fs.keys().new_data_key(source).await.map_err(|error| IoError {
            kind: IoErrorKind::PermissionDenied,
            operation: "encrypt",
            path: path.clone(),
            detail: error.to_string(),
        })?;
        self.fs.write_atomic(&path, record.encode()).await?;
        Ok(HintCipher::new(&key, id))
    }

    /// The encryption of an existing file. `None`: it has no record of a key.
    ///
    /// # Errors
    /// `PermissionDenied`: the named key is not known, the file has to wait; `Damaged`: the record is; others.
    pub(crate) async fn cipher_of(&self, id: FileId) -> Result<Option<HintCipher>, IoError> {
        let path = self.key_path(id);
        let bytes = match self.fs.read(&path, at_rest::record::RECORD_BYTES_MAX).await {
            Ok(bytes) => bytes,
            Err(error) if error.kind == IoErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let record = KeyRecord::decode(&bytes).map_err(|error| damaged(&path, error))?;
        let key = self.fs.keys().open_data_key(&record).await.map_err(|error| {
            match error.is_damage() {
                true => damaged(&path, error),
                false => IoError {
                    kind: IoErrorKind::PermissionDenied,
                    operation: "decrypt",
                    path: self.path_of(id),
                    detail: error.to_string(),
                },
            }
        })?;
        Ok(Some(HintCipher::new(&key, id)))
    }
}
