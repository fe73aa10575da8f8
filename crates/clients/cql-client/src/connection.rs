//! The machine over a connection of `rt`: of the real machine or of a simulated one.
//!
//! The waiting form of `blocking_client::cql`: both only carry bytes.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use cql_wire::event::EventKinds;
use cql_wire::request::RequestOptions;
use cql_wire::{ProtocolVersion, QueryParameters, Request, ResponseBody, WireError};
use rt::{Instant, IoError, Rt, Stream};

use crate::answer::{Answer, Page, Prepared, Reply, ServerError};
use crate::event::ServerEvent;
use crate::login::{Login, LoginError};
use crate::machine::{Machine, MessageFault};

/// Bytes asked from the connection at once.
const READ_BYTES: usize = 1 << 16;
/// Events that wait to be taken; the oldest goes for one more.
const EVENTS_MAX: usize = 1024;

/// Options of a connection and its login.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// The version to speak.
    pub version: ProtocolVersion,
    /// Messages of the login.
    pub login: Login,
    /// Longest frame that is taken.
    pub frame_bytes_max: usize,
    /// Timeout of the connection attempt.
    pub connect_timeout: Duration,
    /// Timeout of each answer.
    pub answer_timeout: Duration,
}

impl Default for ConnectOptions {
    fn default() -> ConnectOptions {
        ConnectOptions {
            version: ProtocolVersion::V5,
            login: Login::plain(),
            frame_bytes_max: 256 << 20,
            connect_timeout: Duration::from_secs(5),
            answer_timeout: Duration::from_secs(12),
        }
    }
}

