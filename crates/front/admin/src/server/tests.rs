//! The whole way: HTTP over a socket, the mesh, shards on their threads.

mod access;
mod encryption;
mod sampling;
mod upkeep;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;

use rt::{Machine, NativeOptions, NodeSpec, Reply};

use super::*;
use crate::model::*;
use crate::request::{ActionError, AdminMesh, AdminReply, AdminRequest};

const SHARDS: u16 = 2;

/// Tags of snapshots that were given up; only one test makes such ones.
static ABANDONED: std::sync::Mutex<Vec<String>> = std::sync::Mutex::new(Vec::new());

fn parts_of(address: SocketAddr, caller: AdminCaller) -> AdminParts {
    AdminParts { address, caller, log: None, access: AccessParts::open(), encryption: None }
}

/// A node of two shards that answers with the given function, and its server.
struct TestNode {
    running: rt::Running,
    address: SocketAddr,
}

impl TestNode {
    fn start(answer: fn(u16, AdminRequest) -> AdminReply) -> TestNode {
        TestNode::start_serving(move |shard, request, reply| reply.send(answer(shard, request)))
    }

    fn start_serving(
        serve: impl Fn(u16, AdminRequest, Reply<AdminReply>) + Clone + Send + Sync + 'static,
    ) -> TestNode {
        TestNode::start_as(AccessParts::open(), None, serve)
    }

    fn start_as(
        access: AccessParts,
        encryption: Option<ApiEncryption>,
        serve: impl Fn(u16, AdminRequest, Reply<AdminReply>) + Clone + Send + Sync + 'static,
    ) -> TestNode {
        let mesh = AdminMesh::new(SHARDS, 16);
        let (sender, address) = std::sync::mpsc::channel();
        let main: rt::Main = Arc::new(move |rt| {
            let (mesh, sender, serve) = (mesh.clone(), sender.clone(), serve.clone());
            let (access, encryption) = (access.clone(), encryption.clone());
            Box::pin(async move {
                let shard = rt.shard().0;
                mesh.serve(&rt, move |request, reply| serve(shard, request, reply));
                let mut server = None;
                if shard == 0 {
                    let address = SocketAddr::new([127, 0, 0, 1].into(), 0);
                    let parts =
                        AdminParts { access, encryption, ..parts_of(address, mesh.foreign()) };
                    let started = AdminServer::start(&rt, parts).unwrap();
                    sender.send(started.local_addr()).unwrap();
                    server = Some(started);
                }
                rt.stop_requested().await;
                if let Some(server) = server {
                    let failure = server.failure();
                    server.stop().await;
                    assert_eq!(failure.await, None);
                }
            })
        });
        let spec =
            NodeSpec { name: "admin-test".to_owned(), shards: SHARDS, work_dir: String::new() };
        let running = Machine::native(NativeOptions::default()).start(spec, main);
        TestNode { running, address: address.recv().unwrap() }
    }

    /// Status and body.
    fn send(&self, request: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, body.to_owned())
    }

    fn get(&self, path: &str) -> (u16, String) {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
    }

    fn json(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        self.send(&format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ))
    }

    fn stop(self) {
        self.running.request_stop();
        self.running.join().unwrap();
    }
}

