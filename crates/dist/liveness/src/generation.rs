//! The number of this start, kept durable in `metadata/generation` below the work directory.

use rt::Rt;
use stdx::{IoError, IoErrorKind};

fn path(work_dir: &str) -> String {
    format!("{}/metadata/generation", work_dir.trim_end_matches('/'))
}

/// The generation of this start: above every earlier one, durable when it is given.
///
/// A file that cannot be read as a number is replaced: should the clock be behind the lost number,
/// the others say so and gossip raises the generation.
///
/// # Errors
/// The file cannot be read or written.
pub async fn next_generation(rt: &Rt, work_dir: &str) -> Result<u64, IoError> {
    let path = path(work_dir);
    let last = match rt.fs().read(&path, 64).await {
        Ok(bytes) => {
            let number = std::str::from_utf8(&bytes).ok().and_then(|t| t.trim().parse().ok());
            if number.is_none() {
                tracing::warn!(%path, "the generation of the last start cannot be read");
            }
            number
        }
        Err(error) if error.kind == IoErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let next = gossip::next_generation(last, rt.wall());
    write(rt, work_dir, next).await?;
    Ok(next)
}

/// Makes a generation durable.
pub(crate) async fn write(rt: &Rt, work_dir: &str, generation: u64) -> Result<(), IoError> {
    rt.fs().write_atomic(&path(work_dir), format!("{generation}\n").into_bytes()).await
}
