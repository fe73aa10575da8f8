//! Ingest: what one store streams another one has, exactly; nothing is seen before the end; crashes
//! leave nothing half.

use data::command::{Partitions, RingBound};
use data::replica_page::{PageEnd, ReplicaPage};
use rt::sim::CrashKind;
use stdx::IoErrorKind;

use crate::tests::everywhere::{Barrier, Crash, Rows, crash_everywhere, rows_after_restart};
use crate::tests::read::replica_pages::{KEEP, commands, fill, mutation, open_at, page_of};
use crate::tests::*;
use crate::{Ingest, StreamRead};

pub(crate) fn whole(bytes: usize) -> StreamRead {
    StreamRead { table: TABLE, ranges: vec![KeyRange::all()], behind: None, slice: None, bytes }
}

/// Where the stream continues after a page; `None` at its end.
fn behind(stream: &StreamRead, page: &[u8]) -> Option<StreamRead> {
    let (token, key, after, behind) = match ReplicaPage::open(page).unwrap().end() {
        PageEnd::Exhausted => return None,
        PageEnd::After { token, key } => (token, key.to_vec(), true, None),
        PageEnd::Inside { token, key, clustering } => {
            (token, key.to_vec(), false, Some(clustering.to_vec()))
        }
    };
    let start = RingBound::Key { token, key, after };
    let range = KeyRange { start, end: stream.ranges[0].end.clone() };
    Some(StreamRead { ranges: vec![range], behind, ..stream.clone() })
}

/// Copies all of one store; `between` runs after each page.
async fn copy(from: &Store, to: &mut Ingest, bytes: usize, mut between: impl AsyncFnMut(usize)) {
    let (mut at, mut n) = (Some(whole(bytes)), 0);
    while let Some(stream) = at {
        let read = from.reader().read_stream(stream.clone()).await.unwrap();
        to.page(&read.page).await.unwrap();
        at = behind(&stream, &read.page);
        between(n).await;
        n += 1;
    }
}

pub(crate) async fn assert_equal(a: &Store, b: &Store) {
    for command in commands() {
        let one = page_of(a, &command, Default::default(), KEEP).await;
        let other = page_of(b, &command, Default::default(), KEEP).await;
        assert_eq!(one, other, "{command:?}");
    }
}

/// INV-ingest-1.
#[test]
fn what_was_streamed_is_there_exactly() {
    for seed in 0..20 {
        run(seed, |rt| async move {
            let from = open_at(&rt, "a", schema()).await;
            let mutations: Vec<Vec<u8>> = (0..70).map(|_| mutation(rt.random_u64())).collect();
            fill(&from, &mutations, rt.random_u64()).await;
            for (n, bytes) in [1, 50, 200, 1 << 20].into_iter().enumerate() {
                let to = open_at(&rt, &format!("b{n}"), schema()).await;
                let mut ingest = to.transfer().ingest(TABLE).await.unwrap();
                copy(&from, &mut ingest, bytes, async |_| ()).await;
                assert_eq!(read_all(&to).await, vec![], "seen before the end");
                let report = ingest.finish().await.unwrap();
                assert_eq!((report.files, to.table_stats(TABLE).sstables), (1, 1));
                assert_eq!(to.table_stats(TABLE).memtable_mutations, 0);
                assert_equal(&from, &to).await;
            }
        });
    }
}

/// A pending replica: writes that arrive during the stream are applied to both.
#[test]
fn a_partition_that_changes_between_two_pages_is_whole_in_the_end() {
    let mut rolled = 0;
    for seed in 50..80 {
        let files: Arc<Mutex<u64>> = Arc::default();
        let count = files.clone();
        run(seed, move |rt| {
            let count = count.clone();
            async move {
                let (from, to) =
                    (open_at(&rt, "a", schema()).await, open_at(&rt, "b", schema()).await);
                let mutations: Vec<Vec<u8>> = (0..60).map(|_| mutation(rt.random_u64())).collect();
                fill(&from, &mutations, rt.random_u64()).await;
                let mut ingest = to.transfer().ingest(TABLE).await.unwrap();
                copy(&from, &mut ingest, 60, async |n| {
                    if n % 2 == 0 {
                        let mutation = mutation(rt.random_u64());
                        write(&from, &mutation).await.unwrap();
                        write(&to, &mutation).await.unwrap();
                    }
                })
                .await;
                *count.lock().unwrap() = ingest.finish().await.unwrap().files;
                assert_equal(&from, &to).await;
            }
        });
        rolled += u64::from(*files.lock().unwrap() > 1);
    }
    assert!(rolled > 0, "no partition's beginning changed");
}

