//! State shared by a connection and its running requests.

use crate::error_frame::{self, ErrorFrame};
use crate::observed_requests::ObservedRequests;
use crate::running::RunningRequests;
use cql_wire::{
    Compression, EventKinds, FrameExtras, Negotiated, Opcode, ProtocolVersion, ResponseFrame,
    StartupOptions, WireError,
};
use query::{ClientState, Failure, Result, Ticket};
use rt::TlsInfo;
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::Waker;

/// Progress of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Before STARTUP.
    Established,
    /// STARTUP was answered with AUTHENTICATE.
    Authenticating,
    /// Statements are accepted.
    Ready,
}

/// State of one connection that its requests may read and change at any time.
pub(crate) struct Session {
    /// Number within the shard.
    pub(crate) id: u64,
    /// The client's state for execution.
    pub(crate) client: ClientState,
    /// This node, as error messages name it: its address for other nodes.
    node: SocketAddr,
    pub(crate) stage: Cell<Stage>,
    pub(crate) compression: Cell<Option<Compression>>,
    pub(crate) registered: Cell<EventKinds>,
    /// STARTUP's options as sent.
    pub(crate) options: RefCell<Vec<(String, String)>>,
    pub(crate) driver: RefCell<(Option<String>, Option<String>)>,
    pub(crate) requests: Cell<u64>,
    /// Its waiting requests.
    pub(crate) running: RunningRequests,
    /// Its requests that observers have not seen yet.
    pub(crate) observed: ObservedRequests,
    /// Event frames to be sent with the next answers.
    pub(crate) pushed: RefCell<Vec<u8>>,
    /// No request is accepted any more; the connection is closed once its answers are sent.
    pub(crate) must_close: Cell<bool>,
    /// The connection's task.
    pub(crate) waker: RefCell<Option<Waker>>,
    /// Scratch buffer of frame compression.
    scratch: RefCell<Vec<u8>>,
    /// A password is being verified.
    pub(crate) is_logging_in: Cell<bool>,
    /// The connection has ended: it must not be counted for a role any more.
    pub(crate) has_ended: Cell<bool>,
    /// Role that this connection counts for, where connections of a role are limited.
    pub(crate) counted_role: RefCell<Option<Rc<str>>>,
    /// Result of the TLS handshake; `None` in the clear.
    pub(crate) tls: Option<TlsInfo>,
}

/// The request that is answered, and the extras of its answer.
#[derive(Clone, Copy)]
pub(crate) struct Answering<'a> {
    pub(crate) stream: i16,
    pub(crate) ticket: &'a Ticket,
    /// Warnings to the client in addition to those of the ticket.
    pub(crate) warnings: &'a [&'a str],
}

impl<'a> Answering<'a> {
    /// An answer without additional warnings.
    #[inline]
    pub(crate) fn new(stream: i16, ticket: &'a Ticket) -> Answering<'a> {
        Answering { stream, ticket, warnings: &[] }
    }
}

impl Session {
    pub(crate) fn new(
        id: u64,
        peer: SocketAddr,
        node: SocketAddr,
        tls: Option<TlsInfo>,
    ) -> Session {
        let negotiated = Negotiated::plain(ProtocolVersion::CURRENT);
        Session { tls, ..Session::of(id, ClientState::new(peer, negotiated), node) }
    }

    /// Creates a session without a connection, for a statement that another node forwarded for its
    /// client.
    pub(crate) fn of_forwarded(client: ClientState, node: SocketAddr) -> Session {
        let session = Session::of(0, client, node);
        session.stage.set(Stage::Ready);
        session
    }

    fn of(id: u64, client: ClientState, node: SocketAddr) -> Session {
        Session {
            id,
            client,
            node,
            stage: Cell::new(Stage::Established),
            compression: Cell::new(None),
            registered: Cell::new(EventKinds::NONE),
            options: RefCell::default(),
            driver: RefCell::default(),
            requests: Cell::new(0),
            running: RunningRequests::default(),
            observed: ObservedRequests::default(),
            pushed: RefCell::default(),
            must_close: Cell::new(false),
            waker: RefCell::new(None),
            scratch: RefCell::default(),
            is_logging_in: Cell::new(false),
            has_ended: Cell::new(false),
            counted_role: RefCell::new(None),
            tls: None,
        }
    }

    pub(crate) fn version(&self) -> ProtocolVersion {
        self.client.negotiated.get().version
    }

    /// Takes a STARTUP back whose answer became an error: the connection ends with it.
    #[cold]
    pub(crate) fn refuse_startup(&self) {
        self.stage.set(Stage::Established);
        self.must_close.set(true);
    }

