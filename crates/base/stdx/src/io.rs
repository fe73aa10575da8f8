//! IO errors as plain values, so that layers without IO can carry and compare them.

use std::fmt;

/// Kind of a failed IO call, by the caller's possible reaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IoErrorKind {
    /// The file, directory or peer does not exist.
    NotFound,
    /// It exists already.
    AlreadyExists,
    /// The disk (or quota) is full: refuse writes, keep reads, try later.
    NoSpace,
    /// Not allowed.
    PermissionDenied,
    /// The other side closed or reset the connection.
    Disconnected,
    /// The other machine refused the connection: nothing listens at the address.
    Refused,
    /// The address is taken by another process.
    AddrInUse,
    /// Fewer bytes than asked for: the file is shorter than its metadata says.
    UnexpectedEof,
    /// The bytes differ from those written: a checksum or the format does not fit.
    Damaged,
    /// The node or the simulated process is stopping.
    Stopping,
    /// The device failed (EIO) or anything else; a failed fsync is always this.
    Device,
}

/// One failed IO call: what was tried, on what, how it failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IoError {
    /// Kind, by the caller's possible reaction.
    pub kind: IoErrorKind,
    /// The operation: `"open"`, `"read"`, `"fsync"` …
    pub operation: &'static str,
    /// The path or address it was tried on.
    pub path: String,
    /// The operating system's own words, or the simulator's.
    pub detail: String,
}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} failed: {}", self.operation, self.path, self.detail)
    }
}

impl std::error::Error for IoError {}
