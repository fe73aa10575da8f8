//! The way to a peer: which connection, when to try again, the handshake of who connects.
//!
//! A [`Route`] outlives its connections: it remembers how the last attempt failed and when the next
//! one may be made.

use crate::dropped_log::DroppedMessage;
use crate::error::{MessagingError, OpenError};
use crate::link::{Link, READ_BYTES_MAX, group_of};
use crate::messaging::{Inner, Outgoing};
use crate::outbox::Outbox;
use internode::{Features, FrameEncoder, Handshake, Hello, HelloAck, Lane};
use rt::Stream;
use rt::sync::Notify;
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use stdx::{HostId, Instant, ShardId};

pub(crate) type RouteKey = (HostId, ShardId, Lane);

/// What is remembered about a way to a peer.
#[derive(Default)]
pub(crate) struct Route {
    pub(crate) link: Option<Rc<Link>>,
    /// Attempts that failed since the last success.
    pub(crate) failures: u32,
    pub(crate) retry_at: Instant,
    last_error: Option<Failure>,
}

/// How the last attempt failed.
#[derive(Clone)]
pub(crate) enum Failure {
    Cause(Arc<str>),
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
            other => Failure::Cause(other.to_string().into()),
        }
    }

    pub(crate) fn as_error(&self, host: HostId, retry_in: Duration) -> MessagingError {
        match self {
            Failure::Cause(cause) => {
                MessagingError::Unreachable { host, retry_in, cause: cause.clone() }
            }
            Failure::Refused(code, message) => {
                MessagingError::Refused { host, code: *code, message: message.clone() }
            }
        }
    }
}

