//! Cassandra's old spellings: names whose unit was part of the name and whose value was a number.
//!
//! Owns: the map of old to new names, and the conversion of the number to a value of today's
//! grammar. Never: the settings themselves.
//! Source: the `@Replaces` annotations of Cassandra 5.0 `Config.java` and its `Converters`.

use crate::yaml::{Node, NodeKind};

/// Unit of the number in an old spelling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// The value has today's grammar; only the name changed.
    Same,
    /// Milliseconds.
    Millis,
    /// Milliseconds; -1 is unset.
    MillisOrUnset,
    /// Seconds.
    Seconds,
    /// Seconds; a negative value is 0.
    SecondsOrZero,
    /// Seconds when it is a bare number, else today's grammar; the name is also the new one.
    SecondsBare,
    /// Minutes; -1 is unset.
    MinutesOrUnset,
    /// Bytes.
    Bytes,
    /// Bytes; -1 is unset.
    BytesOrUnset,
    /// KiB.
    Kibibytes,
    /// MiB.
    Mebibytes,
    /// MiB; a negative value is unset.
    MebibytesOrUnset,
    /// MiB per second.
    MebibytesPerSecond,
    /// Megabits (10^6) per second.
    MegabitsPerSecond,
}

/// Old name, new name, unit; sorted by old name.
pub const REPLACED: &[(&str, &str, Unit)] = &[
    ("batch_size_fail_threshold_in_kb", "batch_size_fail_threshold", Unit::Kibibytes),
    ("batch_size_warn_threshold_in_kb", "batch_size_warn_threshold", Unit::Kibibytes),
    ("batchlog_replay_throttle_in_kb", "batchlog_replay_throttle", Unit::Kibibytes),
    ("cache_load_timeout_seconds", "cache_load_timeout", Unit::SecondsOrZero),
    ("cas_contention_timeout_in_ms", "cas_contention_timeout", Unit::Millis),
    ("cdc_free_space_check_interval_ms", "cdc_free_space_check_interval", Unit::Millis),
    ("cdc_total_space_in_mb", "cdc_total_space", Unit::Mebibytes),
    ("column_index_cache_size_in_kb", "column_index_cache_size", Unit::Kibibytes),
    ("column_index_size_in_kb", "column_index_size", Unit::Kibibytes),
    ("commitlog_segment_size_in_mb", "commitlog_segment_size", Unit::Mebibytes),
    ("commitlog_sync_group_window_in_ms", "commitlog_sync_group_window", Unit::Millis),
    ("commitlog_sync_period_in_ms", "commitlog_sync_period", Unit::Millis),
    ("commitlog_total_space_in_mb", "commitlog_total_space", Unit::Mebibytes),
    (
        "compaction_large_cell_warning_threshold_mb",
        "compaction_large_cell_warning_threshold",
        Unit::Mebibytes,
    ),
    ("compaction_large_partition_warning_threshold", "partition_size_warn_threshold", Unit::Same),
    (
        "compaction_large_partition_warning_threshold_mb",
        "partition_size_warn_threshold",
        Unit::Mebibytes,
    ),
    (
        "compaction_large_row_warning_threshold_mb",
        "compaction_large_row_warning_threshold",
        Unit::Mebibytes,
    ),
    ("compaction_throughput_mb_per_sec", "compaction_throughput", Unit::MebibytesPerSecond),
    ("compaction_tombstone_warning_threshold", "partition_tombstones_warn_threshold", Unit::Same),
    ("counter_cache_save_period", "counter_cache_save_period", Unit::SecondsBare),
    ("counter_cache_size_in_mb", "counter_cache_size", Unit::Mebibytes),
    ("counter_write_request_timeout_in_ms", "counter_write_request_timeout", Unit::Millis),
    ("credentials_update_interval_in_ms", "credentials_update_interval", Unit::MillisOrUnset),
    ("credentials_validity_in_ms", "credentials_validity", Unit::Millis),
    ("cross_node_timeout", "internode_timeout", Unit::Same),
    ("dynamic_snitch_reset_interval_in_ms", "dynamic_snitch_reset_interval", Unit::Millis),
    ("dynamic_snitch_update_interval_in_ms", "dynamic_snitch_update_interval", Unit::Millis),
    ("enable_drop_compact_storage", "drop_compact_storage_enabled", Unit::Same),
    ("enable_materialized_views", "materialized_views_enabled", Unit::Same),
    ("enable_sasi_indexes", "sasi_indexes_enabled", Unit::Same),
    (
        "enable_scripted_user_defined_functions",
        "scripted_user_defined_functions_enabled",
        Unit::Same,
    ),
    ("enable_transient_replication", "transient_replication_enabled", Unit::Same),
    ("enable_user_defined_functions", "user_defined_functions_enabled", Unit::Same),
    ("enable_user_defined_functions_threads", "user_defined_functions_threads_enabled", Unit::Same),
    ("file_cache_size_in_mb", "file_cache_size", Unit::Mebibytes),
    ("gc_log_threshold_in_ms", "gc_log_threshold", Unit::Millis),
    ("gc_warn_threshold_in_ms", "gc_warn_threshold", Unit::Millis),
    ("hinted_handoff_throttle_in_kb", "hinted_handoff_throttle", Unit::Kibibytes),
    ("hints_flush_period_in_ms", "hints_flush_period", Unit::Millis),
    ("index_summary_capacity_in_mb", "index_summary_capacity", Unit::Mebibytes),
    (
        "index_summary_resize_interval_in_minutes",
        "index_summary_resize_interval",
        Unit::MinutesOrUnset,
    ),
    (
        "inter_dc_stream_throughput_outbound_megabits_per_sec",
        "inter_dc_stream_throughput_outbound",
        Unit::MegabitsPerSecond,
    ),
    (
        "internode_application_receive_queue_capacity_in_bytes",
        "internode_application_receive_queue_capacity",
        Unit::Bytes,
    ),
    (
        "internode_application_receive_queue_reserve_endpoint_capacity_in_bytes",
        "internode_application_receive_queue_reserve_endpoint_capacity",
        Unit::Bytes,
    ),
    (
        "internode_application_receive_queue_reserve_global_capacity_in_bytes",
        "internode_application_receive_queue_reserve_global_capacity",
        Unit::Bytes,
    ),
    (
        "internode_application_send_queue_capacity_in_bytes",
        "internode_application_send_queue_capacity",
        Unit::Bytes,
    ),
    (
        "internode_application_send_queue_reserve_endpoint_capacity_in_bytes",
        "internode_application_send_queue_reserve_endpoint_capacity",
        Unit::Bytes,
    ),
    (
        "internode_application_send_queue_reserve_global_capacity_in_bytes",
        "internode_application_send_queue_reserve_global_capacity",
        Unit::Bytes,
    ),
    ("internode_max_message_size_in_bytes", "internode_max_message_size", Unit::Bytes),
    ("internode_recv_buff_size_in_bytes", "internode_socket_receive_buffer_size", Unit::Bytes),
    ("internode_send_buff_size_in_bytes", "internode_socket_send_buffer_size", Unit::Bytes),
    (
        "internode_socket_receive_buffer_size_in_bytes",
        "internode_socket_receive_buffer_size",
        Unit::Bytes,
    ),
    (
        "internode_socket_send_buffer_size_in_bytes",
        "internode_socket_send_buffer_size",
        Unit::Bytes,
    ),
    (
        "internode_streaming_tcp_user_timeout_in_ms",
        "internode_streaming_tcp_user_timeout",
        Unit::Millis,
    ),
    ("internode_tcp_connect_timeout_in_ms", "internode_tcp_connect_timeout", Unit::Millis),
    ("internode_tcp_user_timeout_in_ms", "internode_tcp_user_timeout", Unit::Millis),
    ("key_cache_save_period", "key_cache_save_period", Unit::SecondsBare),
    ("key_cache_size_in_mb", "key_cache_size", Unit::Mebibytes),
    ("keyspace_count_warn_threshold", "keyspaces_warn_threshold", Unit::Same),
    ("max_hint_window_in_ms", "max_hint_window", Unit::Millis),
    ("max_hints_file_size_in_mb", "max_hints_file_size", Unit::Mebibytes),
    ("max_mutation_size_in_kb", "max_mutation_size", Unit::Kibibytes),
    ("max_value_size_in_mb", "max_value_size", Unit::Mebibytes),
    ("memtable_heap_space_in_mb", "memtable_heap_space", Unit::Mebibytes),
    ("memtable_offheap_space_in_mb", "memtable_offheap_space", Unit::Mebibytes),
    ("min_free_space_per_drive_in_mb", "min_free_space_per_drive", Unit::Mebibytes),
    ("native_transport_idle_timeout_in_ms", "native_transport_idle_timeout", Unit::Millis),
    (
        "native_transport_max_concurrent_requests_in_bytes",
        "native_transport_max_request_data_in_flight",
        Unit::BytesOrUnset,
    ),
    (
        "native_transport_max_concurrent_requests_in_bytes_per_ip",
        "native_transport_max_request_data_in_flight_per_ip",
        Unit::BytesOrUnset,
    ),
    ("native_transport_max_frame_size_in_mb", "native_transport_max_frame_size", Unit::Mebibytes),
    (
        "native_transport_receive_queue_capacity_in_bytes",
        "native_transport_receive_queue_capacity",
        Unit::Bytes,
    ),
    ("networking_cache_size_in_mb", "networking_cache_size", Unit::Mebibytes),
    ("periodic_commitlog_sync_lag_block_in_ms", "periodic_commitlog_sync_lag_block", Unit::Millis),
    ("permissions_update_interval_in_ms", "permissions_update_interval", Unit::MillisOrUnset),
    ("permissions_validity_in_ms", "permissions_validity", Unit::Millis),
    ("prepared_statements_cache_size_mb", "prepared_statements_cache_size", Unit::Mebibytes),
    ("range_request_timeout_in_ms", "range_request_timeout", Unit::Millis),
    ("read_request_timeout_in_ms", "read_request_timeout", Unit::Millis),
    ("repair_request_timeout_in_ms", "repair_request_timeout", Unit::Millis),
    ("repair_session_space_in_mb", "repair_session_space", Unit::Mebibytes),
    ("request_timeout_in_ms", "request_timeout", Unit::Millis),
    ("roles_update_interval_in_ms", "roles_update_interval", Unit::MillisOrUnset),
    ("roles_validity_in_ms", "roles_validity", Unit::Millis),
    ("row_cache_save_period", "row_cache_save_period", Unit::SecondsBare),
    ("row_cache_size_in_mb", "row_cache_size", Unit::Mebibytes),
    ("slow_query_log_timeout_in_ms", "slow_query_log_timeout", Unit::Millis),
    (
        "sstable_preemptive_open_interval_in_mb",
        "sstable_preemptive_open_interval",
        Unit::MebibytesOrUnset,
    ),
    (
        "stream_throughput_outbound_megabits_per_sec",
        "stream_throughput_outbound",
        Unit::MegabitsPerSecond,
    ),
    ("streaming_keep_alive_period_in_secs", "streaming_keep_alive_period", Unit::Seconds),
    ("table_count_warn_threshold", "tables_warn_threshold", Unit::Same),
    ("tracetype_query_ttl", "trace_type_query_ttl", Unit::Seconds),
    ("tracetype_repair_ttl", "trace_type_repair_ttl", Unit::Seconds),
    ("trickle_fsync_interval_in_kb", "trickle_fsync_interval", Unit::Kibibytes),
    ("truncate_request_timeout_in_ms", "truncate_request_timeout", Unit::Millis),
    ("user_defined_function_fail_timeout", "user_defined_functions_fail_timeout", Unit::Millis),
    ("user_defined_function_warn_timeout", "user_defined_functions_warn_timeout", Unit::Millis),
    (
        "validation_preview_purge_head_start_in_sec",
        "validation_preview_purge_head_start",
        Unit::SecondsOrZero,
    ),
    ("write_request_timeout_in_ms", "write_request_timeout", Unit::Millis),
];

