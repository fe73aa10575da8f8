//! `profileload` and its older name `toppartitions`. Source: Cassandra `tools.nodetool.ProfileLoad`.

use admin::model::{SampleJob, SampleRequest, SamplerReport};
use admin::nodetool as layout;

use super::{Failure, Line};

const BAD_ARGUMENTS: &str = "Invalid arguments, either [keyspace table/* duration] or [keyspace table/*] \
                             or [duration] or no args.\nOptionally, use * to represent all tables \
                             under the keyspace.";

pub(super) fn run(line: &Line) -> Option<Result<String, Failure>> {
    matches!(line.verb, "profileload" | "toppartitions").then(|| profile_load(line))
}

fn bad(text: impl Into<String>) -> Failure {
    Failure::BadUse(text.into())
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, Failure> {
    text.parse().map_err(|_| bad(format!("For input string: \"{text}\"")))
}

fn name(text: &str) -> Option<String> {
    (text != "*").then(|| text.to_owned())
}

/// What is asked for, checked as Cassandra's tool does before it asks the node.
fn request(line: &Line) -> Result<SampleRequest, Failure> {
    let mut wanted = SampleRequest::default();
    let words: Vec<&str> = line.arguments.iter().map(String::as_str).collect();
    let duration = match words.as_slice() {
        [] => None,
        [duration] => Some(*duration),
        [keyspace, table] => {
            (wanted.keyspace, wanted.table) = (name(keyspace), name(table));
            None
        }
        [keyspace, table, duration] => {
            (wanted.keyspace, wanted.table) = (name(keyspace), name(table));
            Some(*duration)
        }
        _ => return Err(bad(BAD_ARGUMENTS)),
    };
    if let Some(text) = duration {
        let millis: i64 = number(text)?;
        wanted.duration = u64::try_from(millis)
            .ok()
            .filter(|n| *n > 0)
            .ok_or_else(|| bad(format!("Duration: {millis} must be positive")))?;
    }
    if let Some(count) = line.value("-k") {
        wanted.count = number(count)?;
    }
    if let Some(capacity) = line.value("-s") {
        wanted.capacity = number(capacity)?;
    }
    if let Some(interval) = line.value("--interval") {
        wanted.interval = Some(number(interval)?);
    }
    if let Some(samplers) = line.value("-a") {
        let known = std::mem::take(&mut wanted.samplers);
        for name in samplers.split(',') {
            let sampler = name.trim().to_uppercase();
            if !known.contains(&sampler) {
                let known = known.join(", ");
                return Err(bad(format!("'{name}' sampler is not available from: [{known}]")));
            }
            wanted.samplers.push(sampler);
        }
    }
    Ok(wanted)
}

fn or_null(name: Option<&String>) -> &str {
    name.map_or("null", String::as_str)
}

fn profile_load(line: &Line) -> Result<String, Failure> {
    use crate::http::HttpError;

    let wanted = request(line)?;
    let refused = |error: HttpError| match error {
        HttpError::Refused(400, words) => bad(words),
        other => other.into(),
    };
    let of_job = |text: &str| {
        let (keyspace, table) = (or_null(wanted.keyspace.as_ref()), or_null(wanted.table.as_ref()));
        text.replace("{keyspace}", keyspace).replace("{table}", table)
    };
    if line.has("--stop") {
        let job = SampleJob { keyspace: wanted.keyspace.clone(), table: wanted.table.clone() };
        let done: bool =
            line.api.order_by("DELETE", "/api/v1/samples/jobs", &job).map_err(refused)?;
        return Ok(match done {
            true => String::new(),
            false => of_job(
                "Unable to stop the non-existent scheduled sampling for keyspace: {keyspace}, \
                 table: {table}\n",
            ),
        });
    }
    if wanted.interval.is_some() {
        let done: bool = line.api.order("/api/v1/samples/jobs", &wanted).map_err(refused)?;
        return Ok(match done {
            true => String::new(),
            false => of_job(
                "Unable to schedule sampling for keyspace: {keyspace}, table: {table} due to \
                 existing samplings. Stop the existing sampling jobs first.\n",
            ),
        });
    }
    if line.has("--list") {
        let jobs: Vec<String> = line.api.get("/api/v1/samples/jobs")?;
        return Ok(layout::sample_jobs(&jobs));
    }
    let reports: Vec<SamplerReport> =
        line.api.order("/api/v1/samples", &wanted).map_err(refused)?;
    Ok(layout::samples(&reports, true))
}
