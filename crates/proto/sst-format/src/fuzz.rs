//! Entry points for fuzzing: any bytes in, no panic, and decoded data encodes to equal bytes.

use stdx::invariant;

use crate::checksums::{Checksums, DataCrc, decode_digest};
use crate::component::{decode_toc, encode_toc};
use crate::header::{EncodingStats, ReadColumn, ReadColumns, ReadSchema, SerializationHeader};
use crate::index::{IndexEntry, IndexInfo, PromotedHeader, sample_entries, skip_other_keys};
use crate::partitions::{Footer, RowsEntry, partition_payload, row_payload};
use crate::row::{
    HeadKind, RowScratch, decode_any_head, decode_any_row, decode_head, decode_marker, decode_row,
    decode_usual,
};
use crate::trie::{Node, Path, follow};
use crate::{BloomFilter, CompressionInfo, Descriptor, Partitioner, Statistics, Summary, Version};

fn schema(wide: bool, in_order: bool) -> ReadSchema {
    let column = |id: u16, complex: bool, fixed| ReadColumn {
        id: (id % 7 != 3).then_some(stdx::ColumnId(if in_order {
            id
        } else {
            200u16.saturating_sub(id)
        })),
        complex,
        fixed,
        dropped_at: stdx::TimestampMicros::NONE,
    };
    let count = if wide { 80 } else { 6 };
    let columns = (0..count).map(|i| column(i, i % 3 == 2, (i % 3 == 1).then_some(4))).collect();
    ReadSchema {
        version: if wide { Version::Oa } else { Version::Nb },
        stats: EncodingStats::NONE,
        clustering: vec![Some(4), None],
        statics: ReadColumns { columns: vec![column(0, false, None)], in_id_order: true },
        regulars: ReadColumns { columns, in_id_order: in_order },
    }
}

/// A run of rows and markers, as a Data file holds them; the first byte picks the schema.
pub fn fuzz_rows(data: &[u8]) {
    let Some((choice, mut bytes)) = data.split_first() else { return };
    let schema = schema(choice & 1 != 0, choice & 2 != 0);
    let mut scratch = RowScratch::default();
    let mut other = RowScratch::default();
    loop {
        // The quick way and the general one agree wherever the quick one answers.
        let usual = decode_usual(&schema, bytes, &mut other);
        let Ok(head) = decode_head(&schema, bytes, &mut scratch) else {
            invariant!(usual.is_none(), "a row that does not decode was read");
            return;
        };
        let any = decode_any_head(&schema, bytes, &mut scratch);
        invariant!(any == Ok(head), "two readings of a head");
        if let (Some(end), Some(body)) = (usual, bytes.get(head.body..head.end)) {
            invariant!(end == head.end && other.clustering == scratch.clustering, "heads differ");
            let any = decode_any_row(&schema, &schema.regulars, &head, body, &mut scratch);
            invariant!(any.is_ok_and(|row| row.bytes() == other.row), "rows differ");
        }
        let Some(body) = bytes.get(head.body..head.end) else { return };
        match head.kind {
            HeadKind::EndOfPartition => {}
            HeadKind::Marker(kind) => drop(decode_marker(&schema, kind, body)),
            HeadKind::Row | HeadKind::StaticRow => {
                if let Ok(row) = decode_row(&schema, &head, body, &mut scratch) {
                    invariant!(data::RowRef::parse(row.bytes()).is_some(), "a packed row parses");
                }
            }
        }
        bytes = bytes.get(head.end..).unwrap_or(&[]);
    }
}

/// Index entries with their promoted parts.
pub fn fuzz_index(data: &[u8]) {
    fuzz_index_of(data, Version::Nb);
    fuzz_index_of(data, Version::Oa);
}

