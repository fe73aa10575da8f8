//! Paths about the node's part in its cluster.

use axum::Json;
use axum::extract::{Query, State};
use rt::MeshError;
use serde::Deserialize;
use stdx::ShardId;
use telemetry::{Snapshot, Value};

use super::{ANSWER_MAX, Answer, Api, ApiError};
use crate::model::{
    ClusterCommand, ClusterReport, CompactionReport, DrainRequest, EndpointsReport, StageReport,
    TableReport,
};
use crate::shard::{AdminReply, AdminRequest};

impl Api {
    /// All shards' shares together, with what the metrics say of stages and dropped messages.
    pub(super) async fn cluster(&self) -> Answer<ClusterReport> {
        let mut all = ClusterReport::default();
        for reply in self.ask(&AdminRequest::Cluster).await? {
            if let AdminReply::Cluster(report) = reply {
                all.merge(*report);
            }
        }
        let metrics = self.metrics().await?;
        let mut stages = stages(&metrics, &self.tables().await?, &self.compactions().await?);
        stages.append(&mut all.stages);
        all.stages = stages;
        for (message, count) in dropped(&metrics) {
            *all.dropped.entry(message).or_default() += count;
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
        // As other commands: to the end, also when the client goes away.
        let task = tokio::spawn(async move {
            let _busy = super::Busy::new(&this.busy);
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
        let reply = tokio::time::timeout(ANSWER_MAX, asked).await;
        match reply.map_err(|_| ApiError::from(MeshError::Full))?? {
            AdminReply::Endpoints(report) => Ok(report),
            AdminReply::Failed(error) => Err(error.into()),
            _ => Err(MeshError::Closed.into()),
        }
    }
}

/// Of `GET /api/v1/endpoints`.
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

/// Cassandra's thread pools for work that is counted here. There are no pools: what runs on a shard
/// is not counted while it runs, so that most of these numbers are not there.
pub fn stages(
    metrics: &Snapshot,
    tables: &[TableReport],
    compactions: &CompactionReport,
) -> Vec<StageReport> {
    let counted = |name: &str| match metrics.find(name).map(|m| &m.value) {
        Some(Value::Counter(n)) => Some(*n),
        Some(Value::Gauge(n)) => u64::try_from(*n).ok(),
        _ => None,
    };
    let stage = |name: &str, completed| StageReport {
        name: name.to_owned(),
        completed,
        ..StageReport::default()
    };
    let waiting = compactions.pending.iter().map(|p| p.tasks).sum();
    vec![
        stage("ReadStage", tables.iter().map(|t| t.reads).sum()),
        stage("MutationStage", tables.iter().map(|t| t.writes).sum()),
        StageReport {
            active: Some(compactions.running.len() as u64),
            pending: Some(waiting),
            ..stage("CompactionExecutor", compactions.completed)
        },
        stage("MemtableFlushWriter", tables.iter().map(|t| t.flushes).sum()),
        StageReport {
            active: counted("cql_requests_in_flight"),
            blocked_total: counted("cql_requests_shed_total"),
            ..stage("Native-Transport-Requests", counted("cql_requests_total").unwrap_or(0))
        },
    ]
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

/// What came from other nodes and was not carried out, because it came too late; reads of ranges count
/// as reads.
const LATE: [(&str, &str); 2] =
    [("replica_mutations_late_total", "MUTATION_REQ"), ("replica_reads_late_total", "READ_REQ")];

/// Messages that were given up, by Cassandra's name, or by ours where it has none like it.
fn dropped(metrics: &Snapshot) -> Vec<(String, u64)> {
    let mut all: Vec<(String, u64)> =
        MESSAGES.iter().map(|(_, name)| ((*name).to_owned(), 0)).collect();
    for metric in metrics.metrics.iter().filter(|m| m.name == "internode_dropped_by_verb_total") {
        let Value::Counter(count) = metric.value else { continue };
        let Some((_, verb)) = metric.labels.iter().find(|(key, _)| *key == "verb") else {
            continue;
        };
        let theirs = MESSAGES.iter().find(|(ours, _)| ours == verb).map(|(_, name)| *name);
        all.push((theirs.unwrap_or(verb).to_owned(), count));
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
    fn what_nobody_counts_is_not_there() {
        let shard = telemetry::Shard::new();
        shard.gauge("cql_requests_in_flight", "x", &[]).set(3);
        let tables = [TableReport { reads: 7, ..TableReport::default() }];
        let all = stages(&shard.snapshot(), &tables, &CompactionReport::default());
        let stage = |name: &str| all.iter().find(|s| s.name == name).unwrap();
        assert_eq!((stage("ReadStage").completed, stage("ReadStage").active), (7, None));
        let requests = stage("Native-Transport-Requests");
        assert_eq!((requests.active, requests.blocked_total), (Some(3), None));
    }
}
