//! Mutations that can be written: the limits that every SSTable version of a node has.
//!
//! A mutation is checked once, where it enters a replica, so that every memtable can be flushed. The
//! limits of lengths are those of the narrowest length field: two bytes for a partition key, and for the values
//! of a clustering, which Statistics.db before `oa` holds. Cassandra limits the values of a clustering together
//! (`Clustering.validate`, `QueryOptions`: "Key length of … is longer than maximum of 65535").

use stdx::TimestampMicros;

use crate::clustering::components;
use crate::mutation::MutationRef;

/// Most bytes of the values of one clustering, or of a prefix or bound, together.
pub const CLUSTERING_BYTES_MAX: usize = 65_535;

/// Limits that depend on the SSTable versions a node writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteLimits {
    /// Deletions of partitions and ranges may have a timestamp below 0. Since `oa` the sign bit of such a
    /// timestamp marks a partition as not deleted.
    pub negative_deletions: bool,
}

impl WriteLimits {
    /// The limits of lengths only.
    pub const LENGTHS: WriteLimits = WriteLimits { negative_deletions: true };
}

/// Why no SSTable can hold a mutation. The first text is Cassandra's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unwritable {
    /// The values of a clustering or bound are too long.
    #[error("Key length of {bytes} is longer than maximum of {CLUSTERING_BYTES_MAX}")]
    Clustering {
        /// All of its values together.
        bytes: usize,
    },
    /// The deletion of a partition or a range has a timestamp below 0.
    #[error(
        "a deletion of a partition or of a range of rows cannot have the timestamp {}: SSTables of version \"oa\" \
         and later cannot hold a negative one", .timestamp.0
    )]
    NegativeDeletion {
        /// Its timestamp.
        timestamp: TimestampMicros,
    },
}

/// Bytes of the values of a serialised clustering, prefix or bound, together.
pub fn value_bytes(prefix: &[u8]) -> usize {
    components(prefix).flatten().map(<[u8]>::len).sum()
}

/// Checks the values of a serialised clustering, prefix or bound.
///
/// # Errors
/// `Clustering` when they are longer than [`CLUSTERING_BYTES_MAX`] together.
#[inline]
pub fn check_prefix(prefix: &[u8]) -> Result<(), Unwritable> {
    // The serialised form is never shorter than its values.
    if prefix.len() <= CLUSTERING_BYTES_MAX {
        return Ok(());
    }
    match value_bytes(prefix) {
        0..=CLUSTERING_BYTES_MAX => Ok(()),
        bytes => Err(Unwritable::Clustering { bytes }),
    }
}

/// Checks a mutation that was opened, and parsed if it came from outside.
///
/// # Errors
/// What of it no SSTable could hold.
#[inline]
pub fn check(mutation: &MutationRef<'_>, limits: WriteLimits) -> Result<(), Unwritable> {
    // No part of it is longer than the whole.
    if limits.negative_deletions && mutation.bytes().len() <= CLUSTERING_BYTES_MAX {
        return Ok(());
    }
    check_parts(mutation, limits)
}

