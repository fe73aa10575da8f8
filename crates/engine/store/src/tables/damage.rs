//! State of the damaged files of a table.

use std::collections::BTreeMap;
use std::mem::Discriminant;
use std::rc::Rc;

use stdx::{Generation, Instant};

use crate::error::StoreError;
use crate::tables::retry_backoff::Failures;
use crate::tables::table::TableState;
use crate::tables::table_file::TableFile;

/// When files were verified last, seconds since 1970.
pub(crate) type VerifiedTimes = BTreeMap<Generation, i64>;

/// State of a damaged file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Damage {
    /// When it was found, seconds since 1970.
    pub(crate) found: i64,
    /// Time at which all its readable data was in other files; `None`: it is not yet.
    pub(crate) salvaged: Option<i64>,
    pub(crate) reason: String,
}

/// Attempts at step 2 that failed.
pub(crate) struct FailedCopies {
    pub(crate) attempts: u32,
    pub(crate) failures: Failures,
    /// The last error, and its kind: the words may name another output each time.
    pub(crate) error: String,
    pub(crate) kind: Discriminant<StoreError>,
    /// The next one is not before.
    pub(crate) due: Instant,
}

impl TableState {
    pub(crate) fn is_damaged(&self, generation: Generation) -> bool {
        self.damaged.borrow().contains_key(&generation)
    }

    /// Returns true if other files have all its readable data.
    pub(crate) fn is_salvaged(&self, generation: Generation) -> bool {
        self.damaged.borrow().get(&generation).is_some_and(|damage| damage.salvaged.is_some())
    }

    pub(crate) fn file(&self, generation: Generation) -> Option<Rc<TableFile>> {
        self.view().files.iter().find(|f| f.generation == generation).cloned()
    }
}
