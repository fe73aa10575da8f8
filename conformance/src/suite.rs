//! Runs files one by one and tells their differences apart, whatever the connections are made of.
//!
//! Owns the order of the files, the names of their keyspaces and the verdict. Never opens a connection:
//! who runs it says how (`wire` over TCP, the simulator inside one process), so both are judged alike.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::file;
use crate::known::{Judged, KnownDifferences};
use crate::run::{Connected, Mode, run};

/// Name of the list of known differences, beside the folder of the files.
pub const KNOWN: &str = "known-differences.txt";

/// Makes a connection of a protocol version, as a user when one is given.
pub type Connector<'a> = dyn Fn(u8, Option<(&str, &str)>) -> Result<Connected> + 'a;

/// What the files gave together.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Files that were tried.
    pub files: usize,
    /// Statements that were compared.
    pub checked: usize,
    /// Those that differ and are not listed.
    pub failed: usize,
    /// Those that differ and are listed.
    pub known: usize,
    /// What could not be run to its end, and entries of the list that no longer differ.
    pub broken: usize,
    /// Everything that is wrong, in lines for a reader.
    pub messages: Vec<String>,
}

impl Verdict {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.failed == 0 && self.broken == 0
    }
}

/// The files to run.
pub struct Suite {
    /// In this order.
    pub files: Vec<PathBuf>,
    /// Keyspaces are named `<prefix>_<file>`.
    pub prefix: String,
    /// Compare or record.
    pub mode: Mode,
    /// What may differ.
    pub known: KnownDifferences,
}

/// The `.cqltest` files of a folder by name, or the one file.
///
/// # Errors
/// The folder cannot be read.
pub fn expand(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).with_context(|| path.display().to_string())? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "cqltest") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Reads a list of known differences.
///
/// # Errors
/// The list cannot be read or is not well formed.
pub fn known_differences(path: &Path) -> Result<KnownDifferences> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    KnownDifferences::parse(&text).with_context(|| path.display().to_string())
}

/// Runs all files; what goes wrong with one does not keep the others from being run.
pub fn run_all(suite: &Suite, connect: &Connector<'_>) -> Verdict {
    let mut verdict = Verdict { files: suite.files.len(), ..Verdict::default() };
    for path in &suite.files {
        match run_file(path, suite, connect) {
            Ok((checked, judged)) => {
                verdict.checked += checked;
                verdict.failed += judged.unknown.len();
                verdict.known += judged.known;
                if !judged.unknown.is_empty() {
                    let (path, count) = (path.display(), judged.unknown.len());
                    let line = format!("{path}: {count} of {checked} statements differ");
                    verdict.messages.push(line);
                }
                for difference in &judged.unknown {
                    verdict.messages.extend(difference.lines(path));
                }
                if suite.mode == Mode::Check {
                    verdict.broken += judged.outlived.len();
                    verdict.messages.extend(judged.outlived);
                }
            }
            Err(error) => {
                verdict.broken += 1;
                verdict.messages.push(format!("{}: {error:#}", path.display()));
            }
        }
    }
    verdict
}

fn run_file(path: &Path, suite: &Suite, connect: &Connector<'_>) -> Result<(usize, Judged)> {
    let text = std::fs::read_to_string(path)?;
    let mut parsed = file::parse(&text)?;
    let stem = path.file_stem().and_then(|stem| stem.to_str()).context("a file without a name")?;
    let keyspace = format!("{}_{}", suite.prefix, stem.replace('-', "_"));
    let version = parsed.protocol.unwrap_or(5);
    let connect = |user: Option<(&str, &str)>| connect(version, user);
    let report = run(&mut parsed, &connect, &keyspace, suite.mode)?;
    if suite.mode == Mode::Record {
        std::fs::write(path, file::print(&parsed))?;
    }
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    Ok((report.checked, suite.known.judge(name, report.differences)))
}
