//! Canonical form of indexed values: two values are equal in CQL exactly if their forms are equal bytes.
//!
//! The entries of a value are one partition, which is found by bytes. Equality in CQL is not always that of bytes: a
//! boolean is true for any byte but zero, a varint may have leading sign bytes, all NaN are equal.

use types::CqlType;

/// How values of a type become canonical.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CanonicalForm {
    /// Equal values have equal bytes.
    Unchanged,
    /// One byte, 0 or 1.
    Boolean,
    /// All NaN have the bits of Java's `Float.NaN`.
    Float,
    /// All NaN have the bits of Java's `Double.NaN`.
    Double,
    /// The shortest two's-complement number.
    Varint,
}

impl CanonicalForm {
    /// The form of a type's values. `None`: equality of the type has no form here.
    pub fn of_type(ty: &CqlType) -> Option<CanonicalForm> {
        match ty {
            CqlType::Ascii
            | CqlType::Bigint
            | CqlType::Blob
            | CqlType::Date
            | CqlType::Inet
            | CqlType::Int
            | CqlType::Smallint
            | CqlType::Text
            | CqlType::Time
            | CqlType::Timestamp
            | CqlType::Timeuuid
            | CqlType::Tinyint
            | CqlType::Uuid => Some(CanonicalForm::Unchanged),
            CqlType::Boolean => Some(CanonicalForm::Boolean),
            CqlType::Float => Some(CanonicalForm::Float),
            CqlType::Double => Some(CanonicalForm::Double),
            CqlType::Varint => Some(CanonicalForm::Varint),
            // Decimals of one value differ in scale; the others contain values of any type.
            CqlType::Decimal
            | CqlType::Counter
            | CqlType::Duration
            | CqlType::Empty
            | CqlType::List { .. }
            | CqlType::Set { .. }
            | CqlType::Map { .. }
            | CqlType::Tuple(_)
            | CqlType::Udt(_)
            | CqlType::Vector { .. }
            | CqlType::Custom(_) => None,
        }
    }

    /// The canonical bytes of a value. Empty values, and bytes that are no value of the type, stay as they are.
    pub fn apply(self, value: &[u8]) -> Vec<u8> {
        match self {
            CanonicalForm::Unchanged => value.to_vec(),
            CanonicalForm::Boolean => match value {
                [byte] => vec![u8::from(*byte != 0)],
                other => other.to_vec(),
            },
            CanonicalForm::Float => match <[u8; 4]>::try_from(value) {
                Ok(bytes) if f32::from_be_bytes(bytes).is_nan() => {
                    0x7fc0_0000_u32.to_be_bytes().to_vec()
                }
                _ => value.to_vec(),
            },
            CanonicalForm::Double => match <[u8; 8]>::try_from(value) {
                Ok(bytes) if f64::from_be_bytes(bytes).is_nan() => {
                    0x7ff8_0000_0000_0000_u64.to_be_bytes().to_vec()
                }
                _ => value.to_vec(),
            },
            CanonicalForm::Varint => shortest(value).to_vec(),
        }
    }
}

/// A two's-complement number without the leading bytes that only repeat its sign.
fn shortest(mut number: &[u8]) -> &[u8] {
    while let [first, rest @ ..] = number
        && let Some(next) = rest.first()
        && ((*first == 0 && *next < 0x80) || (*first == 0xff && *next >= 0x80))
    {
        number = rest;
    }
    number
}
