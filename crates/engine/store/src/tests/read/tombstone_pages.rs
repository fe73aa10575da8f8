//! Pages that end after a number of tombstones: together they have each row once, whatever the tombstones
//! are.

use data::command::{ResumePosition, RingBound};

use crate::tests::read::replica_pages::{commands, fill, mutation, open_at};
use crate::tests::*;

type Place = (Token, Vec<u8>, Option<Vec<u8>>, u32);

/// A page that ends after a number of tombstones, or of rows.
pub(crate) struct Page {
    pub(crate) found: Vec<Found>,
    tombstones: u32,
    rows: usize,
    /// Key, clustering and rows of the partition at the place where it ended.
    end: Option<Place>,
    key: Vec<u8>,
    in_partition: u32,
    value: Option<String>,
}

impl Page {
    pub(crate) fn new(tombstones: u32) -> Page {
        Page {
            found: Vec::new(),
            tombstones,
            rows: usize::MAX,
            end: None,
            key: Vec::new(),
            in_partition: 0,
            value: None,
        }
    }

    fn pk(&self) -> i32 {
        i32::from_be_bytes(self.key.as_slice().try_into().unwrap())
    }

    /// Adds a row; whether the page is full.
    fn add(&mut self, clustering: Option<&[u8]>, value: Option<String>) -> Flow {
        let ck = clustering.map(|clustering| {
            let ck = data::clustering::components(clustering).next().unwrap().unwrap();
            i32::from_be_bytes(ck.try_into().unwrap())
        });
        self.found.push((self.pk(), ck, self.value.clone(), value));
        self.in_partition += 1;
        if self.found.len() < self.rows {
            return Flow::Continue;
        }
        let token = codec::token_of(&self.key);
        let clustering = clustering.map(<[u8]>::to_vec);
        self.end = Some((token, self.key.clone(), clustering, self.in_partition));
        Flow::Stop
    }

    /// The command of the next page; `None`: there is none.
    pub(crate) fn going_on(&self, command: &ReadCommand) -> Option<ReadCommand> {
        let (token, key, clustering, rows) = self.end.clone()?;
        let mut next = command.clone();
        let before = match (&command.resume, &command.partitions) {
            (Some(resume), Partitions::Key(_)) => resume.rows_in_partition,
            (Some(resume), Partitions::Range(range)) => match &range.start {
                RingBound::Key { key: of, .. } if *of == key => resume.rows_in_partition,
                _ => 0,
            },
            (None, _) => 0,
        };
        match &mut next.partitions {
            Partitions::Key(_) if clustering.is_none() => return None,
            Partitions::Key(_) => {}
            Partitions::Range(range) => {
                range.start = RingBound::Key { token, key, after: clustering.is_none() };
            }
        }
        next.resume = clustering.map(|clustering| ResumePosition {
            clustering: Some(clustering),
            rows_in_partition: before + rows,
        });
        Some(next)
    }
}

impl RowSink for Page {
    fn partition(&mut self, _: Token, key: &[u8], static_row: Option<RowRef<'_>>) -> Flow {
        self.key = key.to_vec();
        self.in_partition = 0;
        self.value = static_row.and_then(|row| text_of(row, STATIC));
        Flow::Continue
    }

    fn row(&mut self, clustering: &[u8], row: RowRef<'_>) -> Flow {
        self.add(Some(clustering), text_of(row, VALUE))
    }

    fn partition_end(&mut self) -> Flow {
        match self.in_partition {
            // A previous page has shown rows of it, or the partition exists for its static row
            // alone.
            0 => self.add(None, None),
            _ => Flow::Continue,
        }
    }

    fn looked_at(&mut self, upto: LookedAt<'_>) -> Look {
        assert_eq!(upto.token, codec::token_of(upto.key));
        if upto.scanned < self.tombstones {
            return Look::Continue;
        }
        let rows = if upto.key == self.key { self.in_partition } else { 0 };
        let clustering = upto.clustering.map(<[u8]>::to_vec);
        self.end = Some((upto.token, upto.key.to_vec(), clustering, rows));
        Look::Stop
    }

    fn tombstones_per_look(&self) -> u32 {
        self.tombstones
    }
}

/// The rows of all pages.
async fn paged(store: &Store, command: &ReadCommand, tombstones: u32, rows: usize) -> Vec<Found> {
    let (mut command, mut found, mut pages) = (command.clone(), Vec::new(), 0);
    loop {
        let mut page = Page { rows, ..Page::new(tombstones) };
        store.read(&command, &mut page).await.unwrap();
        let next = page.going_on(&command);
        found.append(&mut page.found);
        pages += 1;
        assert!(pages < 2_000, "pages do not come to an end: {command:?}");
        match next {
            Some(next) => command = next,
            None => return found,
        }
    }
}

#[test]
fn pages_cut_by_tombstones_give_together_what_one_read_gives() {
    for seed in 600..625 {
        run(seed, |rt| async move {
            let store = open_at(&rt, "a", schema()).await;
            let mutations: Vec<Vec<u8>> = (0..70).map(|_| mutation(rt.random_u64())).collect();
            fill(&store, &mutations, rt.random_u64()).await;
            for command in commands() {
                let whole = read(&store, &command).await;
                for (tombstones, rows) in [(1, usize::MAX), (2, 2), (3, 1), (7, usize::MAX)] {
                    let found = paged(&store, &command, tombstones, rows).await;
                    assert_eq!(found, whole, "{command:?} {tombstones} {rows}");
                }
            }
        });
    }
}

