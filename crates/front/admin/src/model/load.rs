//! Facts about the target table for `helenus sstable load`.

use serde::{Deserialize, Serialize};

/// Longest body of `POST /api/v1/load`, bytes: a row that is larger is not loaded.
pub const LOAD_BYTES_MAX: usize = 32 << 20;
/// Most mutations of one body.
pub const LOAD_MUTATIONS_MAX: usize = 2048;

/// Answer to `GET /api/v1/load`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadTarget {
    /// The table as in the metadata log (`docs/formats/metalog.md`).
    pub definition: Vec<u8>,
}
