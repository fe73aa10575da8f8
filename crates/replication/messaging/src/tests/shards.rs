//! Nodes with several shards, also unlike numbers of them.

use super::harness::{host, millis, settings};
use crate::*;
use internode::{Identity, Verb};
use rt::sim::World;
use rt::{Main, NodeSpec, Rt, ShardId};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

/// Answers with its shard's number.
struct TellsShard(Rt);

impl Handler for TellsShard {
    fn handle(&self, request: Request<'_>, responder: Responder) {
        let mine = self.0.shard().0;
        responder.respond(|out| {
            out.extend_from_slice(&mine.to_be_bytes());
            out.extend_from_slice(&request.from_shard.0.to_be_bytes());
        });
    }
}

type Told = (u16, u16, Result<Vec<u8>, String>);

/// A node whose shards each ask every shard number up to `ask` of the other node, and tell.
fn main_of(n: u8, shards: u16, other: (u8, IpAddr), ask: u16, told: Sender<Told>) -> Main {
    let mesh = Arc::new(MessagingMesh::new(shards));
    let settings = Arc::new(settings());
    Arc::new(move |rt: Rt| {
        let (mesh, settings, told) = (mesh.clone(), settings.clone(), told.clone());
        Box::pin(async move {
            let identity = Identity { shard_count: shards, ..super::harness::identity(n) };
            let messaging = Messaging::new(&rt, identity, settings, mesh);
            let address = SocketAddr::new(other.1, 7000);
            messaging.set_peer(host(other.0), Peer { address, shard_count: 1 });
            messaging.serve(Rc::new(TellsShard(rt.clone())));
            if rt.shard() == ShardId(0) {
                messaging.listen(SocketAddr::from(([0, 0, 0, 0], 7000))).await.unwrap();
            }
            rt.sleep(millis(20)).await;
            for shard in 0..ask {
                let to = Outgoing {
                    host: host(other.0),
                    shard: ShardId(shard),
                    verb: Verb::Read,
                    deadline: rt.now() + millis(2000),
                    trace: None,
                };
                let answer = messaging.request(&to, |_| {}).await;
                let answer = answer.map(|r| r.payload).map_err(|e| e.to_string());
                told.send((rt.shard().0, shard, answer)).unwrap();
            }
            if ask > 0 {
                let known = messaging.peer(host(other.0)).unwrap().shard_count;
                told.send((rt.shard().0, u16::MAX, Ok(known.to_be_bytes().to_vec()))).unwrap();
            }
            rt.stop_requested().await;
            messaging.stop(millis(500)).await;
        })
    })
}

#[test]
fn every_shard_reaches_every_shard_of_a_node_with_another_number_of_them() {
    for seed in 0..5 {
        let w = World::new(seed, rt::sim::WorldOptions::default());
        let (sender, told) = channel();
        let (quiet, _kept) = channel();
        let spec = |n: u8, shards| NodeSpec {
            name: format!("n{n}"),
            shards,
            work_dir: "/data".to_owned(),
        };
        // The asking side believes in six shards, there are four: numbers beyond are wrapped.
        let asking = main_of(1, 2, (2, w.ip("n2")), 6, sender);
        let asked = main_of(2, 4, (1, w.ip("n1")), 0, quiet);
        let nodes = [w.start_node(spec(2, 4), asked), w.start_node(spec(1, 2), asking)];
        w.run_for(Duration::from_secs(2));
        let all: Vec<Told> = told.try_iter().collect();
        assert_eq!(all.len(), 2 * 7, "seed {seed}: {all:?}");
        for (from, shard, answer) in all {
            let answer = answer.unwrap();
            if shard == u16::MAX {
                assert_eq!(answer, 4u16.to_be_bytes(), "learned from the handshake");
                continue;
            }
            let expected = [(shard % 4).to_be_bytes(), from.to_be_bytes()].concat();
            assert_eq!(answer, expected, "seed {seed}, shard {shard}");
        }
        for node in &nodes {
            node.request_stop();
        }
        w.run_for(Duration::from_secs(2));
        assert!(nodes.iter().all(|n| !w.is_alive(n)), "seed {seed}: all shards ended");
    }
}