/// Ranges that touch, overlap and lie apart, with newer rows in some of the gaps.
fn ranges(from: i32, count: i32) -> Vec<u8> {
    encode(1, |m| {
        let bounds: Vec<(Vec<u8>, Vec<u8>)> = (from..from + count)
            .map(|n| (clustering(3 * n), clustering(3 * n + [1, 2, 3, 5][n as usize % 4])))
            .collect();
        m.range_tombstones(bounds.iter().enumerate().map(|(n, (from, to))| RangeTombstoneRef {
            start: data::BoundRef { prefix: from, after: false },
            end: data::BoundRef { prefix: to, after: false },
            deletion: deletion(100 + (n % 7) as i64),
        }));
    })
}

#[test]
fn a_partition_with_a_million_range_tombstones_stays_readable() {
    const RANGES: i32 = 1_000_000;
    const TOGETHER: i32 = 1_000;
    const STEP: i32 = 300_000;
    run(1_302, |rt| async move {
        let mut options = options(&rt);
        options.segment_bytes = 4 << 20;
        options.chunk_cache_bytes_max = 1 << 20;
        let store = Store::open(rt.clone(), options, schema()).await.unwrap().0;
        for (part, from) in (0..RANGES).step_by(TOGETHER as usize).enumerate() {
            write(&store, &ranges(from, TOGETHER)).await.unwrap();
            if part % 250 == 249 {
                store.flush(None).await.unwrap();
            }
        }
        let live: Vec<i32> = (0..3 * RANGES).step_by(STEP as usize).collect();
        for ck in &live {
            write(&store, &insert(1, *ck, "here", 1_000)).await.unwrap();
        }
        let rows = |found: Vec<Found>| found.iter().filter_map(|row| row.1).collect::<Vec<_>>();
        for compacted in [false, true] {
            if compacted {
                store.compactor().compact_major(TABLE).await.unwrap();
            }
            for reversed in [false, true] {
                let command = ReadCommand { reversed, ..read_of(Partitions::Key(key(1))) };
                let mut expected = live.clone();
                if reversed {
                    expected.reverse();
                }
                let found = paged(&store, &command, 10_000, 100).await;
                assert_eq!(rows(found), expected);
                // Pages of replicas with all of them end too, though there is hardly a row.
                let limits = data::replica_page::PageLimits {
                    bytes: 64 << 10,
                    ..data::replica_page::PageLimits::default()
                };
                let pages = crate::tests::read::replica_pages::pages_of(
                    &store,
                    &command,
                    limits,
                    crate::tests::read::replica_pages::KEEP,
                )
                .await;
                let largest = pages.iter().map(Vec::len).max().unwrap();
                assert!(largest < 66 << 10, "a page of {largest} bytes");
                assert!(pages.len() > 400, "{} pages", pages.len());
            }
            let cached = store.rooms.files.cache.bytes();
            assert!(cached <= 1 << 20, "{cached} bytes of blocks");
        }
        store.stop().await;
    });
}

/// A repair continues by slices, not by a resume position.
#[test]
fn a_page_of_slices_that_begin_inside_a_range_deletion_comes_further() {
    run(1_303, |rt| async move {
        let store = open(&rt).await;
        write(&store, &delete_range(1, 0, 9, 100)).await.unwrap();
        write(&store, &delete_range(1, 20, 29, 101)).await.unwrap();
        let limits = data::replica_page::PageLimits {
            bytes: 1,
            tombstones: 1,
            ..data::replica_page::PageLimits::default()
        };
        for reversed in [false, true] {
            let whole = Slices(vec![data::Slice {
                start: clustering(4),
                start_after: true,
                end: clustering(25),
                end_after: false,
            }]);
            let mut command =
                ReadCommand { reversed, slices: whole.into(), ..read_of(Partitions::Key(key(1))) };
            let mut ends = Vec::new();
            loop {
                let page = crate::tests::read::replica_pages::page_of(
                    &store,
                    &command,
                    limits,
                    crate::tests::read::replica_pages::KEEP,
                );
                let page = page.await;
                let page = data::replica_page::ReplicaPage::open(&page).unwrap();
                let data::replica_page::PageEnd::Inside { clustering, .. } = page.end() else {
                    break;
                };
                let end = data::clustering::components(clustering).next().unwrap().unwrap();
                ends.push(i32::from_be_bytes(end.try_into().unwrap()));
                let slice = &mut std::sync::Arc::make_mut(&mut command.slices).0[0];
                match reversed {
                    false => (slice.start, slice.start_after) = (clustering.to_vec(), true),
                    true => (slice.end, slice.end_after) = (clustering.to_vec(), false),
                }
                assert!(ends.len() < 10, "{ends:?}");
            }
            assert_eq!(ends, if reversed { vec![20, 9] } else { vec![9, 20] });
        }
        store.stop().await;
    });
}
