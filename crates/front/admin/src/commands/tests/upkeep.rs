//! Targets of requests about files.

use stdx::Generation;

use super::*;
use crate::commands::upkeep::{UpkeepAction, UpkeepRequest, resolve};
use crate::compaction_command::CompactionAction;
use crate::model::CompactionCommand;

fn check(command: CompactionCommand, expect: Result<CompactionAction, &str>) {
    let found = resolve(UpkeepRequest::Compaction(command.clone()), &snapshot(2).schema);
    let found = found.map_err(|error| error.to_string());
    let expect = expect.map(UpkeepAction::Compaction).map_err(str::to_owned);
    assert_eq!(found, expect, "{command:?}");
}

fn id(name: &str) -> TableId {
    TableId(Uuid::from_u128(name.len() as u128))
}

#[test]
fn kinds_of_compactions_are_cassandras_names() {
    let stop = |kind: &str| CompactionCommand::Stop { kind: Some(kind.to_owned()), id: None };
    let of = |kind| Ok(CompactionAction::Stop { kind: Some(kind), id: None });
    check(stop("MAJOR_COMPACTION"), of("Major compaction"));
    check(stop("CLEANUP"), of("Cleanup"));
    check(stop("GARBAGE_COLLECT"), of("Remove deleted data"));
    check(stop("SCRUB"), of("Scrub"));
    // There are none: nothing is listed so.
    check(stop("UNKNOWN"), of(""));
    check(stop("VALIDATION"), Err("a repair is given up with \"nodetool repair_admin cancel\""));
    check(stop("Cleanup"), Err("compaction_type: can not convert \"Cleanup\" to a OperationType"));
    let by_id = CompactionCommand::Stop { kind: None, id: Some("x".to_owned()) };
    check(by_id, Ok(CompactionAction::Stop { kind: None, id: Some("x".to_owned()) }));
}

#[test]
fn files_are_those_of_a_tables_directory() {
    let schema = snapshot(2).schema.clone();
    let directory = schema.keyspaces["ks"].tables["t"].directory_name();
    let files = |names: &[String]| CompactionCommand::Files { files: names.to_vec() };
    let path = |name: &str| format!("/data/ks/{directory}/{name}");
    let named = [path("nb-7-big-Data.db"), path("da-9-bti-Data.db")];
    let expected = vec![(id("t"), vec![Generation(7), Generation(9)])];
    check(files(&named), Ok(CompactionAction::Files { files: expected }));
    // The table does not exist.
    check(
        files(&["/data/ks/t-1/nb-7-big-Data.db".to_owned()]),
        Ok(CompactionAction::Files { files: vec![] }),
    );
    check(
        files(&[path("Data.db")]),
        Err(
            "Invalid sstable file Data.db: the name doesn't look like a supported sstable file name",
        ),
    );
}

#[test]
fn a_range_may_go_over_the_end_of_the_ring() {
    let range = |start, end| CompactionCommand::Range {
        keyspaces: vec!["ks".to_owned()],
        tables: vec!["t".to_owned()],
        start,
        end,
    };
    let of = |ranges: &[(i64, i64)]| {
        let ranges = ranges.iter().map(|(a, b)| (Token(*a), Token(*b))).collect();
        Ok(CompactionAction::Range { tables: vec![id("t")], ranges })
    };
    check(range(-5, 7), of(&[(-5, 7)]));
    check(range(7, -5), of(&[(7, i64::MAX), (i64::MIN, -5)]));
}

#[test]
fn partitions_and_tables_that_cannot_be_are_refused_in_cassandras_words() {
    let partition = |table: &str, key: &str| CompactionCommand::Partition {
        keyspaces: vec!["ks".to_owned()],
        tables: vec![table.to_owned()],
        key: key.to_owned(),
    };
    let key = vec![(id("t"), 5_i32.to_be_bytes().to_vec())];
    check(partition("t", "5"), Ok(CompactionAction::Partition { keys: key }));
    check(
        partition("t", "x"),
        Err("Unable to parse partition key 'x' for table ks.t; Unable to make int from 'x'"),
    );
    let force = |table: &str, key: &str| CompactionCommand::Force {
        keyspace: "ks".to_owned(),
        table: table.to_owned(),
        keys: vec!["5".to_owned(), key.to_owned()],
    };
    let keys = [5_i32, 6].map(|key| key.to_be_bytes().to_vec()).to_vec();
    check(force("t", "6"), Ok(CompactionAction::Force { table: id("t"), keys }));
    check(force("t", "x"), Err("Unable to make int from 'x'"));
    check(force("nosuch", "6"), Err("Unknown keyspace/cf pair (ks.nosuch)"));
    check(partition("nosuch", "5"), Err("Unknown keyspace/cf pair (ks.nosuch)"));
    let thresholds = CompactionCommand::SetThresholds {
        keyspace: "ks".to_owned(),
        table: "nosuch".to_owned(),
        min: 2,
        max: 3,
    };
    check(thresholds, Err("ColumnFamilyStore for ks/nosuch not found."));
}

#[test]
fn indexes_are_rebuilt_if_all_of_them_exist() {
    let rebuild = |table: &str, indexes: &[&str]| CompactionCommand::RebuildIndexes {
        keyspace: "ks".to_owned(),
        table: table.to_owned(),
        indexes: indexes.iter().map(|name| (*name).to_owned()).collect(),
    };
    let expected = CompactionAction::RebuildIndexes { table: id("tt") };
    check(rebuild("tt", &["tt_k1"]), Ok(expected));
    check(
        rebuild("tt", &["a", "tt_k1", "b"]),
        Err("No defined indexes with the supplied names: a,b"),
    );
    check(rebuild("nosuch", &["a"]), Err("Unknown keyspace/cf pair (ks.nosuch)"));
}
