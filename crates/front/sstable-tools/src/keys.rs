//! `helenus key`: key files of encryption at rest, and the keys that files use.
//!
//! Owns: the command line, the output, how a key file is replaced. Never: formats (crates `at-rest` and `sstable`). A
//! key is never printed.

use std::collections::BTreeMap;
use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use at_rest::{KeyRecord, KeyRing, generated_line, parse_keys};
use clap::Subcommand;
use rt::Rt;
use sstable::{Component, Rewrapped, Sealing, key_record, rewrap};

use super::change::locked;
use super::targets::{Search, find};
use tool_io::exit;

/// Tools for keys.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum Command {
    /// Create a key file with a new key, or add a key to one
    Generate {
        /// Name of the key: letters, digits, '-', '_' and '.'
        #[arg(long)]
        id: String,
        /// Add the key to an existing file, as its first one: new files are encrypted with it
        #[arg(long)]
        prepend: bool,
        /// The key file; only its owner may read it
        #[arg(value_name = "FILE")]
        file: String,
    },
    /// Print which key each SSTable below directories is encrypted with
    List {
        /// SSTables (any component) or directories, searched with all below them
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<String>,
    },
    /// Wrap the data keys of SSTables with the first key of a key file; no data is rewritten
    Rewrap {
        /// Key file with the new key first, and the old ones
        #[arg(long, value_name = "FILE")]
        key_file: String,
        /// SSTables (any component) or directories, searched with all below them
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<String>,
    },
}

/// Runs the tool; the exit code: of several files the worst.
pub fn main(command: Command) -> u8 {
    match command {
        Command::Generate { id, prepend, file } => {
            super::on_machine(None, move |rt| generate(rt, id.clone(), prepend, file.clone()))
        }
        Command::List { paths } => super::on_machine(None, move |rt| list(rt, paths.clone())),
        Command::Rewrap { key_file, paths } => match read(&key_file) {
            Ok(keys) if keys.active().is_none() => {
                complain_line!("helenus key: {key_file}: its keys are for reading only");
                exit::USAGE
            }
            Ok(keys) => super::on_machine(Some(keys), move |rt| rewrap_all(rt, paths.clone())),
            Err(what) => {
                complain_line!("helenus key: {what}");
                exit::USAGE
            }
        },
    }
}

/// Reads a key file.
pub(super) fn read(path: &str) -> Result<Arc<KeyRing>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let file = parse_keys(&text).map_err(|error| format!("{path}: {error}"))?;
    Ok(Arc::new(file.ring))
}

async fn generate(rt: Rt, id: String, prepend: bool, path: String) -> u8 {
    let mut random = [0; 32];
    rt.random_fill(&mut random);
    let written = generated_line(&id, random).map_err(str::to_owned).and_then(|line| {
        let before = match prepend {
            true => std::fs::read_to_string(&path).map_err(|error| error.to_string())?,
            false => String::new(),
        };
        let text = format!("{line}\n{before}");
        // A key file that a node would refuse is not written.
        parse_keys(&text).map_err(|error| error.to_string())?;
        put(&path, &text, prepend).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => "the file exists; --prepend adds a key to it".to_owned(),
            ErrorKind::NotFound => {
                "its directory does not exist; create it with mode 700".to_owned()
            }
            _ => error.to_string(),
        })
    });
    match written {
        Ok(()) => {
            say_line!(
                "{path}: key \"{id}\" is the active one; keep a copy elsewhere, a lost key is lost data"
            );
            exit::OK
        }
        Err(what) => {
            complain_line!("helenus key: {path}: {what}");
            exit::FAILED
        }
    }
}

/// Writes a file that only its owner may read, durably. An existing one is replaced in one step, or refused. A
/// replaced file keeps its owner and its group, and its group may still read it if it could. A symbolic link keeps
/// its place: its target is replaced.
fn put(path: &str, text: &str, replaces: bool) -> std::io::Result<()> {
    if !replaces {
        write_new(Path::new(path), text, None)?;
        return sync_directory_of(Path::new(path));
    }
    let path = std::fs::canonicalize(path)?;
    let old = std::fs::metadata(&path)?;
    let mut next = path.clone().into_os_string();
    next.push(".tmp");
    let next = PathBuf::from(next);
    // Left over from a crash, with a mode and an owner of its own.
    match std::fs::remove_file(&next) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let replaced = write_new(&next, text, Some(&old)).and_then(|()| std::fs::rename(&next, &path));
    if let Err(error) = replaced {
        // No copy of the keys stays; the first error is the one to report.
        let _ = std::fs::remove_file(&next);
        return Err(error);
    }
    sync_directory_of(&path)
}

