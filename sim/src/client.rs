//! A small CQL client over simulated sockets: one request at a time, protocol v4.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use cql_client::{ClientError, ConnectOptions, Connection, ReadPace, Reply};
use cql_wire::query::{BoundValue, QueryParameters, ValueList};
use cql_wire::request::Request;
use cql_wire::{Consistency, ProtocolVersion};
use rt::Rt;

/// Largest answer that the client accepts.
const FRAME_BYTES_MAX: usize = 64 << 20;
/// Timeout of connects, as drivers have.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an answer may take, as drivers wait: a machine without power never answers.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(12);
/// How long an answer may take that is read slowly on purpose.
const SLOW_ANSWER_TIMEOUT: Duration = Duration::from_secs(3600);

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
    connection: Connection,
    prepared: BTreeMap<String, Vec<u8>>,
}

impl Client {
    /// Connects and performs STARTUP.
    ///
    /// # Errors
    /// `Lost` when no node answers.
    pub async fn connect(rt: &Rt, address: SocketAddr) -> Result<Client, Lost> {
        let options = ConnectOptions {
            version: ProtocolVersion::V4,
            frame_bytes_max: FRAME_BYTES_MAX,
            connect_timeout: CONNECT_TIMEOUT,
            answer_timeout: ANSWER_TIMEOUT,
            ..ConnectOptions::default()
        };
        let connection = Connection::connect(rt, address, options).await.map_err(lost)?;
        Ok(Client {
            rt: rt.clone(),
            consistency: Consistency::One,
            serial_consistency: None,
            connection,
            prepared: BTreeMap::new(),
        })
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
        self.connection.set_answer_timeout(timeout);
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
        for (stream, text) in (0..).zip(texts) {
            let parameters = QueryParameters::new(self.consistency);
            let request = Request::Query { query: &text, parameters };
            self.connection.send(&request, stream).map_err(|e| Lost(e.to_string()))?;
            self.connection.flush().await.map_err(lost)?;
        }
        Ok(())
    }

    /// The next answer, read at most `most` bytes at a time with a pause before each of them.
    ///
    /// # Errors
    /// `Lost` when the connection ends before it.
    pub async fn next_answer(&mut self, most: usize, pause: Duration) -> Result<Answer, Lost> {
        self.connection.set_pace(ReadPace { bytes: most, pause });
        match self.connection.receive(self.rt.now() + SLOW_ANSWER_TIMEOUT).await {
            Ok((_, Ok(reply))) => Ok(owned(reply)),
            Ok((_, Err(error))) => Ok(Answer::Error(error.code.number(), error.message)),
            Err(error) => Err(lost(error)),
        }
    }

    async fn send(&mut self, request: &Request<'_>) -> Result<Answer, Lost> {
        match self.connection.request(request).await {
            Ok(reply) => Ok(owned(reply)),
            Err(ClientError::Server(error)) => {
                Ok(Answer::Error(error.code.number(), error.message))
            }
            Err(error) => Err(lost(error)),
        }
    }
}

fn lost(error: ClientError) -> Lost {
    Lost(error.to_string())
}

fn owned(reply: Reply) -> Answer {
    match reply.answer {
        cql_client::Answer::Rows(page) => {
            let cell = |row, column| page.value(row, column).map(<[u8]>::to_vec);
            let row = |row| (0..page.width()).map(|column| cell(row, column)).collect();
            let rows = (0..page.len()).map(row).collect();
            Answer::Rows(rows, page.paging_state)
        }
        cql_client::Answer::Prepared(prepared) => Answer::Prepared(prepared.id),
        _ => Answer::Done,
    }
}
