//! Settings of Cassandra 5.0 that are known and have no effect here, and those that ask for unsupported protection.
//!
//! Owns: their names and Cassandra's defaults, so that a stock cassandra.yaml gives one calm line
//! instead of a hundred. Never: types of their values.
//! Source: Cassandra 5.0 `Config.java` and the values of its `conf/cassandra.yaml` where they differ.

use crate::value::{class_name, parse_duration, parse_rate, parse_size};
use crate::yaml::{Node, NodeKind};

/// Known names with Cassandra's default, empty where nothing is set; sorted by name.
pub const NOT_YET: &[(&str, &str)] = &[
    ("allocate_tokens_for_keyspace", ""),
    ("allow_extra_insecure_udfs", "false"),
    ("allow_insecure_udfs", "false"),
    ("auth_cache_warming_enabled", "false"),
    ("auth_read_consistency_level", "LOCAL_QUORUM"),
    ("auth_write_consistency_level", "EACH_QUORUM"),
    ("auto_hints_cleanup_enabled", "false"),
    ("auto_optimise_full_repair_streams", "false"),
    ("auto_optimise_inc_repair_streams", "false"),
    ("auto_optimise_preview_repair_streams", "false"),
    ("auto_snapshot_ttl", ""),
    ("autocompaction_on_startup_enabled", "true"),
    ("automatic_sstable_upgrade", "false"),
    ("available_processors", "-1"),
    ("back_pressure_enabled", "false"),
    ("back_pressure_strategy", ""),
    ("block_for_peers_in_remote_dcs", "false"),
    ("block_for_peers_timeout_in_secs", "10"),
    ("buffer_pool_use_heap_if_exhausted", "false"),
    ("cdc_block_writes", "true"),
    ("cdc_enabled", "false"),
    ("cdc_free_space_check_interval", "250ms"),
    ("cdc_on_repair_enabled", "true"),
    ("cdc_raw_directory", ""),
    ("cdc_total_space", "0MiB"),
    ("check_for_duplicate_rows_during_compaction", "true"),
    ("check_for_duplicate_rows_during_reads", "true"),
    ("client_error_reporting_exclusions", ""),
    ("client_request_size_metrics_enabled", "true"),
    ("column_index_cache_size", "2KiB"),
    ("commitlog_disk_access_mode", "legacy"),
    ("commitlog_max_compression_buffers_in_pool", "3"),
    ("concurrent_counter_writes", "32"),
    ("concurrent_index_builders", "2"),
    ("concurrent_materialized_view_builders", "1"),
    ("concurrent_materialized_view_writes", "32"),
    ("concurrent_merkle_tree_requests", "0"),
    ("concurrent_reads", "32"),
    ("concurrent_validations", "0"),
    ("concurrent_writes", "32"),
    ("consecutive_message_errors_threshold", "1"),
    ("coordinator_read_size_fail_threshold", ""),
    ("coordinator_read_size_warn_threshold", ""),
    ("corrupted_tombstone_strategy", "disabled"),
    ("cql_start_time", "REQUEST"),
    ("crypto_provider", "DefaultCryptoProvider"),
    ("denylist_consistency_level", "QUORUM"),
    ("denylist_initial_load_retry", "5s"),
    ("denylist_max_keys_per_table", "1000"),
    ("denylist_max_keys_total", "10000"),
    ("denylist_range_reads_enabled", "true"),
    ("denylist_reads_enabled", "true"),
    ("denylist_refresh", "600s"),
    ("denylist_writes_enabled", "true"),
    ("diagnostic_events_enabled", "false"),
    ("disk_access_mode", "mmap_index_only"),
    ("disk_optimization_estimate_percentile", "0.95"),
    ("disk_optimization_page_cross_chance", "0.1"),
    ("disk_optimization_strategy", "ssd"),
    ("dump_heap_on_uncaught_exception", "false"),
    ("enforce_native_deadline_for_hints", "false"),
    ("entire_sstable_inter_dc_stream_throughput_outbound", "24MiB/s"),
    ("entire_sstable_stream_throughput_outbound", "24MiB/s"),
    ("failure_detector", "FailureDetector"),
    ("file_cache_enabled", "false"),
    ("file_cache_round_up", ""),
    ("file_cache_size", ""),
    ("force_new_prepared_statement_behaviour", "false"),
    ("gc_log_threshold", "200ms"),
    ("gc_warn_threshold", "1s"),
    ("heap_dump_path", "heapdump"),
    ("hints_compression", ""),
    ("ideal_consistency_level", ""),
    ("index_summary_capacity", ""),
    ("index_summary_resize_interval", "60m"),
    ("initial_range_tombstone_list_allocation_size", "1"),
    ("inter_dc_tcp_nodelay", "false"),
    ("internode_application_receive_queue_capacity", "4MiB"),
    ("internode_application_receive_queue_reserve_endpoint_capacity", "128MiB"),
    ("internode_application_receive_queue_reserve_global_capacity", "512MiB"),
    ("internode_application_send_queue_capacity", "4MiB"),
    ("internode_application_send_queue_reserve_endpoint_capacity", "128MiB"),
    ("internode_application_send_queue_reserve_global_capacity", "512MiB"),
    ("internode_error_reporting_exclusions", ""),
    ("internode_socket_receive_buffer_size", "0B"),
    ("internode_socket_send_buffer_size", "0B"),
    ("internode_streaming_tcp_user_timeout", "300s"),
    ("internode_tcp_user_timeout", "30s"),
    ("internode_timeout", "true"),
    ("key_cache_keys_to_save", "2147483647"),
    ("key_cache_migrate_during_compaction", "true"),
    ("key_cache_save_period", "4h"),
    ("key_cache_size", ""),
    ("listen_interface", ""),
    ("listen_interface_prefer_ipv6", "false"),
    ("listen_on_broadcast_address", "false"),
    ("local_read_size_fail_threshold", ""),
    ("local_read_size_warn_threshold", ""),
    ("local_system_data_file_directory", ""),
    ("log_out_of_token_range_requests", "true"),
    ("materialized_views_enabled", "false"),
    ("materialized_views_per_table_fail_threshold", "-1"),
    ("materialized_views_per_table_warn_threshold", "-1"),
    ("max_concurrent_automatic_sstable_upgrades", "1"),
    ("max_space_usable_for_compactions_in_percentage", ".95"),
    ("max_streaming_retries", "3"),
    ("max_top_size_partition_count", "10"),
    ("max_top_tombstone_partition_count", "10"),
    ("memtable", ""),
    ("memtable_allocation_type", "heap_buffers"),
    ("memtable_cleanup_threshold", ""),
    ("memtable_flush_writers", "0"),
    ("memtable_offheap_space", ""),
    ("min_tracked_partition_size", "1MiB"),
    ("min_tracked_partition_tombstone_count", "5000"),
    ("native_transport_flush_in_batches_legacy", "false"),
    ("native_transport_max_auth_threads", "4"),
    ("native_transport_max_backoff_on_queue_overload", "200ms"),
    ("native_transport_max_threads", "128"),
    ("native_transport_min_backoff_on_queue_overload", "10ms"),
    ("native_transport_queue_max_item_age_threshold", "1.7976931348623157E308"),
    ("native_transport_receive_queue_capacity", "1MiB"),
    ("native_transport_throw_on_overload", "false"),
    ("networking_cache_size", ""),
    ("otc_backlog_expiration_interval_ms", "otc_backlog_expiration_interval_ms_default"),
    ("otc_coalescing_enough_coalesced_messages", "8"),
    ("otc_coalescing_strategy", "DISABLED"),
    ("otc_coalescing_window_us", "otc_coalescing_window_us_default"),
    ("paxos_cache_size", ""),
    ("paxos_contention_max_wait", ""),
    ("paxos_contention_min_delta", ""),
    ("paxos_contention_min_wait", ""),
    ("paxos_contention_wait_randomizer", ""),
    ("paxos_on_linearizability_violations", "ignore"),
    ("paxos_purge_grace_period", "60s"),
    ("paxos_repair_enabled", "true"),
    ("paxos_repair_parallelism", "-1"),
    ("paxos_state_purging", ""),
    ("paxos_topology_repair_no_dc_checks", "false"),
    ("paxos_topology_repair_strict_each_quorum", "false"),
    ("paxos_variant", "v1"),
    ("periodic_commitlog_sync_lag_block", ""),
    ("range_tombstone_list_growth_factor", "1.5"),
    ("read_thresholds_enabled", "false"),
    ("reject_out_of_token_range_requests", "false"),
    ("reject_repair_compaction_threshold", "2147483647"),
    ("repair", ""),
    ("repair_command_pool_full_strategy", "queue"),
    ("repair_command_pool_size", "0"),
    ("repair_request_timeout", "120000ms"),
    ("repair_session_max_tree_depth", ""),
    ("repair_session_space", ""),
    ("repair_state_expires", "3d"),
    ("repair_state_size", "100000"),
    ("repaired_data_tracking_for_partition_reads_enabled", "false"),
    ("repaired_data_tracking_for_range_reads_enabled", "false"),
    ("replica_filtering_protection", ""),
    ("report_unconfirmed_repaired_data_mismatches", "false"),
    ("row_cache_class_name", "OHCProvider"),
    ("row_index_read_size_fail_threshold", ""),
    ("row_index_read_size_warn_threshold", ""),
    ("rpc_interface", ""),
    ("rpc_interface_prefer_ipv6", "false"),
    ("sai_options", ""),
    ("sai_sstable_indexes_per_query_fail_threshold", "-1"),
    ("sai_sstable_indexes_per_query_warn_threshold", "32"),
    ("scripted_user_defined_functions_enabled", "false"),
    ("severity_during_decommission", "0"),
    ("skip_paxos_repair_on_topology_change", "false"),
    ("skip_paxos_repair_on_topology_change_keyspaces", ""),
    ("skip_stream_disk_space_check", "false"),
    ("snapshot_on_duplicate_row_detection", "false"),
    ("snapshot_on_repaired_data_mismatch", "false"),
    ("sstable_preemptive_open_interval", "50MiB"),
    ("sstable_read_rate_persistence_enabled", "false"),
    ("startup_checks", ""),
    ("stream_transfer_task_timeout", "12h"),
    ("streaming_connections_per_host", "1"),
    ("streaming_keep_alive_period", "300s"),
    ("streaming_slow_events_log_timeout", "10s"),
    ("streaming_state_expires", "3d"),
    ("streaming_state_size", "40MiB"),
    ("streaming_stats_enabled", "true"),
    ("top_partitions_enabled", "true"),
    ("transient_replication_enabled", "false"),
    ("traverse_auth_from_root", "false"),
    ("trickle_fsync", "false"),
    ("trickle_fsync_interval", "10240KiB"),
    ("use_deterministic_table_id", "false"),
    ("use_offheap_merkle_trees", "true"),
    ("user_defined_functions_fail_timeout", "1500ms"),
    ("user_defined_functions_threads_enabled", "true"),
    ("user_defined_functions_warn_timeout", "500ms"),
    ("user_function_timeout_policy", "die"),
    ("uuid_sstable_identifiers_enabled", "false"),
    ("validation_preview_purge_head_start", "3600s"),
    ("windows_timer_interval", "0"),
];

