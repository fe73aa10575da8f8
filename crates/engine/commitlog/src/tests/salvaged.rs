//! Damaged segments of which the operator wants what is intact.

use codec::Algorithm;

use super::*;

fn write(world: &World, compression: Option<Algorithm>, count: u8) {
    life(world, move |rt| async move {
        let options = LogOptions { compression, ..options(&rt, SyncMode::Batch) };
        let log = CommitLog::open(&rt, options).await.unwrap();
        log.begin().await.unwrap();
        let ticket = TableTicket::new(&table());
        for i in 0..count {
            log.append(&ticket, &[i; 100]).unwrap();
            log.commit().await.unwrap();
        }
        log.close().await.unwrap();
    });
}

type Salvaged = Result<(Vec<Vec<u8>>, Vec<String>), LogError>;

fn salvage(world: &World, accept_loss: Option<u64>) -> Salvaged {
    let out: Arc<Mutex<Option<Salvaged>>> = Arc::default();
    let slot = out.clone();
    life(world, move |rt| {
        let slot = slot.clone();
        async move {
            let options = LogOptions { accept_loss, ..options(&rt, PERIODIC) };
            let log = CommitLog::open(&rt, options).await.unwrap();
            let mut found = Vec::new();
            let mut visit = |_: &SegmentHeader, record: Record<'_>| {
                if let Record::Mutation(bytes) = record {
                    found.push(bytes.to_vec());
                }
                Ok(())
            };
            let summary = log.replay(&mut visit).await;
            *slot.lock().unwrap() = Some(summary.map(|summary| (found, summary.lost)));
        }
    });
    let result = out.lock().unwrap().take();
    result.unwrap()
}

fn forget_accepted(world: &World) {
    world.disk("n1").remove("/n1/metadata/commitlog/accepted");
}

/// A start that accepts a loss and crashes after its first write, before the old log is released: the next one is not
/// refused, and the file is gone with the old log.
#[test]
fn an_accepted_loss_is_not_refused_again_after_a_crash_of_that_start() {
    let world = World::new(83, WorldOptions::default());
    write(&world, None, 100);
    let all = segments(&world);
    world.disk("n1").remove(&all[1]);
    let Err(LogError::Lost { accept, .. }) = salvage(&world, None) else { panic!() };
    let is_remembered = || world.disk("n1").list().iter().any(|p| p.ends_with("/accepted"));
    life(&world, move |rt| async move {
        let options = LogOptions { accept_loss: Some(accept), ..options(&rt, SyncMode::Batch) };
        let log = CommitLog::open(&rt, options).await.unwrap();
        replayed(&log).await.unwrap();
        log.begin().await.unwrap();
        log.append(&TableTicket::new(&table()), &[200; 100]).unwrap();
        log.commit().await.unwrap();
    });
    assert!(is_remembered());
    let (found, lost) = salvage(&world, None).unwrap();
    assert!(found.last() == Some(&vec![200; 100]) && lost.len() == 1, "{lost:?}");
    life(&world, move |rt| async move {
        let log = CommitLog::open(&rt, options(&rt, SyncMode::Batch)).await.unwrap();
        replayed(&log).await.unwrap();
        log.begin().await.unwrap();
        assert!(log.release_old().await.unwrap());
    });
    assert!(!is_remembered());
}

/// The number that a refusal asks for replays everything but the damaged record or block, and names the
/// damage; another number does not.
#[test]
fn what_follows_a_damaged_record_is_kept_where_its_loss_is_accepted() {
    for compression in [None, Some(Algorithm::Lz4)] {
        let world = World::new(80, WorldOptions::default());
        write(&world, compression, 20);
        let all = segments(&world);
        assert_eq!(all.len(), 1);
        let whole = world.disk("n1").read(&all[0]).unwrap();
        let mut refused = 0;
        for at in (format::HEADER_BYTES..whole.len()).step_by(7) {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x40;
            world.disk("n1").write(&all[0], &bytes);
            let accept = match salvage(&world, None) {
                Err(LogError::Corrupt { accept: Some(accept), .. }) => accept,
                Ok((found, _)) => {
                    assert_eq!(found, expected(20), "byte {at}");
                    continue;
                }
                Err(error) => panic!("byte {at}: {error}"),
            };
            refused += 1;
            assert!(salvage(&world, Some(accept + 1)).is_err());
            let (found, lost) = salvage(&world, Some(accept)).unwrap();
            // A crash before the log was released: it is not refused again.
            assert_eq!(salvage(&world, None).unwrap(), (found.clone(), lost.clone()), "byte {at}");
            forget_accepted(&world);
            assert_eq!(lost.len(), 1, "byte {at}: {lost:?}");
            assert!(lost[0].contains(".log: the records "), "{lost:?}");
            assert!(found.len() >= 19, "byte {at}: {} records", found.len());
            assert!(found.iter().all(|record| expected(20).contains(record)));
        }
        assert!(refused > 20, "{refused}");
    }
}

#[test]
fn a_missing_segment_that_is_accepted_costs_its_own_records_only() {
    let world = World::new(81, WorldOptions::default());
    write(&world, None, 100);
    let all = segments(&world);
    assert!(all.len() > 2);
    world.disk("n1").remove(&all[1]);
    let Err(LogError::Lost { accept, file, .. }) = salvage(&world, None) else { panic!() };
    assert!(all[1].ends_with(&file));
    let (found, lost) = salvage(&world, Some(accept)).unwrap();
    assert_eq!(salvage(&world, None).unwrap().0, found);
    // Another loss is refused, also after that.
    let other = world.disk("n1").read(&all[0]).unwrap();
    world.disk("n1").remove(&all[0]);
    assert!(matches!(salvage(&world, None), Err(LogError::Lost { .. })));
    world.disk("n1").write(&all[0], &other);
    assert!(lost.len() == 1 && lost[0].contains(&file), "{lost:?}");
    assert!(found.len() < 100 && found.len() > 50, "{}", found.len());
    assert!(found.last() == Some(&vec![99; 100]));
}

/// Blocks and records that are checksummed rightly and make no sense do not make the scan loop.
#[test]
fn a_salvage_ends_whatever_it_reads() {
    let mut corpus = vec![from_hex(GOLDEN), from_hex(include_str!("../golden_v2.hex"))];
    corpus.push(from_hex(include_str!("../golden_v3.hex")));
    for compression in [None, Some(Algorithm::Zstd)] {
        let world = World::new(82, WorldOptions::default());
        write(&world, compression, 6);
        corpus.push(world.disk("n1").read(&segments(&world)[0]).unwrap());
    }
    for bytes in corpus {
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 0x21;
            fuzz::fuzz_salvage(&bad);
            fuzz::fuzz_salvage(&bytes[..at]);
            fuzz::fuzz_directory(&bad);
            fuzz::fuzz_inventory(&bad);
        }
    }
}
