//! One blocking connection to a server.
//!
//! Owns: the handshake (version, password), frames out and in, the deadline of a request, decoded
//! answers. Never: sockets and TLS (see `transport`), retries, what an answer means to a person.
//!
//! An answer that comes after its deadline is thrown away by its stream number.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use codec::Reader;
use cql_wire::request::{RequestOptions, encode_request};
use cql_wire::{
    FrameDecoder, Negotiated, ProtocolVersion, Request, Response, ResponseBody, Side, StringMap,
    WireType, pack_segments,
};
use types::{CqlType, UdtType};

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::tls::Tls;
use crate::transport::Transport;

/// Largest frame that is taken from a server.
const FRAME_BYTES_MAX: usize = 512 << 20;
/// Bytes asked from the socket at once.
const READ_BYTES: usize = 256 << 10;

/// How much longer than to its deadline a read may wait.
const TIMEOUT_SLACK: Duration = Duration::from_millis(50);
/// A server that is well answers OPTIONS at once.
const OPTIONS_TIMEOUT: Duration = Duration::from_secs(2);

/// How to reach and enter a server.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// Host name or address.
    pub(crate) host: String,
    /// Port of the native protocol.
    pub(crate) port: u16,
    /// The one version to speak; otherwise the newest that the server takes.
    pub(crate) version: Option<ProtocolVersion>,
    /// Name and password, for servers that ask.
    pub(crate) user: Option<(String, String)>,
    /// CQL version to ask for.
    pub(crate) cql_version: Option<String>,
    /// For the socket and each step of the handshake.
    pub(crate) connect_timeout: Duration,
    /// Gives up waiting for answers when it is set.
    pub(crate) interrupt: Interrupt,
    /// `None`: in the clear.
    pub(crate) tls: Option<Arc<Tls>>,
}

impl Target {
    /// `host:port`, as errors name it.
    pub(crate) fn name(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

/// A column of a result or a bind marker.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Column {
    pub(crate) keyspace: String,
    pub(crate) table: String,
    pub(crate) name: String,
    pub(crate) kind: CqlType,
}

/// A page of rows: all values in one buffer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Page {
    pub(crate) columns: Arc<[Column]>,
    pub(crate) paging_state: Option<Vec<u8>>,
    bytes: Vec<u8>,
    cells: Vec<Option<(usize, usize)>>,
}

impl Page {
    /// Number of rows.
    pub(crate) fn len(&self) -> usize {
        self.cells.len().checked_div(self.columns.len()).unwrap_or(0)
    }

    /// Value of a column in a row; `None` for null and outside of the page.
    pub(crate) fn value(&self, row: usize, column: usize) -> Option<&[u8]> {
        let index = row.checked_mul(self.columns.len())?.checked_add(column)?;
        let (start, end) = (*self.cells.get(index)?)?;
        self.bytes.get(start..end)
    }

    /// Value of the column of this name.
    pub(crate) fn named(&self, row: usize, name: &str) -> Option<&[u8]> {
        let column = self.columns.iter().position(|column| column.name == name)?;
        self.value(row, column)
    }

    /// Text of the column of this name; empty when null.
    pub(crate) fn text(&self, row: usize, name: &str) -> String {
        String::from_utf8_lossy(self.named(row, name).unwrap_or_default()).into_owned()
    }
}

/// A prepared statement.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    pub(crate) id: Vec<u8>,
    pub(crate) result_id: Option<Vec<u8>>,
    pub(crate) markers: Vec<Column>,
}

/// What a server answered.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// Done, or a step of the handshake.
    Void,
    Rows(Page),
    SetKeyspace,
    SchemaChange,
    Prepared(Prepared),
    Authenticate,
    /// Options that the server offers, with their values.
    Supported(Vec<(String, Vec<String>)>),
}

/// An answer with what came beside it.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) answer: Answer,
    pub(crate) warnings: Vec<String>,
    /// Id of the trace, when one was asked for.
    pub(crate) trace: Option<[u8; 16]>,
}

