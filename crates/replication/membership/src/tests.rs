//! Several nodes under the simulator: founding, joining, changes from everywhere under faults.
#![allow(clippy::disallowed_types, reason = "facts are shared with the world's main function")]

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cluster::{
    Address, ClusterSnapshot, LocalNode, Member, MemberState, Transformation, choose_voters,
};
use dist_testing::{PORT, host, name};
use internode::Identity;
use messaging::{Handler, Messaging, MessagingMesh, Peer, Request, Responder, Settings};
use paxos::log::Learn;
use rt::Rt;
use rt::sim::{SimNode, World, WorldOptions};
use schema::{KeyspaceParams, Schema, SchemaChange};
use stdx::{Epoch, Token, Uuid};

use super::*;

/// State shared by the nodes of a world.
#[derive(Default)]
struct Facts {
    /// The membership of each running node.
    running: BTreeMap<u8, Membership>,
    /// Keyspaces whose creation was answered with success, and the answering node.
    acknowledged: Vec<(String, u8)>,
    /// No new submissions.
    quiet: bool,
}

type SharedFacts = Rc<RefCell<Facts>>;

fn identity(n: u8, cluster_id: Option<Uuid>, incarnation: u64) -> Identity {
    let joining = cluster_id.is_none();
    Identity { cluster_id, joining, ..dist_testing::identity(n, incarnation, 1) }
}

struct Served(RefCell<Option<Membership>>);

impl Handler for Served {
    fn handle(&self, request: Request<'_>, responder: Responder) {
        if let Some(membership) = &*self.0.borrow() {
            membership.notice(request.from, request.epoch);
            membership.serve_peer(request.verb, request.payload, responder);
        }
    }
}

fn introduce(messaging: &Messaging, snapshot: &ClusterSnapshot) {
    for member in snapshot.members.values() {
        messaging.set_peer(member.host_id, Peer { address: member.storage, shard_count: 1 });
    }
    messaging.set_epoch(snapshot.epoch);
}

async fn found(rt: &Rt, n: u8, address: SocketAddr) -> log::Opened {
    let local = LocalNode {
        host_id: host(n),
        cluster_name: "Test".to_owned(),
        datacenter: "dc".to_owned(),
        rack: "r".to_owned(),
        tokens: vec![Token(i64::from(n))],
        created_at: rt.wall(),
    };
    let mut framed = Vec::new();
    Transformation::Bootstrap(local).encode_entry(Epoch(1), &mut framed);
    let own = Address { host: host(n), storage: address, rpc: address };
    Transformation::Readdress { changes: vec![own] }.encode_entry(Epoch(2), &mut framed);
    log::create(rt, "/data", &Schema::default(), &framed, Epoch(2)).await.unwrap()
}

async fn join(
    rt: &Rt,
    messaging: &Messaging,
    n: u8,
    own: SocketAddr,
    seed: SocketAddr,
) -> log::Opened {
    loop {
        let deadline = rt.now() + Duration::from_secs(5);
        let member = Member { state: MemberState::Joining, ..dist_testing::member(n, own) };
        let joined = async {
            let ack = messaging.discover(seed).await.map_err(|e| e.to_string())?;
            messaging.set_peer(ack.host_id, Peer { address: seed, shard_count: 1 });
            let request = JoinRequest {
                member: member.clone(),
                tokens: 4,
                replication_factor: 3,
                replaces: None,
            };
            let asked = ask_to_join(messaging, ack.host_id, &request, deadline).await;
            asked.map_err(|e| e.to_string())?;
            fetch_log(messaging, ack.host_id, deadline).await
        };
        match joined.await {
            Ok((framed, epoch)) => {
                return log::create(rt, "/data", &Schema::default(), &framed, epoch).await.unwrap();
            }
            Err(_) => rt.sleep(Duration::from_millis(200)).await,
        }
    }
}

