//! Reads of the nearest rows of replicas that differ: what they show is what a sort of everything shows. The search of a
//! shard is a scan of its own rows here.

use std::rc::Rc;

use cluster::Consistency;
use data::command::ReadCommand;
use data::{CellRef, RowFilter, RowRef};
use dist_testing::table::{
    TABLE, V, W, delete_partition, delete_range, delete_row, insert, update,
};
use dist_testing::{ORACLE, Random, Replicas};
use index_format::search::VECTOR_ROWS_MAX;
use index_format::{
    IndexPredicate, Neighbour, Neighbours, OptimizeFor, Similarity, TermRange, VectorIndex,
    VectorSearch,
};
use replica::VectorSearcher;
use request::{ReplicaError, RequestError};
use stdx::{TimestampMicros, Token, Uuid};
use store::{Flow, RowSink, Store, StoreError};

use super::filtered::{Values, live};
use super::indexed::{COMMON_W, OF_W};
use super::nodes::{Nodes, Options, TIMEOUT, all, one};
use crate::{IndexReadError, NearestError, NearestOrder, ReplicatedRead, SelectLimits};

const KEYS: i32 = 10;
/// The index of the vectors in column `v`: one float each.
const OF_VECTORS: Uuid = Uuid::from_u128(9);
/// No replica has it.
const UNBUILT: Uuid = Uuid::from_u128(4);
const VECTORS: VectorIndex = VectorIndex {
    similarity: Similarity::Euclidean,
    dimensions: 1,
    optimize_for: OptimizeFor::Latency,
};

fn score(vector: &[f32], row: RowRef<'_>) -> Option<f32> {
    let value = VECTORS.vector_of(&live(row, V)?)?;
    Some(VECTORS.similarity.score(vector, &value))
}

/// A row with its score.
#[derive(Clone, Debug, PartialEq)]
struct Scored {
    score: f32,
    token: Token,
    key: Vec<u8>,
    clustering: Vec<u8>,
    has_w: bool,
}

/// Collects rows in the order in which they are shown.
struct All<'a> {
    vector: &'a [f32],
    at: (Token, Vec<u8>),
    rows: Vec<Scored>,
}

impl All<'_> {
    fn new(vector: &[f32]) -> All<'_> {
        All { vector, at: (Token(0), Vec::new()), rows: Vec::new() }
    }

    /// Best first; equal ones stay in ring order.
    fn sorted(mut self) -> Vec<Scored> {
        self.rows.sort_by(|a, b| b.score.total_cmp(&a.score));
        self.rows
    }
}

impl RowSink for All<'_> {
    fn partition(&mut self, token: Token, key: &[u8], _: Option<RowRef<'_>>) -> Flow {
        self.at = (token, key.to_vec());
        Flow::Continue
    }

    fn row(&mut self, clustering: &[u8], row: RowRef<'_>) -> Flow {
        if let Some(score) = score(self.vector, row) {
            let ((token, key), clustering) = (self.at.clone(), clustering.to_vec());
            let has_w = live(row, W).is_some();
            self.rows.push(Scored { score, token, key, clustering, has_w });
        }
        Flow::Continue
    }

    fn partition_end(&mut self) -> Flow {
        Flow::Continue
    }
}

async fn search(store: &Store, search: &VectorSearch) -> Result<Neighbours, StoreError> {
    assert!((1..=VECTOR_ROWS_MAX).contains(&search.limit));
    if search.index == UNBUILT {
        return Err(StoreError::IndexNotAvailable { index: UNBUILT });
    }
    let mut rows = All::new(&search.vector);
    store.read(&search.command, &mut rows).await?;
    let mut rows = rows.sorted();
    rows.retain(|row| search.predicates.is_empty() || row.has_w);
    let is_exhausted = rows.len() <= search.limit as usize;
    rows.truncate(search.limit as usize);
    let rows = rows.into_iter().map(|Scored { score, token, key, clustering, .. }| Neighbour {
        score,
        token,
        key,
        clustering: Some(clustering),
    });
    Ok(Neighbours { rows: rows.collect(), is_exhausted })
}

/// The search of a shard: see the module.
pub(super) fn searcher(store: Store) -> VectorSearcher {
    Rc::new(move |asked| {
        let store = store.clone();
        Box::pin(async move { search(&store, &asked).await })
    })
}

