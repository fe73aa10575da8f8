use super::*;
use crate::testing::founded;
use crate::{ClusterSnapshot, Transformation};
use schema::KeyspaceParams;

fn role(is_superuser: bool) -> Role {
    Role { is_superuser, can_login: true, salted_hash: String::new() }
}

fn put(name: &str) -> Transformation {
    Transformation::PutRole { name: name.to_owned(), role: role(false) }
}

fn grant(role: &str, resource: &str, permissions: &[Permission]) -> Transformation {
    Transformation::Auth(AuthChange::Grant {
        role: role.to_owned(),
        resource: resource.to_owned(),
        permissions: PermissionSet::of(permissions),
    })
}

fn grant_role(role: &str, grantee: &str) -> Transformation {
    let (role, grantee) = (role.to_owned(), grantee.to_owned());
    Transformation::Auth(AuthChange::GrantRole { role, grantee })
}

fn after(entries: &[Transformation]) -> ClusterSnapshot {
    let apply = |snapshot: ClusterSnapshot, entry: &Transformation| {
        let mut payload = Vec::new();
        entry.encode(&mut payload);
        assert_eq!(Transformation::decode(&payload).as_ref(), Ok(entry));
        snapshot.apply(entry).unwrap()
    };
    entries.iter().fold(founded(), apply)
}

#[test]
fn every_change_comes_back_from_its_bytes_and_no_other_bytes_are_one() {
    let (role, name) = ("r".to_owned(), "n".to_owned());
    let permissions = PermissionSet::of(&Permission::ALL);
    let changes = [
        AuthChange::DropRole { name: name.clone() },
        AuthChange::Grant { role: role.clone(), resource: "data".to_owned(), permissions },
        AuthChange::Revoke { role: role.clone(), resource: "data".to_owned(), permissions },
        AuthChange::GrantRole { role: role.clone(), grantee: name.clone() },
        AuthChange::RevokeRole { role: role.clone(), revokee: name.clone() },
        AuthChange::SetDatacenters { role: role.clone(), datacenters: ["a".to_owned()].into() },
        AuthChange::AddIdentity { identity: name.clone(), role },
        AuthChange::DropIdentity { identity: name.clone() },
        AuthChange::SetCidrGroups { role: name.clone(), cidr_groups: ["g".to_owned()].into() },
        AuthChange::PutCidrGroup { name: name.clone(), ranges: ranges() },
        AuthChange::PutCidrGroup { name, ranges: BTreeSet::new() },
    ];
    for change in changes {
        let entry = Transformation::Auth(change);
        let mut payload = Vec::new();
        entry.encode(&mut payload);
        assert_eq!(Transformation::decode(&payload), Ok(entry));
        payload.push(0);
        assert!(Transformation::decode(&payload).is_err());
    }
    let unknown_permission = [17, 1, 1, b'r', 1, b'd', 0x04, 0];
    assert!(Transformation::decode(&unknown_permission).is_err());
    let highest_permission = [17, 1, 1, b'r', 1, b'd', 0x02, 0];
    assert!(Transformation::decode(&highest_permission).is_ok());
    assert!(Transformation::decode(&[17, 10, 1, b'r']).is_err());
}

fn ranges() -> BTreeSet<IpNet> {
    ["10.0.0.0/8", "2001:db8::/32"].map(|text| cidr::parse(text).unwrap()).into()
}

/// INV-auth-1.
#[test]
fn a_dropped_role_leaves_nothing_behind() {
    let before = [
        put("a"),
        put("b"),
        grant_role("a", "b"),
        grant_role("b", "a"),
        grant("a", "data", &[Permission::Select]),
        grant("b", "roles/a", &[Permission::Alter]),
        grant("b", "roles/ab", &[Permission::Alter]),
        Transformation::Auth(AuthChange::AddIdentity {
            identity: "spiffe://a".to_owned(),
            role: "a".to_owned(),
        }),
        Transformation::Auth(AuthChange::SetDatacenters {
            role: "a".to_owned(),
            datacenters: ["dc1".to_owned()].into(),
        }),
        Transformation::Auth(AuthChange::SetCidrGroups {
            role: "a".to_owned(),
            cidr_groups: ["g".to_owned()].into(),
        }),
        Transformation::Auth(AuthChange::DropRole { name: "a".to_owned() }),
    ];
    let kept = [put("b"), grant("b", "roles/ab", &[Permission::Alter])];
    let (dropped, never) = (after(&before), after(&kept));
    let at = never.auth.changed_at;
    assert_eq!(Auth { changed_at: at, ..Auth::clone(&dropped.auth) }, *never.auth);
    assert_eq!(dropped.auth.changed_at, dropped.epoch);
}

