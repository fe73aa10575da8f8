//! Rows through plans; expected results are those of a Cassandra 5.0 server for the same rows.

use super::*;

/// The rows that the expected results were taken with.
fn world() -> World {
    let mut world = World::new();
    for text in [
        "INSERT INTO t (k,c1,c2,v,w,l,s,m,fm,u,fu,tp) VALUES (1,1,1,1,'a',[1,2],{'x','y'},\
         {'a':1,'b':2},{'a':1},{street:'s',zip:1},{street:'s',zip:1},(1,'x'))",
        "INSERT INTO t (k,st) VALUES (1,7)",
        "INSERT INTO t (k,c1,c2,v) VALUES (1,1,2,2)",
        "INSERT INTO t (k,c1,c2,v) VALUES (1,2,1,3)",
        "INSERT INTO t (k,c1,c2,v) VALUES (2,1,1,4)",
        "INSERT INTO t (k,c1,c2,v) VALUES (3,1,1,5)",
        "INSERT INTO t (k,st) VALUES (4,9)",
        "INSERT INTO p (a,b,v) VALUES (1,'x',1)",
        "INSERT INTO kv (key,zz,mm,aa) VALUES (1,26,13,1)",
        "INSERT INTO kv (key,mm) VALUES (2,14)",
    ] {
        world.write(text);
    }
    for a in 0..3 {
        for b in 0..3 {
            for c in 0..2 {
                world.write(&format!(
                    "INSERT INTO d (k,a,b,c,v) VALUES (1,{a},{b},{c},{})",
                    a * 100 + b * 10 + c
                ));
            }
        }
    }
    world
}

fn check(world: &World, text: &str, expected: &[&str]) {
    assert_eq!(world.rows(text).unwrap(), expected, "{text}");
}

#[test]
fn columns_are_written_in_selection_order() {
    let world = world();
    check(&world, "SELECT * FROM kv WHERE key = 1", &["1 1 13 26"]);
    check(&world, "SELECT zz, key, aa, mm, zz FROM kv WHERE key = 1", &["26 1 1 13 26"]);
    check(&world, "SELECT aa, mm, zz FROM kv WHERE key = 2", &["null 14 null"]);
    check(&world, "SELECT zz, mm FROM kv WHERE key = 2", &["null 14"]);
    check(&world, "SELECT c2, k, v, c1, st FROM t WHERE k = 1 AND c1 = 2", &["1 1 3 2 7"]);
    check(&world, "SELECT b, a, \"Q\" FROM p", &["x 1 null"]);
    check(&world, "SELECT v FROM t WHERE k = 99", &[]);
}

#[test]
fn collections_of_many_cells_become_values() {
    check(
        &world(),
        "SELECT l, s, m, fm, u, fu, tp FROM t WHERE k = 1 AND c1 = 1",
        &[
            "[1, 2] {'x', 'y'} {'a': 1, 'b': 2} {'a': 1} {street: 's', zip: 1} \
             {street: 's', zip: 1} (1, 'x')",
            "null null null null null null null",
        ],
    );
}

#[test]
fn scans_go_in_ring_order_and_show_static_rows_alone() {
    let world = world();
    check(
        &world,
        "SELECT k,st,c1 FROM t",
        &["1 7 1", "1 7 1", "1 7 2", "2 null 1", "4 9 null", "3 null 1"],
    );
    check(&world, "SELECT k,c1 FROM t LIMIT 2", &["1 1", "1 1"]);
    check(&world, "SELECT DISTINCT k, st FROM t", &["1 7", "2 null", "4 9", "3 null"]);
    check(&world, "SELECT k,c1 FROM t PER PARTITION LIMIT 1", &["1 1", "2 1", "4 null", "3 1"]);
    check(&world, "SELECT k,st FROM t WHERE k = 4", &["4 9"]);
    check(&world, "SELECT k,c1 FROM t WHERE k = 4 AND c1 > 0", &[]);
}

