//! Output of nodetool about gossip, messages between nodes, hints and streams.
//!
//! A subsystem that the node does not have is an error in words, never a value.

use std::fmt::Write;

use super::format::{Table, decimal, java_double};
use super::history::civil;
use super::{HostStyle, SizeStyle, endpoint, file_size};
use crate::histogram::HistogramReport;
use crate::model::{
    ClusterReport, EndpointsReport, GossipPeerReport, GossipReport, HintsReport, MemberReport,
    NodeReport, StageReport, StreamProgress, StreamReport, StreamingReport,
};

/// The words for a part that this node does not have.
fn missing(what: &str) -> String {
    format!("{what} is not supported yet by this node")
}

/// `/127.0.0.1`, as Java writes an address without a name.
fn slashed(member: &MemberReport, style: HostStyle) -> String {
    if style.port { format!("/{}", endpoint(member)) } else { format!("/{}", member.address) }
}

/// `nodetool describering <keyspace>`.
///
/// # Errors
/// In Cassandra's words: no such keyspace, or one that is local to each node.
pub fn describe_ring(
    node: &NodeReport,
    keyspace: &str,
    style: HostStyle,
) -> Result<String, String> {
    let ranges = node.ranges(keyspace)?;
    let mut out = format!("Schema Version:{}\nTokenRange: \n", node.schema_version);
    for range in ranges {
        let members: Vec<&MemberReport> =
            range.nodes.iter().filter_map(|place| node.nodes.get(*place)).collect();
        let list = |of: &dyn Fn(&MemberReport) -> String| {
            members.iter().map(|m| of(m)).collect::<Vec<_>>().join(", ")
        };
        let details = list(&|m| {
            let (host, datacenter, rack) = (style.show(m), &m.datacenter, &m.rack);
            format!("EndpointDetails(host:{host}, datacenter:{datacenter}, rack:{rack})")
        });
        let _ = writeln!(
            out,
            "\tTokenRange(start_token:{}, end_token:{}, endpoints:[{}], rpc_endpoints:[{}], \
             endpoint_details:[{details}])",
            range.start,
            range.end,
            list(&|m| style.show(m)),
            list(&|m| native_address(m, style)),
        );
    }
    Ok(out)
}

fn native_address(member: &MemberReport, style: HostStyle) -> String {
    match (style.port, member.rpc_address.contains(':')) {
        (false, _) => member.rpc_address.clone(),
        (true, false) => format!("{}:{}", member.rpc_address, member.rpc_port),
        (true, true) => format!("[{}]:{}", member.rpc_address, member.rpc_port),
    }
}

/// `nodetool getendpoints <keyspace> <table> <key>`.
pub fn get_endpoints(node: &NodeReport, found: &EndpointsReport, style: HostStyle) -> String {
    let mut out = String::new();
    for id in &found.host_ids {
        if let Some(member) = node.nodes.iter().find(|m| m.host_id == *id) {
            let _ = writeln!(out, "{}", style.show(member));
        }
    }
    out
}

/// `nodetool gossipinfo`. State that Cassandra has in gossip and this server in its metadata
/// (location, tokens, addresses) is shown with the version of the node's state. `NET_VERSION`,
/// `SSTABLE_VERSIONS` and the like, which no node announces here, are left out.
///
/// # Errors
/// There is no gossip on this node.
pub fn gossip_info(
    node: &NodeReport,
    gossip: Option<&GossipReport>,
    style: HostStyle,
) -> Result<String, String> {
    let gossip = gossip.ok_or_else(|| missing("gossip"))?;
    let mut out = String::new();
    for member in &node.nodes {
        let Some(peer) = gossip.peer(&member.host_id) else { continue };
        let _ = writeln!(out, "{}", slashed(member, style));
        endpoint_state(&mut out, member, peer);
    }
    out.push('\n');
    Ok(out)
}

/// Returns the addresses of the nodes with wrong clocks.
pub(super) fn wrong_clocks(node: &NodeReport, cluster: &ClusterReport) -> Vec<String> {
    let Some(gossip) = &cluster.gossip else { return Vec::new() };
    let is_wrong = |m: &&MemberReport| gossip.peer(&m.host_id).is_some_and(|p| p.wrong_clock);
    node.nodes.iter().filter(is_wrong).map(|member| member.address.clone()).collect()
}

