//! Golden texts: what a real Cassandra 5.0.9 printed, with the values of the inputs here.

use super::*;
use crate::model::tests::{NETWORK, keyspace, one_node, three_nodes};
use crate::model::{
    CacheReport, PendingReport, RunningReport, SampleReport, SamplerReport, SettingsReport,
    TableReport,
};

#[test]
fn samples_are_shown_as_cassandra_shows_them() {
    let sample = |value: &str, count, error| SampleReport {
        table: "ks.t".to_owned(),
        value: value.to_owned(),
        count,
        error,
    };
    let of = |name: &str, samples| SamplerReport { sampler: name.to_owned(), samples };
    // In whatever order they were asked for.
    let reports = [
        of("LOCAL_READ_TIME", vec![sample("SELECT * FROM ks.t WHERE k = 1", 1234, 0)]),
        of("READS", vec![sample("1", 100, 0), sample("a:b", 7, 2)]),
        of("CAS_CONTENTIONS", Vec::new()),
    ];
    let text = samples(&reports, SamplesIn::Terminal);
    let wanted = concat!(
        "Frequency of reads by partition:\n",
        "   Table Partition Count +/-\n",
        "   ks.t  1         100   0  \n",
        "   ks.t  a:b       7     2  \n",
        "\n",
        "Longest read query times:\n",
        "   Query                          Microseconds\n",
        "   SELECT * FROM ks.t WHERE k = 1 1234        \n",
        "\n",
        "Frequency of CAS contention by partition:\n",
        "   Nothing recorded during sampling period...\n",
        "\n",
    );
    assert_eq!(text, wanted);
    assert_eq!(samples(&reports, SamplesIn::Log), format!("\n{wanted}"));
    let jobs = sample_jobs(&["*.*".to_owned(), "a_keyspace.t".to_owned()]);
    assert_eq!(jobs, "  KEYSPACE TABLE\n         *     *\na_keyspace     t\n");
}

#[test]
fn status_is_cassandras() {
    let node = one_node();
    let text = status(&node, None, HostStyle::default()).unwrap();
    assert_eq!(text, include_str!("testdata/status.txt"));
    let with_port = status(&node, Some("adm_h"), HostStyle { port: true }).unwrap();
    assert!(with_port.contains("\nUN  127.0.0.1:7000  469.86 KiB"), "{with_port}");
}

#[test]
fn status_of_a_keyspace_that_is_not_there_is_an_error_and_of_a_local_one_a_note() {
    let node = one_node();
    let error = status(&node, Some("nosuch"), HostStyle::default()).unwrap_err();
    assert_eq!(error, "\nError: The keyspace nosuch, does not exist\n");
    let text = status(&node, Some("system"), HostStyle::default()).unwrap();
    assert!(text.contains("Tokens  Owns  Host ID"), "{text}");
    assert!(
        text.ends_with(
            "\n\nNote: Ownership values for keyspaces with LocalStrategy are meaningless\n"
        ),
        "{text}"
    );
}

#[test]
fn status_with_one_token_shows_it() {
    let mut node = one_node();
    node.nodes[0].tokens.truncate(1);
    let text = status(&node, None, HostStyle::default()).unwrap();
    assert!(text.contains("  Token                 Rack \n"), "{text}");
    assert!(text.contains("  -8378705484723146421  rack1\n"), "{text}");
}

#[test]
fn data_centres_share_their_column_widths() {
    let mut node = one_node();
    let mut far = node.nodes[0].clone();
    far.datacenter = "dc2".to_owned();
    far.address = "192.168.100.100".to_owned();
    (far.up, far.load_bytes, far.state) = (false, None, "Leaving".to_owned());
    node.nodes.push(far);
    let text = status(&node, None, HostStyle::default()).unwrap();
    assert!(text.starts_with("Datacenter: datacenter1\n"), "{text}");
    assert!(text.contains("\n\nDatacenter: dc2\n===============\n"), "{text}");
    assert!(text.contains("\nUN  127.0.0.1        469.86 KiB  2 "), "{text}");
    assert!(text.contains("\nDL  192.168.100.100  ?           2 "), "{text}");
}

#[test]
fn ring_is_cassandras() {
    let text = ring(&one_node(), None, HostStyle::default()).unwrap();
    assert_eq!(text, include_str!("testdata/ring.txt"));
    let local = ring(&one_node(), Some("system"), HostStyle::default()).unwrap();
    assert!(
        local.ends_with(
            "\n\n\n  Note: Ownership values for keyspaces with LocalStrategy are meaningless\n"
        ),
        "{local}"
    );
}

