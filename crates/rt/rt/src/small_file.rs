//! Reading and replacing small durable files, whose envelope is [`codec::SmallForm`].

use codec::{SmallForm, is_small_file};
use stdx::{IoError, IoErrorKind};

use crate::file::Fs;

/// Content at the path of a small durable file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SmallContent {
    /// There is no file.
    Missing,
    /// The body of a file whose checksum fits.
    Body(Vec<u8>),
    /// The file has no envelope: it is of an earlier release, or damaged, or empty. The caller
    /// decides whether the legacy form can be trusted.
    Legacy(Vec<u8>),
}

/// Builds the error of a small file with unexpected content.
pub fn damaged(path: &str, what: impl std::fmt::Display) -> IoError {
    IoError {
        kind: IoErrorKind::Damaged,
        operation: "read",
        path: path.to_owned(),
        detail: format!("the file is damaged: {what}"),
    }
}

impl Fs {
    /// Reads a small durable file of at most `max` bytes.
    ///
    /// # Errors
    /// `Damaged`, with the path and the defect; any other when it cannot be read.
    pub async fn read_small(
        &self,
        form: SmallForm,
        path: &str,
        max: usize,
    ) -> Result<SmallContent, IoError> {
        let length = match self.metadata(path).await {
            Ok(metadata) => metadata.len,
            Err(error) if error.kind == IoErrorKind::NotFound => return Ok(SmallContent::Missing),
            Err(error) => return Err(error),
        };
        if length > max as u64 {
            return Err(damaged(path, format_args!("{length} bytes, expected at most {max}")));
        }
        let bytes = match self.read(path, max).await {
            Ok(bytes) => bytes,
            Err(error) if error.kind == IoErrorKind::NotFound => return Ok(SmallContent::Missing),
            Err(error) => return Err(error),
        };
        if !is_small_file(&bytes) {
            return Ok(SmallContent::Legacy(bytes));
        }
        match form.decode(&bytes) {
            Ok(body) => Ok(SmallContent::Body(body.to_vec())),
            Err(defect) => Err(damaged(path, defect)),
        }
    }

    /// Replaces a small durable file as [`Fs::write_atomic`] does.
    ///
    /// # Errors
    /// The file may be the one before or the new one.
    pub async fn write_small(
        &self,
        form: SmallForm,
        path: &str,
        body: &[u8],
    ) -> Result<(), IoError> {
        self.write_atomic(path, form.encode(body)).await
    }
}
