//! The network between processes: ordered byte streams with delay, bounded buffers, resets, and
//! one-way stops ("clogs") in which segments wait until healed, as TCP would send them again.

use crate::disk::CrashKind;
use crate::env::Env;
use crate::trace::hash_bytes;
use crate::world::{Event, ProcessId, State, World};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::{pending, poll_fn};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::rc::Rc;
use std::task::{Poll, Waker};
use stdx::{Instant, IoError, IoErrorKind};

/// First port given to those who ask for none.
const FIRST_FREE_PORT: u16 = 40_000;

#[derive(Default)]
pub(crate) struct Network {
    listeners: BTreeMap<u64, Listening>,
    ends: BTreeMap<u64, End>,
    clogged: BTreeSet<(String, String)>,
    latencies: BTreeMap<(String, String), Range<u64>>,
    heal_waiters: Vec<Waker>,
    last_id: u64,
    ports: BTreeMap<String, u16>,
}

struct Listening {
    process: ProcessId,
    name: Rc<str>,
    address: SocketAddr,
    any_address: bool,
    backlog: usize,
    queue: VecDeque<u64>,
    waiters: Vec<Waker>,
}

/// One side of a connection.
struct End {
    process: ProcessId,
    name: Rc<str>,
    peer: u64,
    peer_name: Rc<str>,
    local: SocketAddr,
    remote: SocketAddr,
    inbox: VecDeque<u8>,
    /// The peer will send no more.
    ended: bool,
    reset: bool,
    /// This side sends no more.
    shut: bool,
    /// Bytes that this side sent and the peer has not read.
    unread_by_peer: usize,
    readers: Vec<Waker>,
    writers: Vec<Waker>,
    /// When this side's last segment arrives: later ones do not overtake it.
    last_arrival: Instant,
    /// Segments that a clog holds back.
    held: VecDeque<Segment>,
}

enum Segment {
    Data(Vec<u8>),
    Fin,
    Reset,
}

/// A segment that reaches the end `to`.
pub(crate) struct NetEvent {
    to: u64,
    segment: Segment,
}

impl Network {
    fn is_clogged(&self, from: &str, to: &str) -> bool {
        from != to && self.clogged.contains(&(from.to_string(), to.to_string()))
    }

    fn find_listener(&self, name: &str, address: SocketAddr) -> Option<u64> {
        let matches = |l: &Listening| {
            l.address.port() == address.port()
                && if address.ip().is_loopback() {
                    *l.name == *name && (l.any_address || l.address.ip().is_loopback())
                } else {
                    l.address.ip() == address.ip()
                }
        };
        self.listeners.iter().find(|(_, l)| matches(l)).map(|(id, _)| *id)
    }

    fn free_port(&mut self, name: &str) -> u16 {
        let port = self.ports.entry(name.to_string()).or_insert(FIRST_FREE_PORT);
        let given = *port;
        *port = port.checked_add(1).unwrap_or(FIRST_FREE_PORT);
        given
    }
}

fn latency(state: &mut State, from: &str, to: &str) -> std::time::Duration {
    let range = if from == to {
        state.options.loopback_micros.clone()
    } else {
        let own = state.net.latencies.get(&(from.to_string(), to.to_string())).cloned();
        own.unwrap_or_else(|| state.options.latency_micros.clone())
    };
    state.random_micros(&range)
}

/// Sends a segment of the end `from` to its peer.
fn send(state: &mut State, from: u64, segment: Segment) {
    let Some(end) = state.net.ends.get(&from) else { return };
    let (name, peer_name, to) = (Rc::clone(&end.name), Rc::clone(&end.peer_name), end.peer);
    if state.net.is_clogged(&name, &peer_name) {
        if let Some(end) = state.net.ends.get_mut(&from) {
            end.held.push_back(segment);
        }
        return;
    }
    let mut segment = segment;
    let chance = state.options.resets_per_million;
    if chance > 0 && state.random() % 1_000_000 < chance {
        segment = Segment::Reset;
        state.note("reset", from, to);
        reset_end(state, from);
    }
    let delay = latency(state, &name, &peer_name);
    let now = state.now;
    let mut at = now + delay;
    if let Some(end) = state.net.ends.get_mut(&from) {
        at = at.max(end.last_arrival);
        end.last_arrival = at;
    }
    state.schedule(at, Event::Net(NetEvent { to, segment }));
}

