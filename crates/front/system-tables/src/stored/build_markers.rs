//! Rows in which a Cassandra notes that its views and indexes are built. They are deleted at each start:
//! there are no views and indexes here, and a Cassandra that gets the directory back and has such rows
//! takes what is made again under the same name for built, without the rows that it lacks.

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
        // Keyed by keyspace. Cassandra has an index on a table of its own, which it keeps up itself.
        old.retain(|(keyspace, _)| keyspace.as_slice() != b"system");
        out.extend(row_sync::rewrite(table, old, Rows::new(), moment));
    }
    Ok(out)
}
