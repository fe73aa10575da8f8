//! Large partitions, rows and cells of a file. Warnings when the file is written, and events for the tables
//! that name them as long as the file is used.
//!
//! Source: Cassandra's guardrails `partition_size`, `partition_tombstones` and those of collections, as its
//! `SortedTableWriter` applies them to files: nothing is refused, as the data exists already. ScyllaDB's
//! documentation of its tables of large partitions, rows and cells.

mod collection_guardrails;
mod large_scan;

use std::cell::RefCell;
use std::rc::Rc;

use rt::sync::Notify;
use schema::Table;
use sstable::offline::key_text;
use sstable::{Component, Descriptor, LargeData, LargeLimits, LargePartition, Written};
use stdx::{DeletionSeconds, WallMicros};
use types::CqlType;

use crate::observe::Observer;
use crate::tables::large_files::{
    CellFacts, LargeEvent, LargeFile, PartitionFacts, RowFacts, SstableName, name_of,
};
use crate::tables::table::TableState;

/// Bytes of the text of a key that are shown.
const KEY_TEXT_MAX: usize = 16 << 10;

/// Limits above which a warning or an error is reported; `None`: never.
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

/// Guardrails for partitions and collections of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartitionGuardrails {
    /// Bytes in Data, uncompressed.
    pub size: Thresholds,
    /// Tombstones.
    pub tombstones: Thresholds,
    /// Bytes of the live elements of a collection that is not frozen.
    pub collection_size: Thresholds,
    /// How many these are.
    pub collection_items: Thresholds,
}

/// Limits above which partitions, rows and cells of a file are named in the tables of large ones;
/// `u64::MAX`: never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LargeThresholds {
    /// Bytes of a partition, where no guardrail of its size warns.
    pub partition_bytes: u64,
    /// Rows of a partition.
    pub partition_rows: u64,
    /// Bytes of a row.
    pub row_bytes: u64,
    /// Bytes of a cell, or of all cells of a collection.
    pub cell_bytes: u64,
    /// Elements of a collection.
    pub elements: u64,
}

impl Default for LargeThresholds {
    fn default() -> LargeThresholds {
        LargeThresholds {
            partition_bytes: u64::MAX,
            partition_rows: u64::MAX,
            row_bytes: u64::MAX,
            cell_bytes: u64::MAX,
            elements: u64::MAX,
        }
    }
}

/// Both together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    guardrails: PartitionGuardrails,
    thresholds: LargeThresholds,
}

impl Limits {
    #[cfg(test)]
    pub(crate) fn with(guardrails: PartitionGuardrails) -> Limits {
        Limits { guardrails, ..Limits::default() }
    }

    /// Size above which a partition is a large one.
    fn partition_bytes(&self) -> u64 {
        self.guardrails.size.warn.unwrap_or(self.thresholds.partition_bytes)
    }

    /// Limits for a file being written.
    pub(crate) fn of_writer(&self, table: &Table, now: DeletionSeconds) -> LargeLimits {
        let mut limits = self.of_file(now);
        if collection_guardrails::are_guarded(table) {
            limits.collection_bytes = self.guardrails.collection_size.least();
            limits.collection_items = self.guardrails.collection_items.least();
        }
        limits
    }

    /// Limits for a file that another node or program wrote.
    fn of_file(&self, now: DeletionSeconds) -> LargeLimits {
        LargeLimits {
            bytes: self.partition_bytes().min(self.guardrails.size.least()),
            tombstones: self.guardrails.tombstones.least(),
            rows: self.thresholds.partition_rows,
            row_bytes: self.thresholds.row_bytes,
            cell_bytes: self.thresholds.cell_bytes,
            elements: self.thresholds.elements,
            now,
            ..LargeLimits::default()
        }
    }

    fn is_large(&self, partition: &LargePartition) -> bool {
        partition.bytes > self.partition_bytes() || partition.rows > self.thresholds.partition_rows
    }
}

/// State of a file that an earlier run named as one with something large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LargeFate {
    /// It is in use; its end will be reported.
    Used,
    /// It no longer exists.
    Gone,
    /// Another shard knows.
    OfAnother,
}

/// A text that fits into a clustering column.
fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(KEY_TEXT_MAX));
    text
}

/// Values of a clustering as those of a composite partition key.
fn clustering_text(types: &[CqlType], clustering: Option<&[u8]>) -> String {
    let values = data::clustering::components(clustering.unwrap_or(&[]));
    let texts = types.iter().zip(values).map(|(ty, value)| match value {
        Some(value) => ty.format_plain(value),
        None => String::new(),
    });
    texts.collect::<Vec<_>>().join(":")
}

