//! Tests of the log in the simulator.
#![allow(clippy::disallowed_types, reason = "facts are shared with the world's main function")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rt::sim::{World, WorldOptions};
use rt::{NodeSpec, Rt};
use schema::{Table, TableKind, TableOptions};
use stdx::{HostId, IoErrorKind, TableId, TimestampMicros, Uuid};

use crate::format::{self, decode_descriptor, decode_record};
use crate::{
    CommitLog, LogError, LogOptions, LogPosition, Record, SegmentHeader, SegmentId, SyncMode,
    TableTicket, fuzz,
};

mod archived;
mod compressed;
mod directories;
mod encrypted;
mod gathering;
mod inventories;
mod pausing;
mod salvaged;

fn table() -> Table {
    Table {
        id: TableId(Uuid::from_u128(5)),
        keyspace: "ks".into(),
        name: "t".into(),
        kind: TableKind::Regular,
        columns: vec![],
        partition_key_count: 0,
        clustering_count: 0,
        static_count: 0,
        options: TableOptions::default(),
        dropped: BTreeMap::new(),
        masks: BTreeMap::new(),
        indexes: Default::default(),
        version: 3,
        next_column_id: 0,
    }
}

fn options(rt: &Rt, sync: SyncMode) -> LogOptions {
    LogOptions {
        directory: "commitlog".into(),
        host: HostId(Uuid::from_u128(9)),
        run: rt.wall().0 as u64,
        sync,
        segment_bytes: 4096,
        total_bytes_max: 1 << 20,
        compression: None,
        keys: None,
        archive_directory: None,
        inventories: INVENTORIES.into(),
        accept_loss: None,
    }
}

const INVENTORIES: &str = "metadata/commitlog";
const PERIODIC: SyncMode = SyncMode::Periodic { period: Duration::from_millis(10) };

/// Runs one life of the node `n1` in a world.
fn life<F: Future<Output = ()> + 'static>(
    world: &World,
    main: impl Fn(Rt) -> F + Send + Sync + Clone + 'static,
) {
    let done = Arc::new(Mutex::new(false));
    let flag = done.clone();
    let spec = NodeSpec { name: "n1".into(), shards: 1, work_dir: "/n1".into() };
    world.start_node(
        spec,
        Arc::new(move |rt| {
            let (main, flag) = (main.clone(), flag.clone());
            Box::pin(async move {
                main(rt).await;
                *flag.lock().unwrap() = true;
            })
        }),
    );
    world.run_until(|| *done.lock().unwrap(), Duration::from_secs(600)).unwrap();
}

async fn replayed(log: &CommitLog) -> Result<Vec<Vec<u8>>, LogError> {
    let mut found = Vec::new();
    log.replay(&mut |_: &SegmentHeader, record: Record<'_>| {
        if let Record::Mutation(bytes) = record {
            found.push(bytes.to_vec());
        }
        Ok(())
    })
    .await?;
    Ok(found)
}

fn segments(world: &World) -> Vec<String> {
    world.disk("n1").list().into_iter().filter(|p| p.ends_with(".log")).collect()
}

/// Without them the segments themselves show their losses.
fn remove_inventories(world: &World) {
    for path in world.disk("n1").list().iter().filter(|p| p.contains(INVENTORIES)) {
        world.disk("n1").remove(path);
    }
}

/// Writes `count` mutations of 100 bytes and leaves without closing.
fn write_life(world: &World, sync: SyncMode, count: u8) {
    life(world, move |rt| async move {
        let log = CommitLog::open(&rt, options(&rt, sync)).await.unwrap();
        log.begin().await.unwrap();
        let ticket = TableTicket::new(&table());
        for i in 0..count {
            log.append(&ticket, &[i; 100]).unwrap();
            log.commit().await.unwrap();
        }
        rt.sleep(Duration::from_millis(50)).await;
    });
}

fn expected(count: u8) -> Vec<Vec<u8>> {
    (0..count).map(|i| vec![i; 100]).collect()
}

