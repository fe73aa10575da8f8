//! Options never change answers: the same operations under random options, with other shards and other options
//! behind each restart, give the same answers to the same questions.
//!
//! What is asked and written is drawn once for each seed, before any option is. Half of the seeds keep all
//! tombstones and write with timestamps in any order; of half of these even the pages of replicas are the same,
//! deletions included. The others purge tombstones at once and write with timestamps that ascend.

use compact_plan::Strategy;
use data::page_cursor::{PageChain, PageCursor, PageStops};
use data::replica_page::{PageLimits, ReplicaPage};
use data::{Advance, Cursor, Item};
use stdx::TtlSeconds;

use crate::options::FlushCompression;
use crate::tests::compact::strategies::map_of;
use crate::tests::everywhere::run_shards;
use crate::tests::*;

const OTHER: ColumnId = ColumnId(4);
const PARTITIONS: u64 = 8;
const ROWS: u64 = 24;
const LIVES: usize = 3;
const STEPS: usize = 220;

/// Random numbers that depend on nothing but the seed (splitmix64).
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, count: u64) -> u64 {
        self.next() % count
    }

    fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

#[derive(Clone)]
enum Step {
    /// Done on the shard that has the partition.
    Write(i32, Vec<u8>),
    Read(ReadCommand),
    Flush,
    Compact,
    Truncate,
}

fn table_of(kind: Kind, options: TableOptions) -> Table {
    let mut table = table(options);
    if !kind.has_static {
        table.columns.retain(|c| c.id != STATIC);
        table.static_count = 0;
    }
    table
}

/// Steps between two starts.
fn steps(draw: &mut Draw, kind: Kind, clock: &mut i64) -> Vec<Step> {
    let keeps = kind.tombstones != Tombstones::Purged;
    let step = |draw: &mut Draw, clock: &mut i64| match draw.below(60) {
        0..3 => Step::Flush,
        3 => Step::Compact,
        4 if draw.below(8) == 0 => Step::Truncate,
        4..24 => Step::Read(question(draw)),
        _ => {
            *clock += 1;
            let timestamp = match keeps {
                true => *clock - draw.below(60) as i64,
                false => *clock,
            };
            let pk = draw.below(PARTITIONS) as i32;
            Step::Write(pk, mutation(draw, kind, (pk, timestamp)))
        }
    };
    (0..STEPS).map(|_| step(draw, clock)).collect()
}

fn mutation(draw: &mut Draw, kind: Kind, (pk, timestamp): (i32, i64)) -> Vec<u8> {
    let ck = draw.below(ROWS) as i32;
    let value = format!("{timestamp} {}", "v".repeat(draw.below(600) as usize));
    let at = TimestampMicros(timestamp);
    let of = clustering(ck);
    match draw.below(20) {
        0 => delete_partition(pk, timestamp),
        1 | 2 => delete_range(pk, ck, ck + 1 + draw.below(8) as i32, timestamp),
        3 => delete_row(pk, ck, timestamp),
        4 if kind.has_static => insert_static(pk, &value, timestamp),
        what => {
            let expires = DeletionSeconds(NOW.0 + draw.one_of(&[-3, 3]));
            let ttl = TtlSeconds(1_000);
            let mut cell = |id| {
                let cell = match draw.below(8) {
                    0 => CellRef::tombstone(at, DeletionSeconds(1_000_000)),
                    1 => CellRef::expiring(at, ttl, expires, value.as_bytes()),
                    _ => CellRef::live(at, value.as_bytes()),
                };
                (id, cell)
            };
            let cells = match what {
                5..8 => vec![cell(VALUE)],
                8 => vec![cell(OTHER)],
                9 => Vec::new(),
                _ => vec![cell(VALUE), cell(OTHER)],
            };
            let liveness = match draw.below(6) {
                0 if !cells.is_empty() => Liveness::NONE,
                1 => Liveness { ttl, expires_at: expires, ..Liveness::new(at) },
                _ => Liveness::new(at),
            };
            let row = packed(liveness, DeletionTime::LIVE, &cells);
            encode(pk, |m| m.rows([(of.as_slice(), RowRef::trusted(&row))].into_iter()))
        }
    }
}

