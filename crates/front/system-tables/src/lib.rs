//! The tables of a node that no client writes: virtual tables, and its own rows in stored tables.
//!
//! Owns: which virtual tables have rows and how they are made of reports ([`virtual_tables`]); the rows that a node
//! writes about itself and its cluster, and reading them back ([`stored`]). Never: definitions of tables
//! (`cql_plan::system`, below the planner that needs them), numbers (each part counts its own, `admin` reports them),
//! choosing what a SELECT asks for (`query`).
//!
//! It stands above `query` and `admin`, because rows are made of the reports of `admin` and read by statements.
//!
//! How a virtual table is added: `docs/dev/virtual-table.md`.

pub mod stored;
pub mod virtual_tables;

pub use virtual_tables::{LogRecord, NodeLog, NodeTables, Sources};
