//! Machines without power, unassigned addresses, links that are slow, lossy or thin, paused nodes.

use super::*;
use crate::sim::{LinkOptions, SimNode};
use crate::{Conn, Group, ListenOptions, Mesh, MovedConn};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use stdx::{Instant, IoErrorKind, ShardId};

fn world(seed: u64) -> World {
    World::new(seed, WorldOptions::default())
}

async fn echo(rt: Rt) {
    let any = "0.0.0.0:7000".parse().unwrap();
    let listener = rt.listen(any, ListenOptions::default()).await.unwrap();
    let conns = rt.gate("conns");
    while let Ok(conn) = listener.accept().await {
        let serve = async move {
            let mut buf = Vec::new();
            while conn.read(&mut buf, 1 << 16).await.is_ok_and(|n| n > 0) {
                if conn.write_all(&buf).await.is_err() {
                    return;
                }
                buf.clear();
            }
        };
        conns.spawn(&rt, Group::Statement, "conn", serve).unwrap();
    }
}

/// A machine that echoes on port 7000.
fn start_echo(w: &World, name: &str) -> (SimNode, SocketAddr) {
    let main: Main = Arc::new(|rt| Box::pin(echo(rt)));
    let spec = NodeSpec { name: name.to_string(), shards: 1, work_dir: "/data".to_string() };
    let node = w.start_node(spec, main);
    w.run_for(Duration::from_millis(1));
    (node, SocketAddr::new(w.ip(name), 7000))
}

/// Sends and gets it back.
async fn exchange(conn: &Conn, bytes: &[u8]) -> Result<(), IoErrorKind> {
    conn.write_all(bytes).await.map_err(|e| e.kind)?;
    let mut got = Vec::new();
    while got.len() < bytes.len() {
        if conn.read(&mut got, 1 << 16).await.map_err(|e| e.kind)? == 0 {
            return Err(IoErrorKind::Disconnected);
        }
    }
    assert_eq!(got, bytes);
    Ok(())
}

/// Events of one client, with their times.
type Seen = Rc<RefCell<Vec<(String, Instant)>>>;

/// Two connections to `n1`: one waits for bytes, one sends a byte each second. Tells how both end.
fn watch(w: &World, address: SocketAddr) -> [Seen; 2] {
    let seen: [Seen; 2] = Default::default();
    for (i, seen) in seen.clone().into_iter().enumerate() {
        w.client(&format!("c{i}"), move |rt| async move {
            let conn = rt.connect(address).await.unwrap();
            exchange(&conn, b"warm").await.unwrap();
            let end = loop {
                if i == 1 {
                    rt.sleep(Duration::from_secs(1)).await;
                    if let Err(error) = conn.write_all(b"x").await {
                        break format!("{:?}", error.kind);
                    }
                }
                let until = rt.now() + Duration::from_secs(if i == 0 { 3600 } else { 1 });
                match rt.timeout(until, conn.read(&mut Vec::new(), 10)).await {
                    Ok(Ok(0)) => break "end".to_string(),
                    Ok(Err(error)) => break format!("{:?}", error.kind),
                    Ok(Ok(_)) | Err(_) => {}
                }
            };
            seen.borrow_mut().push((end, rt.now()));
        });
    }
    w.run_for(Duration::from_secs(3));
    seen
}

fn only(seen: &Seen) -> Option<(String, Instant)> {
    let seen = seen.borrow();
    assert!(seen.len() < 2);
    seen.first().cloned()
}

#[test]
fn a_killed_process_ends_its_connections_at_once() {
    let w = world(2);
    let (node, address) = start_echo(&w, "n1");
    let [reader, writer] = watch(&w, address);
    w.kill(&node);
    w.run_for(Duration::from_secs(2));
    assert_eq!(only(&reader).unwrap().0, "end");
    assert!(only(&writer).is_some());
}

