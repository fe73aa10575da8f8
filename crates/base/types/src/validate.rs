//! Checks that bytes are a value of a type, with the texts of Cassandra's `MarshalException`s.

use crate::duration::Duration;
use crate::wire::{CollectionKind, Elements, Fields, VectorElements, null_element, split_value};
use crate::{CqlType, TypeError, UdtType};

/// Deepest nesting of a type that values are checked for. The CQL parser refuses such types long
/// before; a type from a foreign file could be deeper.
pub(crate) const DEPTH_MAX: u32 = 128;

impl CqlType {
    /// Checks that `bytes` are a value of the type.
    ///
    /// Empty bytes are a value of the types of [`CqlType::allows_empty_value`]. A counter is checked
    /// as the 64-bit number the client sees, not as the context stored in cells.
    ///
    /// # Errors
    /// `Marshal` with Cassandra's text.
    pub fn validate(&self, bytes: &[u8]) -> Result<(), TypeError> {
        self.validate_at(bytes, 0)
    }

    /// Checks that `bytes` are a value that a client may send for the type: as [`CqlType::validate`],
    /// and no count of elements is below zero, neither of a collection nor of one among its elements.
    /// Inside tuples, user types and vectors such a collection is an empty one.
    ///
    /// Source: `Lists.Value.fromSerialized` and its like, which read a collection and its elements,
    /// while `validate` alone reads tuples and their like.
    ///
    /// # Errors
    /// `Marshal` with Cassandra's text.
    pub fn validate_bound(&self, bytes: &[u8]) -> Result<(), TypeError> {
        match self.as_collection() {
            Some(collection) => collection.read(bytes, 0),
            None => self.validate(bytes),
        }
    }

    /// The kind of a collection and the types of its elements in turn.
    fn as_collection(&self) -> Option<Collection<'_>> {
        match self {
            CqlType::List { element, .. } => {
                Some(Collection { kind: CollectionKind::List, types: [element, element] })
            }
            CqlType::Set { element, .. } => {
                Some(Collection { kind: CollectionKind::Set, types: [element, element] })
            }
            CqlType::Map { key, value, .. } => {
                Some(Collection { kind: CollectionKind::Map, types: [key, value] })
            }
            _ => None,
        }
    }

    pub(crate) fn validate_at(&self, bytes: &[u8], depth: u32) -> Result<(), TypeError> {
        if depth > DEPTH_MAX {
            return Err(TypeError::marshal("value is nested too deep"));
        }
        let depth = depth.saturating_add(1);
        let len = bytes.len();
        let refuse = |text: String| Err(TypeError::Marshal(text));
        match self {
            CqlType::Blob | CqlType::Varint => {}
            CqlType::Custom(custom) => custom.validate(bytes, depth)?,
            CqlType::Ascii => {
                if let Some(bad) = bytes.iter().find(|b| !b.is_ascii()) {
                    return refuse(format!("Invalid byte for ascii: {}", bad.cast_signed()));
                }
            }
            CqlType::Text => {
                if !is_cassandra_text(bytes) {
                    return refuse("String didn't validate.".to_owned());
                }
            }
            CqlType::Boolean if len > 1 => {
                return refuse(format!("Expected 1 or 0 byte value ({len})"));
            }
            CqlType::Tinyint if len != 1 => {
                return refuse(format!("Expected 1 byte for a tinyint ({len})"));
            }
            CqlType::Smallint if len != 2 => {
                return refuse(format!("Expected 2 bytes for a smallint ({len})"));
            }
            CqlType::Int if len != 4 && len != 0 => {
                return refuse(format!("Expected 4 or 0 byte int ({len})"));
            }
            CqlType::Bigint | CqlType::Counter if len != 8 && len != 0 => {
                return refuse(format!("Expected 8 or 0 byte long ({len})"));
            }
            CqlType::Timestamp if len != 8 && len != 0 => {
                return refuse(format!("Expected 8 or 0 byte long for date ({len})"));
            }
            CqlType::Float if len != 4 && len != 0 => {
                return refuse(format!("Expected 4 or 0 byte value for a float ({len})"));
            }
            CqlType::Double if len != 8 && len != 0 => {
                return refuse(format!("Expected 8 or 0 byte value for a double ({len})"));
            }
            CqlType::Decimal if len != 0 && len < 4 => {
                return refuse(format!("Expected 0 or at least 4 bytes ({len})"));
            }
            CqlType::Date if len != 4 => {
                return refuse(format!("Expected 4 byte long for date ({len})"));
            }
            CqlType::Time if len != 8 => {
                return refuse(format!("Expected 8 byte long for time ({len})"));
            }
            CqlType::Inet if len != 0 && len != 4 && len != 16 => {
                let mut hex = String::new();
                crate::marshal::push_hex(&mut hex, bytes);
                return refuse(format!("Expected 4 or 16 byte inetaddress; got {hex}"));
            }
            CqlType::Uuid if len != 16 && len != 0 => {
                return refuse(format!("UUID should be 16 or 0 bytes ({len})"));
            }
            CqlType::Timeuuid => return validate_timeuuid(bytes),
            CqlType::Empty if len != 0 => {
                return refuse("EmptyType only accept empty values".to_owned());
            }
            CqlType::Duration => {
                Duration::from_bytes(bytes)?;
            }
            CqlType::Boolean
            | CqlType::Tinyint
            | CqlType::Smallint
            | CqlType::Int
            | CqlType::Bigint
            | CqlType::Counter
            | CqlType::Timestamp
            | CqlType::Float
            | CqlType::Double
            | CqlType::Decimal
            | CqlType::Date
            | CqlType::Time
            | CqlType::Inet
            | CqlType::Uuid
            | CqlType::Empty => {}
            CqlType::List { .. } | CqlType::Set { .. } | CqlType::Map { .. } => {
                if let Some(collection) = self.as_collection() {
                    collection.validate(bytes, depth)?;
                }
            }
            CqlType::Tuple(types) => {
                let mut fields = Fields::new(bytes, types.len());
                for (ty, field) in types.iter().zip(&mut fields) {
                    if let Some(field) = field? {
                        ty.validate_at(field, depth)?;
                    }
                }
                if !fields.rest().is_empty() {
                    return refuse("Invalid remaining data after end of tuple value".to_owned());
                }
            }
            CqlType::Udt(udt) => validate_udt(udt, bytes, depth)?,
            CqlType::Vector { element, dimension } => {
                self.validate_vector(bytes, element, *dimension, depth)?;
            }
        }
        Ok(())
    }

    fn validate_vector(
        &self,
        bytes: &[u8],
        element: &CqlType,
        dimension: u32,
        depth: u32,
    ) -> Result<(), TypeError> {
        let too_short =
            || TypeError::Marshal(format!("Not enough bytes to read a {}", self.to_cql_name()));
        if bytes.is_empty() {
            return Err(TypeError::marshal("Invalid empty vector value"));
        }
        if self.fixed_len().is_some_and(|len| bytes.len() < len) {
            return Err(too_short());
        }
        let mut elements = VectorElements::new(bytes, element, dimension);
        for _ in 0..dimension {
            // Without bytes for an element nothing more can follow: ends a vector of 2^31 `empty`.
            let value = elements.next_quiet().ok_or_else(too_short)?;
            element.validate_at(value, depth)?;
            if element.fixed_len() == Some(0) {
                break;
            }
        }
        let left = elements.rest().len();
        if left > 0 {
            return Err(TypeError::Marshal(format!(
                "Unexpected {left} extraneous bytes after {} value",
                self.to_cql_name()
            )));
        }
        Ok(())
    }
}

