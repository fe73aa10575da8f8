//! Rows of CQL values to the columns of a Parquet file.
//!
//! A row group is buffered until it has [`GROUP_BYTES`] or [`GROUP_ROWS`], as its columns are
//! written one after the other.

use std::io::Write;
use std::sync::Arc;

use parquet::basic::{Compression, Type as Physical};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::{ByteArray, FixedLenByteArray};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;
use types::CqlType;
use types::duration::Duration;
use types::number::{BigInt, Decimal, varint_from_bytes};
use types::wire::{CollectionKind, Elements, Entries, Fields, VectorElements};

use super::shape::{DECIMAL_BYTES, Decimals, Kind, Node, Shaper};
use crate::Failure;

/// Bytes of values and levels in memory after which a row group is written.
const GROUP_BYTES: usize = 64 << 20;
/// Rows after which a row group is written.
const GROUP_ROWS: u64 = 1 << 20;

/// A file that is being written.
pub(crate) struct FileWriter {
    columns: Vec<(String, Node)>,
    leaves: Vec<Leaf>,
    decimals: Decimals,
    rows: u64,
    to: SerializedFileWriter<Box<dyn Write + Send>>,
}

impl FileWriter {
    /// A file with these columns, in this order.
    ///
    /// # Errors
    /// A type that Parquet has nothing for, or the file cannot be written.
    pub(crate) fn new(
        to: Box<dyn Write + Send>,
        table: &str,
        columns: &[(String, CqlType)],
        decimals: Decimals,
    ) -> Result<FileWriter, Failure> {
        let mut shaper = Shaper::new(decimals);
        let (mut nodes, mut fields) = (Vec::new(), Vec::new());
        for (name, ty) in columns {
            let (node, field) = shaper.column(name, ty).map_err(Failure::Value)?;
            nodes.push((name.clone(), node));
            fields.push(field);
        }
        let schema = Type::group_type_builder(table).with_fields(fields).build();
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_created_by(format!("helenus version {}", env!("CARGO_PKG_VERSION")))
            .build();
        let schema = Arc::new(schema.map_err(failure)?);
        let to = SerializedFileWriter::new(to, schema, Arc::new(properties)).map_err(failure)?;
        let descriptor = to.schema_descr();
        let leaves =
            (0..shaper.leaves()).map(|at| Leaf::new(descriptor.column(at).physical_type()));
        Ok(FileWriter { leaves: leaves.collect(), columns: nodes, decimals, rows: 0, to })
    }

    /// Adds a row; `values` in the order of the columns.
    ///
    /// # Errors
    /// A value that the type of its column does not hold, or the file cannot be written.
    pub(crate) fn row(&mut self, values: &[Option<&[u8]>]) -> Result<(), Failure> {
        for (number, (name, node)) in self.columns.iter().enumerate() {
            let value = values.get(number).copied().flatten();
            let mut shred = Shred { leaves: &mut self.leaves, decimals: self.decimals };
            let put = shred.put(node, value, 0, 0);
            put.map_err(|text| Failure::Value(format!("column {name}: {text}")))?;
        }
        self.rows += 1;
        let bytes: usize = self.leaves.iter().map(|leaf| leaf.bytes).sum();
        if bytes >= GROUP_BYTES || self.rows >= GROUP_ROWS {
            self.group()?;
        }
        Ok(())
    }

    /// Writes the rows in memory.
    fn group(&mut self) -> Result<(), Failure> {
        let mut group = self.to.next_row_group().map_err(failure)?;
        for leaf in &mut self.leaves {
            let column = group.next_column().map_err(failure)?;
            let mut column =
                column.ok_or_else(|| Failure::Value("a column too many".to_owned()))?;
            leaf.write(column.untyped()).map_err(failure)?;
            column.close().map_err(failure)?;
        }
        group.close().map_err(failure)?;
        self.rows = 0;
        Ok(())
    }

