//! Settings of a store at open.

mod replay_options;
pub(crate) mod sealing;

pub(crate) use replay_options::is_of_system;
pub use replay_options::{PointInTime, ReplayOptions, max_timestamp};

use sealing::SealingPolicy;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use codec::Algorithm;
use commitlog::{LogOptions, SyncMode};
use schema::Table;
use sstable::{Version, WriteCompression};
use stdx::{HostId, ShardMap, TableId};

/// Compression of flushed files. Source: `DataComponent.buildCompressionParams`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushCompression {
    /// Not at all.
    None,
    /// The compression of their table, unless its compressor is slow: then LZ4, so that writes do
    /// not wait for it. The next compaction compresses as the table says.
    Fast,
    /// The compression of their table.
    Table,
}

impl FlushCompression {
    /// Returns the compression of a flushed file if the table's options say `table`; `None`: not
    /// compressed.
    pub(crate) fn of(self, table: Option<WriteCompression>) -> Option<WriteCompression> {
        match self {
            FlushCompression::None => None,
            FlushCompression::Fast => {
                let of = |table: WriteCompression| match table.is_fast() {
                    true => table,
                    false => WriteCompression::fast(),
                };
                table.map(of)
            }
            FlushCompression::Table => table,
        }
    }
}

/// Options of one shard's store; sizes are this shard's share.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Directories of keyspaces, at least one: such as
    /// `<data>/<keyspace>/<table>-<id>/nb-<generation>-big-Data.db`.
    pub data_directories: Vec<String>,
    /// A data directory that fails is taken out of service, see `failed_directories`.
    pub best_effort: bool,
    /// Treats a file that cannot be opened at the start as a damaged one, instead of aborting the
    /// start.
    pub starts_with_damaged_files: bool,
    /// Directory of commit-log segments, shared by all shards.
    pub commitlog_directory: String,
    /// This node.
    pub host: HostId,
    /// Number of this run, the same on all shards, larger than every earlier run's (wall clock at
    /// start in microseconds).
    pub run: u64,
    /// Which shard of this node owns a token of a table.
    pub shard_map: ShardMap,
    /// When commits are confirmed.
    pub sync: SyncMode,
    /// Size of a commit-log segment; a mutation may take half of it. Default 32 MiB.
    pub segment_bytes: u64,
    /// Largest mutation, bytes; the commit log's own limit holds too.
    pub mutation_bytes_max: usize,
    /// Commit log above which the oldest tables are flushed.
    pub commitlog_bytes_max: u64,
    /// How the commit log is compressed; `None`: not.
    pub commitlog_compression: Option<Algorithm>,
    /// Keys that the commit log is encrypted with; `None`: not encrypted.
    pub commitlog_keys: Option<commitlog::Keys>,
    /// Where commit-log segments are archived before they are deleted.
    pub commitlog_archive_directory: Option<String>,
    /// Directory of the lists of commit-log segments, in the node's metadata. `None`: one beside the
    /// commit log's directory.
    pub commitlog_inventories: Option<String>,
    /// The run whose missing or damaged commit-log data the operator accepts as lost.
    pub commitlog_accept_loss: Option<u64>,
    /// Filter of the replay of the old commit log.
    pub replay: ReplayOptions,
    /// All tables that the metadata log ever had: mutations of others in the old commit log refuse the start.
    /// `None`: not known, they are dropped.
    pub tables_ever: Option<Arc<BTreeSet<TableId>>>,
    /// Budget of memtables; a flush of the largest begins at a third of it.
    pub memtable_bytes_max: usize,
    /// Budget of uncompressed chunks, of the row cache and of the counter cache together.
    pub chunk_cache_bytes_max: usize,
    /// Part of it for the row cache, at most half; 0: no row cache.
    pub row_cache_bytes_max: u64,
    /// Interval at which the keys of the row cache are saved; zero: never, nor at the end, and
    /// saved keys are not read.
    pub row_cache_save_period: Duration,
    /// Most partitions that are saved.
    pub row_cache_keys_to_save: usize,
    /// Part of it for the counter cache, at most a quarter; 0: no counter cache. Default: a
    /// sixteenth.
    pub counter_cache_bytes_max: Option<u64>,
    /// Interval at which the keys of the counter cache are saved; zero: as for rows.
    pub counter_cache_save_period: Duration,
    /// Most counters that are saved.
    pub counter_cache_keys_to_save: usize,
    /// Time limit for each of reading saved partitions and saved counters into the caches at the
    /// start.
    pub cache_load_max: Duration,
    /// Directory of the saved keys, shared by all shards.
    pub saved_caches_directory: String,
    /// Writes are refused while the data disk has less than this free.
    pub disk_reserve_bytes: u64,
    /// Uncompressed bytes that compactions of this shard may write per second; 0 = no limit.
    pub compaction_bytes_per_second: u64,
    /// Bytes per second that are read to verify files in the background; 0 = they are not.
    pub verification_bytes_per_second: u64,
    /// Interval of background verification of a file. Default 7 days.
    pub verification_interval: Duration,
    /// Compactions of this shard that run at a time, 1 to 64. Default 1.
    pub concurrent_compactors: u32,
    /// Bytes of rows between two entries of a partition's index in an SSTable. Default 8 KiB.
    pub column_index_bytes: u64,
    /// Hard links that snapshots of the node create or remove per second; 0 is no limit.
    pub snapshot_links_per_second: u64,
    /// Version of the files that are written; one of `WriterOptions::VERSIONS`. All versions are read.
    pub sstable_version: Version,
    /// How flushed files are compressed. Default as in Cassandra, `Fast`.
    pub flush_compression: FlushCompression,
    /// TRUNCATE and DROP take a snapshot first.
    pub auto_snapshot: bool,
    /// The log keeps the records of truncations until [`crate::Lifecycle::truncation_recorded`].
    pub keeps_truncations: bool,
    /// A compaction takes a snapshot of its table first.
    pub snapshot_before_compaction: bool,
    /// Every flushed SSTable is linked into `backups`, unless its table says otherwise.
    pub incremental_backups: bool,
    /// The text of `schema.cql` in a snapshot.
    pub schema_text: fn(&Table) -> String,
    /// Longest wait for memtable room before `Overloaded`.
    pub room_wait_max: Duration,
    /// Which files are encrypted. Default: none.
    pub sealing: SealingPolicy,
}

