use super::*;
use crate::sim::{CrashKind, SimNode};
use crate::{Buf, File, Group, ListenOptions, OpenOptions};
use std::cell::Cell;
use std::task::Poll;
use stdx::IoErrorKind;

const WRITE: OpenOptions = OpenOptions {
    read: true,
    write: true,
    create: true,
    create_new: false,
    truncate: false,
    direct: false,
    offload_writes: false,
};

fn world(seed: u64) -> World {
    World::new(seed, WorldOptions::default())
}

/// Starts a node whose main runs `f` and then waits to be stopped; returns when `f` is done.
fn start<F: Future<Output = ()> + 'static>(world: &World, f: fn(Rt) -> F) -> SimNode {
    let (node, ran) = start_unwaited(world, f);
    world
        .run_until(|| ran.load(std::sync::atomic::Ordering::Relaxed), Duration::from_secs(60))
        .unwrap();
    node
}

fn start_unwaited<F: Future<Output = ()> + 'static>(
    world: &World,
    f: fn(Rt) -> F,
) -> (SimNode, Arc<std::sync::atomic::AtomicBool>) {
    let ran = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let mine = Arc::clone(&ran);
    let main: Main = Arc::new(move |rt| {
        let ran = Arc::clone(&mine);
        Box::pin(async move {
            f(rt.clone()).await;
            ran.store(true, std::sync::atomic::Ordering::Relaxed);
            rt.stop_requested().await;
        })
    });
    let spec = NodeSpec { name: "n1".to_string(), shards: 1, work_dir: "/data".to_string() };
    (world.start_node(spec, main), ran)
}

async fn write(file: &File, offset: u64, bytes: &[u8]) {
    file.write_at(Buf::from_slice(bytes), offset).await.1.unwrap();
}

fn busy_run(seed: u64) -> (u64, Vec<u64>) {
    let world = world(seed);
    let address = std::net::SocketAddr::new(world.ip("n1"), 9042);
    let (node, _) = start_unwaited(&world, |rt| async move {
        let any = "0.0.0.0:9042".parse().unwrap();
        let listener = rt.listen(any, ListenOptions::default()).await.unwrap();
        let file = rt.fs().open("log", WRITE).await.unwrap();
        let gate = rt.gate("conns");
        let mut offset = 0;
        for _ in 0..4 {
            let conn = listener.accept().await.unwrap();
            let (file, at, rt2) = (file.clone(), offset, rt.clone());
            offset += 1_000_000;
            let task = async move {
                let (mut buf, mut at) = (Vec::new(), at);
                while conn.read(&mut buf, 100).await.unwrap() > 0 {
                    write(&file, at, &buf).await;
                    at += buf.len() as u64;
                    if rt2.random_u64().is_multiple_of(4) {
                        file.sync_data().await.unwrap();
                    }
                    conn.write_all(&buf).await.unwrap();
                    buf.clear();
                }
            };
            gate.spawn(&rt, Group::Statement, "conn", task).unwrap();
        }
        gate.close().await;
    });
    world.run_for(Duration::from_millis(10));
    let done = Rc::new(Cell::new(0));
    for c in 0..4u8 {
        let done = Rc::clone(&done);
        world.client(&format!("c{c}"), move |rt| async move {
            let conn = rt.connect(address).await.unwrap();
            for n in 0..250u8 {
                let sent = [c, n, rt.random_u64() as u8];
                conn.write_all(&sent).await.unwrap();
                let mut got = Vec::new();
                while got.len() < 3 {
                    assert!(conn.read(&mut got, 10).await.unwrap() > 0);
                }
                assert_eq!(got, sent);
            }
            done.set(done.get() + 1);
        });
    }
    world.run_until(|| done.get() == 4, Duration::from_secs(60)).unwrap();
    node.request_stop();
    world.run_for(Duration::from_secs(1));
    assert!(!world.is_alive(&node));
    (world.trace_hash(), world.trace_checkpoints())
}

#[test]
fn one_seed_gives_one_trace_and_another_seed_another() {
    for seed in 0..5 {
        let (first, second) = (busy_run(seed), busy_run(seed));
        assert!(!first.1.is_empty(), "no checkpoint was reached");
        assert_eq!(first, second, "INV-rt-2, INV-sim-1: seed {seed}");
        assert_ne!(first, busy_run(seed + 100));
    }
}

