//! Accepts connections: ports, connection limits, placement on shards, TLS handshakes.
//!
//! Owns: the listeners and their pause, the counts by client address, which connections are encrypted. The shard that
//! serves a connection performs its handshake, in a scheduling group of few shares: a storm of handshakes does not
//! stall requests. Never: what a connection says ([`crate::connection`]).
//!
//! Counts: a connection counts for its shard (in the mesh) once it is placed. For its client's address it counts on
//! shard 0, which accepts it.

use crate::connection::Connection;
use crate::driver;
use crate::first_of::first_of;
use crate::mesh::{ServerReply, ServerRequest};
use crate::port::{
    ClientChecks, HANDSHAKES_WAITING_MAX, Placement, Port, PortEncryption, TlsBeginning, WARN_PAUSE,
};
use crate::server::{CqlServer, Server};
use rt::sync::Permit;
use rt::{Accepted, Group, ListenOptions, PlainText, Stream, TlsServer, is_tls_handshake};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;
use stdx::{Instant, IoError, IoErrorKind, ShardId};
use tls::PeerCertificate;

/// How often [`CqlServer::pause`] checks whether the ports and connections are closed.
const PAUSE_LOOK: Duration = Duration::from_millis(5);

/// Time limit of a handshake. Where TLS is required, also the time limit until the client begins
/// it.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(10);

impl CqlServer {
    /// Like [`CqlServer::listen_on`], for connections in the clear of any driver.
    #[cfg(test)]
    pub(crate) async fn listen(&self, address: SocketAddr) -> Result<SocketAddr, IoError> {
        let encryption = PortEncryption::Plain;
        self.listen_on(address, Port { placement: Placement::Balanced, encryption }).await
    }

    /// Sets keys and settings for the handshakes of connections that this shard accepts from now
    /// on.
    pub fn set_tls(&self, tls: TlsServer, checks: ClientChecks) {
        *self.inner.tls.borrow_mut() = Some((tls, checks));
    }

    /// Listens for the connections of a port. To be called on one shard only. Returns the address,
    /// with the port chosen when 0 was asked for. Before [`CqlServer::set_tls`] is called,
    /// connections that may be encrypted are closed.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub async fn listen_on(&self, address: SocketAddr, port: Port) -> Result<SocketAddr, IoError> {
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
                        if error.kind == IoErrorKind::Stopping {
                            break;
                        }
                        // For example out of descriptors: keep the open connections and retry.
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

    /// Hands an accepted connection to its shard, or closes it if a limit is reached.
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
            // Like Cassandra. After a plain close several drivers wait for an answer until their timeout.
            conn.reset();
            return;
        }
        if per_ip.is_some() {
            *server.by_ip.borrow_mut().entry(peer.ip()).or_insert(0) += 1;
        }
        let shards = server.rt.shard_count().max(1);
        let shard = match port.placement {
            Placement::Balanced => server.mesh.least_loaded(),
            Placement::ShardAware => ShardId(peer.port() % shards),
        };
        let beginning = match self.beginning(port.encryption) {
            Ok(beginning) => beginning,
            Err(NoKeys) => {
                server.forget_ip(peer.ip());
                conn.reset();
                return;
            }
        };
        server.mesh.opened(shard);
        if shard == server.rt.shard() {
            self.serve_counted(conn, beginning);
            return;
        }
        hand_over(server, shard, ServerRequest::Adopt(conn.into_moved(), beginning), peer.ip());
    }

    /// Returns how new connections of a port begin; `None` without TLS.
    fn beginning(&self, encryption: PortEncryption) -> Result<Option<TlsBeginning>, NoKeys> {
        let plain = match encryption {
            PortEncryption::Plain => return Ok(None),
            PortEncryption::Optional => PlainText::Accepted,
            PortEncryption::Required => PlainText::Refused,
        };
        let (tls, checks) = self.inner.tls.borrow().clone().ok_or(NoKeys)?;
        Ok(Some(TlsBeginning { tls, checks, plain }))
    }

    /// Serves a connection in the clear on this shard until it ends.
    pub fn serve(&self, conn: Stream) {
        self.inner.mesh.opened(self.inner.rt.shard());
        self.serve_counted(conn, None);
    }

    /// Serves a connection that was counted, after its handshake where TLS is enabled.
    pub(crate) fn serve_counted(&self, conn: Stream, beginning: Option<TlsBeginning>) {
        let Some(beginning) = beginning else {
            return self.serve_accepted(Accepted { stream: conn, received: Vec::new() });
        };
        let (this, peer) = (self.clone(), conn.peer_addr());
        let task = async move {
            // A server that stops waits for no handshake.
            let stopping = this.inner.drained.notified();
            let shaken = first_of(this.inner.shake_hands(conn, &beginning), stopping).await;
            match shaken.unwrap_or_else(|| Err(refused(peer, "the server stops"))) {
                Ok(accepted) => this.serve_accepted(accepted),
                Err(error) => {
                    this.inner.counters.failed_handshakes.inc();
                    if error.kind == IoErrorKind::Refused {
                        this.inner.counters.shed_handshakes.inc();
                    }
                    // At debug level, like Cassandra: a port scan must not fill the log.
                    tracing::debug!(%peer, %error, "TLS handshake of a client failed");
                    this.inner.mesh.closed(this.inner.rt.shard());
                    this.inner.connection_ended(peer.ip()).await;
                }
            }
        };
        let spawned = self.inner.gate.spawn(&self.inner.rt, Group::Admin, "cql-handshake", task);
        if spawned.is_err() {
            self.inner.mesh.closed(self.inner.rt.shard());
        }
    }

    fn serve_accepted(&self, accepted: Accepted) {
        let Accepted { stream: conn, received } = accepted;
        let server = self.inner.clone();
        let connection = Connection::encrypted(self, conn.peer_addr(), conn.tls());
        let peer = conn.peer_addr().ip();
        let session = connection.session().clone();
        let task = async move {
            driver::serve(server.clone(), connection, conn, received).await;
            server.mesh.closed(server.rt.shard());
            server.uncount_role(&session).await;
            server.connection_ended(peer).await;
        };
        let spawned = self.inner.gate.spawn(&self.inner.rt, Group::Statement, "cql", task);
        if spawned.is_err() {
            self.inner.mesh.closed(self.inner.rt.shard());
        }
    }

    /// Stops like [`CqlServer::stop`] and closes the shard's ports, until [`CqlServer::resume`].
    /// Also waits for running requests.
    pub async fn pause(&self) {
        self.end_connections();
        let server = &self.inner;
        while server.is_draining()
            && (server.listening.get() > 0 || !server.sessions.borrow().is_empty())
        {
            server.rt.sleep(PAUSE_LOOK).await;
        }
    }

    /// Accepts connections again. To be called on all shards before one of them listens.
    pub fn resume(&self) {
        self.inner.query.resume();
    }
}

