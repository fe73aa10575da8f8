//! The bytes of a forwarded statement: `docs/formats/internode.md`, `PaxosForward`.

use codec::{DecodeError, Reader, Writer};
use cql_plan::plan::BoundValue;
use cql_wire::{Consistency, Negotiated, ProtocolVersion};
use std::rc::Rc;
use std::time::Duration;
use stdx::{TimestampMicros, WallMicros};

use crate::prepared::Source;
use crate::sink::Describe;

/// Version of the layout.
const VERSION: u8 = 1;
/// Most statements, as in a BATCH message.
const STATEMENTS_MAX: usize = u16::MAX as usize;

const METADATA_ID: u8 = 1;
const LWT_MARK: u8 = 2;
const HAS_NOW: u8 = 4;
const HAS_PAGE_SIZE: u8 = 8;
const HAS_PAGING_STATE: u8 = 16;
const DESCRIBED: u8 = 32;
const UNMASKS: u8 = 64;

/// Kind of a forwarded statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// INSERT, UPDATE, DELETE, or a batch as text.
    Statement,
    /// A BATCH message.
    LoggedBatch,
    /// The same, not logged; with conditions there is no difference.
    UnloggedBatch,
    /// A read at a serial level.
    Select,
}

/// A value of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Null,
    Unset,
    Bytes(Vec<u8>),
}

impl Value {
    pub(crate) fn of(value: &BoundValue<'_>) -> Value {
        match value {
            BoundValue::Null => Value::Null,
            BoundValue::Unset => Value::Unset,
            BoundValue::Bytes(bytes) => Value::Bytes(bytes.to_vec()),
        }
    }

    pub(crate) fn borrow(&self) -> BoundValue<'_> {
        match self {
            Value::Null => BoundValue::Null,
            Value::Unset => BoundValue::Unset,
            Value::Bytes(bytes) => BoundValue::Bytes(bytes),
        }
    }
}

/// One statement with its values in the order of its markers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Statement {
    pub(crate) source: Source,
    pub(crate) values: Vec<Value>,
}

/// A forwarded statement or batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) kind: Kind,
    /// Only for a read: the client may see what masks hide. Not set for tables without masks.
    pub(crate) unmasks: bool,
    /// Protocol version and extensions of the client's connection.
    pub(crate) negotiated: Negotiated,
    pub(crate) consistency: Consistency,
    pub(crate) serial: Consistency,
    /// The time that expiry is judged by; `None`: the executing node's clock.
    pub(crate) now: Option<WallMicros>,
    pub(crate) timestamp: TimestampMicros,
    pub(crate) page_size: Option<i32>,
    pub(crate) paging_state: Option<Vec<u8>>,
    pub(crate) describe: Describe,
    /// The id of the columns that the client may know.
    pub(crate) described_as: Option<[u8; 16]>,
    pub(crate) statements: Vec<Statement>,
}

impl Message {
    /// Appends it; `slack` is the time between the client's deadline and the request's.
    pub(crate) fn encode(&self, slack: Duration, out: &mut Vec<u8>) {
        out.put_u8(VERSION);
        out.put_u8(match self.kind {
            Kind::Statement => 0,
            Kind::LoggedBatch => 1,
            Kind::UnloggedBatch => 2,
            Kind::Select => 3,
        });
        let flags = [
            (self.negotiated.metadata_id, METADATA_ID),
            (self.negotiated.lwt_mark, LWT_MARK),
            (self.now.is_some(), HAS_NOW),
            (self.page_size.is_some(), HAS_PAGE_SIZE),
            (self.paging_state.is_some(), HAS_PAGING_STATE),
            (self.described_as.is_some(), DESCRIBED),
            (self.unmasks, UNMASKS),
        ];
        out.put_u8(flags.iter().fold(0, |bits, (set, flag)| bits | if *set { *flag } else { 0 }));
        out.put_u8(self.negotiated.version.number());
        out.put_u8(match self.describe {
            Describe::Full => 0,
            Describe::Skip => 1,
            Describe::Changed => 2,
        });
        out.put_u16(self.consistency.number());
        out.put_u16(self.serial.number());
        out.put_u32(u32::try_from(slack.as_micros()).unwrap_or(u32::MAX));
        out.put_i64(self.timestamp.0);
        if let Some(WallMicros(now)) = self.now {
            out.put_i64(now);
        }
        if let Some(size) = self.page_size {
            out.put_i32(size);
        }
        if let Some(state) = &self.paging_state {
            put_bytes(out, state);
        }
        if let Some(id) = &self.described_as {
            out.put_bytes(id);
        }
        out.put_u16(u16::try_from(self.statements.len()).unwrap_or(u16::MAX));
        for Statement { source, values } in self.statements.iter().take(STATEMENTS_MAX) {
            let keyspace = source.keyspace.as_deref();
            out.put_u8(u8::from(source.is_prepared) | if keyspace.is_some() { 2 } else { 0 });
            put_bytes(out, source.text.as_bytes());
            if let Some(keyspace) = keyspace {
                put_bytes(out, keyspace.as_bytes());
            }
            out.put_u16(u16::try_from(values.len()).unwrap_or(u16::MAX));
            for value in values.iter().take(usize::from(u16::MAX)) {
                match value {
                    Value::Null => out.put_i32(-1),
                    Value::Unset => out.put_i32(-2),
                    Value::Bytes(bytes) => put_bytes(out, bytes),
                }
            }
        }
    }

