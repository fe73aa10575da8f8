//! Names of the system keyspaces.

/// Keyspaces of each node, which no client changes.
pub(crate) const SYSTEM: &[&str] = &["system", "system_schema"];
/// Keyspaces of computed tables.
pub(crate) const VIRTUAL: &[&str] = &["system_views", "system_virtual_schema"];
/// Replicated keyspaces.
pub(crate) const REPLICATED_SYSTEM: &[&str] =
    &["system_auth", "system_distributed", "system_traces"];