#[test]
fn partitions_of_in_come_by_value_or_sorted() {
    let world = world();
    check(&world, "SELECT k,c1 FROM t WHERE k IN (3,1,2)", &["1 1", "1 1", "1 2", "2 1", "3 1"]);
    check(
        &world,
        "SELECT k,c1,v FROM t WHERE k IN (3,1,2) ORDER BY c1 DESC",
        &["1 2 3", "1 1 2", "1 1 1", "2 1 4", "3 1 5"],
    );
    check(&world, "SELECT v FROM t WHERE k IN (3,1,2) ORDER BY c1 ASC LIMIT 3", &["1", "2", "4"]);
    check(
        &world,
        "SELECT k,c1,count(*) FROM t WHERE k IN (3,1,2) GROUP BY k, c1 ORDER BY c1 DESC",
        &["1 2 1", "1 1 2", "2 1 1", "3 1 1"],
    );
    check(
        &world,
        "SELECT k,c1 FROM t WHERE k IN (3,1,2) GROUP BY k ORDER BY c1 DESC LIMIT 2",
        &["1 2", "2 1"],
    );
    check(
        &world,
        "SELECT k,c1,c2 FROM t WHERE k IN (2,1) GROUP BY k, c1 ORDER BY c1 PER PARTITION LIMIT 1",
        &["1 1 1", "2 1 1"],
    );
    assert_eq!(
        world.page("SELECT v FROM t WHERE k IN (3,1) ORDER BY c1", &[], Some(2), None).unwrap_err(),
        PlanError::unpageable(
            "Cannot page queries with both ORDER BY and a IN restriction on the partition key; \
             you must either remove the ORDER BY or the IN and sort client side, or disable paging \
             for this query"
        )
    );
}

#[test]
fn order_by_turns_rows_around() {
    let world = world();
    check(&world, "SELECT v FROM t WHERE k=1 ORDER BY c1 DESC", &["3", "2", "1"]);
    check(&world, "SELECT v FROM t WHERE k=1 AND c1=1 ORDER BY c2 DESC LIMIT 1", &["2"]);
    check(&world, "SELECT v FROM d WHERE k=1 AND a=1", &["120", "121", "110", "111", "100", "101"]);
    check(
        &world,
        "SELECT v FROM d WHERE k=1 AND a=1 ORDER BY a DESC, b ASC, c DESC",
        &["101", "100", "111", "110", "121", "120"],
    );
    check(
        &world,
        "SELECT v FROM d WHERE k=1 AND (a,b,c) >= (1,1,1)",
        &["120", "121", "111", "220", "221", "210", "211", "200", "201"],
    );
}

#[test]
fn filters_leave_out_rows() {
    let world = world();
    let cases: &[(&str, &[&str])] = &[
        ("l CONTAINS 1", &["1"]),
        ("m CONTAINS KEY 'a' AND m CONTAINS 2", &["1"]),
        ("m CONTAINS KEY 'c'", &[]),
        ("m['a'] = 1", &["1"]),
        ("m['a'] = 2", &[]),
        ("fm CONTAINS KEY 'a'", &["1"]),
        ("s CONTAINS 'y'", &["1"]),
        ("fu = {street:'s',zip:1}", &["1"]),
        ("v IN (1,2)", &["1", "2"]),
        ("v IN (1, null)", &["1"]),
        ("v > 1 AND v < 4", &["2", "3"]),
        ("v >= 1 AND v <= 3", &["1", "2", "3"]),
        ("st = 7", &["1", "2", "3"]),
        ("st = 9", &["null"]),
        ("c2 = 1", &["1", "3", "4", "5"]),
        ("c1 > 1", &["3"]),
        ("k > 1", &["4", "null", "5"]),
        ("k = 1 AND c2 = 1", &["1", "3"]),
        ("k = 1 AND c1 > 0 AND c2 = 1", &["1", "3"]),
    ];
    for (clause, expected) in cases {
        check(&world, &format!("SELECT v FROM t WHERE {clause} ALLOW FILTERING"), expected);
    }
    check(&world, "SELECT v FROM p WHERE a = 1 ALLOW FILTERING", &["1"]);
    check(&world, "SELECT v FROM p WHERE b = 'y' ALLOW FILTERING", &[]);
}