#[test]
fn a_machine_without_power_answers_nothing_and_resets_what_it_forgot_when_it_runs_again() {
    for seed in 0..5 {
        let w = world(seed);
        let (node, address) = start_echo(&w, "n1");
        let [reader, writer] = watch(&w, address);
        let cut_at = w.now();
        w.power_cut(&node);
        w.run_for(Duration::from_secs(5));
        assert_eq!((only(&reader), only(&writer)), (None, None), "silence");
        w.run_for(Duration::from_secs(60));
        assert_eq!(only(&reader), None, "who only reads never learns");
        let (how, when) = only(&writer).unwrap();
        assert_eq!(how, "Disconnected");
        assert!(when - cut_at >= Duration::from_secs(10), "{when:?}");

        let w = world(seed);
        let (node, address) = start_echo(&w, "n1");
        let [reader, writer] = watch(&w, address);
        w.power_cut(&node);
        w.run_for(Duration::from_secs(4));
        start_echo(&w, "n1");
        w.run_for(Duration::from_secs(3));
        assert_eq!(only(&writer).unwrap().0, "Disconnected", "reset");
        assert_eq!(only(&reader), None);
    }
}

#[test]
fn who_connects_waits_for_power_and_for_an_owner_of_the_address_and_is_refused_by_a_live_machine() {
    let w = world(3);
    let nobody = SocketAddr::from(([10, 0, 99, 99], 7000));
    in_world(&w, "c", move |rt| async move {
        let in_a_minute = rt.now() + Duration::from_secs(60);
        assert!(rt.timeout(in_a_minute, rt.connect(nobody)).await.is_err());
        let before = rt.now();
        let error = rt.connect(nobody).await.map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("connection timed out"), "{error}");
        assert_eq!((rt.now() - before).as_secs(), 127);
    });
    let (node, address) = start_echo(&w, "n1");
    w.power_cut(&node);
    let later = SocketAddr::new(w.ip("later"), 7000);
    let connected: Rc<Cell<u32>> = Rc::default();
    for (name, to) in [("c1", address), ("c2", later)] {
        let connected = Rc::clone(&connected);
        w.client(name, move |rt| async move {
            exchange(&rt.connect(to).await.unwrap(), b"hello").await.unwrap();
            connected.set(connected.get() + 1);
        });
    }
    w.run_for(Duration::from_secs(60));
    assert_eq!(connected.get(), 0);
    let (node, _) = start_echo(&w, "n1");
    let _later = start_echo(&w, "later");
    // The machines run before their processes listen: refused is right too, but not seen here.
    w.run_for(Duration::from_secs(1));
    assert_eq!(connected.get(), 2);
    // The process is gone, the machine runs: refused.
    w.kill(&node);
    in_world(&w, "c3", move |rt| async move {
        let before = rt.now();
        let error = rt.connect(address).await.map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("connection refused"), "{error}");
        assert!(rt.now() - before < Duration::from_secs(1));
    });
}

#[test]
fn a_long_partition_ends_connections_over_which_something_was_sent() {
    for back in [false, true] {
        let w = world(4);
        let (_node, address) = start_echo(&w, "n1");
        let inside = w.clone();
        in_world(&w, "c", move |rt| async move {
            let conn = rt.connect(address).await.unwrap();
            let idle = rt.connect(address).await.unwrap();
            exchange(&conn, b"warm").await.unwrap();
            // One direction is enough: without acknowledgements the sender aborts too.
            match back {
                true => inside.clog("n1", "c"),
                false => inside.clog("c", "n1"),
            }
            let before = rt.now();
            assert_eq!(exchange(&conn, b"lost").await, Err(IoErrorKind::Disconnected));
            assert!((10..12).contains(&(rt.now() - before).as_secs()));
            inside.heal("n1", "c");
            assert_eq!(exchange(&conn, b"x").await, Err(IoErrorKind::Disconnected));
            exchange(&idle, b"never used in the partition").await.unwrap();
        });
    }
}

