use super::*;
use crate::context::{PlanContext, PlanLimits};
use crate::plan::{PlanKind, plan};
use crate::requirements;
use crate::{PlanError, PlanErrorCode};
use cluster::{ClusterSnapshot, LocalNode, Permission, Transformation, metalog};
use schema::{Schema, TableKind};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use stdx::{HostId, Token, Uuid, WallMicros};

const ALL: AccessRules =
    AccessRules { passwords: true, permissions: true, datacenters: true, cidrs: None };
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const HASH: &str = "$2a$10$AaZBeH0YDCt.sW/RE37neeguGz4zpbkvPgRaIhdDMzewkmK6nOmFC";

/// A cluster with the superuser `root`, where statements take effect.
struct World {
    snapshot: ClusterSnapshot,
    rules: AccessRules,
    /// Address of all clients.
    address: IpAddr,
}

impl World {
    fn new(rules: AccessRules) -> World {
        let local = LocalNode {
            host_id: HostId(Uuid::from_u128(1)),
            cluster_name: "test".to_owned(),
            datacenter: "dc1".to_owned(),
            rack: "r".to_owned(),
            tokens: vec![Token(0)],
            created_at: WallMicros(1),
        };
        let first = Transformation::Bootstrap(local);
        let snapshot = metalog::bootstrap(&first, &crate::system::system_schema()).unwrap();
        let role =
            cluster::Role { is_superuser: true, can_login: true, salted_hash: HASH.to_owned() };
        let root = Transformation::PutRole { name: "root".to_owned(), role };
        let mut world = World { snapshot: snapshot.apply(&root).unwrap(), rules, address: HERE };
        world.schema("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
        world.schema("CREATE KEYSPACE k2 WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
        for table in ["ks.t", "ks.u", "k2.t"] {
            world.schema(&format!("CREATE TABLE {table} (k int PRIMARY KEY, v int)"));
        }
        world
    }

    fn schema(&mut self, text: &str) {
        let statement = cql_syntax::parse(text).unwrap();
        let plan = crate::DdlPlan::new(&statement.kind, None).unwrap().unwrap();
        let mut last = self.snapshot.schema.tables_by_id.len() as u128;
        let outcome = plan.outcome(&mut crate::ddl::DdlContext {
            schema: &self.snapshot.schema,
            datacenters: &[("dc1", 1)],
            moving: &[],
            new_table_id: &mut || {
                last += 1;
                Uuid::from_u128(last)
            },
            now: WallMicros(0),
            watch: None,
            default_factor: 1,
            default_compaction: None,
            drop_compact_storage: true,
            functions: None,
        });
        for change in outcome.unwrap().changes {
            let change = Transformation::Schema(Box::new(change));
            self.snapshot = self.snapshot.apply(&change).unwrap();
        }
    }

    fn access(&self, user: Option<&str>) -> Access {
        Access::of(user, &self.snapshot.auth, self.rules, "dc1", self.address)
    }

    fn outcome(&mut self, user: Option<&str>, text: &str) -> Result<AuthOutcome, PlanError> {
        let statement = cql_syntax::parse(text)?;
        let Some(plan) = AuthPlan::new(&statement.kind, None) else { panic!("{text}") };
        let outcome = plan?.outcome(&AuthContext {
            auth: &self.snapshot.auth,
            schema: &self.snapshot.schema,
            datacenters: &["dc1", "dc2"],
            access: &self.access(user),
            rules: self.rules,
            hash: Some("hash"),
        })?;
        for change in &outcome.changes {
            self.snapshot = self.snapshot.apply(change).unwrap();
        }
        Ok(outcome)
    }

    fn must(&mut self, user: &str, text: &str) {
        let outcome = self.outcome(Some(user), text);
        assert!(outcome.is_ok(), "{user}: {text}: {outcome:?}");
    }

    fn refused(&mut self, user: &str, text: &str, message: &str) {
        let error = self.outcome(Some(user), text).unwrap_err();
        assert_eq!(error.message, message, "{user}: {text}");
    }

    fn unauthorized(&mut self, user: &str, text: &str, message: &str) {
        let error = self.outcome(Some(user), text).unwrap_err();
        assert_eq!((error.code, &*error.message), (PlanErrorCode::Unauthorized, message), "{text}");
    }

    fn warned(&mut self, user: &str, text: &str) -> Vec<String> {
        self.outcome(Some(user), text).unwrap().warnings
    }

    /// Values of a LIST, booleans as 0 and 1.
    fn listed(&mut self, user: &str, text: &str) -> Vec<String> {
        let outcome = self.outcome(Some(user), text).unwrap();
        let cell = |bytes: &Vec<u8>| match bytes.as_slice() {
            [flag @ (0 | 1)] => flag.to_string(),
            [0, 0, 0, 0] => "{}".to_owned(),
            text => String::from_utf8(text.to_vec()).unwrap(),
        };
        let row = |row: Vec<Vec<u8>>| row.iter().map(cell).collect::<Vec<_>>().join(" | ");
        outcome.rows.map_or_else(Vec::new, |r| r.rows.into_iter().map(row).collect())
    }

    /// Checks that a user may run a statement that is not about roles.
    fn may(&self, user: &str, text: &str) -> Result<(), String> {
        let limits = PlanLimits::default();
        let cx = PlanContext {
            schema: &self.snapshot.schema,
            keyspace: None,
            limits: &limits,
            now: WallMicros(0),
            functions: None,
        };
        let planned = plan(&cql_syntax::parse(text).unwrap(), &cx).unwrap();
        let allowed =
            self.access(Some(user)).ensure_all(&requirements(&planned, &self.snapshot.schema));
        allowed.map_err(|error| error.message)
    }
}

fn lacks(user: &str, permission: &str, resource: &str) -> Result<(), String> {
    Err(format!("User {user} has no {permission} permission on {resource} or any of its parents"))
}

fn insufficient(user: &str) -> String {
    format!("User {user} does not have sufficient privileges to perform the requested operation")
}

#[test]
fn every_kind_of_statement_needs_its_permission_somewhere_on_the_chain() {
    // A dropped role may not use any datacenter either.
    let mut world = World::new(AccessRules { datacenters: false, ..ALL });
    world.must("root", "CREATE ROLE a WITH LOGIN = true");
    let cases = [
        ("SELECT * FROM ks.t", "SELECT", "<table ks.t>"),
        ("INSERT INTO ks.t (k, v) VALUES (1, 1)", "MODIFY", "<table ks.t>"),
        ("DELETE FROM ks.t WHERE k = 1", "MODIFY", "<table ks.t>"),
        ("TRUNCATE ks.t", "MODIFY", "<table ks.t>"),
        ("ALTER TABLE ks.t ADD w int", "ALTER", "<table ks.t>"),
        ("DROP TABLE ks.t", "DROP", "<table ks.t>"),
        ("CREATE TABLE ks.x (k int PRIMARY KEY)", "CREATE", "<all tables in ks>"),
        ("CREATE TYPE ks.x (f int)", "CREATE", "<all tables in ks>"),
        ("ALTER TYPE ks.x ADD g int", "ALTER", "<all tables in ks>"),
        ("DROP TYPE ks.x", "DROP", "<all tables in ks>"),
        ("ALTER KEYSPACE ks WITH durable_writes = false", "ALTER", "<keyspace ks>"),
        ("DROP KEYSPACE ks", "DROP", "<keyspace ks>"),
        (
            "CREATE KEYSPACE x WITH replication = {'class': 'SimpleStrategy', \
             'replication_factor': 1}",
            "CREATE",
            "<all keyspaces>",
        ),
        ("SELECT * FROM system_views.settings", "SELECT", "<table system_views.settings>"),
        ("SELECT * FROM system_auth.roles", "SELECT", "<table system_auth.roles>"),
        ("SELECT * FROM system.paxos", "SELECT", "<table system.paxos>"),
    ];
    for (text, permission, resource) in cases {
        assert_eq!(world.may("a", text), lacks("a", permission, resource), "{text}");
        assert_eq!(world.may("root", text), Ok(()), "{text}");
        assert_eq!(world.may("nobody", text), lacks("nobody", permission, resource), "{text}");
    }
    for (resource, tables) in [
        ("KEYSPACE ks", vec!["ks.t", "ks.u"]),
        ("ALL TABLES IN KEYSPACE ks", vec!["ks.t", "ks.u"]),
        ("ks.t", vec!["ks.t"]),
        ("ALL KEYSPACES", vec!["ks.t", "ks.u", "k2.t"]),
        // System keyspaces are not among them, as in Cassandra.
        ("KEYSPACE system_views", vec!["system_views.settings"]),
        ("TABLE system_views.settings", vec!["system_views.settings"]),
    ] {
        world.must("root", &format!("GRANT SELECT ON {resource} TO a"));
        for table in ["ks.t", "ks.u", "k2.t", "system_views.settings"] {
            let may = world.may("a", &format!("SELECT * FROM {table}")).is_ok();
            assert_eq!(may, tables.contains(&table), "{table} by {resource}");
        }
        assert!(world.may("a", "INSERT INTO ks.t (k, v) VALUES (1, 1)").is_err());
        world.must("root", &format!("REVOKE SELECT ON {resource} FROM a"));
    }
    assert!(world.may("a", "SELECT * FROM ks.t").is_err());
}

#[test]
fn what_drivers_read_when_they_connect_is_readable_by_all() {
    let mut world = World::new(ALL);
    world.must("root", "CREATE ROLE a WITH LOGIN = true");
    let schema = world.snapshot.schema.clone();
    let mut readable = 0;
    for table in schema.tables_by_id.values().filter(|t| t.keyspace.starts_with("system")) {
        let text = format!("SELECT * FROM {}.\"{}\"", table.keyspace, table.name);
        let expected = match &*table.keyspace {
            "system_schema" | "system_virtual_schema" => true,
            "system" => ["local", "peers", "peers_v2", "size_estimates", "table_estimates"]
                .contains(&&*table.name),
            "system_traces" => true,
            _ => false,
        };
        assert_eq!(world.may("a", &text).is_ok(), expected, "{text}");
        readable += u32::from(expected);
        assert!(world.may("root", &text).is_ok());
    }
    assert!(readable > 10);
}

#[test]
fn conditions_need_select_and_batches_need_all() {
    let mut world = World::new(ALL);
    world.must("root", "CREATE ROLE a WITH LOGIN = true");
    world.must("root", "GRANT MODIFY ON ks.t TO a");
    assert_eq!(world.may("a", "UPDATE ks.t SET v = 1 WHERE k = 1"), Ok(()));
    let conditional = "UPDATE ks.t SET v = 1 WHERE k = 1 IF v = 2";
    assert_eq!(world.may("a", conditional), lacks("a", "SELECT", "<table ks.t>"));
    let batch = "BEGIN BATCH INSERT INTO ks.t (k) VALUES (1); INSERT INTO ks.u (k) VALUES (1); \
                 APPLY BATCH";
    assert_eq!(world.may("a", batch), lacks("a", "MODIFY", "<table ks.u>"));
    world.must("root", "GRANT SELECT ON ks.t TO a");
    world.must("root", "GRANT MODIFY ON ks.u TO a");
    assert_eq!(world.may("a", conditional), Ok(()));
    assert_eq!(world.may("a", batch), Ok(()));
}

#[test]
fn permissions_come_through_roles_of_roles_and_go_with_them() {
    let mut world = World::new(ALL);
    for role in ["a", "b", "c"] {
        world.must("root", &format!("CREATE ROLE {role} WITH LOGIN = true"));
    }
    world.must("root", "GRANT SELECT ON ks.t TO c");
    world.must("root", "GRANT c TO b");
    world.must("root", "GRANT b TO a");
    assert_eq!(world.may("a", "SELECT * FROM ks.t"), Ok(()));
    world.refused("root", "GRANT c TO a", "a is a member of c");
    world.refused("root", "GRANT a TO c", "a is a member of c");
    world.refused("root", "GRANT a TO a", "a is a member of a");
    world.refused("root", "GRANT nobody TO a", "nobody doesn't exist");
    world.refused("root", "REVOKE c FROM a", "a is not a member of c");
    world.must("root", "REVOKE b FROM a");
    assert_eq!(world.may("a", "SELECT * FROM ks.t"), lacks("a", "SELECT", "<table ks.t>"));
    world.must("root", "GRANT root TO b");
    assert_eq!(world.may("b", "DROP KEYSPACE ks"), Ok(()));
    world.must("root", "DROP ROLE c");
    world.must("root", "REVOKE root FROM b");
    assert_eq!(world.may("b", "SELECT * FROM ks.t"), lacks("b", "SELECT", "<table ks.t>"));
}

#[test]
fn who_may_create_alter_and_drop_roles() {
    let mut world = World::new(ALL);
    world.must("root", "CREATE ROLE a WITH LOGIN = true AND PASSWORD = 'x'");
    world.must("root", "CREATE ROLE b");
    world.unauthorized("a", "CREATE ROLE c", &insufficient("a"));
    world.unauthorized("a", "ALTER ROLE b WITH LOGIN = true", &insufficient("a"));
    world.unauthorized("a", "DROP ROLE b", &insufficient("a"));
    world.unauthorized("a", "GRANT b TO a", &insufficient("a"));
    world.must("a", "ALTER ROLE a WITH PASSWORD = 'y'");
    assert_eq!(world.snapshot.auth.roles["a"].salted_hash, "hash");
    let own = "ALTER ROLE a WITH LOGIN = false";
    world.unauthorized("a", own, "You aren't allowed to alter LOGIN");
    let text = "You aren't allowed to alter your own superuser status or that of a role granted \
                to you";
    world.unauthorized("a", "ALTER ROLE a WITH SUPERUSER = true", text);
    world.unauthorized("root", "ALTER ROLE root WITH SUPERUSER = false", text);
    let text = "Only superusers are allowed to alter superuser status";
    world.unauthorized("a", "ALTER ROLE b WITH SUPERUSER = true", text);
    world.must("root", "GRANT CREATE ON ALL ROLES TO a");
    let text = "Only superusers can create a role with superuser status";
    world.unauthorized("a", "CREATE ROLE c WITH SUPERUSER = true", text);
    world.must("a", "CREATE ROLE c");
    // The creator of a role may do everything with it.
    world.must("a", "ALTER ROLE c WITH LOGIN = true");
    world.must("a", "GRANT c TO b");
    world.must("a", "DROP ROLE c");
    world.must("root", "CREATE ROLE d WITH SUPERUSER = true AND LOGIN = true");
    world.must("root", "GRANT DROP ON ALL ROLES TO a");
    let text = "Only superusers can drop a role with superuser status";
    world.unauthorized("a", "DROP ROLE d", text);
    world.refused("root", "DROP ROLE root", "Cannot DROP primary role for current login");
    world.must("d", "DROP ROLE root");
    world.refused("d", "DROP ROLE root", "root doesn't exist");
    world.must("d", "DROP ROLE IF EXISTS root");
    world.refused("d", "CREATE ROLE a", "a already exists");
    world.must("d", "CREATE ROLE IF NOT EXISTS a");
    world.refused("d", "ALTER ROLE nobody WITH LOGIN = true", "Role nobody doesn't exist");
    world.must("d", "ALTER ROLE IF EXISTS nobody WITH LOGIN = true");
    world.refused("d", "ALTER ROLE a", "ALTER [ROLE|USER] can't be empty");
    world.refused("d", "CREATE ROLE ''", "Role name can't be an empty string");
}

#[test]
fn options_are_checked_as_by_cassandras_role_manager() {
    let mut world = World::new(ALL);
    world.must("root", "CREATE USER u WITH PASSWORD 'x' SUPERUSER");
    let user = &world.snapshot.auth.roles["u"];
    assert!(user.is_superuser && user.can_login && user.salted_hash == "hash");
    world.must("root", &format!("ALTER USER u WITH HASHED PASSWORD '{HASH}' NOSUPERUSER"));
    let user = &world.snapshot.auth.roles["u"];
    assert!(!user.is_superuser && user.can_login && user.salted_hash == HASH);
    let text = "Invalid hashed password value. Please use jBcrypt.";
    for hash in
        ["secret", &HASH[..59], &HASH.replace("$2a$10", "$2a$99"), &HASH.replace("2a", "2y")]
    {
        world.refused("root", &format!("CREATE ROLE x WITH HASHED PASSWORD = '{hash}'"), text);
    }
    let costly = HASH.replace("$2a$10", "$2a$17");
    let text = "Invalid hashed password value. Its cost is above 16.";
    world.refused("root", &format!("CREATE ROLE x WITH HASHED PASSWORD = '{costly}'"), text);
    let costly = HASH.replace("$2a$10", "$2a$16");
    world.must("root", &format!("CREATE ROLE c WITH HASHED PASSWORD = '{costly}'"));
    world.must("root", "DROP ROLE c");
    let text = "org.apache.cassandra.auth.CassandraRoleManager doesn't support OPTIONS";
    world.refused("root", "CREATE ROLE x WITH OPTIONS = {'a': 'b'}", text);
    let text = "Invalid value(s) for DATACENTERS '[dc3]',All values must be valid datacenters";
    world.refused("root", "CREATE ROLE x WITH ACCESS TO DATACENTERS {'dc3'}", text);
    let text = "Invalid CIDR group(s): [a, b]. Available CIDR Groups are: []";
    world.refused("root", "CREATE ROLE x WITH ACCESS FROM CIDRS {'b', 'a'}", text);
    for (options, text) in [
        ("ACCESS FROM ALL CIDRS AND ACCESS FROM CIDRS {'a'}", "All has been set"),
        ("ACCESS FROM CIDRS {'a'} AND ACCESS FROM ALL CIDRS", "CIDR Groups have already been set"),
        (
            "ACCESS TO DATACENTERS {'dc1'} AND ACCESS TO ALL DATACENTERS",
            "DCs have already been set",
        ),
    ] {
        let error = world.outcome(Some("root"), &format!("CREATE ROLE x WITH {options}"));
        let error = error.unwrap_err();
        assert_eq!((error.code, &*error.message), (PlanErrorCode::Syntax, text), "{options}");
    }
    let mut open = World::new(AccessRules::default());
    let error = open.outcome(None, "CREATE ROLE x").unwrap_err();
    let text = "You have to be logged in and not anonymous to perform this request";
    assert_eq!((error.code, &*error.message), (PlanErrorCode::Unauthorized, text));
    let text = "org.apache.cassandra.auth.CassandraRoleManager doesn't support PASSWORD";
    let error = open.outcome(None, "CREATE ROLE x WITH PASSWORD = 'y'").unwrap_err();
    assert_eq!((error.code, &*error.message), (PlanErrorCode::Invalid, text));
    let mut no_permissions = World::new(AccessRules { passwords: true, ..AccessRules::default() });
    let text = "GRANT operation is not supported by AllowAllAuthorizer";
    no_permissions.refused("root", "GRANT SELECT ON ks.t TO root", text);
    let text = "ACCESS TO DATACENTERS operations not supported by AllowAllNetworkAuthorizer";
    no_permissions.refused("root", "ALTER ROLE root WITH ACCESS TO ALL DATACENTERS", text);
    let warnings =
        no_permissions.warned("root", "CREATE ROLE x WITH ACCESS TO DATACENTERS {'dc1'}");
    assert_eq!(warnings.len(), 1);
}

#[test]
fn permissions_are_granted_by_who_has_them_and_authorize() {
    let mut world = World::new(ALL);
    world.must("root", "CREATE ROLE a WITH LOGIN = true");
    world.must("root", "CREATE ROLE b");
    let lacks = |permission, resource| lacks("a", permission, resource).unwrap_err();
    let grant = "GRANT SELECT ON ks.t TO b";
    world.unauthorized("a", grant, &lacks("AUTHORIZE", "<table ks.t>"));
    world.must("root", "GRANT AUTHORIZE ON KEYSPACE ks TO a");
    world.unauthorized("a", grant, &lacks("SELECT", "<table ks.t>"));
    world.must("root", "GRANT SELECT ON ks.t TO a");
    world.must("a", grant);
    assert_eq!(
        world.warned("a", "GRANT SELECT ON ks.t TO b"),
        ["Role 'b' was already granted SELECT on <table ks.t>"]
    );
    let warnings = world.warned("root", "REVOKE MODIFY, SELECT ON ks.t FROM b");
    assert_eq!(warnings, ["Role 'b' was not granted MODIFY on <table ks.t>"]);
    world.refused("root", "GRANT SELECT ON ks.x TO b", "Resource <table ks.x> doesn't exist");
    world.refused("root", "GRANT SELECT ON KEYSPACE x TO b", "Resource <keyspace x> doesn't exist");
    world.refused("root", "GRANT ALTER ON ROLE x TO b", "Resource <role x> doesn't exist");
    world.refused("root", "GRANT SELECT ON ks.t TO x", "Role x doesn't exist");
    let text = "Resource type DataResource does not support any of the requested permissions";
    world.refused("root", "GRANT EXECUTE ON ks.t TO b", text);
    let text = "Resource type RoleResource does not support any of the requested permissions";
    world.refused("root", "GRANT SELECT ON ALL ROLES TO b", text);
    let text = "Altering permissions on builtin functions is not supported";
    world.refused("root", "GRANT EXECUTE ON ALL FUNCTIONS IN KEYSPACE system TO b", text);
    let text = "Resource <function ks.f(int, text)> doesn't exist";
    world.refused("root", "GRANT EXECUTE ON FUNCTION ks.f(int, text) TO b", text);
    world.must("root", "GRANT ALL PERMISSIONS ON ks.u TO b");
    let all = &world.snapshot.auth.permissions["b"]["data/ks/u"];
    assert_eq!(*all, Resource::table("ks", "u").applicable());
    assert!(!all.contains(Permission::Create));
    assert_eq!(world.warned("root", "GRANT SELECT ON MBEAN 'a:type=b' TO b").len(), 1);
    assert!(world.warned("root", "GRANT EXECUTE ON ALL MBEANS TO b").is_empty());
}

#[test]
fn lists_show_what_the_user_may_see() {
    let mut world = World::new(ALL);
    world.must("root", "CREATE ROLE a WITH LOGIN = true AND ACCESS TO DATACENTERS {'dc2', 'dc1'}");
    world.must("root", "CREATE ROLE b");
    world.must("root", "CREATE ROLE c WITH LOGIN = true AND ACCESS TO ALL DATACENTERS");
    world.must("root", "GRANT b TO a");
    world.must("root", "GRANT root TO c");
    let (a, b) = ("a | 0 | 1 | {} | dc1, dc2", "b | 0 | 0 | {} | n/a");
    let all = [a, b, "c | 0 | 1 | {} | ALL", "root | 1 | 1 | {} | ALL"];
    assert_eq!(world.listed("root", "LIST ROLES"), all);
    assert_eq!(world.listed("c", "LIST ROLES"), all);
    assert_eq!(world.listed("a", "LIST ROLES"), [a, b]);
    assert_eq!(world.listed("a", "LIST ROLES OF b"), [b]);
    assert_eq!(world.listed("root", "LIST ROLES OF a NORECURSIVE"), [a, b]);
    let text = "You are not authorized to view roles granted to c ";
    world.unauthorized("a", "LIST ROLES OF c", text);
    world.refused("root", "LIST ROLES OF x", "<role x> doesn't exist");
    let users = ["a | 0 | dc1, dc2", "c | 1 | ALL", "root | 1 | ALL"];
    assert_eq!(world.listed("root", "LIST USERS"), users);
    assert_eq!(world.listed("a", "LIST USERS"), [users[0]]);
    world.must("root", "GRANT MODIFY, SELECT ON ks.t TO b");
    world.must("root", "GRANT SELECT ON KEYSPACE ks TO a");
    let of_a = [
        "a | a | <keyspace ks> | SELECT",
        "b | b | <table ks.t> | SELECT",
        "b | b | <table ks.t> | MODIFY",
    ];
    assert_eq!(world.listed("a", "LIST ALL PERMISSIONS OF a"), of_a);
    assert_eq!(world.listed("root", "LIST ALL ON ks.t OF a"), of_a);
    assert_eq!(world.listed("root", "LIST ALL ON ks.t OF a NORECURSIVE"), of_a[1..]);
    assert_eq!(world.listed("root", "LIST MODIFY ON ks.t"), of_a[2..]);
    assert_eq!(world.listed("root", "LIST ALL ON k2.t"), Vec::<String>::new());
    world.unauthorized("a", "LIST ALL", "You are not authorized to view everyone's permissions");
    world.unauthorized("a", "LIST ALL OF c", "You are not authorized to view c's permissions");
    world.refused("root", "LIST ALL ON ks.x", "<table ks.x> doesn't exist");
    world.must("root", "GRANT DESCRIBE ON ALL ROLES TO a");
    assert_eq!(world.listed("a", "LIST ROLES").len(), 4);
}

#[test]
fn roles_are_kept_out_of_datacenters() {
    let mut world = World::new(ALL);
    world.must("root", "CREATE ROLE a WITH LOGIN = true AND ACCESS TO DATACENTERS {'dc2'}");
    let text = "You do not have access to this datacenter (dc1)";
    assert_eq!(world.may("a", "SELECT * FROM system.local"), Err(text.to_owned()));
    world.unauthorized("a", "LIST ROLES", text);
    world.must("root", "ALTER ROLE a WITH ACCESS TO DATACENTERS {'dc1', 'dc2'}");
    assert_eq!(world.may("a", "SELECT * FROM system.local"), Ok(()));
    world.must("root", "ALTER ROLE a WITH ACCESS TO DATACENTERS {'dc2'}");
    world.rules.datacenters = false;
    assert_eq!(world.may("a", "SELECT * FROM system.local"), Ok(()));
}

impl World {
    fn group(&mut self, name: &str, ranges: &[&str]) {
        let ranges = ranges.iter().map(|text| cluster::cidr::parse(text).unwrap()).collect();
        let change = cluster::AuthChange::PutCidrGroup { name: name.to_owned(), ranges };
        self.snapshot = self.snapshot.apply(&Transformation::Auth(change)).unwrap();
    }

    /// Runs a read that any user may run whose address is allowed.
    fn from(&mut self, address: &str, user: &str) -> Result<(), String> {
        self.address = address.parse().unwrap();
        self.may(user, "SELECT * FROM system.local")
    }
}

#[test]
fn roles_are_kept_to_cidr_groups() {
    let rules = CidrRules { enforce: true, superusers: false };
    let mut world = World::new(AccessRules { cidrs: Some(rules), ..ALL });
    world.group("office", &["10.1.0.0/16", "2001:db8::/32"]);
    world.group("ten", &["10.0.0.0/8"]);
    world.must("root", "CREATE ROLE a WITH LOGIN = true AND ACCESS FROM CIDRS {'office'}");
    let kept_out = |address: &str| Err(format!("You do not have access from this IP {address}"));
    assert_eq!(world.from("10.1.2.3", "a"), Ok(()));
    assert_eq!(world.from("2001:db8::1", "a"), Ok(()));
    assert_eq!(world.from("::ffff:10.1.2.3", "a"), Ok(()));
    assert_eq!(world.from("10.2.0.1", "a"), kept_out("10.2.0.1"));
    assert_eq!(world.from("::ffff:11.0.0.1", "a"), kept_out("11.0.0.1"));
    world.unauthorized("a", "LIST ROLES", "You do not have access from this IP 11.0.0.1");
    // Granted roles do not restrict addresses, and a role without groups may connect from
    // everywhere.
    world.must("root", "CREATE ROLE b WITH LOGIN = true");
    world.must("root", "GRANT a TO b");
    assert_eq!(world.from("11.0.0.1", "b"), Ok(()));
    assert_eq!(world.access(Some("b")).cidr, None);
    let text = "Invalid CIDR group(s): [home, ten]. Available CIDR Groups are: [office, ten]";
    world.refused("root", "ALTER ROLE a WITH ACCESS FROM CIDRS {'ten', 'home'}", text);
    world.must("root", "ALTER ROLE a WITH ACCESS FROM CIDRS {'ten', 'office'}");
    assert_eq!(world.from("10.2.0.1", "a"), Ok(()));
    let found = |groups: &[&str], is_allowed| {
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        Some(CidrFinding { groups, is_allowed })
    };
    assert_eq!(world.access(Some("a")).cidr, found(&["ten"], true));
    // Only groups of the narrowest range count.
    world.group("hole", &["10.2.0.0/24"]);
    assert_eq!(world.from("10.2.0.1", "a"), kept_out("10.2.0.1"));
    assert_eq!(world.access(Some("a")).cidr, found(&["hole"], false));
    world.group("hole", &[]);
    assert_eq!(world.from("10.2.0.1", "a"), Ok(()));
    // A removed group allows no address.
    world.group("ten", &[]);
    world.group("office", &[]);
    assert_eq!(world.from("10.1.2.3", "a"), kept_out("10.1.2.3"));
    world.must("root", "ALTER ROLE a WITH ACCESS FROM ALL CIDRS");
    assert_eq!(world.from("10.1.2.3", "a"), Ok(()));
    assert_eq!(
        world.outcome(Some("root"), "ALTER ROLE a WITH ACCESS FROM ALL CIDRS").unwrap().changes,
        []
    );
}

#[test]
fn superusers_and_mode_monitor_of_cidr_groups() {
    let rules = |enforce, superusers| AccessRules {
        datacenters: false,
        cidrs: Some(CidrRules { enforce, superusers }),
        ..ALL
    };
    let mut world = World::new(rules(true, false));
    world.group("office", &["10.1.0.0/16"]);
    world.must("root", "ALTER ROLE root WITH ACCESS FROM CIDRS {'office'}");
    assert_eq!(world.from("11.0.0.1", "root"), Ok(()));
    world.rules = rules(true, true);
    let text = "You do not have access from this IP 11.0.0.1";
    assert_eq!(world.from("11.0.0.1", "root"), Err(text.to_owned()));
    world.rules = rules(false, true);
    assert_eq!(world.from("11.0.0.1", "root"), Ok(()));
    let found = world.access(Some("root")).cidr;
    assert_eq!(found, Some(CidrFinding { groups: Vec::new(), is_allowed: false }));
    world.rules = ALL;
    assert_eq!(world.from("11.0.0.1", "root"), Ok(()));
    assert_eq!(world.access(Some("root")).cidr, None);
    // A role that may not log in any more may not continue either.
    world.rules = rules(true, false);
    world.must("root", "CREATE ROLE a WITH LOGIN = true");
    assert_eq!(world.from("11.0.0.1", "a"), Ok(()));
    world.must("root", "ALTER ROLE a WITH LOGIN = false");
    assert_eq!(world.from("11.0.0.1", "a"), Err(text.to_owned()));
}

#[test]
fn cidr_groups_are_rows_of_system_auth() {
    let mut world = World::new(ALL);
    world.group("office", &["10.1.0.0/16", "10.1.0.0/8", "900::/8"]);
    world.must("root", "CREATE ROLE a WITH LOGIN = true AND ACCESS FROM CIDRS {'office'}");
    let auth = &world.snapshot.auth;
    for (table, count) in [("cidr_groups", 1), ("cidr_permissions", 1)] {
        let table = world.snapshot.schema.table("system_auth", table).unwrap();
        assert_eq!(rows(auth, table).unwrap().len(), count);
    }
}

#[test]
fn identities_stand_for_roles() {
    let mut world = World::new(ALL);
    world.must("root", "CREATE ROLE a WITH LOGIN = true");
    world.must("root", "ADD IDENTITY 'spiffe://x' TO ROLE 'a'");
    world.refused("root", "ADD IDENTITY 'spiffe://x' TO ROLE 'a'", "spiffe://x already exists");
    world.must("root", "ADD IDENTITY IF NOT EXISTS 'spiffe://x' TO ROLE 'a'");
    let text = "Can not add identity for non-existent role 'b'";
    world.refused("root", "ADD IDENTITY 'spiffe://y' TO ROLE 'b'", text);
    world.unauthorized("a", "DROP IDENTITY 'spiffe://x'", &insufficient("a"));
    world.must("root", "DROP IDENTITY 'spiffe://x'");
    world.refused("root", "DROP IDENTITY 'spiffe://x'", "identity 'spiffe://x' doesn't exist");
    world.must("root", "DROP IDENTITY IF EXISTS 'spiffe://x'");
}

#[test]
fn resources_come_back_from_their_names() {
    for name in [
        "data",
        "data/ks",
        "data/ks/*",
        "data/ks/t",
        "roles",
        "roles/a/b",
        "functions",
        "functions/ks",
        "functions/ks/f[org.apache.cassandra.db.marshal.Int32Type]",
        "functions/ks/f[]",
        "mbean",
        "mbean/a:type=b",
    ] {
        assert_eq!(Resource::from_name(name).unwrap().name(), name);
    }
    let function = "functions/ks/f[org.apache.cassandra.db.marshal.Int32Type^\
                    org.apache.cassandra.db.marshal.UTF8Type]";
    let shown = Resource::from_name(function).unwrap().to_string();
    assert_eq!(shown, "<function ks.f(int, text)>");
    for name in ["", "x", "database", "functions/ks/f"] {
        assert_eq!(Resource::from_name(name), None);
    }
}

#[test]
fn system_auth_shows_the_roles_and_takes_no_writes() {
    let mut world = World::new(ALL);
    world.must("root", "CREATE ROLE a WITH LOGIN = true AND ACCESS TO DATACENTERS {'dc1'}");
    world.must("root", "CREATE ROLE b");
    world.must("root", "GRANT b TO a");
    world.must("root", "GRANT SELECT ON ks.t TO b");
    world.must("root", "ADD IDENTITY 'i' TO ROLE 'a'");
    let schema: Arc<Schema> = world.snapshot.schema.clone();
    let mut count = 0;
    for table in schema.keyspace("system_auth").unwrap().tables.values() {
        assert_eq!(table.kind, TableKind::Regular);
        let expected = match &*table.name {
            "roles" => 3,
            // Creating a role gives its creator permissions on it.
            "role_permissions" | "resource_role_permissons_index" => 3,
            "role_members" | "network_permissions" | "identity_to_role" => 1,
            _ => 0,
        };
        assert_eq!(rows(&world.snapshot.auth, table).unwrap().len(), expected, "{}", table.name);
        count += 1;
    }
    assert_eq!(count, 8);
    let limits = PlanLimits::default();
    let cx = PlanContext {
        schema: &schema,
        keyspace: None,
        limits: &limits,
        now: WallMicros(0),
        functions: None,
    };
    for text in [
        "INSERT INTO system_auth.roles (role) VALUES ('x')",
        "DELETE FROM system_auth.roles WHERE role = 'x'",
        "TRUNCATE system_auth.roles",
    ] {
        let error = plan(&cql_syntax::parse(text).unwrap(), &cx).unwrap_err();
        assert!(error.message.contains("CREATE ROLE, GRANT"), "{text}: {}", error.message);
    }
    let select = plan(&cql_syntax::parse("SELECT * FROM system_auth.roles").unwrap(), &cx).unwrap();
    assert!(matches!(select.kind, PlanKind::Select(_)));
}

#[test]
fn of_system_keyspaces_only_reading_and_replication_can_be_granted() {
    let mut world = World::new(ALL);
    world.must("root", "CREATE ROLE a");
    let text = "Granting permissions on system keyspaces is strictly limited, this operation is not permitted";
    for resource in
        ["KEYSPACE system_auth", "TABLE system.local", "ALL TABLES IN KEYSPACE system_traces"]
    {
        for permission in ["MODIFY", "DROP", "AUTHORIZE", "ALL"] {
            let what = format!("GRANT {permission} ON {resource} TO a");
            world.refused("root", &what, text);
        }
        for permission in ["SELECT", "ALTER"] {
            world.must("root", &format!("GRANT {permission} ON {resource} TO a"));
        }
    }
    // Virtual keyspaces are not limited.
    world.must("root", "GRANT MODIFY ON KEYSPACE system_views TO a");
}
