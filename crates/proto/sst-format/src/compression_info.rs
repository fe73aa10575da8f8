//! `CompressionInfo.db`: the compressor, and the position of each chunk in the Data file.
//!
//! A chunk on disk is its compressed bytes (or the plain ones, when compression would reach
//! `max_compressed_length`) and their CRC32. Source: `io.compress.CompressionMetadata`.

use codec::{Algorithm, Reader, Writer};

use crate::{FormatError, Result, Version};

/// Bytes of the CRC32 after each chunk.
pub const CHUNK_CRC_BYTES: u64 = 4;
/// Largest chunk length accepted, as no setting of Cassandra gives more.
pub const CHUNK_LENGTH_MAX: u32 = 1 << 26;

/// The component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompressionInfo {
    /// The compressor; `None` is Cassandra's `NoopCompressor`.
    pub algorithm: Option<Algorithm>,
    /// Its options, as written.
    pub options: Vec<(String, String)>,
    /// Uncompressed bytes per chunk; a power of two.
    pub chunk_length: u32,
    /// A chunk is stored plain when its compressed form has this many bytes or more.
    pub max_compressed_length: i32,
    /// Uncompressed length of the Data file.
    pub data_length: u64,
    /// Where each chunk begins in the Data file, ascending from 0. One more than `data_length` takes
    /// may be there: an empty chunk at the end.
    pub offsets: Vec<u64>,
}

fn class_of(algorithm: Option<Algorithm>) -> &'static str {
    match algorithm {
        Some(Algorithm::Lz4) => "LZ4Compressor",
        Some(Algorithm::Snappy) => "SnappyCompressor",
        Some(Algorithm::Deflate) => "DeflateCompressor",
        Some(Algorithm::Zstd) => "ZstdCompressor",
        None => "NoopCompressor",
    }
}

