use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use index_format::runs::Fill;
use index_format::summary::{ComponentKind, FOOTER_BYTES, HEADER_BYTES, read_header};
use index_format::{Block, BlockRef, Footer, IndexError};
use testkit::{Mutations, Random};
use uuid::Uuid;

use crate::Similarity;
use crate::component::{FLAT_MAX, GraphOptions, VectorDirectory, VectorSummary};
use crate::fuzz::fuzz_index_vectors;
use crate::search::{RowFilter, Search, SearchOptions, SearchStep};
use crate::writer::{BuildStep, VectorWriter};

/// Nearly normal: the sum of twelve uniform numbers.
pub(crate) fn gaussian(random: &mut Random) -> f32 {
    let uniform = |random: &mut Random| (random.next_u64() >> 40) as f32 / (1 << 24) as f32;
    (0..12).map(|_| uniform(random)).sum::<f32>() - 6.0
}

/// Clusters on a manifold of few dimensions, as embeddings are.
pub(crate) fn vectors(count: usize, dimensions: usize, seed: u64) -> Vec<Vec<f32>> {
    let mut random = Random::new(seed);
    let mut matrix = |rows: usize, columns: usize| -> Vec<Vec<f32>> {
        (0..rows).map(|_| (0..columns).map(|_| gaussian(&mut random)).collect()).collect()
    };
    let inner = 8;
    let projection = matrix(inner, dimensions);
    let centres = matrix(20, inner);
    let points = matrix(count, inner);
    let noise = matrix(count, dimensions);
    let project = |(at, (point, noise)): (usize, (Vec<f32>, Vec<f32>))| {
        let inside = point.iter().zip(&centres[at % 20]).map(|(x, c)| 0.5 * x + c);
        let mut out: Vec<f32> = noise.iter().map(|x| 0.1 * x).collect();
        for (x, row) in inside.zip(&projection) {
            out.iter_mut().zip(row).for_each(|(out, p)| *out += x * p);
        }
        out
    };
    points.into_iter().zip(noise).enumerate().map(project).collect()
}

struct InMemory {
    bytes: Bytes,
    segments: Vec<Arc<VectorSummary>>,
}

fn build(vectors: &[Vec<f32>], similarity: Similarity, options: GraphOptions) -> InMemory {
    build_within(usize::MAX, vectors, similarity, options)
}

/// Vector n is row 2n + 1.
fn build_within(
    budget_bytes: usize,
    vectors: &[Vec<f32>],
    similarity: Similarity,
    options: GraphOptions,
) -> InMemory {
    let rows = vectors.len() as u32 * 2 + 5;
    let dimensions = vectors.first().map_or(1, Vec::len);
    let id = Uuid::nil();
    let mut writer =
        VectorWriter::new(id, 7, similarity, dimensions, options, budget_bytes).unwrap();
    let mut bytes = Vec::new();
    let mut finish_segment = |writer: &mut VectorWriter| {
        while writer.build().unwrap() == BuildStep::More {
            bytes.extend(writer.take_output());
        }
        bytes.extend(writer.take_output());
    };
    for (at, vector) in vectors.iter().enumerate() {
        if writer.push(at as u32 * 2 + 1, vector).unwrap() == Fill::Full {
            finish_segment(&mut writer);
        }
    }
    finish_segment(&mut writer);
    writer.finish(rows).unwrap();
    bytes.extend(writer.take_output());
    InMemory::open(bytes.into()).unwrap()
}

impl InMemory {
    fn open(bytes: Bytes) -> Result<InMemory, IndexError> {
        let kind = ComponentKind::Vectors;
        let header = read_header(kind, &bytes[..HEADER_BYTES.min(bytes.len())])?;
        assert_eq!(header, (Uuid::nil(), 7));
        let tail = bytes.len().saturating_sub(FOOTER_BYTES);
        let footer = Footer::read(kind, &bytes[tail..], bytes.len() as u64)?;
        let directory = VectorDirectory::read(read(&bytes, footer.summary)?)?;
        let segment = |at: &BlockRef| VectorSummary::read(read(&bytes, *at)?, &directory);
        let segments = directory.segments.iter().map(|at| segment(at).map(Arc::new));
        let segments = segments.collect::<Result<Vec<_>, _>>()?;
        Ok(InMemory { bytes, segments })
    }