fn replay_life(world: &World) -> Result<Vec<Vec<u8>>, LogError> {
    type Outcome = Result<Vec<Vec<u8>>, LogError>;
    let out: Arc<Mutex<Option<Outcome>>> = Arc::default();
    let slot = out.clone();
    life(world, move |rt| {
        let slot = slot.clone();
        async move {
            let log = CommitLog::open(&rt, options(&rt, PERIODIC)).await.unwrap();
            *slot.lock().unwrap() = Some(replayed(&log).await);
        }
    });
    let result = out.lock().unwrap().take();
    result.unwrap()
}

/// INV-log-1.
#[test]
fn what_was_committed_is_replayed_in_order_over_many_segments() {
    let world = World::new(1, WorldOptions::default());
    write_life(&world, PERIODIC, 200);
    assert!(segments(&world).len() > 4);
    assert_eq!(replay_life(&world).unwrap(), expected(200));
}

/// INV-log-3.
#[test]
fn a_damaged_byte_before_a_marker_refuses_the_start_and_behind_it_costs_the_tail_only() {
    let world = World::new(2, WorldOptions::default());
    write_life(&world, SyncMode::Batch, 10);
    let path = segments(&world).remove(0);
    let whole = world.disk("n1").read(&path).unwrap();
    let (mut refused, mut tails) = (0, 0);
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        if let Some(b) = bytes.get_mut(at) {
            *b ^= 0x40;
        }
        world.disk("n1").write(&path, &bytes);
        match replay_life(&world) {
            Err(LogError::Corrupt { file, offset, .. }) => {
                refused += 1;
                assert!(path.ends_with(&file) && offset <= at as u64, "{file} {offset} {at}");
            }
            Ok(found) => {
                tails += 1;
                // The last record's marker is all that nothing attests.
                assert_eq!(found, expected(10), "byte {at} of {}", whole.len());
            }
            Err(error) => panic!("byte {at}: {error}"),
        }
    }
    assert!(refused > 10 * 100 && tails > 0 && tails < 60, "{refused} refused, {tails} tails");
}

#[test]
fn a_segment_cut_behind_its_last_marker_keeps_every_whole_record() {
    let world = World::new(3, WorldOptions::default());
    write_life(&world, SyncMode::Periodic { period: Duration::from_secs(3600) }, 10);
    let path = segments(&world).remove(0);
    let whole = world.disk("n1").read(&path).unwrap();
    for len in (0..whole.len()).step_by(7) {
        world.disk("n1").write(&path, whole.get(..len).unwrap());
        let found = replay_life(&world).unwrap();
        assert_eq!(found, expected(found.len() as u8), "cut at {len}");
    }
}

#[test]
fn damage_in_an_earlier_segment_is_found_by_the_markers_of_a_later_one() {
    let world = World::new(4, WorldOptions::default());
    write_life(&world, PERIODIC, 100);
    let first = segments(&world).remove(0);
    let bytes = world.disk("n1").read(&first).unwrap();
    remove_inventories(&world);
    world.disk("n1").write(&first, bytes.get(..bytes.len() - 20).unwrap());
    assert!(matches!(replay_life(&world), Err(LogError::Corrupt { .. })));
}

#[test]
fn a_full_disk_is_reported_and_nothing_is_lost_when_space_returns() {
    for sync in [PERIODIC, SyncMode::Batch] {
        check_full_disk(sync);
    }
}

fn check_full_disk(sync: SyncMode) {
    let world = World::new(5, WorldOptions::default());
    let handle = world.clone();
    handle.disk("n1").set_free_bytes(Some(1500));
    let full: Arc<Mutex<u32>> = Arc::default();
    let seen = full.clone();
    let spec = NodeSpec { name: "n1".into(), shards: 1, work_dir: "/n1".into() };
    let done: Arc<Mutex<bool>> = Arc::default();
    let flag = done.clone();
    world.start_node(
        spec,
        Arc::new(move |rt| {
            let (seen, flag) = (seen.clone(), flag.clone());
            Box::pin(async move {
                let log = CommitLog::open(&rt, options(&rt, sync)).await.unwrap();
                let ticket = TableTicket::new(&table());
                for i in 0..50_u8 {
                    log.append(&ticket, &[i; 100]).unwrap();
                    match log.commit().await {
                        // The marker after a sync may find no room.
                        Ok(()) => assert!(log.disk_full().is_none() || sync == SyncMode::Batch),
                        Err(LogError::DiskFull(error)) => {
                            assert_eq!(error.kind, IoErrorKind::NoSpace);
                            assert!(log.disk_full().is_some());
                            *seen.lock().unwrap() += 1;
                        }
                        Err(error) => panic!("{error}"),
                    }
                    rt.sleep(Duration::from_millis(100)).await;
                }
                log.commit().await.unwrap();
                *flag.lock().unwrap() = true;
            })
        }),
    );
    world.run_until(|| *full.lock().unwrap() > 5, Duration::from_secs(60)).unwrap();
    world.disk("n1").set_free_bytes(None);
    world.run_until(|| *done.lock().unwrap(), Duration::from_secs(60)).unwrap();
    assert_eq!(replay_life(&world).unwrap(), expected(50));
}