    /// Writes the buffered rows, and the end of the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        if self.rows > 0 {
            self.group()?;
        }
        // `into_inner` writes the footer and flushes.
        let mut to = self.to.into_inner().map_err(failure)?;
        to.flush().map_err(Failure::Output)
    }
}

fn failure(error: ParquetError) -> Failure {
    match error {
        ParquetError::External(error) => match error.downcast::<std::io::Error>() {
            Ok(error) => Failure::Output(*error),
            Err(error) => Failure::Value(error.to_string()),
        },
        error => Failure::Value(error.to_string()),
    }
}

/// Values and levels of a leaf that are not written yet.
struct Leaf {
    values: Values,
    defs: Vec<i16>,
    reps: Vec<i16>,
    bytes: usize,
}

enum Values {
    Bool(Vec<bool>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Float(Vec<f32>),
    Double(Vec<f64>),
    Bytes(Vec<ByteArray>),
    Fixed(Vec<FixedLenByteArray>),
}

impl Leaf {
    fn new(physical: Physical) -> Leaf {
        let values = match physical {
            Physical::BOOLEAN => Values::Bool(Vec::new()),
            Physical::INT32 => Values::Int32(Vec::new()),
            Physical::FLOAT => Values::Float(Vec::new()),
            Physical::DOUBLE => Values::Double(Vec::new()),
            Physical::BYTE_ARRAY => Values::Bytes(Vec::new()),
            Physical::FIXED_LEN_BYTE_ARRAY => Values::Fixed(Vec::new()),
            Physical::INT64 | Physical::INT96 => Values::Int64(Vec::new()),
        };
        Leaf { values, defs: Vec::new(), reps: Vec::new(), bytes: 0 }
    }

    fn level(&mut self, def: i16, rep: i16) {
        self.defs.push(def);
        self.reps.push(rep);
        self.bytes = self.bytes.saturating_add(4);
    }

    fn write(&mut self, to: &mut ColumnWriter<'_>) -> Result<(), ParquetError> {
        let (defs, reps) = (Some(self.defs.as_slice()), Some(self.reps.as_slice()));
        match (&self.values, to) {
            (Values::Bool(v), ColumnWriter::BoolColumnWriter(to)) => to.write_batch(v, defs, reps),
            (Values::Int32(v), ColumnWriter::Int32ColumnWriter(to)) => {
                to.write_batch(v, defs, reps)
            }
            (Values::Int64(v), ColumnWriter::Int64ColumnWriter(to)) => {
                to.write_batch(v, defs, reps)
            }
            (Values::Float(v), ColumnWriter::FloatColumnWriter(to)) => {
                to.write_batch(v, defs, reps)
            }
            (Values::Double(v), ColumnWriter::DoubleColumnWriter(to)) => {
                to.write_batch(v, defs, reps)
            }
            (Values::Bytes(v), ColumnWriter::ByteArrayColumnWriter(to)) => {
                to.write_batch(v, defs, reps)
            }
            (Values::Fixed(v), ColumnWriter::FixedLenByteArrayColumnWriter(to)) => {
                to.write_batch(v, defs, reps)
            }
            _ => Err(ParquetError::General("a column of another type".to_owned())),
        }?;
        match &mut self.values {
            Values::Bool(v) => v.clear(),
            Values::Int32(v) => v.clear(),
            Values::Int64(v) => v.clear(),
            Values::Float(v) => v.clear(),
            Values::Double(v) => v.clear(),
            Values::Bytes(v) => v.clear(),
            Values::Fixed(v) => v.clear(),
        }
        self.defs.clear();
        self.reps.clear();
        self.bytes = 0;
        Ok(())
    }
}

/// A value on its way to the leaves.
struct Shred<'l> {
    leaves: &'l mut [Leaf],
    decimals: Decimals,
}