/// Breaks an end; its tasks see an error at their next call.
fn reset_end(state: &mut State, id: u64) {
    let wakers = match state.net.ends.get_mut(&id) {
        Some(end) => {
            end.reset = true;
            end.inbox.clear();
            std::mem::take(&mut end.readers).into_iter().chain(std::mem::take(&mut end.writers))
        }
        None => return,
    };
    let now = state.now;
    for waker in wakers.collect::<Vec<_>>() {
        state.schedule(now, Event::Wake(waker));
    }
}

/// A segment arrives; gives back whom to wake.
pub(crate) fn arrive(state: &mut State, event: NetEvent) -> Vec<Waker> {
    let NetEvent { to, segment } = event;
    let size = match &segment {
        Segment::Data(bytes) => bytes.len() as u64,
        Segment::Fin => 1 << 32,
        Segment::Reset => 1 << 33,
    };
    state.note("arrive", to, size);
    let Some(end) = state.net.ends.get_mut(&to) else { return Vec::new() };
    let mut wakers = std::mem::take(&mut end.readers);
    match segment {
        Segment::Data(bytes) => {
            if !end.reset {
                end.inbox.extend(bytes);
            }
        }
        Segment::Fin => end.ended = true,
        Segment::Reset => {
            end.reset = true;
            end.inbox.clear();
            wakers.append(&mut end.writers);
        }
    }
    wakers
}

/// Closes an end: the peer gets what was sent, then the end of the stream.
fn close(state: &mut State, id: u64, segment: Segment) {
    let Some(end) = state.net.ends.get(&id) else { return };
    if !end.shut && !end.reset {
        send(state, id, segment);
    }
    let Some(end) = state.net.ends.remove(&id) else { return };
    // What a clog holds back is lost with its end, so the peer must not see a clean end either.
    if !end.held.is_empty() {
        let at = state.now + state.options.silent_peer_timeout;
        let event = NetEvent { to: end.peer, segment: Segment::Reset };
        state.schedule(at, Event::Net(event));
    }
    // Writes of the peer from now on break.
    let peer_blocked = state.net.ends.get_mut(&end.peer);
    let wakers = peer_blocked.map(|p| std::mem::take(&mut p.writers)).unwrap_or_default();
    let now = state.now;
    for waker in wakers {
        state.schedule(now, Event::Wake(waker));
    }
}

/// What a death means for the sockets of a process.
pub(crate) fn process_died(state: &mut State, process: ProcessId, kind: CrashKind) {
    state.net.listeners.retain(|_, l| l.process != process);
    let ends: Vec<u64> =
        state.net.ends.iter().filter(|(_, e)| e.process == process).map(|(id, _)| *id).collect();
    for id in ends {
        match kind {
            CrashKind::Kill => {
                // As a kernel closes sockets: a reset when something was left unread.
                let unread = state.net.ends.get(&id).is_some_and(|end| !end.inbox.is_empty());
                close(state, id, if unread { Segment::Reset } else { Segment::Fin });
            }
            CrashKind::PowerCut | CrashKind::PowerCutLosingAll => {
                // Silence: the peer learns it from its own timeouts, or late.
                if let Some(end) = state.net.ends.remove(&id) {
                    let at = state.now + state.options.silent_peer_timeout;
                    let event = NetEvent { to: end.peer, segment: Segment::Reset };
                    state.schedule(at, Event::Net(event));
                }
            }
        }
    }
}

/// A listening socket; closed when dropped.
pub struct Listener {
    env: Env,
    id: u64,
    address: SocketAddr,
}

impl Env {
    /// Listens on the process's own address, on loopback, or on any.
    pub async fn listen(&self, address: SocketAddr, backlog: u32) -> Result<Listener, IoError> {
        let Some(mut guard) = self.alive() else { return pending().await };
        let state = &mut *guard;
        let Some(own_ip) = state.processes.get(self.process.0).map(|p| p.ip) else {
            return Err(self.error(IoErrorKind::Stopping, "listen", "", "no process"));
        };
        let any_address = address.ip().is_unspecified();
        let ip = if any_address { own_ip } else { address.ip() };
        let port = match address.port() {
            0 => state.net.free_port(&self.name),
            port => port,
        };
        let address = SocketAddr::new(ip, port);
        if state.net.find_listener(&self.name, address).is_some() {
            drop(guard);
            let path = address.to_string();
            return Err(self.error(IoErrorKind::AddrInUse, "listen", &path, "address in use"));
        }
        state.net.last_id += 1;
        let id = state.net.last_id;
        let listening = Listening {
            process: self.process,
            name: Rc::clone(&self.name),
            address,
            any_address,
            backlog: usize::try_from(backlog).unwrap_or(usize::MAX).max(1),
            queue: VecDeque::new(),
            waiters: Vec::new(),
        };
        state.net.listeners.insert(id, listening);
        state.note("listen", id, u64::from(port));
        drop(guard);
        Ok(Listener { env: self.clone(), id, address })
    }

