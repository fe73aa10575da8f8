//! Directories of a table's files: one data directory, or several.
//!
//! A shard writes the files of a table into one data directory, so that whatever becomes visible or vanishes
//! together (outputs and the record that names their inputs, the files of an ingest) is in one. With as many
//! directories as shards or fewer a shard has one for all of its tables; with more it has several, and each
//! table has one of them.
//!
//! INV-directories-1: a file may be in any of them (the number of shards or the list was another when it was
//! written, or it came from Cassandra), and no two have the same generation: a record names inputs by
//! generation alone.

use std::cell::RefCell;
use std::rc::Rc;

use rt::Fs;
use schema::Table;
use stdx::{IoErrorKind, TableId};

use crate::env::Env;
use crate::error::StoreError;

/// Index of the directory to which a shard writes the files of a table.
fn place(shard: u16, shards: u16, directories: usize, table: TableId) -> usize {
    let (shard, shards) = (usize::from(shard), usize::from(shards.max(1)));
    if directories <= shards {
        return shard % directories.max(1);
    }
    // The shard's own: `shard`, `shard + shards`, and so on.
    let own = (directories - shard).div_ceil(shards).max(1);
    let hash = codec::xxh3_64(&table.0.as_u128().to_be_bytes());
    shard + usize::try_from(hash % own as u64).unwrap_or(0) * shards
}

/// Returns true if a keyspace holds data that only this node has and must not lose: promises of
/// Paxos, the batch log.
pub(crate) fn is_local(keyspace: &str) -> bool {
    matches!(keyspace, "system" | "system_schema")
}

/// The data directories of this shard.
pub(crate) struct Directories {
    env: Rc<Env>,
    /// Those that are out of service.
    pub(crate) gone: RefCell<Vec<String>>,
}

impl Directories {
    pub(crate) fn new(env: Rc<Env>) -> Directories {
        Directories { env, gone: RefCell::default() }
    }

    /// Returns true if some data directory is out of service.
    pub(crate) fn misses_directories(&self) -> bool {
        !self.gone.borrow().is_empty()
    }

    /// Those that are in service.
    pub(crate) fn data_directories(&self) -> Vec<&String> {
        let gone = self.gone.borrow();
        self.env.options.data_directories.iter().filter(|data| !gone.contains(data)).collect()
    }

    /// Keyspace and table as parts of a path.
    fn below(table: &Table) -> String {
        format!("{}/{}", table.keyspace, table.directory_name())
    }

    /// Returns the directory of this shard's files of a table. Those of local keyspaces are
    /// together, in the first directory, so that a node can run without the others.
    pub(crate) fn directory_of(&self, table: &Table) -> String {
        let directories = self.data_directories();
        let at = match self.env.options.best_effort && is_local(&table.keyspace) {
            true => 0,
            false => {
                let (shard, shards) = self.env.shard();
                place(shard, shards, directories.len(), table.id)
            }
        };
        let data = directories.get(at).map_or("", |data| data.as_str());
        format!("{data}/{}", Directories::below(table))
    }

    /// Directory in which all shards coordinate about a table: the first data directory by name, in
    /// whatever order they are.
    pub(crate) fn meeting_directory_of(&self, table: &Table) -> String {
        let data = self.data_directories().into_iter().min().map_or("", String::as_str);
        format!("{data}/{}", Directories::below(table))
    }

    /// All directories of a table, existing or not.
    pub(crate) fn directories_of(&self, table: &Table) -> Vec<String> {
        let below = Directories::below(table);
        self.data_directories().iter().map(|data| format!("{data}/{below}")).collect()
    }

    /// The same, only existing ones. A single directory is not checked.
    pub(crate) async fn everywhere(
        &self,
        fs: &Fs,
        directory: &str,
    ) -> Result<Vec<String>, StoreError> {
        let directories = self.data_directories();
        let below = |data: &&String| directory.strip_prefix(data.as_str())?.strip_prefix('/');
        let Some(below) = directories.iter().find_map(below).filter(|_| directories.len() > 1)
        else {
            return Ok(vec![directory.to_owned()]);
        };
        let mut found = Vec::new();
        for data in directories {
            let place = format!("{data}/{below}");
            if fs.exists(&place).await? {
                found.push(place);
            }
        }
        Ok(found)
    }

    /// Bytes that are free where this shard writes; of several directories the fewest.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) async fn free_bytes(&self) -> Result<u64, StoreError> {
        let (fs, directories) = (self.env.rt.fs(), self.data_directories());
        let (shard, shards) = self.env.shard();
        let mut least = u64::MAX;
        for (n, directory) in directories.iter().enumerate() {
            let is_own = match directories.len() <= usize::from(shards) {
                true => n == usize::from(shard) % directories.len().max(1),
                false => n % usize::from(shards) == usize::from(shard),
            };
            if is_own {
                least = least.min(fs.free_bytes(directory).await?);
            }
        }
        Ok(least)
    }

    /// Makes the data directories, durably.
    pub(crate) async fn make_data_directories(&self) -> Result<(), StoreError> {
        for directory in self.data_directories() {
            self.env.rt.fs().create_dir_durably(directory).await?;
        }
        Ok(())
    }

    /// Directories below the data directories, by keyspace and table: data directory, path, name of the
    /// keyspace, name of the table's directory.
    pub(crate) async fn found_directories(&self) -> Result<Vec<FoundDirectory>, StoreError> {
        let fs = self.env.rt.fs();
        let mut found = Vec::new();
        for data in self.data_directories() {
            for keyspace in entries(&fs, data).await?.into_iter().filter(|e| e.is_dir) {
                let path = format!("{data}/{}", keyspace.name);
                for table in entries(&fs, &path).await?.into_iter().filter(|e| e.is_dir) {
                    found.push(FoundDirectory {
                        keyspace: keyspace.name.clone(),
                        path: format!("{path}/{}", table.name),
                        name: table.name,
                    });
                }
            }
        }
        Ok(found)
    }
}

/// A directory where a table may have files.
pub(crate) struct FoundDirectory {
    pub(crate) keyspace: String,
    /// Name of the directory itself.
    pub(crate) name: String,
    pub(crate) path: String,
}

pub(crate) async fn entries(fs: &Fs, path: &str) -> Result<Vec<rt::DirEntry>, StoreError> {
    match fs.read_dir(path).await {
        Ok(entries) => Ok(entries),
        Err(error) if error.kind == IoErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use stdx::Uuid;

    use super::*;

    #[test]
    fn every_directory_is_written_to_and_only_one_by_a_shard_for_a_table() {
        for (shards, directories) in
            [(1, 1), (2, 2), (4, 2), (5, 3), (1, 4), (2, 5), (3, 3), (2, 3)]
        {
            let mut used = BTreeSet::new();
            for table in 0..40 {
                for shard in 0..shards {
                    let table = TableId(Uuid::from_u128(table));
                    let at = place(shard, shards, directories, table);
                    assert_eq!(at % directories.min(usize::from(shards)), {
                        usize::from(shard) % directories.min(usize::from(shards))
                    });
                    used.insert(at);
                }
            }
            assert_eq!(used, (0..directories).collect(), "{shards} shards");
        }
    }
}
