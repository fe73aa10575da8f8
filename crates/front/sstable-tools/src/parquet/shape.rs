//! CQL types as Parquet types.

use std::str::FromStr;
use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, TimeUnit, Type as Physical};
use parquet::schema::types::{Type, TypePtr};
use types::CqlType;

/// Digits that 16 bytes hold, and the most that readers of `decimal128` take.
const PRECISION_MAX: u8 = 38;
/// Bytes of a decimal.
pub(super) const DECIMAL_BYTES: usize = 16;
/// Fields of a duration.
pub(super) const DURATION_FIELDS: [&str; 3] = ["months", "days", "nanoseconds"];

/// How decimals and varints are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decimals {
    /// Text: every value, with its own scale.
    Text,
    /// `DECIMAL(precision, scale)`, varints with scale 0.
    Fixed {
        /// Decimal digits, 1 to 38.
        precision: u8,
        /// Digits after the point, at most `precision`.
        scale: u8,
    },
}

impl FromStr for Decimals {
    type Err = String;

    fn from_str(text: &str) -> Result<Decimals, String> {
        if text == "text" {
            return Ok(Decimals::Text);
        }
        let numbers = text.split_once(',').and_then(|(precision, scale)| {
            Some((precision.trim().parse().ok()?, scale.trim().parse().ok()?))
        });
        match numbers {
            Some((precision, scale)) if precision <= PRECISION_MAX && scale <= precision => {
                (precision > 0).then_some(Decimals::Fixed { precision, scale })
            }
            _ => None,
        }
        .ok_or_else(|| {
            format!("expects text, or PRECISION,SCALE of at most {PRECISION_MAX} digits")
        })
    }
}

/// A type with the places of its leaves.
pub(super) struct Node {
    pub(super) ty: CqlType,
    pub(super) kind: Kind,
    /// Definition level of a present value: levels of nested values, and of empty lists, count from
    /// it.
    pub(super) def: i16,
    /// Leaves of it, in the order of the columns.
    pub(super) leaves: std::ops::Range<usize>,
    /// Keys of maps are never null.
    pub(super) is_required: bool,
}

/// Content of a node.
pub(super) enum Kind {
    Leaf,
    Duration,
    Fields(Vec<Node>),
    /// With the repetition level of a further element.
    Elements(Box<Node>, i16),
    Entries(Box<Node>, Box<Node>, i16),
}

/// Position of a node among the others.
#[derive(Clone, Copy)]
struct Place {
    def: i16,
    rep: i16,
    repetition: Repetition,
}

/// Makes the types of columns; counts the leaves.
pub(super) struct Shaper {
    decimals: Decimals,
    leaves: usize,
}

impl Shaper {
    pub(super) fn new(decimals: Decimals) -> Shaper {
        Shaper { decimals, leaves: 0 }
    }

    /// Leaves so far.
    pub(super) fn leaves(&self) -> usize {
        self.leaves
    }

    /// A column, which may be null.
    ///
    /// # Errors
    /// A type that Parquet has nothing for.
    pub(super) fn column(&mut self, name: &str, ty: &CqlType) -> Result<(Node, TypePtr), String> {
        self.node(name, ty, Place { def: 0, rep: 0, repetition: Repetition::OPTIONAL })
    }

