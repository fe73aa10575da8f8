use super::*;
use crate::{
    Buf, Fs, Group, ListenOptions, Mesh, MeshError, MovedStream, OpenOptions, Reply, Stream,
};
use std::cell::{Cell, RefCell};
use stdx::{IoErrorKind, ShardId};

#[test]
fn gate_waits_for_its_tasks_and_then_refuses() {
    on_both(1, |rt| {
        Box::pin(async move {
            let gate = rt.gate("test");
            let count = Rc::new(Cell::new(0));
            for i in 0..10u64 {
                let (task_rt, count) = (rt.clone(), Rc::clone(&count));
                gate.spawn(&rt, Group::Statement, "sleeper", async move {
                    task_rt.sleep(Duration::from_micros(i * 300)).await;
                    count.set(count.get() + 1);
                })
                .unwrap();
            }
            assert_eq!(gate.len(), 10);
            assert_eq!(count.get(), 0, "a task does not run inside spawn");
            gate.close().await;
            assert_eq!((count.get(), gate.len()), (10, 0));
            assert!(gate.spawn(&rt, Group::Statement, "late", async {}).is_err());
        })
    });
}

#[test]
fn timeout_drops_a_late_future_and_keeps_a_ready_one() {
    on_both(1, |rt| {
        Box::pin(async move {
            struct Guard(Rc<Cell<bool>>);
            impl Drop for Guard {
                fn drop(&mut self) {
                    self.0.set(true);
                }
            }
            let dropped = Rc::new(Cell::new(false));
            let guard = Guard(Rc::clone(&dropped));
            let deadline = rt.now() + Duration::from_millis(5);
            let late = rt.timeout(deadline, async move {
                let _guard = guard;
                std::future::pending::<()>().await;
            });
            assert!(late.await.is_err());
            assert!(dropped.get());
            assert!(rt.now() >= deadline);
            let past = rt.timeout(deadline, async { 7 }).await;
            assert_eq!(past, Ok(7));
            let far = rt.now() + Duration::from_secs(100);
            let sleeper = rt.clone();
            let slept = rt.timeout(far, async move {
                sleeper.sleep(Duration::from_millis(1)).await;
                8
            });
            assert_eq!(slept.await, Ok(8));
        })
    });
}

#[test]
fn a_long_loop_that_yields_lets_others_run() {
    on_both(1, |rt| {
        Box::pin(async move {
            let gate = rt.gate("test");
            let stop = Rc::new(Cell::new(false));
            let (task_rt, mine) = (rt.clone(), Rc::clone(&stop));
            gate.spawn(&rt, Group::Compaction, "long", async move {
                while !mine.get() {
                    task_rt.yield_if_due().await;
                }
            })
            .unwrap();
            let (task_rt, mine) = (rt.clone(), Rc::clone(&stop));
            gate.spawn(&rt, Group::Statement, "short", async move {
                task_rt.sleep(Duration::from_millis(1)).await;
                mine.set(true);
            })
            .unwrap();
            gate.close().await;
            assert!(stop.get());
        })
    });
}

#[test]
fn offloaded_work_gives_its_value() {
    on_both(1, |rt| {
        Box::pin(async move {
            let sum = rt.offload("sum", || (1..=100u64).sum::<u64>()).await;
            assert_eq!(sum, 5050);
        })
    });
}

#[test]
fn stop_reaches_every_shard() {
    on_both(3, |rt| {
        Box::pin(async move {
            assert_eq!(rt.shard_count(), 3);
            if rt.shard() == ShardId(0) {
                rt.sleep(Duration::from_millis(1)).await;
                assert!(!rt.is_stop_requested());
                rt.request_stop();
            }
            rt.stop_requested().await;
            assert!(rt.is_stop_requested());
        })
    });
}

#[test]
fn files_keep_what_was_written() {
    on_both(1, |rt| Box::pin(files(rt)));
}

async fn files(rt: Rt) {
    let fs = rt.fs();
    fs.create_dir_all("a/b").await.unwrap();
    let options = OpenOptions { read: true, write: true, create: true, ..OpenOptions::default() };
    let file = fs.open("a/b/f", options).await.unwrap();
    let mut big = Buf::new();
    for i in 0..300_000u32 {
        big.extend_from_slice(&i.to_le_bytes());
    }
    let (big, result) = file.write_at(big, 0).await;
    result.unwrap();
    let (_, result) = file.write_at(Buf::from_slice(b"tail"), 1_200_000).await;
    result.unwrap();
    file.sync_data().await.unwrap();
    assert_eq!(file.len().await.unwrap(), 1_200_004);
    let got = file.read_exact_at(4000, 100_000).await.unwrap();
    assert_eq!(got[..], big[4000..104_000]);
    let (buf, n) = file.read_at(Buf::from_slice(b"old content"), 1_199_996, 100).await;
    assert_eq!(n, Ok(8));
    assert_eq!(&buf[4..], b"tail");
    let short = file.read_exact_at(1_200_000, 5).await;
    assert_eq!(short.unwrap_err().kind, IoErrorKind::UnexpectedEof);
    let (_, at_end) = file.read_at(Buf::new(), 2_000_000, 10).await;
    assert_eq!(at_end, Ok(0));
    file.set_len(3).await.unwrap();
    assert_eq!(fs.read("a/b/f", 3).await.unwrap(), [0, 0, 0]);
    assert!(fs.read("a/b/f", 2).await.is_err(), "more than the limit");
    names(&fs).await;
}

