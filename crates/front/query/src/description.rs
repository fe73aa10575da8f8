//! CQL types as the protocol's metadata describes them, and descriptions encoded once.
//!
//! They lie with the plan, so that a page of a prepared read copies bytes: an encoding that the front kept beside the
//! plan would be looked up at each execution.

pub use cql_plan::select::ResultColumn as Described;
use cql_wire::{ColumnSpec, ColumnsBlock, ProtocolVersion, WireError, WireType};
use md5::{Digest, Md5};
use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;
use types::CqlType;

/// The description of a type on the wire.
pub(crate) fn wire_type(ty: &CqlType) -> WireType {
    match ty {
        CqlType::Ascii => WireType::Ascii,
        CqlType::Bigint => WireType::Bigint,
        CqlType::Blob => WireType::Blob,
        CqlType::Boolean => WireType::Boolean,
        CqlType::Counter => WireType::Counter,
        CqlType::Date => WireType::Date,
        CqlType::Decimal => WireType::Decimal,
        CqlType::Double => WireType::Double,
        CqlType::Duration => WireType::Duration,
        CqlType::Float => WireType::Float,
        CqlType::Inet => WireType::Inet,
        CqlType::Int => WireType::Int,
        CqlType::Smallint => WireType::Smallint,
        CqlType::Text => WireType::Varchar,
        CqlType::Time => WireType::Time,
        CqlType::Timestamp => WireType::Timestamp,
        CqlType::Timeuuid => WireType::Timeuuid,
        CqlType::Tinyint => WireType::Tinyint,
        CqlType::Uuid => WireType::Uuid,
        CqlType::Varint => WireType::Varint,
        CqlType::List { element, .. } => WireType::List(Box::new(wire_type(element))),
        CqlType::Set { element, .. } => WireType::Set(Box::new(wire_type(element))),
        CqlType::Map { key, value, .. } => {
            WireType::Map(Box::new(wire_type(key)), Box::new(wire_type(value)))
        }
        CqlType::Tuple(fields) => WireType::Tuple(fields.iter().map(wire_type).collect()),
        CqlType::Udt(udt) => WireType::Udt {
            keyspace: udt.keyspace.to_string(),
            name: udt.name.to_string(),
            fields: udt.fields.iter().map(|(n, ty)| (n.clone(), wire_type(ty))).collect(),
        },
        CqlType::Empty | CqlType::Vector { .. } | CqlType::Custom(_) => {
            WireType::Custom(ty.to_marshal_name())
        }
    }
}

/// Columns with their encodings, made at first use for each protocol version.
#[derive(Debug)]
pub struct Description {
    columns: Arc<Vec<Described>>,
    blocks: [OnceCell<Rc<Encoded>>; 3],
    id: OnceCell<[u8; 16]>,
}

/// Columns encoded for one version.
#[derive(Debug)]
pub struct Encoded {
    /// For PREPARED.
    pub block: ColumnsBlock,
    /// Body of a RESULT of kind rows up to the count of rows, with all columns and without, once it is
    /// asked for.
    rows: [OnceCell<Vec<u8>>; 2],
    version: ProtocolVersion,
}

impl Encoded {
    /// Body of a RESULT of kind rows up to the count of rows.
    ///
    /// # Errors
    /// As [`Description::encoded`].
    pub fn rows_full(&self) -> Result<&[u8], WireError> {
        self.rows(&self.rows[0], cql_wire::MetadataMode::Full)
    }

    /// Like `rows_full`, without the columns.
    ///
    /// # Errors
    /// See [`Description::encoded`].
    pub fn rows_skip(&self) -> Result<&[u8], WireError> {
        self.rows(&self.rows[1], cql_wire::MetadataMode::Skip)
    }

    fn rows<'a>(
        &'a self,
        slot: &'a OnceCell<Vec<u8>>,
        mode: cql_wire::MetadataMode<'_>,
    ) -> Result<&'a [u8], WireError> {
        if let Some(rows) = slot.get() {
            return Ok(rows);
        }
        let rows = rows_prefix(&self.block, self.version, mode)?;
        Ok(slot.get_or_init(|| rows))
    }
}

/// Where in `rows_full` and `rows_skip` the flags end and the paging state would begin: after kind,
/// flags and column count.
pub const PAGING_STATE_AT: usize = 12;
/// Offset of the low byte of the flags.
pub const FLAGS_LOW_BYTE_AT: usize = 7;

impl Description {
    /// Describes these columns; nothing is encoded yet.
    pub fn new(columns: impl Into<Arc<Vec<Described>>>) -> Description {
        Description { columns: columns.into(), blocks: Default::default(), id: OnceCell::new() }
    }

    /// The columns.
    pub(crate) fn columns(&self) -> &[Described] {
        &self.columns
    }

    /// The columns, to be kept.
    pub(crate) fn shared_columns(&self) -> &Arc<Vec<Described>> {
        &self.columns
    }

    /// Cassandra's result metadata id: MD5 over names and types.
    pub fn id(&self) -> &[u8; 16] {
        self.id.get_or_init(|| {
            let mut digest = Md5::new();
            for column in self.columns.iter() {
                digest.update(column.name.as_bytes());
                digest.update([0]);
                digest.update(column.ty.to_marshal_name().as_bytes());
                digest.update([0, 0]);
            }
            digest.finalize().into()
        })
    }

    /// The encoding for a version.
    ///
    /// # Errors
    /// `TooLong` for names that do not fit.
    pub fn encoded(&self, version: ProtocolVersion) -> Result<Rc<Encoded>, WireError> {
        let slot = match version {
            ProtocolVersion::V3 => &self.blocks[0],
            ProtocolVersion::V4 => &self.blocks[1],
            ProtocolVersion::V5 | ProtocolVersion::V6 => &self.blocks[2],
        };
        if let Some(encoded) = slot.get() {
            return Ok(encoded.clone());
        }
        let encoded = Rc::new(self.encode(version)?);
        Ok(slot.get_or_init(|| encoded).clone())
    }

    fn encode(&self, version: ProtocolVersion) -> Result<Encoded, WireError> {
        let specs: Vec<ColumnSpec<'_>> = self
            .columns
            .iter()
            .map(|c| ColumnSpec {
                keyspace: &c.keyspace,
                table: &c.table,
                name: &c.name,
                kind: wire_type(&c.ty),
            })
            .collect();
        let block = ColumnsBlock::encode(&specs, version)?;
        Ok(Encoded { block, rows: Default::default(), version })
    }

    /// Like `Encoded::rows_full`, with the new id for a client that knows an older one.
    pub fn rows_changed(&self, version: ProtocolVersion) -> Result<Vec<u8>, WireError> {
        let encoded = self.encoded(version)?;
        rows_prefix(&encoded.block, version, cql_wire::MetadataMode::Changed(self.id()))
    }
}

/// Returns the bytes that the encoder writes before the count of rows.
fn rows_prefix(
    block: &ColumnsBlock,
    version: ProtocolVersion,
    mode: cql_wire::MetadataMode<'_>,
) -> Result<Vec<u8>, WireError> {
    // Header, kind, flags, counts, and an id of the columns.
    let mut out = Vec::with_capacity(block.bytes().len() + 64);
    let extras = cql_wire::FrameExtras::default();
    let rows = cql_wire::RowsEncoder::begin(&mut out, version, 0, &extras, block, mode)?;
    rows.finish(None)?;
    out.drain(..cql_wire::frame::HEADER_LEN.min(out.len()));
    out.truncate(out.len().saturating_sub(4));
    Ok(out)
}