impl CompressionInfo {
    /// Simple class name of the compressor, as in the file.
    pub fn class_name(&self) -> &'static str {
        class_of(self.algorithm)
    }

    /// The compressor of a class name, with or without package; outer `None`: unknown.
    pub fn algorithm_of(class: &str) -> Option<Option<Algorithm>> {
        let simple = class.rsplit('.').next().unwrap_or(class);
        [
            None,
            Some(Algorithm::Lz4),
            Some(Algorithm::Snappy),
            Some(Algorithm::Deflate),
            Some(Algorithm::Zstd),
        ]
        .into_iter()
        .find(|a| class_of(*a) == simple)
    }

    /// The bytes of the file.
    ///
    /// # Errors
    /// `TooLarge` with 2^31 chunks or more; `Unsupported`: before `na` no chunk is stored plain.
    pub fn encode(&self, version: Version) -> Result<Vec<u8>> {
        if !version.has_max_compressed_length() && self.max_compressed_length != i32::MAX {
            let value = version.to_string();
            return Err(FormatError::Unsupported { what: "plain chunks in version", value });
        }
        let too_large = |_| FormatError::TooLarge { what: "compression info" };
        let mut out = Vec::with_capacity(self.offsets.len().saturating_mul(8).saturating_add(64));
        out.put_bytes_u16(self.class_name().as_bytes(), "class")
            .map_err(|_| FormatError::TooLarge { what: "compressor name" })?;
        out.put_i32(i32::try_from(self.options.len()).map_err(too_large)?);
        for (key, value) in &self.options {
            for text in [key, value] {
                out.put_bytes_u16(text.as_bytes(), "option")
                    .map_err(|_| FormatError::TooLarge { what: "compressor option" })?;
            }
        }
        out.put_u32(self.chunk_length);
        if version.has_max_compressed_length() {
            out.put_i32(self.max_compressed_length);
        }
        out.put_u64(self.data_length);
        out.put_i32(i32::try_from(self.offsets.len()).map_err(too_large)?);
        for offset in &self.offsets {
            out.put_u64(*offset);
        }
        Ok(out)
    }

    /// Decodes the file and checks the positions of the chunks: offsets ascend from 0 and there are
    /// as many as the length takes.
    ///
    /// # Errors
    /// `Decode`, `Unsupported` compressor, `Invalid`.
    pub fn decode(bytes: &[u8], version: Version) -> Result<CompressionInfo> {
        let mut r = Reader::new(bytes, "compression info");
        let class = r.utf8_u16()?;
        let algorithm = Self::algorithm_of(class).ok_or_else(|| FormatError::Unsupported {
            what: "compressor",
            value: class.to_owned(),
        })?;
        let count = r.len_i32()?;
        let count = r.check_count(count, 4)?;
        let mut options = Vec::with_capacity(count);
        for _ in 0..count {
            options.push((r.utf8_u16()?.to_owned(), r.utf8_u16()?.to_owned()));
        }
        let at = r.position() as u64;
        let chunk_length = r.u32()?;
        if chunk_length == 0 || chunk_length > CHUNK_LENGTH_MAX || !chunk_length.is_power_of_two() {
            return Err(FormatError::Invalid { what: "chunk length out of range", offset: at });
        }
        // Before, no chunk was stored plain.
        let max_compressed_length =
            if version.has_max_compressed_length() { r.i32()? } else { i32::MAX };
        let data_length = r.u64()?;
        let at = r.position() as u64;
        let count = r.len_i32()?;
        let count = r.check_count(count, 8)?;
        let mut offsets = Vec::with_capacity(count);
        for _ in 0..count {
            offsets.push(r.u64()?);
        }
        r.finish()?;
        let info = CompressionInfo {
            algorithm,
            options,
            chunk_length,
            max_compressed_length,
            data_length,
            offsets,
        };
        // Cassandra's compaction leaves an empty chunk at the end of its output.
        let needed = data_length.div_ceil(u64::from(chunk_length));
        let found = info.offsets.len() as u64;
        if found != needed && found != needed.saturating_add(1) {
            return Err(FormatError::Invalid { what: "wrong number of chunks", offset: at });
        }
        let starts_at_zero = info.offsets.first().is_none_or(|first| *first == 0);
        let ascending = info
            .offsets
            .windows(2)
            .all(|w| matches!(w, [a, b] if b.checked_sub(*a).is_some_and(|d| d > CHUNK_CRC_BYTES)));
        if !starts_at_zero || !ascending {
            return Err(FormatError::Invalid { what: "chunk offsets do not ascend", offset: at });
        }
        Ok(info)
    }

    /// Where a chunk lies in the Data file: offset and length without its CRC. `file_length` is the
    /// length of the Data file. `None` when the chunk does not exist or cannot lie in the file.
    pub fn chunk(&self, index: usize, file_length: u64) -> Option<(u64, usize)> {
        let start = *self.offsets.get(index)?;
        let end = match self.offsets.get(index.checked_add(1)?) {
            Some(next) => *next,
            None => file_length,
        };
        let length = end.checked_sub(start)?.checked_sub(CHUNK_CRC_BYTES)?;
        // Incompressible chunks grow by a few bytes only; more is damage, not data.
        let limit = u64::from(self.chunk_length).saturating_mul(2).saturating_add(4096);
        (end <= file_length && length <= limit).then_some((start, usize::try_from(length).ok()?))
    }

    /// Uncompressed length of a chunk: the chunk length, less at the end.
    pub fn chunk_data_length(&self, index: usize) -> usize {
        let chunk = u64::from(self.chunk_length);
        let start = (index as u64).saturating_mul(chunk);
        usize::try_from(self.data_length.saturating_sub(start).min(chunk)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info() -> CompressionInfo {
        CompressionInfo {
            algorithm: Some(Algorithm::Lz4),
            options: vec![("lz4_compressor_type".into(), "fast".into())],
            chunk_length: 16_384,
            max_compressed_length: i32::MAX,
            data_length: 40_000,
            offsets: vec![0, 100, 300],
        }
    }

    #[test]
    fn info_comes_back_and_chunks_are_found() {
        let info = info();
        for version in [Version::Me, Version::Nb] {
            let bytes = info.encode(version).unwrap();
            assert_eq!(CompressionInfo::decode(&bytes, version).unwrap(), info);
        }
        let plain = CompressionInfo { max_compressed_length: 9, ..info.clone() };
        assert!(plain.encode(Version::Me).is_err() && plain.encode(Version::Nb).is_ok());
        assert_eq!(info.chunk(0, 500), Some((0, 96)));
        assert_eq!(info.chunk(2, 500), Some((300, 196)));
        assert_eq!(info.chunk(3, 500), None);
        assert_eq!(info.chunk(2, 303), None);
        assert_eq!(info.chunk_data_length(2), 40_000 - 32_768);
    }

    #[test]
    fn impossible_chunks_are_refused() {
        let refused = |change: fn(&mut CompressionInfo)| {
            let mut i = info();
            change(&mut i);
            assert!(CompressionInfo::decode(&i.encode(Version::Nb).unwrap(), Version::Nb).is_err());
        };
        refused(|i| i.offsets[1] = 4);
        refused(|i| i.offsets[0] = 1);
        refused(|i| i.data_length = 50_000);
        refused(|i| i.data_length = 16_384);
        refused(|i| i.chunk_length = 16_383);
        assert!(CompressionInfo::decode(b"\0\x0aXCompresso", Version::Nb).is_err());
    }
}