#[test]
fn what_was_written_before_a_close_arrives_after_a_partition() {
    let w = world(5);
    let got: Rc<RefCell<Option<Vec<u8>>>> = Rc::default();
    let (result, address) = (Rc::clone(&got), SocketAddr::new(w.ip("s"), 7000));
    w.client("s", |rt| async move {
        let any = "0.0.0.0:7000".parse().unwrap();
        let conn = rt.listen(any, ListenOptions::default()).await.unwrap().accept().await.unwrap();
        let mut bytes = Vec::new();
        while conn.read(&mut bytes, 100).await.unwrap() > 0 {}
        *result.borrow_mut() = Some(bytes);
        std::future::pending::<()>().await;
    });
    let inside = w.clone();
    in_world(&w, "c", move |rt| async move {
        let conn = rt.connect(address).await.unwrap();
        inside.partition("c", "s");
        conn.write_all(b"last words").await.unwrap();
    });
    w.run_for(Duration::from_secs(5));
    assert_eq!(*got.borrow(), None);
    w.heal_all();
    w.run_for(Duration::from_secs(1));
    assert_eq!(got.take().unwrap(), b"last words");
}

/// Time of 100 exchanges of 1,000 bytes over a link of that kind.
fn timed(seed: u64, link: LinkOptions) -> Duration {
    let w = world(seed);
    let (_node, address) = start_echo(&w, "n1");
    w.set_link("c", "n1", link);
    let took: Rc<Cell<Duration>> = Rc::default();
    let out = Rc::clone(&took);
    in_world(&w, "c", move |rt| async move {
        let conn = rt.connect(address).await.unwrap();
        let before = rt.now();
        for n in 0..100u8 {
            exchange(&conn, &[n; 1000]).await.unwrap();
        }
        out.set(rt.now() - before);
    });
    took.get()
}

#[test]
fn links_are_slow_lossy_or_thin_and_nothing_is_lost_or_reordered() {
    for seed in 0..3 {
        let plain = timed(seed, LinkOptions::default());
        assert!(plain < Duration::from_millis(400), "{plain:?}");
        let jitter = Some(0..40_000);
        let slow = timed(seed, LinkOptions { latency_micros: jitter, ..LinkOptions::default() });
        assert!((1..4).contains(&slow.as_secs()), "{slow:?}");
        // A tenth is lost once and costs 200 ms, and so on.
        let lossy = LinkOptions { losses_per_million: 100_000, ..LinkOptions::default() };
        let lossy = timed(seed, lossy);
        assert!((800..8_000).contains(&lossy.as_millis()), "{lossy:?}");
        // 100,000 bytes at 20,000 per second.
        let thin = LinkOptions { bytes_per_second: Some(20_000), ..LinkOptions::default() };
        let thin = timed(seed, thin);
        assert!((5_000..6_000).contains(&thin.as_millis()), "{thin:?}");
    }
}

#[test]
fn one_link_can_reset_connections_while_others_stay_whole() {
    let w = world(6);
    let (_node, address) = start_echo(&w, "n1");
    let resets = LinkOptions { resets_per_million: Some(50_000), ..LinkOptions::default() };
    w.set_link("bad", "n1", resets);
    let broken: Rc<Cell<u32>> = Rc::default();
    for name in ["bad", "good"] {
        let broken = Rc::clone(&broken);
        in_world(&w, name, move |rt| async move {
            let mut conn = rt.connect(address).await.unwrap();
            for n in 0..200u8 {
                if exchange(&conn, &[n]).await.is_err() {
                    assert_eq!(name, "bad");
                    broken.set(broken.get() + 1);
                    conn = rt.connect(address).await.unwrap();
                }
            }
        });
    }
    assert!((3..30).contains(&broken.get()), "{}", broken.get());
    w.clear_links();
    in_world(&w, "bad", move |rt| async move {
        let conn = rt.connect(address).await.unwrap();
        for n in 0..200u8 {
            exchange(&conn, &[n]).await.unwrap();
        }
    });
}