fn answer(shard: u16, request: AdminRequest) -> AdminReply {
    match request {
        AdminRequest::Node => {
            let member = MemberReport { host_id: "h".to_owned(), ..MemberReport::default() };
            AdminReply::Node(Box::new(NodeReport {
                host_id: "h".to_owned(),
                nodes: vec![member],
                ..NodeReport::default()
            }))
        }
        AdminRequest::Tables => AdminReply::Tables(vec![TableReport {
            keyspace: "ks".to_owned(),
            table: "t".to_owned(),
            disk_bytes: 100 + u64::from(shard),
            ..TableReport::default()
        }]),
        AdminRequest::Compactions => AdminReply::Compactions(Box::default()),
        AdminRequest::RepairSummary(query) => AdminReply::RepairSummary(vec![RepairSummary {
            keyspace: query.keyspace.unwrap_or_default(),
            table: query.tables.join("+"),
            pending_bytes: 1000,
            pending_files: 1,
            pending_sessions: vec!["a".to_owned(), format!("s{shard}")],
            repaired: query
                .range
                .filter(|_| shard == 0)
                .map(|(a, b)| (a, b, 7))
                .into_iter()
                .collect(),
        }]),
        AdminRequest::CompactionPlan => AdminReply::Planned(Vec::new()),
        AdminRequest::Indexes => AdminReply::Indexes(Vec::new()),
        AdminRequest::Clients => AdminReply::Clients(Vec::new()),
        AdminRequest::CachedCredentials | AdminRequest::ForgetCredentials(_) => {
            AdminReply::Credentials(BTreeSet::new())
        }
        AdminRequest::CidrGroups(address) => {
            let all = [("office", "10.0.0.0/8"), ("two", "2001:db8::/32")];
            let groups = all.into_iter().filter(|(_, range)| {
                address.is_none_or(|a| ::cluster::cidr::parse(range).unwrap().contains(&a))
            });
            let texts = groups.map(|(name, range)| (name.to_owned(), vec![range.to_owned()]));
            AdminReply::CidrGroups(texts.collect())
        }
        AdminRequest::Participations => AdminReply::Participations(Vec::new()),
        AdminRequest::Guardrails => AdminReply::Guardrails(vec![GuardrailReport {
            name: "tables_threshold".to_owned(),
            settings: vec![("tables_fail_threshold".to_owned(), "-1".to_owned())],
        }]),
        // A change that one shard refuses is refused by the node.
        AdminRequest::SetGuardrail(change) if change.name == "tables_threshold" || shard == 0 => {
            AdminReply::Done
        }
        AdminRequest::SetGuardrail(change) => AdminReply::Failed(ActionError::Argument(format!(
            "Guardrail {} not found.",
            change.name
        ))),
        AdminRequest::Metrics => {
            let telemetry = telemetry::Shard::new();
            telemetry.counter("x_total", "x", &[]).add(u64::from(shard) + 7);
            telemetry.latency("coordinator_read_latency_micros", "r", &[]).record_nanos(5_000);
            AdminReply::Metrics(telemetry.snapshot())
        }
        AdminRequest::ListSnapshots => AdminReply::Snapshots(vec![SnapshotReport {
            tag: "old".to_owned(),
            keyspace: "ks".to_owned(),
            table: "t".to_owned(),
            true_bytes: 5,
            ..SnapshotReport::default()
        }]),
        AdminRequest::Flush(selection) if selection.keyspaces == ["nosuch"] => {
            AdminReply::Failed(ActionError::Argument("Keyspace nosuch does not exist".to_owned()))
        }
        // Only one shard fails: the node has failed.
        AdminRequest::Compact(_) if shard == 1 => {
            AdminReply::Failed(ActionError::Failed("disk full".to_owned()))
        }
        // The first shard fails: the second one is not asked, it would answer otherwise.
        AdminRequest::TakeSnapshot { tag, .. } if tag == "in-turn" => {
            AdminReply::Failed(match shard {
                0 => ActionError::Argument("no".to_owned()),
                _ => ActionError::Failed("asked".to_owned()),
            })
        }
        AdminRequest::CompactionHistory => AdminReply::History(vec![HistoryReport {
            table: "t".to_owned(),
            ..HistoryReport::default()
        }]),
        AdminRequest::Estimates(_) => AdminReply::Estimates(Vec::new()),
        AdminRequest::KeySamples => {
            AdminReply::KeySamples(vec![stdx::Token(5), stdx::Token(-2 - i64::from(shard))])
        }
        AdminRequest::Cluster => AdminReply::Cluster(Box::new(share_of_cluster(shard))),
        // Requests for one shard are sent to no other; a request for all shards fails if any shard
        // fails.
        AdminRequest::Command(command) if command.is_for_one_shard() && shard != 0 => {
            AdminReply::Failed(ActionError::Failed("asked".to_owned()))
        }
        AdminRequest::Command(ClusterCommand::PauseHints { .. }) if shard == 1 => {
            AdminReply::Failed(ActionError::Unsupported("pausing hints"))
        }
        AdminRequest::Command(ClusterCommand::SetIncrementalBackups { enabled: false })
            if shard == 1 =>
        {
            AdminReply::Failed(ActionError::Failed("only on".to_owned()))
        }
        AdminRequest::Command(ClusterCommand::RemoveNode { .. }) => {
            AdminReply::Failed(ActionError::Failed("Host ID not found.".to_owned()))
        }
        AdminRequest::Repair(_) if shard != 0 => {
            AdminReply::Failed(ActionError::Failed("asked".to_owned()))
        }
        AdminRequest::AutoRepair(enabled) => AdminReply::AutoRepair(AutoRepairReport {
            enabled: enabled.unwrap_or(true),
            bytes_per_second: 77,
            ..AutoRepairReport::default()
        }),
        AdminRequest::Repair(command) => repair(command),
        AdminRequest::Endpoints { key, .. } if key == "1" => {
            let host_ids = vec!["h".to_owned()];
            AdminReply::Endpoints(EndpointsReport { token: 5, host_ids })
        }
        AdminRequest::Endpoints { .. } => {
            AdminReply::Failed(ActionError::Argument("no key".to_owned()))
        }
        AdminRequest::Command(_) => AdminReply::Done,
        AdminRequest::AbandonSnapshot { tag, .. } => {
            ABANDONED.lock().unwrap().push(tag);
            AdminReply::Done
        }
        AdminRequest::Sample(command) => sampling::answer(shard, command),
        AdminRequest::LogIn(login) => access::answer(&login),
        AdminRequest::Upkeep(_)
        | AdminRequest::Flush(_)
        | AdminRequest::Compact(_)
        | AdminRequest::Upgrade { .. }
        | AdminRequest::Drain
        | AdminRequest::TakeSnapshot { .. }
        | AdminRequest::ClearSnapshots(_) => AdminReply::Done,
    }
}