#[test]
fn expressions_are_named_and_typed_like_cassandras() {
    let world = world();
    let text = "SELECT cast(v as text) AS x, token(k), tojson(v), u.street, fu.zip, m['a'], \
                m['a'..'b'], s['x'], (int)1, v+1, -v, (v, w), [v], {v}, (map<text,int>){'a':v} \
                FROM t WHERE k=1 LIMIT 1";
    check(
        &world,
        text,
        &["1 -4069959284402364209 1 s 1 1 {'a': 1, 'b': 2} x 1 2 -1 (1, 'a') [1] {1} {'a': 1}"],
    );
    assert_eq!(
        names(&world.plan(text).unwrap()),
        [
            "x: text",
            "system.token(k): bigint",
            "system.tojson(v): text",
            "u.street: text",
            "fu.zip: int",
            "m['a']: int",
            "m['a'..'b']: map<text, int>",
            "s['x']: text",
            "(int)1: int",
            "v + 1: int",
            "-v: int",
            "(v, w): frozen<tuple<int, text>>",
            "[v]: list<int>",
            "{v}: set<int>",
            "(map<text, int>){'a': v}: map<text, int>",
        ]
    );
}

#[test]
fn odd_but_valid_forms_work_as_in_cassandra() {
    let world = world();
    let cases: &[(&str, &[&str])] = &[
        ("DISTINCT k, st FROM t WHERE st = 7 ALLOW FILTERING", &["1 7"]),
        ("k FROM t WHERE k IN (1,2) AND c1 IN (1,2) ORDER BY c1 DESC LIMIT 2", &["1", "1"]),
        ("k FROM t WHERE k=1 AND c1 < null", &[]),
        ("k FROM t WHERE k=1 AND c1 > null", &["1", "1", "1"]),
        ("count(*) AS n FROM t", &["6"]),
        ("max(1) FROM t", &["1"]),
        ("v FROM t WHERE k=1 ORDER BY c1, c1 DESC", &["3", "2", "1"]),
        ("k FROM t WHERE token(k) > token(1)", &["2", "4", "3"]),
        ("JSON count(*) FROM t", &["{\"count\": 6}"]),
        ("JSON max(v) AS m, k FROM t", &["{\"m\": 5, \"k\": 1}"]),
        ("DISTINCT k, count(*) FROM t", &["1 4"]),
        ("k, st FROM t PER PARTITION LIMIT 1", &["1 7", "2 null", "4 9", "3 null"]),
        ("v FROM t WHERE k=1 AND c1 IN (1,2) AND c2 IN (1,2) ORDER BY c1 DESC", &["3", "2", "1"]),
        ("v FROM t WHERE (c1, c2) > (1,1) ALLOW FILTERING", &["2", "3"]),
        ("v FROM t WHERE (c2) IN ((1),(2)) ALLOW FILTERING", &["1", "2", "3", "4", "5"]),
        ("v FROM t WHERE k=1 AND c1>0 AND (c1,c2) < (2,0)", &["1", "2"]),
        ("k, c1, count(*) FROM t WHERE k = 1 GROUP BY c1", &["1 1 2", "1 2 1"]),
        ("k, c1, count(*) FROM t WHERE k = 1 GROUP BY k, c1 ORDER BY c1 DESC", &["1 2 1", "1 1 2"]),
        ("k, count(*) FROM t WHERE k IN (1,2) GROUP BY k ORDER BY c1 DESC", &["1 3", "2 1"]),
        ("m['zz'..'zzz'], fm['x'..'z'], m['b'..] FROM t WHERE k=1 LIMIT 1", &["null {} {'b': 2}"]),
        ("* FROM p WHERE a = 1 AND b = ''", &[]),
        ("(v + 1) * 2 FROM t LIMIT 1", &["4"]),
    ];
    for (text, expected) in cases {
        check(&world, &format!("SELECT {text}"), expected);
    }
    let named = |text: &str| names(&world.plan(text).unwrap()).join("; ");
    assert_eq!(named("SELECT cast(v as int) FROM t"), "v: int");
    assert_eq!(named("SELECT count(*) AS n FROM t"), "n: bigint");
    assert_eq!(
        named("SELECT blobasint(intasblob(v)) FROM t"),
        "system.blobasint(system.intasblob(v)): int"
    );
    assert_eq!(
        named("SELECT minTimeuuid('2020-01-01') FROM t"),
        "system.mintimeuuid('2020-01-01'): timeuuid"
    );
    assert_eq!(
        named("SELECT (addr){street:'x', zip: v} FROM t"),
        "(ks.addr){street: 'x', zip: v}: addr"
    );
    assert_eq!(named("SELECT m['b'..], m[..'a'] FROM t").matches("map<text, int>").count(), 2);
}

