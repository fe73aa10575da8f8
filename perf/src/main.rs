//! Cost of one request inside the process, without sockets.
//!
//! A node of one shard is started on a directory of its own; frames go through the code of a
//! connection. Each measured section is a function of its own, so that `valgrind --tool=callgrind
//! --toggle-collect` counts it alone, its calls of the allocator included, which is the server's.
//! `cargo xtask perf instructions` runs it and compares with the stored figures.
//!
//! Sections: `memtable_read` (row in the memtable), `sstable_read` (row in one LZ4 SSTable, chunk
//! and index cached), `write` (with the commit-log append), `slice_memtable` and `slice_sstable`
//! (100 rows out of a partition of 1,000, somewhere in its middle). With a third argument only
//! `unprepared_read`: `memtable_read` as text, which is parsed and planned each time. `--sstable-version V`
//! before all others writes SSTables of that version. `--audit file` or `--audit binary`, before all others too, logs every
//! request in the audit log: what that costs a request is the difference of two runs. The lines are encoded by
//! `audit::auditor::encode`, which runs outside the sections, once for each batch: `--toggle-collect` counts it alone.

#![expect(clippy::disallowed_macros, reason = "a command-line tool prints")]

mod engine;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::task::{Context, Waker};

use codec::Reader;
use conf::{AuditLogger, AuditOptions, MemorySize, Options, SstableVersion};
use cql_server::{Connection, CqlServer};
use cql_wire::query::{BoundValue, QueryParameters, ValueList};
use cql_wire::request::{Request, RequestOptions, encode_request};
use cql_wire::response::{Response, ResponseBody};
use cql_wire::{Consistency, FrameDecoder, Negotiated, ProtocolVersion, Side, StringMap};
use node::{Node, Outcome};
use rt::{IoBackend, Machine, NativeOptions, Rt};
use store::Store;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const PLAIN: Negotiated = Negotiated::plain(ProtocolVersion::V4);
/// Measured requests of each section; before them as many that are not counted.
const COUNT: usize = 2_000;
/// The same for slices.
const SLICES: usize = 500;
/// Partitions of the table of slices, and rows of each.
const SENSORS: usize = 20;
const SENSOR_ROWS: usize = 1_000;
/// Rows of one slice.
const SLICE_ROWS: usize = 100;

fn frame(request: &Request<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    if let Err(error) = encode_request(request, PLAIN, &RequestOptions::default(), &mut out) {
        fail(&format!("cannot encode a request: {error}"));
    }
    out
}

#[expect(
    clippy::disallowed_methods,
    reason = "a measurement that failed has nothing to stop in order"
)]
fn fail(what: &str) -> ! {
    eprintln!("perf: {what}");
    std::process::exit(1);
}

/// Feeds one frame and waits for its answer.
async fn ask(rt: &Rt, connection: &mut Connection, request: &[u8]) -> Vec<u8> {
    connection.feed(request);
    loop {
        std::future::poll_fn(|cx| {
            connection.turn(cx);
            std::task::Poll::Ready(())
        })
        .await;
        if !connection.output().is_empty() && connection.in_flight() == 0 {
            let answer = connection.output().to_vec();
            connection.consume_output(answer.len());
            return answer;
        }
        rt.sleep(std::time::Duration::from_millis(1)).await;
    }
}

fn prepared_id(answer: &[u8]) -> Vec<u8> {
    let mut decoder = FrameDecoder::new(Side::Client, 1 << 24);
    let mut rest = answer;
    let Ok(Some(frame)) = decoder.next(&mut rest) else { fail("PREPARE: no frame") };
    match Response::decode(&frame, PLAIN).map(|r| r.body) {
        Ok(ResponseBody::Prepared(prepared)) => prepared.id.to_vec(),
        other => fail(&format!("PREPARE answered by {other:?}")),
    }
}

fn key_of(i: usize, rows: usize) -> i64 {
    ((i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) % rows as u64) as i64
}

