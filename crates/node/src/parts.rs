//! Conversion of options to the settings of each part.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use admin::NodeFacts;
use conf::{
    Address, Authenticator, Authorizer, CertificateValidator, CidrAuthorizer, CidrMode,
    CommitLogCompression, CommitLogSync, DataSize, DiskFailurePolicy, FlushCompression,
    NetworkAuthorizer, Options, RoleQueries, RoleQuery, RoleQuerySource, Snitch, SstableFormat,
    SstableVersion, StorageCompatibilityMode,
};
use cql_plan::auth::{AccessRules, CidrRules};
use cql_plan::functions::user::FunctionLimits;
use cql_plan::guardrails::{Feature, Threshold, Values};
use cql_plan::plan::PlanLimits;
use cql_server::{
    Authentication, CertificateLogin, PortEncryption, RateLimits, RoleOfIdentity, ServerSettings,
};
use query::{Guardrails, TimestampGuardrails};
use stdx::{DeletionSeconds, HostId, ShardMap};
use store::{StoreOptions, SyncMode, Version};
use tls::{IdentityQuery, IdentityRule, IdentitySource};

use crate::StartError;

/// Memory without an option: the program's entry sets it from the machine, so this is for simulated
/// and embedded nodes.
const MEMORY_DEFAULT: u64 = 1 << 30;

/// Commit log of the whole node above which tables are flushed.
const COMMITLOG_DEFAULT: u64 = 8 << 30;

/// Returns the memory budget of the whole node in bytes.
pub fn memory(options: &Options) -> u64 {
    options.memory.as_ref().map_or(MEMORY_DEFAULT, |m| m.0)
}

