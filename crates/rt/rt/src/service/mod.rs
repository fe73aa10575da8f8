//! Services: helpers of a node on threads of their own, for what must not run on a shard.
//!
//! HTTP servers, clients of object stores and sinks of events need libraries that bring a runtime; hashing of
//! passwords takes a processor for tens of milliseconds. Each is one [`Service`]: a named thread with a reactor
//! ([`Service::start`]), or a few threads without one ([`Service::start_workers`]), a bounded queue of typed
//! requests from shards ([`Client`]), and bounded calls to shards ([`ServiceCaller`]).
//!
//! Owns: the queues and their bounds, deadlines, the order to drain and to stop, how a service ended. Never: what
//! a service does; retries; logs (the node that started it does, [`Service::failure`]).
//!
//! Invariants:
//! - INV-service-1: each request is answered once or its caller gets an error, by its deadline; whatever the
//!   service does, its queue holds no more than its spec says.
//! - INV-service-2: a service that ended without being asked to has a [`ServiceFailure`] with its name.
//! - INV-service-3: [`Service::stop`] takes no longer than [`ServiceSpec::drain_max`] and
//!   [`ServiceSpec::abort_max`] together, even when the service never returns.
//!
//! **The simulated form.** Libraries with a runtime cannot run in virtual time, so a service with a reactor names
//! a *double* beside its body: a plain function from request to answer, which tests control. Work without a
//! runtime is its own double. The world delays each request by
//! [`WorldOptions::service_micros`](crate::sim::WorldOptions), so that answers overtake each other, and drops
//! [`WorldOptions::service_failures_per_million`](crate::sim::WorldOptions) of them, as a service that died does.
//! A service that only calls shards (the API of administrators) has nothing to do in a simulated world:
//! scenarios call the same mesh.
//!
//! Reading order: [`Service`], [`Client`], [`Scope`], `control`, `queue`.

mod control;
mod queue;
mod scope;

use crate::env::Env;
use crate::executor::Group;
use crate::gate::Gate;
use crate::handle::Rt;
use control::{Control, Order};
pub use queue::{CallError, Client, Request};
use queue::{Queue, Taken};
pub use rt_native::service::Priority;
use rt_native::service::{Ended, Workers};
pub use scope::{Scope, ServiceCaller};
use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Name and bounds of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceSpec {
    /// Names its threads, its metrics and its failure.
    pub name: &'static str,
    /// Requests that wait at most; more are refused.
    pub requests_max: usize,
    /// How long [`Service::stop`] waits for requests that were taken. Zero: they are dropped at once.
    pub drain_max: Duration,
    /// How long it waits after that for the threads to end.
    pub abort_max: Duration,
    /// Priority of its threads; that of a service with a reactor is always the usual one.
    pub priority: Priority,
}

/// A service that ended without being asked to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServiceFailure {
    /// Its code panicked.
    #[error("the service {service} panicked: {detail}")]
    Panicked {
        /// Name of the service.
        service: &'static str,
        /// Message of the panic.
        detail: String,
    },
    /// Its code returned.
    #[error("the service {service} ended")]
    Returned {
        /// Name of the service.
        service: &'static str,
    },
}

/// Outcome of [`Service::stop`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// All requests that it had taken were served.
    Drained,
    /// The rest was dropped.
    Aborted,
    /// A thread does not return from its code; it is left alone until the process ends.
    LeftBehind,
}

/// Returns true where services run on threads of their own; in a simulated world their doubles answer. For services
/// without a double, never for decisions about data.
pub fn have_threads(rt: &Rt) -> bool {
    matches!(rt.inner.env, Env::Native(_))
}

/// A running service, owned by the shard that started it. Dropping it aborts it without waiting.
pub struct Service<Q: Send + 'static, R: Send + 'static> {
    rt: Rt,
    spec: ServiceSpec,
    queue: Arc<Queue<Q, R>>,
    /// Owns the task that counts and, in a simulated world, those of the double.
    gate: Gate,
}

