//! Bytes in and out, once for the whole workspace.
//!
//! Owns: the bounds- and overflow-checked [`Reader`], the [`Writer`] trait over `Vec<u8>`, Cassandra's variable-length
//! integers, the checksums and hashes that formats of Cassandra name, the envelope of small durable files, and the four compressors of its SSTables and of
//! the native protocol. Never: IO, clocks, formats of whole files or messages (those live with their owners).
//!
//! INV-codec-1: no function panics on any input bytes. INV-codec-2: nothing is allocated on the word of a length
//! field before the bytes, or the cap of the caller, bear it out.
//!
//! Reading order: `reader`, `writer`, `vint`, `murmur`, `checksum`, `small_file`, `compression`, `lz4_encode`, `lz4_high`.

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

pub mod checksum;
pub mod compression;
pub mod fuzz;
mod lz4_encode;
mod lz4_high;
pub mod murmur;
pub mod reader;
pub mod small_file;
pub mod vint;
pub mod writer;

pub use checksum::{adler32, crc24, crc32, crc32_segment_payload, xxh3_64};
pub use compression::{Algorithm, CompressionError, Compressor};
pub use murmur::{
    BloomCapacity, BloomHash, KeyHash, hash_key, murmur3_x64_128, signed_tail, token_of,
};
pub use reader::{DecodeError, DecodeErrorKind, Reader};
pub use small_file::{SmallFileDefect, SmallForm, is_small_file, open_text, seal_text};
pub use vint::{vint_signed_len, vint_unsigned_len};
pub use writer::Writer;
