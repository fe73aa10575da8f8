//! Counters and reports about a shard's data: samples of partitions, partitions, rows and cells that are large.
//!
//! Owns: thresholds and counts of large data, the scan of files that were written elsewhere. Never: changes data.
//! Imports: `files`, `tables`, `env`.

pub(crate) mod large_partitions;
pub(crate) mod sampling;

use std::rc::Rc;

use crate::env::Env;
use crate::files::Files;
use crate::observe::large_partitions::Large;
use crate::tables::registry::Tables;

/// Statistics and reports of one shard about its data.
pub struct Observer {
    pub(crate) env: Rc<Env>,
    pub(crate) tables: Rc<Tables>,
    pub(crate) files: Rc<Files>,
    /// State of the reports of large data.
    pub(crate) large: Large,
}

impl Observer {
    pub(crate) fn new(env: Rc<Env>, tables: Rc<Tables>, files: Rc<Files>) -> Observer {
        let large = Large::new(&env.rt.telemetry());
        Observer { env, tables, files, large }
    }
}
