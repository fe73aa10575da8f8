//! Several shards, sockets, restarts.

use super::*;
use crate::{Placement, Port, PortEncryption};
use cql_wire::request::BatchList;
use cql_wire::{Batch, BatchKind, BatchQuery};
use rt::sim::SimNode;
use rt::{NodeSpec, Stream};
use std::net::SocketAddr;

const PORT: u16 = 9042;

fn start(world: &World, shards: u16, settings: ServerSettings) -> SimNode {
    let meshes = Meshes::new(shards);
    let spec = NodeSpec { name: "n1".to_owned(), shards, work_dir: "/n1".to_owned() };
    let address = SocketAddr::new(world.ip("n1"), PORT);
    let aware = SocketAddr::new(world.ip("n1"), 19042);
    world.start_node(
        spec,
        Arc::new(move |rt| {
            let (meshes, settings) = (meshes.clone(), settings.clone());
            Box::pin(async move {
                let server = node(&rt, settings, &meshes).await;
                if rt.shard() == ShardId(0) {
                    rt.sleep(Duration::from_millis(500)).await;
                    server.load_prepared().await.unwrap();
                    server.listen(address).await.unwrap();
                    let placement = Placement::ShardAware;
                    let port = Port { placement, encryption: PortEncryption::Plain };
                    server.listen_on(aware, port).await.unwrap();
                }
                rt.stop_requested().await;
                server.stop().await;
            })
        }),
    )
}

/// A client over a simulated socket.
pub(super) struct Remote {
    conn: Stream,
    client: Codec,
}

struct Codec {
    decoder: FrameDecoder,
    negotiated: Negotiated,
    /// Frames are wrapped in segments.
    segmented: bool,
    received: Vec<u8>,
}

impl Remote {
    pub(super) async fn connect(rt: &Rt, address: SocketAddr) -> Remote {
        Remote::connect_as(rt, address, V4).await
    }

    pub(super) async fn connect_as(
        rt: &Rt,
        address: SocketAddr,
        version: ProtocolVersion,
    ) -> Remote {
        let conn = loop {
            match rt.connect(address).await {
                Ok(conn) => break conn,
                Err(_) => rt.sleep(Duration::from_millis(50)).await,
            }
        };
        Remote::over(Stream::plain(conn), version).await.unwrap()
    }

    /// A client that has said STARTUP over a connection of any kind; `None` when it ended.
    pub(super) async fn over(conn: Stream, version: ProtocolVersion) -> Option<Remote> {
        let (mut remote, body) = Remote::begin(conn, version).await?;
        assert_eq!(body, Body::Ready);
        remote.client.decoder.start(version, None).unwrap();
        remote.client.segmented = version == V5;
        Some(remote)
    }

    /// A client that has said STARTUP, and the answer; `None` when the connection ended.
    pub(super) async fn begin(conn: Stream, version: ProtocolVersion) -> Option<(Remote, Body)> {
        let mut remote = Remote {
            conn,
            client: Codec {
                decoder: FrameDecoder::new(Side::Client, 16 << 20),
                negotiated: Negotiated::plain(version),
                segmented: false,
                received: Vec::new(),
            },
        };
        let mut map = Vec::new();
        StringMap::encode(&mut map, &[("CQL_VERSION", "3.0.0")]).unwrap();
        let map = StringMap::decode(&mut codec::Reader::new(&map, "test")).unwrap();
        let body = remote.ask(&Request::Startup(map)).await?.body;
        Some((remote, body))
    }

    pub(super) async fn ask(&mut self, request: &Request<'_>) -> Option<Got> {
        let bytes = self.encode_request(request);
        self.conn.write_all(&bytes).await.ok()?;
        self.receive().await
    }

    /// The bytes of a QUERY, for [`Remote::write`].
    pub(super) fn encode(&self, query: &str) -> Vec<u8> {
        let parameters = QueryParameters::new(Consistency::One);
        self.encode_request(&Request::Query { query, parameters })
    }

