//! Values of CQL to Lua and back.

use super::*;

#[test]
fn simple_values_are_numbers_strings_and_booleans() {
    let double = (-2.5_f64).to_be_bytes();
    for (ty, value, lua) in [
        (CqlType::Int, int(-7), "integer -7"),
        (CqlType::Tinyint, vec![0x80], "integer -128"),
        (CqlType::Smallint, vec![0, 9], "integer 9"),
        (CqlType::Bigint, i64::MIN.to_be_bytes().to_vec(), "integer -9223372036854775808"),
        (CqlType::Counter, 5_i64.to_be_bytes().to_vec(), "integer 5"),
        (CqlType::Float, 1.5_f32.to_be_bytes().to_vec(), "float 1.5"),
        (CqlType::Double, double.to_vec(), "float -2.5"),
        (CqlType::Boolean, vec![1], "nil true"),
        (CqlType::Text, "grüß".into(), "nil grüß"),
        (CqlType::Blob, b"a\0b".to_vec(), "nil a\0b"),
        (CqlType::Date, (1_u32 << 31).to_be_bytes().to_vec(), "integer 2147483648"),
        (CqlType::Time, 90_i64.to_be_bytes().to_vec(), "integer 90"),
        (CqlType::Timestamp, 1_000_i64.to_be_bytes().to_vec(), "integer 1000"),
        (CqlType::Inet, vec![127, 0, 0, 1], "nil 127.0.0.1"),
        (CqlType::Uuid, vec![0x11; 16], "nil 11111111-1111-1111-1111-111111111111"),
        (CqlType::Varint, vec![1, 0], "nil 256"),
        (CqlType::Decimal, vec![0, 0, 0, 1, 15], "nil 1.5"),
    ] {
        let body = "return tostring(math.type(a)) .. ' ' .. tostring(a)";
        let function = compile(&[ty.clone()], CqlType::Text, body).unwrap();
        assert_eq!(call(&function, &[Some(&value)]), Ok(Some(lua.into())), "{ty}");
    }
    // An empty value is no number.
    assert_eq!(map(CqlType::Int, Some(b""), CqlType::Text, "return type(a)").unwrap(), "'nil'");
    assert_eq!(map(CqlType::Text, Some(b""), CqlType::Text, "return type(a)").unwrap(), "'string'");
}

#[test]
fn numbers_and_texts_are_made_of_each_other_as_lua_does_it() {
    for (body, expect) in [
        ("return 42", "42"),
        ("return 42.0", "42"),
        ("return '42'", "42"),
        ("return ' 0x2a '", "42"),
        ("return 3000000000", "-1294967296"),
        ("return 1.5", "error: it returned no valid int: 1.5 is no whole number"),
        ("return 'x'", "error: it returned no valid int: a string is no int"),
        ("return {}", "error: it returned no valid int: a table is no int"),
        ("return true", "error: it returned no valid int: a boolean is no int"),
        ("return print", "null"),
        ("return type", "error: it returned no valid int: a function is no int"),
    ] {
        returns(CqlType::Int, body, expect);
    }
    returns(CqlType::Tinyint, "return 200", "-56");
    returns(CqlType::Smallint, "return 65537", "1");
    returns(CqlType::Bigint, "return 2^53", "9007199254740992");
    returns(
        CqlType::Bigint,
        "return 1e300",
        "error: it returned no valid bigint: a number is no bigint",
    );
    returns(CqlType::Double, "return '0.5'", "0.5");
    returns(CqlType::Double, "return 1/0", "Infinity");
    returns(CqlType::Float, "return 1e300", "Infinity");
    returns(CqlType::Double, "return 9007199254740993", "9.007199254740992E15");
    returns(CqlType::Text, "return 12", "'12'");
    returns(CqlType::Text, "return 0.25", "'0.25'");
    returns(CqlType::Blob, "return 'ab\\255'", "0x6162ff");
    returns(CqlType::Boolean, "return false", "false");
    returns(
        CqlType::Boolean,
        "return 0",
        "error: it returned no valid boolean: a number is no boolean",
    );
    let bad = map(CqlType::Int, None, CqlType::Text, "return '\\255'").unwrap_err();
    assert!(bad.starts_with("it returned no valid text: "), "{bad}");
    let bad = map(CqlType::Int, None, CqlType::Ascii, "return 'ü'").unwrap_err();
    assert!(bad.starts_with("it returned no valid ascii: "), "{bad}");
}

