//! Canned answers: rows of the shape that a statement names, built once per statement.
//!
//! Owns: the statements that have an answer. Columns have their types by name, as the workloads
//! below `perf/workloads` and `helenus bench` name them; a SELECT returns as many rows as its
//! LIMIT, one without it. Drivers' requests at connect (`system.local`, `system.peers*`,
//! `system_schema.*`) have answers from a fixed table: one node, no peers, no tables. Every other
//! statement that changes data is answered by void. Never: stores written data.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use cql_wire::response::PreparedResponse;
use cql_wire::{
    ColumnSpec, ColumnsBlock, FrameExtras, MetadataMode, ProtocolVersion, RowsEncoder, WireError,
    WireType,
};

/// Rows of one answer at most: a page of the usual size.
const ROWS_MAX: u32 = 5000;
/// Prepared statements at most.
const STATEMENTS_MAX: usize = 10_000;
/// The markers that are a partition key in the workloads: drivers choose a shard by them.
const PARTITION_KEYS: [&str; 2] = ["key", "sensor"];
/// Bytes of a frame's header.
const HEADER_BYTES: usize = 9;
/// The one id that the node has.
const NODE_ID: [u8; 16] = *b"null server\0\x40\0\x80\0";

/// A statement that has no canned answer; why, in words.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotCanned(pub(super) String);

impl From<WireError> for NotCanned {
    fn from(error: WireError) -> NotCanned {
        NotCanned(error.to_string())
    }
}

/// The answer to one statement.
#[derive(Debug)]
pub(super) struct Canned {
    id: [u8; 16],
    markers: ColumnsBlock,
    partition_key: Vec<u16>,
    columns: Option<ColumnsBlock>,
    full: Vec<u8>,
    without_metadata: Vec<u8>,
}

impl Canned {
    /// Body of RESULT.
    pub(super) fn body(&self, skip_metadata: bool) -> &[u8] {
        if skip_metadata { &self.without_metadata } else { &self.full }
    }

    /// Answer to PREPARE.
    pub(super) fn prepared(&self) -> PreparedResponse<'_> {
        PreparedResponse {
            id: &self.id,
            result_metadata_id: &self.id,
            markers: &self.markers,
            partition_key_indexes: &self.partition_key,
            extra_flags: 0,
            columns: self.columns.as_ref(),
        }
    }
}

/// Everything that was prepared, for all shards: the text makes the id, as drivers expect.
pub(super) struct Statements {
    address: SocketAddr,
    /// The position is the id.
    prepared: Mutex<Vec<(String, Arc<Canned>)>>,
    void: Arc<Canned>,
}

impl Statements {
    pub(super) fn new(address: SocketAddr) -> Statements {
        let mut void = Vec::new();
        cql_wire::response::put_void(&mut void);
        let void = Canned {
            id: [0; 16],
            markers: ColumnsBlock::default(),
            partition_key: Vec::new(),
            columns: None,
            full: void.clone(),
            without_metadata: void,
        };
        Statements { address, prepared: Mutex::default(), void: Arc::new(void) }
    }

    /// The empty answer.
    pub(super) fn void(&self) -> Arc<Canned> {
        self.void.clone()
    }

    /// The answer to a prepared statement.
    pub(super) fn by_id(&self, id: &[u8]) -> Option<Arc<Canned>> {
        let number = u128::from_be_bytes(id.try_into().ok()?);
        let prepared = self.prepared.lock().ok()?;
        prepared.get(usize::try_from(number).ok()?).map(|(_, canned)| canned.clone())
    }

    /// Prepares a statement; the same text has the same id.
    pub(super) fn prepare(&self, text: &str) -> Result<Arc<Canned>, NotCanned> {
        let poisoned = |_| NotCanned("a thread of the null server failed".to_owned());
        let mut prepared = self.prepared.lock().map_err(poisoned)?;
        if let Some((_, canned)) = prepared.iter().find(|(known, _)| known == text) {
            return Ok(canned.clone());
        }
        if prepared.len() >= STATEMENTS_MAX {
            return Err(NotCanned(format!("more than {STATEMENTS_MAX} statements")));
        }
        let id = (prepared.len() as u128).to_be_bytes();
        let canned = Arc::new(self.make(text, id)?);
        prepared.push((text.to_owned(), canned.clone()));
        Ok(canned)
    }