fn endpoint_state(out: &mut String, member: &MemberReport, peer: &GossipPeerReport) {
    let version = peer.version;
    let _ = writeln!(out, "  generation:{}\n  heartbeat:{}", peer.generation, peer.heartbeat);
    let mut state = |name: &str, value: &str| {
        if !value.is_empty() {
            let _ = writeln!(out, "  {name}:{version}:{value}");
        }
    };
    state("LOAD", &java_double(peer.load_bytes as f64));
    state("SCHEMA", peer.schema_version.as_deref().unwrap_or(""));
    state("DC", &member.datacenter);
    state("RACK", &member.rack);
    state("RELEASE_VERSION", &peer.release_version);
    state("HOST_ID", &member.host_id);
    state("RPC_READY", &peer.cql_ready.to_string());
    state("INTERNAL_ADDRESS_AND_PORT", &endpoint(member));
    if !member.rpc_address.is_empty() {
        state("NATIVE_ADDRESS_AND_PORT", &native_address(member, HostStyle { port: true }));
    }
    state("STATUS_WITH_PORT", &status_text(member, peer));
    state("DISK_USAGE", &peer.disk_usage);
    if peer.wrong_clock {
        state("CLOCK", "WRONG");
    }
    match member.tokens.is_empty() {
        true => out.push_str("  TOKENS: not present\n"),
        false => {
            let _ = writeln!(out, "  TOKENS:{version}:<hidden>");
        }
    }
}

fn status_text(member: &MemberReport, peer: &GossipPeerReport) -> String {
    let token = member.tokens.first().map(ToString::to_string).unwrap_or_default();
    match member.state.as_str() {
        _ if peer.shutting_down => "shutdown,true".to_owned(),
        "Joining" => format!("BOOT,{token}"),
        "Leaving" => format!("LEAVING,{token}"),
        "Moving" => format!("MOVING,{token}"),
        _ => format!("NORMAL,{token}"),
    }
}

/// `nodetool failuredetector`.
///
/// # Errors
/// There is no gossip on this node.
pub fn failure_detector(
    node: &NodeReport,
    gossip: Option<&GossipReport>,
    style: HostStyle,
) -> Result<String, String> {
    let gossip = gossip.ok_or_else(|| missing("the failure detector"))?;
    let mut out = format!("{:>10},{:>16}\n", "Endpoint", "Phi");
    for member in &node.nodes {
        if let Some(phi) = gossip.peer(&member.host_id).and_then(|p| p.phi) {
            let _ = writeln!(out, "{:>10},{:>16}", slashed(member, style), decimal(phi, 8));
        }
    }
    Ok(out)
}

/// `nodetool statusgossip`.
///
/// # Errors
/// There is no gossip on this node.
pub fn status_gossip(gossip: Option<&GossipReport>) -> Result<String, String> {
    let gossip = gossip.ok_or_else(|| missing("gossip"))?;
    Ok(running(gossip.active).to_owned() + "\n")
}

/// `nodetool statusbinary`.
pub fn status_binary(node: &NodeReport) -> String {
    running(node.native_transport_active).to_owned() + "\n"
}

fn running(is_running: bool) -> &'static str {
    if is_running { "running" } else { "not running" }
}

/// `nodetool statushandoff`.
///
/// # Errors
/// There are no hints on this node.
pub fn status_handoff(hints: Option<&HintsReport>) -> Result<String, String> {
    let hints = hints.ok_or_else(|| missing("hinted handoff"))?;
    let mut out = format!("Hinted handoff is {}\n", running(hints.enabled));
    for datacenter in &hints.disabled_datacenters {
        let _ = writeln!(out, "Data center {datacenter} is disabled");
    }
    Ok(out)
}

/// `nodetool getmaxhintwindow`.
///
/// # Errors
/// There are no hints on this node.
pub fn max_hint_window(hints: Option<&HintsReport>) -> Result<String, String> {
    let hints = hints.ok_or_else(|| missing("hinted handoff"))?;
    Ok(format!("Current max hint window: {} ms\n", hints.window_millis))
}