    /// Connects; refused when nobody listens, waits while a clog is between.
    pub async fn connect(&self, address: SocketAddr) -> Result<Conn, IoError> {
        let target = self.wait_for_path(address).await?;
        let round_trip = {
            let Some(mut guard) = self.alive() else { return pending().await };
            let there = latency(&mut guard, &self.name, &target);
            there + latency(&mut guard, &target, &self.name)
        };
        self.delay(round_trip).await;
        let Some(mut guard) = self.alive() else { return pending().await };
        let state = &mut *guard;
        let own_ip = state.processes.get(self.process.0).map_or(address.ip(), |p| p.ip);
        let found = state.net.find_listener(&self.name, address);
        let listening = found
            .and_then(|id| state.net.listeners.get(&id).map(|l| (id, l)))
            .filter(|(_, l)| l.queue.len() < l.backlog)
            .map(|(id, l)| (id, l.process, Rc::clone(&l.name)));
        let Some((listener, process, name)) = listening else {
            state.note("refused", hash_bytes(address.to_string().as_bytes()), 0);
            drop(guard);
            let path = address.to_string();
            let kind = IoErrorKind::Disconnected;
            return Err(self.error(kind, "connect", &path, "connection refused"));
        };
        let from_ip =
            if address.ip().is_loopback() { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { own_ip };
        let local = SocketAddr::new(from_ip, state.net.free_port(&self.name));
        state.net.last_id += 2;
        let (near, far) = (state.net.last_id - 1, state.net.last_id);
        state.note("connect", near, listener);
        let wakers = match state.net.listeners.get_mut(&listener) {
            Some(l) => {
                l.queue.push_back(far);
                std::mem::take(&mut l.waiters)
            }
            None => Vec::new(),
        };
        let now = state.now;
        let end = |process, name: &Rc<str>, peer, peer_name: &Rc<str>, local, remote| End {
            process,
            name: Rc::clone(name),
            peer,
            peer_name: Rc::clone(peer_name),
            local,
            remote,
            inbox: VecDeque::new(),
            ended: false,
            reset: false,
            shut: false,
            unread_by_peer: 0,
            readers: Vec::new(),
            writers: Vec::new(),
            last_arrival: now,
            held: VecDeque::new(),
        };
        let near_end = end(self.process, &self.name, far, &name, local, address);
        let far_end = end(process, &name, near, &self.name, address, local);
        state.net.ends.insert(near, near_end);
        state.net.ends.insert(far, far_end);
        drop(guard);
        for waker in wakers {
            waker.wake();
        }
        Ok(Conn::new(self, near, address, local))
    }

    /// The name of who listens at `address` (or the own one), once no clog is between.
    async fn wait_for_path(&self, address: SocketAddr) -> Result<Rc<str>, IoError> {
        poll_fn(|cx| {
            let Some(mut guard) = self.alive() else { return Poll::Pending };
            let state = &mut *guard;
            let found = state.net.find_listener(&self.name, address);
            let target = match found.and_then(|id| state.net.listeners.get(&id)) {
                Some(l) => Rc::clone(&l.name),
                None => Rc::clone(&self.name),
            };
            let net = &mut state.net;
            if net.is_clogged(&self.name, &target) || net.is_clogged(&target, &self.name) {
                net.heal_waiters.push(cx.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(Ok(target))
        })
        .await
    }

    /// Takes over a connection from another shard of this process.
    pub fn from_moved(&self, moved: MovedConn) -> Result<Conn, IoError> {
        let there = self.alive().is_some_and(|state| {
            state.net.ends.get(&moved.id).is_some_and(|end| end.process == self.process)
        });
        if !there {
            let path = moved.peer.to_string();
            let kind = IoErrorKind::Disconnected;
            return Err(self.error(kind, "move", &path, "the connection is gone"));
        }
        Ok(Conn::new(self, moved.id, moved.peer, moved.local))
    }
}

impl Listener {
    /// The next connection.
    pub async fn accept(&self) -> Result<Conn, IoError> {
        let id = poll_fn(|cx| {
            let Some(mut state) = self.env.alive() else { return Poll::Pending };
            let Some(listening) = state.net.listeners.get_mut(&self.id) else {
                return Poll::Pending;
            };
            match listening.queue.pop_front() {
                Some(id) => Poll::Ready(id),
                None => {
                    register(&mut listening.waiters, cx.waker());
                    Poll::Pending
                }
            }
        })
        .await;
        let addresses = {
            let Some(mut state) = self.env.alive() else { return pending().await };
            state.note("accept", self.id, id);
            state.net.ends.get(&id).map(|end| (end.remote, end.local))
        };
        match addresses {
            Some((peer, local)) => Ok(Conn::new(&self.env, id, peer, local)),
            None => {
                let path = self.address.to_string();
                let kind = IoErrorKind::Disconnected;
                Err(self.env.error(kind, "accept", &path, "connection aborted"))
            }
        }
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let Some(mut state) = self.env.alive() else { return };
        let Some(listening) = state.net.listeners.remove(&self.id) else { return };
        for id in listening.queue {
            close(&mut state, id, Segment::Reset);
        }
    }
}

/// One side of a connection; closed with the last clone.
#[derive(Clone)]
pub struct Conn {
    inner: Rc<ConnInner>,
}

struct ConnInner {
    env: Env,
    id: u64,
    peer: SocketAddr,
    local: SocketAddr,
    moved: Cell<bool>,
}

/// A connection between two shards. Dropped unused it stays open until its process ends.
pub struct MovedConn {
    id: u64,
    peer: SocketAddr,
    local: SocketAddr,
}

impl Conn {
    fn new(env: &Env, id: u64, peer: SocketAddr, local: SocketAddr) -> Conn {
        let inner = ConnInner { env: env.clone(), id, peer, local, moved: Cell::new(false) };
        Conn { inner: Rc::new(inner) }
    }

    /// Appends at most `max` bytes; 0 is the end of the stream.
    pub async fn read(&self, into: &mut Vec<u8>, max: usize) -> Result<usize, IoError> {
        poll_fn(|cx| {
            let Some(mut guard) = self.inner.env.alive() else { return Poll::Pending };
            let state = &mut *guard;
            let Some(end) = state.net.ends.get_mut(&self.inner.id) else {
                return Poll::Ready(Err(self.broken("read")));
            };
            if end.reset {
                return Poll::Ready(Err(self.broken("read")));
            }
            let n = end.inbox.len().min(max);
            if n == 0 && max > 0 && !end.ended && !end.shut {
                register(&mut end.readers, cx.waker());
                return Poll::Pending;
            }
            let start = into.len();
            into.extend(end.inbox.drain(..n));
            let peer = end.peer;
            let hash = hash_bytes(into.get(start..).unwrap_or_default());
            state.note("recv", self.inner.id, hash);
            let writers = match state.net.ends.get_mut(&peer) {
                Some(other) => {
                    other.unread_by_peer = other.unread_by_peer.saturating_sub(n);
                    std::mem::take(&mut other.writers)
                }
                None => Vec::new(),
            };
            drop(guard);
            for waker in writers {
                waker.wake();
            }
            Poll::Ready(Ok(n))
        })
        .await
    }

    /// Writes everything; waits while too much is unread.
    pub async fn write_all(&self, bytes: &[u8]) -> Result<(), IoError> {
        let mut done = 0;
        poll_fn(|cx| {
            if self.inner.env.alive().is_none() {
                return Poll::Pending;
            }
            match self.try_write(bytes.get(done..).unwrap_or_default()) {
                Err(e) => return Poll::Ready(Err(e)),
                Ok(n) => done += n,
            }
            if done >= bytes.len() {
                return Poll::Ready(Ok(()));
            }
            if let Some(mut state) = self.inner.env.alive()
                && let Some(end) = state.net.ends.get_mut(&self.inner.id)
            {
                register(&mut end.writers, cx.waker());
            }
            Poll::Pending
        })
        .await
    }

    /// Writes what fits; 0 when too much is unread.
    pub fn try_write(&self, bytes: &[u8]) -> Result<usize, IoError> {
        let Some(mut guard) = self.inner.env.alive() else { return Ok(0) };
        let state = &mut *guard;
        let max = state.options.socket_bytes_max;
        let Some(end) = state.net.ends.get_mut(&self.inner.id) else {
            return Err(self.broken("write"));
        };
        if end.reset || end.shut {
            return Err(self.broken("write"));
        }
        let n = max.saturating_sub(end.unread_by_peer).min(bytes.len());
        if n == 0 {
            return Ok(0);
        }
        end.unread_by_peer += n;
        let data = bytes.get(..n).unwrap_or_default();
        let (peer, hash) = (end.peer, hash_bytes(data));
        let (name, peer_name) = (Rc::clone(&end.name), Rc::clone(&end.peer_name));
        state.note("send", self.inner.id, hash);
        if !state.net.ends.contains_key(&peer) && !state.net.is_clogged(&name, &peer_name) {
            // Nobody is there: the answer is a reset, after a round trip.
            let delay = latency(state, &name, &peer_name) + latency(state, &peer_name, &name);
            let at = state.now + delay;
            let event = NetEvent { to: self.inner.id, segment: Segment::Reset };
            state.schedule(at, Event::Net(event));
            return Ok(n);
        }
        send(state, self.inner.id, Segment::Data(data.to_vec()));
        Ok(n)
    }

    /// Ends both directions; what was written before still arrives.
    pub fn shutdown(&self) {
        let Some(mut guard) = self.inner.env.alive() else { return };
        let state = &mut *guard;
        let open = state.net.ends.get(&self.inner.id).is_some_and(|e| !e.shut && !e.reset);
        if !open {
            return;
        }
        send(state, self.inner.id, Segment::Fin);
        let Some(end) = state.net.ends.get_mut(&self.inner.id) else { return };
        end.shut = true;
        let mut wakers = std::mem::take(&mut end.readers);
        wakers.append(&mut end.writers);
        drop(guard);
        for waker in wakers {
            waker.wake();
        }
    }

    /// The other side.
    pub fn peer_addr(&self) -> SocketAddr {
        self.inner.peer
    }

    /// This side.
    pub fn local_addr(&self) -> SocketAddr {
        self.inner.local
    }

    /// Takes it off this shard.
    pub fn into_moved(self) -> MovedConn {
        self.inner.moved.set(true);
        MovedConn { id: self.inner.id, peer: self.inner.peer, local: self.inner.local }
    }

    fn broken(&self, operation: &'static str) -> IoError {
        IoError {
            kind: IoErrorKind::Disconnected,
            operation,
            path: self.inner.peer.to_string(),
            detail: "connection reset by peer".to_string(),
        }
    }
}

impl Drop for ConnInner {
    fn drop(&mut self) {
        if self.moved.get() {
            return;
        }
        let Some(mut state) = self.env.alive() else { return };
        state.note("close", self.id, 0);
        close(&mut state, self.id, Segment::Fin);
    }
}

fn register(wakers: &mut Vec<Waker>, waker: &Waker) {
    if !wakers.iter().any(|w| w.will_wake(waker)) {
        wakers.push(waker.clone());
    }
}

impl World {
    /// Holds back everything that `from` sends to `to`.
    pub fn clog(&self, from: &str, to: &str) {
        let mut state = self.core.state.borrow_mut();
        state.net.clogged.insert((from.to_string(), to.to_string()));
    }

    /// Holds back everything between `a` and `b`.
    pub fn partition(&self, a: &str, b: &str) {
        self.clog(a, b);
        self.clog(b, a);
    }

    /// Ends clogs and partitions between `a` and `b`; what was held back is sent.
    pub fn heal(&self, a: &str, b: &str) {
        let pairs = [(a.to_string(), b.to_string()), (b.to_string(), a.to_string())];
        self.unclog(|pair| pairs.contains(pair));
    }

    /// Ends all clogs and partitions.
    pub fn heal_all(&self) {
        self.unclog(|_| true);
    }

    fn unclog(&self, which: impl Fn(&(String, String)) -> bool) {
        let wakers = {
            let mut guard = self.core.state.borrow_mut();
            let state = &mut *guard;
            state.net.clogged.retain(|pair| !which(pair));
            let ids: Vec<u64> = state.net.ends.keys().copied().collect();
            for id in ids {
                let held = state.net.ends.get_mut(&id).map(|end| std::mem::take(&mut end.held));
                // Those still clogged are held again, in order.
                for segment in held.unwrap_or_default() {
                    send(state, id, segment);
                }
            }
            std::mem::take(&mut state.net.heal_waiters)
        };
        for waker in wakers {
            waker.wake();
        }
    }

    /// Resets all connections between `a` and `b`.
    pub fn reset_connections(&self, a: &str, b: &str) {
        let mut guard = self.core.state.borrow_mut();
        let state = &mut *guard;
        let between = |e: &End| {
            (*e.name == *a && *e.peer_name == *b) || (*e.name == *b && *e.peer_name == *a)
        };
        let ids: Vec<u64> =
            state.net.ends.iter().filter(|(_, e)| between(e)).map(|(id, _)| *id).collect();
        for id in ids {
            state.note("reset", id, 0);
            reset_end(state, id);
        }
    }

    /// One-way delay from `from` to `to` in microseconds, instead of the world's.
    pub fn set_latency(&self, from: &str, to: &str, micros: Range<u64>) {
        let mut state = self.core.state.borrow_mut();
        state.net.latencies.insert((from.to_string(), to.to_string()), micros);
    }
}
