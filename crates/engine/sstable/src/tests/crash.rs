#![allow(clippy::disallowed_types, reason = "facts are shared with the world's main function")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use data::row::{CellRef, RowBuilder};
use data::{ClusteringBuf, DeletionTime, Liveness, RowRef};
use rt::sim::{World, WorldOptions};
use rt::{Main, NodeSpec, Rt};
use schema::{Column, ColumnKind, Table, TableKind, TableOptions};
use stdx::{ColumnId, Generation, TableId, TimestampMicros, Uuid};
use types::CqlType;

use super::collect;
use crate::offline::verify;
use crate::{
    EncodingStats, Sealing, SetState, SstableReader, SstableWriter, WriterOptions, list_sstables,
    remove_sstable,
};

type Boxed = std::pin::Pin<Box<dyn Future<Output = ()>>>;

const PARTITIONS: i32 = 40;
/// The write takes about sixty of these.
const STEP_MICROS: u64 = 113;

fn table() -> Table {
    let column =
        |id: u16, name: &str, ty, kind| Column { id: ColumnId(id), name: name.into(), ty, kind };
    Table {
        id: TableId(Uuid::nil()),
        keyspace: "k".into(),
        name: "t".into(),
        kind: TableKind::Regular,
        columns: vec![
            column(0, "p", CqlType::Int, ColumnKind::PartitionKey(0)),
            column(1, "c", CqlType::Int, ColumnKind::Clustering { position: 0, reversed: false }),
            // Ids that do not ascend in file order.
            column(3, "a", CqlType::Blob, ColumnKind::Regular),
            column(2, "b", CqlType::Int, ColumnKind::Regular),
        ],
        partition_key_count: 1,
        clustering_count: 1,
        static_count: 0,
        options: TableOptions::default(),
        dropped: Default::default(),
        masks: Default::default(),
        indexes: Default::default(),
        version: 1,
        next_column_id: 4,
    }
}

/// Writes generation 1: 40 partitions of 20 rows of 600 incompressible bytes.
async fn write(rt: &Rt) -> crate::Result<()> {
    let fs = rt.fs();
    fs.create_dir_all("t").await?;
    let table = table();
    let mut options =
        WriterOptions::for_table(&table, Generation(1), 40, EncodingStats::NONE).unwrap();
    rt.set_file_keys(super::sealed::ring(&["k"]));
    if rt.random_u64().is_multiple_of(2) {
        options.sealing = Sealing::Sealed;
    }
    let mut writer = SstableWriter::create(&fs, "t", &table, options).await?;
    let mut keys: Vec<[u8; 4]> = (0..PARTITIONS).map(i32::to_be_bytes).collect();
    keys.sort_by_key(|k| codec::token_of(k));
    let mut packed = Vec::new();
    for key in keys {
        writer.partition(&key, DeletionTime::LIVE)?;
        for c in 0..20i32 {
            let t = TimestampMicros(1_700_000_000_000_000 + i64::from(c));
            packed.clear();
            let mut row = RowBuilder::new(&mut packed, Liveness::new(t), DeletionTime::LIVE, t);
            row.cell(ColumnId(2), &CellRef::live(t, &c.to_be_bytes()));
            let mut state = u32::from_be_bytes(key) * 20 + c.unsigned_abs() + 1;
            let blob: Vec<u8> = (0..600)
                .map(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (state >> 24) as u8
                })
                .collect();
            row.cell(ColumnId(3), &CellRef::live(t, &blob));
            row.finish();
            let clustering = ClusteringBuf::from_components([&c.to_be_bytes()[..]]).0;
            writer.row(&clustering, RowRef::trusted(&packed))?;
            if writer.is_full() {
                writer.write_full().await?;
            }
        }
        writer.partition_end()?;
    }
    writer.finish().await?.unwrap();
    Ok(())
}

/// Checks the directory after a crash: no complete file set, or an intact, correct one.
async fn check(rt: &Rt, must_be_there: bool) {
    let fs = rt.fs();
    rt.set_file_keys(super::sealed::ring(&["k"]));
    // An error: not even the directory was durable.
    let found = list_sstables(&fs, "t").await.unwrap_or_default();
    // Every incomplete set is marked: a set without a mark would count as damaged.
    assert!(found.iter().all(|(_, state)| *state != SetState::WithoutToc), "{found:?}");
    let complete: Vec<_> = found.iter().filter(|(_, s)| *s == SetState::Complete).collect();
    assert!(!must_be_there || complete.len() == 1, "a finished file set is there");
    for (descriptor, _) in complete {
        let reader = SstableReader::open(&fs, "t", *descriptor, Some(&table())).await.unwrap();
        let report = verify(&reader).await.unwrap();
        assert_eq!((report.partitions, report.rows), (40, 800));
        let all = std::sync::Arc::new(data::Slices::all());
        let mut cursor = reader.range_cursor(0, data::command::KeyRange::all(), all, None);
        assert_eq!(collect(&reader, &mut cursor).await.len(), 40 * 22);
    }
    for (descriptor, _) in found {
        remove_sstable(&fs, "t", descriptor).await.unwrap();
    }
    assert!(list_sstables(&fs, "t").await.unwrap_or_default().is_empty());
    let left = fs.read_dir("t").await.unwrap_or_default();
    assert!(left.is_empty(), "{left:?}");
}

