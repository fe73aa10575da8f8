//! `nodetool repair` and `nodetool repair_admin`.

use super::format::{Table, file_size};
use super::history::civil;
use crate::model::{AutoRepairReport, RepairLineReport, RepairReport, RepairSummary};

/// One line of a repair with its time (of UTC), as Cassandra's tool prints it.
pub fn repair_line(line: &RepairLineReport) -> String {
    format!("[{}] {}\n", time_of(line.at), line.text)
}

/// Output for a keyspace that has no replicas on other nodes.
pub fn repair_not_needed(keyspace: &str, at_micros: i64) -> String {
    let time = time_of(at_micros);
    format!("[{time}] Replication factor is 1. No repair is needed for keyspace '{keyspace}'\n")
}

/// The words with which a failed repair ends the tool.
pub fn repair_failure(report: &RepairReport) -> String {
    let is_reason = |l: &&RepairLineReport| l.text.contains(" failed with error ");
    let reason = report.lines.iter().rev().find(is_reason).map_or("", |l| l.text.as_str());
    format!(
        "Repair job has failed with the error message: {reason}. Check the logs on the repair \
         participants for further details"
    )
}

/// `nodetool repair_admin list`: the repairs of this run of the node.
pub fn repair_list(reports: &[RepairReport]) -> String {
    let mut out = String::new();
    if reports.is_empty() {
        return "no sessions\n".to_owned();
    }
    let mut table = Table::new(" | ");
    table.add(&["command", "id", "state", "progress", "keyspace", "started", "differing"]);
    for report in reports {
        table.add(&[
            &report.id.to_string(),
            &report.session,
            &report.state,
            &format!("{}%", report.percent),
            &report.keyspace,
            &time_of(report.started_at),
            &format!("{} of {}", report.differing, report.stretches),
        ]);
    }
    table.print(&mut out);
    out
}

/// How summaries of repairs are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SummaryStyle {
    /// `-v`: sessions and ranges too.
    pub verbose: bool,
}

/// `nodetool repair_admin summarize-pending`, by keyspace and table. Files of sessions that have ended lose
/// their marks at once, so nothing is finalized or failed.
pub fn repair_pending(summaries: &[RepairSummary], style: SummaryStyle) -> String {
    let verbose = style.verbose;
    let mut out = String::new();
    let mut table = Table::new(" | ");
    let extra = ["pending", "finalized", "failed"];
    let mut header = vec!["keyspace", "table", "total"];
    header.extend(extra.iter().filter(|_| verbose));
    table.add(&header);
    let text = |bytes, files: u64, sessions: usize| {
        format!("{} ({files} sstables / {sessions} sessions)", file_size(bytes))
    };
    for one in summaries {
        let total = text(one.pending_bytes, one.pending_files, one.pending_sessions.len());
        let nothing = text(0, 0, 0);
        let mut row = vec![one.keyspace.as_str(), &one.table, &total];
        if verbose {
            row.extend([total.as_str(), &nothing, &nothing]);
        }
        table.add(&row);
    }
    table.print(&mut out);
    out
}

/// `nodetool repair_admin summarize-repaired`, by keyspace and table.
pub fn repair_repaired(summaries: &[RepairSummary], style: SummaryStyle) -> String {
    let verbose = style.verbose;
    if summaries.is_empty() {
        return "no stats\n".to_owned();
    }
    let mut out = String::new();
    let mut table = Table::new(" | ");
    let mut header = vec!["keyspace", "table", "min_repaired", "max_repaired"];
    header.extend(verbose.then_some("detail"));
    table.add(&header);
    for one in summaries {
        let times = || one.repaired.iter().map(|(_, _, at)| *at);
        let (least, most) = (times().min().unwrap_or(0), times().max().unwrap_or(0));
        let (least, most) = (least.to_string(), most.to_string());
        let sections = one.repaired.iter().map(|(start, end, at)| format!("({start},{end}]={at}"));
        let detail = sections.collect::<Vec<_>>().join(", ");
        let mut row = vec![one.keyspace.as_str(), &one.table, &least, &most];
        row.extend(verbose.then_some(detail.as_str()));
        table.add(&row);
    }
    table.print(&mut out);
    out
}

