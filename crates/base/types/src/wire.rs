//! Wire forms of collections, tuples and vectors, as iterators over borrowed bytes and as builders.
//!
//! - list, set: i32 count, then per element an i32 length (negative: null) and the bytes;
//! - map: i32 entry count, then key and value of each entry in the same form;
//! - tuple, user type: per field an i32 length (negative: null) and the bytes; trailing fields may
//!   be missing;
//! - vector: elements without lengths if the element type has a fixed length, else each with an
//!   unsigned vint length.
//!
//! Source: `serializers.CollectionSerializer`, `TupleType.buildValue`, `VectorType`.

use codec::Reader;

use crate::{CqlType, TypeError};

/// Kind of collection, for the error text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollectionKind {
    /// List.
    List,
    /// Set.
    Set,
    /// Map.
    Map,
}

impl CollectionKind {
    /// Lower-case name as in Cassandra's messages.
    pub fn name(self) -> &'static str {
        match self {
            CollectionKind::List => "list",
            CollectionKind::Set => "set",
            CollectionKind::Map => "map",
        }
    }

    pub(crate) fn too_short(self) -> TypeError {
        TypeError::Marshal(format!("Not enough bytes to read a {}", self.name()))
    }
}

/// Splits an i32-length-prefixed value off the front. `None`: the bytes are missing. `Some(None)`:
/// null (negative length).
#[inline]
pub(crate) fn split_value<'a>(rest: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    let (len, after) = rest.split_first_chunk::<4>()?;
    let len = i32::from_be_bytes(*len);
    let Ok(len) = usize::try_from(len) else {
        *rest = after;
        return Some(None);
    };
    let (value, after) = after.split_at_checked(len)?;
    *rest = after;
    Some(Some(value))
}

/// Elements of a list or set, or keys and values of a map in turn.
///
/// Ends after the first error. After the last element nothing may follow: left-over bytes are an
/// error too.
#[derive(Clone, Debug)]
pub struct Elements<'a> {
    rest: &'a [u8],
    /// Values still to read; `None` once an error was reported.
    left: Option<u64>,
    count: usize,
    kind: CollectionKind,
}

impl<'a> Elements<'a> {
    /// Reads the count.
    ///
    /// # Errors
    /// Fewer than four bytes. A negative count is read as zero elements, as Cassandra's loops do.
    pub fn new(bytes: &'a [u8], kind: CollectionKind) -> Result<Elements<'a>, TypeError> {
        let (count, rest) = bytes.split_first_chunk::<4>().ok_or_else(|| kind.too_short())?;
        let count = u64::try_from(i32::from_be_bytes(*count)).unwrap_or(0);
        let values = if kind == CollectionKind::Map { count.saturating_mul(2) } else { count };
        Ok(Elements {
            rest,
            left: Some(values),
            count: usize::try_from(count).unwrap_or(usize::MAX),
            kind,
        })
    }

    /// The declared count of elements (entries of a map). Not checked against the bytes: do not
    /// allocate by it.
    pub fn declared_count(&self) -> usize {
        self.count
    }

    /// Bytes after the last element that was returned.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next value without an error text. `None`: all values are read, or the bytes end.
    #[inline]
    pub(crate) fn next_quiet(&mut self) -> Option<Option<&'a [u8]>> {
        let left = self.left.and_then(|left| left.checked_sub(1))?;
        let value = split_value(&mut self.rest);
        self.left = value.is_some().then_some(left);
        value
    }
}

impl<'a> Iterator for Elements<'a> {
    /// `None` inside is a null element.
    type Item = Result<Option<&'a [u8]>, TypeError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match self.left {
            None => None,
            Some(0) => {
                self.left = None;
                (!self.rest.is_empty()).then(|| {
                    Err(TypeError::Marshal(format!(
                        "Unexpected extraneous bytes after {} value",
                        self.kind.name()
                    )))
                })
            }
            Some(n) => match split_value(&mut self.rest) {
                Some(value) => {
                    self.left = Some(n.saturating_sub(1));
                    Some(Ok(value))
                }
                None => {
                    self.left = None;
                    Some(Err(self.kind.too_short()))
                }
            },
        }
    }
}