#[test]
fn an_ingest_that_is_given_up_leaves_nothing() {
    run(100, |rt| async move {
        let (from, to) = (open_at(&rt, "a", schema()).await, open_at(&rt, "b", schema()).await);
        write(&from, &insert(1, 1, "a", 100)).await.unwrap();
        let mut ingest = to.transfer().ingest(TABLE).await.unwrap();
        copy(&from, &mut ingest, 1 << 20, async |_| ()).await;
        drop(ingest);
        // A purge must not resurrect data of files that may lie there.
        assert_eq!(to.rooms.tables.table(TABLE).unwrap().orphans.borrow().len(), 1);
        rt.sleep(Duration::from_secs(3)).await;
        assert!(to.rooms.tables.table(TABLE).unwrap().orphans.borrow().is_empty());
        let directory = to
            .rooms
            .files
            .directories
            .directory_of(&to.rooms.tables.table(TABLE).unwrap().version().table);
        let left = rt.fs().read_dir(&directory).await.unwrap();
        assert!(left.is_empty(), "{:?}", left.iter().map(|e| &e.name).collect::<Vec<_>>());
    });
}

/// INV-ingest-2.
#[test]
fn a_truncation_during_an_ingest_wins() {
    run(101, |rt| async move {
        let (from, to) = (open_at(&rt, "a", schema()).await, open_at(&rt, "b", schema()).await);
        write(&from, &insert(1, 1, "a", 100)).await.unwrap();
        let mut ingest = to.transfer().ingest(TABLE).await.unwrap();
        copy(&from, &mut ingest, 1 << 20, async |_| ()).await;
        to.lifecycle().truncate(TABLE, TimestampMicros(5)).await.unwrap();
        let refused = ingest.finish().await;
        assert_eq!(refused, Err(StoreError::Invalid("the table was emptied meanwhile".to_owned())));
        rt.sleep(Duration::from_secs(3)).await;
        assert_eq!(read_all(&to).await, vec![]);
        to.stop().await;
        let again = open_at(&rt, "b", schema()).await;
        assert_eq!(read_all(&again).await, vec![]);
    });
}

#[test]
fn what_is_no_page_of_this_shard_in_order_is_refused() {
    run(102, |rt| async move {
        let from = open_at(&rt, "a", schema()).await;
        for pk in 0..3 {
            write(&from, &insert(pk, 1, "a", 100)).await.unwrap();
        }
        let page = from.reader().read_stream(whole(1 << 20)).await.unwrap().page;
        let to = open_at(&rt, "b", schema()).await;
        let words = async |to: &Store, pages: &[&[u8]]| {
            let mut ingest = to.transfer().ingest(TABLE).await.unwrap();
            for (n, page) in pages.iter().enumerate() {
                match ingest.page(page).await {
                    Ok(_) => {}
                    Err(error) => return format!("{n}: {error}"),
                }
            }
            String::new()
        };
        assert_eq!(words(&to, &[&page]).await, "");
        assert_eq!(words(&to, &[&page, &page]).await, "1: partitions are out of order");
        let cut = &page[..page.len() - 1];
        assert!(words(&to, &[cut]).await.contains("malformed"));
        let mut options = options(&rt);
        options.data_directories = vec!["c/data".into()];
        options.commitlog_directory = "c/commitlog".into();
        options.shard_map = ShardMap::ByTokenHash { shards: u16::MAX };
        let (other, _) = Store::open(rt.clone(), options, schema()).await.unwrap();
        assert_eq!(words(&other, &[&page]).await, "0: a partition of another shard");
        assert_eq!(
            to.transfer().ingest(TableId(Uuid::from_u128(9))).await.err().map(|e| e.to_string()),
            Some(StoreError::UnknownTable(TableId(Uuid::from_u128(9))).to_string())
        );
    });
}

