//! Recall and cost of an index of vectors, beside a comparison with all of them.
//!
//! `recall DIMENSIONS COUNT QUERIES < vectors`: little-endian floats, as the data of an `.npy` file of `f4` (a header of
//! that format is skipped). The first QUERIES of COUNT vectors are searched for among the others, which are built
//! into one segment. Prints recall@10, the nodes and blocks that a search looks at, and the rows that a reader scores until
//! none could be better. Instructions: below `perf stat -e instructions:u`.

#![expect(clippy::disallowed_macros, reason = "a measurement prints")]
#![expect(clippy::disallowed_types, reason = "a measurement reads its input and the clock")]

use std::collections::BTreeSet;
use std::io::Read;
use std::sync::Arc;
use std::time::Instant;

use ann::component::GraphOptions;
use ann::{
    BuildStep, RowFilter, Search, SearchOptions, SearchStep, Similarity, VectorDirectory,
    VectorSummary, VectorWriter,
};
use bytes::Bytes;
use index_format::summary::{ComponentKind, FOOTER_BYTES};
use index_format::{Block, BlockRef, Footer};
use stdx::FixedMap;
use uuid::Uuid;

/// Rows that are searched for.
const K: usize = 10;

struct Component {
    bytes: Bytes,
    blocks: FixedMap<u64, Block>,
    loads: u64,
}

impl Component {
    fn block(&mut self, at: BlockRef) -> Block {
        self.loads += 1;
        let bytes = &self.bytes;
        let read = || {
            let start = usize::try_from(at.offset).unwrap_or(0);
            Block::open(at, bytes.slice(start..start + at.length as usize)).expect("a block")
        };
        self.blocks.entry(at.offset).or_insert_with(read).clone()
    }
}

fn build(vectors: &[Vec<f32>], similarity: Similarity) -> (Component, Arc<VectorSummary>) {
    let (id, options) = (Uuid::nil(), GraphOptions::default());
    let dimensions = vectors.first().map_or(1, Vec::len);
    let mut writer =
        VectorWriter::new(id, 0, similarity, dimensions, options, usize::MAX).expect("one");
    let mut rows = 0;
    for vector in vectors {
        if writer.push(rows, vector).is_ok() {
            rows += 1;
        }
    }
    let (began, mut longest) = (Instant::now(), 0);
    loop {
        let step = Instant::now();
        let outcome = writer.build().expect("a step");
        longest = longest.max(step.elapsed().as_micros());
        if outcome == BuildStep::Done {
            break;
        }
    }
    println!("  built {rows} in {:?}, longest step {longest} us", began.elapsed());
    writer.finish(rows).expect("a component");
    let bytes = Bytes::from(writer.take_output());
    println!("  {} bytes a vector", bytes.len() / rows.max(1) as usize);
    let length = bytes.len() as u64;
    let footer = Footer::read(ComponentKind::Vectors, &bytes[bytes.len() - FOOTER_BYTES..], length);
    let mut component = Component { bytes, blocks: FixedMap::default(), loads: 0 };
    let directory = component.block(footer.expect("a footer").summary);
    let directory = VectorDirectory::read(directory).expect("a directory");
    let segment = component.block(directory.segments[0]);
    let summary = VectorSummary::read(segment, &directory).expect("a summary");
    (component, Arc::new(summary))
}

fn measure(all: &[Vec<f32>], queries: &[Vec<f32>], similarity: Similarity) {
    println!("{}", similarity.name());
    let (mut component, summary) = build(all, similarity);
    let score = |query: &[f32], row: u32| similarity.score(query, &all[row as usize]);
    let best: Vec<BTreeSet<u32>> = queries
        .iter()
        .map(|query| {
            let rows = 0..u32::try_from(all.len()).unwrap_or(0);
            let mut scored: Vec<(f32, u32)> = rows.map(|row| (-score(query, row), row)).collect();
            scored.select_nth_unstable_by(K, |a, b| a.0.total_cmp(&b.0));
            scored.iter().take(K).map(|(_, row)| *row).collect()
        })
        .collect();
    for beam in [32, 64, 128, 256] {
        let (mut hits, mut nodes, mut read) = (0, 0, 0);
        component.loads = 0;
        let began = Instant::now();
        for (query, best) in queries.iter().zip(&best) {
            let options = SearchOptions { beam, filter: RowFilter::All };
            let mut search = Search::new(summary.clone(), query, options).expect("a search");
            let mut found: Vec<(f32, u32)> = Vec::new();
            loop {
                match search.advance().expect("a step") {
                    SearchStep::NeedBlock(at) => search.feed(component.block(at)),
                    SearchStep::End => break,
                    SearchStep::Row { row, most, .. } => {
                        if found.len() == K && found[K - 1].0 >= most {
                            break;
                        }
                        read += 1;
                        found.push((score(query, row), row));
                        found.sort_by(|a, b| b.0.total_cmp(&a.0));
                        found.truncate(K);
                    }
                }
            }
            nodes += search.nodes_seen();
            hits += found.iter().filter(|(_, row)| best.contains(row)).count();
        }
        let count = queries.len().max(1);
        println!(
            "  beam {beam}: recall {:.4}, {:?} a search, {} nodes, {} blocks, {} rows scored",
            hits as f64 / (count * K) as f64,
            began.elapsed() / u32::try_from(count).unwrap_or(1),
            nodes / count,
            component.loads / count as u64,
            read / count,
        );
    }
}

fn main() {
    let mut numbers = std::env::args().skip(1).map(|n| n.parse::<usize>().expect("a number"));
    let mut number = || numbers.next().expect("DIMENSIONS COUNT QUERIES");
    let (dimensions, count, queries) = (number(), number(), number());
    let mut bytes = Vec::new();
    std::io::stdin().read_to_end(&mut bytes).expect("vectors");
    let start = match bytes.starts_with(b"\x93NUMPY") {
        true => 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]])),
        false => 0,
    };
    let floats = bytes[start..].as_chunks::<4>().0.iter().map(|x| f32::from_le_bytes(*x));
    let floats: Vec<f32> = floats.take(dimensions * count).collect();
    let mut vectors: Vec<Vec<f32>> = floats.chunks_exact(dimensions).map(<[f32]>::to_vec).collect();
    vectors.retain(|vector| vector.iter().any(|x| *x != 0.0));
    let all = vectors.split_off(queries.min(vectors.len()));
    for similarity in Similarity::ALL {
        measure(&all, &vectors, similarity);
    }
}
