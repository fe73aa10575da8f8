//! Layouts by Cassandra 5.0's source: `org.apache.cassandra.tools.nodetool` and
//! `org.apache.cassandra.gms.FailureDetector`.

use std::collections::BTreeMap;

use super::*;
use crate::model::tests::{SIMPLE, keyspace, three_nodes};
use crate::model::{CopyReport, MessageCounts, MessagesReport, PendingHintsReport, RemovalReport};

const PLAIN: HostStyle = HostStyle { port: false };
const PORTS: HostStyle = HostStyle { port: true };

fn peer(node: &NodeReport, place: usize, phi: Option<f64>) -> GossipPeerReport {
    GossipPeerReport {
        host_id: node.nodes[place].host_id.clone(),
        generation: 1_795_234_238,
        heartbeat: 77,
        version: 12,
        is_alive: true,
        phi,
        load_bytes: 481_137,
        epoch: 5,
        cql_ready: true,
        shutting_down: false,
        wrong_clock: false,
        disk_usage: if place == 1 { "STUFFED" } else { "" }.to_owned(),
        release_version: "5.0.9".to_owned(),
        schema_version: Some("fb799392-e8c6-337c-a9df-c7810a620ca5".to_owned()),
    }
}

#[test]
fn gossipinfo_has_cassandras_lines_for_what_is_known() {
    let node = three_nodes();
    let gossip = GossipReport { active: true, peers: vec![peer(&node, 1, None)] };
    let text = gossip_info(&node, Some(&gossip), PLAIN).unwrap();
    assert_eq!(
        text,
        "/127.0.0.2
  generation:1795234238
  heartbeat:77
  LOAD:12:481137.0
  SCHEMA:12:fb799392-e8c6-337c-a9df-c7810a620ca5
  DC:12:dc1
  RACK:12:r2
  RELEASE_VERSION:12:5.0.9
  HOST_ID:12:00000002-0000-4000-8000-000000000000
  RPC_READY:12:true
  INTERNAL_ADDRESS_AND_PORT:12:127.0.0.2:7000
  NATIVE_ADDRESS_AND_PORT:12:127.0.0.2:9042
  STATUS_WITH_PORT:12:NORMAL,0
  DISK_USAGE:12:STUFFED
  TOKENS:12:<hidden>

"
    );
    let with_port = gossip_info(&node, Some(&gossip), PORTS).unwrap();
    assert!(with_port.starts_with("/127.0.0.2:7000\n"), "{with_port}");
    assert!(gossip_info(&node, None, PLAIN).unwrap_err().contains("not supported yet"));
}

#[test]
fn failuredetector_shows_phi_of_those_that_have_one() {
    let node = three_nodes();
    let peers = vec![peer(&node, 0, None), peer(&node, 1, Some(0.25))];
    let gossip = GossipReport { active: true, peers };
    let text = failure_detector(&node, Some(&gossip), PLAIN).unwrap();
    assert_eq!(text, "  Endpoint,             Phi\n/127.0.0.2,      0.25000000\n");
}

#[test]
fn describering_lists_the_replicas_of_each_range() {
    let mut node = three_nodes();
    node.keyspaces.push(keyspace("two", &[("class", SIMPLE), ("replication_factor", "2")]));
    let text = describe_ring(&node, "two", PLAIN).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "Schema Version:fb799392-e8c6-337c-a9df-c7810a620ca5");
    assert_eq!(lines[1], "TokenRange: ");
    assert_eq!(
        lines[2],
        "\tTokenRange(start_token:9223372036854775807, end_token:-4611686018427387904, \
         endpoints:[127.0.0.1, 127.0.0.2], rpc_endpoints:[127.0.0.1, 127.0.0.2], \
         endpoint_details:[EndpointDetails(host:127.0.0.1, datacenter:dc1, rack:r1), \
         EndpointDetails(host:127.0.0.2, datacenter:dc1, rack:r2)])"
    );
    assert_eq!(lines.len(), 5);
    let with_port = describe_ring(&node, "two", PORTS).unwrap();
    assert!(with_port.contains("endpoints:[127.0.0.1:7000, 127.0.0.2:7000]"), "{with_port}");
    assert!(with_port.contains("rpc_endpoints:[127.0.0.1:9042, 127.0.0.2:9042]"), "{with_port}");
    assert_eq!(describe_ring(&node, "no", PLAIN).unwrap_err(), "No such keyspace: no");
}

#[test]
fn handoff_says_what_is_off() {
    let mut hints = HintsReport { enabled: true, ..HintsReport::default() };
    assert_eq!(status_handoff(Some(&hints)).unwrap(), "Hinted handoff is running\n");
    hints.enabled = false;
    hints.disabled_datacenters.push("dc2".to_owned());
    let expected = "Hinted handoff is not running\nData center dc2 is disabled\n";
    assert_eq!(status_handoff(Some(&hints)).unwrap(), expected);
    hints.window_millis = 10_800_000;
    let window = max_hint_window(Some(&hints)).unwrap();
    assert_eq!(window, "Current max hint window: 10800000 ms\n");
    assert!(status_handoff(None).is_err() && max_hint_window(None).is_err());
}