#[test]
fn write_times_and_ttls_are_of_cells() {
    let mut world = world();
    world.write("INSERT INTO kv (key,zz) VALUES (9,1) USING TTL 100 AND TIMESTAMP 55");
    check(
        &world,
        "SELECT writetime(zz), ttl(zz), maxwritetime(zz), writetime(mm), ttl(mm) FROM kv WHERE \
         key = 9",
        &["55 100 55 null null"],
    );
    let text = "SELECT writetime(m), writetime(m['a']), maxwritetime(m), writetime(u.street), \
                writetime(u) FROM t WHERE k=1 LIMIT 2";
    let now = NOW.0;
    check(
        &world,
        text,
        &[&format!("[{now}, {now}] {now} {now} {now} [{now}, {now}]"), "null null null null null"],
    );
    assert_eq!(
        names(&world.plan(text).unwrap()),
        [
            "writetime(m): list<bigint>",
            "writetime(m['a']): bigint",
            "maxwritetime(m): bigint",
            "writetime(u.street): bigint",
            "writetime(u): list<bigint>",
        ]
    );
    assert_eq!(names(&world.plan("SELECT ttl(s) FROM t").unwrap()), ["ttl(s): list<int>"]);
}

#[test]
fn json_rows_are_one_text() {
    let world = world();
    check(
        &world,
        "SELECT JSON * FROM t WHERE k=1 LIMIT 1",
        &["{\"k\": 1, \"c1\": 1, \"c2\": 1, \"st\": 7, \"fm\": {\"a\": 1}, \"fu\": {\"street\": \
           \"s\", \"zip\": 1}, \"l\": [1, 2], \"m\": {\"a\": 1, \"b\": 2}, \"s\": [\"x\", \"y\"], \
           \"tp\": [1, \"x\"], \"u\": {\"street\": \"s\", \"zip\": 1}, \"v\": 1, \"w\": \"a\"}"],
    );
    check(
        &world,
        "SELECT JSON a, \"Q\", v AS \"Vv\" FROM p",
        &["{\"a\": 1, \"\\\"Q\\\"\": null, \"\\\"Vv\\\"\": 1}"],
    );
    check(
        &world,
        "SELECT JSON DISTINCT k, st FROM t LIMIT 2",
        &["{\"k\": 1, \"st\": 7}", "{\"k\": 2, \"st\": null}"],
    );
    assert_eq!(names(&world.plan("SELECT JSON k FROM t").unwrap()), ["[json]: text"]);
}

#[test]
fn aggregates_take_all_rows() {
    let world = world();
    let text = "SELECT count(*), count(v), count(1), max(v), min(w), sum(v), avg(v) FROM t WHERE \
                k=1";
    check(&world, text, &["3 3 3 3 a 6 2"]);
    assert_eq!(
        names(&world.plan(text).unwrap()),
        [
            "count: bigint",
            "system.count(v): bigint",
            "count: bigint",
            "system.max(v): int",
            "system.min(w): text",
            "system.sum(v): int",
            "system.avg(v): int",
        ]
    );
    check(&world, "SELECT count(*) FROM t", &["6"]);
    check(&world, "SELECT k, max(c1), v FROM t", &["1 2 1"]);
    check(&world, "SELECT count(*) FROM t WHERE k = 99", &["0"]);
    check(&world, "SELECT count(*) FROM t WHERE k IN ()", &["0"]);
    check(&world, "SELECT max(v), sum(v), avg(v), v FROM t WHERE k = 99", &["null 0 0 null"]);
    check(&world, "SELECT cast(max(v) as text), max(v + 1) FROM t WHERE k=1", &["3 4"]);
    // The page size does not matter to an aggregate over everything.
    assert_eq!(world.pages("SELECT count(*) FROM d WHERE k=1", 2).unwrap(), ["18"]);
}