/// `nodetool listpendinghints`.
///
/// # Errors
/// There are no hints on this node.
pub fn pending_hints(node: &NodeReport, hints: Option<&HintsReport>) -> Result<String, String> {
    let hints = hints.ok_or_else(|| missing("hinted handoff"))?;
    if hints.pending.is_empty() {
        return Ok("This node does not have any pending hints\n".to_owned());
    }
    let mut table = Table::new(" ");
    table.add(&["Host ID", "Address", "Rack", "DC", "Status", "Total files", "Newest", "Oldest"]);
    for pending in &hints.pending {
        let member = node.nodes.iter().find(|m| m.host_id == pending.host_id);
        let address = member.map_or_else(|| "Unknown".to_owned(), endpoint);
        let status = match member {
            Some(m) if m.liveness_unknown => "Unknown",
            Some(m) if m.up => "UP",
            Some(_) => "DOWN",
            None => "Unknown",
        };
        table.add(&[
            &pending.host_id,
            &address,
            member.map_or("Unknown", |m| &m.rack),
            member.map_or("Unknown", |m| &m.datacenter),
            status,
            &pending.files.to_string(),
            &time_of(pending.newest_millis),
            &time_of(pending.oldest_millis),
        ]);
    }
    let mut out = String::new();
    table.print(&mut out);
    Ok(out)
}

/// `2026-11-21 05:14:49,204`, UTC.
fn time_of(millis: i64) -> String {
    let (year, month, day) = civil(millis.div_euclid(86_400_000));
    let of_day = millis.rem_euclid(86_400_000);
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02},{:03}",
        of_day / 3_600_000,
        of_day / 60_000 % 60,
        of_day / 1000 % 60,
        of_day % 1000
    )
}

/// `nodetool removenode status`, without its title.
pub fn removal_status(node: &NodeReport, cluster: &ClusterReport, style: HostStyle) -> String {
    let Some(removal) = &cluster.removal else {
        return "No token removals in process.".to_owned();
    };
    let member = |id: &String| node.nodes.iter().find(|m| m.host_id == *id);
    let token = member(&removal.host_id).and_then(|m| m.tokens.first());
    let waiting: Vec<String> = removal
        .waiting_for
        .iter()
        .map(|id| member(id).map_or_else(|| id.clone(), |m| slashed(m, style)))
        .collect();
    format!(
        "Removing token ({}). Waiting for replication confirmation from [{}].",
        token.map_or_else(|| "?".to_owned(), ToString::to_string),
        waiting.join(",")
    )
}

/// How far the nodes are that copy for a removal, a line each; not in Cassandra. Empty when none runs.
pub fn removal_progress(node: &NodeReport, cluster: &ClusterReport, style: HostStyle) -> String {
    let mut out = String::new();
    let Some(removal) = &cluster.removal else { return out };
    for copy in &removal.copies {
        let member = node.nodes.iter().find(|m| m.host_id == copy.host_id);
        let name = member.map_or_else(|| copy.host_id.clone(), |m| slashed(m, style));
        let is_waited_for = removal.waiting_for.contains(&copy.host_id);
        let _ = match (is_waited_for, copy.ranges) {
            (false, _) => writeln!(out, "    {name}: done, {} bytes", copy.bytes),
            (true, 0) => writeln!(out, "    {name}: begins"),
            (true, ranges) => {
                let (done, bytes) = (copy.ranges_done, copy.bytes);
                writeln!(out, "    {name}: {done} of {ranges} ranges, {bytes} bytes")
            }
        };
    }
    out
}

/// Returns the mode of a node in one word, from its report or from its state in the ring.
pub(super) fn mode(node: &NodeReport, cluster: &ClusterReport) -> String {
    if !cluster.operation_mode.is_empty() {
        return cluster.operation_mode.clone();
    }
    let this = node.nodes.iter().find(|m| m.host_id == node.host_id);
    this.map_or_else(|| "STARTING".to_owned(), |m| m.state.to_uppercase())
}

