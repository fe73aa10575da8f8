//! Features: entries of the metadata log that members of an older build could not read.
//!
//! Every member announces its features in the log ([`Transformation::Describe`]). An entry that an older build
//! does not know is appended only after [`Transformation::Features`], which fits only when all members support the
//! features that it enables. From then on no node without them joins or starts again. So an upgrade may go node by
//! node, and until the last node is upgraded only the new statements are refused.
//!
//! A bit is assigned once and never reused. INV-cluster-4: an entry never needs a bit that is not in
//! [`SUPPORTED`].

use schema::{IndexMetadata, IndexRules, SchemaChange};

use crate::auth::AuthChange;
use crate::metalog::Transformation;
use crate::snapshot::ClusterSnapshot;

/// Roles, permissions and memberships of roles ([`Transformation::Auth`]).
pub const ROLES: u64 = 1;
/// Handover of lightweight transactions to other replicas ([`Transformation::HandOver`]).
pub const HANDOVER: u64 = 1 << 1;
/// Masks of columns, within the definition of a table.
pub const MASKS: u64 = 1 << 2;
/// User functions and aggregates.
pub const FUNCTIONS: u64 = 1 << 3;
/// Tables made WITH COMPACT STORAGE.
pub const COMPACT_TABLES: u64 = 1 << 4;
/// Masks of columns that are users' functions.
pub const MASKS_BY_FUNCTIONS: u64 = 1 << 5;
/// CIDR groups and the roles that are kept to some.
pub const CIDR_GROUPS: u64 = 1 << 6;
/// Secondary indexes, within the definition of a table.
pub const INDEXES: u64 = 1 << 7;
/// SASI indexes, within the definition of a table.
pub const SASI_INDEXES: u64 = 1 << 8;
/// Local indexes: an older build would show their targets as no statement has them.
pub const LOCAL_INDEXES: u64 = 1 << 9;

/// Features of this build.
pub const SUPPORTED: u64 = ROLES
    | HANDOVER
    | MASKS
    | FUNCTIONS
    | COMPACT_TABLES
    | MASKS_BY_FUNCTIONS
    | CIDR_GROUPS
    | INDEXES
    | SASI_INDEXES
    | LOCAL_INDEXES;

impl Transformation {
    /// Returns the features that a member needs to read this entry, one bit each.
    pub fn needs(&self) -> u64 {
        let needed = self.needed();
        stdx::invariant!(
            needed & !SUPPORTED == 0,
            "INV-cluster-4: an entry needs the features {needed:b}"
        );
        needed
    }

    fn needed(&self) -> u64 {
        match self {
            Transformation::Auth(
                AuthChange::SetCidrGroups { .. } | AuthChange::PutCidrGroup { .. },
            ) => ROLES | CIDR_GROUPS,
            Transformation::Auth(_) => ROLES,
            Transformation::HandOver(_) => HANDOVER,
            Transformation::Schema(change) => match &**change {
                SchemaChange::CreateTable(table) | SchemaChange::AlterTable(table) => {
                    let masks = if table.masks.is_empty() { 0 } else { MASKS };
                    let by_users = table.masks.values().any(|mask| mask.users.is_some());
                    let masks = masks | if by_users { MASKS_BY_FUNCTIONS } else { 0 };
                    let of_index = |index: &IndexMetadata| match index.rules {
                        IndexRules::Legacy if index.is_local() => INDEXES | LOCAL_INDEXES,
                        IndexRules::Legacy | IndexRules::Sai => INDEXES,
                        IndexRules::Sasi => INDEXES | SASI_INDEXES,
                    };
                    let indexes = table.indexes.iter().fold(0, |all, index| all | of_index(index));
                    masks | indexes | table.compact_form().map_or(0, |_| COMPACT_TABLES)
                }
                SchemaChange::PutFunction(_)
                | SchemaChange::DropFunction { .. }
                | SchemaChange::PutAggregate(_)
                | SchemaChange::DropAggregate { .. } => FUNCTIONS,
                _ => 0,
            },
            Transformation::Group(changes) => changes.iter().fold(0, |all, c| all | c.needs()),
            _ => 0,
        }
    }
}

