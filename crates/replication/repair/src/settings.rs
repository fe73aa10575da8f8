//! Limits and times of repairs.

use std::time::Duration;

/// Limits and times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepairSettings {
    /// Bytes of this node that are compared with one question. Default 2 MiB.
    pub segment_bytes: usize,
    /// Parts into which a segment that differs is cut. Default 16.
    pub parts: usize,
    /// Bytes of a segment that is merged instead of being cut. Default 16 KiB.
    pub merged_bytes: usize,
    /// Bytes after which pages that are merged end. Default 256 KiB.
    pub page_bytes: usize,
    /// Bytes per second of this node that its repairs read to compare, all together; 0 = no limit.
    /// Default 64 MiB, as Cassandra's validation has by `compaction_throughput`.
    pub bytes_per_second: u64,
    /// Longest wait for one answer. Default 30 s.
    pub answer_timeout: Duration,
    /// Attempts of a request before the repair fails. Default 6.
    pub attempts: u32,
    /// Pause after the first failure; it doubles. Default 250 ms.
    pub retry_pause: Duration,
    /// Maximum mutations of one repair and table in flight. Default 128.
    pub mutations_in_flight: usize,
    /// Repairs at a time. Default 4.
    pub running_max: usize,
    /// Questions of peers that a shard answers at a time; above it refuses. Default 8.
    pub serving_max: usize,
    /// Time without a message of an incremental session after which a replica aborts it. Default 10
    /// min.
    pub session_idle: Duration,
    /// Maximum time of a replica to set its files apart for one. Default 6 h.
    pub open_timeout: Duration,
    /// Repairs that begin by themselves.
    pub auto: AutoSettings,
}

impl Default for RepairSettings {
    fn default() -> RepairSettings {
        RepairSettings {
            segment_bytes: 2 << 20,
            parts: 16,
            merged_bytes: 16 << 10,
            page_bytes: 256 << 10,
            bytes_per_second: 64 << 20,
            answer_timeout: Duration::from_secs(30),
            attempts: 6,
            retry_pause: Duration::from_millis(250),
            mutations_in_flight: 128,
            running_max: 4,
            serving_max: 8,
            session_idle: Duration::from_secs(600),
            open_timeout: Duration::from_secs(6 * 3600),
            auto: AutoSettings::default(),
        }
    }
}

/// Settings of the schedule of automatic repairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AutoSettings {
    /// True if automatic repair is on (`auto_repair_enabled`). Default true.
    pub enabled: bool,
    /// Within which every table is repaired (`auto_repair_window`); `None`: 0.8 of its
    /// `gc_grace_seconds`, 8 days at most.
    pub window: Option<Duration>,
    /// Maximum bytes per second that this node reads for it (`auto_repair_throughput`); 0 = no
    /// limit of its own. Default 8 MiB. The pace is lower while there is time.
    pub bytes_per_second: u64,
    /// After the start of the node (`auto_repair_initial_delay`). Default 5 min.
    pub initial_delay: Duration,
    /// Length of a turn of a node, and twice the time between two looks
    /// (`auto_repair_turn`). Default 1 min.
    pub turn: Duration,
}

impl Default for AutoSettings {
    fn default() -> AutoSettings {
        AutoSettings {
            enabled: true,
            window: None,
            bytes_per_second: 8 << 20,
            initial_delay: Duration::from_secs(300),
            turn: Duration::from_secs(60),
        }
    }
}
