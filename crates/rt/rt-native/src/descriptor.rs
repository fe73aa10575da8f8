//! File descriptor that is closed off the shard thread. The last close of a removed file frees its
//! blocks, which takes a file system milliseconds for a large file.

use crate::pool::Pool;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

pub(crate) struct Descriptor {
    /// `None` while it is dropped only.
    fd: Option<OwnedFd>,
    pool: Arc<Pool>,
}

impl Descriptor {
    pub(crate) fn new(fd: OwnedFd, pool: &Arc<Pool>) -> Descriptor {
        Descriptor { fd: Some(fd), pool: Arc::clone(pool) }
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.fd {
            Some(fd) => fd.as_fd(),
            None => stdx::invariant::broken(format_args!("a descriptor is used that was dropped")),
        }
    }
}

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // Where no thread can be started it is closed here.
        if let Some(fd) = self.fd.take() {
            drop(self.pool.run(move || drop(fd)));
        }
    }
}
