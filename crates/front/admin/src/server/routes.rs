//! Routes of the API: the rows, in the order in which `GET /` lists them.
//!
//! The paths below `/api/v1/` are the API; others with the same answer remain for older clients.

use axum::routing::{delete, get, post, put};

use super::route::Route;
use super::{cidr, cluster, load, log, node, repair, sampling, upkeep};
use crate::model::{ClusterCommand, CompactionCommand};
use crate::operation::Class::{Changes, Destroys, Open, Reads};
use crate::operation::Method::{Delete, Get, Post, Put};
use crate::operation::Scope::{Cluster, Node, Shard};

/// Requests of the API of version 1.
pub const ROUTES: &[Route] = &[
    Route::new(Get, "/", Reads, Node, || get(index))
        .help("this list"),
    Route::new(Get, "/api/v1/health", Open, Node, || get(node::health))
        .help("200 when the node answers")
        .also(&["/health"]),
    Route::new(Get, "/api/v1/metrics", Reads, Node, || get(node::metrics))
        .help("Prometheus text")
        .also(&["/metrics"]),
    Route::new(Get, "/api/v1/node", Reads, Node, || get(node::node))
        .help("the cluster and this node"),
    Route::new(Get, "/api/v1/tables", Reads, Node, || get(node::tables))
        .help("numbers of all tables"),
    Route::new(Get, "/api/v1/latencies", Reads, Node, || get(node::latencies))
        .help("how long clients' requests take"),
    Route::new(Get, "/api/v1/compactions", Reads, Node, || get(node::compactions))
        .help("pending, running and finished compactions"),
    Route::new(Post, "/api/v1/compactions", Destroys, Shard, || post(upkeep::compaction))
        .help("{\"command\":\"stop\",\"kind\":\"COMPACTION\",\"id\":null}, or\n\
             set_thresholds (keyspace, table, min, max),\n\
             set_automatic (keyspaces, tables, enabled), files (files),\n\
             range (keyspaces, tables, start, end),\n\
             partition (keyspaces, tables, key), split (keyspaces, tables),\n\
             garbage_collect (keyspaces, tables, granularity: ROW or CELL),\n\
             verify (keyspaces, tables, extended, check_version,\n\
             failure_policy, check_tokens, quick, repair_status),\n\
             scrub (keyspaces, tables, snapshot, skip_corrupted, no_validate,\n\
             reinsert_overflowed_ttl), relocate and recompress (keyspaces, tables),\n\
             rebuild_indexes (keyspace, table, indexes), force (keyspace, table, keys)")
        .commands(CompactionCommand::ROWS),
    Route::new(Get, "/api/v1/compactions/settings", Reads, Node, || get(upkeep::settings))
        .help("thresholds, and whether compactions begin by themselves"),
    Route::new(Get, "/api/v1/damaged", Reads, Node, || get(upkeep::damaged))
        .help("files that were found damaged"),
    Route::new(Post, "/api/v1/repaired", Changes, Shard, || post(upkeep::set_repaired))
        .help("{\"keyspaces\":[\"ks\"],\"tables\":[],\"repaired\":true,\"preview\":false}: files that\n\
             count as repaired, or not any more"),
    Route::new(Post, "/api/v1/import", Changes, Shard, || post(upkeep::import))
        .help("{\"keyspace\":\"ks\",\"table\":\"t\",\"directories\":[\"/d\"]}, and keep_level,\n\
             keep_repaired, no_verify, no_tokens, copy"),
    Route::new(Get, "/api/v1/load", Reads, Node, || get(load::target))
        .help("?keyspace=ks&table=t: the table, for helenus sstable load")
        .bytes(),
    Route::new(Post, "/api/v1/load", Changes, Cluster, || post(load::load))
        .help("?keyspace=ks&table=t&consistency=ALL: its mutations, as `helenus sstable load` sends them")
        .bytes(),
    Route::new(Post, "/api/v1/refresh", Changes, Shard, || post(upkeep::refresh))
        .help("{\"keyspace\":\"ks\",\"table\":\"t\"}"),
    Route::new(Get, "/api/v1/compactions/plan", Reads, Node, || get(node::compaction_plan))
        .help("what would be compacted now, and why"),
    Route::new(Get, "/api/v1/compactions/history", Reads, Node, || get(node::compaction_history))
        .help("compactions of the last week"),
    Route::new(Get, "/api/v1/snapshots", Reads, Node, || get(node::snapshots))
        .help("snapshots"),
    Route::new(Post, "/api/v1/snapshots", Changes, Shard, || post(node::take_snapshot))
        .help("{\"tag\":\"t\",\"keyspaces\":[],\"tables\":[]}"),
    Route::new(Delete, "/api/v1/snapshots", Destroys, Node, || delete(node::clear_snapshots))
        .help("{\"tag\":\"t\",\"keyspaces\":[]}; tag null: all"),
    Route::new(Post, "/api/v1/flush", Changes, Shard, || post(node::flush))
        .help("{\"keyspaces\":[],\"tables\":[]}"),
    Route::new(Post, "/api/v1/compact", Changes, Shard, || post(node::compact))
        .help("{\"keyspaces\":[],\"tables\":[]}"),
    Route::new(Post, "/api/v1/upgradesstables", Changes, Shard, || post(node::upgrade))
        .help("{\"keyspaces\":[],\"tables\":[],\"all\":false}"),
    Route::new(Post, "/api/v1/drain", Destroys, Shard, || post(node::drain))
        .help("{}"),
    Route::new(Get, "/api/v1/cluster", Reads, Node, || get(cluster::report))
        .help("gossip, messages between nodes, hints, streams"),
    Route::new(Post, "/api/v1/cluster", Destroys, Cluster, || post(cluster::command))
        .help("{\"command\":\"decommission\",\"force\":false}, or remove_node (host_id),\n\
             force_removal, assassinate (address), cleanup (keyspace, tables),\n\
             set_gossip, set_native_transport, set_hinted_handoff (enabled),\n\
             set_hints_for_datacenter (datacenter, enabled), pause_hints (paused),\n\
             truncate_hints (address), set_hint_throttle (kib_per_second),\n\
             set_hint_window (millis), set_stream_throughput (bytes_per_second),\n\
             set_inter_dc_stream_throughput (bytes_per_second),\n\
             set_incremental_backups (enabled),\n\
             set_timeout (kind, millis), set_setting (name, value), set_trace_probability (per_million),\n\
             set_compaction_throughput (bytes_per_second),\n\
             set_row_cache_capacity (bytes), invalidate_row_cache,\n\
             set_counter_cache_capacity (bytes), invalidate_counter_cache,\n\
             set_concurrent_compactors (count), set_compaction_share (share),\n\
             set_batchlog_throttle (kib_per_second), replay_batchlog,\n\
             refresh_size_estimates, reload_seeds, reload_ssl, reload_file_keys, stop_daemon,\n\
             enable_audit_log (changes), disable_audit_log,\n\
             enable_full_query_log (changes), disable_full_query_log, reset_full_query_log,\n\
             move (token), rebuild (datacenter, keyspace, tokens, sources, exclude_local_dc),\n\
             abort_movement, abort_removal (host_id), abort_rebuild, abort_bootstrap (node),\n\
             put_cidr_group (name, cidrs), drop_cidr_group (name), cut_links (addresses)")
        .commands(ClusterCommand::ROWS),
    Route::new(Get, "/api/v1/repairs", Reads, Node, || get(repair::list))
        .help("repairs of this run of the node")
        .no_browsers(),
    Route::new(Get, "/api/v1/repairs/{id}", Reads, Node, || get(repair::one))
        .help("?from=: one of them, with its lines from this number on")
        .no_browsers(),
    Route::new(Delete, "/api/v1/repairs/{id}", Changes, Cluster, || delete(repair::abort))
        .help("ends it")
        .no_browsers(),
    Route::new(Get, "/api/v1/repair_summary", Reads, Node, || get(repair::summary))
        .help("?keyspace=&tables=&start=&end=: what is known of repairs of tables")
        .no_browsers(),
    Route::new(Get, "/api/v1/auto_repair", Reads, Node, || get(repair::auto_status))
        .help("repairs that begin by themselves")
        .no_browsers(),
    Route::new(Put, "/api/v1/auto_repair", Changes, Node, || put(repair::set_auto))
        .help("?enabled=true: whether they do")
        .no_browsers(),
    Route::new(Get, "/api/v1/cidr_groups", Reads, Node, || get(cidr::groups))
        .help("?address=: CIDR groups, all or those of an address"),
    Route::new(Get, "/api/v1/cidr_filtering", Reads, Node, || get(cidr::filtering))
        .help("checks of where clients connect from"),
    Route::new(Delete, "/api/v1/credentials_cache", Changes, Shard, || delete(cidr::forget_credentials))
        .help("{\"role\":null}: passwords are verified at the next login"),
    Route::new(Post, "/api/v1/samples", Reads, Shard, || post(sampling::sample))
        .help("{\"keyspace\":null,\"table\":null,\"capacity\":256,\"count\":10,\"duration\":10000,\n\
             \"samplers\":[\"READS\"]}: partitions read and written most"),
    Route::new(Get, "/api/v1/samples/jobs", Reads, Node, || get(sampling::jobs))
        .help("the same again and again, into the log"),
    Route::new(Post, "/api/v1/samples/jobs", Changes, Shard, || post(sampling::begin_job))
        .help("as samples, with \"interval\""),
    Route::new(Delete, "/api/v1/samples/jobs", Changes, Shard, || delete(sampling::end_job))
        .help("{\"keyspace\":null,\"table\":null}"),
    Route::new(Get, "/api/v1/clients", Reads, Node, || get(node::clients))
        .help("connections of clients"),
    Route::new(Get, "/api/v1/caches", Reads, Node, || get(node::caches))
        .help("what caches hold, and how often they had what was asked for"),
    Route::new(Get, "/api/v1/key_samples", Reads, Node, || get(node::key_samples))
        .help("tokens of some of the keys on this node"),
    Route::new(Get, "/api/v1/guardrails", Reads, Node, || get(node::guardrails))
        .help("limits on statements"),
    Route::new(Put, "/api/v1/guardrails", Changes, Shard, || put(node::set_guardrail))
        .help("{\"name\":\"tables_threshold\",\"values\":[\"200\",\"150\"]}"),
    Route::new(Get, "/api/v1/log", Reads, Node, || get(log::levels))
        .help("levels of the log"),
    Route::new(Put, "/api/v1/log", Changes, Node, || put(log::set))
        .help("{\"logger\":\"store\",\"level\":\"DEBUG\"}; level \"\": as it was"),
    Route::new(Get, "/api/v1/endpoints", Reads, Node, || get(cluster::endpoints))
        .help("?keyspace=&table=&key=: who has a partition"),
    Route::new(Get, "/api/v1/sstables", Reads, Node, || get(upkeep::sstables))
        .help("?keyspace=&table=&key=[&hex=true]: files of this node that have it"),
];

/// Width of the methods and paths in the list, as far as they are not longer.
const PATH_WIDTH: usize = 28;

/// `GET /`: all requests.
async fn index() -> String {
    let mut out = String::from("Helenus admin API\n\n");
    for route in ROUTES {
        // The short path, where there is one.
        let path = route.also.first().unwrap_or(&route.path);
        let request = format!("{:<6} {path} ", route.method);
        let help = route.help.replace('\n', &format!("\n{}", " ".repeat(PATH_WIDTH)));
        out.push_str(&format!("{request:<PATH_WIDTH$}{help}\n"));
    }
    out.push_str(
        "\nThe paths of ScyllaDB's API for the same things work too: /storage_service/, /gossiper/,\n\
         /failure_detector/, /hinted_handoff/, /storage_proxy/, /column_family/, /compaction_manager/,\n\
         /task_manager/, /snitch/, /system/.\n",
    );
    out
}