async fn write_unsynced(rt: Rt) {
    let fs = rt.fs();
    let file = fs.open("f", WRITE).await.unwrap();
    fs.sync_dir(".").await.unwrap();
    write(&file, 0, b"synced").await;
    file.sync_data().await.unwrap();
    write(&file, 6, b" unsynced").await;
    fs.open("new", WRITE).await.unwrap().sync_data().await.unwrap();
}

#[test]
fn a_kill_keeps_unsynced_data_and_a_power_cut_loses_it() {
    let w = world(1);
    let node = start(&w, write_unsynced);
    w.kill(&node);
    assert!(!w.is_alive(&node));
    assert_eq!(w.disk("n1").read("/data/f").unwrap(), b"synced unsynced");
    assert_eq!(w.disk("n1").list(), ["/data/f", "/data/new"]);

    let w = world(1);
    let node = start(&w, write_unsynced);
    w.power_cut_losing_all(&node);
    assert_eq!(w.disk("n1").read("/data/f").unwrap(), b"synced");
    assert_eq!(w.disk("n1").list(), ["/data/f"], "the unsynced name is lost");
    // The next incarnation sees the same disk.
    start(&w, |rt| async move {
        assert_eq!(rt.fs().read("f", 100).await.unwrap(), b"synced");
        assert!(!rt.fs().exists("new").await.unwrap());
    });
}

#[test]
fn a_power_cut_keeps_synced_data_and_any_sectors_of_the_rest() {
    let (mut torn, mut none, mut all, mut lost_name, mut kept_name) = (0, 0, 0, 0, 0);
    for seed in 0..60 {
        let w = world(seed);
        let node = start(&w, |rt| async move {
            let file = rt.fs().open("f", WRITE).await.unwrap();
            rt.fs().sync_dir(".").await.unwrap();
            write(&file, 0, &[1; 2048]).await;
            file.sync_data().await.unwrap();
            write(&file, 2048, &[2; 2048]).await;
            rt.fs().open("new", WRITE).await.unwrap();
        });
        w.power_cut(&node);
        let content = w.disk("n1").read("/data/f").unwrap();
        assert_eq!(content[..2048], [1; 2048], "INV-sim-3: seed {seed}");
        let mut sectors = 0;
        for sector in content[2048..].chunks(512) {
            assert!(sector == [2; 512] || sector == [0; 512], "seed {seed}: torn inside a sector");
            sectors += usize::from(sector == [2; 512]);
        }
        match sectors {
            0 => none += 1,
            4 => all += 1,
            _ => torn += 1,
        }
        match w.disk("n1").list().len() {
            1 => lost_name += 1,
            _ => kept_name += 1,
        }
    }
    assert!(torn > 0 && none > 0 && all > 0, "{torn} {none} {all}");
    assert!(lost_name > 0 && kept_name > 0, "{lost_name} {kept_name}");
}

#[test]
fn a_synced_rename_never_comes_back_through_a_later_sync_of_the_old_name() {
    let w = world(3);
    let node = start(&w, |rt| async move {
        let fs = rt.fs();
        fs.create_dir_all("a").await.unwrap();
        fs.create_dir_all("b").await.unwrap();
        fs.sync_dir(".").await.unwrap();
        fs.open("a/x", WRITE).await.unwrap();
        fs.rename("a/x", "b/x").await.unwrap();
        fs.sync_dir("b").await.unwrap();
        fs.sync_dir("a").await.unwrap();
    });
    w.power_cut_losing_all(&node);
    assert_eq!(w.disk("n1").list(), ["/data/b/x"]);
}

#[test]
fn write_atomic_leaves_the_old_or_the_new_file_at_every_crash() {
    let mut seen = [0; 2];
    for n in 1..40 {
        for kind in [CrashKind::Kill, CrashKind::PowerCut, CrashKind::PowerCutLosingAll] {
            let w = world(n);
            let first = start(&w, |rt| async move {
                rt.fs().write_atomic("f", b"old".to_vec()).await.unwrap();
            });
            w.kill(&first);
            w.disk("n1").crash_at_nth_io(n, kind);
            let (node, ran) = start_unwaited(&w, |rt| async move {
                rt.fs().write_atomic("f", b"new".to_vec()).await.unwrap();
            });
            w.run_for(Duration::from_secs(1));
            let done = ran.load(std::sync::atomic::Ordering::Relaxed);
            assert_eq!(done, w.is_alive(&node), "crashed or done");
            let content = w.disk("n1").read("/data/f").unwrap();
            match &content[..] {
                b"old" if !done => seen[0] += 1,
                b"new" => seen[1] += 1,
                other => panic!("io {n}, {kind:?}: {other:?}, done: {done}"),
            }
        }
    }
    assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
}

