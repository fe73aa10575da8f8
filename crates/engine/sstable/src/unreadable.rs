//! A file set that cannot be opened, as something that can be in a view. A read that may need it fails
//! with `Corrupt` instead of being answered without it, and no tombstone is purged that may hide its
//! data.
//!
//! Parts of it are used where checksums match: its slice of the ring (Checksums.db), its statistics, its
//! first and last key (Statistics since `oa`; the Summary where Checksums.db has it). Otherwise it is
//! treated as one with all tokens and all times.

use rt::{Fs, OpenOptions};
use schema::Table;
use sst_format::checksums::Checksums;
use sst_format::component::attached_in_toc;
use sst_format::statistics::{Partitioner, Statistics};
use sst_format::stats_collector::FileFacts;
use sst_format::{
    Component, Descriptor, EncodingStats, SerializationHeader, StatsCollector, Summary,
};
use stdx::{DeletionSeconds, IoErrorKind, TimestampMicros, Token};

use crate::meta::{SstableMeta, StandIn, check_identity};
use crate::reader::SMALL_COMPONENT_BYTES_MAX;
use crate::set_files::{ComponentFile, SetFiles};
use crate::{Result, SstableError, SstableReader, is_unreadable};

/// Opens a substitute for a file set whose opening failed with `error`. Every request to it fails
/// with `Corrupt`, in the words of the error.
///
/// # Errors
/// `Io`; `Missing`: no component of it exists, not even TOC.txt.
pub async fn open_unreadable(
    fs: &Fs,
    directory: &str,
    set: Descriptor,
    table: &Table,
    error: &SstableError,
) -> Result<SstableReader> {
    let path = |c: Component| format!("{directory}/{}", set.file_name(c));
    // With a damaged record of its key nothing encrypted is known.
    let files = match SetFiles::open(fs, directory, set).await {
        Err(e) if e.is_damage() => None,
        files => Some(files?),
    };
    let mut small = Vec::new();
    let mut components = Vec::new();
    let mut data = None;
    let mut some = None;
    let mut data_length = 0;
    for component in Component::ALL {
        let options = OpenOptions { read: true, ..OpenOptions::default() };
        let file = match fs.open(&path(component), options).await {
            Ok(file) => file,
            Err(e) if e.kind == IoErrorKind::NotFound => continue,
            // It exists, but its content is unknown.
            Err(e) if is_unreadable(&e) => {
                components.push(component);
                continue;
            }
            Err(e) => return Err(e.into()),
        };
        components.push(component);
        some = Some(file.clone());
        if component == Component::Data {
            data_length = match file.len().await {
                Err(e) if !is_unreadable(&e) => return Err(e.into()),
                length => length.unwrap_or(0),
            };
            data = Some(file.clone());
        } else if component.is_small() {
            let read = match &files {
                Some(files) => files.read(component, SMALL_COMPONENT_BYTES_MAX).await,
                None if component == Component::Toc => {
                    fs.read(&path(component), SMALL_COMPONENT_BYTES_MAX).await.map_err(Into::into)
                }
                None => continue,
            };
            match read {
                Ok(bytes) => small.push((component, bytes)),
                Err(e) if e.is_damage() => {}
                Err(e) => return Err(e),
            }
        }
    }
    let Some(some) = some else {
        return Err(SstableError::Missing { file: path(Component::Toc) });
    };
    let listed = small.iter().find(|(c, _)| *c == Component::Toc);
    let attached = listed.map_or(Vec::new(), |(_, bytes)| attached_in_toc(bytes));
    components.extend(attached.into_iter().map(Component::Attached));
    let read =
        |c: Component| small.iter().find(|(found, _)| *found == c).map(|(_, b)| b.as_slice());
    let checksums = read(Component::Checksums).and_then(|bytes| Checksums::decode(bytes).ok());
    // Before `na` no checksum covers it.
    let own = read(Component::Statistics).filter(|_| set.version.has_statistics_checksums());
    let binding = checksums.as_ref().and_then(|list| list.binding.as_ref());
    let own = own.filter(|bytes| {
        binding.is_none_or(|binding| check_identity(binding, bytes, set.version).is_ok())
    });
    let own = own.and_then(|bytes| Statistics::decode(bytes, set.version).ok());
    let own = own.filter(|statistics| statistics.partitioner == Partitioner::Murmur3);
    let summary = read(Component::Summary);
    let span = span_of(own.as_ref(), checksums.as_ref(), summary);
    let mut statistics = own.unwrap_or_else(|| that_say_nothing(set));
    statistics.header = SerializationHeader::for_table(table, EncodingStats::NONE);
    let of = StandIn {
        statistics,
        checksums,
        span,
        components,
        data_length,
        small_bytes: small.iter().map(|(_, bytes)| bytes.len()).sum(),
        is_sealed: files.is_none_or(|files| files.is_sealed()),
        why: error.to_string(),
    };
    let meta = SstableMeta::stand_in(directory, set, table, of)?;
    let data = ComponentFile::Plain(data.unwrap_or_else(|| some.clone()));
    Ok(SstableReader::of_parts(meta, data, ComponentFile::Plain(some), None))
}

/// First and last token, from components with matching checksums; otherwise the whole ring.
fn span_of(
    own: Option<&Statistics>,
    checksums: Option<&Checksums>,
    summary: Option<&[u8]>,
) -> (Token, Token) {
    let keys = own.and_then(|statistics| statistics.stats.key_range.clone()).or_else(|| {
        let bytes = summary?;
        checksums?.component(Component::Summary)?.verify_all(bytes).ok()?;
        let summary = Summary::decode(bytes, Partitioner::Murmur3).ok()?;
        Some((summary.first, summary.last))
    });
    let span = keys.map(|(first, last)| (codec::token_of(&first), codec::token_of(&last)));
    span.filter(|(first, last)| first <= last).unwrap_or((Token::MIN, Token::MAX))
}

/// Statistics by which nothing may be left out, and nothing be purged.
fn that_say_nothing(set: Descriptor) -> Statistics {
    let facts = FileFacts {
        commit_log: Vec::new(),
        originating_host: None,
        level: 0,
        repaired_at: 0,
        pending_repair: None,
        compression_ratio: -1.0,
        key_range: None,
    };
    let (mut stats, cardinality) = StatsCollector::default().finish(facts);
    stats.min_timestamp = TimestampMicros(i64::MIN + 1);
    stats.max_timestamp = TimestampMicros(i64::MAX);
    stats.min_local_deletion = DeletionSeconds(0);
    stats.max_local_deletion = DeletionSeconds::NONE;
    stats.has_partition_deletions = true;
    stats.covered = None;
    Statistics {
        version: set.version,
        partitioner: Partitioner::Murmur3,
        bloom_fp_chance: 0.01,
        cardinality,
        stats,
        header: SerializationHeader {
            stats: EncodingStats::NONE,
            key_types: Vec::new(),
            clustering_types: Vec::new(),
            statics: Vec::new(),
            regulars: Vec::new(),
        },
    }
}