#[test]
fn info_is_cassandras() {
    // Only this table has two replicas.
    let mut traces = TableReport {
        keyspace: "system_traces".to_owned(),
        memtable_bytes: 756_757_299,
        uncompressed_bytes: 1_000,
        ..TableReport::default()
    };
    let shown = |table: &TableReport, all_tokens| {
        info(
            &one_node(),
            &ClusterReport::default(),
            std::slice::from_ref(table),
            &[],
            InfoStyle { all_tokens },
        )
    };
    assert_eq!(shown(&traces, false), include_str!("testdata/info.txt"));
    let all = shown(&traces, true);
    assert!(all.contains("Token                  : -8378705484723146421\nToken  "), "{all}");
    traces.repaired_bytes = 250;
    let text = shown(&traces, false);
    assert!(text.contains("Percent Repaired       : 25.0%\n"), "{text}");
    traces.keyspace = "system".to_owned();
    let text = shown(&traces, false);
    assert!(text.contains("Percent Repaired       : 100.0%\n"), "{text}");
    let rows = CacheReport {
        name: "rows".to_owned(),
        capacity_bytes: 10 << 20,
        size_bytes: 3 << 9,
        entries: 3,
        requests: 8,
        hits: 5,
    };
    let chunks = CacheReport { name: "chunks".to_owned(), ..rows.clone() };
    let counters = CacheReport { name: "counters".to_owned(), hits: 2, ..rows.clone() };
    let settings = SettingsReport {
        row_cache_save_seconds: 60,
        counter_cache_save_seconds: 7_200,
        ..SettingsReport::default()
    };
    let cluster = ClusterReport { settings: Some(settings), ..ClusterReport::default() };
    let text = info(&one_node(), &cluster, &[], &[rows, chunks, counters], InfoStyle::default());
    let line = "Row Cache              : entries 3, size 1.5 KiB, capacity 10 MiB, 5 hits, 8 requests, \
                0.625 recent hit rate, 60 save period in seconds\n";
    assert!(text.contains(line), "{text}");
    let line = "Counter Cache          : entries 3, size 1.5 KiB, capacity 10 MiB, 2 hits, 8 requests, \
                0.250 recent hit rate, 7200 save period in seconds\n";
    assert!(text.contains(line), "{text}");
    let line = "Chunk Cache            : entries 3, size 1.5 KiB, capacity 10 MiB, 3 misses, 8 requests, \
                0.625 recent hit rate, NaN microseconds miss latency\n";
    assert!(text.contains(line), "{text}");
    let cluster = ClusterReport { decommission_failed: true, ..ClusterReport::default() };
    let text = info(&one_node(), &cluster, &[], &[], InfoStyle::default());
    assert!(text.contains("Decommission failed    : true\n"), "{text}");
}

#[test]
fn tablestats_tell_what_is_repaired() {
    let mut all = tables();
    all[1].repaired_bytes = 1_900;
    all[1].pending_repair_bytes = 800;
    let text =
        table_stats(&all, &filter(false, &["adm_h.t"]), TableStatsOptions::default()).unwrap();
    for line in [
        "Percent repaired: 33.33",
        "Bytes repaired: 1.855KiB",
        "Bytes unrepaired: 2.930KiB",
        "Bytes pending repair: 800B",
    ] {
        assert!(text.contains(&format!("\t\t{line}\n")), "{line} in {text}");
    }
}

#[test]
fn describecluster_is_cassandras() {
    let text = describe_cluster(&one_node(), &ClusterReport::default(), HostStyle::default());
    assert_eq!(text, include_str!("testdata/describecluster.txt"));
    assert_eq!(version(&one_node()), "ReleaseVersion: 5.0.9\n");
}

