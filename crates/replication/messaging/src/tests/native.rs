//! The same code on real sockets.

use super::harness::{NOW, host, identity, millis, payload, settings};
use crate::*;
use internode::Verb;
use rt::{Machine, Main, NativeOptions, NodeSpec, Rt, ShardId};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

struct Copies;

impl Handler for Copies {
    fn handle(&self, request: Request<'_>, responder: Responder) {
        responder.respond(|out| out.extend_from_slice(request.payload));
    }
}

/// Two nodes' messaging on one shard, over loopback.
async fn talk(rt: Rt) {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let node = |n: u8| {
        let mesh = Arc::new(MessagingMesh::new(1));
        let messaging = Messaging::new(&rt, identity(n), Arc::new(settings()), mesh);
        messaging.serve(Rc::new(Copies));
        messaging
    };
    let (one, two) = (node(1), node(2));
    let peer = |address| Peer { address, shard_count: 1 };
    one.set_peer(host(2), peer(two.listen(any).await.unwrap()));
    two.set_peer(host(1), peer(one.listen(any).await.unwrap()));
    let to = |n: u8| Outgoing {
        host: host(n),
        shard: ShardId(0),
        verb: Verb::Mutation,
        deadline: rt.now() + millis(20_000),
        trace: None,
    };
    // Many at once, and one that is larger than any socket buffer, both ways.
    let mut sent = Vec::new();
    for token in 0..500u64 {
        let bytes = payload(token, NOW, (token as usize * 37) % 3000);
        sent.push((one.request(&to(2), |o| o.extend_from_slice(&bytes)), bytes));
    }
    let large = payload(9, NOW, 20 << 20);
    sent.push((two.request(&to(1), |o| o.extend_from_slice(&large)), large));
    for (future, bytes) in sent {
        assert!(future.await.unwrap().payload == bytes);
    }
    // A peer that is gone.
    two.stop(millis(100)).await;
    let error = one.request(&to(2), |_| {}).await.unwrap_err();
    assert!(
        matches!(error, MessagingError::Unreachable { .. } | MessagingError::Lost { .. }),
        "{error:?}"
    );
    one.stop(millis(100)).await;
}

#[test]
fn two_nodes_talk_over_loopback() {
    let machine = Machine::native(NativeOptions { cpuset: None, io: rt::IoBackend::Threads });
    let main: Main = Arc::new(|rt| {
        Box::pin(async move {
            talk(rt.clone()).await;
            rt.request_stop();
        })
    });
    let spec = NodeSpec { name: "talk".to_owned(), shards: 1, work_dir: String::new() };
    machine.start(spec, main).join().unwrap();
}
