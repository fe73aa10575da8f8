//! `nodetool tablehistograms` and `nodetool proxyhistograms`.

use std::fmt::Write;

use crate::histogram::HistogramReport;
use crate::model::{CoordinatorReport, TableReport};

const ROWS: [(&str, Row); 7] = [
    ("50%", Row::Share(0.5)),
    ("75%", Row::Share(0.75)),
    ("95%", Row::Share(0.95)),
    ("98%", Row::Share(0.98)),
    ("99%", Row::Share(0.99)),
    ("Min", Row::Min),
    ("Max", Row::Max),
];

#[derive(Clone, Copy)]
enum Row {
    Share(f64),
    Min,
    Max,
}

impl Row {
    fn of(self, histogram: &HistogramReport) -> f64 {
        let value = match self {
            Row::Share(share) => histogram.percentile(share),
            Row::Min => histogram.min(),
            Row::Max => histogram.max(),
        };
        value as f64
    }
}

/// Tables that `tablehistograms` shows: all without arguments, else `<keyspace> <table>` or
/// `<keyspace.table>`.
///
/// # Errors
/// In Cassandra's words: other arguments, or a table that does not exist.
pub fn table_histograms(tables: &[TableReport], arguments: &[String]) -> Result<String, String> {
    let wanted = match arguments {
        [] => None,
        [keyspace, table] if !keyspace.contains('.') && !table.contains('.') => {
            Some((keyspace.as_str(), table.as_str()))
        }
        [both] => match both.split('.').collect::<Vec<_>>().as_slice() {
            [keyspace, table] => Some((*keyspace, *table)),
            _ => {
                return Err("tablehistograms requires keyspace and table name arguments".to_owned());
            }
        },
        _ => {
            return Err("tablehistograms requires <keyspace> <table> or <keyspace.table> format \
                        argument."
                .to_owned());
        }
    };
    let is_wanted = |t: &&TableReport| {
        wanted.is_none_or(|(keyspace, table)| t.keyspace == keyspace && t.table == table)
    };
    let mut out = String::new();
    for table in tables.iter().filter(is_wanted) {
        of_table(&mut out, table);
    }
    match wanted {
        Some((keyspace, table)) if out.is_empty() => {
            Err(format!("Unknown table {keyspace}.{table}"))
        }
        _ => Ok(out),
    }
}

fn of_table(out: &mut String, table: &TableReport) {
    let has_files = !table.partition_sizes.buckets.is_empty();
    if !has_files {
        out.push_str(
            "No SSTables exists, unable to calculate 'Partition Size' and 'Cell Count' \
             percentiles\n",
        );
    }
    let _ = writeln!(out, "{}/{} histograms", table.keyspace, table.table);
    let _ = writeln!(
        out,
        "{:<10}{:>18}{:>18}{:>18}{:>18}{:>18}",
        "Percentile", "Read Latency", "Write Latency", "SSTables", "Partition Size", "Cell Count"
    );
    let _ = writeln!(
        out,
        "{:<10}{:>18}{:>18}{:>18}{:>18}{:>18}",
        "", "(micros)", "(micros)", "", "(bytes)", ""
    );
    for (name, row) in ROWS {
        let of_file = |histogram| if has_files { row.of(histogram) } else { f64::NAN };
        // Recorded with one added, so that reads of no file at all have a bucket of their own.
        let files = (row.of(&table.sstables_per_read) - 1.0).max(0.0);
        let _ = writeln!(
            out,
            "{name:<10}{:>18.2}{:>18.2}{files:>18.2}{:>18.0}{:>18.0}",
            row.of(&table.read_latency),
            row.of(&table.write_latency),
            of_file(&table.partition_sizes),
            of_file(&table.cell_counts),
        );
    }
    out.push('\n');
}