/// A collection type: of maps the types of key and value, else one type twice.
struct Collection<'a> {
    kind: CollectionKind,
    types: [&'a CqlType; 2],
}

impl Collection<'_> {
    /// Checks every element. A count below zero is none, as for Cassandra's `validate`.
    fn validate(&self, bytes: &[u8], depth: u32) -> Result<(), TypeError> {
        self.each(bytes, |ty, element| ty.validate_at(element, depth))
    }

    /// Like [`Collection::validate`], for values that clients send. Each element is checked, and
    /// then, if it is a collection, read, before the next one.
    fn read(&self, bytes: &[u8], depth: u32) -> Result<(), TypeError> {
        if depth > DEPTH_MAX {
            return Err(TypeError::marshal("value is nested too deep"));
        }
        let depth = depth.saturating_add(1);
        if bytes.len() >= 4 && bytes.first().is_some_and(|byte| byte & 0x80 != 0) {
            let text = format!("The data cannot be deserialized as a {}", self.kind.name());
            return Err(TypeError::Marshal(text));
        }
        self.each(bytes, |ty, element| {
            ty.validate_at(element, depth)?;
            ty.as_collection().map_or(Ok(()), |inner| inner.read(element, depth))
        })
    }

    fn each(
        &self,
        bytes: &[u8],
        check: impl Fn(&CqlType, &[u8]) -> Result<(), TypeError>,
    ) -> Result<(), TypeError> {
        let mut types = self.types.iter().cycle();
        for element in Elements::new(bytes, self.kind)? {
            let element = element?.ok_or_else(null_element)?;
            if let Some(ty) = types.next() {
                check(ty, element)?;
            }
        }
        Ok(())
    }
}

