//! An import is taken in by the first shard and shown by all.

use stdx::Generation;
use store::Descriptor;

use super::*;
use crate::commands::{UpkeepReply, UpkeepRequest};
use crate::model::{DamagedReport, SstableReport};

static SHOWN: std::sync::Mutex<Vec<(u16, u64)>> = std::sync::Mutex::new(Vec::new());

fn answer_upkeep(shard: u16, request: AdminRequest) -> AdminReply {
    let AdminRequest::Upkeep(request) = request else { return AdminReply::Done };
    let taken = |numbers: &[u64], failed: &[&str]| {
        let files = numbers.iter().map(|n| Descriptor::nb(Generation(*n))).collect();
        let failed = failed.iter().map(|f| (*f).to_owned()).collect();
        AdminReply::Upkeep(UpkeepReply::Imported { files, failed })
    };
    match request {
        UpkeepRequest::Import(_) | UpkeepRequest::Refresh { .. } if shard != 0 => {
            AdminReply::Failed(ActionError::Failed("asked".to_owned()))
        }
        UpkeepRequest::Import(request) => match request.directories.as_slice() {
            [none] if none == "/none" => {
                let text = "Directory /none does not exist".to_owned();
                AdminReply::Failed(ActionError::Failed(text))
            }
            [bad] if bad == "/bad" => taken(&[], &["/bad"]),
            _ => taken(&[4, 6], &["/bad"]),
        },
        // Of the file sets that cannot be taken in, one is known to the second shard.
        UpkeepRequest::NewFiles { table, .. } if table == "skips" => match shard {
            0 => taken(&[], &["/d/nb-1-big", "/d/nb-2-big"]),
            _ => taken(&[], &["/d/nb-2-big"]),
        },
        UpkeepRequest::NewFiles { .. } => taken(&[100 + u64::from(shard)], &[]),
        UpkeepRequest::Refresh { files, .. } => {
            let numbers: Vec<u64> = files.iter().map(|d| d.generation.0 + 10).collect();
            taken(&numbers, &[])
        }
        UpkeepRequest::Adopt { files, .. } => {
            let mut shown = SHOWN.lock().unwrap();
            shown.extend(files.iter().map(|d| (shard, d.generation.0)));
            AdminReply::Upkeep(UpkeepReply::Done)
        }
        UpkeepRequest::Compaction(_) => AdminReply::Upkeep(UpkeepReply::Done),
        UpkeepRequest::SetRepaired(request) => {
            let state = format!("{}-{}", request.repaired, request.preview);
            // One that both shards have, and one of each.
            let files = vec![format!("nb-7-{state}"), format!("nb-{}-{state}", 9 - shard)];
            AdminReply::Upkeep(UpkeepReply::Marked(files))
        }
        UpkeepRequest::Damaged => {
            let file = |path: String, salvaged| DamagedReport {
                keyspace: "ks".to_owned(),
                table: "t".to_owned(),
                path,
                reason: format!("found by {shard}"),
                found: 5,
                salvaged,
                copy_failure: (!salvaged).then(|| format!("failed on {shard}")),
                repair: (shard == 1).then(|| "waits".to_owned()),
            };
            // One that both shards have found, and one of each.
            let own = file(format!("/{}", 9 - shard), true);
            AdminReply::Upkeep(UpkeepReply::Damaged(vec![file("/x".to_owned(), shard == 0), own]))
        }
        UpkeepRequest::Settings => AdminReply::Upkeep(UpkeepReply::Settings(Vec::new())),
        UpkeepRequest::FilesOfPartition { key, is_hex, .. } => {
            let file = |path: String| SstableReport { path, level: None };
            // One that both shards have, and one of each.
            let own = format!("/{key}-{is_hex}-{}", 9 - shard);
            AdminReply::Upkeep(UpkeepReply::Files(vec![file("/x".to_owned()), file(own)]))
        }
        UpkeepRequest::LoadTarget { .. } | UpkeepRequest::Load { .. } => {
            AdminReply::Failed(ActionError::Failed("asked".to_owned()))
        }
    }
}

fn shown() -> Vec<(u16, u64)> {
    let mut shown = std::mem::take(&mut *SHOWN.lock().unwrap());
    shown.sort_unstable();
    shown
}

