//! Compressed segments.

use std::convert::Infallible;

use codec::Algorithm;
use rt::Buf;

use super::*;
use crate::blocks::{BLOCK_BYTES, BlockPlace, Packer};
use crate::scan::scan_bytes;
use crate::walk_segment;

const ALGORITHMS: [Algorithm; 4] =
    [Algorithm::Lz4, Algorithm::Snappy, Algorithm::Deflate, Algorithm::Zstd];

/// Writes `count` mutations of 100 bytes, one per commit, and leaves without closing.
fn write_compressed(world: &World, sync: SyncMode, compression: Option<Algorithm>, count: u8) {
    life(world, move |rt| async move {
        let options = LogOptions { compression, ..options(&rt, sync) };
        let log = CommitLog::open(&rt, options).await.unwrap();
        let ticket = TableTicket::new(&table());
        for i in 0..count {
            log.append(&ticket, &[i; 100]).unwrap();
            log.commit().await.unwrap();
        }
        rt.sleep(Duration::from_millis(50)).await;
    });
}

fn stored_bytes(world: &World) -> usize {
    segments(world).iter().map(|path| world.disk("n1").read(path).unwrap().len()).sum()
}

#[test]
fn what_was_committed_is_replayed_whatever_compresses_it_and_takes_less_space() {
    let plain = World::new(21, WorldOptions::default());
    write_compressed(&plain, PERIODIC, None, 200);
    for algorithm in ALGORITHMS {
        let world = World::new(21, WorldOptions::default());
        write_compressed(&world, PERIODIC, Some(algorithm), 200);
        assert!(segments(&world).len() > 4, "{algorithm:?}");
        assert!(stored_bytes(&world) < stored_bytes(&plain) * 3 / 4, "{algorithm:?}");
        assert_eq!(replay_life(&world).unwrap(), expected(200), "{algorithm:?}");
    }
}

#[test]
fn lives_with_and_without_compression_follow_each_other_in_one_log() {
    let world = World::new(22, WorldOptions::default());
    let mut all = Vec::new();
    let ways = [None, Some(Algorithm::Zstd), Some(Algorithm::Lz4), None];
    for (count, compression) in (10..).zip(ways) {
        write_compressed(&world, SyncMode::Batch, compression, count);
        all.extend(expected(count));
    }
    assert_eq!(replay_life(&world).unwrap(), all);
}

#[test]
fn a_damaged_byte_of_a_block_refuses_the_start_where_a_marker_attests_it() {
    let world = World::new(23, WorldOptions::default());
    write_compressed(&world, SyncMode::Batch, Some(Algorithm::Lz4), 10);
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
                assert_eq!(found, expected(10), "byte {at} of {}", whole.len());
            }
            Err(error) => panic!("byte {at}: {error}"),
        }
    }
    // The last block is the last marker's, which nothing attests.
    assert!(
        refused > whole.len() / 2 && tails > 0 && tails < 60,
        "{refused} refused, {tails} tails"
    );
}

#[test]
fn a_compressed_segment_cut_behind_its_last_marker_keeps_every_whole_block() {
    let world = World::new(24, WorldOptions::default());
    let never = SyncMode::Periodic { period: Duration::from_secs(3600) };
    write_compressed(&world, never, Some(Algorithm::Snappy), 10);
    let path = segments(&world).remove(0);
    let whole = world.disk("n1").read(&path).unwrap();
    let mut most = 0;
    for len in (0..=whole.len()).step_by(5) {
        world.disk("n1").write(&path, whole.get(..len).unwrap());
        let found = replay_life(&world).unwrap();
        assert_eq!(found, expected(found.len() as u8), "cut at {len}");
        most = most.max(found.len());
    }
    assert!(most >= 9, "{most}");
}

#[test]
fn a_short_compressed_segment_is_found_by_the_markers_of_a_later_one() {
    let world = World::new(25, WorldOptions::default());
    write_compressed(&world, PERIODIC, Some(Algorithm::Deflate), 100);
    let first = segments(&world).remove(0);
    let bytes = world.disk("n1").read(&first).unwrap();
    world.disk("n1").write(&first, bytes.get(..bytes.len() - 2).unwrap());
    remove_inventories(&world);
    assert!(matches!(replay_life(&world), Err(LogError::Corrupt { .. })));
}

