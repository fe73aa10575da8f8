//! `nodetool profileload` and `toppartitions`. Source: `SamplingManager.ResultBuilder`, `Sampler.SamplerType`.

use std::fmt::Write;

use store::Sampler;

use super::format::Table;
use crate::model::SamplerReport;

fn heading(sampler: Sampler) -> (&'static str, [&'static str; 4]) {
    let partitions = |what| ["Table", "Partition", what, ""];
    match sampler {
        Sampler::Reads => {
            ("Frequency of reads by partition", ["Table", "Partition", "Count", "+/-"])
        }
        Sampler::Writes => {
            ("Frequency of writes by partition", ["Table", "Partition", "Count", "+/-"])
        }
        Sampler::LocalReadTime => ("Longest read query times", ["Query", "Microseconds", "", ""]),
        Sampler::ReadRowCount => ("Partitions read with the most rows", partitions("Rows")),
        Sampler::ReadTombstoneCount => {
            ("Partitions read with the most tombstones", partitions("Tombstones"))
        }
        Sampler::ReadSstableCount => {
            ("Partitions read with the most sstables", partitions("SSTables"))
        }
        Sampler::WriteSize => ("Max mutation size by partition", partitions("Bytes")),
        Sampler::CasContentions => {
            ("Frequency of CAS contention by partition", ["Table", "Partition", "Count", "+/-"])
        }
    }
}

/// Where tables of samples are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SamplesIn {
    /// On a terminal: no empty line before the first.
    Terminal,
    /// In the log, below the head of a line.
    Log,
}

/// A table for each requested sampler.
pub fn samples(reports: &[SamplerReport], place: SamplesIn) -> String {
    let mut out = String::new();
    let mut is_first = place == SamplesIn::Terminal;
    for sampler in Sampler::ALL {
        let Some(report) = reports.iter().find(|r| r.sampler == sampler.name()) else { continue };
        if !std::mem::take(&mut is_first) {
            out.push('\n');
        }
        let (title, columns) = heading(sampler);
        let _ = writeln!(out, "{title}:");
        if report.samples.is_empty() {
            out.push_str("   Nothing recorded during sampling period...\n");
            continue;
        }
        let columns: Vec<&str> = columns.into_iter().take_while(|c| !c.is_empty()).collect();
        let mut table = Table::new(" ");
        let mut heads = vec!["  "];
        heads.extend(&columns);
        table.add(&heads);
        for sample in &report.samples {
            let (count, error) = (sample.count.to_string(), sample.error.to_string());
            let cell = |column: &&str| match *column {
                "Table" => sample.table.clone(),
                "Partition" | "Query" => sample.value.clone(),
                "+/-" => error.clone(),
                _ => count.clone(),
            };
            let mut cells = vec!["  ".to_owned()];
            cells.extend(columns.iter().map(cell));
            table.add(&cells.iter().map(String::as_str).collect::<Vec<_>>());
        }
        table.print(&mut out);
    }
    out.push('\n');
    out
}

/// `profileload -l`: jobs as `keyspace.table`.
pub fn sample_jobs(jobs: &[String]) -> String {
    let jobs: Vec<(&str, &str)> = jobs.iter().filter_map(|job| job.split_once('.')).collect();
    let widest = |head: &str, of: fn(&(&str, &str)) -> usize| {
        jobs.iter().map(of).fold(head.len(), usize::max)
    };
    let (keyspace, table) = (widest("KEYSPACE", |j| j.0.len()), widest("TABLE", |j| j.1.len()));
    let mut out = format!("{:>keyspace$} {:>table$}\n", "KEYSPACE", "TABLE");
    for job in jobs {
        let _ = writeln!(out, "{:>keyspace$} {:>table$}", job.0, job.1);
    }
    out
}
