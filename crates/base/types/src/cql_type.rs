//! The type tree and its properties.

use std::sync::Arc;

use crate::CustomType;

/// A CQL data type, as a column, field, element or bind marker has it.
///
/// Equality is Cassandra's `AbstractType.equals`: frozen and multi-cell variants differ, user types
/// differ by keyspace, name, field names and field types. Order direction (`ReversedType`) is not
/// part of a type; see [`crate::marshal::parse_marshal`].
///
/// Cheap to clone: at most one reference count.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CqlType {
    /// US-ASCII text.
    Ascii,
    /// 64-bit signed integer.
    Bigint,
    /// Any bytes.
    Blob,
    /// True or false, one byte.
    Boolean,
    /// A counter; its value on the wire is a 64-bit signed integer.
    Counter,
    /// Days, as an unsigned 32-bit number with 1970-01-01 at 2^31.
    Date,
    /// Any-precision decimal: 4-byte scale, then the unscaled two's-complement number.
    Decimal,
    /// IEEE 754 binary64.
    Double,
    /// Months, days and nanoseconds, three signed vints.
    Duration,
    /// The type without values (value column of dense tables).
    Empty,
    /// IEEE 754 binary32.
    Float,
    /// IPv4 (4 bytes) or IPv6 (16 bytes) address.
    Inet,
    /// 32-bit signed integer.
    Int,
    /// 16-bit signed integer.
    Smallint,
    /// UTF-8 text.
    Text,
    /// Nanoseconds since midnight, 8 bytes.
    Time,
    /// Milliseconds since 1970-01-01T00:00Z, 8 bytes signed.
    Timestamp,
    /// Version 1 UUID.
    Timeuuid,
    /// 8-bit signed integer.
    Tinyint,
    /// UUID of any version.
    Uuid,
    /// Any-precision integer, two's complement.
    Varint,
    /// Ordered elements, duplicates allowed.
    List {
        /// Element type.
        element: Arc<CqlType>,
        /// One value instead of one cell per element.
        frozen: bool,
    },
    /// Elements sorted by the element type, no duplicates.
    Set {
        /// Element type.
        element: Arc<CqlType>,
        /// One value instead of one cell per element.
        frozen: bool,
    },
    /// Entries sorted by the key type.
    Map {
        /// Key type.
        key: Arc<CqlType>,
        /// Value type.
        value: Arc<CqlType>,
        /// One value instead of one cell per entry.
        frozen: bool,
    },
    /// Fixed sequence of fields, always frozen.
    Tuple(Arc<[CqlType]>),
    /// User-defined type.
    Udt(Arc<UdtType>),
    /// Fixed number of elements that are never null.
    Vector {
        /// Element type.
        element: Arc<CqlType>,
        /// Number of elements, at least 1.
        dimension: u32,
    },
    /// A Java class that CQL has no name for: composites, lexical UUIDs, user classes.
    Custom(Arc<CustomType>),
}

/// A user-defined type: named fields in declaration order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UdtType {
    /// Keyspace the type lives in, case kept.
    pub keyspace: Arc<str>,
    /// Type name, case kept.
    pub name: Arc<str>,
    /// Field names (case kept) and types, in declaration order.
    pub fields: Vec<(String, CqlType)>,
    /// One value instead of one cell per field.
    pub frozen: bool,
}

impl UdtType {
    /// Position of the field of that exact name.
    pub fn field_position(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|(n, _)| n == name)
    }
}

impl CqlType {
    /// A list type.
    pub fn list(element: CqlType, frozen: bool) -> CqlType {
        CqlType::List { element: Arc::new(element), frozen }
    }

    /// A set type.
    pub fn set(element: CqlType, frozen: bool) -> CqlType {
        CqlType::Set { element: Arc::new(element), frozen }
    }

    /// A map type.
    pub fn map(key: CqlType, value: CqlType, frozen: bool) -> CqlType {
        CqlType::Map { key: Arc::new(key), value: Arc::new(value), frozen }
    }

    /// A tuple type; field types are frozen, as Cassandra's constructor does.
    pub fn tuple(fields: impl IntoIterator<Item = CqlType>) -> CqlType {
        CqlType::Tuple(fields.into_iter().map(|t| t.freeze()).collect())
    }

