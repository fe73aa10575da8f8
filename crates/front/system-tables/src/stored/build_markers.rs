//! Rows in which a Cassandra records that its views and indexes are built. They are deleted at each
//! start: this server has no views, and computes the list of its own built indexes when it is read. A Cassandra that
//! takes the directory back would treat a re-created view or index of the same name as built, although it lacks rows.

use cluster::ClusterSnapshot;
use coordinator::Coordinator;
use stdx::Token;
use store::StoreError;

use super::row_sync::{self, Moment, Rows};

const TABLES: [&str; 3] = ["built_views", "view_builds_in_progress", "IndexInfo"];

/// The mutations that delete them.
///
/// # Errors
/// The tables cannot be read.
pub(super) async fn all(
    coordinator: &Coordinator,
    snapshot: &ClusterSnapshot,
    moment: Moment,
) -> Result<Vec<(Token, Vec<u8>)>, StoreError> {
    let mut out = Vec::new();
    for name in TABLES {
        let Some(table) = snapshot.schema.table("system", name) else { continue };
        let mut old = row_sync::present(coordinator, table, moment.now).await?;
        // Keyed by keyspace. Cassandra has an index on a table of its own, which it maintains
        // itself.
        old.retain(|(keyspace, _)| keyspace.as_slice() != b"system");
        out.extend(row_sync::rewrite(table, old, Rows::new(), moment));
    }
    Ok(out)
}
