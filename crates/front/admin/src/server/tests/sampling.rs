//! Samples of reads and writes, once and periodically.

use crate::model::{SampleReport, SamplerReport};
use crate::request::SampleCommand;

use super::*;

pub(super) fn answer(shard: u16, command: SampleCommand) -> AdminReply {
    let request = match command {
        SampleCommand::Check(request) | SampleCommand::Begin(request)
            if request.table.as_deref() == Some("nosuch") =>
        {
            let text = "Unknown keyspace/cf pair (ks.nosuch)".to_owned();
            return AdminReply::Failed(ActionError::Argument(text));
        }
        SampleCommand::Check(_) | SampleCommand::Begin(_) => return AdminReply::Samples(Vec::new()),
        SampleCommand::End(request) => request,
    };
    let samples = |sampler: &String| SamplerReport {
        sampler: sampler.clone(),
        samples: (1..4)
            .map(|n| SampleReport {
                table: "ks.t".to_owned(),
                value: format!("{shard}-{n}"),
                count: n * 10 + u64::from(shard),
                error: 0,
            })
            .collect(),
    };
    AdminReply::Samples(request.samplers.iter().map(samples).collect())
}

#[test]
fn samples_are_the_first_of_all_shards() {
    let node = TestNode::start(super::answer);
    let ask = |body: &str| node.json("POST", "/api/v1/samples", body);
    let (status, body) = ask(r#"{"duration":1,"count":3,"samplers":["WRITES","READS"]}"#);
    assert_eq!(status, 200, "{body}");
    let all: Vec<SamplerReport> = serde_json::from_str(&body).unwrap();
    let names: Vec<&str> = all.iter().map(|r| r.sampler.as_str()).collect();
    assert_eq!(names, ["WRITES", "READS"]);
    for report in &all {
        let found: Vec<(&str, u64)> =
            report.samples.iter().map(|s| (s.value.as_str(), s.count)).collect();
        assert_eq!(found, [("1-3", 31), ("0-3", 30), ("1-2", 21)]);
    }
    for (wrong, why) in [
        (r#"{"duration":0}"#, "Duration: 0 must be positive"),
        (r#"{"duration":900000000}"#, "at most a week"),
        (r#"{"duration":1,"count":0}"#, "must have positive value"),
        (r#"{"duration":1,"count":256}"#, "must be smaller then the summary capacity"),
        (r#"{"duration":1,"capacity":1025}"#, "cannot exceed 1024"),
        (r#"{"duration":1,"table":"t"}"#, "a table needs its keyspace"),
        (r#"{"duration":1,"keyspace":"ks","table":"nosuch"}"#, "Unknown keyspace/cf pair"),
    ] {
        let (status, body) = ask(wrong);
        assert!(status == 400 && body.contains(why), "{wrong}: {status} {body}");
    }
    node.stop();
}

#[test]
fn jobs_of_the_same_tables_exclude_each_other_and_end_with_their_round() {
    let node = TestNode::start(super::answer);
    let begin = |tables: &str, interval: u64| {
        let body = format!(r#"{{{tables}"duration":1,"interval":{interval}}}"#);
        node.json("POST", "/api/v1/samples/jobs", &body)
    };
    let end = |body: &str| node.json("DELETE", "/api/v1/samples/jobs", body);
    let (yes, no) = ((200, "true".to_owned()), (200, "false".to_owned()));
    let one = r#""keyspace":"ks","table":"t","#;
    let keyspace = r#""keyspace":"other","#;
    assert_eq!(begin(one, 60_000), yes);
    assert_eq!(begin(one, 60_000), no, "it runs");
    assert_eq!(begin("", 60_000), no, "all tables have this one");
    assert_eq!(begin(keyspace, 60_000), yes);
    assert_eq!(begin(r#""keyspace":"other","table":"t","#, 60_000), no, "its keyspace is sampled");
    assert_eq!(node.get("/api/v1/samples/jobs").1, r#"["ks.t","other.*"]"#);
    assert_eq!(begin(r#""keyspace":"ks","table":"nosuch","#, 60_000).0, 400);
    assert_eq!(begin(one, 0).0, 400, "the interval is shorter than the round");
    assert_eq!(end(r#"{"keyspace":"nosuch"}"#), no);
    assert_eq!(end(r#"{"keyspace":"ks","table":"t"}"#), yes);
    assert_eq!(end(r#"{"keyspace":"ks","table":"t"}"#), no, "it ends already");
    assert_eq!(begin(one, 60_000), no, "its round goes on");

    // One with a short round.
    assert_eq!(begin(r#""keyspace":"short","#, 20), yes);
    assert_eq!(end(r#"{"keyspace":"short"}"#), yes);
    while node.get("/api/v1/samples/jobs").1.contains("short") {
        std::thread::yield_now();
    }
    assert_eq!(begin(r#""keyspace":"short","#, 20), yes);
    node.stop();
}
