//! SSTables on the disk of a table that appears in the schema while the store runs: its definition came
//! late (from a peer, after the metadata log lost its tail), or the table was created again under its
//! old id. They are in use before the first read is answered or the first file is written.
//!
//! INV-found-1: no generation is given before those of the files in the directory are known, so that
//! no write takes the name of one of them.
//! INV-found-2: files of a table that is being dropped are not taken into use.

use std::rc::Rc;

use rt::Fs;
use sstable::{SetState, list_sstables};
use stdx::{Generation, IoErrorKind, TableId};

use crate::env::failure::StoreFailure;
use crate::error::StoreError;
use crate::files::Files;
use crate::files::table_files::OpenedSets;
use crate::tables::table::{TableState, TableView};
use crate::tables::table_file::map_error;

impl Files {
    /// Opens the files of a table that was not in the schema at the start. Does nothing the second time.
    ///
    /// # Errors
    /// What is wrong with a file: it is tried again at the next read or write. `Io`.
    pub(crate) async fn open_found(&self, table: &TableState) -> Result<(), StoreError> {
        if table.is_opened.get() {
            return Ok(());
        }
        let _one = table.opening.acquire(1).await;
        if table.is_opened.get() || table.dropped.get() {
            return Ok(());
        }
        let version = table.version();
        let own = self.directories.directory_of(&version.table);
        let mut highest = Generation(0);
        let (mut has_sets, mut is_marked) = (false, false);
        for directory in self.directories.everywhere(&self.env.rt.fs(), &own).await? {
            let fs = self.env.rt.fs();
            let sets = match list_sstables(&fs, &directory).await.map_err(map_error) {
                Err(StoreError::Io(error)) if error.kind == IoErrorKind::NotFound => continue,
                sets => sets?,
            };
            for (set, state) in sets {
                has_sets |= state != SetState::Unfinished;
                if set.generation.0 & sstable::Descriptor::UUID_GENERATION == 0 {
                    highest = highest.max(set.generation);
                }
            }
            is_marked |= is_marked_dropped(&fs, &directory).await?;
        }
        table.generation.set(table.generation.get().max(highest));
        let is_dropping = self.tables.dropping.borrow().contains(&table.id);
        if has_sets && !is_marked && !is_dropping {
            self.open_found_files(table).await?;
        }
        table.is_opened.set(true);
        Ok(())
    }

    async fn open_found_files(&self, table: &TableState) -> Result<(), StoreError> {
        let version = table.version();
        let mut done = OpenedSets::default();
        let (files, highest) = self.open_files(&version.table, &mut done).await?;
        if table.dropped.get() {
            return Ok(());
        }
        table.generation.set(table.generation.get().max(highest));
        let count = files.len();
        let view = table.view();
        let mut all = view.files.clone();
        all.extend(files);
        table.set_view(TableView::new(view.active.clone(), view.flushing.clone(), all));
        for what in self.open_marks(table).await? {
            self.env.tell_failure(StoreFailure::Mark(what));
        }
        let below = format!("/{}/{}", version.table.keyspace, version.table.directory_name());
        self.tables.strangers.borrow_mut().retain(|path| !path.ends_with(&below));
        if count > 0 {
            self.env.tell_failure(StoreFailure::Found(format!(
                "{}.{}: {count} SSTables",
                version.table.keyspace, version.table.name
            )));
        }
        self.env.work.notify_one();
        Ok(())
    }

    /// The table of a request, with its files.
    ///
    /// # Errors
    /// `UnknownTable`; those of [`Files::open_found`].
    pub(crate) async fn opened_table(&self, id: TableId) -> Result<Rc<TableState>, StoreError> {
        let Some(table) = self.tables.table(id) else { return Err(StoreError::UnknownTable(id)) };
        if !table.is_opened.get() {
            Box::pin(self.open_found(&table)).await?;
        }
        Ok(table)
    }
}

/// Returns true if a directory has the mark of a drop.
pub(crate) async fn is_marked_dropped(fs: &Fs, directory: &str) -> Result<bool, StoreError> {
    Ok(fs.exists(&format!("{directory}/{DROPPED}")).await?)
}

/// In the directory of a dropped table: the name of its snapshot and a line feed.
pub(crate) const DROPPED: &str = "helenus-dropped";

impl Files {
    /// Creates a table's directory, durably, unless that was done before, and opens its files.
    pub(crate) async fn make_directory(&self, table: &TableState) -> Result<(), StoreError> {
        self.open_found(table).await?;
        if table.has_directory.get() || table.dropped.get() {
            return Ok(());
        }
        let directory = self.directories.directory_of(&table.version().table);
        self.env.rt.fs().create_dir_durably(&directory).await?;
        table.has_directory.set(true);
        Ok(())
    }
}
