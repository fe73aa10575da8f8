//! Directories, names and locks. Every call runs on a pool thread, because any of them can block.

use crate::error::{io_error, sync_error};
use crate::shard::Env;
use std::os::fd::OwnedFd;
use stdx::{IoError, IoErrorKind, WallMicros};

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirEntry {
    /// Last part of the path.
    pub name: String,
    /// True for a directory.
    pub is_dir: bool,
    /// Length in bytes; 0 for a directory.
    pub len: u64,
    /// Time of the last change of its content, by the clock of the file system; 0 if not available.
    pub modified: WallMicros,
}

/// Attributes of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Length in bytes; 0 for a directory.
    pub len: u64,
    /// True for a directory.
    pub is_dir: bool,
}

/// The room of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSpace {
    /// Total bytes, some of which may be reserved for root.
    pub total_bytes: u64,
    /// Bytes that a user other than root can still write.
    pub free_bytes: u64,
    /// Device number: the same for all paths on this file system; not stable between runs.
    pub device: u64,
}

/// An exclusive advisory lock, held until dropped.
pub struct FileLock {
    _fd: OwnedFd,
}

async fn run<T: Send + 'static>(
    env: &Env,
    operation: &'static str,
    path: &str,
    f: impl FnOnce(&str) -> std::io::Result<T> + Send + 'static,
) -> Result<T, IoError> {
    let full = env.resolve(path);
    env.pool()
        .run(move || f(&full))
        .await
        .unwrap_or_else(|| Err(std::io::Error::other("io thread lost")))
        .map_err(|e| io_error(operation, path, &e))
}

/// Makes a directory and its missing parents.
pub async fn create_dir_all(env: &Env, path: &str) -> Result<(), IoError> {
    run(env, "mkdir", path, |p| std::fs::create_dir_all(p)).await
}

/// The entries, ordered by name. Names that are not UTF-8 are left out: none of ours is.
pub async fn read_dir(env: &Env, path: &str) -> Result<Vec<DirEntry>, IoError> {
    run(env, "readdir", path, |p| {
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(p)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            // An entry that went away meanwhile is not an error of the listing.
            let Ok(meta) = std::fs::metadata(entry.path()) else { continue };
            let is_dir = meta.is_dir();
            let len = if is_dir { 0 } else { meta.len() };
            entries.push(DirEntry { name, is_dir, len, modified: modified(&meta) });
        }
        entries.sort();
        Ok(entries)
    })
    .await
}

fn modified(meta: &std::fs::Metadata) -> WallMicros {
    let since = meta.modified().ok().and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
    let micros = since.and_then(|since| i64::try_from(since.as_micros()).ok());
    WallMicros(micros.unwrap_or(0))
}

/// Renames, replacing a file at `to`.
pub async fn rename(env: &Env, from: &str, to: &str) -> Result<(), IoError> {
    let to = env.resolve(to);
    run(env, "rename", from, move |p| std::fs::rename(p, to)).await
}

/// Removes a file.
pub async fn remove_file(env: &Env, path: &str) -> Result<(), IoError> {
    run(env, "unlink", path, |p| std::fs::remove_file(p)).await
}

/// Removes a directory with all it holds.
pub async fn remove_dir_all(env: &Env, path: &str) -> Result<(), IoError> {
    run(env, "rmdir", path, |p| std::fs::remove_dir_all(p)).await
}

/// Gives the file at `from` a second name.
pub async fn hard_link(env: &Env, from: &str, to: &str) -> Result<(), IoError> {
    let to = env.resolve(to);
    run(env, "link", from, move |p| std::fs::hard_link(p, to)).await
}

/// Makes the directory's entries durable.
pub async fn sync_dir(env: &Env, path: &str) -> Result<(), IoError> {
    let full = env.resolve(path);
    let opened = env.pool().run(move || (|| std::fs::File::open(full)?.sync_all())()).await;
    opened.unwrap_or_else(|| Err(std::io::Error::other("io thread lost"))).map_err(|e| {
        match e.kind() {
            std::io::ErrorKind::NotFound => io_error("fsync", path, &e),
            _ => sync_error(path, &e),
        }
    })
}

/// Length and kind.
pub async fn metadata(env: &Env, path: &str) -> Result<Metadata, IoError> {
    run(env, "stat", path, |p| {
        let meta = std::fs::metadata(p)?;
        let is_dir = meta.is_dir();
        Ok(Metadata { len: if is_dir { 0 } else { meta.len() }, is_dir })
    })
    .await
}

/// Returns the bytes that a user other than root can still write on the file system of `path`.
pub async fn free_bytes(env: &Env, path: &str) -> Result<u64, IoError> {
    run(env, "statvfs", path, |p| {
        let stat = rustix::fs::statvfs(p)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    })
    .await
}

/// The room of the file system of `path`.
pub async fn disk_space(env: &Env, path: &str) -> Result<DiskSpace, IoError> {
    run(env, "statvfs", path, |p| {
        use std::os::unix::fs::MetadataExt;
        let stat = rustix::fs::statvfs(p)?;
        Ok(DiskSpace {
            total_bytes: stat.f_blocks.saturating_mul(stat.f_frsize),
            free_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
            device: std::fs::metadata(p)?.dev(),
        })
    })
    .await
}

/// Acquires the lock file at `path`; creates it if missing. `AlreadyExists` when it is held.
pub async fn lock_exclusive(env: &Env, path: &str) -> Result<FileLock, IoError> {
    let fd = run(env, "lock", path, |p| {
        let file = std::fs::OpenOptions::new().write(true).create(true).truncate(false).open(p)?;
        rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive)?;
        Ok(OwnedFd::from(file))
    })
    .await;
    match fd {
        Ok(fd) => Ok(FileLock { _fd: fd }),
        Err(e) if e.detail.contains(&would_block()) => Err(IoError {
            kind: IoErrorKind::AlreadyExists,
            detail: "held by another process".to_string(),
            ..e
        }),
        Err(e) => Err(e),
    }
}

fn would_block() -> String {
    std::io::Error::from(rustix::io::Errno::WOULDBLOCK).to_string()
}
