//! Nodes of one or several shards in a simulated world: kills, restarts, pauses, partitions.
#![allow(clippy::disallowed_types, reason = "facts are shared with the world's main function")]

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dist_testing::{PORT, host, identity, name};
use messaging::{Handler, MessagingMesh, Peer, Responder, Settings};
use rt::sim::{SimNode, World, WorldOptions};
use rt::{Main, NodeSpec};

use super::*;

/// A notification of a shard: node, shard, subject, up or down.
type Told = (u8, u16, u8, bool);

#[derive(Default)]
struct Facts {
    told: Vec<Told>,
    ready: Vec<Told>,
    /// Generation of each start: node, number.
    starts: Vec<(u8, u64)>,
    epochs: Vec<(u8, u8, u64)>,
    /// Disk usages for nodes to report.
    usages: Vec<(u8, DiskUsage)>,
    /// Disk usages that shards were notified of: node, shard, subject.
    disks: Vec<(u8, u16, u8, DiskUsage)>,
    /// Last `gossipinfo` of shard 0: node, rows.
    views: Vec<(u8, Vec<(u8, bool)>)>,
}

type SharedFacts = Arc<Mutex<Facts>>;

struct Serve(Liveness);

impl Handler for Serve {
    fn handle(&self, request: Request<'_>, _: Responder) {
        self.0.serve_peer(&request);
    }
}

fn number(host: HostId) -> u8 {
    host.0.as_bytes()[0]
}

async fn shard(
    rt: Rt,
    n: u8,
    peers: Vec<(u8, IpAddr)>,
    meshes: (Arc<MessagingMesh>, Arc<LivenessMesh>),
    facts: SharedFacts,
) {
    let identity = identity(n, rt.random_u64(), rt.shard_count());
    let messaging = Messaging::new(&rt, identity, Arc::new(Settings::default()), meshes.0);
    for (peer, ip) in &peers {
        let address = SocketAddr::new(*ip, PORT);
        messaging.set_peer(host(*peer), Peer { address, shard_count: 1 });
    }
    let liveness = Liveness::new(rt.clone(), meshes.1, host(n));
    let at = rt.shard().0;
    let told = facts.clone();
    liveness.on_change(move |about, up| {
        told.lock().unwrap().told.push((n, at, number(about), up));
    });
    let told = facts.clone();
    liveness.on_ready(move |about, up| {
        told.lock().unwrap().ready.push((n, at, number(about), up));
    });
    let told = facts.clone();
    liveness.on_disk_usage(move |about, usage| {
        told.lock().unwrap().disks.push((n, at, number(about), usage));
    });
    messaging.serve(Rc::new(Serve(liveness.clone())));
    if rt.shard() == ShardId(0) {
        rt.fs().create_dir_durably("/data/metadata").await.unwrap();
        let generation = next_generation(&rt, "/data").await.unwrap();
        facts.lock().unwrap().starts.push((n, generation));
        messaging.listen(SocketAddr::from(([0, 0, 0, 0], PORT))).await.unwrap();
        let seen = facts.clone();
        liveness.start(Start {
            messaging: messaging.clone(),
            generation,
            work_dir: "/data".to_owned(),
            phi_convict_threshold: 8.0,
            round: Duration::from_secs(1),
            state: AppState { epoch: Epoch(u64::from(n)), ..AppState::default() },
            on_epoch: Box::new(move |from, epoch| {
                seen.lock().unwrap().epochs.push((n, number(from), epoch.0));
            }),
        });
        let members =
            peers.iter().map(|(peer, _)| Member { host: host(*peer), is_seed: *peer == 1 });
        liveness.set_members(members.collect());
        rt.sleep(Duration::from_secs(1)).await;
        liveness.set_ready(true);
    }
    while !rt.is_stop_requested() {
        let next = rt.now() + Duration::from_secs(1);
        let _ = rt.timeout(next, rt.stop_requested()).await;
        let rows: Vec<(u8, bool)> =
            liveness.view().iter().map(|row| (number(row.host), row.is_alive)).collect();
        // `view` and `is_alive` of shard 0 agree.
        for (peer, is_alive) in &rows {
            assert_eq!(liveness.is_alive(host(*peer)), *is_alive);
        }
        let mut facts = facts.lock().unwrap();
        facts.views.push((n, rows));
        if let Some(at) = facts.usages.iter().position(|(m, _)| *m == n) {
            liveness.set_disk_usage(facts.usages.remove(at).1);
        }
    }
    liveness.stop().await;
    messaging.stop(Duration::from_secs(1)).await;
}

