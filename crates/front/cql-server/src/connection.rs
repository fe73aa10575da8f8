//! One connection without its socket: request bytes in, response bytes out.
//!
//! Owns: the handshake, the order of steps within a turn, the limits of one connection. Never reads
//! or writes a socket (that is [`crate::driver`]) and never interprets a statement (that is
//! [`query`]).
//!
//! A turn: 1. woken requests continue; 2. every complete frame that arrived is run once in place,
//! and kept if it has to wait; 3. local writes are committed, once for all of them; 4. answers and
//! events are appended to the output.
//!
//! INV-connection-1: the answer of a write is in the output only after a commit that followed it.
//! INV-connection-2: whatever bytes arrive, only this connection is affected.
//! INV-trace-1: a tracing id in an answer has its session.

use crate::admission::{self, Load};
use crate::commits::{self, Commit};
use crate::frame_sink::FrameSink;
use crate::held::{self, Held};
use crate::login;
use crate::observed;
use crate::pending::{Entry, Freed, Pending};
use crate::running::{Running, Task};
use crate::server::{CqlServer, Server};
use crate::session::{Answering, Session, Stage};
use crate::settings::Authentication;
use cql_wire::{
    Compression, Frame, FrameDecoder, FrameError, Opcode, ProtocolVersion, Request, RequestFrame,
    Side, StartupOptions, WireError, response,
};
use query::{
    Charge, ConnectionLoad, Cx, Ended, Executor, RequestKind, Result, ResultSink, Ticket, Timing,
    Trace, TraceOrigin,
};
use rt::TlsInfo;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use stdx::Instant;

/// A buffer with more capacity is freed after use.
const KEEP_BYTES_MAX: usize = 64 << 10;

/// Bytes of an incomplete frame that a connection may hold however little memory is left.
const PARTIAL_BYTES_FREE: usize = 64 << 10;
/// Frames that a turn runs between two checks whether a yield is due.
const FRAMES_PER_LOOK: u32 = 32;
/// A frame of this size is followed by such a check.
const LONG_FRAME_BYTES: usize = 4 << 10;

/// Outcome of a request's first run.
type Step = query::Step<Vec<u8>>;

/// A waiting request; returns its finished answer frames.
type Waiting = query::Waiting<Vec<u8>>;

/// A STARTUP, and the framing of what follows its answer.
#[derive(Clone, Copy)]
struct Starting {
    stream: i16,
    version: ProtocolVersion,
    compression: Option<Compression>,
}

/// A request that was begun.
struct Taken<'r> {
    request: &'r Request<'r>,
    stream: i16,
    bytes: usize,
}

/// One connection: bytes in by [`Connection::feed`], work by [`Connection::turn`], bytes out by
/// [`Connection::output`].
pub struct Connection {
    core: Core,
    decoder: FrameDecoder,
    /// Received bytes that are not decoded yet.
    input: Vec<u8>,
}

/// Everything but the decoder, so that a request may borrow from the decoder while it runs.
struct Core {
    server: Rc<Server>,
    /// Executes the statements of this connection.
    query: Rc<Executor>,
    /// The session, and the stream of the request that is begun.
    sink: FrameSink,
    /// Finished frames that are not in the output yet.
    frames: Vec<u8>,
    /// Bytes for the socket.
    output: Vec<u8>,
    pending: Pending,
    held: Vec<Held>,
    /// Tasks of `held`, in the same order, while commits have to wait; else empty.
    held_tasks: Vec<Task>,
    /// A STARTUP whose answer is not in the output yet. No frame after it is decoded before.
    starting: Option<Starting>,
    segmented: bool,
    /// No more requests are accepted; running ones are completed.
    closing: bool,
    /// When the current turn began.
    turn_began: Instant,
    /// When the bytes that it decodes arrived.
    arrived: Instant,
    /// Complete frames may be left over from the turn before.
    has_left: bool,
    /// Memory of the connection that is charged to the shard's account.
    held_bytes: Charge,
    /// Measured requests that arrived and ended in this turn.
    ended: Ended,
}

impl Connection {
    /// Creates a connection of this shard from `peer`, in the clear.
    pub fn new(server: &CqlServer, peer: SocketAddr) -> Connection {
        Connection::encrypted(server, peer, None)
    }

