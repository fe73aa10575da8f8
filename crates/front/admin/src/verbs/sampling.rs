//! `profileload` and its older name `toppartitions`. Source: Cassandra `tools.nodetool.ProfileLoad`.

use crate::model::{ErrorKind, SampleJob, SampleRequest, SamplerReport};
use crate::nodetool as layout;

use super::client::HttpError;
use super::flags::SAMPLING;
use super::line::{Failure, Line, Outcome};
use super::upkeep::missing_table;
use crate::operation::Method;

const BAD_ARGUMENTS: &str = "Invalid arguments, either [keyspace table/* duration] or [keyspace table/*] \
                             or [duration] or no args.\nOptionally, use * to represent all tables \
                             under the keyspace.";

fn bad(text: impl Into<String>) -> Failure {
    Failure::BadUse(text.into())
}

/// The value of an option, a number of 32 bits. A refusal calls it as the help does.
fn option(line: &Line, name: &str, usual: i32) -> Result<i32, Failure> {
    let Some(text) = line.value(name) else { return Ok(usual) };
    let flag = SAMPLING.iter().find(|flag| flag.names.contains(&name));
    let title = flag.and_then(|flag| flag.value).unwrap_or(name);
    text.parse().map_err(|_| bad(format!("{title}: can not convert \"{text}\" to a int")))
}

fn name(text: &str) -> Option<String> {
    (text != "*").then(|| text.to_owned())
}

/// Builds the request, with the checks of Cassandra's tool before it asks the node, in its order.
fn request(line: &Line) -> Result<SampleRequest, Failure> {
    let mut wanted = SampleRequest::default();
    let count = option(line, "-k", 10)?;
    let capacity = option(line, "-s", 256)?;
    let interval = option(line, "--interval", -1)?;
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
    if count <= 0 {
        return Err(bad("TopK count (-k) option must have positive value"));
    }
    if count >= capacity {
        return Err(bad("TopK count (-k) option must be smaller then the summary capacity (-s)"));
    }
    wanted.count = usize::try_from(count).unwrap_or(usize::MAX);
    wanted.capacity = usize::try_from(capacity).unwrap_or(usize::MAX);
    if wanted.capacity > SampleRequest::CAPACITY_MAX {
        return Err(bad("Capacity (-s) cannot exceed 1024."));
    }
    let millis: i32 = match duration {
        None => 10_000,
        Some(text) => text.parse().map_err(|_| bad(format!("For input string: \"{text}\"")))?,
    };
    wanted.duration = u64::try_from(millis)
        .ok()
        .filter(|n| *n > 0)
        .ok_or_else(|| bad(format!("Duration: {millis} must be positive")))?;
    if interval != -1 {
        if interval < millis {
            return Err(bad(format!(
                "Invalid scheduled sampling interval. Expecting interval >= duration, but interval: \
                 {interval} ms; duration: {millis} ms"
            )));
        }
        wanted.interval = u64::try_from(interval).ok();
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

/// Returns the error of Cassandra's tool, which looks the table up itself.
fn in_cassandras_words(wanted: &SampleRequest, kind: ErrorKind, words: String) -> Failure {
    let is_missing = matches!(kind, ErrorKind::UnknownKeyspace | ErrorKind::UnknownTable);
    match (&wanted.keyspace, &wanted.table) {
        (Some(keyspace), Some(table)) if is_missing => {
            missing_table(format!("ColumnFamilyStore for {keyspace}/{table} not found."))
        }
        _ => bad(words),
    }
}

/// `profileload` and `toppartitions`.
pub(super) fn profile_load(line: &Line) -> Outcome {
    let wanted = request(line)?;
    let refused = |error: HttpError| match error {
        HttpError::Refused(kind, words) if kind.is_argument() => {
            in_cassandras_words(&wanted, kind, words)
        }
        other => other.into(),
    };
    let of_job = |text: &str| {
        let (keyspace, table) = (or_null(wanted.keyspace.as_ref()), or_null(wanted.table.as_ref()));
        text.replace("{keyspace}", keyspace).replace("{table}", table)
    };
    if line.has("--stop") {
        let job = SampleJob { keyspace: wanted.keyspace.clone(), table: wanted.table.clone() };
        let done: bool =
            line.api.order(Method::Delete, "/api/v1/samples/jobs", &job).map_err(refused)?;
        return Ok(match done {
            true => String::new(),
            false => of_job(
                "Unable to stop the non-existent scheduled sampling for keyspace: {keyspace}, \
                 table: {table}\n",
            ),
        });
    }
    if wanted.interval.is_some() {
        let done: bool =
            line.api.order(Method::Post, "/api/v1/samples/jobs", &wanted).map_err(refused)?;
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
        line.api.order(Method::Post, "/api/v1/samples", &wanted).map_err(refused)?;
    Ok(layout::samples(&reports, layout::SamplesIn::Terminal))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(text: &str) -> Result<SampleRequest, String> {
        request(&super::super::tests::parse(text)?).map_err(|error| match error {
            Failure::BadUse(text) => text,
            other => panic!("{other:?}"),
        })
    }

    /// Recorded from a Cassandra 5.0.9.
    #[test]
    fn what_cannot_be_sampled_is_refused_in_cassandras_words() {
        let interval = "Invalid scheduled sampling interval. Expecting interval >= duration, but interval: 5 ms; \
                        duration: 100 ms";
        let names = "'nope' sampler is not available from: [READS, WRITES, LOCAL_READ_TIME, READ_ROW_COUNT, \
                     READ_TOMBSTONE_COUNT, READ_SSTABLE_COUNT, WRITE_SIZE, CAS_CONTENTIONS]";
        for (text, expected) in [
            ("ks t 0", "Duration: 0 must be positive"),
            ("x", "For input string: \"x\""),
            ("a b c d", BAD_ARGUMENTS),
            ("-k 0 10", "TopK count (-k) option must have positive value"),
            ("-k -1 10", "TopK count (-k) option must have positive value"),
            ("-k x 10", "topCount: can not convert \"x\" to a int"),
            ("-k 256 10", "TopK count (-k) option must be smaller then the summary capacity (-s)"),
            ("-s 2000 10", "Capacity (-s) cannot exceed 1024."),
            ("-a nope 10", names),
            ("-i 5 100", interval),
        ] {
            for verb in ["toppartitions", "profileload"] {
                assert_eq!(asked(&format!("{verb} {text}")).unwrap_err(), expected, "{text}");
            }
        }
        let of_table = asked("toppartitions ks nosuch 100").unwrap();
        for kind in [ErrorKind::UnknownKeyspace, ErrorKind::UnknownTable] {
            let failure = in_cassandras_words(&of_table, kind, "no such table".to_owned());
            let Failure::Told(text) = failure else { panic!("{failure:?}") };
            assert_eq!(text, "ColumnFamilyStore for ks/nosuch not found.\n");
        }
        let other = in_cassandras_words(&of_table, ErrorKind::Argument, "no".to_owned());
        assert!(matches!(other, Failure::BadUse(text) if text == "no"));
        let wanted = asked("toppartitions -k 255 -i 100 -a reads ks * 100").unwrap();
        assert_eq!((wanted.count, wanted.interval, wanted.duration), (255, Some(100), 100));
        assert_eq!((wanted.keyspace.as_deref(), wanted.table), (Some("ks"), None));
        assert_eq!(wanted.samplers, ["READS"]);
    }
}