fn fuzz_index_of(data: &[u8], version: Version) {
    let lengths = [Some(4), None];
    let mut bytes = data;
    let mut info = IndexInfo::default();
    drop(sample_entries(data));
    // The lookup skips entries that decode, none of them of the key.
    let key = b"key".as_slice();
    let (passed, mut at) = (skip_other_keys(data, key), 0);
    while at < passed {
        let entry = IndexEntry::decode(data.get(at..).unwrap_or(&[]));
        invariant!(entry.is_ok_and(|e| e.key != key), "an entry was passed over wrongly");
        at = entry.map_or(passed, |e| at.saturating_add(e.end()));
    }
    invariant!(at == passed, "the lookup stands within an entry");
    while let Ok(entry) = IndexEntry::decode(bytes) {
        if let Some(promoted) = bytes.get(entry.promoted_at..entry.end())
            && let Ok(header) = PromotedHeader::decode(promoted, entry.promoted_length, version)
        {
            let mut rest = promoted.get(header.length..).unwrap_or(&[]);
            while let Ok(n) = info.decode_into(rest, &lengths, version) {
                rest = rest.get(n..).unwrap_or(&[]);
            }
        }
        bytes = bytes.get(entry.end()..).unwrap_or(&[]);
    }
}

/// Statistics.db and the header alone.
pub fn fuzz_statistics(data: &[u8]) {
    for version in Version::ALL {
        let Ok(statistics) = Statistics::decode(data, version) else { continue };
        invariant!(Statistics::identity(data, version).is_ok(), "what decodes has an identity");
        drop(statistics.encode());
        drop(crate::hyperloglog::HyperLogLog::decode(&statistics.cardinality));
    }
    if let Ok(header) = SerializationHeader::decode(data) {
        let mut out = Vec::new();
        header.encode(&mut out);
        invariant!(
            SerializationHeader::decode(&out).is_ok_and(|h| h == header),
            "a header comes back"
        );
    }
}

/// Summary.db.
pub fn fuzz_summary(data: &[u8]) {
    for order in [Partitioner::Murmur3, Partitioner::ByteOrdered] {
        let Ok(summary) = Summary::decode(data, order) else { continue };
        let back = summary.encode().map(|bytes| Summary::decode(&bytes, order));
        invariant!(back == Ok(Ok(summary)), "summary");
    }
}

/// Filter.db.
pub fn fuzz_filter(data: &[u8]) {
    drop(BloomFilter::decode(data, Version::Ma));
    if let Ok(filter) = BloomFilter::decode(data, Version::Nb) {
        invariant!(filter.encode(Version::Nb) == data, "a filter has one form");
        filter.may_contain(codec::hash_key(data).bloom);
    }
}

/// CompressionInfo.db.
pub fn fuzz_compression_info(data: &[u8]) {
    for version in [Version::Me, Version::Nb] {
        let Ok(info) = CompressionInfo::decode(data, version) else { continue };
        for i in 0..=info.offsets.len().min(100) {
            info.chunk(i, data.len() as u64);
            info.chunk_data_length(i);
        }
    }
}

/// Partitions.db and Rows.db: the first two bytes give the root, the rest is the file.
pub fn fuzz_tries(data: &[u8]) {
    let Some((root, file)) = data.split_first_chunk::<2>() else { return };
    let root = u64::from(u16::from_be_bytes(*root));
    let payload = |position: Option<u64>| {
        if let Some(position) = position
            && let Ok(node) = Node::read(file, position)
        {
            let _ = partition_payload(&node, position);
            let _ = row_payload(&node, position, Version::Da);
        }
    };
    let key = file.get(..20).unwrap_or(file);
    let _ = follow(file, root, key);
    for path in
        [Path::first(file, root), Path::floor(file, root, key), Path::ceiling(file, root, key)]
    {
        let Ok(start) = path else { continue };
        for forward in [true, false] {
            let mut path = start.clone();
            for _ in 0..200 {
                payload(path.node());
                let moved = if forward { path.next(file) } else { path.previous(file) };
                if moved.is_err() || path.node().is_none() {
                    break;
                }
            }
        }
    }
    drop(Footer::decode(file, file.len() as u64));
    let _ = RowsEntry::decode(file, root, Version::Da);
    let _ = std::str::from_utf8(file).ok().and_then(Descriptor::parse_any);
}

