//! Fetching between nodes, with and without trouble.

use super::*;
use crate::wire::FetchAnswer;

fn ranges_of(plan: &[FetchRange]) -> Vec<TokenRange> {
    plan.iter().filter(|f| f.table == TABLE).map(|f| f.range).collect()
}

/// Ranges on both sides of the ring's end, and gaps.
fn from(sources: &[u8]) -> Vec<FetchRange> {
    let ranges = [
        (5_000_000_000_000_000_000, -8_000_000_000_000_000_000),
        (-6_000_000_000_000_000_000, -1_000_000_000),
        (0, 2_000_000_000_000_000_000),
        (2_000_000_000_000_000_000, 3_000_000_000_000_000_000),
    ];
    let fetch = |(start, end)| FetchRange {
        table: TABLE,
        range: TokenRange { start: Token(start), end: Token(end) },
        sources: sources.iter().map(|n| host(*n)).collect(),
    };
    ranges.into_iter().map(fetch).collect()
}

fn data(seed: u64) -> Vec<Vec<u8>> {
    random_data(seed, 600, 120)
}

/// INV-stream-2.
#[test]
fn what_is_fetched_is_what_the_source_has_whatever_the_shards() {
    for (seed, (shards, own)) in [(1, 1), (2, 2), (1, 3), (3, 2), (2, 1)].into_iter().enumerate() {
        let seed = seed as u64;
        let plan = from(&[1]);
        let ranges = ranges_of(&plan);
        let cluster = Cluster::start(
            seed,
            vec![Spec::new(1, shards, data(seed)), Spec::new(3, own, vec![]).fetching(plan)],
        );
        let report = cluster.finish().unwrap();
        compare(&cluster.dump(1), &ranges, &cluster.dump(3)).unwrap();
        let facts = cluster.facts.lock().unwrap();
        assert_eq!(facts.memtable_mutations, 0, "it went through the memtable");
        assert_eq!(report.ranges, 4);
        assert!(report.files >= u64::from(own) && report.bytes > 5_000, "{report:?}");
        assert!(report.partitions >= cluster_partitions(&facts, 3), "{report:?}");
        assert_eq!(facts.progress.last().unwrap().done, report);
        assert_eq!(facts.sessions, vec![], "the operation is over");
    }
}

fn cluster_partitions(facts: &Facts, n: u8) -> u64 {
    facts.dumps[&n].len() as u64
}

#[test]
fn the_full_ring_and_nothing_at_all_can_be_fetched() {
    let full = vec![FetchRange::of_one(host(1), TABLE, TokenRange::FULL)];
    for plan in [full, vec![]] {
        let ranges = ranges_of(&plan);
        let specs = vec![Spec::new(1, 2, data(7)), Spec::new(3, 2, vec![]).fetching(plan)];
        let cluster = Cluster::start(7, specs);
        let report = cluster.finish().unwrap();
        assert_eq!(report.ranges, ranges.len() as u64);
        compare(&cluster.dump(1), &ranges, &cluster.dump(3)).unwrap();
    }
}