    /// The answer to a statement that is sent as text.
    pub(super) fn of_text(&self, text: &str) -> Result<Arc<Canned>, NotCanned> {
        if Statement::is_select(text) {
            return Ok(Arc::new(self.make(text, [0; 16])?));
        }
        Ok(self.void())
    }

    fn make(&self, text: &str, id: [u8; 16]) -> Result<Canned, NotCanned> {
        let statement = Statement::read(text)?;
        let (keyspace, table) = statement.table.split_once('.').unwrap_or(("", &statement.table));
        let block = |columns: &[(String, WireType)]| {
            let specs: Vec<ColumnSpec<'_>> = columns
                .iter()
                .map(|(name, kind)| ColumnSpec { keyspace, table, name, kind: kind.clone() })
                .collect();
            // No type of the fixed tables is written differently in another version.
            ColumnsBlock::encode(&specs, ProtocolVersion::V4)
        };
        let typed = |name: &String| (name.clone(), data_type(name));
        let markers: Vec<(String, WireType)> = statement.markers.iter().map(typed).collect();
        let position = statement.markers.iter().position(|m| PARTITION_KEYS.contains(&m.as_str()));
        let partition_key = position.and_then(|p| u16::try_from(p).ok()).into_iter().collect();
        let markers = block(&markers)?;
        if !statement.select {
            let void = self.void.full.clone();
            return Ok(Canned {
                id,
                markers,
                partition_key,
                columns: None,
                full: void.clone(),
                without_metadata: void,
            });
        }
        let (columns, rows) = self.rows(keyspace, table, &statement)?;
        let columns = block(&columns)?;
        let body = |mode| encode_rows(&columns, mode, &rows);
        let (full, without_metadata) = (body(MetadataMode::Full)?, body(MetadataMode::Skip)?);
        Ok(Canned { id, markers, partition_key, columns: Some(columns), full, without_metadata })
    }

    /// Columns and rows of a SELECT.
    #[expect(clippy::type_complexity, reason = "columns with types, rows of values")]
    fn rows(
        &self,
        keyspace: &str,
        table: &str,
        statement: &Statement,
    ) -> Result<(Vec<(String, WireType)>, Vec<Vec<Vec<u8>>>), NotCanned> {
        if keyspace != "system" && keyspace != "system_schema" {
            let columns: Vec<(String, WireType)> =
                statement.columns.iter().map(|c| (c.clone(), data_type(c))).collect();
            let row: Vec<Vec<u8>> = columns.iter().map(|(c, kind)| data_value(c, kind)).collect();
            return Ok((columns, vec![row; statement.limit.unwrap_or(1) as usize]));
        }
        let known = system_table(table)
            .ok_or_else(|| NotCanned(format!("table {} does not exist", statement.table)))?;
        let wanted: Vec<String> = match statement.columns.as_slice() {
            [all] if all == "*" => known.iter().map(|(name, _)| (*name).to_owned()).collect(),
            columns => columns.to_vec(),
        };
        let mut columns = Vec::new();
        for name in wanted {
            let found = known.iter().find(|(known, _)| *known == name);
            let (_, kind) =
                found.ok_or_else(|| NotCanned(format!("Undefined column name {name}")))?;
            columns.push((name, kind.clone()));
        }
        let row = || columns.iter().map(|(name, _)| self.local_value(name)).collect();
        let rows = if table == "local" { vec![row()] } else { Vec::new() };
        Ok((columns, rows))
    }

