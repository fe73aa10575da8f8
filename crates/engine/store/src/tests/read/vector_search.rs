//! Searches by a vector: the nearest of the merged rows, each once, whatever their versions lie in.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use data::command::RingBound;
use index_format::search::{IndexPredicate, Neighbours, VectorSearch};
use index_format::{Similarity, TermRange, floats_of};
use rt::{Buf, OpenOptions};
use schema::{IndexKind, IndexMetadata, IndexRules, IndexTarget, TargetPart};
use sstable::{Component, IndexComponent};

use crate::tests::indexes::building::wait_built;
use crate::tests::*;

const VECTOR: ColumnId = ColumnId(5);
const BY_VECTOR: Uuid = Uuid::from_u128(0xa1);
const BY_VALUE: Uuid = Uuid::from_u128(0xa2);
const BY_KEY: Uuid = Uuid::from_u128(0xa3);

fn below(rt: &Rt, count: u64) -> u64 {
    rt.random_u64() % count
}

fn index(id: Uuid, column: &str, options: &[(&str, &str)]) -> Arc<IndexMetadata> {
    let options = options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Arc::new(IndexMetadata {
        id,
        name: format!("by_{column}").into(),
        kind: IndexKind::Custom,
        options: options.collect(),
        target: IndexTarget { column: column.into(), part: TargetPart::Simple },
        rules: IndexRules::Sai,
    })
}

/// The table with a column `e` of vectors; `is_indexed`: with indexes of `e`, `pk` and `v`.
fn vector_schema(similarity: Similarity, dimensions: u32, is_indexed: bool) -> Arc<Schema> {
    let mut options = TableOptions { gc_grace_seconds: i32::MAX, ..TableOptions::default() };
    options.compaction.insert("enabled".to_owned(), "false".to_owned());
    let mut table = table(options);
    let ty = CqlType::vector(CqlType::Float, dimensions);
    let column = Column { id: VECTOR, name: "e".into(), ty, kind: ColumnKind::Regular };
    table.columns.insert(3, column);
    table.next_column_id = 6;
    table.version = 1 + u64::from(is_indexed);
    if is_indexed {
        table.indexes = [
            index(BY_VECTOR, "e", &[("similarity_function", similarity.name())]),
            index(BY_KEY, "pk", &[]),
            index(BY_VALUE, "v", &[]),
        ]
        .into_iter()
        .collect();
    }
    schema_of(vec![table])
}

async fn open_vectors(rt: &Rt, similarity: Similarity, dimensions: u32) -> Store {
    let schema = vector_schema(similarity, dimensions, true);
    Store::open(rt.clone(), options(rt), schema).await.unwrap().0
}

fn bytes_of(vector: &[f32]) -> Vec<u8> {
    vector.iter().flat_map(|x| x.to_be_bytes()).collect()
}

