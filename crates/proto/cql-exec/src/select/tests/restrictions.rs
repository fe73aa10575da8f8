//! WHERE clauses to reads, or to Cassandra's refusals (taken from a Cassandra 5.0 server).

use data::clustering::components;
use data::command::{Partitions, ReadCommand, RingBound};

use super::*;

const NEEDS_FILTERING: &str = "Cannot execute this query as it might involve data \
    filtering and thus may have unpredictable performance. If you want to execute this query \
    despite the performance unpredictability, use ALLOW FILTERING";

const ONLY_MONOTONIC: &str =
    "Only column names and monotonic scalar functions are supported in the GROUP BY clause.";

fn refused(text: &str, message: &str) {
    let world = World::new();
    match world.bind(text, &[]) {
        Err(error) => assert_eq!(error.message, message, "{text}"),
        Ok(_) => panic!("accepted: {text}"),
    }
}

#[test]
fn refusals_have_cassandras_words() {
    let cases: &[(&str, &str)] = &[
        ("v = 1", NEEDS_FILTERING),
        ("c1 = 1", NEEDS_FILTERING),
        ("k > 1", NEEDS_FILTERING),
        ("l CONTAINS 1", NEEDS_FILTERING),
        (
            "k=1 AND c2 = 1",
            "PRIMARY KEY column \"c2\" cannot be restricted as preceding column \"c1\" is not \
             restricted",
        ),
        (
            "k=1 AND c1 > 1 AND c2 = 1",
            "Clustering column \"c2\" cannot be restricted (preceding column \"c1\" is restricted \
             by a non-EQ relation)",
        ),
        (
            "k=1 AND c2 = 1 AND c1 > 1",
            "PRIMARY KEY column \"c2\" cannot be restricted (preceding column \"c1\" is \
             restricted by a non-EQ relation)",
        ),
        (
            "k=1 AND (c1,c2) > (1,1) AND c1 = 1",
            "Column \"c1\" cannot be restricted by both an equality and an inequality relation",
        ),
        (
            "k=1 AND (c2,c1) > (1,1)",
            "Clustering columns must appear in the PRIMARY KEY order in multi-column relations: \
             (c2, c1) > (1, 1)",
        ),
        (
            "k=1 AND (c1,c1) > (1,1)",
            "Column \"c1\" appeared twice in a relation: (c1, c1) > (1, 1)",
        ),
        (
            "k=1 AND (c1,v) > (1,1)",
            "Multi-column relations can only be applied to clustering columns but was applied \
             to: v",
        ),
        ("k=1 AND (c1,c2) = (1)", "Expected 2 elements in value tuple, but got 1: (1)"),
        ("k=1 AND (c1,c2) = (1,2,3)", "Expected 2 elements in value tuple, but got 3: (1, 2, 3)"),
        ("k=1 AND k=2", "k cannot be restricted by more than one relation if it includes an Equal"),
        (
            "k=1 AND c1=1 AND c1>2",
            "c1 cannot be restricted by more than one relation if it includes an Equal",
        ),
        (
            "k=1 AND c1 IN (1,2) AND c1 = 1",
            "c1 cannot be restricted by more than one relation if it includes a IN",
        ),
        ("k=1 AND c1>1 AND c1>2", "More than one restriction was found for the start bound on c1"),
        (
            "token(k) > 1 AND token(k) > 3",
            "More than one restriction was found for the start bound on k",
        ),
        ("nope = 1", "Undefined column name nope in table ks.t"),
        ("k=1 AND v != 1", "Unsupported \"!=\" relation: v != 1"),
        (
            "k=1 AND w LIKE 'a%'",
            "LIKE restriction is only supported on properly indexed columns. w LIKE 'a%' is not \
             valid.",
        ),
        ("l = [1]", "Collection column 'l' (list<int>) cannot be restricted by a '=' relation"),
        ("m['a'] > 1 ALLOW FILTERING", "Only EQ relations are supported on map entries"),
        (
            "fm['a'] = 1 ALLOW FILTERING",
            "Map-entry equality predicates on frozen map column fm are not supported",
        ),
        (
            "l[0] = 1 ALLOW FILTERING",
            "Indexes on list entries (l[index] = value) are not currently supported.",
        ),
        ("v CONTAINS 1 ALLOW FILTERING", "Cannot use CONTAINS on non-collection column v"),
        ("s CONTAINS KEY 'a' ALLOW FILTERING", "Cannot use CONTAINS KEY on non-map column s"),
        (
            "u = {street:'s'} ALLOW FILTERING",
            "Non-frozen UDT column 'u' (addr) cannot be restricted by any relation",
        ),
        ("k = null", "Invalid null value in condition for column k"),
        ("k = 1 AND c1 = null", "Invalid null value in condition for column c1"),
        ("k = 1 AND c1 IN (1,null)", "Invalid null value in condition for column c1"),
        ("v = null ALLOW FILTERING", "Unsupported null value for column v"),
        ("k=1 AND (c1,c2) = (1,null)", "Invalid null value for column c2"),
        (
            "k=1 AND (c1,c2) IN ((1,null),(1,2))",
            "Invalid null value in condition for columns: [c1, c2]",
        ),
        ("k=1 AND (c1,c2) > (1,null)", "Invalid null value in condition for column c2"),
        (
            "k=1 AND (c1,c2) > (0,0) AND c2 < 2",
            "Column \"c2\" cannot be restricted by two inequalities not starting with the same \
             column",
        ),
        (
            "(c2) > (1) ALLOW FILTERING",
            "Multi-column slice restrictions cannot be used for filtering.",
        ),
        ("m['a'] = null ALLOW FILTERING", "Unsupported null map value for column m"),
        ("m CONTAINS null ALLOW FILTERING", "Unsupported null value for column m"),
        (
            "fm CONTAINS 1 AND fm = {'a':1} ALLOW FILTERING",
            "Collection column fm can only be restricted by CONTAINS, CONTAINS KEY, or map-entry \
             equality",
        ),
        (
            "l IN ([1],[2]) ALLOW FILTERING",
            "Collection column 'l' (list<int>) cannot be restricted by a 'IN' relation",
        ),
        (
            "token(k) > 1 AND token(k) = 2",
            "Columns \"k\" cannot be restricted by both an equality and an inequality relation",
        ),
        ("k=1 AND st = 7", NEEDS_FILTERING),
        ("k IN (1,2) AND v = 1", NEEDS_FILTERING),
        ("k = 1 AND \"K\" = 1", "Undefined column name \"K\" in table ks.t"),
        ("k = 'a'", "Invalid STRING constant (a) for \"k\" of type int"),
        ("k IS NOT NULL", "Unsupported restriction: k IS NOT NULL"),
    ];
    for (clause, message) in cases {
        refused(&format!("SELECT * FROM t WHERE {clause}"), message);
    }
}

