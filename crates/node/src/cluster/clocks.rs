//! Wrong clocks: logged and reported to the other nodes; lightweight transactions avoid the nodes
//! that have them.
//!
//! Messaging measures the clocks of all nodes that this one pings; shard 0 pings all. If more peers
//! agree with each other than with this node, its clock is wrong, and it reports that by gossip: no
//! peer lets it propose, and it lets others propose.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use messaging::{ClockVerdict, judge};
use stdx::{HostId, ShardId};

use super::member::ClusterShard;

/// Last reported state.
#[derive(Default)]
struct Said {
    own: Cell<bool>,
    /// Peers whose clocks differ; true: their clocks are certainly wrong.
    peers: RefCell<BTreeMap<HostId, bool>>,
}

/// Returns true if the clocks of `wrong` are wrong, rather than this node's: another of the
/// `measured` peers agrees with it.
fn is_certain(measured: usize, wrong: usize) -> bool {
    measured > wrong
}

/// Returns the warning about a peer whose clock is `ahead_micros` ahead of this node's.
fn complaint(address: &str, ahead_micros: i64, is_certain: bool) -> String {
    let seconds = ahead_micros.unsigned_abs() / 1_000_000;
    if is_certain {
        return format!("the clock of {address} is wrong by {seconds} s: set it");
    }
    format!(
        "the clocks of this node and of {address} differ by {seconds} s; one of them is wrong: compare both with a \
         time server"
    )
}

impl ClusterShard {
    /// Applies clock states to routing; on shard 0 also judges the measured clocks.
    pub(super) fn follow_clocks(&self) {
        let liveness = self.liveness.clone();
        self.coordinator.lwt().route_around_clocks(move |host| liveness.has_wrong_clock(host));
        if self.rt.shard() != ShardId(0) {
            return;
        }
        let (liveness, messaging) = (self.liveness.clone(), self.messaging.clone());
        let membership = self.membership.clone();
        let address_of = move |host: &HostId| match membership.snapshot().members.get(host) {
            Some(member) => member.storage.to_string(),
            None => "a node that is no member".to_owned(),
        };
        let said = Rc::new(Said::default());
        let gauge = self.rt.telemetry().gauge(
            "clock_is_wrong",
            "1 while this node's wall clock differs from those of most other nodes",
            &[],
        );
        self.messaging.hooks().on_clock(move || {
            let measured = messaging.clocks();
            let (own, peers) = match judge(&measured) {
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
                    None => tracing::info!("this node's clock agrees with the other nodes again"),
                }
            }
            let certain = is_certain(measured.len(), peers.len());
            let before = said.peers.take();
            // A certain verdict stands, even if fewer peers answer later.
            let is_said = |host: &HostId| before.get(host).is_some_and(|said| *said || !certain);
            for (host, ahead_micros) in peers.iter().filter(|(host, _)| !is_said(host)) {
                let ahead_seconds = ahead_micros / 1_000_000;
                let words = complaint(&address_of(host), *ahead_micros, certain);
                tracing::warn!(%host, ahead_seconds, "{words}");
            }
            for host in before.keys().filter(|_| own.is_none()) {
                if !peers.iter().any(|(wrong, _)| wrong == host) {
                    let address = address_of(host);
                    tracing::info!(%host, "the clock of {address} agrees with this node again");
                }
            }
            let was_certain = |host: &HostId| before.get(host).is_some_and(|certain| *certain);
            let now = peers.iter().map(|(host, _)| (*host, certain || was_certain(host)));
            *said.peers.borrow_mut() = now.collect();
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_two_nodes_nobody_knows_whose_clock_is_wrong() {
        let undecided = "the clocks of this node and of 10.0.0.2:7000 differ by 3600 s; one of them is wrong: \
                         compare both with a time server";
        for (measured, wrong, ahead_micros, words) in [
            (1, 1, -3_600_000_000, undecided),
            (2, 2, 3_600_000_000, undecided),
            (2, 1, 3_600_000_000, "the clock of 10.0.0.2:7000 is wrong by 3600 s: set it"),
            (5, 2, -40_500_000, "the clock of 10.0.0.2:7000 is wrong by 40 s: set it"),
        ] {
            let certain = is_certain(measured, wrong);
            assert_eq!(
                complaint("10.0.0.2:7000", ahead_micros, certain),
                words,
                "{measured} {wrong}"
            );
        }
    }
}
