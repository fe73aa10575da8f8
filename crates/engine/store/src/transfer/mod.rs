//! Files and rows from elsewhere, and for elsewhere: import, ingest of rows, whole files.
//!
//! Owns: the order in which they become files of a table. Never: talks to another node. Imports: `write`, `observe`,
//! `files`, `tables`, `env`; of `compact` only the type of owned ranges.

pub(crate) mod file_streams;
pub(crate) mod import;
pub(crate) mod row_ingest;

use std::rc::Rc;

use crate::env::Env;
use crate::files::Files;
use crate::observe::Observer;
use crate::tables::registry::Tables;
use crate::write::Writer;

/// Receives and sends files on one shard.
pub struct Transfer {
    pub(crate) env: Rc<Env>,
    pub(crate) tables: Rc<Tables>,
    pub(crate) files: Rc<Files>,
    pub(crate) observer: Rc<Observer>,
    pub(crate) writer: Rc<Writer>,
}

impl Transfer {
    pub(crate) fn new(writer: Rc<Writer>) -> Transfer {
        Transfer {
            env: writer.env.clone(),
            tables: writer.tables.clone(),
            files: writer.files.clone(),
            observer: writer.observer.clone(),
            writer,
        }
    }
}
