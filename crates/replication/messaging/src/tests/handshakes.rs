//! Admission of connections, from one end to the other.

use super::harness::*;
use super::ledger::{End, SharedLedger};
use crate::*;
use internode::{Identity, Refusal, RefusalCode, Verb};
use rt::sim::World;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use stdx::Uuid;

fn refusal(w: &World, one: Identity, two: Identity, known_by_two: &[u8]) -> (RefusalCode, String) {
    let ledger = SharedLedger::default();
    let one = start(w, one, &[2], settings(), |rt| Echo::new(rt, &ledger));
    let _two = start(w, two, known_by_two, settings(), |rt| Echo::new(rt, &ledger));
    w.run_for(millis(10));
    let error = one.run(w, |rt, messaging| async move {
        messaging.request(&outgoing(&rt, 2, Verb::Read, 900), |_| {}).await.unwrap_err()
    });
    match error {
        MessagingError::Refused { host: from, code, message } => {
            assert_eq!(from, host(2));
            (code, message.to_string())
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn refusals_reach_the_caller_with_what_to_do() {
    let w = || world(1);
    let prod = Identity { cluster_name: "Prod".to_owned(), ..identity(1) };
    let (code, message) = refusal(&w(), prod, identity(2), &[1]);
    assert_eq!(code, RefusalCode::WrongCluster);
    assert!(message.contains("you come from \"Prod\": set cluster_name"), "{message}");
    let other = Identity { cluster_id: Some(Uuid::from_bytes([9; 16])), ..identity(1) };
    assert_eq!(refusal(&w(), other, identity(2), &[1]).0, RefusalCode::WrongCluster);
    let newer = internode::VersionRange { min: 9, max: 9 };
    let upgraded = Identity { versions: newer, ..identity(1) };
    assert_eq!(refusal(&w(), upgraded, identity(2), &[1]).0, RefusalCode::NoCommonVersion);
    assert_eq!(refusal(&w(), identity(1), identity(2), &[]).0, RefusalCode::UnknownHost);
}

#[test]
fn two_nodes_with_one_host_id_refuse_each_other() {
    let w = world(2);
    let ledger = SharedLedger::default();
    let two = start(&w, identity(2), &[1], settings(), |rt| Echo::new(rt, &ledger));
    // A copy of node 2 on another machine, which knows where the original lives.
    let copied = Identity { incarnation: 5, ..identity(2) };
    let at = address(&w, 2);
    let found = Rc::new(std::cell::RefCell::new(None));
    let out = found.clone();
    w.client("copy", move |rt| async move {
        let mesh = std::sync::Arc::new(MessagingMesh::new(1));
        let messaging = Messaging::new(&rt, copied, std::sync::Arc::new(settings()), mesh);
        let answer = messaging.discover(at).await;
        messaging.set_identity(Identity { incarnation: 1, ..identity(2) });
        let itself = messaging.discover(at).await;
        *out.borrow_mut() = Some((answer, itself));
        messaging.stop(millis(10)).await;
    });
    w.run_for(millis(200));
    let (copy, itself) = found.take().unwrap();
    match copy {
        Err(OpenError::Refused { code: RefusalCode::DuplicateHostId, message }) => {
            assert!(message.contains("the data directory was copied"), "{message}");
        }
        other => panic!("{other:?}"),
    }
    // Its own address among the seeds is no such case.
    assert!(matches!(itself, Err(OpenError::Refused { code: RefusalCode::Yourself, .. })));
    assert_eq!(two.counter("internode_refused_connections_total"), 2);
}

#[test]
fn the_membership_can_refuse_more() {
    let w = world(3);
    let (one, two, _) = pair(&w, settings());
    two.messaging
        .hooks()
        .set_admission(Rc::new(|hello, _| Err(Refusal::DuplicateHostId(hello.from))));
    let error = one.run(&w, |rt, messaging| async move {
        messaging.request(&outgoing(&rt, 2, Verb::Read, 900), |_| {}).await.unwrap_err()
    });
    let duplicate = RefusalCode::DuplicateHostId;
    assert!(
        matches!(error, MessagingError::Refused { code, .. } if code == duplicate),
        "{error:?}"
    );
}

#[test]
fn two_nodes_that_swapped_addresses_are_told_apart_and_found_again() {
    let w = world(4);
    let ledger = SharedLedger::default();
    let one = start(&w, identity(1), &[2, 3], settings(), |rt| Echo::new(rt, &ledger));
    // Node 3's machine runs what was node 2, and the other way round.
    let swapped = |machine: u8, n: u8| {
        let ledger = ledger.clone();
        w.client(&name(machine), move |rt| async move {
            let mesh = std::sync::Arc::new(MessagingMesh::new(1));
            let settings = std::sync::Arc::new(settings());
            let messaging = Messaging::new(&rt, identity(n), settings, mesh);
            let address = std::net::SocketAddr::from(([10, 0, 0, 1], PORT));
            messaging.set_peer(host(1), Peer { address, shard_count: 1 });
            messaging.serve(Echo::new(&rt, &ledger));
            let any = std::net::SocketAddr::from(([0, 0, 0, 0], PORT));
            messaging.listen(any).await.unwrap();
            rt.stop_requested().await;
        })
    };
    let _nodes = (swapped(3, 2), swapped(2, 3));
    w.run_for(millis(10));
    let ask = |w: &World| {
        one.run(w, |rt, messaging| async move {
            let write = |out: &mut Vec<u8>| out.extend_from_slice(&payload(7, NOW, 0));
            messaging.request(&outgoing(&rt, 2, Verb::Read, 900), write).await
        })
    };
    let error = ask(&w).unwrap_err();
    let wrong = RefusalCode::WrongHost;
    assert!(matches!(error, MessagingError::Refused { code, .. } if code == wrong), "{error:?}");
    one.messaging.set_peer(host(2), Peer { address: address(&w, 3), shard_count: 1 });
    one.messaging.set_peer(host(3), Peer { address: address(&w, 2), shard_count: 1 });
    // Without waiting for the end of the pause: another address is another matter.
    assert_eq!(ask(&w).unwrap().payload, payload(7, NOW, 0));
}

#[test]
fn a_new_address_and_a_removal_drop_the_connections() {
    let w = world(5);
    let (one, two, ledger) = pair(&w, settings());
    let (_, client) = recorder(&one, &ledger);
    let to = |ms| outgoing(&one.rt, 2, Verb::Read, ms);
    send(&client, &ledger, 1, &to(5000), &payload(1, NEVER, 0));
    w.run_for(millis(50));
    let elsewhere = std::net::SocketAddr::new(w.ip("nowhere"), PORT);
    one.messaging.set_peer(host(2), Peer { address: elsewhere, shard_count: 1 });
    w.run_for(millis(50));
    let lost = End::Error(MessagingError::Lost { maybe_delivered: true });
    assert_eq!(ledger.borrow().0[&1].ends[0].1, lost);
    assert_eq!(two.messaging.peer_stats()[0].inbounds, 0);
    one.messaging.set_peer(host(2), Peer { address: address(&w, 2), shard_count: 1 });
    send(&client, &ledger, 2, &to(5000), &payload(2, NEVER, 0));
    w.run_for(millis(50));
    assert_eq!(two.messaging.peer_stats()[0].inbounds, 1);
    two.messaging.remove_peer(host(1));
    w.run_for(millis(50));
    assert_eq!(ledger.borrow().0[&2].ends[0].1, lost, "the removed node is cut off");
    w.run_for(millis(500));
    send(&client, &ledger, 3, &to(900), &payload(3, NOW, 0));
    w.run_for(millis(100));
    let end = ledger.borrow().0[&3].ends[0].1.clone();
    let unknown = RefusalCode::UnknownHost;
    let refused =
        |e: &MessagingError| matches!(e, MessagingError::Refused { code, .. } if *code == unknown);
    assert!(matches!(&end, End::Error(e) if refused(e)), "{end:?}");
}

#[test]
fn a_joining_node_finds_out_who_is_there_and_may_ask_only_what_joining_takes() {
    let w = world(6);
    let ledger = SharedLedger::default();
    let joining = Identity { joining: true, cluster_id: None, ..identity(1) };
    let one = start(&w, joining, &[], settings(), |rt| Echo::new(rt, &ledger));
    let two = start(&w, identity(2), &[], settings(), |rt| Echo::new(rt, &ledger));
    let at = address(&w, 2);
    w.run_for(millis(10));
    one.run(&w, move |rt, messaging| async move {
        let found = messaging.discover(at).await.unwrap();
        assert_eq!((found.host_id, found.cluster_id), (host(2), identity(2).cluster_id));
        messaging.set_peer(found.host_id, Peer { address: at, shard_count: found.shard_count });
        let ask = |verb| {
            let write = |out: &mut Vec<u8>| out.extend_from_slice(&payload(7, NOW, 0));
            messaging.request(&outgoing(&rt, 2, verb, 900), write)
        };
        assert!(ask(Verb::MetaSubmit).await.is_ok());
        assert!(ask(Verb::GossipSyn).await.is_ok());
        let error = ask(Verb::Mutation).await.unwrap_err();
        assert!(matches!(error, MessagingError::Remote(internode::ErrorReply::Invalid(_))));
        // A member now: the connection is reopened, without the limits.
        messaging.set_identity(identity(1));
        let error = ask(Verb::Mutation).await.unwrap_err();
        assert!(matches!(error, MessagingError::Refused { .. }), "unknown there: {error:?}");
    });
    two.messaging.set_peer(host(1), Peer { address: address(&w, 1), shard_count: 1 });
    w.run_for(millis(500));
    one.run(&w, |rt, messaging| async move {
        let write = |out: &mut Vec<u8>| out.extend_from_slice(&payload(7, NOW, 0));
        messaging.request(&outgoing(&rt, 2, Verb::Mutation, 900), write).await.unwrap();
    });
    let nobody = one.run(&w, |_, messaging| async move {
        messaging.discover(std::net::SocketAddr::from(([10, 0, 9, 9], 1))).await
    });
    assert!(matches!(nobody, Err(OpenError::Timeout)), "{nobody:?}");
}

#[test]
fn who_asks_is_told_when_another_process_has_its_host_id() {
    let w = world(77);
    let ledger = SharedLedger::default();
    let asked = start(&w, identity(1), &[2], settings(), |rt| Echo::new(rt, &ledger));
    let first = start(&w, identity(2), &[1], settings(), |rt| Echo::new(rt, &ledger));
    // It has a connection, which it keeps alive.
    first.run(&w, |rt, messaging| async move {
        let write = |out: &mut Vec<u8>| out.extend_from_slice(&payload(7, NOW, 0));
        messaging.request(&outgoing(&rt, 1, Verb::Mutation, 900), write).await.unwrap();
    });
    w.run_for(millis(3000));
    // A copy of its directory was started on another machine.
    let address = address(&w, 1);
    let copy = |name: &str, incarnation| {
        let found: Rc<RefCell<Option<Result<internode::HelloAck, OpenError>>>> = Rc::default();
        let out = found.clone();
        let identity = Identity { incarnation, ..identity(2) };
        w.client(name, move |rt| async move {
            let mesh = Arc::new(MessagingMesh::new(1));
            let messaging = Messaging::new(&rt, identity, Arc::new(settings()), mesh);
            *out.borrow_mut() = Some(messaging.discover(address).await);
        });
        w.run_until(|| found.borrow().is_some(), millis(10_000)).unwrap();
        found.take().unwrap()
    };
    let refused = copy("copy", 2);
    let code = RefusalCode::DuplicateHostId;
    assert!(matches!(refused, Err(OpenError::Refused { code: c, .. }) if c == code), "{refused:?}");
    assert!(copy("itself", 1).is_ok(), "the same process asks");
    // It is gone: a later start is welcome.
    w.kill(&first.node);
    w.run_for(millis(3000));
    assert!(copy("later", 3).is_ok());
    drop(asked);
}
