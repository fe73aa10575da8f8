//! Files that are sent unmodified: held at the source as of one moment, verified at the receiver,
//! visible all together or not at all.

use rt::sim::CrashKind;
use sstable::WriterOptions;
use stdx::IoErrorKind;

use crate::tests::everywhere::{Barrier, Crash, Rows, crash_everywhere, rows_after_restart};
use crate::tests::read::replica_pages::{fill, mutation, open_at, open_nb_at, open_version_at};
use crate::tests::transfer::row_ingest::{assert_equal, whole};
use crate::tests::*;
use crate::{AttachedTaken, Component, Held, HeldFile, Ingest, TakenForms, Version};

pub(crate) const VERSIONS: [Version; 4] = WriterOptions::VERSIONS;
pub(crate) const FULL: (Token, Token) = (Token::MIN, Token::MAX);

/// A receiver that takes files of these versions, attached components too.
pub(crate) fn taken(versions: &[Version]) -> TakenForms {
    TakenForms { versions: versions.to_vec(), attached: AttachedTaken::Yes }
}

pub(crate) async fn hold(store: &Store) -> Held {
    store.transfer().hold(TABLE, &[FULL], 0, &taken(&VERSIONS)).await.unwrap().unwrap()
}

/// Gives a file piece by piece; `change` may change the bytes of a component.
pub(crate) async fn give(
    file: &HeldFile,
    to: &mut Ingest,
    change: impl Fn(Component, &mut Vec<u8>),
) -> Result<(), StoreError> {
    to.begin_whole(file.version(), file.components().collect()).await?;
    for (component, length) in file.components() {
        let mut bytes = file.read(component, 0, usize::MAX).await.unwrap().to_vec();
        assert_eq!(bytes.len() as u64, length);
        change(component, &mut bytes);
        // Also of one without bytes: the Rows of files without wide partitions.
        if bytes.is_empty() {
            to.whole_bytes(component, &[]).await?;
        }
        for piece in bytes.chunks(4096) {
            to.whole_bytes(component, piece).await?;
        }
    }
    to.end_whole().await
}

async fn give_all(held: &Held, from: &Store, to: &Store) -> Result<crate::Ingested, StoreError> {
    let mut ingest = to.transfer().ingest(TABLE).await?;
    for file in held.files() {
        give(file, &mut ingest, |_, _| ()).await?;
    }
    let page = from.reader().read_held(held, whole(1 << 20)).await.unwrap().page;
    ingest.page(&page).await?;
    ingest.finish().await
}

#[test]
fn files_come_as_they_are_and_rows_beside_them() {
    for seed in 0..12 {
        run(200 + seed, |rt| async move {
            let (from, to) =
                (open_nb_at(&rt, "a", schema()).await, open_at(&rt, "b", schema()).await);
            let mutations: Vec<Vec<u8>> = (0..70).map(|_| mutation(rt.random_u64())).collect();
            fill(&from, &mutations, rt.random_u64()).await;
            from.flush(None).await.unwrap();
            let held = hold(&from).await;
            assert_eq!(held.files().len() as u64, from.table_stats(TABLE).sstables);
            let ingested = give_all(&held, &from, &to).await.unwrap();
            assert_eq!(ingested.files, held.files().len() as u64);
            assert_eq!(to.table_stats(TABLE).memtable_mutations, 0);
            assert_equal(&from, &to).await;
            to.stop().await;
            let again = open_at(&rt, "b", schema()).await;
            assert_equal(&from, &again).await;
        });
    }
}

/// A deletion and what it hides are purged together at the source, when a copy of the one has gone.
#[test]
fn what_is_held_stays_as_it_was_whatever_is_compacted_meanwhile() {
    run(230, |rt| async move {
        let (from, to) = (open_nb_at(&rt, "a", schema()).await, open_at(&rt, "b", schema()).await);
        for pk in 0..40 {
            write(&from, &insert(pk, 1, "a", 100)).await.unwrap();
            if pk == 20 {
                from.flush(None).await.unwrap();
            }
        }
        let held = hold(&from).await;
        assert_eq!(held.files().len(), 2);
        from.compactor().compact_major(TABLE).await.unwrap();
        write(&from, &insert(99, 1, "later", 100)).await.unwrap();
        give_all(&held, &from, &to).await.unwrap();
        let mut expected = read_all(&from).await;
        expected.retain(|row| row.0 != 99);
        assert_eq!(read_all(&to).await, expected);
    });
}