    /// Creates a connection of this shard from `peer`, with the result of its TLS handshake.
    pub fn encrypted(server: &CqlServer, peer: SocketAddr, tls: Option<TlsInfo>) -> Connection {
        let server = server.inner().clone();
        let session = server.open_session(peer, tls);
        let held_bytes = Charge::new(&server.query.account);
        let decoder = FrameDecoder::new(Side::Server, server.settings.frame_bytes_max);
        Connection {
            core: Core {
                query: server.query.clone(),
                server,
                sink: FrameSink { session, stream: 0 },
                frames: Vec::new(),
                output: Vec::new(),
                pending: Pending::default(),
                held: Vec::new(),
                held_tasks: Vec::new(),
                starting: None,
                segmented: false,
                closing: false,
                turn_began: Instant::ZERO,
                arrived: Instant::ZERO,
                has_left: false,
                held_bytes,
                ended: Ended::default(),
            },
            decoder,
            input: Vec::new(),
        }
    }

    pub(crate) fn session(&self) -> &Rc<Session> {
        &self.core.sink.session
    }

    /// Takes received bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    /// Takes received bytes by exchanging buffers; `bytes` is empty afterwards.
    pub fn feed_buffer(&mut self, bytes: &mut Vec<u8>) {
        if self.input.is_empty() {
            std::mem::swap(&mut self.input, bytes);
            bytes.clear();
        } else {
            self.input.append(bytes);
        }
    }

    /// Returns true if the connection can use more bytes. False while answers wait to be written,
    /// after an error that ends the connection, and while frames are left because too much is
    /// unanswered or STARTUP is.
    pub fn wants_input(&self) -> bool {
        let core = &self.core;
        let has_left = core.has_left || (core.starting.is_some() && !self.input.is_empty());
        !core.closing && core.output.is_empty() && !has_left
    }

    /// Updates the memory charged to the account: input, answers, and `unsent` bytes of answers
    /// that were taken out to be written.
    pub(crate) fn hold(&self, unsent: usize) {
        let core = &self.core;
        // Empty buffers are kept for reuse; they are small.
        let of = |buffer: &Vec<u8>| if buffer.is_empty() { 0 } else { buffer.capacity() };
        let answers = of(&core.frames) + of(&core.output) + unsent;
        core.held_bytes.set(of(&self.input) + self.decoder.held_bytes() + answers);
        let used = core.query.account.used();
        core.server.counters.memory.set(i64::try_from(used).unwrap_or(i64::MAX));
    }

    /// Returns true if a frame is incomplete and the client still has to send the rest.
    pub(crate) fn awaits_rest(&self) -> bool {
        self.wants_input() && (!self.input.is_empty() || self.decoder.is_within_frame())
    }

    /// Rejects the incomplete frame if the memory for requests is used up. Its bytes are skipped as
    /// they arrive, and OVERLOADED is answered on its stream. A frame that cannot be rejected yet
    /// takes no more than a segment and one read. As in [`Server::refuses`], a frame that is larger
    /// than all the memory is served while it is the only one.
    pub(crate) fn refuse_overfilling(&mut self) {
        let account = &self.core.query.account;
        let held = self.input.len() + self.decoder.held_bytes();
        if held <= PARTIAL_BYTES_FREE || account.admits(0, ConnectionLoad::Idle) {
            return;
        }
        let of_others = account.used().saturating_sub(self.core.held_bytes.bytes());
        if of_others > account.max() / 8 && self.decoder.refuse_partial(&self.input) {
            self.core.query.counters.overloaded.inc();
        }
    }

    /// Returns true if all answers were sent and nothing more will happen: close the socket.
    pub fn is_finished(&self) -> bool {
        self.core.closing && self.core.pending.len() == 0 && self.core.output.is_empty()
    }

    /// Number of waiting requests.
    pub fn in_flight(&self) -> usize {
        self.core.pending.len()
    }

    /// Bytes to send to the client.
    pub fn output(&self) -> &[u8] {
        &self.core.output
    }