#[test]
fn cidr_groups_come_and_go_without_the_roles_that_are_kept_to_them() {
    let put = |name: &str, ranges| {
        Transformation::Auth(AuthChange::PutCidrGroup { name: name.to_owned(), ranges })
    };
    let set = |names: &[&str]| {
        let cidr_groups = names.iter().map(|name| (*name).to_owned()).collect();
        Transformation::Auth(AuthChange::SetCidrGroups { role: "a".to_owned(), cidr_groups })
    };
    let role = self::put("a");
    let made = after(&[role.clone(), put("g", ranges()), set(&["g", "h"])]);
    assert_eq!(made.auth.cidr_groups["g"], ranges());
    assert_eq!(made.auth.cidr_permissions["a"], ["g".to_owned(), "h".to_owned()].into());
    let dropped = made.apply(&put("g", BTreeSet::new())).unwrap();
    assert!(dropped.auth.cidr_groups.is_empty());
    assert_eq!(dropped.auth.cidr_permissions, made.auth.cidr_permissions);
    assert_eq!(dropped.auth.changed_at, dropped.epoch);
    let free = dropped.apply(&set(&[])).unwrap();
    let at = free.auth.changed_at;
    assert_eq!(Auth { changed_at: at, ..Auth::clone(&after(&[role]).auth) }, *free.auth);
}

#[test]
fn what_speaks_of_an_unknown_role_does_nothing() {
    let changes = [
        grant("nobody", "data", &[Permission::Select]),
        grant_role("nobody", "a"),
        grant_role("a", "nobody"),
        Transformation::Auth(AuthChange::AddIdentity {
            identity: "x".to_owned(),
            role: "nobody".to_owned(),
        }),
    ];
    let before = after(&[put("a")]);
    for change in changes {
        let next = before.apply(&change).unwrap();
        let at = before.auth.changed_at;
        assert_eq!(Auth { changed_at: at, ..Auth::clone(&next.auth) }, *before.auth);
    }
}

/// INV-auth-2.
#[test]
fn permissions_go_with_the_keyspace_or_table_they_are_on() {
    let params = KeyspaceParams { durable_writes: true, replication: Default::default() };
    let create = SchemaChange::CreateKeyspace { name: "ks".into(), params };
    let mut entries = vec![Transformation::Schema(Box::new(create)), put("a")];
    let all =
        ["data", "data/ks", "data/ks/*", "data/ks/t", "functions/ks", "data/ks2", "data/ks2/t"];
    entries.extend(all.map(|resource| grant("a", resource, &[Permission::Select])));
    let before = after(&entries);
    let resources = |snapshot: &ClusterSnapshot| -> Vec<String> {
        snapshot.auth.permissions["a"].keys().cloned().collect()
    };
    let table = SchemaChange::DropTable { keyspace: "ks".into(), table: "t".into() };
    let kept = before.auth.after_schema_change(&table).unwrap();
    assert!(!kept.permissions["a"].contains_key("data/ks/t"));
    assert_eq!(kept.permissions["a"].len(), all.len() - 1);
    let drop = Transformation::Schema(Box::new(SchemaChange::DropKeyspace { name: "ks".into() }));
    let next = before.apply(&drop).unwrap();
    assert_eq!(resources(&next), ["data", "data/ks2", "data/ks2/t"]);
    assert_eq!(next.auth.changed_at, next.epoch);
    let other = SchemaChange::DropKeyspace { name: "k".into() };
    assert_eq!(before.auth.after_schema_change(&other), None);
}

#[test]
fn roles_are_found_through_others_and_a_circle_ends() {
    let snapshot = after(&[
        put("a"),
        put("b"),
        put("c"),
        put("d"),
        Transformation::PutRole { name: "root".to_owned(), role: role(true) },
        grant_role("b", "a"),
        grant_role("c", "b"),
        grant_role("a", "c"),
        grant_role("root", "d"),
    ]);
    assert_eq!(snapshot.auth.roles_of("a"), ["a", "b", "c"]);
    assert_eq!(snapshot.auth.roles_of("nobody"), Vec::<&str>::new());
    assert!(snapshot.auth.is_superuser("d"));
    assert!(!snapshot.auth.is_superuser("a"));
}
