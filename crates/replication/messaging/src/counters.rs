//! Counters per peer and per verb.

use internode::{Lane, Verb};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use stdx::HostId;
use telemetry::{Counter, EstimatedHistogram, Histogram, Stage};

/// One peer as this shard sees it, for `nodetool netstats` and `system_views`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerStats {
    /// The peer.
    pub host: HostId,
    /// Its address; `None` when it was removed.
    pub address: Option<SocketAddr>,
    /// Open connections to it.
    pub links: usize,
    /// Open connections from it.
    pub inbounds: usize,
    /// Requests that wait for its answers.
    pub pending: usize,
    /// Bytes that wait to be sent to it.
    pub queued_bytes: usize,
    /// Messages sent, answers included.
    pub sent: u64,
    /// Messages received, answers included.
    pub received: u64,
    /// Requests and messages that were dropped: refused, late, or lost with their connection.
    pub dropped: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// The last ping's round trip.
    pub rtt: Option<Duration>,
}

/// Messages of one kind, to all peers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindStats {
    /// Requests that wait for answers.
    pub pending: u64,
    /// Messages sent, answers included.
    pub sent: u64,
    /// Requests and messages that were dropped.
    pub dropped: u64,
}

/// Messages by kind, as Cassandra classifies its connections: for `nodetool netstats`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindsStats {
    /// Streams and repairs, which have connections of their own.
    pub large: KindStats,
    /// Everything else.
    pub small: KindStats,
    /// Rounds of gossip.
    pub gossip: KindStats,
}

/// Index of the kind of a verb's number, in the order of the fields of [`KindsStats`]. On the path of every
/// message: comparisons of constants only.
fn kind_of(verb: u16) -> usize {
    const GOSSIP: [Verb; 4] =
        [Verb::GossipSyn, Verb::GossipAck, Verb::GossipAck2, Verb::GossipShutdown];
    match Verb::lane_of(verb) {
        Lane::Bulk => 0,
        _ if GOSSIP.iter().any(|gossip| gossip.number() == verb) => 2,
        _ => 1,
    }
}

impl KindsStats {
    /// The kind of a verb's number.
    pub(crate) fn of(&mut self, verb: u16) -> &mut KindStats {
        match kind_of(verb) {
            0 => &mut self.large,
            1 => &mut self.small,
            _ => &mut self.gossip,
        }
    }
}

#[derive(Default)]
struct KindCounts {
    sent: Cell<u64>,
    dropped: Cell<u64>,
}

impl KindCounts {
    fn stats(&self) -> KindStats {
        KindStats { pending: 0, sent: self.sent.get(), dropped: self.dropped.get() }
    }
}

/// Counters of one peer.
pub(crate) struct PeerCounters {
    pub(crate) sent: Counter,
    pub(crate) received: Counter,
    pub(crate) sent_bytes: Counter,
    pub(crate) received_bytes: Counter,
    pub(crate) overloaded: Counter,
    pub(crate) timed_out: Counter,
    pub(crate) lost: Counter,
    pub(crate) expired: Counter,
    pub(crate) late: Counter,
    pub(crate) shed: Counter,
    pub(crate) connects: Counter,
    pub(crate) connect_failures: Counter,
    pub(crate) protocol_errors: Counter,
    pub(crate) rtt_micros: Histogram,
    pub(crate) last_rtt: Cell<Option<Duration>>,
}

impl PeerCounters {
    fn new(shard: &telemetry::Shard, host: HostId) -> PeerCounters {
        let peer = host.to_string();
        let labels = [("peer", peer.as_str())];
        let counter = |name, help| shard.counter(name, help, &labels);
        let dropped = |reason| {
            let labels = [("peer", peer.as_str()), ("reason", reason)];
            shard.counter("internode_dropped_messages_total", "messages given up", &labels)
        };
        PeerCounters {
            sent: counter("internode_sent_messages_total", "messages sent, with answers"),
            received: counter("internode_received_messages_total", "messages received"),
            sent_bytes: counter("internode_sent_bytes_total", "bytes sent"),
            received_bytes: counter("internode_received_bytes_total", "bytes received"),
            overloaded: dropped("overloaded"),
            timed_out: dropped("timeout"),
            lost: dropped("connection-lost"),
            expired: dropped("expired-before-sent"),
            late: dropped("late-answer"),
            shed: dropped("shed-by-receiver"),
            connects: counter("internode_connects_total", "connections opened"),
            connect_failures: counter(
                "internode_connect_failures_total",
                "attempts to connect that failed or were refused",
            ),
            protocol_errors: counter(
                "internode_protocol_errors_total",
                "connections closed because of what the peer sent",
            ),
            rtt_micros: shard.histogram("internode_rtt_micros", "round trip of pings", &labels),
            last_rtt: Cell::new(None),
        }
    }

    pub(crate) fn dropped(&self) -> u64 {
        [&self.overloaded, &self.timed_out, &self.lost, &self.expired, &self.late, &self.shed]
            .iter()
            .map(|c| c.get())
            .sum()
    }

    pub(crate) fn record_rtt(&self, rtt: Duration) {
        self.last_rtt.set(Some(rtt));
        self.rtt_micros.record(u64::try_from(rtt.as_micros()).unwrap_or(u64::MAX));
    }
}

/// Dropped messages of one verb.
struct Dropped {
    count: Counter,
    /// Time between request and drop.
    waited: EstimatedHistogram,
}

impl Dropped {
    fn new(shard: &telemetry::Shard, verb: Verb) -> Dropped {
        let labels = [("verb", verb.name())];
        let (count, waited) = ("internode_dropped_by_verb_total", "internode_dropped_wait_micros");
        Dropped {
            count: shard.counter(count, "messages given up", &labels),
            waited: shard.latency(waited, "how long dropped messages had waited", &labels),
        }
    }
}