/// A search by a vector.
#[derive(Clone, Debug)]
struct Asked {
    vector: f32,
    rows: u32,
    /// Rows with `w` only, by this index.
    by: Option<Uuid>,
    index: Uuid,
    bytes_max: usize,
}

impl Asked {
    fn random(nodes: &Nodes) -> Asked {
        Asked {
            vector: 8.0 + nodes.below(80) as f32 / 10.0,
            rows: 1 + nodes.below(12) as u32,
            by: [None, Some(OF_W), Some(COMMON_W)][nodes.below(3)],
            index: OF_VECTORS,
            bytes_max: usize::MAX,
        }
    }

    fn filter(&self) -> Option<Values> {
        self.by.map(|_| Values { v: 10, w: true, statics: 10, keys: 4 })
    }
}

fn read(
    nodes: &Nodes,
    n: u8,
    command: &ReadCommand,
    level: Consistency,
    asked: &Asked,
) -> Result<Vec<Scored>, NearestError> {
    let shards = if n == ORACLE { 1 } else { nodes.shards(n) };
    let shard = nodes.below(usize::from(shards)) as u16;
    let (command, asked) = (command.clone(), asked.clone());
    nodes.run_on(nodes.node(n, shard), move |node| async move {
        let order = ReplicatedRead {
            snapshot: node.snapshot.clone(),
            consistency: level,
            deadline: node.rt.now() + TIMEOUT,
            page_timeout: None,
            rows_wanted: usize::MAX,
            limits: SelectLimits { rows_per_partition: u32::MAX },
        };
        let table = node.snapshot.schema.table_by_id(TABLE).unwrap().clone();
        let ranges = vec![TermRange::all()];
        let predicates: Vec<_> = asked
            .by
            .map(|index| IndexPredicate { index, ranges, filter: None })
            .into_iter()
            .collect();
        let (filter, vector) = (asked.filter(), [asked.vector]);
        let order = NearestOrder {
            table: &table,
            index: asked.index,
            vectors: VECTORS,
            column: V,
            vector: &vector,
            rows: asked.rows,
            predicates: &predicates,
            filter: filter.as_ref().map(|filter| filter as &dyn RowFilter),
            replicas: (n != ORACLE).then_some(&order),
            trace: None,
            bytes_max: asked.bytes_max,
        };
        let mut sink = All::new(&vector);
        let index_reads = node.coordinator.scans().index_reads();
        index_reads.read_nearest(&command, &order, &mut sink).await?;
        Ok(sink.rows)
    })
}

/// The nearest rows that the oracle has, which pass.
fn expected(nodes: &Nodes, command: &ReadCommand, asked: &Asked) -> Vec<Scored> {
    let (command, asked) = (command.clone(), asked.clone());
    nodes.run_on(nodes.node(ORACLE, 0), move |node| async move {
        let vector = [asked.vector];
        let mut sink = All::new(&vector);
        node.coordinator.read(&command, usize::MAX, &mut sink).await.unwrap();
        let mut rows = sink.sorted();
        rows.retain(|row| row.has_w || asked.by.is_none());
        rows.truncate(asked.rows as usize);
        rows
    })
}

/// A write to rows of vectors. Text of four letters is a float between 8 and 16.
fn write(random: &mut Random, at: i64) -> Vec<u8> {
    let (pk, ck) = (random.below(KEYS as u64) as i32, random.below(6) as i32);
    let middle = char::from(b'0' + random.below(40) as u8);
    let (value, time) = (format!("A{middle}00"), TimestampMicros(at));
    match random.below(24) {
        0 => delete_partition(pk, at),
        1 => delete_range(pk, ck, ck + 2, at),
        2..=3 => delete_row(pk, ck, at),
        4..=9 => update(pk, ck, W, &CellRef::live(time, b"w")),
        // No vector.
        10 => update(pk, ck, V, &CellRef::live(time, b"no vector")),
        11..=17 => update(pk, ck, V, &CellRef::live(time, value.as_bytes())),
        _ => insert(pk, ck, &value, at),
    }
}

/// Three nodes; each write is on two of them, any two.
fn divergent_nodes(seed: u64) -> Nodes {
    let nodes = Nodes::start(&Options::new(seed));
    let mut random = Random(seed);
    let writes: Vec<_> = (1..=200)
        .map(|at| {
            let mutation = write(&mut random, at);
            let not = 1 + random.below(3) as u8;
            (mutation, (1..=3).filter(|n| *n != not).collect())
        })
        .collect();
    nodes.write_all(&writes);
    nodes
}

