//! Replica reads: pages show the same as reads, do not depend on how the data is spread over files,
//! and continue where they ended.

use data::command::{Partitions, ResumePosition, RingBound};
use data::page_cursor::{PageChain, PageCursor, PageStops};
use data::replica_page::{PageEnd, PageLimits, ReplicaPage};
use data::{Advance, Cursor, Item, MergeCursor, MergeMode, TableShape};
use stdx::TtlSeconds;

use crate::ReplicaRead;
use crate::tests::everywhere::{Barrier, run_shards};
use crate::tests::*;

/// Deletions of these tests are made at 1,000,000: this keeps all of them.
const KEEP_ALL: DeletionSeconds = DeletionSeconds(0);
/// And this none.
const PURGE_ALL: DeletionSeconds = DeletionSeconds(1_900_000_000);

/// Everything as it was written.
pub(crate) const KEEP: DeletionSeconds = DeletionSeconds(i64::MIN);

fn shape() -> TableShape {
    TableShape::for_table(&table(TableOptions::default()))
}

/// A random mutation of few partitions and rows, of every kind. The same `r`, the same mutation.
pub(crate) fn mutation(r: u64) -> Vec<u8> {
    let (pk, ck) = ((r % 4) as i32, ((r >> 8) % 10) as i32);
    let timestamp = 1 + ((r >> 16) % 40) as i64;
    let (at, value) = (TimestampMicros(timestamp), format!("{}", (r >> 24) % 4));
    let column = ColumnId(3 + ((r >> 28) % 2) as u16);
    let dies = |early: bool| DeletionSeconds(if early { 1_000_010 } else { NOW.0 + 50 });
    let expiring = |ttl| {
        let early = (r >> 30) & 1 == 0;
        CellRef::expiring(at, TtlSeconds(ttl), dies(early), value.as_bytes())
    };
    let one = |liveness, cell| {
        let row = packed(liveness, DeletionTime::LIVE, &[(column, cell)]);
        let clustering = clustering(ck);
        encode(pk, |m| m.rows([(clustering.as_slice(), RowRef::trusted(&row))].into_iter()))
    };
    match (r >> 32) % 16 {
        0 => delete_partition(pk, timestamp),
        1 | 2 => delete_range(pk, ck, ck + 1 + ((r >> 40) % 5) as i32, timestamp),
        3 | 4 => delete_row(pk, ck, timestamp),
        5 => insert_static(pk, &value, timestamp),
        6 => {
            let cell = CellRef::tombstone(at, DeletionSeconds(1_000_000));
            let row = packed(Liveness::NONE, DeletionTime::LIVE, &[(STATIC, cell)]);
            encode(pk, |m| m.static_row(RowRef::trusted(&row)))
        }
        7 => one(Liveness::NONE, CellRef::tombstone(at, DeletionSeconds(1_000_000))),
        8 => {
            let ttl = TtlSeconds(10 + ((r >> 44) % 2) as i32);
            let expires_at = dies((r >> 31) & 1 == 0);
            one(Liveness { timestamp: at, ttl, expires_at }, expiring(10))
        }
        9 => one(Liveness::NONE, expiring(10)),
        10 | 11 => one(Liveness::NONE, CellRef::live(at, value.as_bytes())),
        _ => one(Liveness::new(at), CellRef::live(at, value.as_bytes())),
    }
}

pub(crate) async fn open_at(rt: &Rt, name: &str, schema: Arc<Schema>) -> Store {
    open_in(rt, name, options(rt), schema).await
}

/// Like [`open_at`]; its files are of a version that every node takes as they are.
pub(crate) async fn open_nb_at(rt: &Rt, name: &str, schema: Arc<Schema>) -> Store {
    open_version_at(rt, name, crate::Version::Nb, schema).await
}

/// Like [`open_at`]; its files are of this version.
pub(crate) async fn open_version_at(
    rt: &Rt,
    name: &str,
    sstable_version: crate::Version,
    schema: Arc<Schema>,
) -> Store {
    let options = StoreOptions { sstable_version, ..options(rt) };
    open_in(rt, name, options, schema).await
}

async fn open_in(rt: &Rt, name: &str, options: StoreOptions, schema: Arc<Schema>) -> Store {
    let mut options = options;
    options.data_directories = vec![format!("{name}/data")];
    options.commitlog_directory = format!("{name}/commitlog");
    options.column_index_bytes = 64;
    Store::open(rt.clone(), options, schema).await.unwrap().0
}

