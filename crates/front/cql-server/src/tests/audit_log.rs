//! The audit log compared with the lines that Cassandra 5.0.9 wrote for the same requests.
//!
//! `testdata/audit/statements.txt` was sent to Cassandra over protocol version 4; `cassandra-5.0.9.txt` has its lines
//! without prefix, with `…` for host, source, port and timestamp, `<uuidN>` for ids of batches, and `+` before
//! continued lines.

use super::roles::{login, server_with};
use super::*;
use audit::event::{Event, EventRecord, EventTimes, SharedEvent};
use audit::filter::Filter;
use audit::line::{LineStyle, LineWriter};
use audit::recorder::Recorder;
use cql_plan::auth::AccessRules;
use cql_wire::request::BatchList;
use cql_wire::{Batch, BatchKind, BatchQuery};
use query::{ClientState, RequestObserver, RequestRecord, Taken};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Collects the lines of all events that pass the default filter.
pub(super) struct Lines {
    recorder: Recorder,
    filter: Filter,
    batches: Cell<u128>,
    pub(super) lines: RefCell<Vec<String>>,
}

impl Lines {
    pub(super) fn install(server: &CqlServer) -> Rc<Lines> {
        let lines = Rc::new(Lines {
            recorder: Recorder::default(),
            filter: Filter::cassandra(&conf::AuditOptions::default()),
            batches: Cell::new(0),
            lines: RefCell::default(),
        });
        server.executor().observers.add(lines.clone());
        lines
    }

    fn line(event: Event) -> String {
        let host = "127.0.0.1:7000".parse().unwrap();
        let style = LineStyle { host, pair: ":".to_owned(), field: "|".to_owned() };
        let (mut line, batch) = (Vec::new(), event.batch);
        let times = EventTimes { at_millis: 0, logged_millis: 0 };
        let record = EventRecord { event: SharedEvent::once(event), times };
        LineWriter::new(&style, 0).push_fields(&mut line, &record);
        let mut line = String::from_utf8(line).unwrap();
        let (from, to) = (line.find("|host:").unwrap(), line.find("|type:").unwrap());
        line.replace_range(from..to, "|…");
        if let Some(batch) = batch {
            line = line.replace(&batch.to_string(), &format!("<uuid{}>", batch.as_u128()));
        }
        line.replace('\n', "\n+")
    }
}

impl RequestObserver for Lines {
    fn finished(&self, client: &ClientState, record: &RequestRecord) -> Option<Taken> {
        if let query::ObservedRequest::Batch { .. } = record.request
            && record.failure.is_none()
        {
            self.batches.set(self.batches.get() + 1);
        }
        let batch = Uuid::from_u128(self.batches.get());
        let events = self.recorder.events(client, record, batch);
        let written = events.into_iter().filter(|event| self.filter.passes(event));
        self.lines.borrow_mut().extend(written.map(Lines::line));
        None
    }
}

/// A guarded server whose superuser is `cassandra`.
async fn cassandra_like(rt: &Rt) -> CqlServer {
    let access = AccessRules { passwords: true, permissions: true, ..AccessRules::default() };
    let settings = changed(with_password(), |query| query.access = access);
    let server = server_with(rt, settings).await;
    let mut root = login(&server, "root", "secret").await;
    root.must(
        "CREATE ROLE cassandra WITH PASSWORD = 'cassandra' AND LOGIN = true AND SUPERUSER = true",
    )
    .await;
    server
}

/// Carries the directives of `statements.txt` out.
struct Script<'s> {
    server: &'s CqlServer,
    clients: BTreeMap<String, Client>,
    current: String,
    ids: BTreeMap<String, Vec<u8>>,
}

fn values(words: &[&str]) -> Vec<Vec<u8>> {
    let value = |word: &&str| match word.split_once(':').unwrap() {
        ("i", number) => int(number.parse().unwrap()).to_vec(),
        ("t", text) => text.as_bytes().to_vec(),
        ("x", hex) => (0..hex.len() / 2)
            .map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap())
            .collect(),
        other => panic!("{other:?}"),
    };
    words.iter().map(value).collect()
}

