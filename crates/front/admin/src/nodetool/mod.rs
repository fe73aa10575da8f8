//! Output of nodetool from the API's reports: pure functions, Cassandra 5.0's layouts to the byte.
//!
//! Source: Cassandra 5.0.9, package `org.apache.cassandra.tools.nodetool`. Values that this server
//! does not have (key cache) are shown as Cassandra shows their absence: 0 or NaN.

mod cidr;
mod cluster;
mod format;
mod guardrails;
mod histograms;
mod history;
mod repair;
mod sampling;
mod settings;
mod table_indexes;
mod tables;
mod tables_order;
mod upkeep;
mod yaml;

pub use cidr::{cidr_filtering_stats, names};
pub use cluster::{
    ThroughputUnit, describe_ring, failure_detector, get_endpoints, get_timeout, gossip_info,
    inter_dc_stream_throughput, max_hint_window, net_stats, pending_hints, removal_progress,
    removal_status, status_binary, status_gossip, status_handoff, stream_throughput, tp_stats,
    tp_stats_json,
};
pub use format::{file_size, load_size, pretty_memory};
pub use guardrails::{CATEGORIES as GUARDRAIL_CATEGORIES, Wanted as GuardrailsWanted, guardrails};
pub use histograms::{proxy_histograms, table_histograms};
pub use history::{compaction_history, compaction_history_json};
pub use repair::{
    SummaryStyle, auto_repair, auto_repair_config, repair_failure, repair_line, repair_list,
    repair_not_needed, repair_pending, repair_repaired,
};
pub use sampling::{SamplesIn, sample_jobs, samples};
pub use settings::{
    ClientStatsStyle, ThroughputStyle, client_stats, compaction_throughput, data_paths,
    data_paths_json, logging_levels, pairs, trace_probability,
};
pub use tables::{TableFilter, TableStatsOptions, table_stats, table_stats_json, table_stats_yaml};
pub use tables_order::{SORT_KEYS, SortKey};
pub use upkeep::{AutoCompactionStyle, SstablesStyle, auto_compaction, sstables};
pub use yaml::yaml_of_json;

use std::fmt::Write;

use crate::model::{
    CacheReport, ClusterReport, CompactionReport, KeyspaceReport, MemberReport, NodeReport,
    PlannedReport, SnapshotReport, TableReport,
};
use format::{Table, decimal, java_double};

/// How members are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostStyle {
    /// With the port for other nodes (`-pp`).
    pub port: bool,
}

impl HostStyle {
    fn show(self, member: &MemberReport) -> String {
        if self.port { endpoint(member) } else { member.address.clone() }
    }
}

/// Address and port, as Cassandra names an endpoint.
fn endpoint(member: &MemberReport) -> String {
    if member.address.contains(':') {
        format!("[{}]:{}", member.address, member.storage_port)
    } else {
        format!("{}:{}", member.address, member.storage_port)
    }
}

fn load(member: &MemberReport) -> String {
    member.load_bytes.map_or_else(|| "?".to_owned(), load_size)
}

/// Data centres by name, each with its members.
fn datacenters(node: &NodeReport) -> Vec<(&str, Vec<(usize, &MemberReport)>)> {
    let mut all: Vec<(&str, Vec<(usize, &MemberReport)>)> = Vec::new();
    for (at, member) in node.nodes.iter().enumerate() {
        match all.iter_mut().find(|(name, _)| *name == member.datacenter) {
            Some((_, members)) => members.push((at, member)),
            None => all.push((&member.datacenter, vec![(at, member)])),
        }
    }
    all.sort_by_key(|(name, _)| *name);
    all
}

