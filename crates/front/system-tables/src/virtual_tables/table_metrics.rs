//! Virtual tables with one row for each table of the node: sizes, latencies, what reads met.
//!
//! Source: Cassandra's `TableMetricTables`.

use admin::histogram::HistogramReport;
use admin::model::TableReport;
use cql_plan::virtual_row::{VirtualRow, VirtualRowBuilder, VirtualRowError};
use schema::Table;

use super::whole;

/// The row about one table, with the columns that `columns` sets.
pub(super) fn row(
    table: &Table,
    report: &TableReport,
    columns: fn(&mut VirtualRowBuilder<'_>, &TableReport),
) -> Result<VirtualRow, VirtualRowError> {
    let mut row = VirtualRowBuilder::new(table);
    row.text("keyspace_name", &report.keyspace).text("table_name", &report.table);
    columns(&mut row, report);
    row.finish()
}

pub(super) fn disk_usage(row: &mut VirtualRowBuilder<'_>, report: &TableReport) {
    row.bigint("mebibytes", mebibytes(report.disk_bytes));
}

pub(super) fn max_partition_size(row: &mut VirtualRowBuilder<'_>, report: &TableReport) {
    row.bigint("mebibytes", mebibytes(report.partition_sizes.max()));
}

pub(super) fn max_sstable_size(row: &mut VirtualRowBuilder<'_>, report: &TableReport) {
    row.bigint("mebibytes", mebibytes(report.sstable_bytes_max));
}

pub(super) fn max_sstable_duration(row: &mut VirtualRowBuilder<'_>, report: &TableReport) {
    row.bigint("max_sstable_duration", whole(report.sstable_span_micros_max / 1000));
}

pub(super) fn local_reads(row: &mut VirtualRowBuilder<'_>, report: &TableReport) {
    latency(row, &report.read_latency);
}

pub(super) fn local_writes(row: &mut VirtualRowBuilder<'_>, report: &TableReport) {
    latency(row, &report.write_latency);
}

pub(super) fn local_scans(row: &mut VirtualRowBuilder<'_>, report: &TableReport) {
    latency(row, &report.scan_latency);
}

pub(super) fn coordinator_reads(row: &mut VirtualRowBuilder<'_>, report: &TableReport) {
    latency(row, &report.coordinator_reads);
}

pub(super) fn coordinator_scans(row: &mut VirtualRowBuilder<'_>, report: &TableReport) {
    latency(row, &report.coordinator_scans);
}

pub(super) fn coordinator_writes(row: &mut VirtualRowBuilder<'_>, report: &TableReport) {
    latency(row, &report.coordinator_writes);
}

pub(super) fn rows_per_read(row: &mut VirtualRowBuilder<'_>, report: &TableReport) {
    counts(row, &report.rows_per_read);
}

pub(super) fn tombstones_per_read(row: &mut VirtualRowBuilder<'_>, report: &TableReport) {
    counts(row, &report.tombstones_per_read);
}

/// Rounded up.
fn mebibytes(bytes: u64) -> i64 {
    whole(bytes.div_ceil(1 << 20))
}

/// Buckets are of microseconds. There are no rates.
fn latency(row: &mut VirtualRowBuilder<'_>, of: &HistogramReport) {
    let millis = |micros: u64| micros as f64 / 1000.0;
    row.bigint("count", whole(of.count()))
        .double("max_ms", millis(of.max()))
        .double("p50th_ms", millis(of.percentile(0.5)))
        .double("p99th_ms", millis(of.percentile(0.99)));
}

/// Buckets are of numbers plus one, so that none has a bucket of its own.
fn counts(row: &mut VirtualRowBuilder<'_>, of: &HistogramReport) {
    let number = |plus_one: u64| plus_one.saturating_sub(1) as f64;
    row.bigint("count", whole(of.count()))
        .double("max", number(of.max()))
        .double("p50th", number(of.percentile(0.5)))
        .double("p99th", number(of.percentile(0.99)));
}
