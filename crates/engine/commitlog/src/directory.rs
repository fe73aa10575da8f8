//! Identity of the commit log's directory: whose log it holds, and of which run.
//!
//! Held in two places. A mark in the directory names the node and the newest run that used it. The lists in
//! the node's metadata ([`crate::inventory`]) say which run's log may hold writes. Beside the lists the
//! node records the path of the directory, for messages only.
//!
//! The order of a start, each step durable before the next:
//!
//! 1. [`LogDirectory::check`]: the mark is compared with the newest list.
//! 2. The log is replayed and found sound.
//! 3. [`LogDirectory::claim`]: the path is recorded, the mark gets the number of this run.
//! 4. Each shard makes its list ([`crate::CommitLog::begin`]); then the first append may follow.
//!
//! So where a list of a run exists, the mark of the right directory has that run's number or a later one
//! (INV-log-7). A directory that is emptied, replaced, of another node, or an older copy has not. After a clean
//! stop no list exists, and any directory will do.

use codec::SmallForm;
use rt::{Fs, SmallContent};
use stdx::{HostId, IoErrorKind, Uuid};

use crate::error::LogError;
use crate::format::SegmentId;
use crate::inventory::Lists;

/// Name of the mark in the commit log's directory.
pub const MARK: &str = "helenus-log-directory";
/// Kind and version of the mark.
pub const MARK_FORM: SmallForm = SmallForm { kind: "commitlog-directory", version: 1 };
/// Name of the file with the path of the directory, beside the lists.
pub const PATH: &str = "directory";
/// Kind and version of that file.
pub const PATH_FORM: SmallForm = SmallForm { kind: "commitlog-path", version: 1 };
const BYTES_MAX: usize = 1 << 16;

/// Content of the mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The node whose log the directory holds.
    pub host: HostId,
    /// The newest run that used it.
    pub run: u64,
}

impl Mark {
    /// Body of the file.
    pub fn encode(&self) -> Vec<u8> {
        format!("host {}\nrun {}\n", self.host.0, self.run).into_bytes()
    }

    /// Reads the body of the file; `None`: it is none.
    pub fn decode(body: &[u8]) -> Option<Mark> {
        let text = std::str::from_utf8(body).ok()?;
        let (host, rest) = text.strip_prefix("host ")?.split_once('\n')?;
        let run = rest.strip_prefix("run ")?.strip_suffix('\n')?.parse().ok()?;
        let mark = Mark { host: HostId(Uuid::parse_str(host).ok()?), run };
        (mark.encode() == body).then_some(mark)
    }
}

/// Path of the directory in the body of its file.
pub fn decode_path(body: &[u8]) -> Option<String> {
    let path = std::str::from_utf8(body).ok()?.strip_prefix("path ")?.strip_suffix('\n')?;
    (!path.is_empty() && !path.contains('\n')).then(|| path.to_owned())
}

/// The commit log's directory as this start is configured.
#[derive(Clone, Copy)]
pub struct LogDirectory<'a> {
    /// The file system.
    pub fs: &'a Fs,
    /// The directory of segments.
    pub directory: &'a str,
    /// The directory of lists, in the node's metadata.
    pub inventories: &'a str,
    /// This node.
    pub host: HostId,
}

/// Something to log about a directory that is accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DirectoryNote {
    /// The log was in that directory before.
    Moved {
        /// Path of the last run.
        from: String,
    },
    /// The directory is not that of the last run, and the operator accepted the loss.
    Accepted(String),
    /// The mark, or the file with the path of the last run, is damaged and is not needed: it is rewritten.
    Damaged(String),
}

/// State of the directory's mark.
enum Found {
    Mark(Mark),
    Missing,
    Damaged,
}

