//! One component, written from front to back in sequential requests.

use std::rc::Rc;

use rt::{ALIGN, Buf, File, Fs, OpenOptions};
use sst_format::Component;
use sst_format::checksums::{BlockChecksummer, CHECKSUM_BLOCK, ComponentChecksum};

use super::WRITE_BYTES;
use super::sealed_output::SealedOutput;
use super::warm::WarmPages;
use crate::Result;
use crate::block::Chunk;
use crate::set_files::SetFiles;

/// A file written from front to back.
pub(super) struct Output {
    pub(super) file: File,
    /// Bytes not written yet, after `front` bytes that are no part of the file.
    pub(super) pending: Vec<u8>,
    /// Padding that aligns the following bytes for direct IO, so that a request need not be copied.
    front: usize,
    is_direct: bool,
    /// Memory of the last request, for the next one.
    spare: Vec<u8>,
    request_bytes: usize,
    /// Bytes at which it counts as full: those of a request, or none once it was urged.
    full_at: usize,
    pub(super) written: u64,
    pub(super) checksums: BlockChecksummer,
    /// Bytes of `pending` that are in the checksums.
    summed: usize,
    /// For an index: pages that are handed out as they are written.
    pub(super) warm: WarmPages,
    /// For an encrypted file.
    sealed: Option<Box<SealedOutput>>,
}

impl Output {
    pub(super) async fn create(
        files: &SetFiles,
        component: Component,
        direct: bool,
    ) -> Result<Output> {
        let options =
            OpenOptions { write: true, create_new: true, direct, ..OpenOptions::default() };
        let mut output = Output::open(files.fs(), &files.path(component), options).await?;
        output.sealed = files.sealer(component).map(|sealer| SealedOutput::new(sealer, direct));
        Ok(output)
    }

    /// Writes a small file that may be there already.
    pub(super) async fn replace(fs: &Fs, path: &str) -> Result<Output> {
        let options =
            OpenOptions { write: true, create: true, truncate: true, ..OpenOptions::default() };
        Output::open(fs, path, options).await
    }

    async fn open(fs: &Fs, path: &str, options: OpenOptions) -> Result<Output> {
        let direct = options.direct;
        let file = fs.open(path, options).await?;
        let (checksums, warm) = (BlockChecksummer::default(), WarmPages::default());
        let mut output = Output {
            file,
            pending: Vec::new(),
            front: 0,
            is_direct: direct,
            spare: Vec::new(),
            request_bytes: WRITE_BYTES,
            full_at: WRITE_BYTES,
            written: 0,
            checksums,
            summed: 0,
            warm,
            sealed: None,
        };
        output.make_room();
        Ok(output)
    }

    /// With larger requests than usual, before any bytes.
    pub(super) fn in_requests_of(mut self, bytes: usize) -> Output {
        self.request_bytes = bytes.max(WRITE_BYTES);
        self.full_at = self.request_bytes;
        self.spare = std::mem::take(&mut self.pending);
        self.make_room();
        self
    }

    /// Nothing is pending any more, and there is room for the next request.
    fn make_room(&mut self) {
        let mut room = std::mem::take(&mut self.spare);
        room.clear();
        let aligned = if self.is_direct { ALIGN } else { 0 };
        room.reserve_exact(self.request_bytes + CHECKSUM_BLOCK + aligned);
        self.front = 0;
        if self.is_direct {
            self.front = room.as_ptr().align_offset(ALIGN).min(ALIGN);
            room.resize(self.front, 0);
        }
        self.summed = self.front;
        self.pending = room;
    }

    /// Adds pending bytes to the checksums while they are in the processor's cache. They must not
    /// be changed any more.
    pub(super) fn sum_up(&mut self) {
        self.checksums.update(self.pending.get(self.summed..).unwrap_or(&[]));
        self.summed = self.pending.len();
    }

    /// Bytes received.
    pub(super) fn length(&self) -> u64 {
        self.written + self.unwritten() as u64
    }

    fn unwritten(&self) -> usize {
        self.pending.len() - self.front
    }

    pub(super) fn is_full(&self) -> bool {
        self.unwritten() >= self.full_at
    }

    /// Makes it count as full until the next [`Output::write_full`], so that the caller has a pause soon.
    pub(super) fn urge_if(&mut self, is_urgent: bool) {
        if is_urgent {
            self.full_at = 0;
        }
    }

    pub(super) async fn write_full(&mut self) -> Result<()> {
        self.full_at = self.request_bytes;
        while self.unwritten() >= self.request_bytes {
            self.write(self.request_bytes).await?;
        }
        Ok(())
    }

    async fn write(&mut self, length: usize) -> Result<()> {
        self.sum_up();
        let mut request = std::mem::take(&mut self.pending);
        let front = self.front;
        let end = request.len().min(front + length);
        let now = request.get(front..end).unwrap_or(&[]);
        self.warm.written(self.written, now);
        let length = now.len() as u64;
        if let Some(sealed) = &mut self.sealed {
            sealed.put(now);
            self.spare = self.pass_on(request, end);
            self.written += length;
            return self.write_sealed().await;
        }
        self.make_room();
        self.pending.extend_from_slice(request.get(end..).unwrap_or(&[]));
        self.summed = self.pending.len();
        request.truncate(end);
        let buf = Buf::from_vec_at(request, front);
        let (buf, result) = self.file.write_at(buf, self.written).await;
        self.spare = buf.into_empty_vec();
        result?;
        self.written += length;
        Ok(())
    }

    /// Keeps the bytes of a request from `end` on pending. Returns its memory.
    fn pass_on(&mut self, mut request: Vec<u8>, end: usize) -> Vec<u8> {
        self.make_room();
        self.pending.extend_from_slice(request.get(end..).unwrap_or(&[]));
        self.summed = self.pending.len();
        request.clear();
        request
    }

    /// Writes the encrypted bytes that are ready.
    async fn write_sealed(&mut self) -> Result<()> {
        let Some(sealed) = &mut self.sealed else { return Ok(()) };
        let (buf, at) = sealed.take();
        let (buf, result) = self.file.write_at(buf, at).await;
        sealed.give_back(buf);
        Ok(result?)
    }

    /// Pages from `start` up to the next byte's position are handed out when they are written.
    pub(super) fn keep_from(&mut self, start: u64) {
        self.warm.mark(start, self.length());
    }

    /// Pages of the index that were kept, by number.
    pub(super) fn take_warm(&mut self) -> Vec<(u64, Rc<Chunk>)> {
        self.warm.take()
    }

    pub(super) async fn finish(&mut self, component: Component) -> Result<ComponentChecksum> {
        self.write_full().await?;
        if self.unwritten() > 0 {
            self.write(self.unwritten()).await?;
        }
        if let Some(sealed) = &mut self.sealed {
            sealed.finish();
            self.write_sealed().await?;
        }
        self.file.sync_data().await?;
        Ok(std::mem::take(&mut self.checksums).finish(component))
    }
}
