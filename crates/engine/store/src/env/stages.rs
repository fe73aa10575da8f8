//! The stages of a shard's store: reads, writes and flushes as `nodetool tpstats` shows them.

use telemetry::{Shard, Stage};

/// One for each thread pool that does such work in Cassandra.
pub(crate) struct Stages {
    /// Reads of this shard's data, of clients and of other nodes.
    pub(crate) read: Stage,
    /// Mutations applied; commits that wait for the log run in it, writes that wait for memtables
    /// to shrink are blocked in it.
    pub(crate) mutation: Stage,
    /// Flushes of memtables; those that wait for the one before are pending.
    pub(crate) flush: Stage,
    /// Releases of commit log segments after flushes.
    pub(crate) post_flush: Stage,
    /// Memtables freed after flushes.
    pub(crate) reclaim: Stage,
}

impl Stages {
    pub(crate) fn new(telemetry: &Shard) -> Stages {
        Stages {
            read: telemetry.stage("ReadStage"),
            mutation: telemetry.stage("MutationStage"),
            flush: telemetry.stage("MemtableFlushWriter"),
            post_flush: telemetry.stage("MemtablePostFlush"),
            reclaim: telemetry.stage("MemtableReclaimMemory"),
        }
    }
}
