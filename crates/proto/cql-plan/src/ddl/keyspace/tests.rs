//! Replication over several datacenters. Expectations are from the source of Cassandra 5.0
//! (`prepareOptions`, `maybeWarnOnOptions`, `AlterKeyspaceStatement`).

use super::*;
use crate::ddl::DdlPlan;
use crate::error::PlanErrorCode;
use schema::Schema;
use std::net::SocketAddr;
use stdx::{Uuid, WallMicros};

const DATACENTERS: [(&str, u32); 3] = [("dc1", 3), ("dc2", 1), ("empty", 0)];

fn run(schema: &Schema, text: &str, moving: &[SocketAddr]) -> Result<DdlOutcome, PlanError> {
    let plan = DdlPlan::new(&cql_syntax::parse(text).unwrap().kind, None).unwrap()?;
    plan.outcome(&mut DdlContext {
        schema,
        datacenters: &DATACENTERS,
        moving,
        new_table_id: &mut Uuid::nil,
        now: WallMicros(0),
        watch: None,
        default_factor: 1,
        default_compaction: None,
        drop_compact_storage: true,
        functions: None,
        indexes: &crate::ddl::IndexSettings::default(),
    })
}

/// Factors by datacenter, as `dc=n` in order.
fn factors_of(outcome: &DdlOutcome) -> String {
    let (SchemaChange::CreateKeyspace { params, .. } | SchemaChange::AlterKeyspace { params, .. }) =
        &outcome.changes[0]
    else {
        panic!("{outcome:?}")
    };
    let parts: Vec<String> = params
        .replication
        .iter()
        .filter(|(name, _)| *name != "class")
        .map(|(name, factor)| format!("{name}={factor}"))
        .collect();
    parts.join(" ")
}

fn create(options: &str) -> Result<DdlOutcome, PlanError> {
    let text = format!(
        "CREATE KEYSPACE ks WITH replication = {{'class': 'NetworkTopologyStrategy'{options}}}"
    );
    run(&crate::system::system_schema(), &text, &[])
}

fn with_keyspace(replication: &str) -> Schema {
    let base = crate::system::system_schema();
    let text = format!("CREATE KEYSPACE ks WITH replication = {replication}");
    base.apply(&run(&base, &text, &[]).unwrap().changes[0]).unwrap()
}

fn alter(before: &str, after: &str) -> Result<DdlOutcome, PlanError> {
    let text = format!("ALTER KEYSPACE ks WITH replication = {after}");
    run(&with_keyspace(before), &text, &[])
}

#[test]
fn the_shorthand_expands_to_every_datacenter_that_is_not_named() {
    let of = |options| factors_of(&create(options).unwrap());
    assert_eq!(of(", 'replication_factor': 2"), "dc1=2 dc2=2 empty=2");
    assert_eq!(of(", 'replication_factor': 2, 'dc2': 1"), "dc1=2 dc2=1 empty=2");
    assert_eq!(of(", 'replication_factor': 2, 'dc2': 0"), "dc1=2 empty=2");
    assert_eq!(of(", 'dc1': 3"), "dc1=3");
    // `default_keyspace_rf`.
    assert_eq!(of(""), "dc1=1 dc2=1 empty=1");
}

#[test]
fn an_alteration_by_the_shorthand_leaves_datacenters_that_were_named_alone() {
    let of = |before, after| factors_of(&alter(before, after).unwrap());
    let network = "{'class': 'NetworkTopologyStrategy', 'dc1': 3}";
    let shorthand = "{'class': 'NetworkTopologyStrategy', 'replication_factor': 2}";
    assert_eq!(of(network, shorthand), "dc1=3 dc2=2 empty=2");
    let simple = "{'class': 'SimpleStrategy', 'replication_factor': 2}";
    assert_eq!(of(simple, "{'class': 'NetworkTopologyStrategy'}"), "dc1=2 dc2=2 empty=2");
    assert_eq!(of(network, simple), "replication_factor=2");
}

#[test]
fn datacenters_must_exist_and_one_must_have_a_replica() {
    let refused = |options| {
        let error = create(options).unwrap_err();
        assert_eq!(error.code, PlanErrorCode::Config);
        error.message
    };
    assert_eq!(
        refused(", 'dc1': 1, 'dc9': 1"),
        "Unrecognized strategy option {dc9} passed to NetworkTopologyStrategy for keyspace ks"
    );
    assert_eq!(refused(", 'dc1': 0"), "Configuration for at least one datacenter must be present");
    assert_eq!(refused(", 'dc9': 'x'"), "For input string: \"x\"");
    let text = "ALTER KEYSPACE system_auth WITH replication = {'class': \
                'NetworkTopologyStrategy', 'dc1': 3}";
    assert_eq!(
        run(&crate::system::system_schema(), text, &[]).unwrap_err().message,
        "Following datacenters have active nodes and must be present in replication options for \
         keyspace system_auth: [dc2, empty]"
    );
}

