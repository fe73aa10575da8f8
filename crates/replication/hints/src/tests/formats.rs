//! The bytes, and what is read of damaged ones.

use super::harness::*;
use crate::format::*;
use crate::fuzz;
use crate::policy::*;
use crate::walk::*;
use crate::*;
use stdx::WallMicros;

fn id() -> FileId {
    FileId { target: host(2), sequence: 0x0102, shard: 3 }
}

/// A file of `count` hints that were synced in pairs; where each record begins.
fn file_of(count: u64) -> (Vec<u8>, Vec<usize>) {
    let mut out = Vec::new();
    let header = FileHeader {
        id: id(),
        writer: host(1),
        shards: 4,
        created: WallMicros(5),
        sealing: HintSealing::Plain,
    };
    header.encode(&mut out);
    let mut places = Vec::new();
    let mut synced = 0;
    for number in 0..count {
        if number % 2 == 0 {
            synced = if number == 0 { 0 } else { out.len() as u32 };
        }
        places.push(out.len());
        let mutation = mutation(number as u8, number);
        let hint = HintRef {
            written_at: WallMicros(number as i64),
            gc_grace_seconds: 60,
            mutation: &mutation,
        };
        let place = Place { sequence: id().sequence, offset: out.len() as u64, synced };
        encode_record(&mut out, place, &hint);
    }
    (out, places)
}

fn numbers(bytes: &[u8]) -> (Vec<i64>, Vec<Gap>) {
    let mut found = Vec::new();
    let gaps = walk_file(id().sequence, bytes, |f| found.push(f.hint.written_at.0));
    (found, gaps)
}

#[test]
fn the_format_is_the_documented_one() {
    let (mut out, _) = file_of(1);
    assert_eq!(FileHeader::decode(&out).unwrap().id, id());
    let progress = Progress { sequence: 7, offset: 64, damaged: true };
    assert_eq!(Progress::decode(&progress.encode()), Some(progress));
    out.extend_from_slice(&progress.encode());
    let hex: String = out.iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hex, include_str!("golden_v1.hex").trim_end());
    assert_eq!(FileId::from_file_name(&id().file_name()), Some(id()));
    assert_eq!(
        id().file_name(),
        "helenus-hints-02020202-0202-0202-0202-020202020202-0000000000000102-3.hints"
    );
}

#[test]
fn names_of_other_files_are_not_taken_for_hint_files() {
    let name = id().file_name();
    for other in [
        name.replace(".hints", ".crc32"),
        name.replace("-3.hints", "-03.hints"),
        name.replace("0102", "102"),
        name.to_uppercase(),
        "02020202-0202-0202-0202-020202020202-1700000000000-2.hints".to_owned(),
    ] {
        assert_eq!(FileId::from_file_name(&other), None, "{other}");
    }
}

#[test]
fn another_version_is_named_and_a_damaged_header_is_not_a_version() {
    let (mut bytes, _) = file_of(1);
    bytes[4] = 3;
    assert_eq!(FileHeader::decode(&bytes), Err(BadHeader::Damaged));
    let crc = codec::crc32(&bytes[..60]).to_le_bytes();
    bytes[60..64].copy_from_slice(&crc);
    assert_eq!(FileHeader::decode(&bytes), Err(BadHeader::Version(3)));
    assert_eq!(FileHeader::decode(&bytes[..63]), Err(BadHeader::Damaged));
}

#[test]
fn a_damaged_byte_costs_at_most_its_own_hint_and_is_named() {
    let (whole, places) = file_of(10);
    let last_batch = places[8];
    for at in HEADER_BYTES..whole.len() {
        for mask in [0x01, 0x40, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] ^= mask;
            let hit = places.iter().rposition(|p| *p <= at).unwrap() as i64;
            let (found, gaps) = numbers(&bytes);
            let expected: Vec<i64> = (0..10).filter(|n| *n != hit).collect();
            assert_eq!(found, expected, "byte {at}");
            let [gap] = gaps.as_slice() else { panic!("byte {at}: {gaps:?}") };
            let (from, to) = (gap.from as usize, gap.to as usize);
            assert!(from == places[hit as usize] && to > at, "byte {at}: {gap:?}");
            assert_eq!(gap.was_synced, at < last_batch, "byte {at}");
        }
    }
}