/// Entries of a serialised map.
#[derive(Clone, Debug)]
pub struct Entries<'a>(Elements<'a>);

impl<'a> Entries<'a> {
    /// Reads the count.
    ///
    /// # Errors
    /// Fewer than four bytes.
    pub fn new(bytes: &'a [u8]) -> Result<Entries<'a>, TypeError> {
        Ok(Entries(Elements::new(bytes, CollectionKind::Map)?))
    }
}

impl<'a> Iterator for Entries<'a> {
    /// Key and value; null is an error in both.
    type Item = Result<(&'a [u8], &'a [u8]), TypeError>;

    fn next(&mut self) -> Option<Self::Item> {
        let key = self.0.next()?;
        let value = self.0.next();
        let pair = match (key, value) {
            (Err(error), _) | (_, Some(Err(error))) => Err(error),
            (Ok(Some(key)), Some(Ok(Some(value)))) => Ok((key, value)),
            (Ok(_), Some(Ok(_))) => Err(null_element()),
            (Ok(_), None) => Err(CollectionKind::Map.too_short()),
        };
        if pair.is_err() {
            self.0.left = None;
        }
        Some(pair)
    }
}

pub(crate) fn null_element() -> TypeError {
    TypeError::marshal("Null value read when not allowed")
}

/// Fields of a serialised tuple or user type: exactly `count` items, `None` for a null or missing
/// field. Ends after the first error.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    rest: &'a [u8],
    index: usize,
    count: usize,
}

impl<'a> Fields<'a> {
    /// Fields of a type with `count` fields.
    pub fn new(bytes: &'a [u8], count: usize) -> Fields<'a> {
        Fields { rest: bytes, index: 0, count }
    }

    /// Bytes after the last field that was returned.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Option<&'a [u8]>, TypeError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.index >= self.count {
            return None;
        }
        let i = self.index;
        self.index = self.index.saturating_add(1);
        if self.rest.is_empty() {
            return Some(Ok(None));
        }
        let sized = self.rest.len() >= 4;
        match split_value(&mut self.rest) {
            Some(field) => Some(Ok(field)),
            None => {
                self.index = self.count;
                let what = if sized { "" } else { "size of " };
                Some(Err(TypeError::Marshal(format!(
                    "Not enough bytes to read {what}{i}th component"
                ))))
            }
        }
    }
}

/// Elements of a serialised vector: exactly `dimension` items unless the bytes end early. Ends after
/// the first error. Bytes after the last element are left in [`VectorElements::rest`].
#[derive(Clone, Debug)]
pub struct VectorElements<'a> {
    rest: &'a [u8],
    fixed: Option<usize>,
    left: u32,
}

impl<'a> VectorElements<'a> {
    /// Elements of a vector of `dimension` values of type `element`.
    pub fn new(bytes: &'a [u8], element: &CqlType, dimension: u32) -> VectorElements<'a> {
        VectorElements::with_fixed_len(bytes, element.fixed_len(), dimension)
    }

    pub(crate) fn with_fixed_len(
        bytes: &'a [u8],
        fixed: Option<usize>,
        dimension: u32,
    ) -> VectorElements<'a> {
        VectorElements { rest: bytes, fixed, left: dimension }
    }

    /// Bytes after the last element that was returned.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next element without an error text. `None`: the bytes end or the vector does.
    #[inline]
    pub(crate) fn next_quiet(&mut self) -> Option<&'a [u8]> {
        self.left = self.left.checked_sub(1)?;
        let split = match self.fixed {
            Some(len) => self.rest.split_at_checked(len),
            None => {
                let mut reader = Reader::new(self.rest, "vector element");
                reader.bytes_vint().ok().map(|element| (element, reader.rest()))
            }
        };
        match split {
            Some((element, rest)) => {
                self.rest = rest;
                Some(element)
            }
            None => {
                self.left = 0;
                None
            }
        }
    }
}

