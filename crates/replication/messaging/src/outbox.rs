//! Outbox of one connection: the encoded frames that wait to be written.
//!
//! Senders append frames; one write hands all frames of a turn to the kernel. When the socket is
//! full, the connection's writing task continues. Frames that waited are checked again before they
//! are sent: those whose deadline passed are dropped, the others get their remaining time.

use internode::{FrameEncoder, FrameHeader, FrameTooLong, patch_deadline};
use rt::Stream;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use stdx::{Instant, IoError};

/// Frames that waited for longer are checked again before they are sent.
const STALE: Duration = Duration::from_millis(10);
/// A buffer above this is given back when it is empty.
const KEEP_BYTES_MAX: usize = 1 << 20;
/// Most bytes of one write that waits.
const PIECE_BYTES: usize = 64 << 10;

/// A deadline that never passes.
pub(crate) const NEVER: Instant = Instant(u64::MAX);

struct Queued {
    length: usize,
    deadline: Instant,
}

struct State {
    /// `bytes[written..]` waits.
    bytes: Vec<u8>,
    written: usize,
    /// The frames in that; the first may be written in part.
    frames: VecDeque<Queued>,
    front_written: usize,
    /// Bytes at the front of `bytes[written..]` that may have left although they were not reported
    /// as written (`Stream::held_back`): their frame is begun.
    held_back: usize,
    /// Positions in all bytes ever appended: the end, and the end of the bytes that the kernel
    /// took.
    end: u64,
    handed: u64,
    encoder: FrameEncoder,
    /// The oldest waiting frame was appended then.
    since: Instant,
    /// No waiting frame has an earlier deadline.
    first_deadline: Instant,
    dropped: u64,
}

/// Output of one connection.
pub(crate) struct Outbox {
    state: RefCell<State>,
    /// Bytes that wait, of all outboxes that share it.
    shared_bytes: Rc<Cell<usize>>,
    writer: RefCell<Option<Waker>>,
    room: RefCell<Option<Waker>>,
    /// Bytes of the piece that the writing task holds; meanwhile no other write is allowed.
    piece: Cell<usize>,
    closed: Cell<bool>,
}

/// Result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// Nothing waits any more.
    All,
    /// The socket is full, or the writing task is busy.
    Part,
}

impl Outbox {
    pub(crate) fn new(encoder: FrameEncoder, shared_bytes: Rc<Cell<usize>>) -> Outbox {
        let state = State {
            bytes: Vec::new(),
            written: 0,
            frames: VecDeque::new(),
            front_written: 0,
            held_back: 0,
            end: 0,
            handed: 0,
            encoder,
            since: Instant::ZERO,
            first_deadline: NEVER,
            dropped: 0,
        };
        Outbox {
            state: RefCell::new(state),
            shared_bytes,
            writer: RefCell::new(None),
            room: RefCell::new(None),
            piece: Cell::new(0),
            closed: Cell::new(false),
        }
    }

    /// The features of the connection are known now.
    pub(crate) fn set_encoder(&self, encoder: FrameEncoder) {
        self.state.borrow_mut().encoder = encoder;
    }

