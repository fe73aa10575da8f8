//! Links between machines: cuts, delay, loss, bandwidth, resets; and which machines have power.
//!
//! A segment is never dropped for good while both machines run: a cut holds it back and a loss
//! delays it, as TCP would retransmit it. A sender that gets no acknowledgement for too long aborts
//! (`net`).

use crate::net::OnBegin;
use crate::state::{Core, State};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;
use stdx::Instant;

/// First wait before a lost segment is sent again; doubled with each further loss.
const RETRANSMIT_MIN: Duration = Duration::from_millis(200);
/// Longest of these waits: a segment arrives after it at the latest.
const RETRANSMIT_MAX: Duration = Duration::from_millis(6_400);

/// One direction between two machines. The default is the world's delay and nothing else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkOptions {
    /// One-way delay, uniform in this range of microseconds; `None`: the world's. A wide range is
    /// jitter; segments of one connection do not overtake each other.
    pub latency_micros: Option<Range<u64>>,
    /// Lost segments per million. Each is retransmitted after 200 ms, then 400 ms and so on, and
    /// later segments wait for it.
    pub losses_per_million: u64,
    /// Bytes per second of all connections together; `None`: no limit.
    pub bytes_per_second: Option<u64>,
    /// Segments per million that reset their connection; `None`: the world's setting.
    pub resets_per_million: Option<u64>,
}

#[derive(Default)]
struct Link {
    is_cut: bool,
    options: LinkOptions,
    /// When the last byte that was sent has left, with limited bandwidth.
    busy_until: Instant,
}

/// One direction between two machines as it is now.
#[derive(Default)]
pub(crate) struct Path {
    pub(crate) is_cut: bool,
    pub(crate) options: LinkOptions,
}

#[derive(Default)]
pub(crate) struct Links {
    /// By sender, then receiver.
    links: BTreeMap<String, BTreeMap<String, Link>>,
    /// Machines that run, also without a process.
    powered: BTreeSet<String>,
    /// Wakers of connects that wait for a path.
    pub(crate) waiters: Vec<Waker>,
}

impl Links {
    fn find(&self, from: &str, to: &str) -> Option<&Link> {
        self.links.get(from)?.get(to)
    }

    fn entry(&mut self, from: &str, to: &str) -> &mut Link {
        self.links.entry(from.to_string()).or_default().entry(to.to_string()).or_default()
    }

    /// Returns the state of the link for a segment that is sent now.
    pub(crate) fn path(&self, from: &str, to: &str) -> Path {
        match self.find(from, to) {
            Some(link) => Path { is_cut: from != to && link.is_cut, options: link.options.clone() },
            None => Path::default(),
        }
    }

    pub(crate) fn is_cut(&self, from: &str, to: &str) -> bool {
        from != to && self.find(from, to).is_some_and(|link| link.is_cut)
    }

    /// Returns true if an answer can come back from `to`.
    pub(crate) fn is_open(&self, from: &str, to: &str) -> bool {
        self.is_powered(to) && !self.is_cut(from, to) && !self.is_cut(to, from)
    }

    pub(crate) fn is_powered(&self, name: &str) -> bool {
        self.powered.contains(name)
    }

    pub(crate) fn set_powered(&mut self, name: &str, is_powered: bool) {
        match is_powered {
            true => self.powered.insert(name.to_string()),
            false => self.powered.remove(name),
        };
    }
}

/// Returns the travel time of a segment of that many bytes that is sent now.
pub(crate) fn travel(state: &mut State, from: &str, to: &str, bytes: usize) -> Duration {
    let options = state.net.links.path(from, to).options;
    travel_on(state, from, to, bytes, options)
}

/// Like [`travel`], on a known path.
pub(crate) fn travel_on(
    state: &mut State,
    from: &str,
    to: &str,
    bytes: usize,
    options: LinkOptions,
) -> Duration {
    if from == to {
        let range = state.options.loopback_micros.clone();
        return state.random_micros(&range);
    }
    let range = options.latency_micros.unwrap_or_else(|| state.options.latency_micros.clone());
    let mut delay = state.random_micros(&range);
    let mut again = RETRANSMIT_MIN;
    while options.losses_per_million > 0
        && again <= RETRANSMIT_MAX
        && state.random() % 1_000_000 < options.losses_per_million
    {
        delay += again;
        again *= 2;
    }
    if let Some(rate) = options.bytes_per_second {
        let micros = (bytes as u64).saturating_mul(1_000_000) / rate.max(1);
        let now = state.now;
        let link = state.net.links.entry(from, to);
        link.busy_until = link.busy_until.max(now) + Duration::from_micros(micros);
        delay += link.busy_until.since(now);
    }
    delay
}

/// The network of a world, to be cut, slowed down and healed.
#[derive(Clone)]
pub struct NetworkControl {
    core: Rc<Core>,
}

impl NetworkControl {
    pub(crate) fn new(core: &Rc<Core>) -> NetworkControl {
        NetworkControl { core: Rc::clone(core) }
    }

    /// Calls `hook` with the first bytes that each connecting side sends.
    pub fn on_begin(&self, hook: OnBegin) {
        self.core.state.borrow_mut().net.on_begin = Some(hook);
    }

    /// Resets all connections between `a` and `b`.
    pub fn reset_connections(&self, a: &str, b: &str) {
        crate::net::reset_between(&mut self.core.state.borrow_mut(), a, b);
    }

    /// Holds back everything that `from` sends to `to`.
    pub fn clog(&self, from: &str, to: &str) {
        let mut state = self.core.state.borrow_mut();
        state.net.links.entry(from, to).is_cut = true;
    }

    /// Holds back everything between `a` and `b`.
    pub fn partition(&self, a: &str, b: &str) {
        self.clog(a, b);
        self.clog(b, a);
    }

    /// Ends clogs and partitions between `a` and `b`; held-back segments are sent.
    pub fn heal(&self, a: &str, b: &str) {
        self.unclog(|from, to| (from == a && to == b) || (from == b && to == a));
    }

    /// Ends all clogs and partitions.
    pub fn heal_all(&self) {
        self.unclog(|_, _| true);
    }

    fn unclog(&self, which: impl Fn(&str, &str) -> bool) {
        let wakers = {
            let mut guard = self.core.state.borrow_mut();
            let state = &mut *guard;
            for (from, links) in &mut state.net.links.links {
                for (to, link) in links {
                    link.is_cut &= !which(from, to);
                }
            }
            crate::net::paths_changed(state);
            std::mem::take(&mut state.net.links.waiters)
        };
        for waker in wakers {
            waker.wake();
        }
    }

    /// Replaces what `from` to `to` is like; a cut stays as it is.
    pub fn set_link(&self, from: &str, to: &str, options: LinkOptions) {
        let mut state = self.core.state.borrow_mut();
        let link = state.net.links.entry(from, to);
        link.options = options;
        link.busy_until = Instant::ZERO;
    }

    /// One-way delay from `from` to `to` in microseconds, instead of the world's.
    pub fn set_latency(&self, from: &str, to: &str, micros: Range<u64>) {
        let mut state = self.core.state.borrow_mut();
        state.net.links.entry(from, to).options.latency_micros = Some(micros);
    }

    /// Makes all links the world's again; cuts stay.
    pub fn clear_links(&self) {
        let mut state = self.core.state.borrow_mut();
        for link in state.net.links.links.values_mut().flat_map(BTreeMap::values_mut) {
            link.options = LinkOptions::default();
        }
    }
}
