//! Column types as metadata describes them (`[option]`).

use crate::error::{Result, WireError};
use crate::primitive::{put_count, put_string, string};
use crate::version::ProtocolVersion;
use codec::{Reader, Writer};

/// Deepest nesting that is decoded. Cassandra has no limit of its own; no schema nests further.
pub const DEPTH_MAX: usize = 64;

/// A column type on the wire.
///
/// Types without an id of their own (`vector`, and in older versions the ones that came later) travel as the name of
/// Cassandra's class, e.g.
/// `org.apache.cassandra.db.marshal.VectorType(org.apache.cassandra.db.marshal.FloatType , 3)`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum WireType {
    /// A class name.
    Custom(String),
    /// 0x01.
    Ascii,
    /// 0x02.
    Bigint,
    /// 0x03.
    Blob,
    /// 0x04.
    Boolean,
    /// 0x05.
    Counter,
    /// 0x06.
    Decimal,
    /// 0x07.
    Double,
    /// 0x08.
    Float,
    /// 0x09.
    Int,
    /// 0x0B.
    Timestamp,
    /// 0x0C.
    Uuid,
    /// 0x0D; `text` is written so, and 0x0A is read as it.
    Varchar,
    /// 0x0E.
    Varint,
    /// 0x0F.
    Timeuuid,
    /// 0x10.
    Inet,
    /// 0x11, v4 on.
    Date,
    /// 0x12, v4 on.
    Time,
    /// 0x13, v4 on.
    Smallint,
    /// 0x14, v4 on.
    Tinyint,
    /// 0x15, v5 on.
    Duration,
    /// 0x20.
    List(Box<WireType>),
    /// 0x21.
    Map(Box<WireType>, Box<WireType>),
    /// 0x22.
    Set(Box<WireType>),
    /// 0x30.
    Udt {
        /// Keyspace of the type.
        keyspace: String,
        /// Name of the type.
        name: String,
        /// Names and types of the fields, in order.
        fields: Vec<(String, WireType)>,
    },
    /// 0x31.
    Tuple(Vec<WireType>),
}

impl WireType {
    /// Id, and for types that older versions do not have: the first version with the id and the class name for them.
    fn id(&self) -> (u16, Option<(ProtocolVersion, &'static str)>) {
        use ProtocolVersion::{V4, V5};
        match self {
            WireType::Custom(_) => (0x00, None),
            WireType::Ascii => (0x01, None),
            WireType::Bigint => (0x02, None),
            WireType::Blob => (0x03, None),
            WireType::Boolean => (0x04, None),
            WireType::Counter => (0x05, None),
            WireType::Decimal => (0x06, None),
            WireType::Double => (0x07, None),
            WireType::Float => (0x08, None),
            WireType::Int => (0x09, None),
            WireType::Timestamp => (0x0b, None),
            WireType::Uuid => (0x0c, None),
            WireType::Varchar => (0x0d, None),
            WireType::Varint => (0x0e, None),
            WireType::Timeuuid => (0x0f, None),
            WireType::Inet => (0x10, None),
            WireType::Date => (0x11, Some((V4, "org.apache.cassandra.db.marshal.SimpleDateType"))),
            WireType::Time => (0x12, Some((V4, "org.apache.cassandra.db.marshal.TimeType"))),
            WireType::Smallint => (0x13, Some((V4, "org.apache.cassandra.db.marshal.ShortType"))),
            WireType::Tinyint => (0x14, Some((V4, "org.apache.cassandra.db.marshal.ByteType"))),
            WireType::Duration => {
                (0x15, Some((V5, "org.apache.cassandra.db.marshal.DurationType")))
            }
            WireType::List(_) => (0x20, None),
            WireType::Map(..) => (0x21, None),
            WireType::Set(_) => (0x22, None),
            WireType::Udt { .. } => (0x30, None),
            WireType::Tuple(_) => (0x31, None),
        }
    }

    /// Appends the `[option]`.
    ///
    /// # Errors
    /// `TooLong` when a name or a count does not fit.
    pub fn encode(&self, version: ProtocolVersion, out: &mut Vec<u8>) -> Result<()> {
        match self.id() {
            (_, Some((since, class))) if version < since => {
                out.put_u16(0);
                put_string(out, class)?;
            }
            (id, _) => out.put_u16(id),
        }
        match self {
            WireType::Custom(class) => put_string(out, class),
            WireType::List(element) | WireType::Set(element) => element.encode(version, out),
            WireType::Map(key, value) => {
                key.encode(version, out)?;
                value.encode(version, out)
            }
            WireType::Udt { keyspace, name, fields } => {
                put_string(out, keyspace)?;
                put_string(out, name)?;
                put_count(out, fields.len(), "fields of a user-defined type")?;
                fields.iter().try_for_each(|(name, kind)| {
                    put_string(out, name)?;
                    kind.encode(version, out)
                })
            }
            WireType::Tuple(elements) => {
                put_count(out, elements.len(), "elements of a tuple")?;
                elements.iter().try_for_each(|kind| kind.encode(version, out))
            }
            _ => Ok(()),
        }
    }

    /// Takes an `[option]` from the reader.
    ///
    /// # Errors
    /// `UnknownType`, `TypeTooDeep`, cut short.
    pub fn decode(r: &mut Reader<'_>) -> Result<WireType> {
        WireType::decode_at(r, 0)
    }

    fn decode_at(r: &mut Reader<'_>, depth: usize) -> Result<WireType> {
        if depth > DEPTH_MAX {
            return Err(WireError::TypeTooDeep { max: DEPTH_MAX });
        }
        let below = depth.saturating_add(1);
        let inner = |r: &mut Reader<'_>| WireType::decode_at(r, below);
        Ok(match r.u16()? {
            0x00 => WireType::Custom(string(r)?.to_owned()),
            0x01 => WireType::Ascii,
            0x02 => WireType::Bigint,
            0x03 => WireType::Blob,
            0x04 => WireType::Boolean,
            0x05 => WireType::Counter,
            0x06 => WireType::Decimal,
            0x07 => WireType::Double,
            0x08 => WireType::Float,
            0x09 => WireType::Int,
            0x0a | 0x0d => WireType::Varchar,
            0x0b => WireType::Timestamp,
            0x0c => WireType::Uuid,
            0x0e => WireType::Varint,
            0x0f => WireType::Timeuuid,
            0x10 => WireType::Inet,
            0x11 => WireType::Date,
            0x12 => WireType::Time,
            0x13 => WireType::Smallint,
            0x14 => WireType::Tinyint,
            0x15 => WireType::Duration,
            0x20 => WireType::List(Box::new(inner(r)?)),
            0x21 => WireType::Map(Box::new(inner(r)?), Box::new(inner(r)?)),
            0x22 => WireType::Set(Box::new(inner(r)?)),
            0x30 => {
                let keyspace = string(r)?.to_owned();
                let name = string(r)?.to_owned();
                let count = usize::from(r.u16()?);
                let mut fields = Vec::with_capacity(r.check_count(count, 4)?);
                for _ in 0..count {
                    let name = string(r)?.to_owned();
                    fields.push((name, inner(r)?));
                }
                WireType::Udt { keyspace, name, fields }
            }
            0x31 => {
                let count = usize::from(r.u16()?);
                let mut elements = Vec::with_capacity(r.check_count(count, 2)?);
                for _ in 0..count {
                    elements.push(inner(r)?);
                }
                WireType::Tuple(elements)
            }
            number => return Err(WireError::UnknownType { number }),
        })
    }
}