#[test]
fn times_addresses_and_ids_are_read_from_texts_too() {
    returns(CqlType::Date, "return 2147483649", "'1970-01-02'");
    returns(CqlType::Date, "return '2024-02-29'", "'2024-02-29'");
    returns(CqlType::Date, "return {year = 2024, month = 2, day = 29}", "'2024-02-29'");
    returns(
        CqlType::Date,
        "return {year = 2023, month = 2, day = 29}",
        "error: it returned no valid date: there is no such date",
    );
    returns(
        CqlType::Date,
        "return {year = 2023, month = 2, day = 1, hour = 1}",
        "error: it returned no valid date: date has no field 'hour'",
    );
    returns(
        CqlType::Date,
        "return {year = 2023, month = 2}",
        "error: it returned no valid date: a date needs the field 'day'",
    );
    returns(CqlType::Date, "return -1", "error: it returned no valid date: -1 is no date");
    returns(CqlType::Time, "return '01:02:03'", "'01:02:03.000000000'");
    returns(CqlType::Time, "return 1000000000", "'00:00:01.000000000'");
    returns(CqlType::Timestamp, "return '1970-01-01T00:00:01Z'", "'1970-01-01T00:00:01.000Z'");
    returns(CqlType::Timestamp, "return 1000.0", "'1970-01-01T00:00:01.000Z'");
    // There is no clock.
    assert!(map(CqlType::Int, None, CqlType::Timestamp, "return 'now'").is_err());
    returns(CqlType::Inet, "return '::1'", "'0:0:0:0:0:0:0:1'");
    returns(CqlType::Inet, "return 'localhost'", "'127.0.0.1'");
    assert!(map(CqlType::Int, None, CqlType::Inet, "return 'no host'").is_err());
    let id = "5132b130-ae79-11e4-ab27-0800200c9a66";
    returns(CqlType::Timeuuid, &format!("return '{id}'"), id);
    returns(CqlType::Uuid, &format!("return '{id}'"), id);
    returns(CqlType::Uuid, "return 'x'", "error: it returned no valid uuid: 'x' is no uuid");
    let other = "return '11111111-1111-4111-8111-111111111111'";
    assert!(map(CqlType::Int, None, CqlType::Timeuuid, other).is_err());
    returns(CqlType::Duration, "return '1mo2d3ns'", "1mo2d3ns");
    returns(CqlType::Duration, "return {months = 1, days = 2, nanoseconds = 3}", "1mo2d3ns");
    returns(
        CqlType::Duration,
        "return {months = 1, days = 2}",
        "error: it returned no valid duration: a duration needs the field 'nanoseconds'",
    );
    assert!(
        map(
            CqlType::Int,
            None,
            CqlType::Duration,
            "return {months = 1, days = -2, nanoseconds = 0}"
        )
        .is_err()
    );
    let duration = Duration::new(1, 2, 3).unwrap().to_bytes();
    let body = "return a.months .. '/' .. a.days .. '/' .. a.nanoseconds";
    assert_eq!(map(CqlType::Duration, Some(&duration), CqlType::Text, body).unwrap(), "'1/2/3'");
}

