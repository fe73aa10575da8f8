//! The end of a file set: the rest of the large components, the small ones, TOC.txt last. The order is that
//! of the list in [`super`].

use rt::Fs;
use sst_format::checksums::{
    Binding, BlockChecksummer, CHECKSUM_BLOCK, Checksums, DataCrc, StorageGroup, encode_digest,
};
use sst_format::component::encode_toc;
use sst_format::compression_info::CHUNK_CRC_BYTES;
use sst_format::statistics::{Partitioner, Statistics};
use sst_format::stats_collector::FileFacts;
use sst_format::summary::SummaryBuilder;
use sst_format::{BloomFilter, Component, CompressionInfo, Descriptor, FilterBuilder};

use super::output::Output;
use super::{SstableWriter, Written};
use crate::Result;
use crate::file_set::unfinished_path;
use crate::meta::index_component;

impl SstableWriter {
    /// Finishes the file set in the order of the module's list. `None` when no partition came: all
    /// files are removed.
    ///
    /// # Errors
    /// `Io`, `Unwritable`. Everything that was written is removed then as far as possible.
    pub async fn finish(mut self) -> Result<Option<Written>> {
        if self.partitions() == 0 {
            self.abort().await;
            return Ok(None);
        }
        let (fs, directory, descriptor) =
            (self.files.fs().clone(), self.directory.clone(), self.descriptor);
        let finished = match self.finish_indexes().await {
            Ok(()) => self.finish_files().await,
            Err(error) => Err(error),
        };
        match finished {
            Ok(written) => Ok(Some(written)),
            Err(e) => {
                remove_all(&fs, &directory, descriptor).await;
                Err(e)
            }
        }
    }

    async fn finish_indexes(&mut self) -> Result<()> {
        match self.attached.indexes.take() {
            Some(indexes) => indexes.finish(self).await,
            None => Ok(()),
        }
    }

