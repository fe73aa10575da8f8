//! Keys of encryption at rest: reads the key file, starts the client of the providers of keys, and passes both to the
//! files of each shard.
//!
//! Owns: which file is read, which hosts are asked, what a start refuses. Never: formats (`at_rest`), requests
//! (`key_client`), which files are encrypted (`store`, `hints`). Every shard reads the file and asks before it opens
//! anything.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use at_rest::{DataKey, KeyRecord, KeySource, commit_log_line, commit_log_lines, parse_keys};
use conf::key_hosts::KeyHost;
use conf::{AtRestOptions, KeyProvider, Options};
use key_client::KeyClient;
use rt::{IoErrorKind, Rt};
use schema::Schema;
use sstable::Sealing;
use store::SealingPolicy;

use crate::StartError;

/// Longest key file, bytes.
const KEY_FILE_BYTES_MAX: usize = 1 << 20;
/// Name of the key file if the settings name none.
const KEY_FILE: &str = "data_encryption_keys";
/// How long a start waits for a provider of keys.
const START_MAX: Duration = Duration::from_secs(60);
const START_RETRY: Duration = Duration::from_secs(1);
/// The record of the commit log's key below the work directory, where a provider's key wraps it.
const COMMIT_LOG_KEY: &str = "metadata/commitlog-key";

/// Path of the key file that a setting names.
fn path_of(options: &Options, setting: &AtRestOptions) -> String {
    let directory = options.system_key_directory.trim_end_matches('/');
    match setting.secret_key_file.as_deref() {
        Some(path) if path.starts_with('/') => path.to_owned(),
        Some(name) => format!("{directory}/{name}"),
        None => format!("{directory}/{KEY_FILE}"),
    }
}

