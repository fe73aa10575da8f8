use std::sync::Arc;

use cql_syntax::ast::Statement;
use data::{ColumnRef, MutationRef};
use schema::Schema;
use stdx::{DeletionSeconds, TimestampMicros, WallMicros};
use types::CqlType;

use super::FoundLists;
use crate::plan::*;
use crate::{PlanError, PlanErrorCode};
use cql_testing::show;
pub(crate) use cql_testing::{NOW, TABLES, schema_of};

fn parse(cql: &str) -> Statement {
    cql_syntax::parse(cql).unwrap_or_else(|e| panic!("{cql}: {e:?}"))
}

pub(crate) fn plan_of(schema: &Arc<Schema>, cql: &str) -> Result<Plan, PlanError> {
    let limits = PlanLimits::default();
    let cx =
        PlanContext { schema, keyspace: Some("ks"), limits: &limits, now: NOW, functions: None };
    plan(&parse(cql), &cx)
}

fn options(uuids: &UuidSource) -> ExecuteOptions<'_> {
    ExecuteOptions {
        now: NOW,
        clock: NOW,
        default_timestamp: TimestampMicros(1000),
        page_size: None,
        paging_state: None,
        protocol_version: 5,
        uuids,
        watch: None,
    }
}

/// Encodes the writes of a statement with bound values.
fn bind(
    schema: &Arc<Schema>,
    cql: &str,
    values: &[BoundValue<'_>],
) -> Result<Vec<String>, PlanError> {
    let plan = plan_of(schema, cql)?;
    let uuids = UuidSource::new(7);
    let options = options(&uuids);
    let mut out = vec![0xee];
    let mutations = match &plan.kind {
        PlanKind::Modify(modify) => modify.bind(values, &options, &mut out)?,
        PlanKind::Batch(batch) => {
            batch.bind(values, &options, &PlanLimits::default(), &mut out)?.mutations
        }
        other => panic!("{cql}: {other:?}"),
    };
    Ok(mutations.iter().map(|m| show(schema, &out[m.range.clone()])).collect())
}

pub(crate) fn check(cql: &str, values: &[BoundValue<'_>], expect: &[&str]) {
    let schema = schema_of(TABLES);
    match bind(&schema, cql, values) {
        Ok(found) => assert_eq!(found, expect, "{cql}"),
        Err(error) => panic!("{cql}: {error}"),
    }
}

pub(crate) fn check_error(cql: &str, values: &[BoundValue<'_>], expect: &str) {
    let schema = schema_of(TABLES);
    match bind(&schema, cql, values) {
        Ok(found) => panic!("{cql}: accepted as {found:?}"),
        Err(error) => assert_eq!(error.message, expect, "{cql}"),
    }
}

fn int(n: i32) -> [u8; 4] {
    n.to_be_bytes()
}

/// INV-modify-1.
#[test]
fn insert_writes_liveness_and_cells_in_order_of_id() {
    check("INSERT INTO t (s, v, k) VALUES ('x', 5, 1)", &[], &["00000001 [](live s='x' v=5)"]);
    check(
        "INSERT INTO t (k, v, s) VALUES (?, ?, ?)",
        &[BoundValue::Bytes(&int(1)), BoundValue::Null, BoundValue::Unset],
        &["00000001 [](live v=x)"],
    );
    check("INSERT INTO t (k) VALUES (1)", &[], &["00000001 [](live)"]);
    check(
        "INSERT INTO c (a, b, c1, c2, st, v) VALUES (1, 'p', 2, 'q', 3, 4)",
        &[],
        &["0004000000010000017000 static(st=3) [2,'q'](live v=4)"],
    );
    check(
        "INSERT INTO c (a, b, st) VALUES (1, 'p', 3)",
        &[],
        &["0004000000010000017000 static(st=3)"],
    );
}

#[test]
fn ttl_and_timestamp_come_from_using_then_from_the_table() {
    check(
        "INSERT INTO t (k, v) VALUES (1, 2) USING TTL 10 AND TIMESTAMP 77",
        &[],
        &["00000001 [](live ttl 10 v=2@77 ttl 10 at 1700000010)"],
    );
    check(
        "INSERT INTO x (k, v) VALUES ('a', 'b')",
        &[],
        &["61 [](live ttl 60 v='b' ttl 60 at 1700000060)"],
    );
    check("INSERT INTO x (k, v) VALUES ('a', 'b') USING TTL 0", &[], &["61 [](live v='b')"]);
    check("UPDATE t USING TTL ? SET v = 1 WHERE k = 1", &[BoundValue::Null], &["00000001 [](v=1)"]);
    check_error(
        "UPDATE t USING TTL -1 SET v = 1 WHERE k = 1",
        &[],
        "A TTL must be greater or equal to 0, but was -1",
    );
    check_error(
        "UPDATE t USING TTL 630720001 SET v = 1 WHERE k = 1",
        &[],
        "ttl is too large. requested (630720001) maximum (630720000)",
    );
    check_error(
        "UPDATE t USING TTL 630720000 SET v = 1 WHERE k = 1",
        &[],
        "Request on table ks.t with ttl of 630720000 seconds exceeds maximum supported expiration \
         date of 2038-01-19T03:14:06+00:00. In order to avoid this use a lower TTL, change the \
         expiration date overflow policy or upgrade to a version where this limitation is fixed. \
         See CASSANDRA-14092 and CASSANDRA-14227 for more details.",
    );
    check_error(
        "UPDATE t USING TIMESTAMP ? SET v = 1 WHERE k = 1",
        &[BoundValue::Bytes(&i64::MIN.to_be_bytes())],
        "Out of bound timestamp, must be in [-9223372036854775807, 9223372036854775807]",
    );
}

#[test]
fn an_expiry_ends_where_the_files_of_the_cluster_can_say_it() {
    let limits = PlanLimits { expiry_max: DeletionSeconds::MAX_UNSIGNED, ..PlanLimits::default() };
    let schema = schema_of(TABLES);
    let bind = |text: &str, values: &[BoundValue<'_>], seconds: i64| {
        let cx = PlanContext {
            schema: &schema,
            keyspace: Some("ks"),
            limits: &limits,
            now: NOW,
            functions: None,
        };
        let plan = plan(&parse(text), &cx).unwrap();
        let PlanKind::Modify(plan) = &plan.kind else { panic!("{text}") };
        let uuids = UuidSource::new(7);
        let options = ExecuteOptions { now: WallMicros(seconds * 1_000_000), ..options(&uuids) };
        let mut out = Vec::new();
        let bound = plan.bind(values, &options, &mut out);
        let shown = bound.map(|m| m.iter().map(|m| show(&schema, &out[m.range.clone()])).collect());
        shown.map(|all: Vec<String>| all.join(" ")).map_err(|e| e.to_string())
    };
    let late = "INSERT INTO t (k, v) VALUES (1, 2) USING TTL 630720000 AND TIMESTAMP 7";
    let expect = "00000001 [](live ttl 630720000 v=2@7 ttl 630720000 at 2330720000)";
    assert_eq!(bind(late, &[], 1_700_000_000).unwrap(), expect);
    let last = "INSERT INTO t (k, v) VALUES (1, 2) USING TTL 100 AND TIMESTAMP 7";
    let expect = "00000001 [](live ttl 100 v=2@7 ttl 100 at 4294967293)";
    assert_eq!(bind(last, &[], 4_294_967_193).unwrap(), expect);
    let error = bind(last, &[], 4_294_967_194).unwrap_err();
    assert!(error.contains("expiration date of 2106-02-07T06:28:13+00:00."), "{error}");
    // The table's TTL in place of an unset one is not refused, but capped.
    let unset = "INSERT INTO x (k, v) VALUES ('a', 'b') USING TTL ?";
    let expect = "61 [](live ttl 60 v='b' ttl 60 at 4294967293)";
    assert_eq!(bind(unset, &[BoundValue::Unset], 4_294_967_290).unwrap(), expect);
}

/// INV-modify-2.
#[test]
fn update_sets_cells_without_liveness_on_every_row_named() {
    check(
        "UPDATE t SET v = 5, s = null WHERE k IN (2, 1, 2)",
        &[],
        &["00000001 [](s=x v=5)", "00000002 [](s=x v=5)"],
    );
    check(
        "UPDATE c SET v = 5 WHERE a = 1 AND b = 'p' AND c1 IN (2, 1) AND c2 = 'q'",
        &[],
        &["0004000000010000017000 [1,'q'](v=5) [2,'q'](v=5)"],
    );
    check(
        "UPDATE c SET v = 5 WHERE a = 1 AND b = 'p' AND (c1, c2) IN ((2, 'a'), (1, 'b'))",
        &[],
        &["0004000000010000017000 [1,'b'](v=5) [2,'a'](v=5)"],
    );
    check("UPDATE t SET v = ? WHERE k = 1", &[BoundValue::Unset], &[]);
}

#[test]
fn assignments_of_collections_become_cells_under_paths() {
    check(
        "INSERT INTO m (k, l, s, m, u) VALUES (1, [3, 1], {'b', 'a', 'b'}, {'y': 2, 'x': 1}, \
         {street: 's', zip: 7})",
        &[],
        &["00000001 [](live l=[x@999 3 1] m=[x@999 'x':1 'y':2] s=[x@999 'a' 'b'] \
           u=[x@999 street:'s' zip:7])"],
    );
    check(
        "UPDATE m SET s = s + {'z'}, m = m + {'a': 1} WHERE k = 1",
        &[],
        &["00000001 [](m=['a':1] s=['z'])"],
    );
    check(
        "UPDATE m SET s = s - {'z'}, m = m - {'a'} WHERE k = 1",
        &[],
        &["00000001 [](m=['a':x] s=[x'z'])"],
    );
    check(
        "UPDATE m SET m['b'] = 1, m['a'] = null WHERE k = 1",
        &[],
        &["00000001 [](m=['a':x 'b':1])"],
    );
    check("UPDATE m SET l = l + [1, 2] WHERE k = 1", &[], &["00000001 [](l=[1 2])"]);
    check("UPDATE m SET l = [1, 2] + l WHERE k = 1", &[], &["00000001 [](l=[1 2])"]);
    check("UPDATE m SET u.zip = 5 WHERE k = 1", &[], &["00000001 [](u=[zip:5])"]);
    check(
        "UPDATE m SET l = [], s = {}, m = null WHERE k = 1",
        &[],
        &["00000001 [](l=[x@999] m=[x@999] s=[x@999])"],
    );
    check(
        "UPDATE m SET fl = [1, 2], fu = {zip: 1}, t = (1, 'a') WHERE k = 1",
        &[],
        &["00000001 [](fl=[1, 2] fu={street: null, zip: 1} t=(1, 'a'))"],
    );
    check(
        "UPDATE m SET vec = [1.0, 2, 3.5] WHERE k = 1",
        &[],
        &["00000001 [](vec=[1.0, 2.0, 3.5])"],
    );
}

#[test]
fn bound_sets_and_maps_are_sorted_by_their_elements() {
    let set = types::wire::encode_collection(["b", "a", "b"]).unwrap_or_default();
    let map =
        types::wire::encode_map([("y", int(2)), ("x", int(1)), ("y", int(3))]).unwrap_or_default();
    check(
        "UPDATE m SET s = ?, m = ? WHERE k = 1",
        &[BoundValue::Bytes(&set), BoundValue::Bytes(&map)],
        &["00000001 [](m=[x@999 'x':1 'y':3] s=[x@999 'a' 'b'])"],
    );
}

#[test]
fn delete_removes_partitions_rows_ranges_columns_and_elements() {
    let p = "0004000000010000017000";
    let check = |rest: &str, expect: &str| {
        let expect = format!("{p} {expect}");
        check(&format!("DELETE {rest}"), &[], &[&expect]);
    };
    let w = "FROM c WHERE a = 1 AND b = 'p'";
    check(w, "deleted@1000");
    check(&format!("{w} AND c1 = 2 AND c2 = 'x'"), "[2,'x'](deleted@1000)");
    check(&format!("{w} AND c1 = 2"), "range(2- 2+)@1000");
    check(&format!("{w} AND c1 > 2 AND c1 <= 5"), "range(2+ 5+)@1000");
    check(&format!("{w} AND c1 = 2 AND c2 < 'x'"), "range(2- 2,'x'-)@1000");
    check(&format!("{w} AND (c1, c2) > (2, 'x')"), "range(2,'x'+ +)@1000");
    check(&format!("{w} AND (c1, c2) >= (2, 'x') AND (c1) < (5)"), "range(2,'x'- 5-)@1000");
    check(&format!("v {w} AND c1 = 2 AND c2 = 'x'"), "[2,'x'](v=x)");
    check(&format!("st {w}"), "static(st=x)");
    super::tests::check(
        "DELETE m['a'], s['b'], u.zip, l FROM m WHERE k = 1",
        &[],
        &["00000001 [](l=[x@1000] m=['a':x] s=[x'b'] u=[zip:x])"],
    );
    super::tests::check(
        "DELETE FROM r WHERE k = 1 AND c1 > 5",
        &[],
        &["00000001 range(- 5-)@1000"],
    );
    super::tests::check(
        "DELETE FROM r WHERE k = 1 AND c1 >= 5 AND c1 < 9",
        &[],
        &["00000001 range(9+ 5+)@1000"],
    );
    super::tests::check("DELETE FROM c WHERE a = 1 AND b = 'p' AND c1 > 5 AND c1 < 5", &[], &[]);
}

#[test]
fn where_clauses_are_refused_with_cassandras_texts() {
    let check = |cql: &str, expect: &str| check_error(cql, &[], expect);
    check(
        "UPDATE c SET v = 1 WHERE a = 1 AND c1 = 1 AND c2 = 'a'",
        "Some partition key parts are missing: b",
    );
    check(
        "UPDATE c SET v = 1 WHERE a = 1 AND b = 'p' AND c1 = 1",
        "Some clustering keys are missing: c2",
    );
    check("INSERT INTO c (a, b, v) VALUES (1, 'p', 1)", "Some clustering keys are missing: c1, c2");
    check("INSERT INTO c (b) VALUES ('p')", "Some partition key parts are missing: a");
    check("UPDATE t SET x = 1 WHERE k = 1", "Undefined column name x in table ks.t");
    check("UPDATE t SET v = 1 WHERE y = 1", "Undefined column name y in table ks.t");
    check("UPDATE t SET k = 1 WHERE k = 1", "PRIMARY KEY part k found in SET part");
    check(
        "UPDATE t SET v = 1 WHERE k = 1 AND v = 2",
        "Non PRIMARY KEY columns found in where clause: v ",
    );
    check(
        "UPDATE t SET v = 1 WHERE k > 1",
        "Only EQ and IN relation are supported on the partition key (unless you use the token() \
         function) for UPDATE statements",
    );
    check(
        "UPDATE t SET v = 1 WHERE token(k) = 1",
        "The token function cannot be used in WHERE clauses for UPDATE statements",
    );
    check(
        "UPDATE c SET v = 1 WHERE a = 1 AND b = 'p' AND c1 = 1 AND c2 > 'a'",
        "Slice restrictions are not supported on the clustering columns in UPDATE statements",
    );
    check(
        "UPDATE c SET st = 1 WHERE a = 1 AND b = 'p' AND c1 = 1",
        "Invalid restrictions on clustering columns since the UPDATE statement modifies only \
         static columns",
    );
    check(
        "DELETE FROM c WHERE a = 1 AND b = 'p' AND c2 = 'a'",
        "PRIMARY KEY column \"c2\" cannot be restricted as preceding column \"c1\" is not \
         restricted",
    );
    check(
        "DELETE FROM c WHERE a = 1 AND b = 'p' AND c1 > 1 AND c2 = 'a'",
        "Clustering column \"c2\" cannot be restricted (preceding column \"c1\" is restricted by \
         a non-EQ relation)",
    );
    check(
        "DELETE v FROM c WHERE a = 1 AND b = 'p' AND c1 > 1",
        "Range deletions are not supported for specific columns",
    );
    check(
        "DELETE FROM t WHERE k = 1 AND k = 2",
        "k cannot be restricted by more than one relation if it includes an Equal",
    );
    check(
        "DELETE FROM c WHERE a = 1 AND b = 'p' AND c1 > 1 AND c1 >= 2",
        "More than one restriction was found for the start bound on c1",
    );
    check(
        "DELETE k FROM t WHERE k = 1",
        "Invalid identifier k for deletion (should not be a PRIMARY KEY part)",
    );
    check("INSERT INTO t (k, v) VALUES (1)", "Unmatched column names/values");
    check("INSERT INTO t (k, k) VALUES (1, 1)", "The column names contains duplicates");
    check("UPDATE nope SET v = 1 WHERE k = 1", "table nope does not exist");
    check("UPDATE no.t SET v = 1 WHERE k = 1", "keyspace no does not exist");
}

#[test]
fn terms_are_refused_with_cassandras_texts() {
    let check = |cql: &str, expect: &str| check_error(cql, &[], expect);
    check(
        "INSERT INTO t (k) VALUES ('abc')",
        "Invalid STRING constant (abc) for \"k\" of type int",
    );
    check(
        "INSERT INTO t (k, s) VALUES (1, 5)",
        "Invalid INTEGER constant (5) for \"s\" of type text",
    );
    check("INSERT INTO t (k) VALUES (99999999999)", "Unable to make int from '99999999999'");
    check("INSERT INTO t (k) VALUES (null)", "Invalid null value in condition for column k");
    check(
        "INSERT INTO m (k, s) VALUES (1, [1])",
        "Unexpected receiver type 'set<text>'; only list and vector are expected",
    );
    check("INSERT INTO m (k, l) VALUES (1, {1})", "Invalid set literal for l of type list<int>");
    check(
        "INSERT INTO m (k, l) VALUES (1, ['a'])",
        "Invalid list literal for l: value 'a' is not of type int",
    );
    check(
        "INSERT INTO m (k, m) VALUES (1, {'a': 'b'})",
        "Invalid map literal for m: value 'b' is not of type int",
    );
    // The error lists the fields of a literal in the order of a hash map.
    check(
        "INSERT INTO m (k, l) VALUES (1, [{c: 'c', b: {}, a: 1}])",
        "Invalid list literal for l: value {a: 1, b: {}, c: 'c'} is not of type int",
    );
    check("INSERT INTO m (k, l) VALUES (1, [null])", "null is not supported inside collections");
    check(
        "INSERT INTO m (k, l) VALUES (1, [?])",
        "Invalid list literal for l: bind variables are not supported inside collection literals",
    );
    check(
        "INSERT INTO m (k, fu) VALUES (1, {zip: 'a'})",
        "Invalid user type literal for fu: field zip is not of type int",
    );
    check(
        "INSERT INTO m (k, fu) VALUES (1, {nope: 1})",
        "Unknown field 'nope' in value of user defined type address",
    );
    check(
        "INSERT INTO m (k, t) VALUES (1, (1, 'a', 2))",
        "Invalid tuple literal for t: too many elements. Type frozen<tuple<int, text>> expects 2 \
         but got 3",
    );
    check(
        "INSERT INTO m (k, vec) VALUES (1, [1, 2])",
        "Invalid vector literal for vec of type vector<float, 3>; expected 3 elements, but given 2",
    );
    check(
        "UPDATE t SET v = v + 1 WHERE k = 1",
        "Invalid operation (v = v + 1) for non counter column v",
    );
    check("INSERT INTO t (k, v) VALUES (1, nope())", "Unknown function nope called");
    check(
        "INSERT INTO t (k, v) VALUES (1, now())",
        "Type error: cannot assign result of function system.now (type timeuuid) to v (type int)",
    );
    check_error(
        "INSERT INTO t (k) VALUES (?)",
        &[BoundValue::Bytes(&[1, 2])],
        "Expected 4 or 0 byte int (2)",
    );
    check_error(
        "INSERT INTO t (k) VALUES (?)",
        &[BoundValue::Unset],
        "Invalid unset value for column k",
    );
    check_error("INSERT INTO x (k) VALUES (?)", &[BoundValue::Bytes(b"")], "Key may not be empty");
}

#[test]
fn keys_of_65535_bytes_are_accepted_and_longer_ones_refused() {
    let schema = schema_of(TABLES);
    let insert = |len: usize| {
        let key = vec![b'k'; len];
        bind(&schema, "INSERT INTO x (k) VALUES (?)", &[BoundValue::Bytes(&key)])
    };
    assert!(insert(65_535).is_ok());
    assert_eq!(
        insert(65_536),
        Err(PlanError::invalid("Key length of 65536 is longer than maximum of 65535"))
    );
}

#[test]
fn one_in_list_has_no_limit_of_values_and_combinations_of_several_have() {
    let schema = schema_of(TABLES);
    let list = |count: usize| (0..count).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    let keys = |cql: &str, count: usize| {
        bind(&schema, &cql.replace('X', &list(count)), &[]).map(|written| written.len())
    };
    assert_eq!(keys("DELETE FROM t WHERE k IN (X)", 70_000), Ok(70_000));
    assert_eq!(keys("UPDATE t SET v = 1 WHERE k IN (X)", 70_000), Ok(70_000));
    // One partition: one mutation.
    assert_eq!(keys("DELETE FROM r WHERE k = 1 AND c1 IN (X)", 70_000), Ok(1));
    assert_eq!(keys("DELETE FROM r WHERE k = 1 AND c1 IN (X) AND c2 = 7", 70_000), Ok(1));
    assert_eq!(keys("UPDATE r SET v = 1 WHERE k = 1 AND c1 = 7 AND c2 IN (X)", 70_000), Ok(1));
    assert_eq!(keys("DELETE FROM r WHERE k = 1 AND c1 IN (X) AND c2 IN (X)", 255), Ok(1));
    let many = keys("DELETE FROM r WHERE k = 1 AND c1 IN (X) AND c2 IN (X)", 256);
    assert_eq!(
        many.unwrap_err().message,
        "IN relations of one statement name more than 65535 keys"
    );
    // The memory of one list is bounded too.
    let wide = "x".repeat(600_000);
    let wide = (0..60).map(|n| format!("'{n}{wide}'")).collect::<Vec<_>>().join(",");
    let error = bind(&schema, &format!("DELETE FROM x WHERE k IN ({wide})"), &[]).unwrap_err();
    assert!(error.message.ends_with("take more than 33554432 bytes"), "{}", error.message);
}

#[test]
fn values_of_a_clustering_are_65535_bytes_together_at_most_in_every_statement() {
    let tables = [
        TABLES,
        &[
            "CREATE TABLE ks.l1 (k int, c text, v int, PRIMARY KEY (k, c))",
            "CREATE TABLE ks.l2 (k int, c text, d text, v int, s int static, PRIMARY KEY (k, c, d))",
            "CREATE TABLE ks.ln (k int, c text, n counter, PRIMARY KEY (k, c))",
        ],
    ];
    let schema = schema_of(&tables.concat());
    // `X` is a value of that many bytes, `Y` one of 40,000.
    let check = |cql: &str, given: usize| {
        let text = cql.replace('X', &"x".repeat(given)).replace('Y', &"y".repeat(40_000));
        bind(&schema, &text, &[])
    };
    let too_long = |bytes: usize| {
        let text = format!("Key length of {bytes} is longer than maximum of 65535");
        Err(PlanError::invalid(text))
    };
    for cql in [
        "INSERT INTO l1 (k, c, v) VALUES (1, 'X', 1)",
        "INSERT INTO l1 JSON '{\"k\": 1, \"c\": \"X\", \"v\": 1}'",
        "UPDATE l1 SET v = 1 WHERE k = 1 AND c = 'X'",
        "UPDATE l1 SET v = 1 WHERE k = 1 AND c IN ('a', 'X')",
        "DELETE FROM l1 WHERE k = 1 AND c = 'X'",
        "DELETE v FROM l1 WHERE k = 1 AND c = 'X'",
        "DELETE FROM l1 WHERE k = 1 AND c IN ('X', 'b')",
        "DELETE FROM l1 WHERE k = 1 AND c > 'X'",
        "DELETE FROM l1 WHERE k = 1 AND c <= 'X'",
        "DELETE FROM l2 WHERE k = 1 AND c = 'X'",
        "DELETE FROM l2 WHERE k = 1 AND c = '' AND d > 'X'",
        "UPDATE ln SET n = n + 1 WHERE k = 1 AND c = 'X'",
        "INSERT INTO cde (k, c, v) VALUES (1, 'X', 1)",
    ] {
        assert!(check(cql, 65_535).is_ok(), "{cql}: {:?}", check(cql, 65_535).err());
        assert_eq!(check(cql, 65_536), too_long(65_536), "{cql}");
    }
    for cql in [
        "INSERT INTO l2 (k, c, d, v) VALUES (1, 'X', 'Y', 1)",
        "DELETE FROM l2 WHERE k = 1 AND (c, d) > ('X', 'Y')",
        "DELETE FROM l2 WHERE k = 1 AND c = 'X' AND d < 'Y'",
        "UPDATE l2 SET v = 1 WHERE k = 1 AND (c, d) IN (('a', 'b'), ('X', 'Y'))",
    ] {
        assert!(check(cql, 25_535).is_ok(), "{cql}: {:?}", check(cql, 25_535).err());
        assert_eq!(check(cql, 40_000), too_long(80_000), "{cql}");
    }
    let batch = "BEGIN BATCH INSERT INTO l1 (k, c) VALUES (1, 'a'); INSERT INTO l1 (k, c) VALUES (1, 'X') \
                 apply batch";
    assert_eq!(check(batch, 65_536), too_long(65_536));
    // Values of other columns are not limited, nor those of collections.
    assert!(check("INSERT INTO x (k, v) VALUES ('a', 'X')", 70_000).is_ok());
    assert!(check("UPDATE m SET s = s + {'X'} WHERE k = 1", 70_000).is_ok());
}

#[test]
fn a_partition_key_is_told_by_the_values_of_all_its_columns() {
    let schema =
        schema_of(&[TABLES[0], "CREATE TABLE ks.k2 (a text, b text, v int, PRIMARY KEY ((a, b)))"]);
    for (a, b, told) in [
        (65_529, 0, None),
        // With the lengths of both values.
        (65_530, 0, Some(65_536)),
        (40_000, 40_000, Some(80_000)),
        (70_000, 1, Some(70_001)),
    ] {
        let cql =
            format!("INSERT INTO k2 (a, b) VALUES ('{}', '{}')", "a".repeat(a), "b".repeat(b));
        let expected = told.map(|bytes| {
            PlanError::invalid(format!("Key length of {bytes} is longer than maximum of 65535"))
        });
        assert_eq!(bind(&schema, &cql, &[]).err(), expected);
    }
}

#[test]
fn what_a_client_says_of_the_time_expires_values_but_makes_no_uuids() {
    let schema = schema_of(TABLES);
    let plan = plan_of(&schema, "UPDATE m USING TTL 10 SET l = l + [1] WHERE k = 1").unwrap();
    let PlanKind::Modify(modify) = &plan.kind else { panic!("a modification") };
    let uuids = UuidSource::new(7);
    let options_at = |now| ExecuteOptions { now, ..options(&uuids) };
    let hour = WallMicros(NOW.0 + 3_600_000_000);
    let mut made = Vec::new();
    for now in [hour, NOW] {
        let mut out = Vec::new();
        let mutations = modify.bind(&[], &options_at(now), &mut out).unwrap();
        let mutation = MutationRef::parse(&out[mutations[0].range.clone()], 0).unwrap();
        let (_, row) = mutation.rows().next().unwrap();
        let id = modify.table().column("l").unwrap().id;
        let Some(ColumnRef::Complex(list)) = row.column(id) else { panic!("a list") };
        let (path, cell) = list.cells().next().unwrap();
        assert_eq!(cell.local.0, now.seconds().0 + 10);
        made.push(types::timeuuid::unix_micros(path));
    }
    // The hour is not what later elements of others begin at.
    assert_eq!(made, [Some(NOW.0); 2]);
}

/// Returns the writes of a statement when its reads find this list in every row.
fn bind_to_list(cql: &str, list: &[(u8, i32)]) -> Result<Vec<String>, PlanError> {
    let schema = schema_of(TABLES);
    let plan = plan_of(&schema, cql)?;
    let PlanKind::Modify(modify) = &plan.kind else { panic!("{cql}: a modification") };
    let uuids = UuidSource::new(7);
    let options = options(&uuids);
    let mut found = FoundLists::default();
    for read in modify.list_reads(&[], &options)? {
        let id = modify.table().column("l").expect("a list").id;
        let mut bytes = Vec::new();
        let live = (data::Liveness::NONE, data::DeletionTime::LIVE);
        let mut row = data::RowBuilder::new(&mut bytes, live.0, live.1, TimestampMicros(5));
        row.begin_complex(id, data::DeletionTime::LIVE);
        for (path, value) in list {
            let value = value.to_be_bytes();
            row.complex_cell(&[*path; 16], &data::CellRef::live(TimestampMicros(5), &value));
        }
        row.end_complex();
        if !row.is_empty() {
            row.finish();
            found.take(&read, data::RowRef::trusted(&bytes));
        }
    }
    let mut out = Vec::new();
    let mutations = modify.bind_found(&[], &options, &found, &mut out)?;
    Ok(mutations
        .iter()
        .map(|m| {
            let bytes = &out[m.range.clone()];
            let mutation = MutationRef::parse(bytes, 0).expect("reads back");
            let mut cells = Vec::new();
            for (_, row) in mutation.rows() {
                let Some(ColumnRef::Complex(list)) =
                    row.column(modify.table().column("l").expect("a list").id)
                else {
                    continue;
                };
                for (path, cell) in list.cells() {
                    let value = if cell.is_tombstone() {
                        "x".to_owned()
                    } else {
                        CqlType::Int.format_cql_literal(cell.value)
                    };
                    cells.push(format!("{}={value}", path[0]));
                }
            }
            cells.join(" ")
        })
        .collect())
}

#[test]
fn list_elements_are_found_by_index_and_by_value() {
    let list = [(0x10, 7), (0x11, 8), (0x12, 7)];
    let check = |cql: &str, expect: &[&str]| {
        assert_eq!(
            bind_to_list(cql, &list).as_deref(),
            Ok(expect.iter().map(|e| (*e).to_owned()).collect::<Vec<_>>().as_slice()),
            "{cql}"
        );
    };
    check("UPDATE m SET l[1] = 9 WHERE k = 1", &["17=9"]);
    check("UPDATE m SET l[1] = null WHERE k IN (1, 2)", &["17=x", "17=x"]);
    check("UPDATE m SET l = l - [7, 3] WHERE k = 1", &["16=x 18=x"]);
    check("UPDATE m SET l = l - [3] WHERE k = 1", &[]);
    // Each part is looked up in the list that the parts before it left.
    check("DELETE l[0], l[1] FROM m WHERE k = 1", &["16=x 18=x"]);
    let refused = |cql: &str, list: &[(u8, i32)], expect: &str| {
        assert_eq!(bind_to_list(cql, list), Err(PlanError::invalid(expect)), "{cql}");
    };
    let out_of_bound = "List index 3 out of bound, list has size 3";
    refused("UPDATE m SET l[3] = 9 WHERE k = 1", &list, out_of_bound);
    refused("DELETE l[3] FROM m WHERE k = 1", &list, out_of_bound);
    refused(
        "UPDATE m SET l[-1] = 9 WHERE k = 1",
        &list,
        "List index -1 out of bound, list has size 3",
    );
    refused(
        "UPDATE m SET l[0] = 9 WHERE k = 1",
        &[],
        "Attempted to set an element on a list which is null",
    );
    refused(
        "DELETE l[0] FROM m WHERE k = 1",
        &[],
        "Attempted to delete an element from a list which is null",
    );
    refused("DELETE l[null] FROM m WHERE k = 1", &list, "Invalid null value for list index");
}

#[test]
fn markers_are_typed_and_named_by_their_receivers() {
    let schema = schema_of(TABLES);
    let names = |cql: &str| -> Vec<String> {
        let plan = plan_of(&schema, cql).unwrap_or_else(|e| panic!("{cql}: {e}"));
        plan.inputs.binds.iter().map(|b| format!("{} {}", b.name, b.ty)).collect()
    };
    assert_eq!(
        names("UPDATE m USING TIMESTAMP ? AND TTL :t SET m[?] = ?, u.zip = ? WHERE k IN ?"),
        [
            "[timestamp] bigint",
            "t int",
            "key(m) text",
            "value(m) int",
            "u.zip int",
            "in(k) frozen<list<int>>"
        ]
    );
    assert_eq!(
        names("DELETE FROM c WHERE a = ? AND b = ? AND (c1, c2) > ?"),
        ["a int", "b text", "(c1,c2) frozen<tuple<int, text>>"]
    );
    let plan = plan_of(&schema, "INSERT INTO c (v, b, c1, a, c2) VALUES (?, ?, ?, :x, ?)");
    let plan = plan.expect("plans");
    assert_eq!(plan.inputs.pk_bind_indices(), Some([3u16, 1].as_slice()));
    let plan = plan_of(&schema, "INSERT INTO c (v, b, c1, a, c2) VALUES (?, ?, ?, 1, ?)");
    assert_eq!(plan.expect("plans").inputs.pk_bind_indices(), None);
}

#[test]
fn batches_make_one_mutation_per_partition() {
    check(
        "BEGIN BATCH INSERT INTO t (k, v) VALUES (1, 1); INSERT INTO t (k, v) VALUES (2, 2); \
         UPDATE t SET s = 'a' WHERE k = 1; APPLY BATCH",
        &[],
        &["00000001 [](live s='a' v=1)", "00000002 [](live v=2)"],
    );
    check(
        "BEGIN UNLOGGED BATCH USING TIMESTAMP 5 \
         INSERT INTO c (a, b, c1, c2, v) VALUES (1, 'p', 2, 'x', 1); \
         UPDATE c SET st = 4 WHERE a = 1 AND b = 'p'; \
         INSERT INTO c (a, b, c1, c2, v) VALUES (1, 'p', 1, 'x', 1); \
         DELETE FROM c WHERE a = 1 AND b = 'p' AND c1 = 9; APPLY BATCH",
        &[],
        &["0004000000010000017000 static(st=4@5) [1,'x'](live v=1@5) [2,'x'](live v=1@5) \
           range(9- 9+)@5"],
    );
    check_error(
        "BEGIN BATCH USING TIMESTAMP 5 INSERT INTO t (k) VALUES (1) USING TIMESTAMP 6; \
         APPLY BATCH",
        &[],
        "Timestamp must be set either on BATCH or individual statements",
    );
    check_error(
        "BEGIN BATCH USING TTL 5 INSERT INTO t (k) VALUES (1); APPLY BATCH",
        &[],
        "Global TTL on the BATCH statement is not supported.",
    );
    let big = "x".repeat(60_000);
    check_error(
        &format!(
            "BEGIN BATCH INSERT INTO t (k, s) VALUES (1, '{big}'); INSERT INTO t (k) VALUES (2); \
             APPLY BATCH"
        ),
        &[],
        "Batch too large",
    );
}

#[test]
fn errors_leave_the_output_as_it_was() {
    let schema = schema_of(TABLES);
    let plan = plan_of(&schema, "INSERT INTO t (k, v) VALUES (1, ?)").expect("plans");
    let PlanKind::Modify(modify) = &plan.kind else { panic!("a modification") };
    let uuids = UuidSource::new(7);
    let options = ExecuteOptions {
        now: NOW,
        clock: NOW,
        default_timestamp: TimestampMicros(1),
        page_size: None,
        paging_state: None,
        protocol_version: 5,
        uuids: &uuids,
        watch: None,
    };
    let mut out = vec![1, 2, 3];
    let error = modify.bind(&[BoundValue::Bytes(&[1])], &options, &mut out);
    assert_eq!(error.map_err(|e| e.code), Err(PlanErrorCode::Invalid));
    assert_eq!(out, [1, 2, 3]);
}

#[test]
fn insert_json_writes_every_column_of_the_document() {
    check("INSERT INTO t JSON '{\"k\": 1, \"S\": \"a\"}'", &[], &["00000001 [](live s='a' v=x)"]);
    check(
        "INSERT INTO t JSON '{\"k\": 1, \"s\": \"a\"}' DEFAULT UNSET USING TTL 5",
        &[],
        &["00000001 [](live ttl 5 s='a' ttl 5 at 1700000005)"],
    );
    check(
        "INSERT INTO t JSON ? DEFAULT UNSET USING TIMESTAMP ?",
        &[BoundValue::Bytes(b"{\"k\": 1, \"v\": null}"), BoundValue::Bytes(&77i64.to_be_bytes())],
        &["00000001 [](live v=x@77)"],
    );
    check_error(
        "INSERT INTO t JSON ?",
        &[BoundValue::Bytes(b"{\"k\": 1, \"x\": null}")],
        "JSON values map contains unrecognized column: x",
    );
    check_error("INSERT INTO t JSON ?", &[BoundValue::Null], "Got null for INSERT JSON values");
    check_error(
        "INSERT INTO t JSON '{\"v\": 1}'",
        &[],
        "Invalid null value in condition for column k",
    );
    check_error(
        "INSERT INTO t JSON '{\"k\": \"a\"}'",
        &[],
        "Error decoding JSON value for k: Unable to make int from 'a'",
    );
}

#[test]
fn vectors_that_an_index_cannot_have_are_refused() {
    let plain = schema_of(TABLES);
    let table = plain.table("ks", "m").unwrap();
    let mut indexed = (**table).clone();
    let similarity = ("similarity_function".to_owned(), "cosine".to_owned());
    indexed.indexes = indexed.indexes_with(schema::IndexMetadata {
        id: stdx::Uuid::from_u128(1),
        name: "by_vec".into(),
        kind: schema::IndexKind::Custom,
        options: [similarity].into(),
        target: schema::IndexTarget { column: "vec".into(), part: schema::TargetPart::Simple },
        rules: schema::IndexRules::Sai,
    });
    indexed.version += 1;
    let indexed = plain.apply(&schema::SchemaChange::AlterTable(indexed)).unwrap();
    let indexed = Arc::new(indexed);
    let told = |schema: &Arc<Schema>, cql: &str, vector: [f32; 3]| {
        let bytes = vector.map(f32::to_be_bytes).concat();
        bind(schema, cql, &[BoundValue::Bytes(&bytes)]).map(|_| ()).map_err(|error| error.message)
    };
    let (insert, update) =
        ("INSERT INTO m (k, vec) VALUES (1, ?)", "UPDATE m SET vec = ? WHERE k = 1");
    let zero = "Zero vectors cannot be indexed or queried with cosine similarity";
    let large = "Out-of-bounds value at vector[2]=2.0E17";
    for cql in [insert, update] {
        assert_eq!(told(&indexed, cql, [0.0; 3]), Err(zero.to_owned()));
        assert_eq!(told(&indexed, cql, [1.0, 0.0, 2e17]), Err(large.to_owned()));
        assert_eq!(told(&indexed, cql, [1.0, 0.0, 0.0]), Ok(()));
        assert_eq!(told(&plain, cql, [0.0; 3]), Ok(()));
    }
}