struct Cluster {
    world: World,
    facts: SharedFacts,
    nodes: Vec<(u8, u16)>,
}

impl Cluster {
    /// Nodes 1, 2, … with so many shards each.
    fn new(seed: u64, shards: &[u16]) -> Cluster {
        let world = World::new(seed, WorldOptions::default());
        let nodes = (1_u8..).zip(shards.iter().copied()).collect();
        Cluster { world, facts: SharedFacts::default(), nodes }
    }

    fn start(&self, n: u8) -> SimNode {
        let shards = self.nodes.iter().find(|(m, _)| *m == n).unwrap().1;
        let peers: Vec<(u8, IpAddr)> =
            self.nodes.iter().map(|(m, _)| (*m, self.world.ip(&name(*m)))).collect();
        let meshes =
            (Arc::new(MessagingMesh::new(shards)), Arc::new(LivenessMesh::new(shards, 64)));
        let facts = self.facts.clone();
        let main: Main = Arc::new(move |rt| {
            Box::pin(shard(rt, n, peers.clone(), meshes.clone(), facts.clone()))
        });
        let spec = NodeSpec { name: name(n), shards, work_dir: String::new() };
        self.world.start_node(spec, main)
    }

    fn start_all(&self) -> Vec<SimNode> {
        self.nodes.iter().map(|(n, _)| self.start(*n)).collect()
    }

    fn run(&self, seconds: u64) {
        self.world.run_for(Duration::from_secs(seconds));
    }

    /// Takes the notifications of all shards since the last call.
    fn take(&self) -> Vec<Told> {
        let mut told = std::mem::take(&mut self.facts.lock().unwrap().told);
        told.sort_unstable();
        told
    }

    /// Asserts that every shard of every node of `by` was notified once about each of `about`
    /// (INV-liveness-1).
    fn expect(&self, by: &[u8], about: &[u8], up: bool) {
        let mut expected: Vec<Told> = Vec::new();
        for n in by {
            let shards = self.nodes.iter().find(|(m, _)| m == n).unwrap().1;
            for shard in 0..shards {
                let others = about.iter().filter(|m| *m != n);
                expected.extend(others.map(|m| (*n, shard, *m, up)));
            }
        }
        expected.sort_unstable();
        assert_eq!(self.take(), expected);
    }
}

#[test]
fn every_shard_hears_of_every_node_once() {
    for (seed, shards) in [(1, [1, 1, 1]), (2, [1, 2, 3]), (3, [3, 3, 3])] {
        let cluster = Cluster::new(seed, &shards);
        cluster.start_all();
        cluster.run(20);
        cluster.expect(&[1, 2, 3], &[1, 2, 3], true);
        let facts = cluster.facts.lock().unwrap();
        // All of them said that they serve clients, and which epoch they have.
        let shards: usize = shards.iter().map(|s| usize::from(*s)).sum();
        assert_eq!(facts.ready.len(), 2 * shards, "{:?}", facts.ready);
        assert!(facts.ready.iter().all(|(.., up)| *up));
        for (n, peer) in [(1, 2), (1, 3), (2, 1), (2, 3), (3, 1), (3, 2)] {
            assert!(facts.epochs.contains(&(n, peer, u64::from(peer))), "{:?}", facts.epochs);
        }
    }
}

