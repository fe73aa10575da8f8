//! Cost of a traced read, for each shard of this node.
//!
//! Owns: the sums and their texts. Never: reads anything, writes traces down. A read that is not traced
//! has none of this. Texts that Cassandra has are its own; those of the shards are ours.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use stdx::ShardId;
use store::ReadStats;

/// Reads of one shard for a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ShardRead {
    stats: ReadStats,
    /// Pages that it built for the requesting shard, and their bytes; none when it was that shard.
    pages: u32,
    bytes: u64,
    largest: u64,
}

/// Reads of this node's shards for a request; at most one entry for each.
#[derive(Debug, Default)]
pub struct ShardReads(RefCell<BTreeMap<u16, ShardRead>>);

/// `1 row`, `2 rows`.
fn count(n: u64, one: &str) -> String {
    match n {
        1 => format!("1 {one}"),
        n => format!("{n} {one}s"),
    }
}

/// Adds the cost of another read.
pub fn add(sum: &mut ReadStats, more: &ReadStats) {
    sum.partitions = sum.partitions.saturating_add(more.partitions);
    sum.rows = sum.rows.saturating_add(more.rows);
    sum.tombstones = sum.tombstones.saturating_add(more.tombstones);
    sum.sstables = sum.sstables.saturating_add(more.sstables);
    sum.blocks_read = sum.blocks_read.saturating_add(more.blocks_read);
    sum.block_bytes = sum.block_bytes.saturating_add(more.block_bytes);
    sum.filtered.add(&more.filtered);
}

impl ShardReads {
    /// Records the read of a shard; `page`: bytes that it handed to the requesting shard.
    pub fn add(&self, shard: ShardId, stats: &ReadStats, page: Option<usize>) {
        let mut all = self.0.borrow_mut();
        let of = all.entry(shard.0).or_default();
        add(&mut of.stats, stats);
        if let Some(bytes) = page {
            of.pages = of.pages.saturating_add(1);
            of.bytes = of.bytes.saturating_add(bytes as u64);
            of.largest = of.largest.max(bytes as u64);
        }
    }

    /// All shards together.
    pub fn total(&self) -> ReadStats {
        let mut sum = ReadStats::default();
        self.0.borrow().values().for_each(|of| add(&mut sum, &of.stats));
        sum
    }

    /// Returns true if no shard has read.
    pub fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// Returns the bytes of all pages that came from other shards, and of the largest one.
    pub fn page_bytes(&self) -> (u64, u64) {
        let mut sum = (0_u64, 0_u64);
        for of in self.0.borrow().values() {
            sum = (sum.0.saturating_add(of.bytes), sum.1.max(of.largest));
        }
        sum
    }

    /// Returns a line for each shard that has read, ascending.
    pub fn lines(&self) -> Vec<String> {
        let all = self.0.borrow();
        all.iter().map(|(shard, of)| line(*shard, of)).collect()
    }
}

fn line(shard: u16, of: &ShardRead) -> String {
    let ReadStats { partitions, rows, tombstones, sstables, blocks_read, block_bytes, .. } =
        of.stats;
    let mut line = format!(
        "Shard {shard} read {} in {}, {}, from memtables",
        count(rows, "live row"),
        count(partitions, "partition"),
        count(u64::from(tombstones), "tombstone cell"),
    );
    // Writing to a text does not fail.
    let _ = match (sstables, blocks_read) {
        (0, 0) => write!(line, " only"),
        (files, 0) => write!(line, " and {} in memory", count(u64::from(files), "sstable")),
        (files, n) => {
            let (files, blocks) =
                (count(u64::from(files), "sstable"), count(u64::from(n), "block"));
            write!(line, " and {files}; {blocks} from disk ({})", count(block_bytes, "byte"))
        }
    };
    if of.pages > 0 {
        let (pages, bytes) = (count(u64::from(of.pages), "page"), count(of.bytes, "byte"));
        let _ = write!(line, "; it sent {pages} of {bytes}, at most {} each", of.largest);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_shown_with_what_they_read_from_memory_and_disk() {
        let reads = ShardReads::default();
        let stats = ReadStats {
            partitions: 2,
            rows: 1,
            tombstones: 3,
            sstables: 2,
            ..ReadStats::default()
        };
        reads.add(ShardId(1), &stats, None);
        let loaded = ReadStats { blocks_read: 1, block_bytes: 4096, ..stats };
        reads.add(ShardId(0), &loaded, Some(100));
        reads.add(ShardId(0), &loaded, Some(50));
        assert_eq!(
            reads.lines(),
            [
                "Shard 0 read 2 live rows in 4 partitions, 6 tombstone cells, from memtables and 4 \
                 sstables; 2 blocks from disk (8192 bytes); it sent 2 pages of 150 bytes, at most \
                 100 each",
                "Shard 1 read 1 live row in 2 partitions, 3 tombstone cells, from memtables and 2 \
                 sstables in memory"
            ]
        );
        assert_eq!((reads.total().rows, reads.total().block_bytes), (3, 8192));
    }
}
