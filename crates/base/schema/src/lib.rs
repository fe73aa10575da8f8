//! Immutable schema metadata: definitions only, without any storage locations.
//!
//! Owns: [`Schema`], [`Keyspace`], [`Table`], [`Column`], their options, functions, schema changes
//! (`change`), DESCRIBE text (`describe`). Never: IO, clocks;
//! a schema value is never edited in place, a change makes a new one.
//!
//! Invariants: INV-schema-1: a column id is unique in its table for ever, dropped columns included; a column added
//! again under its name may get its id back.
//! INV-schema-2: `Table::columns` is ordered: partition key by position, clustering by position,
//! statics by name, regulars by name, in Cassandra's order of names ([`column_order`]).
//! INV-schema-4: `Table::masks` has entries of columns of the table only, each a masking function
//! whose result has the column's type. A table without masks is encoded as before there were any, and
//! so is a keyspace without functions, and one of whose tables none is compact. INV-schema-5: functions and aggregates of a keyspace are ordered
//! by name and types, and no two of a kind have the same name and types.
//! INV-schema-6: names of indexes are unique in their keyspace; `Table::indexes` is ordered by name and has indexes of
//! columns of the table only. A table without indexes is encoded as before there were any.

pub mod change;
pub mod column;
pub mod column_order;
mod digest;
pub mod encode;
pub mod functions;
pub mod index;
pub mod model;
pub mod table_encryption;
mod table_indexes;
#[cfg(test)]
mod tests;
pub mod tombstone_gc;

pub use change::{LOCAL_KEYSPACES, SchemaChange, SchemaError};
pub use column::{Column, ColumnKind};
pub use functions::{UserAggregate, UserFunction};
pub use index::{
    INDEX_CLASS, INDEX_TARGET, IndexKind, IndexMetadata, IndexRules, IndexTarget, TargetPart,
    index_id,
};
pub use model::{
    ColumnMask, CompactForm, DroppedColumn, Keyspace, KeyspaceParams, Schema, Table, TableKind,
    TableOptions,
};
pub use table_encryption::{TABLE_ENCRYPTION, TABLE_ENCRYPTION_ALIAS, TableEncryption, TableKeys};
pub use tombstone_gc::{TOMBSTONE_GC, TombstoneGc, TombstoneGcMode};