    /// A vector type. A dimension of 0 is refused where types are declared, not here.
    pub fn vector(element: CqlType, dimension: u32) -> CqlType {
        CqlType::Vector { element: Arc::new(element), dimension }
    }

    /// A type by the name of its class.
    pub fn custom(custom: CustomType) -> CqlType {
        CqlType::Custom(Arc::new(custom))
    }

    /// True for list, set and map, frozen or not.
    pub fn is_collection(&self) -> bool {
        matches!(self, CqlType::List { .. } | CqlType::Set { .. } | CqlType::Map { .. })
    }

    /// True for a user-defined type.
    pub fn is_udt(&self) -> bool {
        matches!(self, CqlType::Udt(_))
    }

    /// True for `CompositeType` and `DynamicCompositeType`.
    pub fn is_composite(&self) -> bool {
        matches!(self, CqlType::Custom(custom) if custom.is_composite())
    }

    /// True for a tuple; false for a user-defined type, as in Cassandra.
    pub fn is_tuple(&self) -> bool {
        matches!(self, CqlType::Tuple(_))
    }

    /// True for a vector.
    pub fn is_vector(&self) -> bool {
        matches!(self, CqlType::Vector { .. })
    }

    /// True for `counter`.
    pub fn is_counter(&self) -> bool {
        matches!(self, CqlType::Counter)
    }

    /// True for the number types, `counter` included.
    pub fn is_numeric(&self) -> bool {
        matches!(
            self,
            CqlType::Tinyint
                | CqlType::Smallint
                | CqlType::Int
                | CqlType::Bigint
                | CqlType::Counter
                | CqlType::Varint
                | CqlType::Float
                | CqlType::Double
                | CqlType::Decimal
        )
    }

    /// True if a column of the type is stored as one cell per element or field.
    pub fn is_multi_cell(&self) -> bool {
        match self {
            CqlType::List { frozen, .. }
            | CqlType::Set { frozen, .. }
            | CqlType::Map { frozen, .. } => !frozen,
            CqlType::Udt(udt) => !udt.frozen,
            _ => false,
        }
    }

    /// True if the type exists in a frozen and a multi-cell variant (`isFreezable`).
    pub fn is_freezable(&self) -> bool {
        self.is_collection() || self.is_udt()
    }

    /// True if a value is always one run of bytes: every type that is not multi-cell.
    pub fn is_frozen(&self) -> bool {
        !self.is_multi_cell()
    }

    /// True for a collection that is one value.
    pub fn is_frozen_collection(&self) -> bool {
        self.is_collection() && self.is_frozen()
    }

    /// The variant stored as one value. Collections freeze their elements too, user types do not
    /// freeze their fields (Cassandra's rule).
    #[must_use]
    pub fn freeze(&self) -> CqlType {
        match self {
            CqlType::List { element, frozen: false } => CqlType::list(element.freeze(), true),
            CqlType::Set { element, frozen: false } => CqlType::set(element.freeze(), true),
            CqlType::Map { key, value, frozen: false } => {
                CqlType::map(key.freeze(), value.freeze(), true)
            }
            CqlType::Udt(udt) if !udt.frozen => {
                CqlType::Udt(Arc::new(UdtType { frozen: true, ..(**udt).clone() }))
            }
            other => other.clone(),
        }
    }

    /// The multi-cell variant of a collection or user type; others unchanged.
    #[must_use]
    pub fn unfreeze(&self) -> CqlType {
        match self {
            CqlType::List { element, frozen: true } => {
                CqlType::List { element: element.clone(), frozen: false }
            }
            CqlType::Set { element, frozen: true } => {
                CqlType::Set { element: element.clone(), frozen: false }
            }
            CqlType::Map { key, value, frozen: true } => {
                CqlType::Map { key: key.clone(), value: value.clone(), frozen: false }
            }
            CqlType::Udt(udt) if udt.frozen => {
                CqlType::Udt(Arc::new(UdtType { frozen: false, ..(**udt).clone() }))
            }
            other => other.clone(),
        }
    }

