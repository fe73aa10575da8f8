//! Options of a file set that a writer needs beforehand.

use std::collections::BTreeMap;

use codec::compression::{lz4, zstd};
use codec::{Algorithm, CompressionError, Compressor};
use schema::Table;
use sst_format::index::COLUMN_INDEX_SIZE;
use sst_format::statistics::CommitLogPosition;
use sst_format::{CompressionInfo, EncodingStats, Version};
use stdx::{Generation, Uuid};

use super::indexing::Indexing;
use super::large::LargeLimits;
use crate::set_files::Sealing;

/// How Data is compressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteCompression {
    /// The compressor.
    pub algorithm: Algorithm,
    /// Uncompressed bytes per chunk, a power of two.
    pub chunk_length: u32,
    /// A chunk is stored plain when its compressed form has this many bytes or more.
    pub max_compressed_length: i32,
    /// Options of the compressor that go into CompressionInfo.db.
    pub options: Vec<(String, String)>,
}

impl WriteCompression {
    /// Parses a table's `compression` option; inner `None`: no compression.
    ///
    /// # Errors
    /// The text names an option that is not understood.
    pub fn of_options(
        map: &BTreeMap<String, String>,
    ) -> std::result::Result<Option<WriteCompression>, String> {
        let class = map.get("class").or_else(|| map.get("sstable_compression"));
        let enabled = map.get("enabled").is_none_or(|v| v.eq_ignore_ascii_case("true"));
        let Some(class) = class.filter(|c| enabled && !c.is_empty()) else { return Ok(None) };
        let algorithm = match CompressionInfo::algorithm_of(class) {
            Some(Some(algorithm)) => algorithm,
            Some(None) => return Ok(None),
            None => return Err(format!("compressor \"{class}\" is not supported")),
        };
        let number = |key: &str, default: u32| match map.get(key) {
            None => Ok(default),
            Some(text) => text
                .parse()
                .map_err(|_| format!("compression option {key} is not a number: {text}")),
        };
        let kib = match map.contains_key("chunk_length_kb") {
            true => number("chunk_length_kb", 16)?,
            false => number("chunk_length_in_kb", 16)?,
        };
        let chunk_length = kib.saturating_mul(1024);
        if !chunk_length.is_power_of_two()
            || chunk_length > sst_format::compression_info::CHUNK_LENGTH_MAX
        {
            return Err(format!("chunk length of {kib} KiB is not a power of two up to 64 MiB"));
        }
        let ratio: f64 = match map.get("min_compress_ratio") {
            None => 0.0,
            Some(text) => {
                text.parse().map_err(|_| format!("min_compress_ratio is not a number: {text}"))?
            }
        };
        let max_compressed_length =
            if ratio > 0.0 { (f64::from(chunk_length) / ratio).ceil() as i32 } else { i32::MAX };
        let known = [
            "class",
            "sstable_compression",
            "enabled",
            "chunk_length_in_kb",
            "chunk_length_kb",
            "min_compress_ratio",
            "crc_check_chance",
        ];
        let options = map
            .iter()
            .filter(|(k, _)| !known.contains(&k.as_str()))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        Ok(Some(WriteCompression { algorithm, chunk_length, max_compressed_length, options }))
    }

    /// Returns the compression used when a table's compressor is too slow for a file: LZ4's fast
    /// one, 16 KiB at a time. Source: `CompressionParams.DEFAULT`.
    pub fn fast() -> WriteCompression {
        WriteCompression {
            algorithm: Algorithm::Lz4,
            chunk_length: 16 << 10,
            max_compressed_length: i32::MAX,
            options: Vec::new(),
        }
    }

    /// Returns true if the compressor is quick enough for flushes. Source:
    /// `ICompressor.recommendedUses`.
    pub fn is_fast(&self) -> bool {
        match self.algorithm {
            Algorithm::Lz4 => !self.is_high(),
            Algorithm::Snappy => true,
            Algorithm::Deflate | Algorithm::Zstd => false,
        }
    }

    /// Returns true if a file with this CompressionInfo.db is compressed like this.
    pub fn is_of(&self, info: &CompressionInfo, version: Version) -> bool {
        // Before `na` no chunk is stored plain.
        let limit = match version.has_max_compressed_length() {
            true => self.max_compressed_length,
            false => i32::MAX,
        };
        let sorted = |options: &[(String, String)]| {
            let mut options = options.to_vec();
            options.sort();
            options
        };
        info.algorithm == Some(self.algorithm)
            && (info.chunk_length, info.max_compressed_length) == (self.chunk_length, limit)
            && sorted(&info.options) == sorted(&self.options)
    }