fn purgeable() -> Arc<Schema> {
    schema_of(vec![table(TableOptions { gc_grace_seconds: 0, ..TableOptions::default() })])
}

/// Applies mutations in an order and with flushes and compactions that `r` chooses.
pub(crate) async fn fill(store: &Store, mutations: &[Vec<u8>], mut r: u64) {
    let mut next = move || {
        r = r.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        r >> 33
    };
    let mut left: Vec<&Vec<u8>> = mutations.iter().collect();
    while !left.is_empty() {
        let mutation = left.remove(next() as usize % left.len());
        write(store, mutation).await.unwrap();
        if next().is_multiple_of(12) {
            store.flush(None).await.unwrap();
        }
    }
    match next() % 3 {
        0 => store.compactor().compact_major(TABLE).await.unwrap(),
        1 => store.flush(None).await.unwrap(),
        _ => {}
    }
}

pub(crate) async fn page_of(
    store: &Store,
    command: &ReadCommand,
    limits: PageLimits,
    purge_before: DeletionSeconds,
) -> Vec<u8> {
    let read = store.reader().read_replica(command, limits, true, purge_before).await.unwrap();
    ReplicaPage::parse(&read.page, &shape(), command.reversed).unwrap();
    read.page
}

/// The items of pages as text.
fn items(pages: &[Vec<u8>], reversed: bool) -> Vec<String> {
    let shape = shape();
    let mut chain = PageChain::default();
    for page in pages {
        chain.push(ReplicaPage::open(page).unwrap(), &shape, reversed).unwrap();
    }
    let stops = PageStops::NONE;
    let mut cursor = PageCursor::new(&shape, reversed, &chain, &stops);
    let mut out = Vec::new();
    while cursor.advance().unwrap() == Advance::Item {
        out.push(match cursor.item() {
            Item::Row { clustering, row } => format!("row {clustering:?} {:?}", row.bytes()),
            Item::Static(row) => format!("static {:?}", row.bytes()),
            other => format!("{other:?}"),
        });
    }
    out
}

/// Returns the rows of a page as a reader sees them.
pub(crate) fn shown(page: &[u8], reversed: bool, wants_static: bool) -> Vec<Found> {
    let shape = shape();
    let (chain, stops) = (PageChain::new(ReplicaPage::open(page).unwrap()), PageStops::NONE);
    let cursor = PageCursor::new(&shape, reversed, &chain, &stops);
    let mut merge = MergeCursor::new(&shape, MergeMode::Live { now: NOW }, reversed, [cursor]);
    let mut found: Vec<Found> = Vec::new();
    let (mut pk, mut s, mut any) = (0, None, false);
    while merge.advance().unwrap() == Advance::Item {
        match merge.item() {
            Item::Partition { key, .. } => {
                pk = i32::from_be_bytes(key.try_into().unwrap());
                (s, any) = (None, false);
            }
            Item::Static(row) => s = text_of(row, STATIC),
            Item::Row { clustering, row } => {
                let ck = data::clustering::components(clustering).next().unwrap().unwrap();
                let ck = i32::from_be_bytes(ck.try_into().unwrap());
                found.push((pk, Some(ck), s.clone(), text_of(row, VALUE)));
                any = true;
            }
            Item::Marker(_) => panic!("a live view has no markers"),
            Item::PartitionEnd if !any && s.is_some() && wants_static => {
                found.push((pk, None, s.clone(), None));
            }
            Item::PartitionEnd => {}
        }
    }
    found
}

/// Reads of every kind: by key and by range, both ways, slices.
pub(crate) fn commands() -> Vec<ReadCommand> {
    let mut all = Vec::new();
    let mut slices = vec![Slices::all(), slice(2, 6), slice(5, 6)];
    slices.push(Slices([slice(0, 2).0, slice(2, 3).0, slice(7, 20).0].concat()));
    for slices in slices {
        for pk in 0..4 {
            for reversed in [false, true] {
                let mut command = read_of(Partitions::Key(key(pk)));
                command.reversed = reversed;
                command.slices = slices.clone().into();
                all.push(command);
            }
        }
        let mut command = read_of(Partitions::Range(KeyRange::all()));
        command.slices = slices.into();
        all.push(command);
    }
    all
}

