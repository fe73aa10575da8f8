//! Settings of execution, and the times that requests may take.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use crate::guardrail_limits::Guardrails;
use cql_plan::auth::AccessRules;
use cql_plan::ddl::IndexSettings;
use cql_plan::functions::user::FunctionLimits;
use store::SealingPolicy;

/// Settings of execution; the same on all shards of a node.
///
/// Byte budgets are of the whole node unless the name says otherwise; every shard takes its share.
#[derive(Clone, Debug)]
pub struct QuerySettings {
    /// Address and port that clients get (`system.local`, traces).
    pub broadcast_address: SocketAddr,
    /// Address and port of this node for other nodes, as DESCRIBE CLUSTER shows it.
    pub storage_address: SocketAddr,
    /// Class of the snitch, as DESCRIBE CLUSTER shows it.
    pub snitch: String,
    /// Memory of requests, whole node; what finds none gets OVERLOADED.
    pub request_bytes_max: usize,
    /// Memory of prepared statements on one shard; the least recently used go first.
    pub prepared_bytes_max: usize,
    /// Rules of access that are in force.
    pub access: AccessRules,
    /// Time for a read of partitions.
    pub read_timeout: Duration,
    /// Time for a read of token ranges.
    pub range_timeout: Duration,
    /// Time for a write.
    pub write_timeout: Duration,
    /// Time for a write to counters.
    pub counter_write_timeout: Duration,
    /// Time for a conditional write until it is decided; its commit then has `write_timeout`.
    pub cas_contention_timeout: Duration,
    /// Time for TRUNCATE.
    pub truncate_timeout: Duration,
    /// Time for a schema change that meets others to be tried again.
    pub request_timeout: Duration,
    /// Tombstones of one read above which the client is warned.
    pub tombstone_warn_threshold: u32,
    /// Tombstones of one read above which it fails, when its client asked for no pages.
    pub tombstone_failure_threshold: u32,
    /// Tombstones after which a page ends; 0: it does not.
    pub tombstone_page_limit: u32,
    /// True if columns may get masks, and masks have an effect.
    pub dynamic_data_masking_enabled: bool,
    /// True if ALTER TABLE … DROP COMPACT STORAGE may be used.
    pub drop_compact_storage_enabled: bool,
    /// Enables user functions: CREATE FUNCTION and calls.
    pub user_defined_functions_enabled: bool,
    /// Limits of one call of a user function.
    pub user_function_limits: FunctionLimits,
    /// True if USE may be used.
    pub use_statements_enabled: bool,
    /// Replication factor of a keyspace whose statement does not specify one.
    pub default_keyspace_rf: u32,
    /// Compaction of a table whose statement names none; `None`: size-tiered.
    pub default_compaction: Option<BTreeMap<String, String>>,
    /// Settings of CREATE INDEX.
    pub indexes: IndexSettings,
    /// Holders of keys that tables may name in their encryption: `key-file`, `vault:prod`.
    pub key_sources: BTreeSet<String>,
    /// Keys that encrypt the files of a table.
    pub sealing: SealingPolicy,
    /// Limits on statements, as they are at first: [`crate::Executor::guardrails`].
    pub guardrails: Guardrails,
    /// The longest time for any request but TRUNCATE and schema changes, whatever the other
    /// timeouts are.
    pub native_transport_timeout: Duration,
    /// Time to live of traces, seconds.
    pub trace_ttl_seconds: i32,
}

/// A time for requests that may be changed while the server runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeout {
    /// [`QuerySettings::read_timeout`].
    Read,
    /// [`QuerySettings::range_timeout`].
    Range,
    /// [`QuerySettings::write_timeout`].
    Write,
    /// [`QuerySettings::counter_write_timeout`].
    CounterWrite,
    /// [`QuerySettings::cas_contention_timeout`].
    CasContention,
    /// [`QuerySettings::truncate_timeout`].
    Truncate,
    /// [`QuerySettings::request_timeout`].
    Request,
}

/// The times in use, at first those of the settings.
#[derive(Debug)]
pub struct Timeouts {
    read: Cell<Duration>,
    range: Cell<Duration>,
    write: Cell<Duration>,
    counter_write: Cell<Duration>,
    cas_contention: Cell<Duration>,
    truncate: Cell<Duration>,
    request: Cell<Duration>,
    /// Above all but the last two.
    most: Duration,
}

impl Timeouts {
    pub(crate) fn new(settings: &QuerySettings) -> Timeouts {
        Timeouts {
            read: Cell::new(settings.read_timeout),
            range: Cell::new(settings.range_timeout),
            write: Cell::new(settings.write_timeout),
            counter_write: Cell::new(settings.counter_write_timeout),
            cas_contention: Cell::new(settings.cas_contention_timeout),
            truncate: Cell::new(settings.truncate_timeout),
            request: Cell::new(settings.request_timeout),
            most: settings.native_transport_timeout,
        }
    }

    fn cell(&self, kind: Timeout) -> &Cell<Duration> {
        match kind {
            Timeout::Read => &self.read,
            Timeout::Range => &self.range,
            Timeout::Write => &self.write,
            Timeout::CounterWrite => &self.counter_write,
            Timeout::CasContention => &self.cas_contention,
            Timeout::Truncate => &self.truncate,
            Timeout::Request => &self.request,
        }
    }

    /// For a request that begins now.
    #[inline]
    pub fn get(&self, kind: Timeout) -> Duration {
        let timeout = self.cell(kind).get();
        match kind {
            Timeout::Truncate | Timeout::Request => timeout,
            _ => timeout.min(self.most),
        }
    }

    /// Returns the timeout as it was set.
    pub fn as_set(&self, kind: Timeout) -> Duration {
        self.cell(kind).get()
    }

    pub(crate) fn set(&self, kind: Timeout, timeout: Duration) {
        self.cell(kind).set(timeout);
    }
}

impl QuerySettings {
    /// Cassandra's defaults.
    pub fn new(broadcast_address: SocketAddr) -> QuerySettings {
        QuerySettings {
            broadcast_address,
            storage_address: SocketAddr::new(broadcast_address.ip(), 7000),
            snitch: "org.apache.cassandra.locator.SimpleSnitch".to_owned(),
            request_bytes_max: 256 << 20,
            prepared_bytes_max: 10 << 20,
            access: AccessRules::default(),
            read_timeout: Duration::from_secs(5),
            range_timeout: Duration::from_secs(10),
            write_timeout: Duration::from_secs(2),
            counter_write_timeout: Duration::from_secs(5),
            cas_contention_timeout: Duration::from_secs(1),
            truncate_timeout: Duration::from_secs(60),
            request_timeout: Duration::from_secs(10),
            tombstone_warn_threshold: 1_000,
            tombstone_failure_threshold: 100_000,
            tombstone_page_limit: 10_000,
            dynamic_data_masking_enabled: false,
            drop_compact_storage_enabled: false,
            user_defined_functions_enabled: false,
            user_function_limits: FunctionLimits::default(),
            use_statements_enabled: true,
            default_keyspace_rf: 1,
            default_compaction: None,
            indexes: IndexSettings::default(),
            key_sources: BTreeSet::new(),
            sealing: SealingPolicy::default(),
            guardrails: Guardrails::default(),
            native_transport_timeout: Duration::from_secs(12),
            trace_ttl_seconds: 86_400,
        }
    }
}
