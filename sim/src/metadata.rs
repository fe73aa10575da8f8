//! Schema changes while the n-th call that changes the disk fails, for every n: after a restart
//! every acknowledged table exists, and the node starts.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use conf::Options;
use rt::Rt;
use rt::sim::{World, WorldOptions};
use stdx::IoErrorKind;

use crate::client::Answer;
use crate::durability::{NODE, connect, start};

const TABLES: usize = 3;

/// Results of the client.
#[derive(Default)]
struct Done {
    is_connected: bool,
    acknowledged: Vec<usize>,
    errors: Vec<String>,
    is_through: bool,
}

async fn change(rt: Rt, address: SocketAddr, done: Rc<RefCell<Done>>) {
    let mut client = connect(&rt, address).await;
    let keyspace = "CREATE KEYSPACE ks WITH replication = \
                    {'class': 'SimpleStrategy', 'replication_factor': 1}";
    assert_eq!(client.query(keyspace).await, Ok(Answer::Done));
    done.borrow_mut().is_connected = true;
    rt.sleep(Duration::from_millis(200)).await;
    for i in 0..TABLES {
        match client.query(&format!("CREATE TABLE ks.t{i} (k int PRIMARY KEY)")).await {
            Ok(Answer::Done) => done.borrow_mut().acknowledged.push(i),
            Ok(Answer::Error(_, message)) => done.borrow_mut().errors.push(message),
            Ok(other) => panic!("CREATE answered by {other:?}"),
            Err(_) => break,
        }
    }
    done.borrow_mut().is_through = true;
}

async fn look(rt: Rt, address: SocketAddr, found: Rc<RefCell<Option<Vec<usize>>>>) {
    let mut client = connect(&rt, address).await;
    let mut there = Vec::new();
    for i in 0..TABLES {
        match client.query(&format!("INSERT INTO ks.t{i} (k) VALUES (1)")).await {
            Ok(Answer::Done) => there.push(i),
            Ok(Answer::Error(_, message)) => {
                assert!(message.contains("does not exist"), "{message}");
            }
            other => panic!("INSERT answered by {other:?}"),
        }
    }
    *found.borrow_mut() = Some(there);
}

fn fail_everywhere(kind: IoErrorKind) {
    let mut options = Options { workdir: "/data".to_owned(), smp: Some(2), ..Options::default() };
    options.start_native_transport = true;
    options.native_shard_aware_transport_port = 0;
    options.rpc_address = conf::Address::Ip([0, 0, 0, 0].into());
    options.broadcast_rpc_address = Some(conf::Address::Ip([127, 0, 0, 1].into()));
    let (mut n, mut failed) = (1, 0);
    loop {
        let world = World::new(n, WorldOptions::default());
        let address = SocketAddr::new(world.ip(NODE), options.native_transport_port);
        let (node, _) = start(&world, &options);
        let done: Rc<RefCell<Done>> = Rc::default();
        let state = done.clone();
        world.client("changer", |rt| change(rt, address, state));
        let limit = Duration::from_secs(60);
        world.run_until(|| done.borrow().is_connected, limit).unwrap();
        world.disk(NODE).fail_nth_change(n, kind);
        world.run_until(|| done.borrow().is_through, limit).unwrap();
        let came_through = world.disk(NODE).pending_failures() > 0;
        world.disk(NODE).clear_faults();
        world.kill(&node);
        let (_node, outcome) = start(&world, &options);
        let found: Rc<RefCell<Option<Vec<usize>>>> = Rc::default();
        let result = found.clone();
        world.client("looker", |rt| look(rt, address, result));
        let looked = world.run_until(|| found.borrow().is_some(), limit);
        assert!(looked.is_ok(), "{kind:?} at call {n}: {looked:?} {outcome:?}");
        let there = found.borrow_mut().take().unwrap();
        let state = done.borrow();
        for table in &state.acknowledged {
            assert!(there.contains(table), "{kind:?} at call {n}: table {table} is gone");
        }
        failed += usize::from(!state.errors.is_empty());
        if came_through {
            assert_eq!(state.acknowledged.len(), TABLES);
            break;
        }
        n += 1;
    }
    assert!(failed > 3, "{failed} of {n} faults were noticed");
}

#[test]
fn a_fault_at_every_call_of_schema_changes_loses_no_acknowledged_table() {
    fail_everywhere(IoErrorKind::Device);
    fail_everywhere(IoErrorKind::NoSpace);
}
