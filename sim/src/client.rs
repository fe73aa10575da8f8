//! A small CQL client over simulated sockets: one request at a time, protocol v4.

use std::net::SocketAddr;
use std::time::Duration;

use cql_wire::query::{BoundValue, QueryParameters, ValueList};
use cql_wire::request::{Request, RequestOptions, encode_request};
use cql_wire::response::{Response, ResponseBody};
use cql_wire::{Consistency, FrameDecoder, Negotiated, ProtocolVersion, Side};
use rt::{Conn, Rt};

/// Largest answer the client takes.
const FRAME_BYTES_MAX: usize = 64 << 20;
/// How long a connection may take to be there, as drivers wait.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an answer may take, as drivers wait: a machine without power never answers.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(12);

/// An answer, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Void, schema change, keyspace set.
    Done,
    /// Rows of nullable values, and the paging state of the next page.
    Rows(Vec<Vec<Option<Vec<u8>>>>, Option<Vec<u8>>),
    /// Id of a prepared statement.
    Prepared(Vec<u8>),
    /// An error: code and message.
    Error(i32, String),
}

/// Why there is no answer: the outcome of the request is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost(pub String);

/// One connection.
pub struct Client {
    rt: Rt,
    consistency: Consistency,
    serial_consistency: Option<Consistency>,
    answer_timeout: Duration,
    conn: Conn,
    decoder: FrameDecoder,
    input: Vec<u8>,
    prepared: std::collections::BTreeMap<String, Vec<u8>>,
}

impl Client {
    /// Connects and says STARTUP.
    ///
    /// # Errors
    /// `Lost` when nobody answers.
    pub async fn connect(rt: &Rt, address: SocketAddr) -> Result<Client, Lost> {
        let deadline = rt.now() + CONNECT_TIMEOUT;
        let Ok(conn) = rt.timeout(deadline, rt.connect(address)).await else {
            return Err(Lost(format!("no connection within {CONNECT_TIMEOUT:?}")));
        };
        let conn = conn.map_err(|e| Lost(e.to_string()))?;
        let mut client = Client {
            rt: rt.clone(),
            consistency: Consistency::One,
            serial_consistency: None,
            answer_timeout: ANSWER_TIMEOUT,
            conn,
            decoder: FrameDecoder::new(Side::Client, FRAME_BYTES_MAX),
            input: Vec::new(),
            prepared: std::collections::BTreeMap::new(),
        };
        let mut body = Vec::new();
        let negotiated = Negotiated::plain(ProtocolVersion::V4);
        cql_wire::StringMap::encode(&mut body, &[("CQL_VERSION", "3.0.0")])
            .map_err(|e| Lost(e.to_string()))?;
        let mut reader = codec::Reader::new(&body, "startup");
        let options = cql_wire::StringMap::decode(&mut reader).map_err(|e| Lost(e.to_string()))?;
        let mut out = Vec::new();
        let request = Request::Startup(options);
        encode_request(&request, negotiated, &RequestOptions::default(), &mut out)
            .map_err(|e| Lost(e.to_string()))?;
        match client.exchange(out).await? {
            Answer::Done => Ok(client),
            other => Err(Lost(format!("STARTUP answered by {other:?}"))),
        }
    }

    /// Waits.
    pub async fn pause(&self, duration: Duration) {
        self.rt.sleep(duration).await;
    }

    /// Asks at that level from now on; before: ONE.
    pub fn set_consistency(&mut self, consistency: Consistency) {
        self.consistency = consistency;
    }

    /// The level it asks at.
    pub fn consistency(&self) -> Consistency {
        self.consistency
    }

    /// The level of the conditional part of a statement from now on; before: the server's choice.
    pub fn set_serial_consistency(&mut self, consistency: Option<Consistency>) {
        self.serial_consistency = consistency;
    }

    /// Waits that long for an answer from now on; before: 12 s.
    pub fn set_answer_timeout(&mut self, timeout: Duration) {
        self.answer_timeout = timeout;
    }

    /// Runs a statement.
    ///
    /// # Errors
    /// `Lost` when the connection ends before the answer.
    pub async fn query(&mut self, text: &str) -> Result<Answer, Lost> {
        self.query_page(text, None, None).await
    }

    /// Runs a statement for one page.
    ///
    /// # Errors
    /// As [`Client::query`].
    pub async fn query_page(
        &mut self,
        text: &str,
        page_size: Option<i32>,
        paging_state: Option<&[u8]>,
    ) -> Result<Answer, Lost> {
        let mut parameters = QueryParameters::new(self.consistency);
        parameters.page_size = page_size;
        parameters.serial_consistency = self.serial_consistency;
        parameters.paging_state = paging_state;
        self.send(&Request::Query { query: text, parameters }).await
    }

    /// Prepares a statement.
    ///
    /// # Errors
    /// As [`Client::query`].
    pub async fn prepare(&mut self, text: &str) -> Result<Answer, Lost> {
        self.send(&Request::Prepare { query: text, keyspace: None }).await
    }