/// `nodetool status [keyspace]`.
///
/// # Errors
/// What Cassandra prints on standard output before it exits with 1.
pub fn status(
    node: &NodeReport,
    keyspace: Option<&str>,
    style: HostStyle,
) -> Result<String, String> {
    let ownership = node.ownership(keyspace).map_err(|e| format!("\nError: {e}\n"))?;
    let effective = ownership.effective.as_deref();
    let datacenters = datacenters(node);
    let token_per_node = datacenters.len() >= node.token_count();
    let owns_title = if effective.is_some() { "Owns (effective)" } else { "Owns" };
    let mut tables = Vec::new();
    for (_, members) in &datacenters {
        let mut table = Table::new("  ");
        if token_per_node {
            table.add(&["--", "Address", "Load", owns_title, "Host ID", "Token", "Rack"]);
        } else {
            table.add(&["--", "Address", "Load", "Tokens", owns_title, "Host ID", "Rack"]);
        }
        for (at, member) in members {
            let owns = owned(effective, *at, member, 1);
            let (letter, address, load) =
                (status_letters(member), style.show(member), load(member));
            let (id, rack) = (member.host_id.as_str(), member.rack.as_str());
            if token_per_node {
                let token = member.tokens.first().map(ToString::to_string).unwrap_or_default();
                table.add(&[&letter, &address, &load, &owns, id, &token, rack]);
            } else {
                let tokens = member.tokens.len().to_string();
                table.add(&[&letter, &address, &load, &tokens, &owns, id, rack]);
            }
        }
        tables.push(table);
    }
    Table::share_widths(&mut tables);
    let mut out = String::new();
    for (number, ((name, _), table)) in datacenters.iter().zip(&tables).enumerate() {
        if number > 0 {
            out.push('\n');
        }
        let title = format!("Datacenter: {name}");
        let _ = writeln!(out, "{title}\n{}", "=".repeat(title.chars().count()));
        out.push_str("Status=Up/Down\n|/ State=Normal/Leaving/Joining/Moving\n");
        table.print(&mut out);
    }
    out.push('\n');
    if let Some(note) = ownership.note {
        let _ = writeln!(out, "Note: {note}");
    }
    Ok(out)
}

/// `UN`, `DN`, `UJ`, ….
fn status_letters(member: &MemberReport) -> String {
    let up = match member.up {
        true => 'U',
        false if member.liveness_unknown => '?',
        false => 'D',
    };
    let state = match member.state.as_str() {
        "Joining" => 'J',
        "Leaving" => 'L',
        "Moving" => 'M',
        _ => 'N',
    };
    format!("{up}{state}")
}

/// A member's share in percent; a joining one has none yet.
fn owned(effective: Option<&[f64]>, place: usize, member: &MemberReport, digits: usize) -> String {
    match effective.and_then(|all| all.get(place)) {
        Some(share) if member.state != "Joining" => format!("{:.digits$}%", share * 100.0),
        _ => "?".to_owned(),
    }
}

/// `nodetool ring [keyspace]`.
///
/// # Errors
/// As [`status`].
pub fn ring(node: &NodeReport, keyspace: Option<&str>, style: HostStyle) -> Result<String, String> {
    let ownership = node.ownership(keyspace).map_err(|e| format!("\nError: {e}\n"))?;
    let width = node.nodes.iter().map(|n| endpoint(n).chars().count()).max().unwrap_or(0);
    let row = |cells: [&str; 7]| {
        let [address, rack, status, state, load, owns, token] = cells;
        format!(
            "{address:<width$}  {rack:<12}{status:<7}{state:<8}{load:<16}{owns:<20}{token:<44}\n"
        )
    };
    let mut out = String::from("\n");
    for (name, members) in datacenters(node) {
        let _ = writeln!(out, "Datacenter: {name}\n==========");
        let mut tokens: Vec<(i64, usize, &MemberReport)> = members
            .iter()
            .flat_map(|(at, m)| m.tokens.iter().map(move |t| (*t, *at, *m)))
            .collect();
        tokens.sort_by_key(|(token, _, _)| *token);
        out.push_str(&row(["Address", "Rack", "Status", "State", "Load", "Owns", "Token"]));
        match tokens.last() {
            Some((last, _, _)) if tokens.len() > 1 => {
                out.push_str(&row(["", "", "", "", "", "", &last.to_string()]));
            }
            _ => out.push('\n'),
        }
        for (token, at, member) in tokens {
            let owns = owned(ownership.effective.as_deref(), at, member, 2);
            let status = match member.up {
                true => "Up",
                false if member.liveness_unknown => "?",
                false => "Down",
            };
            out.push_str(&row([
                &style.show(member),
                &member.rack,
                status,
                &member.state,
                &load(member),
                &owns,
                &token.to_string(),
            ]));
        }
        out.push('\n');
    }
    if node.nodes.iter().any(|n| n.tokens.len() > 1) {
        out.push_str(
            "  Warning: \"nodetool ring\" is used to output all the tokens of a node.\n  \
             To view status related info of a node use \"nodetool status\" instead.\n\n",
        );
    }
    out.push_str("\n  ");
    if let Some(note) = ownership.note {
        let _ = writeln!(out, "Note: {note}");
    }
    Ok(out)
}

/// How numbers of bytes are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SizeStyle {
    /// `-H`: in units.
    pub human_readable: bool,
}

