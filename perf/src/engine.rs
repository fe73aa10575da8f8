//! `perf engine WORKDIR [MB]`: speed of SSTable write (flush) and of compaction, without a server
//! around them. One JSON object a line on standard output.
//!
//! A node of one shard, without background flushes (its memory is large) and without a throttle of
//! compactions. For each shape of rows: three times a third of the data is written through a
//! connection and flushed, which is measured. Then the three files, which overlap everywhere, are
//! compacted into one, which is measured too. MB are 10^6 bytes of uncompressed data, in the form
//! of Data.db before compression. CPU is user and system time of the whole process, including its
//! threads for files.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use codec::Reader;
use conf::{DataRate, MemorySize, Options, SstableVersion};
use cql_server::{Connection, CqlServer};
use cql_wire::query::QueryParameters;
use cql_wire::request::Request;
use cql_wire::response::{Response, ResponseBody};
use cql_wire::{Consistency, FrameDecoder, Side, StringMap};
use node::{Node, Outcome};
use rt::{IoBackend, Machine, NativeOptions, Rt};
use stdx::{TableId, Uuid};
use store::Store;

use crate::{PLAIN, ask, execute_frame, fail, frame, prepared_id, write_frame};

/// Default of the uncompressed data of each shape.
const MB_DEFAULT: usize = 256;
/// Files that are compacted: one fewer than the strategy compacts automatically.
const FILES: usize = 3;
/// Memory of the node: a flush begins automatically at 13 % of it.
const MEMORY: u64 = 32 << 30;
/// Rows of a partition of the 40-byte rows.
const ROWS_PER_SENSOR: usize = 1_000;
/// Clock ticks of `/proc/self/stat` per second (100 on Linux).
const TICKS: f64 = 100.0;

/// One shape of rows.
struct Shape {
    name: &'static str,
    table: &'static str,
    insert: &'static str,
    /// Uncompressed bytes of one row in Data.db, about.
    row_bytes: usize,
    /// EXECUTE of row `i`.
    request: fn(&[u8], usize) -> Vec<u8>,
}

const SHAPES: [Shape; 2] = [
    Shape {
        name: "standard1",
        table: "standard1",
        insert: "INSERT INTO perf.standard1 (key, c0, c1, c2, c3, c4) VALUES (?, ?, ?, ?, ?, ?)",
        row_bytes: 200,
        request: |id, i| write_frame(id, i as i64),
    },
    Shape {
        name: "40-byte",
        table: "series",
        insert: "INSERT INTO perf.series (sensor, ts, value, tag) VALUES (?, ?, ?, ?)",
        row_bytes: 40,
        request: sample,
    },
];

/// Row `i` of the time series: times ascend, tags are random.
fn sample(id: &[u8], i: usize) -> Vec<u8> {
    let (sensor, time) = ((i / ROWS_PER_SENSOR) as i64, (i % ROWS_PER_SENSOR) as i64);
    let mut tag = [0; 16];
    let mut state = (i as u64).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for byte in &mut tag {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        *byte = state as u8;
    }
    let (sensor, time, value) = (sensor.to_be_bytes(), time.to_be_bytes(), 1.5_f64.to_be_bytes());
    execute_frame(id, &[&sensor, &time, &value, &tag])
}

/// User and system seconds of this process so far.
#[expect(clippy::disallowed_methods, reason = "the process's own times, not data")]
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let rest = stat.rsplit(')').next().unwrap_or("");
    let mut fields = rest.split_whitespace().skip(11).map(|f| f.parse::<f64>().ok());
    match (fields.next().flatten(), fields.next().flatten()) {
        (Some(user), Some(system)) => (user + system) / TICKS,
        _ => fail("cannot read /proc/self/stat"),
    }
}

/// Seconds and CPU seconds of some steps together.
#[derive(Default)]
struct Spent {
    seconds: f64,
    cpu: f64,
}

impl Spent {
    async fn on<T, E: std::fmt::Display>(
        &mut self,
        rt: &Rt,
        what: &str,
        step: impl Future<Output = Result<T, E>>,
    ) {
        let (begun, cpu) = (rt.now(), cpu_seconds());
        if let Err(error) = step.await {
            fail(&format!("{what}: {error}"));
        }
        self.seconds += rt.now().since(begun).as_secs_f64();
        self.cpu += cpu_seconds() - cpu;
    }

    fn tell(&self, shape: &Shape, step: &str, rows: usize, bytes: u64, disk_bytes: u64) {
        let mb = bytes as f64 / 1e6;
        println!(
            "{{\"rows\": \"{}\", \"step\": \"{step}\", \"row_count\": {rows}, \
             \"bytes_per_row\": {:.1}, \"uncompressed_mb\": {mb:.1}, \"disk_mb\": {:.1}, \
             \"seconds\": {:.3}, \"cpu_seconds\": {:.2}, \"mb_per_second\": {:.1}, \
             \"mb_per_cpu_second\": {:.1}}}",
            shape.name,
            bytes as f64 / rows as f64,
            disk_bytes as f64 / 1e6,
            self.seconds,
            self.cpu,
            mb / self.seconds,
            mb / self.cpu
        );
    }
}

/// A connection of the node, as far as the benchmark needs one.
struct Client {
    rt: Rt,
    connection: Connection,
}

