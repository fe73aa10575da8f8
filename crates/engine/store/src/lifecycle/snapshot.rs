//! Snapshots: hard links of a table's files below `snapshots/<tag>/`, as Cassandra's.

use std::collections::BTreeMap;
use std::rc::Rc;

use rt::Fs;
use stdx::{ShardId, TableId, Uuid, WallMicros};

use crate::env::failure::StoreFailure;
use crate::error::StoreError;
use crate::files::directories::{FoundDirectory, entries};
use crate::files::links::{Linking, link_component};
use crate::lifecycle::Lifecycle;
use crate::memtable::Memtable;
use crate::tables::table::TableState;
use crate::tables::table_file::TableFile;
use crate::write::flush::FlushTo;
use crate::write::unflushable::Refused;

/// A snapshot of one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotInfo {
    /// Its name.
    pub tag: String,
    /// The table.
    pub table: TableId,
    /// Keyspace name.
    pub keyspace: String,
    /// Table name.
    pub name: String,
    /// Bytes that only the snapshot holds.
    pub true_bytes: u64,
    /// Bytes of all its files.
    pub disk_bytes: u64,
    /// `created_at` of its manifest, as written there; empty when there is none.
    pub created_at: String,
    /// `expires_at` of its manifest, as written there; empty when it does not expire.
    pub expires_at: String,
    /// `ephemeral` of its manifest: a Cassandra has made it for a repair.
    pub is_ephemeral: bool,
}

/// How a snapshot is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotOptions {
    /// Seconds after which [`Lifecycle::clear_expired`] removes it.
    pub ttl_seconds: Option<u32>,
    /// Memtables are not flushed first, so that their data is not in it.
    pub skip_flush: bool,
}

pub(crate) fn check_tag(tag: &str) -> Result<(), StoreError> {
    let bad = tag.is_empty() || tag == "." || tag == ".." || tag.contains(['/', '\\', '\0']);
    if bad || tag.len() > 200 {
        return Err(StoreError::Invalid(format!("\"{tag}\" cannot be the name of a snapshot")));
    }
    Ok(())
}

impl Lifecycle {
    /// Flushes the tables (all of them when `None`) and links their files under a name.
    ///
    /// # Errors
    /// `Invalid`: a name that is no file name. `DiskFull`, `Io`.
    pub async fn snapshot(&self, tag: &str, tables: Option<&[TableId]>) -> Result<(), StoreError> {
        self.snapshot_with(tag, tables, SnapshotOptions::default()).await
    }

    /// The same in other ways.
    ///
    /// # Errors
    /// Those of [`Lifecycle::snapshot`].
    pub async fn snapshot_with(
        &self,
        tag: &str,
        tables: Option<&[TableId]>,
        options: SnapshotOptions,
    ) -> Result<(), StoreError> {
        check_tag(tag)?;
        if !options.skip_flush {
            self.writer.flush(tables).await?;
        }
        let states: Vec<Rc<TableState>> = match tables {
            Some(ids) => ids.iter().filter_map(|id| self.tables.table(*id)).collect(),
            None => self.tables.all_tables(),
        };
        for table in states {
            let files = table.view().files.clone();
            self.link_snapshot(&table, tag, options.ttl_seconds, &files, &[]).await?;
        }
        Ok(())
    }

    /// Links files and writes memtables below `snapshots/<tag>/`. May be repeated after an error.
    pub(crate) async fn snapshot_files(
        &self,
        table: &Rc<TableState>,
        tag: &str,
        files: &[Rc<TableFile>],
        memtables: &[Rc<Memtable>],
    ) -> Result<(), StoreError> {
        self.link_snapshot(table, tag, None, files, memtables).await
    }

