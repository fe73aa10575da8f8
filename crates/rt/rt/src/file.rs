//! File handles of both worlds.

use crate::env::Env;
use crate::file_keys::FileKeys;
use crate::handle::Rt;
use at_rest::KeyRing;
use rt_native::Buf;
use std::sync::Arc;
use stdx::{IoError, IoErrorKind};

pub use rt_native::OpenOptions;
pub use rt_native::fs::{DirEntry, DiskSpace, Metadata};

/// The file system of this node, with the keys that its files are encrypted with. Paths are absolute or
/// relative to the node's work directory.
#[derive(Clone)]
pub struct Fs {
    env: Env,
    keys: FileKeys,
}

/// An exclusive lock between processes, held until dropped.
pub struct FileLock {
    _inner: AnyLock,
}

enum AnyLock {
    Native { _lock: rt_native::fs::FileLock },
    Sim { _lock: rt_sim::FileLock },
}

/// An open file of this shard. Clones share it; it is closed with the last one.
#[derive(Clone)]
pub struct File {
    inner: AnyFile,
}

#[derive(Clone)]
enum AnyFile {
    Native(rt_native::File),
    Sim(rt_sim::File),
}

macro_rules! both {
    ($self:ident, $env:ident => $native:expr, $sim:expr) => {
        match &$self.env {
            Env::Native($env) => $native.await,
            Env::Sim($env) => $sim.await,
        }
    };
}

impl Rt {
    /// The file system.
    pub fn fs(&self) -> Fs {
        Fs { env: self.inner.env.clone(), keys: self.inner.file_keys.clone() }
    }
}

impl Rt {
    /// Sets the keys of the key file of this shard. Every [`Fs`] of it has them from now on, those that were
    /// created before too.
    pub fn set_file_keys(&self, keys: Option<Arc<KeyRing>>) {
        self.inner.file_keys.set_ring(keys);
    }
}

impl Fs {
    /// The keys of encryption at rest of this shard.
    pub fn keys(&self) -> &FileKeys {
        &self.keys
    }

    /// Fills `out` with random bytes, natively from a cryptographic generator seeded by the system.
    pub fn random_fill(&self, out: &mut [u8]) {
        self.env.random_fill(out);
    }

    /// Opens a file. `options.direct` is a wish: see [`File::is_direct`].
    pub async fn open(&self, path: &str, options: OpenOptions) -> Result<File, IoError> {
        let inner = match &self.env {
            Env::Native(env) => AnyFile::Native(rt_native::File::open(env, path, options).await?),
            Env::Sim(env) => {
                let OpenOptions {
                    read,
                    write,
                    create,
                    create_new,
                    truncate,
                    direct,
                    offload_writes,
                } = options;
                let options = rt_sim::OpenOptions {
                    read,
                    write,
                    create,
                    create_new,
                    truncate,
                    direct,
                    offload_writes,
                };
                AnyFile::Sim(env.open(path, options).await?)
            }
        };
        Ok(File { inner })
    }

    /// Makes a directory and its missing parents.
    pub async fn create_dir_all(&self, path: &str) -> Result<(), IoError> {
        both!(self, env => rt_native::fs::create_dir_all(env, path), env.create_dir_all(path))
    }

    /// Makes a directory and its missing parents, and syncs the entry of each in its parent: the
    /// name of a synced file is lost in a power cut when the name of its directory is.
    ///
    /// # Errors
    /// A directory cannot be made or synced. Parents that this process may not open are passed
    /// over: they were there before.
    pub async fn create_dir_durably(&self, path: &str) -> Result<(), IoError> {
        self.create_dir_all(path).await?;
        let mut path = path.trim_end_matches('/');
        loop {
            let parent = match path.rsplit_once('/') {
                Some(("", _)) => "/",
                Some((parent, _)) => parent,
                None => ".",
            };
            match self.sync_dir(parent).await {
                Err(error) if error.kind != IoErrorKind::PermissionDenied => return Err(error),
                _ => {}
            }
            if parent == "." || parent == "/" {
                return Ok(());
            }
            path = parent;
        }
    }