/// Returns the share of one shard in `percent` of the node's memory, bytes.
fn share(options: &Options, shards: u16, percent: u64) -> usize {
    let bytes = memory(options) / 100 * percent / u64::from(shards.max(1));
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Returns the share of one shard in that many bytes of the node.
fn part_of(bytes: u64, shards: u16) -> usize {
    usize::try_from(bytes / u64::from(shards.max(1))).unwrap_or(usize::MAX)
}

/// Memory for the counter cache of all shards. Source of the default: Cassandra's `counter_cache_size`.
fn counter_cache_bytes(options: &Options) -> u64 {
    let default = || (memory(options) / 40).min(50 << 20);
    options.counter_cache_size.map_or_else(default, |size| size.0)
}

/// Options of one shard's store: 40 % of the memory for memtables, 40 % for chunks, cached rows and counts.
pub fn store_options(options: &Options, host: HostId, run: u64, shards: u16) -> StoreOptions {
    let log = options.commitlog_directory();
    let schema_text = cql_plan::describe::schema_text;
    let map = ShardMap::ByTokenHash { shards };
    let mut store = StoreOptions::new(String::new(), log, host, run, map, schema_text);
    let trimmed = |path: String| path.trim_end_matches('/').to_owned();
    store.data_directories = options.data_directories().into_iter().map(trimmed).collect();
    store.keeps_truncations = true;
    store.commitlog_inventories = Some(crate::commit_log::inventories(options));
    store.commitlog_accept_loss = options.commitlog_accept_loss;
    store.best_effort = options.disk_failure_policy == DiskFailurePolicy::BestEffort;
    // With the other policies such a file aborts the start, as in Cassandra.
    store.starts_with_damaged_files = matches!(
        options.disk_failure_policy,
        DiskFailurePolicy::BestEffort | DiskFailurePolicy::Ignore
    );
    store.sync = match options.commitlog_sync {
        CommitLogSync::Periodic => SyncMode::Periodic { period: options.commitlog_sync_period },
        CommitLogSync::Batch => SyncMode::Batch,
        CommitLogSync::Group => SyncMode::Group { window: options.commitlog_sync_group_window },
    };
    store.segment_bytes = options.commitlog_segment_size.0;
    store.mutation_bytes_max = usize::try_from(options.mutation_bytes_max()).unwrap_or(usize::MAX);
    store.commitlog_compression = options.commitlog_compression.map(algorithm);
    let log_bytes = options.commitlog_total_space.map_or(COMMITLOG_DEFAULT, |size| size.0);
    store.commitlog_bytes_max = log_bytes / u64::from(shards.max(1));
    store.memtable_bytes_max = match options.memtable_heap_space {
        Some(size) => part_of(size.0, shards),
        None => share(options, shards, 40),
    };
    store.chunk_cache_bytes_max = share(options, shards, 40);
    store.row_cache_bytes_max = options.row_cache_size.0 / u64::from(shards.max(1));
    store.row_cache_save_period = options.row_cache_save_period;
    store.row_cache_keys_to_save =
        usize::try_from(options.row_cache_keys_to_save).unwrap_or(usize::MAX);
    let counters = counter_cache_bytes(options) / u64::from(shards.max(1));
    store.counter_cache_bytes_max = Some(counters);
    store.counter_cache_save_period = options.counter_cache_save_period;
    store.counter_cache_keys_to_save =
        usize::try_from(options.counter_cache_keys_to_save).unwrap_or(usize::MAX);
    store.cache_load_max = options.cache_load_timeout;
    store.saved_caches_directory = options.saved_caches_directory();
    store.sealing = crate::file_keys::policy(options);
    store.compaction_bytes_per_second = options.compaction_throughput.0 / u64::from(shards.max(1));
    store.verification_bytes_per_second =
        options.sstable_verification_throughput.0.div_ceil(u64::from(shards.max(1)));
    store.verification_interval = options.sstable_verification_interval;
    if let Some(count) = options.concurrent_compactors {
        store.concurrent_compactors = count.div_ceil(u32::from(shards.max(1)));
    }
    store.auto_snapshot = options.auto_snapshot;
    store.snapshot_before_compaction = options.snapshot_before_compaction;
    store.incremental_backups = options.incremental_backups;
    store.snapshot_links_per_second = options.snapshot_links_per_second;
    store.sstable_version = sstable_version(options);
    store.flush_compression = match options.flush_compression {
        FlushCompression::None => store::FlushCompression::None,
        FlushCompression::Fast => store::FlushCompression::Fast,
        FlushCompression::Table => store::FlushCompression::Table,
    };
    if let Some(size) = options.column_index_size {
        store.column_index_bytes = size.0;
    }
    store.disk_reserve_bytes = options.min_free_space_per_drive.0;
    store.room_wait_max = options.write_request_timeout.min(Duration::from_secs(2));
    store
}

/// The compressor of the commit log.
fn algorithm(compression: CommitLogCompression) -> codec::Algorithm {
    match compression {
        CommitLogCompression::Lz4 => codec::Algorithm::Lz4,
        CommitLogCompression::Snappy => codec::Algorithm::Snappy,
        CommitLogCompression::Deflate => codec::Algorithm::Deflate,
        CommitLogCompression::Zstd => codec::Algorithm::Zstd,
    }
}

/// The version of SSTables that is written.
pub(crate) fn sstable_version(options: &Options) -> Version {
    match (options.sstable_version, options.sstable, options.storage_compatibility_mode) {
        (Some(SstableVersion::Me), _, _) => Version::Me,
        (Some(SstableVersion::Nb), _, _) => Version::Nb,
        (Some(SstableVersion::Oa), _, _) => Version::Oa,
        (Some(SstableVersion::Da), _, _) | (None, SstableFormat::Bti, _) => Version::Da,
        (None, SstableFormat::Big, StorageCompatibilityMode::Cassandra4) => Version::Nb,
        (None, SstableFormat::Big, _) => Version::Oa,
    }
}

/// Least memory for the requests of a shard, bytes: a page of rows of some 100 kB must find room on a
/// node with little memory, too.
const REQUEST_BYTES_MIN: u64 = 4 << 20;

/// Memory for requests in flight, divided by `shards`: the setting, or 15 % of the whole but at
/// least [`REQUEST_BYTES_MIN`] for each shard of the node.
pub fn request_bytes(options: &Options, shards: u16) -> usize {
    match options.native_transport_max_request_data_in_flight {
        Some(size) => part_of(size.0, shards),
        None => {
            let least = REQUEST_BYTES_MIN.saturating_mul(u64::from(options.smp.unwrap_or(1)));
            share(options, shards, 15).max(part_of(least, shards))
        }
    }
}

/// Returns an address of the options as an IP address.
///
/// # Errors
/// `Address`: it is a host name; the program's entry resolves those.
pub fn ip(address: &Address) -> Result<IpAddr, StartError> {
    Ok(topology::seeds::ip(address)?)
}

/// Converts an address and a port.
///
/// # Errors
/// See [`ip`].
pub fn socket(address: &Address, port: u16) -> Result<SocketAddr, StartError> {
    Ok(topology::seeds::socket(address, port)?)
}

/// Limits of requests per second as the settings have them.
pub(crate) fn rate_limits(options: &Options) -> RateLimits {
    let limit = |rate: u32| (rate > 0).then_some(rate);
    let of_all = options.native_transport_max_requests_per_second;
    RateLimits {
        of_all: options.native_transport_rate_limiting_enabled.then_some(of_all),
        of_address: limit(options.native_transport_max_requests_per_second_per_ip),
        of_role: limit(options.native_transport_max_requests_per_second_per_role),
    }
}

/// Settings of the CQL servers of all shards.
///
/// # Errors
/// `Address`: the announced address is a name.
pub fn server_settings(
    options: &Options,
    encryption: PortEncryption,
) -> Result<ServerSettings, StartError> {
    let announced = socket(options.announced_rpc_address(), options.native_transport_port)?;
    let unlimited = |n: i64| usize::try_from(n).ok();
    let request_bytes_max = request_bytes(options, 1);
    let mut settings = ServerSettings::new(announced);
    announce_shard_aware_ports(&mut settings, options, encryption);
    settings.frame_bytes_max =
        usize::try_from(options.native_transport_max_frame_size.0).unwrap_or(usize::MAX);
    settings.requests_per_connection_max =
        options.native_transport_max_concurrent_requests_per_connection as usize;
    settings.query.request_bytes_max = request_bytes_max;
    settings.request_bytes_per_connection_max =
        (request_bytes_max / 4).max(settings.frame_bytes_max);
    settings.connections_max = unlimited(options.native_transport_max_concurrent_connections);
    settings.connections_per_ip_max =
        unlimited(options.native_transport_max_concurrent_connections_per_ip);
    settings.connections_per_role_max =
        unlimited(options.native_transport_max_concurrent_connections_per_role);
    settings.rate_limits = rate_limits(options);
    settings.authentication = authentication(options)?;
    settings.query.access = access_rules(options);
    let idle = options.native_transport_idle_timeout;
    settings.idle_timeout = (!idle.is_zero()).then_some(idle);
    settings.allow_older_protocols = options.native_transport_allow_older_protocols;
    settings.query.read_timeout = options.read_request_timeout;
    settings.query.range_timeout = options.range_request_timeout;
    settings.query.write_timeout = options.write_request_timeout;
    settings.query.counter_write_timeout = options.counter_write_request_timeout;
    settings.query.cas_contention_timeout = options.cas_contention_timeout;
    settings.query.request_timeout = options.request_timeout;
    settings.query.truncate_timeout = options.truncate_request_timeout;
    settings.query.tombstone_warn_threshold = options.tombstone_warn_threshold;
    settings.query.tombstone_failure_threshold = options.tombstone_failure_threshold;
    settings.query.tombstone_page_limit = options.query_tombstone_page_limit;
    settings.query.storage_address = socket(options.announced_address(), options.storage_port)?;
    settings.query.snitch = snitch_class(options.endpoint_snitch).to_owned();
    settings.credentials_validity = options.credentials_validity;
    settings.credentials_cache_max_entries =
        usize::try_from(options.credentials_cache_max_entries).unwrap_or(usize::MAX);
    settings.query.prepared_bytes_max = prepared_bytes(options);
    settings.query.dynamic_data_masking_enabled = options.dynamic_data_masking_enabled;
    settings.query.drop_compact_storage_enabled = options.drop_compact_storage_enabled;
    settings.query.user_defined_functions_enabled = options.user_defined_functions_enabled;
    settings.query.user_function_limits = FunctionLimits {
        fuel: options.user_defined_functions_fuel,
        memory_bytes: usize::try_from(options.user_defined_functions_memory.0)
            .unwrap_or(usize::MAX),
    };
    settings.query.use_statements_enabled = options.use_statements_enabled;
    settings.query.default_keyspace_rf = options.default_keyspace_rf;
    settings.query.default_compaction = default_compaction(options)?;
    settings.query.indexes = cql_plan::ddl::IndexSettings {
        default_class: options
            .default_secondary_index_enabled
            .then(|| options.default_secondary_index.clone()),
        sasi: options.sasi_indexes_enabled,
        ..cql_plan::ddl::IndexSettings::default()
    };
    settings.query.key_sources = crate::file_keys::names(options);
    settings.query.sealing = crate::file_keys::policy(options);
    settings.query.guardrails = guardrails(options);
    settings.query.native_transport_timeout = options.native_transport_timeout;
    settings.query.trace_ttl_seconds =
        i32::try_from(options.trace_type_query_ttl.as_secs()).unwrap_or(i32::MAX);
    settings.keepalive = options.rpc_keepalive;
    Ok(settings)
}

/// Authentication of clients.
///
/// # Errors
/// `Setting`: a query of `auth_certificate_role_queries` is no regular expression with one group.
pub(crate) fn authentication(options: &Options) -> Result<Authentication, StartError> {
    let mapped = || {
        let rule = match options.mutual_tls_validator {
            Some(CertificateValidator::Spiffe) => IdentityRule::Spiffe,
            // The options were checked.
            None => IdentityRule::Queries(Vec::new()),
        };
        CertificateLogin { rule, roles: RoleOfIdentity::Mapped }
    };
    Ok(match options.authenticator {
        Authenticator::AllowAll => Authentication::AllowAll,
        Authenticator::Password => Authentication::Password,
        Authenticator::MutualTls => Authentication::Certificate(mapped()),
        Authenticator::MutualTlsOrPassword => Authentication::CertificateOrPassword(mapped()),
        Authenticator::Certificate => {
            let queries = &options.auth_certificate_role_queries;
            let rule = IdentityRule::Queries(role_queries(queries)?);
            Authentication::Certificate(CertificateLogin { rule, roles: RoleOfIdentity::Named })
        }
    })
}

fn role_queries(queries: &RoleQueries) -> Result<Vec<IdentityQuery>, StartError> {
    let compile = |query: &RoleQuery| {
        let source = match query.source {
            RoleQuerySource::Subject => IdentitySource::Subject,
            RoleQuerySource::AlternativeName => IdentitySource::AlternativeName,
        };
        IdentityQuery::new(source, &query.query).map_err(|problem| {
            let name = "auth_certificate_role_queries";
            StartError::Setting(format!("\"{name}\": the query {} {problem}", query.query))
        })
    };
    queries.0.iter().map(compile).collect()
}

/// Authentication and authorization settings.
fn access_rules(options: &Options) -> AccessRules {
    AccessRules {
        passwords: options.authenticator.has_passwords(),
        permissions: options.authorizer == Authorizer::Cassandra,
        datacenters: options.network_authorizer == NetworkAuthorizer::Cassandra,
        cidrs: match options.cidr_authorizer {
            CidrAuthorizer::AllowAll => None,
            CidrAuthorizer::Cassandra => Some(CidrRules {
                enforce: options.cidr_authorizer_mode == CidrMode::Enforce,
                superusers: options.cidr_checks_for_superusers,
            }),
        },
    }
}

/// Returns the separate port for TLS, if it is set.
pub(crate) fn encrypted_port(options: &Options) -> Option<u16> {
    options.native_transport_port_ssl.filter(|port| *port != options.native_transport_port)
}

/// Names the ports for shard-aware drivers: in the clear, and with TLS.
fn announce_shard_aware_ports(
    settings: &mut ServerSettings,
    options: &Options,
    encryption: PortEncryption,
) {
    let open = |port: u16| (port != 0).then_some(port);
    let port = open(options.native_shard_aware_transport_port);
    let (plain, encrypted) = match (encryption, encrypted_port(options)) {
        (PortEncryption::Plain, _) => (port, None),
        (_, Some(_)) => (port, open(options.native_shard_aware_transport_port_ssl)),
        (PortEncryption::Optional, None) => (port, port),
        (PortEncryption::Required, None) => (None, port),
    };
    settings.shard_aware_port = plain;
    settings.shard_aware_port_ssl = encrypted;
}

/// `default_compaction` as the schema stores it.
///
/// # Errors
/// CREATE TABLE would reject the value.
pub fn default_compaction(
    options: &Options,
) -> Result<Option<BTreeMap<String, String>>, StartError> {
    let Some(class) = &options.default_compaction else { return Ok(None) };
    match cql_plan::options::default_compaction(&class.as_table_option()) {
        Ok(map) => Ok(Some(map)),
        Err(error) => {
            Err(StartError::Setting(format!("\"default_compaction\": {}", error.message)))
        }
    }
}

/// Limits on statements.
pub fn guardrails(o: &Options) -> Guardrails {
    Guardrails {
        planned: Arc::new(planned_guardrails(o)),
        timestamps: TimestampGuardrails {
            user_timestamps_enabled: o.user_timestamps_enabled,
            maximum_warn: o.maximum_timestamp_warn_threshold,
            maximum_fail: o.maximum_timestamp_fail_threshold,
            minimum_warn: o.minimum_timestamp_warn_threshold,
            minimum_fail: o.minimum_timestamp_fail_threshold,
        },
        drop_truncate_table_enabled: o.drop_truncate_table_enabled,
    }
}

/// Limits on statements of ordinary users.
fn planned_guardrails(options: &Options) -> cql_plan::guardrails::Guardrails {
    let of = |warn: i64, fail: i64| Threshold { warn, fail };
    let bytes =
        |size: Option<DataSize>| size.map_or(-1, |s| i64::try_from(s.0).unwrap_or(i64::MAX));
    let sizes = |warn, fail| Threshold { warn: bytes(warn), fail: bytes(fail) };
    let values = |warned: &[String], ignored: &[String], disallowed: &[String]| Values {
        warned: warned.to_vec(),
        ignored: ignored.to_vec(),
        disallowed: disallowed.to_vec(),
    };
    let o = options;
    cql_plan::guardrails::Guardrails {
        keyspaces: of(o.keyspaces_warn_threshold, o.keyspaces_fail_threshold),
        tables: of(o.tables_warn_threshold, o.tables_fail_threshold),
        columns_per_table: of(
            o.columns_per_table_warn_threshold,
            o.columns_per_table_fail_threshold,
        ),
        fields_per_udt: of(o.fields_per_udt_warn_threshold, o.fields_per_udt_fail_threshold),
        vector_dimensions: of(
            o.vector_dimensions_warn_threshold,
            o.vector_dimensions_fail_threshold,
        ),
        secondary_indexes_per_table: of(
            o.secondary_indexes_per_table_warn_threshold,
            o.secondary_indexes_per_table_fail_threshold,
        ),
        minimum_replication_factor: of(
            o.minimum_replication_factor_warn_threshold,
            o.minimum_replication_factor_fail_threshold,
        ),
        maximum_replication_factor: of(
            o.maximum_replication_factor_warn_threshold,
            o.maximum_replication_factor_fail_threshold,
        ),
        page_size: of(o.page_size_warn_threshold, o.page_size_fail_threshold),
        partition_keys_in_select: of(
            o.partition_keys_in_select_warn_threshold,
            o.partition_keys_in_select_fail_threshold,
        ),
        in_select_cartesian_product: of(
            o.in_select_cartesian_product_warn_threshold,
            o.in_select_cartesian_product_fail_threshold,
        ),
        column_value_size: sizes(
            o.column_value_size_warn_threshold,
            o.column_value_size_fail_threshold,
        ),
        collection_size: sizes(o.collection_size_warn_threshold, o.collection_size_fail_threshold),
        items_per_collection: of(
            o.items_per_collection_warn_threshold,
            o.items_per_collection_fail_threshold,
        ),
        sai_string_term_size: sizes(
            o.sai_string_term_size_warn_threshold,
            o.sai_string_term_size_fail_threshold,
        ),
        sai_frozen_term_size: sizes(
            o.sai_frozen_term_size_warn_threshold,
            o.sai_frozen_term_size_fail_threshold,
        ),
        sai_vector_term_size: sizes(
            o.sai_vector_term_size_warn_threshold,
            o.sai_vector_term_size_fail_threshold,
        ),
        allow_filtering: Feature::of(o.allow_filtering_enabled),
        alter_table: Feature::of(o.alter_table_enabled),
        compact_tables: Feature::of(o.compact_tables_enabled),
        drop_keyspace: Feature::of(o.drop_keyspace_enabled),
        group_by: Feature::of(o.group_by_enabled),
        intersect_filtering_query: Feature {
            enabled: o.intersect_filtering_query_enabled,
            warned: o.intersect_filtering_query_warned,
        },
        non_partition_restricted_index_query: Feature::of(
            o.non_partition_restricted_index_query_enabled,
        ),
        read_before_write_list_operations: Feature::of(o.read_before_write_list_operations_enabled),
        secondary_indexes: Feature::of(o.secondary_indexes_enabled),
        simplestrategy: Feature::of(o.simplestrategy_enabled),
        uncompressed_tables: Feature::of(o.uncompressed_tables_enabled),
        vector_type: Feature::of(o.vector_type_enabled),
        zero_ttl_on_twcs: Feature {
            enabled: o.zero_ttl_on_twcs_enabled,
            warned: o.zero_ttl_on_twcs_warned,
        },
        table_properties: values(
            &o.table_properties_warned,
            &o.table_properties_ignored,
            &o.table_properties_disallowed,
        ),
        read_consistency_levels: values(
            &o.read_consistency_levels_warned,
            &[],
            &o.read_consistency_levels_disallowed,
        ),
        write_consistency_levels: values(
            &o.write_consistency_levels_warned,
            &[],
            &o.write_consistency_levels_disallowed,
        ),
    }
}

/// Partitions with more bytes in one file are large if `partition_size_warn_threshold` is not set:
/// ScyllaDB's default of `compaction_large_partition_warning_threshold_mb`.
const LARGE_PARTITION_BYTES: u64 = 1_000 << 20;

/// Limits on partitions and collections of files.
pub fn partition_guardrails(o: &Options) -> store::PartitionGuardrails {
    let size = |size: Option<conf::DataSize>| size.map(|size| size.0).filter(|n| *n > 0);
    let number = |n: i64| u64::try_from(n).ok().filter(|n| *n > 0);
    store::PartitionGuardrails {
        size: store::Thresholds {
            warn: size(o.partition_size_warn_threshold),
            fail: size(o.partition_size_fail_threshold),
        },
        tombstones: store::Thresholds {
            warn: number(o.partition_tombstones_warn_threshold),
            fail: number(o.partition_tombstones_fail_threshold),
        },
        collection_size: store::Thresholds {
            warn: size(o.collection_size_warn_threshold),
            fail: size(o.collection_size_fail_threshold),
        },
        collection_items: store::Thresholds {
            warn: number(o.items_per_collection_warn_threshold),
            fail: number(o.items_per_collection_fail_threshold),
        },
    }
}

/// Returns the sizes above which partitions, rows and cells of files are listed in the tables of
/// large data.
pub fn large_thresholds(o: &Options) -> store::LargeThresholds {
    let above = |n: u64| if n == 0 { u64::MAX } else { n };
    store::LargeThresholds {
        partition_bytes: LARGE_PARTITION_BYTES,
        partition_rows: above(u64::from(o.compaction_rows_count_warning_threshold)),
        row_bytes: above(o.compaction_large_row_warning_threshold.0),
        cell_bytes: above(o.compaction_large_cell_warning_threshold.0),
        elements: above(u64::from(o.compaction_collection_elements_count_warning_threshold)),
    }
}

/// Java class of a snitch, as DESCRIBE CLUSTER and nodetool show it.
fn snitch_class(snitch: Snitch) -> &'static str {
    match snitch {
        Snitch::Simple => "org.apache.cassandra.locator.SimpleSnitch",
        Snitch::GossipingPropertyFile => "org.apache.cassandra.locator.GossipingPropertyFileSnitch",
        Snitch::PropertyFile => "org.apache.cassandra.locator.PropertyFileSnitch",
        Snitch::RackInferring => "org.apache.cassandra.locator.RackInferringSnitch",
    }
}

