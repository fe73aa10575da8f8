//! Clusterings and bounds in Cassandra's serialised form, to and from `data`'s.
//!
//! Values go in batches of 32: a vint with two bits per value (bit 0 = empty, bit 1 = null), then
//! the values present, fixed-width ones without a length. A bound has its kind and its count of
//! values in front. Source: `db.ClusteringPrefix.Serializer`, `db.ClusteringBoundOrBoundary`.

use codec::{Reader, Writer};
use data::clustering::{components, push_component};
use data::{BoundRef, Marker};

use crate::{FormatError, Result};

/// Most clustering columns of a table that the format can hold in a bound's count.
pub const CLUSTERING_COLUMNS_MAX: usize = u16::MAX as usize;

/// Length of the values of each clustering column, `None` = variable.
pub type ClusteringLengths = [Option<usize>];

/// `ClusteringPrefix.Kind`, by ordinal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PrefixKind {
    /// An end that leaves out what has the prefix.
    ExclusiveEnd = 0,
    /// A start that takes it in.
    InclusiveStart = 1,
    /// One deletion ends before the prefix, another starts with it.
    ExclusiveEndInclusiveStart = 2,
    /// The static row's clustering; not in files.
    Static = 3,
    /// A row's clustering.
    Clustering = 4,
    /// One deletion ends with the prefix, another starts after it.
    InclusiveEndExclusiveStart = 5,
    /// An end that takes in what has the prefix.
    InclusiveEnd = 6,
    /// A start after it.
    ExclusiveStart = 7,
}

impl PrefixKind {
    /// The kind of that ordinal; the static and unknown ones are refused.
    pub fn from_ordinal(ordinal: u8) -> Option<PrefixKind> {
        Some(match ordinal {
            0 => PrefixKind::ExclusiveEnd,
            1 => PrefixKind::InclusiveStart,
            2 => PrefixKind::ExclusiveEndInclusiveStart,
            4 => PrefixKind::Clustering,
            5 => PrefixKind::InclusiveEndExclusiveStart,
            6 => PrefixKind::InclusiveEnd,
            7 => PrefixKind::ExclusiveStart,
            _ => return None,
        })
    }

    /// Returns true if the position is after everything with the prefix (before it otherwise).
    pub fn is_after(self) -> bool {
        matches!(
            self,
            PrefixKind::InclusiveEnd
                | PrefixKind::ExclusiveStart
                | PrefixKind::InclusiveEndExclusiveStart
        )
    }

    /// One deletion ends and another begins.
    pub fn is_boundary(self) -> bool {
        matches!(
            self,
            PrefixKind::ExclusiveEndInclusiveStart | PrefixKind::InclusiveEndExclusiveStart
        )
    }

    /// A deletion begins here.
    pub fn is_start(self) -> bool {
        self.is_boundary()
            || matches!(self, PrefixKind::InclusiveStart | PrefixKind::ExclusiveStart)
    }

    /// A deletion ends here.
    pub fn is_end(self) -> bool {
        self.is_boundary() || matches!(self, PrefixKind::InclusiveEnd | PrefixKind::ExclusiveEnd)
    }

    /// The kind of a marker. `None` when it neither closes nor opens.
    pub fn of_marker(marker: &Marker<'_>) -> Option<PrefixKind> {
        let after = marker.position.after;
        Some(match (marker.close.is_some(), marker.open.is_some(), after) {
            (true, true, false) => PrefixKind::ExclusiveEndInclusiveStart,
            (true, true, true) => PrefixKind::InclusiveEndExclusiveStart,
            (true, false, false) => PrefixKind::ExclusiveEnd,
            (true, false, true) => PrefixKind::InclusiveEnd,
            (false, true, false) => PrefixKind::InclusiveStart,
            (false, true, true) => PrefixKind::ExclusiveStart,
            (false, false, _) => return None,
        })
    }
}

/// Reads `count` values and appends them to `out` in `data`'s form.
///
/// # Errors
/// `Truncated`; `Invalid` when the table has fewer clustering columns.
#[inline]
pub fn decode_values(
    r: &mut Reader<'_>,
    count: usize,
    lengths: &ClusteringLengths,
    out: &mut Vec<u8>,
) -> std::result::Result<(), codec::DecodeError> {
    let Some(lengths) = lengths.get(..count) else {
        return Err(r.invalid(i64::try_from(count).unwrap_or(i64::MAX)));
    };
    for batch in lengths.chunks(32) {
        let mut header = r.vint_unsigned()?;
        for fixed in batch {
            let value = match header & 3 {
                0 => Some(match fixed {
                    Some(n) => r.bytes(*n)?,
                    None => r.bytes_vint()?,
                }),
                1 => Some(&[][..]),
                _ => None,
            };
            push_component(out, value);
            header >>= 2;
        }
    }
    Ok(())
}

