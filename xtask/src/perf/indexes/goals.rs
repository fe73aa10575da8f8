//! The rules by which figures are judged, fixed before anything is measured.

use super::super::report::Report;
use super::settings::{Section, Settings};

/// Cassandra's CPU over ours, at least: a query of one value that ten rows have.
pub const EQUALITY: f64 = 8.0;
/// The same for ranges of two columns.
pub const RANGES: f64 = 6.0;
/// A query of a value that one row has, for each shard, over a read by key, at most.
pub const UNIQUE: f64 = 3.0;
/// Writes with one index over writes without, at most.
pub const WRITE: f64 = 1.15;
/// Flushes and compactions with one index over those without, at most.
pub const FLUSH: f64 = 1.25;
/// Our bytes of indexes over Cassandra's, at most.
pub const BYTES: f64 = 1.0;
/// Cassandra's CPU over ours for a query of the nearest vectors at equal recall, at least.
pub const VECTOR_QUERY: f64 = 3.0;
/// The same for building an index of vectors.
pub const VECTOR_BUILD: f64 = 2.0;

/// Writes rules and goals into the report.
pub fn announce(settings: &Settings, report: &mut Report) {
    let all = [
        (Section::Reads, "equality, 10 rows", "Cassandra's CPU over ours", "at least 8"),
        (Section::Reads, "two ranges with AND", "Cassandra's CPU over ours", "at least 6"),
        (
            Section::Reads,
            "equality, 1 row",
            "our CPU for each shard asked, over our read by key",
            "at most 3",
        ),
        (
            Section::Reads,
            "bytes of the indexes after a compaction",
            "ours over Cassandra's",
            "at most 1",
        ),
        (Section::Writes, "writes", "our CPU with one index over without", "at most 1.15"),
        (Section::Writes, "flushes", "our CPU with one index over without", "at most 1.25"),
        (Section::Writes, "compactions", "our CPU with one index over without", "at most 1.25"),
        (
            Section::Vectors,
            "nearest vectors at equal recall",
            "Cassandra's CPU over ours; recall is that of 10 rows, against all vectors compared; equal recall is the \
             higher of the two at LIMIT 10, and the other one's CPU is that of the LIMIT which reaches it, interpolated",
            "at least 3",
        ),
        (
            Section::Vectors,
            "build of an index over a compacted table; writes and a flush with an index",
            "Cassandra's CPU over ours",
            "at least 2",
        ),
    ];
    let rows: Vec<Vec<String>> = all
        .into_iter()
        .filter(|(section, ..)| settings.has(*section))
        .map(|(_, what, rule, goal)| [what, rule, goal].map(str::to_owned).to_vec())
        .collect();
    report.table(
        "Goals, written before anything was measured: our median is judged, against Cassandra's lowest run; writes, \
         flushes and compactions by the sum of all rounds",
        &["figure", "rule", "goal"],
        &rows,
    );
}