#[test]
fn pending_hints_are_a_table() {
    let mut node = three_nodes();
    node.nodes[1].up = false;
    let mut hints = HintsReport::default();
    let none = pending_hints(&node, Some(&hints)).unwrap();
    assert_eq!(none, "This node does not have any pending hints\n");
    hints.pending.push(PendingHintsReport {
        host_id: node.nodes[1].host_id.clone(),
        files: 2,
        bytes: 100,
        oldest_millis: 1_709_210_096_789,
        newest_millis: 1_709_210_097_000,
    });
    let text = pending_hints(&node, Some(&hints)).unwrap();
    assert_eq!(
        text,
        "\
Host ID                              Address        Rack DC  Status Total files Newest                  Oldest                 \n\
00000002-0000-4000-8000-000000000000 127.0.0.2:7000 r2   dc1 DOWN   2           2024-02-29 12:34:57,000 2024-02-29 12:34:56,789\n"
    );
}

#[test]
fn netstats_is_cassandras() {
    let node = three_nodes();
    let cluster = ClusterReport {
        messages: Some(MessagesReport {
            large: MessageCounts { pending: 3, sent: 40, dropped: 5 },
            small: MessageCounts { pending: 1, sent: 1234, dropped: 2 },
            gossip: MessageCounts { pending: 0, sent: 7, dropped: 1 },
        }),
        ..ClusterReport::default()
    };
    let text = net_stats(&node, &cluster, PLAIN, SizeStyle::default());
    assert_eq!(
        text,
        "\
Mode: NORMAL
Not sending any streams.
Read Repair Statistics:
Attempted: 0
Mismatch (Blocking): 0
Mismatch (Background): 0
Pool Name                    Active   Pending      Completed   Dropped
Large messages                  n/a         3             40         5
Small messages                  n/a         1           1234         2
Gossip messages                 n/a         0              7         1
"
    );
}

#[test]
fn netstats_shows_streams() {
    let node = three_nodes();
    let receiving = StreamProgress { files: 4, files_done: 1, bytes: 2048, bytes_done: 1024 };
    let session = StreamReport {
        operation: "Bootstrap".to_owned(),
        plan_id: "p".to_owned(),
        host_id: node.nodes[2].host_id.clone(),
        receiving: Some(receiving),
        sending: None,
        is_active: true,
        ..StreamReport::default()
    };
    let done = StreamProgress { files: 0, files_done: 0, bytes: 140, bytes_done: 140 };
    let finished = StreamReport {
        plan_id: "q".to_owned(),
        receiving: None,
        sending: Some(done),
        is_active: false,
        ..session.clone()
    };
    let sessions = vec![finished, session];
    let cluster = ClusterReport {
        operation_mode: "JOINING".to_owned(),
        streaming: Some(StreamingReport { sessions, ..StreamingReport::default() }),
        ..ClusterReport::default()
    };
    let text = net_stats(&node, &cluster, PORTS, SizeStyle { human_readable: true });
    let expected = "\
Mode: JOINING
Bootstrap p
    /127.0.0.3:7000
        Receiving 4 files, 2 KiB total. Already received 1 files (25.00%), 1 KiB total (50.00%)
Read Repair";
    assert!(text.starts_with(expected), "{text}");
    assert!(
        net_stats(&node, &cluster, PLAIN, SizeStyle::default()).contains(" 2048 bytes total. ")
    );
    // The sender of rows does not know how many are left.
    let mut cluster = cluster;
    for session in cluster.streaming.iter_mut().flat_map(|s| &mut s.sessions) {
        session.is_active = true;
    }
    let text = net_stats(&node, &cluster, PORTS, SizeStyle::default());
    assert!(text.contains("Already sent 0 files (NaN%), 140 bytes total (100.00%)"), "{text}");
}

#[test]
fn tpstats_shows_what_is_counted() {
    let cluster = ClusterReport {
        stages: vec![StageReport {
            name: "CompactionExecutor".to_owned(),
            active: 1,
            pending: 0,
            completed: 20,
            blocked: 0,
            blocked_total: 2,
        }],
        dropped: BTreeMap::from([("PING_REQ".to_owned(), 0), ("READ_REQ".to_owned(), 3)]),
        dropped_waits: BTreeMap::from([(
            "READ_REQ".to_owned(),
            HistogramReport { buckets: vec![0, 0, 2, 1], sum: 0 },
        )]),
        ..ClusterReport::default()
    };
    assert_eq!(
        tp_stats(&cluster),
        "\
Pool Name          Active Pending Completed Blocked All time blocked
CompactionExecutor 1      0       20        0       2               

Latencies waiting in queue (micros) per dropped message types
Message type Dropped     50%      95%      99%      Max
PING_REQ     0           0.0      0.0      0.0      0.0
READ_REQ     3           3.0      4.0      4.0      4.0
"
    );
    let json: serde_json::Value = serde_json::from_str(&tp_stats_json(&cluster)).unwrap();
    assert_eq!(json["ThreadPools"]["CompactionExecutor"]["CompletedTasks"], 20);
    assert_eq!(json["DroppedMessage"]["READ_REQ"], 3);
    assert_eq!(json["WaitLatencies"]["PING_REQ"], serde_json::json!(vec![0.0; 7]));
    let waits = serde_json::json!([3.0, 4.0, 4.0, 4.0, 4.0, 3.0, 4.0]);
    assert_eq!(json["WaitLatencies"]["READ_REQ"], waits);
}

