//! Limits of a node's hints; the same on all its shards.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use at_rest::KeySource;

use crate::error::HintsError;
use crate::format::{HEADER_BYTES, HintSealing, RECORD_HEADER_BYTES};

/// Settings of hints and their delivery. Names in quotes are those of `cassandra.yaml`; bounds are
/// of the node, each shard has its share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HintsSettings {
    /// "hints_directory": of all shards' files.
    pub directory: String,
    /// "system_info_encryption": whether new files are encrypted.
    pub sealing: HintSealing,
    /// Named key of a provider that wraps the keys of sealed files; `None`: that of the key file.
    pub key_source: Option<Arc<KeySource>>,
    /// "hinted_handoff_enabled": whether hints are kept. Kept ones are delivered anyway.
    pub enabled: bool,
    /// "hinted_handoff_disabled_datacenters": no hints are kept for their nodes.
    pub disabled_datacenters: BTreeSet<String>,
    /// "max_hint_window": no hints for a replica that has been down for longer.
    pub window: Duration,
    /// "hint_window_persistent_enabled": nor for one whose oldest kept hint is older than that, so
    /// that a restart of this node does not restart the window.
    pub window_persistent: bool,
    /// "hints_flush_period": how long a hint may wait in memory before it is written and synced,
    /// and how often delivery to replicas that are up is tried again.
    pub flush_period: Duration,
    /// "max_hints_file_size", bytes; above it a file is closed and another begun. At most 2 GiB.
    pub file_bytes_max: u64,
    /// "max_hints_size_per_host", bytes in files and in memory; 0 = no bound but the total.
    pub host_bytes_max: u64,
    /// Bytes of all hints, in files and in memory. Cassandra has no such bound.
    pub total_bytes_max: u64,
    /// No hints are written when the file system of the directory has less room than this, bytes.
    pub disk_free_bytes_min: u64,
    /// Bytes of hints that wait in memory to be written; more are refused.
    pub buffer_bytes_max: u64,
    /// "hinted_handoff_throttle", bytes per second of one node's delivery to one replica when the
    /// cluster has two nodes; divided by the number of the other nodes. 0 = no bound. Only for
    /// replicas that were down: hints for a replica that was up all the time are delivered at full
    /// speed.
    pub throttle_bytes_per_second: u64,
    /// "max_hints_delivery_threads": replicas that one shard delivers to at a time.
    pub deliveries_max: usize,
    /// Hints that wait for the replica's answer, per delivery.
    pub in_flight_max: usize,
    /// Bytes of those; one may stick out.
    pub in_flight_bytes_max: usize,
    /// Timeout of the replica's answer to one hint.
    pub answer_timeout: Duration,
    /// Delay before hints for a live replica are written and delivered.
    pub live_delay: Duration,
    /// When that is tried again after it failed.
    pub live_retry: Duration,
    /// The delivered offset is persisted after so many bytes. Hints after the last persisted offset
    /// may be delivered again after a restart.
    pub progress_bytes: u64,
}

impl HintsSettings {
    /// Cassandra's defaults, and ours where it has none.
    pub fn new(directory: impl Into<String>) -> HintsSettings {
        HintsSettings {
            directory: directory.into(),
            sealing: HintSealing::Plain,
            key_source: None,
            enabled: true,
            disabled_datacenters: BTreeSet::new(),
            window: Duration::from_secs(3 * 3600),
            window_persistent: true,
            flush_period: Duration::from_secs(10),
            file_bytes_max: 128 << 20,
            host_bytes_max: 0,
            total_bytes_max: 16 << 30,
            disk_free_bytes_min: 512 << 20,
            buffer_bytes_max: 32 << 20,
            throttle_bytes_per_second: 1024 << 10,
            deliveries_max: 2,
            in_flight_max: 128,
            in_flight_bytes_max: 1 << 20,
            answer_timeout: Duration::from_secs(2),
            live_delay: Duration::from_millis(200),
            live_retry: Duration::from_secs(1),
            progress_bytes: 8 << 20,
        }
    }

    /// # Errors
    /// `Setting`: a value that cannot be used, with its name.
    pub(crate) fn check(&self) -> Result<(), HintsError> {
        let refuse = |name, why| Err(HintsError::Setting { name, why });
        if !(1024..=2 << 30).contains(&self.file_bytes_max) {
            return refuse("max_hints_file_size", "it must be 1 KiB to 2 GiB");
        }
        if self.flush_period.is_zero() {
            return refuse("hints_flush_period", "it must be above zero");
        }
        if self.deliveries_max == 0 {
            return refuse("max_hints_delivery_threads", "it must be above zero");
        }
        if self.in_flight_max == 0 || self.answer_timeout.is_zero() {
            return refuse("hint delivery", "in flight and timeout must be above zero");
        }
        Ok(())
    }

    /// The longest mutation that is kept: it has to fit into a file.
    pub(crate) fn mutation_bytes_max(&self) -> u64 {
        let overhead = (HEADER_BYTES + RECORD_HEADER_BYTES) as u64;
        // Below the longest message between nodes, with its own header.
        let by_format = crate::format::MUTATION_BYTES_MAX as u64 - 1024;
        self.file_bytes_max.saturating_sub(overhead).min(by_format)
    }
}