    fn option(&self, name: &str) -> Option<&str> {
        self.options.iter().find(|(key, _)| key == name).map(|(_, text)| text.as_str())
    }

    fn is_high(&self) -> bool {
        self.algorithm == Algorithm::Lz4 && self.option("lz4_compressor_type") == Some("high")
    }

    /// The compressor, of Zstd and of LZ4's high one at the level that the options say; one that is not
    /// understood, as a file of another program may name, is the default.
    pub(crate) fn compressor(&self) -> std::result::Result<Compressor, CompressionError> {
        let level = |name: &str| self.option(name).and_then(|text| text.parse::<i32>().ok());
        if self.is_high() {
            let level = level("lz4_high_compressor_level");
            let level = level.filter(|level| lz4::HIGH_LEVELS.contains(level));
            return Compressor::lz4_high(level.unwrap_or(lz4::HIGH_LEVEL_DEFAULT));
        }
        match level("compression_level").filter(|level| zstd::LEVELS.contains(level)) {
            Some(level) if self.algorithm == Algorithm::Zstd => Compressor::zstd(level),
            _ => Compressor::new(self.algorithm),
        }
    }
}

/// Options that a writer needs beforehand.
#[derive(Clone, Debug)]
pub struct WriterOptions {
    /// Version of the format, one of [`WriterOptions::VERSIONS`].
    pub version: Version,
    /// Generation of the file set; no file of it may exist.
    pub generation: Generation,
    /// Compression; `None` = plain, with CRC.db.
    pub compression: Option<WriteCompression>,
    /// Partitions to come, for the size of the Bloom filter; an estimate too high costs memory,
    /// one too low lookups.
    pub expected_partitions: u64,
    /// False-positive rate of the Bloom filter; 1.0 = no filter.
    pub bloom_fp_chance: f64,
    /// Partitions per sample of the summary.
    pub min_index_interval: u32,
    /// Bytes of rows after which a block of the promoted index ends.
    pub column_index_size: u64,
    /// Bases of times; minima of what is to come make small files, any values are correct.
    pub encoding_stats: EncodingStats,
    /// Commit-log stretches whose mutations are in the file.
    pub commit_log: Vec<(CommitLogPosition, CommitLogPosition)>,
    /// This node.
    pub host: Option<Uuid>,
    /// Level in leveled compaction.
    pub level: i32,
    /// Milliseconds since 1970 of the repair, 0 = not repaired.
    pub repaired_at: i64,
    /// Session of the incremental repair that the file takes part in.
    pub pending_repair: Option<Uuid>,
    /// Shard whose slice the file stays in (`None` = it may span slices), and the shard count.
    pub shard: Option<u16>,
    /// See `shard`.
    pub shard_count: u16,
    /// Run of incremental compaction that it is a fragment of.
    pub run: Option<Uuid>,
    /// Bypass the page cache for Data where the file system allows it.
    pub direct: bool,
    /// Bytes per write request of Data, a multiple of 4096; as much memory stays with the writer.
    pub request_bytes: usize,
    /// Data above these limits is reported in [`crate::Written`].
    pub large: LargeLimits,
    /// Encryption of the file set.
    pub sealing: Sealing,
    /// Attached indexes that the file set gets; `None`: the table has none.
    pub indexing: Option<Indexing>,
    /// TOC.txt stays `TOC.txt.tmp`: the file set becomes one by the caller's rename.
    pub held: bool,
}

impl WriterOptions {
    /// Versions that can be written.
    pub const VERSIONS: [Version; 4] = [Version::Me, Version::Nb, Version::Oa, Version::Da];

    /// Lets the file take part in an incremental repair. One of a version that cannot becomes `nb`.
    pub fn set_pending_repair(&mut self, session: Option<Uuid>) {
        self.pending_repair = session;
        if session.is_some() && !self.version.has_pending_repair() {
            self.version = Version::Nb;
        }
    }

