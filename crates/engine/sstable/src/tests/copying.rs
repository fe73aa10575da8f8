//! Rows that are copied verbatim, or written many at once, give the same files as rows written one by
//! one.

use std::cell::RefCell;
use std::sync::Arc;

use data::{
    BoundRef, CellRef, ClusteringBuf, DeletionTime, Item, Liveness, Marker, RowBuilder, RowRef,
    Slices,
};
use schema::Table;
use sst_format::{
    Component, EncodingStats, HeaderColumn, PackedRow, RowCopier, SerializationHeader,
};
use stdx::{ColumnId, DeletionSeconds, TimestampMicros, Token, TtlSeconds};
use types::CqlType;

use super::*;
use crate::{
    CopiedRows, CopyUntil, Follows, LargeData, LargeLimits, Lookahead, Version, WriteCompression,
};

const NOW: i64 = 1_700_000_000_000_000;
const LOCAL: DeletionSeconds = DeletionSeconds(1_700_000_000);

/// Draws below a bound, each time another number.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound
    }

    fn is_rare(&mut self) -> bool {
        self.below(40) == 0
    }
}

/// One of the items of a file, owned.
enum Owned {
    Partition(Vec<u8>, DeletionTime),
    Static(Vec<u8>),
    Row(Vec<u8>, Vec<u8>),
    Marker(Vec<u8>, Option<DeletionTime>, Option<DeletionTime>),
    End,
}

impl Owned {
    fn of(item: Item<'_>) -> Owned {
        match item {
            Item::Partition { key, deletion, .. } => Owned::Partition(key.to_vec(), deletion),
            Item::Static(row) => Owned::Static(row.bytes().to_vec()),
            Item::Row { clustering, row } => Owned::Row(clustering.to_vec(), row.bytes().to_vec()),
            Item::Marker(m) => Owned::Marker(m.position.prefix.to_vec(), m.close, m.open),
            Item::PartitionEnd => Owned::End,
        }
    }

    fn item(&self) -> Item<'_> {
        match self {
            Owned::Partition(key, deletion) => {
                Item::Partition { token: codec::token_of(key), key, deletion: *deletion }
            }
            Owned::Static(row) => Item::Static(RowRef::trusted(row)),
            Owned::Row(clustering, row) => Item::Row { clustering, row: RowRef::trusted(row) },
            Owned::Marker(prefix, close, open) => Item::Marker(Marker {
                position: BoundRef { prefix, after: open.is_none() },
                close: *close,
                open: *open,
            }),
            Owned::End => Item::PartitionEnd,
        }
    }
}

/// With or without a clustering column and a static column, which has id 0 then.
fn table(clustering: bool, with_static: bool) -> Table {
    let column = |name: &str, ty| HeaderColumn { name: name.to_owned(), ty };
    let header = SerializationHeader {
        stats: EncodingStats::NONE,
        key_types: vec![CqlType::Blob],
        clustering_types: if clustering { vec![(CqlType::Int, false)] } else { Vec::new() },
        statics: if with_static { vec![column("s", CqlType::Blob)] } else { Vec::new() },
        regulars: vec![column("a", CqlType::Blob), column("b", CqlType::Int)],
    };
    crate::offline::table_of_header(&header)
}

fn draw_row(draw: &mut Draw, ids: &[ColumnId]) -> Vec<u8> {
    let timestamp = TimestampMicros(NOW + draw.below(1 << 20) as i64);
    let mut liveness = Liveness::new(timestamp);
    if draw.is_rare() {
        liveness.ttl = TtlSeconds(60);
        liveness.expires_at = DeletionSeconds(LOCAL.0 + 60);
    }
    let mut deletion = DeletionTime::LIVE;
    if draw.is_rare() {
        deletion = DeletionTime { timestamp: TimestampMicros(NOW - 1), local: LOCAL };
    }
    let mut out = Vec::new();
    let mut builder = RowBuilder::new(&mut out, liveness, deletion, timestamp);
    for (n, id) in ids.iter().enumerate() {
        let value = vec![b'v'; if n == 0 { draw.below(60) } else { 4 }];
        match draw.below(100) {
            0 => continue,
            1 => builder.cell(*id, &CellRef::tombstone(timestamp, LOCAL)),
            2 => builder.cell(*id, &CellRef::live(TimestampMicros(NOW), &value)),
            _ => builder.cell(*id, &CellRef::live(timestamp, &value)),
        }
    }
    builder.finish();
    out
}

