//! What a connection and its running requests share.

use crate::access::Numbered;
use crate::account::AnswerSizes;
use crate::failure::{Failure, Result};
use crate::running::RunningRequests;
use crate::trace::Trace;
use coordinator::RequestTrace;
use cql_plan::guardrails::Watch;
use cql_wire::{
    Compression, EventKinds, FrameExtras, Negotiated, Opcode, ProtocolVersion, ResponseFrame,
    StartupOptions, WireError,
};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::Waker;
use stdx::{Instant, Uuid};

/// How far the handshake is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Before STARTUP.
    Established,
    /// STARTUP was answered with AUTHENTICATE.
    Authenticating,
    /// Statements are taken.
    Ready,
}

/// State of one connection that its requests may read and change at any time.
pub(crate) struct Session {
    /// Number within the shard.
    pub(crate) id: u64,
    /// The client.
    pub(crate) peer: SocketAddr,
    /// This node, as error messages name it: its address for other nodes.
    node: SocketAddr,
    pub(crate) stage: Cell<Stage>,
    pub(crate) negotiated: Cell<Negotiated>,
    pub(crate) compression: Cell<Option<Compression>>,
    pub(crate) keyspace: RefCell<Option<Rc<str>>>,
    pub(crate) user: RefCell<Option<Rc<str>>>,
    /// What the user may do, as it was found out last.
    pub(crate) access: RefCell<Option<Rc<Numbered>>>,
    pub(crate) registered: Cell<EventKinds>,
    /// STARTUP's options as sent.
    pub(crate) options: RefCell<Vec<(String, String)>>,
    pub(crate) driver: RefCell<(Option<String>, Option<String>)>,
    pub(crate) requests: Cell<u64>,
    /// Of the answers to its reads.
    pub(crate) answers: AnswerSizes,
    /// Its requests that wait.
    pub(crate) running: RunningRequests,
    /// The advice about USE was given.
    pub(crate) warned_use: Cell<bool>,
    /// Event frames to be sent with the next answers.
    pub(crate) pushed: RefCell<Vec<u8>>,
    /// The client does not read its events: close.
    pub(crate) overrun: Cell<bool>,
    /// The connection's task.
    pub(crate) waker: RefCell<Option<Waker>>,
    /// Of no connection: another node sent a statement to be carried out here, by this deadline.
    pub(crate) forwarded: Option<Instant>,
    /// Of a forwarded read: its client may see what masks hide.
    pub(crate) unmasks: Cell<bool>,
    /// Working memory of frame compression.
    scratch: RefCell<Vec<u8>>,
}

/// One request, as far as its answer needs it.
#[derive(Clone)]
pub(crate) struct Ticket {
    pub(crate) stream: i16,
    /// Number of the connection, so that writes of different ones are begun in turn; 0: of none.
    pub(crate) connection: u64,
    pub(crate) trace: Option<Rc<Trace>>,
    /// Limits on whoever asks, and what it is warned of.
    pub(crate) watch: Option<Rc<Watch>>,
}

impl Ticket {
    /// Id of the trace that the client asked for.
    pub(crate) fn tracing_id(&self) -> Option<Uuid> {
        self.trace.as_ref().filter(|t| t.is_asked_for()).map(|t| t.id())
    }

    /// Id of the trace, whoever wanted it.
    pub(crate) fn trace_session(&self) -> Option<Uuid> {
        self.trace.as_ref().map(|t| t.id())
    }

    /// The trace as the coordinator takes it.
    pub(crate) fn request_trace(&self) -> Option<Rc<RequestTrace>> {
        let trace = self.trace.as_ref()?.clone();
        Some(Rc::new(RequestTrace::new(trace.id(), move |activity| trace.note(activity))))
    }

    /// The limits on whoever asks.
    pub(crate) fn watch(&self) -> Option<&Watch> {
        self.watch.as_deref()
    }

    /// Whether a limit gave a warning, which the answer is to carry.
    pub(crate) fn is_warned(&self) -> bool {
        self.watch.as_ref().is_some_and(|watch| watch.count() > 0)
    }

    /// What limits gave warnings of.
    pub(crate) fn warnings(&self) -> Vec<String> {
        self.watch.as_ref().map(|watch| watch.warnings()).unwrap_or_default()
    }

    /// Notes an event of the trace, if there is one.
    pub(crate) fn note(&self, activity: impl FnOnce() -> String) {
        if let Some(trace) = &self.trace {
            trace.note(activity());
        }
    }
}

impl Session {
    pub(crate) fn new(id: u64, peer: SocketAddr, node: SocketAddr) -> Session {
        Session {
            id,
            peer,
            node,
            stage: Cell::new(Stage::Established),
            negotiated: Cell::new(Negotiated::plain(ProtocolVersion::CURRENT)),
            compression: Cell::new(None),
            keyspace: RefCell::new(None),
            user: RefCell::new(None),
            access: RefCell::new(None),
            registered: Cell::new(EventKinds::NONE),
            options: RefCell::default(),
            driver: RefCell::default(),
            requests: Cell::new(0),
            answers: AnswerSizes::default(),
            running: RunningRequests::default(),
            warned_use: Cell::new(false),
            pushed: RefCell::default(),
            overrun: Cell::new(false),
            waker: RefCell::new(None),
            forwarded: None,
            unmasks: Cell::new(false),
            scratch: RefCell::default(),
        }
    }

    pub(crate) fn version(&self) -> ProtocolVersion {
        self.negotiated.get().version
    }