/// EXECUTE with these values, without description of the result.
fn execute_frame(id: &[u8], bound: &[&[u8]]) -> Vec<u8> {
    let mut values = ValueList::new();
    for value in bound {
        if values.push(BoundValue::Bytes(value)).is_err() {
            fail("too many values");
        }
    }
    let mut parameters = QueryParameters::new(Consistency::LocalQuorum);
    parameters.values = values.values();
    parameters.skip_metadata = true;
    parameters.page_size = Some(5000);
    frame(&Request::Execute { id, result_metadata_id: None, parameters })
}

fn read_frame(id: &[u8], key: i64) -> Vec<u8> {
    execute_frame(id, &[&key.to_be_bytes()])
}

/// The same read as text.
fn text_frame(key: i64) -> Vec<u8> {
    let query = format!("SELECT key, c0, c1, c2, c3, c4 FROM perf.standard1 WHERE key = {key}");
    let mut parameters = QueryParameters::new(Consistency::LocalQuorum);
    parameters.skip_metadata = true;
    parameters.page_size = Some(5000);
    frame(&Request::Query { query: &query, parameters })
}

/// Rows have the times 0, 1, …; a slice reads downwards from below `time`.
fn slice_frame(id: &[u8], i: usize) -> Vec<u8> {
    let sensor = key_of(i, SENSORS);
    let below = SLICE_ROWS as i64 + key_of(i * 7 + 3, SENSOR_ROWS - SLICE_ROWS);
    execute_frame(id, &[&sensor.to_be_bytes(), &below.to_be_bytes()])
}

fn sample_frame(id: &[u8], sensor: usize, time: usize) -> Vec<u8> {
    let (sensor, time) = (sensor as i64, time as i64);
    let tag = [time as u8; 16];
    execute_frame(id, &[&sensor.to_be_bytes(), &time.to_be_bytes(), &1.5_f64.to_be_bytes(), &tag])
}

fn write_frame(id: &[u8], key: i64) -> Vec<u8> {
    let mut values = ValueList::new();
    let mut ok = values.push(BoundValue::Bytes(&key.to_be_bytes())).is_ok();
    for column in 0..5_u64 {
        let mut blob = [0_u8; 32];
        let mut state = (key as u64).wrapping_add(column).wrapping_mul(0x2545_f491_4f6c_dd1d) | 1;
        for byte in &mut blob {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            *byte = state as u8;
        }
        ok &= values.push(BoundValue::Bytes(&blob)).is_ok();
    }
    if !ok {
        fail("six values are too many");
    }
    let mut parameters = QueryParameters::new(Consistency::LocalQuorum);
    parameters.values = values.values();
    parameters.skip_metadata = true;
    parameters.timestamp = Some(1_700_000_000_000_000 + key);
    frame(&Request::Execute { id, result_metadata_id: None, parameters })
}

/// Requests in, answers out: the measured code.
#[inline(always)]
fn through(connection: &mut Connection, frames: &[Vec<u8>], cx: &mut Context<'_>) -> usize {
    let mut bytes = 0;
    for frame in frames {
        connection.feed(frame);
        connection.turn(cx);
        let written = connection.output().len();
        bytes += written;
        connection.consume_output(written);
    }
    bytes
}

#[inline(never)]
fn measured_memtable_read(c: &mut Connection, frames: &[Vec<u8>], cx: &mut Context<'_>) -> usize {
    // Different constants keep the compiler from folding the three functions into one.
    std::hint::black_box(0) + through(c, frames, cx)
}

#[inline(never)]
fn measured_sstable_read(c: &mut Connection, frames: &[Vec<u8>], cx: &mut Context<'_>) -> usize {
    // Different constants keep the compiler from folding the three functions into one.
    std::hint::black_box(1) + through(c, frames, cx)
}

#[inline(never)]
fn measured_write(c: &mut Connection, frames: &[Vec<u8>], cx: &mut Context<'_>) -> usize {
    // Different constants keep the compiler from folding the three functions into one.
    std::hint::black_box(2) + through(c, frames, cx)
}

#[inline(never)]
fn measured_slice_memtable(c: &mut Connection, frames: &[Vec<u8>], cx: &mut Context<'_>) -> usize {
    std::hint::black_box(3) + through(c, frames, cx)
}

#[inline(never)]
fn measured_slice_sstable(c: &mut Connection, frames: &[Vec<u8>], cx: &mut Context<'_>) -> usize {
    std::hint::black_box(4) + through(c, frames, cx)
}

