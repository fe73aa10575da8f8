//! The dumps of a published account of Cassandra 3: a table of three rows, an update of one and the deletion
//! of its value, each flushed. Where rows end in the files (33, 71 and 108; 39; 24) is known to the byte; that
//! tool's `position`. Cassandra 5's, which ours is compared with elsewhere, prints where they begin.

use data::row::{CellRef, RowBuilder};
use data::{DeletionTime, Liveness};
use rt::Fs;
use schema::{Column, ColumnKind, Table, TableKind, TableOptions};
use sst_format::EncodingStats;
use stdx::{ColumnId, DeletionSeconds, Generation, TableId, TimestampMicros, Uuid};
use types::CqlType;

use super::run;
use crate::offline::{dump_json, verify};
use crate::{Component, SstableReader, SstableWriter, Version, WriterOptions};

/// `CREATE TABLE ks.tb (id int PRIMARY KEY, col1 text)`.
fn table() -> Table {
    let column =
        |id: u16, name: &str, ty, kind| Column { id: ColumnId(id), name: name.into(), ty, kind };
    Table {
        id: TableId(Uuid::nil()),
        keyspace: "ks".into(),
        name: "tb".into(),
        kind: TableKind::Regular,
        columns: vec![
            column(0, "id", CqlType::Int, ColumnKind::PartitionKey(0)),
            column(1, "col1", CqlType::Text, ColumnKind::Regular),
        ],
        partition_key_count: 1,
        clustering_count: 0,
        static_count: 0,
        options: TableOptions::default(),
        dropped: Default::default(),
        masks: Default::default(),
        indexes: Default::default(),
        version: 1,
        next_column_id: 2,
    }
}

/// A row of `ks.tb`: its key, when it was inserted (`None`: by UPDATE or DELETE), its cell.
type Row<'a> = (i32, Option<i64>, CellRef<'a>);