#[test]
fn whole_statements_are_refused_with_cassandras_words() {
    let order = "Order by currently only supports the ordering of columns following their declared \
                 order in the PRIMARY KEY";
    let group = "Group by currently only support groups of columns following their declared order \
                 in the PRIMARY KEY";
    let cases: &[(&str, &str)] = &[
        ("SELECT k FROM nope", "table nope does not exist"),
        ("SELECT nope FROM p", "Undefined column name nope in table ks.p"),
        (
            "SELECT * FROM p WHERE token(a) > 1",
            "The token() function must be applied to all partition key components or none of them",
        ),
        (
            "SELECT * FROM p WHERE token(b, a) > 1",
            "The token function arguments must be in the partition key order: a, b",
        ),
        ("SELECT * FROM p WHERE a = 1", NEEDS_FILTERING),
        (
            "SELECT k FROM t ORDER BY c1",
            "ORDER BY is only supported when the partition key is restricted by an EQ or an IN.",
        ),
        ("SELECT k FROM t WHERE k=1 ORDER BY c2", order),
        (
            "SELECT k FROM t WHERE k=1 ORDER BY v",
            "Order by is currently only supported on the clustered columns of the PRIMARY KEY, \
             got v",
        ),
        ("SELECT k FROM t WHERE k=1 ORDER BY c1 ASC, c2 DESC", "Unsupported order by relation"),
        ("SELECT k FROM t LIMIT 0", "LIMIT must be strictly positive"),
        ("SELECT k FROM t PER PARTITION LIMIT 0", "LIMIT must be strictly positive"),
        (
            "SELECT DISTINCT k FROM t PER PARTITION LIMIT 1",
            "PER PARTITION LIMIT is not allowed with SELECT DISTINCT queries",
        ),
        (
            "SELECT count(*) FROM t PER PARTITION LIMIT 1",
            "PER PARTITION LIMIT is not allowed with aggregate queries.",
        ),
        (
            "SELECT DISTINCT c1 FROM t",
            "SELECT DISTINCT queries must only request partition key columns and/or static columns \
             (not c1)",
        ),
        (
            "SELECT DISTINCT a FROM p",
            "SELECT DISTINCT queries must request all the partition key columns (missing b)",
        ),
        (
            "SELECT DISTINCT k FROM t WHERE k = 1 AND c1 = 1",
            "SELECT DISTINCT with WHERE clause only supports restriction by partition key and/or \
             static columns.",
        ),
        (
            "SELECT st FROM t WHERE k = 1 AND c1 = 1",
            "Cannot restrict clustering columns when selecting only static columns",
        ),
        ("SELECT k, c2, count(*) FROM t GROUP BY k, c2", group),
        ("SELECT k FROM t GROUP BY k, cast(c1 as bigint)", ONLY_MONOTONIC),
        ("SELECT k FROM t GROUP BY k, (int)c1", ONLY_MONOTONIC),
        ("SELECT k FROM t GROUP BY k, 1", ONLY_MONOTONIC),
        ("SELECT k FROM f GROUP BY k, fl[1]", ONLY_MONOTONIC),
        (
            "SELECT k FROM t GROUP BY k, c1 + 1",
            "Only monotonic functions are supported in the GROUP BY clause. Got: system.\"_add\" : \
             (int, int(constant)) -> int ",
        ),
        (
            "SELECT k, count(*) FROM t GROUP BY v",
            "Group by is currently only supported on the columns of the PRIMARY KEY, got v",
        ),
        (
            "SELECT a, count(*) FROM p GROUP BY a",
            "Group by is not supported on only a part of the partition key",
        ),
        (
            "SELECT writetime(k) FROM t",
            "Cannot use selection function writetime on PRIMARY KEY part k",
        ),
        (
            "SELECT (v) FROM t",
            "Cannot infer type for term (v) in selection clause (try using a cast to force a type)",
        ),
        (
            "SELECT (1, v) FROM t",
            "Cannot infer type for term (1, v) in selection clause (try using a cast to force a \
             type)",
        ),
        (
            "SELECT null FROM t",
            "Cannot infer type for term NULL in selection clause (try using a cast to force a \
             type)",
        ),
        (
            "SELECT max(max(v)) FROM t",
            "aggregate functions cannot be used as arguments of aggregate functions",
        ),
        ("SELECT max() FROM t", "Invalid number of arguments for function system.max(any)"),
        (
            "SELECT count() FROM t",
            "Invalid number of arguments in call to function system.count: 1 required but 0 \
             provided",
        ),
        ("SELECT v + w FROM t", "the '+' operation is not supported between v and w"),
        (
            "SELECT ?+1 FROM t",
            "Ambiguous '+' operation with args ? and 1: use type hint to disambiguate, example \
             '(int) ?'",
        ),
        (
            "SELECT l[0] FROM t",
            "Element selection is only allowed on sets and maps, but l is a list",
        ),
        ("SELECT (text)v FROM t", "Cannot assign value (text)v to (text)v of type text"),
        ("SELECT k, count(*) FROM t GROUP BY k, k", group),
        ("SELECT foo(v) FROM t", "Unknown function 'foo'"),
        ("SELECT v.x FROM t", "Invalid field selection: v of type int is not a user type"),
        ("SELECT u.nope FROM t", "u of type addr has no field nope"),
        ("SELECT v['a'] FROM t", "Invalid element selection: v is of type int is not a collection"),
        (
            "SELECT ? FROM t",
            "Cannot infer type for term ? in selection clause (try using a cast to force a type)",
        ),
        (
            "SELECT 'abc' FROM t",
            "Cannot infer type for term 'abc' in selection clause (try using a cast to force a \
             type)",
        ),
        (
            "SELECT sum(w) FROM t",
            "Invalid call to function sum, none of its type signatures match (known type \
             signatures: system.sum : (float) -> float, system.sum : (smallint) -> smallint, \
             system.sum : (bigint) -> bigint, system.sum : (tinyint) -> tinyint, system.sum : \
             (varint) -> varint, system.sum : (decimal) -> decimal, system.sum : (int) -> int, \
             system.sum : (double) -> double, system.sum : (counter) -> counter)",
        ),
        (
            "SELECT * FROM f WHERE du > 1h ALLOW FILTERING",
            "Slice restrictions are not supported on duration columns",
        ),
    ];
    for (text, message) in cases {
        refused(text, message);
    }
}

