//! One component, written from front to back in sequential requests.

use rt::{Buf, File, Fs, OpenOptions};
use sst_format::Component;
use sst_format::checksums::{BlockChecksummer, CHECKSUM_BLOCK, ComponentChecksum};

use super::WRITE_BYTES;
use crate::Result;

/// A file written from front to back.
pub(super) struct Output {
    pub(super) file: File,
    pub(super) pending: Vec<u8>,
    pub(super) written: u64,
    pub(super) checksums: BlockChecksummer,
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
        Ok(Output { file, pending, written: 0, checksums: BlockChecksummer::default() })
    }

    pub(super) fn length(&self) -> u64 {
        self.written + self.pending.len() as u64
    }

    pub(super) fn is_full(&self) -> bool {
        self.pending.len() >= WRITE_BYTES
    }

    pub(super) async fn write_full(&mut self) -> Result<()> {
        while self.is_full() {
            self.write(WRITE_BYTES).await?;
        }
        Ok(())
    }

    async fn write(&mut self, length: usize) -> Result<()> {
        let now = self.pending.get(..length).unwrap_or(&self.pending);
        self.checksums.update(now);
        let (_, result) = self.file.write_at(Buf::from_slice(now), self.written).await;
        result?;
        self.written += now.len() as u64;
        let length = now.len();
        self.pending.drain(..length);
        Ok(())
    }

    pub(super) async fn finish(mut self, component: Component) -> Result<ComponentChecksum> {
        self.write_full().await?;
        if !self.pending.is_empty() {
            self.write(self.pending.len()).await?;
        }
        self.file.sync_data().await?;
        Ok(self.checksums.finish(component))
    }
}
