//! Log lines about dropped messages, every few seconds, in Cassandra's words (`MessagingMetrics`): tools
//! search for them.
//!
//! *Internal* are messages that this node did not send, or whose answer it stopped waiting for. *Cross
//! node* are those of peers that it did not execute. Gossip is left out: peers that are down would fill
//! the log with it.

use internode::Verb;
use rt::sync::Notify;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

/// Between two lines about one kind of message.
pub(crate) const INTERVAL: Duration = Duration::from_secs(5);

/// Origin of a dropped message, and how long it had waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DroppedMessage {
    /// One of this node.
    Internal(Duration),
    /// One of a peer.
    CrossNode(Duration),
}

#[derive(Clone, Copy, Default)]
struct DroppedSum {
    count: u64,
    waited: Duration,
}

impl DroppedSum {
    fn add(&mut self, waited: Duration) {
        self.count += 1;
        self.waited = self.waited.saturating_add(waited);
    }

    fn mean_millis(self) -> u64 {
        let millis = self.waited.as_millis() / u128::from(self.count.max(1));
        u64::try_from(millis).unwrap_or(u64::MAX)
    }
}

/// Messages dropped since the last log lines.
#[derive(Default)]
pub(crate) struct DroppedLog {
    by_name: RefCell<BTreeMap<&'static str, (DroppedSum, DroppedSum)>>,
    pub(crate) changed: Notify,
}

impl DroppedLog {
    pub(crate) fn note(&self, verb: Verb, dropped: DroppedMessage) {
        let Some(name) = cassandra_name(verb) else { return };
        let mut by_name = self.by_name.borrow_mut();
        let (internal, cross_node) = by_name.entry(name).or_default();
        match dropped {
            DroppedMessage::Internal(waited) => internal.add(waited),
            DroppedMessage::CrossNode(waited) => cross_node.add(waited),
        }
        drop(by_name);
        self.changed.notify_one();
    }

    /// The lines about what was dropped since they were taken last.
    pub(crate) fn take_lines(&self) -> Vec<String> {
        let by_name = std::mem::take(&mut *self.by_name.borrow_mut());
        let line = |(name, (internal, cross_node)): (&str, (DroppedSum, DroppedSum))| {
            format!(
                "{name} messages were dropped in last {} ms: {} internal and {} cross node. Mean \
                 internal dropped latency: {} ms and Mean cross-node dropped latency: {} ms",
                INTERVAL.as_millis(),
                internal.count,
                cross_node.count,
                internal.mean_millis(),
                cross_node.mean_millis(),
            )
        };
        by_name.into_iter().map(line).collect()
    }
}

/// Returns Cassandra's name of such a message, or our own if Cassandra has none like it.
fn cassandra_name(verb: Verb) -> Option<&'static str> {
    Some(match verb {
        Verb::Ping | Verb::Echo => return None,
        Verb::GossipSyn | Verb::GossipAck | Verb::GossipAck2 | Verb::GossipShutdown => return None,
        Verb::Mutation | Verb::MutationForward => "MUTATION_REQ",
        Verb::Hint => "HINT_REQ",
        Verb::BatchStore => "BATCH_STORE_REQ",
        Verb::BatchRemove => "BATCH_REMOVE_REQ",
        Verb::CounterMutation => "COUNTER_MUTATION_REQ",
        Verb::Read => "READ_REQ",
        Verb::RangeRead | Verb::Scan | Verb::FilteredRead => "RANGE_REQ",
        Verb::PaxosPrepare => "PAXOS_PREPARE_REQ",
        Verb::PaxosPropose => "PAXOS_PROPOSE_REQ",
        Verb::PaxosCommit => "PAXOS_COMMIT_REQ",
        other => other.name(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cassandras_and_count_what_came_since_the_last() {
        let log = DroppedLog::default();
        let millis = Duration::from_millis;
        log.note(Verb::Mutation, DroppedMessage::Internal(millis(10)));
        log.note(Verb::MutationForward, DroppedMessage::Internal(millis(20)));
        log.note(Verb::Mutation, DroppedMessage::CrossNode(millis(3)));
        log.note(Verb::Read, DroppedMessage::CrossNode(millis(7)));
        log.note(Verb::GossipSyn, DroppedMessage::Internal(millis(1)));
        assert_eq!(
            log.take_lines(),
            [
                "MUTATION_REQ messages were dropped in last 5000 ms: 2 internal and 1 cross node. \
                 Mean internal dropped latency: 15 ms and Mean cross-node dropped latency: 3 ms",
                "READ_REQ messages were dropped in last 5000 ms: 0 internal and 1 cross node. \
                 Mean internal dropped latency: 0 ms and Mean cross-node dropped latency: 7 ms",
            ]
        );
        assert!(log.take_lines().is_empty());
    }
}