fn validate_udt(udt: &UdtType, bytes: &[u8], depth: u32) -> Result<(), TypeError> {
    let mut rest = bytes;
    for (i, (name, ty)) in udt.fields.iter().enumerate() {
        if rest.is_empty() {
            return Ok(());
        }
        let sized = rest.len() >= 4;
        let Some(field) = split_value(&mut rest) else {
            let what = if sized { "" } else { "size of " };
            return Err(TypeError::Marshal(format!(
                "Not enough bytes to read {what}{i}th field {name}"
            )));
        };
        if let Some(field) = field {
            ty.validate_at(field, depth).map_err(|error| {
                TypeError::Marshal(format!("Failure validating the {i}th field {name}; {error}"))
            })?;
        }
    }
    if rest.is_empty() {
        Ok(())
    } else {
        Err(TypeError::marshal("Invalid remaining data after end of UDT value"))
    }
}

fn validate_timeuuid(bytes: &[u8]) -> Result<(), TypeError> {
    if bytes.is_empty() || crate::timeuuid::is_timeuuid(bytes) {
        return Ok(());
    }
    if bytes.len() != 16 {
        return Err(TypeError::Marshal(format!("UUID should be 16 or 0 bytes ({})", bytes.len())));
    }
    // Cassandra prints the first half-byte here, not the version.
    let shown = bytes.first().map_or(0, |b| b >> 4);
    Err(TypeError::Marshal(format!("Invalid version for TimeUUID type: 0x{shown:x}")))
}