/// Writes rows, in the order of their tokens; the bytes of Data.db and its dump.
async fn written(fs: &Fs, generation: u64, rows: &[Row<'_>]) -> (Vec<u8>, String) {
    let timestamps = rows.iter().map(|(_, _, cell)| cell.timestamp);
    let mut stats = EncodingStats::NONE;
    stats.min_timestamp = timestamps.min().unwrap();
    let deletions = rows.iter().map(|(_, _, cell)| cell.local);
    if let Some(first) = deletions.filter(|local| *local != DeletionSeconds::NONE).min() {
        stats.min_local_deletion = first;
    }
    let table = table();
    let mut options = WriterOptions::for_table(&table, Generation(generation), 3, stats).unwrap();
    (options.version, options.compression) = (Version::Me, None);
    fs.create_dir_all("tb").await.unwrap();
    let mut writer = SstableWriter::create(fs, "tb", &table, options).await.unwrap();
    for (key, inserted, cell) in rows {
        writer.partition(&key.to_be_bytes(), DeletionTime::LIVE).unwrap();
        let mut packed = Vec::new();
        let liveness = inserted.map_or(Liveness::NONE, |at| Liveness::new(TimestampMicros(at)));
        let mut row = RowBuilder::new(&mut packed, liveness, DeletionTime::LIVE, cell.timestamp);
        row.cell(ColumnId(1), cell);
        row.finish();
        writer.row(&[], data::RowRef::trusted(&packed)).unwrap();
        writer.partition_end().unwrap();
    }
    let written = writer.finish().await.unwrap().unwrap();
    let reader = SstableReader::open(fs, "tb", written.descriptor, None).await.unwrap();
    verify(&reader).await.unwrap();
    let mut text = String::new();
    let now = DeletionSeconds(1_586_900_000);
    dump_json(&reader, now, &mut |piece| text.push_str(piece)).await.unwrap();
    (fs.read(&reader.meta().file(Component::Data), 1000).await.unwrap(), text)
}

/// The bytes of the three partitions: key, no deletion; row with flags, size, size of what is before, time
/// since the first one, flags, length and value of the cell; end.
const INSERTED: [&[u8]; 3] = [
    b"\x00\x04\x00\x00\x00\x01\x7f\xff\xff\xff\x80\x00\x00\x00\x00\x00\x00\x00$\x0d\x12\x00\x08\x09first_row\x01",
    b"\x00\x04\x00\x00\x00\x02\x7f\xff\xff\xff\x80\x00\x00\x00\x00\x00\x00\x00$\x11\x12\xe1R?X\x08\x0asecond_row\x01",
    b"\x00\x04\x00\x00\x00\x03\x7f\xff\xff\xff\x80\x00\x00\x00\x00\x00\x00\x00$\x10\x12\xe1\xe1\x0e.\x08\x09third_row\x01",
];
/// The update: no time of the row, one of the cell.
const UPDATED: &[u8] = b"\x00\x04\x00\x00\x00\x01\x7f\xff\xff\xff\x80\x00\x00\x00\x00\x00\x00\x00 \x13\x12\x00\x00\x0fupdated_row_one\x01";
/// The deletion: times of the cell, no value.
const DELETED: &[u8] = b"\x00\x04\x00\x00\x00\x01\x7f\xff\xff\xff\x80\x00\x00\x00\x00\x00\x00\x00 \x04\x12\x05\x00\x00\x01";

#[test]
fn files_of_m_have_their_rows_where_the_published_dumps_have_them() {
    run(|rt| async move {
        let fs = rt.fs();
        let times = [1_586_870_527_756_013, 1_586_870_549_923_397, 1_586_870_559_282_459];
        let names: [&[u8]; 3] = [b"first_row", b"second_row", b"third_row"];
        let rows: Vec<Row<'_>> = (1..)
            .zip(times.into_iter().zip(names))
            .map(|(id, (at, name))| (id, Some(at), CellRef::live(TimestampMicros(at), name)))
            .collect();
        let (bytes, inserted) = written(&fs, 1, &rows).await;
        assert_eq!(bytes, INSERTED.concat());
        // Starts of the partitions, and the one byte that ends each after its row.
        let ends = INSERTED.iter().scan(0, |end, bytes| {
            *end += bytes.len();
            Some(*end - 1)
        });
        assert_eq!(ends.collect::<Vec<_>>(), [33, 71, 108]);
        for part in [
            "\"key\" : [ \"1\" ]",
            "\"liveness_info\" : { \"tstamp\" : \"2020-04-14T13:22:07.756013Z\" }",
            "{ \"name\" : \"col1\", \"value\" : \"third_row\" }",
        ] {
            assert!(inserted.contains(part), "{part}:\n{inserted}");
        }
        let at = TimestampMicros(1_586_871_517_794_697);
        let update = [(1, None, CellRef::live(at, b"updated_row_one"))];
        let (bytes, updated) = written(&fs, 2, &update).await;
        assert_eq!((bytes.as_slice(), bytes.len() - 1), (UPDATED, 39));
        let cell = "{ \"name\" : \"col1\", \"value\" : \"updated_row_one\", \"tstamp\" : \
                    \"2020-04-14T13:38:37.794697Z\" }";
        assert!(updated.contains(cell) && !updated.contains("liveness_info"), "{updated}");
        let at = TimestampMicros(1_586_871_867_179_254);
        let deletion = CellRef::tombstone(at, DeletionSeconds(1_586_871_867));
        let (bytes, deleted) = written(&fs, 3, &[(1, None, deletion)]).await;
        assert_eq!((bytes.as_slice(), bytes.len() - 1), (DELETED, 24));
        // Broken into lines where Jackson breaks them.
        let deleted = deleted.split_whitespace().collect::<Vec<_>>().join(" ");
        let cell = "{ \"name\" : \"col1\", \"deletion_info\" : { \"local_delete_time\" : \
                    \"2020-04-14T13:44:27Z\" }, \"tstamp\" : \"2020-04-14T13:44:27.179254Z\" }";
        assert!(deleted.contains(cell), "{deleted}");
    });
}