    /// Discards the first `written` bytes of the output: they were sent.
    pub fn consume_output(&mut self, written: usize) {
        let output = &mut self.core.output;
        if written >= output.len() {
            output.clear();
            if output.capacity() > KEEP_BYTES_MAX {
                *output = Vec::new();
            }
        } else {
            output.drain(..written);
        }
    }

    /// Takes the output, to be written by the caller.
    pub(crate) fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.core.output)
    }

    /// Reuses the memory of a written output.
    pub(crate) fn recycle_output(&mut self, mut written: Vec<u8>) {
        written.clear();
        if self.core.output.is_empty() && written.capacity() <= KEEP_BYTES_MAX {
            self.core.output = written;
        }
    }

    /// Runs one turn: does everything that can be done now. The output may hold bytes afterwards.
    pub fn turn(&mut self, cx: &mut Context<'_>) {
        self.core.sink.session.set_waker(cx.waker());
        self.poll_pending(cx);
        if self.core.starting.is_some() {
            self.end_startup();
        }
        self.take_frames(cx);
        self.core.commit_held(cx);
        self.core.record_ended();
        self.core.take_events();
        self.core.flush();
        if self.core.query.is_draining() || self.core.sink.session.must_close.get() {
            self.core.closing = true;
        }
    }

    /// Polls woken requests; their answers are put into the output by the next turn.
    pub(crate) fn poll_pending(&mut self, cx: &mut Context<'_>) {
        let core = &mut self.core;
        let (server, session, frames) = (&core.server, &core.sink.session, &mut core.frames);
        core.pending.poll_woken(cx, |freed: Freed, (stream, timing), answer| {
            server.leave(freed);
            if let Some(stream) = stream {
                server.end_running(session, stream);
            }
            if let Some(Timing { kind, touched, began }) = timing {
                server.query.latencies.record(kind, touched, server.rt.now().since(began));
            }
            append_answer(server, frames, answer);
        });
    }

    /// Changes the framing once the answer of STARTUP is finished. The answer itself is sent in the framing from
    /// before.
    #[cold]
    fn end_startup(&mut self) {
        let core = &mut self.core;
        let Some(Starting { stream, version, compression }) = core.starting else { return };
        if core.sink.session.running.has(stream) {
            return;
        }
        core.starting = None;
        core.flush();
        core.closing |= core.sink.session.must_close.get();
        if core.sink.session.stage.get() == Stage::Established {
            // It was refused; the client may try again.
            return;
        }
        if self.decoder.start(version, compression).is_err() {
            core.closing = true;
        }
        core.segmented = version.has_segments();
    }

    fn take_frames(&mut self, cx: &mut Context<'_>) {
        if self.core.closing || self.input.is_empty() || self.core.starting.is_some() {
            return;
        }
        self.core.turn_began = self.core.server.rt.now();
        if !self.core.has_left {
            self.core.arrived = self.core.turn_began;
        }
        let received = std::mem::take(&mut self.input);
        let mut rest = received.as_slice();
        let (mut taken, mut is_long, mut yields) = (0_u32, false, false);
        while !self.core.closing && self.core.has_room() {
            if (is_long || taken >= FRAMES_PER_LOOK) && self.core.server.rt.is_yield_due() {
                yields = true;
                break;
            }
            (taken, is_long) = (if taken >= FRAMES_PER_LOOK { 1 } else { taken + 1 }, false);
            match self.decoder.next(&mut rest) {
                Ok(None) => break,
                Ok(Some(frame)) => {
                    is_long = frame.body.len() >= LONG_FRAME_BYTES;
                    self.core.take_frame(&frame, cx);
                }
                Err(error) => self.core.take_frame_error(&error),
            }
            if self.core.starting.is_some() {
                self.end_startup();
                if self.core.starting.is_some() {
                    break;
                }
            }
        }
        self.decoder.release_large();
        let used = received.len() - rest.len();
        self.input = received;
        if self.core.closing || used >= self.input.len() {
            self.input.clear();
            if self.input.capacity() > KEEP_BYTES_MAX {
                self.input = Vec::new();
            }
        } else {
            self.input.drain(..used);
        }
        self.core.has_left = (yields || !self.core.has_room()) && !self.input.is_empty();
        let has_answers = !(self.core.frames.is_empty() && self.core.output.is_empty());
        if self.core.has_left && (yields || has_answers) {
            // Frames are left: come back when the output is written, or after other tasks ran.
            // Where requests are waited for, the end of one wakes the task.
            cx.waker().wake_by_ref();
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let core = &mut self.core;
        core.server.leave(Freed { bytes: core.pending.bytes(), count: core.pending.len() });
        if !core.sink.session.observed.is_empty() {
            observed::abandon(&core.query, &core.sink.session);
        }
        core.server.close_session(&core.sink.session);
    }
}