#[inline(never)]
fn measured_unprepared_read(c: &mut Connection, frames: &[Vec<u8>], cx: &mut Context<'_>) -> usize {
    std::hint::black_box(5) + through(c, frames, cx)
}

type Section = fn(&mut Connection, &[Vec<u8>], &mut Context<'_>) -> usize;

fn section(
    name: &str,
    run: Section,
    connection: &mut Connection,
    frames: &[Vec<u8>],
    least: usize,
) {
    let mut cx = Context::from_waker(Waker::noop());
    let (warm, counted) = frames.split_at(frames.len() / 2);
    through(connection, warm, &mut cx);
    let bytes = run(connection, counted, &mut cx);
    if connection.in_flight() > 0 {
        fail(&format!("{name}: {} requests had to wait", connection.in_flight()));
    }
    if bytes < least * counted.len() {
        fail(&format!("{name}: {bytes} bytes of answers are too few"));
    }
    println!("{name} requests {}", counted.len());
}

async fn bench(rt: Rt, server: CqlServer, store: Store, rows: usize, unprepared: bool) {
    rt.set_turn(std::time::Duration::from_secs(3600));
    let peer = SocketAddr::from(([127, 0, 0, 1], 4242));
    let mut connection = Connection::new(&server, peer);
    let c = &mut connection;
    let mut body = Vec::new();
    if StringMap::encode(&mut body, &[("CQL_VERSION", "3.0.0")]).is_err() {
        fail("STARTUP does not encode");
    }
    let Ok(options) = StringMap::decode(&mut Reader::new(&body, "startup")) else {
        fail("STARTUP does not decode")
    };
    ask(&rt, c, &frame(&Request::Startup(options))).await;
    for text in [
        "CREATE KEYSPACE perf WITH replication = \
         {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "CREATE TABLE perf.standard1 \
         (key bigint PRIMARY KEY, c0 blob, c1 blob, c2 blob, c3 blob, c4 blob)",
        "CREATE TABLE perf.series \
         (sensor bigint, ts bigint, value double, tag blob, PRIMARY KEY (sensor, ts)) \
         WITH CLUSTERING ORDER BY (ts DESC)",
    ] {
        let parameters = QueryParameters::new(Consistency::One);
        ask(&rt, c, &frame(&Request::Query { query: text, parameters })).await;
    }
    let prepare = |query| frame(&Request::Prepare { query, keyspace: None });
    let insert = prepared_id(
        &ask(
            &rt,
            c,
            &prepare(
                "INSERT INTO perf.standard1 (key, c0, c1, c2, c3, c4) VALUES (?, ?, ?, ?, ?, ?)",
            ),
        )
        .await,
    );
    let select = "SELECT key, c0, c1, c2, c3, c4 FROM perf.standard1 WHERE key = ?";
    let select = prepared_id(&ask(&rt, c, &prepare(select)).await);

    for i in 0..rows {
        let answer = ask(&rt, c, &write_frame(&insert, i as i64)).await;
        if answer.get(4) != Some(&8) {
            fail(&format!("INSERT was answered by opcode {:?}", answer.get(4)));
        }
    }
    let sample = "INSERT INTO perf.series (sensor, ts, value, tag) VALUES (?, ?, ?, ?)";
    let sample = prepared_id(&ask(&rt, c, &prepare(sample)).await);
    let slice = "SELECT ts, value, tag FROM perf.series WHERE sensor = ? AND ts < ? LIMIT 100";
    let slice = prepared_id(&ask(&rt, c, &prepare(slice)).await);
    for i in 0..SENSORS * SENSOR_ROWS {
        let answer = ask(&rt, c, &sample_frame(&sample, i % SENSORS, i / SENSORS)).await;
        if answer.get(4) != Some(&8) {
            fail(&format!("INSERT was answered by opcode {:?}", answer.get(4)));
        }
    }
    let slices: Vec<Vec<u8>> = (0..2 * SLICES).map(|i| slice_frame(&slice, i)).collect();
    let reads: Vec<Vec<u8>> =
        (0..2 * COUNT).map(|i| read_frame(&select, key_of(i, rows))).collect();
    let writes: Vec<Vec<u8>> =
        (0..2 * COUNT).map(|i| write_frame(&insert, key_of(i, rows))).collect();
    // 9 bytes of header, six cells of 12 and five times 36 bytes.
    let row = 9 + 12 + 5 * 36;
    if unprepared {
        let texts: Vec<Vec<u8>> = (0..2 * COUNT).map(|i| text_frame(key_of(i, rows))).collect();
        section("unprepared_read", measured_unprepared_read, c, &texts, row);
        rt.request_stop();
        return;
    }
    section("memtable_read", measured_memtable_read, c, &reads, row);
    section("write", measured_write, c, &writes, 9);
    // Three cells of 12, 12 and 20 bytes.
    let rows_of_slice = 9 + SLICE_ROWS * 44;
    // The first read of a table may wait for its directory.
    if let Some(first) = slices.first() {
        ask(&rt, c, first).await;
    }
    section("slice_memtable", measured_slice_memtable, c, &slices, rows_of_slice);
    if let Err(error) = store.flush(None).await {
        fail(&format!("flush: {error}"));
    }
    // Everything into the caches first: each key once, waiting for the disk.
    for read in reads.iter().chain(&slices) {
        ask(&rt, c, read).await;
    }
    section("sstable_read", measured_sstable_read, c, &reads, row);
    section("slice_sstable", measured_slice_sstable, c, &slices, rows_of_slice);
    rt.request_stop();
}

/// Removes `--audit L` from the front of the command line.
fn audit_of(arguments: &mut Vec<String>) -> AuditOptions {
    if arguments.first().is_none_or(|first| first != "--audit") {
        return AuditOptions::default();
    }
    let logger = match arguments.get(1).map(String::as_str) {
        Some("file") => AuditLogger::File,
        Some("binary") => AuditLogger::Bin,
        other => fail(&format!("{other:?} is not a logger of the audit log")),
    };
    arguments.drain(..2);
    AuditOptions { enabled: true, logger, ..AuditOptions::default() }
}

/// Removes `--sstable-version V` from the front of the command line.
fn version_of(arguments: &mut Vec<String>) -> Option<SstableVersion> {
    if arguments.first().is_none_or(|first| first != "--sstable-version") {
        return None;
    }
    let version = match arguments.get(1).map(String::as_str) {
        Some("me") => SstableVersion::Me,
        Some("nb") => SstableVersion::Nb,
        Some("oa") => SstableVersion::Oa,
        Some("da") => SstableVersion::Da,
        other => fail(&format!("{other:?} is not a version of SSTables that is written")),
    };
    arguments.drain(..2);
    Some(version)
}

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let audit = audit_of(&mut arguments);
    let version = version_of(&mut arguments);
    if let Some(("engine", rest)) = arguments.split_first().map(|(first, r)| (first.as_str(), r)) {
        return engine::main(rest, version);
    }
    let (workdir, rows, unprepared) = match arguments.as_slice() {
        [workdir] => (workdir.clone(), 100_000, false),
        [workdir, rows, rest @ ..] if rest.is_empty() || rest == ["unprepared"] => {
            match rows.parse() {
                Ok(rows) => (workdir.clone(), rows, !rest.is_empty()),
                Err(_) => {
                    eprintln!("\"{rows}\" is not a number of rows");
                    return ExitCode::from(2);
                }
            }
        }
        _ => {
            eprintln!("usage: perf [--audit file|binary] WORKDIR [ROWS [unprepared]]");
            return ExitCode::from(2);
        }
    };
    let options = Options {
        workdir,
        smp: Some(1),
        memory: Some(MemorySize(1 << 30)),
        start_native_transport: false,
        sstable_version: version,
        audit_logging_options: audit,
        // Any free port: it is not used.
        api_port: 0,
        ..Options::default()
    };
    let machine = Machine::native(NativeOptions { cpuset: None, io: IoBackend::Threads });
    let outcome = Arc::new(Outcome::default());
    let hook: node::ReadyHook =
        Arc::new(move |rt, server, store| Box::pin(bench(rt, server, store, rows, unprepared)));
    let running = Node::start_with("perf", options, &machine, outcome, hook);
    match running.join() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("perf: {error}");
            ExitCode::FAILURE
        }
    }
}