/// The command that continues after a page; `None` at the end.
fn going_on(command: &ReadCommand, page: &[u8]) -> Option<ReadCommand> {
    let mut next = command.clone();
    match ReplicaPage::open(page).unwrap().end() {
        PageEnd::Exhausted => return None,
        PageEnd::After { token, key } => match &mut next.partitions {
            Partitions::Key(_) => return None,
            Partitions::Range(range) => {
                range.start = RingBound::Key { token, key: key.to_vec(), after: true };
                next.resume = None;
            }
        },
        PageEnd::Inside { token, key, clustering } => {
            // Rows of this partition so far: those of this page, and of pages before when it began
            // inside the same partition.
            let chain = PageChain::new(ReplicaPage::open(page).unwrap());
            let shape = shape();
            let stops = PageStops::NONE;
            let mut cursor = PageCursor::new(&shape, command.reversed, &chain, &stops);
            let (mut rows, mut here, mut first, mut goes_on) = (0, false, true, false);
            while cursor.advance().unwrap() == Advance::Item {
                match cursor.item() {
                    Item::Partition { key: k, .. } => {
                        here = k == key;
                        goes_on = here && first;
                        first = false;
                    }
                    Item::Row { row, .. } if here => rows += u32::from(row.has_live_data(NOW)),
                    _ => {}
                }
            }
            let continued = match (&command.partitions, &command.resume) {
                (Partitions::Key(_), Some(resume)) => resume.rows_in_partition,
                (Partitions::Range(r), Some(resume))
                    if goes_on && matches!(&r.start, RingBound::Key { key: k, .. } if k == key) =>
                {
                    resume.rows_in_partition
                }
                _ => 0,
            };
            if let Partitions::Range(range) = &mut next.partitions {
                range.start = RingBound::Key { token, key: key.to_vec(), after: false };
            }
            next.resume = Some(ResumePosition {
                clustering: Some(clustering.to_vec()),
                rows_in_partition: rows + continued,
            });
        }
    }
    Some(next)
}

pub(crate) async fn pages_of(
    store: &Store,
    command: &ReadCommand,
    limits: PageLimits,
    purge_before: DeletionSeconds,
) -> Vec<Vec<u8>> {
    let (mut pages, mut at) = (Vec::new(), Some(command.clone()));
    while let Some(command) = at {
        let page = page_of(store, &command, limits, purge_before).await;
        at = going_on(&command, &page);
        pages.push(page);
        assert!(pages.len() < 5_000, "pages do not come to an end");
    }
    pages
}

#[test]
fn a_page_read_live_is_what_a_read_shows() {
    for seed in 0..25 {
        run(seed, |rt| async move {
            let store = open_at(&rt, "a", schema()).await;
            let mutations: Vec<Vec<u8>> = (0..60).map(|_| mutation(rt.random_u64())).collect();
            fill(&store, &mutations, rt.random_u64()).await;
            for command in commands() {
                for purge_before in [KEEP_ALL, PURGE_ALL, KEEP] {
                    let page = page_of(&store, &command, PageLimits::default(), purge_before).await;
                    let expected = read(&store, &command).await;
                    assert_eq!(shown(&page, command.reversed, true), expected, "{command:?}");
                    // The writer's count.
                    let live = ReplicaPage::open(&page).unwrap().live_rows();
                    assert_eq!(live as usize, expected.len(), "{command:?}");
                }
            }
        });
    }
}

#[test]
fn equal_content_gives_equal_bytes_whatever_the_files() {
    for seed in 100..125 {
        run(seed, |rt| async move {
            let one = open_at(&rt, "a", schema()).await;
            let two = open_at(&rt, "b", schema()).await;
            let mutations: Vec<Vec<u8>> = (0..60).map(|_| mutation(rt.random_u64())).collect();
            fill(&one, &mutations, rt.random_u64()).await;
            fill(&two, &mutations, rt.random_u64()).await;
            for command in commands() {
                let rows =
                    [2, 5, u32::MAX].map(|rows| PageLimits { rows, ..PageLimits::default() });
                // The data has fewer skipped tombstones than would end a page.
                let tombstones =
                    [16, 20].map(|n| PageLimits { tombstones: n, ..PageLimits::default() });
                for limits in rows.into_iter().chain(tombstones) {
                    let purged = (limits.tombstones == u32::MAX).then_some(PURGE_ALL);
                    for purge_before in [KEEP_ALL].into_iter().chain(purged) {
                        let a = page_of(&one, &command, limits, purge_before).await;
                        let b = page_of(&two, &command, limits, purge_before).await;
                        assert_eq!(a, b, "{command:?} {limits:?} {purge_before:?}");
                    }
                }
            }
            // And with one more write they differ: the comparison can fail.
            write(&two, &insert(1, 3, "another", 1_000)).await.unwrap();
            let command = read_of(Partitions::Key(key(1)));
            let a = page_of(&one, &command, PageLimits::default(), KEEP_ALL).await;
            assert_ne!(a, page_of(&two, &command, PageLimits::default(), KEEP_ALL).await);
        });
    }
}