fn check_parts(mutation: &MutationRef<'_>, limits: WriteLimits) -> Result<(), Unwritable> {
    let check_deletion = |deletion: crate::DeletionTime| match deletion.timestamp {
        timestamp if timestamp.0 < 0 && !limits.negative_deletions && !deletion.is_live() => {
            Err(Unwritable::NegativeDeletion { timestamp })
        }
        _ => Ok(()),
    };
    check_deletion(mutation.deletion)?;
    for (clustering, _) in mutation.rows() {
        check_prefix(clustering)?;
    }
    for tombstone in mutation.range_tombstones() {
        check_deletion(tombstone.deletion)?;
        check_prefix(tombstone.start.prefix)?;
        check_prefix(tombstone.end.prefix)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use stdx::{DeletionSeconds, TableId, Uuid};

    use super::*;
    use crate::clustering::BoundRef;
    use crate::mutation::{MutationBuilder, RangeTombstoneRef};
    use crate::{ClusteringBuf, DeletionTime, RowRef};

    const POSITIVE_ONLY: WriteLimits = WriteLimits { negative_deletions: false };

    fn clustering(lengths: &[usize]) -> Vec<u8> {
        let values: Vec<Vec<u8>> = lengths.iter().map(|n| vec![b'x'; *n]).collect();
        ClusteringBuf::from_components(values.iter().map(Vec::as_slice)).0
    }

    fn deletion(timestamp: i64) -> DeletionTime {
        DeletionTime { timestamp: TimestampMicros(timestamp), local: DeletionSeconds(1) }
    }

    /// The check of a mutation with a deletion of the partition, rows and range tombstones.
    fn checked(
        limits: WriteLimits,
        whole: Option<i64>,
        rows: &[Vec<u8>],
        ranges: &[(Vec<u8>, Vec<u8>, i64)],
    ) -> Result<(), Unwritable> {
        let mut out = Vec::new();
        let mut builder = MutationBuilder::new(&mut out, TableId(Uuid::nil()), 1, b"key");
        if let Some(timestamp) = whole {
            builder.deletion(deletion(timestamp));
        }
        let row = RowRef::trusted(&[0]);
        builder.rows(rows.iter().map(|clustering| (clustering.as_slice(), row)));
        builder.range_tombstones(ranges.iter().map(|(start, end, timestamp)| RangeTombstoneRef {
            start: BoundRef { prefix: start, after: false },
            end: BoundRef { prefix: end, after: true },
            deletion: deletion(*timestamp),
        }));
        builder.finish();
        check(&MutationRef::open(&out).unwrap(), limits)
    }

    #[test]
    fn values_of_a_clustering_take_65535_bytes_together_and_no_more() {
        for (lengths, bytes) in [
            (&[65_535][..], 65_535),
            (&[65_536], 65_536),
            (&[32_767, 32_768], 65_535),
            (&[32_768, 32_768], 65_536),
            (&[0, 65_535], 65_535),
            (&[70_000], 70_000),
        ] {
            let long = clustering(lengths);
            assert_eq!(value_bytes(&long), bytes);
            let expected = match bytes {
                ..=65_535 => Ok(()),
                _ => Err(Unwritable::Clustering { bytes }),
            };
            let limits = WriteLimits::LENGTHS;
            let short = clustering(&[3]);
            assert_eq!(check_prefix(&long), expected);
            assert_eq!(checked(limits, None, &[short.clone(), long.clone()], &[]), expected);
            let (from, to) = ((long.clone(), short.clone(), 1), (short.clone(), long.clone(), 1));
            assert_eq!(checked(limits, None, &[], &[from]), expected, "a start");
            assert_eq!(checked(limits, None, &[short], &[to]), expected, "an end");
        }
        let told = Unwritable::Clustering { bytes: 70_000 }.to_string();
        assert_eq!(told, "Key length of 70000 is longer than maximum of 65535");
    }

    #[test]
    fn a_negative_deletion_passes_only_where_files_can_hold_it() {
        let range = |timestamp| (clustering(&[1]), clustering(&[2]), timestamp);
        for (timestamp, is_negative) in [(0, false), (-1, true), (i64::MIN + 1, true)] {
            let expected = match is_negative {
                true => Err(Unwritable::NegativeDeletion { timestamp: TimestampMicros(timestamp) }),
                false => Ok(()),
            };
            assert_eq!(checked(POSITIVE_ONLY, Some(timestamp), &[], &[]), expected);
            assert_eq!(checked(POSITIVE_ONLY, None, &[], &[range(timestamp)]), expected);
            assert_eq!(checked(WriteLimits::LENGTHS, Some(timestamp), &[], &[]), Ok(()));
        }
        assert_eq!(checked(POSITIVE_ONLY, None, &[clustering(&[5])], &[]), Ok(()));
    }
}