fn list_of(values: &[Vec<u8>]) -> ValueList {
    value_list(&values.iter().map(Vec::as_slice).collect::<Vec<&[u8]>>())
}

impl Script<'_> {
    fn client(&mut self) -> &mut Client {
        self.clients.get_mut(&self.current).unwrap()
    }

    async fn connect(&mut self, words: &[&str]) {
        let mut client = Client::new(self.server, V4);
        client.startup(&[]).await;
        let token = format!("\0{}\0{}", words[1], words[2]);
        let got = client.ask(&Request::AuthResponse(Some(token.as_bytes()))).await;
        if got.body == Body::AuthSuccess {
            self.current = words[0].to_owned();
            self.clients.insert(words[0].to_owned(), client);
        }
    }

    async fn execute(&mut self, id: &[u8], words: &[&str]) {
        let list = list_of(&values(words));
        let parameters =
            QueryParameters { values: list.values(), ..QueryParameters::new(Consistency::One) };
        let request = Request::Execute { id, result_metadata_id: None, parameters };
        self.client().ask(&request).await;
    }

    async fn batch(&mut self, kind: &str, parts: &[&str]) {
        let kind = if kind == "logged" { BatchKind::Logged } else { BatchKind::Unlogged };
        let mut list = BatchList::new();
        for part in parts {
            let (how, rest) = part.strip_prefix("| ").unwrap().split_once(' ').unwrap();
            if how == "q" {
                list.push(BatchQuery::Text(rest), value_list(&[]).values()).unwrap();
            } else {
                let words: Vec<&str> = rest.split(' ').collect();
                let values = list_of(&values(&words[1..]));
                list.push(BatchQuery::Prepared(&self.ids[words[0]]), values.values()).unwrap();
            }
        }
        let parameters = QueryParameters::new(Consistency::One);
        let request = Request::Batch(Batch { kind, statements: list.statements(), parameters });
        self.client().ask(&request).await;
    }

    async fn run(&mut self, script: &str) {
        let mut lines = script.lines();
        while let Some(line) = lines.next() {
            let (directive, rest) = line.split_once(' ').unwrap_or((line, ""));
            let words: Vec<&str> = rest.split(' ').collect();
            match directive {
                "" | "#" | "pause" => {}
                "connect" => self.connect(&words).await,
                "on" => self.current = rest.to_owned(),
                "query" => {
                    self.client().query(&rest.replace("\\n", "\n")).await;
                }
                "prepare" => {
                    let (name, text) = rest.split_once(' ').unwrap();
                    let request = Request::Prepare { query: text, keyspace: None };
                    let got = self.client().ask(&request).await;
                    if let Body::Prepared(prepared) = got.body {
                        self.ids.insert(name.to_owned(), prepared.id);
                    }
                }
                "execute" => {
                    let id = self.ids[words[0]].clone();
                    self.execute(&id, &words[1..]).await;
                }
                "executeid" => {
                    let id = values(&[&format!("x:{}", words[0])]).remove(0);
                    self.execute(&id, &[]).await;
                }
                "batch" => {
                    let count = words[1].parse().unwrap();
                    let parts: Vec<&str> = lines.by_ref().take(count).collect();
                    self.batch(words[0], &parts).await;
                }
                other => panic!("{other}"),
            }
        }
    }
}

/// Beginnings of statements that Cassandra carried out and this server refuses.
const REFUSED_HERE: &[&str] = &[
    "ALTER MATERIALIZED VIEW",
    "CREATE AGGREGATE",
    "CREATE FUNCTION",
    "CREATE MATERIALIZED VIEW",
    "DROP AGGREGATE aks.",
    "DROP FUNCTION aks.",
    "DROP MATERIALIZED VIEW",
    "GRANT EXECUTE ON FUNCTION",
];

