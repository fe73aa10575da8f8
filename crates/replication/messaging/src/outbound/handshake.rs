//! The handshake of the side that connects.

use super::Outbound;
use crate::error::OpenError;
use crate::io::{READ_BYTES_MAX, first_of};
use crate::peer_log::Event;
use crate::security::{Making, Nearness};
use internode::{Features, Handshake, Hello, HelloAck, Lane};
use rt::{NotConnected, Stream};
use std::net::SocketAddr;
use std::pin::pin;
use stdx::{HostId, Instant, IoError, IoErrorKind, ShardId};
use tls::rustls::pki_types::ServerName;

impl Outbound {
    pub(crate) async fn discover(&self, address: SocketAddr) -> Result<HelloAck, OpenError> {
        let hello = self.hello(None, ShardId(0), Lane::Probe, address);
        let opening = pin!(self.open(address, hello));
        let stopping = pin!(async {
            while !self.env.ended.get() && !self.env.draining.get() {
                self.env.changed.notified().await;
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
        let identity = self.env.identity();
        let hook = self.hooks.compressed();
        let is_chosen = hook.zip(to).is_none_or(|(hook, to)| hook(to));
        let compress = self.env.settings.compression && !address.ip().is_loopback() && is_chosen;
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
            source_shard: self.env.rt.shard(),
            shard_count: identity.shard_count,
            destination_shard: shard,
        }
    }

    /// Connects, with TLS where the policy says so.
    async fn connect(
        &self,
        address: SocketAddr,
        hello: &Hello,
        deadline: Instant,
    ) -> Result<Stream, OpenError> {
        let rt = &self.env.rt;
        let encryption = self.env.mesh.encryption.latest();
        let making = encryption.as_ref().map_or(Making::Plain, |encryption| {
            let place = hello.to.map(|to| self.hooks.nearness(to, hello.joining));
            encryption.policy.outgoing(place.unwrap_or(Nearness::Unknown))
        });
        let conn = rt.connect(address).await?;
        if making == Making::Plain {
            return Ok(Stream::plain(conn));
        }
        let Some(tls) = encryption.as_ref().and_then(|encryption| encryption.client.as_ref())
        else {
            stdx::invariant!(false, "INV-messaging-4: encryption without keys of own connections");
            return Err(OpenError::NotEncrypted("no keys".to_owned()));
        };
        let name = ServerName::IpAddress(address.ip().to_canonical().into());
        match Stream::connect_tls(rt, conn, tls, name, deadline).await {
            Ok(stream) => {
                self.env.counters.encryption.made.inc();
                Ok(stream)
            }
            Err(NotConnected::NotSpoken(_)) if making == Making::EncryptedIfSpoken => {
                stdx::reached!("messaging-clear-fallback");
                self.env.counters.encryption.made_in_the_clear.inc();
                if self.env.peer_log.note(rt.now(), address.ip(), Event::MadeInTheClear).is_some() {
                    tracing::warn!(peer = %address,
                        "connected to a peer in the clear: it does not speak TLS, and optional in \
                         server_encryption_options allows that");
                }
                Ok(Stream::plain(rt.connect(address).await?))
            }
            Err(NotConnected::NotSpoken(error)) => {
                let cause =
                    "the peer does not speak TLS: set keystore in its server_encryption_options";
                Err(OpenError::NotEncrypted(format!("{cause} ({})", error.detail)))
            }
            Err(NotConnected::Cut(error)) => {
                stdx::reached!("messaging-handshake-cut");
                Err(OpenError::Io(error))
            }
            Err(NotConnected::Failed(error)) => Err(OpenError::NotEncrypted(error.to_string())),
        }
    }

    /// Connects and shakes hands. Also returns the bytes received after the answer.
    pub(crate) async fn open(
        &self,
        address: SocketAddr,
        hello: Hello,
    ) -> Result<(Stream, HelloAck, Vec<u8>), OpenError> {
        let deadline = self.env.rt.now() + self.env.settings.connect_timeout;
        let opening = async {
            self.env.cuts.passable(address.ip()).await;
            let conn = self.connect(address, &hello, deadline).await?;
            let mut bytes = Vec::new();
            Handshake::Hello(hello.clone()).encode(&mut bytes);
            conn.write_all(&bytes).await?;
            bytes.clear();
            loop {
                let read = conn.read(&mut bytes, READ_BYTES_MAX).await;
                if read.map_err(|error| broken(&conn, error))? == 0 {
                    return Err(OpenError::Closed);
                }
                let bad = |e: &dyn std::fmt::Display| OpenError::BadAnswer(e.to_string());
                match Handshake::decode(&bytes).map_err(|e| bad(&e))? {
                    None => {}
                    Some((Handshake::Ack(ack), length)) => {
                        self.env.identity().check_ack(&hello, &ack).map_err(|e| bad(&e))?;
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
        self.env.rt.timeout(deadline, opening).await.unwrap_or(Err(OpenError::Timeout))
    }
}

/// With TLS 1.3 a peer refuses this node's certificate after the handshake is complete here.
fn broken(conn: &Stream, error: IoError) -> OpenError {
    match conn.tls() {
        Some(_) if error.kind == IoErrorKind::Damaged => OpenError::NotEncrypted(error.to_string()),
        _ => OpenError::Io(error),
    }
}
