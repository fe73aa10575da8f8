//! Shard 0: listening, handshakes of accepted connections, handing connections to their shards.

use super::Inbounds;
use super::encrypted::{StoragePort, admit, begin, note_unexpected_tls};
use crate::io::{READ_BYTES_MAX, first_of};
use crate::mesh::Adopt;
use internode::hello::Stranger;
use internode::{Agreement, Handshake, HandshakeError, Hello, Lane, Refusal, judge};
use rt::{Accepted, Group, ListenOptions, Stream};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use stdx::{Instant, IoError, IoErrorKind};

/// Longest pause after a connection could not be accepted.
const ACCEPT_PAUSE_MAX: Duration = Duration::from_secs(1);

impl Inbounds {
    pub(crate) async fn listen(
        self: &Rc<Self>,
        address: SocketAddr,
        port: StoragePort,
    ) -> Result<SocketAddr, IoError> {
        let listener = self.env.rt.listen(address, ListenOptions::default()).await?;
        let local = listener.local_addr();
        let inbounds = self.clone();
        let task = async move {
            let env = &inbounds.env;
            let mut pause = Duration::from_millis(1);
            // While it drains too: peers that connect then are refused because this node stops.
            while !env.ended.get() {
                let changed = env.changed.notified();
                match first_of(listener.accept(), changed).await {
                    None => {}
                    Some(Ok(conn)) => {
                        pause = Duration::from_millis(1);
                        inbounds.greet(Stream::plain(conn), port);
                    }
                    Some(Err(error)) if error.kind == IoErrorKind::Stopping => break,
                    Some(Err(error)) => {
                        // For example out of descriptors: keep the existing ones, retry.
                        tracing::warn!(%error, "a connection of a peer could not be accepted");
                        env.rt.sleep(pause).await;
                        pause = (pause * 2).min(ACCEPT_PAUSE_MAX);
                    }
                }
            }
        };
        // A closed gate: the node stops.
        let _ = self.env.gate.spawn(&self.env.rt, Group::Gossip, "internode-listener", task);
        Ok(local)
    }

    /// Starts the handshake of an accepted connection.
    fn greet(self: &Rc<Self>, conn: Stream, port: StoragePort) {
        if self.handshakes.get() >= self.env.settings.handshakes_max {
            self.env.counters.refused.inc();
            tracing::debug!(peer = %conn.peer_addr(), "connection closed: too many handshakes");
            conn.shutdown();
            return;
        }
        self.handshakes.set(self.handshakes.get() + 1);
        let inbounds = self.clone();
        let task = async move {
            let env = &inbounds.env;
            let deadline = env.rt.now() + env.settings.connect_timeout;
            let peer = conn.peer_addr();
            let greeting = env.rt.timeout(deadline, inbounds.shake_hands(conn, port, deadline));
            let ended = async {
                while !env.ended.get() {
                    env.changed.notified().await;
                }
            };
            if let Some(Err(_)) = first_of(greeting, ended).await {
                env.counters.refused.inc();
                tracing::debug!(%peer, "connection closed: no HELLO in time");
            }
            inbounds.handshakes.set(inbounds.handshakes.get().saturating_sub(1));
        };
        if self.env.gate.spawn(&self.env.rt, Group::Gossip, "internode-handshake", task).is_err() {
            self.handshakes.set(self.handshakes.get().saturating_sub(1));
        }
    }

    async fn shake_hands(self: &Rc<Self>, conn: Stream, port: StoragePort, deadline: Instant) {
        let peer = conn.peer_addr();
        let Some(Accepted { stream: conn, received }) = begin(&self.env, conn, deadline).await
        else {
            return;
        };
        let (hello, rest) = match self.read_hello(&conn, received).await {
            Ok(Some(read)) => read,
            Ok(None) => return conn.shutdown(),
            Err(HandshakeError::NotInternode(Stranger::Tls)) => {
                note_unexpected_tls(&self.env, peer);
                // Only an answer tells a peer that it may fall back: a closed connection may be a cut one.
                return self.refuse(&conn, Some(&Refusal::NoEncryption)).await;
            }
            Err(error) => {
                tracing::warn!(%peer, %error, "connection refused");
                // Only a peer gets an answer; another program could not decode it.
                let is_peer = !matches!(error, HandshakeError::NotInternode(_));
                let refusal = is_peer.then(|| Refusal::Malformed(error.to_string()));
                return self.refuse(&conn, refusal.as_ref()).await;
            }
        };
        if let Err(refusal) = admit(&self.env, &self.hooks, &conn, &hello, port) {
            return self.refuse(&conn, Some(&refusal)).await;
        }
        match self.decide(&hello, peer) {
            Err(refusal) => {
                tracing::info!(%peer, host = %hello.from, %refusal, "connection refused");
                self.refuse(&conn, Some(&refusal)).await;
            }
            Ok(agreement) if hello.lane == Lane::Probe => {
                let mut bytes = Vec::new();
                Handshake::Ack(self.env.identity().ack(&agreement)).encode(&mut bytes);
                if conn.write_all(&bytes).await.is_ok() {
                    conn.shutdown();
                }
            }
            Ok(agreement) => self.hand_over(conn, hello, agreement, rest).await,
        }
    }

