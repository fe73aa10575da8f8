//! Runs files one by one and compares their answers, independent of the kind of connection.
//!
//! Owns the order of the files, the names of their keyspaces and the verdict. Never opens a
//! connection: the caller provides it (`wire` over TCP, the simulator inside one process), so both
//! are judged alike.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::file;
use crate::run::{Connected, Mode, Report, run};

/// Makes a connection of a protocol version, as a user when one is given.
pub type Connector<'a> = dyn Fn(u8, Option<(&str, &str)>) -> Result<Connected> + 'a;

/// Results of all files together.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Files that were tried.
    pub files: usize,
    /// Statements that were compared.
    pub checked: usize,
    /// Those whose answer is neither Cassandra's nor our documented one.
    pub failed: usize,
    /// Those that match our documented answers.
    pub known: usize,
    /// Files that could not be run to their end, and differences that are gone.
    pub broken: usize,
    /// Everything that is wrong, in lines for a reader.
    pub messages: Vec<String>,
}

impl Verdict {
    /// Returns true if nothing failed.
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

/// Runs all files; an error in one does not stop the others.
pub fn run_all(suite: &Suite, connect: &Connector<'_>) -> Verdict {
    let mut verdict = Verdict { files: suite.files.len(), ..Verdict::default() };
    for path in &suite.files {
        match run_file(path, suite, connect) {
            Ok(report) => {
                verdict.checked += report.checked;
                verdict.failed += report.differences.len();
                verdict.known += report.known;
                verdict.broken += report.outlived.len();
                let (path, differ) = (path.as_path(), report.differences.len());
                if differ > 0 {
                    let (path, of) = (path.display(), report.checked);
                    verdict.messages.push(format!("{path}: {differ} of {of} statements differ"));
                }
                for difference in &report.differences {
                    verdict.messages.extend(difference.lines(path));
                }
                for line in &report.outlived {
                    let path = path.display();
                    let gone = "the difference is gone, remove its `~` lines";
                    verdict.messages.push(format!("{path}:{line}: {gone}"));
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

fn run_file(path: &Path, suite: &Suite, connect: &Connector<'_>) -> Result<Report> {
    let text = std::fs::read_to_string(path)?;
    let mut parsed = file::parse(&text)?;
    let stem = path.file_stem().and_then(|stem| stem.to_str()).context("a file without a name")?;
    let keyspace = format!("{}_{}", suite.prefix, stem.replace('-', "_"));
    let version = parsed.protocol.unwrap_or(5);
    let connect = |user: Option<(&str, &str)>| connect(version, user);
    let report = run(&mut parsed, &connect, &keyspace, suite.mode)?;
    if suite.mode != Mode::Check {
        std::fs::write(path, file::print(&parsed))?;
    }
    Ok(report)
}
