//! Tables that are created and dropped with the schema.

use std::rc::Rc;
use std::sync::Arc;

use rt::Group;
use schema::{Schema, TableKind};
use stdx::TableId;

use crate::error::StoreError;
use crate::files::table_files::OpenedSets;
use crate::store::Store;
use crate::tables::table::{TableState, TableView};

impl Store {
    pub(super) async fn open_tables(&self, schema: &Schema) -> Result<OpenedSets, StoreError> {
        self.rooms.files.directories.make_data_directories().await?;
        let mut done = OpenedSets::default();
        for id in table_ids(schema) {
            let Some(table) = schema.table_by_id(id) else { continue };
            let (files, highest) = self.rooms.files.open_files(table, &mut done).await?;
            let state = Rc::new(TableState::new(table.clone()));
            state.generation.set(highest);
            state.has_directory.set(true);
            state.is_opened.set(true);
            state.set_view(TableView { files, ..TableView::empty() });
            done.bad_marks.extend(self.rooms.files.open_marks(&state).await?);
            self.rooms.tables.insert(state);
        }
        Ok(done)
    }

    /// Takes a new schema over: new tables appear empty, changed ones get their new shape, dropped
    /// ones are closed and their files removed in the background (after a snapshot, if wanted).
    pub fn set_schema(&self, schema: Arc<Schema>) {
        let mut added = Vec::new();
        for id in table_ids(&schema) {
            let Some(table) = schema.table_by_id(id) else { continue };
            match self.rooms.tables.table(id) {
                Some(state) => state.set_table(table),
                None => {
                    let state = Rc::new(TableState::new(table.clone()));
                    self.rooms.tables.insert(state.clone());
                    added.push(state);
                }
            }
        }
        for state in self.rooms.tables.all_tables() {
            if schema.table_by_id(state.id).is_none() {
                self.rooms.tables.remove(state.id);
                self.rooms.lifecycle.drop_table(state.clone());
                self.rooms.observer.tell_large_events_of(&state);
            }
        }
        if added.is_empty() {
            return;
        }
        // The directories are created in the background; an earlier flush creates its own.
        let store = self.clone();
        let task = async move {
            for state in added {
                let made = store.rooms.files.make_directory(&state).await;
                store.rooms.files.note_write_result(&made);
                if let Err(error) = made {
                    store.rooms.files.note_failure(&error);
                }
            }
        };
        let _ =
            self.rooms.env.gate.spawn(&self.rooms.env.rt, Group::Admin, "make-directories", task);
    }
}

/// Stored tables, in order of id.
fn table_ids(schema: &Schema) -> Vec<TableId> {
    let stored = schema.tables_by_id.iter().filter(|(_, t)| t.kind != TableKind::Virtual);
    let mut ids: Vec<TableId> = stored.map(|(id, _)| *id).collect();
    ids.sort_unstable();
    ids
}