#[test]
fn nothing_is_lost_under_faults_of_the_network_and_restarts_of_the_source() {
    let mut retried = 0;
    for seed in 100..118 {
        let plan = from(&[1]);
        let ranges = ranges_of(&plan);
        let mut source = Spec::new(1, 2, data(seed));
        // Slow enough that the faults come in between.
        source.settings.outbound_bytes_per_second = 20_000;
        let mut own = Spec::new(3, 1 + (seed % 3) as u16, vec![]).fetching(plan);
        // Four faults of up to three seconds may follow each other without a page in between.
        own.settings.attempts = 20;
        let mut cluster = Cluster::start(seed, vec![source, own]);
        for _ in 0..4 {
            let random = cluster.world.random_u64();
            cluster.world.run_for(Duration::from_millis(random % 800));
            if cluster.facts.lock().unwrap().outcome.is_some() {
                break;
            }
            match (random >> 32) % 4 {
                0 => {
                    cluster.world.kill(&cluster.nodes[&1]);
                    cluster.world.run_for(Duration::from_millis((random >> 40) % 1500));
                    cluster.start_node(1);
                }
                1 => {
                    cluster.world.partition(&name(1), &name(3));
                    cluster.world.run_for(Duration::from_millis((random >> 40) % 3000));
                    cluster.world.heal_all();
                }
                2 => cluster.world.reset_connections(&name(1), &name(3)),
                _ => {
                    cluster.world.clog(&name(1), &name(3));
                    cluster.world.run_for(Duration::from_millis((random >> 40) % 3000));
                    cluster.world.heal_all();
                }
            }
        }
        cluster.world.heal_all();
        cluster.finish().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        compare(&cluster.dump(1), &ranges, &cluster.dump(3))
            .unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        retried += u64::from(count(&cluster, 3, "stream_retries_total") > 0);
    }
    assert!(retried > 5, "the faults came too late: {retried}");
}

pub(super) fn count(cluster: &Cluster, n: u8, metric: &str) -> u64 {
    let metrics = cluster.nodes[&n].telemetry().metrics;
    let of = metrics.iter().filter(|m| m.name == metric);
    of.map(|m| match m.value {
        telemetry::Value::Counter(n) => n,
        _ => 0,
    })
    .sum()
}

#[test]
fn another_source_goes_on_where_the_first_one_died() {
    let mut both = 0;
    for seed in 200..206 {
        let plan = from(&[1, 2]);
        let ranges = ranges_of(&plan);
        let mut sources =
            [Spec::new(1, 2, data(seed)), Spec::new(2, 1 + (seed % 3) as u16, data(seed))];
        for source in &mut sources {
            source.settings.outbound_bytes_per_second = 20_000;
        }
        let [one, two] = sources;
        let specs = vec![one, two, Spec::new(3, 2, vec![]).fetching(plan)];
        let cluster = Cluster::start(seed, specs);
        cluster.world.run_for(Duration::from_millis(300 + (seed % 3) * 300));
        cluster.world.kill(&cluster.nodes[&1]);
        cluster.finish().unwrap();
        compare(&cluster.dump(2), &ranges, &cluster.dump(3)).unwrap();
        both += u64::from(count(&cluster, 2, "stream_sent_bytes_total") > 0);
    }
    assert!(both > 3, "the second source gave nothing in most runs: {both}");
}

#[test]
fn a_range_without_a_source_that_answers_is_named() {
    let mut plan = from(&[2]);
    plan.truncate(1);
    let lost = plan.clone();
    plan.extend(from(&[1]).into_iter().skip(1));
    plan.push(FetchRange { sources: vec![], ..from(&[]).pop().unwrap() });
    let mut own = Spec::new(3, 2, vec![]).fetching(plan.clone());
    own.settings.attempts = 2;
    let mut cluster =
        Cluster::new(300, vec![Spec::new(1, 2, data(1)), Spec::new(2, 1, vec![]), own]);
    cluster.start_node(1);
    cluster.wait_ready(1);
    cluster.start_node(3);
    let Err(StreamError::Incomplete { report, failed }) = cluster.finish() else {
        panic!("it cannot be whole");
    };
    assert_eq!((report.ranges, failed.len()), (3, 2));
    assert_eq!((&failed[0].range, failed[0].source), (&lost[0], Some(host(2))));
    assert_eq!((failed[1].source, failed[1].error.as_str()), (None, "no source is known"));
    let got = ranges_of(&plan[1..4]);
    compare(&cluster.dump(1), &got, &cluster.dump(3)).unwrap();
}