/// Keys and columns of the large data, as text.
fn facts_of(
    table: &Table,
    name: SstableName,
    at: WallMicros,
    limits: &Limits,
    data: &LargeData,
) -> LargeFile {
    let types = |columns: &[schema::Column]| columns.iter().map(|c| c.ty.clone()).collect();
    let (keys, clusterings): (Vec<CqlType>, Vec<CqlType>) =
        (types(table.partition_key()), types(table.clustering()));
    let key = |key: &[u8]| cut(key_text(&keys, key));
    let clustering = |c: &Option<Vec<u8>>| cut(clustering_text(&clusterings, c.as_deref()));
    let column = |id| table.column_by_id(id).map_or(String::new(), |c| c.name.to_string());
    let partitions = data.partitions.iter().filter(|p| limits.is_large(p));
    LargeFile {
        name,
        at,
        partitions: partitions
            .map(|p| PartitionFacts {
                partition_key: key(&p.key),
                bytes: p.bytes,
                rows: p.rows,
                range_tombstones: p.range_tombstones,
                dead_rows: p.dead_rows,
            })
            .collect(),
        rows: data
            .rows
            .iter()
            .map(|r| RowFacts {
                partition_key: key(&r.key),
                clustering_key: clustering(&r.clustering),
                bytes: r.bytes,
            })
            .collect(),
        cells: data
            .cells
            .iter()
            .map(|c| CellFacts {
                partition_key: key(&c.key),
                clustering_key: clustering(&c.clustering),
                column: column(c.column),
                bytes: c.bytes,
                elements: c.elements,
            })
            .collect(),
    }
}

/// Log lines for the entries of the tables, in the form of ScyllaDB's documentation; partitions
/// that a guardrail reports are left out.
fn lines(file: &LargeFile, guardrails: &PartitionGuardrails) -> Vec<String> {
    let SstableName { keyspace, table, sstable } = &file.name;
    let mut said = Vec::new();
    for p in file.partitions.iter().filter(|p| guardrails.size.crossed(p.bytes).is_none()) {
        said.push(format!(
            "Writing large partition {keyspace}/{table}: {} ({} bytes, {} rows) to {sstable}",
            p.partition_key, p.bytes, p.rows
        ));
    }
    for r in &file.rows {
        said.push(format!(
            "Writing large row {keyspace}/{table}: {} {} ({} bytes) to {sstable}",
            r.partition_key, r.clustering_key, r.bytes
        ));
    }
    for c in &file.cells {
        let elements = match c.elements {
            0 => String::new(),
            n => format!(", {n} elements"),
        };
        said.push(format!(
            "Writing large cell {keyspace}/{table}: {} {} {} ({} bytes{elements}) to {sstable}",
            c.partition_key, c.clustering_key, c.column, c.bytes
        ));
    }
    said
}

/// Numbers of those written so far.
pub(crate) struct LargeCounters {
    partitions: telemetry::Counter,
    rows: telemetry::Counter,
    cells: telemetry::Counter,
    collections: telemetry::Counter,
}

