use codec::DecodeError;

/// Error of writing or reading a component of an index.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    /// The bytes cannot be decoded.
    #[error("{0}")]
    Decode(#[from] DecodeError),
    /// A checksum does not match.
    #[error("{what} at byte {offset} has the checksum {found:08x} instead of {expected:08x}")]
    Checksum {
        /// The covered bytes.
        what: &'static str,
        /// Offset of the covered bytes in the component.
        offset: u64,
        /// Checksum stored.
        expected: u32,
        /// Checksum of the actual bytes.
        found: u32,
    },
    /// The bytes are well-formed but their contents are impossible.
    #[error("{what} at byte {offset}")]
    Invalid {
        /// The defect.
        what: &'static str,
        /// Offset of the block with the defect.
        offset: u64,
    },
    /// A component of a later version.
    #[error("index component of version {version} is not supported")]
    Version {
        /// Version found.
        version: u16,
    },
    /// The caller gave a writer unacceptable input.
    #[error("index writer: {what}")]
    Input {
        /// The rule that was broken.
        what: &'static str,
    },
}
