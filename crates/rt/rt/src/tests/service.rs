//! Services natively and simulated: bounds, deadlines, the ways to end.

use super::*;
use crate::Mesh;
use crate::service::{CallError, Priority, Request, Service, ServiceFailure, ServiceSpec, Stopped};
use std::cell::{Cell, RefCell};
use std::sync::Mutex;
use std::sync::mpsc;
use stdx::ShardId;

const SPEC: ServiceSpec = ServiceSpec {
    name: "helper",
    requests_max: 2,
    drain_max: Duration::from_secs(60),
    abort_max: Duration::from_secs(60),
    priority: Priority::Usual,
};

fn far(rt: &Rt) -> stdx::Instant {
    rt.now() + Duration::from_secs(60)
}

fn counted(rt: &Rt, name: &str) -> u64 {
    match rt.telemetry().snapshot().find(name).map(|metric| &metric.value) {
        Some(telemetry::Value::Counter(count)) => *count,
        other => panic!("{name}: {other:?}"),
    }
}

/// Natively only.
fn on_a_thread(test: impl Fn(Rt) -> Boxed + Send + Sync + 'static) {
    natively(IoBackend::Threads, 1, main_of(test));
}

/// Answers double of each number, one after the other.
fn doubling(rt: &Rt) -> Service<u64, u64> {
    let body = |scope: crate::service::Scope<u64, u64>| async move {
        while let Some(request) = scope.next().await {
            let (n, reply) = request.into_parts();
            reply.send(n * 2);
        }
    };
    Service::start(rt, SPEC, body, |n| n * 2).unwrap()
}

#[test]
fn requests_are_answered_in_both_worlds() {
    on_both(2, |rt| {
        Box::pin(async move {
            let workers = Service::start_workers(&rt, SPEC, 3, |n: u64| n + 1).unwrap();
            let reactor = doubling(&rt);
            for n in 0..20 {
                assert_eq!(reactor.client().call(&rt, n, far(&rt)).await, Ok(n * 2));
                assert_eq!(workers.client().call(&rt, n, far(&rt)).await, Ok(n + 1));
            }
            let client = reactor.client();
            assert_eq!(reactor.stop().await, Stopped::Drained);
            assert_eq!(workers.stop().await, Stopped::Drained);
            let closed = Err(CallError::Closed { service: "helper" });
            assert_eq!(client.call(&rt, 1, far(&rt)).await, closed);
        })
    });
}

/// INV-service-1: a queue that is full refuses, a late answer is none, and both are counted.
#[test]
fn a_full_queue_refuses_and_a_late_answer_is_an_error() {
    on_a_thread(|rt| {
        Box::pin(async move {
            let (go, wait) = mpsc::channel::<()>();
            let (begun, is_begun) = mpsc::channel::<()>();
            let wait = Mutex::new(wait);
            let work = move |n: u64| {
                let _ = begun.send(());
                let _ = wait.lock().unwrap().recv();
                n
            };
            let service = Service::start_workers(&rt, SPEC, 1, work).unwrap();
            let gate = rt.gate("callers");
            let answers = Rc::new(RefCell::new(Vec::new()));
            // Long enough that a busy machine enqueues the call before its deadline.
            let soon = rt.now() + Duration::from_millis(500);
            // The second of those that wait is not asked for any more when there has to be room.
            for (n, deadline) in [(0, far(&rt)), (1, far(&rt)), (2, soon)] {
                let (client, rt2, answers) = (service.client(), rt.clone(), answers.clone());
                let call = async move {
                    let answer = client.call(&rt2, n, deadline).await;
                    answers.borrow_mut().push((n, answer));
                };
                gate.spawn(&rt, crate::Group::Admin, "call", call).unwrap();
                // The first one is taken from the queue, the others wait.
                while n == 0 && is_begun.try_recv().is_err() {
                    rt.sleep(Duration::from_micros(100)).await;
                }
                while service.queued() != n as usize {
                    rt.sleep(Duration::from_micros(100)).await;
                }
            }
            let full = Err(CallError::Full { service: "helper" });
            assert_eq!(service.client().call(&rt, 3, far(&rt)).await, full);
            while answers.borrow().is_empty() {
                rt.sleep(Duration::from_micros(100)).await;
            }
            assert_eq!(*answers.borrow(), [(2, Err(CallError::Late { service: "helper" }))]);
            let (client, rt2, got) = (service.client(), rt.clone(), answers.clone());
            let call = async move {
                let answer = client.call(&rt2, 4, far(&rt2)).await;
                got.borrow_mut().push((4, answer));
            };
            gate.spawn(&rt, crate::Group::Admin, "call", call).unwrap();
            for _ in 0..3 {
                go.send(()).unwrap();
            }
            gate.close().await;
            let late = Err(CallError::Late { service: "helper" });
            // Answers that are ready in the same poll of the shard arrive in any order.
            let mut answers = answers.take();
            answers.sort_by_key(|(n, _)| *n);
            assert_eq!(answers, [(0, Ok(0)), (1, Ok(1)), (2, late), (4, Ok(4))]);
            assert_eq!(service.stop().await, Stopped::Drained);
            assert_eq!(counted(&rt, "service_requests_refused_total"), 1);
            assert_eq!(counted(&rt, "service_requests_late_total"), 1);
        })
    });
}