fn question(draw: &mut Draw) -> ReadCommand {
    let (from, length) = (draw.below(ROWS) as i32, draw.below(6) as i32);
    let slices = match draw.below(4) {
        0 => Slices::all(),
        1 => slice(from, from + 1 + length),
        _ => {
            let names = [from, from + 1 + length];
            let named = names.into_iter().take(1 + draw.below(2) as usize);
            Slices(named.map(|ck| Slice::prefix(clustering(ck))).collect())
        }
    };
    let is_scan = draw.below(8) == 0;
    let partitions = match is_scan {
        true => Partitions::Range(KeyRange::all()),
        false => Partitions::Key(key(draw.below(PARTITIONS) as i32)),
    };
    let columns: &[&[ColumnId]] = &[&[], &[VALUE], &[OTHER], &[STATIC, VALUE], &[VALUE, OTHER]];
    let columns = (draw.below(3) > 0).then(|| draw.one_of(columns).into());
    ReadCommand {
        slices: slices.into(),
        columns,
        reversed: !is_scan && draw.below(4) == 0,
        wants_static: draw.below(3) == 0,
        ..ReadCommand::whole(TABLE, partitions, NOW)
    }
}

/// Subject of a seed.
#[derive(Clone, Copy)]
struct Kind {
    tombstones: Tombstones,
    /// Without static columns files are left out by clustering.
    has_static: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Tombstones {
    /// They are purged as soon as they hide nothing.
    Purged,
    /// They are kept.
    Kept,
    /// They are kept, and pages of replicas are the same. Not so under cluster-key compaction, which cuts range
    /// deletions between two values: "behind 3" and "before 4" are one place, but are written differently.
    KeptInPages,
}

/// Options of the table and of the store for one life.
#[derive(Clone, Debug)]
struct Chosen {
    shards: u16,
    table: TableOptions,
    store: fn(&mut StoreOptions, &Chosen),
    version: sstable::Version,
    memtable_bytes_max: usize,
    segment_bytes: u64,
    log: Option<Algorithm>,
    column_index_bytes: u64,
    chunk_cache_bytes: usize,
    row_cache_bytes: u64,
    compactors: u32,
    bypasses: bool,
    flushed: FlushCompression,
}

fn chosen(draw: &mut Draw, kind: Kind) -> Chosen {
    let strategies = [
        (Strategy::SizeTiered, &[("min_threshold", "2"), ("max_threshold", "4")][..]),
        (Strategy::Leveled, &[("sstable_size_in_mb", "1")]),
        (Strategy::Unified, &[("scaling_parameters", "L2,T3"), ("min_sstable_size", "0B")]),
        (Strategy::Incremental, &[("min_threshold", "2")]),
        (Strategy::TimeWindow, &[("min_threshold", "2"), ("compaction_window_unit", "MINUTES")]),
        (
            Strategy::ClusterKey,
            &[
                ("min_threshold", "2"),
                ("compaction_window_unit", "ONES"),
                ("compaction_window_size", "4"),
            ],
        ),
    ];
    let count = strategies.len() - usize::from(kind.tombstones == Tombstones::KeptInPages);
    let (strategy, map) = draw.one_of(&strategies[..count]);
    let mut table = TableOptions {
        gc_grace_seconds: if kind.tombstones == Tombstones::Purged { 0 } else { i32::MAX },
        compaction: map_of(strategy, map),
        bloom_filter_fp_chance: draw.one_of(&[None, Some(0.000_1), Some(0.5), Some(1.0)]),
        min_index_interval: draw.one_of(&[1, 4, 128]),
        ..TableOptions::default()
    };
    let compressors =
        ["", "LZ4Compressor", "SnappyCompressor", "DeflateCompressor", "ZstdCompressor"];
    table.compression = match draw.one_of(&compressors) {
        "" => BTreeMap::from([("enabled".to_owned(), "false".to_owned())]),
        class => BTreeMap::from([
            ("class".to_owned(), class.to_owned()),
            ("chunk_length_in_kb".to_owned(), draw.one_of(&["4", "16", "64"]).to_owned()),
        ]),
    };
    if table.compression.get("class").is_some_and(|class| class == "LZ4Compressor") {
        let kind = draw.one_of(&["fast", "high"]);
        table.compression.insert("lz4_compressor_type".to_owned(), kind.to_owned());
    }
    let rows = draw.one_of(&["NONE", "1", "5", "ALL"]);
    table.caching.insert("rows_per_partition".to_owned(), rows.to_owned());
    let logs = [None, Some(Algorithm::Lz4), Some(Algorithm::Zstd)];
    Chosen {
        shards: 1 + draw.below(3) as u16,
        table,
        store: Chosen::apply,
        version: draw.one_of(&sstable::WriterOptions::VERSIONS),
        memtable_bytes_max: draw.one_of(&[48 << 10, 256 << 10, 16 << 20]),
        segment_bytes: draw.one_of(&[16 << 10, 64 << 10, 1 << 20]),
        log: draw.one_of(&logs),
        column_index_bytes: draw.one_of(&[1 << 10, 4 << 10, 64 << 10]),
        chunk_cache_bytes: draw.one_of(&[64 << 10, 8 << 20]),
        row_cache_bytes: draw.one_of(&[0, 16 << 10, 32 << 10]),
        compactors: 1 + draw.below(3) as u32,
        bypasses: draw.below(4) == 0,
        flushed: draw.one_of(&[
            FlushCompression::None,
            FlushCompression::Fast,
            FlushCompression::Table,
        ]),
    }
}

impl Chosen {
    fn apply(options: &mut StoreOptions, chosen: &Chosen) {
        options.sstable_version = chosen.version;
        options.memtable_bytes_max = chosen.memtable_bytes_max;
        options.segment_bytes = chosen.segment_bytes;
        options.commitlog_compression = chosen.log;
        options.column_index_bytes = chosen.column_index_bytes;
        options.chunk_cache_bytes_max = chosen.chunk_cache_bytes;
        options.row_cache_bytes_max = chosen.row_cache_bytes;
        options.concurrent_compactors = chosen.compactors;
        options.flush_compression = chosen.flushed;
    }
}

/// Answers by number of the life, of the step, and of the partition's place in the ring.
type Answers = BTreeMap<(usize, usize, Token), Vec<String>>;

/// Rows with the columns that were asked for.
struct Told<'a> {
    columns: &'a [ColumnId],
    at: (Token, String),
    rows: BTreeMap<Token, Vec<String>>,
    any: bool,
}