    /// Returns a column of `system.local`.
    fn local_value(&self, column: &str) -> Vec<u8> {
        let text = |text: &str| text.as_bytes().to_vec();
        match column {
            "key" => text("local"),
            "cluster_name" => text("null server"),
            "cql_version" => text("3.4.7"),
            "data_center" => text("datacenter1"),
            "rack" => text("rack1"),
            "release_version" => text("5.0.9"),
            "partitioner" => text(cql_wire::scylla::PARTITIONER_MURMUR3),
            "native_protocol_version" => text("5"),
            "host_id" | "schema_version" => NODE_ID.to_vec(),
            // A set of one text, "0".
            "tokens" => vec![0, 0, 0, 1, 0, 0, 0, 1, b'0'],
            _ => match self.address.ip() {
                IpAddr::V4(ip) => ip.octets().to_vec(),
                IpAddr::V6(ip) => ip.octets().to_vec(),
            },
        }
    }
}

fn encode_rows(
    columns: &ColumnsBlock,
    mode: MetadataMode<'_>,
    rows: &[Vec<Vec<u8>>],
) -> Result<Vec<u8>, NotCanned> {
    let mut frame = Vec::new();
    let extras = FrameExtras::default();
    let version = ProtocolVersion::V4;
    let mut encoder = RowsEncoder::begin(&mut frame, version, 0, &extras, columns, mode)?;
    for row in rows {
        for value in row {
            encoder.value(value)?;
        }
        encoder.end_row();
    }
    encoder.finish(None)?;
    Ok(frame.split_off(HEADER_BYTES.min(frame.len())))
}

/// Columns of a table that drivers ask for at connect.
fn system_table(table: &str) -> Option<Vec<(&'static str, WireType)>> {
    let texts = |names: &[&'static str]| -> Vec<(&'static str, WireType)> {
        names.iter().map(|name| (*name, WireType::Varchar)).collect()
    };
    let of_text = || Box::new(WireType::Varchar);
    let list = || WireType::List(of_text());
    let mut columns = match table {
        "local" => texts(&[
            "key",
            "cluster_name",
            "cql_version",
            "data_center",
            "rack",
            "release_version",
            "partitioner",
            "native_protocol_version",
        ]),
        "peers" | "peers_v2" => texts(&["data_center", "rack", "release_version"]),
        "keyspaces" => texts(&["keyspace_name"]),
        "tables" => texts(&["keyspace_name", "table_name"]),
        "views" => texts(&["keyspace_name", "view_name", "base_table_name"]),
        "types" => texts(&["keyspace_name", "type_name"]),
        "columns" => texts(&["keyspace_name", "table_name", "column_name", "kind", "type"]),
        _ => return None,
    };
    columns.extend(match table {
        "local" | "peers" | "peers_v2" => vec![
            ("host_id", WireType::Uuid),
            ("schema_version", WireType::Uuid),
            ("tokens", WireType::Set(of_text())),
            ("rpc_address", WireType::Inet),
            if table == "local" {
                ("listen_address", WireType::Inet)
            } else {
                ("peer", WireType::Inet)
            },
        ],
        "keyspaces" => vec![("replication", WireType::Map(of_text(), of_text()))],
        "types" => vec![("field_names", list()), ("field_types", list())],
        "columns" => vec![("position", WireType::Int)],
        _ => Vec::new(),
    });
    Some(columns)
}

/// Type of a column of the workloads.
fn data_type(column: &str) -> WireType {
    match column {
        "key" | "sensor" | "ts" => WireType::Bigint,
        "value" => WireType::Double,
        _ => WireType::Blob,
    }
}

fn data_value(column: &str, kind: &WireType) -> Vec<u8> {
    match (kind, column) {
        (WireType::Blob, "tag") => vec![0x5a; 16],
        (WireType::Blob, _) => vec![0x5a; 32],
        _ => vec![0; 8],
    }
}

/// Parts of a statement that its canned answer depends on.
#[derive(Debug, PartialEq, Eq)]
struct Statement {
    select: bool,
    table: String,
    /// Selected ones.
    columns: Vec<String>,
    /// Column of each bind marker.
    markers: Vec<String>,
    limit: Option<u32>,
}

impl Statement {
    fn is_select(text: &str) -> bool {
        text.trim_start().get(..6).is_some_and(|word| word.eq_ignore_ascii_case("select"))
    }