async fn names(fs: &Fs) {
    fs.write_atomic("a/g", b"one".to_vec()).await.unwrap();
    fs.write_atomic("a/g", b"two".to_vec()).await.unwrap();
    assert_eq!(fs.read("a/g", 10).await.unwrap(), b"two");
    fs.hard_link("a/g", "a/b/h").await.unwrap();
    assert_eq!(fs.hard_link("a/g", "a/b/h").await.unwrap_err().kind, IoErrorKind::AlreadyExists);
    fs.rename("a/g", "a/i").await.unwrap();
    assert!(!fs.exists("a/g").await.unwrap());
    assert_eq!(fs.metadata("a/b/h").await.unwrap().len, 3);
    let listed = fs.read_dir("a").await.unwrap();
    let listed: Vec<_> = listed.iter().map(|e| (e.name.as_str(), e.is_dir, e.len)).collect();
    assert_eq!(listed, [("b", true, 0), ("i", false, 3)]);
    fs.sync_dir("a").await.unwrap();
    let create_new = OpenOptions { write: true, create_new: true, ..OpenOptions::default() };
    let again = fs.open("a/i", create_new).await.map(|_| ());
    assert_eq!(again.unwrap_err().kind, IoErrorKind::AlreadyExists);
    fs.rename("a/b", "c").await.unwrap();
    assert_eq!(fs.read("c/h", 10).await.unwrap(), b"two");
    fs.remove_file("a/i").await.unwrap();
    assert_eq!(fs.remove_file("a/i").await.unwrap_err().kind, IoErrorKind::NotFound);
    fs.remove_dir_all("c").await.unwrap();
    assert!(!fs.exists("c/h").await.unwrap());
    let read = OpenOptions { read: true, ..OpenOptions::default() };
    let missing = fs.open("nowhere/f", read).await.map(|_| ());
    assert_eq!(missing.unwrap_err().kind, IoErrorKind::NotFound);
    assert!(fs.free_bytes("a").await.unwrap() > 0);
    let space = fs.disk_space("a").await.unwrap();
    assert!(space.free_bytes > 0 && space.total_bytes >= space.free_bytes, "{space:?}");
    assert_eq!(fs.disk_space(".").await.unwrap().device, space.device);
    assert_eq!(fs.disk_space("nowhere").await.unwrap_err().kind, IoErrorKind::NotFound);
    let lock = fs.lock_exclusive("a/lock").await.unwrap();
    let second = fs.lock_exclusive("a/lock").await.map(|_| ());
    assert_eq!(second.unwrap_err().kind, IoErrorKind::AlreadyExists);
    drop(lock);
    assert!(fs.lock_exclusive("a/lock").await.is_ok());
}

#[test]
fn direct_files_take_any_offset_and_length() {
    on_both(1, |rt| {
        Box::pin(async move {
            let options = OpenOptions {
                read: true,
                write: true,
                create: true,
                direct: true,
                ..OpenOptions::default()
            };
            let file = rt.fs().open("direct", options).await.unwrap();
            let content: Vec<u8> = (0..20_000u32).map(|i| (i % 251) as u8).collect();
            let (_, whole) = file.write_at(Buf::from_slice(&content[..16_384]), 0).await;
            whole.unwrap();
            let (_, odd) = file.write_at(Buf::from_slice(&content[16_384..]), 16_384).await;
            odd.unwrap();
            file.sync_data().await.unwrap();
            for (offset, len) in [(0, 20_000), (4096, 8192), (1, 7), (5000, 9000), (16_000, 4000)] {
                let got = file.read_exact_at(offset as u64, len).await.unwrap();
                assert_eq!(got[..], content[offset..offset + len]);
            }
            let (_, n) = file.read_at(Buf::new(), 19_990, 100).await;
            assert_eq!(n, Ok(10));
            // Unaligned memory too.
            let vector = |bytes: &[u8], front: usize| [&vec![0; front], bytes].concat();
            for front in [0, 1, 77] {
                let bytes = vector(&content[1..8193], front);
                let (buf, again) = file.write_at(Buf::from_vec_at(bytes, front), 4096).await;
                again.unwrap();
                let (got, n) = file.read_at(buf, 4096, 8192).await;
                assert_eq!((n, &got[..]), (Ok(8192), &content[1..8193]));
                let (_, back) = file.write_at(Buf::from_slice(&content[4096..12_288]), 4096).await;
                back.unwrap();
                let got = file.read_exact_at(0, 20_000).await.unwrap();
                assert_eq!(got[..], content[..]);
            }
        })
    });
}