/// Stages of what peers ask for. Reads, mutations and increments are counted where they are carried
/// out, with those of this node's own clients.
struct Stages {
    gossip: Stage,
    migration: Stage,
    misc: Stage,
    anti_entropy: Stage,
    answers: Stage,
}

impl Stages {
    fn new(shard: &telemetry::Shard) -> Stages {
        Stages {
            gossip: shard.stage("GossipStage"),
            migration: shard.stage("MigrationStage"),
            misc: shard.stage("MiscStage"),
            anti_entropy: shard.stage("AntiEntropyStage"),
            answers: shard.stage("RequestResponseStage"),
        }
    }

    /// By the group of the verb's number.
    fn of(&self, verb: Verb) -> Option<&Stage> {
        match verb.number() >> 8 {
            1 => Some(&self.gossip),
            5 => Some(&self.migration),
            6 => Some(&self.misc),
            8 => Some(&self.anti_entropy),
            _ => None,
        }
    }
}

/// All counters of a shard's messaging.
pub(crate) struct Counters {
    shard: telemetry::Shard,
    peers: RefCell<BTreeMap<HostId, Rc<PeerCounters>>>,
    by_verb: RefCell<BTreeMap<Verb, Dropped>>,
    stages: Stages,
    kinds: [KindCounts; 3],
    /// Connections of strangers and refused nodes.
    pub(crate) refused: Counter,
    pub(crate) encryption: EncryptionCounters,
}

/// Counters of encrypted connections and of peers that were refused because of encryption.
pub(crate) struct EncryptionCounters {
    pub(crate) accepted: Counter,
    pub(crate) made: Counter,
    pub(crate) made_in_the_clear: Counter,
    pub(crate) refused_plain: Counter,
    pub(crate) refused_encrypted: Counter,
    pub(crate) refused_handshake: Counter,
    pub(crate) refused_certificate: Counter,
    /// Days for which certificates of connecting peers are still valid.
    pub(crate) certificate_days: Histogram,
}

impl EncryptionCounters {
    fn new(shard: &telemetry::Shard) -> EncryptionCounters {
        let handshakes = |side| {
            let help = "TLS handshakes with other nodes that were completed";
            shard.counter("internode_tls_handshakes_total", help, &[("side", side)])
        };
        let refused = |reason| {
            let help = "peers refused because of encryption";
            shard.counter("internode_encryption_refusals_total", help, &[("reason", reason)])
        };
        EncryptionCounters {
            accepted: handshakes("accepted"),
            made: handshakes("made"),
            made_in_the_clear: shard.counter(
                "internode_clear_fallbacks_total",
                "connections made in the clear because the peer does not speak TLS and optional allows it",
                &[],
            ),
            refused_plain: refused("plain"),
            refused_encrypted: refused("encrypted"),
            refused_handshake: refused("handshake"),
            refused_certificate: refused("certificate"),
            certificate_days: shard.histogram(
                "internode_certificate_expiration_days",
                "days until the certificates of connecting peers end",
                &[],
            ),
        }
    }
}

impl Counters {
    pub(crate) fn new(shard: telemetry::Shard) -> Counters {
        let refused =
            shard.counter("internode_refused_connections_total", "handshakes refused", &[]);
        let (peers, by_verb, kinds) = Default::default();
        let stages = Stages::new(&shard);
        let encryption = EncryptionCounters::new(&shard);
        Counters { shard, peers, by_verb, stages, kinds, refused, encryption }
    }

    pub(crate) fn peer(&self, host: HostId) -> Rc<PeerCounters> {
        let mut peers = self.peers.borrow_mut();
        let made = peers.entry(host).or_insert_with(|| {
            // Only hosts that the membership knows come here, so this is bounded by it.
            Rc::new(PeerCounters::new(&self.shard, host))
        });
        made.clone()
    }

    pub(crate) fn all_peers(&self) -> Vec<(HostId, Rc<PeerCounters>)> {
        self.peers.borrow().iter().map(|(host, c)| (*host, c.clone())).collect()
    }

    /// Returns the messages by kind; waiting ones are not included.
    pub(crate) fn kinds(&self) -> KindsStats {
        let [large, small, gossip] = self.kinds.each_ref().map(KindCounts::stats);
        KindsStats { large, small, gossip }
    }

    /// A message with a verb of this number goes to a peer.
    pub(crate) fn sent(&self, verb: u16) {
        if let Some(kind) = self.kinds.get(kind_of(verb)) {
            kind.sent.set(kind.sent.get() + 1);
        }
    }

    /// The stage of a peer's requests with this verb, where messaging counts it.
    pub(crate) fn stage(&self, verb: Verb) -> Option<&Stage> {
        self.stages.of(verb)
    }

    /// A peer's answer was handled.
    pub(crate) fn answered(&self) {
        self.stages.answers.completed();
    }

    /// Counts a dropped message of this kind and its waiting time, which `nodetool tpstats` lists
    /// by verb.
    pub(crate) fn dropped(&self, verb: Verb, waited: Duration) {
        if let Some(kind) = self.kinds.get(kind_of(verb.number())) {
            kind.dropped.set(kind.dropped.get() + 1);
        }
        let mut by_verb = self.by_verb.borrow_mut();
        let dropped = by_verb.entry(verb).or_insert_with(|| Dropped::new(&self.shard, verb));
        dropped.count.inc();
        dropped.waited.record_nanos(u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX));
    }
}
