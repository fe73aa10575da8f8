//! TLS of accepted connections: handshakes, and which peers are refused because of encryption.

use crate::env::Env;
use crate::hooks::Hooks;
use crate::peer_log::Event;
use crate::security::{Encryption, PeerChecks};
use internode::{Hello, Refusal};
use rt::{Accepted, PlainText, Stream, TlsInfo, is_tls_handshake};
use std::net::SocketAddr;
use stdx::Instant;
use tls::PeerCertificate;

/// Kind of a port for peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoragePort {
    /// In the clear and with TLS, as far as the policy allows.
    Shared,
    /// With TLS only.
    Encrypted,
}

/// Begins an accepted connection: performs the TLS handshake if it begins with one. Without keys
/// nothing is read. `None`: the connection ended.
pub(super) async fn begin(env: &Env, conn: Stream, deadline: Instant) -> Option<Accepted> {
    let encryption = env.mesh.encryption.latest();
    let Some(tls) = encryption.as_ref().and_then(|encryption| encryption.server.as_ref()) else {
        return Some(Accepted { stream: conn, received: Vec::new() });
    };
    let peer = conn.peer_addr();
    // The decision about plain text is made with the HELLO, which names the peer.
    let patience = env.settings.connect_timeout;
    let first = conn.first_bytes(&env.rt, PlainText::Accepted, patience).await.ok()?;
    let is_encrypted = is_tls_handshake(&first);
    match conn.accept_tls(&env.rt, tls, first, deadline).await {
        Ok(accepted) => {
            if is_encrypted {
                env.counters.encryption.accepted.inc();
            }
            Some(accepted)
        }
        Err(error) => {
            env.counters.refused.inc();
            env.counters.encryption.refused_handshake.inc();
            if let Some(times) = env.peer_log.note(env.rt.now(), peer.ip(), Event::Handshake) {
                tracing::warn!(%peer, %error, times,
                    "connection of a peer refused: its TLS handshake failed; check certificates, protocols and \
                     cipher suites in server_encryption_options of both nodes");
            }
            None
        }
    }
}

/// A peer began with TLS, which is not configured here.
pub(super) fn note_unexpected_tls(env: &Env, peer: SocketAddr) {
    env.counters.encryption.refused_encrypted.inc();
    if let Some(times) = env.peer_log.note(env.rt.now(), peer.ip(), Event::Encrypted) {
        tracing::warn!(%peer, times,
            "connection of a peer refused: it uses TLS, for which this node has no keys; set keystore and optional in \
             server_encryption_options of this node");
    }
}

/// Decides by its encryption and certificate about a peer that sent this HELLO.
///
/// # Errors
/// The refusal to send.
pub(super) fn admit(
    env: &Env,
    hooks: &Hooks,
    conn: &Stream,
    hello: &Hello,
    port: StoragePort,
) -> Result<(), Refusal> {
    let Some(encryption) = env.mesh.encryption.latest() else { return Ok(()) };
    match conn.tls() {
        None if port == StoragePort::Encrypted || !accepts_plain(&encryption, hooks, hello) => {
            stdx::reached!("messaging-plain-peer-refused");
            refuse_plain(env, conn.peer_addr(), hello);
            Err(Refusal::EncryptionRequired)
        }
        None => Ok(()),
        Some(agreed) => check_certificate(env, &encryption.checks, conn, &agreed),
    }
}

fn accepts_plain(encryption: &Encryption, hooks: &Hooks, hello: &Hello) -> bool {
    encryption.accepts_plain(hooks.nearness(hello.from, hello.joining))
}

fn refuse_plain(env: &Env, peer: SocketAddr, hello: &Hello) {
    env.counters.encryption.refused_plain.inc();
    if let Some(times) = env.peer_log.note(env.rt.now(), peer.ip(), Event::Plain) {
        tracing::warn!(%peer, host = %hello.from, times,
            "connection of a peer refused: it is not encrypted; set server_encryption_options of that node");
    }
}

fn check_certificate(
    env: &Env,
    checks: &PeerChecks,
    conn: &Stream,
    agreed: &TlsInfo,
) -> Result<(), Refusal> {
    let peer = conn.peer_addr();
    let (protocol, suite) = (agreed.protocol, agreed.cipher_suite);
    tracing::debug!(%peer, protocol, suite, "encrypted connection from a peer");
    if let Err(why) = checks.judge(agreed.peer.as_ref(), peer.ip()) {
        env.counters.encryption.refused_certificate.inc();
        if let Some(times) = env.peer_log.note(env.rt.now(), peer.ip(), Event::Certificate) {
            tracing::warn!(%peer, why, times, "connection of a peer refused: its certificate is not accepted");
        }
        return Err(Refusal::Certificate(why));
    }
    if let Some(certificate) = &agreed.peer {
        note_expiry(env, checks, peer, certificate);
    }
    Ok(())
}

fn note_expiry(env: &Env, checks: &PeerChecks, peer: SocketAddr, certificate: &PeerCertificate) {
    let wall = env.rt.wall();
    let days = (certificate.not_after - wall.0 / 1_000_000) / 86_400;
    env.counters.encryption.certificate_days.record(u64::try_from(days).unwrap_or(0));
    if checks.limits.ends_soon(certificate, wall)
        && env.peer_log.note(env.rt.now(), peer.ip(), Event::EndsSoon).is_some()
    {
        let subject = &certificate.subject;
        tracing::warn!(%peer, subject, days, "the certificate of a peer expires soon; renew it");
    }
}