/// Lets some rows pass.
#[derive(Debug)]
struct Thirds;

impl data::RowFilter for Thirds {
    fn keeps_partition(&self, key: &[u8], _: Option<RowRef<'_>>) -> bool {
        key.last().is_none_or(|last| last % 5 != 0)
    }

    fn keeps_row(&self, clustering: &[u8], _: RowRef<'_>) -> bool {
        clustering.last().is_none_or(|last| last % 3 == 0)
    }
}

#[test]
fn rows_that_are_taken_as_they_lie_make_the_pages_that_files_make() {
    for seed in 150..156 {
        run(seed, |rt| async move {
            let memory = open_at(&rt, "a", schema()).await;
            let files = open_at(&rt, "b", schema()).await;
            for pk in 0..80 {
                // Most partitions have one row and nothing else, some have many rows.
                let rows = if pk % 9 == 0 { 40 } else { 1 + pk % 13 / 11 };
                let mut writes: Vec<Vec<u8>> =
                    (0..rows).map(|ck| insert(pk, ck * 3 % 41, "x", 50)).collect();
                writes.extend(match rt.random_u64() % 16 {
                    0 => Some(insert_static(pk, "s", 50)),
                    1 => Some(delete_row(pk, 3, 60)),
                    2 => Some(delete_range(pk, 1, 5, 60)),
                    3 => Some(delete_partition(pk, 10)),
                    _ => None,
                });
                for mutation in writes {
                    write(&memory, &mutation).await.unwrap();
                    write(&files, &mutation).await.unwrap();
                }
            }
            files.flush(None).await.unwrap();
            let limits = PageLimits { tombstones: u32::MAX, ..PageLimits::default() };
            let all = [
                limits,
                PageLimits { rows: 1, ..limits },
                PageLimits { rows: 7, ..limits },
                PageLimits { bytes: 100, ..limits },
                PageLimits { rows_per_partition: 1, ..limits },
                PageLimits { rows_per_partition: 3, rows: 5, ..limits },
                PageLimits { tombstones: 16, ..limits },
            ];
            let mut command = read_of(Partitions::Range(KeyRange::all()));
            for (limits, slices) in
                all.into_iter().flat_map(|l| [(l, Slices::all()), (l, slice(4, 30)), (l, from(6))])
            {
                command.slices = slices.into();
                let of_memory = pages_of(&memory, &command, limits, KEEP_ALL).await;
                let of_files = pages_of(&files, &command, limits, KEEP_ALL).await;
                assert_eq!(of_memory, of_files, "{limits:?} {:?}", command.slices);
                if limits.rows_per_partition < u32::MAX {
                    continue;
                }
                let a = filtered_page(&memory, &command, limits).await;
                let b = filtered_page(&files, &command, limits).await;
                assert_eq!((&a.page, &a.filtered), (&b.page, &b.filtered));
                if command.slices.is_all() {
                    assert_eq!(a.stats.partitions, b.stats.partitions);
                }
                assert_eq!(a.page, of_files[0], "the page does not depend on the filter");
                ReplicaPage::parse(&a.filtered.unwrap().page, &shape(), false).unwrap();
            }
        });
    }
}

async fn filtered_page(store: &Store, command: &ReadCommand, limits: PageLimits) -> ReplicaRead {
    let shown = crate::ReplicaShown { counts_static: true, purge_before: KEEP_ALL };
    store.reader().read_replica_filtered(command, limits, shown, Some(&Thirds)).await.unwrap()
}

/// Rows from this clustering on.
fn from(ck: i32) -> Slices {
    let Slices(mut slices) = slice(ck, ck + 1);
    slices.iter_mut().for_each(|s| (s.end, s.end_after) = (Vec::new(), true));
    Slices(slices)
}

