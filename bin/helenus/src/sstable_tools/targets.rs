//! Which file sets are meant by the paths of a command line, and what their directories say of
//! them.

use std::path::{Path, PathBuf};

use sstable::{Component, Descriptor};

/// A file set and where it lies.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Target {
    /// Absolute, without links.
    pub(super) directory: String,
    pub(super) keyspace: Option<String>,
    pub(super) table: Option<String>,
    /// 32 hexadecimal digits.
    pub(super) table_id: Option<String>,
    pub(super) index: Option<String>,
    pub(super) snapshot: Option<String>,
    pub(super) backup: Option<String>,
    id: String,
    pub(super) set: Descriptor,
}

impl Target {
    fn new(directory: &Path, set: Descriptor) -> Target {
        let text = |path: &Path| {
            path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
        };
        let up = |path: &Path| path.parent().unwrap_or(Path::new("")).to_path_buf();
        let mut at = directory.to_path_buf();
        let (mut index, mut backup, mut snapshot) = (None, None, None);
        if let Some(name) = text(&at).strip_prefix('.').filter(|n| !n.is_empty()) {
            index = Some(name.to_owned());
            at = up(&at);
        }
        if text(&at) == "backups" {
            backup = Some(text(&at));
            at = up(&at);
        }
        if text(&up(&at)) == "snapshots" {
            snapshot = Some(text(&at));
            at = up(&up(&at));
        }
        let named = text(&at);
        let parts = named.rsplit_once('-').filter(|(table, id)| {
            !table.is_empty() && id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit())
        });
        Target {
            directory: directory.to_string_lossy().into_owned(),
            keyspace: parts.map(|_| text(&up(&at))),
            table: parts.map(|(table, _)| table.to_owned()),
            table_id: parts.map(|(_, id)| id.to_ascii_lowercase()),
            index,
            snapshot,
            backup,
            id: set.id(),
            set,
        }
    }

    /// Path of a component.
    pub(super) fn file(&self, component: Component) -> String {
        format!("{}/{}", self.directory.trim_end_matches('/'), self.set.file_name(component))
    }

    /// `big` or `bti`.
    pub(super) fn format(&self) -> &'static str {
        self.set.version.format()
    }

    /// As `sstablepartitions` names it.
    pub(super) fn name(&self) -> String {
        let mut out = String::new();
        for (what, name) in [("Backup", &self.backup), ("Snapshot", &self.snapshot)] {
            if let Some(name) = name {
                out.push_str(&format!("{what}:{name} "));
            }
        }
        if let Some(keyspace) = &self.keyspace {
            out.push_str(&format!("{keyspace}."));
        }
        out.push_str(self.table.as_deref().unwrap_or(""));
        if let Some(index) = &self.index {
            out.push_str(&format!(".{index}"));
        }
        if let Some(id) = &self.table_id {
            out.push_str(&format!("-{id}"));
        }
        let (id, format, version) = (&self.id, self.format(), self.set.version);
        format!("{out} #{id} ({format}-{version})")
    }

    /// Keyspace and table, or the directory where it does not say so.
    pub(super) fn table_name(&self) -> String {
        match (&self.keyspace, &self.table) {
            (Some(keyspace), Some(table)) => format!("{keyspace}.{table}"),
            _ => self.directory.clone(),
        }
    }
}

/// How directories are looked through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Search {
    pub(super) recursive: bool,
    pub(super) snapshots: bool,
    pub(super) backups: bool,
}

/// The file sets of files (any component) and directories, in order, each once.
///
/// # Errors
/// Lines that say which arguments are wrong.
pub(super) fn find(paths: &[String], search: Search) -> Result<Vec<Target>, Vec<String>> {
    let (mut found, mut wrong) = (Vec::new(), Vec::new());
    for path in paths {
        let Ok(absolute) = std::fs::canonicalize(path) else {
            wrong.push(format!("Argument '{path}' does not resolve to a file or directory"));
            continue;
        };
        if absolute.is_dir() {
            if let Err(error) = find_in(&absolute, search, &mut found) {
                wrong.push(format!("Argument '{path}': {error}"));
            }
            continue;
        }
        let name = absolute.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match (Descriptor::parse(&name), absolute.parent()) {
            (Some((set, _)), Some(directory)) => found.push(Target::new(directory, set)),
            _ => wrong.push(format!("Argument '{path}' is not an sstable")),
        }
    }
    found.sort();
    found.dedup();
    if wrong.is_empty() { Ok(found) } else { Err(wrong) }
}

fn find_in(directory: &Path, search: Search, found: &mut Vec<Target>) -> std::io::Result<()> {
    let mut below: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            below.push(entry.path());
            continue;
        }
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some((set, Component::Data)) = Descriptor::parse(&name) else { continue };
        let target = Target::new(directory, set);
        let is_wanted = (target.snapshot.is_none() || search.snapshots)
            && (target.backup.is_none() || search.backups);
        if is_wanted {
            found.push(target);
        }
    }
    if search.recursive {
        for path in below {
            find_in(&path, search, found)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_say_keyspace_table_index_snapshot_and_backup() {
        let id = "5bc52802de2535edaeab188eecebb090";
        let set = Descriptor::parse("nb-7-big-Data.db").unwrap().0;
        for (directory, name) in [
            (format!("/data/ks/t-{id}"), format!("ks.t-{id} #7 (big-nb)")),
            (
                format!("/data/ks/t-{id}/snapshots/before"),
                format!("Snapshot:before ks.t-{id} #7 (big-nb)"),
            ),
            (format!("/data/ks/t-{id}/backups"), format!("Backup:backups ks.t-{id} #7 (big-nb)")),
            (format!("/data/ks/t-{id}/.by_v"), format!("ks.t.by_v-{id} #7 (big-nb)")),
            ("/data/ks/t".to_owned(), " #7 (big-nb)".to_owned()),
        ] {
            assert_eq!(Target::new(Path::new(&directory), set).name(), name, "{directory}");
        }
    }

    #[test]
    fn directories_are_searched_for_data_files_only_as_far_as_asked() {
        let temporary = std::env::temp_dir().join(format!("helenus-find-{}", std::process::id()));
        let table = temporary.join("ks/t-5bc52802de2535edaeab188eecebb090");
        for (directory, name) in [
            ("", "nb-1-big-Data.db"),
            ("", "nb-1-big-Index.db"),
            ("", "nb-2-big-Index.db"),
            ("backups", "da-3-bti-Data.db"),
            ("snapshots/a", "nb-1-big-Data.db"),
        ] {
            std::fs::create_dir_all(table.join(directory)).unwrap();
            std::fs::write(table.join(directory).join(name), b"").unwrap();
        }
        let count = |path: &Path, search| {
            find(&[path.to_string_lossy().into_owned()], search).map(|found| found.len())
        };
        let plain = Search::default();
        let all = Search { recursive: true, snapshots: true, backups: true };
        assert_eq!(count(&table, plain), Ok(1));
        assert_eq!(count(&temporary, plain), Ok(0));
        assert_eq!(count(&temporary, Search { recursive: true, ..plain }), Ok(1));
        assert_eq!(count(&temporary, Search { recursive: true, backups: true, ..plain }), Ok(2));
        assert_eq!(count(&temporary, all), Ok(3));
        let file = table.join("nb-2-big-Index.db");
        assert_eq!(count(&file, plain), Ok(1));
        assert!(count(&table.join("nb-9-big-Data.db"), plain).is_err());
        std::fs::remove_dir_all(&temporary).unwrap();
    }
}
