use std::path::Path;

use clap::Parser;

use super::*;
use start::{Arguments, arguments_of, check_same, plan, summary};

#[derive(Debug, Parser)]
struct Cli {
    #[command(flatten)]
    local: Local,
}

fn parsed(line: &str) -> Local {
    let words = std::iter::once("helenus").chain(line.split_whitespace());
    Cli::try_parse_from(words).unwrap().local
}

fn parse(line: &str) -> Command {
    parsed(line).command
}

fn arguments(line: &str) -> Arguments {
    match parse(&format!("start {line}")) {
        Command::Start(arguments) => arguments,
        other => panic!("{other:?}"),
    }
}

fn places(line: &str) -> Vec<(String, String, String)> {
    let file = plan(&arguments(line), 4, 6 << 30).unwrap();
    file.nodes.into_iter().map(|n| (n.address, n.datacenter, n.rack)).collect()
}

fn place(address: &str, datacenter: &str, rack: &str) -> (String, String, String) {
    (address.to_owned(), datacenter.to_owned(), rack.to_owned())
}

#[test]
fn nodes_are_spread_over_racks_and_data_centres_in_turn() {
    assert_eq!(
        places("--nodes 4 --racks a,b"),
        [
            place("127.0.0.1", "datacenter1", "a"),
            place("127.0.0.2", "datacenter1", "b"),
            place("127.0.0.3", "datacenter1", "a"),
            place("127.0.0.4", "datacenter1", "b"),
        ]
    );
    assert_eq!(
        places("--nodes 3 --dcs 2"),
        [
            place("127.0.0.1", "datacenter1", "rack1"),
            place("127.0.0.2", "datacenter2", "rack1"),
            place("127.0.0.3", "datacenter1", "rack2"),
        ]
    );
    assert_eq!(places("").len(), 3);
}

#[test]
fn another_base_address_moves_all_nodes() {
    assert_eq!(
        places("--nodes 2 --address 127.0.8.10"),
        [place("127.0.8.10", "datacenter1", "rack1"), place("127.0.8.11", "datacenter1", "rack2"),]
    );
    let line = arguments("--nodes 2 --address 127.0.8.254");
    assert_eq!(plan(&line, 1, 1).unwrap_err().code, exit::USAGE);
    assert!(matches!(parse("add --dc d --rack r"), Command::Add { .. }));
}

#[test]
fn what_makes_no_cluster_is_refused() {
    for line in ["--nodes 1 --dcs 2", "--racks a,,b", "--racks a/b"] {
        assert_eq!(plan(&arguments(line), 1, 1).unwrap_err().code, exit::USAGE, "{line}");
    }
    assert!(Cli::try_parse_from(["helenus", "start", "--nodes", "0"]).is_err());
}

#[test]
fn the_directory_stands_before_or_after_the_command() {
    for line in ["--dir D kill 3", "kill --dir D 3", "kill 3 --dir D"] {
        let local = parsed(line);
        assert_eq!(local.place.dir, PathBuf::from("D"), "{line}");
        assert!(matches!(local.command, Command::Kill { node: 3 }), "{line}");
    }
    assert_eq!(parsed("kill 3").place.dir, PathBuf::from("./helenus-cluster"));
    let Command::Start(arguments) = parse("--dir D start -- --dir E") else { panic!("no start") };
    assert_eq!(plan(&arguments, 1, 1).unwrap().options, ["--dir", "E"]);
}

#[test]
fn a_node_that_is_out_is_neither_started_nor_a_seed_nor_a_contact_point() {
    let mut file = plan(&arguments("--nodes 3"), 2, 1 << 30).unwrap();
    let addresses = |numbers: &[u16]| -> Vec<String> {
        numbers.iter().map(|n| format!("127.0.0.{n}")).collect()
    };
    assert!(!file.mark_members(&addresses(&[1, 2, 3])));
    assert!(file.mark_members(&addresses(&[2, 3])));
    assert_eq!(file.members().map(|n| n.number).collect::<Vec<_>>(), [2, 3]);
    let line = |n: u16| arguments_of(&file, file.node(n).unwrap(), Path::new("/d")).join(" ");
    assert!(line(3).contains(" --seeds 127.0.0.2:7000 "), "{}", line(3));
    let text = summary(&file, &PathBuf::from("./d"));
    assert!(text.contains("2 nodes in ./d\ncontact points  127.0.0.2,127.0.0.3 port"), "{text}");
    // It was started again with an empty directory.
    assert!(file.mark_members(&addresses(&[1, 2, 3])));
    assert_eq!(file.members().count(), 3);
}