    /// The type with multi-cell types below the top frozen (`freezeNestedMulticellTypes`).
    #[must_use]
    pub fn freeze_nested(&self) -> CqlType {
        match self {
            CqlType::List { element, frozen: false } => CqlType::list(element.freeze(), false),
            CqlType::Set { element, frozen: false } => CqlType::set(element.freeze(), false),
            CqlType::Map { key, value, frozen: false } => {
                CqlType::map(key.freeze(), value.freeze(), false)
            }
            CqlType::Udt(udt) if !udt.frozen => CqlType::Udt(Arc::new(UdtType {
                fields: udt.fields.iter().map(|(n, t)| (n.clone(), t.freeze())).collect(),
                ..(**udt).clone()
            })),
            other => other.clone(),
        }
    }

    /// Bytes of a value if they are the same for every non-empty value
    /// (`AbstractType.valueLengthIfFixed`); SSTables leave out the length then.
    ///
    /// `date`, `time`, `tinyint`, `smallint` and `counter` are variable: Cassandra writes their
    /// length. `empty` is 0.
    pub fn fixed_len(&self) -> Option<usize> {
        match self {
            CqlType::Boolean => Some(1),
            CqlType::Int | CqlType::Float => Some(4),
            CqlType::Bigint | CqlType::Double | CqlType::Timestamp => Some(8),
            CqlType::Uuid | CqlType::Timeuuid => Some(16),
            CqlType::Empty => Some(0),
            CqlType::Vector { element, dimension } => {
                element.fixed_len()?.checked_mul(usize::try_from(*dimension).ok()?)
            }
            CqlType::Custom(custom) => match custom.name() {
                "org.apache.cassandra.db.marshal.DateType" => Some(8),
                "org.apache.cassandra.db.marshal.LegacyTimeUUIDType"
                | "org.apache.cassandra.db.marshal.LexicalUUIDType" => Some(16),
                _ => None,
            },
            _ => None,
        }
    }

    /// True if a value of zero bytes is valid (`AbstractType.allowsEmpty`).
    pub fn allows_empty_value(&self) -> bool {
        match self {
            CqlType::Tinyint
            | CqlType::Smallint
            | CqlType::Date
            | CqlType::Time
            | CqlType::Duration
            | CqlType::Empty
            | CqlType::List { .. }
            | CqlType::Set { .. }
            | CqlType::Map { .. }
            | CqlType::Vector { .. } => false,
            CqlType::Ascii
            | CqlType::Bigint
            | CqlType::Blob
            | CqlType::Boolean
            | CqlType::Counter
            | CqlType::Decimal
            | CqlType::Double
            | CqlType::Float
            | CqlType::Inet
            | CqlType::Int
            | CqlType::Text
            | CqlType::Timestamp
            | CqlType::Timeuuid
            | CqlType::Uuid
            | CqlType::Varint
            | CqlType::Tuple(_)
            | CqlType::Udt(_)
            | CqlType::Custom(_) => true,
        }
    }

    /// True if a value of zero bytes means nothing (`isEmptyValueMeaningless`): functions and
    /// aggregates take it as null. Text and blob values of zero bytes do mean something.
    pub fn is_empty_value_meaningless(&self) -> bool {
        matches!(
            self,
            CqlType::Bigint
                | CqlType::Boolean
                | CqlType::Counter
                | CqlType::Decimal
                | CqlType::Double
                | CqlType::Float
                | CqlType::Inet
                | CqlType::Int
                | CqlType::Timestamp
                | CqlType::Timeuuid
                | CqlType::Uuid
                | CqlType::Varint
        )
    }

    /// True if values have an order, so that the type may be a clustering column or a set element
    /// (`checkComparable`): all but `counter`. `duration` is refused by its own rule,
    /// [`CqlType::contains_duration`].
    pub fn is_comparable(&self) -> bool {
        !self.is_counter()
    }

    /// True if unsigned byte order is the type's order (`isByteOrderComparable`).
    pub fn is_byte_order_comparable(&self) -> bool {
        matches!(
            self,
            CqlType::Ascii
                | CqlType::Blob
                | CqlType::Date
                | CqlType::Duration
                | CqlType::Inet
                | CqlType::Text
                | CqlType::Time
        )
    }

