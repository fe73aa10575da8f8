//! The write side: flush, replay of the commit log, background triggers, refusal of writes for lack of space.
//!
//! Owns: how a mutation gets from the commit log and the memtable into an SSTable. Never: rewrites SSTables.

pub(crate) mod dropped_columns;
pub(crate) mod flush;
pub(crate) mod unflushable;
pub(crate) mod verbatim_copy;