/// INV-coordinator-nearest-1.
#[test]
fn the_nearest_rows_at_quorum_are_those_of_a_sort_of_everything() {
    let mut seen = 0;
    for seed in 0..10 {
        let nodes = divergent_nodes(seed);
        for round in 0..16 {
            let level = [Consistency::Quorum, Consistency::All][round % 2];
            let asked = Asked::random(&nodes);
            let command = match nodes.below(4) {
                0 => one(nodes.below(KEYS as usize) as i32),
                _ => all(),
            };
            let command = ReadCommand { wants_static: false, ..command };
            let found = read(&nodes, nodes.any(), &command, level, &asked).unwrap();
            let expected = expected(&nodes, &command, &asked);
            assert_eq!(found, expected, "seed {seed}, {asked:?} at {level:?}");
            seen += found.len();
        }
    }
    assert!(seen > 500, "{seen} rows");
}

#[test]
fn a_node_alone_and_one_replica_of_equal_ones_give_the_nearest_rows_too() {
    for factor in [1, 3] {
        let nodes = Nodes::start(&Options { factor, ..Options::new(40 + u64::from(factor)) });
        let mut random = Random(7);
        let writes: Vec<_> = (1..=150).map(|at| (write(&mut random, at), vec![1, 2, 3])).collect();
        nodes.write_all(&writes);
        for _ in 0..12 {
            let asked = Asked::random(&nodes);
            let command = ReadCommand { wants_static: false, ..all() };
            let expected = expected(&nodes, &command, &asked);
            for n in [ORACLE, nodes.any()] {
                let found = read(&nodes, n, &command, Consistency::One, &asked).unwrap();
                assert_eq!(found, expected, "node {n}, factor {factor}, {asked:?}");
            }
        }
    }
}

#[test]
fn parts_of_a_row_that_pass_on_different_replicas_are_one_row() {
    let nodes = Nodes::start(&Options::new(7));
    let cell = |value: &'static str| CellRef::live(TimestampMicros(5), value.as_bytes());
    nodes.write_all(&[
        (insert(1, 1, "A~00", 1), vec![1, 2, 3]),
        (insert(1, 2, "AP00", 1), vec![1, 2, 3]),
        (update(1, 2, W, &cell("w")), vec![1, 2, 3]),
        // Its vector and `w` are on one replica together, and on the two others one of them each.
        (update(1, 1, V, &cell("A000")), vec![1, 2]),
        (update(1, 1, W, &cell("w")), vec![2, 3]),
    ]);
    for by in [OF_W, COMMON_W] {
        let asked =
            Asked { vector: 11.0, rows: 1, by: Some(by), index: OF_VECTORS, bytes_max: usize::MAX };
        let command = ReadCommand { wants_static: false, ..all() };
        for n in 1..=3 {
            let found = read(&nodes, n, &command, Consistency::Quorum, &asked).unwrap();
            assert_eq!(found, expected(&nodes, &command, &asked), "n{n}");
            assert_eq!(found.len(), 1);
        }
    }
}

#[test]
fn an_index_that_no_replica_has_or_knows_fails_the_read_with_that_reason() {
    let nodes = Nodes::start(&Options::new(8));
    let asked = Asked { by: None, index: UNBUILT, ..Asked::random(&nodes) };
    let fails = |asked: &Asked| {
        let read = read(&nodes, 1, &all(), Consistency::Quorum, asked);
        let Err(NearestError::Read(IndexReadError::Request(error))) = read else {
            panic!("{read:?}")
        };
        let RequestError::ReadFailure { failures, .. } = error else { panic!("{error:?}") };
        assert!(failures.iter().all(|(_, reason)| *reason == ReplicaError::IndexNotAvailable));
    };
    fails(&asked);
    nodes.grow_old(2);
    nodes.grow_old(3);
    fails(&Asked { index: OF_VECTORS, ..asked });
}

#[test]
fn rows_that_take_too_much_memory_are_refused() {
    let nodes = divergent_nodes(3);
    let asked = Asked { by: None, rows: 12, bytes_max: 1000, ..Asked::random(&nodes) };
    let read = read(&nodes, 1, &all(), Consistency::Quorum, &asked);
    assert!(matches!(read, Err(NearestError::TooLarge)), "{read:?}");
}
