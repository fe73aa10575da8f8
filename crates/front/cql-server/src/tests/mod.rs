//! Connections without sockets over a store in the simulator, and with sockets between simulated
//! machines.

mod acknowledgements;
mod aggregations;
mod audit_log;
mod audited_statements;
mod authorization;
mod batch_log;
mod certificate_logins;
mod cidr;
mod cluster_of_shards;
mod conditional;
mod counters;
mod full_query_log;
mod functions;
mod guardrails;
mod handshake;
mod hostile;
mod in_memory;
mod log_table;
mod logins;
mod masks;
mod memory;
mod queries;
mod request_rates;
mod roles;
mod scattered;
mod several_nodes;
mod statements;
mod tls;
mod tombstone_pages;
mod traces;
mod truncation;

use crate::settings::ServerSettings;
use crate::{Authentication, Connection, CqlServer, ServerMesh, ServerParts};
use cluster::{ClusterSnapshot, LocalNode, Member, MemberState, Role, Transformation, metalog};
use coordinator::{Coordinator, ShardMesh};
use cql_wire::request::{RequestOptions, encode_request};
use cql_wire::{
    Compression, Consistency, ErrorCode, FrameDecoder, Negotiated, ProtocolVersion,
    QueryParameters, Request, Response, ResponseBody, Side, StringMap, ValueList, pack_segments,
};
pub(crate) use dist_testing::loopback::member;
use membership::{Membership, MetaMesh};
use query::{QuerySettings, VirtualRows, VirtualSource};
use rt::Rt;
use rt::sim::{World, WorldOptions};
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use stdx::{Epoch, HostId, ShardId, Token, Uuid, WallMicros};
use store::{Store, StoreOptions};

pub(crate) const V3: ProtocolVersion = ProtocolVersion::V3;
pub(crate) const V4: ProtocolVersion = ProtocolVersion::V4;
pub(crate) const V5: ProtocolVersion = ProtocolVersion::V5;
pub(crate) const V6: ProtocolVersion = ProtocolVersion::V6;

/// bcrypt of "secret", cost 4.
pub(crate) fn secret_hash() -> String {
    bcrypt::hash("secret", 4).unwrap()
}

pub(crate) fn settings() -> ServerSettings {
    ServerSettings::new("127.0.0.1:9042".parse().unwrap())
}

/// Settings with other settings of execution.
pub(crate) fn changed(
    mut settings: ServerSettings,
    change: impl FnOnce(&mut QuerySettings),
) -> ServerSettings {
    change(&mut settings.query);
    settings
}

pub(crate) fn local_node() -> LocalNode {
    LocalNode {
        host_id: HostId(Uuid::from_u128(7)),
        cluster_name: "Test Cluster".to_owned(),
        datacenter: "datacenter1".to_owned(),
        rack: "rack1".to_owned(),
        tokens: vec![Token(0)],
        created_at: WallMicros(1_700_000_000_000_000),
    }
}

/// A cluster of members 1 to `n`, as the first of them sees it.
pub(crate) fn several_members(n: u8) -> ClusterSnapshot {
    dist_testing::loopback::several_members(n, &cql_plan::system::system_schema())
}

/// The ways between shards.
#[derive(Clone)]
pub(crate) struct Meshes {
    data: Arc<ShardMesh>,
    metadata: Arc<MetaMesh>,
    server: Arc<ServerMesh>,
}

impl Meshes {
    pub(crate) fn new(shards: u16) -> Meshes {
        Meshes {
            data: Arc::new(ShardMesh::new(shards, 1024)),
            metadata: Arc::new(MetaMesh::new(shards, 1024)),
            server: Arc::new(ServerMesh::new(shards, 1024)),
        }
    }
}

/// One shard of a node that was just made, or started again on its files.
pub(crate) async fn node(rt: &Rt, settings: ServerSettings, meshes: &Meshes) -> CqlServer {
    node_with(rt, settings, meshes, |_| ()).await
}