    /// The entries of a directory, ordered by name.
    pub async fn read_dir(&self, path: &str) -> Result<Vec<DirEntry>, IoError> {
        match &self.env {
            Env::Native(env) => rt_native::fs::read_dir(env, path).await,
            Env::Sim(env) => {
                let entries = env.read_dir(path).await?;
                let entry =
                    |(name, is_dir, len, modified)| DirEntry { name, is_dir, len, modified };
                Ok(entries.into_iter().map(entry).collect())
            }
        }
    }

    /// Renames, replacing a file at `to`. Durable after [`Fs::sync_dir`] of the directory.
    pub async fn rename(&self, from: &str, to: &str) -> Result<(), IoError> {
        both!(self, env => rt_native::fs::rename(env, from, to), env.rename(from, to))
    }

    /// Removes a file.
    pub async fn remove_file(&self, path: &str) -> Result<(), IoError> {
        both!(self, env => rt_native::fs::remove_file(env, path), env.remove_file(path))
    }

    /// Removes a directory with all it holds.
    pub async fn remove_dir_all(&self, path: &str) -> Result<(), IoError> {
        both!(self, env => rt_native::fs::remove_dir_all(env, path), env.remove_dir_all(path))
    }

    /// Gives the file at `from` a second name.
    pub async fn hard_link(&self, from: &str, to: &str) -> Result<(), IoError> {
        both!(self, env => rt_native::fs::hard_link(env, from, to), env.hard_link(from, to))
    }

    /// Makes a directory's entries durable.
    pub async fn sync_dir(&self, path: &str) -> Result<(), IoError> {
        both!(self, env => rt_native::fs::sync_dir(env, path), env.sync_dir(path))
    }

    /// Length and kind.
    pub async fn metadata(&self, path: &str) -> Result<Metadata, IoError> {
        match &self.env {
            Env::Native(env) => rt_native::fs::metadata(env, path).await,
            Env::Sim(env) => {
                let (is_dir, len) = env.metadata(path).await?;
                Ok(Metadata { len, is_dir })
            }
        }
    }