/// True for bytes that Cassandra accepts as text: UTF-8, and more that its validator accepts
/// (surrogates, `C0 80` for NUL, some wrong second bytes after `E0`, lead bytes up to `F7`). Old
/// clients have stored such bytes, so they must stay valid.
///
/// Source: `UTF8Serializer.UTF8Validator`.
fn is_cassandra_text(bytes: &[u8]) -> bool {
    if std::str::from_utf8(bytes).is_ok() {
        return true;
    }
    let continuation = |b: u8| b & 0xc0 == 0x80;
    let mut rest = bytes.iter().copied();
    while let Some(lead) = rest.next() {
        let (second_ok, more): (fn(u8) -> bool, u8) = match lead {
            0..0x80 => continue,
            0xc0 => (|b| b == 0x80, 0),
            0xc2..0xe0 => (|b| b & 0xc0 == 0x80, 0),
            0xe0 => (|b| b & 0xe0 != 0x80, 1),
            0xe1..0xf0 => (|b| b & 0xc0 == 0x80, 1),
            0xf0 => (|b| b & 0x30 != 0, 2),
            0xf1..0xf8 => (|b| b & 0xc0 == 0x80, 2),
            0x80..0xc0 | 0xc1 | 0xf8..=0xff => return false,
        };
        if !rest.next().is_some_and(second_ok) {
            return false;
        }
        for _ in 0..more {
            if !rest.next().is_some_and(continuation) {
                return false;
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn refused(ty: &CqlType, bytes: &[u8], text: &str) {
        assert_eq!(ty.validate(bytes), Err(TypeError::marshal(text)), "{ty} {bytes:?}");
    }

    #[test]
    fn wrong_lengths_are_refused_with_cassandras_texts() {
        refused(&CqlType::Int, &[0; 6], "Expected 4 or 0 byte int (6)");
        refused(&CqlType::Bigint, &[0; 4], "Expected 8 or 0 byte long (4)");
        refused(&CqlType::Tinyint, &[], "Expected 1 byte for a tinyint (0)");
        refused(&CqlType::Smallint, &[0], "Expected 2 bytes for a smallint (1)");
        refused(&CqlType::Boolean, &[0, 0], "Expected 1 or 0 byte value (2)");
        refused(&CqlType::Decimal, &[0], "Expected 0 or at least 4 bytes (1)");
        refused(&CqlType::Date, &[], "Expected 4 byte long for date (0)");
        refused(&CqlType::Inet, &[1, 2, 3], "Expected 4 or 16 byte inetaddress; got 010203");
        refused(&CqlType::Uuid, &[0], "UUID should be 16 or 0 bytes (1)");
        refused(&CqlType::Ascii, &[b'a', 0xff], "Invalid byte for ascii: -1");
        refused(&CqlType::Text, &[0xff], "String didn't validate.");
        refused(&CqlType::Timeuuid, &[0; 16], "Invalid version for TimeUUID type: 0x0");
        for ty in crate::testing::simple_types() {
            assert_eq!(
                ty.validate(&[]).is_ok(),
                ty.allows_empty_value() || ty == CqlType::Empty,
                "{ty}"
            );
        }
    }

    #[test]
    fn text_that_only_cassandras_validator_takes_stays_valid() {
        for ok in [&[0xc0, 0x80][..], &[0xed, 0xa0, 0x80], "aé€😀".as_bytes()] {
            assert_eq!(CqlType::Text.validate(ok), Ok(()), "{ok:?}");
        }
        for bad in
            [&[0xc0, 0x81][..], &[0xc1, 0x80], &[0x80], &[0xe2, 0x82], &[0xf0, 0x80, 0x80, 0x80]]
        {
            assert!(CqlType::Text.validate(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn what_clients_send_has_no_count_below_zero_in_a_collection() {
        let check = |ty: CqlType, bytes: &[u8], kind: &str| {
            assert_eq!(ty.validate(bytes), Ok(()), "{ty}");
            let refusal = (!kind.is_empty()).then(|| {
                TypeError::Marshal(format!("The data cannot be deserialized as a {kind}"))
            });
            assert_eq!(ty.validate_bound(bytes).err(), refusal, "{ty} {bytes:?}");
        };
        let list = || CqlType::list(CqlType::Int, true);
        let map = || CqlType::map(CqlType::Int, CqlType::Int, true);
        let inner = [0, 0, 0, 1, 0, 0, 0, 4, 0xff, 0xff, 0xff, 0xff];
        for bytes in [[0xff; 4], [0x80, 0, 0, 0]] {
            check(list(), &bytes, "list");
            check(CqlType::set(CqlType::Int, false), &bytes, "set");
            check(map(), &bytes, "map");
        }
        check(CqlType::list(map(), false), &inner, "map");
        check(CqlType::set(list(), true), &inner, "list");
        let entry = [&[0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 9][..], &inner[4..]].concat();
        check(CqlType::map(CqlType::Int, list(), true), &entry, "list");
        check(
            CqlType::list(CqlType::tuple([list()]), true),
            &[&[0, 0, 0, 1, 0, 0, 0, 8], &inner[4..]].concat(),
            "",
        );
        check(CqlType::tuple([list()]), &inner[4..], "");
        check(CqlType::vector(list(), 1), &[4, 0xff, 0xff, 0xff, 0xff], "");
        // The error of an element is reported before the error of the count.
        let two = CqlType::list(list(), true);
        let behind = TypeError::marshal("Unexpected extraneous bytes after list value");
        assert_eq!(
            two.validate_bound(&[0, 0, 0, 1, 0, 0, 0, 5, 0xff, 0xff, 0xff, 0xff, 0]),
            Err(behind)
        );
        let count = TypeError::marshal("The data cannot be deserialized as a list");
        assert_eq!(list().validate_bound(&[0xff, 0xff, 0xff, 0xff, 0]), Err(count));
    }

    #[test]
    fn nested_values_are_checked_to_the_leaves() {
        let list = CqlType::list(CqlType::Int, true);
        assert_eq!(list.validate(&[0, 0, 0, 0]), Ok(()));
        refused(&list, &[], "Not enough bytes to read a list");
        assert_eq!(list.validate(&[0xff; 4]), Ok(()));
        refused(&list, &[0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff], "Null value read when not allowed");
        refused(&list, &[0, 0, 0, 1, 0, 0, 0, 1, 9], "Expected 4 or 0 byte int (1)");
        refused(&list, &[0, 0, 0, 0, 9], "Unexpected extraneous bytes after list value");
        let tuple = CqlType::tuple([CqlType::Int, CqlType::Text]);
        assert_eq!(tuple.validate(&[0xff, 0xff, 0xff, 0xff]), Ok(()));
        refused(&tuple, &[0, 0, 0], "Not enough bytes to read size of 0th component");
        refused(&tuple, &[0, 0, 0, 4, 1], "Not enough bytes to read 0th component");
        let udt = CqlType::Udt(Arc::new(UdtType {
            keyspace: "k".into(),
            name: "t".into(),
            fields: vec![("f".to_owned(), CqlType::Int)],
            frozen: true,
        }));
        refused(
            &udt,
            &[0, 0, 0, 1, 9],
            "Failure validating the 0th field f; Expected 4 or 0 byte int (1)",
        );
        refused(
            &udt,
            &[0xff, 0xff, 0xff, 0xff, 1],
            "Invalid remaining data after end of UDT value",
        );
        let vector = CqlType::vector(CqlType::Float, 2);
        assert_eq!(vector.validate(&[0; 8]), Ok(()));
        refused(&vector, &[], "Invalid empty vector value");
        refused(&vector, &[0; 4], "Not enough bytes to read a vector<float, 2>");
        refused(&vector, &[0; 9], "Unexpected 1 extraneous bytes after vector<float, 2> value");
        assert_eq!(CqlType::vector(CqlType::Text, 2).validate(&[1, b'a', 0]), Ok(()));
    }
}