/// Lines of `nodetool info`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InfoStyle {
    /// `-T`: each token.
    pub all_tokens: bool,
}

/// `nodetool info`.
pub fn info(
    node: &NodeReport,
    cluster: &ClusterReport,
    tables: &[TableReport],
    caches: &[CacheReport],
    style: InfoStyle,
) -> String {
    let off_heap: u64 = tables.iter().map(TableReport::off_heap_bytes).sum();
    let memory_used: u64 = tables.iter().map(|t| t.memtable_bytes + t.metadata_bytes).sum();
    let heap = memory_used.saturating_sub(off_heap);
    // A node without gossip has no peers to gossip with; tools read false as "it has left".
    let gossip_active = cluster.gossip.as_ref().is_none_or(|g| g.active);
    let mode = cluster::mode(node, cluster);
    let mut out = String::new();
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(out, "{name:<23}: {value}");
    };
    let this = node.nodes.iter().find(|n| n.host_id == node.host_id);
    let size = |bytes: Option<u64>| bytes.map_or_else(|| "?".to_owned(), load_size);
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    line("ID", &node.host_id);
    line("Gossip active", &gossip_active.to_string());
    line("Native Transport active", &node.native_transport_active.to_string());
    line("Load", &size(this.and_then(|n| n.load_bytes)));
    line("Uncompressed load", &size(this.and_then(|n| n.uncompressed_bytes)));
    let generation = if gossip_active { node.generation } else { 0 };
    line("Generation No", &generation.to_string());
    line("Uptime (seconds)", &node.uptime_seconds.to_string());
    let memory = format!("{:.2} / {:.2}", mib(heap), mib(node.memory_bytes_max));
    line("Heap Memory (MB)", &memory);
    line("Off Heap Memory (MB)", &format!("{:.2}", mib(off_heap)));
    line("Data Center", this.map_or("?", |n| &n.datacenter));
    line("Rack", this.map_or("?", |n| &n.rack));
    line("Exceptions", &node.exceptions.to_string());
    for (name, text) in cache_lines(cluster, caches) {
        line(name, &text);
    }
    line("Network Cache", "size 0 bytes, overflow size: 0 bytes, capacity 0 bytes");
    line("Percent Repaired", &format!("{}%", java_double(percent_repaired(node, tables))));
    for text in token_lines(&mode, this.map_or(&[][..], |n| &n.tokens), style) {
        line("Token", &text);
    }
    let state = match mode.as_str() {
        "JOINING" => "IN_PROGRESS",
        "DECOMMISSIONED" => "DECOMMISSIONED",
        _ => "COMPLETED",
    };
    line("Bootstrap state", state);
    line("Bootstrap failed", "false");
    line("Decommissioning", &(mode == "LEAVING").to_string());
    line("Decommission failed", &cluster.decommission_failed.to_string());
    let wrong = cluster::wrong_clocks(node, cluster);
    if !wrong.is_empty() {
        // Cassandra has no such line; it is printed only if clocks are wrong.
        line("Wrong clocks", &wrong.join(", "));
    }
    out
}

/// The lines of `nodetool info` about caches.
fn cache_lines(cluster: &ClusterReport, caches: &[CacheReport]) -> Vec<(&'static str, String)> {
    let no_cache = "entries 0, size 0 bytes, capacity 0 bytes, 0 hits, 0 requests, \
                    NaN recent hit rate, 0 save period in seconds";
    let mut lines = vec![("Key Cache", no_cache.to_owned())];
    let cache = |name| caches.iter().find(|c| c.name == name).cloned().unwrap_or_default();
    let numbers = |c: &CacheReport| {
        let (size, capacity) = (file_size(c.size_bytes), file_size(c.capacity_bytes));
        format!("entries {}, size {size}, capacity {capacity}", c.entries)
    };
    let ratio = |c: &CacheReport| match c.requests {
        0 => "NaN".to_owned(),
        _ => format!("{:.3}", c.hit_ratio()),
    };
    let (rows_saved, counters_saved) = cluster
        .settings
        .as_ref()
        .map_or((0, 0), |s| (s.row_cache_save_seconds, s.counter_cache_save_seconds));
    for (name, cache, saved) in [
        ("Row Cache", cache("rows"), rows_saved),
        ("Counter Cache", cache("counters"), counters_saved),
    ] {
        let (hits, requests) = (cache.hits, cache.requests);
        let text = format!(
            "{}, {hits} hits, {requests} requests, {} recent hit rate, {saved} save period in seconds",
            numbers(&cache),
            ratio(&cache)
        );
        lines.push((name, text));
    }
    let chunks = cache("chunks");
    if chunks.capacity_bytes > 0 {
        let misses = chunks.requests.saturating_sub(chunks.hits);
        let text = format!(
            "{}, {misses} misses, {} requests, {} recent hit rate, NaN microseconds miss latency",
            numbers(&chunks),
            chunks.requests,
            ratio(&chunks)
        );
        lines.push(("Chunk Cache", text));
    }
    lines
}

