//! Files of another program's indexes in the directories of tables. They know nothing of the rows that this node
//! writes, so a Cassandra that opens the directory must not find them.
//!
//! Owns: which files those are, and their removal. Never: which indexes Cassandra treats as built; that is in
//! `system."IndexInfo"`.
//!
//! Cassandra keeps a legacy index as a hidden table in `<table directory>/.<index>/`. It adds rows to that table when it
//! rebuilds the index, but old deletions in it would hide entries of rows that a backup or an import brought back,
//! and after a DROP INDEX and CREATE INDEX under the same name they belong to another column. Components of SAI have the
//! name of their index and nothing of its definition: `nb-1-big-SAI+aa+<index>+….db`;
//! so have those of SASI.

use conf::Options;
use rt::Fs;
use schema::Table;
use sstable::{Component, Descriptor};
use stdx::IoErrorKind;

use super::{TakeoverError, list};

/// Begin the names of components that are part of indexes: storage-attached ones, SASI.
const SAI: &str = "SAI+";
const SASI: &str = "SI_";

/// Files of another program's indexes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct StaleIndexFiles {
    /// Hidden directories of tables, each with its files in the order of their removal.
    directories: Vec<(String, Vec<String>)>,
    /// Directories of tables with their components of indexes, in the order of their removal.
    components: Vec<(String, Vec<String>)>,
}

impl StaleIndexFiles {
    /// Those of these tables, in all data directories.
    ///
    /// # Errors
    /// `Io`.
    pub async fn find<'t>(
        fs: &Fs,
        options: &Options,
        tables: impl Iterator<Item = &'t Table>,
    ) -> Result<StaleIndexFiles, TakeoverError> {
        let data = options.data_directories();
        let mut found = StaleIndexFiles::default();
        for table in tables {
            for data in &data {
                let data = data.trim_end_matches('/');
                let directory = format!("{data}/{}/{}", table.keyspace, table.directory_name());
                found.add(fs, directory).await?;
            }
        }
        Ok(found)
    }

    async fn add(&mut self, fs: &Fs, directory: String) -> Result<(), TakeoverError> {
        let mut components = Vec::new();
        for entry in list(fs, &directory).await? {
            if entry.is_dir && is_hidden_table(&entry.name) {
                let hidden = format!("{directory}/{}", entry.name);
                let entries = list(fs, &hidden).await?;
                let files = entries.into_iter().filter(|e| !e.is_dir).map(|e| e.name);
                let files = in_order(files.filter(|name| Descriptor::parse_any(name).is_some()));
                if !files.is_empty() {
                    self.directories.push((hidden, files));
                }
            } else if !entry.is_dir && is_component(&entry.name) {
                components.push(entry.name);
            }
        }
        if !components.is_empty() {
            self.components.push((directory, in_order(components.into_iter())));
        }
        Ok(())
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.directories.is_empty() && self.components.is_empty()
    }

    /// Number of files.
    pub fn count(&self) -> usize {
        self.directories.iter().chain(&self.components).map(|(_, files)| files.len()).sum()
    }

    /// Removes them, durably. What a crash leaves is found again, and a Cassandra removes it as orphaned.
    ///
    /// # Errors
    /// `Io`.
    pub async fn remove(&self, fs: &Fs) -> Result<(), TakeoverError> {
        for (directory, files) in self.directories.iter().chain(&self.components) {
            for name in files {
                match fs.remove_file(&format!("{directory}/{name}")).await {
                    Err(error) if error.kind != IoErrorKind::NotFound => return Err(error.into()),
                    _ => {}
                }
            }
            fs.sync_dir(directory).await?;
        }
        for (directory, _) in &self.directories {
            if list(fs, directory).await?.is_empty() {
                fs.remove_dir_all(directory).await?;
            }
        }
        Ok(())
    }
}

/// Returns true if it is the name of a directory of a legacy index. Names of indexes are words.
fn is_hidden_table(name: &str) -> bool {
    name.strip_prefix('.').is_some_and(|index| {
        !index.is_empty() && index.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    })
}

fn is_component(name: &str) -> bool {
    Descriptor::parse_any(name).is_some_and(|(_, component)| {
        component.starts_with(SAI) || component.starts_with(SASI) && component.ends_with(".db")
    })
}