impl Shred<'_> {
    /// Appends a value. `rep`: repetition level of a list that continues, if any; `def`: level of
    /// the parent.
    fn put(&mut self, node: &Node, value: Option<&[u8]>, rep: i16, def: i16) -> Result<(), String> {
        let is_text = matches!(node.ty, CqlType::Ascii | CqlType::Text | CqlType::Blob);
        let is_leaf = matches!(node.kind, Kind::Leaf | Kind::Duration);
        // Empty bytes of a number or a time: Parquet has no such value.
        let value = value.filter(|value| !(value.is_empty() && is_leaf && !is_text));
        let Some(value) = value else {
            if node.is_required {
                return Err("an empty key of a map".to_owned());
            }
            self.levels(node, def, rep);
            return Ok(());
        };
        let text = |error: &dyn std::fmt::Display| error.to_string();
        match &node.kind {
            Kind::Leaf => {
                let leaf = self.leaves.get_mut(node.leaves.start).ok_or("no such column")?;
                leaf.level(node.def, rep);
                push(leaf, &node.ty, value, self.decimals)
            }
            Kind::Duration => {
                let duration = Duration::from_bytes(value).map_err(|e| text(&e))?;
                let numbers =
                    [i64::from(duration.months()), i64::from(duration.days()), duration.nanos()];
                for (at, number) in node.leaves.clone().zip(numbers) {
                    let leaf = self.leaves.get_mut(at).ok_or("no such column")?;
                    leaf.level(node.def, rep);
                    number_to(leaf, number)?;
                }
                Ok(())
            }
            Kind::Fields(nodes) => {
                let mut fields = Fields::new(value, nodes.len());
                for field in nodes {
                    let value = fields.next().transpose().map_err(|e| text(&e))?.flatten();
                    self.put(field, value, rep, node.def)?;
                }
                Ok(())
            }
            Kind::Elements(element, again) => {
                let mut rep = rep;
                let elements: Vec<Option<&[u8]>> = match &node.ty {
                    CqlType::Vector { element, dimension } => {
                        VectorElements::new(value, element, *dimension)
                            .map(|element| element.map(Some))
                            .collect::<Result<_, _>>()
                            .map_err(|e| text(&e))?
                    }
                    _ => Elements::new(value, CollectionKind::List)
                        .and_then(Iterator::collect)
                        .map_err(|e| text(&e))?,
                };
                if elements.is_empty() {
                    self.levels(node, node.def, rep);
                }
                for value in elements {
                    self.put(element, value, rep, node.def + 1)?;
                    rep = *again;
                }
                Ok(())
            }
            Kind::Entries(key, of_value, again) => {
                let mut rep = rep;
                let mut entries = Entries::new(value).map_err(|e| text(&e))?.peekable();
                if entries.peek().is_none() {
                    self.levels(node, node.def, rep);
                }
                for entry in entries {
                    let (of_key, value) = entry.map_err(|e| text(&e))?;
                    self.put(key, Some(of_key), rep, node.def + 1)?;
                    self.put(of_value, Some(value), rep, node.def + 1)?;
                    rep = *again;
                }
                Ok(())
            }
        }
    }

    /// No value in all leaves of the node: null above, or a list without elements.
    fn levels(&mut self, node: &Node, def: i16, rep: i16) {
        for leaf in self.leaves.get_mut(node.leaves.clone()).into_iter().flatten() {
            leaf.level(def, rep);
        }
    }
}

fn number_to(leaf: &mut Leaf, number: i64) -> Result<(), String> {
    match &mut leaf.values {
        Values::Int32(values) => values.push(i32::try_from(number).map_err(|e| e.to_string())?),
        Values::Int64(values) => values.push(number),
        _ => return Err("not a column of numbers".to_owned()),
    }
    leaf.bytes = leaf.bytes.saturating_add(8);
    Ok(())
}