#[test]
fn large_numbers_calculate_and_convert() {
    let big = "return a * a * a * a * a";
    let nine =
        types::number::varint_to_bytes(&types::number::parse_varint("999999999999").unwrap());
    assert_eq!(
        map(CqlType::Varint, Some(&nine), CqlType::Varint, big).unwrap(),
        "999999999995000000000009999999999990000000000004999999999999"
    );
    let varint = |body: &str, to: CqlType| map(CqlType::Varint, Some(&[0xf9]), to, body); // -7
    for (body, expect) in [
        ("return a + 1", "-6"),
        ("return 1 - a", "8"),
        ("return a // 2", "-4"),
        ("return a % 2", "1"),
        ("return a // -2", "3"),
        ("return a % -2", "-1"),
        ("return -a", "7"),
        ("return a * '2'", "-14"),
        ("return a < 0 and a <= a and a == a + 0 and not (a > 5) and 1 or 0", "1"),
        ("return a < 1/0 and -1/0 < a and 1 or 0", "1"),
        ("return #(a .. 'x')", "3"),
    ] {
        assert_eq!(varint(body, CqlType::Varint).as_deref(), Ok(expect), "{body}");
    }
    assert_eq!(varint("return a / 2", CqlType::Decimal).as_deref(), Ok("-3.5"));
    assert_eq!(varint("return a + 0.25", CqlType::Decimal).as_deref(), Ok("-6.75"));
    assert_eq!(varint("return a", CqlType::Double).as_deref(), Ok("-7.0"));
    for ty in [CqlType::Tinyint, CqlType::Int, CqlType::Bigint, CqlType::Decimal] {
        assert_eq!(varint("return a", ty).as_deref(), Ok("-7"));
    }
    assert_eq!(varint("return a", CqlType::Text).as_deref(), Ok("'-7'"));
    assert_eq!(varint("return string.format('%s', a)", CqlType::Text).as_deref(), Ok("'-7'"));
    assert!(varint("return a // 0", CqlType::Varint).unwrap_err().contains("n//0"));
    assert!(varint("return a / 0", CqlType::Varint).is_err());
    assert!(
        varint("return a + {}", CqlType::Varint).unwrap_err().contains("arithmetic on a table")
    );
    assert!(varint("return a < 'x'", CqlType::Boolean).is_err());
    assert!(varint("return a < 0/0", CqlType::Boolean).is_err());
    returns(
        CqlType::Varint,
        "return '123456789012345678901234567890'",
        "123456789012345678901234567890",
    );
    returns(CqlType::Varint, "return 1e23", "99999999999999991611392");
    returns(CqlType::Decimal, "return 0.1", "0.1");
    returns(CqlType::Decimal, "return '1.50'", "1.50");
    returns(
        CqlType::Varint,
        "return 1.5",
        "error: it returned no valid varint: 1.5 is no whole number",
    );
    returns(CqlType::Varint, "return 1/0", "error: it returned no valid varint: inf is no varint");
    returns(
        CqlType::Varint,
        "return 'abc'",
        "error: it returned no valid varint: 'abc' is no varint",
    );
}

#[test]
fn large_numbers_are_bounded() {
    let varint = |body: &str| map(CqlType::Varint, Some(&[2]), CqlType::Varint, body).unwrap_err();
    assert_eq!(varint("while true do a = a * a end"), "a number has more than 16384 bytes");
    let kept = "for i = 1, 13 do a = a * a end local all = {} for i = 1, 1e6 do all[i] = a + i end";
    assert_eq!(varint(kept), "it used more than its 4194304 bytes of memory");
    // Unreferenced numbers are collected.
    let dropped = "for i = 1, 13 do a = a * a end for i = 1, 8000 do local x = a + i end return 1";
    assert_eq!(map(CqlType::Varint, Some(&[2]), CqlType::Varint, dropped).as_deref(), Ok("1"));
    let slow = "for i = 1, 15 do a = a * a end while true do local x = a * a / a end";
    let got = varint(slow);
    assert!(got.contains("units of fuel"), "{got}");
    let far = vec![0x7f, 0xff, 0xff, 0xff, 1];
    let got = map(CqlType::Decimal, Some(&far), CqlType::Decimal, "return a + 1");
    assert!(got.is_err(), "{got:?}");
    let large = vec![1; 20_000];
    let got = map(CqlType::Varint, Some(&large), CqlType::Int, "return 1");
    assert_eq!(got.unwrap_err(), "a number has more than 16384 bytes");
}

