//! `helenus bench null-server`: serves the protocol on the same runtime as the server and stores
//! nothing. The cost of a load on it is the floor of the machine: sockets, frames and executor.
//!
//! Its shape is the server's: one listener, connections handed to the shard with fewest, all frames
//! of one read answered by one write. It leaves out everything beyond the frames.
//!
//! Reading order: [`canned`], [`connection`].

mod canned;
mod connection;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use clap::Args;
use rt::{
    Conn, Gate, Group, IoBackend, ListenOptions, Listener, Machine, Mesh, MovedConn, NativeOptions,
    NodeSpec, Reply, Rt, Running, ShardId,
};

use crate::{exit, resources};
use canned::Statements;
use connection::Connection;

/// Most bytes of one read, as the server's.
const READ_BYTES_MAX: usize = 64 << 10;
/// Connections that may be on their way to one shard.
const MESH_CAPACITY: usize = 1024;

/// The command line.
#[derive(Clone, Debug, Args)]
pub struct Arguments {
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1")]
    host: std::net::IpAddr,
    /// CQL port; 0 for any free one
    #[arg(long, default_value_t = 9042)]
    port: u16,
    /// Shards; the machine's cores when not said
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=256))]
    smp: Option<u16>,
}

/// Runs until the process is ended; the exit code when it cannot.
pub fn main(arguments: &Arguments) -> u8 {
    let address = SocketAddr::new(arguments.host, arguments.port);
    let shards = arguments.smp.unwrap_or_else(resources::cores);
    let server = start(address, shards, |result| match result {
        Ok(at) => complain_line!("null server: answers CQL on {at}, stores nothing"),
        Err(error) => complain_line!("helenus bench null-server: {error}"),
    });
    match server.running.join() {
        Ok(()) if server.listened.load(Ordering::Relaxed) == 1 => exit::OK,
        Ok(()) => exit::LISTEN,
        Err(error) => {
            complain_line!("helenus bench null-server: {error}");
            exit::FAILED
        }
    }
}

struct Started {
    running: Running,
    /// 1 once it listens.
    listened: Arc<AtomicUsize>,
}

/// State that the shards share.
struct Node {
    address: SocketAddr,
    statements: Arc<Statements>,
    mesh: Mesh<MovedConn, ()>,
    /// Connections by shard.
    counts: Vec<AtomicUsize>,
    listened: Arc<AtomicUsize>,
}

/// Starts the shards; `report` is called once, on the first of them.
fn start(
    address: SocketAddr,
    shards: u16,
    report: impl Fn(Result<SocketAddr, String>) + Send + Sync + 'static,
) -> Started {
    let listened = Arc::new(AtomicUsize::new(0));
    let node = Arc::new(Node {
        address,
        statements: Arc::new(Statements::new(address)),
        mesh: Mesh::new(shards, MESH_CAPACITY),
        counts: (0..shards).map(|_| AtomicUsize::new(0)).collect(),
        listened: listened.clone(),
    });
    let report = Arc::new(report);
    let spec = NodeSpec { name: "null".to_owned(), shards, work_dir: String::new() };
    let main: rt::Main = Arc::new(move |rt| {
        let (node, report) = (node.clone(), report.clone());
        Box::pin(async move {
            let shard = Shard { gate: rt.gate("connections"), rt, node };
            shard.run(&*report).await;
        })
    });
    let machine = Machine::native(NativeOptions { cpuset: None, io: IoBackend::Auto });
    Started { running: machine.start(spec, main), listened }
}

/// One shard; clones are the same.
#[derive(Clone)]
struct Shard {
    rt: Rt,
    gate: Gate,
    node: Arc<Node>,
}

impl Shard {
    async fn run(&self, report: &(impl Fn(Result<SocketAddr, String>) + ?Sized)) {
        let adopting = self.clone();
        self.node.mesh.serve(&self.rt, move |moved, reply: Reply<()>| {
            match Conn::from_moved(&adopting.rt, moved) {
                Ok(conn) => adopting.serve(conn),
                Err(error) => {
                    adopting.count(adopting.rt.shard(), -1);
                    complain_line!("null server: cannot hand a connection to its thread: {error}");
                }
            }
            reply.send(());
        });
        if self.rt.shard() == ShardId(0) {
            match self.rt.listen(self.node.address, ListenOptions::default()).await {
                Ok(listener) => {
                    self.node.listened.store(1, Ordering::Relaxed);
                    report(Ok(listener.local_addr()));
                    let accepting = self.clone();
                    let task = async move { accepting.accept(listener).await };
                    // A new gate refuses nothing.
                    let _ = self.gate.spawn(&self.rt, Group::Admin, "listener", task);
                }
                Err(error) => {
                    report(Err(format!("cannot listen on {}: {error}", self.node.address)));
                    self.rt.request_stop();
                }
            }
        }
        self.rt.stop_requested().await;
    }

