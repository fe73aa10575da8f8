//! Damaged files, up to the delivery.

use tracing::Level;

use super::harness::*;
use super::log_capture::{Logged, logged};
use crate::format::{FORMAT_VERSION, HEADER_BYTES};

/// n1 with files for n2, restarted over files that `change` has changed.
fn restarted(seed: u64, count: u8, change: impl Fn(&Cluster)) -> Cluster {
    let mut settings = settings();
    settings.file_bytes_max = 1 << 20;
    let mut cluster = Cluster::pair(seed, settings);
    for _ in 0..count {
        cluster.store_many(3);
    }
    let node = cluster.nodes[&1].node.clone();
    cluster.world.kill(&node);
    change(&cluster);
    cluster.start(1);
    cluster.sender().set_up(host(2));
    cluster
}

/// INV-hints-4.
#[test]
fn damage_costs_its_own_hint_and_the_file_is_set_aside_and_named() {
    let probe = restarted(1, 4, |_| ());
    probe.until_delivered();
    assert_eq!(probe.received(), 12);
    check(&probe.facts.borrow()).unwrap();
    let mut corrupted = 0;
    for byte in (0..1000_u64).step_by(17) {
        let cluster = restarted(2, 4, |c| {
            let path = c.hint_files().remove(0);
            c.world.disk("n1").flip_bit(&path, byte * 8 + 3);
        });
        cluster.until_delivered();
        let damaged = cluster.counter("hints_damaged_ranges_total", "");
        let tails = cluster.counter("hints_crash_tails_total", "");
        let in_header = byte < HEADER_BYTES as u64;
        let lost = if in_header { 0 } else { 1 };
        assert_eq!(cluster.received(), 12 - lost, "byte {byte}");
        assert_eq!(damaged + tails, 1, "byte {byte}");
        let aside = cluster.files().iter().filter(|f| f.ends_with(".hints.damaged")).count();
        assert_eq!(aside as u64, damaged, "byte {byte}");
        assert_eq!(cluster.hint_files().len(), 0, "byte {byte}");
        // The check sees the loss: it can fail.
        assert_eq!(check(&cluster.facts.borrow()).is_err(), !in_header, "byte {byte}");
        corrupted += damaged;
    }
    assert!(corrupted > 30, "{corrupted}");
}

/// Remedy in the log: repair writes for the host of the file since its creation, in the ranges of
/// both nodes.
const TO_REPAIR: &str =
    "run a full repair on the host for the ranges that it shares with this node";

/// The one event with such words; the host and the age of the file that it names.
fn told_to_repair(events: &[Logged], level: Level, words: &str) -> (String, Vec<String>) {
    let found: Vec<&Logged> = events.iter().filter(|e| e.message.contains(words)).collect();
    let [one] = found.as_slice() else { panic!("{words}: {events:?}") };
    assert_eq!(one.level, level, "{one:?}");
    assert!(one.message.ends_with(TO_REPAIR), "{one:?}");
    let host_id = format!("host={}", host(2).0);
    assert!(one.fields.contains(&host_id), "{one:?}");
    let of = |name: &str| {
        let field = one.fields.iter().find_map(|f| f.strip_prefix(&format!("{name}=")));
        field.unwrap_or_else(|| panic!("{name}: {one:?}")).to_owned()
    };
    // The age is in the name of the file too.
    let since: u64 = of("since_millis").parse().unwrap();
    assert!(of("file").contains(&format!("-{since:016x}-")), "{one:?}");
    (of("file"), one.fields.clone())
}

#[test]
fn an_emptied_or_cut_hint_file_is_named_with_what_to_repair() {
    for bytes in [0, HEADER_BYTES - 1] {
        let name = std::cell::Cell::new(String::new());
        let (cluster, events) = logged(|| {
            restarted(11, 2, |c| {
                let path = c.hint_files().remove(0);
                let kept = c.world.disk("n1").read(&path).unwrap()[..bytes].to_vec();
                c.world.disk("n1").write(&path, &kept);
                name.set(path.rsplit('/').next().unwrap().to_owned());
            })
        });
        let (file, fields) = told_to_repair(&events, Level::WARN, "hint file is empty or cut");
        assert_eq!(file, name.take());
        assert!(fields.contains(&format!("bytes={bytes}")), "{fields:?}");
        assert!(fields.contains(&"directory=hints".to_owned()), "{fields:?}");
        drop(cluster);
    }
    // A file that holds all that was written says nothing.
    let (_, events) = logged(|| restarted(11, 2, |_| ()));
    assert_eq!(events, []);
}

#[test]
fn a_damaged_place_of_a_hint_file_is_named_with_what_to_repair() {
    let (cluster, events) = logged(|| {
        let cluster = restarted(12, 4, |c| {
            let path = c.hint_files().remove(0);
            c.world.disk("n1").flip_bit(&path, (HEADER_BYTES as u64 + 100) * 8 + 3);
        });
        cluster.until_delivered();
        cluster
    });
    assert_eq!(cluster.counter("hints_damaged_ranges_total", ""), 1);
    let (_, fields) = told_to_repair(&events, Level::ERROR, "hint file is damaged");
    for name in ["offset=", "bytes="] {
        assert!(fields.iter().any(|field| field.starts_with(name)), "{fields:?}");
    }
    // And once: the file that was set aside is not read again.
    let aside = events.iter().filter(|e| e.message.contains("was set aside")).count();
    assert_eq!(aside, 1, "{events:?}");
}