/// INV-log-2.
#[test]
fn after_a_failed_fsync_nothing_is_confirmed_any_more() {
    let world = World::new(6, WorldOptions::default());
    let stage: Arc<Mutex<u32>> = Arc::default();
    let shared = stage.clone();
    let spec = NodeSpec { name: "n1".into(), shards: 1, work_dir: "/n1".into() };
    world.start_node(
        spec,
        Arc::new(move |rt| {
            let stage = shared.clone();
            Box::pin(async move {
                let log = CommitLog::open(&rt, options(&rt, SyncMode::Batch)).await.unwrap();
                let ticket = TableTicket::new(&table());
                log.append(&ticket, &[1; 100]).unwrap();
                log.commit().await.unwrap();
                rt.sleep(Duration::from_millis(50)).await;
                *stage.lock().unwrap() = 1;
                while *stage.lock().unwrap() == 1 {
                    rt.sleep(Duration::from_millis(1)).await;
                }
                log.append(&ticket, &[2; 100]).unwrap();
                assert!(matches!(log.commit().await, Err(LogError::Failed(_))));
                assert!(matches!(log.append(&ticket, &[3; 100]), Err(LogError::Failed(_))));
                assert!(matches!(log.commit().await, Err(LogError::Failed(_))));
                assert!(matches!(log.sync().await, Err(LogError::Failed(_))));
                *stage.lock().unwrap() = 3;
            })
        }),
    );
    world.run_until(|| *stage.lock().unwrap() == 1, Duration::from_secs(60)).unwrap();
    // The write is the next call, the sync the one after.
    world.disk("n1").fail_nth(2, IoErrorKind::Device);
    *stage.lock().unwrap() = 2;
    world.run_until(|| *stage.lock().unwrap() == 3, Duration::from_secs(60)).unwrap();
}

#[test]
fn released_segments_are_deleted_and_the_rest_is_replayed() {
    let world = World::new(7, WorldOptions::default());
    life(&world, |rt| async move {
        let log = CommitLog::open(&rt, options(&rt, PERIODIC)).await.unwrap();
        let ticket = TableTicket::new(&table());
        let mut positions = Vec::new();
        for i in 0..200_u8 {
            positions.push(log.append(&ticket, &[i; 100]).unwrap());
            log.commit().await.unwrap();
        }
        let before = log.total_bytes();
        log.release_below(*positions.get(120).unwrap()).await.unwrap();
        assert!(log.total_bytes() < before / 2 + 4096);
        assert!(log.release_old().await.unwrap());
    });
    let found = replay_life(&world).unwrap();
    let first = found.first().and_then(|m| m.first()).copied().unwrap();
    assert!(first > 60 && first <= 120, "first replayed is {first}");
    assert_eq!(found.len(), 200 - usize::from(first));
}

#[test]
fn old_segments_go_when_released_and_stay_until_then() {
    let world = World::new(8, WorldOptions::default());
    write_life(&world, PERIODIC, 5);
    assert_eq!(replay_life(&world).unwrap().len(), 5);
    assert_eq!(replay_life(&world).unwrap().len(), 5);
    life(&world, |rt| async move {
        let log = CommitLog::open(&rt, options(&rt, PERIODIC)).await.unwrap();
        replayed(&log).await.unwrap();
        assert!(log.release_old().await.unwrap());
    });
    assert_eq!(segments(&world), Vec::<String>::new());
}

