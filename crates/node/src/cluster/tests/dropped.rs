//! Drops that the end of a process cut off, and starts that are refused.

use super::*;

/// A start that is refused at its last step keeps the files of a dropped table; the next one
/// removes them.
#[test]
fn a_drop_that_was_cut_off_waits_for_a_start_that_nothing_refuses() {
    let net = Net::new(240);
    let node = net.start(1);
    net.until_ready(&[&node]);
    net.fill(1, 1, 3);
    let stop = |node: &Started| {
        node.node.request_stop();
        net.world.run_until(|| !net.world.is_alive(&node.node), Duration::from_secs(60)).unwrap();
    };
    // Memtables are flushed then.
    stop(&node);
    let disk = net.world.disk(&name(1));
    let of_table = |path: &String| path.contains("/ks/t-");
    let files = || -> Vec<(String, Vec<u8>)> {
        let all = disk.list().into_iter().filter(of_table);
        all.filter_map(|path| Some((path.clone(), disk.read(&path)?))).collect()
    };
    let before = files();
    assert!(before.iter().any(|(path, _)| path.ends_with("-Data.db")), "{before:?}");
    let node = net.start(1);
    net.until_ready(&[&node]);
    net.query(1, "DROP TABLE ks.t").unwrap();
    net.run(5);
    stop(&node);
    // The state in which nothing followed the entry in the metadata log.
    disk.list().iter().filter(|path| of_table(path)).for_each(|path| disk.remove(path));
    before.iter().for_each(|(path, bytes)| disk.write(path, bytes));
    disk.remove("/data/metadata/drops");

    // The second of its ports is taken by its first.
    let options = net.options(1);
    let port = options.native_transport_port;
    let refused = net.start_with(1, Options { native_shard_aware_transport_port: port, ..options });
    let failure = net.failure_of(&refused);
    assert!(failure.contains("shard-aware CQL"), "{failure}");
    net.world.run_until(|| !net.world.is_alive(&refused.node), Duration::from_secs(60)).unwrap();
    assert_eq!(files(), before);

    let again = net.start(1);
    net.until_ready(&[&again]);
    let left: Vec<String> =
        files().into_iter().map(|(path, _)| path).filter(|p| p.ends_with("-Data.db")).collect();
    assert!(!left.is_empty() && left.iter().all(|p| p.contains("/snapshots/dropped-")), "{left:?}");
}

/// The table and its keyspace are dropped, then their SSTables and those of `system_schema` are put back. The schema of
/// the log is shown, nothing is removed, and the statements of the snapshot bring the rows back.
#[test]
fn restored_files_of_a_dropped_keyspace_come_back_by_the_statements_of_the_snapshot() {
    let net = Net::new(241);
    let node = net.start(1);
    net.until_ready(&[&node]);
    net.fill(1, 1, 3);
    let map = "{'class': 'SimpleStrategy', 'replication_factor': 1}";
    for statement in [
        format!("CREATE KEYSPACE gone WITH replication = {map}").as_str(),
        "CREATE TYPE gone.part (a int)",
        "CREATE TYPE gone.whole (p frozen<part>)",
        "CREATE TABLE gone.r (k int PRIMARY KEY, w frozen<list<frozen<whole>>>)",
        "INSERT INTO gone.r (k, w) VALUES (1, [{p: {a: 7}}])",
    ] {
        net.query(1, statement).unwrap();
    }
    let stop = |node: &Started| {
        node.node.request_stop();
        net.world.run_until(|| !net.world.is_alive(&node.node), Duration::from_secs(60)).unwrap();
    };
    stop(&node);
    let disk = net.world.disk(&name(1));
    let is_restored = |path: &String| path.contains("/gone/r-") || path.contains("/system_schema/");
    let files = || -> Vec<(String, Vec<u8>)> {
        let all = disk.list().into_iter().filter(is_restored);
        all.filter_map(|path| Some((path.clone(), disk.read(&path)?))).collect()
    };
    let before = files();
    assert!(before.iter().any(|(path, _)| path.contains("/gone/r-") && path.ends_with("-Data.db")));
    let node = net.start(1);
    net.until_ready(&[&node]);
    net.query(1, "DROP KEYSPACE gone").unwrap();
    // The drop is carried out, and noted.
    net.run(60);
    stop(&node);
    let snapshot = disk.list().into_iter().find(|path| path.ends_with("/schema.cql")).unwrap();
    let statements = String::from_utf8(disk.read(&snapshot).unwrap()).unwrap();
    disk.list().iter().filter(|p| p.contains("/system_schema/")).for_each(|p| disk.remove(p));
    before.iter().for_each(|(path, bytes)| disk.write(path, bytes));

    let node = net.start(1);
    net.until_ready(&[&node]);
    let ghosts = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'gone'";
    assert_eq!(net.query(1, ghosts).unwrap().len(), 0);
    let ghosts = "SELECT * FROM system_schema.keyspaces WHERE keyspace_name = 'gone'";
    assert_eq!(net.query(1, ghosts).unwrap().len(), 0);
    let others = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'ks'";
    assert_eq!(net.query(1, others).unwrap().len(), 1);
    let left = files();
    let kept = |(path, bytes): &(String, Vec<u8>)| {
        !path.contains("/gone/r-") || left.contains(&(path.clone(), bytes.clone()))
    };
    assert!(before.iter().all(kept), "the start has changed restored files");

    net.query(1, &format!("CREATE KEYSPACE gone WITH replication = {map}")).unwrap();
    for statement in statements.split_terminator(';') {
        net.query(1, statement).unwrap();
    }
    assert_eq!(net.query(1, "SELECT * FROM gone.r").unwrap().len(), 1);
    stop(&node);
    let node = net.start(1);
    net.until_ready(&[&node]);
    assert_eq!(net.query(1, "SELECT * FROM gone.r").unwrap().len(), 1);
    stop(&node);
}