    /// Decodes a message and its slack.
    ///
    /// # Errors
    /// The bytes are no message, or one of a later version.
    pub(crate) fn decode(bytes: &[u8]) -> Result<(Message, Duration), DecodeError> {
        let mut r = Reader::new(bytes, "forwarded statement");
        let version = r.u8()?;
        if version != VERSION {
            return Err(r.invalid(i64::from(version)));
        }
        let kind = match r.u8()? {
            0 => Kind::Statement,
            1 => Kind::LoggedBatch,
            2 => Kind::UnloggedBatch,
            3 => Kind::Select,
            other => return Err(r.invalid(i64::from(other))),
        };
        let flags = r.u8()?;
        if flags >= 128 {
            return Err(r.invalid(i64::from(flags)));
        }
        let has = |flag: u8| flags & flag != 0;
        let number = r.u8()?;
        let known = ProtocolVersion::ALL.into_iter().find(|v| v.number() == number);
        let version = known.ok_or_else(|| r.invalid(i64::from(number)))?;
        let negotiated =
            Negotiated { version, metadata_id: has(METADATA_ID), lwt_mark: has(LWT_MARK) };
        let describe = match r.u8()? {
            0 => Describe::Full,
            1 => Describe::Skip,
            2 => Describe::Changed,
            other => return Err(r.invalid(i64::from(other))),
        };
        let consistency = level(&mut r)?;
        let serial = level(&mut r)?;
        let slack = Duration::from_micros(u64::from(r.u32()?));
        let timestamp = TimestampMicros(r.i64()?);
        let now = if has(HAS_NOW) { Some(WallMicros(r.i64()?)) } else { None };
        let page_size = if has(HAS_PAGE_SIZE) { Some(r.i32()?) } else { None };
        let paging_state = if has(HAS_PAGING_STATE) { Some(r.bytes_i32()?.to_vec()) } else { None };
        let described_as = if has(DESCRIBED) { Some(r.array()?) } else { None };
        let count = usize::from(r.u16()?);
        let mut statements = Vec::with_capacity(r.check_count(count, 7)?);
        for _ in 0..count {
            statements.push(Statement::decode(&mut r)?);
        }
        r.finish()?;
        let message = Message {
            kind,
            unmasks: has(UNMASKS),
            negotiated,
            consistency,
            serial,
            now,
            timestamp,
            page_size,
            paging_state,
            describe,
            described_as,
            statements,
        };
        Ok((message, slack))
    }
}

impl Statement {
    fn decode(r: &mut Reader<'_>) -> Result<Statement, DecodeError> {
        let flags = r.u8()?;
        if flags > 3 {
            return Err(r.invalid(i64::from(flags)));
        }
        let text = text(r)?;
        let keyspace = if flags & 2 != 0 { Some(self::text(r)?) } else { None };
        let count = usize::from(r.u16()?);
        let mut values = Vec::with_capacity(r.check_count(count, 4)?);
        for _ in 0..count {
            values.push(match r.i32()? {
                -1 => Value::Null,
                -2 => Value::Unset,
                length => {
                    let length =
                        usize::try_from(length).map_err(|_| r.invalid(i64::from(length)))?;
                    Value::Bytes(r.bytes(length)?.to_vec())
                }
            });
        }
        Ok(Statement { source: Source { text, keyspace, is_prepared: flags & 1 != 0 }, values })
    }
}

