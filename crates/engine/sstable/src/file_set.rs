//! File sets of a directory: which are complete, their removal, and the TOC.txt of one that lost it.
//!
//! TOC.txt is the commit point of a file set, and its two other names mark one that is not complete:
//!
//! - `TOC.txt.tmp`, created empty before any other component: the write is unfinished. A rename to
//!   `TOC.txt` completes it.
//! - `TOC.txt.removed`, renamed from `TOC.txt` before any other component goes: the removal is
//!   unfinished. It is the last file that is unlinked.
//!
//! Both are durable before another component of the set is created or unlinked, so whatever a crash
//! leaves of a write or a removal carries a mark, and only that is removed at a start. A file set with
//! neither TOC.txt nor a mark has lost its TOC.txt: [`rebuild_toc`] writes it again.
//!
//! INV-file-set-1: a file set without a mark is never removed as the leftover of an operation.

use rt::{Fs, OpenOptions};
use schema::Table;
use sst_format::checksums::{BlockChecksummer, Checksums};
use sst_format::component::{encode_toc, other_names_in_toc};
use sst_format::{Component, Descriptor};
use stdx::{FixedMap, Generation, IoErrorKind};

use crate::meta::{Purpose, SstableMeta};
use crate::reader::{Loaded, TOC_BYTES_MAX};
use crate::set_files::SetFiles;
use crate::{Result, SstableError};

/// Added to the name of TOC.txt while the file set is being written.
pub const UNFINISHED: &str = ".tmp";
/// Added to the name of TOC.txt while the file set is being removed.
pub const REMOVED: &str = ".removed";
/// Begins the names of files that [`rebuild_toc`] renames when they are complete.
const REBUILT: &str = "helenus-toc-";

/// State of a file set, by the names that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SetState {
    /// It has its TOC.txt.
    Complete,
    /// A write or a removal of it is under way, or was when the process ended.
    Unfinished,
    /// It has neither TOC.txt nor a mark: TOC.txt was lost.
    WithoutToc,
}

/// Which names of TOC.txt a directory has for one file set.
#[derive(Clone, Copy, Default)]
struct Names {
    toc: bool,
    mark: bool,
}

fn toc_of(directory: &str, set: Descriptor) -> String {
    format!("{directory}/{}", set.file_name(Component::Toc))
}

/// Path of the mark of an unfinished write.
pub fn unfinished_path(directory: &str, set: Descriptor) -> String {
    format!("{}{UNFINISHED}", toc_of(directory, set))
}

/// Creates the mark of an unfinished write, durably. Before any other component.
///
/// # Errors
/// `Io`.
pub async fn mark_unfinished(fs: &Fs, directory: &str, set: Descriptor) -> Result<()> {
    create_mark(fs, &unfinished_path(directory, set)).await?;
    Ok(fs.sync_dir(directory).await?)
}

async fn create_mark(fs: &Fs, path: &str) -> Result<()> {
    let options = OpenOptions { write: true, create: true, ..OpenOptions::default() };
    drop(fs.open(path, options).await?);
    Ok(())
}

/// The file set that a file name marks as unfinished.
pub fn marked_set(name: &str) -> Option<Descriptor> {
    let toc = name.strip_suffix(UNFINISHED).or_else(|| name.strip_suffix(REMOVED))?;
    let (set, component) = Descriptor::parse(toc)?;
    (component == Component::Toc).then_some(set)
}

/// The file sets of a directory by generation, with their states.
///
/// # Errors
/// `Unsupported` for two file sets of one generation (in different versions), `Io`.
pub async fn list_sstables(fs: &Fs, directory: &str) -> Result<Vec<(Descriptor, SetState)>> {
    let mut found: FixedMap<Generation, (Descriptor, Names)> = FixedMap::default();
    for entry in fs.read_dir(directory).await? {
        let mark = marked_set(&entry.name);
        let parsed = Descriptor::parse(&entry.name);
        let Some(set) = mark.or(parsed.map(|(set, _)| set)) else { continue };
        let known = found.entry(set.generation).or_insert((set, Names::default()));
        if known.0 != set {
            return Err(SstableError::Unsupported {
                file: format!("{directory}/{}", entry.name),
                what: format!("{} has the same generation", known.0.prefix()),
            });
        }
        known.1.mark |= mark.is_some();
        known.1.toc |= parsed.is_some_and(|(_, component)| component == Component::Toc);
    }
    let mut sets = Vec::with_capacity(found.len());
    for (set, names) in found.into_values() {
        let state = match names {
            Names { toc: true, .. } => Some(SetState::Complete),
            Names { mark: true, .. } => Some(SetState::Unfinished),
            // Another shard may have renamed it while the names were listed.
            Names { .. } => state_of(fs, directory, set).await?,
        };
        sets.extend(state.map(|state| (set, state)));
    }
    sets.sort();
    Ok(sets)
}

