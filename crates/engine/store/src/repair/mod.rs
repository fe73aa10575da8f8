//! Repair state of files: sessions of incremental repair, and marks that an administrator sets.
//!
//! Owns: anticompaction, the data sent to a session, the marks in Statistics. Never: compares replicas.
//! Imports:
//! `compact`, `write`, `observe`, `files`, `tables`, `env`.

pub(crate) mod repair_state;
pub(crate) mod repaired_set;

use std::rc::Rc;

use crate::compact::Compactor;
use crate::env::Env;
use crate::files::Files;
use crate::observe::Observer;
use crate::tables::registry::Tables;
use crate::write::Writer;

/// Repair state of the files of one shard.
pub struct Repair {
    pub(crate) env: Rc<Env>,
    pub(crate) tables: Rc<Tables>,
    pub(crate) files: Rc<Files>,
    pub(crate) observer: Rc<Observer>,
    pub(crate) writer: Rc<Writer>,
    pub(crate) compactor: Rc<Compactor>,
}

impl Repair {
    pub(crate) fn new(compactor: Rc<Compactor>) -> Repair {
        Repair {
            env: compactor.env.clone(),
            tables: compactor.tables.clone(),
            files: compactor.files.clone(),
            observer: compactor.observer.clone(),
            writer: compactor.writer.clone(),
            compactor,
        }
    }
}
