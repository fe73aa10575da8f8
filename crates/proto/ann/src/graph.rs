//! Construction of a Vamana graph: points are added in a seeded order, each linked to a pruned set of the nodes that a
//! search for it visits, and back.
//!
//! Source of the method: Subramanya et al., DiskANN, NeurIPS 2019 (greedy search, robust prune), in its incremental form.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use index_format::distance::squared;

/// Shape of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphOptions {
    /// Neighbours of a node at most, 4 to 255.
    pub degree: usize,
    /// Nodes that a search during the construction keeps.
    pub beam: usize,
    /// Seed of the order in which points are added.
    pub seed: u64,
}

impl Default for GraphOptions {
    fn default() -> GraphOptions {
        GraphOptions { degree: 32, beam: 100, seed: 1 }
    }
}

/// Factor by which a neighbour must be nearer to another neighbour to be left out.
const ALPHA: f32 = 1.2;
/// Places of a node that pruning leaves to links that keep the graph connected.
const SPARE: usize = 2;

/// A node at a distance; the order is by distance, then by node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Near {
    pub(crate) distance: f32,
    pub(crate) node: u32,
}

impl Eq for Near {}

impl Ord for Near {
    fn cmp(&self, other: &Near) -> Ordering {
        self.distance.total_cmp(&other.distance).then(self.node.cmp(&other.node))
    }
}

impl PartialOrd for Near {
    fn partial_cmp(&self, other: &Near) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Work of the construction that is left.
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// The next vector of the mean.
    Mean(u32),
    /// The next vector whose distance to the mean is compared.
    Central(u32, Near),
    /// The next of the order.
    Add(usize),
    /// The next node to prune.
    Trim(usize),
    Connect,
    Done,
}

/// Vectors of which one step of [`GraphBuilder::step`] takes the mean.
const VECTORS_PER_STEP: u32 = 256;
/// Nodes that one step prunes.
const TRIMMED_PER_STEP: usize = 8;

/// A graph that is built step by step.
#[derive(Debug)]
pub(crate) struct GraphBuilder {
    vectors: Vec<f32>,
    dimensions: usize,
    options: GraphOptions,
    neighbours: Vec<Vec<u32>>,
    entry: u32,
    mean: Vec<f64>,
    /// `mean` as floats, when it is known.
    centre: Vec<f32>,
    order: Vec<u32>,
    phase: Phase,
    /// The last search that saw a node.
    seen: Vec<u32>,
    search: u32,
}

