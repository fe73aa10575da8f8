//! Routes of ScyllaDB's API: the rows, in the order of its modules.

use axum::routing::{delete, get, post};

use super::route::Route;
use super::{repair, scylla, scylla_data, scylla_metrics, scylla_tasks};
use crate::operation::Class::{Changes, Destroys, Reads};
use crate::operation::Method::{Delete, Get, Post};
use crate::operation::Scope::{Cluster, Node, Shard};

/// Paths of ScyllaDB's API that are answered.
pub const SCYLLA: &[Route] = &[
    Route::new(Post, "/storage_service/decommission", Destroys, Cluster, || {
        post(scylla::decommission)
    })
    .no_browsers(),
    Route::new(Post, "/storage_service/remove_node", Destroys, Cluster, || {
        post(scylla::remove_node)
    })
    .no_browsers(),
    Route::new(Get, "/storage_service/removal_status", Reads, Node, || get(scylla::removal_status))
        .no_browsers(),
    Route::new(Post, "/storage_service/force_remove_completion", Destroys, Cluster, || {
        post(scylla::force_removal)
    })
    .no_browsers(),
    Route::new(Get, "/storage_service/gossiping", Reads, Node, || get(scylla::gossiping))
        .no_browsers(),
    Route::new(Post, "/storage_service/gossiping", Changes, Node, || post(scylla::start_gossip))
        .no_browsers(),
    Route::new(Delete, "/storage_service/gossiping", Changes, Node, || delete(scylla::stop_gossip))
        .no_browsers(),
    Route::new(Get, "/storage_service/native_transport", Reads, Node, || get(scylla::native))
        .no_browsers(),
    Route::new(Post, "/storage_service/native_transport", Changes, Shard, || {
        post(scylla::start_native)
    })
    .no_browsers(),
    Route::new(Delete, "/storage_service/native_transport", Changes, Shard, || {
        delete(scylla::stop_native)
    })
    .no_browsers(),
    Route::new(Post, "/storage_service/keyspace_cleanup/{keyspace}", Destroys, Shard, || {
        post(scylla::cleanup)
    })
    .no_browsers(),
    Route::new(Get, "/storage_service/stream_throughput", Reads, Node, || {
        get(scylla::stream_throughput)
    })
    .no_browsers(),
    Route::new(Post, "/storage_service/stream_throughput", Changes, Shard, || {
        post(scylla::set_stream)
    })
    .no_browsers(),
    Route::new(Post, "/storage_service/hinted_handoff", Changes, Shard, || {
        post(scylla::set_throttle)
    })
    .no_browsers(),
    Route::new(Get, "/storage_service/operation_mode", Reads, Node, || get(scylla::operation_mode))
        .no_browsers(),
    Route::new(Get, "/storage_service/natural_endpoints/{keyspace}", Reads, Node, || {
        get(scylla::natural_endpoints)
    })
    .no_browsers(),
    Route::new(Get, "/storage_service/describe_ring/{keyspace}", Reads, Node, || {
        get(scylla::describe_ring)
    })
    .no_browsers(),
    Route::new(Get, "/storage_service/ownership/{keyspace}", Reads, Node, || {
        get(scylla::ownership)
    })
    .no_browsers(),
    Route::new(Get, "/storage_service/host_id", Reads, Node, || get(scylla::host_ids))
        .no_browsers(),
    Route::new(Get, "/storage_service/hostid/local", Reads, Node, || get(scylla::local_host_id))
        .no_browsers(),
    Route::new(Get, "/storage_service/load_map", Reads, Node, || get(scylla::load_map))
        .no_browsers(),
    Route::new(Get, "/storage_service/tokens_endpoint", Reads, Node, || {
        get(scylla::tokens_endpoint)
    })
    .no_browsers(),
    Route::new(Get, "/storage_service/nodes/{state}", Reads, Node, || get(scylla::nodes_in_state))
        .no_browsers(),
    Route::new(Get, "/gossiper/endpoint/live", Reads, Node, || get(scylla::live))
        .also(&["/gossiper/endpoint/live/"])
        .no_browsers(),
    Route::new(Get, "/gossiper/endpoint/down", Reads, Node, || get(scylla::down))
        .also(&["/gossiper/endpoint/down/"])
        .no_browsers(),
    Route::new(Get, "/gossiper/generation_number/{addr}", Reads, Node, || get(scylla::generation))
        .no_browsers(),
    Route::new(Get, "/gossiper/heart_beat_version/{addr}", Reads, Node, || get(scylla::heartbeat))
        .no_browsers(),
    Route::new(Post, "/gossiper/assassinate/{addr}", Destroys, Cluster, || {
        post(scylla::assassinate)
    })
    .no_browsers(),
    Route::new(Get, "/failure_detector/simple_states", Reads, Node, || get(scylla::simple_states))
        .no_browsers(),
    Route::new(Get, "/failure_detector/endpoint_phi_values", Reads, Node, || {
        get(scylla::phi_values)
    })
    .no_browsers(),
    Route::new(Get, "/failure_detector/count/endpoint/up", Reads, Node, || get(scylla::count_up))
        .no_browsers(),
    Route::new(Get, "/failure_detector/count/endpoint/down", Reads, Node, || {
        get(scylla::count_down)
    })
    .no_browsers(),
    Route::new(Get, "/hinted_handoff/hints", Reads, Node, || get(scylla::pending_hints))
        .no_browsers(),
    Route::new(Delete, "/hinted_handoff/hints", Destroys, Shard, || delete(scylla::truncate_hints))
        .no_browsers(),
    Route::new(Post, "/hinted_handoff/pause", Changes, Shard, || post(scylla::pause_hints))
        .no_browsers(),
    Route::new(Get, "/storage_proxy/hinted_handoff_enabled", Reads, Node, || {
        get(scylla::hints_enabled)
    })
    .no_browsers(),
    Route::new(Post, "/storage_proxy/hinted_handoff_enabled", Changes, Shard, || {
        post(scylla::enable_hints)
    })
    .no_browsers(),
    Route::new(Get, "/storage_proxy/max_hint_window", Reads, Node, || get(scylla::hint_window))
        .no_browsers(),
    Route::new(Post, "/storage_proxy/max_hint_window", Changes, Shard, || {
        post(scylla::set_hint_window)
    })
    .no_browsers(),
    Route::new(Get, "/storage_proxy/schema_versions", Reads, Node, || get(scylla::schema_versions))
        .no_browsers(),
    Route::new(Get, "/storage_service/keyspaces", Reads, Node, || get(scylla_data::keyspaces))
        .no_browsers(),
    Route::new(Get, "/storage_service/non_system_keyspaces", Reads, Node, || {
        get(scylla_data::user_keyspaces)
    })
    .no_browsers(),
    Route::new(Get, "/storage_service/release_version", Reads, Node, || get(scylla_data::release))
        .no_browsers(),
    Route::new(Get, "/storage_service/scylla_release_version", Reads, Node, || {
        get(scylla_data::server_version)
    })
    .no_browsers(),
    Route::new(Get, "/storage_service/schema_version", Reads, Node, || {
        get(scylla_data::schema_version)
    })
    .no_browsers(),
    Route::new(Get, "/storage_service/cluster_name", Reads, Node, || {
        get(scylla_data::cluster_name)
    })
    .no_browsers(),
    Route::new(Get, "/storage_service/partitioner_name", Reads, Node, || {
        get(scylla_data::partitioner)
    })
    .no_browsers(),
    Route::new(Get, "/storage_service/generation_number", Reads, Node, || {
        get(scylla_data::generation)
    })
    .no_browsers(),
    Route::new(Get, "/storage_service/load", Reads, Node, || get(scylla_data::load)).no_browsers(),
    Route::new(Get, "/storage_service/tokens", Reads, Node, || get(scylla_data::own_tokens))
        .no_browsers(),
    Route::new(Get, "/storage_service/tokens/{endpoint}", Reads, Node, || {
        get(scylla_data::tokens_of)
    })
    .no_browsers(),
    Route::new(Get, "/storage_service/ownership", Reads, Node, || {
        get(scylla_data::token_ownership)
    })
    .also(&["/storage_service/ownership/"])
    .no_browsers(),
    Route::new(Get, "/storage_service/range_to_endpoint_map/{keyspace}", Reads, Node, || {
        get(scylla_data::range_map)
    })
    .no_browsers(),
    Route::new(Get, "/storage_service/is_initialized", Reads, Node, || {
        get(scylla_data::is_initialized)
    })
    .no_browsers(),
    Route::new(Get, "/storage_service/join_ring", Reads, Node, || get(scylla_data::is_initialized))
        .no_browsers(),
    Route::new(Get, "/storage_service/rpc_server", Reads, Node, || get(scylla_data::no))
        .no_browsers(),
    Route::new(Get, "/storage_service/data_file/locations", Reads, Node, || {
        get(scylla_data::data_files)
    })
    .no_browsers(),
    Route::new(Get, "/storage_service/incremental_backups", Reads, Node, || {
        get(scylla_data::backups)
    })
    .no_browsers(),
    Route::new(Post, "/storage_service/incremental_backups", Changes, Shard, || {
        post(scylla_data::set_backups)
    })
    .no_browsers(),
    Route::new(Get, "/storage_service/trace_probability", Reads, Node, || {
        get(scylla_data::trace_probability)
    })
    .no_browsers(),
    Route::new(Post, "/storage_service/trace_probability", Changes, Shard, || {
        post(scylla_data::set_trace_probability)
    })
    .no_browsers(),
    Route::new(Post, "/storage_service/drain", Destroys, Shard, || post(scylla_data::drain))
        .no_browsers(),
    Route::new(Post, "/storage_service/move/{new_token}", Changes, Cluster, || {
        post(scylla_data::move_to)
    })
    .no_browsers(),
    Route::new(Post, "/storage_service/rebuild", Changes, Node, || post(scylla_data::rebuild))
        .no_browsers(),
    Route::new(Post, "/storage_service/keyspace_flush/{keyspace}", Changes, Shard, || {
        post(scylla_data::flush)
    })
    .no_browsers(),
    Route::new(Post, "/storage_service/keyspace_compaction/{keyspace}", Changes, Shard, || {
        post(scylla_data::compact)
    })
    .no_browsers(),
    Route::new(Get, "/storage_service/snapshots", Reads, Node, || get(scylla_data::snapshots))
        .no_browsers(),
    Route::new(Post, "/storage_service/snapshots", Changes, Shard, || {
        post(scylla_data::take_snapshot)
    })
    .no_browsers(),
    Route::new(Delete, "/storage_service/snapshots", Destroys, Node, || {
        delete(scylla_data::clear_snapshots)
    })
    .no_browsers(),
    Route::new(Get, "/storage_service/snapshots/size/true", Reads, Node, || {
        get(scylla_data::snapshots_size)
    })
    .no_browsers(),
    Route::new(Get, "/storage_service/compaction_throughput", Reads, Node, || {
        get(scylla_data::compaction_throughput)
    })
    .no_browsers(),
    Route::new(Post, "/storage_service/compaction_throughput", Changes, Shard, || {
        post(scylla_data::set_compaction_throughput)
    })
    .no_browsers(),
    Route::new(Get, "/column_family", Reads, Node, || get(scylla_data::tables))
        .also(&["/column_family/"])
        .no_browsers(),
    Route::new(Get, "/column_family/name", Reads, Node, || get(scylla_data::table_names))
        .also(&["/column_family/name/"])
        .no_browsers(),
    Route::new(Get, "/column_family/name/keyspace", Reads, Node, || {
        get(scylla_data::table_keyspaces)
    })
    .no_browsers(),
    Route::new(Get, "/compaction_manager/compactions", Reads, Node, || {
        get(scylla_data::compactions)
    })
    .no_browsers(),
    Route::new(Get, "/compaction_manager/metrics/pending_tasks", Reads, Node, || {
        get(scylla_data::pending_compactions)
    })
    .no_browsers(),
    Route::new(Get, "/snitch/name", Reads, Node, || get(scylla_data::snitch)).no_browsers(),
    Route::new(Get, "/snitch/datacenter", Reads, Node, || get(scylla_data::datacenter))
        .no_browsers(),
    Route::new(Get, "/snitch/rack", Reads, Node, || get(scylla_data::rack)).no_browsers(),
    Route::new(Get, "/failure_detector/phi", Reads, Node, || get(scylla_data::phi)).no_browsers(),
    Route::new(Get, "/system/uptime_ms", Reads, Node, || get(scylla_data::uptime)).no_browsers(),
    Route::new(Get, "/system/logger", Reads, Node, || get(scylla_data::loggers)).no_browsers(),
    Route::new(Get, "/system/logger/{name}", Reads, Node, || get(scylla_data::logger))
        .no_browsers(),
    Route::new(Post, "/system/logger/{name}", Changes, Node, || post(scylla_data::set_logger))
        .no_browsers(),
    Route::new(Get, "/stream_manager", Reads, Node, || get(scylla_metrics::streams))
        .also(&["/stream_manager/"]),
    Route::new(Get, "/stream_manager/metrics/{number}", Reads, Node, || {
        get(scylla_metrics::stream_number)
    }),
    Route::new(Get, "/messaging_service/messages/dropped_by_ver", Reads, Node, || {
        get(scylla_metrics::dropped_by_verb)
    }),
    Route::new(Get, "/messaging_service/messages/{number}", Reads, Node, || {
        get(scylla_metrics::messages)
    }),
    Route::new(Get, "/cache_service/metrics/{cache}/{number}", Reads, Node, || {
        get(scylla_metrics::cache)
    }),
    Route::new(Get, "/column_family/metrics/{*metric}", Reads, Node, || {
        get(scylla_metrics::table_metric)
    }),
    Route::new(Get, "/storage_proxy/read_repair_attempted", Reads, Node, || {
        get(scylla_metrics::read_repair_attempted)
    }),
    Route::new(Get, "/storage_proxy/read_repair_repaired_blocking", Reads, Node, || {
        get(scylla_metrics::read_repair_blocking)
    }),
    Route::new(Get, "/storage_proxy/metrics/{operation}/{number}", Reads, Node, || {
        get(scylla_metrics::proxy_number)
    })
    .also(&["/storage_proxy/metrics/{operation}/{number}/"]),
    Route::new(Get, "/stream_manager/{*rest}", Reads, Node, || get(scylla_metrics::unknown)),
    Route::new(Get, "/messaging_service/{*rest}", Reads, Node, || get(scylla_metrics::unknown)),
    Route::new(Get, "/cache_service/{*rest}", Reads, Node, || get(scylla_metrics::unknown)),
    Route::new(Get, "/storage_proxy/{*rest}", Reads, Node, || get(scylla_metrics::unknown)),
    Route::new(Get, "/task_manager/list_modules", Reads, Node, || get(scylla_tasks::modules))
        .no_browsers(),
    Route::new(Get, "/task_manager/list_module_tasks/{module}", Reads, Node, || {
        get(scylla_tasks::tasks)
    })
    .no_browsers(),
    Route::new(Get, "/task_manager/task_status/{id}", Reads, Node, || get(scylla_tasks::status))
        .no_browsers(),
    Route::new(Get, "/task_manager/wait_task/{id}", Reads, Node, || get(scylla_tasks::wait))
        .no_browsers(),
    Route::new(Post, "/task_manager/abort_task/{id}", Changes, Cluster, || {
        post(scylla_tasks::abort)
    })
    .no_browsers(),
    Route::new(Get, "/storage_service/repair_status", Reads, Node, || {
        get(scylla_tasks::repair_status)
    })
    .also(&["/storage_service/repair_status/"])
    .no_browsers(),
    Route::new(Get, "/failure_detector/endpoints", Reads, Node, || get(scylla_tasks::endpoints))
        .also(&["/failure_detector/endpoints/"])
        .no_browsers(),
    Route::new(Post, "/storage_service/repair_async/{keyspace}", Changes, Cluster, || {
        post(repair::start)
    })
    .no_browsers(),
    Route::new(Get, "/storage_service/repair_async/{keyspace}", Reads, Node, || get(repair::state))
        .no_browsers(),
    Route::new(Post, "/storage_service/force_terminate_repair", Changes, Cluster, || {
        post(repair::abort_all)
    })
    .no_browsers(),
    Route::new(Get, "/storage_service/active_repair/", Reads, Node, || get(repair::active))
        .no_browsers(),
    Route::new(Get, "/storage_proxy/rpc_timeout", Reads, Node, || {
        get(async |api| scylla::timeout(api, "misc").await)
    })
    .no_browsers(),
    Route::new(Post, "/storage_proxy/rpc_timeout", Changes, Shard, || {
        post(async |api, query| scylla::set_timeout(api, "misc", query).await)
    })
    .no_browsers(),
    Route::new(Get, "/storage_proxy/read_rpc_timeout", Reads, Node, || {
        get(async |api| scylla::timeout(api, "read").await)
    })
    .no_browsers(),
    Route::new(Post, "/storage_proxy/read_rpc_timeout", Changes, Shard, || {
        post(async |api, query| scylla::set_timeout(api, "read", query).await)
    })
    .no_browsers(),
    Route::new(Get, "/storage_proxy/range_rpc_timeout", Reads, Node, || {
        get(async |api| scylla::timeout(api, "range").await)
    })
    .no_browsers(),
    Route::new(Post, "/storage_proxy/range_rpc_timeout", Changes, Shard, || {
        post(async |api, query| scylla::set_timeout(api, "range", query).await)
    })
    .no_browsers(),
    Route::new(Get, "/storage_proxy/write_rpc_timeout", Reads, Node, || {
        get(async |api| scylla::timeout(api, "write").await)
    })
    .no_browsers(),
    Route::new(Post, "/storage_proxy/write_rpc_timeout", Changes, Shard, || {
        post(async |api, query| scylla::set_timeout(api, "write", query).await)
    })
    .no_browsers(),
    Route::new(Get, "/storage_proxy/counter_write_rpc_timeout", Reads, Node, || {
        get(async |api| scylla::timeout(api, "counterwrite").await)
    })
    .no_browsers(),
    Route::new(Post, "/storage_proxy/counter_write_rpc_timeout", Changes, Shard, || {
        post(async |api, query| scylla::set_timeout(api, "counterwrite", query).await)
    })
    .no_browsers(),
    Route::new(Get, "/storage_proxy/cas_contention_timeout", Reads, Node, || {
        get(async |api| scylla::timeout(api, "cascontention").await)
    })
    .no_browsers(),
    Route::new(Post, "/storage_proxy/cas_contention_timeout", Changes, Shard, || {
        post(async |api, query| scylla::set_timeout(api, "cascontention", query).await)
    })
    .no_browsers(),
    Route::new(Get, "/storage_proxy/truncate_rpc_timeout", Reads, Node, || {
        get(async |api| scylla::timeout(api, "truncate").await)
    })
    .no_browsers(),
    Route::new(Post, "/storage_proxy/truncate_rpc_timeout", Changes, Shard, || {
        post(async |api, query| scylla::set_timeout(api, "truncate", query).await)
    })
    .no_browsers(),
];
