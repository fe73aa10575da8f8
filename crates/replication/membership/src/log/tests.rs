//! The log's file, cut at any place.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cluster::{LocalNode, Transformation};
use rt::sim::{World, WorldOptions};
use rt::{Buf, OpenOptions, Rt};
use schema::{KeyspaceParams, Schema, SchemaChange};
use stdx::{Epoch, HostId, Token, Uuid};

use crate::log::{self, OpenError};

const PATH: &str = "/data/metadata/log";
const MARK: &str = "/data/metadata/log-end";

async fn founded(rt: &Rt) -> log::Opened {
    let local = LocalNode {
        host_id: HostId(Uuid::from_u128(1)),
        cluster_name: "Test".to_owned(),
        datacenter: "dc".to_owned(),
        rack: "r".to_owned(),
        tokens: vec![Token(1)],
        created_at: rt.wall(),
    };
    let mut framed = Vec::new();
    Transformation::Bootstrap(local).encode_entry(Epoch(1), &mut framed);
    rt.fs().create_dir_durably("/data/metadata").await.unwrap();
    log::create(rt, "/data", &Schema::default(), &framed, Epoch(1)).await.unwrap()
}

fn keyspace(n: u64) -> Vec<u8> {
    let params = KeyspaceParams { durable_writes: true, replication: Default::default() };
    let change = SchemaChange::CreateKeyspace { name: format!("k{n}").as_str().into(), params };
    let mut framed = Vec::new();
    Transformation::Schema(Box::new(change)).encode_entry(Epoch(n), &mut framed);
    framed
}

async fn put(rt: &Rt, path: &str, content: &[u8]) {
    let options =
        OpenOptions { write: true, create: true, truncate: true, ..OpenOptions::default() };
    let file = rt.fs().open(path, options).await.unwrap();
    file.write_at(Buf::from(content.to_vec()), 0).await.1.unwrap();
}

/// The last entry that a start finds, or the error.
async fn end(rt: &Rt) -> Result<(u64, bool), OpenError> {
    let opened = log::open(rt, "/data", &Schema::default()).await?;
    Ok((opened.log.end().0, opened.is_end_rebuilt))
}

fn run<F: Future<Output = ()> + 'static>(test: impl Fn(Rt) -> F + Send + Sync + 'static) {
    let world = World::new(1, WorldOptions::default());
    let done = Arc::new(AtomicBool::new(false));
    let flag = done.clone();
    world.client("n1", move |rt| {
        let (test, flag) = (test(rt), flag.clone());
        async move {
            test.await;
            flag.store(true, Ordering::Relaxed);
        }
    });
    world.run_until(|| done.load(Ordering::Relaxed), Duration::from_secs(60)).unwrap();
}

#[test]
fn a_log_that_was_cut_anywhere_is_refused_by_name() {
    run(|rt| async move {
        let mut log = founded(&rt).await.log;
        for n in 2..=4 {
            log.append(keyspace(n), Epoch(n)).await.unwrap();
        }
        drop(log);
        let whole = rt.fs().read(PATH, 1 << 20).await.unwrap();
        // The last marker attests the last entry: without it the log is as after a crash.
        let marker = 16;
        for length in 0..whole.len() - marker {
            put(&rt, PATH, &whole[..length]).await;
            match end(&rt).await {
                Err(OpenError::Cut { path, found, expected }) => {
                    assert!(path == PATH && found < expected && expected == Epoch(4), "{length}");
                }
                other => panic!("{length}: {other:?}"),
            }
        }
        rt.fs().remove_file(PATH).await.unwrap();
        assert!(matches!(end(&rt).await, Err(OpenError::Cut { .. })));
        put(&rt, PATH, &whole).await;
        assert_eq!(end(&rt).await, Ok((4, false)));
    });
}

#[test]
fn a_torn_last_append_is_dropped_and_a_lost_mark_is_written_again() {
    run(|rt| async move {
        let mut log = founded(&rt).await.log;
        log.append(keyspace(2), Epoch(2)).await.unwrap();
        drop(log);
        let whole = rt.fs().read(PATH, 1 << 20).await.unwrap();
        let torn = keyspace(3);
        put(&rt, PATH, &[&whole[..], &torn[..torn.len() - 1]].concat()).await;
        assert_eq!(end(&rt).await, Ok((2, false)));
        // A crash between the sync and the mark.
        put(&rt, PATH, &[&whole[..], &torn].concat()).await;
        assert_eq!(end(&rt).await, Ok((3, false)));
        let mark = rt.fs().read(MARK, 1 << 10).await.unwrap();
        assert!(mark.windows(8).any(|part| part == b"epoch 3\n"), "{mark:?}");
        rt.fs().remove_file(MARK).await.unwrap();
        assert_eq!(end(&rt).await, Ok((3, false)));
        assert_eq!(rt.fs().read(MARK, 1 << 10).await.unwrap(), mark);
        put(&rt, MARK, b"helenus-log-end 1\nepoch 2\n").await;
        assert_eq!(end(&rt).await, Ok((3, true)));
        assert_eq!(rt.fs().read(MARK, 1 << 10).await.unwrap(), mark);
    });
}