    /// At most `limit` rows of each segment.
    fn search(
        &self,
        query: &[f32],
        beam: usize,
        filter: RowFilter,
        limit: usize,
    ) -> Result<Vec<(u32, f32)>, IndexError> {
        let steps = self.steps(query, beam, filter, limit)?;
        Ok(steps.into_iter().map(|(row, score, _)| (row, score)).collect())
    }

    /// Rows with their scores and the most that these may be.
    fn steps(
        &self,
        query: &[f32],
        beam: usize,
        filter: RowFilter,
        limit: usize,
    ) -> Result<Vec<(u32, f32, f32)>, IndexError> {
        let mut found = Vec::new();
        for segment in &self.segments {
            let options = SearchOptions { beam, filter: filter.clone() };
            let mut search = Search::new(segment.clone(), query, options)?;
            let before = found.len();
            while found.len() - before < limit {
                match search.advance()? {
                    SearchStep::Row { row, score, most } => found.push((row, score, most)),
                    SearchStep::NeedBlock(at) => search.feed(read(&self.bytes, at)?),
                    SearchStep::End => break,
                }
            }
        }
        Ok(found)
    }
}

fn read(bytes: &Bytes, at: BlockRef) -> Result<Block, IndexError> {
    let start = usize::try_from(at.offset).unwrap_or(usize::MAX).min(bytes.len());
    let end = start.saturating_add(at.length as usize).min(bytes.len());
    Block::open(at, bytes.slice(start..end))
}

/// Rows by exact score, best first.
fn exact(vectors: &[Vec<f32>], query: &[f32], similarity: Similarity) -> Vec<u32> {
    let mut all: Vec<(f32, u32)> = (0..)
        .zip(vectors)
        .map(|(at, vector)| (-similarity.score(query, vector), at * 2 + 1))
        .collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    all.into_iter().map(|(_, row)| row).collect()
}

/// The best `k` of the candidates by the exact score of their rows.
fn rescored(
    vectors: &[Vec<f32>],
    query: &[f32],
    similarity: Similarity,
    found: &[(u32, f32)],
    k: usize,
) -> BTreeSet<u32> {
    let score = |row: u32| -similarity.score(query, &vectors[row as usize / 2]);
    let mut all: Vec<(f32, u32)> = found.iter().map(|(row, _)| (score(*row), *row)).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    all.into_iter().take(k).map(|(_, row)| row).collect()
}

#[test]
fn a_flat_list_is_exact() {
    for similarity in Similarity::ALL {
        let all = vectors(FLAT_MAX, 9, 1);
        let component = build(&all, similarity, GraphOptions::default());
        for query in vectors(10, 9, 2) {
            let found = component.search(&query, 1, RowFilter::All, usize::MAX).unwrap();
            let rows: Vec<u32> = found.iter().map(|(row, _)| *row).collect();
            assert_eq!(rows, exact(&all, &query, similarity), "{similarity:?}");
            for (row, score) in &found {
                assert_eq!(*score, similarity.score(&query, &all[*row as usize / 2]));
            }
        }
    }
}

/// INV-ann-2, also for vectors of which many are equal: those that pruning would leave unreachable.
#[test]
fn a_beam_of_all_rows_finds_each_once_and_the_exact_best() {
    let mut copies = vectors(30, 5, 3);
    let originals = copies.clone();
    (1..50).for_each(|_| copies.extend_from_slice(&originals));
    for all in [vectors(1_500, 12, 1), copies] {
        for similarity in Similarity::ALL {
            let component =
                build(&all, similarity, GraphOptions { degree: 8, ..Default::default() });
            for query in vectors(5, all[0].len(), 2) {
                for beam in [all.len(), 1] {
                    let found = component.search(&query, beam, RowFilter::All, usize::MAX).unwrap();
                    let rows: BTreeSet<u32> = found.iter().map(|(row, _)| *row).collect();
                    assert_eq!((found.len(), rows.len()), (all.len(), all.len()), "{similarity:?}");
                    let best = exact(&all, &query, similarity).into_iter().take(10).collect();
                    assert_eq!(rescored(&all, &query, similarity, &found, 10), best);
                }
            }
        }
    }
}