/// Appends the frames of a completed request to the finished ones.
fn append_answer(server: &Server, frames: &mut Vec<u8>, mut answer: Vec<u8>) {
    if frames.is_empty() {
        std::mem::swap(frames, &mut answer);
    } else {
        frames.extend_from_slice(&answer);
    }
    server.query.recycle(answer);
}

impl Core {
    /// Returns true if another frame may be run before the answers so far, and the expected answers
    /// of waiting requests, are written.
    fn has_room(&self) -> bool {
        let unanswered = self.frames.len() + self.output.len() + self.pending.expects();
        let most = self.server.settings.output_bytes_max;
        unanswered == 0 || (unanswered < most && !self.query.account.is_pressed())
    }

    fn take_frame_error(&mut self, error: &FrameError) {
        if error.fatal {
            tracing::debug!(peer = %self.sink.session.client.peer, %error, "connection closed after bad bytes");
            self.closing = true;
        }
        self.server.counters.protocol_errors.inc();
        response::encode_frame_error(&mut self.frames, error);
    }

    fn take_frame(&mut self, frame: &Frame<'_>, cx: &mut Context<'_>) {
        let header = frame.header;
        self.server.counters.requests.inc();
        self.sink.session.requests.set(self.sink.session.requests.get() + 1);
        self.sink.stream = header.stream;
        let mut ticket = Ticket { connection: self.sink.session.id, trace: None, watch: None };
        if self.sink.session.stage.get() == Stage::Established {
            // Errors before STARTUP are encoded in the client's version.
            self.sink.session.client.negotiated.set(cql_wire::Negotiated::plain(header.version));
        }
        if self.pending.len() > 0 && self.sink.session.running.has(header.stream) {
            observed::refuse_stream(&self.sink, &ticket, &mut self.frames);
            self.closing = true;
            return;
        }
        // Discard the latency sample of a request that failed before execution.
        self.query.latencies.take();
        let request = self.check_stage(header.opcode, header.version).and_then(|()| {
            Ok(RequestFrame::decode(frame, self.sink.session.client.negotiated.get())?)
        });
        let answered = self.frames.len();
        let is_observed = self.query.observers.is_on();
        // A write that waits for the commit of this turn is not in `running`.
        if is_observed && self.sink.session.observed.has(header.stream) {
            observed::refuse_stream(&self.sink, &ticket, &mut self.frames);
            self.closing = true;
            return;
        }
        let ran = request.and_then(|request| {
            let bytes = admission::weight(&request.request, frame.body.len());
            if is_observed {
                observed::begin(&self.query, &self.sink, &request.request, self.turn_began)?;
            }
            let mut step = self.dispatch(&request, &mut ticket, bytes);
            if ticket.trace.is_some() {
                step = self.traced(step, &ticket, answered);
            }
            if is_observed {
                step = self.observed(step, &ticket, &request.request, answered);
            }
            let taken = Taken { request: &request.request, stream: header.stream, bytes };
            self.take_step(step?, taken, cx);
            Ok(())
        });
        if let Err(failure) = ran {
            self.query.counters.failed(failure.code());
            self.sink.failed(&mut self.frames, &ticket, &failure);
        }
    }