/// INV-service-2: the error of a panic, or of an unrequested return, has the service's name.
#[test]
fn a_service_that_ends_unasked_says_why() {
    on_a_thread(|rt| {
        Box::pin(async move {
            let body = |scope: crate::service::Scope<(), ()>| async move {
                let request: Option<Request<(), ()>> = scope.next().await;
                drop(request);
                panic!("on purpose");
            };
            let service = Service::start(&rt, SPEC, body, |()| ()).unwrap();
            let closed = Err(CallError::Closed { service: "helper" });
            assert_eq!(service.client().call(&rt, (), far(&rt)).await, closed);
            let failure = service.failure().await.unwrap();
            assert_eq!(failure.to_string(), "the service helper panicked: on purpose");
            // The service takes no more requests, and the caller does not wait.
            assert_eq!(service.client().call(&rt, (), far(&rt)).await, closed);
            service.stop().await;

            let body = |_: crate::service::Scope<(), ()>| async {};
            let service = Service::start(&rt, SPEC, body, |()| ()).unwrap();
            let failure = service.failure().await;
            assert_eq!(failure, Some(ServiceFailure::Returned { service: "helper" }));

            let work = |n: u64| if n == 1 { panic!("worker {n}") } else { n };
            let service = Service::start_workers(&rt, SPEC, 2, work).unwrap();
            let closed = Err(CallError::Closed { service: "helper" });
            assert_eq!(service.client().call(&rt, 0, far(&rt)).await, Ok(0));
            assert_eq!(service.client().call(&rt, 1, far(&rt)).await, closed);
            let failure = service.failure().await.unwrap();
            assert_eq!(failure.to_string(), "the service helper panicked: worker 1");
            assert_eq!(service.client().call(&rt, 0, far(&rt)).await, closed);

            let service = doubling(&rt);
            let failure = service.failure();
            assert_eq!(service.stop().await, Stopped::Drained);
            assert_eq!(failure.await, None);
        })
    });
}

/// INV-service-3.
#[test]
fn stopping_takes_no_longer_than_its_bounds() {
    on_a_thread(|rt| {
        Box::pin(async move {
            // Its body would wait for ever: it is dropped.
            let spec = ServiceSpec { drain_max: Duration::from_millis(1), ..SPEC };
            let body = |scope: crate::service::Scope<(), ()>| async move {
                scope.stop_requested().await;
                std::future::pending::<()>().await;
            };
            let service = Service::start(&rt, spec, body, |()| ()).unwrap();
            assert_eq!(service.stop().await, Stopped::Aborted);

            // Its thread would wait for ever: it is left behind, and what waits for it is answered.
            let spec = ServiceSpec { abort_max: Duration::from_millis(1), ..spec };
            let (go, wait) = mpsc::channel::<()>();
            let (begun, is_begun) = mpsc::channel::<()>();
            let wait = Mutex::new(wait);
            let work = move |()| {
                let _ = begun.send(());
                let _ = wait.lock().unwrap().recv();
            };
            let service = Service::start_workers(&rt, spec, 1, work).unwrap();
            let gate = rt.gate("callers");
            let answer = Rc::new(Cell::new(None));
            for _ in 0..2 {
                let (client, rt2, answer) = (service.client(), rt.clone(), answer.clone());
                let call = async move { answer.set(Some(client.call(&rt2, (), far(&rt2)).await)) };
                gate.spawn(&rt, crate::Group::Admin, "call", call).unwrap();
            }
            while is_begun.try_recv().is_err() || service.queued() == 0 {
                rt.sleep(Duration::from_micros(100)).await;
            }
            let failure = service.failure();
            assert_eq!(service.stop().await, Stopped::LeftBehind);
            assert_eq!(failure.await, None);
            assert_eq!(answer.take(), Some(Err(CallError::Closed { service: "helper" })));
            go.send(()).unwrap();
            gate.close().await;
        })
    });
}

