//! On a copy of a directory that a real Cassandra drained; see `testdata/cassandra/README.md`.
#![allow(clippy::disallowed_methods, reason = "tests prepare directories with plain calls")]

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use cql_plan::ddl::{DdlContext, DdlPlan};
use rt::{Machine, NativeOptions, NodeSpec};
use schema::DroppedColumn;
use stdx::{ColumnId, TableId, Uuid};

use super::*;
use crate::definitions::SchemaRows;

mod unsupported;

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/cassandra");
const LOCAL: &str = "system/local-7ad54392bcdd35a684174e047860b377";

/// The whole content of the only segment of a drained Cassandra; zeros follow.
const DRAINED: &[u8] =
    b"\x00\x00\x00\x07\x00\x00\x01\xa1\xfc\x9e\x3a\xe6\x00\x02{}\xac\x6b\x94\xb7\
      \x00\x00\x00\x1c\x1b\x0f\xe4\xc6";

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn foreign<'a>(rt: &'a Rt, options: &'a Options, base: &'a Schema) -> ForeignDirectory<'a> {
    ForeignDirectory { rt, options, base, written: Version::Oa }
}

/// Imports a directory that `prepare` made from the golden one.
fn imported(prepare: impl Fn(&Path)) -> Result<Option<Imported>, TakeoverError> {
    imported_as("peer", prepare)
}

fn imported_as(cluster: &str, prepare: impl Fn(&Path)) -> Result<Option<Imported>, TakeoverError> {
    let directory = tempfile::tempdir().unwrap();
    copy(&Path::new(GOLDEN).join("data"), &directory.path().join("data"));
    prepare(directory.path());
    let work_dir = directory.path().to_str().unwrap().to_owned();
    let cluster_name = cluster.to_owned();
    let options = Options { workdir: work_dir.clone(), cluster_name, ..Options::default() };
    let (sender, receiver) = std::sync::mpsc::channel();
    let main: rt::Main = Arc::new(move |rt: Rt| {
        let (options, sender) = (options.clone(), sender.clone());
        Box::pin(async move {
            let base = cql_plan::system::system_schema();
            let result = foreign(&rt, &options, &base).read(None).await;
            sender.send(result).unwrap();
            rt.request_stop();
        }) as Pin<Box<dyn Future<Output = ()>>>
    });
    let machine = Machine::native(NativeOptions::default());
    let spec = NodeSpec { name: "import".into(), shards: 1, work_dir };
    machine.start(spec, main).join().unwrap();
    receiver.recv().unwrap()
}

/// Returns the file by which another program wrote the golden directory after a node with this
/// newest timestamp.
fn written_since(newest_own: TimestampMicros, prepare: impl Fn(&Path)) -> Option<String> {
    let directory = tempfile::tempdir().unwrap();
    copy(&Path::new(GOLDEN).join("data"), &directory.path().join("data"));
    prepare(directory.path());
    let work_dir = directory.path().to_str().unwrap().to_owned();
    let options = Options { workdir: work_dir.clone(), ..Options::default() };
    let (sender, receiver) = std::sync::mpsc::channel();
    let main: rt::Main = Arc::new(move |rt: Rt| {
        let (options, sender) = (options.clone(), sender.clone());
        Box::pin(async move {
            let base = cql_plan::system::system_schema();
            let found = foreign(&rt, &options, &base).written_since(newest_own).await;
            sender.send(found.unwrap()).unwrap();
            rt.request_stop();
        }) as Pin<Box<dyn Future<Output = ()>>>
    });
    let machine = Machine::native(NativeOptions::default());
    let spec = NodeSpec { name: "newer".into(), shards: 1, work_dir };
    machine.start(spec, main).join().unwrap();
    receiver.recv().unwrap()
}

