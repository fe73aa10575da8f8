//! The unit of caches: bytes of a file whose checksum was compared.

/// Verified, uncompressed bytes of one block.
#[derive(Debug)]
pub struct Chunk {
    bytes: Vec<u8>,
}

/// Memory of a chunk beside its bytes: itself, and the two counts of its `Rc`.
const OVERHEAD: usize = size_of::<Chunk>() + 2 * size_of::<usize>();

impl Chunk {
    /// A block of bytes that the caller verified.
    #[inline]
    pub fn new(bytes: Vec<u8>) -> Chunk {
        Chunk { bytes }
    }

    /// The bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Memory that the chunk holds, for cache budgets.
    #[inline]
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity().saturating_add(OVERHEAD)
    }
}
