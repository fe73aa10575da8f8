//! How a search by a vector goes, as functions of counts.

use index_format::OptimizeFor;

/// Rows up to which reading all of them is cheaper than searching.
const FEW_ROWS: u64 = 1_000;
/// Nodes of graphs that a search may visit; it holds their numbers.
pub(super) const NODES_MAX: usize = 1 << 18;

/// Nodes that a search of a graph keeps.
pub(super) fn beam(optimize_for: OptimizeFor, limit: usize) -> usize {
    match optimize_for {
        OptimizeFor::Latency => limit.saturating_add((limit / 4).max(54)),
        OptimizeFor::Recall => limit.saturating_mul(2).saturating_add(108),
    }
}

/// Returns true if all of so many rows should be read, instead of a search for so many.
pub(super) fn reads_all(rows: u64, limit: usize) -> bool {
    rows <= FEW_ROWS.max(limit as u64 * 4)
}

/// Returns true if so many allowed rows of a file should be compared one by one. A walk for `beam` of them visits
/// `beam * nodes / allowed` nodes, about.
pub(super) fn lists(allowed: u64, nodes: u64, beam: usize) -> bool {
    let walked = (beam as u64).saturating_mul(nodes) / allowed.max(1);
    allowed <= FEW_ROWS || allowed < walked
}

/// Returns true if all rows that satisfy the predicates, so many at most, should be read. A walk reads
/// `limit * rows / matches` rows, about.
pub(super) fn reads_matches(matches: u64, rows: u64, limit: usize) -> bool {
    let walked = (limit as u64).saturating_mul(rows) / matches.max(1);
    matches <= FEW_ROWS || matches < walked
}

/// Rows that a walk may read before all rows, or with predicates all matches, are read instead.
pub(super) fn walked_max(matches: Option<u64>, limit: usize) -> usize {
    match matches {
        Some(matches) => usize::try_from(matches).unwrap_or(usize::MAX).clamp(1_024, 1 << 16),
        None => limit.saturating_mul(8).max(4_096),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cheaper_way_is_taken() {
        assert_eq!(beam(OptimizeFor::Latency, 10), 64);
        assert_eq!(beam(OptimizeFor::Recall, 10), 128);
        assert!(reads_all(1_000, 10) && !reads_all(1_001, 10) && reads_all(4_000, 1_000));
        // A walk for 64 of 2,000 among 100,000 visits 3,200.
        assert!(lists(2_000, 100_000, 64) && !lists(3_000, 100_000, 64));
        // 10 of 3,000 among 1,000,000 are found after 3,333 rows.
        assert!(reads_matches(3_000, 1_000_000, 10) && !reads_matches(4_000, 1_000_000, 10));
        assert_eq!(walked_max(None, 10), 4_096);
        assert_eq!((walked_max(Some(3), 10), walked_max(Some(5_000), 10)), (1_024, 5_000));
    }
}