/// The lines of `nodetool info` about tokens.
fn token_lines(mode: &str, tokens: &[i64], style: InfoStyle) -> Vec<String> {
    if mode == "JOINING" || mode == "STARTING" {
        return vec!["(node is not joined to the cluster)".to_owned()];
    }
    if tokens.len() == 1 || style.all_tokens {
        return tokens.iter().map(ToString::to_string).collect();
    }
    vec![format!("(invoke with -T/--tokens to see all {} tokens)", tokens.len())]
}

/// Percentage over tables with at least two replicas, as Cassandra's
/// `TableMetrics.globalPercentRepaired`.
fn percent_repaired(node: &NodeReport, tables: &[TableReport]) -> f64 {
    let is_replicated = |keyspace: &KeyspaceReport| {
        let factors = keyspace.replication.iter().filter(|(name, _)| *name != "class");
        let each = factors.map(|(_, text)| text.split('/').next().unwrap_or("").parse::<u64>());
        each.map(|factor| factor.unwrap_or(0)).sum::<u64>() >= 2
    };
    let counts = |table: &&TableReport| {
        node.keyspaces.iter().any(|k| k.name == table.keyspace && is_replicated(k))
    };
    let of = |bytes: fn(&TableReport) -> u64| tables.iter().filter(counts).map(bytes).sum();
    tables::percent(of(|t| t.repaired_bytes), of(|t| t.uncompressed_bytes))
}

/// `nodetool version`.
pub fn version(node: &NodeReport) -> String {
    format!("ReleaseVersion: {}\n", node.release_version)
}

/// The version of a member's schema as `describecluster` lists it.
pub(crate) fn schema_version(member: &MemberReport) -> &str {
    match &member.schema_version {
        Some(version) => version,
        None if member.up || member.liveness_unknown => "UNKNOWN",
        None => "UNREACHABLE",
    }
}

/// Members by a word about them, in the order in which the words come up first.
fn grouped<'a>(
    node: &'a NodeReport,
    word: impl Fn(&'a MemberReport) -> &'a str,
    show: impl Fn(&MemberReport) -> String,
) -> Vec<(&'a str, String)> {
    let mut all: Vec<(&str, String)> = Vec::new();
    for member in &node.nodes {
        let (word, shown) = (word(member), show(member));
        match all.iter_mut().find(|(w, _)| *w == word) {
            Some((_, list)) => {
                let _ = write!(list, ", {shown}");
            }
            None => all.push((word, shown)),
        }
    }
    all
}

/// The nodes that vote on changes of the metadata, and which of them are down; `None` for one node, whose output is
/// Cassandra's, and for a report without them.
fn voters(node: &NodeReport, style: HostStyle) -> Option<String> {
    let shown = |member: &MemberReport| match member.up || member.liveness_unknown {
        true => style.show(member),
        false => format!("{} (down)", style.show(member)),
    };
    let voters: Vec<String> = node.nodes.iter().filter(|m| m.is_voter).map(shown).collect();
    (node.nodes.len() > 1 && !voters.is_empty()).then(|| voters.join(", "))
}