#[test]
fn reads_that_are_dropped_leave_the_file_usable() {
    on_both(1, |rt| {
        Box::pin(async move {
            let options =
                OpenOptions { read: true, write: true, create: true, ..OpenOptions::default() };
            let fs = rt.fs();
            let file = fs.open("f", options).await.unwrap();
            let mut content = Buf::new();
            content.resize(1 << 20);
            let (_, written) = file.write_at(content, 0).await;
            written.unwrap();
            for _ in 0..50 {
                // Ready at once or dropped in flight: both must be harmless.
                let read = file.read_at(Buf::new(), 0, 1 << 20);
                let _ = rt.timeout(rt.now(), read).await;
                let sync = file.sync_data();
                let _ = rt.timeout(rt.now(), sync).await;
            }
            assert_eq!(file.read_exact_at(0, 1 << 20).await.unwrap().len(), 1 << 20);
        })
    });
}

#[test]
fn connections_echo_and_end() {
    on_both(1, |rt| Box::pin(echo(rt)));
}

async fn echo(rt: Rt) {
    let address = "127.0.0.1:0".parse().unwrap();
    let listener = rt.listen(address, ListenOptions::default()).await.unwrap();
    let address = listener.local_addr();
    assert_ne!(address.port(), 0);
    let taken = rt.listen(address, ListenOptions::default()).await.map(|_| ());
    assert_eq!(taken.unwrap_err().kind, IoErrorKind::AddrInUse);
    let gate = rt.gate("server");
    let task_rt = rt.clone();
    let server = async move {
        for _ in 0..3 {
            let conn = listener.accept().await.unwrap();
            let gate = task_rt.gate("conn");
            let serve = async move {
                let mut buf = Vec::new();
                while conn.read(&mut buf, 10_000).await.unwrap() > 0 {
                    conn.write_all(&buf).await.unwrap();
                    buf.clear();
                }
            };
            gate.spawn(&task_rt, Group::Statement, "conn", serve).unwrap();
        }
    };
    gate.spawn(&rt, Group::Statement, "accept", server).unwrap();
    for size in [1usize, 10_000, 3_000_000] {
        let conn = rt.connect(address).await.unwrap();
        assert_eq!(conn.peer_addr(), address);
        let sent: Rc<Vec<u8>> = Rc::new((0..size).map(|i| (i % 253) as u8).collect());
        let (writer, bytes) = (conn.clone(), Rc::clone(&sent));
        let writers = rt.gate("writer");
        // In a task of its own: more than the buffers hold would stop both sides otherwise.
        let write = async move { writer.write_all(&bytes).await.unwrap() };
        writers.spawn(&rt, Group::Statement, "write", write).unwrap();
        let mut got = Vec::new();
        while got.len() < size {
            let n = conn.read(&mut got, 5000).await.unwrap();
            assert!((1..=5000).contains(&n));
        }
        assert_eq!(got, *sent);
        writers.close().await;
        conn.shutdown();
        assert_eq!(conn.read(&mut got, 10).await, Ok(0));
        assert!(conn.write_all(b"x").await.is_err());
    }
    gate.close().await;
    let refused = rt.connect(address).await.map(|_| ());
    assert_eq!(refused.unwrap_err().kind, IoErrorKind::Refused);
}

#[test]
fn a_full_socket_takes_nothing_until_it_is_read() {
    on_both(1, |rt| {
        Box::pin(async move {
            let any = "127.0.0.1:0".parse().unwrap();
            let listener = rt.listen(any, ListenOptions::default()).await.unwrap();
            let near = rt.connect(listener.local_addr()).await.unwrap();
            let far = listener.accept().await.unwrap();
            let chunk = vec![5u8; 64 * 1024];
            let mut sent = 0;
            loop {
                let n = near.try_write(&chunk).unwrap();
                sent += n;
                if n == 0 {
                    break;
                }
                assert!(sent < 1 << 30, "the buffers have no limit");
            }
            let writer = near.clone();
            let gate = rt.gate("writer");
            let write = async move {
                writer.write_all(&[6; 1000]).await.unwrap();
                writer.shutdown();
            };
            gate.spawn(&rt, Group::Statement, "write", write).unwrap();
            let mut got = Vec::new();
            while far.read(&mut got, 1 << 20).await.unwrap() > 0 {}
            assert_eq!(got.len(), sent + 1000);
            assert_eq!(got.last(), Some(&6));
        })
    });
}