/// A connection that is ready for requests.
pub(crate) struct Connection {
    stream: Transport,
    decoder: FrameDecoder,
    input: Vec<u8>,
    at: usize,
    output: Vec<u8>,
    negotiated: Negotiated,
    started: bool,
    next_stream: i16,
    name: String,
    interrupt: Interrupt,
    /// What the socket was told last of how long a read may wait.
    read_timeout: Duration,
}

impl Connection {
    /// Connects and enters.
    ///
    /// # Errors
    /// No address takes the connection, no version suits both sides, or the password is wrong.
    pub(crate) fn open(target: &Target) -> Result<Connection, Failure> {
        let versions: &[ProtocolVersion] =
            &[ProtocolVersion::V5, ProtocolVersion::V4, ProtocolVersion::V3];
        let mut last = None;
        for version in versions.iter().copied() {
            if target.version.is_some_and(|wanted| wanted != version) {
                continue;
            }
            match Connection::open_version(target, version) {
                Ok(connection) => return Ok(connection),
                Err(failure) if failure.is_other_version() && target.version.is_none() => {
                    last = Some(failure);
                }
                Err(failure) => return Err(failure),
            }
        }
        Err(last.unwrap_or_else(|| Failure::connection("no protocol version is left to try")))
    }

    fn open_version(target: &Target, version: ProtocolVersion) -> Result<Connection, Failure> {
        let stream = Transport::dial(target)?;
        let mut connection = Connection {
            stream,
            decoder: FrameDecoder::new(Side::Client, FRAME_BYTES_MAX),
            input: Vec::new(),
            at: 0,
            output: Vec::new(),
            negotiated: Negotiated::plain(version),
            started: false,
            next_stream: 0,
            name: target.name(),
            interrupt: target.interrupt.clone(),
            read_timeout: Duration::ZERO,
        };
        connection.enter(target)?;
        Ok(connection)
    }

    fn enter(&mut self, target: &Target) -> Result<(), Failure> {
        let timeout = target.connect_timeout;
        if let Some(wanted) = &target.cql_version {
            let reply = self.request(&Request::Options, false, timeout)?;
            if let Answer::Supported(options) = reply.answer {
                let known = options.into_iter().find(|(name, _)| name == "CQL_VERSION");
                let known = known.map(|(_, versions)| versions).unwrap_or_default();
                if !known.contains(wanted) {
                    return Err(Failure::cql_version(wanted, &known));
                }
            }
        }
        let mut options = Vec::new();
        StringMap::encode(
            &mut options,
            &[
                ("CQL_VERSION", target.cql_version.as_deref().unwrap_or("3.0.0")),
                ("DRIVER_NAME", "helenus cqlsh"),
                ("DRIVER_VERSION", env!("CARGO_PKG_VERSION")),
            ],
        )?;
        let options = StringMap::decode(&mut Reader::new(&options, "STARTUP"))?;
        let reply = self.request(&Request::Startup(options), false, timeout)?;
        if matches!(reply.answer, Answer::Authenticate) {
            let Some((name, password)) = &target.user else {
                return Err(Failure::authentication("Remote end requires authentication"));
            };
            let token = format!("\0{name}\0{password}");
            let request = Request::AuthResponse(Some(token.as_bytes()));
            self.request(&request, false, timeout)
                .map_err(|failure| failure.of_login(&self.name))?;
        }
        Ok(())
    }