#[test]
fn only_files_that_lie_in_the_ranges_go_whole() {
    run(231, |rt| async move {
        let from = open_nb_at(&rt, "a", schema()).await;
        let mut tokens: Vec<(Token, i32)> =
            (0..60).map(|pk| (codec::token_of(&key(pk)), pk)).collect();
        tokens.sort_unstable();
        // One file of every third partition, one of the others.
        for part in [0, 1] {
            for (n, (_, pk)) in tokens.iter().enumerate() {
                if usize::from(n % 3 != 0) == part {
                    write(&from, &insert(*pk, 1, "a", 100)).await.unwrap();
                }
            }
            from.flush(None).await.unwrap();
        }
        let own: Vec<(Token, Token)> = tokens
            .iter()
            .enumerate()
            .filter(|(n, _)| n % 3 == 0)
            .map(|(_, (t, _))| (Token(t.0 - 1), *t))
            .collect();
        let held = from.transfer().hold(TABLE, &own, 0, &taken(&VERSIONS)).await.unwrap().unwrap();
        assert_eq!(held.files().len(), 1, "the gaps hold no partition of it");
        assert!(
            from.transfer().hold(TABLE, &own[1..], 0, &taken(&VERSIONS)).await.unwrap().is_none()
        );
        assert!(
            from.transfer().hold(TABLE, &own[..19], 0, &taken(&VERSIONS)).await.unwrap().is_none()
        );
        let mut less = own.clone();
        less.remove(10);
        assert!(
            from.transfer().hold(TABLE, &less, 0, &taken(&VERSIONS)).await.unwrap().is_none(),
            "a partition is in a gap"
        );
        assert!(
            from.transfer()
                .hold(TABLE, &[FULL], u64::MAX, &taken(&VERSIONS))
                .await
                .unwrap()
                .is_none(),
            "too small"
        );
    });
}

/// The receiver assigns a file a name of its own, of the file's version.
#[test]
fn files_of_every_version_come_to_nodes_that_can_write_their_times_anew() {
    for seed in 233..237 {
        run(seed, files_of_every_version);
    }
}

async fn files_of_every_version(rt: Rt) {
    // No automatic compaction: expired cells would become tombstones.
    let class = ("class".to_owned(), "SizeTieredCompactionStrategy".to_owned());
    let compaction = BTreeMap::from([class, ("min_threshold".to_owned(), "30".to_owned())]);
    let of_table =
        TableOptions { compaction, gc_grace_seconds: i32::MAX, ..TableOptions::default() };
    let schema = || schema_of(vec![table(of_table.clone())]);
    for (n, from) in VERSIONS.into_iter().enumerate() {
        let source = open_version_at(&rt, &format!("from-{n}"), from, schema()).await;
        let mutations: Vec<Vec<u8>> = (0..70).map(|_| mutation(rt.random_u64())).collect();
        fill(&source, &mutations, rt.random_u64()).await;
        // A partition with an index of its rows.
        for ck in 0..60 {
            write(&source, &insert(3, ck, &"long".repeat(20), 100)).await.unwrap();
        }
        source.flush(None).await.unwrap();
        for to in VERSIONS {
            let name = format!("{from}-to-{to}");
            let target = open_version_at(&rt, &name, to, schema()).await;
            let takes = target.transfer().whole_versions(TABLE);
            assert_eq!(takes.contains(&from), to.has_uint_times() || !from.has_uint_times());
            let held = source.transfer().hold(TABLE, &[FULL], 0, &taken(&takes)).await.unwrap();
            assert_eq!(held.is_some(), takes.contains(&from), "{name}");
            let Some(held) = held else {
                let all = hold(&source).await;
                let mut ingest = target.transfer().ingest(TABLE).await.unwrap();
                let given = give(&all.files()[0], &mut ingest, |_, _| ()).await.unwrap_err();
                let expect = "a file of a version that is not taken as it is";
                assert_eq!(given.to_string(), expect, "{name}");
                continue;
            };
            assert!(held.files().iter().all(|file| file.version() == from), "{name}");
            let given = give_all(&held, &source, &target).await.unwrap();
            assert_eq!(given.files, held.files().len() as u64, "{name}");
            assert_equal(&source, &target).await;
            let of_view = |store: &Store| -> Vec<Version> {
                let view = store.rooms.tables.table(TABLE).unwrap().view();
                view.files.iter().map(|file| file.reader.meta().version()).collect()
            };
            assert_eq!(of_view(&target), vec![from; held.files().len()], "{name}");
            target.stop().await;
            let again = open_version_at(&rt, &name, to, schema()).await;
            assert_equal(&source, &again).await;
            again.compactor().compact_major(TABLE).await.unwrap();
            assert_eq!(of_view(&again), [to], "{name}");
            assert_eq!(read_all(&again).await, read_all(&source).await, "{name}");
            again.stop().await;
        }
        source.stop().await;
    }
}

