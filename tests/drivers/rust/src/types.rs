//! Every native type, collections, tuples, user types and vectors: written, read back, compared.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use scylla::value::{
    CqlDate, CqlDecimal, CqlDuration, CqlTime, CqlTimestamp, CqlTimeuuid, CqlValue, CqlVarint,
};
use scylla::{DeserializeValue, SerializeValue};

use crate::Context;

crate::tests![
    every_native_type_round_trips,
    collections_tuples_and_vectors_round_trip,
    user_types_round_trip_as_structures,
    collection_updates_add_and_remove_elements,
];

/// Writes each value, reads it back, then null.
async fn round_trip(context: &Context, table: &str, cql_type: &str, values: Vec<CqlValue>) {
    context.define(&format!("CREATE TABLE {table} (k int PRIMARY KEY, v {cql_type})")).await;
    let insert = format!("INSERT INTO {table} (k, v) VALUES (?, ?)");
    let select = format!("SELECT v FROM {table} WHERE k = ?");
    for (key, value) in (0_i32..).zip(values) {
        context.execute(&insert, (key, &value)).await;
        let read: Vec<(CqlValue,)> = context.rows(&select, (key,)).await;
        assert_eq!(read, [(value,)], "{cql_type}");
    }
    context.execute(&insert, (99, None::<CqlValue>)).await;
    let read: Vec<(Option<CqlValue>,)> = context.rows(&select, (99,)).await;
    assert_eq!(read, [(None,)], "{cql_type}");
}

fn text(value: &str) -> CqlValue {
    CqlValue::Text(value.to_owned())
}

fn ints(values: &[i32]) -> Vec<CqlValue> {
    values.iter().map(|value| CqlValue::Int(*value)).collect()
}

fn varint(bytes: &[u8]) -> CqlValue {
    CqlValue::Varint(CqlVarint::from_signed_bytes_be_slice(bytes))
}

fn decimal(bytes: &[u8], scale: i32) -> CqlValue {
    CqlValue::Decimal(CqlDecimal::from_signed_be_bytes_slice_and_exponent(bytes, scale))
}

fn duration(months: i32, days: i32, nanoseconds: i64) -> CqlValue {
    CqlValue::Duration(CqlDuration { months, days, nanoseconds })
}

fn inet(address: &str) -> CqlValue {
    CqlValue::Inet(address.parse::<IpAddr>().unwrap())
}

async fn every_native_type_round_trips(context: Arc<Context>) {
    use CqlValue::*;
    let mut large = vec![1_u8];
    large.extend([0; 25]);
    let id = uuid::Uuid::parse_str("f79326be-2d7b-4996-b881-f9f0d571ffe0").unwrap();
    let time_id: CqlTimeuuid = "d2177dd0-eaa2-11de-a572-001b779c76e3".parse().unwrap();
    for (cql_type, values) in [
        ("ascii", vec![Ascii(String::new()), Ascii("plain ascii".to_owned())]),
        ("bigint", vec![BigInt(0), BigInt(i64::MAX), BigInt(i64::MIN)]),
        ("blob", vec![Blob(Vec::new()), Blob(vec![0, 255])]),
        ("boolean", vec![Boolean(true), Boolean(false)]),
        ("date", [0, 1 << 31, (1 << 31) + 19_782, u32::MAX].map(|d| Date(CqlDate(d))).to_vec()),
        ("decimal", vec![decimal(&[0], 0), decimal(&[0x80, 1, 2], 10), decimal(&[1], -20)]),
        (
            "double",
            [0.0, -0.0, 1.5e300, f64::INFINITY, f64::NEG_INFINITY, 5e-324].map(Double).to_vec(),
        ),
        ("duration", vec![duration(0, 0, 0), duration(14, 3, 5_000_000_000), duration(-1, -2, -3)]),
        ("float", [0.0, 1.5, -2.25, f32::INFINITY].map(Float).to_vec()),
        ("inet", vec![inet("127.0.0.1"), inet("::1"), inet("2001:db8::ff00:42:8329")]),
        ("int", ints(&[0, i32::MAX, i32::MIN])),
        ("smallint", vec![SmallInt(0), SmallInt(i16::MAX), SmallInt(i16::MIN)]),
        ("text", vec![text(""), text("Žluťoučký kůň"), text("\u{1f600} \n\t'\"")]),
        ("time", vec![Time(CqlTime(0)), Time(CqlTime(86_399_999_999_999))]),
        (
            "timestamp",
            [0, 1_782_909_045_678, -2_208_988_800_000, i64::MIN]
                .map(|millis| Timestamp(CqlTimestamp(millis)))
                .to_vec(),
        ),
        ("timeuuid", vec![Timeuuid(time_id)]),
        ("tinyint", vec![TinyInt(0), TinyInt(i8::MAX), TinyInt(i8::MIN)]),
        ("uuid", vec![CqlValue::Uuid(uuid::Uuid::nil()), CqlValue::Uuid(id)]),
        ("varchar", vec![text("varchar is text")]),
        (
            "varint",
            vec![
                varint(&[0]),
                varint(&[0xff]),
                varint(&[0x7f]),
                varint(&[0, 0x80]),
                varint(&large),
            ],
        ),
    ] {
        round_trip(&context, &format!("rt_{cql_type}"), cql_type, values).await;
    }
}

