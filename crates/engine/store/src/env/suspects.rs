//! The queue of files that may be damaged: the reader that meets one enqueues its path, background verification dequeues it.

use std::cell::RefCell;

use rt::sync::Notify;

use crate::env::Env;
use crate::error::StoreError;

/// Suspects at a time; the rest is met again.
const SUSPECTS_MAX: usize = 64;

/// Paths of components that were found corrupt.
#[derive(Default)]
pub(crate) struct Suspects {
    paths: RefCell<Vec<String>>,
    /// There are suspects, or something to do for damaged files.
    pub(crate) changed: Notify,
}

impl Suspects {
    #[cold]
    fn add(&self, path: &str) {
        let mut paths = self.paths.borrow_mut();
        if paths.len() < SUSPECTS_MAX && !paths.iter().any(|known| known == path) {
            paths.push(path.to_owned());
            self.changed.notify_one();
        }
    }

    /// Takes all of them.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.paths.borrow_mut())
    }
}

impl Env {
    /// Enqueues a file that a reader found corrupt; background verification checks it soon.
    #[cold]
    pub(crate) fn suspect(&self, path: &str) {
        self.suspects.add(path);
    }

    /// Enqueues the file named by an error of a read on this shard.
    #[cold]
    pub(crate) fn met(&self, error: StoreError) -> StoreError {
        if let StoreError::Corrupt { file, .. } = &error {
            self.suspect(file);
        }
        error
    }
}