async fn submit_until_done(
    rt: &Rt,
    membership: &Membership,
    facts: &SharedFacts,
    mut entry: impl FnMut(&ClusterSnapshot) -> Option<Transformation>,
) -> bool {
    loop {
        if facts.borrow().quiet {
            return false;
        }
        let snapshot = membership.snapshot();
        let Some(entry) = entry(&snapshot) else { return false };
        match membership.submit(snapshot.epoch, vec![entry]).await {
            Ok(_) => return true,
            Err(SubmitError::Conflict(_)) => {}
            Err(_) => rt.sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn node(rt: Rt, n: u8, own: SocketAddr, seed: SocketAddr, facts: SharedFacts) {
    let mesh = Arc::new(MessagingMesh::new(1));
    let incarnation = rt.random_u64();
    let opened = log::open(&rt, "/data", &Schema::default()).await;
    let opened = opened.unwrap_or_else(|e| panic!("n{n}: {e}"));
    let known = opened.snapshot.as_ref().map(|s| s.cluster_id);
    let who = identity(n, known, incarnation);
    let messaging = Messaging::new(&rt, who, Arc::new(Settings::default()), mesh);
    let served = Rc::new(Served(RefCell::new(None)));
    messaging.serve(served.clone());
    messaging.listen(SocketAddr::from(([0, 0, 0, 0], PORT))).await.unwrap();
    let opened = match opened.snapshot {
        Some(_) => opened,
        None if n == 1 => found(&rt, n, own).await,
        None => join(&rt, &messaging, n, own, seed).await,
    };
    let snapshot = Arc::new(opened.snapshot.unwrap().with_local(host(n)).unwrap());
    messaging.set_identity(identity(n, Some(snapshot.cluster_id), incarnation));
    introduce(&messaging, &snapshot);
    let meta = Arc::new(MetaMesh::new(1, 64));
    let membership = Membership::new(rt.clone(), meta, snapshot, Some((opened.log, "/data")));
    let told = messaging.clone();
    membership.on_change(move |_, after| introduce(&told, after));
    membership.attach(messaging.clone(), |_| true);
    *served.0.borrow_mut() = Some(membership.clone());
    membership.catch_up_at_start(rt.now() + Duration::from_secs(5)).await;
    facts.borrow_mut().running.insert(n, membership.clone());

    for state in [MemberState::JoinHandover, MemberState::Normal] {
        submit_until_done(&rt, &membership, &facts, |snapshot| {
            let now = snapshot.members.get(&host(n))?.state;
            let due = match state {
                MemberState::JoinHandover => now == MemberState::Joining,
                _ => now == MemberState::JoinHandover,
            };
            due.then_some(Transformation::SetState { host: host(n), state })
        })
        .await;
    }
    submit_until_done(&rt, &membership, &facts, |snapshot| {
        let hosts = choose_voters(&snapshot.members, &snapshot.voters, |_| true);
        (hosts != snapshot.voters).then_some(Transformation::SetVoters { hosts })
    })
    .await;
    let mut i = 0_u32;
    while !facts.borrow().quiet {
        i += 1;
        // Every third name is wanted by all nodes, only one of them may get it.
        let name = if i.is_multiple_of(3) {
            format!("shared_{i}")
        } else {
            format!("own_{n}_{incarnation}_{i}")
        };
        let created = submit_until_done(&rt, &membership, &facts, |snapshot| {
            if snapshot.schema.keyspace(&name).is_some() {
                return None;
            }
            let params = KeyspaceParams { durable_writes: true, replication: BTreeMap::new() };
            let change = SchemaChange::CreateKeyspace { name: name.as_str().into(), params };
            Some(Transformation::Schema(Box::new(change)))
        });
        if created.await {
            facts.borrow_mut().acknowledged.push((name, n));
        }
        rt.sleep(Duration::from_millis(rt.random_u64() % 200)).await;
    }
    rt.stop_requested().await;
}

struct Cluster {
    world: World,
    facts: SharedFacts,
    nodes: BTreeMap<u8, SimNode>,
}

impl Cluster {
    fn start(seed: u64, count: u8) -> Cluster {
        let world = World::new(seed, WorldOptions::default());
        let mut cluster = Cluster { world, facts: Rc::default(), nodes: BTreeMap::new() };
        for n in 1..=count {
            cluster.start_node(n);
        }
        cluster
    }

    fn start_node(&mut self, n: u8) {
        let address = |n: u8| SocketAddr::new(self.world.ip(&name(n)), PORT);
        let (own, seed, facts) = (address(n), address(1), self.facts.clone());
        let node = self.world.client(&name(n), move |rt| node(rt, n, own, seed, facts));
        self.nodes.insert(n, node);
    }

    fn kill(&mut self, n: u8) {
        self.facts.borrow_mut().running.remove(&n);
        if self.world.random_u64().is_multiple_of(2) {
            self.world.kill(&self.nodes[&n]);
        } else {
            self.world.power_cut(&self.nodes[&n]);
        }
    }

    fn run(&self, millis: u64) {
        self.world.run_for(Duration::from_millis(millis));
    }

    /// All nodes run and are at one epoch.
    fn settle(&self) {
        self.facts.borrow_mut().quiet = true;
        // Longer than a submission may take.
        self.run(25_000);
        let facts = self.facts.clone();
        let count = self.nodes.len();
        let agreed = move || {
            let facts = facts.borrow();
            let epochs: BTreeSet<Epoch> =
                facts.running.values().map(|m| m.snapshot().epoch).collect();
            // A node that lags notices it at the next message: let each poll the others.
            facts.running.len() == count && epochs.len() == 1
        };
        for _ in 0..100 {
            if agreed() {
                return;
            }
            let all: Vec<Membership> = self.facts.borrow().running.values().cloned().collect();
            let newest = all.iter().map(|m| m.snapshot()).max_by_key(|s| s.epoch);
            if let Some(newest) = newest {
                for m in &all {
                    m.notice(newest.local.host_id, newest.epoch);
                }
            }
            self.run(200);
        }
        let facts = self.facts.borrow();
        let epochs: Vec<(u8, Epoch)> =
            facts.running.iter().map(|(n, m)| (*n, m.snapshot().epoch)).collect();
        panic!("no agreement: {epochs:?} of {count}");
    }

    /// The payloads of a node's log.
    fn log_of(&self, n: u8) -> Vec<Vec<u8>> {
        let membership = self.facts.borrow().running[&n].clone();
        let found: Rc<RefCell<Option<Vec<Vec<u8>>>>> = Rc::default();
        let out = found.clone();
        let rt = membership.inner.rt.clone();
        let gate = rt.gate("test");
        let task = async move {
            let owner = membership.inner.owner.as_ref().unwrap();
            let mut from = Epoch(1);
            let mut all = Vec::new();
            loop {
                let learn = Learn { from, bytes_max: 1 << 20 };
                let entries = membership.entries(owner, learn).await.unwrap();
                let Some(last) = entries.entries.last() else { break };
                from = Epoch(last.number.0 + 1);
                all.extend(entries.entries.iter().map(|e| e.value.to_vec()));
            }
            *out.borrow_mut() = Some(all);
        };
        gate.spawn(&rt, rt::Group::Admin, "test", task).unwrap();
        self.world.run_until(|| found.borrow().is_some(), Duration::from_secs(60)).unwrap();
        found.take().unwrap()
    }

    /// One log everywhere; what was acknowledged is in it, once.
    fn check(&self) {
        let first = self.log_of(1);
        for n in self.nodes.keys() {
            check_logs(&first, &self.log_of(*n)).unwrap_or_else(|e| panic!("n{n}: {e}"));
        }
        check_acknowledged(&first, &self.facts.borrow().acknowledged).unwrap();
    }
}

fn check_logs(one: &[Vec<u8>], other: &[Vec<u8>]) -> Result<(), String> {
    let differs = one.iter().zip(other).position(|(a, b)| a != b);
    match differs {
        Some(i) => Err(format!("entry {} differs", i + 1)),
        None if one.len() != other.len() => {
            Err(format!("{} and {} entries", one.len(), other.len()))
        }
        None => Ok(()),
    }
}

/// INV-membership-1: what was answered is in the log.
fn check_acknowledged(log: &[Vec<u8>], acknowledged: &[(String, u8)]) -> Result<(), String> {
    let mut created: BTreeMap<String, u32> = BTreeMap::new();
    for payload in log {
        if let Ok(Transformation::Schema(change)) = Transformation::decode(payload)
            && let SchemaChange::CreateKeyspace { name, .. } = *change
        {
            *created.entry(name.to_string()).or_default() += 1;
        }
    }
    let mut told = BTreeSet::new();
    for (name, n) in acknowledged {
        if created.get(name) != Some(&1) {
            return Err(format!("{name} of n{n} is in the log {:?} times", created.get(name)));
        }
        if !told.insert(name) {
            return Err(format!("{name} was told to two as created by them"));
        }
    }
    Ok(())
}

fn voters(cluster: &Cluster) -> usize {
    cluster.facts.borrow().running[&1].snapshot().voters.len()
}

#[test]
fn three_nodes_found_a_cluster_and_have_one_log() {
    for seed in 0..10 {
        let cluster = Cluster::start(seed, 3);
        cluster.run(4000);
        cluster.settle();
        cluster.check();
        assert_eq!(voters(&cluster), 3);
        let snapshot = cluster.facts.borrow().running[&2].snapshot();
        assert!(snapshot.members.values().all(|m| m.state == MemberState::Normal));
        let created = cluster.facts.borrow().acknowledged.len();
        assert!(created > 20, "seed {seed}: only {created} changes");
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let trace = |seed| {
        let cluster = Cluster::start(seed, 3);
        cluster.run(2000);
        cluster.world.trace_hash()
    };
    assert_eq!(trace(7), trace(7));
    assert_ne!(trace(7), trace(8));
}

#[test]
fn nothing_acknowledged_is_lost_under_crashes_and_partitions() {
    for seed in 100..112 {
        let mut cluster = Cluster::start(seed, 5);
        cluster.run(3000);
        for _ in 0..8 {
            let n = 1 + (cluster.world.random_u64() % 5) as u8;
            let m = 1 + (cluster.world.random_u64() % 5) as u8;
            match cluster.world.random_u64() % 4 {
                0 | 1 => {
                    cluster.kill(n);
                    cluster.run(cluster.world.random_u64() % 1500);
                    cluster.start_node(n);
                }
                2 if n != m => {
                    cluster.world.partition(&name(n), &name(m));
                    cluster.run(cluster.world.random_u64() % 3000);
                    cluster.world.heal_all();
                }
                _ => {
                    if n != m {
                        cluster.world.clog(&name(n), &name(m));
                    }
                    cluster.run(cluster.world.random_u64() % 3000);
                    cluster.world.heal_all();
                }
            }
            cluster.run(500);
        }
        cluster.world.heal_all();
        cluster.run(8000);
        cluster.settle();
        cluster.check();
    }
}

impl Cluster {
    /// Submits a keyspace on a node; the outcome.
    fn create_keyspace(&self, n: u8) -> Result<Arc<ClusterSnapshot>, SubmitError> {
        let membership = self.facts.borrow().running[&n].clone();
        let before = membership.snapshot().epoch;
        let result: Rc<RefCell<Option<Result<_, SubmitError>>>> = Rc::default();
        let out = result.clone();
        let rt = membership.inner.rt.clone();
        let gate = rt.gate("test");
        let task = async move {
            let params = KeyspaceParams { durable_writes: true, replication: BTreeMap::new() };
            let change = SchemaChange::CreateKeyspace { name: "lonely".into(), params };
            let entry = Transformation::Schema(Box::new(change));
            *out.borrow_mut() = Some(membership.submit(before, vec![entry]).await);
        };
        gate.spawn(&rt, rt::Group::Admin, "test", task).unwrap();
        self.world.run_until(|| result.borrow().is_some(), Duration::from_secs(60)).unwrap();
        result.take().unwrap()
    }

    fn address(&self, n: u8) -> SocketAddr {
        SocketAddr::new(self.world.ip(&name(n)), PORT)
    }
}

#[test]
fn a_minority_changes_nothing_and_names_the_silent_voters() {
    let mut cluster = Cluster::start(31, 3);
    cluster.run(4000);
    cluster.settle();
    cluster.kill(2);
    cluster.kill(3);
    cluster.run(100);
    let before = cluster.facts.borrow().running[&1].snapshot().epoch;
    let mut silent = vec![cluster.address(2), cluster.address(3)];
    silent.sort_unstable();
    let refused = |cluster: &Cluster| {
        let error = cluster.create_keyspace(1).unwrap_err();
        match &error {
            SubmitError::NoMajority { required: 2, silent: named, .. } => {
                let mut named = named.clone();
                named.sort_unstable();
                assert_eq!(named, silent);
            }
            other => panic!("{other:?}"),
        }
        error
    };
    let error = refused(&cluster);
    // The round may end before this node's own vote: it is never among the silent ones.
    for _ in 0..5 {
        cluster.run(1000);
        refused(&cluster);
    }
    let text = error.to_string();
    assert!(text.contains("; nothing was changed: no answer from "), "{text}");
    assert!(silent.iter().all(|address| text.contains(&address.to_string())), "{text}");
    assert_eq!(cluster.facts.borrow().running[&1].snapshot().epoch, before);
}

#[test]
fn a_node_that_does_not_vote_passes_on_what_its_voter_says_of_the_others() {
    let mut cluster = Cluster::start(32, 4);
    cluster.run(6000);
    cluster.settle();
    let voters = cluster.facts.borrow().running[&1].snapshot().voters.clone();
    let numbers = || 1..=4_u8;
    let voting: Vec<u8> = numbers().filter(|n| voters.contains(&host(*n))).collect();
    let asking = numbers().find(|n| !voting.contains(n)).unwrap();
    assert_eq!(voting.len(), 3);
    cluster.kill(voting[1]);
    cluster.kill(voting[2]);
    cluster.run(100);
    match cluster.create_keyspace(asking) {
        Err(SubmitError::VoterCannot(text)) => {
            assert!(text.contains("a majority of the voters (2), and 1 answered"), "{text}");
            for n in [voting[1], voting[2]] {
                assert!(text.contains(&cluster.address(n).to_string()), "{text}");
            }
        }
        other => panic!("{other:?}"),
    }
    cluster.kill(voting[0]);
    cluster.run(100);
    // The connection to the voter was open: the change may have reached it. After that none is.
    match cluster.create_keyspace(asking) {
        Err(SubmitError::Unknown { received: 0, required: 2, silent }) => {
            assert_eq!(silent, [cluster.address(voting[0])]);
        }
        other => panic!("{other:?}"),
    }
    match cluster.create_keyspace(asking) {
        Err(SubmitError::NoMajority { received: 0, required: 2, silent }) => {
            assert_eq!(silent.len(), 3);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_checkers_see_a_lost_a_double_and_a_different_entry() {
    let keyspace = |name: &str| {
        let params = KeyspaceParams { durable_writes: true, replication: BTreeMap::new() };
        let change = SchemaChange::CreateKeyspace { name: name.into(), params };
        let mut payload = Vec::new();
        Transformation::Schema(Box::new(change)).encode(&mut payload);
        payload
    };
    let log = vec![keyspace("a"), keyspace("b")];
    assert!(check_acknowledged(&log, &[("a".into(), 1), ("b".into(), 2)]).is_ok());
    assert!(check_acknowledged(&log, &[("c".into(), 1)]).is_err());
    assert!(check_acknowledged(&log, &[("a".into(), 1), ("a".into(), 2)]).is_err());
    let twice = vec![keyspace("a"), keyspace("a")];
    assert!(check_acknowledged(&twice, &[("a".into(), 1)]).is_err());
    assert!(check_logs(&log, &log).is_ok());
    assert!(check_logs(&log, &log[..1]).is_err());
    assert!(check_logs(&log, &[keyspace("a"), keyspace("c")]).is_err());
}