async fn collections_tuples_and_vectors_round_trip(context: Arc<Context>) {
    use CqlValue::*;
    let map = |key: &str, value: CqlValue| Map(vec![(text(key), value)]);
    let floats = [1.5, -2.0, 0.25].map(Float).to_vec();
    let cases = [
        ("list<int>", vec![List(ints(&[1, 2, 3, 2]))]),
        ("set<text>", vec![Set(vec![text("a"), text("x")])]),
        ("map<text, int>", vec![map("a", Int(1))]),
        ("map<text, frozen<list<text>>>", vec![map("a", List(vec![text("x"), text("y")]))]),
        ("frozen<list<int>>", vec![List(ints(&[1, 2, 3]))]),
        ("frozen<map<text, int>>", vec![map("a", Int(1))]),
        (
            "list<frozen<map<text, frozen<set<int>>>>>",
            vec![List(vec![map("a", Set(ints(&[1, 2])))])],
        ),
        (
            "tuple<int, text, boolean>",
            vec![
                Tuple(vec![Some(Int(1)), Some(text("a")), Some(Boolean(true))]),
                Tuple(vec![Some(Int(1)), None, Some(Boolean(false))]),
            ],
        ),
        (
            "list<frozen<tuple<int, text>>>",
            vec![List(vec![Tuple(vec![Some(Int(1)), Some(text("a"))])])],
        ),
        ("vector<float, 3>", vec![Vector(floats)]),
        ("vector<text, 2>", vec![Vector(vec![text("a"), text("longer than the other")])]),
    ];
    for (number, (cql_type, values)) in cases.into_iter().enumerate() {
        round_trip(&context, &format!("coll_{number}"), cql_type, values).await;
    }
}

#[derive(Clone, Debug, PartialEq, SerializeValue, DeserializeValue)]
struct Address {
    street: Option<String>,
    zip: Option<i32>,
    tags: Option<Vec<String>>,
}

async fn user_types_round_trip_as_structures(context: Arc<Context>) {
    context.define("CREATE TYPE address (street text, zip int, tags frozen<set<text>>)").await;
    context
        .define(
            "CREATE TABLE people (k int PRIMARY KEY, a frozen<address>, b address, \
             l list<frozen<address>>)",
        )
        .await;
    let home = Address {
        street: Some("Main".to_owned()),
        zip: Some(12345),
        tags: Some(vec!["a".to_owned(), "b".to_owned()]),
    };
    let mut part = Address { street: Some("Half".to_owned()), zip: None, tags: None };
    let list = vec![home.clone(), part.clone()];
    let insert = "INSERT INTO people (k, a, b, l) VALUES (?, ?, ?, ?)";
    context.execute(insert, (1, &home, &part, &list)).await;
    context.define("UPDATE people SET b.zip = 7 WHERE k = 1").await;
    part.zip = Some(7);
    let rows: Vec<(Address, Address, Vec<Address>, String)> =
        context.rows("SELECT a, b, l, a.street FROM people WHERE k = ?", (1,)).await;
    assert_eq!(rows, [(home, part, list, "Main".to_owned())]);
}

async fn collection_updates_add_and_remove_elements(context: Arc<Context>) {
    let create = "CREATE TABLE upd (k int PRIMARY KEY, l list<int>, s set<int>, m map<text, int>)";
    context.define(create).await;
    context.define("INSERT INTO upd (k, l, s, m) VALUES (1, [1], {1}, {'a': 1})").await;
    let update = "UPDATE upd SET l = l + ?, s = s + ?, m = m + {'b': 2} WHERE k = 1";
    context.execute(update, (vec![2, 3], vec![2])).await;
    let update = "UPDATE upd SET l[?] = ?, s = s - {1}, m[?] = ? WHERE k = 1";
    context.execute(update, (1, 11, "c", 3)).await;
    context.define("DELETE m['a'], l[0] FROM upd WHERE k = 1").await;
    let rows: Vec<(Vec<i32>, Vec<i32>, BTreeMap<String, i32>)> =
        context.rows("SELECT l, s, m FROM upd WHERE k = 1", ()).await;
    let pairs = BTreeMap::from([("b".to_owned(), 2), ("c".to_owned(), 3)]);
    assert_eq!(rows, [(vec![11, 3], vec![2], pairs)]);
}
