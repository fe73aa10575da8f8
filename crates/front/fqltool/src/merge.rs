//! Records of several sources in the order of their start, with a bounded read-ahead.
//!
//! Within a log, records are in the order in which requests ended, and each shard writes batches: a record may be
//! after one that began later. Up to [`READ_AHEAD`] records or [`READ_AHEAD_BYTES`] of each source are sorted (Cassandra's
//! tool: 200 records).

use query_log::{LoggedStatement, LoggedValue, QueryRecord};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Records of a source that are in memory.
pub const READ_AHEAD: usize = 20_000;
/// Bytes of records of a source that are in memory; at least one record is.
pub const READ_AHEAD_BYTES: usize = 64 << 20;

/// A record by its start, then by its position in its source.
struct Ahead {
    key: (i64, u64),
    bytes: usize,
    record: QueryRecord,
}

impl PartialEq for Ahead {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}
impl Eq for Ahead {}
impl PartialOrd for Ahead {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Ahead {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

/// A source and its records in memory.
struct Sorted<S> {
    source: S,
    ahead: BinaryHeap<Reverse<Ahead>>,
    bytes: usize,
    count: u64,
    is_at_end: bool,
}

impl<E, S: FnMut() -> Result<Option<QueryRecord>, E>> Sorted<S> {
    fn fill(&mut self) -> Result<(), E> {
        while !self.is_at_end
            && self.ahead.len() < READ_AHEAD
            && (self.ahead.is_empty() || self.bytes < READ_AHEAD_BYTES)
        {
            match (self.source)()? {
                None => self.is_at_end = true,
                Some(record) => {
                    let bytes = bytes_of(&record);
                    let key = (record.start_millis, self.count);
                    self.count += 1;
                    self.bytes += bytes;
                    self.ahead.push(Reverse(Ahead { key, bytes, record }));
                }
            }
        }
        Ok(())
    }

    fn first(&self) -> Option<i64> {
        self.ahead.peek().map(|Reverse(ahead)| ahead.key.0)
    }

    fn take(&mut self) -> Option<QueryRecord> {
        let Reverse(ahead) = self.ahead.pop()?;
        self.bytes -= ahead.bytes;
        Some(ahead.record)
    }
}

/// Records of several sources in the order of their start. INV-fqltool-1.
pub struct Merge<S> {
    sources: Vec<Sorted<S>>,
}

impl<E, S: FnMut() -> Result<Option<QueryRecord>, E>> Merge<S> {
    /// Merges sources.
    pub fn new(sources: impl IntoIterator<Item = S>) -> Merge<S> {
        let sorted = |source| Sorted {
            source,
            ahead: BinaryHeap::new(),
            bytes: 0,
            count: 0,
            is_at_end: false,
        };
        Merge { sources: sources.into_iter().map(sorted).collect() }
    }

    /// Returns the record that began first; of several, the one of the first source.
    ///
    /// # Errors
    /// That of a source.
    pub fn next_record(&mut self) -> Result<Option<QueryRecord>, E> {
        for source in &mut self.sources {
            source.fill()?;
        }
        let firsts = self.sources.iter().enumerate();
        let first = firsts.filter_map(|(index, source)| Some((source.first()?, index))).min();
        Ok(first.and_then(|(_, index)| self.sources.get_mut(index)?.take()))
    }
}

/// Bytes of a record in memory, about.
fn bytes_of(record: &QueryRecord) -> usize {
    let statement = match &record.statement {
        LoggedStatement::Single { query } => query.len(),
        LoggedStatement::Batch { queries, .. } => {
            let values = queries.iter().flat_map(|one| &one.values).map(|value| match value {
                LoggedValue::Bytes(bytes) => bytes.len() + 32,
                LoggedValue::Null | LoggedValue::Unset => 32,
            });
            queries.iter().map(|one| one.query.len() + 48).sum::<usize>() + values.sum::<usize>()
        }
    };
    200 + record.options.len() + statement
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::tests::record;

    fn merged(sources: Vec<Vec<QueryRecord>>) -> Vec<String> {
        let sources = sources.into_iter().map(|records| {
            let mut records = records.into_iter();
            move || Ok::<_, ()>(records.next())
        });
        let mut merge = Merge::new(sources);
        let mut texts = Vec::new();
        while let Some(record) = merge.next_record().unwrap() {
            let LoggedStatement::Single { query } = record.statement else { panic!() };
            texts.push(query);
        }
        texts
    }

    #[test]
    fn records_of_all_sources_come_by_their_start_and_equal_ones_as_they_were_written() {
        let first = vec![record(5, "e"), record(1, "a"), record(3, "c"), record(3, "d")];
        let second = vec![record(2, "b"), record(3, "d2"), record(9, "f")];
        assert_eq!(merged(vec![first, second]), ["a", "b", "c", "d", "d2", "e", "f"]);
        assert_eq!(merged(vec![vec![], vec![record(1, "x")]]), ["x"]);
    }

    /// INV-fqltool-1.
    #[test]
    fn the_read_ahead_is_bounded_in_records_and_in_bytes() {
        let mut asked = 0;
        let mut merge = Merge::new([|| {
            asked += 1;
            Ok::<_, ()>(Some(record(1, "x")))
        }]);
        merge.next_record().unwrap();
        drop(merge);
        assert_eq!(asked, READ_AHEAD);
        let mut asked = 0;
        let mut merge = Merge::new([|| {
            asked += 1;
            Ok::<_, ()>(Some(record(1, &"x".repeat(1 << 20))))
        }]);
        merge.next_record().unwrap();
        drop(merge);
        assert_eq!(asked, READ_AHEAD_BYTES >> 20);
    }
}
