//! TLS of connections: the first byte decides, the handshake is a part of the first read or write.
//!
//! Limits of a connection ([`super::connections`]) apply to its handshake too.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::task::{Context, Poll, ready};

use stdx::WallMicros;
use tls::limits::WARN_PAUSE;
use tls::rustls::ServerConfig;
use tls::rustls::time_provider::{DefaultTimeProvider, TimeProvider};
use tls::{CertificateLimits, PeerCertificate};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, TlsAcceptor};

/// First byte of every record with which a TLS connection begins.
const HANDSHAKE_RECORD: u8 = 0x16;

/// Policy for connections that begin without TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlainConnections {
    /// They are closed.
    Refused,
    /// They are served in the clear.
    Served,
}

/// TLS of the API.
#[derive(Clone, Debug)]
pub struct ApiEncryption {
    /// Policy for connections without TLS.
    pub plain: PlainConnections,
    /// Keys and trusted certificates.
    pub config: Arc<ServerConfig>,
    /// Limits on certificates of clients.
    pub limits: CertificateLimits,
}

/// TLS of new connections; clones share it.
#[derive(Clone, Default)]
pub(super) struct SharedEncryption(Arc<Shared>);

#[derive(Default)]
struct Shared {
    in_use: RwLock<Option<ApiEncryption>>,
    /// When a certificate that ends soon was logged last, seconds since 1970.
    warned_at: AtomicU64,
}

impl SharedEncryption {
    pub(super) fn new(encryption: Option<ApiEncryption>) -> SharedEncryption {
        let shared = Shared { in_use: RwLock::new(encryption), ..Shared::default() };
        SharedEncryption(Arc::new(shared))
    }

    pub(super) fn set(&self, encryption: ApiEncryption) {
        *self.0.in_use.write().unwrap_or_else(PoisonError::into_inner) = Some(encryption);
    }

    /// Checks the validity of a client's certificate.
    fn check(&self, certificate: &PeerCertificate, limits: &CertificateLimits) -> io::Result<()> {
        if let Some(why) = limits.refuses(certificate) {
            tracing::warn!(why, "connection to the API refused");
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        let now = DefaultTimeProvider.current_time().map_or(0, |time| time.as_secs());
        let wall = WallMicros(i64::try_from(now).unwrap_or(0).saturating_mul(1_000_000));
        let warned_at = self.0.warned_at.load(Ordering::Relaxed);
        if limits.ends_soon(certificate, wall) && now >= warned_at + WARN_PAUSE.as_secs() {
            self.0.warned_at.store(now, Ordering::Relaxed);
            let subject = &certificate.subject;
            tracing::warn!(subject, "the certificate of a client of the API ends soon");
        }
        Ok(())
    }

    /// Wraps an accepted connection.
    pub(super) fn wrap(&self, stream: TcpStream) -> Transport {
        match self.0.in_use.read().unwrap_or_else(PoisonError::into_inner).clone() {
            None => Transport::Plain(stream),
            Some(encryption) => Transport::Unknown(stream, encryption, self.clone()),
        }
    }
}

/// Bytes of a connection.
pub(super) enum Transport {
    /// In the clear.
    Plain(TcpStream),
    /// No byte has arrived.
    Unknown(TcpStream, ApiEncryption, SharedEncryption),
    /// The handshake runs.
    Handshake(Box<Accept<TcpStream>>, CertificateLimits, SharedEncryption),
    /// TLS.
    Tls(Box<TlsStream<TcpStream>>),
    /// The handshake failed.
    Failed,
}

impl Transport {
    /// Completes when bytes can be exchanged: `Some` once, after a handshake, with the client's certificate.
    pub(super) fn poll_open(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Option<PeerCertificate>>> {
        loop {
            match self {
                Transport::Plain(_) | Transport::Tls(_) => return Poll::Ready(Ok(None)),
                Transport::Failed => {
                    return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
                }
                Transport::Unknown(stream, encryption, shared) => {
                    let mut byte = [0];
                    let mut buf = ReadBuf::new(&mut byte);
                    let peeked = ready!(stream.poll_peek(cx, &mut buf));
                    let first = buf.filled().first().copied();
                    let is_tls = first == Some(HANDSHAKE_RECORD);
                    let is_served = encryption.plain == PlainConnections::Served;
                    let acceptor = TlsAcceptor::from(encryption.config.clone());
                    let (limits, shared) = (encryption.limits, shared.clone());
                    let Transport::Unknown(stream, ..) = std::mem::replace(self, Transport::Failed)
                    else {
                        continue;
                    };
                    peeked?;
                    // A connection that ends without a byte is closed as a plain one is.
                    if is_tls {
                        let accept = Box::new(acceptor.accept(stream));
                        *self = Transport::Handshake(accept, limits, shared);
                    } else if is_served || first.is_none() {
                        *self = Transport::Plain(stream);
                    } else {
                        let text = "this API is encrypted: connect with TLS";
                        return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, text)));
                    }
                }
                Transport::Handshake(accept, limits, shared) => {
                    let accepted = ready!(Pin::new(&mut **accept).poll(cx));
                    let (limits, shared) = (*limits, shared.clone());
                    *self = Transport::Failed;
                    let stream = accepted.inspect_err(|error| {
                        tracing::debug!(%error, "TLS handshake at the API failed");
                    })?;
                    let leaf =
                        stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
                    let certificate = leaf.and_then(|der| PeerCertificate::parse(der));
                    if let Some(certificate) = &certificate {
                        shared.check(certificate, &limits)?;
                    }
                    *self = Transport::Tls(Box::new(stream));
                    return Poll::Ready(Ok(certificate));
                }
            }
        }
    }

    /// Reads; after [`Transport::poll_open`] has completed.
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self {
            Transport::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Transport::Tls(stream) => Pin::new(&mut **stream).poll_read(cx, buf),
            _ => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    /// Writes; after [`Transport::poll_open`] has completed.
    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self {
            Transport::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Transport::Tls(stream) => Pin::new(&mut **stream).poll_write(cx, buf),
            _ => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Transport::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Transport::Tls(stream) => Pin::new(&mut **stream).poll_flush(cx),
            _ => Poll::Ready(Ok(())),
        }
    }

    pub(super) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Transport::Plain(stream) | Transport::Unknown(stream, ..) => {
                Pin::new(stream).poll_shutdown(cx)
            }
            Transport::Tls(stream) => Pin::new(&mut **stream).poll_shutdown(cx),
            Transport::Handshake(..) | Transport::Failed => Poll::Ready(Ok(())),
        }
    }
}