/// `nodetool describecluster`.
pub fn describe_cluster(node: &NodeReport, cluster: &ClusterReport, style: HostStyle) -> String {
    let mut out = String::new();
    let in_state = |state: &str| node.nodes.iter().filter(|n| n.state == state).count();
    let up = node.nodes.iter().filter(|n| n.up).count();
    let is_down = |n: &MemberReport| !n.up && !n.liveness_unknown;
    let unreachable = node.nodes.iter().filter(|n| is_down(n)).count();
    let dynamic = if cluster.dynamic_snitch { "enabled" } else { "disabled" };
    let _ = writeln!(out, "Cluster Information:\n\tName: {}", node.cluster_name);
    let _ = writeln!(out, "\tSnitch: {}\n\tDynamicEndPointSnitch: {dynamic}", node.snitch);
    let _ = writeln!(out, "\tPartitioner: {}\n\tSchema versions:", node.partitioner);
    for (version, members) in grouped(node, schema_version, |m| style.show(m)) {
        let _ = writeln!(out, "\t\t{version}: [{members}]\n");
    }
    let _ = writeln!(out, "Stats for all nodes:\n\tLive: {up}");
    for state in ["Joining", "Moving", "Leaving"] {
        let _ = writeln!(out, "\t{state}: {}", in_state(state));
    }
    let _ = writeln!(out, "\tUnreachable: {unreachable}\n\nData Centers: ");
    for (name, members) in datacenters(node) {
        let down = members.iter().filter(|(_, m)| is_down(m)).count();
        let _ = writeln!(out, "\t{name} #Nodes: {} #Down: {down}", members.len());
    }
    if let Some(voters) = voters(node, style) {
        let _ = writeln!(out, "\nMetadata voters:\n\t{voters}");
    }
    let _ = writeln!(out, "\nDatabase versions:");
    for (version, members) in grouped(node, |m| &m.release_version, endpoint) {
        let _ = writeln!(out, "\t{version}: [{members}]\n");
    }
    out.push_str("Keyspaces:\n");
    for keyspace in &node.keyspaces {
        let options: Vec<String> = keyspace
            .replication
            .iter()
            .filter(|(key, _)| *key != "class")
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        let (name, class) = (&keyspace.name, keyspace.strategy());
        let _ = writeln!(out, "\t{name} -> Replication class: {class} {{{}}}", options.join(", "));
    }
    out
}

/// Which snapshots `nodetool listsnapshots` shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListSnapshotsOptions {
    /// `-nt`: none that expire.
    pub no_ttl: bool,
    /// `-e`: also those that a Cassandra created for a repair, with a column for that.
    pub ephemeral: bool,
}

/// `nodetool listsnapshots`.
pub fn list_snapshots(snapshots: &[SnapshotReport], options: ListSnapshotsOptions) -> String {
    let mut out = String::from("Snapshot Details: \n");
    let is_shown = |s: &&SnapshotReport| {
        (options.ephemeral || !s.is_ephemeral) && (!options.no_ttl || s.expires_at.is_empty())
    };
    let shown: Vec<&SnapshotReport> = snapshots.iter().filter(is_shown).collect();
    if shown.is_empty() {
        out.push_str("There are no snapshots\n");
        return out;
    }
    let columns = if options.ephemeral { 8 } else { 7 };
    let mut table = Table::new(" ");
    let mut add = |cells: [&str; 8]| table.add(cells.get(..columns).unwrap_or_default());
    add([
        "Snapshot name",
        "Keyspace name",
        "Column family name",
        "True size",
        "Size on disk",
        "Creation time",
        "Expiration time",
        "Ephemeral",
    ]);
    for s in shown {
        let (true_size, size) = (file_size(s.true_bytes), file_size(s.disk_bytes));
        let (created, expires) = (&s.created_at, &s.expires_at);
        let ephemeral = s.is_ephemeral.to_string();
        add([&s.tag, &s.keyspace, &s.table, &true_size, &size, created, expires, &ephemeral]);
    }
    table.print(&mut out);
    let total = snapshots.iter().map(|s| s.true_bytes).sum();
    let _ = writeln!(out, "\nTotal TrueDiskSpaceUsed: {}\n", file_size(total));
    out
}

/// `nodetool compactionplan`, which Cassandra does not have: a line for each compaction that would
/// begin now, then its files.
pub fn compaction_plan(plans: &[PlannedReport], sizes: SizeStyle) -> String {
    let human_readable = sizes.human_readable;
    let bytes = |n: u64| if human_readable { file_size(n) } else { format!("{n} bytes") };
    let mut out = String::new();
    if plans.is_empty() {
        out.push_str("No compaction is due\n");
    }
    for plan in plans {
        let total = plan.inputs.iter().map(|(_, n)| n).sum();
        let PlannedReport { keyspace, table, shard, level, reason, .. } = plan;
        let _ = writeln!(
            out,
            "{keyspace}.{table}, shard {shard}: {reason}; {} SSTables, {}, to level {level}",
            plan.inputs.len(),
            bytes(total),
        );
        if plan.expired > 0 {
            let _ = writeln!(out, "\t{} of them are dropped without being read", plan.expired);
        }
        for (generation, n) in &plan.inputs {
            let _ = writeln!(out, "\t{generation}: {}", bytes(*n));
        }
    }
    out
}