    /// Makes a traced request write its trace before its answer, whichever way it ended:
    /// INV-trace-1. `answered` is the offset in `frames` at which the answer of a request that did
    /// not wait begins.
    #[cold]
    fn traced(&mut self, step: Result<Step>, ticket: &Ticket, answered: usize) -> Result<Step> {
        let Some(trace) = ticket.trace.clone() else { return step };
        let (query, sink) = (self.query.clone(), self.sink.clone());
        let ticket = ticket.clone();
        let at_once = self.frames.split_off(answered.min(self.frames.len()));
        let (future, failure) = match step {
            // Writes wait for their commit with others; traced writes never do.
            Ok(Step::Held(held)) => return Ok(Step::Held(held)),
            Ok(Step::Done) => (None, None),
            Ok(Step::Waits(future)) => (Some(future), None),
            Err(failure) => (None, Some(failure)),
        };
        Ok(Step::Waits(Box::pin(async move {
            let mut out = at_once;
            if let Some(future) = future {
                out.extend(future.await);
            }
            if failure.is_some() {
                trace.note("Request failed".to_owned());
            }
            if !trace.is_written() {
                query::write_trace(&query, &trace, sink.client().peer.ip()).await;
            }
            if let Some(failure) = failure {
                query.counters.failed(failure.code());
                sink.failed(&mut out, &ticket, &failure);
            }
            out
        })))
    }

    /// Makes an observed request reach the observers before its answer. `answered`: see `traced`.
    #[cold]
    fn observed(
        &mut self,
        step: Result<Step>,
        ticket: &Ticket,
        request: &Request<'_>,
        answered: usize,
    ) -> Result<Step> {
        let about = observed::About { ticket, request, answer_at: answered };
        observed::observe(&self.server, &self.sink, &about, step, &mut self.frames)
    }

    /// Answers committed writes of a connection with observed requests.
    #[cold]
    fn answer_observed(
        &mut self,
        held: &mut Vec<Held>,
        result: std::result::Result<(), store::StoreError>,
        cx: &mut Context<'_>,
    ) {
        let failed = held::failed_commit(&self.query, result);
        for one in held.drain(..) {
            let (stream, ticket) = (one.stream, one.write.ticket.clone());
            let (session, begins) = (&self.sink.session, self.frames.len());
            held::answer_one(&self.query, session, one, failed.as_ref(), &mut self.frames);
            let Some(taken) = observed::finish(&self.query, session, stream, None) else {
                continue;
            };
            let mut out = self.frames.split_off(begins);
            let (server, session) = (self.server.clone(), self.sink.session.clone());
            self.sink.session.running.begin(stream, self.running(Task::Unknown));
            let future: Waiting = Box::pin(async move {
                let sink = FrameSink { session, stream };
                observed::wait(&server, &sink, &ticket, taken, &mut out).await;
                server.end_running(&sink.session, stream);
                out
            });
            let entry =
                Entry { stream: None, count: 1, bytes: 0, expects: 0, timing: None, future };
            // A later turn or this one appends its answer.
            let _ = self.start(entry, cx);
        }
    }

    /// Enqueues a request that has to wait.
    fn take_step(&mut self, step: Step, taken: Taken<'_>, cx: &mut Context<'_>) {
        let Taken { request, stream, bytes } = taken;
        match step {
            Step::Done => {}
            Step::Held(write) => {
                let (_, touched) = self.query.latencies.take();
                self.held.push(Held { stream, touched, write });
                if self.server.commits_wait.get() {
                    self.held_tasks.push(Task::of(request, || self.query.buffer()));
                }
            }
            Step::Waits(future) => {
                let (kind, touched) = self.query.latencies.take();
                let timing = kind.map(|kind| Timing { kind, touched, began: self.turn_began });
                let expects = match kind {
                    Some(RequestKind::Read | RequestKind::Range | RequestKind::CasRead) => {
                        self.sink.session.client.answers.expected()
                    }
                    _ => 0,
                };
                let entry =
                    Entry { stream: Some(stream), count: 1, bytes, expects, timing, future };
                if self.start(entry, cx).is_pending() {
                    let task = Task::of(request, || self.query.buffer());
                    self.sink.session.running.begin(stream, self.running(task));
                }
            }
        }
    }

    /// Describes a request of this turn that has to wait.
    fn running(&self, task: Task) -> Running {
        Running { task, arrived: self.arrived, began: self.turn_began }
    }