#[test]
fn a_paused_node_does_nothing_while_its_buffers_fill_and_goes_on_afterwards() {
    for seed in 0..5 {
        let w = world(seed);
        let ticks: Arc<std::sync::atomic::AtomicU64> = Arc::default();
        let mine = Arc::clone(&ticks);
        let main: Main = Arc::new(move |rt| {
            let (ticks, ticking) = (Arc::clone(&mine), rt.clone());
            Box::pin(async move {
                let gate = rt.gate("ticks");
                let tick = async move {
                    loop {
                        ticking.sleep(Duration::from_millis(100)).await;
                        ticks.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    }
                };
                gate.spawn(&rt, Group::Admin, "tick", tick).unwrap();
                echo(rt).await;
            })
        });
        let spec = NodeSpec { name: "n1".to_string(), shards: 1, work_dir: "/d".to_string() };
        let node = w.start_node(spec, main);
        let address = SocketAddr::new(w.ip("n1"), 7000);
        w.run_for(Duration::from_secs(1));
        let count = || ticks.load(std::sync::atomic::Ordering::Relaxed);
        let before = count();
        assert!(before >= 8);
        let inside = w.clone();
        let paused = node.clone();
        in_world(&w, "c", move |rt| async move {
            let conn = rt.connect(address).await.unwrap();
            exchange(&conn, b"warm").await.unwrap();
            inside.pause(&paused, Duration::from_secs(30));
            let began = rt.now();
            // The kernel of the paused process completes connections and takes what fits.
            let other = rt.connect(address).await.unwrap();
            other.write_all(b"waits").await.unwrap();
            let mut taken = 0;
            loop {
                match conn.try_write(&[7; 10_000]).unwrap() {
                    0 => break,
                    n => taken += n,
                }
                rt.sleep(Duration::from_millis(1)).await;
            }
            assert_eq!(taken, 256 * 1024);
            // Acknowledged by the machine: no end aborts, however long it takes.
            let mut got = Vec::new();
            while got.len() < taken {
                assert!(conn.read(&mut got, 1 << 20).await.unwrap() > 0);
            }
            let took = (rt.now() - began).as_secs();
            assert!((29..32).contains(&took), "{took}");
            assert_eq!(other.read(&mut Vec::new(), 10).await, Ok(5));
        });
        assert!((before..before + 5).contains(&count()), "it ticked while it was paused");
        let before = count();
        w.pause(&node, Duration::from_secs(3600));
        w.run_for(Duration::from_secs(10));
        assert_eq!(count(), before);
        w.resume(&node);
        w.run_for(Duration::from_secs(1));
        assert!(count() > before);
    }
}

#[test]
fn who_finds_a_full_backlog_is_let_in_when_there_is_room() {
    let w = world(8);
    let address = SocketAddr::new(w.ip("n1"), 7000);
    w.client("n1", |rt| async move {
        let any = "0.0.0.0:7000".parse().unwrap();
        let listener = rt.listen(any, ListenOptions { backlog: 1 }).await.unwrap();
        rt.sleep(Duration::from_secs(5)).await;
        let _first = listener.accept().await.unwrap();
        let _second = listener.accept().await.unwrap();
        std::future::pending::<()>().await;
    });
    in_world(&w, "c", move |rt| async move {
        rt.sleep(Duration::from_millis(100)).await;
        let _first = rt.connect(address).await.unwrap();
        assert!(rt.now() < Instant(1_000_000_000));
        let _second = rt.connect(address).await.unwrap();
        assert!((5_000_000_000..7_000_000_000).contains(&rt.now().0), "{:?}", rt.now());
    });
}