#[test]
fn a_crash_drops_the_tasks_without_further_effects() {
    let w = world(9);
    let (node, ran) = start_unwaited(&w, |rt| async move {
        struct Loud(Rt);
        impl Drop for Loud {
            fn drop(&mut self) {
                // Neither a task nor a stop request may come of it.
                assert!(self.0.gate("g").spawn(&self.0, Group::Admin, "late", async {}).is_err());
            }
        }
        let _loud = Loud(rt.clone());
        let file = rt.fs().open("f", WRITE).await.unwrap();
        loop {
            let len = file.len().await.unwrap();
            write(&file, len, b"x").await;
            rt.sleep(Duration::from_millis(1)).await;
        }
    });
    w.disk("n1").crash_at_nth_io(20, CrashKind::Kill);
    w.run_for(Duration::from_secs(1));
    assert!(!w.is_alive(&node));
    assert!(!ran.load(std::sync::atomic::Ordering::Relaxed));
    let calls = w.disk("n1").io_count();
    assert_eq!(calls, 20);
    w.run_for(Duration::from_secs(1));
    assert_eq!(w.disk("n1").io_count(), calls, "INV-sim-2: a dead process has an effect");
}

#[test]
fn a_full_disk_refuses_growth_only() {
    let w = world(4);
    w.disk("c").set_free_bytes(Some(1000));
    in_world(&w, "c", |rt| async move {
        let file = rt.fs().open("f", WRITE).await.unwrap();
        write(&file, 0, &[1; 1000]).await;
        let (_, more) = file.write_at(Buf::from_slice(b"x"), 1000).await;
        assert_eq!(more.unwrap_err().kind, IoErrorKind::NoSpace);
        write(&file, 0, &[2; 1000]).await;
        assert_eq!(file.set_len(1001).await.unwrap_err().kind, IoErrorKind::NoSpace);
        assert_eq!(rt.fs().free_bytes(".").await, Ok(0));
        let space = rt.fs().disk_space(".").await.unwrap();
        assert_eq!((space.total_bytes, space.free_bytes), (1000, 0));
        file.set_len(10).await.unwrap();
        write(&file, 10, &[3; 990]).await;
    });
}

#[test]
fn the_nth_call_fails_and_a_failed_sync_is_not_made_good_by_the_next() {
    let w = world(5);
    let node = start(&w, |rt| async move {
        let file = rt.fs().open("f", WRITE).await.unwrap();
        rt.fs().sync_dir(".").await.unwrap();
        write(&file, 0, b"gone").await;
        write(&file, 4, b"!").await;
    });
    w.kill(&node);
    // Calls of the next run: open, sync.
    w.disk("n1").fail_nth(2, IoErrorKind::NoSpace);
    let node = start(&w, |rt| async move {
        let file = rt.fs().open("f", WRITE).await.unwrap();
        assert_eq!(file.sync_data().await.unwrap_err().kind, IoErrorKind::Device);
        file.sync_data().await.unwrap();
    });
    w.power_cut_losing_all(&node);
    assert_eq!(w.disk("n1").read("/data/f").unwrap(), b"");
}

#[test]
fn a_flipped_bit_is_read_back_flipped() {
    let w = world(6);
    w.disk("c").write("/f", &[0; 4]);
    assert!(w.disk("c").flip_bit("/f", 17));
    assert!(!w.disk("c").flip_bit("/f", 32));
    in_world(&w, "c", |rt| async move {
        assert_eq!(rt.fs().read("/f", 10).await.unwrap(), [0, 0, 2, 0]);
    });
}

#[test]
fn slow_disks_take_their_time() {
    let w = world(6);
    w.disk("c").set_slow(Some(1_000_000..2_000_000));
    in_world(&w, "c", |rt| async move {
        let before = rt.now();
        rt.fs().create_dir_all("d").await.unwrap();
        assert!(rt.now() - before >= Duration::from_secs(1));
    });
}