fn recall(all: &[Vec<f32>], component: &InMemory, similarity: Similarity, beam: usize) -> f64 {
    let k = 10;
    let queries = vectors(60, all[0].len(), 77);
    let mut hits = 0;
    for query in &queries {
        let found = component.search(query, beam, RowFilter::All, beam).unwrap();
        let best = exact(all, query, similarity).into_iter().take(k).collect();
        hits += rescored(all, query, similarity, &found, k).intersection(&best).count();
    }
    hits as f64 / (queries.len() * k) as f64
}

#[test]
fn recall_is_high_and_rises_with_the_beam() {
    for similarity in Similarity::ALL {
        let all = vectors(6_000, 32, 5);
        let component = build(&all, similarity, GraphOptions::default());
        let [narrow, usual, wide] = [12, 50, 200].map(|b| recall(&all, &component, similarity, b));
        // Inner products of vectors of any length are the hard case.
        let least = if similarity == Similarity::DotProduct { 0.9 } else { 0.95 };
        assert!(usual >= least && wide >= 0.99, "{similarity:?} {narrow} {usual} {wide}");
        assert!(narrow < wide && usual <= wide + 0.005, "{similarity:?} {narrow} {usual} {wide}");
    }
}

#[test]
fn a_filter_yields_its_rows_only_and_the_best_of_them() {
    let all = vectors(3_000, 16, 5);
    let component = build(&all, Similarity::Cosine, GraphOptions::default());
    let mut words = vec![0u64; 100];
    let allowed: Vec<u32> = (0..3_000u32).filter(|at| at % 10 == 3).map(|at| at * 2 + 1).collect();
    allowed.iter().for_each(|row| words[*row as usize / 64] |= 1 << (row % 64));
    let mut hits = 0;
    for query in vectors(20, 16, 6) {
        let filter = RowFilter::Bits(words.clone());
        let found = component.search(&query, 40, filter, 40).unwrap();
        assert!(found.len() == 40 && found.iter().all(|(row, _)| allowed.contains(row)));
        let best = exact(&all, &query, Similarity::Cosine);
        let best = best.into_iter().filter(|row| allowed.contains(row)).take(10).collect();
        let rescored = rescored(&all, &query, Similarity::Cosine, &found, 10);
        hits += rescored.intersection(&best).count();
    }
    assert!(hits >= 190, "{hits} of 200");
}

/// INV-ann-1.
#[test]
fn equal_seeds_give_equal_bytes() {
    let all = vectors(1_200, 10, 5);
    let of =
        |seed| build(&all, Similarity::Cosine, GraphOptions { seed, ..Default::default() }).bytes;
    assert!(of(1) == of(1));
    assert!(of(1) != of(2));
    // Replicas that build the same rows agree: a change of the order of additions shows here.
    assert_eq!(codec::crc32(&of(1)), GOLDEN_CRC, "{:#x}", codec::crc32(&of(1)));
}
const GOLDEN_CRC: u32 = 0x6a3c_e9dd;

/// A writer with little memory makes several segments; together they have every row, and the exact best.
#[test]
fn segments_have_all_rows_once() {
    let all = vectors(4_000, 12, 5);
    for similarity in Similarity::ALL {
        // About 1,500 vectors: two segments with a graph, and a list.
        let component =
            build_within(1_500 * (4 * 13 + 320), &all, similarity, GraphOptions::default());
        let are_exact: Vec<bool> = component.segments.iter().map(|s| s.is_exact()).collect();
        assert_eq!(are_exact, [false, false, true]);
        let of_segments: u32 = component.segments.iter().map(|s| s.nodes).sum();
        assert_eq!(of_segments, 4_000);
        for query in vectors(3, 12, 2) {
            let found = component.search(&query, 4_000, RowFilter::All, usize::MAX).unwrap();
            let rows: BTreeSet<u32> = found.iter().map(|(row, _)| *row).collect();
            assert_eq!((found.len(), rows.len()), (4_000, 4_000), "{similarity:?}");
            let some = component.search(&query, 10, RowFilter::Range(1_001..5_002), usize::MAX);
            let some: BTreeSet<u32> = some.unwrap().iter().map(|(row, _)| *row).collect();
            assert_eq!(some, rows.range(1_001..5_002).copied().collect());
            let best = exact(&all, &query, similarity).into_iter().take(10).collect();
            let found = component.search(&query, 50, RowFilter::All, 50).unwrap();
            let found = rescored(&all, &query, similarity, &found, 10);
            assert!(found.intersection(&best).count() >= 8, "{similarity:?}");
        }
    }
}

