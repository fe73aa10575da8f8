//! Values of CQL as terms: bytes whose unsigned order is that of the values.
//!
//! Text, ascii, blob and inet are their own terms, which keeps prefixes; other types have the byte-comparable forms of
//! [`sst_format::byte_order`], decimals and varints in full, so that equal values have equal terms and others never.
//! An entry of a map is the escaped term of its key, then the term of its value.

use sst_format::byte_order;
use types::CqlType;

use crate::analysis::Analysis;
use crate::writer::TERM_BYTES_MAX;

/// Indexed part of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The value as a whole: a column without a collection, a frozen value, a part of a primary key.
    Whole,
    /// Keys of a map.
    Keys,
    /// Elements of a list or set, values of a map.
    Values,
    /// Pairs of key and value of a map.
    Entries,
}

/// Outcome of encoding a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoded {
    /// Its term was appended.
    Term,
    /// The first [`TERM_BYTES_MAX`] bytes of its term were appended: as a bound they must be included, and a match is
    /// none before the row was checked.
    Cut,
    /// The value is empty where its type gives that no meaning: it has no entry.
    Skipped,
    /// The bytes are no value of the type.
    Invalid,
}

/// A type or target that has no terms.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no index terms for {target:?} of this type")]
pub struct NoTerms {
    /// The target.
    pub target: Target,
}

#[derive(Clone, Debug)]
enum Shape {
    Value(CqlType),
    /// Types of the cell's path and of its value; the term is of the path.
    Path(CqlType),
    Entry(CqlType, CqlType),
}

/// Encodes terms of one index.
#[derive(Clone, Debug)]
pub struct TermEncoder {
    shape: Shape,
    text: Analysis,
    /// Empty values have no term, whatever their type.
    skips_empty: bool,
}

impl TermEncoder {
    /// An encoder for a target of a column of this type.
    ///
    /// # Errors
    /// The target does not fit the type, or the type has no order in bytes: counter, duration.
    pub fn new(
        ty: &CqlType,
        target: Target,
        text: impl Into<Analysis>,
    ) -> Result<TermEncoder, NoTerms> {
        let shape = match (target, ty) {
            (Target::Whole, _) if !ty.is_multi_cell() => Shape::Value(ty.clone()),
            (Target::Values, CqlType::List { element, .. }) => Shape::Value((**element).clone()),
            (Target::Values, CqlType::Set { element, .. }) => Shape::Path((**element).clone()),
            (Target::Values, CqlType::Map { value, .. }) => Shape::Value((**value).clone()),
            (Target::Keys, CqlType::Map { key, .. }) => Shape::Path((**key).clone()),
            (Target::Entries, CqlType::Map { key, value, .. }) => {
                Shape::Entry((**key).clone(), (**value).clone())
            }
            _ => return Err(NoTerms { target }),
        };
        let is_ordered = |ty: &CqlType| {
            !ty.any(&mut |ty| matches!(ty, CqlType::Counter | CqlType::Duration | CqlType::Empty))
        };
        let is_possible = match &shape {
            Shape::Value(ty) | Shape::Path(ty) => is_ordered(ty),
            Shape::Entry(key, value) => is_ordered(key) && is_ordered(value),
        };
        let text = text.into();
        match is_possible {
            true => Ok(TermEncoder { shape, text, skips_empty: false }),
            false => Err(NoTerms { target }),
        }
    }

    /// The encoder of an index that has no entries of empty values.
    #[must_use]
    pub fn without_empty(self) -> TermEncoder {
        TermEncoder { skips_empty: true, ..self }
    }

    /// Calls `each` with the terms of a cell: one at most, or those of its tokens.
    pub fn visit_cell(
        &self,
        path: &[u8],
        value: &[u8],
        scratch: &mut Vec<u8>,
        mut each: impl FnMut(&[u8]),
    ) {
        if !self.text.has_tokens() {
            scratch.clear();
            if let Encoded::Term | Encoded::Cut = self.cell(path, value, scratch) {
                each(scratch);
            }
            return;
        }
        let text = match &self.shape {
            Shape::Value(CqlType::Text | CqlType::Ascii) => value,
            Shape::Path(CqlType::Text | CqlType::Ascii) => path,
            Shape::Value(_) | Shape::Path(_) | Shape::Entry(..) => return,
        };
        let Ok(text) = std::str::from_utf8(text) else { return };
        self.text.visit(text, scratch, |term| {
            each(term.get(..TERM_BYTES_MAX).unwrap_or(term));
            true
        });
    }

