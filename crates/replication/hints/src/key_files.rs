//! Data keys of encrypted hint files.
//!
//! The data key of a file is in `<file>.key`, a record of [`at_rest::KeyRecord`], which is durable before the file
//! exists and is removed after it.

use at_rest::{KeyRecord, KeySource};
use rt::{Fs, damaged};
use stdx::{IoError, IoErrorKind};

use crate::format::FileId;
use crate::sealed::HintCipher;

/// Added to the name of a hint file for the record of its key.
pub(crate) const KEY_SUFFIX: &str = ".key";

/// Path of the key record of the hint file at `path`.
pub(crate) fn path_for(path: &str) -> String {
    format!("{path}{KEY_SUFFIX}")
}

/// Creates a data key for the hint file at `path`, which does not exist yet. The record is durable. `source`: the named
/// key of a provider that wraps it.
pub(crate) async fn create(
    fs: &Fs,
    path: &str,
    id: FileId,
    source: Option<&KeySource>,
) -> Result<HintCipher, IoError> {
    let path = path_for(path);
    let (key, record) = fs.keys().new_data_key(source).await.map_err(|error| IoError {
        kind: IoErrorKind::PermissionDenied,
        operation: "encrypt",
        path: path.clone(),
        detail: error.to_string(),
    })?;
    fs.write_atomic(&path, record.encode()).await?;
    Ok(HintCipher::new(&key, id))
}

/// Opens the data key of the hint file at `path`. `None`: it has no record of a key.
///
/// # Errors
/// `PermissionDenied`: the named key is not known, the file has to wait; `Damaged`: the record is; others.
pub(crate) async fn open(fs: &Fs, path: &str, id: FileId) -> Result<Option<HintCipher>, IoError> {
    let key_path = path_for(path);
    let bytes = match fs.read(&key_path, at_rest::record::RECORD_BYTES_MAX).await {
        Ok(bytes) => bytes,
        Err(error) if error.kind == IoErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let record = KeyRecord::decode(&bytes).map_err(|error| damaged(&key_path, error))?;
    let key = fs.keys().open_data_key(&record).await.map_err(|error| match error.is_damage() {
        true => damaged(&key_path, error),
        false => IoError {
            kind: IoErrorKind::PermissionDenied,
            operation: "decrypt",
            path: path.to_owned(),
            detail: error.to_string(),
        },
    })?;
    Ok(Some(HintCipher::new(&key, id)))
}
