//! Answers that own their memory.

use std::fmt;
use std::sync::Arc;

use cql_wire::{ErrorBody, ErrorCode, ResponseBody, WireType};
use types::{CqlType, UdtType};

use crate::machine::Received;

/// A column of a result or a bind marker.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Keyspace of its table.
    pub keyspace: String,
    /// Its table.
    pub table: String,
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: CqlType,
}

/// A page of rows: all values in one buffer.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The columns; none when the metadata was skipped.
    pub columns: Arc<[Column]>,
    /// Start of the next page; `None` on the last one.
    pub paging_state: Option<Vec<u8>>,
    width: usize,
    bytes: Vec<u8>,
    cells: Vec<Option<(usize, usize)>>,
}

impl Page {
    fn of(rows: &cql_wire::Rows<'_>, body_bytes: usize) -> Page {
        let mut page = Page {
            columns: columns(rows.metadata.columns.as_deref().unwrap_or_default()),
            paging_state: rows.metadata.paging_state.map(<[u8]>::to_vec),
            width: rows.metadata.column_count as usize,
            bytes: Vec::with_capacity(body_bytes),
            cells: Vec::new(),
        };
        for value in rows.values() {
            page.cells.push(value.map(|value| {
                let start = page.bytes.len();
                page.bytes.extend_from_slice(value);
                (start, page.bytes.len())
            }));
        }
        page
    }

    /// Number of rows.
    #[expect(clippy::len_without_is_empty, reason = "a page is not a collection")]
    pub fn len(&self) -> usize {
        self.cells.len().checked_div(self.width).unwrap_or(0)
    }

    /// Number of columns.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Value of a column in a row; `None` for null and outside of the page.
    pub fn value(&self, row: usize, column: usize) -> Option<&[u8]> {
        let index = row.checked_mul(self.width)?.checked_add(column)?;
        let (start, end) = (*self.cells.get(index)?)?;
        self.bytes.get(start..end)
    }

    /// Value of the column of this name.
    pub fn named(&self, row: usize, name: &str) -> Option<&[u8]> {
        let column = self.columns.iter().position(|column| column.name == name)?;
        self.value(row, column)
    }

    /// Text of the column of this name; empty when null.
    pub fn text(&self, row: usize, name: &str) -> String {
        String::from_utf8_lossy(self.named(row, name).unwrap_or_default()).into_owned()
    }
}

/// A prepared statement.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// Id to EXECUTE with.
    pub id: Vec<u8>,
    /// Id of the result's description, where ids are in use.
    pub result_id: Option<Vec<u8>>,
    /// The bind markers.
    pub markers: Vec<Column>,
}

/// Answer of a server.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Done, or a step of the handshake.
    Void,
    /// Rows.
    Rows(Page),
    /// The keyspace is used from now on.
    SetKeyspace,
    /// The schema changed.
    SchemaChange,
    /// Prepared.
    Prepared(Prepared),
    /// The server asks for a password.
    Authenticate,
    /// The server asks for more than a password.
    AuthChallenge,
    /// Options that the server offers, with their values.
    Supported(Vec<(String, Vec<String>)>),
}

/// An answer with what came beside it.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The answer.
    pub answer: Answer,
    /// Warnings of the server.
    pub warnings: Vec<String>,
    /// Id of the trace, when one was asked for.
    pub trace: Option<[u8; 16]>,
}

/// An ERROR message, borrowed.
#[derive(Clone, Debug)]
pub struct Refusal<'a> {
    /// Code and fields.
    pub error: ErrorBody<'a>,
    /// Message.
    pub message: &'a str,
}

/// An ERROR message without its fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerError {
    /// Code.
    pub code: ErrorCode,
    /// Message.
    pub message: String,
}

impl ServerError {
    pub(crate) fn of(error: &ErrorBody<'_>, message: &str) -> ServerError {
        ServerError { code: error.code(), message: message.to_owned() }
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Reply {
    /// The received answer, owned.
    ///
    /// # Errors
    /// It is an ERROR.
    pub fn of(received: Received<'_>) -> Result<Reply, Refusal<'_>> {
        let (response, bytes) = (received.response, received.bytes);
        let answer = match response.body {
            ResponseBody::Error { error, message } => return Err(Refusal { error, message }),
            ResponseBody::Rows(rows) => Answer::Rows(Page::of(&rows, bytes)),
            ResponseBody::SetKeyspace(_) => Answer::SetKeyspace,
            ResponseBody::SchemaChange(_) => Answer::SchemaChange,
            ResponseBody::Prepared(prepared) => Answer::Prepared(Prepared {
                id: prepared.id.to_vec(),
                result_id: prepared.result_metadata_id.map(<[u8]>::to_vec),
                markers: columns(&prepared.metadata.columns).to_vec(),
            }),
            ResponseBody::Authenticate(_) => Answer::Authenticate,
            ResponseBody::AuthChallenge(_) => Answer::AuthChallenge,
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
pub fn cql_type(kind: &WireType) -> CqlType {
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
