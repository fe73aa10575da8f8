//! The archive of the commit log at start: `commitlog_archiving.properties` and the settings, and
//! the restore of archived segments before any shard opens its log.

use conf::commitlog::ARCHIVING;
use conf::{Archiving, Options};
use rt::{Fs, IoErrorKind, Rt};
use schema::Schema;
use store::commitlog::{Keys, archive};
use store::{PointInTime, ReplayOptions, StoreError};

use crate::StartError;

const FILE_BYTES_MAX: usize = 1 << 20;

/// Reads the file, if it exists, and restores the segments that are to be replayed.
///
/// # Errors
/// `Archiving`: the file is invalid; `Store`: an archived segment is damaged; `Io`.
pub(crate) async fn prepare(rt: &Rt, options: &Options) -> Result<Archiving, StartError> {
    let fs = rt.fs();
    let archiving = read(&fs, options).await?.with_settings(options);
    if archiving.restore_directories.is_empty() {
        return Ok(archiving);
    }
    let (from, to) = (&archiving.restore_directories, options.commitlog_directory());
    let restored = archive::restore(&fs, from, &to)
        .await
        .map_err(|error| StartError::Store { shard: 0, error: StoreError::from(error) })?;
    for file in &restored.ignored {
        tracing::warn!(%file, "not a commit-log segment, not restored");
    }
    for segment in &restored.missing {
        tracing::error!(
            %segment,
            "a commit-log segment is missing between those that were restored: its writes are lost \
             unless it is put into a restore directory and the node is restored again"
        );
    }
    tracing::info!(
        segments = restored.segments,
        there_already = restored.there,
        directories = from.join(", "),
        "restored archived commit-log segments; take the directories out of the configuration when \
         the node has started, or they are replayed again"
    );
    Ok(archiving)
}

async fn read(fs: &Fs, options: &Options) -> Result<Archiving, StartError> {
    for path in options.snitch_files(ARCHIVING) {
        let bytes = match fs.read(&path, FILE_BYTES_MAX).await {
            Ok(bytes) => bytes,
            Err(error) if error.kind == IoErrorKind::NotFound => continue,
            Err(error) => return Err(error.into()),
        };
        let text = String::from_utf8_lossy(&bytes);
        return Archiving::parse(&text).map_err(|what| StartError::Archiving { path, what });
    }
    Ok(Archiving::default())
}

/// Reads the encryption keys of the commit log: those of its own file, or derived from those of `file_keys`. Where both
/// exist, the derived ones open segments that were written before the file was named.
///
/// # Errors
/// `Archiving`: the file has no keys; `Io`: it cannot be read.
pub(crate) async fn keys(rt: &Rt, options: &Options) -> Result<Option<Keys>, StartError> {
    let lines = crate::file_keys::commit_log_keys(rt, options).await?;
    let derived = lines.map(|text| Keys::parse(&text));
    let derived = derived.transpose().map_err(|what| StartError::Archiving {
        path: "system_info_encryption".to_owned(),
        what,
    })?;
    let Some(path) = options.commitlog_encryption_key_file.clone() else { return Ok(derived) };
    let bytes = rt.fs().read(&path, FILE_BYTES_MAX).await?;
    let keys = Keys::parse(&String::from_utf8_lossy(&bytes));
    let keys = keys.map_err(|what| StartError::Archiving { path: path.clone(), what })?;
    if rt.shard().0 == 0 && options.system_info_encryption.enabled && !keys.is_written_with() {
        tracing::warn!(
            path,
            "the commit log holds rows in the clear although system_info_encryption is enabled: \"none\" stands before \
             the keys of commitlog_encryption_key_file; remove that line to encrypt it"
        );
    }
    Ok(Some(derived.map_or(keys.clone(), |derived| keys.also_reading(&derived))))
}

/// Checks the tables that shards replay.
///
/// # Errors
/// `Archiving`: the list names a table that does not exist.
pub(crate) fn check_replay(options: &Options, schema: &Schema) -> Result<(), StartError> {
    replay_options(options, &Archiving::default())
        .check(schema)
        .map_err(|what| StartError::Archiving { path: "commitlog_replay_list:".to_owned(), what })
}

/// The same for the store of a shard.
pub(crate) fn replay_options(options: &Options, archiving: &Archiving) -> ReplayOptions {
    let unit_micros = archiving.unit_micros;
    let until = archiving.restore_point.map(|micros| PointInTime { micros, unit_micros });
    ReplayOptions { tables: options.commitlog_replay_list.clone(), until }
}
