//! Reads through all pages, with the server's memory measured after each.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::cql::Client;
use super::process::{Server, Target};

/// Longest wait for one answer: an aggregate has only one.
pub const ANSWER_MAX: Duration = Duration::from_secs(3600);
/// Longest page, in seconds: drivers wait ten or twelve.
pub const PAGE_SECONDS: f64 = 10.0;
/// Rows of a page, as drivers ask by default.
const PAGE_ROWS: u32 = 5_000;

/// Cost of one read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Watched {
    /// Rows that came.
    pub rows: u64,
    /// Their pages.
    pub pages: u32,
    /// By the clock.
    pub seconds: f64,
    /// CPU of the server.
    pub cpu: f64,
    /// The page that took longest, in seconds.
    pub longest: f64,
    /// Resident memory before, MiB.
    pub before: f64,
    /// And at most.
    pub peak: f64,
}

/// Reads all rows of a statement.
///
/// # Errors
/// The statement fails, or takes longer than an hour for a page.
pub fn read(server: &Server, statement: &str) -> Result<Watched> {
    let mut client = Client::connect(server.address(), ANSWER_MAX)?;
    let id = client.prepare(statement)?;
    let (before, cpu, begun) = (server.rss_mib()?, server.cpu_seconds()?, Instant::now());
    let mut seen = Watched { before, peak: before, ..Watched::default() };
    let mut asked = Instant::now();
    seen.rows = client.rows_with(&id, PAGE_ROWS, || {
        seen.pages += 1;
        seen.peak = seen.peak.max(server.rss_mib()?);
        seen.longest = seen.longest.max(asked.elapsed().as_secs_f64());
        asked = Instant::now();
        Ok(())
    })?;
    seen.seconds = begun.elapsed().as_secs_f64();
    seen.cpu = server.cpu_seconds()? - cpu;
    Ok(seen)
}

/// `--mb N` and `--memory NM` of a command: megabytes of data, the server's memory as written and in MiB.
///
/// # Errors
/// Another option, or a value that is none.
pub fn options<'w>(words: &[&'w str], mb: u64, memory: &'w str) -> Result<(u64, &'w str, f64)> {
    let (mut mb, mut memory) = (mb, memory);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let value = words.next().with_context(|| format!("{word} needs a value"))?;
        match *word {
            "--mb" => mb = value.parse()?,
            "--memory" => memory = value,
            _ => bail!("unknown option {word}; see cargo xtask help"),
        }
    }
    match memory.strip_suffix('M').map(str::parse::<f64>) {
        Some(Ok(mib)) => Ok((mb, memory, mib)),
        _ => bail!("--memory takes MiB, as 512M"),
    }
}
