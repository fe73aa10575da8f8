//! Open files: owned buffers, inline page-cache access, io_uring or threads for the rest.

use crate::buf::{ALIGN, Buf};
use crate::descriptor::Descriptor;
use crate::error::{errno_error, io_error, sync_error};
use crate::shard::Env;
use crate::uring::What;
use rustix::io::ReadWriteFlags;
use std::cell::OnceCell;
use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::rc::Rc;
use stdx::IoError;

/// Buffered writes up to this size are done on the shard thread: they only copy into the page
/// cache.
pub const INLINE_WRITE_BYTES_MAX: usize = 256 * 1024;

/// `O_DIRECT` of this platform.
const O_DIRECT: i32 = rustix::fs::OFlags::DIRECT.bits() as i32;

/// How to open a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// Make it when it does not exist.
    pub create: bool,
    /// Make it, and fail when it exists.
    pub create_new: bool,
    /// Empty it.
    pub truncate: bool,
    /// Wish to bypass the page cache; falls back where the file system refuses.
    pub direct: bool,
    /// Small writes leave the shard's thread too, which a disk that hangs would stall.
    pub offload_writes: bool,
}

/// An open file of one shard. Clones share the descriptor, which is closed with the last one.
#[derive(Clone)]
pub struct File {
    inner: Rc<Inner>,
}

struct Inner {
    env: Env,
    fd: Rc<Descriptor>,
    /// A second, buffered descriptor for unaligned access to a direct file.
    buffered: OnceCell<Rc<Descriptor>>,
    options: OpenOptions,
    direct: bool,
    path: String,
}

impl File {
    /// Opens `path` on a pool thread.
    pub async fn open(env: &Env, path: &str, options: OpenOptions) -> Result<File, IoError> {
        let full = env.resolve(path);
        let opened = env
            .pool()
            .run(move || open_blocking(&full, options))
            .await
            .unwrap_or_else(|| Err(std::io::Error::other("io thread lost")));
        let (fd, direct) = opened.map_err(|e| io_error("open", path, &e))?;
        let inner = Inner {
            env: env.clone(),
            fd: Rc::new(Descriptor::new(fd, env.pool())),
            buffered: OnceCell::new(),
            options,
            direct,
            path: path.to_string(),
        };
        Ok(File { inner: Rc::new(inner) })
    }

    /// Reads `len` bytes at `offset` into `buf` (replacing its content); fewer only at end of file.
    pub async fn read_at(
        &self,
        mut buf: Buf,
        offset: u64,
        len: usize,
    ) -> (Buf, Result<usize, IoError>) {
        buf.clear();
        if self.inner.direct && !buf.is_aligned() {
            buf = Buf::with_capacity(len);
        }
        buf.resize_keeping(len);
        let (mut buf, result) = if !self.inner.direct {
            self.read_buffered(buf, offset, len).await
        } else if aligned(offset, len) {
            self.read_rest(buf, offset, 0, len).await
        } else {
            self.read_direct_unaligned(buf, offset, len).await
        };
        let got = *result.as_ref().unwrap_or(&0);
        stdx::invariant!(got <= len && got <= buf.len(), "read of {len} bytes returned {got}");
        buf.resize_keeping(got);
        (buf, result.map_err(|e| io_error("read", &self.inner.path, &e)))
    }

    /// Writes all of `buf` at `offset`. Small buffered writes never wait, unless the file offloads them.
    pub async fn write_at(&self, buf: Buf, offset: u64) -> (Buf, Result<(), IoError>) {
        let inner = &self.inner;
        let direct = inner.direct && aligned(offset, buf.len()) && buf.is_aligned();
        let is_small = buf.len() <= INLINE_WRITE_BYTES_MAX && !inner.options.offload_writes;
        if !direct && is_small {
            let result = inner.buffered_fd().and_then(|fd| write_blocking(&fd, &buf, offset));
            return (buf, result.map_err(|e| io_error("write", &inner.path, &e)));
        }
        let fd = if direct { Ok(Rc::clone(&inner.fd)) } else { inner.buffered_fd() };
        let (buf, result) = match fd {
            Ok(fd) => self.write_away(&fd, buf, offset).await,
            Err(e) => (buf, Err(e)),
        };
        (buf, result.map_err(|e| io_error("write", &inner.path, &e)))
    }

