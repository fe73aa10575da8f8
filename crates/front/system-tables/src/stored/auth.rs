//! Rows of the tables of `system_auth`, so that a Cassandra that is given the directory has the roles,
//! passwords and permissions of this node, and none that were dropped. Never read back while the
//! metadata log decides; clients see rows made of the metadata.

use cluster::{Auth, ClusterSnapshot};
use coordinator::Coordinator;
use cql_plan::auth;
use schema::{Schema, Table};
use stdx::Token;
use store::StoreError;

use super::row_sync::{self, Moment, Rows};

/// Returns the mutations that turn the rows into those of the snapshot, whatever another run or a
/// Cassandra left.
///
/// # Errors
/// The tables cannot be read.
pub(super) async fn all(
    coordinator: &Coordinator,
    snapshot: &ClusterSnapshot,
    moment: Moment,
) -> Result<Vec<(Token, Vec<u8>)>, StoreError> {
    let mut out = Vec::new();
    for table in tables(&snapshot.schema) {
        let old = row_sync::present(coordinator, table, moment.now).await?;
        let rows = rows(&snapshot.auth, table, moment);
        out.extend(row_sync::rewrite(table, old, rows, moment));
    }
    Ok(out)
}

/// The mutations that turn the rows of one epoch into those of another: only what differs.
pub(super) fn difference(
    before: &ClusterSnapshot,
    after: &ClusterSnapshot,
    moment: Moment,
) -> Vec<(Token, Vec<u8>)> {
    if before.auth.changed_at == after.auth.changed_at {
        return Vec::new();
    }
    let mut out = Vec::new();
    for table in tables(&after.schema) {
        // Both at the same time, so that equal rows are equal bytes.
        let (was, mut is) = (rows(&before.auth, table, moment), rows(&after.auth, table, moment));
        let gone = was.keys().filter(|key| !is.contains_key(*key)).cloned().collect();
        is.retain(|key, row| was.get(key) != Some(row));
        out.extend(row_sync::rewrite(table, gone, is, moment));
    }
    out
}

fn tables(schema: &Schema) -> impl Iterator<Item = &Table> {
    let keyspace = schema.keyspaces.get("system_auth");
    let tables = keyspace.into_iter().flat_map(|keyspace| keyspace.tables.values());
    tables.map(AsRef::as_ref).filter(|table| auth::is_computed(table))
}

fn rows(of: &Auth, table: &Table, moment: Moment) -> Rows {
    match auth::rows_at(of, table, moment.at) {
        Ok(rows) => row_sync::by_key(rows),
        Err(error) => stdx::invariant::broken(format_args!("system_auth: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::{AuthChange, Permission, PermissionSet, Role, Transformation as T};
    use data::MutationRef;
    use stdx::{DeletionSeconds, TimestampMicros};

    const MOMENT: Moment = Moment { at: TimestampMicros(1000), now: DeletionSeconds(1) };

    fn role(hash: &str) -> Role {
        Role { is_superuser: false, can_login: true, salted_hash: hash.to_owned() }
    }

    fn after(snapshot: &ClusterSnapshot, entries: &[T]) -> ClusterSnapshot {
        entries.iter().fold(snapshot.clone(), |snapshot, entry| {
            let with = snapshot.with_features(vec![entry.clone()]);
            snapshot.apply(&T::Group(with)).unwrap()
        })
    }

    /// Table, key and whether there is a row or only a deletion, of what a change writes.
    fn written(before: &ClusterSnapshot, now: &ClusterSnapshot) -> Vec<(String, String, bool)> {
        let mut out = Vec::new();
        for (_, bytes) in difference(before, now, MOMENT) {
            let mutation = MutationRef::open(&bytes).unwrap();
            let table = now.schema.table_by_id(mutation.table).unwrap();
            let is_deleted = mutation.deletion != data::DeletionTime::LIVE
                || mutation.range_tombstones().next().is_some();
            assert!(is_deleted, "what was there before must go");
            let key = String::from_utf8_lossy(mutation.key).into_owned();
            out.push((table.name.to_string(), key, mutation.rows().next().is_some()));
        }
        out
    }

    #[test]
    fn a_change_of_roles_writes_rows_and_a_dropped_role_leaves_tombstones() {
        let base = cql_plan::system::system_schema();
        let local = cluster::LocalNode {
            host_id: stdx::HostId(stdx::Uuid::from_u128(1)),
            cluster_name: "c".to_owned(),
            datacenter: "d".to_owned(),
            rack: "r".to_owned(),
            tokens: vec![Token(1)],
            created_at: stdx::WallMicros(1),
        };
        let founded = cluster::metalog::bootstrap(&T::Bootstrap(local), &base).unwrap();
        let put = |name: &str| T::PutRole { name: name.to_owned(), role: role("h") };
        let (ann, readers) = ("ann".to_owned(), "readers".to_owned());
        let resource = "data/ks".to_owned();
        let permissions = PermissionSet::of(&[Permission::Select]);
        let granted = after(
            &founded,
            &[
                put("ann"),
                put("readers"),
                T::Auth(AuthChange::GrantRole { role: readers.clone(), grantee: ann.clone() }),
                T::Auth(AuthChange::Grant { role: readers, resource, permissions }),
            ],
        );
        let row = |table: &str, key: &str, is_row| (table.to_owned(), key.to_owned(), is_row);
        assert_eq!(
            written(&founded, &granted),
            [
                row("resource_role_permissons_index", "data/ks", true),
                row("role_members", "readers", true),
                row("role_permissions", "readers", true),
                row("roles", "ann", true),
                row("roles", "readers", true),
            ]
        );
        let dropped = after(&granted, &[T::Auth(AuthChange::DropRole { name: "readers".into() })]);
        assert_eq!(
            written(&granted, &dropped),
            [
                row("resource_role_permissons_index", "data/ks", false),
                row("role_members", "readers", false),
                row("role_permissions", "readers", false),
                row("roles", "ann", true),
                row("roles", "readers", false),
            ]
        );
        assert_eq!(written(&dropped, &dropped), []);
        let password = T::PutRole { name: ann, role: role("other") };
        let changed = after(&dropped, &[password]);
        assert_eq!(written(&dropped, &changed), [row("roles", "ann", true)]);
    }
}
