//! Connections of the API: admission, eviction and timeouts.
//!
//! Owns: the limits of INV-admin-1 and the decision [`admit`], which is pure. A connection is idle
//! unless a whole request of it is being carried out: one that sends its request bit by bit, or
//! does not read its answer, is idle too. When there is no room, the longest idle connection is
//! closed, so that open connections alone never lock clients out. Connections from this machine
//! have a reserve, so that `nodetool` works when all others are busy.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tls::PeerCertificate;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::time::{Instant, Sleep};

use super::encryption::{SharedEncryption, Transport};

/// Connections at a time.
pub(super) const CONNECTIONS_MAX: usize = 256;
/// Connections that are reserved for clients on this machine.
const LOOPBACK_RESERVE: usize = 32;
/// Connections from one address.
pub(super) const PER_ADDRESS_MAX: usize = 64;
/// A connection that is silent for longer, while no request of it is carried out, is closed.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// How long a request may take to arrive.
const RECEIVE_MAX: Duration = Duration::from_secs(60);
/// How often refused connections are logged at most.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// An open connection as [`admit`] sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Open<T> {
    id: u64,
    address: IpAddr,
    /// Since when it is idle; `None`: a request of it is carried out.
    idle_since: Option<T>,
}

/// Outcome of the admission of a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Admission {
    /// There is room.
    Admit,
    /// After this one is closed.
    Instead(u64),
    /// All connections that could be closed are busy.
    Refuse,
}

fn is_local(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// Decides about a new connection from an address.
fn admit<T: Ord + Copy>(open: &[Open<T>], address: IpAddr) -> Admission {
    let longest_idle = |may_go: &dyn Fn(&Open<T>) -> bool| {
        let idle = open.iter().filter(|o| may_go(o)).filter_map(|o| Some((o.idle_since?, o.id)));
        idle.min().map(|(_, id)| id)
    };
    let instead = |found: Option<u64>| found.map_or(Admission::Refuse, Admission::Instead);
    if open.iter().filter(|o| o.address == address).count() >= PER_ADDRESS_MAX {
        return instead(longest_idle(&|o| o.address == address));
    }
    let max = match is_local(address) {
        true => CONNECTIONS_MAX,
        false => CONNECTIONS_MAX - LOOPBACK_RESERVE,
    };
    if open.len() < max {
        return Admission::Admit;
    }
    let of_others = longest_idle(&|o| !is_local(o.address));
    match is_local(address) {
        true => instead(of_others.or_else(|| longest_idle(&|_| true))),
        false => instead(of_others),
    }
}

/// How far a connection is with its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No request, or its answer is on the way.
    Idle,
    /// A request arrives since then.
    Receiving(Instant),
    /// A whole request is carried out.
    Working,
    /// It has to end.
    Closed,
}

/// Returns when a connection is closed for silence or slowness; `None`: never, because it works on
/// a request.
fn closes_at(phase: Phase, active_at: Instant) -> Option<Instant> {
    match phase {
        Phase::Idle => Some(active_at + IDLE_MAX),
        Phase::Receiving(since) => Some((active_at + IDLE_MAX).min(since + RECEIVE_MAX)),
        Phase::Working => None,
        Phase::Closed => Some(active_at),
    }
}

struct State {
    phase: Phase,
    /// The last byte, either way.
    active_at: Instant,
    /// Waker of the task that serves the connection.
    waker: Option<Waker>,
}

/// One open connection, shared by its stream and its requests.
pub(super) struct Connection {
    peer: SocketAddr,
    /// The certificate that the client showed in its handshake.
    certificate: OnceLock<PeerCertificate>,
    state: Mutex<State>,
}

impl Connection {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Address and port of the client.
    pub(super) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The certificate that the client showed.
    pub(super) fn certificate(&self) -> Option<&PeerCertificate> {
        self.certificate.get()
    }

    fn close(&self) {
        let mut state = self.state();
        state.phase = Phase::Closed;
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }

    /// Marks the connection as working; returns false if it was closed before its request could
    /// begin.
    pub(super) fn begin(&self) -> bool {
        let mut state = self.state();
        if state.phase == Phase::Closed {
            return false;
        }
        state.phase = Phase::Working;
        true
    }

    fn end(&self) {
        let mut state = self.state();
        if state.phase == Phase::Working {
            state.phase = Phase::Idle;
            state.active_at = Instant::now();
        }
    }
}