/// Creates a file for its owner only, or for those of the file that it will replace, and syncs it.
fn write_new(path: &Path, text: &str, old: Option<&Metadata>) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    if let Some(old) = old {
        let new = file.metadata()?;
        if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
            fchown(&file, Some(old.uid()), Some(old.gid()))?;
        }
        file.set_permissions(Permissions::from_mode(0o600 | (old.mode() & 0o040)))?;
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Makes the name of a file durable.
fn sync_directory_of(path: &Path) -> std::io::Result<()> {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

const ALL: Search = Search { recursive: true, snapshots: true, backups: true };

async fn list(rt: Rt, paths: Vec<String>) -> u8 {
    let found = match find(&paths, ALL) {
        Ok(found) => found,
        Err(lines) => return super::wrong_paths(&lines),
    };
    let (targets, mut worst) = found.told();
    let mut totals: BTreeMap<String, u64> = BTreeMap::new();
    for target in targets {
        let path = target.file(Component::Data);
        match key_record(&rt.fs(), &target.directory, target.set).await {
            Ok(None) => {
                say_line!("{path}: not encrypted");
                *totals.entry("not encrypted".to_owned()).or_default() += 1;
            }
            Ok(Some(record)) => {
                let key = named(&record);
                say_line!("{path}: {key}");
                *totals.entry(key).or_default() += 1;
            }
            Err(error) => worst = worst.max(super::report(&path, &error.into())),
        }
    }
    for (key, sets) in totals {
        say_line!("{sets} SSTables: {key}");
    }
    worst
}

/// The named key of a record, as `list` prints it.
fn named(record: &KeyRecord) -> String {
    let KeyRecord { provider, key, version, .. } = record;
    match *version {
        0 => format!("key {key} of {provider}"),
        version => format!("key {key} of {provider}, version {version}"),
    }
}

async fn rewrap_all(rt: Rt, paths: Vec<String>) -> u8 {
    let found = match find(&paths, ALL) {
        Ok(found) => found,
        Err(lines) => return super::wrong_paths(&lines),
    };
    let (by_directory, _locks) = match found.all() {
        Ok(targets) => match locked(&rt, targets).await {
            Ok(locked) => locked,
            Err(code) => return code,
        },
        Err(code) => return code,
    };
    let (mut worst, mut counts) = (exit::OK, [0_u64; 3]);
    for target in by_directory.into_values().flatten() {
        match rewrap(&rt.fs(), &target.directory, target.set, &Sealing::Sealed).await {
            Ok(Rewrapped::Changed) => counts[0] += 1,
            Ok(Rewrapped::Current) => counts[1] += 1,
            Ok(Rewrapped::Plain) => counts[2] += 1,
            Err(error) => {
                worst = worst.max(super::report(&target.file(Component::Data), &error.into()));
            }
        }
    }
    let [changed, current, plain] = counts;
    say_line!("{changed} rewrapped, {current} had the active key, {plain} not encrypted");
    worst
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_file_is_created_for_its_owner_only_extended_and_never_overwritten() {
        let directory = std::env::temp_dir().join(format!("helenus-key-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("keys").to_string_lossy().into_owned();
        let generate = |id: &str, prepend| {
            main(Command::Generate { id: id.to_owned(), prepend, file: path.clone() })
        };
        assert_eq!(generate("first", true), exit::FAILED, "there is none to extend");
        assert_eq!(generate("first", false), exit::OK);
        assert_eq!(generate("other", false), exit::FAILED, "it exists");
        assert_eq!(generate("a b", true), exit::FAILED);
        assert_eq!(generate("first", true), exit::FAILED, "that id exists");
        assert_eq!(generate("second", true), exit::OK);
        let ring = read(&path).unwrap();
        let ids: Vec<&str> = ring.keys().iter().map(at_rest::NamedKey::id).collect();
        assert_eq!(ids, ["second", "first"]);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_replaced_key_file_keeps_its_owner_and_its_link_and_a_leftover_is_not_written_to() {
        let directory =
            std::env::temp_dir().join(format!("helenus-prepend-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let (file, link) = (directory.join("keys"), directory.join("link"));
        let generate = |id: &str, prepend, path: &Path| {
            let file = path.to_string_lossy().into_owned();
            main(Command::Generate { id: id.to_owned(), prepend, file })
        };
        assert_eq!(generate("first", false, &file), exit::OK);
        std::os::unix::fs::symlink("keys", &link).unwrap();
        // Needs a privilege; without it the owner stays the same anyway.
        let _ = std::os::unix::fs::chown(&file, Some(4711), Some(4712));
        std::fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        let old = std::fs::metadata(&file).unwrap();
        // A file left by a crash is readable by all; a reader has it open.
        let leftover = directory.join("keys.tmp");
        std::fs::write(&leftover, "left").unwrap();
        std::fs::set_permissions(&leftover, Permissions::from_mode(0o666)).unwrap();
        let mut reader = File::open(&leftover).unwrap();
        assert_eq!(generate("second", true, &link), exit::OK);
        let mut seen = String::new();
        std::io::Read::read_to_string(&mut reader, &mut seen).unwrap();
        assert_eq!(seen, "left");
        assert!(!leftover.exists() && link.is_symlink() && !file.is_symlink());
        assert_eq!(read(&file.to_string_lossy()).unwrap().keys().len(), 2);
        let new = std::fs::metadata(&file).unwrap();
        assert_eq!((new.uid(), new.gid()), (old.uid(), old.gid()));
        assert_eq!(new.mode() & 0o777, 0o640);
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