    fn encode_request(&self, request: &Request<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        let options = RequestOptions { stream: 1, ..Default::default() };
        encode_request(request, self.client.negotiated, &options, &mut out).unwrap();
        if self.client.segmented {
            let frames = std::mem::take(&mut out);
            pack_segments(&frames, false, &mut out);
        }
        out
    }

    /// Writes some bytes of a request.
    pub(super) async fn write(&self, bytes: &[u8]) {
        self.conn.write_all(bytes).await.unwrap();
    }

    /// The next frame; `None` when the connection ended.
    pub(super) async fn receive(&mut self) -> Option<Got> {
        loop {
            let received = std::mem::take(&mut self.client.received);
            let mut rest = received.as_slice();
            let got = self.client.decoder.next(&mut rest).unwrap().map(|frame| {
                let response = Response::decode(&frame, self.client.negotiated).unwrap();
                own(frame.header.stream, &response)
            });
            let used = received.len() - rest.len();
            self.client.received = received;
            self.client.received.drain(..used);
            if got.is_some() {
                return got;
            }
            match self.conn.read(&mut self.client.received, 1 << 16).await {
                Ok(n) if n > 0 => {}
                _ => return None,
            }
        }
    }

    pub(super) async fn prepare(&mut self, query: &str) -> PreparedGot {
        self.ask(&Request::Prepare { query, keyspace: None }).await.unwrap().prepared()
    }

    /// EXECUTE, two rows a page.
    pub(super) async fn execute(
        &mut self,
        prepared: &PreparedGot,
        values: &[&[u8]],
        consistency: Consistency,
        paging_state: Option<&[u8]>,
    ) -> Got {
        let list = value_list(values);
        let parameters = QueryParameters {
            values: list.values(),
            page_size: Some(2),
            paging_state,
            skip_metadata: true,
            ..QueryParameters::new(consistency)
        };
        let (id, result_metadata_id) = (&prepared.id, prepared.metadata_id.as_deref());
        self.ask(&Request::Execute { id, result_metadata_id, parameters }).await.unwrap()
    }

    /// Asks and does not wait for the answer.
    pub(super) async fn send(&mut self, query: &str) {
        let parameters = QueryParameters::new(Consistency::One);
        let options = RequestOptions { stream: 1, ..Default::default() };
        let mut out = Vec::new();
        let request = Request::Query { query, parameters };
        encode_request(&request, self.client.negotiated, &options, &mut out).unwrap();
        self.conn.write_all(&out).await.unwrap();
    }

    pub(super) async fn query(&mut self, query: &str) -> Option<Got> {
        let parameters = QueryParameters::new(Consistency::One);
        let got = self.ask(&Request::Query { query, parameters }).await?;
        if let Body::Error(code, message) = &got.body {
            panic!("{query}: {code} {message}");
        }
        Some(got)
    }
}

pub(super) fn client<F: Future<Output = ()> + 'static>(
    world: &World,
    name: &str,
    main: impl FnOnce(Rt) -> F + 'static,
) {
    let done = Rc::new(Cell::new(false));
    let seen = done.clone();
    world.client(name, move |rt| async move {
        main(rt).await;
        seen.set(true);
    });
    world.run_until(|| done.get(), Duration::from_secs(600)).unwrap();
}