/// The one that Cassandra refused and this server carries out: MBeans are not looked up here.
const ACCEPTED_HERE: &str = "GRANT SELECT ON MBEAN";

/// Checks a line that differs from Cassandra's because the statement ended otherwise.
fn check_otherwise(cassandra: &str, own: &str) {
    let (fields, operation) = cassandra.split_once("|operation:").unwrap();
    if operation.starts_with(ACCEPTED_HERE) {
        assert!(own.contains("|type:GRANT|category:DCL|ks:mbean|scope:mbean/a:b=c|"), "{own}");
        return;
    }
    let is_refused = REFUSED_HERE.iter().any(|begin| operation.starts_with(begin));
    assert!(is_refused, "cassandra {cassandra}\nhelenus   {own}");
    let refusal = format!("|type:REQUEST_FAILURE|category:ERROR|ks:aks|operation:{operation}; ");
    assert!(own.contains(&refusal), "{own}");
    // The line that it would have.
    let statement = cql_syntax::parse(operation).unwrap();
    let facts = audit::statement::facts(&statement.kind, Some(&"aks".into()));
    let (name, category) = (facts.event_type.name(), facts.event_type.category().name());
    let scope = facts.scope.map(|scope| format!("|scope:{scope}")).unwrap_or_default();
    let keyspace = facts.keyspace.unwrap();
    let line = format!("user:cassandra|…|type:{name}|category:{category}|ks:{keyspace}{scope}");
    assert_eq!(line, fields);
}

#[test]
fn every_kind_of_request_gives_the_line_that_cassandra_writes() {
    run(|rt| async move {
        let server = cassandra_like(&rt).await;
        let written = Lines::install(&server);
        let (clients, ids) = (BTreeMap::new(), BTreeMap::new());
        let mut script = Script { server: &server, clients, current: String::new(), ids };
        script.run(include_str!("testdata/audit/statements.txt")).await;
        let written = written.lines.borrow().join("\n");
        let expected = include_str!("testdata/audit/cassandra-5.0.9.txt");
        let differing = expected.lines().zip(written.lines()).filter(|(a, b)| a != b);
        let count = differing.map(|(a, b)| check_otherwise(a, b)).count();
        assert_eq!(count, 11);
        assert_eq!(written.lines().count(), expected.lines().count());
    });
}

/// Accepts requests while its switch is on.
#[derive(Default)]
struct Slow {
    refuses: Cell<bool>,
    waiting: RefCell<Vec<rt::sync::oneshot::Sender<query::Result<()>>>>,
}

impl RequestObserver for Slow {
    fn admits(&self) -> bool {
        !self.refuses.get()
    }

    fn finished(&self, _: &ClientState, _: &RequestRecord) -> Option<Taken> {
        let (done, taken) = rt::sync::oneshot::channel();
        self.waiting.borrow_mut().push(done);
        Some(Box::pin(async move { taken.await.unwrap() }))
    }
}

async fn turns(client: &mut Client) {
    for _ in 0..20 {
        poll_fn(|cx| {
            client.connection.turn(cx);
            Poll::Ready(())
        })
        .await;
    }
}

