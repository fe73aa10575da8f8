//! Warnings of partitions that have much in one file, when the file is written.
//!
//! Source: Cassandra's guardrails `partition_size` and `partition_tombstones`, as its
//! `SortedTableWriter` holds files to them: nothing is refused, as the data is there already.

use std::rc::Rc;

use schema::Table;
use sstable::offline::key_text;
use sstable::{LargeLimits, LargePartition, Written};

use crate::store::Store;

/// Above what is warned, and above what it is an error; `None`: never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Thresholds {
    /// A warning.
    pub warn: Option<u64>,
    /// An error, instead of the warning.
    pub fail: Option<u64>,
}

impl Thresholds {
    fn least(self) -> u64 {
        self.warn.into_iter().chain(self.fail).min().unwrap_or(u64::MAX)
    }

    /// The one that a value is above, the failing one first.
    fn crossed(self, value: u64) -> Option<(Severity, u64)> {
        let above = |limit: Option<u64>| limit.filter(|limit| value > *limit);
        let failed = above(self.fail).map(|limit| (Severity::Fail, limit));
        failed.or_else(|| above(self.warn).map(|limit| (Severity::Warn, limit)))
    }
}

/// What partitions of a file are held to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartitionGuardrails {
    /// Bytes in Data, uncompressed.
    pub size: Thresholds,
    /// Tombstones.
    pub tombstones: Thresholds,
}

impl PartitionGuardrails {
    pub(crate) fn limits(&self) -> LargeLimits {
        LargeLimits { bytes: self.size.least(), tombstones: self.tombstones.least() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Severity {
    Warn,
    Fail,
}

impl Severity {
    fn name(self) -> &'static str {
        match self {
            Severity::Warn => "warning",
            Severity::Fail => "failure",
        }
    }
}

/// What is said of one partition, in Cassandra's words.
fn messages(
    guardrails: &PartitionGuardrails,
    what: &str,
    partition: &LargePartition,
) -> Vec<(Severity, String)> {
    let mut said = Vec::new();
    if let Some((severity, limit)) = guardrails.size.crossed(partition.bytes) {
        said.push((
            severity,
            format!(
                "Guardrail partition_size violated: Partition {what} has size {}, this exceeds the {} \
                 threshold of {limit}. Too large partitions can cause performance problems.",
                partition.bytes,
                severity.name()
            ),
        ));
    }
    if let Some((severity, limit)) = guardrails.tombstones.crossed(partition.tombstones) {
        said.push((
            severity,
            format!(
                "Guardrail partition_tombstones violated: Partition {what} has {} tombstones, this \
                 exceeds the {} threshold of {limit}. Partitions with too many tombstones can cause \
                 performance problems.",
                partition.tombstones,
                severity.name()
            ),
        ));
    }
    said
}

impl Store {
    /// What partitions of files that are written from now on are held to.
    pub fn set_partition_guardrails(&self, guardrails: PartitionGuardrails) {
        self.inner.partition_guardrails.set(guardrails);
    }

    /// Tells `hook` of each partition that has too much, in Cassandra's words, when its file is written;
    /// `true`: as an error.
    pub fn on_large_partition(&self, hook: impl Fn((bool, String)) + 'static) {
        *self.inner.on_large.borrow_mut() = Some(Rc::new(hook));
    }

    /// Tells which partitions of a file that was written have too much.
    pub(crate) fn warn_of_large(&self, table: &Table, written: Option<&Written>) {
        let Some(written) = written.filter(|written| written.large_count > 0) else { return };
        let Some(hook) = self.inner.on_large.borrow().clone() else { return };
        let guardrails = self.inner.partition_guardrails.get();
        let types: Vec<_> = table.partition_key().iter().map(|c| c.ty.clone()).collect();
        let file = written.descriptor.file_name(sst_format::Component::Data);
        for partition in &written.large {
            let key = key_text(&types, &partition.key);
            let what = format!("{}.{}:{key} on sstable {file}", table.keyspace, table.name);
            for (severity, text) in messages(&guardrails, &what, partition) {
                hook((severity == Severity::Fail, text));
            }
        }
        let untold = written.large_count.saturating_sub(written.large.len() as u64);
        if untold > 0 {
            let (keyspace, name) = (&table.keyspace, &table.name);
            hook((
                false,
                format!(
                    "{untold} more partitions of {keyspace}.{name} on sstable {file} have too much"
                ),
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_that_is_crossed_is_told_of_once_the_failing_one_first() {
        let guardrails = PartitionGuardrails {
            size: Thresholds { warn: Some(100), fail: Some(1_000) },
            tombstones: Thresholds { warn: Some(5), fail: None },
        };
        assert_eq!(guardrails.limits(), LargeLimits { bytes: 100, tombstones: 5 });
        let of = |bytes, tombstones| {
            let partition = LargePartition { key: Vec::new(), bytes, tombstones };
            messages(&guardrails, "ks.t:k on sstable f", &partition)
        };
        assert_eq!(of(100, 5), []);
        assert_eq!(
            of(101, 6),
            [
                (
                    Severity::Warn,
                    "Guardrail partition_size violated: Partition ks.t:k on sstable f has size 101, \
                     this exceeds the warning threshold of 100. Too large partitions can cause \
                     performance problems."
                        .to_owned()
                ),
                (
                    Severity::Warn,
                    "Guardrail partition_tombstones violated: Partition ks.t:k on sstable f has 6 \
                     tombstones, this exceeds the warning threshold of 5. Partitions with too many \
                     tombstones can cause performance problems."
                        .to_owned()
                )
            ]
        );
        let failed = of(1_001, 0);
        assert!(
            matches!(failed.as_slice(), [(Severity::Fail, text)] if text.contains("failure threshold of 1000"))
        );
        assert_eq!(PartitionGuardrails::default().limits(), LargeLimits::default());
    }
}