#[test]
fn groups_are_closed_where_the_prefix_changes() {
    let world = world();
    check(
        &world,
        "SELECT k, v, count(*) FROM t GROUP BY k",
        &["1 1 3", "2 4 1", "4 null 1", "3 5 1"],
    );
    check(
        &world,
        "SELECT k, c1, count(*), max(v) FROM t GROUP BY k, c1",
        &["1 1 2 2", "1 2 1 3", "2 1 1 4", "4 null 1 null", "3 1 1 5"],
    );
    check(
        &world,
        "SELECT k, c1, max(v) FROM t GROUP BY k, c1 PER PARTITION LIMIT 1 LIMIT 3",
        &["1 1 2", "2 1 4", "4 null null"],
    );
    check(
        &world,
        "SELECT k, c2, count(*) FROM t WHERE c1=1 GROUP BY k, c1, c2 ALLOW FILTERING",
        &["1 1 1", "1 2 1", "2 1 1", "3 1 1"],
    );
    check(&world, "SELECT k, count(*) FROM t WHERE k = 99 GROUP BY k", &[]);
}

/// INV-select-1.
#[test]
fn pages_of_any_size_give_the_same_rows() {
    let mut world = world();
    for text in [
        "SELECT k,st,c1 FROM t",
        "SELECT * FROM kv",
        "SELECT k,c1 FROM t LIMIT 4",
        "SELECT DISTINCT k, st FROM t",
        "SELECT k,c1 FROM t PER PARTITION LIMIT 2",
        "SELECT k,c1 FROM t PER PARTITION LIMIT 2 LIMIT 3",
        "SELECT k,c1,v FROM t WHERE k IN (3,1,4,2)",
        "SELECT k,c1,v FROM t WHERE k IN (3,1,4,2) PER PARTITION LIMIT 2",
        "SELECT v FROM d WHERE k=1",
        "SELECT v FROM d WHERE k=1 ORDER BY a DESC, b ASC, c DESC",
        "SELECT v FROM d WHERE k=1 AND a IN (0,2) AND b < 2",
        "SELECT v FROM d WHERE k=1 AND (a,b,c) >= (1,1,1) LIMIT 7",
        "SELECT v FROM d WHERE c = 1 ALLOW FILTERING",
        "SELECT v FROM t WHERE v > 1 ALLOW FILTERING",
        "SELECT v+1 FROM d WHERE k=1",
        "SELECT JSON v FROM d WHERE k=1",
        "SELECT k, c1, count(*), max(v) FROM t GROUP BY k, c1",
        "SELECT k, c1, count(*) FROM t GROUP BY k, c1 LIMIT 4",
        "SELECT a, b, sum(v) FROM d GROUP BY k, a, b PER PARTITION LIMIT 5",
        "SELECT k, count(*) FROM t GROUP BY k",
        "SELECT k, c1, count(*) FROM t WHERE k IN (1,2,3) GROUP BY k, c1",
    ] {
        let whole = world.rows(text).unwrap();
        assert!(!whole.is_empty(), "{text}");
        for size in 1..=20 {
            assert_eq!(world.pages(text, size).unwrap(), whole, "{text}, pages of {size}");
        }
        // Pages that end before they are full, empty ones too.
        for cut_after in 1..=4 {
            world.cut_after = Some(cut_after);
            for size in [1, 3, 20] {
                let pages = world.pages(text, size).unwrap();
                assert_eq!(pages, whole, "{text}, pages of {size} cut after {cut_after}");
            }
        }
        world.cut_after = None;
    }
}