    /// Pre: `files` are those of the view in this turn, or the caller alone removes them.
    async fn link_snapshot(
        &self,
        table: &Rc<TableState>,
        tag: &str,
        ttl_seconds: Option<u32>,
        files: &[Rc<TableFile>],
        memtables: &[Rc<Memtable>],
    ) -> Result<(), StoreError> {
        let linking = Linking::new(&self.files.links);
        let fs = self.env.rt.fs();
        let version = table.version();
        let own = self.files.directories.directory_of(&version.table);
        let target = format!("{own}/snapshots/{tag}");
        let mut targets = vec![target.clone()];
        fs.create_dir_durably(&target).await?;
        for file in files {
            // A link stays in its file system.
            let meta = file.reader.meta();
            let directory = meta.directory();
            let target = format!("{directory}/snapshots/{tag}");
            if !targets.contains(&target) {
                fs.create_dir_durably(&target).await?;
                targets.push(target.clone());
            }
            for component in meta.components() {
                self.files.links.await_link(false).await;
                link_component(&fs, meta, *component, &target).await?;
            }
        }
        drop(linking);
        for memtable in memtables {
            let generation = self.files.next_generation(table);
            let to = FlushTo { directory: &target, generation, cached_as: None, held: false };
            let (_, refused) = self.writer.write_memtable(table, memtable, to).await?;
            if let Some(error) = refused.into_iter().next().map(Refused::into_error) {
                let what = format!("snapshot {tag} lacks a partition: {error}");
                self.env.tell_failure(StoreFailure::Unflushable(what));
            }
        }
        let text = (self.env.options.schema_text)(&version.table);
        let (shard, now) = (self.env.rt.shard(), self.env.rt.wall());
        for target in targets {
            write_shared(&fs, shard, &format!("{target}/schema.cql"), text.clone()).await?;
            write_manifest_for(&fs, shard, &target, now, ttl_seconds).await?;
        }
        Ok(())
    }

    /// All snapshots, by table and tag, also of tables that were dropped. The same on every shard.
    ///
    /// # Errors
    /// `Io`.
    pub async fn snapshots(&self) -> Result<Vec<SnapshotInfo>, StoreError> {
        let fs = self.env.rt.fs();
        let mut found = Vec::new();
        for TableDirectory { table, keyspace, name, path: directory } in
            self.table_directories().await?
        {
            let mut live: BTreeMap<String, u64> = BTreeMap::new();
            for entry in entries(&fs, &directory).await? {
                live.insert(entry.name, entry.len);
            }
            for tag in entries(&fs, &format!("{directory}/snapshots")).await? {
                if !tag.is_dir {
                    continue;
                }
                let path = format!("{directory}/snapshots/{}", tag.name);
                let (mut disk_bytes, mut true_bytes) = (0, 0);
                for entry in entries(&fs, &path).await? {
                    disk_bytes += entry.len;
                    if !live.contains_key(&entry.name) {
                        true_bytes += entry.len;
                    }
                }
                let manifest = fs.read(&format!("{path}/manifest.json"), MANIFEST_BYTES_MAX).await;
                let manifest = manifest.unwrap_or_default();
                let is_same =
                    |known: &&mut SnapshotInfo| known.table == table && known.tag == tag.name;
                if let Some(known) = found.iter_mut().find(is_same) {
                    // Its part in another data directory.
                    known.true_bytes += true_bytes;
                    known.disk_bytes += disk_bytes;
                    continue;
                }
                found.push(SnapshotInfo {
                    tag: tag.name,
                    table,
                    keyspace: keyspace.clone(),
                    name: name.clone(),
                    true_bytes,
                    disk_bytes,
                    created_at: text_of(&manifest, "created_at").unwrap_or_default(),
                    expires_at: text_of(&manifest, "expires_at").unwrap_or_default(),
                    is_ephemeral: is_ephemeral(&manifest),
                });
            }
        }
        Ok(found)
    }

    /// Removes the snapshot of that name (all when `None`) of the tables (all when `None`), also of
    /// tables that were dropped. To be called on one shard: snapshots belong to the node.
    ///
    /// # Errors
    /// `Io`.
    pub async fn clear_snapshot(
        &self,
        tag: Option<&str>,
        tables: Option<&[TableId]>,
    ) -> Result<(), StoreError> {
        self.clear_snapshot_made_before(tag, tables, None).await
    }

