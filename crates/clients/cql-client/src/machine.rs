//! One connection as a machine: requests in, bytes out; bytes in, answers out.

use cql_wire::request::{RequestOptions, encode_request, encode_request_body};
use cql_wire::{
    Frame, FrameDecoder, FrameError, Negotiated, Opcode, ProtocolVersion, Request, Response, Side,
    WireError, pack_segments,
};

use crate::login::{Login, LoginError, LoginStep};

/// Memory of sent bytes above which a buffer is released.
const KEEP_BYTES_MAX: usize = 1 << 20;

/// Client side of one connection.
///
/// ```text
/// machine.send(…)?; write machine.unsent(); machine.sent();
/// while machine.next_response()? is none { read into machine.input() }
/// ```
#[derive(Debug)]
pub struct Machine {
    negotiated: Negotiated,
    decoder: FrameDecoder,
    /// Received bytes; those before `used` are consumed.
    input: Vec<u8>,
    used: usize,
    /// Frames to be sent, as they are before segments.
    frames: Vec<u8>,
    /// Segments to be sent.
    segments: Vec<u8>,
    phase: Phase,
    login: Option<(Login, LoginStep)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing was agreed on.
    Fresh,
    /// READY or AUTHENTICATE was handed out; what follows is of the agreed version.
    Agreed,
    Started,
}

/// A message that cannot be read: the connection cannot be used any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageFault {
    /// The bytes are no frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The frame's body is no message.
    #[error(transparent)]
    Body(#[from] WireError),
}

/// One answer or event, borrowed from the machine.
#[derive(Clone, Debug)]
pub struct Received<'a> {
    /// Stream of the request; negative for events.
    pub stream: i16,
    /// Bytes of the body.
    pub bytes: usize,
    /// Message of the server.
    pub response: Response<'a>,
}

impl Machine {
    /// For a new connection that speaks `version`; longer frames are refused.
    pub fn new(version: ProtocolVersion, frame_bytes_max: usize) -> Machine {
        Machine {
            negotiated: Negotiated::plain(version),
            decoder: FrameDecoder::new(Side::Client, frame_bytes_max),
            input: Vec::new(),
            used: 0,
            frames: Vec::new(),
            segments: Vec::new(),
            phase: Phase::Fresh,
            login: None,
        }
    }

    /// The version it speaks.
    pub fn version(&self) -> ProtocolVersion {
        self.negotiated.version
    }

    /// Enqueues a request.
    ///
    /// # Errors
    /// The version cannot express it; nothing is enqueued then.
    #[inline]
    pub fn send(
        &mut self,
        request: &Request<'_>,
        options: &RequestOptions<'_>,
    ) -> Result<(), WireError> {
        encode_request(request, self.negotiated, options, &mut self.frames)
    }

    /// Enqueues a request whose body the caller encoded.
    ///
    /// # Errors
    /// `TooLong`; nothing is enqueued then.
    pub fn send_body(&mut self, opcode: Opcode, stream: i16, body: &[u8]) -> Result<(), WireError> {
        encode_request_body(self.negotiated.version, opcode, stream, body, &mut self.frames)
    }

    /// Bytes of requests that are not written yet, before segments.
    pub fn unsent_bytes(&self) -> usize {
        self.frames.len().saturating_add(self.segments.len())
    }

    /// The bytes to be written now. They stay until [`Machine::sent`].
    pub fn unsent(&mut self) -> &[u8] {
        self.begin();
        if self.phase != Phase::Started || !self.version().has_segments() {
            return &self.frames;
        }
        pack_segments(&self.frames, false, &mut self.segments);
        clear(&mut self.frames);
        &self.segments
    }

    /// All of [`Machine::unsent`] was written, or never will be.
    pub fn sent(&mut self) {
        clear(&mut self.frames);
        clear(&mut self.segments);
    }

    /// Returns the buffer to append received bytes to.
    pub fn input(&mut self) -> &mut Vec<u8> {
        if self.used == self.input.len() {
            self.input.clear();
        } else {
            self.input.drain(..self.used);
        }
        self.used = 0;
        &mut self.input
    }

    /// The next whole message; `None` when more bytes are needed.
    ///
    /// # Errors
    /// The bytes are no frame of this version.
    #[inline]
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, FrameError> {
        self.begin();
        let mut rest = self.input.get(self.used..).unwrap_or_default();
        let frame = self.decoder.next(&mut rest);
        self.used = self.input.len().saturating_sub(rest.len());
        if self.phase == Phase::Fresh
            && let Ok(Some(frame)) = &frame
            && matches!(frame.header.opcode, Opcode::Ready | Opcode::Authenticate)
        {
            self.phase = Phase::Agreed;
        }
        frame
    }

    /// The next answer or event; `None` when more bytes are needed.
    ///
    /// # Errors
    /// The received bytes are not a message of this version.
    #[inline]
    pub fn next_response(&mut self) -> Result<Option<Received<'_>>, MessageFault> {
        let negotiated = self.negotiated;
        let Some(frame) = self.next_frame()? else { return Ok(None) };
        let response = Response::decode(&frame, negotiated)?;
        Ok(Some(Received { stream: frame.header.stream, bytes: frame.body.len(), response }))
    }

    /// Enqueues STARTUP. The driver writes, then calls [`Machine::poll_login`].
    ///
    /// # Errors
    /// An option is too long.
    pub fn begin_login(&mut self, login: Login) -> Result<(), WireError> {
        login.send_startup(self)?;
        self.login = Some((login, LoginStep::Startup));
        Ok(())
    }

    /// Returns true if the login is complete. If not, the driver writes the unsent bytes, reads,
    /// and calls it again.
    ///
    /// # Errors
    /// The server refuses, wants credentials that are missing, or answers with something else.
    pub fn poll_login(&mut self) -> Result<bool, LoginError> {
        while let Some((login, step)) = self.login.take() {
            let Some(received) = self.next_response()? else {
                self.login = Some((login, step));
                return Ok(false);
            };
            if received.stream < 0 {
                self.login = Some((login, step));
                continue;
            }
            if let Some(token) = login.step(step, &received.response.body)? {
                let request = Request::AuthResponse(Some(&token));
                self.send(&request, &RequestOptions::default()).map_err(MessageFault::from)?;
                self.login = Some((login, LoginStep::Password));
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Switches to the agreed version once its first message was handed out: that message is still
    /// outside of segments.
    #[inline]
    fn begin(&mut self) {
        if self.phase == Phase::Agreed {
            self.phase = Phase::Started;
            let agreed = self.decoder.start(self.negotiated.version, None);
            stdx::invariant!(agreed.is_ok(), "INV-cql-client-1: no compression fits {agreed:?}");
        }
    }
}

fn clear(buffer: &mut Vec<u8>) {
    if buffer.capacity() > KEEP_BYTES_MAX {
        *buffer = Vec::new();
    }
    buffer.clear();
}
