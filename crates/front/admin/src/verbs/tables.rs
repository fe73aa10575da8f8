//! Verbs that show tables, latencies and compactions.

use super::line::{Failure, Format, Line, Outcome};
use super::node::{keyspaces_and_tables, node};
use super::upkeep;
use crate::model::{
    CompactionReport, CoordinatorReport, HistoryReport, PlannedReport, TableReport, UpgradeRequest,
};
use crate::nodetool::{self as layout, TableFilter, TableStatsOptions};
use crate::operation::{COMPACTIONS, Method};

/// `tablestats`.
pub(super) fn table_stats(line: &Line) -> Outcome {
    let format = line.value("--format").unwrap_or_default();
    if !["", "json", "yaml"].contains(&format) {
        return Err(Failure::BadUse("arguments for -F are json,yaml only.".to_owned()));
    }
    let sort = line.value("--sort").map(layout::SortKey::parse).transpose();
    let sort = sort.map_err(Failure::BadUse)?;
    let top: i32 = match line.value("--top") {
        None => 0,
        Some(text) => text
            .parse()
            .map_err(|_| Failure::BadUse(format!("top: can not convert \"{text}\" to a int")))?,
    };
    if top > 0 && sort.is_none() {
        let text = "cannot filter top K tables without specifying a sort key.";
        return Err(Failure::BadUse(text.to_owned()));
    }
    let top = usize::try_from(top)
        .map_err(|_| Failure::BadUse("argument for top must be a positive integer.".to_owned()))?;
    let filter = TableFilter { ignore: line.has("-i"), names: line.arguments.clone() };
    let options = TableStatsOptions {
        human_readable: line.has("--human-readable"),
        location_check: line.has("--sstable-location-check"),
        sort,
        top,
    };
    let tables: Vec<TableReport> = line.api.get("/api/v1/tables")?;
    let text = match format {
        "json" => layout::table_stats_json(&tables, &filter, options),
        "yaml" => layout::table_stats_yaml(&tables, &filter, options),
        _ => layout::table_stats(&tables, &filter, options),
    };
    text.map_err(Failure::BadUse)
}

/// `tablehistograms`.
pub(super) fn table_histograms(line: &Line) -> Outcome {
    let tables: Vec<TableReport> = line.api.get("/api/v1/tables")?;
    layout::table_histograms(&tables, &line.arguments).map_err(Failure::BadUse)
}

/// `proxyhistograms`.
pub(super) fn proxy_histograms(line: &Line) -> Outcome {
    let report: CoordinatorReport = line.api.get("/api/v1/latencies")?;
    Ok(layout::proxy_histograms(&report))
}

/// `compactionhistory`.
pub(super) fn compaction_history(line: &Line) -> Outcome {
    let format = Format::of(line, "json,yaml")?;
    let history: Vec<HistoryReport> = line.api.get("/api/v1/compactions/history")?;
    Ok(format.choose(
        || layout::compaction_history(&history),
        || layout::compaction_history_json(&history),
    ))
}

/// `compactionplan`.
pub(super) fn compaction_plan(line: &Line) -> Outcome {
    let (keyspaces, tables) = keyspaces_and_tables(line)?;
    if let (Some(keyspace), false) = (keyspaces.first(), tables.is_empty()) {
        let node = node(&line.api)?;
        let known = node.keyspace(keyspace).map_or(&[][..], |k| k.tables.as_slice());
        if let Some(missing) = tables.iter().find(|table| !known.contains(table)) {
            let text = format!("Unknown keyspace/cf pair ({keyspace}.{missing})");
            return Err(Failure::BadUse(text));
        }
    }
    let mut plans: Vec<PlannedReport> = line.api.get("/api/v1/compactions/plan")?;
    plans.retain(|plan| {
        (keyspaces.is_empty() || keyspaces.contains(&plan.keyspace))
            && (tables.is_empty() || tables.contains(&plan.table))
    });
    let sizes = layout::SizeStyle { human_readable: line.has("--human-readable") };
    Ok(layout::compaction_plan(&plans, sizes))
}

/// `compactionstats`.
pub(super) fn compaction_stats(line: &Line) -> Outcome {
    let report: CompactionReport = line.api.get(COMPACTIONS)?;
    let style = layout::CompactionStatsStyle {
        human_readable: line.has("--human-readable"),
        as_table: line.has("--vtable"),
    };
    Ok(layout::compaction_stats(&report, style))
}

/// `upgradesstables`.
pub(super) fn upgrade_sstables(line: &Line) -> Outcome {
    upkeep::check_jobs(line)?;
    let (keyspaces, tables) = keyspaces_and_tables(line)?;
    let all = line.has("--include-all-sstables");
    let written_by = match line.value("--max-timestamp") {
        None => None,
        Some(text) => Some(text.parse().map_err(|_| {
            Failure::BadUse(format!("max_timestamp: can not convert \"{text}\" to a long"))
        })?),
    };
    let request = UpgradeRequest { keyspaces, tables, all, written_by };
    line.api.command(Method::Post, "/api/v1/upgradesstables", &request)?;
    Ok(String::new())
}

#[cfg(test)]
mod tests {
    use super::super::tests::parse;
    use super::*;

    #[test]
    fn the_order_of_tablestats_is_checked_before_anybody_is_asked() {
        let refused = [
            ("tablestats -F xml", "arguments for -F are json,yaml only."),
            ("tablestats -t 3", "cannot filter top K tables without specifying a sort key."),
            ("tablestats -s reads -t -3", "argument for top must be a positive integer."),
            ("tablestats -s reads -t x", "top: can not convert \"x\" to a int"),
            ("tablestats -s dropped_mutations", "Unsupported sort key: dropped_mutations"),
        ];
        for (text, expected) in refused {
            match table_stats(&parse(text).unwrap()) {
                Err(Failure::BadUse(message)) => assert_eq!(message, expected, "{text}"),
                other => panic!("{text}: {other:?}"),
            }
        }
    }
}