    /// Returns true if a file or directory exists at `path`.
    pub async fn exists(&self, path: &str) -> Result<bool, IoError> {
        match self.metadata(path).await {
            Ok(_) => Ok(true),
            Err(e) if e.kind == IoErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Bytes that can still be written on the file system of `path`.
    pub async fn free_bytes(&self, path: &str) -> Result<u64, IoError> {
        both!(self, env => rt_native::fs::free_bytes(env, path), env.free_bytes(path))
    }

    /// The room of the file system of `path`; to tell file systems apart and to learn their sizes.
    pub async fn disk_space(&self, path: &str) -> Result<DiskSpace, IoError> {
        match &self.env {
            Env::Native(env) => rt_native::fs::disk_space(env, path).await,
            Env::Sim(env) => {
                let (total_bytes, free_bytes) = env.disk_space(path).await?;
                // A simulated node has one disk.
                Ok(DiskSpace { total_bytes, free_bytes, device: 0 })
            }
        }
    }

    /// The whole content of a file of at most `max` bytes; a larger one is an error.
    pub async fn read(&self, path: &str, max: usize) -> Result<Vec<u8>, IoError> {
        let options = OpenOptions { read: true, ..OpenOptions::default() };
        let file = self.open(path, options).await?;
        let len = file.len().await?;
        let len = usize::try_from(len).ok().filter(|len| *len <= max).ok_or_else(|| IoError {
            kind: IoErrorKind::Device,
            operation: "read",
            path: path.to_string(),
            detail: format!("{len} bytes long, at most {max} are read"),
        })?;
        let (buf, result) = file.read_at(Buf::new(), 0, len).await;
        result?;
        Ok(buf.to_vec())
    }

    /// Replaces the file at `path` so that after a power cut it is the old or the new one as a
    /// whole:
    /// 1 write `path.tmp`, 2 sync it, 3 rename, 4 sync the directory.
    pub async fn write_atomic(&self, path: &str, content: Vec<u8>) -> Result<(), IoError> {
        let temporary = format!("{path}.tmp");
        let options =
            OpenOptions { write: true, create: true, truncate: true, ..OpenOptions::default() };
        let file = self.open(&temporary, options).await?;
        let (_, written) = file.write_at(Buf::from(content), 0).await;
        written?;
        file.sync_data().await?;
        drop(file);
        self.rename(&temporary, path).await?;
        self.sync_dir(parent(path)).await
    }

    /// Acquires the lock file at `path`; creates it if missing.
    ///
    /// # Errors
    /// `AlreadyExists` when it is held already.
    pub async fn lock_exclusive(&self, path: &str) -> Result<FileLock, IoError> {
        let inner = match &self.env {
            Env::Native(env) => {
                AnyLock::Native { _lock: rt_native::fs::lock_exclusive(env, path).await? }
            }
            Env::Sim(env) => AnyLock::Sim { _lock: env.lock_exclusive(path).await? },
        };
        Ok(FileLock { _inner: inner })
    }
}

/// The directory of `path`; the work directory for a bare name.
fn parent(path: &str) -> &str {
    match path.rsplit_once('/') {
        Some(("", _)) => "/",
        Some((parent, _)) => parent,
        None => ".",
    }
}

impl File {
    /// Reads `len` bytes at `offset` into `buf`, replacing its content; fewer only at end of file.
    pub async fn read_at(
        &self,
        buf: Buf,
        offset: u64,
        len: usize,
    ) -> (Buf, Result<usize, IoError>) {
        match &self.inner {
            AnyFile::Native(f) => f.read_at(buf, offset, len).await,
            AnyFile::Sim(f) => {
                let mut buf = buf;
                buf.clear();
                let result = f.read_at(offset, len, |bytes| buf.extend_from_slice(bytes)).await;
                (buf, result)
            }
        }
    }

    /// Reads exactly `len` bytes at `offset`.
    ///
    /// # Errors
    /// `UnexpectedEof` when the file ends before.
    pub async fn read_exact_at(&self, offset: u64, len: usize) -> Result<Buf, IoError> {
        let (buf, result) = self.read_at(Buf::new(), offset, len).await;
        let got = result?;
        if got < len {
            return Err(IoError {
                kind: IoErrorKind::UnexpectedEof,
                operation: "read",
                path: self.path().to_string(),
                detail: format!("{got} of {len} bytes at offset {offset}"),
            });
        }
        Ok(buf)
    }

    /// Writes all of `buf` at `offset`. Buffered writes of up to 256 KiB never wait, unless the file was opened with
    /// `offload_writes`.
    pub async fn write_at(&self, buf: Buf, offset: u64) -> (Buf, Result<(), IoError>) {
        match &self.inner {
            AnyFile::Native(f) => f.write_at(buf, offset).await,
            AnyFile::Sim(f) => {
                let result = f.write_at(&buf, offset).await;
                (buf, result)
            }
        }
    }

    /// Makes content and length durable.
    ///
    /// # Errors
    /// Always `Device`: the data may be lost, trying again proves nothing.
    pub async fn sync_data(&self) -> Result<(), IoError> {
        match &self.inner {
            AnyFile::Native(f) => f.sync_data().await,
            AnyFile::Sim(f) => f.sync_data().await,
        }
    }

    /// Length in bytes now.
    #[expect(clippy::len_without_is_empty, reason = "a system call that can fail")]
    pub async fn len(&self) -> Result<u64, IoError> {
        match &self.inner {
            AnyFile::Native(f) => f.len().await,
            AnyFile::Sim(f) => f.len().await,
        }
    }

    /// Cuts or extends (with zeros) to `len` bytes.
    pub async fn set_len(&self, len: u64) -> Result<(), IoError> {
        match &self.inner {
            AnyFile::Native(f) => f.set_len(len).await,
            AnyFile::Sim(f) => f.set_len(len).await,
        }
    }

    /// Returns true if the page cache is bypassed.
    pub fn is_direct(&self) -> bool {
        match &self.inner {
            AnyFile::Native(f) => f.is_direct(),
            AnyFile::Sim(f) => f.is_direct(),
        }
    }

    /// The path it was opened with.
    pub fn path(&self) -> &str {
        match &self.inner {
            AnyFile::Native(f) => f.path(),
            AnyFile::Sim(f) => f.path(),
        }
    }
}
