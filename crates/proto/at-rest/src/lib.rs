//! Encryption at rest: sealed files, the records of their keys, and key files.
//!
//! Owns: the bytes of a sealed file ([`block`]), the record that holds a wrapped data key ([`record`]), the keys of a
//! node ([`key_ring`], [`provided`]), the text of key files ([`key_file`]). Never: opens a file, asks for randomness,
//! sends a request.
//!
//! A *data key* is random and belongs to one file set, one hint file or one saved cache. It encrypts the blocks of
//! files, by way of a key of each file. It is stored only wrapped by a *named key*. A key file holds named keys. Other
//! providers never give theirs away: they make *wrapping keys*, which wrap data keys and are stored in each record as
//! the provider wrapped them. Another named key rewrites the record, not the file.
//!
//! Invariants: INV-at-rest-1: an opener returns only bytes that were sealed with its data key, under its name, at that
//! position of a file that ends where it did. INV-at-rest-2: no error, debug output or log line contains a key.
//!
//! Reading order: [`secret`], [`block`], [`append`], [`record`], [`key_ring`],
//! [`provided`], [`key_file`]. Formats: `docs/formats/encryption.md`.

#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    clippy::expect_used
)]
#![cfg_attr(
    test,
    allow(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        clippy::cast_possible_truncation,
        clippy::unwrap_used,
        clippy::expect_used
    )
)]

pub mod append;
pub mod base64;
pub mod block;
pub mod fuzz;
pub mod key_file;
pub mod key_ring;
pub mod provided;
pub mod record;
pub mod secret;
mod small;

pub use append::{RECORD_OVERHEAD_BYTES, RecordCipher};
pub use block::{
    BLOCK_BYTES, Opener, PAYLOAD_BYTES, Sealer, Span, TRAILER_BYTES, UnkeyedCheck, is_sealed,
    open_whole, physical_length, seal_whole,
};
pub use key_file::{
    KeyFile, KeyFileError, commit_log_line, commit_log_lines, generated_line, parse_keys,
};
pub use key_ring::{KeyRing, KeyUse, NamedKey, missing_key, new_salt};
pub use provided::{KeyAsk, KeySource, ProvidedKeys, WrappingKey};
pub use record::KeyRecord;
pub use secret::{DataKey, SALT_BYTES, Salt, Secret};
pub use small::{open_small, record_of_small, seal_small};

/// Why sealed bytes were not opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// Bytes differ from those that were written.
    #[error("{what} at byte {offset} of the encrypted file")]
    Damaged {
        /// The defect.
        what: &'static str,
        /// Offset in the file as stored.
        offset: u64,
    },
    /// A build that writes another version wrote it.
    #[error("version {0} of encrypted files is not supported by this build")]
    Version(u16),
    /// The record of the data key is damaged.
    #[error("the record of its encryption key is damaged: {0}")]
    Record(String),
    /// No known key opens the record.
    #[error(
        "it is encrypted with key \"{key}\" of {provider}, which this process does not have; {}",
        remedy(provider)
    )]
    MissingKey {
        /// Name of the provider.
        provider: String,
        /// Id of the named key.
        key: String,
    },
    /// The record is whole, and the key of that id does not open it.
    #[error(
        "key \"{key}\" of {provider} does not open it: another secret has that id, or the record was changed; restore \
         the key that the file was written with"
    )]
    WrongKey {
        /// Name of the provider.
        provider: String,
        /// Id of the named key.
        key: String,
    },
    /// Its provider did not answer, or refused.
    #[error("it needs key \"{key}\" of {provider}: {what}")]
    Provider {
        /// Name of the provider.
        provider: String,
        /// Id of the named key.
        key: String,
        /// Reason, from the provider or the connection to it.
        what: String,
    },
    /// No key is active.
    #[error("{0}")]
    NoActiveKey(String),
}

fn remedy(provider: &str) -> &'static str {
    match provider == key_file::PROVIDER {
        true => {
            "add that key to the key file that secret_key_file of user_info_encryption names (tools: --key-file). \
             For reading, enabled: false is enough"
        }
        false => "only a node with that host among its vault_hosts or kms_hosts can ask for it",
    }
}

impl SealError {
    /// Returns true if the bytes are damaged; false if they may be intact and this process cannot open them.
    pub fn is_damage(&self) -> bool {
        matches!(self, SealError::Damaged { .. } | SealError::Record(_))
    }

    /// Offset of the damage in the file as stored.
    pub fn offset(&self) -> u64 {
        match self {
            SealError::Damaged { offset, .. } => *offset,
            _ => 0,
        }
    }
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, SealError>;