/// Names of ScyllaDB's options that have no meaning here; a warning names them.
pub const SCYLLA_ONLY: &[&str] = &[
    "alternator_port",
    "api_ui_dir",
    "api_doc_dir",
    "blocked_reactor_notify_ms",
    "consistent_cluster_management",
    "default_log_level",
    "developer_mode",
    "enable_tablets",
    "idle_poll_time_us",
    "io_properties_file",
    "io_setup",
    "lock_memory",
    "max_io_requests",
    "murmur3_partitioner_ignore_msb_bits",
    "overprovisioned",
    "poll_mode",
    "prometheus_address",
    "prometheus_port",
    "reactor_backend",
    "task_quota_ms",
    "unsafe_bypass_fsync",
];

/// Settings that ask for protection, with the name of that protection; see [`asks_for_protection`].
pub const PROTECTS: &[(&str, &str)] = &[
    ("partition_denylist_enabled", "a list of denied partitions"),
    ("role_manager", "a role manager other than CassandraRoleManager"),
    ("transparent_data_encryption_options", "encryption of files"),
];

/// Returns true if `node`, a value of the setting `name` of [`PROTECTS`], asks for any protection.
///
/// A value that cannot be understood asks for protection: the start stops rather than guesses.
pub fn asks_for_protection(name: &str, node: &Node) -> bool {
    let class_is = |allowed: &[&str]| class_name(node).is_some_and(|c| allowed.contains(&c));
    match name {
        "role_manager" => !class_is(&["CassandraRoleManager"]),
        "transparent_data_encryption_options" => {
            !(matches!(node.kind, NodeKind::Map(_)) && node.get("enabled").is_none_or(off))
        }
        "partition_denylist_enabled" => !off(node),
        _ => true,
    }
}

