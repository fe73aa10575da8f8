//! Operating-system errors as [`IoError`].

use stdx::{IoError, IoErrorKind};

/// Wraps an OS error with the operation and its path.
pub fn io_error(operation: &'static str, path: &str, error: &std::io::Error) -> IoError {
    IoError { kind: kind(error), operation, path: path.to_string(), detail: error.to_string() }
}

/// Like [`io_error`], for a raw error number.
pub(crate) fn errno_error(operation: &'static str, path: &str, errno: i32) -> IoError {
    io_error(operation, path, &std::io::Error::from_raw_os_error(errno))
}

/// A failed sync is always a device error: the kernel may have dropped the dirty pages, so trying
/// again would report success for data that is lost.
pub(crate) fn sync_error(path: &str, error: &std::io::Error) -> IoError {
    IoError { kind: IoErrorKind::Device, ..io_error("fsync", path, error) }
}

fn kind(error: &std::io::Error) -> IoErrorKind {
    use std::io::ErrorKind as E;
    match error.kind() {
        E::NotFound => IoErrorKind::NotFound,
        E::AlreadyExists => IoErrorKind::AlreadyExists,
        E::StorageFull | E::QuotaExceeded | E::FileTooLarge => IoErrorKind::NoSpace,
        E::PermissionDenied | E::ReadOnlyFilesystem => IoErrorKind::PermissionDenied,
        E::ConnectionReset
        | E::ConnectionAborted
        | E::BrokenPipe
        | E::NotConnected
        | E::HostUnreachable
        | E::NetworkUnreachable
        | E::NetworkDown
        | E::TimedOut => IoErrorKind::Disconnected,
        E::ConnectionRefused => IoErrorKind::Refused,
        E::AddrInUse => IoErrorKind::AddrInUse,
        E::UnexpectedEof => IoErrorKind::UnexpectedEof,
        _ => IoErrorKind::Device,
    }
}
