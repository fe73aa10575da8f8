//! Marks of damaged files: `helenus-damaged-<generation>.<shard>` beside the file records the damage
//! across restarts.

use std::rc::Rc;

use sstable::{Component, IndexComponent, SstableError};
use stdx::Generation;

use crate::error::StoreError;
use crate::files::Files;
use crate::files::index_marks;
use crate::files::marks;
use crate::files::scan_list::list_name;
use crate::files::table_files::remove_if_there;
use crate::tables::damage::Damage;
use crate::tables::table::TableState;
use crate::tables::table_file::TableFile;

/// Longest reason that is kept, bytes.
const REASON_BYTES_MAX: usize = 1_000;

/// Most bytes of a mark.
const MARK_BYTES_MAX: usize = 4_096;

/// Change in the state of a damaged file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DamageEvent {
    /// It was found.
    Found {
        /// Its Data component.
        path: String,
        /// The damage that was found.
        reason: String,
    },
    /// Its readable data is in other files; `losses` parts could not be read.
    Salvaged {
        /// Its Data component.
        path: String,
        /// Number of losses; 0: the copies replace the file.
        losses: u64,
    },
    /// It was removed, as other files have replaced it.
    Released {
        /// Its Data component.
        path: String,
    },
    /// A component of an index is damaged. The rows of the file are whole; they are read without the index until the file
    /// is rewritten.
    Index {
        /// The error, which names the component and the offset.
        error: String,
    },
    /// A step failed, and will be retried. Repeated failures of copies with the same error are
    /// reported once.
    Failed {
        /// Its Data component.
        path: String,
        /// Why.
        error: String,
    },
}

pub(crate) fn mark_name(generation: Generation, shard: u16) -> String {
    format!("helenus-damaged-{}.{shard}", generation.0)
}

fn parse_mark_name(name: &str) -> Option<(Generation, u16)> {
    let (generation, shard) = name.strip_prefix("helenus-damaged-")?.split_once('.')?;
    Some((Generation(generation.parse().ok()?), shard.parse().ok()?))
}

impl Damage {
    pub(crate) fn encode(&self, shards: u16) -> Vec<u8> {
        let mut text = format!("shards {shards}\nfound {}\n", self.found);
        if let Some(at) = self.salvaged {
            text.push_str(&format!("salvaged {at}\n"));
        }
        text.push_str(&format!("reason {}\n", self.reason.replace(['\n', '\r'], " ")));
        marks::DAMAGED.encode(text.as_bytes())
    }

    /// The mark of these lines; `None` when they are of none. A copy that was made with another number of
    /// shards counts for nothing: another shard may have had a part in it.
    pub(crate) fn of_lines(body: &str, shards: u16) -> Option<Damage> {
        let mut lines = body.lines();
        let of: u16 = lines.next()?.strip_prefix("shards ")?.parse().ok()?;
        let found = lines.next()?.strip_prefix("found ")?.parse().ok()?;
        let mut damage = Damage { found, salvaged: None, reason: String::new() };
        for line in lines {
            if let Some(at) = line.strip_prefix("salvaged ") {
                damage.salvaged = at.parse().ok().filter(|_| of == shards);
            } else {
                damage.reason = line.strip_prefix("reason ")?.to_owned();
            }
        }
        Some(damage)
    }
}

pub(crate) fn path_of(file: &TableFile) -> String {
    file.reader.meta().file(Component::Data).to_string()
}

pub(crate) fn cut(mut reason: String) -> String {
    let mut length = reason.len().min(REASON_BYTES_MAX);
    while !reason.is_char_boundary(length) {
        length -= 1;
    }
    reason.truncate(length);
    reason
}

impl Files {
    /// Calls `hook` with changes in the state of damaged files.
    pub fn on_damage(&self, hook: impl Fn(DamageEvent) + 'static) {
        *self.on_damage.borrow_mut() = Some(Rc::new(hook));
    }