#[test]
fn cores_and_memory_are_shared() {
    let file = plan(&arguments(""), 8, 6 << 30).unwrap();
    assert_eq!((file.smp, file.memory.as_str()), (2, "1024M"));
    let file = plan(&arguments("--nodes 9"), 2, 1 << 30).unwrap();
    assert_eq!((file.smp, file.memory.as_str()), (1, "128M"));
    let file = plan(&arguments("--smp 3 --memory 2G"), 2, 1 << 30).unwrap();
    assert_eq!((file.smp, file.memory.as_str()), (3, "2G"));
}

#[test]
fn a_node_is_told_who_it_is_and_what_the_user_adds() {
    let file = plan(&arguments("--nodes 2 -- --log-level debug"), 2, 1 << 30).unwrap();
    let line = arguments_of(&file, file.node(2).unwrap(), Path::new("/d/node2")).join(" ");
    assert!(line.starts_with("server --workdir /d/node2 --cluster-name local "), "{line}");
    assert!(line.contains(" --listen-address 127.0.0.2 "), "{line}");
    assert!(line.contains(" --seeds 127.0.0.1:7000 "), "{line}");
    assert!(line.ends_with(" --log-level debug"), "{line}");
}

#[test]
fn an_old_cluster_is_started_as_it_was_made_or_not_at_all() {
    let file = plan(&arguments("--nodes 3 --racks a,b"), 2, 1 << 30).unwrap();
    let ask = |line: &str| check_same(&arguments(line), &file, "d").map_err(|f| f.text);
    for same in [
        "",
        "--nodes 3",
        "--racks a,b",
        "--dcs 1 --racks a,b",
        "--name local",
        "--address 127.0.0.1",
    ] {
        assert_eq!(ask(same), Ok(()), "{same}");
    }
    for different in [
        "--nodes 4",
        "--racks a,c",
        "--dcs 2",
        "--name x",
        "--smp 99",
        "--memory 3G",
        "-- --x",
        "--address 127.0.8.1",
    ] {
        assert!(ask(different).unwrap_err().contains("another directory"), "{different}");
    }
}

#[test]
fn refusals_say_what_to_do() {
    let file = plan(&arguments(""), 2, 1 << 30).unwrap();
    let node = file.node(2).unwrap();
    let text = |kind: std::io::ErrorKind| start::cannot_listen(node, 9042, &kind.into());
    let in_use = text(std::io::ErrorKind::AddrInUse);
    assert!(in_use.contains("port 9042 of 127.0.0.2 is in use"), "{in_use}");
    let missing = text(std::io::ErrorKind::AddrNotAvailable);
    assert!(missing.contains("sudo ifconfig lo0 alias 127.0.0.2 up"), "{missing}");
}

#[test]
fn a_replacing_node_asks_another_and_says_whom_it_replaces() {
    let mut file = plan(&arguments("--nodes 3"), 2, 1 << 30).unwrap();
    file.node_mut(1).unwrap().replaces = true;
    let line = |n: u16| arguments_of(&file, file.node(n).unwrap(), Path::new("/d")).join(" ");
    assert!(line(1).contains(" --seeds 127.0.0.2:7000 "), "{}", line(1));
    assert!(line(1).contains(" --replace-address-first-boot 127.0.0.1"), "{}", line(1));
    assert!(line(2).contains(" --seeds 127.0.0.1:7000 "), "{}", line(2));
    assert!(!line(2).contains("--replace-address"), "{}", line(2));
}