fn level(r: &mut Reader<'_>) -> Result<Consistency, DecodeError> {
    let number = r.u16()?;
    Consistency::from_number(number).map_err(|_| r.invalid(i64::from(number)))
}

fn text(r: &mut Reader<'_>) -> Result<Rc<str>, DecodeError> {
    let length = r.len_i32()?;
    Ok(r.utf8(length)?.into())
}

/// Bytes of one request are far fewer than an `i32` counts.
fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.put_i32(i32::try_from(bytes.len()).unwrap_or(i32::MAX));
    out.put_bytes(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> Message {
        let source = |keyspace: Option<&str>, is_prepared| Source {
            text: "UPDATE t SET v = ? WHERE k = ? IF v = ?".into(),
            keyspace: keyspace.map(Into::into),
            is_prepared,
        };
        let values = vec![Value::Null, Value::Unset, Value::Bytes(vec![0, 0, 0, 7])];
        Message {
            kind: Kind::LoggedBatch,
            unmasks: false,
            negotiated: Negotiated {
                version: ProtocolVersion::V4,
                metadata_id: true,
                lwt_mark: true,
            },
            consistency: Consistency::LocalQuorum,
            serial: Consistency::LocalSerial,
            now: Some(WallMicros(1_700_000_000_000_000)),
            timestamp: TimestampMicros(77),
            page_size: Some(100),
            paging_state: Some(vec![1, 2, 3]),
            describe: Describe::Skip,
            described_as: Some([9; 16]),
            statements: vec![
                Statement { source: source(Some("ks"), true), values },
                Statement { source: source(None, false), values: Vec::new() },
            ],
        }
    }

    #[test]
    fn what_is_encoded_comes_back_and_nothing_shorter_does() {
        let plain = Message {
            kind: Kind::Select,
            unmasks: true,
            negotiated: Negotiated::plain(ProtocolVersion::V3),
            now: None,
            page_size: None,
            paging_state: None,
            describe: Describe::Full,
            described_as: None,
            statements: Vec::new(),
            ..message()
        };
        let slack = Duration::from_micros(1_234_567);
        for message in [message(), plain] {
            let mut bytes = Vec::new();
            message.encode(slack, &mut bytes);
            assert_eq!(Message::decode(&bytes).unwrap(), (message, slack));
            for length in 0..bytes.len() {
                assert!(Message::decode(&bytes[..length]).is_err(), "{length}");
            }
            bytes.push(0);
            assert!(Message::decode(&bytes).is_err(), "nothing may follow");
        }
    }

    #[test]
    fn the_layout_is_the_documented_one() {
        let mut bytes = Vec::new();
        let statement = Statement {
            source: Source { text: "x".into(), keyspace: Some("k".into()), is_prepared: true },
            values: vec![Value::Null, Value::Bytes(vec![5])],
        };
        let negotiated = Negotiated::plain(ProtocolVersion::V5);
        let (kind, now) = (Kind::Statement, Some(WallMicros(3)));
        let only = Message {
            kind,
            unmasks: false,
            negotiated,
            now,
            page_size: None,
            paging_state: None,
            describe: Describe::Full,
            described_as: None,
            consistency: Consistency::Quorum,
            serial: Consistency::Serial,
            timestamp: TimestampMicros(2),
            statements: vec![statement],
        };
        only.encode(Duration::from_micros(1), &mut bytes);
        let expect: Vec<u8> = [
            &[1, 0, HAS_NOW, 5, 0, 0, 4, 0, 8, 0, 0, 0, 1][..],
            &[0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3],
            &[0, 1, 3, 0, 0, 0, 1, b'x', 0, 0, 0, 1, b'k'],
            &[0, 2, 255, 255, 255, 255, 0, 0, 0, 1, 5],
        ]
        .concat();
        assert_eq!(bytes, expect);
    }

    #[test]
    fn damaged_bytes_are_refused_and_allocate_nothing_on_their_word() {
        let mut bytes = Vec::new();
        message().encode(Duration::ZERO, &mut bytes);
        for at in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] = value;
                // Any answer but a panic.
                let _ = Message::decode(&damaged);
            }
        }
        for (at, bad) in [(0, 2), (1, 4), (2, 128), (3, 9), (4, 3)] {
            let mut damaged = bytes.clone();
            damaged[at] = bad;
            assert!(Message::decode(&damaged).is_err(), "byte {at}");
        }
    }
}
