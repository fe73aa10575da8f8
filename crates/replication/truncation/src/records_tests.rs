use super::*;
use cluster::{LocalNode, Transformation, Truncation, metalog};
use rt::Rt;
use rt::sim::{World, WorldOptions};
use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;
use stdx::{HostId, IoErrorKind, Token};

const PATH: &str = "metadata/truncated";

fn table(n: u128) -> TableId {
    TableId(Uuid::from_u128(n))
}

/// The metadata of a node that is alone.
fn alone() -> ClusterSnapshot {
    let local = LocalNode {
        host_id: HostId(Uuid::from_u128(1)),
        cluster_name: "Test Cluster".to_owned(),
        datacenter: "datacenter1".to_owned(),
        rack: "rack1".to_owned(),
        tokens: vec![Token(0)],
        created_at: WallMicros(1_700_000_000_000_000),
    };
    let first = Transformation::Bootstrap(local);
    metalog::bootstrap(&first, &cql_plan::system::system_schema()).unwrap()
}

/// Runs `main` on one simulated node.
fn run<F: Future<Output = ()> + 'static>(main: impl FnOnce(Rt) -> F + 'static) {
    let world = World::new(11, WorldOptions::default());
    let done = Rc::new(Cell::new(false));
    let seen = done.clone();
    world.client("n1", move |rt| async move {
        main(rt).await;
        seen.set(true);
    });
    world.run_until(|| done.get(), Duration::from_secs(3600)).unwrap();
}

/// A metadata log at `epoch` with truncations (table, epoch, time).
pub(crate) fn metadata(epoch: u64, truncations: &[(TableId, u64, i64)]) -> ClusterSnapshot {
    let mut snapshot = alone();
    snapshot.epoch = Epoch(epoch);
    for (table, epoch, at) in truncations {
        let truncated_at = WallMicros(*at);
        let truncation = Truncation { truncated_at, epoch: Epoch(*epoch), ..Truncation::default() };
        snapshot.truncations.insert(*table, truncation);
    }
    snapshot
}

/// A table that every schema has.
fn existing() -> TableId {
    alone().schema.table("system_auth", "roles").unwrap().id
}

async fn written(fs: &Fs, records: &Records) -> Vec<u8> {
    fs.create_dir_all("metadata").await.unwrap();
    store(fs, PATH, records).await.unwrap();
    fs.read(PATH, 1 << 20).await.unwrap()
}

#[test]
fn the_bytes_on_disk_are_as_documented() {
    let mut records = Records::all_of(&metadata(7, &[(table(2), 7, -5)]));
    records.cluster = Uuid::from_u128(1);
    records.run = Some(12);
    let text = "cluster 00000000-0000-0000-0000-000000000001\nrun 12\nthrough 7\n\
                00000000-0000-0000-0000-000000000002 -5\n";
    assert_eq!(records.encode(), text.as_bytes());
    assert!(FORM.encode(b"").starts_with(b"helenus-file truncated 3\n"));
    let read = Records::decode(FORM, text.as_bytes()).unwrap();
    assert_eq!(read, Records { is_durable: true, ..records.clone() });
    // The form before.
    let text = text.replace("run 12\n", "");
    assert_eq!(Records::decode(FORM, text.as_bytes()), None);
    let read = Records::decode(FORM_WITHOUT_RUN, text.as_bytes()).unwrap();
    assert_eq!(read, Records { run: None, is_durable: false, ..records });
}

/// A file of run 20, read at starts after other runs.
#[test]
fn a_file_is_believed_when_no_later_run_wrote_it() {
    run(|rt| async move {
        let fs = rt.fs();
        // The truncation of the last entry, which might have been cut off.
        let of = metadata(5, &[(existing(), 5, 50)]);
        let old = Records { run: Some(20), ..Records::all_of(&metadata(4, &[(table(8), 3, 30)])) };
        let due = vec![(existing(), WallMicros(50))];
        let runs = [
            (Some(20), true, "the crashed run's"),
            (Some(19), true, "of a start that ended before its number was written"),
            (Some(21), false, "an older copy"),
            (None, false, "of nobody knows which run"),
        ];
        for (last, is_believed, what) in runs {
            written(&fs, &old).await;
            begin_run(&fs, PATH, &of, Runs { last, this: 30 }).await.unwrap();
            let read = load(&fs, PATH, &of).await.unwrap();
            assert_eq!(read.run, Some(30), "{what}");
            assert_eq!(read.due(&of), if is_believed { due.clone() } else { Vec::new() }, "{what}");
            assert_eq!(read.known().get(&table(8)), Some(&WallMicros(30)), "{what}");
            assert!(read.is_durable(), "{what}");
        }
        assert_eq!(names_of(&of, &due), "system_auth.roles");
        assert_eq!(names_of(&of, &[]), "none");
    });
}

