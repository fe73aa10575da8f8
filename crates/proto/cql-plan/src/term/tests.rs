use stdx::WallMicros;
use types::CqlType;

use crate::functions::json::{self, Json};
use crate::modify::tests::{NOW, TABLES, plan_of, schema_of};
use crate::plan::*;

/// The value that `UPDATE … SET column = term` writes, as CQL text.
fn value_of(column: &str, term: &str) -> Result<String, String> {
    let schema = schema_of(TABLES);
    let table = if matches!(column, "v" | "s") { "t" } else { "m" };
    let cql = format!("UPDATE {table} SET {column} = {term} WHERE k = 1");
    let plan = plan_of(&schema, &cql).map_err(|e| e.message)?;
    let PlanKind::Modify(modify) = &plan.kind else { return Err("no modification".into()) };
    let uuids = UuidSource::new(1);
    let options = ExecuteOptions {
        now: NOW,
        clock: NOW,
        default_timestamp: stdx::TimestampMicros(1),
        page_size: None,
        paging_state: None,
        protocol_version: 5,
        uuids: &uuids,
        watch: None,
    };
    let mut out = Vec::new();
    modify.bind(&[], &options, &mut out).map_err(|e| e.message)?;
    let mutation = data::MutationRef::parse(&out, 0).ok_or("parses")?;
    let (_, row) = mutation.rows().next().ok_or("a row")?;
    let (id, cell) = row.columns().next().ok_or("a column")?;
    let ty = &modify.table().column_by_id(id).ok_or("known")?.ty;
    match cell {
        data::ColumnRef::Simple(cell) if cell.is_tombstone() => Ok("null".to_owned()),
        data::ColumnRef::Simple(cell) => Ok(ty.format_cql_literal(cell.value)),
        data::ColumnRef::Complex(_) => Err("complex".into()),
    }
}

fn check(column: &str, term: &str, expect: &str) {
    assert_eq!(value_of(column, term).as_deref(), Ok(expect), "{term}");
}

fn check_error(column: &str, term: &str, expect: &str) {
    assert_eq!(value_of(column, term).map_err(|e| e.to_string()), Err(expect.to_owned()), "{term}");
}

#[test]
fn functions_of_time_convert_between_types() {
    check("ts", "current_timestamp()", "'2023-11-14T22:13:20.000Z'");
    check("ts", "to_timestamp(current_date())", "'2023-11-14T00:00:00.000Z'");
    check("ts", "totimestamp(now())", "'2023-11-14T22:13:20.000Z'");
    check("n", "to_unix_timestamp((date) '1970-01-02')", "86400000");
    check("ts", "floor((timestamp) '2020-03-15', 1mo)", "'2020-03-01T00:00:00.000Z'");
    check("ts", "floor((timestamp) '2020-03-15', 7d)", "'2020-03-12T00:00:00.000Z'");
    check("tu", "min_timeuuid('2011-02-03 04:05+0000')", "c4fb3e00-2f4a-11e0-8080-808080808080");
    check("ts", "(timestamp) '2020-01-01' + 1d", "'2020-01-02T00:00:00.000Z'");
}

#[test]
fn arithmetic_and_casts_take_the_type_of_their_operands() {
    check("v", "1 + 2", "3");
    check("v", "(1 + 2) * 3", "9");
    check("v", "-(5)", "-5");
    check("s", "'a' + 'b'", "'ab'");
    check("s", "CAST(5 AS text)", "'5'");
    check("d", "CAST(5 AS double)", "5.0");
    check("v", "abs(-5)", "5");
    check("d", "round((double) 2.5)", "3.0");
    check_error("v", "1 / 0", "the operation 'int / int' failed: / by zero");
    check_error("v", "(text) 5", "Cannot cast value 5 to type text");
    check_error(
        "v",
        "to_unix_timestamp((date) '1970-01-02')",
        "Invalid call to function to_unix_timestamp, none of its type signatures match (known type \
         signatures: system.to_unix_timestamp : (timeuuid) -> bigint, system.to_unix_timestamp : \
         (timestamp) -> bigint, system.to_unix_timestamp : (date) -> bigint)",
    );
}

