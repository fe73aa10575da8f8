//! Connections on their way in: ports, limits on how many, which shard gets one.
//!
//! Owns: the listeners and their pause, the counts by client address. Never: what a connection says
//! ([`crate::connection`]). Where connections are counted: a connection counts for its shard (the
//! mesh) from when it was placed, and for its client's address on shard 0, which accepts it.

use crate::connection::Connection;
use crate::driver;
use crate::mesh::ServerRequest;
use crate::server::{CqlServer, Server};
use rt::{Group, ListenOptions, Stream};
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;
use stdx::{IoError, ShardId};

/// Between two looks whether a shard that is paused has come to rest.
const PAUSE_LOOK: Duration = Duration::from_millis(5);

/// Which port a listener is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Port {
    /// Any shard may get the connection.
    Balanced,
    /// The client's source port picks the shard.
    ShardAware,
}

impl CqlServer {
    /// Listens for connections of any driver; each goes to the shard with fewest. To be called on
    /// one shard only. Returns the address, with the port chosen when 0 was asked for.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub async fn listen(&self, address: SocketAddr) -> Result<SocketAddr, IoError> {
        self.listen_on(address, Port::Balanced).await
    }

    /// Listens for shard-aware drivers: a connection goes to shard (source port % shards).
    ///
    /// # Errors
    /// As [`CqlServer::listen`].
    pub async fn listen_shard_aware(&self, address: SocketAddr) -> Result<SocketAddr, IoError> {
        self.listen_on(address, Port::ShardAware).await
    }

    async fn listen_on(&self, address: SocketAddr, port: Port) -> Result<SocketAddr, IoError> {
        let rt = &self.inner.rt;
        let listener = rt.listen(address, ListenOptions::default()).await?;
        let local = listener.local_addr();
        let server = self.clone();
        let open = Listening::new(&self.inner);
        let task = async move {
            let _open = open;
            let rt = server.inner.rt.clone();
            let mut accept_error_pause = Duration::from_millis(1);
            while !server.inner.is_draining() {
                let stopping = server.inner.drained.notified();
                let accepted = first_of(listener.accept(), stopping).await;
                match accepted {
                    None => break,
                    Some(Ok(conn)) => {
                        accept_error_pause = Duration::from_millis(1);
                        if server.inner.settings.keepalive {
                            conn.set_keepalive();
                        }
                        server.place(Stream::plain(conn), port);
                    }
                    Some(Err(error)) => {
                        if error.kind == stdx::IoErrorKind::Stopping {
                            break;
                        }
                        // Out of descriptors, say: keep those that are there, try again.
                        tracing::warn!(%error, "a connection could not be accepted");
                        rt.sleep(accept_error_pause).await;
                        accept_error_pause = (accept_error_pause * 2).min(Duration::from_secs(1));
                    }
                }
            }
        };
        // A closed gate: the node stops.
        let _ = self.inner.gate.spawn(rt, Group::Admin, "cql-listener", task);
        Ok(local)
    }

    /// Hands an accepted connection to its shard, or closes it where a limit says so.
    fn place(&self, conn: Stream, port: Port) {
        let server = &self.inner;
        let peer = conn.peer_addr();
        let settings = &server.settings;
        let too_many =
            settings.connections_max.is_some_and(|max| server.mesh.connection_count() >= max);
        let per_ip = settings.connections_per_ip_max;
        let too_many_of_ip = per_ip.is_some_and(|max| {
            server.by_ip.borrow().get(&peer.ip()).is_some_and(|count| *count >= max)
        });
        if too_many || too_many_of_ip {
            server.counters.refused_connections.inc();
            tracing::warn!(%peer, "connection refused: too many connections");
            conn.shutdown();
            return;
        }
        if per_ip.is_some() {
            *server.by_ip.borrow_mut().entry(peer.ip()).or_insert(0) += 1;
        }
        let shards = server.rt.shard_count().max(1);
        let shard = match port {
            Port::Balanced => server.mesh.least_loaded(),
            Port::ShardAware => ShardId(peer.port() % shards),
        };
        server.mesh.opened(shard);
        if shard == server.rt.shard() {
            self.serve_counted(conn);
            return;
        }
        let call =
            server.mesh.calls.call(&server.rt, shard, ServerRequest::Adopt(conn.into_moved()));
        let this = self.clone();
        let task = async move {
            if call.await.is_err() {
                this.inner.mesh.closed(shard);
                this.inner.forget_ip(peer.ip());
            }
        };
        let _ = server.gate.spawn(&server.rt, Group::Admin, "hand-over", task);
    }

    /// Serves a connection on this shard until it ends.
    pub fn serve(&self, conn: Stream) {
        self.inner.mesh.opened(self.inner.rt.shard());
        self.serve_counted(conn);
    }

    pub(crate) fn serve_counted(&self, conn: Stream) {
        let server = self.inner.clone();
        let connection = Connection::new(self, conn.peer_addr());
        let peer = conn.peer_addr().ip();
        let task = async move {
            driver::serve(server.clone(), connection, conn).await;
            server.mesh.closed(server.rt.shard());
            server.connection_ended(peer).await;
        };
        let spawned = self.inner.gate.spawn(&self.inner.rt, Group::Statement, "cql", task);
        if spawned.is_err() {
            self.inner.mesh.closed(self.inner.rt.shard());
        }
    }

    /// As [`CqlServer::stop`], and the shard's ports are closed, until [`CqlServer::resume`]. Also
    /// waits for the requests that run.
    pub async fn pause(&self) {
        self.end_connections();
        let server = &self.inner;
        while server.is_draining()
            && (server.listening.get() > 0 || !server.sessions.borrow().is_empty())
        {
            server.rt.sleep(PAUSE_LOOK).await;
        }
    }

    /// Takes connections again. To be called on all shards before one of them listens.
    pub fn resume(&self) {
        self.inner.query.resume();
    }
}

impl Server {
    pub(crate) fn forget_ip(&self, ip: IpAddr) {
        let mut by_ip = self.by_ip.borrow_mut();
        if let Some(count) = by_ip.get_mut(&ip) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                by_ip.remove(&ip);
            }
        }
    }

    async fn connection_ended(&self, ip: IpAddr) {
        if self.settings.connections_per_ip_max.is_none() {
            return;
        }
        if self.rt.shard() == ShardId(0) {
            self.forget_ip(ip);
        } else {
            let call = self.mesh.calls.call(&self.rt, ShardId(0), ServerRequest::Closed(ip));
            // A full ring leaves the count too high until a restart; better than no limit.
            if call.await.is_err() {
                tracing::debug!(%ip, "the end of a connection could not be counted");
            }
        }
    }
}

/// A port of the shard that is listened on, counted until it is dropped.
struct Listening(Rc<Server>);

impl Listening {
    fn new(server: &Rc<Server>) -> Listening {
        server.listening.set(server.listening.get() + 1);
        Listening(server.clone())
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.listening.set(self.0.listening.get().saturating_sub(1));
    }
}

/// The first future's output, or `None` when the second is done before.
async fn first_of<A: Future, B: Future>(first: A, second: B) -> Option<A::Output> {
    let mut first = std::pin::pin!(first);
    let mut second = std::pin::pin!(second);
    std::future::poll_fn(|cx| {
        use std::task::Poll;
        if let Poll::Ready(output) = first.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        second.as_mut().poll(cx).map(|_| None)
    })
    .await
}
