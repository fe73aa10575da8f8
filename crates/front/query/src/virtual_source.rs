//! Source of rows of virtual tables that need other parts of the node.

use schema::Table;
use std::future::Future;
use std::pin::Pin;

pub use cql_plan::virtual_row::VirtualRow;

/// A future of virtual rows.
pub type VirtualRows<'a> = Pin<Box<dyn Future<Output = Vec<VirtualRow>> + 'a>>;

/// Computes rows of virtual tables: settings, caches, tasks and other state of the node.
pub trait VirtualSource {
    /// All rows of a virtual table of this node, in any order; none for tables it does not know.
    fn rows<'a>(&'a self, table: &'a Table) -> VirtualRows<'a>;

    /// Truncates a virtual table; returns true if that is supported.
    fn truncate(&self, _table: &Table) -> bool {
        false
    }
}

/// A source that knows no table.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoVirtualSource;

impl VirtualSource for NoVirtualSource {
    fn rows<'a>(&'a self, _table: &'a Table) -> VirtualRows<'a> {
        Box::pin(std::future::ready(Vec::new()))
    }
}