#[test]
fn a_file_of_the_form_before_is_read_and_gets_a_run() {
    run(|rt| async move {
        let fs = rt.fs();
        let of = metadata(5, &[(existing(), 5, 50)]);
        let body = format!("cluster {}\nthrough 4\n{} 30\n", of.cluster_id, existing().0);
        fs.create_dir_all("metadata").await.unwrap();
        fs.write_small(FORM_WITHOUT_RUN, PATH, body.as_bytes()).await.unwrap();
        begin_run(&fs, PATH, &of, Runs { last: Some(20), this: 30 }).await.unwrap();
        let read = load(&fs, PATH, &of).await.unwrap();
        assert_eq!((read.run, read.through), (Some(30), Epoch(4)));
        assert_eq!(read.due(&of), [(existing(), WallMicros(50))]);
        let mut bytes = FORM_WITHOUT_RUN.encode(body.as_bytes());
        bytes[30] ^= 1;
        fs.write_atomic(PATH, bytes).await.unwrap();
        let error = load(&fs, PATH, &of).await.unwrap_err();
        assert!(error.to_string().contains("checksum mismatch"), "{error}");
    });
}

#[test]
fn a_damaged_file_is_refused_by_name_and_never_believed() {
    run(|rt| async move {
        let fs = rt.fs();
        let of = metadata(9, &[(existing(), 5, 50)]);
        let records = Records::all_of(&of);
        let good = written(&fs, &records).await;
        let mut bad: Vec<Vec<u8>> = (1..good.len()).map(|at| good[..at].to_vec()).collect();
        for at in 0..good.len() {
            let mut flipped = good.clone();
            flipped[at] ^= 1 << (at % 8);
            bad.push(flipped);
        }
        let lines: Vec<&str> = std::str::from_utf8(&good).unwrap().lines().collect();
        bad.extend((0..lines.len()).map(|gone| {
            let kept = lines.iter().enumerate().filter(|(i, _)| *i != gone);
            kept.map(|(_, line)| format!("{line}\n")).collect::<String>().into_bytes()
        }));
        for bytes in bad {
            fs.write_atomic(PATH, bytes.clone()).await.unwrap();
            let error = load(&fs, PATH, &of).await.unwrap_err();
            assert_eq!(error.kind, IoErrorKind::Damaged, "{:?}", String::from_utf8_lossy(&bytes));
            assert!(error.to_string().contains(PATH));
        }
    });
}

#[test]
fn without_a_file_to_believe_everything_counts_as_carried_out() {
    run(|rt| async move {
        let fs = rt.fs();
        // The truncation of the last entry, which might have been cut off.
        let of = metadata(5, &[(existing(), 5, 50)]);
        let (fs, of) = (&fs, &of);
        let due = || async move {
            let mut records = load(fs, PATH, of).await.unwrap();
            let due = records.is_due_at_start(of);
            records.skip_all_but(of, due);
            records.due(of)
        };
        assert_eq!(due().await, [], "no file");
        let old = Records::all_of(&metadata(4, &[]));
        written(fs, &old).await;
        assert_eq!(due().await, [(existing(), WallMicros(50))], "the one that is believed");
        let another = Records { cluster: Uuid::from_u128(9), ..old };
        written(fs, &another).await;
        assert_eq!(due().await, [], "of another cluster");
        fs.write_atomic(PATH, Vec::new()).await.unwrap();
        assert_eq!(due().await, [], "empty");
        for legacy in [format!("{} 40\n", existing().0), format!("{} 7\n", table(3).0)] {
            fs.write_atomic(PATH, legacy.into_bytes()).await.unwrap();
            assert_eq!(due().await, [], "of an earlier release, without checksum");
        }
    });
}

/// INV-truncation-2.
#[test]
fn a_start_carries_out_the_last_entry_only() {
    let mut records = Records::all_of(&metadata(4, &[]));
    let before_the_last = metadata(6, &[(existing(), 5, 50)]);
    assert_eq!(records.is_due_at_start(&before_the_last), None);
    records.skip_all_but(&before_the_last, None);
    assert_eq!(records.due(&before_the_last), []);
    assert!(!records.is_durable());
    let last = metadata(7, &[(existing(), 7, 70)]);
    assert_eq!(records.is_due_at_start(&last), Some(existing()));
    records.note(existing(), WallMicros(70));
    records.reflect(&last);
    assert_eq!(records.is_due_at_start(&last), None, "through its epoch");
}

#[test]
fn an_older_time_is_never_newer_and_tables_of_other_logs_keep_their_lines() {
    let mut records = Records::all_of(&metadata(4, &[(existing(), 4, 40), (table(8), 3, 30)]));
    for at in [39, 40] {
        assert_eq!(records.due(&metadata(5, &[(existing(), 5, at)])), [], "{at}");
    }
    assert_eq!(records.due(&metadata(5, &[(existing(), 5, 41)])).len(), 1);
    assert_eq!(records.due(&metadata(5, &[(table(9), 5, 41)])), [], "no such table here");
    records.reflect(&metadata(5, &[]));
    assert_eq!(records.known().get(&table(8)), Some(&WallMicros(30)));
}

#[test]
fn records_of_unknown_tables_have_a_bound() {
    let mut records = Records::all_of(&metadata(1, &[]));
    for n in 0..UNKNOWN_TABLES_MAX + 3 {
        records.note(table(n as u128 + 100), WallMicros(n as i64));
    }
    records.note(existing(), WallMicros(-1));
    records.reflect(&metadata(2, &[]));
    assert_eq!(records.known().len(), UNKNOWN_TABLES_MAX + 1);
    assert!(records.known().contains_key(&existing()));
    assert!(!records.known().contains_key(&table(102)), "the oldest go first");
}