/// INV-observed-1.
#[test]
fn an_answer_is_sent_after_the_observer_has_taken_its_request() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V4).await;
        client.with_table().await;
        let slow = Rc::new(Slow::default());
        server.executor().observers.add(slow.clone());
        let parameters = QueryParameters::new(Consistency::One);
        for query in [
            "SELECT * FROM ks.t WHERE k = 1",
            "INSERT INTO ks.t (k, c) VALUES (1, 1)",
            "USE ks",
            "CREATE TABLE IF NOT EXISTS ks.other (k int PRIMARY KEY)",
            "SELEC",
        ] {
            for outcome in [Ok(()), Err(query::Failure::overloaded("too slow"))] {
                client.send(7, &Request::Query { query, parameters });
                while slow.waiting.borrow().is_empty() {
                    turns(&mut client).await;
                    rt.sleep(Duration::from_millis(1)).await;
                }
                turns(&mut client).await;
                assert!(client.connection.output().is_empty(), "{query}");
                assert_eq!(slow.waiting.borrow().len(), 1, "{query}");
                let is_taken = outcome.is_ok();
                slow.waiting.borrow_mut().remove(0).send(outcome).unwrap();
                let got = client.receive().await;
                assert_eq!(got.stream, 7);
                let is_overloaded = matches!(got.body, Body::Error(ErrorCode::Overloaded, _));
                assert_eq!(is_overloaded, !is_taken && query != "SELEC", "{query} {got:?}");
            }
        }
        slow.refuses.set(true);
        let (code, message) = client.query("INSERT INTO ks.t (k, c) VALUES (9, 9)").await.error();
        assert_eq!(code, ErrorCode::Overloaded);
        assert!(message.contains("was not executed"), "{message}");
        assert!(slow.waiting.borrow().is_empty());
        let observer: Rc<dyn RequestObserver> = slow;
        server.executor().observers.remove(&observer);
        let rows = client.must("SELECT c FROM ks.t WHERE k = 9").await.rows();
        assert!(rows.rows.is_empty());
    });
}

/// Sends STARTUP; returns the answer once the observer has taken it with this outcome.
async fn startup_held(client: &mut Client, slow: &Slow, outcome: query::Result<()>) -> Got {
    let mut startup = Box::pin(client.startup(&[]));
    let polled = poll_fn(|cx| Poll::Ready(startup.as_mut().poll(cx))).await;
    assert!(polled.is_pending());
    slow.waiting.borrow_mut().remove(0).send(outcome).unwrap();
    startup.await
}

#[test]
fn the_answer_to_a_startup_that_waits_has_the_framing_from_before_it() {
    run(|rt| async move {
        let class = "org.apache.cassandra.auth.PasswordAuthenticator".to_owned();
        for (settings, expected) in
            [(settings(), Body::Ready), (with_password(), Body::Authenticate(class))]
        {
            let server = node(&rt, settings, &Meshes::new(1)).await;
            let slow = Rc::new(Slow::default());
            server.executor().observers.add(slow.clone());
            for version in [V4, V5, V6] {
                let mut client = Client::new(&server, version);
                let got = startup_held(&mut client, &slow, Ok(())).await;
                assert_eq!(got.body, expected, "{version}");
                let observer: Rc<dyn RequestObserver> = slow.clone();
                server.executor().observers.remove(&observer);
                // The next request has the new framing.
                let got = client.query("SELECT key FROM system.local").await;
                assert_eq!(matches!(got.body, Body::Rows(_)), expected == Body::Ready, "{got:?}");
                server.executor().observers.add(observer);
                // A STARTUP that the observer could not take logs no client in.
                let mut client = Client::new(&server, version);
                let failure = query::Failure::overloaded("too slow");
                let (code, _) = startup_held(&mut client, &slow, Err(failure)).await.error();
                assert_eq!(code, ErrorCode::Overloaded, "{version}");
                turns(&mut client).await;
                assert!(client.connection.is_finished(), "{version}");
            }
        }
    });
}

#[test]
fn what_follows_a_startup_that_waits_is_decoded_after_its_answer() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let slow = Rc::new(Slow::default());
        server.executor().observers.add(slow.clone());
        let mut client = Client::new(&server, V4);
        let mut startup = Box::pin(client.startup(&[]));
        let polled = poll_fn(|cx| Poll::Ready(startup.as_mut().poll(cx))).await;
        assert!(polled.is_pending());
        drop(startup);
        assert!(client.connection.wants_input());
        client.send(1, &Request::Options);
        turns(&mut client).await;
        assert_eq!(slow.waiting.borrow().len(), 1);
        assert!(!client.connection.wants_input());
        let observer: Rc<dyn RequestObserver> = slow.clone();
        server.executor().observers.remove(&observer);
        slow.waiting.borrow_mut().remove(0).send(Ok(())).unwrap();
        assert_eq!(client.receive().await.body, Body::Ready);
        assert!(matches!(client.receive().await.body, Body::Supported(_)));
    });
}