#[test]
fn blobs_tokens_and_collections_have_their_functions() {
    check("b", "int_as_blob(5)", "0x00000005");
    check("b", "textasblob('a')", "0x61");
    check("v", "blob_as_int(0x00000007)", "7");
    check_error(
        "v",
        "blob_as_int(0xff)",
        "In call to function system.blob_as_int, value 0xff is not a valid binary representation \
         for type int",
    );
    check("n", "token(1)", "-4069959284402364209");
    check("v", "collection_count({1, 2})", "2");
    check("v", "collection_max({1, 2})", "2");
    check("fl", "map_values({'a': 1, 'b': 2})", "[1, 2]");
    check("s", "mask_inner('hello', 1, 1)", "'h***o'");
    check("s", "mask_default('hello')", "'****'");
    for (algorithm, digest) in [
        ("", "0x2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"),
        (", null", "0x2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"),
        (", 'MD5'", "0x5d41402abc4b2a76b9719d911017c592"),
        (", 'sha-1'", "0xaaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d"),
        (", 'SHA-512/256'", "0xe30d87cfa2a75db545eac4d61baf970366a8357c7f72fa95b52d0accb698f13a"),
    ] {
        check("b", &format!("mask_hash((text) 'hello'{algorithm})"), digest);
    }
    check("b", "mask_hash((int) null)", "null");
    check_error("b", "mask_hash((int) null, 'MD9')", "Hash algorithm not found: MD9");
}

#[test]
fn json_becomes_values_and_back() {
    check("s", "to_json({1, 2})", "'[1, 2]'");
    check("fl", "from_json('[1, 2]')", "[1, 2]");
    check("fu", "from_json('{\"Zip\": 5}')", "{street: null, zip: 5}");
    check_error(
        "v",
        "from_json('1.5')",
        "org.apache.cassandra.serializers.MarshalException: Expected an int value, but got a \
         Double: 1.5",
    );
    let accepted =
        ["{\"a\": [1, -2.5e3, true, null, \"x\\u00e9\\ud83d\\ude00\\n\"]}", " 1 ", "\"\""];
    for text in accepted {
        assert!(json::parse(text).is_ok(), "{text}");
    }
    for text in ["{", "[1,]", "01", "1.", "\"\\x\"", "nul", "{\"a\" 1}", "\"\\ud83d\"", "1 2"] {
        assert!(json::parse(text).is_err(), "{text}");
    }
    assert_eq!(
        json::parse("{\"a\": 1, \"a\": 2}"),
        Ok(Json::Map(vec![("a".to_owned(), Json::Integer("2".to_owned()))]))
    );
    let ty = CqlType::list(CqlType::Decimal, true);
    let value = json::from_json(&ty, &Json::List(vec![Json::Text("1.50".to_owned())]), 0);
    assert_eq!(value.map(|v| ty.format_cql_literal(&v)), Ok("[1.50]".to_owned()));
}

#[test]
fn time_uuids_of_one_source_ascend_and_prepended_paths_descend() {
    let uuids = UuidSource::new(3);
    let order = types::Comparator::for_type(&CqlType::Timeuuid);
    let made: Vec<[u8; 16]> = (0..100).map(|_| uuids.time_uuid(WallMicros(5_000_000))).collect();
    assert!(made.is_sorted_by(|a, b| order.compare(a, b).is_lt()));
    let made: Vec<[u8; 16]> = (0..100).map(|_| uuids.prepend_uuid(NOW)).collect();
    assert!(made.is_sorted_by(|a, b| order.compare(a, b).is_gt()));
    assert!(types::timeuuid::is_timeuuid(&made[0]));
    assert_ne!(uuids.random_uuid(), uuids.random_uuid());
}

#[test]
fn no_document_breaks_the_json_reader() {
    let corpus: &[&[u8]] = &[
        b"{\"a\": {\"1\": [1.5, \"2\"]}, \"b\": [1, 2.5], \"e\": -1e5}",
        b"{\"c\": [\"2020-01-01\", \"::1\", 123456789012345678901234567890], \"d\": [\"1d\"]}",
        b"{\"A\": \"{\\\"1\\\": []}\", \"x\": \"\\u00e9\\ud83d\\ude00\"}",
        b"[[[[[[null, true, false]]]]]]",
    ];
    cql_testing::mutate(corpus, 10_000, json::fuzz_json);
}
