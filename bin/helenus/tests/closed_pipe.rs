//! The tools behind a pipe whose reader has gone.

use std::process::{Command, Output, Stdio};

fn run(arguments: &[&str]) -> Output {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    Command::new(env!("CARGO_BIN_EXE_helenus"))
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(writer)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
        .wait_with_output()
        .unwrap()
}

#[test]
fn texts_that_nobody_reads_end_a_tool_quietly() {
    let all: [&[&str]; 8] = [
        &["--help"],
        &["version"],
        &["server", "--help"],
        &["nodetool", "help"],
        &["nodetool", "help", "status"],
        &["cqlsh", "--help"],
        &["sstable", "dump", "--help"],
        &["cluster", "start", "--help"],
    ];
    for arguments in all {
        let output = run(arguments);
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{arguments:?}");
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
    }
}

#[test]
fn a_full_disk_behind_a_redirection_is_told() {
    // Where there is no such device, there is nothing to try.
    let Ok(full) = std::fs::File::options().write(true).open("/dev/full") else { return };
    let output =
        Command::new(env!("CARGO_BIN_EXE_helenus")).arg("version").stdout(full).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.starts_with("helenus: cannot write: "), "{said}");
    assert_eq!(output.status.code(), Some(1));
}
