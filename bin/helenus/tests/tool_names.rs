//! The binary behind symbolic links with the names of Cassandra's tools.

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Output};

struct Links(PathBuf);

impl Links {
    fn new(name: &str) -> Links {
        let name = format!("helenus-{name}-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).unwrap();
        Links(directory)
    }

    fn run(&self, tool: &str, arguments: &[&str]) -> Output {
        let link = self.0.join(tool);
        if !link.exists() {
            symlink(env!("CARGO_BIN_EXE_helenus"), &link).unwrap();
        }
        Command::new(link)
            .args(arguments)
            .env("HELENUS_WORKDIR", self.0.join("data"))
            .env_remove("HELENUS_CONFIG")
            .env_remove("CASSANDRA_CONF")
            .output()
            .unwrap()
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_symbolic_link_with_the_name_of_a_tool_is_that_tool() {
    let links = Links::new("links");
    for (tool, arguments, starts) in [
        ("nodetool", &["help"][..], "usage: helenus nodetool "),
        ("cqlsh", &["--version"], "cqlsh "),
        ("sstabledump", &["--help"], "Print all partitions and rows as JSON"),
        ("sstablescrub", &["--help"], "Rewrite files with all that can be read of them"),
        ("cassandra", &["-v"], "5.0.9\n"),
    ] {
        let output = links.run(tool, arguments);
        let (said, complained) = texts(&output);
        assert!(said.starts_with(starts), "{tool}: {said}{complained}");
        assert_eq!(output.status.code(), Some(0), "{tool}");
    }
    // The name of the tool is no first word of the command that it stands for.
    let (usage, _) = texts(&links.run("sstablescrub", &["--help"]));
    assert!(usage.contains("\nUsage: helenus sstable scrub "), "{usage}");
    // Nothing listens on port 1.
    let output = links.run("nodetool", &["-Dx=y", "-u", "a", "-pw", "b", "-p", "1", "status"]);
    let (_, complained) = texts(&output);
    assert!(complained.starts_with(
        "nodetool: Failed to connect to '127.0.0.1:1' - ConnectException: 'Connection refused'."
    ));
    assert_eq!(output.status.code(), Some(1));

    let output = links.run("cassandra-stress", &["write"]);
    let (_, complained) = texts(&output);
    assert!(
        complained.starts_with("cassandra-stress: cassandra-stress is not part of Helenus"),
        "{complained}"
    );
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_tool_finds_the_directories_of_a_table_by_keyspace_and_name() {
    let links = Links::new("table-links");
    let output = links.run("sstableverify", &["-f", "ks", "t"]);
    let (_, complained) = texts(&output);
    assert!(complained.starts_with("sstableverify: Unknown keyspace/table ks.t: "), "{complained}");
    assert_eq!(output.status.code(), Some(2));

    let directory = links.0.join("data/data/ks/t-5bc52802de2535edaeab188eecebb090");
    std::fs::create_dir_all(&directory).unwrap();
    let output = links.run("sstableverify", &["-f", "ks", "t"]);
    let (_, complained) = texts(&output);
    let expected = format!("helenus sstable: no SSTables in {}\n", directory.display());
    assert_eq!(complained, expected);
}