impl Inner {
    /// The connection for a message, opened when there is none.
    pub(crate) fn link_for(
        self: &Rc<Self>,
        to: &Outgoing,
        now: Instant,
    ) -> Result<Rc<Link>, MessagingError> {
        if self.draining.get() {
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
        let Some(peer) = self.peers.borrow().get(&to.host).copied() else {
            return Err(MessagingError::UnknownHost(to.host));
        };
        if peer.address.port() == 0 {
            // A member that has not said yet where it is.
            self.dropped(to.verb, DroppedMessage::Internal(Duration::ZERO));
            let (retry_in, cause) = (self.settings.backoff_max, "its address is not known".into());
            return Err(MessagingError::Unreachable { host: to.host, retry_in, cause });
        }
        let mut routes = self.routes.borrow_mut();
        let route = routes.entry(key).or_default();
        if now < route.retry_at {
            self.dropped(to.verb, DroppedMessage::Internal(Duration::ZERO));
            return Err(route.error(to.host, now));
        }
        let encoder = FrameEncoder::new(false, self.settings.payload_bytes_max);
        let link = Rc::new(Link {
            id: self.next_id(),
            key,
            address: peer.address,
            outbox: Outbox::new(encoder, self.queued_bytes.clone()),
            counters: self.counters.peer(to.host),
            in_flight: Cell::new(0),
            opened_at: Cell::new(None),
            last_request: Cell::new(now),
            last_received: Cell::new(now),
            conn: RefCell::new(None),
            abort: Notify::new(),
            is_cut: Cell::new(self.cuts.contains(peer.address.ip())),
            changed: Notify::new(),
            closing: RefCell::new(None),
        });
        let (inner, of_task) = (self.clone(), link.clone());
        let task = async move { inner.run_link(of_task).await };
        let group = group_of(key.2);
        if self.gate.spawn(&self.rt, group, "internode-link", task).is_err() {
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
        let settings = &self.settings;
        let doubled = settings.backoff_min.saturating_mul(1 << route.failures.min(16));
        let base = doubled.min(settings.backoff_max);
        let percent = 50 + self.rt.random_u64() % 101;
        let pause = base.saturating_mul(u32::try_from(percent).unwrap_or(100)) / 100;
        if route.failures == 0 {
            // Once per outage.
            let (peer, host) = (link.address, link.host());
            match &failure {
                Failure::Refused(code, message) => {
                    tracing::warn!(%peer, %host, ?code, %message, "refused by a peer");
                }
                Failure::Cause(cause) => tracing::info!(%peer, %host, %cause, "peer unreachable"),
            }
        }
        route.failures = route.failures.saturating_add(1);
        route.retry_at = now + pause;
        route.last_error = Some(failure);
    }

    pub(crate) async fn discover(&self, address: SocketAddr) -> Result<HelloAck, OpenError> {
        let hello = self.hello(None, ShardId(0), Lane::Probe, address);
        let opening = pin!(self.open(address, hello));
        let stopping = pin!(async {
            while !self.ended.get() && !self.draining.get() {
                self.changed.notified().await;
            }
        });
        let (conn, ack, _) = first_of(opening, stopping).await.ok_or(OpenError::Stopping)??;
        conn.shutdown();
        Ok(ack)
    }

    pub(crate) fn hello(
        &self,
        to: Option<HostId>,
        shard: ShardId,
        lane: Lane,
        address: SocketAddr,
    ) -> Hello {
        let identity = self.identity();
        let hook = self.compressed.borrow().clone();
        let is_chosen = hook.zip(to).is_none_or(|(hook, to)| hook(to));
        let compress = self.settings.compression && !address.ip().is_loopback() && is_chosen;
        let features = if compress { Features::LZ4 } else { Features::NONE };
        Hello {
            versions: identity.versions,
            features: identity.features.common(features),
            lane,
            joining: identity.joining,
            cluster_id: identity.cluster_id,
            cluster_name: identity.cluster_name.clone(),
            from: identity.host_id,
            to,
            incarnation: identity.incarnation,
            source_shard: self.rt.shard(),
            shard_count: identity.shard_count,
            destination_shard: shard,
        }
    }

    /// Connects and shakes hands. Also gives what came behind the answer.
    pub(crate) async fn open(
        &self,
        address: SocketAddr,
        hello: Hello,
    ) -> Result<(Stream, HelloAck, Vec<u8>), OpenError> {
        let deadline = self.rt.now() + self.settings.connect_timeout;
        let opening = async {
            self.passable(address.ip()).await;
            let conn = Stream::plain(self.rt.connect(address).await?);
            let mut bytes = Vec::new();
            Handshake::Hello(hello.clone()).encode(&mut bytes);
            conn.write_all(&bytes).await?;
            bytes.clear();
            loop {
                if conn.read(&mut bytes, READ_BYTES_MAX).await? == 0 {
                    return Err(OpenError::Closed);
                }
                let bad = |e: &dyn std::fmt::Display| OpenError::BadAnswer(e.to_string());
                match Handshake::decode(&bytes).map_err(|e| bad(&e))? {
                    None => {}
                    Some((Handshake::Ack(ack), length)) => {
                        self.identity().check_ack(&hello, &ack).map_err(|e| bad(&e))?;
                        bytes.drain(..length);
                        return Ok((conn, ack, bytes));
                    }
                    Some((Handshake::Refused(refused), _)) => {
                        let (code, message) = (refused.code, refused.message.into());
                        return Err(OpenError::Refused { code, message });
                    }
                    Some((Handshake::Hello(_), _)) => {
                        return Err(bad(&"a HELLO instead of an answer"));
                    }
                }
            }
        };
        self.rt.timeout(deadline, opening).await.unwrap_or(Err(OpenError::Timeout))
    }
}

/// The first future's output, or `None` when the second is done before.
pub(crate) async fn first_of<A: Future, B: Future>(first: A, second: B) -> Option<A::Output> {
    let (mut first, mut second) = (pin!(first), pin!(second));
    poll_fn(|cx| {
        if let Poll::Ready(output) = first.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        second.as_mut().poll(cx).map(|_| None)
    })
    .await
}
