//! Blocks of Data, of the index and of Rows.db: where they lie, and their bytes made whole and checked.

use codec::Compressor;
use codec::checksum::crc32;
use sst_format::checksums::CHECKSUM_BLOCK;
use sst_format::compression_info::{CHUNK_CRC_BYTES, CompressionInfo};
use sst_format::{Component, FormatError};

use super::{BlockFile, BlockLocation, PLAIN_CHUNK_BYTES, SstableMeta, index_component};
use crate::block::{Chunk, INDEX_BLOCK, INDEX_PAGE_BYTES, ROWS_BLOCK};
use crate::{Result, SstableError};

impl SstableMeta {
    /// Uncompressed bytes per Data block.
    pub fn data_block_bytes(&self) -> u64 {
        u64::from(match (&self.compression, &self.data_crc) {
            (Some(info), _) => info.chunk_length,
            (None, Some(crc)) => crc.chunk_length,
            (None, None) => PLAIN_CHUNK_BYTES,
        })
    }

    /// The numbers of all blocks of all files.
    pub fn blocks(&self) -> impl Iterator<Item = u64> + use<> {
        let pages = |bytes: u64| 0..bytes.div_ceil(INDEX_PAGE_BYTES);
        let index = pages(self.index_length).map(|page| page | INDEX_BLOCK);
        let rows = pages(self.rows_length).map(|page| page | ROWS_BLOCK);
        (0..self.data_blocks()).chain(index).chain(rows)
    }

    /// Number of Data blocks.
    pub fn data_blocks(&self) -> u64 {
        self.data_length.div_ceil(self.data_block_bytes())
    }

    /// Number of Index blocks.
    pub fn index_blocks(&self) -> u64 {
        self.index_length.div_ceil(INDEX_PAGE_BYTES)
    }

    /// Where a block lies. `None` when there is no such block.
    pub fn locate(&self, block: u64) -> Option<BlockLocation> {
        let marked = match () {
            () if block & INDEX_BLOCK != 0 => {
                Some((INDEX_BLOCK, BlockFile::Index, self.index_length))
            }
            () if block & ROWS_BLOCK != 0 => Some((ROWS_BLOCK, BlockFile::Rows, self.rows_length)),
            () => None,
        };
        if let Some((mark, file, file_length)) = marked {
            let offset = (block & !mark).checked_mul(INDEX_PAGE_BYTES)?;
            let left = file_length.checked_sub(offset).filter(|l| *l > 0)?;
            let length = usize::try_from(left.min(INDEX_PAGE_BYTES)).ok()?;
            return Some(BlockLocation { file, offset, length });
        }
        if let Some(info) = &self.compression {
            let (offset, length) =
                info.chunk(usize::try_from(block).ok()?, self.data_file_length)?;
            let length = length + CHUNK_CRC_BYTES as usize;
            return Some(BlockLocation { file: BlockFile::Data, offset, length });
        }
        let size = self.data_block_bytes();
        let offset = block.checked_mul(size)?;
        let left = self.data_length.checked_sub(offset).filter(|l| *l > 0)?;
        let length = usize::try_from(left.min(size)).ok()?;
        Some(BlockLocation { file: BlockFile::Data, offset, length })
    }

    /// Verifies and decompresses the bytes of a block, as [`SstableMeta::locate`] found them.
    ///
    /// # Errors
    /// `Corrupt` naming the file and the offset of the block in it.
    pub fn decode_block(&self, block: u64, raw: &[u8]) -> Result<Chunk> {
        let location = self.locate(block);
        let offset = location.map_or(0, |l| l.offset);
        let name = self.file_of_block(block);
        let number = block & !(INDEX_BLOCK | ROWS_BLOCK);
        let index = usize::try_from(number).unwrap_or(usize::MAX);
        let corrupt = |what: String| SstableError::Corrupt { file: name.to_owned(), offset, what };
        let Some(location) = location.filter(|l| l.length == raw.len()) else {
            return Err(corrupt("the file is shorter than its metadata says".to_owned()));
        };
        if location.file == BlockFile::Data
            && let Some(info) = &self.compression
        {
            return self.decompress(info, index, raw).map_err(corrupt).map(Chunk::new);
        }
        let verified = self.verify_plain(location, index, raw);
        verified.map_err(|e| SstableError::of_format(name, 0, &e))?;
        Ok(Chunk::new(raw.to_vec()))
    }

    /// The file that a block lies in.
    pub(crate) fn file_of_block(&self, block: u64) -> &str {
        match () {
            () if block & INDEX_BLOCK != 0 => &self.index_file,
            () if block & ROWS_BLOCK != 0 => &self.rows_file,
            () => &self.data_file,
        }
    }

    fn verify_plain(
        &self,
        location: BlockLocation,
        index: usize,
        raw: &[u8],
    ) -> std::result::Result<(), FormatError> {
        let is_data = location.file == BlockFile::Data;
        let component = match location.file {
            BlockFile::Data => Component::Data,
            BlockFile::Index => index_component(self.version()),
            BlockFile::Rows => Component::Rows,
        };
        if let Some(list) = self.checksums.as_ref().and_then(|c| c.component(component))
            && (!is_data || self.data_block_bytes() == CHECKSUM_BLOCK as u64)
        {
            list.verify_block(index, raw)?;
        }
        if let (true, Some(crc)) = (is_data, &self.data_crc) {
            let (offset, found) = (location.offset, crc32(raw));
            let expected = *crc.chunks.get(index).ok_or(FormatError::Invalid {
                what: "CRC.db has no checksum for this block",
                offset,
            })?;
            if expected != found {
                return Err(FormatError::Checksum { what: "block", offset, expected, found });
            }
        }
        Ok(())
    }

    fn decompress(
        &self,
        info: &CompressionInfo,
        index: usize,
        raw: &[u8],
    ) -> std::result::Result<Vec<u8>, String> {
        let Some((compressed, stored)) = raw.split_last_chunk::<4>() else {
            return Err("chunk without checksum".to_owned());
        };
        let (expected, found) = (u32::from_be_bytes(*stored), crc32(compressed));
        if expected != found {
            return Err(format!("chunk has the checksum {found:08x} instead of {expected:08x}"));
        }
        let length = info.chunk_data_length(index);
        let plain = i64::try_from(compressed.len()).unwrap_or(i64::MAX)
            >= i64::from(info.max_compressed_length);
        let mut out = Vec::with_capacity(length);
        match info.algorithm {
            Some(algorithm) if !plain => {
                let mut slot = self.decompressor.borrow_mut();
                if slot.is_none() {
                    *slot = Some(Compressor::new(algorithm).map_err(|e| e.to_string())?);
                }
                if let Some(compressor) = slot.as_mut() {
                    compressor
                        .decompress(compressed, length, &mut out)
                        .map_err(|e| e.to_string())?;
                }
            }
            // Stored plain, padded with zeros up to the limit when shorter than it.
            _ => out.extend_from_slice(compressed.get(..length).unwrap_or(compressed)),
        }
        if out.len() != length {
            return Err(format!("chunk has {} bytes instead of {length}", out.len()));
        }
        Ok(out)
    }
}
