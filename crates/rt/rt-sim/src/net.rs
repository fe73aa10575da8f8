//! The network between processes: ordered byte streams with delay, bounded buffers and resets.
//!
//! Like with TCP, silence ends a connection only for a sender: its machine aborts when nothing is
//! acknowledged for [`WorldOptions::silent_peer_timeout`](crate::WorldOptions). A reader waits
//! forever for a machine without power. When that machine runs again, it resets connections that it
//! does not know.

use crate::disk::CrashKind;
use crate::env::Env;
use crate::link::{Links, travel, travel_on};
use crate::state::{Event, ProcessId, State};
use crate::trace::hash_bytes;
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::future::{Future, pending, poll_fn};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;
use stdx::{Instant, IoError, IoErrorKind};

/// First port for listeners that request none.
const FIRST_FREE_PORT: u16 = 40_000;
/// How long a connect is tried, as Linux does with `tcp_syn_retries` = 6.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(127);
/// When a connect that found the backlog full is tried again.
const CONNECT_AGAIN: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(crate) struct Network {
    listeners: BTreeMap<u64, Listening>,
    ends: BTreeMap<u64, End>,
    pub(crate) links: Links,
    /// Connections between two shards: closed when their [`MovedConn`] is gone.
    moved: BTreeMap<u64, Weak<()>>,
    last_id: u64,
    ports: BTreeMap<String, u16>,
    /// Sees the bytes that connections begin with.
    pub(crate) on_begin: Option<OnBegin>,
}

/// Called with the addresses of the connecting and the accepting side of a connection, and the first bytes that the
/// connecting one sends.
pub type OnBegin = Rc<dyn Fn(SocketAddr, SocketAddr, &[u8])>;

/// First byte of a TLS connection.
const TLS_HANDSHAKE: u8 = 0x16;

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
    /// The peer has ended its direction.
    ended: bool,
    reset: bool,
    /// This side has ended its direction.
    shut: bool,
    /// Bytes that this side sent and the peer has not read.
    unread_by_peer: usize,
    /// The side that connects and has sent nothing yet.
    is_beginning: bool,
    /// The contents are encrypted with keys that differ from run to run: the trace has lengths only.
    is_opaque: bool,
    readers: Vec<Waker>,
    writers: Vec<Waker>,
    /// When this side's last segment arrives: later ones do not overtake it.
    last_arrival: Instant,
    /// Segments that a clog holds back.
    held: VecDeque<Segment>,
    /// Since when something that was sent cannot be acknowledged.
    silent_since: Option<Instant>,
    /// Closed, and retained only until its held-back segments are sent.
    is_orphan: bool,
}

pub(crate) enum Segment {
    Data(Vec<u8>),
    Fin,
    Reset,
}

pub(crate) enum NetEvent {
    /// A segment reaches the end `to`, or the machine where that was.
    Arrive { from: u64, to: u64, segment: Segment, sender: Rc<str>, receiver: Rc<str> },
    /// The machine of that end aborts the connection, if it has been silent since then.
    GiveUp { id: u64, since: Instant },
}

impl Network {
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

    /// Ends of connections that a process holds.
    pub(crate) fn count_of(&self, process: ProcessId) -> u64 {
        self.ends.values().filter(|end| end.process == process && !end.is_orphan).count() as u64
    }

    fn free_port(&mut self, name: &str) -> u16 {
        let port = self.ports.entry(name.to_string()).or_insert(FIRST_FREE_PORT);
        let given = *port;
        *port = port.checked_add(1).unwrap_or(FIRST_FREE_PORT);
        given
    }
}