    async fn finish_files(&mut self) -> Result<Written> {
        stdx::invariant!(!self.in_partition, "sstable writer: a partition is open");
        if !self.chunk.is_empty() {
            let length = self.chunk.len();
            self.cut(0, length)?;
            self.chunk.clear();
        }
        let none = FilterBuilder::new(BloomFilter::with_capacity(0, 1.0));
        let filter = std::mem::replace(&mut self.filter, none).finish();
        let data_length = self.data_length;
        let partitions = self.partitions();
        let summary = std::mem::replace(&mut self.summary, SummaryBuilder::new(1));
        let summary = summary.finish(&self.partition.key);
        if let Some(tries) = &mut self.tries {
            let index_at = self.index.length();
            let done = tries.finish(&summary.first, &summary.last, &mut self.index);
            if self.warm.has_been() {
                // All walks begin with these pages.
                self.index.keep_from(index_at);
            }
            done.map_err(|e| self.unwritable(e))?;
        }
        // 1. Data and Index.
        let data = self.data.finish(Component::Data).await?;
        let index = self.index.finish(index_component(self.options.version)).await?;
        let mut lengths = vec![(Component::Data, data.length), (index.component, index.length)];
        let mut rows = None;
        if let Some(tries) = &mut self.tries {
            let done = tries.rows.finish(Component::Rows).await?;
            lengths.push((Component::Rows, done.length));
            rows = Some(done);
        }
        let ratio = match self.compressor {
            // Cassandra's ratio leaves the chunks' checksums out.
            Some(_) => {
                let checksums = self.offsets.len() as u64 * CHUNK_CRC_BYTES;
                (data.length - checksums) as f64 / data_length.max(1) as f64
            }
            None => -1.0,
        };
        let mut checksums = vec![data, index];
        checksums.extend(rows);
        // 2. The small components.
        let mut small: Vec<(Component, Vec<u8>)> = Vec::new();
        small.push(self.compression_component()?);
        small.push((Component::Digest, encode_digest(self.digest.value())));
        if !filter.is_always_present() {
            small.push((Component::Filter, filter.encode(self.options.version)));
        }
        let facts = FileFacts {
            commit_log: std::mem::take(&mut self.options.commit_log),
            originating_host: self.options.host,
            level: self.options.level,
            repaired_at: self.options.repaired_at,
            pending_repair: self.options.pending_repair,
            compression_ratio: ratio,
            key_range: Some((summary.first.clone(), summary.last.clone())),
        };
        let (stats, cardinality) = std::mem::take(&mut self.stats).finish(facts);
        let statistics = Statistics {
            version: self.options.version,
            partitioner: Partitioner::Murmur3,
            bloom_fp_chance: self.options.bloom_fp_chance,
            cardinality,
            stats,
            header: self.header.clone(),
        };
        let statistics = statistics.encode().map_err(|e| self.unwritable(e))?;
        let identity = Statistics::identity(&statistics, self.options.version);
        let identity = identity.map_err(|e| self.unwritable(e))?;
        small.push((Component::Statistics, statistics));
        let (first, last) = (codec::token_of(&summary.first), codec::token_of(&summary.last));
        if !self.options.version.is_bti() {
            small.push((Component::Summary, summary.encode().map_err(|e| self.unwritable(e))?));
        }
        let mut toc: Vec<Component> = lengths.iter().map(|(c, _)| *c).collect();
        toc.extend(small.iter().map(|(c, _)| *c));
        toc.extend([Component::Checksums, Component::Toc]);
        toc.extend(self.files.is_sealed().then_some(Component::Encryption));
        let attached = self.take_attached();
        toc.extend(attached.iter().map(|sum| sum.component));
        lengths.extend(attached.iter().map(|sum| (sum.component, sum.length)));
        let toc = encode_toc(&toc);
        // Statistics is rewritten alone (`repair_state`): the binding covers its constant parts.
        for (component, bytes) in small.iter().filter(|(c, _)| *c != Component::Statistics) {
            checksums.push(BlockChecksummer::of(*component, bytes));
        }
        checksums.push(BlockChecksummer::of(Component::Toc, &toc));
        checksums.extend(attached);
        let group = StorageGroup {
            shard: self.options.shard,
            shard_count: self.options.shard_count,
            first,
            last,
            run: self.options.run,
        };
        let binding = Binding { table: self.table, id: self.descriptor.id(), statistics: identity };
        let list = Checksums { group, binding: Some(binding), components: checksums };
        small.push((Component::Checksums, list.encode()));
        for (component, bytes) in &small {
            self.write_small(*component, bytes).await?;
            lengths.push((*component, bytes.len() as u64));
        }
        // 3. to 5.
        self.files.fs().sync_dir(&self.directory).await?;
        lengths.push((Component::Toc, toc.len() as u64));
        let path = self.file(Component::Toc);
        match self.options.held {
            false => self.files.fs().write_atomic(&path, toc).await?,
            true => {
                let path = unfinished_path(&self.directory, self.descriptor);
                let mut out = Output::replace(self.files.fs(), &path).await?;
                out.pending.extend_from_slice(&toc);
                out.finish(Component::Toc).await?;
                self.files.fs().sync_dir(&self.directory).await?;
            }
        }
        let descriptor = self.descriptor;
        if self.files.is_sealed() {
            lengths.iter_mut().filter(|(c, _)| !c.is_in_the_clear()).for_each(|(_, length)| {
                *length = at_rest::physical_length(*length);
            });
        }
        Ok(Written {
            descriptor,
            components: lengths,
            partitions,
            data_length,
            first,
            last,
            large: std::mem::take(&mut self.large),
            warm: self.take_warm(),
        })
    }

    /// CompressionInfo of a compressed Data, CRC of a plain one.
    fn compression_component(&mut self) -> Result<(Component, Vec<u8>)> {
        let Some(c) = &self.options.compression else {
            let chunks = std::mem::take(&mut self.chunk_crcs);
            let crc = DataCrc { chunk_length: CHECKSUM_BLOCK as u32, chunks };
            return Ok((Component::Crc, crc.encode()));
        };
        let info = CompressionInfo {
            algorithm: Some(c.algorithm),
            options: c.options.clone(),
            chunk_length: c.chunk_length,
            max_compressed_length: c.max_compressed_length,
            data_length: self.data_length,
            offsets: std::mem::take(&mut self.offsets),
        };
        let bytes = info.encode(self.options.version).map_err(|e| self.unwritable(e))?;
        Ok((Component::CompressionInfo, bytes))
    }

    async fn write_small(&self, component: Component, bytes: &[u8]) -> Result<()> {
        let mut out = Output::create(&self.files, component, false).await?;
        out.pending.extend_from_slice(bytes);
        out.finish(component).await.map(|_| ())
    }

    /// Removes everything written so far.
    pub async fn abort(self) {
        let (fs, directory, descriptor) =
            (self.files.fs().clone(), self.directory.clone(), self.descriptor);
        drop(self);
        remove_all(&fs, &directory, descriptor).await;
    }
}

/// Best effort: remaining files are marked and are removed at the next start.
async fn remove_all(fs: &Fs, directory: &str, descriptor: Descriptor) {
    drop(crate::remove_sstable(fs, directory, descriptor).await);
}
