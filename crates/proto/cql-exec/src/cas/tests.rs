use std::sync::Arc;

use data::{BoundRef, MutationRef};
use schema::Schema;
use stdx::TimestampMicros;

use super::{BoundCas, CasExec, CasFlow, CasResult, CasStatement, Verdict};
use cql_plan::cas::CasForm;
use cql_plan::check_conditional_batch;
use cql_plan::plan::*;
use cql_plan::{PlanError, bind_batch};
use cql_syntax::ast::BatchKind;
use cql_testing::{NOW, TABLES, schema_of, show};

fn plan_of(schema: &Arc<Schema>, cql: &str) -> Result<Plan, PlanError> {
    let limits = PlanLimits::default();
    let cx =
        PlanContext { schema, keyspace: Some("ks"), limits: &limits, now: NOW, functions: None };
    plan(&cql_syntax::parse(cql).unwrap_or_else(|e| panic!("{cql}: {e:?}")), &cx)
}

const BALLOT: TimestampMicros = TimestampMicros(1000);

fn options(uuids: &UuidSource) -> ExecuteOptions<'_> {
    ExecuteOptions {
        now: NOW,
        clock: NOW,
        default_timestamp: TimestampMicros(77),
        page_size: None,
        paging_state: None,
        protocol_version: 5,
        uuids,
        watch: None,
    }
}

