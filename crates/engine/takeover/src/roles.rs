//! Roles, memberships and permissions of `system_auth` as entries of the metadata log.

use std::collections::BTreeSet;

use cluster::{AuthChange, Permission, PermissionSet, Role, Transformation};

use super::TakeoverError;
use super::rows::Row;

/// The rows of the tables that are read.
#[derive(Default)]
pub(super) struct AuthRows {
    roles: Vec<Row>,
    permissions: Vec<Row>,
    datacenters: Vec<Row>,
    cidr_groups: Vec<Row>,
    cidr_permissions: Vec<Row>,
    identities: Vec<Row>,
}

impl AuthRows {
    /// Each table by its name.
    pub(super) fn tables_mut(&mut self) -> [(&'static str, &mut Vec<Row>); 6] {
        [
            ("roles", &mut self.roles),
            ("role_permissions", &mut self.permissions),
            ("network_permissions", &mut self.datacenters),
            ("cidr_groups", &mut self.cidr_groups),
            ("cidr_permissions", &mut self.cidr_permissions),
            ("identity_to_role", &mut self.identities),
        ]
    }

    /// All roles, then the entries that refer to them: an entry for a missing role has no effect.
    ///
    /// # Errors
    /// `Row`.
    pub(super) fn entries(&self) -> Result<Vec<Transformation>, TakeoverError> {
        let mut entries = Vec::new();
        for row in &self.roles {
            let role = Role {
                is_superuser: row.boolean("is_superuser")?.unwrap_or(false),
                can_login: row.boolean("can_login")?.unwrap_or(false),
                salted_hash: row.text("salted_hash")?.unwrap_or_default(),
            };
            entries.push(Transformation::PutRole { name: row.required_text("role")?, role });
        }
        let mut changes = Vec::new();
        for row in &self.roles {
            // `role_members` has the same the other way round.
            for role in texts(row, "member_of")? {
                let grantee = row.required_text("role")?;
                changes.push(AuthChange::GrantRole { role, grantee });
            }
        }
        for row in &self.permissions {
            changes.push(AuthChange::Grant {
                role: row.required_text("role")?,
                resource: row.required_text("resource")?,
                permissions: permissions(row)?,
            });
        }
        for row in &self.datacenters {
            let resource = row.required_text("role")?;
            let role = resource.strip_prefix("roles/").unwrap_or(&resource).to_owned();
            let datacenters = row.text_list("dcs")?.into_iter().collect::<BTreeSet<_>>();
            changes.push(AuthChange::SetDatacenters { role, datacenters });
        }
        for row in &self.cidr_groups {
            let name = row.required_text("cidr_group")?;
            let ranges = row.ranges("cidrs")?.into_iter().collect();
            changes.push(AuthChange::PutCidrGroup { name, ranges });
        }
        for row in &self.cidr_permissions {
            let role = row.required_text("role")?;
            let cidr_groups = row.text_list("cidr_groups")?.into_iter().collect::<BTreeSet<_>>();
            // Cassandra keeps an empty row for each role that was made.
            if !cidr_groups.is_empty() {
                changes.push(AuthChange::SetCidrGroups { role, cidr_groups });
            }
        }
        for row in &self.identities {
            let (identity, role) = (row.required_text("identity")?, row.required_text("role")?);
            changes.push(AuthChange::AddIdentity { identity, role });
        }
        entries.extend(changes.into_iter().map(Transformation::Auth));
        Ok(entries)
    }
}

/// The elements of a set of several cells.
fn texts(row: &Row, column: &str) -> Result<Vec<String>, TakeoverError> {
    let text = |path: &[u8]| String::from_utf8(path.to_vec());
    let texts = row.paths(column).map(text).collect::<Result<_, _>>();
    texts.map_err(|_| row.wrong(column, "not UTF-8"))
}

fn permissions(row: &Row) -> Result<PermissionSet, TakeoverError> {
    let mut permissions = Vec::new();
    for name in texts(row, "permissions")? {
        let unknown = || row.wrong("permissions", "a permission that does not exist");
        permissions.push(Permission::from_name(&name).ok_or_else(unknown)?);
    }
    Ok(PermissionSet::of(&permissions))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(table: &str, values: &[(&str, &str)]) -> Row {
        let base = cql_plan::system::system_schema();
        let values: Vec<(&str, Vec<u8>)> =
            values.iter().map(|(name, value)| (*name, value.as_bytes().to_vec())).collect();
        Row::for_test(base.table("system_auth", table).unwrap(), &values)
    }

    fn permission_row(permissions: &[&str]) -> Row {
        let key = [("role", "readers"), ("resource", "data/ks/t")];
        row("role_permissions", &key).with_paths("permissions", permissions)
    }

    #[test]
    fn roles_come_before_what_speaks_of_them() {
        let member = [("role", "ann"), ("can_login", "\x01"), ("salted_hash", "hash")];
        let rows = AuthRows {
            roles: vec![
                row("roles", &member).with_paths("member_of", &["readers"]),
                row("roles", &[("role", "readers"), ("is_superuser", "\x01")]),
            ],
            permissions: vec![permission_row(&["SELECT", "MODIFY"])],
            datacenters: vec![row(
                "network_permissions",
                &[("role", "roles/ann"), ("dcs", "\0\0\0\x01\0\0\0\x03dc1")],
            )],
            cidr_groups: vec![row(
                "cidr_groups",
                &[
                    ("cidr_group", "office"),
                    ("cidrs", "\0\0\0\x01\0\0\0\x0e\0\0\0\x04\x0a\x01\0\0\0\0\0\x02\0\x10"),
                ],
            )],
            cidr_permissions: vec![
                row(
                    "cidr_permissions",
                    &[("role", "ann"), ("cidr_groups", "\0\0\0\x01\0\0\0\x06office")],
                ),
                row("cidr_permissions", &[("role", "readers"), ("cidr_groups", "\0\0\0\0")]),
            ],
            identities: vec![row("identity_to_role", &[("identity", "i"), ("role", "ann")])],
        };
        let put = |name: &str, is_superuser, can_login, salted_hash: &str| {
            let role = Role { is_superuser, can_login, salted_hash: salted_hash.to_owned() };
            Transformation::PutRole { name: name.to_owned(), role }
        };
        let (ann, readers) = ("ann".to_owned(), "readers".to_owned());
        let changes = [
            AuthChange::GrantRole { role: readers.clone(), grantee: ann.clone() },
            AuthChange::Grant {
                role: readers,
                resource: "data/ks/t".to_owned(),
                permissions: PermissionSet::of(&[Permission::Select, Permission::Modify]),
            },
            AuthChange::SetDatacenters {
                role: ann.clone(),
                datacenters: ["dc1".to_owned()].into(),
            },
            AuthChange::PutCidrGroup {
                name: "office".to_owned(),
                ranges: ["10.1.0.0/16".parse().unwrap()].into(),
            },
            AuthChange::SetCidrGroups {
                role: ann.clone(),
                cidr_groups: ["office".to_owned()].into(),
            },
            AuthChange::AddIdentity { identity: "i".to_owned(), role: ann },
        ];
        let mut expected = vec![put("ann", false, true, "hash"), put("readers", true, false, "")];
        expected.extend(changes.map(Transformation::Auth));
        assert_eq!(rows.entries().unwrap(), expected);
        let unknown =
            AuthRows { permissions: vec![permission_row(&["FLY"])], ..AuthRows::default() };
        assert!(unknown.entries().unwrap_err().to_string().contains("that does not exist"));
        let prefix = [
            ("cidr_group", "g"),
            ("cidrs", "\0\0\0\x01\0\0\0\x0e\0\0\0\x04\x0a\x01\0\0\0\0\0\x02\0\x21"),
        ];
        let cidr_groups = vec![row("cidr_groups", &prefix)];
        let wrong = AuthRows { cidr_groups, ..AuthRows::default() };
        assert!(wrong.entries().unwrap_err().to_string().contains("no range of addresses"));
    }
}