#[test]
fn listsnapshots_is_cassandras() {
    let snapshot = |tag: &str, table: &str, sizes: (u64, u64), at: &str| SnapshotReport {
        tag: tag.to_owned(),
        keyspace: "adm_h".to_owned(),
        table: table.to_owned(),
        true_bytes: sizes.0,
        disk_bytes: sizes.1,
        created_at: at.to_owned(),
        expires_at: String::new(),
        is_ephemeral: false,
    };
    let snapshots = [
        snapshot("tag1", "e", (1055, 1055), "2026-11-21T05:14:49.204Z"),
        snapshot("tag3", "t", (1085, 6164), "2026-11-21T05:14:55.094Z"),
    ];
    let plain = ListSnapshotsOptions::default();
    assert_eq!(list_snapshots(&snapshots, plain), include_str!("testdata/listsnapshots.txt"));
    assert_eq!(list_snapshots(&[], plain), "Snapshot Details: \nThere are no snapshots\n");
    let expires_at = "2026-11-22T05:14:49.204Z".to_owned();
    let expires = [SnapshotReport { expires_at, ..snapshots[0].clone() }];
    let no_ttl = ListSnapshotsOptions { no_ttl: true, ..plain };
    assert!(list_snapshots(&expires, no_ttl).contains("There are no snapshots"));
    assert_eq!(list_snapshots(&snapshots, no_ttl), list_snapshots(&snapshots, plain));
    let of_cassandra = [SnapshotReport { is_ephemeral: true, ..snapshots[0].clone() }];
    assert!(list_snapshots(&of_cassandra, plain).contains("There are no snapshots"));
    let all = ListSnapshotsOptions { ephemeral: true, ..plain };
    let shown = list_snapshots(&of_cassandra, all);
    let lines: Vec<&str> = shown.lines().map(str::trim_end).collect();
    assert!(lines[1].ends_with(" Expiration time Ephemeral") && lines[2].ends_with(" true"));
    let text = list_snapshots(&expires, plain);
    let line = text.lines().nth(2).unwrap();
    assert!(
        line.trim_end().ends_with(" 2026-11-21T05:14:49.204Z 2026-11-22T05:14:49.204Z"),
        "{line}"
    );
}

fn compactions() -> CompactionReport {
    CompactionReport {
        concurrent: 2,
        completed: 1007,
        bytes_compacted: 18_932_498,
        compressed_bytes_compacted: 5_183_035,
        rate_15_minutes: Some(0.148),
        rate_mean: Some(1229.28 / 3600.0),
        bytes_per_second_max: 64 << 20,
        ..CompactionReport::default()
    }
}

#[test]
fn compactionstats_is_cassandras() {
    let text = compaction_stats(&compactions(), CompactionStatsStyle::default());
    assert_eq!(text, include_str!("testdata/compactionstats.txt"));
    assert!(
        compaction_stats(
            &compactions(),
            CompactionStatsStyle { human_readable: true, ..Default::default() }
        )
        .contains(" 18.06 MiB ")
    );
}

#[test]
fn what_is_due_has_its_bytes_and_the_time_that_it_takes_at_the_rate_of_late() {
    let mut report = CompactionReport { share: 350, ..compactions() };
    let other = CompactionReport {
        backlog_bytes: 3 << 30,
        backlog_bytes_per_second: 1 << 20,
        share: 100,
        ..CompactionReport::default()
    };
    report.merge(other);
    let words = |report: &CompactionReport| -> Vec<String> {
        let text = compaction_stats(report, CompactionStatsStyle::default());
        text.lines().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    };
    let has = |report: &CompactionReport, line: &str| words(report).iter().any(|l| l == line);
    assert!(has(&report, "backlog 3221225472"), "{:?}", words(&report));
    assert!(has(&report, "backlog remaining time 0h51m12s"));
    assert!(has(&report, "compaction share 350"));
    assert!(has(&report, "mean rate 1229.28/hour"));
    report.backlog_bytes_per_second = 0;
    assert!(has(&report, "backlog remaining time n/a"));
}

#[test]
fn running_compactions_have_their_progress_and_the_time_that_is_left() {
    let mut report = compactions();
    let (keyspace, table) = ("ks".to_owned(), "t".to_owned());
    report.pending =
        vec![PendingReport { keyspace: keyspace.clone(), table: table.clone(), tasks: 3 }];
    report.running = vec![RunningReport {
        id: "1-7".to_owned(),
        kind: "Compaction".to_owned(),
        sstables: 4,
        keyspace,
        table,
        completed: 64 << 20,
        total: (64 << 20) * 4000,
        target_directory: "/d/ks/t-1".to_owned(),
    }];
    let text = compaction_stats(&report, CompactionStatsStyle::default());
    let words: Vec<Vec<&str>> = text.lines().map(|l| l.split_whitespace().collect()).collect();
    assert!(words.contains(&vec!["pending", "tasks", "3"]), "{text}");
    assert!(words.contains(&vec!["ks", "t", "3"]), "{text}");
    let row = ["1-7", "Compaction", "ks", "t", "67108864", "268435456000", "bytes", "0.03%"];
    assert!(words.contains(&row.to_vec()), "{text}");
    let left = ["active", "compaction", "remaining", "time", "1h06m39s"];
    assert!(words.contains(&left.to_vec()), "{text}");
    let style = CompactionStatsStyle { human_readable: true, as_table: true };
    let text = compaction_stats(&report, style);
    let lines: Vec<String> =
        text.lines().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let titles = "keyspace table task id completion ratio kind progress sstables total unit target directory";
    assert!(lines.iter().any(|l| l == titles), "{text}");
    let row = "ks t 1-7 0.03% Compaction 64 MiB 4 250 GiB bytes /d/ks/t-1";
    assert!(lines.iter().any(|l| l == row), "{text}");
    report.bytes_per_second_max = 0;
    let text = compaction_stats(&report, CompactionStatsStyle::default());
    assert!(text.contains("throttling disabled (0)") && text.contains("n/a"), "{text}");
}