    /// Takes STARTUP's options over.
    pub(crate) fn start(&self, options: &StartupOptions<'_>, version: ProtocolVersion) {
        self.negotiated.set(options.negotiated(version));
        self.compression.set(options.compression);
        *self.options.borrow_mut() =
            options.all.iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
        *self.driver.borrow_mut() =
            (options.driver_name.map(str::to_owned), options.driver_version.map(str::to_owned));
    }

    /// Ends a response frame, compressed when the connection is (v3, v4).
    pub(crate) fn finish(&self, frame: ResponseFrame<'_>) -> std::result::Result<(), WireError> {
        match self.compression.get() {
            Some(compression)
                if self.stage.get() != Stage::Established
                    && self.version() < ProtocolVersion::V5 =>
            {
                frame.finish_compressed(compression, &mut self.scratch.borrow_mut())?;
            }
            _ => {
                frame.finish()?;
            }
        }
        Ok(())
    }

    /// Appends one response whose body `write` fills.
    pub(crate) fn respond(
        &self,
        out: &mut Vec<u8>,
        ticket: &Ticket,
        opcode: Opcode,
        warnings: &[&str],
        write: impl FnOnce(&mut Vec<u8>) -> std::result::Result<(), WireError>,
    ) -> Result<()> {
        if ticket.is_warned() {
            return self.respond_warned(out, (ticket, opcode), warnings, write);
        }
        let extras = FrameExtras { tracing_id: ticket.tracing_id(), warnings, custom_payload: &[] };
        let mut frame = ResponseFrame::begin(out, self.version(), ticket.stream, opcode, &extras)?;
        write(frame.body())?;
        self.finish(frame)?;
        Ok(())
    }

    /// As [`Session::respond`], with the ticket's warnings in front.
    #[cold]
    fn respond_warned(
        &self,
        out: &mut Vec<u8>,
        (ticket, opcode): (&Ticket, Opcode),
        warnings: &[&str],
        write: impl FnOnce(&mut Vec<u8>) -> std::result::Result<(), WireError>,
    ) -> Result<()> {
        let of_limits = ticket.warnings();
        let all: Vec<&str> =
            of_limits.iter().map(String::as_str).chain(warnings.iter().copied()).collect();
        let tracing_id = ticket.tracing_id();
        let extras = FrameExtras { tracing_id, warnings: &all, custom_payload: &[] };
        let mut frame = ResponseFrame::begin(out, self.version(), ticket.stream, opcode, &extras)?;
        write(frame.body())?;
        self.finish(frame)?;
        Ok(())
    }

    /// Appends an answer that another node made for this client: a whole frame of the same version,
    /// not compressed, of no trace. What this node warns of stands before what that one does. False: it
    /// is none.
    pub(crate) fn pass_on(&self, out: &mut Vec<u8>, ticket: &Ticket, frame: &[u8]) -> bool {
        let warnings = ticket.warnings();
        let warnings: Vec<&str> = warnings.iter().map(String::as_str).collect();
        let tracing_id = ticket.tracing_id();
        let extras = FrameExtras { tracing_id, warnings: &warnings, custom_payload: &[] };
        let frame = ResponseFrame::copied(out, self.version(), ticket.stream, &extras, frame);
        frame.is_some_and(|frame| self.finish(frame).is_ok())
    }

    /// Appends RESULT void.
    pub(crate) fn respond_void(&self, out: &mut Vec<u8>, ticket: &Ticket, warnings: &[&str]) {
        let write = |body: &mut Vec<u8>| {
            cql_wire::response::put_void(body);
            Ok(())
        };
        if let Err(failure) = self.respond(out, ticket, Opcode::Result, warnings, write) {
            self.respond_failure(out, ticket, &failure);
        }
    }

    /// Appends ERROR.
    pub(crate) fn respond_failure(&self, out: &mut Vec<u8>, ticket: &Ticket, failure: &Failure) {
        let node = self.node;
        let mut plain = Vec::new();
        // Errors are small: compressed frames are rebuilt from a plain one.
        let warnings = ticket.warnings();
        let mut warnings: Vec<&str> = warnings.iter().map(String::as_str).collect();
        if let Failure::Warned(_, warning) = failure {
            warnings.push(warning);
        }
        let extras = (ticket.tracing_id(), warnings.as_slice());
        let encoded = failure.encode(&mut plain, self.version(), ticket.stream, extras, node);
        if encoded.is_err() {
            plain.clear();
            let short = Failure::Plain(cql_wire::ErrorCode::ServerError, "internal error".into());
            // Nothing in it can be too long.
            let _ = short.encode(&mut plain, self.version(), ticket.stream, (None, &[]), node);
        }
        out.extend_from_slice(&plain);
    }

    /// Queues an event frame for the client.
    pub(crate) fn push_event(&self, frame: &[u8], bytes_max: usize) {
        let mut pushed = self.pushed.borrow_mut();
        if pushed.len().saturating_add(frame.len()) > bytes_max {
            self.overrun.set(true);
        } else {
            pushed.extend_from_slice(frame);
        }
        drop(pushed);
        self.wake();
    }

    /// Remembers the connection's task.
    pub(crate) fn set_waker(&self, waker: &Waker) {
        let mut kept = self.waker.borrow_mut();
        match kept.as_mut() {
            Some(kept) => kept.clone_from(waker),
            None => *kept = Some(waker.clone()),
        }
    }

    /// Makes the connection's task look again.
    pub(crate) fn wake(&self) {
        if let Some(waker) = self.waker.borrow().as_ref() {
            waker.wake_by_ref();
        }
    }
}
