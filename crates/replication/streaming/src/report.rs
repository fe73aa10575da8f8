//! Result and progress of an operation.

/// Amounts that an operation has fetched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FetchReport {
    /// Ranges that are here, of all tables.
    pub ranges: u64,
    /// Bytes of pages.
    pub bytes: u64,
    /// Partitions; one that continues in another page is counted again.
    pub partitions: u64,
    /// SSTables that were made.
    pub files: u64,
    /// Their bytes on disk.
    pub disk_bytes: u64,
    /// Files of them that were sent verbatim.
    pub whole_files: u64,
}

/// Progress of an operation, reported after each table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FetchProgress {
    /// Ranges to be fetched, of all tables.
    pub ranges: u64,
    /// Ranges that could not be fetched.
    pub failed: u64,
    /// Amounts fetched so far.
    pub done: FetchReport,
}