    /// The version in use.
    pub(crate) fn version(&self) -> ProtocolVersion {
        self.negotiated.version
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// What the server refuses, a dead connection, or the deadline.
    pub(crate) fn request(
        &mut self,
        request: &Request<'_>,
        tracing: bool,
        timeout: Duration,
    ) -> Result<Reply, Failure> {
        self.next_stream = self.next_stream.checked_add(1).unwrap_or(0);
        let stream = self.next_stream;
        self.send(request, stream, tracing)?;
        self.flush()?;
        let deadline = Instant::now() + timeout;
        loop {
            let (of, reply) = self.receive(deadline)?;
            if of == stream {
                return reply;
            }
        }
    }

    /// Puts a request behind those that wait for [`Connection::flush`].
    ///
    /// # Errors
    /// The version cannot say it.
    pub(crate) fn send(
        &mut self,
        request: &Request<'_>,
        stream: i16,
        tracing: bool,
    ) -> Result<(), Failure> {
        let options = RequestOptions { stream, tracing, ..RequestOptions::default() };
        Ok(encode_request(request, self.negotiated, &options, &mut self.output)?)
    }

    /// Bytes that wait for [`Connection::flush`].
    pub(crate) fn waiting(&self) -> usize {
        self.output.len()
    }

    /// Writes what was sent.
    ///
    /// # Errors
    /// The connection is dead.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        let frames = std::mem::take(&mut self.output);
        let written = if self.started && self.version().has_segments() {
            let mut segments = Vec::with_capacity(frames.len() + 64);
            pack_segments(&frames, false, &mut segments);
            self.stream.write_all(&segments)
        } else {
            self.stream.write_all(&frames)
        };
        self.output = frames;
        self.output.clear();
        written.map_err(|error| Failure::shutdown(&self.name, &error.to_string()))
    }

    /// The next answer of any stream. The outer error is the connection's, the inner one the
    /// server's.
    ///
    /// # Errors
    /// The connection is dead, the answer cannot be read, or the deadline is over.
    pub(crate) fn receive(
        &mut self,
        deadline: Instant,
    ) -> Result<(i16, Result<Reply, Failure>), Failure> {
        loop {
            let mut rest = self.input.get(self.at..).unwrap_or_default();
            let frame = self
                .decoder
                .next(&mut rest)
                .map_err(|error| Failure::connection(error.to_string()))?;
            let Some(frame) = frame else {
                let left = rest.len();
                self.at = self.input.len().saturating_sub(left);
                self.fill(deadline)?;
                continue;
            };
            let stream = frame.header.stream;
            let response = Response::decode(&frame, self.negotiated)?;
            let reply = convert(response, frame.body.len());
            let left = rest.len();
            self.at = self.input.len().saturating_sub(left);
            if stream < 0 {
                continue;
            }
            // OPTIONS may come before STARTUP, and begins nothing.
            let begins = |reply: &Reply| !matches!(reply.answer, Answer::Supported(_));
            if !self.started && reply.as_ref().is_ok_and(begins) {
                self.started = true;
                self.decoder.start(self.negotiated.version, None)?;
            }
            return Ok((stream, reply));
        }
    }

    /// First value of an option that the server offers; `None` when it does not, or does not answer.
    pub(crate) fn supported(&mut self, option: &str) -> Option<String> {
        let reply = self.request(&Request::Options, false, OPTIONS_TIMEOUT).ok()?;
        let Answer::Supported(options) = reply.answer else { return None };
        let (_, values) = options.into_iter().find(|(name, _)| name == option)?;
        values.into_iter().next()
    }

    fn fill(&mut self, deadline: Instant) -> Result<(), Failure> {
        self.input.drain(..self.at);
        self.at = 0;
        if self.interrupt.is_set() {
            // Its answer is thrown away when it comes.
            return Err(Failure::interrupted());
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Failure::timed_out(&self.name));
        }
        let shutdown = |error: std::io::Error| Failure::shutdown(&self.name, &error.to_string());
        // A read may end that much behind its deadline; in exchange the next ones need no call.
        if self.read_timeout < left || self.read_timeout - left > TIMEOUT_SLACK {
            self.stream.set_read_timeout(left).map_err(shutdown)?;
            self.read_timeout = left;
        }
        let start = self.input.len();
        self.input.resize(start + READ_BYTES, 0);
        let read = self.stream.read(self.input.get_mut(start..).unwrap_or_default());
        self.input.truncate(start + read.as_ref().copied().unwrap_or(0));
        match read {
            Ok(0) => Err(Failure::shutdown(&self.name, "Connection closed by the server")),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                Err(Failure::timed_out(&self.name))
            }
            Err(error) => Err(Failure::shutdown(&self.name, &error.to_string())),
        }
    }
}

