//! `nodetool repair` and `nodetool repair_admin`.

use std::time::Duration;

use crate::model::{AutoRepairReport, DrainRequest, NodeReport, RepairReport, RepairSummary};
use crate::nodetool as layout;

use super::client::{HttpError, NodeApi};
use super::cluster::encoded;
use super::line::{Failure, Line, Outcome};
use super::node::node;
use super::upkeep::token;
use crate::operation::Method;

/// Interval of polls of a running repair.
const LOOK: Duration = Duration::from_millis(200);
/// Tables that are repaired at a time.
const JOB_THREADS_MAX: i32 = 4;
/// Cassandra repairs it only when it is named.
const ONLY_WHEN_NAMED: &str = "system_distributed";

fn bad(text: impl Into<String>) -> Failure {
    Failure::BadUse(text.into())
}

/// The query of the request that begins the repair, of all keyspaces alike.
fn query(line: &Line, node: &NodeReport) -> Outcome {
    let mut datacenters = line.values("--in-dc");
    let hosts = line.values("--in-hosts");
    if line.has("--partitioner-range") && !(datacenters.is_empty() && hosts.is_empty()) {
        let text = "Primary range repair should be performed on all nodes in the cluster.";
        return Err(Failure::Node(text.to_owned()));
    }
    if line.has("--in-local-dc") {
        let me = node.nodes.iter().find(|n| n.host_id == node.host_id);
        datacenters = me.map(|n| n.datacenter.clone()).into_iter().collect();
    }
    let mut query = format!(
        "primaryRange={}&parallelism={}&incremental={}&preview={}&ignoreUnreplicatedKeyspaces={}",
        line.has("--partitioner-range"),
        match (line.has("--sequential"), line.has("--dc-parallel")) {
            (true, _) => "sequential",
            (false, true) => "dc_parallel",
            (false, false) => "parallel",
        },
        !line.has("--full"),
        line.has("--preview"),
        line.has("--ignore-unreplicated-keyspaces"),
    );
    for (flag, name) in [
        ("--validate", "validate"),
        ("--force", "forceRepair"),
        ("--pull", "pullRepair"),
        ("--paxos-only", "paxosOnly"),
        ("--skip-paxos", "skipPaxos"),
        ("--trace", "trace"),
    ] {
        if line.has(flag) {
            query.push_str(&format!("&{name}=true"));
        }
    }
    let mut add = |name: &str, value: &str| {
        query.push_str(&format!("&{name}={}", encoded(value)));
    };
    if !datacenters.is_empty() {
        add("dataCenters", &datacenters.join(","));
    }
    if !hosts.is_empty() {
        add("hosts", &hosts.join(","));
    }
    if let [_, tables @ ..] = line.arguments.as_slice()
        && !tables.is_empty()
    {
        add("columnFamilies", &tables.join(","));
    }
    if let Some(threads) = line.value("--job-threads") {
        let number = threads
            .parse::<i32>()
            .map_err(|_| bad(format!("job_threads: can not convert \"{threads}\" to a int")))?;
        if number > JOB_THREADS_MAX {
            let text = format!("Too many job threads. Max is {JOB_THREADS_MAX}");
            return Err(Failure::Node(text));
        }
        add("jobThreads", &number.to_string());
    }
    let (start, end) = (line.value("--start-token"), line.value("--end-token"));
    if start.is_some() || end.is_some() {
        add("startToken", &token(start.unwrap_or(""))?.to_string());
        add("endToken", &token(end.unwrap_or(""))?.to_string());
    }
    Ok(query)
}

fn keyspaces(line: &Line, node: &NodeReport) -> Result<Vec<String>, Failure> {
    match line.arguments.first() {
        Some(name) if node.keyspace(name).is_none() => {
            Err(bad(format!("Keyspace [{name}] does not exist.")))
        }
        Some(name) => Ok(vec![name.clone()]),
        None => {
            let replicated = node.keyspaces.iter().filter(|k| k.strategy() != "LocalStrategy");
            let meant = replicated.filter(|k| k.name != ONLY_WHEN_NAMED);
            Ok(meant.map(|k| k.name.clone()).collect())
        }
    }
}

