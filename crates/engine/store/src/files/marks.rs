//! Small durable files in the directories of tables, one per shard or damaged file: `helenus-damaged-*`,
//! `helenus-verified.*`, `helenus-looked.*`, `helenus-indexed.*`. All have the envelope of [`SmallForm`]; their bodies are lines.
//!
//! Version 1 of them, of earlier releases, is a text of its own with a checksum, and is read too.

use codec::{SmallForm, open_text};
use rt::{Fs, SmallContent};

/// Marks of damaged files.
pub(crate) const DAMAGED: SmallForm = SmallForm { kind: "damaged", version: 2 };
/// When files were verified.
pub(crate) const VERIFIED: SmallForm = SmallForm { kind: "verified", version: 2 };
/// Which files were scanned for large partitions.
pub(crate) const LOOKED: SmallForm = SmallForm { kind: "looked", version: 2 };
/// Which indexes are built. There was no earlier form.
pub(crate) const INDEXED: SmallForm = SmallForm { kind: "indexed", version: 1 };

/// The lines of a mark. `Err`: description of the error.
pub(crate) fn body_of(form: SmallForm, bytes: &[u8]) -> Result<String, String> {
    let body = match codec::is_small_file(bytes) {
        true => form.decode(bytes).map_err(|defect| defect.to_string())?.to_vec(),
        false => earlier_body(form, bytes)?,
    };
    String::from_utf8(body).map_err(|_| "its lines are not text".to_owned())
}

fn earlier_body(form: SmallForm, bytes: &[u8]) -> Result<Vec<u8>, String> {
    if bytes.is_empty() {
        return Err("it is empty".to_owned());
    }
    let body = open_text(bytes, &format!("helenus-{} 1\n", form.kind));
    body.map(|body| body.as_bytes().to_vec()).ok_or_else(|| "checksum mismatch".to_owned())
}

/// The defect of a mark whose checksum is right and whose lines are not.
pub(crate) fn unknown_lines() -> String {
    "its lines are not what was written".to_owned()
}

/// Reads the lines of a mark of at most `max` bytes. `None`: there is no such file.
///
/// # Errors
/// A description of the file's fault.
pub(crate) async fn read_lines(
    fs: &Fs,
    form: SmallForm,
    path: &str,
    max: usize,
) -> Result<Option<String>, String> {
    match fs.read_small(form, path, max).await {
        Ok(SmallContent::Missing) => Ok(None),
        Ok(SmallContent::Body(body)) => {
            String::from_utf8(body).map(Some).map_err(|_| "its lines are not text".to_owned())
        }
        Ok(SmallContent::Legacy(bytes)) => body_of(form, &bytes).map(Some),
        Err(error) => Err(error.detail),
    }
}