    /// Makes content and length durable. A failure is always `IoErrorKind::Device`.
    pub async fn sync_data(&self) -> Result<(), IoError> {
        let result = match self.inner.env.uring() {
            Some(ring) => {
                let (_, n) = ring.submit(&self.inner.fd, Buf::new(), What::SyncData).await;
                check(n).map(|_| ())
            }
            None => {
                let fd = self.duplicate();
                let job = move || -> std::io::Result<()> { Ok(rustix::fs::fdatasync(&fd?)?) };
                flatten(self.inner.env.pool().run(job).await)
            }
        };
        result.map_err(|e| sync_error(&self.inner.path, &e))
    }

    /// Length in bytes now.
    #[expect(clippy::len_without_is_empty, reason = "a system call that can fail")]
    pub async fn len(&self) -> Result<u64, IoError> {
        let stat = rustix::fs::fstat(&*self.inner.fd).map_err(|e| self.error("stat", e))?;
        Ok(u64::try_from(stat.st_size).unwrap_or(0))
    }

    /// Cuts or extends (with zeros) to `len` bytes.
    pub async fn set_len(&self, len: u64) -> Result<(), IoError> {
        let fd = self.duplicate();
        let job = move || -> std::io::Result<()> { Ok(rustix::fs::ftruncate(&fd?, len)?) };
        flatten(self.inner.env.pool().run(job).await)
            .map_err(|e| io_error("truncate", &self.inner.path, &e))
    }

    /// Returns true if the page cache is bypassed.
    pub fn is_direct(&self) -> bool {
        self.inner.direct
    }

    /// The path it was opened with.
    pub fn path(&self) -> &str {
        &self.inner.path
    }

    /// Copies bytes of the page cache synchronously; only the rest waits for the disk.
    async fn read_buffered(
        &self,
        mut buf: Buf,
        offset: u64,
        len: usize,
    ) -> (Buf, std::io::Result<usize>) {
        let mut done = 0;
        while done < len {
            let mut bytes = [IoSliceMut::new(&mut buf[done..])];
            let at = offset.saturating_add(done as u64);
            match rustix::io::preadv2(&*self.inner.fd, &mut bytes, at, ReadWriteFlags::NOWAIT) {
                // Zero is confirmed by a waiting read: some file systems give it for "not cached".
                Ok(0) | Err(_) => break,
                Ok(n) => done += n,
            }
        }
        stdx::invariant!(done <= len, "read of {len} bytes returned {done}");
        if done == len {
            return (buf, Ok(len));
        }
        self.read_rest(buf, offset, done, len).await
    }

    async fn read_rest(
        &self,
        mut buf: Buf,
        offset: u64,
        mut done: usize,
        len: usize,
    ) -> (Buf, std::io::Result<usize>) {
        while done < len {
            let at = offset.saturating_add(done as u64);
            let what = What::Read { at: done, len: len - done, offset: at };
            let (back, result) = self.away(&self.inner.fd, buf, what).await;
            buf = back;
            match result {
                Ok(0) => break,
                Ok(n) => {
                    stdx::invariant!(n <= len - done, "read of {} bytes returned {n}", len - done);
                    done += n;
                    if done < len {
                        stdx::reached!("native-read-in-pieces");
                    }
                }
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return (buf, Err(e)),
            }
            // A direct read that ends off the grid has met the end of the file.
            if self.inner.direct && !done.is_multiple_of(ALIGN) {
                break;
            }
        }
        (buf, Ok(done))
    }

    async fn read_direct_unaligned(
        &self,
        mut buf: Buf,
        offset: u64,
        len: usize,
    ) -> (Buf, std::io::Result<usize>) {
        let first = offset - offset % ALIGN as u64;
        let skip = (offset - first) as usize;
        let whole = (skip + len).next_multiple_of(ALIGN);
        let mut bounce = Buf::with_capacity(whole);
        bounce.resize_keeping(whole);
        let (bounce, result) = self.read_rest(bounce, first, 0, whole).await;
        let got = result.map(|n| n.saturating_sub(skip).min(len));
        if let Ok(n) = got {
            buf[..n].copy_from_slice(&bounce[skip..skip + n]);
        }
        (buf, got)
    }

    async fn write_away(
        &self,
        fd: &Rc<Descriptor>,
        mut buf: Buf,
        offset: u64,
    ) -> (Buf, std::io::Result<()>) {
        let mut done = 0;
        let len = buf.len();
        while done < buf.len() {
            let at = offset.saturating_add(done as u64);
            let what = What::Write { at: done, len: buf.len() - done, offset: at };
            let (back, result) = self.away(fd, buf, what).await;
            buf = back;
            match result {
                Ok(0) => return (buf, Err(std::io::ErrorKind::WriteZero.into())),
                Ok(n) => {
                    // A buffer that came back shorter would end the loop, and the rest would not be written.
                    stdx::invariant!(
                        buf.len() == len && n <= len - done,
                        "INV-native-1: write of {} bytes at {done} of {len} returned {n}, the buffer has {}",
                        len - done,
                        buf.len()
                    );
                    done += n;
                    if done < len {
                        stdx::reached!("native-write-in-pieces");
                    }
                }
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return (buf, Err(e)),
            }
        }
        (buf, Ok(()))
    }

