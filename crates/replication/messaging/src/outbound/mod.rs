//! The side that asks: routes to peers, connections, requests.
//!
//! A [`Route`] outlives its connections: it remembers how the last attempt failed and when the next
//! one may be made.

mod futures;
mod handshake;
mod link_task;
mod requests;

pub use futures::{RequestFuture, Response};
pub use requests::Client;

use crate::clocks::Clocks;
use crate::completions::Clients;
use crate::dropped_log::DroppedMessage;
use crate::env::Env;
use crate::error::{MessagingError, OpenError};
use crate::hooks::Hooks;
use crate::io::group_of;
use crate::link::{Link, RouteKey};
use crate::outbox::Outbox;
use crate::peer::Outgoing;
use futures::Futures;
use internode::FrameEncoder;
use rt::sync::Notify;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use stdx::{HostId, Instant};

/// State of a route to a peer.
#[derive(Default)]
pub(crate) struct Route {
    pub(crate) link: Option<Rc<Link>>,
    /// Attempts that failed since the last success.
    pub(crate) failures: u32,
    pub(crate) retry_at: Instant,
    last_error: Option<Failure>,
}

/// Failure of the last attempt.
#[derive(Clone)]
pub(crate) enum Failure {
    Cause(Arc<str>),
    /// Like `Cause`; an operator has to look after it.
    NotEncrypted(Arc<str>),
    Refused(internode::RefusalCode, Arc<str>),
}

impl Route {
    fn error(&self, host: HostId, now: Instant) -> MessagingError {
        let retry_in = self.retry_at.since(now);
        match &self.last_error {
            Some(failure) => failure.as_error(host, retry_in),
            None => MessagingError::Unreachable { host, retry_in, cause: "not tried".into() },
        }
    }
}

impl Failure {
    pub(crate) fn of(error: &OpenError) -> Failure {
        match error {
            OpenError::Refused { code, message } => Failure::Refused(*code, message.clone()),
            OpenError::NotEncrypted(_) => Failure::NotEncrypted(error.to_string().into()),
            other => Failure::Cause(other.to_string().into()),
        }
    }

    pub(crate) fn as_error(&self, host: HostId, retry_in: Duration) -> MessagingError {
        match self {
            Failure::Cause(cause) | Failure::NotEncrypted(cause) => {
                MessagingError::Unreachable { host, retry_in, cause: cause.clone() }
            }
            Failure::Refused(code, message) => {
                MessagingError::Refused { host, code: *code, message: message.clone() }
            }
        }
    }
}

/// Connections to peers and the requests on them.
pub(crate) struct Outbound {
    pub(crate) env: Rc<Env>,
    hooks: Rc<Hooks>,
    pub(crate) clients: Clients,
    futures: Rc<Futures>,
    /// The client of [`Outbound::request`].
    futures_client: usize,
    pub(crate) clocks: Clocks,
    routes: RefCell<BTreeMap<RouteKey, Route>>,
    links: RefCell<BTreeMap<u64, Rc<Link>>>,
    /// Time at which the timer task wakes without a notification.
    armed: Cell<Instant>,
    timer: Notify,
}

impl Outbound {
    pub(crate) fn new(env: Rc<Env>, hooks: Rc<Hooks>) -> Outbound {
        let (clients, futures) = (Clients::default(), Rc::new(Futures::default()));
        let futures_client = clients.add(futures.clone());
        Outbound {
            env,
            hooks,
            clients,
            futures,
            futures_client,
            clocks: Clocks::default(),
            routes: RefCell::default(),
            links: RefCell::default(),
            armed: Cell::new(Instant(u64::MAX)),
            timer: Notify::new(),
        }
    }

    /// All connections.
    pub(crate) fn links(&self) -> Vec<Rc<Link>> {
        self.links.borrow().values().cloned().collect()
    }

    /// Wakes the timer task.
    pub(crate) fn wake_timer(&self) {
        self.timer.notify_one();
    }

    /// Cuts the links to these addresses and heals all others.
    pub(crate) fn cut(&self, addresses: BTreeSet<IpAddr>) {
        self.env.cuts.set(addresses);
        for link in self.links.borrow().values() {
            link.is_cut.set(self.env.cuts.contains(link.address.ip()));
            link.outbox.wake_writer();
            link.changed.notify_waiters();
        }
        self.env.cuts.wake();
    }

