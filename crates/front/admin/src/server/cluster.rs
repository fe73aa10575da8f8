//! Paths about the node's part in its cluster.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Query, State};
use rt::MeshError;
use serde::Deserialize;
use stdx::ShardId;
use telemetry::{Snapshot, Value};

use super::api::{ANSWER_MAX, Answer, Api, ApiError};
use crate::histogram::HistogramReport;
use crate::model::{
    ClusterCommand, ClusterReport, CompactionReport, DrainRequest, EndpointsReport, StageReport,
};
use crate::request::{AdminReply, AdminRequest};

impl Api {
    /// Returns the sum of all shards' reports, with stages and dropped messages from the metrics.
    pub(super) async fn cluster(&self) -> Answer<ClusterReport> {
        let mut all = ClusterReport::default();
        for reply in self.ask(&AdminRequest::Cluster).await? {
            if let AdminReply::Cluster(report) = reply {
                all.merge(*report);
            }
        }
        let metrics = self.metrics().await?;
        let mut stages = stages(&metrics, &self.compactions().await?);
        stages.append(&mut all.stages);
        all.stages = stages;
        for (message, count) in dropped(&metrics) {
            *all.dropped.entry(message).or_default() += count;
        }
        for (message, waits) in dropped_waits(&metrics) {
            all.dropped_waits.entry(message).or_default().merge(&waits);
        }
        Ok(all)
    }

    pub(super) async fn metrics(&self) -> Answer<Snapshot> {
        let mut all = Snapshot::default();
        for reply in self.ask(&AdminRequest::Metrics).await? {
            if let AdminReply::Metrics(snapshot) = reply {
                all.merge(snapshot);
            }
        }
        Ok(all)
    }

    /// Carries out a command on the shards that it is for.
    pub(super) async fn cluster_command(
        &self,
        command: ClusterCommand,
    ) -> Answer<Json<DrainRequest>> {
        if !command.is_for_one_shard() {
            return self.command(AdminRequest::Command(command)).await;
        }
        let this = self.clone();
        // Like other commands, it is completed even if the client disconnects.
        let task = tokio::spawn(async move {
            let _busy = super::api::Busy::new(&this.busy);
            match this.caller.call(ShardId(0), AdminRequest::Command(command)).await? {
                AdminReply::Failed(error) => Err(error.into()),
                _ => Ok(Json(DrainRequest {})),
            }
        });
        task.await.unwrap_or_else(|error| Err(ApiError::internal(&error.to_string())))
    }

    pub(super) async fn endpoints(&self, of: EndpointsQuery) -> Answer<EndpointsReport> {
        let EndpointsQuery { keyspace, table, key } = of;
        let request = AdminRequest::Endpoints { keyspace, table, key };
        let asked = self.caller.call(ShardId(0), request);
        let reply = self.caller.within(ANSWER_MAX, asked).await;
        match reply.map_err(|_| ApiError::from(MeshError::Full))?? {
            AdminReply::Endpoints(report) => Ok(report),
            AdminReply::Failed(error) => Err(error.into()),
            _ => Err(MeshError::Closed.into()),
        }
    }
}

/// Query of `GET /api/v1/endpoints`.
#[derive(Debug, Deserialize)]
pub(super) struct EndpointsQuery {
    pub(super) keyspace: String,
    pub(super) table: String,
    pub(super) key: String,
}

pub(super) async fn report(State(api): State<Api>) -> Answer<Json<ClusterReport>> {
    api.cluster().await.map(Json)
}

pub(super) async fn command(
    State(api): State<Api>,
    Json(command): Json<ClusterCommand>,
) -> Answer<Json<DrainRequest>> {
    api.cluster_command(command).await
}

pub(super) async fn endpoints(
    State(api): State<Api>,
    Query(of): Query<EndpointsQuery>,
) -> Answer<Json<EndpointsReport>> {
    api.endpoints(of).await.map(Json)
}

/// Order of the stages in Cassandra's output; others follow by name.
const STAGE_ORDER: [&str; 18] = [
    "MutationStage",
    "CounterMutationStage",
    "ReadStage",
    "RequestResponseStage",
    "CompactionExecutor",
    "MemtableReclaimMemory",
    "AntiEntropyStage",
    "ValidationExecutor",
    "GossipStage",
    "HintsDispatcher",
    "MiscStage",
    "MigrationStage",
    "MemtablePostFlush",
    "MemtableFlushWriter",
    "TracingStage",
    "Sampler",
    "Native-Transport-Auth-Requests",
    "Native-Transport-Requests",
];