#[test]
fn a_cassandra_that_ran_since_shows_in_system_local() {
    let newest = imported(|_| {}).unwrap().unwrap().local.created_at;
    let before = TimestampMicros(1_700_000_000_000_000);
    assert!(newest.0 > before.0);
    let found = written_since(before, |_| {}).unwrap();
    assert!(found.contains("/system/local-") && found.ends_with("-Data.db"), "{found}");
    // Files that existed at the takeover, and files written by this node, are no sign.
    assert_eq!(written_since(TimestampMicros(newest.0), |_| {}), None);
    let ours = |work: &Path| {
        let local = work.join("data").join(LOCAL);
        for entry in std::fs::read_dir(&local).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if let Some(set) = name.strip_suffix("Data.db") {
                std::fs::write(local.join(format!("{set}Checksums.db")), []).unwrap();
            }
        }
    };
    assert_eq!(written_since(before, ours), None);
    assert_eq!(written_since(before, |work| std::fs::remove_dir_all(work).unwrap()), None);
}

fn refused(prepare: impl Fn(&Path)) -> String {
    imported(prepare).unwrap_err().to_string()
}

fn all_t(work: &Path, imported: &Imported) -> PathBuf {
    let table = tables(imported).into_iter().find(|t| &*t.name == "all_t").unwrap();
    work.join("data/imp").join(table.directory_name())
}

fn tables<'i>(imported: &'i Imported) -> Vec<&'i Table> {
    let of = |change: &'i SchemaChange| match change {
        SchemaChange::CreateTable(table) => Some(table),
        _ => None,
    };
    imported.changes.iter().filter_map(of).collect()
}

#[test]
fn identity_is_taken_from_system_local() {
    let imported = imported(|_| {}).unwrap().unwrap();
    let local = imported.local;
    assert_eq!(local.cluster_name, "peer");
    assert_eq!((&*local.datacenter, &*local.rack), ("datacenter1", "rack1"));
    assert_eq!(local.tokens.len(), 16);
    assert!(local.tokens.is_sorted());
    assert_ne!(local.host_id.0, Uuid::nil());
    assert!(imported.auth.is_empty());
}

#[test]
fn another_cluster_name_is_refused_before_anything_is_noted() {
    let error = imported_as("Peer", |_| {}).unwrap_err();
    assert!(error.to_string().contains("it belongs to cluster \"peer\""), "{error}");
}

#[test]
fn rows_written_from_now_on_are_newer_than_cassandras_even_when_its_clock_was_ahead() {
    let wall = WallMicros(1_000);
    assert_eq!(created_at(wall, TimestampMicros(5_000)), WallMicros(5_001));
    assert_eq!(created_at(wall, TimestampMicros(10)), wall);
    assert_eq!(created_at(wall, TimestampMicros::NONE), wall);
}

/// The schema that our own DDL makes of the statements that Cassandra was given.
fn planned() -> Schema {
    let text = std::fs::read_to_string(format!("{GOLDEN}/schema.cql")).unwrap();
    let mut schema = cql_plan::system::system_schema();
    let mut last = 0_u128;
    for statement in cql_syntax::split_statements(&text) {
        let statement = cql_syntax::parse(statement).unwrap();
        let Some(plan) = DdlPlan::new(&statement.kind, None) else { continue };
        let outcome = plan.unwrap().outcome(&mut DdlContext {
            schema: &schema,
            datacenters: &[("datacenter1", 1)],
            moving: &[],
            new_table_id: &mut || {
                last += 1;
                Uuid::from_u128(last)
            },
            now: WallMicros(0),
            watch: None,
            default_factor: 1,
            default_compaction: None,
            drop_compact_storage: true,
            functions: None,
            indexes: &cql_plan::ddl::IndexSettings::default(),
        });
        for change in outcome.unwrap().changes {
            schema = schema.apply(&change).unwrap();
        }
    }
    schema
}

/// A table without what may differ: identity, history, and defaults that Cassandra spells out.
fn essence(table: &Table) -> Table {
    let mut table = table.clone();
    table.id = TableId(Uuid::nil());
    table.version = 0;
    table.next_column_id = 0;
    for column in &mut table.columns {
        column.id = ColumnId(0);
    }
    for dropped in table.dropped.values_mut() {
        dropped.dropped_at = TimestampMicros(0);
        dropped.column.id = ColumnId(0);
    }
    let chance = bloom_filter_fp_chance_of(&table);
    table.options.bloom_filter_fp_chance = Some(chance);
    table
}

