//! Scrubs of values, counters and times, and their hosts.

use std::collections::BTreeMap;
use std::sync::Arc;

use data::command::KeyRange;
use data::{
    CellRef, ClusteringBuf, Cursor, DeletionTime, Item, Liveness, RowBuilder, RowRef, Slices,
};
use rt::Fs;
use schema::{Column, ColumnKind, Table, TableKind, TableOptions};
use sst_format::{DELETION_SECONDS_MAX, EncodingStats};
use stdx::{
    ColumnId, DeletionSeconds, Generation, TableId, TimestampMicros, Token, TtlSeconds, Uuid,
};
use types::CqlType;

use super::{next, run};
use crate::offline::{self, Loss, ScrubHost, ScrubOptions, ScrubReport};
use crate::{Component, Descriptor, SstableReader, SstableWriter, WriterOptions, list_sstables};

fn table(ty: CqlType) -> Table {
    let column =
        |id, name: &str, ty, kind| Column { id: ColumnId(id), name: name.into(), ty, kind };
    Table {
        id: TableId(Uuid::from_u128(1)),
        keyspace: "ks".into(),
        name: "t".into(),
        kind: TableKind::Regular,
        columns: vec![
            column(0, "pk", CqlType::Int, ColumnKind::PartitionKey(0)),
            column(1, "ck", CqlType::Int, ColumnKind::Clustering { position: 0, reversed: false }),
            column(2, "v", ty, ColumnKind::Regular),
        ],
        partition_key_count: 1,
        clustering_count: 1,
        static_count: 0,
        options: TableOptions::default(),
        dropped: BTreeMap::new(),
        masks: BTreeMap::new(),
        indexes: Default::default(),
        version: 1,
        next_column_id: 3,
    }
}

/// Partitions 0 to 9 with a row each of the given cell, uncompressed, repaired; file set 1.
async fn written(fs: &Fs, directory: &str, ty: CqlType, cell: impl Fn(i32) -> CellRef<'static>) {
    fs.create_dir_all(directory).await.unwrap();
    let table = table(ty);
    let mut options =
        WriterOptions::for_table(&table, Generation(1), 10, EncodingStats::NONE).unwrap();
    options.compression = None;
    options.repaired_at = 1_000;
    let mut writer = SstableWriter::create(fs, directory, &table, options).await.unwrap();
    let mut keys: Vec<[u8; 4]> = (0..10_i32).map(i32::to_be_bytes).collect();
    keys.sort_by_key(|key| codec::token_of(key));
    for key in keys {
        writer.partition(&key, DeletionTime::LIVE).unwrap();
        let mut row = Vec::new();
        let base = TimestampMicros(7);
        let mut builder = RowBuilder::new(&mut row, Liveness::NONE, DeletionTime::LIVE, base);
        builder.cell(ColumnId(2), &cell(i32::from_be_bytes(key)));
        builder.finish();
        let clustering = ClusteringBuf::from_components([[0, 0, 0, 1].as_slice()]).0;
        writer.row(&clustering, RowRef::trusted(&row)).unwrap();
        writer.put(Item::PartitionEnd).unwrap();
    }
    writer.finish().await.unwrap().unwrap();
}

/// A scrub of file set 1, and what was said of losses.
async fn scrub(
    fs: &Fs,
    directory: &str,
    how: ScrubOptions,
) -> (crate::Result<ScrubReport>, Vec<String>) {
    let mut told = Vec::new();
    let mut tell = |loss: &Loss| told.push(loss.to_string());
    let first = offline::next_generation(fs, directory).await.unwrap();
    let set = Descriptor::nb(Generation(1));
    let told_of = offline::Told { loss: &mut tell, at: &mut |_, _| {} };
    let done = offline::scrub(fs, directory, set, first, how, told_of).await;
    (done, told)
}

async fn repaired_at(fs: &Fs, directory: &str, report: &ScrubReport) -> i64 {
    let set = report.written[0].descriptor;
    let reader = SstableReader::open(fs, directory, set, None).await.unwrap();
    offline::verify(&reader).await.unwrap();
    reader.meta().statistics().stats.repaired_at
}

