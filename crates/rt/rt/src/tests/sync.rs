use super::*;
use crate::Group;
use crate::sync::{Notify, Semaphore, oneshot, queue};
use std::cell::RefCell;

fn run(test: impl Fn(Rt) -> Boxed + Send + Sync + Clone + 'static) {
    for seed in 0..20 {
        simulated(seed, 1, main_of(test.clone()));
    }
}

#[test]
fn oneshot_gives_the_value_or_tells_that_none_comes() {
    run(|rt| {
        Box::pin(async move {
            let (sender, receiver) = oneshot::channel();
            let gate = rt.gate("t");
            let task = async move { sender.send(5).unwrap() };
            gate.spawn(&rt, Group::Admin, "send", task).unwrap();
            assert_eq!(receiver.await, Ok(5));
            let (sender, receiver) = oneshot::channel::<u8>();
            drop(sender);
            assert_eq!(receiver.await, Err(oneshot::Dropped));
            let (sender, receiver) = oneshot::channel();
            drop(receiver);
            assert!(sender.is_closed());
            assert_eq!(sender.send(6), Err(6));
        })
    });
}

#[test]
fn semaphore_serves_in_order_and_takes_back_from_the_dropped() {
    run(|rt| {
        Box::pin(async move {
            let semaphore = Semaphore::new(10);
            let held = semaphore.acquire(8).await;
            assert!(semaphore.try_acquire(3).is_none());
            let order = Rc::new(RefCell::new(Vec::new()));
            let gate = rt.gate("t");
            for (i, n) in [(0u64, 10), (1, 10), (2, 10)] {
                let (semaphore, order, task_rt) =
                    (semaphore.clone(), Rc::clone(&order), rt.clone());
                let task = async move {
                    task_rt.sleep(Duration::from_millis(i + 1)).await;
                    let _permit = semaphore.acquire(n).await;
                    order.borrow_mut().push(i);
                };
                gate.spawn(&rt, Group::Admin, "acquire", task).unwrap();
            }
            rt.sleep(Duration::from_millis(10)).await;
            // A small request would fit, but none overtakes the first.
            assert_eq!((semaphore.waiting(), semaphore.available()), (3, 2));
            assert!(semaphore.try_acquire(1).is_none());
            let late = rt.now() + Duration::from_millis(1);
            assert!(rt.timeout(late, semaphore.acquire(1)).await.is_err());
            drop(held);
            gate.close().await;
            assert_eq!(semaphore.available(), 10);
            assert_eq!(*order.borrow(), [0, 1, 2]);
        })
    });
}

#[test]
fn a_permit_granted_to_a_dropped_waiter_is_not_lost() {
    run(|rt| {
        Box::pin(async move {
            let semaphore = Semaphore::new(1);
            let held = semaphore.acquire(1).await;
            let mut waiting = Box::pin(semaphore.acquire(1));
            let now = rt.now();
            assert!(rt.timeout(now, waiting.as_mut()).await.is_err());
            drop(held);
            assert_eq!(semaphore.available(), 0, "granted to the waiter");
            drop(waiting);
            assert_eq!(semaphore.available(), 1);
        })
    });
}

#[test]
fn notify_keeps_one_permit_and_wakes_in_order() {
    run(|rt| {
        Box::pin(async move {
            let notify = Notify::new();
            notify.notify_one();
            notify.notify_one();
            notify.notified().await;
            let now = rt.now();
            assert!(rt.timeout(now, notify.notified()).await.is_err(), "one permit only");
            let mut first = Box::pin(notify.notified());
            let mut second = Box::pin(notify.notified());
            assert!(rt.timeout(now, first.as_mut()).await.is_err());
            assert!(rt.timeout(now, second.as_mut()).await.is_err());
            notify.notify_one();
            assert!(rt.timeout(now, second.as_mut()).await.is_err());
            // The chosen one leaves: its wake-up goes to the next.
            drop(first);
            second.await;
            let mut all: Vec<_> = (0..3).map(|_| Box::pin(notify.notified())).collect();
            for one in &mut all {
                assert!(rt.timeout(now, one.as_mut()).await.is_err());
            }
            notify.notify_waiters();
            for one in all {
                one.await;
            }
        })
    });
}

#[test]
fn queue_is_bounded_ordered_and_ends_with_its_senders() {
    run(|rt| {
        Box::pin(async move {
            let (sender, receiver) = queue::bounded(2);
            let gate = rt.gate("t");
            let task = async move {
                for n in 0..20 {
                    sender.send(n).await.unwrap();
                }
            };
            gate.spawn(&rt, Group::Admin, "send", task).unwrap();
            let mut got = Vec::new();
            while let Some(n) = receiver.recv().await {
                assert!(receiver.len() <= 2);
                got.push(n);
            }
            assert_eq!(got, (0..20).collect::<Vec<_>>());
            let (sender, receiver) = queue::bounded(1);
            sender.try_send(1).unwrap();
            assert_eq!(sender.try_send(2), Err(queue::TrySendError::Full(2)));
            drop(receiver);
            assert_eq!(sender.try_send(3), Err(queue::TrySendError::Closed(3)));
            assert_eq!(sender.send(4).await, Err(4));
        })
    });
}