fn bloom_filter_fp_chance_of(table: &Table) -> f64 {
    let leveled = table
        .options
        .compaction
        .get("class")
        .is_some_and(|c| c.ends_with("LeveledCompactionStrategy"));
    table.options.bloom_filter_fp_chance.unwrap_or(if leveled { 0.1 } else { 0.01 })
}

#[test]
fn schema_is_what_the_same_statements_make_here() {
    let imported = imported(|_| {}).unwrap().unwrap();
    let mut schema = cql_plan::system::system_schema();
    for change in &imported.changes {
        schema = schema.apply(change).unwrap();
    }
    let planned = planned();
    let names = |s: &Schema| s.keyspaces.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&schema), names(&planned));
    for name in ["imp", "Imp2"] {
        let (ours, theirs) = (planned.keyspace(name).unwrap(), schema.keyspace(name).unwrap());
        assert_eq!(ours.params, theirs.params);
        assert_eq!(ours.types, theirs.types);
        assert_eq!(
            ours.tables.keys().collect::<Vec<_>>(),
            theirs.tables.keys().collect::<Vec<_>>()
        );
        for (table, ours) in &ours.tables {
            assert_eq!(essence(ours), essence(&theirs.tables[table]), "{name}.{table}");
        }
    }
}

#[test]
fn ids_of_columns_are_distinct_dropped_ones_included() {
    let imported = imported(|_| {}).unwrap().unwrap();
    let tables = tables(&imported);
    let table = tables.iter().find(|t| &*t.name == "Case_T").unwrap();
    let dropped: Vec<&DroppedColumn> = table.dropped.values().collect();
    assert_eq!(dropped.len(), 2, "b, and the first c");
    let mut ids: Vec<u16> = table.columns.iter().map(|c| c.id.0).collect();
    ids.extend(dropped.iter().map(|d| d.column.id.0));
    ids.sort_unstable();
    assert_eq!(ids, [0, 1, 2, 3, 4, 5]);
    assert_eq!(table.next_column_id, 6);
    assert!(dropped.iter().all(|d| d.dropped_at.0 > 1_700_000_000_000_000));
}

#[test]
fn an_empty_directory_is_nothing_to_import() {
    let emptied = imported(|work| std::fs::remove_dir_all(work.join("data")).unwrap());
    assert!(emptied.unwrap().is_none());
}

#[test]
fn tables_without_system_local_are_refused() {
    let message = refused(|work| std::fs::remove_dir_all(work.join("data").join(LOCAL)).unwrap());
    assert!(message.contains("neither a metadata log nor the table system.local"), "{message}");
}

fn segment(work: &Path, name: &str, bytes: &[u8]) {
    std::fs::create_dir_all(work.join("commitlog")).unwrap();
    let mut padded = bytes.to_vec();
    padded.resize(64 << 10, 0);
    std::fs::write(work.join("commitlog").join(name), padded).unwrap();
}

/// A segment with one record, whose mutation begins as given.
fn dirty(mutation: &[u8]) -> Vec<u8> {
    let mut bytes = DRAINED[..20].to_vec();
    let end = 20 + 8 + 8 + mutation.len() + 4 + 4;
    bytes.extend_from_slice(&(end as u32).to_be_bytes());
    bytes.extend_from_slice(&[1, 2, 3, 4]);
    bytes.extend_from_slice(&(mutation.len() as u32).to_be_bytes());
    bytes.extend_from_slice(&[1, 2, 3, 4]);
    bytes.extend_from_slice(mutation);
    bytes.extend_from_slice(&[1, 2, 3, 4]);
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&(end as u32 + 8).to_be_bytes());
    bytes.extend_from_slice(&[1, 2, 3, 4]);
    bytes
}

fn update_of(keyspace: &str, table: &str) -> Vec<u8> {
    let mut mutation = vec![1];
    mutation.extend_from_slice(cql_plan::system::system_table_id(keyspace, table).0.as_bytes());
    mutation.extend_from_slice(b"the rest");
    mutation
}

#[test]
fn the_segment_that_a_drain_leaves_is_no_obstacle() {
    let taken = imported(|work| segment(work, "CommitLog-7-1.log", DRAINED));
    assert!(taken.unwrap().is_some());
}

