//! The bounded queue of requests from shards to a service.

use super::control::{Control, Count, Order};
use crate::handle::Rt;
use crate::mesh::Reply;
use rt_native::cross::{SlotReceiver, lock, slot};
use rt_native::service::Ended;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use stdx::Instant;

/// Why a request to a service has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The queue is full: shed the request or retry later.
    #[error("the queue of the service {service} is full")]
    Full {
        /// Name of the service.
        service: &'static str,
    },
    /// The deadline passed first. The service drops the request, unless it has begun to serve it.
    #[error("the service {service} did not answer in time")]
    Late {
        /// Name of the service.
        service: &'static str,
    },
    /// The service is stopping or dropped the request.
    #[error("the service {service} is stopping")]
    Closed {
        /// Name of the service.
        service: &'static str,
    },
}

/// A request that a service has to answer. Dropped, the caller gets [`CallError::Closed`].
pub struct Request<Q, R> {
    what: Q,
    deadline: Instant,
    reply: Reply<R>,
}

impl<Q, R> Request<Q, R> {
    /// The question, and the duty to answer.
    pub fn into_parts(self) -> (Q, Reply<R>) {
        (self.what, self.reply)
    }

    /// When the caller stops waiting, on the node's clock: see [`super::Scope::remaining`].
    pub fn deadline(&self) -> Instant {
        self.deadline
    }
}

/// One result of taking from the queue.
pub(super) enum Taken<Q, R> {
    Request(Request<Q, R>),
    /// No more requests will arrive.
    End,
}

pub(super) struct Queue<Q, R> {
    pub(super) control: Arc<Control>,
    capacity: usize,
    requests: Mutex<VecDeque<Request<Q, R>>>,
}

impl<Q, R> Queue<Q, R> {
    pub(super) fn new(control: Arc<Control>, capacity: usize) -> Queue<Q, R> {
        Queue { control, capacity, requests: Mutex::default() }
    }

    pub(super) fn order(&self, order: Order) {
        self.control.give(order);
        if order == Order::Abort {
            self.clear();
        }
    }

    /// A thread of the service has ended.
    pub(super) fn ended(&self, end: Ended) {
        self.control.ended(end);
        // A request that was pushed before the order changed is in the queue by now, see `push`.
        self.clear();
    }

    pub(super) fn len(&self) -> usize {
        lock(&self.requests).len()
    }

    fn clear(&self) {
        let left = std::mem::take(&mut *lock(&self.requests));
        // Outside the lock: dropping wakes the callers.
        drop(left);
    }

    fn push(&self, what: Q, deadline: Instant) -> Result<SlotReceiver<R>, CallError> {
        let (sender, receiver) = slot();
        let request = Request { what, deadline, reply: Reply::new(sender) };
        {
            let mut requests = lock(&self.requests);
            // Under the lock: a change of the order that then empties the queue finds this request.
            if self.control.order() != Order::Serve {
                return Err(CallError::Closed { service: self.control.name });
            }
            if requests.len() >= self.capacity {
                // Requests of callers that stopped waiting make room.
                requests.retain(|request| request.reply.is_wanted());
            }
            if requests.len() >= self.capacity {
                return Err(CallError::Full { service: self.control.name });
            }
            requests.push_back(request);
            stdx::invariant!(
                requests.len() <= self.capacity,
                "INV-service-1: the queue of a service holds more than its bound"
            );
        }
        self.control.wake_workers();
        Ok(receiver)
    }

    /// Waits for a request whose caller still waits.
    pub(super) async fn take(&self) -> Taken<Q, R> {
        poll_fn(|cx| {
            // Register first: a request that arrives in between wakes.
            self.control.register_worker(cx);
            let order = self.control.order();
            if order == Order::Abort {
                self.clear();
                return Poll::Ready(Taken::End);
            }
            loop {
                let first = lock(&self.requests).pop_front();
                match first {
                    Some(request) if request.reply.is_wanted() => {
                        return Poll::Ready(Taken::Request(request));
                    }
                    Some(late) => drop(late),
                    None if order == Order::Drain => return Poll::Ready(Taken::End),
                    None => return Poll::Pending,
                }
            }
        })
        .await
    }
}

/// Calls a service from shards.
pub struct Client<Q, R> {
    queue: Arc<Queue<Q, R>>,
}

impl<Q: Send + 'static, R: Send + 'static> Client<Q, R> {
    pub(super) fn new(queue: Arc<Queue<Q, R>>) -> Client<Q, R> {
        Client { queue }
    }

    /// Asks the service and waits for its answer until `deadline`.
    ///
    /// # Errors
    /// Each is counted by the service, except `Closed`.
    pub async fn call(&self, rt: &Rt, what: Q, deadline: Instant) -> Result<R, CallError> {
        let control = &self.queue.control;
        let service = control.name;
        let began = rt.now();
        let sent = self.queue.push(what, deadline).inspect_err(|error| {
            if matches!(error, CallError::Full { .. }) {
                control.count(Count::RequestRefused);
            }
        });
        match rt.timeout(deadline, sent?).await {
            Ok(Some(answer)) => {
                let took = u64::try_from(rt.now().since(began).as_micros()).unwrap_or(u64::MAX);
                let help = "time from a request to a service until its answer";
                let labels = [("service", service)];
                rt.telemetry().histogram("service_request_micros", help, &labels).record(took);
                Ok(answer)
            }
            Ok(None) => Err(CallError::Closed { service }),
            Err(_) => {
                control.count(Count::RequestLate);
                Err(CallError::Late { service })
            }
        }
    }
}

impl<Q, R> Clone for Client<Q, R> {
    fn clone(&self) -> Client<Q, R> {
        Client { queue: Arc::clone(&self.queue) }
    }
}