/// Repairs one keyspace after the other; lines are printed as they come.
pub(super) fn run(line: &Line) -> Outcome {
    let node = node(&line.api)?;
    let query = query(line, &node)?;
    for keyspace in keyspaces(line, &node)? {
        repair(&line.api, &keyspace, &query)?;
    }
    Ok(String::new())
}

fn repair(api: &NodeApi, keyspace: &str, query: &str) -> Result<(), Failure> {
    let path = format!("/storage_service/repair_async/{}?{query}", encoded(keyspace));
    let id: u32 = match api.post(&path) {
        Ok(id) => id,
        Err(HttpError::Refused(kind, words)) if kind.is_argument() => return Err(bad(words)),
        Err(error) => return Err(error.into()),
    };
    if id == 0 {
        let millis = api.terminal.now_millis();
        let micros = i64::try_from(millis).unwrap_or(i64::MAX).saturating_mul(1000);
        api.print(format_args!("{}", layout::repair_not_needed(keyspace, micros)));
        return Ok(());
    }
    let (mut from, mut all) = (0, Vec::new());
    loop {
        let mut report: RepairReport = api.get(&format!("/api/v1/repairs/{id}?from={from}"))?;
        for said in &report.lines {
            api.print(format_args!("{}", layout::repair_line(said)));
            from = said.number + 1;
        }
        // A waiting reader must see lines at once, also through a pipe.
        api.terminal.flush();
        all.append(&mut report.lines);
        match report.state.as_str() {
            "RUNNING" => api.terminal.pause(LOOK),
            "SUCCESSFUL" => return Ok(()),
            _ => {
                report.lines = all;
                return Err(Failure::Node(layout::repair_failure(&report)));
            }
        }
    }
}

/// `autorepairstatus`.
pub(super) fn auto_status(line: &Line) -> Outcome {
    let report: AutoRepairReport = line.api.get("/api/v1/auto_repair")?;
    Ok(layout::auto_repair(&report))
}

/// `getautorepairconfig`.
pub(super) fn auto_config(line: &Line) -> Outcome {
    let report: AutoRepairReport = line.api.get("/api/v1/auto_repair")?;
    Ok(layout::auto_repair_config(&report))
}

/// `setautorepairconfig enabled true|false`.
pub(super) fn set_auto(line: &Line) -> Outcome {
    let enabled = match line.arguments.as_slice() {
        [name, value] if name == "enabled" => value.parse::<bool>().ok(),
        _ => None,
    };
    let Some(enabled) = enabled else {
        return Err(bad("setautorepairconfig takes: enabled true, or enabled false"));
    };
    let path = format!("/api/v1/auto_repair?enabled={enabled}");
    line.api.command(Method::Put, &path, &DrainRequest {})?;
    Ok(String::new())
}

/// Returns why a part of Cassandra's `repair_admin` is not supported.
fn refused(part: &str) -> Option<&'static str> {
    match part {
        "cleanup" => Some("what ended sessions leave behind goes by itself"),
        _ => None,
    }
}

/// `summarize-pending` and `summarize-repaired`.
fn summarize(line: &Line, part: &str) -> Outcome {
    let mut words = line.arguments.iter().skip(1);
    let mut query = String::new();
    let mut add = |name: &str, value: &str| {
        query.push_str(if query.is_empty() { "?" } else { "&" });
        query.push_str(&format!("{name}={}", encoded(value)));
    };
    if let Some(keyspace) = words.next() {
        add("keyspace", keyspace);
    }
    let tables: Vec<&str> = words.map(String::as_str).collect();
    if !tables.is_empty() {
        add("tables", &tables.join(","));
    }
    for (flag, name) in [("--start-token", "start"), ("--end-token", "end")] {
        if let Some(token) = line.value(flag) {
            let number =
                token.parse::<i64>().map_err(|_| bad(format!("Invalid token: {token}")))?;
            add(name, &number.to_string());
        }
    }
    let summaries: Vec<RepairSummary> =
        match line.api.get(&format!("/api/v1/repair_summary{query}")) {
            Ok(summaries) => summaries,
            Err(HttpError::Refused(kind, words)) if kind.is_argument() => return Err(bad(words)),
            Err(error) => return Err(error.into()),
        };
    let verbose = line.has("--verbose");
    Ok(match part {
        "summarize-pending" => layout::repair_pending(&summaries, layout::SummaryStyle { verbose }),
        _ => layout::repair_repaired(&summaries, layout::SummaryStyle { verbose }),
    })
}