#[test]
fn a_node_that_dies_while_it_fetches_begins_again_and_has_all() {
    for seed in 400..410 {
        let plan = from(&[1]);
        let ranges = ranges_of(&plan);
        let mut source = Spec::new(1, 2, data(seed));
        source.settings.outbound_bytes_per_second = 20_000;
        let mut cluster =
            Cluster::start(seed, vec![source, Spec::new(3, 2, vec![]).fetching(plan)]);
        cluster.world.run_for(Duration::from_millis(100 + cluster.world.random_u64() % 1500));
        if cluster.world.random_u64().is_multiple_of(2) {
            cluster.world.kill(&cluster.nodes[&3]);
        } else {
            cluster.world.power_cut(&cluster.nodes[&3]);
        }
        let mut facts = cluster.facts.lock().unwrap();
        (facts.outcome, facts.dumped, facts.dumps) = Default::default();
        drop(facts);
        // The source has shown what it has only if the fetch was over before.
        cluster.world.kill(&cluster.nodes[&1]);
        cluster.start_node(1);
        cluster.wait_ready(1);
        cluster.start_node(3);
        cluster.finish().unwrap();
        compare(&cluster.dump(1), &ranges, &cluster.dump(3))
            .unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    }
}

/// A source's page with partitions that were not requested, and bytes that are no page.
/// INV-stream-3.
#[test]
fn what_a_source_should_not_give_is_not_taken() {
    let foreign: fn(&mut Vec<u8>) = |out| {
        let shape = TableShape::for_table(&table(TABLE, "ks"));
        let limits = PageLimits::default();
        let mut writer =
            data::replica_page::PageWriter::new(&shape, false, DeletionSeconds(1), true, limits);
        let deletion = DeletionTime { timestamp: TimestampMicros(1), local: DeletionSeconds(1) };
        // Below -8e18 or above 5e18 is asked for, or from -6e18 to -1e9, or from 0 to 3e18.
        let foreign = |pk: &i32| {
            (-900_000_000..0).contains(&(codec::token_of(&key(*pk)).0 >> 1))
                || (3_100_000_000_000_000_000..4_900_000_000_000_000_000)
                    .contains(&codec::token_of(&key(*pk)).0)
        };
        let key = key((0..).find(foreign).unwrap());
        let token = codec::token_of(&key);
        writer.item(&Item::Partition { token, key: &key, deletion });
        writer.item(&Item::PartitionEnd);
        FetchAnswer { shards: 1, page: &writer.finish() }.encode(out);
    };
    let garbage: fn(&mut Vec<u8>) = |out| FetchAnswer { shards: 1, page: b"\x01??" }.encode(out);
    let nothing: fn(&mut Vec<u8>) = |_| {};
    // It ends for ever at the same place.
    let stuck: fn(&mut Vec<u8>) = |out| {
        let shape = TableShape::for_table(&table(TABLE, "ks"));
        let limits = PageLimits::default();
        let writer =
            data::replica_page::PageWriter::new(&shape, false, DeletionSeconds(1), true, limits);
        let inside =
            |pk: &i32| (1..1_000_000_000_000_000_000).contains(&codec::token_of(&key(*pk)).0);
        let key = key((0..).find(inside).unwrap());
        let token = codec::token_of(&key);
        let end = data::replica_page::PageEnd::After { token, key: &key };
        FetchAnswer { shards: 1, page: &writer.finish_at(end) }.encode(out);
    };
    for (tamper, says) in [
        (foreign, "a partition of another range"),
        (garbage, "replica page is malformed"),
        (nothing, "stream answer"),
        (stuck, "a page ends where the one before ended"),
    ] {
        let mut source = Spec::new(1, 1, vec![]);
        source.tamper = Some(tamper);
        let mut own = Spec::new(3, 1, vec![]).fetching(from(&[1]));
        own.settings.attempts = 3;
        own.settings.whole_files = false;
        let cluster = Cluster::start(500, vec![source, own]);
        let Err(StreamError::Incomplete { failed, .. }) = cluster.finish() else {
            panic!("{says}: it cannot be whole");
        };
        assert!(failed[0].error.contains(says), "{}", failed[0].error);
        assert_eq!(cluster.dump(3), Dump::new());
    }
}

