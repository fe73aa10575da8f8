//! Check that the commit log's directory holds the log of the last run, and its claim by this one. The rules
//! are those of [`store::commitlog::directory`].

use conf::Options;
use rt::{Fs, Rt};
use stdx::HostId;
use store::commitlog::LogDirectory;
use store::commitlog::directory::DirectoryNote;

use crate::StartError;

/// Lists of segments and the path of their directory, below the work directory.
pub(crate) const METADATA: &str = "metadata/commitlog";

/// Where the lists of segments are.
pub(crate) fn inventories(options: &Options) -> String {
    format!("{}/{METADATA}", options.workdir.trim_end_matches('/'))
}

/// The commit log's directory and the lists, as configured.
struct Paths {
    directory: String,
    inventories: String,
}

impl Paths {
    fn new(options: &Options) -> Paths {
        let directory = options.commitlog_directory().trim_end_matches('/').to_owned();
        Paths { directory, inventories: inventories(options) }
    }

    fn log_directory<'a>(&'a self, fs: &'a Fs, host: HostId) -> LogDirectory<'a> {
        LogDirectory { fs, directory: &self.directory, inventories: &self.inventories, host }
    }
}

/// Checks the directory, before the start has changed anything, then makes it if it does not exist.
///
/// # Errors
/// `CommitLog`: it does not hold the log of the last run, or that of another node; `Io`.
pub(crate) async fn check(rt: &Rt, options: &Options, host: HostId) -> Result<(), StartError> {
    let (fs, paths) = (rt.fs(), Paths::new(options));
    let accepted = options.commitlog_accept_loss;
    for note in paths.log_directory(&fs, host).check(accepted).await? {
        match note {
            DirectoryNote::Moved { from } => {
                let to = &paths.directory;
                tracing::info!(from, to, "the commit log was moved with its files");
            }
            DirectoryNote::Accepted(what) => {
                tracing::error!(
                    "commit-log data is lost, as commitlog_accept_loss accepts: {what}"
                );
            }
            DirectoryNote::Damaged(path) => {
                tracing::warn!(path, "a small file of the commit log is damaged and is rewritten");
            }
        }
    }
    if let Some(run) = accepted {
        tracing::warn!(run, "commitlog_accept_loss is set: remove it when the node has started");
    }
    Ok(fs.create_dir_all(&paths.directory).await?)
}

/// Marks the directory as that of this run, when the log was replayed. On shard 0, before any shard writes.
///
/// # Errors
/// `CommitLog`, `Io`: a file could not be written.
pub(crate) async fn claim(
    rt: &Rt,
    options: &Options,
    host: HostId,
    run: u64,
) -> Result<(), StartError> {
    let (fs, paths) = (rt.fs(), Paths::new(options));
    Ok(paths.log_directory(&fs, host).claim(run).await?)
}