fn spec() -> NodeSpec {
    NodeSpec { name: "n".into(), shards: 1, work_dir: "/data".into() }
}

fn node(
    world: &World,
    body: fn(Rt, Arc<AtomicBool>) -> Boxed,
    done: &Arc<AtomicBool>,
) -> rt::sim::SimNode {
    let done = done.clone();
    let main: Main = Arc::new(move |rt| body(rt, done.clone()));
    world.start_node(spec(), main)
}

/// INV-sstable-2.
#[test]
fn a_power_cut_at_any_moment_leaves_a_whole_file_set_or_none() {
    let mut finished = 0;
    let mut cut_short = 0;
    for step in 0..80u64 {
        let world = World::new(step, WorldOptions::default());
        let done = Arc::new(AtomicBool::new(false));
        let writing = node(
            &world,
            |rt, done| {
                Box::pin(async move {
                    if write(&rt).await.is_ok() {
                        done.store(true, Ordering::Relaxed);
                    }
                })
            },
            &done,
        );
        world.run_for(Duration::from_micros(step * STEP_MICROS));
        let was_finished = done.load(Ordering::Relaxed);
        if was_finished {
            finished += 1
        } else {
            cut_short += 1
        }
        if world.is_alive(&writing) {
            world.power_cut(&writing);
        }
        let checked = Arc::new(AtomicBool::new(false));
        let body: fn(Rt, Arc<AtomicBool>) -> Boxed = if was_finished {
            |rt, done| {
                Box::pin(async move {
                    check(&rt, true).await;
                    done.store(true, Ordering::Relaxed);
                })
            }
        } else {
            |rt, done| {
                Box::pin(async move {
                    check(&rt, false).await;
                    done.store(true, Ordering::Relaxed);
                })
            }
        };
        node(&world, body, &checked);
        world
            .run_until(|| checked.load(Ordering::Relaxed), Duration::from_secs(600))
            .unwrap_or_else(|stuck| panic!("step {step}: {stuck}"));
    }
    assert!(cut_short > 20 && finished > 5, "{cut_short} cut short, {finished} finished");
}

/// A power cut during a removal leaves the whole file set, a marked one, or nothing.
#[test]
fn a_power_cut_at_any_moment_of_a_removal_leaves_a_whole_or_a_marked_file_set() {
    let mut seen = std::collections::BTreeSet::new();
    for step in 0..120u64 {
        let world = World::new(step, WorldOptions::default());
        let written = Arc::new(AtomicBool::new(false));
        let removing = node(
            &world,
            |rt, done| {
                Box::pin(async move {
                    rt.fs().create_dir_durably("t").await.unwrap();
                    write(&rt).await.unwrap();
                    done.store(true, Ordering::Relaxed);
                    let set = crate::Descriptor::nb(Generation(1));
                    remove_sstable(&rt.fs(), "t", set).await.unwrap();
                    rt.fs().sync_dir("t").await.unwrap();
                    rt.sleep(Duration::from_secs(600)).await;
                })
            },
            &written,
        );
        let limit = Duration::from_secs(600);
        world.run_until(|| written.load(Ordering::Relaxed), limit).unwrap();
        world.run_for(Duration::from_micros(step * 100));
        world.power_cut(&removing);
        let state = Arc::new(std::sync::Mutex::new(None));
        let found = state.clone();
        let main: Main = Arc::new(move |rt| {
            let found = found.clone();
            Box::pin(async move {
                let sets = list_sstables(&rt.fs(), "t").await.unwrap();
                *found.lock().unwrap() = Some(sets.first().map(|(_, state)| *state));
                check(&rt, false).await;
            })
        });
        world.start_node(spec(), main);
        world.run_until(|| state.lock().unwrap().is_some(), limit).unwrap();
        let state = state.lock().unwrap().unwrap();
        assert_ne!(state, Some(SetState::WithoutToc), "step {step}");
        seen.insert(state);
    }
    assert_eq!(seen.len(), 3, "{seen:?}");
}
