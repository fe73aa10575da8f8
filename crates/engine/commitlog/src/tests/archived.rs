//! The archive and the segments restored from it.

use super::*;
use crate::archive::{self, Restored};

fn archiving(rt: &Rt) -> LogOptions {
    LogOptions { archive_directory: Some("archive".into()), ..options(rt, PERIODIC) }
}

fn files_in(world: &World, directory: &str) -> Vec<String> {
    let begin = format!("/n1/{directory}/");
    let names = world.disk("n1").list().into_iter();
    names.filter_map(|path| path.strip_prefix(&begin).map(str::to_owned)).collect()
}

/// Writes 200 mutations; what was finished is archived. The names in the archive before anything was
/// released.
fn write_archived(world: &World) -> Vec<String> {
    let eager: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = eager.clone();
    life(world, move |rt| {
        let seen = seen.clone();
        async move {
            let log = CommitLog::open(&rt, archiving(&rt)).await.unwrap();
            let ticket = TableTicket::new(&table());
            for i in 0..200_u8 {
                log.append(&ticket, &[i; 100]).unwrap();
                log.commit().await.unwrap();
            }
            rt.sleep(Duration::from_millis(50)).await;
            let entries = rt.fs().read_dir("archive").await.unwrap();
            *seen.lock().unwrap() = entries.into_iter().map(|e| e.name).collect();
            assert!(log.release_old().await.unwrap());
            log.sync().await.unwrap();
            log.release_all().await.unwrap();
        }
    });
    eager.lock().unwrap().clone()
}

fn restore_life(world: &World) -> Result<Restored, LogError> {
    let out: Arc<Mutex<Option<Result<Restored, LogError>>>> = Arc::default();
    let slot = out.clone();
    life(world, move |rt| {
        let slot = slot.clone();
        async move {
            let fs = rt.fs();
            fs.create_dir_durably("commitlog").await.unwrap();
            let restored = archive::restore(&fs, &["archive".into()], "commitlog").await;
            *slot.lock().unwrap() = Some(restored);
        }
    });
    let result = out.lock().unwrap().take();
    result.unwrap()
}

/// INV-log-5.
#[test]
fn finished_segments_are_archived_by_the_next_sync_and_the_last_one_before_it_is_deleted() {
    let world = World::new(31, WorldOptions::default());
    let eager = write_archived(&world);
    let all = files_in(&world, "archive");
    assert_eq!(files_in(&world, "commitlog"), Vec::<String>::new());
    assert!(eager.len() > 4 && eager.len() + 1 == all.len(), "{} of {}", eager.len(), all.len());
}

#[test]
fn a_restored_archive_is_replayed_in_order_and_not_archived_twice() {
    let world = World::new(32, WorldOptions::default());
    write_archived(&world);
    let names = files_in(&world, "archive");
    world.disk("n1").write("/n1/archive/notes.txt", b"not a segment");
    // A note that this shard had released a segment of that name.
    let note = format!("/n1/commitlog/{}.flushed-0-of-1", names.first().unwrap());
    world.disk("n1").write(&note, b"");
    let restored = restore_life(&world).unwrap();
    assert_eq!((restored.segments, restored.there), (names.len() as u64, 0));
    assert_eq!(restored.ignored, ["archive/notes.txt"]);
    assert_eq!(restore_life(&world).unwrap().there, names.len() as u64);
    assert_eq!(replay_life(&world).unwrap(), expected(200));
    // A mark in the archived file shows whether it was rewritten.
    let marked = format!("/n1/archive/{}", names.first().unwrap());
    let mut bytes = world.disk("n1").read(&marked).unwrap();
    bytes.push(0);
    world.disk("n1").write(&marked, &bytes);
    life(&world, |rt| async move {
        let log = CommitLog::open(&rt, archiving(&rt)).await.unwrap();
        assert_eq!(replayed(&log).await.unwrap().len(), 200);
        assert!(log.release_old().await.unwrap());
    });
    assert_eq!(segments(&world).iter().filter(|p| p.contains("/commitlog/")).count(), 0);
    let mut after = files_in(&world, "archive");
    after.retain(|name| name != "notes.txt");
    assert_eq!(after, names);
    assert_eq!(world.disk("n1").read(&marked), Some(bytes));
}