/// `list`, `cancel` and the summaries.
pub(super) fn admin(line: &Line) -> Outcome {
    let api = &line.api;
    let part = line.arguments.first().map_or("", String::as_str);
    if let Some(why) = refused(part) {
        return Err(bad(format!("repair_admin {part} is not supported: {why}")));
    }
    if part.starts_with("summarize-") && matches!(part, "summarize-pending" | "summarize-repaired")
    {
        return summarize(line, part);
    }
    let reports: Vec<RepairReport> = api.get("/api/v1/repairs")?;
    match line.arguments.first().map(String::as_str) {
        _ if line.arguments.len() > 1 => {
            let extra = line.arguments.get(1..).unwrap_or_default().join(", ");
            Err(bad(format!("Found unexpected parameters: [{extra}]")))
        }
        None | Some("list") => Ok(layout::repair_list(&reports)),
        Some("cancel") => {
            let Some(session) = line.value("--session") else {
                return Err(bad("Required option '-s' is missing"));
            };
            let meant = |r: &&RepairReport| r.session == session || r.id.to_string() == session;
            let Some(found) = reports.iter().find(meant) else {
                return Err(bad(format!("Session {{}} does not exist [{session}]")));
            };
            api.command(
                Method::Delete,
                &format!("/api/v1/repairs/{}", found.id),
                &DrainRequest {},
            )?;
            Ok(String::new())
        }
        Some(other) => Err(bad(format!("Found unexpected parameters: [{other}]"))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::parse;
    use super::*;
    use crate::model::MemberReport;

    fn ask(text: &str) -> Result<String, String> {
        let line = parse(text)?;
        let mut node = NodeReport { host_id: "me".to_owned(), ..NodeReport::default() };
        node.nodes.push(MemberReport {
            host_id: "me".to_owned(),
            datacenter: "dc1".to_owned(),
            ..MemberReport::default()
        });
        query(&line, &node).map_err(|failure| match failure {
            Failure::BadUse(text) | Failure::Node(text) => text,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn options_become_a_query() {
        let plain = "primaryRange=false&parallelism=parallel&incremental=true&preview=false\
                     &ignoreUnreplicatedKeyspaces=false";
        assert_eq!(ask("repair"), Ok(plain.to_owned()));
        assert_eq!(
            ask("repair -full -pr -seq -prv -iuk -local -j 2 ks a b"),
            Ok("primaryRange=true&parallelism=sequential&incremental=false&preview=true\
                &ignoreUnreplicatedKeyspaces=true&dataCenters=dc1&columnFamilies=a%2Cb&jobThreads=2"
                .to_owned())
        );
        let made = ask("repair -dcpar -force -pl -vd -skip-paxos -tr").unwrap();
        assert!(made.contains("parallelism=dc_parallel"));
        let flags = "&validate=true&forceRepair=true&pullRepair=true&skipPaxos=true&trace=true";
        assert!(made.ends_with(flags), "{made}");
        let made = ask("repair -st -5 -et 7 -hosts 127.0.0.1 -hosts 127.0.0.2").unwrap();
        assert!(
            made.ends_with("&hosts=127%2E0%2E0%2E1%2C127%2E0%2E0%2E2&startToken=%2D5&endToken=7")
        );
    }

    #[test]
    fn what_is_not_there_is_refused_by_name() {
        match admin(&parse("repair_admin cleanup").unwrap()) {
            Err(Failure::BadUse(text)) => {
                assert!(text.starts_with("repair_admin cleanup is not"), "{text}");
            }
            other => panic!("{other:?}"),
        }
        for (text, word) in [
            (
                "repair -st 5",
                "Invalid token for Murmur3Partitioner. Got  but expected a long value",
            ),
            ("repair -st a -et 5", "Invalid token for Murmur3Partitioner. Got a but expected"),
            ("repair -j x", "job_threads: can not convert \"x\" to a int"),
            ("repair -j 5", "Too many job threads. Max is 4"),
            ("repair -pr -dc dc1", "Primary range repair"),
        ] {
            let words = ask(text).unwrap_err();
            assert!(words.contains(word), "{text}: {words}");
        }
    }
}