fn tables() -> Vec<TableReport> {
    let table = |keyspace: &str, name: &str| TableReport {
        keyspace: keyspace.to_owned(),
        table: name.to_owned(),
        ..TableReport::default()
    };
    let mut all = vec![table("adm_h", "e"), table("adm_h", "t"), table("system", "local")];
    all[0].reads = 2;
    all[1] = TableReport {
        sstables: 1,
        disk_bytes: 5098,
        uncompressed_bytes: 5700,
        partitions_estimate: 2,
        flushes: 1,
        reads: 1,
        writes: 2,
        snapshot_bytes: 5082,
        compressed_bytes: (5098, 5700),
        filter_bytes: 16,
        filter_file_bytes: 24,
        summary_bytes: 10,
        offsets_bytes: 8,
        old_sstables: 1,
        misplaced_sstables: 1,
        pending_flushes: 2,
        filter_misses: 1,
        sstables_read: 8,
        droppable_cells: (1, 4),
        // Two reads of nothing, one of three rows.
        rows_per_read: crate::histogram::HistogramReport { buckets: vec![2, 0, 0, 1], sum: 0 },
        ..all[1].clone()
    };
    all
}

fn filter(ignore: bool, names: &[&str]) -> TableFilter {
    TableFilter { ignore, names: names.iter().map(|n| (*n).to_owned()).collect() }
}

#[test]
fn tablestats_is_cassandras() {
    let options = TableStatsOptions { human_readable: true, ..TableStatsOptions::default() };
    let text = table_stats(&tables(), &filter(false, &["adm_h.t"]), options).unwrap();
    assert_eq!(text, include_str!("testdata/tablestats.txt"));
}

#[test]
fn tablestats_shows_what_is_asked_for() {
    let all = tables();
    let shown = |ignore: bool, names: &[&str]| {
        let text = table_stats(&all, &filter(ignore, names), TableStatsOptions::default());
        text.map(|text| {
            let tables = text.lines().filter_map(|l| l.strip_prefix("\t\tTable: "));
            tables.map(str::to_owned).collect::<Vec<_>>()
        })
    };
    assert_eq!(shown(false, &[]).unwrap(), ["e", "t", "local"]);
    assert_eq!(shown(false, &["adm_h"]).unwrap(), ["e", "t"]);
    assert_eq!(shown(true, &["adm_h.t"]).unwrap(), ["e", "local"]);
    assert_eq!(shown(false, &["nosuch"]).unwrap_err(), "Unknown keyspace: nosuch");
    assert_eq!(
        shown(false, &["adm_h.x", "adm_h.y"]).unwrap_err(),
        "Unknown tables: [x, y] in keyspace: adm_h"
    );
}

#[test]
fn tablestats_as_json_has_the_same_numbers() {
    let options = TableStatsOptions { location_check: true, ..TableStatsOptions::default() };
    let text = table_stats_json(&tables(), &filter(false, &["adm_h.t"]), options).unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let table = &value["adm_h"]["tables"]["t"];
    assert_eq!(table["space_used_live"], "5098");
    assert_eq!(table["local_write_count"], 2);
    assert_eq!(table["sstables_in_correct_location"], false);
    assert_eq!(table["off_heap_memory_used_total"], "34");
    assert_eq!(table["average_tombstones_per_slice_last_five_minutes"], "NaN");
    assert_eq!(value["total_number_of_tables"], 1);
}

