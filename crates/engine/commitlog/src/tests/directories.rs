//! A directory of the log that is not that of the last run.

use super::*;
use crate::LogDirectory;
use crate::directory::{DirectoryNote, MARK};

const NEVER: SyncMode = SyncMode::Periodic { period: Duration::from_secs(3600) };

/// How a life ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Killed,
    Drained,
}

/// Starts as a node does. An error: the start is refused.
async fn start(
    rt: &Rt,
    host: u128,
    accept_loss: Option<u64>,
) -> Result<(CommitLog, Vec<Vec<u8>>, Vec<DirectoryNote>), LogError> {
    let (fs, host) = (rt.fs(), HostId(Uuid::from_u128(host)));
    let place = LogDirectory { fs: &fs, directory: "commitlog", inventories: INVENTORIES, host };
    let notes = place.check(accept_loss).await?;
    let log = CommitLog::open(rt, LogOptions { accept_loss, ..options(rt, NEVER) }).await?;
    let found = replayed(&log).await?;
    place.claim(log.options().run).await?;
    log.begin().await?;
    Ok((log, found, notes))
}

/// Starts, writes `count` mutations, and ends.
fn run_life(world: &World, count: u8, end: End) {
    life(world, move |rt| async move {
        let (log, _, _) = start(&rt, 9, None).await.unwrap();
        let ticket = TableTicket::new(&table());
        for i in 0..count {
            log.append(&ticket, &[i; 100]).unwrap();
            log.commit().await.unwrap();
        }
        if end == End::Drained {
            assert!(log.release_old().await.unwrap());
            log.release_all().await.unwrap();
        }
    });
}

type Outcome = Result<(usize, Vec<DirectoryNote>), LogError>;

fn outcome_of_start(world: &World, host: u128, accept_loss: Option<u64>) -> Outcome {
    let out: Arc<Mutex<Option<Outcome>>> = Arc::default();
    let slot = out.clone();
    life(world, move |rt| {
        let slot = slot.clone();
        async move {
            let started = start(&rt, host, accept_loss).await;
            let started = started.map(|(_, found, notes)| (found.len(), notes));
            *slot.lock().unwrap() = Some(started);
        }
    });
    let result = out.lock().unwrap().take();
    result.unwrap()
}

fn files_of(world: &World, part: &str) -> Vec<(String, Vec<u8>)> {
    let disk = world.disk("n1");
    let paths = disk.list().into_iter().filter(|path| path.contains(part));
    paths.filter_map(|path| Some((path.clone(), disk.read(&path)?))).collect()
}

fn replace(world: &World, part: &str, files: &[(String, Vec<u8>)]) {
    let disk = world.disk("n1");
    files_of(world, part).iter().for_each(|(path, _)| disk.remove(path));
    files.iter().for_each(|(path, bytes)| disk.write(path, bytes));
}

fn refusal(outcome: Outcome) -> (String, u64) {
    match outcome {
        Err(error @ LogError::Directory { accept, .. }) => (error.to_string(), accept),
        other => panic!("{other:?}"),
    }
}

const LOG: &str = "/commitlog/helenus-";
const LISTS: &str = "/metadata/commitlog/";

/// Nothing was synced, so no list names a segment: the mark alone shows the loss. INV-log-7.
#[test]
fn an_emptied_replaced_or_older_directory_refuses_the_start_and_the_right_one_does_not() {
    let world = World::new(70, WorldOptions::default());
    run_life(&world, 5, End::Killed);
    let older = files_of(&world, LOG);
    run_life(&world, 7, End::Killed);
    let (newer, lists) = (files_of(&world, LOG), files_of(&world, LISTS));
    let mark = newer.iter().find(|(path, _)| path.ends_with(MARK)).unwrap().clone();
    let damaged = {
        let (path, mut bytes) = mark.clone();
        bytes[40] ^= 1;
        (path, bytes)
    };
    let without_mark: Vec<_> = newer.iter().filter(|(path, _)| *path != mark.0).cloned().collect();
    let mut with_damaged = without_mark.clone();
    with_damaged.push(damaged);
    for (files, expected) in [
        (Vec::new(), ["is empty", "does not exist"]),
        (without_mark, ["has no file commitlog/helenus-log-directory"; 2]),
        (older, ["is an older copy"; 2]),
        (with_damaged, ["has a damaged file commitlog/helenus-log-directory"; 2]),
    ] {
        replace(&world, LOG, &files);
        let (error, accept) = refusal(outcome_of_start(&world, 9, None));
        assert!(expected.iter().any(|part| error.contains(part)), "{error}");
        assert!(
            error.contains(&format!("commitlog_accept_loss: {accept},").replace(',', "")),
            "{error}"
        );
        // A refused start has changed nothing, and another number accepts nothing.
        assert_eq!(files_of(&world, LISTS), lists);
        refusal(outcome_of_start(&world, 9, Some(accept - 1)));
        let (_, notes) = outcome_of_start(&world, 9, Some(accept)).unwrap();
        assert!(matches!(notes.as_slice(), [DirectoryNote::Accepted(_)]), "{notes:?}");
        // An accepted loss is not reported again, and the same number accepts no later loss.
        outcome_of_start(&world, 9, None).unwrap();
        replace(&world, LOG, &[]);
        refusal(outcome_of_start(&world, 9, Some(accept)));
        replace(&world, LOG, &newer);
        replace(&world, LISTS, &lists);
    }
    assert_eq!(outcome_of_start(&world, 9, None).unwrap(), (12, Vec::new()));
}