impl Told<'_> {
    fn show(&self, row: RowRef<'_>, is_static: bool) -> String {
        let asked = self.columns.iter().filter(|id| (**id == STATIC) == is_static);
        let cells = asked.map(|id| text_of(row, *id).unwrap_or("null".to_owned()));
        cells.collect::<Vec<_>>().join("|")
    }

    fn add(&mut self, row: String) {
        let row = format!("{} {row}", self.at.1);
        self.rows.entry(self.at.0).or_default().push(row);
    }
}

impl RowSink for Told<'_> {
    fn partition(&mut self, token: Token, key: &[u8], static_row: Option<RowRef<'_>>) -> Flow {
        let of_static = static_row.map(|row| self.show(row, true)).unwrap_or_default();
        self.at = (token, format!("{key:?} {of_static}"));
        self.any = false;
        Flow::Continue
    }

    fn row(&mut self, clustering: &[u8], row: RowRef<'_>) -> Flow {
        self.any = true;
        let row = self.show(row, false);
        self.add(format!("{clustering:?} {row}"));
        Flow::Continue
    }

    fn partition_end(&mut self) -> Flow {
        if !self.any {
            self.add("no row".to_owned());
        }
        Flow::Continue
    }
}

fn is_here(rt: &Rt, key: &[u8]) -> bool {
    shard_of(codec::token_of(key), rt.shard_count()) == rt.shard()
}

/// Returns the items of a page, one string each.
fn items_of(page: &[u8], reversed: bool) -> Vec<String> {
    let shape = data::TableShape::for_table(&table(TableOptions::default()));
    let chain = PageChain::new(ReplicaPage::open(page).unwrap());
    let stops = PageStops::NONE;
    let mut cursor = PageCursor::new(&shape, reversed, &chain, &stops);
    let mut items = Vec::new();
    while cursor.advance().unwrap() == Advance::Item {
        items.push(match cursor.item() {
            Item::Row { clustering, row } => {
                let (liveness, deletion, columns) = row.parts();
                let columns: Vec<String> = columns.map(|c| format!("{c:?}")).collect();
                format!("row {clustering:?} {liveness:?} {deletion:?} {columns:?}")
            }
            item => format!("{item:?}"),
        });
    }
    items
}

async fn answer(
    rt: &Rt,
    store: &Store,
    (command, is_page): (&ReadCommand, bool),
) -> BTreeMap<Token, Vec<String>> {
    if let Partitions::Key(key) = &command.partitions
        && !is_here(rt, key)
    {
        return BTreeMap::new();
    }
    let all = [STATIC, VALUE, OTHER];
    let columns = command.columns.as_ref().map_or(all.to_vec(), |c| c.to_vec());
    let at = (Token::MIN, String::new());
    let mut told = Told { columns: &columns, at, rows: BTreeMap::new(), any: false };
    store.read(command, &mut told).await.unwrap();
    if let Partitions::Key(key) = &command.partitions
        && is_page
    {
        let (limits, all) = (PageLimits::default(), DeletionSeconds(i64::MIN));
        let page = store.reader().read_replica(command, limits, true, all).await.unwrap().page;
        let rows = told.rows.entry(codec::token_of(key)).or_default();
        rows.push(format!("page of {} {:x}", page.len(), codec::crc32(&page)));
        rows.extend(items_of(&page, command.reversed));
    }
    told.rows
}