/// Both settings with their names.
fn settings(options: &Options) -> [(&'static str, &AtRestOptions); 2] {
    [
        ("user_info_encryption", &options.user_info_encryption),
        ("system_info_encryption", &options.system_info_encryption),
    ]
}

/// The hosts of providers of keys, by the names that records have.
fn hosts(options: &Options) -> BTreeMap<String, KeyHost> {
    let vaults = options.vault_hosts.0.iter().map(|(name, host)| (format!("vault:{name}"), host));
    let others = options.kms_hosts.0.iter().map(|(name, host)| (format!("kms:{name}"), host));
    vaults.chain(others).map(|(name, host)| (name, host.clone())).collect()
}

/// Holders of keys that tables may name: `key-file`, `vault:prod`.
pub(crate) fn names(options: &Options) -> BTreeSet<String> {
    let has_file = settings(options).iter().any(|(_, setting)| names_file(setting));
    let file = has_file.then(|| at_rest::key_file::PROVIDER.to_owned());
    hosts(options).into_keys().chain(file).collect()
}

/// Returns true if a setting asks for the key file. With another provider it names the file only to read what was
/// written before.
fn names_file(setting: &AtRestOptions) -> bool {
    let is_provider = setting.key_provider == KeyProvider::File;
    setting.is_set() && (is_provider || setting.secret_key_file.is_some())
}

/// The named key of a provider that a setting asks for; `None`: one of the key file.
pub(crate) fn source(options: &Options, setting: &AtRestOptions) -> Option<KeySource> {
    let kind = match setting.key_provider {
        KeyProvider::File => return None,
        KeyProvider::Vault => "vault",
        KeyProvider::Kms => "kms",
    };
    let provider = format!("{kind}:{}", setting.host.as_deref().unwrap_or_default());
    let of_host = || hosts(options).get(&provider).and_then(|host| host.master_key.clone());
    let key = setting.master_key.clone().or_else(of_host).unwrap_or_default();
    Some(KeySource { provider, key })
}

/// Which files are encrypted when they are written.
pub(crate) fn policy(options: &Options) -> SealingPolicy {
    let sealing = |setting: &AtRestOptions| match (setting.enabled, source(options, setting)) {
        (false, _) => Sealing::Plain,
        (true, None) => Sealing::Sealed,
        (true, Some(source)) => Sealing::SealedBy(Arc::new(source)),
    };
    let keys = hosts(options).into_iter().map(|(name, host)| (name, host.master_key));
    SealingPolicy {
        user: sealing(&options.user_info_encryption),
        system: sealing(&options.system_info_encryption),
        hosts: Arc::new(keys.collect()),
    }
}

/// Reads the key file, if a setting asks for one, and asks the providers that settings name; both serve the files of
/// this shard from now on. Returns the client of the providers; `None`: there are none.
///
/// # Errors
/// `Setting`: the file is missing or has no keys, the settings name two, or a provider gives no key; `Io`: the file
/// cannot be read.
pub(crate) async fn load(rt: &Rt, options: &Options) -> Result<Option<KeyClient>, StartError> {
    read_key_file(rt, options).await?;
    if rt.shard().0 == 0 {
        notices(options);
    }
    let hosts = hosts(options);
    if hosts.is_empty() {
        return Ok(None);
    }
    let client = KeyClient::start(rt, hosts).await.map_err(StartError::Setting)?;
    for (name, setting) in settings(options) {
        if let Some(source) = source(options, setting).filter(|_| setting.enabled) {
            first_key(rt, &client, name, &source).await?;
        }
    }
    Ok(Some(client))
}

/// Reads the key file again and asks the providers for their newest keys. Keys in use stay until others are there. Keys
/// that neither a setting nor a table names any more are not asked for.
///
/// # Errors
/// Those of [`load`]; the keys in use stay.
pub(crate) async fn reload(
    rt: &Rt,
    options: &Options,
    client: Option<&KeyClient>,
    schema: &Schema,
) -> Result<(), StartError> {
    let is_set = settings(options).iter().any(|(_, setting)| setting.is_set());
    if !is_set && client.is_none() {
        let what = "this node has no keys of encryption at rest: set user_info_encryption or system_info_encryption";
        return Err(StartError::Setting(what.to_owned()));
    }
    read_key_file(rt, options).await?;
    if let Some(client) = client {
        // Reads the certificates of authorities again, too.
        client.set_hosts(hosts(options)).await.map_err(StartError::Setting)?;
        client.retain(&named_sources(options, schema));
        client.refresh().await.map_err(StartError::Setting)?;
    }
    Ok(())
}

/// The keys of providers that settings and tables name.
fn named_sources(options: &Options, schema: &Schema) -> BTreeSet<KeySource> {
    let policy = policy(options);
    let of_settings = [&policy.user, &policy.system].into_iter().cloned();
    let of_tables = schema.tables_by_id.values().map(|table| policy.of(table));
    of_settings.chain(of_tables).filter_map(|sealing| sealing.source().cloned()).collect()
}

/// Waits for the first key of a source.
async fn first_key(
    rt: &Rt,
    client: &KeyClient,
    setting: &str,
    source: &KeySource,
) -> Result<(), StartError> {
    let deadline = rt.now() + START_MAX;
    loop {
        let Err(why) = client.want(source).await else { return Ok(()) };
        if rt.now() >= deadline || rt.is_stop_requested() {
            return Err(StartError::Setting(format!(
                "{setting}: {source} gave no key within {} s: {why}; nothing is written in the clear instead",
                START_MAX.as_secs()
            )));
        }
        rt.sleep(START_RETRY).await;
    }
}

/// Reads the key file and gives its keys to the files of this shard.
pub(crate) async fn read_key_file(rt: &Rt, options: &Options) -> Result<(), StartError> {
    let set = settings(options);
    let mut paths =
        set.iter().filter(|(_, s)| names_file(s)).map(|(name, s)| (*name, path_of(options, s)));
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
                "{name}: the key file {path} does not exist; mount or restore it if files are encrypted with its keys. \
                 Only for a node without encrypted files, create one with \"helenus key generate\""
            )));
        }
        Err(error) => return Err(error.into()),
    };
    let refused = |what: String| StartError::Setting(format!("{name}: key file {path}: {what}"));
    let file = parse_keys(&String::from_utf8_lossy(&bytes)).map_err(|e| refused(e.to_string()))?;
    let writes = |s: &AtRestOptions| s.enabled && s.key_provider == KeyProvider::File;
    if set.iter().any(|(_, setting)| writes(setting)) && file.ring.active().is_none() {
        let what = "its keys are for reading only (\"none\" stands before them), and encryption is enabled";
        return Err(refused(what.to_owned()));
    }
    if rt.shard().0 == 0 {
        let active = file.ring.active().map_or("none", at_rest::NamedKey::id);
        tracing::info!(path, keys = file.ring.keys().len(), active, "keys of encryption at rest");
        other_ciphers(file.other_ciphers.iter().cloned());
    }
    rt.set_file_keys(Some(Arc::new(file.ring)));
    Ok(())
}

