//! `perf indexes`: what secondary indexes cost, beside a real Cassandra 5.0.9 with its storage-attached indexes.
//!
//! Both databases run on this machine, the one that is not measured is stopped by SIGSTOP. They have the same rows,
//! flushed and compacted, the same client (`driver`) with the same number of requests in flight, and take turns.
//! Server CPU is user and system time of the process. Every answer is compared with the correct one. The rules and
//! goals (`goals`) are written into the output before anything is measured.
//!
//! Reading order: `settings`, `goals`, `database`, `driver`, `lines`; `rows`, `reads`, `writes`; `vector_set`,
//! `equal_recall`, `vectors`.

mod database;
mod driver;
mod equal_recall;
mod goals;
mod lines;
mod reads;
mod rows;
mod settings;
mod vector_set;
mod vectors;
mod writes;

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use serde_json::json;

use super::report::Report;
use super::{cassandra, process};
use database::Database;
use settings::{Section, Settings};

/// Runs it; writes `indexes.md` and `indexes.json` below `target/perf`. True also when a goal was missed: figures
/// depend on the machine.
///
/// # Errors
/// A server fails, or an answer is wrong.
pub fn run(root: &Path, words: &[&str]) -> Result<bool> {
    let settings = Settings::parse(words)?;
    let home = root.join("target/perf");
    crate::disk::create_dir_all(&home)?;
    process::build_helenus(root)?;
    let mut report = Report::named("indexes");
    head(root, words, &settings, &mut report)?;
    goals::announce(&settings, &mut report);
    report.write(&home)?;

    let mut databases = Database::start_all(root, &home, &settings.memory, settings.cassandra)?;
    if settings.has(Section::Reads) {
        reads::run(&mut databases, &settings, &mut report)?;
        report.write(&home)?;
    }
    if settings.has(Section::Writes) {
        writes::run(&mut databases, &settings, &mut report)?;
        report.write(&home)?;
    }
    if settings.has(Section::Vectors) {
        vectors::run(&home, &mut databases, &settings, &mut report)?;
        report.write(&home)?;
    }
    for database in databases {
        database.server.stop()?;
    }
    println!("{}", report.verdict_lines());
    println!("{} and {}", home.join("indexes.md").display(), home.join("indexes.json").display());
    Ok(true)
}

/// Command, machine and versions.
fn head(root: &Path, words: &[&str], settings: &Settings, report: &mut Report) -> Result<()> {
    let output = Command::new(process::helenus_binary(root)).arg("--version").output()?;
    let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let command = format!("`cargo xtask perf indexes {}`", words.join(" ")).replace(" `", "`");
    let machine = format!("{}, {} CPUs", super::cpu_model(), super::cpus());
    let theirs = if settings.cassandra {
        format!(
            "Cassandra {}, JDK 17, trie memtables, BTI files, heap {}",
            cassandra::VERSION,
            settings.memory
        )
    } else {
        "none".to_owned()
    };
    let ours = format!("{version}, {} shards, memory {}", database::SHARDS, settings.memory);
    let rows: Vec<Vec<String>> =
        [("command", command), ("machine", machine), ("helenus", ours), ("compared with", theirs)]
            .into_iter()
            .map(|(name, value)| vec![name.to_owned(), value])
            .collect();
    report.table("Costs of secondary indexes", &["what", "which"], &rows);
    report.keep("settings", json!(settings));
    report.keep("machine", super::machine());
    report.keep("version", json!(version));
    Ok(())
}
