//! Reading from and writing to connections, for both directions.

use crate::counters::PeerCounters;
use crate::env::Env;
use crate::outbox::{Outbox, Written};
use internode::{FrameDecoder, Lane};
use rt::{Group, Stream};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use stdx::{IoError, IoErrorKind};

/// Most bytes of one read.
pub(crate) const READ_BYTES_MAX: usize = 64 << 10;
/// A buffer above this is given back when it is empty. The largest usual frames, a chunk of a file and
/// a page, fit.
const KEEP_BYTES_MAX: usize = 1536 << 10;
/// Frames handled between two reads of the clock.
pub(crate) const FRAMES_PER_LOOK: usize = 16;

/// Writes until nothing waits.
///
/// # Errors
/// The connection broke, or the peer reads nothing.
pub(crate) async fn write_out(
    env: &Env,
    outbox: &Outbox,
    conn: &Stream,
    counters: &PeerCounters,
) -> Result<(), IoError> {
    let before = outbox.handed();
    while outbox.write_some(conn, env.rt.now())? == Written::Part {
        let piece = outbox.take_piece(env.rt.now());
        let written = write_whole(env, conn, &piece).await;
        outbox.piece_done();
        written?;
    }
    counters.sent_bytes.add(outbox.handed() - before);
    counters.expired.add(outbox.take_dropped());
    env.maybe_quiet();
    Ok(())
}

/// Writes all of it.
///
/// # Errors
/// Those of [`write_out`].
pub(crate) async fn write_whole(env: &Env, conn: &Stream, bytes: &[u8]) -> Result<(), IoError> {
    let stall = env.rt.now() + env.settings.write_stall;
    let written = env.rt.timeout(stall, conn.write_all(bytes)).await;
    written.unwrap_or_else(|_| {
        Err(IoError {
            kind: IoErrorKind::Disconnected,
            operation: "write",
            path: conn.peer_addr().to_string(),
            detail: "the peer reads nothing".to_owned(),
        })
    })
}

/// The scheduling group of a lane's tasks.
pub(crate) fn group_of(lane: Lane) -> Group {
    match lane {
        Lane::Requests | Lane::Probe => Group::Statement,
        Lane::Bulk => Group::Stream,
    }
}

/// Drops used bytes when that is cheap.
pub(crate) fn compact(input: &mut Vec<u8>, used: &mut usize) {
    if *used >= input.len() {
        input.clear();
        if input.capacity() > KEEP_BYTES_MAX {
            *input = Vec::new();
        }
        *used = 0;
    } else if *used > input.len() / 2 {
        input.drain(..*used);
        *used = 0;
    }
}

/// Returns how much to read at once: the rest of a large frame that has begun, within limits.
/// Reserves room for it.
pub(crate) fn wanted(decoder: &FrameDecoder, input: &mut Vec<u8>, used: usize) -> usize {
    let rest = input.get(used..).unwrap_or_default();
    let missing = match decoder.needed(rest) {
        Ok(Some(whole)) => whole.saturating_sub(rest.len()),
        _ => 0,
    };
    let wanted = missing.clamp(READ_BYTES_MAX, 1 << 20);
    if missing > READ_BYTES_MAX {
        // Reserve all of it: growing step by step would copy the existing bytes repeatedly.
        input.reserve(wanted);
    }
    wanted
}

/// The first future's output, or `None` when the second is done before.
pub(crate) async fn first_of<A: Future, B: Future>(first: A, second: B) -> Option<A::Output> {
    let (mut first, mut second) = (pin!(first), pin!(second));
    poll_fn(|cx| {
        if let Poll::Ready(output) = first.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        second.as_mut().poll(cx).map(|_| None)
    })
    .await
}
