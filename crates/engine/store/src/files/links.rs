//! Hard links of SSTables: no file of a view is removed while they are being linked, and their
//! pace.
//!
//! INV-snapshot-1: a file that leaves the view is removed from its directory only while no task links files:
//! a compaction that ends meanwhile would remove its inputs, and its outputs are no part of this moment.

use std::cell::Cell;
use std::rc::Rc;

use rt::Fs;
use rt::sync::Notify;
use sstable::{Component, SstableMeta};
use stdx::IoErrorKind;

use crate::env::Env;
use crate::env::failure::StoreFailure;
use crate::error::StoreError;
use crate::tables::table::TableState;
use crate::tables::table_file::TableFile;

/// Tasks that link files of this shard, and the switch for links into `backups`.
pub struct Links {
    env: Rc<Env>,
    /// How many are linking files into snapshots.
    linking: Cell<u32>,
    /// One of them has done it.
    linked: Notify,
    /// Flushed files are linked into `backups`.
    backups: Cell<bool>,
}

impl Links {
    pub(crate) fn new(env: Rc<Env>) -> Links {
        let backups = Cell::new(env.options.incremental_backups);
        Links { env, linking: Cell::default(), linked: Notify::new(), backups }
    }

    /// Waits until no file is being linked, before files outside of all views are removed.
    pub(crate) async fn wait_for_links(&self) {
        loop {
            let linked = self.linked.notified();
            if self.linking.get() == 0 {
                return;
            }
            linked.await;
        }
    }

    /// Returns true if new files are linked into `backups`, for tables that do not opt out.
    pub fn incremental_backups(&self) -> bool {
        self.backups.get()
    }

    /// Links files that are written from now on into `backups`, or does not, until the store stops.
    pub fn set_incremental_backups(&self, enabled: bool) {
        self.backups.set(enabled);
    }

    /// Links a new file into the table's `backups`, where that is wanted. A backup that fails costs
    /// the backup only: the file is complete and in use.
    pub(crate) async fn back_up(&self, table: &TableState, file: &TableFile) {
        let version = table.version();
        let wanted = self.backups.get() && version.table.options.incremental_backups;
        if !wanted {
            return;
        }
        let directory = file.reader.meta().directory();
        let target = format!("{directory}/backups");
        if let Err(error) = self.link_into(&target, file).await {
            let name = file.reader.meta().descriptor().prefix();
            let what = format!("{target} lacks {name}: {error}");
            self.env.tell_failure(StoreFailure::Backup(what));
        }
    }

    async fn link_into(&self, target: &str, file: &TableFile) -> Result<(), StoreError> {
        let fs = self.env.rt.fs();
        fs.create_dir_durably(target).await?;
        let meta = file.reader.meta();
        for component in meta.components() {
            link_component(&fs, meta, *component, target).await?;
        }
        Ok(fs.sync_dir(target).await?)
    }

    /// Waits until the next link may be created or removed. A store that stops waits for none.
    pub(crate) async fn await_link(&self, alone: bool) {
        let env = &*self.env;
        if env.stopping.get() {
            return;
        }
        if let Some(at) = env.live.links.permit(env.rt.now(), alone) {
            env.rt.sleep_until(at).await;
        }
    }
}

/// Files of a view are being linked: none is removed until this is dropped.
pub(crate) struct Linking<'s>(&'s Links);

impl<'s> Linking<'s> {
    pub(crate) fn new(links: &'s Links) -> Linking<'s> {
        links.linking.set(links.linking.get() + 1);
        Linking(links)
    }
}

impl Drop for Linking<'_> {
    fn drop(&mut self) {
        let inner = self.0;
        inner.linking.set(inner.linking.get().saturating_sub(1));
        inner.linked.notify_waiters();
    }
}

/// Links one component of a file set. Attached ones that are missing are skipped: lost ones of an
/// open file set are rebuilt, and those of other programs are not ours.
pub(crate) async fn link_component(
    fs: &Fs,
    meta: &SstableMeta,
    component: Component,
    target: &str,
) -> Result<(), StoreError> {
    let to = format!("{target}/{}", meta.descriptor().file_name(component));
    match link(fs, &meta.file(component), &to).await {
        Err(StoreError::Io(error))
            if component.is_attached() && error.kind == IoErrorKind::NotFound =>
        {
            Ok(())
        }
        linked => linked,
    }
}

pub(crate) async fn link(fs: &Fs, from: &str, to: &str) -> Result<(), StoreError> {
    match fs.hard_link(from, to).await {
        // An attempt before this one got that far.
        Err(error) if error.kind == IoErrorKind::AlreadyExists => Ok(()),
        other => Ok(other?),
    }
}
