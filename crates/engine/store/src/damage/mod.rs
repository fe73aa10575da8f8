//! Damaged files: found by verification, on request or in the background, copied as far as they can be read, released
//! once a repair covered them.
//!
//! Owns: the background verification and the order of a quarantine. Never: decides about the node. Imports:
//! `transfer`, `compact`, `observe`, `files`, `tables`, `env`.

pub(crate) mod background_verify;
pub(crate) mod quarantine;
pub(crate) mod verify;

use std::rc::Rc;

use crate::compact::Compactor;
use crate::env::Env;
use crate::files::Files;
use crate::repair::Repair;
use crate::tables::registry::Tables;

/// Verification and damaged files of one shard.
pub struct Verifier {
    pub(crate) env: Rc<Env>,
    pub(crate) tables: Rc<Tables>,
    pub(crate) files: Rc<Files>,
    pub(crate) compactor: Rc<Compactor>,
    pub(crate) repair: Rc<Repair>,
}

impl Verifier {
    pub(crate) fn new(repair: Rc<Repair>) -> Verifier {
        Verifier {
            env: repair.env.clone(),
            tables: repair.tables.clone(),
            files: repair.files.clone(),
            compactor: repair.compactor.clone(),
            repair,
        }
    }
}