    /// True if the type is `duration` or has it somewhere inside (`referencesDuration`). Vectors and
    /// types by the name of a class count as having none, as in Cassandra: their order is that of
    /// the bytes of durations.
    pub fn contains_duration(&self) -> bool {
        match self {
            CqlType::Duration => true,
            CqlType::Vector { .. } => false,
            ty => ty.sub_types().into_iter().any(CqlType::contains_duration),
        }
    }

    /// True if the type is or has inside the user type of that name (of any keyspace, as Cassandra
    /// looks at the name only).
    pub fn references_udt(&self, name: &str) -> bool {
        self.any(&mut |t| matches!(t, CqlType::Udt(udt) if &*udt.name == name))
    }

    /// True if some user type occurs in the type.
    pub fn contains_udt(&self) -> bool {
        self.any(&mut CqlType::is_udt)
    }

    /// True if `predicate` holds for the type or one inside it.
    pub fn any(&self, predicate: &mut dyn FnMut(&CqlType) -> bool) -> bool {
        if predicate(self) {
            return true;
        }
        match self {
            CqlType::List { element, .. }
            | CqlType::Set { element, .. }
            | CqlType::Vector { element, .. } => element.any(predicate),
            CqlType::Map { key, value, .. } => key.any(predicate) || value.any(predicate),
            CqlType::Tuple(fields) => fields.iter().any(|t| t.any(predicate)),
            CqlType::Udt(udt) => udt.fields.iter().any(|(_, t)| t.any(predicate)),
            _ => false,
        }
    }

    /// The type with every occurrence of the user type (same keyspace and name) replaced by the new
    /// definition, each occurrence keeping its own frozen mark (`withUpdatedUserType`).
    #[must_use]
    pub fn with_updated_udt(&self, new: &UdtType) -> CqlType {
        match self {
            CqlType::List { element, frozen } => {
                CqlType::list(element.with_updated_udt(new), *frozen)
            }
            CqlType::Set { element, frozen } => {
                CqlType::set(element.with_updated_udt(new), *frozen)
            }
            CqlType::Map { key, value, frozen } => {
                CqlType::map(key.with_updated_udt(new), value.with_updated_udt(new), *frozen)
            }
            CqlType::Tuple(fields) => {
                CqlType::Tuple(fields.iter().map(|t| t.with_updated_udt(new)).collect())
            }
            CqlType::Udt(udt) if udt.name == new.name && udt.keyspace == new.keyspace => {
                CqlType::Udt(Arc::new(UdtType { frozen: udt.frozen, ..new.clone() }))
            }
            CqlType::Udt(udt) => CqlType::Udt(Arc::new(UdtType {
                fields: udt
                    .fields
                    .iter()
                    .map(|(n, t)| (n.clone(), t.with_updated_udt(new)))
                    .collect(),
                ..(**udt).clone()
            })),
            CqlType::Vector { element, dimension } => {
                CqlType::vector(element.with_updated_udt(new), *dimension)
            }
            other => other.clone(),
        }
    }

    /// The type with each user type replaced by the tuple of its fields (`expandUserTypes`), as
    /// dropped columns keep it.
    #[must_use]
    pub fn expand_udts(&self) -> CqlType {
        match self {
            CqlType::List { element, frozen } => CqlType::list(element.expand_udts(), *frozen),
            CqlType::Set { element, frozen } => CqlType::set(element.expand_udts(), *frozen),
            CqlType::Map { key, value, frozen } => {
                CqlType::map(key.expand_udts(), value.expand_udts(), *frozen)
            }
            CqlType::Tuple(fields) => CqlType::tuple(fields.iter().map(CqlType::expand_udts)),
            CqlType::Udt(udt) => CqlType::tuple(udt.fields.iter().map(|(_, t)| t.expand_udts())),
            other => other.clone(),
        }
    }

    /// Direct parts: element, key and value, or fields. Empty for simple types.
    pub fn sub_types(&self) -> Vec<&CqlType> {
        match self {
            CqlType::List { element, .. }
            | CqlType::Set { element, .. }
            | CqlType::Vector { element, .. } => vec![element],
            CqlType::Map { key, value, .. } => vec![key, value],
            CqlType::Tuple(fields) => fields.iter().collect(),
            CqlType::Udt(udt) => udt.fields.iter().map(|(_, t)| t).collect(),
            _ => Vec::new(),
        }
    }
}