/// A scalar that is not empty, or a text.
fn push(leaf: &mut Leaf, ty: &CqlType, value: &[u8], decimals: Decimals) -> Result<(), String> {
    ty.validate(value).map_err(|e| e.to_string())?;
    let short = || format!("{} bytes for {}", value.len(), ty.to_cql_name());
    let bytes = match (&mut leaf.values, ty) {
        (Values::Bool(values), _) => {
            values.push(value.first().is_some_and(|byte| *byte != 0));
            return Ok(());
        }
        (Values::Int32(_), CqlType::Date) => {
            // From 2^31 for 1970 to days that are signed.
            let days = i64::from(u32::from_be_bytes(value.try_into().map_err(|_| short())?));
            return number_to(leaf, days - (1 << 31));
        }
        (Values::Int32(_) | Values::Int64(_), _) => {
            return number_to(leaf, signed(value).ok_or_else(short)?);
        }
        (Values::Float(values), _) => {
            values.push(f32::from_be_bytes(value.try_into().map_err(|_| short())?));
            leaf.bytes = leaf.bytes.saturating_add(4);
            return Ok(());
        }
        (Values::Double(values), _) => {
            values.push(f64::from_be_bytes(value.try_into().map_err(|_| short())?));
            leaf.bytes = leaf.bytes.saturating_add(8);
            return Ok(());
        }
        (_, CqlType::Inet | CqlType::Decimal | CqlType::Varint) if decimals == Decimals::Text => {
            ty.format_plain(value).into_bytes()
        }
        (_, CqlType::Inet) => ty.format_plain(value).into_bytes(),
        (_, CqlType::Decimal) => {
            let decimal = Decimal::from_bytes(value).ok_or_else(short)?;
            unscaled(&decimal, decimals)?
        }
        (_, CqlType::Varint) => {
            let decimal = Decimal { unscaled: varint_from_bytes(value), scale: 0 };
            let whole = match decimals {
                Decimals::Fixed { precision, .. } => Decimals::Fixed { precision, scale: 0 },
                Decimals::Text => Decimals::Text,
            };
            unscaled(&decimal, whole)?
        }
        _ => value.to_vec(),
    };
    leaf.bytes = leaf.bytes.saturating_add(bytes.len()).saturating_add(size_of::<ByteArray>());
    match &mut leaf.values {
        Values::Bytes(values) => values.push(bytes.into()),
        Values::Fixed(values) => values.push(ByteArray::from(bytes).into()),
        _ => return Err("not a column of bytes".to_owned()),
    }
    Ok(())
}

/// The number of 1 to 8 bytes.
fn signed(value: &[u8]) -> Option<i64> {
    let first = value.first().filter(|_| value.len() <= 8)?;
    let mut number = if *first >= 0x80 { -1_i64 } else { 0 };
    for byte in value {
        number = (number << 8) | i64::from(*byte);
    }
    Some(number)
}

/// The digits of a decimal at the scale of the column.
fn unscaled(decimal: &Decimal, decimals: Decimals) -> Result<Vec<u8>, String> {
    let Decimals::Fixed { precision, scale } = decimals else {
        return Err("not a column of decimals".to_owned());
    };
    let refused = || {
        format!(
            "{decimal} does not fit DECIMAL({precision}, {scale}): say --decimals with others, or text"
        )
    };
    let mut number = decimal.unscaled.clone();
    // A number that is further away than that is zero, or does not fit.
    if number != BigInt::ZERO {
        let shift = i64::from(scale) - i64::from(decimal.scale);
        let steps = u32::try_from(shift.unsigned_abs()).ok().filter(|steps| *steps <= 4096);
        let power = BigInt::from(10).pow(steps.ok_or_else(refused)?);
        if shift >= 0 {
            number *= power;
        } else {
            let whole = &number / &power;
            if &whole * &power != number {
                return Err(refused());
            }
            number = whole;
        }
        let limit = BigInt::from(10).pow(u32::from(precision));
        if number >= limit || number <= -limit {
            return Err(refused());
        }
    }
    let digits = number.to_signed_bytes_be();
    let fill = if number < BigInt::ZERO { 0xff } else { 0 };
    let mut bytes = vec![fill; DECIMAL_BYTES.saturating_sub(digits.len())];
    bytes.extend_from_slice(&digits);
    Ok(bytes)
}
