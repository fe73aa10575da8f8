//! File sets that the paths of a command line stand for, and what their directories' names tell of
//! them.

use std::path::{Path, PathBuf};

use sstable::{Component, Descriptor};
use stdx::Generation;

use tool_io::exit;

/// A file set and its location.
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
    pub(super) fn new(directory: &Path, set: Descriptor) -> Target {
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

    /// Keyspace and table that the directory is named after, also without the table's id, as in
    /// `keyspace/table`.
    pub(super) fn place(&self) -> (Option<String>, Option<String>) {
        if self.table.is_some() {
            return (self.keyspace.clone(), self.table.clone());
        }
        let directory = Path::new(&self.directory);
        let text = |path: Option<&Path>| {
            path.and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned())
        };
        (text(directory.parent()), text(Some(directory)))
    }

    /// Path of a component.
    pub(super) fn file(&self, component: Component) -> String {
        format!("{}/{}", self.directory.trim_end_matches('/'), self.set.file_name(component))
    }

    /// `big` or `bti`.
    pub(super) fn format(&self) -> &'static str {
        self.set.version.format()
    }

    /// Returns the name that `sstablepartitions` prints.
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

    /// Returns keyspace and table, or the directory if its name does not have them.
    pub(super) fn table_name(&self) -> String {
        match (&self.keyspace, &self.table) {
            (Some(keyspace), Some(table)) => format!("{keyspace}.{table}"),
            _ => self.directory.clone(),
        }
    }
}

/// Options of the search in directories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Search {
    pub(super) recursive: bool,
    pub(super) snapshots: bool,
    pub(super) backups: bool,
}

/// File sets that paths stand for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    targets: Vec<Target>,
    /// SSTables in directories that cannot be read here, with why.
    foreign: Vec<String>,
}

impl Found {
    /// Returns the file sets, for a tool that needs all of them. The error is the exit code; the
    /// cause is printed.
    pub(super) fn all(self) -> Result<Vec<Target>, u8> {
        match self.told() {
            (targets, exit::OK) => Ok(targets),
            (_, code) => Err(code),
        }
    }

    /// Returns the file sets, and the exit code of the unreadable ones; the cause is printed.
    pub(super) fn told(self) -> (Vec<Target>, u8) {
        for line in &self.foreign {
            complain_line!("helenus sstable: {line}");
        }
        (self.targets, if self.foreign.is_empty() { exit::OK } else { exit::DAMAGED })
    }
}

/// Returns the file sets of files (any component) and directories, in order, each once.
///
/// # Errors
/// Lines that name the wrong arguments.
pub(super) fn find(paths: &[String], search: Search) -> Result<Found, Vec<String>> {
    let (mut found, mut wrong) = (Found::default(), Vec::new());
    for path in paths {
        let Ok(absolute) = std::fs::canonicalize(path) else {
            wrong.push(format!("Argument '{path}' does not resolve to a file or directory"));
            continue;
        };
        if absolute.is_dir() {
            // A snapshot that is named itself is meant.
            let place = Target::new(&absolute, Descriptor::nb(Generation(0)));
            let search = Search {
                snapshots: search.snapshots || place.snapshot.is_some(),
                backups: search.backups || place.backup.is_some(),
                ..search
            };
            if let Err(error) = find_in(&absolute, search, &mut found) {
                wrong.push(format!("Argument '{path}': {error}"));
            }
            continue;
        }
        let name = absolute.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match (Descriptor::parse_any(&name), absolute.parent()) {
            (Some((set, _)), Some(directory)) => found.targets.push(Target::new(directory, set)),
            _ => wrong.push(match foreign(&name) {
                Some(why) => format!("Argument '{path}' is {why}"),
                None => format!("Argument '{path}' is not an sstable"),
            }),
        }
    }
    found.targets.sort();
    found.targets.dedup();
    if wrong.is_empty() { Ok(found) } else { Err(wrong) }
}

fn find_in(directory: &Path, search: Search, found: &mut Found) -> std::io::Result<()> {
    let mut below: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            below.push(entry.path());
            continue;
        }
        let name = entry.file_name().to_string_lossy().into_owned();
        let set = match Descriptor::parse(&name) {
            // A set that has lost its Data is reported where it is opened.
            Some((set, Component::Data | Component::Toc)) => set,
            Some(_) => continue,
            None => {
                if let Some(why) = foreign(&name) {
                    found.foreign.push(format!("{} is {why}", entry.path().display()));
                }
                continue;
            }
        };
        let target = Target::new(directory, set);
        let is_wanted = (target.snapshot.is_none() || search.snapshots)
            && (target.backup.is_none() || search.backups);
        if is_wanted {
            found.targets.push(target);
        }
    }
    if search.recursive {
        for path in below {
            find_in(&path, search, found)?;
        }
    }
    Ok(())
}