fn echo_node(world: &World) -> std::net::SocketAddr {
    start(world, |rt| async move {
        let any = "0.0.0.0:7000".parse().unwrap();
        let listener = rt.listen(any, ListenOptions::default()).await.unwrap();
        let gate = rt.gate("accept");
        let task_rt = rt.clone();
        let accept = async move {
            while let Ok(conn) = listener.accept().await {
                let serve = async move {
                    let mut buf = Vec::new();
                    while conn.read(&mut buf, 100).await.is_ok_and(|n| n > 0) {
                        if conn.write_all(&buf).await.is_err() {
                            return;
                        }
                        buf.clear();
                    }
                };
                let conns = task_rt.gate("conn");
                conns.spawn(&task_rt, Group::Statement, "conn", serve).unwrap();
            }
        };
        gate.spawn(&rt, Group::Statement, "accept", accept).unwrap();
    });
    std::net::SocketAddr::new(world.ip("n1"), 7000)
}

#[test]
fn a_partition_holds_segments_back_until_it_heals() {
    for seed in 0..10 {
        let w = world(seed);
        let address = echo_node(&w);
        let world_in = w.clone();
        in_world(&w, "c", move |rt| async move {
            let conn = rt.connect(address).await.unwrap();
            let mut got = Vec::new();
            for one_way in [false, true] {
                match one_way {
                    true => world_in.clog("n1", "c"),
                    false => world_in.partition("n1", "c"),
                }
                got.clear();
                conn.write_all(b"first").await.unwrap();
                conn.write_all(b"second").await.unwrap();
                let late = rt.now() + Duration::from_secs(5);
                assert!(rt.timeout(late, conn.read(&mut got, 100)).await.is_err());
                assert!(rt.timeout(rt.now(), rt.connect(address)).await.is_err());
                world_in.heal_all();
                while got.len() < 11 {
                    conn.read(&mut got, 100).await.unwrap();
                }
                assert_eq!(got, b"firstsecond");
            }
        });
    }
}

#[test]
fn reset_connections_break_on_both_sides() {
    let w = world(2);
    let address = echo_node(&w);
    let world_in = w.clone();
    in_world(&w, "c", move |rt| async move {
        let conn = rt.connect(address).await.unwrap();
        world_in.reset_connections("c", "n1");
        let read = conn.read(&mut Vec::new(), 10).await;
        assert_eq!(read.unwrap_err().kind, IoErrorKind::Disconnected);
        let again = rt.connect(address).await.unwrap();
        again.write_all(b"x").await.unwrap();
        assert_eq!(again.read(&mut Vec::new(), 10).await, Ok(1));
    });
}

#[test]
fn wall_clocks_are_skewed_and_virtual_time_is_not() {
    let w = world(8);
    w.set_clock_skew("c", -5_000_000);
    in_world(&w, "c", |rt| async move {
        let start = WorldOptions::default().wall_start_micros;
        assert!((start - 5_000_000..start).contains(&rt.wall().0));
        assert!(rt.now().0 < 1_000_000_000);
    });
    w.jump_clock("c", 8_000_000);
    w.jump_clock("other", 1);
    in_world(&w, "c", |rt| async move {
        let start = WorldOptions::default().wall_start_micros;
        assert!((start + 3_000_000..start + 4_000_000).contains(&rt.wall().0));
        assert!(rt.now().0 < 1_000_000_000);
    });
    // Too slowly by a tenth for ten seconds, then at the right speed.
    for (millionths, gathered) in [(-100_000, -1_000_000), (0, 0)] {
        w.drift_clock("c", millionths);
        in_world(&w, "c", move |rt| async move {
            let (wall, now) = (rt.wall().0, rt.now().0);
            rt.sleep(Duration::from_secs(10)).await;
            let passed = i64::try_from((rt.now().0 - now) / 1000).unwrap();
            let differs = rt.wall().0 - wall - passed - gathered;
            assert!((-100..=100).contains(&differs), "{millionths}: {differs}");
        });
    }
}

#[test]
fn a_world_in_which_nothing_can_happen_is_told_at_once() {
    let w = world(8);
    w.client("c", |_rt| std::future::pending());
    let stuck = w.run_until(|| false, Duration::from_secs(1000)).unwrap_err();
    assert!(stuck.idle);
    w.client("d", |rt| async move { rt.sleep(Duration::from_secs(2000)).await });
    let stuck = w.run_until(|| false, Duration::from_secs(1000)).unwrap_err();
    assert!(!stuck.idle && stuck.at.0 >= 1_000_000_000_000);
}