/// Memory for the prepared statements of one shard; every shard has all of them.
fn prepared_bytes(options: &Options) -> usize {
    const LEAST: u64 = 10 << 20;
    let bytes = match options.prepared_statements_cache_size {
        Some(size) => size.0,
        None => (memory(options) / 256).max(LEAST),
    };
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Limits that plans enforce.
pub fn plan_limits(options: &Options) -> PlanLimits {
    let bytes = |size: conf::DataSize| usize::try_from(size.0).unwrap_or(usize::MAX);
    PlanLimits {
        batch_bytes_warn: bytes(options.batch_size_warn_threshold),
        batch_bytes_fail: bytes(options.batch_size_fail_threshold),
        unlogged_batch_partitions_warn: options.unlogged_batch_across_partitions_warn_threshold
            as usize,
        expiry_max: expiry_max(options),
        mutation_bytes_max: usize::try_from(options.mutation_bytes_max()).unwrap_or(usize::MAX),
    }
}

/// Returns the last second at which clients' writes may expire. It is after 2038-01-19 only if the
/// setting says that all nodes write files with such times ("NONE"), and this one does.
fn expiry_max(options: &Options) -> DeletionSeconds {
    let everywhere = options.storage_compatibility_mode == StorageCompatibilityMode::None;
    match everywhere && sstable_version(options).has_uint_times() {
        true => DeletionSeconds::MAX_UNSIGNED,
        false => DeletionSeconds::MAX_SIGNED,
    }
}

/// Builds the facts about the node for administration.
///
/// # Errors
/// `Address`: the announced address is a name.
pub fn node_facts(options: &Options, started_at_seconds: i64) -> Result<NodeFacts, StartError> {
    Ok(NodeFacts {
        address: ip(options.announced_address())?.to_string(),
        storage_port: options.storage_port,
        snitch: snitch_class(options.endpoint_snitch).to_owned(),
        partitioner: "org.apache.cassandra.dht.Murmur3Partitioner".to_owned(),
        release_version: "5.0.9".to_owned(),
        server_version: env!("CARGO_PKG_VERSION").to_owned(),
        generation: started_at_seconds,
        memory_bytes_max: memory(options),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use conf::Options;

    #[test]
    fn settings_reach_the_parts_that_act_on_them() {
        let options = Options {
            max_mutation_size: Some(DataSize(5 << 20)),
            commitlog_total_space: Some(DataSize(100 << 20)),
            commitlog_compression: Some(CommitLogCompression::Zstd),
            flush_compression: FlushCompression::Table,
            memtable_heap_space: Some(DataSize(64 << 20)),
            column_index_size: Some(DataSize(4 << 10)),
            min_free_space_per_drive: DataSize(7),
            snapshot_before_compaction: true,
            incremental_backups: true,
            credentials_validity: Duration::from_secs(9),
            credentials_cache_max_entries: 8,
            prepared_statements_cache_size: Some(DataSize(3 << 20)),
            drop_truncate_table_enabled: false,
            dynamic_data_masking_enabled: true,
            use_statements_enabled: false,
            storage_port: 7007,
            ..Options::default()
        };
        let host = HostId(stdx::Uuid::from_u128(1));
        let store = store_options(&options, host, 1, 2);
        assert_eq!((store.mutation_bytes_max, store.column_index_bytes), (5 << 20, 4 << 10));
        assert_eq!((store.commitlog_bytes_max, store.memtable_bytes_max), (50 << 20, 32 << 20));
        assert_eq!(store.disk_reserve_bytes, 7);
        assert_eq!(store.commitlog_compression, Some(codec::Algorithm::Zstd));
        assert_eq!(store.flush_compression, store::FlushCompression::Table);
        assert!(store.snapshot_before_compaction && store.incremental_backups);
        let server = server_settings(&options, PortEncryption::Plain).unwrap();
        assert_eq!(server.query.storage_address.to_string(), "127.0.0.1:7007");
        assert_eq!(server.query.snitch, "org.apache.cassandra.locator.SimpleSnitch");
        assert_eq!(server.credentials_validity, Duration::from_secs(9));
        assert_eq!(server.credentials_cache_max_entries, 8);
        assert_eq!(server.query.prepared_bytes_max, 3 << 20);
        assert!(
            !server.query.guardrails.drop_truncate_table_enabled
                && !server.query.use_statements_enabled
        );
        assert!(server.query.dynamic_data_masking_enabled);
    }

    #[test]
    fn settings_of_cassandras_select_the_version_of_sstables_unless_ours_does() {
        use StorageCompatibilityMode::{Cassandra4, None as Latest, Upgrading};
        let of = |version, sstable, mode| {
            let options = Options {
                sstable_version: version,
                sstable,
                storage_compatibility_mode: mode,
                ..Options::default()
            };
            let host = HostId(stdx::Uuid::from_u128(1));
            store_options(&options, host, 1, 1).sstable_version
        };
        assert_eq!(of(None, SstableFormat::Big, Cassandra4), Version::Nb);
        for mode in [Upgrading, Latest] {
            assert_eq!(of(None, SstableFormat::Big, mode), Version::Oa);
            assert_eq!(of(None, SstableFormat::Bti, mode), Version::Da);
            assert_eq!(of(Some(SstableVersion::Nb), SstableFormat::Bti, mode), Version::Nb);
        }
        assert_eq!(of(Some(SstableVersion::Me), SstableFormat::Big, Cassandra4), Version::Me);
        assert_eq!(of(Some(SstableVersion::Oa), SstableFormat::Bti, Latest), Version::Oa);
        assert_eq!(of(Some(SstableVersion::Da), SstableFormat::Big, Cassandra4), Version::Da);
    }

    #[test]
    fn expiries_end_in_2106_only_where_no_node_writes_files_that_end_in_2038() {
        use StorageCompatibilityMode::{Cassandra4, None as Latest, Upgrading};
        let of = |sstable_version, storage_compatibility_mode| {
            let options =
                Options { sstable_version, storage_compatibility_mode, ..Options::default() };
            plan_limits(&options).expiry_max
        };
        for mode in [Cassandra4, Upgrading] {
            for version in [None, Some(SstableVersion::Oa), Some(SstableVersion::Da)] {
                assert_eq!(of(version, mode), DeletionSeconds::MAX_SIGNED, "{version:?} {mode:?}");
            }
        }
        for version in [None, Some(SstableVersion::Oa), Some(SstableVersion::Da)] {
            assert_eq!(of(version, Latest), DeletionSeconds::MAX_UNSIGNED, "{version:?}");
        }
        for version in [SstableVersion::Me, SstableVersion::Nb] {
            assert_eq!(of(Some(version), Latest), DeletionSeconds::MAX_SIGNED, "{version:?}");
        }
    }

    #[test]
    fn guardrails_are_the_plans_defaults_unless_set() {
        let of = |options: &Options| guardrails(options).planned;
        assert_eq!(*of(&Options::default()), cql_plan::guardrails::Guardrails::default());
        // Each one that is set reaches a limit of its own, of statements or of partitions in files.
        let both = |options: &Options| (of(options), partition_guardrails(options));
        assert_eq!(both(&Options::default()).1, store::PartitionGuardrails::default());
        let mut seen = vec![both(&Options::default())];
        for guardrail in conf::guardrails::report(&Options::default()) {
            let name = guardrail.name.as_str();
            let on_everybody = ["maximum_timestamp", "minimum_timestamp", "user_", "drop_truncate"];
            if on_everybody.iter().any(|begin| name.starts_with(begin)) {
                continue;
            }
            // `disk_usage` enforces these limits of the node itself.
            if name.starts_with("data_disk_usage") {
                continue;
            }
            let given: &[&str] = match guardrail.settings.first().map(|(_, v)| v.as_str()) {
                Some("true") => &["false"],
                Some("null") => &["2B", "1B"],
                _ if name.ends_with("_term_size_threshold") => &["2B", "1B"],
                Some("-1") if name.starts_with("minimum") => &["1", "2"],
                Some("-1") => &["2", "1"],
                _ if name.contains("levels") => &["ANY"],
                _ => &["cdc"],
            };
            let given: Vec<String> = given.iter().map(|g| (*g).to_owned()).collect();
            let mut options = Options::default();
            conf::guardrails::set(&mut options, name, &given).unwrap();
            let limits = both(&options);
            assert!(!seen.contains(&limits), "{name}");
            seen.push(limits);
        }
    }

    #[test]
    fn a_query_of_roles_that_captures_nothing_stops_the_start() {
        let with = |query: &str| Options {
            authenticator: Authenticator::Certificate,
            auth_certificate_role_queries: RoleQueries(vec![RoleQuery {
                source: RoleQuerySource::Subject,
                query: query.to_owned(),
            }]),
            ..Options::default()
        };
        assert!(authentication(&with("CN=([^,]+)")).is_ok());
        let error = authentication(&with("CN=[^,]+")).unwrap_err().to_string();
        let expected = "\"auth_certificate_role_queries\": the query CN=[^,]+ has 0 groups";
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn a_default_compaction_that_no_table_could_have_stops_the_start() {
        let options = |class: &str, name: &str, value: &str| Options {
            default_compaction: Some(conf::ParameterizedClass {
                class_name: class.to_owned(),
                parameters: BTreeMap::from([(name.to_owned(), value.to_owned())]),
            }),
            ..Options::default()
        };
        let map = |class, name, value| default_compaction(&options(class, name, value));
        let unified =
            map("UnifiedCompactionStrategy", "scaling_parameters", "T4").unwrap().unwrap();
        assert!(unified["class"].ends_with(".UnifiedCompactionStrategy"));
        let error = map("UnifiedCompactionStrategy", "scaling_parameters", "X").unwrap_err();
        assert!(error.to_string().contains("\"default_compaction\""), "{error}");
        assert!(map("NoStrategy", "a", "b").is_err());
        assert!(map("SizeTieredCompactionStrategy", "no_option", "1").is_err());
        assert_eq!(default_compaction(&Options::default()).unwrap(), None);
    }

    #[test]
    fn what_is_not_set_has_cassandras_defaults() {
        let options = Options::default();
        let store = store_options(&options, HostId(stdx::Uuid::from_u128(1)), 1, 1);
        assert_eq!((store.mutation_bytes_max, store.column_index_bytes), (16 << 20, 8 << 10));
        assert_eq!(store.commitlog_bytes_max, 8 << 30);
        assert!(!store.snapshot_before_compaction && !store.incremental_backups);
        let server = server_settings(&options, PortEncryption::Plain).unwrap();
        assert_eq!(server.query.prepared_bytes_max, 10 << 20);
        assert!(
            server.query.guardrails.drop_truncate_table_enabled
                && server.query.use_statements_enabled
        );
        assert!(!server.query.dynamic_data_masking_enabled);
    }
}