/// Partitions of a few rows or of many, most of them of the usual form.
fn draw_items(draw: &mut Draw, table: &Table) -> Vec<Owned> {
    let mut keys: Vec<Vec<u8>> =
        (0..400u32).map(|n| n.to_be_bytes()[..].repeat(1 + draw.below(5))).collect();
    // Some share one token; an index separates them by their bytes.
    for n in 0..20u64 {
        let token = codec::token_of(&keys[draw.below(400)]);
        keys.extend((0..draw.below(3) as u64).map(|other| key_of_token(token, 3 * n + other)));
    }
    keys.sort_by_key(|key| (codec::token_of(key), key.clone()));
    let ids: Vec<ColumnId> = table.regulars().iter().map(|c| c.id).collect();
    let mut items = Vec::new();
    for key in keys {
        let deletion = DeletionTime { timestamp: TimestampMicros(NOW - 9), local: LOCAL };
        let deletion = if draw.is_rare() { deletion } else { DeletionTime::LIVE };
        items.push(Owned::Partition(key, deletion));
        if let Some(column) = table.statics().first()
            && draw.below(2) == 0
        {
            items.push(Owned::Static(draw_row(draw, &[column.id])));
        }
        let rows: i32 =
            if table.clustering().is_empty() { 1 } else { [1, 2, 5, 90][draw.below(4)] };
        let mut open = None;
        for n in 0..rows {
            let name = match table.clustering().is_empty() {
                true => Vec::new(),
                false => ClusteringBuf::from_components([&n.to_be_bytes()[..]]).0,
            };
            if draw.is_rare() && !name.is_empty() {
                let deletion = DeletionTime { timestamp: TimestampMicros(NOW - 5), local: LOCAL };
                let next = if open.is_none() { Some(deletion) } else { None };
                // It ends before the following row as an exclusive end, so not after it.
                if next.is_some() {
                    items.push(Owned::Marker(name.clone(), open, next));
                    open = next;
                }
            }
            items.push(Owned::Row(name.clone(), draw_row(draw, &ids)));
            if open.is_some() && draw.below(3) == 0 {
                items.push(Owned::Marker(name, open.take(), None));
            }
        }
        if open.is_some() {
            let name = ClusteringBuf::from_components([&rows.to_be_bytes()[..]]).0;
            items.push(Owned::Marker(name, open, None));
        }
        items.push(Owned::End);
    }
    items
}

/// A key of 16 bytes with that token, another one for each number.
fn key_of_token(token: Token, number: u64) -> Vec<u8> {
    // Inverts a multiplication by an odd number: each step doubles the bits that are right.
    let inverse =
        |n: u64| (0..6).fold(n, |x, _| x.wrapping_mul(2u64.wrapping_sub(n.wrapping_mul(x))));
    let undo_shift = |k: u64| k ^ (k >> 33);
    let undo_mix = |k: u64| {
        let k = undo_shift(k).wrapping_mul(inverse(0xc4ce_b9fe_1a85_ec53));
        undo_shift(undo_shift(k).wrapping_mul(inverse(0xff51_afd7_ed55_8ccd)))
    };
    // The last steps of Murmur3 first, down to its only block.
    let (first, second) = (token.0.cast_unsigned(), number);
    let mixed = second.wrapping_sub(first);
    let (h1, h2) = (undo_mix(first.wrapping_sub(mixed)), undo_mix(mixed));
    let (h2, h1) = (h2.wrapping_sub(h1), h1.wrapping_sub(h2.wrapping_sub(h1)));
    let (h1, h2) = (h1 ^ 16, h2 ^ 16);
    let (c1, c2) = (0x87c3_7b91_1142_53d5_u64, 0x4cf5_ad43_2745_937f_u64);
    let undo_add = |h: u64, add: u64| h.wrapping_sub(add).wrapping_mul(inverse(5));
    let k2 = undo_add(h2, 0x3849_5ab5).wrapping_sub(h1).rotate_right(31);
    let k2 = k2.wrapping_mul(inverse(c1)).rotate_right(33).wrapping_mul(inverse(c2));
    let k1 = undo_add(h1, 0x52dc_e729).rotate_right(27);
    let k1 = k1.wrapping_mul(inverse(c2)).rotate_right(31).wrapping_mul(inverse(c1));
    let key = [k1.to_le_bytes(), k2.to_le_bytes()].concat();
    assert_eq!(codec::token_of(&key), token);
    key
}