    /// Appends the term of a cell: its path in a collection, else empty, and its value.
    pub fn cell(&self, path: &[u8], value: &[u8], out: &mut Vec<u8>) -> Encoded {
        match &self.shape {
            Shape::Value(_) => self.value(value, out),
            Shape::Path(_) => self.value(path, out),
            Shape::Entry(..) => self.entry(path, value, out),
        }
    }

    /// Appends the term of what a query compares with: the value, an element, a key.
    pub fn value(&self, value: &[u8], out: &mut Vec<u8>) -> Encoded {
        let start = out.len();
        let encoded = match &self.shape {
            Shape::Value(_) | Shape::Path(_) if self.skips_empty && value.is_empty() => {
                Encoded::Skipped
            }
            Shape::Value(ty) | Shape::Path(ty) => put(ty, self.text, value, out),
            Shape::Entry(..) => Encoded::Invalid,
        };
        finish(encoded, start, out)
    }

    /// Appends the term of an entry of a map.
    pub fn entry(&self, key: &[u8], value: &[u8], out: &mut Vec<u8>) -> Encoded {
        let start = out.len();
        let Shape::Entry(key_type, value_type) = &self.shape else { return Encoded::Invalid };
        let mut part = Vec::new();
        let mut encoded = put(key_type, self.text, key, &mut part);
        if encoded == Encoded::Term {
            escape(&part, out);
            encoded = put(value_type, self.text, value, out);
        }
        finish(encoded, start, out)
    }
}

fn finish(encoded: Encoded, start: usize, out: &mut Vec<u8>) -> Encoded {
    match encoded {
        Encoded::Term | Encoded::Cut if out.len() - start > TERM_BYTES_MAX => {
            out.truncate(start + TERM_BYTES_MAX);
            Encoded::Cut
        }
        Encoded::Term | Encoded::Cut => Encoded::Term,
        Encoded::Skipped | Encoded::Invalid => {
            out.truncate(start);
            encoded
        }
    }
}

/// Zero bytes become two, 0 and 255, and two zeros end the bytes: no escaped term begins another.
fn escape(term: &[u8], out: &mut Vec<u8>) {
    for byte in term {
        out.push(*byte);
        if *byte == 0 {
            out.push(0xff);
        }
    }
    out.extend([0, 0]);
}

fn put(ty: &CqlType, text: Analysis, value: &[u8], out: &mut Vec<u8>) -> Encoded {
    let ordered = match ty {
        CqlType::Ascii | CqlType::Text => {
            let Ok(value) = std::str::from_utf8(value) else { return Encoded::Invalid };
            text.filter(value, out);
            return Encoded::Term;
        }
        CqlType::Blob | CqlType::Inet => {
            if value.is_empty() && *ty == CqlType::Inet {
                return Encoded::Skipped;
            }
            out.extend_from_slice(value);
            return Encoded::Term;
        }
        _ if ty.validate(value).is_err() => None,
        // Not-a-numbers of all bit patterns are equal.
        CqlType::Float if as_f32(value).is_some_and(f32::is_nan) => {
            byte_order::value(ty, &f32::NAN.to_be_bytes(), out)
        }
        CqlType::Double if as_f64(value).is_some_and(f64::is_nan) => {
            byte_order::value(ty, &f64::NAN.to_be_bytes(), out)
        }
        _ => byte_order::value(ty, value, out),
    };
    match ordered {
        Some(true) => Encoded::Term,
        Some(false) => Encoded::Skipped,
        None => Encoded::Invalid,
    }
}

fn as_f32(value: &[u8]) -> Option<f32> {
    value.try_into().ok().map(f32::from_be_bytes)
}

fn as_f64(value: &[u8]) -> Option<f64> {
    value.try_into().ok().map(f64::from_be_bytes)
}
