//! Bounds of the expansion of one statement: a statement of 100 kB can name a hundred million rows.
//!
//! Owns: [`Combinations`], which counts keys and clusterings of IN relations while they are built, and
//! [`WriteSize`], which measures a statement's writes before they are encoded. Never: builds either.
//!
//! INV-expansion-1: the limit is checked before the memory is used.

use crate::error::PlanError;

/// Most bytes of the keys or clustering prefixes that the IN relations of one statement are combined to.
pub(crate) const COMBINATIONS_BYTES_MAX: usize = 32 << 20;

/// Bytes that one combination takes beside its values.
const COMBINATION_OVERHEAD: usize = 48;

/// Bytes that one row or range takes in an encoded mutation beside its clustering and cells.
const ROW_OVERHEAD: usize = 8;

/// Keys or prefixes that are being combined.
#[derive(Debug)]
pub(crate) struct Combinations {
    bytes: usize,
    bytes_max: usize,
}

impl Combinations {
    /// Starts with no combinations.
    pub(crate) fn new() -> Combinations {
        Combinations { bytes: 0, bytes_max: COMBINATIONS_BYTES_MAX }
    }

    /// Counts one of this many bytes.
    ///
    /// # Errors
    /// Invalid: together they are too large.
    pub(crate) fn add(&mut self, bytes: usize) -> Result<(), PlanError> {
        self.bytes = self.bytes.saturating_add(bytes).saturating_add(COMBINATION_OVERHEAD);
        if self.bytes <= self.bytes_max {
            return Ok(());
        }
        Err(PlanError::invalid(format!(
            "the combinations of the values of the IN restrictions take more than {} bytes",
            self.bytes_max
        )))
    }
}

/// Size of a statement's writes so far, never more than its encoded mutations have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteSize {
    bytes: usize,
    bytes_max: usize,
}

impl WriteSize {
    /// Starts with no writes.
    pub(crate) fn new(bytes_max: usize) -> WriteSize {
        WriteSize { bytes: 0, bytes_max }
    }

    /// Adds `count` parts of this many bytes each.
    ///
    /// # Errors
    /// Invalid, in the words of Cassandra's commit log: the statement writes too much.
    pub(crate) fn add(&mut self, bytes: usize, count: usize) -> Result<(), PlanError> {
        self.bytes = self.bytes.saturating_add(bytes.saturating_mul(count));
        if self.bytes <= self.bytes_max {
            return Ok(());
        }
        Err(PlanError::invalid(format!(
            "Mutation of {} bytes is too large for the maximum size of {}",
            self.bytes, self.bytes_max
        )))
    }

    /// Like [`WriteSize::add`], for one row or range.
    ///
    /// # Errors
    /// Those of [`WriteSize::add`].
    pub(crate) fn add_row(&mut self, clustering: usize, content: usize) -> Result<(), PlanError> {
        self.add(clustering.saturating_add(content).saturating_add(ROW_OVERHEAD), 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn combinations_are_refused_when_their_bytes_reach_the_limit() {
        let mut combinations = Combinations::new();
        let one = COMBINATIONS_BYTES_MAX / 4 - COMBINATION_OVERHEAD;
        for _ in 0..4 {
            combinations.add(one).unwrap();
        }
        let error = combinations.add(0).unwrap_err();
        assert!(error.message.ends_with("take more than 33554432 bytes"), "{}", error.message);
    }

    /// INV-expansion-1.
    #[test]
    fn a_write_is_refused_at_the_first_byte_above_the_limit() {
        let mut size = WriteSize::new(1000);
        size.add(100, 9).unwrap();
        size.add_row(50, 42).unwrap();
        assert_eq!(size.bytes, 1000);
        let error = size.add(1, 1).unwrap_err();
        let expected = "Mutation of 1001 bytes is too large for the maximum size of 1000";
        assert_eq!(error.message, expected);
        assert!(WriteSize::new(1000).add(usize::MAX, 2).is_err());
    }
}