/// How the rows of a file come to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    OneByOne,
    Copied,
    Packed,
    /// Partitions of one row are looked for ahead, and written many at once.
    Whole,
    PackedWhole,
}

struct Place<'p> {
    fs: &'p Fs,
    directory: &'p str,
    table: &'p Table,
    /// Large data reported by the files finished here.
    large: RefCell<LargeData>,
}

impl Place<'_> {
    async fn create(&self, change: impl Fn(&mut WriterOptions)) -> SstableWriter {
        self.fs.create_dir_all(self.directory).await.unwrap();
        let mut options =
            WriterOptions::for_table(self.table, Generation(1), 400, EncodingStats::NONE).unwrap();
        options.encoding_stats.min_timestamp = TimestampMicros(NOW - 20);
        change(&mut options);
        SstableWriter::create(self.fs, self.directory, self.table, options).await.unwrap()
    }

    async fn finish(&self, writer: SstableWriter) -> SstableReader {
        let written = writer.finish().await.unwrap().unwrap();
        *self.large.borrow_mut() = written.large;
        let descriptor = written.descriptor;
        SstableReader::open(self.fs, self.directory, descriptor, Some(self.table)).await.unwrap()
    }

    async fn write(&self, items: &[Owned], change: impl Fn(&mut WriterOptions)) -> SstableReader {
        let mut writer = self.create(change).await;
        for item in items {
            writer.put(item.item()).unwrap();
            writer.write_full().await.unwrap();
        }
        self.finish(writer).await
    }

    /// Writes rows many at once where they are of the usual form; how many rows were. `wholes`: partitions of one row
    /// too, and how many of these.
    async fn write_packed(
        &self,
        items: &[Owned],
        wholes: bool,
        change: impl Fn(&mut WriterOptions),
    ) -> (SstableReader, u64) {
        let mut writer = self.create(change).await;
        let (mut at, mut packed, mut whole) = (0, 0, 0);
        let mut waiting = None;
        while let Some(item) = items.get(at) {
            if let (Owned::Partition(..), true, Some(most)) = (item, wholes, writer.whole_max()) {
                let (schema, mut next) = (writer.schema(), at);
                let count = writer.whole_partitions(None, || {
                    let [Owned::Partition(key, deletion), row, Owned::End] =
                        items.get(next..next + 3)?
                    else {
                        return None;
                    };
                    let Owned::Row(clustering, row) = row else { return None };
                    let row = PackedRow::new(&schema, clustering, RowRef::trusted(row))?;
                    let is_small = key.len() + row.length_max() <= most;
                    next += 3;
                    (deletion.is_live() && is_small).then(|| (codec::hash_key(key), &key[..], row))
                });
                let count = count.unwrap();
                writer.write_full().await.unwrap();
                whole += count as u64;
                at += 3 * count;
                if count > 0 {
                    continue;
                }
            }
            let rows = items[at..].iter().map_while(|item| match item {
                Owned::Row(clustering, row) => Some((&clustering[..], RowRef::trusted(row))),
                _ => None,
            });
            let begin = waiting.map(|key: &Vec<u8>| key.as_slice());
            let count = writer.packed_rows(begin, rows).unwrap();
            if count > 0 {
                waiting = None;
                packed += count;
                at += usize::try_from(count).unwrap();
                writer.write_full().await.unwrap();
                continue;
            }
            if let Some(key) = waiting.take() {
                writer.partition(key, DeletionTime::LIVE).unwrap();
            }
            match item {
                // Begun with its first row.
                Owned::Partition(key, deletion) if deletion.is_live() => waiting = Some(key),
                item => writer.put(item.item()).unwrap(),
            }
            at += 1;
        }
        (self.finish(writer).await, if wholes { whole } else { packed })
    }

    /// Copies a file's rows where that is possible; how many.
    async fn copy(
        &self,
        from: &SstableReader,
        change: impl Fn(&mut WriterOptions),
    ) -> (SstableReader, u64) {
        let mut writer = self.create(change).await;
        let all = Arc::new(Slices::all());
        let mut cursor = from.range_cursor(0, data::command::KeyRange::all(), all, None);
        let copier = writer.copier(from.meta()).unwrap();
        let mut rows = 0;
        loop {
            let copied = copy_some(&mut writer, &mut cursor, &copier);
            rows += copied.rows;
            writer.write_full().await.unwrap();
            if copied.bytes > 0 {
                continue;
            }
            match cursor.advance().unwrap() {
                Advance::Item => writer.put(cursor.item()).unwrap(),
                Advance::End => break,
                Advance::NeedBlock(request) => {
                    let chunk = from.load_block(request.block).await.unwrap();
                    cursor.feed(request.block, chunk);
                }
            }
        }
        (self.finish(writer).await, rows)
    }

    /// Copies partitions of one row as the lookahead finds them, and all else item by item; returns
    /// how many. Now and then the cursor moves on alone, and returns where it can.
    async fn copy_ahead(
        &self,
        from: &SstableReader,
        draw: &mut Draw,
        change: impl Fn(&mut WriterOptions),
    ) -> (SstableReader, u64) {
        let mut writer = self.create(change).await;
        let all = Arc::new(Slices::all());
        let mut cursor = from.range_cursor(0, data::command::KeyRange::all(), all, None);
        let copier = writer.copier(from.meta()).unwrap();
        let (mut partitions, mut ahead) = (0, Lookahead::default());
        let (mut is_between, mut at_start) = (true, false);
        loop {
            if is_between && draw.below(8) > 0 {
                if at_start {
                    at_start = !cursor.step_back();
                }
                cursor.look_ahead(Some(&copier), &mut ahead);
                assert!(!at_start || ahead.is_empty());
                let mut next = 0;
                let most = writer.whole_max().unwrap_or(0).min([usize::MAX, 100][draw.below(2)]);
                let limit = [usize::MAX, 3][draw.below(2)];
                let count = writer.whole_partitions(None, || {
                    let (hash, key, row) =
                        ahead.partition(next, &copier).filter(|_| next < limit)?;
                    next += 1;
                    (key.len() + row.length <= most).then_some((hash, key, row))
                });
                let count = count.unwrap();
                writer.write_full().await.unwrap();
                assert!(at_start || cursor.is_at(&ahead, 0));
                cursor.pass_ahead(&ahead, count);
                assert!(at_start || cursor.is_at(&ahead, count));
                partitions += count as u64;
                match ahead.follows() {
                    Follows::Block(block) if count == ahead.len() && draw.below(3) > 0 => {
                        cursor.feed(block, from.load_block(block).await.unwrap());
                        continue;
                    }
                    Follows::End if count == ahead.len() => {
                        assert!(matches!(cursor.advance(), Ok(Advance::End)));
                        break;
                    }
                    _ => {}
                }
            }
            // It stood there when it was not taken.
            if !std::mem::take(&mut at_start) {
                match cursor.advance().unwrap() {
                    Advance::Item => {}
                    Advance::End => break,
                    Advance::NeedBlock(request) => {
                        let chunk = from.load_block(request.block).await.unwrap();
                        cursor.feed(request.block, chunk);
                        continue;
                    }
                }
                at_start = is_between && draw.below(2) == 0;
                if at_start {
                    continue;
                }
            }
            is_between = matches!(cursor.item(), Item::PartitionEnd);
            writer.put(cursor.item()).unwrap();
            writer.write_full().await.unwrap();
        }
        (self.finish(writer).await, partitions)
    }

    async fn files(&self, reader: &SstableReader) -> Vec<(Component, Vec<u8>)> {
        let mut files = Vec::new();
        for component in reader.meta().components() {
            let path = reader.meta().file(*component);
            files.push((*component, self.fs.read(&path, 1 << 26).await.unwrap()));
        }
        files
    }
}