fn share_of_cluster(shard: u16) -> ClusterReport {
    let gossip = GossipReport { active: true, peers: Vec::new() };
    ClusterReport {
        gossip: (shard == 0).then_some(gossip),
        traffic: vec![TrafficReport {
            host_id: "p".to_owned(),
            sent: 3 + u64::from(shard),
            ..TrafficReport::default()
        }],
        ..ClusterReport::default()
    }
}

#[test]
fn summaries_of_repairs_are_of_all_shards() {
    let served = TestNode::start(answer);
    let path = "/api/v1/repair_summary?keyspace=ks&tables=t&start=-5&end=5";
    let (status, body) = served.get(path);
    assert_eq!(status, 200, "{body}");
    let all: Vec<RepairSummary> = serde_json::from_str(&body).unwrap();
    let [one] = all.as_slice() else { panic!("{all:?}") };
    assert_eq!((one.pending_bytes, one.pending_files), (2000, 2));
    assert_eq!(one.pending_sessions, ["a", "s0", "s1"]);
    assert_eq!(one.repaired, [(-5, 5, 7)]);
    for wrong in ["start=5", "start=5&end=5", "nosuch=1"] {
        let (status, body) = served.get(&format!("/api/v1/repair_summary?{wrong}"));
        assert_eq!(status, 400, "{wrong}: {body}");
    }
    served.stop();
}