    /// Options as the table's own say; the rest neutral.
    ///
    /// # Errors
    /// The text names a compression option that is not understood.
    pub fn for_table(
        table: &Table,
        generation: Generation,
        expected_partitions: u64,
        encoding_stats: EncodingStats,
    ) -> std::result::Result<WriterOptions, String> {
        let options = &table.options;
        let leveled = options
            .compaction
            .get("class")
            .is_some_and(|class| class.ends_with("LeveledCompactionStrategy"));
        let fp_default = if leveled { 0.1 } else { 0.01 };
        Ok(WriterOptions {
            version: Version::Nb,
            generation,
            compression: WriteCompression::of_options(&options.compression)?,
            expected_partitions,
            bloom_fp_chance: options.bloom_filter_fp_chance.unwrap_or(fp_default),
            min_index_interval: u32::try_from(options.min_index_interval).unwrap_or(128),
            column_index_size: COLUMN_INDEX_SIZE,
            encoding_stats,
            commit_log: Vec::new(),
            host: None,
            level: 0,
            repaired_at: 0,
            pending_repair: None,
            shard: None,
            shard_count: 1,
            run: None,
            direct: true,
            request_bytes: super::WRITE_BYTES,
            large: LargeLimits::default(),
            sealing: Sealing::Plain,
            indexing: None,
            held: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words that repeat, compressed as a table with these options is; it decompresses to what it was.
    fn packed(class: &str, options: &[(&str, &str)]) -> Vec<u8> {
        let mut state = 1_u32;
        let words: Vec<String> = (0..4_000)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                format!("word{} ", state >> 22)
            })
            .collect();
        let text = words.concat().into_bytes();
        let compression = of_table(class, options);
        let (mut compressor, mut out) = (compression.compressor().unwrap(), Vec::new());
        compressor.compress(&text, &mut out).unwrap();
        let mut plain = Vec::new();
        compressor.decompress(&out, text.len(), &mut plain).unwrap();
        assert_eq!(plain, text);
        out
    }

    fn of_table(class: &str, options: &[(&str, &str)]) -> WriteCompression {
        let mut map = BTreeMap::from([("class".to_owned(), class.to_owned())]);
        map.extend(options.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
        WriteCompression::of_options(&map).unwrap().unwrap()
    }

    #[test]
    fn zstd_compresses_at_the_level_of_the_table() {
        let packed = |class: &str, level: Option<&str>| match level {
            None => packed(class, &[]),
            Some(level) => packed(class, &[("compression_level", level)]),
        };
        let usual = packed("ZstdCompressor", None);
        let fast = packed("ZstdCompressor", Some("-50"));
        let small = packed("ZstdCompressor", Some("19"));
        assert!(small.len() < usual.len() && usual.len() < fast.len());
        assert_eq!(packed("ZstdCompressor", Some("3")), usual);
        for unknown in ["23", "x", ""] {
            assert_eq!(packed("ZstdCompressor", Some(unknown)), usual, "{unknown}");
        }
        let deflate = packed("DeflateCompressor", None);
        assert_eq!(
            packed("DeflateCompressor", Some("1")),
            deflate,
            "it has no levels in Cassandra"
        );
    }

    #[test]
    fn lz4_compresses_by_the_high_compressor_at_the_level_of_the_table() {
        let class = "org.apache.cassandra.io.compress.LZ4Compressor";
        let high = |level| {
            packed(class, &[("lz4_compressor_type", "high"), ("lz4_high_compressor_level", level)])
        };
        let usual = packed(class, &[("lz4_compressor_type", "high")]);
        let fast = packed(class, &[]);
        assert!(high("17").len() < usual.len() && usual.len() < high("1").len());
        assert!(high("1").len() < fast.len());
        assert_eq!(high("9"), usual);
        for unknown in ["0", "18", "x", ""] {
            assert_eq!(high(unknown), usual, "{unknown}");
        }
        for options in [
            &[("lz4_compressor_type", "fast"), ("lz4_high_compressor_level", "17")][..],
            &[("lz4_high_compressor_level", "17")],
        ] {
            assert_eq!(packed(class, options), fast, "the level is the high compressor's");
        }
        let named = of_table(class, &[("lz4_compressor_type", "high")]);
        let option = ("lz4_compressor_type".to_owned(), "high".to_owned());
        assert_eq!(named.options, [option], "CompressionInfo.db has it");
    }

    #[test]
    fn flushes_have_quick_compressors_only() {
        for (class, options, is_fast) in [
            ("LZ4Compressor", &[][..], true),
            ("LZ4Compressor", &[("lz4_compressor_type", "fast")], true),
            ("LZ4Compressor", &[("lz4_compressor_type", "high")], false),
            ("SnappyCompressor", &[], true),
            ("DeflateCompressor", &[], false),
            ("ZstdCompressor", &[("compression_level", "-5")], false),
        ] {
            assert_eq!(of_table(class, options).is_fast(), is_fast, "{class} {options:?}");
        }
        assert!(WriteCompression::fast().is_fast());
    }
}
