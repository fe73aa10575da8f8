//! The crate's error.

use stdx::IoError;

/// Why hints cannot be kept, or are not on the disk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HintsError {
    /// A setting that cannot be used.
    #[error("\"{name}\" cannot be used: {why}")]
    Setting {
        /// Its name in `cassandra.yaml`.
        name: &'static str,
        /// Description of the problem.
        why: &'static str,
    },
    /// The disk is full, or has less room than is kept free. The hints stay in memory, which is
    /// bounded, and are written when there is room again.
    #[error("no room for hints: {0}")]
    DiskFull(String),
    /// Reading or writing failed. Hints that were not synced stay in memory and are rewritten into
    /// another file.
    #[error("hints: {0}")]
    Io(#[from] IoError),
    /// [`crate::Hints::close`] was called.
    #[error("hints are closed")]
    Closed,
}