    /// Reads `SELECT names FROM table [WHERE name op ? AND …] [LIMIT n]` and
    /// `INSERT INTO table (names) VALUES (?, …)`; nothing else can be prepared.
    fn read(text: &str) -> Result<Statement, NotCanned> {
        let refused = || {
            NotCanned(format!(
                "the null server has no answer to this statement, only to SELECT of named columns \
                 and INSERT with a marker for each column: {text}"
            ))
        };
        let words = words(text);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let list = |words: &[&str]| -> Vec<String> {
            words.iter().filter(|w| **w != ",").map(|w| (*w).to_owned()).collect()
        };
        match words.as_slice() {
            ["insert", "into", table, "(", rest @ ..] => {
                let end = rest.iter().position(|w| *w == ")").ok_or_else(refused)?;
                let (names, rest) = rest.split_at(end);
                let markers = list(names);
                let questions = rest.iter().filter(|w| **w == "?").count();
                let values = rest.get(..3) == Some(&[")", "values", "("]);
                if !values || questions != markers.len() {
                    return Err(refused());
                }
                let table = (*table).to_owned();
                Ok(Statement { select: false, table, columns: Vec::new(), markers, limit: None })
            }
            ["select", rest @ ..] => {
                let from = rest.iter().position(|w| *w == "from").ok_or_else(refused)?;
                let (names, rest) = rest.split_at(from);
                let columns = list(names);
                if columns.is_empty() || names.iter().any(|w| ["(", "as"].contains(w)) {
                    return Err(refused());
                }
                let table = (*rest.get(1).ok_or_else(refused)?).to_owned();
                let mut markers = Vec::new();
                for (at, word) in rest.iter().enumerate() {
                    if *word == "?" {
                        let name = at.checked_sub(2).and_then(|at| rest.get(at));
                        markers.push((*name.ok_or_else(refused)?).to_owned());
                    }
                }
                let limit = rest.iter().position(|w| *w == "limit").map(|at| {
                    rest.get(at + 1)
                        .and_then(|n| n.parse().ok())
                        .filter(|n| *n <= ROWS_MAX)
                        .ok_or_else(refused)
                });
                Ok(Statement { select: true, table, columns, markers, limit: limit.transpose()? })
            }
            _ => Err(refused()),
        }
    }
}