/// An answer of its own; `length` is that of its body in bytes.
fn convert(response: Response<'_>, length: usize) -> Result<Reply, Failure> {
    let answer = match response.body {
        ResponseBody::Error { error, message } => return Err(Failure::server(&error, message)),
        ResponseBody::Rows(rows) => {
            let mut page = Page {
                columns: columns(rows.metadata.columns.as_deref().unwrap_or_default()),
                paging_state: rows.metadata.paging_state.map(<[u8]>::to_vec),
                bytes: Vec::with_capacity(length),
                cells: Vec::new(),
            };
            for value in rows.values() {
                page.cells.push(value.map(|value| {
                    let start = page.bytes.len();
                    page.bytes.extend_from_slice(value);
                    (start, page.bytes.len())
                }));
            }
            Answer::Rows(page)
        }
        ResponseBody::SetKeyspace(_) => Answer::SetKeyspace,
        ResponseBody::SchemaChange(_) => Answer::SchemaChange,
        ResponseBody::Prepared(prepared) => Answer::Prepared(Prepared {
            id: prepared.id.to_vec(),
            result_id: prepared.result_metadata_id.map(<[u8]>::to_vec),
            markers: columns(&prepared.metadata.columns).to_vec(),
        }),
        ResponseBody::Authenticate(_) => Answer::Authenticate,
        ResponseBody::AuthChallenge(_) => {
            return Err(Failure::authentication("the server wants more than name and password"));
        }
        ResponseBody::Supported(options) => {
            let own = |text: &&str| (*text).to_owned();
            let options = options.iter();
            let options =
                options.map(|(name, values)| (own(name), values.iter().map(own).collect()));
            Answer::Supported(options.collect())
        }
        ResponseBody::Void
        | ResponseBody::Ready
        | ResponseBody::Event(_)
        | ResponseBody::AuthSuccess(_) => Answer::Void,
    };
    Ok(Reply {
        answer,
        warnings: response.warnings.iter().map(|text| (*text).to_owned()).collect(),
        trace: response.tracing_id.map(|id| *id.as_bytes()),
    })
}

fn columns(specs: &[cql_wire::ColumnSpec<'_>]) -> Arc<[Column]> {
    specs
        .iter()
        .map(|spec| Column {
            keyspace: spec.keyspace.to_owned(),
            table: spec.table.to_owned(),
            name: spec.name.to_owned(),
            kind: cql_type(&spec.kind),
        })
        .collect()
}

/// The type that a wire description stands for.
pub(crate) fn cql_type(kind: &WireType) -> CqlType {
    match kind {
        WireType::Custom(class) => types::parse_marshal(class)
            .map_or_else(|_| CqlType::custom(types::CustomType::unknown(class)), |(kind, _)| kind),
        WireType::Ascii => CqlType::Ascii,
        WireType::Bigint => CqlType::Bigint,
        WireType::Blob => CqlType::Blob,
        WireType::Boolean => CqlType::Boolean,
        WireType::Counter => CqlType::Counter,
        WireType::Decimal => CqlType::Decimal,
        WireType::Double => CqlType::Double,
        WireType::Float => CqlType::Float,
        WireType::Int => CqlType::Int,
        WireType::Timestamp => CqlType::Timestamp,
        WireType::Uuid => CqlType::Uuid,
        WireType::Varchar => CqlType::Text,
        WireType::Varint => CqlType::Varint,
        WireType::Timeuuid => CqlType::Timeuuid,
        WireType::Inet => CqlType::Inet,
        WireType::Date => CqlType::Date,
        WireType::Time => CqlType::Time,
        WireType::Smallint => CqlType::Smallint,
        WireType::Tinyint => CqlType::Tinyint,
        WireType::Duration => CqlType::Duration,
        WireType::List(element) => CqlType::list(cql_type(element), false),
        WireType::Set(element) => CqlType::set(cql_type(element), false),
        WireType::Map(key, value) => CqlType::map(cql_type(key), cql_type(value), false),
        WireType::Udt { keyspace, name, fields } => CqlType::Udt(Arc::new(UdtType {
            keyspace: Arc::from(keyspace.as_str()),
            name: Arc::from(name.as_str()),
            fields: fields.iter().map(|(name, kind)| (name.clone(), cql_type(kind))).collect(),
            frozen: false,
        })),
        WireType::Tuple(fields) => CqlType::tuple(fields.iter().map(cql_type)),
    }
}