/// All open connections.
#[derive(Default)]
struct Connections {
    open: BTreeMap<u64, Arc<Connection>>,
    next: u64,
    /// Refused since that was logged last, and when it was.
    refused: (u64, Option<Instant>),
}

impl Connections {
    /// Admits a connection, closes another one for it, or refuses it.
    fn enter(&mut self, peer: SocketAddr) -> Option<(u64, Arc<Connection>)> {
        let (now, address) = (Instant::now(), peer.ip());
        let open: Vec<Open<Instant>> = self
            .open
            .iter()
            .map(|(id, connection)| {
                let state = connection.state();
                let idle_since = (state.phase != Phase::Working).then_some(state.active_at);
                Open { id: *id, address: connection.peer.ip(), idle_since }
            })
            .collect();
        match admit(&open, address) {
            Admission::Admit => {}
            Admission::Instead(id) => {
                if let Some(connection) = self.open.remove(&id) {
                    connection.close();
                }
            }
            Admission::Refuse => {
                self.note_refused(address, now);
                return None;
            }
        }
        self.next += 1;
        let state = State { phase: Phase::Idle, active_at: now, waker: None };
        let (certificate, state) = (OnceLock::new(), Mutex::new(state));
        let connection = Arc::new(Connection { peer, certificate, state });
        self.open.insert(self.next, connection.clone());
        Some((self.next, connection))
    }

    fn note_refused(&mut self, address: IpAddr, now: Instant) {
        let (count, logged) = &mut self.refused;
        *count += 1;
        if logged.is_none_or(|at| now.duration_since(at) >= LOG_EVERY) {
            tracing::warn!(
                refused = *count,
                %address,
                "API connections refused: all that are open carry out requests"
            );
            self.refused = (0, Some(now));
        }
    }
}

/// A listener with these limits.
pub(super) struct Limited {
    listener: TcpListener,
    encryption: SharedEncryption,
    connections: Arc<Mutex<Connections>>,
}

impl Limited {
    pub(super) fn new(listener: TcpListener, encryption: SharedEncryption) -> Limited {
        Limited { listener, encryption, connections: Arc::default() }
    }
}

fn locked(connections: &Mutex<Connections>) -> MutexGuard<'_, Connections> {
    connections.lock().unwrap_or_else(PoisonError::into_inner)
}

impl axum::serve::Listener for Limited {
    type Io = LimitedStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (LimitedStream, SocketAddr) {
        loop {
            let (stream, peer) = axum::serve::Listener::accept(&mut self.listener).await;
            let entered = locked(&self.connections).enter(peer);
            // A connection that is refused is closed by dropping it.
            if let Some((id, connection)) = entered {
                let timer = Box::pin(tokio::time::sleep(IDLE_MAX));
                let connections = self.connections.clone();
                let stream = self.encryption.wrap(stream);
                return (LimitedStream { stream, timer, id, connection, connections }, peer);
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// The stream of an open connection.
pub(super) struct LimitedStream {
    stream: Transport,
    timer: Pin<Box<Sleep>>,
    id: u64,
    connection: Arc<Connection>,
    connections: Arc<Mutex<Connections>>,
}

impl LimitedStream {
    /// Notes that bytes went through.
    fn note_bytes(&self, is_request: bool) {
        let now = Instant::now();
        let mut state = self.connection.state();
        state.active_at = now;
        if is_request && state.phase == Phase::Idle {
            state.phase = Phase::Receiving(now);
        }
    }

    /// Completes the handshake, if there is one.
    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let certificate = ready!(self.stream.poll_open(cx))?;
        if let Some(certificate) = certificate {
            // There is one handshake.
            let _ = self.connection.certificate.set(certificate);
        }
        Poll::Ready(Ok(()))
    }

    /// An error when the connection has to end; else the task is woken when it may have to.
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        loop {
            let closes_at = {
                let mut state = self.connection.state();
                if state.phase == Phase::Closed {
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
                state.waker = Some(cx.waker().clone());
                closes_at(state.phase, state.active_at)
            };
            let now = Instant::now();
            if closes_at.is_some_and(|at| at <= now) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            // While a request is carried out nothing is due; the next check is after that.
            self.timer.as_mut().reset(closes_at.unwrap_or(now + IDLE_MAX));
            if self.timer.as_mut().poll(cx).is_pending() {
                return Ok(());
            }
        }
    }
}

impl Drop for LimitedStream {
    fn drop(&mut self) {
        locked(&self.connections).open.remove(&self.id);
    }
}

impl AsyncRead for LimitedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        this.check(cx)?;
        ready!(this.poll_open(cx))?;
        let before = buf.filled().len();
        let result = this.stream.poll_read(cx, buf);
        if result.is_ready() && buf.filled().len() > before {
            this.note_bytes(true);
        }
        result
    }
}

impl AsyncWrite for LimitedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        this.check(cx)?;
        ready!(this.poll_open(cx))?;
        let result = this.stream.poll_write(cx, buf);
        if result.is_ready() {
            this.note_bytes(false);
        }
        result
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_shutdown(cx)
    }
}