/// Lower-case words; parentheses, commas and markers stand alone.
fn words(text: &str) -> Vec<String> {
    let mut spaced = String::new();
    for c in text.chars() {
        if matches!(c, '(' | ')' | ',' | '?' | '=' | '<' | '>') {
            spaced.extend([' ', c, ' ']);
        } else {
            spaced.extend(c.to_lowercase());
        }
    }
    spaced
        .replace("<  =", "<=")
        .replace(">  =", ">=")
        .split_whitespace()
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use codec::Reader;
    use cql_wire::{FrameDecoder, Negotiated, Opcode, Response, ResponseBody, Side};

    fn statements() -> Statements {
        Statements::new(SocketAddr::from(([127, 0, 0, 1], 9042)))
    }

    /// Column count, row count and bytes of the first value, as a client reads them.
    fn as_client(body: &[u8], then: impl FnOnce(&ResponseBody<'_>)) {
        let mut frame = Vec::new();
        let version = ProtocolVersion::V4;
        let extras = FrameExtras::default();
        cql_wire::response::encode_frame(&mut frame, version, 3, Opcode::Result, &extras, |b| {
            b.extend_from_slice(body);
            Ok(())
        })
        .unwrap();
        let mut decoder = FrameDecoder::new(Side::Client, 1 << 20);
        let mut input = frame.as_slice();
        let frame = decoder.next(&mut input).unwrap().unwrap();
        then(&Response::decode(&frame, Negotiated::plain(version)).unwrap().body);
    }

    #[test]
    fn a_slice_has_as_many_rows_as_its_limit() {
        let statements = statements();
        let text = "SELECT ts, value, tag FROM perf.series WHERE sensor = ? AND ts < ? LIMIT 100";
        let canned = statements.prepare(text).unwrap();
        assert_eq!(canned.prepared().partition_key_indexes, [0]);
        for skip in [false, true] {
            as_client(canned.body(skip), |body| {
                let ResponseBody::Rows(rows) = body else { panic!("{body:?}") };
                assert_eq!((rows.row_count(), rows.metadata.column_count), (100, 3));
                assert_eq!(rows.metadata.columns.is_none(), skip);
                let lengths: Vec<usize> = rows.values().take(3).map(|v| v.unwrap().len()).collect();
                assert_eq!(lengths, [8, 8, 16]);
            });
        }
        assert!(canned.body(false).len() > canned.body(true).len());
    }

    #[test]
    fn one_row_of_five_blobs_answers_a_read_by_key() {
        let text = "SELECT key, c0, c1, c2, c3, c4 FROM perf.standard1 WHERE key = ?";
        as_client(statements().prepare(text).unwrap().body(true), |body| {
            let ResponseBody::Rows(rows) = body else { panic!("{body:?}") };
            assert_eq!(rows.row_count(), 1);
            let bytes: usize = rows.values().map(|v| v.unwrap().len()).sum();
            assert_eq!(bytes, 8 + 5 * 32);
        });
    }

    #[test]
    fn the_same_text_has_the_same_id_and_another_text_another() {
        let statements = statements();
        let insert = "INSERT INTO ks.t (key, c0) VALUES (?, ?)";
        let first = statements.prepare(insert).unwrap();
        let other = statements.prepare("SELECT c0 FROM ks.t WHERE key = ?").unwrap();
        assert_eq!(statements.prepare(insert).unwrap().id, first.id);
        assert_ne!(first.id, other.id);
        assert_eq!(first.markers.count(), 2);
        as_client(first.body(false), |body| assert_eq!(*body, ResponseBody::Void));
        assert!(statements.by_id(&other.id).is_some());
        assert!(statements.by_id(&[9; 16]).is_none());
        assert!(statements.by_id(b"short").is_none());
    }

    #[test]
    fn drivers_learn_of_one_node_without_peers_and_tables() {
        let statements = statements();
        let local = "select host_id, rpc_address, data_center, rack, tokens from system.local \
                     WHERE key='local'";
        as_client(statements.of_text(local).unwrap().body(false), |body| {
            let ResponseBody::Rows(rows) = body else { panic!("{body:?}") };
            let values: Vec<_> = rows.values().map(|v| v.unwrap().to_vec()).collect();
            assert_eq!(values[0], NODE_ID);
            assert_eq!(values[1], [127, 0, 0, 1]);
            let mut tokens = Reader::new(&values[4], "tokens");
            assert_eq!(tokens.u32().unwrap(), 1);
        });
        for table in ["system.peers", "system_schema.keyspaces", "system_schema.tables"] {
            let canned = statements.of_text(&format!("SELECT * FROM {table}")).unwrap();
            as_client(canned.body(false), |body| {
                let ResponseBody::Rows(rows) = body else { panic!("{body:?}") };
                assert_eq!(rows.row_count(), 0, "{table}");
            });
        }
    }

    #[test]
    fn what_has_no_answer_is_refused() {
        let statements = statements();
        let prepare = |text| statements.prepare(text).map(|_| ());
        assert!(prepare("UPDATE ks.t SET c0 = ? WHERE key = ?").is_err());
        assert!(prepare("INSERT INTO ks.t (key, c0) VALUES (?)").is_err());
        assert!(prepare("INSERT INTO ks.t (key) VALUES (?)").is_ok());
        assert!(prepare("SELECT count(*) FROM ks.t").is_err());
        assert!(prepare("SELECT c0 FROM ks.t LIMIT 5001").is_err());
        assert!(prepare("SELECT c0 FROM ks.t LIMIT 5000").is_ok());
        let text = |text| statements.of_text(text).map(|_| ());
        assert!(text("SELECT x FROM system.local").is_err());
        assert!(text("SELECT * FROM system_schema.scylla_tables").is_err());
        assert!(text("CREATE TABLE ks.t (key bigint PRIMARY KEY)").is_ok());
    }
}
