//! `amplification`: cost of each compaction strategy over long simulated workloads, as a page with
//! plots. The counts come from `compact_plan::simulated`; they are the same on every machine.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use compact_plan::simulated::{self, Costs, Workload};

const PAGE: &str = "docs/internals/amplification.md";
/// Flushes of a workload: 16 GiB.
const FLUSHES: u64 = 256;
const COLOURS: [&str; 7] =
    ["#4e79a7", "#e15759", "#59a14f", "#b07aa1", "#f28e2b", "#9c755f", "#76b7b2"];

/// A strategy and its costs by workload.
type Row = (&'static str, Vec<Costs>);

/// A number of the costs, with a plot.
struct Metric {
    file: &'static str,
    title: &'static str,
    of: fn(&Costs) -> f64,
}

const METRICS: [Metric; 4] = [
    Metric {
        file: "amplification-writes.svg",
        title: "Bytes written for each byte flushed",
        of: Costs::write_amplification,
    },
    Metric {
        file: "amplification-reads.svg",
        title: "SSTables that hold a version of the key that is read, mean",
        of: |costs| costs.files_per_read,
    },
    Metric {
        file: "amplification-space.svg",
        title: "Bytes on disk for each byte alive, mean",
        of: |costs| costs.space,
    },
    Metric {
        file: "amplification-temporary.svg",
        title: "Temporary space of one compaction, GiB at most",
        of: |costs| costs.temporary as f64 / f64::from(1 << 30),
    },
];

/// The task with the page and its plots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Write them.
    Write,
    /// Compare the page with the one that would be written.
    Check,
}

/// Writes or checks the page and its plots.
pub fn run(root: &Path, task: Task) -> Result<bool> {
    let is_check = task == Task::Check;
    let rows: Vec<Row> = simulated::compared()
        .into_iter()
        .map(|(name, options)| {
            let of = |workload: &Workload| simulated::run(&options, *workload, FLUSHES);
            (name, Workload::ALL.iter().map(of).collect())
        })
        .collect();
    let mut files = vec![(PAGE.to_owned(), page(&rows))];
    for metric in &METRICS {
        files.push((format!("docs/internals/{}", metric.file), plot(metric, &rows)));
    }
    let mut is_right = true;
    for (name, text) in files {
        let path = root.join(&name);
        if !is_check {
            std::fs::write(&path, text).with_context(|| name.clone())?;
            println!("{name}");
        } else if std::fs::read_to_string(&path).unwrap_or_default() != text {
            println!("{name} is not what `cargo xtask amplification` writes");
            is_right = false;
        }
    }
    Ok(is_right)
}

fn page(rows: &[Row]) -> String {
    let mut text = format!(
        "# What compaction costs\n\n\
         Written by `cargo xtask amplification`; the model is `compact_plan::simulated`, its tests check\n\
         the properties below. {FLUSHES} flushes of 64 MiB (512 versions of 128 KiB), one every ten\n\
         minutes; after each all compactions run that the pickers want. Tombstones may go after an hour;\n\
         the time series lives for a day, in windows of four hours; overwrites are of 1 GiB of keys.\n\
         Everything else is at the defaults of the strategies (fragments of incremental compaction have\n\
         up to 1000 MiB). Reads, space and temporary space are of the second half of each run.\n\n\
         Temporary space is what one compaction, or one part of it, has written when its inputs are not\n\
         gone yet. The model leaves out compression, values of different sizes, several compactions at\n\
         once, and that compactions take time.\n",
    );
    for (n, workload) in Workload::ALL.iter().enumerate() {
        let name = workload.name();
        let _ = write!(
            text,
            "\n## {}{}\n\n\
             | | written / flushed | SSTables per read, mean | 99 % | most | disk / alive, mean | most | \
             temporary, MiB | of the table | compactions | SSTables |\n\
             |---|---|---|---|---|---|---|---|---|---|---|\n",
            name.get(..1).unwrap_or_default().to_uppercase(),
            name.get(1..).unwrap_or_default(),
        );
        for (strategy, costs) in rows {
            let Some(c) = costs.get(n) else { continue };
            let _ = writeln!(
                text,
                "| {strategy} | {:.2} | {:.2} | {} | {} | {:.2} | {:.2} | {} | {:.0} % | {} | {} |",
                c.write_amplification(),
                c.files_per_read,
                c.files_per_read_p99,
                c.files_per_read_max,
                c.space,
                c.space_max,
                c.temporary >> 20,
                c.temporary_share * 100.0,
                c.compactions,
                c.files,
            );
        }
    }
    text.push_str("\n## Plots\n");
    for metric in &METRICS {
        let _ = write!(text, "\n![{}]({})\n", metric.title, metric.file);
    }
    text.push_str(
        "\n## What follows\n\n\
         - Time-window compaction writes least, then size-tiered; leveled writes more than twice as much.\n\
         - Leveled compaction has a key in two SSTables at most.\n\
         - Time-window compaction needs space for one window, and holds one window more than is alive.\n\
         - Size-tiered compaction needs space for the whole table once more. Unified compaction needs it\n\
         \x20 for one shard, incremental for one fragment of each run that is merged, however large the\n\
         \x20 table is, and writes as much as size-tiered does.\n\
         - Cluster-key compaction needs space for one window, as time-window compaction does. It does\n\
         \x20 not end with one SSTable a window: less is written, more SSTables stay. Where keys are written\n\
         \x20 again and again in one window it is size-tiered compaction.\n\
         - `space_amplification_goal` holds less that is dead, for some more writing and more temporary\n\
         \x20 space where the largest tier is merged with small runs.\n",
    );
    text
}

const WIDTH: usize = 760;
const HEIGHT: usize = 260;
const TOP: usize = 56;
const BOTTOM: usize = 210;

/// Bars, one group for each workload.
fn plot(metric: &Metric, rows: &[Row]) -> String {
    let values = rows.iter().flat_map(|(_, costs)| costs.iter().map(metric.of));
    let most = values.fold(f64::MIN_POSITIVE, f64::max);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n\
         <text x=\"10\" y=\"18\" font-size=\"14\">{}</text>\n",
        metric.title
    );
    for (n, ((name, _), colour)) in rows.iter().zip(COLOURS).enumerate() {
        let x = 10 + n * 90;
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"28\" width=\"10\" height=\"10\" fill=\"{colour}\"/>\
             <text x=\"{}\" y=\"37\">{name}</text>",
            x + 14
        );
    }
    let group = (WIDTH - 20) / Workload::ALL.len();
    for (w, workload) in Workload::ALL.iter().enumerate() {
        let left = 10 + w * group;
        for (n, ((_, costs), colour)) in rows.iter().zip(COLOURS).enumerate() {
            let value = costs.get(w).map_or(0.0, metric.of);
            let height = value / most * (BOTTOM - TOP) as f64;
            let x = left + 4 + n * 25;
            let y = BOTTOM as f64 - height;
            let _ = writeln!(
                svg,
                "<rect x=\"{x}\" y=\"{y:.1}\" width=\"22\" height=\"{height:.1}\" \
                 fill=\"{colour}\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"middle\" \
                 font-size=\"9\">{value:.2}</text>",
                x + 11,
                y - 3.0
            );
        }
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            left + group / 2,
            BOTTOM + 18,
            workload.name()
        );
    }
    let _ = writeln!(
        svg,
        "<line x1=\"10\" y1=\"{BOTTOM}\" x2=\"{}\" y2=\"{BOTTOM}\" stroke=\"black\"/>\n</svg>",
        WIDTH - 10
    );
    svg
}