    async fn accept(&self, listener: Listener) {
        loop {
            match listener.accept().await {
                Ok(conn) => self.place(conn),
                Err(error) => {
                    complain_line!("null server: cannot accept a connection: {error}");
                    self.rt.sleep(std::time::Duration::from_millis(10)).await;
                }
            }
        }
    }

    fn count(&self, shard: ShardId, change: isize) {
        if let Some(count) = self.node.counts.get(usize::from(shard.0)) {
            if change > 0 {
                count.fetch_add(1, Ordering::Relaxed);
            } else {
                count.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Hands a connection to the shard with fewest.
    fn place(&self, conn: Conn) {
        let counts = self.node.counts.iter().map(|c| c.load(Ordering::Relaxed));
        let least = counts.enumerate().min_by_key(|(_, n)| *n).map_or(0, |(i, _)| i);
        let shard = ShardId(u16::try_from(least).unwrap_or(0));
        self.count(shard, 1);
        if shard == self.rt.shard() {
            self.serve(conn);
            return;
        }
        let call = self.node.mesh.call(&self.rt, shard, conn.into_moved());
        let this = self.clone();
        let task = async move {
            if call.await.is_err() {
                this.count(shard, -1);
            }
        };
        let _ = self.gate.spawn(&self.rt, Group::Admin, "hand-over", task);
    }

    fn serve(&self, conn: Conn) {
        let this = self.clone();
        let task = async move {
            let connection = Connection::new(
                this.node.statements.clone(),
                this.rt.shard().0,
                this.rt.shard_count(),
            );
            // A lost connection is the client's business.
            let _ = serve_one(connection, &conn).await;
            conn.shutdown();
            this.count(this.rt.shard(), -1);
        };
        let _ = self.gate.spawn(&self.rt, Group::Statement, "connection", task);
    }
}

async fn serve_one(mut connection: Connection, conn: &Conn) -> Result<(), rt::IoError> {
    while !connection.is_closing() {
        if conn.read(connection.input(), READ_BYTES_MAX).await? == 0 {
            return Ok(());
        }
        connection.turn();
        let output = connection.output();
        let written = conn.try_write(output)?;
        if let Some(rest) = output.get(written..).filter(|rest| !rest.is_empty()) {
            conn.write_all(rest).await?;
        }
        connection.clear_output();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::client;
    use crate::bench::{Plan, Workload};
    use std::time::Instant;

    fn started(shards: u16) -> (Started, u16) {
        let (send, receive) = std::sync::mpsc::channel();
        let server = start(SocketAddr::from(([127, 0, 0, 1], 0)), shards, move |at| {
            send.send(at.map(|a| a.port())).unwrap();
        });
        let port = receive.recv().unwrap().unwrap();
        (server, port)
    }

    fn stop(server: Started) {
        server.running.request_stop();
        server.running.join().unwrap();
    }

    #[test]
    fn every_read_finds_its_row_and_every_write_is_taken_on_all_shards() {
        let (server, port) = started(2);
        let plan = Plan {
            workload: Workload::Mixed,
            keys: 1000,
            columns: 5,
            value_bytes: 32,
            window: 64,
            connections: 2,
            operations: Some(5000),
            duration: None,
            interval: None,
            first_key: 0,
            consistency: cql_wire::Consistency::One,
            insert: "INSERT INTO bench.standard5 (key, c0, c1, c2, c3, c4) \
                     VALUES (?, ?, ?, ?, ?, ?)"
                .to_owned(),
            read: "SELECT c0, c1, c2, c3, c4 FROM bench.standard5 WHERE key = ?".to_owned(),
        };
        for number in 0..2 {
            let mut connection =
                client::Connection::open(&crate::bench::Server::plain("127.0.0.1", port)).unwrap();
            connection.query("CREATE TABLE bench.standard5 (key blob PRIMARY KEY)").unwrap();
            connection.prepare(&plan).unwrap();
            let outcome = connection.run(&plan, number, Instant::now()).unwrap();
            assert_eq!((outcome.operations, outcome.errors, outcome.missing), (5000, 0, 0));
        }
        stop(server);
    }

    #[test]
    fn a_second_one_on_the_same_port_reports_why_it_cannot() {
        let (server, port) = started(1);
        let (send, receive) = std::sync::mpsc::channel();
        let second = start(SocketAddr::from(([127, 0, 0, 1], port)), 1, move |at| {
            send.send(at).unwrap();
        });
        let error = receive.recv().unwrap().unwrap_err();
        assert!(error.starts_with("cannot listen on 127.0.0.1:"), "{error}");
        second.running.join().unwrap();
        assert_eq!(second.listened.load(Ordering::Relaxed), 0);
        stop(server);
    }
}
