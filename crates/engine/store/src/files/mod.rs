//! The SSTables of a shard: which exist, where, in which state.
//!
//! Owns: file sets and their transactions, data directories, marks of damaged files, which files are being rewritten
//! (`slots`) or linked (`links`), the cache of their chunks. Never: merges rows. Imports: `tables`, `env`.

pub(crate) mod chunk_cache;
pub(crate) mod damage_marks;
pub(crate) mod directories;
pub(crate) mod failed_directories;
pub(crate) mod held_files;
pub(crate) mod index_marks;
pub(crate) mod late_tables;
pub(crate) mod links;
pub(crate) mod marks;
pub(crate) mod scan_list;
pub(crate) mod slots;
pub(crate) mod table_files;

use std::cell::RefCell;
use std::rc::Rc;

use crate::env::Env;
use crate::env::failure::Hook;
use crate::files::chunk_cache::ChunkCache;
use crate::files::damage_marks::DamageEvent;
use crate::files::directories::Directories;
use crate::files::links::Links;
use crate::files::slots::Slots;
use crate::tables::registry::Tables;

/// The SSTables of one shard.
pub struct Files {
    pub(crate) env: Rc<Env>,
    pub(crate) tables: Rc<Tables>,
    pub(crate) directories: Rc<Directories>,
    pub(crate) slots: Rc<Slots>,
    pub(crate) links: Links,
    /// Uncompressed chunks of files.
    pub(crate) cache: ChunkCache,
    /// Called for each damaged file.
    on_damage: Hook<DamageEvent>,
}

impl Files {
    pub(crate) fn new(env: Rc<Env>, tables: Rc<Tables>, cache: ChunkCache) -> Files {
        let directories = Rc::new(Directories::new(env.clone()));
        Files {
            slots: Rc::new(Slots::new(env.clone(), directories.clone())),
            links: Links::new(env.clone()),
            directories,
            cache,
            on_damage: RefCell::default(),
            env,
            tables,
        }
    }

    /// Which files are being rewritten, and how many compactions may run.
    pub fn slots(&self) -> &Rc<Slots> {
        &self.slots
    }

    /// Links of files: whether new ones are linked into `backups`.
    pub fn links(&self) -> &Links {
        &self.links
    }

    /// Releases the callbacks, which hold the store.
    pub(crate) fn release_hooks(&self) {
        drop(self.on_damage.take());
    }
}