#[test]
fn a_hole_of_zeros_costs_the_hints_in_it() {
    let (whole, places) = file_of(10);
    for from in (HEADER_BYTES..whole.len()).step_by(13) {
        for len in [1, 50, 300] {
            let mut bytes = whole.clone();
            let to = (from + len).min(whole.len());
            bytes[from..to].fill(0xee);
            let (found, _) = numbers(&bytes);
            let hit = |i: usize| {
                let end = places.get(i + 1).copied().unwrap_or(whole.len());
                places[i] < to && end > from
            };
            let expected: Vec<i64> = (0..10).filter(|n| !hit(*n as usize)).collect();
            assert_eq!(found, expected, "{from}..{to}");
        }
    }
}

#[test]
fn a_file_cut_anywhere_keeps_its_whole_hints_and_the_cut_is_a_crash_tail() {
    let (whole, places) = file_of(6);
    for len in HEADER_BYTES..whole.len() {
        let (found, gaps) = numbers(&whole[..len]);
        let ends = |i: usize| places.get(i + 1).copied().unwrap_or(whole.len());
        let expected: Vec<i64> = (0..6).filter(|n| ends(*n as usize) <= len).collect();
        assert_eq!(found, expected, "cut at {len}");
        let is_between = len == HEADER_BYTES || places.contains(&len);
        assert_eq!(gaps.is_empty(), is_between, "cut at {len}");
        assert!(gaps.iter().all(|g| !g.was_synced && g.to == len as u64), "cut at {len}");
    }
}

#[test]
fn records_of_another_file_or_place_are_none() {
    let (whole, places) = file_of(2);
    assert_eq!(walk_file(id().sequence + 1, &whole, |f| panic!("{f:?}")).len(), 1);
    let mut moved = whole.clone();
    moved.splice(HEADER_BYTES..HEADER_BYTES, [0]);
    assert_eq!(walk_file(id().sequence, &moved, |f| panic!("{f:?}")).len(), 1);
    let at = places[1];
    assert!(RecordHeader::decode(id().sequence, at as u64, &whole[at..]).is_some());
    assert!(RecordHeader::decode(id().sequence, at as u64 + 1, &whole[at..]).is_none());
}

#[test]
fn fuzz_functions_take_anything() {
    let progress = Progress { sequence: 7, offset: 64, damaged: false };
    let corpus = [vec![], file_of(5).0, file_of(1).0, progress.encode()];
    testkit::Mutations::of(corpus).run(|data| {
        fuzz::fuzz_hint_file(data);
        fuzz::fuzz_hint_progress(data);
    });
}

#[test]
fn a_hint_expires_with_the_smaller_grace_and_not_before() {
    let mutation = mutation(1, 1);
    let at = WallMicros(1_000_000_000);
    let hint = HintRef { written_at: at, gc_grace_seconds: 60, mutation: &mutation };
    let table =
        |gc_grace_seconds, truncated_at| Some(TableFacts { gc_grace_seconds, truncated_at });
    let after = |micros: i64| WallMicros(at.0 + micros);
    for (table, now, expected) in [
        (table(60, None), after(59_999_999), Ok(())),
        (table(60, None), after(60_000_000), Err(Dropped::Expired)),
        (table(600, None), after(60_000_000), Err(Dropped::Expired)),
        (table(30, None), after(29_999_999), Ok(())),
        (table(30, None), after(30_000_000), Err(Dropped::Expired)),
        (table(60, Some(after(-1))), at, Ok(())),
        (table(60, Some(at)), at, Err(Dropped::Truncated)),
        (None, at, Err(Dropped::NoTable)),
    ] {
        assert_eq!(deliverable(&hint, table, now), expected, "{table:?} {now:?}");
    }
}

#[test]
fn the_throttle_is_shared_by_the_other_nodes_and_the_shards() {
    let throttle = |n| HintsSettings { throttle_bytes_per_second: n, ..settings() };
    assert_eq!(rate(&throttle(1024), 2, 1), 1024);
    assert_eq!(rate(&throttle(1024), 1, 1), 1024);
    assert_eq!(rate(&throttle(1024), 5, 1), 256);
    assert_eq!(rate(&throttle(1024), 5, 4), 64);
    assert_eq!(rate(&throttle(1), 5, 4), 1);
    assert_eq!(rate(&throttle(0), 5, 4), 0);
    let (mut pace, now) = (Pace::default(), stdx::Instant(1_000));
    pace.spend(now, 512, 1024);
    assert_eq!(pace.free_at(), stdx::Instant(500_001_000));
    pace.spend(now, 1024, 1024);
    assert_eq!(pace.free_at(), stdx::Instant(1_500_001_000));
    pace.spend(stdx::Instant(9_000_000_000), 0, 1024);
    assert_eq!(pace.free_at(), stdx::Instant(9_000_000_000));
    let mut free = Pace::default();
    free.spend(now, 1 << 40, 0);
    assert_eq!(free.free_at(), stdx::Instant::ZERO);
}
