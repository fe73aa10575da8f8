//! `nodetool compactionhistory`.

use std::fmt::Write;

use super::format::Table;
use crate::model::HistoryReport;

const TITLES: [&str; 8] = [
    "id",
    "keyspace_name",
    "columnfamily_name",
    "compacted_at",
    "bytes_in",
    "bytes_out",
    "rows_merged",
    "compaction_properties",
];

/// `nodetool compactionhistory`: times are of UTC.
pub fn compaction_history(history: &[HistoryReport]) -> String {
    let mut out = String::from("Compaction History: \n");
    if history.is_empty() {
        // Without a line feed, as Cassandra prints it.
        out.push_str("There is no compaction history");
        return out;
    }
    let mut table = Table::new(" ");
    table.add(&TITLES);
    for report in history {
        let merged = map_text(&report.rows_merged);
        let properties = map_text(&report.properties);
        table.add(&[
            &report.id,
            &report.keyspace,
            &report.table,
            &local_date_time(report.compacted_at),
            &report.bytes_in.to_string(),
            &report.bytes_out.to_string(),
            &merged,
            &properties,
        ]);
    }
    table.print(&mut out);
    out
}

/// `nodetool compactionhistory -F json`.
pub fn compaction_history_json(history: &[HistoryReport]) -> String {
    let rows: Vec<serde_json::Value> = history
        .iter()
        .map(|report| {
            serde_json::json!({
                "id": report.id,
                "keyspace_name": report.keyspace,
                "columnfamily_name": report.table,
                "compacted_at": local_date_time(report.compacted_at),
                "bytes_in": report.bytes_in,
                "bytes_out": report.bytes_out,
                "rows_merged": map_text(&report.rows_merged),
                "compaction_properties": map_text(&report.properties),
            })
        })
        .collect();
    let all = match rows.is_empty() {
        true => serde_json::json!({}),
        false => serde_json::json!({ "CompactionHistory": rows }),
    };
    let mut out = serde_json::to_string_pretty(&all).unwrap_or_default();
    out.push('\n');
    out
}

/// `{1:5, 2:3}`.
fn map_text<K: std::fmt::Display, V: std::fmt::Display>(entries: &[(K, V)]) -> String {
    let entries: Vec<String> = entries.iter().map(|(k, v)| format!("{k}:{v}")).collect();
    format!("{{{}}}", entries.join(", "))
}

/// Formats a time like Java's `LocalDateTime.toString`: seconds and their fraction only if not
/// zero.
fn local_date_time(millis: i64) -> String {
    let of_day = millis.rem_euclid(86_400_000);
    let (year, month, day) = civil(millis.div_euclid(86_400_000));
    let (hours, minutes) = (of_day / 3_600_000, of_day / 60_000 % 60);
    let (seconds, millis) = (of_day / 1000 % 60, of_day % 1000);
    let mut out = format!("{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}");
    if seconds > 0 || millis > 0 {
        let _ = write!(out, ":{seconds:02}");
    }
    if millis > 0 {
        let _ = write!(out, ".{millis:03}");
    }
    out
}

/// Year, month and day of a number of days since 1970, of the proleptic Gregorian calendar.
pub(super) fn civil(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let (era, day_of_era) = (z.div_euclid(146_097), z.rem_euclid(146_097));
    let leaps = day_of_era / 1460 - day_of_era / 36_524 + day_of_era / 146_096;
    let year_of_era = (day_of_era - leaps) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_is_laid_out_as_cassandras() {
        assert_eq!(compaction_history(&[]), "Compaction History: \nThere is no compaction history");
        assert_eq!(compaction_history_json(&[]), "{}\n");
        let report = HistoryReport {
            id: "5d1c1b40-a9ab-11ef-8b1b-5f3f2c1f4e00".to_owned(),
            keyspace: "ks".to_owned(),
            table: "t".to_owned(),
            compacted_at: 1_709_210_096_789,
            bytes_in: 2048,
            bytes_out: 1024,
            rows_merged: vec![(1, 5), (2, 3)],
            properties: vec![("compaction_type".to_owned(), "Major compaction".to_owned())],
        };
        let text = compaction_history(std::slice::from_ref(&report));
        let expected = "\
Compaction History: \n\
id                                   keyspace_name columnfamily_name compacted_at            bytes_in bytes_out rows_merged compaction_properties             \n\
5d1c1b40-a9ab-11ef-8b1b-5f3f2c1f4e00 ks            t                 2024-02-29T12:34:56.789 2048     1024      {1:5, 2:3}  {compaction_type:Major compaction}\n";
        assert_eq!(text, expected);
        assert!(compaction_history_json(&[report]).contains("\"rows_merged\": \"{1:5, 2:3}\""));
    }

    #[test]
    fn times_are_written_as_java_writes_them() {
        assert_eq!(local_date_time(0), "1970-01-01T00:00");
        assert_eq!(local_date_time(1_735_689_599_000), "2024-12-31T23:59:59");
        assert_eq!(local_date_time(60_007), "1970-01-01T00:01:00.007");
    }
}