#[test]
fn a_segment_with_writes_is_refused_by_name() {
    let bytes = dirty(&update_of("ks", "t"));
    let message = refused(|work| segment(work, "CommitLog-7-2.log", &bytes));
    assert!(message.contains("commitlog/CommitLog-7-2.log: writes to the table"), "{message}");
    assert!(message.contains("nodetool drain"), "{message}");
}

#[test]
fn statistics_that_cassandra_noted_after_its_drain_are_no_obstacle_but_its_identity_is() {
    assert_eq!(commit_log::content(&dirty(&update_of("system", "compaction_history"))), None);
    assert!(commit_log::content(&dirty(&update_of("system", "local"))).is_some());
}

#[test]
fn bytes_behind_the_last_section_are_writes_that_were_not_synced() {
    let mut bytes = DRAINED.to_vec();
    bytes.resize(100, 0);
    assert_eq!(commit_log::content(&bytes), None);
    bytes[90] = 1;
    assert_eq!(commit_log::content(&bytes).unwrap(), "unsynced bytes behind offset 28");
}

#[test]
fn segments_of_unknown_versions_are_refused() {
    let mut bytes = DRAINED.to_vec();
    bytes[3] = 5;
    assert!(commit_log::content(&bytes).unwrap().contains("version 5"));
    for version in [6, 8] {
        bytes[3] = version;
        assert_eq!(commit_log::content(&bytes), None);
    }
    bytes[..4].copy_from_slice(b"SCLC");
    assert!(commit_log::content(&bytes).unwrap().contains("ScyllaDB"));
}

#[test]
fn any_bytes_can_be_given_as_a_segment() {
    let mut state = 1_u64;
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize
    };
    let corpus = [DRAINED.to_vec(), dirty(&update_of("system", "compaction_history"))];
    for round in 0..10_000 {
        let mut bytes = corpus[round % corpus.len()].clone();
        for _ in 0..=next() % 4 {
            let at = next() % bytes.len();
            bytes[at] = next() as u8;
        }
        bytes.truncate(next() % (bytes.len() + 1));
        crate::fuzz::fuzz_cassandra_commit_log(&bytes);
    }
}

#[test]
fn files_of_other_formats_are_refused_with_what_to_do() {
    let first = imported(|_| {}).unwrap().unwrap();
    for name in ["la-3-big-Data.db", "pa-3-big-Data.db", "db-3-bti-Data.db", "ks-t-ka-1-Data.db"] {
        let message = refused(|work| {
            std::fs::create_dir_all(all_t(work, &first)).unwrap();
            std::fs::write(all_t(work, &first).join(name), b"x").unwrap();
        });
        assert!(message.contains(name) && message.contains("of table imp.all_t"), "{message}");
        assert!(message.contains("upgradesstables"), "{message}");
    }
    // Versions that are read and not written are opened before anything is changed.
    for stem in ["oa-3-big", "da-3-bti", "mc-1-big"] {
        let message = refused(|work| {
            let directory = all_t(work, &first);
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::write(directory.join(format!("{stem}-Data.db")), b"x").unwrap();
            std::fs::write(directory.join(format!("{stem}-TOC.txt")), b"Data.db\n").unwrap();
        });
        assert!(message.contains(stem), "{message}");
    }
    let taken = imported(|work| {
        let directory = all_t(work, &first);
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("nb-3-big-Data.db"), b"x").unwrap();
        std::fs::write(directory.join("nb-3-big-TOC.txt"), b"Data.db\n").unwrap();
    });
    assert!(taken.unwrap().is_some(), "the store looks into the files, not the import");
}

#[test]
fn a_file_of_other_types_than_its_table_is_refused() {
    let first = imported(|_| {}).unwrap().unwrap();
    let message = refused(|work| copy(&work.join("data").join(LOCAL), &all_t(work, &first)));
    assert!(message.contains("is not of table imp.all_t, in whose directory it is: "), "{message}");
    assert!(message.contains("-big-Data.db"), "{message}");
}