/// The bound of a row holds, and is near its score.
#[test]
fn the_score_of_a_vector_is_at_most_what_its_search_says() {
    let all = vectors(1_200, 24, 5);
    for similarity in Similarity::ALL {
        let component = build(&all, similarity, GraphOptions::default());
        let (mut beyond, mut wide) = (0, 0);
        // The dimension that gives all vectors one length has a range and steps of its own.
        let width = if similarity == Similarity::DotProduct { 0.2 } else { 0.05 };
        for query in vectors(10, 24, 9) {
            let found = component.steps(&query, 1_200, RowFilter::All, usize::MAX).unwrap();
            let scores = found.iter().map(|(_, score, _)| *score);
            let spread = scores.clone().fold(0f32, f32::max) - scores.fold(f32::MAX, f32::min);
            for (row, score, most) in found {
                let own = similarity.score(&query, &all[row as usize / 2]);
                beyond += usize::from(own > most);
                wide += usize::from(most - score > width * spread);
            }
        }
        assert!(beyond == 0 && wide < 300, "{similarity:?} {beyond} {wide} of 12,000");
    }
}

#[test]
fn a_writer_refuses_what_has_no_place() {
    let options = GraphOptions::default();
    let new = |dimensions| {
        VectorWriter::new(Uuid::nil(), 0, Similarity::Cosine, dimensions, options, usize::MAX)
    };
    assert!(new(0).is_err() && new(8_193).is_err());
    let mut writer = new(2).unwrap();
    let input = |what| IndexError::Input { what };
    let not_finite = input("vector with values that are not finite or too large");
    let dimensions = input("vector of another number of dimensions");
    assert_eq!(writer.push(3, &[1.0]), Err(dimensions));
    assert_eq!(writer.push(3, &[0.0, 0.0]), Err(input("zero vector")));
    assert_eq!(writer.push(3, &[f32::NAN, 0.0]), Err(not_finite));
    assert_eq!(writer.push(3, &[1.0, 0.0]), Ok(Fill::Room));
    let order = input("row out of order");
    assert_eq!(writer.push(3, &[1.0, 0.0]), Err(order.clone()));
    assert_eq!(writer.push(u32::MAX, &[1.0, 0.0]), Err(order.clone()));
    assert_eq!(writer.finish(10), Err(input("vectors without a segment")));
    while writer.build().unwrap() == BuildStep::More {}
    assert_eq!(writer.push(3, &[1.0, 0.0]), Err(order));
    assert_eq!(writer.finish(3), Err(input("row beyond the rows of the file")));
    assert!(writer.finish(4).is_ok());
}

#[test]
fn flipped_bytes_are_found_and_any_bytes_do_not_panic() {
    let options = GraphOptions { degree: 6, ..Default::default() };
    let small = build(&vectors(40, 3, 5), Similarity::Euclidean, options);
    let graph = build(&vectors(1_100, 3, 5), Similarity::DotProduct, options);
    for component in [&small, &graph] {
        let step = component.bytes.len() / 1_200 + 1;
        for at in (0..component.bytes.len()).step_by(step) {
            let mut bytes = component.bytes.to_vec();
            bytes[at] ^= 1 << (at % 8);
            let read = InMemory::open(bytes.into())
                .and_then(|read| read.search(&[1.0, 0.5, 0.25], 1, RowFilter::All, usize::MAX));
            assert!(read.is_err(), "byte {at}");
        }
    }
    Mutations::of([small.bytes]).run(fuzz_index_vectors);
    Mutations::of([graph.bytes]).rounds(300).run(fuzz_index_vectors);
}