/// Appends the values of a prefix in `data`'s form.
///
/// # Errors
/// `ValueLength` for a value that its fixed-width type cannot have; `TooLarge` for more values
/// than clustering columns.
pub fn encode_values(
    prefix: &[u8],
    lengths: &ClusteringLengths,
    out: &mut Vec<u8>,
) -> Result<usize> {
    let start = out.len();
    if let Some(done) = encode_usual_values(prefix, lengths, out) {
        return Ok(done);
    }
    out.truncate(start);
    let mut left = components(prefix);
    let mut done = 0usize;
    for batch in lengths.chunks(32) {
        let mut header = 0u64;
        let mut in_batch = 0usize;
        for (i, value) in left.take(batch.len()).enumerate() {
            let bits = match value {
                None => 2,
                Some([]) => 1,
                Some(_) => 0u64,
            };
            header |= bits << (i & 31).wrapping_mul(2);
            in_batch = in_batch.saturating_add(1);
        }
        if in_batch == 0 {
            break;
        }
        out.put_vint_unsigned(header);
        for (fixed, value) in batch.iter().zip(left.by_ref().take(in_batch)) {
            match (fixed, value) {
                (_, None | Some([])) => {}
                (Some(n), Some(v)) if v.len() != *n => {
                    return Err(FormatError::ValueLength { length: v.len(), expected: *n });
                }
                (Some(_), Some(v)) => out.put_bytes(v),
                (None, Some(v)) => out.put_bytes_vint(v),
            }
        }
        done = done.saturating_add(in_batch);
    }
    if left.next().is_some() {
        return Err(FormatError::TooLarge { what: "clustering" });
    }
    Ok(done)
}

/// [`encode_values`] of up to 32 values, none of them missing or empty, all of the required length.
/// `None`: another form; the appended bytes are then meaningless.
#[inline]
fn encode_usual_values(
    prefix: &[u8],
    lengths: &ClusteringLengths,
    out: &mut Vec<u8>,
) -> Option<usize> {
    if prefix.is_empty() {
        return Some(0);
    }
    if lengths.len() > 32 {
        return None;
    }
    // Two bits a value, none set.
    out.put_u8(0);
    let mut done = 0usize;
    for value in components(prefix) {
        match (lengths.get(done)?, value?) {
            (_, []) => return None,
            (Some(n), value) if value.len() != *n => return None,
            (Some(_), value) => out.put_bytes(value),
            (None, value) => out.put_bytes_vint(value),
        }
        done = done.saturating_add(1);
    }
    Some(done)
}

/// Reads the count and values of a bound whose kind was read, into `out` (emptied first).
///
/// # Errors
/// Those of [`decode_values`].
pub fn decode_bound_values(
    r: &mut Reader<'_>,
    lengths: &ClusteringLengths,
    out: &mut Vec<u8>,
) -> std::result::Result<(), codec::DecodeError> {
    out.clear();
    let count = usize::from(r.u16()?);
    decode_values(r, count, lengths, out)
}

/// Appends kind, count and values of a bound.
///
/// # Errors
/// Those of [`encode_values`].
pub fn encode_bound(
    kind: PrefixKind,
    prefix: &[u8],
    lengths: &ClusteringLengths,
    out: &mut Vec<u8>,
) -> Result<()> {
    out.put_u8(kind as u8);
    let at = out.len();
    out.put_u16(0);
    let count = encode_values(prefix, lengths, out)?;
    let count = u16::try_from(count).map_err(|_| FormatError::TooLarge { what: "clustering" })?;
    out.patch_u16(at, count);
    Ok(())
}

/// A prefix with its kind, as index entries hold it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// Its kind.
    pub kind: PrefixKind,
    /// Values in `data`'s form.
    pub values: Vec<u8>,
}