#[test]
fn a_full_disk_costs_a_compressed_log_nothing_when_space_returns() {
    let world = World::new(26, WorldOptions::default());
    world.disk("n1").set_free_bytes(Some(1500));
    let full: Arc<Mutex<u32>> = Arc::default();
    let done: Arc<Mutex<bool>> = Arc::default();
    let (seen, flag) = (full.clone(), done.clone());
    let spec = NodeSpec { name: "n1".into(), shards: 1, work_dir: "/n1".into() };
    world.start_node(
        spec,
        Arc::new(move |rt| {
            let (seen, flag) = (seen.clone(), flag.clone());
            Box::pin(async move {
                let compression = Some(Algorithm::Lz4);
                let options = LogOptions { compression, ..options(&rt, PERIODIC) };
                let log = CommitLog::open(&rt, options).await.unwrap();
                let ticket = TableTicket::new(&table());
                for i in 0..100_u8 {
                    log.append(&ticket, &[i; 100]).unwrap();
                    match log.commit().await {
                        Ok(()) => assert!(log.disk_full().is_none()),
                        Err(LogError::DiskFull(_)) => *seen.lock().unwrap() += 1,
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
    assert_eq!(replay_life(&world).unwrap(), expected(100));
}

/// A compressed segment with these mutations, as the writer makes it.
fn segment(algorithm: Algorithm, mutations: &[Vec<u8>]) -> (SegmentId, Vec<u8>) {
    let header = header(Some(algorithm));
    let mut file = Vec::new();
    header.encode(&mut file);
    let mut records = Vec::new();
    for mutation in mutations {
        let offset = (file.len() + records.len()) as u64;
        format::encode_mutation(&mut records, LogPosition { segment: header.id, offset }, mutation);
    }
    let (mut packed, at) = (Buf::new(), file.len() as u64);
    let mut packer = Packer::new(Some(algorithm), None).unwrap();
    packer.pack(BlockPlace { segment: header.id, offset: at }, at, &records, |_| (), &mut packed);
    file.extend_from_slice(&packed);
    (header.id, file)
}

fn mutations_of(id: SegmentId, file: &[u8], piece: usize) -> (Vec<Vec<u8>>, crate::scan::Scan) {
    let mut found = Vec::new();
    let scan = scan_bytes(id, file, piece, None, |record| {
        if let (Some(_), Record::Mutation(bytes)) = (record.header, record.record) {
            found.push(bytes.to_vec());
        }
        Ok::<(), Infallible>(())
    });
    (found, scan.unwrap())
}

#[test]
fn blocks_hold_whole_records_and_a_long_record_makes_a_long_block() {
    // Bytes that do not repeat are stored as they are.
    let mut state = 7_u32;
    let mut noise = move |count: usize| -> Vec<u8> {
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        (0..count).map(|_| next()).collect()
    };
    let lengths = [10, BLOCK_BYTES - 20, 5, 3 * BLOCK_BYTES, 0, 1000];
    let mutations: Vec<Vec<u8>> = lengths.iter().map(|n| noise(*n)).collect();
    for algorithm in ALGORITHMS {
        let (id, file) = segment(algorithm, &mutations);
        for piece in [1, 100, 70_000, usize::MAX] {
            let (found, scan) = mutations_of(id, &file, piece);
            assert!(found == mutations, "{algorithm:?} by {piece}");
            assert_eq!((scan.valid_place, scan.length), (file.len() as u64, file.len() as u64));
        }
    }
}

#[test]
fn no_memory_is_taken_on_the_word_of_a_length() {
    let (id, file) = segment(Algorithm::Lz4, &[vec![1; 100]]);
    // The lengths of the first block and of the record of a plain segment.
    for (at, compression) in [(76, Some(Algorithm::Lz4)), (80, Some(Algorithm::Lz4)), (68, None)] {
        let mut bytes = file.clone();
        if compression.is_none() {
            bytes.clear();
            header(None).encode(&mut bytes);
            bytes.extend_from_slice(&[0; 40]);
        }
        bytes.splice(at..at + 4, u32::MAX.to_le_bytes());
        let (found, scan) = mutations_of(id, &bytes, 64);
        assert_eq!((found.len(), scan.valid_place), (0, 68), "{at}");
    }
}

/// A descriptor-free segment of version 2 with a block per compressor and one that is stored as it
/// is: bytes that every later build must read.
#[test]
fn the_golden_file_of_version_2_is_read() {
    let golden = from_hex(include_str!("../golden_v2.hex"));
    let id = SegmentHeader::decode(&golden).unwrap().id;
    let (found, scan) = mutations_of(id, &golden, usize::MAX);
    assert_eq!(found, golden_mutations());
    assert_eq!(scan.valid_place, golden.len() as u64);
    assert_eq!(scan.header, Some(header(Some(Algorithm::Zstd))));
    // The header and what is stored as it is do not depend on a compressor.
    let built = golden_v2();
    assert_eq!(built.get(..HEADER_AND_FIRST), golden.get(..HEADER_AND_FIRST));
}

/// The header, and the block with `ab`: 24 bytes and a record of 11.
const HEADER_AND_FIRST: usize = 68 + 24 + 11;

fn golden_mutations() -> Vec<Vec<u8>> {
    let mut all = vec![b"ab".to_vec()];
    all.extend((1..=4).map(|n: u8| vec![n; 64]));
    all
}

fn golden_v2() -> Vec<u8> {
    let header = header(Some(Algorithm::Zstd));
    let mut file = Vec::new();
    header.encode(&mut file);
    let mut offset = file.len() as u64;
    let first = [Algorithm::Zstd];
    for (mutation, algorithm) in golden_mutations().iter().zip(first.iter().chain(&ALGORITHMS)) {
        let mut record = Vec::new();
        format::encode_mutation(&mut record, LogPosition { segment: header.id, offset }, mutation);
        let mut block = Buf::new();
        let place = file.len() as u64;
        let mut packer = Packer::new(Some(*algorithm), None).unwrap();
        packer.pack(
            BlockPlace { segment: header.id, offset: place },
            offset,
            &record,
            |_| (),
            &mut block,
        );
        file.extend_from_slice(&block);
        offset += record.len() as u64;
    }
    file
}

#[test]
fn damaged_compressed_segments_are_walked_alike_in_pieces_and_as_a_whole() {
    let golden = from_hex(include_str!("../golden_v2.hex"));
    let id = SegmentHeader::decode(&golden).unwrap().id;
    for at in 0..golden.len() {
        let mut bytes = golden.clone();
        if let Some(b) = bytes.get_mut(at) {
            *b ^= 1;
        }
        let whole = walk_segment(id, &bytes, usize::MAX, None);
        assert!(whole.0 < 5, "byte {at} was not missed");
        assert_eq!(walk_segment(id, &bytes, 11, None), whole, "byte {at}");
    }
}
