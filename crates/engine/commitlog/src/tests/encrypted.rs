//! Encrypted segments.

use codec::Algorithm;

use super::*;
use crate::Keys;

fn keys(of: &[char]) -> Keys {
    let lines: Vec<String> = of.iter().map(|c| c.to_string().repeat(64)).collect();
    Keys::parse(&lines.join("\n")).unwrap()
}

/// Writes `count` mutations of 100 bytes, one per commit, and leaves without closing.
fn write(world: &World, keys: Option<&Keys>, compression: Option<Algorithm>, count: u8) {
    let keys = keys.cloned();
    life(world, move |rt| {
        let options =
            LogOptions { compression, keys: keys.clone(), ..options(&rt, SyncMode::Batch) };
        async move {
            let log = CommitLog::open(&rt, options).await.unwrap();
            let ticket = TableTicket::new(&table());
            for i in 0..count {
                log.append(&ticket, &[i; 100]).unwrap();
                log.commit().await.unwrap();
            }
            rt.sleep(Duration::from_millis(50)).await;
        }
    });
}

fn replay(world: &World, keys: Option<&Keys>) -> Result<Vec<Vec<u8>>, LogError> {
    type Outcome = Result<Vec<Vec<u8>>, LogError>;
    let out: Arc<Mutex<Option<Outcome>>> = Arc::default();
    let (slot, keys) = (out.clone(), keys.cloned());
    life(world, move |rt| {
        let (slot, keys) = (slot.clone(), keys.clone());
        async move {
            let options = LogOptions { keys, ..options(&rt, PERIODIC) };
            let log = CommitLog::open(&rt, options).await.unwrap();
            *slot.lock().unwrap() = Some(replayed(&log).await);
        }
    });
    let result = out.lock().unwrap().take();
    result.unwrap()
}

#[test]
fn what_was_committed_is_replayed_with_its_key_only_and_is_not_to_be_read() {
    for compression in [None, Some(Algorithm::Lz4)] {
        let world = World::new(31, WorldOptions::default());
        let (old, new) = (keys(&['a']), keys(&['b', 'a']));
        write(&world, Some(&old), compression, 100);
        for path in segments(&world) {
            let bytes = world.disk("n1").read(&path).unwrap();
            assert!(!bytes.windows(16).any(|w| w.iter().all(|b| *b == w[0] && *b != 0)), "{path}");
        }
        assert_eq!(replay(&world, Some(&old)).unwrap(), expected(100), "{compression:?}");
        for other in [None, Some(&keys(&['b']))] {
            let error = replay(&world, other).unwrap_err();
            assert!(error.to_string().contains("commitlog_encryption_key_file"), "{error}");
        }
        // Another key is written with from now on, and none after that.
        write(&world, Some(&new), compression, 20);
        write(&world, None, compression, 30);
        let all = [expected(100), expected(20), expected(30)].concat();
        assert_eq!(replay(&world, Some(&new)).unwrap(), all);
    }
}

#[test]
fn a_block_that_somebody_else_wrote_refuses_the_start_though_its_checksum_is_right() {
    let world = World::new(32, WorldOptions::default());
    let own = keys(&['a']);
    write(&world, Some(&own), None, 3);
    let path = segments(&world).remove(0);
    let whole = world.disk("n1").read(&path).unwrap();
    let mut forged = 0;
    // The last block, which no marker attests: damage there is the tail of a crash, forgery is not.
    let last = whole.windows(4).rposition(|w| w == crate::blocks::BLOCK_MAGIC).unwrap();
    for at in last + 24..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        world.disk("n1").write(&path, &bytes);
        assert_eq!(replay(&world, Some(&own)).unwrap(), expected(3), "damage at {at}");
        let mut crc = codec::checksum::Crc32::new();
        let id = SegmentId::from_file_name(path.rsplit('/').next().unwrap()).unwrap();
        crc.update(&id.0.to_le_bytes());
        crc.update(&(last as u64).to_le_bytes());
        crc.update(&bytes[last..last + 20]);
        crc.update(&bytes[last + 24..]);
        bytes[last + 20..last + 24].copy_from_slice(&crc.value().to_le_bytes());
        world.disk("n1").write(&path, &bytes);
        assert!(matches!(replay(&world, Some(&own)), Err(LogError::Sealed { .. })), "{at}");
        forged += 1;
    }
    assert!(forged > 40, "{forged}");
}

/// A descriptor-free segment of version 3 with one mutation, `ab`, and the key `aa…`: bytes that every
/// later build must read.
#[test]
fn the_golden_file_of_version_3_is_read() {
    let golden = from_hex(include_str!("../golden_v3.hex"));
    let id = SegmentHeader::decode(&golden).unwrap().id;
    let mut found = Vec::new();
    let scan = crate::scan::scan_bytes(id, &golden, usize::MAX, Some(&keys(&['a'])), |record| {
        if let (Some(_), Record::Mutation(bytes)) = (record.header, record.record) {
            found.push(bytes.to_vec());
        }
        Ok::<(), std::convert::Infallible>(())
    })
    .unwrap();
    assert_eq!((found, scan.sealed), (vec![b"ab".to_vec()], None));
    assert_eq!(scan.valid_place, golden.len() as u64);
    let built = golden_v3();
    assert_eq!(built, golden, "{}", built.iter().map(|b| format!("{b:02x}")).collect::<String>());
}

fn golden_v3() -> Vec<u8> {
    let header = SegmentHeader { sealed: true, ..header(None) };
    let mut file = Vec::new();
    header.encode(&mut file);
    let offset = file.len() as u64;
    let mut record = Vec::new();
    format::encode_mutation(&mut record, LogPosition { segment: header.id, offset }, b"ab");
    let mut packer = crate::blocks::Packer::new(None, Some(keys(&['a']))).unwrap();
    let mut block = rt::Buf::new();
    packer.pack(
        crate::blocks::BlockPlace { segment: header.id, offset },
        offset,
        &record,
        |nonce| nonce.fill(7),
        &mut block,
    );
    file.extend_from_slice(&block);
    file
}

#[test]
fn damaged_encrypted_segments_are_walked_alike_in_pieces_and_as_a_whole() {
    let golden = from_hex(include_str!("../golden_v3.hex"));
    let id = SegmentHeader::decode(&golden).unwrap().id;
    let keys = keys(&['a']);
    for at in 0..golden.len() {
        let mut bytes = golden.clone();
        bytes[at] ^= 1;
        let whole = crate::walk_segment(id, &bytes, usize::MAX, Some(&keys));
        assert_eq!(whole.0, 0, "byte {at} was not missed");
        assert_eq!(crate::walk_segment(id, &bytes, 11, Some(&keys)), whole, "byte {at}");
    }
}
