//! State of refusing writes for lack of space.
//!
//! Owns the state, the count of refusals, and when a change is reported: once when it begins and once when it ends,
//! however many writes are refused between. Never: logs.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::env::failure::Hook;
use crate::error::StoreError;

/// A change of whether writes of a shard are refused for lack of space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskSpaceChange {
    /// Writes are refused from now on.
    Full {
        /// The failed write, or the free space that is left.
        detail: String,
    },
    /// Writes are accepted again.
    Freed {
        /// Writes that were refused or failed meanwhile.
        refusals: u64,
    },
}

/// State of one shard.
#[derive(Default)]
pub(crate) struct FullDisk {
    /// Why writes are refused.
    detail: RefCell<Option<String>>,
    is_reported: Cell<bool>,
    /// Since it began.
    refusals: Cell<u64>,
    pub(crate) on_change: Hook<DiskSpaceChange>,
}

impl FullDisk {
    /// The error of a write that must not begin.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        match self.detail.borrow().as_ref() {
            None => Ok(()),
            Some(detail) => Err(StoreError::DiskFull { detail: detail.clone() }),
        }
    }

    /// There is no space.
    #[cold]
    pub(crate) fn set(&self, detail: String) {
        self.begin(&detail);
        *self.detail.borrow_mut() = Some(detail);
    }

    /// There may be space again, which the next write finds out.
    pub(crate) fn clear(&self) {
        if self.detail.borrow().is_some() {
            *self.detail.borrow_mut() = None;
        }
    }

    /// A write was refused, or failed, with this error.
    #[cold]
    pub(crate) fn note_refusal(&self, error: &StoreError) {
        if let StoreError::DiskFull { detail } = error {
            self.begin(detail);
            self.refusals.set(self.refusals.get() + 1);
        }
    }

    /// Called after all waiting data was written; no write met a full disk meanwhile.
    pub(crate) fn note_success(&self) {
        if self.is_reported.get() && self.detail.borrow().is_none() {
            self.is_reported.set(false);
            self.report(DiskSpaceChange::Freed { refusals: self.refusals.take() });
        }
    }

    /// Refusals since it was reported that the disk is full; `None` when it was not.
    #[cfg(test)]
    pub(crate) fn reported(&self) -> Option<u64> {
        self.is_reported.get().then(|| self.refusals.get())
    }

    fn begin(&self, detail: &str) {
        if !self.is_reported.replace(true) {
            self.report(DiskSpaceChange::Full { detail: detail.to_owned() });
        }
    }

    fn report(&self, change: DiskSpaceChange) {
        let hook: Option<Rc<dyn Fn(DiskSpaceChange)>> = self.on_change.borrow().clone();
        if let Some(hook) = hook {
            hook(change);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_reported_once_and_the_refusals_between_are_counted() {
        let disk = FullDisk::default();
        let seen: Rc<RefCell<Vec<DiskSpaceChange>>> = Rc::default();
        let changes = seen.clone();
        *disk.on_change.borrow_mut() =
            Some(Rc::new(move |change| changes.borrow_mut().push(change)));
        let error = StoreError::DiskFull { detail: "no room".to_owned() };
        let full = DiskSpaceChange::Full { detail: "no room".to_owned() };
        let freed = |refusals| DiskSpaceChange::Freed { refusals };
        disk.note_success();
        disk.note_refusal(&StoreError::Stopping);
        assert_eq!(seen.take(), []);
        for _ in 0..3 {
            disk.note_refusal(&error);
        }
        disk.set("less room".to_owned());
        assert_eq!(seen.take(), std::slice::from_ref(&full));
        assert_eq!(disk.check(), Err(StoreError::DiskFull { detail: "less room".to_owned() }));
        disk.note_success();
        assert_eq!(seen.take(), [], "it is full still");
        disk.clear();
        assert_eq!(disk.check(), Ok(()));
        // A flush that needs more than there is: it was not free.
        disk.set("no room".to_owned());
        disk.note_success();
        assert_eq!(seen.take(), []);
        disk.clear();
        disk.note_refusal(&error);
        disk.note_success();
        disk.note_success();
        assert_eq!(seen.take(), [freed(4)]);
        disk.set("no room".to_owned());
        disk.clear();
        disk.note_success();
        assert_eq!(seen.take(), [full, freed(0)]);
    }
}
