//! High-water mark of the metadata log: `metadata/log-end` below the work directory.
//!
//! A torn last append and a log whose tail was lost later look the same in the log alone. The mark is
//! written after the sync of an append and before its answer, so every entry that anything was told of
//! is below it: a log that ends earlier was cut, and is refused.

use rt::Fs;
use stdx::{Epoch, IoError, IoErrorKind};

/// Name below [`crate::log::DIRECTORY`].
pub(crate) const NAME: &str = "log-end";
/// Largest mark, bytes.
const BYTES_MAX: usize = 4_096;
const HEAD: &str = "helenus-log-end 1\n";

/// What a directory says of the end of its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogEnd {
    /// There is no mark: the log is new, or of a release that wrote none.
    Unknown,
    /// Entries up to this one were durable.
    At(Epoch),
    /// It cannot be read.
    Damaged,
}

fn encode(epoch: Epoch) -> Vec<u8> {
    let mut text = format!("{HEAD}epoch {}\n", epoch.0);
    let crc = codec::crc32(text.as_bytes());
    text.push_str(&format!("crc32 {crc:08x}\n"));
    text.into_bytes()
}

/// Decodes a mark; `None` when its bytes are not those that were written.
pub(crate) fn decode(bytes: &[u8]) -> Option<Epoch> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (body, crc) = text.split_at_checked(text.rfind("crc32 ")?)?;
    let crc = crc.strip_prefix("crc32 ")?.strip_suffix('\n')?;
    if u32::from_str_radix(crc, 16).ok()? != codec::crc32(body.as_bytes()) {
        return None;
    }
    let number = body.strip_prefix(HEAD)?.strip_prefix("epoch ")?.strip_suffix('\n')?;
    number.parse().ok().map(Epoch)
}

/// # Errors
/// `Io`.
pub(crate) async fn read(fs: &Fs, directory: &str) -> Result<LogEnd, IoError> {
    match fs.read(&format!("{directory}/{NAME}"), BYTES_MAX).await {
        Ok(bytes) => Ok(decode(&bytes).map_or(LogEnd::Damaged, LogEnd::At)),
        Err(error) if error.kind == IoErrorKind::NotFound => Ok(LogEnd::Unknown),
        Err(error) => Err(error),
    }
}

/// Replaces the mark, durably.
///
/// # Errors
/// `Io`.
pub(crate) async fn write(fs: &Fs, directory: &str, epoch: Epoch) -> Result<(), IoError> {
    fs.write_atomic(&format!("{directory}/{NAME}"), encode(epoch)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_back_and_no_flip_or_cut_of_it_is() {
        let bytes = encode(Epoch(17));
        assert_eq!(bytes, b"helenus-log-end 1\nepoch 17\ncrc32 c5a51028\n", "{bytes:?}");
        assert_eq!(decode(&bytes), Some(Epoch(17)));
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            assert_ne!(decode(&bad), Some(Epoch(16)), "{at}");
            assert!(decode(&bad).is_none() || bad.eq_ignore_ascii_case(&bytes), "{at}");
            assert_eq!(decode(&bytes[..at]), None, "{at}");
        }
    }
}