#[test]
fn files_of_a_partition_are_those_of_all_shards_each_once() {
    let node = TestNode::start(answer_upkeep);
    let paths = |query: &str| {
        let (status, body) = node.get(&format!("/api/v1/sstables?keyspace=k&table=t&{query}"));
        assert_eq!(status, 200, "{body}");
        let files: Vec<SstableReport> = serde_json::from_str(&body).unwrap();
        files.into_iter().map(|f| f.path).collect::<Vec<_>>()
    };
    assert_eq!(paths("key=a"), ["/a-false-8", "/a-false-9", "/x"]);
    assert_eq!(paths("key=00&hex=true"), ["/00-true-8", "/00-true-9", "/x"]);
    assert_eq!(node.get("/api/v1/sstables?keyspace=k&table=t").0, 400);
}

#[test]
fn files_that_are_marked_as_repaired_are_those_of_all_shards_each_once() {
    let node = TestNode::start(answer_upkeep);
    let mark = |body: &str| node.json("POST", "/api/v1/repaired", body);
    let (status, body) = mark(r#"{"keyspaces":["ks"],"repaired":true,"preview":true}"#);
    assert_eq!(
        (status, body.as_str()),
        (200, r#"["nb-7-true-true","nb-8-true-true","nb-9-true-true"]"#)
    );
    assert!(mark("{}").1.contains("nb-7-false-false"));
    assert_ne!(mark(r#"{"keyspace":"ks"}"#).0, 200);
    node.stop();
}

#[test]
fn damaged_files_are_those_of_all_shards_each_once_and_copied_when_all_shards_have() {
    let node = TestNode::start(answer_upkeep);
    let (status, body) = node.get("/api/v1/damaged");
    assert_eq!(status, 200, "{body}");
    let files: Vec<DamagedReport> = serde_json::from_str(&body).unwrap();
    let repairs: Vec<_> = files.iter().map(|f| f.repair.as_deref()).collect();
    assert_eq!(repairs, [Some("waits"), None, Some("waits")]);
    let files: Vec<_> = files.into_iter().map(|f| (f.path, f.salvaged, f.copy_failure)).collect();
    let failed = Some("failed on 1");
    let expected = [("/8", true, None), ("/9", true, None), ("/x", false, failed)];
    let of = |(path, salvaged, failed): (&str, bool, Option<&str>)| {
        (path.to_owned(), salvaged, failed.map(str::to_owned))
    };
    assert_eq!(files, expected.map(of));
    node.stop();
}

#[test]
fn what_the_first_shard_takes_in_every_shard_shows() {
    let node = TestNode::start(answer_upkeep);
    let import = |directory: &str| {
        let body =
            format!("{{\"keyspace\":\"ks\",\"table\":\"t\",\"directories\":[\"{directory}\"]}}");
        node.json("POST", "/api/v1/import", &body)
    };
    assert_eq!(import("/good"), (200, r#"{"files":2,"failed":["/bad"]}"#.to_owned()));
    assert_eq!(shown(), [(0, 4), (0, 6), (1, 4), (1, 6)]);
    assert_eq!(import("/bad"), (200, r#"{"files":0,"failed":["/bad"]}"#.to_owned()));
    let (status, body) = import("/none");
    assert!(status == 500 && body.contains("Directory /none does not exist"), "{body}");
    assert_eq!(shown(), []);
    let refresh = r#"{"keyspace":"ks","table":"t"}"#;
    assert_eq!(node.json("POST", "/api/v1/refresh", refresh).0, 200);
    let skips = r#"{"keyspace":"ks","table":"skips"}"#;
    let (status, body) = node.json("POST", "/api/v1/refresh", skips);
    assert_eq!(status, 500, "{body}");
    assert!(body.contains("1 SSTables were not loaded") && body.contains("/d/nb-2-big"), "{body}");
    assert!(!body.contains("nb-1-big") && body.contains("nodetool import"), "{body}");
    assert_eq!(shown(), [(0, 110), (0, 111), (1, 110), (1, 111)]);
    let stop = r#"{"command":"stop","kind":"COMPACTION"}"#;
    assert_eq!(node.json("POST", "/api/v1/compactions", stop).0, 200);
    assert_eq!(node.get("/api/v1/compactions/settings"), (200, "[]".to_owned()));
    node.stop();
}
