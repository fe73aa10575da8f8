//! Encrypted hint files.

use super::harness::*;
use crate::HintSealing;
use crate::format::HEADER_BYTES;

fn sealed_pair(seed: u64) -> Cluster {
    let mut settings = settings();
    settings.file_bytes_max = 1 << 20;
    settings.sealing = HintSealing::Sealed;
    let mut cluster = Cluster::new(seed, &[1, 2], settings);
    cluster.keys = Some("key");
    cluster.start(1);
    cluster.start(2);
    cluster
}

/// n1 with encrypted hints for n2, restarted with those keys over files that `change` has changed.
fn restarted(seed: u64, keys: Option<&'static str>, change: impl Fn(&Cluster)) -> Cluster {
    let mut cluster = sealed_pair(seed);
    for _ in 0..4 {
        cluster.store_many(3);
    }
    let node = cluster.nodes[&1].node.clone();
    cluster.world.kill(&node);
    change(&cluster);
    cluster.keys = keys;
    cluster.start(1);
    cluster.sender().set_up(host(2));
    cluster
}

#[test]
fn encrypted_hints_are_delivered_after_a_restart_and_their_keys_go_with_them() {
    let cluster = restarted(1, Some("key"), |c| {
        let paths = c.files();
        assert_eq!(paths.iter().filter(|p| p.ends_with(".hints.key")).count(), 1, "{paths:?}");
        for path in paths {
            let bytes = c.world.disk("n1").read(&path).unwrap();
            // Keys of partitions are one byte many times.
            let clear = bytes.windows(20).any(|w| w == [2; 20] || w == [1; 20]);
            assert!(!clear, "{path}");
        }
    });
    cluster.until_delivered();
    assert_eq!(cluster.received(), 12);
    check(&cluster.facts.borrow()).unwrap();
    assert_eq!(cluster.files(), Vec::<String>::new());
}

/// INV-hints-4.
#[test]
fn a_flipped_bit_costs_its_own_hint_only_and_the_file_is_set_aside_with_its_key() {
    let mut lost_once = 0;
    let length = std::cell::Cell::new(0);
    for byte in (0..1100_u64).step_by(29) {
        let cluster = restarted(2, Some("key"), |c| {
            let path = c.hint_files().remove(0);
            length.set(c.world.disk("n1").read(&path).unwrap().len() as u64);
            c.world.disk("n1").flip_bit(&path, byte * 8 + 3);
        });
        cluster.until_delivered();
        let lost = 12 - cluster.received();
        assert_eq!(lost, usize::from(byte >= HEADER_BYTES as u64), "byte {byte}");
        lost_once += lost;
        let names = cluster.files();
        let aside = names.iter().any(|f| f.ends_with(".hints.damaged"));
        let key = names.iter().any(|f| f.ends_with(".hints.key"));
        assert_eq!(aside, key, "byte {byte}: {names:?}");
        // No record attests that the last of the four writes was synced: its damage counts as a cut-off tail.
        let header = HEADER_BYTES as u64;
        let last_write = header + (length.get() - header) / 4 * 3;
        let is_of_header = byte < HEADER_BYTES as u64;
        assert_eq!(
            aside,
            is_of_header || (lost == 1 && byte < last_write),
            "byte {byte} of {}: {names:?}",
            length.get()
        );
    }
    assert!(lost_once > 20, "{lost_once}");
}

#[test]
fn hints_without_their_key_wait_and_are_delivered_when_it_is_there() {
    for other in [None, Some("other")] {
        let mut cluster = restarted(3, other, |_| ());
        cluster.run(120_000);
        assert_eq!(cluster.received(), 0);
        assert_eq!(cluster.hint_files().len(), 1, "it is neither removed nor set aside");
        let node = cluster.nodes[&1].node.clone();
        cluster.world.kill(&node);
        cluster.keys = Some("key");
        cluster.start(1);
        cluster.sender().set_up(host(2));
        cluster.until_delivered();
        assert_eq!(cluster.received(), 12);
    }
}

#[test]
fn a_file_that_lost_its_record_is_set_aside_and_nothing_of_it_is_sent() {
    let cluster = restarted(4, Some("key"), |c| {
        let key = c.files().into_iter().find(|f| f.ends_with(".key")).unwrap();
        c.world.disk("n1").remove(&key);
    });
    cluster.until_delivered();
    assert_eq!(cluster.received(), 0);
    assert!(cluster.files().iter().any(|f| f.ends_with(".hints.damaged")));
}

#[test]
fn no_failure_of_a_write_leaves_a_key_without_its_file() {
    let mut failed = 0;
    for change in 1..12 {
        let cluster = sealed_pair(6);
        assert!(cluster.store(1));
        cluster.world.disk("n1").fail_nth_change(change, stdx::IoErrorKind::Device);
        failed += u64::from(cluster.flush().is_err());
        let names = cluster.files();
        for key in names.iter().filter(|name| name.ends_with(".hints.key")) {
            let file = key.trim_end_matches(".key").to_owned();
            assert!(names.contains(&file), "change {change}: {names:?}");
        }
    }
    assert!(failed > 3, "{failed}");
}

#[test]
fn without_an_active_key_no_hint_is_written_in_the_clear() {
    let mut settings = settings();
    settings.sealing = HintSealing::Sealed;
    let cluster = Cluster::pair(5, settings);
    assert!(cluster.store(1));
    let error = cluster.flush().unwrap_err().to_string();
    assert!(error.contains("there is no active key"), "{error}");
    assert_eq!(cluster.hint_files(), Vec::<String>::new());
}