/// A flush of replayed rows may append before the start is accepted, and the node may crash then. INV-log-7.
#[test]
fn an_append_before_the_claim_writes_no_list() {
    let world = World::new(74, WorldOptions::default());
    run_life(&world, 5, End::Killed);
    life(&world, |rt| async move {
        let log = CommitLog::open(&rt, options(&rt, SyncMode::Batch)).await.unwrap();
        replayed(&log).await.unwrap();
        log.append(&TableTicket::new(&table()), &[5; 100]).unwrap();
        log.close().await.unwrap();
    });
    assert_eq!(outcome_of_start(&world, 9, None).unwrap(), (6, Vec::new()));
}

/// The number of the last run is lost and the clock was set back.
#[test]
fn a_claim_does_not_lower_the_mark() {
    let world = World::new(75, WorldOptions::default());
    run_life(&world, 5, End::Killed);
    let mark_of = |world: &World| {
        let (_, bytes) = files_of(world, MARK).remove(0);
        let body = String::from_utf8(bytes).unwrap();
        body.lines().find_map(|l| l.strip_prefix("run ")).unwrap().parse::<u64>().unwrap()
    };
    let marked = mark_of(&world);
    let claim = |world: &World| {
        life(world, |rt| async move {
            let (fs, host) = (rt.fs(), HostId(Uuid::from_u128(9)));
            let directory = "commitlog";
            let log = LogDirectory { fs: &fs, directory, inventories: INVENTORIES, host };
            log.claim(1).await.unwrap();
        });
    };
    claim(&world);
    assert_eq!(mark_of(&world), marked);
    // The list of a run counts where the mark is lost, which the operator accepted.
    let path = files_of(&world, MARK).remove(0).0;
    world.disk("n1").remove(&path);
    claim(&world);
    assert_eq!(mark_of(&world), marked);
    assert_eq!(outcome_of_start(&world, 9, None).unwrap(), (5, Vec::new()));
}

#[test]
fn after_a_drain_any_directory_will_do() {
    let world = World::new(71, WorldOptions::default());
    run_life(&world, 5, End::Killed);
    run_life(&world, 5, End::Drained);
    assert!(segments(&world).is_empty());
    // Only the path of the directory is left.
    assert_eq!(files_of(&world, LISTS).len(), 1);
    replace(&world, LOG, &[]);
    assert_eq!(outcome_of_start(&world, 9, None).unwrap(), (0, Vec::new()));
}

#[test]
fn segments_of_another_node_are_refused_and_its_empty_directory_is_taken() {
    let world = World::new(72, WorldOptions::default());
    run_life(&world, 5, End::Killed);
    let log = files_of(&world, LOG);
    // A node that starts first.
    replace(&world, LISTS, &[]);
    match outcome_of_start(&world, 8, Some(0)) {
        Err(LogError::OtherNode { host, .. }) => assert!(host.ends_with("09"), "{host}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(files_of(&world, LOG), log);
    let mark: Vec<_> = log.iter().filter(|(path, _)| path.ends_with(MARK)).cloned().collect();
    replace(&world, LOG, &mark);
    assert_eq!(outcome_of_start(&world, 8, None).unwrap(), (0, Vec::new()));
    // The other one finds a directory that is not its own.
    assert!(outcome_of_start(&world, 9, None).is_err());
}

/// A directory of a release that had neither mark nor lists in the metadata.
#[test]
fn a_directory_of_an_earlier_release_is_replayed_and_its_lists_count() {
    let world = World::new(73, WorldOptions::default());
    write_life(&world, SyncMode::Batch, 5);
    let disk = world.disk("n1");
    let lists = files_of(&world, LISTS);
    let [(path, bytes)] = lists.as_slice() else { panic!("{lists:?}") };
    let text = String::from_utf8(bytes.clone()).unwrap();
    let lines: String = text
        .lines()
        .filter(|l| l.starts_with("segment "))
        .fold("helenus-segments 1\n".to_owned(), |all, line| all + line + "\n");
    let name = path.rsplit('/').next().unwrap();
    let former = format!("/n1/commitlog/helenus-segments-{name}");
    disk.remove(path);
    disk.write(&former, &codec::seal_text(lines));
    let segment = segments(&world).remove(0);
    let content = disk.read(&segment).unwrap();
    disk.remove(&segment);
    match outcome_of_start(&world, 9, None) {
        Err(LogError::Lost { inventory, .. }) => assert!(former.ends_with(&inventory)),
        other => panic!("{other:?}"),
    }
    disk.write(&segment, &content);
    assert_eq!(outcome_of_start(&world, 9, None).unwrap().0, 5);
}

/// Power is cut at any moment of two lives: no start is refused. INV-log-7.
#[test]
fn no_crash_of_a_start_makes_the_next_one_miss_the_log() {
    for step in 0..80_u64 {
        let world = World::new(200 + step, WorldOptions::default());
        for _ in 0..2 {
            let spec = NodeSpec { name: "n1".into(), shards: 1, work_dir: "/n1".into() };
            let node = world.start_node(
                spec,
                Arc::new(move |rt| {
                    Box::pin(async move {
                        let (log, _, _) = start(&rt, 9, None).await.unwrap();
                        let ticket = TableTicket::new(&table());
                        for i in 0..60 {
                            log.append(&ticket, &[i; 100]).unwrap();
                            log.sync().await.unwrap();
                        }
                        log.release_old().await.unwrap();
                        log.release_all().await.unwrap();
                        rt.sleep(Duration::from_secs(600)).await;
                    })
                }),
            );
            world.run_for(Duration::from_micros(step * 701));
            world.power_cut(&node);
        }
        outcome_of_start(&world, 9, None).unwrap_or_else(|error| panic!("step {step}: {error}"));
    }
}
