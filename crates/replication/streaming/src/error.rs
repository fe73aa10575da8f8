//! The crate's error.

use stdx::HostId;
use store::StoreError;

use crate::plan::FetchRange;
use crate::report::FetchReport;

/// A range that could not be fetched from any of its sources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedRange {
    /// The requested range.
    pub range: FetchRange,
    /// The source tried last; `None`: there was none.
    pub source: Option<HostId>,
    /// Why it failed there.
    pub error: String,
}

/// Why not everything was fetched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// Some ranges are not here; the others are. Plan again and fetch those.
    #[error(
        "{} of {} ranges could not be fetched; the first one: {}",
        failed.len(),
        failed.len() as u64 + report.ranges,
        failed.first().map_or("", |f| f.error.as_str())
    )]
    Incomplete {
        /// Report of the fetched ranges.
        report: FetchReport,
        /// The ranges that were not fetched.
        failed: Vec<FailedRange>,
    },
    /// This node's own disk or store: another source would not help.
    #[error("cannot store what is fetched: {0}")]
    Store(StoreError),
    /// This node is stopping.
    #[error("this node is stopping")]
    Stopping,
    /// [`crate::Streaming::abort`]: ranges that were kept are here, the others are not.
    #[error("it was aborted by an operator")]
    Aborted,
}

impl From<StoreError> for StreamError {
    fn from(error: StoreError) -> StreamError {
        match error {
            StoreError::Stopping => StreamError::Stopping,
            error => StreamError::Store(error),
        }
    }
}
