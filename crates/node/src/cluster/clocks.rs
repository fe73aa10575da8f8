//! Clocks that are wrong: said in the log and to the other nodes, and lightweight transactions go around
//! the nodes that have them.
//!
//! Messaging measures the clocks of all nodes that this one pings; shard 0 pings all. A node that finds
//! itself alone against the others says so by gossip: nobody has it propose, and it has others propose.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use messaging::{ClockVerdict, judge};
use stdx::{HostId, ShardId};

use super::member::ClusterShard;

/// What was said last.
#[derive(Default)]
struct Said {
    own: Cell<bool>,
    peers: RefCell<BTreeMap<HostId, i64>>,
}

impl ClusterShard {
    /// Goes by what is known of clocks, and on shard 0 finds out.
    pub(super) fn follow_clocks(&self) {
        let liveness = self.liveness.clone();
        self.coordinator.route_around_clocks(move |host| liveness.has_wrong_clock(host));
        if self.rt.shard() != ShardId(0) {
            return;
        }
        let (liveness, messaging) = (self.liveness.clone(), self.messaging.clone());
        let said = Rc::new(Said::default());
        let gauge = self.rt.telemetry().gauge(
            "clock_is_wrong",
            "1 while this node's wall clock differs from those of most other nodes",
            &[],
        );
        self.messaging.on_clock(move || {
            let (own, peers) = match judge(&messaging.clocks()) {
                ClockVerdict::Own(ahead_micros) => (Some(ahead_micros), Vec::new()),
                ClockVerdict::Peers(peers) => (None, peers),
            };
            if said.own.replace(own.is_some()) != own.is_some() {
                gauge.set(i64::from(own.is_some()));
                liveness.set_wrong_clock(own.is_some());
                match own {
                    Some(ahead_micros) => tracing::error!(
                        ahead_seconds = ahead_micros / 1_000_000,
                        "this node's clock is wrong: most other nodes have another time; lightweight \
                         transactions are left to them, and writes without a timestamp get wrong ones; \
                         set the clock"
                    ),
                    None => tracing::info!("this node's clock is that of the other nodes again"),
                }
            }
            let before = said.peers.replace(peers.iter().copied().collect());
            for (host, ahead_micros) in &peers {
                if !before.contains_key(host) {
                    let ahead_seconds = ahead_micros / 1_000_000;
                    tracing::warn!(%host, ahead_seconds, "the clock of a node is wrong: set it");
                }
            }
            for host in before.keys().filter(|_| own.is_none()) {
                if !peers.iter().any(|(wrong, _)| wrong == host) {
                    tracing::info!(%host, "the clock of a node is right again");
                }
            }
        });
    }
}
