//! The tables of `system_auth`: rows computed from the metadata, as tools for Cassandra read them.

use cluster::{Auth, Permission};
use schema::Table;
use stdx::TimestampMicros;

pub use crate::tables::is_computed;
use crate::virtual_row::{VirtualRow, VirtualRowBuilder, VirtualRowError};

/// All rows of a table of `system_auth`; empty for tables that are not used here.
///
/// # Errors
/// A table with other columns.
pub fn rows(auth: &Auth, table: &Table) -> Result<Vec<VirtualRow>, VirtualRowError> {
    rows_at(auth, table, TimestampMicros(0))
}

/// Like [`rows()`], written at a timestamp, for the table of a directory that is given to a
/// Cassandra.
///
/// # Errors
/// A table with other columns.
pub fn rows_at(
    auth: &Auth,
    table: &Table,
    at: TimestampMicros,
) -> Result<Vec<VirtualRow>, VirtualRowError> {
    match &*table.name {
        "roles" => auth.roles.keys().map(|role| role_row(auth, role, table, at)).collect(),
        "role_members" => auth
            .member_of
            .iter()
            .flat_map(|(member, granted)| granted.iter().map(move |role| (role, member)))
            .map(|(role, member)| texts(table, at, ["role", "member"], [role, member]))
            .collect(),
        "role_permissions" => {
            let of_role = auth.permissions.iter();
            of_role
                .flat_map(|(role, on)| on.iter().map(move |(resource, set)| (role, resource, set)))
                .map(|(role, resource, set)| {
                    let names = set.iter().map(Permission::name);
                    let mut row = VirtualRowBuilder::at(table, at);
                    row.text("role", role).text("resource", resource);
                    row.text_set("permissions", names).finish()
                })
                .collect()
        }
        "resource_role_permissons_index" => auth
            .permissions
            .iter()
            .flat_map(|(role, on)| on.keys().map(move |resource| (resource, role)))
            .map(|(resource, role)| texts(table, at, ["resource", "role"], [resource, role]))
            .collect(),
        "network_permissions" => auth
            .datacenters
            .iter()
            .map(|(role, datacenters)| {
                let mut row = VirtualRowBuilder::at(table, at);
                // Cassandra puts the name of the resource here.
                row.text("role", &format!("roles/{role}"));
                row.text_set("dcs", datacenters.iter().map(String::as_str)).finish()
            })
            .collect(),
        "cidr_groups" => auth
            .cidr_groups
            .iter()
            .map(|(name, ranges)| {
                let mut row = VirtualRowBuilder::at(table, at);
                let ranges = ranges.iter().map(|r| (r.addr(), i16::from(r.prefix_len())));
                row.text("cidr_group", name).range_set("cidrs", ranges).finish()
            })
            .collect(),
        "cidr_permissions" => auth
            .cidr_permissions
            .iter()
            .map(|(role, groups)| {
                let mut row = VirtualRowBuilder::at(table, at);
                let groups = groups.iter().map(String::as_str);
                row.text("role", role).text_set("cidr_groups", groups).finish()
            })
            .collect(),
        "identity_to_role" => auth
            .identities
            .iter()
            .map(|(identity, role)| texts(table, at, ["identity", "role"], [identity, role]))
            .collect(),
        _ => Ok(Vec::new()),
    }
}

fn role_row(
    auth: &Auth,
    name: &str,
    table: &Table,
    at: TimestampMicros,
) -> Result<VirtualRow, VirtualRowError> {
    let mut row = VirtualRowBuilder::at(table, at);
    row.text("role", name);
    if let Some(role) = auth.roles.get(name) {
        row.boolean("can_login", role.can_login).boolean("is_superuser", role.is_superuser);
        if !role.salted_hash.is_empty() {
            row.text("salted_hash", &role.salted_hash);
        }
    }
    if let Some(granted) = auth.member_of.get(name) {
        row.text_set("member_of", granted.iter().map(String::as_str));
    }
    row.finish()
}

/// A row of two texts.
fn texts(
    table: &Table,
    at: TimestampMicros,
    columns: [&str; 2],
    values: [&str; 2],
) -> Result<VirtualRow, VirtualRowError> {
    let mut row = VirtualRowBuilder::at(table, at);
    for (column, value) in columns.iter().zip(values) {
        row.text(column, value);
    }
    row.finish()
}