/// `nodetool netstats`.
pub fn net_stats(
    node: &NodeReport,
    cluster: &ClusterReport,
    style: HostStyle,
    sizes: SizeStyle,
) -> String {
    let mut out = format!("Mode: {}\n", mode(node, cluster));
    let all = cluster.streaming.as_ref().map_or(&[][..], |s| &s.sessions);
    let sessions: Vec<&StreamReport> = all.iter().filter(|s| !s.is_finished()).collect();
    if sessions.is_empty() {
        out.push_str("Not sending any streams.\n");
    }
    let mut plan = "";
    for session in sessions {
        if session.plan_id != plan {
            plan = &session.plan_id;
            let _ = writeln!(out, "{} {plan}", session.operation);
        }
        let member = node.nodes.iter().find(|m| m.host_id == session.host_id);
        let peer = member.map_or_else(|| session.host_id.clone(), |m| slashed(m, style));
        let _ = writeln!(out, "    {peer}");
        progress(&mut out, session.receiving, &RECEIVING, sizes);
        progress(&mut out, session.sending, &SENDING, sizes);
        let direction = if session.sending.is_some() { "sent to" } else { "received from" };
        for file in &session.current {
            let percent = file.bytes_done * 100 / file.bytes.max(1);
            let _ = writeln!(
                out,
                "            {} {}/{} bytes ({percent}%) {direction} idx:0{peer}",
                file.name, file.bytes_done, file.bytes
            );
        }
    }
    let repair = cluster.read_repair.unwrap_or_default();
    let _ = writeln!(
        out,
        "Read Repair Statistics:\nAttempted: {}\nMismatch (Blocking): {}\nMismatch (Background): {}",
        repair.attempted, repair.blocking, repair.background
    );
    let row = |name: &str, cells: [&str; 4]| {
        let [active, pending, completed, dropped] = cells;
        format!("{name:<25}{active:>10}{pending:>10}{completed:>15}{dropped:>10}\n")
    };
    out.push_str(&row("Pool Name", ["Active", "Pending", "Completed", "Dropped"]));
    let messages = cluster.messages.unwrap_or_default();
    for (name, counts) in [
        ("Large messages", messages.large),
        ("Small messages", messages.small),
        ("Gossip messages", messages.gossip),
    ] {
        let [pending, sent, dropped] =
            [counts.pending, counts.sent, counts.dropped].map(|n| n.to_string());
        out.push_str(&row(name, ["n/a", &pending, &sent, &dropped]));
    }
    out
}

/// The words for one direction of a stream.
struct ProgressWords {
    doing: &'static str,
    done: &'static str,
}

const RECEIVING: ProgressWords = ProgressWords { doing: "Receiving", done: "received" };
const SENDING: ProgressWords = ProgressWords { doing: "Sending", done: "sent" };

fn progress(
    out: &mut String,
    progress: Option<StreamProgress>,
    words: &ProgressWords,
    sizes: SizeStyle,
) {
    let Some(p) = progress else { return };
    let ProgressWords { doing, done } = words;
    let bytes = |n: u64| if sizes.human_readable { file_size(n) } else { format!("{n} bytes") };
    let share = |part: u64, of: u64| decimal(part as f64 / of as f64 * 100.0, 2);
    let _ = writeln!(
        out,
        "        {doing} {} files, {} total. Already {done} {} files ({}%), {} total ({}%)",
        p.files,
        bytes(p.bytes),
        p.files_done,
        share(p.files_done, p.files),
        bytes(p.bytes_done),
        share(p.bytes_done, p.bytes),
    );
}

/// `nodetool getstreamthroughput`, in megabits, or in MiB per second.
///
/// # Errors
/// There is no streaming on this node; or, as Cassandra's tool, whole megabits are requested and
/// the throughput is no whole number.
pub fn stream_throughput(
    streaming: Option<&StreamingReport>,
    unit: ThroughputUnit,
) -> Result<String, String> {
    let bytes = streaming.ok_or_else(|| missing("streaming"))?.bytes_per_second_max;
    Ok(format!("Current stream throughput: {}\n", throughput(bytes, unit)?))
}

/// `nodetool getinterdcstreamthroughput`; Cassandra's words, without the number that its tool writes
/// before them by mistake.
///
/// # Errors
/// As [`stream_throughput`].
pub fn inter_dc_stream_throughput(
    streaming: Option<&StreamingReport>,
    unit: ThroughputUnit,
) -> Result<String, String> {
    let streaming = streaming.ok_or_else(|| missing("streaming"))?;
    let text = throughput(streaming.inter_dc_bytes_per_second_max, unit)?;
    let what = match unit {
        ThroughputUnit::PreciseMegabits => "stream",
        _ => "inter-datacenter stream",
    };
    Ok(format!("Current {what} throughput: {text}\n"))
}