#[test]
fn collections_are_tables() {
    let list = CqlType::list(CqlType::Int, false);
    let value = encode_collection([int(3), int(1)]).unwrap();
    let body = "table.sort(a) a[#a + 1] = 9 return a";
    assert_eq!(map(list.clone(), Some(&value), list.clone(), body).unwrap(), "[1, 3, 9]");
    let set = CqlType::set(CqlType::Text, false);
    let value = encode_collection(["b", "c"]).unwrap();
    let body = "a.c = nil a.a = true return a";
    assert_eq!(map(set.clone(), Some(&value), set.clone(), body).unwrap(), "{'a', 'b'}");
    let map_type = CqlType::map(CqlType::Text, CqlType::Int, false);
    let value = encode_map([("x", int(1)), ("y", int(2))]).unwrap();
    let body = "a.x = a.x + a.y a.b = 5 return a";
    assert_eq!(
        map(map_type.clone(), Some(&value), map_type.clone(), body).unwrap(),
        "{'b': 5, 'x': 3, 'y': 2}"
    );
    let vector = CqlType::vector(CqlType::Float, 2);
    let value =
        encode_vector(&CqlType::Float, 2, [1_f32.to_be_bytes(), 2_f32.to_be_bytes()]).unwrap();
    let body = "return {a[2], a[1]}";
    assert_eq!(map(vector.clone(), Some(&value), vector.clone(), body).unwrap(), "[2.0, 1.0]");
    for (ty, body, expect) in [
        (&list, "return {}", "[]"),
        (
            &list,
            "return {1, nil, 3}",
            "error: it returned no valid list<int>: the table is no sequence, as a list<int> is",
        ),
        (
            &list,
            "return {x = 1}",
            "error: it returned no valid list<int>: the table is no sequence, as a list<int> is",
        ),
        (&list, "return {1, 'x'}", "error: it returned no valid list<int>: a string is no int"),
        (
            &set,
            "return {'x'}",
            "error: it returned no valid set<text>: in a set<text> each key has the value true",
        ),
        (
            &set,
            "return {[1] = true, ['1'] = true}",
            "error: it returned no valid set<text>: two keys are the same in a set<text>",
        ),
        (
            &map_type,
            "return {a = {}}",
            "error: it returned no valid map<text, int>: a table is no int",
        ),
        (
            &map_type,
            "return {[type] = 1}",
            "error: it returned no valid map<text, int>: keys of type function have no order",
        ),
        (
            &vector,
            "return {1}",
            "error: it returned no valid vector<float, 2>: 1 elements are no vector<float, 2>",
        ),
    ] {
        returns(ty.clone(), body, expect);
    }
    // Metatables are not asked.
    returns(list, "return setmetatable({1}, {__index = function() return 2 end})", "[1]");
}

#[test]
fn tuples_and_user_types_are_tables_with_nil_for_null() {
    let tuple = CqlType::tuple([CqlType::Int, CqlType::Text, CqlType::Int]);
    let value = encode_tuple([Some(int(1)), None, Some(int(3))]).unwrap();
    assert_eq!(
        map(tuple.clone(), Some(&value), tuple.clone(), "return a").unwrap(),
        "(1, null, 3)"
    );
    let body = "return {a[3], tostring(a[2])}";
    assert_eq!(map(tuple.clone(), Some(&value), tuple.clone(), body).unwrap(), "(3, 'nil', null)");
    returns(
        tuple,
        "return {1, 'x', 3, 4}",
        "error: it returned no valid frozen<tuple<int, text, int>>: a frozen<tuple<int, text, int>> has the elements 1 to 3",
    );
    let value = encode_tuple([Some(int(1)), None]).unwrap();
    assert_eq!(map(udt(), Some(&value), udt(), "return a").unwrap(), "{x: 1, label: null}");
    let body = "a.label = 'x is ' .. a.x return a";
    assert_eq!(map(udt(), Some(&value), udt(), body).unwrap(), "{x: 1, label: 'x is 1'}");
    let got = map(CqlType::Int, None, udt(), "return {x = 1, lable = 'a'}").unwrap_err();
    assert!(got.contains("has no field 'lable'"), "{got}");
    let got = map(CqlType::Int, None, udt(), "return {1}").unwrap_err();
    assert!(got.contains("has no field a number"), "{got}");
}