impl<'a> Iterator for VectorElements<'a> {
    type Item = Result<&'a [u8], TypeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        Some(
            self.next_quiet()
                .ok_or_else(|| TypeError::marshal("Not enough bytes to read a vector element")),
        )
    }
}

/// Appends an i32-length-prefixed value; null is length -1.
///
/// # Errors
/// A value of 2 GiB or more.
pub fn put_value(out: &mut Vec<u8>, value: Option<&[u8]>) -> Result<(), TypeError> {
    match value {
        None => out.extend_from_slice(&(-1i32).to_be_bytes()),
        Some(value) => {
            let len = i32::try_from(value.len())
                .map_err(|_| TypeError::marshal("value is larger than 2 GiB"))?;
            out.extend_from_slice(&len.to_be_bytes());
            out.extend_from_slice(value);
        }
    }
    Ok(())
}

/// A list or set of the elements in the order given (a set's caller sorts and removes duplicates).
///
/// # Errors
/// An element of 2 GiB or more, or more than i32::MAX elements.
pub fn encode_collection<V: AsRef<[u8]>>(
    elements: impl IntoIterator<Item = V>,
) -> Result<Vec<u8>, TypeError> {
    let mut out = vec![0; 4];
    let mut count = 0usize;
    for element in elements {
        put_value(&mut out, Some(element.as_ref()))?;
        count = count.saturating_add(1);
    }
    set_count(&mut out, count)?;
    Ok(out)
}

/// A map of the entries in the order given (the caller sorts by key).
///
/// # Errors
/// A key or value of 2 GiB or more, or more than i32::MAX entries.
pub fn encode_map<K: AsRef<[u8]>, V: AsRef<[u8]>>(
    entries: impl IntoIterator<Item = (K, V)>,
) -> Result<Vec<u8>, TypeError> {
    let mut out = vec![0; 4];
    let mut count = 0usize;
    for (key, value) in entries {
        put_value(&mut out, Some(key.as_ref()))?;
        put_value(&mut out, Some(value.as_ref()))?;
        count = count.saturating_add(1);
    }
    set_count(&mut out, count)?;
    Ok(out)
}

fn set_count(out: &mut Vec<u8>, count: usize) -> Result<(), TypeError> {
    let count = i32::try_from(count)
        .map_err(|_| TypeError::marshal("a collection has more than 2147483647 elements"))?;
    codec::Writer::patch_u32(out, 0, count.cast_unsigned());
    Ok(())
}

/// A tuple or user type value; `None` is a null field.
///
/// # Errors
/// A field of 2 GiB or more.
pub fn encode_tuple<V: AsRef<[u8]>>(
    fields: impl IntoIterator<Item = Option<V>>,
) -> Result<Vec<u8>, TypeError> {
    let mut out = Vec::new();
    for field in fields {
        put_value(&mut out, field.as_ref().map(AsRef::as_ref))?;
    }
    Ok(out)
}

/// A vector value of elements of type `element`.
///
/// # Errors
/// Not `dimension` elements, or one of them is not of the fixed length of its type.
pub fn encode_vector<V: AsRef<[u8]>>(
    element: &CqlType,
    dimension: u32,
    elements: impl IntoIterator<Item = V>,
) -> Result<Vec<u8>, TypeError> {
    let fixed = element.fixed_len();
    let mut out = Vec::new();
    let mut count = 0u64;
    for value in elements {
        let value = value.as_ref();
        match fixed {
            Some(len) if value.len() != len => {
                return Err(TypeError::Marshal(format!(
                    "Element at index {count} is null (expected type {})",
                    element.to_cql_name()
                )));
            }
            Some(_) => {}
            None => put_vint_unsigned(&mut out, u64::try_from(value.len()).unwrap_or(u64::MAX)),
        }
        out.extend_from_slice(value);
        count = count.saturating_add(1);
    }
    if count != u64::from(dimension) {
        return Err(TypeError::Marshal(format!("Required {dimension} elements, but saw {count}")));
    }
    Ok(out)
}