#[test]
fn what_a_compaction_purged_is_not_in_a_page_of_another_that_did_not() {
    for seed in 200..220 {
        run(seed, |rt| async move {
            let one = open_at(&rt, "a", purgeable()).await;
            let two = open_at(&rt, "b", schema()).await;
            let mutations: Vec<Vec<u8>> = (0..50).map(|_| mutation(rt.random_u64())).collect();
            for mutation in &mutations {
                write(&one, mutation).await.unwrap();
                write(&two, mutation).await.unwrap();
            }
            one.compactor().compact_major(TABLE).await.unwrap();
            for command in commands() {
                let a = page_of(&one, &command, PageLimits::default(), PURGE_ALL).await;
                let b = page_of(&two, &command, PageLimits::default(), PURGE_ALL).await;
                assert_eq!(a, b, "{command:?}");
            }
        });
    }
}

#[test]
fn small_pages_give_together_what_one_gives() {
    for seed in 300..312 {
        run(seed, |rt| async move {
            let store = open_at(&rt, "a", schema()).await;
            let mutations: Vec<Vec<u8>> = (0..70).map(|_| mutation(rt.random_u64())).collect();
            fill(&store, &mutations, rt.random_u64()).await;
            for command in commands() {
                let whole = page_of(&store, &command, PageLimits::default(), KEEP_ALL).await;
                let whole = items(&[whole], command.reversed);
                let rows = (1..4).map(|rows| PageLimits { rows, ..PageLimits::default() });
                let bytes = [1, 40, 90].map(|bytes| PageLimits { bytes, ..PageLimits::default() });
                for limits in rows.chain(bytes) {
                    let pages = pages_of(&store, &command, limits, KEEP_ALL).await;
                    assert_eq!(items(&pages, command.reversed), whole, "{command:?} {limits:?}");
                }
                for purge_before in [KEEP_ALL, KEEP, PURGE_ALL] {
                    let whole =
                        page_of(&store, &command, PageLimits::default(), purge_before).await;
                    let whole = items(&[whole], command.reversed);
                    for tombstones in [1, 2, 5] {
                        let limits = PageLimits { tombstones, ..PageLimits::default() };
                        let pages = pages_of(&store, &command, limits, purge_before).await;
                        let found = items(&pages, command.reversed);
                        assert_eq!(found, whole, "{command:?} {limits:?} {purge_before:?}");
                        // And with live rows on either side of the cuts they are read as one.
                        let found: Vec<Found> =
                            pages.iter().flat_map(|p| shown(p, command.reversed, false)).collect();
                        let all = page_of(&store, &command, PageLimits::default(), KEEP_ALL).await;
                        assert_eq!(found, shown(&all, command.reversed, false));
                    }
                }
            }
        });
    }
}

#[test]
fn the_limit_of_a_partition_holds_over_pages() {
    run(400, |rt| async move {
        let store = open_at(&rt, "a", schema()).await;
        for pk in 0..4 {
            for ck in 0..8 {
                write(&store, &insert(pk, ck, "v", 100)).await.unwrap();
            }
            write(&store, &delete_range(pk, 1, 3, 200)).await.unwrap();
        }
        store.flush(None).await.unwrap();
        let command = read_of(Partitions::Range(KeyRange::all()));
        for rows_per_partition in 1..8 {
            let whole = PageLimits { rows_per_partition, ..PageLimits::default() };
            let whole = page_of(&store, &command, whole, KEEP_ALL).await;
            let expected = shown(&whole, false, true);
            let each = (rows_per_partition as usize).min(6);
            assert_eq!(expected.len(), 4 * each, "{rows_per_partition} per partition");
            for rows in 1..5 {
                let limits = PageLimits { rows_per_partition, rows, ..PageLimits::default() };
                let pages = pages_of(&store, &command, limits, KEEP_ALL).await;
                let found: Vec<Found> =
                    pages.iter().flat_map(|page| shown(page, false, true)).collect();
                assert_eq!(found, expected, "{limits:?}");
            }
        }
    });
}