#[test]
fn unfinished_operations_are_refused() {
    let first = imported(|_| {}).unwrap().unwrap();
    let message = refused(|work| {
        std::fs::create_dir_all(all_t(work, &first)).unwrap();
        std::fs::write(all_t(work, &first).join("nb-3-big-Data.db"), b"x").unwrap();
    });
    assert!(message.contains("nb-3-big-Data.db of table imp.all_t is the rest of"), "{message}");
    let message = refused(|work| {
        let name = "nb_txn_compaction_5f1f1ae0-e56d-11f1-b9e1-2b77647ded9f.log";
        std::fs::write(work.join("data").join(LOCAL).join(name), b"ADD").unwrap();
    });
    assert!(message.contains("of table system.local is the rest of"), "{message}");
}

#[test]
fn damage_in_a_system_table_is_named() {
    let message = refused(|work| {
        let directory = work.join("data").join(LOCAL);
        let entries = std::fs::read_dir(directory).unwrap().map(|e| e.unwrap().path());
        let data = entries.into_iter().find(|p| p.to_str().unwrap().ends_with("-Data.db")).unwrap();
        let mut bytes = std::fs::read(&data).unwrap();
        bytes[20] ^= 1;
        std::fs::write(data, bytes).unwrap();
    });
    assert!(message.contains("system/local-") && message.contains("corrupt"), "{message}");
}

/// Rows of a table of `system_schema` as `column, text` pairs.
fn row(table: &str, values: &[(&str, Vec<u8>)]) -> Row {
    let base = cql_plan::system::system_schema();
    Row::for_test(base.table("system_schema", table).unwrap(), values)
}

fn text(s: &str) -> Vec<u8> {
    s.as_bytes().to_vec()
}

fn list_of(values: &[&str]) -> Vec<u8> {
    types::wire::encode_collection(values).unwrap()
}

/// Rewrites the files of a table as Cassandra 3 and ScyllaDB have them: version `me`, and columns
/// that later versions do not have in the place of those that earlier ones did not.
async fn rewrite_as_older(fs: &Fs, directory: &str, renamed: &[(&str, &str)]) {
    let slices = Arc::new(data::Slices::all());
    for (descriptor, _) in sstable::list_sstables(fs, directory).await.unwrap() {
        let reader = sstable::SstableReader::open(fs, directory, descriptor, None).await.unwrap();
        let mut table = sstable::offline::table_of_header(&reader.meta().statistics().header);
        for column in &mut table.columns {
            if let Some((_, older)) = renamed.iter().find(|(now, _)| *column.name == **now) {
                column.name = (*older).into();
            }
        }
        let stats = reader.meta().statistics().header.stats;
        let mut options =
            sstable::WriterOptions::for_table(&table, descriptor.generation, 100, stats).unwrap();
        options.version = sstable::Version::Me;
        let mut writer =
            sstable::SstableWriter::create(fs, directory, &table, options).await.unwrap();
        let range = data::command::KeyRange::all();
        let mut cursor = reader.range_cursor(0, range, slices.clone(), None);
        loop {
            match data::Cursor::advance(&mut cursor).unwrap() {
                data::Advance::Item => writer.put(data::Cursor::item(&cursor)).unwrap(),
                data::Advance::NeedBlock(request) => {
                    let chunk = reader.load_block(request.block).await.unwrap();
                    cursor.feed(request.block, chunk);
                }
                data::Advance::End => break,
            }
        }
        writer.finish().await.unwrap();
        sstable::remove_sstable(fs, directory, descriptor).await.unwrap();
    }
}

/// The golden directory as an older version would have written it, except for the names of its
/// columns. The new names sort to other positions than those that they replace, and are not used
/// already.
fn make_older(work: &Path) {
    const RENAMED: [(&str, &str); 4] = [
        ("cql_version", "zql_version"),
        ("additional_write_policy", "z_write_policy"),
        ("read_repair", "a_read_repair"),
        ("memtable", "a_memtable"),
    ];
    let data = work.join("data");
    let (sender, receiver) = std::sync::mpsc::channel();
    let spec = NodeSpec { name: "older".into(), shards: 1, work_dir: String::new() };
    let main: rt::Main = Arc::new(move |rt: Rt| {
        let (data, sender) = (data.clone(), sender.clone());
        Box::pin(async move {
            for keyspace in std::fs::read_dir(&data).unwrap() {
                for table in std::fs::read_dir(keyspace.unwrap().path()).unwrap() {
                    let directory = table.unwrap().path();
                    rewrite_as_older(&rt.fs(), directory.to_str().unwrap(), &RENAMED).await;
                }
            }
            sender.send(()).unwrap();
            rt.request_stop();
        }) as Pin<Box<dyn Future<Output = ()>>>
    });
    Machine::native(NativeOptions::default()).start(spec, main).join().unwrap();
    receiver.recv().unwrap();
}