#[test]
fn many_partitions_make_several_files() {
    run(103, |rt| async move {
        let (from, to) = (open_at(&rt, "a", schema()).await, open_at(&rt, "b", schema()).await);
        for pk in 0..10_000 {
            let mutation = insert(pk, 1, "a", 100);
            from.apply(&MutationRef::open(&mutation).unwrap(), false).unwrap();
        }
        let mut ingest = to.transfer().ingest(TABLE).await.unwrap();
        copy(&from, &mut ingest, 100_000, async |_| ()).await;
        let report = ingest.finish().await.unwrap();
        assert_eq!((report.files, report.partitions), (2, 10_000));
        assert_eq!(read_all(&to).await, read_all(&from).await);
    });
}

/// Ranges and slices: each partition is read from its requested source, and only from there.
#[test]
fn a_stream_has_the_partitions_of_its_ranges_and_its_slice() {
    run(104, |rt| async move {
        let from = open_at(&rt, "a", schema()).await;
        for pk in 0..200 {
            write(&from, &insert(pk, 1, "a", 100)).await.unwrap();
            if pk == 100 {
                from.flush(None).await.unwrap();
            }
        }
        let mut tokens: Vec<(Token, i32)> =
            (0..200).map(|pk| (codec::token_of(&key(pk)), pk)).collect();
        tokens.sort_unstable();
        let bound = |n: usize| RingBound::Token { token: tokens[n].0, after: true };
        let ranges = [(0, 50), (50, 60), (100, 150)];
        let filter = sstable::TokenFilter {
            map: ShardMap::ByTokenHash { shards: 3 },
            table: TABLE,
            shard: ShardId(1),
        };
        for slice in [None, Some(filter)] {
            let expected: Vec<i32> = tokens
                .iter()
                .enumerate()
                .filter(|(n, _)| ranges.iter().any(|(from, to)| from < n && n <= to))
                .filter(|(_, (t, _))| slice.is_none() || shard_of(*t, 3) == ShardId(1))
                .map(|(_, (_, pk))| *pk)
                .collect();
            let ranges = ranges.map(|(from, to)| KeyRange { start: bound(from), end: bound(to) });
            let stream = StreamRead { ranges: ranges.to_vec(), slice, ..whole(1 << 20) };
            let page = from.reader().read_stream(stream).await.unwrap().page;
            let found = crate::tests::read::replica_pages::shown(&page, false, true);
            assert_eq!(found.iter().map(|f| f.0).collect::<Vec<_>>(), expected);
        }
    });
}

/// The n-th file call fails, for every n: the ingest fails and leaves nothing, or all files exist.
#[test]
fn an_ingest_on_a_failing_disk_is_whole_or_gone() {
    let (mut n, mut failed) = (1, 0);
    loop {
        let world = world(60_000 + n);
        let page: Arc<Mutex<Vec<u8>>> = Arc::default();
        let out = page.clone();
        run_in(&world, move |rt| {
            let out = out.clone();
            async move {
                let from = open_at(&rt, "a", schema()).await;
                for pk in 0..6 {
                    write(&from, &insert(pk, 1, "a", 100)).await.unwrap();
                }
                *out.lock().unwrap() =
                    from.reader().read_stream(whole(1 << 20)).await.unwrap().page;
            }
        });
        let disk = world.disk("n1");
        disk.fail_nth(n, stdx::IoErrorKind::Device);
        let ended: Arc<Mutex<Option<bool>>> = Arc::default();
        let said = ended.clone();
        run_in(&world, move |rt| {
            let (page, said) = (page.clone(), said.clone());
            async move {
                let opened = Store::open(rt.clone(), options(&rt), schema()).await;
                let Ok((to, _)) = opened else { return };
                let page = page.lock().unwrap().clone();
                let ingested = async {
                    let mut ingest = to.transfer().ingest(TABLE).await?;
                    ingest.page(&page).await?;
                    ingest.finish().await
                };
                let ingested = ingested.await;
                *said.lock().unwrap() = Some(ingested.is_ok());
                rt.sleep(Duration::from_secs(3)).await;
                let mut found = Collect::default();
                let all = read_of(Partitions::Range(KeyRange::all()));
                if to.read(&all, &mut found).await.is_ok() {
                    let expected = if ingested.is_ok() { 6 } else { 0 };
                    assert_eq!(found.rows.len(), expected, "call {n}: {ingested:?}");
                }
                assert!(
                    to.rooms.tables.table(TABLE).unwrap().orphans.borrow().is_empty(),
                    "call {n}"
                );
                to.stop().await;
            }
        });
        let came_through = disk.pending_failures() > 0;
        disk.clear_faults();
        let ended = *ended.lock().unwrap();
        let rows = rows_after_restart(&world, 1, &schema(), "after a failure");
        assert_eq!(rows.len(), if ended == Some(true) { 6 } else { 0 }, "call {n}, restarted");
        failed += u64::from(ended == Some(false));
        if came_through {
            break;
        }
        n += 1;
    }
    assert!(failed > 20, "{failed} of {n}");
}

