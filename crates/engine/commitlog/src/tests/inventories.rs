//! Segments that are deleted, emptied or cut while the node is down.

use super::*;

fn inventories(world: &World) -> Vec<String> {
    let all = world.disk("n1").list();
    all.into_iter().filter(|p| p.contains(INVENTORIES) && !p.ends_with(".tmp")).collect()
}

/// Like [`write_life`], with an end.
fn closed_life(world: &World, sync: SyncMode, count: u8) {
    life(world, move |rt| async move {
        let log = CommitLog::open(&rt, options(&rt, sync)).await.unwrap();
        log.begin().await.unwrap();
        let ticket = TableTicket::new(&table());
        for i in 0..count {
            log.append(&ticket, &[i; 100]).unwrap();
            log.commit().await.unwrap();
        }
        log.close().await.unwrap();
    });
}

#[test]
fn a_segment_that_was_deleted_emptied_or_cut_refuses_the_start_by_name() {
    for sync in [PERIODIC, SyncMode::Batch] {
        let world = World::new(31, WorldOptions::default());
        closed_life(&world, sync, 200);
        let all = segments(&world);
        assert!(all.len() > 4 && inventories(&world).len() == 1);
        for path in &all {
            let whole = world.disk("n1").read(path).unwrap();
            // The last marker of a log is not synced: it is not missed.
            for length in [None, Some(0), Some(64), Some(whole.len() / 2), Some(whole.len() - 60)] {
                match length {
                    None => world.disk("n1").remove(path),
                    Some(length) => world.disk("n1").write(path, &whole[..length]),
                }
                match replay_life(&world) {
                    Err(LogError::Lost { file, expected, found, inventory, .. }) => {
                        assert!(path.ends_with(&file) && inventory.contains(INVENTORIES), "{file}");
                        assert_eq!(found, length.map(|length| length as u64));
                        assert!(expected <= whole.len() as u64);
                    }
                    Err(error) => panic!("{path} {length:?}: {error}"),
                    Ok(found) => panic!("{path} {length:?}: {} records", found.len()),
                }
                world.disk("n1").write(path, &whole);
            }
        }
        assert_eq!(replay_life(&world).unwrap(), expected(200));
        // The remedy of the error.
        world.disk("n1").remove(&all[0]);
        remove_inventories(&world);
        let found = replay_life(&world).unwrap();
        assert!(found.len() < 200 && found.len() > 100, "{}", found.len());
    }
}

/// Whatever a crash leaves is no reason to refuse, and nothing is listed that was released.
/// INV-log-6.
#[test]
fn no_crash_makes_an_inventory_name_what_is_not_there() {
    for step in 0..60_u64 {
        let world = World::new(40 + step, WorldOptions::default());
        let spec = NodeSpec { name: "n1".into(), shards: 1, work_dir: "/n1".into() };
        let node = world.start_node(
            spec,
            Arc::new(move |rt| {
                Box::pin(async move {
                    let log = CommitLog::open(&rt, options(&rt, SyncMode::Batch)).await.unwrap();
                    log.begin().await.unwrap();
                    let ticket = TableTicket::new(&table());
                    for i in 0..u8::MAX {
                        let at = log.append(&ticket, &[i; 100]).unwrap();
                        log.commit().await.unwrap();
                        if i % 60 == 59 {
                            log.release_below(at).await.unwrap();
                        }
                    }
                    rt.sleep(Duration::from_secs(600)).await;
                })
            }),
        );
        world.run_for(Duration::from_micros(step * 1_511));
        world.power_cut(&node);
        let found = replay_life(&world).unwrap_or_else(|error| panic!("step {step}: {error}"));
        assert!(found.len() <= usize::from(u8::MAX), "step {step}");
    }
}

#[test]
fn a_log_that_was_released_leaves_no_inventory_and_a_damaged_one_is_named() {
    let world = World::new(33, WorldOptions::default());
    closed_life(&world, PERIODIC, 100);
    let path = inventories(&world).remove(0);
    world.disk("n1").flip_bit(&path, 8 * 30);
    let named: Arc<Mutex<Vec<String>>> = Arc::default();
    let slot = named.clone();
    life(&world, move |rt| {
        let slot = slot.clone();
        async move {
            let log = CommitLog::open(&rt, options(&rt, PERIODIC)).await.unwrap();
            let mut visit = |_: &SegmentHeader, _: Record<'_>| Ok(());
            let summary = log.replay(&mut visit).await.unwrap();
            *slot.lock().unwrap() = summary.damaged_inventories;
            assert!(log.release_old().await.unwrap());
            let ticket = TableTicket::new(&table());
            log.append(&ticket, &[1; 100]).unwrap();
            log.sync().await.unwrap();
            log.release_all().await.unwrap();
        }
    });
    let named = named.lock().unwrap();
    assert!(named.len() == 1 && path.ends_with(&named[0]), "{named:?} {path}");
    assert!(inventories(&world).is_empty() && segments(&world).is_empty());
}