/// `(a,b)` and the like; `<` before, `>` after.
fn bound(prefix: &[u8], after: bool) -> String {
    let values: Vec<String> = components(prefix)
        .map(|c| {
            c.map_or("null".to_owned(), |c| i32::from_be_bytes(c.try_into().unwrap()).to_string())
        })
        .collect();
    format!("{}{}", if after { ">" } else { "<" }, values.join(","))
}

fn describe(read: &ReadCommand) -> String {
    let partitions = match &read.partitions {
        Partitions::Key(key) => match key.as_slice().try_into() {
            Ok(int) => format!("key {}", i32::from_be_bytes(int)),
            Err(_) => format!("key {}", String::from_utf8_lossy(key).escape_debug()),
        },
        Partitions::Range(range) => {
            let side = |bound: &RingBound| match bound {
                RingBound::Token { token, after } => {
                    format!("{}{token}", if *after { ">" } else { "<" })
                }
                RingBound::Key { key, after, .. } => format!("{key:?} {after}"),
            };
            format!("ring {}..{}", side(&range.start), side(&range.end))
        }
    };
    let slices: Vec<String> = read
        .slices
        .0
        .iter()
        .map(|s| format!("[{} {}]", bound(&s.start, s.start_after), bound(&s.end, s.end_after)))
        .collect();
    let reversed = if read.reversed { " reversed" } else { "" };
    format!("{partitions} {}{reversed}", slices.join(" "))
}

