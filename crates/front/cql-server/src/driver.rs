//! Socket of a connection: reads, turns, writes.
//!
//! A client that does not read its answers is not read from, and none of its further frames is run. Its running
//! requests continue, and their answers wait. The memory that it holds is charged to the shard's account. The
//! connection is closed when the client reads nothing for a minute, or for some seconds while memory is short.

use crate::connection::Connection;
use crate::server::Server;
use rt::Stream;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;
use stdx::IoError;

/// Most bytes of one read.
const READ_BYTES_MAX: usize = 64 << 10;
/// A client that accepts no bytes for this long counts as gone.
const WRITE_STALL: Duration = Duration::from_secs(60);
/// The same while more than half of the memory for requests is used.
const WRITE_STALL_PRESSED: Duration = Duration::from_secs(5);
/// How often a waiting write checks which of the two limits applies.
const WRITE_STALL_LOOK: Duration = Duration::from_secs(1);

enum Event {
    Write,
    Read(Result<usize, IoError>),
    Finished,
}

/// Serves one connection until it ends; `received` holds the bytes already read from it.
pub(crate) async fn serve(
    server: Rc<Server>,
    mut connection: Connection,
    conn: Stream,
    mut received: Vec<u8>,
) {
    server.counters.bytes_received.add(received.len() as u64);
    connection.feed_buffer(&mut received);
    if let Err(error) = run(&server, &mut connection, &conn).await {
        tracing::debug!(peer = %conn.peer_addr(), %error, "connection lost");
    }
    conn.shutdown();
}

async fn run(
    server: &Rc<Server>,
    connection: &mut Connection,
    conn: &Stream,
) -> Result<(), IoError> {
    let mut received = Vec::new();
    loop {
        let event = {
            let wait = wait_for_event(server, connection, conn, &mut received);
            match server.settings.idle_timeout {
                None => wait.await,
                Some(idle) => {
                    let deadline = server.rt.now() + idle;
                    match server.rt.timeout(deadline, wait).await {
                        Ok(event) => event,
                        Err(_) => Event::Finished,
                    }
                }
            }
        };
        connection.hold(0);
        match event {
            Event::Finished => return Ok(()),
            Event::Read(Ok(0)) => return Ok(()),
            Event::Read(Ok(read)) => {
                server.counters.bytes_received.add(read as u64);
                connection.feed_buffer(&mut received);
                connection.refuse_overfilling();
            }
            Event::Read(Err(error)) => return Err(error),
            Event::Write => {
                write_output(server, connection, conn).await?;
                connection.hold(0);
            }
        }
    }
}

/// Turns the connection until there is output or new bytes arrived.
///
/// Acknowledges the part of a request that has arrived before it waits for the rest. A client with
/// Nagle's algorithm that writes a request in pieces (Python's driver: of 4 KiB) sends a piece only
/// when the one before was acknowledged. The kernel alone acknowledges 40 ms later. Whole requests
/// cost no system call for this.
async fn wait_for_event(
    server: &Server,
    connection: &mut Connection,
    conn: &Stream,
    received: &mut Vec<u8>,
) -> Event {
    let mut read = pin!(conn.read(received, READ_BYTES_MAX));
    let mut is_acknowledged = false;
    poll_fn(|cx| {
        connection.turn(cx);
        if !connection.output().is_empty() {
            return Poll::Ready(Event::Write);
        }
        if connection.is_finished() {
            return Poll::Ready(Event::Finished);
        }
        if connection.wants_input() {
            let polled = read.as_mut().poll(cx).map(Event::Read);
            if polled.is_pending() && !is_acknowledged && connection.awaits_rest() {
                conn.acknowledge();
                server.counters.acknowledged.inc();
                is_acknowledged = true;
            }
            return polled;
        }
        Poll::Pending
    })
    .await
}

async fn write_output(
    server: &Rc<Server>,
    connection: &mut Connection,
    conn: &Stream,
) -> Result<(), IoError> {
    let output = connection.take_output();
    server.counters.bytes_sent.add(output.len() as u64);
    // In pieces, to distinguish a slow reader from one that does not read at all, and to let other
    // connections run: the kernel may take megabytes at once, at a millisecond each.
    let piece = |from: usize| {
        let rest = output.get(from..).filter(|rest| !rest.is_empty())?;
        Some(rest.get(..READ_BYTES_MAX).unwrap_or(rest))
    };
    let mut written = conn.try_write(piece(0).unwrap_or_default())?;
    while let Some(piece) = piece(written) {
        server.rt.yield_if_due().await;
        write_piece(server, connection, conn, piece, output.capacity()).await?;
        written += piece.len();
    }
    connection.recycle_output(output);
    Ok(())
}

/// Writes while the connection's requests continue: they hold resources that others wait for.
///
/// # Errors
/// `Disconnected` also for a client that reads nothing of it for [`WRITE_STALL`], or [`WRITE_STALL_PRESSED`]
/// while memory is short.
async fn write_piece(
    server: &Rc<Server>,
    connection: &mut Connection,
    conn: &Stream,
    piece: &[u8],
    unsent: usize,
) -> Result<(), IoError> {
    let began = server.rt.now();
    let mut write = pin!(conn.write_all(piece));
    loop {
        let step = poll_fn(|cx| {
            if let Poll::Ready(result) = write.as_mut().poll(cx) {
                return Poll::Ready(result);
            }
            connection.poll_pending(cx);
            connection.hold(unsent);
            Poll::Pending
        });
        if let Ok(result) = server.rt.timeout(server.rt.now() + WRITE_STALL_LOOK, step).await {
            return result;
        }
        let stalled = server.rt.now().since(began);
        let is_pressed = server.query.account.is_pressed();
        if stalled >= WRITE_STALL || (is_pressed && stalled >= WRITE_STALL_PRESSED) {
            server.counters.stalled.inc();
            tracing::debug!(
                peer = %conn.peer_addr(), bytes = unsent, "connection closed: its client reads nothing"
            );
            return Err(lost(conn, "write", "the client reads nothing"));
        }
    }
}

fn lost(conn: &Stream, operation: &'static str, detail: &str) -> IoError {
    IoError {
        kind: stdx::IoErrorKind::Disconnected,
        operation,
        path: conn.peer_addr().to_string(),
        detail: detail.to_owned(),
    }
}