/// SplitMix64.
fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl GraphBuilder {
    /// A builder over vectors that lie one after another.
    pub(crate) fn new(vectors: Vec<f32>, dimensions: usize, options: GraphOptions) -> GraphBuilder {
        let count = vectors.len() / dimensions.max(1);
        GraphBuilder {
            vectors,
            dimensions,
            options: GraphOptions { degree: options.degree.clamp(4, 255), ..options },
            neighbours: vec![Vec::new(); count],
            entry: 0,
            mean: vec![0.0; dimensions],
            centre: Vec::new(),
            order: Vec::new(),
            phase: Phase::Mean(0),
            seen: vec![0; count],
            search: 0,
        }
    }

    /// The vectors.
    pub(crate) fn vectors(&self) -> &[f32] {
        &self.vectors
    }

    /// Neighbours of each node.
    pub(crate) fn neighbours(&self) -> &[Vec<u32>] {
        &self.neighbours
    }

    /// The node at which searches begin.
    pub(crate) fn entry(&self) -> u32 {
        self.entry
    }

    fn count(&self) -> u32 {
        u32::try_from(self.neighbours.len()).unwrap_or(u32::MAX)
    }

    /// Does a part of the work, about what one node costs. Returns true when the graph is complete.
    pub(crate) fn step(&mut self) -> bool {
        self.phase = match self.phase {
            Phase::Mean(from) => {
                let to = from.saturating_add(VECTORS_PER_STEP).min(self.count());
                self.add_to_mean(from..to);
                if to == self.count() {
                    let count = f64::from(self.count().max(1));
                    #[expect(clippy::cast_possible_truncation, reason = "a mean of f32 is one")]
                    let centre = self.mean.iter().map(|sum| (sum / count) as f32).collect();
                    self.centre = centre;
                    Phase::Central(0, Near { distance: f32::INFINITY, node: u32::MAX })
                } else {
                    Phase::Mean(to)
                }
            }
            Phase::Central(from, nearest) => {
                let to = from.saturating_add(VECTORS_PER_STEP).min(self.count());
                let distance = |node| squared(&self.centre, self.vector(node));
                let near = (from..to).map(|node| Near { distance: distance(node), node });
                let nearest = near.fold(nearest, Near::min);
                if to == self.count() {
                    self.entry = if nearest.node < to { nearest.node } else { 0 };
                    self.order = self.shuffled();
                    Phase::Add(0)
                } else {
                    Phase::Central(to, nearest)
                }
            }
            Phase::Add(at) => match self.order.get(at).copied() {
                Some(node) => {
                    self.add(node);
                    Phase::Add(at + 1)
                }
                None => Phase::Trim(0),
            },
            Phase::Trim(from) if from < self.neighbours.len() => {
                (from..from + TRIMMED_PER_STEP).for_each(|node| self.trim(node));
                Phase::Trim(from + TRIMMED_PER_STEP)
            }
            Phase::Trim(_) => Phase::Connect,
            Phase::Connect => {
                self.connect();
                Phase::Done
            }
            Phase::Done => Phase::Done,
        };
        matches!(self.phase, Phase::Done)
    }

    fn add_to_mean(&mut self, nodes: std::ops::Range<u32>) {
        let mut mean = std::mem::take(&mut self.mean);
        for node in nodes {
            let vector = self.vector(node);
            mean.iter_mut().zip(vector).for_each(|(sum, x)| *sum += f64::from(*x));
        }
        self.mean = mean;
    }

    /// All nodes but the entry, in a seeded order.
    fn shuffled(&self) -> Vec<u32> {
        let seed = self.options.seed;
        let mut order: Vec<u32> = (0..self.count()).filter(|node| *node != self.entry).collect();
        order.sort_by_cached_key(|node| (mix(seed ^ u64::from(*node) << 20), *node));
        order
    }

    fn vector(&self, node: u32) -> &[f32] {
        let start = node as usize * self.dimensions;
        self.vectors.get(start..start + self.dimensions).unwrap_or_default()
    }

    fn distance(&self, a: u32, b: u32) -> f32 {
        squared(self.vector(a), self.vector(b))
    }

    fn links(&self, node: u32) -> &[u32] {
        self.neighbours.get(node as usize).map_or(&[], Vec::as_slice)
    }

    /// The nodes that a search for a vector expands, nearest first.
    fn visit(&mut self, target: u32) -> Vec<Near> {
        self.search += 1;
        let beam = self.options.beam.max(1);
        let start = Near { distance: self.distance(target, self.entry), node: self.entry };
        self.see(self.entry);
        let mut open = BinaryHeap::from([Reverse(start)]);
        let mut best = BinaryHeap::from([start]);
        let mut visited = Vec::with_capacity(beam * 2);
        let mut fresh: Vec<u32> = Vec::new();
        while let Some(Reverse(near)) = open.pop() {
            if best.len() >= beam && best.peek().is_some_and(|worst| near > *worst) {
                break;
            }
            visited.push(near);
            fresh.clear();
            fresh.extend_from_slice(self.links(near.node));
            for node in &fresh {
                if !self.see(*node) {
                    continue;
                }
                let found = Near { distance: self.distance(target, *node), node: *node };
                if best.len() < beam || best.peek().is_some_and(|worst| found < *worst) {
                    open.push(Reverse(found));
                    best.push(found);
                    if best.len() > beam {
                        best.pop();
                    }
                }
            }
        }
        visited.sort_unstable();
        visited
    }

    /// Marks a node. Returns true if this search did not see it before.
    fn see(&mut self, node: u32) -> bool {
        let search = self.search;
        match self.seen.get_mut(node as usize) {
            Some(seen) => std::mem::replace(seen, search) != search,
            None => false,
        }
    }

    fn room(&self) -> usize {
        self.options.degree - SPARE
    }

    /// Selects, of candidates in ascending order, those that no nearer selected one hides.
    fn prune(&self, of: u32, candidates: &[Near]) -> Vec<u32> {
        let mut chosen: Vec<u32> = Vec::with_capacity(self.room());
        for candidate in candidates {
            if chosen.len() == self.room() {
                break;
            }
            let is_hidden = |other: &u32| {
                ALPHA * ALPHA * self.distance(*other, candidate.node) <= candidate.distance
            };
            if candidate.node != of && !chosen.iter().any(is_hidden) {
                chosen.push(candidate.node);
            }
        }
        chosen
    }

    fn add(&mut self, node: u32) {
        let visited = self.visit(node);
        let chosen = self.prune(node, &visited);
        // Pruning costs much; a third of slack makes it rare.
        let most = self.options.degree + self.options.degree / 3;
        for other in &chosen {
            let Some(links) = self.neighbours.get_mut(*other as usize) else { continue };
            links.push(node);
            if links.len() > most {
                self.trim(*other as usize);
            }
        }
        self.neighbours
            .get_mut(node as usize)
            .into_iter()
            .for_each(|links| *links = chosen.clone());
    }

    /// Prunes the links of a node that has too many.
    fn trim(&mut self, at: usize) {
        let node = u32::try_from(at).unwrap_or(u32::MAX);
        let Some(links) = self.neighbours.get(at).filter(|links| links.len() > self.room()) else {
            return;
        };
        let near = |other: &u32| Near { distance: self.distance(node, *other), node: *other };
        let mut candidates: Vec<Near> = links.iter().map(near).collect();
        candidates.sort_unstable();
        candidates.dedup();
        let chosen = self.prune(node, &candidates);
        self.neighbours.get_mut(at).into_iter().for_each(|links| *links = chosen.clone());
    }

    /// Links every node that the entry does not reach to a near one that it does (INV-ann-2).
    fn connect(&mut self) {
        let mut is_reached = vec![false; self.neighbours.len()];
        self.reach(self.entry, &mut is_reached);
        for node in 0..u32::try_from(self.neighbours.len()).unwrap_or(u32::MAX) {
            if is_reached.get(node as usize) == Some(&true) {
                continue;
            }
            let visited = self.visit(node);
            let has_room = |at: &u32| self.links(*at).len() < self.options.degree;
            let near = visited.iter().map(|near| near.node).find(has_room);
            // Every reached node has two spare places at first, one for each node that is linked to it.
            let all = 0..u32::try_from(self.neighbours.len()).unwrap_or(u32::MAX);
            let any = || {
                all.clone().find(|at| is_reached.get(*at as usize) == Some(&true) && has_room(at))
            };
            if let Some(from) = near.or_else(any) {
                self.neighbours.get_mut(from as usize).into_iter().for_each(|l| l.push(node));
                self.reach(node, &mut is_reached);
            }
        }
    }

    fn reach(&self, from: u32, is_reached: &mut [bool]) {
        let mut open = vec![from];
        while let Some(node) = open.pop() {
            let Some(reached) = is_reached.get_mut(node as usize) else { continue };
            if !std::mem::replace(reached, true) {
                open.extend_from_slice(self.links(node));
            }
        }
    }
}