#[test]
fn a_page_that_is_cut_may_be_empty_and_an_answer_of_one_row_is_not_cut() {
    let mut world = world();
    world.cut_after = Some(1);
    let filtered = "SELECT v FROM d WHERE c = 1 ALLOW FILTERING";
    let (rows, done) = world.page(filtered, &[], Some(100), None).unwrap();
    assert!(rows.is_empty() && done.paging_state.is_some(), "{rows:?}");
    let (rows, done) = world.page("SELECT count(*) FROM d", &[], Some(100), None).unwrap();
    assert!(!rows.is_empty() && done.paging_state.is_none(), "{rows:?}");
    // A page may end between groups: there is only one, but there may be more.
    let (rows, done) =
        world.page("SELECT k, count(*) FROM d GROUP BY k", &[], Some(100), None).unwrap();
    assert!(rows == ["1 18"] && done.paging_state.is_some(), "{rows:?}");
    // Without pages there is nothing to be cut.
    let (rows, done) = world.page(filtered, &[], None, None).unwrap();
    assert!(!rows.is_empty() && done.paging_state.is_none());
}

#[test]
fn a_page_that_is_the_last_says_so() {
    let world = world();
    let more = |text: &str, size: u32| {
        world.page(text, &[], Some(size), None).unwrap().1.paging_state.is_some()
    };
    assert!(!more("SELECT * FROM kv WHERE key = 1", 1));
    assert!(!more("SELECT * FROM kv LIMIT 1", 1));
    assert!(more("SELECT * FROM kv", 1));
    assert!(!more("SELECT * FROM kv", 3));
    assert!(more("SELECT * FROM kv WHERE key IN (1,2)", 1));
    assert!(!more("SELECT * FROM kv WHERE key IN (1,2)", 2));
    assert!(!more("SELECT DISTINCT k FROM t WHERE k = 1", 1));
}

#[test]
fn paging_states_belong_to_their_statement() {
    let world = world();
    let invalid = PlanError::protocol("Invalid value for the paging state");
    let (_, done) = world.page("SELECT k, c1 FROM t", &[], Some(1), None).unwrap();
    let state = done.paging_state.unwrap();
    let resume =
        |text: &str, state: &[u8]| world.page(text, &[], Some(9), Some(state)).map(|p| p.0.len());
    assert_eq!(resume("select k, c1 from t", &state), Ok(5));
    assert_eq!(resume("SELECT k, c2 FROM t", &state), Err(invalid.clone()));
    assert_eq!(resume("SELECT k, c1 FROM t", b"garbage"), Err(invalid.clone()));
    // A key that the bound values do not name.
    let text = "SELECT v FROM t WHERE k IN ?";
    let list = |keys: &[i32]| {
        types::wire::encode_collection(keys.iter().map(|k| k.to_be_bytes())).unwrap()
    };
    let (first, second) = (list(&[1, 2]), list(&[2, 3]));
    let page = |values: &[u8], state: Option<&[u8]>| {
        world.page(text, &[BoundValue::Bytes(values)], Some(1), state)
    };
    let state = page(&first, None).unwrap().1.paging_state.unwrap();
    assert_eq!(page(&first, Some(&state)).unwrap().0, ["2"]);
    assert_eq!(page(&second, Some(&state)).map(|p| p.0), Err(invalid));
}

#[test]
fn pages_are_cut_by_bytes_when_the_client_pages() {
    let mut world = World::new();
    let text = "x".repeat(400_000);
    for c in 0..6 {
        world.write(&format!("INSERT INTO t (k,c1,c2,w) VALUES (1,{c},1,'{text}')"));
    }
    let rows = |size| world.page("SELECT w FROM t WHERE k=1", &[], size, None).unwrap();
    let (page, done) = rows(Some(100));
    assert_eq!((page.len(), done.paging_state.is_some()), (3, true));
    let (page, done) = rows(None);
    assert_eq!((page.len(), done.paging_state.is_some()), (6, false));
    assert_eq!(world.pages("SELECT c1 FROM t WHERE k=1", 100).unwrap().len(), 6);
}