#[test]
fn a_directory_of_cassandra_3_or_scylla_is_taken_over_with_the_same_schema() {
    let older = imported(make_older).unwrap().unwrap();
    let newer = imported(|_| {}).unwrap().unwrap();
    assert_eq!(older.local.host_id, newer.local.host_id);
    assert_eq!(older.local.tokens, newer.local.tokens);
    let (old, new) = (tables(&older), tables(&newer));
    assert_eq!(old.len(), new.len());
    for (old, new) in old.into_iter().zip(new) {
        let mut expected = new.clone();
        // Options that this version lacks have their defaults.
        let default = schema::TableOptions::default();
        expected.options.additional_write_policy = default.additional_write_policy;
        expected.options.read_repair = default.read_repair;
        expected.options.memtable = None;
        assert_eq!(*old, expected);
    }
    assert_eq!(older.changes.len(), newer.changes.len());
    // In a user's table an unknown column is an error.
    let of_user = refused(|work| {
        make_older(work);
        let from = work.join("data").join(LOCAL);
        let first = imported(|_| {}).unwrap().unwrap();
        copy(&from, &all_t(work, &first));
    });
    assert!(of_user.contains("all_t"), "{of_user}");
}

#[test]
fn speculation_is_spelled_as_cassandra_4_does_and_scyllas_own_keyspaces_are_passed_over() {
    let base = cql_plan::system::system_schema();
    let mut rows = SchemaRows::default();
    for (name, place) in rows.tables_mut() {
        let row = |values: &[(&str, Vec<u8>)]| row(name, values);
        for keyspace in ["ks", "system_distributed_everywhere"] {
            let (ks, t) = (("keyspace_name", text(keyspace)), ("table_name", text("t")));
            match name {
                "keyspaces" => {
                    let class = match keyspace {
                        "ks" => "org.apache.cassandra.locator.NetworkTopologyStrategy",
                        _ => "org.apache.cassandra.locator.EverywhereStrategy",
                    };
                    let replication = types::wire::encode_map([("class", class)]).unwrap();
                    place.push(row(&[ks, ("replication", replication)]));
                }
                "tables" => place.push(row(&[
                    ks,
                    t,
                    ("flags", list_of(&["compound"])),
                    ("id", vec![7; 16]),
                    ("speculative_retry", text("99.0PERCENTILE")),
                ])),
                "columns" => place.push(row(&[
                    ks,
                    t,
                    ("column_name", text("k")),
                    ("kind", text("partition_key")),
                    ("position", 0_i32.to_be_bytes().to_vec()),
                    ("type", text("text")),
                ])),
                _ => {}
            }
        }
    }
    let changes = definitions::changes(&base, &rows, &mut Choice::default()).unwrap();
    let [SchemaChange::CreateKeyspace { name, .. }, SchemaChange::CreateTable(table)] =
        changes.as_slice()
    else {
        panic!("{changes:?}")
    };
    assert_eq!((&**name, table.options.speculative_retry.as_str()), ("ks", "99p"));
}