    pub(crate) fn tell_damage(&self, event: DamageEvent) {
        let hook = self.on_damage.borrow().clone();
        if let Some(hook) = hook {
            hook(event);
        }
    }

    /// Stops using a component of an index that a search found damaged, and reports it. The builder rewrites the file.
    pub(crate) fn note_damaged_index(
        &self,
        file: &TableFile,
        component: IndexComponent,
        error: &SstableError,
    ) {
        if file.reader.mark_index_damaged(component, error) {
            self.tell_damage(DamageEvent::Index { error: error.to_string() });
            self.slots.changed.notify_waiters();
        }
    }

    /// Reads the marks of a table that is opened, and removes those of files that no longer exist.
    /// Returns the damaged ones, each with its current treatment.
    pub(crate) async fn open_marks(&self, table: &TableState) -> Result<Vec<String>, StoreError> {
        let fs = self.env.rt.fs();
        let own = self.directories.directory_of(&table.version().table);
        let mut marks = Vec::new();
        for directory in self.directories.everywhere(&fs, &own).await? {
            let names = fs.read_dir(&directory).await?;
            marks.extend(names.into_iter().map(|entry| (directory.clone(), entry)));
        }
        let (shard, shards) = self.env.shard();
        let list = list_name(shard);
        let list = marks.iter().find(|(_, entry)| entry.name == list);
        let list = list.map(|(directory, entry)| format!("{directory}/{}", entry.name));
        let mut bad: Vec<String> = Vec::new();
        bad.extend(self.open_looked(table, list.as_deref()).await);
        let indexed = index_marks::list_name(shard);
        if let Some((directory, _)) = marks.iter().find(|(_, entry)| entry.name == indexed) {
            bad.extend(
                index_marks::open_indexed(self, table, &format!("{directory}/{indexed}")).await,
            );
        }
        bad.extend(index_marks::defects(table));
        let mut rewritten = Vec::new();
        for (directory, entry) in marks {
            let Some((generation, of)) = parse_mark_name(&entry.name) else { continue };
            let path = format!("{directory}/{}", entry.name);
            if table.file(generation).is_none() {
                if of % shards == shard {
                    remove_if_there(&fs, &path).await?;
                }
                continue;
            }
            let damage = match marks::read_lines(&fs, marks::DAMAGED, &path, MARK_BYTES_MAX).await {
                // Another shard was first to remove it.
                Ok(None) => continue,
                Ok(Some(body)) => Damage::of_lines(&body, shards).ok_or_else(marks::unknown_lines),
                Err(why) => Err(why),
            };
            let damage = damage.unwrap_or_else(|why| {
                let name = path.clone();
                bad.push(format!("{name} is rewritten, its file stays in quarantine: {why}"));
                rewritten.extend((of == shard).then_some((path, generation)));
                let found = self.env.rt.wall().seconds().0;
                Damage { found, salvaged: None, reason: "its mark cannot be read".to_owned() }
            });
            let mut damaged = table.damaged.borrow_mut();
            if of == shard {
                damaged.insert(generation, damage);
            } else {
                // Found by another shard, which had another part of it.
                damaged.entry(generation).or_insert(Damage { salvaged: None, ..damage });
            }
        }
        for (path, generation) in rewritten {
            self.write_mark_at(&path, table, generation).await?;
        }
        self.mark_unreadable(table).await?;
        Ok(bad)
    }

    /// Step 1 for files that could not be opened. Pre: the marks were read.
    async fn mark_unreadable(&self, table: &TableState) -> Result<(), StoreError> {
        let found = self.env.rt.wall().seconds().0;
        for file in &table.view().files {
            let Some(why) = file.reader.meta().unreadable() else { continue };
            if table.is_damaged(file.generation) {
                continue;
            }
            let damage = Damage { found, salvaged: None, reason: cut(why.to_owned()) };
            table.damaged.borrow_mut().insert(file.generation, damage);
            self.write_mark(table, file.generation).await?;
        }
        Ok(())
    }