/// The state of one file set; `None` when it has no file. A rename of TOC.txt meanwhile is seen: a write
/// goes from the mark to TOC.txt, a removal from TOC.txt to the mark.
///
/// # Errors
/// `Io`.
pub async fn state_of(fs: &Fs, directory: &str, set: Descriptor) -> Result<Option<SetState>> {
    let toc = toc_of(directory, set);
    let marks = [format!("{toc}{UNFINISHED}"), format!("{toc}{REMOVED}")];
    for path in marks.iter().chain([&toc]).chain(&marks) {
        if fs.exists(path).await? {
            let is_toc = *path == toc;
            return Ok(Some(if is_toc { SetState::Complete } else { SetState::Unfinished }));
        }
    }
    Ok(match has_component(fs, directory, set).await? {
        true => Some(SetState::WithoutToc),
        false => None,
    })
}

async fn has_component(fs: &Fs, directory: &str, set: Descriptor) -> Result<bool> {
    for component in Component::ALL {
        if fs.exists(&format!("{directory}/{}", set.file_name(component))).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Removes the files of one SSTable, attached components among them. A crash in between leaves a marked
/// set. The caller syncs the directory.
///
/// # Errors
/// `Io`.
pub async fn remove_sstable(fs: &Fs, directory: &str, set: Descriptor) -> Result<()> {
    let toc = toc_of(directory, set);
    let (unfinished, removed) = (format!("{toc}{UNFINISHED}"), format!("{toc}{REMOVED}"));
    match fs.rename(&toc, &removed).await {
        Ok(()) => fs.sync_dir(directory).await?,
        Err(e) if e.kind == IoErrorKind::NotFound => {
            let is_marked = fs.exists(&unfinished).await? || fs.exists(&removed).await?;
            if !is_marked && !has_component(fs, directory, set).await? {
                return Ok(());
            }
            if !is_marked {
                create_mark(fs, &removed).await?;
                fs.sync_dir(directory).await?;
            }
        }
        Err(e) => return Err(e.into()),
    }
    let listed = match fs.read(&removed, TOC_BYTES_MAX).await {
        Ok(listed) => listed,
        Err(e) if e.kind == IoErrorKind::NotFound => Vec::new(),
        Err(e) => return Err(e.into()),
    };
    let attached = match listed.is_empty() {
        // The write ended before TOC.txt was complete, or TOC.txt was lost.
        true => attached_names(fs, directory, set).await?,
        false => other_names_in_toc(&listed),
    };
    for name in attached {
        remove_if_there(fs, &format!("{directory}/{}-{name}", set.prefix())).await?;
    }
    for component in Component::ALL.into_iter().rev() {
        remove_if_there(fs, &format!("{directory}/{}", set.file_name(component))).await?;
    }
    // Without a mark, names that reappear after a power cut would look like a damaged file set.
    fs.sync_dir(directory).await?;
    remove_if_there(fs, &unfinished).await?;
    remove_if_there(fs, &removed).await
}

/// The names of a file set's files in its directory that are no component of a fixed kind, sorted.
async fn attached_names(fs: &Fs, directory: &str, set: Descriptor) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs.read_dir(directory).await? {
        if let Some((found, name)) = Descriptor::parse_any(&entry.name)
            && found == set
            && Component::from_file_name(name).is_none()
            && is_custom(name)
        {
            names.push(name.to_owned());
        }
    }
    names.sort_unstable();
    Ok(names)
}

async fn remove_if_there(fs: &Fs, path: &str) -> Result<()> {
    match fs.remove_file(path).await {
        Err(e) if e.kind != IoErrorKind::NotFound => Err(e.into()),
        _ => Ok(()),
    }
}

/// Returns true if the name is that of a leftover of [`rebuild_toc`] with this suffix.
pub fn is_rebuild_leftover(name: &str, suffix: &str) -> bool {
    name.starts_with(REBUILT) && name.rsplit_once('.').is_some_and(|(_, end)| end == suffix)
}

/// Writes TOC.txt of a file set that lost it, when every other component exists and fits. Callers
/// with other suffixes may do the same at the same time. Does nothing when TOC.txt exists.
///
/// Order: 1. Checksums.db, where it lists another TOC.txt than the one that is written (that of files
/// of another program); 2. TOC.txt. Each is synced and renamed, under no name that marks the set.
///
/// # Errors
/// `Missing`, `Corrupt`, `Unsupported`: the file set is not complete; `Io`.
pub async fn rebuild_toc(
    fs: &Fs,
    directory: &str,
    set: Descriptor,
    table: &Table,
    suffix: &str,
) -> Result<()> {
    if fs.exists(&toc_of(directory, set)).await? {
        return Ok(());
    }
    let mut known = Vec::new();
    for entry in fs.read_dir(directory).await? {
        let parsed = Descriptor::parse(&entry.name).filter(|(found, _)| *found == set);
        known.extend(parsed.map(|(_, component)| component));
    }
    let attached = attached_names(fs, directory, set).await?;
    known.push(Component::Toc);
    // The order in which our own files list them.
    known.sort_unstable_by_key(|c| Component::ALL.iter().position(|known| known == c));
    known.dedup();
    let mut toc = encode_toc(&known);
    attached.iter().for_each(|name| toc.extend_from_slice(format!("{name}\n").as_bytes()));

    let files = SetFiles::open(fs, directory, set).await?;
    let mut loaded = Loaded::load(&files, set).await?.components;
    loaded.small.retain(|(component, _)| *component != Component::Toc);
    loaded.small.push((Component::Toc, toc.clone()));
    let path = |c: Component| format!("{directory}/{}", set.file_name(c));
    let mut changed = None;
    match loaded.small.iter_mut().find(|(c, _)| *c == Component::Checksums) {
        Some((_, bytes)) => {
            let at = |e| SstableError::of_format(&path(Component::Checksums), 0, &e);
            let mut list = Checksums::decode(bytes).map_err(at)?;
            let listed = list.components.iter_mut().find(|c| c.component == Component::Toc);
            if let Some(listed) = listed.filter(|listed| listed.verify_all(&toc).is_err()) {
                *listed = BlockChecksummer::of(Component::Toc, &toc);
                *bytes = list.encode();
                changed = Some(bytes.clone());
            }
        }
        // Without CompressionInfo.db compressed rows would be treated as plain ones.
        None if !known.iter().any(|c| matches!(c, Component::CompressionInfo | Component::Crc)) => {
            return Err(SstableError::Missing { file: path(Component::CompressionInfo) });
        }
        None => {}
    }
    SstableMeta::open_for(Purpose::Serve, directory, set, Some(table), &loaded)?;
    let temporary = format!("{directory}/{REBUILT}{}.{suffix}", set.id());
    if let Some(bytes) = changed {
        let bytes = files.stored(Component::Checksums, bytes);
        replace(fs, &temporary, &path(Component::Checksums), bytes).await?;
        fs.sync_dir(directory).await?;
    }
    replace(fs, &temporary, &path(Component::Toc), toc).await?;
    Ok(fs.sync_dir(directory).await?)
}

/// Returns true if the part of a file name after the format names a component of another program.
fn is_custom(name: &str) -> bool {
    let is_ours = name.starts_with("Released.");
    !is_ours && !name.ends_with(UNFINISHED) && !name.ends_with(REMOVED)
}

async fn replace(fs: &Fs, temporary: &str, path: &str, bytes: Vec<u8>) -> Result<()> {
    let options =
        OpenOptions { write: true, create: true, truncate: true, ..OpenOptions::default() };
    let file = fs.open(temporary, options).await?;
    let (_, written) = file.write_at(rt::Buf::from(bytes), 0).await;
    written?;
    file.sync_data().await?;
    drop(file);
    Ok(fs.rename(temporary, path).await?)
}
