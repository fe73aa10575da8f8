//! A connection's socket: reads, turns, writes.
//!
//! A client that does not read its answers is not read from; its requests that run go on and their
//! answers wait, bounded by the limits on requests in flight.

use crate::connection::Connection;
use crate::server::Server;
use rt::Conn;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use stdx::IoError;

/// Most bytes of one read.
const READ_BYTES_MAX: usize = 64 << 10;
/// A client that takes nothing of what is written to it for so long is gone.
const WRITE_STALL: std::time::Duration = std::time::Duration::from_secs(60);

enum Event {
    Write,
    Read(Result<usize, IoError>),
    Finished,
}

/// Serves one connection until it ends.
pub(crate) async fn serve(server: Rc<Server>, mut connection: Connection, conn: Conn) {
    if let Err(error) = run(&server, &mut connection, &conn).await {
        tracing::debug!(peer = %conn.peer_addr(), %error, "connection lost");
    }
    conn.shutdown();
}

async fn run(server: &Rc<Server>, connection: &mut Connection, conn: &Conn) -> Result<(), IoError> {
    let mut received = Vec::new();
    loop {
        let event = {
            let wait = wait_for_event(connection, conn, &mut received);
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
        match event {
            Event::Finished => return Ok(()),
            Event::Read(Ok(0)) => return Ok(()),
            Event::Read(Ok(read)) => {
                server.counters.bytes_received.add(read as u64);
                connection.feed_buffer(&mut received);
            }
            Event::Read(Err(error)) => return Err(error),
            Event::Write => write_output(server, connection, conn).await?,
        }
    }
}

/// Turns the connection until there is something to write or new bytes came.
async fn wait_for_event(connection: &mut Connection, conn: &Conn, received: &mut Vec<u8>) -> Event {
    let mut read = pin!(conn.read(received, READ_BYTES_MAX));
    poll_fn(|cx| {
        connection.turn(cx);
        if !connection.output().is_empty() {
            return Poll::Ready(Event::Write);
        }
        if connection.is_finished() {
            return Poll::Ready(Event::Finished);
        }
        if connection.wants_input() {
            return read.as_mut().poll(cx).map(Event::Read);
        }
        Poll::Pending
    })
    .await
}

async fn write_output(
    server: &Rc<Server>,
    connection: &mut Connection,
    conn: &Conn,
) -> Result<(), IoError> {
    let output = connection.take_output();
    server.counters.bytes_sent.add(output.len() as u64);
    let mut written = conn.try_write(&output)?;
    while let Some(rest) = output.get(written..).filter(|rest| !rest.is_empty()) {
        // In pieces, so that a slow reader is told from one that does not read at all.
        let piece = rest.get(..READ_BYTES_MAX).unwrap_or(rest);
        let write = write_piece(connection, conn, piece);
        match server.rt.timeout(server.rt.now() + WRITE_STALL, write).await {
            Ok(result) => result?,
            Err(_) => {
                return Err(IoError {
                    kind: stdx::IoErrorKind::Disconnected,
                    operation: "write",
                    path: conn.peer_addr().to_string(),
                    detail: "the client reads nothing".to_owned(),
                });
            }
        }
        written += piece.len();
    }
    connection.recycle_output(output);
    Ok(())
}

/// Writes while the connection's requests go on: they hold what others wait for.
async fn write_piece(
    connection: &mut Connection,
    conn: &Conn,
    piece: &[u8],
) -> Result<(), IoError> {
    let mut write = pin!(conn.write_all(piece));
    poll_fn(|cx| {
        if let Poll::Ready(result) = write.as_mut().poll(cx) {
            return Poll::Ready(result);
        }
        connection.poll_pending(cx);
        Poll::Pending
    })
    .await
}