/// A write of the vector of a row.
enum Change<'v> {
    Set(&'v [f32]),
    /// It has expired.
    Expired(&'v [f32]),
    Delete,
    Nothing,
}

fn put(pk: i32, ck: i32, change: &Change<'_>, value: Option<&str>, timestamp: i64) -> Vec<u8> {
    let at = TimestampMicros(timestamp);
    let mut row = Vec::new();
    let live = Liveness::new(at);
    let mut builder = RowBuilder::new(&mut row, live, DeletionTime::LIVE, TimestampMicros(0));
    if let Some(value) = value {
        builder.cell(VALUE, &CellRef::live(at, value.as_bytes()));
    }
    match change {
        Change::Set(vector) => builder.cell(VECTOR, &CellRef::live(at, &bytes_of(vector))),
        Change::Expired(vector) => {
            let past = DeletionSeconds(NOW.0 - 100);
            let ttl = stdx::TtlSeconds(1_000);
            builder.cell(VECTOR, &CellRef::expiring(at, ttl, past, &bytes_of(vector)));
        }
        Change::Delete => {
            builder.cell(VECTOR, &CellRef::tombstone(at, DeletionSeconds(1_000_000)));
        }
        Change::Nothing => {}
    }
    builder.finish();
    let clustering = clustering(ck);
    encode(pk, |m| m.rows([(clustering.as_slice(), RowRef::trusted(&row))].into_iter()))
}

/// A row with its score.
type Scored = (f32, i32, i32);

/// All rows of a read with their vectors and values, in table order.
#[derive(Default)]
struct Rows {
    pk: i32,
    rows: Vec<(i32, i32, Vec<f32>, Option<String>)>,
}

impl RowSink for Rows {
    fn partition(&mut self, _: Token, key: &[u8], _: Option<RowRef<'_>>) -> Flow {
        self.pk = i32::from_be_bytes(key.try_into().unwrap());
        Flow::Continue
    }

    fn row(&mut self, clustering: &[u8], row: RowRef<'_>) -> Flow {
        if let Some(ColumnRef::Simple(cell)) = row.column(VECTOR) {
            let vector = floats_of(cell.value, cell.value.len() / 4).unwrap();
            self.rows.push((self.pk, ck_of(clustering), vector, text_of(row, VALUE)));
        }
        Flow::Continue
    }

    fn partition_end(&mut self) -> Flow {
        Flow::Continue
    }
}

fn ck_of(clustering: &[u8]) -> i32 {
    let value = data::clustering::components(clustering).next().unwrap().unwrap();
    i32::from_be_bytes(value.try_into().unwrap())
}

/// All rows of the search that have a vector and the value, nearest first.
async fn brute_force(
    store: &Store,
    similarity: Similarity,
    search: &VectorSearch,
    value: Option<&str>,
) -> Vec<Scored> {
    let mut rows = Rows::default();
    store.read(&search.command, &mut rows).await.unwrap();
    let rows = rows.rows.iter().filter(|row| value.is_none() || row.3.as_deref() == value);
    let mut scored: Vec<Scored> =
        rows.map(|(pk, ck, of, _)| (similarity.score(&search.vector, of), *pk, *ck)).collect();
    // The order of the table is kept among equal scores.
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    scored
}

fn scored(neighbours: &Neighbours) -> Vec<Scored> {
    let of = |n: &index_format::search::Neighbour| {
        assert_eq!(n.token, codec::token_of(&n.key));
        let pk = i32::from_be_bytes(n.key.as_slice().try_into().unwrap());
        (n.score, pk, ck_of(n.clustering.as_ref().unwrap()))
    };
    neighbours.rows.iter().map(of).collect()
}

fn whole() -> ReadCommand {
    read_of(Partitions::Range(KeyRange::all()))
}

fn search_for(vector: &[f32], limit: u32) -> VectorSearch {
    let (command, vector) = (whole(), vector.to_vec());
    VectorSearch { command, index: BY_VECTOR, vector, limit, predicates: Vec::new() }
}

fn value_is(value: &str) -> IndexPredicate {
    IndexPredicate {
        index: BY_VALUE,
        ranges: vec![TermRange::equal(value.as_bytes())],
        filter: None,
    }
}

/// A vector of few possible ones, so that many rows have equal scores.
fn coarse(rt: &Rt) -> [f32; 3] {
    let one = || below(rt, 5) as f32 - 2.0;
    [one(), one(), one() + 0.5]
}

/// A partition, a part of the ring, or all.
fn random_command(rt: &Rt) -> ReadCommand {
    match below(rt, 5) {
        0 => read_of(Partitions::Key(key(below(rt, 40) as i32))),
        1 => {
            let slices = Arc::new(slice(0, 20 + below(rt, 30) as i32));
            let partitions = Partitions::Key(key(below(rt, 40) as i32));
            ReadCommand { slices, ..read_of(partitions) }
        }
        2 => {
            let mut ends = [rt.random_u64(), rt.random_u64()].map(|n| Token(n.cast_signed()));
            ends.sort_unstable();
            let [start, end] = ends.map(|token| RingBound::Token { token, after: true });
            read_of(Partitions::Range(KeyRange { start, end }))
        }
        _ => whole(),
    }
}

/// Answers equal those of a comparison with all merged rows. Returns the rows found.
async fn check(rt: &Rt, store: &Store, similarity: Similarity) -> usize {
    let mut found = 0;
    for _ in 0..8 {
        let mut search = search_for(&coarse(rt), 1 + below(rt, 120) as u32);
        search.command = random_command(rt);
        let value = (below(rt, 3) == 0).then(|| format!("v{}", below(rt, 4)));
        search.predicates.extend(value.iter().map(|value| value_is(value)));
        let all = brute_force(store, similarity, &search, value.as_deref()).await;
        let neighbours = store.reader().search_vectors(&search).await.unwrap();
        let nearest: Vec<Scored> = all.iter().take(search.limit as usize).copied().collect();
        assert_eq!(scored(&neighbours), nearest, "{search:?}");
        if all.len() > search.limit as usize {
            assert!(!neighbours.is_exhausted, "{search:?}");
        } else if all.len() < search.limit as usize {
            assert!(neighbours.is_exhausted, "{search:?}");
        }
        found += nearest.len();
    }
    found
}

/// Writes random changes of 2,000 rows; files and memtables stay below the size from which a graph is built.
async fn change(rt: &Rt, store: &Store, count: i64, from: i64) {
    for timestamp in from..from + count {
        let (pk, ck) = (below(rt, 40) as i32, below(rt, 50) as i32);
        let vector = coarse(rt);
        let value = format!("v{}", below(rt, 4));
        let at = timestamp + below(rt, 5) as i64;
        let mutation = match below(rt, 40) {
            0 => delete_row(pk, ck, at),
            1 if below(rt, 4) == 0 => delete_partition(pk, at),
            2 => delete_range(pk, ck, ck + 5, at),
            3 => put(pk, ck, &Change::Expired(&vector), None, at),
            4 => put(pk, ck, &Change::Delete, None, at),
            5 => put(pk, ck, &Change::Nothing, Some(&value), at),
            _ => put(pk, ck, &Change::Set(&vector), Some(&value), at),
        };
        write(store, &mutation).await.unwrap();
        if below(rt, 300) == 0 {
            store.flush(None).await.unwrap();
        }
    }
}

#[test]
fn the_nearest_rows_are_those_of_all_merged_rows() {
    let found = Arc::new(Mutex::new(0));
    for seed in 0..6 {
        let found = found.clone();
        run(seed, move |rt| {
            let found = found.clone();
            async move {
                let similarity = Similarity::ALL[seed as usize % 3];
                let store = open_vectors(&rt, similarity, 3).await;
                let mut sum = 0;
                for round in 0..5 {
                    change(&rt, &store, 700, round * 1_000 + 1).await;
                    sum += check(&rt, &store, similarity).await;
                }
                *found.lock().unwrap() += sum;
            }
        });
    }
    assert!(*found.lock().unwrap() > 3_000, "{found:?} rows");
    let reached = stdx::probe::reached_names();
    for way in ["vector-search-all", "vector-search-walk", "vector-search-matches"] {
        assert!(reached.contains(&way), "{way}");
    }
}

/// Files without the component are compared row by row, damaged ones too.
#[test]
fn a_lost_or_damaged_component_hides_no_row() {
    for seed in 0..6 {
        run(seed, move |rt| async move {
            let similarity = Similarity::ALL[seed as usize % 3];
            let store = open_vectors(&rt, similarity, 3).await;
            change(&rt, &store, 2_500, 1).await;
            store.flush(None).await.unwrap();
            let view = store.tables().table(TABLE).unwrap().view();
            let (mut damaged, mut lost) = (0, 0);
            for file in &view.files {
                let component = match below(&rt, 3) {
                    0 => IndexComponent::Rows,
                    _ => IndexComponent::Entries(BY_VECTOR),
                };
                if below(&rt, 2) == 0 {
                    let what = "lost by the test".to_owned();
                    let error =
                        sstable::SstableError::Corrupt { file: String::new(), offset: 0, what };
                    file.reader.mark_index_damaged(component, &error);
                    lost += 1;
                } else {
                    let path = file.reader.meta().file(Component::Attached(component.name()));
                    flip(&rt, &path, 40).await;
                    damaged += 1;
                }
            }
            check(&rt, &store, similarity).await;
            let reported = view.files.iter().map(|file| file.reader.damaged_indexes().len());
            let reported: usize = reported.sum();
            assert!(reported > lost || damaged == 0, "{lost} {damaged} {reported}");
        });
    }
}

async fn flip(rt: &Rt, path: &str, at: u64) {
    let options = OpenOptions { read: true, write: true, ..OpenOptions::default() };
    let file = rt.fs().open(path, options).await.unwrap();
    let byte = file.read_exact_at(at, 1).await.unwrap().as_slice()[0] ^ 0x10;
    file.write_at(Buf::from(vec![byte]), at).await.1.unwrap();
}

/// Random vectors of 12 dimensions.
fn fine(rt: &Rt) -> Vec<f32> {
    (0..12).map(|_| below(rt, 20_001) as f32 / 10_000.0 - 1.0).collect()
}

async fn recall(rt: &Rt, store: &Store, similarity: Similarity, command: &ReadCommand) -> f64 {
    let (mut hits, mut all_hits) = (0, 0);
    for _ in 0..20 {
        let mut search = search_for(&fine(rt), 10);
        search.command = command.clone();
        let all = brute_force(store, similarity, &search, None).await;
        let found = scored(&store.reader().search_vectors(&search).await.unwrap());
        let order = |a: &Scored, b: &Scored| b.0.total_cmp(&a.0);
        assert!(found.is_sorted_by(|a, b| order(a, b) != Ordering::Greater), "{found:?}");
        let keys: BTreeSet<(i32, i32)> = found.iter().map(|(_, pk, ck)| (*pk, *ck)).collect();
        assert_eq!((keys.len(), found.len()), (10, 10));
        // Each is a row with this score.
        assert!(found.iter().all(|row| all.contains(row)), "{found:?}");
        hits += all.iter().take(10).filter(|(_, pk, ck)| keys.contains(&(*pk, *ck))).count();
        all_hits += 10;
    }
    hits as f64 / f64::from(all_hits)
}

/// Files with graphs, before and after 1 of 3 rows got another vector or lost it.
#[test]
fn graphs_find_nearly_all_of_the_nearest_also_after_changes() {
    for similarity in Similarity::ALL {
        run(7, move |rt| async move {
            let store = open_vectors(&rt, similarity, 12).await;
            for number in 0..3_000 {
                let vector = fine(&rt);
                let mutation = put(number % 60, number, &Change::Set(&vector), None, 1);
                write(&store, &mutation).await.unwrap();
            }
            store.flush(None).await.unwrap();
            let file = &store.tables().table(TABLE).unwrap().view().files[0];
            let segments = file.reader.index(BY_VECTOR).unwrap().vectors().unwrap().clone();
            assert!(segments.iter().all(|segment| !segment.is_exact()));
            assert_eq!(segments.iter().map(|segment| segment.nodes).sum::<u32>(), 3_000);
            let before = recall(&rt, &store, similarity, &whole()).await;
            for number in (0..3_000).step_by(3) {
                let vector = fine(&rt);
                let change = match below(&rt, 4) {
                    0 => Change::Delete,
                    _ => Change::Set(&vector),
                };
                let mutation = put(number % 60, number, &change, None, 2);
                write(&store, &mutation).await.unwrap();
                if number == 1_500 {
                    store.flush(None).await.unwrap();
                }
            }
            let after = recall(&rt, &store, similarity, &whole()).await;
            let start = RingBound::Token { token: Token(-1 << 61), after: true };
            let range = KeyRange { start, ..KeyRange::all() };
            let part = read_of(Partitions::Range(range));
            let part = recall(&rt, &store, similarity, &part).await;
            store.flush(None).await.unwrap();
            store.compactor().compact_major(TABLE).await.unwrap();
            let compacted = recall(&rt, &store, similarity, &whole()).await;
            let all = [before, after, part, compacted];
            assert!(all.iter().all(|recall| *recall >= 0.95), "{similarity:?} {all:?}");
        });
    }
}

/// Rows whose vectors were better once must not take the places of others, and a walk that meets only such ends early.
#[test]
fn rows_that_lost_their_vectors_displace_none() {
    run(3, |rt| async move {
        let similarity = Similarity::Euclidean;
        let store = open_vectors(&rt, similarity, 12).await;
        for number in 0..7_000 {
            let near = fine(&rt).iter().map(|x| x / 100.0).collect::<Vec<f32>>();
            let mutation = put(number % 60, number, &Change::Set(&near), None, 1);
            write(&store, &mutation).await.unwrap();
        }
        store.flush(None).await.unwrap();
        for number in 0..7_000 {
            let far: Vec<f32> = fine(&rt).iter().map(|x| x + 5.0).collect();
            let change = if number % 500 == 0 { Change::Set(&far) } else { Change::Delete };
            write(&store, &put(number % 60, number, &change, None, 2)).await.unwrap();
        }
        store.flush(None).await.unwrap();
        let search = search_for(&[0.0; 12], 20);
        let all = brute_force(&store, similarity, &search, None).await;
        assert_eq!(all.len(), 14);
        let neighbours = store.reader().search_vectors(&search).await.unwrap();
        assert_eq!(scored(&neighbours), all);
        assert!(neighbours.is_exhausted);
    });
}

#[test]
fn an_index_made_later_has_the_vectors_of_earlier_files() {
    run(5, |rt| async move {
        let similarity = Similarity::DotProduct;
        let schema = vector_schema(similarity, 3, false);
        let store = Store::open(rt.clone(), options(&rt), schema).await.unwrap().0;
        change(&rt, &store, 2_000, 1).await;
        store.flush(None).await.unwrap();
        let search = search_for(&[1.0, 0.0, 0.5], 5);
        check_refused(&store, &search).await;
        store.set_schema(vector_schema(similarity, 3, true));
        check_refused(&store, &search).await;
        wait_built(&rt, &store).await;
        check(&rt, &store, similarity).await;
    });
}

async fn check_refused(store: &Store, search: &VectorSearch) {
    let error = store.reader().search_vectors(search).await.unwrap_err();
    assert_eq!(error, StoreError::IndexNotAvailable { index: BY_VECTOR });
}

#[test]
fn impossible_searches_are_refused() {
    run(1, |rt| async move {
        let store = open_vectors(&rt, Similarity::Cosine, 3).await;
        wait_built(&rt, &store).await;
        let refused = |search: VectorSearch| {
            let store = &store;
            async move { store.reader().search_vectors(&search).await.unwrap_err().to_string() }
        };
        let zero = refused(search_for(&[0.0; 3], 1)).await;
        assert!(zero.contains("Zero vectors cannot be indexed or queried"), "{zero}");
        let infinite = refused(search_for(&[0.0, f32::INFINITY, 1.0], 1)).await;
        assert!(infinite.contains("non-finite value at vector[1]=Infinity"), "{infinite}");
        let short = refused(search_for(&[1.0; 2], 1)).await;
        assert!(short.contains("another number of dimensions"), "{short}");
        let none = refused(search_for(&[1.0; 3], 0)).await;
        assert!(none.contains("for 0 rows"), "{none}");
        let of_terms = VectorSearch { index: BY_VALUE, ..search_for(&[1.0; 3], 1) };
        let of_terms = refused(of_terms).await;
        assert!(of_terms.contains("needs an index of vectors"), "{of_terms}");
        let mut with_vectors = search_for(&[1.0; 3], 1);
        let ranges = vec![TermRange::all()];
        with_vectors.predicates.push(IndexPredicate { index: BY_VECTOR, ranges, filter: None });
        let with_vectors = refused(with_vectors).await;
        assert!(with_vectors.contains("has no terms"), "{with_vectors}");
        // A table without rows.
        let nothing = store.reader().search_vectors(&search_for(&[1.0; 3], 1)).await.unwrap();
        assert_eq!(nothing, Neighbours::none());
    });
}
