//! Expected texts were printed by `cqlshlib.formatting` of cqlsh 6.2.2.

use types::{CqlType, UdtType};

use super::*;
use std::sync::Arc;

fn check(kind: &CqlType, value: &[u8], expect: &str) {
    // INV-cqlsh-1
    assert_eq!(Style::default().cell(kind, Some(value)).text, expect, "{kind:?}");
}

fn double(value: f64, expect: &str) {
    check(&CqlType::Double, &value.to_be_bytes(), expect);
}

#[test]
fn doubles_have_five_digits_behind_the_point() {
    double(1.5, "1.5");
    double(1.234_567_890_123, "1.23457");
    double(123_456.789_012_345, "1.2346e+05");
    double(12_345.678_9, "12345.6789");
    double(0.001_234_567_89, "0.001235");
    double(0.000_012_345_678, "1.2e-05");
    double(1e300, "1e+300");
    double(-0.0, "-0");
    double(f64::NAN, "NaN");
    double(f64::NEG_INFINITY, "-Infinity");
    check(&CqlType::Float, &0.1_f32.to_be_bytes(), "0.1");
}

#[test]
fn precision_of_the_printf_format_is_the_one_of_c() {
    assert_eq!(general(100_000.0, 5), "1e+05");
    assert_eq!(general(99_999.5, 5), "1e+05");
    assert_eq!(general(0.000_1, 5), "0.0001");
    assert_eq!(general(0.0, 5), "0");
    assert_eq!(general(2.5, 1), "2");
    // From C's printf.
    assert_eq!(general(0.1, 18), "0.100000000000000006");
    assert_eq!(general(1e-4, 17), "0.0001");
    assert_eq!(general(0.000_976_562_5, 18), "0.0009765625");
    assert_eq!(general(1234.56, 16), "1234.56");
    assert_eq!(general(1234.56, 17), "1234.5599999999999");
    assert_eq!(general(499_999.5, 18), "499999.5");
    assert_eq!(general(-0.000_123, 12), "-0.000123");
    assert_eq!(general(-0.000_123, 18), "-0.000123000000000000008");
    assert_eq!(general(9.999_999, 3), "10");
    assert_eq!(general(-0.0, 5), "-0");
}

/// The short way is taken for most numbers; it says what rounding says.
#[test]
fn the_shortest_text_is_printed_only_where_rounding_gives_the_same() {
    let (mut state, mut taken) = (7_u64, 0);
    for _ in 0..20_000 {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let bits = state >> 11;
        // Decimals of few places, numbers of binary places, and any.
        let number = match bits % 3 {
            0 => (bits % 100_000_000) as f64 / 1000.0,
            1 => (bits % 1_000_000_000) as f64 / 256.0 - 1e6,
            _ => f64::from_bits(state),
        };
        for digits in 1..=20 {
            if let Some(text) = short(number, digits) {
                assert_eq!(text, rounded(number, digits), "{number:e} with {digits} digits");
                taken += 1;
            }
        }
    }
    assert!(taken > 50_000, "{taken}");
}

#[test]
fn texts_show_control_characters() {
    check(&CqlType::Text, "a\\b\n\t\u{1}\u{9f}é".as_bytes(), "a\\\\b\\n\\t\\x01\\x9fé");
    check(&CqlType::Text, b"", "");
    check(&CqlType::Int, b"", "");
    check(&CqlType::Blob, b"", "0x");
    check(&CqlType::Blob, &[0xca, 0xfe], "0xcafe");
}

#[test]
fn wide_characters_count_twice() {
    assert_eq!(Style::default().cell(&CqlType::Text, Some("日本".as_bytes())).width, 4);
}

#[test]
fn collections_quote_texts_times_and_addresses() {
    let list = CqlType::list(CqlType::Text, false);
    let value = types::wire::encode_collection([b"it's".as_slice(), b"b"]);
    check(&list, &value.unwrap(), "['it''s', 'b']");
    let set = CqlType::set(CqlType::Inet, false);
    let items = [[10, 0, 0, 2].as_slice(), &[9, 0, 0, 1]];
    let value = types::wire::encode_collection(items).unwrap();
    check(&set, &value, "{'10.0.0.2', '9.0.0.1'}");
    check(&CqlType::list(CqlType::Int, false), &[0, 0, 0, 0], "[]");
}

#[test]
fn user_types_name_their_fields() {
    let udt = CqlType::Udt(Arc::new(UdtType {
        keyspace: Arc::from("k"),
        name: Arc::from("point"),
        fields: vec![("x".to_owned(), CqlType::Int), ("y".to_owned(), CqlType::Text)],
        frozen: true,
    }));
    let value = [0, 0, 0, 4, 0, 0, 0, 3, 0xff, 0xff, 0xff, 0xff];
    check(&udt, &value, "{x: 3, y: null}");
    let tuple = CqlType::tuple([CqlType::Int, CqlType::Int]);
    check(&tuple, &value, "(3, None)");
}

#[test]
fn durations_have_every_unit() {
    let duration = |months, days, nanos| {
        let value = Duration::new(months, days, nanos).unwrap().to_bytes();
        Style::default().cell(&CqlType::Duration, Some(&value)).text
    };
    assert_eq!(duration(14, 3, 3_723_004_005_006), "1y2mo3d1h2m3s4ms5us6ns");
    assert_eq!(duration(-1, 0, -1_000), "-1mo1us");
}

#[test]
fn colours_wrap_values_and_escapes() {
    let style = Style { color: true, ..Style::default() };
    let cell = style.cell(&CqlType::Text, Some(b"a\\\n"));
    assert_eq!(cell.colored, "\u{1b}[0;1;33ma\\\u{1b}[0;35m\\n\u{1b}[0;1;33m\u{1b}[0m");
    assert_eq!(cell.width, 4);
    assert_eq!(style.cell(&CqlType::Int, None).colored, "\u{1b}[0;1;31mnull\u{1b}[0m");
    let value = types::wire::encode_collection([[0, 0, 0, 1]]).unwrap();
    assert_eq!(
        style.cell(&CqlType::list(CqlType::Int, false), Some(&value)).colored,
        "\u{1b}[0;1;34m[\u{1b}[0m\u{1b}[0;1;32m1\u{1b}[0m\u{1b}[0;1;34m]\u{1b}[0m"
    );
}

#[test]
fn csv_has_its_own_separators() {
    let style = Style {
        thousands_separator: ".".to_owned(),
        decimal_separator: ",".to_owned(),
        booleans: ("yes".to_owned(), "no".to_owned()),
        ..Style::default()
    };
    let text = |kind: &CqlType, value: &[u8]| style.cell(kind, Some(value)).text;
    assert_eq!(text(&CqlType::Bigint, &1_234_567_i64.to_be_bytes()), "1.234.567");
    assert_eq!(text(&CqlType::Double, &(-1_234.5_f64).to_be_bytes()), "-1.234,5");
    assert_eq!(text(&CqlType::Boolean, &[1]), "yes");
}