fn copy_some(
    writer: &mut SstableWriter,
    cursor: &mut SstableCursor,
    copier: &RowCopier,
) -> CopiedRows {
    let Some(bytes) = cursor.raw_rows() else { return CopiedRows::default() };
    let first = copier.row(bytes).filter(|row| !writer.may_be_large(row.length));
    let Some(first) = first else { return CopiedRows::default() };
    let copied = writer.copy_rows(copier, first, bytes, CopyUntil::PartitionEnd).unwrap();
    cursor.pass_rows(copied.bytes, copied.ended);
    copied
}

async fn items_of(reader: &SstableReader) -> Vec<Owned> {
    let all = Arc::new(Slices::all());
    let mut cursor = reader.range_cursor(0, data::command::KeyRange::all(), all, None);
    let mut items = Vec::new();
    while next(reader, &mut cursor).await {
        items.push(Owned::of(cursor.item()));
    }
    items
}

#[test]
fn copied_and_packed_rows_give_the_files_of_rows_one_by_one() {
    run(|rt| async move {
        let fs = rt.fs();
        let mut counts = [0, 0, 0];
        let mut wholes = [0, 0];
        for seed in 0..24u64 {
            let mut draw = Draw(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
            let table = table(seed % 3 != 0, seed % 6 == 1);
            let version = WriterOptions::VERSIONS[draw.below(WriterOptions::VERSIONS.len())];
            let chunk_length = [4096, 16_384][draw.below(2)];
            let (compressed, block) = (draw.below(4) > 0, [600, 4096, 65_536][draw.below(3)]);
            let limit = [u64::MAX, 120, 60][draw.below(3)];
            let large =
                LargeLimits { row_bytes: limit, cell_bytes: limit / 2, ..LargeLimits::default() };
            let change = move |options: &mut WriterOptions| {
                options.large = large;
                options.version = version;
                options.column_index_size = block;
                let plain: Option<&mut WriteCompression> = options.compression.as_mut();
                if let Some(compression) = plain.filter(|_| compressed) {
                    compression.chunk_length = chunk_length;
                } else {
                    options.compression = None;
                }
            };
            let source = |options: &mut WriterOptions| {
                change(options);
                // Another base, so other lengths of times.
                options.encoding_stats.min_timestamp = TimestampMicros(NOW + 3);
                options.version = Version::Nb;
            };
            let directories = ["source", "single", "copied", "packed", "whole", "packed-whole"];
            let directories = directories.map(|name| format!("{name}{seed}"));
            let places: Vec<Place<'_>> = directories
                .iter()
                .map(|directory| Place {
                    fs: &fs,
                    directory,
                    table: &table,
                    large: RefCell::default(),
                })
                .collect();
            let place = |n: usize| &places[n];
            let items = draw_items(&mut draw, &table);
            let source = place(0).write(&items, source).await;
            let items = items_of(&source).await;
            let single = place(1).write(&items, change).await;
            let expect = place(1).files(&single).await;
            let (copied, rows) = place(2).copy(&source, change).await;
            counts[0] += rows;
            let (packed, rows) = place(3).write_packed(&items, false, change).await;
            counts[1] += rows;
            let (whole, partitions) = place(4).copy_ahead(&source, &mut draw, change).await;
            wholes[0] += partitions;
            let (packed_whole, rows) = place(5).write_packed(&items, true, change).await;
            wholes[1] += rows;
            for (way, place, reader) in [
                (Way::OneByOne, place(1), single),
                (Way::Copied, place(2), copied),
                (Way::Packed, place(3), packed),
                (Way::Whole, place(4), whole),
                (Way::PackedWhole, place(5), packed_whole),
            ] {
                for (file, expect) in place.files(&reader).await.iter().zip(&expect) {
                    assert!(file == expect, "seed {seed}, {way:?}: {:?} differs", expect.0);
                }
                let (large, expect) = (place.large.borrow(), places[1].large.borrow());
                assert!(*large == *expect, "seed {seed}, {way:?}: other large ones");
                counts[2] += large.row_count.min(large.cell_count);
            }
        }
        assert!(counts[..2].iter().all(|rows| *rows > 10_000), "{counts:?}");
        assert!(wholes.iter().all(|wholes| *wholes > 1_000), "{wholes:?}");
        assert!(counts[2] > 1_000, "{counts:?}: large ones");
    });
}

/// Partitions of one row of the usual form, some of which have one token.
fn whole_items(draw: &mut Draw, table: &Table) -> Vec<Owned> {
    let mut keys: Vec<Vec<u8>> = (0..60u32).map(|n| n.to_be_bytes().to_vec()).collect();
    for n in 0..40 {
        let token = codec::token_of(&keys[draw.below(60)]);
        keys.push(key_of_token(token, n));
    }
    keys.sort_by_key(|key| (codec::token_of(key), key.clone()));
    let ids: Vec<ColumnId> = table.regulars().iter().map(|c| c.id).collect();
    let mut items = Vec::new();
    for key in keys {
        let name = match table.clustering().is_empty() {
            true => Vec::new(),
            false => {
                let value = (draw.below(1_000_000) as u32).to_be_bytes();
                ClusteringBuf::from_components([value.as_slice()]).0
            }
        };
        let at = TimestampMicros(NOW + draw.below(1 << 20) as i64);
        let mut row = Vec::new();
        let mut builder = RowBuilder::new(&mut row, Liveness::new(at), DeletionTime::LIVE, at);
        for (n, id) in ids.iter().enumerate() {
            let value = vec![b'v'; if n == 0 { draw.below(60) } else { 4 }];
            builder.cell(*id, &CellRef::live(at, &value));
        }
        builder.finish();
        items.extend([
            Owned::Partition(key, DeletionTime::LIVE),
            Owned::Row(name, row),
            Owned::End,
        ]);
    }
    items
}

#[test]
fn whole_partitions_alone_and_those_of_one_token_give_the_same_files() {
    run(|rt| async move {
        let fs = rt.fs();
        let mut counts = [0, 0];
        for (seed, version) in (0..12).zip(WriterOptions::VERSIONS.into_iter().cycle()) {
            let mut draw = Draw(0x9e37_79b9_7f4a_7c15 + seed);
            let table = table(seed % 3 == 0, false);
            let items = whole_items(&mut draw, &table);
            let change = move |options: &mut WriterOptions| options.version = version;
            let mut files: Vec<Vec<(Component, Vec<u8>)>> = Vec::new();
            for way in ["one by one", "packed", "ahead"] {
                let directory = format!("{way}{seed}");
                let (table, large) = (&table, RefCell::default());
                let place = Place { fs: &fs, directory: &directory, table, large };
                let reader = match way {
                    "packed" => {
                        let (reader, count) = place.write_packed(&items, true, change).await;
                        counts[0] += count;
                        reader
                    }
                    "ahead" => {
                        let source = place.write(&items, change).await;
                        let directory = format!("{directory}-copied");
                        let place = Place { directory: &directory, ..place };
                        let (reader, count) = place.copy_ahead(&source, &mut draw, change).await;
                        counts[1] += count;
                        files.push(place.files(&reader).await);
                        continue;
                    }
                    _ => place.write(&items, change).await,
                };
                files.push(place.files(&reader).await);
            }
            let [single, packed, ahead] = files.as_slice() else { panic!("three ways") };
            for ((single, packed), ahead) in single.iter().zip(packed).zip(ahead) {
                assert!(single == packed, "seed {seed}, {version}: {:?} of packed ones", single.0);
                assert!(single == ahead, "seed {seed}, {version}: {:?} of copied ones", single.0);
            }
        }
        assert!(counts[0] == 1_200 && counts[1] > 600, "{counts:?}");
    });
}
