//! `nodetool listcidrgroups`, `getcidrgroupsofip`, `cidrfilteringstats`. Source: Cassandra's commands
//! of these names.

use super::format::Table;
use crate::model::CidrFilteringReport;

/// A column of names; nothing when there are none (`NodeToolCmd.printSet`).
pub fn names<'n>(title: &str, names: impl IntoIterator<Item = &'n str>) -> String {
    let mut table = Table::new(" ");
    table.add(&[&format!("{title}: ")]);
    let mut out = String::new();
    let mut is_empty = true;
    for name in names {
        is_empty = false;
        table.add(&[name]);
    }
    if !is_empty {
        table.print(&mut out);
    }
    out
}

/// The two tables of `cidrfilteringstats`; a value that is not measured is `null`.
pub fn cidr_filtering_stats(report: &CidrFilteringReport) -> String {
    let mut out = "cidr_filtering_metrics_counts: \n".to_owned();
    let mut table = Table::new(" ");
    table.add(&["name", "value"]);
    for (name, count) in &report.counts {
        table.add(&[name, &count.to_string()]);
    }
    table.print(&mut out);
    out.push_str("\ncidr_filtering_metrics_latencies: \n");
    let mut table = Table::new(" ");
    table.add(&["name", "p50th", "p95th", "p99th", "p999th", "max"]);
    for (name, values) in &report.latencies {
        let shown = |n: usize| match values.as_ref().and_then(|values| values.get(n)) {
            Some(value) => format!("{value:.1}"),
            None => "null".to_owned(),
        };
        let [p50, p95, p99, p999, max] = [0, 1, 2, 3, 4].map(shown);
        table.add(&[name, &p50, &p95, &p99, &p999, &max]);
    }
    table.print(&mut out);
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_a_column_as_wide_as_the_widest() {
        assert_eq!(names("CIDR Groups", []), "");
        assert_eq!(names("CIDRs", ["10.0.0.0/8"]), "CIDRs:    \n10.0.0.0/8\n");
        assert_eq!(names("CIDR Groups", ["office"]), "CIDR Groups: \noffice       \n");
    }

    #[test]
    fn numbers_of_checks_are_two_tables() {
        let report = CidrFilteringReport {
            counts: vec![("a".to_owned(), 7)],
            latencies: vec![
                ("b".to_owned(), Some([1.0, 2.0, 3.0, 4.0, 15.5])),
                ("c".to_owned(), None),
            ],
        };
        let expect = "cidr_filtering_metrics_counts: \n\
                      name value\n\
                      a    7    \n\
                      \n\
                      cidr_filtering_metrics_latencies: \n\
                      name p50th p95th p99th p999th max \n\
                      b    1.0   2.0   3.0   4.0    15.5\n\
                      c    null  null  null  null   null\n\n";
        assert_eq!(cidr_filtering_stats(&report), expect);
    }
}