/// The connection that a request came on.
#[derive(Clone)]
pub(super) struct OfConnection(pub(super) Arc<Connection>);

impl axum::extract::connect_info::Connected<axum::serve::IncomingStream<'_, Limited>>
    for OfConnection
{
    fn connect_info(stream: axum::serve::IncomingStream<'_, Limited>) -> OfConnection {
        OfConnection(stream.io().connection.clone())
    }
}

/// Marks a connection as working while the guard lives.
pub(super) struct Working(pub(super) Arc<Connection>);

impl Drop for Working {
    fn drop(&mut self) {
        self.0.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn remote(n: usize) -> IpAddr {
        [10, 0, (n / PER_ADDRESS_MAX) as u8, 1].into()
    }

    /// Connections from these addresses, idle since their place in the list, or at work.
    fn open(addresses: impl IntoIterator<Item = IpAddr>, idle: bool) -> Vec<Open<u64>> {
        let open = (0..).zip(addresses);
        open.map(|(id, address)| Open { id, address, idle_since: idle.then_some(1000 + id) })
            .collect()
    }

    #[test]
    fn one_address_makes_room_for_itself_only() {
        let all = open((0..PER_ADDRESS_MAX - 1).map(|_| LOCAL), true);
        assert_eq!(admit(&all, LOCAL), Admission::Admit);
        let mut all = open((0..PER_ADDRESS_MAX).map(|_| LOCAL), true);
        assert_eq!(admit(&all, LOCAL), Admission::Instead(0));
        assert_eq!(admit(&all, remote(0)), Admission::Admit);
        all[0].idle_since = None;
        all[1].idle_since = Some(5000);
        assert_eq!(admit(&all, LOCAL), Admission::Instead(2));
        let busy = open((0..PER_ADDRESS_MAX).map(|_| LOCAL), false);
        assert_eq!(admit(&busy, LOCAL), Admission::Refuse);
    }

    #[test]
    fn connections_from_this_machine_have_a_reserve() {
        let others = CONNECTIONS_MAX - LOOPBACK_RESERVE;
        let busy = open((0..others).map(remote), false);
        let other: IpAddr = "10.9.9.9".parse().unwrap();
        assert_eq!(admit(&busy[..others - 1], other), Admission::Admit);
        assert_eq!(admit(&busy, other), Admission::Refuse);
        assert_eq!(admit(&busy, LOCAL), Admission::Admit);
        assert_eq!(admit(&busy, "::ffff:127.0.0.1".parse().unwrap()), Admission::Admit);
        let idle = open((0..others).map(remote), true);
        assert_eq!(admit(&idle, other), Admission::Instead(0));
        // Full: others go first, then the machine's own.
        let mixed = (0..LOOPBACK_RESERVE).map(|_| LOCAL).chain((0..others).map(remote));
        let full = open(mixed, true);
        assert_eq!(admit(&full, LOCAL), Admission::Instead(LOOPBACK_RESERVE as u64));
        let mut at_work = full.clone();
        at_work[LOOPBACK_RESERVE..].iter_mut().for_each(|o| o.idle_since = None);
        assert_eq!(admit(&at_work, LOCAL), Admission::Instead(0));
        assert_eq!(admit(&at_work, other), Admission::Refuse);
    }

    #[test]
    fn slow_requests_end_although_bytes_arrive() {
        let began = Instant::now();
        let later = began + RECEIVE_MAX / 2;
        assert_eq!(closes_at(Phase::Idle, later), Some(later + IDLE_MAX));
        assert_eq!(closes_at(Phase::Receiving(began), later), Some(began + RECEIVE_MAX));
        assert_eq!(closes_at(Phase::Working, began), None);
    }
}