/// Has another shard serve a counted connection; one that it does not adopt is counted no more.
pub(crate) fn hand_over(server: &Rc<Server>, shard: ShardId, adopt: ServerRequest, peer: IpAddr) {
    let call = server.mesh.calls.call(&server.rt, shard, adopt);
    let this = server.clone();
    let task = async move {
        if !matches!(call.await, Ok(ServerReply::Done)) {
            this.mesh.closed(shard);
            this.forget_ip(peer);
        }
    };
    // The gate is closed: the node stops.
    let _ = server.gate.spawn(&server.rt, Group::Admin, "hand-over", task);
}

/// Error: a port is encrypted, and no keys were set.
struct NoKeys;

impl Server {
    /// Reads the first bytes of a connection and performs the handshake if they begin one.
    async fn shake_hands(
        &self,
        conn: Stream,
        beginning: &TlsBeginning,
    ) -> Result<Accepted, IoError> {
        let peer = conn.peer_addr();
        if self.is_draining() {
            return Err(refused(peer, "the server stops"));
        }
        let first = conn.first_bytes(&self.rt, beginning.plain, HANDSHAKE_PATIENCE).await?;
        let deadline = self.rt.now() + HANDSHAKE_PATIENCE;
        let _slot = match is_tls_handshake(&first) {
            true => Some(self.handshake_slot(peer, deadline).await?),
            false => None,
        };
        let accepted = conn.accept_tls(&self.rt, &beginning.tls, first, deadline).await?;
        if let Some(agreed) = accepted.stream.tls() {
            self.counters.handshakes.inc();
            if let Some(certificate) = &agreed.peer {
                self.check_certificate(&accepted.stream, &beginning.checks, certificate)?;
            }
        }
        Ok(accepted)
    }

    /// Waits until few enough handshakes are under way.
    ///
    /// # Errors
    /// Too many wait already, or the deadline passed.
    async fn handshake_slot(&self, peer: SocketAddr, deadline: Instant) -> Result<Permit, IoError> {
        let too_many = || {
            let (kind, path) = (IoErrorKind::Refused, peer.to_string());
            let detail = "too many handshakes are under way".to_owned();
            IoError { kind, operation: "TLS handshake", path, detail }
        };
        if let Some(free) = self.handshakes.try_acquire(1) {
            return Ok(free);
        }
        if self.handshakes.waiting() >= HANDSHAKES_WAITING_MAX {
            return Err(too_many());
        }
        let slot = self.rt.timeout(deadline, self.handshakes.acquire(1));
        slot.await.map_err(|_| too_many())
    }

    /// Rejects a client's certificate by its validity or by the client's address; logs one that ends soon.
    fn check_certificate(
        &self,
        conn: &Stream,
        checks: &ClientChecks,
        certificate: &PeerCertificate,
    ) -> Result<(), IoError> {
        if let Some(detail) = checks.refuses(certificate, conn.peer_addr().ip()) {
            tracing::warn!(peer = %conn.peer_addr(), detail, "connection refused");
            conn.shutdown();
            let kind = IoErrorKind::PermissionDenied;
            let path = conn.peer_addr().to_string();
            return Err(IoError { kind, operation: "TLS handshake", path, detail });
        }
        if checks.limits.ends_soon(certificate, self.rt.wall()) {
            self.counters.expiring_certificates.inc();
            let now = self.rt.now();
            if self.warned_of_expiry.get().is_none_or(|last| now.since(last) >= WARN_PAUSE) {
                self.warned_of_expiry.set(Some(now));
                let days = (certificate.not_after - self.rt.wall().0 / 1_000_000) / 86_400;
                let subject = &certificate.subject;
                tracing::warn!(peer = %conn.peer_addr(), subject, days, "certificate of a client ends soon");
            }
        }
        Ok(())
    }

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
            self.notify_first(|| ServerRequest::Closed(ip)).await;
        }
    }
}

/// Error of a client's connection that gets no handshake.
fn refused(peer: SocketAddr, detail: &str) -> IoError {
    let (kind, path) = (IoErrorKind::Stopping, peer.to_string());
    IoError { kind, operation: "TLS handshake", path, detail: detail.to_owned() }
}

/// Guard of a listening port of the shard: the port is counted until it is dropped.
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