#[test]
fn a_mutation_of_half_a_segment_is_taken_and_one_byte_more_refused() {
    let world = World::new(9, WorldOptions::default());
    life(&world, |rt| async move {
        let log = CommitLog::open(&rt, options(&rt, PERIODIC)).await.unwrap();
        let ticket = TableTicket::new(&table());
        assert_eq!(log.record_bytes_max(), 2048);
        log.append(&ticket, &[0; 2048]).unwrap();
        let refused = log.append(&ticket, &[0; 2049]);
        assert_eq!(refused, Err(LogError::TooLarge { bytes: 2049, max: 2048 }));
        log.commit().await.unwrap();
    });
}

#[test]
fn records_round_trip_and_are_bound_to_their_place() {
    let at = LogPosition { segment: SegmentId::new(77, 3), offset: 68 };
    let mut out = vec![0; 68];
    format::encode_mutation(&mut out, at, b"mutation");
    let second = LogPosition { offset: out.len() as u64, ..at };
    let by = format::TruncatingShard { shard: 1, shards: 2 };
    format::encode_truncation(&mut out, second, table().id, TimestampMicros(5), by, &[7, 9]);
    let (record, next) = decode_record(at.segment, &out, 68).unwrap();
    assert_eq!(record, Record::Mutation(b"mutation"));
    let Some((Record::Truncation(t), end)) = decode_record(at.segment, &out, next) else {
        panic!("no truncation")
    };
    assert_eq!(
        (t.table, t.truncated_at, t.shard, t.shards),
        (table().id, TimestampMicros(5), 1, 2)
    );
    assert_eq!(t.generations().collect::<Vec<_>>(), vec![7, 9]);
    assert_eq!(end, out.len());
    assert_eq!(decode_record(SegmentId::new(78, 3), &out, 68), None);
    let moved: Vec<u8> = out.iter().skip(1).copied().collect();
    assert_eq!(decode_record(at.segment, &moved, 67), None);
}

#[test]
fn a_descriptor_names_every_column() {
    let descriptor = decode_descriptor(&format::encode_descriptor(&table())).unwrap();
    assert_eq!(descriptor.version, 3);
    assert_eq!(descriptor.names, ("ks".to_owned(), "t".to_owned()));
}

fn header(compression: Option<codec::Algorithm>) -> SegmentHeader {
    SegmentHeader {
        id: SegmentId::new(1, 2),
        host: HostId(Uuid::from_u128(0x0102)),
        shard: 2,
        shards: 4,
        created: 5,
        run: 6,
        previous: LogPosition { segment: SegmentId::new(0, 2), offset: 100 },
        compression,
        sealed: false,
    }
}

fn from_hex(text: &str) -> Vec<u8> {
    let pairs = text.trim().as_bytes().chunks(2);
    pairs.map(|p| u8::from_str_radix(std::str::from_utf8(p).unwrap(), 16).unwrap()).collect()
}

/// The bytes of docs/formats/commitlog.md: a change here is a new format version.
#[test]
fn the_format_is_the_documented_one() {
    let header = header(None);
    let mut out = Vec::new();
    header.encode(&mut out);
    assert_eq!(out.len(), format::HEADER_BYTES);
    assert_eq!(SegmentHeader::decode(&out), Ok(header.clone()));
    format::encode_mutation(&mut out, LogPosition { segment: header.id, offset: 68 }, b"ab");
    let hex: String = out.iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hex, GOLDEN);
}

const GOLDEN: &str = include_str!("golden_v1.hex");

#[test]
fn fuzz_targets_take_anything() {
    let mut corpus: Vec<Vec<u8>> = vec![vec![]];
    corpus.push(from_hex(GOLDEN));
    corpus.push(from_hex(include_str!("golden_v2.hex")));
    corpus.push(format::encode_descriptor(&table()));
    corpus.push(b"host 00000000-0000-0000-0000-000000000009\nrun 17\n".to_vec());
    corpus.push(b"segment 0000000000001001 4096\n".to_vec());
    testkit::Mutations::of(corpus).run(|data| {
        fuzz::fuzz_segment(data);
        fuzz::fuzz_descriptor(data);
        fuzz::fuzz_salvage(data);
        fuzz::fuzz_inventory(data);
        fuzz::fuzz_directory(data);
    });
}