impl ClusterSnapshot {
    /// `entries` with what enables the features that they need and that are not in use yet. Whether
    /// all members have them is known when the entries are applied.
    ///
    /// Groups are taken apart, since none may be within another one: what a node hands on to a voter
    /// has been through this already, and goes through it again there.
    pub fn with_features(&self, entries: Vec<Transformation>) -> Vec<Transformation> {
        let apart = |entry| match entry {
            Transformation::Group(changes) => changes,
            entry => vec![entry],
        };
        let mut entries: Vec<Transformation> = entries.into_iter().flat_map(apart).collect();
        let (mut needs, mut has) = (0, self.features);
        for entry in &entries {
            needs |= entry.needs();
            if let Transformation::Features { enable } = entry {
                has |= enable;
            }
        }
        let missing = needs & !has;
        if missing == 0 {
            return entries;
        }
        entries.insert(0, Transformation::Features { enable: missing });
        // A node that is alone may never have said what it can do.
        if let (1, Some(me)) = (self.members.len(), self.members.get(&self.local.host_id)) {
            let (host, shards, release) = (me.host_id, me.shards, me.release.clone());
            let features = SUPPORTED;
            entries.insert(0, Transformation::Describe { host, shards, features, release });
        }
        entries
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::testing::{founded, host, member};
    use crate::topology::MembershipError;
    use crate::{MetaLogError, Transformation as T};

    fn drop_role() -> Vec<T> {
        vec![T::Auth(AuthChange::DropRole { name: "r".to_owned() })]
    }

    fn describe(snapshot: &ClusterSnapshot, n: u128, features: u64) -> ClusterSnapshot {
        let release = "5".to_owned();
        snapshot.apply(&T::Describe { host: host(n), shards: 1, features, release }).unwrap()
    }

    #[test]
    fn tables_need_masks_indexes_and_compact_tables_only_where_they_have_them() {
        let mut table = crate::testing::table();
        let needs = |table: &schema::Table| {
            let create = schema::SchemaChange::CreateTable(table.clone());
            T::Group(vec![T::Schema(Box::new(create))]).needs()
        };
        assert_eq!(needs(&table), 0);
        let function = "mask_null".into();
        let mask = schema::ColumnMask { function, users: None, args: Vec::new() };
        table.masks.insert(stdx::ColumnId(1), mask.clone());
        assert_eq!(needs(&table), MASKS);
        let users = Some(types::CqlType::Int);
        table.masks.insert(stdx::ColumnId(1), schema::ColumnMask { users, ..mask.clone() });
        assert_eq!(needs(&table), MASKS | MASKS_BY_FUNCTIONS);
        table.masks.insert(stdx::ColumnId(1), mask);
        table.kind = schema::TableKind::Compact(schema::CompactForm::Dense);
        assert_eq!(needs(&table), MASKS | COMPACT_TABLES);
        table.masks.clear();
        assert_eq!(needs(&table), COMPACT_TABLES);
        table.kind = schema::TableKind::Regular;
        let index = schema::IndexMetadata {
            id: schema::index_id(table.id, "i", 2),
            name: "i".into(),
            kind: schema::IndexKind::Composites,
            options: [("target".to_owned(), "v".to_owned())].into(),
            target: schema::IndexTarget { column: "v".into(), part: schema::TargetPart::Simple },
            rules: schema::IndexRules::Legacy,
        };
        table.indexes = table.indexes_with(index.clone());
        assert_eq!(needs(&table), INDEXES);
        let options = [("target".to_owned(), r#"{"pk":["k"],"ck":["v"]}"#.to_owned())].into();
        table.indexes = table.indexes_with(schema::IndexMetadata { options, ..index.clone() });
        assert_eq!(needs(&table), INDEXES | LOCAL_INDEXES);
        let rules = schema::IndexRules::Sasi;
        table.indexes = table.indexes_with(schema::IndexMetadata { rules, ..index });
        assert_eq!(needs(&table), INDEXES | SASI_INDEXES);
    }

    #[test]
    fn cidr_groups_need_cidr_groups() {
        let (role, cidr_groups) = ("r".to_owned(), ["g".to_owned()].into());
        let set = T::Auth(AuthChange::SetCidrGroups { role, cidr_groups });
        assert_eq!(set.needs(), ROLES | CIDR_GROUPS);
        let (name, ranges) = ("g".to_owned(), ["10.0.0.0/8".parse().unwrap()].into());
        let put = T::Auth(AuthChange::PutCidrGroup { name, ranges });
        assert_eq!(put.needs(), ROLES | CIDR_GROUPS);
    }

    #[test]
    fn functions_need_functions() {
        let drop = schema::SchemaChange::DropFunction {
            keyspace: "ks".into(),
            name: "f".into(),
            args: Vec::new(),
        };
        assert_eq!(T::Group(vec![T::Schema(Box::new(drop))]).needs(), FUNCTIONS);
        assert_eq!(FUNCTIONS & (ROLES | HANDOVER | MASKS), 0);
    }

    #[test]
    fn entries_of_new_kinds_wait_for_the_last_member() {
        let alone = founded();
        let after = alone.apply(&T::Group(alone.with_features(drop_role()))).unwrap();
        assert_eq!(after.features, ROLES);

        let mut two = describe(&alone, 1, SUPPORTED);
        two.members.insert(host(2), Arc::new(member(2, "d", "r", &[5])));
        let refused = two.apply(&T::Group(two.with_features(drop_role())));
        let host = host(2);
        let missing = MembershipError::MissingFeatures { host, missing: ROLES };
        assert_eq!(refused.unwrap_err(), MetaLogError::Membership(missing));

        let two = describe(&two, 2, SUPPORTED);
        let entries = two.with_features(drop_role());
        assert_eq!(entries.len(), 2);
        let after = two.apply(&T::Group(entries)).unwrap();
        assert_eq!(after.features, ROLES);
        // A voter to which it was handed on does the same once more.
        let again = two.with_features(vec![T::Group(two.with_features(drop_role()))]);
        assert_eq!(again, two.with_features(drop_role()));
        // A node that does not support an enabled feature any more does not start, and nothing is
        // enabled twice.
        let release = "4".to_owned();
        let old = T::Describe { host, shards: 1, features: 0, release };
        assert!(after.apply(&old).is_err());
        assert_eq!(after.with_features(drop_role()), drop_role());
    }
}