#[test]
fn a_restore_refuses_damaged_headers_and_segments_of_cassandras() {
    let world = World::new(33, WorldOptions::default());
    write_archived(&world);
    let name = files_in(&world, "archive").remove(2);
    let path = format!("/n1/archive/{name}");
    let whole = world.disk("n1").read(&path).unwrap();
    for (bytes, what) in [
        (whole.get(..50).unwrap().to_vec(), "the header is cut short"),
        (vec![0; 100], "no commit-log segment"),
    ] {
        world.disk("n1").write(&path, &bytes);
        let error = restore_life(&world).unwrap_err();
        assert_eq!(
            error,
            LogError::Corrupt { file: format!("archive/{name}"), offset: 0, what, accept: None }
        );
    }
    world.disk("n1").write(&path, &whole);
    world.disk("n1").write("/n1/archive/CommitLog-7-1.log", b"");
    let error = restore_life(&world).unwrap_err();
    assert_eq!(error, LogError::Foreign { file: "archive/CommitLog-7-1.log".into() });
}

#[test]
fn a_segment_that_is_missing_between_others_is_named() {
    let world = World::new(36, WorldOptions::default());
    write_archived(&world);
    let names = files_in(&world, "archive");
    assert!(names.len() > 5, "{names:?}");
    // Segments before the first one are not required.
    let remove = |name: &String| world.disk("n1").remove(&format!("/n1/archive/{name}"));
    remove(&names[0]);
    assert_eq!(restore_life(&world).unwrap().missing, Vec::<String>::new());
    for name in files_in(&world, "commitlog") {
        world.disk("n1").remove(&format!("/n1/commitlog/{name}"));
    }
    remove(&names[2]);
    remove(&names[4]);
    let restored = restore_life(&world).unwrap();
    assert_eq!(restored.missing, [names[2].clone(), names[4].clone()]);
    assert_eq!(restored.segments, names.len() as u64 - 3);
}

#[test]
fn a_segment_longer_than_a_piece_is_replayed_whole() {
    let world = World::new(34, WorldOptions::default());
    let sizes = |i: usize| 1 + i * 37_123 % 900_000;
    for compression in [None, Some(codec::Algorithm::Zstd)] {
        life(&world, move |rt| async move {
            let segment_bytes = 20 << 20;
            let options = LogOptions { segment_bytes, compression, ..options(&rt, PERIODIC) };
            let log = CommitLog::open(&rt, options).await.unwrap();
            let ticket = TableTicket::new(&table());
            for i in 0..50 {
                // Noise, so that blocks do not become small.
                let mut byte = i as u32;
                let noise = (0..sizes(i)).map(|_| {
                    byte = byte.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (byte >> 24) as u8
                });
                log.append(&ticket, &noise.collect::<Vec<u8>>()).unwrap();
                log.commit().await.unwrap();
            }
            log.close().await.unwrap();
        });
    }
    let found = replay_life(&world).unwrap();
    let lengths: Vec<usize> = found.iter().map(Vec::len).collect();
    assert_eq!(lengths, (0..50).chain(0..50).map(sizes).collect::<Vec<_>>());
    assert!(segments(&world).len() <= 4);
}

#[test]
fn a_segment_that_is_archived_and_deleted_while_another_waits_for_its_turn_is_no_failure() {
    let world = World::new(35, WorldOptions::default());
    write_archived(&world);
    let name = files_in(&world, "archive").remove(1);
    life(&world, move |rt| {
        let name = name.clone();
        async move {
            let log = CommitLog::open(&rt, archiving(&rt)).await.unwrap();
            let archive = log.archive().unwrap();
            let id = crate::format::SegmentId::from_file_name(&name).unwrap();
            assert!(archive.put(&format!("commitlog/{name}"), id).await);
            rt.fs().remove_file(&format!("archive/{name}")).await.unwrap();
            assert!(!archive.put(&format!("commitlog/{name}"), id).await);
            assert!(log.take_archive_failure().is_some_and(|text| text.contains(&name)));
        }
    });
}