    /// Appends a frame and returns the position it begins at. `write` appends the payload and must not
    /// send anything itself.
    pub(crate) fn push(
        &self,
        now: Instant,
        header: &FrameHeader,
        deadline: Instant,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<u64, FrameTooLong> {
        let mut guard = self.state.borrow_mut();
        let state = &mut *guard;
        let begin = state.end;
        if self.closed.get() {
            return Ok(begin);
        }
        let length = state.encoder.encode(&mut state.bytes, header, write)?;
        if state.frames.is_empty() {
            state.since = now;
        }
        state.first_deadline = state.first_deadline.min(deadline);
        state.frames.push_back(Queued { length, deadline });
        state.end += length as u64;
        self.shared_bytes.set(self.shared_bytes.get() + length);
        Ok(begin)
    }

    /// Bytes that wait.
    pub(crate) fn len(&self) -> usize {
        let state = self.state.borrow();
        state.bytes.len() - state.written
    }

    /// Returns true if the kernel may have got bytes of the frame that begins at `begin`. If not, a
    /// frame whose deadline has passed will not be sent later either.
    pub(crate) fn is_handed(&self, begin: u64) -> bool {
        self.state.borrow().handed > begin
    }

    /// Bytes that the kernel took so far, dropped frames included.
    pub(crate) fn handed(&self) -> u64 {
        self.state.borrow().handed
    }

    /// Frames that were dropped because their deadline passed before they were sent.
    pub(crate) fn take_dropped(&self) -> u64 {
        std::mem::take(&mut self.state.borrow_mut().dropped)
    }

    /// Hands what fits to the kernel.
    pub(crate) fn write_some(&self, conn: &Stream, now: Instant) -> Result<Written, IoError> {
        if self.piece.get() > 0 {
            return Ok(Written::Part);
        }
        let mut state = self.state.borrow_mut();
        self.refresh(&mut state, now);
        if state.written == state.bytes.len() {
            return Ok(Written::All);
        }
        let taken = conn.try_write(state.bytes.get(state.written..).unwrap_or_default())?;
        self.advance(&mut state, taken);
        let rest = state.bytes.len() - state.written;
        state.held_back = if rest == 0 { 0 } else { conn.held_back() };
        drop(state);
        self.wake_room();
        Ok(if rest == 0 { Written::All } else { Written::Part })
    }

    /// Takes bytes for a write that waits; no other write is allowed until [`Outbox::piece_done`].
    pub(crate) fn take_piece(&self, now: Instant) -> Vec<u8> {
        let mut state = self.state.borrow_mut();
        self.refresh(&mut state, now);
        let rest = state.bytes.get(state.written..).unwrap_or_default();
        let most = if stdx::chaos!("messaging-short-piece") { 1 } else { PIECE_BYTES };
        let piece = rest.get(..most).unwrap_or(rest).to_vec();
        self.advance(&mut state, piece.len());
        // The piece begins with them.
        state.held_back = 0;
        // The other fields still count it as waiting.
        self.shared_bytes.set(self.shared_bytes.get() + piece.len());
        self.piece.set(piece.len());
        piece
    }

    pub(crate) fn piece_done(&self) {
        let piece = self.piece.take();
        self.shared_bytes.set(self.shared_bytes.get().saturating_sub(piece));
        self.wake_room();
    }

    /// Ready when something waits to be written or the outbox is closed.
    pub(crate) fn poll_work(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.closed.get() || self.len() > 0 {
            return Poll::Ready(());
        }
        self.writer.replace(Some(cx.waker().clone()));
        Poll::Pending
    }

    /// Ready when the outbox is closed; woken as [`Outbox::poll_work`] is.
    pub(crate) fn poll_closed(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.closed.get() {
            return Poll::Ready(());
        }
        self.writer.replace(Some(cx.waker().clone()));
        Poll::Pending
    }

    /// Ready when at most `max` bytes wait or the outbox is closed.
    pub(crate) fn poll_room(&self, cx: &mut Context<'_>, max: usize) -> Poll<()> {
        if self.closed.get() || self.len() <= max {
            return Poll::Ready(());
        }
        self.room.replace(Some(cx.waker().clone()));
        Poll::Pending
    }

    /// Lets the writing task run.
    pub(crate) fn wake_writer(&self) {
        let waker = self.writer.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn wake_room(&self) {
        let waker = self.room.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// Drops waiting frames and accepts no more. The position of the bytes that the kernel took is
    /// kept.
    pub(crate) fn close(&self) {
        self.closed.set(true);
        {
            let mut state = self.state.borrow_mut();
            let rest = state.bytes.len() - state.written;
            self.shared_bytes.set(self.shared_bytes.get().saturating_sub(rest));
            state.bytes = Vec::new();
            state.frames = VecDeque::new();
            state.written = 0;
            state.front_written = 0;
            state.held_back = 0;
        }
        self.wake_writer();
        self.wake_room();
    }

    fn advance(&self, state: &mut State, taken: usize) {
        state.handed += taken as u64;
        state.written += taken;
        stdx::invariant!(
            state.written <= state.bytes.len() && state.handed <= state.end,
            "INV-messaging-2: {taken} bytes sent, {} of {} and {} of {} altogether",
            state.written,
            state.bytes.len(),
            state.handed,
            state.end
        );
        self.shared_bytes.set(self.shared_bytes.get().saturating_sub(taken));
        if state.written == state.bytes.len() {
            state.bytes.clear();
            if state.bytes.capacity() > KEEP_BYTES_MAX {
                state.bytes = Vec::new();
            }
            state.frames.clear();
            state.first_deadline = NEVER;
            state.written = 0;
            state.front_written = 0;
            return;
        }
        let mut left = taken + state.front_written;
        while let Some(front) = state.frames.front().filter(|f| f.length <= left) {
            left -= front.length;
            state.frames.pop_front();
        }
        state.front_written = left;
        if state.written > KEEP_BYTES_MAX && state.written > state.bytes.len() / 2 {
            state.bytes.drain(..state.written);
            state.written = 0;
        }
    }

    /// Looks at frames that waited: drops the late ones, sets the time left of the others.
    fn refresh(&self, state: &mut State, now: Instant) {
        let is_fresh = now.since(state.since) < STALE && now < state.first_deadline;
        if state.frames.is_empty() || is_fresh {
            return;
        }
        state.since = now;
        let mut at = state.written;
        let mut kept = state.written;
        let mut is_first_part = state.front_written > 0 || state.held_back > 0;
        let mut lost = 0usize;
        let mut first_deadline = NEVER;
        let (bytes, front_written) = (&mut state.bytes, state.front_written);
        state.frames.retain(|frame| {
            if std::mem::take(&mut is_first_part) {
                // Begun: the peer needs its end.
                at += frame.length - front_written;
                kept = at;
                return true;
            }
            let from = at;
            at += frame.length;
            if frame.deadline <= now {
                stdx::reached!("messaging-frame-expired-unsent");
                lost += frame.length;
                state.dropped += 1;
                return false;
            }
            first_deadline = first_deadline.min(frame.deadline);
            bytes.copy_within(from..at, kept);
            if frame.deadline != NEVER {
                match bytes.get_mut(kept..kept + frame.length) {
                    Some(moved) => patch_deadline(moved, micros_left(now, frame.deadline)),
                    None => stdx::invariant!(false, "outbox: a frame at {kept} lies outside of it"),
                }
            }
            kept += frame.length;
            true
        });
        stdx::invariant!(
            at == bytes.len() && kept + lost == at,
            "outbox: {at} bytes of frames, {} bytes, {lost} of them dropped and {kept} kept",
            bytes.len()
        );
        bytes.truncate(kept);
        state.first_deadline = first_deadline;
        if state.written == state.bytes.len() {
            state.bytes.clear();
            state.written = 0;
        }
        // Positions count what was appended, so that a dropped frame moves all on.
        state.handed += lost as u64;
        self.shared_bytes.set(self.shared_bytes.get().saturating_sub(lost));
    }
}

/// Encodes the time left until `deadline` for a frame: at least 1 µs, at most 71 minutes.
pub(crate) fn micros_left(now: Instant, deadline: Instant) -> u32 {
    u32::try_from(deadline.since(now).as_micros()).unwrap_or(u32::MAX).max(1)
}
