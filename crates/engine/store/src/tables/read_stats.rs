//! Statistics of reads.

/// Cost of a read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadStats {
    /// Partitions shown.
    pub partitions: u64,
    /// Rows shown.
    pub rows: u64,
    /// Tombstones and expired cells met.
    pub tombstones: u32,
    /// SSTables that were read.
    pub sstables: u32,
    /// Blocks that were not in the cache.
    pub blocks_read: u32,
    /// Their bytes, decompressed.
    pub block_bytes: u64,
    /// Rows that a filter dropped at the shard that read them.
    pub filtered: Filtered,
}

/// Data that a filter removed from a read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filtered {
    /// Rows.
    pub rows: u64,
    /// Partitions without any scanned row.
    pub partitions: u64,
    /// Bytes of rows and keys.
    pub bytes: u64,
}

impl Filtered {
    /// Adds the counts of another read.
    pub fn add(&mut self, more: &Filtered) {
        self.rows = self.rows.saturating_add(more.rows);
        self.partitions = self.partitions.saturating_add(more.partitions);
        self.bytes = self.bytes.saturating_add(more.bytes);
    }
}