#[test]
fn a_node_started_through_the_machine_runs_in_the_world() {
    let w = world(8);
    let ran = Arc::new(std::sync::atomic::AtomicU16::new(0));
    let mine = Arc::clone(&ran);
    let main: Main = Arc::new(move |rt| {
        let ran = Arc::clone(&mine);
        Box::pin(async move {
            rt.stop_requested().await;
            ran.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        })
    });
    let spec = NodeSpec { name: "m".to_string(), shards: 4, work_dir: "/d".to_string() };
    let running = w.machine().start(spec, main);
    w.run_for(Duration::from_secs(1));
    running.request_stop();
    w.run_for(Duration::from_secs(1));
    assert_eq!(ran.load(std::sync::atomic::Ordering::Relaxed), 4);
    assert!(running.join().is_err());
}

#[test]
fn a_crash_in_the_nth_change_below_a_path_passes_over_other_calls() {
    let w = world(31);
    let node = start(&w, |rt| async move {
        rt.fs().create_dir_all("hints").await.unwrap();
        let (other, hints) =
            (rt.fs().open("log", WRITE).await, rt.fs().open("hints/a", WRITE).await);
        let (other, hints) = (other.unwrap(), hints.unwrap());
        let task = async move {
            for n in 0..10_u64 {
                write(&other, n, b"x").await;
                write(&hints, n, b"y").await;
            }
        };
        rt.gate("writer").spawn(&rt, Group::Admin, "writer", task).unwrap();
    });
    w.disk("n1").crash_at_nth_change_below("hints/", 4, CrashKind::Kill);
    w.run_until(|| !w.is_alive(&node), Duration::from_secs(1)).unwrap();
    assert_eq!(w.disk("n1").read("/data/log").unwrap().len(), 4);
    // The write that kills may or may not be done.
    assert!((3..=4).contains(&w.disk("n1").read("/data/hints/a").unwrap().len()));
}

#[test]
fn parts_that_hold_each_other_let_go_when_their_shard_ends() {
    struct Part {
        other: std::cell::RefCell<Option<Rc<Part>>>,
        _rt: Rt,
    }
    let w = world(32);
    let kept = Rc::new(std::cell::RefCell::new(std::rc::Weak::new()));
    let out = Rc::clone(&kept);
    let client = w.client("c1", move |rt| async move {
        let part = Rc::new(Part { other: Default::default(), _rt: rt.clone() });
        *part.other.borrow_mut() = Some(Rc::clone(&part));
        *out.borrow_mut() = Rc::downgrade(&part);
        let ending = Rc::clone(&part);
        rt.at_end(move || drop(ending.other.take()));
        rt.sleep(Duration::from_secs(5)).await;
    });
    w.run_for(Duration::from_secs(1));
    assert!(kept.borrow().upgrade().is_some());
    w.kill(&client);
    assert!(kept.borrow().upgrade().is_none());
    assert!(client.is_freed());
}

#[test]
fn timers_that_are_cancelled_leave_the_others_in_order() {
    let w = world(33);
    let times = Rc::new(std::cell::RefCell::new(Vec::new()));
    let out = Rc::clone(&times);
    w.client("c1", move |rt| async move {
        let start = rt.now();
        for millis in [30_u64, 10, 20] {
            // The earlier timer is dropped unfired; the next one is not later for that.
            let early = rt.now() + Duration::from_millis(millis);
            let late = rt.now() + Duration::from_millis(2 * millis);
            let both = rt.timeout(early, rt.sleep_until(late)).await;
            assert!(both.is_err());
            let first = rt.timeout(late, rt.sleep_until(early + Duration::from_millis(1))).await;
            assert!(first.is_ok());
            out.borrow_mut().push(rt.now().since(start).as_millis());
        }
    });
    w.run_for(Duration::from_secs(1));
    assert_eq!(*times.borrow(), [31, 42, 63]);
}

#[test]
fn a_small_write_waits_for_the_disk_only_where_the_file_offloads_its_writes() {
    let world = world(1);
    let done = Rc::new(Cell::new(false));
    let seen = done.clone();
    world.client("n1", move |rt| async move {
        for offload_writes in [false, true] {
            let options = OpenOptions { offload_writes, ..WRITE };
            let file = rt.fs().open("log", options).await.unwrap();
            let mut write = Box::pin(file.write_at(Buf::from_slice(b"line"), 0));
            let first = std::future::poll_fn(|cx| Poll::Ready(write.as_mut().poll(cx))).await;
            assert_eq!(first.is_pending(), offload_writes);
            if first.is_pending() {
                write.await.1.unwrap();
            }
            assert_eq!(file.read_exact_at(0, 4).await.unwrap()[..], *b"line");
        }
        seen.set(true);
    });
    world.run_until(|| done.get(), Duration::from_secs(60)).unwrap();
}