#[test]
fn all_shards_answer_for_all_keys_and_know_all_prepared_statements() {
    for shards in [1, 3] {
        let world = World::new(5, WorldOptions::default());
        let node = start(&world, shards, settings());
        let address = SocketAddr::new(world.ip("n1"), PORT);
        client(&world, "c1", move |rt| async move {
            let mut first = Remote::connect(&rt, address).await;
            first
                .query(
                    "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', \
                     'replication_factor': 1}",
                )
                .await
                .unwrap();
            first.query("CREATE TABLE ks.t (k int PRIMARY KEY, v text)").await.unwrap();
            let query = "INSERT INTO ks.t (k, v) VALUES (?, ?)";
            let prepared =
                first.ask(&Request::Prepare { query, keyspace: None }).await.unwrap().prepared();
            let mut others = Vec::new();
            for _ in 0..shards {
                others.push(Remote::connect(&rt, address).await);
            }
            for (i, remote) in (0..60).zip((0..usize::from(shards)).cycle()) {
                let list = value_list(&[&int(i), b"text"]);
                let parameters = QueryParameters {
                    values: list.values(),
                    ..QueryParameters::new(Consistency::One)
                };
                let request =
                    Request::Execute { id: &prepared.id, result_metadata_id: None, parameters };
                assert_eq!(others[remote].ask(&request).await.unwrap().body, Body::Void);
            }
            for remote in &mut others {
                for k in 0..60 {
                    let text = format!("SELECT v FROM ks.t WHERE k = {k}");
                    assert_eq!(remote.query(&text).await.unwrap().rows().rows.len(), 1);
                }
                let all = remote.query("SELECT k FROM ks.t").await.unwrap().rows();
                assert_eq!(all.rows.len(), 60);
                let clients =
                    remote.query("SELECT address, port FROM system_views.clients").await.unwrap();
                assert_eq!(clients.rows().rows.len(), usize::from(shards) + 1);
            }
            first.query("TRUNCATE ks.t").await.unwrap();
            for remote in &mut others {
                let all = remote.query("SELECT k FROM ks.t").await.unwrap().rows();
                assert!(all.rows.is_empty());
            }
        });
        node.request_stop();
        world.run_until(|| !world.is_alive(&node), Duration::from_secs(60)).unwrap();
    }
}

/// Forty rows of one statement and, between them, of another, for partitions of all shards: what a shard
/// gets of them goes to it in one message.
#[test]
fn a_batch_for_all_shards_is_applied_by_each_of_them() {
    for (shards, kind) in
        [(1, BatchKind::Unlogged), (3, BatchKind::Unlogged), (3, BatchKind::Logged)]
    {
        let world = World::new(5, WorldOptions::default());
        let node = start(&world, shards, settings());
        let address = SocketAddr::new(world.ip("n1"), PORT);
        client(&world, "c1", move |rt| async move {
            let mut remote = Remote::connect(&rt, address).await;
            remote
                .query(
                    "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', \
                     'replication_factor': 1}",
                )
                .await
                .unwrap();
            remote.query("CREATE TABLE ks.t (k int PRIMARY KEY, v text)").await.unwrap();
            remote.query("CREATE TABLE ks.u (k int PRIMARY KEY, v text)").await.unwrap();
            let t = remote.prepare("INSERT INTO ks.t (k, v) VALUES (?, ?)").await;
            let u = remote.prepare("INSERT INTO ks.u (v, k) VALUES (?, ?)").await;
            let mut list = BatchList::new();
            for i in 0..40 {
                let (key, value) = (int(i), format!("text {i}"));
                let id = if i % 5 == 4 { &u.id } else { &t.id };
                let values = match i % 5 {
                    4 => value_list(&[value.as_bytes(), &key]),
                    _ => value_list(&[&key, value.as_bytes()]),
                };
                list.push(BatchQuery::Prepared(id), values.values()).unwrap();
            }
            let parameters = QueryParameters::new(Consistency::One);
            let request = Request::Batch(Batch { kind, statements: list.statements(), parameters });
            assert_eq!(remote.ask(&request).await.unwrap().body, Body::Void);
            for i in 0..40 {
                let table = if i % 5 == 4 { "u" } else { "t" };
                let text = format!("SELECT v FROM ks.{table} WHERE k = {i}");
                let rows = remote.query(&text).await.unwrap().rows();
                assert_eq!(show(&rows), [format!("text {i}")], "{shards} shards, {kind:?}");
            }
            let all = remote.query("SELECT k FROM ks.t").await.unwrap().rows();
            assert_eq!(all.rows.len(), 32);
        });
        node.request_stop();
        world.run_until(|| !world.is_alive(&node), Duration::from_secs(60)).unwrap();
    }
}