/// Checksums.db, CRC.db, Digest.crc32 and TOC.txt.
pub fn fuzz_small(data: &[u8]) {
    if let Ok(list) = Checksums::decode(data) {
        invariant!(Checksums::decode(&list.encode()).as_ref() == Ok(&list), "a list comes back");
    }
    drop(DataCrc::decode(data));
    drop(decode_digest(data));
    if let Ok(list) = decode_toc(data) {
        invariant!(decode_toc(&encode_toc(&list)).as_ref() == Ok(&list), "a list comes back");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksums::{Binding, BlockChecksummer, StorageGroup};
    use crate::clustering::{Prefix, PrefixKind};
    use crate::header::HeaderColumn;
    use crate::index::PromotedBuilder;
    use crate::partitions::{RowBlock, encode_block};
    use crate::row_write::{
        EncodeScratch, RowKind, encode_marker, encode_partition_end, encode_row,
    };
    use crate::stats_collector::{FileFacts, StatsCollector};
    use crate::summary::SummaryBuilder;
    use crate::trie_write::TrieWriter;
    use crate::{Component, SerializationHeader};
    use data::row::{CellRef, RowBuilder};
    use data::{BoundRef, ClusteringBuf, DeletionTime, Liveness, Marker, RowRef};
    use stdx::{DeletionSeconds, TimestampMicros, Token, TtlSeconds};
    use testkit::mutate;
    use types::CqlType;

    const DELETION: DeletionTime = DeletionTime {
        timestamp: TimestampMicros(1_700_000_000_000_000),
        local: DeletionSeconds(1_700_000_000),
    };

    /// A made-up table of the shape that `schema(wide, in_order)` reads.
    fn write_schema(wide: bool, in_order: bool) -> (crate::WriteSchema, schema::Table) {
        let read = super::schema(wide, in_order);
        let ty = |c: &ReadColumn| match (c.complex, c.fixed) {
            (true, _) => CqlType::map(CqlType::Text, CqlType::Int, false),
            (false, Some(_)) => CqlType::Int,
            (false, None) => CqlType::Blob,
        };
        let mut columns = Vec::new();
        let kinds = [
            (vec![], schema::ColumnKind::PartitionKey(0)),
            (read.statics.columns.clone(), schema::ColumnKind::Static),
            (read.regulars.columns.clone(), schema::ColumnKind::Regular),
        ];
        let mut header = [Vec::new(), Vec::new(), Vec::new()];
        for (list, (from, kind)) in header.iter_mut().zip(&kinds) {
            for (i, c) in from.iter().enumerate() {
                let name = format!("c{i:03}{kind:?}");
                list.push(HeaderColumn { name: name.clone(), ty: ty(c) });
                let id = match (c.id, kind) {
                    (Some(id), schema::ColumnKind::Regular) => id,
                    // The static column, and those that readers know as dropped.
                    _ => stdx::ColumnId(900 + i as u16),
                };
                columns.push(schema::Column { id, name: name.into(), ty: ty(c), kind: *kind });
            }
        }
        let [_, statics, regulars] = header;
        let header = SerializationHeader {
            stats: EncodingStats::NONE,
            key_types: vec![CqlType::Int],
            clustering_types: vec![(CqlType::Int, false), (CqlType::Text, true)],
            statics,
            regulars,
        };
        let table = schema::Table {
            id: stdx::TableId(stdx::Uuid::nil()),
            keyspace: "k".into(),
            name: "t".into(),
            kind: schema::TableKind::Regular,
            partition_key_count: 0,
            clustering_count: 0,
            static_count: 1,
            options: schema::TableOptions::default(),
            dropped: Default::default(),
            masks: Default::default(),
            indexes: Default::default(),
            version: 1,
            next_column_id: 901,
            columns,
        };
        (header.write_schema(&table, if wide { Version::Oa } else { Version::Nb }), table)
    }

    /// A row with cells of every kind, every `step`-th column of the table.
    fn row(table: &schema::Table, step: usize, liveness: Liveness) -> Vec<u8> {
        let mut ids: Vec<&schema::Column> =
            table.columns.iter().filter(|c| c.id.0 < 900).step_by(step).collect();
        ids.sort_by_key(|c| c.id);
        let mut out = Vec::new();
        let t = TimestampMicros(1_700_000_000_000_005);
        let mut b = RowBuilder::new(&mut out, liveness, DELETION, t);
        for (i, column) in ids.iter().enumerate() {
            let cell = match i % 4 {
                0 => CellRef::live(t, &[0, 0, 0, 7]),
                1 => CellRef::tombstone(t, DeletionSeconds(1_700_000_100)),
                2 => CellRef::expiring(
                    t,
                    TtlSeconds(60),
                    DeletionSeconds(1_700_000_160),
                    &[1, 2, 3, 4],
                ),
                _ => CellRef::live(TimestampMicros(5), &[]),
            };
            if column.is_complex() {
                let deletion = if i % 2 == 0 { DELETION } else { DeletionTime::LIVE };
                b.begin_complex(column.id, deletion);
                b.complex_cell(b"a", &cell);
                b.complex_cell(b"b", &cell);
                b.end_complex();
            } else {
                b.cell(column.id, &cell);
            }
        }
        b.finish();
        out
    }

    fn rows(choice: u8, step: usize) -> Vec<u8> {
        let (wide, in_order) = (choice & 1 != 0, choice & 2 != 0);
        let (schema, table) = write_schema(wide, in_order);
        let clustering = ClusteringBuf::from_components([&[0, 0, 0, 1][..], b"text"]).0;
        let (mut scratch, mut stats) = (EncodeScratch::default(), StatsCollector::default());
        let mut out = vec![choice];
        let liveness = Liveness {
            timestamp: TimestampMicros(1_700_000_000_000_005),
            ttl: TtlSeconds(60),
            expires_at: DeletionSeconds(1_700_000_160),
        };
        let packed = row(&table, step, liveness);
        let row = RowRef::trusted(&packed);
        encode_row(
            &schema,
            RowKind::Regular(&clustering),
            row,
            20,
            &mut scratch,
            &mut stats,
            &mut out,
        )
        .unwrap();
        let position = BoundRef { prefix: &clustering, after: true };
        let marker = Marker { position, close: Some(DELETION), open: Some(DELETION) };
        encode_marker(&schema, &marker, 50, &mut scratch, &mut stats, &mut out).unwrap();
        encode_partition_end(&mut out);
        out
    }

    /// INV-format-1.
    #[test]
    fn rows_of_any_bytes_never_panic() {
        let corpus: Vec<_> = (0..4).flat_map(|c| [1, 2, 5].map(|step| rows(c, step))).collect();
        mutate(&corpus, fuzz_rows);
    }

    /// INV-format-2.
    #[test]
    fn rows_of_every_schema_come_back() {
        for (choice, step) in (0..4).flat_map(|c| [(c, 1), (c, 2), (c, 5), (c, 50)]) {
            let bytes = rows(choice, step);
            let read = super::schema(choice & 1 != 0, choice & 2 != 0);
            let mut scratch = RowScratch::default();
            let head = decode_head(&read, &bytes[1..], &mut scratch).unwrap();
            assert_eq!(head.kind, HeadKind::Row);
            let body = &bytes[1..][head.body..head.end];
            let (_, table) = write_schema(choice & 1 != 0, choice & 2 != 0);
            let liveness = decode_row(&read, &head, body, &mut scratch).unwrap().liveness();
            assert_eq!(scratch.row, row(&table, step, liveness), "{choice} {step}");
        }
    }

    #[test]
    fn index_entries_of_any_bytes_never_panic() {
        let info = |open| IndexInfo {
            first: Prefix {
                kind: PrefixKind::Clustering,
                values: ClusteringBuf::from_components([&[0, 0, 0, 1][..], b"text"]).0,
            },
            last: Prefix { kind: PrefixKind::InclusiveEnd, values: Vec::new() },
            offset: 30,
            width: 70_000,
            open,
        };
        let lengths = [Some(4), None];
        let mut corpus = Vec::new();
        for version in [Version::Nb, Version::Oa] {
            let (mut builder, mut out) = (PromotedBuilder::default(), Vec::new());
            builder.encode_entry(b"key", 0, 30, &DELETION, version, &mut out).unwrap();
            for open in [None, Some(DELETION), None] {
                builder.push(&info(open), &lengths, version).unwrap();
            }
            builder.encode_entry(b"key2", 900, 30, &DELETION, version, &mut out).unwrap();
            corpus.push(out);
        }
        mutate(&corpus, fuzz_index);
    }

    #[test]
    fn statistics_of_any_bytes_never_panic() {
        let header = SerializationHeader {
            stats: EncodingStats::NONE,
            key_types: vec![CqlType::Text, CqlType::Int],
            clustering_types: vec![(CqlType::Int, true)],
            statics: Vec::new(),
            regulars: vec![HeaderColumn {
                name: "v".into(),
                ty: CqlType::list(CqlType::Text, false),
            }],
        };
        let facts = FileFacts {
            commit_log: Vec::new(),
            originating_host: Some(stdx::Uuid::nil()),
            level: 0,
            repaired_at: 0,
            pending_repair: None,
            compression_ratio: -1.0,
            key_range: Some((b"a".to_vec(), b"b".to_vec())),
        };
        let (stats, cardinality) = StatsCollector::default().finish(facts);
        let mut raw = Vec::new();
        header.encode(&mut raw);
        let version = Version::Oa;
        let partitioner = crate::Partitioner::Murmur3;
        let mut whole =
            Statistics { version, partitioner, bloom_fp_chance: 0.01, cardinality, stats, header };
        let mut corpus = vec![raw.clone(), raw];
        for version in Version::ALL.into_iter().rev() {
            whole.version = version;
            if !version.has_covered_slice() {
                (whole.stats.covered, whole.stats.key_range) = (None, None);
            }
            if version < Version::Nb && version != Version::Me {
                whole.stats.originating_host = None;
            }
            let bytes = whole.encode().unwrap();
            assert_eq!(Statistics::decode(&bytes, version).unwrap(), whole);
            corpus.push(bytes);
            if version == Version::Me {
                whole.stats.pending_repair = Some(stdx::Uuid::nil());
                assert!(whole.encode().is_err(), "it cannot be said");
                whole.stats.pending_repair = None;
            }
            whole.stats.originating_host = Some(stdx::Uuid::nil());
        }
        mutate(&corpus, fuzz_statistics);
    }

    #[test]
    fn tries_of_any_bytes_never_panic() {
        let mut corpus = Vec::new();
        for (keys, step) in [(400u32, 3u32), (40, 100_003)] {
            let mut out = Vec::new();
            let mut writer = TrieWriter::default();
            for key in 0..keys {
                let block = RowBlock {
                    offset: u64::from(key) << 9,
                    open: (key % 5 == 0).then_some(DELETION),
                };
                let payload = encode_block(&block, Version::Da);
                writer.add(&(key * step).to_be_bytes(), payload, 0, &mut out);
            }
            let root = writer.finish(0, &mut out).unwrap();
            let mut data = (root as u16).to_be_bytes().to_vec();
            data.extend_from_slice(&out);
            corpus.push(data);
        }
        mutate(&corpus, fuzz_tries);
    }

    #[test]
    fn small_components_of_any_bytes_never_panic() {
        let mut summary = SummaryBuilder::new(1);
        summary.add(b"", 0);
        summary.add(b"k", 9);
        mutate(&[summary.finish(b"k").encode().unwrap()], fuzz_summary);
        mutate(&[BloomFilter::with_capacity(10, 0.01).encode(Version::Nb)], fuzz_filter);
        let info = CompressionInfo {
            algorithm: Some(codec::Algorithm::Zstd),
            options: vec![("a".into(), "b".into())],
            chunk_length: 4096,
            max_compressed_length: 4000,
            data_length: 9000,
            offsets: vec![0, 100, 300],
        };
        mutate(&[info.encode(Version::Nb).unwrap()], fuzz_compression_info);
        let group = StorageGroup {
            shard: Some(1),
            shard_count: 2,
            first: Token(0),
            last: Token(1),
            run: None,
        };
        let components = vec![BlockChecksummer::of(Component::Data, b"data")];
        let binding = Binding { table: stdx::Uuid::nil(), id: "7".to_owned(), statistics: 1 };
        let unbound = Checksums { group, binding: None, components };
        let bound = Checksums { binding: Some(binding), ..unbound.clone() };
        let mut attached = bound.clone();
        let index = Component::any_from_file_name("Index+1.db").unwrap();
        attached.components.push(BlockChecksummer::of(index, b"terms"));
        mutate(
            &[
                attached.encode(),
                bound.encode(),
                unbound.encode(),
                b"Data.db\nTOC.txt\n".to_vec(),
                b"123".to_vec(),
            ],
            fuzz_small,
        );
    }
}