/// INV-observed-1.
#[test]
fn a_request_whose_client_disconnects_before_the_answer_is_logged() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V4).await;
        client.with_table().await;
        let written = Lines::install(&server);
        let query = "CREATE TABLE ks.later (k int PRIMARY KEY)";
        let parameters = QueryParameters::new(Consistency::One);
        client.send(1, &Request::Query { query, parameters });
        client.connection.turn(&mut std::task::Context::from_waker(std::task::Waker::noop()));
        assert_eq!(written.lines.borrow().len(), 0);
        drop(client);
        assert_eq!(
            *written.lines.borrow(),
            [format!(
                "user:anonymous|…|type:REQUEST_FAILURE|category:ERROR|operation:{query}; the client disconnected \
                 before the request was answered"
            )]
        );
        rt.sleep(Duration::from_secs(1)).await;
        assert_eq!(written.lines.borrow().len(), 1);
    });
}

const PARAMETERS: QueryParameters<'static> = QueryParameters::new(Consistency::One);

/// INV-observed-1.
#[test]
fn a_write_on_the_stream_of_a_held_write_is_refused_and_the_first_is_logged() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V4).await;
        client.with_table().await;
        let written = Lines::install(&server);
        let insert = |k: u8| format!("INSERT INTO ks.t (k, c) VALUES ({k}, 1)");
        for k in [1, 2] {
            let (query, parameters) = (&*insert(k), PARAMETERS);
            client.send(7, &Request::Query { query, parameters });
        }
        turns(&mut client).await;
        let mut codes = Vec::new();
        for _ in 0..2 {
            let got = client.receive().await;
            codes.push(match got.body {
                Body::Void => None,
                Body::Error(code, _) => Some(code),
                other => panic!("{other:?}"),
            });
        }
        codes.sort_by_key(Option::is_some);
        assert_eq!(codes, [None, Some(ErrorCode::ProtocolError)]);
        let line = "user:anonymous|…|type:UPDATE|category:DML|ks:ks|scope:t|operation:";
        assert_eq!(*written.lines.borrow(), [format!("{line}{}", insert(1))]);
        let mut other = Client::ready(&server, V4).await;
        let rows = other.must("SELECT c FROM ks.t WHERE k = 2").await.rows();
        assert!(rows.rows.is_empty());
    });
}

/// All events of a group are queued before one of its answers waits.
#[test]
fn answers_of_writes_with_a_common_commit_wait_for_the_observers_together() {
    run(|rt| async move {
        let batch_mode = |options: &mut StoreOptions| options.sync = store::SyncMode::Batch;
        let server = node_with(&rt, settings(), &Meshes::new(1), batch_mode).await;
        let mut client = Client::ready(&server, V4).await;
        client.with_table().await;
        let slow = Rc::new(Slow::default());
        server.executor().observers.add(slow.clone());
        for stream in 1..=3 {
            let (query, parameters) = ("INSERT INTO ks.t (k, c) VALUES (1, 1)", PARAMETERS);
            client.send(stream, &Request::Query { query, parameters });
        }
        while slow.waiting.borrow().is_empty() {
            turns(&mut client).await;
            rt.sleep(Duration::from_millis(1)).await;
        }
        turns(&mut client).await;
        assert_eq!(slow.waiting.borrow().len(), 3);
        slow.waiting.take().into_iter().for_each(|one| one.send(Ok(())).unwrap());
        let mut streams = Vec::new();
        for _ in 0..3 {
            streams.push(client.receive().await.stream);
        }
        assert_eq!(streams, [1, 2, 3]);
    });
}
