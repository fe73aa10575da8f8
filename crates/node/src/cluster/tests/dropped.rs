//! Drops that the end of a process cut off, and starts that are refused.

use super::*;

/// A start that is refused at its last step leaves what is there of a dropped table; the next one removes it.
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
    // What is in memory is flushed then.
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
    // As if nothing had come behind the entry in the metadata log.
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
