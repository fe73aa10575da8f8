//! Rows of text become files; times come back.

use super::*;

/// Writes rows of JSON or CSV to a directory below a new one and verifies the files.
fn written(name: &str, format: &str, rows: &str) -> (u8, usize) {
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(subcommand)]
        command: crate::sstable_tools::Command,
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
    let code = crate::sstable_tools::main(Line::parse_from(words).command);
    let table = work.join("out/ks/t-5bc52802de2535edaeab188eecebb090");
    let files = std::fs::read_dir(&table).into_iter().flatten().flatten();
    let files: Vec<String> = files
        .map(|entry| entry.path().to_string_lossy().into_owned())
        .filter(|path| path.ends_with("-bti-Data.db"))
        .collect();
    for file in &files {
        let verify = crate::sstable_tools::Command::Verify { files: vec![file.clone()] };
        assert_eq!(crate::sstable_tools::main(verify), exit::OK);
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