/// Values of a type that have a form in Lua, and the values that come back.
fn typed_value() -> impl Strategy<Value = (CqlType, Vec<u8>)> {
    let bytes = |ty: CqlType, len: usize| {
        proptest::collection::vec(any::<u8>(), len).prop_map(move |value| (ty.clone(), value))
    };
    let simple = prop_oneof![
        bytes(CqlType::Tinyint, 1),
        bytes(CqlType::Smallint, 2),
        bytes(CqlType::Int, 4),
        bytes(CqlType::Bigint, 8),
        bytes(CqlType::Counter, 8),
        bytes(CqlType::Timestamp, 8),
        bytes(CqlType::Date, 4),
        bytes(CqlType::Uuid, 16),
        bytes(CqlType::Inet, 4),
        bytes(CqlType::Inet, 16),
        any::<bool>().prop_map(|b| (CqlType::Boolean, vec![u8::from(b)])),
        (0..86_400_000_000_000_i64).prop_map(|n| (CqlType::Time, n.to_be_bytes().to_vec())),
        any::<i64>()
            .prop_map(|n| (CqlType::Timeuuid, types::timeuuid::from_micros(n >> 16, 7).to_vec())),
        "\\PC{0,12}".prop_map(|text| (CqlType::Text, text.into_bytes())),
        "[ -~]{0,12}".prop_map(|text| (CqlType::Ascii, text.into_bytes())),
        proptest::collection::vec(any::<u8>(), 0..12).prop_map(|value| (CqlType::Blob, value)),
        // A NaN may lose its payload, and zero is one key, whatever its sign.
        any::<f64>().prop_map(|n| (CqlType::Double, (n + 0.0).to_be_bytes().to_vec())),
        any::<f32>().prop_map(|n| (CqlType::Float, (n + 0.0).to_be_bytes().to_vec())),
        any::<i128>().prop_map(|n| (CqlType::Varint, types::number::varint_to_bytes(&n.into()))),
        (any::<i128>(), any::<i32>()).prop_map(|(n, scale)| {
            (CqlType::Decimal, types::Decimal { unscaled: n.into(), scale }.to_bytes())
        }),
        (0..i32::MAX, 0..i32::MAX, 0..i64::MAX).prop_map(|(months, days, nanos)| {
            (CqlType::Duration, Duration::new(months, days, nanos).unwrap().to_bytes())
        }),
    ];
    simple.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            (inner.clone(), 0..4_usize).prop_map(|((ty, value), n)| {
                let value = encode_collection(vec![value; n]).unwrap();
                (CqlType::list(ty, true), value)
            }),
            (inner.clone(), 1..4_u32).prop_map(|((ty, value), n)| {
                let vector = encode_vector(&ty, n, vec![value; n as usize]).unwrap();
                (CqlType::vector(ty, n), vector)
            }),
            proptest::collection::vec((inner.clone(), any::<bool>()), 1..4).prop_map(|fields| {
                let value = encode_tuple(fields.iter().map(|((_, v), some)| some.then_some(v)));
                (CqlType::tuple(fields.into_iter().map(|((ty, _), _)| ty)), value.unwrap())
            }),
            proptest::collection::btree_set(any::<i32>(), 0..5).prop_flat_map(move |keys| {
                inner.clone().prop_map(move |(ty, value)| {
                    let entries = keys.iter().map(|k| (k.to_be_bytes(), value.clone()));
                    let value = encode_map(entries).unwrap();
                    (CqlType::map(CqlType::Int, ty, true), value)
                })
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn values_survive_the_way_through_lua((ty, value) in typed_value()) {
        let function = compile(std::slice::from_ref(&ty), ty.clone(), "return a").unwrap();
        let got = call(&function, &[Some(&value)]).unwrap().unwrap();
        // NaN is the only value that is not itself.
        if ty.format_cql_literal(&value).contains("NaN") {
            prop_assert_eq!(ty.format_cql_literal(&got), ty.format_cql_literal(&value));
        } else {
            prop_assert_eq!(got, value, "{}", ty);
        }
    }

    #[test]
    fn sets_survive_the_way_through_lua(
        numbers in proptest::collection::btree_set(any::<i64>(), 0..9),
        texts in proptest::collection::btree_set("[a-z]{0,5}", 0..9),
        doubles in proptest::collection::vec(-1e18..1e18_f64, 0..9),
    ) {
        let mut doubles: Vec<[u8; 8]> = doubles.into_iter().map(|n| (n + 0.0).to_be_bytes()).collect();
        doubles.sort_by(|a, b| CqlType::Double.compare(a, b));
        doubles.dedup();
        for (element, value) in [
            (CqlType::Bigint, encode_collection(numbers.iter().map(|n| n.to_be_bytes()))),
            (CqlType::Varint, encode_collection(
                numbers.iter().map(|n| types::number::varint_to_bytes(&(*n).into())))),
            (CqlType::Text, encode_collection(&texts)),
            (CqlType::Double, encode_collection(&doubles)),
        ] {
            let (ty, value) = (CqlType::set(element, true), value.unwrap());
            let function = compile(std::slice::from_ref(&ty), ty.clone(), "return a").unwrap();
            prop_assert_eq!(call(&function, &[Some(&value)]), Ok(Some(value)));
        }
    }

    #[test]
    fn no_body_panics(body in "[ -~]{0,80}", inside in "[a-z(){}\\[\\]=.,;:'+*#0-9 ]{0,60}") {
        for body in [&body, &format!("return {inside}")] {
            if let Ok(function) = compile(&[CqlType::Int], CqlType::Text, body) {
                let _ = function.call(&[Some(&[0, 0, 0, 1])], &mut 100_000);
            }
        }
    }
}
