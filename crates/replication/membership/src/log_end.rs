//! High-water mark of the metadata log: `metadata/log-end` below the work directory.
//!
//! A torn last append and a log whose tail was lost later look the same in the log alone. The mark is
//! written after the sync of an append and before its answer. So every acknowledged entry is below the
//! mark: a log that ends earlier was truncated, and is refused.

use codec::SmallForm;
use rt::{Fs, SmallContent};
use stdx::{Epoch, IoError, IoErrorKind};

/// Name below [`crate::log::DIRECTORY`].
pub(crate) const NAME: &str = "log-end";
/// Largest mark, bytes.
const BYTES_MAX: usize = 4_096;
const FORM: SmallForm = SmallForm { kind: "log-end", version: 1 };

/// End of the log, as recorded in its directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogEnd {
    /// There is no mark: the log is new, or of a release that wrote none.
    Unknown,
    /// Entries up to this one were durable.
    At(Epoch),
    /// It cannot be read.
    Damaged,
}

/// Decodes the body of a mark; `None` when it is none.
pub(crate) fn decode(body: &[u8]) -> Option<Epoch> {
    let text = std::str::from_utf8(body).ok()?;
    text.strip_prefix("epoch ")?.strip_suffix('\n')?.parse().ok().map(Epoch)
}

/// # Errors
/// `Io`.
pub(crate) async fn read(fs: &Fs, directory: &str) -> Result<LogEnd, IoError> {
    match fs.read_small(FORM, &format!("{directory}/{NAME}"), BYTES_MAX).await {
        Ok(SmallContent::Body(body)) => Ok(decode(&body).map_or(LogEnd::Damaged, LogEnd::At)),
        Ok(SmallContent::Legacy(_)) => Ok(LogEnd::Damaged),
        Ok(SmallContent::Missing) => Ok(LogEnd::Unknown),
        Err(error) if error.kind == IoErrorKind::Damaged => Ok(LogEnd::Damaged),
        Err(error) => Err(error),
    }
}

/// Replaces the mark, durably.
///
/// # Errors
/// `Io`.
pub(crate) async fn write(fs: &Fs, directory: &str, epoch: Epoch) -> Result<(), IoError> {
    let body = format!("epoch {}\n", epoch.0);
    fs.write_small(FORM, &format!("{directory}/{NAME}"), body.as_bytes()).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_an_epoch_and_nothing_else() {
        assert_eq!(decode(b"epoch 17\n"), Some(Epoch(17)));
        for bad in [&b"epoch 17"[..], b"epoch x\n", b"17\n", b"", b"epoch 17\n\n", b"\xff"] {
            assert_eq!(decode(bad), None, "{bad:?}");
        }
    }
}
