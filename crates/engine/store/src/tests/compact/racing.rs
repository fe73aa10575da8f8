//! Snapshots, TRUNCATE and DROP at any moment of a compaction: the linked files are the table at one
//! moment, and emptied data is removed.

use rt::Group;

use crate::SnapshotInfo;
use crate::tests::everywhere::rows_of;
use crate::tests::*;

const INPUTS: i32 = 3;
/// Longer than the compaction of these files takes on the simulated disk.
const MICROS_MAX: u64 = 30_000;
/// Most disk calls take longer.
const STEP_MICROS: u64 = 100;

/// Generations of the complete SSTables of a directory. A component that its TOC.txt names must
/// exist, else the panic names `place`.
async fn complete(rt: &Rt, directory: &str, place: &str) -> Vec<u64> {
    let names: Vec<String> = match rt.fs().read_dir(directory).await {
        Ok(entries) => entries.into_iter().map(|e| e.name).collect(),
        Err(_) => return Vec::new(),
    };
    let mut found = Vec::new();
    for name in names.iter().filter(|name| name.ends_with("-TOC.txt")) {
        let (descriptor, _) = sstable::Descriptor::parse(name).unwrap();
        let toc = rt.fs().read(&format!("{directory}/{name}"), 1 << 16).await.unwrap();
        for component in String::from_utf8(toc).unwrap().lines() {
            let file = format!("{}-{component}", descriptor.prefix());
            assert!(names.contains(&file), "{place}: {file} is missing among {names:?}");
        }
        found.push(descriptor.generation.0);
    }
    found.sort_unstable();
    found
}

/// Runs `disturb` at that time after the begin of a compaction of three files, then `check`; passes
/// both the generations of the inputs.
fn at_every_moment<D, C>(disturb: D, check: C)
where
    D: AsyncFn(&Rt, &Store) + Clone + Send + Sync + 'static,
    C: AsyncFn(&Rt, &Store, &[u64], &str) + Clone + Send + Sync + 'static,
{
    let compact = async |store: &Store| drop(store.compactor().compact_major(TABLE).await);
    at_every_moment_of(compact, disturb, check);
}

/// The same of something else that is done with the table.
fn at_every_moment_of<W, D, C>(work: W, disturb: D, check: C)
where
    W: AsyncFn(&Store) + Clone + Send + Sync + 'static,
    D: AsyncFn(&Rt, &Store) + Clone + Send + Sync + 'static,
    C: AsyncFn(&Rt, &Store, &[u64], &str) + Clone + Send + Sync + 'static,
{
    for micros in (0..MICROS_MAX).step_by(STEP_MICROS as usize) {
        let (work, disturb, check) = (work.clone(), disturb.clone(), check.clone());
        run(4_000 + micros, move |rt| {
            let (work, disturb, check) = (work.clone(), disturb.clone(), check.clone());
            async move {
                let store = open(&rt).await;
                for pk in 0..INPUTS {
                    write(&store, &insert(pk, 1, "a", 100)).await.unwrap();
                    store.flush(None).await.unwrap();
                }
                let table = store.rooms.tables.table(TABLE).unwrap();
                let mut inputs: Vec<u64> =
                    table.view().files.iter().map(|f| f.generation.0).collect();
                inputs.sort_unstable();
                let (gate, beside) = (rt.gate("beside"), store.clone());
                // A table that is dropped has none.
                let task = async move { work(&beside).await };
                let _ = gate.spawn(&rt, Group::Compaction, "beside", task);
                rt.sleep(Duration::from_micros(micros)).await;
                disturb(&rt, &store).await;
                gate.close().await;
                rt.sleep(Duration::from_secs(60)).await;
                check(&rt, &store, &inputs, &format!("after {micros} us")).await;
                store.stop().await;
            }
        });
    }
}

/// The snapshots of the table, and the generations in the one whose name begins with `begin`.
async fn linked(rt: &Rt, store: &Store, begin: &str, place: &str) -> Vec<u64> {
    let all: Vec<SnapshotInfo> = store.lifecycle().snapshots().await.unwrap();
    let tag = all.iter().map(|s| &s.tag).find(|tag| tag.starts_with(begin));
    let tag = tag.unwrap_or_else(|| panic!("{place}: no snapshot of {all:?}"));
    let directory = store.rooms.files.directories.directory_of(&table(TableOptions::default()));
    complete(rt, &format!("{directory}/snapshots/{tag}"), place).await
}

fn is_of_one_moment(found: &[u64], inputs: &[u64]) -> bool {
    found == inputs || (found.len() == 1 && !inputs.contains(&found[0]))
}

/// INV-snapshot-1.
#[test]
fn a_snapshot_at_any_moment_of_a_compaction_has_the_files_of_one_moment() {
    at_every_moment(
        async |_, store| store.lifecycle().snapshot("one", None).await.unwrap(),
        async |rt, store, inputs, place| {
            let found = linked(rt, store, "one", place).await;
            assert!(is_of_one_moment(&found, inputs), "{place}: {found:?} of {inputs:?}");
            let directory =
                store.rooms.files.directories.directory_of(&table(TableOptions::default()));
            let left = complete(rt, &directory, place).await;
            assert!(left.len() == 1 && !inputs.contains(&left[0]), "{place}: {left:?}");
        },
    );
}

