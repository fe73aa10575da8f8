//! The number of this start, kept durable in `metadata/generation` below the work directory.

use codec::SmallForm;
use rt::{Rt, SmallContent};
use stdx::{IoError, IoErrorKind};

/// Kind and version of the file; the body is the number and a line feed.
const FORM: SmallForm = SmallForm { kind: "generation", version: 2 };
const BYTES_MAX: usize = 256;

fn path(work_dir: &str) -> String {
    format!("{}/metadata/generation", work_dir.trim_end_matches('/'))
}

/// Returns the generation of this start: above every earlier one, and durable.
///
/// A damaged file is rebuilt from the clock. If the clock is behind the lost number, the others
/// report it and gossip raises the generation.
///
/// # Errors
/// The file cannot be read or written.
pub async fn next_generation(rt: &Rt, work_dir: &str) -> Result<u64, IoError> {
    let path = path(work_dir);
    let parse = |bytes: &[u8]| {
        std::str::from_utf8(bytes)
            .ok()
            .and_then(|t| t.strip_suffix('\n'))
            .and_then(|t| t.parse().ok())
    };
    let (last, damage) = match rt.fs().read_small(FORM, &path, BYTES_MAX).await {
        Ok(SmallContent::Missing) => (None, None),
        Ok(SmallContent::Body(bytes) | SmallContent::Legacy(bytes)) => match parse(&bytes) {
            Some(number) => (Some(number), None),
            None => (None, Some("it is no number".to_owned())),
        },
        Err(error) if error.kind == IoErrorKind::Damaged => (None, Some(error.detail)),
        Err(error) => return Err(error),
    };
    if let Some(damage) = damage {
        tracing::warn!(
            %path,
            %damage,
            "rebuilding the gossip generation from the clock: its file is damaged"
        );
    }
    let next = gossip::next_generation(last, rt.wall());
    write(rt, work_dir, next).await?;
    Ok(next)
}

/// Makes a generation durable.
pub(crate) async fn write(rt: &Rt, work_dir: &str, generation: u64) -> Result<(), IoError> {
    rt.fs().write_small(FORM, &path(work_dir), format!("{generation}\n").as_bytes()).await
}