#[derive(Clone)]
enum Request {
    Double(u64),
    Later(u64),
    Drop,
}

type Numbers = Mesh<Request, (ShardId, u64)>;

fn serve_numbers(rt: &Rt, mesh: &Numbers) {
    let (mine, gate) = (rt.clone(), rt.gate("mesh"));
    mesh.serve(rt, move |request, reply: Reply<(ShardId, u64)>| match request {
        Request::Double(n) => reply.send((mine.shard(), n * 2)),
        Request::Later(n) => {
            let rt = mine.clone();
            let task = async move {
                rt.sleep(Duration::from_millis(1)).await;
                reply.send((rt.shard(), n));
            };
            gate.spawn(&mine, Group::Statement, "later", task).unwrap();
        }
        Request::Drop => drop(reply),
    });
}

#[test]
fn mesh_calls_reach_the_right_shard_and_come_back() {
    on_both_with(
        3,
        || Numbers::new(3, 1000),
        |rt, mesh| {
            Box::pin(async move {
                serve_numbers(&rt, &mesh);
                if rt.shard() != ShardId(0) {
                    return;
                }
                for n in 0..200u64 {
                    let to = ShardId((n % 3) as u16);
                    let answer = mesh.call(&rt, to, Request::Double(n)).await;
                    assert_eq!(answer, Ok((to, n * 2)));
                }
                let calls: Vec<_> = (0..100u16)
                    .map(|n| mesh.call(&rt, ShardId(n % 3), Request::Later(7)))
                    .collect();
                for (n, call) in (0u16..).zip(calls) {
                    assert_eq!(call.await, Ok((ShardId(n % 3), 7)));
                }
                let dropped = mesh.call(&rt, ShardId(1), Request::Drop).await;
                assert_eq!(dropped, Err(MeshError::Closed));
                let nobody = mesh.call(&rt, ShardId(3), Request::Double(1)).await;
                assert_eq!(nobody, Err(MeshError::Closed));
            })
        },
    );
}

#[test]
fn mesh_refuses_what_exceeds_its_capacity() {
    on_both_with(
        1,
        || Mesh::<u64, u64>::new(1, 3),
        |rt, mesh| {
            Box::pin(async move {
                let waiting: Vec<_> = (0..3).map(|n| mesh.call(&rt, ShardId(0), n)).collect();
                assert_eq!(mesh.call(&rt, ShardId(0), 3).await, Err(MeshError::Full));
                // Served late: what waited is answered, in order.
                let order = Rc::new(RefCell::new(Vec::new()));
                let seen = Rc::clone(&order);
                mesh.serve(&rt, move |n, reply| {
                    seen.borrow_mut().push(n);
                    reply.send(n + 10);
                });
                for (n, call) in (0..).zip(waiting) {
                    assert_eq!(call.await, Ok(n + 10));
                }
                assert_eq!(*order.borrow(), [0, 1, 2]);
                assert_eq!(mesh.call(&rt, ShardId(0), 3).await, Ok(13));
            })
        },
    );
}

#[test]
fn a_connection_moves_to_another_shard() {
    on_both_with(
        2,
        || Mesh::<MovedStream, usize>::new(2, 10),
        |rt, mesh| {
            Box::pin(async move {
                if rt.shard() == ShardId(1) {
                    let (mine, gate) = (rt.clone(), rt.gate("moved"));
                    mesh.serve(&rt.clone(), move |moved, reply| {
                        let conn = Stream::from_moved(&mine, moved).unwrap();
                        let task = async move {
                            let mut got = Vec::new();
                            while conn.read(&mut got, 100).await.unwrap() > 0 {}
                            reply.send(got.len());
                        };
                        gate.spawn(&mine, Group::Statement, "moved", task).unwrap();
                    });
                    return;
                }
                let any = "127.0.0.1:0".parse().unwrap();
                let listener = rt.listen(any, ListenOptions::default()).await.unwrap();
                let near = rt.connect(listener.local_addr()).await.unwrap();
                let far = listener.accept().await.unwrap();
                near.write_all(b"before").await.unwrap();
                let answer = mesh.call(&rt, ShardId(1), Stream::plain(far).into_moved());
                near.write_all(b" after").await.unwrap();
                drop(near);
                assert_eq!(answer.await, Ok(12));
            })
        },
    );
}

#[test]
fn random_numbers_differ_and_fill_everything() {
    on_both(1, |rt| {
        Box::pin(async move {
            assert_ne!(rt.random_u64(), rt.random_u64());
            let mut bytes = [0u8; 64];
            rt.random_fill(&mut bytes);
            assert!(bytes.iter().filter(|b| **b != 0).count() > 40);
            assert!(rt.wall().0 > 1_700_000_000_000_000);
        })
    });
}