/// Cassandra's thread pools for work that is done here: the stages that shards count, the requests
/// of clients and the compactions.
pub fn stages(metrics: &Snapshot, compactions: &CompactionReport) -> Vec<StageReport> {
    let mut all = counted_stages(metrics);
    let counted = |name: &str| match metrics.find(name).map(|m| &m.value) {
        Some(Value::Counter(n)) => *n,
        Some(Value::Gauge(n)) => u64::try_from(*n).unwrap_or(0),
        _ => 0,
    };
    let active = counted("cql_requests_in_flight");
    let refused = counted("cql_requests_shed_total");
    all.push(StageReport {
        name: "Native-Transport-Requests".to_owned(),
        active,
        // Refused requests are neither active nor completed.
        completed: counted("cql_requests_total").saturating_sub(active + refused),
        blocked_total: refused,
        ..StageReport::default()
    });
    all.push(StageReport {
        name: "CompactionExecutor".to_owned(),
        active: compactions.running.len() as u64,
        pending: compactions.pending.iter().map(|p| p.tasks).sum(),
        completed: compactions.completed,
        ..StageReport::default()
    });
    if let Some(hints) = all.iter_mut().find(|stage| stage.name == "HintsDispatcher") {
        hints.pending = counted("hints_files").saturating_sub(hints.active);
    }
    let place = |name: &str| STAGE_ORDER.iter().position(|known| *known == name);
    all.sort_by(|a, b| {
        let key = |s: &StageReport| place(&s.name).unwrap_or(STAGE_ORDER.len());
        (key(a), &a.name).cmp(&(key(b), &b.name))
    });
    all
}

/// The stages that [`telemetry::Stage`] counts.
fn counted_stages(metrics: &Snapshot) -> Vec<StageReport> {
    let mut all: BTreeMap<&str, StageReport> = BTreeMap::new();
    for metric in &metrics.metrics {
        let Some((_, name)) = metric.labels.iter().find(|(key, _)| *key == "stage") else {
            continue;
        };
        let value = match metric.value {
            Value::Counter(n) => n,
            Value::Gauge(n) => u64::try_from(n).unwrap_or(0),
            _ => continue,
        };
        let stage = all
            .entry(name)
            .or_insert_with(|| StageReport { name: name.clone(), ..StageReport::default() });
        match metric.name {
            telemetry::STAGE_ACTIVE => stage.active = value,
            telemetry::STAGE_PENDING => stage.pending = value,
            telemetry::STAGE_COMPLETED => stage.completed = value,
            telemetry::STAGE_BLOCKED => stage.blocked = value,
            telemetry::STAGE_BLOCKED_TOTAL => stage.blocked_total = value,
            _ => {}
        }
    }
    all.into_values().collect()
}

/// Verbs between nodes and Cassandra's names of the same messages.
const MESSAGES: [(&str, &str); 17] = [
    ("Mutation", "MUTATION_REQ"),
    ("MutationForward", "MUTATION_REQ"),
    ("Hint", "HINT_REQ"),
    ("BatchStore", "BATCH_STORE_REQ"),
    ("BatchRemove", "BATCH_REMOVE_REQ"),
    ("CounterMutation", "COUNTER_MUTATION_REQ"),
    ("Read", "READ_REQ"),
    ("RangeRead", "RANGE_REQ"),
    ("PaxosPrepare", "PAXOS_PREPARE_REQ"),
    ("PaxosPropose", "PAXOS_PROPOSE_REQ"),
    ("PaxosCommit", "PAXOS_COMMIT_REQ"),
    ("GossipSyn", "GOSSIP_DIGEST_SYN"),
    ("GossipAck", "GOSSIP_DIGEST_ACK"),
    ("GossipAck2", "GOSSIP_DIGEST_ACK2"),
    ("GossipShutdown", "GOSSIP_SHUTDOWN"),
    ("Ping", "PING_REQ"),
    ("Echo", "ECHO_REQ"),
];

/// Messages from other nodes that were dropped because they arrived too late; reads of ranges count
/// as reads.
const LATE: [(&str, &str); 2] =
    [("replica_mutations_late_total", "MUTATION_REQ"), ("replica_reads_late_total", "READ_REQ")];