    /// The same of those that were made before a time, by their manifests, else by their directories.
    ///
    /// # Errors
    /// `Io`.
    pub async fn clear_snapshot_made_before(
        &self,
        tag: Option<&str>,
        tables: Option<&[TableId]>,
        before: Option<WallMicros>,
    ) -> Result<(), StoreError> {
        if let Some(tag) = tag {
            check_tag(tag)?;
        }
        let fs = self.env.rt.fs();
        for directory in self.table_directories().await? {
            if tables.is_some_and(|ids| !ids.contains(&directory.table)) {
                continue;
            }
            let snapshots = format!("{}/snapshots", directory.path);
            for entry in entries(&fs, &snapshots).await? {
                if tag.is_some_and(|t| t != entry.name) {
                    continue;
                }
                let path = format!("{snapshots}/{}", entry.name);
                if let Some(before) = before {
                    let manifest = format!("{path}/manifest.json");
                    let manifest = fs.read(&manifest, MANIFEST_BYTES_MAX).await.unwrap_or_default();
                    let made = text_of(&manifest, "created_at");
                    let made = made.and_then(|at| types::temporal::parse_timestamp(&at, None).ok());
                    let made = made
                        .map_or(entry.modified, |millis| WallMicros(millis.saturating_mul(1000)));
                    // A snapshot of unknown age stays.
                    if made >= before || made == WallMicros(0) {
                        continue;
                    }
                }
                self.remove_snapshot(&path).await?;
            }
        }
        Ok(())
    }

    /// Removes the snapshots whose time is over, by their manifests; how many. To be called on one
    /// shard, now and then.
    ///
    /// # Errors
    /// `Io`.
    pub async fn clear_expired(&self) -> Result<usize, StoreError> {
        let (fs, now) = (self.env.rt.fs(), iso_8601(self.env.rt.wall()));
        let mut removed = 0;
        for directory in self.table_directories().await? {
            let snapshots = format!("{}/snapshots", directory.path);
            for entry in entries(&fs, &snapshots).await?.into_iter().filter(|e| e.is_dir) {
                let path = format!("{snapshots}/{}", entry.name);
                let manifest = fs.read(&format!("{path}/manifest.json"), MANIFEST_BYTES_MAX).await;
                let Ok(manifest) = manifest else { continue };
                if text_of(&manifest, "expires_at").is_some_and(|at| is_over(&at, &now)) {
                    self.remove_snapshot(&path).await?;
                    removed += 1;
                }
            }
        }
        Ok(removed)
    }

    /// Removes the directory of a snapshot, link by link when there is a limit.
    async fn remove_snapshot(&self, path: &str) -> Result<(), StoreError> {
        let fs = self.env.rt.fs();
        if self.env.live.links.is_limited() {
            for entry in entries(&fs, path).await?.into_iter().filter(|entry| !entry.is_dir) {
                self.files.links.await_link(true).await;
                fs.remove_file(&format!("{path}/{}", entry.name)).await?;
            }
        }
        Ok(fs.remove_dir_all(path).await?)
    }

    /// Lists the tables' directories below the data directories, in order of table: a dropped table
    /// leaves its directory with its snapshots.
    async fn table_directories(&self) -> Result<Vec<TableDirectory>, StoreError> {
        let mut found = Vec::new();
        for FoundDirectory { keyspace, name: directory, path } in
            self.files.directories.found_directories().await?
        {
            let Some((name, id)) = directory.rsplit_once('-') else { continue };
            let Ok(id) = Uuid::parse_str(id) else { continue };
            let name = name.to_owned();
            found.push(TableDirectory { table: TableId(id), keyspace, name, path });
        }
        found.sort_by_key(|d| d.table);
        Ok(found)
    }
}

/// A directory of a table.
struct TableDirectory {
    table: TableId,
    keyspace: String,
    name: String,
    path: String,
}

/// Writes a file of a snapshot that every shard writes, some at the same time: each by way of a name
/// of its own, so that none renames the other's away.
async fn write_shared(fs: &Fs, shard: ShardId, path: &str, text: String) -> Result<(), StoreError> {
    let own = format!("{path}.{}", shard.0);
    fs.write_atomic(&own, text.into_bytes()).await?;
    Ok(fs.rename(&own, path).await?)
}

/// The manifest of a snapshot that does not expire.
pub(crate) async fn write_manifest(
    fs: &Fs,
    shard: ShardId,
    target: &str,
    now: WallMicros,
) -> Result<(), StoreError> {
    write_manifest_for(fs, shard, target, now, None).await
}

