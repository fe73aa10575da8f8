//! Rewrites a damaged file set with all data that can be read from it.
//!
//! Data is read from front to back. After an unreadable offset, the current partition ends with the
//! items read so far, and reading resumes at the next partition's start according to the index. Rows
//! and partitions that are out of order are written to further file sets. Every loss is reported.
//! Source of the idea: `io.sstable.format.SortedTableScrubber`, which drops such a partition as a
//! whole.

mod values;
mod work;

use rt::Fs;
use schema::Table;
use sst_format::Descriptor;
use stdx::{Generation, Token};

use self::work::Scrub;
use super::salvage::{self, Salvaged};
use super::upgrade::{options_like, written_version};
use crate::writer::{WriterOptions, Written};
use crate::{Result, SstableError, SstableReader};

/// Something that could not be saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Partition key as text, where it is known.
    pub key: Option<String>,
    /// Where in (uncompressed) Data.
    pub position: u64,
    /// The lost data and the cause.
    pub what: String,
}

/// Result of a scrub.
#[derive(Clone, Debug, Default)]
pub struct ScrubReport {
    /// The new file sets, in the directory of the old one.
    pub written: Vec<Written>,
    /// Partitions written, whole ones or parts.
    pub partitions: u64,
    /// Rows written, static ones included.
    pub rows: u64,
    /// Those of these partitions that were out of order.
    pub out_of_order: u64,
    /// Those of these rows that were out of order in their partition.
    pub rows_out_of_order: u64,
    /// How often something was lost.
    pub losses: u64,
    /// Partitions that lost something.
    pub bad_partitions: u64,
    /// Rows whose time to live had overflowed and was set to the largest.
    pub fixed_rows: u64,
    /// The host aborted it: the output is incomplete.
    pub given_up: bool,
    /// Components that were damaged and have been rebuilt, with the error.
    pub bad_components: Vec<String>,
}

/// Reactions of a scrub to damage. Source: Cassandra `IScrubber.Options`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubOptions {
    /// Continues after a loss in a table of counters too, which count less then.
    pub skip_corrupted: bool,
    /// A row with a value that its column cannot have is lost.
    pub validate: bool,
    /// Rows whose time to live went beyond 2038 in a version before `oa` win over their deletions.
    pub reinsert_overflowed_ttl: bool,
}

impl Default for ScrubOptions {
    fn default() -> Self {
        ScrubOptions { skip_corrupted: false, validate: true, reinsert_overflowed_ttl: false }
    }
}

/// Caller of a scrub: it names new file sets and receives reports.
pub trait ScrubHost {
    /// The number of the next file set; `None` aborts the scrub.
    fn next_generation(&mut self) -> Option<Generation>;

    /// Returns true if partitions of a token are written.
    fn is_wanted(&self, token: Token) -> bool;

    /// Something is lost.
    fn tell(&mut self, loss: &Loss);

    /// Called between pieces of the work, with the position of the reading in (uncompressed) Data
    /// and how many bytes the current file set has; false aborts the scrub.
    fn goes_on(&mut self, position: u64, written: u64) -> impl Future<Output = bool>;
}

/// A tool that has the directory for itself.
struct Alone<'t> {
    next: Generation,
    /// Uncompressed bytes of Data.
    total: u64,
    told: Told<'t>,
}

/// Callbacks of a scrub.
pub struct Told<'t> {
    /// Gets every loss as it is met.
    pub loss: &'t mut dyn FnMut(&Loss),
    /// Called repeatedly with the (uncompressed) bytes of Data done and their total.
    pub at: &'t mut dyn FnMut(u64, u64),
}

impl ScrubHost for Alone<'_> {
    fn next_generation(&mut self) -> Option<Generation> {
        let next = self.next;
        self.next = Generation(next.0.saturating_add(1));
        Some(next)
    }

    fn is_wanted(&self, _: Token) -> bool {
        true
    }

    fn tell(&mut self, loss: &Loss) {
        (self.told.loss)(loss);
    }

    async fn goes_on(&mut self, position: u64, _: u64) -> bool {
        (self.told.at)(position, self.total);
        true
    }
}

/// Writes the readable data of a file set to new ones in the same directory, with the numbers from
/// `first` on. The old one stays.
///
/// # Errors
/// `Missing`, `Corrupt`, `Unsupported`: Data, Statistics or CompressionInfo are unusable, so that
/// nothing can be read; data of a counter is lost without `skip_corrupted`. `Io`, `AlreadyExists`
/// among them, of writing. The written files are removed then.
pub async fn scrub(
    fs: &Fs,
    directory: &str,
    set: Descriptor,
    first: Generation,
    how: ScrubOptions,
    told: Told<'_>,
) -> Result<ScrubReport> {
    let Salvaged { reader, has_index, bad } = salvage::open(fs, directory, set, None).await?;
    let table = super::table_of_header(&reader.meta().statistics().header);
    let mut options = options_like(&reader, &table, first)?;
    options.version = written_version(set.version);
    let mut host = Alone { next: first, total: reader.meta().data_length(), told };
    let report = ScrubReport { bad_components: bad, ..ScrubReport::default() };
    let mut scrub = Scrub::new(fs, directory, &reader, table, options, how, &mut host);
    scrub.report = report;
    match scrub.run(has_index).await {
        Ok(()) => Ok(scrub.report),
        Err(error) => {
            for written in &scrub.report.written {
                drop(crate::remove_sstable(fs, directory, written.descriptor).await);
            }
            Err(error)
        }
    }
}

/// The same for a file that a node has open, or knows that it cannot be opened, with the table as
/// it is now. A file without any readable data loses everything, which is no error. The options'
/// number does not count. The written files are not removed when it fails or is aborted: the host
/// knows the numbers.
///
/// # Errors
/// Those of [`scrub`].
pub async fn scrub_open<H: ScrubHost>(
    fs: &Fs,
    reader: &SstableReader,
    table: &Table,
    options: WriterOptions,
    how: ScrubOptions,
    host: &mut H,
) -> Result<ScrubReport> {
    let directory = reader.meta().directory().to_owned();
    let copy = table.clone();
    if reader.meta().unreadable().is_none() {
        let mut scrub = Scrub::new(fs, &directory, reader, copy, options, how, host);
        scrub.run(true).await?;
        return Ok(scrub.report);
    }
    let set = reader.meta().descriptor();
    let Salvaged { reader, has_index, bad } =
        match salvage::open(fs, &directory, set, Some(table)).await {
            Ok(salvaged) => salvaged,
            Err(error @ (SstableError::Corrupt { .. } | SstableError::Missing { .. })) => {
                let what = format!("everything: {error}");
                host.tell(&Loss { key: None, position: 0, what });
                let bad_components = vec![error.to_string()];
                // The number of partitions is unknown.
                return Ok(ScrubReport {
                    losses: 1,
                    bad_partitions: 1,
                    bad_components,
                    ..ScrubReport::default()
                });
            }
            Err(error) => return Err(error),
        };
    let mut scrub = Scrub::new(fs, &directory, &reader, copy, options, how, host);
    scrub.report = ScrubReport { bad_components: bad, ..ScrubReport::default() };
    scrub.run(has_index).await?;
    Ok(scrub.report)
}

impl std::fmt::Display for Loss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.key {
            Some(key) => write!(f, "partition '{key}' at {}: {}", self.position, self.what),
            None => write!(f, "at {}: {}", self.position, self.what),
        }
    }
}