#[test]
fn a_file_of_another_version_or_name_is_set_aside_whole() {
    let cluster = restarted(3, 2, |c| {
        let path = c.hint_files().remove(0);
        let mut bytes = c.world.disk("n1").read(&path).unwrap();
        bytes[4..6].copy_from_slice(&(FORMAT_VERSION + 1).to_le_bytes());
        let crc = codec::crc32(&bytes[..60]).to_le_bytes();
        bytes[60..64].copy_from_slice(&crc);
        c.world.disk("n1").write(&path, &bytes);
    });
    cluster.until_delivered();
    assert_eq!(cluster.received(), 0);
    assert_eq!(cluster.files().len(), 1);
    let cluster = restarted(4, 2, |c| {
        let path = c.hint_files().remove(0);
        let bytes = c.world.disk("n1").read(&path).unwrap();
        c.world.disk("n1").remove(&path);
        c.world.disk("n1").write(&path.replace("-0.hints", "-7.hints"), &bytes);
    });
    cluster.until_delivered();
    assert_eq!(cluster.received(), 0);
    assert!(cluster.files()[0].ends_with("-7.hints.damaged"));
}

#[test]
fn files_that_were_set_aside_count_into_the_bound() {
    let mut cluster = Cluster::pair(5, settings());
    cluster.store_many(3);
    let path = cluster.hint_files().remove(0);
    let node = cluster.nodes[&1].node.clone();
    cluster.world.kill(&node);
    cluster.world.disk("n1").write(&format!("{path}.damaged"), &[0; 4000]);
    cluster.world.disk("n1").write("/hints/notes.txt", b"not ours");
    cluster.settings.total_bytes_max = 4000;
    cluster.start(1);
    assert!(!cluster.sender().may_hint(host(2)));
    assert_eq!(cluster.counter("hints_refused_total", "total_full"), 1);
    // Removed by an operator; the file that is not ours stays.
    let node = cluster.nodes[&1].node.clone();
    cluster.world.kill(&node);
    cluster.world.disk("n1").remove(&format!("{path}.damaged"));
    cluster.start(1);
    assert!(cluster.sender().may_hint(host(2)));
    assert!(cluster.world.disk("n1").list().iter().any(|f| f.ends_with("notes.txt")));
}

#[test]
fn a_damaged_progress_file_delivers_from_the_beginning() {
    let mut cluster = Cluster::pair(6, settings());
    cluster.store_many(6);
    let node = cluster.nodes[&1].node.clone();
    cluster.world.kill(&node);
    let path = cluster.hint_files().remove(0);
    cluster.world.disk("n1").write(&format!("{path}.offset"), &[7; 28]);
    let long = "/hints/helenus-hints-02020202-0202-0202-0202-020202020202-0000000000000001-0";
    cluster.world.disk("n1").write(&format!("{long}.hints.offset"), &[7; 28]);
    cluster.world.disk("n1").write(&format!("{path}.offset.tmp"), &[7; 3]);
    cluster.start(1);
    cluster.sender().set_up(host(2));
    cluster.until_delivered();
    check(&cluster.facts.borrow()).unwrap();
    assert_eq!(cluster.files(), Vec::<String>::new());
}

#[test]
fn a_file_that_cannot_be_read_is_given_up_and_the_next_start_tries_it_again() {
    let mut cluster = Cluster::pair(7, settings());
    cluster.store_many(3);
    let disk = cluster.world.disk("n1");
    for n in 1..1000 {
        disk.fail_nth(n, stdx::IoErrorKind::Device);
    }
    cluster.sender().set_up(host(2));
    cluster.run(3000);
    assert_eq!(cluster.sender().pending().len(), 1, "tried again with every period");
    cluster.run(60_000);
    assert_eq!(cluster.sender().pending(), []);
    assert_eq!(cluster.counter("hints_read_errors_total", ""), 5);
    disk.clear_faults();
    // Others are delivered meanwhile.
    assert!(cluster.store(1));
    cluster.until_delivered();
    assert_eq!(cluster.received(), 1);
    let node = cluster.nodes[&1].node.clone();
    cluster.world.kill(&node);
    cluster.start(1);
    cluster.sender().set_up(host(2));
    cluster.until_delivered();
    assert_eq!(cluster.received(), 4);
}

#[test]
fn an_empty_file_and_one_with_half_a_header_go_without_a_word_of_damage() {
    for len in [0, 1, 63, HEADER_BYTES] {
        let cluster = restarted(8, 1, |c| {
            let path = c.hint_files().remove(0);
            let bytes = c.world.disk("n1").read(&path).unwrap();
            c.world.disk("n1").write(&path, &bytes[..len]);
        });
        cluster.until_delivered();
        assert_eq!(cluster.received(), 0);
        assert_eq!(cluster.files(), Vec::<String>::new(), "{len}");
        assert_eq!(cluster.counter("hints_damaged_ranges_total", ""), 0);
        let tails = cluster.counter("hints_crash_tails_total", "");
        assert_eq!(tails, u64::from(len == 1 || len == 63), "{len}");
    }
}