#[test]
fn masks_of_native_functions_are_taken_over() {
    let base = cql_plan::system::system_schema();
    let nulls = types::wire::encode_collection([[0_u8], [1], [0]]).unwrap();
    let (ks, t) = (("keyspace_name", text("ks")), ("table_name", text("t")));
    let mut rows = SchemaRows::default();
    for (name, place) in rows.tables_mut() {
        let row = |values: &[(&str, Vec<u8>)]| row(name, values);
        match name {
            "keyspaces" => {
                let class = "org.apache.cassandra.locator.SimpleStrategy";
                let replication = [("class", class), ("replication_factor", "1")];
                let replication = types::wire::encode_map(replication).unwrap();
                place.push(row(&[ks.clone(), ("replication", replication)]));
            }
            "tables" => {
                let id = ("id", vec![7; 16]);
                place.push(row(&[ks.clone(), t.clone(), ("flags", list_of(&["compound"])), id]));
            }
            "columns" => {
                for (column, kind, position) in
                    [("k", "partition_key", 0_i32), ("v", "regular", -1)]
                {
                    place.push(row(&[
                        ks.clone(),
                        t.clone(),
                        ("column_name", text(column)),
                        ("kind", text(kind)),
                        ("position", position.to_be_bytes().to_vec()),
                        ("type", text("text")),
                    ]));
                }
            }
            "column_masks" => place.push(row(&[
                ks.clone(),
                t.clone(),
                ("column_name", text("v")),
                ("function_keyspace", text("system")),
                ("function_name", text("mask_outer")),
                ("function_argument_types", list_of(&["int", "int", "text"])),
                ("function_argument_values", list_of(&["2", "", "#"])),
                ("function_argument_nulls", nulls.clone()),
            ])),
            _ => {}
        }
    }
    let changes = definitions::changes(&base, &rows, &mut Choice::default()).unwrap();
    let Some(schema::SchemaChange::CreateTable(table)) = changes.last() else {
        panic!("{changes:?}")
    };
    let mask = table.mask_of(table.column("v").unwrap()).unwrap();
    assert_eq!(&*mask.function, "mask_outer");
    let values: Vec<Option<Vec<u8>>> = mask.args.iter().map(|(_, value)| value.clone()).collect();
    assert_eq!(values, [Some(vec![0, 0, 0, 2]), None, Some(b"#".to_vec())]);
    assert_eq!(mask.args[2].0, types::CqlType::Text);
}

#[test]
fn compact_tables_are_known_by_their_flags() {
    use schema::{CompactForm, TableKind};
    let base = cql_plan::system::system_schema();
    let forms: [(&str, &[&str], TableKind); 4] = [
        ("a", &["compound"], TableKind::Regular),
        ("b", &[], TableKind::Compact(CompactForm::Static)),
        ("c", &["dense"], TableKind::Compact(CompactForm::Dense)),
        ("d", &["compound", "dense"], TableKind::Compact(CompactForm::DenseCompound)),
    ];
    let mut rows = SchemaRows::default();
    for (name, place) in rows.tables_mut() {
        let row = |values: &[(&str, Vec<u8>)]| row(name, values);
        let ks = ("keyspace_name", text("ks"));
        if name == "keyspaces" {
            let class = "org.apache.cassandra.locator.NetworkTopologyStrategy";
            let replication = types::wire::encode_map([("class", class)]).unwrap();
            place.push(row(&[ks.clone(), ("replication", replication)]));
        }
        for (id, (table, flags, _)) in (1..).zip(&forms) {
            let t = ("table_name", text(table));
            let column = |name: &str, kind: &str, position: i32, ty: &str| {
                row(&[
                    ks.clone(),
                    t.clone(),
                    ("column_name", text(name)),
                    ("kind", text(kind)),
                    ("position", position.to_be_bytes().to_vec()),
                    ("type", text(ty)),
                ])
            };
            match name {
                "tables" => place.push(row(&[
                    ks.clone(),
                    t.clone(),
                    ("flags", list_of(flags)),
                    ("id", vec![id; 16]),
                ])),
                "columns" => {
                    place.push(column("k", "partition_key", 0, "text"));
                    place.push(column("c", "clustering", 0, "text"));
                    place.push(column("value", "regular", -1, "empty"));
                }
                _ => {}
            }
        }
    }
    let changes = definitions::changes(&base, &rows, &mut Choice::default()).unwrap();
    let found: Vec<_> = changes
        .iter()
        .filter_map(|change| match change {
            SchemaChange::CreateTable(t) => Some((t.name.to_string(), t.kind)),
            _ => None,
        })
        .collect();
    let expected: Vec<_> =
        forms.iter().map(|(name, _, kind)| ((*name).to_owned(), *kind)).collect();
    assert_eq!(found, expected);
}
