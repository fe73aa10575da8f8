//! The CQL machine over a blocking stream.
//!
//! An answer that comes after its deadline is thrown away by its stream number.

use std::io::{Error, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cql_client::{Login, LoginError, Machine, MessageFault, Received};
use cql_wire::request::RequestOptions;
use cql_wire::{Frame, FrameError, Opcode, ProtocolVersion, Request, WireError};

use crate::socket::Transport;

/// Bytes asked from the stream at once.
const READ_BYTES: usize = 256 << 10;
/// How much longer than to its deadline a read may wait; in exchange the next ones need no call to
/// set the wait.
const SLACK: Duration = Duration::from_millis(50);

/// Error of a request without an answer.
#[derive(Debug, thiserror::Error)]
pub enum CqlError {
    /// The server has closed the connection.
    #[error("the server closed the connection")]
    Closed,
    /// The connection broke.
    #[error(transparent)]
    Io(#[from] Error),
    /// The deadline is over.
    #[error("no answer in time")]
    TimedOut,
    /// The flag of [`CqlConnection::set_cancel`] was set while waiting.
    #[error("cancelled")]
    Cancelled,
    /// The received bytes are not an answer.
    #[error(transparent)]
    Message(#[from] MessageFault),
    /// The version cannot express the request.
    #[error(transparent)]
    Request(#[from] WireError),
    /// The login failed.
    #[error(transparent)]
    Login(#[from] LoginError),
}

impl From<FrameError> for CqlError {
    fn from(error: FrameError) -> CqlError {
        CqlError::Message(error.into())
    }
}

/// Limit of the wait of a read for bytes.
#[derive(Clone, Copy, Debug)]
pub enum ReadWait {
    /// The timeout that the owner has set.
    Stream,
    /// To the deadline, and a little longer.
    Until(Instant),
    /// Exactly that long, not less than a microsecond.
    For(Duration),
}

impl ReadWait {
    /// That long from now; `None`: as the stream was set.
    pub fn within(timeout: Option<Duration>) -> ReadWait {
        timeout.map_or(ReadWait::Stream, |timeout| ReadWait::Until(Instant::now() + timeout))
    }
}

/// One connection.
pub struct CqlConnection<T> {
    stream: T,
    machine: Machine,
    /// Buffer of reads, reused so that it is cleared only once.
    buffer: Box<[u8]>,
    /// Read timeout that is set on the socket now.
    read_wait: Duration,
    next_stream: i16,
    cancel: Option<Arc<AtomicBool>>,
}

impl<T: Transport> CqlConnection<T> {
    /// Over a fresh stream; nothing has been sent yet.
    pub fn new(stream: T, version: ProtocolVersion, frame_bytes_max: usize) -> CqlConnection<T> {
        CqlConnection {
            stream,
            machine: Machine::new(version, frame_bytes_max),
            buffer: vec![0; READ_BYTES].into_boxed_slice(),
            read_wait: Duration::ZERO,
            next_stream: 0,
            cancel: None,
        }
    }

    /// Ends waits with `Cancelled` when the flag is set.
    pub fn set_cancel(&mut self, cancel: Arc<AtomicBool>) {
        self.cancel = Some(cancel);
    }

    /// The version in use.
    pub fn version(&self) -> ProtocolVersion {
        self.machine.version()
    }

    /// Enters: STARTUP, and the password where one is asked for.
    ///
    /// # Errors
    /// See [`CqlError`]; `timeout` is for each answer.
    pub fn login(&mut self, login: Login, timeout: Option<Duration>) -> Result<(), CqlError> {
        self.machine.begin_login(login)?;
        self.flush()?;
        let mut wait = ReadWait::within(timeout);
        while !self.machine.poll_login()? {
            if self.waiting() > 0 {
                self.flush()?;
                wait = ReadWait::within(timeout);
            }
            self.fill(wait)?;
        }
        Ok(())
    }

    /// Sends a request, waits for its answer, and returns the result of `convert`.
    ///
    /// # Errors
    /// See [`CqlError`].
    pub fn request<A>(
        &mut self,
        request: &Request<'_>,
        options: &RequestOptions<'_>,
        timeout: Option<Duration>,
        convert: impl FnOnce(Received<'_>) -> A,
    ) -> Result<A, CqlError> {
        let stream = self.take_stream();
        self.send(request, &RequestOptions { stream, ..*options })?;
        self.flush()?;
        let wait = ReadWait::within(timeout);
        loop {
            if let Some(received) = self.machine.next_response()? {
                if received.stream == stream {
                    return Ok(convert(received));
                }
                continue;
            }
            self.fill(wait)?;
        }
    }

    /// Sends a message whose body the caller encoded, and returns the result of `convert` for the
    /// frame that answers it.
    ///
    /// # Errors
    /// See [`CqlError`].
    pub fn exchange<A>(
        &mut self,
        opcode: Opcode,
        body: &[u8],
        timeout: Option<Duration>,
        convert: impl FnOnce(Frame<'_>) -> A,
    ) -> Result<A, CqlError> {
        let stream = self.take_stream();
        self.machine.send_body(opcode, stream, body)?;
        self.flush()?;
        let wait = ReadWait::within(timeout);
        loop {
            if let Some(frame) = self.machine.next_frame()? {
                if frame.header.stream == stream {
                    return Ok(convert(frame));
                }
                continue;
            }
            self.fill(wait)?;
        }
    }

    /// Queues a request for [`CqlConnection::flush`].
    ///
    /// # Errors
    /// The version cannot express it.
    #[inline]
    pub fn send(
        &mut self,
        request: &Request<'_>,
        options: &RequestOptions<'_>,
    ) -> Result<(), WireError> {
        self.machine.send(request, options)
    }

    /// Bytes that wait for [`CqlConnection::flush`].
    pub fn waiting(&self) -> usize {
        self.machine.unsent_bytes()
    }

    /// Writes the queued requests.
    ///
    /// # Errors
    /// The connection broke.
    pub fn flush(&mut self) -> Result<(), Error> {
        let written = self.stream.write_all(self.machine.unsent());
        self.machine.sent();
        written.and_then(|()| self.stream.flush())
    }

    /// The next answer of any stream, as `convert` makes it; events are ignored.
    ///
    /// # Errors
    /// See [`CqlError`].
    pub fn receive<A>(
        &mut self,
        wait: ReadWait,
        convert: impl FnOnce(Received<'_>) -> A,
    ) -> Result<A, CqlError> {
        loop {
            if let Some(received) = self.machine.next_response()? {
                if received.stream >= 0 {
                    return Ok(convert(received));
                }
                continue;
            }
            self.fill(wait)?;
        }
    }

    /// Hands over every answer that has arrived, but no events; does not wait.
    ///
    /// # Errors
    /// The received bytes are not an answer.
    #[inline]
    pub fn drain(&mut self, mut each: impl FnMut(Received<'_>)) -> Result<(), MessageFault> {
        while let Some(received) = self.machine.next_response()? {
            if received.stream >= 0 {
                each(received);
            }
        }
        Ok(())
    }

    /// Reads once.
    ///
    /// # Errors
    /// `TimedOut`, `Cancelled`, `Closed`, `Io`. A signal ends the wait without an error.
    pub fn fill(&mut self, wait: ReadWait) -> Result<(), CqlError> {
        if self.cancel.as_ref().is_some_and(|cancel| cancel.load(Ordering::Relaxed)) {
            // The answer is thrown away when it comes.
            return Err(CqlError::Cancelled);
        }
        self.set_read_wait(wait)?;
        match self.stream.read(&mut self.buffer) {
            Ok(0) => Err(CqlError::Closed),
            Ok(read) => {
                let read = self.buffer.get(..read).unwrap_or_default();
                self.machine.input().extend_from_slice(read);
                Ok(())
            }
            Err(error) => match error.kind() {
                ErrorKind::Interrupted => Ok(()),
                ErrorKind::WouldBlock | ErrorKind::TimedOut
                    if !matches!(wait, ReadWait::Stream) =>
                {
                    Err(CqlError::TimedOut)
                }
                _ => Err(CqlError::Io(error)),
            },
        }
    }

    fn set_read_wait(&mut self, wait: ReadWait) -> Result<(), CqlError> {
        let (left, slack) = match wait {
            ReadWait::Stream => return Ok(()),
            ReadWait::Until(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(CqlError::TimedOut);
                }
                (left, SLACK)
            }
            // Zero would mean for ever.
            ReadWait::For(wait) => (wait.max(Duration::from_micros(1)), Duration::ZERO),
        };
        if self.read_wait < left || self.read_wait - left > slack {
            self.stream.set_read_wait(left)?;
            self.read_wait = left;
        }
        Ok(())
    }

    fn take_stream(&mut self) -> i16 {
        self.next_stream = self.next_stream.checked_add(1).unwrap_or(0);
        self.next_stream
    }
}
