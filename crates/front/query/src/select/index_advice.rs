//! Advice to clients about indexes, from what a page has read.

use cql_exec::Dropped;
use store::ReadStats;

/// Rows that a page must have read for an advice.
const ROWS_OF_ADVICE: u64 = 1000;
/// A filter that drops less per cent of the rows is answered well by a scan.
const DROPPED_PERCENT: u64 = 90;

/// Advice on a filter that dropped most of what it read: the statement that creates an index for it.
pub(super) fn of_filter(index: &str, stats: &ReadStats, dropped: Dropped) -> Option<String> {
    let dropped = dropped.rows.saturating_add(stats.filtered.rows);
    let rows = stats.rows.max(dropped);
    let is_most = dropped.saturating_mul(100) >= rows.saturating_mul(DROPPED_PERCENT);
    if rows < ROWS_OF_ADVICE || !is_most {
        return None;
    }
    let kept = rows.saturating_sub(dropped);
    Some(format!(
        "ALLOW FILTERING read {rows} rows and kept {kept} of them ({}); an index would name these: {index}",
        percent(kept, rows)
    ))
}

/// Advice on an index whose value is in a large part of the rows, if the page has read many of them.
pub(super) fn of_unselective_index(index: &str, percent: u64, stats: &ReadStats) -> Option<String> {
    (stats.rows >= ROWS_OF_ADVICE).then(|| unselective_index(index, percent))
}

/// Note on an index whose value is in a large part of the rows.
pub(super) fn unselective_index(index: &str, percent: u64) -> String {
    format!("Index {index} names about {percent} % of the table's rows: a scan may be faster")
}

/// A share with two digits after the point.
fn percent(part: u64, of: u64) -> String {
    let hundredths = part.saturating_mul(10_000).checked_div(of).unwrap_or(0);
    format!("{}.{:02} %", hundredths / 100, hundredths % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_drops_most_of_many_rows_gets_the_index_that_would_help() {
        let advice = |rows, here, elsewhere| {
            let mut stats = ReadStats { rows, ..ReadStats::default() };
            stats.filtered.rows = elsewhere;
            of_filter("CREATE INDEX", &stats, Dropped { rows: here, partitions: 0 })
        };
        let text = "ALLOW FILTERING read 20000 rows and kept 3 of them (0.01 %); an index would name \
                    these: CREATE INDEX";
        assert_eq!(advice(20_000, 9_997, 10_000).as_deref(), Some(text));
        assert!(advice(1_000, 900, 0).is_some());
        assert_eq!(advice(1_000, 899, 0), None, "a scan answers it well");
        assert_eq!(advice(999, 999, 0), None, "few rows");
        // A count that lacks the dropped rows.
        assert!(advice(0, 0, 5_000).is_some_and(|text| text.contains("kept 0 of them (0.00 %)")));
    }

    #[test]
    fn an_index_with_many_rows_is_named_when_the_page_read_many() {
        let stats = |rows| ReadStats { rows, ..ReadStats::default() };
        let text = "Index i names about 40 % of the table's rows: a scan may be faster";
        assert_eq!(of_unselective_index("i", 40, &stats(1_000)).as_deref(), Some(text));
        assert_eq!(of_unselective_index("i", 40, &stats(999)), None);
    }
}
