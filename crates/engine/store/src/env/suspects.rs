//! The queue of files that may be damaged: whoever meets one notes its path, the background verification takes it.

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
    /// A file is said to be corrupt by whoever met it: it is looked at soon.
    #[cold]
    pub(crate) fn suspect(&self, path: &str) {
        self.suspects.add(path);
    }

    /// Notes what a read of this shard met, whoever asked for it.
    #[cold]
    pub(crate) fn met(&self, error: StoreError) -> StoreError {
        if let StoreError::Corrupt { file, .. } = &error {
            self.suspect(file);
        }
        error
    }
}