    /// The connection for a message, opened when there is none.
    pub(crate) fn link_for(
        self: &Rc<Self>,
        to: &Outgoing,
        now: Instant,
    ) -> Result<Rc<Link>, MessagingError> {
        if self.env.draining.get() {
            return Err(MessagingError::Stopping);
        }
        let key = (to.host, to.shard, to.verb.lane());
        {
            let routes = self.routes.borrow();
            let open = routes.get(&key).and_then(|route| route.link.as_ref());
            if let Some(link) = open.filter(|link| !link.outbox.is_closed()) {
                return Ok(link.clone());
            }
        }
        let Some(peer) = self.env.peers.borrow().get(&to.host).copied() else {
            return Err(MessagingError::UnknownHost(to.host));
        };
        if peer.address.port() == 0 {
            // A member without a known address.
            self.env.dropped(to.verb, DroppedMessage::Internal(Duration::ZERO));
            let (retry_in, cause) =
                (self.env.settings.backoff_max, "its address is not known".into());
            return Err(MessagingError::Unreachable { host: to.host, retry_in, cause });
        }
        let mut routes = self.routes.borrow_mut();
        let route = routes.entry(key).or_default();
        if now < route.retry_at {
            self.env.dropped(to.verb, DroppedMessage::Internal(Duration::ZERO));
            return Err(route.error(to.host, now));
        }
        let encoder = FrameEncoder::new(false, self.env.settings.payload_bytes_max);
        let link = Rc::new(Link {
            id: self.env.next_id(),
            key,
            address: peer.address,
            outbox: Outbox::new(encoder, self.env.queued_bytes.clone()),
            counters: self.env.counters.peer(to.host),
            in_flight: Cell::new(0),
            opened_at: Cell::new(None),
            last_request: Cell::new(now),
            last_received: Cell::new(now),
            conn: RefCell::new(None),
            abort: Notify::new(),
            is_cut: Cell::new(self.env.cuts.contains(peer.address.ip())),
            changed: Notify::new(),
            closing: RefCell::new(None),
        });
        let (outbound, of_task) = (self.clone(), link.clone());
        let task = async move { outbound.run_link(of_task).await };
        let group = group_of(key.2);
        if self.env.gate.spawn(&self.env.rt, group, "internode-link", task).is_err() {
            return Err(MessagingError::Stopping);
        }
        route.link = Some(link.clone());
        self.links.borrow_mut().insert(link.id, link.clone());
        Ok(link)
    }

    pub(crate) fn drop_routes(&self, host: HostId, why: &'static str) {
        let dropped: Vec<Route> = {
            let mut routes = self.routes.borrow_mut();
            let keys: Vec<RouteKey> = routes.keys().filter(|key| key.0 == host).copied().collect();
            keys.iter().filter_map(|key| routes.remove(key)).collect()
        };
        for link in dropped.into_iter().filter_map(|route| route.link) {
            link.close(why);
        }
    }

    pub(crate) fn reset_backoff(&self, host: HostId) {
        for (_, route) in self.routes.borrow_mut().iter_mut().filter(|(key, _)| key.0 == host) {
            route.failures = 0;
            route.retry_at = Instant::ZERO;
        }
    }

    /// After a failed attempt: a pause that doubles, with jitter so that peers do not all come back
    /// in one moment.
    pub(crate) fn postpone(&self, link: &Link, route: &mut Route, failure: Failure, now: Instant) {
        link.counters.connect_failures.inc();
        let settings = &self.env.settings;
        let doubled = settings.backoff_min.saturating_mul(1 << route.failures.min(16));
        let base = doubled.min(settings.backoff_max);
        let percent = 50 + self.env.rt.random_u64() % 101;
        let pause = base.saturating_mul(u32::try_from(percent).unwrap_or(100)) / 100;
        if route.failures == 0 {
            // Once per outage.
            let (peer, host) = (link.address, link.host());
            match &failure {
                Failure::Refused(code, message) => {
                    tracing::warn!(%peer, %host, ?code, %message, "refused by a peer");
                }
                Failure::Cause(cause) => tracing::info!(%peer, %host, %cause, "peer unreachable"),
                Failure::NotEncrypted(cause) => {
                    tracing::warn!(%peer, %host, %cause, "peer unreachable");
                }
            }
        }
        route.failures = route.failures.saturating_add(1);
        route.retry_at = now + pause;
        route.last_error = Some(failure);
    }
}