/// Every shard writes the manifest after its links; the last one lists them all.
async fn write_manifest_for(
    fs: &Fs,
    shard: ShardId,
    target: &str,
    now: WallMicros,
    ttl_seconds: Option<u32>,
) -> Result<(), StoreError> {
    let mut listed: Option<Vec<String>> = None;
    let expires_at = match ttl_seconds {
        None => "null".to_owned(),
        Some(seconds) => {
            let micros = i64::from(seconds).saturating_mul(1_000_000);
            format!("\"{}\"", iso_8601(WallMicros(now.0.saturating_add(micros))))
        }
    };
    loop {
        let names: Vec<String> = entries(fs, target)
            .await?
            .into_iter()
            .map(|e| e.name)
            .filter(|n| n.ends_with("-Data.db"))
            .collect();
        if listed.as_ref() == Some(&names) {
            break;
        }
        let quoted: Vec<String> = names.iter().map(|n| format!("\"{n}\"")).collect();
        let text = format!(
            "{{\"files\":[{}],\"created_at\":\"{}\",\"expires_at\":{expires_at},\"ephemeral\":false}}",
            quoted.join(","),
            iso_8601(now)
        );
        write_shared(fs, shard, &format!("{target}/manifest.json"), text).await?;
        listed = Some(names);
    }
    Ok(fs.sync_dir(target).await?)
}

/// Most bytes of a manifest that are read.
const MANIFEST_BYTES_MAX: usize = 1 << 24;

/// The text of a field of a manifest; `None`: there is none, or it is null.
fn text_of(manifest: &[u8], field: &str) -> Option<String> {
    let text = std::str::from_utf8(manifest).ok()?;
    let (_, rest) = text.split_once(&format!("\"{field}\""))?;
    let rest = rest.trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?;
    rest.split_once('"').map(|(value, _)| value.to_owned())
}

fn is_ephemeral(manifest: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(manifest) else { return false };
    let Some((_, rest)) = text.split_once("\"ephemeral\"") else { return false };
    let rest = rest.trim_start().strip_prefix(':').map(str::trim_start);
    rest.is_some_and(|rest| rest.starts_with("true"))
}

/// Returns true if a time as [`iso_8601`] writes it has passed, by whole seconds: Java writes as
/// many digits after them as it needs. Any other text never passes.
fn is_over(at: &str, now: &str) -> bool {
    let shape = |text: &str| {
        let bytes = text.bytes().take(19);
        bytes.map(|b| if b.is_ascii_digit() { b'0' } else { b }).collect::<Vec<u8>>()
    };
    let is_time = at.ends_with('Z') && shape(at) == shape(now);
    is_time && at.get(..19) < now.get(..19)
}

/// `2024-02-29T12:34:56.789Z`.
fn iso_8601(at: WallMicros) -> String {
    let millis = at.millis();
    let (days, of_day) = (millis.div_euclid(86_400_000), millis.rem_euclid(86_400_000));
    // Civil date from days: the era arithmetic of the proleptic Gregorian calendar.
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
        of_day / 3_600_000,
        of_day / 60_000 % 60,
        of_day / 1000 % 60,
        of_day % 1000
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_a_manifest_are_read_and_null_is_none() {
        let ours = br#"{"files":[],"created_at":"a","expires_at":null,"ephemeral":false}"#;
        assert_eq!(text_of(ours, "created_at").as_deref(), Some("a"));
        assert_eq!(text_of(ours, "expires_at"), None);
        let theirs = b"{\n  \"expires_at\" : \"2024-02-29T12:34:56.7Z\"\n}";
        assert_eq!(text_of(theirs, "expires_at").as_deref(), Some("2024-02-29T12:34:56.7Z"));
        assert!(!is_ephemeral(ours) && !is_ephemeral(theirs));
        assert!(is_ephemeral(b"{ \"ephemeral\" : true }"));
    }

    #[test]
    fn what_expires_is_over_after_its_second() {
        let now = "2024-02-29T12:34:56.000Z";
        for (at, expected) in [
            ("2024-02-29T12:34:55.999Z", true),
            ("2024-02-29T12:34:55Z", true),
            ("2024-02-29T12:34:56.000Z", false),
            ("2024-02-29T12:34:56Z", false),
            ("2025-01-01T00:00:00Z", false),
            ("1999-01-01", false),
            ("1999-01-01T00:00:00+01:00", false),
            ("", false),
            ("\u{e9}999-01-01T00:00:00Z", false),
        ] {
            assert_eq!(is_over(at, now), expected, "{at}");
        }
    }

    #[test]
    fn times_are_written_as_iso_8601() {
        assert_eq!(iso_8601(WallMicros(0)), "1970-01-01T00:00:00.000Z");
        assert_eq!(iso_8601(WallMicros(1_709_210_096_789_123)), "2024-02-29T12:34:56.789Z");
        assert_eq!(iso_8601(WallMicros(1_735_689_599_999_999)), "2024-12-31T23:59:59.999Z");
    }
}
