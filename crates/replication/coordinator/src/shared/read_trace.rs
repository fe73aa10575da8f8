//! Trace of a read: its cost on each shard of this node, and its requests to other nodes.
//!
//! Owns: the trace of a read at its coordinator. Never: reads anything, persists traces. A read that is
//! not traced has none of this.

use std::cell::Cell;
use std::rc::Rc;

use replica::{RequestTrace, ShardReads};
use stdx::Uuid;

/// A read whose steps are recorded in a trace.
pub struct ReadTrace {
    request: Rc<RequestTrace>,
    shards: ShardReads,
    /// Bytes of the pages of other nodes, and of the largest one.
    from_peers: Cell<(u64, u64)>,
}

impl ReadTrace {
    /// Creates the trace with this id; `note` adds an event to it.
    pub fn new(id: Uuid, note: impl Fn(String) + 'static) -> ReadTrace {
        ReadTrace {
            request: Rc::new(RequestTrace::new(id, note)),
            shards: ShardReads::default(),
            from_peers: Cell::default(),
        }
    }

    /// The trace's id.
    pub fn id(&self) -> Uuid {
        self.request.id()
    }

    /// The trace of its request.
    pub fn request(&self) -> &Rc<RequestTrace> {
        &self.request
    }

    /// Returns the reads of each shard of this node.
    pub fn shards(&self) -> &ShardReads {
        &self.shards
    }

    /// Adds an event.
    pub(crate) fn note(&self, activity: String) {
        self.request.note(|| activity);
    }

    /// Another node has answered with a page.
    pub(crate) fn note_page(&self, bytes: usize) {
        let (all, largest) = self.from_peers.get();
        let bytes = bytes as u64;
        self.from_peers.set((all.saturating_add(bytes), largest.max(bytes)));
    }

    /// Records the reads of each shard of this node when the read is over. For a read of one
    /// partition Cassandra records them too.
    pub fn finish(&self, is_of_one_partition: bool) {
        let sstables = self.shards.total().sstables;
        let has_read = !self.shards.is_empty();
        if is_of_one_partition && has_read {
            self.note(format!("Merged data from memtables and {sstables} sstables"));
        }
        self.shards.lines().into_iter().for_each(|line| self.note(line));
    }

    /// Returns the bytes of all pages from other shards and nodes, and of the largest page. A read
    /// holds one page in memory for each shard or replica that it waits for or shows.
    pub fn page_bytes(&self) -> (u64, u64) {
        let (bytes, largest) = self.from_peers.get();
        let (shard_bytes, shard_largest) = self.shards.page_bytes();
        (bytes.saturating_add(shard_bytes), largest.max(shard_largest))
    }
}

#[cfg(test)]
mod tests {
    use stdx::ShardId;
    use store::ReadStats;

    use super::*;

    #[test]
    fn pages_of_shards_and_nodes_count_together() {
        let trace = ReadTrace::new(Uuid::nil(), |_| ());
        trace.shards.add(ShardId(0), &ReadStats::default(), Some(10));
        trace.shards.add(ShardId(0), &ReadStats::default(), Some(5));
        trace.shards.add(ShardId(1), &ReadStats::default(), Some(7));
        trace.note_page(100);
        trace.note_page(30);
        assert_eq!(trace.page_bytes(), (152, 100));
    }
}