/// Cassandra's name of the message that a metric is about, or ours where it has none like it.
fn message_of(metric: &telemetry::Metric) -> Option<String> {
    let (_, verb) = metric.labels.iter().find(|(key, _)| *key == "verb")?;
    let theirs = MESSAGES.iter().find(|(ours, _)| ours == verb).map(|(_, name)| *name);
    Some(theirs.unwrap_or(verb).to_owned())
}

/// How long dropped messages had waited.
fn dropped_waits(metrics: &Snapshot) -> Vec<(String, HistogramReport)> {
    let waits = metrics.metrics.iter().filter(|m| m.name == "internode_dropped_wait_micros");
    waits
        .filter_map(|metric| match &metric.value {
            Value::Latency(waits) => Some((message_of(metric)?, waits.clone().into())),
            _ => None,
        })
        .collect()
}

/// Returns dropped messages, by Cassandra's name, or by ours where it has none like it.
fn dropped(metrics: &Snapshot) -> Vec<(String, u64)> {
    let mut all: Vec<(String, u64)> =
        MESSAGES.iter().map(|(_, name)| ((*name).to_owned(), 0)).collect();
    for metric in metrics.metrics.iter().filter(|m| m.name == "internode_dropped_by_verb_total") {
        if let (Value::Counter(count), Some(name)) = (&metric.value, message_of(metric)) {
            all.push((name, *count));
        }
    }
    for (counter, name) in LATE {
        if let Some(Value::Counter(count)) = metrics.find(counter).map(|m| &m.value) {
            all.push((name.to_owned(), *count));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_messages_have_cassandras_names() {
        let shard = telemetry::Shard::new();
        for (verb, n) in [("Mutation", 2), ("MutationForward", 3), ("StreamFetch", 4)] {
            let labels = [("verb", verb)];
            shard.counter("internode_dropped_by_verb_total", "x", &labels).add(n);
        }
        shard.counter("replica_mutations_late_total", "x", &[]).add(10);
        shard.counter("replica_reads_late_total", "x", &[]).add(20);
        let all = dropped(&shard.snapshot());
        let of = |name: &str| all.iter().filter(|(n, _)| n == name).map(|(_, c)| c).sum::<u64>();
        assert_eq!((of("MUTATION_REQ"), of("StreamFetch"), of("READ_REQ")), (15, 4, 20));
    }

    #[test]
    fn stages_have_the_numbers_that_shards_count() {
        let shard = telemetry::Shard::new();
        let read = shard.stage("ReadStage");
        let (_running, _waiting) = (read.run(), read.wait());
        read.completed();
        shard.stage("Own").completed();
        shard.gauge("cql_requests_in_flight", "x", &[]).set(3);
        shard.counter("cql_requests_total", "x", &[]).add(10);
        shard.counter("cql_requests_shed_total", "x", &[]).add(2);
        shard.gauge("hints_files", "x", &[]).set(5);
        let _delivery = shard.stage("HintsDispatcher");
        _delivery.begin();
        let mut both = shard.snapshot();
        both.merge(shard.snapshot());
        let all = stages(&both, &CompactionReport::default());
        let stage = |name: &str| {
            let s = all.iter().find(|s| s.name == name).unwrap();
            (s.active, s.pending, s.completed, s.blocked_total)
        };
        assert_eq!(stage("ReadStage"), (2, 2, 2, 0));
        assert_eq!(stage("Native-Transport-Requests"), (6, 0, 10, 4));
        assert_eq!(stage("HintsDispatcher"), (2, 8, 0, 0));
        assert_eq!(stage("CompactionExecutor"), (0, 0, 0, 0));
        let names: Vec<&str> = all.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "ReadStage",
                "CompactionExecutor",
                "HintsDispatcher",
                "Native-Transport-Requests",
                "Own"
            ]
        );
    }

    #[test]
    fn waits_of_dropped_messages_add_up_under_cassandras_name() {
        let shard = telemetry::Shard::new();
        for (verb, micros) in [("Mutation", 10), ("MutationForward", 2000)] {
            let labels = [("verb", verb)];
            shard.latency("internode_dropped_wait_micros", "x", &labels).record(micros);
        }
        let mut report = ClusterReport::default();
        for (message, waits) in dropped_waits(&shard.snapshot()) {
            report.dropped_waits.entry(message).or_default().merge(&waits);
        }
        let waits = &report.dropped_waits["MUTATION_REQ"];
        assert_eq!((report.dropped_waits.len(), waits.count()), (1, 2));
        assert_eq!((waits.percentile(0.5), waits.max()), (10, 2299));
    }
}