/// Confirmed data stays, wherever the crash happens; unconfirmed data is whole or missing.
/// INV-ingest-3.
#[test]
fn an_ingest_survives_a_crash_whole_or_not_at_all() {
    for kind in [CrashKind::Kill, CrashKind::PowerCut, CrashKind::PowerCutLosingAll] {
        crash_everywhere(
            Crash { name: "ingest", kind, shards: 1, step: 1 },
            |_, _| {},
            |rt, confirmed: Arc<Mutex<bool>>, barrier: Barrier| async move {
                let from = open_at(&rt, "a", schema()).await;
                for pk in 0..6 {
                    write(&from, &insert(pk, 1, "a", 100)).await.unwrap();
                }
                let page = from.reader().read_stream(whole(1 << 20)).await.unwrap().page;
                let to = open(&rt).await;
                barrier.arm(&rt).await;
                let Ok(mut ingest) = to.transfer().ingest(TABLE).await else { return };
                if ingest.page(&page).await.is_ok() && ingest.finish().await.is_ok() {
                    *confirmed.lock().unwrap() = true;
                }
            },
            |world, confirmed, (_, place)| {
                for _ in 0..2 {
                    let rows: Rows = rows_after_restart(world, 1, &schema(), place);
                    let is_confirmed = *confirmed.lock().unwrap();
                    assert!(
                        rows.len() == 6 || (rows.is_empty() && !is_confirmed),
                        "{place}: {rows:?}"
                    );
                }
            },
        );
    }
}

/// Blocks that a page has read after its own end are available to the next page.
#[test]
fn pages_of_a_stream_do_not_read_a_run_of_a_file_again() {
    let world = world(260);
    let (at, seen) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(Vec::new())));
    let (of_node, of_pages) = (at.clone(), seen.clone());
    start(&world, 1, move |rt| {
        let (at, seen) = (of_node.clone(), of_pages.clone());
        async move {
            let store = open(&rt).await;
            for pk in 0..60 {
                write(&store, &insert(pk, 1, &"x".repeat(100), 100)).await.unwrap();
            }
            store.flush(None).await.unwrap();
            let mut stream = Some(whole(500));
            while let Some(wanted) = stream {
                let page = store.reader().read_stream(wanted.clone()).await.map(|read| read.page);
                seen.lock().unwrap().push(page.as_ref().err().map(ToString::to_string));
                let Ok(page) = page else { break };
                // By then it has read the index too.
                if seen.lock().unwrap().len() == 5 && *at.lock().unwrap() == 0 {
                    *at.lock().unwrap() = 1;
                    while *at.lock().unwrap() == 1 {
                        rt.sleep(Duration::from_millis(10)).await;
                    }
                }
                stream = behind(&wanted, &page);
            }
            *at.lock().unwrap() = 3;
        }
    });
    world.run_until(|| *at.lock().unwrap() == 1, Duration::from_secs(60)).unwrap();
    world.disk("n1").set_failing_reads(Some((1, IoErrorKind::Device)));
    *at.lock().unwrap() = 2;
    world.run_until(|| *at.lock().unwrap() == 3, Duration::from_secs(60)).unwrap();
    let seen = seen.lock().unwrap();
    assert!(seen.len() > 10 && seen.iter().all(Option::is_none), "{seen:?}");
}