#[test]
fn a_moved_connection_that_nobody_takes_is_closed() {
    let w = world(7);
    let mesh = Mesh::<MovedConn, ()>::new(2, 10);
    let main: Main = Arc::new(move |rt| {
        let mesh = mesh.clone();
        Box::pin(async move {
            if rt.shard() == ShardId(1) {
                // Dropped in the handler: this shard has no use for it.
                mesh.serve(&rt, |moved, _reply| drop(moved));
                rt.stop_requested().await;
                return;
            }
            let any = "0.0.0.0:7000".parse().unwrap();
            let listener = rt.listen(any, ListenOptions::default()).await.unwrap();
            while let Ok(conn) = listener.accept().await {
                let _ = mesh.call(&rt, ShardId(1), conn.into_moved()).await;
            }
        })
    });
    let spec = NodeSpec { name: "n1".to_string(), shards: 2, work_dir: "/data".to_string() };
    let _node = w.start_node(spec, main);
    let address = SocketAddr::new(w.ip("n1"), 7000);
    w.run_for(Duration::from_millis(10));
    in_world(&w, "c", move |rt| async move {
        let conn = rt.connect(address).await.unwrap();
        let soon = rt.now() + Duration::from_secs(1);
        assert_eq!(rt.timeout(soon, conn.read(&mut Vec::new(), 10)).await, Ok(Ok(0)));
    });
}

/// All kinds of network faults at once, for the trace.
fn storm(seed: u64) -> (u64, Vec<u64>) {
    let w = world(seed);
    let mut nodes: Vec<SimNode> = (1..=3).map(|n| start_echo(&w, &format!("n{n}")).0).collect();
    let exchanged: Rc<Cell<u64>> = Rc::default();
    for c in 0..4u32 {
        let to: Vec<_> = (1..=3).map(|n| SocketAddr::new(w.ip(&format!("n{n}")), 7000)).collect();
        let exchanged = Rc::clone(&exchanged);
        w.client(&format!("c{c}"), move |rt| async move {
            loop {
                let address = to[(rt.random_u64() % 3) as usize];
                let late = rt.now() + Duration::from_secs(2);
                let Ok(Ok(conn)) = rt.timeout(late, rt.connect(address)).await else { continue };
                loop {
                    let late = rt.now() + Duration::from_secs(2);
                    let bytes = rt.random_u64().to_be_bytes();
                    match rt.timeout(late, exchange(&conn, &bytes)).await {
                        Ok(Ok(())) => exchanged.set(exchanged.get() + 1),
                        Ok(Err(_)) | Err(_) => break,
                    }
                }
            }
        });
    }
    for _ in 0..30 {
        let n = (w.random_u64() % 3) as usize;
        let (node, client) = (format!("n{}", n + 1), format!("c{}", w.random_u64() % 4));
        match w.random_u64() % 8 {
            0 => w.partition(&node, &client),
            1 => w.clog(&client, &node),
            2 => w.pause(&nodes[n], Duration::from_millis(w.random_u64() % 2_000)),
            3 => {
                w.power_cut(&nodes[n]);
                w.run_for(Duration::from_millis(w.random_u64() % 3_000));
                nodes[n] = start_echo(&w, &node).0;
            }
            4 => {
                w.kill(&nodes[n]);
                nodes[n] = start_echo(&w, &node).0;
            }
            5 => {
                let lossy = LinkOptions {
                    losses_per_million: 50_000,
                    bytes_per_second: Some(100_000),
                    resets_per_million: Some(1_000),
                    ..LinkOptions::default()
                };
                w.set_link(&client, &node, lossy);
            }
            6 => w.clear_links(),
            _ => w.heal_all(),
        }
        w.run_for(Duration::from_micros(w.random_u64() % 200_000));
    }
    w.heal_all();
    let before = exchanged.get();
    w.run_for(Duration::from_secs(5));
    assert!(exchanged.get() > before, "seed {seed}: nothing goes on after the storm");
    (w.trace_hash(), w.trace_checkpoints())
}

#[test]
fn the_same_seed_gives_the_same_storm() {
    for seed in 0..4 {
        let first = storm(seed);
        assert!(first.1.len() > 3);
        assert_eq!(first, storm(seed), "seed {seed}");
        assert_ne!(first, storm(seed + 50));
    }
}