#[test]
fn a_killed_node_is_down_within_half_a_minute_and_up_again_after_its_restart() {
    for seed in 10..15 {
        let cluster = Cluster::new(seed, &[2, 1, 1]);
        let nodes = cluster.start_all();
        cluster.run(20);
        cluster.take();
        if seed % 2 == 0 {
            cluster.world.kill(&nodes[2]);
        } else {
            cluster.world.power_cut(&nodes[2]);
        }
        cluster.run(30);
        cluster.expect(&[1, 2], &[3], false);
        cluster.start(3);
        cluster.run(20);
        let told = cluster.take();
        let about_3: Vec<_> = told.iter().filter(|(n, ..)| *n != 3).collect();
        assert_eq!(about_3, [&(1, 0, 3, true), &(1, 1, 3, true), &(2, 0, 3, true)], "{seed}");
        let facts = cluster.facts.lock().unwrap();
        let starts: Vec<u64> =
            facts.starts.iter().filter(|(n, _)| *n == 3).map(|(_, g)| *g).collect();
        assert!(starts[0] < starts[1], "{starts:?}");
    }
}

/// The host stays up and refuses connections, as after a crash or an OOM kill of the process.
#[test]
fn a_node_whose_process_ends_is_down_within_two_seconds() {
    for seed in 60..66 {
        let cluster = Cluster::new(seed, &[2, 1, 1]);
        let nodes = cluster.start_all();
        cluster.run(20);
        cluster.take();
        cluster.world.kill(&nodes[2]);
        cluster.run(2);
        cluster.expect(&[1, 2], &[3], false);
        // It is up again as soon as it answers.
        cluster.start(3);
        cluster.run(20);
        assert!(cluster.take().contains(&(1, 1, 3, true)), "{seed}");
    }
}

#[test]
fn a_node_that_stops_says_so_and_is_down_at_once() {
    for seed in 20..23 {
        let cluster = Cluster::new(seed, &[1, 2, 1]);
        let nodes = cluster.start_all();
        cluster.run(20);
        cluster.take();
        nodes[0].request_stop();
        cluster.run(2);
        cluster.expect(&[2, 3], &[1], false);
    }
}

#[test]
fn both_sides_of_a_partition_hold_the_other_one_for_down_until_it_heals() {
    for seed in 30..33 {
        let cluster = Cluster::new(seed, &[1, 2, 1]);
        cluster.start_all();
        cluster.run(20);
        cluster.take();
        cluster.world.partition(&name(1), &name(3));
        cluster.world.partition(&name(2), &name(3));
        cluster.run(60);
        let mut told = cluster.take();
        told.retain(|(n, _, about, up)| !(*up || (*n == 3) == (*about == 3)));
        assert_eq!(
            told,
            [
                (1, 0, 3, false),
                (2, 0, 3, false),
                (2, 1, 3, false),
                (3, 0, 1, false),
                (3, 0, 2, false)
            ],
            "{seed}"
        );
        cluster.world.heal_all();
        cluster.run(40);
        let told = cluster.take();
        assert!(told.iter().all(|(.., up)| *up), "{seed}: {told:?}");
        assert_eq!(told.len(), 5, "{seed}: {told:?}");
        let facts = cluster.facts.lock().unwrap();
        for n in 1..=3_u8 {
            let (_, last) =
                facts.views.iter().rev().find(|(m, rows)| *m == n && !rows.is_empty()).unwrap();
            assert_eq!(*last, [(1, true), (2, true), (3, true)], "{seed}: n{n}");
        }
    }
}

/// INV-liveness-3: what a power cut loses was not sent yet, so that a start is newer than all that others know,
/// whatever the clock says.
#[test]
fn the_generation_of_a_start_survives_a_power_cut() {
    let cluster = Cluster::new(41, &[1, 1]);
    let nodes = cluster.start_all();
    cluster.run(20);
    cluster.world.power_cut_losing_all(&nodes[1]);
    for day in 1..4 {
        cluster.world.set_clock_skew(&name(2), -86_400_000_000 * day);
        cluster.run(1);
        let again = cluster.start(2);
        cluster.run(5);
        cluster.world.power_cut_losing_all(&again);
    }
    let facts = cluster.facts.lock().unwrap();
    let starts: Vec<u64> =
        facts.starts.iter().filter(|(n, _)| *n == 2).map(|(_, generation)| *generation).collect();
    assert_eq!(starts.len(), 4);
    assert!(starts.is_sorted_by(|a, b| a < b), "INV-liveness-3: {starts:?}");
}