impl LargeCounters {
    pub(crate) fn new(telemetry: &telemetry::Shard) -> LargeCounters {
        let counter = |name, what| telemetry.counter(name, what, &[]);
        LargeCounters {
            partitions: counter(
                "large_partitions_written_total",
                "partitions above a threshold of size, rows or tombstones when their file was written",
            ),
            rows: counter(
                "large_rows_written_total",
                "rows above the threshold of size when their file was written",
            ),
            cells: counter(
                "large_cells_written_total",
                "cells and collections above the threshold of size when their file was written",
            ),
            collections: counter(
                "large_collections_written_total",
                "collections above the threshold of elements when their file was written",
            ),
        }
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

/// Messages for one partition, in Cassandra's words.
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

impl Observer {
    /// Sets the guardrails for partitions and collections of files written from now on.
    pub fn set_partition_guardrails(&self, guardrails: PartitionGuardrails) {
        let limits = Limits { guardrails, ..self.large.limits.get() };
        self.large.limits.set(limits);
    }

    /// Sets the limits above which partitions, rows and cells of files written from now on are
    /// large.
    pub fn set_large_thresholds(&self, thresholds: LargeThresholds) {
        let limits = Limits { thresholds, ..self.large.limits.get() };
        self.large.limits.set(limits);
    }

    /// Reports exceeded guardrails to `hook`, as text, when a file is written; `true`: as an error.
    pub fn on_large_partition(&self, hook: impl Fn((bool, String)) + 'static) {
        *self.large.on_words.borrow_mut() = Some(Rc::new(hook));
    }

    /// Reports files with large data to `hook`, when they come into use and when they leave it.
    pub fn on_large_data(self: &Rc<Self>, hook: impl Fn(LargeEvent) + 'static) {
        let before = self.large.on_events.borrow_mut().replace(Rc::new(hook));
        self.tell_large_events();
        if before.is_none() {
            self.start_looking_through();
        }
    }

    /// Returns the state of a file for which an earlier run reported [`LargeEvent::Found`].
    pub fn large_fate(&self, name: &SstableName) -> LargeFate {
        let Some((descriptor, Component::Data)) = Descriptor::parse(&name.sstable) else {
            return if self.env.shard().0 == 0 { LargeFate::Gone } else { LargeFate::OfAnother };
        };
        if !self.env.is_mine(descriptor.generation) {
            return LargeFate::OfAnother;
        }
        let is_named = |table: &Rc<TableState>| {
            let version = table.version();
            *version.table.keyspace == *name.keyspace && *version.table.name == *name.table
        };
        let table = self.tables.all_tables().into_iter().find(is_named);
        let used = table.filter(|table| {
            table.view().files.iter().any(|f| f.reader.meta().descriptor() == descriptor)
        });
        match used {
            Some(table) => {
                table.large.0.borrow_mut().used.insert(descriptor);
                LargeFate::Used
            }
            None => LargeFate::Gone,
        }
    }

    /// Reports files that were added or removed since the last call.
    pub(crate) fn tell_large_events(&self) {
        for table in self.tables.all_tables() {
            self.tell_large_events_of(&table);
        }
    }

    pub(crate) fn tell_large_events_of(&self, table: &TableState) {
        let Some(hook) = self.large.on_events.borrow().clone() else { return };
        for event in table.large.take() {
            hook(event);
        }
    }

    /// Reports the large data of a written file, and keeps it until the file is in use.
    pub(crate) fn warn_of_large(&self, table: &Table, written: Option<&Written>) {
        let Some(written) = written.filter(|written| !written.large.is_empty()) else { return };
        let (data, large) = (&written.large, &self.large);
        large.counters.partitions.add(data.partition_count);
        large.counters.rows.add(data.row_count);
        large.counters.cells.add(data.cells_by_bytes);
        large.counters.collections.add(data.cells_by_elements);
        let limits = large.limits.get();
        let (name, at) = (name_of(table, written.descriptor), self.env.rt.wall());
        let file = facts_of(table, name, at, &limits, data);
        if let Some(hook) = large.on_words.borrow().clone() {
            for (severity, text) in words(table, &file, &limits.guardrails, data) {
                hook((severity == Severity::Fail, text));
            }
        }
        let is_empty = file.partitions.is_empty() && file.rows.is_empty() && file.cells.is_empty();
        if let Some(table) = self.tables.table(table.id)
            && !is_empty
        {
            table.large.wait(written.descriptor.generation, file);
        }
    }
}

/// All log messages for a file.
fn words(
    table: &Table,
    file: &LargeFile,
    guardrails: &PartitionGuardrails,
    data: &LargeData,
) -> Vec<(Severity, String)> {
    let of_collections = collection_guardrails::words(table, guardrails, data);
    let types: Vec<_> = table.partition_key().iter().map(|c| c.ty.clone()).collect();
    let SstableName { keyspace, table, sstable } = &file.name;
    let mut said = Vec::new();
    for partition in &data.partitions {
        let key = key_text(&types, &partition.key);
        let what = format!("{keyspace}.{table}:{key} on sstable {sstable}");
        said.extend(messages(guardrails, &what, partition));
    }
    said.extend(of_collections);
    said.extend(lines(file, guardrails).into_iter().map(|text| (Severity::Warn, text)));
    let kinds = [
        ("partitions", data.partition_count, data.partitions.len()),
        ("rows", data.row_count, data.rows.len()),
        ("cells", data.cell_count, data.cells.len()),
        ("collections", data.collection_count, data.collections.len()),
    ];
    for (kind, count, told) in kinds {
        let untold = count.saturating_sub(told as u64);
        if untold > 0 {
            let text = format!(
                "{untold} more {kind} of {keyspace}.{table} on sstable {sstable} have too much"
            );
            said.push((Severity::Warn, text));
        }
    }
    said
}

/// State of a store for the reports of large data.
pub(crate) struct Large {
    limits: std::cell::Cell<Limits>,
    counters: LargeCounters,
    on_words: crate::env::failure::Hook<(bool, String)>,
    on_events: crate::env::failure::Hook<LargeEvent>,
    /// A file waits for its scan.
    pub(crate) waits: Notify,
}

impl Large {
    pub(crate) fn new(telemetry: &telemetry::Shard) -> Large {
        Large {
            limits: std::cell::Cell::default(),
            counters: LargeCounters::new(telemetry),
            on_words: RefCell::default(),
            on_events: RefCell::default(),
            waits: Notify::new(),
        }
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits.get()
    }

    /// Releases the receivers.
    pub(crate) fn end(&self) {
        drop(self.on_words.take());
        drop(self.on_events.take());
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
            ..PartitionGuardrails::default()
        };
        let limits = |guardrails| Limits { guardrails, ..Limits::default() };
        let of_writer = |guardrails| limits(guardrails).of_file(DeletionSeconds(0));
        let least = of_writer(guardrails);
        assert_eq!(least, LargeLimits { bytes: 100, tombstones: 5, ..LargeLimits::default() });
        let of = |bytes, tombstones| {
            let partition = LargePartition { bytes, tombstones, ..LargePartition::default() };
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
        assert_eq!(of_writer(PartitionGuardrails::default()), LargeLimits::default());
    }
}