/// Appends Cassandra's unsigned vint: leading one-bits of the first byte count the bytes after it.
pub(crate) fn put_vint_unsigned(out: &mut Vec<u8>, value: u64) {
    let bits = 64u32.saturating_sub(value.leading_zeros()).max(1);
    let extra = bits.saturating_sub(1) / 7;
    if extra >= 8 {
        out.push(0xff);
        out.extend_from_slice(&value.to_be_bytes());
        return;
    }
    // `extra` one-bits, a zero bit, then the value, in extra + 1 bytes.
    let marker = !(0xffu8.checked_shr(extra).unwrap_or(0));
    let bytes = value.to_be_bytes();
    let skip = 7usize.saturating_sub(usize::try_from(extra).unwrap_or(0));
    let mut tail = bytes.iter().skip(skip);
    out.push(tail.next().copied().unwrap_or(0) | marker);
    out.extend(tail);
}

/// Appends Cassandra's signed (zigzag) vint.
pub(crate) fn put_vint_signed(out: &mut Vec<u8>, value: i64) {
    put_vint_unsigned(out, ((value << 1) ^ (value >> 63)).cast_unsigned());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsigned_vints_read_back() {
        for value in
            [0, 1, 127, 128, 16383, 16384, u64::from(u32::MAX), (1 << 56) - 1, 1 << 56, u64::MAX]
        {
            let mut out = Vec::new();
            put_vint_unsigned(&mut out, value);
            let mut reader = Reader::new(&out, "test");
            assert_eq!(reader.vint_unsigned().ok(), Some(value));
            assert!(reader.is_empty(), "{value}");
        }
        for value in [0, 1, -1, 63, -64, 64, i64::MIN, i64::MAX] {
            let mut out = Vec::new();
            put_vint_signed(&mut out, value);
            assert_eq!(Reader::new(&out, "test").vint_signed().ok(), Some(value));
        }
    }

    #[test]
    fn collections_read_back_and_left_over_bytes_are_refused() {
        let mut bytes = encode_collection([b"ab".as_slice(), b""]).unwrap_or_default();
        assert_eq!(bytes, [0, 0, 0, 2, 0, 0, 0, 2, b'a', b'b', 0, 0, 0, 0]);
        let read = |bytes: &[u8]| -> Result<Vec<Option<Vec<u8>>>, TypeError> {
            Elements::new(bytes, CollectionKind::List)?
                .map(|e| Ok(e?.map(<[u8]>::to_vec)))
                .collect()
        };
        assert_eq!(read(&bytes), Ok(vec![Some(b"ab".to_vec()), Some(Vec::new())]));
        assert_eq!(
            read(&bytes[..bytes.len() - 1]),
            Err(TypeError::marshal("Not enough bytes to read a list"))
        );
        bytes.push(0);
        assert_eq!(
            read(&bytes),
            Err(TypeError::marshal("Unexpected extraneous bytes after list value"))
        );
    }

    #[test]
    fn a_tuple_may_end_early_and_its_missing_fields_are_null() {
        let bytes = encode_tuple([Some(b"x".as_slice()), None]).unwrap_or_default();
        let fields: Vec<_> = Fields::new(&bytes, 3).collect();
        assert_eq!(fields, [Ok(Some(b"x".as_slice())), Ok(None), Ok(None)]);
    }

    #[test]
    fn vectors_store_lengths_only_for_variable_elements() {
        let ints = encode_vector(&CqlType::Int, 2, [1i32.to_be_bytes(), 2i32.to_be_bytes()]);
        assert_eq!(ints, Ok(vec![0, 0, 0, 1, 0, 0, 0, 2]));
        let texts = encode_vector(&CqlType::Text, 2, ["a", "bc"]);
        assert_eq!(texts, Ok(vec![1, b'a', 2, b'b', b'c']));
        assert!(encode_vector(&CqlType::Text, 3, ["a", "bc"]).is_err());
    }
}