/// INV-liveness-2: a picture that arrives late, after a newer one, is ignored.
#[test]
fn a_shard_keeps_the_newest_picture() {
    let world = World::new(5, WorldOptions::default());
    let done = Arc::new(Mutex::new(false));
    let mark = done.clone();
    world.client("n1", move |rt| async move {
        let liveness = Liveness::new(rt, Arc::new(LivenessMesh::new(1, 64)), host(1));
        let picture = |number, peer: u8| {
            let mut alive = FixedMap::default();
            alive.insert(host(peer), true);
            Arc::new(Picture { number, alive, ..Picture::default() })
        };
        for (number, peer, seen) in [(2, 2, 2), (1, 3, 2), (2, 3, 2), (3, 4, 4)] {
            liveness.adopt(&picture(number, peer));
            let is_seen = liveness.is_alive(host(seen));
            assert!(is_seen, "INV-liveness-2: picture {number} of {peer}, {seen} is expected");
        }
        *mark.lock().unwrap() = true;
    });
    world.run_for(Duration::from_secs(1));
    assert!(*done.lock().unwrap());
}

#[test]
fn a_lost_or_damaged_generation_file_does_not_keep_a_node_down() {
    let cluster = Cluster::new(40, &[1, 1]);
    let nodes = cluster.start_all();
    cluster.run(20);
    cluster.take();
    cluster.world.kill(&nodes[1]);
    cluster.run(30);
    cluster.expect(&[1], &[2], false);
    // The clock is back by a day, and the file says nothing: the others know better.
    cluster.world.set_clock_skew(&name(2), -86_400_000_000);
    cluster.world.client(&name(2), |rt| async move {
        rt.fs().write_atomic("/data/metadata/generation", b"?".to_vec()).await.unwrap();
    });
    cluster.run(1);
    cluster.start(2);
    cluster.run(30);
    assert!(cluster.take().contains(&(1, 0, 2, true)));
    let starts: Vec<u64> = {
        let facts = cluster.facts.lock().unwrap();
        facts.starts.iter().filter(|(n, _)| *n == 2).map(|(_, g)| *g).collect()
    };
    assert!(starts[1] < starts[0], "{starts:?}");
}

#[test]
fn every_shard_hears_how_full_the_others_are_and_a_dead_one_is_as_full_as_before() {
    use DiskUsage::{Full, NotAvailable, Stuffed};
    let cluster = Cluster::new(50, &[2, 1, 1]);
    let nodes = cluster.start_all();
    cluster.run(20);
    let told = || {
        let mut told = std::mem::take(&mut cluster.facts.lock().unwrap().disks);
        told.sort_unstable_by_key(|(n, shard, about, _)| (*n, *shard, *about));
        told
    };
    assert_eq!(told(), []);
    let say = |n, usage| {
        cluster.facts.lock().unwrap().usages.push((n, usage));
        cluster.run(5);
        told()
    };
    // A node is not notified about itself.
    let of_3 = |usage| [(1, 0, 3, usage), (1, 1, 3, usage), (2, 0, 3, usage)];
    assert_eq!(say(3, Stuffed), of_3(Stuffed));
    assert_eq!(say(3, Full), of_3(Full));
    assert_eq!(say(3, Full), []);
    nodes[2].request_stop();
    cluster.run(30);
    assert_eq!(told(), []);
    // Its next start has not looked yet.
    cluster.start(3);
    cluster.run(30);
    assert_eq!(told(), of_3(NotAvailable));
    assert_eq!(say(3, Stuffed), of_3(Stuffed));
    cluster.world.kill(&nodes[0]);
    cluster.run(30);
    assert_eq!(told(), []);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let trace = |seed| {
        let cluster = Cluster::new(seed, &[1, 2]);
        cluster.start_all();
        cluster.run(10);
        cluster.world.trace_hash()
    };
    assert_eq!(trace(7), trace(7));
    assert_ne!(trace(7), trace(8));
}