/// The one mutation of INSERTs: the contents of the table.
fn state(schema: &Arc<Schema>, inserts: &[&str]) -> Vec<u8> {
    let uuids = UuidSource::new(3);
    let plans: Vec<Plan> = inserts.iter().map(|s| plan_of(schema, s).expect(s)).collect();
    let statements: Vec<CasStatement<'_>> = plans
        .iter()
        .map(|plan| match &plan.kind {
            PlanKind::Modify(modify) => (modify, &[] as &[BoundValue<'_>]),
            other => panic!("{other:?}"),
        })
        .collect();
    let mut out = Vec::new();
    let limits = PlanLimits::default();
    bind_batch(BatchKind::Unlogged, &statements, &options(&uuids), &limits, &mut out).unwrap();
    out
}

#[test]
fn functions_that_differ_are_evaluated_once_in_an_execution() {
    let schema = schema_of(&[
        TABLES[0],
        "CREATE TABLE ks.e (k uuid, c timeuuid, at timestamp, o uuid, v int, PRIMARY KEY (k, c))",
    ]);
    let insert = "INSERT INTO e (k, c, at, o) VALUES (uuid(), now(), to_timestamp(now()), uuid())";
    let uuids = UuidSource::new(5);
    for (cql, form) in [
        (format!("{insert} IF NOT EXISTS"), CasForm::Statement),
        (format!("BEGIN BATCH {insert} IF NOT EXISTS APPLY BATCH"), CasForm::Batch),
    ] {
        let plan = plan_of(&schema, &cql).unwrap();
        assert_eq!(
            (plan.inputs.binds.len(), plan.inputs.calls.len(), plan.inputs.value_count_max()),
            (0, 4, 4)
        );
        let given = plan.inputs.evaluate_calls(&[], &options(&uuids)).unwrap().unwrap();
        let values = with_results(&[], &given);
        assert_eq!(plan.inputs.evaluate_calls(&values, &options(&uuids)), Ok(None), "once");
        let modify = match &plan.kind {
            PlanKind::Modify(modify) => modify,
            PlanKind::Batch(batch) => &batch.statements()[0],
            other => panic!("{other:?}"),
        };
        let statements: [CasStatement<'_>; 1] = [(modify, &values)];
        let bound = BoundCas::bind(&statements, form, &options(&uuids), NOW).unwrap();
        let exec = CasExec::new(&bound, &statements, options(&uuids));
        let first = exec.decide(BALLOT).unwrap().unwrap();
        let mutation = MutationRef::parse(&first, 2 - 1).unwrap();
        let is_given = |value: Option<&[u8]>| given.iter().any(|g| g.as_deref() == value);
        assert!(is_given(Some(mutation.key)), "{:?}", mutation.key);
        let (clustering, _) = mutation.rows().next().unwrap();
        assert!(is_given(data::clustering::components(clustering).next().unwrap()));
        // However often it is decided.
        assert_eq!(exec.decide(BALLOT).unwrap().unwrap(), first);
    }
}

#[test]
fn results_of_calls_stand_behind_the_values_of_markers() {
    let schema = schema_of(&[
        TABLES[0],
        "CREATE TABLE ks.e (k uuid, c int, v int, o timestamp, PRIMARY KEY (k, c))",
    ]);
    let uuids = UuidSource::new(6);
    let cql = "INSERT INTO e (k, c, o, v) VALUES (uuid(), ?, to_timestamp(now()), ?)";
    let plan = plan_of(&schema, cql).unwrap();
    let markers = [7_i32.to_be_bytes(), 8_i32.to_be_bytes()];
    let markers: Vec<BoundValue<'_>> = markers.iter().map(|v| BoundValue::Bytes(v)).collect();
    let results = plan.inputs.evaluate_calls(&markers, &options(&uuids)).unwrap().unwrap();
    let values = with_results(&markers, &results);
    assert_eq!((values.len(), plan.inputs.value_count_max()), (4, 4));
    let PlanKind::Modify(modify) = &plan.kind else { panic!("{plan:?}") };
    let bind = || {
        let mut out = Vec::new();
        modify.bind(&values, &options(&uuids), &mut out).unwrap();
        out
    };
    assert_eq!(bind(), bind());
    // Nothing is evaluated for a statement without such functions, nor for one whose values are
    // incomplete.
    let plain = plan_of(&schema, "INSERT INTO e (k, c) VALUES (?, ?)").unwrap();
    assert_eq!(plain.inputs.evaluate_calls(&markers, &options(&uuids)), Ok(None));
    assert_eq!(plan.inputs.evaluate_calls(&markers[..1], &options(&uuids)), Ok(None));
    // A peer's value in place of a result is checked.
    let wrong = [values[0], values[1], BoundValue::Bytes(b"short"), values[3]];
    assert!(modify.bind(&wrong, &options(&uuids), &mut Vec::new()).is_err());
}

/// Shows the rows that the read asks for.
fn feed(exec: &mut CasExec<'_>, bound: &BoundCas, schema: &Schema, state: &[u8]) {
    if state.is_empty() {
        return;
    }
    let table = schema.table_by_id(bound.table().id).unwrap();
    let mutation = MutationRef::parse(state, table.clustering_count).unwrap();
    let comparator = data::ClusteringComparator::for_table(table);
    exec.partition(mutation.static_row);
    for (clustering, row) in mutation.rows() {
        let at = |after| BoundRef { prefix: clustering, after };
        let wanted = bound.read().slices.0.iter().any(|slice| {
            comparator.compare_bounds(slice.start(), at(true)).is_lt()
                && comparator.compare_bounds(at(false), slice.end()).is_lt()
        });
        if wanted && exec.row(clustering, row) == CasFlow::Stop {
            return;
        }
    }
}

fn text(schema: &Schema, bound: &BoundCas, result: &CasResult) -> String {
    let _ = (schema, bound);
    let rows: Vec<String> = result
        .rows
        .iter()
        .map(|row| {
            assert_eq!(row.len(), result.columns.len());
            let cells: Vec<String> = row
                .iter()
                .zip(&result.columns)
                .map(|(cell, column)| {
                    let value =
                        cell.as_ref().map_or("null".into(), |c| column.ty.format_cql_literal(c));
                    format!("{}={value}", column.name)
                })
                .collect();
            cells.join(" ")
        })
        .collect();
    rows.join("; ")
}

fn try_run(inserts: &[&str], cql: &str, values: &[BoundValue<'_>]) -> Result<String, PlanError> {
    let schema = schema_of(TABLES);
    let before = state(&schema, inserts);
    let plan = plan_of(&schema, cql)?;
    let (statements, form): (Vec<CasStatement<'_>>, CasForm) = match &plan.kind {
        PlanKind::Modify(modify) => (vec![(modify, values)], CasForm::Statement),
        PlanKind::Batch(batch) => {
            assert!(batch.has_conditions(), "{cql}");
            (batch.statements().iter().map(|s| (s, values)).collect(), CasForm::Batch)
        }
        other => panic!("{other:?}"),
    };
    assert!(statements.iter().any(|(s, _)| s.has_conditions()), "{cql}");
    let uuids = UuidSource::new(7);
    let options = options(&uuids);
    let bound = BoundCas::bind(&statements, form, &options, options.now)?;
    let mut exec = CasExec::new(&bound, &statements, options);
    // INV-cas-2: rows that are shown before a restart do not count.
    let other = state(&schema, &["INSERT INTO t (k, v) VALUES (9, 9)"]);
    if &*bound.table().name == "t" {
        feed(&mut exec, &bound, &schema, &other);
    }
    exec.restart();
    feed(&mut exec, &bound, &schema, &before);
    Ok(match exec.decide(BALLOT)? {
        Some(mutation) => {
            assert_eq!(exec.result(Verdict::Applied).rows, [[Some(vec![1])]]);
            format!("yes {}", show(&schema, &mutation))
        }
        None => format!("no {}", text(&schema, &bound, &exec.result(Verdict::NotApplied))),
    })
}

fn check(inserts: &[&str], cql: &str, expect: &str) {
    assert_eq!(try_run(inserts, cql, &[]).expect(cql), expect, "{cql}");
}

fn check_error(inserts: &[&str], cql: &str, expect: &str) {
    match try_run(inserts, cql, &[]) {
        Err(error) => assert_eq!(error.message, expect, "{cql}"),
        Ok(done) => panic!("{cql}: {done}"),
    }
}

const T: &[&str] = &["INSERT INTO t (k, v, s) VALUES (1, 5, 'x')"];

#[test]
fn existence_of_a_row() {
    let insert = "INSERT INTO t (k, v) VALUES (1, 6) IF NOT EXISTS";
    check(&[], insert, "yes 00000001 [](live v=6)");
    check(T, insert, "no [applied]=false k=1 s='x' v=5");
    check(T, "UPDATE t SET v = 6 WHERE k = 1 IF EXISTS", "yes 00000001 [](v=6)");
    check(&[], "UPDATE t SET v = 6 WHERE k = 1 IF EXISTS", "no [applied]=false");
    // INV-cas-1: a deletion is older than the writes of the same round.
    check(T, "DELETE FROM t WHERE k = 1 IF EXISTS", "yes 00000001 deleted@999");
    check(T, "DELETE v FROM t WHERE k = 1 IF EXISTS", "yes 00000001 [](v=x@999)");
    check(
        T,
        "INSERT INTO t JSON '{\"k\": 1, \"v\": 2}' IF NOT EXISTS",
        "no [applied]=false k=1 s='x' v=5",
    );
}

#[test]
fn a_row_of_markers_alone_exists_and_has_null_columns() {
    let bare = &["INSERT INTO t (k) VALUES (1)"];
    check(
        bare,
        "INSERT INTO t (k) VALUES (1) IF NOT EXISTS",
        "no [applied]=false k=1 s=null v=null",
    );
    check(bare, "UPDATE t SET s = 'y' WHERE k = 1 IF v = null", "yes 00000001 [](s='y')");
    check(bare, "UPDATE t SET s = 'y' WHERE k = 1 IF v = 1", "no [applied]=false v=null");
    // Without any row, too.
    check(&[], "UPDATE t SET s = 'y' WHERE k = 1 IF v = null", "yes 00000001 [](s='y')");
    check(&[], "UPDATE t SET s = 'y' WHERE k = 1 IF v = 1", "no [applied]=false");
    check(&[], "UPDATE t SET s = 'y' WHERE k = 1 IF v != 1", "yes 00000001 [](s='y')");
}

#[test]
fn operators_on_single_values() {
    let yes = "yes 00000001 [](s='y')";
    let no = "no [applied]=false v=5";
    for (condition, holds) in [
        ("v = 5", true),
        ("v = 6", false),
        ("v != 5", false),
        ("v != 6", true),
        ("v < 5", false),
        ("v < 6", true),
        ("v <= 5", true),
        ("v <= 4", false),
        ("v > 5", false),
        ("v > 4", true),
        ("v >= 5", true),
        ("v >= 6", false),
        ("v IN (1, 5)", true),
        ("v IN (1, 2)", false),
        ("v IN ()", false),
        ("v IN (null)", false),
        ("v = null", false),
        ("v != null", true),
    ] {
        let cql = format!("UPDATE t SET s = 'y' WHERE k = 1 IF {condition}");
        check(T, &cql, if holds { yes } else { no });
    }
    for (condition, holds) in [("v IN (1, null)", true), ("v < 1", false), ("v != null", false)] {
        let cql = format!("UPDATE t SET s = 'y' WHERE k = 1 IF {condition}");
        check(&[], &cql, if holds { yes } else { "no [applied]=false" });
    }
    let both = "UPDATE t SET s = 'y' WHERE k = 1 IF v = 5 AND s = 'z'";
    check(T, both, "no [applied]=false v=5 s='x'");
    // A column that is named twice is shown once.
    let twice = "UPDATE t SET s = 'y' WHERE k = 1 IF v > 5 AND v < 9";
    check(T, twice, no);
}

#[test]
fn bound_values_of_conditions() {
    let int = |n: i32| n.to_be_bytes();
    let cql = "UPDATE t SET v = ? WHERE k = 1 IF v = ?";
    let seven = int(7);
    let five = int(5);
    let v = |a, b| try_run(T, cql, &[a, b]);
    let bytes = BoundValue::Bytes;
    assert_eq!(v(bytes(&seven), bytes(&five)).unwrap(), "yes 00000001 [](v=7)");
    assert_eq!(v(bytes(&seven), BoundValue::Null).unwrap(), "no [applied]=false v=5");
    // Nothing to write is a write of nothing.
    assert_eq!(v(BoundValue::Unset, bytes(&five)).unwrap(), "yes 00000001");
    let unset = v(bytes(&seven), BoundValue::Unset).unwrap_err();
    assert_eq!(unset.message, "Invalid 'unset' value in condition");

    let within = "UPDATE t SET v = 1 WHERE k = 1 IF v IN ?";
    let list = [&2i32.to_be_bytes()[..], &4i32.to_be_bytes(), &5i32.to_be_bytes()].concat();
    let list = [&list[..], &4i32.to_be_bytes(), &8i32.to_be_bytes()].concat();
    assert_eq!(try_run(T, within, &[bytes(&list)]).unwrap(), "yes 00000001 [](v=1)");
    let null = try_run(T, within, &[BoundValue::Null]).unwrap_err();
    assert_eq!(null.message, "Invalid null list in IN condition");
    let unset = try_run(T, within, &[BoundValue::Unset]).unwrap_err();
    assert_eq!(unset.message, "Invalid 'unset' value in condition");
}

const M: &[&str] = &["INSERT INTO m (k, l, s, m, fl, u, fu) VALUES (1, [1, 2], {'a', 'b'}, \
                      {'x': 1, 'y': 2}, [3, 4], {street: 'st', zip: 9}, {street: 'fs', zip: 8})"];

#[test]
fn conditions_on_collections_their_elements_and_fields() {
    for (condition, holds) in [
        ("l = [1, 2]", true),
        ("l = [1]", false),
        ("l != [1]", true),
        ("l > [1]", true),
        ("l < [1, 3]", true),
        ("l >= [1, 2]", true),
        ("l = []", false),
        ("l != null", true),
        ("l IN ([1], [1, 2])", true),
        ("l CONTAINS 2", true),
        ("l CONTAINS 3", false),
        ("l[0] = 1", true),
        ("l[1] > 2", false),
        ("l[2] = null", true),
        ("l[1] IN (2, 3)", true),
        ("s = {'b', 'a'}", true),
        ("s < {'a', 'c'}", true),
        ("s CONTAINS 'b'", true),
        ("m = {'y': 2, 'x': 1}", true),
        ("m = {'y': 2, 'x': 2}", false),
        ("m CONTAINS 2", true),
        ("m CONTAINS KEY 'z'", false),
        ("m CONTAINS KEY 'x'", true),
        ("m['x'] = 1", true),
        ("m['z'] = null", true),
        ("m['z'] != 1", true),
        ("m['y'] < 2", false),
        ("fl = [3, 4]", true),
        ("fl[1] = 4", true),
        ("fl[2] = null", true),
        ("fl CONTAINS 3", true),
        ("u.zip = 9", true),
        ("u.street != 'st'", false),
        ("u = {street: 'st', zip: 9}", true),
        ("fu.zip > 7", true),
        ("fu = {street: 'fs', zip: 7}", false),
        ("d = null", true),
        ("b != null", false),
    ] {
        let cql = format!("UPDATE m SET d = 1.0 WHERE k = 1 IF {condition}");
        let done = try_run(M, &cql, &[]).expect(condition);
        assert_eq!(done.starts_with("yes "), holds, "{condition}: {done}");
    }
    check(
        M,
        "UPDATE m SET d = 1.0 WHERE k = 1 IF u.zip = 1 AND m['x'] = 1 AND m['y'] = 1",
        "no [applied]=false u={street: 'st', zip: 9} m={'x': 1, 'y': 2}",
    );
    // A whole collection without elements is empty, and null.
    for condition in ["l = []", "l = null", "s = {}", "m != {'x': 1}", "l[0] = null"] {
        let cql = format!("UPDATE m SET d = 1.0 WHERE k = 1 IF {condition}");
        check(&[], &cql, "yes 00000001 [](d=1.0)");
    }
}

#[test]
fn comparisons_that_make_no_sense() {
    let on = |condition: &str| format!("UPDATE m SET d = 1.0 WHERE k = 1 IF {condition}");
    for (condition, message) in [
        ("d < null", "Invalid comparison with null for operator \"<\""),
        ("l > null", "Invalid comparison with null for operator \">\""),
        ("l CONTAINS null", "Invalid comparison with null for operator \"CONTAINS\""),
        ("l < []", "Invalid comparison with an empty list for operator \"<\""),
        ("m >= {}", "Invalid comparison with an empty map for operator \">=\""),
        ("l[null] = 1", "Invalid null value for list element access"),
        ("m[null] = 1", "Invalid null value for map element access"),
        ("l[-1] = 1", "Invalid negative list index -1"),
    ] {
        check_error(M, &on(condition), message);
    }
    for (condition, message) in [
        ("k = 1", "PRIMARY KEY column 'k' cannot have IF conditions"),
        ("s['a'] = 1", "Invalid element access syntax for set column s"),
        ("d[0] = 1", "Invalid element access syntax for non-collection column d"),
        ("u.nope = 1", "Unknown field nope for column u"),
        ("d CONTAINS 1", "Cannot use CONTAINS on non-collection column d"),
        ("l CONTAINS KEY 1", "Cannot use CONTAINS KEY on non-map column l"),
        ("nope = 1", "Undefined column name nope in table ks.m"),
    ] {
        check_error(M, &on(condition), message);
    }
}

const C: &[&str] = &[
    "INSERT INTO c (a, b, c1, c2, v) VALUES (1, 'p', 1, 'q', 4)",
    "INSERT INTO c (a, b, c1, c2, v) VALUES (1, 'p', 2, 'q', 5)",
    "INSERT INTO c (a, b, st) VALUES (1, 'p', 3)",
];
const KEY: &str = "0004000000010000017000";

#[test]
fn conditions_on_static_columns() {
    let alone = "UPDATE c SET st = 4 WHERE a = 1 AND b = 'p' IF st = 3";
    check(C, alone, &format!("yes {KEY} static(st=4)"));
    check(&[], alone, "no [applied]=false");
    // Rows without static content: the partition exists.
    check(&C[..1], alone, "no [applied]=false st=null");
    check(
        &C[2..],
        "UPDATE c SET st = 4 WHERE a = 1 AND b = 'p' IF st = 2",
        "no [applied]=false st=3",
    );
    let of_row = "UPDATE c SET v = 9 WHERE a = 1 AND b = 'p' AND c1 = 1 AND c2 = 'q' IF st = 3";
    check(C, of_row, &format!("yes {KEY} [1,'q'](v=9)"));
    let both =
        "UPDATE c SET v = 9 WHERE a = 1 AND b = 'p' AND c1 = 2 AND c2 = 'q' IF st = 3 AND v = 4";
    check(C, both, "no [applied]=false v=5 st=3");
    let exists = "UPDATE c SET st = 4 WHERE a = 1 AND b = 'p' IF EXISTS";
    check(C, exists, &format!("yes {KEY} static(st=4)"));
    check(&C[..1], exists, "no [applied]=false a=1 b='p' c1=1 c2='q' st=null v=null");
    let fresh = "INSERT INTO c (a, b, st) VALUES (1, 'p', 1) IF NOT EXISTS";
    check(&C[..1], fresh, &format!("yes {KEY} static(st=1)"));
    check(&C[2..], fresh, "no [applied]=false a=1 b='p' c1=null c2=null st=3 v=null");
    check(
        C,
        "DELETE st FROM c WHERE a = 1 AND b = 'p' IF st = 3",
        &format!("yes {KEY} static(st=x@999)"),
    );
    // The static row is not read for a row that does not ask for it.
    let row = "INSERT INTO c (a, b, c1, c2) VALUES (1, 'p', 1, 'q') IF NOT EXISTS";
    check(C, row, "no [applied]=false a=1 b='p' c1=1 c2='q' st=null v=4");
}

#[test]
fn a_conditional_delete_names_its_row() {
    let key = "a = 1 AND b = 'p'";
    let on = |cql: &str| cql.replace("KEY", key);
    check_error(
        C,
        &on("DELETE FROM c WHERE KEY AND c1 = 1 IF EXISTS"),
        "DELETE statements must restrict all PRIMARY KEY columns with equality relations in order \
         to delete non static columns",
    );
    check_error(
        C,
        &on("DELETE st FROM c WHERE KEY IF v = 1"),
        "DELETE statements must restrict all PRIMARY KEY columns with equality relations in order \
         to use IF condition on non static columns",
    );
    check_error(
        C,
        &on("DELETE FROM c WHERE KEY AND c1 = 1 AND c2 IN ('q', 'r') IF EXISTS"),
        "IN on the clustering key columns is not supported with conditional deletions",
    );
    check_error(
        C,
        &on("UPDATE c SET v = 1 WHERE a IN (1, 2) AND b = 'p' AND c1 = 1 AND c2 = 'q' IF EXISTS"),
        "IN on the partition key is not supported with conditional updates",
    );
    check_error(
        C,
        &on("UPDATE c SET st = 1 WHERE KEY IF v = 1"),
        "Some clustering keys are missing: c1, c2",
    );
    for cql in [
        "INSERT INTO t (k) VALUES (1) IF NOT EXISTS USING TIMESTAMP 1",
        "UPDATE t USING TIMESTAMP 1 SET v = 1 WHERE k = 1 IF v = 2",
        "DELETE FROM t USING TIMESTAMP 1 WHERE k = 1 IF EXISTS",
    ] {
        check_error(T, cql, "Cannot provide custom timestamp for conditional updates");
    }
}

#[test]
fn what_is_written_may_depend_on_what_is_there() {
    let done = try_run(M, "UPDATE m SET l[1] = 7 WHERE k = 1 IF l[1] = 2", &[]).unwrap();
    assert!(done.starts_with("yes 00000001 [](l=["), "{done}");
    assert!(done.ends_with("7])"), "{done}");
    check_error(
        M,
        "UPDATE m SET l[2] = 7 WHERE k = 1 IF l[1] = 2",
        "List index 2 out of bound, list has size 2",
    );
    let discard = try_run(M, "UPDATE m SET l = l - [1, 2] WHERE k = 1 IF EXISTS", &[]).unwrap();
    assert!(discard.contains("l=[x@999 x@999]"), "{discard}");
    check(
        M,
        "UPDATE m SET l = [8], s = s + {'c'} WHERE k = 1 IF l CONTAINS 1",
        "yes 00000001 [](l=[x@999 8] s=['c'])",
    );
    check(T, "UPDATE t SET v = v + 2 WHERE k = 1 IF v = 5", "yes 00000001 [](v=7)");
    check(T, "UPDATE t SET s = s + 'yz' WHERE k = 1 IF EXISTS", "yes 00000001 [](s='xyz')");
    check(&[], "UPDATE t SET v = v + 2 WHERE k = 1 IF v = null", "yes 00000001");
    check(
        T,
        "UPDATE t USING TTL 9 SET v = 6 WHERE k = 1 IF v = 5",
        "yes 00000001 [](v=6 ttl 9 at 1700000009)",
    );
    // The read also names the columns that are changed.
    check(M, "UPDATE m SET l[0] = 7 WHERE k = 1 IF d = 1.0", "no [applied]=false d=null");
}

#[test]
fn batches_of_one_partition() {
    let key = "a = 1 AND b = 'p'";
    let run =
        |statements: &str| format!("BEGIN BATCH {} APPLY BATCH", statements.replace("KEY", key));
    let update = "UPDATE c SET v = 7 WHERE KEY AND c1 = 1 AND c2 = 'q' IF v = 4; \
                  UPDATE c SET v = 8 WHERE KEY AND c1 = 2 AND c2 = 'q' IF v = 5; \
                  INSERT INTO c (a, b, c1, c2, v) VALUES (1, 'p', 3, 'r', 6);";
    check(C, &run(update), &format!("yes {KEY} [1,'q'](v=7) [2,'q'](v=8) [3,'r'](live v=6)"));
    check(
        C,
        &run(&update.replace("v = 5", "v = 6")),
        "no [applied]=false a=1 b='p' c1=1 c2='q' v=4; \
         [applied]=false a=1 b='p' c1=2 c2='q' v=5",
    );
    check(
        &C[..1],
        &run(&update.replace("v = 5", "v = 6")),
        "no [applied]=false a=1 b='p' c1=1 c2='q' v=4",
    );
    // One statement requires existence, so all columns are shown.
    check(
        C,
        &run("INSERT INTO c (a, b, c1, c2) VALUES (1, 'p', 2, 'q') IF NOT EXISTS; \
              UPDATE c SET st = 1 WHERE KEY IF st = 3;"),
        "no [applied]=false a=1 b='p' c1=2 c2='q' st=3 v=5",
    );
    // A deleted row hides the writes of the same batch to it, a deleted range does not; timestamps
    // of statements do not count.
    check(
        C,
        &run("DELETE FROM c WHERE KEY AND c1 = 1 AND c2 = 'q' IF EXISTS; \
              INSERT INTO c (a, b, c1, c2, v) VALUES (1, 'p', 1, 'q', 6) USING TIMESTAMP 5; \
              INSERT INTO c (a, b, c1, c2, v) VALUES (1, 'p', 6, 'q', 6) USING TIMESTAMP 5; \
              DELETE FROM c WHERE KEY AND c1 > 5;"),
        &format!("yes {KEY} [1,'q'](deleted@999) [6,'q'](live v=6) range(5+ +)@999"),
    );
    check(
        C,
        &run("UPDATE c SET v = 7 WHERE KEY AND c1 = 1 AND c2 = 'q' IF v = 4; \
              UPDATE c SET v = 8 WHERE KEY AND c1 = 1 AND c2 = 'q' IF v > 4;"),
        "no [applied]=false a=1 b='p' c1=1 c2='q' v=4",
    );
}

#[test]
fn batches_that_are_refused() {
    let refuse = |statements: &str, message: &str| {
        check_error(T, &format!("BEGIN BATCH {statements} APPLY BATCH"), message);
    };
    let conditional = "UPDATE t SET v = 1 WHERE k = 1 IF v = 5;";
    refuse(
        &format!("{conditional} UPDATE t SET v = 1 WHERE k = 2;"),
        "Batch with conditions cannot span multiple partitions",
    );
    refuse(
        &format!("{conditional} UPDATE t SET v = 1 WHERE k IN (1, 2);"),
        "Batch with conditions cannot span multiple partitions (you cannot use IN on the \
         partition key)",
    );
    refuse(
        &format!("{conditional} UPDATE x SET v = 'a' WHERE k = 'b';"),
        "Batch with conditions cannot span multiple tables",
    );
    refuse(
        &format!("{conditional} INSERT INTO t (k) VALUES (1) IF NOT EXISTS;"),
        "Cannot mix IF conditions and IF NOT EXISTS for the same row",
    );
    refuse(
        &format!("{conditional} UPDATE t SET v = 2 WHERE k = 1 IF EXISTS;"),
        "Cannot mix IF conditions and IF EXISTS for the same row",
    );
    refuse(
        &format!("INSERT INTO t (k) VALUES (1) IF NOT EXISTS; {conditional}"),
        "Cannot mix IF conditions and IF NOT EXISTS for the same row",
    );
    refuse(
        "INSERT INTO t (k) VALUES (1) IF NOT EXISTS; DELETE FROM t WHERE k = 1 IF EXISTS;",
        "Cannot mix IF EXISTS and IF NOT EXISTS conditions for the same row",
    );
    check_error(
        T,
        &format!("BEGIN BATCH USING TIMESTAMP 1 {conditional} APPLY BATCH"),
        "Cannot provide custom timestamp for conditional BATCH",
    );
    let schema = schema_of(TABLES);
    let plans =
        [conditional, "INSERT INTO x (k) VALUES ('a')"].map(|s| plan_of(&schema, s).unwrap());
    let statements = plans.iter().filter_map(|p| match &p.kind {
        PlanKind::Modify(modify) => Some(modify),
        _ => None,
    });
    let error = check_conditional_batch(BatchKind::Logged, statements).unwrap_err();
    assert_eq!(error.message, "Batch with conditions cannot span multiple tables");
    // The same condition twice is one.
    let twice = "BEGIN BATCH INSERT INTO t (k, v) VALUES (1, 2) IF NOT EXISTS; \
                 INSERT INTO t (k, s) VALUES (1, 'z') IF NOT EXISTS; APPLY BATCH";
    check(&[], twice, "yes 00000001 [](live s='z' v=2)");
}

#[test]
fn a_condition_is_never_left_out() {
    let schema = schema_of(TABLES);
    let uuids = UuidSource::new(1);
    let options = options(&uuids);
    let limits = PlanLimits::default();
    let text = "a conditional statement cannot be carried out without its condition";
    let mut out = Vec::new();
    let plan = plan_of(&schema, "INSERT INTO t (k) VALUES (1) IF NOT EXISTS").unwrap();
    let PlanKind::Modify(modify) = &plan.kind else { panic!() };
    assert_eq!(modify.bind(&[], &options, &mut out).unwrap_err().message, text);
    let batch = "BEGIN BATCH DELETE FROM t WHERE k = 1 IF EXISTS; APPLY BATCH";
    let plan = plan_of(&schema, batch).unwrap();
    let PlanKind::Batch(batch) = &plan.kind else { panic!() };
    assert_eq!(batch.bind(&[], &options, &limits, &mut out).unwrap_err().message, text);
    assert!(out.is_empty());
}

#[test]
fn no_statement_and_no_value_breaks_binding() {
    let corpus: &[&[u8]] = &[
        b"INSERT INTO t (k, c, d, l, e, m, u, v) VALUES (?, ?, ?, ?, ?, ?, ?, ?)\0\x04\0\0\0\x01\x01a\x01\x05\xfe\xff\x04\0\0\0\0\x05",
        b"UPDATE t USING TTL ? AND TIMESTAMP ? SET l = l + ?, e = e - {'a'}, m['x'] = 1d, u.a = 'b' WHERE k IN (1, 2) AND (c, d) IN ((?, 5), ('a', 6))\0\x04\0\0\0\x09\x08\0\0\0\0\0\0\0\x01\x0c\0\0\0\x01\0\0\0\x04\0\0\0\x07\x01z",
        b"DELETE m[?], e['q'], l FROM t WHERE k = 1 AND c = ? AND d = 4\0\x01a\x01b",
        b"UPDATE t SET l[?] = 1, l = l - [2] WHERE k = 1 AND c IN ('a', ?) AND d = 4\0\x04\0\0\0\x01\x01b",
        b"DELETE FROM t WHERE k = ? AND c > ? AND c <= 'z'\0\x04\0\0\0\x01\x02ab",
        b"BEGIN BATCH INSERT INTO t (k, s) VALUES (1, ?); UPDATE t SET f = ?, t = (1, 1.5), x = ['a', 'b'] WHERE k = 1 AND c = 'a' AND d = 1; APPLY BATCH\0\x04\0\0\0\x01\x04\0\0\0\0",
        b"UPDATE t SET l[0] = 1, u.a = ? WHERE k = 1 AND c = 'a' AND d = 4 IF l[?] = 1 AND m['x'] IN ? AND u.a != ?\0\x01z\x04\0\0\0\0\x04\0\0\0\0\x01z",
        b"BEGIN BATCH UPDATE t SET s = 1 WHERE k = ? IF s = null; DELETE l FROM t WHERE k = 1 AND c = 'a' AND d = 1 IF l CONTAINS ? AND e > {'a'}; INSERT INTO t (k, c, d) VALUES (1, 'b', 2) IF NOT EXISTS; APPLY BATCH\0\x04\0\0\0\x01\x04\0\0\0\0",
        b"INSERT INTO t JSON ? DEFAULT UNSET\0\x20{\"k\": 1, \"c\": \"a\", \"d\": 5, \"l\": [1]}",
    ];
    cql_testing::mutate(corpus, 10_000, crate::fuzz::fuzz_modify);
}