#[test]
fn limits_come_from_markers() {
    let world = world();
    let text = "SELECT v FROM d WHERE k = 1 LIMIT ?";
    let rows = |value: BoundValue<'_>| world.page(text, &[value], None, None).map(|p| p.0.len());
    assert_eq!(rows(BoundValue::Bytes(&3i32.to_be_bytes())), Ok(3));
    assert_eq!(rows(BoundValue::Unset), Ok(18));
    assert_eq!(rows(BoundValue::Null), Err(PlanError::invalid("Invalid null value of limit")));
    assert_eq!(
        rows(BoundValue::Bytes(&0i32.to_be_bytes())),
        Err(PlanError::invalid("LIMIT must be strictly positive"))
    );
}

#[test]
fn aggregates_over_many_partitions_are_warned_about() {
    let world = world();
    let warnings = |text: &str| world.page(text, &[], None, None).unwrap().1.warnings;
    assert_eq!(
        warnings("SELECT count(*) FROM t"),
        ["Aggregation query used without partition key"]
    );
    assert_eq!(
        warnings("SELECT count(*) FROM t WHERE k IN (1,2)"),
        ["Aggregation query used on multiple partition keys (IN restriction)"]
    );
    assert!(warnings("SELECT count(*) FROM t WHERE k = 1").is_empty());
}

/// The read names the columns outside the key that the statement uses.
#[test]
fn reads_name_the_columns_that_are_looked_at() {
    let world = world();
    let check = |text: &str, expected: Option<&[&str]>| {
        let bound = world.bind(text, &[]).unwrap();
        let [read] = bound.reads() else { panic!("{text}") };
        let plan = world.plan(text).unwrap();
        let table = plan.table();
        let name = |id: &stdx::ColumnId| table.column_by_id(*id).unwrap().name.to_string();
        let columns = read.columns.as_ref().map(|columns| {
            let mut names: Vec<String> = columns.iter().map(name).collect();
            names.sort();
            names
        });
        let expected = expected.map(|names| names.iter().map(|n| (*n).to_owned()).collect());
        assert_eq!(columns, expected, "{text}");
    };
    check("SELECT * FROM kv WHERE key = 1", None);
    check("SELECT zz, aa, mm FROM kv WHERE key = 1", None);
    check("SELECT zz FROM kv WHERE key = 1", Some(&["zz"]));
    check("SELECT key FROM kv WHERE key = 1", Some(&[]));
    check("SELECT count(*) FROM kv WHERE key = 1", Some(&[]));
    check("SELECT sum(mm), max(aa) FROM kv WHERE key = 1", Some(&["aa", "mm"]));
    check("SELECT writetime(aa), CAST(mm AS bigint) FROM kv WHERE key = 1", Some(&["aa", "mm"]));
    check("SELECT key FROM kv WHERE key = 1 AND zz = 4 ALLOW FILTERING", Some(&["zz"]));
    check("SELECT m['a'], u.zip, st FROM t WHERE k = 1", Some(&["m", "st", "u"]));
    check("SELECT c1, max(v) FROM t WHERE k = 1 GROUP BY c1", Some(&["v"]));
    check("SELECT JSON v, w FROM t WHERE k = 1", Some(&["v", "w"]));
    check("SELECT b FROM mk WHERE k = 1", Some(&["b"]));
    check("SELECT DISTINCT st FROM t WHERE k = 1", Some(&["st"]));
    let passes = |text: &str| world.bind(text, &[]).unwrap().reads()[0].bypass_cache;
    assert!(passes("SELECT v FROM t WHERE k = 1 BYPASS CACHE") && !passes("SELECT v FROM t"));
    assert!(passes("SELECT v FROM t BYPASS CACHE"));
}

#[test]
fn a_timeout_is_taken_from_the_statement() {
    let world = world();
    let bound = |text: &str| world.bind(text, &[]).map(|b| b.timeout_nanos());
    assert_eq!(bound("SELECT v FROM t USING TIMEOUT 50ms"), Ok(Some(50_000_000)));
    assert_eq!(bound("SELECT v FROM t BYPASS CACHE"), Ok(None));
    assert!(bound("SELECT v FROM t USING TIMEOUT 1d").is_err());
}