    /// Runs a prepared statement.
    ///
    /// # Errors
    /// As [`Client::query`].
    pub async fn execute(&mut self, id: &[u8], values: &[Option<&[u8]>]) -> Result<Answer, Lost> {
        let mut list = ValueList::new();
        for value in values {
            let value = value.map_or(BoundValue::Null, BoundValue::Bytes);
            list.push(value).map_err(|e| Lost(e.to_string()))?;
        }
        let mut parameters = QueryParameters::new(self.consistency);
        parameters.values = list.values();
        self.send(&Request::Execute { id, result_metadata_id: None, parameters }).await
    }

    /// Runs a statement without values by its prepared form, which is made once for a connection.
    ///
    /// # Errors
    /// As [`Client::query`].
    pub async fn query_prepared(&mut self, text: &str) -> Result<Answer, Lost> {
        let id = match self.prepared.get(text) {
            Some(id) => id.clone(),
            None => match self.prepare(text).await? {
                Answer::Prepared(id) => {
                    self.prepared.insert(text.to_owned(), id.clone());
                    id
                }
                other => return Ok(other),
            },
        };
        match self.execute(&id, &[]).await? {
            // The node has forgotten it: asked as text.
            Answer::Error(0x2500, _) => self.query(text).await,
            answer => Ok(answer),
        }
    }

    /// Pipelines statements and reads no answer.
    ///
    /// # Errors
    /// `Lost` when the connection ends.
    pub async fn send_only(&mut self, texts: impl Iterator<Item = String>) -> Result<(), Lost> {
        let negotiated = Negotiated::plain(ProtocolVersion::V4);
        for (stream, text) in (0..).zip(texts) {
            let parameters = QueryParameters::new(self.consistency);
            let request = Request::Query { query: &text, parameters };
            let options = RequestOptions { stream, ..RequestOptions::default() };
            let mut out = Vec::new();
            encode_request(&request, negotiated, &options, &mut out)
                .map_err(|e| Lost(e.to_string()))?;
            self.conn.write_all(&out).await.map_err(|e| Lost(e.to_string()))?;
        }
        Ok(())
    }

    /// The next answer, read at most `most` bytes at a time with a pause before each of them.
    ///
    /// # Errors
    /// `Lost` when the connection ends before it.
    pub async fn next_answer(&mut self, most: usize, pause: Duration) -> Result<Answer, Lost> {
        loop {
            let mut rest = self.input.as_slice();
            let answer = match self.decoder.next(&mut rest) {
                Ok(Some(frame)) => Some(owned(&frame)?),
                Ok(None) => None,
                Err(error) => return Err(Lost(format!("{error:?}"))),
            };
            let used = self.input.len() - rest.len();
            self.input.drain(..used);
            if let Some(answer) = answer {
                return Ok(answer);
            }
            if !pause.is_zero() {
                self.rt.sleep(pause).await;
            }
            match self.conn.read(&mut self.input, most).await {
                Ok(0) => return Err(Lost("end of stream".to_owned())),
                Ok(_) => {}
                Err(error) => return Err(Lost(error.to_string())),
            }
        }
    }

    async fn send(&mut self, request: &Request<'_>) -> Result<Answer, Lost> {
        let negotiated = Negotiated::plain(ProtocolVersion::V4);
        let mut out = Vec::new();
        encode_request(request, negotiated, &RequestOptions::default(), &mut out)
            .map_err(|e| Lost(e.to_string()))?;
        self.exchange(out).await
    }

    async fn exchange(&mut self, out: Vec<u8>) -> Result<Answer, Lost> {
        let (rt, timeout) = (self.rt.clone(), self.answer_timeout);
        match rt.timeout(rt.now() + timeout, self.exchange_in_time(out)).await {
            Ok(answer) => answer,
            // The answer may still come: the connection must not be used any more.
            Err(_) => Err(Lost(format!("no answer within {timeout:?}"))),
        }
    }

    async fn exchange_in_time(&mut self, out: Vec<u8>) -> Result<Answer, Lost> {
        self.conn.write_all(&out).await.map_err(|e| Lost(e.to_string()))?;
        self.next_answer(1 << 16, Duration::ZERO).await
    }
}

fn owned(frame: &cql_wire::Frame<'_>) -> Result<Answer, Lost> {
    let negotiated = Negotiated::plain(ProtocolVersion::V4);
    let response = Response::decode(frame, negotiated).map_err(|e| Lost(e.to_string()))?;
    Ok(match response.body {
        ResponseBody::Error { error, message } => {
            Answer::Error(error.code().number(), message.to_owned())
        }
        ResponseBody::Rows(rows) => {
            let width = rows.metadata.column_count.max(1) as usize;
            let values: Vec<Option<Vec<u8>>> =
                rows.values().map(|v| v.map(<[u8]>::to_vec)).collect();
            let state = rows.metadata.paging_state.map(<[u8]>::to_vec);
            Answer::Rows(values.chunks(width).map(<[_]>::to_vec).collect(), state)
        }
        ResponseBody::Prepared(prepared) => Answer::Prepared(prepared.id.to_vec()),
        _ => Answer::Done,
    })
}