#[test]
fn tablestats_are_sorted_and_cut() {
    let mut all = tables();
    for (at, table) in all.iter_mut().enumerate() {
        table.reads = 5 + at as u64;
    }
    let options = |key: &str, top| TableStatsOptions {
        sort: Some(SortKey::parse(key).unwrap()),
        top,
        ..TableStatsOptions::default()
    };
    let text = table_stats(&all, &filter(false, &[]), options("reads", 2)).unwrap();
    let mut lines = text.lines();
    let title = lines.next().unwrap();
    assert_eq!(title, "Total number of tables: 3 (showing top 2 by reads)");
    assert_eq!(lines.next(), Some("----------------"));
    let names: Vec<&str> = text.lines().filter_map(|l| l.strip_prefix("\tTable: ")).collect();
    assert_eq!(names, ["system.local", "adm_h.t"]);
    assert!(text.ends_with("\tDroppable tombstone ratio: 0.25000\n\n----------------\n"), "{text}");
    assert!(!text.contains("Keyspace: "));
    let text = table_stats(&all, &filter(false, &["adm_h"]), options("reads", 0)).unwrap();
    assert!(text.starts_with("Total number of tables: 2\n"), "{text}");
    let text = table_stats_json(&all, &filter(false, &[]), options("reads", 1)).unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value.as_object().unwrap().len(), 2);
    assert_eq!(value["system.local"]["local_read_count"], 7);
}

#[test]
fn tablestats_as_yaml_has_the_same_numbers() {
    let options = TableStatsOptions::default();
    let text = table_stats_yaml(&tables(), &filter(false, &["adm_h.t"]), options).unwrap();
    assert!(text.starts_with("adm_h:\n  pending_flushes: 2\n  read_count: "), "{text}");
    assert!(text.contains(
        "\n  tables:\n    t:\n      average_live_cells_per_slice_last_five_minutes: 1.6666666666666667\n"
    ));
    assert!(text.contains("      average_tombstones_per_slice_last_five_minutes: .NaN\n"));
    assert!(text.contains("\n      space_used_live: '5098'\n"), "{text}");
    assert!(text.ends_with("\ntotal_number_of_tables: 1\n\n"), "{text}");
}

#[test]
fn status_of_a_cluster_shows_every_state() {
    let mut node = three_nodes();
    node.nodes[1].up = false;
    node.nodes[2].state = "Joining".to_owned();
    node.nodes[2].load_bytes = None;
    for member in &mut node.nodes {
        member.tokens.push(member.tokens[0] / 2 + 1);
    }
    node.keyspaces.push(keyspace("all", &[("class", NETWORK), ("dc1", "3")]));
    let text = status(&node, Some("all"), HostStyle::default()).unwrap();
    assert_eq!(
        text,
        "\
Datacenter: dc1
===============
Status=Up/Down
|/ State=Normal/Leaving/Joining/Moving
--  Address    Load        Tokens  Owns (effective)  Host ID                               Rack
UN  127.0.0.1  469.86 KiB  2       100.0%            00000001-0000-4000-8000-000000000000  r1  
DN  127.0.0.2  469.86 KiB  2       100.0%            00000002-0000-4000-8000-000000000000  r2  
UJ  127.0.0.3  ?           2       ?                 00000003-0000-4000-8000-000000000000  r3  

"
    );
    node.nodes[1].liveness_unknown = true;
    let text = status(&node, Some("all"), HostStyle::default()).unwrap();
    assert!(text.contains("\n?N  127.0.0.2"), "{text}");
}

#[test]
fn describecluster_groups_the_versions() {
    let mut node = three_nodes();
    node.nodes[1].up = false;
    node.nodes[1].schema_version = None;
    node.nodes[2].schema_version = None;
    node.nodes[2].release_version = "5.0.8".to_owned();
    node.nodes[2].is_voter = false;
    let cluster = ClusterReport { dynamic_snitch: true, ..ClusterReport::default() };
    let text = describe_cluster(&node, &cluster, HostStyle::default());
    let expected = "\tDynamicEndPointSnitch: enabled
\tPartitioner: org.apache.cassandra.dht.Murmur3Partitioner
\tSchema versions:
\t\tfb799392-e8c6-337c-a9df-c7810a620ca5: [127.0.0.1]

\t\tUNREACHABLE: [127.0.0.2]

\t\tUNKNOWN: [127.0.0.3]

Stats for all nodes:
\tLive: 2
\tJoining: 0
\tMoving: 0
\tLeaving: 0
\tUnreachable: 1

Data Centers: 
\tdc1 #Nodes: 3 #Down: 1

Metadata voters:
\t127.0.0.1, 127.0.0.2 (down)

Database versions:
\t5.0.9: [127.0.0.1:7000, 127.0.0.2:7000]

\t5.0.8: [127.0.0.3:7000]

Keyspaces:
";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn info_of_a_joining_node_says_so() {
    let cluster =
        ClusterReport { operation_mode: "JOINING".to_owned(), ..ClusterReport::default() };
    let text = info(&one_node(), &cluster, &[], &[], InfoStyle::default());
    assert!(text.contains("Token                  : (node is not joined to the cluster)\n"));
    assert!(text.contains("Bootstrap state        : IN_PROGRESS\n"), "{text}");
}
