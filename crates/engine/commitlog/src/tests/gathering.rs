//! Syncs that gather more waiting tasks.

use super::*;
use rt::Group;
use std::rc::Rc;

/// Where a disk's calls take so long, and so many wait for one sync: for how many microseconds the next
/// one gathers, and how long one takes that has a second to gather.
fn behind(waiting: u8, disk_micros: u64) -> (u128, u128) {
    let world = World::new(8, WorldOptions::default());
    world.disk("n1").set_slow(Some(disk_micros..disk_micros + 1));
    let seen: Arc<Mutex<Vec<u128>>> = Arc::default();
    let out = seen.clone();
    life(&world, move |rt| {
        let out = out.clone();
        async move {
            let log = CommitLog::open(&rt, options(&rt, SyncMode::Batch)).await.unwrap();
            let ticket = Rc::new(TableTicket::new(&table()));
            let gate = rt.gate("waiters");
            for i in 0..waiting {
                let (clock, log, ticket, out) =
                    (rt.clone(), log.clone(), ticket.clone(), out.clone());
                let task = async move {
                    log.append(&ticket, &[i; 10]).unwrap();
                    log.sync().await.unwrap();
                    let left = log.gathers_until().since(clock.now()).as_micros();
                    out.lock().unwrap().push(left);
                };
                gate.spawn(&rt, Group::Statement, "waiter", task).unwrap();
            }
            gate.close().await;
            let began = rt.now();
            log.set_gathers_until(began + Duration::from_secs(1));
            log.append(&ticket, &[9; 10]).unwrap();
            log.sync().await.unwrap();
            out.lock().unwrap().push(rt.now().since(began).as_micros());
        }
    });
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), usize::from(waiting) + 1);
    (seen[0], seen[usize::from(waiting)])
}

#[test]
fn behind_a_slow_sync_that_many_waited_for_the_next_one_gathers_as_long_and_a_millisecond_at_most()
{
    let (left, took) = behind(7, 600);
    assert_eq!(left, 0);
    assert!((1_000_000..1_010_000).contains(&took), "{took}");
    let (left, _) = behind(8, 600);
    assert!((600..=1_000).contains(&left), "{left}");
    let (left, _) = behind(8, 3_000);
    assert!((990..=1_000).contains(&left), "{left}");
    // A fast sync is not delayed, whatever the number of waiters.
    assert_eq!(behind(40, 10).0, 0);
}