impl Prefix {
    /// Returns the prefix as a position. A row's clustering is the position just before it.
    pub fn bound(&self) -> BoundRef<'_> {
        BoundRef { prefix: &self.values, after: self.kind.is_after() }
    }

    /// Reads one.
    ///
    /// # Errors
    /// `Truncated`, `Invalid` kind.
    pub fn decode(
        r: &mut Reader<'_>,
        lengths: &ClusteringLengths,
        reuse: &mut Prefix,
    ) -> std::result::Result<(), codec::DecodeError> {
        let ordinal = r.u8()?;
        reuse.kind =
            PrefixKind::from_ordinal(ordinal).ok_or_else(|| r.invalid(i64::from(ordinal)))?;
        if reuse.kind == PrefixKind::Clustering {
            reuse.values.clear();
            decode_values(r, lengths.len(), lengths, &mut reuse.values)
        } else {
            decode_bound_values(r, lengths, &mut reuse.values)
        }
    }

    /// Appends it.
    ///
    /// # Errors
    /// Those of [`encode_values`].
    pub fn encode(&self, lengths: &ClusteringLengths, out: &mut Vec<u8>) -> Result<()> {
        if self.kind != PrefixKind::Clustering {
            return encode_bound(self.kind, &self.values, lengths, out);
        }
        out.put_u8(self.kind as u8);
        encode_values(&self.values, lengths, out).map(|_| ())
    }
}

impl Default for Prefix {
    fn default() -> Self {
        Prefix { kind: PrefixKind::Clustering, values: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_every_shape_come_back_over_several_batches() {
        let mut prefix = Vec::new();
        let mut lengths = Vec::new();
        for i in 0..70usize {
            let value = [i as u8; 4];
            match i % 4 {
                0 => push_component(&mut prefix, Some(&value)),
                1 => push_component(&mut prefix, Some(b"")),
                2 => push_component(&mut prefix, None),
                _ => push_component(&mut prefix, Some(&value[..3])),
            }
            lengths.push((i % 4 == 0).then_some(4));
        }
        let mut out = Vec::new();
        assert_eq!(encode_values(&prefix, &lengths, &mut out).unwrap(), 70);
        let mut r = Reader::new(&out, "clustering");
        let mut back = Vec::new();
        decode_values(&mut r, 70, &lengths, &mut back).unwrap();
        r.finish().unwrap();
        assert_eq!(back, prefix);
    }

    #[test]
    fn a_short_bound_has_its_count_and_a_wrong_width_is_refused() {
        let lengths = [Some(4), None];
        let mut prefix = Vec::new();
        push_component(&mut prefix, Some(&[0, 0, 0, 1]));
        let mut out = Vec::new();
        encode_bound(PrefixKind::InclusiveEnd, &prefix, &lengths, &mut out).unwrap();
        assert_eq!(out, [6, 0, 1, 0, 0, 0, 0, 1]);
        let mut back = Prefix::default();
        Prefix::decode(&mut Reader::new(&out, "bound"), &lengths, &mut back).unwrap();
        assert_eq!(back, Prefix { kind: PrefixKind::InclusiveEnd, values: prefix });
        let mut wrong = Vec::new();
        push_component(&mut wrong, Some(&[1]));
        assert_eq!(
            encode_values(&wrong, &lengths, &mut out),
            Err(FormatError::ValueLength { length: 1, expected: 4 })
        );
    }

    fn marker(after: bool, closes: bool, opens: bool) -> Marker<'static> {
        let deletion = data::DeletionTime {
            timestamp: stdx::TimestampMicros(1),
            local: stdx::DeletionSeconds(1),
        };
        Marker {
            position: BoundRef { prefix: &[], after },
            close: closes.then_some(deletion),
            open: opens.then_some(deletion),
        }
    }

    #[test]
    fn marker_kinds_say_side_and_what_ends_and_begins() {
        for after in [false, true] {
            for (closes, opens) in [(true, false), (false, true), (true, true)] {
                let kind = PrefixKind::of_marker(&marker(after, closes, opens)).unwrap();
                assert_eq!(
                    (kind.is_after(), kind.is_end(), kind.is_start()),
                    (after, closes, opens)
                );
                assert_eq!(PrefixKind::from_ordinal(kind as u8), Some(kind));
            }
        }
        assert_eq!(PrefixKind::of_marker(&marker(true, false, false)), None);
        assert_eq!(PrefixKind::from_ordinal(3), None);
        assert_eq!(PrefixKind::from_ordinal(8), None);
    }
}