impl Client {
    async fn start(rt: &Rt, server: &CqlServer) -> Client {
        let peer = SocketAddr::from(([127, 0, 0, 1], 4242));
        let mut client = Client { rt: rt.clone(), connection: Connection::new(server, peer) };
        let mut body = Vec::new();
        if StringMap::encode(&mut body, &[("CQL_VERSION", "3.0.0")]).is_err() {
            fail("STARTUP does not encode");
        }
        let Ok(options) = StringMap::decode(&mut Reader::new(&body, "startup")) else {
            fail("STARTUP does not decode")
        };
        client.ask(&Request::Startup(options)).await;
        client
    }

    async fn ask(&mut self, request: &Request<'_>) -> Vec<u8> {
        ask(&self.rt, &mut self.connection, &frame(request)).await
    }

    async fn query(&mut self, query: &str) -> Vec<u8> {
        let parameters = QueryParameters::new(Consistency::One);
        self.ask(&Request::Query { query, parameters }).await
    }

    async fn table_id(&mut self, table: &str) -> TableId {
        let text = "SELECT id FROM system_schema.tables WHERE keyspace_name = 'perf' \
                    AND table_name = ";
        let answer = self.query(&format!("{text}'{table}'")).await;
        let mut rest = answer.as_slice();
        let mut decoder = FrameDecoder::new(Side::Client, 1 << 24);
        let Ok(Some(frame)) = decoder.next(&mut rest) else { fail("no answer about the table") };
        if let Ok(ResponseBody::Rows(rows)) = Response::decode(&frame, PLAIN).map(|r| r.body)
            && let Some(Some(id)) = rows.values().next()
            && let Ok(id) = Uuid::from_slice(id)
        {
            return TableId(id);
        }
        fail("the table has no id")
    }

    /// Rows `part`, `part + FILES`, …: each file has rows of every partition.
    async fn insert(&mut self, shape: &Shape, id: &[u8], part: usize, rows: usize) {
        for i in (part..rows).step_by(FILES) {
            let answer = ask(&self.rt, &mut self.connection, &(shape.request)(id, i)).await;
            if answer.get(4) != Some(&8) {
                fail(&format!("INSERT was answered by opcode {:?}", answer.get(4)));
            }
        }
    }
}

async fn bench(rt: Rt, server: CqlServer, store: Store, mb: usize) {
    let mut client = Client::start(&rt, &server).await;
    for text in [
        "CREATE KEYSPACE perf WITH replication = \
         {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "CREATE TABLE perf.standard1 \
         (key bigint PRIMARY KEY, c0 blob, c1 blob, c2 blob, c3 blob, c4 blob)",
        "CREATE TABLE perf.series \
         (sensor bigint, ts bigint, value double, tag blob, PRIMARY KEY (sensor, ts)) \
         WITH CLUSTERING ORDER BY (ts DESC)",
    ] {
        client.query(text).await;
    }
    for shape in &SHAPES {
        let rows = mb * 1_000_000 / shape.row_bytes;
        let table = client.table_id(shape.table).await;
        let prepare = Request::Prepare { query: shape.insert, keyspace: None };
        let id = prepared_id(&client.ask(&prepare).await);
        let mut flush = Spent::default();
        for part in 0..FILES {
            client.insert(shape, &id, part, rows).await;
            let before = store.table_stats(table);
            if before.sstables != part as u64 {
                fail("a flush began by itself; take fewer MB");
            }
            flush.on(&rt, "flush", store.flush(Some(&[table]))).await;
        }
        let stats = store.table_stats(table);
        flush.tell(shape, "flush", rows, stats.uncompressed_bytes, stats.disk_bytes);
        if stats.sstables != FILES as u64 {
            fail(&format!("{} files instead of {FILES}", stats.sstables));
        }
        let mut compaction = Spent::default();
        compaction.on(&rt, "compaction", store.compactor().compact_major(table)).await;
        let stats = store.table_stats(table);
        compaction.tell(shape, "compaction", rows, stats.uncompressed_bytes, stats.disk_bytes);
        if stats.sstables != 1 {
            fail(&format!("{} files instead of one", stats.sstables));
        }
    }
    rt.request_stop();
}

/// Runs it with the words after `engine`.
pub(crate) fn main(arguments: &[String], version: Option<SstableVersion>) -> ExitCode {
    let (workdir, mb) = match arguments {
        [workdir] => (workdir.clone(), MB_DEFAULT),
        [workdir, mb] => match mb.parse() {
            Ok(mb @ 1..) => (workdir.clone(), mb),
            Ok(_) | Err(_) => {
                eprintln!("\"{mb}\" is not a number of MB");
                return ExitCode::from(2);
            }
        },
        _ => {
            eprintln!("usage: perf engine WORKDIR [MB]");
            return ExitCode::from(2);
        }
    };
    let options = Options {
        workdir,
        smp: Some(1),
        memory: Some(MemorySize(MEMORY)),
        start_native_transport: false,
        compaction_throughput: DataRate(0),
        sstable_version: version,
        // Any free port: it is not used.
        api_port: 0,
        ..Options::default()
    };
    let machine = Machine::native(NativeOptions { cpuset: None, io: IoBackend::Auto });
    let hook: node::ReadyHook =
        Arc::new(move |rt, server, store| Box::pin(bench(rt, server, store, mb)));
    let outcome = Arc::new(Outcome::default());
    match Node::start_with("perf", options, &machine, outcome, hook).join() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("perf: {error}");
            ExitCode::FAILURE
        }
    }
}