/// `nodetool autorepairstatus`: state of automatic repairs of this node.
pub fn auto_repair(report: &AutoRepairReport) -> String {
    let mut out = format!("Enabled: {}\n", report.enabled);
    match report.bytes_per_second {
        0 => out.push_str("Throughput: as compaction_throughput\n"),
        rate => out.push_str(&format!("Throughput: at most {} KiB/s\n", rate / 1024)),
    }
    let kib = |bytes: u64| bytes.div_ceil(1024);
    out.push_str(&format!("Pace: {} KiB/s\n", kib(report.pace_bytes_per_second)));
    out.push_str(&match report.is_behind {
        false => "Behind: no\n".to_owned(),
        true => format!(
            "Behind: yes, {} parts of tables are past their window, {} KiB/s are needed\n",
            report.late_parts,
            kib(report.needed_bytes_per_second)
        ),
    });
    if let Some(error) = &report.last_error {
        out.push_str(&format!("Last failure: {error}\n"));
    }
    if report.tables.is_empty() {
        out.push_str("No replicated tables\n");
        return out;
    }
    let mut table = Table::new(" | ");
    table.add(&["keyspace", "table", "state", "repaired", "window"]);
    for one in &report.tables {
        let at = one.repaired_at.map(|seconds| time_of(seconds.saturating_mul(1_000_000)));
        table.add(&[
            &one.keyspace,
            &one.table,
            &one.state,
            at.as_deref().unwrap_or("never"),
            &format!("{} s", one.window_seconds),
        ]);
    }
    table.print(&mut out);
    out
}

/// `nodetool getautorepairconfig`, under the names of settings that the node has.
pub fn auto_repair_config(report: &AutoRepairReport) -> String {
    let Some(config) = report.config else { return "Auto-repair is not enabled\n".to_owned() };
    let mut out = "repair scheduler configuration:\n".to_owned();
    out.push_str(&format!("\tauto_repair_turn: {}s\n", config.turn_seconds));
    out.push_str(&format!("\tauto_repair_initial_delay: {}s\n", config.initial_delay_seconds));
    out.push_str("configuration for repair_type: full\n");
    out.push_str(&format!("\tenabled: {}\n", report.enabled));
    out.push_str(&format!(
        "\tauto_repair_window: {}\n",
        match config.window_seconds {
            0 => "0s (0.8 of gc_grace_seconds of each table, 8 days at most)".to_owned(),
            seconds => format!("{seconds}s"),
        }
    ));
    out.push_str(&format!("\tauto_repair_throughput: {}KiB/s\n", report.bytes_per_second / 1024));
    out
}