/// Reason why there is no answer. After all but `Server` and `Request` the connection is unusable,
/// and it is unknown if the request was executed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The connection attempt timed out.
    #[error("no connection within {0:?}")]
    ConnectTimeout(Duration),
    /// The answer did not arrive in time; it may still arrive.
    #[error("no answer within {0:?}")]
    AnswerTimeout(Duration),
    /// The connection was not made, or broke.
    #[error(transparent)]
    Io(#[from] IoError),
    /// The server ended the connection.
    #[error("end of stream")]
    Ended,
    /// The login failed.
    #[error(transparent)]
    Login(#[from] LoginError),
    /// The received bytes are not an answer.
    #[error(transparent)]
    Message(#[from] MessageFault),
    /// The version cannot express the request; nothing was sent.
    #[error(transparent)]
    Request(#[from] WireError),
    /// The server refused the request.
    #[error("{0}")]
    Server(ServerError),
    /// The answer is of a kind that the request does not have.
    #[error("strange answer to {0}")]
    Strange(&'static str),
}

/// Statement to execute.
#[derive(Clone, Copy, Debug)]
pub enum Query<'a> {
    /// A text.
    Text(&'a str),
    /// A prepared statement.
    Prepared(&'a Prepared),
}

/// An answer or the server's refusal, with the stream that it came on.
type Answered = (i16, Result<Reply, ServerError>);

/// Pace of reading answers.
#[derive(Clone, Copy, Debug)]
pub struct ReadPace {
    /// Bytes of one read at most.
    pub bytes: usize,
    /// Before each read.
    pub pause: Duration,
}

/// A connection that is ready for requests.
pub struct Connection {
    rt: Rt,
    stream: Stream,
    machine: Machine,
    answer_timeout: Duration,
    pace: ReadPace,
    next_stream: i16,
    events: VecDeque<ServerEvent>,
}

impl Connection {
    /// Connects and enters.
    ///
    /// # Errors
    /// Nobody answers in time, or the login fails.
    pub async fn connect(
        rt: &Rt,
        address: SocketAddr,
        options: ConnectOptions,
    ) -> Result<Connection, ClientError> {
        let deadline = rt.now() + options.connect_timeout;
        let conn = rt.timeout(deadline, rt.connect(address)).await;
        let conn = conn.map_err(|_| ClientError::ConnectTimeout(options.connect_timeout))??;
        let mut connection = Connection {
            rt: rt.clone(),
            stream: Stream::plain(conn),
            machine: Machine::new(options.version, options.frame_bytes_max),
            answer_timeout: options.answer_timeout,
            pace: ReadPace { bytes: READ_BYTES, pause: Duration::ZERO },
            next_stream: 0,
            events: VecDeque::new(),
        };
        connection.machine.begin_login(options.login)?;
        let deadline = rt.now() + options.answer_timeout;
        match rt.timeout(deadline, connection.enter()).await {
            Ok(entered) => entered.map(|()| connection),
            Err(_) => Err(ClientError::AnswerTimeout(options.answer_timeout)),
        }
    }

    async fn enter(&mut self) -> Result<(), ClientError> {
        loop {
            self.flush().await?;
            if self.machine.poll_login()? {
                return Ok(());
            }
            self.flush().await?;
            self.fill().await?;
        }
    }

    /// Reads answers at this pace from now on: a client whose machine or network is slow.
    pub fn set_pace(&mut self, pace: ReadPace) {
        self.pace = pace;
    }

    /// Sets the timeout of each further answer.
    pub fn set_answer_timeout(&mut self, timeout: Duration) {
        self.answer_timeout = timeout;
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn request(&mut self, request: &Request<'_>) -> Result<Reply, ClientError> {
        self.request_with(request, &RequestOptions::default()).await
    }

    /// The same with options of the request; the stream is chosen here.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn request_with(
        &mut self,
        request: &Request<'_>,
        options: &RequestOptions<'_>,
    ) -> Result<Reply, ClientError> {
        self.next_stream = self.next_stream.checked_add(1).unwrap_or(0);
        let stream = self.next_stream;
        self.machine.send(request, &RequestOptions { stream, ..*options })?;
        let (rt, timeout) = (self.rt.clone(), self.answer_timeout);
        let deadline = rt.now() + timeout;
        // A server that reads nothing is as silent as one that answers nothing.
        match rt.timeout(deadline, self.flush()).await {
            Ok(written) => written?,
            Err(_) => return Err(ClientError::AnswerTimeout(timeout)),
        }
        loop {
            let (of, reply) = self.receive(deadline).await?;
            if of == stream {
                return reply.map_err(ClientError::Server);
            }
        }
    }

    /// Enqueues a request of the caller's own stream, to be written by [`Connection::flush`] and
    /// answered by [`Connection::receive`].
    ///
    /// # Errors
    /// The version cannot express it.
    pub fn send(&mut self, request: &Request<'_>, stream: i16) -> Result<(), WireError> {
        self.machine.send(request, &RequestOptions { stream, ..RequestOptions::default() })
    }

    /// Writes the queued requests.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn flush(&mut self) -> Result<(), ClientError> {
        if self.machine.unsent_bytes() == 0 {
            return Ok(());
        }
        let written = self.stream.write_all(self.machine.unsent()).await;
        self.machine.sent();
        Ok(written?)
    }

    /// The next answer of any stream; events that arrive before it are stored for
    /// [`Connection::next_event`].
    ///
    /// # Errors
    /// The outer error is the connection's, the inner one the server's.
    pub async fn receive(&mut self, deadline: Instant) -> Result<Answered, ClientError> {
        loop {
            if let Some(found) = self.take_answer()? {
                return Ok(found);
            }
            self.fill_until(deadline).await?;
        }
    }

    /// Asks for events of these kinds.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn register(&mut self, kinds: EventKinds) -> Result<(), ClientError> {
        self.request(&Request::Register(kinds)).await.map(|_| ())
    }

    /// The next event. No request may be in flight.
    ///
    /// # Errors
    /// The deadline is over, or the connection broke.
    pub async fn next_event(&mut self, deadline: Instant) -> Result<ServerEvent, ClientError> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(event);
            }
            // An answer that comes now is a late one.
            if self.take_answer()?.is_none() && self.events.is_empty() {
                self.fill_until(deadline).await?;
            }
        }
    }

    /// Prepares a statement.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn prepare(&mut self, query: &str) -> Result<Prepared, ClientError> {
        match self.request(&Request::Prepare { query, keyspace: None }).await?.answer {
            Answer::Prepared(prepared) => Ok(prepared),
            _ => Err(ClientError::Strange("PREPARE")),
        }
    }

    /// Executes a text or a prepared statement.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn execute(
        &mut self,
        query: Query<'_>,
        parameters: QueryParameters<'_>,
    ) -> Result<Reply, ClientError> {
        match query {
            Query::Text(query) => self.request(&Request::Query { query, parameters }).await,
            Query::Prepared(prepared) => {
                let result_metadata_id = prepared.result_id.as_deref();
                let request = Request::Execute { id: &prepared.id, result_metadata_id, parameters };
                self.request(&request).await
            }
        }
    }

    /// Executes to the last page, and calls `each` with every one.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn pages(
        &mut self,
        query: Query<'_>,
        parameters: QueryParameters<'_>,
        mut each: impl FnMut(&Page),
    ) -> Result<(), ClientError> {
        let mut state: Option<Vec<u8>> = None;
        loop {
            let from = state.as_deref().or(parameters.paging_state);
            let parameters = QueryParameters { paging_state: from, ..parameters };
            match self.execute(query, parameters).await?.answer {
                Answer::Rows(page) => {
                    each(&page);
                    state = page.paging_state;
                }
                _ => return Err(ClientError::Strange("a statement with pages")),
            }
            if state.is_none() {
                return Ok(());
            }
        }
    }

    /// The next whole answer; events before it are kept.
    fn take_answer(&mut self) -> Result<Option<Answered>, ClientError> {
        while let Some(received) = self.machine.next_response()? {
            let stream = received.stream;
            if stream >= 0 {
                let reply = Reply::of(received);
                let reply = reply.map_err(|no| ServerError::of(&no.error, no.message));
                return Ok(Some((stream, reply)));
            }
            if let ResponseBody::Event(event) = &received.response.body {
                if self.events.len() == EVENTS_MAX {
                    self.events.pop_front();
                }
                self.events.push_back(ServerEvent::of(event));
            }
        }
        Ok(None)
    }

    async fn fill_until(&mut self, deadline: Instant) -> Result<(), ClientError> {
        let (rt, timeout) = (self.rt.clone(), self.answer_timeout);
        match rt.timeout(deadline, self.fill()).await {
            Ok(filled) => filled,
            Err(_) => Err(ClientError::AnswerTimeout(timeout)),
        }
    }

    async fn fill(&mut self) -> Result<(), ClientError> {
        if !self.pace.pause.is_zero() {
            self.rt.sleep(self.pace.pause).await;
        }
        match self.stream.read(self.machine.input(), self.pace.bytes).await? {
            0 => Err(ClientError::Ended),
            _ => Ok(()),
        }
    }
}