    fn start(&mut self, entry: Entry, cx: &mut Context<'_>) -> Poll<()> {
        let (bytes, count, timing) = (entry.bytes, entry.count, entry.timing);
        match self.pending.start(entry, cx) {
            Poll::Ready(answer) => {
                append_answer(&self.server, &mut self.frames, answer);
                if let Some(timing) = timing {
                    self.ended.add(timing.kind, timing.touched);
                }
                Poll::Ready(())
            }
            Poll::Pending => {
                self.server.enter(Freed { bytes, count });
                Poll::Pending
            }
        }
    }

    /// Records the latency of requests that arrived and completed in this turn.
    fn record_ended(&mut self) {
        if !self.ended.is_empty() {
            let ended = std::mem::take(&mut self.ended);
            let took = self.server.rt.now().since(self.turn_began);
            self.query.latencies.record_turn(ended, took);
        }
    }

    fn check_stage(&self, opcode: Opcode, version: ProtocolVersion) -> Result<()> {
        let is_start = matches!(opcode, Opcode::Startup | Opcode::Options);
        match self.sink.session.stage.get() {
            Stage::Established if !is_start => Err(WireError::ExpectingStartup { opcode }.into()),
            Stage::Established
                if version < ProtocolVersion::CURRENT
                    && !self.server.allow_older_protocols.get() =>
            {
                Err(WireError::UnsupportedVersion { version: version.number() }.into())
            }
            Stage::Authenticating if opcode != Opcode::AuthResponse => {
                Err(WireError::ExpectingCredentials { opcode }.into())
            }
            Stage::Ready if opcode == Opcode::Startup => {
                Err(WireError::AlreadyInitialized { opcode }.into())
            }
            Stage::Established | Stage::Authenticating | Stage::Ready => Ok(()),
        }
    }

    fn dispatch(
        &mut self,
        request: &RequestFrame<'_>,
        ticket: &mut Ticket,
        bytes: usize,
    ) -> Result<Step> {
        match request.request {
            Request::Startup(options) => self.startup(options, ticket),
            Request::Options => {
                let supported = self.server.supported();
                self.respond(ticket, Opcode::Supported, |body| {
                    response::put_supported(body, &supported)
                })?;
                Ok(Step::Done)
            }
            Request::Register(kinds) => {
                self.sink.session.registered.set(self.sink.session.registered.get().union(kinds));
                self.respond(ticket, Opcode::Ready, |_| Ok(()))?;
                Ok(Step::Done)
            }
            Request::AuthResponse(token) => {
                login::auth_response(&self.server, &self.sink, token.unwrap_or_default(), ticket)
            }
            Request::Query { query: text, ref parameters } => {
                self.begin_statement(request, ticket, bytes)?;
                query::query(text, parameters, &mut self.cx(ticket))
            }
            Request::Prepare { query: text, keyspace } => {
                self.begin_statement(request, ticket, bytes)?;
                query::prepare(text, keyspace, &self.cx(ticket))
            }
            Request::Execute { id, result_metadata_id, ref parameters } => {
                self.begin_statement(request, ticket, bytes)?;
                query::execute(id, result_metadata_id, parameters, &mut self.cx(ticket))
            }
            Request::Batch(ref batch) => {
                self.begin_statement(request, ticket, bytes)?;
                query::batch(batch, &mut self.cx(ticket))
            }
        }
    }

    /// Admits a statement of this size; sets its trace and the watch of its permissions in the
    /// ticket.
    #[inline]
    fn begin_statement(
        &self,
        request: &RequestFrame<'_>,
        ticket: &mut Ticket,
        bytes: usize,
    ) -> Result<()> {
        admission::admit(&self.server, bytes, &self.load())?;
        if self.server.limits_rates.get() {
            admission::admit_rate(&self.server, &self.sink.session.client, self.turn_began)?;
        }
        if request.tracing || self.server.is_traced_by_chance() {
            let id = self.query.next_time_uuid();
            let origin = match request.tracing {
                true => TraceOrigin::Client,
                false => TraceOrigin::Sampled,
            };
            let trace = Trace::new(&self.server.rt, id, origin);
            ticket.trace = Some(Rc::new(trace));
        }
        if !matches!(self.server.settings.authentication, Authentication::AllowAll) {
            ticket.watch = query::watch(&self.query, &self.sink.session.client);
        }
        Ok(())
    }

