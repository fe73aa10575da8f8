//! Reports of replicas about their part in repairs.

use std::time::Duration;

use dist_testing::table::insert;
use dist_testing::{Random, Replicas};

use super::nodes::{Nodes, Options, full};
use crate::{ParticipationDetails, Preview, RepairOptions, RepairState};

/// 60 partitions with four rows each, of which replicas have different ones.
fn differing(options: &Options) -> Nodes {
    let nodes = Nodes::start(options);
    let mut random = Random(options.seed);
    let mut writes = Vec::new();
    for n in 0..240 {
        // Every replica has every partition.
        let to = if n % 4 == 0 { vec![1, 2, 3] } else { vec![1 + random.below(3) as u8] };
        writes.push((insert(n / 4, n % 4, &"v".repeat(60), 10), to));
    }
    nodes.write_all(&writes);
    (1..=3).for_each(|n| nodes.flush(n));
    nodes
}

fn parts(nodes: &Nodes, n: u8) -> Vec<ParticipationDetails> {
    nodes.node(n, 0).repair.unwrap().participations()
}

#[test]
fn every_replica_shows_its_part_with_what_it_has_read() {
    for (seed, incremental) in [(600, false), (601, true), (602, false)] {
        let nodes = differing(&Options::new(seed));
        let by = nodes.any();
        let status = nodes.repair(by, RepairOptions { incremental, ..full() });
        assert_eq!(status.state, RepairState::Successful, "{:?}", status.lines);
        nodes.world.run_for(Duration::from_secs(1));
        let details = nodes.node(by, 0).repair.unwrap().list_details().remove(0).1;
        let jobs: Vec<_> = details.sessions.iter().flat_map(|s| &s.jobs).collect();
        assert!(!jobs.is_empty());
        for job in &jobs {
            assert!(matches!(job.ended, Some((_, None))), "{job:?}");
            let times = [Some(job.started_at), job.compared_from, job.compared_upto];
            assert!(times.iter().all(Option::is_some) && times.is_sorted(), "{job:?}");
        }
        assert!(jobs.iter().any(|job| job.sent_from.is_some()), "rows were sent");
        let address = nodes.node(1, 0).snapshot.borrow().members[&dist_testing::host(by)].storage;
        for n in 1..=3 {
            let all = parts(&nodes, n);
            let [part] = all.as_slice() else { panic!("seed {seed} n{n}: {all:?}") };
            assert_eq!((part.id, part.initiator), (status.session, address));
            assert_eq!((part.incremental, part.global), (incremental, true));
            assert_eq!(
                (part.preview, part.tables.as_slice()),
                (Preview::None, &["ks.t".to_owned()][..])
            );
            assert_eq!(part.repaired_at != 0, incremental, "seed {seed} n{n}");
            assert!(matches!(part.course.ended, Some((_, Ok(())))), "seed {seed} n{n}: {part:?}");
            // The same comparisons, by the same names.
            let ids = |of: &[crate::ValidationDetails]| of.iter().map(|v| v.id).collect::<Vec<_>>();
            assert_eq!(ids(&part.validations), jobs.iter().map(|j| j.id).collect::<Vec<_>>());
            let sum = |of: &dyn Fn(&crate::ValidationDetails) -> u64| -> u64 {
                part.validations.iter().map(of).sum()
            };
            let partitions = sum(&|v| v.partitions);
            // Each once, however often a segment that differs was read again; what a coordinator sends
            // meanwhile brings none that was not there.
            assert_eq!(partitions, 60, "seed {seed} n{n}");
            assert!(sum(&|v| v.bytes_read) > 3000 && sum(&|v| v.estimated.0) >= 60, "n{n}");
            for v in &part.validations {
                let table = v.table.clone().unwrap();
                assert_eq!((table.0.as_str(), table.1.as_str()), ("ks", "t"));
                assert!(v.started.is_some() && matches!(v.course.ended, Some((_, Ok(())))));
                assert_eq!(v.sent.is_some(), n != by, "who is asked sends digests: n{n}");
            }
        }
    }
}

#[test]
fn a_repair_that_fails_has_failed_on_all_replicas() {
    let mut options = Options::new(610);
    options.settings.bytes_per_second = 20_000;
    let nodes = differing(&options);
    let id = nodes.begin(1, full());
    nodes.world.run_for(Duration::from_millis(400));
    for n in 1..=3 {
        let all = parts(&nodes, n);
        let [part] = all.as_slice() else { panic!("n{n}: {all:?}") };
        assert_eq!(part.course.ended, None, "n{n}");
    }
    nodes.node(1, 0).repair.unwrap().abort(Some(id));
    let failed = nodes.finish(1, id);
    assert_eq!(failed.state, RepairState::Failed);
    nodes.world.run_for(Duration::from_secs(1));
    for n in 1..=3 {
        let part = parts(&nodes, n).remove(0);
        let Some((_, Err(error))) = &part.course.ended else { panic!("n{n}: {part:?}") };
        let last = part.validations.last().unwrap();
        assert!(matches!(&last.course.ended, Some((_, Err(e))) if e == error), "n{n}: {last:?}");
    }
}

#[test]
fn a_replica_that_hears_nothing_takes_the_repair_for_failed_and_one_that_does_not() {
    let mut options = Options::new(611);
    // About three minutes, of which nothing is asked for long.
    options.settings.bytes_per_second = 300;
    let nodes = differing(&options);
    let id = nodes.begin(1, full());
    nodes.world.run_for(Duration::from_secs(70));
    assert_eq!(nodes.status(1, id).state, RepairState::Running);
    let ended = |n| parts(&nodes, n).remove(0).course.ended;
    for n in 1..=3 {
        assert_eq!(ended(n), None, "n{n}: more than three times the patience of a replica");
    }
    nodes.cut(1, 3);
    nodes.cut(2, 3);
    nodes.world.run_for(Duration::from_secs(40));
    let failed = ended(3);
    let expected = "its coordinator is silent";
    assert!(matches!(&failed, Some((_, Err(e))) if e == expected), "{failed:?}");
}