#[test]
fn calls_of_a_service_to_shards_are_bounded_and_counted() {
    on_a_thread(|rt| {
        Box::pin(async move {
            // No shard serves this mesh: its ring takes one request.
            let mesh: Mesh<u64, u64> = Mesh::new(1, 1);
            let shards = mesh.foreign();
            let body = move |scope: crate::service::Scope<(), String>| async move {
                let caller = scope.caller(shards);
                while let Some(request) = scope.next().await {
                    assert!(scope.remaining(&request) <= Duration::from_secs(60));
                    let first = caller.call(ShardId(0), 1);
                    let second = caller.call(ShardId(0), 2).await;
                    let late = caller.within(Duration::from_millis(1), first).await;
                    request.into_parts().1.send(format!("{second:?} {late:?}"));
                }
            };
            let service = Service::start(&rt, SPEC, body, |()| String::new()).unwrap();
            let answer = service.client().call(&rt, (), far(&rt)).await.unwrap();
            assert_eq!(answer, "Err(Full) Err(Elapsed)");
            assert_eq!(service.stop().await, Stopped::Drained);
            assert_eq!(counted(&rt, "service_calls_refused_total"), 1);
            assert_eq!(counted(&rt, "service_calls_late_total"), 1);
        })
    });
}

/// The world delays and drops requests by its seed, and equal seeds do the same.
#[test]
fn a_simulated_service_is_slow_and_fails_by_the_seed() {
    let run = |seed| {
        let options =
            WorldOptions { service_failures_per_million: 300_000, ..WorldOptions::default() };
        let world = World::new(seed, options);
        let seen: Rc<RefCell<Vec<(u64, bool)>>> = Rc::default();
        let all = seen.clone();
        in_world(&world, "client", move |rt| async move {
            let spec = ServiceSpec { requests_max: 100, ..SPEC };
            let service = Service::start_workers(&rt, spec, 1, |n: u64| n).unwrap();
            let gate = rt.gate("callers");
            for n in 0..40 {
                let (client, rt2, all) = (service.client(), rt.clone(), all.clone());
                let call = async move {
                    let answer = client.call(&rt2, n, far(&rt2)).await;
                    let is_dropped = answer == Err(CallError::Closed { service: "helper" });
                    assert!(is_dropped || answer == Ok(n), "{answer:?}");
                    all.borrow_mut().push((n, is_dropped));
                };
                gate.spawn(&rt, crate::Group::Admin, "call", call).unwrap();
            }
            gate.close().await;
            assert_eq!(service.stop().await, Stopped::Drained);
        });
        (seen.take(), world.trace_hash())
    };
    let (seen, hash) = run(3);
    assert_eq!((seen.clone(), hash), run(3));
    assert_ne!(hash, run(4).1);
    assert!(seen.iter().any(|(_, is_dropped)| *is_dropped));
    assert!(!seen.iter().all(|(_, is_dropped)| *is_dropped));
    assert!(!seen.is_sorted_by_key(|(n, _)| *n), "answers overtake each other");
}

#[test]
fn a_simulated_service_that_is_dropped_answers_nobody() {
    let world = World::new(1, WorldOptions::default());
    in_world(&world, "client", |rt| async move {
        let service = doubling(&rt);
        let (client, failure) = (service.client(), service.failure());
        let call = client.call(&rt, 1, far(&rt));
        drop(service);
        assert_eq!(call.await, Err(CallError::Closed { service: "helper" }));
        assert_eq!(failure.await, None);
    });
}