#[test]
fn the_source_gives_nothing_before_it_knows_what_the_newcomer_knows() {
    let plan = from(&[1]);
    let ranges = ranges_of(&plan);
    let source = Spec::new(1, 2, data(9));
    let newest = source.snapshot.clone();
    let behind = ClusterSnapshot { epoch: Epoch(4), ..(**newest.lock().unwrap()).clone() };
    let ahead = std::mem::replace(&mut *newest.lock().unwrap(), Arc::new(behind));
    let specs = vec![source, Spec::new(3, 2, vec![]).fetching(plan)];
    let cluster = Cluster::start(600, specs);
    cluster.world.run_for(Duration::from_secs(2));
    assert_eq!(count(&cluster, 1, "stream_sent_bytes_total"), 0);
    assert!(count(&cluster, 1, "stream_refused_total") > 0);
    *newest.lock().unwrap() = ahead;
    cluster.finish().unwrap();
    compare(&cluster.dump(1), &ranges, &cluster.dump(3)).unwrap();
}

#[test]
fn what_every_node_has_for_itself_is_refused() {
    let plan = vec![FetchRange::of_one(host(1), LOCAL_TABLE, TokenRange::FULL)];
    let specs = vec![Spec::new(1, 1, vec![]), Spec::new(3, 1, vec![]).fetching(plan)];
    let cluster = Cluster::start(700, specs);
    let Err(StreamError::Incomplete { failed, .. }) = cluster.finish() else {
        panic!("it cannot be whole");
    };
    assert!(failed[0].error.contains("is each node's own and is not streamed"), "{failed:?}");
}

#[test]
fn a_throttled_source_takes_its_time() {
    let took = |rate: u64| {
        let mut source = Spec::new(1, 2, data(3));
        source.settings.outbound_bytes_per_second = rate;
        let specs = vec![source, Spec::new(3, 2, vec![]).fetching(from(&[1]))];
        let cluster = Cluster::start(800, specs);
        let began = cluster.world.now();
        let report = cluster.finish().unwrap();
        (cluster.world.now().since(began), report.bytes)
    };
    // The simulator's clock: nothing here depends on the machine.
    let (slow, bytes) = took(10_000);
    assert!(slow > Duration::from_millis(bytes * 1000 / 10_000 / 2), "{slow:?} for {bytes}");
    let (quick, _) = took(0);
    assert!(quick * 5 < slow, "{quick:?} {slow:?}");
}

#[test]
fn nodes_of_other_datacenters_have_a_limit_of_their_own() {
    let took = |datacenter: &str, rate: u64| {
        let mut source = Spec::new(1, 2, data(3));
        source.settings.outbound_bytes_per_second = 0;
        source.settings.inter_dc_bytes_per_second = rate;
        let mut snapshot = (**source.snapshot.lock().unwrap()).clone();
        let fetches = snapshot.members.get_mut(&host(3)).unwrap();
        Arc::make_mut(fetches).datacenter = datacenter.to_owned();
        *source.snapshot.lock().unwrap() = Arc::new(snapshot);
        let specs = vec![source, Spec::new(3, 2, vec![]).fetching(from(&[1]))];
        let cluster = Cluster::start(810, specs);
        let began = cluster.world.now();
        let report = cluster.finish().unwrap();
        (cluster.world.now().since(began), report.bytes)
    };
    let (slow, bytes) = took("far", 10_000);
    assert!(slow > Duration::from_millis(bytes * 1000 / 10_000 / 2), "{slow:?} for {bytes}");
    for (quick, _) in [took("dc", 10_000), took("far", 0)] {
        assert!(quick * 5 < slow, "{quick:?} {slow:?}");
    }
}

