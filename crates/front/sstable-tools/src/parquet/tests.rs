//! Rows from SSTables to Parquet and back, and values that others write.

use clap::Parser;
use parquet::basic::{LogicalType, TimeUnit, Type as Physical};
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::schema::types::Type;
use types::CqlType;

use super::value::{Meaning, Value, meaning, of_bytes, of_int32, of_int64};
use super::{Decimals, to_cql};
use crate::{Command, main};
use tool_io::exit;

#[derive(Parser)]
struct Line {
    #[command(subcommand)]
    command: Command,
}

const SCHEMA: &str = "CREATE TYPE ks.place (name text, at frozen<tuple<double, double>>);
CREATE TABLE ks.t (k int, \"C\" text, s int static, a ascii, b bigint, bl blob, bo boolean, d date,
    de decimal, do double, du duration, f float, i inet, sm smallint, ti time, ts timestamp,
    tu timeuuid, ty tinyint, u uuid, v varint, l list<int>, st set<text>, m map<text, int>,
    fm frozen<map<int, list<uuid>>>, p frozen<place>, pp place, tp tuple<int, text>,
    ve vector<float, 2>, lp list<frozen<place>>, ds list<duration>,
    PRIMARY KEY (k, \"C\")) WITH id = 5bc52802-de25-35ed-aeab-188eecebb090;";

const ROWS: &str = r#"{"k": 1, "\"C\"": "first", "s": 7, "a": "x", "b": -9223372036854775808, "bl": "0x00ff", "bo": true, "d": "-5877641-06-23", "de": "-1.5", "do": -1.5, "du": "1mo2d3ns", "f": 2.5, "i": "::1", "sm": -32768, "ti": "23:59:59.999999999", "ts": "1969-12-31 23:59:59.999Z", "tu": "50554d6e-29bb-11e5-b345-feff819cdc9f", "ty": -128, "u": "f81d4fae-7dec-41d0-a765-00a0c91e6bf6", "v": -123456789012345678901234567890, "l": [3, 1, 3], "st": ["", "b", "é"], "m": {"x": 1, "y": -2}, "fm": {"-1": [], "5": ["f81d4fae-7dec-41d0-a765-00a0c91e6bf6"]}, "p": {"name": "here", "at": [1.5, null]}, "pp": {"at": [0.0, -0.25]}, "tp": [null, "t"], "ve": [1.0, -1.0], "lp": [{"name": null, "at": null}, {"name": "n", "at": [1.0, 2.0]}], "ds": ["-1d"]}
{"k": 1, "\"C\"": "second", "s": 7}
{"k": 2, "\"C\"": "", "a": "", "bl": "0x", "do": "NaN", "f": "-Infinity", "i": "10.0.0.1", "fm": {}}
{"k": 3, "s": 9}
"#;

struct Work(std::path::PathBuf);

impl Work {
    fn new(name: &str) -> Work {
        let path = std::env::temp_dir().join(format!("helenus-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("schema.cql"), SCHEMA).unwrap();
        Work(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_string_lossy().into_owned()
    }

    fn write(&self, format: &str, rows: &str, output: &str) -> u8 {
        let (schema, rows, output) = (self.path("schema.cql"), self.path(rows), self.path(output));
        let words =
            ["sstable", "write", "--schema", &schema, "--format", format, "--timestamp", "7000000"];
        main(Line::parse_from(words.into_iter().chain(["--output", &output, &rows])).command)
    }

    fn export(&self, words: &[&str], from: &str, output: &str) -> u8 {
        let table = format!("{from}/ks/t-5bc52802de2535edaeab188eecebb090");
        let (schema, table, output) =
            (self.path("schema.cql"), self.path(&table), self.path(output));
        let fixed = ["sstable", "export", "--schema", &schema, "--output", &output];
        main(
            Line::parse_from(
                fixed.into_iter().chain(words.iter().copied()).chain([table.as_str()]),
            )
            .command,
        )
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn rows_of_every_type_come_back_from_parquet() {
    let work = Work::new("parquet");
    std::fs::write(work.path("rows.json"), ROWS).unwrap();
    assert_eq!(work.write("json", "rows.json", "first"), exit::OK);
    assert_eq!(work.export(&[], "first", "first.json"), exit::OK);
    assert_eq!(work.text("first.json").lines().count(), 4);
    for decimals in ["text", "38,1"] {
        let (file, again) = (format!("{decimals}.parquet"), format!("again-{decimals}"));
        let words = ["--format", "parquet", "--decimals", decimals];
        assert_eq!(work.export(&words, "first", &file), exit::OK);
        assert_eq!(work.write("parquet", &file, &again), exit::OK);
        assert_eq!(work.export(&[], &again, &format!("{again}.json")), exit::OK);
        assert_eq!(work.text(&format!("{again}.json")), work.text("first.json"));
    }
    // An existing file is never overwritten, and an unfinished one is removed.
    assert_eq!(work.export(&["--format", "parquet"], "first", "first.json"), exit::USAGE);
    let narrow = ["--format", "parquet", "--decimals", "9,1"];
    assert_eq!(work.export(&narrow, "first", "narrow.parquet"), exit::FAILED);
    assert!(!std::fs::exists(work.path("narrow.parquet")).unwrap());
}

/// Rows whose values were written at times of their own. Times to live are a number that nothing else has.
const TIMED: &str = r#"{"k": 1, "\"C\"": "first", "s": 7, "\"writetime(s)\"": -5, "a": "x", "\"writetime(a)\"": 9000000, "\"ttl(a)\"": 7654321, "b": 5, "l": [3, 1, 3], "\"writetime(l)\"": [12, 10, 11], "\"ttl(l)\"": [null, 7654321, null], "m": {"y": -2, "x": 1}, "writetime(m)": [21, 22], "pp": {"at": [0.0, -0.25]}, "\"writetime(pp)\"": [null, 31], "v": 123456789012345678901234567890}
{"k": 1, "\"C\"": "second", "s": 7, "\"writetime(s)\"": -5}
{"k": 3, "s": 9, "\"writetime(s)\"": 41, "\"ttl(s)\"": 7654321}
"#;

/// Every time to live as it was at first: it gets less with every second.
fn without_elapsed(text: &str) -> String {
    let mut out = String::new();
    for part in text.split_inclusive(|c: char| !c.is_ascii_digit()) {
        let digits = part.trim_end_matches(|c: char| !c.is_ascii_digit());
        match digits.len() == 7 && digits.starts_with("7654") {
            true => out.push_str(&part.replacen(digits, "7654321", 1)),
            false => out.push_str(part),
        }
    }
    out
}

#[test]
fn times_of_values_come_back_from_every_form() {
    let work = Work::new("times-back");
    std::fs::write(work.path("rows.json"), TIMED).unwrap();
    assert_eq!(work.write("json", "rows.json", "first"), exit::OK);
    let times = ["--writetime", "--ttl", "--decimals", "text"];
    assert_eq!(work.export(&times, "first", "first.json"), exit::OK);
    let first = without_elapsed(&work.text("first.json"));
    for told in [
        "\"\\\"writetime(a)\\\"\": 9000000, \"\\\"ttl(a)\\\"\": 7654321",
        "\"\\\"writetime(b)\\\"\": 7000000",
        "\"\\\"writetime(l)\\\"\": [12, 10, 11], \"\\\"ttl(l)\\\"\": [null, 7654321, null]",
        "\"\\\"writetime(m)\\\"\": [21, 22]",
        "\"\\\"writetime(pp)\\\"\": [null, 31]",
        "\"\\\"writetime(s)\\\"\": -5",
        "\"\\\"writetime(s)\\\"\": 41, \"\\\"ttl(s)\\\"\": 7654321",
    ] {
        assert!(first.contains(told), "{told}:\n{first}");
    }
    for form in ["json", "csv", "parquet"] {
        let words = times.into_iter().chain(["--format", form]).collect::<Vec<_>>();
        let (file, again) = (format!("times.{form}"), format!("again-{form}"));
        assert_eq!(work.export(&words, "first", &file), exit::OK);
        assert_eq!(work.write(form, &file, &again), exit::OK);
        assert_eq!(work.export(&times, &again, &format!("{again}.json")), exit::OK);
        assert_eq!(without_elapsed(&work.text(&format!("{again}.json"))), first, "{form}");
    }
    for (wrong, row) in [
        ("no value", r#"{"k": 1, "C": "", "writetime(a)": 5}"#),
        ("a number for a list", r#"{"k": 1, "C": "", "l": [1], "writetime(l)": 5}"#),
        ("a list for a number", r#"{"k": 1, "C": "", "b": 1, "writetime(b)": [5]}"#),
        ("too few", r#"{"k": 1, "C": "", "l": [1, 2], "writetime(l)": [5]}"#),
        ("no time to live", r#"{"k": 1, "C": "", "b": 1, "ttl(b)": 0}"#),
        ("too long", r#"{"k": 1, "C": "", "b": 1, "ttl(b)": 630720001}"#),
        ("of a key", r#"{"k": 1, "C": "", "writetime(k)": 5}"#),
        ("no number", r#"{"k": 1, "C": "", "b": 1, "writetime(b)": "now"}"#),
    ] {
        std::fs::write(work.path("wrong.json"), row.replace("\"C\"", r#""\"C\"""#)).unwrap();
        assert_eq!(work.write("json", "wrong.json", "wrong"), exit::FAILED, "{wrong}");
        assert!(!std::fs::exists(work.path("wrong")).unwrap(), "{wrong}");
    }
}

#[test]
fn write_times_and_times_to_live_are_columns_when_asked_for() {
    let work = Work::new("parquet-times");
    std::fs::write(work.path("rows.json"), ROWS).unwrap();
    assert_eq!(work.write("json", "rows.json", "first"), exit::OK);
    let words = ["--format", "parquet", "--writetime", "--ttl"];
    assert_eq!(work.export(&words, "first", "times.parquet"), exit::OK);
    let file = std::fs::File::open(work.path("times.parquet")).unwrap();
    let file = SerializedFileReader::new(file).unwrap();
    let schema = file.metadata().file_metadata().schema().clone();
    let names: Vec<&str> = schema.get_fields().iter().map(|field| field.name()).collect();
    assert!(names.starts_with(&["k", "C", "s", "a", "b"]), "{names:?}");
    assert!(names.contains(&"ttl(a)") && !names.contains(&"ttl(C)"), "{names:?}");
    let mut rows = super::FileReader::open(&work.path("times.parquet")).unwrap();
    let row = rows.row().unwrap().unwrap();
    let value = |name: &str| &row[names.iter().position(|n| *n == name).unwrap()];
    assert_eq!(*value("writetime(a)"), Value::Int(7_000_000));
    assert_eq!(*value("ttl(a)"), Value::Null);
    let of_list = vec![Value::Int(7_000_000); 3];
    assert_eq!(*value("writetime(l)"), Value::List(of_list));
}

#[test]
fn damaged_files_are_refused_and_do_not_end_the_process() {
    let work = Work::new("parquet-damage");
    std::fs::write(work.path("rows.json"), ROWS).unwrap();
    assert_eq!(work.write("json", "rows.json", "first"), exit::OK);
    assert_eq!(work.export(&["--format", "parquet"], "first", "whole.parquet"), exit::OK);
    let whole = std::fs::read(work.path("whole.parquet")).unwrap();
    let (mut refused, path) = (0, work.path("damaged.parquet"));
    for at in (0..whole.len()).step_by(whole.len() / 700 + 1) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x55;
        std::fs::write(&path, &damaged).unwrap();
        let Ok(mut file) = super::FileReader::open(&path) else {
            refused += 1;
            continue;
        };
        let mut rows = 0;
        let end = loop {
            match file.row() {
                Ok(Some(_)) if rows <= 1000 => rows += 1,
                end => break end,
            }
        };
        refused += usize::from(end.is_err());
    }
    // The rest is in names, statistics and the like.
    assert!(refused > 200, "{refused}");
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    assert!(super::FileReader::open(&path).is_err());
}

#[test]
fn decimals_are_two_numbers_or_text() {
    assert_eq!("text".parse(), Ok(Decimals::Text));
    assert_eq!("38,38".parse(), Ok(Decimals::Fixed { precision: 38, scale: 38 }));
    for wrong in ["", "0,0", "39,1", "5,6", "5", "5,-1"] {
        assert!(wrong.parse::<Decimals>().is_err(), "{wrong}");
    }
}

#[test]
fn values_of_other_writers_become_the_types_of_the_columns() {
    let leaf = |physical, logical, length| {
        let leaf = Type::primitive_type_builder("x", physical).with_logical_type(logical);
        leaf.with_length(length).build().unwrap()
    };
    let micros = LogicalType::timestamp(true, TimeUnit::MICROS);
    let micros = meaning(&leaf(Physical::INT64, Some(micros), 0)).unwrap();
    let nanos = LogicalType::time(true, TimeUnit::MILLIS);
    let millis_of_day = meaning(&leaf(Physical::INT32, Some(nanos), 0)).unwrap();
    let unsigned =
        meaning(&leaf(Physical::INT32, Some(LogicalType::integer(32, false)), 0)).unwrap();
    let half =
        meaning(&leaf(Physical::FIXED_LEN_BYTE_ARRAY, Some(LogicalType::Float16), 2)).unwrap();
    assert_eq!(of_int64(micros, -1), Value::Timestamp(-1));
    assert_eq!(of_int64(micros, 1999), Value::Timestamp(1));
    assert_eq!(of_int32(millis_of_day, 5), Value::Time(5_000_000));
    assert_eq!(of_int32(unsigned, -1), Value::Int(4_294_967_295));
    assert_eq!(of_bytes(half, &[0, 0xc0]), Ok(Value::Float(-2.0)));
    assert_eq!(of_bytes(half, &[1, 0]), Ok(Value::Float(2f32.powi(-24))));
    let interval = [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0];
    assert_eq!(of_bytes(Meaning::Interval, &interval), Ok(Value::Duration(1, 2, 3_000_000)));
    assert!(of_bytes(Meaning::Interval, &interval[1..]).is_err());
    assert!(of_bytes(Meaning::Text, &[0xff]).is_err());

    let int = |number| to_cql(&Value::Int(number), &CqlType::Tinyint);
    assert_eq!(int(-128), Ok(Some(vec![0x80])));
    assert_eq!(int(128), Err("128 is out of range for tinyint".to_owned()));
    let text = |text: &str, ty| to_cql(&Value::Text(text.to_owned()), &ty);
    assert_eq!(text("10.0.0.1", CqlType::Inet), Ok(Some(vec![10, 0, 0, 1])));
    assert!(text("host", CqlType::Inet).is_err());
    assert_eq!(text("12", CqlType::Varint), Ok(Some(vec![12])));
    assert!(text("é", CqlType::Ascii).is_err());
    assert_eq!(to_cql(&Value::Bool(true), &CqlType::Int), Err("a boolean is not a int".to_owned()));
    // Sets are sorted and have each element once; of two entries with one key the later one stays.
    let numbers = |numbers: &[i128]| Value::List(numbers.iter().map(|n| Value::Int(*n)).collect());
    let set = CqlType::set(CqlType::Tinyint, false);
    let of_set = to_cql(&numbers(&[2, -1, 2]), &set).unwrap().unwrap();
    assert_eq!(of_set, [0, 0, 0, 2, 0, 0, 0, 1, 0xff, 0, 0, 0, 1, 2]);
    let map = CqlType::map(CqlType::Tinyint, CqlType::Tinyint, false);
    let entries = [(1, 1), (0, 5), (1, 2)].map(|(k, v)| (Value::Int(k), Value::Int(v)));
    let of_map = to_cql(&Value::Map(entries.to_vec()), &map).unwrap().unwrap();
    assert_eq!(of_map, [0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 1, 5, 0, 0, 0, 1, 1, 0, 0, 0, 1, 2]);
    assert!(to_cql(&Value::List(vec![Value::Null]), &set).is_err());
    assert_eq!(to_cql(&Value::Null, &set), Ok(None));
}