#[test]
fn tombstones_are_in_a_page_until_they_are_old_enough() {
    run(401, |rt| async move {
        let store = open(&rt).await;
        for mutation in [delete_partition(1, 10), delete_row(1, 2, 20), delete_range(1, 4, 8, 30)] {
            write(&store, &mutation).await.unwrap();
        }
        let command = read_of(Partitions::Key(key(1)));
        let made = 1_000_000;
        for flushed in [false, true] {
            if flushed {
                store.flush(None).await.unwrap();
            }
            let kept =
                page_of(&store, &command, PageLimits::default(), DeletionSeconds(made)).await;
            let all = items(&[kept], false);
            assert_eq!(all.len(), 5, "{all:?}");
            assert!(all[0].contains("TimestampMicros(10)"), "{all:?}");
            let gone = DeletionSeconds(made + 1);
            let gone = page_of(&store, &command, PageLimits::default(), gone).await;
            assert_eq!(items(&[gone], false), Vec::<String>::new());
            assert_eq!(read(&store, &command).await, vec![]);
        }
    });
}

#[test]
fn too_many_tombstones_end_a_page_and_fail_a_read_whose_sink_refuses_them() {
    run(402, |rt| async move {
        let store = open(&rt).await;
        let command = read_of(Partitions::Key(key(1)));
        let refusing = || Collect { refuses_above: Some(10), ..Collect::default() };
        for ck in 0..11 {
            assert!(store.read(&command, &mut refusing()).await.is_ok());
            write(&store, &delete_row(1, ck, 20)).await.unwrap();
        }
        let failed = store.read(&command, &mut refusing()).await;
        assert_eq!(failed, Err(StoreError::TombstoneFailure { scanned: 11 }));
        assert!(store.read(&command, &mut Collect::default()).await.is_ok());
        for ck in 11..20 {
            write(&store, &delete_row(1, ck, 20)).await.unwrap();
        }
        for (purge_before, shown, most) in [(KEEP_ALL, 10, 10), (PURGE_ALL, 0, 3)] {
            let limits = PageLimits { tombstones: most, ..PageLimits::default() };
            let read =
                store.reader().read_replica(&command, limits, true, purge_before).await.unwrap();
            assert_eq!(read.stats.tombstones, shown);
            // Tombstones old enough to be left out count a quarter.
            let last = clustering(if shown == 0 { 11 } else { 9 });
            let end = ReplicaPage::open(&read.page).unwrap().end();
            assert!(matches!(end, PageEnd::Inside { clustering, .. } if *clustering == *last));
        }
    });
}

#[test]
fn an_unknown_table_and_a_reversed_scan_are_refused() {
    run(403, |rt| async move {
        let store = open(&rt).await;
        let mut command = read_of(Partitions::Range(KeyRange::all()));
        command.reversed = true;
        let limits = PageLimits::default();
        let refused = store.reader().read_replica(&command, limits, true, KEEP_ALL).await;
        assert!(matches!(refused, Err(StoreError::Invalid(_))));
        command.table = TableId(Uuid::from_u128(0x99));
        let unknown = store.reader().read_replica(&command, limits, true, KEEP_ALL).await;
        assert_eq!(unknown.err(), Some(StoreError::UnknownTable(command.table)));
    });
}

/// Each shard's pages have its own partitions and no others, also of files that all shards share.
#[test]
fn a_page_has_the_partitions_of_its_shard() {
    let world = world(404);
    let collected: Arc<Mutex<Vec<(u16, i32)>>> = Arc::default();
    for (round, shards) in [1_u16, 3].into_iter().enumerate() {
        let collected = collected.clone();
        run_shards(&world, shards, move |rt: Rt, barrier: Barrier| {
            let collected = collected.clone();
            async move {
                let options = StoreOptions { run: 5_000_000 + round as u64, ..options(&rt) };
                let (store, _) = Store::open(rt.clone(), options, schema()).await.unwrap();
                barrier.wait(&rt).await;
                if round == 0 {
                    for pk in 0..30 {
                        write(&store, &insert(pk, 1, "v", 100)).await.unwrap();
                    }
                    store.flush(None).await.unwrap();
                } else {
                    let command = read_of(Partitions::Range(KeyRange::all()));
                    let page = page_of(&store, &command, PageLimits::default(), KEEP_ALL).await;
                    for (pk, ..) in shown(&page, false, true) {
                        collected.lock().unwrap().push((rt.shard().0, pk));
                    }
                }
                store.stop().await;
            }
        });
    }
    let mut found = collected.lock().unwrap().clone();
    for (shard, pk) in &found {
        assert_eq!(shard_of(codec::token_of(&key(*pk)), 3), ShardId(*shard));
    }
    found.sort_by_key(|(_, pk)| *pk);
    let keys: Vec<i32> = found.iter().map(|(_, pk)| *pk).collect();
    assert_eq!(keys, (0..30).collect::<Vec<_>>());
}
