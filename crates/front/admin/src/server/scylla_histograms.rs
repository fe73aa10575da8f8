//! Histograms by ScyllaDB's paths, in the form that its API calls an estimated histogram: bounds of
//! buckets and a count for each, with one more for larger values. Its other form, with a sample of
//! values and rates of the last minutes, is not supported.
//!
//! Source: its public API description.

use serde::Serialize;

use crate::histogram::HistogramReport;
use crate::model::{CoordinatorReport, TableReport};

/// An estimated histogram.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Estimated {
    /// Upper bounds of the buckets, inclusive, ascending: microseconds, bytes, or a number of things.
    bucket_offsets: Vec<u64>,
    /// Counts since the start (of files: now); the last one counts values above all bounds.
    buckets: Vec<u64>,
}

impl Estimated {
    /// `shift`: how much larger the values were counted than they are.
    fn new(report: &HistogramReport, shift: u64) -> Estimated {
        let bounds = report.bounds();
        let mut buckets = report.buckets.clone();
        buckets.resize(bounds.len() + 1, 0);
        let bucket_offsets = bounds.into_iter().map(|b| b.saturating_sub(shift)).collect();
        Estimated { bucket_offsets, buckets }
    }
}

/// A metric of `/column_family/metrics/`, of these tables together; `None`: it is none of these.
pub(super) fn of_tables(tables: &[TableReport], metric: &str) -> Option<Estimated> {
    // SSTables are counted plus one, so that none is a value too.
    let (of, shift): (fn(&TableReport) -> &HistogramReport, u64) = match metric {
        "read_latency/estimated_histogram" => (|t| &t.read_latency, 0),
        "write_latency/estimated_histogram" => (|t| &t.write_latency, 0),
        "sstables_per_read_histogram" => (|t| &t.sstables_per_read, 1),
        "estimated_row_size_histogram" => (|t| &t.partition_sizes, 0),
        "estimated_column_count_histogram" => (|t| &t.cell_counts, 0),
        _ => return None,
    };
    let mut all = HistogramReport::default();
    for table in tables {
        all.merge(of(table));
    }
    Some(Estimated::new(&all, shift))
}

/// Latencies of clients' requests: `read`, `write`, `range`; `None`: no such operation is measured.
pub(super) fn of_requests(latencies: &CoordinatorReport, operation: &str) -> Option<Estimated> {
    let report = match operation {
        "read" => &latencies.read,
        "write" => &latencies.write,
        "range" => &latencies.range,
        _ => return None,
    };
    Some(Estimated::new(report, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(buckets: &[u64]) -> HistogramReport {
        HistogramReport { buckets: buckets.to_vec(), sum: 0 }
    }

    #[test]
    fn buckets_have_their_bounds_and_one_more_for_what_lies_beyond() {
        let mut counts = vec![0; 91];
        (counts[4], counts[90]) = (7, 2);
        let shown = Estimated::new(&report(&counts), 0);
        assert_eq!((shown.bucket_offsets.len(), shown.buckets.len()), (90, 91));
        assert_eq!((shown.bucket_offsets[4], shown.buckets[4]), (5, 7));
        assert_eq!((shown.bucket_offsets[89], shown.buckets[90]), (25_109_160, 2));
        // Those of files have more bounds, and shards do not send empty buckets at the end.
        let shown = Estimated::new(&report(&[1; 100]), 0);
        assert_eq!((shown.bucket_offsets.len(), shown.buckets.len()), (100, 101));
        assert_eq!((shown.buckets[99], shown.buckets[100]), (1, 0));
        assert_eq!(Estimated::new(&report(&[]), 0).buckets, [0; 91]);
    }

    #[test]
    fn tables_are_added_up_and_a_read_of_no_sstable_is_one_of_zero() {
        let table = |files: &[u64], cells: &[u64]| TableReport {
            sstables_per_read: report(files),
            cell_counts: report(cells),
            ..TableReport::default()
        };
        let tables = [table(&[5, 1], &[3]), table(&[1], &[0, 4])];
        let files = of_tables(&tables, "sstables_per_read_histogram").unwrap();
        assert_eq!(
            (&files.bucket_offsets[..3], &files.buckets[..3]),
            (&[0, 1, 2][..], &[6, 1, 0][..])
        );
        let cells = of_tables(&tables, "estimated_column_count_histogram").unwrap();
        assert_eq!((&cells.bucket_offsets[..2], &cells.buckets[..2]), (&[1, 2][..], &[3, 4][..]));
        for metric in
            ["read_latency", "read_latency/moving_average_histogram", "row_size_histogram"]
        {
            assert_eq!(of_tables(&tables, metric), None, "{metric}");
        }
    }

    #[test]
    fn requests_are_told_apart() {
        let latencies =
            CoordinatorReport { range: report(&[0, 9]), ..CoordinatorReport::default() };
        assert_eq!(of_requests(&latencies, "range").unwrap().buckets[1], 9);
        assert_eq!(of_requests(&latencies, "write").unwrap().buckets[1], 0);
        assert_eq!(of_requests(&latencies, "cas_read"), None);
    }
}