/// INV-store-2.
#[test]
fn a_read_at_any_moment_of_a_compaction_finds_every_row_once() {
    at_every_moment(
        async |_, store| {
            let rows = rows_of(&read_all(store).await);
            let expected: Vec<(i32, i32)> = (0..INPUTS).map(|pk| (pk, 1)).collect();
            assert_eq!(rows.keys().copied().collect::<Vec<_>>(), expected);
        },
        async |_, _, _, _| {},
    );
}

/// INV-outputs-1.
#[test]
fn what_is_truncated_at_any_moment_of_a_compaction_is_in_the_snapshot_and_nowhere_else() {
    at_every_moment(
        async |_, store| store.lifecycle().truncate(TABLE, TimestampMicros(5_000)).await.unwrap(),
        async |rt, store, inputs, place| {
            let found = linked(rt, store, "truncated-5-", place).await;
            assert!(is_of_one_moment(&found, inputs), "{place}: {found:?} of {inputs:?}");
            let directory =
                store.rooms.files.directories.directory_of(&table(TableOptions::default()));
            assert_eq!(complete(rt, &directory, place).await, Vec::<u64>::new(), "{place}");
            let table = store.rooms.tables.table(TABLE).unwrap();
            assert!(table.pins.borrow().is_empty(), "{place}: the log is kept");
        },
    );
}

#[test]
fn what_is_dropped_at_any_moment_of_a_compaction_is_in_the_snapshot_and_nowhere_else() {
    at_every_moment(
        async |_, store| store.set_schema(schema_of(Vec::new())),
        async |rt, store, inputs, place| {
            let found = linked(rt, store, "dropped-", place).await;
            assert!(is_of_one_moment(&found, inputs), "{place}: {found:?} of {inputs:?}");
            let directory =
                store.rooms.files.directories.directory_of(&table(TableOptions::default()));
            assert_eq!(complete(rt, &directory, place).await, Vec::<u64>::new(), "{place}");
        },
    );
}

/// INV-scrub-1.
#[test]
fn what_is_dropped_at_any_moment_of_a_scrub_is_in_the_snapshot_and_nowhere_else() {
    at_every_moment_of(
        async |store| {
            drop(store.compactor().scrub(TABLE, None, crate::ScrubOptions::default()).await)
        },
        async |_, store| store.set_schema(schema_of(Vec::new())),
        async |rt, store, inputs, place| {
            // Each file is scrubbed separately.
            let found = linked(rt, store, "dropped-", place).await;
            assert_eq!(found.len(), inputs.len(), "{place}: {found:?} of {inputs:?}");
            let directory =
                store.rooms.files.directories.directory_of(&table(TableOptions::default()));
            assert_eq!(complete(rt, &directory, place).await, Vec::<u64>::new(), "{place}");
        },
    );
}

#[test]
fn what_is_dropped_while_a_damaged_file_is_let_go_of_is_in_the_snapshot_and_nowhere_else() {
    use crate::tests::damage::quarantine::{
        damage, fill, is_salvaged, later, path, unreadable, until,
    };

    for micros in (0..6_000).step_by(STEP_MICROS as usize) {
        run(8_000 + micros, move |rt| async move {
            let place = format!("after {micros} us");
            fill(&rt).await;
            let store = open(&rt).await;
            damage(&rt, &path(&store, sstable::Component::Data).await).await;
            assert!(!unreadable(&store).await.is_empty());
            until(&rt, || is_salvaged(&store)).await;
            let table = store.rooms.tables.table(TABLE).unwrap();
            let files = table.view().files.clone();
            let all: Vec<u64> = files.iter().map(|f| f.generation.0).collect();
            // Starts of these tests change which of the two a shard writes to.
            let own = store.rooms.files.directories.directory_of(&table.version().table);
            let (_, name) = own.split_once('/').unwrap();
            let directories = ["data", "more"].map(|data| format!("{data}/{name}"));
            drop(table);
            store.verifier().release_repaired(TABLE, |_, _| Some(later(&rt)));
            rt.sleep(Duration::from_micros(micros)).await;
            store.set_schema(schema_of(Vec::new()));
            rt.sleep(Duration::from_secs(60)).await;
            let mut found = Vec::new();
            for directory in &directories {
                let snapshots = format!("{directory}/snapshots");
                for tag in rt.fs().read_dir(&snapshots).await.unwrap_or_default() {
                    let tag = format!("{snapshots}/{}", tag.name);
                    found.extend(complete(&rt, &tag, &place).await);
                }
                assert_eq!(complete(&rt, directory, &place).await, Vec::<u64>::new(), "{place}");
            }
            assert!(
                !found.is_empty() && found.iter().all(|f| all.contains(f)),
                "{place}: {found:?}"
            );
            store.stop().await;
        });
    }
}
