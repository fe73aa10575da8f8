//! Replicas that have missed different writes.

use std::sync::Arc;

use cluster::{Consistency, Truncation};
use data::{Slice, Slices};

use schema::TableOptions;

use dist_testing::table::{TABLE, clustering, delete_partition, delete_range, delete_row, insert};
use dist_testing::{Random, Replicas};
use stdx::Epoch;

use super::nodes::{Ask, Nodes, Options, all, one};
use super::sink::{Collect, behind, next_page};
use crate::{ReplicatedRead, SelectLimits};

const KEYS: i32 = 24;

/// Writes of which each is on two or three of three nodes: a quorum acknowledged them.
fn acknowledged(seed: u64, count: i64) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut random = Random(seed);
    let mut to = || match random.below(6) {
        0 => vec![1, 2],
        1 => vec![2, 3],
        2 => vec![1, 3],
        _ => vec![1, 2, 3],
    };
    let to: Vec<Vec<u8>> = (0..count).map(|_| to()).collect();
    (1..=count).map(|at| random.write(KEYS, at)).zip(to).collect()
}

/// Reads everything at QUORUM in several ways; the first difference from the oracle.
fn check_quorum_reads(nodes: &Nodes) -> Result<(), String> {
    let ask = Ask::at(Consistency::Quorum);
    for pk in 0..KEYS {
        let mut command = one(pk);
        command.reversed = nodes.below(2) == 1;
        let (n, expected) = (nodes.any(), nodes.expected(&command, &ask));
        let found = nodes.read(n, &command, &ask);
        if found.result.is_err() || found.rows != expected {
            return Err(format!("pk {pk} from n{n}: {found:?} instead of {expected:?}"));
        }
    }
    let n = nodes.any();
    let (found, expected) = (nodes.read(n, &all(), &ask), nodes.expected(&all(), &ask));
    if found.result.is_err() || found.rows != expected {
        return Err(format!("scan from n{n}: {found:?} instead of {expected:?}"));
    }
    Ok(())
}

#[test]
fn what_was_read_before_a_truncation_is_not_written_back() {
    for is_truncated in [false, true] {
        let nodes = Nodes::start(&Options::new(300));
        nodes.write(&[1], &insert(1, 1, "x", 1));
        let found = nodes.run_on(nodes.node(1, 0), move |node| async move {
            let mut before = (*node.snapshot).clone();
            before.epoch = Epoch(before.epoch.0 - 1);
            if is_truncated {
                // It differs from what the node knows now, as the one before the newest would.
                before.truncations.insert(TABLE, Truncation::default());
            }
            let order = ReplicatedRead {
                snapshot: Arc::new(before),
                consistency: Consistency::Quorum,
                deadline: node.rt.now() + std::time::Duration::from_secs(5),
                page_timeout: None,
                rows_wanted: 100,
                limits: SelectLimits { rows_per_partition: u32::MAX },
            };
            let mut sink = Collect::new(&one(1), None, u32::MAX);
            node.coordinator.reads().read_replicated(&one(1), &order, &mut sink).await.unwrap();
            sink.finish().len()
        });
        assert_eq!(found, 1);
        let others = [nodes.content(2), nodes.content(3)];
        let has_row = |content: &Vec<u8>| *content == nodes.content(1);
        assert_eq!(others.iter().any(has_row), !is_truncated);
    }
}

