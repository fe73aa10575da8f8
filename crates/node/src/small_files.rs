//! The list of the node's small durable files: a start notices deleted ones.
//!
//! Owns: `metadata/files` of the work directory, which names every existing small durable file, one
//! path below the work directory a line, in the envelope of small files
//! (`docs/formats/small-files.md`). Written by shard 0 once a start is complete, when all files
//! exist. Never: their contents.
//!
//! A missing file is refused by name if nothing can replace its content. If a rebuilt one is safe,
//! the start logs a WARN and continues.
//!
//! A path is on the list only when its file is durable, and the node never removes a listed file.

use std::collections::BTreeSet;

use codec::SmallForm;
use rt::{Fs, IoErrorKind, Rt, SmallContent};
use stdx::IoError;

use crate::{StartError, counter_id, disks};

/// Path of the list below the work directory.
const LIST: &str = "metadata/files";
const FORM: SmallForm = SmallForm { kind: "files", version: 1 };
/// Longest list that is read.
const BYTES_MAX: usize = 1 << 20;
/// Files of the node as a whole.
const OF_NODE: [&str; 10] = [
    "metadata/log",
    LOG_END,
    DROPS,
    IDENTITY,
    RUN,
    GENERATION,
    PROMISES,
    TRUNCATED,
    LOG_DIRECTORY,
    disks::LIST,
];
/// The path of the commit log's directory.
const LOG_DIRECTORY: &str = "metadata/commitlog/directory";
/// High-water mark of the metadata log.
pub(crate) const LOG_END: &str = "metadata/log-end";
/// Up to where drops of tables are carried out.
const DROPS: &str = "metadata/drops";
const IDENTITY: &str = "metadata/identity";
/// The number of the run.
pub(crate) const RUN: &str = "metadata/run";
const GENERATION: &str = "metadata/generation";
/// Promises of this node to other voters.
pub(crate) const PROMISES: &str = "metadata/promises";
const TRUNCATED: &str = "metadata/truncated";
const HISTORY: &str = repair::history::FILE;
/// Directories with a file for each shard.
const HORIZONS: &str = "metadata/paxos-horizon";
const FLOORS: &str = "metadata/paxos-floor";

/// Result of comparing the list with the files at a start.
#[derive(Debug, Default)]
pub(crate) struct SmallFiles {
    listed: BTreeSet<String>,
    missing: BTreeSet<String>,
}

impl SmallFiles {
    /// Returns true if an earlier start has seen the file in its present form: no earlier form is
    /// accepted any more.
    pub(crate) fn is_listed(&self, name: &str) -> bool {
        self.listed.contains(name)
    }

    /// Returns true if the file is listed and does not exist.
    pub(crate) fn is_missing(&self, name: &str) -> bool {
        self.missing.contains(name)
    }

    /// The refusal of a file that cannot be used, with the remedy.
    pub(crate) fn refuse(&self, mut error: IoError, advice: &str) -> StartError {
        if error.kind == IoErrorKind::Damaged {
            error.detail = format!("{}; {advice}", error.detail);
        }
        StartError::Io(error)
    }
}

/// Reads the list and checks that its files exist. Missing ones that may be rebuilt are reported
/// with a WARN; the caller decides about [`PROMISES`] and the identity. Shard 0.
///
/// # Errors
/// `Io`.
pub(crate) async fn check(rt: &Rt, work_dir: &str) -> Result<SmallFiles, StartError> {
    let fs = rt.fs();
    let path = format!("{work_dir}/{LIST}");
    let text = match fs.read_small(FORM, &path, BYTES_MAX).await {
        Ok(SmallContent::Body(body)) => String::from_utf8(body).ok(),
        Ok(SmallContent::Legacy(_)) => None,
        Ok(SmallContent::Missing) => {
            warn_of_missing_list(&fs, work_dir, &path).await?;
            return Ok(SmallFiles::default());
        }
        Err(error) if error.kind == IoErrorKind::Damaged => None,
        Err(error) => return Err(error.into()),
    };
    let Some(text) = text else {
        tracing::warn!(
            path,
            "the list of small files is damaged and is rebuilt; this start cannot notice deleted files"
        );
        return Ok(SmallFiles::default());
    };
    let mut found = SmallFiles::default();
    for name in text.lines() {
        if !fs.exists(&format!("{work_dir}/{name}")).await? {
            found.missing.insert(name.to_owned());
        }
        found.listed.insert(name.to_owned());
    }
    for name in &found.missing {
        rebuild(rt, work_dir, name).await?;
    }
    Ok(found)
}

