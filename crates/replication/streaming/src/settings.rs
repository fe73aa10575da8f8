//! Limits and times of streams.

use std::time::Duration;

/// Limits and times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamSettings {
    /// Bytes per second that this node gives to peers, all shards together
    /// (`stream_throughput_outbound`); 0 = no limit. Default 24 MiB, as Cassandra's.
    pub outbound_bytes_per_second: u64,
    /// Limit for peers in other datacenters, beside the limit for all
    /// (`inter_dc_stream_throughput_outbound`); 0 = no limit. Default 24 MiB, as Cassandra's.
    pub inter_dc_bytes_per_second: u64,
    /// Bytes after which a page ends. Default 1 MiB.
    pub page_bytes: usize,
    /// Longest wait for one page. Default 30 s.
    pub page_timeout: Duration,
    /// Attempts of a page before the source is abandoned. Default 8.
    pub attempts: u32,
    /// Pause after the first failure; it doubles. Default 250 ms.
    pub retry_pause: Duration,
    /// Longest pause. Default 8 s.
    pub retry_pause_max: Duration,
    /// Maximum pages and chunks that a shard builds at a time, for all peers; it refuses further
    /// ones. Default 32.
    pub serving_max: usize,
    /// Send files that lie completely in the ranges verbatim (`stream_entire_sstables`).
    pub whole_files: bool,
    /// Bytes of Data from which on they do: a small one costs less as rows. Default 1 MiB.
    pub whole_bytes_min: u64,
    /// Bytes of a file that are asked for at a time. Default 1 MiB.
    pub chunk_bytes: usize,
    /// Chunks of a file that are asked for at the same time. Default 8.
    pub chunks_in_flight: usize,
    /// How long a source keeps a hold without requests. Default 5 min.
    pub hold_idle: Duration,
}

impl Default for StreamSettings {
    fn default() -> StreamSettings {
        StreamSettings {
            outbound_bytes_per_second: 24 << 20,
            inter_dc_bytes_per_second: 24 << 20,
            page_bytes: 1 << 20,
            page_timeout: Duration::from_secs(30),
            attempts: 8,
            retry_pause: Duration::from_millis(250),
            retry_pause_max: Duration::from_secs(8),
            serving_max: 32,
            whole_files: true,
            whole_bytes_min: 1 << 20,
            chunk_bytes: 1 << 20,
            chunks_in_flight: 8,
            hold_idle: Duration::from_secs(300),
        }
    }
}