/// Explains why a file with the name of an SSTable's Data, but of an unsupported version, cannot be
/// read. `None`: it has no such name.
///
/// Names are `<version>-<id>-<format>-Data.db`, before Cassandra 2.2
/// `[<keyspace>-<table>-]<version>-<id>-Data.db`.
pub(super) fn foreign(name: &str) -> Option<String> {
    let stem = name.strip_suffix("-Data.db")?;
    if Descriptor::parse(name).is_some() {
        return None;
    }
    let parts: Vec<&str> = stem.split('-').collect();
    let is_number = |id: &&str| !id.is_empty() && id.bytes().all(|b| b.is_ascii_digit());
    let (version, format) = match parts.as_slice() {
        [version, _, format] if !is_number(format) => (Some(*version), *format),
        [.., version, id] if is_number(id) => (Some(*version), "big"),
        _ => (None, ""),
    };
    let version = version.filter(|v| v.len() == 2 && v.bytes().all(|b| b.is_ascii_lowercase()));
    Some(match version {
        // Versions of BTI are counted by themselves.
        Some(version) if version < "ma" && format == "big" => format!(
            "an SSTable of version {version}, from before Cassandra 3.0; sstableupgrade of Cassandra 3 \
             makes one of it that is read"
        ),
        Some(version) => format!("an SSTable of version {version} ({format}), which is not read"),
        None => "named as no SSTable that is read".to_owned(),
    })
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
            find(&[path.to_string_lossy().into_owned()], search).map(|found| found.targets.len())
        };
        let plain = Search::default();
        let all = Search { recursive: true, snapshots: true, backups: true };
        assert_eq!(count(&table, plain), Ok(1));
        assert_eq!(count(&temporary, plain), Ok(0));
        assert_eq!(count(&temporary, Search { recursive: true, ..plain }), Ok(1));
        assert_eq!(count(&temporary, Search { recursive: true, backups: true, ..plain }), Ok(2));
        assert_eq!(count(&temporary, all), Ok(3));
        assert_eq!(count(&table.join("snapshots/a"), plain), Ok(1), "it is named itself");
        assert_eq!(count(&table.join("backups"), plain), Ok(1));
        assert_eq!(count(&table.join("snapshots"), plain), Ok(0));
        let file = table.join("nb-2-big-Index.db");
        assert_eq!(count(&file, plain), Ok(1));
        assert!(count(&table.join("nb-9-big-Data.db"), plain).is_err());
        std::fs::remove_dir_all(&temporary).unwrap();
    }

    #[test]
    fn sstables_that_are_not_read_are_told_of_and_not_passed_over() {
        for (name, words) in [
            ("ks-t-ic-0-Data.db", Some("of version ic, from before Cassandra 3.0")),
            ("ks-my-t-jb-12-Data.db", Some("of version jb, from before")),
            ("ka-1-Data.db", Some("of version ka, from before")),
            ("la-1-big-Data.db", Some("of version la, from before")),
            ("nc-1-big-Data.db", Some("of version nc (big), which is not read")),
            ("ea-3gxy_0c1a_2rdl12ns5v5xyzabcd-bti-Data.db", Some("of version ea (bti), which")),
            ("nb-1-bti-Data.db", Some("of version nb (bti), which")),
            ("x-Data.db", Some("named as no SSTable")),
            ("nb-1-big-Data.db", None),
            ("la-1-big-Index.db", None),
            ("manifest.json", None),
        ] {
            let told = foreign(name);
            assert_eq!(told.is_some(), words.is_some(), "{name}: {told:?}");
            assert!(words.is_none_or(|words| told.as_ref().unwrap().contains(words)), "{told:?}");
        }
        let temporary =
            std::env::temp_dir().join(format!("helenus-foreign-{}", std::process::id()));
        std::fs::create_dir_all(&temporary).unwrap();
        let find_here = || find(&[temporary.to_string_lossy().into_owned()], Search::default());
        for name in
            ["nb-1-big-Data.db", "nb-1-big-TOC.txt", "nb-2-big-TOC.txt", "nb-3-big-Index.db"]
        {
            std::fs::write(temporary.join(name), b"").unwrap();
        }
        assert_eq!(find_here().unwrap().all().unwrap().len(), 2, "one has no Data");
        std::fs::write(temporary.join("la-1-big-Data.db"), b"").unwrap();
        let (targets, code) = find_here().unwrap().told();
        assert_eq!((targets.len(), code), (2, exit::DAMAGED));
        assert_eq!(find_here().unwrap().all(), Err(exit::DAMAGED));
        std::fs::remove_dir_all(&temporary).unwrap();
    }
}