/// `nodetool proxyhistograms`: conditional updates and views are not measured, so theirs are 0.
pub fn proxy_histograms(report: &CoordinatorReport) -> String {
    let mut out = String::from("proxy histograms\n");
    let titles = [
        "Read Latency",
        "Write Latency",
        "Range Latency",
        "CAS Read Latency",
        "CAS Write Latency",
        "View Write Latency",
    ];
    let mut line = |first: &str, cells: [String; 6]| {
        let _ = write!(out, "{first:<10}");
        for cell in cells {
            let _ = write!(out, "{cell:>19}");
        }
        out.push('\n');
    };
    line("Percentile", titles.map(str::to_owned));
    line("", titles.map(|_| "(micros)".to_owned()));
    let none = HistogramReport::default();
    for (name, row) in ROWS {
        let all = [&report.read, &report.write, &report.range, &none, &none, &none];
        line(name, all.map(|histogram| format!("{:.2}", row.of(histogram))));
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> TableReport {
        TableReport {
            keyspace: "ks".to_owned(),
            table: "t".to_owned(),
            read_latency: HistogramReport { buckets: vec![0, 0, 3, 0, 1], sum: 0 },
            write_latency: HistogramReport { buckets: vec![4], sum: 0 },
            sstables_per_read: HistogramReport { buckets: vec![2, 2], sum: 0 },
            ..TableReport::default()
        }
    }

    #[test]
    fn table_histograms_are_laid_out_as_cassandras() {
        let text = table_histograms(&[table()], &["ks".to_owned(), "t".to_owned()]).unwrap();
        let expected = "\
No SSTables exists, unable to calculate 'Partition Size' and 'Cell Count' percentiles
ks/t histograms
Percentile      Read Latency     Write Latency          SSTables    Partition Size        Cell Count
                    (micros)          (micros)                             (bytes)                  \n\
50%                     3.00              1.00              0.00               NaN               NaN
75%                     3.00              1.00              1.00               NaN               NaN
95%                     5.00              1.00              1.00               NaN               NaN
98%                     5.00              1.00              1.00               NaN               NaN
99%                     5.00              1.00              1.00               NaN               NaN
Min                     3.00              0.00              0.00               NaN               NaN
Max                     5.00              1.00              1.00               NaN               NaN

";
        assert_eq!(text, expected);
        let mut flushed = table();
        flushed.partition_sizes.buckets = vec![0; 30];
        flushed.partition_sizes.buckets.push(1);
        flushed.cell_counts.buckets = vec![0, 0, 0, 0, 1];
        let text = table_histograms(&[flushed], &["ks.t".to_owned()]).unwrap();
        assert!(text.starts_with("ks/t histograms\n"), "{text}");
        assert!(text.contains("               535                 5\n"), "{text}");
    }

    #[test]
    fn tables_that_are_not_there_and_other_arguments_are_refused_in_cassandras_words() {
        let refused = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
            table_histograms(&[table()], &words).unwrap_err()
        };
        assert_eq!(refused(&["ks", "x"]), "Unknown table ks.x");
        assert_eq!(refused(&["ks.x"]), "Unknown table ks.x");
        assert_eq!(refused(&["ks"]), "tablehistograms requires keyspace and table name arguments");
        assert!(refused(&["a", "b", "c"]).ends_with("<keyspace.table> format argument."));
        assert!(table_histograms(&[table()], &[]).unwrap().contains("ks/t histograms"));
    }

    #[test]
    fn proxy_histograms_are_laid_out_as_cassandras() {
        let report = CoordinatorReport {
            read: HistogramReport { buckets: vec![0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9], sum: 0 },
            ..CoordinatorReport::default()
        };
        let text = proxy_histograms(&report);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "proxy histograms");
        assert_eq!(
            lines[1],
            "Percentile       Read Latency      Write Latency      Range Latency   \
             CAS Read Latency  CAS Write Latency View Write Latency"
        );
        assert_eq!(lines[2].len(), 10 + 6 * 19);
        assert_eq!(&lines[3][..48], "50%                     17.00               0.00");
        assert_eq!(&lines[8][..29], "Min                     15.00");
        assert_eq!((lines.len(), text.ends_with("\n\n")), (11, true));
    }
}
