//! Carries the cached state of files over to the files that replace them. A compaction writes its outputs
//! beside the page cache. Without this, all hot data would be read from the disk again, at once.
//!
//! A chunk of an output is cached when rows in it come from cached chunks. The cached bytes are at most
//! those found of the inputs, and a chunk for each of its stretches, so a compaction of cold files changes
//! nothing there. The output of a flush was in memory: for a table that is read it is cached as long as
//! nothing must be evicted for it.

use std::rc::Rc;

use sstable::Chunk;

use crate::files::chunk_cache::ChunkCache;
use crate::read::merging::Merging;
use crate::read::sources::Source;

/// Blocks by number, of the file with that number in the chunk cache.
pub(crate) type WarmBlocks = (u64, Vec<(u64, Rc<Chunk>)>);

/// Which inputs of a merge stand on a chunk that is cached.
pub(crate) struct Warmth {
    inputs: Vec<Input>,
    /// Some input stands on a chunk that is cached.
    is_any_cached: bool,
}

struct Input {
    /// Its number in the cache.
    file: u64,
    /// The current chunk is cached.
    is_cached: bool,
    /// It has the current partition.
    is_in: bool,
}

impl Warmth {
    pub(crate) fn new(merge: &impl Merging) -> Warmth {
        let file = |source: &Source| source.file().map_or(0, |source| source.file.id);
        let inputs = merge.inputs().map(file);
        let inputs = inputs.map(|file| Input { file, is_cached: false, is_in: false });
        Warmth { inputs: inputs.collect(), is_any_cached: false }
    }

    /// An input continues with another chunk. Returns how many chunks of outputs may be cached for
    /// it. Files that only hide data are no inputs.
    pub(crate) fn feed(&mut self, cache: &ChunkCache, input: usize, block: u64) -> usize {
        let Some(input) = self.inputs.get_mut(input) else { return 0 };
        let was_cached = input.is_cached;
        input.is_cached = cache.has(input.file, block);
        let is_cached = input.is_cached;
        self.is_any_cached = self.inputs.iter().any(|input| input.is_cached);
        match (was_cached, is_cached) {
            (_, false) => 0,
            (true, true) => 1,
            // The data of n chunks spans n + 1 chunks where it does not begin at a chunk's start.
            (false, true) => 2,
        }
    }

    /// Returns true if some input is at a cached chunk. If false, the next data is not warm,
    /// whichever input has it.
    #[inline]
    pub(crate) fn is_any_cached(&self) -> bool {
        self.is_any_cached
    }

    /// The merge reaches a partition that these inputs have.
    pub(crate) fn partition_of(&mut self, members: impl Iterator<Item = usize>) {
        self.inputs.iter_mut().for_each(|input| input.is_in = false);
        for number in members {
            if let Some(input) = self.inputs.get_mut(number) {
                input.is_in = true;
            }
        }
    }

    /// The merge stands on a partition: how many inputs have it.
    pub(crate) fn partition(&mut self, merge: &impl Merging) -> usize {
        let mut inputs = 0;
        for (input, is_in) in self.inputs.iter_mut().zip(merge.members()) {
            input.is_in = is_in;
            inputs += usize::from(is_in);
        }
        inputs
    }

    /// Returns true if data of the current partition may come from a cached chunk.
    pub(crate) fn is_warm(&self) -> bool {
        self.is_any_cached && self.inputs.iter().any(|input| input.is_in && input.is_cached)
    }
}

impl ChunkCache {
    /// Caches blocks of a file that is being written as long as nothing must be evicted for them.
    /// False: the cache is full.
    pub(crate) fn fill(&self, file: u64, blocks: Vec<(u64, Rc<Chunk>)>) -> bool {
        for (block, chunk) in blocks {
            if !self.has_room(chunk.memory_bytes()) {
                return false;
            }
            self.insert(file, block, chunk);
        }
        true
    }
}