#[test]
fn prepared_statements_and_rows_survive_a_kill() {
    let world = World::new(6, WorldOptions::default());
    let node = start(&world, 2, settings());
    let address = SocketAddr::new(world.ip("n1"), PORT);
    let id = Rc::new(std::cell::RefCell::new(Vec::new()));
    let kept = id.clone();
    client(&world, "c1", move |rt| async move {
        let mut remote = Remote::connect(&rt, address).await;
        for text in [
            "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', \
             'replication_factor': 1}",
            "CREATE TABLE ks.t (k int PRIMARY KEY, v text)",
            "INSERT INTO ks.t (k, v) VALUES (1, 'one')",
            "USE ks",
        ] {
            remote.query(text).await.unwrap();
        }
        let query = "SELECT v FROM t WHERE k = 1";
        let prepared = remote.ask(&Request::Prepare { query, keyspace: None }).await.unwrap();
        *kept.borrow_mut() = prepared.prepared().id;
    });
    world.kill(&node);
    let _node = start(&world, 2, settings());
    let id = id.borrow().clone();
    client(&world, "c2", move |rt| async move {
        let mut kept = Vec::new();
        for _ in 0..2 {
            // One connection on each shard.
            let mut remote = Remote::connect(&rt, address).await;
            let parameters = QueryParameters::new(Consistency::One);
            let request = Request::Execute { id: &id, result_metadata_id: None, parameters };
            let rows = remote.ask(&request).await.unwrap().rows();
            assert_eq!(show(&rows), ["one"]);
            kept.push(remote);
        }
    });
}

#[test]
fn connections_above_the_limits_are_closed() {
    let settings = ServerSettings { connections_per_ip_max: Some(2), ..settings() };
    let world = World::new(7, WorldOptions::default());
    let _node = start(&world, 2, settings);
    let address = SocketAddr::new(world.ip("n1"), PORT);
    client(&world, "c1", move |rt| async move {
        let first = Remote::connect(&rt, address).await;
        let mut second = Remote::connect(&rt, address).await;
        let third = rt.connect(address).await.unwrap();
        let mut nothing = Vec::new();
        assert!(!matches!(third.read(&mut nothing, 10).await, Ok(n) if n > 0));
        second.query("SELECT key FROM system.local").await.unwrap();
        drop(first);
        rt.sleep(Duration::from_secs(1)).await;
        let mut again = Remote::connect(&rt, address).await;
        again.query("SELECT key FROM system.local").await.unwrap();
    });
}

#[test]
fn a_client_that_never_reads_does_not_stop_the_others() {
    let world = World::new(8, WorldOptions::default());
    let _node = start(&world, 1, settings());
    let address = SocketAddr::new(world.ip("n1"), PORT);
    client(&world, "c1", move |rt| async move {
        let deaf = Remote::connect(&rt, address).await;
        let mut bytes = Vec::new();
        let query = "SELECT * FROM system_schema.tables";
        let parameters = QueryParameters::new(Consistency::One);
        let options = RequestOptions::default();
        let request = Request::Query { query, parameters };
        for _ in 0..20_000 {
            encode_request(&request, Negotiated::plain(V4), &options, &mut bytes).unwrap();
        }
        let deadline = rt.now() + Duration::from_secs(5);
        // The client cannot even send everything: the server stopped reading from it.
        let _ = rt.timeout(deadline, deaf.conn.write_all(&bytes)).await;
        let mut good = Remote::connect(&rt, address).await;
        for _ in 0..10 {
            good.query("SELECT key FROM system.local").await.unwrap();
        }
        drop(deaf);
    });
}

#[test]
fn a_stopping_server_answers_what_it_took_and_closes() {
    let world = World::new(9, WorldOptions::default());
    let node = start(&world, 2, settings());
    let address = SocketAddr::new(world.ip("n1"), PORT);
    let stop = node.clone();
    client(&world, "c1", move |rt| async move {
        let mut remote = Remote::connect(&rt, address).await;
        remote.query("SELECT key FROM system.local").await.unwrap();
        stop.request_stop();
        rt.sleep(Duration::from_secs(1)).await;
        let parameters = QueryParameters::new(Consistency::One);
        let query = "SELECT key FROM system.local";
        assert_eq!(remote.ask(&Request::Query { query, parameters }).await, None);
    });
    world.run_until(|| !world.is_alive(&node), Duration::from_secs(60)).unwrap();
}