fn reads(text: &str, expected: &[&str]) {
    let bound = World::new().bind(text, &[]).unwrap();
    let got: Vec<String> = bound.reads().iter().map(describe).collect();
    assert_eq!(got, expected, "{text}");
}

#[test]
fn keys_come_in_order_of_value_and_once() {
    reads(
        "SELECT * FROM t WHERE k IN (3, 1, 2, 1)",
        &["key 1 [< >]", "key 2 [< >]", "key 3 [< >]"],
    );
    reads("SELECT * FROM t WHERE k IN ()", &[]);
    reads(
        "SELECT * FROM p WHERE a IN (2, 1) AND b IN ('y', 'x')",
        &[
            "key \\0\\u{4}\\0\\0\\0\\u{1}\\0\\0\\u{1}x\\0 [< >]",
            "key \\0\\u{4}\\0\\0\\0\\u{1}\\0\\0\\u{1}y\\0 [< >]",
            "key \\0\\u{4}\\0\\0\\0\\u{2}\\0\\0\\u{1}x\\0 [< >]",
            "key \\0\\u{4}\\0\\0\\0\\u{2}\\0\\0\\u{1}y\\0 [< >]",
        ],
    );
}

#[test]
fn tokens_bound_the_ring() {
    let all = format!("ring <{}..>{} [< >]", i64::MIN, i64::MAX);
    reads("SELECT * FROM t", &[&all]);
    let upper = format!("ring >5..>{} [< >]", i64::MAX);
    reads("SELECT * FROM t WHERE token(k) > 5", &[&upper]);
    reads("SELECT * FROM t WHERE token(k) >= 5 AND token(k) < 9", &["ring <5..<9 [< >]"]);
    reads("SELECT * FROM t WHERE token(k) = 5", &["ring <5..>5 [< >]"]);
    reads("SELECT * FROM t WHERE token(k) > 5 AND token(k) <= 5", &[]);
    // The minimum token as an end is the end of the ring, as drivers that split the ring use it.
    let to_end = format!("SELECT * FROM t WHERE token(k) > 5 AND token(k) <= {}", i64::MIN);
    reads(&to_end, &[&upper]);
    reads("SELECT * FROM t WHERE token(k) > 1 AND k = 1", &[]);
    reads("SELECT * FROM t WHERE token(k) < 1 AND k = 1", &["key 1 [< >]"]);
}

