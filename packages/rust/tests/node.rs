//! Nodes of the server in `HELENUS_BIN`: their start, their end, their errors.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use helenus_test::{Error, Node};

const KEYSPACE: &str =
    "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1};";

/// OPTIONS of the native protocol, version 4, which needs no login; the opcode of the answer.
fn opcode_of_first_answer(node: &Node) -> std::io::Result<u8> {
    let mut stream = TcpStream::connect(node.address())?;
    stream.write_all(&[4, 0, 0, 0, 5, 0, 0, 0, 0])?;
    let mut header = [0; 9];
    stream.read_exact(&mut header)?;
    Ok(header[4])
}

/// Returns whether a process has a text in its command line.
fn runs(text: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap();
    processes.flatten().any(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(text)
    })
}

#[test]
fn a_client_connects_while_the_node_lives_and_not_after() {
    const SUPPORTED: u8 = 6;
    let node = Node::open().unwrap();
    assert_eq!(opcode_of_first_answer(&node).unwrap(), SUPPORTED);
    assert_eq!(node.contact_point(), format!("127.0.0.1:{}", node.address().port()));
    assert!(node.log().unwrap().contains("Startup complete"));
    let (address, home) = (node.address(), node.directory().parent().unwrap().to_owned());
    assert!(runs(home.to_str().unwrap()));
    drop(node);
    assert!(!home.exists());
    assert!(!runs(home.to_str().unwrap()));
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn two_nodes_at_once_are_apart() {
    let (one, other) = (Node::open().unwrap(), Node::open().unwrap());
    one.cql(KEYSPACE).unwrap();
    assert!(one.cql("USE k").is_ok());
    assert!(matches!(other.cql("USE k"), Err(Error::Tool { code: Some(2), .. })));
    assert!(one.nodetool(&["describecluster"]).unwrap().contains("Test Cluster"));
}

#[test]
fn an_error_of_the_start_shows_the_log() {
    let error = Node::builder().setting("no_such_setting", 1).open().unwrap_err();
    let Error::Start { code: Some(2), log, .. } = &error else { panic!("{error}") };
    assert!(log.contains("unknown option --no-such-setting"), "{log}");
    let occupied = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = occupied.local_addr().unwrap().port();
    let error = Node::builder().setting("native_transport_port", port).open().unwrap_err();
    assert!(matches!(error, Error::Start { code: Some(5), .. }), "{error}");
}

#[test]
fn a_start_that_takes_too_long_ends() {
    let program = std::env::temp_dir().join(format!("helenus-silent-{}", std::process::id()));
    std::fs::write(&program, "#!/bin/sh\necho still reading\nexec tail -f /dev/null\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, mode).unwrap();
    let builder = Node::builder().binary(&program).timeout(Duration::from_millis(500));
    let error = builder.open().unwrap_err();
    assert!(error.to_string().ends_with("log:\nstill reading"), "{error}");
    assert!(!runs(program.to_str().unwrap()));
    std::fs::remove_file(&program).unwrap();
}

#[test]
fn a_directory_of_the_caller_keeps_the_data() {
    let directory = std::env::temp_dir().join(format!("helenus-kept-{}", std::process::id()));
    let open = || Node::builder().directory(&directory).setting("cluster_name", "Kept").open();
    let node = open().unwrap();
    node.cql(KEYSPACE).unwrap();
    drop(node);
    let node = open().unwrap();
    assert!(node.cql("DESCRIBE KEYSPACE k").is_ok());
    assert!(node.cql("SELECT cluster_name FROM system.local").unwrap().contains("Kept"));
    drop(node);
    std::fs::remove_dir_all(&directory).unwrap();
}

/// Ends as a test does whose process is killed: nothing is dropped. Run by the test below.
#[test]
fn child_that_aborts() {
    if let Some(file) = std::env::var_os("HELENUS_TEST_CHILD") {
        let node = Node::open().unwrap();
        std::fs::write(Path::new(&file), node.directory().to_str().unwrap()).unwrap();
        std::process::abort();
    }
}

#[test]
fn a_node_ends_with_a_process_that_aborts() {
    let file = std::env::temp_dir().join(format!("helenus-child-{}", std::process::id()));
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_that_aborts"])
        .env("HELENUS_TEST_CHILD", &file)
        .output()
        .unwrap()
        .status;
    assert!(!status.success());
    let directory = std::fs::read_to_string(&file).unwrap();
    let begun = Instant::now();
    // A minute is for a machine that has stalled.
    while runs(&directory) || Path::new(&directory).exists() {
        assert!(begun.elapsed() < Duration::from_secs(60), "the node lives");
        std::thread::sleep(Duration::from_millis(5));
    }
    std::fs::remove_file(&file).unwrap();
}