#[test]
fn the_cluster_is_reported_for_all_shards_together() {
    let node = TestNode::start(answer);
    let (status, body) = node.get("/api/v1/cluster");
    let report: ClusterReport = serde_json::from_str(&body).unwrap();
    assert_eq!((status, report.traffic[0].sent), (200, 7));
    assert!(report.gossip.is_some_and(|g| g.active) && report.hints.is_none());
    assert!(report.stages.iter().any(|s| s.name == "CompactionExecutor"));
    let (status, body) = node.get("/api/v1/endpoints?keyspace=k&table=t&key=1");
    assert_eq!((status, body.as_str()), (200, r#"{"token":5,"host_ids":["h"]}"#));
    assert_eq!(node.get("/api/v1/endpoints?keyspace=k&table=t&key=2").0, 400);
    let (status, page) = node.get("/metrics");
    assert_eq!(status, 200);
    assert!(page.contains("\nhelenus_internode_peer_pending_requests{peer=\"p\"} 0\n"), "{page}");
    node.stop();
}

#[test]
fn rates_of_compactions_are_the_nodes() {
    let node = TestNode::start(answer);
    let (status, body) = node.get("/api/v1/compactions");
    let report: CompactionReport = serde_json::from_str(&body).unwrap();
    assert_eq!((status, report.rate_15_minutes, report.rate_mean), (200, Some(0.0), Some(0.0)));
    node.stop();
}

#[test]
fn commands_for_the_cluster_reach_the_shards_that_they_are_for() {
    let node = TestNode::start(answer);
    let tell = |body: &str| node.json("POST", "/api/v1/cluster", body);
    assert_eq!(tell(r#"{"command":"decommission"}"#).0, 200);
    assert_eq!(tell(r#"{"command":"set_hinted_handoff","enabled":false}"#).0, 200);
    let (status, body) = tell(r#"{"command":"pause_hints","paused":true}"#);
    assert_eq!(status, 501);
    assert!(body.contains("pausing hints is not supported yet"), "{body}");
    let (status, body) = tell(r#"{"command":"remove_node","host_id":"x"}"#);
    assert_eq!(status, 500);
    assert!(body.contains("Host ID not found."), "{body}");
    assert_eq!(tell(r#"{"command":"nonsense"}"#).0, 422);
    node.stop();
}

#[test]
fn scyllas_paths_do_the_same_and_browsers_are_refused() {
    let node = TestNode::start(answer);
    let send = |method: &str, path: &str, header: &str| {
        node.send(&format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{header}Content-Length: \
             0\r\n\r\n"
        ))
    };
    assert_eq!(send("POST", "/storage_service/decommission", "").0, 200);
    assert_eq!(send("POST", "/storage_service/incremental_backups?value=true", "").0, 200);
    assert_eq!(send("POST", "/storage_service/incremental_backups?value=false", "").0, 500);
    assert_eq!(send("POST", "/storage_service/incremental_backups?value=2", "").0, 400);
    let rates = r#"{"count":0,"mean_rate":0.0,"rates":[0.0,0.0,0.0]}"#.to_owned();
    assert_eq!(node.get("/storage_proxy/metrics/write/timeouts_rates"), (200, rates));
    assert_eq!(node.get("/storage_proxy/metrics/range/timeouts_rates").0, 404);
    assert_eq!(send("POST", "/storage_service/decommission", "Origin: http://x\r\n").0, 403);
    assert_eq!(send("POST", "/storage_service/remove_node?host_id=x", "").0, 500);
    assert_eq!(send("POST", "/storage_service/remove_node", "").0, 400);
    assert_eq!(send("POST", "/hinted_handoff/pause?pause=true", "").0, 501);
    assert_eq!(send("DELETE", "/hinted_handoff/hints", "").0, 200);
    assert_eq!(send("POST", "/storage_proxy/read_rpc_timeout?timeout=0.5", "").0, 200);
    assert_eq!(send("POST", "/storage_proxy/read_rpc_timeout?timeout=-1", "").0, 400);
    assert_eq!(node.get("/storage_service/gossiping"), (200, "true".to_owned()));
    assert_eq!(node.get("/storage_service/hostid/local"), (200, "\"h\"".to_owned()));
    assert_eq!(node.get("/storage_service/natural_endpoints/k?cf=t&key=1").0, 200);
    assert_eq!(node.get("/messaging_service/messages/sent").1, r#"[{"key":"p","value":7}]"#);
    assert_eq!(node.get("/cache_service/metrics/row/entries"), (200, "0".to_owned()));
    assert_eq!(node.get("/column_family/metrics/live_ss_table_count").0, 200);
    assert_eq!(node.get("/column_family/metrics/live_ss_table_count/ks:nosuch").0, 400);
    for path in [
        "/column_family/metrics/read_latency/estimated_histogram",
        "/column_family/metrics/write_latency/estimated_histogram/ks:t",
        "/column_family/metrics/sstables_per_read_histogram/ks:t",
        "/storage_proxy/metrics/range/estimated_histogram",
        "/storage_proxy/metrics/read/estimated_histogram/",
    ] {
        let (status, text) = node.get(path);
        assert_eq!(status, 200, "{path}: {text}");
        assert!(text.starts_with(r#"{"bucket_offsets":["#), "{path}: {text}");
    }
    for path in [
        "/column_family/metrics/read_latency/ks:t",
        "/column_family/metrics/read_latency/moving_average_histogram/ks:t",
        "/storage_proxy/metrics/cas_read/estimated_histogram",
        "/cache_service/metrics/row/hit_rate",
        "/cache_service/save_caches",
        "/messaging_service/messages/replied",
        "/storage_proxy/metrics/range/histogram",
        "/stream_manager/metrics/incoming/127.0.0.1",
    ] {
        let (status, text) = node.get(path);
        assert_eq!(status, 404, "{path}");
        assert!(text.contains("this node does not count "), "{path}: {text}");
    }
    assert_eq!(node.get("/storage_proxy/read_rpc_timeout").0, 501, "it stands beside them");
    // Neither hints nor streaming are there: no value is made up.
    for path in ["/storage_proxy/max_hint_window", "/storage_service/stream_throughput"] {
        assert_eq!(node.get(path).0, 501, "{path}");
    }
    node.stop();
}

#[test]
fn questions_are_answered_for_all_shards_together() {
    let node = TestNode::start(answer);
    let sampled = r#"["-3","-2","5","5"]"#.to_owned();
    assert_eq!(node.get("/api/v1/key_samples"), (200, sampled));
    node.stop();
    let node = TestNode::start(answer);
    let (status, body) = node.get("/api/v1/node");
    let report: NodeReport = serde_json::from_str(&body).unwrap();
    assert_eq!((status, report.nodes[0].load_bytes), (200, Some(201)));
    let (_, body) = node.get("/api/v1/tables");
    let tables: Vec<TableReport> = serde_json::from_str(&body).unwrap();
    assert_eq!((tables.len(), tables[0].disk_bytes, tables[0].snapshot_bytes), (1, 201, 5));
    let (status, body) = node.get("/metrics");
    assert_eq!(status, 200);
    for (shard, value) in [(0, 7), (1, 8)] {
        let line = format!("\nhelenus_x_total{{shard=\"{shard}\"}} {value}\n");
        assert!(body.contains(&line), "{body}");
    }
    assert_eq!(node.get("/health"), (200, "ok\n".to_owned()));
    assert_eq!(node.get("/api/v1/health"), (200, "ok\n".to_owned()));
    let list = node.get("/").1;
    assert!(list.starts_with("Helenus admin API\n\nGET    /  "), "{list}");
    for line in [
        "\nGET    /health              200 when the node answers\n",
        "\nGET    /api/v1/node         the cluster and this node\n",
        "\n                            range (keyspaces, tables, start, end),\n",
    ] {
        assert!(list.contains(line), "{list}");
    }
    let history: Vec<HistoryReport> =
        serde_json::from_str(&node.get("/api/v1/compactions/history").1).unwrap();
    assert_eq!((history.len(), history[0].table.as_str()), (1, "t"));
    let latencies: CoordinatorReport =
        serde_json::from_str(&node.get("/api/v1/latencies").1).unwrap();
    assert_eq!((latencies.read.count(), latencies.write.count()), (2, 0));
    node.stop();
}

/// No command takes a number. An answer without a body is the router's: it knows no such path, or no such method of it.
#[test]
fn every_route_of_the_tables_answers() {
    let node = TestNode::start(answer);
    for route in ROUTES.iter().chain(SCYLLA) {
        for path in route.paths() {
            let named = path.replace("{id}", "1").replace(['{', '}', '*'], "");
            let (status, body) = node.json(route.method.name(), &named, "7");
            let is_answered = !matches!(status, 404 | 405) || !body.is_empty();
            assert!(is_answered, "{} {named}: {status}", route.method);
        }
    }
    assert_eq!(node.get("/api/v1/nosuch"), (404, String::new()));
    assert_eq!(node.json("PUT", "/api/v1/node", "{}").0, 405);
    node.stop();
}

#[test]
fn guardrails_are_told_by_one_shard_and_changed_on_all() {
    let node = TestNode::start(answer);
    let (status, body) = node.get("/api/v1/guardrails");
    let all: Vec<GuardrailReport> = serde_json::from_str(&body).unwrap();
    assert_eq!((status, all.len(), all[0].settings[0].1.as_str()), (200, 1, "-1"));
    let put = |name: &str| {
        let body = format!(r#"{{"name":"{name}","values":["20","10"]}}"#);
        node.json("PUT", "/api/v1/guardrails", &body)
    };
    assert_eq!(put("tables_threshold").0, 200);
    let (status, body) = put("nonsense");
    let error = serde_json::from_str::<ErrorReport>(&body).unwrap().error;
    assert_eq!((status, error), (400, "Guardrail nonsense not found.".to_owned()));
    node.stop();
}

/// INV-admin-2.
#[test]
fn commands_succeed_only_when_every_shard_did_them() {
    let node = TestNode::start(answer);
    assert_eq!(node.json("POST", "/api/v1/flush", "{}").0, 200);
    assert_eq!(node.json("POST", "/api/v1/drain", "{}").0, 200);
    let error = |text: &str| serde_json::from_str::<ErrorReport>(text).unwrap().error;
    let (status, body) = node.json("POST", "/api/v1/flush", r#"{"keyspaces":["nosuch"]}"#);
    assert_eq!((status, error(&body)), (400, "Keyspace nosuch does not exist".to_owned()));
    let (status, body) = node.json("POST", "/api/v1/compact", "{}");
    assert_eq!((status, error(&body)), (500, "disk full".to_owned()));
    node.stop();
}

#[test]
fn a_snapshot_of_a_name_that_is_taken_is_refused_before_any_shard_begins() {
    let node = TestNode::start(answer);
    let take = |body: &str| node.json("POST", "/api/v1/snapshots", body);
    let (status, body) = take(r#"{"tag":"old"}"#);
    assert_eq!(status, 409);
    assert!(body.contains("Snapshot old already exists."), "{body}");
    assert_eq!(take(r#"{"tag":"old","keyspaces":["other"]}"#).0, 200);
    assert_eq!(take(r#"{"tag":"new"}"#).0, 200);
    assert_eq!(take(r#"{"tag":"new","skip_flush":true}"#).0, 200);
    assert_eq!(take(r#"{"tag":"in-turn"}"#).0, 400);
    // Snapshots made by the shards before the failure are removed again.
    assert_eq!(*ABANDONED.lock().unwrap(), ["in-turn"]);
    assert_eq!(node.json("DELETE", "/api/v1/snapshots", r#"{"tag":"old"}"#).0, 200);
    let twice = r#"{"older_than_seconds":5,"older_than_millis":5}"#;
    assert_eq!(node.json("DELETE", "/api/v1/snapshots", twice).0, 400);
    assert_eq!(node.json("DELETE", "/api/v1/snapshots", r#"{"older_than_seconds":5}"#).0, 200);
    node.stop();
}

#[test]
fn wrong_requests_cost_only_themselves() {
    let node = TestNode::start(answer);
    assert_eq!(node.get("/api/v1/nosuch").0, 404);
    assert_eq!(node.get("/api/v1/drain").0, 405);
    assert_eq!(node.json("POST", "/api/v1/flush", "{").0, 400);
    assert_eq!(node.json("POST", "/api/v1/flush", r#"{"tabels":[]}"#).0, 422);
    let short = r#"{"tag":"short","ttl_seconds":59}"#;
    let (status, text) = node.json("POST", "/api/v1/snapshots", short);
    assert_eq!(status, 400, "{text}");
    assert!(text.contains("ttl for snapshot must be at least 60 seconds"), "{text}");
    let long = r#"{"tag":"long","ttl_seconds":60}"#;
    assert_eq!(node.json("POST", "/api/v1/snapshots", long).0, 200);
    let form = "POST /api/v1/drain HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
                Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}";
    assert_eq!(node.send(form).0, 415);
    let large = format!(r#"{{"keyspaces":["{}"]}}"#, "x".repeat(BODY_BYTES_MAX));
    assert_eq!(node.json("POST", "/api/v1/flush", &large).0, 413);
    assert_eq!(node.send("nonsense\r\n\r\n").0, 400);
    assert_eq!(node.get("/health").0, 200);
    node.stop();
}

#[test]
fn a_stopped_node_is_unavailable_and_a_taken_port_an_error() {
    // Drops requests without an answer, like shards that have ended.
    let node = TestNode::start_serving(|_, _, reply| drop(reply));
    let address = node.address;
    let (sender, taken) = std::sync::mpsc::channel();
    let main: rt::Main = Arc::new(move |rt| {
        let sender = sender.clone();
        Box::pin(async move {
            let caller = AdminMesh::new(1, 1).foreign();
            let started = AdminServer::start(&rt, parts_of(address, caller));
            sender.send(matches!(started, Err(AdminError::Listen { .. }))).unwrap();
        })
    });
    let spec = NodeSpec { name: "taken".to_owned(), shards: 1, work_dir: String::new() };
    Machine::native(NativeOptions::default()).start(spec, main).join().unwrap();
    assert!(taken.recv().unwrap());
    assert_eq!(node.get("/health").0, 503);
    node.stop();
}

/// A request that no shard answers, and one that has not arrived (INV-admin-1).
#[test]
fn stopping_waits_for_no_client() {
    static ASKED: std::sync::Mutex<Vec<Reply<AdminReply>>> = std::sync::Mutex::new(Vec::new());
    let node = TestNode::start_serving(|_, _, reply| ASKED.lock().unwrap().push(reply));
    let connect = || TcpStream::connect(node.address).unwrap();
    let mut stuck = connect();
    stuck.write_all(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut slow = connect();
    slow.write_all(b"POST /api/v1/flush HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n").unwrap();
    while ASKED.lock().unwrap().is_empty() {
        std::thread::yield_now();
    }
    node.stop();
    for mut stream in [stuck, slow] {
        assert!(matches!(stream.read(&mut [0]), Ok(0) | Err(_)));
    }
}

/// A node whose repair 7 runs.
fn repair(command: RepairCommand) -> AdminReply {
    let report = |from| RepairReport {
        id: 7,
        keyspace: "ks".to_owned(),
        state: "RUNNING".to_owned(),
        lines: vec![RepairLineReport { number: from, at: 5, text: "line".to_owned() }],
        ..RepairReport::default()
    };
    match command {
        RepairCommand::Start(order) if order.keyspace == "nosuch" => AdminReply::Failed(
            ActionError::Argument("Keyspace [nosuch] does not exist.".to_owned()),
        ),
        RepairCommand::Start(order) if order.tables == ["t"] && order.primary_range => {
            AdminReply::Repairs(vec![report(0)])
        }
        RepairCommand::Status { id: 7, from } => AdminReply::Repairs(vec![report(from)]),
        RepairCommand::List => AdminReply::Repairs(vec![report(0)]),
        RepairCommand::Abort { id: Some(7) | None } => AdminReply::Repairs(Vec::new()),
        _ => AdminReply::Repairs(Vec::new()),
    }
}

#[test]
fn repairs_begin_are_asked_for_and_end() {
    let node = TestNode::start(answer);
    let post = |path: &str, headers: &str| {
        node.send(&format!("POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n"))
    };
    let begin = "/storage_service/repair_async/ks?columnFamilies=t&primaryRange=true";
    assert_eq!(post(begin, ""), (200, "7".to_owned()));
    assert_eq!(post(begin, "Origin: http://elsewhere\r\n").0, 403);
    // Unknown options are not ignored.
    assert_eq!(post(&format!("{begin}&nosuch=1"), "").0, 400);
    assert_eq!(post(&format!("{begin}&trace=true"), "").0, 200);
    let (status, words) = post("/storage_service/repair_async/nosuch", "");
    assert_eq!(status, 400);
    assert!(words.contains("Keyspace [nosuch] does not exist."), "{words}");
    let state = node.get("/storage_service/repair_async/ks?id=7");
    assert_eq!(state, (200, "\"RUNNING\"".to_owned()));
    assert_eq!(node.get("/storage_service/repair_async/ks?id=8").0, 404);
    assert_eq!(node.get("/storage_service/repair_async/other?id=7").0, 400);
    assert_eq!(node.get("/storage_service/active_repair/"), (200, "[7]".to_owned()));
    let (status, text) = node.get("/api/v1/repairs/7?from=3");
    assert!(status == 200 && text.contains("\"number\":3"), "{status} {text}");
    assert_eq!(node.json("DELETE", "/api/v1/repairs/7", "{}").0, 200);
    assert_eq!(node.json("DELETE", "/api/v1/repairs/8", "{}").0, 404);
    assert_eq!(post("/storage_service/force_terminate_repair", "").0, 200);
    let (status, text) = node.get("/api/v1/auto_repair");
    assert!(status == 200 && text.contains("\"bytes_per_second\":77"), "{status} {text}");
    assert_eq!(node.json("PUT", "/api/v1/auto_repair?enabled=false", "{}").0, 200);
    assert_eq!(node.json("PUT", "/api/v1/auto_repair?enable=false", "{}").0, 400);
    node.stop();
}

/// INV-admin-1: more than one address may have, and more than there may be at all.
#[test]
fn open_connections_lock_nobody_out() {
    let node = TestNode::start(answer);
    let connect = || TcpStream::connect(node.address).unwrap();
    let idle: Vec<TcpStream> = (0..=connections::CONNECTIONS_MAX).map(|_| connect()).collect();
    assert_eq!(node.get("/health"), (200, "ok\n".to_owned()));
    // Those that have begun a request and do not go on are no better.
    let slow: Vec<TcpStream> = (0..=connections::CONNECTIONS_MAX)
        .map(|n| {
            let mut stream = connect();
            let head = "POST /api/v1/flush HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n";
            let begun = if n % 2 == 0 { head.to_owned() } else { format!("{head}\r\n{{") };
            // The server may have closed it to admit later connections.
            let _ = stream.write_all(begun.as_bytes());
            stream
        })
        .collect();
    assert_eq!(node.get("/health"), (200, "ok\n".to_owned()));
    // The one that was idle the longest was closed: nothing comes but the end, or a reset.
    let mut first = &idle[0];
    assert!(matches!(first.read(&mut [0]), Ok(0) | Err(_)));
    drop((idle, slow));
    node.stop();
}

#[test]
fn a_connection_that_is_kept_open_serves_one_request_after_the_other() {
    let node = TestNode::start(answer);
    let mut stream = TcpStream::connect(node.address).unwrap();
    for _ in 0..3 {
        stream.write_all(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"ok\n") {
            let mut more = [0; 512];
            let n = stream.read(&mut more).unwrap();
            assert!(n > 0, "{}", String::from_utf8_lossy(&answer));
            answer.extend_from_slice(&more[..n]);
        }
        assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"));
    }
    node.stop();
}
