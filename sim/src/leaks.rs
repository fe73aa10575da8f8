//! Resources of a node without clients: as many as before the clients started.

use std::collections::BTreeMap;

use crate::checks::Verdict;

/// Tolerance of a count: connections and their tasks vary.
const SLACK: u64 = 4;

/// Gauges that are zero when nothing is asked: what requests hold while they run.
pub const OF_REQUESTS: [&str; 5] = [
    "cql_requests_in_flight",
    "cql_connections",
    "coordinator_writes_in_flight",
    "coordinator_write_bytes_in_flight",
    "coordinator_writes_lingering",
];

/// Tasks of links, with how many of them there are for a pair of links, there and back.
const OF_LINKS: [(&str, u64); 3] =
    [("internode-link", 1), ("internode-write", 2), ("internode-inbound", 1)];

/// Resources that a node holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// Tasks by name.
    pub tasks: BTreeMap<&'static str, u64>,
    /// Open files.
    pub files: u64,
    /// Files that there are.
    pub files_there: u64,
    /// Ends of connections.
    pub connections: u64,
    /// Gauges of resources that requests hold: [`OF_REQUESTS`].
    pub of_requests: BTreeMap<&'static str, i64>,
}

impl Holdings {
    /// Adds a link in each direction from every shard to every shard of all peers; most links are
    /// created on demand.
    pub fn with_links(mut self, links: u64) -> Holdings {
        self.connections = self.connections.max(2 * links);
        for (name, of_pair) in OF_LINKS {
            let count = self.tasks.entry(name).or_default();
            *count = (*count).max(of_pair * links);
        }
        self
    }

    /// Adds the values of gauges.
    pub fn take_gauges(&mut self, snapshot: &telemetry::Snapshot) {
        for name in OF_REQUESTS {
            let of_name = snapshot.metrics.iter().filter(|m| m.name == name);
            let values = of_name.map(|m| match m.value {
                telemetry::Value::Gauge(n) => n,
                telemetry::Value::Counter(_)
                | telemetry::Value::Histogram(_)
                | telemetry::Value::Latency(_) => 0,
            });
            self.of_requests.insert(name, values.sum());
        }
    }
}

/// Nothing is held that was not held in the beginning.
pub fn none(before: &Holdings, after: &Holdings) -> Verdict {
    for (name, count) in &after.tasks {
        let was = before.tasks.get(name).copied().unwrap_or(0);
        if *count > was + SLACK {
            return Err(format!("{count} tasks \"{name}\", in the beginning {was}"));
        }
    }
    if after.connections > before.connections + SLACK {
        return Err(format!(
            "{} ends of connections, in the beginning {}",
            after.connections, before.connections
        ));
    }
    // Files that are removed and still open.
    let was = before.files.saturating_sub(before.files_there);
    let now = after.files.saturating_sub(after.files_there);
    if now > was + SLACK {
        return Err(format!("{} open files, {} are there", after.files, after.files_there));
    }
    match after.of_requests.iter().find(|(_, held)| **held != 0) {
        Some((name, held)) => Err(format!("{name} is {held} although nothing is asked")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_stays_is_noticed() {
        let before = Holdings {
            tasks: BTreeMap::from([("a", 3)]),
            files: 10,
            files_there: 20,
            connections: 6,
            of_requests: OF_REQUESTS.map(|name| (name, 0)).into(),
        };
        assert_eq!(none(&before, &before), Ok(()));
        let spoilt = |spoil: fn(&mut Holdings)| {
            let mut after = before.clone();
            spoil(&mut after);
            none(&before, &after).unwrap_err()
        };
        assert!(spoilt(|h| *h.tasks.entry("a").or_default() += 5).contains("8 tasks \"a\""));
        assert!(spoilt(|h| *h.tasks.entry("b").or_default() += 5).contains("5 tasks \"b\""));
        assert!(spoilt(|h| h.files += 15).contains("25 open files"));
        assert!(spoilt(|h| h.connections += 5).contains("11 ends"));
        for name in OF_REQUESTS {
            for held in [1, -1] {
                let mut after = before.clone();
                after.of_requests.insert(name, held);
                assert!(none(&before, &after).unwrap_err().contains(name));
            }
        }
    }

    #[test]
    fn gauges_of_all_shards_are_summed() {
        let shard = telemetry::Shard::new();
        shard.gauge("cql_requests_in_flight", "", &[]).add(2);
        let mut holdings = Holdings::default();
        holdings.take_gauges(&shard.snapshot());
        assert_eq!(holdings.of_requests["cql_requests_in_flight"], 2);
        assert_eq!(holdings.of_requests["cql_connections"], 0);
    }
}