/// How `nodetool compactionstats` shows compactions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactionStatsStyle {
    /// `-H`: bytes in units.
    pub human_readable: bool,
    /// `-V`: columns as in `system_views.sstable_tasks`.
    pub as_table: bool,
}

impl CompactionStatsStyle {
    fn bytes(self, n: u64) -> String {
        if self.human_readable { file_size(n) } else { n.to_string() }
    }
}

/// `nodetool compactionstats`.
pub fn compaction_stats(report: &CompactionReport, style: CompactionStatsStyle) -> String {
    let bytes = |n: u64| style.bytes(n);
    let rate = |per_second: Option<f64>, factor: f64| {
        per_second.map_or_else(|| "NaN".to_owned(), |r| decimal(r * factor, 2))
    };
    let mut table = Table::new(" ");
    let pending: u64 = report.pending.iter().map(|p| p.tasks).sum();
    table.add(&["concurrent compactors", &report.concurrent.to_string()]);
    table.add(&["pending tasks", &pending.to_string()]);
    for p in &report.pending {
        table.add(&[&p.keyspace, &p.table, &p.tasks.to_string()]);
    }
    table.add(&["compactions completed", &report.completed.to_string()]);
    table.add(&["data compacted", &bytes(report.bytes_compacted)]);
    let compressed = bytes(report.compressed_bytes_compacted);
    table.add(&["compressed data compacted", &compressed]);
    table.add(&["compactions aborted", &report.aborted.to_string()]);
    table.add(&["compactions reduced", "0"]);
    table.add(&["sstables dropped from compaction", "0"]);
    let text = format!("{}/minute", rate(report.rate_15_minutes, 60.0));
    table.add(&["15 minute rate", &text]);
    table.add(&["mean rate", &format!("{}/hour", rate(report.rate_mean, 3600.0))]);
    let throughput = match report.bytes_per_second_max {
        0 => "throttling disabled (0)".to_owned(),
        n => java_double(n as f64 / f64::from(1 << 20)),
    };
    table.add(&["compaction throughput (MiB/s)", &throughput]);
    let mut out = String::new();
    add_running(&mut table, report, style);
    // Ours, below what Cassandra prints.
    if report.backlog_bytes > 0 {
        table.add(&["backlog", &bytes(report.backlog_bytes)]);
        let remaining = duration(report.backlog_bytes, report.backlog_bytes_per_second);
        table.add(&["backlog remaining time", &remaining]);
        table.add(&["compaction share", &report.share.to_string()]);
    }
    table.print(&mut out);
    out
}

/// The rows of running compactions, below their titles.
fn add_running(table: &mut Table, report: &CompactionReport, style: CompactionStatsStyle) {
    let bytes = |n: u64| style.bytes(n);
    if report.running.is_empty() {
        return;
    }
    match style.as_table {
        false => table.add(&[
            "id",
            "compaction type",
            "keyspace",
            "table",
            "completed",
            "total",
            "unit",
            "progress",
        ]),
        true => table.add(&[
            "keyspace",
            "table",
            "task id",
            "completion ratio",
            "kind",
            "progress",
            "sstables",
            "total",
            "unit",
            "target directory",
        ]),
    }
    for c in &report.running {
        let progress = match c.total {
            0 => "n/a".to_owned(),
            total => format!("{:.2}%", c.completed as f64 / total as f64 * 100.0),
        };
        let (completed, total) = (bytes(c.completed), bytes(c.total));
        let (id, kind, keyspace) = (c.id.as_str(), c.kind.as_str(), c.keyspace.as_str());
        let (name, unit) = (c.table.as_str(), "bytes");
        match style.as_table {
            false => {
                table.add(&[id, kind, keyspace, name, &completed, &total, unit, &progress]);
            }
            true => table.add(&[
                keyspace,
                name,
                id,
                &progress,
                kind,
                &completed,
                &c.sstables.to_string(),
                &total,
                unit,
                &c.target_directory,
            ]),
        }
    }
    let left: u64 = report.running.iter().map(|c| c.total.saturating_sub(c.completed)).sum();
    let remaining = duration(left, report.bytes_per_second_max);
    table.add(&["active compaction remaining time", &remaining]);
}

/// Returns the duration of a transfer of that many bytes.
fn duration(bytes: u64, bytes_per_second: u64) -> String {
    match bytes.checked_div(bytes_per_second) {
        None => "n/a".to_owned(),
        Some(s) => format!("{}h{:02}m{:02}s", s / 3600, s % 3600 / 60, s % 60),
    }
}

#[cfg(test)]
mod tests;