async fn carry_out(
    rt: &Rt,
    store: &Store,
    life: (usize, &[Step]),
    chosen: &Chosen,
    kind: Kind,
) -> Answers {
    let mut answers = Answers::new();
    for (number, step) in life.1.iter().enumerate() {
        match step {
            Step::Write(pk, mutation) if is_here(rt, &key(*pk)) => {
                while let Err(error) = write(store, mutation).await {
                    // Until a flush made room.
                    assert!(matches!(error, StoreError::Overloaded { .. }), "{error:?}");
                    rt.sleep(Duration::from_millis(5)).await;
                }
            }
            Step::Write(..) => {}
            Step::Read(command) => {
                let command = ReadCommand { bypass_cache: chosen.bypasses, ..command.clone() };
                for (token, rows) in
                    answer(rt, store, (&command, kind.tombstones == Tombstones::KeptInPages)).await
                {
                    answers.insert((life.0, number, token), rows);
                }
            }
            Step::Flush => store.flush(None).await.unwrap(),
            Step::Compact => store.compactor().compact_major(TABLE).await.unwrap(),
            Step::Truncate => store.lifecycle().truncate(TABLE, TimestampMicros(1)).await.unwrap(),
        }
        // Lets background tasks run.
        rt.sleep(Duration::from_millis(1)).await;
    }
    answers
}

/// The answers of one run over all its lives.
fn run_under(
    seed: u64,
    lives: &Arc<Vec<Vec<Step>>>,
    draw: &mut Draw,
    kind: Kind,
) -> (Answers, String) {
    let world = world(seed);
    let all: Arc<Mutex<Answers>> = Arc::default();
    let mut words = String::new();
    for life in 0..lives.len() {
        let chosen = Arc::new(chosen(draw, kind));
        words.push_str(&format!("life {life}: {chosen:?}\n"));
        let (lives, all, shards) = (lives.clone(), all.clone(), chosen.shards);
        run_shards(&world, shards, move |rt, _| {
            let (lives, all, chosen) = (lives.clone(), all.clone(), chosen.clone());
            async move {
                let mut options = options(&rt);
                // Some lives encrypt their files; all read them.
                rt.set_file_keys(crate::tests::files::sealed::ring("key"));
                if rt.random_u64().is_multiple_of(2) {
                    options.sealing = crate::tests::files::sealed::sealed_tables();
                }
                (chosen.store)(&mut options, &chosen);
                let schema = schema_of(vec![table_of(kind, chosen.table.clone())]);
                let store = Store::open(rt.clone(), options, schema).await.unwrap().0;
                let steps = (life, lives[life].as_slice());
                let answers = carry_out(&rt, &store, steps, &chosen, kind).await;
                all.lock().unwrap().extend(answers);
                store.stop().await;
            }
        });
    }
    let answers = std::mem::take(&mut *all.lock().unwrap());
    (answers, words)
}

#[test]
fn options_never_change_answers() {
    for seed in 0..10_u64 {
        let all = [Tombstones::KeptInPages, Tombstones::Purged, Tombstones::Kept];
        let kind = Kind { tombstones: all[seed as usize % 3], has_static: seed < 5 };
        let (mut draw, mut clock) = (Draw(9_000 + seed), 1_000);
        let lives = (0..LIVES).map(|_| steps(&mut draw, kind, &mut clock)).collect();
        let lives: Arc<Vec<Vec<Step>>> = Arc::new(lives);
        let mut first: Option<(Answers, String)> = None;
        for run in 0..5_u64 {
            let mut draw = Draw(seed * 1_000 + run);
            let (answers, words) = run_under(seed, &lives, &mut draw, kind);
            assert!(answers.len() > 100, "seed {seed}: {} answers", answers.len());
            let Some((expected, before)) = &first else {
                first = Some((answers, words));
                continue;
            };
            for place in expected.keys().chain(answers.keys()) {
                let (a, b) = (expected.get(place), answers.get(place));
                let question = lives[place.0].get(place.1).map(|step| match step {
                    Step::Read(command) => format!("{command:?}"),
                    _ => String::new(),
                });
                if a != b {
                    let (a, b) = (a.cloned().unwrap_or_default(), b.cloned().unwrap_or_default());
                    let only = |these: &[String], others: &[String]| -> Vec<String> {
                        these.iter().filter(|row| !others.contains(row)).cloned().collect()
                    };
                    panic!(
                        "seed {seed}, run {run}, {place:?}: {question:?}\n{before}alone gave {:#?}\n\
                         {words}alone gave {:#?}",
                        only(&a, &b),
                        only(&b, &a)
                    );
                }
            }
        }
    }
}
