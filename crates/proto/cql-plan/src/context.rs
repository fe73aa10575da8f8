//! Input of planning beside the statement: [`PlanContext`].

use std::sync::Arc;

use cql_syntax::ast::QualifiedName;
use schema::{Schema, Table};
use stdx::{DeletionSeconds, WallMicros};

use crate::error::PlanError;
use crate::functions::user::UserFunctions;
use crate::functions::{CallSite, FunctionScope};
use crate::tables::keyspace_of;

/// Limits that plans enforce, from the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanLimits {
    /// A batch of more bytes is warned about (`batch_size_warn_threshold`, 5 KiB).
    pub batch_bytes_warn: usize,
    /// A batch of more bytes is refused (`batch_size_fail_threshold`, 50 KiB).
    pub batch_bytes_fail: usize,
    /// An unlogged batch over more partitions is warned about
    /// (`unlogged_batch_across_partitions_warn_threshold`, 10).
    pub unlogged_batch_partitions_warn: usize,
    /// Last second at which a write may expire: the limit of this node's files and of the others'.
    /// 2038-01-19T03:14:06Z unless set.
    pub expiry_max: DeletionSeconds,
    /// A statement that writes more bytes is refused before its mutations are built
    /// (`max_mutation_size`, 16 MiB).
    pub mutation_bytes_max: usize,
}

impl Default for PlanLimits {
    fn default() -> Self {
        PlanLimits {
            batch_bytes_warn: 5 * 1024,
            batch_bytes_fail: 50 * 1024,
            unlogged_batch_partitions_warn: 10,
            expiry_max: DeletionSeconds::MAX_SIGNED,
            mutation_bytes_max: 16 << 20,
        }
    }
}

/// Input of planning beside the statement.
#[derive(Clone, Copy)]
pub struct PlanContext<'a> {
    /// The schema names are resolved in.
    pub schema: &'a Arc<Schema>,
    /// The keyspace in use, for unqualified names.
    pub keyspace: Option<&'a str>,
    /// Limits of the configuration.
    pub limits: &'a PlanLimits,
    /// Value of the timestamp literal `'now'`; as in Cassandra, it is fixed at PREPARE.
    pub now: WallMicros,
    /// Users' functions; `None`: they are switched off.
    pub functions: Option<&'a UserFunctions>,
}

impl<'a> PlanContext<'a> {
    /// Returns the scope of the lookup of users' functions.
    pub(crate) fn function_scope(&self) -> FunctionScope<'a> {
        FunctionScope { schema: self.schema, functions: self.functions }
    }

    /// Returns the context of a call about a table, if any.
    pub(crate) fn call_site<'b>(&self, keyspace: &'b str, table: Option<&'b Table>) -> CallSite<'b>
    where
        'a: 'b,
    {
        CallSite { scope: self.function_scope(), keyspace, table }
    }

    /// The table a name means.
    ///
    /// # Errors
    /// No keyspace given nor in use; keyspace or table unknown.
    pub fn table(&self, name: &QualifiedName) -> Result<&'a Arc<Table>, PlanError> {
        let keyspace = keyspace_of(name, self.keyspace)?;
        let Some(found) = self.schema.keyspace(&keyspace) else {
            return Err(PlanError::invalid(format!("keyspace {keyspace} does not exist")));
        };
        found
            .tables
            .get(name.name.text.as_str())
            .ok_or_else(|| PlanError::invalid(format!("table {} does not exist", name.name.text)))
    }
}
