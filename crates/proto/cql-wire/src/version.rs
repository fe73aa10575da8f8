//! Protocol versions, and the parameters that a connection has agreed on.

use crate::error::WireError;
use std::fmt;

/// A version that both sides can speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProtocolVersion {
    /// Cassandra 2.1.
    V3,
    /// Cassandra 2.2 to 3.11.
    V4,
    /// Cassandra 4.0 on: segments with checksums, result metadata ids.
    V5,
    /// In development, for clients that set the flag for it (`USE_BETA`): as v5.
    V6,
}

impl ProtocolVersion {
    /// All of them, oldest first.
    pub const ALL: [ProtocolVersion; 4] =
        [ProtocolVersion::V3, ProtocolVersion::V4, ProtocolVersion::V5, ProtocolVersion::V6];
    /// The one preferred: replies to a client of an unknown version are in it.
    pub const CURRENT: ProtocolVersion = ProtocolVersion::V5;

    /// The number on the wire.
    #[inline]
    pub const fn number(self) -> u8 {
        match self {
            ProtocolVersion::V3 => 3,
            ProtocolVersion::V4 => 4,
            ProtocolVersion::V5 => 5,
            ProtocolVersion::V6 => 6,
        }
    }

    /// From the number on the wire, without the direction bit.
    ///
    /// # Errors
    /// `UnsupportedVersion`.
    #[inline]
    pub const fn from_number(number: u8) -> Result<ProtocolVersion, WireError> {
        match number {
            3 => Ok(ProtocolVersion::V3),
            4 => Ok(ProtocolVersion::V4),
            5 => Ok(ProtocolVersion::V5),
            6 => Ok(ProtocolVersion::V6),
            version => Err(WireError::UnsupportedVersion { version }),
        }
    }

    /// Returns the name that SUPPORTED lists under `PROTOCOL_VERSIONS`, e.g. `5/v5`.
    pub const fn name(self) -> &'static str {
        match self {
            ProtocolVersion::V3 => "3/v3",
            ProtocolVersion::V4 => "4/v4",
            ProtocolVersion::V5 => "5/v5",
            ProtocolVersion::V6 => "6/v6-beta",
        }
    }

    /// Returns true if the version is in development: each frame must carry `USE_BETA`.
    #[inline]
    pub const fn is_beta(self) -> bool {
        matches!(self, ProtocolVersion::V6)
    }

    /// Returns true if frames travel in segments after STARTUP, and compression is that of
    /// segments.
    #[inline]
    pub const fn has_segments(self) -> bool {
        matches!(self, ProtocolVersion::V5 | ProtocolVersion::V6)
    }

    /// Version number of the frame that reports an unsupported version. Clients of v1 and v2 could
    /// not read another version than their own; all others get the current one.
    pub(crate) const fn reply_number(number: u8) -> u8 {
        match number {
            1..=6 => number,
            _ => ProtocolVersion::CURRENT.number(),
        }
    }
}

impl fmt::Display for ProtocolVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Parameters that a connection agreed on and that change the shape of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// The version of every frame.
    pub version: ProtocolVersion,
    /// `SCYLLA_USE_METADATA_ID`: v4 carries result metadata ids as v5 does.
    pub metadata_id: bool,
    /// `SCYLLA_LWT_ADD_METADATA_MARK`: prepared metadata marks conditional statements.
    pub lwt_mark: bool,
}

impl Negotiated {
    /// Without extensions.
    pub const fn plain(version: ProtocolVersion) -> Negotiated {
        Negotiated { version, metadata_id: false, lwt_mark: false }
    }

    /// Returns true if EXECUTE, PREPARED and changed ROWS carry a result metadata id.
    #[inline]
    pub const fn has_metadata_id(self) -> bool {
        self.metadata_id || self.version.has_segments()
    }
}