/// First the files without which Cassandra ignores the others: Data.db of a set, the markers of complete components.
fn in_order(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut names: Vec<String> = names.collect();
    let is_first = |name: &str| {
        let component = Descriptor::parse_any(name).map_or("", |(_, component)| component);
        Component::from_file_name(component) == Some(Component::Data)
            || component.starts_with(SAI) && component.ends_with("Complete.db")
    };
    names.sort_by_key(|name| !is_first(name));
    names
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::Pin;
    use std::sync::Arc;

    use rt::{Machine, NativeOptions, NodeSpec, Rt};
    use stdx::{TableId, Uuid};

    use super::*;

    #[test]
    fn files_of_indexes_are_removed_and_all_others_stay() {
        let work = tempfile::tempdir().unwrap();
        let table = {
            let schema = cql_plan::system::system_schema();
            let mut table = Table::clone(schema.table("system", "local").unwrap());
            (table.keyspace, table.name) = ("ks".into(), "t".into());
            table.id = TableId(Uuid::from_u128(7));
            table
        };
        let below = format!("data/ks/{}", table.directory_name());
        let stale = [
            ".by_v/nb-1-big-Index.db",
            ".by_v/nb-1-big-Data.db",
            ".by_v/nb-1-big-TOC.txt",
            ".other/da-3g1a_0vqh_3v2f42dktvwwlw5g5e-bti-Data.db",
            "nb-1-big-SAI+aa+by_m+TermsData.db",
            "nb-1-big-SAI+aa+by_m+ColumnComplete.db",
            "nb-1-big-SAI+aa+GroupComplete.db",
            "nb-1-big-SI_by_x.db",
            "nb-9-big-SAI+aa+by_m+TermsData.db",
        ];
        let kept = [
            ".other/notes.txt",
            ".snapshot/x/nb-1-big-Data.db",
            ".two words/nb-1-big-Data.db",
            "backups/.by_v/nb-1-big-Data.db",
            "nb-1-big-Data.db",
            "nb-1-big-Index+7.db",
            "nb-1-big-TOC.txt",
            "SAI+aa+by_m.db",
            "snapshots/tag/nb-1-big-SAI+aa+GroupComplete.db",
            "../u-00000000000000000000000000000008/.by_v/nb-1-big-Data.db",
        ];
        #[expect(
            clippy::disallowed_methods,
            reason = "the test prepares a directory with plain calls"
        )]
        for name in stale.iter().chain(&kept) {
            let path = work.path().join(&below).join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, b"x").unwrap();
        }
        let work_dir = work.path().to_str().unwrap().to_owned();
        let options = Options { workdir: work_dir.clone(), ..Options::default() };
        let (sender, receiver) = std::sync::mpsc::channel();
        let main: rt::Main = Arc::new(move |rt: Rt| {
            let (options, sender, table) = (options.clone(), sender.clone(), table.clone());
            Box::pin(async move {
                let fs = rt.fs();
                let find = || StaleIndexFiles::find(&fs, &options, std::iter::once(&table));
                let found = find().await.unwrap();
                found.remove(&fs).await.unwrap();
                sender.send((found, find().await.unwrap())).unwrap();
                rt.request_stop();
            }) as Pin<Box<dyn Future<Output = ()>>>
        });
        let machine = Machine::native(NativeOptions::default());
        machine
            .start(NodeSpec { name: "index-files".into(), shards: 1, work_dir }, main)
            .join()
            .unwrap();
        let (found, after) = receiver.recv().unwrap();
        assert_eq!(found.count(), stale.len(), "{found:?}");
        let first = |files: &[(String, Vec<String>)]| files[0].1[0].clone();
        assert_eq!(first(&found.directories), "nb-1-big-Data.db");
        let sai = &found.components[0].1;
        assert!(sai.iter().take(2).all(|name| name.ends_with("Complete.db")), "{sai:?}");
        assert!(after.is_empty(), "{after:?}");
        let exists = |name: &str| work.path().join(&below).join(name).exists();
        for name in stale {
            assert!(!exists(name), "{name}");
        }
        for name in kept {
            assert!(exists(name), "{name}");
        }
        assert!(!exists(".by_v"));
    }
}
