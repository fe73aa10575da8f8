//! Rows of text become files; times come back.

use super::*;

/// Writes rows of JSON or CSV to a directory below a new one and verifies the files.
fn written(name: &str, format: &str, rows: &str) -> (u8, usize) {
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(subcommand)]
        command: crate::Command,
    }
    let work = std::env::temp_dir().join(format!("helenus-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&work).unwrap();
    let path = |name: &str| work.join(name).to_string_lossy().into_owned();
    let schema = "CREATE TABLE ks.t (k int, c text, s int static, l list<text>, v blob, \
                  PRIMARY KEY (k, c)) WITH id = 5bc52802-de25-35ed-aeab-188eecebb090 \
                  AND compression = {'class': 'ZstdCompressor'}";
    std::fs::write(path("schema.cql"), schema).unwrap();
    std::fs::write(path("rows"), rows).unwrap();
    let (schema, rows, output) = (path("schema.cql"), path("rows"), path("out"));
    let words = ["sstable", "write", "--schema", &schema, "--format", format];
    let words = words.into_iter().chain(["--sstable-version", "da", "--output", &output, &rows]);
    let code = crate::main(Line::parse_from(words).command);
    let table = work.join("out/ks/t-5bc52802de2535edaeab188eecebb090");
    let files = std::fs::read_dir(&table).into_iter().flatten().flatten();
    let files: Vec<String> = files
        .map(|entry| entry.path().to_string_lossy().into_owned())
        .filter(|path| path.ends_with("-bti-Data.db"))
        .collect();
    for file in &files {
        let verify = crate::Command::Verify { files: vec![file.clone()] };
        assert_eq!(crate::main(verify), exit::OK);
        // Unlike a node's flush, which may take a faster compressor than the table's until it is compacted.
        let info = std::fs::read(file.replace("Data.db", "CompressionInfo.db")).unwrap();
        assert!(info.starts_with(b"\0\x0eZstdCompressor"), "{info:?}");
    }
    let left = std::fs::read_dir(work.join("out")).map(|entries| entries.count());
    match code {
        exit::OK => assert_eq!(left.ok(), Some(1), "the log is left"),
        _ => assert!(left.is_err(), "a directory is left"),
    }
    std::fs::remove_dir_all(&work).unwrap();
    (code, files.len())
}

#[test]
fn rows_become_files_and_what_is_no_row_is_refused_with_nothing_written() {
    let json = "{\"k\": 1, \"c\": \"b\", \"l\": [\"x\"], \"v\": \"0x01\"}\n\
                {\"k\": 1, \"c\": \"a\", \"s\": 5}\n\n";
    assert_eq!(written("json", "json", json), (exit::OK, 1));
    assert_eq!(written("csv", "csv", "c,k,l\na,1,\"[\"\"x\"\"]\"\n\"\",2,\n"), (exit::OK, 1));
    assert_eq!(written("none", "json", ""), (exit::OK, 0));
    assert_eq!(written("key", "json", "{\"c\": \"b\"}"), (exit::FAILED, 0));
    let of_partition = "{\"K\": 2, \"s\": 6}\n";
    assert_eq!(written("static", "json", of_partition), (exit::OK, 1));
    assert_eq!(written("statics", "csv", "k,c,s\n1,,5\n1,a,\n"), (exit::OK, 1));
    let of_row = format!("{json}{{\"k\": 2, \"s\": 6, \"v\": \"0x01\"}}");
    assert_eq!(written("of-row", "json", &of_row), (exit::FAILED, 0));
    assert_eq!(written("cells", "csv", "c,k\na\n").0, exit::FAILED);
    assert_eq!(written("column", "csv", "c,x\na,1\n").0, exit::FAILED);
    assert_eq!(written("parquet", "parquet", "PAR1"), (exit::FAILED, 0));
}

/// A directory below that of temporary files, removed at the end.
struct Work(std::path::PathBuf);

impl Work {
    fn new(name: &str) -> Work {
        let work = std::env::temp_dir().join(format!("helenus-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&work).unwrap();
        Work(work)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_string_lossy().into_owned()
    }

    fn put(&self, name: &str, text: &str) -> String {
        std::fs::write(self.path(name), text).unwrap();
        self.path(name)
    }

    /// Files of a table of `schema`, from lines of JSON; the directory.
    fn written(&self, name: &str, schema: &str, words: &[&str], rows: &str) -> Result<String, u8> {
        let (schema, output) = (self.put("of-write.cql", schema), self.path(name));
        let rows = self.put("of-write.json", rows);
        let all = ["write", "--schema", &schema, "--output", &output];
        let all: Vec<&str> = all.iter().chain(words).copied().chain([rows.as_str()]).collect();
        match tool(&all) {
            exit::OK => Ok(self.path(&format!("{name}/ks/t-5bc52802de2535edaeab188eecebb090"))),
            code => Err(code),
        }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs a tool; its exit code.
fn tool(words: &[&str]) -> u8 {
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(subcommand)]
        command: crate::Command,
    }
    let words = ["sstable"].into_iter().chain(words.iter().copied());
    crate::main(Line::parse_from(words).command)
}

#[test]
fn values_that_json_shows_less_of_come_back_byte_by_byte() {
    let work = Work::new("exact");
    let schema = "CREATE TYPE ks.n (d decimal, f float, v varint, ts timestamp, du duration);
        CREATE TABLE ks.t (k int, c int, ts timestamp, du duration, dt date, de decimal, f float,
          fl frozen<list<decimal>>, fs frozen<set<double>>, fm frozen<map<timestamp, frozen<n>>>, v vector<float, 2>,
          tu tuple<decimal, double, duration>, fn frozen<n>, PRIMARY KEY (k, c))
          WITH id = 5bc52802-de25-35ed-aeab-188eecebb090;";
    let n = "{\"d\": \"1.10\", \"f\": \"NaN\", \"v\": 12345678901234567890123, \
             \"ts\": \"-62135596800001\", \"du\": \"0s\"}";
    let fm = format!("{{\"-62135596800001\": {n}, \"1970-01-01 00:00:00.001Z\": {n}}}");
    let values = [
        ("ts", "\"253402300800000\""),
        ("ts", "\"9223372036854775807\""),
        ("ts", "\"-9223372036854775808\""),
        ("ts", "\"-62135596800001\""),
        ("du", "\"0s\""),
        ("dt", "\"4294967295\""),
        ("dt", "\"0\""),
        ("de", "\"1.500\""),
        ("f", "\"-Infinity\""),
        ("fl", "[\"1.10\", \"1E+20\", \"123456789012345678901234567890.12\"]"),
        ("fs", "[\"NaN\", \"Infinity\", \"-Infinity\", -0.0, 0.0]"),
        ("fm", fm.as_str()),
        ("v", "[\"NaN\", \"-Infinity\"]"),
        ("tu", "[\"0.000\", \"NaN\", \"0s\"]"),
        ("fn", n),
    ];
    let line = |(c, (name, value)): (usize, &(&str, &str))| {
        format!("{{\"k\": 1, \"c\": {c}, \"{name}\": {value}}}\n")
    };
    let rows: String = values.iter().enumerate().map(line).collect();
    let data = |directory: &str| std::fs::read(format!("{directory}/nb-1-big-Data.db")).unwrap();
    let times = ["--timestamp", "1000"];
    let first = work.written("first", schema, &times, &rows).unwrap();
    let of_schema = work.put("schema.cql", schema);
    for format in ["json", "csv"] {
        let rows = work.path(&format!("rows.{format}"));
        let export =
            ["export", "--schema", &of_schema, "--format", format, "--output", &rows, &first];
        assert_eq!(tool(&export), exit::OK, "{format}");
        let output = work.path(format);
        let write =
            ["write", "--schema", &of_schema, "--format", format, "--output", &output, &rows];
        assert_eq!(tool(&[&write[..], &times].concat()), exit::OK, "{format}");
        let again = format!("{output}/ks/t-5bc52802de2535edaeab188eecebb090");
        assert!(data(&again) == data(&first), "{format}: {:?}", std::fs::read_to_string(&rows));
    }
}

#[test]
fn an_export_by_another_tables_columns_is_refused() {
    let work = Work::new("columns");
    let id = "WITH id = 5bc52802-de25-35ed-aeab-188eecebb090";
    let columns = "k text, c int, v text, l list<text>, PRIMARY KEY (k, c)";
    let rows = "{\"k\": \"a\", \"c\": 1, \"v\": \"x\", \"l\": [\"y\"]}\n";
    let table = format!("CREATE TABLE ks.t ({columns}) {id}");
    let directory = work.written("out", &table, &[], rows).unwrap();
    let export = |columns: &str, order: &str| {
        let schema = format!("CREATE TABLE ks.t ({columns}) {id}{order}");
        tool(&["export", "--schema", &work.put("schema.cql", &schema), &directory])
    };
    assert_eq!(export(columns, ""), exit::OK);
    assert_eq!(export(columns, " AND CLUSTERING ORDER BY (c DESC)"), exit::USAGE);
    for (from, to) in [
        ("k text", "k int"),
        ("c int", "c bigint"),
        ("v text", "v int"),
        ("l list<text>", "l text"),
        ("l list<text>", "l frozen<list<text>>"),
        ("PRIMARY KEY (k, c)", "d int, PRIMARY KEY (k, c, d)"),
    ] {
        assert_eq!(export(&columns.replace(from, to), ""), exit::USAGE, "{to}");
    }
    // Columns that only the file has would be lost, unless they are named as dropped.
    assert_eq!(export(&columns.replace("v text, ", ""), ""), exit::USAGE);
}

#[test]
fn lives_end_where_times_of_the_version_do() {
    let work = Work::new("lives");
    let schema = "CREATE TABLE ks.t (k int PRIMARY KEY, v int) WITH id = 5bc52802-de25-35ed-aeab-188eecebb090";
    // Twenty years, the longest life there is.
    let timed = "{\"k\": 1, \"v\": 2, \"ttl(v)\": 630720000}\n";
    for (version, reaches) in [("me", false), ("nb", false), ("oa", true), ("da", true)] {
        let of_option = ["--sstable-version", version, "--ttl", "630720000"];
        let plain = work.written(version, schema, &of_option, "{\"k\": 1, \"v\": 2}\n");
        assert_eq!(plain.is_ok(), reaches, "{version}");
        let of_column = ["--sstable-version", version];
        let name = format!("{version}-column");
        assert_eq!(work.written(&name, schema, &of_column, timed).is_ok(), reaches, "{version}");
        assert!(
            work.written(
                &format!("{name}-1"),
                schema,
                &of_column,
                &timed.replace("630720000", "60")
            )
            .is_ok()
        );
    }
}