#[test]
fn groups_are_cut_off_from_each_other_and_from_nobody_else() {
    let mut file = plan(&arguments("--nodes 4"), 2, 1 << 30).unwrap();
    let groups = |file: &file::ClusterFile, words: &str| {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        partition::groups(file, &words)
    };
    assert_eq!(groups(&file, "1,2 3"), Ok(vec![vec![1, 2], vec![3]]));
    assert_eq!(groups(&file, "3"), Ok(vec![vec![3], vec![1, 2, 4]]));
    assert_eq!(groups(&file, ""), Ok(vec![]));
    for wrong in ["1,2 2", "1,1 2", "5", "1,2,3,4", "1- 2", "1,,2"] {
        assert_eq!(groups(&file, wrong).unwrap_err().code, exit::USAGE, "{wrong}");
    }
    file.cut = groups(&file, "1,2 3").unwrap();
    assert_eq!(file.cut_off_from(1), ["127.0.0.3"]);
    assert_eq!(file.cut_off_from(3), ["127.0.0.1", "127.0.0.2"]);
    assert!(file.cut_off_from(4).is_empty());
    assert_eq!(partition::shown(&file), "cut off from each other: 1,2 | 3");
    // A node that starts meanwhile gets the option.
    let line = |n: u16| arguments_of(&file, file.node(n).unwrap(), Path::new("/d")).join(" ");
    assert!(line(1).contains(" --developer-cut-links 127.0.0.3"), "{}", line(1));
    assert!(!line(4).contains("--developer-cut-links"), "{}", line(4));
    assert!(line(4).contains(" --developer-link-faults true"), "{}", line(4));
}

#[test]
fn a_port_that_is_taken_is_found_before_anything_starts() {
    // An address of this machine that no other test listens on.
    let taken = std::net::TcpListener::bind("127.77.0.9:10000").unwrap();
    let mut file = plan(&arguments("--nodes 1"), 2, 1 << 30).unwrap();
    let node = file.node_mut(1).unwrap();
    node.address = "127.77.0.9".to_owned();
    let failure = start::check_addresses(&file.nodes).unwrap_err();
    assert_eq!(failure.code, exit::LISTEN);
    drop(taken);
    assert_eq!(start::check_addresses(&file.nodes), Ok(()));
}

/// A directory of its own, removed at the end.
struct TestDir(PathBuf);

impl TestDir {
    fn new(name: &str) -> TestDir {
        let path = std::env::temp_dir().join(format!("helenus-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        TestDir(path)
    }

    fn place(&self) -> Place {
        Place { dir: self.0.clone() }
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn what_is_kept_is_read_again_and_one_command_works_at_a_time() {
    let test = TestDir::new("kept");
    assert_eq!(open(&test.place()).unwrap_err().code, exit::USAGE);
    let dir = ClusterDir::open(&test.0).unwrap();
    assert_eq!(ClusterDir::open(&test.0).unwrap_err().code, exit::IN_USE);
    let file = plan(&arguments("--nodes 2"), 2, 1 << 30).unwrap();
    dir.save(&file).unwrap();
    drop(dir);
    let (_, again) = open(&test.place()).unwrap();
    assert_eq!(again, file);
    assert_eq!(known(&again, 3).unwrap_err().text, "there is no node 3; there are 1 to 2");
}

#[test]
fn a_node_that_does_not_run_is_neither_killed_nor_stopped() {
    let test = TestDir::new("gone");
    let dir = ClusterDir::open(&test.0).unwrap();
    let mut file = plan(&arguments("--nodes 1"), 2, 1 << 30).unwrap();
    // The number of an existing process that was started at another time.
    let began = "another boot 1".to_owned();
    file.node_mut(1).unwrap().process = Some(process::Identity { pid: std::process::id(), began });
    dir.save(&file).unwrap();
    drop(dir);
    let failure = signal(&test.place(), 1, Signal::Kill).unwrap_err();
    assert_eq!(failure.text, "node 1 does not run");
    assert_eq!(stop(&test.place(), None, 1), Ok(exit::OK));
    let (_, file) = open(&test.place()).unwrap();
    assert_eq!(file.node(1).unwrap().process, None);
}

#[test]
fn summary_says_how_to_connect() {
    let file = plan(&arguments("--nodes 2"), 2, 1 << 30).unwrap();
    let text = summary(&file, &PathBuf::from("./d"));
    assert!(text.contains("127.0.0.1,127.0.0.2 port 9042, datacenter datacenter1"), "{text}");
    assert!(text.contains("Cluster([\"127.0.0.1\", \"127.0.0.2\"], port=9042)"), "{text}");
    assert!(text.contains("helenus cluster stop --dir ./d"), "{text}");
}