#[test]
fn more_replicas_than_nodes_are_warned_of() {
    let simple = |factor: u32| {
        let text = format!(
            "CREATE KEYSPACE ks WITH replication = {{'class': 'SimpleStrategy', \
             'replication_factor': {factor}}}"
        );
        run(&crate::system::system_schema(), &text, &[]).unwrap().warnings
    };
    assert_eq!(simple(4), Vec::<String>::new());
    assert_eq!(
        simple(5),
        ["Your replication factor 5 for keyspace ks is higher than the number of nodes 4"]
    );
    assert_eq!(
        create(", 'dc1': 3, 'dc2': 2, 'empty': 1").unwrap().warnings,
        ["Your replication factor 2 for keyspace ks is higher than the number of nodes 1 for \
          datacenter dc2"]
    );
    let text = "ALTER KEYSPACE system_traces WITH replication = {'class': 'SimpleStrategy', \
                'replication_factor': 9}";
    let warnings = run(&crate::system::system_schema(), text, &[]).unwrap().warnings;
    assert_eq!(warnings.len(), 1, "only that a repair is due: {warnings:?}");
}

#[test]
fn keyspaces_are_not_altered_while_nodes_move() {
    let schema = with_keyspace("{'class': 'SimpleStrategy', 'replication_factor': 1}");
    let moving: Vec<SocketAddr> =
        vec!["127.0.0.2:7000".parse().unwrap(), "127.0.0.3:7000".parse().unwrap()];
    let text = "ALTER KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', \
                'replication_factor': 2}";
    let error = run(&schema, text, &moving).unwrap_err();
    assert_eq!(error.code, PlanErrorCode::Config);
    assert_eq!(
        error.message,
        "Cannot alter RF while some endpoints are not in normal state (no range movements): \
         [/127.0.0.2:7000, /127.0.0.3:7000]"
    );
    assert!(run(&schema, text, &[]).is_ok());
}

#[test]
fn factors_are_numbers_of_full_replicas() {
    let of = |factor: &str| {
        let text = format!(
            "CREATE KEYSPACE ks WITH replication = {{'class': 'SimpleStrategy', \
             'replication_factor': '{factor}'}}"
        );
        match run(&crate::system::system_schema(), &text, &[]) {
            Ok(outcome) => factors_of(&outcome),
            Err(error) => error.message,
        }
    };
    assert_eq!(of("1/0"), "replication_factor=1/0");
    let format = "Replication factor format is <replicas> or <replicas>/<transient>";
    for wrong in ["1/", "1/2/3"] {
        assert_eq!(of(wrong), format, "{wrong}");
    }
    assert_eq!(of("3/1"), "Transient replication is not enabled on this node");
    assert_eq!(of("3/x"), "For input string: \"x\"");
    assert_eq!(of("99999999999"), "For input string: \"99999999999\"");
}

#[test]
fn a_wrong_shorthand_is_passed_over_beside_a_datacenter() {
    let of = |options| factors_of(&create(options).unwrap());
    assert_eq!(of(", 'replication_factor': 'x', 'dc1': 1"), "dc1=1");
    let none = create(", 'replication_factor': 'x'").unwrap_err();
    assert_eq!(none.message, "Configuration for at least one datacenter must be present");
}

#[test]
fn a_keyspace_that_stays_as_it_is_changes_nothing() {
    let same = "{'class': 'NetworkTopologyStrategy', 'dc1': 1}";
    let outcome = alter(same, same).unwrap();
    assert!(outcome.changes.is_empty() && outcome.event.is_none());
    assert_eq!(
        alter(same, "{'class': 'NetworkTopologyStrategy', 'dc1': 2}").unwrap().changes.len(),
        1
    );
}

#[test]
fn names_of_keyspaces_are_checked_in_every_statement() {
    for text in ["DROP KEYSPACE \"a b\"", "DROP TABLE \"a b\".t", "DROP TYPE IF EXISTS \"a-b\".t"] {
        let error = run(&crate::system::system_schema(), text, &[]).unwrap_err();
        assert!(error.message.starts_with("Keyspace name must not be empty and"), "{text}");
    }
}