#[test]
fn slices_are_ascending_and_disjoint() {
    reads("SELECT * FROM t WHERE k=1 AND c1=2", &["key 1 [<2 >2]"]);
    reads("SELECT * FROM t WHERE k=1 AND c1=2 AND c2=3", &["key 1 [<2,3 >2,3]"]);
    reads("SELECT * FROM t WHERE k=1 AND c1>2", &["key 1 [>2 >]"]);
    reads("SELECT * FROM t WHERE k=1 AND c1>=2 AND c1<4", &["key 1 [<2 <4]"]);
    reads("SELECT * FROM t WHERE k=1 AND c1>4 AND c1<4", &[]);
    reads("SELECT * FROM t WHERE k=1 AND c1=2 AND c2<=5", &["key 1 [<2 >2,5]"]);
    reads("SELECT * FROM t WHERE k=1 AND c1 IN (5,2,2) AND c2 > 3", &["key 1 [>2,3 >2] [>5,3 >5]"]);
    reads(
        "SELECT * FROM t WHERE k=1 AND (c1,c2) IN ((3,1),(1,3))",
        &["key 1 [<1,3 >1,3] [<3,1 >3,1]"],
    );
    reads("SELECT * FROM t WHERE k=1 AND (c1,c2) > (1,2)", &["key 1 [>1,2 >]"]);
    reads("SELECT * FROM t WHERE k=1 AND (c1,c2) >= (1,2) AND (c1) < (3)", &["key 1 [<1,2 <3]"]);
    reads("SELECT * FROM t WHERE k=1 AND c1=1 ORDER BY c2 DESC", &["key 1 [<1 >1] reversed"]);
}

#[test]
fn mixed_directions_split_tuples_into_slices() {
    // a ASC, b DESC, c ASC: greater b comes earlier.
    reads("SELECT * FROM d WHERE k=1 AND a=1 AND b>5", &["key 1 [<1 <1,5]"]);
    reads("SELECT * FROM d WHERE k=1 AND a=1 AND b<=5", &["key 1 [<1,5 >1]"]);
    reads("SELECT * FROM d WHERE k=1 AND (a,b) > (1,5)", &["key 1 [<1 <1,5] [>1 >]"]);
    reads(
        "SELECT * FROM d WHERE k=1 AND (a,b,c) >= (1,5,7)",
        &["key 1 [<1 <1,5] [<1,5,7 >1,5] [>1 >]"],
    );
    reads(
        "SELECT * FROM d WHERE k=1 AND (a,b) > (1,5) AND (a,b) <= (3,2)",
        &["key 1 [<1 <1,5] [>1 <3] [<3,2 >3]"],
    );
    reads("SELECT * FROM d WHERE k=1 ORDER BY a DESC, b ASC, c DESC", &["key 1 [< >] reversed"]);
}