    /// Applies STARTUP's options.
    pub(crate) fn start(&self, options: &StartupOptions<'_>, version: ProtocolVersion) {
        self.client.negotiated.set(options.negotiated(version));
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
        about: &Answering<'_>,
        opcode: Opcode,
        write: impl FnOnce(&mut Vec<u8>) -> std::result::Result<(), WireError>,
    ) -> Result<()> {
        let &Answering { stream, ticket, warnings } = about;
        if ticket.is_warned() {
            return self.respond_warned(out, about, opcode, write);
        }
        let extras = FrameExtras { tracing_id: ticket.tracing_id(), warnings, custom_payload: &[] };
        let mut frame = ResponseFrame::begin(out, self.version(), stream, opcode, &extras)?;
        write(frame.body())?;
        self.finish(frame)?;
        Ok(())
    }

    /// Like [`Session::respond`], with the ticket's warnings first.
    #[cold]
    fn respond_warned(
        &self,
        out: &mut Vec<u8>,
        about: &Answering<'_>,
        opcode: Opcode,
        write: impl FnOnce(&mut Vec<u8>) -> std::result::Result<(), WireError>,
    ) -> Result<()> {
        let &Answering { stream, ticket, warnings } = about;
        let of_limits = ticket.warnings();
        let all: Vec<&str> =
            of_limits.iter().map(String::as_str).chain(warnings.iter().copied()).collect();
        let tracing_id = ticket.tracing_id();
        let extras = FrameExtras { tracing_id, warnings: &all, custom_payload: &[] };
        let mut frame = ResponseFrame::begin(out, self.version(), stream, opcode, &extras)?;
        write(frame.body())?;
        self.finish(frame)?;
        Ok(())
    }

    /// Appends RESULT void.
    pub(crate) fn respond_void(&self, out: &mut Vec<u8>, about: &Answering<'_>) {
        let write = |body: &mut Vec<u8>| {
            cql_wire::response::put_void(body);
            Ok(())
        };
        if let Err(failure) = self.respond(out, about, Opcode::Result, write) {
            self.respond_failure(out, about.stream, about.ticket, &failure);
        }
    }

    /// Appends ERROR.
    pub(crate) fn respond_failure(
        &self,
        out: &mut Vec<u8>,
        stream: i16,
        ticket: &Ticket,
        failure: &Failure,
    ) {
        if !self.observed.is_empty() {
            self.fail_observed(stream, failure);
        }
        let mut plain = Vec::new();
        // Errors are small: compressed frames are rebuilt from a plain one.
        let warnings = ticket.warnings();
        let mut warnings: Vec<&str> = warnings.iter().map(String::as_str).collect();
        if let Failure::Warned(_, warning) = failure {
            warnings.push(warning);
        }
        let (version, node) = (self.version(), self.node);
        let tracing_id = ticket.tracing_id();
        let about = ErrorFrame { version, stream, tracing_id, warnings: &warnings, node };
        if error_frame::encode(failure, &mut plain, &about).is_err() {
            plain.clear();
            let short = Failure::Plain(cql_wire::ErrorCode::ServerError, "internal error".into());
            let about = ErrorFrame { tracing_id: None, warnings: &[], ..about };
            // Nothing in it can be too long.
            let _ = error_frame::encode(&short, &mut plain, &about);
        }
        out.extend_from_slice(&plain);
    }

    /// Records the failure of a request for the observers.
    pub(crate) fn fail_observed(&self, stream: i16, failure: &Failure) {
        self.observed.fail(stream, failure, self.node);
    }

    /// Queues an event frame for the client.
    pub(crate) fn push_event(&self, frame: &[u8], bytes_max: usize) {
        let mut pushed = self.pushed.borrow_mut();
        if pushed.len().saturating_add(frame.len()) > bytes_max {
            // The client does not read its events.
            self.must_close.set(true);
        } else {
            pushed.extend_from_slice(frame);
        }
        drop(pushed);
        self.wake();
    }

    /// Stores the waker of the connection's task.
    pub(crate) fn set_waker(&self, waker: &Waker) {
        let mut kept = self.waker.borrow_mut();
        match kept.as_mut() {
            Some(kept) => kept.clone_from(waker),
            None => *kept = Some(waker.clone()),
        }
    }

    /// Wakes the connection's task.
    pub(crate) fn wake(&self) {
        if let Some(waker) = self.waker.borrow().as_ref() {
            waker.wake_by_ref();
        }
    }
}
