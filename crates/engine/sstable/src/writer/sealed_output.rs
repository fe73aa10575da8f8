//! The encrypted bytes of one component that is written from front to back.

use at_rest::Sealer;
use rt::{ALIGN, Buf};

/// Blocks that are encrypted and wait for their request.
pub(super) struct SealedOutput {
    sealer: Sealer,
    /// Blocks after `front` bytes that are no part of the file.
    ready: Vec<u8>,
    /// Padding that aligns the blocks for direct IO.
    front: usize,
    is_direct: bool,
    /// Offset of the next block in the file.
    at: u64,
}

impl SealedOutput {
    pub(super) fn new(sealer: Sealer, is_direct: bool) -> Box<SealedOutput> {
        Box::new(SealedOutput { sealer, ready: Vec::new(), front: 0, is_direct, at: 0 })
    }

    /// Encrypts the next plain bytes.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.make_room(bytes.len());
        self.sealer.put(bytes, &mut self.ready);
    }

    /// Encrypts the last block, and adds the trailer.
    pub(super) fn finish(&mut self) {
        self.make_room(at_rest::BLOCK_BYTES);
        self.sealer.finish(&mut self.ready);
    }

    fn make_room(&mut self, plain: usize) {
        let blocks = plain / at_rest::PAYLOAD_BYTES + 2;
        self.ready.reserve(blocks * at_rest::BLOCK_BYTES + at_rest::TRAILER_BYTES + ALIGN);
        if self.is_direct && self.ready.is_empty() {
            self.front = self.ready.as_ptr().align_offset(ALIGN).min(ALIGN);
            self.ready.resize(self.front, 0);
        }
    }

    /// The request for the blocks that are ready, and its offset.
    pub(super) fn take(&mut self) -> (Buf, u64) {
        let ready = std::mem::take(&mut self.ready);
        let at = self.at;
        self.at += (ready.len() - self.front) as u64;
        (Buf::from_vec_at(ready, std::mem::take(&mut self.front)), at)
    }

    /// Takes the memory of a request for the next one.
    pub(super) fn give_back(&mut self, buf: Buf) {
        self.ready = buf.into_empty_vec();
    }
}