/// The same with a store of other options.
pub(crate) async fn node_with(
    rt: &Rt,
    settings: ServerSettings,
    meshes: &Meshes,
    change: impl FnOnce(&mut StoreOptions),
) -> CqlServer {
    let base = cql_plan::system::system_schema();
    let mut log = None;
    let snapshot: Option<ClusterSnapshot> = if rt.shard() == ShardId(0) {
        let opened = membership::log::open(rt, "", &base).await.unwrap();
        log = Some(opened.log);
        opened.snapshot
    } else {
        // Shard 0 has made the log by then.
        rt.sleep(Duration::from_millis(50)).await;
        let bytes = rt.fs().read("/metadata/log", 1 << 20).await.unwrap();
        metalog::load(&bytes, &base).unwrap().snapshot
    };
    let snapshot = match snapshot {
        Some(snapshot) => snapshot,
        None => {
            let first = Transformation::Bootstrap(local_node());
            let role =
                |can_login| Role { is_superuser: false, can_login, salted_hash: String::new() };
            let roles = [
                Transformation::PutRole { name: "me".to_owned(), role: role(true) },
                Transformation::PutRole { name: "guest".to_owned(), role: role(false) },
            ];
            let mut snapshot = metalog::bootstrap(&first, &base).unwrap();
            let mut framed = Vec::new();
            first.encode_entry(Epoch(1), &mut framed);
            for role in &roles {
                snapshot = snapshot.apply(role).unwrap();
                role.encode_entry(snapshot.epoch, &mut framed);
            }
            if log.is_some() {
                let made = membership::log::create(rt, "", &base, &framed, snapshot.epoch).await;
                log = Some(made.unwrap().log);
            }
            snapshot
        }
    };
    let snapshot = Arc::new(snapshot);
    let run = u64::try_from(rt.wall().0).unwrap();
    let mut options = StoreOptions::new(
        "data".to_owned(),
        "commitlog".to_owned(),
        snapshot.local.host_id,
        run,
        stdx::ShardMap::ByTokenHash { shards: rt.shard_count() },
        |table| format!("CREATE TABLE {}", table.name),
    );
    options.segment_bytes = 1 << 20;
    options.disk_reserve_bytes = 0;
    options.keeps_truncations = true;
    change(&mut options);
    let (store, _) = Store::open(rt.clone(), options, snapshot.schema.clone()).await.unwrap();
    let membership =
        Membership::new(rt.clone(), meshes.metadata.clone(), snapshot, log.map(|log| (log, "")));
    let of_store = store.clone();
    membership.on_change(move |_, after| of_store.set_schema(after.schema.clone()));
    let coordinator = Coordinator::new(rt.clone(), store, meshes.data.clone());
    let server = CqlServer::new(ServerParts {
        rt: rt.clone(),
        coordinator,
        membership: membership.clone(),
        settings: Arc::new(settings),
        plan_limits: cql_plan::plan::PlanLimits::default(),
        mesh: meshes.server.clone(),
        virtual_source: Rc::new(Computed::default()),
    });
    if rt.shard() == ShardId(0) {
        drop(server.start_logins().unwrap());
    }
    let applying = server.clone();
    membership.on_apply(move |_, after| {
        let server = applying.clone();
        Box::pin(async move { server.truncations().apply("", &after).await.unwrap() })
    });
    server
}

/// `system_views.settings` with some names, `system_logs` with some records.
#[derive(Default)]
struct Computed {
    is_log_emptied: Cell<bool>,
}

/// Timestamp in milliseconds, order in it, level.
const LOGS: [(i64, i32, &str); 4] =
    [(1_700_000_000_001, 0, "WARN"), (-5, 0, "DEBUG"), (7, 1, "INFO"), (7, 0, "ERROR")];

pub(crate) const SETTINGS: [&str; 12] = [
    "api_port",
    "cpuset",
    "data_dir",
    "memory",
    "num_tokens",
    "rpc_port",
    "seeds",
    "smp",
    "snitch",
    "start_rpc",
    "storage_port",
    "workdir",
];

impl VirtualSource for Computed {
    fn rows<'a>(&'a self, table: &'a schema::Table) -> VirtualRows<'a> {
        if &*table.name == "system_logs" {
            let logs = LOGS.iter().filter(|_| !self.is_log_emptied.get());
            let row = |(at, order, level): &(i64, i32, &str)| {
                let mut row = cql_plan::virtual_row::VirtualRowBuilder::new(table);
                row.timestamp_millis("timestamp", *at).int("order_in_millisecond", *order);
                row.text("level", level).finish().unwrap()
            };
            return Box::pin(std::future::ready(logs.map(row).collect()));
        }
        let names = SETTINGS.iter().filter(|_| &*table.name == "settings");
        let row = |name: &&str| {
            let mut row = cql_plan::virtual_row::VirtualRowBuilder::new(table);
            row.text("name", name).text("value", "x").finish().unwrap()
        };
        Box::pin(std::future::ready(names.map(row).collect()))
    }