/// Sends a segment of the end `from` to its peer.
fn send(state: &mut State, from: u64, segment: Segment) {
    let Some(end) = state.net.ends.get(&from) else { return };
    let (name, peer_name, to) = (Rc::clone(&end.name), Rc::clone(&end.peer_name), end.peer);
    let path = state.net.links.path(&name, &peer_name);
    if path.is_cut {
        // A reset is not sent again.
        if !matches!(segment, Segment::Reset)
            && let Some(end) = state.net.ends.get_mut(&from)
        {
            end.held.push_back(segment);
            fell_silent(state, from);
        }
        return;
    }
    let mut segment = segment;
    let chance = path.options.resets_per_million.unwrap_or(state.options.resets_per_million);
    if chance > 0 && state.random() % 1_000_000 < chance {
        segment = Segment::Reset;
        state.note("reset", from, to);
        reset_end(state, from);
    }
    let bytes = match &segment {
        Segment::Data(bytes) => bytes.len(),
        Segment::Fin | Segment::Reset => 0,
    };
    let delay = travel_on(state, &name, &peer_name, bytes, path.options);
    let now = state.now;
    let mut at = now + delay;
    if let Some(end) = state.net.ends.get_mut(&from) {
        at = at.max(end.last_arrival);
        end.last_arrival = at;
    }
    let event = NetEvent::Arrive { from, to, segment, sender: name, receiver: peer_name };
    state.schedule(at, Event::Net(Box::new(event)));
}

/// Nothing that this end sent can be acknowledged for now; if that does not change, it aborts.
fn fell_silent(state: &mut State, id: u64) {
    let now = state.now;
    let Some(end) = state.net.ends.get_mut(&id) else { return };
    if end.silent_since.is_none() {
        end.silent_since = Some(now);
        let at = now + state.options.silent_peer_timeout;
        state.schedule(at, Event::Net(Box::new(NetEvent::GiveUp { id, since: now })));
    }
}

/// Breaks an end; its tasks see an error at their next call.
fn reset_end(state: &mut State, id: u64) {
    let wakers = match state.net.ends.get_mut(&id) {
        Some(end) => {
            end.reset = true;
            end.inbox.clear();
            end.held.clear();
            std::mem::take(&mut end.readers).into_iter().chain(std::mem::take(&mut end.writers))
        }
        None => return,
    };
    let now = state.now;
    for waker in wakers.collect::<Vec<_>>() {
        state.schedule(now, Event::Wake(waker));
    }
}

/// Applies an event of the network; returns the wakers to call.
pub(crate) fn happen(state: &mut State, event: NetEvent) -> Vec<Waker> {
    match event {
        NetEvent::Arrive { from, to, segment, sender, receiver } => {
            arrive(state, Side::new(from, &sender), Side::new(to, &receiver), segment)
        }
        NetEvent::GiveUp { id, since } => {
            let Some(end) = state.net.ends.get(&id) else { return Vec::new() };
            if end.silent_since == Some(since) && !end.reset {
                state.note("give up", id, since.0);
                reset_end(state, id);
                remove_orphan(state, id);
            }
            Vec::new()
        }
    }
}

/// One end of a connection and the machine that it is on.
#[derive(Clone, Copy)]
struct Side<'a> {
    id: u64,
    machine: &'a Rc<str>,
}