    /// The execution context of a statement.
    #[inline]
    fn cx<'a>(&'a mut self, ticket: &'a Ticket) -> Cx<'a, FrameSink> {
        Cx { executor: &self.query, sink: &self.sink, ticket, out: &mut self.frames }
    }

    /// Answers the request that was begun.
    fn respond(
        &mut self,
        ticket: &Ticket,
        opcode: Opcode,
        write: impl FnOnce(&mut Vec<u8>) -> std::result::Result<(), WireError>,
    ) -> Result<()> {
        let about = Answering::new(self.sink.stream, ticket);
        self.sink.session.respond(&mut self.frames, &about, opcode, write)
    }

    /// The state of this connection that decides whether another request is begun.
    #[inline]
    fn load(&self) -> Load {
        Load {
            waiting: self.pending.len() + self.held.len(),
            pending: self.pending.len(),
            pending_bytes: self.pending.bytes(),
            held_bytes: self.held_bytes.bytes(),
            has_answers: !self.frames.is_empty(),
        }
    }

    fn startup(&mut self, options: cql_wire::StringMap<'_>, ticket: &Ticket) -> Result<Step> {
        let version = self.sink.session.version();
        let options = StartupOptions::check(options, version)?;
        self.sink.session.start(&options, version);
        let step = login::startup(&self.server, &self.sink, ticket, &mut self.frames)?;
        let (stream, compression) = (self.sink.stream, options.compression);
        self.starting = Some(Starting { stream, version, compression });
        Ok(step)
    }

    /// Commits the writes of this turn and answers them; enqueues the commit if it has to wait.
    fn commit_held(&mut self, cx: &mut Context<'_>) {
        if self.held.is_empty() {
            return;
        }
        let polled = {
            let mut commit = pin!(self.query.coordinator.commit());
            commit.as_mut().poll(cx)
        };
        self.server.commits_wait.set(polled.is_pending());
        let mut held = std::mem::take(&mut self.held);
        if let Poll::Ready(result) = polled {
            for task in self.held_tasks.drain(..).filter_map(Task::into_buffer) {
                self.query.recycle(task);
            }
            for write in &held {
                self.ended.add(RequestKind::Write, write.touched);
            }
            if self.sink.session.observed.is_empty() {
                held::answer_all(
                    &self.query,
                    &self.sink.session,
                    &mut held,
                    result,
                    &mut self.frames,
                );
            } else {
                self.answer_observed(&mut held, result, cx);
            }
            self.held = held;
            return;
        }
        let count = held.len();
        self.begin_held(&held);
        let commit = Commit { session: self.sink.session.clone(), held, began: self.turn_began };
        let future: Waiting = Box::pin(commits::answer(self.server.clone(), commit));
        // A later turn or this one appends its answer.
        let _ = self
            .start(Entry { stream: None, count, bytes: 0, expects: 0, timing: None, future }, cx);
    }

    /// Records writes whose commit has to wait.
    fn begin_held(&mut self, held: &[Held]) {
        let mut tasks = std::mem::take(&mut self.held_tasks);
        if tasks.len() != held.len() {
            // Commits began to wait in this turn: the first writes have no description.
            tasks.clear();
            tasks.resize_with(held.len(), || Task::Unknown);
        }
        for (write, task) in held.iter().zip(tasks.drain(..)) {
            self.sink.session.running.begin(write.stream, self.running(task));
        }
        self.held_tasks = tasks;
    }

    fn take_events(&mut self) {
        let mut pushed = self.sink.session.pushed.borrow_mut();
        if !pushed.is_empty() {
            self.frames.append(&mut pushed);
        }
    }

    /// Moves finished frames into the output.
    fn flush(&mut self) {
        if self.frames.is_empty() {
            return;
        }
        if self.segmented {
            let lz4 = self.sink.session.compression.get() == Some(Compression::Lz4);
            cql_wire::pack_segments(&self.frames, lz4, &mut self.output);
        } else if self.output.is_empty() {
            std::mem::swap(&mut self.frames, &mut self.output);
        } else {
            self.output.extend_from_slice(&self.frames);
        }
        self.frames.clear();
        if self.frames.capacity() > KEEP_BYTES_MAX {
            self.frames = Vec::new();
        }
    }
}