fn other_ciphers(ciphers: impl IntoIterator<Item = String>) {
    for cipher in ciphers {
        tracing::warn!(
            cipher,
            "files are encrypted with AES-256-GCM; the cipher that is named is not used"
        );
    }
}

/// Logs unexpected consequences of the settings.
fn notices(options: &Options) {
    let (user, system) = (&options.user_info_encryption, &options.system_info_encryption);
    other_ciphers([user.other_cipher(), system.other_cipher()].into_iter().flatten());
    if user.enabled && !system.enabled {
        tracing::warn!(
            "user_info_encryption covers the SSTables of user tables and saved caches only: hints, the batch log, \
             Paxos and the commit log hold rows in the clear until system_info_encryption is enabled"
        );
    }
}

/// The data key of the commit log that a provider's key wraps. `None`: there is none.
async fn commit_log_key(rt: &Rt, options: &Options) -> Result<Option<DataKey>, StartError> {
    let path = commit_log_key_path(options);
    let bytes = match rt.fs().read(&path, at_rest::record::RECORD_BYTES_MAX).await {
        Ok(bytes) => bytes,
        Err(error) if error.kind == IoErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let refused = |error: at_rest::SealError| {
        StartError::Setting(format!("{path}, the key of the commit log, cannot be opened: {error}"))
    };
    let record = KeyRecord::decode(&bytes).map_err(refused)?;
    rt.fs().keys().open_data_key(&record).await.map(Some).map_err(refused)
}

fn commit_log_key_path(options: &Options) -> String {
    format!("{}/{COMMIT_LOG_KEY}", options.workdir.trim_end_matches('/'))
}

/// Creates the key of the commit log if a provider's key is to wrap it and there is none; otherwise wraps it by the key in
/// use. Segments of before stay readable: the key itself never changes.
///
/// # Errors
/// `Setting`: its record cannot be opened; `Io`.
pub(crate) async fn create_commit_log_key(rt: &Rt, options: &Options) -> Result<(), StartError> {
    let setting = &options.system_info_encryption;
    let Some(source) = source(options, setting).filter(|_| setting.enabled) else { return Ok(()) };
    let (fs, path) = (rt.fs(), commit_log_key_path(options));
    let refused = |error: at_rest::SealError| StartError::Setting(format!("{path}: {error}"));
    let record = match commit_log_key(rt, options).await? {
        None => fs.keys().new_data_key(Some(&source)).await.map_err(refused)?.1,
        Some(key) => {
            // At each start: a version does not tell whether an alias has come to mean another key.
            fs.keys().wrap_data_key(&key, Some(&source)).await.map_err(refused)?
        }
    };
    Ok(fs.write_atomic(&path, record.encode()).await?)
}

/// The lines of the key file of the commit log, from the keys of this shard's files. `None`: there are none.
///
/// # Errors
/// `Setting`: the key of the commit log cannot be opened.
pub(crate) async fn commit_log_keys(
    rt: &Rt,
    options: &Options,
) -> Result<Option<String>, StartError> {
    let setting = &options.system_info_encryption;
    let is_in_use = setting.enabled && source(options, setting).is_some();
    let own = match commit_log_key(rt, options).await {
        // A provider that was given up. Segments that need the key are refused by its name.
        Err(StartError::Setting(why)) if !is_in_use => {
            if rt.shard().0 == 0 {
                tracing::warn!(
                    "{why}; no setting uses it any more: remove the file when no commit-log segment is older than \
                     the change"
                );
            }
            None
        }
        own => own?.map(|key| commit_log_line(&key)),
    };
    let of_file = rt.fs().keys().ring().map(|ring| commit_log_lines(&ring));
    let is_own_first = setting.key_provider != KeyProvider::File;
    let (first, second) = if is_own_first { (own, of_file) } else { (of_file, own) };
    let mut lines: Vec<String> = Vec::new();
    let mut is_written_with = setting.enabled && first.is_some();
    for text in first.into_iter().chain(second) {
        // Segments of an earlier start are still opened.
        let (reads_only, keys) = match text.strip_prefix("none\n") {
            Some(keys) => (true, keys.to_owned()),
            None => (false, text),
        };
        is_written_with &= !(reads_only && lines.is_empty());
        lines.extend(keys.lines().map(str::to_owned));
    }
    if lines.is_empty() {
        return Ok(None);
    }
    if !is_written_with {
        lines.insert(0, "none".to_owned());
    }
    Ok(Some(lines.join("\n")))
}
