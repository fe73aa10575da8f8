//! Names that completion suggests. Never: their positions in statements, or their source
//! (`name_queries`).

/// Names of the schema.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    /// The keyspace in use.
    pub(crate) current: Option<String>,
    pub(crate) keyspaces: Vec<String>,
    /// Keyspace and name.
    pub(crate) tables: Vec<(String, String)>,
    pub(crate) types: Vec<(String, String)>,
    pub(crate) functions: Vec<(String, String)>,
    pub(crate) aggregates: Vec<(String, String)>,
    pub(crate) data_centers: Vec<String>,
    /// Keyspace, table and name.
    pub(crate) columns: Vec<(String, String, String)>,
}