    /// One read or write off the shard thread: by the ring, or by a pool thread.
    async fn away(
        &self,
        fd: &Rc<Descriptor>,
        buf: Buf,
        what: What,
    ) -> (Buf, std::io::Result<usize>) {
        if let Some(ring) = self.inner.env.uring() {
            let (buf, n) = ring.submit(fd, buf, what).await;
            return (buf, check(n));
        }
        // The pool gets its own descriptor, so it stays open even if this future is dropped.
        let fd = rustix::io::fcntl_dupfd_cloexec(&**fd, 0);
        let job = move || {
            let mut buf = buf;
            let result = fd.map_err(std::io::Error::from).and_then(|fd| match what {
                What::Read { at, len, offset } => {
                    Ok(rustix::io::pread(&fd, &mut buf[at..at + len], offset)?)
                }
                What::Write { at, len, offset } => {
                    Ok(rustix::io::pwrite(&fd, &buf[at..at + len], offset)?)
                }
                What::SyncData => Ok(rustix::fs::fdatasync(&fd).map(|()| 0)?),
            });
            (buf, result)
        };
        match self.inner.env.pool().run(job).await {
            Some(done) => done,
            None => (Buf::new(), Err(std::io::Error::other("io thread lost"))),
        }
    }

    fn duplicate(&self) -> std::io::Result<OwnedFd> {
        Ok(rustix::io::fcntl_dupfd_cloexec(&*self.inner.fd, 0)?)
    }

    fn error(&self, operation: &'static str, e: rustix::io::Errno) -> IoError {
        errno_error(operation, &self.inner.path, e.raw_os_error())
    }
}

impl Inner {
    /// Returns a descriptor that supports unaligned access.
    fn buffered_fd(&self) -> std::io::Result<Rc<Descriptor>> {
        if !self.direct {
            return Ok(Rc::clone(&self.fd));
        }
        if let Some(fd) = self.buffered.get() {
            return Ok(Rc::clone(fd));
        }
        // Through /proc, because the file may have been renamed since.
        let link = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
        let file = std::fs::OpenOptions::new()
            .read(self.options.read)
            .write(self.options.write)
            .open(link)?;
        let fd = || Rc::new(Descriptor::new(OwnedFd::from(file), self.env.pool()));
        Ok(Rc::clone(self.buffered.get_or_init(fd)))
    }
}

fn open_blocking(path: &str, options: OpenOptions) -> std::io::Result<(OwnedFd, bool)> {
    let mut open = std::fs::OpenOptions::new();
    open.read(options.read)
        .write(options.write)
        .create(options.create)
        .create_new(options.create_new)
        .truncate(options.truncate);
    if options.direct {
        let mut direct = open.clone();
        match direct.custom_flags(O_DIRECT).open(path) {
            Ok(file) => return Ok((OwnedFd::from(file), true)),
            // tmpfs and others refuse the flag with EINVAL, some only after creating the file.
            Err(e) if e.kind() == std::io::ErrorKind::InvalidInput => {
                if options.create_new {
                    open.create_new(false).create(true);
                }
            }
            Err(e) => return Err(e),
        }
    }
    Ok((OwnedFd::from(open.open(path)?), false))
}

fn write_blocking(fd: &Descriptor, bytes: &[u8], offset: u64) -> std::io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        match rustix::io::pwrite(fd, &bytes[done..], offset.saturating_add(done as u64)) {
            Ok(0) => return Err(std::io::ErrorKind::WriteZero.into()),
            Ok(n) => done += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

fn aligned(offset: u64, len: usize) -> bool {
    offset.is_multiple_of(ALIGN as u64) && len.is_multiple_of(ALIGN)
}

fn check(result: i32) -> std::io::Result<usize> {
    usize::try_from(result).map_err(|_| std::io::Error::from_raw_os_error(result.wrapping_neg()))
}

fn flatten<T>(result: Option<std::io::Result<T>>) -> std::io::Result<T> {
    result.unwrap_or_else(|| Err(std::io::Error::other("io thread lost")))
}
