//! Files that are sent verbatim, between shards that are alike and others, and under faults.

use super::*;

/// A node whose files are all large enough, and whose chunks are small.
fn spec(n: u8, shards: u16, data: Vec<Vec<u8>>) -> Spec {
    let mut spec = Spec::new(n, shards, data);
    spec.settings.whole_bytes_min = 0;
    spec.settings.chunk_bytes = 4096;
    spec.settings.chunks_in_flight = 3;
    spec
}

fn full(sources: &[u8]) -> Vec<FetchRange> {
    let sources = sources.iter().map(|n| host(*n)).collect();
    vec![FetchRange { table: TABLE, range: TokenRange::FULL, sources }]
}

fn data(seed: u64) -> Vec<Vec<u8>> {
    random_data(seed, 600, 120)
}

#[test]
fn files_that_lie_in_the_ranges_come_as_they_are_when_the_shards_allow_it() {
    // (shards of the source, own shards, whole files come)
    for (seed, (shards, own, is_whole)) in
        [(1, 1, true), (2, 2, true), (3, 1, true), (1, 2, false), (3, 2, false)]
            .into_iter()
            .enumerate()
    {
        let seed = 500 + seed as u64;
        let specs = vec![spec(1, shards, data(seed)), spec(3, own, vec![]).fetching(full(&[1]))];
        let cluster = Cluster::start(seed, specs);
        let report = cluster.finish().unwrap();
        compare(&cluster.dump(1), &[TokenRange::FULL], &cluster.dump(3)).unwrap();
        assert_eq!(report.whole_files > 0, is_whole, "{shards} to {own}: {report:?}");
        let facts = cluster.facts.lock().unwrap();
        assert_eq!(facts.memtable_mutations, 0, "it went through the memtable");
        assert_eq!(facts.sessions, vec![], "the operation is over");
    }
}

#[test]
fn files_of_all_versions_come_as_they_are_to_nodes_that_can_use_them() {
    use store::Version::{Da, Me, Nb, Oa};
    // (versions at the source, version that the other writes, whether files come whole; else only some)
    let cases = [
        (vec![Me], Nb, true),
        (vec![Nb], Me, true),
        (vec![Oa], Da, true),
        (vec![Da], Oa, true),
        (vec![Me, Nb, Oa, Da], Da, true),
        (vec![Me, Nb, Oa, Da], Oa, true),
        (vec![Me, Nb, Oa, Da], Nb, true),
        (vec![Oa, Da], Nb, false),
        (vec![Da], Me, false),
    ];
    for (n, (from, to, is_whole)) in cases.into_iter().enumerate() {
        let seed = 600 + n as u64;
        for shards in [1, 2] {
            let mut source = spec(1, shards, data(seed));
            source.versions = from.clone();
            let mut own = spec(3, shards, vec![]).fetching(full(&[1]));
            own.versions = vec![to];
            let cluster = Cluster::start(seed, vec![source, own]);
            let report = cluster.finish().unwrap();
            compare(&cluster.dump(1), &[TokenRange::FULL], &cluster.dump(3)).unwrap();
            assert_eq!(report.whole_files > 0, is_whole, "{from:?} to {to}: {report:?}");
        }
    }
}

#[test]
fn parts_of_files_come_as_rows() {
    let half = TokenRange { start: Token(0), end: Token::MAX };
    let plan = vec![FetchRange::of_one(host(1), TABLE, half)];
    let specs = vec![spec(1, 2, data(520)), spec(3, 2, vec![]).fetching(plan)];
    let cluster = Cluster::start(520, specs);
    let report = cluster.finish().unwrap();
    assert_eq!(report.whole_files, 0);
    compare(&cluster.dump(1), &[half], &cluster.dump(3)).unwrap();
}

#[test]
fn a_node_that_does_not_want_files_gets_rows() {
    for at in [1, 3] {
        let mut specs = vec![spec(1, 1, data(521)), spec(3, 1, vec![]).fetching(full(&[1]))];
        for spec in specs.iter_mut().filter(|s| s.n == at) {
            spec.settings.whole_files = false;
        }
        let cluster = Cluster::start(521, specs);
        assert_eq!(cluster.finish().unwrap().whole_files, 0);
        compare(&cluster.dump(1), &[TokenRange::FULL], &cluster.dump(3)).unwrap();
    }
}

/// Connections break, the source restarts and has lost its holds, one source of two dies.
/// INV-stream-4.
#[test]
fn nothing_is_lost_of_files_under_faults() {
    let (mut whole, mut retried) = (0, 0);
    for seed in 530..548 {
        let mut sources = Vec::new();
        for n in [1, 2] {
            let mut source = spec(n, 1 + (seed % 2) as u16, data(seed));
            // Slow enough that the faults come in between.
            source.settings.outbound_bytes_per_second = 60_000;
            sources.push(source);
        }
        let mut own = spec(3, 1 + (seed % 2) as u16, vec![]).fetching(full(&[1, 2]));
        own.settings.attempts = if seed % 3 == 0 { 2 } else { 20 };
        sources.push(own);
        let mut cluster = Cluster::start(seed, sources);
        for _ in 0..3 {
            let random = cluster.world.random_u64();
            cluster.world.run_for(Duration::from_millis(random % 700));
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
        let report = cluster.finish().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        compare(&cluster.dump(2), &[TokenRange::FULL], &cluster.dump(3))
            .unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        whole += u64::from(report.whole_files > 0);
        retried += u64::from(super::fetching::count(&cluster, 3, "stream_retries_total") > 0);
    }
    assert!(whole > 15 && retried > 5, "{whole} {retried}: the faults came too late");
}

/// Killed or powered off during the transfer: no partial file is visible, and the next run has all.
#[test]
fn a_node_that_dies_while_files_come_has_all_of_them_in_the_end() {
    for seed in 560..570 {
        let mut source = spec(1, 1, data(seed));
        source.settings.outbound_bytes_per_second = 40_000;
        let own = spec(3, 1, vec![]).fetching(full(&[1]));
        let mut cluster = Cluster::start(seed, vec![source, own]);
        cluster.world.run_for(Duration::from_millis(100 + cluster.world.random_u64() % 1500));
        if cluster.world.random_u64().is_multiple_of(2) {
            cluster.world.kill(&cluster.nodes[&3]);
        } else {
            cluster.world.power_cut(&cluster.nodes[&3]);
        }
        let mut facts = cluster.facts.lock().unwrap();
        (facts.outcome, facts.dumped, facts.dumps) = Default::default();
        drop(facts);
        cluster.world.kill(&cluster.nodes[&1]);
        cluster.start_node(1);
        cluster.wait_ready(1);
        cluster.start_node(3);
        cluster.finish().unwrap();
        compare(&cluster.dump(1), &[TokenRange::FULL], &cluster.dump(3))
            .unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    }
}