#[test]
fn a_node_that_stops_does_not_wait_for_its_pages() {
    let mut source = Spec::new(1, 1, data(4));
    source.settings.outbound_bytes_per_second = 100;
    let mut own = Spec::new(3, 1, vec![]).fetching(from(&[1]));
    own.settings.page_timeout = Duration::from_secs(1_000_000);
    let cluster = Cluster::start(900, vec![source, own]);
    cluster.world.run_for(Duration::from_secs(1));
    cluster.nodes[&3].request_stop();
    assert_eq!(cluster.finish(), Err(StreamError::Stopping));
    assert_eq!(cluster.dump(3), Dump::new());
}

#[test]
fn a_fetch_that_is_given_up_does_not_wait_for_its_pages() {
    for (seed, shards) in [(910, 1), (911, 2)] {
        let mut source = Spec::new(1, shards, data(4));
        source.settings.outbound_bytes_per_second = 100;
        let mut own = Spec::new(3, shards, vec![]).fetching(from(&[1]));
        own.settings.page_timeout = Duration::from_secs(1_000_000);
        own.gives_up_after = Some(Duration::from_secs(1));
        let cluster = Cluster::start(seed, vec![source, own]);
        assert_eq!(cluster.finish(), Err(StreamError::Aborted));
        assert_eq!(cluster.dump(3), Dump::new());
        let facts = cluster.facts.lock().unwrap();
        assert_eq!(facts.sessions, vec![], "it is forgotten");
    }
}

#[test]
fn the_check_sees_what_is_missing_changed_or_too_much() {
    let range = [TokenRange { start: Token(i64::MIN), end: Token(0) }];
    let inside = (0..).map(key).find(|k| codec::token_of(k) < Token(0)).unwrap();
    let outside = (0..).map(key).find(|k| codec::token_of(k) > Token(0)).unwrap();
    let dump = |entries: &[(&Vec<u8>, &str)]| -> Dump {
        entries.iter().map(|(k, v)| ((*k).clone(), vec![(*v).to_owned()])).collect()
    };
    let source = dump(&[(&inside, "a"), (&outside, "b")]);
    assert_eq!(compare(&source, &range, &dump(&[(&inside, "a")])), Ok(()));
    let wrong = [
        dump(&[]),
        dump(&[(&inside, "x")]),
        dump(&[(&inside, "a"), (&outside, "b")]),
        dump(&[(&inside, "a"), (&vec![1, 2], "b")]),
    ];
    for wrong in wrong {
        assert!(compare(&source, &range, &wrong).is_err());
    }
}

/// A page end outside the requested ranges does not end the fetch from the next source.
#[test]
fn a_page_that_ends_behind_all_ranges_is_no_end_of_them() {
    let behind: fn(&mut Vec<u8>) = |out| {
        let shape = TableShape::for_table(&table(TABLE, "ks"));
        let limits = PageLimits::default();
        let writer =
            data::replica_page::PageWriter::new(&shape, false, DeletionSeconds(1), true, limits);
        let beyond = |pk: &i32| codec::token_of(&key(*pk)).0 > 3_000_000_000_000_000_000;
        let key = key((0..).find(beyond).unwrap());
        let end = data::replica_page::PageEnd::After { token: codec::token_of(&key), key: &key };
        FetchAnswer { shards: 1, page: &writer.finish_at(end) }.encode(out);
    };
    let plan = from(&[1, 2]).split_off(2);
    let ranges = ranges_of(&plan);
    let mut source = Spec::new(1, 1, vec![]);
    source.tamper = Some(behind);
    let mut own = Spec::new(3, 1, vec![]).fetching(plan);
    own.settings.whole_files = false;
    let cluster = Cluster::start(510, vec![source, Spec::new(2, 1, data(510)), own]);
    cluster.finish().unwrap();
    compare(&cluster.dump(2), &ranges, &cluster.dump(3)).unwrap();
}