impl StoreOptions {
    /// Options with defaults for everything that has one.
    pub fn new(
        data_directory: String,
        commitlog_directory: String,
        host: HostId,
        run: u64,
        shard_map: ShardMap,
        schema_text: fn(&Table) -> String,
    ) -> StoreOptions {
        StoreOptions {
            data_directories: vec![data_directory],
            best_effort: false,
            starts_with_damaged_files: false,
            commitlog_directory,
            host,
            run,
            shard_map,
            sync: SyncMode::Periodic { period: Duration::from_secs(10) },
            segment_bytes: 32 << 20,
            mutation_bytes_max: usize::MAX,
            commitlog_bytes_max: 8 << 30,
            commitlog_compression: None,
            commitlog_keys: None,
            commitlog_archive_directory: None,
            commitlog_inventories: None,
            commitlog_accept_loss: None,
            replay: ReplayOptions::default(),
            tables_ever: None,
            memtable_bytes_max: 256 << 20,
            chunk_cache_bytes_max: 256 << 20,
            row_cache_bytes_max: 0,
            row_cache_save_period: Duration::ZERO,
            row_cache_keys_to_save: usize::MAX,
            counter_cache_bytes_max: None,
            counter_cache_save_period: Duration::ZERO,
            counter_cache_keys_to_save: usize::MAX,
            cache_load_max: LOAD_MAX,
            saved_caches_directory: "saved_caches".to_owned(),
            disk_reserve_bytes: 64 << 20,
            compaction_bytes_per_second: 64 << 20,
            verification_bytes_per_second: 0,
            verification_interval: Duration::from_secs(7 * 86_400),
            concurrent_compactors: 1,
            column_index_bytes: sst_format::index::COLUMN_INDEX_SIZE,
            snapshot_links_per_second: 0,
            sstable_version: Version::Nb,
            flush_compression: FlushCompression::Fast,
            auto_snapshot: true,
            keeps_truncations: false,
            snapshot_before_compaction: false,
            incremental_backups: false,
            schema_text,
            room_wait_max: Duration::from_secs(2),
            sealing: SealingPolicy::default(),
        }
    }

    pub(crate) fn log_options(&self) -> LogOptions {
        LogOptions {
            directory: self.commitlog_directory.clone(),
            host: self.host,
            run: self.run,
            sync: self.sync,
            segment_bytes: self.segment_bytes,
            total_bytes_max: self.commitlog_bytes_max,
            compression: self.commitlog_compression,
            keys: self.commitlog_keys.clone(),
            archive_directory: self.commitlog_archive_directory.clone(),
            inventories: self
                .commitlog_inventories
                .clone()
                .unwrap_or_else(|| format!("{}-inventories", self.commitlog_directory)),
            accept_loss: self.commitlog_accept_loss,
        }
    }
}

/// Used when the options say nothing else, as in Cassandra.
pub(crate) const LOAD_MAX: Duration = Duration::from_secs(30);
