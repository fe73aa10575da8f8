//! Operations on tables as a whole: snapshots, TRUNCATE, DROP.
//!
//! Owns: the orders of these, their records in the commit log and their marks on the disk. Never: rewrites SSTables.
//! Imports: `write`, `files`, `tables`, `env`.

pub(crate) mod snapshot;
pub(crate) mod truncate;
pub(crate) mod truncation_records;

use std::rc::Rc;

use crate::env::Env;
use crate::files::Files;
use crate::tables::registry::Tables;
use crate::write::Writer;

/// Snapshots, truncations and drops of one shard.
pub struct Lifecycle {
    pub(crate) env: Rc<Env>,
    pub(crate) tables: Rc<Tables>,
    pub(crate) files: Rc<Files>,
    pub(crate) writer: Rc<Writer>,
}

impl Lifecycle {
    pub(crate) fn new(writer: Rc<Writer>) -> Lifecycle {
        Lifecycle {
            env: writer.env.clone(),
            tables: writer.tables.clone(),
            files: writer.files.clone(),
            writer,
        }
    }
}