    /// Reads the HELLO, of which `bytes` were received already, and the bytes received after it; `None` when the
    /// connection ended first.
    async fn read_hello(
        &self,
        conn: &Stream,
        mut bytes: Vec<u8>,
    ) -> Result<Option<(Hello, Vec<u8>)>, HandshakeError> {
        loop {
            let decoded = if bytes.is_empty() { None } else { Handshake::decode(&bytes)? };
            match decoded {
                None => match conn.read(&mut bytes, READ_BYTES_MAX).await {
                    Ok(0) | Err(_) => return Ok(None),
                    Ok(_) => {}
                },
                Some((Handshake::Hello(hello), length)) => {
                    bytes.drain(..length);
                    return Ok(Some((hello, bytes)));
                }
                Some((Handshake::Ack(_) | Handshake::Refused(_), _)) => {
                    return Err(HandshakeError::NotInternode(Stranger::Unknown));
                }
            }
        }
    }

    fn decide(&self, hello: &Hello, peer: SocketAddr) -> Result<Agreement, Refusal> {
        let identity = self.env.identity();
        let is_known = self.env.peers.borrow().contains_key(&hello.from);
        let mut agreement = judge(&identity, hello, is_known)?;
        if self.env.draining.get() {
            return Err(Refusal::ShuttingDown);
        }
        // A probe is refused if another process has its host id. Connections for requests are not:
        // after a power cut the old process still seems to be alive.
        if hello.lane == Lane::Probe && self.is_in_use(hello) {
            return Err(Refusal::DuplicateHostId(hello.from));
        }
        let admission = self.hooks.admission();
        if let Some(admission) = admission {
            admission(hello, peer)?;
        }
        if agreement.shard.0 >= self.env.rt.shard_count() {
            agreement.shard.0 = 0;
        }
        Ok(agreement)
    }

    /// Returns true if another process with the sender's host id was heard of lately: each pings
    /// its open connections.
    fn is_in_use(&self, hello: &Hello) -> bool {
        let silence = self.env.settings.keepalive_interval * 2;
        let silence = u64::try_from(silence.as_nanos()).unwrap_or(u64::MAX);
        let since = stdx::Instant(self.env.rt.now().0.saturating_sub(silence));
        let inbounds = self.open.borrow();
        inbounds.values().any(|i| i.is_other_process(hello.from, hello.incarnation, since))
    }

    async fn refuse(&self, conn: &Stream, refusal: Option<&Refusal>) {
        self.env.counters.refused.inc();
        if let Some(refusal) = refusal {
            let mut bytes = Vec::new();
            refusal.message().encode(&mut bytes);
            if conn.write_all(&bytes).await.is_err() {
                return;
            }
        }
        conn.shutdown();
    }

    async fn hand_over(
        self: &Rc<Self>,
        conn: Stream,
        hello: Hello,
        agreement: Agreement,
        rest: Vec<u8>,
    ) {
        let shard = agreement.shard;
        if shard == self.env.rt.shard() {
            return self.adopt(conn, hello, agreement, rest);
        }
        let peer = conn.peer_addr();
        let adopt = Adopt { conn: conn.into_moved(), hello, agreement, rest };
        let handed = self.mesh.calls.call(&self.env.rt, shard, Box::new(adopt)).await;
        if handed.is_err() {
            self.env.counters.refused.inc();
            tracing::info!(%peer, shard = shard.0, "connection dropped: its shard does not take it");
        }
    }

    /// Takes over a connection that shard 0 accepted.
    pub(crate) fn adopt_moved(self: &Rc<Self>, adopt: Adopt) {
        let Adopt { conn, hello, agreement, rest } = adopt;
        match Stream::from_moved(&self.env.rt, conn) {
            Ok(conn) => self.adopt(conn, hello, agreement, rest),
            Err(error) => tracing::info!(%error, "a peer's connection could not be taken over"),
        }
    }
}