/// A run that was numbered in the present form has written the list too, unless it was cut off.
async fn warn_of_missing_list(fs: &Fs, work_dir: &str, path: &str) -> Result<(), StartError> {
    let run = fs.read(&format!("{work_dir}/{RUN}"), BYTES_MAX).await.unwrap_or_default();
    if codec::is_small_file(&run) {
        tracing::warn!(
            path,
            "the list of small files is missing and is rebuilt; this start cannot notice other deleted files"
        );
    }
    Ok(())
}

async fn rebuild(rt: &Rt, work_dir: &str, name: &str) -> Result<(), StartError> {
    let path = format!("{work_dir}/{name}");
    let directory = name.rsplit_once('/').map_or("", |(directory, _)| directory);
    let consequence = match name {
        // The log and the node's identity: refused where they are read.
        "metadata/log" | IDENTITY | PROMISES => return Ok(()),
        LOG_END => "a metadata log that lost its tail is not noticed by this start",
        DROPS => "directories of dropped tables count as drops that were cut off",
        RUN => {
            "runs are numbered by the clock, and every truncation in the metadata log counts as carried out"
        }
        GENERATION => "gossip numbers this start by the clock",
        TRUNCATED => "every truncation in the metadata log counts as carried out",
        LOG_DIRECTORY => consequence_for_log(&rt.fs(), work_dir).await?,
        disks::LIST => "a data directory whose disk is not mounted is not noticed by this start",
        HISTORY => "ranges count as never repaired, which keeps tombstones longer",
        _ if directory == HORIZONS => {
            coordinator::rebuild_horizon(&rt.fs(), &path, rt.wall()).await?;
            "every ballot up to now counts as promised"
        }
        _ if directory == FLOORS => "old ballots are refused by the clock alone",
        _ if name.starts_with(counter_id::PREFIX) => "the shard counts under a new counter id",
        _ => "it is created again",
    };
    tracing::warn!(path, "a small file was deleted and is rebuilt: {consequence}");
    Ok(())
}

/// The consequence of a start without [`LOG_DIRECTORY`]. Lists of segments are in the same directory.
async fn consequence_for_log(fs: &Fs, work_dir: &str) -> Result<&'static str, StartError> {
    let lists = format!("{work_dir}/{}", crate::commit_log::METADATA);
    let entries = match fs.read_dir(&lists).await {
        Ok(entries) => entries,
        Err(error) if error.kind == IoErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    Ok(match entries.is_empty() {
        true => {
            "the lists of commit-log segments are missing too, unless the node was drained: this start cannot notice a \
             missing commit log or missing segments of it"
        }
        false => "this start cannot name the directory that the last commit log was in",
    })
}

/// Lists the files that exist. Once a start is complete, on shard 0. A list that cannot be written is written by
/// the next start.
pub(crate) async fn record(rt: &Rt, work_dir: &str) {
    let recorded = async {
        let fs = rt.fs();
        let names = existing(&fs, work_dir).await?;
        let body = names.iter().fold(String::new(), |text, name| text + name + "\n");
        let path = format!("{work_dir}/{LIST}");
        let known = fs.read_small(FORM, &path, BYTES_MAX).await;
        match known {
            Ok(SmallContent::Body(known)) if known == body.as_bytes() => Ok(()),
            _ => fs.write_small(FORM, &path, body.as_bytes()).await,
        }
    };
    if let Err(error) = recorded.await {
        tracing::warn!(%error, "cannot persist the list of small files: deleted ones may go unnoticed");
    }
}

/// Names of the small durable files of a work directory, ascending.
pub(crate) async fn existing(fs: &Fs, work_dir: &str) -> Result<BTreeSet<String>, IoError> {
    let mut names = BTreeSet::new();
    for name in OF_NODE.into_iter().chain([HISTORY]) {
        if fs.exists(&format!("{work_dir}/{name}")).await? {
            names.insert(name.to_owned());
        }
    }
    let is_number = |text: &str| text.parse::<u16>().is_ok();
    for directory in [HORIZONS, FLOORS] {
        let entries = match fs.read_dir(&format!("{work_dir}/{directory}")).await {
            Ok(entries) => entries,
            Err(error) if error.kind == IoErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        let numbered = entries.into_iter().filter(|entry| is_number(&entry.name));
        names.extend(numbered.map(|entry| format!("{directory}/{}", entry.name)));
    }
    for entry in fs.read_dir(work_dir).await? {
        if entry.name.strip_prefix(counter_id::PREFIX).is_some_and(is_number) {
            names.insert(entry.name);
        }
    }
    Ok(names)
}