fn at(seconds: i64, value: &'static [u8]) -> CellRef<'static> {
    let (timestamp, ttl) = (TimestampMicros(7), TtlSeconds(60));
    CellRef::expiring(timestamp, ttl, DeletionSeconds(seconds), value)
}

#[test]
fn a_value_that_its_column_cannot_have_takes_its_row_unless_values_are_not_looked_at() {
    run(|rt| async move {
        let fs = rt.fs();
        written(&fs, "d", CqlType::Text, |pk| {
            let value: &[u8] = if pk == 5 { b"\xff\xff" } else { b"text" };
            CellRef::live(TimestampMicros(7), value)
        })
        .await;
        let (done, told) = scrub(&fs, "d", ScrubOptions::default()).await;
        let done = done.unwrap();
        assert_eq!((done.rows, done.losses, done.bad_partitions), (9, 1, 1));
        assert!(told[0].starts_with("partition '5'"), "{told:?}");
        assert!(told[0].ends_with("v has no value of its type: String didn't validate."));
        assert_eq!(repaired_at(&fs, "d", &done).await, 0, "it lacks something now");

        let how = ScrubOptions { validate: false, ..ScrubOptions::default() };
        let (done, told) = scrub(&fs, "d", how).await;
        let done = done.unwrap();
        assert_eq!((done.rows, done.losses, told.len()), (10, 0, 0));
        assert_eq!(repaired_at(&fs, "d", &done).await, 1_000);
    });
}

#[test]
fn damage_in_a_table_of_counters_ends_the_scrub_unless_it_may_count_less() {
    run(|rt| async move {
        let fs = rt.fs();
        written(&fs, "d", CqlType::Counter, |_| CellRef::live(TimestampMicros(7), &[0; 34])).await;
        let path = format!("d/{}", Descriptor::nb(Generation(1)).file_name(Component::Data));
        let mut bytes = fs.read(&path, 1 << 20).await.unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x10;
        fs.write_atomic(&path, bytes).await.unwrap();
        let (done, told) = scrub(&fs, "d", ScrubOptions::default()).await;
        let error = done.unwrap_err().to_string();
        assert!(error.contains("re-run the scrub with the --skip-corrupted option"), "{error}");
        assert_eq!(told.len(), 1);
        assert_eq!(list_sstables(&fs, "d").await.unwrap().len(), 1, "nothing is left behind");

        let how = ScrubOptions { skip_corrupted: true, ..ScrubOptions::default() };
        assert!(scrub(&fs, "d", how).await.0.unwrap().losses > 0);
    });
}

#[test]
fn times_that_overflowed_are_made_newer_when_that_is_asked_for() {
    run(|rt| async move {
        let fs = rt.fs();
        written(&fs, "d", CqlType::Text, |pk| match pk {
            3 => at(DELETION_SECONDS_MAX, b"over"),
            _ => at(DELETION_SECONDS_MAX - 1, b"in time"),
        })
        .await;
        for (is_wanted, expect) in
            [(false, vec![7; 10]), (true, [[8].as_slice(), &[7; 9]].concat())]
        {
            let how =
                ScrubOptions { reinsert_overflowed_ttl: is_wanted, ..ScrubOptions::default() };
            let done = scrub(&fs, "d", how).await.0.unwrap();
            assert_eq!(done.fixed_rows, u64::from(is_wanted));
            let set = done.written[0].descriptor;
            let reader = SstableReader::open(&fs, "d", set, None).await.unwrap();
            let all = Arc::new(Slices::all());
            let mut cursor = reader.range_cursor(0, KeyRange::all(), all, None);
            let mut timestamps = Vec::new();
            while next(&reader, &mut cursor).await {
                if let Item::Row { row, .. } = cursor.item() {
                    timestamps.extend(row.columns().map(|(_, column)| match column {
                        data::ColumnRef::Simple(cell) => cell.timestamp.0,
                        data::ColumnRef::Complex(_) => 0,
                    }));
                }
            }
            timestamps.sort_by_key(|timestamp| -timestamp);
            assert_eq!(timestamps, expect);
        }
    });
}

/// Wants every second token, and stops after `questions` questions.
struct Half {
    generation: u64,
    questions: u32,
    losses: u32,
}

impl ScrubHost for Half {
    fn next_generation(&mut self) -> Option<Generation> {
        self.generation += 2;
        Some(Generation(self.generation))
    }

    fn is_wanted(&self, token: Token) -> bool {
        token.0 % 2 == 0
    }

    fn tell(&mut self, _: &Loss) {
        self.losses += 1;
    }

    async fn goes_on(&mut self, _: u64, _: u64) -> bool {
        self.questions = self.questions.saturating_sub(1);
        self.questions > 0
    }
}

#[test]
fn whoever_has_a_file_scrubbed_says_what_is_wanted_and_for_how_long() {
    run(|rt| async move {
        let fs = rt.fs();
        written(&fs, "d", CqlType::Text, |_| CellRef::live(TimestampMicros(7), b"text")).await;
        let table = table(CqlType::Text);
        let set = Descriptor::nb(Generation(1));
        let reader = SstableReader::open(&fs, "d", set, Some(&table)).await.unwrap();
        let is_even = |pk: &i32| codec::token_of(&pk.to_be_bytes()).0 % 2 == 0;
        let even = (0..10).filter(is_even).count() as u64;
        assert!((1..10).contains(&even));
        let options =
            || WriterOptions::for_table(&table, Generation(0), 10, EncodingStats::NONE).unwrap();
        // A damaged file: the host is asked at each damage.
        let path = format!("d/{}", set.file_name(Component::Data));
        let whole = fs.read(&path, 1 << 20).await.unwrap();
        for (damaged, questions, expect) in
            [(false, 99, Some(even)), (true, 1, None), (true, 99, Some(0))]
        {
            let mut bytes = whole.clone();
            bytes[3] ^= if damaged { 0x10 } else { 0 };
            fs.write_atomic(&path, bytes).await.unwrap();
            let reader = SstableReader::open(&fs, "d", set, Some(&table)).await.unwrap();
            let mut host = Half { generation: 1, questions, losses: 0 };
            let how = ScrubOptions::default();
            let done = offline::scrub_open(&fs, &reader, &table, options(), how, &mut host);
            let done = done.await.unwrap();
            assert_eq!(done.given_up, expect.is_none());
            match expect {
                Some(partitions) => assert_eq!(done.partitions, partitions),
                None => assert_eq!((done.written.len(), host.losses), (0, 0)),
            }
            if done.partitions > 0 {
                assert_eq!(done.written[0].descriptor.generation, Generation(3));
            }
            if damaged && expect.is_some() {
                // One block has all of it: those of others are theirs to lose.
                assert_eq!(u64::from(host.losses), even);
            }
            let written = done.written.iter().map(|written| written.descriptor);
            for descriptor in written {
                crate::remove_sstable(&fs, "d", descriptor).await.unwrap();
            }
        }
        drop(reader);
    });
}
