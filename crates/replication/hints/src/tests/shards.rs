//! Nodes with several shards.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use codec::murmur::token_of;
use data::MutationRef;
use internode::Hint;
use messaging::{Handler, Messaging, MessagingMesh, Peer, Request, Responder, Settings};
use rt::sim::{World, WorldOptions};
use rt::{Main, NodeSpec, Rt, ShardId};
use stdx::ShardMap;

use super::harness::{PORT, host, mutation, settings, snapshot};
use crate::*;

/// A hint that arrived: its number, the shard that got it, the shard that owns it.
type Arrived = (u64, ShardId, ShardId);

struct Receiver(Rt, Sender<Arrived>);

impl Handler for Receiver {
    fn handle(&self, request: Request<'_>, responder: Responder) {
        let hint = Hint::decode(request.payload).unwrap();
        let mutation = MutationRef::open(hint.bytes).unwrap();
        let map = ShardMap::ByTokenHash { shards: self.0.shard_count() };
        let owner = map.shard_of(mutation.table, token_of(mutation.key));
        self.1.send((mutation.schema_version, self.0.shard(), owner)).unwrap();
        responder.respond(|_| {});
    }
}

fn messaging_of(rt: &Rt, n: u8, mesh: Arc<MessagingMesh>) -> Messaging {
    let identity = dist_testing::identity(n, 1, rt.shard_count());
    Messaging::new(rt, identity, Arc::new(Settings::default()), mesh)
}

fn receiver(shards: u16, peer: SocketAddr, arrived: Sender<Arrived>) -> Main {
    let mesh = Arc::new(MessagingMesh::new(shards));
    Arc::new(move |rt: Rt| {
        let (mesh, arrived) = (mesh.clone(), arrived.clone());
        Box::pin(async move {
            let messaging = messaging_of(&rt, 2, mesh);
            messaging.set_peer(host(1), Peer { address: peer, shard_count: 1 });
            messaging.serve(Rc::new(Receiver(rt.clone(), arrived)));
            if rt.shard() == ShardId(0) {
                messaging.listen(SocketAddr::from(([0, 0, 0, 0], PORT))).await.unwrap();
            }
            rt.stop_requested().await;
        })
    })
}

/// Every shard keeps 20 hints for n2, delivers them, and ends when it has none left.
fn keeper(shards: u16, peer: SocketAddr) -> Main {
    let mesh = Arc::new(MessagingMesh::new(shards));
    Arc::new(move |rt: Rt| {
        let mesh = mesh.clone();
        Box::pin(async move {
            let messaging = messaging_of(&rt, 1, mesh);
            messaging.set_peer(host(2), Peer { address: peer, shard_count: 4 });
            let seen = Rc::new(RefCell::new(Arc::new(snapshot(&[1, 2]))));
            let parts = HintsParts { messaging, snapshot: Rc::new(move || seen.borrow().clone()) };
            let hints = Hints::open(&rt, parts, settings()).await.unwrap();
            for i in 0..20 {
                let number = u64::from(rt.shard().0) * 100 + i;
                assert!(hints.store(host(2), &mutation(i as u8, number), rt.wall()));
            }
            hints.flush().await.unwrap();
            hints.set_up(host(2));
            while !hints.pending().is_empty() {
                rt.sleep(Duration::from_millis(100)).await;
            }
        })
    })
}

#[test]
fn every_shard_delivers_its_hints_to_the_shards_that_own_them() {
    let world = World::new(1, WorldOptions::default());
    let (sender, arrived) = channel();
    let spec =
        |n: u8, shards| NodeSpec { name: format!("n{n}"), shards, work_dir: format!("/n{n}") };
    let address = |name| SocketAddr::new(world.ip(name), PORT);
    world.start_node(spec(2, 4), receiver(4, address("n1"), sender));
    let node = world.start_node(spec(1, 2), keeper(2, address("n2")));
    world.run_until(|| !world.is_alive(&node), Duration::from_secs(600)).unwrap();
    let mut all: Vec<Arrived> = arrived.try_iter().collect();
    all.sort();
    let numbers: Vec<u64> = all.iter().map(|a| a.0).collect();
    assert_eq!(numbers, (0..20).chain(100..120).collect::<Vec<u64>>());
    assert!(all.iter().all(|(_, shard, owner)| shard == owner), "{all:?}");
    let mut used: Vec<ShardId> = all.iter().map(|a| a.1).collect();
    used.sort();
    used.dedup();
    assert_eq!(used.len(), 4);
    let left = world.disk("n1").list().iter().filter(|f| f.contains("hints-")).count();
    assert_eq!(left, 0);
}
