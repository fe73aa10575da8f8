//! The files of a log on shard 0, and the archive command for finished ones.
//!
//! Owns: one writer of the files at a time, attempts of the archive command. Never: bytes of records.

use super::CLOSE_MAX;
use super::files::LogFiles;
use super::rolling::Layout;
use rt::sync::Semaphore;
use rt::{Gate, Group, Rt};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// How long a failed archive command waits for its next attempt.
const ARCHIVE_RETRY: Duration = Duration::from_secs(10);

/// Runs archive commands; a node has no access to programs. The call may block.
pub trait Archiver: Send + Sync {
    /// Runs a command of an operator, with `%path` replaced by the path of a finished file.
    ///
    /// # Errors
    /// It could not be run, or ended with another code than 0; in words.
    fn archive(&self, command: &str, path: &str) -> Result<(), String>;
}

/// Where and how files are written.
#[derive(Clone, Debug)]
pub struct FileSettings {
    /// Their directory.
    pub directory: String,
    /// Kind of files.
    pub layout: Layout,
    /// Bytes of files before the oldest is deleted; without an archive command.
    pub bytes_max: u64,
    /// The archive command; empty: none.
    pub archive_command: String,
    /// Further attempts of the archive command after the first.
    pub max_archive_retries: u32,
}

/// The files of a log.
pub struct FileWriter {
    rt: Rt,
    /// Name of the log in messages.
    log: &'static str,
    archiver: Option<Arc<dyn Archiver>>,
    files: RefCell<Option<LogFiles>>,
    /// Paths that the archive command handles now, or will.
    handed: Rc<RefCell<BTreeSet<String>>>,
    /// Paths that the archive command failed for: handed to it again with the next finished file.
    unarchived: Rc<RefCell<Vec<String>>>,
    settings: RefCell<Option<FileSettings>>,
    /// Held while the files are used.
    using_files: Semaphore,
    /// One archive command at a time.
    archiving: Rc<Semaphore>,
    gate: Gate,
}

impl FileWriter {
    /// Creates a writer without files.
    pub fn new(rt: &Rt, log: &'static str, archiver: Option<Arc<dyn Archiver>>) -> FileWriter {
        FileWriter {
            rt: rt.clone(),
            log,
            archiver,
            files: RefCell::new(None),
            handed: Rc::default(),
            unarchived: Rc::default(),
            settings: RefCell::new(None),
            using_files: Semaphore::new(1),
            archiving: Rc::new(Semaphore::new(1)),
            gate: rt.gate("log-archive"),
        }
    }

    /// Closes the old file and names the new one. Finished files that an earlier run left are archived.
    ///
    /// # Errors
    /// The directory cannot be read, or a write to the old file hangs; in words. The old file is written on then.
    pub async fn swap(&self, settings: Option<FileSettings>) -> Result<(), String> {
        let using = self.rt.timeout(self.rt.now() + CLOSE_MAX, self.using_files.acquire(1)).await;
        let Ok(_using) = using else {
            return Err("a write to the file in use hangs: check its disk".to_owned());
        };
        let new = settings.as_ref().map(|settings| {
            let keeps = !settings.archive_command.is_empty();
            let bytes_max = (!keeps).then_some(settings.bytes_max);
            LogFiles::new(&self.rt, &settings.directory, settings.layout, bytes_max)
        });
        let finished = match &new {
            Some(files) => files.finished().await,
            None => Ok(Vec::new()),
        };
        let old = self.files.replace(new);
        *self.settings.borrow_mut() = settings;
        self.close_old(old).await;
        self.archive(finished.map_err(|error| format!("the directory cannot be read: {error}"))?);
        Ok(())
    }

    /// Appends to the file.
    ///
    /// # Errors
    /// Nothing of `bytes` counts as written; in words.
    pub async fn append(&self, bytes: Vec<u8>) -> Result<(), String> {
        let _using = self.using_files.acquire(1).await;
        // Taken out while it is used: `using_files` is held.
        let Some(mut files) = self.files.borrow_mut().take() else {
            return Err(format!("the files of the {} are closed", self.log));
        };
        let done = files.append(bytes).await;
        *self.files.borrow_mut() = Some(files);
        self.archive(done.map_err(|error| error.to_string())?);
        Ok(())
    }