/// INV-whole-1.
#[test]
fn a_file_that_is_not_what_was_written_is_refused() {
    for version in VERSIONS {
        refuses_what_was_not_written(version);
    }
}

fn refuses_what_was_not_written(version: Version) {
    run(232, move |rt| async move {
        let from = open_version_at(&rt, "a", version, schema()).await;
        let to = open_version_at(&rt, "b", Version::Da, schema()).await;
        for pk in 0..40 {
            write(&from, &insert(pk, 1, "a", 100)).await.unwrap();
        }
        for ck in 0..60 {
            write(&from, &insert(7, ck, &"long".repeat(20), 100)).await.unwrap();
        }
        from.flush(None).await.unwrap();
        let held = hold(&from).await;
        let file = &held.files()[0];
        for (component, length) in file.components() {
            // It has no checksums in `me`.
            if component == Component::Statistics && !version.has_statistics_checksums() {
                continue;
            }
            for at in [0, length as usize / 2, length as usize - 1] {
                let mut ingest = to.transfer().ingest(TABLE).await.unwrap();
                let flip = |c, bytes: &mut Vec<u8>| {
                    if c == component {
                        bytes[at] ^= 0x10;
                    }
                };
                let given = give(file, &mut ingest, flip).await;
                assert!(
                    matches!(given, Err(StoreError::Invalid(_))),
                    "{version} {component} {at}: {given:?}"
                );
                assert!(ingest.finish().await.is_err(), "{version} {component} {at}");
            }
        }
        // A stream of another version than announced, or an incomplete one.
        for other in VERSIONS.into_iter().filter(|other| *other != version) {
            let mut ingest = to.transfer().ingest(TABLE).await.unwrap();
            let given = match ingest.begin_whole(other, file.components().collect()).await {
                Ok(()) => {
                    for (component, _) in file.components() {
                        let bytes = file.read(component, 0, usize::MAX).await.unwrap().to_vec();
                        ingest.whole_bytes(component, &bytes).await.unwrap();
                    }
                    ingest.end_whole().await
                }
                Err(error) => Err(error),
            };
            // Only what both have is read the same: rows of files before `oa`.
            let alike = !version.has_uint_times() && !other.has_uint_times();
            assert!(given.is_err() || alike, "{version} as {other}");
        }
        for (missing, _) in file.components() {
            let is_needed = missing.is_large() || missing == Component::Checksums;
            let rest = file.components().filter(|(c, _)| *c != missing).collect();
            let mut ingest = to.transfer().ingest(TABLE).await.unwrap();
            let begun = ingest.begin_whole(version, rest).await;
            assert!(!is_needed || begun.is_err(), "{version} without {missing}");
        }
        let ranges = vec![(Token(5), Token(6))];
        let mut other = to.transfer().ingest(TABLE).await.unwrap().within(ranges);
        let given = give(file, &mut other, |_, _| ()).await.unwrap_err();
        assert_eq!(given.to_string(), "a file that came: it is of another range");
        drop(other);
        let mut some = to.transfer().ingest(TABLE).await.unwrap();
        some.begin_whole(file.version(), file.components().collect()).await.unwrap();
        assert!(some.end_whole().await.is_err(), "nothing has come");
        drop(some);
        rt.sleep(Duration::from_secs(3)).await;
        let directory = to
            .rooms
            .files
            .directories
            .directory_of(&to.rooms.tables.table(TABLE).unwrap().version().table);
        assert_eq!(rt.fs().read_dir(&directory).await.unwrap(), vec![], "what came is removed");
        assert_eq!(read_all(&to).await, vec![]);
    });
}

