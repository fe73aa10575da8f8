//! Names in commands: which tables a selection means, and names of snapshots.

use schema::Schema;
use stdx::TableId;

use crate::request::{ActionError, Selection};

/// A tag becomes a directory: it must not lead anywhere else.
pub(crate) fn check_tag(tag: &str) -> Result<(), ActionError> {
    if tag.is_empty() || tag == "." || tag == ".." || tag.len() > 200 {
        return Err(ActionError::Argument("You must supply a snapshot name.".to_owned()));
    }
    if tag.contains('/') || tag.contains('\0') {
        return Err(ActionError::Argument("Snapshot name cannot contain /".to_owned()));
    }
    Ok(())
}

/// The tables of a selection, in Cassandra's words when there is none.
pub(crate) fn selected(
    schema: &Schema,
    selection: &Selection,
) -> Result<Vec<TableId>, ActionError> {
    if !selection.tables.is_empty() && selection.keyspaces.len() != 1 {
        let text = "When specifying the table for a snapshot, you must specify one and only one \
                    keyspace";
        return Err(ActionError::Argument(text.to_owned()));
    }
    let mut ids = Vec::new();
    let stored = |name: &str| schema.keyspace(name).filter(|k| !k.is_virtual);
    if selection.keyspaces.is_empty() {
        for keyspace in schema.keyspaces.values().filter(|k| !k.is_virtual) {
            ids.extend(keyspace.tables.values().map(|t| t.id));
        }
    }
    for name in &selection.keyspaces {
        let Some(keyspace) = stored(name) else {
            return Err(ActionError::UnknownKeyspace(format!("Keyspace {name} does not exist")));
        };
        if selection.tables.is_empty() {
            ids.extend(keyspace.tables.values().map(|t| t.id));
        }
        for table in &selection.tables {
            let Some(table) = keyspace.tables.get(table.as_str()) else {
                let text = format!("Unknown keyspace/cf pair ({name}.{table})");
                return Err(ActionError::UnknownTable(text));
            };
            ids.push(table.id);
        }
    }
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_a_plain_name() {
        assert_eq!(check_tag("before-upgrade"), Ok(()));
        for tag in ["", ".", "..", "a/b", "../x", "a\0b"] {
            assert!(check_tag(tag).is_err(), "{tag:?}");
        }
        assert!(check_tag(&"x".repeat(200)).is_ok());
        assert!(check_tag(&"x".repeat(201)).is_err());
    }
}