#[test]
fn bind_markers_are_named_like_cassandras() {
    let world = World::new();
    let limits = PlanLimits::default();
    let text = "SELECT * FROM t WHERE k IN ? AND (c1, c2) > ? AND s CONTAINS ? AND m[?] = ? \
                LIMIT ? ALLOW FILTERING";
    let planned = plan(&cql_syntax::parse(text).unwrap(), &world.context(&limits)).unwrap();
    let names: Vec<String> =
        planned.inputs.binds.iter().map(|b| format!("{} {}", b.name, b.ty)).collect();
    assert_eq!(
        names,
        [
            "in(k) list<int>",
            "(c1,c2) frozen<tuple<int, int>>",
            "value(s) text",
            "key(m) text",
            "value(m) int",
            "[limit] int",
        ]
    );
    assert_eq!(planned.inputs.pk_bind_indices(), None);
    let text = "SELECT * FROM p WHERE b = ? AND a = ?";
    let planned = plan(&cql_syntax::parse(text).unwrap(), &world.context(&limits)).unwrap();
    assert_eq!(planned.inputs.pk_bind_indices(), Some([1u16, 0].as_slice()));
}

#[test]
fn keys_over_the_limit_and_empty_ones_are_refused() {
    let world = World::new();
    let text = "SELECT * FROM p WHERE a = 1 AND b = ?";
    let bind = |length: usize| {
        let value = vec![b'x'; length];
        world.bind(text, &[BoundValue::Bytes(&value)]).map(|b| b.reads().len())
    };
    // 2 + 4 + 1 and 2 + b + 1 bytes.
    assert_eq!(bind(65_535 - 10), Ok(1));
    let long = "Key length of 65536 is longer than maximum of 65535";
    assert_eq!(bind(65_535 - 9), Err(PlanError::invalid(long)));
    assert_eq!(
        world.bind(text, &[BoundValue::Unset]).map(|_| ()),
        Err(PlanError::invalid("Invalid unset value for column b"))
    );
}

#[test]
fn too_many_combinations_of_in_are_refused() {
    let many = (0..300).map(|i| i.to_string()).collect::<Vec<_>>().join(",");
    let few = (0..200).map(|i| i.to_string()).collect::<Vec<_>>().join(",");
    let world = World::new();
    let clause = |list: &str| {
        world.bind(&format!("SELECT * FROM t WHERE k=1 AND c1 IN ({many}) AND c2 IN ({list})"), &[])
    };
    assert_eq!(clause(&few).unwrap().reads()[0].slices.0.len(), 60_000);
    assert!(clause(&many).is_err());
}

#[test]
fn a_product_of_keys_and_rows_is_not_built() {
    let world = World::new();
    let many = (0..10_000).map(|i| i.to_string()).collect::<Vec<_>>().join(",");
    let text = format!("SELECT * FROM t WHERE k IN ({many}) AND c1 IN ({many})");
    let bound = world.bind(&text, &[]).unwrap();
    let [first, rest @ ..] = bound.reads() else { panic!("no reads") };
    assert_eq!((rest.len(), first.slices.0.len()), (9_999, 10_000));
    // Ten thousand of each, not a hundred million.
    assert!(rest.iter().all(|read| std::sync::Arc::ptr_eq(&read.slices, &first.slices)));
    assert!(bound.expanded_bytes() < 8 << 20, "{}", bound.expanded_bytes());
    // Wide values count by their size.
    let wide = "x".repeat(60_000);
    let list = (0..1000).map(|i| format!("'{i}{wide}'")).collect::<Vec<_>>().join(",");
    let text = format!("SELECT * FROM p WHERE a IN (1, 2, 3, 4) AND b IN ({list})");
    let error = world.bind(&text, &[]).map(|_| ()).unwrap_err();
    assert!(error.message.contains("take more than 33554432 bytes"), "{}", error.message);
}