impl<'a> Side<'a> {
    fn new(id: u64, machine: &'a Rc<str>) -> Side<'a> {
        Side { id, machine }
    }
}

fn arrive(state: &mut State, from: Side<'_>, to: Side<'_>, segment: Segment) -> Vec<Waker> {
    let size = match &segment {
        Segment::Data(bytes) => bytes.len() as u64,
        Segment::Fin => 1 << 32,
        Segment::Reset => 1 << 33,
    };
    state.note("arrive", to.id, size);
    let is_reset = matches!(segment, Segment::Reset);
    let Some(end) = state.net.ends.get_mut(&to.id).filter(|end| !end.is_orphan) else {
        if !is_reset {
            arrive_nowhere(state, from, to);
        }
        return Vec::new();
    };
    let mut wakers = std::mem::take(&mut end.readers);
    match segment {
        Segment::Data(bytes) => {
            if !end.reset {
                end.inbox.extend(bytes);
            }
        }
        Segment::Fin => end.ended = true,
        // Earlier bytes can still be read, as on Linux.
        Segment::Reset => {
            end.reset = true;
            end.held.clear();
            wakers.append(&mut end.writers);
        }
    }
    if !is_reset && state.net.links.is_cut(to.machine, from.machine) {
        fell_silent(state, from.id);
    }
    wakers
}

/// Handles a segment for a missing end: a running machine answers with a reset.
fn arrive_nowhere(state: &mut State, from: Side<'_>, to: Side<'_>) {
    if state.net.links.is_powered(to.machine) && !state.net.links.is_cut(to.machine, from.machine) {
        let at = state.now + travel(state, to.machine, from.machine, 0);
        let (sender, receiver) = (Rc::clone(to.machine), Rc::clone(from.machine));
        let segment = Segment::Reset;
        let event = NetEvent::Arrive { from: to.id, to: from.id, segment, sender, receiver };
        state.schedule(at, Event::Net(Box::new(event)));
    } else {
        fell_silent(state, from.id);
    }
}

/// Resumes waiting segments and connects after a path was healed or a machine got power.
pub(crate) fn paths_changed(state: &mut State) {
    let ids: Vec<u64> = state.net.ends.keys().copied().collect();
    for id in ids {
        let net = &mut state.net;
        let Some(end) = net.ends.get_mut(&id).filter(|end| end.silent_since.is_some()) else {
            continue;
        };
        let (name, peer_name, peer) = (Rc::clone(&end.name), Rc::clone(&end.peer_name), end.peer);
        if net.links.is_cut(&name, &peer_name) {
            continue;
        }
        if net.links.is_open(&name, &peer_name) {
            end.silent_since = None;
        }
        let held = std::mem::take(&mut end.held);
        if held.is_empty() {
            let is_there = net.ends.get(&peer).is_some_and(|end| !end.is_orphan);
            if !is_there {
                // A retransmission arrives now at an end that no longer exists.
                arrive_nowhere(state, Side::new(id, &name), Side::new(peer, &peer_name));
            }
        }
        for segment in held {
            send(state, id, segment);
        }
        remove_orphan(state, id);
    }
}

/// Forgets a closed end that has nothing left to send.
fn remove_orphan(state: &mut State, id: u64) {
    let ends = &mut state.net.ends;
    if ends.get(&id).is_some_and(|end| end.is_orphan && end.held.is_empty()) {
        ends.remove(&id);
    }
}

/// Closes an end, as a kernel does: the peer gets all sent bytes, then the end of the stream; or a
/// reset if received bytes were left unread.
fn close(state: &mut State, id: u64) {
    let Some(end) = state.net.ends.get(&id) else { return };
    let (peer, open) = (end.peer, !end.shut && !end.reset);
    let segment = if end.inbox.is_empty() { Segment::Fin } else { Segment::Reset };
    if open {
        send(state, id, segment);
    }
    let Some(end) = state.net.ends.get_mut(&id) else { return };
    end.is_orphan = true;
    end.shut = true;
    end.readers.clear();
    end.writers.clear();
    remove_orphan(state, id);
    // Writes of the peer from now on break.
    let peer_blocked = state.net.ends.get_mut(&peer);
    let wakers = peer_blocked.map(|p| std::mem::take(&mut p.writers)).unwrap_or_default();
    let now = state.now;
    for waker in wakers {
        state.schedule(now, Event::Wake(waker));
    }
}

/// Closes or drops the sockets of a process that died.
pub(crate) fn process_died(state: &mut State, process: ProcessId, kind: CrashKind) {
    state.net.listeners.retain(|_, l| l.process != process);
    let ends: Vec<u64> =
        state.net.ends.iter().filter(|(_, e)| e.process == process).map(|(id, _)| *id).collect();
    for id in ends {
        match kind {
            CrashKind::Kill => close(state, id),
            // Silence: peers are not notified.
            CrashKind::PowerCut | CrashKind::PowerCutLosingAll => {
                state.net.ends.remove(&id);
            }
        }
    }
}

/// Closes the connections whose [`MovedConn`] was dropped unused.
pub(crate) fn close_abandoned(state: &mut State) {
    let gone = |(id, token): (&u64, &Weak<()>)| (token.strong_count() == 0).then_some(*id);
    let gone: Vec<u64> = state.net.moved.iter().filter_map(gone).collect();
    for id in gone {
        state.net.moved.remove(&id);
        state.note("abandoned", id, 0);
        close(state, id);
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

    /// Connects. A running machine without a listener refuses. Waits, up to 127 s, while the link
    /// is cut, the machine has no power or no machine has the address.
    pub async fn connect(&self, address: SocketAddr) -> Result<Conn, IoError> {
        let mut too_late = pin!(self.delay(CONNECT_TIMEOUT));
        let mut connecting = pin!(self.connect_some_time(address));
        poll_fn(|cx| {
            if let Poll::Ready(result) = connecting.as_mut().poll(cx) {
                return Poll::Ready(result);
            }
            too_late.as_mut().poll(cx).map(|()| {
                let (kind, path) = (IoErrorKind::Disconnected, address.to_string());
                Err(self.error(kind, "connect", &path, "connection timed out"))
            })
        })
        .await
    }

    async fn connect_some_time(&self, address: SocketAddr) -> Result<Conn, IoError> {
        loop {
            let target = self.wait_for_path(address).await;
            let round_trip = {
                let Some(mut guard) = self.alive() else { return pending().await };
                let there = travel(&mut guard, &self.name, &target, 0);
                there + travel(&mut guard, &target, &self.name, 0)
            };
            self.delay(round_trip).await;
            let is_full = {
                let Some(state) = self.alive() else { return pending().await };
                if !state.net.links.is_open(&self.name, &target) {
                    continue;
                }
                let found = state.net.find_listener(&self.name, address);
                let listening = found.and_then(|id| state.net.listeners.get(&id));
                listening.is_some_and(|l| l.queue.len() >= l.backlog)
            };
            if !is_full {
                return self.establish(address);
            }
            self.delay(CONNECT_AGAIN).await;
        }
    }

    fn establish(&self, address: SocketAddr) -> Result<Conn, IoError> {
        let refused = || {
            let (kind, path) = (IoErrorKind::Refused, address.to_string());
            Err(self.error(kind, "connect", &path, "connection refused"))
        };
        let Some(mut guard) = self.alive() else { return refused() };
        let state = &mut *guard;
        let own_ip = state.processes.get(self.process.0).map_or(address.ip(), |p| p.ip);
        let found = state.net.find_listener(&self.name, address);
        let listening = found
            .and_then(|id| state.net.listeners.get(&id).map(|l| (id, l)))
            .map(|(id, l)| (id, l.process, Rc::clone(&l.name)));
        let Some((listener, process, name)) = listening else {
            state.note("refused", hash_bytes(address.to_string().as_bytes()), 0);
            return refused();
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
            is_beginning: false,
            is_opaque: false,
            readers: Vec::new(),
            writers: Vec::new(),
            last_arrival: now,
            held: VecDeque::new(),
            silent_since: None,
            is_orphan: false,
        };
        let mut near_end = end(self.process, &self.name, far, &name, local, address);
        near_end.is_beginning = true;
        let far_end = end(process, &name, near, &self.name, address, local);
        state.net.ends.insert(near, near_end);
        state.net.ends.insert(far, far_end);
        drop(guard);
        for waker in wakers {
            waker.wake();
        }
        Ok(Conn::new(self, near, address, local))
    }

    /// The name of the machine with that address, once it can be reached and answer.
    async fn wait_for_path(&self, address: SocketAddr) -> Rc<str> {
        poll_fn(|cx| {
            let Some(mut guard) = self.alive() else { return Poll::Pending };
            let state = &mut *guard;
            let target = match address.ip().is_loopback() {
                true => Some(Rc::clone(&self.name)),
                false => state.name_of(address.ip()),
            };
            match target.filter(|name| state.net.links.is_open(&self.name, name)) {
                Some(name) => Poll::Ready(name),
                None => {
                    register(&mut state.net.links.waiters, cx.waker());
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Accepts a connection from another shard of this process.
    pub fn from_moved(&self, moved: MovedConn) -> Result<Conn, IoError> {
        let there = self.alive().is_some_and(|mut state| {
            state.net.moved.remove(&moved.id);
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
            // No process will ever read the received bytes.
            send(&mut state, id, Segment::Reset);
            reset_end(&mut state, id);
            close(&mut state, id);
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

/// A connection between two shards. Dropped unused, it is closed at the world's next step.
pub struct MovedConn {
    id: u64,
    peer: SocketAddr,
    local: SocketAddr,
    /// The world holds the weak side and sees when this is gone: a moved connection may cross
    /// threads in the types of the native world, so it cannot hold the world itself.
    _token: Arc<()>,
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
            let n = end.inbox.len().min(max);
            if end.reset && n == 0 {
                return Poll::Ready(Err(self.broken("read")));
            }
            if n == 0 && max > 0 && !end.ended && !end.shut {
                register(&mut end.readers, cx.waker());
                return Poll::Pending;
            }
            let start = into.len();
            into.extend(end.inbox.drain(..n));
            let peer = end.peer;
            let hash = hash_of(end.is_opaque, into.get(start..).unwrap_or_default());
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
        let begins = std::mem::take(&mut end.is_beginning);
        if begins && data.first() == Some(&TLS_HANDSHAKE) {
            end.is_opaque = true;
            let peer = end.peer;
            if let Some(peer) = state.net.ends.get_mut(&peer) {
                peer.is_opaque = true;
            }
        }
        let is_opaque = state.net.ends.get(&self.inner.id).is_some_and(|end| end.is_opaque);
        if let Some(on_begin) = state.net.on_begin.as_ref().filter(|_| begins) {
            on_begin(self.inner.local, self.inner.peer, data);
        }
        state.note("send", self.inner.id, hash_of(is_opaque, data));
        send(state, self.inner.id, Segment::Data(data.to_vec()));
        Ok(n)
    }

    /// Ends both directions; bytes written before still arrive.
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

    /// Resets the connection: bytes that have not arrived are lost.
    pub fn reset(&self) {
        let Some(mut guard) = self.inner.env.alive() else { return };
        let state = &mut *guard;
        let open = state.net.ends.get(&self.inner.id).is_some_and(|e| !e.shut && !e.reset);
        if open {
            send(state, self.inner.id, Segment::Reset);
            reset_end(state, self.inner.id);
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

    /// Detaches it from this shard.
    pub fn into_moved(self) -> MovedConn {
        self.inner.moved.set(true);
        let (id, token) = (self.inner.id, Arc::new(()));
        if let Some(mut state) = self.inner.env.alive() {
            state.net.moved.insert(id, Arc::downgrade(&token));
        }
        MovedConn { id, peer: self.inner.peer, local: self.inner.local, _token: token }
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
        close(&mut state, self.id);
    }
}

/// Returns what the trace has of bytes on a connection.
fn hash_of(is_opaque: bool, bytes: &[u8]) -> u64 {
    if is_opaque { bytes.len() as u64 } else { hash_bytes(bytes) }
}

fn register(wakers: &mut Vec<Waker>, waker: &Waker) {
    if !wakers.iter().any(|w| w.will_wake(waker)) {
        wakers.push(waker.clone());
    }
}

/// Resets all connections between the machines `a` and `b`.
pub(crate) fn reset_between(state: &mut State, a: &str, b: &str) {
    let between =
        |e: &End| (*e.name == *a && *e.peer_name == *b) || (*e.name == *b && *e.peer_name == *a);
    let ids: Vec<u64> =
        state.net.ends.iter().filter(|(_, e)| between(e)).map(|(id, _)| *id).collect();
    for id in ids {
        state.note("reset", id, 0);
        reset_end(state, id);
    }
}
