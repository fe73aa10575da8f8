//! Checks and record files of tools that change a table's directory.

use rt::{FileLock, Fs};
use sst_format::component::other_names_in_toc;
use sst_format::{AttachedName, Component, Descriptor};
use stdx::{Generation, IoError, IoErrorKind};

use crate::reader::TOC_BYTES_MAX;
use crate::{Attached, Result, SstableReader};

/// Held by a running node in its work directory.
const LOCK: &str = ".lock";

/// Why the files of a directory must not be changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// A node runs on it.
    #[error("\"{0}\" is in use by another process; stop the node first")]
    InUse(String),
    /// An operation was interrupted: only its record names the files that belong to the table.
    #[error(
        "\"{0}\" is left over from an unfinished operation: start the node once, stop it by \
        SIGTERM, and try again"
    )]
    Unfinished(String),
    /// Parts of the file are no longer the table's.
    #[error(
        "\"{0}\" says that a part of the file was moved to other files: compact the table on a \
         running node instead"
    )]
    Released(String),
    /// The machine refused an operation.
    #[error(transparent)]
    Io(#[from] IoError),
}

/// The locks that nodes made in the directories (absolute paths) or above them, each once. A
/// directory of Cassandra has none.
///
/// # Errors
/// `Io`.
pub async fn lock_files(
    fs: &Fs,
    directories: &[&str],
) -> std::result::Result<Vec<String>, IoError> {
    let mut found = Vec::new();
    for directory in directories {
        let mut above = directory.trim_end_matches('/');
        while !above.is_empty() {
            let path = format!("{above}/{LOCK}");
            if !found.contains(&path) && fs.exists(&path).await? {
                found.push(path);
            }
            above = above.rsplit_once('/').map_or("", |(above, _)| above);
        }
    }
    Ok(found)
}

/// Takes a lock that [`lock_files`] found. No node starts there as long as it lives.
///
/// # Errors
/// `InUse` when a node has it, `Io`.
pub async fn take_lock(fs: &Fs, path: &str) -> std::result::Result<FileLock, Unfit> {
    match fs.lock_exclusive(path).await {
        Ok(lock) => Ok(lock),
        Err(e) if e.kind == IoErrorKind::AlreadyExists => {
            let directory = path.rsplit_once('/').map_or(path, |(directory, _)| directory);
            Err(Unfit::InUse(directory.to_owned()))
        }
        Err(e) => Err(e.into()),
    }
}

/// Makes sure that a directory is whole and that the file sets that are to be changed are, too.
///
/// # Errors
/// `Unfinished`, `Released`, `Io`.
pub async fn check_fit(
    fs: &Fs,
    directory: &str,
    changed: &[Descriptor],
) -> std::result::Result<(), Unfit> {
    for entry in fs.read_dir(directory).await? {
        let name = &entry.name;
        // Ours of compactions and streams, and Cassandra's: nb_txn_compaction_<uuid>.log.
        let is_record = name.ends_with(".log")
            && (name.starts_with("helenus-txn-")
                || name.starts_with("helenus-ingest-")
                || name.contains("_txn_"));
        if is_record {
            return Err(Unfit::Unfinished(format!("{directory}/{name}")));
        }
        if let Some((descriptor, rest)) = Descriptor::parse_any(name)
            && rest.starts_with("Released.")
            && changed.iter().any(|d| d.generation == descriptor.generation)
        {
            return Err(Unfit::Released(format!("{directory}/{name}")));
        }
    }
    Ok(())
}

/// A number that no file set of the directory has, nor one after it.
///
/// # Errors
/// `Io`.
pub async fn next_generation(fs: &Fs, directory: &str) -> Result<Generation> {
    let mut last = 0;
    for entry in fs.read_dir(directory).await? {
        let name = entry.name.strip_suffix(".tmp").unwrap_or(&entry.name);
        if let Some((descriptor, _)) = Descriptor::parse_any(name)
            && descriptor.generation.0 & Descriptor::UUID_GENERATION == 0
        {
            last = last.max(descriptor.generation.0);
        }
    }
    Ok(Generation(last.saturating_add(1)))
}

/// Attached components of a file that other programs wrote, those of secondary indexes for example: nothing
/// of them is read.
///
/// # Errors
/// `Io`.
pub async fn unknown_components(fs: &Fs, reader: &SstableReader) -> Result<Vec<String>> {
    let listed = fs.read(&reader.meta().file(Component::Toc), TOC_BYTES_MAX).await?;
    let mut names = other_names_in_toc(&listed);
    let is_own = |name: &str| {
        let name = AttachedName::parse(name);
        name.is_some_and(|name| Attached::of(reader.meta()).checksum(name).is_some())
    };
    names.retain(|name| !is_own(name));
    Ok(names)
}

/// Links every component of a file set into `snapshots/<tag>` below its directory, attached ones too; the path
/// of it.
///
/// # Errors
/// `Io`.
pub async fn snapshot(fs: &Fs, directory: &str, set: Descriptor, tag: &str) -> Result<String> {
    let target = format!("{directory}/snapshots/{tag}");
    fs.create_dir_durably(&target).await?;
    let mut names: Vec<String> = Component::ALL.iter().map(|c| set.file_name(*c)).collect();
    let toc = format!("{directory}/{}", set.file_name(Component::Toc));
    match fs.read(&toc, TOC_BYTES_MAX).await {
        Ok(listed) => {
            names.extend(
                other_names_in_toc(&listed).iter().map(|n| format!("{}-{n}", set.prefix())),
            );
        }
        Err(e) if e.kind == IoErrorKind::NotFound => {}
        Err(e) => return Err(e.into()),
    }
    for name in names {
        let from = format!("{directory}/{name}");
        match fs.hard_link(&from, &format!("{target}/{name}")).await {
            Ok(()) => {}
            Err(e) if matches!(e.kind, IoErrorKind::NotFound | IoErrorKind::AlreadyExists) => {}
            Err(e) => return Err(e.into()),
        }
    }
    fs.sync_dir(&target).await?;
    Ok(target)
}