    /// Closes the files, and waits some seconds for the archive command.
    pub async fn close(&self) {
        let close_files = async {
            let _using = self.using_files.acquire(1).await;
            let files = self.files.borrow_mut().take();
            self.close_old(files).await;
        };
        // Neither a disk nor a command that hangs holds up the stop.
        if self.rt.timeout(self.rt.now() + CLOSE_MAX, close_files).await.is_err() {
            tracing::error!("the files of the {} were not closed in time", self.log);
        }
        let _ = self.rt.timeout(self.rt.now() + CLOSE_MAX, self.gate.close()).await;
    }

    async fn close_old(&self, files: Option<LogFiles>) {
        if let Some(mut files) = files
            && let Err(error) = files.close().await
        {
            tracing::error!(%error, "cannot sync the {}", self.log);
        }
    }

    /// Has the archive command handle finished files.
    fn archive(&self, paths: Vec<String>) {
        let settings = self.settings.borrow();
        let (Some(archiver), Some(settings), false) =
            (self.archiver.clone(), settings.as_ref(), paths.is_empty())
        else {
            return;
        };
        if settings.archive_command.is_empty() {
            return;
        }
        // A change of settings lists files that are being retried, too.
        let is_new = |path: &String| self.handed.borrow_mut().insert(path.clone());
        let earlier = self.unarchived.take();
        let paths: Vec<String> = earlier.into_iter().chain(paths).filter(is_new).collect();
        let (handed, unarchived) = (self.handed.clone(), self.unarchived.clone());
        let (rt, archiving) = (self.rt.clone(), self.archiving.clone());
        let job = ArchiveJob {
            log: self.log,
            command: settings.archive_command.clone(),
            retries: settings.max_archive_retries,
        };
        let task = async move {
            for path in paths {
                let archived = job.run(&rt, &archiver, &archiving, &path).await;
                handed.borrow_mut().remove(&path);
                if archived == Archived::No {
                    unarchived.borrow_mut().push(path);
                }
            }
        };
        let _ = self.gate.spawn(&self.rt, Group::Admin, "log-archive", task);
    }
}

/// Checks that a directory can be created and read.
///
/// # Errors
/// In words.
pub async fn check_directory(rt: &Rt, directory: &str) -> Result<(), String> {
    let made = rt.fs().create_dir_all(directory).await;
    made.map_err(|error| format!("cannot be used: {error}"))?;
    let read = rt.fs().read_dir(directory).await;
    read.map(drop).map_err(|error| format!("cannot be read: {error}"))
}

/// An archive command.
struct ArchiveJob {
    log: &'static str,
    command: String,
    /// Further attempts after the first.
    retries: u32,
}

/// Outcome of all attempts for a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Archived {
    Yes,
    No,
}

impl ArchiveJob {
    async fn run(
        &self,
        rt: &Rt,
        archiver: &Arc<dyn Archiver>,
        archiving: &Semaphore,
        path: &str,
    ) -> Archived {
        for attempt in 0..=self.retries {
            let (archiver, command, of_path) =
                (archiver.clone(), self.command.clone(), path.to_owned());
            let done = {
                // A command holds a thread of the file pool until it ends.
                let _alone = archiving.acquire(1).await;
                rt.offload("archive", move || archiver.archive(&command, &of_path)).await
            };
            let Err(error) = done else { return Archived::Yes };
            let log = self.log;
            tracing::warn!(path, error, attempt, "the archive command of the {log} failed");
            let next = rt.now() + ARCHIVE_RETRY;
            if attempt < self.retries && rt.timeout(next, rt.stop_requested()).await.is_ok() {
                return Archived::No;
            }
        }
        tracing::error!(
            path,
            "file not archived; it stays and is archived with the next finished file"
        );
        Archived::No
    }
}