/// Formats a time like Java's `yyyy-MM-dd HH:mm:ss,SSS`.
fn time_of(micros: i64) -> String {
    let millis = micros.div_euclid(1000);
    let of_day = millis.rem_euclid(86_400_000);
    let (year, month, day) = civil(millis.div_euclid(86_400_000));
    let (hours, minutes) = (of_day / 3_600_000, of_day / 60_000 % 60);
    let (seconds, millis) = (of_day / 1000 % 60, of_day % 1000);
    format!("{year:04}-{month:02}-{day:02} {hours:02}:{minutes:02}:{seconds:02},{millis:03}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(number: u64, text: &str) -> RepairLineReport {
        RepairLineReport { number, at: 1_767_225_601_002_999, text: text.to_owned() }
    }

    const BRIEF: SummaryStyle = SummaryStyle { verbose: false };
    const VERBOSE: SummaryStyle = SummaryStyle { verbose: true };

    #[test]
    fn lines_have_times_as_javas() {
        let printed = repair_line(&line(0, "Repair completed successfully"));
        assert_eq!(printed, "[2026-01-01 00:00:01,002] Repair completed successfully\n");
        assert_eq!(
            repair_not_needed("ks", 0),
            "[1970-01-01 00:00:00,000] Replication factor is 1. No repair is needed for keyspace \
             'ks'\n"
        );
    }

    #[test]
    fn the_reason_of_a_failure_is_told_last() {
        let lines = vec![
            line(0, "Repair session x for range [(1,2]] failed with error a (progress: 5%)"),
            line(1, "Repair command #1 failed with error a"),
            line(2, "Repair command #1 finished with error"),
        ];
        let report = RepairReport { lines, ..RepairReport::default() };
        assert_eq!(
            repair_failure(&report),
            "Repair job has failed with the error message: Repair command #1 failed with error a. \
             Check the logs on the repair participants for further details"
        );
    }

    #[test]
    fn the_schedule_says_how_fast_it_goes_and_when_it_is_behind() {
        let report = AutoRepairReport {
            enabled: true,
            bytes_per_second: 8 << 20,
            pace_bytes_per_second: 128 << 10,
            needed_bytes_per_second: 70 << 10,
            ..AutoRepairReport::default()
        };
        let text = "Enabled: true\nThroughput: at most 8192 KiB/s\nPace: 128 KiB/s\n";
        assert_eq!(auto_repair(&report), format!("{text}Behind: no\nNo replicated tables\n"));
        let report = AutoRepairReport { is_behind: true, late_parts: 3, ..report };
        let behind = "Behind: yes, 3 parts of tables are past their window, 70 KiB/s are needed\n";
        assert_eq!(auto_repair(&report), format!("{text}{behind}No replicated tables\n"));
    }

    #[test]
    fn the_configuration_is_that_of_the_node() {
        let report = AutoRepairReport { bytes_per_second: 8 << 20, ..AutoRepairReport::default() };
        // A node alone has nothing to repair.
        assert_eq!(auto_repair_config(&report), "Auto-repair is not enabled\n");
        let config = crate::model::AutoRepairConfig {
            window_seconds: 86_400,
            initial_delay_seconds: 300,
            turn_seconds: 60,
        };
        let report = AutoRepairReport { enabled: true, config: Some(config), ..report };
        assert_eq!(
            auto_repair_config(&report),
            "repair scheduler configuration:\n\tauto_repair_turn: 60s\n\tauto_repair_initial_delay: 300s\n\
             configuration for repair_type: full\n\tenabled: true\n\tauto_repair_window: 86400s\n\
             \tauto_repair_throughput: 8192KiB/s\n"
        );
    }

    #[test]
    fn summaries_have_cassandras_columns() {
        assert_eq!(repair_repaired(&[], BRIEF), "no stats\n");
        let one = RepairSummary {
            keyspace: "ks".to_owned(),
            table: "t".to_owned(),
            pending_bytes: 1024,
            pending_files: 3,
            pending_sessions: vec!["a".to_owned(), "b".to_owned()],
            repaired: vec![(-5, 5, 7_000), (5, 9, 0)],
        };
        let rows = |text: String| -> Vec<Vec<String>> {
            let cells = |line: &str| line.split('|').map(|c| c.trim().to_owned()).collect();
            text.lines().map(cells).collect()
        };
        let pending = rows(repair_pending(std::slice::from_ref(&one), VERBOSE));
        assert_eq!(pending[0], ["keyspace", "table", "total", "pending", "finalized", "failed"]);
        let (all, none) = ("1 KiB (3 sstables / 2 sessions)", "0 bytes (0 sstables / 0 sessions)");
        assert_eq!(pending[1], ["ks", "t", all, all, none, none]);
        assert_eq!(rows(repair_pending(std::slice::from_ref(&one), BRIEF))[1], ["ks", "t", all]);
        let repaired = rows(repair_repaired(std::slice::from_ref(&one), VERBOSE));
        assert_eq!(repaired[0], ["keyspace", "table", "min_repaired", "max_repaired", "detail"]);
        assert_eq!(repaired[1], ["ks", "t", "0", "7000", "(-5,5]=7000, (5,9]=0"]);
    }

    #[test]
    fn the_list_says_when_there_is_none() {
        assert_eq!(repair_list(&[]), "no sessions\n");
        let report = RepairReport { id: 3, percent: 40, ..RepairReport::default() };
        assert!(repair_list(&[report]).lines().nth(1).unwrap().starts_with("3       |"));
    }
}