#[test]
fn quorum_reads_see_every_write_of_a_quorum_and_leave_replicas_equal() {
    // INV-reading-1.
    for seed in 0..8 {
        let page_tombstones = [10_000, 10_000, 100, 20][seed as usize % 4];
        let nodes = Nodes::start(&Options { page_tombstones, ..Options::new(seed) });
        let writes = acknowledged(seed, 300);
        nodes.write_all(&writes[..200]);
        if seed % 2 == 1 {
            nodes.flush(nodes.any());
        }
        nodes.write_all(&writes[200..]);
        check_quorum_reads(&nodes).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert!(nodes.mismatches() > 0);
        // At ALL no replica is left out.
        let found = nodes.read(nodes.any(), &all(), &Ask::at(Consistency::All));
        assert_eq!(found.rows, nodes.expected(&all(), &Ask::at(Consistency::All)), "seed {seed}");
        nodes.check_equal().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        // Nothing is left to merge: digests of nodes with other numbers of shards agree.
        let before = nodes.mismatches();
        check_quorum_reads(&nodes).unwrap();
        nodes.read(nodes.any(), &all(), &Ask::at(Consistency::All)).result.unwrap();
        assert_eq!(nodes.mismatches(), before, "seed {seed}");
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let trace = |seed| {
        let nodes = Nodes::start(&Options::new(seed));
        nodes.write_all(&acknowledged(seed, 60));
        check_quorum_reads(&nodes).unwrap();
        nodes.world.trace_hash()
    };
    assert_eq!(trace(5), trace(5));
    assert_ne!(trace(5), trace(6));
}

#[test]
fn the_checkers_see_a_lost_write_and_lost_repairs() {
    // Acknowledged and on one node only: some quorum misses it.
    let nodes = Nodes::start(&Options::new(3));
    let lost = (0..KEYS).map(|pk| (insert(pk, 1, "lost", 5), vec![1]));
    nodes.write_all(&lost.collect::<Vec<_>>());
    assert!(check_quorum_reads(&nodes).is_err());
    drop(nodes);

    let nodes = Nodes::start(&Options::new(4));
    nodes.write_all(&acknowledged(4, 100));
    nodes.lose_repairs_at(2);
    nodes.read(1, &all(), &Ask::at(Consistency::All)).result.unwrap();
    assert!(nodes.check_equal().is_err());
}

#[test]
fn what_is_deleted_does_not_come_back_when_one_replica_missed_the_deletion() {
    for seed in 20..24 {
        let nodes = Nodes::start(&Options::new(seed));
        for pk in 0..3 {
            for ck in 0..10 {
                nodes.write(&[1, 2, 3], &insert(pk, ck, "alive", 10));
            }
        }
        let missed_by = nodes.any();
        let others: Vec<u8> = (1..=3).filter(|n| *n != missed_by).collect();
        nodes.write(&others, &delete_partition(0, 20));
        nodes.write(&others, &delete_range(1, 2, 9, 20));
        for ck in 0..8 {
            nodes.write(&others, &delete_row(2, ck, 20));
        }
        for pk in 0..3 {
            for n in 1..=3 {
                let ask = Ask { rows_wanted: 2, ..Ask::at(Consistency::Quorum) };
                let found = nodes.read(n, &one(pk), &ask);
                found.result.as_ref().unwrap();
                assert_eq!(found.rows, nodes.expected(&one(pk), &ask), "seed {seed} pk {pk} n{n}");
            }
        }
        // The rows that a quorum without it has shown as gone are gone from it too once it is asked.
        nodes.read(missed_by, &all(), &Ask::at(Consistency::All)).result.unwrap();
        nodes.check_equal().unwrap();
        for n in 1..=3 {
            let found = nodes.read(n, &all(), &Ask::at(Consistency::One));
            assert_eq!(found.rows, nodes.expected(&all(), &Ask::at(Consistency::One)));
        }
    }
}

/// All rows, or those of two ranges.
fn some_slices(nodes: &Nodes) -> Slices {
    if nodes.below(3) == 0 {
        return Slices::all();
    }
    let mut at: Vec<i32> = (0..4).map(|_| nodes.below(16) as i32).collect();
    at.sort_unstable();
    let slice = |from, to| Slice {
        start: clustering(from),
        start_after: from % 2 == 0,
        end: clustering(to),
        end_after: true,
    };
    let mut slices = vec![slice(at[0], at[1])];
    if at[2] > at[1] {
        slices.push(slice(at[2], at[3]));
    }
    Slices(slices)
}

#[test]
fn pages_that_go_on_at_other_nodes_show_every_row_once() {
    // INV-reading-2.
    for seed in 40..49 {
        // Pages of replicas end after few tombstones, those of the client too.
        let page_tombstones = [10_000, 1, 3][seed as usize % 3];
        let nodes = Nodes::start(&Options { page_tombstones, ..Options::new(seed) });
        nodes.write_all(&acknowledged(seed, 250));
        for (round, per_partition) in [u32::MAX, 1, 3, u32::MAX].into_iter().enumerate() {
            let rows = 1 + nodes.below(6);
            let ask = Ask {
                rows_wanted: rows,
                stop_after: Some(rows),
                per_partition,
                tombstones: [u32::MAX, 1, 2, 5][nodes.below(4)],
                ..Ask::at(Consistency::Quorum)
            };
            let mut commands = vec![all()];
            for _ in 0..6 {
                let mut command = one(nodes.below(KEYS as usize) as i32);
                command.reversed = nodes.below(2) == 1;
                command.wants_static = nodes.below(2) == 1;
                command.slices = some_slices(&nodes).into();
                commands.push(command);
            }
            let mut sliced = all();
            sliced.slices = some_slices(&nodes).into();
            sliced.wants_static = false;
            commands.push(sliced);
            for command in commands {
                let whole = Ask { stop_after: None, tombstones: u32::MAX, ..ask.clone() };
                let expected = nodes.expected(&command, &whole);
                let (mut found, mut pages) = (Vec::new(), 0);
                let mut rest = Some(command.clone());
                while let Some(command) = rest {
                    let page = nodes.read(nodes.any(), &command, &ask);
                    page.result.as_ref().unwrap();
                    rest = match &page.cut {
                        Some(cut) => behind(&command, cut),
                        None => next_page(&command, &page.rows).filter(|_| page.rows.len() == rows),
                    };
                    pages += 1;
                    assert!(pages < 2_000, "seed {seed}: {command:?} does not come to an end");
                    found.extend(page.rows);
                }
                assert_eq!(
                    found,
                    expected,
                    "seed {seed} round {round} {command:?} {ask:?}",
                    ask = (rows, per_partition)
                );
            }
        }
    }
}

#[test]
fn pages_of_large_rows_are_cut_alike_and_merged() {
    let nodes = Nodes::start(&Options::new(50));
    let large = |pk, ck, at| insert(pk, ck, &"x".repeat(70_000 + at as usize), at);
    let mut writes = Vec::new();
    for pk in 0..3 {
        for ck in 0..25 {
            // Each row is on all nodes, every fourth has a newer version on two.
            writes.push((large(pk, ck, 1), vec![1, 2, 3]));
            if ck % 4 == pk {
                writes.push((large(pk, ck, 2), vec![1 + (ck % 3) as u8, 1 + ((ck + 1) % 3) as u8]));
            }
        }
    }
    nodes.write_all(&writes);
    let ask = Ask::at(Consistency::Quorum);
    for command in [one(0), one(1), one(2), all()] {
        let found = nodes.read(nodes.any(), &command, &ask);
        found.result.as_ref().unwrap();
        assert!(found.rows == nodes.expected(&command, &ask), "{:?}", command.partitions);
    }
    let mut reversed = one(1);
    reversed.reversed = true;
    assert!(nodes.read(3, &reversed, &ask).rows == nodes.expected(&reversed, &ask));
    nodes.read(2, &all(), &Ask::at(Consistency::All)).result.unwrap();
    assert!(nodes.check_equal().is_ok());
    let before = nodes.mismatches();
    nodes.read(1, &all(), &Ask::at(Consistency::All)).result.unwrap();
    assert_eq!(nodes.mismatches(), before);
}

#[test]
fn without_read_repair_replicas_are_merged_and_left_as_they_are() {
    let table = TableOptions { read_repair: "NONE".to_owned(), ..TableOptions::default() };
    let nodes = Nodes::start(&Options { table, ..Options::new(55) });
    nodes.write(&[1, 2], &insert(1, 1, "a", 1));
    nodes.write(&[2, 3], &insert(1, 2, "b", 2));
    for n in 1..=3 {
        let everyone = Ask::at(Consistency::All);
        assert_eq!(nodes.read(n, &one(1), &everyone).rows, nodes.expected(&one(1), &everyone));
    }
    assert!(nodes.mismatches() >= 3);
    assert!(nodes.check_equal().is_err());
}

#[test]
fn few_rows_left_after_a_merge_are_filled_up_from_behind() {
    let nodes = Nodes::start(&Options::new(57));
    for ck in 0..40 {
        nodes.write(&[1, 2, 3], &insert(7, ck, "x", 1));
    }
    // Each node has the rows that another one knows as deleted.
    for n in 1..=3 {
        for ck in (0..30).filter(|ck| ck % 3 == i32::from(n) - 1) {
            nodes.write(&[n, 1 + n % 3], &delete_row(7, ck, 2));
        }
    }
    let ask = Ask { rows_wanted: 4, stop_after: Some(4), ..Ask::at(Consistency::Quorum) };
    for n in 1..=3 {
        let found = nodes.read(n, &one(7), &ask);
        found.result.as_ref().unwrap();
        assert_eq!(found.rows.iter().map(|r| r.1).collect::<Vec<_>>(), [30, 31, 32, 33].map(Some));
    }
}
