//! Keys of encryption at rest: reads the key file, and passes the keys to each shard.
//!
//! Owns: which file is read, what a start refuses. Never: formats (`at_rest`), which files are encrypted (`store`,
//! `hints`). Every shard reads the file before it opens anything.

use std::sync::Arc;

use at_rest::{KeyRing, commit_log_lines, parse_keys};
use conf::{AtRestOptions, Options};
use rt::{IoErrorKind, Rt};
use sstable::Sealing;
use store::SealingPolicy;

use crate::StartError;

/// Longest key file, bytes.
const KEY_FILE_BYTES_MAX: usize = 1 << 20;
/// Name of the key file if the settings name none.
const KEY_FILE: &str = "data_encryption_keys";

/// Path of the key file that a setting names.
fn path_of(options: &Options, setting: &AtRestOptions) -> String {
    let directory = options.system_key_directory.trim_end_matches('/');
    match setting.secret_key_file.as_deref() {
        Some(path) if path.starts_with('/') => path.to_owned(),
        Some(name) => format!("{directory}/{name}"),
        None => format!("{directory}/{KEY_FILE}"),
    }
}

/// Which files are encrypted when they are written.
pub(crate) fn policy(options: &Options) -> SealingPolicy {
    let sealing = |setting: &AtRestOptions| match setting.enabled {
        true => Sealing::Sealed,
        false => Sealing::Plain,
    };
    SealingPolicy {
        user: sealing(&options.user_info_encryption),
        system: sealing(&options.system_info_encryption),
    }
}

/// Reads the key file, if a setting asks for one, and gives its keys to the files of this shard.
///
/// # Errors
/// `Setting`: the file is missing or has no keys, or the settings name two; `Io`: it cannot be read.
pub(crate) async fn load(rt: &Rt, options: &Options) -> Result<(), StartError> {
    let (user, system) = (&options.user_info_encryption, &options.system_info_encryption);
    let set = [("user_info_encryption", user), ("system_info_encryption", system)];
    let mut paths =
        set.iter().filter(|(_, s)| s.is_set()).map(|(name, s)| (*name, path_of(options, s)));
    let Some((name, path)) = paths.next() else { return Ok(()) };
    if let Some((_, other)) = paths.next().filter(|(_, other)| *other != path) {
        return Err(StartError::Setting(format!(
            "user_info_encryption and system_info_encryption name two key files, {path} and {other}: put all keys \
             into one"
        )));
    }
    let bytes = match rt.fs().read(&path, KEY_FILE_BYTES_MAX).await {
        Ok(bytes) => bytes,
        Err(error) if error.kind == IoErrorKind::NotFound => {
            return Err(StartError::Setting(format!(
                "{name}: the key file {path} does not exist; create one with \"helenus key generate\""
            )));
        }
        Err(error) => return Err(error.into()),
    };
    let refused = |what: String| StartError::Setting(format!("{name}: key file {path}: {what}"));
    let file = parse_keys(&String::from_utf8_lossy(&bytes)).map_err(|e| refused(e.to_string()))?;
    let is_enabled = user.enabled || system.enabled;
    if is_enabled && file.ring.active().is_none() {
        let what = "its keys are for reading only (\"none\" stands before them), and encryption is enabled";
        return Err(refused(what.to_owned()));
    }
    if rt.shard().0 == 0 {
        notices(options, &path, &file);
    }
    rt.set_file_keys(Some(Arc::new(file.ring)));
    Ok(())
}

/// Logs what an operator may not expect.
fn notices(options: &Options, path: &str, file: &at_rest::KeyFile) {
    let (user, system) = (&options.user_info_encryption, &options.system_info_encryption);
    let active = file.ring.active().map_or("none", at_rest::NamedKey::id);
    tracing::info!(path, keys = file.ring.keys().len(), active, "keys of encryption at rest");
    let ciphers = [user.other_cipher(), system.other_cipher()].into_iter().flatten();
    for cipher in ciphers.chain(file.other_ciphers.iter().cloned()) {
        tracing::warn!(
            cipher,
            "files are encrypted with AES-256-GCM; the cipher that is named is not used"
        );
    }
    if user.enabled && !system.enabled {
        tracing::warn!(
            "user_info_encryption covers the SSTables of user tables and saved caches only: hints, the batch log, \
             Paxos and the commit log hold rows in the clear until system_info_encryption is enabled"
        );
    }
}

/// The lines of the key file of the commit log, from the keys of this shard's files. `None`: there are none.
pub(crate) fn commit_log_keys(rt: &Rt, options: &Options) -> Option<String> {
    let keys: Arc<KeyRing> = rt.fs().keys()?;
    let lines = commit_log_lines(&keys);
    Some(match options.system_info_encryption.enabled {
        true => lines,
        // Segments of an earlier start are still opened.
        false if lines.starts_with("none") => lines,
        false => format!("none\n{lines}"),
    })
}