    pub(crate) async fn write_mark(
        &self,
        table: &TableState,
        generation: Generation,
    ) -> Result<(), StoreError> {
        let path = self.mark_path(table, &mark_name(generation, self.env.shard().0)).await?;
        self.write_mark_at(&path, table, generation).await
    }

    async fn write_mark_at(
        &self,
        path: &str,
        table: &TableState,
        generation: Generation,
    ) -> Result<(), StoreError> {
        let Some(damage) = table.damaged.borrow().get(&generation).cloned() else { return Ok(()) };
        let shards = self.env.shard().1;
        Ok(self.env.rt.fs().write_atomic(path, damage.encode(shards)).await?)
    }

    /// The path of a mark of a table: where there is one of this name, else in the directory that this shard
    /// writes to, which may have been another one before a restart.
    pub(crate) async fn mark_path(
        &self,
        table: &TableState,
        name: &str,
    ) -> Result<String, StoreError> {
        let (fs, own) = (self.env.rt.fs(), self.directories.directory_of(&table.version().table));
        let directories = self.directories.everywhere(&fs, &own).await?;
        // One that is alone is not searched.
        for directory in directories.iter().filter(|_| directories.len() > 1) {
            let path = format!("{directory}/{name}");
            if fs.exists(&path).await? {
                return Ok(path);
            }
        }
        Ok(format!("{own}/{name}"))
    }

    /// Removes the mark of a damaged file that no longer exists.
    pub(crate) async fn forget_damage(
        &self,
        table: &TableState,
        file: &TableFile,
    ) -> Result<(), StoreError> {
        table.failed_copies.borrow_mut().remove(&file.generation);
        if table.damaged.borrow_mut().remove(&file.generation).is_none() {
            return Ok(());
        }
        self.tell_damage(DamageEvent::Released { path: path_of(file) });
        let (fs, own) = (self.env.rt.fs(), self.directories.directory_of(&table.version().table));
        for directory in self.directories.everywhere(&fs, &own).await? {
            let path = format!("{directory}/{}", mark_name(file.generation, self.env.shard().0));
            remove_if_there(&fs, &path).await?;
        }
        Ok(())
    }

    /// Records durably that a file is damaged, unless that is known.
    pub(crate) async fn quarantine(
        &self,
        table: &TableState,
        file: &TableFile,
        error: &StoreError,
    ) -> Result<(), StoreError> {
        let reason = cut(error.to_string());
        if table.is_damaged(file.generation) || table.file(file.generation).is_none() {
            return Ok(());
        }
        let found = self.env.rt.wall().seconds().0;
        let damage = Damage { found, salvaged: None, reason: reason.clone() };
        table.damaged.borrow_mut().insert(file.generation, damage);
        self.tell_damage(DamageEvent::Found { path: path_of(file), reason });
        self.env.suspects.changed.notify_one();
        self.write_mark(table, file.generation).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(bytes: &[u8], shards: u16) -> Option<Damage> {
        Damage::of_lines(&marks::body_of(marks::DAMAGED, bytes).ok()?, shards)
    }

    #[test]
    fn a_mark_is_read_back_and_a_copy_counts_for_the_same_shards_only() {
        let some = Damage { found: 5, salvaged: Some(7), reason: "a line\nand more".to_owned() };
        let bytes = some.encode(2);
        let read = decode(&bytes, 2).unwrap();
        assert_eq!(read, Damage { reason: "a line and more".to_owned(), ..some.clone() });
        assert_eq!(decode(&bytes, 3).unwrap().salvaged, None);
        let none = Damage { salvaged: None, ..read };
        assert_eq!(decode(&none.encode(2), 2).unwrap(), none);
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            assert_eq!(decode(&bad, 2), None, "{at}");
            assert_eq!(decode(&bytes[..at], 2), None, "{at}");
        }
        assert_eq!(parse_mark_name(&mark_name(Generation(8), 3)), Some((Generation(8), 3)));
        assert_eq!(cut("ä".repeat(REASON_BYTES_MAX)).len(), REASON_BYTES_MAX);
    }
}