    fn node(&mut self, name: &str, ty: &CqlType, at: Place) -> Result<(Node, TypePtr), String> {
        let is_required = at.repetition == Repetition::REQUIRED;
        let def = at.def + i16::from(!is_required);
        let inner = Place { def, rep: at.rep, repetition: Repetition::OPTIONAL };
        let repeated = Place { def: def + 1, rep: at.rep + 1, repetition: Repetition::OPTIONAL };
        let first = self.leaves;
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let group = |logical: Option<LogicalType>, fields: Vec<TypePtr>, repetition, name: &str| {
            let group = Type::group_type_builder(name).with_logical_type(logical);
            group.with_repetition(repetition).with_fields(fields).build().map(Arc::new)
        };
        let (kind, parquet) = match ty {
            CqlType::List { element, .. }
            | CqlType::Set { element, .. }
            | CqlType::Vector { element, .. } => {
                let (element, of_element) = self.node("element", element, repeated)?;
                let list = group(None, vec![of_element], Repetition::REPEATED, "list");
                let list = list.map_err(|e| text(&e))?;
                let list = group(Some(LogicalType::List), vec![list], at.repetition, name);
                (Kind::Elements(Box::new(element), repeated.rep), list)
            }
            CqlType::Map { key, value, .. } => {
                let of_key = Place { repetition: Repetition::REQUIRED, ..repeated };
                let (key, key_type) = self.node("key", key, of_key)?;
                let (value, value_type) = self.node("value", value, repeated)?;
                let entries = vec![key_type, value_type];
                let entries = group(None, entries, Repetition::REPEATED, "key_value");
                let entries = entries.map_err(|e| text(&e))?;
                let map = group(Some(LogicalType::Map), vec![entries], at.repetition, name);
                (Kind::Entries(Box::new(key), Box::new(value), repeated.rep), map)
            }
            CqlType::Tuple(types) => {
                let named = (1..).zip(types.iter());
                let fields = named.map(|(at, ty)| self.node(&format!("field_{at}"), ty, inner));
                let (nodes, fields): (Vec<_>, Vec<_>) =
                    fields.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
                (Kind::Fields(nodes), group(None, fields, at.repetition, name))
            }
            CqlType::Udt(udt) => {
                let fields = udt.fields.iter().map(|(name, ty)| self.node(name, ty, inner));
                let (nodes, fields): (Vec<_>, Vec<_>) =
                    fields.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
                (Kind::Fields(nodes), group(None, fields, at.repetition, name))
            }
            CqlType::Duration => {
                self.leaves += DURATION_FIELDS.len();
                let numbers = [Physical::INT32, Physical::INT32, Physical::INT64];
                let fields = DURATION_FIELDS.iter().zip(numbers).map(|(name, number)| {
                    let field = Type::primitive_type_builder(name, number);
                    field.with_repetition(Repetition::REQUIRED).build().map(Arc::new)
                });
                let fields = fields.collect::<Result<Vec<_>, _>>().map_err(|e| text(&e))?;
                (Kind::Duration, group(None, fields, at.repetition, name))
            }
            _ => {
                self.leaves += 1;
                let leaf = Leaf::of(ty, self.decimals).ok_or_else(|| {
                    format!("column {name}: Parquet has nothing for {}", ty.to_cql_name())
                })?;
                (Kind::Leaf, leaf.parquet(name, at.repetition).map(Arc::new))
            }
        };
        let node = Node { ty: ty.clone(), kind, def, leaves: first..self.leaves, is_required };
        Ok((node, parquet.map_err(|e| text(&e))?))
    }
}

/// Type of a scalar in Parquet.
#[derive(Clone)]
struct Leaf {
    physical: Physical,
    logical: Option<LogicalType>,
    length: usize,
    digits: (u8, u8),
}

impl Leaf {
    fn of(ty: &CqlType, decimals: Decimals) -> Option<Leaf> {
        let plain = |physical, logical| Leaf { physical, logical, length: 0, digits: (0, 0) };
        let decimal = |precision: u8, scale: u8| Leaf {
            physical: Physical::FIXED_LEN_BYTE_ARRAY,
            logical: Some(LogicalType::decimal(i32::from(scale), i32::from(precision))),
            length: DECIMAL_BYTES,
            digits: (precision, scale),
        };
        let integer = |bits| Some(LogicalType::integer(bits, true));
        let text = || plain(Physical::BYTE_ARRAY, Some(LogicalType::String));
        Some(match (ty, decimals) {
            (CqlType::Decimal | CqlType::Varint, Decimals::Text) => text(),
            (CqlType::Decimal, Decimals::Fixed { precision, scale }) => decimal(precision, scale),
            (CqlType::Varint, Decimals::Fixed { precision, .. }) => decimal(precision, 0),
            (CqlType::Ascii | CqlType::Text | CqlType::Inet, _) => text(),
            (CqlType::Blob, _) => plain(Physical::BYTE_ARRAY, None),
            (CqlType::Boolean, _) => plain(Physical::BOOLEAN, None),
            (CqlType::Tinyint, _) => plain(Physical::INT32, integer(8)),
            (CqlType::Smallint, _) => plain(Physical::INT32, integer(16)),
            (CqlType::Int, _) => plain(Physical::INT32, None),
            (CqlType::Bigint | CqlType::Counter, _) => plain(Physical::INT64, None),
            (CqlType::Float, _) => plain(Physical::FLOAT, None),
            (CqlType::Double, _) => plain(Physical::DOUBLE, None),
            (CqlType::Date, _) => plain(Physical::INT32, Some(LogicalType::Date)),
            (CqlType::Time, _) => {
                plain(Physical::INT64, Some(LogicalType::time(false, TimeUnit::NANOS)))
            }
            (CqlType::Timestamp, _) => {
                plain(Physical::INT64, Some(LogicalType::timestamp(true, TimeUnit::MILLIS)))
            }
            (CqlType::Uuid | CqlType::Timeuuid, _) => Leaf {
                length: 16,
                ..plain(Physical::FIXED_LEN_BYTE_ARRAY, Some(LogicalType::Uuid))
            },
            _ => return None,
        })
    }

    fn parquet(
        self,
        name: &str,
        repetition: Repetition,
    ) -> Result<Type, parquet::errors::ParquetError> {
        let (precision, scale) = self.digits;
        Type::primitive_type_builder(name, self.physical)
            .with_repetition(repetition)
            .with_logical_type(self.logical)
            .with_length(i32::try_from(self.length).unwrap_or(0))
            .with_precision(i32::from(precision))
            .with_scale(i32::from(scale))
            .build()
    }
}
