//! One component, written from front to back in sequential requests.

use std::rc::Rc;

use rt::{Buf, File, Fs, OpenOptions};
use sst_format::Component;
use sst_format::checksums::{BlockChecksummer, CHECKSUM_BLOCK, ComponentChecksum};

use super::WRITE_BYTES;
use super::warm::WarmPages;
use crate::Result;
use crate::block::Chunk;

/// A file written from front to back.
pub(super) struct Output {
    pub(super) file: File,
    pub(super) pending: Vec<u8>,
    /// Memory of the last request, for the next one.
    request: Buf,
    request_bytes: usize,
    pub(super) written: u64,
    pub(super) checksums: BlockChecksummer,
    /// Of an index: pages that are handed out as they are written.
    pub(super) warm: WarmPages,
}

impl Output {
    pub(super) async fn create(fs: &Fs, path: &str, direct: bool) -> Result<Output> {
        let options = OpenOptions {
            read: false,
            write: true,
            create_new: true,
            direct,
            ..OpenOptions::default()
        };
        let file = fs.open(path, options).await?;
        let pending = Vec::with_capacity(WRITE_BYTES + CHECKSUM_BLOCK);
        let (checksums, warm) = (BlockChecksummer::default(), WarmPages::default());
        Ok(Output {
            file,
            pending,
            request: Buf::new(),
            request_bytes: WRITE_BYTES,
            written: 0,
            checksums,
            warm,
        })
    }

    /// With larger requests than usual.
    pub(super) fn in_requests_of(mut self, bytes: usize) -> Output {
        let bytes = bytes.max(WRITE_BYTES);
        self.pending.reserve_exact(bytes + CHECKSUM_BLOCK);
        self.request_bytes = bytes;
        self
    }

    pub(super) fn length(&self) -> u64 {
        self.written + self.pending.len() as u64
    }

    pub(super) fn is_full(&self) -> bool {
        self.pending.len() >= self.request_bytes
    }

    pub(super) async fn write_full(&mut self) -> Result<()> {
        while self.is_full() {
            self.write(self.request_bytes).await?;
        }
        Ok(())
    }

    async fn write(&mut self, length: usize) -> Result<()> {
        let now = self.pending.get(..length).unwrap_or(&self.pending);
        self.checksums.update(now);
        self.warm.written(self.written, now);
        let length = now.len();
        let mut request = std::mem::take(&mut self.request);
        request.clear();
        request.extend_from_slice(now);
        let (request, result) = self.file.write_at(request, self.written).await;
        self.request = request;
        result?;
        self.written += length as u64;
        self.pending.drain(..length);
        Ok(())
    }

    /// Pages from `start` up to where the next byte goes are handed out when they are written.
    pub(super) fn keep_from(&mut self, start: u64) {
        self.warm.mark(start, self.length());
    }

    /// Pages of the index that were kept, by number.
    pub(super) fn take_warm(&mut self) -> Vec<(u64, Rc<Chunk>)> {
        self.warm.take()
    }

    pub(super) async fn finish(&mut self, component: Component) -> Result<ComponentChecksum> {
        self.write_full().await?;
        if !self.pending.is_empty() {
            self.write(self.pending.len()).await?;
        }
        self.file.sync_data().await?;
        Ok(std::mem::take(&mut self.checksums).finish(component))
    }
}