    fn truncate(&self, table: &schema::Table) -> bool {
        self.is_log_emptied.set(&*table.name == "system_logs");
        self.is_log_emptied.get()
    }
}

/// Runs `main` as the only shard of a node.
pub(crate) fn run<F: Future<Output = ()> + 'static>(main: impl FnOnce(Rt) -> F + 'static) {
    let world = World::new(11, WorldOptions::default());
    run_in(&world, main);
}

pub(crate) fn run_in<F: Future<Output = ()> + 'static>(
    world: &World,
    main: impl FnOnce(Rt) -> F + 'static,
) {
    let done = Rc::new(Cell::new(false));
    let seen = done.clone();
    world.client("n1", move |rt| async move {
        main(rt).await;
        seen.set(true);
    });
    world.run_until(|| done.get(), Duration::from_secs(3600)).unwrap();
}

/// A client on a connection without a socket.
pub(crate) struct Client {
    pub(crate) connection: Connection,
    decoder: FrameDecoder,
    pub(crate) negotiated: Negotiated,
    compression: Option<Compression>,
    segmented: bool,
    received: Vec<u8>,
}

/// An answer, owned.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Got {
    pub(crate) stream: i16,
    pub(crate) warnings: Vec<String>,
    pub(crate) tracing: Option<Uuid>,
    pub(crate) payload: Vec<String>,
    pub(crate) body: Body,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Body {
    Error(ErrorCode, String),
    Ready,
    Authenticate(String),
    AuthSuccess,
    Supported(Vec<(String, Vec<String>)>),
    Void,
    Rows(Rows),
    SetKeyspace(String),
    Prepared(PreparedGot),
    SchemaChange(String),
    Event(String),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rows {
    /// Names; `None` when left out.
    pub(crate) columns: Option<Vec<String>>,
    pub(crate) rows: Vec<Vec<Option<Vec<u8>>>>,
    pub(crate) paging_state: Option<Vec<u8>>,
    pub(crate) new_id: Option<Vec<u8>>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PreparedGot {
    pub(crate) id: Vec<u8>,
    pub(crate) metadata_id: Option<Vec<u8>>,
    pub(crate) markers: Vec<String>,
    pub(crate) pk: Vec<u16>,
    pub(crate) columns: Vec<String>,
    /// Marked as conditional.
    pub(crate) is_marked: bool,
}

impl Got {
    pub(crate) fn rows(self) -> Rows {
        match self.body {
            Body::Rows(rows) => rows,
            other => panic!("expected rows, got {other:?}"),
        }
    }

    pub(crate) fn error(self) -> (ErrorCode, String) {
        match self.body {
            Body::Error(code, message) => (code, message),
            other => panic!("expected an error, got {other:?}"),
        }
    }

    pub(crate) fn prepared(self) -> PreparedGot {
        match self.body {
            Body::Prepared(prepared) => prepared,
            other => panic!("expected PREPARED, got {other:?}"),
        }
    }
}

fn own(stream: i16, response: &Response<'_>) -> Got {
    let body = match &response.body {
        ResponseBody::Error { error, message } => Body::Error(error.code(), (*message).to_owned()),
        ResponseBody::Ready => Body::Ready,
        ResponseBody::Authenticate(class) => Body::Authenticate((*class).to_owned()),
        ResponseBody::AuthSuccess(_) => Body::AuthSuccess,
        ResponseBody::AuthChallenge(_) => panic!("a challenge"),
        ResponseBody::Supported(options) => Body::Supported(
            options
                .iter()
                .map(|(k, v)| ((*k).to_owned(), v.iter().map(|s| (*s).to_owned()).collect()))
                .collect(),
        ),
        ResponseBody::Void => Body::Void,
        ResponseBody::Rows(rows) => {
            let count = rows.metadata.column_count as usize;
            let values: Vec<Option<Vec<u8>>> =
                rows.values().map(|v| v.map(<[u8]>::to_vec)).collect();
            let names =
                |c: &Vec<cql_wire::ColumnSpec<'_>>| c.iter().map(|c| c.name.to_owned()).collect();
            Body::Rows(Rows {
                columns: rows.metadata.columns.as_ref().map(names),
                rows: values.chunks(count.max(1)).map(<[_]>::to_vec).collect(),
                paging_state: rows.metadata.paging_state.map(<[u8]>::to_vec),
                new_id: rows.metadata.new_metadata_id.map(<[u8]>::to_vec),
            })
        }
        ResponseBody::SetKeyspace(keyspace) => Body::SetKeyspace((*keyspace).to_owned()),
        ResponseBody::Prepared(p) => Body::Prepared(PreparedGot {
            id: p.id.to_vec(),
            metadata_id: p.result_metadata_id.map(<[u8]>::to_vec),
            markers: p.metadata.columns.iter().map(|c| c.name.to_owned()).collect(),
            pk: p.metadata.partition_key_indexes.clone(),
            is_marked: p.metadata.flags & cql_wire::scylla::LWT_MARK != 0,
            columns: p
                .result_metadata
                .columns
                .iter()
                .flatten()
                .map(|c| c.name.to_owned())
                .collect(),
        }),
        ResponseBody::SchemaChange(change) => Body::SchemaChange(format!("{change:?}")),
        ResponseBody::Event(event) => Body::Event(format!("{event:?}")),
    };
    Got {
        stream,
        warnings: response.warnings.iter().map(|w| (*w).to_owned()).collect(),
        tracing: response.tracing_id,
        payload: response
            .custom_payload
            .iter()
            .flat_map(|p| p.iter().map(|(k, _)| k.to_owned()).collect::<Vec<_>>())
            .collect(),
        body,
    }
}

impl Client {
    pub(crate) fn new(server: &CqlServer, version: ProtocolVersion) -> Client {
        Client::from(server, version, "127.0.0.1:50000".parse().unwrap())
    }

    pub(crate) fn from(
        server: &CqlServer,
        version: ProtocolVersion,
        address: SocketAddr,
    ) -> Client {
        Client {
            connection: Connection::new(server, address),
            decoder: FrameDecoder::new(Side::Client, 64 << 20),
            negotiated: Negotiated::plain(version),
            compression: None,
            segmented: false,
            received: Vec::new(),
        }
    }

    /// A client that has said STARTUP and got READY.
    pub(crate) async fn ready(server: &CqlServer, version: ProtocolVersion) -> Client {
        let mut client = Client::new(server, version);
        assert_eq!(client.startup(&[]).await.body, Body::Ready);
        client
    }

    pub(crate) async fn startup(&mut self, more: &[(&str, &str)]) -> Got {
        let mut entries = vec![("CQL_VERSION", "3.0.0")];
        entries.extend_from_slice(more);
        let mut map = Vec::new();
        StringMap::encode(&mut map, &entries).unwrap();
        let map = StringMap::decode(&mut codec::Reader::new(&map, "test")).unwrap();
        self.send(0, &Request::Startup(map));
        let got = self.receive().await;
        if matches!(got.body, Body::Ready | Body::Authenticate(_)) {
            let compression = more.iter().find(|(k, _)| *k == "COMPRESSION").map(|(_, v)| *v);
            self.compression = compression
                .and_then(|name| Compression::ALL.into_iter().find(|c| c.name() == name));
            self.negotiated.metadata_id =
                more.iter().any(|(k, _)| *k == cql_wire::scylla::USE_METADATA_ID);
            self.negotiated.lwt_mark =
                more.iter().any(|(k, _)| *k == cql_wire::scylla::LWT_ADD_METADATA_MARK);
            let version = self.negotiated.version;
            self.decoder.start(version, self.compression).unwrap();
            self.segmented = version.has_segments();
        }
        got
    }

    /// The bytes of a request.
    pub(crate) fn encode(&self, options: &RequestOptions<'_>, request: &Request<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        encode_request(request, self.negotiated, options, &mut out).unwrap();
        if !self.segmented {
            return out;
        }
        let mut packed = Vec::new();
        pack_segments(&out, self.compression == Some(Compression::Lz4), &mut packed);
        packed
    }

    pub(crate) fn send(&mut self, stream: i16, request: &Request<'_>) {
        let options = RequestOptions {
            stream,
            compression: self.compression.filter(|_| !self.segmented),
            ..RequestOptions::default()
        };
        let bytes = self.encode(&options, request);
        self.connection.feed(&bytes);
    }

    /// The next answer; waits for it.
    pub(crate) async fn receive(&mut self) -> Got {
        loop {
            if let Some(got) = self.try_receive() {
                return got;
            }
            let connection = &mut self.connection;
            let output = poll_fn(|cx| {
                connection.turn(cx);
                if connection.output().is_empty() {
                    assert!(!connection.is_finished(), "the connection ended");
                    return Poll::Pending;
                }
                let output = connection.output().to_vec();
                connection.consume_output(output.len());
                Poll::Ready(output)
            })
            .await;
            self.received.extend_from_slice(&output);
        }
    }

    /// An answer that was received already.
    pub(crate) fn try_receive(&mut self) -> Option<Got> {
        let received = std::mem::take(&mut self.received);
        let mut rest = received.as_slice();
        let got = self.decoder.next(&mut rest).unwrap().map(|frame| {
            own(frame.header.stream, &Response::decode(&frame, self.negotiated).unwrap())
        });
        let used = received.len() - rest.len();
        self.received = received;
        self.received.drain(..used);
        got
    }

    pub(crate) async fn ask(&mut self, request: &Request<'_>) -> Got {
        self.send(1, request);
        let got = self.receive().await;
        assert_eq!(got.stream, 1);
        got
    }

    /// QUERY without values.
    pub(crate) async fn query(&mut self, text: &str) -> Got {
        let parameters = QueryParameters::new(Consistency::One);
        self.ask(&Request::Query { query: text, parameters }).await
    }

    /// QUERY that must not fail.
    pub(crate) async fn must(&mut self, text: &str) -> Got {
        let got = self.query(text).await;
        if let Body::Error(code, message) = &got.body {
            panic!("{text}: {code} {message}");
        }
        got
    }

    pub(crate) async fn prepare(&mut self, text: &str) -> PreparedGot {
        let got = self.ask(&Request::Prepare { query: text, keyspace: None }).await;
        if let Body::Error(code, message) = &got.body {
            panic!("{text}: {code} {message}");
        }
        got.prepared()
    }

    /// EXECUTE with values.
    pub(crate) async fn execute(&mut self, prepared: &PreparedGot, values: &[&[u8]]) -> Got {
        let list = value_list(values);
        let parameters =
            QueryParameters { values: list.values(), ..QueryParameters::new(Consistency::One) };
        self.ask(&Request::Execute {
            id: &prepared.id,
            result_metadata_id: prepared.metadata_id.as_deref(),
            parameters,
        })
        .await
    }

    /// A keyspace and a table to work with.
    pub(crate) async fn with_table(&mut self) {
        self.must(
            "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', \
             'replication_factor': 1}",
        )
        .await;
        self.must("CREATE TABLE ks.t (k int, c int, v text, PRIMARY KEY (k, c))").await;
    }
}

pub(crate) fn value_list(values: &[&[u8]]) -> ValueList {
    let mut list = ValueList::new();
    for value in values {
        list.push(cql_wire::BoundValue::Bytes(value)).unwrap();
    }
    list
}

pub(crate) fn int(n: i32) -> [u8; 4] {
    n.to_be_bytes()
}

/// Rows of ints and texts as one text: ints are four bytes.
pub(crate) fn show(rows: &Rows) -> Vec<String> {
    rows.rows
        .iter()
        .map(|row| {
            let cells: Vec<String> = row
                .iter()
                .map(|cell| match cell {
                    None => "null".to_owned(),
                    Some(bytes) => match <[u8; 4]>::try_from(bytes.as_slice()) {
                        Ok(int) if int[0] == 0 => i32::from_be_bytes(int).to_string(),
                        _ => String::from_utf8_lossy(bytes).into_owned(),
                    },
                })
                .collect();
            cells.join(" ")
        })
        .collect()
}

pub(crate) fn with_password() -> ServerSettings {
    ServerSettings { authentication: Authentication::Password, ..settings() }
}

/// Runs all at the same time to their ends.
pub(crate) async fn join_all<F: Future<Output = ()>>(futures: Vec<F>) {
    let mut running: Vec<_> = futures.into_iter().map(Box::pin).collect();
    poll_fn(|cx| {
        running.retain_mut(|future| future.as_mut().poll(cx).is_pending());
        if running.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