/// Returns true if `node` means the same as Cassandra's default of a setting of [`NOT_YET`].
pub fn is_default(default: &str, node: &Node) -> bool {
    if default.is_empty() {
        return matches!(&node.kind, NodeKind::List(items) if items.is_empty());
    }
    let Some(text) = class_name(node).or_else(|| node.text()) else {
        return false;
    };
    let text = match node.text() {
        Some(whole) => whole.trim(),
        None => text,
    };
    let same_number = || Some(text.parse::<f64>().ok()? == default.parse::<f64>().ok()?);
    let same_duration = || Some(parse_duration(text)? == parse_duration(default)?);
    let same_size = || Some(parse_size(text)? == parse_size(default)?);
    let same_rate = || Some(parse_rate(text)? == parse_rate(default)?);
    text.eq_ignore_ascii_case(default)
        || same_number() == Some(true)
        || same_duration() == Some(true)
        || same_size() == Some(true)
        || same_rate() == Some(true)
}

fn off(node: &Node) -> bool {
    says(node, &["false", "no", "off"])
}

fn says(node: &Node, words: &[&str]) -> bool {
    node.is_null()
        || node.text().is_some_and(|t| words.iter().any(|w| t.trim().eq_ignore_ascii_case(w)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml::parse;

    #[test]
    fn tables_are_sorted_and_hold_no_name_twice() {
        assert!(NOT_YET.is_sorted_by(|a, b| a.0 < b.0));
        assert!(PROTECTS.is_sorted_by(|a, b| a.0 < b.0));
        assert!(SCYLLA_ONLY.iter().all(|n| NOT_YET.iter().all(|k| k.0 != *n)));
        for (name, _) in NOT_YET.iter().chain(PROTECTS) {
            assert!(crate::options::NAMES.iter().all(|(n, _)| n != name), "{name}");
        }
    }

    #[test]
    fn protection_is_asked_for_by_the_value_not_by_the_name() {
        for (name, yaml, asks) in [
            ("transparent_data_encryption_options", "{enabled: false, cipher: x}", false),
            ("transparent_data_encryption_options", "{enabled: true}", true),
            ("transparent_data_encryption_options", "{enabled: maybe}", true),
            ("transparent_data_encryption_options", "yes", true),
            ("role_manager", "{class_name: CassandraRoleManager}", false),
            ("role_manager", "org.apache.cassandra.auth.CassandraRoleManager", false),
            ("role_manager", "LdapRoleManager", true),
            ("partition_denylist_enabled", "false", false),
            ("partition_denylist_enabled", "true", true),
        ] {
            assert_eq!(asks_for_protection(name, &parse(yaml).unwrap()), asks, "{name}: {yaml}");
        }
    }

    #[test]
    fn a_default_is_recognised_in_other_units() {
        assert!(is_default("10s", &Node::scalar("10000ms")));
        assert!(is_default("1024KiB", &Node::scalar("1MiB")));
        assert!(is_default("8.0", &Node::scalar("8")));
        assert!(!is_default("10s", &Node::scalar("11s")));
        assert!(!is_default("", &Node::scalar("x")));
    }
}
