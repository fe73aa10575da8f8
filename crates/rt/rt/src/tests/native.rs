use super::*;
use crate::{Group, Mesh, Reply};
use stdx::ShardId;

#[test]
fn a_panic_of_a_shard_is_told_by_join() {
    let main: Main = Arc::new(|_rt| Box::pin(async { panic!("on purpose") }));
    let machine = Machine::native(NativeOptions::default());
    let spec = NodeSpec { name: "p".to_string(), shards: 1, work_dir: String::new() };
    let error = machine.start(spec, main).join().unwrap_err();
    assert!(error.contains("shard 0 panicked: on purpose"), "{error}");
}

#[test]
fn the_file_backend_in_use_is_told() {
    let main: Main = Arc::new(|rt| {
        Box::pin(async move { assert_eq!(rt.io_description(), "files: threads (as configured)") })
    });
    let io = IoBackend::Threads;
    let machine = Machine::native(NativeOptions { cpuset: Some(vec![0]), io });
    let spec = NodeSpec { name: "p".to_string(), shards: 1, work_dir: String::new() };
    let running = machine.start(spec, main);
    assert_eq!(running.io_description(), "files: threads (as configured)");
    running.join().unwrap();
}

#[test]
fn a_foreign_thread_calls_shards_and_stops_them() {
    let mesh: Mesh<u64, u64> = Mesh::new(2, 10);
    let served = mesh.clone();
    let main: Main = Arc::new(move |rt| {
        let mesh = served.clone();
        Box::pin(async move {
            let factor = u64::from(rt.shard().0) + 10;
            mesh.serve(&rt, move |n, reply: Reply<u64>| reply.send(n * factor));
            rt.stop_requested().await;
        })
    });
    let machine = Machine::native(NativeOptions::default());
    let spec = NodeSpec { name: "f".to_string(), shards: 2, work_dir: String::new() };
    let running = machine.start(spec, main);
    let foreign = mesh.foreign();
    for n in 0..100 {
        let call = foreign.call(ShardId((n % 2) as u16), n);
        assert_eq!(block_on(call), Ok(n * (10 + n % 2)));
    }
    running.stopper().request_stop();
    running.join().unwrap();
    assert!(block_on(foreign.call(ShardId(0), 1)).is_err(), "the shard is gone");
}

#[test]
fn under_load_processor_time_follows_the_shares() {
    let main: Main = Arc::new(|rt| {
        Box::pin(async move {
            let gate = rt.gate("load");
            let rounds = [Rc::new(std::cell::Cell::new(0u64)), Rc::default()];
            for (group, count) in [Group::Statement, Group::Compaction].into_iter().zip(&rounds) {
                let (rt2, count) = (rt.clone(), Rc::clone(count));
                let task = async move {
                    while !rt2.is_stop_requested() {
                        // One turn of work each; turns differ in length.
                        let begun = rt2.now();
                        while !rt2.is_yield_due() {}
                        count.set(count.get() + rt2.now().since(begun).as_nanos() as u64);
                        rt2.yield_if_due().await;
                    }
                };
                gate.spawn(&rt, group, "spin", task).unwrap();
            }
            rt.sleep(Duration::from_millis(300)).await;
            let [statement, compaction] = rounds.each_ref().map(|r| r.take());
            // 1000 to 200 shares; wide limits, because the machine is shared.
            assert!(compaction > 0 && statement > compaction, "{statement} {compaction}");
            rt.set_share(Group::Statement, 100);
            rt.set_share(Group::Compaction, 2_000);
            assert_eq!((rt.share(Group::Statement), rt.share(Group::Compaction)), (100, 1_000));
            rt.sleep(Duration::from_millis(300)).await;
            rt.request_stop();
            gate.close().await;
            let [statement, compaction] = rounds.map(|r| r.get());
            assert!(statement > 0 && compaction > statement, "{statement} {compaction}");
            assert!(rt.telemetry().snapshot().find("executor_stall_total").is_some());
        })
    });
    let machine = Machine::native(NativeOptions::default());
    let spec = NodeSpec { name: "s".to_string(), shards: 1, work_dir: String::new() };
    machine.start(spec, main).join().unwrap();
}

/// The smallest foreign executor.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::task::Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = std::pin::pin!(future);
    loop {
        let mut cx = std::task::Context::from_waker(&waker);
        if let std::task::Poll::Ready(value) = future.as_mut().poll(&mut cx) {
            return value;
        }
        std::thread::park();
    }
}
