//! The handshake of the side that connects.

use super::Outbound;
use crate::error::OpenError;
use crate::io::{READ_BYTES_MAX, first_of};
use internode::{Features, Handshake, Hello, HelloAck, Lane};
use rt::Stream;
use std::net::SocketAddr;
use std::pin::pin;
use stdx::{HostId, ShardId};

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

    /// Connects and shakes hands. Also returns the bytes received after the answer.
    pub(crate) async fn open(
        &self,
        address: SocketAddr,
        hello: Hello,
    ) -> Result<(Stream, HelloAck, Vec<u8>), OpenError> {
        let deadline = self.env.rt.now() + self.env.settings.connect_timeout;
        let opening = async {
            self.env.cuts.passable(address.ip()).await;
            let conn = Stream::plain(self.env.rt.connect(address).await?);
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