#[test]
fn removals_name_the_token_and_who_is_waited_for() {
    let node = three_nodes();
    let mut cluster = ClusterReport::default();
    assert_eq!(removal_status(&node, &cluster, PLAIN), "No token removals in process.");
    cluster.removal = Some(RemovalReport {
        host_id: node.nodes[1].host_id.clone(),
        waiting_for: vec![node.nodes[0].host_id.clone(), node.nodes[2].host_id.clone()],
        copies: Vec::new(),
    });
    assert_eq!(
        removal_status(&node, &cluster, PLAIN),
        "Removing token (0). Waiting for replication confirmation from [/127.0.0.1,/127.0.0.3]."
    );
    assert_eq!(removal_progress(&node, &cluster, PLAIN), "");
    let copy = |at: usize, ranges, ranges_done| CopyReport {
        host_id: node.nodes[at].host_id.clone(),
        ranges,
        ranges_done,
        bytes: 70 * ranges_done,
    };
    if let Some(removal) = &mut cluster.removal {
        removal.waiting_for.remove(1);
        removal.copies = vec![copy(0, 12, 5), copy(2, 3, 3)];
    }
    assert_eq!(
        removal_progress(&node, &cluster, PLAIN),
        "    /127.0.0.1: 5 of 12 ranges, 350 bytes\n    /127.0.0.3: done, 210 bytes\n"
    );
}

#[test]
fn throughput_and_timeouts_are_in_cassandras_words() {
    let streaming = |bytes| StreamingReport {
        bytes_per_second_max: bytes,
        inter_dc_bytes_per_second_max: bytes,
        ..StreamingReport::default()
    };
    let show = |bytes, unit| stream_throughput(Some(&streaming(bytes)), unit).unwrap();
    let unit = ThroughputUnit::Megabits;
    assert_eq!(show(0, unit), "Current stream throughput: unlimited\n");
    assert_eq!(show(25_000_000, unit), "Current stream throughput: 200 Mb/s\n");
    let far = |bytes, unit| inter_dc_stream_throughput(Some(&streaming(bytes)), unit).unwrap();
    assert_eq!(
        far(24 << 20, ThroughputUnit::MebibytesPerSecond),
        "Current inter-datacenter stream throughput: 24.0 MiB/s\n"
    );
    assert_eq!(
        far(25_000_000, ThroughputUnit::PreciseMegabits),
        "Current stream throughput: 200.0 Mb/s\n"
    );
    let none = far(0, ThroughputUnit::Megabits);
    assert_eq!(none, "Current inter-datacenter stream throughput: unlimited\n");
    let refused = stream_throughput(Some(&streaming(24 << 20)), unit).unwrap_err();
    assert!(refused.starts_with("Use the -d flag"), "{refused}");
    let precise = show(24 << 20, ThroughputUnit::PreciseMegabits);
    assert_eq!(precise, "Current stream throughput: 201.326592 Mb/s\n");
    let unit = ThroughputUnit::MebibytesPerSecond;
    assert_eq!(show(24 << 20, unit), "Current stream throughput: 24.0 MiB/s\n");
    let mut cluster = ClusterReport::default();
    assert!(get_timeout(&cluster, "read").unwrap_err().contains("not supported yet"));
    cluster.timeouts.insert("read".to_owned(), 5000);
    let text = get_timeout(&cluster, "read").unwrap();
    assert_eq!(text, "Current timeout for type read: 5000 ms\n");
    let refused = get_timeout(&cluster, "reed").unwrap_err();
    assert!(refused.starts_with("Timeout type requires one of (read, range, "), "{refused}");
}

#[test]
fn a_wrong_clock_is_shown_by_gossipinfo_and_info() {
    let node = three_nodes();
    let wrong = GossipPeerReport { wrong_clock: true, ..peer(&node, 1, None) };
    let gossip = GossipReport { active: true, peers: vec![peer(&node, 0, None), wrong] };
    let text = gossip_info(&node, Some(&gossip), PLAIN).unwrap();
    assert_eq!(text.matches("  CLOCK:12:WRONG\n").count(), 1, "{text}");
    let cluster = ClusterReport { gossip: Some(gossip), ..ClusterReport::default() };
    assert_eq!(super::wrong_clocks(&node, &cluster), ["127.0.0.2"]);
    let text =
        crate::nodetool::info(&node, &cluster, &[], &[], crate::nodetool::InfoStyle::default());
    assert!(text.contains("Wrong clocks"), "{text}");
    let fine = crate::nodetool::info(
        &node,
        &ClusterReport::default(),
        &[],
        &[],
        crate::nodetool::InfoStyle::default(),
    );
    assert!(!fine.contains("Wrong clocks"), "{fine}");
}