fn throughput(bytes: u64, unit: ThroughputUnit) -> Result<String, String> {
    let megabits = bytes as f64 * 8.0 / 1e6;
    Ok(match unit {
        _ if bytes == 0 => "unlimited".to_owned(),
        ThroughputUnit::MebibytesPerSecond => {
            format!("{} MiB/s", java_double(bytes as f64 / f64::from(1 << 20)))
        }
        ThroughputUnit::PreciseMegabits => format!("{} Mb/s", java_double(megabits)),
        ThroughputUnit::Megabits if megabits.fract() == 0.0 => format!("{megabits} Mb/s"),
        ThroughputUnit::Megabits => {
            let text = "Use the -d flag to quiet this error and get the exact throughput in \
                        megabits/s";
            return Err(text.to_owned());
        }
    })
}

/// How a throughput is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThroughputUnit {
    /// Whole ones only.
    Megabits,
    /// With decimals (`-d`).
    PreciseMegabits,
    /// With decimals (`-m`).
    MebibytesPerSecond,
}

/// `nodetool gettimeout <type>`.
///
/// # Errors
/// There is no such kind, in Cassandra's words; or this node has no timeout of that kind.
pub fn get_timeout(cluster: &ClusterReport, kind: &str) -> Result<String, String> {
    use crate::commands::{TIMEOUTS, TIMEOUTS_TEXT};
    if !TIMEOUTS.contains(&kind) {
        return Err(format!("Timeout type requires one of ({TIMEOUTS_TEXT})"));
    }
    match cluster.timeouts.get(kind) {
        Some(millis) => Ok(format!("Current timeout for type {kind}: {millis} ms\n")),
        None => Err(missing(&format!("the timeout {kind}"))),
    }
}

/// `nodetool tpstats`.
pub fn tp_stats(cluster: &ClusterReport) -> String {
    let mut pools = Table::new(" ");
    pools.add(&["Pool Name", "Active", "Pending", "Completed", "Blocked", "All time blocked"]);
    for stage in &cluster.stages {
        let StageReport { name, active, pending, completed, blocked, blocked_total } = stage;
        let numbers = [active, pending, completed, blocked, blocked_total].map(u64::to_string);
        let [active, pending, completed, blocked, total] = &numbers;
        pools.add(&[name, active, pending, completed, blocked, total]);
    }
    let mut out = String::new();
    pools.print(&mut out);
    out.push_str("\nLatencies waiting in queue (micros) per dropped message types\n");
    let mut messages = Table::new(" ");
    messages.add(&["Message type", "Dropped    ", "50%     ", "95%     ", "99%     ", "Max"]);
    for (name, count) in &cluster.dropped {
        let [median, _, p95, _, p99, _, max] = waits(cluster, name).map(java_double);
        messages.add(&[name, &count.to_string(), &median, &p95, &p99, &max]);
    }
    messages.print(&mut out);
    out
}

/// Microseconds that dropped messages had waited, as Cassandra lists them: at 50, 75, 95, 98 and 99
/// percent, shortest, longest.
fn waits(cluster: &ClusterReport, message: &str) -> [f64; 7] {
    let none = HistogramReport::default();
    let waits = cluster.dropped_waits.get(message).unwrap_or(&none);
    let [a, b, c, d, e] = [0.5, 0.75, 0.95, 0.98, 0.99].map(|share| waits.percentile(share));
    [a, b, c, d, e, waits.min(), waits.max()].map(|micros| micros as f64)
}

/// `nodetool tpstats -F json`.
pub fn tp_stats_json(cluster: &ClusterReport) -> String {
    let mut pools = serde_json::Map::new();
    for stage in &cluster.stages {
        let numbers = serde_json::json!({
            "ActiveTasks": stage.active,
            "PendingTasks": stage.pending,
            "CompletedTasks": stage.completed,
            "CurrentlyBlockedTasks": stage.blocked,
            "TotalBlockedTasks": stage.blocked_total,
        });
        pools.insert(stage.name.clone(), numbers);
    }
    let latencies: serde_json::Map<_, _> = cluster
        .dropped
        .keys()
        .map(|name| (name.clone(), serde_json::json!(waits(cluster, name))))
        .collect();
    let all = serde_json::json!({
        "ThreadPools": pools,
        "WaitLatencies": latencies,
        "DroppedMessage": cluster.dropped,
    });
    let mut out = serde_json::to_string_pretty(&all).unwrap_or_default();
    out.push('\n');
    out
}

#[cfg(test)]
mod tests;