impl LogDirectory<'_> {
    /// Step 1. `accepted`: value of the setting that accepts a loss.
    ///
    /// # Errors
    /// `Directory`: it does not hold the log of the last run, which may hold writes. `OtherNode`: it has
    /// segments of another node. `Io`.
    pub async fn check(&self, accepted: Option<u64>) -> Result<Vec<DirectoryNote>, LogError> {
        let lists =
            Lists { fs: self.fs, directory: self.inventories, log_directory: self.directory };
        let last_run = lists.last_run().await?;
        let mark = self.mark().await?;
        let (last, mut notes) = self.last_path().await?;
        if let Found::Mark(mark) = &mark
            && mark.host != self.host
            && self.has_segments().await?
        {
            stdx::reached!("commitlog-directory-of-other");
            return Err(LogError::OtherNode {
                directory: self.directory.to_owned(),
                host: mark.host.0.to_string(),
                own: self.host.0.to_string(),
            });
        }
        let moved = last.clone().filter(|last| last != self.directory);
        let Some(run) = last_run else {
            if let Found::Damaged = &mark {
                notes.push(DirectoryNote::Damaged(self.mark_path()));
            }
            return Ok(notes);
        };
        let Some(what) = self.difference(&mark, run).await? else {
            notes.extend(moved.map(|from| DirectoryNote::Moved { from }));
            return Ok(notes);
        };
        stdx::reached!("commitlog-directory-lost");
        let directory = self.directory.to_owned();
        let error = LogError::Directory { directory, what, last, accept: run };
        if accepted != Some(run) {
            return Err(error);
        }
        notes.push(DirectoryNote::Accepted(error.to_string()));
        Ok(notes)
    }

    /// Why the directory cannot hold the log of `run`, the last one.
    async fn difference(&self, found: &Found, run: u64) -> Result<Option<String>, LogError> {
        Ok(match found {
            Found::Mark(mark) if mark.host != self.host => {
                Some(format!("is that of node {}", mark.host.0))
            }
            Found::Mark(mark) if mark.run < run => {
                Some(format!("is an older copy: {} is of run {}", self.mark_path(), mark.run))
            }
            Found::Mark(_) => None,
            Found::Damaged => Some(format!("has a damaged file {}", self.mark_path())),
            Found::Missing if !self.fs.exists(self.directory).await? => {
                Some("does not exist".to_owned())
            }
            Found::Missing if self.fs.read_dir(self.directory).await?.is_empty() => {
                Some("is empty".to_owned())
            }
            Found::Missing => Some(format!("has no file {}", self.mark_path())),
        })
    }

    /// Step 3. To be called by one shard, before any shard's step 4. The mark never gets a lower number than it had,
    /// nor than a list has: a run is numbered by the clock if the number of the last one is lost, and the clock may
    /// have been set back.
    ///
    /// # Errors
    /// `Io`: a file could not be written.
    pub async fn claim(&self, run: u64) -> Result<(), LogError> {
        self.fs.create_dir_durably(self.directory).await?;
        self.fs.create_dir_durably(self.inventories).await?;
        let path = format!("{}/{PATH}", self.inventories);
        let body = format!("path {}\n", self.directory).into_bytes();
        match self.fs.read_small(PATH_FORM, &path, BYTES_MAX).await {
            Ok(SmallContent::Body(known)) if known == body => {}
            _ => self.fs.write_small(PATH_FORM, &path, &body).await?,
        }
        let lists =
            Lists { fs: self.fs, directory: self.inventories, log_directory: self.directory };
        let marked = match self.mark().await? {
            Found::Mark(mark) if mark.host == self.host => Some(mark.run),
            _ => None,
        };
        let run = marked.into_iter().chain(lists.last_run().await?).fold(run, u64::max);
        let mark = Mark { host: self.host, run };
        Ok(self.fs.write_small(MARK_FORM, &self.mark_path(), &mark.encode()).await?)
    }

    fn mark_path(&self) -> String {
        format!("{}/{MARK}", self.directory)
    }

    async fn mark(&self) -> Result<Found, LogError> {
        Ok(match self.fs.read_small(MARK_FORM, &self.mark_path(), BYTES_MAX).await {
            Ok(SmallContent::Missing) => Found::Missing,
            Ok(SmallContent::Body(body)) => Mark::decode(&body).map_or(Found::Damaged, Found::Mark),
            Ok(SmallContent::Legacy(_)) => Found::Damaged,
            Err(error) if error.kind == IoErrorKind::Damaged => Found::Damaged,
            Err(error) => return Err(error.into()),
        })
    }

    /// Where the last run had its log.
    async fn last_path(&self) -> Result<(Option<String>, Vec<DirectoryNote>), LogError> {
        let path = format!("{}/{PATH}", self.inventories);
        let known = match self.fs.read_small(PATH_FORM, &path, BYTES_MAX).await {
            Ok(SmallContent::Missing) => return Ok((None, Vec::new())),
            Ok(SmallContent::Body(body)) => decode_path(&body),
            Ok(SmallContent::Legacy(_)) => None,
            Err(error) if error.kind == IoErrorKind::Damaged => None,
            Err(error) => return Err(error.into()),
        };
        match known {
            Some(known) => Ok((Some(known), Vec::new())),
            None => Ok((None, vec![DirectoryNote::Damaged(path)])),
        }
    }

    async fn has_segments(&self) -> Result<bool, LogError> {
        let entries = self.fs.read_dir(self.directory).await?;
        Ok(entries.iter().any(|entry| SegmentId::from_file_name(&entry.name).is_some()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_back_and_nothing_else_is_one() {
        let mark = Mark { host: HostId(Uuid::from_u128(9)), run: 17 };
        let body = mark.encode();
        assert_eq!(body, b"host 00000000-0000-0000-0000-000000000009\nrun 17\n");
        assert_eq!(Mark::decode(&body), Some(mark));
        for at in 0..body.len() {
            assert_eq!(Mark::decode(&body[..at]), None, "{at}");
        }
        for other in ["host 9\nrun 17\n", "run 17\n", "", "host x\nrun 1\n"] {
            assert_eq!(Mark::decode(other.as_bytes()), None, "{other}");
        }
        // The golden bytes.
        let file = MARK_FORM.encode(&body);
        let text = "helenus-file commitlog-directory 1\nhost 00000000-0000-0000-0000-000000000009\nrun 17\ncrc32 ";
        assert!(file.starts_with(text.as_bytes()) && file.ends_with(b"f3418dcf\n"));
        assert_eq!(decode_path(b"path /log\n").as_deref(), Some("/log"));
        for other in ["path /log", "path \n", "/log\n", "path a\nb\n"] {
            assert_eq!(decode_path(other.as_bytes()), None, "{other}");
        }
        let file = PATH_FORM.encode(b"path /log\n");
        assert_eq!(file, b"helenus-file commitlog-path 1\npath /log\ncrc32 f9e85078\n");
    }
}