impl<Q: Send + 'static, R: Send + 'static> Service<Q, R> {
    /// Starts `body` on a thread with a reactor; in a simulated world `double` answers in its place. The body
    /// must not block its thread.
    ///
    /// # Errors
    /// The system refused a thread or a reactor.
    pub fn start<F: Future<Output = ()> + 'static>(
        rt: &Rt,
        spec: ServiceSpec,
        body: impl FnOnce(Scope<Q, R>) -> F + Send + 'static,
        double: impl FnMut(Q) -> R + 'static,
    ) -> io::Result<Service<Q, R>> {
        let service = Service::new(rt, spec, 1);
        match &rt.inner.env {
            Env::Native(env) => {
                let (queue, clock) = (Arc::clone(&service.queue), env.clock());
                let of_end = Arc::clone(&queue);
                let body = move || {
                    let control = Arc::clone(&queue.control);
                    let body = body(Scope::new(queue, clock));
                    async move {
                        control.unless_aborted(body).await;
                    }
                };
                let ended = move |end| of_end.ended(end);
                rt_native::service::start_reactor(spec.name, body, ended)?;
            }
            Env::Sim(env) => service.simulate(env.clone(), double),
        }
        service.count();
        Ok(service)
    }

    /// Starts `threads` threads (at least 1) that carry out `work`, which may block or compute for long. A simulated
    /// world runs it in place.
    ///
    /// # Errors
    /// The system refused a thread.
    pub fn start_workers(
        rt: &Rt,
        spec: ServiceSpec,
        threads: u16,
        work: impl Fn(Q) -> R + Send + Sync + 'static,
    ) -> io::Result<Service<Q, R>> {
        let threads = if have_threads(rt) { threads.max(1) } else { 1 };
        let service = Service::new(rt, spec, threads);
        match &rt.inner.env {
            Env::Native(_) => {
                let (queue, of_end) = (Arc::clone(&service.queue), Arc::clone(&service.queue));
                let serve = move || {
                    while let Taken::Request(request) = rt_native::service::block_on(queue.take()) {
                        let (what, reply) = request.into_parts();
                        reply.send(work(what));
                    }
                };
                let ended = move |end| of_end.ended(end);
                let workers = Workers { name: spec.name, threads, priority: spec.priority };
                rt_native::service::start_workers(workers, serve, ended)?;
            }
            Env::Sim(env) => service.simulate(env.clone(), work),
        }
        service.count();
        Ok(service)
    }

    fn new(rt: &Rt, spec: ServiceSpec, threads: u16) -> Service<Q, R> {
        let control = Arc::new(Control::new(spec.name, threads));
        let queue = Arc::new(Queue::new(control, spec.requests_max));
        Service { rt: rt.clone(), spec, queue, gate: rt.gate(spec.name) }
    }

    /// Answers with the double, after the world's delays.
    fn simulate(&self, env: rt_sim::Env, double: impl FnMut(Q) -> R + 'static) {
        let double = Rc::new(RefCell::new(double));
        let (rt, queue, gate) = (self.rt.clone(), Arc::clone(&self.queue), self.gate.clone());
        let name = self.spec.name;
        let serve = async move {
            let requests = rt.gate(name);
            while let Taken::Request(request) = queue.take().await {
                let (env, double) = (env.clone(), Rc::clone(&double));
                let control = Arc::clone(&queue.control);
                let answer = async move {
                    if control.unless_aborted(env.service(name)).await == Some(true) {
                        let (what, reply) = request.into_parts();
                        // Answered outside of the borrow: the caller may be woken by it.
                        let answer = (double.borrow_mut())(what);
                        reply.send(answer);
                    }
                };
                // A shard that ends drops the request, which tells the caller.
                let _ = requests.spawn(&rt, Group::Admin, name, answer);
            }
            requests.close().await;
            queue.ended(Ended::Returned);
        };
        // The gate is new; a shard that ends drops the requests.
        let _ = gate.spawn(&self.rt, Group::Admin, name, serve);
    }

    /// Adds counts of refused requests to this shard's metrics as they occur.
    fn count(&self) {
        let (rt, control, name) =
            (self.rt.clone(), Arc::clone(&self.queue.control), self.spec.name);
        let task = async move {
            while let Some(counts) = control.next_counts().await {
                for (kind, count) in counts {
                    let (metric, help) = kind.metric();
                    rt.telemetry().counter(metric, help, &[("service", name)]).add(count);
                }
            }
        };
        let _ = self.gate.spawn(&self.rt, Group::Admin, name, task);
    }

    /// A caller for shards.
    pub fn client(&self) -> Client<Q, R> {
        Client::new(Arc::clone(&self.queue))
    }

    /// Requests that wait for the service.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Waits for the end of the service; `None` when it was asked to end.
    pub fn failure(&self) -> impl Future<Output = Option<ServiceFailure>> + use<Q, R> {
        let control = Arc::clone(&self.queue.control);
        async move { control.failure().await }
    }

    /// Stops accepting requests; accepted ones are served, and [`Scope::stop_requested`] resolves.
    pub fn drain(&self) {
        self.queue.order(Order::Drain);
    }

    /// Drains the service, then drops the remaining requests, then waits for its threads, within
    /// the bounds of its spec.
    pub async fn stop(self) -> Stopped {
        let (rt, control) = (self.rt.clone(), Arc::clone(&self.queue.control));
        let stopped = if self.spec.drain_max.is_zero() {
            None
        } else {
            self.drain();
            let until = rt.now() + self.spec.drain_max;
            rt.timeout(until, control.end()).await.ok().map(|()| Stopped::Drained)
        };
        let stopped = match stopped {
            Some(stopped) => stopped,
            None => {
                self.queue.order(Order::Abort);
                let until = rt.now() + self.spec.abort_max;
                match rt.timeout(until, control.end()).await {
                    Ok(()) => Stopped::Aborted,
                    Err(_) => Stopped::LeftBehind,
                }
            }
        };
        control.leave();
        self.gate.close().await;
        stopped
    }
}

impl<Q: Send + 'static, R: Send + 'static> Drop for Service<Q, R> {
    fn drop(&mut self) {
        self.queue.order(Order::Abort);
        self.queue.control.leave();
    }
}
