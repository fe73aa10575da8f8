//! CIDR groups: which there are, which an address is in, how often clients were checked. Passwords that
//! were verified lately.

use std::collections::BTreeMap;
use std::net::IpAddr;

use axum::Json;
use axum::extract::{Query, State};
use serde::Deserialize;
use stdx::ShardId;
use telemetry::{Snapshot, Value};

use super::api::{ANSWER_MAX, Answer, Api, ApiError};
use crate::model::{CidrFilteringReport, ForgetCredentials};
use crate::request::{ActionError, AdminReply, AdminRequest};
use rt::MeshError;

/// Query of `GET /api/v1/cidr_groups`.
#[derive(Debug, Deserialize)]
pub(super) struct GroupsQuery {
    /// IP address: only the groups that it is in.
    address: Option<String>,
}

pub(super) async fn groups(
    State(api): State<Api>,
    Query(query): Query<GroupsQuery>,
) -> Answer<Json<BTreeMap<String, Vec<String>>>> {
    let parsed = |text: &String| {
        let wrong = |_| ActionError::Argument(format!("Invalid IP {text}"));
        text.parse::<IpAddr>().map_err(wrong)
    };
    let address = query.address.as_ref().map(parsed).transpose()?;
    let asked = api.caller.call(ShardId(0), AdminRequest::CidrGroups(address));
    let reply = api.caller.within(ANSWER_MAX, asked).await;
    match reply.map_err(|_| ApiError::from(MeshError::Full))?? {
        AdminReply::CidrGroups(groups) => Ok(Json(groups)),
        _ => Err(MeshError::Closed.into()),
    }
}

/// Removes cached credentials; answers true if there were any.
pub(super) async fn forget_credentials(
    State(api): State<Api>,
    Json(request): Json<ForgetCredentials>,
) -> Answer<Json<bool>> {
    let replies = api.ask(&AdminRequest::ForgetCredentials(request.role)).await?;
    let found = |reply: &AdminReply| matches!(reply, AdminReply::Credentials(c) if !c.is_empty());
    Ok(Json(replies.iter().any(found)))
}

pub(super) async fn filtering(State(api): State<Api>) -> Answer<Json<CidrFilteringReport>> {
    Ok(Json(report(&api.metrics().await?)))
}

/// The numbers under Cassandra's names (`CIDRFilteringMetricsTable`). There is no cache of groups,
/// so none is reloaded and there are no cache lookups: the metadata are asked.
pub fn report(metrics: &Snapshot) -> CidrFilteringReport {
    let of_cidr = metrics.metrics.iter().filter(|m| m.name == "cql_cidr_accesses_total");
    let label = |labels: &[(&'static str, String)], wanted: &str| {
        labels.iter().find(|(name, _)| *name == wanted).map_or(String::new(), |l| l.1.clone())
    };
    let mut counts: Vec<(String, u64)> = of_cidr
        .filter_map(|metric| {
            let Value::Counter(number) = metric.value else { return None };
            let result = label(&metric.labels, "result");
            let group = label(&metric.labels, "group");
            let name = format!("Number of CIDR accesses {result} from CIDR group - {group}");
            Some((name, number))
        })
        .collect();
    counts.push(("CIDR groups cache reload count".to_owned(), 0));
    let checks = match metrics.find("cql_cidr_check_nanos").map(|m| &m.value) {
        Some(Value::Histogram(nanos)) => {
            let at = [0.5, 0.95, 0.99, 0.999].map(|q| nanos.quantile(q) as f64);
            let [p50, p95, p99, p999] = at;
            Some([p50, p95, p99, p999, nanos.max as f64])
        }
        _ => None,
    };
    let latencies = [
        ("CIDR checks latency (ns)", checks),
        ("CIDR groups cache reload latency (ns)", None),
        ("Lookup IP in CIDR groups cache latency (ns)", None),
    ];
    let latencies = latencies.map(|(name, values)| (name.to_owned(), values)).to_vec();
    CidrFilteringReport { counts, latencies }
}