/// Two whole files and rows: after a crash anywhere all of them are there or nothing is.
#[test]
fn several_files_survive_a_crash_together_or_not_at_all() {
    let kinds = [CrashKind::Kill, CrashKind::PowerCut, CrashKind::PowerCutLosingAll];
    for (kind, version) in kinds.into_iter().zip([Version::Nb, Version::Da, Version::Oa]) {
        crash_everywhere(
            Crash { name: "whole", kind, shards: 1, step: 1 },
            |_, _| {},
            move |rt, confirmed: Arc<Mutex<bool>>, barrier: Barrier| async move {
                let from = open_version_at(&rt, "a", version, schema()).await;
                for pk in 0..6 {
                    write(&from, &insert(pk, 1, "a", 100)).await.unwrap();
                    if pk % 2 == 1 {
                        from.flush(None).await.unwrap();
                    }
                }
                let held = hold(&from).await;
                let options = StoreOptions { sstable_version: version, ..options(&rt) };
                let to = Store::open(rt.clone(), options, schema()).await.unwrap().0;
                barrier.arm(&rt).await;
                if give_all(&held, &from, &to).await.is_ok() {
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

/// A write or sync that fails while more is received: nothing of the file is ever visible.
#[test]
fn a_file_that_comes_on_a_failing_disk_is_there_or_gone() {
    let (mut n, mut failed) = (1, 0);
    loop {
        let world = world(70_000 + n);
        run_in(&world, |rt| async move {
            let from = open_nb_at(&rt, "a", schema()).await;
            for pk in 0..6 {
                write(&from, &insert(pk, 1, &format!("{pk}").repeat(9000), 100)).await.unwrap();
            }
            from.flush(None).await.unwrap();
            from.stop().await;
        });
        let disk = world.disk("n1");
        disk.fail_nth_change(n, IoErrorKind::Device);
        let ended: Arc<Mutex<Option<bool>>> = Arc::default();
        let said = ended.clone();
        run_in(&world, move |rt| {
            let said = said.clone();
            async move {
                let mut of_from = options(&rt);
                of_from.sstable_version = crate::Version::Nb;
                of_from.data_directories = vec!["a/data".to_owned()];
                of_from.commitlog_directory = "a/commitlog".to_owned();
                let from = Store::open(rt.clone(), of_from, schema()).await;
                let to = Store::open(rt.clone(), options(&rt), schema()).await;
                let (Ok((from, _)), Ok((to, _))) = (from, to) else { return };
                let Ok(Some(held)) =
                    from.transfer().hold(TABLE, &[FULL], 0, &taken(&VERSIONS)).await
                else {
                    return;
                };
                let given = give_all(&held, &from, &to).await;
                *said.lock().unwrap() = Some(given.is_ok());
                rt.sleep(Duration::from_secs(3)).await;
                let expected = if given.is_ok() { 6 } else { 0 };
                assert_eq!(read_all(&to).await.len(), expected, "call {n}: {given:?}");
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
    assert!(failed > 10, "{failed} of {n}");
}