/// Returns the new name and unit of an old spelling.
pub fn replaced(old: &str) -> Option<(&'static str, Unit)> {
    let at = REPLACED.binary_search_by(|row| row.0.cmp(old)).ok()?;
    REPLACED.get(at).map(|row| (row.1, row.2))
}

/// Returns the old spellings of one setting, sorted.
pub fn spellings(new: &str) -> impl Iterator<Item = (&'static str, Unit)> {
    REPLACED.iter().filter(move |r| r.1 == new && r.0 != new).map(|r| (r.0, r.2))
}

impl Unit {
    /// Describes the expected form, to follow "expects"; `None` when today's grammar applies.
    pub fn form(self) -> Option<&'static str> {
        match self {
            Unit::Same | Unit::SecondsBare => None,
            Unit::Millis | Unit::MillisOrUnset => Some("a number of milliseconds"),
            Unit::Seconds | Unit::SecondsOrZero => Some("a number of seconds"),
            Unit::MinutesOrUnset => Some("a number of minutes"),
            Unit::Bytes | Unit::BytesOrUnset => Some("a number of bytes"),
            Unit::Kibibytes => Some("a number of KiB"),
            Unit::Mebibytes | Unit::MebibytesOrUnset => Some("a number of MiB"),
            Unit::MebibytesPerSecond => Some("a number of MiB per second"),
            Unit::MegabitsPerSecond => Some("a number of megabits per second"),
        }
    }

    /// Converts a value to today's grammar; null if it means unset, `None` if it does not have the
    /// form.
    pub fn convert(self, node: &Node) -> Option<Node> {
        if node.is_null() || self == Unit::Same {
            return Some(node.clone());
        }
        let text = node.text()?.trim();
        if self == Unit::SecondsBare && text.parse::<u64>().is_err() {
            return Some(node.clone());
        }
        let number = match text.parse::<i64>() {
            Ok(number) => number,
            // Cassandra reads the group window as a double and rounds it.
            Err(_) if self == Unit::Millis => {
                let number = text.parse::<f64>().ok().filter(|n| (0.0..1e12).contains(n))?;
                number.round() as i64
            }
            Err(_) => return None,
        };
        let scalar = |text: String| Node { line: node.line, kind: NodeKind::Scalar(text) };
        let null = Node { line: node.line, kind: NodeKind::Null };
        if number < 0 {
            return match self {
                Unit::MillisOrUnset | Unit::MinutesOrUnset | Unit::BytesOrUnset if number == -1 => {
                    Some(null)
                }
                Unit::MebibytesOrUnset => Some(null),
                Unit::SecondsOrZero => Some(scalar("0s".into())),
                _ => None,
            };
        }
        Some(scalar(match self {
            Unit::Same => return Some(node.clone()),
            Unit::Millis | Unit::MillisOrUnset => format!("{number}ms"),
            Unit::Seconds | Unit::SecondsOrZero | Unit::SecondsBare => format!("{number}s"),
            Unit::MinutesOrUnset => format!("{number}m"),
            Unit::Bytes | Unit::BytesOrUnset => format!("{number}B"),
            Unit::Kibibytes => format!("{number}KiB"),
            Unit::Mebibytes | Unit::MebibytesOrUnset => format!("{number}MiB"),
            Unit::MebibytesPerSecond => format!("{number}MiB/s"),
            Unit::MegabitsPerSecond => format!("{}B/s", number.checked_mul(125_000)?),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn convert(old: &str, value: &str) -> Option<String> {
        let (_, unit) = replaced(old).unwrap();
        unit.convert(&Node::scalar(value)).map(|n| n.brief())
    }

    #[test]
    fn the_table_is_sorted_by_old_name() {
        assert!(REPLACED.is_sorted_by(|a, b| a.0 < b.0));
    }

    #[test]
    fn numbers_become_values_of_the_new_grammar() {
        for (old, value, new) in [
            ("read_request_timeout_in_ms", "5000", Some("5000ms")),
            ("commitlog_segment_size_in_mb", "32", Some("32MiB")),
            ("column_index_size_in_kb", "64", Some("64KiB")),
            ("compaction_throughput_mb_per_sec", "0", Some("0MiB/s")),
            ("stream_throughput_outbound_megabits_per_sec", "200", Some("25000000B/s")),
            ("commitlog_sync_group_window_in_ms", "2.5", Some("3ms")),
            ("sstable_preemptive_open_interval_in_mb", "-1", Some("")),
            ("credentials_update_interval_in_ms", "-1", Some("")),
            ("key_cache_save_period", "14400", Some("14400s")),
            ("key_cache_save_period", "4h", Some("4h")),
            ("read_request_timeout_in_ms", "5s", None),
            ("read_request_timeout_in_ms", "-5", None),
            ("cross_node_timeout", "true", Some("true")),
        ] {
            assert_eq!(convert(old, value).as_deref(), new, "{old}: {value}");
        }
    }
}
