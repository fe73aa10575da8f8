//! The error reply that any request may get.

use crate::hello::put_text;
use codec::{DecodeError, Reader, Writer};
use stdx::{Epoch, TableId, Uuid};

/// Longest text of an error reply, bytes of UTF-8; longer ones are cut.
pub const TEXT_BYTES_MAX: usize = 1024;

/// Reason of a peer's failure. The message is the peer's; the sender decides what it means for the
/// client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ErrorReply {
    /// Too much waits already; nothing was done.
    #[error("the peer is overloaded")]
    Overloaded,
    /// The peer's schema has no such table, also after it caught up.
    #[error("the peer does not know the table {0}")]
    UnknownTable(TableId),
    /// The sender planned with too old metadata: catch up and plan again.
    #[error("the request's epoch is too old, epoch {} is needed", needed.0)]
    EpochTooOld {
        /// The first epoch that will do.
        needed: Epoch,
    },
    /// The sender's metadata is newer than the peer's, which could not catch up in time.
    #[error("the request's epoch is newer than the peer's {}", known.0)]
    EpochTooNew {
        /// The peer's epoch.
        known: Epoch,
    },
    /// The read met more tombstones than allowed.
    #[error("the read met {scanned} tombstones, more than tombstone_failure_threshold")]
    TombstoneOverwhelming {
        /// Tombstones met.
        scanned: u64,
    },
    /// The peer's disk is full.
    #[error("the peer's disk is full")]
    DiskFull,
    /// The peer is stopping; nothing was done.
    #[error("the peer is stopping")]
    Stopping,
    /// The peer found corruption in its own data.
    #[error("the peer's data is damaged")]
    Corrupt,
    /// The request made no sense to the peer; sending it again will not help.
    #[error("the peer refused the request: {0}")]
    Invalid(String),
    /// The peer stopped at the request's deadline; work that it began may still complete.
    #[error("the peer could not finish in time")]
    Timeout,
    /// The peer does not know the verb.
    #[error("the peer does not know the verb {0:#06x}")]
    UnknownVerb(u16),
    /// Something failed that must not.
    #[error("the peer failed: {0}")]
    Internal(String),
    /// The peer does not know the index, or has not built it yet.
    #[error("the index {0} is not available on the peer")]
    IndexNotAvailable(Uuid),
    /// An error of a later version.
    #[error("the peer answered with the unknown error {0}")]
    Other(u16),
}

impl ErrorReply {
    /// Its number on the wire.
    pub fn code(&self) -> u16 {
        match self {
            ErrorReply::Overloaded => 1,
            ErrorReply::UnknownTable(_) => 2,
            ErrorReply::EpochTooOld { .. } => 3,
            ErrorReply::EpochTooNew { .. } => 4,
            ErrorReply::TombstoneOverwhelming { .. } => 5,
            ErrorReply::DiskFull => 6,
            ErrorReply::Stopping => 7,
            ErrorReply::Corrupt => 8,
            ErrorReply::Invalid(_) => 9,
            ErrorReply::Timeout => 10,
            ErrorReply::UnknownVerb(_) => 11,
            ErrorReply::Internal(_) => 12,
            ErrorReply::IndexNotAvailable(_) => 13,
            ErrorReply::Other(code) => *code,
        }
    }

    /// Appends it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u16(self.code());
        match self {
            ErrorReply::UnknownTable(table) => out.put_bytes(table.0.as_bytes()),
            ErrorReply::IndexNotAvailable(index) => out.put_bytes(index.as_bytes()),
            ErrorReply::EpochTooOld { needed: Epoch(epoch) }
            | ErrorReply::EpochTooNew { known: Epoch(epoch) } => out.put_u64(*epoch),
            ErrorReply::TombstoneOverwhelming { scanned } => out.put_u64(*scanned),
            ErrorReply::Invalid(text) | ErrorReply::Internal(text) => {
                put_text(out, text, TEXT_BYTES_MAX);
            }
            ErrorReply::UnknownVerb(verb) => out.put_u16(*verb),
            ErrorReply::Overloaded
            | ErrorReply::DiskFull
            | ErrorReply::Stopping
            | ErrorReply::Corrupt
            | ErrorReply::Timeout
            | ErrorReply::Other(_) => {}
        }
    }

    /// Decodes a reply. Bytes after the known fields are ignored: later versions may add some.
    ///
    /// # Errors
    /// The bytes are cut short or a text is not UTF-8.
    pub fn decode(bytes: &[u8]) -> Result<ErrorReply, DecodeError> {
        let mut reader = Reader::new(bytes, "error reply");
        Ok(match reader.u16()? {
            1 => ErrorReply::Overloaded,
            2 => ErrorReply::UnknownTable(TableId(Uuid::from_bytes(reader.array()?))),
            3 => ErrorReply::EpochTooOld { needed: Epoch(reader.u64()?) },
            4 => ErrorReply::EpochTooNew { known: Epoch(reader.u64()?) },
            5 => ErrorReply::TombstoneOverwhelming { scanned: reader.u64()? },
            6 => ErrorReply::DiskFull,
            7 => ErrorReply::Stopping,
            8 => ErrorReply::Corrupt,
            9 => ErrorReply::Invalid(reader.utf8_u16()?.to_owned()),
            10 => ErrorReply::Timeout,
            11 => ErrorReply::UnknownVerb(reader.u16()?),
            12 => ErrorReply::Internal(reader.utf8_u16()?.to_owned()),
            13 => ErrorReply::IndexNotAvailable(Uuid::from_bytes(reader.array()?)),
            other => ErrorReply::Other(other),
        })
    }
}
